"""Where packages come from, in uv's words; and what the two requirement files hold."""

import sys
from pathlib import Path

import pytest

import hooklab
from hooklab.course.launcher.environment import pins
from hooklab.course.launcher.installing import uv_options

ROOT = Path(hooklab.__file__).parents[1]
LIKE_PIP = "--index-strategy=unsafe-best-match"


@pytest.mark.parametrize(
    ("listed", "options"),
    [
        ("global.index-url='https://mirror/simple'", ["--index-url=https://mirror/simple"]),
        ("global.find-links='\\n/wheels\\n/more'", ["--find-links=/wheels", "--find-links=/more"]),
        ("global.constraint='/a'\ninstall.constraint='/b'", ["--constraint=/b"]),
        (":env:.find-links='C:\\\\wheels'\nglobal.find-links='/wheels'", ["--find-links=C:\\wheels"]),
        (
            "global.extra-index-url='https://a https://b'\nglobal.timeout='60'",
            ["--extra-index-url=https://a", "--extra-index-url=https://b"],
        ),
    ],
)
def test_what_pip_is_told_about_sources_uv_is_told_too(listed: str, options: list[str]) -> None:
    assert uv_options(listed + "\n") == [LIKE_PIP, *options]


@pytest.mark.parametrize(("platform", "options"), [("linux", ["--torch-backend=cpu"]), ("darwin", []), ("win32", [])])
def test_where_pip_is_told_nothing_linux_gets_the_torch_without_cuda(
    platform: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert uv_options("global.timeout='60'\n") == [LIKE_PIP, *options]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_line_of_a_requirement_file_is_one_that_the_launcher_reads(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    read = {f"{package}=={tested}" for package, tested in pins(ROOT / name).items()}
    assert [line for line in lines if line not in read and not line.startswith(("# ", "-r ", "-e "))] == []


def test_a_learner_downloads_no_tools_of_the_maintainers() -> None:
    learners, everybodys = pins(ROOT / "requirements.txt"), pins(ROOT / "requirements-dev.txt")
    assert learners.keys() >= {"torch", "jupyterlab", "matplotlib", "nbval", "ipywidgets"}
    assert everybodys.keys() - learners.keys() >= {"playwright", "ruff", "mypy"}
    assert everybodys.items() > learners.items()
