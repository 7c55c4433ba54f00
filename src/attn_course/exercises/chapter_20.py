"""The exercises of the chapter on several machines, none of which needs a second process. Used from chapter 20 on."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.distributed.context_parallel import contiguous_positions, zigzag_positions
from attn_course.exercises.engine.convert_output import on_the_cpu
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.largest_tensor import largest_tensor, yes_or_no
from attn_course.exercises.engine.runner import AnswerError
from attn_course.functional.tiled import attend_block, merge_blocks

# ---------------------------------------------------------------- the zigzag


def _texts(draw):
    yield "the first of two ranks", 12, 2, 0
    yield "the last of two ranks", 12, 2, 1
    yield "the middle of three ranks", 30, 3, 1
    yield "the third of five ranks", 40, 5, 2
    yield "the last of four ranks", 56, 4, 3
    yield "chunks of one position", 14, 7, 4
    yield "a single rank", 6, 1, 0
    yield "a text of twelve on three ranks", 12, 3, 0


def _zigzag(num_positions, num_ranks, rank):
    size = num_positions // (2 * num_ranks)
    early, late = rank, 2 * num_ranks - 1 - rank
    first = torch.arange(early * size, (early + 1) * size)
    second = torch.arange(late * size, (late + 1) * size)
    return torch.cat([first, second])


def _whole_numbers(answer, num_positions, num_ranks, rank):
    found = on_the_cpu(answer(num_positions, num_ranks, rank))
    return found.long() if isinstance(found, Tensor) and found.dtype in (torch.int16, torch.int32) else found


zigzag_shard = Exercise(
    name="zigzag_shard",
    trials=_texts,
    right=_zigzag,
    use=_whole_numbers,
    result_names=("the positions",),
    seeds=(0,),
    chapter=20,
)


# ---------------------------------------------------------------- the ring


def _shards(draw, P, N, D, Dv, *, positions, dtype=torch.float32):
    return *(draw(P, N, width, dtype=dtype) for width in (D, D, Dv)), positions.to(draw.device)


def _rings(draw):
    yield "three ranks, stretches", *_shards(draw, 3, 5, 2, 7, positions=contiguous_positions(15, 3))
    yield "three ranks, zigzag", *_shards(draw, 3, 4, 5, 2, positions=zigzag_positions(12, 3))
    yield "four ranks, zigzag", *_shards(draw, 4, 6, 3, 5, positions=zigzag_positions(24, 4))
    yield "two ranks", *_shards(draw, 2, 7, 3, 5, positions=contiguous_positions(14, 2))
    yield "float64", *_shards(draw, 3, 2, 7, 5, positions=zigzag_positions(6, 3), dtype=torch.float64)
    turn = torch.arange(20).view(4, 5).mT  # stripes: ranks 0 to 4
    yield "positions dealt out in turn", *_shards(draw, 5, 4, 2, 3, positions=turn)
    yield "a single rank", *_shards(draw, 1, 5, 3, 2, positions=contiguous_positions(5, 1))
    yield "positions in no order", *_shards(draw, 2, 3, 5, 2, positions=torch.tensor([[3, 0, 5], [4, 2, 1]]))
    q, k, v, positions = _shards(draw, 2, 4, 3, 5, positions=zigzag_positions(8, 2))
    yield "large scores", 100 * q, k, v, positions


def _ring(q, k, v, positions):
    num_ranks, outs = q.size(0), []
    for rank in range(num_ranks):
        merged = None
        for step in range(num_ranks):
            owner = (rank - step) % num_ranks
            mask = positions[owner] <= positions[rank][:, None]
            found = attend_block(q[rank], k[owner], v[owner], mask)
            merged = found if merged is None else merge_blocks(merged, found)
        outs.append(merged[0])
    return torch.stack(outs)


def _by_blocks(answer, q, k, v, positions):
    """Return the outputs, and whether a tensor is as large as the table of all scores."""
    out, largest = largest_tensor(lambda: answer(q, k, v, positions))
    if out is None:
        return None
    table = positions.numel() ** 2
    is_whole = len(q) > 1 and largest >= table > max(x.numel() for x in (q, k, v))
    return out, yes_or_no(is_whole, answer, simulate_ring.mistakes, "the whole table")


simulate_ring = Exercise(
    name="simulate_ring",
    trials=_rings,
    right=_ring,
    use=_by_blocks,
    result_names=("out", "whether a tensor has (P · N)² numbers"),
    chapter=20,
)


# ---------------------------------------------------------------- heads


def _layers(draw):
    yield "as many key heads as query heads", 12, 12, 4, 1
    yield "two heads share a key head", 12, 6, 3, 2
    yield "more key heads than ranks", 30, 10, 5, 3
    yield "fewer key heads than ranks", 16, 2, 8, 3
    yield "a rank in the middle", 16, 2, 8, 4
    yield "a key head that two ranks share", 18, 6, 2, 1
    yield "two key heads for two query heads", 12, 4, 6, 1
    yield "a group cut in two", 30, 3, 2, 1
    yield "one key head for all", 20, 1, 5, 4
    yield "a single rank", 14, 7, 1, 0
    yield "key heads 6 to 8", 36, 18, 6, 2  # which a set holds in another order
    yield "groups that begin in the middle of a rank", 15, 5, 3, 1
    yield "key heads that no rank count divides", 30, 10, 3, 0
    yield "more than ten key heads", 22, 22, 2, 0


def _as_tensors(answer, num_heads, num_kv_heads, num_ranks, rank):
    found = answer(num_heads, num_kv_heads, num_ranks, rank)
    if not isinstance(found, tuple | list) or len(found) != 2:
        return found
    if any(isinstance(part, set | frozenset) for part in found):
        raise AnswerError("The function returns a set, and a set has no order. Return lists. See section 20.4.")
    if any(isinstance(part, Iterator) for part in found):
        raise AnswerError(
            "The function returns an iterator, which is empty after it has been read. Return lists. See section 20.4."
        )
    both = (part.tolist() if isinstance(part, Tensor) else list(part) for part in found)
    return tuple(torch.tensor(part, dtype=None if part else torch.int64) for part in both)


def _heads(num_heads, num_kv_heads, num_ranks, rank):
    each, sharing = num_heads // num_ranks, num_heads // num_kv_heads
    heads = list(range(rank * each, (rank + 1) * each))
    groups = sorted({head // sharing for head in heads})
    return heads, groups


heads_of_rank = Exercise(
    name="heads_of_rank",
    trials=_layers,
    right=_heads,
    use=_as_tensors,
    result_names=("the query heads", "the key-value heads"),
    seeds=(0,),
    chapter=20,
)


# ---------------------------------------------------------------- the loss


def _losses(draw):
    def trial(B, T, V, others, *, real=None, dtype=torch.float32):
        targets = draw.ints(B, T, high=V)
        places = torch.arange(B * T, device=draw.device).view(B, T)
        targets = targets.masked_fill(places >= (B * T if real is None else real), -100)
        own = int((targets != -100).sum())
        return draw(B, T, V, dtype=dtype), targets, torch.tensor([*others[:1], own, *others[1:]], device=draw.device)

    yield "two ranks", *trial(2, 3, 5, [17])
    yield "a short shard", *trial(3, 4, 7, [19, 23], real=2)
    yield "a long shard among short ones", *trial(5, 3, 2, [1, 2, 3])
    yield "float64", *trial(2, 5, 3, [4, 13], real=7, dtype=torch.float64)
    yield "a shard in which nothing counts", *trial(2, 3, 7, [11, 5], real=0)
    yield "another rank without a target", *trial(3, 2, 5, [0, 7], real=4)
    logits, targets, counts = trial(1, 3, 2, [4])
    yield "logits far apart", 300 * logits, targets, counts


def _shard_loss(logits, targets, counts):
    total = F.cross_entropy(logits.mT, targets, ignore_index=-100, reduction="sum")
    return total / counts.sum() * len(counts)


shard_loss = Exercise(
    name="shard_loss",
    trials=_losses,
    right=_shard_loss,
    result_names=("the loss",),
    gradients=True,
    chapter=20,
)
