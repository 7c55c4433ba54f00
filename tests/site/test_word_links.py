"""The picture of a translation on the first page: a token of either sentence shows its lines."""

import pytest
from read_chapters import ROOT

from attn_course import plots

STATIC = ROOT / "book" / "_static"
JAPANESE, ENGLISH = ["neko", "ga", "neru"], ["the", "cat", "sleeps"]
WEIGHTS = [[0.5, 0.3, 0.0], [0.9, 0.1, 0.0], [0.0, 0.1, 0.9]]
SCRIPTS = ("enlarge.js", "word_links.js")  # as on the page


@pytest.fixture
def page(browser, tmp_path):
    for name in (*SCRIPTS, "custom.css"):
        (tmp_path / name).write_bytes((STATIC / name).read_bytes())
    svg = plots.word_links(JAPANESE, ENGLISH, WEIGHTS).svg
    (tmp_path / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<title>First page</title><link rel="stylesheet" href="custom.css">'
        + "".join(f'<script src="{name}" defer></script>' for name in SCRIPTS)
        + f'<main class="bd-article"><h1>The course</h1><figure id="fig-translated">{svg}'
        "<figcaption>A translation</figcaption></figure></main></html>",
        encoding="utf-8",
    )
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    wrong = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto((tmp_path / "index.html").as_uri())
    yield tab
    context.close()
    assert wrong == []


def token(tab, text, inside="#fig-translated > svg"):
    return tab.locator(f"{inside} .word").filter(has_text=text)


def chosen(tab, inside="#fig-translated > svg"):
    """The tokens that stand out, and how many lines do."""
    return tab.locator(f"{inside} .word.chosen").all_text_contents(), tab.locator(f"{inside} path.chosen").count()


def test_a_tap_shows_the_lines_of_a_token_and_does_not_enlarge(page):
    token(page, "neko").tap()
    assert chosen(page) == (["neko", "the", "cat"], 2)
    token(page, "sleeps").tap()
    assert chosen(page) == (["neru", "sleeps"], 1)
    token(page, "sleeps").tap()
    assert chosen(page) == ([], 0)
    assert page.locator("dialog").count() == 0
    page.get_by_role("button", name="Enlarge").tap()
    token(page, "neko", "dialog svg").tap()
    assert chosen(page, "dialog svg") == (["neko", "the", "cat"], 2)


def test_a_pointer_shows_the_lines_while_it_is_there(page):
    token(page, "ga").hover()
    assert chosen(page) == (["ga", "the"], 1)
    page.mouse.move(5, 700)
    assert chosen(page) == ([], 0)


def test_the_arrow_keys_go_along_a_sentence_and_a_line(page):
    page.keyboard.press("Tab")
    assert chosen(page) == (["neko", "the", "cat"], 2)
    for key, then in [
        ("ArrowRight", (["ga", "the"], 1)),
        ("ArrowDown", (["neko", "ga", "the"], 2)),
        ("End", (["neru", "sleeps"], 1)),
        ("ArrowUp", (["neru", "sleeps"], 1)),
    ]:
        page.keyboard.press(key)
        assert chosen(page) == then
    assert page.evaluate("document.activeElement.textContent") == "neru"


def test_axe_finds_nothing_in_it(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    token(page, "cat").tap()
    found = axe.run(page).response["violations"]
    assert [(v["id"], [n["html"][:100] for n in v["nodes"]]) for v in found] == []
