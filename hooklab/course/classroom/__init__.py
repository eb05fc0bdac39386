"""The classroom: what a teacher hands out, and what comes back, graded.

`python -m hooklab grade FOLDER` goes through these files in this order: `collecting` (whose is what), `reading` (a
notebook's cells, also from zips), `grading` (who is graded when), `verdicts` (starts a notebook's process in the
`sandbox`), there `running` (cells and checks) and `pointing` (what to look at); then `tables`, `pages` and `report`,
which `report_folder` puts where no file of the teacher's is replaced.
"""
