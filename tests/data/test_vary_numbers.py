"""Pairs with other numbers: the same on both sides, and nothing else is touched."""

import re
from random import Random

import pytest

from attn_course.data.corpora import Pair
from attn_course.data.vary_numbers import vary_numbers


def varied(ja, en, times=200):
    rng = Random(0)
    return [vary_numbers(Pair(ja, en), rng) for _ in range(times)]


def test_both_sides_get_the_same_number_and_keep_the_rest():
    found = varied("彼は47歳です。", "he is 47 years old .")
    lengths = set()
    for ja, en in found:
        number = re.fullmatch(r"彼は([\d,]+)歳です。", ja)[1]
        assert en == f"he is {number} years old ."
        assert int(number.replace(",", "")) >= 2
        lengths.add(len(number.replace(",", "")))
    assert lengths == {1, 2, 3, 4, 5, 6}
    assert any("," in ja for ja, _ in found)


def test_a_word_becomes_a_word_if_the_new_number_is_small_and_digits_otherwise():
    words = {"2": "two", "9": "nine", "12": "twelve", "20": "twenty", "90": "ninety"}
    seen = set()
    for ja, en in varied("りんごを3個買った。", "i bought three apples .", 2000):
        number = re.fullmatch("りんごを([0-9,]+)個買った。", ja)[1]
        written = re.fullmatch("i bought (.+) apples [.]", en)[1]
        if number in words:
            seen.add(number)
            assert written == words[number]
        elif written.isalpha():
            assert int(number) <= 20 or int(number) % 10 == 0
        else:
            assert written == number
            assert int(number.replace(",", "")) > 20
    assert len(seen) >= 4


def test_equal_numbers_stay_equal_and_each_keeps_its_place():
    for ja, en in varied("5人のうち3人が、5回来た。", "three of the five came 5 times ."):
        a, b, c = re.fullmatch("(.+)人のうち(.+)人が、(.+)回来た。", ja).groups()
        assert a == c
        x, y, z = re.fullmatch("(.+) of the (.+) came (.+) times [.]", en).groups()
        assert z == a
        assert (x, y) == (b, a) or x.isalpha() or y.isalpha()


def test_the_clock_stays_a_clock():
    for ja, en in varied("電車は9時5分に出る。", "the train leaves at 9:05 ."):
        hour, minute = map(int, re.fullmatch(r"電車は(\d+)時(\d+)分に出る。", ja).groups())
        assert 2 <= hour <= 12
        assert 2 <= minute <= 59
        assert en == f"the train leaves at {hour}:{minute:02d} ."
    for ja, en in varied("7時半に会おう。", "see you at 7:30 ."):
        assert en == f"see you at {ja.partition('時')[0]}:30 ."
    for ja, en in varied("7時に会おう。", "see you at 7:00 ."):
        assert en == f"see you at {ja.partition('時')[0]}:00 ."


def test_years_have_no_comma():
    found = [ja for ja, _ in varied("1492年に着いた。", "it arrived in 1492 .")]
    assert any(len(ja) > 8 for ja in found)
    assert not any("," in ja for ja in found)


@pytest.mark.parametrize(
    ("ja", "en"),
    [
        ("8月は暑い。", "august is hot ."),  # no number in English
        ("本がある。", "there are two books ."),  # none in Japanese
        ("2人と3匹", "two people and four cats"),
        ("本が1冊ある。", "there is 1 book ."),  # 1 alone is singular
        ("第3章", "the 3rd chapter"),
        ("3番目の3", "the 3rd is 3"),
        ("5万円", "50,000 yen"),
        ("223-1374です", "it is 223-1374"),
        ("3.5キロ", "3.5 kilos"),
        ("MP3です", "it is an mp3"),
    ],
)
def test_vary_numbers_keeps_numbers_of_one_side(ja, en):
    assert varied(ja, en, 1) == [None]


def test_vary_numbers_keeps_the_number_one():
    for ja, en in varied("1日6時間眠る。", "i sleep six hours a day .", 20):
        assert ja.startswith("1日")
        assert en.endswith(" hours a day .")


def test_the_same_seed_gives_the_same_numbers():
    assert varied("彼は47歳です。", "he is 47 .", 20) == varied("彼は47歳です。", "he is 47 .", 20)
