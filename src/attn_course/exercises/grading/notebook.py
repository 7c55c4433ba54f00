"""Read a submitted notebook. Nothing here runs or parses its code, because it may be hostile."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_course import check

_CALL = re.compile(r"\bcheck\s*\.\s*(\w+)\s*\(")
_LARGEST = 100 * 2**20


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Args:
        number: its place among all cells of the notebook, from 1.
        source: its code.
        names: the exercises that are judged after it.
    """

    number: int
    source: str
    names: tuple[str, ...] = ()


def chapter_of(name: str) -> int:
    """Return the number of the chapter that has an exercise."""
    return int(check.MODULE_OF[name][-2:])


def read_notebook(path: Path) -> list[Cell]:
    """Read the code cells of a notebook, but not the cell that installs the course on Colab.

    Raises:
        ValueError: if the file is no notebook of format 4 in JSON, or larger than 100 MB.
        OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{path}: a notebook must have at most {_LARGEST // 2**20} MB")
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{path}: a notebook must be JSON, and this file is not: {reason}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ValueError(f"{path}: a notebook must have a list of cells (Jupyter's format 4)")
    code = [(number, cell) for number, cell in enumerate(cells, start=1) if cell.get("cell_type") == "code"]
    return [Cell(number, _source(cell)) for number, cell in code if "launch" not in _tags(cell)]


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    parts = source if isinstance(source, list) else [source]
    return "".join(part for part in parts if isinstance(part, str))


def _tags(cell: dict[str, Any]) -> list:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return tags if isinstance(tags, list) else []


def place_exercises(cells: list[Cell], requested: list[str]) -> tuple[list[Cell], list[str]]:
    """Say after which cell each exercise is judged: the last one whose code mentions ``check.NAME(``.

    Args:
        cells: the code cells.
        requested: the exercises to grade; if empty, all exercises of the chapters that the notebook mentions.

    Returns:
        The cells with the names, and all exercises to grade, in the order of the notebook; those that it does not
        mention come last.
    """
    last = {name: cell.number for cell in cells for name in _CALL.findall(cell.source) if name in check.MODULE_OF}
    chapters = {chapter_of(name) for name in last}
    graded = requested or [
        *last,
        *(name for name in check.MODULE_OF if chapter_of(name) in chapters and name not in last),
    ]
    graded = sorted(dict.fromkeys(graded), key=lambda name: last.get(name, float("inf")))
    placed = [
        Cell(cell.number, cell.source, tuple(name for name in graded if last.get(name) == cell.number))
        for cell in cells
    ]
    return placed, graded
