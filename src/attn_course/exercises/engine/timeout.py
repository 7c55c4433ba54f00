"""Stop a learner's code that takes too long. Used from chapter 0 on, by every check."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

# A call may last this many times its limit by the clock on the wall: long enough for the busiest machine.
WALL = 30


class TookTooLong(BaseException):
    """Raised in code that ran for too long. It is not an Exception, so ``except Exception`` does not catch it."""


def stop_after(seconds: float, call: Callable[[], Any]) -> Any:
    """Call a function without arguments, and raise :class:`TookTooLong` in it when its time is up.

    The time is the processor time of the calling thread, so neither a busy machine nor another thread stops the call. A
    call that sleeps uses none, and is stopped by the clock on the wall, after ``WALL`` times as long.

    The timer is a POSIX timer. There is none on Windows, and its signal reaches the main thread only, in which Jupyter
    runs cells; elsewhere the call has no limit. A bare ``except`` around an endless loop is not stopped.

    Args:
        seconds: the processor time that the call may take.
        call: what to call.

    Returns:
        What the call returns.

    Raises:
        TookTooLong: if the call took longer, even if it caught that exception and returned.

    Example:
        >>> stop_after(10, lambda: 2 + 3)
        5
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return call()
    is_over = False
    own_limit, wall_limit = time.thread_time() + seconds, time.monotonic() + WALL * seconds

    def look(*_: Any) -> None:
        nonlocal is_over
        remaining = own_limit - time.thread_time()
        if remaining > 0 and time.monotonic() < wall_limit:
            signal.setitimer(signal.ITIMER_REAL, max(remaining, 0.01))  # the thread cannot reach its limit before
            return
        is_over = True
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        result = call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
    if is_over:  # the call has caught the exception
        raise TookTooLong
    return result
