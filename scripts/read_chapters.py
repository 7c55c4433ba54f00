"""Read the chapters: the tests of the book and of its exercises see the notebooks through this file."""

import ast
import contextlib
import copy
import functools
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"

EXERCISE = re.compile(
    r"^### Exercise (?P<chapter>\d+)\.(?P<number>\d+) · (?P<title>.+) \((?P<level>◦{1,3}), (?P<minutes>\d+) min\)$"
)
HEADING = re.compile(r"^(?P<marks>#{1,6}) (?P<title>.+)$", re.MULTILINE)
FENCED = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)$", re.DOTALL | re.MULTILINE)
FOLDED = re.compile(r"<details>\s*<summary>(?P<summary>.*?)</summary>(?P<body>.*?)</details>", re.DOTALL)
CHECK = re.compile(r"^check\.(\w+)\(\w+\)$", re.MULTILINE)  # the last line of a starter cell
PYTHON_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    chapter: int
    number: int
    heading: str
    title: str
    level: str
    minutes: int
    statement: str
    starter: str  # the starter cells' code
    hints: tuple[str, ...]
    solutions: tuple[str, ...]  # code; there must be exactly one
    text: str  # all Markdown of the exercise

    @property
    def solution(self) -> str:
        if len(self.solutions) != 1:
            raise ValueError(f"{self.heading!r} must have one folded solution with one python block")
        return self.solutions[0]


def notebook_path(number: int | str) -> Path:
    """The file of a chapter: ``notebook_path("03")`` or ``notebook_path(3)``."""
    (path,) = NOTEBOOKS.glob(f"{int(number):02d}_*.ipynb")
    return path


def notebook(number: int | str) -> NotebookNode:
    """A chapter's notebook, with sources as plain strings; change it freely, it is a copy."""
    return copy.deepcopy(_read(notebook_path(number)))


@functools.cache
def _read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(source: NotebookNode | int | str, tag: str | None = None) -> list[NotebookNode]:
    """The code cells of a notebook (or of the chapter of that number), in order; with ``tag``, only those tagged."""
    found = [cell for cell in as_notebook(source).cells if cell.cell_type == "code"]
    return found if tag is None else [cell for cell in found if tag in cell.metadata.get("tags", [])]


def markdown_cells(source: NotebookNode | int | str) -> list[NotebookNode]:
    return [cell for cell in as_notebook(source).cells if cell.cell_type == "markdown"]


def text(source: NotebookNode | int | str) -> str:
    """All Markdown of a notebook without line ends, so that a sentence is found wherever its lines are broken."""
    return " ".join(" ".join(cell.source.split()) for cell in markdown_cells(source))


def as_notebook(source: NotebookNode | int | str) -> NotebookNode:
    return source if isinstance(source, NotebookNode) else notebook(source)


def headings(text: str) -> list[tuple[int, str, int]]:
    """The headings of a Markdown text as (level, title, position); lines in a fenced block are none."""
    fences = [(block.start(), block.end()) for block in FENCED.finditer(text)]
    return [
        (len(match["marks"]), match["title"].strip(), match.start())
        for match in HEADING.finditer(text)
        if not any(start <= match.start() < end for start, end in fences)
    ]


def exercises(source: NotebookNode | int | str) -> list[Exercise]:
    """The exercises of a notebook (or of the chapter of that number), in order."""
    found, current = [], None
    for cell in as_notebook(source).cells:
        if cell.cell_type == "code":
            if current and "exercise" in cell.metadata.get("tags", []):
                current[1].append(cell.source)
            continue
        starts = [position for level, _, position in headings(cell.source) if level <= 3]
        for start, end in itertools.pairwise([0, *starts, len(cell.source)]):
            part = cell.source[start:end]
            if start in starts:  # a heading ends the exercise before it, and may begin another
                match = EXERCISE.match(part.strip().split("\n")[0])
                current = (match, [], []) if match else None
                if match:
                    found.append(current)
                    part = part.strip().partition("\n")[2]
            if current:
                current[2].append(part)
    return [_exercise(match, starters, "\n\n".join(texts)) for match, starters, texts in found]


def _exercise(match: re.Match, starters: list[str], text: str) -> Exercise:
    folded = [(fold["summary"].strip(), fold["body"]) for fold in FOLDED.finditer(text)]
    return Exercise(
        chapter=int(match["chapter"]),
        number=int(match["number"]),
        heading=match[0],
        title=match["title"],
        level=match["level"],
        minutes=int(match["minutes"]),
        statement=FOLDED.sub("", text).strip(),
        starter="\n".join(starters),
        hints=tuple(body.strip() for summary, body in folded if summary.startswith("Hint")),
        solutions=tuple(
            block["code"]
            for summary, body in folded
            if summary.startswith("Solution")
            for block in PYTHON_BLOCK.finditer(body)
        ),
        text=text,
    )


def imports(source: NotebookNode | int | str) -> dict:
    """The namespace after the chapter's imports cell: what every exercise's solution may use."""
    (cell,) = code_cells(source, tag="imports")
    return run(cell.source, {})


def definitions(number: int | str, constants: tuple[str, ...] = ()) -> dict:
    """The namespace after all imports and the classes, functions and named constants before the exercises."""
    namespace = imports(number)

    def is_kept(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return isinstance(node.targets[0], ast.Name) and node.targets[0].id in constants
        return isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef)

    for cell in code_cells(number):
        if not {"launch", "imports", "exercise"} & set(cell.metadata.get("tags", [])):
            tree = ast.parse(cell.source)
            tree.body = [node for node in tree.body if is_kept(node)]
            exec(compile(tree, f"<chapter {number}>", "exec"), namespace)
    return namespace


def solution(number: int | str, exercise: int) -> dict:
    """The namespace after the chapter's imports cell and the folded solution of one exercise.

    >>> solution("03", 2)["attention_weights"](q, k)  # doctest: +SKIP
    """
    matches = [found for found in exercises(number) if found.number == exercise]
    if len(matches) != 1:
        known = ", ".join(str(found.number) for found in exercises(number)) or "none"
        raise ValueError(f"chapter {number} must have one exercise {exercise}, its exercises are: {known}")
    return run(matches[0].solution, imports(number))


def run(code: str, namespace: dict) -> dict:
    """Run code as a cell would, in the notebooks' folder; what it prints is not the tests' business."""
    namespace.setdefault("__name__", "__main__")
    with contextlib.chdir(NOTEBOOKS), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        exec(compile(code, "<solution>", "exec"), namespace)
    return namespace
