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

from attn_course.data.everyday.lexicon import (
    ADJECTIVES,
    ASKED,
    COUNTERS,
    EVENTS,
    GOING,
    I_UNNAMED,
    MEASURES,
    NOUNS,
    NUMBERS,
    OFTEN,
    PEOPLE,
    PLACES,
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
        return [
            p
            for p in people
            if not p.adult or p.key in ("we", "they", "hanako", "yumi", "kenta")
        ]
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
        tied(
            adjective.stem + "い" if adjective.kind == "i" else adjective.stem + " な", link
        ),
        tied(key, link),
    )


def article(noun: Noun, following: str) -> Words:
    if noun.article in ("", "pl"):
        return []
    if noun.article == "the":
        return lone("the")
    return lone("an" if following[0] in "aeiou" else "a")


def thing(
    g: Draw, noun: Noun, how: str = "one", adjectives: Sequence[str] = ()
) -> tuple[Words, Words, Words]:
    """A noun with what belongs to it; in Japanese a number may follow the particle: 本 を 三 冊.

    Args:
        how: one ("a book"), many ("books"), this, that, the, counted, or counted before (三 冊 の 本).
    """
    link = g.link()
    before_ja, before_en = (
        adjective_before(g, g.pick(adjectives)) if adjectives else ([], [])
    )
    after = []
    if how.startswith("counted"):
        number_ja, number_en = g.pick(NUMBERS)
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


def at(g: Draw, place, person: Person | None = None) -> tuple[Words, Words]:
    ja, en = g.put(Entry(place.ja, place.at))
    if place.key == "room":
        en = [(OWN[person.pronoun] if word == "their" else word, link) for word, link in en]
    return [*ja, ("で", en[0][1])], en


def to(g: Draw, place) -> tuple[Words, Words]:
    ja, en = g.put(Entry(place.ja, place.to))
    return [*ja, ("に", en[0][1])], en


def pick_time(g: Draw, event: Event, tense: str) -> tuple[Words, Words] | None:
    options = _times_for(event, tense)
    return g.put(g.pick(options).entry) if options else None


_TIMES: dict[tuple, list] = {}


def _times_for(event: Event, tense: str) -> list:
    key = (event.spans, event.parts, event.place.key if event.place else "", tense)
    if key not in _TIMES:
        _TIMES[key] = [
            time
            for time in TIMES[tense]
            if (time.span in event.spans or tense == "habit")
            and (time.part == "" or time.part in event.parts)
            and not (time.part == "e" and event.place and not event.place.night)
            and not (
                event.place
                and not event.place.weekend
                and any("曜" in word for word, _ in time.entry.ja)
            )
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
    time = g.put(NOW) if tense == "now" else pick_time(g, event, tense)
    time_ja, time_en = time or ([], [])
    verb_ja, first, aux, verb_en = predicate(g, event.verb, person, tense, negative, ask)
    ja, en = japanese_opening(g, topic, time_ja), [*first, *subject_en, *aux, *verb_en]
    if event.noun:
        how = how or ("many" if tense == "habit" else "one")
        adjectives = (
            event.adjectives
            if event.adjectives
            and g.chance(0.3)
            and not negative
            and not how.startswith("counted")
            else ()
        )
        noun_ja, after, noun_en = thing(g, event.noun, how, adjectives)
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
                extra_ja, extra_en = g.put(
                    g.pick(WAYS["far" if event.place.key in ("kyoto", "tokyo") else "near"])
                )
        ja += [*extra_ja, *goal_ja]
        en += [*goal_en, *extra_en]
    elif event.place and (not event.noun or g.chance(0.6)):
        place_ja, place_en = at(g, event.place, person)
        ja += [*place_ja, *noun_ja]
        en += place_en
    else:
        ja += noun_ja
    return close(g, [*ja, *verb_ja], [*en, *time_en], ask=ask)


def pick_event(g: Draw, *, uses: str = "", going: float = 0.2, noun: bool = False) -> Event:
    key = (uses, noun)
    if key not in _CHOSEN:
        _CHOSEN[key] = [
            [e for e in events if (not uses or uses in e.uses) and (not noun or e.noun)]
            for events in (EVENTS, GOING)
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


@construction(9)
def past(g: Draw) -> Sentence:
    event = pick_event(g)
    return clause(g, event, who(g, event, ask=False), "past")


@construction(5)
def past_negative(g: Draw) -> Sentence:
    event = pick_event(g)
    return clause(g, event, who(g, event, ask=False), "past", negative=True)


@construction(6)
def future(g: Draw) -> Sentence:
    event = pick_event(g)
    return clause(g, event, who(g, event, ask=False), "future", negative=g.chance(0.25))


@construction(5)
def habit(g: Draw) -> Sentence:
    event = pick_event(g, uses="h")
    return clause(g, event, who(g, event, ask=False), "habit")


@construction(4)
def going_on(g: Draw) -> Sentence:
    event = pick_event(g, uses="g", going=0)
    return clause(g, event, who(g, event, ask=False), "now", negative=g.chance(0.2))


@construction(7)
def question(g: Draw) -> Sentence:
    tense = g.pick(["past", "past", "future", "habit", "now"])
    event = pick_event(
        g,
        uses={"habit": "h", "now": "g"}.get(tense, ""),
        going=0 if tense == "now" else 0.2,
    )
    return clause(g, event, who(g, event, ask=True), tense, ask=True)


@construction(5)
def counted(g: Draw) -> Sentence:
    """My mother bought three books: 母 は 本 を 三 冊 買い ました, and 三 冊 の 本 を."""
    event = pick_event(g, uses="c", noun=True)
    while not event.noun.counter:
        event = pick_event(g, uses="c", noun=True)
    tense = g.pick(["past", "past", "future"])
    ask = g.chance(0.15)
    before = (
        "counted before" if event.noun.counter in COUNTERS and g.chance(0.3) else "counted"
    )
    return clause(g, event, who(g, event, ask=ask), tense, ask=ask, how=before)


@construction(5)
def often(g: Draw) -> Sentence:
    """よく, いつも, ときどき, たいてい before the verb's other company, in English before the verb."""
    event = pick_event(g, uses="o")
    person = who(g, event, ask=False)
    note(g, person, event)
    topic, subject_en = subject(g, person)
    often_ja, often_en = g.put(
        g.pick(OFTEN[:1] + OFTEN[2:3] if "h" not in event.uses else OFTEN)
    )
    verb_ja, _, aux, verb_en = predicate(g, event.verb, person, "habit", False, False)
    if event.goal:
        place_ja, place_en = to(g, event.place)
    elif event.place:
        place_ja, place_en = at(g, event.place, person)
    else:
        place_ja, place_en = [], []
    noun_ja, noun_en = [], []
    if event.noun:
        noun_ja, _, noun_en = thing(g, event.noun, "many")
        noun_ja = [*noun_ja, *lone("に" if event.verb.key == "会う" else "を")]
    ja = [*topic, *often_ja, *place_ja, *noun_ja, *verb_ja]
    return close(g, ja, [*subject_en, *often_en, *aux, *verb_en, *noun_en, *place_en])


# -- Frames: sentences with a few places to fill -----------------------------------------------------

_FRAMES: dict[str, list] = {}


def fill(g: Draw, frame: str, slots: dict, base: int) -> Words:
    """Fill a frame such as ``{who} は {what} が 好き:1 です:1``: words without a number have no partner."""
    if frame not in _FRAMES:
        parts = []
        for item in frame.split():
            word, _, link = item.partition(":")
            parts.append(
                (word[1:-1] if word[0] == "{" else None, word, int(link) if link else -1)
            )
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


def a(g: Draw, ja: str, en: str, before: str = "a") -> tuple[Words, Words]:
    """A word of Japanese with one or more of English, all partners, after an article that has none."""
    link = g.link()
    return tied(ja, link), [*lone(before), *tied(en, link)]


def plain_past(verb) -> list[str]:
    *stem, te = verb.te
    return [*stem, "だ" if te == "で" else "た"]


def nai_stem(verb) -> tuple[str, ...]:
    *first, last = verb.masu
    if verb.plain[-1] == last + "る" or last in ("し", "来"):
        return verb.masu
    rows = dict(zip("いきぎしちにびみり", "わかがさたなばまら", strict=True))
    return (*first, last[:-1] + rows[last[-1]])


PETS = [("猫", "cat", "cats", "匹"), ("犬", "dog", "dogs", "匹")]
SPOTS = {
    "low": [
        ("机 の:- 下:1", "under:1 the:- desk"),
        ("いす の:- 下:1", "under:1 the:- chair"),
        ("木 の:- 下:1", "under:1 the:- tree"),
        ("ベッド の:- 上:1", "on:1 the:- bed"),
        ("ドア の:- 前:1", "in:1 front:1 of:1 the:- door"),
        ("箱 の:- 中:1", "in:1 the:- box"),
        ("公園", "in:9 the:- park"),
    ],
    "top": [
        ("机 の:- 上:1", "on:1 the:- desk"),
        ("ベッド の:- 上:1", "on:1 the:- bed"),
        ("箱 の:- 中:1", "in:1 the:- box"),
        ("いす の:- 上:1", "on:1 the:- chair"),
        ("かばん の:- 中:1", "in:1 the:- bag"),
    ],
    "food": [
        ("冷蔵庫 の:- 中:1", "in:1 the:- refrigerator"),
        ("テーブル の:- 上:1", "on:1 the:- table"),
        ("箱 の:- 中:1", "in:1 the:- box"),
    ],
}
SPOTS = {
    kind: [(ja.split(":")[0].split()[0], entry(ja, en)) for ja, en in spots]
    for kind, spots in SPOTS.items()
}
LYING = {
    "top": [
        "book",
        "magazine",
        "newspaper",
        "letter",
        "camera",
        "watch",
        "hat",
        "key",
        "picture",
        "umbrella",
    ],
    "food": [
        "apple",
        "egg",
        "cake",
        "sandwich",
        "milk",
        "water",
        "fish",
        "bread",
        "meat",
        "fruit",
    ],
}


def spot(g: Draw, found: Entry) -> tuple[Words, Words]:
    ja, en = g.put(found)
    link = max((k for _, k in en), default=-1) if len(ja) == 1 else ja[-1][1]
    if len(ja) == 1:  # 公園 に: in the park
        link = en[0][1]
    return [*ja, ("に", link)], en


def lying(g: Draw):
    """Something somewhere: key of the thing, noun, key of the place, place, is it alive."""
    if g.chance(0.4):
        pet = g.pick(PETS)
        noun = Noun(pet[1], pet[0], pet[1], pet[2], "a", pet[3], ())
        where, found = g.pick(SPOTS["low"])
        return noun, where, found, True
    kind = g.pick(["top", "food"])
    noun = NOUNS[g.pick(LYING[kind])]
    where, found = g.pick(SPOTS[kind])
    while (noun.key == "umbrella" and where != "いす") or (noun.key == "hat" and where == "箱"):
        where, found = g.pick(SPOTS[kind])
    return noun._replace(article=noun.article and "a"), where, found, False


@construction(4)
def there_is(g: Draw) -> Sentence:
    """There is a cat under the desk: 机 の 下 に 猫 が います."""
    noun, where, found, alive = lying(g)
    g.combinations.append((noun.key, "ある", where))
    place = spot(g, found)
    verb = "い" if alive else "あり"
    if noun.many and noun.counter and g.chance(0.4):
        number_ja, number_en = g.pick(NUMBERS)
        number, link, past = g.link(), g.link(), g.chance(0.3)
        many = ([(noun.ja, link)], [(number_en, number), (noun.many, link)])
        count = [(number_ja, number), (noun.counter, number)]
        return say(
            g,
            "{place} {many} が {count} {v}:1 {ending}:1",
            "there:1 {be}:1 {many} {place}",
            place=place,
            many=many,
            count=(count, []),
            v=verb,
            ending="ました" if past else "ます",
            be="were" if past else "are",
        )
    what = item(g, noun)
    kind = g.pick(["now", "now", "past", "ask", "not"])
    if kind == "ask":
        return say(
            g,
            "{place} {what} が {v}:1 ます:1",
            "is:1 there:1 {what} {place}",
            True,
            place=place,
            what=what,
            v=verb,
        )
    if kind == "not":
        what = (what[0], what[1][1:] if noun.article else what[1])
        return say(
            g,
            "{place} {what} は {v}:1 ません:2",
            "there:1 is:1 no:2 {what} {place}",
            place=place,
            what=what,
            v=verb,
        )
    ending, be_ = ("ました", "was") if kind == "past" else ("ます", "is")
    return say(
        g,
        "{place} {what} が {v}:1 {ending}:1",
        "there:1 {be}:1 {what} {place}",
        place=place,
        what=what,
        v=verb,
        ending=ending,
        be=be_,
    )


@construction(3)
def it_is_there(g: Draw) -> Sentence:
    """The cat is under the desk: 猫 は 机 の 下 に います. And: where is it?"""
    kind = g.pick(["there", "there", "past", "where", "not"])
    if g.chance(0.4):
        person = g.pick(TALKERS if kind != "where" else ASKED)
        place = g.pick(
            [
                PLACES[k]
                for k in (
                    "home",
                    "kitchen",
                    "school",
                    "library",
                    "park",
                    "station",
                    "hospital",
                    "company",
                    "kyoto",
                    "tokyo",
                )
            ]
        )
        what, now, was, verb = g.put(person.entry), be(person), be(person, True), "い"
        key, where_key = person.key, place.key
        where = at(g, place)
        where = ([*where[0][:-1], ("に", where[0][-1][1])], where[1])
    else:
        noun, where_key, found, alive = lying(g)
        key, what, now, was, verb = (
            noun.key,
            item(g, noun, "the"),
            "is",
            "was",
            "い" if alive else "あり",
        )
        where = spot(g, found)
    g.combinations.append((key, "ある", "どこ" if kind == "where" else where_key))
    if kind == "where":
        return say(
            g,
            "{what} は どこ:1 に:1 {v}:2 ます:2",
            "where:1 {be}:2 {what}",
            True,
            what=what,
            v=verb,
            be=now,
        )
    if kind == "not":
        return say(
            g,
            "{what} は {where} {v}:1 ません:2",
            "{what} {be}:1 not:2 {where}",
            what=what,
            where=where,
            v=verb,
            be=now,
        )
    ending, be_ = ("ました", was) if kind == "past" else ("ます", now)
    return say(
        g,
        "{what} は {where} {v}:1 {ending}:1",
        "{what} {be}:1 {where}",
        what=what,
        where=where,
        v=verb,
        ending=ending,
        be=be_,
    )


# -- Describing --------------------------------------------------------------------------------------

OWNED = [
    "car",
    "bicycle",
    "camera",
    "watch",
    "hat",
    "shirt",
    "shoes",
    "bag",
    "umbrella",
    "house",
    "room",
]
OWNERS = [p for p in TALKERS]
COLORS = ("red", "white", "black", "blue")
LASTING = (
    *COLORS,
    "big",
    "small",
    "new",
    "old",
    "large",
    "thick",
    "bright",
)  # not said in the past of a thing still there
ROOM = ("large", "bright", "quiet", "beautiful", "old")
LOOKED_AT = [
    n
    for n in NOUNS.values()
    if n.adjectives
    and n.key not in ("english", "japanese", "mathematics", "history", "music", "homework")
]


def owner(g: Draw, person: Person) -> tuple[Words, Words]:
    """Whose: 私 の is my, 母 の is my mother 's."""
    ja, en = g.put(person.entry)
    if person.pronoun == person.key:
        link = en[-1][1]
        return [*ja, ("の", link)], [(OWN[person.pronoun], link)]
    link = g.link()
    return [*ja, ("の", link)], [*en, ("'s", link)]


def described(g: Draw, noun: Noun, owned: bool) -> tuple[str, tuple[Words, Words]]:
    """This book, that book, my mother 's bag: its key and the phrase."""
    if owned:
        person = g.pick(OWNERS)
        own_ja, own_en = owner(g, person)
        link = g.link()
        return person.key + " " + noun.key, (
            [*own_ja, (noun.ja, link)],
            [*own_en, (noun.one, link)],
        )
    return noun.key, item(g, noun, g.pick(["this", "this", "that"]))


def adjective_end(
    g: Draw, key: str, past: bool, negative: bool
) -> tuple[Words, Words, Words]:
    """An adjective that ends the sentence, with です: Japanese, and in English the verb's partner and the adjective."""
    adjective, link, copula = ADJECTIVES[key], g.link(), g.link()
    if adjective.kind == "i":
        if negative:
            ja = [
                (adjective.stem + "く", link),
                ("ありませんでした" if past else "ありません", copula),
            ]
        else:
            ja = [(adjective.stem + ("かった" if past else "い"), link), ("です", copula)]
    else:
        ja = [(adjective.stem, link)]
        if negative:
            ja += [("では", copula), ("ありませんでした" if past else "ありません", copula)]
        else:
            ja += [("でした" if past else "です", copula)]
    return ja, ([("not", copula)] if negative else []), [(key, link)]


VERY = entry("とても", "very")


@construction(6)
def it_is_so(g: Draw) -> Sentence:
    """This book is interesting; my mother's bag was expensive; is that movie long?"""
    owned = g.chance(0.5)
    noun = NOUNS[g.pick(OWNED)] if owned else g.pick(LOOKED_AT)
    adjectives = ROOM if noun.key in ("house", "room") else noun.adjectives
    key = g.pick(adjectives)
    what_key, (what_ja, what_en) = described(g, noun, owned)
    g.combinations.append((noun.key, key, what_key if owned else ""))
    ask = g.chance(0.2) and not owned
    past = key not in LASTING and g.chance(0.4)
    negative = not ask and key not in ("beautiful", "delicious", "fun") and g.chance(0.2)
    plural = noun.article == "pl" or noun.key == "shoes"
    copula = ("were" if plural else "was") if past else "are" if plural else "is"
    adjective_ja, not_en, adjective_en = adjective_end(g, key, past, negative)
    very_ja, very_en = (
        g.put(VERY)
        if not (ask or negative) and key not in COLORS and g.chance(0.3)
        else ([], [])
    )
    link = adjective_ja[-1][1]
    ja = [*what_ja, *lone("は"), *very_ja, *adjective_ja]
    if ask:
        return close(g, ja, [(copula, link), *what_en, *adjective_en], ask=True)
    return close(g, ja, [*what_en, (copula, link), *not_en, *very_en, *adjective_en])


JOBS = [
    ("医者", "doctor", "doctors", "a"),
    ("先生", "teacher", "teachers", "a"),
    ("看護師", "nurse", "nurses", "a"),
    ("学生", "student", "students", "a"),
    ("エンジニア", "engineer", "engineers", "an"),
    ("歌手", "singer", "singers", "a"),
]


@construction(2)
def they_are(g: Draw) -> Sentence:
    """My father is a doctor."""
    ask = g.chance(0.25)
    person = g.pick([p for p in (ASKED if ask else TALKERS) if p.adult])
    job = g.pick(JOBS)
    while job[1] == "student" and person.key in (
        "grandmother",
        "grandfather",
        "mother",
        "father",
        "mother3",
        "father3",
    ):
        job = g.pick(JOBS)
    g.combinations.append((person.key, "です", job[1]))
    plural = person.key in ("we", "they")
    link = g.link()
    what = [(job[0], link)], [(job[2], link)] if plural else [(job[3], -1), (job[1], link)]
    past, negative = g.chance(0.3), not ask and g.chance(0.25)
    whose = g.put(person.entry)
    copula = be(person, past)
    if ask:
        return say(
            g,
            "{who} は {what} {c}:1",
            "{be}:1 {who} {what}",
            True,
            who=whose,
            what=what,
            c="でした" if past else "です",
            be=copula,
        )
    if negative:
        return say(
            g,
            "{who} は {what} では:2 {c}:2",
            "{who} {be}:2 not:2 {what}",
            who=whose,
            what=what,
            c="ありませんでした" if past else "ありません",
            be=copula,
        )
    return say(
        g,
        "{who} は {what} {c}:1",
        "{who} {be}:1 {what}",
        who=whose,
        what=what,
        c="でした" if past else "です",
        be=copula,
    )


COMPARED = {
    "car": "big new expensive old",
    "bicycle": "new expensive old",
    "camera": "new small expensive cheap",
    "watch": "new old expensive small",
    "bag": "big heavy cheap new",
    "book": "interesting new old difficult thick",
    "magazine": "interesting new cheap",
    "movie": "interesting new long old",
    "novel": "interesting new long",
    "house": "old large bright",
    "room": "large bright quiet",
    "picture": "beautiful old",
    "hat": "cheap new",
    "shirt": "cheap new",
    "umbrella": "big",
    "apple": "big small sweet",
    "cake": "sweet big small",
    "letter": "long short",
    "song": "beautiful old",
}


@construction(3)
def compared(g: Draw) -> Sentence:
    """This book is cheaper than that book."""
    noun = NOUNS[g.pick(list(COMPARED))]
    adjective = ADJECTIVES[g.pick(COMPARED[noun.key].split())]
    if noun.key in OWNED and g.chance(0.5):
        first, second = g.pick(OWNERS), g.pick(OWNERS)
        while second.key == first.key:
            second = g.pick(OWNERS)
        phrases = []
        for person in (first, second):
            own_ja, own_en = owner(g, person)
            link = g.link()
            phrases.append(([*own_ja, (noun.ja, link)], [*own_en, (noun.one, link)]))
    else:
        one, other = g.pick([("this", "that"), ("that", "this")])
        phrases = [item(g, noun, one), item(g, noun, other)]
    g.combinations.append((noun.key, "より", adjective.key))
    link = g.link()
    ja = [(adjective.stem + "い" if adjective.kind == "i" else adjective.stem, link)]
    return say(
        g,
        "{a} は {b} より:1 {how} です:2",
        "{a} is:2 {how} than:1 {b}",
        a=phrases[0],
        b=phrases[1],
        how=(ja, tied(adjective.more, link)),
    )


YEN = [
    ("三百", "three hundred"),
    ("五百", "five hundred"),
    ("二千", "two thousand"),
    ("三千", "three thousand"),
    ("五千", "five thousand"),
]
YEN = [entry(f"{ja[0]} {ja[1]}:1", f"{en.split()[0]} {en.split()[1]}:1") for ja, en in YEN]
SOLD = {
    "cheap": [
        "apple",
        "egg",
        "sandwich",
        "cake",
        "juice",
        "coffee",
        "magazine",
        "fish",
        "meat",
        "ticket",
    ],
    "dear": [
        "book",
        "hat",
        "shirt",
        "bag",
        "umbrella",
        "shoes",
        "flowers",
        "ticket",
        "novel",
    ],
}


@construction(2)
def price(g: Draw) -> Sentence:
    """This hat is three thousand yen. How much is that book?"""
    kind = g.pick(["cheap", "dear"])
    noun = NOUNS[g.pick(SOLD[kind])]
    what = item(g, noun, g.pick(["this", "that"]))
    copula = "are" if noun.article == "pl" else "is"
    if g.chance(0.25):
        g.combinations.append((noun.key, "いくら", ""))
        return say(
            g,
            "{what} は いくら:1 です:2",
            "how:1 much:1 {be}:2 {what}",
            True,
            what=what,
            be=copula,
        )
    number = g.pick(YEN[:2] if kind == "cheap" else YEN[2:])
    g.combinations.append((noun.key, "円", number.ja[0][0]))
    return say(
        g,
        "{what} は {n} 円:1 です:2",
        "{what} {be}:2 {n} yen:1",
        what=what,
        n=g.put(number),
        be=copula,
    )


WEATHER = {
    "hot": ("暑い", "暑かった"),
    "cold": ("寒い", "寒かった"),
    "warm": ("暖かい", "暖かかった"),
    "cool": ("涼しい", "涼しかった"),
}
TOWNS = [
    entry("京都", "kyoto"),
    entry("東京", "tokyo"),
    entry("海", "the:- sea"),
    entry("公園", "the:- park"),
]


@construction(2)
def weather(g: Draw) -> Sentence:
    """It was hot yesterday; it rained last night; it is raining in Kyoto now."""
    if g.chance(0.6):
        key = g.pick(list(WEATHER))
        now, was = WEATHER[key]
        past = g.chance(0.6)
        time = g.put(
            g.pick([t.entry for t in TIMES["past"] if t.span == "h"]) if past else TODAY
        )
        town = g.pick([None, None, "京都", "東京"])
        g.combinations.append(("weather", key, f"{town} {past}"))
        slots = {"time": time, "hot": was if past else now, "be": "was" if past else "is"}
        if town:
            return say(
                g,
                "{time} 、 {town} は {hot}:1 です:2",
                "it {be}:2 {a}:1 {in} {time}",
                **slots,
                a=key,
                town=([(town, g._link + 1)], []),
                **{
                    "in": (
                        [],
                        [
                            ("in", -1),
                            (PLACES["kyoto" if town == "京都" else "tokyo"].key, g.link()),
                        ],
                    )
                },
            )
        return say(g, "{time} は {hot}:1 です:2", "it {be}:2 {a}:1 {time}", **slots, a=key)
    fall, rain, rained, raining = g.pick(
        [("雨", "rain", "rained", "raining"), ("雪", "snow", "snowed", "snowing")]
    )
    town = g.pick([None, *(PLACES[k] for k in ("kyoto", "tokyo"))])
    where = at(g, town) if town else ([], [])
    kind = g.pick(["past", "now", "future", "ask"])
    g.combinations.append(("weather", fall, kind + (town.key if town else "")))
    if kind == "now":
        return say(
            g,
            "今:3 、 {where} {rain}:1 が 降っ:1 て:1 います:2",
            "it is:2 {raining}:1 {where} now:3",
            rain=fall,
            raining=raining,
            where=where,
        )
    if kind == "future":
        time = g.put(g.pick([t.entry for t in TIMES["future"] if t.span == "h"]))
        return say(
            g,
            "{time} 、 {where} {fall}:1 が 降る:1 でしょう:2",
            "it will:2 probably:2 {rain}:1 {where} {time}",
            time=time,
            where=where,
            fall=fall,
            rain=rain,
        )
    time = g.put(
        g.pick([t.entry for t in TIMES["past"] if t.span in "hd" and "前" not in str(t)])
    )
    if kind == "ask":
        return say(
            g,
            "{time} 、 {where} {fall}:1 が 降り:1 ました:2",
            "did:2 it {rain}:1 {where} {time}",
            True,
            time=time,
            where=where,
            fall=fall,
            rain=rain,
        )
    return say(
        g,
        "{time} 、 {where} {fall}:1 が 降り:1 ました:1",
        "it {rained}:1 {where} {time}",
        time=time,
        where=where,
        fall=fall,
        rained=rained,
    )


TODAY = entry("今日", "today")


# -- Liking, wanting, being able ---------------------------------------------------------------------

LIKED = [
    "apple",
    "egg",
    "bread",
    "meat",
    "fish",
    "fruit",
    "vegetables",
    "cake",
    "sandwich",
    "curry",
    "water",
    "tea",
    "coffee",
    "milk",
    "juice",
    "book",
    "magazine",
    "novel",
    "picture",
    "movie",
    "television",
    "music",
    "song",
    "english",
    "japanese",
    "mathematics",
    "history",
    "tennis",
    "soccer",
    "baseball",
    "car",
    "flowers",
]
LIKED = [n for n in LIKED if n not in ("water", "picture", "television")]
PET_NOUNS = [Noun(en, ja, en, many, "a", counter, ()) for ja, en, many, counter in PETS]


def generic(g: Draw, noun: Noun) -> tuple[Words, Words]:
    return item(g, noun, "many")


@construction(4)
def likes(g: Draw) -> Sentence:
    """My mother likes cats; do you like coffee?; Kenta likes reading books."""
    ask = g.chance(0.2)
    person = (YOU if g.chance(0.5) else g.pick(ASKED)) if ask else g.pick(TALKERS)
    topic, who_en = subject(g, person)
    if g.chance(0.35):
        event = pick_event(g, uses="h", going=0)
        while (
            event.doers == "a"
            or (event.noun
            and event.noun.key in ("breakfast", "lunch", "dinner"))
        ):
            event = pick_event(g, uses="h", going=0)
        note(g, person, event)
        verb = g.link()
        noun = generic(g, event.noun) if event.noun else ([], [])
        place = at(g, event.place, person) if not event.noun else ([], [])
        ja = [
            *noun[0],
            *(lone("を") if event.noun else []),
            *place[0],
            *tied(" ".join(event.verb.plain), verb),
            ("の", verb),
        ]
        what = ja, [*tied(f"{event.verb.ing} {event.verb.rest}", verb), *noun[1], *place[1]]
    else:
        noun = g.pick(PET_NOUNS) if g.chance(0.15) else NOUNS[g.pick(LIKED)]
        g.combinations.append((person.key, "好き", noun.key))
        what = generic(g, noun)
    slots = {
        "who": (topic, who_en),
        "what": what,
        "do": do(person),
        "like": "likes" if is_third(person) else "like",
    }
    if ask:
        return say(
            g, "{who} {what} が 好き:1 です:2", "{do}:2 {who} like:1 {what}", True, **slots
        )
    kind = g.pick(["like", "like", "love", "not"])
    if kind == "not":
        return say(
            g,
            "{who} {what} が 好き:1 では:2 ありません:2",
            "{who} {do}:2 not:2 like:1 {what}",
            **slots,
        )
    if kind == "love":
        slots["like"] = "loves" if is_third(person) else "love"
        return say(g, "{who} {what} が 大好き:1 です:1", "{who} {like}:1 {what}", **slots)
    return say(g, "{who} {what} が 好き:1 です:1", "{who} {like}:1 {what}", **slots)


WISHES = [
    "car",
    "bicycle",
    "camera",
    "watch",
    "hat",
    "shirt",
    "shoes",
    "bag",
    "umbrella",
    "book",
    "flowers",
    "piano",
    "guitar",
    "house",
]


@construction(2)
def wants_thing(g: Draw) -> Sentence:
    """I want a new car."""
    noun = NOUNS[g.pick(WISHES)]
    noun = noun._replace(article="a" if noun.article == "the" else noun.article)
    person = g.pick([PEOPLE["i"], PEOPLE["i"], YOU])
    g.combinations.append((person.key, "欲しい", noun.key))
    adjectives = (
        [x for x in noun.adjectives if x not in ("heavy", "old")] if g.chance(0.6) else []
    )
    if noun.key == "house":
        adjectives = ["large", "new"] if adjectives or g.chance(0.5) else []
    ja, _, en = thing(g, noun, "one", adjectives)
    topic = subject(g, person)
    if person is YOU:
        return say(
            g, "{what} が 欲しい:1 です:2", "do:2 you want:1 {what}", True, what=(ja, en)
        )
    if not adjectives and g.chance(0.3):
        return say(
            g,
            "{who} {what} は 欲しく:1 ありません:2",
            "{who} do:2 not:2 want:1 {what}",
            who=topic,
            what=(ja, en),
        )
    return say(
        g,
        "{who} {what} が 欲しい:1 です:1",
        "{who} want:1 {what}",
        who=topic,
        what=(ja, en),
    )


@construction(5)
def wants_to(g: Draw) -> Sentence:
    """I want to watch a movie tomorrow: 明日 映画 を 見 たい です."""
    event = pick_event(g, going=0.3)
    while event.doers == "k" or event.verb.key in ("開ける", "閉める", "待つ"):
        event = pick_event(g, going=0.3)
    person = g.pick([PEOPLE["i"], PEOPLE["we"], I_UNNAMED, YOU])
    note(g, person, event)
    ask, negative = person is YOU, person is not YOU and g.chance(0.25)
    topic, who_en = subject(g, person)
    time = pick_time(g, event, "future") if g.chance(0.6) else None
    time_ja, time_en = time or ([], [])
    verb, wish = g.link(), g.link()
    ja = japanese_opening(g, topic, time_ja)
    en = [*tied(event.verb.base, verb), *tied(event.verb.rest, verb)]
    if event.goal:
        place_ja, place_en = to(g, event.place)
    elif event.place and (not event.noun or (not time and g.chance(0.4))):
        place_ja, place_en = at(g, event.place, person)
    else:
        place_ja, place_en = [], []
    ja += place_ja
    if event.noun:
        noun_ja, _, noun_en = thing(g, event.noun, "one")
        ja += [*noun_ja, *lone("に" if event.verb.key == "会う" else "を")]
        en += noun_en
    slots = {
        "ja": (ja, []),
        "verb": (tied(" ".join(event.verb.masu), verb), []),
        "rest": ([], [("to", wish), *en, *place_en, *time_en]),
        "who": ([], who_en),
    }
    if ask:
        frames = "{ja} {verb} {wish} です:1", "do:1 {who} {want} {rest}"
        want = "たい"
    elif negative:
        frames = "{ja} {verb} {wish} ありません:1", "{who} do:1 not:1 {want} {rest}"
        want = "たく"
    else:
        frames = "{ja} {verb} {wish} です", "{who} {want} {rest}"
        want = "たい"
    return say(
        g, *frames, ask, **slots, wish=([(want, wish)], []), want=([], [("want", wish)])
    )


ABLE = [
    ("英語 を 話す", "英語 が 話せ", "speak english"),
    ("日本語 を 話す", "日本語 が 話せ", "speak japanese"),
    ("ピアノ を 弾く", "ピアノ が 弾け", "play the:- piano"),
    ("ギター を 弾く", "ギター が 弾け", "play the:- guitar"),
    ("日本語 を 読む", "日本語 が 読め", "read japanese"),
    ("英語 を 読む", "英語 が 読め", "read english"),
    ("カレー を 作る", "カレー が 作れ", "make curry"),
    ("ケーキ を 作る", "ケーキ が 作れ", "make cakes"),
    ("泳ぐ", "泳げ", "swim"),
    ("テニス を する", "", "play tennis"),
    ("サッカー を する", "", "play soccer"),
    ("野球 を する", "", "play baseball"),
    ("漢字 を 書く", "漢字 が 書け", "write kanji"),
    ("漢字 を 読む", "漢字 が 読め", "read kanji"),
]


def _able(ja: str, en: str) -> Entry:
    """を and が have no partner; the verb is the first English word, the thing the last."""
    *first, verb = ja.split()
    first = [f"{first[0]}:1", f"{first[1]}:-"] if first else []
    en = en.split()
    return entry(
        " ".join([*first, verb]),
        " ".join([en[0], *(f"{w}:1" if ":" not in w else w for w in en[1:])]),
    )


ABLE = [(_able(a_, e), _able(b, e) if b else None, e) for a_, b, e in ABLE]


@construction(4)
def can(g: Draw) -> Sentence:
    """She can speak English: 英語 を 話す こと が でき ます, 英語 が 話せ ます."""
    ask, negative = g.chance(0.25), g.chance(0.25)
    person = (YOU if g.chance(0.4) else g.pick(ASKED)) if ask else g.pick(TALKERS)
    long, short, key = g.pick(ABLE)
    g.combinations.append((person.key, "できる", key))
    who_ = subject(g, person)
    if short and g.chance(0.5):
        ja, en = g.put(short)
        ability = ja, en
        frame = "{who} {able} {ending}:1"
    else:
        ability, frame = g.put(long), "{who} {able} こと:1 が でき:1 {ending}:1"
    if ask:
        return say(
            g, frame, "can:1 {who} {able}", True, who=who_, able=ability, ending="ます"
        )
    return say(
        g,
        frame,
        "{who} {can}:1 {able}",
        who=who_,
        able=ability,
        ending="ません" if negative else "ます",
        can="cannot" if negative else "can",
    )
