"""What the launcher says, and the environment of the programs that it starts."""

import json
import os
import sys
from pathlib import Path

# Caches and settings lie in the course's folder, not in the home folder: variable -> folder under .cache/
FOLDERS = {
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
    "JUPYTER_CONFIG_DIR": "jupyter/config",  # with the settings and workspaces of JupyterLab
    "JUPYTER_DATA_DIR": "jupyter/data",  # and what belongs to running kernels
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "matplotlib",
    "npm_config_cache": "npm",  # JupyterLab asks npm where it is, and npm writes a log about that
}

# JupyterLab's option for what is added to it here: a link to a cell shows that cell.
EXTENSIONS = f"--LabApp.extra_labextensions_path={Path(__file__).parent / 'labextensions'}"


class LauncherError(Exception):
    """An error for the person at the keyboard: what is wrong and what to do."""


def say(line: str) -> None:
    """Print a status line to stderr, because stdout belongs to the program that is started."""
    print(f"hooklab: {line}", file=sys.stderr, flush=True)


def variables(root: Path, python: Path) -> dict[str, str]:
    """The environment variables for a program of the course that ``python`` runs.

    ``import hooklab`` imports this copy, whatever is installed; ``!pip`` in a notebook runs this Python's pip. Folders
    that the user has set stay as they are.
    """
    answer_news_question(root / ".cache" / FOLDERS["JUPYTER_CONFIG_DIR"])
    changed = {variable: str(root / ".cache" / folder) for variable, folder in FOLDERS.items()} | os.environ
    for variable, first in {"PYTHONPATH": root, "PATH": python.parent}.items():
        changed[variable] = os.pathsep.join(filter(None, [str(first), changed.get(variable)]))
    changed.pop("VIRTUAL_ENV", None)  # IPython would mix a different environment in
    return changed


def answer_news_question(config: Path) -> None:
    """Tell JupyterLab not to ask about news: its default in this folder, which Settings > Notifications changes."""
    path = config / "labconfig" / "default_setting_overrides.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}))
