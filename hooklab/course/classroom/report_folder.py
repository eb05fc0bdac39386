"""What a run writes into the report's folder, so that no file of the teacher's is ever replaced.

The folder keeps a list of what earlier runs have written, and which class it was; only these files are replaced. The
teacher's own decisions are in a table there, which is made empty once and then only read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hooklab.course.classroom.collecting import REPORT
from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.lessons import every_exercise
from hooklab.course.classroom.pages import STATES
from hooklab.course.classroom.tables import Refused, read_table

DECISIONS = "decisions.csv"
_COLUMNS = ("student", "exercise", "outcome", "points", "remark")


class ReportFolder:
    """The folder of a report on one class; `kept` is for what was graded already."""

    def __init__(self, folder: Path, of_class: Path) -> None:
        """Raises Refused for a folder that cannot be written to, and for one with the report on another class."""
        self.folder, self.kept, self._list = folder, folder / REPORT, folder / REPORT / "written.json"
        try:
            self.kept.mkdir(parents=True, exist_ok=True)
            self._list.touch()
        except OSError as error:
            raise Refused(f"cannot write to {folder}: {error.strerror}") from None
        self._earlier = {"class": str(of_class.resolve()), "files": []}
        with contextlib.suppress(ValueError):
            earlier = json.loads(self._list.read_text(encoding="utf-8"))
            if earlier["class"] != self._earlier["class"]:
                raise Refused(f"{folder} has the report on {earlier['class']}: name another folder with --report")
            self._earlier = earlier

    def expect(self, names: Iterable[str]) -> None:
        """Raise Refused where a file of this name is there that no earlier run has written."""
        for name in names:
            if name not in self._earlier["files"] and (self.folder / name).exists():
                raise Refused(f"{self.folder / name} is not from an earlier run: move it, or name another --report")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write these files, and remove what earlier runs have written and this one does not."""
        self.expect(files)
        earlier = set(self._earlier["files"])
        self._remember(earlier | set(files))
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # A spreadsheet takes a table for UTF-8 only with this mark at its beginning.
            encoding = "utf-8-sig" if path.suffix == ".csv" else "utf-8"
            path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        for stale in earlier - set(files):
            (self.folder / stale).unlink(missing_ok=True)
        self._remember(files)

    def _remember(self, names: Iterable[str]) -> None:
        self._list.write_text(json.dumps(self._earlier | {"files": sorted(names)}))

    def decide(self, graded: Sequence[Graded]) -> None:
        """Put what the teacher has decided into the results. Raises Refused for a table that cannot be understood."""
        path = self.folder / DECISIONS
        if not path.exists():
            path.write_text(",".join(_COLUMNS) + "\n", encoding="utf-8-sig")
        found = {(one.student, exercise.id): (one.verdicts, exercise) for one in graded for exercise, _ in one.pairs}
        others = every_exercise() - {id for _, id in found}  # those of another run, with another --lesson
        for number, row in enumerate(read_table(path), start=2):
            if missing := [name for name in _COLUMNS if name not in row]:
                raise Refused(f"{path} has no column {missing[0]}: its columns are {', '.join(_COLUMNS)}")
            student, id, outcome, points, remark = (row[name].strip() for name in _COLUMNS)
            if id in others:
                continue
            if (student, id) not in found:
                raise Refused(f"{path}, line {number}: nobody called {student!r} has an exercise {id!r}")
            if outcome not in ("", *STATES):
                raise Refused(f"{path}, line {number}: outcome is {outcome!r}, and may be {', '.join(STATES)}")
            if points and not points.isdecimal():
                raise Refused(f"{path}, line {number}: points are {points!r}, and no whole number")
            verdicts, exercise = found[student, id]
            state = outcome or verdicts[id].state
            given = int(points) if points else exercise.points if state == "correct" else 0
            verdicts[id] = replace(verdicts[id], state=state, points=given, remark=remark, is_decided=True)
