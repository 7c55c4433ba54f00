"""Chapter 10: what it says about text, padding and leaks."""

import functools
import itertools
import os
import re
import unicodedata
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch
from read_chapters import code_cells, definitions, exercises, markdown_cells, text

from attn_course.data import corpora
from attn_course.data.batches import make_batch, make_buckets
from attn_course.data.corpora import Pair, load_small_parallel_enja, load_tatoeba, remove_overlap
from attn_course.data.everyday import load_handwritten, make_corpus
from attn_course.data.subwords import UNK_ID, Subwords
from attn_course.data.text import normalize_japanese, tokenize_english
from attn_course.data.words import words

REAL = Path(os.environ["ATTN_COURSE_DATA"]) if os.environ.get("ATTN_COURSE_DATA") else None
with_corpora = pytest.mark.skipif(
    REAL is None or not (REAL / "small_parallel_enja").is_dir() or not (REAL / corpora.TATOEBA_ARCHIVE).is_file(),
    reason="ATTN_COURSE_DATA names no folder that holds small_parallel_enja and Tatoeba",
)


@pytest.fixture(scope="module")
def chapter():
    return definitions("10")


@functools.cache
def corpus():
    return make_corpus()


@functools.cache
def sentences():
    """The Japanese and the English words of the training part."""
    ja = [words(normalize_japanese(pair.japanese)) for pair in corpus().train]
    return ja, [tokenize_english(pair.english).split() for pair in corpus().train]


@functools.cache
def by_hand():
    return [words(normalize_japanese(pair.ja)) for pair in load_handwritten()]


@functools.cache
def pieces(language, size=600):
    return Subwords.train(sentences()[language], size, spaces=bool(language))


@functools.cache
def lengths():
    ja, en = ([pieces(i).encode(sentence) for sentence in sentences()[i]] for i in (0, 1))
    return [(len(a), len(b)) for a, b in zip(ja, en, strict=True)]


# -- The sentence that goes through the chapter ------------------------------------------------------

OURS = "母は駅で本を買いました。", "My mother bought a book at the station."


def test_our_sentence_is_in_no_part_of_the_corpus_and_each_of_its_words_in_training(chapter):
    key = chapter["key"]
    everywhere = corpus().train + corpus().dev + corpus().test
    assert key(OURS[0]) not in {key(pair.japanese) for pair in everywhere}
    assert key(OURS[1]) not in {key(pair.english) for pair in everywhere}
    assert set(words(OURS[0])) <= set(itertools.chain(*sentences()[0]))


def test_san_is_mr_behind_one_name_and_ms_behind_another():
    for name, title in (("田中", "Mr. Tanaka"), ("佐藤", "Ms. Sato")):
        named = [pair for pair in corpus().train if f"{name}さん" in pair.japanese]
        assert len(named) > 100
        assert all(title in pair.english for pair in named)


# -- Spelling and words ------------------------------------------------------------------------------


def test_the_chapters_spelling_is_the_packages(chapter):
    for pair in load_handwritten():
        assert chapter["one_spelling"](pair.ja) == normalize_japanese(pair.ja)


def test_the_test_part_has_no_unknown_word_and_the_handwritten_sentences_many(chapter):
    known = set(itertools.chain(*sentences()[0]))
    test = [words(normalize_japanese(pair.japanese)) for pair in corpus().test]
    assert chapter["unknown_share"](test, known) == 0
    assert 0.2 < chapter["unknown_share"](by_hand(), known) < 0.5


# -- Pieces ------------------------------------------------------------------------------------------


def test_the_chapters_merges_are_those_of_sentencepiece(chapter):
    counts = Counter(itertools.chain(*sentences()[0]))
    cut = {tuple(word): count for word, count in counts.items()}
    merges = []
    for _ in range(20):
        pair = chapter["most_frequent_pair"](cut)
        merges.append("".join(pair))
        cut = {chapter["merge"](word, pair): count for word, count in cut.items()}
    characters = set("".join(counts))
    small = Subwords.train(sentences()[0], 24 + len(characters), spaces=False)
    assert merges == [small.piece(i) for i in range(4, 24)]


def test_one_step_on_three_english_words_by_hand(chapter):
    cut = {tuple("reads"): 5, tuple("eats"): 3, tuple("ate"): 2}
    pairs = Counter()
    for word, count in cut.items():
        pairs.update({pair: count for pair in itertools.pairwise(word)})
    (first, most), (_, second) = pairs.most_common(2)
    assert (first, most, second) == (("e", "a"), 8, 5)
    assert chapter["most_frequent_pair"](cut) == first
    assert chapter["merge"](tuple("reads"), first) == ("r", "ea", "d", "s")
    assert chapter["merge"](tuple("ate"), first) == ("a", "t", "e")


def test_the_new_word_is_one_word_in_two_pieces(chapter):
    assert words("食べ物") == ["食べ物"]
    assert "食べ物" not in set(itertools.chain(*sentences()[0]))
    assert chapter["merge"](tuple("食べ物"), ("食", "べ")) == ("食べ", "物")


# -- Padding, buckets, the shift, masks --------------------------------------------------------------


def test_random_batches_are_more_than_a_third_padding_and_buckets_a_tenth_at_most(chapter):
    order = list(range(len(lengths())))
    Random(0).shuffle(order)
    share = chapter["padding_share"]
    shuffled = [order[i : i + 64] for i in range(0, len(order), 64)]
    assert share(lengths(), shuffled) > 1 / 3
    buckets = make_buckets(lengths(), 1000, Random(0))
    assert share(lengths(), buckets) < 0.1


def test_padding_share_by_hand(chapter):
    # (3 + 1, 1 + 1) and (1 + 1, 1 + 1): 6 of 8 cells on the left, 4 of 4 on the right
    assert chapter["padding_share"]([(3, 1), (1, 1)], [[0, 1]]) == pytest.approx(1 - 10 / 12)
    assert chapter["padding_share"]([(3, 1), (1, 1)], [[0], [1]]) == 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_chapters_buckets_are_the_packages(chapter, seed):
    rng = Random(seed)
    some = [(rng.randint(1, 20), rng.randint(1, 20)) for _ in range(200)]
    assert chapter["buckets_of"](some, 90, Random(seed)) == make_buckets(some, 90, Random(seed))


def test_the_chapters_batch_is_the_packages(chapter):
    pairs = [([5, 6, 7], [8]), ([9], [10, 11, 12, 13])]
    batch, pad, shifted = make_batch(pairs), chapter["pad"], chapter["shifted"]
    assert torch.equal(batch.src, pad([[*src, 2] for src, _ in pairs]))
    assert torch.equal(batch.tgt_in, pad([shifted(tgt)[0] for _, tgt in pairs]))
    assert torch.equal(batch.tgt_out, pad([shifted(tgt)[1] for _, tgt in pairs]))


# -- Leaks -------------------------------------------------------------------------------------------


def test_strings_hide_the_leaks_and_keys_find_them(chapter):
    test = [Pair(pair.japanese, pair.english) for pair in corpus().test[:100]]
    other = [Pair(ja.replace("。", " 。"), en.replace(".", "!")) for ja, en in test]
    other += [Pair(ja, en) for ja, en in load_handwritten()]
    assert not set(other) & set(test)
    keys = {chapter["key"](pair.ja) for pair in test}
    assert sum(chapter["key"](pair.ja) in keys for pair in other) == 100
    assert remove_overlap(other, test) == other[100:]


def shown_pairs(name):
    """A list of pairs that the chapter's cell on leaks holds: "tested" or "tatoeba"."""
    (cell,) = [cell for cell in code_cells("10") if "tested = [" in cell.source]
    namespace = {"Pair": Pair}
    exec(cell.source.split("\n\n\n")[0], namespace)
    return namespace[name]


def test_the_three_pairs_are_equal_by_key_and_not_as_strings(chapter):
    key = chapter["key"]
    for tested, theirs in zip(shown_pairs("tested"), shown_pairs("tatoeba"), strict=True):
        assert all(a != b and key(a) == key(b) for a, b in zip(tested, theirs, strict=True))


def test_a_combination_stays_in_one_part():
    parts = {"train": corpus().train, "dev": corpus().dev, "test": corpus().test}
    pattern = re.compile(r"My mother .*(buy|bought).* fish")
    found = [name for name, part in parts.items() for pair in part if pattern.match(pair.english)]
    assert len(found) > 1
    assert set(found) == {"train"}


@with_corpora
def test_the_three_pairs_are_in_the_corpora():
    assert set(shown_pairs("tested")) <= set(small()[0].test)
    assert set(shown_pairs("tatoeba")) <= set(load_tatoeba())


def test_no_sentence_of_the_test_is_in_training(chapter):
    key = chapter["key"]
    sides = [
        {side for pair in part for side in (key(pair.japanese), key(pair.english))}
        for part in (corpus().train, corpus().dev, corpus().test)
    ]
    assert not sides[0] & sides[2]
    assert not sides[0] & sides[1]


# -- Recorded numbers --------------------------------------------------------------------------------


def recorded():
    """The table of the chapter, as its cell has it."""
    (cell,) = [cell for cell in code_cells("10") if "recorded = {" in cell.source]
    namespace = {}
    exec(cell.source.split("panels =")[0], namespace)
    return namespace["recorded"]


def test_recorded_numbers_are_called_recorded():
    assert text("10").count("**Recorded") >= 3
    (cell,) = [cell for cell in code_cells("10") if "recorded = {" in cell.source]
    assert "(recorded)" in cell.source.split("recorded =")[0]


@functools.cache
def small():
    corpus = load_small_parallel_enja()
    ja, test = ([words(normalize_japanese(pair.ja)) for pair in part] for part in (corpus.train, corpus.test))
    return corpus, ja, test


def row(size, known):
    """Size, share of sentences with an unknown token in per cent, tokens per sentence.

    ``known`` says of each token of each sentence whether it has an id.
    """
    unknown = sum(not all(sentence) for sentence in known) / len(known)
    return size, round(100 * unknown, 1), round(sum(map(len, known)) / len(known), 1)


def looked_up(sentences, vocabulary):
    return [[token in vocabulary for token in sentence] for sentence in sentences]


@with_corpora
def test_the_recorded_table_is_what_the_corpus_gives():
    _, ja, test = small()
    counts = Counter(itertools.chain(*ja))
    characters, twice = set("".join(counts)), {word for word in counts if counts[word] > 1}
    expected = {
        "characters": row(len(characters), looked_up(["".join(s) for s in test], characters)),
        "words, at least twice": row(len(twice), looked_up(test, twice)),
        "words, all": row(len(counts), looked_up(test, counts)),
    }
    for size in (2000, 4000, 8000):
        subwords = Subwords.train(ja, size, spaces=False)
        expected[f"subwords, {size:,}"] = row(size, [[i != UNK_ID for i in subwords.encode(s)] for s in test])
    assert recorded() == expected


@with_corpora
def test_the_recorded_words_are_what_the_corpus_gives():
    _, ja, test = small()
    counts, said = Counter(itertools.chain(*ja)), text("10")
    sentences_with_one = sum(not set(sentence) <= set(counts) for sentence in test)
    assert f"of small_parallel_enja, a public corpus, {sentences_with_one / 5:.0f} % contain a word" in said


@with_corpora
def test_the_recorded_leaks_are_what_the_corpora_give(chapter):
    corpus, said, key = small()[0], text("10"), chapter["key"]
    tatoeba, held_out = load_tatoeba(), corpus.dev + corpus.test
    pairs = {(key(pair.ja), key(pair.en)) for pair in tatoeba}
    sides = [{pair[side] for pair in pairs} for side in (0, 1)]
    whole = sum((key(pair.ja), key(pair.en)) in pairs for pair in corpus.test)
    ja, en = (sum(key(pair[side]) in sides[side] for pair in corpus.test) for side in (0, 1))
    assert f"{whole / 5:.0f} % of the 500 test pairs" in said
    assert f"{ja / 5:.0f} % of the Japanese test sentences and {en / 5:.0f} % of the English test sentences" in said
    kept = remove_overlap(tatoeba, held_out)
    assert f"{len(tatoeba) - len(kept):,} pairs of Tatoeba, which leaves {len(kept):,}" in said
    own = {key(pair.en) for pair in corpus.train}
    assert f"contains {sum(key(pair.en) in own for pair in corpus.test)} of the 500 English test sentences" in said
    gone = len(corpus.train) - len(remove_overlap(corpus.train, held_out))
    assert f"delete {gone} of the 50,000 training pairs" in said

    first = {}
    for pair in tatoeba:
        first.setdefault(key(pair.ja), tokenize_english(pair.en))
    right = sum(first.get(key(pair.ja)) == pair.en for pair in corpus.test)
    assert f"translates {right} of the 500 sentences exactly as the reference does" in said
    assert f"translates {right} of the 500 test sentences of a public corpus exactly as the reference does" in said
    strings = set(itertools.chain(*tatoeba))
    assert not strings & set(itertools.chain(*corpus.test)), "none of the 1000 test strings is in Tatoeba"


# -- Exercises ---------------------------------------------------------------------------------------


def test_exercise_6_s_pairs_are_kept_by_key():
    (exercise,) = [found for found in exercises("10") if found.number == 6]
    rows = re.findall(r"^\| \d \| (\S+) \*(.+)\* \| (\S+) \*(.+)\* \|$", exercise.statement, re.MULTILINE)
    assert len(rows) == 3
    for ja, en, their_ja, their_en in rows:
        assert remove_overlap([Pair(their_ja, their_en)], [Pair(ja, en)]) == [Pair(their_ja, their_en)]


def test_the_chapter_uses_one_spelling():
    """Japanese in the text is in the form that the course uses, but where the chapter shows the others."""
    for cell in markdown_cells("10"):
        assert unicodedata.normalize("NFC", cell.source) == cell.source
