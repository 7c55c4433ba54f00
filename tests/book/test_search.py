"""The search of the built book, in a browser: what it finds first, in English, Japanese, symbols; what it loads."""

from urllib.parse import urlencode

import pytest
from test_pages import HTML, Visit, built, site, tab  # noqa: F401

# What a reader types, and the page that must be among the first three answers.
QUERIES = {
    "softmax": "02_", "scaled dot product": "03_", "√D": "03_", "QKᵀ": "03_", "einsum": "04_",
    "causal mask": "05_", "padding mask": "05_", "masked_fill": "05_", "NaN": "05_", "dropout": "05_", "-inf": "05_",
    "multi-head": "06_", "split heads": "06_", "cross-attention": "07_", "positions": "08_", "rotary": "08_",
    "ALiBi": "08_", "pre-norm": "09_", "layer norm": "09_", "BPE": "10_", "teacher forcing": "01_",
    "warm-up": "12_", "label smoothing": "12_", "beam search": "13_", "BLEU": "13_", "attention sink": "14_",
    "sliding window": "16_", "grouped-query": "16_", "make_causal_mask": "api_attention",
    "make_padding_mask": "api_attention", "scaled_dot_product_attention": "00_", "KeyValueCache": "api_caches",
    "マスク": "glossary", "翻訳": "glossary", "買い": "10_", "母": "10_",
}  # fmt: skip


@pytest.fixture(scope="module")
def search(tab, site):  # noqa: F811
    def ask(query):
        tab.goto(f"{site}search.html?{urlencode({'q': query})}")
        tab.locator("main .found-count:not(:empty)").wait_for()
        return tab.eval_on_selector_all("main .found-page", "links => links.map((link) => link.href)")

    return ask


@pytest.mark.parametrize("query", QUERIES)
def test_the_page_that_one_looks_for_is_among_the_first_three(search, query):
    found = search(query)
    assert any(QUERIES[query] in page for page in found[:3]), found[:5]


def test_a_section_that_is_found_is_opened_where_it_stands(search, tab):  # noqa: F811
    search("beam search")
    link = tab.locator("main .found li li a", has_text="13.2").first
    link.click()
    tab.wait_for_url("**/notebooks/13_*.html#*")
    assert tab.locator(":target").inner_text().startswith("13.2")


def test_what_is_nowhere_is_said_in_a_sentence(search, tab):  # noqa: F811
    assert search("zzxqvj") == []
    assert tab.locator("main .found-count").inner_text() == "No page has “zzxqvj”."


def test_nothing_of_the_search_is_loaded_before_the_first_key(tab, site):  # noqa: F811
    with Visit(tab) as visit:
        visit.open(f"{site}notebooks/03_scaled_dot_product_attention.html")
        tab.keyboard.press("Control+k")
        assert not [url for url in visit.asked if "pagefind" in url or "searchindex" in url]
        tab.keyboard.type("causal mask")
        tab.locator("#pst-search-dialog .found-page").first.wait_for()
        assert any("pagefind" in url for url in visit.asked)
        assert tab.locator("#pst-search-dialog [role=status]").inner_text().endswith("pages have “causal mask”.")
        assert not visit.found


def test_arrow_keys_go_through_the_answers_and_enter_opens_the_first_one(tab, site):  # noqa: F811
    focused = "() => document.activeElement.href ?? document.activeElement.name"
    keys = tab.keyboard
    with Visit(tab):
        tab.goto(f"{site}notebooks/05_masks_and_dropout.html")
        keys.press("Control+k")
        keys.type("causal mask")
        links = tab.locator("#pst-search-dialog .found a")
        links.first.wait_for()
        first, second = (links.nth(index).evaluate("(link) => link.href") for index in (0, 1))
        for key, expected in [("ArrowDown", first), ("ArrowDown", second), ("ArrowUp", first), ("ArrowUp", "q")]:
            keys.press(key)
            assert tab.evaluate(focused) == expected
        keys.press("ArrowDown")
        keys.type("s")  # who types on, types into the field
        assert tab.evaluate("document.activeElement.value") == "causal masks"
        keys.press("Control+a")
        keys.type("softmax")
        keys.press("Enter")  # before any answer has come
        tab.wait_for_url(lambda url: "05_masks" not in url)
        assert "search.html" not in tab.url
        keys.press("Control+k")
        keys.type("softmax")
        links.nth(1).wait_for()
        for key in ("ArrowDown", "ArrowDown"):
            keys.press(key)
        chosen = tab.evaluate(focused)
        keys.press("Enter")
        tab.wait_for_url(chosen)
        assert tab.locator("#pst-search-dialog").evaluate("(dialog) => !dialog.open")


def test_in_a_folder_sphinx_s_own_search_answers(tab, built):  # noqa: F811
    tab.goto((HTML / "search.html").as_uri() + "?q=softmax")
    tab.locator("#search-results li a").first.wait_for()


def test_only_the_search_page_holds_sphinx_s_index(built):  # noqa: F811
    holding = {path.name for path in HTML.rglob("*.html") if "searchindex.js" in path.read_text(encoding="utf-8")}
    assert holding == {"search.html"}
