"""A finished figure and the look that all figures share. Used from chapter 2 on."""

import base64
import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure
from PIL import Image

from attn_course.plots.colours import INK, QUIET

WIDEST = 7.2  # inches: the width of the text column on the website
TALLEST = 9.0  # inches: higher pictures get smaller cells
_PIXELS_PER_INCH = 100  # as displayed; drawn at twice that, for screens with fine pixels

_MOST_DOTS = 10_000_000


class Picture:
    """A finished figure, which is shown as an image and compared by its numbers.

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
        self._png: bytes | None = None  # a second drawing would be laid out a little differently

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        width, height = (round(inches * _PIXELS_PER_INCH) for inches in self.fig.get_size_inches())
        data = {"image/png": base64.b64encode(self.png()).decode("ascii"), "text/plain": self.text}
        return data, {"image/png": {"width": width, "height": height}}

    def png(self) -> bytes:
        """Draw the figure as a PNG of at most 256 colours, the same bytes each time."""
        if self._png is None:
            self._png = self._draw()
        return self._png

    def _draw(self) -> bytes:
        rendered, small = io.BytesIO(), io.BytesIO()
        with drawing():
            self.fig.draw_without_rendering()  # the first layout may cut a name off, the second has room for it
            self.fig.savefig(rendered, format="png", dpi=self._dots_per_inch())
        image = Image.open(rendered).convert("RGB")
        image.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            small, format="png", optimize=True
        )
        return small.getvalue()

    def _dots_per_inch(self) -> int:
        """Return a lower resolution for a very large figure, because a side may have at most 2¹⁶ dots."""
        width, height = self.fig.get_size_inches()
        most = min(math.sqrt(_MOST_DOTS / (width * height)), 60_000 / max(width, height))
        return max(1, min(2 * _PIXELS_PER_INCH, int(most)))

    def save(self, path: str | Path) -> None:
        """Write the picture to a PNG file."""
        Path(path).write_bytes(self.png())


def subplots(
    rows: int = 1, columns: int = 1, *, width: float = 5.0, height: float = 3.2, **kwargs: Any
) -> tuple[Figure, Any]:
    """Make a figure and its axes in the look of the course, outside of pyplot's global state.

    Text that you add to the axes follows matplotlib's rules, so ``$x^2$`` is a formula there. The other functions of
    this package draw all names and labels as plain text.

    Args:
        rows: rows of axes.
        columns: columns of axes.
        width: of the whole figure in inches, at most 7.2 to fit the website's text column.
        height: of the whole figure in inches.
        kwargs: passed on to ``Figure.subplots``.
    """
    with matplotlib.rc_context(style()):
        fig = Figure(figsize=(width, height), layout="constrained")
        return fig, fig.subplots(rows, columns, **kwargs)


def panels(count: int, rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, np.ndarray]:
    """A figure of this size with axes (rows, columns), of which those beyond the count stay empty."""
    fig = Figure(figsize=size, layout="constrained")
    axes = fig.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[count:]:
        ax.axis("off")
    return fig, axes


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of the course. A character without a font becomes a box, without a warning."""
    with matplotlib.rc_context(style()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def style() -> dict[str, Any]:
    _add_japanese_font()
    return {
        "font.family": ["DejaVu Sans", "IPAexGothic"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": QUIET,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
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
