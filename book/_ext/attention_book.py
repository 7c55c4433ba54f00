"""What this book adds to Sphinx: its address, folds, Japanese marked, its bibliography.

The links that it makes are in crosslinks.py, its formulas in mathml.py, its search in search_index.py, the small
figure of its first page in front_page_figure.py, cells that run in the page in live_cells.py, the translator in the
page in browser_translator.py, the pages of mistakes in mistakes.py, and what makes its pages light in
optimize_pages.py.
"""

import json
import posixpath
import re
import sys
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from pybtex.database import parse_file
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.template import FieldIsMissing, field, join, node, sentence
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import reading_time

logger = logging.getLogger(__name__)

LINES_OF_A_CELL = 10_000  # a line of the n-th cell, counted from 1, is n times this and its line in the cell

JAPANESE = re.compile(r"[\u3001-\u30ff\u3400-\u9fff\uff01-\uff9f]+")
TAGS = re.compile(r"(<(script|style|svg|textarea)\b.*?</\2>|<!--.*?-->|<[^>]*>)", re.DOTALL)
ADDRESS = re.compile(r'(\s(?:href|src|action|data-content_root)=")(?!#|[a-z]+:|//)([^"]*)"')


def derive_addresses(app: Sphinx, config: Config) -> None:
    """Derive the website's address on GitHub Pages from the repository's, unless html.baseurl says another.

    A book without an address has no button that would lead there.
    """
    options = config.html_theme_options
    repository = options.get("repository_url") or ""
    for button in ("use_repository_button", "use_issues_button", "use_edit_page_button"):
        options[button] = bool(repository)
    if not repository:
        options.update(repository_url="", launch_buttons={})
    elif not config.html_baseurl:
        owner, name = urlsplit(repository).path.strip("/").split("/")[:2]
        config.html_baseurl = f"https://{owner}.github.io/{name}/"
    config.ogp_site_url = config.html_baseurl
    config.ogp_social_cards = {**config.ogp_social_cards, "enable": bool(config.html_baseurl)}
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path or "/"


def remove_cards(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Remove what social networks read where the site has no address, because a card needs full addresses."""
    if not app.config.html_baseurl:
        context["metatags"] = re.sub(r'<meta property="og:[^>]*>\s*', "", context.get("metatags", ""))


def write_docstring_math(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the docstrings' $formulas$ and arXiv numbers into what reStructuredText understands."""
    text = "\n".join(lines)
    text = re.sub(r"(?<![\w$`\\])\$([^$`]+?)\$(?![\w$])", lambda m: f":math:`{' '.join(m[1].split())}`", text)
    text = re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"`arXiv:\1 <https://arxiv.org/abs/\1>`__", text)
    text = re.sub(r"doi:(10\.\d{4,}/[\w./-]*\w)", r"`doi:\1 <https://doi.org/\1>`__", text)
    lines[:] = text.split("\n")


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


def remove_computations(app: Sphinx, doctree: nodes.document) -> None:
    """Remove the comments of *Test yourself* that compute its numbers: only a test reads them."""
    for comment in list(doctree.findall(nodes.raw)):
        if comment.astext().startswith("<!-- compute "):
            comment.parent.remove(comment)


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


def hide_empty_verdicts(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Leave out what a check says before anything is written: on a page it would only look like a mistake."""
    for cell in list(doctree.findall(nodes.container)):
        verdict = "cell_output" in cell["classes"] and "tag_exercise" in cell.parent["classes"]
        if verdict and cell.astext().startswith("Not written yet"):
            cell.parent.remove(cell)


def mark_japanese(body: str) -> str:
    """Say which words are Japanese, so that they are read aloud, and drawn, as such."""
    parts = TAGS.split(body)
    for index in range(0, len(parts), 3):  # text, a tag, the name of a tag that is left alone
        parts[index] = JAPANESE.sub(lambda words: f'<span lang="ja">{words[0]}</span>', parts[index])
        if index + 2 < len(parts):
            parts[index + 2] = ""
    return "".join(parts)


def keep_one_copy(body: str) -> str:
    """Leave the scripts of the explorable figures, which each brings along in its notebook, on the page once."""
    seen: set[str] = set()

    def first(script: re.Match[str]) -> str:
        if script[0] in seen:
            return ""
        seen.add(script[0])
        return script[0]

    return re.sub(r"<script data-explore>.*?</script>", first, body, flags=re.DOTALL)


def mend_html(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend what Sphinx writes.

    A signature of several lines becomes lines: Sphinx's is a list without terms, which screen readers reject.
    The size of a figure moves from its style to attributes, so that a narrow screen shrinks it in proportion.
    The corner of a table that names nothing is no heading.
    A drawing of the machine becomes a part of the page, where its text can be selected and its colours know the night.
    Japanese says that it is Japanese.
    """
    files = {name: Path(app.srcdir, source) for source, name in getattr(app.builder, "images", {}).items()}

    def drawn(image: re.Match[str]) -> str:
        file = files.get(image["name"])
        svg = file.read_text(encoding="utf-8").strip() if file else ""
        if 'class="drawing"' not in svg:
            return image[0]
        alt = re.search(r'alt="([^"]+)"', image[0])
        return re.sub(r'aria-label="[^"]*"', lambda said: f'aria-label="{alt[1]}"' if alt else said[0], svg, count=1)

    def lines(parameters: re.Match[str]) -> str:
        text = parameters[2].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
        return parameters[1] + text

    if doctree is not None:
        parameters = r'(<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>'
        body = re.sub(parameters, lines, context["body"], flags=re.S)
        size = r'(<img [^>]*)style="width: (\d+)px; height: (\d+)px;"'
        body = re.sub(size, r'\1width="\2" height="\3"', body)
        body = re.sub(r'<img [^>]*src="[^"]*_images/(?P<name>[^"/]+\.svg)"[^>]*>', drawn, body)
        body = re.sub(r'<th class="head">(?:<p></p>)?</th>', '<td class="head"></td>', body)
        context["body"] = keep_one_copy(mark_japanese(body))


def serve_the_first_page(app: Sphinx, exception: Exception | None) -> None:
    """Put the first page at the site's own address, with its title and card, where a redirection would stand."""
    if exception or app.builder.format != "html":
        return
    page = app.config.root_doc
    folder = page.rpartition("/")[0]

    def from_the_top(attribute: re.Match[str]) -> str:
        path, mark, rest = re.match(r"([^?#]*)([?#]?)(.*)", attribute[2]).groups()
        if attribute[1].strip().startswith("data-content_root"):
            return f'{attribute[1]}./"'
        moved = posixpath.normpath(posixpath.join(folder, path)) if path else f"{page}.html"
        return f'{attribute[1]}{moved}{mark}{rest}"'

    if folder:
        text = Path(app.outdir, f"{page}.html").read_text(encoding="utf-8")
        Path(app.outdir, "index.html").write_text(ADDRESS.sub(from_the_top, text), encoding="utf-8")


@node
def first_names(children: Any, context: dict[str, Any], role: str, most: int = 6) -> Any:
    """The names of a work's authors; of many, the first few."""
    style, persons = context["style"], context["entry"].persons.get(role)
    if not persons:
        raise FieldIsMissing(role, context["entry"])
    names = [style.format_name(person, style.abbreviate_names) for person in persons]
    if len(names) > most:
        return join(sep=", ")[names[: most - 1]].format_data(context) + " and others"
    return join(sep=", ", last_sep=" and ")[names].format_data(context)


@cache
def all_works() -> list[Any]:
    return list(parse_file(Path(__file__).parents[1] / "references.bib").entries.values())


class AuthorYearLabels(BaseLabelStyle):
    """Label a work as the text does: Vaswani et al. 2017; two of the same names and year are 2017a and 2017b.

    The letters are given over the whole of references.bib, since the book has a list for each subject.
    """

    def format_labels(self, sorted_entries: list[Any]) -> Any:
        for entry in sorted_entries:
            label = self.author_and_year(entry)
            works = sorted(work.fields["title"] for work in all_works() if self.author_and_year(work) == label)
            yield label + (chr(ord("a") + works.index(entry.fields["title"])) if len(works) > 1 else "")

    def author_and_year(self, entry: Any) -> str:
        names = [" ".join([*p.prelast_names, *p.last_names]).strip("{}") for p in entry.persons["author"]]
        who = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else "")
        return f"{who} {entry.fields['year']}"


class BookStyle(Style):
    """Full first names, of many authors the first five, titles as their authors wrote them."""

    default_label_style = AuthorYearLabels
    default_sorting_style = "author_year_title"

    def format_names(self, role: str, as_sentence: bool = True) -> Any:
        names = first_names(role)
        return sentence[names] if as_sentence else names

    def format_title(self, e: Any, which_field: str, as_sentence: bool = True) -> Any:
        title = field(which_field)
        return sentence[title] if as_sentence else title


def remove_leftovers(app: Sphinx, exception: Exception | None) -> None:
    """Remove what no page asks for: templates, source maps, and every icon there is, as a script and as fonts."""
    if exception is None and app.builder.format == "html":
        for pattern in ("*.map", "*webpack-macros.html", "fontawesome.js*", "webfonts/*"):
            for path in Path(app.outdir, "_static").rglob(pattern):
                path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    register_plugin("pybtex.style.formatting", "attention_book", BookStyle)
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("config-inited", derive_addresses, priority=100)
    if app.config.html_baseurl or app.config.html_theme_options.get("repository_url"):
        app.setup_extension("sphinx_sitemap")  # a map of the site is made of full addresses
    else:
        app.add_config_value("sitemap_url_scheme", "", "")
    app.connect("autodoc-process-docstring", write_docstring_math, priority=900)
    app.setup_extension("crosslinks")
    app.setup_extension("download")
    app.setup_extension("substitutions")
    app.setup_extension("front_page_figure")
    app.setup_extension("mathml")
    app.setup_extension("mistakes")
    app.setup_extension("search_index")
    app.setup_extension("live_cells")
    app.setup_extension("browser_translator")
    app.setup_extension("optimize_pages")
    app.connect("doctree-read", fold_code)
    app.connect("doctree-read", remove_computations)
    app.connect("doctree-resolved", fold_details)
    app.connect("doctree-resolved", fold_measurements)
    app.connect("doctree-resolved", hide_empty_verdicts)
    app.connect("html-page-context", remove_cards, priority=900)  # after the extension that writes the tags
    app.connect("html-page-context", mend_html, priority=900)  # after the scripts are chosen
    app.connect("build-finished", remove_leftovers)
    app.connect("build-finished", serve_the_first_page, priority=900)  # after the redirection is written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
