"""Checks of inputs that several modules share. Each error message names the values and the rule."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def read_value(x: Tensor) -> bool | int | float | None:
    """Return the only number of a tensor, or None if its value is unknown.

    The value is unknown while PyTorch compiles, exports or traces the code, under ``torch.vmap``, and in tensors
    without data. The caller must then do what is right for every value.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return None
    try:
        return x.item()
    except RuntimeError:
        return None


def check_is_tensor(x: Tensor, name: str) -> None:
    """Raise an error for arrays, lists, numbers and nested tensors, which have no shape (B, T, E)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(x).__name__}; torch.as_tensor makes one")
    if x.is_nested:
        raise TypeError(
            f"{name} must not be a nested tensor; pad it with torch.nested.to_padded_tensor and hide the padding "
            "with make_padding_mask"
        )


def check_qkv(q: Tensor, k: Tensor, v: Tensor, *, enable_gqa: bool = False) -> None:
    """Raise an error if the shapes or types of q, k and v do not fit together."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_is_tensor(x, name)
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if min(q.dim(), k.dim(), v.dim()) < 2:
        raise ValueError(f"q, k and v must have at least two axes, (..., T, D): {shapes}")
    if q.size(-1) != k.size(-1):
        raise ValueError(f"the last axis of q ({q.size(-1)}) must equal the last axis of k ({k.size(-1)}): {shapes}")
    if q.size(-1) == 0:
        raise ValueError(f"the last axis of q and k must not be empty: {shapes}")
    if k.size(-2) != v.size(-2):
        raise ValueError(f"there must be as many keys ({k.size(-2)}) as values ({v.size(-2)}): {shapes}")
    if k.size(-2) == 0:
        raise ValueError(f"there must be at least one key to attend to: {shapes}")
    if enable_gqa:
        _check_groups(q, k, v, shapes)
    elif not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q, k and v must have the same leading axes: {shapes}")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q ({q.dtype}), k ({k.dtype}) and v ({v.dtype}) must have the same type")
    check_is_float(q, "q, k and v")


def check_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    sink: float | Tensor | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """Raise an error if inputs of attention do not fit together; return the sink, broadcastable to the scores."""
    check_qkv(q, k, v, enable_gqa=enable_gqa)
    scores_shape = (*q.shape[:-1], k.size(-2))
    if mask is not None:
        check_mask(mask, scores_shape)
    if bias is not None:
        check_bias(bias, scores_shape)
    return None if sink is None else check_sink(sink, q)


def _check_groups(q: Tensor, k: Tensor, v: Tensor, shapes: str) -> None:
    if min(q.dim(), k.dim(), v.dim()) < 3:
        raise ValueError(f"enable_gqa needs an axis of heads, (..., H, T, D): {shapes}")
    if k.size(-3) != v.size(-3) or not q.shape[:-3] == k.shape[:-3] == v.shape[:-3]:
        raise ValueError(
            f"k and v must have the same number of heads, and q, k and v the same axes before the heads: {shapes}"
        )
    if k.size(-3) == 0 or q.size(-3) % k.size(-3):
        raise ValueError(
            f"the number of heads of k and v ({k.size(-3)}) must divide that of q ({q.size(-3)}): {shapes}"
        )


def check_sink(sink: float | Tensor, q: Tensor) -> Tensor:
    """Raise an error if a sink is not one number or (H,); return it as a tensor that broadcasts to the scores."""
    if not isinstance(sink, Tensor) and not math.isfinite(sink):
        raise ValueError(f"sink ({sink}) must be finite; pass None for no sink")
    if isinstance(sink, Tensor) and sink.is_floating_point():
        dtype = sink.dtype
    else:
        dtype = torch.promote_types(q.dtype, torch.float32)
    sink = torch.as_tensor(sink, dtype=dtype, device=q.device)
    if sink.dim() == 0:
        return sink
    if sink.dim() > 1 or q.dim() < 3 or sink.size(0) != q.size(-3):
        raise ValueError(
            f"sink of shape {tuple(sink.shape)} must be one number or (H,), one for each head of q {tuple(q.shape)}"
        )
    return sink[:, None, None]  # (H, 1, 1)


def check_mask(mask: Tensor, scores_shape: tuple[int, ...]) -> None:
    """Raise an error if a mask is not boolean, or if it would broadcast along the wrong axes."""
    check_is_bool(mask)
    _check_broadcasts(mask, "mask", scores_shape)


def check_bias(bias: Tensor, scores_shape: tuple[int, ...]) -> None:
    """Raise an error if a bias is not floating-point, or if it would broadcast along the wrong axes."""
    check_is_tensor(bias, "bias")
    if not bias.is_floating_point():
        hint = "; pass a boolean tensor as mask" if bias.dtype == torch.bool else ""
        raise TypeError(f"bias must be floating-point, not {bias.dtype}{hint}")
    _check_broadcasts(bias, "bias", scores_shape)


def _check_broadcasts(x: Tensor, name: str, scores_shape: tuple[int, ...]) -> None:
    rule = f"must be (T, S) or have as many axes as the scores {tuple(scores_shape)}, and broadcast to them"
    if x.dim() not in (2, len(scores_shape)):
        raise ValueError(f"{name} of shape {tuple(x.shape)} {rule}; see Tensor.unsqueeze")
    if any(m not in (1, n) for m, n in zip(reversed(x.shape), reversed(scores_shape), strict=False)):
        raise ValueError(f"{name} of shape {tuple(x.shape)} {rule}")


def check_is_bool(mask: Tensor, name: str = "mask") -> None:
    """Raise an error if a mask is not boolean. For numbers, 0 can mean hidden (0 and 1) or visible (0 and -inf)."""
    check_is_tensor(mask, name)
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be boolean with True = may attend, not {mask.dtype}; "
            "see the converters in attn_course.functional.masks"
        )


def check_is_flag(x: bool, name: str) -> None:
    """Raise an error if a value is not a bool, such as a list of queries where only all weights or none exist."""
    if not isinstance(x, bool):
        raise TypeError(f"{name} ({x!r}) must be True or False; only a layer returns weights of chosen queries")


def check_is_float(x: Tensor, name: str) -> None:
    """Raise an error for integers, because weights between 0 and 1 would be rounded."""
    check_is_tensor(x, name)
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating-point, not {x.dtype}")


def check_sizes(**sizes: int) -> None:
    """Raise an error if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} ({size}) must be at least 1")


def check_window(window: int, num_sink_tokens: int) -> None:
    """Raise an error if a window does not contain the query itself, or if the number of sinks is negative."""
    if not window >= 1:
        raise ValueError(f"window ({window}) must be at least 1: a query sees at least itself")
    if num_sink_tokens < 0:
        raise ValueError(f"num_sink_tokens ({num_sink_tokens}) must not be negative")


def check_width(x: Tensor, width: int, name: str, argument: str) -> None:
    """Raise an error if the last axis of an input does not have the width of the layer."""
    check_is_tensor(x, name)
    if x.size(-1) != width:
        raise ValueError(
            f"the last axis of {name} ({x.size(-1)}) must equal {argument} ({width}); {name} has shape {tuple(x.shape)}"
        )


def check_sequence(x: Tensor, width: int, name: str, argument: str) -> None:
    """Raise an error if an input is not (B, T, E) with the width E of the layer."""
    check_is_tensor(x, name)
    if x.dim() != 3:
        raise ValueError(f"{name} must have three axes (B, T, E), not shape {tuple(x.shape)}")
    check_width(x, width, name, argument)


def check_positive(x: float, name: str) -> None:
    """Raise an error if a number is zero, negative or NaN."""
    if not x > 0:
        raise ValueError(f"{name} ({x}) must be positive")


def check_probability(p: float, name: str) -> None:
    """Raise an error if a dropout probability is negative or would drop everything."""
    if not 0.0 <= p < 1.0:
        raise ValueError(f"{name} ({p}) must be at least 0 and below 1: it is the share of weights that is dropped")


def check_token_ids(ids: Tensor, name: str, max_len: int, start: int = 0) -> None:
    """Raise an error if ids are not integers (B, T), or if there are more than the model can read."""
    check_is_tensor(ids, name)
    if ids.dim() != 2:
        raise ValueError(f"{name} must have two axes, sequences and positions, not shape {tuple(ids.shape)}")
    if ids.dtype not in (torch.int32, torch.int64):  # the types that embeddings accept
        raise TypeError(f"{name} must hold ids, which are integers (int64 or int32), not {ids.dtype}")
    if start + ids.size(1) > max_len:
        length = f"{start} + {ids.size(1)}" if start else ids.size(1)
        raise ValueError(f"{name} is {length} tokens long, longer than max_len ({max_len})")


def check_query_indices(indices: Sequence[int] | Tensor, num_queries: int, name: str = "query_indices") -> Tensor:
    """Check that each index is the number of a query, and return the indices without negative numbers."""
    indices = torch.as_tensor(indices)
    if indices.numel() == 0:
        indices = indices.long()
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, not {indices.dtype}")
    if indices.dim() != 1:
        raise ValueError(f"{name} of shape {tuple(indices.shape)} must have one axis, (R,)")
    wrong = (indices < -num_queries) | (indices >= num_queries)
    if read_value(wrong.any()):
        raise ValueError(
            f"{name} must be from {-num_queries} to {num_queries - 1} for {num_queries} queries, "
            f"but one of them is {indices[wrong][0]}"
        )
    # A remainder would turn a wrong index into a right one where no value can be read.
    return torch.where(indices < 0, indices + num_queries, indices)


def check_has_weights(state: dict[str, Tensor], names: Iterable[str]) -> None:
    """Raise an error if a state dict lacks weights because they are computed from other parameters."""
    for name in names:
        if name not in state:
            raise ValueError(
                f"{name} cannot be copied, because it is computed from other parameters (by weight_norm, "
                "spectral_norm or pruning); call torch.nn.utils.parametrize.remove_parametrizations or "
                "torch.nn.utils.prune.remove first"
            )


def check_need_weights(need_weights: bool | Sequence[int] | Tensor, num_queries: int) -> None:
    """Raise an error if need_weights is neither a bool nor the indices of queries."""
    if isinstance(need_weights, bool):
        return
    if isinstance(need_weights, str) or not isinstance(need_weights, Tensor | Sequence):
        raise TypeError(
            f"need_weights ({need_weights!r}) must be True, False, or a list or tensor with the indices of queries"
        )
    check_query_indices(need_weights, num_queries, "need_weights")
