"""The classroom: what a teacher hands out, and what comes back, graded.

`python -m hooklab grade FOLDER` goes through these files in this order: `collecting` (whose is what; `archives` for
zips), `reading` (a notebook's cells), `grading` (who is graded when), `workers` (asks a fork `server`, whose children
give up their rights in `confinement` and `landlock`), in the child `matching` and `statements` (which lines are the
answer) and `attempting` (check and canaries); then `reasons`, `tables`, `feedback` and `report`.
"""
