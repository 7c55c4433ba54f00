"""Masks, which say which query may attend to which key. Derived in chapter 5.

A mask is a boolean tensor, **True where a query may attend**, as in ``F.scaled_dot_product_attention``. The operator
``&`` combines two masks: a query may attend to a key if both allow it. The shape is ``(T, S)`` if all sequences share
the mask, and ``(B, T, S)`` or ``(B, 1, S)`` if each sequence has its own.

Other libraries have other conventions. Only the converters at the end of this file and the port of Burn's attention
(:mod:`attn_course.ports.burn`) use them.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.functional.validation import check_is_bool, check_is_tensor, check_window, read_value


def make_causal_mask(
    num_queries: int, num_keys: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """Let each query attend to its own position and to all earlier positions.

    If T = S, this is the lower triangle. Otherwise the *last* query is aligned with the *last* key (bottom-right),
    because the queries are the newest positions of a longer sequence, such as after keys from a cache.
    ``F.scaled_dot_product_attention(is_causal=True)`` aligns the first query with the first key, which is right only if
    T = S.

    If there are more queries than keys, the first T - S queries may attend to nothing.

    Args:
        num_keys: S, at least 0; T if not given.

    Returns:
        Boolean mask (T, S), True where s <= t + S - T.

    Raises:
        ValueError: if a length is negative.

    Example:
        >>> make_causal_mask(3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
        >>> make_causal_mask(2, 4).int()  # two new positions after two cached ones
        tensor([[1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)
    """
    query_position, key_position = _positions(num_queries, num_keys, device)
    return key_position <= query_position


def make_sliding_window_mask(
    num_queries: int,
    window: int,
    num_keys: int | None = None,
    *,
    num_sink_tokens: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Let each query attend to the ``window`` most recent positions, including its own.

    Sliding-window attention is due to Beltagy et al. 2020 (arXiv:2004.05150, section 3.1), and its causal form to Jiang
    et al. 2023 (arXiv:2310.06825, section 2). The alignment is the same as in :func:`make_causal_mask`.

    Args:
        window: number of keys that a query sees, at least 1; with 1 it sees only itself.
        num_keys: S, at least 0; T if not given.
        num_sink_tokens: number of first keys that every later query sees, too, called attention sinks (Xiao et al.
            2023, arXiv:2309.17453).

    Returns:
        Boolean mask (T, S), True where 0 <= (t + S - T) - s, and < window or s < num_sink_tokens.

    Raises:
        ValueError: if a length or ``num_sink_tokens`` is negative, or the window is below 1.

    Example:
        >>> make_sliding_window_mask(4, window=2).int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 1, 1, 0],
                [0, 0, 1, 1]], dtype=torch.int32)
        >>> make_sliding_window_mask(4, window=2, num_sink_tokens=1).int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [1, 1, 1, 0],
                [1, 0, 1, 1]], dtype=torch.int32)
    """
    check_window(window, num_sink_tokens)
    query_position, key_position = _positions(num_queries, num_keys, device)
    visible = (key_position > query_position - window) | (key_position < num_sink_tokens)
    return visible & (key_position <= query_position)


def make_padding_mask(
    lengths: Int[Tensor, "B"] | Sequence[int],
    max_len: int | None = None,
    *,
    side: str = "right",
    device: torch.device | str | None = None,
) -> Bool[Tensor, "B 1 S"]:
    """Hide the padding of each sequence in a batch from every query.

    The axis of length 1 broadcasts over the queries, so the mask can be combined with a causal mask:
    ``make_causal_mask(S) & make_padding_mask(lengths)`` has the shape (B, S, S). The mask hides *keys*. A query at a
    padding position still gets an output, which nothing should use.

    Args:
        lengths: number of real tokens in each sequence, from 0 to ``max_len``.
        max_len: S; the largest length if not given.
        side: position of the padding: ``"right"`` for training, ``"left"`` for sequences that a model continues.
        device: device of the mask; by default the device of ``lengths`` if this is a tensor.

    Returns:
        Boolean mask (B, 1, S), True at real tokens.

    Raises:
        ValueError: if ``side`` is neither ``"right"`` nor ``"left"``, or a length is negative or
            above ``max_len``.
        TypeError: if the lengths are not integers.

    Example:
        >>> make_padding_mask([2, 3]).int()
        tensor([[[1, 1, 0]],
        <BLANKLINE>
                [[1, 1, 1]]], dtype=torch.int32)
    """
    if side not in ("right", "left"):
        raise ValueError(f"side ({side!r}) must be 'right' or 'left', the side of the padding")
    lengths = torch.as_tensor(lengths, device=device)
    # torch.as_tensor([]) is floating-point.
    if (lengths.is_floating_point() and lengths.numel() > 0) or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, one for each sequence, not {lengths.dtype}")
    if lengths.dim() != 1:
        raise ValueError(
            f"lengths must have one axis (B,), not shape {tuple(lengths.shape)}: one length for each sequence"
        )
    shortest, longest = (read_value(lengths.min()), read_value(lengths.max())) if len(lengths) else (0, 0)
    if max_len is None:
        max_len = int(lengths.max()) if longest is None else longest
    if shortest is not None and shortest < 0:
        raise ValueError(f"lengths must not be negative, but one is {shortest}")
    if longest is not None and longest > max_len:
        raise ValueError(f"the longest length ({longest}) must not exceed max_len ({max_len})")
    position = torch.arange(max_len, device=lengths.device)
    if side == "left":
        position = position.flip(0)
    return (position < lengths[:, None])[:, None, :]  # (B, 1, S)


# -- Conventions of other libraries ------------------------------------------------------------------


def to_torch_mask(mask: Bool[Tensor, "*batch T S"], *, num_heads: int | None = None) -> Bool[Tensor, "..."]:
    """Convert a mask to the convention of ``nn.MultiheadAttention``, where True means hidden.

    The shape of the mask decides for which argument the result is:

    ============  ======================  ==========================================
    mask          result                  argument of ``nn.MultiheadAttention``
    ============  ======================  ==========================================
    (T, S)        (T, S)                  ``attn_mask``
    (B, 1, S)     (B, S)                  ``key_padding_mask``
    (B, T, S)     (B * num_heads, T, S)   ``attn_mask``; needs ``num_heads``
    ============  ======================  ==========================================

    A mask (B, 1, S) for a single query (T = 1) becomes a ``key_padding_mask``, too, which means the same.

    Raises:
        TypeError: if the mask is not boolean.
        ValueError: if the mask has neither two nor three axes, or three and ``num_heads`` is missing.

    Example:
        >>> to_torch_mask(make_causal_mask(2))
        tensor([[False,  True],
                [False, False]])
        >>> to_torch_mask(make_padding_mask([1, 2]))
        tensor([[False,  True],
                [False, False]])
    """
    check_is_bool(mask)
    if mask.dim() == 2:
        return ~mask
    if mask.dim() != 3:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} must have shape (T, S), (B, 1, S) or (B, T, S) to be converted"
        )
    if mask.size(1) == 1:
        return ~mask[:, 0]
    if num_heads is None:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} needs num_heads, because nn.MultiheadAttention takes "
            "one mask for each head of each sequence, (B * num_heads, T, S)"
        )
    return ~mask.repeat_interleave(num_heads, dim=0)


def from_torch_mask(
    attn_mask: Bool[Tensor, "..."] | None = None,
    key_padding_mask: Bool[Tensor, "B S"] | None = None,
    *,
    num_heads: int | None = None,
) -> Bool[Tensor, "..."]:
    """Convert masks of ``nn.MultiheadAttention``, where True means hidden.

    Args:
        attn_mask: (T, S), or (B * num_heads, T, S) if all heads of a sequence have the same mask.
        key_padding_mask: (B, S), True at padding.
        num_heads: required if ``attn_mask`` has three axes.

    Returns:
        One mask, True = may attend: (T, S), (B, 1, S) or (B, T, S).

    Raises:
        TypeError: if a mask is not boolean.
        ValueError: if no mask is given, ``num_heads`` is missing, or the heads' masks differ.

    Example:
        >>> from_torch_mask(key_padding_mask=torch.tensor([[False, False, True]])).int()
        tensor([[[1, 1, 0]]], dtype=torch.int32)
    """
    if attn_mask is None and key_padding_mask is None:
        raise ValueError("from_torch_mask needs attn_mask, key_padding_mask or both")
    mask = None
    if attn_mask is not None:
        check_is_bool(attn_mask, name="attn_mask")
        mask = ~attn_mask
        if mask.dim() == 3:
            if num_heads is None or mask.size(0) % num_heads:
                raise ValueError(
                    f"attn_mask of shape {tuple(attn_mask.shape)} needs num_heads dividing its first "
                    f"axis, B * num_heads; num_heads is {num_heads}"
                )
            mask = mask.unflatten(0, (-1, num_heads))  # (B, H, T, S)
            if not torch.equal(mask, mask[:, :1].expand_as(mask)):
                raise ValueError(
                    "attn_mask must be the same for all heads of a sequence, because (B, T, S) has no axis for heads"
                )
            mask = mask[:, 0]
    if key_padding_mask is not None:
        check_is_bool(key_padding_mask, name="key_padding_mask")
        padding = ~key_padding_mask[:, None, :]  # (B, 1, S)
        mask = padding if mask is None else mask & padding
    return mask


def to_transformers_mask(mask: Bool[Tensor, "B 1 S"]) -> Int[Tensor, "B S"]:
    """Convert a padding mask to the convention of Hugging Face's tokenizers and models: 1 real, 0 padding.

    Raises:
        TypeError: if the mask is not boolean.
        ValueError: if it is not a padding mask (B, 1, S).

    Example:
        >>> to_transformers_mask(make_padding_mask([1, 2]))
        tensor([[1, 0],
                [1, 1]])
    """
    check_is_bool(mask)
    if mask.dim() != 3 or mask.size(1) != 1:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} must be a padding mask (B, 1, S): "
            "Hugging Face's attention_mask (B, S) has no axis for queries"
        )
    return mask[:, 0].long()


def from_transformers_mask(attention_mask: Int[Tensor, "B S"]) -> Bool[Tensor, "B 1 S"]:
    """Convert the ``attention_mask`` of a Hugging Face tokenizer, which has 1 for real tokens and 0 for padding.

    Raises:
        TypeError: if the mask is not a tensor. A tokenizer returns lists without ``return_tensors="pt"``.
        ValueError: if the mask does not have the shape (B, S) or holds numbers other than 0 and 1.

    Example:
        >>> from_transformers_mask(torch.tensor([[1, 1, 0]]))
        tensor([[[ True,  True, False]]])
    """
    check_is_tensor(attention_mask, "attention_mask")
    if attention_mask.dim() != 2:
        raise ValueError(f"attention_mask of shape {tuple(attention_mask.shape)} must have shape (B, S)")
    if not ((attention_mask == 0) | (attention_mask == 1)).all():
        raise ValueError("attention_mask must hold only 1 (real token) and 0 (padding)")
    return attention_mask.bool()[:, None, :]


def to_additive_mask(
    mask: Bool[Tensor, "..."], dtype: torch.dtype = torch.float32, *, bias: Float[Tensor, "..."] | None = None
) -> Float[Tensor, "..."]:
    """Convert a mask to numbers that are *added* to the scores: 0 where a query may attend, -inf elsewhere.

    PyTorch and many Hugging Face models have such masks. If a mask hides all keys of a query, all its scores become
    -inf, and a plain softmax returns NaN.

    Args:
        mask: True where a query may attend; any shape.
        bias: numbers for visible keys instead of 0, broadcast with the mask.

    Returns:
        Numbers with the shape of the mask, broadcast with ``bias``.

    Raises:
        TypeError: if the mask is not boolean or ``dtype`` is not a floating-point type.

    Example:
        >>> to_additive_mask(make_causal_mask(2))
        tensor([[0., -inf],
                [0., 0.]])
    """
    check_is_bool(mask)
    if not dtype.is_floating_point:
        raise TypeError(f"dtype ({dtype}) must be a floating-point type, because integers have no -inf")
    if bias is None:
        bias = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, bias.to(dtype), -torch.inf)


def from_additive_mask(additive: Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Convert a mask of numbers that are added to the scores: 0 means visible, -inf or the type's minimum hidden.

    Raises:
        TypeError: if the mask is not a floating-point tensor.
        ValueError: if the mask holds another number, because a boolean mask cannot express a bias.

    Example:
        >>> from_additive_mask(torch.tensor([[0.0, -torch.inf]]))
        tensor([[ True, False]])
    """
    check_is_tensor(additive, "additive")
    if not additive.is_floating_point():
        raise TypeError(f"an additive mask must be floating-point, not {additive.dtype}")
    allowed = additive == 0
    forbidden = additive <= torch.finfo(additive.dtype).min
    if not (allowed | forbidden).all():
        odd = additive[~(allowed | forbidden)][0].item()
        raise ValueError(
            f"an additive mask must hold only 0 and -inf (or the type's minimum), but holds {odd:g}; "
            "pass such numbers as bias"
        )
    return allowed


def _positions(num_queries: int, num_keys: int | None, device: torch.device | str | None) -> tuple[Tensor, Tensor]:
    num_keys = num_queries if num_keys is None else num_keys
    for name, length in (("num_queries", num_queries), ("num_keys", num_keys)):
        if length < 0:
            raise ValueError(f"{name} ({length}) must not be negative")
    query_position = torch.arange(num_queries, device=device)[:, None] + num_keys - num_queries
    return query_position, torch.arange(num_keys, device=device)  # (T, 1) and (S,)
