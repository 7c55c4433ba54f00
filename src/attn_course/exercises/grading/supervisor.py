"""Grade a notebook in a process of its own, with limits of time, memory and processes.

``attn-course grade`` starts this process with an empty environment in an empty folder. It imports the checks, tries
each with its own answer, and forks: the fork runs the notebook (:mod:`worker`), this process watches it. When a cell
takes too long, or ends the process, all processes of the notebook are killed, and a new fork runs the notebook
without that cell. All that the notebook has started is killed at the end, even what has left its process group: on
Linux it becomes a child of this process when its parent ends.
"""

import contextlib
import io
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NoReturn

from attn_course import check
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.grading.integrity import Watch
from attn_course.exercises.grading.notebook import Cell
from attn_course.exercises.grading.processes import (
    DEATH_SIGNAL,
    MOST_PROCESSES,
    SUBREAPER,
    descendants,
    end_descendants,
    hide_environment,
    own_memory,
    prctl,
    set_limits,
)
from attn_course.exercises.grading.worker import MAC_BYTES, Channel, decode, sign, work

_LONGEST_MESSAGE = 2**16
_POLL_SECONDS = 0.05


@dataclass
class Progress:
    """What is known after some attempts.

    Args:
        results: status, sentence, mistake and section of each exercise that is finished, by name.
        errors: the error of each cell that stopped, by number.
        replaced: what the notebook's code has replaced in the checks, in PyTorch or in Python.
    """

    results: dict[str, list[str | None]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    replaced: dict[str, None] = field(default_factory=dict)


class Supervisor:
    """Runs a notebook in forks until each exercise has a result.

    Args:
        cells: the code cells.
        graded: the names of the exercises.
        seed: from which the inputs of the checks are drawn; 0 gives those of the notebook's own checks.
        cell_seconds: by the clock, for each cell and for each check.
        total_seconds: by the clock, for the whole notebook.
        memory: in bytes, for all processes of the notebook together, beyond what the checks take.
        all_cells: whether to run the cells that no exercise needs, too.
    """

    def __init__(
        self,
        cells: list[Cell],
        graded: list[str],
        *,
        seed: int,
        cell_seconds: float,
        total_seconds: float,
        memory: int,
        all_cells: bool,
    ) -> None:
        self.cells, self.memory, self.all_cells = cells, memory, all_cells
        self.cell_seconds, self.total_seconds = cell_seconds, total_seconds
        self.end = time.monotonic() + total_seconds
        self.progress = Progress()
        self.exercises: dict[str, Exercise] = {}
        for name in graded:
            exercise: Exercise = getattr(import_module(check.MODULE_OF[name]), name)
            seeds = tuple(1000 * seed + i for i in range(len(exercise.seeds)))
            self.exercises[name] = replace(exercise, seeds=seeds)
            with contextlib.redirect_stdout(io.StringIO()):  # it keeps the expected results
                verdict = self.exercises[name].verdict(exercise.right)
            if not verdict.passed:
                text = f"With the seed {seed} the check does not accept its own answer. Grade with another seed."
                self.progress.results[name] = ["error", text, None, None]
        self.watch = Watch()
        self.own_memory = own_memory(os.getpid())

    def run(self) -> Progress:
        """Return what is known at the end; each exercise has a result then."""
        while not self.progress.results.keys() >= self.exercises.keys() and self._attempt():
            pass
        for name in self.exercises:
            text = f"The notebook took longer than its {self.total_seconds:g} seconds."
            self.progress.results.setdefault(name, ["timeout", text, None, None])
        return self.progress

    def _attempt(self) -> bool:
        """Run the notebook once; return whether another attempt can finish more."""
        reader, writer = os.pipe()
        key = os.urandom(32)
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._be_worker(writer, key)
        os.close(writer)
        attempt = _Attempt(reader, key, self.progress)
        try:
            reason = self._watch(attempt, pid)
        finally:
            end_descendants(pid)
            os.close(reader)
        if reason is None:
            return False
        status, text = reason
        if attempt.judged is not None:
            self.progress.results[attempt.judged] = [status, text, None, None]
        elif attempt.cell is not None:
            self.progress.skipped.add(attempt.cell)
            self.progress.errors[attempt.cell] = text
            for name in next(cell.names for cell in self.cells if cell.number == attempt.cell):
                self.progress.results.setdefault(name, [status, text, None, None])
        else:  # it ended before the first cell
            for name in self.exercises:
                self.progress.results.setdefault(name, [status, text, None, None])
        return time.monotonic() < self.end

    def _watch(self, attempt: "_Attempt", pid: int) -> tuple[str, str] | None:
        """Watch a fork until it is done (None) or has to be stopped: the status and the reason."""
        poll = select.poll()
        poll.register(attempt.reader, select.POLLIN)
        started = None, None
        deadline = time.monotonic() + self.cell_seconds
        while True:
            has_ended, code = os.waitpid(pid, os.WNOHANG)
            if has_ended or poll.poll(_POLL_SECONDS * 1000):
                if not attempt.read(everything=bool(has_ended)):
                    return "error", "The code wrote into the pipe of the grader."
                if attempt.is_done:
                    return None
            if has_ended:
                ended = f"signal {os.WTERMSIG(code)}" if os.WIFSIGNALED(code) else f"status {os.WEXITSTATUS(code)}"
                return "error", f"The process of the notebook ended here, with {ended}."
            now = time.monotonic()
            if (attempt.cell, attempt.judged) != started:
                started, deadline = (attempt.cell, attempt.judged), now + self.cell_seconds
            if now > deadline:
                return "timeout", f"This took longer than {self.cell_seconds:g} seconds."
            if now > self.end:
                return "timeout", f"The notebook took longer than its {self.total_seconds:g} seconds."
            processes = descendants()
            if len(processes) > MOST_PROCESSES:
                return "error", f"The code started more than {MOST_PROCESSES} processes."
            if sum(max(own_memory(pid) - self.own_memory, 0) for pid in processes) > self.memory:
                return "error", f"The processes took more than {self.memory / 1e9:g} GB of memory."

    def _be_worker(self, writer: int, key: bytes) -> NoReturn:
        try:
            os.setsid()
            prctl(DEATH_SIGNAL, signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for file in (0, 1, 2):
                os.dup2(nowhere, file)
            os.closerange(3, writer)
            os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
            sys.stdin, sys.stdout, sys.stderr = (
                open(0, encoding="utf-8"),  # noqa: SIM115
                open(1, "w", encoding="utf-8"),  # noqa: SIM115
                open(2, "w", encoding="utf-8"),  # noqa: SIM115
            )
            set_limits(self.memory)
            send = Channel(writer, key).send
            finished, skipped, watch = {*self.progress.results}, {*self.progress.skipped}, self.watch
            del key
            work(self.cells, self.exercises, finished, skipped, watch, send, all_cells=self.all_cells)
        finally:
            os._exit(0)


class _Attempt:
    """What one fork has sent."""

    def __init__(self, reader: int, key: bytes, progress: Progress) -> None:
        self.reader, self.key, self.progress = reader, key, progress
        self.data, self.count = b"", 0
        self.cell: int | None = None
        self.judged: str | None = None
        self.is_done = False
        os.set_blocking(reader, False)

    def read(self, *, everything: bool) -> bool:
        """Read what has come; return whether all of it was sent by the worker."""
        while True:
            try:
                part = os.read(self.reader, _LONGEST_MESSAGE)
            except BlockingIOError:
                return True
            self.data += part
            while len(self.data) >= 4:
                end = 4 + MAC_BYTES + int.from_bytes(self.data[:4], "big")
                if end > _LONGEST_MESSAGE:
                    return False
                if len(self.data) < end:
                    break
                code, message = self.data[4 : 4 + MAC_BYTES], self.data[4 + MAC_BYTES : end]
                if code != sign(self.key, self.count, message):
                    return False
                self.count, self.data = self.count + 1, self.data[end:]
                self._take(*decode(message))
            if not part or not everything:
                return True

    def _take(self, kind: str | None, *fields: str | None) -> None:
        first = fields[0] if fields else None
        if kind == "cell":
            self.cell, self.judged = int(first or 0), None
        elif kind == "judge":
            self.judged = first
        elif kind == "result":
            self.progress.results.setdefault(str(first), [*fields[1:]])
        elif kind == "failed":
            self.progress.errors.setdefault(int(first or 0), str(fields[1]))
        elif kind == "replaced":
            self.progress.replaced[str(first)] = None
        self.is_done = kind == "done"


def main() -> None:
    """Read a job from standard input and write what is known at the end to standard output, both as JSON."""
    prctl(SUBREAPER, 1)
    prctl(DEATH_SIGNAL, signal.SIGTERM)
    hide_environment()

    def stop(*_: Any) -> None:
        end_descendants()
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    job = json.load(sys.stdin)
    cells = [Cell(number, source, tuple(names)) for number, source, names in job.pop("cells")]
    progress = Supervisor(cells, **job).run()
    end_descendants()
    report = {"results": progress.results, "errors": progress.errors, "replaced": [*progress.replaced]}
    json.dump(report, sys.stdout)
