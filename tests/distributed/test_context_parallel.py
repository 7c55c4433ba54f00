"""Attention over texts that are spread over processes is attention over the whole text, forward and backward."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attn_course.distributed import demos as tasks
from attn_course.distributed.context_parallel import contiguous_positions, ring_attention, zigzag_positions

# Float64, and sums of at most 32 terms of size 1, three layers of them: a thousand roundings.
CLOSE = {"rtol": 0.0, "atol": 1e-12}


def random(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs_of(num_heads, num_kv_heads, length, head_dim=5):
    sizes = [(num_heads, 1), (num_kv_heads, 2), (num_kv_heads, 3), (num_heads, 4)]
    return [random(2, heads, length, head_dim, seed=seed) for heads, seed in sizes]


def by_pytorch(q, k, v, upstream):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    return dict(zip(("out", "q", "k", "v"), (out.detach(), *torch.autograd.grad(out, leaves, upstream)), strict=True))


def assert_is_attention(processes, form, num_heads, num_kv_heads, positions):
    inputs = inputs_of(num_heads, num_kv_heads, positions.numel())
    shards = processes.run(tasks.attend_to_shards, form, *inputs, positions, num_processes=len(positions))
    for name, whole in by_pytorch(*inputs).items():
        for own, shard in zip(positions, shards, strict=True):
            torch.testing.assert_close(shard[name], whole[:, :, own], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("spread", [contiguous_positions, zigzag_positions])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (6, 2), (5, 1)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_ring_gives_outputs_and_gradients_of_the_whole_text(processes, spread, num_heads, num_kv_heads, ranks):
    assert_is_attention(processes, "ring", num_heads, num_kv_heads, spread(24, ranks))


def test_a_ring_takes_any_spread_of_the_text(processes):
    mixed = torch.randperm(28, generator=torch.Generator().manual_seed(0)).view(4, 7)
    assert_is_attention(processes, "ring", 3, 1, mixed)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (8, 2), (4, 1), (12, 4)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_exchanging_positions_for_heads_gives_the_same(processes, num_heads, num_kv_heads, ranks):
    assert_is_attention(processes, "ulysses", num_heads, num_kv_heads, contiguous_positions(20, ranks))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_for_what_a_ring_stores_and_not_for_its_sums(processes, dtype):
    positions, eps = zigzag_positions(128, 2), torch.finfo(dtype).eps
    q, k, v, upstream = (x.to(dtype) for x in inputs_of(4, 2, 128, head_dim=32))
    inputs = 4 * q, k, v, upstream
    shards = processes.run(tasks.attend_to_shards, "ring", *inputs, positions, num_processes=2)
    for name, whole in by_pytorch(*(x.double() for x in inputs)).items():
        for own, shard in zip(positions, shards, strict=True):
            exact = whole[:, :, own]
            assert shard[name].dtype == dtype
            assert (shard[name].double() - exact).norm() < eps * exact.norm(), name
    expected = F.scaled_dot_product_attention(4 * q.double(), k.double(), v.double(), enable_gqa=True)
    for out in processes.run(tasks.decode_with_cut_cache, 4 * q, k, v, num_processes=4):
        assert out.dtype == dtype
        assert (out.double() - expected).norm() < eps / 2 * expected.norm()


def attend_without_positions(q, k, v):
    """What each process does: keep a part of the text, and let its queries see all keys of all ranks."""
    rank, count = dist.get_rank(), dist.get_world_size()
    return ring_attention(*(x.chunk(count, dim=2)[rank] for x in (q, k, v)))


def test_without_positions_every_query_sees_every_key(processes):
    q, k, v, _ = inputs_of(4, 2, 12)
    shards = processes.run(attend_without_positions, q, k, v, num_processes=3)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(torch.cat(shards, dim=2), expected, **CLOSE)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (6, 2), (5, 1)])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("num_queries", [1, 3])
def test_decoding_over_a_cut_cache_equals_attention_over_the_whole_cache(
    processes, num_heads, num_kv_heads, ranks, num_queries
):
    q, k, v, _ = inputs_of(num_heads, num_kv_heads, 13)  # ranks hold different numbers of keys
    q = q[:, :, :num_queries]
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    for out in processes.run(tasks.decode_with_cut_cache, q, k, v, num_processes=ranks):
        torch.testing.assert_close(out, expected, **CLOSE)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("form", "heads", "positions", "message"),
    [
        ("ring", (2, 2), zigzag_positions(12, 3), r"positions of shape \(3, 4\) must have a row for each of the 2"),
        ("ulysses", (3, 3), contiguous_positions(12, 2), r"processes \(2\) must divide num_heads \(3\)"),
        ("ulysses", (6, 3), contiguous_positions(12, 2), r"num_kv_heads \(3\) or be a multiple of it"),
    ],
)
def test_context_parallel_attention_refuses_invalid_shards_with_the_rule(processes, form, heads, positions, message):
    inputs = inputs_of(*heads, 12)
    with pytest.raises(RuntimeError, match=message):
        processes.run(tasks.attend_to_shards, form, *inputs, positions, num_processes=2)


# -- Who holds what ----------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 7))
def test_zigzag_gives_all_ranks_as_much_to_compute_and_every_position_to_one(ranks, size):
    positions = zigzag_positions(2 * ranks * size, ranks)
    assert sorted(positions.flatten().tolist()) == list(range(2 * ranks * size))
    assert len(set((positions + 1).sum(dim=1).tolist())) == 1  # the query at t sees t + 1 keys
    assert (positions.diff(dim=1) > 0).all()


def test_the_last_of_two_stretches_has_three_times_as_much_to_compute():
    assert (contiguous_positions(2048, 2) + 1).sum(dim=1).tolist() == [524_800, 1_573_376]
    assert (zigzag_positions(2048, 2) + 1).sum(dim=1).tolist() == [1_049_088, 1_049_088]


@pytest.mark.bad_input
def test_a_text_that_cannot_be_cut_evenly_is_refused():
    with pytest.raises(ValueError, match=r"num_ranks \(3\) must divide num_positions \(10\)"):
        contiguous_positions(10, 3)
    with pytest.raises(ValueError, match=r"twice num_ranks \(2 \* 3\) must divide num_positions \(9\)"):
        zigzag_positions(9, 3)
    with pytest.raises(ValueError, match="num_ranks"):
        zigzag_positions(8, 0)


# -- What it costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 4])
def test_memory_falls_with_the_number_of_processes_and_bytes_sent_follow_the_formula(processes, ranks):
    batch, num_heads, length, head_dim, num_kv_heads = 1, 4, 512, 8, 2
    sizes = (batch, num_heads, length, head_dim)
    (alone,) = processes.run(tasks.weigh_the_ring, sizes, num_kv_heads, zigzag_positions(length, 1), num_processes=1)
    found = processes.run(
        tasks.weigh_the_ring, sizes, num_kv_heads, zigzag_positions(length, ranks), num_processes=ranks
    )
    block = 2 * num_kv_heads * length // ranks * head_dim * 4  # keys and values, float32
    for weight in found:
        assert weight["kept"] * ranks == alone["kept"]
        assert weight["peak"] * ranks < alone["peak"]
        assert weight["forward"] == (ranks - 1) * block
        assert weight["backward"] == (2 * ranks - 1) * block
