"""An interactive view of the attention weights of all layers and heads. Used from chapter 1 on.

The view is one piece of HTML that loads nothing:

- ``<img>``: the first head, for readers without scripts (fallback_image.py).
- ``<script type="application/json">``: tokens, names and all weights, each in as few bits as its digits need.
- ``<script>``: attention_view.js, which replaces the image, after the scripts that it imports. A page with several
views keeps one copy of each script (js_bundle.py).

Weights are rounded first. So a small difference between two machines changes a stored number by one unit at most.
tests/nbval_numbers.py reads the stored bitmap and weights and compares them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.plots.colours import as_hex, diverging, sequential
from attn_course.plots.fallback_image import as_units, still_image
from attn_course.plots.figure import Picture
from attn_course.plots.heatmaps import heatmap
from attn_course.plots.js_bundle import as_json, scripts
from attn_course.plots.text import (
    as_mask,
    as_numbers,
    as_table,
    as_tokens,
    check_length,
    fixed,
    on_one_line,
    run_of,
    sign_of,
)

# 64 signs that mean nothing in HTML, JSON or Python, and spell no name of a device.
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_."
_MOST_NUMBERS_AS_TEXT = 5000
_MOST_CELLS = 20_000  # of a head that a browser shows within two seconds
_MOST_PARTS = 20_000  # of all queries, keys and values: about 120 kB
_SAME = 0.01  # weights of q and k computed in half precision are this near


class AttentionView:
    """The result of :func:`attention_view`: HTML, or an image where HTML is not shown, and the numbers as text.

    Args:
        html: the living picture.
        text: the numbers and tokens drawn.
        draw_first: draws the first head as a :class:`Picture`, for places that show no HTML.
    """

    def __init__(self, html: str, text: str, draw_first: Callable) -> None:
        self.html = html
        self.text = text
        self._first = cache(draw_first)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        data, metadata = self._first()._repr_mimebundle_()
        return {"text/html": self.html, **data, "text/plain": self.text}, metadata

    def png(self) -> bytes:
        """Draw the first head as a PNG."""
        return self._first().png()

    def save(self, path: str | Path) -> None:
        """Write the interactive picture to an HTML file that opens without a server."""
        page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Attention</title>{self.html}</html>\n'
        Path(path).write_text(page, encoding="utf-8")


def attention_view(
    weights: Tensor | ArrayLike | Sequence[Tensor] | Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    names: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    mask: Tensor | ArrayLike | None = None,
    q: Tensor | ArrayLike | None = None,
    k: Tensor | ArrayLike | None = None,
    v: Tensor | ArrayLike | None = None,
    label: str = "weight",
    precision: int = 3,
    alt: str | None = None,
) -> AttentionView:
    """Show the weights of all heads of all layers in an interactive view, one or two heads at a time.

    Point at a cell, tap it, or move to it with the arrow keys, to read its query, key and weight. Point at a token to
    see what it attends to. You can choose a layer and a head or the mean of the heads, compare two heads, draw lines
    instead of cells, and hide special tokens such as ``<pad>`` and ``[CLS]``. With q and k, the view shows the steps
    from scores to weights and the terms of each number. On the website, the address contains the state of the view.
    The view works in Jupyter, on Colab and on the website, without a kernel. Without scripts, it shows the first
    head. A head with more than 20,000 weights would be too slow in a browser, so its view is a still picture.

    Args:
        weights: (T, S), (H, T, S) or (L, H, T, S), after the softmax; or a list or dictionary of such heads or
            layers, whose keys are then the names.
        queries: T tokens, down.
        keys: S tokens, across; the queries when not given, as in self-attention.
        names: H names of the heads; "head 1" and so on when not given.
        layers: L names of the layers; "layer 1" and so on when not given.
        mask: True where a query may attend, broadcastable to the weights. Other cells are hatched.
        q: the vectors that the weights were made of, (T, D), with the axes before T that the weights have. They are
            those that are multiplied: with their positions, if these turn them.
        k: (S, D), like q.
        v: (S, V), like q; then the last step is the context.
        label: what the numbers are.
        precision: digits after the point that are shown, 1 to 4.
        alt: what to notice, for readers who don't see the picture.

    Raises:
        ValueError: if tokens or names don't match the weights' size, there are more than 1,024 queries or keys, a
            weight is not a number from 0 to 1, or q and k do not give these weights.

    Example:
        >>> attention_view([[[1.0, 0.0], [0.0, 1.0]]] * 2, ["a", "b"], precision=1)
        weight: queries down, keys across
        head 1
             a    b
        a  1.0  0.0
        b  0.0  1.0
        head 2
             a    b
        a  1.0  0.0
        b  0.0  1.0
    """
    if precision not in (1, 2, 3, 4):
        raise ValueError(f"precision ({precision}) must be 1, 2, 3 or 4 digits after the point")
    grids, names, layers = _stacked(weights, names, layers)
    shape = grids.shape
    check_length(grids.shape)
    allowed = as_mask(mask, grids.shape)
    (label,) = on_one_line([label])
    _check_weights(grids, allowed, label)
    queries, keys = ([_visible(token) for token in tokens] for tokens in as_tokens(grids.shape[-2:], queries, keys))
    if grids.ndim < 4:
        layers = ["layer 1"]
    if names is None:
        names = [f"head {i + 1}" for i in range(1 if grids.ndim == 2 else grids.shape[-3])]
    grids = grids.reshape(len(layers), len(names), *grids.shape[-2:])
    allowed = np.ones(grids.shape, bool) if allowed is None else allowed.reshape(grids.shape)

    heads = [
        ", ".join([layer] * (len(layers) > 1) + [name] * (len(names) * len(layers) > 1))
        for layer in layers
        for name in names
    ]
    of = f"; {heads[0]} of {len(heads)}" if heads[0] else ""
    (alt,) = on_one_line([alt or f"{label}: queries down, keys across{of}"])
    first = grids[0, 0], allowed[0, 0]

    def draw_first() -> Picture:
        return heatmap(first[0], queries, keys, mask=first[1], label=label)

    parts = _parts(q, k, v, grids, allowed, shape)
    still = still_image(*first, queries, keys, precision=precision, label=label, alt=alt, name=heads[0])
    if first[0].size > _MOST_CELLS:
        picture, text = _too_large(still, f"{label}: queries down, keys across", grids.shape)
        return AttentionView(picture, text, draw_first)
    data = {
        "name": alt,
        "label": label,
        "layers": layers,
        "heads": names,
        "queries": queries,
        **({} if keys == queries else {"keys": keys}),
        "colors": "".join(as_hex(sequential()(i / 16)) for i in range(17)),
        **parts,
        "weights": f"{precision}:{_packed(grids, allowed, precision)}",
    }
    picture = (
        f'<div class="attn-view">{still}'
        f'<script type="application/json">{as_json(data)}</script>{scripts("plots/attention_view.js")}</div>'
    )
    text = _text(grids, allowed, queries, keys, heads, label, precision)
    return AttentionView(picture, text, draw_first)


# -- What is handed in -------------------------------------------------------------------------------


def _stacked(
    weights: Any, names: Sequence[str] | None, layers: Sequence[str] | None
) -> tuple[np.ndarray, list[str] | None, list[str] | None]:
    """Check the weights, and return them as one array with the names of layers and heads."""
    keys = list(weights) if isinstance(weights, Mapping) else None
    parts = list(weights.values()) if keys is not None else weights
    in_parts = isinstance(parts, list | tuple)
    if in_parts:
        parts = [as_numbers(part) for part in parts]
        shapes = list(dict.fromkeys(part.shape for part in parts))
        if len(shapes) > 1:
            raise ValueError(f"weights of shapes {shapes[0]} and {shapes[1]} must have one shape to share their tokens")
    grids = as_numbers(parts)
    if grids.ndim not in (2, 3, 4):
        hint = "; take one sentence of the batch, for instance weights[:, 0]" if grids.ndim == 5 else ""
        raise ValueError(f"weights of shape {grids.shape} must have axes (T, S), (H, T, S) or (L, H, T, S){hint}")
    if 0 in grids.shape:
        raise ValueError(f"weights of shape {grids.shape} has nothing to draw")
    if keys is not None and grids.ndim == 4 and layers is None:
        layers = keys
    elif keys is not None and grids.ndim == 3 and names is None:
        names = keys
    if grids.ndim == 4 and len(grids) == 1 and layers is None and not in_parts:
        raise ValueError(
            f"weights of shape {grids.shape} looks like a batch of one sentence: hand in weights[0], "
            'or layers=["layer 1"] if it is one layer'
        )
    if layers is None and grids.ndim == 4:
        layers = [f"layer {i + 1}" for i in range(len(grids))]
    for what, labels, axes in (("names", names, 3), ("layers", layers, 4)):
        if labels is None:
            continue
        if isinstance(labels, str):
            raise ValueError(f"{what} must be a list of names, not one string {labels!r}")
        size = grids.shape[-axes] if grids.ndim >= axes else 0
        if len(labels) != size:
            of = "heads" if axes == 3 else "layers"
            raise ValueError(f"{what} ({len(labels)}) must match the {of} ({size}); weights has shape {grids.shape}")
    return grids, *(None if labels is None else [_visible(str(name)) for name in labels] for labels in (names, layers))


def _check_weights(grids: np.ndarray, allowed: np.ndarray | None, label: str) -> None:
    visible = np.ones(grids.shape, bool) if allowed is None else allowed
    if nan := np.argwhere(np.isnan(grids) & visible).tolist():
        raise ValueError(f"{label} {nan[0]} is NaN: a softmax over a row of -inf? Hide it by mask, or see heatmap")
    low, high = (f(grids, where=visible, initial=0.0) for f in (np.min, np.max))
    if low < -1e-3 or high > 1 + 1e-3:
        raise ValueError(
            f"{label} {run_of(low, high)}, outside 0 to 1: this view shows weights after the softmax; "
            "heatmap draws other numbers, with scale=(low, high)"
        )


def _parts(
    q: Any,
    k: Any,
    v: Any,
    grids: np.ndarray,
    allowed: np.ndarray,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Check queries, keys and values against the weights, and return them in the form that the script reads."""
    if q is None and k is None and v is None:
        return {}
    if q is None or k is None:
        raise ValueError("q and k must be handed in together: a score needs both")
    packed, arrays = {}, {}
    for name, vectors, size in (("q", q, shape[-2]), ("k", k, shape[-1]), ("v", v, shape[-1])):
        if vectors is None:
            continue
        array = as_numbers(vectors)
        if array.ndim != len(shape) or array.shape[:-1] != (*shape[:-2], size):
            axes = ", ".join(map(str, (*shape[:-2], size)))
            raise ValueError(f"{name} of shape {array.shape} must be ({axes}, D): the weights' axes, of shape {shape}")
        arrays[name] = array.reshape(-1, *array.shape[-2:])
        numbers = " ".join(fixed(number, 3) for number in array.ravel())
        packed[name] = {"width": array.shape[-1], "numbers": numbers}
    if arrays["q"].shape[-1] != arrays["k"].shape[-1]:
        raise ValueError(
            f"q ({arrays['q'].shape[-1]} parts) and k ({arrays['k'].shape[-1]}) must be of one size to be multiplied"
        )
    if (total := sum(array.size for array in arrays.values())) > _MOST_PARTS:
        raise ValueError(
            f"q, k and v hold {total:,} numbers, more than the {_MOST_PARTS:,} that a page should carry: "
            "hand in fewer heads or layers"
        )
    scores = arrays["q"] @ arrays["k"].swapaxes(1, 2) / math.sqrt(arrays["q"].shape[-1])
    visible = allowed.reshape(scores.shape)
    powers = np.where(visible, np.exp(scores - scores.max(-1, keepdims=True, where=visible, initial=-math.inf)), 0.0)
    sums = powers.sum(-1, keepdims=True)
    off = np.abs(powers / np.where(sums == 0, 1.0, sums) - grids.reshape(scores.shape))[visible]
    if off.size and not off.max() <= _SAME:
        raise ValueError(
            f"softmax(q @ k.mT / √{arrays['q'].shape[-1]}) differs from the weights by up to {off.max():.2f}: hand in "
            "q and k as they are multiplied, the mask, and weights before dropout"
        )
    signed = "".join(as_hex(diverging()(i / 16)) for i in range(17))
    return {"signed": signed, **packed}


def _visible(token: str) -> str:
    """Return a token with visible signs for spaces at its ends, line breaks and invisible characters."""
    inside = token.strip(" ")
    spaces = len(token) - len(token.lstrip(" "))
    right = len(token) - spaces - len(inside)
    joined = "".join(
        c
        if c.isprintable() or (c in "\u200c\u200d" and len(token) > 1)  # these join letters and emoji
        else sign_of(c)
        for c in inside
    )
    return "␣" * spaces + joined + "␣" * right or "∅"


# -- What is handed out ------------------------------------------------------------------------------


def _too_large(still: str, head: str, shape: tuple[int, ...]) -> tuple[str, str]:
    """Return a still picture of the first head and a sentence that the figure is too large, and the same as text."""
    num_heads = shape[0] * shape[1]
    of = f" of the first of {num_heads:,} heads" if num_heads > 1 else ""
    why = (
        f"The interactive view shows at most {_MOST_CELLS:,} weights of a head, and {shape[2]:,} queries and "
        f"{shape[3]:,} keys are {shape[2] * shape[3]:,}. This is a still picture{of}."
    )
    return f"<div>{still}<p>{why}</p></div>", f"{head}\n{why}"


def _packed(grids: np.ndarray, allowed: np.ndarray, precision: int) -> str:
    """Pack the weights as integers with as few bits as the largest needs, six bits in each character."""
    size = (10**precision + 1).bit_length()
    numbers = np.where(allowed, as_units(grids, 10**precision), 2**size - 1).ravel()
    bits = (numbers[:, None] >> np.arange(size)[::-1] & 1).ravel()
    sixes = np.pad(bits, (0, -len(bits) % 6)).reshape(-1, 6) @ (1 << np.arange(6)[::-1])
    return np.frombuffer(_DIGITS.encode(), np.uint8)[sixes].tobytes().decode()


def _text(
    grids: np.ndarray,
    allowed: np.ndarray,
    queries: list[str],
    keys: list[str],
    heads: list[str],
    label: str,
    precision: int,
) -> str:
    size = grids.shape[2] * grids.shape[3]
    num_shown = max(1, min(len(heads), _MOST_NUMBERS_AS_TEXT // size))
    lines = [f"{label}: queries down, keys across"]
    for i, head in enumerate(heads[:num_shown]):
        index = divmod(i, grids.shape[1])
        hidden = None if allowed[index].all() else allowed[index]
        lines += [head] * bool(head) + [as_table(grids[index], queries, keys, precision, hidden)]
    if len(heads) > num_shown:
        more = len(heads) - num_shown
        lines.append(f"and {more} more of the same size, to {heads[-1]}; their numbers are in the HTML")
    return "\n".join(lines)
