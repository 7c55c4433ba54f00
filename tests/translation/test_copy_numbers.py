"""The rule that copies numbers: what it finds in Japanese, and what it lets a translator write."""

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_course.data.batches import SUBWORD_IDS, in_batches
from attn_course.data.subwords import EOS_ID, UNK_ID, Subwords
from attn_course.data.text import normalize_japanese
from attn_course.decoding import Beam, beam_search, greedy_search
from attn_course.translation.copy_numbers import MISSING_NUMBER, CopyNumbers, find_numbers
from attn_course.translation.translator import BUNDLED, Translator


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load()


@pytest.fixture(scope="module")
def rule(translator) -> CopyNumbers:
    return CopyNumbers(translator.src_subwords, translator.tgt_subwords)


@pytest.mark.parametrize(
    ("japanese", "texts"),
    [
        ("1944年", ["1944"]),
        ("12800円", ["12800", "12,800"]),
        ("12,800円", ["12800", "12,800"]),
        ("2.90メートル", ["2.90"]),
        ("11:55に", ["11:55"]),
        ("11時5分", ["11", "11:00", "11:05"]),
        ("11時5分前", ["11", "11:00", "5"]),
        ("8時半", ["8", "8:30"]),
        ("8時間半", ["8"]),
        ("1万円", ["10,000"]),
        ("3万5千円", ["35,000"]),
        ("1.5万人", ["15,000"]),
        ("150万人", ["1,500,000", "1.5 million"]),
        ("1億2000万人", ["120,000,000", "120 million"]),
        ("二十三", ["23"]),
        ("二〇二〇年", ["2020"]),
        ("八時半", ["8", "8:30"]),
        ("2、3日", ["2", "3"]),
        ("2,3日", ["2", "3"]),
        ("0120", ["0120"]),
        ("本がある", []),
    ],
)
def test_find_numbers_lists_all_spellings(japanese, texts):
    assert [spelling.text for spelling in find_numbers(japanese).spellings] == texts


def test_a_number_is_required_in_digits_or_in_words():
    def required(japanese):
        return list(find_numbers(japanese).required.values())

    assert required("20人") == [{"twenty", "twentieth"}]
    assert required("23人") == [{"twenty", "twentieth"}]
    assert required("1000円") == [{"thousand"}]
    assert required("1944年") == required("2.5度") == required("5万円") == [set()]
    # March, once, thirty, teens and never again need no number.
    for japanese in ("3月", "1回", "三十分", "10代", "2度と"):
        assert required(japanese) == []


def write(rule, japanese, english):
    """The ids of a translation, after a look at each: may it be written here?"""
    source = rule.src_subwords.encode([normalize_japanese(japanese)])
    ids = rule.tgt_subwords.encode(english.split())
    numbers = rule(source)
    return ids, numbers, all(numbers.allowed(ids[:t])[i] for t, i in enumerate([*ids, EOS_ID]))


@pytest.mark.parametrize(
    ("japanese", "english", "may"),
    [
        ("1944年です。", "it is 1944 .", True),
        ("1944年です。", "it is 194 .", False),
        ("1944年です。", "it is 19444 .", False),
        ("1944年です。", "it is 1,944 .", False),
        ("1944年です。", "it is 1944 or 1944 .", False),
        ("１９９０年代です。", "the 1990s .", True),
        ("第3章です。", "the 3rd chapter .", True),
        ("3人です。", "three .", True),
        ("2.90メートルです。", "it is 2.90 meters .", True),
        ("2.90メートルです。", "it is 2.9 meters .", False),
        ("2.90メートルです。", "it is 290 meters .", False),
        ("11時55分です。", "it is 11:55 .", True),
        ("11時55分です。", "it is 11:5 .", False),
        ("11時55分です。", "it is 55 past 11 .", False),
        ("11時55分です。", "it is 11:55 and 11 .", False),
        ("3月5日です。", "march 35 .", False),
        ("3時と5時です。", "5 and 3 .", True),
        ("2時と20時です。", "20 and 2 .", True),
        ("5万円です。", "50,000 yen .", True),
        ("5万円です。", "5 yen .", False),
        ("5万円です。", "50,000 million yen .", False),
        ("150万人です。", "1.5 million people .", True),
        ("150万人です。", "1.5 people .", False),
        ("三十分と15秒です。", "30 minutes and 15 seconds .", True),
    ],
)
def test_only_whole_numbers_of_the_source_may_be_written_each_once(rule, japanese, english, may):
    *_, allowed = write(rule, japanese, english)
    assert allowed == may


def test_a_missing_number_costs_and_a_word_will_do(rule):
    def penalty(japanese, english):
        ids, numbers, _ = write(rule, japanese, english)
        return numbers.penalty([*ids, EOS_ID])

    assert penalty("20歳で11人です。", "i am 20 and they are 11 .") == 0
    assert penalty("20歳で11人です。", "i am twenty and they are eleven .") == 0
    assert penalty("20歳で11人です。", "i am 20 .") == MISSING_NUMBER
    assert penalty("20歳で11人です。", "i am .") == 2 * MISSING_NUMBER
    assert penalty("10時55分です。", "it is 10:55 .") == 0


def test_a_source_without_a_digit_has_no_rule(rule):
    assert rule(rule.src_subwords.encode(["三十分待った。"])) is None


def test_copy_numbers_does_not_require_digits_that_the_vocabulary_lacks():
    src = Subwords.load(BUNDLED / "src.subwords.model")
    english = [["it", "is", "12", "or", "15", "yen", "."]] * 5
    tgt = Subwords.train(english, vocab_size=20, spaces=True)
    numbers = CopyNumbers(src, tgt)(src.encode(["12と14です。"]))
    assert [spelling.text for spelling in numbers.spellings] == ["12"]
    # Where nothing may follow, everything may.
    broken = tgt.encode(["15"])
    assert UNK_ID not in broken
    assert numbers.allowed(broken).all()
    assert numbers.penalty(broken) == 0


SIGNS = "猫は私の本を読む3時0分5円19年4歳.,:7万十人日月8%。"


@settings(max_examples=25)
@given(st.text(SIGNS, min_size=1, max_size=15), st.integers(0, 2**16))
def test_copy_numbers_allows_only_numbers_of_the_source(translator, rule, japanese, seed):
    """A writer that follows the rule, and else takes pieces at random, digits most of all."""
    numbers = rule(translator.src_subwords.encode([normalize_japanese(japanese)]))
    if numbers is None:
        return
    rng, written = Random(seed), []
    digits = list(rule.numeric)
    for _ in range(12):
        allowed = numbers.allowed(written)
        liked = [i for i in digits if allowed[i]] if rng.random() < 0.8 else []
        pool = liked or [i for i in rng.sample(range(4, len(allowed)), 400) if allowed[i]]
        if not pool:
            break
        written.append(rng.choice(pool))
    while not numbers.allowed(written)[EOS_ID]:  # complete the last number
        written.append(next(i for i in digits if numbers.allowed(written)[i]))
    text = translator.tgt_subwords.decode(written)
    known = Counter(spelling.text for spelling in numbers.spellings)
    for number, count in Counter(re.findall(r"\d[\d.,:]*(?: million)?", text)).items():
        assert count <= known[number], (japanese, text)


def number_parts(text):
    return Counter(int(part) for part in re.findall(r"\d+", text.replace(",", "")))


@pytest.mark.parametrize("beam_size", [1, 5])
def test_the_translator_writes_no_number_that_the_source_lacks(translator, beam_size):
    rng = Random(beam_size)
    templates = ["これは{}円です。", "彼は{}年に生まれた。", "{}.{}メートルです。", "{}:{}です。", "{}人と{}人が来た。"]
    sentences = []
    for k in range(20):
        template = templates[k % len(templates)]
        sentences.append(template.format(*(rng.choice([11, 22, 55, 188, 1944, 90000]) for _ in range(2))))
    found = translator.translate_n_best(sentences, beam_size=beam_size)
    for sentence, ranked in zip(sentences, found, strict=True):
        for each in ranked:
            assert number_parts(each.translation.text) <= number_parts(sentence), (sentence, each.translation.text)


def test_a_sentence_without_digits_is_translated_as_before(translator):
    sentences = ["私は毎日学校へ行きます。", "彼女は昨日駅で本を三冊買いました。", "母は今台所で料理をしています。"]
    for beam_size in (1, 5):
        with_rule = translator.translate_n_best(sentences, beam_size=beam_size)
        assert with_rule == translator.translate_n_best(sentences, beam_size=beam_size, copy_numbers=False)


def test_a_lost_digit_comes_back(translator):
    lost = ["彼は1944年に生まれた。", "電車は11時55分に出ます。", "この箱は3.25キログラムです。"]
    assert [t.text for t in translator.translate(lost, beam_size=5)] == [
        "He was born in 1944.",
        "The train leaves at 11:55.",
        "This box is 3.25 kilograms.",
    ]
    free = translator.translate(lost, beam_size=5, copy_numbers=False)
    assert [t.text for t in free] == [
        "He was born in 194.",
        "The train leaves at 11:5.",
        "This box is 325 kilograms.",
    ]


def test_greedy_search_follows_the_rule_as_a_beam_of_one_does(translator, rule):
    sources = [translator.encode(text) for text in ("彼は1944年に生まれた。", "猫です。", "会議は11:55に始まります。")]

    def greedy(*inputs, **options):
        rows = greedy_search(*inputs, **options, rule=rule).tolist()
        return [[i for i in row if i != SUBWORD_IDS.pad] for row in rows]

    def of_one(*inputs, **options):
        found = beam_search(*inputs, **options, beam=Beam(1), rule=rule)
        return [hypotheses[0].ids.tolist() for hypotheses in found]

    assert in_batches(greedy, translator.model, sources) == in_batches(of_one, translator.model, sources)


def test_the_probability_stays_the_model_s_and_the_score_pays_for_missing_numbers(translator):
    (ranked,) = translator.translate_n_best(["彼は20歳で、11人の子供がいる。"])
    for translation, log_prob, score in ranked:
        number_missing = 11 not in number_parts(translation.text)
        expected = log_prob + 0.7 * (len(translation.ids) + 1) - MISSING_NUMBER * number_missing
        assert score == pytest.approx(expected, abs=1e-3)
