"""What a run writes into the report's folder, so that no file of the teacher's is ever replaced.

The folder keeps a list of what earlier runs have written, and which class it was; only these files are replaced. The
teacher's own decisions are in a table there, which is made empty once and then only read.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hooklab.course.classroom.grading import Graded
from hooklab.course.classroom.pages import STATES
from hooklab.course.classroom.verdicts import Verdict

KEPT = ".graded"  # in the report's folder: what was graded already, and the list of what was written
DECISIONS = "decisions.csv"
_COLUMNS = ("student", "exercise", "outcome", "points", "remark")


class Refused(Exception):
    """One sentence for the teacher: why nothing was written."""


class ReportFolder:
    """The folder of a report on one class."""

    def __init__(self, folder: Path, of_class: Path) -> None:
        """Raises Refused for a folder that cannot be written to, and for one with the report on another class."""
        self.folder, self.of_class, self.kept = folder, str(of_class.resolve()), folder / KEPT
        self._list = self.kept / "written.json"
        try:
            self.kept.mkdir(parents=True, exist_ok=True)
            (self.kept / "try").touch()
            (self.kept / "try").unlink()
        except OSError as error:
            raise Refused(f"cannot write to {folder}: {error.strerror}") from None
        try:
            earlier = json.loads(self._list.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            earlier = {"class": self.of_class, "files": []}
        if earlier["class"] != self.of_class:
            raise Refused(f"{folder} has the report on {earlier['class']}: name another folder with --report")
        self._own = set(earlier["files"])

    def expect(self, names: Sequence[str]) -> None:
        """Raise Refused where a file of this name is there that no earlier run has written."""
        for name in names:
            if name not in self._own and (self.folder / name).exists():
                raise Refused(f"{self.folder / name} is not from an earlier run: move it, or name another --report")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write these files, and remove what earlier runs have written and this one does not."""
        self.expect(list(files))
        self._list.write_text(json.dumps({"class": self.of_class, "files": sorted(self._own | set(files))}))
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # A spreadsheet takes a table for UTF-8 only with this mark at its beginning.
            encoding = "utf-8-sig" if path.suffix == ".csv" else "utf-8"
            path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        for stale in self._own - set(files):
            (self.folder / stale).unlink(missing_ok=True)
        self._own = set(files)
        self._list.write_text(json.dumps({"class": self.of_class, "files": sorted(self._own)}))

    def decided(self, graded: Sequence[Graded]) -> list[Graded]:
        """Return the results as the teacher has decided them. Raises Refused for a table that cannot be understood."""
        path = self.folder / DECISIONS
        if not path.exists():
            path.write_text(",".join(_COLUMNS) + "\n", encoding="utf-8-sig")
        found = {(one.student, str(one.lesson)): one for one in graded}
        for number, row in enumerate(read_table(path), start=2):
            missing = [name for name in _COLUMNS if name not in row]
            if missing:
                raise Refused(f"{path} has no column {missing[0]}: its columns are {', '.join(_COLUMNS)}")
            student, id, outcome, points, remark = (row[name].strip() for name in _COLUMNS)
            key = student, id.split(".")[0]
            if key not in found:
                raise Refused(f"{path}, line {number}: nobody called {student!r} has an exercise {id!r}")
            if outcome not in ("", *STATES):
                raise Refused(f"{path}, line {number}: outcome is {outcome!r}, and may be {', '.join(STATES)}")
            if points and not points.isdecimal():
                raise Refused(f"{path}, line {number}: points are {points!r}, and no whole number")
            verdict = found[key].verdicts.get(id, Verdict("not yet", ""))
            state, given = outcome or verdict.state, int(points) if points else None
            decided = replace(verdict, state=state, points=given, remark=remark, is_decided=True)
            found[key] = replace(found[key], verdicts=found[key].verdicts | {id: decided})
        return list(found.values())


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with a header, whichever separator a spreadsheet has written. Raises Refused."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from None
    separator = max(",;\t", key=text.partition("\n")[0].count)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, restval="")
    return [{title: row[title] for title in rows.fieldnames or ()} for row in rows if any(row.values())]
