"""One launch at a time works on ``.venv``: :func:`alone` waits until no other one does.

The lock belongs to an open file, so the system drops it when the process ends, however it ends: it never goes stale.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hooklab.course.launcher.messages import say


@contextmanager
def alone(path: Path) -> Iterator[int]:
    """Hold the lock of this file for the block; say so when that means waiting.

    Yields the file's descriptor. A child process that inherits it holds the lock too, so that pip keeps others
    away even if the launcher above it is killed.

    Raises:
        OSError: if the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(descriptor):
            say("another `python -m hooklab` is working on .venv; waiting until it is done (Ctrl-C to stop)")
            while not _try_lock(descriptor):
                time.sleep(0.2)
        yield descriptor
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: better to go on than to refuse
            return True
        return True
