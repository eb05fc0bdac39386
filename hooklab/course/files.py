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


def write_if_changed(text: str, path: Path) -> bool:
    """Write a text file, whole or not at all, unless it holds this text; return whether it was written."""
    content = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(content, path)
    return True
