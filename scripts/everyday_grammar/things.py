"""Sentences that say what there is, where it is, how it is and what it costs, and the weather."""

from everyday_grammar.lexicon import (
    ADJECTIVES,
    ASKED,
    FEW,
    NOUNS,
    NUMBERS,
    PLACES,
    TALKERS,
    TIMES,
    Entry,
    Noun,
    Person,
    Words,
    entry,
    keyed,
    rows,
)
from everyday_grammar.phrases import (
    OWN,
    Draw,
    Sentence,
    at,
    be,
    close,
    construction,
    item,
    lone,
    say,
    tied,
)

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
    kind: [("".join(w.split(":")[0] for w in ja.split()), entry(ja, en)) for ja, en in spots]
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


def spot(g: Draw, entry: Entry) -> tuple[Words, Words]:
    ja, en = g.put(entry)
    link = en[0][1] if len(ja) == 1 else ja[-1][1]  # 公園 に: in the park
    return [*ja, ("に", link)], en


def lying(g: Draw):
    """Something somewhere: key of the thing, noun, key of the place, place, is it alive."""
    if g.chance(0.4):
        pet = g.pick(PETS)
        noun = Noun(pet[1], pet[0], pet[1], pet[2], "a", pet[3], ())
        where, entry = g.pick(SPOTS["low"])
        return noun, where, entry, True
    kind = g.pick(["top", "food"])
    noun = NOUNS[g.pick(LYING[kind])]
    where, entry = g.pick(SPOTS[kind])
    if noun.key == "umbrella":
        where, entry = SPOTS["top"][3]
    elif noun.key in ("meat", "fish", "milk"):
        where, entry = SPOTS["food"][0]
    elif noun.key == "water":
        where, entry = g.pick(SPOTS["food"][:2])
    return noun._replace(article=noun.article and "a"), where, entry, False


@construction(4)
def there_is(g: Draw) -> Sentence:
    """There is a cat under the desk: 机 の 下 に 猫 が います."""
    noun, where, entry, alive = lying(g)
    g.combinations.append((noun.key, "ある", where))
    place = spot(g, entry)
    verb = "い" if alive else "あり"
    if noun.many and noun.counter and g.chance(0.4):
        number_ja, number_en = g.pick(NUMBERS[:2] if noun.key in FEW else NUMBERS)
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
        if not noun.article:  # is there any milk?
            what = (what[0], [("any", -1), *what[1]])
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
        noun, where_key, entry, alive = lying(g)
        key, what, now, was, verb = (
            noun.key,
            item(g, noun, "the"),
            "is",
            "was",
            "い" if alive else "あり",
        )
        where = spot(g, entry)
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
OWNERS = [p for p in TALKERS if p.key not in ("we", "they")]
COLORS = ("red", "white", "black")
ROOM = ("large", "beautiful", "old", "new")
PLAIN = ("english", "french", "mathematics", "history", "music", "homework")
LOOKED_AT = [n for key, n in NOUNS.items() if n.adjectives and key == n.key and key not in PLAIN]


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


def adjective_end(g: Draw, key: str, past: bool, negative: bool) -> tuple[Words, Words, Words]:
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


DENIED = ("interesting", "expensive", "new", "difficult", "big", "long")
PASSING = (
    "expensive",
    "cheap",
    "delicious",
    "interesting",
    "hot",
    "sweet",
    "spicy",
    "long",
    "difficult",
    "cold",
)
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
    past = key in PASSING and g.chance(0.4)
    negative = not ask and key in DENIED and g.chance(0.4)
    plural = noun.article == "pl" or noun.key == "shoes"
    copula = ("were" if plural else "was") if past else "are" if plural else "is"
    adjective_ja, not_en, adjective_en = adjective_end(g, key, past, negative)
    very_ja, very_en = (
        g.put(VERY) if not (ask or negative) and key not in (*COLORS, "delicious") and g.chance(0.3) else ([], [])
    )
    link = adjective_ja[-1][1]
    ja = [*what_ja, *lone("は"), *very_ja, *adjective_ja]
    if ask:
        return close(g, ja, [(copula, link), *what_en, *adjective_en], ask=True)
    return close(g, ja, [*what_en, (copula, link), *not_en, *very_en, *adjective_en])


JOBS = rows("""
    医者 | doctor | doctors | a
    先生 | teacher | teachers | a
    看護師 | nurse | nurses | a
    学生 | student | students | a
    エンジニア | engineer | engineers | an
    歌手 | singer | singers | a
""")


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


COMPARED = dict(
    rows("""
    car | big new expensive old
    bicycle | new expensive old
    camera | new small expensive cheap
    watch | new old expensive small
    bag | big cheap new
    book | interesting new old
    magazine | interesting new cheap
    movie | interesting new long old
    novel | interesting new long
    house | old new
    picture | new old
    hat | cheap new
    shirt | cheap new
    umbrella | big
    apple | big small
    cake | big small
    letter | long new old
    song | new old
""")
)


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


YEN = rows("""
    三百 | three hundred
    五百 | five hundred
    二千 | two thousand
    三千 | three thousand
    五千 | five thousand
""")
YEN = [entry(f"{ja[0]} {ja[1]}:1", f"{en.split()[0]} {en.split()[1]}:1") for ja, en in YEN]
SOLD = {
    "cheap": [
        "apple",
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


WEATHER = keyed("""
    hot | 暑い | 暑かった
    cold | 寒い | 寒かった
    warm | 暖かい | 暖かかった
    cool | 涼しい | 涼しかった
""")


@construction(4)
def weather(g: Draw) -> Sentence:
    """It was hot yesterday; it rained last night; it is raining in Kyoto now."""
    if g.chance(0.6):
        key = g.pick(list(WEATHER))
        now, was = WEATHER[key]
        past = g.chance(0.6)
        time = g.put(g.pick([t.entry for t in TIMES["past"] if t.span == "h"]) if past else TODAY)
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
    fall, rain, rained, raining = g.pick([("雨", "rain", "rained", "raining"), ("雪", "snow", "snowed", "snowing")])
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
    time = g.put(g.pick([t.entry for t in TIMES["past"] if t.span in "hd" and "前" not in str(t)]))
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
