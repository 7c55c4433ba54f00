"""Quiet softmax, whose weights may sum to less than one. Derived in chapter 14."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.functional.validation import check_is_float


def quiet_softmax(
    x: Float[Tensor, "..."],
    dim: int = -1,
    *,
    sink: float | Float[Tensor, "..."] = 0.0,
) -> Float[Tensor, "..."]:
    r"""Turn scores into positive weights that sum to less than one, and to almost nothing where all scores are low.

    Computes $e^{x_i} / (e^s + \sum_j e^{x_j})$: the softmax over the scores and one more score s, the *sink*,
    whose weight is then left out. With $s = 0$ it is the quiet softmax (Miller 2023, "Attention Is Off By One"),
    which ``nn.MultiheadAttention`` computes with ``add_zero_attn=True``; with an s that each head learns, it is
    what gpt-oss does (OpenAI 2025, arXiv:2508.10925).

    As in :func:`~attn_course.softmax` the largest exponent is subtracted, and here the sink is one of them: so
    nothing overflows, and a row of -inf gives zeros.

    Args:
        x: scores of any shape.
        dim: the axis over which the weights and that of the sink sum to one.
        sink: a finite number, or a tensor of them that broadcasts to ``x``, with the axis ``dim`` of length 1.

    Returns:
        Weights of the shape and type of ``x``.

    Raises:
        ValueError: if ``sink`` would make the result larger than ``x``, or has one score for each weight.
        TypeError: if ``x`` is not floating point.

    Example:
        >>> quiet_softmax(torch.tensor([0.0, 0.0]))  # two scores and the sink, all equal
        tensor([0.3333, 0.3333])
        >>> quiet_softmax(torch.tensor([-1000.0, -torch.inf]))
        tensor([0., 0.])
    """
    check_is_float(x, "x")
    sink = torch.as_tensor(sink, dtype=x.dtype, device=x.device)
    _check_one_sink_a_row(sink, x, dim)
    # The maximum cancels, so no gradient flows through it.
    largest = torch.maximum(x.detach().amax(dim, keepdim=True), sink.detach())
    exponentials = torch.exp(x - largest)
    wide = torch.promote_types(x.dtype, torch.float32)  # for the sum, as in softmax
    total = exponentials.sum(dim, keepdim=True, dtype=wide) + torch.exp(sink - largest)
    return (exponentials / total).to(exponentials.dtype)


def _check_one_sink_a_row(sink: Tensor, x: Tensor, dim: int) -> None:
    if sink.dim() == 0:
        return
    allowed = list(x.shape)
    allowed[dim] = 1
    missing = len(allowed) - sink.dim()
    if missing < 0 or any(
        s not in (1, n) for s, n in zip(sink.shape, allowed[missing:], strict=True)
    ):
        raise ValueError(
            f"sink of shape {tuple(sink.shape)} must broadcast to {tuple(allowed)}, one sink for each row of x"
        )
