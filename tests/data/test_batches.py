"""Batches: nothing is lost, nothing is invented, and little is padding."""

import functools
import itertools
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attn_course import Transformer
from attn_course.data.batches import Batch, in_batches, make_batch, make_buckets
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID
from attn_course.decoding import Beam, beam_search, greedy_search

SENTENCE = st.lists(st.integers(3, 50), min_size=1, max_size=9)
PAIRS = st.lists(st.tuples(SENTENCE, st.lists(st.integers(3, 50), max_size=7)), min_size=1, max_size=5)
LENGTHS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60)


# -- One batch ---------------------------------------------------------------------------------------


def test_a_batch_by_hand():
    batch = make_batch([([11, 12], [21, 22, 23]), ([13, 14, 15, 16], [])])
    assert batch.src.tolist() == [[11, 12, 2, 0, 0], [13, 14, 15, 16, 2]]
    assert batch.src_lengths.tolist() == [3, 5]
    assert batch.tgt_in.tolist() == [[1, 21, 22, 23], [1, 0, 0, 0]]
    assert batch.tgt_out.tolist() == [[21, 22, 23, 2], [2, 0, 0, 0]]
    assert batch.tgt_lengths.tolist() == [4, 1]
    assert batch.src_mask.int().tolist() == [[[1, 1, 1, 0, 0]], [[1, 1, 1, 1, 1]]]
    assert all(tensor.dtype == torch.long for tensor in vars(batch).values())


@given(PAIRS)
def test_every_sentence_comes_back_from_its_batch(pairs):
    batch = make_batch(pairs)
    for b, (src, tgt) in enumerate(pairs):
        S, T = batch.src_lengths[b], batch.tgt_lengths[b]
        assert batch.src[b, :S].tolist() == [*src, EOS_ID]
        assert batch.tgt_in[b, :T].tolist() == [BOS_ID, *tgt]
        assert batch.tgt_out[b, :T].tolist() == [*tgt, EOS_ID]
        assert (batch.src[b, S:] == PAD_ID).all()
        assert (batch.tgt_in[b, T:] == PAD_ID).all()
        assert (batch.tgt_out[b, T:] == PAD_ID).all()
    assert torch.equal(batch.src_mask[:, 0], batch.src != PAD_ID)
    assert batch.src.size(1) == batch.src_lengths.max()
    assert batch.tgt_in.shape == batch.tgt_out.shape
    assert batch.tgt_in.size(1) == batch.tgt_lengths.max()


def test_a_batch_moves_as_a_whole():
    moved = make_batch([([5], [6])]).to("meta")
    assert isinstance(moved, Batch)
    assert {tensor.device.type for tensor in vars(moved).values()} == {"meta"}


def test_a_batch_must_have_a_pair():
    with pytest.raises(ValueError, match="a batch must have at least one pair, and there is none"):
        make_batch([])


def test_an_empty_source_is_refused_with_its_place():
    with pytest.raises(ValueError, match="pair 1 must have a source, and its source is empty"):
        make_batch([([5], [6]), ([], [7])])


@pytest.mark.parametrize("special", [PAD_ID, BOS_ID, EOS_ID])
@pytest.mark.parametrize("side", [0, 1])
def test_ids_that_the_batch_adds_itself_are_refused(special, side):
    pair = ([5, 6], [7, 8])
    pair[side].append(special)
    with pytest.raises(ValueError, match=rf"pair 1 must not hold the id {special}: padding \(0\), beginning \(1\)"):
        make_batch([([5], [6]), pair])


# -- Buckets -----------------------------------------------------------------------------------------


def cells(lengths, bucket):
    """Positions on either side of a batch, in the width of the longer one."""
    return len(bucket) * (max(max(lengths[i]) for i in bucket) + 1)


@given(LENGTHS, st.integers(13, 60), st.integers(0, 3))
def test_every_pair_is_in_one_bucket_and_no_bucket_is_too_large(lengths, tokens_per_batch, seed):
    buckets = make_buckets(lengths, tokens_per_batch, Random(seed))
    assert sorted(i for bucket in buckets for i in bucket) == list(range(len(lengths)))
    assert all(buckets)
    assert max(cells(lengths, bucket) for bucket in buckets) <= tokens_per_batch


@given(LENGTHS, st.integers(13, 60))
def test_a_bucket_is_closed_only_when_the_next_pair_does_not_fit(lengths, tokens_per_batch):
    buckets = make_buckets(lengths, tokens_per_batch, Random(0))
    sizes = [[lengths[i][::-1] for i in bucket] for bucket in buckets]  # target first
    order = sorted(range(len(buckets)), key=lambda k: (sizes[k][0], sizes[k][-1], -len(sizes[k])))
    in_order = [buckets[k] for k in order]
    for bucket, after in itertools.pairwise(in_order):
        assert cells(lengths, [*bucket, after[0]]) > tokens_per_batch


def random_lengths(count, seed):
    rng = Random(seed)
    sources = [min(30, max(1, round(rng.gauss(12, 4)))) for _ in range(count)]
    return [(s, max(1, round(s * 0.8 + rng.gauss(0, 2)))) for s in sources]


def padding_share(lengths, buckets):
    real = sum(a + b + 2 for a, b in lengths)
    all_cells = sum(
        len(bucket) * (2 + sum(max(lengths[i][side] for i in bucket) for side in (0, 1))) for bucket in buckets
    )
    return 1 - real / all_cells


def test_buckets_have_little_padding_and_batches_in_random_order_much():
    lengths = random_lengths(5000, 0)
    order = list(range(len(lengths)))
    Random(0).shuffle(order)
    shuffled = [order[i : i + 64] for i in range(0, len(order), 64)]
    assert padding_share(lengths, shuffled) > 0.35
    assert padding_share(lengths, make_buckets(lengths, 1000, Random(0))) < 0.08


def test_the_same_seed_gives_the_same_buckets_and_another_one_others():
    lengths = random_lengths(500, 1)
    first, again, other = (make_buckets(lengths, 300, Random(seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert {frozenset(bucket) for bucket in first} != {frozenset(bucket) for bucket in other}


def test_the_buckets_do_not_come_in_the_order_of_their_length():
    lengths = random_lengths(2000, 2)
    widths = [max(lengths[i][1] for i in bucket) for bucket in make_buckets(lengths, 300, Random(0))]
    assert widths != sorted(widths)


def test_there_must_be_pairs():
    with pytest.raises(ValueError, match="there must be pairs to make batches of, and there are none"):
        make_buckets([], 100, Random(0))


@pytest.mark.parametrize("pair", [(3, 30), (30, 3)])
def test_a_sentence_that_fits_into_no_batch_is_refused_with_its_length(pair):
    message = r"tokens_per_batch \(30\) must be at least 31, the length of the longest sentence with its end"
    with pytest.raises(ValueError, match=message):
        make_buckets([(2, 2), pair], 30, Random(0))
    assert len(make_buckets([(2, 2), pair], 31, Random(0))) == 2


@pytest.mark.parametrize("batch_size", [1, 2, 64])
@pytest.mark.parametrize("search", [greedy_search, functools.partial(beam_search, beam=Beam(3))])
def test_in_batches_gives_each_source_what_it_gets_alone(search, batch_size):
    torch.manual_seed(0)
    model = Transformer(13, 11, d_model=8, num_heads=2, d_ff=12, max_len=30).eval()
    sources = [torch.randint(4, 13, (length,)).tolist() for length in (9, 1, 5, 5, 2, 12, 3)]
    lengths = set()
    for source, found in zip(sources, in_batches(search, model, sources, batch_size=batch_size), strict=True):
        (alone,) = in_batches(search, model, [source])
        limit = min(2 * (len(source) + 1) + 10, 30)
        for one, other in zip(*(x if isinstance(x, list) else [(x,)] for x in (found, alone)), strict=True):
            assert one[0].tolist() == other[0].tolist()
            assert len(one[0]) <= limit
        lengths.add(len(one[0]) - limit)
    assert 0 in lengths
