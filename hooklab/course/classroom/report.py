"""report.html: for the teacher, what the class has understood and what not, and what to say about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import Exercise, Lesson
from hooklab.course.classroom.pages import STATES, details, escaped, message, page, state, with_code
from hooklab.course.classroom.reasons import NO_MISCONCEPTION, Reasons
from hooklab.course.classroom.verdicts import Verdict, points_of

_WIDEST = 8.0  # em, of a bar


def report(
    graded: Sequence[Graded],
    lessons: dict[int, Lesson],
    reasons: Reasons,
    files: dict[str, str],
    unprotected: str,
) -> str:
    """Return the report on a class.

    Args:
        graded: by student and lesson.
        lessons: those that were graded, by number.
        reasons: why answers are not correct.
        files: the name of each student's page.
        unprotected: what this machine could not keep from students' code, or "".
    """
    students = len({one.student for one in graded})
    parts = [f"<h1>What the class has understood</h1><p>{students} student{'' if students == 1 else 's'}.</p>"]
    if unprotected:
        parts.append(f'<p class="told tampered">Not prevented on this machine: {escaped(unprotected)}.</p>')
    for lesson in lessons.values():
        of_it = [one for one in graded if one.lesson == lesson.number]
        parts.append(f"<h2>{with_code(lesson.title)}</h2>")
        parts.append(_begin_with(of_it, lesson, reasons))
        parts.append(_glance(of_it, lesson, files))
        parts.append(_to_look_at(of_it, lesson))
        parts += [_exercise(of_it, lesson, one, reasons) for one in lesson.exercises]
    lost = [one for one in graded if one.lesson not in lessons]
    if lost:
        rows = "".join(f"<li>{escaped(one.student)}: {escaped('; '.join(one.notes))}</li>" for one in lost)
        parts.append(f"<h2>Nothing to grade</h2><ul>{rows}</ul>")
    return page("What the class has understood", "\n".join(parts))


def _begin_with(graded: Sequence[Graded], lesson: Lesson, reasons: Reasons) -> str:
    """The reason that most students share, in one sentence: what the hour in class may begin with."""
    shared = [
        (len(verdicts), exercise, reason, _shortest(verdicts))
        for exercise in lesson.exercises
        for reason, verdicts in reasons.by_frequency(lesson, exercise)
        if reason not in NO_MISCONCEPTION
    ]
    if not shared:
        return ""
    # An exception says less about what was not understood than any other reason does.
    count, exercise, reason, example = max(shared, key=lambda one: (" raised " not in one[2], one[0]))
    return (
        f"<p>Most common: <b>{with_code(reason)}</b>, in exercise {escaped(exercise.id)} "
        f"({count} of {len(graded)} student{'' if len(graded) == 1 else 's'}).{_to_say(example, exercise)}</p>"
    )


def _glance(graded: Sequence[Graded], lesson: Lesson, files: dict[str, str]) -> str:
    """Exercise × student: a sign for each, with the points."""
    head = "".join(f'<th title="{escaped(one.title)}">{escaped(one.id)}</th>' for one in lesson.exercises)
    rows = []
    for one in graded:
        states = [_state(one, exercise) for exercise in lesson.exercises]
        points = sum(points_of(part, one.verdicts.get(part.id)) for part in lesson.exercises)
        cells = "".join(f'<td class="state">{state(name, words=False)}</td>' for name in states)
        link = f'<a href="feedback/{quote(files[one.student])}">{escaped(one.student)}</a>'
        rows.append(f"<tr><td>{link}</td>{cells}<td>{points}</td></tr>")
    done = [sum(_state(one, exercise) == "correct" for one in graded) for exercise in lesson.exercises]
    foot = "".join(f'<td class="state">{count}</td>' for count in done)
    of = sum(one.points for one in lesson.exercises)
    used = [name for name in STATES if any(_state(one, part) == name for one in graded for part in lesson.exercises)]
    return (
        f'<div class="scroll"><table><thead><tr><th>student</th>{head}<th>of {of} points</th></tr></thead>'
        f"<tbody>{''.join(rows)}<tr><th>correct</th>{foot}<td></td></tr></tbody></table></div>"
        f"<p>{' &nbsp; '.join(state(name) for name in used)}</p>"
    )


def _to_look_at(graded: Sequence[Graded], lesson: Lesson) -> str:
    """All that the teacher is told, one line for each student and place."""
    lines = []
    for one in graded:
        lines += [f"{escaped(one.student)}: {escaped(note)}" for note in one.notes]
        for id, verdict in one.verdicts.items():
            if verdict.is_decided:
                lines.append(f"{escaped(one.student)}, {escaped(id)}: you have decided: {escaped(verdict.remark)}")
            elif verdict.notes:
                lines.append(f"{escaped(one.student)}, {escaped(id)}: {escaped('; '.join(verdict.notes))}")
    if not lines:
        return ""
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f"<h3>To look at</h3><ul>{items}</ul>"


def _exercise(graded: Sequence[Graded], lesson: Lesson, exercise: Exercise, reasons: Reasons) -> str:
    counts = [(name, sum(_state(one, exercise) == name for one in graded)) for name in STATES]
    told = ", ".join(f"{count} {state(name)}" for name, count in counts if count)
    found = reasons.by_frequency(lesson, exercise)
    parts = [f"<h3>{escaped(exercise.id)} · {with_code(exercise.title)}</h3><p>{told}</p>"]
    most = len(found[0][1]) if found else 1
    for reason, verdicts in found:
        width = _WIDEST * len(verdicts) / most
        bar = f'<span class="bars"><span class="bar not-yet" style="width:{width:.1f}em"></span></span>'
        parts.append(f"<h4>{bar}{len(verdicts)} × {with_code(reason)}</h4>")
        parts.append(_example(verdicts, exercise))
    if found:
        parts.append(_back_to(lesson, exercise))
    return "\n".join(parts)


def _example(verdicts: Sequence[Verdict], exercise: Exercise) -> str:
    """What to say; the shortest answer that has this reason, without its author; what the check says to it."""
    one = _shortest(verdicts)
    told = f"<p>{_to_say(one, exercise)}</p><pre>{escaped(one.lines)}</pre>{message(one, without='likely')}"
    return f'<div class="told">{told}</div>'


def _shortest(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=lambda verdict: (len(verdict.lines), verdict.lines, verdict.text))


def _to_say(verdict: Verdict, exercise: Exercise) -> str:
    say = what_to_say(verdict, exercise)
    return f" What to say: {say}{'' if say.endswith('.') else '.'}" if say else ""


def what_to_say(verdict: Verdict, exercise: Exercise) -> str:
    """Return, as HTML, the check's explanation; else the hint that speaks of the same; else what was expected."""
    _, _, explained = verdict.likely.partition(": ")
    if explained:
        return with_code(explained)
    said = _long_words(verdict.text)
    shared, hint = max(((len(said & _long_words(symptom)), text) for symptom, text in exercise.hints), default=(0, ""))
    if shared >= 2:
        return _as_written(hint)
    expected = next((text for label, text in details(verdict) if label == "expected"), "")
    return with_code(f"expected is {expected}") if expected[:1].isalpha() else ""


def _long_words(text: str) -> set[str]:
    return {word for word in re.findall(r"[\w']+", text.lower()) if len(word) > 3}


def _back_to(lesson: Lesson, exercise: Exercise) -> str:
    hints = "".join(f"<li>{_as_written(symptom)}: {_as_written(text)}</li>" for symptom, text in exercise.hints)
    return (
        f"<p>Go back to “{with_code(exercise.section)}” in lesson {lesson.number} "
        f'(<span class="soft">the exercise is cell {exercise.cell} of {escaped(lesson.name)}.ipynb</span>). '
        f"What its card says:</p><ul>{hints}</ul>"
    )


def _as_written(text: str) -> str:
    """A text of the lesson's own, which may hold code as Markdown or as HTML."""
    return with_code(text.replace("<code>", "`").replace("</code>", "`"))


def _state(graded: Graded, exercise: Exercise) -> str:
    verdict = graded.verdicts.get(exercise.id)
    return verdict.state if verdict else "not handed in"
