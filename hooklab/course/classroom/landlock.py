"""Landlock: the rules by which a process of Linux gives up files, network and signals for itself, without being root.

The kernel's own interface (see landlock(7)), called through ctypes: Python has none. Each right that this kernel does
not know is left out, so that older kernels still do what they can.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # numbers of the system calls, the same on all processors
_VERSION = 1
_BENEATH = 1  # a rule about a folder and all that is in it

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
_READING = _EXECUTE | _READ_FILE | _READ_DIR
# by version of the interface: how many rights about files there are (truncate came with 3, device ioctls with 5)
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11  # bind and connect: version 4
_SCOPES = 0b11  # abstract sockets and signals: version 6


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the version of the kernel's Landlock; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE, None, 0, _VERSION))


def restrict(readable: Iterable[Path], writable: Iterable[Path], tcp: bool = False) -> set[str]:
    """From here on, this process and its children read and write files only there, and say what else they lost.

    Args:
        readable: folders and files that may be read and run.
        writable: folders and files that may be read and written, with all that is in them.
        tcp: whether TCP may still be used, as where the network is a process's own.

    Returns what was taken away: some of "files", "tcp" and "signals".

    Raises OSError where the kernel refuses.
    """
    known = version()
    if not known:
        return set()
    files = (1 << _FILE_RIGHTS[min(known, 5)]) - 1
    ruleset = _Ruleset(files, _TCP if known >= 4 and not tcp else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = _checked(_call(_CREATE, ctypes.byref(ruleset), size, 0))
    try:
        for paths, rights in ((readable, _READING), (writable, files)):
            for path in paths:
                _allow(rules, path, rights & files)
        _no_new_privileges()
        _checked(_call(_RESTRICT, rules, 0))
    finally:
        os.close(rules)
    return {"files"} | ({"tcp"} if known >= 4 and not tcp else set()) | ({"signals"} if known >= 6 else set())


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no rule
    try:
        rule = _Rule(rights if path.is_dir() else rights & _OF_A_FILE, folder)
        _checked(_call(_ADD, rules, _BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(folder)


def _no_new_privileges() -> None:
    _checked(_libc().prctl(38, 1, 0, 0, 0))


def _call(*arguments: object) -> int:
    return int(_libc().syscall(*arguments))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
