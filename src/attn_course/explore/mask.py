"""An interactive figure of a mask, the resulting weights, and the influence of each key. Used in chapter 5."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import WIDTH, Canvas, short
from attn_course.plots.text import as_mask, as_numbers, as_table, on_one_line

_GUESS = Guess(
    "Suppose that you do not set hidden scores to −∞ before the softmax, but hidden weights to 0 after it. All hidden "
    "weights are exactly 0 either way. Does the score of a hidden key still matter?",
    [
        "Yes, it changes the visible weights of its row.",
        "No, because its weight is 0.",
        "Only if it is the largest score of its row.",
    ],
    0,
    "Now choose “0 after it” and look at the third table. Then divide again, paint masks of your own, and change what "
    "True means.",
    "A hidden key that takes part in the softmax is still in the denominator. Its own weight becomes 0, but its score "
    "changes all other weights of the row, so a model can read the future.",
    "`s = scores.clone().requires_grad_()`, then "
    "`(softmax(s) * causal)[1, 0].backward()` leaves numbers in the hidden columns of `s.grad[1]`, and "
    "`softmax(s.masked_fill(~causal, -math.inf))[1, 0].backward()` leaves zeros there.",
)


def mask(scores: Tensor | ArrayLike, tokens: Sequence[str], start: Tensor | ArrayLike | None = None) -> Explorable:
    """Paint a mask, apply it before or after the softmax, and show which keys affect which outputs.

    The figure addresses two misconceptions: that a weight of zero means no leak, and that True means hidden. The
    third table holds, for query t and key s, the sum over all keys i of $|\\partial w_{ti} / \\partial s_{ts}|$.

    Args:
        scores: (T, T), scaled, before the softmax.
        tokens: T names.
        start: the mask at the start, True where a query may attend; the causal mask when not given.

    Raises:
        ValueError: if scores are not a square table of finite numbers with a token for each row.

    Example:
        >>> mask([[0.0, 1.0], [0.0, 0.0]], ["a", "b"]).text.splitlines()[1:4]
        ['     a       b', 'a  1.0000       -', 'b  0.5000  0.5000']
    """
    table = as_numbers(scores)
    tokens = on_one_line(tokens)
    size = len(tokens)
    if table.shape != (size, size):
        raise ValueError(f"scores of shape {table.shape} must be one row and one column for each of the {size} tokens")
    if not 2 <= size <= 8:
        raise ValueError(f"tokens ({size}) must be 2 to 8, so that a finger can hit a cell")
    if not np.isfinite(table).all():
        raise ValueError(f"scores from {table.min():g} to {table.max():g} must be finite; start says what is hidden")
    table = np.array(rounded(table))
    allowed = np.tri(size, dtype=bool) if start is None else as_mask(start, table.shape)
    hidden = np.where(allowed, table, -np.inf)
    powers = np.exp(hidden - np.where(allowed.any(1), hidden.max(1), 0.0)[:, None])
    total = powers.sum(1, keepdims=True)
    weights = powers / np.where(total == 0, 1.0, total)
    numbers = as_table(weights, tokens, tokens, 4, allowed)

    cell, left, top = 22, 60, 72
    sheet = Canvas(top + size * cell + 14)
    for x, title in ((left, "mask: filled is True"), (left + 200, "weights: a darker cell is more")):
        sheet.text(x, 14, title, anchor="start", kind="quiet", size=12)
    for x in (left, left + 200):
        for i, token in enumerate(tokens):
            sheet.text(
                x + cell * (i + 0.5),
                top - 5,
                short(token, 7),
                anchor="start",
                size=11,
                upright=False,
            )
            sheet.text(x - 5, top + cell * (i + 0.5), short(token, 8), anchor="end", size=11)
    sheet.cells(allowed, left, top, (cell, cell))
    sheet.table(left + 200, top, size, size, "weights", cell=(cell, cell), shades=np.round(weights, 2))
    assert left + 200 + 8 * cell <= WIDTH
    drawing = sheet.finish("A mask to paint, and the weights that it leaves", numbers.split("\n"))
    return Explorable(
        "mask", drawing, _GUESS, tokens=list(tokens), scores=table.tolist(), mask=allowed.astype(int).ravel().tolist()
    )
