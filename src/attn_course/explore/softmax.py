"""An interactive figure of the softmax with a temperature and a shift, and of a naive softmax. Used in chapter 2."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import Canvas, short
from attn_course.plots.text import as_numbers, on_one_line

_GUESS = Guess(
    "Add 100 to all scores. What happens to the weights?",
    [
        "They become more equal, because all scores become large.",
        "They stay the same, however they are computed.",
        "On paper they stay the same, but exponentials in float32 overflow, and the weights become NaN.",
    ],
    2,
    "Now move what is added to all scores; then the temperature, from hot to cold; then a single score.",
    "Only the differences between scores matter, so a number that is added to all scores cancels. A temperature "
    "divides all scores, so it changes every difference. Computed as exponentials and a sum, the softmax needs scores "
    "below 88.7, and at least one score above −104.",
    "`softmax(scores + 100)` equals `softmax(scores)` up to the last digits, and "
    "`torch.exp(scores + 100)` is infinite.",
)


def softmax(scores: Tensor | ArrayLike, tokens: Sequence[str], values: Tensor | ArrayLike | None = None) -> Explorable:
    """Change scores, temperature and shift, and compare the weights with a softmax that does not subtract the
    maximum.

    The figure addresses two misconceptions: that a softmax only normalises, and that the size of the scores matters
    instead of their differences.

    Args:
        scores: (S,), one for each token.
        tokens: S names.
        values: (S, Dv); with them, the context is said as well.

    Raises:
        ValueError: if there is not one finite score, and one value, for each token.

    Example:
        >>> print(softmax([0.0, 0.0], ["a", "b"]).text.split("Guess")[0], end="")
        Scores and weights, as they are at first
        a        score 0.0000, weight 0.5000
        b        score 0.0000, weight 0.5000
    """
    row = as_numbers(scores)
    tokens = on_one_line(tokens)
    size = len(tokens)
    if size > 24:
        raise ValueError(f"tokens ({size}) must be at most 24, to be drawn")
    if row.shape != (size,):
        raise ValueError(f"scores of shape {row.shape} must be one for each of the {size} tokens")
    if not np.isfinite(row).all():
        raise ValueError(f"scores {rounded(row)} must be finite, to be moved")
    row = np.array(rounded(row))
    powers = np.exp(row - row.max())
    weights = powers / powers.sum()
    more = {}
    if values is not None:
        table = as_numbers(values)
        if table.ndim != 2 or len(table) != size:
            raise ValueError(f"values of shape {table.shape} must be a row for each of the {size} tokens")
        more["values"] = rounded(table)
    lines = [f"{token:8} score {s:.4f}, weight {w:.4f}" for token, s, w in zip(tokens, row, weights, strict=True)]
    sheet = Canvas(30 + 24 * size)
    for x, title in ((150, "score"), (190, "weight")):
        sheet.text(x, 14, title, anchor="end" if x == 150 else "start", kind="quiet", size=12)
    for i, (token, s, w) in enumerate(zip(tokens, row, weights, strict=True)):
        y = 38 + 24 * i
        sheet.text(80, y, short(token), anchor="end")
        sheet.text(150, y, f"{s:.3f}", anchor="end")
        sheet.box(190, y - 8, round(170 * w + 0.05, 1), 16, "weights")
        sheet.text(196 + 170 * round(w, 3), y, f"{w:.4f}", anchor="start", size=12)
    drawing = sheet.finish("Scores and weights, as they are at first", lines)
    return Explorable("softmax", drawing, _GUESS, tokens=list(tokens), scores=row.tolist(), **more)
