"""What the cells of a notebook say, in the format of its file."""

from __future__ import annotations

from typing import Any


def errors(cells: list[dict[str, Any]]) -> list[str]:
    """Return the errors that the cells have put out."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [f"{one['ename']}: {one['evalue']}" for one in outputs if one["output_type"] == "error"]


def never_run(cells: list[dict[str, Any]]) -> list[str]:
    """Return the first lines of the code cells that have no execution count."""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return [cell["source"].split("\n", 1)[0] for cell in code if cell["execution_count"] is None]


def says(cell: dict[str, Any]) -> str:
    """Return the plain text of a cell's displayed results."""
    return "".join(output.get("data", {}).get("text/plain", "") for output in cell["outputs"])


def has_picture(cell: dict[str, Any]) -> bool:
    """Return whether a cell has put out a picture."""
    return any(kind.startswith("image/") for output in cell["outputs"] for kind in output.get("data", {}))
