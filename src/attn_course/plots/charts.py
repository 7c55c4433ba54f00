"""Curves and bars. Used from chapter 3 on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.plots.colours import COLORS, INK
from attn_course.plots.figure import WIDEST, Picture, drawing, subplots
from attn_course.plots.text import (
    LONGEST_NAME,
    MOST_AS_TEXT,
    ONE_RUN,
    as_columns,
    as_numbers,
    cut,
    fixed,
    on_one_line,
    signless_zero,
    width_of,
)

_LINES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2))]
_MOST_BARS, _MOST_LINES = 200, 32
_LONGEST_LABEL = 32  # signs that are drawn, half as many where they are Japanese
_MARKERS = ["o", "s", "^", "D", "v", "P"]


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
        precision: digits after the point in the text of the picture. None is for times and long training runs, which
            differ between machines: the text then says so, and below that some of the points, to three digits.

    Raises:
        ValueError: if there is no line or no point, there are more than 32 lines, or a line has more or fewer values
            than ``x``.

    Example:
        >>> curves([1, 2], {"square": [1, 4]}, xlabel="n", ylabel="value", precision=1)
        value over n
        n    square
        1.0     1.0
        2.0     4.0
    """
    positions = as_numbers(x)
    names, (xlabel, ylabel) = on_one_line(named), on_one_line([xlabel, ylabel])
    lines = dict(zip(names, map(as_numbers, named.values()), strict=True))
    if not lines:
        raise ValueError("curves needs at least one line")
    for name, values in lines.items():
        if positions.ndim != 1 or values.shape != positions.shape:
            raise ValueError(f"line {name!r} has shape {values.shape} and must match x, of shape {positions.shape}")
    if not len(positions):
        raise ValueError("curves needs at least one point")
    if len(lines) > _MOST_LINES:
        raise ValueError(f"curves must draw at most {_MOST_LINES} lines, not {len(lines)}")
    markers = len(positions) <= 20 if markers is None else markers

    fig, ax = subplots(width=6.2, height=3.4)
    with drawing():
        for i, (name, values) in enumerate(lines.items()):
            ax.plot(
                positions,
                values,
                label=name,
                color=COLORS[i % len(COLORS)],
                linestyle=_LINES[i % len(_LINES)],
                marker=_MARKERS[i % len(_MARKERS)] if markers else None,
            )
        ax.set_xlabel(cut(xlabel, LONGEST_NAME), parse_math=False)
        ax.set_ylabel(cut(ylabel, LONGEST_NAME), parse_math=False)
        if ylim is not None:
            ax.set_ylim(*ylim)
        if log_x:
            _use_powers(ax.set_xscale, ax.xaxis, ax.get_xlim)
        if log_y:
            _use_powers(ax.set_yscale, ax.yaxis, ax.get_ylim)
        if list(lines) != [ylabel]:  # the axis says it already
            _name_line_ends(ax)
    text = f"{ylabel} over {xlabel}"
    some = np.linspace(0, len(positions) - 1, min(len(positions), 12)).round().astype(int)
    if precision is None:
        text += "\nlines: " + ", ".join(lines)
        columns = [[signless_zero(f"{v:.3g}") for v in values[some]] for values in lines.values()]
        columns.insert(0, [f"{v:g}" for v in positions[some]])
        text += f"\n{ONE_RUN}\n" + as_columns([xlabel, *lines], columns)
    else:
        number = f".{precision}e" if log_y else f".{precision}f"
        if len(positions) * (len(lines) + 1) > MOST_AS_TEXT:
            text += f"\n{len(some)} of {len(positions):,} points:"
        else:
            some = slice(None)
        columns = [[fixed(v, precision) for v in positions[some]]]
        columns += [[signless_zero(f"{v:{number}}") for v in values[some]] for values in lines.values()]
        text += "\n" + as_columns([xlabel, *lines], columns)
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
        ValueError: if there is no series or no label, there are more than 200 bars, or a series has more or fewer
            values than there are labels.

    Example:
        >>> bars({"weight": [0.25, 0.75]}, ["the", "cat"], ylabel="weight", precision=2)
        weight
             weight
        the    0.25
        cat    0.75
    """
    names, labels, (ylabel,) = map(on_one_line, (named, labels, [ylabel]))
    series = dict(zip(names, map(as_numbers, named.values()), strict=True))
    if not series:
        raise ValueError("bars needs at least one series")
    for name, values in series.items():
        if values.shape != (len(labels),):
            raise ValueError(f"series {name!r} has shape {values.shape} and must match the {len(labels)} labels")
    if not len(labels):
        raise ValueError("bars needs at least one label")
    if len(labels) * len(series) > _MOST_BARS:
        raise ValueError(
            f"bars must draw at most {_MOST_BARS} bars, not {len(series)} for each of {len(labels):,} labels; curves "
            "draws long series"
        )
    fig, ax = subplots(width=max(4.6, min(WIDEST, 1.6 + 0.75 * len(labels))), height=3.0)
    with drawing():
        place, width = np.arange(len(labels)), 0.8 / len(series)
        for i, (name, values) in enumerate(series.items()):
            offset = (i - (len(series) - 1) / 2) * width
            ax.bar(place + offset, values, width * 0.92, label=cut(name, _LONGEST_LABEL), color=COLORS[i % len(COLORS)])
        turned = max(map(width_of, labels)) * 0.09 > (fig.get_figwidth() - 1) / len(labels)
        step = math.ceil(len(labels) / 40)  # of more, some are named
        ax.set_xticks(
            place[::step],
            [cut(label, _LONGEST_LABEL) for label in labels[::step]],
            rotation=45 if turned else 0,
            parse_math=False,
            ha="right" if turned else "center",
        )
        ax.set_ylabel(cut(ylabel, LONGEST_NAME), parse_math=False)
        ax.axhline(0, color=INK, linewidth=0.8)
        if ylim is not None:
            ax.set_ylim(*ylim)
        if len(series) > 1:
            legend = fig.legend(loc="outside upper left", ncols=len(series), frameon=False, borderaxespad=0.1)
            for text in legend.get_texts():
                text.set_parse_math(False)
    if precision is None:
        head = f"{ylabel}\nseries: " + ", ".join(series) + f"\n{ONE_RUN}\n"
        columns = [[signless_zero(f"{v:.3g}") for v in values] for values in series.values()]
    else:
        head = f"{ylabel}\n"
        columns = [[fixed(v, precision) for v in values] for values in series.values()]
    return Picture(fig, head + as_columns(["", *series], [list(labels), *columns]))


def _use_powers(set_scale: Any, axis: Any, limits: Any) -> None:
    """Make an axis logarithmic. If it would have few powers of ten, label 1, 2, 5, 10, …"""
    set_scale("log")
    low, high = limits()
    if low > 0 and high / low < 2000:
        axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
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
    gap, previous = min(0.075, 1 / max(1, len(ends) - 1)), -1.0
    heights = []
    for height, _ in ends:
        previous = max(min(max(height, 0.0), 1.0), previous + gap)
        heights.append(previous)
    overflow = max(0.0, heights[-1] - 1.0)
    for (_, line), height in zip(ends, heights, strict=True):
        ax.annotate(
            cut(line.get_label(), LONGEST_NAME),
            (1.02, height - overflow),
            xycoords="axes fraction",
            va="center",
            color=line.get_color(),
            fontsize=9.5 * gap / 0.075,
            parse_math=False,
        )
