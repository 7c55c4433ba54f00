"""The colours of the figures, which are safe for colour-blind readers. Used from chapter 2 on."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib.colors import Colormap, ListedColormap

# Okabe and Ito's palette.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
INK, QUIET, HIDDEN = "#1a1a1a", "#6b6b6b", "#e9e9e9"


@cache
def sequential() -> Colormap:
    """Return a colour map from near-white to deep blue. The lightness falls evenly."""
    return _from_lab([(98, 0, 1), (78, -14, -16), (58, -12, -32), (38, 2, -44), (18, 16, -38)], "attention")


@cache
def diverging() -> Colormap:
    """Return a colour map from deep orange over white to deep blue, with equal lightness on both sides of zero."""
    return _from_lab([(38, 38, 48), (68, 26, 42), (98, 0, 0), (68, -12, -24), (38, 2, -44)], "attention_diverging")


def lightness_of(rgb: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def _from_lab(anchors: Sequence[tuple[float, float, float]], name: str) -> Colormap:
    """Interpolate in CIELAB (D65), where equal steps look equal."""
    where = np.linspace(0, 1, len(anchors))
    lightness, a, b = (np.interp(np.linspace(0, 1, 256), where, column) for column in zip(*anchors, strict=True))
    fy = (lightness + 16) / 116
    f = np.stack([fy + a / 500, fy, fy - b / 200])
    # Below 6 / 29 it would be a straight line; no colour of ours is so dark.
    xyz = f**3 * [[0.95047], [1.0], [1.08883]]
    to_rgb = [[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]]
    linear = np.clip(np.array(to_rgb) @ xyz, 0, 1)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(rgb.T, name=name).with_extremes(bad=HIDDEN)


def as_hex(color: Sequence[float]) -> str:
    """Return the six hexadecimal digits of a colour."""
    return "".join(f"{round(255 * part):02x}" for part in color[:3])
