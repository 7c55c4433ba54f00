"""What an answer does beyond its numbers: how large a tensor it makes on its way. Used from chapter 12 on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attn_course.exercises.engine.runner import OPEN


def _size(tensor: Tensor) -> int:
    """How many numbers there is room for: an expanded tensor takes no more than what it was expanded from."""
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
    """Call, and count the numbers, or True and False, of the largest tensor that was made on the way.

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


def yes_or_no(seen: bool, answer: Callable, mistakes: dict, *about: str) -> Any:
    """What was seen of an answer beyond its numbers, to return with these.

    A mistake in the numbers may be made either way, so its own answer leaves this open.

    Args:
        seen: whether it was seen.
        answer: the answer, a learner's, the right one, or that of a mistake.
        mistakes: the mistakes of the exercise, by name.
        about: the names of those that consist in what was seen.
    """
    others = (mistake.answer for name, mistake in mistakes.items() if name not in about)
    if any(answer is other for other in others):
        return OPEN
    return "yes" if seen else "no"
