"""Count the numbers that the translator copies: seven kinds of sentences, 60 of each, in three sets.

    python benchmarks/copied_numbers.py [--set report] [--show]

The rule was written with the first two sets. The report set, with other sentences and another seed, was translated
only after that. A translation is right if its numbers are those of the source, equal in value, in digits or in words.
Each set is translated twice with a beam of 5: with the rule that copies numbers, and without it (`--free-numbers`).
"""

import argparse
import re
from collections import Counter
from decimal import Decimal
from random import Random

from attn_course.translation.translator import Translator

NUM_SENTENCES = 60
SEEDS = {"first": 0, "second": 37, "report": 2026}
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")

# {} is the number; {h} and {m} are hours and minutes.
SENTENCES = {
    "first": {
        "prices": ["このカメラは{}円です。", "切符は{}円でした。", "彼はその時計に{}ドル払った。"],
        "full-width digits": ["彼は{}歳です。", "箱の中にりんごが{}個あります。", "その村には{}人が住んでいる。"],
        "years": ["彼は{}年に生まれた。", "この橋は{}年に建てられた。", "{}年に大きな地震があった。"],
        "times": ["電車は{h}時{m}分に出ます。", "会議は{h}:{m}に始まります。", "私は午前{h}時{m}分に起きた。"],
        "pages": ["教科書の{}ページを開いてください。", "この本は{}ページあります。", "答えは{}ページにあります。"],
        "percent": ["学生の{}%が反対した。", "値段が{}%上がった。", "税金は{}パーセントです。"],
        "decimals": ["この布の長さは{}メートルです。", "体温は{}度です。", "この箱は{}キログラムです。"],
    },
    "second": {
        "prices": [
            "この靴はいくらですか。{}円です。",
            "私は{}円でその辞書を買いました。",
            "家賃は月に{}ドルです。",
            "昨日の夕食は{}円かかった。",
        ],
        "full-width digits": [
            "私の祖母は{}歳まで生きました。",
            "この学校には生徒が{}人います。",
            "彼女の部屋番号は{}です。",
            "彼は切手を{}枚持っている。",
        ],
        "years": [
            "戦争は{}年に終わりました。",
            "私の父は{}年に大学を卒業した。",
            "彼女は{}年からここに住んでいます。",
            "その会社は{}年に始まった。",
        ],
        "times": [
            "授業は{h}時{m}分に終わります。",
            "飛行機は午後{h}時{m}分に着く予定です。",
            "今{h}時{m}分です。",
            "明日の朝{h}:{m}に駅で会いましょう。",
        ],
        "pages": [
            "昨日は{}ページ読みました。",
            "{}ページの絵を見てください。",
            "その物語は{}ページから始まる。",
            "彼は報告書を{}ページ書いた。",
        ],
        "percent": [
            "日本人の{}%がそう思っている。",
            "給料が{}%下がりました。",
            "明日雨が降る確率は{}パーセントです。",
            "この店では全部{}%引きです。",
        ],
        "decimals": [
            "その川の幅は{}メートルです。",
            "彼は毎日{}キロ走ります。",
            "私の体重は{}キロです。",
            "平均点は{}点でした。",
        ],
    },
    "report": {
        "prices": [
            "この自転車は{}円で売れた。",
            "妹に{}円貸しました。",
            "入場料は{}円です。",
            "彼女の新しいかばんは{}ドルした。",
        ],
        "full-width digits": [
            "この町の人口は{}人です。",
            "彼は昨日{}歩歩きました。",
            "私たちは椅子が{}脚必要です。",
            "この塔の高さは{}メートルです。",
        ],
        "years": [
            "その城は{}年に完成した。",
            "{}年の夏はとても暑かった。",
            "母は{}年に東京に来ました。",
            "オリンピックは{}年に開かれた。",
        ],
        "times": [
            "次のバスは{h}時{m}分に来ます。",
            "授業は{h}:{m}に終わります。",
            "昨夜{h}:{m}に彼から電話があった。",
            "店は午前{h}時{m}分に開きます。",
        ],
        "pages": [
            "宿題は{}ページです。",
            "彼女は一日に{}ページ読む。",
            "{}ページから始めましょう。",
            "その地図は{}ページにのっている。",
        ],
        "percent": [
            "生徒の{}%が試験に合格した。",
            "この会社の社員の{}%は女性です。",
            "電気代が{}%高くなった。",
            "私は彼の話の{}パーセントしかわからなかった。",
        ],
        "decimals": [
            "その机の高さは{}センチです。",
            "駅までは{}キロあります。",
            "この魚の重さは{}キロです。",
            "昨日の気温は{}度でした。",
        ],
    },
}


def make_number(kind: str, rng: Random) -> str:
    """A number as a sentence of this kind writes it."""
    if kind == "prices":
        price = rng.choice([10, 100, 1]) * rng.randint(21, 1999)
        return f"{price:,}" if rng.random() < 0.5 else str(price)
    if kind == "full-width digits":
        digits = rng.randint(2, 5)
        return str(rng.randint(10 ** (digits - 1), 10**digits - 1)).translate(FULL_WIDTH)
    if kind == "years":
        return str(rng.randint(1600, 2030))
    if kind == "pages":
        return str(rng.randint(11, 899))
    if kind == "percent":
        return str(rng.randint(2, 99))
    places = rng.randint(1, 2)  # decimals
    return f"{rng.randint(1, 99)}.{rng.randrange(10**places):0{places}d}"


def make_sentences(name: str) -> dict[str, list[str]]:
    """The sentences of each kind, always the same."""
    rng = Random(SEEDS[name])
    sentences = {}
    for kind, templates in SENTENCES[name].items():
        sentences[kind] = []
        for i in range(NUM_SENTENCES):
            template = templates[i % len(templates)]
            if kind == "times":
                sentences[kind].append(template.format(h=rng.randint(1, 12), m=f"{rng.randint(10, 59)}"))
            else:
                sentences[kind].append(template.format(make_number(kind, rng)))
    return sentences


_NUMBER = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
_SMALL = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
WORDS = {word: n for n, word in enumerate(_SMALL.split(), start=1)}
WORDS |= {word: 10 * n for n, word in enumerate(_TENS.split(), start=2)}


def numbers_in(text: str) -> Counter[Decimal]:
    """The values of all numbers in digits. The colon of a clock separates two of them."""
    return Counter(Decimal(number.replace(",", "")) for number in _NUMBER.findall(text))


def is_right(source: str, translation: str) -> bool:
    """Whether the translation has the numbers of the source, and no other in digits."""
    expected, actual = numbers_in(source), numbers_in(translation)
    in_words = Counter()
    for tens, ones in re.findall(r"\b([a-z]+)(?:[ -]([a-z]+))?(?![a-z])", translation.lower()):
        in_words[Decimal(WORDS.get(tens, 0))] += 1
        in_words[Decimal(WORDS.get(ones, 0))] += 1
        in_words[Decimal(WORDS.get(tens, 0) + WORDS.get(ones, 0))] += 1
    return actual <= expected and not (expected - actual) - in_words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=list(SEEDS), action="append", help="one of the sets; both without it")
    parser.add_argument("--show", action="store_true", help="print every wrong translation")
    options = parser.parse_args()

    translator = Translator.load()
    for name in options.set or SEEDS:
        print(f"\n{name} set, right of {NUM_SENTENCES}\n\n| kind | free | copied |\n|---|---|---|")
        for kind, sources in make_sentences(name).items():
            right, wrong = {}, []
            for copy_numbers in (False, True):
                translations = translator.translate(sources, beam_size=5, copy_numbers=copy_numbers)
                marks = [is_right(source, each.text) for source, each in zip(sources, translations, strict=True)]
                right[copy_numbers] = sum(marks)
                wrong += [
                    f"  {'copied' if copy_numbers else 'free'}: {source} {each.text}"
                    for source, each, mark in zip(sources, translations, marks, strict=True)
                    if not mark
                ]
            print(f"| {kind} | {right[False]} | {right[True]} |", flush=True)
            if options.show:
                print("\n".join(wrong), flush=True)


if __name__ == "__main__":
    main()
