"""What pip's output is made into."""

import io
import shlex
from pathlib import Path

import pytest

from hooklab.course.launcher.installing import PLAIN_LINE_EVERY, Progress, by_hand, summary


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Collecting torch==2.13.0 (from -r requirements.txt (line 2))", "collecting torch==2.13.0"),
        (
            "  Downloading https://x.org/a/numpy-2.4.6-cp311.whl (16.9 MB)",
            "downloading numpy-2.4.6-cp311.whl (16.9 MB)",
        ),
        ("  Using cached idna-3.10-py3-none-any.whl (70 kB)", "using cached idna-3.10-py3-none-any.whl (70 kB)"),
        ("Processing /wheels/torch-2.13.0-cp311.whl (from -r a.txt (line 2))", "reading torch-2.13.0-cp311.whl"),
        ("Obtaining file:///home/jo/mein%20kurs", "reading mein kurs"),
        ("Installing collected packages: a, b, c", "installing 3 packages"),
        ("Building wheels for collected packages: hooklab", "building hooklab"),
        ("  Building editable for hooklab (pyproject.toml): started", "building hooklab"),
        ("WARNING: Retrying (Retry(total=4, connect=None))", "the network does not answer; pip tries again"),
        ("Requirement already satisfied: pip in ./.venv", None),
        ("", None),
    ],
)
def test_a_line_of_pip_is_said_in_a_few_words(line: str, shown: str | None) -> None:
    assert summary(line) == shown


def test_a_terminal_sees_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    progress = Progress(stream)
    progress.show("collecting a-package-with-a-name-longer-than-the-terminal")
    progress.show("installing 3 packages")
    progress.show(None)
    progress.close()
    before, *shown = stream.getvalue().split("\r")
    assert before == ""
    assert [len(line.rstrip("\n")) for line in shown] == [39, 39, 39]
    assert shown[1].split() == ["0:00", "installing", "3", "packages"]
    assert shown[2] == shown[1] + "\n"


def test_a_log_gets_a_line_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("hooklab.course.launcher.installing.time.monotonic", lambda: now)
    stream = io.StringIO()
    progress = Progress(stream)
    progress.show("collecting a")
    now += PLAIN_LINE_EVERY
    progress.show("collecting b")
    now += 1
    progress.show("collecting c")
    progress.close()
    assert stream.getvalue() == "  0:10  collecting b\n"


def test_the_command_by_hand_can_be_pasted_into_a_shell() -> None:
    root = Path("/home/jo/my course's")
    typed = by_hand(root, [str(root / ".venv/bin/python"), "-m", "pip"])
    assert shlex.split(typed) == ["cd", str(root), "&&", f"{root}/.venv/bin/python", "-m", "pip"]
