"""Spelling: one sentence has one spelling, and English comes back from its tokens."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_course.data.everyday import load_handwritten, make_corpus
from attn_course.data.text import detokenize_english, normalize_japanese, split_sentences, tokenize_english

JAPANESE = st.text(st.characters(categories=["L", "N", "P", "Z"], max_codepoint=0xFFFF), max_size=20)


@pytest.mark.parametrize("text", ["１０時にアメリカへ", "10時にｱﾒﾘｶへ", "10 時 に　アメリカ へ\n"])
def test_normalize_japanese_gives_one_spelling(text):
    assert normalize_japanese(text) == "10時にアメリカへ"


def test_a_mark_above_a_letter_is_part_of_the_letter():
    assert normalize_japanese(unicodedata.normalize("NFD", "ガラス")) == "ガラス"


@given(JAPANESE)
def test_normalising_twice_changes_nothing_more(text):
    once = normalize_japanese(text)
    assert normalize_japanese(once) == once
    assert once.split() in ([], [once])


@pytest.mark.parametrize(
    ("natural", "tokenized"),
    [
        ("I can't tell.", "i can 't tell ."),
        ("It's Tom's.", "it 's tom 's ."),
        ("Mr. Hill comes at 10:45, not at 9.", "mr. hill comes at 10:45 , not at 9 ."),
        ("It costs 1,000 yen; or 2.5 dollars?", "it costs 1,000 yen ; or 2.5 dollars ?"),
        ("“Yes,” he said.", "'' yes , '' he said ."),
        ("“No!”", "'' no ! ''"),
        ("The boys’ room (upstairs).", "the boys ' room ( upstairs ) ."),
        ("Leave it. Go home.", "leave it. go home ."),  # two letters may be an abbreviation
        ("Sit down. Go home.", "sit down . go home ."),
        ("By 5 p.m. he slept.", "by 5 p.m. he slept ."),
        ("Well... yes.", "well ... yes ."),
        ("Ｗｈｏ is it?", "who is it ?"),
        ("", ""),
    ],
)
def test_english_is_cut_like_the_references(natural, tokenized):
    assert tokenize_english(natural) == tokenized


@pytest.mark.parametrize(
    "text",
    [
        "I can't tell Mr. Hill.",
        "It's 10:45, isn't it?",
        "I said I'd go; she didn't.",
        'He said, "come in."',
        "Why (if at all) did I go?",
        "He said 'yes' to me.",
        "'Don't,' he said.",
        "Rock 'n' roll was rock'n'roll in the '90s.",
        "My dogs' tails and the cats' ears.",
        "At 5 o'clock she said 'no' to o'brien.",
        "I call it 'the boys' room'.",
    ],
)
def test_a_sentence_comes_back_from_its_tokens(text):
    assert detokenize_english(tokenize_english(text)) == text


@pytest.mark.parametrize(
    ("reference", "natural"),
    [
        ("the dog is called ' spot ' by the family .", "The dog is called 'spot' by the family."),
        ("he said to me , ' let 's play catch . '", "He said to me, 'let's play catch.'"),
        ("it is no more than ten minutes ' walk from here .", "It is no more than ten minutes' walk from here."),
    ],
)
def test_detokenize_english_reads_single_quotes_as_the_references_write_them(reference, natural):
    assert detokenize_english(reference) == natural


@pytest.mark.parametrize(
    "text",
    [
        "Last Monday Tom's sister flew to New York.",
        "Mary speaks English, French and Japanese, but no Chinese.",
        "Is Mt. Fuji the highest mountain in Japan?",
        "In the United States we watch TV in August.",
        "She left the U.S. in April.",
    ],
)
def test_common_names_get_their_capitals_back(text):
    assert detokenize_english(tokenize_english(text)) == text


def test_a_word_that_may_be_another_stays_small():
    text = "You may march to the mark and pay the bill; she will, frankly, polish a rose in a tomb."
    assert detokenize_english(tokenize_english(text)) == text


def test_detokenize_english_loses_only_capitals_of_other_names():
    assert (
        detokenize_english(tokenize_english("Then Kohaku met Dr. Sato in Ueda.")) == "Then kohaku met Dr. Sato in ueda."
    )


def test_every_sentence_of_the_corpus_comes_back_but_for_capitals():
    texts = [pair.english for pair in make_corpus(1500, num_dev=100, num_test=100).train]
    texts += [pair.en for pair in load_handwritten()]
    for text in texts:
        tokens = tokenize_english(text)
        assert detokenize_english(tokens).lower() == text.lower().replace("’", "'"), tokens
        assert tokenize_english(tokens) == tokens


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("犬だ。猫だ！鳥か？", ["犬だ。", "猫だ！", "鳥か？"]),
        ("犬だ｡猫だ．鳥だ", ["犬だ｡", "猫だ．", "鳥だ"]),
        ("「はい。」と彼は言った。", ["「はい。」と彼は言った。"]),
        ("「はい。」って言った。", ["「はい。」って言った。"]),
        ("「はい。行く。」と言った。雨だ。", ["「はい。行く。」と言った。", "雨だ。"]),
        ("「はい。」「いいえ。」", ["「はい。」", "「いいえ。」"]),
        ("「はい。」彼は言った。", ["「はい。」", "彼は言った。"]),
        ("彼は「『はい。』と言え。」、と言った。", ["彼は「『はい。』と言え。」、と言った。"]),
        ("（雨だ。）", ["（雨だ。）"]),
        ("「犬だ。猫だ。", ["「犬だ。", "猫だ。"]),  # never closed
        ("犬だ」。猫だ。", ["犬だ」。", "猫だ。"]),
        ("気温は３．５度だ．雨だ．", ["気温は３．５度だ．", "雨だ．"]),
        ("えっ！？　本当？", ["えっ！？", "本当？"]),
        (" 　", []),
    ],
)
def test_japanese_is_cut_after_its_sentences_and_not_within_one(text, sentences):
    assert split_sentences(text) == sentences


def test_a_long_quotation_is_read_once():
    # Counting from the start of the quotation at each of its sentences would take minutes.
    inside = "犬だ。" * 200_000
    started = time.perf_counter()
    assert split_sentences(f"「{inside}」と言った。雨だ。") == [f"「{inside}」と言った。", "雨だ。"]
    assert time.perf_counter() - started < 20


def test_i_is_written_large_at_the_end_too_but_not_in_an_abbreviation():
    assert detokenize_english("she is taller than i .") == "She is taller than I."
    assert detokenize_english("'' yes . '' he said .") == '"Yes." he said.'
    assert detokenize_english("a mammal , i.e. a dog .") == "A mammal, i.e. a dog."
