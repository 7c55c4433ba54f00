"""Weights and masks as grids: queries down, keys across, one fixed scale. Used from chapter 2 on."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.plots.colours import INK, diverging, lightness_of, sequential
from attn_course.plots.picture import WIDEST, Picture, panels, style
from attn_course.plots.text import (
    ONE_RUN,
    as_mask,
    as_numbers,
    as_rows,
    as_table,
    as_tokens,
    check_scale,
    fixed,
    tokens_of_panels,
    width_of,
)


def heatmap(
    weights: Tensor | ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    mask: Tensor | ArrayLike | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
    label: str = "weight",
    precision: int | None = 4,
) -> Picture:
    """Draw the weights of one head: a row for each query, a column for each key.

    Args:
        weights: (T, S).
        queries: T tokens, down.
        keys: S tokens, across; the queries when not given, as in self-attention.
        mask: True where a query may attend, broadcastable to (T, S). Hidden cells are hatched, which tells
            "not allowed" from "allowed, but near zero".
        scale: the values of the lightest and the darkest colour. Keep the default for weights, so that
            pictures can be compared. If it spans zero, zero is white.
        label: what the numbers are.
        precision: digits after the point in the text of the picture. None is for weights that differ between
            machines, as in :func:`curves`.

    Raises:
        ValueError: if the tokens don't match the weights' size, or a value lies outside the scale.

    Example:
        >>> heatmap([[1.0, 0.0], [0.25, 0.75]], ["the", "cat"], precision=2)
        weight: queries down, keys across
              the   cat
        the  1.00  0.00
        cat  0.25  0.75
    """
    grid = as_numbers(weights)
    if grid.ndim != 2:
        hint = "; head_grid draws several heads" if grid.ndim == 3 else ""
        raise ValueError(f"weights of shape {grid.shape} must have two axes (T, S){hint}")
    queries, keys = as_tokens(grid.shape, queries, keys)
    allowed = as_mask(mask, grid.shape)
    check_scale(grid, allowed, scale, label)

    cell = _cell_size(*grid.shape, columns=1, left=_margin_left(queries))
    margin = _margin(queries, keys, cell)
    size = (
        margin[0] + cell * grid.shape[1] + 0.9,
        margin[1] + cell * grid.shape[0] + 0.15,
    )
    with matplotlib.rc_context(style()):
        fig = Figure(figsize=size, layout="constrained")
        ax = fig.subplots()
        image = _draw_grid(ax, grid, allowed, scale, cell)
        _label_axes(ax, queries, keys, cell)
        ax.set(xlabel="key", ylabel="query")
        ax.xaxis.set_label_position("top")
        fig.colorbar(image, ax=ax, label=label, shrink=0.9, aspect=18, pad=0.03)
    text = f"{label}: queries down, keys across\n" + _one_run(precision)
    digits = 3 if precision is None else precision
    return Picture(fig, text + as_table(grid, queries, keys, digits, allowed))


def head_grid(
    weights: Tensor | ArrayLike,
    queries: Sequence[str] | Sequence[Sequence[str]],
    keys: Sequence[str] | Sequence[Sequence[str]] | None = None,
    *,
    names: Sequence[str] | None = None,
    mask: Tensor | ArrayLike | None = None,
    columns: int | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
    label: str = "weight",
    precision: int | None = 4,
) -> Picture:
    """Draw several heads, or one head on several sentences, beside each other, all on one scale.

    Args:
        weights: (H, T, S).
        queries: T tokens, down; or H lists of T tokens, when each panel shows a sentence of its own.
        keys: S tokens, across, or H lists of them; the queries when not given.
        names: H names, written under the heads; "head 1" and so on when not given.
        mask: True where a query may attend, broadcastable to (H, T, S).
        columns: how many heads stand in a row; when not given, up to 4, fewer if tokens would get too small.
        scale: as in :func:`heatmap`.
        label: what the numbers are.
        precision: as in :func:`heatmap`.

    Raises:
        ValueError: if tokens or names don't match the weights' size, or a value lies outside the scale.

    Example:
        >>> head_grid([[[1.0, 0.0], [0.0, 1.0]]] * 2, ["a", "b"], precision=1)
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
    grids = as_numbers(weights)
    if grids.ndim != 3:
        hint = "; heatmap draws one head" if grids.ndim == 2 else ""
        raise ValueError(
            f"weights of shape {grids.shape} must have three axes (H, T, S){hint}"
        )
    tokens, same_tokens = tokens_of_panels(grids.shape, queries, keys)
    queries, keys = (
        max(side, key=lambda s: max(map(width_of, s))) for side in zip(*tokens, strict=True)
    )
    names = [f"head {i + 1}" for i in range(len(grids))] if names is None else list(names)
    if len(names) != len(grids):
        raise ValueError(
            f"names ({len(names)}) must match the heads ({len(grids)}); weights has shape {grids.shape}"
        )
    if columns is not None and columns < 1:
        raise ValueError(f"columns ({columns}) must be at least 1")
    allowed = as_mask(mask, grids.shape)
    check_scale(grids, allowed, scale, label)

    if columns is None:
        columns = _readable_columns(len(grids), grids.shape[2], _margin_left(queries))
    columns = min(columns, len(grids))
    # Room for tokens at every panel.
    beside = 0.0 if same_tokens else _text_width(queries, 9.5)
    rows = math.ceil(len(grids) / columns)
    left = _margin_left(queries) + beside * (columns - 1)
    cell = _cell_size(*grids.shape[1:], columns=columns, left=left)
    margin = _margin(queries, keys, cell)
    above = 0.0 if same_tokens else margin[1] - 0.35
    panel = (cell * grids.shape[2] + 0.2, cell * grids.shape[1] + 0.45)
    width = margin[0] + panel[0] * columns + beside * (columns - 1) + 0.9
    height = (
        margin[1] + panel[1] * rows + above * (rows - 1) + (0.0 if same_tokens else 0.12)
    )
    with matplotlib.rc_context(style()):
        fig, axes = panels(len(grids), rows, columns, (width, height))
        for i, ax in enumerate(axes.flat[: len(grids)]):
            image = _draw_grid(
                ax, grids[i], None if allowed is None else allowed[i], scale, cell
            )
            _label_axes(
                ax,
                tokens[i][0] if i % columns == 0 or not same_tokens else None,
                tokens[i][1] if i < columns or not same_tokens else None,
                cell,
            )
            ax.set_xlabel(names[i])
        fig.colorbar(
            image,
            ax=axes,
            label=label,
            shrink=min(0.9, 3.0 / fig.get_figheight()),
            aspect=20,
            pad=0.02,
        )
        for ax in axes[:, 0]:
            ax.set_ylabel("query")
        fig.suptitle("key", fontsize="medium")
    parts = [f"{label}: queries down, keys across\n{_one_run(precision)}".rstrip()]
    for i, name in enumerate(names):
        parts += [
            name,
            as_table(
                grids[i],
                *tokens[i],
                3 if precision is None else precision,
                None if allowed is None else allowed[i],
            ),
        ]
    return Picture(fig, "\n".join(parts))


def masks(
    named: Mapping[str, Tensor | ArrayLike],
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
) -> Picture:
    """Draw boolean masks beside each other: a filled cell is a key that the query may attend to.

    Args:
        named: a name for each mask (T, S); an axis of length 1 is stretched to the size of the others.
        queries: T tokens, down; positions 0, 1, … when not given.
        keys: S tokens, across; like the queries.

    Raises:
        TypeError: if a mask is not boolean.
        ValueError: if a mask does not have two axes, the sizes don't fit, or the tokens don't match.

    Example:
        >>> masks({"causal": [[True, False], [True, True]]})
        causal: # may attend, . may not; queries down, keys across
           0  1
        0  #  .
        1  #  #
    """
    if not named:
        raise ValueError("masks needs at least one mask")
    grids = {}
    for name, mask in named.items():
        grid = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
        if grid.dtype != bool:
            raise TypeError(
                f"mask {name!r} must be boolean with True = may attend, not {grid.dtype}"
            )
        if grid.ndim != 2:
            raise ValueError(
                f"mask {name!r} of shape {grid.shape} must have two axes (T, S)"
            )
        grids[name] = grid
    try:
        shape = np.broadcast_shapes(*[grid.shape for grid in grids.values()])
    except ValueError as error:
        shapes = {name: grid.shape for name, grid in grids.items()}
        raise ValueError(
            f"masks drawn together must broadcast to one size, not {shapes}"
        ) from error
    grids = {name: np.broadcast_to(grid, shape) for name, grid in grids.items()}
    if queries is None:
        queries = [str(t) for t in range(shape[0])]
        keys = [str(s) for s in range(shape[1])] if keys is None else keys
    queries, keys = as_tokens(shape, queries, keys)

    columns = _readable_columns(len(grids), shape[1], _margin_left(queries))
    rows = math.ceil(len(grids) / columns)
    cell = _cell_size(*shape, columns=columns, left=_margin_left(queries))
    margin = _margin(queries, keys, cell)
    size = (
        margin[0] + (cell * shape[1] + 0.25) * columns,
        margin[1] + (cell * shape[0] + 0.45) * rows,
    )
    with matplotlib.rc_context(style()):
        fig, axes = panels(len(grids), rows, columns, size)
        for i, (ax, (name, grid)) in enumerate(zip(axes.flat, grids.items(), strict=False)):
            ax.imshow(np.where(grid, 0.62, 0.0), cmap=sequential(), vmin=0, vmax=1)
            _outline_cells(ax, shape)
            _label_axes(
                ax,
                queries if i % columns == 0 else None,
                keys if i < columns else None,
                cell,
            )
            ax.set_xlabel(name)
        for ax in axes[:, 0]:
            ax.set_ylabel("query")
        fig.suptitle("key", fontsize="medium")
    parts = []
    for name, grid in grids.items():
        parts.append(f"{name}: # may attend, . may not; queries down, keys across")
        parts.append(
            as_rows(
                [[("#" if cell else ".") for cell in row] for row in grid],
                queries,
                keys,
            )
        )
    return Picture(fig, "\n".join(parts))


def _one_run(precision: int | None) -> str:
    return f"{ONE_RUN}\n" if precision is None else ""


def _draw_grid(
    ax: Axes,
    grid: np.ndarray,
    allowed: np.ndarray | None,
    scale: tuple[float, float],
    cell: float,
) -> matplotlib.image.AxesImage:
    low, high = scale
    if low < 0 < high:
        cmap, bound = diverging(), max(-low, high)
        low, high = -bound, bound
    else:
        cmap = sequential()
    hidden = np.zeros(grid.shape, bool) if allowed is None else ~allowed
    undefined = np.isnan(grid) & ~hidden
    image = ax.imshow(
        np.ma.masked_where(hidden | undefined, grid),
        cmap=cmap,
        vmin=low,
        vmax=high,
        aspect="equal",
    )
    for t, s in zip(*np.nonzero(hidden), strict=True):
        ax.add_patch(
            matplotlib.patches.Rectangle(
                (s - 0.5, t - 0.5),
                1,
                1,
                facecolor="white",
                edgecolor="#b8b8b8",
                hatch="////",
                linewidth=0,
            )
        )
    _outline_cells(ax, grid.shape)
    if cell >= 0.44:
        digits = 2 if max(abs(low), abs(high)) < 10 else 1
        for (t, s), value in np.ndenumerate(grid):
            if hidden[t, s]:
                continue
            dark = not undefined[t, s] and lightness_of(cmap(image.norm(value))[:3]) < 60
            text = "NaN" if undefined[t, s] else fixed(value, digits)
            ax.text(
                s,
                t,
                text,
                ha="center",
                va="center",
                fontsize=8.5,
                color="white" if dark else INK,
            )
    return image


def _outline_cells(ax: Axes, shape: tuple[int, ...]) -> None:
    ax.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.0)
    ax.tick_params(which="both", length=0)
    for spine in ax.spines.values():
        spine.set(visible=True, color="#c9c9c9", linewidth=0.8)


def _label_axes(
    ax: Axes, queries: Sequence[str] | None, keys: Sequence[str] | None, cell: float
) -> None:
    ax.xaxis.tick_top()
    size = _font_size(cell)
    if keys is None:
        ax.set_xticks([])
    else:
        ax.set_xticks(range(len(keys)), keys, fontsize=size, parse_math=False)
        if _turned(keys, cell):
            ax.tick_params(axis="x", rotation=90)
    if queries is None:
        ax.set_yticks([])
    else:
        ax.set_yticks(range(len(queries)), queries, fontsize=size, parse_math=False)
    ax.tick_params(which="both", length=0)


def _font_size(cell: float) -> float:
    return min(9.5, max(6.0, cell * 30))


def _text_width(tokens: Sequence[str], size: float) -> float:
    """Inches that the longest token takes, roughly: a Latin letter is 0.56 of the font size wide."""
    return max(map(width_of, tokens)) * size * 0.56 / 72


def _turned(keys: Sequence[str], cell: float) -> bool:
    return _text_width(keys, _font_size(cell)) > cell


def _readable_columns(panels: int, num_keys: int, left: float) -> int:
    """As many panels beside each other, up to 4, as leave room for a cell of 0.24 inches."""
    fitting = int((WIDEST - left - 0.9) / (0.24 * num_keys + 0.2))
    return max(1, min(panels, 4, fitting))


def _cell_size(num_queries: int, num_keys: int, columns: int, left: float) -> float:
    """Inches for a cell: large enough to write in if the picture then fits the text column."""
    available = (WIDEST - left - 0.9 - 0.25 * columns) / columns
    return max(
        0.1,
        min(
            0.58 if columns == 1 else 0.36,
            available / max(num_keys, 1),
            5.5 / max(num_queries, 1),
        ),
    )


def _margin_left(queries: Sequence[str]) -> float:
    return 0.58 + _text_width(queries, 9.5)


def _margin(
    queries: Sequence[str], keys: Sequence[str], cell: float
) -> tuple[float, float]:
    size = _font_size(cell)
    top = 0.35 + (_text_width(keys, size) if _turned(keys, cell) else 0.18)
    return 0.58 + _text_width(queries, size), top
