"""Pictures of attention: queries down, keys across, tokens on both axes, one fixed scale. Used from chapter 2 on.

Each function returns a :class:`Picture`. A notebook shows it as an image and stores beside it, as text, the
numbers that were drawn, so that a picture is re-checked by value like any other output.
"""

import base64
import io
import math
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
import torch
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor

# Okabe and Ito's palette, which readers of every kind of colour vision can tell apart.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
_INK, _QUIET, _HIDDEN = "#1a1a1a", "#6b6b6b", "#e9e9e9"
_LINES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2))]
_MARKERS = ["o", "s", "^", "D", "v", "P"]
_PIXELS_PER_INCH = 100  # as displayed; drawn at twice that, for screens with fine pixels
_WIDEST = 7.2  # inches: the width of the text column on the website


class Picture:
    """A finished figure: shown as an image, compared by the numbers that it shows.

    Args:
        fig: a matplotlib figure, for instance from :func:`subplots`.
        text: the numbers and names drawn, which notebooks store as ``text/plain``.

    Example:
        >>> fig, ax = subplots()
        >>> _ = ax.plot([0, 1], [0, 1])
        >>> Picture(fig, "the diagonal")
        the diagonal
    """

    def __init__(self, fig: Figure, text: str) -> None:
        self.fig = fig
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        width, height = (
            round(inches * _PIXELS_PER_INCH) for inches in self.fig.get_size_inches()
        )
        data = {
            "image/png": base64.b64encode(self.png()).decode("ascii"),
            "text/plain": self.text,
        }
        return data, {"image/png": {"width": width, "height": height}}

    def png(self) -> bytes:
        """Draw the figure as a PNG of at most 256 colours, the same bytes each time."""
        drawn, small = io.BytesIO(), io.BytesIO()
        with matplotlib.rc_context(_style()):
            self.fig.savefig(
                drawn,
                format="png",
                dpi=2 * _PIXELS_PER_INCH,
                metadata={"Software": None},
            )
        image = Image.open(drawn).convert("RGB")
        image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            small, format="png", optimize=True
        )
        return small.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the picture to a PNG file."""
        Path(path).write_bytes(self.png())


def heatmap(
    weights: Tensor | ArrayLike,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    mask: Tensor | ArrayLike | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
    label: str = "weight",
    precision: int = 4,
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
        precision: digits after the point in the text of the picture.

    Raises:
        ValueError: if the tokens don't match the weights' size, or a value lies outside the scale.

    Example:
        >>> heatmap([[1.0, 0.0], [0.25, 0.75]], ["the", "cat"], precision=2)
        weight: queries down, keys across
              the   cat
        the  1.00  0.00
        cat  0.25  0.75
    """
    grid = _numbers(weights)
    if grid.ndim != 2:
        hint = "; head_grid draws several heads" if grid.ndim == 3 else ""
        raise ValueError(f"weights of shape {grid.shape} must have two axes (T, S){hint}")
    queries, keys = _tokens(grid.shape, queries, keys)
    allowed = _allowed(mask, grid.shape)
    _check_scale(grid, allowed, scale, label)

    cell = _cell_size(*grid.shape, columns=1, left=_margin_left(queries))
    margin = _margin(queries, keys, cell)
    size = (
        margin[0] + cell * grid.shape[1] + 0.9,
        margin[1] + cell * grid.shape[0] + 0.15,
    )
    with matplotlib.rc_context(_style()):
        fig = Figure(figsize=size, layout="constrained")
        ax = fig.subplots()
        image = _draw_grid(ax, grid, allowed, scale, cell)
        _label_axes(ax, queries, keys, cell)
        ax.set(xlabel="key", ylabel="query")
        ax.xaxis.set_label_position("top")
        fig.colorbar(image, ax=ax, label=label, shrink=0.9, aspect=18, pad=0.03)
    text = f"{label}: queries down, keys across\n" + _table(
        grid, queries, keys, precision, allowed
    )
    return Picture(fig, text)


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
    precision: int = 4,
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
        precision: digits after the point in the text of the picture.

    Raises:
        ValueError: if tokens or names don't match the weights' size, or a value lies outside the scale.

    Example:
        >>> head_grid(torch.eye(2).repeat(2, 1, 1), ["a", "b"], precision=1)
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
    grids = _numbers(weights)
    if grids.ndim != 3:
        hint = "; heatmap draws one head" if grids.ndim == 2 else ""
        raise ValueError(
            f"weights of shape {grids.shape} must have three axes (H, T, S){hint}"
        )
    tokens, same_tokens = _tokens_of_panels(grids.shape, queries, keys)
    queries, keys = (
        max(side, key=lambda s: max(map(_width, s))) for side in zip(*tokens, strict=True)
    )
    names = [f"head {i + 1}" for i in range(len(grids))] if names is None else list(names)
    if len(names) != len(grids):
        raise ValueError(
            f"names ({len(names)}) must match the heads ({len(grids)}); weights has shape {grids.shape}"
        )
    if columns is not None and columns < 1:
        raise ValueError(f"columns ({columns}) must be at least 1")
    allowed = _allowed(mask, grids.shape)
    _check_scale(grids, allowed, scale, label)

    if columns is None:
        columns = _readable_columns(len(grids), grids.shape[2], _margin_left(queries))
    columns = min(columns, len(grids))
    beside = (
        0.0 if same_tokens else _text_width(queries, 9.5)
    )  # room for tokens at every panel
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
    with matplotlib.rc_context(_style()):
        fig = Figure(
            figsize=(width, height),
            layout="constrained",
        )
        axes = fig.subplots(rows, columns, squeeze=False)
        for i, ax in enumerate(axes.flat):
            if i >= len(grids):
                ax.axis("off")
                continue
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
    parts = [f"{label}: queries down, keys across"]
    for i, name in enumerate(names):
        parts += [
            name,
            _table(
                grids[i],
                *tokens[i],
                precision,
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
        >>> masks({"causal": torch.ones(2, 2).tril().bool()})
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
    queries, keys = _tokens(shape, queries, keys)

    columns = _readable_columns(len(grids), shape[1], _margin_left(queries))
    rows = math.ceil(len(grids) / columns)
    cell = _cell_size(*shape, columns=columns, left=_margin_left(queries))
    margin = _margin(queries, keys, cell)
    size = (
        margin[0] + (cell * shape[1] + 0.25) * columns,
        margin[1] + (cell * shape[0] + 0.45) * rows,
    )
    with matplotlib.rc_context(_style()):
        fig = Figure(figsize=size, layout="constrained")
        axes = fig.subplots(rows, columns, squeeze=False)
        for i, ax in enumerate(axes.flat):
            if i >= len(grids):
                ax.axis("off")
                continue
            name, grid = list(grids.items())[i]
            ax.imshow(np.where(grid, 0.62, 0.0), cmap=_sequential(), vmin=0, vmax=1)
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
            _rows(
                [[("#" if cell else ".") for cell in row] for row in grid],
                queries,
                keys,
            )
        )
    return Picture(fig, "\n".join(parts))


def curves(
    x: Tensor | ArrayLike,
    named: Mapping[str, Tensor | ArrayLike],
    *,
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
    ylim: tuple[float, float] | None = None,
    markers: bool | None = None,
    precision: int | None = 4,
) -> Picture:
    """Draw lines over a common x, each named at its end.

    Args:
        x: the positions of the points, one axis.
        named: a name and the values of each line, as many as ``x``.
        xlabel: what x is, with its unit.
        ylabel: what the values are, with their unit.
        log_x: whether x is drawn in powers of ten.
        log_y: whether the values are.
        ylim: the lowest and highest value drawn.
        markers: whether to mark the points; by default when there are at most 20.
        precision: digits after the point in the text of the picture. None leaves the numbers out, for times and
            long training runs, which differ between machines.

    Raises:
        ValueError: if there is no line, or a line has more or fewer values than ``x``.

    Example:
        >>> curves([1, 2], {"square": [1, 4]}, xlabel="n", ylabel="value", precision=1)
        value over n
        n    square
        1.0     1.0
        2.0     4.0
    """
    positions = _numbers(x)
    lines = {name: _numbers(values) for name, values in named.items()}
    if not lines:
        raise ValueError("curves needs at least one line")
    for name, values in lines.items():
        if positions.ndim != 1 or values.shape != positions.shape:
            raise ValueError(
                f"line {name!r} has shape {values.shape} and must match x, of shape {positions.shape}"
            )
    markers = len(positions) <= 20 if markers is None else markers

    fig, ax = subplots(width=6.2, height=3.4)
    with matplotlib.rc_context(_style()):
        for i, (name, values) in enumerate(lines.items()):
            ax.plot(
                positions,
                values,
                label=name,
                color=COLORS[i % len(COLORS)],
                linestyle=_LINES[i % len(_LINES)],
                marker=_MARKERS[i % len(_MARKERS)] if markers else None,
            )
        ax.set(xlabel=xlabel, ylabel=ylabel)
        if ylim is not None:
            ax.set_ylim(*ylim)
        if log_x:
            _use_powers(ax.set_xscale, ax.xaxis, ax.get_xlim)
        if log_y:
            _use_powers(ax.set_yscale, ax.yaxis, ax.get_ylim)
        _name_line_ends(ax)
    text = f"{ylabel} over {xlabel}"
    if precision is None:
        text += "\nlines: " + ", ".join(lines)
    else:
        number = f".{precision}e" if log_y else f".{precision}f"
        columns = [[f"{v:.{precision}f}" for v in positions + 0.0]]
        columns += [
            [_signless_zero(f"{v:{number}}") for v in values] for values in lines.values()
        ]
        text += "\n" + _columns([xlabel, *lines], columns)
    return Picture(fig, text)


def bars(
    named: Mapping[str, Tensor | ArrayLike],
    labels: Sequence[str],
    *,
    ylabel: str,
    ylim: tuple[float, float] | None = None,
    precision: int | None = 4,
) -> Picture:
    """Draw groups of bars over labels, one bar in each group for each series.

    Args:
        named: a name and the values of each series, as many as ``labels``.
        labels: what stands under the groups, usually tokens.
        ylabel: what the values are.
        ylim: the lowest and highest value drawn.
        precision: as in :func:`curves`.

    Raises:
        ValueError: if there is no series, or one has more or fewer values than there are labels.

    Example:
        >>> bars({"weight": [0.25, 0.75]}, ["the", "cat"], ylabel="weight", precision=2)
        weight
             weight
        the    0.25
        cat    0.75
    """
    series = {name: _numbers(values) for name, values in named.items()}
    if not series:
        raise ValueError("bars needs at least one series")
    for name, values in series.items():
        if values.shape != (len(labels),):
            raise ValueError(
                f"series {name!r} has shape {values.shape} and must match the {len(labels)} labels"
            )
    fig, ax = subplots(width=max(4.6, min(_WIDEST, 1.6 + 0.75 * len(labels))), height=3.0)
    with matplotlib.rc_context(_style()):
        place, width = np.arange(len(labels)), 0.8 / len(series)
        for i, (name, values) in enumerate(series.items()):
            offset = (i - (len(series) - 1) / 2) * width
            ax.bar(
                place + offset,
                values,
                width * 0.92,
                label=name,
                color=COLORS[i % len(COLORS)],
            )
        turned = max(map(_width, labels)) * 0.09 > (fig.get_figwidth() - 1) / len(labels)
        ax.set_xticks(
            place,
            labels,
            rotation=45 if turned else 0,
            ha="right" if turned else "center",
        )
        ax.set(ylabel=ylabel)
        ax.axhline(0, color=_INK, linewidth=0.8)
        if ylim is not None:
            ax.set_ylim(*ylim)
        if len(series) > 1:
            fig.legend(
                loc="outside upper left",
                ncols=len(series),
                frameon=False,
                borderaxespad=0.1,
            )
    if precision is None:
        return Picture(fig, f"{ylabel}\nseries: " + ", ".join(series))
    columns = [[_fixed(v, precision) for v in values] for values in series.values()]
    return Picture(fig, f"{ylabel}\n" + _columns(["", *series], [list(labels), *columns]))


def subplots(
    rows: int = 1,
    columns: int = 1,
    *,
    width: float = 5.0,
    height: float = 3.2,
    **kwargs: Any,
) -> tuple[Figure, Any]:
    """Make a figure and its axes in the look of the course, outside of pyplot's global state.

    Args:
        rows: rows of axes.
        columns: columns of axes.
        width: of the whole figure in inches, at most 7.2 to fit the website's text column.
        height: of the whole figure in inches.
        kwargs: passed on to ``Figure.subplots``.
    """
    with matplotlib.rc_context(_style()):
        fig = Figure(figsize=(width, height), layout="constrained")
        return fig, fig.subplots(rows, columns, **kwargs)


# -- Look --------------------------------------------------------------------------------------------


def _style() -> dict[str, Any]:
    _add_japanese_font()
    return {
        "font.family": ["DejaVu Sans", "IPAexGothic"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _QUIET,
        "axes.labelcolor": _INK,
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "hatch.linewidth": 0.6,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
    }


def _add_japanese_font() -> None:
    if any(font.name == "IPAexGothic" for font in font_manager.fontManager.ttflist):
        return
    package = find_spec("matplotlib_fontja")
    if package is None:
        raise ModuleNotFoundError(
            "Japanese tokens need the font of the package matplotlib-fontja: pip install matplotlib-fontja"
        )
    font_manager.fontManager.addfont(Path(package.origin).parent / "fonts" / "ipaexg.ttf")


def _from_lab(anchors: Sequence[tuple[float, float, float]], name: str) -> Colormap:
    """Interpolate in CIELAB (D65), where equal steps look equal."""
    where = np.linspace(0, 1, len(anchors))
    lightness, a, b = (
        np.interp(np.linspace(0, 1, 256), where, column)
        for column in zip(*anchors, strict=True)
    )
    fy = (lightness + 16) / 116
    f = np.stack([fy + a / 500, fy, fy - b / 200])
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * [
        [0.95047],
        [1.0],
        [1.08883],
    ]
    to_rgb = [
        [3.2406, -1.5372, -0.4986],
        [-0.9689, 1.8758, 0.0415],
        [0.0557, -0.2040, 1.0570],
    ]
    linear = np.clip(np.array(to_rgb) @ xyz, 0, 1)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(rgb.T, name=name).with_extremes(bad=_HIDDEN)


def _sequential() -> Colormap:
    """From near-white to deep blue; the lightness falls evenly, so a weight twice as large looks twice as dark."""
    return _from_lab(
        [(98, 0, 1), (78, -14, -16), (58, -12, -32), (38, 2, -44), (18, 16, -38)],
        "attention",
    )


def _diverging() -> Colormap:
    """Deep orange, white, deep blue: the same lightness on both sides of zero."""
    return _from_lab(
        [(38, 38, 48), (68, 26, 42), (98, 0, 0), (68, -12, -24), (38, 2, -44)],
        "attention_diverging",
    )


# -- Grids -------------------------------------------------------------------------------------------


def _draw_grid(
    ax: Axes,
    grid: np.ndarray,
    allowed: np.ndarray | None,
    scale: tuple[float, float],
    cell: float,
) -> matplotlib.image.AxesImage:
    low, high = scale
    if low < 0 < high:
        cmap, bound = _diverging(), max(-low, high)
        low, high = -bound, bound
    else:
        cmap = _sequential()
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
            dark = not undefined[t, s] and _lightness(cmap(image.norm(value))[:3]) < 60
            text = "NaN" if undefined[t, s] else _fixed(value, digits)
            ax.text(
                s,
                t,
                text,
                ha="center",
                va="center",
                fontsize=8.5,
                color="white" if dark else _INK,
            )
    return image


def _lightness(rgb: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


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
        ax.set_xticks(range(len(keys)), [_literal(key) for key in keys], fontsize=size)
        if _turned(keys, cell):
            ax.tick_params(axis="x", rotation=90)
    if queries is None:
        ax.set_yticks([])
    else:
        ax.set_yticks(
            range(len(queries)), [_literal(query) for query in queries], fontsize=size
        )
    ax.tick_params(which="both", length=0)


def _literal(token: str) -> str:
    return token.replace("$", r"\$")  # a token is text, never mathematics


def _font_size(cell: float) -> float:
    return min(9.5, max(6.0, cell * 30))


def _text_width(tokens: Sequence[str], size: float) -> float:
    """Inches that the longest token takes, roughly: a Latin letter is 0.56 of the font size wide."""
    return max(map(_width, tokens)) * size * 0.56 / 72


def _turned(keys: Sequence[str], cell: float) -> bool:
    return _text_width(keys, _font_size(cell)) > cell


def _readable_columns(panels: int, num_keys: int, left: float) -> int:
    """As many panels beside each other, up to 4, as leave room for a cell of 0.24 inches."""
    fitting = int((_WIDEST - left - 0.9) / (0.24 * num_keys + 0.2))
    return max(1, min(panels, 4, fitting))


def _cell_size(num_queries: int, num_keys: int, columns: int, left: float) -> float:
    """Inches for a cell: large enough to write in if the picture then fits the text column."""
    available = (_WIDEST - left - 0.9 - 0.25 * columns) / columns
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


def _use_powers(set_scale: Any, axis: Any, limits: Any) -> None:
    """Make an axis logarithmic, and number it 1, 2, 5, 10, … where powers of ten alone would be few."""
    set_scale("log")
    low, high = limits()
    if low > 0 and high / low < 2000:
        axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(
            matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}")
        )
        axis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def _name_line_ends(ax: Axes) -> None:
    ax.figure.draw_without_rendering()
    ends = []
    for line in ax.get_lines():
        finite = np.isfinite(line.get_ydata())
        last = np.nonzero(finite)[0][-1] if finite.any() else 0
        xy = ax.transData.transform((line.get_xdata()[last], line.get_ydata()[last]))
        ends.append([float(ax.transAxes.inverted().transform(xy)[1]), line])
    ends.sort(key=lambda end: end[0])
    gap, previous = 0.075, -1.0
    heights = []
    for height, _ in ends:
        previous = max(min(max(height, 0.0), 1.0), previous + gap)
        heights.append(previous)
    overflow = max(0.0, heights[-1] - 1.0)
    for (_, line), height in zip(ends, heights, strict=True):
        ax.annotate(
            line.get_label(),
            (1.02, height - overflow),
            xycoords="axes fraction",
            va="center",
            color=line.get_color(),
            fontsize=9.5,
        )


# -- Numbers and tokens ------------------------------------------------------------------------------


def _numbers(values: Tensor | ArrayLike) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def _tokens(
    shape: tuple[int, ...], queries: Sequence[str], keys: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    if keys is None:
        if shape[0] != shape[1]:
            raise ValueError(
                f"keys must be given: weights of shape {shape} has more of one than of the other"
            )
        keys = queries
    for name, tokens, size, axis in (
        ("queries", queries, shape[0], "rows"),
        ("keys", keys, shape[1], "columns"),
    ):
        if isinstance(tokens, str):
            raise ValueError(
                f"{name} must be a list of tokens, not one string {tokens!r}; list(text) takes its characters"
            )
        if len(tokens) != size:
            raise ValueError(
                f"{name} ({len(tokens)} tokens) must match the {axis} of weights ({size}), of shape {shape}"
            )
    if 0 in shape:
        raise ValueError(f"weights of shape {shape} has nothing to draw")
    return [str(token) for token in queries], [str(token) for token in keys]


def _tokens_of_panels(
    shape: tuple[int, ...],
    queries: Sequence[str] | Sequence[Sequence[str]],
    keys: Sequence[str] | Sequence[Sequence[str]] | None,
) -> tuple[list[tuple[list[str], list[str]]], bool]:
    """The queries and keys of each panel, and whether all panels have the same ones."""

    def for_each_panel(name: str, tokens: Any) -> list[Any]:
        if (
            tokens is None
            or isinstance(tokens, str)
            or all(isinstance(token, str) for token in tokens)
        ):
            return [tokens] * shape[0]
        if len(tokens) != shape[0]:
            raise ValueError(
                f"{name} ({len(tokens)} lists of tokens) must match the heads ({shape[0]}); weights has shape {shape}"
            )
        return list(tokens)

    pairs = zip(
        for_each_panel("queries", queries), for_each_panel("keys", keys), strict=True
    )
    tokens = [_tokens(shape[1:], *pair) for pair in pairs]
    return tokens, all(pair == tokens[0] for pair in tokens)


def _allowed(mask: Tensor | ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray | None:
    if mask is None:
        return None
    mask = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean with True = may attend, not {mask.dtype}")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        raise ValueError(
            f"mask of shape {mask.shape} must broadcast to the weights, of shape {shape}"
        ) from error


def _check_scale(
    grid: np.ndarray, allowed: np.ndarray | None, scale: tuple[float, float], label: str
) -> None:
    low, high = scale
    if not low < high:
        raise ValueError(
            f"scale {scale} must rise: its first number is the lightest colour, its second the darkest"
        )
    drawn = grid if allowed is None else grid[allowed]
    drawn = drawn[~np.isnan(drawn)]
    slack = 1e-3 * (high - low)
    if drawn.size and (drawn.min() < low - slack or drawn.max() > high + slack):
        raise ValueError(
            f"{label} runs from {drawn.min():.4g} to {drawn.max():.4g}, outside the scale {scale}; "
            "pass scale=(low, high)"
        )


def _fixed(value: float, precision: int) -> str:
    return _signless_zero(f"{value:.{precision}f}")


def _signless_zero(number: str) -> str:
    return (
        number.removeprefix("-")
        if number.startswith("-") and not number.strip("-0.e+")
        else number
    )


def _table(
    grid: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    precision: int,
    allowed: np.ndarray | None,
) -> str:
    cells = [[_fixed(value, precision) for value in row] for row in grid]
    if allowed is not None:
        cells = [
            [c if ok else "-" for c, ok in zip(*pair, strict=True)]
            for pair in zip(cells, allowed, strict=True)
        ]
    return _rows(cells, queries, keys)


def _rows(cells: list[list[str]], queries: Sequence[str], keys: Sequence[str]) -> str:
    return _columns(
        ["", *keys],
        [list(queries), *[list(column) for column in zip(*cells, strict=True)]],
    )


def _columns(heads: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """Lay out columns under their heads: the first flush left, the others flush right."""
    widths = [
        max(map(_width, [head, *column]))
        for head, column in zip(heads, columns, strict=True)
    ]
    lines = []
    for row in zip(
        *[[head, *column] for head, column in zip(heads, columns, strict=True)],
        strict=True,
    ):
        first, *others = row
        parts = [first + " " * (widths[0] - _width(first))]
        parts += [
            " " * (width - _width(cell)) + cell
            for width, cell in zip(widths[1:], others, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Columns that a text takes in a terminal: Japanese characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


from attn_course.plots.view import AttentionView as AttentionView  # noqa: E402
from attn_course.plots.view import attention_view as attention_view  # noqa: E402
