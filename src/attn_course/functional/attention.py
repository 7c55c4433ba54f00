"""Scaled dot-product attention.

Derived in chapters 2 (softmax), 3 (attention), 6 (fused_attention), 16 (weights_of_rows) and 17 (soft_cap).

:func:`attention` is the definition: it returns the output and the weights. :func:`fused_attention`
computes the same output through PyTorch's fused kernel, which never stores the weights;
:func:`weights_of_rows` computes those of a few queries beside it.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.functional.masks import make_causal_mask, to_additive_mask
from attn_course.functional.quiet_softmax import quiet_softmax
from attn_course.functional.sdpa import SDPAInputs, run_sdpa, to_4d
from attn_course.functional.validation import (
    check_attention,
    check_positive,
    check_probability,
    check_row_numbers,
    read_value,
)


def softmax(x: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    r"""Turn scores into positive weights that sum to one, larger scores getting more.

    Computes $e^{x_i - m} / \sum_j e^{x_j - m}$ with $m = \max_j x_j$. Subtracting the maximum changes
    nothing, since it cancels, and keeps every exponent at or below 0, so nothing overflows (Blanchard
    et al. 2021, doi:10.1093/imanum/draa038).

    A row of -inf has no largest score to lead with: where ``torch.softmax`` gives NaN, this gives zeros,
    forward and backward.

    Args:
        x: scores of any shape.
        dim: the axis that sums to one.

    Returns:
        Weights of the shape and type of ``x``.

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
    r"""Keep numbers between ``-cap`` and ``cap``, leaving small ones nearly as they are.

    Computes $c \tanh(x / c)$, for scores or logits (Gemma Team 2024, arXiv:2408.00118, section 2).

    Args:
        x: numbers of any shape.
        cap: the size that none reaches.

    Raises:
        ValueError: if ``cap`` is not positive.

    Example:
        >>> soft_cap(torch.tensor([1.0, 50.0, 1000.0]), 50.0)
        tensor([ 0.9999, 38.0797, 50.0000])
    """
    check_positive(cap, "cap")
    return cap * torch.tanh(x / cap)


def attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    v: Float[Tensor, "*groups S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    sink: float | Float[Tensor, "H"] | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T S"]]:
    r"""Average the values, weighting each by how well its key matches the query.

    Computes $\mathrm{softmax}(QK^\top/\sqrt{D})\,V$ (Vaswani et al. 2017, arXiv:1706.03762, eq. 1).

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D).
        v: values (..., S, Dv).
        mask: True where a query may attend to a key; (T, S), or with as many axes as ``q`` and
            broadcastable to (..., T, S). A query that may attend to nothing gets zeros. What is hidden must be
            numbers all the same: a value that holds NaN reaches every query, for 0 times NaN is NaN, and so does
            a key in :func:`fused_attention` and :func:`~attn_course.tiled_attention`, which add -inf to its score.
        bias: numbers added to the scaled scores, shaped like a mask; -inf hides, as False in a mask does.
        sink: a score that takes weight and has no value, as in :func:`~attn_course.quiet_softmax`: one number,
            or one (H,) for each head of ``q`` (..., H, T, D). The weights then sum to less than 1.
        enable_gqa: let each of the G heads of ``k`` and ``v`` (..., G, S, D) serve H / G heads of ``q``
            (..., H, T, D): the first the first H / G, and so on.
        softcap: bend the scaled scores by :func:`soft_cap` before anything is added or hidden. No fused kernel of
            PyTorch does this.
        dropout_p: probability of dropping a weight, from 0 up to but not including 1.

    Returns:
        The output (..., T, Dv) and the weights (..., T, S) that it was made with, after dropping.

    Raises:
        ValueError: if the shapes of ``q``, ``k``, ``v``, ``mask``, ``bias`` or ``sink`` do not fit, ``softcap`` is
            not positive, or ``dropout_p`` is outside [0, 1).
        TypeError: if the mask is not boolean, or the bias not floating point.

    Example:
        >>> q, k, v = torch.zeros(1, 4), torch.zeros(2, 4), torch.eye(2)
        >>> attention(q, k, v)[1]  # equal scores, so equal weights
        tensor([[0.5000, 0.5000]])
    """
    sink = check_attention(q, k, v, mask=mask, bias=bias, sink=sink, enable_gqa=enable_gqa)
    check_probability(dropout_p, "dropout_p")
    if enable_gqa:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), dim=-3) for x in (k, v))
    # Unit-variance q and k give scores of variance D; rescaled, the softmax stays soft. The
    # queries are rescaled, not the scores: there are fewer of them.
    scores = (q / math.sqrt(q.size(-1))) @ k.mT  # (..., T, S)
    if softcap is not None:
        check_positive(softcap, "softcap")
        scores = soft_cap(scores, softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores) if sink is None else quiet_softmax(scores, sink=sink)
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    return weights @ v, weights


def fused_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    v: Float[Tensor, "*groups S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    sink: float | Float[Tensor, "H"] | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch T Dv"]:
    r"""Compute the output of :func:`attention` by PyTorch's fused kernel, without ever storing the weights.

    ``F.scaled_dot_product_attention`` takes its fused kernel only for some forms of input and falls back
    to slow general code for the others, silently. This function brings its inputs into a form that is
    fused: four axes, values as wide as queries, a mask that is left broadcastable, and the kernel's own
    causal mode when that is what the mask says. Where PyTorch's function would fall back nevertheless, it calls
    the kernel below it: for a bias that learns, for a sink, for a mask beside ``is_causal``. On a GPU it
    always calls PyTorch's function, or computes a sink's weights as :func:`attention` does.

    NaN in a query, or in all keys that it sees, can end as zeros, because PyTorch's kernel for the CPU takes a row
    of NaN for an empty one; :func:`attention` gives NaN. To look for NaN, ask a layer for its weights.

    A huge number that ``bias`` adds to all keys of a query spoils the gradients. PyTorch's kernel for the CPU keeps
    the logarithm of each row's sum for the backward pass, and float32 rounds it to the size of that number. The output
    stays right, but the gradients differ from those of :func:`attention` by 0.03 % at ±1e4 and by 2 % at ±1e6, and at
    ±1e9 or the type's minimum they are S times too large. To hide all keys of a query, use ``mask`` or -inf.

    The kernel has no second derivatives and no forward-mode derivatives: for those use :func:`attention`, or a layer
    with ``need_weights=True``.

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D).
        v: values (..., S, Dv).
        mask: as in :func:`attention`.
        bias: as in :func:`attention`.
        is_causal: hide the future, in addition to ``mask``. Aligned bottom-right like
            :func:`~attn_course.make_causal_mask`, not top-left as in PyTorch.
        dropout_p: probability of dropping a weight, from 0 up to but not including 1. No fused kernel for
            the CPU drops weights: it falls back.
        sink: as in :func:`attention`.
        enable_gqa: as in :func:`attention`.

    Returns:
        The output (..., T, Dv).

    Raises:
        ValueError: if shapes do not fit or ``dropout_p`` is outside [0, 1).
        TypeError: if the mask is not boolean, or the bias not floating point.

    Example:
        >>> q = k = v = torch.eye(2)
        >>> torch.equal(fused_attention(q, k, v, is_causal=True)[0], v[0])  # the first sees itself alone
        True
    """
    sink = check_attention(q, k, v, mask=mask, bias=bias, sink=sink, enable_gqa=enable_gqa)
    check_probability(dropout_p, "dropout_p")
    num_queries, num_keys = q.size(-2), k.size(-2)
    if num_queries == 1:
        is_causal = False  # the newest query sees every key
    elif is_causal and num_queries != num_keys:
        causal = make_causal_mask(num_queries, num_keys, device=q.device)
        mask, is_causal = (causal if mask is None else mask & causal), False
    elif mask is not None and _is_causal_mask(mask, num_queries, num_keys):
        mask, is_causal = None, True

    leading, d_value = q.shape[:-2], v.size(-1)
    width = max(q.size(-1), d_value)
    prepared = SDPAInputs(
        # Zeros appended to q and k add nothing to a score; those appended to v are cut off again.
        *(to_4d(_widen(x, width)) for x in (q, k, v)),
        scale=1 / math.sqrt(q.size(-1)),
        mask=None if mask is None else to_4d(mask, leading),
        bias=None if bias is None else to_4d(bias.to(q.dtype), leading),
        is_causal=is_causal,
        sink=None if sink is None else to_4d(sink.expand(*leading, 1, 1)),
    )
    out = run_sdpa(prepared, dropout_p)[..., :d_value]
    return out.reshape(*leading, num_queries, d_value)


def weights_of_rows(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    rows: Sequence[int] | Int[Tensor, "R"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    sink: float | Float[Tensor, "H"] | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch R S"]:
    """Compute the weights of some queries only: what a reader can look at, beside a fused output.

    Writing all weights down costs more than the fused attention itself; those of a few rows cost next to nothing.

    Args:
        q: queries (..., T, D), all of them.
        k: keys (..., S, D).
        rows: which queries, R numbers from 0 to T - 1, or negative ones counted from the end.
        mask: as in :func:`attention`, for all queries.
        bias: as in :func:`attention`, for all queries.
        is_causal: hide the future, in addition to ``mask``; aligned bottom-right.
        sink: as in :func:`attention`.
        enable_gqa: as in :func:`attention`.

    Returns:
        The weights (..., R, S): those rows of what :func:`attention` returns.

    Raises:
        ValueError: if the shapes do not fit, or there is no such row.
        TypeError: if the rows are not integers, the mask is not boolean, or the bias not floating point.

    Example:
        >>> q = k = torch.eye(3)
        >>> weights_of_rows(q, k, [0, -1], is_causal=True)
        tensor([[1.0000, 0.0000, 0.0000],
                [0.2645, 0.2645, 0.4711]])
    """
    sink = check_attention(q, k, k, mask=mask, bias=bias, sink=sink, enable_gqa=enable_gqa)
    num_queries, num_keys = q.size(-2), k.size(-2)
    rows = check_row_numbers(rows, num_queries).to(q.device)
    mask, bias = (
        x if x is None or x.size(-2) == 1 else x.index_select(-2, rows)
        for x in (mask, bias)
    )
    if is_causal:
        seen = (
            torch.arange(num_keys, device=q.device)
            <= rows[:, None] + num_keys - num_queries
        )
        mask = seen if mask is None else mask & seen

    q = q.index_select(-2, rows) / math.sqrt(q.size(-1))  # (..., R, D)
    if enable_gqa:  # the rows of all heads that share keys, below each other
        shared_by = q.size(-3) // k.size(-3)
        q = q.unflatten(-3, (-1, shared_by)).flatten(-3, -2)  # (..., G, H / G * R, D)
    # As few rows as these are multiplied faster than a transposed view of the keys is read.
    scores = q @ k.contiguous().mT
    if enable_gqa:
        scores = scores.unflatten(-2, (shared_by, len(rows))).flatten(
            -4, -3
        )  # (..., H, R, S)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores + to_additive_mask(mask, scores.dtype)
    if sink is not None:
        return quiet_softmax(scores, sink=sink)
    sees_nothing = (scores.detach().amax(-1) == -math.inf).any()
    # PyTorch's softmax is faster, but gives NaN for a row of -inf.
    if read_value(sees_nothing) is False:
        return torch.softmax(scores, -1)
    return softmax(scores)


def _widen(x: Tensor, width: int) -> Tensor:
    # F.pad copies even when there is nothing to append. The kernel wants the numbers of one vector to be
    # neighbours in memory, which those of a transposed view are not.
    if x.size(-1) < width:
        return F.pad(x, (0, width - x.size(-1)))
    return x if x.stride(-1) == 1 else x.clone(memory_format=torch.contiguous_format)


def _is_causal_mask(mask: Tensor, num_queries: int, num_keys: int) -> bool:
    # A corner and a diagonal rule out most other masks before all T * S elements are compared. On a GPU reading
    # the answer would stall the queue of kernels, and its fused kernels take a mask.
    return (
        num_queries == num_keys > 0
        and mask.shape == (num_queries, num_keys)
        and mask.device.type == "cpu"
        and read_value(mask[-1, 0]) is True
        and not mask.diagonal(1).any()
        and torch.equal(mask, make_causal_mask(num_queries))
    )
