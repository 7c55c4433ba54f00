"""Stop a learner's code that does not end. Used from chapter 1 on, by every check."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any


class DoesNotEnd(BaseException):
    """Raised inside code that ran for too long; no Exception, so that ``except Exception`` lets it pass."""


def stop_after(seconds: float, call: Callable[[], Any]) -> Any:
    """Call a function without arguments, and raise :class:`DoesNotEnd` inside it when its time is up.

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
        DoesNotEnd: if the call took longer, even if it caught that exception and returned.

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
    except DoesNotEnd:
        watch.end()
        raise
    if watch.fired:  # a bare except has swallowed it
        raise DoesNotEnd
    return result


class _Watch:
    """A thread that raises DoesNotEnd in the one that made it, again and again until :meth:`end` is called."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.target = ctypes.c_ulong(threading.get_ident())
        self.fired, self.over = False, False
        self.lock, self.running = threading.Lock(), threading.Lock()
        self.running.acquire()
        with contextlib.suppress(
            RuntimeError
        ):  # no threads in a browser, so no limit there
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
                self._raise(ctypes.py_object(DoesNotEnd))
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
                return
            except DoesNotEnd:
                continue
