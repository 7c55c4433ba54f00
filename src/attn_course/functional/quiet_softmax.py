"""Quiet softmax, whose weights can sum to less than 1. Derived in chapter 24."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.functional.validation import check_is_float


def quiet_softmax(
    x: Float[Tensor, "..."], dim: int = -1, *, sink: float | Float[Tensor, "..."] = 0.0
) -> Float[Tensor, "..."]:
    r"""Turn scores into positive weights that sum to less than 1. If all scores are low, the sum is close to 0.

    Computes $e^{x_i} / (e^s + \sum_j e^{x_j})$. This is a softmax over the scores and one more score s, the *sink*,
    without the weight of the sink. With $s = 0$ it is the quiet softmax (Miller 2023, "Attention Is Off By One"), and
    ``nn.MultiheadAttention`` computes it with ``add_zero_attn=True``. In gpt-oss, each head learns its s (OpenAI 2025,
    arXiv:2508.10925).

    As in :func:`~attn_course.softmax`, the largest exponent is subtracted, and the sink is one of the exponents. So
    nothing overflows, and a row of -inf gets zeros.

    Args:
        dim: the axis along which the weights and the weight of the sink sum to 1.
        sink: a finite number, or a tensor that broadcasts to ``x`` and has length 1 on the axis ``dim``.

    Returns:
        Weights with the shape and type of ``x``.

    Raises:
        ValueError: if ``sink`` does not broadcast to ``x``, or has more than one number for each row.
        TypeError: if ``x`` is not floating-point.

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
    if missing < 0 or any(s not in (1, n) for s, n in zip(sink.shape, allowed[missing:], strict=True)):
        raise ValueError(
            f"sink of shape {tuple(sink.shape)} must broadcast to {tuple(allowed)}: one sink for each row of x"
        )
