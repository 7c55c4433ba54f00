"""An einsum, written out as loops. Used in chapter 4."""

import json

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import WIDTH, Canvas
from attn_course.plots.text import as_numbers


def einsum(q: Tensor | ArrayLike, k: Tensor | ArrayLike) -> Explorable:
    """Choose the letters of an einsum of queries and keys, and read its loops.

    The figure addresses the misconception that a wrong letter raises an error.

    Args:
        q: (T, D).
        k: (S, D), with S above T, so that the figure can take as many keys as queries.

    Raises:
        ValueError: if the two are not such tables, or too large to be read.

    Example:
        >>> print(einsum([[1, 2], [3, 4]], [[1, 0], [1, 1], [0, 2]]).text.split("Guess")[0], end="")
        torch.einsum("td,sd->ts", q, k), of the shape (2, 3)
        q [[1, 2], [3, 4]], k [[1, 0], [1, 1], [0, 2]]
        [[1, 3, 4], [3, 7, 8]]
    """
    queries, keys = as_numbers(q), as_numbers(k)
    if queries.ndim != 2 or keys.ndim != 2 or queries.shape[1] != keys.shape[1]:
        raise ValueError(f"q of shape {queries.shape} and k of shape {keys.shape} must be (T, D) and (S, D)")
    T, D, S = *queries.shape, len(keys)
    if not (2 <= T < S <= 5 and D <= 4):
        raise ValueError(f"T ({T}) must be below S ({S}), from 2 to 5, and D ({D}) at most 4, to be read at once")
    tables = [_plain(table) for table in (queries, keys, np.array(rounded(queries)) @ np.array(rounded(keys)).T)]
    lines = [f"q {json.dumps(tables[0])}, k {json.dumps(tables[1])}", json.dumps(tables[2])]
    guess = Guess(
        'Somebody writes `torch.einsum("td,td->t", q, k)`, where the letters of k should be `sd`. There are '
        f"{T} queries and {T} keys. What does PyTorch do?",
        [
            "It raises an error, because k has no axis t.",
            "It computes all scores, and adds them up over the keys.",
            "It raises no error, and multiplies each query only by the key at the same position.",
        ],
        2,
        "Now choose the wrong letters td for k, then a result that they allow, and as many keys as queries.",
        "A letter that both inputs have is one loop, so query 0 meets only key 0, query 1 only key 1, and so on. "
        "PyTorch raises an error only if the two axes have different lengths.",
        f'`torch.einsum("td,td->t", q, k)` raises an error, and `torch.einsum("td,td->t", q, k[:{T}])` does not.',
    )
    sheet = Canvas(64 + 26 * T)
    sheet.text(WIDTH / 2, 18, 'torch.einsum("td,sd->ts", q, k): d disappears', size=14)
    left = WIDTH / 2 - S * 22
    for t, row in enumerate(tables[2]):
        sheet.text(left - 8, 55 + 26 * t, f"t = {t}", anchor="end", size=12)
        for s, number in enumerate(row):
            sheet.labelled(left + 44 * s, 43 + 26 * t, 41, 23, "scores", f"{number:g}")
    alt = f'torch.einsum("td,sd->ts", q, k), of the shape ({T}, {S})'
    return Explorable("einsum", sheet.finish(alt, lines), guess, q=tables[0], k=tables[1])


def _plain(table: np.ndarray) -> list[list[float]]:
    """Return rows of numbers. Integers have no decimal point."""
    return [[int(x) if x == int(x) else x for x in row] for row in rounded(table)]
