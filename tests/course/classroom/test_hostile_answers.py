"""Answers that do harm: the run finishes, others are graded, nothing outside changes, the teacher is told."""

from __future__ import annotations

import socket
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from hooklab.course.classroom.collecting import find_submissions
from hooklab.course.classroom.grading import grade_class
from hooklab.course.classroom.workers import Verdict, Worker
from tests.course.classroom.conftest import LIMITS, Grade
from tests.course.classroom.made_up import CHECK, RIGHT, SETUP, answered, code, notebook, write


class Hostile(NamedTuple):
    """What an answer does when it is called, how its exercise ends, and what check or grader say about it."""

    does: str
    state: str
    says: str
    at_definition: str = ""
    needs: str = ""  # the protection that it is kept from its harm by: without it, it is not tried


# {outside} is a folder that the student has no business in, {port} a port that something listens on
HOSTILE = {
    "an endless loop": Hostile("while True: pass", "not yet", "takes too long"),
    "an endless loop that catches everything": Hostile(
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        continue",
        "stopped",
        "was stopped",
    ),
    "an endless loop at its definition": Hostile("", "not yet", "takes too long", "while True: pass"),
    "a sleep": Hostile("import time; time.sleep(1000)", "not yet", "takes too long"),
    "processes without end": Hostile("import os\nwhile True: os.fork()", "stopped", "starts processes without end"),
    "a process that outlives it": Hostile(
        "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(1000)\nreturn 2 * x", "correct", "uses os"
    ),
    "threads without end": Hostile(
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=[99], daemon=True).start()",
        "not yet",
        "can't start new thread",
        needs="limits",
    ),
    "memory without end": Hostile(
        "all = []\nwhile True: all.append(bytearray(3 * 10**8))", "not yet", "MemoryError", needs="limits"
    ),
    "one huge tensor": Hostile("return torch.ones(10**11)", "not yet", "Cannot allocate memory", needs="limits"),
    "one huge number": Hostile("return 10 ** 10 ** 10", "stopped", "was stopped"),
    "recursion without end": Hostile("return twice_as_large(x)", "not yet", "RecursionError"),
    "a full disk": Hostile("open('big', 'wb').write(bytes(10**7))\nreturn 2 * x", "not yet", "OSError", needs="limits"),
    "very many files": Hostile(
        "n = 0\nwhile True:\n    open(str(n), 'w').close(); n += 1", "not yet", "OSError", needs="files"
    ),
    "deleting files": Hostile("import shutil; shutil.rmtree('{outside}')", "not yet", "PermissionError", needs="files"),
    "writing into a file": Hostile("open('{outside}/ana.ipynb', 'w').write('')", "not yet", "Error", needs="files"),
    "moving a file": Hostile("import os; os.rename('{outside}/ana.ipynb', 'mine')", "not yet", "Error", needs="files"),
    "closing a folder": Hostile(
        "import os; os.chmod('{outside}', 0)", "not yet", "Read-only file system", needs="modes"
    ),
    "new times for a file": Hostile(
        "import os; os.utime('{outside}/ana.ipynb', (0, 0))", "not yet", "Read-only file system", needs="modes"
    ),
    "a new file outside": Hostile("open('{outside}/new', 'w')", "not yet", "Error", needs="files"),
    "reading another student's work": Hostile(
        "raise ValueError(open('{outside}/ana.ipynb').read())", "not yet", "PermissionError", needs="files"
    ),
    "listing the others": Hostile(
        "import os; raise ValueError(os.listdir('{outside}'))", "not yet", "PermissionError", needs="files"
    ),
    "reading the solutions": Hostile(
        "import hooklab, pathlib\nroot = pathlib.Path(hooklab.__file__).parents[1]\n"
        "(root / 'solutions/source/00_start_here.py').read_text()",
        "not yet",
        "PermissionError",
        needs="files",
    ),
    "reading the wrong answers": Hostile(
        "import hooklab, pathlib\nroot = pathlib.Path(hooklab.__file__).parents[1]\n"
        "(root / 'tests/course/lesson00/wrong.py').read_text()",
        "not yet",
        "PermissionError",
        needs="files",
    ),
    "reading other processes": Hostile("open('/proc/1/environ').read()", "not yet", "Error", needs="files"),
    "a connection": Hostile(
        "import socket; socket.create_connection(('127.0.0.1', {port}), timeout=1)", "not yet", "Error", needs="network"
    ),
    "a datagram": Hostile(
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
        "not yet",
        "uses socket",
        needs="network",
    ),
    "a Unix socket": Hostile(
        "import socket; socket.socket(socket.AF_UNIX).connect('{outside}/../listening')",
        "not yet",
        "PermissionError",
        needs="network",
    ),
    "leaving at once": Hostile("import os; os._exit(0)", "stopped", "ends its own process"),
    "leaving politely": Hostile("raise SystemExit(0)", "not yet", "SystemExit"),
    "Ctrl-C": Hostile("raise KeyboardInterrupt", "not yet", "KeyboardInterrupt"),
    "killing itself": Hostile("import os; os.kill(os.getpid(), 9)", "stopped", "ends its own process"),
    "a crash of the interpreter": Hostile("import ctypes; ctypes.string_at(0)", "stopped", "uses ctypes"),
    "stopping itself": Hostile("import os; os.kill(os.getpid(), 19)", "stopped", "was stopped"),
    "killing its parent": Hostile(
        "import os; os.kill(os.getppid(), 9)\nreturn 2 * x", "not yet", "Error", needs="processes"
    ),
    "killing everybody": Hostile("import os; os.kill(-1, 9)\nreturn 2 * x", "not yet", "Error", needs="processes"),
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
        "import hooklab.course.lesson00.checks as checks\n"
        "from hooklab.course.exercises.exercise import Exercise\n"
        "checks.first_try = Exercise('0.1', 'mine', lambda trial: 'well done')\n"
        "for name, value in list(vars(checks).items()):\n"
        "    if isinstance(value, Exercise) and name != 'first_try': delattr(checks, name)",
    ),
    "patching code in place": Hostile(
        "return x",
        "tampered",
        "accepts a wrong answer",
        "import hooklab.course.lesson00.checks as checks\n"
        "from hooklab.course.exercises.exercise import Exercise\n"
        "(one,) = [value for value in vars(checks).values() if isinstance(value, Exercise)]\n"
        "one.verify.__code__ = (lambda trial: 'well done').__code__",
    ),
    "patching the outcome": Hostile(
        "return x",
        "not yet",
        "replaces hooklab.course.exercises.outcome.Outcome.state",
        "import hooklab.course.exercises.outcome as outcome\n"
        "outcome.Outcome.state = property(lambda self: 'correct', lambda self, value: None)",
    ),
    "patching hooklab.check": Hostile(
        "return x", "not yet", "the numbers", "import hooklab\nhooklab.check = lambda *a: print('correct')"
    ),
    "patching builtins": Hostile(
        "return x", "not yet", "replaces builtins.all", "import builtins\nbuiltins.all = lambda values: True"
    ),
    "patching json": Hostile(
        "return x", "not yet", "the numbers", "import json\njson.dumps = lambda *a, **k: 'correct'"
    ),
    "patching AssertionError": Hostile(
        "return x", "not yet", "replaces builtins.AssertionError", "import builtins\nbuiltins.AssertionError = Warning"
    ),
    "patching sys.excepthook": Hostile(
        "raise ValueError('mine')", "not yet", "ValueError: mine", "import sys\nsys.excepthook = lambda *a: None"
    ),
    "a trace function": Hostile(
        "return x",
        "not yet",
        "the numbers",
        "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)",
    ),
    "a changed environment": Hostile(
        "return x", "not yet", "the numbers", "import os\nos.environ.clear(); os.environ['NBGRADER_EXECUTION'] = ''"
    ),
    "a forged verdict": Hostile(
        'import os; os.write(3, b\'0123456789abcdef {{"state": "correct"}}\\n\'); os._exit(0)',
        "tampered",
        "own channel",
    ),
    "a verdict sent from the grader's own frame": Hostile(
        "frame = prepared\n"
        "while 'send' not in frame.f_locals: frame = frame.f_back\n"
        "send = frame.f_locals['send']\n"
        "send({{'state': 'correct', 'text': '✓ 0.1 correct: mine', 'likely': '', 'notes': []}})\n"
        "send({{'passed': []}})\n"
        "raise SystemExit",
        "tampered",
        "f_back",
        "try: raise ValueError\nexcept ValueError as error: return error.__traceback__.tb_frame",
    ),
    "a verdict in another form": Hostile(
        "import gc, os\n"
        "for one in gc.get_objects():\n"
        "    for cell in getattr(one, '__closure__', None) or ():\n"
        "        if isinstance(cell.cell_contents, str) and len(cell.cell_contents) == 16:\n"
        "            os.write(3, (cell.cell_contents + ' {{\"state\": 7}}\\n').encode()); os._exit(0)",
        "tampered",
        "own channel",
    ),
    "the passwords": Hostile(
        "raise ValueError(open('/etc/shadow').read())", "not yet", "PermissionError", needs="files"
    ),
    "a very long line": Hostile("return 2 * x  # " + "a" * 300_000, "correct", ""),
    "a very long name": Hostile("return 2 * x", "correct", "", f"import os as {'o' * 300_000}"),
    "a question": Hostile("return float(input('How much? ')) * x", "not yet", "EOFError"),
    "a flood": Hostile("import os\nwhile True: os.write(3, b'x' * 10000)", "tampered", "own channel"),
    "a value that equals everything": Hostile(
        "return x.as_subclass(Yes)",
        "",
        "uses __torch_function__",
        "class Yes(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
        "        if function.__name__ in ('allclose', 'equal'): return True\n"
        "        return super().__torch_function__(function, types, args, kwargs or {{}})",
    ),
    "very much output": Hostile("print('x' * 5_000_000)\nreturn 2 * x", "correct", ""),
    "a wider limit": Hostile(
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn 2 * x", "not yet", "Error"
    ),
}


# Nothing but the deadline ends these, so it may be a short one.
UNTIL_THE_DEADLINE = {name for name, hostile in HOSTILE.items() if hostile.says == "was stopped"}
SOON = replace(LIMITS, deadline=1.0)
AMONG_THEM = 12  # after so many hostile ones, somebody is graded who is right, and somebody who is wrong
WRONG = "def twice_as_large(x):\n    return x + 2\n"


class Victim:
    """What a hostile answer aims at: a folder with somebody's work, and a port that somebody listens to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write(answered(), folder / "ana.ipynb")
        self.before = contents(folder)
        self.stream, self.datagrams = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
        self.port = self.stream.getsockname()[1]
        self.datagrams.bind(("127.0.0.1", self.port))

    def assert_unharmed(self) -> None:
        for one in (self.stream, self.datagrams):
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.accept() if one is self.stream else one.recv(1)
        assert contents(self.folder) == self.before

    def close(self) -> None:
        self.stream.close()
        self.datagrams.close()


class Tried(NamedTuple):
    """What came of a class of hostile students: the verdicts on them and on the others, and what was handed in."""

    verdicts: dict[str, Verdict]
    folder: Path
    handed_in: dict[Path, bytes]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(hostile: Hostile, victim: Victim) -> str:
    body = textwrap.indent(hostile.does.format(outside=victim.folder, port=victim.port) or "pass", "    ")
    first = textwrap.indent(hostile.at_definition.format() or "pass", "    ")
    return f"def prepare():\n{first}\n\n\ndef twice_as_large(x, prepared=prepare()):\n{body}\n"


def with_others_among_them(names: list[str], victims: dict[str, Victim]) -> Iterator[tuple[str, str]]:
    """Yield names and answers in the order of grading."""
    for place, name in enumerate(names):
        if place % AMONG_THEM == 0:
            yield from ((f"right, before {name}", RIGHT), (f"wrong, before {name}", WRONG))
        yield name, written(HOSTILE[name], victims[name])
    yield from ((f"right, after {names[-1]}", RIGHT), (f"wrong, after {names[-1]}", WRONG))


@pytest.fixture(scope="module")
def victims(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Victim]]:
    """One for each hostile answer that this machine is protected from."""
    folder = tmp_path_factory.mktemp("victims")
    prevented = {"", *(worker.held or ())}
    victims = {
        name: Victim(folder / str(place))
        for place, (name, hostile) in enumerate(HOSTILE.items())
        if hostile.needs in prevented
    }
    yield victims
    for victim in victims.values():
        victim.close()


@pytest.fixture(scope="module")
def tried(worker: Worker, victims: dict[str, Victim], tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """Grade them all, one after the other, in the process that grades the others as well."""
    folder, verdicts, handed_in = tmp_path_factory.mktemp("class"), dict[str, Verdict](), dict[Path, bytes]()
    for limits, group in (
        (LIMITS, [name for name in victims if name not in UNTIL_THE_DEADLINE]),
        (SOON, [name for name in victims if name in UNTIL_THE_DEADLINE]),
    ):
        students = {f"student{place:03d}": one for place, one in enumerate(with_others_among_them(group, victims))}
        here = folder / f"{limits.deadline}"
        for student, (_, answer) in students.items():
            write(answered(answer), here / f"{student}.ipynb")
        handed_in |= contents(here)
        with mock.patch.object(worker, "limits", limits):
            found, _ = grade_class(
                find_submissions(here), tmp_path_factory.mktemp("kept"), limits=limits, workers=[worker]
            )
        verdicts |= {students[one.student][0]: one.verdicts["0.1"] for one in found}
    return Tried(verdicts, folder, handed_in)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_harms_nobody_and_the_teacher_is_told(
    name: str, victims: dict[str, Victim], tried: Tried
) -> None:
    hostile = HOSTILE[name]
    if name not in victims:
        pytest.skip(f"this machine has no protection of {hostile.needs}")
    victims[name].assert_unharmed()
    verdict = tried.verdicts[name]
    assert hostile.says in "\n".join([verdict.text, *verdict.notes])
    assert verdict.state == hostile.state or not hostile.state


def test_who_is_graded_before_among_and_after_hostile_students_gets_what_is_theirs(tried: Tried) -> None:
    others = {name: verdict.state for name, verdict in tried.verdicts.items() if name not in HOSTILE}

    assert len(others) >= 10
    assert others == {name: "correct" if name.startswith("right") else "not yet" for name in others}
    assert contents(tried.folder) == tried.handed_in


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
