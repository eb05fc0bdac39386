"""jupyterlab: a separate JupyterLab, on this machine only, that leaves nothing behind."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.kernels import environment, prepare_fonts
from hooklab.course.launcher.programs import EXTENSIONS, answer_news_question

SECONDS_TO_START = 120
SECONDS_TO_STOP = 20
FOLDERS = {
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
}
OPTIONS = [
    "--no-browser",
    "--allow-root",  # containers run as root, and this server serves nobody else
    "--ServerApp.ip=127.0.0.1",
    "--LabApp.expose_app_in_browser=True",  # the notebook's model holds more than the page
    "--LabApp.extension_manager=readonly",  # the other one asks a package index for news
    EXTENSIONS,
]


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: its address, the token it wants, and the folder it serves."""

    url: str
    token: str
    folder: Path

    def address(self) -> str:
        """Return the address that opens JupyterLab with nothing in it."""
        return f"{self.url}lab?token={self.token}&reset"


@contextmanager
def jupyterlab(folder: Path, scratch: Path, root: Path) -> Iterator[Server]:
    """Serve `folder` during the block: on loopback, at a free port, with a random token.

    Args:
        folder: what to serve. Opening and saving a notebook writes there, so pass a copy.
        scratch: an empty folder for the server's and the kernels' own files, among them the log, `jupyterlab.log`.
        root: the repository; the kernels import hooklab from there.

    Raises:
        RuntimeError: if the server ends at once, or does not answer within two minutes; with the end of its log.
    """
    prepare_fonts()
    log = scratch / "jupyterlab.log"
    token = secrets.token_hex(24)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--port={_free_port()}", f"--ServerApp.root_dir={folder}"],
            cwd=folder,
            env={**_environment(scratch, root), "JUPYTER_TOKEN": token},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        info = scratch / FOLDERS["JUPYTER_RUNTIME_DIR"] / f"jpserver-{process.pid}.json"
        yield Server(_wait_until_it_answers(process, info, log), token, folder)
    finally:
        _stop(process)


def _environment(scratch: Path, root: Path) -> dict[str, str]:
    changed = environment(root, scratch)
    for variable, name in FOLDERS.items():
        (scratch / name).mkdir(parents=True, exist_ok=True)
        changed[variable] = str(scratch / name)
    answer_news_question(scratch / FOLDERS["JUPYTER_CONFIG_DIR"])
    for variable in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH"):  # the user's own extensions and kernels
        changed.pop(variable, None)
    # A kernel finds the programs of the Python that runs it, as after `activate`.
    changed["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), changed.get("PATH", os.defpath)])
    return changed


def _free_port() -> int:
    """Return a port that is free now; should another program take it, the server looks for the next one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_it_answers(process: subprocess.Popen[bytes], info: Path, log: Path) -> str:
    """Return the server's address. It writes the one it has really taken into the file `info`."""
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            started = json.loads(info.read_text(encoding="utf-8"))
            question = f"{started['url']}api/status?token={started['token']}"
            with urllib.request.urlopen(question, timeout=5):
                url: str = started["url"]
                return url
        except (OSError, ValueError, urllib.error.URLError):  # not there yet, half written, not listening yet
            time.sleep(0.1)
    what = "ended at once" if process.poll() is not None else f"gave no answer in {SECONDS_TO_START} s"
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    raise RuntimeError(f"JupyterLab {what}; the end of its log:\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server; it stops its kernels."""
    process.terminate()
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
