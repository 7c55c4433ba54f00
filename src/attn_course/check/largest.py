"""How large a tensor an answer makes on its way, for exercises that ask for small ones. Used from chapter 12 on."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                # An expanded tensor takes no more memory than what it was expanded from.
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest = max(self.largest, size)
        return result


def largest_tensor(call: Callable[[], Any]) -> tuple[Any, int]:
    """Call, and count the numbers of the largest tensor of floating-point numbers that was made on the way.

    What the backward pass makes is not counted.

    Example:
        >>> x = torch.ones(3, 1)
        >>> largest_tensor(lambda: (x @ x.mT).sum().item())
        (9.0, 9)
    """
    with _Watch() as watch:
        result = call()
    return result, watch.largest
