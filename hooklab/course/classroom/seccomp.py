"""Seccomp: a process of Linux gives up Unix sockets for itself, without being root.

They are no part of a network, and no rule about files holds for a connection to one; but behind one may stand a program
that does what it is told, such as Docker's or the desktop's. Pairs of sockets (socketpair) stay as they are.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import sys

# by processor: its number for the kernel, and that of the system call `socket`
_PROCESSORS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425  # a way round all filters
_OF_X32 = 0x40000000  # x86_64's second set of numbers
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_NUMBER, _PROCESSOR, _FIRST_ARGUMENT = 0, 4, 16  # where each stands in what the kernel shows to a filter
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Step(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("then", ctypes.c_uint8),
        ("otherwise", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Step))]


def without_unix_sockets() -> bool:
    """From here on, this process and its children make no Unix socket; return whether that holds."""
    processor, call = _PROCESSORS.get(platform.machine(), (0, 0))
    if sys.platform != "linux" or not processor:
        return False
    steps = [
        (_LOAD, 0, 0, _PROCESSOR),
        (_IF_EQUAL, 0, 7, processor),  # else: to the refusal, 7 steps on
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 5, 0, _OF_X32),
        (_IF_EQUAL, 4, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 0, 2, call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 1, 0, socket.AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    program = _Program(len(steps), (_Step * len(steps))(*[_Step(*one) for one in steps]))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0)
