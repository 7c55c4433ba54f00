"""A pytest plugin: nbval compares numbers to one unit of their last printed digit, and all else exactly.

nbval compares text. A stored 0.1234 and a computed 0.1235 are the same result rounded on two machines,
while 3 tokens and 4 tokens are not. So:

- A number with digits after its point, or with an exponent, may differ by one unit of its last printed digit.
- Any other number is exact: 3, 10,000, and 1. beside 2., as torch prints whole numbers.
- Where a sign or a digit more makes a number longer (-0.0000 for 0.0000), its neighbours move;
  then, and only then, a run of spaces may be one longer or shorter.
- Words, nan, inf and the layout are exact.
- plots.attention_view packs its numbers (and draws them a second time, as a bitmap): they are unpacked, and each
  may differ by one unit like any printed number. Cells that a mask hides are hidden in both.
- What a picture says below ONE_RUN (the numbers of a training run, or times) is for readers and compared with nothing.
"""

import base64
import binascii
import itertools
import re
import sys
from decimal import Decimal

import pytest

# nbformat's schemas bring a grammar of addresses in all scripts of the world. Reading it takes every process more than
# a second, and no notebook has such an address; jsonschema does without it where it is not installed.
sys.modules.setdefault("rfc3987_syntax", None)

NUMBER = re.compile(
    r"""
    (?<![A-Za-z0-9_.])                        # not inside a name or a version such as 1.2.3
    (?:(?<![)\]])[-+])?                       # a sign, unless it subtracts
    (?:[0-9]+(?P<point>\.(?P<decimals>[0-9]*))?|\.(?P<bare>[0-9]+))
    (?:[eE](?P<exponent>[-+]?[0-9]+))?
    (?!\.?[0-9])
    """,
    re.VERBOSE,
)
SPACES = re.compile(r"( +)")
ONE_RUN = "\none run, other machines' numbers differ:\n"  # as in attn_course.plots.text, which takes seconds to import
PACKED = re.compile(
    r'"weights":"(?P<digits>[1-4]):(?P<signs>[\w.-]+)"|data:image/bmp;base64,(?P<bitmap>[A-Za-z0-9+/=]+)'
)
SIX_BITS = {
    sign: f"{n:06b}" for n, sign in enumerate("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_.")
}


class Text(str):
    """A text that equals another when it says the same, numbers rounded differently or not."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and difference(self, other) is None

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def difference(stored: str, computed: str) -> str | None:
    """The first thing that differs by more than rounding, as a sentence; None if nothing does."""
    stored, computed = (f"\n{text}".partition(ONE_RUN)[0].removeprefix("\n") for text in (stored, computed))
    if PACKED.search(stored) and PACKED.search(computed):
        texts, packed = zip(*map(_unpack, (stored, computed)), strict=True)
        return _difference_of_texts(*texts) or _difference_of_packed(*packed)
    return _difference_of_texts(stored, computed)


def _unpack(text: str) -> tuple[str, list[tuple]]:
    """The text without its packed numbers, and these: what they are, what of it is exact, the digits, the numbers."""
    packed = []

    def take(match: re.Match) -> str:
        try:
            packed.append(_bitmap(match["bitmap"]) if match["bitmap"] else _weights(match["digits"], match["signs"]))
        except (KeyError, IndexError, binascii.Error):
            return match[0]  # damaged: compared as the text that it is
        return "packed numbers"

    return PACKED.sub(take, str(text)), packed


def _weights(digits: str, signs: str) -> tuple:
    bits = "".join(SIX_BITS[sign] for sign in signs)
    size = (10 ** int(digits) + 1).bit_length()
    numbers = [int(bits[i : i + size], 2) for i in range(0, len(bits) - size + 1, size)]
    hidden = [number > 10 ** int(digits) for number in numbers]
    return "weight", (digits, len(signs), hidden), int(digits), numbers


def _bitmap(text: str) -> tuple:
    data = base64.b64decode(text, validate=True)
    start = int.from_bytes(data[10:14], "little")
    colors, pixels = data[:start], list(data[start:])
    digits = 2 if data[46] > 100 else 1  # the colours count 100 or 10 units, and those of hidden cells
    return "pixel", (colors, len(pixels)), digits, pixels


def _difference_of_packed(stored: list[tuple], computed: list[tuple]) -> str | None:
    for (what, exact_a, digits, a), (_, exact_b, _, b) in zip(stored, computed, strict=True):
        if exact_a != exact_b:
            return f"the packed {what}s differ in their number, their digits or in which of them a mask hides"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if abs(x - y) > 1:
                x, y, unit = (f"{n / 10**digits:.{digits}f}" for n in (x, y, 1))
                return f"{what} {i} (packed): {x} is stored, {y} is computed: more than {unit} apart"
    return None


def _difference_of_texts(stored: str, computed: str) -> str | None:
    words_a, numbers_a = _split(stored)
    words_b, numbers_b = _split(computed)
    moved = any(len(a[0]) != len(b[0]) for a, b in zip(numbers_a, numbers_b, strict=False))
    pairs = itertools.zip_longest(words_a, words_b, numbers_a, numbers_b)
    line = 1
    for word_a, word_b, a, b in pairs:
        if word_a is None or word_b is None or not _same_words(word_a, word_b, moved, before_number=a and b):
            return f"line {line + _lines_before_difference(word_a, word_b)}: the text differs"
        line += word_a.count("\n")
        if a is None and b is None:
            continue
        if a is None or b is None:
            return f"line {line}: the text differs"
        if problem := _compare_numbers(a, b):
            return f"line {line}: {problem}"
    return None


def _split(text: str) -> tuple[list[str], list[re.Match]]:
    """The texts around the numbers, one more than numbers, and the numbers."""
    numbers = list(NUMBER.finditer(text))
    ends = [0, *(number.end() for number in numbers)]
    starts = [*(number.start() for number in numbers), len(text)]
    return [str.__getitem__(text, slice(end, start)) for end, start in zip(ends, starts, strict=True)], numbers


def _same_words(a: str, b: str, moved: bool, before_number: object) -> bool:
    if str.__eq__(a, b):
        return True
    if not moved:
        return False
    runs_a, runs_b = SPACES.split(a), SPACES.split(b)
    if before_number:  # "[0.5" and "[ 0.5": the run before a number may be empty
        runs_a, runs_b = (runs if len(runs) > 1 and not runs[-1] else [*runs, "", ""] for runs in (runs_a, runs_b))
    return len(runs_a) == len(runs_b) and all(
        abs(len(run_a) - len(run_b)) <= 1 if index % 2 else run_a == run_b
        for index, (run_a, run_b) in enumerate(zip(runs_a, runs_b, strict=True))
    )


def _compare_numbers(a: re.Match, b: re.Match) -> str | None:
    if a[0] == b[0]:
        return None
    kind_a, kind_b = _kind(a), _kind(b)
    units = [unit for unit in (_unit(a), _unit(b)) if unit] or [Decimal(0)]
    # torch prints 1. where all numbers are whole and 1.0000 as soon as one is not.
    if kind_a[0] != kind_b[0] or (kind_a != kind_b and ("fixed", 0) not in (kind_a, kind_b)):
        return f"{a[0]} is stored, {b[0]} is computed: they are printed in different forms"
    unit = max(units)
    if abs(Decimal(a[0]) - Decimal(b[0])) <= unit:
        return None
    allowed = f"more than {unit} apart" if unit else "a whole number is exact"
    return f"{a[0]} is stored, {b[0]} is computed: {allowed}"


def _decimals(number: re.Match) -> int:
    return len(number["decimals"] or number["bare"] or "")


def _kind(number: re.Match) -> tuple:
    """Numbers of different kinds do not agree: 0.50 and 0.5 were rounded differently, 5 and 5. have different types."""
    point = bool(number["point"] or number["bare"])
    if number["exponent"]:
        return ("exponent", _decimals(number))
    return ("fixed", _decimals(number)) if point else ("whole",)


def _unit(number: re.Match) -> Decimal:
    """One unit of the last printed digit, 0 for a number that must be exact."""
    if not number["exponent"] and not _decimals(number):
        return Decimal(0)
    return Decimal(1).scaleb(int(number["exponent"] or 0) - _decimals(number))


def _lines_before_difference(a: str | None, b: str | None) -> int:
    common = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a or "", b or "", strict=False))
    return sum(left == "\n" for left, _ in common)


# ---------------------------------------------------------------- hooks


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("nbval", False) or config.getoption("nbval_lax", False):
        from nbval.plugin import IPyNbCell

        if not hasattr(IPyNbCell.sanitize, "plain"):
            IPyNbCell.sanitize = _tolerant(IPyNbCell.sanitize)


def _tolerant(plain):
    def sanitize(self, value):
        value = plain(self, value)
        return Text(value) if isinstance(value, str) else value

    sanitize.plain = plain
    return sanitize


@pytest.hookimpl(tryfirst=True)
def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show the lines that differ by more than rounding, and why the first one does."""
    if op != "==" or not isinstance(left, Text) or not isinstance(right, Text):
        return None
    lines_a, lines_b = str(left).splitlines(), str(right).splitlines()
    shown = []
    if len(lines_a) == len(lines_b):
        for a, b in zip(lines_a, lines_b, strict=True):
            shown += [f"  {a}"] if difference(a, b) is None else [f"- {a}", f"+ {b}"]
    else:
        shown = [f"- {line}" for line in lines_a] + [f"+ {line}" for line in lines_b]
    shown = [line if len(line) < 500 else f"{line[:400]} … ({len(line)} characters)" for line in shown]
    return [difference(left, right) or "equal", "(- stored in the notebook, + computed now)", *shown]
