"""A rule for :mod:`attn_course.decoding` that copies the numbers of the source. The translator uses it.

A translator that writes a number digit by digit can lose a digit, and readers of the translation would not notice.
Every number of a translation is in its source, so the search may write only the numbers of the source.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from attn_course.data.subwords import EOS_ID, UNK_ID, Subwords

MISSING_NUMBER = 10.0
"""The penalty of a translation for each missing number."""

_KANJI_DIGITS = {sign: n for n, sign in enumerate("〇一二三四五六七八九")}
_KANJI_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "億": 10**8, "兆": 10**12}
_KANJI = "".join([*_KANJI_DIGITS, *_KANJI_UNITS])
_DIGITS = "[0-9]+(?:,[0-9]{3}(?![0-9]))*"  # 12,800 is one number, and 2,3 is two
NUMBER_IN_SOURCE = re.compile(rf"{_DIGITS}(?:[.:][0-9]+)*(?![0-9.:{_KANJI}])|(?:{_DIGITS}(?:[.][0-9]+)?|[{_KANJI}])+")
NUMBER_PART = re.compile(rf"{_DIGITS}(?:[.][0-9]+)?|[{_KANJI}]")
OPTIONAL_IF_BEFORE = re.compile("月|代|度と")  # as in March, teens, never again
NUMBER_IN_ENGLISH = re.compile("[0-9][0-9.,:]*(?: (?:hundred|thousand|million|billion)(?![a-z]))?")
NUMERIC_PIECE = re.compile("[0-9]|^[.,:]|^ (?:hundred|thousand|million|billion)$")
NUMBER_WORDS = {
    1: "one",
    2: "two second twice both couple few double pair",
    3: "three third thirds few",
    4: "four fourth",
    5: "five fifth",
    6: "six sixth",
    7: "seven seventh",
    8: "eight eighth",
    9: "nine ninth",
    10: "ten tenth",
    11: "eleven eleventh",
    12: "twelve twelfth dozen noon",
    13: "thirteen thirteenth",
    14: "fourteen fourteenth",
    15: "fifteen fifteenth quarter",
    16: "sixteen sixteenth",
    17: "seventeen seventeenth",
    18: "eighteen eighteenth",
    19: "nineteen nineteenth",
    20: "twenty twentieth",
    30: "thirty thirtieth half",
    40: "forty fortieth",
    50: "fifty fiftieth half",
    60: "sixty sixtieth",
    70: "seventy seventieth",
    80: "eighty eightieth",
    90: "ninety ninetieth",
}


class Spelling(NamedTuple):
    """One way to write a number of the source in English digits, or an hour with its minutes."""

    text: str
    uses: frozenset[int]
    """The indices of the numbers of the source that it contains."""


class SourceNumbers(NamedTuple):
    """The numbers of a Japanese sentence."""

    spellings: list[Spelling]
    required: dict[int, set[str]]
    """The numbers that a translation should not lack, each with the words that may replace its digits."""


def find_numbers(japanese: str) -> SourceNumbers:
    """Find the numbers of a sentence, in Arabic digits, in kanji, or in both.

    Only numbers with Arabic digits are required, since kanji numerals are often parts of other words. 1 is not
    required either, except in 1時, since English often writes *a*.

    Args:
        japanese: a sentence as :func:`~attn_course.data.text.normalize_japanese` spells it.

    Example:
        >>> numbers = find_numbers("1944年8時半に3万5千円と2.90ドル")
        >>> [spelling.text for spelling in numbers.spellings]
        ['1944', '8', '8:30', '35,000', '2.90']
        >>> [spelling.text for spelling in find_numbers("11時5分").spellings]
        ['11', '11:00', '11:05']
        >>> sorted(find_numbers("50人").required[0])
        ['fiftieth', 'fifty', 'half']
    """
    matches = list(NUMBER_IN_SOURCE.finditer(japanese))
    spellings, required = [], {}
    for i, match in enumerate(matches):
        number, behind = match[0], japanese[match.end() :]
        texts = _spell(number, behind)
        spellings += [Spelling(text, frozenset({i})) for text in texts]
        if (
            (number != "1" or re.match("時(?!間)", behind))
            and re.search("[0-9]", number)
            and not OPTIONAL_IF_BEFORE.match(behind)
        ):
            required[i] = _words_for(number)
    for i, (hour, minute) in enumerate(pairwise(matches)):
        between, behind = japanese[hour.end() : minute.start()], japanese[minute.end() :]
        if between == "時" and re.match("分(?!前)", behind):
            text = f"{value_of(hour[0])}:{int(value_of(minute[0])):02}"
            # Minutes alone would be another hour, and "five" in 5時5分 would count twice.
            spellings = [s for s in spellings if s.uses != {i + 1}]
            spellings.append(Spelling(text, frozenset({i, i + 1})))
            if i + 1 in required:
                required[i + 1] -= required.get(i, set())
    return SourceNumbers(spellings, required)


def _spell(number: str, behind: str) -> list[str]:
    """Return the ways in which English may write a number, which depend on the text behind it."""
    has_kanji = any(sign in _KANJI for sign in number)
    plain = _write(value_of(number)) if has_kanji else number.replace(",", "")
    with_commas = re.sub(r"\B(?=([0-9]{3})+$)", ",", plain)
    if not re.fullmatch("[1-9][0-9]*", plain) or behind.startswith("年"):
        return [plain]
    if has_kanji and plain.endswith("00000") and len(plain) > 6:
        return [with_commas, f"{_write(value_of(number) / 10**6)} million"]
    texts = [with_commas] if has_kanji else [plain, with_commas]
    if behind.startswith("時半"):
        texts.append(f"{plain}:30")
    elif re.match("時(?!間)", behind):
        texts.append(f"{plain}:00")
    return list(dict.fromkeys(texts))


def _write(value: Decimal) -> str:
    return f"{value.normalize():f}"


def value_of(number: str) -> Decimal:
    """Return the value of a number in Arabic digits, in kanji, or in both: 3万5千 is 35000."""
    total = below = digits = Decimal(0)
    for part in NUMBER_PART.findall(number):
        if part in _KANJI_DIGITS:
            digits = 10 * digits + _KANJI_DIGITS[part]
        elif part not in _KANJI_UNITS:
            digits = Decimal(part.replace(",", ""))
        elif part in "万億兆":
            total += (below + digits or 1) * _KANJI_UNITS[part]
            below = digits = Decimal(0)
        else:
            below += (digits or 1) * _KANJI_UNITS[part]
            digits = Decimal(0)
    return total + below + digits


def _words_for(number: str) -> set[str]:
    """Return words that can replace the digits in English, such as *twenty* for 23. One of them is enough."""
    if not number.isdecimal():
        return set()
    if number[1:] in ("00", "000"):
        return {"hundred" if len(number) == 3 else "thousand"}
    value = int(number)
    return set((NUMBER_WORDS.get(value) or NUMBER_WORDS.get(value // 10 * 10, "")).split())


class CopyNumbers:
    """A :class:`~attn_course.decoding.Rule`: write digits only where they copy a number of the source.

    A translation may contain each number of the source once. Number words such as *three* may always be written, and
    a source without an Arabic digit has no rule.

    Args:
        src_subwords: the pieces of the sources.
        tgt_subwords: the pieces of the translations.
        names: for the ids of a source, without its end, the names that its translation should not lack.
    """

    def __init__(
        self,
        src_subwords: Subwords,
        tgt_subwords: Subwords,
        names: Mapping[tuple[int, ...], Sequence[str]] | None = None,
    ) -> None:
        self.src_subwords, self.tgt_subwords = src_subwords, tgt_subwords
        self.names = names or {}
        pieces = [tgt_subwords.piece(i).replace("▁", " ") for i in range(len(tgt_subwords))]
        # Pieces that can be part of a number; all others end it.
        self.numeric = {i: piece for i, piece in enumerate(pieces) if NUMERIC_PIECE.search(piece)}

    def __call__(self, source: Sequence[int]) -> "NumbersOfSource | None":
        """Return the rule for one source, or None if its text has neither an Arabic digit nor a name.

        Args:
            source: the ids of the source.
        """
        japanese = self.src_subwords.decode(source)
        names = self.names.get(tuple(i for i in source if i != EOS_ID), ())
        if not names and not re.search("[0-9]", japanese):
            return None
        spellings, required = find_numbers(japanese)
        required |= {-1 - i: {name} for i, name in enumerate(names)}
        # A vocabulary may lack a digit.
        spellings = [s for s in spellings if UNK_ID not in self.tgt_subwords.encode([s.text])]
        return NumbersOfSource(self, spellings, required)


class NumbersOfSource:
    """The rule for one source.

    Args:
        rule: the rule for all sources, with the vocabularies.
        spellings: the allowed spellings of the numbers.
        required: the numbers that must not be missing; see :class:`SourceNumbers`.
    """

    def __init__(self, rule: CopyNumbers, spellings: list[Spelling], required: dict[int, set[str]]) -> None:
        self.rule, self.spellings, self.required = rule, spellings, required

    def allowed(self, written: Sequence[int]) -> Bool[Tensor, "V"]:
        """Return True for each piece that may be written next, or for all pieces if none is allowed.

        Args:
            written: the ids so far, without the beginning-of-sequence id.
        """
        text = self.rule.tgt_subwords.decode(written)
        allowed = torch.full((len(self.rule.tgt_subwords),), bool(self.used_in(text + " ")))
        for i, piece in self.rule.numeric.items():
            allowed[i] = bool(self.used_in(text + piece))
        return allowed if allowed.any() else ~allowed

    def penalty(self, written: Sequence[int]) -> float:
        """Return ``MISSING_NUMBER`` for each required number that a finished translation lacks.

        Args:
            written: the ids of the translation, without the beginning-of-sequence id.
        """
        text = self.rule.tgt_subwords.decode(written)
        words = set(re.findall("[a-z]+", text))
        missing = {i for i, spelled in self.required.items() if not words & spelled}
        return MISSING_NUMBER * min((len(missing - used) for used in self.used_in(text + " ")), default=0)

    def used_in(self, text: str) -> set[frozenset[int]]:
        """Return the sets of numbers that a text may have written in digits; no set if it breaks the rule.

        Args:
            text: the beginning of a translation; a number at its end may be unfinished.
        """
        used = {frozenset()}
        for match in NUMBER_IN_ENGLISH.finditer(text):
            fits = str.startswith if match.end() == len(text) else str.__eq__
            used = {
                before | spelling.uses
                for before in used
                for spelling in self.spellings
                if fits(spelling.text, match[0]) and not before & spelling.uses
            }
        return used
