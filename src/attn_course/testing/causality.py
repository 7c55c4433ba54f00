"""A leak detector: it checks that outputs do not depend on later inputs. Derived in chapter 5."""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor


def assert_causal(
    fn: Callable[[Tensor], Tensor], x: Shaped[Tensor, "*batch T D"], *, atol: float = 0.0, seed: int = 0
) -> None:
    r"""Check that output t of ``fn`` depends on inputs up to t only, and say where it does not.

    The function makes two independent tests. *Gradient*: $\partial\,\mathrm{out}_t / \partial\,x_s$ must be exactly 0
    for every s > t. *Perturbation*: if every $x_s$ with s > t is replaced, outputs 0 to t must stay the same. The
    perturbation also finds leaks without a gradient, for example through ``detach`` or an argmax. It tries random
    numbers, equal numbers, and large numbers after small ones.

    Call it in evaluation mode: dropout changes the outputs on its own.

    Args:
        fn: takes a tensor like ``x`` and returns the outputs (..., T, ...), positions on the same axis.
        x: an example input (..., T, D), floating-point or integer ids. For ids only the perturbation is tried, with
            ids from 0 (or the smallest, where that is negative) to the largest of each of the D columns, so let ``x``
            hold the last id of the vocabulary.
        atol: how far outputs may move under perturbation, for code whose rounding depends on its whole
            input. The gradient must be exactly 0 all the same.
        seed: for the random numbers of both tests; the global random state is left alone.

    Raises:
        AssertionError: naming the first output and the input that it should not have seen.
        ValueError: if ``x`` has fewer than two axes or two positions, or nothing but id 0, or ``fn`` changes the
            number of positions.
        TypeError: if ``fn`` returns anything but a tensor.

    Example:
        >>> assert_causal(lambda x: x.cumsum(-2), torch.ones(3, 2))
        >>> assert_causal(lambda x: x.flip(-2), torch.ones(3, 2))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        AssertionError: output 0 depends on input 2: d out[0] / d x[2] is ... (must be 0). ...
    """
    if x.dim() < 2 or x.size(-2) < 2:
        raise ValueError(
            f"x of shape {tuple(x.shape)} must be (..., T, D) with T at least 2, or there is no future to leak"
        )
    rng = torch.Generator().manual_seed(seed)
    # A caller who computes without gradients has leaks like any other; this turns gradients on, too.
    with torch.inference_mode(False):
        example = x.detach().clone().requires_grad_(x.is_floating_point())
        out = fn(example)
        positions = x.dim() - 2  # the axis of the positions
        _check_output(out, x, positions)
        if example.requires_grad and out.requires_grad:
            _check_gradient(example, out, positions, rng)
    with torch.no_grad():
        for past, future in _make_pairs(x.detach(), rng):
            _check_perturbation(fn, past, future, positions, atol)


def _check_output(out: object, x: Tensor, positions: int) -> None:
    if not isinstance(out, Tensor):
        raise TypeError(
            f"fn must return one tensor, not {type(out).__name__}: of a layer that returns its weights too, "
            "check lambda x: layer(x)[0]"
        )
    if out.dim() <= positions or out.size(positions) != x.size(-2):
        raise ValueError(
            f"fn must keep the positions: x of shape {tuple(x.shape)} has {x.size(-2)} "
            f"on axis {positions}, the output has shape {tuple(out.shape)}"
        )


def _check_gradient(x: Tensor, out: Tensor, positions: int, rng: torch.Generator) -> None:
    # A random mixture of an output's features: their plain sum can be constant, as it is for softmax.
    mixture = torch.randn(out.shape, generator=rng).to(out)
    for t in range(x.size(-2) - 1):
        mixed = (out * mixture).select(positions, t).sum()
        (gradient,) = torch.autograd.grad(mixed, x, retain_graph=True, materialize_grads=True)
        size = gradient.abs().amax(-1)  # (..., T)
        size = size.flatten(0, -2).amax(0) if size.dim() > 1 else size  # (T,)
        leaks = (~(size[t + 1 :] == 0)).nonzero()  # NaN is a leak too
        if len(leaks):
            s = t + 1 + int(leaks[0])
            raise AssertionError(
                f"output {t} depends on input {s}: d out[{t}] / d x[{s}] is {size[s]:.2g} (must be 0). "
                "A causal output t depends on inputs 0 to t only"
            )


def _make_pairs(x: Tensor, rng: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of sequences. The first one gives the past, the second one gives another future."""
    # Each column on its own: ids of different vocabularies may stand side by side.
    columns = x.reshape(-1, x.size(-1))
    low, high = columns.amin(0), columns.amax(0)
    if x.is_floating_point():
        noise = torch.randn(x.shape, generator=rng).to(x) * 3
        return [(x, x + noise), *((x, bound.expand_as(x)) for bound in (low - 3, high + 3))]
    low, high = low.long().clamp(max=0), high.long()
    if torch.equal(low, high):
        raise ValueError(
            "x holds no id but 0, and new ids go from 0 to the largest of x: let x hold the last id of the vocabulary"
        )

    def draw() -> Tensor:
        # On the CPU, since not every device has float64.
        share = torch.rand(x.shape, generator=rng, dtype=torch.float64)
        steps = (share * (high - low + 1).cpu()).long().to(x.device)
        return (low + steps).to(x.dtype)

    # A maximum moves only when something larger comes later, and an order when what follows is in another.
    smallest, largest = (bound.to(x.dtype).expand_as(x) for bound in (low, high))
    rising = draw().sort(dim=-2).values
    extremes = [(smallest, largest), (largest, smallest), (rising, rising.flip(-2))]
    return [(x, draw()), (x, draw()), *((draw(), draw()) for _ in range(4)), *extremes]


def _check_perturbation(
    fn: Callable[[Tensor], Tensor], past: Tensor, future: Tensor, positions: int, atol: float
) -> None:
    before = fn(past.clone())
    for t in range(past.size(-2) - 1):
        changed = torch.cat([past[..., : t + 1, :], future[..., t + 1 :, :]], dim=-2)
        moved = _distance(fn(changed), before).narrow(positions, 0, t + 1)
        if not (moved <= atol).all():
            first = int((~(moved <= atol)).movedim(positions, 0).flatten(1).any(1).nonzero()[0])
            raise AssertionError(
                f"output {first} depends on the future: it moves by {moved.select(positions, first).max():.2g} "
                f"when inputs after {t} change. A causal output t depends on inputs 0 to t only"
            )


def _distance(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype in (torch.bool, torch.uint8):  # which know no differences below 0
        a, b = a.long(), b.long()
    return (a - b).abs().masked_fill(a == b, 0)  # two equal infinities would differ by NaN
