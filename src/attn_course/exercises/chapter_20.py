"""The exercises of the chapter on several machines, none of which needs a second process. Used from chapter 20 on."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.exercises.engine.convert_output import on_the_cpu
from attn_course.exercises.engine.exercise import Exercise, Mistake, Remark
from attn_course.functional import attention
from attn_course.masks import make_causal_mask
from attn_course.parallel import contiguous_positions, zigzag_positions
from attn_course.tiled import attend_block, merge_blocks

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


def _there_and_back(num_positions, num_ranks, rank):
    t = torch.arange(num_positions)
    place = t % (2 * num_ranks)
    return t[torch.minimum(place, 2 * num_ranks - 1 - place) == rank]


def _whole_numbers(answer, num_positions, num_ranks, rank):
    found = on_the_cpu(answer(num_positions, num_ranks, rank))
    return found.long() if isinstance(found, Tensor) and found.dtype in (torch.int16, torch.int32) else found


zigzag_shard = Exercise(
    name="zigzag_shard",
    trials=_texts,
    right=_zigzag,
    use=_whole_numbers,
    returns=("the positions",),
    seeds=(0,),
    mistakes={
        "one stretch": Mistake(
            "The rank gets one contiguous piece of the text, so the last rank has the longest rows and the most work. "
            "Each rank needs one early chunk and one late chunk. See section 20.6.",
            lambda num_positions, num_ranks, rank: contiguous_positions(num_positions, num_ranks)[rank],
        ),
        "dealt out in turn": Mistake(
            "Single positions go to the ranks in turn. This division is called striped and is nearly balanced, but in "
            "the zigzag each rank gets two whole chunks. See section 20.6.",
            lambda num_positions, num_ranks, rank: torch.arange(rank, num_positions, num_ranks),
        ),
        "late chunk not mirrored": Mistake(
            "The late chunks have the same order as the early chunks, so the last rank gets the later of both and has "
            "the most work. The second chunk of rank r must be as far from the end as its first chunk is from the "
            "beginning. See section 20.6.",
            {"2 * num_ranks - 1 - rank": "num_ranks + rank"},
        ),
        "late chunk one too far": Mistake(
            "The late chunk begins one chunk too late, and the late chunk of rank 0 would begin after the end. The "
            "last of 2P chunks has the number 2P − 1. See section 20.6.",
            {"2 * num_ranks - 1 - rank": "2 * num_ranks - rank"},
        ),
        "chunks too long": Mistake(
            "The chunks are twice as long as they should be. The text must be cut into 2P chunks, two for each rank. "
            "See section 20.6.",
            {"// (2 * num_ranks)": "// num_ranks", "2 * num_ranks - 1 - rank": "num_ranks - 1 - rank"},
        ),
        "early chunk alone": Mistake(
            "Only the early chunk is returned, but every rank also has a late chunk. See section 20.6.",
            {"[first, second]": "[first]"},
        ),
        "late chunk alone": Mistake(
            "Only the late chunk is returned, but every rank also has an early chunk. See section 20.6.",
            {"[first, second]": "[second]"},
        ),
        "late chunk first": Mistake(
            "The positions are right, but the late chunk comes before the early chunk. The exercise asks for "
            "ascending order. See section 20.6.",
            {"[first, second]": "[second, first]"},
        ),
        "late chunk backwards": Mistake(
            "The positions of the late chunk are in descending order. The late chunks are given out from the end, but "
            "the positions inside a chunk keep their order. See section 20.6.",
            {"[first, second]": "[first, second.flip(0)]"},
        ),
        "all ranks": Mistake(
            "The function returns the positions of all ranks, but the exercise asks for one rank. See section 20.6.",
            lambda num_positions, num_ranks, rank: zigzag_positions(num_positions, num_ranks),
        ),
        "single positions there and back": Mistake(
            "Single positions go to the ranks in the order forward and back. The zigzag does so with whole chunks, "
            "two for each rank. See section 20.6.",
            _there_and_back,
        ),
        "truth values for positions": Mistake(
            "The function returns True or False for every position of the text. The exercise asks for the numbers of "
            "the rank's positions. See section 20.6.",
            lambda num_positions, num_ranks, rank: torch.isin(
                torch.arange(num_positions), _zigzag(num_positions, num_ranks, rank)
            ),
        ),
    },
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


def _found_by_block(how):
    """What comes out if ``how`` puts together the outputs of all blocks (P, N, Dv) that a rank has met."""

    def answer(q, k, v, positions):
        outs = []
        for rank in range(q.size(0)):
            masks = positions[:, None, :] <= positions[rank][:, None]
            outs.append(how(torch.stack([attend_block(q[rank], *block)[0] for block in zip(k, v, masks, strict=True)])))
        return torch.stack(outs)

    return answer


def _by_order_of_ranks(q, k, v, positions):
    """Later ranks hidden, earlier ones seen, and a triangle for the own block."""
    num_ranks, length = q.shape[:2]
    seen = make_causal_mask(num_ranks * length, device=q.device)
    whole = attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), seen)[0]
    return whole.unflatten(0, (num_ranks, length))


simulate_ring = Exercise(
    name="simulate_ring",
    trials=_rings,
    right=_ring,
    returns=("out",),
    mistakes={
        "own block alone": Mistake(
            "Each rank attends only to its own block, so a query never sees the rest of the text. See section 20.5.",
            {"for step in range(num_ranks)": "for step in range(1)"},
        ),
        "last block missing": Mistake(
            "The block of the last step is missing. There are as many steps as ranks, and one transfer fewer. See "
            "section 20.5.",
            {"for step in range(num_ranks)": "for step in range(num_ranks - 1)"},
        ),
        "own block missing": Mistake(
            "The rank's own block is missing. In step 0, a rank attends to its own block, before any transfer. See "
            "section 20.5.",
            {"for step in range(num_ranks)": "for step in range(1, num_ranks)"},
        ),
        "no mask": Mistake(
            "No block is masked, so every query sees the whole text, including its future. See section 20.6.",
            {", mask)": ")"},
        ),
        "every block masked as the own": Mistake(
            "Every block gets the causal mask of the rank's own block. The positions of the keys must come from the "
            "owner of the block. See section 20.21.",
            {"positions[owner] <=": "positions[rank] <="},
        ),
        "ranks taken for the order of the text": Mistake(
            "Blocks of earlier ranks are fully visible, and blocks of later ranks are hidden. This rule is right for "
            "contiguous positions, but in general only `positions` says where a key is in the text. See section 20.6.",
            _by_order_of_ranks,
        ),
        "mask on its side": Mistake(
            "The mask of each block is transposed, so a query sees later keys in its own block. The positions of the "
            "queries must be a column, and the positions of the keys a row. See section 5.1.",
            {"positions[owner] <= positions[rank][:, None]": "positions[owner][:, None] <= positions[rank]"},
        ),
        "mask inverted": Mistake(
            "The mask is inverted: a query sees its future, but neither itself nor its past. See section 5.4.",
            {"[owner] <= pos": "[owner] > pos"},
        ),
        "does not see itself": Mistake(
            "No query sees its own key, and the first query of the text sees nothing. A key at the same position is "
            "visible. See section 20.6.",
            {"[owner] <= pos": "[owner] < pos"},
        ),
        "one triangle for all blocks": Mistake(
            "Every block gets the same triangular mask. A query sees a key if the position of the key is not larger "
            "than its own position. See section 20.6.",
            {"mask = positions[owner] <= positions[rank][:, None]": "mask = make_causal_mask(q.size(1)).to(q.device)"},
        ),
        "own block masked by a triangle": Mistake(
            "The rank's own block gets a triangular mask, which is wrong if its positions are not in ascending order. "
            "The positions must decide in this block, too. See section 20.6.",
            {
                "mask = positions[owner]": "mask = make_causal_mask(q.size(1)).to(q.device) if step == 0 else "
                "positions[owner]"
            },
        ),
        "outputs averaged": Mistake(
            "The outputs of the blocks are averaged with equal weights, even if a block contains no matching key. The "
            "logsumexp of each block must decide its weight. See section 20.5.",
            _found_by_block(lambda outs: outs.mean(0)),
        ),
        "outputs added": Mistake(
            "The outputs of the blocks are added, but each output is already an average. See section 16.3.",
            _found_by_block(lambda outs: outs.sum(0)),
        ),
        "values stay at home": Mistake(
            "The keys move round the ring, but the values do not. The weights of one block are used for the values of "
            "another block. See section 20.5.",
            {"v[owner]": "v[rank]"},
        ),
        "keys and mask go opposite ways": Mistake(
            "Keys and values move in one direction, and the positions for the mask in the other direction. The "
            "positions must come from the owner of the block. See section 20.5.",
            {"positions[owner] <=": "positions[(rank + step) % num_ranks] <="},
        ),
        "logsumexp of the first block kept": Mistake(
            "The merged result keeps the logsumexp of the first block, so each later block is weighed against the "
            "first block only. Both results of a merge must go into the next merge. See section 20.5.",
            {"merge_blocks(merged, found)": "(merge_blocks(merged, found)[0], merged[1])"},
        ),
        "logsumexp of the last block kept": Mistake(
            "The merged result gets the logsumexp of the newest block, so all earlier blocks together weigh as much "
            "as this block. Both results of a merge must go into the next merge. See section 20.5.",
            {"merge_blocks(merged, found)": "(merge_blocks(merged, found)[0], found[1])"},
        ),
        "past hidden": Mistake(
            "A query sees its own position and its future, but not its past. The signs ≤ and ≥ are exchanged. See "
            "section 20.6.",
            {"[owner] <= pos": "[owner] >= pos"},
        ),
        "scaled twice": Mistake(
            "The scores are divided by √D twice, because attend_block already divides them. See section 20.5.",
            {"attend_block(q[rank],": "attend_block(q[rank] / q.size(-1) ** 0.5,"},
        ),
        "last block missing, and nothing for a single rank": Mistake(
            "The block of the last step is missing, and a single rank attends to no block at all. There are as many "
            "steps as ranks, and one transfer fewer. See section 20.5.",
            {
                "merged = None": "merged = torch.zeros_like(v[rank]), torch.full_like(q[rank, :, 0], -torch.inf)",
                "for step in range(num_ranks)": "for step in range(num_ranks - 1)",
            },
        ),
    },
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
        raise Remark("The function returns a set, and a set has no order. Return lists. See section 20.4.")
    if any(isinstance(part, Iterator) for part in found):
        raise Remark(
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
    returns=("the query heads", "the key-value heads"),
    seeds=(0,),
    mistakes={
        "query heads dealt out in turn": Mistake(
            "The query heads go to the ranks in turn. A rank needs neighbouring heads, because neighbours share a "
            "key-value head. See section 20.4.",
            {"range(rank * each, (rank + 1) * each)": "range(rank, num_heads, num_ranks)"},
        ),
        "key heads dealt out in turn": Mistake(
            "The query heads take the key-value heads in turn, but neighbouring query heads share a key-value head. "
            "See section 16.7.",
            {"head // sharing": "head % num_kv_heads"},
        ),
        "divided by the key heads": Mistake(
            "The number of a query head is divided by the number of key-value heads. It must be divided by the size "
            "of a group, which is the number of query heads divided by the number of key-value heads. See section "
            "16.7.",
            {"head // sharing": "head // num_kv_heads"},
        ),
        "key heads split among the ranks": Mistake(
            "The key-value heads are divided among the ranks like the query heads. If there are fewer key-value heads "
            "than ranks, some ranks get none, although their query heads need one. See section 20.4.",
            {
                "sorted({head // sharing for head in heads})": "list(range(rank * num_kv_heads // num_ranks, "
                "(rank + 1) * num_kv_heads // num_ranks))"
            },
        ),
        "a key head of one's own": Mistake(
            "If there are fewer key-value heads than ranks, each rank gets the key-value head with its own number, "
            "which may not exist. Some ranks must share a key-value head. See section 20.4.",
            {
                "sorted({head // sharing for head in heads})": "list(range(rank * max(1, num_kv_heads // num_ranks), "
                "(rank + 1) * max(1, num_kv_heads // num_ranks)))"
            },
        ),
        "key heads as a set holds them": Mistake(
            "The key-value heads are right, but they are not always in ascending order, because a set has no order. "
            "See section 20.4.",
            {"sorted({head // sharing for head in heads})": "list({head // sharing for head in heads})"},
        ),
        "one for each query head": Mistake(
            "A key-value head is listed once for each query head that reads it, but each number must appear only "
            "once. See section 20.4.",
            {"sorted({head // sharing for head in heads})": "[head // sharing for head in heads]"},
        ),
        "all key heads": Mistake(
            "The rank gets all key-value heads, but it needs only those that its own query heads read. See section "
            "20.4.",
            {"sorted({head // sharing for head in heads})": "list(range(num_kv_heads))"},
        ),
        "first key head alone": Mistake(
            "Only the key-value head of the first query head is returned. The other query heads of the rank may read "
            "other key-value heads. See section 20.4.",
            {"return heads, groups": "return heads, groups[:1]"},
        ),
        "one query head too many": Mistake(
            "The rank has one query head too many, the first head of the next rank. A range ends before its second "
            "number. See section 20.4.",
            {"(rank + 1) * each))": "(rank + 1) * each + 1))"},
        ),
        "whole groups": Mistake(
            "The rank gets all query heads of its key-value heads, so ranks that share a key-value head compute the "
            "same query heads twice. Each query head belongs to one rank. See section 20.4.",
            {"return heads, groups": "return [head for head in range(num_heads) if head // sharing in groups], groups"},
        ),
        "last key head missing": Mistake(
            "The last key-value head is missing. A range ends before its second number. See section 20.4.",
            {"return heads, groups": "return heads, groups[:-1]"},
        ),
        "last key head missing where there are several": Mistake(
            "If the rank needs several key-value heads, the last of them is missing. See section 20.4.",
            {"return heads, groups": "return heads, groups[:-1] or groups"},
        ),
    },
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
    returns=("the loss",),
    gradients=True,
    mistakes={
        "empty ranks left out": Mistake(
            "A rank without targets that count is not counted as a rank. DDP divides by the number of all ranks, "
            "including ranks with a gradient of 0. See section 20.3.",
            {"len(counts)": "int((counts > 0).sum())"},
        ),
        "mean of means": Mistake(
            "This is the mean over the targets of this rank. After DDP's average, a target in a short shard weighs "
            "more than a target in a long shard, and a rank without targets gives nan. See section 20.3.",
            lambda logits, targets, counts: F.cross_entropy(logits.mT, targets),
        ),
        "ranks forgotten": Mistake(
            "This is the rank's part of the mean over all ranks. DDP averages the gradients instead of adding them, "
            "so the result is too small by the number of ranks. See section 20.3.",
            {" * len(counts)": ""},
        ),
        "divided by the ranks": Mistake(
            "The loss is divided by the number of ranks, and DDP divides by it once more. Multiply by the number of "
            "ranks instead. See section 20.3.",
            {"* len(counts)": "/ len(counts)"},
        ),
        "own count": Mistake(
            "The sum is divided by the count of this rank. All ranks must divide by the same number, the total of all "
            "counts. See section 20.3.",
            {"counts.sum()": "(targets != -100).sum()"},
        ),
        "padding counted": Mistake(
            "The sum is divided by the number of all targets in the shard, including targets that do not count. See "
            "section 20.3.",
            {"counts.sum()": "targets.numel()"},
        ),
        "not divided": Mistake(
            "This is the sum over the targets of this rank, multiplied by the number of ranks. It must be divided by "
            "the number of targets that count on all ranks. See section 12.2.",
            {" / counts.sum()": ""},
        ),
        "sum alone": Mistake(
            "This is the sum over the targets of this rank, and nothing is divided. DDP divides only by the number of "
            "ranks, but the exercise asks for a mean over targets. See section 20.3.",
            {" / counts.sum() * len(counts)": ""},
        ),
        "average count": Mistake(
            "The sum is divided by the average count and multiplied by the number of ranks, so the number of ranks is "
            "used twice. See section 20.3.",
            {"counts.sum()": "counts.double().mean().to(logits.dtype)"},
        ),
        "largest count": Mistake(
            "The sum is divided by the count of the longest shard, but all ranks together have more targets. See "
            "section 20.3.",
            {"counts.sum()": "counts.max()"},
        ),
        "one loss for each target": Mistake(
            "The function returns a loss for each target, but the backward pass needs a single number. See section "
            "20.3.",
            {'reduction="sum"': 'reduction="none"'},
        ),
        "nan without targets": Mistake(
            "A shard without targets that count gives nan. The mean over no targets is 0/0, and nan multiplied by any "
            "number is still nan. A sum over no targets is 0. See section 20.3.",
            lambda logits, targets, counts: (
                F.cross_entropy(logits.mT, targets) * (targets != -100).sum() / counts.sum() * len(counts)
            ),
        ),
        "sentences for ranks": Mistake(
            "The loss is multiplied by the number of rows in the shard, but DDP divides by the number of ranks. See "
            "section 20.3.",
            {"len(counts)": "len(targets)"},
        ),
        "0 taken for padding": Mistake(
            "Targets with the id 0 are left out, but here −100 marks targets that do not count. See section 20.3.",
            {"logits.mT, targets,": "logits.mT, targets.masked_fill(targets == 0, -100),"},
        ),
        "what does not count is taken for 0": Mistake(
            "Targets of −100 count like the id 0. They must be left out. See section 20.3.",
            {"logits.mT, targets,": "logits.mT, targets.clamp(min=0),"},
        ),
        "own mean, 0 without targets": Mistake(
            "This is the mean over the targets of this rank, or 0 if there are none. After DDP's average, a target in "
            "a short shard weighs more than a target in a long shard. See section 20.3.",
            {"/ counts.sum() * len(counts)": "/ (targets != -100).sum().clamp(min=1)"},
        ),
        "average count cut to a whole number": Mistake(
            "The sum is divided by the average count, but this average was rounded down to an integer. See section "
            "20.3.",
            {"/ counts.sum() * len(counts)": "/ (counts.sum() // len(counts))"},
        ),
        "share counted twice": Mistake(
            "The sum over the targets is multiplied by the share of the rank, but the sum already contains this "
            "share. Only a mean needs the share. See section 20.3.",
            {"    return total": "    total = total * (targets != -100).sum() / counts.sum()\n    return total"},
        ),
    },
)
