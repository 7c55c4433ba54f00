"""Limit, watch and end the processes of a notebook."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

MOST_PROCESSES = 32
LARGEST_FILE = 2**30
DEATH_SIGNAL, DUMPABLE, SUBREAPER = 1, 4, 36  # the numbers of Linux
_PROC = Path("/proc")


def prctl(option: int, value: int) -> None:
    """Set a property of this process on Linux; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def hide_environment(*, hidden: bool = True) -> None:
    """Let no other process of the same user, root excepted, read the environment and memory of this one (Linux)."""
    prctl(DUMPABLE, int(not hidden))


def set_limits(memory: int) -> None:
    """Limit what memory this process adds, how large a file it writes, and how many processes a user but root has."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: LARGEST_FILE}
    if sys.platform == "linux":
        pages = (_PROC / "self" / "statm").read_text(encoding="ascii").split()
        limits[resource.RLIMIT_AS] = memory + int(pages[0]) * resource.getpagesize()
        limits[resource.RLIMIT_DATA] = memory + int(pages[5]) * resource.getpagesize()
        if os.getuid() != 0:
            limits[resource.RLIMIT_NPROC] = _count_threads() + 4 * MOST_PROCESSES
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _count_threads() -> int:
    count = 0
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid():
                count += len(os.listdir(folder / "task"))
    return count


def descendants() -> list[int]:
    """List the processes that this process has started, and those that these have started; empty without /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(_PROC) if _PROC.is_dir() else []:
        if name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    pids = [os.getpid()]
    for pid in pids:
        pids += children.get(pid, [])
    return pids[1:]


def own_memory(pid: int) -> int:
    """Return the bytes in memory that a process does not share with files."""
    with contextlib.suppress(OSError):
        _, resident, shared, *_ = map(int, (_PROC / str(pid) / "statm").read_text(encoding="ascii").split())
        return (resident - shared) * resource.getpagesize()
    return 0


def end_descendants(session: int | None = None) -> None:
    """Kill all processes that this process has started, with theirs, and those of a process group."""
    if session is not None:
        with contextlib.suppress(OSError):
            os.killpg(session, signal.SIGKILL)
    for _ in range(200):
        alive = descendants()
        for number in (signal.SIGSTOP, signal.SIGKILL):  # what stands still starts nothing
            for pid in alive:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not alive:
            return
        time.sleep(0.01)
