"""What keeps the course inside its folder: caches and settings live under ``.cache/``, not in the home folder.

:func:`child_environment` gives the environment variables for pip, JupyterLab, pytest and the kernels they start.
:func:`write_news_setting` answers JupyterLab's question about news beforehand.
"""

import json
import os
from pathlib import Path

from hooklab.course.launcher.messages import os_errors_in_one_line

# variable -> folder under .cache/
FOLDERS = {
    "PIP_CACHE_DIR": "pip",
    "JUPYTER_CONFIG_DIR": "jupyter/config",
    "JUPYTER_DATA_DIR": "jupyter/data",
    "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
    "JUPYTERLAB_SETTINGS_DIR": "jupyter/user-settings",
    "JUPYTERLAB_WORKSPACES_DIR": "jupyter/workspaces",
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "matplotlib",
    "npm_config_cache": "npm",  # JupyterLab asks npm where it is, and npm writes a log about that
}

# A default, not a decision for the learner: Settings > Notifications still changes it.
NO_NEWS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}


def child_environment(root: Path, python: Path) -> dict[str, str]:
    """The environment variables for a program of the course; makes the folders they name.

    A variable that the user has set stays as it is. If ``python`` lies in ``root/.venv``, that environment is active,
    as after ``activate``: ``!pip`` in a notebook means its pip.

    Raises:
        LauncherError: if the folders cannot be made.
    """
    environment = dict(os.environ)
    with os_errors_in_one_line("make the folders for caches and settings"):
        for variable, folder in FOLDERS.items():
            if not environment.get(variable):
                path = root / ".cache" / folder
                path.mkdir(parents=True, exist_ok=True)
                environment[variable] = str(path)
                if variable == "JUPYTER_CONFIG_DIR":
                    write_news_setting(path / "labconfig" / "default_setting_overrides.json")
    if python.parent.parent == root / ".venv":
        environment.pop("PYTHONHOME", None)
        environment["VIRTUAL_ENV"] = str(root / ".venv")
        environment["PATH"] = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
    return environment


def write_news_setting(path: Path) -> None:
    """Write the file that tells JupyterLab not to ask about news, unless there is one already."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(NO_NEWS, indent=2) + "\n", encoding="utf-8")
