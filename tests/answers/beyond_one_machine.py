"""Answers to the exercises of chapter 20."""

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import attend_block, attention, make_causal_mask, merge_blocks

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


@wrong("one stretch")
def zigzag_shard(num_positions, num_ranks, rank):
    return torch.arange(num_positions).chunk(num_ranks)[rank]


@wrong("dealt out in turn")
def zigzag_shard(num_positions, num_ranks, rank):
    return torch.arange(num_positions)[rank::num_ranks]


@wrong("late chunk not mirrored")
def zigzag_shard(num_positions, num_ranks, rank):
    chunks = torch.arange(num_positions).chunk(2 * num_ranks)
    return torch.cat([chunks[rank], chunks[rank + num_ranks]])


@wrong("late chunk one too far")
def zigzag_shard(num_positions, num_ranks, rank):
    size = num_positions // (2 * num_ranks)
    late = num_positions - rank * size
    return torch.cat([torch.arange(size) + rank * size, torch.arange(size) + late])


@wrong("chunks too long")
def zigzag_shard(num_positions, num_ranks, rank):
    chunks = torch.arange(num_positions).view(num_ranks, -1)
    return torch.cat([chunks[rank], chunks[-1 - rank]])


@wrong("early chunk alone")
def zigzag_shard(num_positions, num_ranks, rank):
    return torch.arange(num_positions).view(2 * num_ranks, -1)[rank]


@wrong("late chunk alone")
def zigzag_shard(num_positions, num_ranks, rank):
    return torch.arange(num_positions).view(2 * num_ranks, -1)[-1 - rank]


@wrong("late chunk first")
def zigzag_shard(num_positions, num_ranks, rank):
    chunks = torch.arange(num_positions).view(2 * num_ranks, -1)
    return torch.cat([chunks[-1 - rank], chunks[rank]])


@wrong("late chunk backwards")
def zigzag_shard(num_positions, num_ranks, rank):
    size = num_positions // (2 * num_ranks)
    early = torch.arange(rank * size, rank * size + size)
    return torch.cat([early, num_positions - 1 - early])


@wrong("all ranks")
def zigzag_shard(num_positions, num_ranks, rank):
    chunks = torch.arange(num_positions).view(2 * num_ranks, -1)
    return torch.stack([torch.cat([chunks[r], chunks[-1 - r]]) for r in range(num_ranks)])


@wrong("single positions there and back")
def zigzag_shard(num_positions, num_ranks, rank):
    there = [*range(num_ranks), *reversed(range(num_ranks))]
    return torch.tensor([t for t in range(num_positions) if there[t % (2 * num_ranks)] == rank])


@wrong("truth values for positions")
def zigzag_shard(num_positions, num_ranks, rank):
    chunk = torch.arange(num_positions) // (num_positions // (2 * num_ranks))
    return torch.minimum(chunk, 2 * num_ranks - 1 - chunk) == rank


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


def _ring(q, k, v, mask_of, steps):
    outs, count = [], len(q)
    for rank in range(count):
        found = None
        for step in steps(count):
            owner = (rank - step) % count
            part = attend_block(q[rank], k[owner], v[owner], mask_of(rank, owner))
            found = part if found is None else merge_blocks(found, part)
        outs.append(found[0])
    return torch.stack(outs)


@wrong("own block alone")
def simulate_ring(q, k, v, positions):
    mask = positions[:, None, :] <= positions[:, :, None]
    return attend_block(q, k, v, mask)[0]


@wrong("last block missing")
def simulate_ring(q, k, v, positions):
    return _ring(q, k, v, lambda r, o: positions[o] <= positions[r][:, None], lambda n: range(n - 1))


@wrong("own block missing")
def simulate_ring(q, k, v, positions):
    return _ring(q, k, v, lambda r, o: positions[o] <= positions[r][:, None], lambda n: range(1, n))


@wrong("no mask")
def simulate_ring(q, k, v, positions):
    return attention(q, k.flatten(0, 1).expand(len(q), -1, -1), v.flatten(0, 1).expand(len(q), -1, -1))[0]


@wrong("every block masked as the own")
def simulate_ring(q, k, v, positions):
    return _ring(q, k, v, lambda r, o: positions[r] <= positions[r][:, None], range)


@wrong("one triangle for all blocks")
def simulate_ring(q, k, v, positions):
    triangle = torch.ones(q.size(1), q.size(1), dtype=torch.bool, device=q.device).tril()
    return _ring(q, k, v, lambda r, o: triangle, range)


@wrong("ranks taken for the order of the text")
def simulate_ring(q, k, v, positions):
    outs, N = [], q.size(1)
    for rank in range(len(q)):
        found = attend_block(q[rank], k[rank], v[rank], make_causal_mask(N, device=q.device))
        for owner in range(rank):
            found = merge_blocks(found, attend_block(q[rank], k[owner], v[owner]))
        outs.append(found[0])
    return torch.stack(outs)


@wrong("mask on its side")
def simulate_ring(q, k, v, positions):
    return _ring(q, k, v, lambda r, o: positions[r] >= positions[o][:, None], range)


@wrong("mask inverted")
def simulate_ring(q, k, v, positions):
    return _ring(q, k, v, lambda r, o: positions[r][:, None] < positions[o], range)


@wrong("does not see itself")
def simulate_ring(q, k, v, positions):
    return _ring(q, k, v, lambda r, o: positions[r][:, None] > positions[o], range)


@wrong("own block masked by a triangle")
def simulate_ring(q, k, v, positions):
    N = q.size(1)
    triangle = torch.ones(N, N, dtype=torch.bool, device=q.device).tril()
    return _ring(q, k, v, lambda r, o: triangle if o == r else positions[o] <= positions[r][:, None], range)


@unnamed("blocks skipped by their ends")
def simulate_ring(q, k, v, positions):
    outs = []
    for rank in range(len(q)):
        found = None
        for step in range(len(q)):
            owner = (rank - step) % len(q)
            if positions[owner][0] > positions[rank][-1]:
                continue
            mask = positions[owner] <= positions[rank][:, None]
            part = attend_block(q[rank], k[owner], v[owner], mask)
            found = part if found is None else merge_blocks(found, part)
        outs.append(found[0])
    return torch.stack(outs)


@wrong("right at one end only")
def simulate_ring(q, k, v, positions):
    def mask(r, o):
        past = positions[o][-1] <= positions[r][0] and o != r
        return None if past else positions[o] <= positions[r][:, None]

    return _ring(q, k, v, mask, range)


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


def _outs(q, k, v, positions, rank):
    masks = [places <= positions[rank][:, None] for places in positions]
    return [attend_block(q[rank], *block)[0] for block in zip(k, v, masks, strict=True)]


@wrong("outputs averaged")
def simulate_ring(q, k, v, positions):
    return torch.stack([sum(_outs(q, k, v, positions, rank)) / len(q) for rank in range(len(q))])


@wrong("outputs added")
def simulate_ring(q, k, v, positions):
    return torch.stack([sum(_outs(q, k, v, positions, rank)) for rank in range(len(q))])


@wrong("values stay at home")
def simulate_ring(q, k, v, positions):
    outs = []
    for rank in range(len(q)):
        found = None
        for keys, places in zip(k, positions, strict=True):
            part = attend_block(q[rank], keys, v[rank], places <= positions[rank][:, None])
            found = part if found is None else merge_blocks(found, part)
        outs.append(found[0])
    return torch.stack(outs)


@wrong("keys and mask go opposite ways")
def simulate_ring(q, k, v, positions):
    count = len(q)
    return _ring(q, k, v, lambda r, o: positions[(2 * r - o) % count] <= positions[r][:, None], range)


@wrong("logsumexp of the first block kept")
def simulate_ring(q, k, v, positions):
    outs = []
    for rank in range(len(q)):
        out, log_sum = None, None
        for step in range(len(q)):
            owner = (rank - step) % len(q)
            found = attend_block(q[rank], k[owner], v[owner], positions[owner] <= positions[rank][:, None])
            if out is None:
                out, log_sum = found
            else:
                out = merge_blocks((out, log_sum), found)[0]
        outs.append(out)
    return torch.stack(outs)


@wrong("logsumexp of the last block kept")
def simulate_ring(q, k, v, positions):
    outs = []
    for rank in range(len(q)):
        out, log_sum = None, None
        for step in range(len(q)):
            owner = (rank - step) % len(q)
            found, new = attend_block(q[rank], k[owner], v[owner], positions[owner] <= positions[rank][:, None])
            out = found if out is None else merge_blocks((out, log_sum), (found, new))[0]
            log_sum = new
        outs.append(out)
    return torch.stack(outs)


@wrong("past hidden")
def simulate_ring(q, k, v, positions):
    outs = []
    for rank in range(len(q)):
        blocks = []
        for step in range(len(q)):
            owner = (rank - step) % len(q)
            mask = positions[rank][:, None] <= positions[owner]
            blocks.append(attend_block(q[rank], k[owner], v[owner], mask))
        merged = blocks[0]
        for block in blocks[1:]:
            merged = merge_blocks(merged, block)
        outs.append(merged[0])
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


@wrong("query heads dealt out in turn")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    heads = [h for h in range(num_heads) if h % num_ranks == rank]
    return heads, sorted({h * num_kv_heads // num_heads for h in heads})


@wrong("key heads dealt out in turn")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    heads = _own(num_heads, num_ranks, rank)
    return heads, sorted({h % num_kv_heads for h in heads})


@wrong("divided by the key heads")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    heads = _own(num_heads, num_ranks, rank)
    return heads, sorted({h // num_kv_heads for h in heads})


@wrong("key heads split among the ranks")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    groups = range(rank * num_kv_heads // num_ranks, (rank + 1) * num_kv_heads // num_ranks)
    return _own(num_heads, num_ranks, rank), list(groups)


@wrong("a key head of one's own")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each = max(1, num_kv_heads // num_ranks)
    return _own(num_heads, num_ranks, rank), [rank * each + i for i in range(each)]


@wrong("one for each query head")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    heads = _own(num_heads, num_ranks, rank)
    return heads, [h // (num_heads // num_kv_heads) for h in heads]


@wrong("all key heads")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    return _own(num_heads, num_ranks, rank), list(range(num_kv_heads))


@wrong("first key head alone")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    heads = _own(num_heads, num_ranks, rank)
    return heads, [heads[0] // (num_heads // num_kv_heads)]


@wrong("one query head too many")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each, times = num_heads // num_ranks, num_heads // num_kv_heads
    heads = list(range(rank * each, (rank + 1) * each + 1))
    return heads, sorted({h // times for h in heads})


@wrong("not built as asked")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each = num_heads // num_ranks
    own = {rank * each + i for i in range(each)}
    return own, {head * num_kv_heads // num_heads for head in own}


@wrong("not built as asked")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    own = _own(num_heads, num_ranks, rank)
    return own, (group for group in sorted({head * num_kv_heads // num_heads for head in own}))


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


@wrong("whole groups")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each, sharing = num_heads // num_ranks, num_heads // num_kv_heads
    first, last = rank * each // sharing, ((rank + 1) * each - 1) // sharing
    return list(range(first * sharing, (last + 1) * sharing)), list(range(first, last + 1))


@wrong("last key head missing")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each, sharing = num_heads // num_ranks, num_heads // num_kv_heads
    heads = list(range(rank * each, (rank + 1) * each))
    return heads, list(range(heads[0] // sharing, heads[-1] // sharing))


@wrong("last key head missing where there are several")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each, sharing = num_heads // num_ranks, num_heads // num_kv_heads
    first, last = rank * each // sharing, ((rank + 1) * each - 1) // sharing
    return list(range(rank * each, (rank + 1) * each)), list(range(first, max(last, first + 1)))


@wrong("key heads as a set holds them")
def heads_of_rank(num_heads, num_kv_heads, num_ranks, rank):
    each = num_heads // num_ranks
    heads = [rank * each + i for i in range(each)]
    return heads, [*{head * num_kv_heads // num_heads for head in heads}]


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


@wrong("mean of means")
def shard_loss(logits, targets, counts):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


@unnamed("logarithm of a softmax")
def shard_loss(logits, targets, counts):
    real = targets != -100
    share = logits.softmax(dim=-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -share[real].log().sum() / counts.sum() * len(counts)


def _sum(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


@wrong("ranks forgotten")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets) / counts.sum()


@wrong("divided by the ranks")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets) / (counts.sum() * counts.numel())


@wrong("own count")
def shard_loss(logits, targets, counts):
    return F.cross_entropy(logits.mT, targets) * len(counts)


@wrong("padding counted")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets) / targets.numel() * len(counts)


@wrong("not divided")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets) * len(counts)


@wrong("sum alone")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets)


@wrong("average count")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets) / (counts.sum() / len(counts)) * len(counts)


@wrong("largest count")
def shard_loss(logits, targets, counts):
    return _sum(logits, targets) / max(counts.tolist()) * len(counts)


@wrong("one loss for each target")
def shard_loss(logits, targets, counts):
    return F.cross_entropy(logits.mT, targets, reduction="none") / counts.sum() * len(counts)


@wrong("no gradient")
def shard_loss(logits, targets, counts):
    return (
        torch.tensor(_sum(logits, targets).item(), dtype=logits.dtype, device=logits.device)
        * len(counts)
        / counts.sum()
    )


@wrong("empty ranks left out")
def shard_loss(logits, targets, counts):
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="none")
    return losses.sum() * (counts != 0).sum() / counts.sum()


@wrong("nan without targets")
def shard_loss(logits, targets, counts):
    own = (targets != -100).sum()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) * len(counts) * own / counts.sum()


@wrong("sentences for ranks")
def shard_loss(logits, targets, counts):
    total = F.cross_entropy(logits.mT, targets, reduction="sum")
    return total * logits.size(0) / counts.sum()


@wrong("0 taken for padding")
def shard_loss(logits, targets, counts):
    counted = targets > 0
    total = F.cross_entropy(logits[counted], targets[counted], reduction="sum")
    return total * len(counts) / counts.sum()


@wrong("what does not count is taken for 0")
def shard_loss(logits, targets, counts):
    losses = -logits.log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])
    return losses.sum() / counts.sum() * len(counts)


@wrong("own mean, 0 without targets")
def shard_loss(logits, targets, counts):
    counted = targets != -100
    if not counted.any():
        return logits.sum() * 0
    return F.cross_entropy(logits[counted], targets[counted])


@wrong("average count cut to a whole number")
def shard_loss(logits, targets, counts):
    total = F.cross_entropy(logits.mT, targets, reduction="sum")
    return total / (int(counts.sum()) // counts.numel())


@wrong("share counted twice")
def shard_loss(logits, targets, counts):
    share = (targets != -100).sum() / counts.sum()
    return F.cross_entropy(logits.mT, targets, reduction="sum") * share * len(counts) / counts.sum()


@wrong("scaled twice")
def simulate_ring(q, k, v, positions):
    ranks = range(len(q))
    scaled, outs = q * q.size(-1) ** -0.5, []
    for rank in ranks:
        parts = [attend_block(scaled[rank], k[j], v[j], positions[rank][:, None] >= positions[j]) for j in ranks]
        total = parts[rank]
        for j in ranks:
            total = total if j == rank else merge_blocks(total, parts[j])
        outs.append(total[0])
    return torch.stack(outs)


@wrong("last block missing, and nothing for a single rank")
def simulate_ring(q, k, v, positions):
    P, N, _ = q.shape
    out, log_sum = q.new_zeros(P, N, v.size(2)), q.new_full((P, N), -torch.inf)
    for rank in range(P):
        for step in range(1, P):
            j = (rank - step + 1) % P
            found = attend_block(q[rank], k[j], v[j], positions[rank, :, None] >= positions[j])
            out[rank], log_sum[rank] = merge_blocks((out[rank], log_sum[rank]), found)
    return out
