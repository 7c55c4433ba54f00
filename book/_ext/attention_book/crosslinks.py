"""Links that are made when the book is built: "section 3.4", the glossary's chapters, the package's names in chapters.

Only the website knows the place of a section, so notebooks stay plain Markdown, which GitHub and Colab can show.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

CHAPTER = re.compile(r"notebooks/(\d\d)_")
NUMBER = re.compile(r"(\d+\.\d+)\s")
# "section 3.4", "Sections 2.2, 2.3 and 2.5", but not the "section 3.2.1" that only a paper has.
SAID = re.compile(r"\b[Ss]ections?\s(?:\d+\.\d+(?:,\s|\sand\s|\sor\s|\sto\s)?)+(?![\d.]*\d)")
ONE = re.compile(r"\d+\.\d+")
GLOSSARY = "book/glossary"
MISTAKES = "book/mistakes"  # pages on which every section is one of a chapter
OF_A_PAPER = re.compile(r"\bpapers?\b|\bet al\.|\bappendix\b", re.IGNORECASE)


@dataclass
class Section:
    page: str
    anchor: str
    bold: set[str] = field(default_factory=set)  # the terms that it introduces, in lower case
    text: str = ""


def sections_of(page: str, doctree: nodes.document) -> Iterator[tuple[str, Section]]:
    """The numbered sections of a chapter, in order."""
    for node in doctree.findall(nodes.section):
        title = node.next_node(nodes.title)
        if title and (number := NUMBER.match(title.astext())):
            bold = {strong.astext().lower() for strong in node.findall(nodes.strong)}
            paragraphs = " ".join(part.astext() for part in node.findall(nodes.paragraph))
            yield number[1], Section(page, node["ids"][0], bold, " ".join(paragraphs.lower().split()))


def find_sections(app: Sphinx, env: BuildEnvironment) -> None:
    """Read the sections of all chapters and the entries of the glossary once."""
    env.course_terms = definitions(env)
    env.course_sections = {
        number: section
        for page in sorted(env.found_docs)
        if CHAPTER.match(page)
        for number, section in sections_of(page, env.get_doctree(page))
    }


def link(app: Sphinx, page: str, section: Section, label: str) -> nodes.reference:
    address = "" if section.page == page else app.builder.get_relative_uri(page, section.page)
    return nodes.reference("", label, internal=True, refuri=f"{address}#{section.anchor}")


def within(node: nodes.Node, *kinds: type[nodes.Node]) -> nodes.Node | None:
    """The nearest of these kinds that a node stands in."""
    while node is not None and not isinstance(node, kinds):
        node = node.parent
    return node


def sentences(block: nodes.TextElement) -> Iterator[tuple[nodes.Text, int, int, bool]]:
    """Each text of a block in pieces of one source line, which is one sentence: does the line name a paper?"""
    pieces, line = [], 0
    papers: set[int] = set()
    for text in block.findall(nodes.Text):
        link = within(text, nodes.reference)
        outside = link is not None and "://" in link.get("refuri", "")
        start = 0
        for part in text.astext().splitlines(keepends=True):
            if outside or OF_A_PAPER.search(part):
                papers.add(line)
            if not within(text, nodes.reference, nodes.literal, nodes.raw, nodes.title):
                pieces.append((text, start, start + len(part), line))
            start += len(part)
            line += part.endswith("\n")
    for text, start, stop, of in pieces:
        yield text, start, stop, of in papers


def link_sections(app: Sphinx, page: str, doctree: nodes.document) -> None:
    """Make a link of each section that a sentence names, unless it is a paper's."""
    for block in list(doctree.findall(lambda node: isinstance(node, nodes.paragraph | nodes.term))):
        references: dict[nodes.Text, list[tuple[int, int, Section]]] = {}
        for text, start, stop, of_a_paper in sentences(block):
            if of_a_paper and not page.startswith(MISTAKES):
                continue
            for mention in SAID.finditer(text.astext(), start, stop):
                numbers = list(ONE.finditer(text.astext(), mention.start(), mention.end()))
                for number in numbers:
                    if section := app.env.course_sections.get(number[0]):
                        begin = mention.start() if len(numbers) == 1 else number.start()
                        references.setdefault(text, []).append((begin, number.end(), section))
        for text, places in references.items():
            whole, at, parts = text.astext(), 0, []
            for begin, end, section in places:
                parts += [nodes.Text(whole[at:begin]), link(app, page, section, whole[begin:end])]
                at = end
            text.parent.replace(text, [*parts, nodes.Text(whole[at:])])


def where(terms: list[str], sections: list[Section]) -> Section | None:
    """The section that has one of the terms in bold; else the first that uses it; else one with all of its words."""
    stems = [[re.escape(word[:5]) for word in re.findall(r"\w+", term)] for term in terms]
    ways = (
        lambda section: any(term in section.bold for term in terms),
        lambda section: any(re.search(rf"\b{re.escape(term)}\b", section.text) for term in terms),
        lambda section: any(all(re.search(rf"\b{stem}", section.text) for stem in words) for words in stems),
    )
    return next((section for way in ways for section in sections if way(section)), None)


def link_glossary(app: Sphinx, page: str, doctree: nodes.document) -> None:
    """Lead each chapter that the glossary names to the section that introduces the term, or else first uses it."""
    for item in doctree.findall(nodes.definition_list_item):
        terms = [term.astext().lower() for term in item.findall(nodes.term)]
        for reference in item.findall(nodes.reference):
            address, _, anchor = reference.get("refuri", "").partition("#")
            if anchor or not (chapter := CHAPTER.search(address)):
                continue
            own = [s for s in app.env.course_sections.values() if CHAPTER.match(s.page)[1] == chapter[1]]
            if section := where(terms, own):
                reference["refuri"] = f"{address}#{section.anchor}"


def link_names(app: Sphinx, page: str, doctree: nodes.document) -> None:
    """Lead the first mention of a public name in a chapter to its page in the API."""
    import attn_course

    objects = app.env.domaindata["py"]["objects"]
    unlinked = {name: entry for name in attn_course.__all__ if (entry := objects.get(f"attn_course.{name}"))}
    for literal in list(doctree.findall(nodes.literal)):
        entry = unlinked.get(literal.astext())
        headed = within(literal, nodes.title, nodes.reference)
        if entry and not headed and (target := Section(entry.docname, entry.node_id)):
            unlinked.pop(literal.astext())
            reference = link(app, page, target, "")
            literal.parent.replace(literal, reference)
            reference += literal


def definitions(env: BuildEnvironment) -> dict[str, tuple[str, str]]:
    """Return the anchor and the first sentence of each glossary entry, by its term in lower case."""
    entries = {}
    if GLOSSARY not in env.found_docs:
        return entries
    for item in env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
        text = item.next_node(nodes.paragraph).astext().partition("\n")[0]
        for term in item.findall(nodes.term):
            entries[term.astext().lower()] = (term["ids"][0], text)
    return entries


def link_terms(app: Sphinx, page: str, doctree: nodes.document) -> None:
    """Link each bold term of a chapter to its glossary entry. Hover and focus show the first sentence of the entry."""
    for strong in list(doctree.findall(nodes.strong)):
        term = strong.astext().lower()
        entry = app.env.course_terms.get(term) or app.env.course_terms.get(term.removesuffix("s"))
        if entry and not within(strong, nodes.title, nodes.reference):
            anchor, text = entry
            address = html.escape(f"{app.builder.get_relative_uri(page, GLOSSARY)}#{anchor}")
            opening = f'<a class="course-term" href="{address}" data-definition="{html.escape(text)}">'
            place = strong.parent.index(strong)
            strong.parent.insert(place + 1, nodes.raw("", "</a>", format="html"))
            strong.parent.insert(place, nodes.raw("", opening, format="html"))


def make_links(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if app.builder.format != "html":
        return
    link_sections(app, page, doctree)
    if page.endswith("glossary"):
        link_glossary(app, page, doctree)
    if CHAPTER.match(page):
        link_names(app, page, doctree)
        link_terms(app, page, doctree)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-updated", find_sections)
    app.connect("doctree-resolved", make_links)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
