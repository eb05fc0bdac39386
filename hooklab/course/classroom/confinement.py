"""confine: what a student's process gives up before the first of the student's lines runs.

Each protection is taken where the system has it. Which ones it could take, `confine` returns, so that the teacher is
told what this machine cannot do. Linux has them all, without being root: limits (setrlimit), a namespace without
network and without sight of other processes (unshare), a scratch folder in memory (a tmpfs of its own), all else
read-only, Landlock for what may be read at all, and seccomp for sockets. Elsewhere only the limits hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import site
import socket
import struct
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hooklab.course.classroom import landlock
from hooklab.course.classroom.seccomp import without_unix_sockets

if sys.platform != "win32":  # where nothing is graded, but this file may be imported
    import fcntl
    import resource

MEGABYTE = 1024 * 1024
NOBODY = 65534
PACKAGES = "packages"  # beside the scratch folder: hooklab alone, since the repository cannot be listed any more
# What a protection keeps from what, as the teacher reads it when the protection cannot be had.
PROTECTIONS = {
    "network": "students' code may open network connections",
    "processes": "students' code may send signals to your other processes",
    "files": "students' code may read and change your files",
    "modes": "students' code may change who may read your files",
    "limits": "students' code may take all memory",
}
_NEW_USER, _NEW_NET, _NEW_PID, _NEW_MOUNT, _NEW_IPC = 0x10000000, 0x40000000, 0x20000000, 0x00020000, 0x08000000
_PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
_MOUNT_SETATTR, _RECURSIVE, _READ_ONLY = 442, 0x8000, 1
_NO_SUID = 2 | 4  # MS_NOSUID | MS_NODEV
_OF_ETC = ("fonts", "group", "host.conf", "hosts", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "passwd")
_DEATH_SIGNAL, _DUMPABLE = 1, 4
_SET_FLAGS, _UP = 0x8914, 0x1


@dataclass(frozen=True)
class Limits:
    """What one exercise of one student may take.

    `seconds` is for the check itself (three times that where the machine is busy), `deadline` for all of it, `memory`
    and `disk` are megabytes on top of what Python and torch take.
    """

    seconds: float = 10.0
    deadline: float = 40.0
    memory: int = 2048
    disk: int = 64
    processes: int = 32


def confine(scratch: Path, limits: Limits, readable: list[Path]) -> set[str]:
    """Give up all that a student's answer does not need; return which of PROTECTIONS hold from here on.

    After it the process is a child of the one that called it, which waits for it and ends as it ends: only a new
    process is in the new namespace. The working directory is `scratch`, which is empty.
    """
    if sys.platform == "linux":
        Path("/proc/self/oom_score_adj").write_text("1000")
    _drop_root(scratch, readable)
    held = _own_namespaces(scratch, limits)
    os.chdir(scratch)
    _plain_environment(scratch)
    with contextlib.suppress(OSError, ValueError):
        _set_limits(limits, may_write="scratch" in held)
        held.add("limits")
    with contextlib.suppress(OSError):
        taken = landlock.restrict(
            [*_needed(), *readable, scratch.with_name(PACKAGES)], [scratch, Path(os.devnull)], tcp="network" in held
        )
        held |= {"files"} & taken | ({"processes"} if "signals" in taken else set())
    if not without_unix_sockets():
        held.discard("network")
    _drop_capabilities()
    return held & PROTECTIONS.keys()


def _loopback_up() -> None:
    """Switch on the namespace's own loopback: processes of one exercise may talk to each other, and to nobody else."""
    request = struct.pack("16sh14x", b"lo", _UP)
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def end_with_parent() -> None:
    """Have this process killed when its parent ends, however that ends."""
    if sys.platform == "linux":
        _libc().prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _drop_root(scratch: Path, readable: list[Path]) -> None:
    """Root becomes nobody, where nobody can read what Python needs."""
    if os.getuid() != 0:
        return
    os.chown(scratch, NOBODY, NOBODY)
    python = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    if all(_reachable_by_all(path) for path in [scratch, *python, *readable]):
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            _libc().prctl(_DUMPABLE, 1, 0, 0, 0)  # else /proc/self belongs to root


def _reachable_by_all(path: Path) -> bool:
    own = path.stat()
    return all(one.stat().st_mode & 0o001 for one in path.resolve().parents) and (
        bool(own.st_mode & 0o004) or own.st_uid == NOBODY
    )


def _own_namespaces(scratch: Path, limits: Limits) -> set[str]:
    """Go into namespaces of our own, as the second process there; return what that gives."""
    if sys.platform != "linux":
        return set()
    libc, user, group = _libc(), os.geteuid(), os.getegid()
    if libc.unshare(_NEW_USER | _NEW_NET | _NEW_PID | _NEW_MOUNT | _NEW_IPC) != 0:
        return set()
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    held = {"network", "processes"}
    _loopback_up()
    if libc.mount(None, b"/", None, _PRIVATE, None) == 0:
        # Landlock knows no right to change a file's mode, owner or times.
        read_only = (ctypes.c_uint64 * 4)(_READ_ONLY)
        if libc.syscall(_MOUNT_SETATTR, -1, b"/", _RECURSIVE, read_only, ctypes.sizeof(read_only)) == 0:
            held.add("modes")
        size = f"size={limits.disk}m,nr_inodes=4096,mode=700"
        if libc.mount(b"tmpfs", os.fsencode(scratch), b"tmpfs", _NO_SUID, size.encode()) == 0:
            held.add("scratch")
    end_with_parent()  # again: the kernel forgets it where the rights of a process change
    if first := os.fork():
        _end_like(first)
    end_with_parent()  # and with this first process of its namespace, all others in there
    if second := os.fork():  # the first one cannot be killed from inside, so it only waits
        _end_like(second)
    return held


def _end_like(child: int) -> None:
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    status = os.waitpid(child, 0)[1]
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _plain_environment(scratch: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "OMP_NUM_THREADS") if name in os.environ}
    os.environ.clear()
    tempfile.tempdir = None  # what was found before is forgotten
    kept["PYTHONPATH"] = str(scratch.with_name(PACKAGES))  # a check may start a Python of its own
    sys.path.append(kept["PYTHONPATH"])  # which multiprocessing gives this process's path
    os.environ.update(kept, HOME=str(scratch), TMPDIR=str(scratch), MPLBACKEND="Agg", MPLCONFIGDIR=str(scratch))


def _set_limits(limits: Limits, may_write: bool) -> None:
    _limit(resource.RLIMIT_FSIZE, limits.disk * MEGABYTE if may_write else 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, 256)
    _limit(resource.RLIMIT_CPU, int(limits.deadline) + 2)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory * MEGABYTE)


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _needed() -> list[Path]:
    """What Python and its packages read."""
    folders = [sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *site.getsitepackages()]
    folders += [f"/etc/{name}" for name in _OF_ETC]  # not all: as root, Landlock alone keeps the passwords away
    folders += ["/usr", "/lib", "/lib64", "/bin", "/dev/urandom", "/dev/null", "/proc/self", "/proc/cpuinfo"]
    folders += ["/sys"]  # where gloo looks for devices and the loopback
    folders += [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [Path(one) for one in dict.fromkeys(folders)]


def _drop_capabilities() -> None:
    """Those of the new namespace, which would be enough to undo some of this."""
    if sys.platform == "linux":
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        _libc().capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
