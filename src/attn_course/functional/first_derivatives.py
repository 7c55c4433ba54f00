"""Backward passes that cannot be differentiated again. Used from chapter 17 on."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def first_derivatives_only(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Decorate a backward pass so that differentiating its result again raises an error.

    PyTorch's ``once_differentiable`` raises no error if the incoming gradient is a constant, such as the gradient of a
    sum. Then a gradient penalty would silently have no effect.
    """

    @functools.wraps(backward)
    def run(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = backward(ctx, *grad_outputs)
        # Without create_graph, nothing can be differentiated again.
        if not torch.is_grad_enabled():
            return gradients
        tensors = [x for x in gradients if x is not None]
        sources = [x for x in (*ctx.saved_tensors, *grad_outputs) if x is not None]
        marked = iter(_NoSecondDerivative.apply(len(tensors), *tensors, *sources))
        return tuple(None if x is None else next(marked) for x in gradients)

    return run


class _NoSecondDerivative(torch.autograd.Function):
    """Return the first ``number`` tensors unchanged; raise an error in the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(number: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.view_as(x) for x in tensors[:number])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> None:
        raise RuntimeError(
            "this kind of attention has no second derivatives; use attention, or MultiHeadAttention with "
            "need_weights=True"
        )
