"""The drawing of self-attention, which grows from section to section of chapter 0."""

import xml.etree.ElementTree as ET

import pytest

from attn_course import plots

PARTS = ("projections", "scale", "mask", "dropout")
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing):
    return [e.text for e in ET.fromstring(drawing.svg).iter(SVG + "text")]


def test_the_smallest_drawing_needs_nothing_but_the_tokens():
    drawn = texts(plots.attention_steps(parts=[]))
    assert drawn == [
        "x (6, 3)",
        "x xᵀ",
        "scores",
        "(6, 6)",
        "softmax",
        "weights",
        "(6, 6)",
        "weights x",
        "context (6, 3)",
    ]


@pytest.mark.parametrize("count", range(4))
def test_each_part_adds_its_name_and_takes_nothing_away(count):
    names = {
        "projections": {"W_query", "W_key", "W_value"},
        "scale": {"÷ √D"},
        "mask": {"mask"},
        "dropout": {"dropout"},
    }
    part = PARTS[count]
    before, after = (set(texts(plots.attention_steps(parts=PARTS[:n]))) for n in (count, count + 1))
    assert names[part] <= after - before
    assert before <= after or part == "projections"  # with projections, q, k and v replace x


def test_the_steps_of_the_text_are_those_that_are_drawn():
    assert plots.attention_steps(parts=["mask"]).text.splitlines()[1:] == [
        "x (6, 3)",
        "x times x transposed: scores (6, 6)",
        "scores mask, softmax: weights (6, 6)",
        "weights times x: context (6, 3)",
    ]


def test_a_step_that_is_not_drawn_cannot_be_highlighted():
    with pytest.raises(ValueError, match=r"highlight \('mask'\) must be one of 'scores', 'softmax', 'context'"):
        plots.attention_steps("mask", parts=[])
    with pytest.raises(ValueError, match=r"parts \['gate'\] must be among"):
        plots.attention_steps(parts=["gate"])
