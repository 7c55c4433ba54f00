"""Dates as people write them: every answer is right, as the standard library reads the text."""

import re
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import mean

import pytest
import torch
from read_chapters import notebook

from attn_course.data import dates
from attn_course.data.dates import LEADS, SRC_ALPHABET, STYLES, TAILS, TGT_ALPHABET, Characters, make_pairs, write_date

# Every way to read two or three numbers, American and European, so that a text with two readings is found out.
READINGS = [
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%m/%d/%y", "%d/%m/%Y", "%d/%m/%y"),
    *("%d.%m.%Y", "%d.%m.%y", "%m.%d.%Y", "%m.%d.%y", "%d-%b-%y", "%d %b '%y"),
    *("%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y", "%Y %b %d"),
]
TENS = ["", "", "twenty", "thirty"]
SMALL = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
SMALL += ["eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth"]
SMALL += ["nineteenth", "twentieth"]
WORDS = dict(zip(SMALL, range(1, 21), strict=True)) | {"thirtieth": 30}
WORDS |= {f"{TENS[n // 10]}-{SMALL[n % 10 - 1]}": n for n in (*range(21, 30), 31)}
MONTHS = [f"{date(2000, m, 1):%B}".lower() for m in range(1, 13)]
WEEKDAYS = [f"{date(2024, 1, d):%A}".lower() for d in range(1, 8)]  # 1 January 2024 was a Monday


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def readings(text):
    """All dates that the text could mean, and the weekday it names."""
    words = re.sub(r"(?<=[a-z])\.|,", " ", text.lower()).split()
    words = [re.sub(r"^(\d+)(st|nd|rd|th)$", r"\1", str(WORDS.get(word, word))) for word in words]
    named = [day for day in WEEKDAYS if {day, day[:3]} & set(words)]
    months = {*MONTHS, *(month[:3] for month in MONTHS)}
    core = " ".join(word for word in words if word in months or re.match(r"'?\d", word))
    found = set()
    for reading in READINGS:
        try:
            found.add(datetime.strptime(core, reading).date())
        except ValueError:
            continue
    return found, named


# -- Every pair is right -----------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [0.0, 0.5, 0.85])
def test_the_standard_library_reads_every_text_as_the_date_beside_it_and_as_no_other(extra):
    for text, iso in make_pairs(1500, rng(), max_len=200, extra=extra):
        found, named = readings(text)
        assert found == {date.fromisoformat(iso)}, text
        assert named in ([], [f"{date.fromisoformat(iso):%A}".lower()]), text


def test_the_independent_reader_notices_a_date_with_two_readings():
    assert readings("due: 5/3/2021") == ({date(2021, 5, 3), date(2021, 3, 5)}, [])
    assert readings("Tue, May twenty-third, 2021 at noon") == ({date(2021, 5, 23)}, ["tuesday"])


def test_no_text_is_written_for_two_dates():
    meant = {}
    for year in (1969, 2004, 2021):
        for day in (date(year, 1, 1) + timedelta(days=n) for n in range(365)):
            for style in STYLES:
                if day.day > 12 or day.day == day.month or style not in dates._SWAPPABLE:
                    assert meant.setdefault(write_date(day, rng(), style=style).lower(), day) == day
    assert len(meant) > 10_000


def test_every_style_is_named_by_an_example():
    for style in STYLES:
        day = date(2021, 10 if "Oct" in style else 5, 27 if "27" in style else 3)
        assert write_date(day, rng(), style=style) == style
    assert len(STYLES) >= 12
    assert write_date(date(2021, 5, 3), rng(), style="Oct. 3, 2021") == "May 3, 2021"  # May is no abbreviation


def test_ordinals_are_spelled_as_in_english():
    endings = {"st": (1, 21, 31), "nd": (2, 22), "rd": (3, 23), "th": (4, 9, 10, 11, 12, 13, 14, 20, 24, 30)}
    for ending, days in endings.items():
        for day in days:
            assert write_date(date(2021, 5, day), rng(), style="May 3rd, 2021") == f"May {day}{ending}, 2021"


def test_every_style_weekday_lead_and_tail_occurs():
    text = "\n".join(text for text, _ in make_pairs(6000, rng(), max_len=100, extra=0.6))
    for words in (*LEADS, *TAILS):
        assert words in text
    for words in (*MONTHS, *WEEKDAYS, *WORDS):
        assert words in text.lower()
    shapes = {re.sub(r"\d", "0", line) for line in text.split("\n")}
    assert {"0000-00-00", "00/00/0000", "00.00.00", "00-Jan-00", "00 Jan '00"} <= shapes
    assert re.search(r"[a-z]  [a-z]", text)
    assert " ," in text
    assert re.search(r"[a-z] \d\d? \d{4}$", text, re.MULTILINE)  # May 3 2021, its comma forgotten
    for weekday in ("Monday, ", "Mon ", "Mon, ", "monday, ", "MONDAY, "):
        assert weekday in text


def test_words_around_a_date_hold_no_digit_and_no_name():
    names = {*MONTHS, *WEEKDAYS, *(m[:3] for m in MONTHS), *(d[:3] for d in WEEKDAYS), *WORDS, "the"}
    for words in (*LEADS, *TAILS):
        assert not re.search(r"\d", words)
        assert not names - {"the"} & set(re.findall(r"[a-z-]+", words.lower()))


def test_two_digits_reach_from_1969_to_2068():
    first, last = (write_date(day, rng(), style="3 May '21") for day in (dates.FIRST_DATE, dates.LAST_DATE))
    assert (first, last) == ("1 Jan '69", "31 Dec '68")
    drawn = [dates.draw_date(rng(seed)) for seed in range(300)]
    assert dates.FIRST_DATE <= min(drawn) < date(1975, 1, 1) < date(2060, 1, 1) < max(drawn) <= dates.LAST_DATE


@pytest.mark.parametrize(("number", "day"), [(0, dates.FIRST_DATE), (36_524, dates.LAST_DATE)])
def test_the_first_and_the_last_day_may_be_drawn(monkeypatch, number, day):
    def randint(high, size, *, generator):
        assert high == 36_525
        return torch.tensor(number)

    monkeypatch.setattr(torch, "randint", randint)
    assert dates.draw_date(rng()) == day


# -- Lengths and seeds -------------------------------------------------------------------------------


@pytest.mark.parametrize(("min_len", "max_len", "extra"), [(1, 16, 0.0), (26, 35, 0.6), (66, 75, 0.85)])
def test_texts_have_the_lengths_asked_for(min_len, max_len, extra):
    pairs = make_pairs(50, rng(), min_len=min_len, max_len=max_len, extra=extra)
    assert len(pairs) == 50
    assert all(min_len <= len(text) <= max_len and len(iso) == 10 for text, iso in pairs)


def test_long_texts_are_made_of_what_the_default_lengths_have_room_for():
    def words(pairs):
        return {word for text, _ in pairs for word in re.findall(r"[a-z]+(?:-[a-z]+)*", text.lower())}

    seen = words(make_pairs(10_000, rng(0)))
    assert words(make_pairs(200, rng(1), min_len=61, max_len=70, extra=0.85)) <= seen
    assert {*WORDS, *MONTHS, *WEEKDAYS, *re.findall("[a-z]+", " ".join((*LEADS, *TAILS)).lower())} <= seen


def test_the_same_seed_gives_the_same_pairs_and_the_global_state_stays():
    before = torch.get_rng_state()
    assert make_pairs(20, rng(3)) == make_pairs(20, rng(3)) != make_pairs(20, rng(4))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_date_without_words_around_it_is_that_alone():
    assert {len(readings(text)[0]) for text, _ in make_pairs(100, rng(), extra=0.0, max_len=60)} == {1}
    assert not any(lead in text for text, _ in make_pairs(100, rng(), extra=0.0, max_len=60) for lead in ("due", "by "))


def test_dates_refuse_invalid_input():
    with pytest.raises(ValueError, match=r"1968-12-31 must lie from 1969-01-01 to 2068-12-31"):
        write_date(date(1968, 12, 31), rng())
    with pytest.raises(ValueError, match=r"2069-01-01 must lie from 1969-01-01 to 2068-12-31"):
        write_date(date(2069, 1, 1), rng())
    with pytest.raises(ValueError, match=r"2021-05-12 in the style of '27.5.21' could be read as two dates"):
        write_date(date(2021, 5, 12), rng(), style="27.5.21")
    with pytest.raises(ValueError, match=r"2021-05-03 in the style of '5/27/2021' could be read as two dates"):
        write_date(date(2021, 5, 3), rng(), style="5/27/2021")
    with pytest.raises(ValueError, match=r"style \('iso'\) must be one of"):
        write_date(date(2021, 5, 3), rng(), style="iso")
    with pytest.raises(ValueError, match=r"extra \(1.0\) must be at least 0 and below 1"):
        make_pairs(1, rng(), extra=1.0)
    with pytest.raises(ValueError, match=r"min_len \(30\) must lie from 1 to max_len \(20\)"):
        make_pairs(1, rng(), min_len=30, max_len=20)
    with pytest.raises(ValueError, match=r"max_len \(12\), which must be at least 16"):
        make_pairs(1, rng(), max_len=12)
    with pytest.raises(ValueError, match=r"min_len \(17\) must be at most 16 when no words are added"):
        make_pairs(1, rng(), min_len=17, max_len=50, extra=0.0)


# -- Characters --------------------------------------------------------------------------------------


def test_ids_and_characters_are_each_other_s_inverse():
    characters = Characters(SRC_ALPHABET)
    assert characters.decode(characters.encode(SRC_ALPHABET)) == SRC_ALPHABET
    assert sorted(characters.encode(SRC_ALPHABET)) == list(range(3, len(characters)))


def test_a_batch_is_padded_on_the_right_and_says_its_lengths():
    digits = Characters(TGT_ALPHABET)
    ids, lengths = digits.batch(["12", "3"], bos=True, eos=True)
    assert ids.tolist() == [[1, 4, 5, 2], [1, 6, 2, 0]]
    assert lengths.tolist() == [4, 3]
    assert digits.batch(["12", "3"], bos=True)[0].tolist() == [[1, 4, 5], [1, 6, 0]]
    assert digits.batch(["12", "3"], eos=True)[0].tolist() == [[4, 5, 2], [6, 2, 0]]
    assert digits.decode(ids[1, 1:].tolist()) == "3"
    assert digits.decode(ids[1].tolist()) == "<bos>3"  # a beginning in the middle would be seen


def test_characters_of_no_alphabet_are_refused():
    with pytest.raises(ValueError, match=r"'1é' has characters that are not in the alphabet: \['é'\]"):
        Characters(SRC_ALPHABET).encode("1é")
    with pytest.raises(ValueError, match="once: 'abca'"):
        Characters("abca")


def test_every_text_fits_its_alphabet():
    texts, isos = zip(*make_pairs(1000, rng(), max_len=100, extra=0.7), strict=True)
    Characters(SRC_ALPHABET).batch(texts)
    Characters(TGT_ALPHABET).batch(isos)


# -- What was recorded -------------------------------------------------------------------------------


def recorded(name, states, key):
    """The mean over the seeds for each number of steps: the exact match on the dev texts or on one group of tests."""
    runs = [run for run in dates.load_runs()["runs"] if (run["name"], run["states"]) == (name, states)]
    shares = {}
    for run in runs:
        shares.setdefault(run["steps"], []).append(run["dev"] if key == "dev" else run["exact"][key])
    assert all(len(group) == 3 for group in shares.values())
    return {steps: mean(group) for steps, group in shares.items()}


@pytest.mark.parametrize("name", ["one vector", "attention"])
@pytest.mark.parametrize("states", [64, 16])
def test_the_recorded_trainings_end_when_a_doubling_gains_less_than_a_point(name, states):
    dev = recorded(name, states, "dev")
    steps = list(dev)
    assert all(b == 2 * a for a, b in pairwise(steps))
    gains = {b: dev[b] - dev[a] for a, b in pairwise(steps) if dev[a] > 0.1}
    limit = {"one vector": 8000, "attention": 4000}[name]
    assert dev[steps[-1]] > 0.99 or gains[steps[-1]] < 0.01 or steps[-1] == limit
    assert all(dev[end] <= 0.99 and gains.get(end, 1) >= 0.01 for end in steps[:-1])


def test_every_share_in_the_text_of_chapter_1_was_recorded():
    settings = [(name, states) for name in ("one vector", "attention") for states in (64, 16)]
    shares = {
        f"{share:.2f}" for setting in settings for key in ("dev", 0, -1) for share in recorded(*setting, key).values()
    }
    text = "\n".join(cell.source for cell in notebook("01").cells if cell.cell_type == "markdown")
    text = re.sub(r"^Five more runs .+$", "", text, count=1, flags=re.MULTILINE)  # they are not in the figures
    for title in ("1.5 Accuracy against length", "1.14 Training steps and width"):
        section = re.search(rf"^###? {re.escape(title)}$(.+?)^###? ", text, re.MULTILINE | re.DOTALL)[1]
        quoted = re.findall(r"(?<![\d.])(?:0\.\d\d|1\.00)(?!\d)", section)
        assert quoted
        assert set(quoted) <= shares, set(quoted) - shares


def test_the_gap_closes_with_64_numbers_and_stays_with_16():
    def gap(states, steps=None):
        ends = [recorded(name, states, -1) for name in ("attention", "one vector")]
        return ends[0][steps or max(ends[0])] - ends[1][steps or max(ends[1])]

    assert gap(64, 1000) > 0.2
    assert gap(64) < 0.06
    assert gap(16) > 0.5
