"""Mixtures: whatever is mixed, no sentence of dev or test is in the training text, in any spelling."""

import os
import re
import unicodedata
from pathlib import Path

import pytest

from attn_course.data import corpora, corpus_mixture, named_corpora
from attn_course.data.corpora import Corpus, Pair
from attn_course.data.corpus_mixture import cut_pair, load_held_out, load_text, stream_text
from attn_course.data.everyday import load_handwritten

REAL = Path(os.environ["ATTN_COURSE_DATA"]) if os.environ.get("ATTN_COURSE_DATA") else None
WITH_SMALL = pytest.mark.skipif(
    REAL is None or not (REAL / "small_parallel_enja").is_dir(),
    reason="ATTN_COURSE_DATA names no folder that holds small_parallel_enja",
)
WITH_TATOEBA = pytest.mark.skipif(
    REAL is None or not (REAL / corpora.TATOEBA_ARCHIVE).is_file(),
    reason=f"ATTN_COURSE_DATA names no folder that holds {corpora.TATOEBA_ARCHIVE}",
)


def letters(words):
    """What is left of a sentence when neither spaces nor punctuation count; written here once more on purpose."""
    text = unicodedata.normalize("NFKC", "".join(words)).casefold()
    return re.sub(r"[^\w]|_", "", text) or text


def shared(text):
    """The sentences of dev and test that are in train too, of either language."""
    found = []
    for side in (0, 1):
        train = {letters(pair[side]) for pair in text.train}
        found += [pair[side] for pair in [*text.dev, *text.test] if letters(pair[side]) in train]
    return found


SMALL = Corpus(
    train=[
        Pair("猫 が 好き 。", "i like cats ."),
        Pair("犬 が 好き 。", "i like dogs ."),
        Pair("犬が好き 。", "I like dogs."),  # the same, in another spelling
        Pair("行け ない 。", "i can 't go ."),
        Pair("彼 は 来 た 。", "he came ."),
    ],
    dev=[Pair("行け ませ ん 。", "i can 't go .")],
    test=[Pair("鳥 が 好き 。", "i like birds ."), Pair("雨 だ 。", "it rains .")],
)
LARGE = [
    Pair("鳥が好き！", "Birds are what I like."),
    Pair("雨が降る。", "It rains!"),
    Pair("猫が好き。", "I like cats."),
    Pair("雪だ。", "It's snow."),
]


@pytest.fixture
def small_corpora(monkeypatch):
    monkeypatch.setattr(named_corpora, "load_small_parallel_enja", lambda: SMALL)
    monkeypatch.setattr(named_corpora, "load_tatoeba", lambda: list(LARGE))


def test_a_mixture_by_hand(small_corpora):
    text = load_text(["small_parallel_enja", "tatoeba"])
    assert [" ".join(pair.en) for pair in text.train] == ["i like cats .", "i like dogs .", "he came .", "it 's snow ."]
    assert text.train[0].ja == ["猫", "が", "好き", "。"]
    assert [" ".join(pair.en) for pair in text.dev] == ["i can 't go ."]
    assert [" ".join(pair.en) for pair in text.test] == ["i like birds .", "it rains ."]
    assert shared(text) == []


def test_dev_and_test_are_spelled_as_the_training_text_is(monkeypatch):
    corpus = Corpus(
        [Pair("犬がＡ。", "Dogs bark!")], [Pair("猫がＢ。", "Cats sleep!")], [Pair("鳥がＣ。", "Birds sing!")]
    )
    monkeypatch.setattr(named_corpora, "load_small_parallel_enja", lambda: corpus)
    text = load_text(["small_parallel_enja"])
    found = [("".join(pair.ja), pair.en) for part in text for pair in part]
    expected = [("犬がA。", "dogs bark !"), ("猫がB。", "cats sleep !"), ("鳥がC。", "birds sing !")]
    assert found == [(ja, en.split()) for ja, en in expected]


def test_the_other_way_round_the_test_is_that_of_the_first(small_corpora):
    text = load_text(["tatoeba", "small_parallel_enja"])
    assert text.dev == text.test == []
    assert len(text.train) == 7


def test_dev_and_test_can_be_other_corpora_whole(small_corpora):
    text = load_text(["tatoeba"], dev="small_parallel_enja", test="handwritten")
    assert [" ".join(pair.en) for pair in text.dev][:2] == ["i like cats .", "i like dogs ."]
    assert len(text.dev) == 8
    assert len(text.test) == len(load_handwritten())
    assert [" ".join(pair.en) for pair in text.train] == ["it 's snow ."]
    assert shared(text) == []


def test_a_corpus_without_dev_and_test_gives_some_of_its_pairs_chosen_by_the_seed(monkeypatch):
    pairs = [Pair(f"犬{n}匹", f"{n} dogs") for n in range(40)]
    monkeypatch.setattr(named_corpora, "load_tatoeba", lambda: pairs + pairs[:7])  # some are there twice
    text = load_text(["tatoeba"], held_out=10)
    assert [len(part) for part in text] == [20, 10, 10]
    assert len({" ".join(pair.en) for part in text for pair in part}) == 40
    assert load_text(["tatoeba"], held_out=10) == text
    assert load_text(["tatoeba"], held_out=10, split_seed=1).test != text.test
    with_test = load_text(["tatoeba"], held_out=10, test="handwritten")
    assert [len(part) for part in with_test] == [30, 10, len(load_handwritten())]
    dev, test = load_held_out("tatoeba", held_out=10)
    assert [pair.en.split() for pair in dev] == [pair.en for pair in text.dev]
    assert [pair.en.split() for pair in test] == [pair.en for pair in text.test]
    with pytest.raises(ValueError, match=r"tatoeba has 40 different pairs, .* held_out must be at most 10, or name"):
        load_text(["tatoeba"], held_out=11)


def test_a_corpus_with_dev_and_test_keeps_its_own(small_corpora):
    assert load_text(["small_parallel_enja"], held_out=1) == load_text(["small_parallel_enja"])


def test_a_sentence_that_is_too_long_to_cut_is_named(monkeypatch):
    monkeypatch.setattr(named_corpora, "load_tatoeba", lambda: [Pair("犬" * 20_000, "dogs")])
    with pytest.raises(ValueError, match=r"text must have at most 49,149 bytes.*; it begins with '犬犬犬"):
        load_text(["tatoeba"])


def test_a_text_is_the_same_one_pair_after_the_other_but_for_those_that_are_there_twice(small_corpora, tmp_path):
    (tmp_path / "my.tsv").write_text("".join(f"{pair.ja}\t{pair.en}\n" for pair in [*LARGE, *SMALL.train]), "utf-8")
    own = f"pairs={tmp_path / 'my.tsv'}"
    for names, division in (
        (["small_parallel_enja", own], {}),
        ([own], {"dev": "tatoeba", "test": "handwritten"}),
        (["everyday", "tatoeba"], {"held_out": 3, "test": own}),
    ):
        whole, streamed = load_text(names, **division), stream_text(names, **division)
        pairs = list(streamed.train())
        assert [cut_pair(pair) for pair in dict.fromkeys(pairs)] == whole.train
        assert (streamed.dev, streamed.test) == (whole.dev, whole.test)
        assert pairs == list(streamed.train())  # as often as one likes


def test_a_corpus_is_not_loaded_for_dev_and_test_that_are_others(small_corpora):
    dev, test = load_held_out("pairs=no such file", dev="small_parallel_enja", test="tatoeba")
    assert (len(dev), len(test)) == (8, 4)


def test_a_sentence_is_spelled_once(small_corpora, monkeypatch):
    """Tokenising what is tokenised may change it: 'nothin'' would lose its apostrophe to the quotation mark."""
    pair = Pair("何も。", 'He said, "Nothin\'."')
    monkeypatch.setattr(named_corpora, "load_tatoeba", lambda: [pair])
    (spelled,) = load_text(["tatoeba"]).train
    assert " ".join(spelled.en) == corpus_mixture.tokenize_english(pair.en)


@pytest.fixture(scope="module")
def bundled():
    return load_text(["everyday", "handwritten"])


def test_the_bundled_corpora_hold_no_dev_or_test_sentence(bundled):
    assert len(bundled.dev) == len(bundled.test) == 500
    assert len(bundled.train) > 5000
    assert shared(bundled) == []
    assert all(pair.ja and pair.en for part in bundled for pair in part)


def test_snow_is_read_from_its_path(tmp_path):
    path = tmp_path / "T15.tsv"
    path.write_text("original_ja\tsimplified_ja\toriginal_en\n猫が好き。\t猫が好き。\tI like cats.\n", encoding="utf-8")
    text = load_text([f"snow={path}"])
    assert text.train == [(["猫", "が", "好き", "。"], ["i", "like", "cats", "."])]


@pytest.mark.bad_input
@pytest.mark.parametrize("names", [[], "everyday"])
def test_there_must_be_a_list_of_names(names):
    with pytest.raises(ValueError, match=r"corpora must be a list of one or more names, such as \['everyday'\], not"):
        load_text(names)


def test_a_name_that_is_unknown_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(named_corpora, "make_corpus", lambda: pytest.fail("loaded"))
    with pytest.raises(ValueError, match="there is no corpus 'wiki'; there are everyday, handwritten, small_parallel"):
        load_text(["everyday", "wiki"])


def test_a_corpus_can_be_used_once():
    with pytest.raises(ValueError, match="each corpus can be used once, and 'everyday' is there twice"):
        load_text(["everyday", "handwritten", "everyday"])


# -- The real corpora --------------------------------------------------------------------------------


@WITH_SMALL
def test_small_parallel_enja_loses_what_its_train_shares_with_dev_and_test():
    text = load_text(["small_parallel_enja"])
    assert (len(text.dev), len(text.test)) == (500, 500)
    assert 49_000 < len(text.train) <= 49_795
    assert shared(text) == []


@WITH_SMALL
@WITH_TATOEBA
def test_tatoeba_loses_the_test_of_small_parallel_enja():
    text = load_text(["small_parallel_enja", "tatoeba"])
    assert len(text.train) == 205_562
    assert shared(text) == []
