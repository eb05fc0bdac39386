"""``python -m hooklab doctor``: is everything the course needs there and working? It installs and repairs nothing."""

import sys
from functools import partial
from importlib.metadata import version
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any

from hooklab.course.browser.chrome import NOT_FOUND, find_browser
from hooklab.course.classroom.sandbox import bubblewrap
from hooklab.course.launcher import LEARN
from hooklab.course.launcher.environment import pins
from hooklab.course.root import find_root

ADVICE = "What to do: python -m hooklab lab (installs what is missing); if that does not help, delete .venv first"
# What a notebook does, and has to work in the kernel that the lessons name.
WORKS = {
    "kernel": "import hooklab.course",
    "hook": "import torch; x = torch.ones(2, requires_grad=True); seen = []; _ = x.register_hook(seen.append); "
    "(3 * x).sum().backward(); assert seen[0].tolist() == [3, 3], f'a hook saw {seen}, expected [3., 3.]'",
    "figure": "from matplotlib import font_manager as f; _ = f.findfont('DejaVu Sans', fallback_to_default=False)",
}


def main(argv: list[str]) -> int:
    """Print a line for each thing that the course needs; 0 if all is there, 1 if not."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # paths may hold any letter
    print(f"  {'ok':<9}{'Python':<15}{sys.version.split()[0]}, {sys.executable}")
    questions = {name: partial(installed, name, tested) for name, tested in pins(find_root() / LEARN).items()}
    fine = True
    for label, question in (questions | {label: partial(works, code) for label, code in WORKS.items()}).items():
        try:
            mark, text = "ok", question()
        except Exception as error:  # whatever is wrong with an installation
            mark, text, fine = "MISSING", f"{type(error).__name__}: {error}".partition("\n")[0], False
        print(f"  {mark:<9}{label:<15}{text}", flush=True)
    browser = find_browser()
    print(f"  {'ok' if browser else '-':<9}{'browser':<15}{browser or NOT_FOUND + ' (only tests need it)'}")
    path, why = bubblewrap()
    print(f"  {'ok' if path else '-':<9}{'bubblewrap':<15}{path or why + ' (only `grade` uses it)'}")
    print("\n" + ("All that the course needs is there." if fine else ADVICE))
    return 0 if fine else 1


def installed(name: str, tested: str) -> str:
    """Which version is installed, and whether it is the tested one."""
    found = str(version(name))
    return found if found.partition("+")[0] == tested else f"{found}; the course is tested with {tested}"


def works(code: str) -> str:
    """Run the code in a kernel."""
    from jupyter_client.manager import run_kernel

    client: Any  # a BlockingKernelClient, which jupyter_client's types do not say
    # an empty folder: a kernel imports files from the folder where it starts, even an enum.py
    with TemporaryDirectory() as empty, run_kernel(kernel_name="python3", cwd=empty, stderr=DEVNULL) as client:
        reply = client.execute(code, reply=True, timeout=120)["content"]
    assert reply["status"] == "ok", f"the kernel starts, but: {reply['ename']}: {reply['evalue']}"
    return "works"
