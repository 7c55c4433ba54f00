"""Stop a learner's code that takes too long. Used from chapter 0 on, by every check."""

import signal
import threading
from collections.abc import Callable
from typing import Any


class TookTooLong(BaseException):
    """Raised in code that ran for too long. It is not an Exception, so ``except Exception`` does not catch it."""


def stop_after(seconds: float, call: Callable[[], Any]) -> Any:
    """Call a function without arguments, and raise :class:`TookTooLong` in it when its time is up.

    The clock is a POSIX timer. There is none on Windows, and its signal reaches the main thread only, in which Jupyter
    runs cells; elsewhere the call has no limit. A bare ``except`` around an endless loop is not stopped.

    Args:
        seconds: the time of the processor that the call may take, so that a busy machine stops nothing.
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

    def stop(*_: Any) -> None:
        nonlocal is_over
        is_over = True
        raise TookTooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        result = call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL if before is None else before)
    if is_over:  # the call has caught the exception
        raise TookTooLong
    return result
