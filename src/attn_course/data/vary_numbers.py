"""Replace the numbers in sentence pairs, so that a translator learns to copy any number. Used in chapter 12.

Everyday sentences contain few different numbers, so a model learns *thirty years* but not *74 years*. If both sides
of a pair have the same numbers, any other numbers would be right, too.
"""

import re
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from attn_course.data.corpora import Pair

_LONGEST = 6  # digits of a new number
_SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: n for n, word in enumerate(_SMALL.split(), start=1)}
_WORDS |= {word: n for n, word in zip(range(30, 100, 10), _TENS.split(), strict=True)}
_SPELLED = {n: word for word, n in _WORDS.items()}

# Not the digits of names, of telephone numbers, of decimals and of 3rd.
_DIGITS = r"(?<![a-z\d.,:—-])\d+(?:,\d{3})*(?![\d—-]|[.,:]\d|(?!s\b)[a-z]|st\b|nd\b|rd\b|th\b)"
_CLOCK = r"(?<![\d:.,-])(?P<hour>\d{1,2}):(?P<minute>\d\d)(?![\d:])"
_JA_NUMBER = re.compile(_DIGITS, re.IGNORECASE | re.ASCII)
_EN_NUMBER = re.compile(rf"{_CLOCK}|{_DIGITS}|(?<![\w-])(?:{'|'.join(_WORDS)})(?![\w-])", re.ASCII)


class _Number(NamedTuple):
    start: int
    end: int
    value: int
    kind: str  # what stands there: digits, minute (two digits) or word


def vary_numbers(pair: Pair, rng: Random) -> Pair | None:
    """Return the pair with other numbers, equal on both sides, or None if the numbers of the two sides differ.

    A number that English writes as a word (*seven*) is found, too, and becomes a word if the new one is at most
    twenty or a multiple of ten below 100, otherwise digits. Half of the new numbers have as many digits as the old
    ones, the others from 1 to 6; hours and minutes stay within a clock's. 1 stays what it is, for it alone is
    followed by *book* and not *books*.

    Args:
        pair: spelled as :func:`~attn_course.data.text.normalize_japanese` and
            :func:`~attn_course.data.text.tokenize_english` do.
        rng: chooses the numbers.

    Example:
        >>> vary_numbers(Pair("彼は47歳で、子供が2人いる。", "he is 47 and has two children ."), Random(8))
        Pair(ja='彼は4歳で、子供が8人いる。', en='he is 4 and has eight children .')
        >>> vary_numbers(Pair("8月は暑い。", "august is hot ."), Random(0))
    """
    japanese = _find_japanese(pair.ja)
    if not japanese:
        return None
    english = _find_english(pair.en, pair.ja)
    values = sorted({n.value for n in japanese if n.value > 1})
    if (
        not values
        or sorted(n.value for n in japanese if n.value > 1) != sorted(n.value for n in english if n.value > 1)
        or re.search(r"\d(?:st|nd|rd|th)\b", pair.en)
    ):
        return None
    minutes = {n.value for n in english if n.kind == "minute"}
    new, commas = {}, {}
    for value in values:
        behind = {pair.ja[n.end :][:2] for n in japanese if n.value == value}
        if value in minutes:
            new[value] = rng.randint(2, 59)
        elif any(text[:1] == "時" and text != "時間" for text in behind):
            new[value] = rng.randint(2, 12)
        else:
            digits = len(str(value)) if rng.random() < 0.5 else rng.randint(1, _LONGEST)
            new[value] = rng.randint(max(2, 10 ** (digits - 1)), 10**digits - 1)
        is_year = any(text[:1] == "年" for text in behind)
        commas[value] = "," if not is_year and rng.random() < 0.25 else ""

    def write(text: str, numbers: Iterable[_Number]) -> str:
        for start, end, value, kind in sorted(numbers, reverse=True):
            if value > 1:
                number = new[value]
                spelled = f"{number:{commas[value]}d}"
                if kind == "word":
                    spelled = _SPELLED.get(number, spelled)
                elif kind == "minute":
                    spelled = f"{number:02d}"
                text = text[:start] + spelled + text[end:]
        return text

    return Pair(write(pair.ja, japanese), write(pair.en, english))


def _find_japanese(text: str) -> list[_Number]:
    return [_number(m.start(), m[0], "digits") for m in _JA_NUMBER.finditer(text)]


def _find_english(text: str, japanese: str) -> list[_Number]:
    numbers = []
    for match in _EN_NUMBER.finditer(text):
        if match["hour"]:
            numbers.append(_number(match.start("hour"), match["hour"], "digits"))
            # 7時 is 7:00, and 7時半 is 7:30.
            unsaid = match["minute"] == "00" or (match["minute"] == "30" and "時半" in japanese)
            if not unsaid:
                numbers.append(_number(match.start("minute"), match["minute"], "minute"))
        else:
            kind = "word" if match[0] in _WORDS else "digits"
            numbers.append(_number(match.start(), match[0], kind))
    return numbers


def _number(start: int, text: str, kind: str) -> _Number:
    value = _WORDS[text] if kind == "word" else int(text.replace(",", ""))
    return _Number(start, start + len(text), value, kind)
