"""A leak detector: proof that a function of a sequence never looks into its future. Derived in chapter 5."""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor


def assert_causal(
    fn: Callable[[Tensor], Tensor],
    x: Shaped[Tensor, "*batch T D"],
    *,
    atol: float = 0.0,
    seed: int = 0,
) -> None:
    r"""Check that output t of ``fn`` depends on inputs up to t only, and say where it does not.

    Two independent tests. *Gradient*: $\partial\,\mathrm{out}_t / \partial\,x_s$ must be exactly 0 for every s > t.
    *Perturbation*: new numbers in place of every $x_s$ with s > t must leave outputs 0 to t as they were. The
    gradient finds any leak a derivative can see; the perturbation also finds those it cannot, such as a
    ``detach`` or an argmax on the way.

    Call it in evaluation mode: dropout changes the outputs on its own.

    Args:
        fn: takes a tensor like ``x`` and returns the outputs (..., T, ...), positions on the same axis.
        x: an example input (..., T, D), floating-point; with integer ids only the perturbation is tried.
        atol: how far outputs may move under perturbation, for code whose rounding depends on its whole
            input. The gradient must be exactly 0 all the same.
        seed: for the random numbers of both tests; the global random state is left alone.

    Raises:
        AssertionError: naming the first output and the input that it should not have seen.
        ValueError: if ``x`` has fewer than two axes or two positions, or ``fn`` changes the number of positions.

    Example:
        >>> assert_causal(lambda x: x.cumsum(-2), torch.ones(3, 2))
        >>> assert_causal(lambda x: x.flip(-2), torch.ones(3, 2))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        AssertionError: output 0 depends on input 2: d out[0] / d x[2] is ... (must be 0). ...
    """
    if x.dim() < 2 or x.size(-2) < 2:
        raise ValueError(
            f"x of shape {tuple(x.shape)} must be (..., T, D) with T at least 2, "
            "or there is no future to leak"
        )
    rng = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        example = x.detach().clone().requires_grad_(x.is_floating_point())
        out = fn(example)
    positions = x.dim() - 2  # the axis of the positions
    if out.dim() <= positions or out.size(positions) != x.size(-2):
        raise ValueError(
            f"fn must keep the positions: x of shape {tuple(x.shape)} has {x.size(-2)} "
            f"on axis {positions}, the output has shape {tuple(out.shape)}"
        )
    if out.requires_grad:
        _check_gradient(example, out, positions, rng)
    _check_perturbation(fn, x.detach(), out.detach(), positions, atol, rng)


def _check_gradient(x: Tensor, out: Tensor, positions: int, rng: torch.Generator) -> None:
    # A random mixture of an output's features: their plain sum can be constant, as it is for softmax.
    mixture = torch.randn(out.shape, generator=rng).to(out)
    for t in range(x.size(-2) - 1):
        mixed = (out * mixture).select(positions, t).sum()
        (gradient,) = torch.autograd.grad(
            mixed, x, retain_graph=True, materialize_grads=True
        )
        size = gradient.abs().amax(-1)  # (..., T)
        size = size.flatten(0, -2).amax(0) if size.dim() > 1 else size  # (T,)
        leaks = (~(size[t + 1 :] == 0)).nonzero()  # NaN is a leak too
        if len(leaks):
            s = t + 1 + int(leaks[0])
            raise AssertionError(
                f"output {t} depends on input {s}: d out[{t}] / d x[{s}] is {size[s]:.2g} (must be 0). "
                "A causal output t depends on inputs 0 to t only"
            )


def _check_perturbation(
    fn: Callable[[Tensor], Tensor],
    x: Tensor,
    out: Tensor,
    positions: int,
    atol: float,
    rng: torch.Generator,
) -> None:
    for t in range(x.size(-2) - 1):
        changed = x.clone()
        future = changed[..., t + 1 :, :]
        if x.is_floating_point():
            future += torch.randn(future.shape, generator=rng).to(x) * 3
        else:
            future.copy_(future.flip(-2) if t % 2 else future.roll(1, -2))
        with torch.no_grad():
            moved = (fn(changed) - out).narrow(positions, 0, t + 1).abs()
        if not (moved <= atol).all():
            first = int(
                (~(moved <= atol)).movedim(positions, 0).flatten(1).any(1).nonzero()[0]
            )
            raise AssertionError(
                f"output {first} depends on the future: it moves by {moved.select(positions, first).max():.2g} "
                f"when inputs after {t} change. A causal output t depends on inputs 0 to t only"
            )
