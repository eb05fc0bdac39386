"""What a notebook's kernel gets and is asked, the same when notebooks are built, tested, and run in a browser."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

# Evaluated after a notebook's last cell: the names of torch's process-wide hook tables that are not empty. It imports
# nothing: a notebook that never imported torch has left nothing there.
LEFT_BEHIND = (
    "[name"
    " for module in ('torch.nn.modules.module', 'torch.optim.optimizer')"
    " for name, table in sorted(vars(__import__('sys').modules.get(module, object)).items())"
    " if name.startswith('_global_') and isinstance(table, dict) and table]"
)


def environment(root: Path, scratch: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a kernel that runs the course's notebooks.

    It differs from `base` in what could change an output or would leave traces: hooklab is the one at `root`; IPython's
    and Jupyter's own files are in `scratch`, so that no personal configuration takes part; a grader's variable and a
    chosen matplotlib backend are gone; a warning of one Python alone is not shown.
    """
    changed = {key: value for key, value in base.items() if key not in ("NBGRADER_EXECUTION", "MPLBACKEND")}
    changed["IPYTHONDIR"] = str(scratch / "ipython")
    changed["JUPYTER_RUNTIME_DIR"] = str(scratch / "runtime")
    changed["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), base.get("PYTHONPATH")]))
    warnings = [base.get("PYTHONWARNINGS"), "ignore:Guards may run slower on Python 3.13.0"]  # of torch.compile
    changed["PYTHONWARNINGS"] = ",".join(filter(None, warnings))
    return changed


def prepare_fonts() -> None:
    """Have matplotlib's font cache made now: later, matplotlib would say so in the output of some cell."""
    with contextlib.suppress(ImportError):  # no lesson can draw then, and each says so itself
        import matplotlib.font_manager  # noqa: F401
