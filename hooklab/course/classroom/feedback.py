"""A page for each student: what each check said, beside the lines that it is about. No solution, no other student."""

from __future__ import annotations

from collections.abc import Sequence

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Exercise, Lesson
from hooklab.course.classroom.pages import escaped, message, page, state, with_code
from hooklab.course.classroom.verdicts import TAMPERED, Verdict, points_of

_RESERVED = ("con", "prn", "aux", "nul")  # devices of Windows


def feedback(student: str, graded: Sequence[Graded], lessons: dict[int, Lesson]) -> str:
    """Return a student's page, with all lessons that were graded."""
    parts = [f"<h1>{escaped(student)}</h1>"]
    for one in graded:
        lesson = lessons.get(one.lesson)
        if lesson is None:
            parts.append("<p>No exercise was found in what was handed in.</p>")
            parts += [f"<p>{escaped(note)}</p>" for note in one.notes]
            continue
        done = sum(verdict.state == "correct" for verdict in one.verdicts.values())
        points = sum(points_of(part, one.verdicts.get(part.id)) for part in lesson.exercises)
        of = sum(part.points for part in lesson.exercises)
        parts.append(f"<h2>{with_code(lesson.title)}</h2>")
        parts.append(f"<p>{done} of {len(lesson.exercises)} exercises correct, {points} of {of} points.</p>")
        parts += [_exercise(part, one.verdicts.get(part.id), lesson) for part in lesson.exercises]
    return page(f"Feedback for {student}", "\n".join(parts))


def file_names(students: Sequence[str]) -> dict[str, str]:
    """Return a file name for each student's page: the name, made safe, and a number where two are alike.

    Example:
        >>> file_names(["Ana Li", "../ana li"])
        {'Ana Li': 'Ana Li.html', '../ana li': 'ana li 2.html'}
    """
    names: dict[str, str] = {}
    taken = set(_RESERVED)
    for student in students:
        safe = "".join(one if one.isalnum() or one in " -" else "_" for one in student)[:60].strip(" _-") or "student"
        name = next(name for name in (safe, *(f"{safe} {n}" for n in range(2, 10**6))) if name.casefold() not in taken)
        taken.add(name.casefold())
        names[student] = f"{name}.html"
    return names


def _state(graded: Graded, exercise: Exercise) -> str:
    verdict = graded.verdicts.get(exercise.id)
    return verdict.state if verdict else "not handed in"


def _exercise(exercise: Exercise, verdict: Verdict | None, lesson: Lesson) -> str:
    name = verdict.state if verdict else "not handed in"
    is_decided = verdict is not None and verdict.is_decided
    if is_decided and name == TAMPERED:
        name = "not yet"
    lines = [f"<h3>{escaped(exercise.id)} · {with_code(exercise.title)} &nbsp; {state(name)}</h3>"]
    if verdict and verdict.remark:
        lines.append(f"<p>Your teacher says: {escaped(verdict.remark)}</p>")
    if verdict and verdict.text and verdict.state != "not attempted" and not (is_decided and name == "correct"):
        said = "<p>Your teacher looks at this answer.</p>" if name == TAMPERED else message(verdict)
        lines.append(f'<div class="told">{said}</div>')
    if verdict and verdict.lines and verdict.state not in ("correct", "not attempted"):
        lines.append(f'<p class="soft">Your lines, cell {verdict.cell} of your notebook:</p>')
        lines.append(f"<pre>{escaped(verdict.lines)}</pre>")
    if name not in ("correct", TAMPERED):
        lines.append(
            f'<p class="soft">To go back to: “{with_code(exercise.section)}” in lesson {lesson.number}, '
            f"and the hints on the exercise's card (cell {exercise.cell}).</p>"
        )
    return "\n".join(lines)
