"""Key-value caches: what is read piece by piece must be what is read at once, and nothing may be left half done."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import seeds
from torch import nn
from torch.testing import assert_close

from attn_course import (
    BlockPool,
    DecoderCache,
    KeyValueCache,
    LanguageModel,
    LatentAttention,
    MultiHeadAttention,
    PagedBatch,
    PagedCache,
    RollingCache,
    Transformer,
    make_alibi_bias,
    make_causal_mask,
    make_padding_mask,
    make_rotation,
    make_sliding_window_mask,
    quiet_softmax,
    rotate,
)

B, G, D, MAX = 3, 2, 5, 11


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def random_tensor(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def random_parameters(module, seed=0):
    rng = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
    return module


def assert_same(a, b):
    assert_close(a, b, rtol=1e-10, atol=1e-10)


@st.composite
def partitions(draw, total=MAX):
    """Sizes of pieces, at least 1 each, that sum to ``total``."""
    sizes = []
    while sum(sizes) < total:
        sizes.append(draw(st.integers(1, total - sum(sizes))))
    return sizes


def make_cache(**options):
    sizes = {"batch_size": B, "num_kv_heads": G, "max_len": MAX, "head_dim": D, "dtype": torch.float64}
    return KeyValueCache(**{**sizes, **options})


# -- One layer's keys and values ---------------------------------------------------------------------


@given(seeds, partitions())
def test_a_cache_returns_the_concatenated_pieces(seed, sizes):
    k, v = random_tensor(2, B, G, MAX, D, seed=seed)
    cache, end = make_cache(), 0
    for new_k, new_v in zip(k.split(sizes, dim=2), v.split(sizes, dim=2), strict=True):
        end += new_k.size(2)
        found_k, found_v = cache.append(new_k, new_v)
        assert cache.length == end
        assert torch.equal(found_k, k[:, :, :end])
        assert torch.equal(found_v, v[:, :, :end])


def test_its_memory_is_laid_out_once_and_counted():
    cache = make_cache()
    assert cache.max_len == MAX
    assert cache.num_bytes == 2 * 8 * B * G * MAX * D
    addresses = set()
    for _ in range(MAX):
        k, v = cache.append(*random_tensor(2, B, G, 1, D))
        addresses.add((k.data_ptr(), v.data_ptr()))
        assert cache.num_bytes == 2 * 8 * B * G * MAX * D
    assert len(addresses) == 1
    assert make_cache(dtype=torch.float16).num_bytes == 2 * 2 * B * G * MAX * D
    assert make_cache(num_kv_heads=1).num_bytes * G == cache.num_bytes


def test_its_type_is_that_of_torch_unless_it_is_told():
    k, _ = KeyValueCache(1, 1, 1, 1).append(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1))
    assert k.dtype == torch.get_default_dtype()


@given(seeds, st.lists(st.integers(0, B - 1), min_size=B, max_size=B))
def test_reorder_replaces_rows(seed, rows):
    k, v = random_tensor(2, B, G, MAX, D, seed=seed)
    cache = make_cache()
    cache.append(k[:, :, :4], v[:, :, :4])
    cache.reorder(torch.tensor(rows))
    found_k, found_v = cache.append(k[:, :, 4:], v[:, :, 4:])
    for b, row in enumerate(rows):
        assert torch.equal(found_k[b], torch.cat([k[row, :, :4], k[b, :, 4:]], dim=1))
        assert torch.equal(found_v[b], torch.cat([v[row, :, :4], v[b, :, 4:]], dim=1))


def test_after_a_reset_nothing_of_the_first_sequence_is_left():
    cache, fresh = make_cache(), make_cache()
    cache.append(*torch.full((2, B, G, MAX, D), torch.nan, dtype=torch.float64))  # it would spread if it were read
    cache.reset()
    assert cache.length == 0
    new = random_tensor(2, B, G, 3, D)
    for found, expected in zip(cache.append(*new), fresh.append(*new), strict=True):
        assert torch.equal(found, expected)


def test_a_cache_can_be_truncated_to_a_common_prefix():
    k, v = random_tensor(2, B, G, MAX, D)
    cache = make_cache()
    cache.append(k, v)
    cache.truncate(4)
    assert cache.length == 4
    found_k, found_v = cache.append(k[:, :, 8:9], v[:, :, 8:9])
    assert torch.equal(found_k, k[:, :, [0, 1, 2, 3, 8]])
    assert torch.equal(found_v, v[:, :, [0, 1, 2, 3, 8]])


def test_a_full_cache_raises_an_error_and_stays_unchanged():
    k, v = random_tensor(2, B, G, MAX, D)
    cache = make_cache()
    kept_k, kept_v = cache.append(k[:, :, :8], v[:, :, :8])
    message = r"4 new positions after 8 make 12, more than max_len \(11\): make a larger cache, or reset this one"
    with pytest.raises(ValueError, match=message):
        cache.append(*random_tensor(2, B, G, 4, D, seed=1))
    assert cache.length == 8
    assert torch.equal(kept_k, k[:, :, :8])
    assert torch.equal(kept_v, v[:, :, :8])
    found_k, found_v = cache.append(k[:, :, 8:], v[:, :, 8:])  # what has room goes in
    assert torch.equal(found_k, k)
    assert torch.equal(found_v, v)
    with pytest.raises(ValueError, match="1 new positions after 11 make 12"):
        cache.append(*random_tensor(2, B, G, 1, D))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c, x: c.append(x[:2], x), ValueError, r"k of shape \(2, 2, 3, 5\) .* here \(3, 2, T, 5\)"),
        (lambda c, x: c.append(x, x[:, :1]), ValueError, r"v of shape \(3, 1, 3, 5\) .* here \(3, 2, T, 5\)"),
        (lambda c, x: c.append(x[..., :4], x), ValueError, r"k of shape \(3, 2, 3, 4\)"),
        (lambda c, x: c.append(x[0], x[0]), ValueError, r"k of shape \(2, 3, 5\) must be \(B, G, T, D\)"),
        (lambda c, x: c.append(x, x[:, :, :2]), ValueError, r"as many new keys \(3\) as values \(2\)"),
        (lambda c, x: c.append(x.float(), x), TypeError, r"k \(torch.float32\) .* of the cache \(torch.float64\)"),
        (lambda c, x: c.append(x, x.half()), TypeError, r"v \(torch.float16\)"),
        (lambda c, x: c.reorder(torch.tensor([0, 1])), ValueError, r"rows of shape \(2,\) .* each of the 3 rows"),
        (lambda c, x: c.reorder(torch.tensor([0, 1, 3])), ValueError, "from 0 to 2, but go from 0 to 3"),
        (lambda c, x: c.reorder(torch.tensor([-1, 1, 2])), ValueError, "from 0 to 2, but go from -1 to 2"),
        (lambda c, x: c.reorder(torch.tensor([0.0, 1, 2])), TypeError, r"must be integers \(.*\), not torch.float32"),
        (lambda c, x: c.reorder(torch.tensor([0, 1, 1], dtype=torch.uint8)), TypeError, "not torch.uint8"),
        (lambda c, x: c.reorder(torch.tensor([True, True, False])), TypeError, "not torch.bool"),
        (lambda c, x: c.truncate(5), ValueError, r"length \(5\) must be from 0 to the length of the cache \(4\)"),
        (lambda c, x: c.truncate(-1), ValueError, r"length \(-1\)"),
    ],
)
def test_a_cache_refuses_wrong_shapes_and_stays_unchanged(call, error, message):
    k, v = random_tensor(2, B, G, 4, D)
    cache = make_cache()
    kept_k, kept_v = cache.append(k, v)
    with pytest.raises(error, match=message):
        call(cache, random_tensor(B, G, 3, D, seed=1))
    assert cache.length == 4
    assert torch.equal(kept_k, k)
    assert torch.equal(kept_v, v)


@pytest.mark.parametrize("name", ["batch_size", "num_kv_heads", "max_len", "head_dim"])
def test_a_cache_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} \(0\) must be at least 1"):
        make_cache(**{name: 0})


# -- Many texts in the blocks of one memory ----------------------------------------------------------


def make_pool(num_blocks=7, block_size=3):
    return BlockPool(num_blocks, block_size, G, D, dtype=torch.float64)


def holds(cache, kept):
    """Whether the cache holds these keys and values, in this order; it changes nothing."""
    nothing = torch.empty(1, G, 0, D, dtype=torch.float64)
    return cache.length == kept.size(3) and all(map(torch.equal, cache.append(nothing, nothing), kept))


steps = st.lists(
    st.tuples(st.sampled_from(["append", "append", "fork", "truncate", "drop"]), st.integers(0, 5), st.integers(0, 7)),
    min_size=5,
    max_size=20,
)


@settings(max_examples=50)
@given(seeds, steps)
def test_texts_in_blocks_hold_what_texts_in_flat_memory_hold(seed, steps):
    pool = make_pool()
    rng = torch.Generator().manual_seed(seed)
    start = torch.randn(2, 1, G, 4, D, dtype=torch.float64, generator=rng)  # ends within a block
    cache = PagedCache(pool)
    cache.append(*start)
    texts = [(cache, start), (cache.fork(), start)]
    for step, which, number in steps:
        n = which % len(texts)
        cache, kept = texts[n]
        if step == "append":
            new = torch.randn(2, 1, G, number, D, dtype=torch.float64, generator=rng)
            if cache.length + number <= cache.max_len:
                kept = torch.cat([kept, new], dim=3)
                assert all(map(torch.equal, cache.append(*new), kept))
            else:
                with pytest.raises(ValueError, match="need more blocks than the"):
                    cache.append(*new)
            texts[n] = (cache, kept)
        if step == "fork":
            texts.append((cache.fork(), kept))
        if step == "truncate":
            length = min(number, cache.length)
            cache.truncate(length)
            texts[n] = (cache, kept[:, :, :, :length])
        if step == "drop" and len(texts) > 1:
            texts.pop(n)
        del cache  # the last reference to what was dropped
        assert all(holds(cache, kept) for cache, kept in texts)
        tables = [cache.block_table for cache, _ in texts]
        assert [len(table) for table in tables] == [-(-kept.size(3) // 3) for _, kept in texts]
        assert {*pool.free_blocks()} == {*range(7)} - {block for table in tables for block in table}


def test_a_prompt_that_texts_share_is_stored_once_until_one_writes_behind_it():
    pool, prompt = make_pool(), random_tensor(2, 1, G, 8, D)  # two blocks, and two positions of a third
    first = PagedCache(pool)
    first.append(*prompt)
    second, third = first.fork(), first.fork()
    assert [cache.block_table for cache in (first, second, third)] == [[0, 1, 2]] * 3
    assert [pool.num_users(block) for block in range(4)] == [3, 3, 3, 0]
    new = random_tensor(2, 1, G, 1, D, seed=1)
    for cache in (second, third, first):
        assert all(map(torch.equal, cache.append(*new), torch.cat([prompt, new], dim=3)))
    # Nobody else uses the third block when the first text writes there.
    assert [cache.block_table for cache in (first, second, third)] == [[0, 1, 2], [0, 1, 3], [0, 1, 4]]
    second.truncate(6)
    del third
    assert pool.free_blocks() == [3, 4, 5, 6]
    second.append(*new)  # behind a full block nothing is copied
    assert second.block_table == [0, 1, 3]


def test_room_is_counted_in_blocks_and_a_copy_needs_one():
    pool = make_pool(num_blocks=3)
    cache, other = PagedCache(pool), PagedCache(pool)
    assert (cache.max_len, cache.num_bytes) == (9, 0)
    cache.append(*random_tensor(2, 1, G, 4, D))
    assert (cache.max_len, other.max_len) == (9, 3)
    assert cache.num_bytes == 2 * 8 * G * 6 * D
    fork = cache.fork()
    assert (cache.max_len, fork.max_len) == (6, 6)  # the one free block is for the copy
    other.append(*random_tensor(2, 1, G, 1, D))
    assert (cache.max_len, fork.max_len) == (4, 4)
    message = "1 new positions after 4 need more blocks than the 0 free ones, of 3 positions each: reset a cache"
    with pytest.raises(ValueError, match=message):
        fork.append(*random_tensor(2, 1, G, 1, D))
    other.reset()
    assert fork.append(*random_tensor(2, 1, G, 1, D))[0].size(2) == 5


@settings(max_examples=10)
@given(seeds, partitions())
def test_a_model_writes_in_blocks_what_it_writes_in_flat_memory(seed, sizes):
    model = random_parameters(LanguageModel(13, d_model=24, num_heads=4, num_kv_heads=2, num_layers=3, d_ff=8))
    model = model.double().eval()
    pools = [BlockPool(10, 2, num_kv_heads=2, head_dim=6, dtype=torch.float64) for _ in range(3)]
    ids = torch.randint(13, (2, MAX), generator=torch.Generator().manual_seed(seed))
    caches = [DecoderCache([PagedCache(pool) for pool in pools]) for _ in ids]
    texts = list(zip(ids[:, None], caches, strict=True))
    for row, cache in texts[:1]:  # the second text goes on from five tokens of the first
        model(row[:, :5], cache=cache)
        texts[1][0][:, :5] = row[:, :5]
        caches[1].layers = [layer.fork() for layer in cache.layers]
    found = [[], []]
    for start, size in zip(torch.tensor([0, *sizes[:-1]]).cumsum(0).tolist(), sizes, strict=True):
        for n, (row, cache) in enumerate(texts):  # in turn, so that their blocks lie mixed
            piece = row[:, max(start, 5) : start + size]
            if piece.size(1):
                found[n].append(model(piece, cache=cache))
    for n, (row, _) in enumerate(texts):
        assert_same(torch.cat(found[n], dim=1), model(row)[:, 5:])


@pytest.mark.bad_input
def test_a_layer_that_fails_gives_the_blocks_of_its_new_tokens_back():
    pool = BlockPool(9, 2, num_kv_heads=2, head_dim=3, dtype=torch.float64)
    layer = MultiHeadAttention(6, 2).double()
    cache, x = PagedCache(pool), random_tensor(1, 5, 6)
    layer(x[:, :3], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match="mask"):
        layer(x[:, 3:], mask=torch.ones(7, 7, dtype=torch.bool), cache=cache)
    assert (cache.length, cache.block_table, len(pool.free_blocks())) == (3, [0, 1], 7)
    out, _ = layer(x[:, 3:], is_causal=True, cache=cache)
    assert_same(out, layer(x, is_causal=True)[0][:, 3:])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c, x: c.append(x, x[..., :4]), ValueError, r"v of shape \(1, 2, 3, 4\) .* here \(1, 2, T, 5\)"),
        (lambda c, x: c.append(x, x[:, :, :2]), ValueError, r"as many new keys \(3\) as values \(2\)"),
        (lambda c, x: c.append(x.float(), x), TypeError, r"k \(torch.float32\) .* of the cache \(torch.float64\)"),
        (lambda c, x: c.truncate(5), ValueError, r"length \(5\) must be from 0 to the length of the cache \(4\)"),
        (lambda c, x: c.reorder(torch.tensor([1])), ValueError, "from 0 to 0, but go from 1 to 1"),
        (lambda c, x: BlockPool(2, 0, 1, 1), ValueError, r"block_size \(0\) must be at least 1"),
    ],
)
def test_a_text_in_blocks_refuses_what_a_flat_one_refuses(call, error, message):
    kept = random_tensor(2, 1, G, 4, D)
    cache = PagedCache(make_pool())
    cache.append(*kept)
    with pytest.raises(error, match=message):
        call(cache, random_tensor(1, G, 3, D, seed=1))
    cache.reorder(torch.tensor([0]))
    assert holds(cache, kept)


# -- Many sequences in one call ----------------------------------------------------------------------


def make_paged(lengths, pool, seed=0):
    """A batch whose rows hold random keys and values, and for each row a flat cache of the same."""
    rows, flat = [], []
    for n, length in enumerate(lengths):
        new = random_tensor(2, 1, G, length, D, seed=100 * seed + n)
        rows.append(PagedCache(pool))
        flat.append(make_cache(batch_size=1, max_len=40))
        rows[-1].append(*new)
        flat[-1].append(*new)
    return PagedBatch(rows), flat


@settings(max_examples=25)
@given(seeds, st.lists(st.integers(0, 7), min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_a_batch_in_blocks_holds_at_its_end_what_flat_caches_hold(seed, lengths, sizes):
    batch, flat = make_paged(lengths, make_pool(num_blocks=40), seed % 7)
    for n, size in enumerate(sizes):
        k, v = random_tensor(2, len(lengths), G, size, D, seed=n)
        found = batch.append(k, v)
        visible = batch.visible_mask(size)
        for b, cache in enumerate(flat):
            expected = cache.append(k[b : b + 1], v[b : b + 1])
            for x, y in zip(found, expected, strict=True):
                assert torch.equal(x[b : b + 1, :, x.size(2) - cache.length :], y)
            if visible is not None:
                assert visible[b].sum() == cache.length
        assert visible is not None or len({cache.length for cache in flat}) == 1
    assert batch.context_lens.tolist() == [cache.length for cache in flat]


@settings(max_examples=10)
@given(seeds, st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_a_model_decodes_a_batch_in_blocks_as_each_sequence_alone(seed, sizes):
    model = random_parameters(LanguageModel(13, d_model=24, num_heads=4, num_kv_heads=2, num_layers=2, d_ff=8))
    model = model.double().eval()
    pools = [BlockPool(30, 3, num_kv_heads=2, head_dim=6, dtype=torch.float64) for _ in range(2)]
    rng = torch.Generator().manual_seed(seed)
    start = torch.randint(13, (1, 5), generator=rng)  # all rows share it, and it ends within a block
    first = [PagedCache(pool) for pool in pools]
    model(start, cache=DecoderCache(first))
    ids, rows = [], []
    for length in (1, 4, 2):
        rows.append([layer.fork() for layer in first])
        rest = torch.randint(13, (1, length), generator=rng)
        model(rest, cache=DecoderCache(rows[-1]))
        ids.append(torch.cat([start, rest], dim=1))
    cache = DecoderCache([PagedBatch(layers) for layers in zip(*rows, strict=True)])
    for size in sizes:
        new = torch.randint(13, (3, size), generator=rng)
        mask = make_padding_mask(cache.layers[0].context_lens + size, side="left")
        found = model(new, mask=mask, cache=cache)
        ids = [torch.cat([row, new[b : b + 1]], dim=1) for b, row in enumerate(ids)]
        for b, row in enumerate(ids):
            assert_same(found[b], model(row)[0, -size:])
    cache.reset()
    assert [row.length for batch in cache.layers for row in batch.rows] == [0] * 6


def test_the_slots_of_a_batch_are_those_that_its_block_tables_say():
    pool = make_pool(num_blocks=9)
    batch, _ = make_paged([5, 1, 4], pool)
    k, v = random_tensor(2, 3, G, 2, D, seed=9)
    batch.append(k, v)
    tables, lengths = batch.block_tables, batch.context_lens
    assert (tables.shape, lengths.tolist()) == ((3, 3), [7, 3, 6])
    expected = [[int(tables[b, t // 3]) * 3 + t % 3 for t in (n - 2, n - 1)] for b, n in enumerate([7, 3, 6])]
    assert batch.slot_mapping(2).tolist() == expected
    for buffer, x in zip(pool.buffers, (k, v), strict=True):
        assert torch.equal(buffer[0][:, torch.tensor(expected)], x.transpose(0, 1))
    assert batch.num_bytes == 2 * 8 * G * D * 3 * 6  # six blocks


def test_rows_of_a_batch_that_share_a_block_copy_it_before_they_write():
    pool, prompt = make_pool(), random_tensor(2, 1, G, 4, D)
    first = PagedCache(pool)
    first.append(*prompt)
    batch = PagedBatch([first, first.fork()])
    assert batch.num_bytes == 2 * 8 * G * D * 3 * 2  # two blocks
    new = random_tensor(2, 2, G, 1, D, seed=1)
    k, _ = batch.append(*new)
    assert torch.equal(k, torch.cat([prompt[0].expand(2, -1, -1, -1), new[0]], dim=2))
    assert sorted(batch.block_tables[:, 1].tolist()) == [1, 2]


def test_a_batch_is_reordered_and_truncated_row_by_row():
    batch, flat = make_paged([4, 2, 7], make_pool(num_blocks=12))
    batch.reorder(torch.tensor([2, 0, 2]))
    assert batch.context_lens.tolist() == [7, 4, 7]
    batch.truncate(5)
    assert batch.context_lens.tolist() == [5, 2, 5]
    k, _ = batch.append(*random_tensor(2, 3, G, 1, D, seed=3))
    old = flat[2].append(*torch.empty(2, 1, G, 0, D, dtype=torch.float64))[0]
    assert torch.equal(k[2, :, :5], old[0, :, :5])
    batch.truncate(3)
    with pytest.raises(ValueError, match=r"removing 1 positions .* at least as many, not \[3, 0, 3\]"):
        batch.truncate(2)
    batch.reset()
    assert (batch.length, batch.num_bytes) == (0, 0)


def test_a_reordered_batch_forks_only_repeats_and_frees_rows_that_are_not_wanted():
    pool = make_pool(num_blocks=4)
    rows = make_paged([4, 2, 3], pool)[0].rows  # two blocks, one and one
    batch = PagedBatch(rows)
    batch.reorder(torch.tensor([1, 0, 2]))
    assert batch.rows == [rows[1], rows[0], rows[2]]
    batch.reorder(torch.tensor([1, 0, 1]))  # the last row of these goes
    assert batch.rows[:2] == rows[:2]
    assert batch.rows[2] not in rows
    assert (batch.context_lens.tolist(), rows[2].length, len(pool.free_blocks())) == ([4, 2, 4], 0, 1)
    batch.reset()
    assert len(pool.free_blocks()) == 4


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda batch, x: batch.append(x[:1], x[:1]), ValueError, r"k of shape \(1, 2, 2, 5\) must have 2 rows"),
        (lambda batch, x: batch.append(x, x[:, :, :1]), ValueError, r"v of shape .* 2 rows with 2 new positions"),
        (lambda batch, x: batch.append(x.float(), x), TypeError, r"k \(torch.float32\)"),
        (lambda batch, x: batch.append(*x.repeat(2, 1, 1, 4, 1)), ValueError, "need more blocks than the 0 f"),
        (lambda batch, x: batch.reorder(torch.tensor([0])), ValueError, "one number for each of the 2 rows"),
        (lambda batch, x: PagedBatch([]), ValueError, r"rows \(0\) must be at least one"),
        (lambda batch, x: PagedBatch(batch.rows * 2), ValueError, r"rows \(4\) must be .* all different"),
        (lambda batch, x: PagedBatch([*batch.rows, PagedCache(make_pool())]), ValueError, "of the same pool"),
    ],
)
def test_a_batch_in_blocks_refuses_and_stays_unchanged(call, error, message):
    batch, flat = make_paged([4, 6], make_pool(num_blocks=6))
    with pytest.raises(error, match=message):
        call(batch, random_tensor(2, G, 2, D))
    assert batch.context_lens.tolist() == [4, 6]
    for row, cache in zip(batch.rows, flat, strict=True):
        nothing = torch.empty(1, G, 0, D, dtype=torch.float64)
        assert holds(row, torch.stack(cache.append(nothing, nothing)))


# -- In one layer of attention -----------------------------------------------------------------------

E, H = 12, 6


@settings(max_examples=25)
@given(
    seeds,
    partitions(),
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from([None, "zero", "learned"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_attention_in_pieces_is_attention_at_once(seed, sizes, num_kv_heads, sink, turned, biased, need_weights):
    layer = MultiHeadAttention(E, H, num_kv_heads=num_kv_heads, sink=sink).double()
    random_parameters(layer, seed)
    x = random_tensor(B, MAX, E, seed=seed)
    bias = make_alibi_bias(H, MAX, dtype=torch.float64) if biased else None
    places = torch.arange(MAX) if turned else None
    expected, expected_weights = slow_attention(layer, x, bias, places)
    cache, start = layer.make_cache(B, MAX), 0
    for new in x.split(sizes, dim=1):
        end = start + new.size(1)
        out, weights = layer(
            new,
            is_causal=True,
            cache=cache,
            bias=None if bias is None else bias[None, :, start:end, :end],
            positions=None if places is None else places[start:end],
            need_weights=need_weights,
        )
        assert_same(out, expected[:, start:end])
        if need_weights:
            assert_same(weights, expected_weights[:, :, start:end, :end])
            assert (expected_weights[:, :, start:end, end:] == 0).all()
        start = end


def slow_attention(layer, x, bias, places):
    """All positions at once, head by head, by the definition."""
    head_dim = E // H
    outs, all_weights = [], []
    for h in range(H):
        g = h // (H // layer.num_kv_heads)
        q, k, v = (
            (x @ p.weight.T + p.bias)[..., i * head_dim : (i + 1) * head_dim]
            for p, i in ((layer.q_proj, h), (layer.k_proj, g), (layer.v_proj, g))
        )
        if places is not None:
            q, k = (rotate(y, places) for y in (q, k))
        scores = q @ k.mT / head_dim**0.5
        scores = scores if bias is None else scores + bias[h]
        scores = scores.masked_fill(~make_causal_mask(MAX), -torch.inf)
        if layer.sink is None:
            weights = scores.softmax(-1)
        else:
            weights = quiet_softmax(scores, sink=0.0 if layer.sink == "zero" else layer.sink_scores[h])
        outs.append(weights @ v)
        all_weights.append(weights)
    return layer.out_proj(torch.cat(outs, dim=-1)), torch.stack(all_weights, dim=1)


@settings(max_examples=20)
@given(seeds, partitions())
def test_attention_in_pieces_is_that_of_pytorch(seed, sizes):
    layer = random_parameters(MultiHeadAttention(E, H).double(), seed)
    x = random_tensor(B, MAX, E, seed=seed)
    expected, _ = layer.to_torch()(x, x, x, attn_mask=~make_causal_mask(MAX))
    cache = layer.make_cache(B, MAX)
    found = [layer(new, is_causal=True, cache=cache)[0] for new in x.split(sizes, dim=1)]
    assert_same(torch.cat(found, dim=1), expected)


def test_a_window_counts_the_keys_in_the_cache_too():
    layer = random_parameters(MultiHeadAttention(E, H).double())
    x, window = random_tensor(B, MAX, E), make_sliding_window_mask(MAX, 3)
    expected, _ = layer(x, mask=window)
    cache = layer.make_cache(B, MAX)
    first, _ = layer(x[:, :7], mask=window[:7, :7], cache=cache)
    rest, _ = layer(x[:, 7:], mask=window[7:], cache=cache)
    assert_same(torch.cat([first, rest], dim=1), expected)


def test_the_rotation_of_positions_made_once_turns_as_the_positions_do():
    layer = random_parameters(MultiHeadAttention(E, 2, num_kv_heads=1).double())
    x = random_tensor(B, MAX, E)
    for places in (torch.arange(3, MAX + 3), torch.arange(B)[:, None] + torch.arange(MAX)):
        ready = make_rotation(places if places.dim() == 1 else places[:, None], 6, dtype=torch.float64)
        assert_same(layer(x, positions=ready)[0], layer(x, positions=places)[0])


@pytest.mark.bad_input
def test_a_rotation_that_does_not_fit_is_refused():
    x = random_tensor(B, H, 4, 6)
    for places, width in ((torch.arange(3), 6), (torch.arange(4), 4), (torch.zeros(H, 4).long(), 6)):
        with pytest.raises(ValueError, match=r"a rotation of \(.*\) positions and . pairs of columns does not fit x"):
            rotate(x, make_rotation(places, width))
    with pytest.raises(TypeError, match=r"positions must be integers, not torch.float32"):
        make_rotation(torch.zeros(3), 6)
    with pytest.raises(ValueError, match=r"head_dim \(5\) must be even"):
        make_rotation(torch.arange(3), 5)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"mask": torch.ones(2, 2, dtype=torch.bool)}, ValueError),  # forgets the keys in the cache
        ({"mask": torch.ones(2, 6)}, TypeError),
        ({"bias": torch.zeros(1, H, 2, 3)}, ValueError),
        ({"bias": torch.zeros(H, 2, 6)}, ValueError),
        ({"bias": torch.zeros(2, 6, dtype=torch.bool)}, TypeError),
        ({"mask": torch.ones(2, 2, dtype=torch.bool), "need_weights": True}, ValueError),
        ({"positions": torch.arange(3)}, ValueError),
        ({"positions": torch.zeros(2)}, TypeError),
    ],
)
@pytest.mark.bad_input
def test_a_layer_that_refuses_its_input_leaves_the_cache_unchanged(wrong, error):
    layer = random_parameters(MultiHeadAttention(E, H).double())
    x, cache, other = random_tensor(B, 6, E), layer.make_cache(B, MAX), layer.make_cache(B, MAX)
    layer(x[:, :4], is_causal=True, cache=cache)
    with pytest.raises(error):
        layer(random_tensor(B, 2, E, seed=1), is_causal=True, cache=cache, **wrong)
    assert cache.length == 4
    layer(x[:, :4], is_causal=True, cache=other)
    for a, b in zip(*(layer(x[:, 4:], is_causal=True, cache=c) for c in (cache, other)), strict=True):
        assert a is b is None or torch.equal(a, b)


# -- In the layers of a Transformer ------------------------------------------------------------------

T, S, VOCAB = 7, 5, 17


def make_model(seed=0, dtype=torch.float64, **options):
    options = {"max_len": MAX, **options}
    model = Transformer(13, VOCAB, d_model=E, num_heads=H, num_layers=(1, 3), d_ff=14, **options)
    return random_parameters(model.to(dtype), seed).eval()


def make_batch(seed=0, lengths=(5, 2, 3)):
    rng = torch.Generator().manual_seed(seed)
    src = torch.randint(13, (len(lengths), S), generator=rng)
    tgt = torch.randint(VOCAB, (len(lengths), T), generator=rng)
    return src, tgt, make_padding_mask(lengths, S)


@settings(max_examples=20)
@given(
    seeds, partitions(T), st.booleans(), st.booleans(), st.sampled_from([(torch.float64, 1e-10), (torch.float32, 1e-3)])
)
def test_decoding_in_pieces_is_decoding_at_once(seed, sizes, norm_first, padded, precision):
    dtype, tolerance = precision
    torch.manual_seed(seed)
    options = {"norm_first": norm_first, "max_len": MAX}
    model = Transformer(13, VOCAB, d_model=E, num_heads=H, d_ff=14, **options).to(dtype).eval()
    src, tgt, src_mask = make_batch(seed)
    src_mask = src_mask if padded else None
    memory, _ = model.encode(src, src_mask=src_mask)
    expected, (to_target, to_source) = model.decode(tgt, memory, src_mask=src_mask, need_weights=True)
    cache, start = model.make_cache(memory, src_mask=src_mask), 0
    for new in tgt.split(sizes, dim=1):
        end = start + new.size(1)
        logits, weights = model.decode(new, cache=cache, need_weights=True)
        assert_close(logits, expected[:, start:end], rtol=0, atol=tolerance)
        for layer in range(2):
            assert_close(weights[0][layer], to_target[layer][:, :, start:end, :end], rtol=0, atol=tolerance)
            assert_close(weights[1][layer], to_source[layer][:, :, start:end], rtol=0, atol=tolerance)
        start = end
        assert cache.length == end


def count_rows_read(module):
    """How many positions go through ``module`` in each call from now on."""
    calls = []
    module.register_forward_hook(lambda module, given, out: calls.append(tuple(given[0].shape[:2])))
    return calls


def test_the_keys_of_the_memory_are_computed_once_and_those_of_a_token_too():
    model, (src, tgt, src_mask) = make_model(), make_batch()
    memory, _ = model.encode(src, src_mask=src_mask)
    of_memory = [count_rows_read(layer.cross_attention.k_proj) for layer in model.decoder_layers]
    of_memory += [count_rows_read(layer.cross_attention.v_proj) for layer in model.decoder_layers]
    of_target = [count_rows_read(layer.self_attention.k_proj) for layer in model.decoder_layers]
    of_target += [count_rows_read(layer.feed_forward) for layer in model.decoder_layers]
    cache = model.make_cache(memory, src_mask=src_mask)
    assert of_memory == [[(3, S)]] * 6
    for new in tgt.split([3, 1, 1, 2], dim=1):
        model.decode(new, cache=cache)
    assert of_memory == [[(3, S)]] * 6
    assert of_target == [[(3, 3), (3, 1), (3, 1), (3, 2)]] * 6


def test_a_translator_never_sees_what_was_written_before_a_reset():
    model, (src, tgt, src_mask) = make_model(), make_batch()
    memory, _ = model.encode(src, src_mask=src_mask)
    cache = model.make_cache(memory, src_mask=src_mask)
    model.decode((tgt + 1) % VOCAB, cache=cache)
    cache.reset()
    assert cache.length == 0
    assert_same(model.decode(tgt, cache=cache)[0], model.decode(tgt, memory, src_mask=src_mask)[0])
    cache.truncate(4)
    assert_same(model.decode(tgt[:, 4:], cache=cache)[0], model.decode(tgt, memory, src_mask=src_mask)[0][:, 4:])


@settings(max_examples=20)
@given(seeds, st.lists(st.integers(0, 2), min_size=3, max_size=3), st.booleans())
def test_beams_go_on_with_the_target_and_the_source_of_their_row(seed, rows, padded):
    model, (src, tgt, src_mask) = make_model(seed), make_batch(seed)
    src_mask = src_mask if padded else None
    memory, _ = model.encode(src, src_mask=src_mask)
    cache = model.make_cache(memory, src_mask=src_mask)
    model.decode(tgt[:, :4], cache=cache)
    rows = torch.tensor(rows)
    cache.reorder(rows)
    found, _ = model.decode(tgt[:, 4:], cache=cache)
    written = torch.cat([tgt[rows, :4], tgt[:, 4:]], dim=1)
    expected, _ = model.decode(written, memory[rows], src_mask=src_mask if src_mask is None else src_mask[rows])
    assert_same(found, expected[:, 4:])


def test_a_shared_source_mask_stays_shared():
    model, (src, tgt, _) = make_model(), make_batch()
    src_mask = make_padding_mask([4], S)
    memory, _ = model.encode(src, src_mask=src_mask)
    cache = model.make_cache(memory, src_mask=src_mask)
    cache.reorder(torch.tensor([2, 2, 0]))
    assert cache.src_mask.shape == (1, 1, S)
    assert_same(model.decode(tgt, cache=cache)[0], model.decode(tgt, memory[[2, 2, 0]], src_mask=src_mask)[0])


def test_its_bytes_are_those_of_all_layers_and_of_the_memory():
    model, (src, _, _) = make_model(), make_batch()
    cache = model.make_cache(model.encode(src)[0], max_len=9)
    assert cache.max_len == 9
    assert len(cache.layers) == 3
    assert cache.num_bytes == 3 * (2 * 3 * 9 * E + 2 * 3 * S * E) * 8


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def interrupt(*given):
    raise Interrupted


def failing_calls():
    """Calls that fail before, in the middle of, or after the layers."""
    long = torch.zeros(3, MAX, dtype=torch.long)
    return {
        "no room": lambda model, cache: model.decode(long[:, :6], cache=cache),
        "longer than the model reads": lambda model, cache: model.decode(long, cache=cache),
        "an id outside the vocabulary": lambda model, cache: model.decode(long[:, :1] + VOCAB, cache=cache),
        "a mask without the tokens in the cache": lambda model, cache: model.decode(
            long[:, :2], cache=cache, tgt_mask=torch.ones(2, 2, dtype=torch.bool)
        ),
        "a mask of numbers": lambda model, cache: model.decode(long[:, :2], cache=cache, tgt_mask=torch.ones(2, 6)),
        "another number of targets": lambda model, cache: model.decode(long[:2, :1], cache=cache),
        "rows that are none": lambda model, cache: cache.reorder(torch.tensor([0, 1, 7])),
        "interrupted after the self-attention": interrupted("decoder_layers.1.cross_attention"),
        "interrupted after both": interrupted("decoder_layers.1.feed_forward"),
        "interrupted after all layers": interrupted("to_logits"),
    }


def interrupted(part):
    def call(model, cache):
        handle = model.get_submodule(part).register_forward_pre_hook(interrupt)
        try:
            model.decode(torch.zeros(3, 1, dtype=torch.long), cache=cache)
        finally:
            handle.remove()

    return call


@pytest.mark.bad_input
@pytest.mark.parametrize("name", failing_calls())
def test_a_call_that_fails_leaves_the_cache_as_it_was_in_every_layer(name):
    model, (src, tgt, src_mask) = make_model(), make_batch()
    memory, _ = model.encode(src, src_mask=src_mask)
    cache = model.make_cache(memory, src_mask=src_mask, max_len=9)
    model.decode(tgt[:, :4], cache=cache)
    with pytest.raises((ValueError, TypeError, IndexError, Interrupted)):
        failing_calls()[name](model, cache)
    assert [layer.length for layer in cache.layers] == [4, 4, 4]
    found, _ = model.decode(tgt[:, 4:], cache=cache)
    assert_same(found, model.decode(tgt, memory, src_mask=src_mask)[0][:, 4:])


@pytest.mark.bad_input
def test_the_errors_of_a_decoder_with_a_cache_say_what_to_do():
    model, (src, tgt, src_mask) = make_model(), make_batch()
    memory, _ = model.encode(src)
    cache = model.make_cache(memory, max_len=4)
    with pytest.raises(ValueError, match=r"5 new tokens after 0 make 5, more than the cache's max_len \(4\)"):
        model.decode(tgt[:, :5], cache=cache)
    with pytest.raises(ValueError, match="pass decode a cache or a memory with its src_mask, but not both"):
        model.decode(tgt[:, :1], memory, cache=cache)
    with pytest.raises(ValueError, match="but not both"):
        model.decode(tgt[:, :1], src_mask=src_mask, cache=cache)
    with pytest.raises(ValueError, match="needs a memory, or a cache"):
        model.decode(tgt)
    with pytest.raises(ValueError, match=r"this cache has no memory; use Transformer.make_cache"):
        model.decode(tgt[:, :1], cache=DecoderCache(cache.layers))
    with pytest.raises(ValueError, match=r"max_len \(12\) must be from 1 to the model's max_len \(11\)"):
        model.make_cache(memory, max_len=12)
    with pytest.raises(ValueError, match=r"src_mask of shape \(3, 5\) must be \(B, 1, S\)"):
        model.make_cache(memory, src_mask=src_mask[:, 0])
    model.decode(tgt[:, :4], cache=cache)
    with pytest.raises(ValueError, match=r"1 new tokens after 4 make 5, more than the cache's max_len \(4\)"):
        model.decode(tgt[:, :1], cache=cache)


# -- Caches of every kind, in one stack --------------------------------------------------------------


def flat():
    return make_cache(batch_size=1, head_dim=6)


def paged():
    return PagedCache(BlockPool(6, 2, num_kv_heads=G, head_dim=6, dtype=torch.float64))


# How the cache of each layer is made; the window and the sinks of each layer; how many positions there is room for.
STACKS = {
    "flat": ([flat, flat], [(MAX, 0), (MAX, 0)], MAX),
    "paged": ([paged, paged], [(MAX, 0), (MAX, 0)], 12),
    "rolling": ([lambda: RollingCache(4), lambda: RollingCache(3, num_sink_tokens=2)], [(4, 0), (3, 2)], None),
    "rolling, as long as the text": ([lambda: RollingCache(MAX)] * 2, [(MAX, 0), (MAX, 0)], None),
    "of three kinds": ([paged, lambda: RollingCache(1, num_sink_tokens=1), flat], [(MAX, 0), (1, 1), (MAX, 0)], MAX),
}


def read_at_once(model, ids, padding, windows):
    """The logits without a cache, each layer under a mask that shows its window."""
    x = model.embed(ids)
    places = (padding[:, 0].cumsum(-1) - 1).clamp(min=0)
    if model.positions == "alibi":
        where = {"bias": make_alibi_bias(4, MAX, dtype=torch.float64)[None]}
    else:
        where = {"positions": places}
    for layer, (window, num_sinks) in zip(model.layers, windows, strict=True):
        mask = padding & make_sliding_window_mask(MAX, window, num_sink_tokens=num_sinks)
        x, _ = layer(x, mask=mask, **where)
    return model.to_logits(model.norm(x))


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
@pytest.mark.parametrize("kind", STACKS)
def test_a_model_reads_in_pieces_what_it_reads_at_once_with_caches_of_every_kind(kind, positions):
    make, windows, max_len = STACKS[kind]
    sizes = {"d_model": 24, "num_heads": 4, "num_kv_heads": G, "num_layers": len(make), "d_ff": 8}
    model = random_parameters(LanguageModel(13, positions=positions, **sizes).double().eval())
    ids = torch.randint(13, (1, MAX), generator=torch.Generator().manual_seed(0))
    padding = make_padding_mask([MAX - 2], MAX, side="left")
    expected = read_at_once(model, ids, padding, windows)[:, 2:]
    cache = DecoderCache([make_one() for make_one in make])
    assert cache.max_len == max_len
    for pieces in ([3, 5, 1, 2], [MAX]):
        found = []
        for piece in ids.split(pieces, dim=1):
            found.append(model(piece, mask=padding[..., : cache.length + piece.size(1)], cache=cache))
        assert_same(torch.cat(found, dim=1)[:, 2:], expected)
        assert [layer.length for layer in cache.layers] == [MAX] * len(make)
        cache.reset()


REFUSED_STEPS = {
    "truncate": ([flat, lambda: RollingCache(4), paged], lambda cache: cache.truncate(5), "cannot go back from 8"),
    "reorder": (
        [lambda: make_cache(batch_size=2, head_dim=6), paged],
        lambda cache: cache.reorder(torch.tensor([1, 0])),
        "one number for each of the 1 rows",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", REFUSED_STEPS)
def test_a_step_that_one_layer_refuses_changes_no_layer(name):
    make, step, message = REFUSED_STEPS[name]
    cache = DecoderCache([make_one() for make_one in make])
    texts = [random_tensor(2, layer.batch_size or 1, G, 9, 6, seed=i) for i, layer in enumerate(cache.layers)]
    for layer, text in zip(cache.layers, texts, strict=True):
        layer.append(*text[..., :8, :])
    with pytest.raises(ValueError, match=message):
        step(cache)
    for layer, (k, v) in zip(cache.layers, texts, strict=True):
        found_k, found_v = layer.append(k[:, :, 8:], v[:, :, 8:])
        assert layer.length == 9
        assert torch.equal(found_k, k[:, :, -found_k.size(2) :])
        assert torch.equal(found_v, v[:, :, -found_v.size(2) :])


@pytest.mark.bad_input
@pytest.mark.cpu_only("torch.compile knows no device that is written in Python")
@pytest.mark.filterwarnings("ignore")  # PyTorch's own
def test_a_model_with_a_cache_compiles_in_one_piece():
    model = random_parameters(LanguageModel(13, d_model=12, num_heads=G, d_ff=8, num_layers=2).double().eval())
    ids = torch.tensor([[3, 7, 5]])
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    cache = DecoderCache([flat(), RollingCache(4)])
    found = [compiled(piece, cache=cache) for piece in ids.split([2, 1], dim=1)]
    assert_same(torch.cat(found, dim=1), model(ids))


def test_latent_layers_share_a_decoder_cache():
    layers = [random_parameters(LatentAttention(E, 2, d_latent=6, d_rope=2).double(), seed) for seed in (0, 1)]
    cache, x = DecoderCache([layer.make_cache(B, MAX) for layer in layers]), random_tensor(B, MAX, E)

    def run(x, caches):
        for layer, kept in zip(layers, caches, strict=True):
            x = x + layer(x, is_causal=True, cache=kept)[0]
        return x

    found = [run(piece, cache.layers) for piece in x.split([4, 1, 6], dim=1)]
    assert_same(torch.cat(found, dim=1), run(x, [None, None]))
    assert (cache.length, cache.max_len) == (MAX, MAX)
    with pytest.raises(ValueError, match=r"1 new tokens after 11 make 12, more than the cache's max_len \(11\)"):
        cache.check_room(1)


# -- Gradients ---------------------------------------------------------------------------------------


@pytest.mark.cpu_only("inference mode knows no device that is written in Python")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_cache_works_wherever_gradients_are_off(mode):
    model, (src, tgt, src_mask) = make_model(), make_batch()
    with mode():
        memory, _ = model.encode(src, src_mask=src_mask)
        cache = model.make_cache(memory, src_mask=src_mask)
        found = [model.decode(new, cache=cache)[0] for new in tgt.split(1, dim=1)]
        cache.reorder(torch.tensor([1, 0, 2]))
        cache.reset()
        assert_same(torch.cat(found, dim=1), model.decode(tgt, memory, src_mask=src_mask)[0])


def test_a_cache_refuses_tensors_that_require_a_gradient():
    layer = MultiHeadAttention(E, H).double()
    cache, x = layer.make_cache(B, MAX), random_tensor(B, 2, E)
    message = r"k must not require a gradient, because no gradient .* torch.no_grad\(\) or torch.inference_mode\(\)"
    for kind in (cache, RollingCache(4)):
        with torch.enable_grad(), pytest.raises(RuntimeError, match=message):
            layer(x, cache=kind)
        assert kind.length == 0
    parameter = nn.Parameter(random_tensor(B, G, 1, D))
    make_cache().append(parameter, parameter)  # with gradients off, nothing is asked of it
    with torch.enable_grad():
        layer.requires_grad_(False)
        assert not layer(x, cache=cache)[0].requires_grad


# -- Autocast ----------------------------------------------------------------------------------------


@pytest.mark.cpu_only("its autocast")
@pytest.mark.parametrize("weights", [torch.float32, torch.float64])
def test_a_cache_made_under_autocast_takes_what_the_layers_compute_there(weights):
    torch.manual_seed(0)
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 12}
    model = LanguageModel(13, **sizes).to(weights).eval()
    latent = LatentAttention(8, 2, d_latent=6, d_rope=2).to(weights)
    translator = Transformer(13, 11, **sizes).to(weights).eval()
    ids, x = torch.randint(3, 11, (2, 5)), torch.randn(2, 5, 8, dtype=weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        computed = model.layers[0].self_attention.k_proj(x).dtype
        assert computed == (torch.float64 if weights == torch.float64 else torch.bfloat16)
        cache, latent_cache = model.make_cache(2), latent.make_cache(2, 5)
        memory, _ = translator.encode(ids)
        written = translator.make_cache(memory)
        for piece, part in zip(ids.split(2, 1), x.split(2, 1), strict=True):
            model(piece, cache=cache)
            latent(part, is_causal=True, cache=latent_cache)
            translator.decode(piece, cache=written)
    assert cache.length == latent_cache.length == written.length == 5
    assert {c._buffers[0].dtype for c in (cache.layers[0], latent_cache, written.layers[0])} == {computed}
    assert model.make_cache(2).layers[0]._buffers[0].dtype == weights  # outside, as before
