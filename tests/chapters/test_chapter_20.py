"""Chapter 20: what is cut, what is sent, and that one process and many give the same numbers."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from read_chapters import solution, text

from attn_course import LanguageModel, make_causal_mask
from attn_course.distributed.context_parallel import contiguous_positions, zigzag_positions

CLOSE = {"rtol": 0.0, "atol": 1e-12}  # float64, sums of at most 64 terms of size 1


# -- The batch ---------------------------------------------------------------------------------------


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


# -- The text ----------------------------------------------------------------------------------------


def test_the_numbers_of_the_text_are_those_of_a_calculation():
    said = text("20")
    own = [make_causal_mask(8)[positions].sum() for positions in contiguous_positions(8, 2)]
    assert f"1 + 2 + 3 + 4 = {own[0]} scores, and rank 1 computes the remaining {own[1]}." in said
    tiles = [[int((t + 1).sum()) for t in spread(8, 4)] for spread in (contiguous_positions, zigzag_positions)]
    assert "{}, {}, {} and {} tiles on the left, but ".format(*tiles[0]) in said
    assert f"but {tiles[1][0]} tiles for each rank" in said
    assert len(set(tiles[1])) == 1
    first, *_, last = (contiguous_positions(2048, 4) + 1).sum(dim=1).tolist()
    assert (round(last / first), "computes seven times as many scores as the first" in said) == (7, True)
    across, within = (8 / 32 * 2 * 989e12 / wire for wire in (50e9, 450e9))
    assert f"≈ {across:,.0f} positions" in said
    assert f"needs only {within:,.0f}." in said
    for batches in (4, 32):
        assert f"3/{batches + 3}, or {100 * 3 / (batches + 3):.0f} %" in said
    merge_and_query = 15 * 32 * (129 * 4 + 128 * 2)  # float32 outputs and logsumexps, queries of two bytes
    assert f"need only {merge_and_query / 1024:.0f} KiB" in said


def test_with_the_zigzag_half_of_every_block_of_another_rank_is_visible():
    positions = zigzag_positions(24, 4)
    for rank, owner in itertools.permutations(range(4), 2):
        seen = positions[owner] <= positions[rank][:, None]
        assert int(seen.sum()) == 18  # of 6 x 6
        assert seen.any(0).sum() * seen.any(1).sum() == 18  # a rectangle: nothing in it is masked
