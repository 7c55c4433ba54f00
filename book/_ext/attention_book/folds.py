"""Fold optional sections, imports and tables of measurements."""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import reading_time
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

LINES_OF_A_CELL = 10_000  # a line of the n-th cell, counted from 1, is n times this and its line in the cell


def minutes(cells: list[dict[str, Any]]) -> int:
    whole = sum((reading_time.reading(cell, folded=True) for cell in cells), reading_time.Reading())
    return max(1, round(whole.minutes))


def fold_section(section: nodes.section, kind: str, label: str, inside: Sequence[str] = ()) -> None:
    """Make the heading of a section open and close it; the label stands beside the heading, the titles below it."""
    title = section.index(section.next_node(nodes.title))
    html = f'<span class="detail-label">{label}</span>'
    if inside:
        html += f'<span class="detail-titles">{escape(" · ".join(inside))}</span>'
    section.insert(title + 1, nodes.raw("", html + "</summary>", format="html"))
    section.insert(title, nodes.raw("", f'<details class="{kind}"><summary>', format="html"))
    section.append(nodes.raw("", "</details>", format="html"))


def fold_details(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Fold each section that its notebook has collapsed: its heading opens it and says how many minutes it takes.

    *Going deeper* would open dozens of screens, so each of its sections has a fold of its own.

    The section stays a section, so that its number, its anchors and its place in the contents are what they were.
    A button below the title of the page opens all its folds (details.js).
    """
    path = Path(app.env.doc2path(page))
    if app.builder.format != "html" or path.suffix != ".ipynb":
        return
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    folded = {detail.start: detail for detail in reading_time.details(cells)}
    for section in list(doctree.findall(nodes.section)):
        cell, line = divmod(section.line or 0, LINES_OF_A_CELL)
        if cell - 1 not in folded or line > 2:  # a heading further down its cell begins another section
            continue
        detail = folded.pop(cell - 1)
        inner = [part for part in section if isinstance(part, nodes.section)]
        starts = [part.line // LINES_OF_A_CELL - 1 for part in inner]
        stops = [*starts[1:], detail.stop][: len(inner)]
        for part, start, stop in zip(inner, starts, stops, strict=True):
            if not re.search(r"Exercises?\b", part.next_node(nodes.title).astext()):
                fold_section(part, "detail part", f"{minutes(cells[start:stop])} min")
        label = f"Optional · {minutes(cells[detail.start : detail.stop])} min"
        fold_section(section, "detail", label, [part.next_node(nodes.title).astext() for part in inner])
    button = '<p class="folds" data-pagefind-ignore><button type="button">Open all folded parts</button></p>'
    next(doctree.findall(nodes.section)).insert(1, nodes.raw("", button, format="html"))
    for detail in folded.values():
        logger.warning("the section %r is to be folded, but the page has none such", detail.title, location=page)


def fold_code(app: Sphinx, doctree: nodes.document) -> None:
    """Fold the imports of a chapter and all code that has the tag "hide-input".

    MyST-NB itself covers an output that has the tag "hide-output": the reader is to answer first.
    """
    for cell in list(doctree.findall(nodes.container)):
        if {"tag_imports", "tag_hide-input"} & set(cell["classes"]):
            cell.attributes.pop("hide_mode", None)  # otherwise MyST-NB adds its own fold
            if "tag_hide-output" in cell["classes"]:
                cell["hide_mode"] = "output"
            cell.insert(1, nodes.raw("", "</details>", format="html"))
            label = "Imports" if "tag_imports" in cell["classes"] else "Show the code"
            opening = f'<details class="source"><summary>{label}</summary>'
            cell.insert(0, nodes.raw("", opening, format="html"))


def fold_measurements(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Fold the tables of measurements, so that the headings of the page on costs stay together."""
    if page != "book/costs" or app.builder.format != "html":
        return
    for section in list(doctree.findall(nodes.section)):
        if "measured-on-a-cpu" in section.parent.get("ids", ()):
            section.insert(1, nodes.raw("", "<details><summary>Show the table</summary>", format="html"))
            section.append(nodes.raw("", "</details>", format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", fold_code)
    app.connect("doctree-resolved", fold_details)
    app.connect("doctree-resolved", fold_measurements)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
