"""The words of the course that programs write and read back: one table, so that the course can be translated.

Text that is used in one place only is not here: a lesson's prose, a check's messages, a command's messages.
"""

# on a lesson's first card, `**Time** 40 minutes, and 10 …`, and on an exercise's, `### Exercise 2.1 · …`
TIME = "Time"
MINUTES = "minutes"
A_MINUTE = "minutes?"  # as a pattern: one minute, two minutes
AND = "and"
EXERCISE = "Exercise"
HINT = "Hint"
# the heading, after the recap, of what can wait
MORE = "If you want more"

# what a check or a prediction found, as a learner reads it
OUTCOMES = {
    "correct": "correct",
    "not yet": "not yet",
    "not attempted": "not attempted",
    "right": "right",
    "not right": "not this time",
    "no guess": "no guess",
    "not scored": "not scored",
}
# the first line of a folded output: JupyterLab shows it beside the three dots
CAME_OUT = "What came out:"
# a click on it, where no guess was made, shows what came out
WITHOUT_GUESS = "show it without a guess"
NOT_CHECKED = "not checked yet"
