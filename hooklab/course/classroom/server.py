"""The fork server: a process that has imported torch and the checks, and makes a child for each exercise to be graded.

It reads a job a line from standard input (its limits, and a file's path, which only the child opens: this process stays
clean) and answers with a line. A child gives up what it does not need (`confinement`), finds the answer, says so, runs
it, and says what the check found. Each of its lines begins with a token that was made before the student's code ran.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import linecache
import os
import re
import secrets
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from hooklab.course.classroom.confinement import Limits, confine, end_with_parent
from hooklab.course.classroom.lessons import LESSONS, lesson_at
from hooklab.course.classroom.statements import Statement

MOST_SAID = 200_000  # bytes of one child
MOST_LINES, MOST_NOTE = 20_000, 200  # characters of an answer, and of a sentence about it
PRELOADED = ("torch", "numpy", "numpy.random", "hooklab.course.classroom.attempting")
COMPILER = "torch._dynamo"  # optimizers and torch.compile import it when they are first used: more than a second
_USES_THE_COMPILER = re.compile(r"\boptim\.|\.compile\(")
WORTH_HUGE_PAGES = 20  # jobs: it takes a third of a second, and each one after it is 20 milliseconds shorter
_SUBREAPER, _COLLAPSE = 36, 25


def main() -> None:
    """Answer jobs until standard input ends; the command line has the scratch folder."""
    scratch = Path(sys.argv[1])
    for name in PRELOADED:
        importlib.import_module(name)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for number, line in enumerate(sys.stdin):
        if number == WORTH_HUGE_PAGES:
            _into_huge_pages()
        job = json.loads(line)
        _know(job["lesson"])
        print(json.dumps(_one(Path(job["path"]), scratch, Limits(**job["limits"]))), flush=True)


@functools.cache
def _know(lesson: int) -> None:
    """Import the checks of a lesson and what it uses, so that no child needs the time for it."""
    from hooklab.course.classroom.attempting import given_statements, wrong_module

    checks = importlib.import_module(f"hooklab.course.lesson{lesson:02d}.checks")
    texts = [file.read_text(encoding="utf-8") for file in Path(str(checks.__file__)).parent.glob("*.py")]
    texts += [cell.text for cell in lesson_at(lesson, LESSONS).cells]
    if any(map(_USES_THE_COMPILER.search, texts)):
        importlib.import_module(COMPILER)
    linecache.getlines(str(wrong_module(lesson).__file__))  # a child cannot read the wrong answers' file any more
    _import_what_is_imported(given_statements(lesson))
    gc.collect()
    gc.freeze()  # else a child's collector would copy all pages


def _into_huge_pages() -> None:
    """Move the heap into pages of 2 MB where Linux has them: a fork copies one entry for each page, small or huge."""
    if sys.platform != "linux":
        return
    libc, huge = ctypes.CDLL(None), 1 << 21
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, modes, _, _, inode, *_ = line.split()
        begin, end = (int(one, 16) for one in addresses.split("-"))
        begin, end = -(-begin // huge) * huge, end // huge * huge
        if modes == "rw-p" and inode == "0" and begin < end:
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _COLLAPSE)  # may fail: nothing is lost


def _import_what_is_imported(statements: list[Statement]) -> None:
    for one in statements:
        if isinstance(one.node, ast.Import | ast.ImportFrom):
            with contextlib.suppress(ImportError):
                exec(compile(ast.Module([one.node], []), "<lesson>", "exec"), {})


def _one(job: Path, scratch: Path, limits: Limits) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        end_with_parent()
        _be_child(job, writing, scratch, limits)
    os.close(writing)
    said, why = _listen(reading, child, time.monotonic() + limits.deadline, limits.processes)
    os.close(reading)
    _end(child)
    _empty(scratch)
    return {"said": said, "why": why}


def _be_child(job: Path, writing: int, scratch: Path, limits: Limits) -> None:
    """Never returns. Nothing that goes wrong here may lead back into the server's loop."""
    send_raw, end = os.write, os._exit
    try:
        content = json.loads(job.read_text(encoding="utf-8"))
        os.dup2(writing, 3)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        os.closerange(4, 256)
        held = confine(scratch, limits, [Path(one) for one in content["readable"]])
        token = secrets.token_hex(8)

        def send(message: dict[str, Any], encode: Any = json.dumps) -> None:
            data = f"{token} {encode(message)}\n".encode()
            while data:
                data = data[send_raw(3, data) :]

        from hooklab.course.classroom.attempting import prepare, run, suspicious
        from hooklab.course.exercises.faults import cut

        answer, faults = prepare(content)
        told = {
            "cell": answer.cell,
            "lines": cut(answer.lines, MOST_LINES),
            "notes": [cut(note, MOST_NOTE) for note in answer.notes],
            "uses": [cut(name, MOST_NOTE) for name in suspicious(answer.statements)],
        }
        send({"held": sorted(held), **told})
        run(content, answer, faults, send)
    except BaseException as error:
        with contextlib.suppress(BaseException):
            send_raw(3, f"! {type(error).__name__}: {error}\n".encode())
    finally:
        end(0)


def _listen(reading: int, child: int, until: float, most_processes: int) -> tuple[list[str], str]:
    """Return the lines that a child has sent, and why no more was read: ended, deadline, flood or processes."""
    data, counted = b"", 0.0
    while (now := time.monotonic()) < until:
        ready, _, _ = select.select([reading], [], [], min(until - now, 0.1))
        if not ready and _has_ended(child):  # something that it left behind still holds the pipe
            return _lines(data), "ended"
        chunk = os.read(reading, 65536) if ready else None
        if chunk == b"":
            return _lines(data), "ended"
        data += chunk or b""
        if len(data) > MOST_SAID:
            return _lines(data), "flood"
        if now - counted > 0.1:
            counted = now
            if len(_descendants(os.getpid(), most_processes)) > most_processes:
                return _lines(data), "processes"
    return _lines(data), "deadline"


def _has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()


def _end(child: int) -> None:
    """Kill a child and all that it has started: its namespace ends with it; without one, its group and its orphans."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    while orphans := _children(os.getpid()):
        for one in orphans:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children(parent: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


def _descendants(parent: int, enough: int) -> list[int]:
    found = _children(parent)
    for one in found:
        if len(found) > enough:
            break
        found += _children(one)
    return found


def _empty(scratch: Path) -> None:
    """Remove what was written where the scratch folder is a real one."""
    for path in sorted(scratch.rglob("*"), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
