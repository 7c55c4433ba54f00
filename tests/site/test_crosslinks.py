"""Links that are made when the book is built: to sections, from the glossary, to the package's names."""

import re
from types import SimpleNamespace

import pytest
from attention_book import crosslinks
from docutils import nodes
from read_chapters import ROOT

HTML = ROOT / "_build" / "html"
Section = crosslinks.Section

HERE, THERE = "notebooks/03_scale", "notebooks/07_cross"
SECTIONS = {
    "3.1": Section(HERE, "first"),
    "3.4": Section(HERE, "how-large", {"variance"}, "the variance of a dot product"),
    "7.2": Section(THERE, "two-lengths", set(), "a query shifts, and the target with it"),
}


def app():
    relative = SimpleNamespace(format="html", get_relative_uri=lambda page, other: f"{other.split('/')[1]}.html")
    return SimpleNamespace(builder=relative, env=SimpleNamespace(course_sections=SECTIONS))


def linked(*parts) -> list[tuple[str, str]]:
    """The links that chapter 3 makes of a paragraph: where they lead, and what they are called."""
    paragraph = nodes.paragraph("", "", *(nodes.Text(part) if isinstance(part, str) else part for part in parts))
    before = paragraph.astext()
    doctree = SimpleNamespace(findall=paragraph.findall)
    crosslinks.link_sections(app(), HERE, doctree)
    assert paragraph.astext() == before
    made = [link for link in paragraph.findall(nodes.reference) if link.get("internal")]
    return [(link["refuri"], link.astext()) for link in made]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("It is measured in section 3.4.", [("#how-large", "section 3.4")]),
        ("Section 7.2 has two lengths.", [("07_cross.html#two-lengths", "Section 7.2")]),
        ("See sections 3.1, 3.4 and 7.2: all.", [
            ("#first", "3.1"), ("#how-large", "3.4"), ("07_cross.html#two-lengths", "7.2"),
        ]),
        ("Of section 3.1 and of section 7.2.", [
            ("#first", "section 3.1"), ("07_cross.html#two-lengths", "section 7.2"),
        ]),
        ("A loss of 3.4 is no section.", []),
        ("There is no section 3.9 here.", []),
        ("Only a paper has a section 3.4.1 or a section 3.4.", []),
        ("The numbering 3.4 alone says nothing; section 3.41 is another.", []),
    ],
)  # fmt: skip
def test_a_section_that_a_sentence_names_is_a_link(text, links):
    assert linked(text) == links


def test_the_section_of_a_paper_is_none_of_this_book():
    paper = nodes.reference("", "Vaswani et al. 2017", refuri="https://arxiv.org/abs/1706.03762")
    text = nodes.Text(", section 3.1.\nThe next sentence is ours: section 3.4.")
    assert linked(paper, text.astext()) == [("#how-large", "section 3.4")]
    assert linked("As the paper says (section 3.1).\nSection 3.4 says it, too.") == [("#how-large", "Section 3.4")]


def test_existing_links_and_code_are_not_linked_again():
    made = nodes.reference("", "section 3.4", refuri="elsewhere.html")
    deep = nodes.reference("", "", nodes.inline("", "section 3.4"), refuri="elsewhere.html")
    assert linked("See ", made, " and ", nodes.literal("", "section 3.1"), ", or ", deep, ".") == []


@pytest.mark.parametrize(
    ("terms", "anchor"),
    [
        (["variance"], "how-large"),
        (["dot product"], "how-large"),
        (["shifted target"], "two-lengths"),
        (["beam"], None),
    ],
)
def test_a_term_leads_to_where_it_is_bold_or_used_or_all_of_its_words_are(terms, anchor):
    found = crosslinks.where(
        terms, [Section(HERE, "early", set(), "products of dots, and a query"), *SECTIONS.values()]
    )
    assert (found and found.anchor) == anchor


# ---------------------------------------------------------------- the built pages


def article(path) -> str:
    page = path.read_text(encoding="utf-8")
    return page[page.index("<article") : page.index("</article>")]


@pytest.fixture(scope="module")
def pages():
    if not (HTML / "index.html").exists():
        pytest.skip("the book is not built: make book")
    return {path.stem: article(path) for path in sorted((HTML / "notebooks").glob("*.html"))}


def test_chapters_lead_to_sections_that_are_there(pages):
    ids = {name: set(re.findall(r' id="([^"]+)"', page)) for name, page in pages.items()}
    count = 0
    for name, page in pages.items():
        for chapter, anchor in re.findall(r'href="(?:(\d\d_\w+)\.html)?#([^"]+)">[Ss]ection \d', page):
            assert anchor in ids[chapter or name], (name, chapter, anchor)
            count += 1
    assert count > 100


def test_every_chapter_that_the_glossary_names_is_a_section(pages):
    glossary = article(HTML / "book" / "glossary.html")
    links = re.findall(r'href="\.\./notebooks/(\d\d_\w+)\.html(?:#([^"]*))?"', glossary)
    assert len(links) > 150
    missing = {(name, anchor) for name, anchor in links if f' id="{anchor}"' not in pages[name]}
    assert len(missing) <= 3, missing  # a term may be explained in a chapter by other words


def test_a_chapter_leads_to_the_pages_of_the_package(pages):
    for name, page in pages.items():
        found = re.findall(r'href="\.\./book/(api_\w+)\.html#(attn_course\.\w+)"', page)
        assert len(found) == len(set(found))
        for api, target in found:
            assert f'id="{target}"' in article(HTML / "book" / f"{api}.html"), (name, target)
    assert sum("book/api_" in page for page in pages.values()) >= 10
