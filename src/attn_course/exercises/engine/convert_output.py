"""Convert results for the checks of several chapters. Used from chapter 8 on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def as_integers(found: Any) -> Any:
    """Accept integers of any type as ids and positions, but neither booleans nor floats."""
    is_whole = isinstance(found, Tensor) and not found.is_floating_point() and found.dtype != torch.bool
    return found.long() if is_whole else found


def as_number(found: Any) -> Any:
    """Accept a share as a tensor with one number or as an integer."""
    found = found.item() if isinstance(found, Tensor) and found.numel() == 1 else found
    return float(found) if isinstance(found, int) else found


def on_the_cpu(found: Any) -> Any:
    """Move a result to the CPU where the exercise does not name a device."""
    return found.cpu() if isinstance(found, Tensor) else found


def where(tells: Callable[..., bool], *answers: Callable) -> Callable[..., bool | None]:
    """Recognise the result of one of the given answers, in the trials for which ``tells`` is true.

    Args:
        tells: whether a trial can tell, asked of its inputs.
        answers: called with the inputs; what is compared are as many results as they give.
    """

    def sign(found: Any, *inputs: Any) -> bool | None:
        if not tells(*inputs):
            return None
        return any(_agree(found, answer(*inputs)) for answer in answers)

    return sign


def _agree(found: Any, expected: Any) -> bool:
    found, expected = ([results] if isinstance(results, Tensor) else results for results in (found, expected))
    return len(found) >= len(expected) and all(
        f.shape == w.shape and torch.allclose(f.double(), w.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        for f, w in zip(found, expected, strict=False)
    )
