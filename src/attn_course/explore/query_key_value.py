"""An interactive figure of a query, keys and values with their scores, weights and context. Used in chapter 3."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import WIDTH, Canvas, Drawing
from attn_course.plots.text import as_numbers, on_one_line

_GUESS = Guess(
    "The shaded shape is the hull of the six values. The query can point anywhere and be thirty times as long. "
    "How far can the context vector move?",
    [
        "Anywhere, because a longer query makes larger scores.",
        "Out of the hull, if the query points away from all keys.",
        "At most to a corner of the hull.",
    ],
    2,
    "Now drag the query, make it longer, and then drag a key and a value: which of the three tables changes?",
    "Queries and keys decide only the weights. All weights are at least 0 and sum to 1, so the context vector is an "
    "average of the values and stays in their hull. A value can change the hull, but it changes no weight.",
    "`attn_course.attention(100 * q, k, v)[0]` has no number above `v.amax(0)` and none below `v.amin(0)`.",
)


def query_key_value(
    query: Tensor | ArrayLike,
    keys: Tensor | ArrayLike,
    values: Tensor | ArrayLike,
    tokens: Sequence[str],
    *,
    name: str = "the query",
) -> Explorable:
    """Drag a query, keys and values, and show the scores, weights and context.

    The figure addresses two misconceptions: that query, key and value are the same vector, and that a query returns
    keys.

    Args:
        query: two numbers.
        keys: (S, 2).
        values: (S, 2).
        tokens: S names of the keys.
        name: whose query it is.

    Raises:
        ValueError: if they are not vectors of two numbers, or not as many keys as values and tokens.

    Example:
        >>> keys, values = [[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 4.0]]
        >>> print(query_key_value([0.0, 0.0], keys, values, ["a", "b"]).text.split("Guess")[0], end="")
        Scores, weights and context of the query, as they are at first
        a        score / √2 0.0000, weight 0.5000
        b        score / √2 0.0000, weight 0.5000
        context  1.0000 2.0000
    """
    q, k, v = (as_numbers(part) for part in (query, keys, values))
    *tokens, name = on_one_line([*tokens, name])
    size = len(tokens)
    if q.shape != (2,):
        raise ValueError(f"query of shape {q.shape} must be one vector of two numbers, to be drawn as an arrow")
    for what, table in (("keys", k), ("values", v)):
        if table.shape != (size, 2):
            raise ValueError(f"{what} of shape {table.shape} must be two numbers for each of the {size} tokens")
    if not 2 <= size <= 24:
        raise ValueError(f"tokens ({size}) must be 2 to 24, to share the weight and be drawn")
    q, k, v = (np.array(rounded(part)) for part in (q, k, v))
    scores = k @ q / math.sqrt(2)
    powers = np.exp(scores - scores.max())
    weights = powers / powers.sum()
    context = weights @ v
    both = np.vstack([q, k])
    least = max(1.0, 1.2 * np.abs(both).max()) / 3  # room to point away from all keys
    low, high = (math.ceil(10 * max(least, 1.2 * side.max())) / 10 for side in (-both, both))
    boxes = [[-low, high, -low, high], [*_around(v[:, 0]), *_around(v[:, 1])]]
    rows = zip(tokens, scores, weights, strict=True)
    lines = [f"{token:8} score / √2 {s:.4f}, weight {w:.4f}" for token, s, w in rows]
    lines.append("context  " + " ".join(f"{c:.4f}" for c in context))
    return Explorable(
        "query_key_value",
        _still(q, k, v, weights, context, boxes, tokens, name, lines),
        _GUESS,
        tokens=list(tokens),
        asks=name,
        query=q.tolist(),
        keys=k.tolist(),
        values=v.tolist(),
        spread=round(math.sqrt(2), 12),
        boxes=boxes,
    )


def _around(numbers: np.ndarray) -> tuple[float, float]:
    """Return an axis range around the numbers, with a margin of half their range, in steps of 0.2."""
    low, high = float(numbers.min()), float(numbers.max())
    room = 0.5 * (high - low) or 1.0
    return round(math.floor((low - room) / 0.2) * 0.2, 1), round(math.ceil((high + room) / 0.2) * 0.2, 1)


def _still(q, k, v, weights, context, boxes, tokens, name: str, lines: list[str]) -> Drawing:
    """Draw the two planes, and the weights as numbers between them."""
    side, top = 160, 30
    sheet = Canvas(top + side + 22)
    for x, title in ((90, "queries meet keys"), (WIDTH - 90, "weights average values")):
        sheet.text(x, 16, title, kind="quiet", size=12)
    sheet.text(WIDTH / 2, 16, "weights", kind="quiet", size=12)

    def place(left: float, box: list[float], point: np.ndarray) -> tuple[float, float]:
        x0, x1, y0, y1 = box
        x, y = (left + side * (point[0] - x0) / (x1 - x0), top + side * (y1 - point[1]) / (y1 - y0))
        return round(float(x), 1), round(float(y), 1)

    lefts = (10, WIDTH - 10 - side)
    for left, box in zip(lefts, boxes, strict=True):
        sheet.box(left, top, side, side, "pale")
        x, y = place(left, box, np.array([max(0, box[0]), max(0, box[2])]))
        sheet.line((x, top), (x, top + side), kind="pale")
        sheet.line((left, y), (left + side, y), kind="pale")
    origin = place(lefts[0], boxes[0], np.zeros(2))
    tip = place(lefts[0], boxes[0], q)
    ends = [(place(lefts[0], boxes[0], key), "key", 1.0) for key in k]
    for end, kind, width in [*ends, (tip, "query", 2.5)]:
        if end != origin:  # a vector of zeros has no direction
            sheet.arrow(origin, end, kind=kind, width=width)
    sheet.text(tip[0] - 6, tip[1], name, anchor="end", size=12)
    for i, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        y = top + side * (i + 0.5) / len(tokens)
        sheet.text(WIDTH / 2 - 2, y, token[:9], anchor="end", size=12)
        sheet.text(WIDTH / 2 + 4, y, f"{weight:.3f}", anchor="start", size=12)
        x, y = place(lefts[1], boxes[1], v[i])
        radius = 22 * math.sqrt(weight)
        sheet.box(
            round(x - radius, 1),
            round(y - radius, 1),
            round(2 * radius, 1),
            round(2 * radius, 1),
            "value",
            corner=round(radius, 1),
        )
    x, y = place(lefts[1], boxes[1], context)
    sheet.line((x - 5, y - 5), (x + 5, y + 5), kind="mark", width=2.5)
    sheet.line((x - 5, y + 5), (x + 5, y - 5), kind="mark", width=2.5)
    return sheet.finish(f"Scores, weights and context of {name}, as they are at first", lines)
