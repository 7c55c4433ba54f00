"""A chapter on paper: everything that the page folds is there, the answers at its end, and no link leads nowhere."""

import json
import re

import browser
import pdf
import pytest
from pypdf import PdfReader
from read_chapters import NOTEBOOKS, ROOT
from test_pages import CHROMIUM, HTML, NO_CHROMIUM, NOT_BUILT

CHAPTER = "03"


def only_letters(text: str) -> str:
    """The text without what a page break or a line break may change."""
    return re.sub(r"[^\w=+*/<>()\[\]]", "", text)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    if not (HTML / "index.html").exists():
        pytest.skip(NOT_BUILT)
    pdf.HTML, pdf.PDF = HTML, tmp_path_factory.mktemp("pdf")
    (path,) = pdf.make([CHAPTER])
    return PdfReader(path)


@pytest.fixture(scope="module")
def text(printed):
    # A page's number may stand within what is read on: it is a line of its own.
    return only_letters("".join(re.sub(r"^\s*\d+\s*$", "", page.extract_text(), flags=re.M) for page in printed.pages))


@pytest.fixture(scope="module")
def cells():
    (path,) = NOTEBOOKS.glob(f"{CHAPTER}_*.ipynb")
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def test_every_solution_is_printed_whole_behind_the_chapter(cells, text):
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    solutions = [code for s in sources for code in re.findall(r"Solution.*?```python\n(.*?)```", s, flags=re.S)]
    assert len(solutions) == 4
    end = text.index(only_letters("Hints and solutions"))
    assert end > len(text) / 2
    for line in "".join(solutions).split("\n"):
        assert text.find(only_letters(line), end) >= 0, line


def test_the_code_that_a_page_shows_is_printed_and_not_cut_off(cells, text):
    for cell in cells:
        if cell["cell_type"] == "code" and not {"remove-cell", "hide-input"} & set(cell["metadata"].get("tags", [])):
            for line in "".join(cell["source"]).split("\n"):
                assert only_letters(line) in text, line


def test_bookmarks_name_the_sections_and_no_link_leads_to_this_machine(printed):
    titles = [item.title for item in flat(printed.outline)]
    assert any(title.startswith("3.4 ") for title in titles)
    assert "Exercise 3.5 · Turn a matrix of parameters into a linear layer (◦◦, 10 min)" in titles  # two lines on paper
    links = [
        note.get_object()["/A"].get("/URI", "")
        for page in printed.pages
        for note in page.get("/Annots", [])
        if "/A" in note.get_object()
    ]
    assert any("arxiv.org" in link for link in links)
    assert not [link for link in links if "127.0.0.1" in link]


def flat(items):
    for item in items:
        yield from flat(item) if isinstance(item, list) else [item]


def test_a_chapter_that_is_not_there_is_refused():
    with pytest.raises(pdf.Failure, match="'99' names 0 notebooks"):
        pdf.pages(["99"])


def test_a_chapter_is_named_as_for_make_test():
    assert pdf.pages(["3"]) == pdf.pages(["03"]) == ["notebooks/03_scaled_dot_product_attention"]


@pytest.mark.parametrize("folder", ["ProgramFiles", "LocalAppData"])
def test_a_browser_is_found_where_windows_installs_it(tmp_path, monkeypatch, folder):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "ON_MACOS", ())
    for name in browser.WINDOWS_FOLDERS:
        monkeypatch.delenv(name, raising=False)
    assert browser.find_browser() is None
    monkeypatch.setenv(folder, str(tmp_path))
    edge = tmp_path / "Microsoft" / "Edge" / "Application" / "msedge.exe"
    edge.parent.mkdir(parents=True)
    edge.touch()
    assert browser.find_browser() == str(edge)


def test_the_pages_are_those_of_the_contents_in_their_order():
    names = pdf.pages([])
    assert names[0] == "book/index"
    assert [name for name in names if name.startswith("notebooks/")] == sorted(
        path.relative_to(ROOT).with_suffix("").as_posix() for path in NOTEBOOKS.glob("*.ipynb")
    )
