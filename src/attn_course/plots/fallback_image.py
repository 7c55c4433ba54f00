"""A still image of one head, for readers of :func:`attention_view` without scripts. Used from chapter 1 on.

The image is an ``<img>`` with an SVG in its data URI. GitHub and an untrusted JupyterLab keep such an image, but they
remove scripts, styles and inline SVG. The cells are an uncompressed bitmap, so that equal weights give equal bytes on
every machine. tests/nbval_numbers.py reads the bitmap and compares each cell.
"""

import base64
import html
import math
import struct
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np

from attn_course.plots.colours import HIDDEN, as_hex, sequential
from attn_course.plots.text import LONGEST_NAME, MOST_RUNS, cut, runs_of, step_of, width_of

_MOST_NAMED = 100  # tokens on an axis; of more, some are named
_LONGEST = 16  # signs of a token, half as many where it is Japanese
# A cell is the unit of length: white lines between the cells, and the hatch of those that a mask hides.
_PATTERNS = (
    "<pattern id='g' width='1' height='1' patternUnits='userSpaceOnUse'>"
    "<path d='M0 0H1M0 0V1' stroke='#fff' stroke-width='.1'/></pattern>"
    "<pattern id='h' width='.25' height='1' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
    "<path d='M0 0V1' stroke='#9aa3ad' stroke-width='.1'/></pattern>"
)


def as_units(values: np.ndarray, unit: int) -> np.ndarray:
    """Convert numbers from 0 to 1 to integers from 0 to ``unit``."""
    return np.rint(np.clip(np.nan_to_num(values), 0, 1) * unit).astype(np.int64)


def still_image(
    grid: np.ndarray,
    allowed: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    precision: int,
    label: str,
    alt: str,
    name: str,
) -> str:
    """Draw a grid of weights (T, S) with its tokens as HTML that needs neither script nor style."""
    rows, columns = grid.shape
    wide = high = max(10, min(34, 620 // columns))
    if max(rows, columns) > _MOST_NAMED:
        wide, high = (min(10, round(1000 / size, 2)) for size in (columns, rows))
    # A label takes as many cells as it is high.
    queries, keys = (
        [cut(token, _LONGEST) for token in side[:: step_of(cell, 10)]] for side, cell in ((queries, high), (keys, wide))
    )
    across, down = (cell * step_of(cell, 10) for cell in (wide, high))
    font = min(13, int(min(across, down)) - 1)
    left, top = (round(max(map(width_of, side)) * font * 0.6) + 10 for side in (queries, keys))
    turned = top > across + 10
    top = top if turned else font + 10
    right, bottom = left + math.ceil(columns * wide), top + math.ceil(rows * high)
    label, name = cut(label, LONGEST_NAME), cut(name, LONGEST_NAME)
    legend = max(180, 98 + 7 * width_of(f"1 {label}"), 8 + 7 * width_of(name))
    width, height = max(right + 8, left + legend), bottom + (44 if name else 26)

    # Of the letters, from the lower edge of the row above.
    base_down, base_across = (round(cell / 2 + font * 0.35) - step for cell, step in ((high, down), (wide, across)))
    at_left = _column(queries, f"text-anchor='end' y='{top + base_down:g}'", f"x='{left - 5}'", down)
    if turned:
        above = _column(keys, "", "x='0'", across)
        above = f"<g transform='translate({left + base_across:g} {top - 5})rotate(-90)'>{above}</g>"
    else:
        middles = [left + across * i + wide // 2 for i in range(len(keys))]
        above = "".join(
            f"<text text-anchor='middle' x='{x:g}' y='{top - 6}'>{_escape(key)}</text>"
            for x, key in zip(middles, keys, strict=True)
        )
    bitmap = base64.b64encode(_bitmap(grid, allowed, precision)).decode()
    runs = runs_of(~allowed)
    holes = "".join(f"M{a} {row}h{b - a}v1h{a - b}z" for row, a, b in runs * (len(runs) <= MOST_RUNS))
    hatch = f"<path fill='#fff' d='{holes}'/><path fill='url(#h)' d='{holes}'/>" * bool(holes)
    stops = "".join(f"<stop offset='{i / 4}' stop-color='#{as_hex(sequential()(i / 4))}'/>" for i in range(5))
    size = wide if wide == high else f"{wide} {high}"
    mesh = f"<rect width='{columns}' height='{rows}' fill='url(#g)'/>" * (min(wide, high) > 5)
    y = bottom + 17
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' "
        f"font-family='sans-serif' font-size='{font}' fill='#1d2733'>"
        f"<rect width='{width}' height='{height}' fill='#fff'/>{at_left}{above}"
        f"<g transform='translate({left} {top})scale({size})'>"
        f"<image width='{columns}' height='{rows}' preserveAspectRatio='none' style='image-rendering:pixelated' "
        f"href='data:image/bmp;base64,{bitmap}'/>"
        f"{_PATTERNS}{hatch}{mesh}</g>"
        f"<linearGradient id='k'>{stops}</linearGradient>"
        f"<g fill='#56616e' font-size='11'><text x='{left}' y='{y}'>0</text>"
        f"<rect x='{left + 12}' y='{y - 9}' width='72' height='9' fill='url(#k)' stroke='#c9d0d8'/>"
        f"<text x='{left + 90}' y='{y}'>1 {_escape(label)}</text>"
        f"<text x='{left}' y='{y + 18}'>{_escape(name)}</text></g></svg>"
    )
    address = "data:image/svg+xml;charset=utf-8," + quote(svg, safe=" '()*+,/:;=!$@?")
    return f'<img alt="{html.escape(alt)}" width="{width}" height="{height}" src="{address}">'


def _escape(token: str) -> str:
    return html.escape(token, quote=False)


def _column(tokens: Sequence[str], place: str, x: str, step: float) -> str:
    spans = "".join(f"<tspan {x} dy='{step:g}'>{_escape(token)}</tspan>" for token in tokens)
    return f"<text {place}>{spans}</text>"


def _bitmap(grid: np.ndarray, allowed: np.ndarray, precision: int) -> bytes:
    """Return a Windows bitmap with one byte for each cell: the weight in hundredths or tenths."""
    unit = 10 ** min(precision, 2)
    hidden = unit + 2  # more than one unit away from every weight
    shades = [as_hex(sequential()(i / unit)) for i in range(unit + 1)]
    colors = [*shades, shades[-1], HIDDEN.removeprefix("#")]
    # Blue, green, red and 0 of each colour.
    table = b"".join(bytes.fromhex(color)[::-1] + b"\0" for color in colors)
    # The last row comes first.
    pixels = np.where(allowed, as_units(grid, unit), hidden)[::-1]
    body = np.pad(pixels, ((0, 0), (0, -pixels.shape[1] % 4))).astype(np.uint8).tobytes()
    start, (height, width) = 54 + len(table), grid.shape
    file = struct.pack("<2sIHHI", b"BM", start + len(body), 0, 0, start)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 0, len(body), 2835, 2835, len(colors), 0)
    return file + info + table + body
