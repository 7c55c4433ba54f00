"""Spell Japanese as the translator reads it best: numbers in digits, dates as weekdays, and an end mark.

The translator of the course has hardly seen numbers in kanji of two or more signs, or dates with month and day.
Digits it copies by the rule of :mod:`attn_course.translation.copy_numbers`, and weekdays it knows well. So these
functions rewrite a sentence before the model reads it, and put the dates into the translation afterwards.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attn_course.data.text import normalize_japanese
from attn_course.translation.copy_numbers import value_of

_MONTHS = """
    january february march april may june july august september october november december
"""
MONTHS = _MONTHS.split()
WEEKDAYS = {"月曜日": "monday", "金曜日": "friday", "土曜日": "saturday", "日曜日": "sunday"}
"""Weekdays that may stand for a date: their English names are single pieces, and their Japanese names two."""

CLOCK = re.compile("(?<![0-9.,:])([0-9]{1,2}):([0-5][0-9])(?![0-9.,:])")
NO_END_MARK = re.compile("[0-9A-Za-z\u3041-\u3096\u30a1-\u30fcー\u3400-\u9fff々%]$")

_ONES = "一二三四五六七八九"
_SIGNS = f"〇{_ONES}十百千万億兆"
_BELOW = f"[{_ONES}]?千(?:[{_ONES}]?百)?(?:[{_ONES}]?十)?[{_ONES}]?"
_BELOW = f"(?:{_BELOW}|[{_ONES}]?百(?:[{_ONES}]?十)?[{_ONES}]?|[{_ONES}]?十[{_ONES}]?|[{_ONES}])"
# 二三人 and 二、三十人 are two or three and twenty or thirty people, and 数十人 is dozens.
_BEFORE = rf"(?<![0-9.,:{_SIGNS}数何幾])(?<![{_SIGNS}][、・])"
_AFTER = f"(?![0-9{_SIGNS}数何余])"
_COUNTERS = (
    "人(?!一首|十色|並|力)|円|年|歳|才|時|秒|個|本(?!桜)|枚|冊|匹|頭|羽|台|杯|回|階|軒|件|着|足|通|問|点|度|倍|行|段|名|"
    "週間|世紀|日(?!鼠)|[かヶケカ箇]月|分(?:間|前|後)|ページ|メートル|キロ|センチ|ミリ|グラム|トン|ドル|セント|ユーロ|"
    "ポンド|マイル|リットル|パーセント|%"
)
_MORE_COUNTERS = "分(?!の)|番|号|キログラム|種|種類|箱|袋|語|字|文字|位|校|国|巻|章|課|部|曲|席|周|泊|票|歩|km|kg|cm|m"
KANJI_NUMBER = re.compile(
    f"{_BEFORE}(?:"
    rf"(?:{_BELOW}|[0-9]{{1,4}}(?:[.][0-9])?)万(?:[0-9]千|[0-9]{{1,4}}|{_BELOW})?{_AFTER}(?!年筆|の神)"
    f"|(?=[{_SIGNS}]{{2}}){_BELOW}{_AFTER}(?={_COUNTERS}|{_MORE_COUNTERS}|[^\u3400-\u9fff々]|$)"
    f"|[十百千](?={_COUNTERS})"
    f"|{_BELOW}(?=時(?:{_BELOW}分|半))|(?<=午[前後]){_BELOW}(?=時(?!間))|(?<=時){_BELOW}(?=分)"
    f"|[〇{_ONES}]{{4}}(?=年)"
    ")"
)
_DAY = f"[0-9]{{1,2}}|[{_ONES}]?十[{_ONES}]?|[{_ONES}]"
DATE = re.compile(f"{_BEFORE}({_DAY})月({_DAY})日(?!間|曜)")
DATE_WITH_YEAR = re.compile("(?:(?<![0-9.,:])([0-9]{4})年)?(?<![0-9.,:])([0-9]{1,2})月([0-9]{1,2})日(?!間|曜)")


class Date(NamedTuple):
    """A date of a sentence, and the weekday that the model reads and writes in its place."""

    japanese: str
    english: str
    """In lower case, as the model writes."""
    japanese_weekday: str
    """A key of :data:`WEEKDAYS`."""
    english_weekday: str
    """Its name in English."""


def spell_japanese(sentence: str, *, numbers: bool = True) -> str:
    """Normalise Japanese, and spell its times, dates and numbers with Arabic digits.

    Of the numbers in kanji, only times, numbers of two or more signs, and 十, 百 or 千 before a counter are rewritten.
    The translator knows the others, and the signs are also parts of many words. Numbers with 万 are written out.

    Args:
        sentence: Japanese.
        numbers: False for a model that has not learned to copy digits. Then only 9:30 becomes 9時30分.

    Example:
        >>> spell_japanese("四十五歳 の父は 9:30 に十万円払った")
        '45歳の父は9時30分に100,000円払った'
        >>> spell_japanese("十月十二日は十分二三人で五十嵐さんを待った")
        '10月12日は十分二三人で五十嵐さんを待った'
    """
    text = CLOCK.sub(r"\1時\2分", normalize_japanese(sentence))
    if not numbers:
        return text
    text = DATE.sub(lambda m: f"{value_of(m[1]):f}月{value_of(m[2]):f}日", text)
    return KANJI_NUMBER.sub(_in_digits, text)


def _in_digits(match: re.Match[str]) -> str:
    value = int(value_of(match[0]))
    return f"{value:,}" if value >= 10_000 else str(value)


def add_end_mark(text: str) -> str:
    """Return a sentence with 。 at its end, if it ends in a letter or a digit.

    Example:
        >>> add_end_mark("すみません"), add_end_mark("本当？")
        ('すみません。', '本当？')
    """
    return f"{text}。" if NO_END_MARK.search(text) else text


def replace_dates(text: str) -> tuple[str, list[Date]]:
    """Replace dates with month and day by weekdays that the sentence does not contain.

    Dates for which no weekday is left stay as they are.

    Args:
        text: a sentence as :func:`spell_japanese` returns it.

    Example:
        >>> replace_dates("10月12日に来ます。")[0]
        '月曜日に来ます。'
        >>> text, (date,) = replace_dates("2024年5月3日は月曜日です。")
        >>> text, date.english
        ('金曜日は月曜日です。', 'may 3, 2024')
    """
    dates: list[Date] = []

    def replace(match: re.Match[str]) -> str:
        year, month, day = match[1], int(match[2]), int(match[3])
        free = [w for w in WEEKDAYS if w[:2] not in text and all(w != d.japanese_weekday for d in dates)]
        if not free or not 1 <= month <= 12 or not 1 <= day <= 31:
            return match[0]
        english = f"{MONTHS[month - 1]} {day}" + (f", {year}" if year else "")
        dates.append(Date(match[0], english, free[0], WEEKDAYS[free[0]]))
        return free[0]

    return DATE_WITH_YEAR.sub(replace, text), dates


def restore_dates(english: str, dates: Sequence[Date]) -> str:
    """Replace the weekdays of a translation by their dates.

    Args:
        english: a translation in lower case, with spaces around punctuation.
        dates: the dates that :func:`replace_dates` returned.

    Example:
        >>> restore_dates("he comes on monday .", replace_dates("10月12日に来ます。")[1])
        'he comes on october 12 .'
    """
    names: Mapping[str, str] = {date.english_weekday: date.english for date in dates}
    return re.sub(r"[a-z]+", lambda m: names.get(m[0], m[0]), english)
