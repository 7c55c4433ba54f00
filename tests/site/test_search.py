"""The search of the built book, in a browser: what it finds first, in English, Japanese, symbols; what it loads."""

import json
import re
from urllib.parse import urlencode

import pytest
import reading_time
from attention_book import search_index
from read_chapters import NOTEBOOKS, ROOT
from test_pages import HTML, Visit, built, site, tab  # noqa: F401

# What a learner types, and the page that explains it, which must come first; behind a # the section, first on its page.
QUERIES = {
    "why divide by sqrt": "03_#Why we divide by √D", "sqrt(d_k)": "03_#Why we divide by √D",
    "query key value": "03_#Query, key and value projections", "why softmax": "02_#Softmax and attention weights",
    "softmax over the wrong axis": "02_#Common mistakes",
    "softmax overflow": "02_#Overflow and underflow", "einsum": "04_#einsum", "contiguous": "04_#Views and copies",
    "nan": "05_#Empty rows", "is_causal": "05_#Mask conventions", "causal mask": "05_#Causal masks",
    "masked_fill": "05_#Masking the scores", "padding mask": "05_#Padding masks", "dropout": "05_#Dropout on",
    "fully masked row": "05_#Empty rows", "padding mask nan": "05_#Empty rows",
    "view vs transpose": "06_#Splitting with view alone", "multi-head attention": "06_#The multi-head attention layer",
    "cross-attention": "07_#Two sequences", "positional encoding": "08_#Sinusoidal", "rope": "08_#Rotary",
    "alibi": "08_#Attention with linear biases", "attention is all you need": "09_", "layer norm": "09_#Layer norm",
    "layer normalization": "09_#Layer norm", "encoder decoder": "09_#The encoder–decoder model",
    "BPE": "10_#Byte-pair", "tokenizer": "10_#Byte-pair", "tokeniser": "10_#Byte-pair",
    "japanese tokenizer": "10_#Word segmentation", "teacher forcing": "10_#The shifted target",
    "label smoothing": "12_#Label smoothing", "warmup": "12_#Learning-rate", "perplexity": "12_#Perplexity",
    "BLEU": "13_#BLEU", "beam search": "13_#Beam search", "sampling top-p": "13_#Sampling",
    "kv cache": "15_#The key-value cache", "prefill": "15_#Prefill", "paged attention": "16_#Paged caches",
    "speculative decoding": "16_#Speculative decoding", "mixture of experts": "16_#Mixtures of experts",
    "flash attention": "17_#Tiled attention", "online softmax": "17_#The online softmax",
    "attention sink": "18_#Attention sinks", "grouped query": "18_#Multi-query", "mha vs gqa": "18_#Multi-query",
    "mqa": "18_#Multi-query", "quantization": "18_#Quantized", "quantisation": "18_#Quantized",
    "sliding window": "18_#Sliding", "mla": "18_#Multi-head latent", "sparse attention": "19_#Sparse attention",
    "linear attention": "19_#Linear attention", "ring attention": "20_#Ring attention",
    "induction head": "21_#Induction heads", "attention is not explanation": "21_#Attention as an explanation",
    "bert": "22_#BERT", "vision transformer": "23_#The Vision Transformer", "what is attention": "01_",
    "how to install": "how_to_use#Run the notebooks", "install windows": "how_to_use#Run the notebooks",
    "attension": "01_", "atention": "01_", "transfomer": "09_", "sofmax": "02_#Softmax",
    "make_causal_mask": "api_attention", "KeyValueCache": "api_caches", "注意": "glossary", "マスク": "glossary",
    "教師強制": "glossary", "embedding": "02_#Tokens and embeddings", "upper triangular mask": "05_#Causal masks",
    "long context": "08_#Length extrapolation", "cross entropy loss": "12_#The loss per token",
    "greedy decoding": "13_#Greedy", "memory bandwidth": "16_#The roofline", "flex attention": "17_#FlexAttention",
    "caching prompts": "16_#Prefix caching", "how to run the code": "how_to_use#Run the notebooks",
    "causal mask off by one": "05_#Causal masks", "causal leak": "05_#Testing for leaks",
    "need_weights": "06_#The multi-head attention layer", "loss goes to zero too fast": "11_#Accuracy near 100 %",
    "model repeats the same word": "11_#A debugging checklist", "model repeats itself": "11_#A debugging checklist",
    "same output for every input": "11_#A debugging checklist", "loss does not go down": "11_#A debugging checklist",
    "my loss doesn't decrease": "11_#A debugging checklist", "translater does not learn": "11_#A debugging checklist",
    "beam search length penalty": "13_#Length bias", "key value cache wrong positions": "15_#Rotary positions",
    "out of memory long sequence": "17_#The memory of the score matrix", "how long does it take": "index#How long",
    "exercise 3.1": "03_#Exercise 3.1", "exercise 5.2 solution": "05_#Exercise 5.2",
    "transformer block": "09_#The encoder layer",
    "how many hours": "index#How long it takes", "prerequisites": "how_to_use#Are you ready",
}  # fmt: skip


def test_every_alias_stands_for_a_heading_of_its_chapter():
    """A chapter that gives a section another title would lose its other words without a word."""
    for place in search_index.ALIASES:
        chapter, title = place.split(" ", 1)
        [path] = [*NOTEBOOKS.glob(f"{chapter}_*.ipynb"), *(ROOT / "book").glob(f"{chapter}.md")]
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "\n".join(reading_time.source(cell) for cell in json.loads(text)["cells"])
        headings = re.findall(r"^#+ (?:\d+(?:\.\d+)? )?(?:· )?(.+?)(?: \(.*◦.*)?$", text, re.MULTILINE)
        plain = [re.sub(r"`|\$\\sqrt\{?D\}?\$", lambda code: "" if code[0] == "`" else "√D", h) for h in headings]
        assert title in [heading.replace("'", "’") for heading in plain], place


@pytest.fixture(scope="module")
def search(tab, site):  # noqa: F811
    def ask(query):
        tab.goto(f"{site}search.html?{urlencode({'q': query})}")
        tab.locator("main .found-count", has_text="match").wait_for()
        return tab.eval_on_selector_all("main .found-page", "links => links.map((link) => link.href)")

    return ask


@pytest.mark.parametrize("query", QUERIES)
def test_the_section_that_explains_a_term_comes_first(search, tab, query):  # noqa: F811
    found = search(query)
    page, _, section = QUERIES[query].partition("#")
    assert found, query
    assert page in found[0], found[:5]
    sections = tab.locator("main .found > li").first.locator("li a").all_inner_texts()
    assert not section or re.sub(r"^[\d.]+ ", "", sections[0]).startswith(section), sections


def test_a_typo_is_corrected_and_said(search, tab):  # noqa: F811
    search("attension")
    said = tab.locator("main .found-count").inner_text()
    assert re.fullmatch(r"No page matches “attension”\. \d+ pages match “attention”\.", said)


def test_an_excerpt_repeats_no_heading(search, tab):  # noqa: F811
    search("padding mask")
    section = tab.locator("main .found li li", has=tab.locator("a[href$='#padding-masks']"))
    assert section.locator("p").inner_text().startswith("Sentences have different lengths")


def test_a_single_letter_of_a_long_question_marks_no_words(search, tab):  # noqa: F811
    search("why divide by sqrt d")
    marks = [mark.lower() for mark in tab.locator("main .found mark").all_inner_texts()]
    assert "sqrt" in " ".join(marks) or "divi" in " ".join(marks)
    assert [mark for mark in marks if mark.startswith("d") and not mark.startswith("divi")] == []


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
        page, section, other = (links.nth(index).evaluate("(link) => link.href") for index in (0, 1, 2))
        marked = tab.locator("#pst-search-dialog .found a").evaluate_all(
            "(links) => links.filter((a) => getComputedStyle(a, '::after').content.includes('↵')).map((a) => a.href)"
        )
        assert marked == [section]
        for key, expected in [
            ("ArrowDown", section),
            ("ArrowDown", other),
            ("ArrowUp", section),
            ("ArrowUp", page),
            ("ArrowUp", "q"),
        ]:
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
