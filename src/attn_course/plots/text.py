"""Check the numbers and tokens of a figure, and write them as text. Used from chapter 2 on."""

from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import category, east_asian_width

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

# What stands below this line is stored for readers, and compared with nothing.
ONE_RUN = "one run, other machines' numbers differ:"
MOST_TOKENS = 1024  # on an axis of a picture, where each then has about one dot
MOST_PANELS = 32
MOST_AS_TEXT = 20_000  # numbers in the text of a picture
MOST_RUNS = 5000  # of hidden cells that are hatched; where there are more, they are grey
LONGEST_NAME = 60  # signs that are drawn, half as many where they are Japanese
_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥"}
_KEPT = "\u200c\u200d"  # these join letters and emoji


def as_numbers(values: Tensor | ArrayLike) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().to("cpu", torch.float64).numpy()
    return np.asarray(values, dtype=np.float64)


def as_tokens(
    shape: tuple[int, ...], queries: Sequence[str], keys: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    if keys is None:
        if shape[0] != shape[1]:
            raise ValueError(f"keys must be given: weights of shape {shape} has more of one than of the other")
        keys = queries
    for name, tokens, size, axis in (("queries", queries, shape[0], "rows"), ("keys", keys, shape[1], "columns")):
        if isinstance(tokens, str):
            raise ValueError(
                f"{name} must be a list of tokens, not one string {tokens!r}; list(text) takes its characters"
            )
        if len(tokens) != size:
            raise ValueError(
                f"{name} ({len(tokens)} tokens) must match the {axis} of weights ({size}), of shape {shape}"
            )
    if 0 in shape:
        raise ValueError(f"weights of shape {shape} has nothing to draw")
    return on_one_line(queries), on_one_line(keys)


def check_length(shape: tuple[int, ...], what: str = "weights") -> None:
    if max(shape[-2:]) > MOST_TOKENS:
        axes = ", ".join([":"] * (len(shape) - 2) + [f":{MOST_TOKENS}"] * 2)
        raise ValueError(
            f"{what} of shape {shape} must have at most {MOST_TOKENS:,} queries and {MOST_TOKENS:,} keys to be drawn; "
            f"draw a part, such as {what}[{axes}]"
        )


def check_panels(count: int) -> None:
    if not 1 <= count <= MOST_PANELS:
        raise ValueError(f"a picture must have 1 to {MOST_PANELS} panels, not {count}")


def on_one_line(texts: Iterable[object]) -> list[str]:
    """Return tokens as they are drawn. A line break or tab becomes a sign, another invisible character its code."""
    return [
        "".join(c if c.isprintable() or c in _KEPT or category(c) == "Zs" else sign_of(c) for c in str(text))
        for text in texts
    ]


def sign_of(character: str) -> str:
    """Return the sign for an invisible character, for example ⏎ for a line break."""
    return _SIGNS.get(character) or character.encode("unicode_escape").decode()


def cut(text: str, longest: int) -> str:
    """Return the beginning and the end of a long text."""
    if width_of(text) <= longest:
        return text
    # A Japanese sign takes the room of two.
    signs = longest * len(text) // width_of(text)
    return text[: signs // 2 - 1] + "…" + text[-(signs // 4) :]


def tokens_of_panels(
    shape: tuple[int, ...],
    queries: Sequence[str] | Sequence[Sequence[str]],
    keys: Sequence[str] | Sequence[Sequence[str]] | None,
) -> tuple[list[tuple[list[str], list[str]]], bool]:
    """The queries and keys of each panel, and whether all panels have the same ones."""

    def for_each_panel(name: str, tokens: Any) -> list[Any]:
        if tokens is None or isinstance(tokens, str) or all(isinstance(token, str) for token in tokens):
            return [tokens] * shape[0]
        if len(tokens) != shape[0]:
            raise ValueError(
                f"{name} ({len(tokens)} lists of tokens) must match the heads ({shape[0]}); weights has shape {shape}"
            )
        return list(tokens)

    pairs = zip(for_each_panel("queries", queries), for_each_panel("keys", keys), strict=True)
    tokens = [as_tokens(shape[1:], *pair) for pair in pairs]
    return tokens, all(pair == tokens[0] for pair in tokens)


def as_mask(mask: Tensor | ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray | None:
    if mask is None:
        return None
    mask = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean with True = may attend, not {mask.dtype}")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError as error:
        raise ValueError(f"mask of shape {mask.shape} must broadcast to the weights, of shape {shape}") from error


def check_scale(grid: np.ndarray, allowed: np.ndarray | None, scale: tuple[float, float], label: str) -> None:
    low, high = scale
    if not low < high:
        raise ValueError(f"scale {scale} must rise: its first number is the lightest colour, its second the darkest")
    visible = grid if allowed is None else grid[allowed]
    visible = visible[~np.isnan(visible)]
    slack = 1e-3 * (high - low)
    if visible.size and (visible.min() < low - slack or visible.max() > high + slack):
        raise ValueError(
            f"{label} {run_of(visible.min(), visible.max())}, outside the scale {scale}; pass scale=(low, high)"
        )


def run_of(low: float, high: float) -> str:
    # Which of 0.0 and -0.0 is the larger differs between processors, so neither keeps its sign.
    low, high = (signless_zero(f"{value:.4g}") for value in (low, high))
    return f"runs from {low} to {high}"


def fixed(value: float, precision: int) -> str:
    return signless_zero(f"{value:.{precision}f}")


def signless_zero(number: str) -> str:
    return number.removeprefix("-") if number.startswith("-") and not number.strip("-0.e+") else number


def as_table(
    grid: np.ndarray, queries: Sequence[str], keys: Sequence[str], precision: int, allowed: np.ndarray | None
) -> str:
    cells = [[fixed(value, precision) for value in row] for row in grid]
    if allowed is not None:
        cells = [[c if ok else "-" for c, ok in zip(*pair, strict=True)] for pair in zip(cells, allowed, strict=True)]
    return as_rows(cells, queries, keys)


def count_of(shape: tuple[int, ...]) -> str:
    """What the text of a picture says where its numbers would make it too long."""
    return f"{shape[-2]:,} queries, {shape[-1]:,} keys; more than {MOST_AS_TEXT:,} numbers are not listed"


def as_rows(cells: list[list[str]], queries: Sequence[str], keys: Sequence[str]) -> str:
    return as_columns(
        ["", *keys],
        [list(queries), *[list(column) for column in zip(*cells, strict=True)]],
    )


def as_columns(heads: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """Lay out columns under their heads: the first flush left, the others flush right."""
    widths = [max(map(width_of, [head, *column])) for head, column in zip(heads, columns, strict=True)]
    lines = []
    for row in zip(
        *[[head, *column] for head, column in zip(heads, columns, strict=True)],
        strict=True,
    ):
        first, *others = row
        parts = [first + " " * (widths[0] - width_of(first))]
        parts += [" " * (width - width_of(cell)) + cell for width, cell in zip(widths[1:], others, strict=True)]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def step_of(cell: float, label: float) -> int:
    """Return n such that a label of this size fits at every n-th cell."""
    return next(n for n in (1, 2, 5, 10, 20, 50, 100) if n * cell >= label or n == 100)


def runs_of(cells: np.ndarray) -> list[tuple[int, int, int]]:
    """Row, first column and the column after the last, of each run of true cells."""
    edges = np.diff(np.pad(cells.astype(int), ((0, 0), (1, 1))))
    starts, stops = np.argwhere(edges == 1).tolist(), np.argwhere(edges == -1).tolist()
    return [(row, start, stop) for (row, start), (_, stop) in zip(starts, stops, strict=True)]


def width_of(text: str) -> int:
    """Columns that a text takes in a terminal: Japanese characters take two."""
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)
