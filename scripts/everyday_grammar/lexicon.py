"""The words of the everyday corpus: what may be said of what, in Japanese and in English. Used from chapter 10 on.

An entry is written as two short texts, one a language, with a number after each word that has a partner:
``田中:1 さん:0`` and ``mr:0 tanaka:1`` say that 田中 is Tanaka and さん is Mr. A word without a number belongs to
partner 0; a word with ``:-`` has no partner in the other language.
"""

from typing import NamedTuple

__all__ = [
    "EVENTS",
    "NOUNS",
    "PEOPLE",
    "PLACES",
    "Entry",
    "Event",
    "Noun",
    "Person",
    "Place",
    "Time",
    "Verb",
    "entry",
]

Words = tuple[tuple[str, int], ...]  # each word with the number of its partner, -1 for none


class Entry(NamedTuple):
    ja: Words
    en: Words


def words(text: str) -> Words:
    """Read ``last:0 night:1 the:-`` as words with the numbers of their partners."""
    out = []
    for item in text.split():
        word, _, link = item.partition(":")
        out.append((word, -1 if link == "-" else int(link or 0)))
    return tuple(out)


def entry(ja: str, en: str) -> Entry:
    return Entry(words(ja), words(en))


def rows(table: str) -> list[tuple[str, ...]]:
    """The cells of a table, a line a row, with | between the cells."""
    lines = table.strip().splitlines()
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def keyed(table: str) -> dict[str, tuple[str, ...]]:
    """The rows of a table by their first cells."""
    return {key: tuple(cells) for key, *cells in rows(table)}


# -- People ------------------------------------------------------------------------------------------


class Person(NamedTuple):
    key: str
    entry: Entry
    pronoun: str  # how English speaks of the same person again
    adult: bool = True
    asked: bool = True  # may a question be about this person?
    relative: bool = False


def _people(table: str) -> dict[str, Person]:
    out = {}
    for line in table.strip().splitlines():
        key, ja, en, pronoun, *flags = (cell.strip() for cell in line.split("|"))
        flags = flags[0].split() if flags else []
        out[key] = Person(
            key,
            entry(ja, en),
            pronoun,
            "child" not in flags,
            "asked" in flags,
            "relative" in flags,
        )
    return out


PEOPLE = _people("""
    i           | 私           | i                  | i    |
    we          | 私たち       | we                 | we   |
    he          | 彼           | he                 | he   | asked
    she         | 彼女         | she                | she  | asked
    they        | 彼ら         | they               | they | asked
    mother      | 母           | my mother          | she  | relative
    father      | 父           | my father          | he   | relative
    brother     | 兄           | my older brother   | he   | relative
    sister      | 姉           | my older sister    | she  | relative
    brother2    | 弟           | my younger brother | he   | relative child
    sister2     | 妹           | my younger sister  | she  | relative child
    grandmother | 祖母         | my grandmother     | she  | relative
    grandfather | 祖父         | my grandfather     | he   | relative
    hanako      | 花子 さん:-  | hanako             | she  | asked
    yumi        | 由美 さん:-  | yumi               | she  | asked
    kenta       | 健太 さん:-  | kenta              | he   | asked
    tanaka      | 田中:1 さん:0 | mr:0 tanaka:1     | he   | asked
    sato        | 佐藤:1 さん:0 | ms:0 sato:1       | she  | asked
    mother3     | お母さん     | your mother        | she  | asked
    father3     | お父さん     | your father        | he   | asked
""")
YOU = Person("you", entry("", "you:-"), "you")  # Japanese leaves the person asked unnamed
I_UNNAMED = Person("i", entry("", "i:-"), "i")
# Who statements are about.
TALKERS = [p for k, p in PEOPLE.items() if k not in ("mother3", "father3")]
ASKED = [p for p in PEOPLE.values() if p.asked]


# -- Things ------------------------------------------------------------------------------------------


class Noun(NamedTuple):
    key: str
    ja: str
    one: str  # "book", or what English has for a stuff: "coffee"
    many: str  # "books"; empty for what is not counted
    article: str  # before one of them: "a", "an", "the", or nothing
    counter: str  # 冊, 枚, …; empty for what is not counted here
    adjectives: tuple[str, ...]


def _nouns(table: str) -> dict[str, Noun]:
    out = {}
    for line in table.strip().splitlines():
        ja, one, many, article, counter, adjectives = (cell.strip() for cell in line.split("|"))
        out[one] = Noun(one, ja, one, many, article, counter, tuple(adjectives.split()))
    return out


NOUNS = _nouns("""
    りんご     | apple      | apples     | an  | 個 | big small red sweet
    卵         | egg        | eggs       | an  | 個 | big small fresh
    パン       | bread      |            |     |    | delicious fresh
    肉         | meat       |            |     |    | delicious expensive cheap fresh
    魚         | fish       |            |     |    | delicious fresh expensive cheap
    果物       | fruit      |            |     |    | delicious sweet fresh expensive
    野菜       | vegetables |            | pl  |    | fresh cheap expensive
    ケーキ     | cake       | cakes      | a   |    | sweet big small delicious
    サンドイッチ | sandwich | sandwiches | a   |    | delicious big
    カレー     | curry      |            |     |    | spicy delicious
    スープ     | soup       |            |     |    | hot delicious
    朝ご飯     | breakfast  |            |     |    |
    昼ご飯     | lunch      |            |     |    |
    晩ご飯     | dinner     |            |     |    |
    水         | water      |            |     | glass  | cold
    お茶       | tea        |            |     | cup    | hot cold
    コーヒー   | coffee     |            |     | cup    | hot delicious
    牛乳       | milk       |            |     | glass  | cold fresh
    ジュース   | juice      |            |     | glass  | cold sweet delicious
    本         | book       | books      | a   | 冊 | interesting new old difficult expensive
    雑誌       | magazine   | magazines  | a   | 冊 | interesting new old
    小説       | novel      | novels     | a   | 冊 | interesting new long sad
    新聞       | newspaper  | newspapers | the |    |
    手紙       | letter     | letters    | a   | 通 | long short
    メール     | email      | emails     | an  | 通 | long short
    写真       | picture    | pictures   | a   | 枚 | beautiful old
    映画       | movie      | movies     | a   | 本 | interesting new old long sad
    テレビ     | television |            |     |    |
    音楽       | music      |            |     |    | beautiful old
    ラジオ     | radio      |            | the |    |
    歌         | song       | songs      | a   |    | beautiful sad old
    英語       | english    |            |     |    | difficult
    フランス語 | french     |            |     |    | difficult
    数学       | mathematics |           |     |    | difficult
    歴史       | history    |            |     |    | interesting
    ピアノ     | piano      | pianos     | the |    |
    ギター     | guitar     | guitars    | the |    |
    テニス     | tennis     |            |     |    |
    サッカー   | soccer     |            |     |    |
    野球       | baseball   |            |     |    |
    宿題       | homework   |            |     |    | difficult easy
    車         | car        | cars       | a   | 台 | new old red white black big expensive small
    自転車     | bicycle    | bicycles   | a   | 台 | new old red expensive
    カメラ     | camera     | cameras    | a   | 台 | new old small expensive cheap
    時計       | watch      | watches    | a   |    | new old expensive small
    帽子       | hat        | hats       | a   |    | white black red new cheap
    シャツ     | shirt      | shirts     | a   | 枚 | white black new cheap
    靴         | shoes      |            | pl  | pair | black white new expensive
    かばん     | bag        | bags       | a   |    | black big new cheap
    傘         | umbrella   | umbrellas  | an  | 本 | red black big
    花         | flowers    |            | pl  |    | beautiful red white
    切符       | ticket     | tickets    | a   | 枚 | cheap
    鍵         | key        | keys       | the |    |
    窓         | window     | windows    | the |    |
    ドア       | door       | doors      | the |    |
    部屋       | room       | rooms      | the |    |
    家         | house      | houses     | the |    |
    台所       | kitchen    | kitchens   | the |    |
    お皿       | dishes     |            | the |    |
    バス       | bus        | buses      | a   |    |
    タクシー   | taxi       | taxis      | a   |    |
    電車       | train      | trains     | a   |    |
    友達       | friend     | friends    | a   |    |
""")
# One makes a cake, but eats cake; one eats an apple, but buys apples.
NOUNS["somecake"] = NOUNS["cake"]._replace(article="", many="", counter="")
NOUNS["apples"] = NOUNS["apple"]._replace(one="apples", article="pl")
NOUNS["eggs"] = NOUNS["egg"]._replace(one="eggs", article="pl")
NOUNS["thecar"] = NOUNS["car"]._replace(article="the")  # one washes the car, but buys a car

COUNTERS = {"冊": "冊", "枚": "枚", "個": "個", "通": "通", "本": "本", "台": "台"}
"""Counters that English has no word for."""

MEASURES = keyed("""
    cup | 杯 | cup | cups
    glass | 杯 | glass | glasses
    pair | 足 | pair | pairs
""")
"""Counters that English has a word for."""

NUMBERS = [("二", "two"), ("三", "three"), ("四", "four"), ("五", "five")]

FEW = ("umbrella", "movie", "shoes", "shirt", "cat", "dog", "camera", "sandwich")
"""Of these, and of drinks, two or three are enough."""

ANY = (
    "apple",
    "egg",
    "sandwich",
    "book",
    "magazine",
    "novel",
    "letter",
    "email",
    "picture",
    "song",
)
"""When none of these is bought or made, English says "not any", in the plural."""


class Adjective(NamedTuple):
    key: str
    stem: str  # 面白 or 静か
    kind: str  # "i" or "na"
    more: str  # "bigger", "more interesting", or empty


def _adjectives(table: str) -> dict[str, Adjective]:
    out = {}
    for line in table.strip().splitlines():
        ja, key, more = (cell.strip() for cell in line.split("|"))
        kind = "i" if ja.endswith("い") and ja != "きれい" else "na"
        out[key] = Adjective(key, ja[:-1] if kind == "i" else ja, kind, more)
    return out


ADJECTIVES = _adjectives("""
    大きい   | big         | bigger
    小さい   | small       | smaller
    赤い     | red         |
    白い     | white       |
    黒い     | black       |
    甘い     | sweet       |
    新しい   | new         | newer
    古い     | old         | older
    高い     | expensive   | more expensive
    安い     | cheap       | cheaper
    おいしい | delicious   |
    辛い     | spicy       |
    熱い     | hot         |
    冷たい   | cold        |
    新鮮     | fresh       |
    面白い   | interesting | more interesting
    難しい   | difficult   |
    簡単     | easy        |
    長い     | long        | longer
    短い     | short       |
    悲しい   | sad         |
    きれい   | beautiful   |
    広い     | large       |
""")


# -- Places ------------------------------------------------------------------------------------------


class Place(NamedTuple):
    key: str
    ja: Words
    at: Words  # partner 1 is で or に
    to: Words
    night: bool  # does one do things there late in the evening?
    weekend: bool


def _places(table: str) -> dict[str, Place]:
    out = {}
    for line in table.strip().splitlines():
        key, ja, at, to, *flags = (cell.strip() for cell in line.split("|"))
        out[key] = Place(
            key,
            words(ja),
            words(at),
            words(to),
            "night" in flags,
            key not in ("school", "company", "bank"),
        )
    return out


PLACES = _places("""
    home        | 家         | at:1 home                 | home                      | night
    kitchen     | 台所       | in:1 the:- kitchen        |                           | night
    room        | 自分:2 の:- 部屋:0 | in:1 their:2 room:0  |                           | night
    restaurant  | レストラン | at:1 a:- restaurant       | to:1 a:- restaurant       | night
    school      | 学校       | at:1 school               | to:1 school               |
    library     | 図書館     | at:1 the:- library        | to:1 the:- library        |
    park        | 公園       | in:1 the:- park           | to:1 the:- park           |
    station     | 駅         | at:1 the:- station        | to:1 the:- station        | night
    bookstore   | 本屋       | at:1 the:- bookstore      | to:1 the:- bookstore      |
    supermarket | スーパー   | at:1 the:- supermarket    | to:1 the:- supermarket    | night
    market      | 市場       | at:1 the:- market         | to:1 the:- market         |
    department  | デパート   | at:1 the:- department:0 store:0 | to:1 the:- department:0 store:0 |
    hospital    | 病院       | at:1 the:- hospital       | to:1 the:- hospital       |
    bank        | 銀行       | at:1 the:- bank           | to:1 the:- bank           |
    company     | 会社       | at:1 the:- office         | to:1 the:- office         | night
    sea         | 海         | in:1 the:- sea            | to:1 the:- sea            |
    pool        | プール     | in:1 the:- pool           | to:1 the:- pool           |
    cinema      | 映画館     | at:1 the:- movie:0 theater:0  | to:1 the:- movie:0 theater:0  | night
    kyoto       | 京都       | in:1 kyoto                | to:1 kyoto                | night
    tokyo       | 東京       | in:1 tokyo                | to:1 tokyo                | night
""")


# -- Times -------------------------------------------------------------------------------------------


class Time(NamedTuple):
    entry: Entry
    span: str  # h: around today, d: another day, w: a week, y: a month or a year
    part: str  # m: morning, e: evening, or nothing


def _times(table: str) -> list[Time]:
    out = []
    for line in table.strip().splitlines():
        ja, en, span, part = (cell.strip() for cell in line.split("|"))
        out.append(Time(entry(ja, en), span, part))
    return out


TIMES = {
    "past": _times("""
        昨日              | yesterday              | h |
        昨日              | yesterday              | h |
        今朝              | this morning           | h | m
        昨日 の:- 夜:1    | last night:1           | h | e
        昨日 の:- 朝:1    | yesterday morning:1    | h | m
        日曜日:1 に:0     | on:0 sunday:1          | d |
        土曜日:1 に:0     | on:0 saturday:1        | d |
        二 日:1 前:2 に:2 | two days:1 ago:2       | d |
        先週              | last week              | w |
        先月              | last month             | y |
        去年              | last year              | y |
        三 年:1 前:2 に:2 | three years:1 ago:2    | y |
    """),
    "future": _times("""
        明日            | tomorrow                | h |
        明日            | tomorrow                | h |
        今夜            | tonight                 | h | e
        明日 の:- 朝:1  | tomorrow morning:1      | h | m
        あさって        | the day after tomorrow  | d |
        来週            | next week               | w |
        来月            | next month              | y |
        来年            | next year               | y |
    """),
    "habit": _times("""
        毎日            | every day      | d |
        毎朝            | every morning  | d | m
        毎晩            | every evening  | d | e
        毎週 日曜日:1 に:- | every sunday:1 | d |
    """),
}


OFTEN = [
    entry("よく", "often"),
    entry("ときどき", "sometimes"),
    entry("いつも", "always"),
    entry("たいてい", "usually"),
]


# -- What people do ----------------------------------------------------------------------------------


class Verb(NamedTuple):
    key: str
    masu: tuple[str, ...]  # 食べ, 勉強 し: what ます follows
    te: tuple[str, ...]  # 食べ て, 読ん で
    plain: tuple[str, ...]  # 食べる
    base: str
    third: str
    past: str
    ing: str
    done: str
    rest: str  # what belongs to the English verb: "up", "to bed"


def _verbs(table: str) -> dict[str, Verb]:
    out = {}
    for line in table.strip().splitlines():
        masu, te, plain, en, *rest = (cell.strip() for cell in line.split("|"))
        base, third, past, ing, done = en.split()
        rest = rest[0] if rest else ""
        key = plain.replace(" ", "")
        out[key] = Verb(
            key,
            *(tuple(ja.split()) for ja in (masu, te, plain)),
            base,
            third,
            past,
            ing,
            done,
            rest,
        )
    return out


VERBS = _verbs("""
    食べ   | 食べ て   | 食べる   | eat eats ate eating eaten
    飲み   | 飲ん で   | 飲む     | drink drinks drank drinking drunk
    読み   | 読ん で   | 読む     | read reads read reading read
    書き   | 書い て   | 書く     | write writes wrote writing written
    買い   | 買っ て   | 買う     | buy buys bought buying bought
    見     | 見 て     | 見る     | watch watches watched watching watched
    聞き   | 聞い て   | 聞く     | listen listens listened listening listened | to
    作り   | 作っ て   | 作る     | make makes made making made
    勉強 し | 勉強 し て | 勉強 する | study studies studied studying studied
    掃除 し | 掃除 し て | 掃除 する | clean cleans cleaned cleaning cleaned
    洗い   | 洗っ て   | 洗う     | wash washes washed washing washed
    撮り   | 撮っ て   | 撮る     | take takes took taking taken
    弾き   | 弾い て   | 弾く     | play plays played playing played
    し     | し て     | する     | play plays played playing played
    開け   | 開け て   | 開ける   | open opens opened opening opened
    閉め   | 閉め て   | 閉める   | close closes closed closing closed
    使い   | 使っ て   | 使う     | use uses used using used
    借り   | 借り て   | 借りる   | borrow borrows borrowed borrowing borrowed
    歌い   | 歌っ て   | 歌う     | sing sings sang singing sung
    走り   | 走っ て   | 走る     | run runs ran running run
    歩き   | 歩い て   | 歩く     | walk walks walked walking walked
    泳ぎ   | 泳い で   | 泳ぐ     | swim swims swam swimming swum
    働き   | 働い て   | 働く     | work works worked working worked
    遊び   | 遊ん で   | 遊ぶ     | play plays played playing played
    休み   | 休ん で   | 休む     | rest rests rested resting rested
    待ち   | 待っ て   | 待つ     | wait waits waited waiting waited | for
    会い   | 会っ て   | 会う     | meet meets met meeting met
    行き   | 行っ て   | 行く     | go goes went going gone
    来     | 来 て     | 来る     | come comes came coming come
    帰り   | 帰っ て   | 帰る     | come comes came coming come | home
    起き   | 起き て   | 起きる   | get gets got getting got | up
    寝     | 寝 て     | 寝る     | go goes went going gone | to bed
    送り   | 送っ て   | 送る     | send sends sent sending sent
    見せ   | 見せ て   | 見せる   | show shows showed showing shown
    話し   | 話し て   | 話す     | speak speaks spoke speaking spoken
    住み   | 住ん で   | 住む     | live lives lived living lived
""")


class Event(NamedTuple):
    """Something that people do: a verb with what it is done to and where."""

    verb: Verb
    noun: Noun | None
    place: Place | None  # where it is done, or where one goes
    goal: bool  # is the place where one goes?
    spans: str  # of the times at which it may be said to happen: h, d, w, y
    parts: str  # of the day: m, e; x if neither may be named
    uses: str  # h every day, o often, g going on now, c can be counted
    adjectives: tuple[str, ...]
    doers: str  # a adults, k children and people with names, or nothing


_EVENTS = """
    食べる | apple sandwich              | home park . .        | hd  | me | hogc | *
    食べる | somecake                    | home restaurant . .  | hd  | me | hog  | sweet delicious
    食べる | bread egg fruit             | home . .             | h   | me | hogc | delicious sweet fresh
    食べる | meat fish vegetables curry  | home restaurant . .  | hd  | e  | og   | delicious fresh spicy
    食べる | breakfast                   | home kitchen .       | h   | m  | hog  |
    食べる | lunch                       | restaurant home park company . | h   | x | hog |
    食べる | dinner                      | home restaurant .    | hd  | e  | hog  |
    飲む   | water milk juice tea coffee | home kitchen . .     | h   | me | hogc | *
    飲む   | coffee tea juice            | restaurant company . | h   | me | hogc | *
    読む   | book novel                  | home library room .  | hd  | me | hog | interesting new old difficult sad
    読む   | magazine                    | home library room .  | hd  | me | hogc | interesting new old
    読む   | newspaper                   | home library station . | hd  | me | hog  |
    読む   | letter email                | home room .          | hd  | me | g    | *
    書く   | letter email                | home room .          | hd  | me | hogc | *
    書く   | novel                       | .                    | wy  |    |      | long interesting
    買う   | book magazine novel         | bookstore station .  | hdw |    | ogc  | interesting new
    買う   | apples eggs bread meat fish | supermarket market . | hd  |    | hogc | fresh cheap delicious
    買う   | fruit vegetables milk      | supermarket market . | hd  |    | hogc | fresh cheap delicious
    買う   | hat shirt shoes bag umbrella | department . .      | hdw |    | c    | *
    買う   | bicycle camera watch        | . .                  | hdwy|    |      | *
    買う   | car                         | . .                  | wy  |    |      | *
    買う   | ticket                      | station .            | hd  | m  | c    | cheap
    買う   | flowers                     | market station .     | hd  | m  | og   | *
    見る   | television                  | home room . .        | hd  | me | hog  |
    見る   | movie                       | cinema home .        | hdw | e  | ogc  | *
    聞く   | music radio                 | home room . .        | h   | me | hog  | *
    歌う   | song                        | school park . school park . | h   | m  | og   | *
    作る   | cake curry soup sandwich    | home kitchen .       | hd  | me | og   | delicious sweet big spicy
    作る   | dinner                      | home kitchen .       | hd  | e  | hog  |
    作る   | breakfast                   | home kitchen .       | hd  | m  | hog  |
    勉強する | english french mathematics history | home library school room . | hd  | me | hog |
    掃除する | room kitchen house        | . .                  | hd  | m  | hog  |
    洗う   | thecar                         | . .                  | hd  | m  | og   |
    洗う   | dishes                      | kitchen .            | hd  | me | hog  |
    撮る   | picture                     | park station kyoto . | hdw | m  | ogc  | beautiful
    弾く   | piano guitar                | home room school .   | hd  | me | hog  |
    する   | tennis soccer baseball      | park school .        | hd  | m  | hog  |
    開ける | window door                 | . . . | h   | me |      |
    閉める | window door                 | . . . | h   | me |      |
    借りる | book magazine               | library              | hdw |    | oc   | interesting old difficult
    走る   |                             | park school park school | hd  | m  | hog  |
    歩く   |                             | park park park park  | hd  | m  | hog  |
    泳ぐ   |                             | sea pool sea pool sea pool | hd  | m  | og   |
    働く   |                             | bank hospital company restaurant library | hd  | me | g | | a
    遊ぶ   |                             | park school park school | hd  |    | hog  | | k
    休む   |                             | home home home | h   | me |      |
    待つ   | bus taxi train friend       | station station | h   | me | g    |
    会う   | friend                      | station park library restaurant school | hdw | m | o |
    会う   | friend                      | station park library restaurant school | hdw | m | o |
"""


def _events(table: str) -> list[Event]:
    out = []
    for line in table.strip().splitlines():
        verb, nouns, places, spans, parts, uses, adjectives, *doers = (cell.strip() for cell in line.split("|"))
        for noun in nouns.split() or [None]:
            known = NOUNS[noun].adjectives if noun else ()
            adjectives_here = known if adjectives == "*" else tuple(a for a in adjectives.split() if a in known)
            for place in places.split():
                event = Event(
                    VERBS[verb],
                    NOUNS[noun] if noun else None,
                    None if place == "." else PLACES[place],
                    False,
                    spans,
                    parts,
                    uses.replace("c", "") if verb == "買う" and noun == "milk" else uses,
                    adjectives_here,
                    doers[0] if doers else "",
                )
                out.append(event)
    return out


EVENTS = _events(_EVENTS)
"""What people do to things, somewhere; what is told more often is here more often."""

_GOALS = rows("""
    行く | school:dho library:dho park:dho station:do supermarket:dho market:do department:dwo
    行く | hospital:dwo bank:do company:dho sea:dwyo kyoto:dwyo tokyo:dwyo cinema:dwo restaurant:do
    来る | kyoto:dwy tokyo:dwy school:dho
""")

GOING = [
    Event(
        VERBS[verb],
        None,
        PLACES[place],
        True,
        "h" + "".join(flag for flag in flags if flag in "dwy"),
        {"restaurant": "e", "school": "m", "company": "m"}.get(place, "me" if PLACES[place].night else "m"),
        "".join(flag for flag in flags if flag in "ho"),
        (),
        "a" if place == "company" else "",
    )
    for verb, goals in _GOALS
    for place, flags in (goal.split(":") for goal in goals.split())
]
"""Where people go."""

MEALS = ("breakfast", "lunch", "dinner")
