"""*Test yourself* in the page: by mouse and keyboard, after a reload, without scripts, and on paper."""

import pytest
from test_pages import HTML, NARROW, Visit, built, site, tab  # noqa: F401

PAGE = "notebooks/05_masks_and_dropout.html"
CHAPTERS = (HTML / "notebooks").glob("*.html")
PAGES = sorted(path.name for path in CHAPTERS if 'id="test-yourself"' in path.read_text(encoding="utf-8"))
QUESTIONS = "#test-yourself > ul"
SAID = "#test-yourself > .self-test-said"


def test_a_click_says_which_mistake_it_is_and_the_browser_remembers(tab, site):  # noqa: F811
    with Visit(tab, width=NARROW) as visit:
        tab.goto(site + PAGE)
        assert tab.locator(SAID).all_inner_texts() == [""] * 5
        first = tab.locator(QUESTIONS).nth(0).get_by_role("button")
        assert first.nth(0).bounding_box()["height"] >= 24
        first.nth(1).click()
        said = tab.locator(SAID).nth(0)
        assert said.inner_text().startswith("(b) No. The softmax came before the mask")
        assert said.get_by_role("link", name="section 5.2").count() == 1
        first.nth(3).focus()
        tab.keyboard.press("Enter")
        assert said.inner_text().startswith("(d) Right.")
        assert [button.get_attribute("aria-pressed") for button in first.all()] == ["false"] * 3 + ["true"]
        tab.reload()
        assert tab.locator(SAID).nth(0).inner_text().startswith("(d) Right.")
        assert tab.locator(SAID).nth(1).inner_text() == ""
        assert not [found for found in visit.found if "error" in found]


def test_without_scripts_the_answers_are_a_list_and_a_fold(tab, site):  # noqa: F811
    context = tab.context.browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + PAGE)
    assert page.locator(f"{QUESTIONS} > li").count() == 20
    assert page.locator(f"{QUESTIONS} button").count() == 0
    page.get_by_text("Answers", exact=True).click()
    assert page.get_by_text("(b) The softmax came before the mask").is_visible()
    context.close()


def test_on_paper_all_answers_are_printed_and_what_was_clicked_is_not(tab, site):  # noqa: F811
    with Visit(tab):
        tab.goto(site + PAGE)
        tab.locator(QUESTIONS).nth(0).get_by_role("button").nth(1).click()
        tab.emulate_media(media="print")
        assert not tab.locator(SAID).nth(0).is_visible()
        assert tab.locator("#test-yourself > details li").last.is_visible()
        tab.emulate_media(media="screen")


@pytest.mark.parametrize("page", PAGES)
def test_each_answer_has_a_button_and_its_own_explanation(tab, site, page):  # noqa: F811
    with Visit(tab) as visit:
        tab.goto(f"{site}notebooks/{page}")
        tab.evaluate("localStorage.clear()")
        for number, question in enumerate(tab.locator(QUESTIONS).all()):
            said = tab.locator(SAID).nth(number)
            heard = []
            for letter, button in zip("abcd", question.get_by_role("button").all(), strict=False):
                assert button.inner_text().startswith(f"({letter}) ")
                button.evaluate("(button) => button.click()")
                heard.append(said.inner_text())
                assert heard[-1].startswith((f"({letter}) No. ", f"({letter}) Right. "))
            assert len(set(heard)) == len(heard) >= 3
            assert sum("Right." in text for text in heard) == 1
        assert not [found for found in visit.found if "error" in found]
