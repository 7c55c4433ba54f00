"""Weights and masks as grids: queries down, keys across, one fixed scale. Used from chapter 2 on."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.plots.colours import INK, diverging, lightness_of, sequential
from attn_course.plots.figure import TALLEST, WIDEST, Picture, drawing, panels
from attn_course.plots.text import (
    LONGEST_NAME,
    MOST_AS_TEXT,
    MOST_RUNS,
    ONE_RUN,
    as_mask,
    as_numbers,
    as_rows,
    as_table,
    as_tokens,
    check_length,
    check_panels,
    check_scale,
    count_of,
    cut,
    fixed,
    on_one_line,
    runs_of,
    step_of,
    tokens_of_panels,
    width_of,
)

_SMALLEST = 0.1  # inches of a cell whose token can be written
_LONGEST_TOKEN = 32  # signs that are drawn, half as many where they are Japanese


class _Cell(NamedTuple):
    """The size of a cell in inches."""

    wide: float
    high: float

    @property
    def font(self) -> float:
        return min(9.5, max(6.0, min(self) * 30))

    @property
    def aspect(self) -> float | str:
        return "equal" if self.wide == self.high else self.high / self.wide


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

    The figure fits a page. If there is no room for all tokens, it shows every second, fifth, tenth, … token. The text
    of the figure lists at most 20,000 weights.

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
        ValueError: if the tokens don't match the weights' size, there are more than 1,024 queries or keys, or a value
            lies outside the scale.

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
    check_length(grid.shape)
    queries, keys = as_tokens(grid.shape, queries, keys)
    (label,) = on_one_line([label])
    allowed = as_mask(mask, grid.shape)
    check_scale(grid, allowed, scale, label)

    _, cell = _layout(1, grid.shape, queries, keys, columns=1)
    margin = _margin(queries, keys, cell)
    size = (margin[0] + cell.wide * grid.shape[1] + 0.9, margin[1] + cell.high * grid.shape[0] + 0.15)
    with drawing():
        fig = Figure(figsize=size, layout="constrained")
        ax = fig.subplots()
        image = _draw_grid(ax, grid, allowed, scale, cell)
        _label_axes(ax, queries, keys, cell)
        ax.set(xlabel="key", ylabel="query")
        ax.xaxis.set_label_position("top")
        bar = fig.colorbar(image, ax=ax, shrink=0.9, aspect=18, pad=0.03)
        bar.set_label(cut(label, LONGEST_NAME), parse_math=False)
    text = f"{label}: queries down, keys across\n"
    if grid.size > MOST_AS_TEXT:
        return Picture(fig, text + count_of(grid.shape))
    digits = 3 if precision is None else precision
    table = as_table(grid, queries, keys, digits, allowed)
    return Picture(fig, text + _one_run(precision) + table)


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

    At most 32 panels fit a picture. Long sequences are drawn as by :func:`heatmap`.

    Args:
        weights: (H, T, S).
        queries: T tokens, down; or H lists of T tokens, when each panel shows a sentence of its own.
        keys: S tokens, across, or H lists of them; the queries when not given.
        names: H names, written under the heads; "head 1" and so on when not given.
        mask: True where a query may attend, broadcastable to (H, T, S).
        columns: how many heads stand in a row; when not given, up to 4 if the tokens have room,
            and otherwise as many as leave most room.
        scale: as in :func:`heatmap`.
        label: what the numbers are.
        precision: as in :func:`heatmap`.

    Raises:
        ValueError: if tokens or names don't match the weights' size, the panels don't fit a page, or a value lies
            outside the scale.

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
        raise ValueError(f"weights of shape {grids.shape} must have three axes (H, T, S){hint}")
    check_length(grids.shape)
    check_panels(grids.shape[0])
    tokens, same_tokens = tokens_of_panels(grids.shape, queries, keys)
    queries, keys = (max(side, key=lambda s: max(map(width_of, s))) for side in zip(*tokens, strict=True))
    names = on_one_line([f"head {i + 1}" for i in range(len(grids))] if names is None else names)
    (label,) = on_one_line([label])
    if len(names) != len(grids):
        raise ValueError(f"names ({len(names)}) must match the heads ({len(grids)}); weights has shape {grids.shape}")
    if columns is not None and columns < 1:
        raise ValueError(f"columns ({columns}) must be at least 1")
    allowed = as_mask(mask, grids.shape)
    check_scale(grids, allowed, scale, label)

    columns, cell = _layout(len(grids), grids.shape[1:], queries, keys, columns, apart=not same_tokens)
    rows = math.ceil(len(grids) / columns)
    # Room for tokens at every panel.
    beside = 0.0 if same_tokens else _text_width(queries, 9.5)
    margin = _margin(queries, keys, cell)
    above = 0.0 if same_tokens else margin[1] - 0.35
    panel = (cell.wide * grids.shape[2] + 0.2, cell.high * grids.shape[1] + 0.45)
    width = margin[0] + panel[0] * columns + beside * (columns - 1) + 0.9
    height = margin[1] + panel[1] * rows + above * (rows - 1) + (0.0 if same_tokens else 0.12)
    with drawing():
        fig, axes = panels(len(grids), rows, columns, (width, height))
        for i, ax in enumerate(axes.flat[: len(grids)]):
            image = _draw_grid(ax, grids[i], None if allowed is None else allowed[i], scale, cell)
            _label_axes(
                ax,
                tokens[i][0] if i % columns == 0 or not same_tokens else None,
                tokens[i][1] if i < columns or not same_tokens else None,
                cell,
            )
            _name_panel(ax, names[i], panel[0])
        bar = fig.colorbar(image, ax=axes, shrink=min(0.9, 3.0 / fig.get_figheight()), aspect=20, pad=0.02)
        bar.set_label(cut(label, LONGEST_NAME), parse_math=False)
        for ax in axes[:, 0]:
            ax.set_ylabel("query")
        fig.suptitle("key", fontsize="medium")
    parts = [f"{label}: queries down, keys across\n{_one_run(precision)}".rstrip()]
    listed = MOST_AS_TEXT // grids[0].size
    for i, name in enumerate(names[:listed]):
        parts += [
            name,
            as_table(
                grids[i], *tokens[i], 3 if precision is None else precision, None if allowed is None else allowed[i]
            ),
        ]
    if listed < len(names):
        parts.append(", ".join(names[listed:]) + ": " + count_of(grids.shape))
    return Picture(fig, "\n".join(parts))


def masks(
    named: Mapping[str, Tensor | ArrayLike], queries: Sequence[str] | None = None, keys: Sequence[str] | None = None
) -> Picture:
    """Draw boolean masks beside each other: a filled cell is a key that the query may attend to.

    Args:
        named: a name for each mask (T, S); an axis of length 1 is stretched to the size of the others.
        queries: T tokens, down; positions 0, 1, … when not given.
        keys: S tokens, across; like the queries.

    Raises:
        TypeError: if a mask is not boolean.
        ValueError: if a mask does not have two axes, the sizes don't fit, the tokens don't match, or the masks don't
            fit a page, as in :func:`head_grid`.

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
            raise TypeError(f"mask {name!r} must be boolean with True = may attend, not {grid.dtype}")
        if grid.ndim != 2:
            raise ValueError(f"mask {name!r} of shape {grid.shape} must have two axes (T, S)")
        grids[name] = grid
    try:
        shape = np.broadcast_shapes(*[grid.shape for grid in grids.values()])
    except ValueError as error:
        shapes = {name: grid.shape for name, grid in grids.items()}
        raise ValueError(f"masks drawn together must broadcast to one size, not {shapes}") from error
    grids = {name: np.broadcast_to(grid, shape) for name, grid in grids.items()}
    if queries is None:
        queries = [str(t) for t in range(shape[0])]
        keys = [str(s) for s in range(shape[1])] if keys is None else keys
    check_length(shape, "masks")
    check_panels(len(grids))
    queries, keys = as_tokens(shape, queries, keys)
    names = on_one_line(grids)

    columns, cell = _layout(len(grids), shape, queries, keys, bar=0.2)
    rows = math.ceil(len(grids) / columns)
    margin = _margin(queries, keys, cell)
    panel = (cell.wide * shape[1] + 0.25, cell.high * shape[0] + 0.45)
    size = (margin[0] + panel[0] * columns, margin[1] + panel[1] * rows)
    with drawing():
        fig, axes = panels(len(grids), rows, columns, size)
        for i, (ax, grid) in enumerate(zip(axes.flat, grids.values(), strict=False)):
            ax.imshow(np.where(grid, 0.62, 0.0), cmap=sequential(), vmin=0, vmax=1, aspect=cell.aspect)
            _outline_cells(ax, shape, cell)
            _label_axes(ax, queries if i % columns == 0 else None, keys if i < columns else None, cell)
            _name_panel(ax, names[i], panel[0])
        for ax in axes[:, 0]:
            ax.set_ylabel("query")
        fig.suptitle("key", fontsize="medium")
    parts = []
    listed = MOST_AS_TEXT // math.prod(shape)
    for name, grid in zip(names[:listed], grids.values(), strict=False):
        parts.append(f"{name}: # may attend, . may not; queries down, keys across")
        parts.append(
            as_rows(
                [[("#" if cell else ".") for cell in row] for row in grid],
                queries,
                keys,
            )
        )
    if listed < len(names):
        parts.append(", ".join(names[listed:]) + ": " + count_of(shape))
    return Picture(fig, "\n".join(parts))


def _one_run(precision: int | None) -> str:
    return f"{ONE_RUN}\n" if precision is None else ""


def _draw_grid(
    ax: Axes, grid: np.ndarray, allowed: np.ndarray | None, scale: tuple[float, float], cell: _Cell
) -> matplotlib.image.AxesImage:
    low, high = scale
    if low < 0 < high:
        cmap, bound = diverging(), max(-low, high)
        low, high = -bound, bound
    else:
        cmap = sequential()
    hidden = np.zeros(grid.shape, bool) if allowed is None else ~allowed
    undefined = np.isnan(grid) & ~hidden
    image = ax.imshow(np.ma.masked_where(hidden | undefined, grid), cmap=cmap, vmin=low, vmax=high, aspect=cell.aspect)
    hatched = {"facecolor": "white", "edgecolor": "#b8b8b8", "hatch": "////", "linewidth": 0}
    if hidden.sum() * len(ax.figure.axes) <= 500:
        for t, s in zip(*np.nonzero(hidden), strict=True):
            corner = (s - 0.5, t - 0.5)
            ax.add_patch(matplotlib.patches.Rectangle(corner, 1, 1, **hatched))
    elif len(runs := runs_of(hidden)) <= MOST_RUNS:
        ax.add_patch(matplotlib.patches.PathPatch(_path_of(runs), **hatched))
    _outline_cells(ax, grid.shape, cell)
    if min(cell) >= 0.44:
        digits = 2 if max(abs(low), abs(high)) < 10 else 1
        for (t, s), value in np.ndenumerate(grid):
            if hidden[t, s]:
                continue
            dark = not undefined[t, s] and lightness_of(cmap(image.norm(value))[:3]) < 60
            text = "NaN" if undefined[t, s] else fixed(value, digits)
            ax.text(s, t, text, ha="center", va="center", fontsize=8.5, color="white" if dark else INK)
    return image


def _path_of(runs: list[tuple[int, int, int]]) -> Path:
    """Return the outlines of runs of cells as one path."""
    corners = [[(a, row), (b, row), (b, row + 1), (a, row + 1), (a, row)] for row, a, b in runs]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(runs)
    return Path(np.array(corners).reshape(-1, 2) - 0.5, codes)


def _outline_cells(ax: Axes, shape: tuple[int, ...], cell: _Cell) -> None:
    if min(cell) >= _SMALLEST:
        ax.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1.0)
    ax.tick_params(which="both", length=0)
    for spine in ax.spines.values():
        spine.set(visible=True, color="#c9c9c9", linewidth=0.8)


def _label_axes(ax: Axes, queries: Sequence[str] | None, keys: Sequence[str] | None, cell: _Cell) -> None:
    """Write the tokens along the axes. If there is no room, write every second, fifth, tenth, … token."""
    ax.xaxis.tick_top()
    for set_ticks, tokens, size in ((ax.set_xticks, keys, cell.wide), (ax.set_yticks, queries, cell.high)):
        if tokens is None:
            set_ticks([])
            continue
        places = range(0, len(tokens), step_of(size, _SMALLEST))
        words = [cut(tokens[i], _LONGEST_TOKEN) for i in places]
        set_ticks(places, words, fontsize=cell.font, parse_math=False)
    if keys is not None and _turned(keys, cell):
        ax.tick_params(axis="x", rotation=90)
    ax.tick_params(which="both", length=0)


def _name_panel(ax: Axes, name: str, wide: float) -> None:
    """Write a name below a panel. A long name is cut, and a small panel gets small letters."""
    room = wide * 72 / 0.56  # for letters, in points of their size
    name = cut(name, max(20, int(room / 10)))
    ax.set_xlabel(name, parse_math=False)
    if wide < 1:
        ax.xaxis.label.set_fontsize(min(10.0, max(5.0, room / width_of(name))))


def _text_width(tokens: Sequence[str], size: float) -> float:
    """Return the approximate width of the longest token in inches. A Latin letter has 0.56 of the font size."""
    return min(_LONGEST_TOKEN, max(map(width_of, tokens))) * size * 0.56 / 72


def _turned(keys: Sequence[str], cell: _Cell) -> bool:
    return _text_width(keys, cell.font) > cell.wide * step_of(cell.wide, _SMALLEST)


def _layout(
    count: int,
    shape: tuple[int, ...],
    queries: Sequence[str],
    keys: Sequence[str],
    columns: int | None = None,
    *,
    apart: bool = False,
    bar: float = 0.9,
) -> tuple[int, _Cell]:
    """Choose the number of panels in a row and the size of their cells, so that the figure fits a page.

    Cells are square and large enough for their tokens. Where such cells do not fit, they become smaller, and as many
    panels go beside each other as leave most room. Few queries of many keys then get oblong cells.

    Args:
        count: panels.
        shape: (T, S) of each.
        queries: the longest ones, if the panels have tokens of their own.
        keys: like the queries.
        columns: the panels beside each other, if the caller chooses them.
        apart: whether the panels have tokens of their own.
        bar: inches for the colour bar.
    """
    num_queries, num_keys = shape
    left = _margin_left(queries)
    if columns is None:
        # Up to 4 panels beside each other, as long as a cell has 0.24 inches.
        fitting = int((WIDEST - left - 0.9) / (0.24 * num_keys + 0.2))
        regular = max(1, min(count, 4, fitting))
        if count == 3 and regular < 3:  # one row rather than two and a hole
            room = WIDEST - left - bar - 0.75 - 2 * apart * _text_width(queries, 9.5)
            regular = 3 if room >= 3 * 0.14 * num_keys else regular
    else:
        regular = min(columns, count)
    largest = 0.58 if regular == 1 else 0.36
    rows = math.ceil(count / regular)
    beside = _text_width(queries, 9.5) * (regular - 1) if apart else 0.0
    across = (WIDEST - left - beside - bar - 0.25 * regular) / regular
    size = min(largest, across / num_keys, 5.5 / num_queries)
    cell = _Cell(size, size)
    top = _margin(queries, keys, cell)[1]
    height = top + (size * num_queries + 0.45) * rows + (top - 0.35) * (rows - 1) * apart
    if size >= _SMALLEST and height <= TALLEST:
        return regular, cell

    def smaller(columns: int) -> _Cell:
        rows = math.ceil(count / columns)
        beside = _text_width(queries, 6) * (columns - 1 if apart else 0)
        above = _text_width(keys, 6) * (rows if apart else 1)
        across = (WIDEST - 1.5 - _text_width(queries, 6) - beside) / columns - 0.25
        down = min(5.5, (TALLEST - 0.5 - above) / rows - 0.45)
        wide = min(largest, max(across, 0.4) / num_keys)
        high = min(largest, max(down, 0.4) / num_queries)
        size = min(wide, high)
        if max(shape) <= 4 * min(shape):
            return _Cell(size, size)
        return _Cell(max(size, min(_SMALLEST, wide)), max(size, min(_SMALLEST, high)))

    choices = range(1, min(count, 6) + 1) if columns is None else [regular]
    best = max(choices, key=lambda c: (min(smaller(c)), sum(smaller(c))))
    cell = smaller(best)
    if min(cell) < 0.0025:  # half a dot
        raise ValueError(
            f"{count} panels of {num_queries:,} queries and {num_keys:,} keys are too large for one picture; draw "
            "fewer panels, or a part of each"
        )
    return best, cell


def _margin_left(queries: Sequence[str]) -> float:
    return 0.58 + _text_width(queries, 9.5)


def _margin(queries: Sequence[str], keys: Sequence[str], cell: _Cell) -> tuple[float, float]:
    top = 0.35 + (_text_width(keys, cell.font) if _turned(keys, cell) else 0.18)
    return 0.58 + _text_width(queries, cell.font), top
