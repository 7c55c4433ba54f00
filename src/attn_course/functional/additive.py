"""Additive attention, where a small network computes the scores. Derived in chapter 1."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course.functional.attention import softmax
from attn_course.functional.validation import check_mask, check_qkv


def additive_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*batch S D"],
    v: Float[Tensor, "*batch S Dv"],
    score_weight: Float[Tensor, "D"],
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T S"]]:
    r"""Return a weighted average of the values, with scores from a one-layer network instead of a dot product.

    Computes $e_{ts} = w^\top \tanh(q_t + k_s)$, then a softmax over $s$ (Bahdanau et al. 2014, arXiv:1409.0473,
    section 3.1 and appendix A.1.2). The caller projects queries and keys to a common width, as $W_a s_{t-1}$ and
    $U_a h_s$ in the paper.

    Additive attention stores T * S * D numbers at once, because the network needs the sum for every pair.

    Args:
        q: projected queries (..., T, D).
        k: projected keys (..., S, D).
        score_weight: w, with one number for each of the D features of a pair.
        mask: as in :func:`~attn_course.attention`.

    Returns:
        The output (..., T, Dv) and the weights (..., T, S).

    Raises:
        ValueError: if the shapes do not fit.
        TypeError: if the mask is not boolean.

    Example:
        >>> q, k, v = torch.zeros(1, 4), torch.zeros(2, 4), torch.eye(2)
        >>> additive_attention(q, k, v, torch.ones(4))[1]  # equal scores, so equal weights
        tensor([[0.5000, 0.5000]])
    """
    check_qkv(q, k, v)
    if score_weight.shape != q.shape[-1:]:
        raise ValueError(
            f"score_weight of shape {tuple(score_weight.shape)} must hold one number for each of the "
            f"{q.size(-1)} features of q and k"
        )
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.size(-2)))
    pairs = torch.tanh(q[..., :, None, :] + k[..., None, :, :])  # (..., T, S, D)
    scores = pairs @ score_weight  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores)
    return weights @ v, weights
