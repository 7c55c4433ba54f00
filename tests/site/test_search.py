"""The search of the built book, in a browser: what it finds first, in English, Japanese, symbols; what it loads."""

from urllib.parse import urlencode

import pytest
from test_pages import HTML, Visit, built, site, tab  # noqa: F401

# What a learner types, and the page that explains it, which must come first.
QUERIES = {
    "why divide by sqrt": "03_", "einsum": "04_", "nan": "05_", "is_causal": "05_",
    "causal mask": "05_", "masked_fill": "05_", "view vs transpose": "06_",
    "multi-head attention": "06_", "cross-attention": "07_", "positional encoding": "08_", "rope": "08_",
    "layer norm": "09_", "BPE": "10_", "label smoothing": "12_", "BLEU": "13_", "beam search": "13_",
    "attention sink": "18_", "kv cache": "15_", "grouped query": "18_", "flash attention": "17_",
    "attention is not explanation": "21_", "ring attention": "20_", "how to install": "how_to_use",
    "make_causal_mask": "api_attention", "KeyValueCache": "api_caches", "注意": "glossary", "マスク": "glossary",
    "教師強制": "glossary", "fully masked row": "05_", "padding mask": "05_", "query key value": "03_",
}  # fmt: skip


@pytest.fixture(scope="module")
def search(tab, site):  # noqa: F811
    def ask(query):
        tab.goto(f"{site}search.html?{urlencode({'q': query})}")
        tab.locator("main .found-count", has_text="match").wait_for()
        return tab.eval_on_selector_all("main .found-page", "links => links.map((link) => link.href)")

    return ask


@pytest.mark.parametrize("query", QUERIES)
def test_the_page_that_explains_a_term_comes_first(search, query):
    found = search(query)
    assert found, query
    assert QUERIES[query] in found[0], found[:5]


def test_the_search_shows_no_solution(search, tab):  # noqa: F811
    search("sqrt")
    assert "def scaled" not in " ".join(tab.locator("main .found p").all_inner_texts())


def test_a_glossary_entry_is_found_alone(search, tab):  # noqa: F811
    search("教師強制")
    addresses = tab.eval_on_selector_all("main .found li li a", "links => links.map((link) => link.href)")
    assert any(address.endswith("book/glossary.html#term-teacher-forcing") for address in addresses), addresses


def test_a_section_that_is_found_is_opened_where_it_stands(search, tab):  # noqa: F811
    search("beam search")
    link = tab.locator("main .found li li a", has_text="13.2").first
    link.click()
    tab.wait_for_url("**/notebooks/13_*.html#*")
    assert tab.locator(":target").inner_text().startswith("13.2")


def test_a_search_without_results_says_so(search, tab):  # noqa: F811
    assert search("zzxqvj") == []
    assert tab.locator("main .found-count").inner_text() == "No page matches “zzxqvj”."


def test_nothing_of_the_search_is_loaded_before_the_first_key(tab, site):  # noqa: F811
    with Visit(tab) as visit:
        visit.open(f"{site}notebooks/03_scaled_dot_product_attention.html")
        tab.keyboard.press("Control+k")
        assert not [url for url in visit.asked if "pagefind" in url or "searchindex" in url]
        tab.keyboard.type("causal mask")
        tab.locator("#pst-search-dialog .found-page").first.wait_for()
        assert any("pagefind" in url for url in visit.asked)
        assert tab.locator("#pst-search-dialog [role=status]").inner_text().endswith("pages match “causal mask”.")
        assert not visit.found


def test_arrow_keys_go_through_the_answers_and_enter_opens_the_best_section(tab, site):  # noqa: F811
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
        assert "#" in tab.url  # the section, not the top of its page
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
