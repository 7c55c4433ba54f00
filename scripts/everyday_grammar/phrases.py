"""The grammar of the everyday corpus: sentences in Japanese and in English, word by word. Used from chapter 10 on.

A phrase is two lists of words, Japanese and English, in which partners carry the same number. A construction puts
phrases into the order of either language. What makes the English certain:

* Every sentence names its subject, but for one: 。 alone, it is I who speak; with か, it is you who are asked.
* ます is future beside 明日 and the like, and a habit beside 毎日 and the like. It never stands alone with what
  could be both.
* ています is what goes on now, and 今 says so; 住んで います is "live".
* A thing that is counted in English and met for the first time is "a"; what people often do is told in the plural.
"""

import random
from collections.abc import Callable, Sequence

from everyday_grammar.lexicon import (
    ADJECTIVES,
    ANY,
    ASKED,
    COUNTERS,
    EVENTS,
    FEW,
    GOING,
    I_UNNAMED,
    MEASURES,
    NUMBERS,
    PEOPLE,
    TALKERS,
    TIMES,
    YOU,
    Entry,
    Event,
    Noun,
    Person,
    entry,
)

Word = tuple[str, int]  # a word and its number; -1: no partner
Words = list[Word]


class Draw:
    """Draws choices and numbers, and remembers which combinations were drawn."""

    def __init__(self, rng: random.Random):
        self._random = rng.random
        self.start()

    def start(self) -> None:
        self._link = 0
        self.combinations: list[tuple[str, ...]] = []

    def pick(self, options: Sequence):
        return options[int(self._random() * len(options))]  # the same on every platform

    def chance(self, p: float) -> bool:
        return self._random() < p

    def link(self) -> int:
        """A number that no word of this sentence has."""
        self._link += 1
        return self._link

    def put(self, item: Entry) -> tuple[Words, Words]:
        """A phrase of the lexicon, with numbers of this sentence."""
        base = self._link = self._link + 10
        ja = [(word, base - k if k >= 0 else -1) for word, k in item.ja]
        en = [(word, base - k if k >= 0 else -1) for word, k in item.en]
        return ja, en


Sentence = tuple[Words, Words]
STOP, ASK = entry("。", "."), entry("か 。", "?")


def lone(text: str) -> Words:
    """Words without partners."""
    return [(word, -1) for word in text.split()]


def tied(text: str, link: int) -> Words:
    return [(word, link) for word in text.split()]


def close(g: Draw, ja: Words, en: Words, *, ask: bool = False) -> Sentence:
    end = g.link()
    return [*ja, *tied("か 。" if ask else "。", end)], [*en, ("?" if ask else ".", end)]


# -- English agreement -------------------------------------------------------------------------------


def is_third(person: Person) -> bool:
    return person.pronoun in ("he", "she", "it")


def be(person: Person, past: bool = False) -> str:
    if past:
        return "was" if is_third(person) or person.pronoun == "i" else "were"
    return "is" if is_third(person) else "am" if person.pronoun == "i" else "are"


def do(person: Person, past: bool = False) -> str:
    return "did" if past else "does" if is_third(person) else "do"


def have(person: Person) -> str:
    return "has" if is_third(person) else "have"


# -- Parts of a sentence -----------------------------------------------------------------------------


def doers(event: Event, people: Sequence[Person]) -> list[Person]:
    if event.doers == "a":
        return [p for p in people if p.adult]
    if event.doers == "k":
        return [p for p in people if not p.adult or p.key in ("we", "they", "hanako", "yumi", "kenta")]
    return list(people)


_DOERS: dict[tuple, list[Person]] = {}


def pick_doer(g: Draw, event: Event, people: list[Person]) -> Person:
    key = (event.doers, id(people))
    if key not in _DOERS:
        _DOERS[key] = doers(event, people)
    return g.pick(_DOERS[key])


def subject(g: Draw, person: Person, particle: str = "は") -> tuple[Words, Words]:
    ja, en = g.put(person.entry)
    return (ja + lone(particle) if ja else ja), en


def adjective_before(g: Draw, key: str) -> tuple[Words, Words]:
    """An adjective before a noun: 面白い, 静か な."""
    adjective, link = ADJECTIVES[key], g.link()
    return (
        tied(adjective.stem + "い" if adjective.kind == "i" else adjective.stem + " な", link),
        tied(key, link),
    )


def article(noun: Noun, following: str) -> Words:
    if noun.article in ("", "pl"):
        return []
    if noun.article == "the":
        return lone("the")
    return lone("an" if following[0] in "aeiou" else "a")


def thing(
    g: Draw,
    noun: Noun,
    how: str = "one",
    adjectives: Sequence[str] = (),
    *,
    few: bool = False,
) -> tuple[Words, Words, Words]:
    """A noun with what belongs to it; in Japanese a number may follow the particle: 本 を 三 冊.

    Args:
        how: one ("a book"), many ("books"), any, this, that, the, counted, or counted before (三 冊 の 本).
    """
    link = g.link()
    before_ja, before_en = adjective_before(g, g.pick(adjectives)) if adjectives else ([], [])
    after = []
    if how.startswith("counted"):
        few = few or noun.key in FEW or noun.counter in MEASURES
        number_ja, number_en = g.pick(NUMBERS[:2] if few else NUMBERS)
        number = g.link()
        if noun.counter in COUNTERS:
            after = [(number_ja, number), (noun.counter, number)]
            en = [(number_en, number), *before_en, (noun.many, link)]
        else:
            counter, _, measures = MEASURES[noun.counter]
            measure = g.link()
            after = [(number_ja, number), (counter, measure)]
            en = [
                (number_en, number),
                (measures, measure),
                ("of", -1),
                *before_en,
                (noun.many or noun.one, link),
            ]
        if how == "counted before":
            return [*after, ("の", -1), *before_ja, (noun.ja, link)], [], en
        return [*before_ja, (noun.ja, link)], after, en
    if how in ("this", "that"):
        this = g.link()
        before_ja = [({"this": "この", "that": "その"}[how], this), *before_ja]
        if noun.article == "pl":
            how = {"this": "these", "that": "those"}[how]
        en = [(how, this), *before_en, (noun.one, link)]
    elif how == "many":
        en = [
            *(lone("the") if noun.article == "the" else []),
            *before_en,
            (noun.many if noun.article != "the" and noun.many else noun.one, link),
        ]
    elif how == "any":
        any_ = [("any", -1)] if noun.key in ANY else article(noun, noun.one)
        en = [*any_, *before_en, (noun.many if noun.key in ANY else noun.one, link)]
    elif how == "the":
        en = [("the", -1), *before_en, (noun.one, link)]
    else:
        en = [
            *article(noun, (before_en or [(noun.one, 0)])[0][0]),
            *before_en,
            (noun.one, link),
        ]
    return [*before_ja, (noun.ja, link)], [], en


OWN = {"i": "my", "we": "our", "you": "your", "he": "his", "she": "her", "they": "their"}


def at(g: Draw, place, person: Person | None = None, verb=None) -> tuple[Words, Words]:
    """In the park: 公園 で, but 公園 を where one walks."""
    ja, en = g.put(Entry(place.ja, place.at))
    if place.key == "room":
        en = [(OWN[person.pronoun] if word == "their" else word, link) for word, link in en]
    return [*ja, ("を" if verb and verb.key == "歩く" else "で", en[0][1])], en


def to(g: Draw, place) -> tuple[Words, Words]:
    ja, en = g.put(Entry(place.ja, place.to))
    return [*ja, ("に", en[0][1])], en


def pick_time(g: Draw, event: Event, tense: str, negative: bool = False) -> tuple[Words, Words] | None:
    options = _times_for(event, tense, negative)
    return g.put(g.pick(options).entry) if options else None


_TIMES: dict[tuple, list] = {}


def _times_for(event: Event, tense: str, negative: bool) -> list:
    key = (
        event.spans,
        event.parts,
        event.place.key if event.place else "",
        tense,
        negative,
    )
    if key not in _TIMES:
        _TIMES[key] = [
            time
            for time in TIMES[tense]
            if (time.span in event.spans or tense == "habit")
            and not (negative and ("前", 2) in time.entry.ja)
            # 毎週 日曜日 に
            and not (tense == "habit" and len(time.entry.ja) > 1 and "d" not in event.spans)
            and (time.part == "" or time.part in event.parts)
            and not (time.part == "e" and event.place and not event.place.night)
            and not (event.place and not event.place.weekend and any("曜" in word for word, _ in time.entry.ja))
        ]
    return _TIMES[key]


ENDINGS = {
    ("past", False): "ました",
    ("past", True): "ませんでした",
    ("future", False): "ます",
    ("future", True): "ません",
    ("habit", False): "ます",
    ("habit", True): "ません",
    ("now", False): "います",
    ("now", True): "いません",
    ("pastnow", False): "いました",
    ("pastnow", True): "いませんでした",
}


def predicate(g: Draw, verb, person: Person, tense: str, negative: bool, ask: bool):
    """The verb: its Japanese words, and in English what stands before the subject of a question, the rest of the
    auxiliary, and the verb itself."""
    main, aux = g.link(), g.link()
    going_on = tense.endswith("now")
    past = tense in ("past", "pastnow")
    tail = [(word, main) for word in verb.rest.split()]
    stem = [(word, main) for word in (verb.te if going_on else verb.masu)]
    ending = ENDINGS[tense, negative]
    if not (going_on or negative or ask or tense == "future"):
        return (
            [*stem, (ending, main)],
            [],
            [],
            [
                (
                    verb.past if past else verb.third if is_third(person) else verb.base,
                    main,
                ),
                *tail,
            ],
        )
    ja = [*stem, (ending, aux)]
    if going_on:
        first, form = be(person, past), verb.ing
    elif tense == "future":
        first, form = "will", verb.base
    else:
        first, form = do(person, past), verb.base
    rest = [("not", aux)] if negative else []
    first = [(first, aux)]
    return (
        ja,
        (first if ask else []),
        (rest if ask else first + rest),
        [(form, main), *tail],
    )


def japanese_opening(g: Draw, topic: Words, time: Words) -> Words:
    """Topic and time in either order."""
    if not topic:
        return [*time, *lone("、")] if time else []
    if not time:
        return topic
    if g.chance(0.5):
        return [*time, *lone("、"), *topic]
    if time[-1][0] != "に":  # 昨日 本 and 昨日 日本 would be hard to read
        return [*topic, *time, *lone("、")]
    return [*topic, *time]


def note(g: Draw, person: Person, event: Event) -> None:
    """Remember who does what to what, or where."""
    what = event.noun.key if event.noun else event.place.key if event.place else ""
    g.combinations.append((person.key, event.verb.key, what))


NOW = entry("今", "now")
WAYS = {
    "near": [
        entry("自転車 で:1", "by:1 bicycle"),
        entry("バス で:1", "by:1 bus"),
        entry("車 で:1", "by:1 car"),
        entry("歩い て", "on foot"),
    ],
    "far": [
        entry("電車 で:1", "by:1 train"),
        entry("車 で:1", "by:1 car"),
        entry("バス で:1", "by:1 bus"),
    ],
}
COMPANY = [
    entry("友達 と:1", "with:1 a:- friend"),
    entry("一人 で", "alone"),
    *(
        entry(f"{p.entry.ja[0][0]} さん:- と:1", f"with:1 {p.entry.en[0][0]}")
        for k, p in PEOPLE.items()
        if k in ("hanako", "yumi", "kenta")
    ),
]
TOGETHER = {
    "公園",
    "映画館",
    "レストラン",
    "図書館",
    "海",
    "プール",
    "京都",
    "東京",
    "デパート",
}


def who(g: Draw, event: Event, *, ask: bool) -> Person:
    if ask:
        return YOU if g.chance(0.5) and event.doers != "k" else pick_doer(g, event, ASKED)
    if g.chance(0.1) and event.doers != "k":
        return I_UNNAMED
    return pick_doer(g, event, TALKERS)


def clause(
    g: Draw,
    event: Event,
    person: Person,
    tense: str,
    *,
    negative=False,
    ask=False,
    how=None,
    extras=True,
) -> Sentence:
    """A whole main clause, with time, place and thing."""
    note(g, person, event)
    topic, subject_en = subject(g, person)
    time = g.put(NOW) if tense == "now" else pick_time(g, event, tense, negative)
    time_ja, time_en = time or ([], [])
    verb_ja, first, aux, verb_en = predicate(g, event.verb, person, tense, negative, ask)
    ja, en = japanese_opening(g, topic, time_ja), [*first, *subject_en, *aux, *verb_en]
    if event.noun:
        how = how or ("many" if tense == "habit" else "any" if negative and tense != "now" else "one")
        adjectives = (
            event.adjectives
            if event.adjectives
            and tense != "habit"
            and g.chance(0.3)
            and not negative
            and not how.startswith("counted")
            else ()
        )
        noun_ja, after, noun_en = thing(
            g, event.noun, how, adjectives, few=event.verb.key in ("読む", "書く", "食べる")
        )
        particle = "に" if event.verb.key == "会う" else "を"
        noun_ja = [*noun_ja, *lone(particle), *after]
        en += noun_en
    else:
        noun_ja = []
    if event.goal:
        goal_ja, goal_en = to(g, event.place)
        extra_ja, extra_en = [], []
        if extras and not negative and g.chance(0.5):
            if event.place.ja[0][0] in TOGETHER and g.chance(0.5):
                options = [c for c in COMPANY if c.en[-1][0] not in person.key]
                extra_ja, extra_en = g.put(g.pick(options))
            else:
                extra_ja, extra_en = g.put(g.pick(WAYS["far" if event.place.key in ("kyoto", "tokyo") else "near"]))
        ja += [*extra_ja, *goal_ja]
        en += [*goal_en, *extra_en]
    elif event.place and (not event.noun or g.chance(0.6)) and not (negative and tense == "now" and event.noun):
        place_ja, place_en = at(g, event.place, person, event.verb)
        ja += [*place_ja, *noun_ja]
        en += place_en
    else:
        ja += noun_ja
    return close(g, [*ja, *verb_ja], [*en, *time_en], ask=ask)


def pick_event(g: Draw, *, uses: str = "", going: float = 0.2, noun: bool = False) -> Event:
    key = (uses, noun)
    if key not in _CHOSEN:
        _CHOSEN[key] = [
            [e for e in events if (not uses or uses in e.uses) and (not noun or e.noun)] for events in (EVENTS, GOING)
        ]
    doing, moving = _CHOSEN[key]
    return g.pick(moving if moving and not noun and g.chance(going) else doing)


_CHOSEN: dict[tuple, list] = {}


# -- Constructions -----------------------------------------------------------------------------------

CONSTRUCTIONS: dict[str, tuple[Callable[[Draw], Sentence], int]] = {}


def construction(weight: int):
    """Register a function that draws a sentence; ``weight`` says how often it is drawn."""

    def register(function: Callable[[Draw], Sentence]):
        CONSTRUCTIONS[function.__name__] = (function, weight)
        return function

    return register


# -- Frames: sentences with a few places to fill -----------------------------------------------------

_FRAMES: dict[str, list] = {}


def fill(g: Draw, frame: str, slots: dict, base: int) -> Words:
    """Fill a frame such as ``{who} は {what} が 好き:1 です:1``: words without a number have no partner."""
    if frame not in _FRAMES:
        parts = []
        for item in frame.split():
            word, _, link = item.partition(":")
            parts.append((word[1:-1] if word[0] == "{" else None, word, int(link) if link else -1))
        _FRAMES[frame] = parts
    out = []
    for slot, word, link in _FRAMES[frame]:
        number = base - link if link >= 0 else -1
        if slot is None:
            out.append((word, number))
        elif isinstance(slots[slot], str):
            out += [(part, number) for part in slots[slot].split()]
        else:
            out += slots[slot]
    return out


def say(g: Draw, ja: str, en: str, ask: bool = False, /, **slots) -> Sentence:
    """Fill a Japanese and an English frame; a slot is a phrase (Japanese, English) or a text for both."""
    base = g._link = g._link + 10
    ja_slots = {k: v if isinstance(v, str) else v[0] for k, v in slots.items()}
    en_slots = {k: v if isinstance(v, str) else v[1] for k, v in slots.items()}
    return close(g, fill(g, ja, ja_slots, base), fill(g, en, en_slots, base), ask=ask)


def part(g: Draw, ja: str, en: str, /, **slots) -> tuple[Words, Words]:
    """Like :func:`say`, for a piece of a sentence."""
    base = g._link = g._link + 10
    ja_slots = {k: v if isinstance(v, str) else v[0] for k, v in slots.items()}
    en_slots = {k: v if isinstance(v, str) else v[1] for k, v in slots.items()}
    return fill(g, ja, ja_slots, base), fill(g, en, en_slots, base)


def item(g: Draw, noun: Noun, how: str = "one") -> tuple[Words, Words]:
    ja, _, en = thing(g, noun, how)
    return ja, en


def plain_past(verb) -> list[str]:
    *stem, te = verb.te
    return [*stem, "だ" if te == "で" else "た"]


def nai_stem(verb) -> tuple[str, ...]:
    *first, last = verb.masu
    if verb.plain[-1] == last + "る" or last in ("し", "来"):
        return verb.masu
    rows = dict(zip("いきぎしちにびみり", "わかがさたなばまら", strict=True))
    return (*first, last[:-1] + rows[last[-1]])
