"""Formulas as MathML, made when the book is built: no script sets them, and they are there before the page is drawn."""

import unicodedata
from functools import cache
from html import escape, unescape
from pathlib import Path
from re import match, sub
from typing import Any

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

FONT = Path(__file__).parents[2] / "_extra" / "vendor" / "stix"
INVISIBLE = {"Cf", "Zs", "Cc"}  # characters that have no shape of their own
# The prime of the font is raised already; as a superscript it would be raised twice.
PRIMED = r"<msup>(<m[in]\b[^<]*</m[in]>)<mo>([′″‴⁗]+)</mo></msup>"


@cache
def characters_of_font() -> set[str]:
    """The characters that the book's font can draw."""
    return set((FONT / "characters.txt").read_text(encoding="utf-8"))


@cache
def mathml(tex: str, display: bool) -> str:
    """A formula as MathML, with the TeX that it was made of.

    Raises:
        ValueError: What in the formula cannot be read, or which of its characters the font lacks.
    """
    try:
        markup = LatexToMathML(annotation=True, fancy_error=False).convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        raise ValueError(f"the formula {tex!r} cannot be read: {error}") from error
    markup = sub(PRIMED, r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>', markup)
    visible = unescape(sub(r"<annotation.*?</annotation>|<[^>]*>", "", markup))
    lacking = {c for c in visible if unicodedata.category(c) not in INVISIBLE} - characters_of_font()
    if lacking:
        raise ValueError(
            f"the formula {tex!r} needs {' '.join(sorted(lacking))}, which the font in "
            f"{FONT.relative_to(FONT.parents[3])} lacks; its README says how to add characters"
        )
    return markup


def keep_marks(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Keep a formula and the marks after it in one line; a browser may break a line on either side of a formula."""
    for formula in list(doctree.findall(nodes.math)):
        parent, place = formula.parent, formula.parent.index(formula)
        after = parent[place + 1] if place + 1 < len(parent) else None
        if isinstance(after, nodes.Text) and (marks := match(r"[.,:;?!)\]’”–-]+", after)):
            both = nodes.inline("", "", formula, nodes.Text(marks[0]), classes=["no-break"])
            parent[place : place + 2] = [both, nodes.Text(after[marks.end() :])]


def formula_html(node: nodes.Element, display: bool) -> str:
    try:
        return mathml(node.astext().strip(), display)
    except ValueError as error:
        logger.warning("%s", error, location=node)
        return f"<code>{escape(node.astext().strip())}</code>"


def visit_math(translator: Any, node: nodes.math) -> None:
    opening = translator.starttag(node, "span", "", CLASS="math notranslate nohighlight")
    translator.body.append(f"{opening}{formula_html(node, display=False)}</span>")
    raise nodes.SkipNode


def visit_displayed(translator: Any, node: nodes.math_block) -> None:
    opening = translator.starttag(node, "div", "", CLASS="math notranslate nohighlight")
    translator.body.append(f"{opening}{formula_html(node, display=True)}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", keep_marks)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
