"""Rows of small images, or of numbers for their patches. Used from chapter 23 on."""

import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.plots.colours import COLORS, INK, diverging, sequential
from attn_course.plots.figure import WIDEST, Picture, drawing, panels
from attn_course.plots.text import (
    LONGEST_NAME,
    MOST_AS_TEXT,
    MOST_TOKENS,
    ONE_RUN,
    as_numbers,
    check_panels,
    check_scale,
    cut,
    fixed,
    on_one_line,
    signless_zero,
)

_MOST_DOTS = 5000
_INK = LinearSegmentedColormap.from_list("ink", ["white", INK])


def images(
    pixels: Tensor | ArrayLike,
    names: Sequence[str],
    *,
    patch: int | None = None,
    shades: Tensor | ArrayLike | None = None,
    scale: tuple[float, float] = (0.0, 1.0),
    label: str = "weight",
    columns: int | None = None,
    precision: int | None = 4,
) -> Picture:
    """Draw small grey images, or shade their patches by a number for each patch and draw the ink as dots.

    Args:
        pixels: (B, height, width), from 0 for paper to 1 for ink.
        names: B names, written under the pictures.
        patch: the side of a patch in pixels; lines are drawn between patches.
        shades: (B, rows, columns), a number for each patch of each picture, all on one scale.
        scale: the values of the lightest and the darkest shade; if it spans zero, zero is white.
        label: what the shades are.
        columns: how many pictures stand in a row; up to 6 when not given.
        precision: as in :func:`heatmap`, for the shades; pixels are said in hundredths.

    Raises:
        ValueError: if the sizes don't fit each other, there are more than 32 pictures or too many pixels, or a value
            lies outside its scale.

    Example:
        >>> images([[[0.0, 1.0], [0.5, 0.25]]], ["a corner"], patch=1)
        ink, row by row
        a corner
        0.00  1.00
        0.50  0.25
    """
    grids = as_numbers(pixels)
    if grids.ndim != 3 or 0 in grids.shape:
        raise ValueError(f"pixels of shape {grids.shape} must have three axes (B, height, width), none of them empty")
    if len(names) != len(grids):
        raise ValueError(f"names ({len(names)}) must match the pictures ({len(grids)}); pixels has shape {grids.shape}")
    check_panels(len(grids))
    height, width = grids.shape[1:]
    if max(height, width) > MOST_TOKENS or (shades is not None and grids.size > _MOST_DOTS):
        raise ValueError(
            f"pixels of shape {grids.shape} must be pictures of at most {MOST_TOKENS:,} × {MOST_TOKENS:,} pixels, or "
            f"{_MOST_DOTS:,} pixels in all if they are shaded"
        )
    check_scale(grids, None, (0.0, 1.0), "ink")
    names, (label,) = on_one_line(names), on_one_line([label])
    if patch is not None and (patch < 1 or height % patch or width % patch):
        raise ValueError(f"patch ({patch}) must divide height ({height}) and width ({width})")
    tiles = None if shades is None else as_numbers(shades)
    if tiles is not None:
        fits = tiles.ndim == 3 and len(tiles) == len(grids) and 0 not in tiles.shape
        if not fits or height % tiles.shape[1] or width % tiles.shape[2]:
            raise ValueError(
                f"shades of shape {tiles.shape} must be (B, rows, columns) for pixels of shape {grids.shape}, and its "
                "rows and columns must divide height and width"
            )
        check_scale(tiles, None, scale, label)

    columns = min(len(grids), columns or 6)
    rows = math.ceil(len(grids) / columns)
    beside = 0.0 if tiles is None else 0.9
    side = min(1.5, (WIDEST - beside) / columns)
    with drawing():
        size = (side * columns + beside, (side * height / width + 0.3) * rows)
        fig, axes = panels(len(grids), rows, columns, size)
        for i, ax in enumerate(axes.flat[: len(grids)]):
            if tiles is None:
                ax.imshow(grids[i], cmap=_INK, vmin=0, vmax=1)
            else:
                shaded = _dot_ink(ax, grids[i], tiles[i], scale, side)
            _line_patches(ax, height, width, patch)
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel(cut(names[i], LONGEST_NAME), parse_math=False)
            for spine in ax.spines.values():
                spine.set(visible=True, color="#c9c9c9", linewidth=0.8)
        if tiles is not None:
            bar = fig.colorbar(shaded, ax=axes, shrink=0.9, aspect=18, pad=0.03)
            bar.set_label(cut(label, LONGEST_NAME), parse_math=False)
    what, printed, digits = (
        ("ink, row by row", grids, 2)
        if tiles is None
        else (f"{label}, patch by patch, row by row", tiles, 3 if precision is None else precision)
    )
    if tiles is not None and precision is None:
        what += f"\n{ONE_RUN}"
    if printed.size > MOST_AS_TEXT:
        what += f"; more than {MOST_AS_TEXT:,} numbers are not listed"
        return Picture(fig, "\n".join([what, *names]))
    return Picture(fig, "\n".join([what, *(_as_text(*pair, digits) for pair in zip(names, printed, strict=True))]))


def _dot_ink(
    ax: Axes, ink: np.ndarray, tiles: np.ndarray, scale: tuple[float, float], side: float
) -> matplotlib.image.AxesImage:
    """Shade the patches, and draw a dot on each pixel with a size that shows its darkness."""
    height, width = ink.shape
    low, high = scale
    cmap = sequential()
    if low < 0 < high:
        cmap, bound = diverging(), max(-low, high)
        low, high = -bound, bound
    shaded = ax.imshow(tiles, cmap=cmap, vmin=low, vmax=high, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    at = np.argwhere(ink > 0)
    points = 72 * 0.8 * side / width  # what a pixel is wide, in the unit of matplotlib's dots
    ax.scatter(
        at[:, 1], at[:, 0], s=ink[ink > 0] * (0.7 * points) ** 2, color=COLORS[1], edgecolor="white", linewidth=0.4
    )
    return shaded


def _line_patches(ax: Axes, height: int, width: int, patch: int | None) -> None:
    if patch is None:
        return
    for row in range(patch, height, patch):
        ax.axhline(row - 0.5, color=COLORS[0], linewidth=1.0)
    for column in range(patch, width, patch):
        ax.axvline(column - 0.5, color=COLORS[0], linewidth=1.0)


def _as_text(name: str, grid: np.ndarray, digits: int) -> str:
    lines = ["  ".join(signless_zero(fixed(value, digits)) for value in row) for row in grid]
    return "\n".join([name, *lines])
