"""An interactive figure of word order and context vectors. Used in chapter 2."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.svg import Canvas, short
from attn_course.plots.text import as_numbers, on_one_line


def word_order(x: Tensor | ArrayLike, tokens: Sequence[str]) -> Explorable:
    """Change the order of words, and see whether their context vectors change.

    The figure addresses the misconception that attention knows the order of words. The scores are dot products of the
    rows of x, as in chapter 2.

    Args:
        x: (T, E), a vector for each word.
        tokens: T names.

    Raises:
        ValueError: if there is not one vector for each word, or there are too many to be moved by hand.

    Example:
        >>> print(word_order([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]).text.split("Guess")[0], end="")
        Two words in an order that can be changed, and their context vectors
        a        0.731 0.269
        b        0.269 0.731
    """
    table = as_numbers(x)
    tokens = on_one_line(tokens)
    size = len(tokens)
    if table.ndim != 2 or len(table) != size or table.shape[1] > 4:
        raise ValueError(
            f"x of shape {table.shape} must be a vector of at most four numbers for each of the {size} tokens"
        )
    if not 2 <= size <= 8:
        raise ValueError(f"tokens ({size}) must be 2 to 8, to be moved by hand")
    table = np.array(rounded(table))
    scores = table @ table.T
    powers = np.exp(scores - scores.max(1, keepdims=True))
    context = powers / powers.sum(1, keepdims=True) @ table
    said = [" ".join(f"{c:.3f}" for c in row + 0.0) for row in context]
    lines = [f"{token:8} {row}" for token, row in zip(tokens, said, strict=True)]
    name = tokens[min(1, size - 1)]
    guess = Guess(
        f"Reverse the sentence. What happens to the context vector of “{name}”?",
        [
            "It changes, because its neighbours are different.",
            "It keeps its numbers and moves along with its word.",
            "It becomes the context vector of the word whose place it takes.",
        ],
        1,
        "Now reverse it, drag words to other places, and then add to each vector a number for its place.",
        "Neither a dot product nor a sum depends on the position of a word, so each context vector moves with its "
        "word. The order must come from elsewhere: from the vectors, the scores or a mask.",
        "`order = torch.randperm(6)` in the first line of the cell leaves the assertion true.",
    )
    sheet = Canvas(30 + 26 * size)
    sheet.text(100, 15, "word", anchor="end", kind="quiet", size=12)
    sheet.text(120, 15, "context vector", anchor="start", kind="quiet", size=12)
    for t, (token, row) in enumerate(zip(tokens, context, strict=True)):
        y = 26 + 26 * t
        sheet.text(100, y + 12, short(token), anchor="end")
        for c, number in enumerate(row):
            sheet.labelled(120 + 70 * c, y, 66, 23, "context", f"{number:.3f}", size=13)
    count = ("", "", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")[size]
    alt = f"{count} words in an order that can be changed, and their context vectors"
    return Explorable("word_order", sheet.finish(alt, lines), guess, tokens=list(tokens), x=table.tolist())
