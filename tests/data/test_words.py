"""Words: what a morphological analyser cuts is all there, in order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_course.data.words import words

TEXT = st.text(st.characters(min_codepoint=0x3041, max_codepoint=0x30FF) | st.sampled_from("猫犬食見行。、？ａa1 "))


def test_the_words_of_a_sentence():
    assert words("彼女は本を読みませんでした。") == ["彼女", "は", "本", "を", "読み", "ませ", "ん", "でし", "た", "。"]
    assert words("すもももももももものうち") == ["すもも", "も", "もも", "も", "もも", "の", "うち"]


def test_compounds_are_cut_as_short_as_they_can_be():
    assert words("一立方メートルの箱を引っ張った") == ["一", "立方", "メートル", "の", "箱", "を", "引っ", "張っ", "た"]


@settings(max_examples=50)
@given(TEXT)
def test_the_words_joined_are_the_text(text):
    found = words(text)
    assert "".join(found) == text
    assert all(found)


def test_an_empty_text_has_no_words():
    assert words("") == []


def test_a_text_that_is_too_long_is_refused_with_its_length():
    assert len("".join(words("あ" * 16_383))) == 16_383
    with pytest.raises(ValueError, match=r"text must have at most 49,149 bytes, not 49,152: cut it into sentences"):
        words("あ" * 16_384)
