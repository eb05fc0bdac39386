"""Notebooks as students hand them in, small: lesson 0 has one exercise, `check("0.1", twice_as_large)`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

RIGHT = "def twice_as_large(x):\n    return 2 * x\n"
STUB = "def twice_as_large(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()\n"
SETUP = "import torch\n\nfrom hooklab import check\n"
CHECK = 'check("0.1", twice_as_large)'


def code(text: str, id: str = "", **more: Any) -> dict[str, Any]:
    """Return a code cell; `id` is also its nbgrader name."""
    metadata = {"nbgrader": {"grade_id": id, "schema_version": 3}} if id else {}
    cell = {"cell_type": "code", "source": text, "metadata": metadata, "outputs": [], "execution_count": None}
    return cell | ({"id": id} if id else {}) | more


def notebook(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a notebook of these cells."""
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5} | more


def answered(answer: str = RIGHT, setup: str = SETUP) -> dict[str, Any]:
    """Return lesson 0 with this answer in the cell of its exercise."""
    return notebook(code(setup), code(answer, "solution-0-1"), code(CHECK, "check-0-1"))


def write(content: dict[str, Any] | bytes | str, path: Path) -> Path:
    """Write a notebook, or what somebody takes for one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path


def zipped(path: Path, files: dict[str, dict[str, Any] | bytes]) -> Path:
    """Write a zip of these files, under exactly these names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), json.dumps(content) if isinstance(content, dict) else content)
    return path
