"""Measure the largest tensor that an answer makes. Used from chapter 12 on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attn_course.exercises.engine.runner import OPEN


def _size(tensor: Tensor) -> int:
    """Count the elements of a tensor's storage; an expanded tensor has the storage of its source."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # inside torch.func.grad and vmap
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage().nbytes() // tensor.element_size()


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, _size(tensor))
        return result


def largest_tensor(call: Callable[[], Any]) -> tuple[Any, int]:
    """Call a function and return its result and the size of the largest tensor that it made.

    What the backward pass makes is not counted.

    Example:
        >>> import torch
        >>> x = torch.ones(3, 1)
        >>> largest_tensor(lambda: (x @ x.mT).sum().item())
        (9.0, 9)
    """
    with _Watch() as watch:
        result = call()
    return result, watch.largest


def yes_or_no(observed: bool, answer: Callable, mistakes: dict, *about: str) -> Any:
    """Name an observation about an answer, which is returned with its numbers.

    A mistake in the numbers may be made either way, so its own answer leaves this open.

    Args:
        observed: whether it was seen.
        answer: the answer, a learner's, the right one, or that of a mistake.
        mistakes: the mistakes of the exercise, by name.
        about: the names of those that consist in what was seen.
    """
    others = [mistake.answer for name, mistake in mistakes.items() if name not in about]
    ways = [way for other in others for way in (other if isinstance(other, list) else [other])]
    if any(answer is way for way in ways):
        return OPEN
    return "yes" if observed else "no"
