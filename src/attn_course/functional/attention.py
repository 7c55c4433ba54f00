"""Scaled dot-product attention, by its definition.

Derived in chapters 2 (softmax), 3 (attention) and 22 (soft_cap). The fast path is in
:mod:`attn_course.functional.sdpa`.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course.functional.masks import make_causal_mask
from attn_course.functional.quiet_softmax import quiet_softmax
from attn_course.functional.validation import check_attention, check_positive, check_probability


def softmax(x: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    r"""Turn scores into positive weights that sum to 1.

    Computes $e^{x_i - m} / \sum_j e^{x_j - m}$ with $m = \max_j x_j$. The maximum cancels, so subtracting it does
    not change the result. It keeps every exponent at or below 0, so nothing overflows (Blanchard et al. 2021,
    doi:10.1093/imanum/draa038).

    A row in which every score is -inf gets zeros, in the output and in the gradient. ``torch.softmax`` returns NaN.

    Args:
        dim: the axis along which the weights sum to 1.

    Returns:
        Weights with the shape and type of ``x``.

    Example:
        >>> softmax(torch.tensor([0.0, 1000.0]))
        tensor([0., 1.])
        >>> softmax(torch.tensor([-torch.inf, -torch.inf]))
        tensor([0., 0.])
    """
    # The maximum cancels, so no gradient flows through it; -inf - (-inf) would be NaN.
    largest = x.detach().amax(dim, keepdim=True)
    exponentials = torch.exp(x - largest.masked_fill(largest == -math.inf, 0.0))
    # Half precision is for what is stored, not for sums: float16 ends at 65,504.
    wide = torch.promote_types(exponentials.dtype, torch.float32)
    total = exponentials.sum(dim, keepdim=True, dtype=wide)
    weights = exponentials / total.masked_fill(total == 0, 1.0)
    return weights.to(exponentials.dtype)


def soft_cap(x: Float[Tensor, "..."], cap: float) -> Float[Tensor, "..."]:
    r"""Limit numbers to the range from ``-cap`` to ``cap``; small numbers barely change.

    Computes $c \tanh(x / c)$, for scores or logits (Gemma Team 2024, arXiv:2408.00118, section 2).

    Args:
        cap: c, the limit.

    Raises:
        ValueError: if ``cap`` is not positive.

    Example:
        >>> soft_cap(torch.tensor([1.0, 50.0, 1000.0]), 50.0)
        tensor([ 0.9999, 38.0797, 50.0000])
    """
    check_positive(cap, "cap")
    return cap * torch.tanh(x / cap)


def scale_queries(q: Tensor, scale: float | None = None) -> Tensor:
    """Multiply queries (..., T, D) by ``scale``, or divide them by the root of D; q is smaller than the scores."""
    if scale is None:
        return q / math.sqrt(q.size(-1))
    check_positive(scale, "scale")
    return q * scale


def attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    v: Float[Tensor, "*groups S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    softcap: float | None = None,
    sink: float | Float[Tensor, "H"] | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T S"]]:
    r"""Return a weighted average of the values; a value's weight says how well its key matches the query.

    Computes $\mathrm{softmax}(QK^\top/\sqrt{D})\,V$ (Vaswani et al. 2017, arXiv:1706.03762, eq. 1).

    Args:
        mask: True where a query may attend to a key. The shape is (T, S), or has as many axes as ``q`` and broadcasts
            to (..., T, S). A query that may attend to nothing gets zeros. Hidden keys and values must not hold NaN:
            0 times NaN is NaN, so a hidden value with NaN reaches every query. In :func:`~attn_course.fused_attention`,
            a hidden key with NaN does so, too.
        bias: numbers that are added to the scaled scores, shaped like a mask. -inf hides a key, like False in a mask.
        is_causal: hide the future, in addition to ``mask``. The last query is aligned with the last key, as in
            :func:`~attn_course.make_causal_mask`.
        softcap: apply :func:`soft_cap` to the scaled scores, before the bias and the mask.
        sink: a score without a value that takes some of the weight, so that the weights sum to less than 1: one
            number, or a tensor (H,) with one for each head of ``q`` (..., H, T, D). See
            :func:`~attn_course.quiet_softmax`.
        dropout_p: probability of dropping a weight, at least 0 and below 1.
        enable_gqa: let each of the G heads of ``k`` and ``v`` (..., G, S, D) serve H / G neighbouring heads of ``q``
            (..., H, T, D).
        scale: the positive factor of the scores; $1/\sqrt{D}$ if not given.

    Returns:
        The output (..., T, Dv) and the weights (..., T, S), after dropout.

    Raises:
        ValueError: if the shapes of ``q``, ``k``, ``v``, ``mask``, ``bias`` or ``sink`` do not fit, ``softcap`` or
            ``scale`` is not positive, or ``dropout_p`` is outside [0, 1).
        TypeError: if the mask is not boolean, or the bias is not floating-point.

    Example:
        >>> q, k, v = torch.zeros(1, 4), torch.zeros(2, 4), torch.eye(2)
        >>> attention(q, k, v)[1]  # equal scores, so equal weights
        tensor([[0.5000, 0.5000]])
    """
    sink = check_attention(q, k, v, mask=mask, bias=bias, sink=sink, enable_gqa=enable_gqa)
    check_probability(dropout_p, "dropout_p")
    if enable_gqa:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), dim=-3) for x in (k, v))
    # Scores have variance 1 if q and k have variance 1.
    scores = scale_queries(q, scale) @ k.mT  # (..., T, S)
    if softcap is not None:
        check_positive(softcap, "softcap")
        scores = soft_cap(scores, softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    if is_causal:
        future = ~make_causal_mask(q.size(-2), k.size(-2), device=q.device)
        scores = scores.masked_fill(future, -math.inf)
    weights = softmax(scores) if sink is None else quiet_softmax(scores, sink=sink)
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    return weights @ v, weights
