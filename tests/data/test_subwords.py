"""Subwords: text comes back from its ids, and no piece reaches from one word into the next."""

import itertools
import json
import pickle
import subprocess
import sys
from collections import Counter

import pytest
import sentencepiece
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_course.data.everyday import make_corpus
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Subwords
from attn_course.data.text import normalize_japanese, tokenize_english
from attn_course.data.words import words

CORPUS = make_corpus(2000, num_dev=50, num_test=50)
JA = [words(normalize_japanese(pair.japanese)) for pair in CORPUS.train]
EN = [tokenize_english(pair.english).split() for pair in CORPUS.train]


@pytest.fixture(scope="module")
def ja():
    return Subwords.train(JA, 450, spaces=False)


@pytest.fixture(scope="module")
def en():
    return Subwords.train(EN, 300, spaces=True)


# -- There and back ----------------------------------------------------------------------------------


LETTERS = st.text("abcdefghiklmnoprstuwy.'", min_size=1, max_size=9)


@given(st.lists(LETTERS, max_size=8))
def test_any_words_of_known_letters_come_back(en, sentence):
    ids = en.encode(sentence)
    assert all(UNK_ID < i < len(en) for i in ids)
    assert en.decode(ids) == " ".join(sentence)
    assert [en.piece(i) for i in ids] == [piece for word in en.cut(sentence) for piece in word]


@given(st.lists(st.text("たべましのみ私は犬猫を", min_size=1, max_size=6), max_size=8))
def test_any_japanese_words_of_known_letters_come_back(ja, sentence):
    ids = ja.encode(sentence)
    assert UNK_ID not in ids
    assert ja.decode(ids) == "".join(sentence)


@settings(max_examples=30)
@given(
    st.lists(st.text(min_size=1, max_size=5).filter(lambda word: not set(word) & set(" ▁") and word.split() == [word]))
)
def test_whatever_the_words_are_the_ids_are_in_the_vocabulary(en, sentence):
    ids = en.encode(sentence)
    assert all(UNK_ID <= i < len(en) for i in ids)
    assert isinstance(en.decode(ids), str)


# -- Words stay apart --------------------------------------------------------------------------------


@pytest.mark.parametrize("sentences", ["JA", "EN"])
def test_no_piece_crosses_a_word(ja, en, sentences):
    subwords, mark = (ja, "") if sentences == "JA" else (en, "▁")
    for sentence in globals()[sentences][:300]:
        cut = subwords.cut(sentence)
        assert ["".join(pieces) for pieces in cut] == [mark + word for word in sentence]
        assert subwords.encode(sentence) == [i for word in sentence for i in subwords.encode([word])]


def test_no_piece_was_learned_over_the_edge_of_words(ja):
    inside = {
        word[a:b] for word in set(itertools.chain(*JA)) for a in range(len(word)) for b in range(a + 1, len(word) + 1)
    }
    pieces = {ja.piece(i) for i in range(UNK_ID + 1, len(ja))}
    assert pieces <= inside
    joined = Subwords.train([["".join(sentence)] for sentence in JA], 450, spaces=False)
    assert not {joined.piece(i) for i in range(UNK_ID + 1, len(joined))} <= inside  # the test can fail


def test_the_first_pieces_are_those_of_byte_pair_encoding():
    """Against an implementation of Sennrich et al. that knows nothing of SentencePiece."""
    counts = Counter("▁" + word for sentence in EN for word in sentence)
    cut = {word: list(word) for word in counts}
    merges = []
    for _ in range(15):
        pairs = Counter()
        for word, pieces in cut.items():
            for pair in itertools.pairwise(pieces):
                pairs[pair] += counts[word]
        (best, most), (_, second) = pairs.most_common(2)
        if most == second:  # either may come first
            break
        merges.append("".join(best))
        for pieces in cut.values():
            for i in range(len(pieces) - 1, 0, -1):
                if (pieces[i - 1], pieces[i]) == best:
                    pieces[i - 1 : i + 1] = ["".join(best)]
    assert len(merges) >= 10
    subwords = Subwords.train(EN, 100, spaces=True)
    assert [subwords.piece(4 + i) for i in range(len(merges))] == merges


# -- Cut at random -----------------------------------------------------------------------------------


def test_words_cut_at_random_are_the_same_words(ja, en):
    for subwords, sentences in ((ja, JA[:300]), (en, EN[:300])):
        usual = [subwords.encode(sentence) for sentence in sentences]
        found = subwords.encode_at_random(sentences, dropout=0.2, seed=1)
        assert [subwords.decode(ids) for ids in found] == [subwords.decode(ids) for ids in usual]
        assert sum(map(len, found)) > 1.05 * sum(map(len, usual))
        assert any(ids == other for ids, other in zip(found, usual, strict=True))


def test_without_dropout_words_are_cut_as_ever_and_with_all_of_it_into_letters(ja):
    assert ja.encode_at_random(JA[:50], dropout=0.0, seed=1) == [ja.encode(sentence) for sentence in JA[:50]]
    unknown = [["犬が", "鰐鰐龍"], ["鰐", "鰐", "猫鰐鰐猫"]]
    assert ja.encode_at_random(unknown, dropout=0.0, seed=1) == [ja.encode(sentence) for sentence in unknown]
    letters = [[ja.piece(i) for i in ids] for ids in ja.encode_at_random(JA[:50], dropout=1.0, seed=1)]
    known = [i for i in range(50) if UNK_ID not in ja.encode(JA[i])]
    assert len(known) > 40
    assert all(letters[i] == list("".join(JA[i])) for i in known)


def test_another_process_cuts_them_in_the_same_way(en, tmp_path):
    (tmp_path / "en").write_bytes(en.model)
    code = """
import sys
from attn_course.data.subwords import Subwords
print(Subwords.load(sys.argv[1]).encode_at_random([["yesterday", "strawberry"]] * 20, dropout=0.3, seed=5))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "en")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    here = en.encode_at_random([["yesterday", "strawberry"]] * 20, dropout=0.3, seed=5)
    assert json.loads(found.stdout) == here


def test_the_seed_says_how_words_are_cut(en):
    one, again, other = (en.encode_at_random(EN[:300], dropout=0.2, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    # The same word is cut in several ways within one call.
    word = max({word for sentence in EN for word in sentence}, key=len)
    assert len({tuple(ids) for ids in en.encode_at_random([[word]] * 50, dropout=0.2, seed=1)}) > 3


@pytest.mark.parametrize("dropout", [-0.1, 1.5, float("nan")])
def test_a_dropout_that_is_no_probability_is_refused(en, dropout):
    with pytest.raises(ValueError, match=rf"dropout \({dropout}\) must be from 0 to 1"):
        en.encode_at_random(EN[:2], dropout=dropout, seed=1)


def test_a_vocabulary_goes_to_another_process(en):
    again = pickle.loads(pickle.dumps(en))
    assert again.model == en.model
    assert [again.encode(sentence) for sentence in EN] == [en.encode(sentence) for sentence in EN]


def test_a_string_among_the_sentences_is_refused(en):
    with pytest.raises(TypeError, match="not the string 'the cat'"):
        en.encode_at_random([["the"], "the cat"], dropout=0.1, seed=1)


# -- Special ids -------------------------------------------------------------------------------------


def test_required_characters_have_pieces_however_rare_they_are():
    text = [["aa", "ab"]] * 30_000 + [["7"]]
    plain, asked = (Subwords.train(text, 9, spaces=True, required_characters=c) for c in ("", "7%"))
    assert UNK_ID in plain.encode(["7"])
    assert asked.decode(asked.encode(["7", "a%", "77"])) == "7 a% 77"


@pytest.mark.parametrize("spaces", [True, False])
def test_digits_can_be_kept_apart(spaces):
    text = [["1985", "a12"]] * 40
    together = Subwords.train(text, 15, spaces=spaces)
    apart = Subwords.train(text, 10 + 2 * spaces, spaces=spaces, split_digits=True)
    assert [piece for word in together.cut(["1985"]) for piece in word if len(piece.lstrip("▁")) > 1]
    assert [p for word in apart.cut(["1985", "a12"]) for p in word if p not in ("▁", "▁a", "a")] == [*"198512"]
    assert not [p for p in map(apart.piece, range(len(apart))) if len(p) > 1 and any(map(str.isdecimal, p))]


def test_a_piece_of_another_vocabulary_is_cut_as_a_word_is(ja, en):
    for subwords, sentences, space in ((ja, JA, ""), (en, EN, "▁")):
        for word in sorted({word for sentence in sentences[:300] for word in sentence}):
            assert subwords.cut_piece(space + word) == subwords.encode([word])


def test_the_special_ids_are_the_first_four(ja, en):
    for subwords in (ja, en):
        assert [subwords.piece(i) for i in (PAD_ID, BOS_ID, EOS_ID, UNK_ID)] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert (PAD_ID, BOS_ID, EOS_ID, UNK_ID) == (0, 1, 2, 3)


@pytest.mark.parametrize("word", ["<pad>", "<s>", "</s>", "<unk>"])
def test_a_text_cannot_smuggle_a_special_id_in(en, word):
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(en.encode([word]))


def test_decoding_leaves_out_padding_beginning_and_end(en):
    ids = en.encode(["i", "read"])
    assert en.decode([BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]) == "i read"
    assert en.decode(torch.tensor(ids)) == "i read"
    assert en.decode([]) == ""


def test_an_unknown_letter_is_unknown_and_shown_as_such(en):
    assert UNK_ID in en.encode(["猫"])
    assert "猫" in en.cut(["猫"])[0]
    assert "⁇" in en.decode(en.encode(["猫"]))


# -- Learning ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spaces", [True, False])
def test_a_letter_of_one_in_a_thousand_is_learned_and_one_of_one_in_forty_thousand_is_not(spaces):
    sentences = [["neko", "ga"], ["kaeru"]] * 3600 + [["ze"]] * 40 + [["qe"]]
    subwords = Subwords.train(sentences, 20, spaces=spaces)
    assert UNK_ID not in subwords.encode(["ze"])
    assert subwords.decode(subwords.encode(["ze"])) == "ze"
    assert UNK_ID in subwords.encode(["qe"])
    assert {piece for piece in map(subwords.piece, range(len(subwords))) if "q" in piece} == set()


def test_learning_is_the_same_each_time():
    assert Subwords.train(EN, 200, spaces=True).model == Subwords.train(iter(EN), 200, spaces=True).model


TINY = [["neko", "ga", "suki"], ["inu", "ga", "suki"]] * 5


@pytest.mark.parametrize("size", [-3, 0, 3])
def test_a_vocabulary_of_special_ids_alone_is_refused(size):
    with pytest.raises(ValueError, match=rf"vocab_size \({size}\) must leave room for more than the 4 special ids"):
        Subwords.train(TINY, size, spaces=True)


@pytest.mark.parametrize("spaces", [True, False])
def test_a_size_out_of_range_is_refused_with_the_limit_and_the_limit_works(spaces):
    limits = []
    for size, word in ((5, "least"), (5000, "most")):
        with pytest.raises(ValueError, match=rf"vocab_size \({size}\) must be at {word} \d+: ") as refused:
            Subwords.train(TINY, size, spaces=spaces)
        limits.append(int(str(refused.value).split(word)[1].split(":")[0]))
        assert "INTERNAL" not in str(refused.value)
    for size in limits:
        assert len(Subwords.train(TINY, size, spaces=spaces)) == size
    for size in (limits[0] - 1, limits[1] + 1):
        with pytest.raises(ValueError, match="must be at"):
            Subwords.train(TINY, size, spaces=spaces)


@pytest.mark.parametrize("sentences", [[], [[]], [[""], []]])
def test_there_must_be_a_word_to_learn_from(sentences):
    with pytest.raises(ValueError, match="there must be a word to learn from, and there is none"):
        Subwords.train(sentences, 100, spaces=False)


def test_sentences_that_are_all_too_long_are_named_as_the_reason():
    longest = ["neko"] * 838 + ["ab"]  # 838 · 5 + 2 bytes
    assert len(" ".join(longest)) == 4192
    Subwords.train([longest] * 3, 12, spaces=True)
    with pytest.raises(
        ValueError, match="at most 4,192 bytes to learn from, and all 3 sentences with words are longer"
    ):
        Subwords.train([[], *[["i", *longest]] * 3], 12, spaces=True)


# -- Files -------------------------------------------------------------------------------------------


def test_a_vocabulary_is_the_same_after_saving_and_loading(en, tmp_path):
    path = tmp_path / "english.model"
    path.write_bytes(en.model)
    again = Subwords.load(path)
    assert again.encode(EN[0]) == en.encode(EN[0])
    assert len(again) == len(en)
    assert Subwords.load(str(path)).model == en.model


@pytest.mark.parametrize("content", [b"", b"not a model", None], ids=["empty", "text", "cut short"])
def test_a_file_that_is_no_vocabulary_is_refused_with_its_name(en, tmp_path, content):
    path = tmp_path / "broken.model"
    path.write_bytes(en.model[: len(en.model) // 2] if content is None else content)
    with pytest.raises(ValueError, match=r"broken\.model cannot be read: "):
        Subwords.load(path)


def test_the_model_of_another_course_with_other_special_ids_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(sentence) for sentence in TINY),
        model_prefix=str(tmp_path / "other"),
        vocab_size=20,
        model_type="bpe",
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"must have the ids \(0, 1, 2, 3\), and have \(-1, 1, 2, 0\) in this model"):
        Subwords.load(tmp_path / "other.model")


# -- Wrong use ---------------------------------------------------------------------------------------


@pytest.mark.bad_input
@pytest.mark.parametrize("method", ["encode", "cut"])
def test_a_string_is_no_sequence_of_words(en, method):
    with pytest.raises(
        TypeError, match="words must be a sequence of words, not the string 'i like cats': cut it first"
    ):
        getattr(en, method)("i like cats")


@pytest.mark.parametrize("bad", [-1, 300, 10_000])
def test_an_id_that_is_not_in_the_vocabulary_is_refused(en, bad):
    for call in (lambda: en.decode([5, bad]), lambda: en.piece(bad)):
        with pytest.raises(ValueError, match=rf"ids must be from 0 to 299 in this vocabulary, not {bad}"):
            call()


def test_ctrl_c_while_it_learns_is_ctrl_c_and_no_error_of_the_text():
    def interrupted():
        yield ["neko", "ga", "suki"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Subwords.train(interrupted(), 28, spaces=True)
