"""What the book's extension adds to pages: Japanese marked, guesses covered, the first page at its address."""

import importlib.util
import json
import re
import sys

import pytest
from read_chapters import NOTEBOOKS, ROOT

HTML = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "book" / "_ext"))
spec = importlib.util.spec_from_file_location("attention_book", ROOT / "book" / "_ext" / "attention_book.py")
book = importlib.util.module_from_spec(spec)
spec.loader.exec_module(book)


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ("<p>母は駅。 is ours</p>", '<p><span lang="ja">母は駅。</span> is ours</p>'),
        ("<em>カタカナ</em>ー", '<em><span lang="ja">カタカナ</span></em><span lang="ja">ー</span>'),
        ('<a title="母" href="#母">x</a>', '<a title="母" href="#母">x</a>'),
        ("<script>母</script><style>駅</style>", "<script>母</script><style>駅</style>"),
        ("<svg><text>本</text></svg>", "<svg><text>本</text></svg>"),
        ("<!-- 本 --><p>√d · Σ</p>", "<!-- 本 --><p>√d · Σ</p>"),
    ],
)
def test_japanese_says_that_it_is_and_nothing_else_does(body, marked):
    assert book.mark_japanese(body) == marked


@pytest.fixture(scope="module")
def pages():
    if not (HTML / "index.html").exists():
        pytest.skip("the book is not built: make book")
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((HTML / "notebooks").glob("*.html"))}


def test_every_output_that_waits_for_a_guess_is_covered_and_no_other(pages):
    for name, page in pages.items():
        cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        waiting = [cell for cell in cells if "guess" in cell["metadata"].get("tags", [])]
        assert all(cell["cell_type"] == "code" and cell["outputs"] for cell in waiting), name
        assert page.count('<details class="guess">') == len(waiting), name
    assert sum(page.count('<details class="guess">') for page in pages.values()) > 100


def test_an_exercise_that_nobody_has_written_yet_has_no_verdict(pages):
    stored = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb"))
    assert stored.count("Not written yet") >= 80  # the notebooks keep it
    assert not [name for name, page in pages.items() if "Not written yet" in page]


def test_the_site_s_own_address_shows_the_first_page_and_its_links_lead_somewhere(pages):
    page = (HTML / "index.html").read_text(encoding="utf-8")
    assert 'http-equiv="Refresh"' not in page
    for address in re.findall(r'\s(?:href|src)="([^"#?:]+)(?:[#?][^"]*)?"', page):
        assert (HTML / address).exists(), address
