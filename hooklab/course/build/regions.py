"""Solution regions: the lines between `### BEGIN SOLUTION` and `### END SOLUTION`, and what stands there in a lesson.

The delimiters and the stub are nbgrader's defaults, so that nbgrader makes the same lesson from a solution notebook.
"""

from __future__ import annotations

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")


def stubbed(text: str) -> str:
    """Return the text with each region replaced by the stub, at the indentation of its first delimiter.

    Example:
        >>> print(stubbed("def f():\\n    ### BEGIN SOLUTION\\n    return 1\\n    ### END SOLUTION"))
        def f():
            # YOUR CODE HERE
            raise NotImplementedError()
    """
    lines, inside = [], False
    for line in text.split("\n"):
        if line.strip() == BEGIN:
            inside = True
            indent = line[: line.index("#")]
            lines += [indent + stub for stub in STUB]
        elif line.strip() == END:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def solution_lines(text: str) -> list[str]:
    """Return the lines inside the regions, stripped, without empty ones."""
    lines, inside = [], False
    for line in map(str.strip, text.split("\n")):
        if line in (BEGIN, END):
            inside = line == BEGIN
        elif inside and line:
            lines.append(line)
    return lines


def has_marker(text: str) -> bool:
    """Return whether the text mentions a delimiter at all, as nbgrader looks for it."""
    return "BEGIN SOLUTION" in text or "END SOLUTION" in text


def region_fault(text: str) -> str | None:
    """Return what is wrong with the delimiters of a solution cell, or None."""
    inside, filled, regions = False, False, 0
    for line in map(str.strip, text.split("\n")):
        if line == BEGIN:
            if inside:
                return f"a second `{BEGIN}` before `{END}`"
            inside, filled = True, False
        elif line == END:
            if not inside:
                return f"`{END}` without `{BEGIN}` before it"
            if not filled:
                return "a solution region without code"
            inside, regions = False, regions + 1
        elif has_marker(line):
            return f"`{line}` is no delimiter: write `{BEGIN}` or `{END}`, alone on its line"
        elif line and not line.startswith("#"):
            filled = True
    if inside:
        return f"`{BEGIN}` without `{END}` after it"
    return None if regions else f"a solution cell without `{BEGIN}` … `{END}`"
