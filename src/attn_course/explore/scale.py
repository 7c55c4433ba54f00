"""An interactive figure of the softmax at different widths, with and without the scale. Used in chapter 3."""

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import WIDTH, Canvas
from attn_course.plots.text import as_numbers

_GUESS = Guess(
    "The width is 512. Does the division by √D make the gradients that come back to the products q·k larger?",
    [
        "No, their mean becomes smaller, but every row gets a gradient.",
        "Yes, all of them, because that is what it is for.",
        "It changes nothing, because only the differences between scores matter.",
    ],
    0,
    "Now make the width 512 and switch between q·k and q·k ÷ √D: compare the mean with the median row.",
    "Without the scale, a few undecided rows get large gradients, and most rows get almost none. With the scale, every "
    "row gets a gradient, but a smaller one.",
    "`query_gradients(1.0)` of section 3.5 has a larger mean than `query_gradients(512**-0.5)`, and a smaller median.",
)


def scale(scores: Tensor | ArrayLike) -> Explorable:
    """Choose a width, a scale and a source of queries and keys, and see when weights saturate and gradients vanish.

    The figure addresses the misconception that the division by √D enlarges all gradients. A score of width D is √D
    times one of the given scores. Queries and keys from a new ``nn.Linear`` have variance 1/3, so their scores are a
    third of that.

    Args:
        scores: (rows, S), of variance 1: products of independent queries and keys, divided by the root of their width.

    Raises:
        ValueError: if it is not a table of 2 to 100 rows of 2 to 8 scores.

    Example:
        >>> print(scale([[0.0, 0.0], [1.0, -1.0]]).text.split("Guess")[0], end="")
        The largest weight of 2 rows, at width 64 and scaled
        mean 0.6904, above 0.99: 0 of 2
    """
    table = as_numbers(scores)
    if table.ndim != 2 or not (2 <= len(table) <= 100 and 2 <= table.shape[1] <= 8):
        raise ValueError(f"scores of shape {table.shape} must be a table of 2 to 100 rows and 2 to 8 columns")
    table = np.array(rounded(table, 2))
    powers = np.exp(table - table.max(1, keepdims=True))
    largest = (powers / powers.sum(1, keepdims=True)).max(1)
    lines = [f"mean {largest.mean():.4f}, above 0.99: {int((largest > 0.99).sum())} of {len(table)}"]
    sheet = Canvas(150)
    counts = np.histogram(largest, bins=20, range=(0, 1))[0]
    for i, count in enumerate(counts.tolist()):
        if count:
            high = round(96 * count / len(table), 1)
            sheet.box(50 + 17 * i, 116 - high, 15, high, "weights")
    sheet.line((48, 116), (WIDTH - 50, 116), kind="wire")
    for x, words in ((48, "0"), (WIDTH / 2, "largest weight of the row, at width 64 and scaled"), (WIDTH - 50, "1")):
        sheet.text(x, 134, words, kind="quiet", size=12)
    drawing = sheet.finish(f"The largest weight of {len(table)} rows, at width 64 and scaled", lines)
    return Explorable("scale", drawing, _GUESS, rows=table.tolist())
