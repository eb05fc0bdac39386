"""``python -m hooklab``: look at the Python first, then hand over to the launcher.

Like ``hooklab/__init__.py`` this file keeps to syntax that old Pythons can read: a Python that is too old gets one
sentence, not a SyntaxError.
"""

import sys

import hooklab

if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write(
        "hooklab: error: this is Python {}.{}, and the course needs 3.11 or newer; "
        "start it with a newer one, for example: python3.11 -m hooklab {}\n".format(
            sys.version_info[0], sys.version_info[1], " ".join(sys.argv[1:]) or "lab"
        )
    )
    sys.exit(2)
if not hooklab.HAS_COURSE:
    sys.stderr.write("hooklab: error: " + hooklab.NO_COURSE + "\n")
    sys.exit(2)

from hooklab.course.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
