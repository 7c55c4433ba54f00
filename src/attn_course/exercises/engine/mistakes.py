"""Read the known mistakes of the exercises from Markdown, one line for one mistake. Used from chapter 0 on.

``chapter_05.md`` has a heading for each exercise of chapter 5, and below it the mistakes, in the order in which a check
tries them::

    ## mask_for_new_tokens

    - **mask inverted**: The mask is upside down. See section 5.4. <!-- {"causal & real": "~(causal & real)"} -->

The comment is a Python dict that maps parts of the right answer's text to their wrong replacements, all made together,
or a list of such dicts: several ways to make the same mistake. A mistake without a comment is recognised by code, which
the exercise gives under the same name.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_HEADING = re.compile(r"## (\w+)")
_LINE = re.compile(r"- \*\*(?P<name>[^*]+)\*\*: (?P<says>(?:(?!<!--).)+?)(?: <!-- (?P<edits>.+) -->)?")


@dataclass(frozen=True)
class Mistake:
    """One mistake, and how it is recognised.

    Args:
        says: what is wrong, in one sentence that names the symptom, then the section to read: "… See section 3.4."
        answer: an answer that makes this mistake, or what is replaced by what in the right one to make it, as in
            ``{"softmax(-1)": "softmax(-2)"}``; whoever gets the same results in every trial made it too. A list has
            several ways to make it.
        sign: where no answer can stand for the mistake: whether ``sign(found, *inputs)`` in every trial that fails.
            It returns None in a later trial that cannot tell, such as one without the row in which it shows.
    """

    says: str
    answer: Callable | dict[str, str] | list[dict[str, str]] | None = None
    sign: Callable[..., bool | None] | None = None


class Line(NamedTuple):
    """One mistake, as a line of Markdown gives it.

    Args:
        name: its name.
        says: the sentence for the learner.
        edits: what is replaced by what in the right answer, a list of these for several ways, or None.
        place: the file and the line, for errors.
    """

    name: str
    says: str
    edits: dict[str, str] | list[dict[str, str]] | None
    place: str


def page_of(chapter: int) -> Path:
    """Return the file with the mistakes of a chapter."""
    return Path(__file__).parents[1] / f"chapter_{chapter:02d}.md"


@cache
def read_mistakes(page: Path) -> dict[str, list[Line]]:
    """Read the known mistakes of all exercises of a chapter.

    Raises:
        ValueError: with the file, the line and the rule, for a line that is no mistake, and for a name that is given
            twice.
    """
    exercises: dict[str, list[Line]] = {}
    lines: list[Line] | None = None
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        place = f"{page.name}, line {number}"
        if heading := _HEADING.fullmatch(text):
            if heading[1] in exercises:
                raise ValueError(f"{place}: the exercise {heading[1]!r} has a heading already")
            lines = exercises[heading[1]] = []
        elif lines is not None and text:  # what stands above the first heading is for readers
            line = _read_line(text, place)
            if line.name in {other.name for other in lines}:
                raise ValueError(f"{place}: the exercise knows the mistake {line.name!r} already")
            lines.append(line)
    return exercises


def _read_line(text: str, place: str) -> Line:
    match = _LINE.fullmatch(text)
    if match is None:
        raise ValueError(f"{place}: a mistake is one line, - **name**: sentence <!-- {{old: new}} -->, not {text!r}")
    edits = None
    if match["edits"] is not None:
        try:
            edits = ast.literal_eval(match["edits"])
        except (SyntaxError, ValueError):
            edits = {}
        if not (_is_edit(edits) or (isinstance(edits, list) and edits and all(map(_is_edit, edits)))):
            raise ValueError(
                f"{place}: a comment is a Python dict of texts, {{old: new}}, or a list of these, not {match['edits']}"
            )
    return Line(match["name"], match["says"], edits, place)


def _is_edit(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(part, str) for item in value.items() for part in item)
    )
