"""An interactive figure of splitting a wide table into heads. Used in chapter 6."""

from attn_course.explore.figure import Explorable, Guess
from attn_course.plots.svg import WIDTH, Canvas


def split_heads(num_tokens: int, num_heads: int, head_dim: int) -> Explorable:
    """Step from a wide table to its heads: cut and transpose, or view.

    The figure addresses the misconception that a tensor of the right shape is the right tensor. Each number shows its
    origin: ten times the position, plus the column.

    Args:
        num_tokens: T.
        num_heads: H, 2 to 4.
        head_dim: D.

    Raises:
        ValueError: if the table is too small to go wrong or too large for a screen.

    Example:
        >>> print(split_heads(3, 2, 2).text.split("Guess")[0], end="")
        A wide table (3, 4), to be split into 2 heads
        wide: 0 1 2 3 | 10 11 12 13 | 20 21 22 23
        cut and transposed, head 0: 0 1 | 10 11 | 20 21
        cut and transposed, head 1: 2 3 | 12 13 | 22 23
        after view, head 0: 0 1 | 2 3 | 10 11
        after view, head 1: 12 13 | 20 21 | 22 23
    """
    T, H, D = num_tokens, num_heads, head_dim
    if not (2 <= T <= 5 and 2 <= H <= 4 and 1 <= D <= 4 and H * D <= 9):
        sizes = f"num_tokens ({T}), num_heads ({H}) and head_dim ({D})"
        raise ValueError(f"{sizes} must be 2 to 5, 2 to 4 and 1 to 4, with at most 9 columns, to be seen at once")
    wide = [[10 * t + c for c in range(H * D)] for t in range(T)]
    flat = [n for row in wide for n in row]
    place = (H - 1) * T * D  # of the first number that view puts into the last head
    theirs, ours = flat[place : place + D], wide[0][(H - 1) * D :]

    def listed(numbers: list[int]) -> str:
        return " and ".join(map(str, numbers))

    last = H - 1
    guess = Guess(
        f"If you cut `wide` into heads and transpose, the result has the shape ({H}, {T}, {D}). "
        f"`wide.view({H}, {T}, {D})` has this shape, too. What does row 0 of head {last} contain after `view`?",
        [
            f"{listed(ours)}, which belong to position 0.",
            "Nothing, because `view` raises an error.",
            f"{listed(theirs)}, which belong to position {theirs[0] // 10}.",
        ],
        2,
        "Now choose view and take its only step. Then choose the other way and go through it step by step.",
        "The right shape does not prove that the numbers are in the right places. `view` keeps the numbers in their "
        "order, but the heads need another order.",
        f"`wide.view({H}, {T}, {D})[{last}, 0]` is "
        f"{listed(theirs)}, and `wide.view({T}, {H}, {D}).transpose(0, 1)[{last}, 0]` is {listed(ours)}.",
    )
    cell = 30
    left = (WIDTH - H * D * cell) / 2
    low = 64 + T * cell
    sheet = Canvas(low + 14 + T * cell)
    for h in range(H):
        sheet.text(left + (h + 0.5) * D * cell, 16, f"head {h}", size=12)
        for t in range(T):
            for d in range(D):
                sheet.labelled(
                    left + (h * D + d) * cell, 30 + t * cell, cell - 3, cell - 3, f"head{h}", str(wide[t][h * D + d])
                )
    for t in range(T):
        sheet.text(left - 8, 30 + (t + 0.45) * cell, f"position {t}", anchor="end", size=12)
    lines = [f"wide: {_listed(wide)}"]
    for h in range(H):
        lines.append(f"cut and transposed, head {h}: {_listed([row[h * D : (h + 1) * D] for row in wide])}")
    for h in range(H):
        rows = [flat[start : start + D] for start in range(h * T * D, (h + 1) * T * D, D)]
        lines.append(f"after view, head {h}: {_listed(rows)}")
        start = WIDTH / 2 + (h - H / 2) * (D * cell + 24) + 12
        sheet.text(start + D * cell / 2, low - 14, f"head {h} after view", size=12)
        for place, n in enumerate(flat[h * T * D : (h + 1) * T * D]):
            owner = n % 10 // D
            sheet.labelled(
                start + place % D * cell, low + place // D * cell, cell - 3, cell - 3, f"head{owner}", str(n)
            )
    drawing = sheet.finish(f"A wide table ({T}, {H * D}), to be split into {H} heads", lines)
    return Explorable("split_heads", drawing, guess, T=T, H=H, D=D)


def _listed(rows: list[list[int]]) -> str:
    return " | ".join(" ".join(map(str, row)) for row in rows)
