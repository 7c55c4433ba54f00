"""An interactive key-value cache. Used in chapter 15."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import Canvas, short
from attn_course.plots.text import as_numbers, on_one_line

_ROOM = 6


def cache(
    q: Tensor | ArrayLike, k: Tensor | ArrayLike, v: Tensor | ArrayLike, tokens: Sequence[str], *, written: int = 3
) -> Explorable:
    """Append tokens to a cache and truncate it, and show which rows are computed and which are read.

    The figure addresses two misconceptions: that another ending changes earlier keys and values, and that truncated
    entries must be erased. The cache has room for six tokens. The vectors of a token do not depend on its position.

    Args:
        q: (T, 2), a query for each token that can be written.
        k: (T, 2).
        v: (T, 2).
        tokens: T names.
        written: how many of the tokens are in the cache at the start.

    Raises:
        ValueError: if there are not two numbers for each token, or the start does not fit.

    Example:
        >>> vectors = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        >>> print(cache(vectors, vectors, vectors, ["a", "b", "c"], written=2).text.split("Guess")[0], end="")
        A cache with room for 6 tokens, of which 2 are filled
        0 a        key 1.0000 0.0000, value 1.0000 0.0000
        1 b        key 0.0000 1.0000, value 0.0000 1.0000
        output of b: 0.330 0.670
        rows of keys computed: 2 with the cache, 3 without
    """
    tokens = on_one_line(tokens)
    tables = []
    for what, part in (("q", q), ("k", k), ("v", v)):
        table = as_numbers(part)
        if table.shape != (len(tokens), 2):
            raise ValueError(f"{what} of shape {table.shape} must be two numbers for each of the {len(tokens)} tokens")
        tables.append(np.array(rounded(table)))
    if not 2 <= written < min(len(tokens), _ROOM):
        raise ValueError(
            f"written ({written}) must be from 2 to {min(len(tokens), _ROOM) - 1}: one can be removed, and another "
            "follow"
        )
    queries, keys, values = tables
    scores = keys[:written] @ queries[written - 1] / np.sqrt(2)
    powers = np.exp(scores - scores.max())
    out = powers / powers.sum() @ values[:written]

    def listed(row: np.ndarray, digits: int = 4) -> str:
        return " ".join(f"{x:.{digits}f}" for x in row + 0.0)

    lines = [f"{i} {tokens[i]:8} key {listed(keys[i])}, value {listed(values[i])}" for i in range(written)]
    again = written * (written + 1) // 2
    lines.append(f"output of {tokens[written - 1]}: {listed(out, 3)}")
    lines.append(f"rows of keys computed: {written} with the cache, {again} without")
    before, last, other = tokens[: written - 1], tokens[written - 1], tokens[written]
    rows = [*range(written - 1), written]
    guess = Guess(
        f"“{' '.join(tokens[:written])}” is in the cache. Remove “{last}” and add “{other}” instead. "
        "Which keys and values have to be computed?",
        [
            f"The keys and values of all {written} tokens, because the text is a different one.",
            f"Only the key and the value of “{other}”.",
            f"The key and the value of “{other}”, after “{last}” has been overwritten with zeros.",
        ],
        1,
        f"Now remove “{last}”, look at its place, and add “{other}”. Then fill the cache.",
        f"The keys and values of “{' '.join(before)}” do not depend on later tokens, so they stay the same. Truncating "
        "a cache only reduces the number of filled places. The old numbers behind them are not erased, but nobody "
        "reads them.",
        f"`small(x[{rows}], make_causal_mask({written}))[0][:{written - 1}]` equals `six[:{written - 1}]`.",
    )
    sheet = Canvas(40 + 26 * _ROOM)
    for x, title in ((40, "token"), (150, "key"), (295, "value")):
        sheet.text(x, 16, title, anchor="start", kind="quiet", size=12)
    for i in range(_ROOM):
        y, filled = 30 + 26 * i, i < written
        sheet.text(20, y + 12, str(i), kind="quiet", size=12)
        if filled:
            sheet.text(40, y + 12, short(tokens[i]), anchor="start")
        for x, kind, table in ((150, "key", keys), (295, "value", values)):
            said = [f"{a:.2f}".replace("-", "−") for a in table[i] + 0.0] if filled else []
            sheet.labelled(x, y, 130, 23, kind if filled else "unlit", ", ".join(said), size=13)
    drawing = sheet.finish(f"A cache with room for {_ROOM} tokens, of which {written} are filled", lines)
    return Explorable(
        "cache",
        drawing,
        guess,
        tokens=list(tokens),
        queries=queries.tolist(),
        keys=keys.tolist(),
        values=values.tolist(),
        room=_ROOM,
        written=written,
    )
