"""Sentences that say what somebody likes, wants, can, must or may do."""

from everyday_grammar.lexicon import (
    ASKED,
    I_UNNAMED,
    NOUNS,
    PEOPLE,
    TALKERS,
    YOU,
    Entry,
    Noun,
    Words,
    entry,
    rows,
)
from everyday_grammar.phrases import (
    Draw,
    Sentence,
    at,
    construction,
    do,
    is_third,
    item,
    japanese_opening,
    lone,
    note,
    pick_event,
    pick_time,
    say,
    subject,
    thing,
    tied,
    to,
)
from everyday_grammar.things import PETS

# -- Liking, wanting, being able ---------------------------------------------------------------------

LIKED = [
    "apple",
    "egg",
    "bread",
    "meat",
    "fish",
    "fruit",
    "vegetables",
    "somecake",
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
    "french",
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
        while event.doers == "a" or (event.noun and event.noun.key in ("breakfast", "lunch", "dinner")):
            event = pick_event(g, uses="h", going=0)
        note(g, person, event)
        verb = g.link()
        noun = generic(g, event.noun) if event.noun else ([], [])
        place = at(g, event.place, person, event.verb) if not event.noun else ([], [])
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
        return say(g, "{who} {what} が 好き:1 です:2", "{do}:2 {who} like:1 {what}", True, **slots)
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
    adjectives = [x for x in noun.adjectives if x != "old"] if g.chance(0.6) else []
    if noun.key == "house":
        adjectives = ["large", "new"] if adjectives or g.chance(0.5) else []
    ja, _, en = thing(g, noun, "one", adjectives)
    topic = subject(g, person)
    if person is YOU:
        return say(g, "{what} が 欲しい:1 です:2", "do:2 you want:1 {what}", True, what=(ja, en))
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
    time = pick_time(g, event, "future") if g.chance(0.6) and (event.goal or not negative) else None
    time_ja, time_en = time or ([], [])
    verb, wish = g.link(), g.link()
    ja = japanese_opening(g, topic, time_ja)
    en = [*tied(event.verb.base, verb), *tied(event.verb.rest, verb)]
    if event.goal:
        place_ja, place_en = to(g, event.place)
    elif event.place and (not event.noun or (not time and g.chance(0.4))):
        place_ja, place_en = at(g, event.place, person, event.verb)
    else:
        place_ja, place_en = [], []
    ja += place_ja
    if event.noun:
        noun_ja, _, noun_en = thing(g, event.noun, "any" if negative else "one")
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
        frames = "{ja} {verb} {wish}", "{who} {want} {rest}"
        want = "たい です"
    return say(g, *frames, ask, **slots, wish=(tied(want, wish), []), want=([], [("want", wish)]))


ABLE = rows("""
    英語 を 話す | 英語 が 話せ | speak english
    フランス語 を 話す | フランス語 が 話せ | speak french
    ピアノ を 弾く | ピアノ が 弾け | play the:- piano
    ギター を 弾く | ギター が 弾け | play the:- guitar
    フランス語 を 読む | フランス語 が 読め | read french
    英語 を 読む | 英語 が 読め | read english
    カレー を 作る | カレー が 作れ | make curry
    ケーキ を 作る | ケーキ が 作れ | make cakes
    泳ぐ | 泳げ | swim
    テニス を する |  | play tennis
    サッカー を する |  | play soccer
    野球 を する |  | play baseball
    漢字 を 書く | 漢字 が 書け | write kanji
    漢字 を 読む | 漢字 が 読め | read kanji
""")


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
        return say(g, frame, "can:1 {who} {able}", True, who=who_, able=ability, ending="ます")
    return say(
        g,
        frame,
        "{who} {can}:1 {able}",
        who=who_,
        able=ability,
        ending="ません" if negative else "ます",
        can="cannot" if negative else "can",
    )
