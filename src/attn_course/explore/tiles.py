"""An interactive figure of the online softmax: tiles of scores with a running maximum and sum. Used in chapter 17."""

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import Canvas
from attn_course.plots.text import as_numbers

# The row of three of chapter 17 goes on, and five queries more; powers of 2, so that all can be checked by pencil.
_POWERS = [
    [2, 8, 4, 1, 16, 2],
    [4, 1, 1, 8, 2, 2],
    [1, 2, 16, 4, 8, 1],
    [8, 4, 2, 1, 1, 2],
    [1, 4, 2, 2, 8, 4],
    [2, 1, 4, 16, 1, 32],
]
_VALUES = [7, 14, 21, 7, 14, 28]
_GUESS = Guess(
    "A tile contains a score that is larger than all earlier scores of its query. What happens to the sums that were "
    "computed before?",
    [
        "They are computed again from the earlier tiles, because they used the wrong maximum.",
        "They are dropped, because they hardly count next to a larger score. The output is nearly right.",
        "They are multiplied by one number, and no tile is read twice.",
    ],
    2,
    "Now step through the tiles and watch the row of query 0. Then read the keys from the back, with other tiles, and "
    "without scaling the earlier sums.",
    "All sums so far are wrong by the same factor, so one multiplication corrects the total and the weighted sum. The "
    "output is that of the softmax for every tile size and every order: nothing is approximated.",
    "`attend_by_keys(q, k, v, block=1)` and `attend_by_keys(q, k, v, block=700)` differ by rounding alone.",
)


def tiles(powers: Tensor | ArrayLike | None = None, values: Tensor | ArrayLike | None = None) -> Explorable:
    """Read a table of scores tile by tile, and show the running maximum, sum and average of each query.

    The figure addresses two misconceptions: that a softmax needs its whole row at once, and that attention in tiles
    is an approximation.

    Args:
        powers: (T, S), the exponentials of the scores, above 0; a small table of powers of 2 when not given.
        values: (S,), one number for each key.

    Raises:
        ValueError: if the numbers are not such a table, or too many to be seen at once.

    Example:
        >>> print(tiles([[2, 8, 4], [1, 1, 2]], [7, 14, 21]).text.split("Guess")[0], end="")
        A table of the exponentials of 2 by 3 scores, to be read in tiles
        values 7 14 21
        query 0: 2 8 4, maximum 8, total 1.7500, weighted sum 26.2500, output 15.0000
        query 1: 1 1 2, maximum 2, total 2.0000, weighted sum 31.5000, output 15.7500
    """
    table = as_numbers(_POWERS if powers is None else powers)
    row = as_numbers(_VALUES if values is None else values)
    if table.ndim != 2 or not (2 <= table.shape[0] <= 6 and 2 <= table.shape[1] <= 8):
        raise ValueError(f"powers of shape {table.shape} must be a table of 2 to 6 queries and 2 to 8 keys")
    if not (np.isfinite(table).all() and (table > 0).all()):
        raise ValueError(
            f"powers from {table.min():g} to {table.max():g} must be above 0 and finite, as an exponential is"
        )
    if row.shape != table.shape[1:]:
        raise ValueError(f"values of shape {row.shape} must be one for each of the {table.shape[1]} keys")
    table, row = np.array(rounded(table)), np.array(rounded(row))
    T, S = table.shape
    maximum = table.max(1)
    total = table.sum(1) / maximum
    weighted_sum = table @ row / maximum
    lines = ["values " + " ".join(f"{x:g}" for x in row)]
    for t in range(T):
        read = " ".join(f"{x:g}" for x in table[t])
        lines.append(
            f"query {t}: {read}, maximum {maximum[t]:g}, total {total[t]:.4f}, weighted sum {weighted_sum[t]:.4f}, "
            f"output {weighted_sum[t] / total[t]:.4f}"
        )
    cell, left, top = (38, 26), 70, 34
    sheet = Canvas(top + T * cell[1] + 12)
    sheet.text(left, 18, "e^score of", anchor="end", kind="quiet", size=12)
    sheet.text(left + S * cell[0] + 52, 18, "output", kind="quiet", size=12)
    for s in range(S):
        sheet.text(left + (s + 0.5) * cell[0], 18, f"key {s}", kind="quiet", size=11)
    for t in range(T):
        y = top + t * cell[1]
        sheet.text(left - 8, y + 12, f"query {t}", anchor="end", size=12)
        for s in range(S):
            kind = "weights" if (t // 2 + s // 2) % 2 == 0 else "scores"
            sheet.labelled(left + s * cell[0], y, cell[0], cell[1], kind, f"{table[t, s]:g}", corner=0)
        sheet.text(left + S * cell[0] + 52, y + 12, f"{weighted_sum[t] / total[t]:.3f}", size=13)
    alt = f"A table of the exponentials of {T} by {S} scores, to be read in tiles"
    return Explorable("tiles", sheet.finish(alt, lines), _GUESS, powers=table.tolist(), values=row.tolist())
