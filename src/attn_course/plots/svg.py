"""A canvas for SVG diagrams, with one shape and one colour for each kind of part. Used from chapter 1 on.

A drawing is an SVG of plain shapes and text. GitHub removes styles and scripts, so every shape has its light-mode
colours as attributes and its role as a class. The website gives these classes their dark-mode colours
(:func:`night_style`). No element has an id, so that a page can contain several drawings.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attn_course.plots.text import on_one_line, width_of

# In units, and small, so that letters of 14 units are still 11 pixels high on a telephone.
WIDTH = 440
_ENLARGED = 1.2  # as displayed where there is room
SMALL, NORMAL = 14, 15

# Fill and line of each part, by day and by night; None is no fill or no line.
_PARTS: dict[str, tuple[tuple[str | None, str | None], tuple[str | None, str | None]]] = {
    "card": (("#ffffff", None), ("#14181d", None)),
    "ink": (("#1a1a1a", None), ("#d9dfe5", None)),
    "quiet": (("#5f6873", None), ("#a7b0bb", None)),
    "query": (("#fbdfca", "#b84f00"), ("#5a2e10", "#f0a56b")),
    "key": (("#cbebdf", "#007a59"), ("#0f4436", "#4fc9a4")),
    "value": (("#f6dcea", "#a8477f"), ("#542641", "#e39ac4")),
    "scores": (("#ffffff", "#0072b2"), ("#14181d", "#6fb7ea")),
    "weights": (("#cfe4f4", "#0072b2"), ("#12385a", "#6fb7ea")),
    "shade": (("#0072b2", None), ("#6fb7ea", None)),
    "context": (("#fbe9b7", "#8f6100"), ("#4d3a08", "#eab844")),
    "vector": (("#e7eaee", "#56616e"), ("#2b323a", "#a7b0bb")),
    "operation": (("#ffffff", "#1a1a1a"), ("#14181d", "#d9dfe5")),
    "unlit": (("#ffffff", "#9aa3ad"), ("#14181d", "#5c6671")),
    "masked": (("#ffffff", "#7d8690"), ("#14181d", "#8b95a0")),
    "hatch": ((None, "#9aa3ad"), (None, "#5c6671")),
    "wire": ((None, "#56616e"), (None, "#a7b0bb")),
    "tip": (("#56616e", None), ("#a7b0bb", None)),
    "stream": ((None, "#56616e"), (None, "#a7b0bb")),
    "flow": ((None, "#0072b2"), (None, "#6fb7ea")),
    "pale": ((None, "#c9d0d8"), (None, "#39424d")),
    "mark": ((None, "#1a1a1a"), (None, "#d9dfe5")),
    "head0": (("#fdf0e6", "#b84f00"), ("#211a15", "#f0a56b")),
    "head1": (("#f8c9a2", "#b84f00"), ("#5c3310", "#f0a56b")),
    "head2": (("#ee9f62", "#b84f00"), ("#774114", "#f0a56b")),
    "head3": (("#dc7a33", "#b84f00"), ("#8d4b15", "#f0a56b")),
}
HEADS = 4  # as many as there are shades


class Drawing:
    """A diagram, which is shown as an SVG and compared by its description.

    Args:
        svg: the drawing, from a function of this package.
        text: the same in words, which notebooks store as ``text/plain``.

    Example:
        >>> Drawing('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>', "nothing yet")
        nothing yet
    """

    def __init__(self, svg: str, text: str) -> None:
        self.svg = svg
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        return {"image/svg+xml": self.svg, "text/plain": self.text}, {}

    def save(self, path: str | Path) -> None:
        """Write the drawing to an SVG file."""
        Path(path).write_text(self.svg + "\n", encoding="utf-8")


def night_style() -> str:
    """Return the CSS rules for the colours of a diagram in dark mode."""
    rules = [f'html[data-theme="dark"] svg.drawing {{ fill: {_PARTS["ink"][1][0]}; }}']
    for name, (_, (fill, line)) in _PARTS.items():
        declarations = [f"fill: {fill};"] * bool(fill) + [f"stroke: {line};"] * bool(line)
        rules.append(f'html[data-theme="dark"] svg.drawing .draw-{name} {{ {" ".join(declarations)} }}')
    return "\n".join(rules)


class Canvas:
    """A card to draw on. The card is 440 units wide, and y grows downwards."""

    def __init__(self, height: float) -> None:
        self.height = height
        self.parts: list[str] = []
        self.box(0, 0, WIDTH, height, "card", corner=6)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "middle",
        size: float = SMALL,
        kind: str | None = None,
        bold: bool = False,
        upright: bool = True,
    ) -> None:
        """Write a line of text centred at height y."""
        attributes = [f'x="{x:.4g}" y="{y + 0.35 * size:.4g}"']
        if anchor != "middle":
            attributes.append(f'text-anchor="{anchor}"')
        if size != SMALL:
            attributes.append(f'font-size="{size:g}"')
        if kind:
            attributes.append(_painted(kind))
        if bold:
            attributes.append('font-weight="bold"')
        if not upright:
            attributes.append(f'transform="rotate(-90 {x:g} {y:g})"')
        self.parts.append(f"<text {' '.join(attributes)}>{html.escape(*on_one_line([words]), quote=False)}</text>")

    def box(self, x: float, y: float, width: float, height: float, kind: str, *, corner: float = 0) -> None:
        rounded = f' rx="{corner:g}"' if corner else ""
        self.parts.append(
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"{rounded} {_painted(kind)}/>'
        )

    def labelled(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        kind: str,
        *lines: str,
        size: float = SMALL,
        corner: float = 3,
    ) -> None:
        """Draw a box with lines of text; boxes of operations have round corners."""
        self.box(x, y, width, height, kind, corner=height / 2 if kind == "operation" else corner)
        for i, line in enumerate(lines):
            middle = y + height / 2 + (i - (len(lines) - 1) / 2) * (size + 4)
            self.text(x + width / 2, middle, line, size=size)

    def cards(self, x: float, y: float, width: float, height: float, kind: str, *lines: str) -> None:
        """Draw overlapping boxes, one for each head."""
        self.box(x + 5, y - 5, width, height, kind, corner=3)
        self.labelled(x, y, width, height, kind, *lines)

    def table(
        self,
        x: float,
        y: float,
        rows: int,
        columns: int,
        kind: str,
        *,
        cell: tuple[float, float] = (11, 11),
        shades: np.ndarray | None = None,
        lit: int | None = None,
    ) -> None:
        """Draw a tensor with two axes and one row for each token. Shades from 0 to 1 fill its cells, and one row can
        be marked."""
        wide, high = cell
        width, height = columns * wide, rows * high
        if shades is not None:
            self.box(x, y, width, height, "card")
            cells = "".join(
                f'<rect x="{x + s * wide:g}" y="{y + t * high:g}" width="{wide:g}" height="{high:g}" '
                f'fill-opacity="{shade:.2f}"/>'
                for (t, s), shade in np.ndenumerate(shades)
            )
            self.parts.append(f"<g {_painted('shade')}>{cells}</g>")
        lines = [f"M{x:.4g} {y:.4g}h{width:.4g}v{height:.4g}h{-width:.4g}z"]
        lines += [f"M{x:.4g} {y + i * high:.4g}h{width:.4g}" for i in range(1, rows)]
        lines += [f"M{x + i * wide:.4g} {y:.4g}v{height:.4g}" for i in range(1, columns)]
        empty = ' fill-opacity="0"' if shades is not None else ""
        self.parts.append(f'<path d="{"".join(lines)}" {_painted(kind)} stroke-width="0.8"{empty}/>')
        if lit is not None:
            self.mark(x, y + lit * high, width, high)

    def mark(self, x: float, y: float, width: float, height: float) -> None:
        """Draw an outline around the part that the text explains."""
        self.parts.append(
            f'<rect x="{x - 2:.4g}" y="{y - 1:.4g}" width="{width + 4:.4g}" height="{height + 2:.4g}" '
            f'rx="2" {_painted("mark")} stroke-width="2"/>'
        )

    def shades(self, table: np.ndarray, x: float, y: float, cell: tuple[float, float]) -> None:
        """Draw cells with shades from 0 to 1 and leave out the palest ones."""
        wide, high = cell
        cells = "".join(
            f'<rect x="{x + s * wide:.4g}" y="{y + t * high:.4g}" width="{wide:g}" height="{high:g}" '
            f'fill-opacity="{share:.2g}"/>'
            for (t, s), share in np.ndenumerate(table)
            if share >= 0.05
        )
        self.parts.append(f"<g {_painted('shade')}>{cells}</g>")

    def bracket(self, x: float, y: float, bend: float) -> None:
        """Draw a round bracket as high as a fraction."""
        path = f"M{x:.4g} {y - 38:.4g}q{bend:g} 38 0 76"
        self.parts.append(f'<path d="{path}" {_painted("mark")} stroke-width="2"/>')

    def cells(self, allowed: np.ndarray, x: float, y: float, cell: tuple[float, float]) -> None:
        """Draw a mask: filled cells are visible, hatched cells are hidden."""
        wide, high = cell
        for kind, cells_of_kind in (("weights", allowed), ("masked", ~allowed)):
            if cells_of_kind.any():
                corners = [(x + s * wide, y + t * high) for t, s in np.argwhere(cells_of_kind).tolist()]
                path = "".join(f"M{u:.4g} {v:.4g}h{wide:.3g}v{high:.3g}h{-wide:.3g}z" for u, v in corners)
                self.parts.append(f'<path d="{path}" {_painted(kind)}/>')
        strokes = []
        for t, s in np.argwhere(~allowed).tolist():
            for k in (0.5, 1, 1.5):  # where a rising line cuts the left or lower edge
                low, far = max(0, k - 1), min(1, k)
                strokes.append(
                    f"M{x + (s + low) * wide:.4g} {y + (t + far) * high:.4g}"
                    f"L{x + (s + far) * wide:.4g} {y + (t + low) * high:.4g}"
                )
        if strokes:
            self.parts.append(f'<path d="{"".join(strokes)}" {_painted("hatch")}/>')

    def line(self, *points: tuple[float, float], kind: str = "wire", width: float = 1.5) -> None:
        path = "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
        self.parts.append(f'<path d="{path}" {_painted(kind)} stroke-width="{width:.2f}"/>')

    def arrow(self, *points: tuple[float, float], kind: str = "wire", width: float = 1.5) -> None:
        """Draw an arrow through the points; its tip touches the last one."""
        (x, y), (u, v) = points[-2:]
        length = float(np.hypot(u - x, v - y))
        a, b = (u - x) / length, (v - y) / length  # the direction in which it arrives
        long, half = 5 + width, 2.4 + width
        back = (u - long * a, v - long * b)
        self.line(*points[:-1], (u - (long - 1) * a, v - (long - 1) * b), kind=kind, width=width)
        corners = [(u, v), (back[0] - half * b, back[1] + half * a)]
        corners.append((back[0] + half * b, back[1] - half * a))
        path = "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in corners)
        self.parts.append(f'<path d="{path}z" {_painted("shade" if kind == "flow" else "tip")}/>')

    def curves(
        self, ends: Sequence[tuple[tuple[float, float], tuple[float, float]]], *, kind: str, width: float
    ) -> None:
        """Draw curves that start and end horizontally."""
        path = "".join(
            f"M{x:.4g} {y:.4g}C{(x + u) / 2:.4g} {y:.4g} {(x + u) / 2:.4g} {v:.4g} {u:.4g} {v:.4g}"
            for (x, y), (u, v) in ends
        )
        if path:
            self.parts.append(f'<path d="{path}" {_painted(kind)} stroke-width="{width:.2f}"/>')

    def arc(self, start: tuple[float, float], end: tuple[float, float], height: float, *, width: float) -> None:
        """Draw a flow from one point up and over to another."""
        (x, y), (u, v) = start, end
        if start == end:
            path = f"M{x - 5:.4g} {y:.4g}c-14 {-height:g} 24 {-height:g} 10 0"
        else:
            path = f"M{x:.4g} {y:.4g}C{x:.4g} {y - height:.4g} {u:.4g} {v - height:.4g} {u:.4g} {v:.4g}"
        self.parts.append(f'<path d="{path}" {_painted("flow")} stroke-width="{width:.2f}"/>')

    def plus(self, x: float, y: float) -> None:
        """Draw the sign of an addition."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="10" {_painted("operation")}/>')
        self.text(x, y, "+", size=18)

    def finish(self, alt: str, words: Sequence[str] = ()) -> Drawing:
        """Return the drawing with its title and its description."""
        lines = on_one_line("\n".join([alt, *words]).split("\n"))
        size = (
            f'width="{WIDTH * _ENLARGED:g}" height="{self.height * _ENLARGED:g}" viewBox="0 0 {WIDTH} {self.height:g}"'
        )
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" role="img" '
            f'aria-label="{html.escape(lines[0])}" {size} font-family="Helvetica, Arial, sans-serif" '
            f'font-size="{SMALL}" text-anchor="middle" fill="{_PARTS["ink"][0][0]}">'
            f"{''.join(self.parts)}</svg>"
        )
        return Drawing(svg, "\n".join(lines))


def short(token: str, longest: int = 9) -> str:
    """Shorten a token to a number of letters and show its spaces."""
    token = "␣" if token.isspace() else token
    return token if width_of(token) <= longest else token[: longest - 1] + "…"


def shape(sizes: Sequence[int]) -> str:
    """Return a shape in the form of the comments."""
    return "(" + ", ".join(map(str, sizes)) + ")"


def _painted(kind: str) -> str:
    fill, line = _PARTS[kind][0]
    attributes = f'class="draw-{kind}" fill="{fill or "none"}"'
    return attributes + (f' stroke="{line}"' if line else "")
