"""Alignments against links counted by hand."""

import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

from attn_course.translation.alignment import (
    align_by_weights,
    align_diagonal,
    alignment_error_rate,
    weights_of_words,
)

links = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=6)


def test_the_alignment_error_rate_counted_by_hand():
    predicted, sure, possible = [{(0, 0), (1, 2), (2, 1), (3, 3)}], [{(0, 0), (1, 1), (3, 3)}], [{(2, 1), (2, 2)}]
    # 2 of 4 predicted are sure, 3 of 4 are possible; 4 are predicted and 3 are sure
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - (2 + 2) / (4 + 3))


@given(st.lists(st.tuples(links, links), min_size=1, max_size=5))
def test_with_sure_links_only_the_error_is_what_precision_and_recall_lack(pairs):
    predicted, sure = zip(*pairs, strict=True)
    hits = sum(len(a & s) for a, s in pairs)
    made, known = sum(map(len, predicted)), sum(map(len, sure))
    assume(hits > 0)
    precision, recall = hits / made, hits / known
    expected = 1 - 2 * precision * recall / (precision + recall)
    assert alignment_error_rate(predicted, sure) == pytest.approx(expected)


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=5))
def test_possible_links_only_lower_the_alignment_error_rate(triples):
    predicted, sure, possible = zip(*triples, strict=True)
    assume(any(predicted) or any(sure))
    forgiven = alignment_error_rate(predicted, sure, possible)
    assert 0 <= forgiven <= alignment_error_rate(predicted, sure) <= 1
    both = [s | p for s, p in zip(sure, possible, strict=True)]
    assert alignment_error_rate(predicted, sure, both) == forgiven


def test_links_are_counted_over_the_corpus_and_not_averaged_over_sentences():
    predicted, sure = [{(0, 0)}, set()], [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}]
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - 2 / 5)


@pytest.mark.bad_input
def test_alignments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"predicted \(1\), sure \(2\) and possible \(2\)"):
        alignment_error_rate([{(0, 0)}], [{(0, 0)}, {(1, 1)}])
    with pytest.raises(ValueError, match=r"predicted \(1\), sure \(1\) and possible \(2\) must have one alignment"):
        alignment_error_rate([{(0, 0)}], [{(0, 0)}], [{(0, 0)}, {(1, 1)}])
    with pytest.raises(ValueError, match="at least one link"):
        alignment_error_rate([set()], [set()])
    with pytest.raises(TypeError, match=r"a set of pairs \(target, source\) of numbers, not the string '0-0'"):
        alignment_error_rate(["0-0"], ["0-0"])


@given(st.integers(1, 20), st.integers(1, 20))
def test_the_diagonal_links_every_target_word_in_order(num_targets, num_sources):
    found = sorted(align_diagonal(num_targets, num_sources))
    assert [t for t, _ in found] == list(range(num_targets))
    for t, s in found:  # the middle of target word t lies in source word s
        assert s <= (t + 0.5) / num_targets * num_sources <= s + 1


def test_a_word_is_linked_to_its_largest_weight_unless_most_lies_on_no_word():
    weights = torch.tensor([[0.6, 0.3, 0.1], [0.0, 0.3, 0.2], [0.2, 0.2, 0.4], [0.0, 0.0, 0.1]])
    assert align_by_weights(weights) == {(0, 0), (2, 2)}  # 0.5 and 0.9 lie elsewhere in the others


def test_pieces_add_up_to_words_across_and_are_averaged_down():
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.3, 0.1, 0.1], [0.2, 0.2, 0.2, 0.4], [1.0, 0, 0, 0]])
    found = weights_of_words(weights, ["can", "", "'t", ""], ["can", "'t"], ["食べ", "な", "い", ""], ["食べ", "ない"])
    assert_close(found, torch.tensor([[0.1, 0.5], [0.2, 0.4]]))


def test_text_that_looks_like_a_mark_or_a_special_piece_is_text():
    weights = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    found = weights_of_words(weights, ["<x>", "·s", ""], ["<x>·s"], ["▁", "■", "·", "</s>", ""], ["▁■", "·</s>"])
    assert_close(found, torch.stack([weights[:2, :2].sum(1).mean(), weights[:2, 2:4].sum(1).mean()])[None])


def test_a_piece_across_two_words_is_shared_out_by_characters():
    found = weights_of_words(torch.tensor([[0.2, 0.8]]), ["dog"], ["dog"], ["犬が", "大好き"], ["犬", "が大", "好き"])
    assert_close(found, torch.tensor([[0.1, 0.1 + 0.8 / 3, 0.8 * 2 / 3]]))
    found = weights_of_words(torch.eye(2), ["ab", "cd"], ["a", "bcd"], ["x", "y"], ["x", "y"])
    assert_close(found, torch.tensor([[1, 0], [1 / 3, 2 / 3]]))  # bcd has half of ab and all of cd
    # Shares are computed as exactly as the weights can be.
    double = torch.ones(1, 1, dtype=torch.float64)
    found = weights_of_words(double, ["cat"], ["cat"], ["abc"], ["a", "bc"])
    assert_close(found, double.new_tensor([[1 / 3, 2 / 3]]), rtol=1e-15, atol=0)


@given(st.integers(0, 2**16), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 3))
def test_weights_of_words_lose_only_the_weight_of_special_pieces(seed, sizes, heads):
    rng = torch.Generator().manual_seed(seed)
    text = "".join(map(chr, range(97, 97 + sum(sizes))))
    starts = [0, *itertools.accumulate(sizes)]
    words = [text[a:b] for a, b in itertools.pairwise(starts)]
    cuts = sorted({0, len(text), *torch.randint(1, len(text) + 1, (3,), generator=rng).tolist()})
    pieces = [text[a:b] for a, b in itertools.pairwise(cuts)] + [""]
    weights = torch.rand(2, heads, len(pieces), len(pieces), generator=rng, dtype=torch.float64).softmax(-1)
    found = weights_of_words(weights, pieces, words, pieces, words)
    assert found.shape == (2, heads, len(words), len(words))
    lost = weights[..., -1:]
    kept = weights_of_words(torch.cat([weights[..., :-1], 0 * lost], -1), pieces, words, pieces, words)
    assert_close(found, kept)
    uniform = torch.full_like(weights, 1 / len(pieces))
    rows = weights_of_words(uniform, pieces, words, pieces, words).sum(-1)
    assert_close(rows, torch.full_like(rows, 1 - 1 / len(pieces)))


@pytest.mark.bad_input
def test_pieces_that_do_not_belong_are_refused():
    with pytest.raises(ValueError, match=r"pieces 'a b' must spell the words 'a c'"):
        weights_of_words(torch.eye(2), ["a", "b"], ["a", "c"], ["x", "y"], ["x", "y"])
    with pytest.raises(ValueError, match=r"without marks such as ▁, and a special piece must be an empty string"):
        weights_of_words(torch.eye(2), ["▁a", "</s>"], ["a"], ["x", "y"], ["x", "y"])
    with pytest.raises(ValueError, match=r"\(2, 2\) must have a row for each of the 3 target pieces"):
        weights_of_words(torch.eye(2), ["a", "b", ""], ["a", "b"], ["x", "y"], ["x", "y"])
