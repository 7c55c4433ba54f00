"""Attention weights that were recorded during training, stored as text. Two figures use them.

`benchmarks/checkpoints.py` writes the records. A row of weights is a string of percentages: two digits for a weight,
a point for 0 and # for 1.
"""

import json
import re
from importlib.resources import files
from typing import Any

import numpy as np

from attn_course.plots.svg import Canvas


def load(name: str) -> dict[str, Any]:
    """Load a record that is part of the package."""
    path = files("attn_course.data") / f"checkpoints_{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def unpack(rows: list[str]) -> np.ndarray:
    """Return the weights of several rows as an array.

    Raises:
        ValueError: if a row holds other signs, or the rows are not equally long.

    Example:
        >>> unpack(["0595", "#."])
        array([[0.05, 0.95],
               [1.  , 0.  ]])
    """
    values = {".": 0.0, "#": 1.0}
    table = []
    for row in rows:
        parts = re.findall(r"\d\d|[.#]", row)
        if "".join(parts) != row:
            raise ValueError(f"a row of weights must be made of two digits, points and #, not {row!r}")
        table.append([values.get(part, int(part) / 100 if part.isdigit() else 0) for part in parts])
    if len({len(row) for row in table}) != 1:
        raise ValueError(f"rows of weights must be equally long, not {[len(row) for row in table]}")
    return np.array(table)


def check_steps(record: dict[str, Any], what: list) -> None:
    """Raise a ValueError unless there is one entry for each recorded step, and at least two steps."""
    steps = record["steps"]
    if len(steps) < 2 or list(steps) != sorted(set(steps)):
        raise ValueError(f"steps {list(steps)} must be two or more, and rise")
    for part in what:
        if len(part) != len(steps):
            raise ValueError(f"a record of {len(steps)} steps must hold as many checkpoints, not {len(part)}")


def draw(sheet: Canvas, table: np.ndarray, x: float, y: float, cell: tuple[float, float]) -> None:
    """Draw weights as shades, starting at x and y."""
    sheet.table(x, y, *table.shape, "unlit", cell=cell)
    sheet.shades(table, x, y, cell)
