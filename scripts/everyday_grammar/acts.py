"""Sentences that say what somebody does: past, future, habits, what is going on, questions, numbers."""

from collections.abc import Sequence

from everyday_grammar.lexicon import (
    ASKED,
    COUNTERS,
    I_UNNAMED,
    MEALS,
    NOUNS,
    OFTEN,
    PEOPLE,
    PLACES,
    TALKERS,
    TIMES,
    VERBS,
    YOU,
    Person,
    Words,
    entry,
    keyed,
    rows,
)
from everyday_grammar.phrases import (
    NOW,
    Draw,
    Sentence,
    at,
    clause,
    close,
    construction,
    do,
    have,
    is_third,
    japanese_opening,
    lone,
    nai_stem,
    note,
    part,
    pick_doer,
    pick_event,
    pick_time,
    predicate,
    say,
    subject,
    thing,
    tied,
    to,
    who,
)


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
    return clause(g, event, who(g, event, ask=False), "future", negative=g.chance(0.15))


@construction(5)
def habit(g: Draw) -> Sentence:
    event = pick_event(g, uses="h")
    return clause(g, event, who(g, event, ask=False), "habit")


@construction(4)
def going_on(g: Draw) -> Sentence:
    event = pick_event(g, uses="g", going=0)
    negative = event.verb.key in ("見る", "聞く", "勉強する", "読む", "働く") and g.chance(0.4)
    return clause(g, event, who(g, event, ask=False), "now", negative=negative)


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
    before = "counted before" if event.noun.counter in COUNTERS and g.chance(0.3) else "counted"
    return clause(g, event, who(g, event, ask=ask), tense, ask=ask, how=before)


@construction(5)
def often(g: Draw) -> Sentence:
    """よく, いつも, ときどき, たいてい before the verb's other company, in English before the verb."""
    event = pick_event(g, uses="o")
    person = who(g, event, ask=False)
    note(g, person, event)
    topic, subject_en = subject(g, person)
    often_ja, often_en = g.put(g.pick(OFTEN if "h" in event.uses and event.place and not event.goal else OFTEN[:2]))
    verb_ja, _, aux, verb_en = predicate(g, event.verb, person, "habit", False, False)
    if event.goal:
        place_ja, place_en = to(g, event.place)
    elif event.place:
        place_ja, place_en = at(g, event.place, person, event.verb)
    else:
        place_ja, place_en = [], []
    noun_ja, noun_en = [], []
    if event.noun:
        noun_ja, _, noun_en = thing(g, event.noun, "many")
        noun_ja = [*noun_ja, *lone("に" if event.verb.key == "会う" else "を")]
    ja = [*topic, *often_ja, *place_ja, *noun_ja, *verb_ja]
    return close(g, ja, [*subject_en, *often_en, *aux, *verb_en, *noun_en, *place_en])


# -- Questions with a question word ------------------------------------------------------------------


@construction(3)
def what(g: Draw) -> Sentence:
    """What did you buy yesterday? 昨日 何 を 買い ました か."""
    tense = g.pick(["past", "past", "future", "now"])
    event = pick_event(g, uses="g" if tense == "now" else "o", noun=True)
    while (
        event.verb.key
        not in (
            "食べる",
            "飲む",
            "読む",
            "書く",
            "買う",
            "見る",
            "聞く",
            "作る",
            "勉強する",
            "歌う",
        )
        or event.noun.key in MEALS
    ):
        event = pick_event(g, uses="g" if tense == "now" else "o", noun=True)
    person = YOU if g.chance(0.5) else g.pick(ASKED)
    g.combinations.append((person.key, event.verb.key, "何"))
    topic, who_en = subject(g, person)
    time_ja, time_en = g.put(NOW) if tense == "now" else pick_time(g, event, tense)
    verb_ja, first, aux, verb_en = predicate(g, event.verb, person, tense, False, True)
    place_ja, place_en = at(g, event.place, person, event.verb) if event.place and g.chance(0.6) else ([], [])
    thing_ = g.link()
    ja = [
        *japanese_opening(g, topic, time_ja),
        *place_ja,
        ("何", thing_),
        *lone("を"),
        *verb_ja,
    ]
    return close(
        g,
        ja,
        [("what", thing_), *first, *who_en, *aux, *verb_en, *place_en, *time_en],
        ask=True,
    )


@construction(2)
def who_did(g: Draw) -> Sentence:
    """Who made this cake? 誰 が この ケーキ を 作り ました か."""
    event = pick_event(g, noun=True)
    while (
        event.verb.key
        not in (
            "食べる",
            "飲む",
            "読む",
            "書く",
            "買う",
            "作る",
            "撮る",
            "開ける",
            "閉める",
            "掃除する",
            "洗う",
        )
        or event.noun.key in MEALS
    ):
        event = pick_event(g, noun=True)
    g.combinations.append(("誰", event.verb.key, event.noun.key))
    verb, asked = g.link(), g.link()
    this = g.pick(["this", "that"]) if event.noun.article != "the" else "one"
    noun_ja, _, noun_en = thing(g, event.noun, this)
    time_ja, time_en = pick_time(g, event, "past") if this == "one" else ([], [])
    ja = [
        *japanese_opening(g, [], time_ja),
        ("誰", asked),
        ("が", -1),
        *noun_ja,
        ("を", -1),
        *tied(" ".join(event.verb.masu), verb),
        ("ました", verb),
    ]
    return close(g, ja, [("who", asked), *tied(event.verb.past, verb), *noun_en, *time_en], ask=True)


@construction(3)
def where_when(g: Draw) -> Sentence:
    """Where did Hanako buy this bag? When did you go to Kyoto? Who did you go with?"""
    person = YOU if g.chance(0.5) else g.pick(ASKED)
    topic, who_en = subject(g, person)
    asked = g.link()
    kind = g.pick(["where", "where", "when", "going"])
    if kind == "where":
        event = pick_event(g, uses="o", going=0)
        while (
            event.doers
            or not event.place
            or event.verb.key in ("洗う", "書く", "飲む", "会う", "聞く", "見る", "歌う", "作る", "歩く")
        ):
            event = pick_event(g, uses="o", going=0)
        verb_ja, first, aux, verb_en = predicate(g, event.verb, person, "past", False, True)
        time_ja, time_en = pick_time(g, event, "past")
        this = "one"
        if event.noun and event.verb.key == "買う":
            this, time_ja, time_en = g.pick(["this", "that"]), [], []
        noun_ja, _, noun_en = thing(g, event.noun, this) if event.noun else ([], [], [])
        g.combinations.append((person.key, event.verb.key, "どこ " + (event.noun.key if event.noun else "")))
        if noun_ja:
            noun_ja = [*noun_ja, ("を", -1)]
        if this == "one":
            ja = [
                *japanese_opening(g, topic, time_ja),
                ("どこ", asked),
                ("で", asked),
                *noun_ja,
                *verb_ja,
            ]
        else:
            ja = [*topic, *noun_ja, ("どこ", asked), ("で", asked), *verb_ja]
        return close(
            g,
            ja,
            [("where", asked), *first, *who_en, *aux, *verb_en, *noun_en, *time_en],
            ask=True,
        )
    event = pick_event(g, going=1)
    if kind == "when":
        while event.place.key not in (
            "kyoto",
            "tokyo",
            "hospital",
            "library",
            "department",
            "cinema",
            "sea",
        ):
            event = pick_event(g, going=1)
        note(g, person, event)
        place_ja, place_en = to(g, event.place)
        verb_ja, first, aux, verb_en = predicate(g, event.verb, person, g.pick(["past", "future"]), False, True)
        return close(
            g,
            [*topic, ("いつ", asked), *place_ja, *verb_ja],
            [("when", asked), *first, *who_en, *aux, *verb_en, *place_en],
            ask=True,
        )
    tense = g.pick(["past", "future"])
    g.combinations.append((person.key, "行く", "どこ"))
    time_ja, time_en = pick_time(g, event, tense)
    verb_ja, first, aux, verb_en = predicate(g, VERBS["行く"], person, tense, False, True)
    return close(
        g,
        [*japanese_opening(g, topic, time_ja), ("どこ", asked), ("に", asked), *verb_ja],
        [("where", asked), *first, *who_en, *aux, *verb_en, *time_en],
        ask=True,
    )


# -- Giving, sending, showing ------------------------------------------------------------------------

GIFTS = [
    "book",
    "watch",
    "hat",
    "bag",
    "flowers",
    "camera",
    "umbrella",
    "cake",
    "novel",
    "shirt",
]
SENT = dict(
    rows("""
    送る | letter email picture flowers book
    見せる | picture letter watch camera
    書く | letter email
""")
)
RECEIVERS = [
    p
    for k, p in PEOPLE.items()
    if k
    in (
        "mother",
        "father",
        "brother",
        "sister",
        "brother2",
        "sister2",
        "grandmother",
        "grandfather",
        "hanako",
        "yumi",
        "kenta",
        "tanaka",
        "sato",
    )
]
FRIEND = Person("friend", entry("友達", "a:- friend"), "he")
DAYS = [t.entry for t in TIMES["past"] if t.span in "hd" and "朝" not in str(t)]
LATER = [t.entry for t in TIMES["future"] if t.span in "hdw" and "朝" not in str(t)]


def other(g: Draw, people: Sequence[Person], *taken: Person) -> Person:
    """Somebody else. One's own family is not spoken of as his or theirs."""
    person = g.pick(people)
    while any(person.key == p.key for p in taken):
        person = g.pick(people)
    return person


@construction(4)
def gives(g: Draw) -> Sentence:
    """I gave my mother a watch; my grandmother gave me a book; I got a hat from Hanako."""
    noun = NOUNS[g.pick(GIFTS)]
    adjectives = [
        x for x in noun.adjectives if x in ("interesting", "new", "red", "white", "beautiful", "big", "small")
    ]
    ja, _, en = thing(g, noun, "one", adjectives if g.chance(0.4) else ())
    time = g.put(g.pick(DAYS))
    kind = g.pick(["gave", "me", "got"])
    if kind == "me":
        giver = g.pick(RECEIVERS)
        g.combinations.append((giver.key, "くれる", noun.key))
        to_me = g.pick([PEOPLE["i"], PEOPLE["we"]])
        me = g.link()
        me_ja, me_en = (
            [(to_me.entry.ja[0][0], me), ("に", -1)],
            [("me" if to_me.key == "i" else "us", me)],
        )
        opening = japanese_opening(g, subject(g, giver)[0], time[0])
        topic, giver_en = subject(g, giver)
        opening = japanese_opening(g, topic, time[0])
        return say(
            g,
            "{opening} {me} {what} を くれ:1 ました:1",
            "{who} gave:1 {me} {what} {time}",
            opening=(opening, []),
            me=(me_ja, me_en),
            what=(ja, en),
            who=([], giver_en),
            time=time,
        )
    person = g.pick([PEOPLE["i"], PEOPLE["i"], PEOPLE["we"], I_UNNAMED] + [p for p in TALKERS if not p.relative])
    giver = other(g, [*RECEIVERS, FRIEND], person)
    topic, who_en = subject(g, person)
    opening = japanese_opening(g, topic, time[0])
    giver_ja, giver_en = g.put(giver.entry)
    if kind == "gave":
        g.combinations.append((person.key, "あげる", noun.key))
        return say(
            g,
            "{opening} {giver} に {what} を あげ:1 ました:1",
            "{who} gave:1 {giver} {what} {time}",
            opening=(opening, []),
            giver=(giver_ja, giver_en),
            what=(ja, en),
            who=([], who_en),
            time=time,
        )
    g.combinations.append((person.key, "もらう", noun.key))
    return say(
        g,
        "{opening} {giver} に:2 {what} を もらい:1 ました:1",
        "{who} got:1 {what} from:2 {giver} {time}",
        opening=(opening, []),
        giver=(giver_ja, giver_en),
        what=(ja, en),
        who=([], who_en),
        time=time,
    )


@construction(4)
def sends(g: Draw) -> Sentence:
    """Yumi sent a letter to a friend; will you show this picture to Kenta?"""
    verb = VERBS[g.pick(list(SENT))]
    noun = NOUNS[g.pick(SENT[verb.key].split())]
    tense = g.pick(["past", "past", "future"])
    ask, negative = g.chance(0.15), g.chance(0.15)
    person = (
        (YOU if g.chance(0.5) else g.pick(ASKED))
        if ask
        else g.pick(
            [
                PEOPLE["i"],
                PEOPLE["i"],
                I_UNNAMED,
                *(p for p in TALKERS if p.key not in ("they", "brother2")),
            ]
        )
    )
    receiver = other(g, [*(p for p in RECEIVERS if p.asked or not ask), FRIEND], person)
    g.combinations.append((person.key, verb.key, noun.key))
    topic, who_en = subject(g, person)
    time = g.put(g.pick(DAYS if tense == "past" else LATER))
    verb_ja, first, aux, verb_en = predicate(g, verb, person, tense, negative and not ask, ask)
    adjectives = [x for x in noun.adjectives if x in ("long", "short", "beautiful", "new")]
    ja, _, en = thing(
        g,
        noun,
        g.pick(["one", "one", "this"]),
        adjectives if g.chance(0.3) and not negative else (),
    )
    to_ = g.link()
    receiver_ja, receiver_en = g.put(receiver.entry)
    ja = [
        *japanese_opening(g, topic, time[0]),
        *receiver_ja,
        ("に", to_),
        *ja,
        ("を", -1),
        *verb_ja,
    ]
    return close(
        g,
        ja,
        [*first, *who_en, *aux, *verb_en, *en, ("to", to_), *receiver_en, *time[1]],
        ask=ask,
    )


# -- Clock, already, plans ---------------------------------------------------------------------------

HOURS = dict(
    rows("""
    六 | six
    七 | seven
    八 | eight
    九 | nine
    十 | ten
    十一 | eleven
""")
)


def hour(g: Draw, options: str) -> tuple[Words, Words]:
    ja = g.pick(options.split())
    if g.chance(0.25):
        return part(g, "{h}:1 時:1 半:2 に:3", "at:3 {e}:1 thirty:2", h=ja, e=HOURS[ja])
    return part(g, "{h}:1 時:1 に:3", "at:3 {e}:1", h=ja, e=HOURS[ja])


DAILY = keyed("""
    起きる | 六 七 八 | m
    寝る | 九 十 十一 | e
    帰る | 六 七 八 九 | e
""")
EARLY = [("早く", "early"), ("遅く", "late")]


@construction(4)
def clock(g: Draw) -> Sentence:
    """My father got up at six this morning; Hanako goes to bed early every evening."""
    key = g.pick(list(DAILY))
    verb, (hours, part_of_day) = VERBS[key], DAILY[key]
    tense = g.pick(["past", "past", "future", "habit"])
    ask, negative = g.chance(0.2), False
    person = (YOU if g.chance(0.5) else g.pick(ASKED)) if ask else (I_UNNAMED if g.chance(0.1) else g.pick(TALKERS))
    options = [
        t.entry
        for t in TIMES[tense]
        if t.span in "hd"
        and t.part in ("", part_of_day)
        and t.entry.ja[-1][0] != "に"  # 日曜日 に 七 時 に is one に too many
        and not (tense == "habit" and key == "寝る" and t.part == "e")
    ]
    time = g.put(g.pick(options))
    if g.chance(0.3):
        early = g.pick(EARLY)
        when = part(g, "{a}:1", "{b}:1", a=early[0], b=early[1])
        g.combinations.append((person.key, key, early[1]))
    else:
        when = hour(g, hours)
        g.combinations.append((person.key, key, when[1][1][0]))
    topic, who_en = subject(g, person)
    verb_ja, first, aux, verb_en = predicate(g, verb, person, tense, negative, ask)
    ja = [*japanese_opening(g, topic, time[0]), *when[0], *verb_ja]
    return close(g, ja, [*first, *who_en, *aux, *verb_en, *when[1], *time[1]], ask=ask)


OPENING = rows("""
    会議 | meeting | 始まり | start | started | 九 十 十一
    授業 | class | 始まり | start | started | 八 九 十
    映画 | movie | 始まり | start | started | 六 七 八
    会議 | meeting | 終わり | end | ended | 十 十一
    映画 | movie | 終わり | end | ended | 八 九 十
""")


@construction(2)
def starts(g: Draw) -> Sentence:
    """The meeting will start at nine tomorrow; what time does the class start?"""
    ja, en, verb, base, past_, hours = g.pick(OPENING)
    g.combinations.append((en, verb, ""))
    kind = g.pick(["past", "future", "ask"])
    time = g.put(
        g.pick(
            [
                t.entry
                for t in TIMES["past" if kind == "past" else "future"]
                if t.span == "h" and (not t.part or (t.part == "e" and en == "movie"))
            ]
        )
    )
    if kind == "ask":
        return say(
            g,
            "{time} の {n}:1 は 何:2 時:3 に:2 {v}:4 ます:5",
            "what:2 time:3 will:5 the {e}:1 {base}:4 {time}",
            True,
            time=time,
            n=ja,
            v=verb,
            e=en,
            base=base,
        )
    when = hour(g, hours)
    if kind == "past":
        return say(
            g,
            "{time} 、 {n}:1 は {when} {v}:4 ました:4",
            "the {e}:1 {past}:4 {when} {time}",
            time=time,
            when=when,
            n=ja,
            v=verb,
            e=en,
            past=past_,
        )
    return say(
        g,
        "{time} 、 {n}:1 は {when} {v}:4 ます:5",
        "the {e}:1 will:5 {base}:4 {when} {time}",
        time=time,
        when=when,
        n=ja,
        v=verb,
        e=en,
        base=base,
    )


DONE = rows("""
    食べる | breakfast
    食べる | lunch
    食べる | dinner
    読む | newspaper
    読む | this book
    読む | this novel
    見る | this movie
    洗う | dishes
    洗う | the thecar
    掃除する | room
    掃除する | kitchen
    書く | letter
    買う | ticket
    読む | this letter
    読む | this email
    作る | dinner
    作る | lunch
    読む | this magazine
    帰る |
    寝る |
""")


@construction(4)
def already(g: Draw) -> Sentence:
    """Kenta has already eaten lunch; I have not read this book yet; have you already cleaned the room?"""
    key, what_ = g.pick(DONE)
    verb = VERBS[key]
    kind = g.pick(["already", "already", "yet", "ask"])
    seen = not what_  # that somebody is home or asleep is said of others
    person = (
        (YOU if g.chance(0.5) and not seen else g.pick(ASKED))
        if kind == "ask"
        else (I_UNNAMED if g.chance(0.1) and not seen else g.pick(TALKERS))
    )
    while seen and person.key in ("i", "we"):
        person = g.pick(TALKERS)
    g.combinations.append((person.key, key, what_))
    topic, who_en = subject(g, person)
    if what_:
        noun = NOUNS[what_.split()[-1]]
        ja, _, en = thing(g, noun, what_.split()[0] if " " in what_ else "one")
        what_ja = [*ja, ("を", -1)]
    else:
        what_ja, en = [], []
    slots = {
        "who": (topic, []),
        "whom": ([], who_en),
        "what": (what_ja, en),
        "has": have(person),
        "done": f"{verb.done} {verb.rest}".strip(),
    }
    if kind == "yet":
        return say(
            g,
            "{who} まだ:1 {what} {te}:3 いません:2",
            "{whom} {has}:2 not:2 {done}:3 {what} yet:1",
            te=" ".join(verb.te),
            **slots,
        )
    if kind == "ask":
        return say(
            g,
            "{who} もう:1 {what} {stem}:3 ました:2",
            "{has}:2 {whom} already:1 {done}:3 {what}",
            True,
            stem=" ".join(verb.masu),
            **slots,
        )
    return say(
        g,
        "{who} もう:1 {what} {stem}:3 ました:2",
        "{whom} {has}:2 already:1 {done}:3 {what}",
        stem=" ".join(verb.masu),
        **slots,
    )


@construction(3)
def plans(g: Draw) -> Sentence:
    """My older brother plans to go to Tokyo next year: 来年 東京 に 行く つもり です."""
    event = pick_event(g, uses="", going=0.4)
    while event.doers == "k" or "d" not in event.spans or event.verb.key in ("待つ",):
        event = pick_event(g, uses="", going=0.4)
    person = I_UNNAMED if g.chance(0.15) else pick_doer(g, event, TALKERS)
    note(g, person, event)
    topic, who_en = subject(g, person)
    time_ja, time_en = pick_time(g, event, "future")
    ja = japanese_opening(g, topic, time_ja)
    place_ja, place_en = (
        to(g, event.place)
        if event.goal
        else at(g, event.place, person, event.verb)
        if event.place and not event.noun
        else ([], [])
    )
    noun_ja, _, noun_en = thing(g, event.noun) if event.noun else ([], [], [])
    if noun_ja:
        noun_ja = [*noun_ja, ("に" if event.verb.key == "会う" else "を", -1)]
    verb = g.link()
    return say(
        g,
        "{ja} {verb} つもり:1 です:1",
        "{who} {plan}:1 to {verb} {rest}",
        ja=([*ja, *place_ja, *noun_ja], []),
        who=([], who_en),
        plan="plans" if is_third(person) else "plan",
        verb=(
            tied(" ".join(event.verb.plain), verb),
            tied(f"{event.verb.base} {event.verb.rest}", verb),
        ),
        rest=([], [*noun_en, *place_en, *time_en]),
    )


@construction(2)
def lives(g: Draw) -> Sentence:
    """My grandmother lives in Kyoto; does Mr. Tanaka work at a bank? 住んで います, 働いて います."""
    ask = g.chance(0.25)
    person = (YOU if g.chance(0.5) else g.pick(ASKED)) if ask else g.pick(TALKERS)
    work = person.adult and g.chance(0.5)
    place = g.pick(
        [
            PLACES[k]
            for k in (("hospital", "bank", "library", "restaurant", "supermarket") if work else ("kyoto", "tokyo"))
        ]
    )
    verb = VERBS["働く" if work else "住む"]
    g.combinations.append((person.key, verb.key, place.key))
    topic, who_en = subject(g, person)
    where = at(g, place)
    if not work:
        where = ([*where[0][:-1], ("に", where[0][-1][1])], where[1])
    link = g.link()
    te = [(word, link) for word in verb.te]
    if ask:
        return say(
            g,
            "{ja} {where} {te} います:1",
            "{do}:1 {who} {base} {where}",
            True,
            ja=(topic, []),
            who=([], who_en),
            where=where,
            te=(te, []),
            do=do(person),
            base=([], [(verb.base, link)]),
        )
    kind = g.pick(["now", "past", "not"])
    form = {
        "now": verb.third if is_third(person) else verb.base,
        "past": verb.past,
        "not": verb.base,
    }[kind]
    if kind == "not":
        return say(
            g,
            "{ja} {where} {te} いません:1",
            "{who} {do}:1 not:1 {base} {where}",
            ja=(topic, []),
            who=([], who_en),
            where=where,
            te=(te, []),
            do=do(person),
            base=([], [(form, link)]),
        )
    time = (
        g.put(
            g.pick(
                [
                    entry("去年", "last year"),
                    entry("三 年:1 前:2 に:2", "three years:1 ago:2"),
                ]
            )
        )
        if kind == "past"
        else ([], [])
    )
    return say(
        g,
        "{ja} {where} {te} {end}",
        "{who} {base} {where} {time}",
        ja=(japanese_opening(g, topic, time[0]), []),
        who=([], who_en),
        where=where,
        te=(te, []),
        end=([("いました" if kind == "past" else "います", link)], []),
        base=([], [(form, link)]),
        time=time,
    )


# -- Requests, leave, duties -------------------------------------------------------------------------

ASKED_FOR = rows("""
    開ける | window
    閉める | window
    開ける | door
    閉める | door
    読む | this book
    読む | this letter
    読む | this email
    見る | this movie
    掃除する | room
    掃除する | kitchen
    洗う | dishes
    洗う | the thecar
    食べる | this cake
    食べる | this fish
    飲む | this tea
    飲む | this juice
    使う | this umbrella
    使う | this camera
    使う | this car
    使う | this bicycle
    食べる | this sandwich
    飲む | this milk
    読む | this magazine
    借りる | this book
    借りる | this umbrella
    作る | dinner
    作る | lunch
    歌う | this song
    聞く | this song
    食べる | that apple
    読む | that novel
    使う | that bag
    洗う | this shirt
    借りる | that magazine
    飲む | that coffee
""")


def pick_asked(g: Draw, verbs: Sequence[str] = ()) -> tuple:
    key, what_ = g.pick(ASKED_FOR)
    while verbs and key not in verbs:
        key, what_ = g.pick(ASKED_FOR)
    noun = NOUNS[what_.split()[-1]]
    ja, _, en = thing(g, noun, what_.split()[0] if " " in what_ else "one")
    return VERBS[key], ([*ja, ("を", -1)], en), what_


@construction(3)
def please(g: Draw) -> Sentence:
    """Please open the window; please do not eat this cake."""
    negative = g.chance(0.35)
    verb, what_, key = pick_asked(
        g,
        ("開ける", "閉める", "読む", "食べる", "飲む", "使う", "洗う")
        if negative
        else (
            "開ける",
            "閉める",
            "読む",
            "掃除する",
            "洗う",
            "食べる",
            "飲む",
            "使う",
            "作る",
            "歌う",
            "聞く",
            "見る",
        ),
    )
    g.combinations.append(("please", verb.key, key))
    english = f"{verb.base} {verb.rest}".strip()
    if negative:
        return say(
            g,
            "{what} {nai}:1 ないで:2 ください:3",
            "please:3 do:2 not:2 {v}:1 {what}",
            what=what_,
            nai=" ".join(nai_stem(verb)),
            v=english,
        )
    return say(
        g,
        "{what} {te}:1 ください:3",
        "please:3 {v}:1 {what}",
        what=what_,
        te=" ".join(verb.te),
        v=english,
    )


@construction(3)
def may(g: Draw) -> Sentence:
    """May I use this car? 使っ て も いい です か."""
    verb, what_, key = pick_asked(g, ("開ける", "閉める", "読む", "食べる", "飲む", "使う", "借りる"))
    g.combinations.append(("may", verb.key, key))
    return say(
        g,
        "{what} {te}:1 も いい:2 です:2",
        "may:2 i {v}:1 {what}",
        True,
        what=what_,
        te=" ".join(verb.te),
        v=verb.base,
    )


MUST = [
    line.strip()
    for line in """
    掃除する room
    掃除する kitchen
    洗う dishes
    洗う thecar
    作る dinner
    作る breakfast
    勉強する english
    勉強する mathematics
    勉強する history
    勉強する french
    行く hospital
    行く bank
    行く school
    行く company
    行く supermarket
    行く tokyo
    書く letter
    買う ticket
    買う vegetables
    読む book
    起きる early
    帰る early
    買う milk
    書く email
""".strip().splitlines()
]
TODAY_TOO = [entry("今日", "today"), entry("明日", "tomorrow"), entry("今夜", "tonight")]


@construction(4)
def must(g: Draw) -> Sentence:
    """I must go to the bank tomorrow; should Kenta study English? no: Kenta should study."""
    key, what_ = g.pick(MUST).split()
    verb = VERBS[key]
    person = g.pick([PEOPLE["i"], I_UNNAMED, PEOPLE["we"], *TALKERS])
    while key == "行く" and (
        (what_ == "company" and not person.adult) or (what_ == "school" and person.key.startswith("grand"))
    ):
        person = g.pick([PEOPLE["i"], I_UNNAMED, *TALKERS])
    while key == "勉強する" and person.key.startswith("grand"):
        person = g.pick([PEOPLE["i"], I_UNNAMED, *TALKERS])
    g.combinations.append((person.key, key, what_))
    topic, who_en = subject(g, person)
    early = what_ == "early"
    evening = key in ("行く", "買う", "洗う", "掃除する", "起きる") or early
    options = TODAY_TOO[:2] if evening else TODAY_TOO
    time_ja, time_en = g.put(g.pick(options[1:] if key == "起きる" else options)) if g.chance(0.7) else ([], [])
    if early:
        what_ = part(g, "早く:1", "early:1")
    elif key == "行く":
        what_ = to(g, PLACES[what_])
    else:
        ja, _, en = thing(g, NOUNS[what_])
        what_ = ([*ja, ("を", -1)], en)
    return say(
        g,
        "{ja} {what} {nai}:1 なければ:2 なりません:2",
        "{who} must:2 {v}:1 {what} {time}",
        ja=(japanese_opening(g, topic, time_ja), []),
        who=([], who_en),
        what=what_,
        nai=" ".join(nai_stem(verb)),
        v=f"{verb.base} {verb.rest}".strip(),
        time=([], time_en),
    )
