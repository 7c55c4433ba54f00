"""Sentences of two clauses: when, because, if, before, after, while, and relative clauses."""

from everyday_grammar.lexicon import (
    ADJECTIVES,
    EVENTS,
    GOING,
    I_UNNAMED,
    MEALS,
    NOUNS,
    PEOPLE,
    PLACES,
    TALKERS,
    TIMES,
    VERBS,
    Event,
    Person,
    entry,
    keyed,
    rows,
)
from everyday_grammar.phrases import (
    Draw,
    Sentence,
    at,
    be,
    close,
    construction,
    have,
    item,
    japanese_opening,
    lone,
    note,
    part,
    pick_doer,
    pick_event,
    pick_time,
    plain_past,
    predicate,
    say,
    subject,
    thing,
    tied,
    to,
    who,
)
from everyday_grammar.things import COLORS, LOOKED_AT, adjective_end

# -- When --------------------------------------------------------------------------------------------

ARRIVALS = rows("""
    帰っ:1 た:1 とき:2 | when:2 {who} came:1 home:1 | 帰る
    電話:1 し:1 た:1 とき:2 | when:2 {who} called:1 | 電話
    部屋:3 に 入っ:1 た:1 とき:2 | when:2 {who} entered:1 the room:3 | 入る
""")
HAPPENINGS = [
    ("雨:1 が 降り:1 始め:3 た:3 とき:2", "when:2 it started:3 to rain:1"),
    ("地震:1 が 起き:3 た:3 とき:2", "when:2 the earthquake:1 happened:3"),
]


@construction(4)
def when(g: Draw) -> Sentence:
    """I was reading a book when my mother came home."""
    event = pick_event(g, uses="g", going=0)
    while (
        event.verb.key
        in (
            "買う",
            "泳ぐ",
            "働く",
            "遊ぶ",
            "走る",
            "歩く",
            "する",
            "待つ",
            "撮る",
            "歌う",
            "洗う",
        )
        or event.noun.key == "breakfast"
    ):
        event = pick_event(g, uses="g", going=0)
    person = g.pick(TALKERS)
    topic, who_en = subject(g, person)
    note(g, person, event)
    if g.chance(0.25):
        ja, en = g.pick(HAPPENINGS)
        first = part(g, ja, en)
    else:
        comer = g.pick(TALKERS)
        while comer.key == person.key or {comer.key, person.key} <= {"i", "we"}:
            comer = g.pick(TALKERS)
        ja, en, key = g.pick(ARRIVALS)
        g.combinations.append((comer.key, key, ""))
        comer_ja, comer_en = g.put(comer.entry)
        first = part(g, "{who} が " + ja, en, who=(comer_ja, comer_en))
    verb_ja, _, aux, verb_en = predicate(g, event.verb, person, "pastnow", False, False)
    noun_ja, _, noun_en = thing(g, event.noun)
    return say(
        g,
        "{first} 、 {topic} {what} を {verb}",
        "{who} {aux} {verb} {what} {first}",
        first=first,
        topic=(topic, []),
        who=([], who_en),
        what=(noun_ja, noun_en),
        aux=([], aux),
        verb=(verb_ja, verb_en),
    )


YOUNG = rows("""
    {where} に:3 住ん:1 で:1 いました:1 | lived:1 {where}
    犬:1 が 好き:2 でした:2 | liked:2 dogs:1
    野菜:1 が 好き:2 では:3 ありませんでした:3 | did:3 not:3 like:2 vegetables:1
    よく:1 公園:2 で:3 遊び:4 ました:4 | often:1 played:4 in:3 the park:2
    よく:1 図書館:2 に:3 行き:4 ました:4 | often:1 went:4 to:3 the library:2
    毎日:1 ピアノ:2 を 弾き:3 ました:3 | played:3 the piano:2 every:1 day:1
    よく:1 海:2 で:3 泳ぎ:4 ました:4 | often:1 swam:4 in:3 the sea:2
    牛乳:1 が 好き:2 でした:2 | liked:2 milk:1
    毎日:1 野球:2 を し:3 ました:3 | played:3 baseball:2 every:1 day:1
    音楽:1 が 好き:2 でした:2 | liked:2 music:1
""")


@construction(2)
def as_a_child(g: Draw) -> Sentence:
    """My father often swam in the sea when he was a child."""
    person = g.pick([p for p in TALKERS if p.adult])
    topic, who_en = subject(g, person)
    n = int(g.pick("0123456789"))
    ja, en = YOUNG[n]
    g.combinations.append((person.key, "子供", str(n)))
    child = g.link()
    if n == 0:
        place = g.pick(["kyoto", "tokyo"])
        ja_, en_ = part(
            g,
            "{w}:1 に:2 住ん:3 で:3 いました:3",
            "lived:3 in:2 {e}:1",
            w=PLACES[place].ja[0][0],
            e=place,
        )
    else:
        ja_, en_ = part(g, ja, en)
    plural = person.pronoun in ("we", "they")
    young = [
        (person.pronoun, -1),
        ("were" if plural else "was", -1),
        *([("children", child)] if plural else [("a", -1), ("child", child)]),
    ]
    return say(
        g,
        "{topic} {child} の とき:1 、 {ja}",
        "{who} {ja} when:1 {young}",
        topic=(topic, []),
        who=([], who_en),
        child=([("子供", child)], []),
        ja=(ja_, en_),
        young=([], young),
    )


# -- Because -----------------------------------------------------------------------------------------

REASONS = keyed("""
    tired | 疲れ:1 て:1 い:2 た:2 | {he} {was}:2 tired:1 | rest bed taxi no-cinema no-dinner
    sleepy | 眠かった:1 | {he} {was} sleepy:1 | bed coffee no-novel
    busy | 忙しかった:1 | {he} {was} busy:1 | no-lunch no-cinema no-friend no-sea
    hungry | お腹:1 が 空い:1 て:1 い:2 た:2 | {he} {was}:2 hungry:1 | sandwich apples bread curry
    thirsty | 喉:1 が 渇い:1 て:1 い:2 た:2 | {he} {was}:2 thirsty:1 | water juice tea
    fever | 熱:1 が あっ:2 た:2 | {he} had:2 a fever:1 | rest hospital no-school bed
    exam | 試験:1 が あっ:2 た:2 | {he} had:2 an exam:1 | english mathematics no-television no-tennis history
    raining | 雨:1 が 降っ:1 て:1 い:2 た:2 | it was:2 raining:1 | home taxi bus no-park no-tennis umbrella window-
    sunny | 天気:1 が よかった:2 | the weather:1 was:2 good:2 | park sea tennis car run picture
    cold | 寒かった:1 | it was:1 cold:1 | window- hot-tea soup home no-sea
    hot | 暑かった:1 | it was:1 hot:1 | window+ cold-water swim cold-juice
""")
RESULTS = keyed("""
    rest | 家:1 で:2 休み:3 ました:3 | rested:3 at:2 home:1
    bed | 早く:1 寝:2 ました:2 | went:2 to:2 bed:2 early:1
    taxi | タクシー:1 に 乗り:2 ました:2 | took:2 a taxi:1
    bus | バス:1 に 乗り:2 ました:2 | took:2 a bus:1
    no-cinema | 映画館:1 に:2 行き:3 ませんでした:4 | did:4 not:4 go:3 to:2 the movie:1 theater:1
    no-dinner | 晩ご飯:1 を 作り:2 ませんでした:3 | did:3 not:3 make:2 dinner:1
    coffee | コーヒー:1 を 飲み:2 ました:2 | drank:2 coffee:1
    no-novel | 小説:1 を 読み:2 ませんでした:3 | did:3 not:3 read:2 a novel:1
    no-lunch | 昼ご飯:1 を 食べ:2 ませんでした:3 | did:3 not:3 eat:2 lunch:1
    no-friend | 友達:1 に 会い:2 ませんでした:3 | did:3 not:3 meet:2 a friend:1
    no-sea | 海:1 に:2 行き:3 ませんでした:4 | did:4 not:4 go:3 to:2 the sea:1
    sandwich | サンドイッチ:1 を 食べ:2 ました:2 | ate:2 a sandwich:1
    apples | りんご:1 を 二:3 個:3 食べ:2 ました:2 | ate:2 two:3 apples:1
    bread | パン:1 を 食べ:2 ました:2 | ate:2 bread:1
    curry | カレー:1 を 作り:2 ました:2 | made:2 curry:1
    water | 水:1 を 二:3 杯:4 飲み:2 ました:2 | drank:2 two:3 glasses:4 of water:1
    juice | ジュース:1 を 飲み:2 ました:2 | drank:2 juice:1
    tea | お茶:1 を 飲み:2 ました:2 | drank:2 tea:1
    hospital | 病院:1 に:2 行き:3 ました:3 | went:3 to:2 the hospital:1
    no-school | 学校:1 に:2 行き:3 ませんでした:4 | did:4 not:4 go:3 to:2 school:1
    english | 英語:1 を 勉強:2 し:2 ました:2 | studied:2 english:1
    mathematics | 数学:1 を 勉強:2 し:2 ました:2 | studied:2 mathematics:1
    history | 歴史:1 を 勉強:2 し:2 ました:2 | studied:2 history:1
    no-television | テレビ:1 を 見:2 ませんでした:3 | did:3 not:3 watch:2 television:1
    no-tennis | テニス:1 を し:2 ませんでした:3 | did:3 not:3 play:2 tennis:1
    home | 家:1 に:2 い:3 ました:3 | stayed:3 at:2 home:1
    no-park | 公園:1 に:2 行き:3 ませんでした:4 | did:4 not:4 go:3 to:2 the park:1
    umbrella | 傘:1 を 買い:2 ました:2 | bought:2 an umbrella:1
    window- | 窓:1 を 閉め:2 ました:2 | closed:2 the window:1
    window+ | 窓:1 を 開け:2 ました:2 | opened:2 the window:1
    park | 公園:1 に:2 行き:3 ました:3 | went:3 to:2 the park:1
    sea | 海:1 に:2 行き:3 ました:3 | went:3 to:2 the sea:1
    tennis | 公園:1 で:2 テニス:3 を し:4 ました:4 | played:4 tennis:3 in:2 the park:1
    car | 車:1 を 洗い:2 ました:2 | washed:2 the car:1
    run | 公園:1 で:2 走り:3 ました:3 | ran:3 in:2 the park:1
    picture | 公園:1 で:2 写真:3 を 撮り:4 ました:4 | took:4 a picture:3 in:2 the park:1
    hot-tea | 熱い:3 お茶:1 を 飲み:2 ました:2 | drank:2 hot:3 tea:1
    soup | スープ:1 を 作り:2 ました:2 | made:2 soup:1
    cold-water | 冷たい:3 水:1 を 飲み:2 ました:2 | drank:2 cold:3 water:1
    swim | プール:1 で:2 泳ぎ:3 ました:3 | swam:3 in:2 the pool:1
    cold-juice | 冷たい:3 ジュース:1 を 飲み:2 ました:2 | drank:2 cold:3 juice:1
""")


@construction(4)
def because(g: Draw) -> Sentence:
    """My mother went to bed early because she was tired: 疲れ て い た ので."""
    key = g.pick(list(REASONS))
    ja, en, results = REASONS[key]
    result = g.pick(results.split())
    person = g.pick(
        [
            p
            for p in TALKERS
            if not (
                (key == "exam" or result == "no-school") and p.key in ("mother", "father", "grandmother", "grandfather")
            )
        ]
    )
    g.combinations.append((person.key, key, result))
    topic, who_en = subject(g, person)
    reason = part(g, ja, en, he=([], [(person.pronoun, -1)]), was=be(person, True))
    effect = part(g, *RESULTS[result])
    if key in ("raining", "sunny", "cold", "hot"):
        return say(
            g,
            "{reason} ので:1 、 {topic} {effect}",
            "{who} {effect} because:1 {reason}",
            reason=reason,
            effect=effect,
            topic=(topic, []),
            who=([], who_en),
        )
    return say(
        g,
        "{topic} {reason} ので:1 、 {effect}",
        "{who} {effect} because:1 {reason}",
        reason=reason,
        effect=effect,
        topic=(topic, []),
        who=([], who_en),
    )


# -- If ----------------------------------------------------------------------------------------------

CONDITIONS = keyed("""
    rain | 雨:1 が 降っ:1 たら:2 | if:2 it rains:1 | 家にいる -公園 -テニス -海
    sunny | 天気:1 が よかっ:3 たら:2 | if:2 the weather:1 is:3 good:3 | 公園 海 テニス 洗う 撮る
    time | 時間:1 が あっ:3 たら:2 | if:2 {he} {have}:3 time:1 | 映画 図書館 勉強 掃除 デパート 小説 手紙
""")
WILL = keyed("""
    家にいる | 家:1 に:2 い:3 ます:4 | will:4 stay:3 at:2 home:1
    -公園 | 公園:1 に:2 行き:3 ません:4 | will:4 not:4 go:3 to:2 the park:1
    -テニス | テニス:1 を し:3 ません:4 | will:4 not:4 play:3 tennis:1
    -海 | 海:1 に:2 行き:3 ません:4 | will:4 not:4 go:3 to:2 the sea:1
    公園 | 公園:1 に:2 行き:3 ます:4 | will:4 go:3 to:2 the park:1
    海 | 海:1 に:2 行き:3 ます:4 | will:4 go:3 to:2 the sea:1
    テニス | テニス:1 を し:3 ます:4 | will:4 play:3 tennis:1
    洗う | 車:1 を 洗い:3 ます:4 | will:4 wash:3 the car:1
    撮る | 写真:1 を 撮り:3 ます:4 | will:4 take:3 a picture:1
    映画 | 映画:1 を 見:3 ます:4 | will:4 watch:3 a movie:1
    図書館 | 図書館:1 に:2 行き:3 ます:4 | will:4 go:3 to:2 the library:1
    勉強 | 英語:1 を 勉強:3 し:3 ます:4 | will:4 study:3 english:1
    掃除 | 部屋:1 を 掃除:3 し:3 ます:4 | will:4 clean:3 the room:1
    デパート | デパート:1 に:2 行き:3 ます:4 | will:4 go:3 to:2 the department:1 store:1
    小説 | 小説:1 を 読み:3 ます:4 | will:4 read:3 a novel:1
    手紙 | 手紙:1 を 書き:3 ます:4 | will:4 write:3 a letter:1
""")


@construction(3)
def if_so(g: Draw) -> Sentence:
    """We will stay at home if it rains tomorrow."""
    key = g.pick(list(CONDITIONS))
    ja, en, results = CONDITIONS[key]
    result = g.pick(results.split())
    person = g.pick(
        [PEOPLE["i"], PEOPLE["we"], PEOPLE["i"], PEOPLE["we"], *TALKERS]
        if key != "time"
        else [PEOPLE["i"], PEOPLE["we"]]
    )
    g.combinations.append((person.key, key, result))
    topic, who_en = subject(g, person)
    time = g.put(
        g.pick(
            [
                entry("明日", "tomorrow"),
                entry("日曜日:1 に:0", "on:0 sunday:1") if False else entry("あさって", "the day after tomorrow"),
            ]
        )
    )
    condition = part(g, ja, en, he=([], [(person.pronoun, -1)]), have=have(person))
    return say(
        g,
        "{time} 、 {condition} 、 {topic} {effect}",
        "{who} {effect} {condition} {time}",
        time=time,
        condition=condition,
        topic=(topic, []),
        who=([], who_en),
        effect=part(g, *WILL[result]),
    )


# -- Before, after, while ----------------------------------------------------------------------------

BEFORE = rows("""
    寝る:1 前:2 に:2 | before:2 going:1 to:1 bed:1 | read music letter milk study piano
    晩ご飯:1 を 食べる:3 前:2 に:2 | before:2 eating:3 dinner:1 | study clean run newspaper piano dinner
    学校:1 に:4 行く:3 前:2 に:2 | before:2 going:3 to:4 school:1 | milk study breakfast newspaper run
    晩ご飯:1 を 食べ:3 た:3 あと:2 | after:2 eating:3 dinner:1 | television dishes study read music letter
    朝ご飯:1 を 食べ:3 た:3 あと:2 | after:2 eating:3 breakfast:1 | newspaper dishes coffee clean study
    宿題:1 を し:3 た:3 あと:2 | after:2 doing:3 homework:1 | television music read baseball bed
""")
THEN = keyed("""
    read | 本 を:- 読み | read a:- book | 読む
    music | 音楽 | music | 聞く
    letter | 手紙 | letter | 書く
    milk | 牛乳 | milk | 飲む
    study | 英語 | english | 勉強する
    piano | ピアノ | piano | 弾く
    clean | 部屋 | room | 掃除する
    run | 公園 | park | 走る
    newspaper | 新聞 | newspaper | 読む
    dinner | 台所 | kitchen | 掃除する
    breakfast | 朝ご飯 | breakfast | 食べる
    television | テレビ | television | 見る
    dishes | お皿 | dishes | 洗う
    coffee | コーヒー | coffee | 飲む
    baseball | 野球 | baseball | する
    bed |  |  | 寝る
""")
THEN["read"] = ("本", "book", "読む")


@construction(4)
def before_after(g: Draw) -> Sentence:
    """My older sister read a book before going to bed."""
    ja, en, options = g.pick(BEFORE)
    name = g.pick(options.split())
    _, noun, key = THEN[name]
    person = g.pick(TALKERS)
    while ("school" in en or "homework" in en) and person.key in (
        "mother",
        "father",
        "grandmother",
        "grandfather",
    ):
        person = g.pick(TALKERS)
    topic, who_en = subject(g, person)
    tense = g.pick(["past", "past", "habit"])
    g.combinations.append((person.key, key, noun))
    verb_ja, _, _, verb_en = predicate(g, VERBS[key], person, tense, False, False)
    if name == "run":
        what = at(g, PLACES["park"], None, VERBS[key])
    elif noun:
        noun_ja, _, noun_en = thing(g, NOUNS[noun], "many" if tense == "habit" else "one")
        what = ([*noun_ja, ("を", -1)], noun_en)
    else:
        what = ([], [])
    time = g.put(g.pick([entry("毎日", "every day"), entry("いつも", "always")])) if tense == "habit" else ([], [])
    clause_ = part(g, ja, en)
    if time[1] and time[1][0][0] == "always":
        return say(
            g,
            "{topic} {time} {clause} 、 {what} {verb}",
            "{who} {time} {verb} {what} {clause}",
            topic=(topic, []),
            who=([], who_en),
            time=time,
            clause=clause_,
            what=what,
            verb=(verb_ja, verb_en),
        )
    return say(
        g,
        "{topic} {time} {clause} 、 {what} {verb}",
        "{who} {verb} {what} {clause} {time}",
        topic=(topic, []),
        who=([], who_en),
        time=time,
        clause=clause_,
        what=what,
        verb=(verb_ja, verb_en),
    )


MEANWHILE = rows("""
    音楽:1 を 聞き:2 ながら:3     | while:3 listening:2 to:2 music:1
    テレビ:1 を 見:2 ながら:3     | while:3 watching:2 television:1
    コーヒー:1 を 飲み:2 ながら:3 | while:3 drinking:2 coffee:1
    歌:1 を 歌い:2 ながら:3       | while:3 singing:2 a song:1
    ラジオ:1 を 聞き:2 ながら:3   | while:3 listening:2 to:2 the radio:1
""")
DONE_TOO = [
    line.strip().split(", ")
    for line in """
    掃除する room, 勉強する english, 勉強する mathematics, 作る dinner, 書く letter, 走る, 洗う dishes, 歩く
    食べる dinner, 飲む tea, 食べる breakfast, 飲む coffee, 食べる somecake
    読む newspaper, 見る television, 書く letter, 読む novel, 聞く music
    掃除する room, 洗う dishes, 洗う thecar, 作る cake
    食べる breakfast, 作る dinner, 洗う thecar, 掃除する kitchen
""".strip().splitlines()
]


@construction(3)
def meanwhile(g: Draw) -> Sentence:
    """My father ate breakfast while listening to the radio."""
    (ja, en), options = g.pick(list(zip(MEANWHILE, DONE_TOO, strict=True)))
    key, _, noun = g.pick(options).partition(" ")
    person = g.pick(TALKERS)
    tense = g.pick(["past", "past", "now"])
    if tense == "now" and not noun:
        tense = "past"
    topic, who_en = subject(g, person)
    g.combinations.append((person.key, key, noun))
    verb_ja, _, aux, verb_en = predicate(g, VERBS[key], person, tense, False, False)
    if noun:
        noun_ja, _, noun_en = thing(g, NOUNS[noun])
        what = ([*noun_ja, ("を", -1)], noun_en)
    else:
        what = at(g, PLACES["park"], None, VERBS[key])
    return say(
        g,
        "{topic} {clause} 、 {what} {verb}",
        "{who} {aux} {verb} {what} {clause}",
        topic=(topic, []),
        who=([], who_en),
        clause=part(g, ja, en),
        what=what,
        verb=(verb_ja, verb_en),
        aux=([], aux),
    )


TRIPS = [
    (going, event)
    for going in GOING
    if going.verb.key == "行く"
    for event in EVENTS
    if event.place is going.place and event.verb.key not in ("働く", "遊ぶ", "休む", "待つ", "撮る", "飲む")
]
TRIPS = [
    t
    for t in TRIPS
    if t[0].place.key not in ("school", "company")
    and not (t[1].noun and t[1].noun.key in ("cake",) and t[0].place.key == "park")
    and not (t[0].place.key == "station" and t[1].verb.key == "読む")
]


@construction(4)
def and_then(g: Draw) -> Sentence:
    """Yesterday I went to the bookstore and bought a book: 本屋 に 行っ て 、 本 を 買い ました."""
    going, event = g.pick(TRIPS)
    tense = g.pick(["past", "past", "future"])
    person = who(g, event, ask=False)
    note(g, person, event)
    topic, who_en = subject(g, person)
    both = Event(
        event.verb,
        event.noun,
        event.place,
        False,
        "".join(s for s in event.spans if s in going.spans),
        "".join(p for p in event.parts if p in going.parts),
        "",
        (),
        "",
    )
    time_ja, time_en = pick_time(g, both, tense)
    place = to(g, going.place)
    verb_ja, _, _, verb_en = predicate(g, event.verb, person, tense, False, False)
    noun_ja, _, noun_en = (
        thing(
            g,
            event.noun,
            "one",
            event.adjectives if event.adjectives and g.chance(0.25) else (),
        )
        if event.noun
        else ([], [], [])
    )
    if noun_ja:
        noun_ja = [*noun_ja, ("に" if event.verb.key == "会う" else "を", -1)]
    will = []
    if tense == "future":
        will = [("will", verb_ja[-1][1])]
    return say(
        g,
        "{opening} {place} 行っ:1 て:2 、 {what} {verb}",
        "{who} {will} {go}:1 {place} and:2 {verb} {what} {time}",
        opening=(japanese_opening(g, topic, time_ja), []),
        place=place,
        what=(noun_ja, noun_en),
        verb=(verb_ja, verb_en),
        who=([], who_en),
        will=([], will),
        go="go" if will else "went",
        time=([], time_en),
    )


# -- Relative clauses --------------------------------------------------------------------------------

MADE = [
    ("買う", n)
    for n in [
        "book",
        "magazine",
        "novel",
        "hat",
        "shirt",
        "shoes",
        "bag",
        "umbrella",
        "watch",
        "camera",
        "car",
        "bicycle",
        "bread",
        "fish",
        "meat",
        "fruit",
        "vegetables",
    ]
]
MADE += [("作る", n) for n in ["cake", "curry", "soup", "sandwich"]] + [
    ("書く", "novel"),
    ("書く", "letter"),
    ("読む", "book"),
    ("読む", "novel"),
    ("見る", "movie"),
    ("借りる", "book"),
    ("撮る", "picture"),
    ("食べる", "cake"),
    ("食べる", "fish"),
    ("飲む", "coffee"),
    ("飲む", "juice"),
]
TASTE = ("delicious", "sweet", "hot", "spicy")
CONTENT = ("interesting", "long", "short", "difficult", "sad")
TOLD = {
    "買う": (
        "expensive",
        "cheap",
        "red",
        "white",
        "black",
        "big",
        "small",
        "interesting",
        "sweet",
        "beautiful",
    ),
    "作る": TASTE,
    "食べる": TASTE,
    "飲む": TASTE,
    "読む": CONTENT,
    "書く": CONTENT,
    "見る": CONTENT,
    "借りる": CONTENT,
    "撮る": ("beautiful",),
}
"""What is told of a thing that somebody bought, made, and so on."""


def made(g: Draw, *, told: bool = False):
    """The book that I bought: 私 が 買っ た 本."""
    key, name = g.pick(MADE)
    while told and not set(NOUNS[name].adjectives) & set(TOLD[key]):
        key, name = g.pick(MADE)
    noun, verb = NOUNS[name], VERBS[key]
    person = g.pick(TALKERS)
    g.combinations.append((person.key, key, name))
    who_ja, who_en = g.put(person.entry)
    link, act = g.link(), g.link()
    ja = [*who_ja, ("が", -1), *[(w, act) for w in plain_past(verb)], (noun.ja, link)]
    en = [("the", -1), (noun.one, link), ("that", -1), *who_en, *tied(f"{verb.past}", act)]
    return noun, key, (ja, en)


@construction(4)
def that_someone_bought(g: Draw) -> Sentence:
    """The book that my mother bought is interesting; I read the novel that my father wrote."""
    noun, key, what = made(g, told=True)
    consumed = key in ("食べる", "飲む")
    adjective = g.pick([x for x in noun.adjectives if x in TOLD[key]])
    past = (
        consumed
        or key in ("見る", "読む")
        or adjective in ("delicious", "hot", "spicy", "sweet")
        or noun.key in ("fish", "meat", "bread", "fruit", "vegetables")
    )
    g.combinations.append((noun.key, adjective, ""))
    plural = noun.article == "pl"
    adjective_ja, _, adjective_en = adjective_end(g, adjective, past, False)
    copula = ("were" if plural else "was") if past else "are" if plural else "is"
    ja = [*what[0], ("は", -1), *adjective_ja]
    return close(g, ja, [*what[1], (copula, adjective_ja[-1][1]), *adjective_en])


@construction(2)
def this_is(g: Draw) -> Sentence:
    """This is the picture that I took: これ は 私 が 撮っ た 写真 です."""
    noun, key, what = made(g)
    while key in ("食べる", "飲む", "見る") or noun.article == "pl":
        g.combinations.clear()
        noun, key, what = made(g)
    return say(
        g,
        "{this}:1 は {what} です:2",
        "{that}:1 is:2 {what}",
        what=what,
        **g.pick([{"this": "これ", "that": "this"}, {"this": "それ", "that": "that"}]),
    )


@construction(2)
def the_one_who(g: Draw) -> Sentence:
    """The person who is running in the park is my father: 公園 で 走っ て いる 人 は 父 です."""
    event = pick_event(g, uses="g", going=0)
    while (
        not event.place
        or event.place.key == "room"
        or event.doers == "k"
        or (event.noun and event.noun.key in MEALS and event.verb.key == "食べる" and event.place.key == "home")
    ):
        event = pick_event(g, uses="g", going=0)
    person = g.pick([p for p in TALKERS if p.pronoun != p.key and (p.adult or event.doers != "a")])
    note(g, person, event)
    place = at(g, event.place, None, event.verb)
    noun_ja, _, noun_en = thing(g, event.noun) if event.noun else ([], [], [])
    if noun_ja:
        noun_ja = [*noun_ja, ("を", -1)]
    verb = event.verb
    return say(
        g,
        "{place} {what} {te}:1 いる:2 人:3 は {who} です:4",
        "the person:3 who is:2 {ing}:1 {what} {place} is:4 {who}",
        place=place,
        what=(noun_ja, noun_en),
        te=" ".join(verb.te),
        ing=f"{verb.ing} {verb.rest}".strip(),
        who=g.put(person.entry),
    )


# -- I think -----------------------------------------------------------------------------------------


@construction(3)
def i_think(g: Draw) -> Sentence:
    """I think this book is interesting; I think it will rain tomorrow."""
    person = g.pick([I_UNNAMED, PEOPLE["i"]])
    topic, who_en = subject(g, person)
    kind = g.pick(["adjective", "adjective", "event", "event", "rain"])
    if kind == "rain":
        time = g.put(g.pick([t.entry for t in TIMES["future"] if t.span in "hd"]))
        fall, rain = g.pick([("雨", "rain"), ("雪", "snow")])
        g.combinations.append(("weather", fall, "think"))
        return say(
            g,
            "{time} 、 {fall}:1 が 降る:1 と 思い:2 ます:2",
            "i think:2 it will {rain}:1 {time}",
            time=time,
            fall=fall,
            rain=rain,
        )
    if kind == "adjective":
        noun = g.pick(LOOKED_AT)
        key = g.pick([x for x in noun.adjectives if x not in COLORS] or ["expensive"])
        what_ = item(g, noun, g.pick(["this", "that"]))
        g.combinations.append((noun.key, key, "think"))
        adjective, link, is_ = ADJECTIVES[key], g.link(), g.link()
        copula = "are" if noun.article == "pl" else "is"
        ja = [(adjective.stem + "い", link)] if adjective.kind == "i" else [(adjective.stem, link), ("だ", is_)]
        return say(
            g,
            "{topic} {what} は {adj} と 思い:2 ます:2" if not topic else "{topic} {what} が {adj} と 思い:2 ます:2",
            "{who} think:2 {what} {be} {adj}",
            topic=(topic, []),
            who=([], who_en),
            what=what_,
            be=([], [(copula, is_)]),
            adj=(ja, [(key, link)]),
        )
    event = pick_event(g, going=0.7)
    while (
        "d" not in event.spans
        or event.doers == "k"
        or (not event.goal and event.verb.key not in ("買う", "読む", "見る", "作る", "勉強する"))
    ):
        event = pick_event(g, going=0.7)
    doer = other_than_me(g, event)
    note(g, doer, event)
    time = pick_time(g, event, "future")
    what_, _, what_en = thing(g, event.noun) if event.noun else ([], [], [])
    what_ = [*what_, ("を", -1)] if what_ else []
    place = to(g, event.place) if event.goal else ([], [])
    doer_ja, doer_en = subject(g, doer)
    verb = g.link()
    return say(
        g,
        "{doer} {time} {comma} {what} {place} {verb} と 思い:2 ます:2",
        "i think:2 {doer} will {verb} {what} {place} {time}",
        doer=(doer_ja, doer_en),
        time=time,
        comma=(lone("、"), []),
        what=(what_, what_en),
        place=place,
        verb=(tied(" ".join(event.verb.plain), verb), tied(event.verb.base, verb)),
    )


def other_than_me(g: Draw, event: Event) -> Person:
    person = pick_doer(g, event, TALKERS)
    while person.key in ("i", "we"):
        person = pick_doer(g, event, TALKERS)
    return person
