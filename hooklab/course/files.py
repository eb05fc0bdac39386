"""Files that are written whole or not at all."""

import os
from pathlib import Path


def write_whole(content: bytes, path: Path) -> None:
    """Write a file; where that fails half-way, what was there before stays."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
