"""Right and wrong answers to the exercises, as learners write them; tests/exercises hands them all to the checks.

One file for each chapter. A function or class under ``@right`` or ``@wrong("no scale")`` is an answer to the exercise
with its name. Wrong answers that differ from a right one in a line or two are edits of it (``Edited``). The folded
solutions are in the notebooks only, and are right answers too.

Most mistakes are defined by a wrong answer of their own, in the check, and need none here. What is here:

- right answers that differ from the solution;
- answers that show the sign of a mistake, and answers that only the general diagnoses of every check recognise;
- answers with two mistakes, or with a mistake in some trials only;
- answers that a check refuses without a name (``@unnamed``).
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    exercise: str
    mistake: str | None  # the name under which the check knows it; None for a right answer
    is_named: bool  # whether the check names the mistake; otherwise it refuses the answer and says the first difference
    answer: Callable
    where: str

    def __str__(self) -> str:
        return f"{self.exercise}: {self.mistake or 'right'} ({self.where})"


ANSWERS: list[Answer] = []


def right(answer: Callable) -> Callable:
    """A right answer, written in another way than the solution in the notebook."""
    return _add(answer, None)


def wrong(mistake: str) -> Callable:
    """An answer that makes a mistake; its check must recognise it and say so."""
    return lambda answer: _add(answer, mistake)


def unnamed(mistake: str) -> Callable:
    """An answer that makes this mistake in a way that its check refuses without a name."""
    return lambda answer: _add(answer, mistake, is_named=False)


def _add(answer: Callable, mistake: str | None, *, is_named: bool = True) -> Callable:
    module = answer.__module__.rpartition(".")[2]
    line = sys._getframe(2).f_lineno  # where the decorator stands; inspect would parse the whole file for each answer
    ANSWERS.append(Answer(answer.__name__, mistake, is_named, answer, f"{module}:{line}"))
    return answer


def all_answers() -> list[Answer]:
    """The answers of all files here, in the order in which they are written."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"answers.{module.name}")
    return ANSWERS
