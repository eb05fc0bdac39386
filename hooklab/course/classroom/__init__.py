"""The classroom: what a teacher hands out, and what comes back, graded.

`python -m hooklab grade FOLDER` goes through these files in this order: `collecting` (whose is what; `archives` for
zips), `reading` (a notebook's cells), `grading` (who is graded when), `verdicts` (starts a notebook's process in the
`sandbox`), there `running` (cells and checks) and `pointing` (what to look at); then `grades`, `feedback`, `report` and
`pages`, which `written` puts into the teacher's folder.
"""
