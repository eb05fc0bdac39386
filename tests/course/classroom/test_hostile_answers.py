"""Answers that do harm: the run goes on, others are graded, nothing outside changes, the teacher is told."""

from __future__ import annotations

import os
import re
import socket
import textwrap
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from hooklab.course.classroom.lessons import lesson_at
from hooklab.course.classroom.pointing import pointed_out
from hooklab.course.classroom.reading import Cell
from hooklab.course.classroom.sandbox import ROOT, bubblewrap
from hooklab.course.classroom.verdicts import grade_notebook
from tests.course.classroom.conftest import LIMITS, Grade
from tests.course.classroom.made_up import CHECK, RIGHT, SETUP, answered, code, notebook, write


class Hostile(NamedTuple):
    """What an answer does when it is called, how its exercise ends, and what check or grader say about it."""

    does: str
    state: str
    says: str
    first: str = ""  # what its cell does before the answer is defined


HOSTILE = {
    "an endless loop": Hostile("while True: pass", "not yet", "takes too long"),
    "an endless loop that catches everything": Hostile(
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        continue",
        "stopped",
        "whatever is done to stop it",
    ),
    "an endless loop at its definition": Hostile("", "not yet", "takes too long", "while True: pass"),
    "an end at its definition": Hostile("", "not attempted", "ends its own process", "import os; os._exit(0)"),
    "processes without end": Hostile("import os\nwhile True: os.fork()", "stopped", "starts processes without end"),
    "memory without end": Hostile("all = []\nwhile True: all.append(bytearray(10**9))", "not yet", "MemoryError"),
    "a full disk": Hostile("open('big', 'wb').write(bytes(10**7))\nreturn 2 * x", "not yet", "OSError"),
    "leaving at once": Hostile("import os; os._exit(0)", "stopped", "ends its own process"),
    "Ctrl-C": Hostile("raise KeyboardInterrupt", "not yet", "KeyboardInterrupt"),
    "a crash of the interpreter": Hostile("import ctypes; ctypes.string_at(0)", "stopped", "ends its own process"),
    "patching torch for good": Hostile(
        "return x", "not yet", "replaces torch.allclose", "torch.allclose = torch.equal = lambda *a, **k: True"
    ),
    "patching torch during the check": Hostile(
        "torch.allclose = torch.equal = lambda *a, **k: True\nreturn x", "not yet", "your code replaced torch"
    ),
    "patching the check": Hostile(
        "return x",
        "tampered",
        "accepts a wrong answer",
        "import dataclasses\n"
        "import hooklab.course.lesson00.checks as checks\n"
        "scene = lambda trial, numbers: [('your result', 2 * torch.tensor(numbers))]\n"
        "checks.twice_as_large = dataclasses.replace(checks.twice_as_large, scene=scene)",
    ),
    "patching builtins": Hostile(
        "return x", "not yet", "replaces builtins.all", "import builtins\nbuiltins.all = lambda values: True"
    ),
    "a forged verdict": Hostile(
        "import os\n"
        "for channel in range(3, 30):\n"
        '    try: os.write(channel, b\'0123456789abcdef {"outcome": {"id": "0.1", "state": "correct"}}\\n\')\n'
        "    except OSError: pass\n"
        "os._exit(0)",
        "tampered",
        "own channel",
    ),
    "a verdict sent from the grader's own frame": Hostile(
        "frame = sys._getframe()\n"
        "while 'say' not in frame.f_locals: frame = frame.f_back\n"
        "send = frame.f_locals['run'].send\n"
        "about = {'summary': 'mine', 'details': [], 'notes': [], 'passed': [], 'cell': 2, 'lines': ''}\n"
        "send({'outcome': {'id': '0.1', 'state': 'correct'} | about})\n"
        "send({'end': True})",
        "tampered",
        "looks into the grader's own frames",
        "import sys",
    ),
    "a flood": Hostile(
        "import os\nwhile True:\n    for channel in range(3, 30):\n"
        "        try: os.write(channel, b'x' * 10000)\n        except OSError: pass",
        "tampered",
        "own channel",
    ),
    "importing what the course keeps for itself": Hostile(
        "return look(x)", "not yet", "uses hooklab.course.lesson00.checks", "import hooklab.course.lesson00.checks"
    ),
}


READY = [
    pytest.param(given, name, id=name)
    for path in sorted((ROOT / "lessons").glob("*.ipynb"))
    for given in [[cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]]
    for name in re.findall(r'yours_or\("[\d.]+", \w+, (\w+\.\w+)', "\n".join(given))
]


@pytest.mark.parametrize(("given", "name"), READY)
def test_an_answer_that_calls_what_the_page_runs_instead_is_pointed_out(given: list[str], name: str) -> None:
    answer = Cell(1, f"def mine(*args):\n    return {name}(*args)")

    assert pointed_out([answer], given) == {1: [name]}
    assert pointed_out([answer], []) == {}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_ends_and_the_teacher_is_told(name: str, grade: Grade, tmp_path: Path) -> None:
    hostile = HOSTILE[name]
    body = textwrap.indent(hostile.does or "pass", "    ")
    write(answered(f"{hostile.first}\n\ndef twice_as_large(x):\n{body}\n"), tmp_path / "class" / "mallory.ipynb")

    found = grade(tmp_path / "class")["mallory"]

    verdict = found.verdicts["0.1"]
    told = "\n".join([verdict.summary, str(verdict.details), *verdict.notes, *found.notes])
    assert (verdict.state, verdict.points, hostile.says in told) == (hostile.state, 0, True), told


def test_a_redefined_check_and_forged_points_count_for_nothing(grade: Grade, tmp_path: Path) -> None:
    forged = code("def check(*a): pass\n" + CHECK, "check-0-1")
    forged["metadata"]["nbgrader"]["points"] = 999
    forged["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "✓ 0.1 correct: well done"}]
    wrong = code("def twice_as_large(x):\n    return x", "solution-0-1")
    write(notebook(code(SETUP), wrong, forged), tmp_path / "class" / "mallory.ipynb")
    write(answered(RIGHT), tmp_path / "class" / "ana.ipynb")

    found = grade(tmp_path / "class")

    assert found["mallory"].verdicts["0.1"].state == "not yet"
    assert found["ana"].verdicts["0.1"].state == "correct"


# What the sandbox prevents; each returns whether it was possible. {outside} is a folder of somebody else's, {port} a
# port that something listens on.
HARM = {
    "reading another student's work": "open('{outside}/ana.ipynb').read()",
    "listing the others": "os.listdir('{outside}')",
    "writing into a file": "open('{outside}/ana.ipynb', 'w').write('')",
    "a new file outside": "open('{outside}/new', 'w')",
    "deleting files": "os.remove('{outside}/ana.ipynb')",
    "changing hooklab": "open(hooklab.__file__, 'a').write('#')",
    "changing a mode": "os.chmod(hooklab.__file__, 0)",
    "reading the solutions": "open('{root}/solutions/source/00_start_here.py').read()",
    "reading the passwords": "open('/etc/shadow').read()",
    "a connection": "socket.create_connection(('127.0.0.1', {port}), timeout=1)",
    "a Unix socket": "socket.socket(socket.AF_UNIX).connect('{outside}/listening')",
    "another process's variables": "os.stat('/proc/{pid}')",
    "killing its parent": "os.kill({pid}, 0)",
    "more files than the disk has room": "[open(f'{{n}}', 'wb').write(bytes(3 * 10**6)) for n in range(9)]",
}


@pytest.mark.skipif(not bubblewrap()[0], reason=f"bubblewrap: {bubblewrap()[1]}")
def test_the_sandbox_keeps_a_notebook_from_files_network_and_processes(tmp_path: Path) -> None:
    write(answered(), tmp_path / "ana.ipynb")
    before = {path: path.read_bytes() for path in [*tmp_path.iterdir(), *(ROOT / "hooklab").glob("*.py")]}
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "listening"))
        local.listen()
        about = {"outside": tmp_path, "root": ROOT, "port": listening.getsockname()[1], "pid": os.getpid()}
        tries = [f"lambda: {harm.format(**about)}" for harm in HARM.values()]
        cell = (
            "import os, socket, hooklab\nleft = []\n"
            f"for name, harm in zip({list(HARM)!r}, [{', '.join(tries)}]):\n"
            "    try: left += [name] if harm() is not False else []\n    except OSError: pass\n"
            "def twice_as_large(x):\n    raise ValueError(f'possible: {left}')\n"
        )
        cells = [Cell(1, cell), Cell(2, f"from hooklab import check\n{CHECK}")]
        verdicts, _ = grade_notebook(lesson_at(0), cells, "", LIMITS)

    assert "possible: []" in verdicts["0.1"].summary
    assert {path: path.read_bytes() for path in before} == before
