"""Chapter 20: what is cut, what is sent, and that one process and many give the same numbers."""

import copy
import inspect
import itertools

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution

from attn_course import LanguageModel, attend_block, attention, make_causal_mask, merge_blocks
from attn_course.distributed import demos as tasks
from attn_course.distributed.context_parallel import contiguous_positions, zigzag_positions

CLOSE = {"rtol": 0.0, "atol": 1e-12}  # float64, sums of at most 64 terms of size 1


@pytest.fixture(scope="module")
def chapter():
    return definitions(20)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- The batch ---------------------------------------------------------------------------------------


def test_three_words_of_loss_1_and_one_of_5_have_a_mean_of_2_and_a_mean_of_means_of_3():
    first, second = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([5.0])
    assert torch.cat([first, second]).mean() == 2
    assert (first.mean() + second.mean()) / 2 == 3


def uneven_batch():
    ids = torch.randint(11, (4, 7), generator=torch.Generator().manual_seed(1))
    inputs, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[0, 2:] = targets[1, 1:] = -100
    return inputs, targets


def gradients(model, loss):
    model = copy.deepcopy(model)
    loss(model).backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_solution_of_the_loss_gives_what_ddp_averages_to_the_gradient_of_the_whole_batch(ranks):
    shard_loss = solution(20, 4)["shard_loss"]
    torch.manual_seed(0)
    model = LanguageModel(11, d_model=12, num_heads=2, num_layers=1, d_ff=7).double()
    inputs, targets = uneven_batch()
    counts = torch.stack([(part != -100).sum() for part in targets.chunk(ranks)])
    own = [
        gradients(model, lambda m, x=x, y=y: shard_loss(m(x), y, counts))
        for x, y in zip(inputs.chunk(ranks), targets.chunk(ranks), strict=True)
    ]
    whole = gradients(model, lambda m: F.cross_entropy(m(inputs).flatten(0, 1), targets.flatten()))
    for name, expected in whole.items():
        torch.testing.assert_close(sum(found[name] for found in own) / ranks, expected, **CLOSE)


def test_ddp_with_the_chapters_batch_is_right_only_when_the_ranks_agree_on_the_count(processes):
    torch.manual_seed(0)
    model = LanguageModel(11, d_model=12, num_heads=2, num_layers=1, d_ff=7).double()
    inputs, targets = uneven_batch()
    whole = gradients(model, lambda m: F.cross_entropy(m(inputs).flatten(0, 1), targets.flatten()))
    for loss, is_right in ((tasks.mean_of_means, False), (tasks.mean_over_all, True)):
        found, _ = processes.run(tasks.gradients_of_shards, model, loss, inputs, targets, num_processes=2)
        far = max((found[name] - whole[name]).abs().max().item() for name in whole)
        assert (far < 1e-12) is is_right
        assert is_right or far > 1e-2


# -- The heads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "G", "P"), [(8, 2, 4), (12, 4, 6), (6, 6, 3), (12, 1, 4), (20, 10, 5)])
def test_ranks_share_out_the_query_heads_and_read_the_key_heads_that_these_share(H, G, P):
    heads_of_rank = solution(20, 3)["heads_of_rank"]
    q, k = random(1, H, 5, 2), random(1, G, 5, 2, seed=1)
    whole = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    seen = []
    for rank in range(P):
        heads, groups = heads_of_rank(H, G, P, rank)
        seen += heads
        read = k[:, groups].repeat_interleave(len(heads) // len(groups), dim=1)
        torch.testing.assert_close(F.scaled_dot_product_attention(q[:, heads], read, read), whole[:, heads], **CLOSE)
    assert seen == list(range(H))


# -- The text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_solution_of_the_zigzag_is_the_packages(ranks):
    zigzag_shard = solution(20, 1)["zigzag_shard"]
    for rank, expected in enumerate(zigzag_positions(14 * ranks, ranks)):
        assert torch.equal(zigzag_shard(14 * ranks, ranks, rank), expected)


@pytest.mark.parametrize("spread", [contiguous_positions, zigzag_positions])
def test_the_simulated_ring_gives_what_processes_give(processes, spread):
    positions = spread(24, 4)
    q, k, v, upstream = (random(1, 1, 24, 5, seed=seed) for seed in range(4))
    simulated = solution(20, 2)["simulate_ring"](*(x[0, 0, positions] for x in (q, k, v)), positions)
    shards = processes.run(tasks.attend_to_shards, "ring", q, k, v, upstream, positions)
    for one, other in zip(simulated, shards, strict=True):
        torch.testing.assert_close(one, other["out"][0, 0], **CLOSE)


def test_of_eight_tokens_two_ranks_compute_10_and_26_scores_and_with_the_zigzag_18_each():
    def scores(positions):
        mask = make_causal_mask(8)
        return [int(mask[own].sum()) for own in positions]

    assert scores(contiguous_positions(8, 2)) == [10, 26]
    assert scores(zigzag_positions(8, 2)) == [18, 18]


def test_the_last_rank_of_contiguous_shards_has_the_most_work():
    for ranks, times in ((2, 3), (4, 7)):
        first, *_, last = (contiguous_positions(2048, ranks) + 1).sum(dim=1).tolist()
        assert round(last / first, 1) == times


def test_the_tiles_of_the_figure_are_3_7_11_and_15_or_9_each():
    layouts = {"contiguous": [0, 0, 1, 1, 2, 2, 3, 3], "zigzag": [0, 1, 2, 3, 3, 2, 1, 0]}
    tiles = {
        name: [sum(t + 1 for t, owner in enumerate(owners) if owner == rank) for rank in range(4)]
        for name, owners in layouts.items()
    }
    assert tiles == {"contiguous": [3, 7, 11, 15], "zigzag": [9, 9, 9, 9]}
    for name, spread in (("contiguous", contiguous_positions), ("zigzag", zigzag_positions)):
        assert spread(8, 4).tolist() == [[t for t in range(8) if layouts[name][t] == rank] for rank in range(4)]


def test_with_the_zigzag_half_of_every_block_of_another_rank_is_visible():
    positions = zigzag_positions(24, 4)
    for rank, owner in itertools.permutations(range(4), 2):
        seen = positions[owner] <= positions[rank][:, None]
        assert int(seen.sum()) == 18  # of 6 x 6
        assert seen.any(0).sum() * seen.any(1).sum() == 18  # a rectangle: nothing in it is masked


# -- What it costs -----------------------------------------------------------------------------------


def test_memory_and_bytes_are_those_of_the_chapters_sentences(processes):
    found = {
        ranks: processes.run(
            tasks.weigh_the_ring, (1, 4, 2048, 16), 2, zigzag_positions(2048, ranks), num_processes=ranks
        )[0]
        for ranks in (1, 4)
    }
    assert found[1]["kept"] == 4 * found[4]["kept"] == 4 * 2048 * (2 * 4 * 16 + 2 * 2 * 16 + 4)
    assert found[4]["peak"] < found[1]["peak"] / 4
    block = 2 * 2 * 512 * 16 * 4
    assert (found[4]["forward"], found[4]["backward"]) == (3 * block, 7 * block)


def positions_needed(wire):
    return 8 / 32 * 2 * 989e12 / wire


def test_sending_is_hidden_from_ten_thousand_positions_across_machines():
    assert round(positions_needed(50e9)) == 9890
    assert round(positions_needed(450e9)) == 1099
    text = 131_072  # of exercise 20.5
    assert text / 128 < text / 64 < positions_needed(50e9) < text / 8


# -- Decoding ----------------------------------------------------------------------------------------


def test_a_step_of_the_ring_by_hand_gives_the_average_over_all_four_keys():
    values = torch.tensor([7.0, 14.0, 21.0, 6.0])
    for exponentials, by_hand in (([2.0, 8.0, 4.0, 1.0], 14.4), ([1.0, 3.0, 2.0, 2.0], 12.875)):
        scores = torch.tensor([exponentials]).log()
        blocks = [(scores[:, s], values[s, None]) for s in (slice(0, 2), slice(2, 4))]
        parts = [(part.softmax(-1) @ v, part.logsumexp(-1)) for part, v in blocks]
        out, _ = merge_blocks(*parts)
        torch.testing.assert_close(out, torch.tensor([[by_hand]]))
        torch.testing.assert_close(out, scores.softmax(-1) @ values[:, None])


def test_a_decoding_step_sends_kilobytes_and_a_ring_sends_megabytes():
    ranks, heads, kv_heads, width = 16, 32, 8, 128
    merge = (ranks - 1) * heads * (width + 1) * 4
    query = (ranks - 1) * heads * width * 2
    ring = (ranks - 1) * 2 * kv_heads * width * (2**20 // ranks) * 2
    assert ring == 3840 * 2**20
    assert round((merge + query) / 1024) == 362


def test_exercise_2_describes_the_arguments_of_the_functions_that_it_needs():
    assert list(inspect.signature(attend_block).parameters) == ["q", "k", "v", "mask"]
    assert inspect.signature(attend_block).parameters["mask"].default is None
    assert list(inspect.signature(merge_blocks).parameters) == ["first", "second"]


def test_zero_divides_16_bytes_for_each_parameter_in_three_stages():
    sizes = [7.5 * (whole + divided / 64) for whole, divided in ((16, 0), (4, 12), (2, 14), (0, 16))]
    assert [round(size, 1) for size in sizes] == [120.0, 31.4, 16.6, 1.9]


def test_the_bubble_of_four_ranks_is_43_percent_and_falls_to_9_percent():
    assert [round(100 * 3 / (batches + 3)) for batches in (4, 32)] == [43, 9]


# -- Mistakes ----------------------------------------------------------------------------------------


def test_the_mean_of_the_blocks_outputs_is_not_attention():
    q, k, v = (random(4, 24, 5, seed=seed) for seed in range(3))
    parts = [attend_block(q, *block) for block in zip(k.chunk(4, dim=1), v.chunk(4, dim=1), strict=True)]
    whole, _ = attention(q, k, v)
    assert (sum(out for out, _ in parts) / 4 - whole).norm() > 0.1 * whole.norm()


def test_blocks_masked_as_the_own_one_are_right_at_the_last_position_alone():
    q, k, v = (random(24, 5, seed=seed) for seed in range(3))
    local, outs = make_causal_mask(6), []
    for queries in q.chunk(4):
        parts = [attend_block(queries, *block, local) for block in zip(k.chunk(4), v.chunk(4), strict=True)]
        merged = parts[0]
        for part in parts[1:]:
            merged = merge_blocks(merged, part)
        outs.append(merged[0])
    wrong = (torch.cat(outs) - attention(q, k, v, make_causal_mask(24))[0]).abs().amax(dim=1) > 1e-9
    assert wrong.tolist() == [True] * 23 + [False]
