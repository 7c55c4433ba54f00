"""Stop a learner's code that takes too long. Used from chapter 0 on, by every check."""

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


class TookTooLong(BaseException):
    """Raised inside code that ran for too long; no Exception, so that ``except Exception`` lets it pass."""


class _Caught(TookTooLong):
    """What is raised at first. Python makes it where it is caught, and there it asks to be raised once more.

    So a bare ``except`` around an endless loop ends at its own next line.
    """

    def __init__(self) -> None:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not stop_after.__code__:
            frame.f_trace = _raise_again
            frame = frame.f_back
        sys.settrace(_raise_again)


def _raise_again(frame: FrameType, event: str, argument: Any) -> None:
    if frame.f_code.co_filename != __file__ and event == "line":
        raise TookTooLong


def stop_after(seconds: float, call: Callable[[], Any]) -> Any:
    """Call a function without arguments, and raise :class:`TookTooLong` inside it when its time is up.

    Another thread watches the clock and asks Python to raise the exception in this one, between two of its steps.
    That reaches every loop that is written in Python, in Jupyter and in a thread, on every system, and costs nothing
    while the code runs; a signal would need the main thread and POSIX, a trace function would slow every line down.
    One single call that never comes back from C, such as ``time.sleep``, is not reached.

    Args:
        seconds: the time of the processor that the call may take. The clock on the wall may go six times as far, so
            that a busy machine stops nothing that is on its way.
        call: what to call.

    Returns:
        What the call returns.

    Raises:
        TookTooLong: if the call took longer, even if it caught that exception and returned.

    Example:
        >>> stop_after(10, lambda: 2 + 3)
        5
    """
    watch = _Watch(seconds)
    try:
        try:
            result = call()
        finally:
            watch.end()
    except TookTooLong:
        watch.end()
        raise
    if watch.fired:  # a bare except has swallowed it
        raise TookTooLong
    return result


class _Watch:
    """A thread that raises TookTooLong in the one that made it, again and again until :meth:`end` is called."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.target = ctypes.c_ulong(threading.get_ident())
        self.trace_before = sys.gettrace()
        self.fired, self.over = False, False
        self.lock, self.running = threading.Lock(), threading.Lock()
        self.running.acquire()
        with contextlib.suppress(RuntimeError):  # no threads in a browser, so no limit there
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        wall, cpu = time.monotonic(), time.process_time()
        passed = busy = 0.0
        while passed < self.seconds or max(busy, passed / 6) < self.seconds:
            if self.running.acquire(timeout=self.seconds / 20):
                return
            passed, busy = time.monotonic() - wall, time.process_time() - cpu
        while self._strike():
            time.sleep(0.05)  # whoever swallows it hears it again

    def _strike(self) -> bool:
        with self.lock:
            if not self.over:
                self.fired = True
                self._raise(ctypes.py_object(_Caught))
            return not self.over

    def _raise(self, exception: ctypes.py_object) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self.target, exception)

    def end(self) -> None:
        """Raise nothing any more; the exception may strike in here once, and then this begins again."""
        while True:
            try:
                with self.lock:
                    self.over = True
                    self._raise(ctypes.py_object())  # takes back what was asked for
                if self.running.locked():
                    self.running.release()
                if self.fired:
                    sys.settrace(self.trace_before)
                return
            except TookTooLong:
                continue
