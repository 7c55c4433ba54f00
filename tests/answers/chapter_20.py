"""Answers to the exercises of chapter 20."""

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import attend_block, merge_blocks

# -- zigzag_shard ----------------------------------------------------------------------------------


@right
def zigzag_shard(num_positions, num_ranks, rank):
    size = num_positions // num_ranks // 2
    late = num_positions - (rank + 1) * size
    return torch.tensor([*range(rank * size, (rank + 1) * size), *range(late, late + size)])


@right
def zigzag_shard(num_positions, num_ranks, rank):
    chunk = torch.arange(num_positions) // (num_positions // (2 * num_ranks))
    owner = torch.minimum(chunk, 2 * num_ranks - 1 - chunk)
    return (owner == rank).nonzero().flatten()


@right
def zigzag_shard(num_positions, num_ranks, rank):  # in 32 bits
    chunks = torch.arange(num_positions, dtype=torch.int32).view(2 * num_ranks, -1)
    return torch.cat([chunks[rank], chunks[-1 - rank]])


_chunks = {}


@unnamed("a table kept by the length alone")
def zigzag_shard(num_positions, num_ranks, rank):
    if num_positions not in _chunks:
        _chunks[num_positions] = torch.arange(num_positions).view(2 * num_ranks, -1)
    return torch.cat([_chunks[num_positions][rank], _chunks[num_positions][-1 - rank]])


# -- simulate_ring ---------------------------------------------------------------------------------


@right
def simulate_ring(q, k, v, positions):
    num_ranks = len(q)
    blocks = list(zip(k, v, positions, strict=True))
    found = [None] * num_ranks
    for _ in range(num_ranks):
        for rank, (keys, values, places) in enumerate(blocks):
            part = attend_block(q[rank], keys, values, positions[rank][:, None] >= places)
            found[rank] = part if found[rank] is None else merge_blocks(part, found[rank])
        blocks = blocks[-1:] + blocks[:-1]
    return torch.stack([out for out, _ in found])


@right
def simulate_ring(q, k, v, positions):
    outs = torch.zeros(*q.shape[:2], v.size(-1), dtype=v.dtype, device=v.device)
    for rank, own in enumerate(positions):
        weights, total = [], []
        for keys, values, places in zip(k, v, positions, strict=True):
            out, log_sum = attend_block(q[rank], keys, values, places <= own[:, None])
            weights.append(log_sum)
            total.append(out)
        shares = torch.softmax(torch.stack(weights), dim=0)
        outs[rank] = (shares[..., None] * torch.stack(total)).sum(0)
    return outs


def _ring(q, k, v, mask_of, skips=lambda rank, owner: False):
    outs, count = [], len(q)
    for rank in range(count):
        found = None
        for step in range(count):
            owner = (rank - step) % count
            if skips(rank, owner):
                continue
            part = attend_block(q[rank], k[owner], v[owner], mask_of(rank, owner))
            found = part if found is None else merge_blocks(found, part)
        outs.append(found[0])
    return torch.stack(outs)


@unnamed("blocks skipped by their ends")
def simulate_ring(q, k, v, positions):
    def mask(r, o):
        return positions[o] <= positions[r][:, None]

    return _ring(q, k, v, mask, lambda r, o: positions[o][0] > positions[r][-1])


@wrong("right at one end only")
def simulate_ring(q, k, v, positions):
    def mask(r, o):
        past = positions[o][-1] <= positions[r][0] and o != r
        return None if past else positions[o] <= positions[r][:, None]

    return _ring(q, k, v, mask)


@wrong("nan in some places")
def simulate_ring(q, k, v, positions):  # exponentials, and no largest taken off
    outs = []
    for rank in range(len(q)):
        above, below = 0, 0
        for step in range(len(q)):
            owner = (rank - step) % len(q)
            out, log_sum = attend_block(q[rank], k[owner], v[owner], positions[owner] <= positions[rank][:, None])
            weight = log_sum.exp()[:, None]
            above, below = above + weight * out, below + weight
        outs.append(above / below)
    return torch.stack(outs)


# -- heads_of_rank ---------------------------------------------------------------------------------


@right
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    heads = torch.arange(num_heads).view(num_ranks, -1)[rank]
    return heads, torch.arange(num_kv_heads).repeat_interleave(num_heads // num_kv_heads)[heads].unique()


@right
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    first, end = rank * num_heads // num_ranks, (rank + 1) * num_heads // num_ranks
    times = num_heads // num_kv_heads
    return range(first, end), range(first // times, (end - 1) // times + 1)


def _own(num_heads, num_ranks, rank):
    each = num_heads // num_ranks
    return [rank * each + i for i in range(each)]


@wrong("not built as asked")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each = num_heads // num_ranks
    own = {rank * each + i for i in range(each)}
    return own, {head * num_kv_heads // num_heads for head in own}


@wrong("places missing")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):  # counted from the first key head
    own, sharing = _own(num_heads, num_ranks, rank), num_heads // num_kv_heads
    first = own[0] // sharing
    if len(own) < sharing:
        return own, sorted({own[0] // sharing, own[-1] // sharing})
    return own, list(range(first, first + -(-len(own) // sharing)))


@unnamed("sorted as words")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    own = _own(num_heads, num_ranks, rank)
    return own, sorted({head * num_kv_heads // num_heads for head in own}, key=str)


# -- shard_loss ------------------------------------------------------------------------------------


@right
def shard_loss(logits, targets, counts):
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return each.sum() / counts.to(each.dtype).mean()


@right
def shard_loss(logits, targets, counts):
    log_probs = logits.log_softmax(dim=-1)
    real = targets != -100
    own = log_probs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -(own * real).sum() * counts.numel() / counts.sum()


@unnamed("logarithm of a softmax")
def shard_loss(logits, targets, counts):
    real = targets != -100
    share = logits.softmax(dim=-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -share[real].log().sum() / counts.sum() * len(counts)


def _sum(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


@wrong("no gradient")
def shard_loss(logits, targets, counts):
    return (
        torch.tensor(_sum(logits, targets).item(), dtype=logits.dtype, device=logits.device)
        * len(counts)
        / counts.sum()
    )
