"""A pool of processes that compute together. Used from chapter 20 on."""

import contextlib
import multiprocessing
import os
import pickle
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from attn_course.functional.validation import check_sizes

# Seconds: a new process imports PyTorch, which takes long where many do it at once; and one that has waited in vain
# says so itself a little later than the limit.
TO_START, TO_ANSWER = 180.0, 10.0


class Processes:
    """A pool of processes. Each call runs one function in all processes, each with its own rank.

    They compute on the CPU, exchange tensors by ``torch.distributed`` with its back end gloo, and are started
    when they are first needed. No call lasts much longer than its time-out: what waits in vain is told where it
    waits, and what does not even answer is ended.

    Args:
        num_processes: how many there are, at least 1.

    Raises:
        ValueError: if there are fewer.

    Example:
        >>> from attn_course.distributed.demos import add_up
        >>> with Processes(2) as processes:
        ...     processes.run(add_up, [3.0, 4.0])
        [7.0, 7.0]
    """

    def __init__(self, num_processes: int) -> None:
        check_sizes(num_processes=num_processes)
        self.num_processes = num_processes
        self._workers: list[tuple[multiprocessing.Process, Connection]] = []

    def run(
        self,
        task: Callable,
        *inputs: Any,
        num_processes: int | None = None,
        timeout: float = 30.0,
    ) -> list[Any]:
        """Call ``task(*inputs)`` in each process, within one process group, and return what each returned.

        Args:
            task: a function that another process can import, so none of a notebook's own.
            inputs: what is handed to it, the same everywhere; each process gets copies.
            num_processes: how many take part, ranks 0 to num_processes - 1; all, if not given.
            timeout: seconds that a process may wait for another one.

        Returns:
            The results, in the order of the ranks.

        Raises:
            ValueError: if the task cannot be imported, or more processes are asked for than there are.
            TimeoutError: if a process waits longer than that; the message says in which line.
            RuntimeError: if the task stops with an error in one of them, or a process ends.
        """
        count = self.num_processes if num_processes is None else num_processes
        if not 1 <= count <= self.num_processes:
            raise ValueError(
                f"num_processes ({count}) must be between 1 and the {self.num_processes} that there are"
            )
        if task.__module__ == "__main__" or "<" in task.__qualname__:
            raise ValueError(
                f"task ({task.__qualname__}) must be a function of a module: another process imports it, and cannot "
                "see what a notebook defines"
            )
        self._start()
        with tempfile.TemporaryDirectory() as folder:
            # Processes find each other through a file, so no port has to be free.
            meeting = str(Path(folder) / "meeting")
            for rank, (_, connection) in enumerate(self._workers[:count]):
                message = (task, inputs, rank, count, meeting, timeout)
                connection.send_bytes(pickle.dumps(message))
            answers = self._collect(count, timeout + TO_ANSWER, f"{timeout:g} s")
            for _, connection in self._workers[:count]:
                connection.send_bytes(b"all have answered")
        _raise_the_first_cause(answers, timeout)
        return [answer["returned"] for answer in answers]

    def close(self) -> None:
        """End the processes; the next call starts new ones."""
        for process, connection in self._workers:
            connection.close()
            process.kill()
        for process, _ in self._workers:
            process.join()
            process.close()
        self._workers = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._workers:
            return
        # A forked process would inherit the threads of PyTorch half; macOS and Windows do not fork at all.
        context = multiprocessing.get_context("spawn")
        for _ in range(self.num_processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))
        self._collect(self.num_processes, TO_START, f"{TO_START:g} s after their start")

    def _collect(self, count: int, seconds: float, limit: str) -> list[Any]:
        answers: dict[int, Any] = {}
        ends = time.monotonic() + seconds
        ranks = {self._workers[rank][1]: rank for rank in range(count)}
        while len(answers) < count:
            missing = [c for c, rank in ranks.items() if rank not in answers]
            ready = wait(missing, max(0.0, ends - time.monotonic()))
            if not ready:
                silent = ", ".join(str(ranks[c]) for c in missing)
                self.close()
                raise TimeoutError(
                    f"no answer from process {silent} of {count} within {limit}; all were ended"
                )
            for connection in ready:
                rank = ranks[connection]
                try:
                    answers[rank] = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError) as error:
                    self.close()
                    raise RuntimeError(
                        f"process {rank} of {count} has ended without an answer; the others were ended, too"
                    ) from error
        return [answers[rank] for rank in range(count)]


def _raise_the_first_cause(answers: list[dict], timeout: float) -> None:
    failed = {rank: answer for rank, answer in enumerate(answers) if "error" in answer}
    count = len(answers)
    # Where one process stops or waits in vain, gloo cuts the others off, which is no cause.
    causes = [rank for rank, answer in failed.items() if not answer["by gloo"]]
    if not causes and any(answer["waited"] for answer in failed.values()):
        lines = "".join(
            f"\n  process {rank} of {count} waits in: {answer['line']}"
            for rank, answer in failed.items()
        )
        raise TimeoutError(
            f"after {timeout:g} s a process still waits for another one{lines}"
        )
    for rank in causes or failed:
        raise RuntimeError(
            f"process {rank} of {count} stopped in: {failed[rank]['line']}\n  {failed[rank]['error']}"
        )


def _serve(connection: Connection) -> None:
    """Run tasks in a process until the pool is closed."""
    with open(os.devnull, "w") as nowhere:  # what gloo says would appear in the notebook
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    if loopback := [name for _, name in socket.if_nameindex() if name.startswith("lo")]:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
    connection.send_bytes(pickle.dumps("ready"))
    while True:
        try:
            answer = _answer(connection.recv_bytes())
            connection.send_bytes(pickle.dumps(answer))
            # Whoever leaves a group early cuts the others off, who then could not say where they wait.
            connection.recv_bytes()
        except (EOFError, OSError):
            return
        if dist.is_initialized():
            dist.destroy_process_group()


def _answer(message: bytes) -> dict[str, Any]:
    task = None
    try:
        task, inputs, rank, count, meeting, timeout = pickle.loads(message)
        limit, store = timedelta(seconds=timeout), dist.FileStore(meeting, count)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=count, timeout=limit
        )
        store.set(f"entered {rank}", "")
        torch.manual_seed(0)
        return {"returned": task(*inputs)}
    except Exception as error:
        description = f"{type(error).__name__}: {error}"
        waited = "timed out" in description.lower() or "wait timeout" in description.lower()
        by_gloo = waited or "gloo" in description.lower()
        if not by_gloo and dist.is_initialized():
            with contextlib.suppress(dist.DistStoreError):  # some process never came
                store.wait([f"entered {other}" for other in range(count)], limit)
            dist.destroy_process_group()  # nobody shall wait for this process
        return {
            "error": description,
            "line": _line_of(task, error),
            "waited": waited,
            "by gloo": by_gloo,
        }


def _line_of(task: Callable | None, error: Exception) -> str:
    """Return the line of the task's module where the task stopped."""
    frames = traceback.extract_tb(error.__traceback__)
    file = task.__code__.co_filename if task is not None else __file__
    return next((f.line for f in reversed(frames) if f.filename == file), frames[-1].line)
