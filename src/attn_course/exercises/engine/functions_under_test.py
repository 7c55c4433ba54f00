"""Right and wrong functions for exercises whose answer is a test. Used from chapter 24 on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attn_course.exercises.engine.exercise import TrialInputs
from attn_course.exercises.engine.runner import AnswerError


@dataclass(frozen=True)
class Specimens:
    """Right and wrong functions that the learner's test must tell apart.

    Args:
        right: what the test has to accept; the plainest is the first.
        wrong: what it has to refuse, the most obvious first.
        obvious: how many of the wrong ones are tried before the second right one.
        section: that explains what a test is, as ``"24.6"``.
    """

    right: dict[str, Callable]
    wrong: dict[str, Callable]
    obvious: int
    section: str

    def trials(self, draw: TrialInputs) -> Iterator[tuple]:
        (first, *others), wrong = self.right.items(), list(self.wrong.items())
        yield from [first, *wrong[: self.obvious], *others, *wrong[self.obvious :]]

    def is_right(self, function: Callable) -> bool:
        return any(function is right for right in self.right.values())

    def use(self, answer: Callable, function: Callable) -> Any:
        """Run the learner's test on a function and return its result, which must be True or False."""
        try:
            result = answer(function)
        except AssertionError:
            text = f"Your test raises an AssertionError. Return True or False instead. See section {self.section}."
            raise AnswerError(text) from None
        if callable(result) and not isinstance(result, Tensor):
            raise AnswerError(
                f"Your test returns a function. Return True or False instead. See section {self.section}."
            )
        if isinstance(result, Tensor):
            raise AnswerError(
                "Your test returns a tensor. Return True or False instead: use bool() or item() on a tensor with one "
                f"number. See section {self.section}."
            )
        return result

    def accepts(self, *whats: str) -> Callable[..., bool | None]:
        """Return a predicate: the first wrong function that the test accepts is one of these."""
        names = list(self.wrong)
        first = min(map(names.index, whats))

        def sign(found: Any, function: Callable) -> bool | None:
            if found is not True:
                return None
            place = next((i for i, wrong in enumerate(self.wrong.values()) if function is wrong), None)
            if place is None or names[place] in whats:
                return place is not None
            return None if place > first else False

        return sign
