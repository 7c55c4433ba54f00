"""The small figure of the first page: drawn before anything is loaded; its numbers are those of masked attention."""

import re
from types import SimpleNamespace

import pytest
import torch
from attention_book import front_page_figure
from read_chapters import ROOT

from attn_course import attention

STATIC = ROOT / "book" / "_static"
ROWS = torch.tensor(front_page_figure.X)
EYE = torch.eye(6)


def weights(mask):
    """By the package: scores x·x, undivided, under a mask."""
    return attention(ROWS * 3**0.5, ROWS, EYE, mask)[0]


@pytest.fixture
def page(browser, tmp_path):
    """A page with the figure and the book's style; what it has asked for stands in page.asked."""
    (tmp_path / "_static").mkdir()
    for name in ("front_page_figure.js", "custom.css"):
        (tmp_path / "_static" / name).write_bytes((STATIC / name).read_bytes())
    (tmp_path / "index.html").write_text(
        '<!doctype html><html lang="en" data-content_root="./"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>First page</title>'
        '<link rel="stylesheet" href="_static/custom.css"><main class="bd-article"><h1>The course</h1>'
        f"{front_page_figure.table()}</main></html>",
        encoding="utf-8",
    )
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    wrong, tab.asked = [], []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: tab.asked.append(request.url.rpartition("/")[2]))
    tab.goto((tmp_path / "index.html").as_uri())
    yield tab
    context.close()
    assert wrong == []


def shown(tab):
    texts = tab.locator(".first-answer td button").all_inner_texts()
    return torch.tensor([0.0 if text == "–" else float(text) for text in texts]).view(6, 6)


def hides(tab, text):
    tab.locator(".first-answer-said", has_text=text).wait_for()


def cell(tab, query, key):
    return tab.get_by_role("button", name=f"hide {key} from {query}", exact=True)


def assert_shows(tab, mask):
    torch.testing.assert_close(shown(tab), weights(mask), atol=0.00051, rtol=0)  # three digits are shown


def test_the_numbers_stand_there_before_a_script_does(page):
    assert_shows(page, None)
    assert page.asked == ["index.html", "custom.css"]
    stored = [float(x) for x in re.findall(r'data-weight="([\d.]+)"', front_page_figure.table())]
    torch.testing.assert_close(torch.tensor(stored).view(6, 6), weights(None), atol=1e-6, rtol=0)


def test_the_first_touch_hides_a_word_already_and_the_rest_grows_by_one_factor(page):
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[4, 5] = False
    cell(page, "one", "step").tap()
    factor = (weights(mask)[4, :5] / weights(None)[4, :5]).tolist()
    assert max(factor) - min(factor) < 1e-5
    hides(page, f"one attends to 5 of the 6 tokens: each weight that is left is {factor[0]:.3f} times what it was")
    assert_shows(page, mask)
    assert page.asked[2:] == ["front_page_figure.js"]
    cell(page, "one", "step").tap()
    hides(page, "one attends to all six tokens again.")
    assert_shows(page, None)


@pytest.mark.parametrize("key", ["Space", "Enter"])
def test_the_keyboard_hides_too_with_the_first_key(page, key):
    page.keyboard.press("Tab")
    page.keyboard.press(key)
    hides(page, "Your attends to 5 of the 6 tokens")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    hides(page, "Your attends to 4 of the 6 tokens")
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[0, :2] = False
    assert_shows(page, mask)


def test_the_future_is_hidden_and_a_row_that_sees_nothing_says_so(page):
    page.get_by_role("button", name="Hide the future").click()
    hides(page, "No token attends to a later one")
    assert_shows(page, torch.ones(6, 6).tril().bool())
    cell(page, "Your", "Your").click()
    hides(page, "Your attends to nothing")
    page.get_by_role("button", name="Show all").click()
    hides(page, "Each row adds up to 1, apart from rounding.")
    assert_shows(page, None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_page_figure_fits_a_phone_and_passes_axe(page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.evaluate("(scheme) => { document.documentElement.dataset.theme = scheme; }", scheme)
    cell(page, "one", "step").tap()
    hides(page, "one attends to 5")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = axe.run(page).response["violations"]
    assert [(v["id"], [n["html"][:100] for n in v["nodes"]]) for v in found] == []


def test_the_source_of_the_first_page_has_a_place_for_it_and_no_other_page_gets_it():
    app = SimpleNamespace(config=SimpleNamespace(root_doc="book/index"))
    text = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    first, other = [text], [text]
    front_page_figure.draw(app, "book/index", first)
    front_page_figure.draw(app, "book/costs", other)
    assert first[0].count('<div class="first-answer"') == 1
    assert "\n\n" not in front_page_figure.table()  # an empty line would end the HTML
    assert other[0] == text
