"""An interactive figure of rotary positions: the rotations of a query and a key as clock hands. Used in chapter 8."""

import math

from attn_course.explore.figure import Explorable, Guess
from attn_course.plots.svg import WIDTH, Canvas


def rotary(head_dim: int = 4, *, base: float = 10_000.0, query: int = 3, key: int = 1) -> Explorable:
    """Rotate a query and a key by their positions and show that the score depends only on their distance.

    The figure addresses two misconceptions: that the score depends on absolute positions, and that the score falls
    evenly with the distance. Before the rotation, query and key are (1, 0) in each pair of columns.

    Args:
        head_dim: D, even, at most 8.
        base: of the speeds, as in :func:`attn_course.rotate`; the reader can change it between 1.6 and 10,000.
        query: position of the query, 0 to 64.
        key: position of the key, 0 to 64.

    Raises:
        ValueError: if a number is outside what the figure can show.

    Example:
        >>> print(rotary(4, base=16.0).text.split("Guess")[0], end="")
        A query at position 3 and a key at position 1, as hands of 2 clocks
        pair 0: 1.0000 radians a step, cos 2.0000 = -0.4161
        pair 1: 0.2500 radians a step, cos 0.5000 = 0.8776
        score 0.4614
    """
    if head_dim % 2 or not 2 <= head_dim <= 8:
        raise ValueError(f"head_dim ({head_dim}) must be 2, 4, 6 or 8: a clock for each pair of columns")
    if not 1.6 <= base <= 10_000:
        raise ValueError(f"base ({base:g}) must be from 1.6 to 10,000")
    if not (0 <= query <= 64 and 0 <= key <= 64):
        raise ValueError(f"query ({query}) and key ({key}) must be positions from 0 to 64")
    pairs = head_dim // 2
    speeds = [base ** (-i / pairs) for i in range(pairs)]
    angles = [speed * abs(query - key) for speed in speeds]
    lines = [
        f"pair {i}: {speed:.4f} radians a step, cos {angle:.4f} = {math.cos(angle):.4f}"
        for i, (speed, angle) in enumerate(zip(speeds, angles, strict=True))
    ]
    lines.append(f"score {sum(map(math.cos, angles)):.4f}")
    ask = f"Shift both tokens by 20 positions, to {query + 20} and {key + 20}. How does their score change?"
    guess = Guess(
        ask,
        [
            "It becomes another number, because every hand has another angle.",
            "It falls, because both tokens are farther from the start.",
            "It does not change.",
        ],
        2,
        "Now shift both tokens. Then move only one token and watch the curve. Does the score fall evenly with "
        "the distance?",
        "The angles between the query and the key stay the same, so the score depends only on the distance. "
        "But it does not fall evenly with the distance, because a fast hand repeats.",
        "`r = rotate(torch.tensor([[1.0, 0.0] * 2] * 64))` makes `r @ r.mT` a table with one number along each "
        "diagonal.",
    )
    step = WIDTH / pairs
    radius = min(44, step / 2 - 8)
    sheet = Canvas(2 * radius + 62)
    for i, (speed, angle) in enumerate(zip(speeds, angles, strict=True)):
        x, y = step * (i + 0.5), radius + 30
        sheet.text(x, 14, f"pair {i}", kind="quiet", size=12)
        sheet.box(
            round(x - radius, 1),
            round(y - radius, 1),
            round(2 * radius, 1),
            round(2 * radius, 1),
            "pale",
            corner=radius,
        )
        for kind, at, width in (("key", key, 3.0), ("query", query, 2.0)):
            across, up = (0.85 * radius * f(speed * at) for f in (math.cos, math.sin))
            sheet.arrow((x, y), (round(x + across, 1), round(y - up, 1)), kind=kind, width=width)
        sheet.text(x, 2 * radius + 46, f"cos {angle:.2f} = {math.cos(angle):.3f}", size=12)
    alt = f"A query at position {query} and a key at position {key}, as hands of {pairs} clocks"
    return Explorable("rotary", sheet.finish(alt, lines), guess, pairs=pairs, base=base, query=query, key=key)
