"""A picture that a telephone makes small is opened in a size that can be read."""

import re

import pytest
from test_pages import HTML, NARROW, WIDE, Visit, built, site, tab  # noqa: F401

PAGE = "notebooks/22_sentence_encoders.html"


def test_a_wide_picture_is_enlarged_on_a_telephone_scrolled_and_closed(tab, site):  # noqa: F811
    with Visit(tab, width=NARROW) as visit:
        tab.goto(site + PAGE)
        button = tab.locator("main .enlarge:visible").first
        figure = tab.locator("main figure:has(.enlarge:visible)").first
        assert button.inner_text() == "Enlarge"
        assert button.bounding_box()["height"] >= 24
        shown = figure.locator(":is(img, svg.drawing):visible").first.bounding_box()["width"]
        assert shown <= NARROW["width"]
        for opened_by in (button, figure.locator(":is(img, svg.drawing):visible").first):
            opened_by.click()
            large = tab.locator("dialog.enlarged[open] :is(img, svg)")
            assert large.bounding_box()["width"] >= 1.9 * NARROW["width"]
            box = tab.locator("dialog.enlarged > div")
            assert "goes-on" in box.get_attribute("class")  # its right edge fades
            box.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
            right = large.bounding_box()["x"] + large.bounding_box()["width"]
            assert right <= NARROW["width"]
            tab.wait_for_function("!document.querySelector('.enlarged > .goes-on')")
            tab.keyboard.press("Escape")
            large.wait_for(state="detached")
        button.click()
        tab.get_by_role("button", name="Close").click()
        assert tab.locator("dialog.enlarged").count() == 0
        assert not [found for found in visit.found if "error" in found]


def test_back_closes_an_enlarged_picture_and_leaves_the_page_where_it_was(tab, site):  # noqa: F811
    with Visit(tab, width=NARROW):
        tab.goto(site + "index.html")
        tab.goto(site + PAGE)
        button = tab.locator("main .enlarge:visible").first
        large = tab.locator("dialog.enlarged[open]")
        for _ in range(2):
            button.scroll_into_view_if_needed()
            place = tab.evaluate("scrollY")
            button.click()
            large.wait_for()
            tab.go_back()
            large.wait_for(state="detached")
            assert tab.url == site + PAGE
            assert abs(tab.evaluate("scrollY") - place) <= 1
        button.click()
        tab.get_by_role("button", name="Close").click()
        tab.wait_for_function("!history.state?.enlarged")  # closing takes its step back
        tab.go_back()
        assert tab.url == site + "index.html"


def test_on_a_desk_no_picture_offers_to_be_enlarged(tab, site):  # noqa: F811
    with Visit(tab, width=WIDE):
        tab.goto(site + PAGE)
        assert tab.locator("main .enlarge:visible").count() == 0


def test_no_picture_is_a_link_to_its_file(built):  # noqa: F811
    link = re.compile(r'<a\b[^>]*href="[^"]*_images/')
    assert [path.name for path in HTML.rglob("*.html") if link.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("width", [NARROW, WIDE], ids=["phone", "desk"])
def test_a_click_on_the_translation_of_the_first_page_neither_leaves_it_nor_enlarges_it(tab, site, width):  # noqa: F811
    with Visit(tab, width=width):
        tab.goto(site + "index.html")
        tab.locator("#fig-translated .word", has_text="station").click()
        tab.locator("#fig-translated .word.chosen", has_text="駅").wait_for()
        assert tab.locator("dialog.enlarged").count() == 0
        assert tab.url == site + "index.html"


def test_a_displayed_formula_stands_in_the_middle_of_its_column(tab, site):  # noqa: F811
    with Visit(tab, width=WIDE):
        tab.goto(site + "notebooks/02_simple_self_attention.html")
        for column, formula in tab.locator("section:not(details *) > div.math").evaluate_all(
            """(columns) => columns.map((column) => [column, column.querySelector("mrow")].map((e) => {
              const { left, right } = e.getBoundingClientRect();
              return (left + right) / 2;
            }))"""
        ):
            assert abs(column - formula) < 2
