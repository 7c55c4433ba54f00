"""Diagrams of attention: the formula, the layers and the data flow. Used from chapter 1 on.

Each function gets tensors, tokens or sizes from a chapter, and returns a :class:`Drawing`. :func:`vocabulary`
explains the colours and shapes.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from attn_course.plots.svg import HEADS, NORMAL, SMALL, WIDTH, Canvas, Drawing, shape, short
from attn_course.plots.text import as_mask, as_numbers, as_rows, as_tokens, fixed, on_one_line, width_of


def encoder_decoder(
    source: Sequence[str], weights: Tensor | ArrayLike | None = None, *, written: str, writes: str
) -> Drawing:
    """Draw one step of a decoder, with attention or with one vector: encoder states, context, next character.

    Args:
        source: S tokens that the encoder read, at most 6.
        weights: (S,), the attention weight of each token in this step; without them, the decoder gets one vector,
            made from the last state of each direction of the encoder.
        written: what the decoder has written before this step.
        writes: what it writes now.

    Raises:
        ValueError: if there is not one weight for each token, or there are too many to draw.
    """
    shares = None if weights is None else as_numbers(weights)
    if shares is not None and shares.shape != (len(source),):
        raise ValueError(
            f"weights of shape {shares.shape} must have the shape ({len(source)},): one for each token of the source"
        )
    if not 1 <= len(source) <= 6:
        raise ValueError(f"source ({len(source)} tokens) must have 1 to 6 tokens to be drawn")
    if shares is not None and (shares.min() < 0 or shares.max() > 1):
        raise ValueError(f"weights run from {shares.min():.4g} to {shares.max():.4g}; shares lie between 0 and 1")
    source = on_one_line(source)
    tokens = [short(token, 4) for token in source]
    sheet = Canvas(338)
    first, step = 104, 256 / len(tokens)
    middles = [first + step * (s + 0.5) for s in range(len(tokens))]
    half = min(23.0, step / 2 - 2)
    context = (first + 128, 222)

    for x, token in zip(middles, tokens, strict=True):
        sheet.labelled(x - half, 14, 2 * half, 26, "vector", token, size=NORMAL)
        sheet.arrow((x, 40), (x, 64))
    for x, y in itertools.pairwise(middles):
        sheet.arrow((x + half, 77), (y - half, 77))
        sheet.arrow((y - half, 77), (x + half, 77))
    if shares is None:
        for x in middles:
            sheet.box(x - half, 64, 2 * half, 26, "vector")
        for x in (middles[0], middles[-1]):  # where the two directions end
            sheet.line((x, 94), (context[0], 200), kind="flow", width=4.0)
        sheet.labelled(context[0] - 44, 204, 88, 30, "vector", "one vector", size=NORMAL)
    else:
        for x in middles:
            sheet.arrow((x, 90), (x, 119))
            sheet.box(x - half, 64, half, 26, "key")
            sheet.box(x, 64, half, 26, "value")
            sheet.text(x - half / 2, 77, "k")
            sheet.text(x + half / 2, 77, "v")
        edge = middles[0] - half - 7
        sheet.box(edge, 119, middles[-1] + half + 7 - edge, 40, "weights", corner=3)
        for x, share in zip(middles, shares, strict=True):
            sheet.line((x, 146), (context[0], 214), kind="flow", width=0.6 + 9 * float(share))
        for x, share in zip(middles, shares, strict=True):
            sheet.table(x - half, 126, 1, 1, "weights", cell=(2 * half, 26), shades=np.array([[share * 0.4]]))
            sheet.text(x, 139, fixed(share, 2))
        sheet.text(374, 139, "weights", anchor="start", kind="quiet")
        sheet.labelled(context[0] - 44, 204, 88, 30, "context", "context", size=NORMAL)
        sheet.labelled(16, 124, 60, 30, "query", "query", size=NORMAL)
        sheet.arrow((76, 139), (edge, 139))
        sheet.arrow((46, 268), (46, 154))
    for y, name in ((27, "source"), (77, "encoder")):
        sheet.text(374, y, name, anchor="start", kind="quiet")

    sheet.labelled(12, 268, 68, 30, "vector", "state", size=NORMAL)
    sheet.labelled(context[0] - 34, 268, 68, 30, "vector", "state", size=NORMAL)
    sheet.arrow((80, 283), (context[0] - 34, 283))
    sheet.arrow((context[0], 234), (context[0], 268))
    sheet.arrow((context[0] + 34, 283), (314, 283))
    sheet.labelled(314, 268, 46, 30, "vector", short(writes, 4), size=NORMAL)
    sheet.text(374, 283, "decoder", anchor="start", kind="quiet")
    sheet.text(12, 316, f"wrote {short(written, 8)}", anchor="start", kind="quiet")
    sheet.text(337, 316, "writes", kind="quiet")
    if shares is None:
        return sheet.finish(
            "An encoder, a decoder, and one vector between them",
            [
                f"source, each token with a state: {' '.join(source)}",
                "the last states of the two directions make one vector",
                f"the decoder wrote {written!r}; it reads the vector and writes {writes!r}",
            ],
        )
    listed = ", ".join(f"{token} {fixed(share, 2)}" for token, share in zip(source, shares, strict=True))
    return sheet.finish(
        "An encoder, a decoder, and one step of attention",
        [
            f"source, each token with a key and a value: {' '.join(source)}",
            f"the query comes from the decoder's state after {written!r}",
            f"weights: {listed}",
            f"context: the values averaged by the weights; the decoder reads it and writes {writes!r}",
        ],
    )


def who_sees_whom(
    mask: Tensor | ArrayLike, queries: Sequence[str], keys: Sequence[str] | None = None, *, row: int | None = None
) -> Drawing:
    """Draw a mask twice: as lines from each query to the keys that it may look at, and as a grid.

    Args:
        mask: (T, S), True where a query may look.
        queries: T tokens.
        keys: S tokens; the queries when not given.
        row: the query whose lines and row are marked.

    Raises:
        TypeError: if the mask is not boolean.
        ValueError: if the tokens don't match the mask, or it is too large to draw.

    Example:
        >>> who_sees_whom([[True, False], [True, True]], ["the", "cat"])
        Who sees whom: # may attend, . may not; queries down, keys across
             the  cat
        the    #    .
        cat    #    #
    """
    grid = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if grid.ndim != 2:
        raise ValueError(f"mask of shape {grid.shape} must have two axes (T, S)")
    grid = as_mask(grid, grid.shape)
    queries, keys = as_tokens(grid.shape, queries, keys)
    if max(grid.shape) > 9:
        raise ValueError(f"mask of shape {grid.shape} must have at most 9 rows and columns to be drawn")
    if row is not None and not 0 <= row < len(queries):
        raise ValueError(f"row ({row}) must be one of the {len(queries)} queries, counting from 0")
    asking, answering = ([short(token, 8) for token in side] for side in (queries, keys))
    high = 24.0
    cell = min(high, 148 / len(keys))
    head = 20 + 8.8 * max(map(len, answering))
    rows = max(len(queries), len(keys))
    sheet = Canvas(head + rows * high + 14)
    down = head + (rows - len(queries)) * high / 2
    up = head + (rows - len(keys)) * high / 2
    at = [down + (t + 0.5) * high for t in range(len(queries))]
    of = [up + (s + 0.5) * high for s in range(len(keys))]
    left, right, grid_left = 78, 190, 278
    sheet.text(left - 10, head - 16, "keys", anchor="end", kind="quiet")
    sheet.text(right + 10, head - 16, "queries", anchor="start", kind="quiet")
    looks = np.argwhere(grid).tolist()
    quiet, lit = (
        [((right, at[t]), (left, of[s])) for t, s in looks if (row in (None, t)) == is_lit] for is_lit in (False, True)
    )
    sheet.curves(quiet, kind="hatch", width=1)
    sheet.curves(lit, kind="flow", width=1.3 if row is None else 2.2)
    for s, key in enumerate(answering):
        sheet.box(left - 4, of[s] - 4, 8, 8, "key", corner=4)
        sheet.text(left - 10, of[s], key, anchor="end")
    for t, query in enumerate(asking):
        sheet.box(right - 4, at[t] - 4, 8, 8, "query", corner=4)
        sheet.text(right + 10, at[t], query, anchor="start", bold=row == t)
    for s, key in enumerate(answering):
        sheet.text(grid_left + (s + 0.5) * cell, head - 8, key, anchor="start", upright=False)
    sheet.cells(grid, grid_left, down, (cell, high))
    if row is not None:
        sheet.mark(grid_left, at[row] - high / 2, cell * len(keys), high)
    cells = [["#" if allowed else "." for allowed in line] for line in grid]
    table = as_rows(cells, queries, keys).split("\n")
    return sheet.finish("Who sees whom: # may attend, . may not; queries down, keys across", table)


def query_axis(mask: Tensor | ArrayLike, num_queries: int | None = None) -> Drawing:
    """Draw how a padding mask (B, S) gets an axis of queries and broadcasts to (B, T, S).

    Args:
        mask: (B, S), True for a real token.
        num_queries: number of queries T; as many as keys when not given.

    Raises:
        TypeError: if the mask is not boolean.
        ValueError: if the mask does not have two axes or is too large to draw.

    Example:
        >>> query_axis([[True, True], [True, False]])
        A padding mask gets an axis of queries: # may attend, . may not
        (B, S) = (2, 2): ## | #.
        (B, 1, S) = (2, 1, 2)
        (B, T, S) = (2, 2, 2): each row 2 times
    """
    grid = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if grid.ndim != 2:
        raise ValueError(f"mask of shape {grid.shape} must have two axes (B, S)")
    grid = as_mask(grid, grid.shape)
    B, S = grid.shape
    T = S if num_queries is None else num_queries
    if not (1 <= B <= 3 and 1 <= S <= 5 and 1 <= T <= 7):
        raise ValueError(
            f"a mask of shape {grid.shape} for {T} queries must have at most 3 sentences, 5 keys and 7 queries "
            "to be drawn"
        )
    cell, gap, top, bar = 11.0, 18.0, 52.0, 6.0
    tall = B * T * cell + (B - 1) * gap
    middle = top + tall / 2
    pad, room = (6.0, 24.0)  # in the frames around the tables; room for the name of the query axis
    wide = (pad, pad + room, pad + room)  # the frame's room left of its table
    width = S * cell + pad
    between = (WIDTH - 16 - sum(wide) - 3 * width) / 2
    lefts = [8 + sum(wide[: i + 1]) + i * (width + between) for i in range(3)]
    sheet = Canvas(top + tall + 18)
    sizes = ((B, S), (B, 1, S), (B, T, S))
    for x, names, size in zip(lefts, ("(B, S)", "(B, 1, S)", "(B, T, S)"), sizes, strict=True):
        sheet.text(x + S * cell / 2, 14, names, bold=True)
        sheet.text(x + S * cell / 2, 32, shape(size), kind="quiet")
    for x, before, high in zip(lefts, wide, (B * cell, tall, tall), strict=True):
        sheet.box(x - before, middle - high / 2 - pad, before + width, high + 2 * pad, "unlit", corner=4)
    sheet.cells(grid, lefts[0], middle - B * cell / 2, (cell, cell))
    for b, row in enumerate(grid):
        y = top + b * (T * cell + gap)
        for x, count in ((lefts[1], 1), (lefts[2], T)):
            start = y + (T - count) * cell / 2
            sheet.box(x - bar - 4, start, bar, count * cell, "query", corner=2)
            sheet.text(x - bar - 11, start + count * cell / 2, "1" if count == 1 else "T")
            sheet.cells(np.tile(row, (count, 1)), x, start, (cell, cell))
    for i, words in enumerate(("[:, None, :]", "broadcast")):
        start, end = lefts[i] + S * cell + pad, lefts[i + 1] - wide[i + 1]
        sheet.arrow((start, middle), (end, middle))
        sheet.text((start + end) / 2, middle - 14, words)
    rows_as_text = " | ".join("".join("#" if cell else "." for cell in row) for row in grid)
    return sheet.finish(
        "A padding mask gets an axis of queries: # may attend, . may not",
        [
            f"(B, S) = {shape(sizes[0])}: {rows_as_text}",
            f"(B, 1, S) = {shape(sizes[1])}",
            f"(B, T, S) = {shape(sizes[2])}: each row {T} times",
        ],
    )


def split_heads(
    wide: Tensor | ArrayLike, heads: Tensor | ArrayLike, *, there: str = "split", back: str = "merge"
) -> Drawing:
    """Draw where the numbers of one wide table go when it is split into heads.

    The shade of a number shows the head to which it belongs.

    Args:
        wide: (T, E), all numbers different, so that each can be followed.
        heads: (H, T, D), the same numbers.
        there: what leads from the wide table to the heads.
        back: what leads from the heads to the wide table; "" draws no way back.

    Raises:
        ValueError: if the shapes don't fit each other, the numbers are not the same ones, or there are too many.

    Example:
        >>> split_heads([[10, 11], [20, 21]], [[[10], [20]], [[11], [21]]])
        A wide table (2, 2) and its 2 heads (2, 2, 1)
        wide: 10 11 | 20 21
        head 0: 10 | 20
        head 1: 11 | 21
    """
    table, pieces = as_numbers(wide), as_numbers(heads)
    if table.ndim != 2 or pieces.ndim != 3:
        raise ValueError(
            f"wide of shape {table.shape} must have two axes (T, E), and heads of shape {pieces.shape} three (H, T, D)"
        )
    count, rows, width = pieces.shape
    if table.shape != (rows, count * width):
        raise ValueError(
            f"heads of shape {pieces.shape} must hold what wide holds: "
            f"{count} heads of {rows} rows and {width} columns make {(rows, count * width)}, not {table.shape}"
        )
    if not (1 <= count <= HEADS and rows <= 6 and count * width <= 6):
        raise ValueError(
            f"heads of shape {pieces.shape} must be at most {HEADS} heads, 6 rows and 6 columns in all to be drawn"
        )
    owner = {float(table[t, e]): e // width for t, e in np.ndindex(*table.shape)}
    if len(owner) != table.size:
        raise ValueError("wide must hold a different number in every place, or nobody can follow them")
    if sorted(owner) != sorted(pieces.flatten().tolist()):
        raise ValueError("heads must hold the same numbers as wide")

    cell, high, top = 27, 24, 44
    tall = rows * high
    sheet = Canvas(top + tall + 42)

    def draw(x: float, numbers: np.ndarray) -> None:
        for (t, e), number in np.ndenumerate(numbers):
            kind = f"head{owner[float(number)]}"
            sheet.labelled(x + e * cell, top + t * high, cell, high, kind, f"{number:g}", corner=0)

    draw(16, table)
    sheet.text(16 + table.shape[1] * cell / 2, top - 18, "all heads", bold=True)
    sheet.text(16 + table.shape[1] * cell / 2, top + tall + 20, shape(table.shape))
    end = 16 + table.shape[1] * cell
    gap = max(18, 56 - width * cell)  # room for the names above
    room = WIDTH - 16 - (count - 1) * gap - count * width * cell
    x = room
    for h, piece in enumerate(pieces):
        draw(x, piece)
        sheet.text(x + width * cell / 2, top - 18, f"head {h}", bold=True)
        x += width * cell + gap
    sheet.text((room + WIDTH - 16) / 2, top + tall + 20, shape(pieces.shape))
    apart = 10 if back else 0
    middle = top + tall / 2
    sheet.arrow((end, middle - apart), (room, middle - apart))
    sheet.text((end + room) / 2, middle - apart - 14, there)
    if back:
        sheet.arrow((room, middle + apart), (end, middle + apart))
        sheet.text((end + room) / 2, middle + apart + 14, back)

    def as_words(numbers: np.ndarray) -> str:
        return " | ".join(" ".join(f"{number:g}" for number in line) for line in numbers)

    return sheet.finish(
        f"A wide table {shape(table.shape)} and its {count} heads {shape(pieces.shape)}",
        [f"wide: {as_words(table)}", *[f"head {h}: {as_words(piece)}" for h, piece in enumerate(pieces)]],
    )


def multi_head_layer(x: Tensor | ArrayLike, *, d_model: int, num_heads: int) -> Drawing:
    """Draw a whole layer of multi-head self-attention, with the shape at every step.

    Args:
        x: (B, T, d_in), the tokens.
        d_model: E, the width of all heads together.
        num_heads: H, which must divide E.

    Raises:
        ValueError: if the tokens don't have three axes, or the heads don't divide the width.
    """
    batch, length, d_in = _three_axes("x", x)
    if num_heads < 1 or d_model < 1 or d_model % num_heads:
        raise ValueError(f"num_heads ({num_heads}) must divide d_model ({d_model})")
    tokens, wide = shape((batch, length, d_in)), shape((batch, length, d_model))
    apart = shape((batch, num_heads, length, d_model // num_heads))
    sheet = Canvas(430)
    centre = WIDTH / 2
    columns = {"q": 80.0, "k": centre, "v": 360.0}
    kinds = {"q": "query", "k": "key", "v": "value"}
    sheet.labelled(centre - 75, 14, 150, 30, "vector", f"x {tokens}")
    for key, x in columns.items():
        if x == centre:
            sheet.arrow((centre, 44), (x, 72))
        else:
            sheet.arrow((centre, 56), (x, 56), (x, 72))
        sheet.labelled(x - 40, 72, 80, 26, "operation", f"{key}_proj")
        sheet.text(x + 9, 111, "split", anchor="start", kind="quiet")
        sheet.arrow((x, 98), (x, 129))
        sheet.cards(x - 58, 134, 116, 44, kinds[key], key, apart)
        sheet.arrow((x, 178), (x, 207))
    sheet.cards(22, 212, 396, 36, "weights", f"attention, once for each of the {num_heads} heads")
    sheet.arrow((centre, 248), (centre, 273))
    sheet.cards(centre - 90, 278, 180, 30, "context", f"heads {apart}")
    sheet.text(centre + 9, 321, "merge", anchor="start", kind="quiet")
    sheet.arrow((centre, 308), (centre, 336))
    sheet.labelled(centre - 48, 336, 96, 26, "operation", "out_proj")
    sheet.arrow((centre, 362), (centre, 386))
    sheet.labelled(centre - 75, 386, 150, 30, "vector", f"out {wide}")
    return sheet.finish(
        f"A layer of multi-head attention with {num_heads} heads",
        [
            f"x {tokens}",
            f"q_proj, k_proj, v_proj, each split into heads: q, k, v {apart}",
            f"attention, once for each of the {num_heads} heads: heads {apart}",
            f"merge, out_proj: out {wide}",
        ],
    )


# The parts of the drawing of self-attention that each step highlights.
_STEPS = {
    "projections": ("x", "W_query", "W_key", "W_value", "q", "k", "v"),
    "scores": ("x", "q", "k", "product", "scores"),
    "scale": ("scores", "÷ √D"),
    "mask": ("scores", "mask"),
    "softmax": ("softmax", "weights"),
    "dropout": ("weights", "dropout"),
    "context": ("x", "v", "weights", "average", "context"),
}
_PARTS = ("projections", "scale", "mask", "dropout")  # of these, a drawing can do without


def attention_steps(
    highlight: str | Sequence[str] = (),
    *,
    parts: Sequence[str] = _PARTS,
    length: int = 6,
    d_in: int = 3,
    head_dim: int = 2,
) -> Drawing:
    """Draw single-head self-attention from the tokens to the context vectors, with the shape of every tensor.

    Args:
        highlight: the step or steps to highlight: "projections", "scores", "scale", "mask", "softmax", "dropout" or
            "context". Every step is drawn in colour when there is none.
        parts: which of "projections", "scale", "mask" and "dropout" are drawn. Without projections, the tokens are
            their own queries, keys and values.
        length: T, the number of tokens.
        d_in: E, the width of a token.
        head_dim: D, the width of a query, a key and a value.

    Raises:
        ValueError: if there is no such step or part, or the step to highlight is not drawn.

    Example:
        >>> attention_steps("scale", parts=["projections", "scale"])
        Single-head self-attention, step by step; highlighted: scale
        x (6, 3) times W_query, W_key, W_value: q, k, v (6, 2)
        q times k transposed: scores (6, 6)
        scores ÷ √D, softmax: weights (6, 6)
        weights times v: context (6, 2)
    """
    if wrong := [part for part in parts if part not in _PARTS]:
        raise ValueError(f"parts {wrong} must be among {list(_PARTS)}")
    steps = [name for name in _STEPS if name in parts or name not in _PARTS]
    marked = [highlight] if isinstance(highlight, str) else list(highlight)
    for step in marked:
        if step not in steps:
            names = ", ".join(map(repr, steps))
            raise ValueError(f"highlight ({step!r}) must be one of {names}; without it, every step is in colour")
    projected = "projections" in parts
    highlighted = {name for step in marked for name in _STEPS[step]}
    if projected and "projections" not in marked:
        highlighted.discard("x")  # queries, keys and values take its place
    tokens, square = shape((length, d_in)), shape((length, length))
    vectors = shape((length, head_dim)) if projected else tokens
    q, k, v = ("q", "k", "v") if projected else ("x", "x", "x")
    up = 0 if projected else 80  # the rest moves up where no projections are drawn
    sheet = Canvas(300 - up)

    def part(x: float, y: float, width: float, height: float, name: str, kind: str, *lines: str) -> None:
        """A box or an operation with its centre at x and its upper edge at y."""
        colour = not marked or name in highlighted
        corner = height / 2 if kind == "operation" else 3
        sheet.box(x - width / 2, y, width, height, kind if colour else "unlit", corner=corner)
        for i, line in enumerate(lines or (name,)):
            middle = y + height / 2 + (i - (len(lines or (name,)) - 1) / 2) * 16
            sheet.text(x, middle, line, kind=None if colour else "quiet", bold=bool(marked) and colour)

    part(220, 8, 110, 28, "x", "vector", f"x {tokens}")
    if projected:
        columns = {"q": 54.0, "k": 160.0, "v": 386.0}
        matrices = {"q": "W_query", "k": "W_key", "v": "W_value"}
        kinds = {"q": "query", "k": "key", "v": "value"}
        for name, x in columns.items():
            if name == "k":
                sheet.arrow((x + 10, 36), (x + 10, 50))
            else:
                sheet.arrow((165 if name == "q" else 275, 22), (x, 22), (x, 50))
            part(x, 50, 84, 24, matrices[name], "operation")
            sheet.arrow((x, 74), (x, 88))
            part(x, 88, 84, 28, name, kinds[name], f"{name} {vectors}")
        sheet.arrow((54, 116), (54, 143), (77, 143))
        sheet.arrow((160, 116), (160, 143), (137, 143))
        sheet.arrow((424, 116), (424, 276), (410, 276))
    else:
        sheet.arrow((165, 22), (107, 22), (107, 51))
        sheet.arrow((275, 22), (424, 22), (424, 196), (410, 196))
    part(107, 131 - up, 60, 24, "product", "operation", f"{q} {k}ᵀ")
    sheet.arrow((107, 155 - up), (107, 166 - up), (50, 166 - up), (50, 178 - up))
    part(50, 178 - up, 80, 38, "scores", "scores", "scores", square)
    row, start = 197 - up, 90.0
    for x, width, name, step in (
        (137, 54, "÷ √D", "scale"),
        (204, 52, "mask", "mask"),
        (277, 66, "softmax", "softmax"),
    ):
        if step in steps:
            sheet.arrow((start, row), (x - width / 2, row))
            part(x, row - 12, width, 24, name, "operation")
            start = x + width / 2
    sheet.arrow((start, row), (324, row))
    part(364, 178 - up, 80, 38, "weights", "weights", "weights", square)
    below = 216 - up
    if "dropout" in parts:
        sheet.arrow((364, below), (364, below + 12))
        part(364, below + 12, 76, 24, "dropout", "operation")
        below += 36
    sheet.arrow((364, below), (364, 264 - up))
    part(364, 264 - up, 92, 24, "average", "operation", f"weights {v}")
    sheet.arrow((318, 276 - up), (276, 276 - up))
    part(216, 262 - up, 120, 28, "context", "context", f"context {vectors}")
    ending = f"; highlighted: {', '.join(marked)}" if marked else ""
    operations = {"scale": "÷ √D", "mask": "mask", "softmax": "softmax"}
    between = [name for step, name in operations.items() if step in steps]
    first = [f"x {tokens} times W_query, W_key, W_value: q, k, v {vectors}"]
    dropped = "dropout, " if "dropout" in parts else ""
    return sheet.finish(
        f"Single-head self-attention, step by step{ending}",
        [
            *(first if projected else [f"x {tokens}"]),
            f"{q} times {k} transposed: scores {square}",
            f"scores {', '.join(between)}: weights {square}",
            f"{dropped}weights times {v}: context {vectors}",
        ],
    )


def decoder_block(x: Tensor | ArrayLike, memory: Tensor | ArrayLike) -> Drawing:
    """Draw a decoder block with two residual streams, and show what each attention layer reads and adds.

    Args:
        x: (B, T, E), the target.
        memory: (B, S, d_memory).

    Raises:
        ValueError: if one of the two doesn't have three axes, or they are not equally many sequences.
    """
    own, read = shape(_three_axes("x", x)), shape(_three_axes("memory", memory))
    if len(x) != len(memory):
        raise ValueError(f"memory of shape {read} must hold as many sequences as x, of shape {own}")
    sheet = Canvas(348)
    stream, source = 376, 64
    left, right = 144, 280
    sheet.arrow((stream, 38), (stream, 312), kind="stream", width=5)
    sheet.labelled(stream - 54, 12, 108, 26, "vector", f"x {own}")
    sheet.labelled(stream - 54, 312, 108, 26, "vector", f"out {own}")

    def attend(y: float, name: Sequence[str], letters: str) -> None:
        """Draw an attention layer next to the stream. The layer reads the stream above and adds to the stream below."""
        sheet.box(left, y, right - left, 84, "weights", corner=3)
        for i, line in enumerate(name):
            sheet.text((left + right) / 2, y + 33 + 20 * i, line, size=NORMAL)
        sheet.arrow((stream, y + 16), (right, y + 16))
        for i, letter in enumerate(reversed(letters)):
            kind = {"q": "query", "k": "key", "v": "value"}[letter]
            x = right + 66 - 21 * i if len(letters) > 1 else right + 45
            sheet.labelled(x - 9, y + 6, 18, 20, kind, letter)
        sheet.arrow((right, y + 68), (stream - 10, y + 68))
        sheet.labelled(right + 12, y + 57, 56, 22, "context", "found")
        sheet.plus(stream, y + 68)

    attend(62, ("causal", "self-attention"), "qkv")
    sheet.cells(np.tri(3, dtype=bool), left + 12, 76, (8, 8))
    attend(196, ("cross-", "attention"), "q")
    sheet.labelled(12, 12, 104, 44, "vector", "memory", read)
    sheet.line((source, 56), (source, 212.75), kind="stream", width=5)
    sheet.arrow((source, 212), (left, 212), width=1.5)
    for x, kind, letter in ((88, "key", "k"), (110, "value", "v")):
        sheet.labelled(x - 9, 202, 18, 20, kind, letter)
    return sheet.finish(
        "A decoder block: two streams, two attentions",
        [
            f"the target's stream begins as x {own}",
            "causal self-attention takes q, k and v from the stream and adds what it found to it",
            f"cross-attention takes q from the stream, k and v from the memory {read}, and adds what it found",
            f"the stream ends as out {own}",
        ],
    )


def norm_orders() -> Drawing:
    """Draw a sublayer with its norm and its residual connection in both orders, pre-norm and post-norm.

    Example:
        >>> norm_orders()
        Two orders of sublayer, addition and norm
        pre-norm: the norm is on the branch, so the sublayer reads a normalised copy: x + f(norm(x))
        post-norm: the norm is on the stream, after the addition: norm(x + f(x))
    """
    sheet = Canvas(304)
    _sublayer_on_branch(sheet, 40, "pre-norm", "x + f(norm(x))", norms=("before",))
    _sublayer_on_branch(sheet, 258, "post-norm", "norm(x + f(x))", norms=("on the stream",))
    return sheet.finish(
        "Two orders of sublayer, addition and norm",
        [
            "pre-norm: the norm is on the branch, so the sublayer reads a normalised copy: x + f(norm(x))",
            "post-norm: the norm is on the stream, after the addition: norm(x + f(x))",
        ],
    )


def output_norms() -> Drawing:
    """Draw a sublayer with a norm on its output, as in OLMo 2, and one with norms on both sides, as in Gemma 3.

    Example:
        >>> output_norms()
        A sublayer with a norm on its output, and one with norms on both sides
        OLMo 2: the norm is on the branch, after the sublayer: x + norm(f(x))
        Gemma 3: a norm before the sublayer and another after it, both on the branch: x + norm(f(norm(x)))
    """
    sheet = Canvas(304)
    _sublayer_on_branch(sheet, 40, "OLMo 2", "x + norm(f(x))", norms=("after",))
    _sublayer_on_branch(sheet, 258, "Gemma 3", "x + norm(f(norm(x)))", norms=("before", "after"))
    return sheet.finish(
        "A sublayer with a norm on its output, and one with norms on both sides",
        [
            "OLMo 2: the norm is on the branch, after the sublayer: x + norm(f(x))",
            "Gemma 3: a norm before the sublayer and another after it, both on the branch: x + norm(f(norm(x)))",
        ],
    )


def _sublayer_on_branch(sheet: Canvas, stream: float, title: str, formula: str, norms: Sequence[str]) -> None:
    sheet.text(stream + 72, 18, title, size=NORMAL, bold=True)
    sheet.labelled(stream - 30, 36, 60, 24, "vector", "x")
    sheet.arrow((stream, 60), (stream, 236), kind="stream", width=5)
    sheet.labelled(stream - 30, 236, 60, 24, "vector", "next x")
    left = stream + 68
    sheet.arrow((stream, 84), (left, 84))
    if "before" in norms:
        sheet.labelled(stream + 12, 73, 42, 22, "operation", "norm")
    if "on the stream" in norms:
        sheet.labelled(stream - 22, 194, 44, 24, "operation", "norm")
    sheet.labelled(left, 70, 106, 102, "unlit", "sublayer f:", "attention or", "feed-forward")
    sheet.arrow((left, 158), (stream + 10, 158))
    if "after" in norms:
        sheet.labelled(stream + 22, 147, 42, 22, "operation", "norm")
    sheet.plus(stream, 158)
    sheet.text(stream + 72, 284, formula)


def two_layers() -> Drawing:
    """Draw a layer of a Transformer of 2017 and one of a language model of 2026 side by side.

    Example:
        >>> two_layers()
        A layer of 2017 and a layer of 2026
        2017: x + attention, norm; then + feed-forward, norm. Positions are added before the first layer.
        2026: norm, attention with rotary positions and shared keys, + x; then norm, SwiGLU, + x. The norm is RMSNorm.
    """
    sheet = Canvas(420)
    designs = (
        (54, "2017", "LayerNorm", ("multi-head", "attention"), ("feed-forward", "with ReLU")),
        (
            274,
            "2026",
            "RMSNorm",
            ("attention with", "fewer key heads"),
            ("feed-forward", "SwiGLU"),
        ),
    )
    for stream, year, norm, *sublayers in designs:
        sheet.text(stream + 60, 18, year, size=NORMAL, bold=True)
        sheet.labelled(stream - 30, 36, 60, 24, "vector", "x")
        sheet.arrow((stream, 60), (stream, 372), kind="stream", width=5)
        sheet.labelled(stream - 30, 372, 60, 24, "vector", "next x")
        for top, lines in zip((76, 222), sublayers, strict=True):
            left = stream + 44
            if year == "2026":
                sheet.arrow((stream, top + 12), (left, top + 12))
                sheet.labelled(left, top, 116, 24, "operation", norm)
                sheet.arrow((left + 58, top + 24), (left + 58, top + 44))
            else:
                sheet.arrow((stream, top + 62), (left, top + 62))
                sheet.labelled(stream - 40, top + 108, 80, 24, "operation", norm)
            sheet.labelled(left, top + 44, 116, 36, "unlit", *lines)
            end = top + 94
            sheet.line((left + 58, top + 80), (left + 58, end))
            sheet.arrow((left + 58, end), (stream + 10, end))
            sheet.plus(stream, end)
    return sheet.finish(
        "A layer of 2017 and a layer of 2026",
        [
            "2017: x + attention, norm; then + feed-forward, norm. Positions are added before the first layer.",
            "2026: norm, attention with rotary positions and shared keys, + x; then norm, SwiGLU, + x. "
            "The norm is RMSNorm.",
        ],
    )


# The parts of the Transformer that a chapter can light: what is lit, and what is said below the drawing.
_ATTENTIONS = ("encoder's self-attention", "decoder's self-attention", "cross-attention")
_STAGES = {
    "batches": (
        ("src", "tgt"),
        "sentences become rows of ids, the short ones padded",
    ),
    "decoding": (("logits", "tgt"), "what is written is read in the next step"),
    "tiles": (_ATTENTIONS[:1], "attention in tiles: the whole table is never stored"),
}


def transformer(lit: str | None = None) -> Drawing:
    """Draw the Transformer, or a small version with one part highlighted.

    Args:
        lit: "batches", "decoding" or "tiles". The whole figure, with norms and shapes, when not given.

    Raises:
        ValueError: if there is no such part.

    Example:
        >>> transformer("batches")
        The Transformer, one layer of each; lit: src, tgt
        sentences become rows of ids, the short ones padded
    """
    if lit is None:
        return _whole_transformer()
    if lit not in _STAGES:
        names = ", ".join(map(repr, _STAGES))
        raise ValueError(f"lit ({lit!r}) must be one of {names}, or None for the whole Transformer")
    return _small_transformer(lit)


_ENCODER, _DECODER = 38, 402  # where the two streams run


def _whole_transformer() -> Drawing:
    sheet = Canvas(500)
    crossing = 204  # where the memory goes up to the decoder

    def outward(stream: float, near: float, wide: float) -> float:
        """Return the left edge of a part at a distance from its stream, on the outer side."""
        return stream + near if stream == _ENCODER else stream - near - wide

    def sublayer(stream: float, y: float, high: float, kind: str, *lines: str) -> None:
        """Draw a sublayer that reads the normalised stream above and adds its result below."""
        step = 1 if stream == _ENCODER else -1
        edge, add = stream + 64 * step, y + high - 14
        sheet.arrow((stream, y + 14), (edge, y + 14))
        sheet.labelled(outward(stream, 13, 42), y + 3, 42, 22, "operation", "norm")
        sheet.labelled(outward(stream, 64, 82), y, 82, high, kind, *lines)
        sheet.arrow((edge, add), (stream + 10 * step, add))
        sheet.plus(stream, add)

    for stream, frame_ends, ids, sizes in (
        (_ENCODER, 282, ("src", "(B, S)"), "(B, S, E)"),
        (_DECODER, 358, ("<bos> tgt", "(B, T)"), "(B, T, E)"),
    ):
        step = 1 if stream == _ENCODER else -1
        anchor = "start" if step == 1 else "end"
        left = outward(stream, -26, 178)
        for x, y in ((left + 5, 109), (left, 114)):
            sheet.box(x, y, 178, frame_ends - 114, "unlit", corner=5)
        sheet.text(stream + 146 * step, 128, "N layers", anchor="end" if step == 1 else "start")
        wide = 50 if step == 1 else 86
        sheet.labelled(outward(stream, 48, wide), 10, wide, 40, "vector", *ids)
        sheet.arrow((stream + 48 * step, 30), (stream + 29 * step, 30))
        sheet.labelled(stream - 29, 17, 58, 26, "operation", "embed")
        sheet.arrow((stream, 43), (stream, 340 if step == 1 else 414), kind="stream", width=5)
        sheet.labelled(outward(stream, 28, 76), 57, 76, 26, "vector", "positions")
        sheet.arrow((stream + 28 * step, 70), (stream + 10 * step, 70))
        sheet.plus(stream, 70)
        sheet.text(stream + 12 * step, 96, sizes, anchor=anchor)
        sheet.labelled(stream - 22, frame_ends + 12, 44, 24, "operation", "norm")

    sublayer(_ENCODER, 140, 64, "weights", "self-", "attention")
    sublayer(_ENCODER, 216, 54, "operation", "feed-", "forward")
    sheet.labelled(12, 340, 88, 42, "vector", "memory", "(B, S, E)")

    sublayer(_DECODER, 140, 64, "weights")
    sheet.cells(np.tri(3, dtype=bool), 265, 147, (8, 8))
    sheet.text(315, 163, "self-")
    sheet.text(297, 181, "attention")
    sublayer(_DECODER, 216, 64, "weights", "cross-", "attention")
    sublayer(_DECODER, 292, 54, "operation", "feed-", "forward")
    sheet.line((100, 361), (crossing, 361), (crossing, 245.5), kind="stream", width=5)
    sheet.arrow((crossing, 248), (256, 248))
    for x, kind, letter in ((221, "key", "k"), (240, "value", "v")):
        sheet.labelled(x - 9, 238, 18, 20, kind, letter)
    sheet.labelled(299, 414, 135, 26, "operation", "output projection")
    sheet.arrow((_DECODER, 440), (_DECODER, 460))
    sheet.labelled(299, 460, 135, 26, "vector", "logits (B, T, V)")
    sheet.arrow((299, 473), (284, 473))
    sheet.labelled(240, 460, 44, 26, "operation", "loss")
    sheet.arrow((228, 473), (240, 473))
    for y, name, tokens in (
        (410, "reads", ("<bos>", "my", "mother", "…")),
        (461, "should write", ("my", "mother", "bought", "…")),
    ):
        sheet.text(12, y - 11, name, anchor="start", kind="quiet")
        for i, token in enumerate(tokens):
            sheet.labelled(12 + 54 * i, y, 54, 24, "vector", token, corner=0)
    return sheet.finish(
        "The Transformer: an encoder, a decoder, and the two streams that run through them",
        [
            "src (B, S): embed, add positions: the encoder's stream (B, S, E)",
            "N encoder layers, each adding to the stream: self-attention of its norm, feed-forward of its norm",
            "a last norm: memory (B, S, E)",
            "<bos> tgt (B, T): embed, add positions: the decoder's stream (B, T, E)",
            "N decoder layers, each adding to the stream: causal self-attention of its norm, "
            "cross-attention of its norm with k and v from the memory, feed-forward of its norm",
            "a last norm, output projection: logits (B, T, V)",
            "loss: the logits against the target shifted by one: "
            "the decoder reads <bos> my mother … and should write my mother bought …",
        ],
    )


def _small_transformer(lit: str) -> Drawing:
    lights, caption = _STAGES[lit]
    top = 12 if lit == "decoding" else 4  # room for the way back
    rows = [top + 72 + 38 * i for i in range(3)]
    bottom = top + 192
    sheet = Canvas(bottom + 24 + (46 if lit == "decoding" else 38))

    def part(x: float, y: float, wide: float, high: float, kind: str, name: str, text: str = "") -> None:
        on = name in lights
        corner = high / 2 if kind == "operation" else 3
        sheet.box(x, y, wide, high, kind if on else "unlit", corner=corner)
        sheet.text(x + wide / 2, y + high / 2, text or name, kind=None if on else "quiet", bold=on)

    def sublayer(stream: float, y: float, kind: str, name: str, text: str) -> None:
        """It reads the stream above and adds to it below."""
        step = 1 if stream == _ENCODER else -1
        edge = stream + 24 * step
        sheet.arrow((stream, y + 7), (edge, y + 7))
        part(min(edge, edge + 124 * step), y, 124, 28, kind, name, text)
        sheet.arrow((edge, y + 21), (stream + 10 * step, y + 21))
        sheet.plus(stream, y + 21)

    for stream, ids, wide, text in ((_ENCODER, "src", 40, "src"), (_DECODER, "tgt", 88, "<bos> tgt")):
        step = 1 if stream == _ENCODER else -1
        near = stream + 46 * step
        end = rows[2] if step == 1 else bottom
        sheet.line((stream, top + 34), (stream, end), kind="pale", width=5)
        part(min(near, near + wide * step), top + 10, wide, 24, "vector", ids, text)
        sheet.arrow((near, top + 22), (stream + 29 * step, top + 22))
        part(stream - 29, top + 10, 58, 24, "operation", "embedding", "embed")
        near = stream + 28 * step
        part(min(near, near + 80 * step), top + 41, 80, 24, "vector", "positions")
        sheet.arrow((near, top + 53), (stream + 10 * step, top + 53))
        sheet.plus(stream, top + 53)

    own, masked, cross = _ATTENTIONS
    sublayer(_ENCODER, rows[0], "weights", own, "self-attention")
    sublayer(_ENCODER, rows[1], "operation", "feed-forward", "feed-forward")
    part(10, rows[2], 74, 26, "vector", "memory")
    sublayer(_DECODER, rows[0], "weights", masked, "self-attention")
    sublayer(_DECODER, rows[1], "weights", cross, "cross-attention")
    sublayer(_DECODER, rows[2], "operation", "feed-forward", "feed-forward")
    sheet.line((84, rows[2] + 13), (220, rows[2] + 13), (220, rows[1] + 11.5), kind="pale", width=5)
    sheet.arrow((220, rows[1] + 14), (254, rows[1] + 14))
    part(372, bottom, 60, 24, "operation", "output projection", "output")
    sheet.arrow((372, bottom + 12), (350, bottom + 12))
    part(292, bottom, 58, 24, "vector", "logits")
    if lit != "decoding":
        sheet.arrow((292, bottom + 12), (272, bottom + 12))
        part(224, bottom, 48, 24, "operation", "loss")
        part(110, bottom, 88, 24, "vector", "target", "tgt <eos>")
        sheet.arrow((198, bottom + 12), (224, bottom + 12))

    if lit == "batches":
        filled = np.arange(5) < np.array([[5], [3], [4]])
        sheet.cells(filled, 130, top + 10, (8, 8))
        sheet.cells(filled[::-1], 222, top + 10, (8, 8))
    elif lit == "tiles":
        sheet.line((186, rows[0] + 14), (200, rows[0] + 14))
        sheet.table(200, rows[0] - 6, 4, 4, "weights", cell=(10, 10))
        sheet.mark(210, rows[0] + 4, 10, 10)
    elif lit == "decoding":
        way = [(321, bottom + 24), (321, bottom + 34), (436, bottom + 34), (436, top)]
        sheet.arrow(*way, (312, top), (312, top + 10), kind="flow", width=2.2)
    sheet.text(WIDTH / 2, sheet.height - 18, caption, size=NORMAL)
    lit_parts = ", ".join(lights)
    return sheet.finish(f"The Transformer, one layer of each; lit: {lit_parts}", [caption])


def induction(tokens: Sequence[str], behind: str) -> Drawing:
    """Draw an induction circuit: two heads find the token that followed an earlier copy of the newest token.

    Args:
        tokens: 3 to 5 letters; the last of them is the newest, and stands among the others too.
        behind: the token after its earlier place.

    Raises:
        ValueError: if the newest token did not stand before ``behind``, or the tokens are too many or too long to draw.

    Example:
        >>> induction(["A", "B", "A"], behind="B")
        Induction with two heads
        tokens: A B A
        layer 1, previous token: A, B after A, A after B
        layer 2, induction: A looks at B after A, so B is next
    """
    *tokens, behind = on_one_line([*tokens, behind])
    pairs = list(itertools.pairwise(tokens))
    if not 3 <= len(tokens) <= 5 or max(map(width_of, tokens)) > 1:
        raise ValueError(f"tokens ({', '.join(tokens)}) must be 3 to 5 single letters to be drawn")
    if (tokens[-1], behind) not in pairs:
        raise ValueError(f"behind ({behind!r}) must come after the newest token ({tokens[-1]!r}) at an earlier place")
    match = pairs.index((tokens[-1], behind)) + 1
    sheet = Canvas(234)
    left, wide = 96, 338 / len(tokens)
    middle = [left + (i + 0.5) * wide for i in range(len(tokens))]
    rows = {"tokens": 14, "layer 1": 92, "layer 2": 186}
    for name, y in rows.items():
        sheet.text(10, y + 14, name, anchor="start", bold=True)
    sheet.text(10, rows["layer 1"] + 34, "previous", anchor="start", kind="quiet")
    sheet.text(10, rows["layer 2"] + 34, "induction", anchor="start", kind="quiet")
    for i, (x, token) in enumerate(zip(middle, tokens, strict=True)):
        sheet.labelled(x - 17, rows["tokens"], 34, 28, "vector", token)
        if i:
            sheet.arrow((middle[i - 1] + 8, rows["tokens"] + 28), (x - 10, rows["layer 1"]))
        sheet.arrow((x, rows["tokens"] + 28), (x, rows["layer 1"]))
        kind = "key" if i == match else "query" if i == len(tokens) - 1 else "vector"
        note = (f"after {tokens[i - 1]}",) if i else ()
        sheet.labelled(x - 29, rows["layer 1"], 58, 42, kind, token, *note)
    asks, answers = middle[-1], middle[match]
    base = rows["layer 1"] + 42
    sheet.arrow((asks, base), (asks, base + 22), (answers, base + 22), (answers, base), kind="flow", width=2.2)
    sheet.text(asks - 8, base + 35, f"what came after {tokens[-1]}?", anchor="end")
    sheet.arrow((asks, base + 22), (asks, rows["layer 2"]), kind="flow", width=2.2)
    sheet.labelled(asks - 33, rows["layer 2"], 66, 28, "context", f"next: {behind}")
    layer_1 = [f"{b} after {a}" for a, b in pairs]
    return sheet.finish(
        "Induction with two heads",
        [
            "tokens: " + " ".join(tokens),
            "layer 1, previous token: " + ", ".join([tokens[0], *layer_1]),
            f"layer 2, induction: {tokens[-1]} looks at {behind} after {tokens[-1]}, so {behind} is next",
        ],
    )


def word_links(
    source: Sequence[str],
    target: Sequence[str],
    weights: Tensor | ArrayLike,
    *,
    title: str = "What each token attends to",
) -> Drawing:
    """Draw two sentences with a line from each target token to the source tokens that it attends to.

    Args:
        source: S tokens, above.
        target: T tokens, below.
        weights: (T, S); a line is as thick as its weight, rounded to a tenth. Weights below 0.2 have no line.
        title: what the drawing shows.

    Raises:
        ValueError: if the weights don't match the tokens.

    Example:
        >>> word_links(["neko", "da"], ["a", "cat"], [[0.1, 0.0], [0.9, 0.1]])
        What each token attends to
        cat attends to neko with 0.9
    """
    shares = as_numbers(weights)
    if shares.shape != (len(target), len(source)):
        raise ValueError(
            f"weights of shape {shares.shape} must have the shape {(len(target), len(source))}: one row for each "
            "target token and one column for each source token"
        )
    source, target = on_one_line(source), on_one_line(target)
    sheet = Canvas(172)

    def boxes(tokens: Sequence[str]) -> list[tuple[float, float]]:
        """Left edge and width of boxes as wide as their tokens."""
        gap = 4.0
        widths = [SMALL * width_of(token) / 2 + 7 for token in tokens]
        scale = min((WIDTH - 16 - gap * (len(tokens) - 1)) / sum(widths), 2.5)
        first = (WIDTH - scale * sum(widths) - gap * (len(tokens) - 1)) / 2
        lefts = [first + sum(widths[:i]) * scale + gap * i for i in range(len(tokens))]
        return [(x, width * scale) for x, width in zip(lefts, widths, strict=True)]

    above, below = boxes(source), boxes(target)
    for token, (x, width) in zip(source, above, strict=True):
        sheet.labelled(x, 22, width, 28, "key", token)
    sentences = []
    for token, (x, width), row in zip(target, below, shares.tolist(), strict=True):
        sheet.parts.append("<g>")  # word_links.js looks here for the lines of this token
        links = [(s, round(weight, 1)) for s, weight in enumerate(row) if weight >= 0.2]
        for s, weight in links:
            to = above[s][0] + above[s][1] / 2
            sheet.line((x + width / 2, 121), (to, 51), kind="flow", width=6 * weight)
        sheet.labelled(x, 122, width, 28, "query", token)
        sheet.parts.append("</g>")
        if links:
            listed = ", ".join(f"{source[s]} with {weight}" for s, weight in links)
            sentences.append(f"{token} attends to {listed}")
    return sheet.finish(title, sentences)


def attention_shapes(batch: int | None = None) -> Drawing:
    """Draw the matrices of attention as blocks: equal letters are sides of equal length.

    Args:
        batch: number of sequences, drawn as a stack of so many cards; a single one when not given.

    Example:
        >>> attention_shapes()
        The matrices of attention and their shapes
        q (T, D) times k.mT (D, S), divided by √D, softmax: weights (T, S)
        weights (T, S) times v (S, Dv): out (T, Dv)
    """
    sides = {"T": 44, "S": 84, "D": 62, "Dv": 100}
    blocks = {  # left and top
        "q": ("query", "T", "D", 24, 148),
        "k.mT": ("key", "D", "S", 178, 48),
        "weights": ("weights", "T", "S", 178, 148),
        "v": ("value", "S", "Dv", 326, 26),
        "out": ("context", "T", "Dv", 326, 148),
    }
    sheet = Canvas(222)
    for name, (kind, rows, columns, x, y) in blocks.items():
        wide, high = sides[columns], sides[rows]
        for card in range((batch or 1) - 1, 0, -1):
            sheet.box(x + 4 * card, y - 4 * card, wide, high, kind, corner=2)
        sheet.labelled(x, y, wide, high, kind, name, corner=2)
        low = y + high / 2 if name in ("q", "k.mT", "v") else y + 33  # below the arrow
        sheet.text(x - 10, low, rows, bold=rows in "DS")
        sheet.text(x + wide / 2, y + high + 12, columns, bold=columns in "DS")
    for start, end, above, below in ((98, 178, "@ k.mT", "softmax"), (274, 326, "@ v", "")):
        sheet.arrow((start, 164), (end, 164))
        middle = start + (32 if below else 22)
        sheet.text(middle, 150, above)
        if below:
            sheet.text(middle, 178, below)

    def of(name: str) -> str:
        axes = [*(["B"] if batch else []), *blocks[name][1:3]]
        return f"{name} ({', '.join(axes)})"

    return sheet.finish(
        "The matrices of attention and their shapes",
        [
            f"{of('q')} times {of('k.mT')}, divided by √D, softmax: {of('weights')}",
            f"{of('weights')} times {of('v')}: {of('out')}",
        ],
    )


def position_methods() -> Drawing:
    """Draw what tells attention the positions: rows that are added, turns of queries and keys, and a bias.

    Example:
        >>> print(position_methods().text.splitlines()[1])
        sinusoidal, learned: each position has a row, which is added to the token
    """
    sheet = Canvas(190)
    size, cell, top = 8, 13, 42
    place = np.arange(size)
    middles = 78, 220, 362
    ways = "a row is added", "a rotation", "a bias"
    names = "sinusoidal, learned", "RoPE", "ALiBi"
    for x, way, name in zip(middles, ways, names, strict=True):
        sheet.text(x, 20, way, bold=True)
        sheet.text(x, 170, name)
    angles = place[:, None] / 10.0 ** np.arange(0, 2, 0.5)
    rows = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(size, size)
    left = middles[0] - size * cell / 2
    sheet.table(left, top, size, size, "stream", cell=(cell, cell), shades=(rows + 1) / 2)
    x, y = middles[1], top + size * cell / 2
    for turn in range(4):
        angle = 0.9 - 0.6 * turn
        u, v = np.cos(angle), np.sin(angle)
        sheet.line((x - 26, y), (x - 26 + 52 * u, y + 52 * v), kind="flow", width=3)
        sheet.text(x - 26 + 64 * u, y + 64 * v, str(turn))
    left = middles[2] - size * cell / 2
    distance = place[:, None] - place
    sheet.cells(distance >= 0, left, top, (cell, cell))
    sheet.shades(np.where(distance > 0, distance / size, 0.0), left, top, (cell, cell))
    return sheet.finish(
        "Three ways to tell attention the positions",
        [
            "sinusoidal, learned: each position has a row, which is added to the token",
            "RoPE: queries and keys turn further with each position",
            "ALiBi: the farther the key, the more is subtracted from the score",
        ],
    )


def training_loop(sections: Mapping[str, str] | None = None) -> Drawing:
    """Draw the loop that trains a translator, and how the translator is tested.

    Args:
        sections: a label for some of the parts "batch", "model", "loss", "gradient", "step" and "score".

    Raises:
        ValueError: if there is no such part.

    Example:
        >>> print(training_loop({"loss": "12.2"}).text.splitlines()[1])
        a batch goes through the model: logits, which the loss (12.2) compares with the targets
    """
    labels = dict(sections or {})
    parts = {
        "pairs": ("vector", 10, 44, 60),
        "batch": ("vector", 96, 44, 60),
        "model": ("weights", 182, 44, 72),
        "logits": ("vector", 280, 44, 60),
        "loss": ("operation", 366, 44, 60),
        "gradient": ("vector", 360, 116, 72),
        "step": ("operation", 188, 116, 60),
        "new pairs": ("vector", 10, 186, 80),
        "outputs": ("vector", 188, 186, 62),
        "score": ("operation", 366, 186, 60),
    }
    captioned = ("batch", "model", "loss", "gradient", "step", "score")
    if wrong := [name for name in labels if name not in captioned]:
        raise ValueError(f"sections {wrong} must be among {list(captioned)}")
    sheet = Canvas(240)
    for name, (kind, x, y, wide) in parts.items():
        sheet.labelled(x, y, wide, 30, kind, name)
        if name in labels:
            middle, anchor = x + wide / 2, "middle"
            if name == "loss":  # beside its arrow
                middle, anchor = middle - 10, "end"
            sheet.text(
                middle,
                y - 13 if name == "model" else y + 44,
                labels[name],
                anchor=anchor,
                kind="quiet",
            )
    for start, end in ((70, 96), (156, 182), (254, 280), (340, 366)):
        sheet.arrow((start, 59), (end, 59))
    sheet.arrow((126, 44), (126, 16), (416, 16), (416, 44))
    sheet.text(300, 25, "targets", kind="quiet")
    sheet.arrow((396, 74), (396, 116))
    sheet.arrow((360, 131), (248, 131))
    sheet.arrow((218, 116), (218, 74))
    sheet.arrow((90, 201), (188, 201))
    sheet.text(139, 191, "model", kind="quiet")
    sheet.arrow((250, 201), (366, 201))

    def full(name: str) -> str:
        return f"{name} ({labels[name]})" if name in labels else name

    return sheet.finish(
        "A loop that trains a translator, and its test",
        [
            f"a {full('batch')} goes through the {full('model')}: logits, which the {full('loss')} compares with the "
            "targets",
            f"the {full('gradient')} of the loss and the optimizer's {full('step')} change the model",
            f"new pairs go through the model, and the outputs get a {full('score')}",
        ],
    )


def token_columns(named: Mapping[str, tuple[Sequence[str], Sequence[int]]], *, pad: str = "<pad>") -> Drawing:
    """Draw sequences as columns of tokens with their ids, one line for each position.

    Args:
        named: a name, and the tokens and ids of each sequence; at most 3.
        pad: the padding token, which is drawn pale.

    Raises:
        ValueError: if there are more sequences, or a token has no id.

    Example:
        >>> token_columns({"tgt": (["a", "cat"], [5, 7])})
        Sequences of tokens, one line for each position
        tgt: a cat
    """
    if not 1 <= len(named) <= 3:
        raise ValueError(f"token_columns draws 1 to 3 sequences, not {len(named)}")
    for name, (tokens, ids) in named.items():
        if len(tokens) != len(ids):
            raise ValueError(f"{name!r} has {len(tokens)} tokens and {len(ids)} ids; each token needs one id")
    longest = max(len(tokens) for tokens, _ in named.values())
    high, wide, top = 24, 128, 36
    sheet = Canvas(top + high * longest + 12)
    words = []
    for column, (name, (tokens, ids)) in enumerate(named.items()):
        left = 32 + column * (wide + 8)
        sheet.text(left + wide / 2, 20, name, bold=True)
        for row, (token, number) in enumerate(zip(tokens, ids, strict=True)):
            y, kind = top + row * high, "unlit" if token == pad else "vector"
            sheet.box(left, y, wide, high, kind)
            quiet = "quiet" if token == pad else None
            sheet.text(left + 8, y + high / 2, short(token, 7), anchor="start", kind=quiet)
            sheet.text(left + wide - 8, y + high / 2, f"{int(number)}", anchor="end", kind=quiet)
        words.append(f"{name}: {' '.join(tokens)}")
    for row in range(longest):
        sheet.text(22, top + (row + 0.5) * high, f"{row}", anchor="end", kind="quiet")
    return sheet.finish("Sequences of tokens, one line for each position", words)


def vocabulary() -> Drawing:
    """Draw the legend: the colours and shapes of all diagrams with their meanings."""
    step, left, right = 46, 20, 232
    sheet = Canvas(5 * step + 18)
    tensors = {
        "query": "query: asks",
        "key": "key: is found",
        "value": "value: handed over",
        "context": "context, output",
        "vector": "tokens, states",
    }
    others = ["scores", "weights: strong is 1", "hidden by a mask", "an operation", "a stream; + adds to it"]
    heights = [16 + i * step for i in range(5)]
    for y, (kind, name) in zip(heights, tensors.items(), strict=True):
        sheet.table(left, y, 3, 3, kind)
        sheet.text(left + 46, y + 16.5, name, anchor="start")
    for y, name in zip(heights, others, strict=True):
        sheet.text(right + 46, y + 16.5, name, anchor="start")
    sheet.table(right, heights[0], 3, 3, "scores")
    shares = np.array([[0.7, 0.2, 0.1], [0.1, 0.9, 0.0], [0.3, 0.2, 0.5]])
    sheet.table(right, heights[1], 3, 3, "weights", shades=shares)
    sheet.cells(np.tri(3, dtype=bool), right, heights[2], (11, 11))
    sheet.box(right - 4, heights[3] + 6, 41, 22, "operation", corner=11)
    sheet.line((right - 7, heights[4] + 16.5), (right + 40, heights[4] + 16.5), kind="stream", width=5)
    sheet.plus(right + 16.5, heights[4] + 16.5)
    return sheet.finish("What the colours and shapes of the drawings mean", [*tensors.values(), *others])


def _three_axes(name: str, values: Tensor | ArrayLike) -> tuple[int, ...]:
    sizes = as_numbers(values).shape
    if len(sizes) != 3:
        raise ValueError(f"{name} of shape {sizes} must have three axes: sequences, tokens, numbers")
    return sizes


def ring(step: int = 0) -> Drawing:
    """Draw four processes in a ring: queries and outputs stay, keys and values go round.

    Args:
        step: how often keys and values have been passed on, 0 to 3.

    Raises:
        ValueError: if step is not one of these.

    Example:
        >>> ring(1).text.splitlines()[1]
        'process 0 holds q 0, k 3 and v 3; it updates out 0 and sends k 3 and v 3 to process 1'
    """
    count = 4
    if step not in range(count):
        raise ValueError(f"step ({step!r}) must be 0, 1, 2 or 3: there are 4 blocks")
    sheet, words = Canvas(206), []
    for rank in range(count):
        x, owner = 10 + 107 * rank, (rank - step) % count
        sheet.text(x + 49, 17, f"process {rank}", kind="quiet")
        sheet.box(x, 30, 98, 126, "unlit", corner=5)
        sheet.labelled(x + 8, 40, 82, 24, "query", f"q {rank}")
        sheet.labelled(x + 8, 74, 38, 24, "key", f"k {owner}")
        sheet.labelled(x + 52, 74, 38, 24, "value", f"v {owner}")
        sheet.labelled(x + 8, 122, 82, 24, "context", f"out {rank}")
        sheet.arrow((x + 49, 64), (x + 49, 122))
        words.append(
            f"process {rank} holds q {rank}, k {owner} and v {owner}; it updates out {rank} and sends "
            f"k {owner} and v {owner} to process {(rank + 1) % count}"
        )
    for x in (100, 207, 314):  # over the frames
        sheet.arrow((x, 86), (x + 25, 86), kind="flow")
    sheet.arrow((421, 86), (434, 86), (434, 168), (4, 168), (4, 86), (18, 86), kind="flow")
    sheet.text(220, 188, "keys and values travel, queries and outputs stay")
    return sheet.finish("Four processes in a ring, and what each of them holds", words)


def divided_cache() -> Drawing:
    """Draw a decoding step with a cache that is divided among four processes: one query, four outputs, one merge.

    Example:
        >>> divided_cache().text.splitlines()[2]
        'process 0 keeps k 0 and v 0, gets the query, and computes out 0 and its logsumexp'
    """
    sheet = Canvas(248)
    words = ["the process with the new token sends its query to all others"]
    sheet.labelled(160, 10, 120, 24, "query", "new query")
    sheet.labelled(160, 178, 120, 24, "operation", "merge")
    sheet.labelled(160, 214, 120, 24, "context", "output")
    sheet.arrow((220, 202), (220, 214))
    for rank in range(4):
        x = 10 + 107 * rank
        sheet.box(x, 56, 98, 98, "unlit", corner=5)
        sheet.text(x + 49, 69, f"process {rank}", kind="quiet")
        sheet.labelled(x + 8, 82, 38, 24, "key", f"k {rank}")
        sheet.labelled(x + 52, 82, 38, 24, "value", f"v {rank}")
        sheet.labelled(x + 8, 122, 82, 24, "context", f"out {rank}")
        sheet.arrow((x + 49, 106), (x + 49, 122))
        inner = 175 + 30 * rank
        sheet.arrow((inner, 34), (x + 49, 56), kind="flow")
        sheet.arrow((x + 49, 154), (inner, 178), kind="flow")
        words.append(
            f"process {rank} keeps k {rank} and v {rank}, gets the query, and computes out {rank} and its logsumexp"
        )
    words.append("the four outputs and logsumexps are merged into one output")
    return sheet.finish("Four processes, each with a part of the cache, and one query", words)


def latent_cache() -> Drawing:
    """Draw what latent attention stores, and a score computed in two ways: with an expanded key, or with W_k absorbed.

    Example:
        >>> latent_cache().text.splitlines()[3]
        'absorbed: the query times W_k transposed, then a dot product with each latent'
    """
    sheet = Canvas(222)
    sheet.labelled(16, 22, 60, 24, "vector", "token x")
    sheet.labelled(106, 22, 52, 24, "operation", "W_c")
    sheet.box(190, 8, 110, 52, "unlit", corner=5)
    sheet.labelled(202, 22, 86, 24, "context", "latent c")
    sheet.arrow((76, 34), (106, 34))
    sheet.arrow((158, 34), (202, 34))
    sheet.text(312, 34, "all that is cached", anchor="start", kind="quiet")
    for top, title, cost in (
        (104, "expanded", "W_k is applied to every cached token"),
        (184, "absorbed", "W_k is applied to the new query alone"),
    ):
        sheet.text(10, top - 22, title, anchor="start", bold=True)
        sheet.text(100, top - 22, cost, anchor="start", kind="quiet")
        sheet.labelled(10, top, 78, 24, "context", "latent c")
        sheet.labelled(376, top, 56, 24, "query", "query")
    sheet.arrow((88, 116), (106, 116))
    sheet.labelled(106, 104, 50, 24, "operation", "W_k")
    sheet.arrow((156, 116), (174, 116))
    sheet.labelled(174, 104, 50, 24, "key", "key")
    sheet.arrow((224, 116), (244, 116))
    sheet.labelled(244, 104, 112, 24, "operation", "dot product")
    sheet.arrow((376, 116), (356, 116))
    sheet.arrow((88, 196), (108, 196))
    sheet.labelled(108, 184, 112, 24, "operation", "dot product")
    sheet.arrow((240, 196), (220, 196))
    sheet.labelled(240, 184, 56, 24, "query", "query'")
    sheet.arrow((312, 196), (296, 196))
    sheet.labelled(312, 184, 48, 24, "operation", "W_kᵀ")
    sheet.arrow((376, 196), (360, 196))
    return sheet.finish(
        "A latent in the cache, and a score in two ways",
        [
            "token x times W_c: latent c, which is all that is cached",
            "expanded: each latent times W_k is a key, then a dot product of each key with the query",
            "absorbed: the query times W_k transposed, then a dot product with each latent",
        ],
    )


def picture_as_tokens(image: Tensor | ArrayLike, size: int) -> Drawing:
    """Draw how a Vision Transformer reads an image: one token for each patch, and a class token.

    Args:
        image: (height, width), from 0 for paper to 1 for ink, at most 8 × 8 pixels.
        size: the side of a patch in pixels, which divides both; at most 16 patches.

    Raises:
        ValueError: if the picture is too large to draw, or its patches are too many or do not fit.

    Example:
        >>> picture_as_tokens([[0.0, 1.0], [0.5, 0.0]], size=1)
        A picture of 2 × 2 pixels as 4 tokens
        4 patches of 1 × 1 become vectors, row by row, each with its place added
        a class token goes in front, and what the layers make of it goes to the logits
    """
    ink = as_numbers(image)
    if ink.ndim != 2 or max(ink.shape) > 8 or 0 in ink.shape:
        raise ValueError(f"image of shape {ink.shape} must have two axes of 1 to 8 pixels to be drawn")
    height, width = ink.shape
    if size < 1 or height % size or width % size:
        raise ValueError(f"size ({size}) must divide height ({height}) and width ({width})")
    count = height // size * (width // size)
    if count > 16:
        raise ValueError(f"size ({size}) makes {count} patches; at most 16 can be drawn")
    sheet, cell = Canvas(196), 12
    left, top = 14, 40
    sheet.text(left, 22, "patches", anchor="start", kind="quiet")
    sheet.table(left, top, height, width, "stream", cell=(cell, cell), shades=ink)
    for row in range(size, height, size):
        sheet.line((left, top + row * cell), (left + width * cell, top + row * cell), kind="mark", width=2)
    for column in range(size, width, size):
        x = left + column * cell
        sheet.line((x, top), (x, top + height * cell), kind="mark", width=2)
    sheet.arrow((left + width * cell + 8, 56), (152, 56))
    sheet.text(174, 22, f"{count} tokens, row by row", anchor="start", kind="quiet")
    sheet.box(152, 44, 13, 24, "query", corner=2)
    for i in range(count):
        sheet.box(174 + 16 * i, 44, 13, 24, "vector", corner=2)
    end = 174 + 16 * count
    sheet.labelled(152, 92, max(end - 152, 120), 32, "unlit", "layers")
    for x in (158.5, 180.5, end - 9.5):
        sheet.arrow((x, 68), (x, 92))
    sheet.arrow((158.5, 124), (158.5, 150))
    sheet.labelled(114, 150, 90, 28, "context", "class token")
    sheet.arrow((204, 164), (250, 164))
    sheet.labelled(250, 150, 80, 28, "vector", "logits")
    return sheet.finish(
        f"A picture of {height} × {width} pixels as {count} tokens",
        [
            f"{count} patches of {size} × {size} become vectors, row by row, each with its place added",
            "a class token goes in front, and what the layers make of it goes to the logits",
        ],
    )
