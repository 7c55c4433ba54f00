"""Dates as people write them, each with its one right answer in ISO 8601. Used from chapter 1 on.

>>> rng = torch.Generator().manual_seed(0)
>>> write_date(date(2021, 5, 3), rng, style="the 3rd of May, 2021")
'the 3rd of May, 2021'
>>> date(2021, 5, 3).isoformat()
'2021-05-03'

The rules that make every answer certain:

* Years go from 1969 to 2068, so that two digits are enough: 69 to 99 mean 1969 to 1999, and 00 to 68 mean
  2000 to 2068, as in POSIX and in ``datetime.strptime``. Two digits stand last, never first.
* A month may be a number beside a day only where nobody can mistake one for the other: the year leads
  (2021-05-03), or the day is above 12 (5/27/2021, 27/5/2021, 27.05.2021), or both are the same (5/5/2021).
  Then the American order and the European one are both used.
* A weekday, where there is one, is that of the date.
* What stands around a date (:data:`LEADS`, :data:`TAILS`) holds no digit and no name of a month or weekday.
"""

import json
import string
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from importlib.resources import files
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

__all__ = [
    "FIRST_DATE",
    "LAST_DATE",
    "LEADS",
    "STYLES",
    "TAILS",
    "Characters",
    "draw_date",
    "load_runs",
    "make_pairs",
    "write_date",
]

FIRST_DATE, LAST_DATE = date(1969, 1, 1), date(2068, 12, 31)

SRC_ALPHABET = string.ascii_letters + string.digits + " ,.:/-'"
"""Every character that a date may be written with, or the words around it."""

TGT_ALPHABET = string.digits + "-"
"""Every character of a date in ISO 8601."""

MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
UNITS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
TEENS = [
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth"),
    *("fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"),
]


def ordinal(day: int) -> str:
    """1st, 2nd, 3rd, 4th, …, 11th, 12th, 13th, …, 31st."""
    suffix = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


def ordinal_word(day: int) -> str:
    """first, …, twenty-second, …, thirty-first."""
    if day < 20:
        return (UNITS + TEENS)[day - 1]
    if day % 10 == 0:
        return {20: "twentieth", 30: "thirtieth"}[day]
    return f"{ {2: 'twenty', 3: 'thirty'}[day // 10] }-{UNITS[day % 10 - 1]}"


def _month(d: date) -> str:
    return MONTHS[d.month - 1]


def _short(d: date) -> str:
    return _month(d)[:3]


STYLES: dict[str, Callable[[date], str]] = {
    "2021-05-03": lambda d: d.isoformat(),
    "2021/5/3": lambda d: f"{d.year}/{d.month}/{d.day}",
    "2021.05.03": lambda d: f"{d:%Y.%m.%d}",
    "5/27/2021": lambda d: f"{d.month}/{d.day}/{d.year}",
    "05/27/21": lambda d: f"{d:%m/%d/%y}",
    "27/5/2021": lambda d: f"{d.day}/{d.month}/{d.year}",
    "27.05.2021": lambda d: f"{d:%d.%m.%Y}",
    "27.5.21": lambda d: f"{d.day}.{d.month}.{d:%y}",
    "3 May 2021": lambda d: f"{d.day} {_month(d)} {d.year}",
    "3 May '21": lambda d: f"{d.day} {_short(d)} '{d:%y}",
    "03-May-21": lambda d: f"{d:%d}-{_short(d)}-{d:%y}",
    "May 3, 2021": lambda d: f"{_month(d)} {d.day}, {d.year}",
    # May is no abbreviation.
    "Oct. 3, 2021": lambda d: f"{_short(d)}{'' if d.month == 5 else '.'} {d.day}, {d.year}",
    "2021 May 3": lambda d: f"{d.year} {_short(d)} {d.day}",
    "3rd May 2021": lambda d: f"{ordinal(d.day)} {_short(d)} {d.year}",
    "May 3rd, 2021": lambda d: f"{_month(d)} {ordinal(d.day)}, {d.year}",
    "the 3rd of May, 2021": lambda d: f"the {ordinal(d.day)} of {_month(d)}, {d.year}",
    "May third, 2021": lambda d: f"{_month(d)} {ordinal_word(d.day)}, {d.year}",
}
"""How to write a date, in each of the styles; a style is named by an example."""

# In these styles day and month could be mistaken for each other, so not every date may be written in them.
_SWAPPABLE = ("5/27/2021", "05/27/21", "27/5/2021", "27.05.2021", "27.5.21")

LEADS = (
    *("on", "due:", "from", "until", "by", "dated", "born", "posted on", "see you on", "valid from", "arrives"),
    *(
        "the meeting is on",
        "please pay by",
        "last seen on",
        "trains leave on",
        "we open again on",
    ),
)
"""What may stand before a date."""

TAILS = (
    *("at noon", "in Paris", "at last", "as agreed", "or so", "in the evening", "with all of us", "for the team"),
    *(
        "at the latest",
        "in the big hall",
        "if it rains",
        "while stocks last",
        "but not at home",
    ),
)
"""What may stand after a date."""


def _pick(options: Sequence, rng: torch.Generator):
    return options[int(torch.randint(len(options), (), generator=rng))]


def _chance(p: float, rng: torch.Generator) -> bool:
    return float(torch.rand((), generator=rng)) < p


def draw_date(rng: torch.Generator) -> date:
    """Draw one of the 36,525 days from 1969 to 2068 uniformly."""
    days = (LAST_DATE - FIRST_DATE).days + 1
    return FIRST_DATE + timedelta(days=int(torch.randint(days, (), generator=rng)))


def write_date(day: date, rng: torch.Generator, *, style: str | None = None) -> str:
    """Write a date in one of the styles, sometimes with its weekday and in another letter case.

    Args:
        day: from 1969 to 2068.
        style: a key of :data:`STYLES`, to get exactly that, without weekday and as it is; None draws one of
            those in which this date can be read in one way only.

    Raises:
        ValueError: if the year needs four digits, or day and month could be confused in this style.

    Example:
        >>> write_date(date(2021, 5, 27), torch.Generator().manual_seed(0))
        '27 May 2021'
    """
    if not FIRST_DATE <= day <= LAST_DATE:
        raise ValueError(f"{day} must lie from {FIRST_DATE} to {LAST_DATE}, or two digits could not name its year")
    certain = day.day > 12 or day.day == day.month
    if style is not None:
        if style not in STYLES:
            raise ValueError(f"style ({style!r}) must be one of {list(STYLES)}")
        if style in _SWAPPABLE and not certain:
            raise ValueError(f"{day} in the style of {style!r} could be read as two dates: its day could be a month")
        return STYLES[style](day)
    style = _pick([name for name in STYLES if certain or name not in _SWAPPABLE], rng)
    text = STYLES[style](day)
    if any(letter.isalpha() for letter in style) and "-" not in style and _chance(0.3, rng):
        weekday = WEEKDAYS[day.weekday()]
        text = _pick([f"{weekday}, ", f"{weekday[:3]} ", f"{weekday[:3]}, "], rng) + text
    return _pick([text, text, text.lower(), text.upper()], rng)


def make_noisy(text: str, rng: torch.Generator) -> str:
    """Add typing errors: a missing comma, a space before a comma, or a double space."""
    for tidy, careless in ((", ", " "), (",", " ,"), (" ", "  ")):
        places = [i for i in range(len(text)) if text.startswith(tidy, i)]
        if places and _chance(0.1, rng):
            i = _pick(places, rng)
            text = text[:i] + careless + text[i + len(tidy) :]
    return text


def make_pairs(
    count: int, rng: torch.Generator, *, min_len: int = 1, max_len: int = 26, extra: float = 0.5
) -> list[tuple[str, str]]:
    """Draw pairs of a date as somebody writes it, and the same date in ISO 8601.

    Words are added before the date with the probability ``extra``, again and again, and then after the date. So a
    higher ``extra`` gives longer texts from the same parts. A text that is too short or too long is drawn again.

    Args:
        count: how many pairs.
        min_len: fewest characters of a text.
        max_len: most characters of a text, at least 16, so that every date can be written in some way. The
            default has room for every style and for all words around it, if not for all of them at once.
        extra: the coin's chance to say yes, from 0 (the date alone) up to but not including 1.

    Raises:
        ValueError: if ``extra`` or the lengths are outside their ranges.

    Example:
        >>> make_pairs(2, torch.Generator().manual_seed(0))
        [('5 DECEMBER 2036', '2036-12-05'), ('until 31.3.58 for the team', '2058-03-31')]
    """
    if not 0 <= extra < 1:
        raise ValueError(f"extra ({extra}) must be at least 0 and below 1: it is the chance that words are added")
    if not 1 <= min_len <= max_len or max_len < 16:
        raise ValueError(f"min_len ({min_len}) must lie from 1 to max_len ({max_len}), which must be at least 16")
    if extra == 0 and min_len > 16:
        raise ValueError(f"min_len ({min_len}) must be at most 16 when no words are added (extra is 0)")
    pairs = []
    while len(pairs) < count:
        day = draw_date(rng)
        text = write_date(day, rng)
        while _chance(extra, rng):
            text = f"{_pick(LEADS, rng)} {text}"
        while _chance(extra, rng):
            text = f"{text} {_pick(TAILS, rng)}"
        text = make_noisy(text, rng)
        if min_len <= len(text) <= max_len:
            pairs.append((text, day.isoformat()))
    return pairs


class Characters:
    """A vocabulary of characters; the ids 0, 1 and 2 are for padding, beginning and end.

    Args:
        alphabet: the characters, in the order of their ids.

    Raises:
        ValueError: if a character stands in the alphabet twice.

    Example:
        >>> digits = Characters("0123456789-")
        >>> digits.encode("1-2")
        [4, 13, 5]
        >>> digits.batch(["1-2", "7"])
        (tensor([[ 4, 13,  5],
                [10,  0,  0]]), tensor([3, 1]))
    """

    pad_id, bos_id, eos_id = 0, 1, 2

    def __init__(self, alphabet: str):
        self.symbols = ["<pad>", "<bos>", "<eos>", *alphabet]
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if len(self._ids) < len(self.symbols):
            raise ValueError(f"every character must stand in the alphabet once: {alphabet!r}")

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the characters, without the special ids.

        Raises:
            ValueError: if a character is not in the alphabet.
        """
        if unknown := [character for character in text if character not in self._ids]:
            raise ValueError(f"{text!r} has characters that are not in the alphabet: {unknown}")
        return [self._ids[character] for character in text]

    def batch(
        self, texts: Sequence[str], *, bos: bool = False, eos: bool = False
    ) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B"]]:
        """Return the ids of several texts, padded on the right, and their lengths.

        Args:
            texts: at least one.
            bos: begin each with the id of the beginning.
            eos: end each with the id of the end.
        """
        rows = [[self.bos_id] * bos + self.encode(text) + [self.eos_id] * eos for text in texts]
        rows = [torch.tensor(row, dtype=torch.long) for row in rows]
        return pad_sequence(rows, batch_first=True, padding_value=self.pad_id), torch.tensor([len(row) for row in rows])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids up to the first end id. Other special ids are shown."""
        symbols = [self.symbols[i] for i in ids]
        return "".join(symbols[: symbols.index("<eos>")] if "<eos>" in symbols else symbols)


def load_runs() -> dict[str, Any]:
    """Return the results of the trained networks of chapter 1, which `benchmarks/dates.py` recorded.

    Every run is one training: a network, the width of its states, the number of training steps and a seed. ``exact``
    holds the exact match on texts of the lengths in ``characters``, and ``dev`` that on the texts that decide when more
    steps no longer help.

    Example:
        >>> sorted({(run["name"], run["states"]) for run in load_runs()["runs"]})
        [('attention', 16), ('attention', 64), ('one vector', 16), ('one vector', 64)]
    """
    return json.loads((files("attn_course.data") / "dates_runs.json").read_text(encoding="utf-8"))
