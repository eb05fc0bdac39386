"""The command that takes the README's picture; test_lessons.py has a test of the picture itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooklab.course.browser import screenshot


def test_without_a_browser_the_command_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hooklab.course.browser.chrome.find_browser", lambda: None)
    assert screenshot.main([str(tmp_path / "picture.png")]) == 1
    assert "no Chromium or Chrome" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
