"""What the book's extension adds to pages: Japanese marked, guesses covered, no mathematics where there is none."""

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


def test_a_page_keeps_one_copy_of_each_script_of_the_figures_and_all_others():
    shared, own, other = (f"<script data-explore>\n{code}\n</script>" for code in ("1", "2", "3"))
    view = "<script>\nstart();\n</script>"
    body = f"<div>{shared}{own}</div>{view}<div>{shared}{other}</div>{view}<div>{shared}{own}</div>"
    assert book.keep_one_copy(body) == f"<div>{shared}{own}</div>{view}<div>{other}</div>{view}<div></div>"


def test_no_page_carries_a_script_of_the_figures_without_one(pages):
    for name, page in pages.items():
        scripts = re.findall(r"<script data-explore>.*?</script>", page, flags=re.DOTALL)
        assert len(scripts) == len(set(scripts)), name
        assert bool(scripts) == ('class="attn-explore"' in page), name


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


def test_mathjax_is_loaded_where_there_is_mathematics_and_only_there(pages):
    for path in HTML.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        mathematics = re.search(r'class="[^"]*\bmath\b', page) is not None
        assert ("vendor/mathjax" in page) == mathematics, path


def test_the_site_s_own_address_shows_the_first_page_and_its_links_lead_somewhere(pages):
    page = (HTML / "index.html").read_text(encoding="utf-8")
    assert 'http-equiv="Refresh"' not in page
    for address in re.findall(r'\s(?:href|src)="([^"#?:]+)(?:[#?][^"]*)?"', page):
        assert (HTML / address).exists(), address
