"""The exercises of the chapter on what heads learn. Used from chapter 18 on."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark
from attn_course.multi_head_attention import MultiHeadAttention

# ---------------------------------------------------------------- induction on any text


def _looks(draw):
    def looks(heads, ids, dtype=torch.float32):
        ids = torch.tensor(ids, device=draw.device)
        B, T = ids.shape
        scores = draw(B, heads, T, T, dtype=dtype)
        future = torch.ones(T, T, dtype=torch.bool, device=draw.device).triu(1)
        return scores.masked_fill(future, -torch.inf).softmax(-1), ids

    yield "a block and its copy", *looks(3, [[4, 1, 3, 4, 1, 3, 4]])
    yield "tokens that come three times", *looks(2, [[0, 1, 2, 0, 5, 0, 1], [1, 2, 3, 4, 2, 1, 2]])
    yield "a token twice in a row", *looks(2, [[3, 3, 0, 1, 3], [2, 0, 0, 0, 1]])
    yield "texts with many and with few repetitions", *looks(3, [[1, 1, 2, 1, 2, 1], [0, 1, 2, 3, 4, 0]])
    yield "a text without any beside one with", *looks(2, [[0, 1, 2, 3], [4, 1, 4, 1]])
    yield "float64", *looks(5, [[0, 2, 1, 0, 2, 1, 1], [6, 0, 6, 0, 6, 0, 6]], torch.float64)
    yield "ids of a large vocabulary", *looks(2, [[128_000, 128_001, 1, 257, 128_000, 1, 257]])
    yield "one head, a longer text", *looks(1, [[t % 17 for t in range(50)]])


def _induction(weights, ids):
    same = ids[:, :, None] == ids[:, None]  # (B, T, T)
    earlier = same.tril(-1)
    after = F.pad(earlier, (1, 0))[..., :-1]
    past = earlier.any(dim=-1)
    return (weights * after[:, None]).sum(dim=(0, 2, 3)) / past.sum()


induction_score = Exercise(
    name="induction_score",
    trials=_looks,
    right=_induction,
    mistakes={
        "the earlier place itself": Mistake(
            "It is the weight on the earlier occurrence itself: an induction head looks at the token after it, one "
            "column further. See section 18.1.",
            {"after[:, None]": "earlier[:, None]"},
        ),
        "one place too far": Mistake(
            "It is the weight two places after the earlier occurrence: the token that came next is one place after it. "
            "See section 18.1.",
            {"(1, 0))[..., :-1]": "(2, 0))[..., :-2]"},
        ),
        "the place before": Mistake(
            "It is the weight on the token before the earlier occurrence: the token that came next is one column "
            "to the right. See section 18.1.",
            {"(1, 0))[..., :-1]": "(0, 1))[..., 1:]"},
        ),
        "all queries counted": Mistake(
            "It is the sum of the weights divided by the number of all queries: those whose token has not stood before "
            "cannot look right and do not count. See section 18.1.",
            {"past.sum()": "past.numel()"},
        ),
        "later places count as a past": Mistake(
            "A query also counts if its token comes only later: a past is an earlier place, s < t. See section 18.1.",
            {"past = earlier.any(dim=-1)": "past = same.sum(dim=-1) > 1"},
        ),
        "not divided": Mistake(
            "It is the sum of the weights: divide by the number of queries with a past. See section 18.1.",
            {" / past.sum()": ""},
        ),
        "divided by the number of places": Mistake(
            "The sum is divided by the number of right places, and a query with two of them counts twice: divide by "
            "the number of queries. See section 18.1.",
            {"past.sum()": "earlier.sum()"},
        ),
        "mean over the places": Mistake(
            "Where a token stood before several times, the weights on the places after them are averaged: they add up. "
            "See section 18.1.",
            {"after[:, None])": "after[:, None] / after.sum(-1)[:, None, :, None].clamp(min=1))"},
        ),
        "largest of the places": Mistake(
            "Where a token stood before several times, only the largest of the weights counts: they add up. See "
            "section 18.1.",
            {".sum(dim=(0, 2, 3))": ".amax(-1).sum(dim=(0, 2))"},
        ),
        "last place only": Mistake(
            "Only the place after the last earlier occurrence counts: after each of them an induction head looks "
            "right. See section 18.1.",
            {"pad(earlier,": "pad(earlier & (earlier.flip(-1).cumsum(-1).flip(-1) == 1),"},
        ),
        "first place only": Mistake(
            "Only the place after the first occurrence counts: after each of them an induction head looks right. See "
            "section 18.1.",
            {"pad(earlier,": "pad(earlier & (earlier.cumsum(-1) == 1),"},
        ),
        "counts the largest weights": Mistake(
            "It counts how often the largest weight of a row is in the right place; the score is the weight itself. "
            "See section 18.1.",
            {"(weights *": "(F.one_hot(weights.argmax(-1), ids.size(1)).to(weights) *"},
        ),
        "queries and keys exchanged": Mistake(
            "Rows and columns are exchanged: a row belongs to the query, and a column to the token that it looks at. "
            "See section 2.5.",
            {"weights * after": "weights.mT * after"},
        ),
        "mean of the texts' means": Mistake(
            "Every text counts the same, however often something comes again in it: here every query with a past "
            "should. See section 18.1.",
            {".sum(dim=(0, 2, 3)) / past.sum()": ".sum(dim=(2, 3)).div(past.sum(1)[:, None].clamp(min=1)).mean(0)"},
        ),
        "mean of the texts' means, of which one is 0/0": Mistake(
            "Every text gives a mean of its own, and one in which nothing comes again gives 0/0, which is nan: add up "
            "over all texts first, and divide once. See section 18.1.",
            {".sum(dim=(0, 2, 3)) / past.sum()": ".sum(dim=(2, 3)).div(past.sum(1)[:, None]).mean(0)"},
        ),
        "one number for each text": Mistake(
            "There is a number for each text and each head: the mean runs over the queries of all texts together. See "
            "section 18.1.",
            {".sum(dim=(0, 2, 3)) / past.sum()": ".sum(dim=(2, 3)) / past.sum(1)[:, None].clamp(min=1)"},
        ),
        "one number for all heads": Mistake(
            "This is the mean of the heads' scores, and heads differ: keep their axis. See section 18.2.",
            lambda weights, ids: _induction(weights, ids).mean(),
        ),
        "first text only": Mistake(
            "Only the first text is looked at. See section 18.1.",
            lambda weights, ids: _induction(weights[:1], ids[:1]),
        ),
        "last column comes round": Mistake(
            "The table of equal tokens is rolled, and its last column comes round to the first: a query with the "
            "text's "
            "last token gets credit for the first place. Nothing stands before the first place. See section 18.1.",
            {
                "after = F.pad(earlier, (1, 0))[..., :-1]": "after = same.roll(1, dims=-1)",
                "after[:, None])": "(after & earlier.any(dim=-1, keepdim=True))[:, None])",
            },
        ),
        "own place left out": Mistake(
            "Where a token comes twice in a row, the place after the first of them is the query's own, and its weight "
            "there is not counted: it counts as well. See section 18.1.",
            {"[..., :-1]": "[..., :-1].tril(-1)"},
        ),
    },
)


# ---------------------------------------------------------------- heads replaced by their means


def _padded(draw):
    def batch(lengths, num_heads, width, heads, dtype=torch.float32):
        x = draw(len(lengths), max(lengths), num_heads * width, dtype=dtype) + 1
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        return x, num_heads, heads, mask.to(draw.device)

    def on_the_left(x, num_heads, heads, mask):
        return x, num_heads, heads, mask.flip(1)

    yield "one head of three, no padding", *batch([5, 5], 3, 4, [1])
    yield "texts of different lengths", *batch([7, 2, 5], 3, 2, [2])
    yield "two heads of five", *batch([3, 7], 5, 3, [3, 0])
    yield "padding on the left", *on_the_left(*batch([2, 7, 3], 3, 2, [1]))
    yield "as many heads as columns in each", *batch([5, 2], 3, 3, [1, 2])
    yield "all heads", *batch([2, 5, 3], 2, 7, [0, 1])
    yield "one text", *batch([5], 3, 2, [0])
    yield "no head", *batch([3, 5], 2, 3, [])
    yield "float64", *batch([7, 3], 3, 5, [0, 2], torch.float64)


def _ablate(x, num_heads, heads, mask):
    new = x.clone().unflatten(-1, (num_heads, -1))  # (B, T, H, D)
    mean = x[mask].mean(dim=0).unflatten(-1, (num_heads, -1))  # (H, D)
    new[:, :, heads] = mean[heads]
    return new.flatten(2)


def _as_new(answer, x, num_heads, heads, mask):
    found = answer(x, num_heads, heads, mask)
    if not heads and found is x:
        copy = x.clone()
        answer(copy, num_heads, [0], mask)
        if torch.equal(copy, x):  # whoever writes into what was given is told that
            raise Remark(
                "With no head to replace it returns x itself, and a new tensor is asked for: whoever writes into the "
                "result would change what was measured. See section 18.4."
            )
    return found


def _heads_as_columns(x, num_heads, heads, mask):
    new = x.clone()
    new[..., heads] = x[mask].mean(0)[heads]
    return new


def _others(num_heads, heads):
    return [head for head in range(num_heads) if head not in heads]


ablate_heads = Exercise(
    name="ablate_heads",
    trials=_padded,
    right=_ablate,
    use=_as_new,
    mistakes={
        "zero": Mistake(
            "The heads are replaced by zeros, which is zero ablation: here it is their mean. See section 18.4.",
            {"= mean[heads]": "= 0"},
        ),
        "padding counted": Mistake(
            "The rows of the padding are in the mean: nobody reads them, and they are as many as the longest text asks "
            "for. See section 17.6.",
            {"x[mask].mean(dim=0)": "x.mean(dim=(0, 1))"},
        ),
        "padding in the sum": Mistake(
            "The rows of the padding are in the sum, which is divided by the number of tokens. See section 17.6.",
            {"x[mask].mean(dim=0)": "(x.sum(dim=(0, 1)) / mask.sum())"},
        ),
        "divided by all places": Mistake(
            "The padding is left out of the sum and counted in the divisor. See section 17.6.",
            {"x[mask].mean(dim=0)": "(x[mask].sum(dim=0) / mask.numel())"},
        ),
        "mask inverted": Mistake(
            "It is the mean of the padding: True stands for a token. See section 5.4.",
            {"x[mask]": "x[~mask]"},
        ),
        "first places for the tokens": Mistake(
            "These are means over the first places of each text, as many as it has tokens: `mask` says where they are, "
            "and padding may stand in front. See section 5.4.",
            {"x[mask]": "x[mask.sort(dim=1, descending=True).values]"},
        ),
        "one mean for each text": Mistake(
            "Each text gets a mean of its own, which still tells the texts apart: take it over the whole batch. See "
            "section 18.4.",
            {
                "x[mask].mean(dim=0)": "(x * mask[..., None]).sum(1, keepdim=True).div(mask.sum(1)[:, None, None])",
                "mean[heads]": "mean[:, :, heads]",
            },
        ),
        "one mean for each place": Mistake(
            "Each place gets a mean of its own, which still tells the places apart: take it over all of them. See "
            "section 18.4.",
            {
                "x[mask].mean(dim=0)": "(x * mask[..., None]).sum(0).div(mask.sum(0)[:, None])",
                "mean[heads]": "mean[:, heads]",
            },
        ),
        "one number for all columns": Mistake(
            "All columns get the same number: a mean is taken over tokens, and each column keeps its own. See section "
            "18.4.",
            {"x[mask].mean(dim=0)": "x[mask].mean().expand(x.size(-1))"},
        ),
        "one number for each head": Mistake(
            "All columns of a head get the same number: a mean is taken over tokens, and each column keeps its own. "
            "See section 18.4.",
            {"= mean[heads]": "= mean[heads].mean(dim=-1, keepdim=True)"},
        ),
        "not divided": Mistake(
            "It is the sum over the tokens: divide by their number. See section 18.4.",
            {".mean(dim=0)": ".sum(dim=0)"},
        ),
        "heads interleaved": Mistake(
            "A head gets every H-th column: head h has D columns side by side, from h · D on. See section 6.2.",
            {
                "x.clone().unflatten(-1, (num_heads, -1))": "x.clone().unflatten(-1, (-1, num_heads))",
                "(dim=0).unflatten(-1, (num_heads, -1))": "(dim=0).unflatten(-1, (-1, num_heads))",
                "new[:, :, heads] = mean[heads]": "new[..., heads] = mean[:, heads]",
            },
        ),
        "heads taken for columns": Mistake(
            "The head's number is used as the number of a column: head h has D columns, from h · D on. "
            "See section 6.2.",
            _heads_as_columns,
        ),
        "the other heads": Mistake(
            "The heads that were named are kept and all others are replaced. See section 18.4.",
            lambda x, num_heads, heads, mask: _ablate(x, num_heads, _others(num_heads, heads), mask),
        ),
        "all heads replaced": Mistake(
            "All heads are replaced, also those that were not named. See section 18.4.",
            lambda x, num_heads, heads, mask: _ablate(x, num_heads, list(range(num_heads)), mask),
        ),
        "first head only": Mistake(
            "Only the first of the heads that were named is replaced. See section 18.4.",
            lambda x, num_heads, heads, mask: _ablate(x, num_heads, heads[:1], mask),
        ),
        "mean over the heads": Mistake(
            "A head is replaced by the mean of all heads at its own place, which still depends on the token: average "
            "over tokens. See section 18.4.",
            {
                "x[mask].mean(dim=0).unflatten(-1, (num_heads, -1))": "new.mean(dim=2, keepdim=True)",
                "mean[heads]": "mean",
            },
        ),
        "padding not replaced": Mistake(
            "The heads are replaced at the tokens and not at the padding: here it is at every place. See section 18.4.",
            lambda x, num_heads, heads, mask: _ablate(x, num_heads, heads, mask).where(mask[..., None], x),
        ),
        "heads left as an axis": Mistake(
            "The numbers are right, and the heads still have an axis of their own: the output projection wants "
            "(B, T, E). See section 6.4.",
            {"return new.flatten(2)": "return new"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "A hook that writes into what it was given changes it for whoever keeps it, so the next measurement starts "
            "from the ablated numbers. See section 18.4."
        ),
        "mean of the texts' means": Mistake(
            "This is the mean of the texts' means, in which a token of a short text counts more than one of a long "
            "one: "
            "average over the tokens of all texts together. See section 18.4.",
            {"x[mask].mean(dim=0)": "((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).mean(0)"},
        ),
        "one mean for several heads": Mistake(
            "The heads that are replaced all get one vector, the mean over them too: each has a mean of its own. See "
            "section 18.4.",
            {"= mean[heads]": "= mean[heads].mean(dim=0) if heads else mean[heads]"},
        ),
    },
)


# ---------------------------------------------------------------- rollout


def _layers(draw):
    def layers(num_layers, batch, heads, T, dtype=torch.float32, causal=False):
        scores = draw(num_layers, batch, heads, T, T, dtype=dtype) * 2
        if causal:
            future = torch.ones(T, T, dtype=torch.bool, device=draw.device).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        return scores.softmax(-1), draw(num_layers, dtype=dtype).sigmoid()

    yield "three layers", *layers(3, 2, 5, 7)
    yield "causal weights", *layers(4, 2, 3, 5, causal=True)
    yield "one text, one head", *layers(2, 1, 1, 5)
    yield "one layer", *layers(1, 3, 2, 5)
    yield "as many layers as tokens", *layers(5, 2, 3, 5)
    yield "float64", *layers(3, 2, 2, 7, torch.float64)
    weights, _ = layers(3, 2, 2, 5)
    ends = torch.tensor([1.0, 0.0, 0.5], device=draw.device)
    yield "all, nothing and half through the residual connection", weights, ends


def _roll(weights, residual):
    same = torch.eye(weights.size(-1)).to(weights)
    rolled, after = same, []
    for layer, keep in zip(weights, residual, strict=True):
        rolled = (keep * same + (1 - keep) * layer.mean(dim=1)) @ rolled
        after.append(rolled)
    return torch.stack(after)


def _largest(layer):
    largest = layer.amax(dim=1)
    return largest / largest.sum(dim=-1, keepdim=True)


rollout = Exercise(
    name="rollout",
    trials=_layers,
    right=_roll,
    mistakes={
        "no residual": Mistake(
            "This is the product of the maps alone: through the residual connection a token keeps a part of its own. "
            "See section 18.11.",
            {"(keep * same + (1 - keep) * layer.mean(dim=1))": "layer.mean(dim=1)"},
        ),
        "parts exchanged": Mistake(
            "Residual connection and attention have exchanged their parts: `residual` is what the identity gets. See "
            "section 18.11.",
            {"keep * same + (1 - keep) *": "(1 - keep) * same + keep *"},
        ),
        "half for all layers": Mistake(
            "The residual connection gets one half in every layer: `residual` says it for each. See section 18.11.",
            {"keep * same + (1 - keep) *": "0.5 * same + 0.5 *"},
        ),
        "first layer's residual for all": Mistake(
            "All layers have the residual part of the first one. See section 18.11.",
            {"zip(weights, residual,": "zip(weights, residual[:1].expand_as(residual),"},
        ),
        "not weighted": Mistake(
            "The identity is added without taking anything from attention, so the rows sum to more than 1. See section "
            "18.6.",
            {"(1 - keep) * layer": "layer"},
        ),
        "later layers on the right": Mistake(
            "The matrices are multiplied in the wrong order: a later layer reads what an earlier one has made, so it "
            "stands on the left. See section 18.11.",
            lambda weights, residual: _roll(weights.mT, residual).mT,
        ),
        "last layer first": Mistake(
            "The layers are gone through from the last to the first. See section 18.11.",
            {"zip(weights, residual,": "zip(weights.flip(0), residual.flip(0),"},
        ),
        "each layer alone": Mistake(
            "These are the matrices of the layers, each alone: multiply them. See section 18.11.",
            {" @ rolled": ""},
        ),
        "residual from the input": Mistake(
            "The identity's part in each layer is added to the product and not multiplied: the residual connection "
            "brings what the layer before has made. See section 18.11.",
            {
                "(keep * same + (1 - keep) * layer.mean(dim=1)) @ rolled": (
                    "keep * same + (1 - keep) * layer.mean(dim=1) @ rolled"
                )
            },
        ),
        "heads added up": Mistake(
            "The heads are added up, so the rows sum to more than 1: average them. See section 18.11.",
            {"layer.mean(dim=1)": "layer.sum(dim=1)"},
        ),
        "largest head": Mistake(
            "It takes the largest weight of all heads, so the rows sum to more than 1: average them. "
            "See section 18.11.",
            {"layer.mean(dim=1)": "layer.amax(dim=1)"},
        ),
        "first head only": Mistake(
            "Only the first head is looked at: average them. See section 18.11.",
            {"layer.mean(dim=1)": "layer[:, 0]"},
        ),
        "multiplied cell by cell": Mistake(
            "The maps are multiplied cell by cell: what goes from a token to another goes through any third one, which "
            "is a matrix product. See section 18.11.",
            {"rolled, after = same, []": "rolled, after = torch.ones_like(same), []", ") @ rolled": ") * rolled"},
        ),
        "transposed": Mistake(
            "Rows and columns are exchanged: a row belongs to the token at which something arrives. See section 2.5.",
            {"torch.stack(after)": "torch.stack(after).mT"},
        ),
        "last layer only": Mistake(
            "Only the last rollout comes back: the exercise asks for one after each layer. See section 18.11.",
            {"torch.stack(after)": "after[-1]"},
        ),
        "begins with the identity": Mistake(
            "The identity before the first layer comes back too, so there is one more than there are layers. See "
            "section 18.11.",
            {"torch.stack(after)": "torch.stack([same.expand_as(rolled), *after])"},
        ),
        "averaged over the texts": Mistake(
            "The texts of the batch are averaged too: each has a rollout of its own. See section 18.11.",
            {"layer.mean(dim=1)": "layer.mean(dim=(0, 1)).expand(len(layer), -1, -1)"},
        ),
        "first layer without its residual": Mistake(
            "The first layer counts without its residual connection: its matrix, too, is a mix of the identity and the "
            "weights. See section 18.11.",
            {"zip(weights, residual,": "zip(weights, F.pad(residual[1:], (1, 0)),"},
        ),
        "before each layer": Mistake(
            "Here stands what has arrived before each layer, first the identity, and what arrives after the last layer "
            "is missing: asked for is the rollout after each. See section 18.11.",
            lambda weights, residual: torch.cat(
                [torch.eye(weights.size(-1)).to(weights).expand_as(weights[:1, :, 0]), _roll(weights, residual)[:-1]]
            ),
        ),
        "largest weights of the heads": Mistake(
            "The heads are joined by the largest of their weights, and each row is divided by its sum: it should be "
            "their "
            "mean. See section 18.11.",
            {"layer.mean(dim=1)": "_largest(layer)"},
        ),
    },
)


# ---------------------------------------------------------------- data that cannot be cheated

_SEEDS = (3, 4)  # what two calls draw from
_STEPS, _BATCH, _RATE = 100, 64, 4e-3
_MOST_OFTEN = 0.4  # a distance that so many strings share can be counted


def _sizes(draw):
    yield "a few strings", 48, 5, 29, 13
    yield "strings into which the two just fit", 32, 7, 15, 11
    yield "a layer trained on them", _STEPS * _BATCH // 5, 3, 32, 16


def _hide(num_strings, block, length, vocab_size, rng):
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    first = (torch.rand(num_strings, 1, generator=rng) * (length - 2 * block + 1)).long()
    room = length - 2 * block + 1 - first
    second = first + block + (torch.rand(num_strings, 1, generator=rng) * room).long()
    inside = torch.arange(block)
    ids.scatter_(1, second + inside, ids.gather(1, first + inside))
    known = torch.zeros(num_strings, length, dtype=torch.bool)
    return ids, known.scatter_(1, second + inside[:-1], True)


def _judge_strings(answer, num_strings, block, length, vocab_size):
    """The name of the mistake that the answer's strings show; the empty string if they show none."""
    sizes = num_strings, block, length, vocab_size
    drawn = [answer(*sizes, torch.Generator().manual_seed(seed)) for seed in _SEEDS]
    if drawn[0] is None:
        return None
    for found in drawn:
        _check_form(found, *sizes)
    (ids, known), (again, _) = drawn
    starts = []
    for row, is_known in zip(ids[:64], known[:64], strict=True):
        start = _copy_of(row, is_known, block)
        if isinstance(start, str):
            return start
        starts.append(start)
    first, second = torch.tensor(starts).T
    if torch.equal(ids, again):
        return "the same strings every time"
    if num_strings < 100:
        rng = torch.Generator().manual_seed(_SEEDS[0])
        if torch.equal(answer(*sizes, rng)[0], answer(*sizes, rng)[0]):
            return "rng begins again"
        torch.manual_seed(_SEEDS[1])  # what is drawn from elsewhere differs now
        random.seed(_SEEDS[1]), np.random.seed(_SEEDS[1])
        if not torch.equal(ids, answer(*sizes, torch.Generator().manual_seed(_SEEDS[0]))[0]):
            return "not drawn from rng"
    if length < 3 * block:
        return ""  # there is room for a few distances only
    distance = second - first
    if (distance.bincount().max() / len(distance)) > _MOST_OFTEN:
        return "one distance" if len(distance.unique()) == 1 else "few distances"
    if ids.flatten().bincount().max() > max(4 / vocab_size, 0.3) * ids.numel():
        return "not random"
    if len(ids.unique()) < vocab_size:
        return "numbers left out"
    after = [(row[f + block], row[s + block]) for row, (f, s) in zip(ids, starts, strict=False) if s + block < length]
    if len(after) > 16 and sum(bool(one == other) for one, other in after) > 0.9 * len(after):
        return "copy too long"
    stretches = torch.stack([row[s : s + block] for row, s in zip(ids, second.tolist(), strict=False)])
    if len(stretches.unique(dim=0)) < len(stretches) / 2:
        return "one stretch for all"
    if num_strings >= _STEPS * _BATCH // 5 and answer is not _hide and _one_layer_learns(ids, known, vocab_size):
        return "one layer learns it"
    return ""


def _check_form(found, num_strings, block, length, vocab_size):
    if not isinstance(found, tuple | list) or len(found) != 2 or not all(isinstance(t, Tensor) for t in found):
        raise Remark("It must return two tensors, ids and known. See section 18.1.")
    ids, known = found
    shape = (num_strings, length)
    if ids.shape != shape or known.shape != shape:
        raise Remark(
            f"ids has the shape {tuple(ids.shape)} and known {tuple(known.shape)}; both must be "
            f"(num_strings, length), here {shape}. See section 18.1."
        )
    if ids.dtype != torch.int64 or known.dtype != torch.bool:
        raise Remark(
            f"ids has the type {ids.dtype} and known {known.dtype}; they must be torch.int64 and torch.bool. "
            "See section 18.1."
        )
    if ids.device.type != "cpu" or known.device.type != "cpu":
        raise Remark("ids and known must be on the CPU, where rng draws. See section 18.1.")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise Remark(
            f"ids go from {ids.min()} to {ids.max()}; they must go from 0 to vocab_size - 1, here "
            f"{vocab_size - 1}. See section 18.1."
        )


def _places(row, start, block):
    """Where the stretch that begins at start stands too."""
    if start < 0 or start + block > len(row):
        return []
    same = (row.unfold(0, block, 1) == row[start : start + block]).all(-1)
    return [s for s in same.nonzero()[:, 0].tolist() if s != start]


def _copy_of(row, known, block):
    """Where the two stretches begin, or the name of a mistake."""
    at = known.nonzero()[:, 0].tolist()
    if not at:
        return "nothing known"
    start, count = at[0], len(at)
    if at != list(range(start, start + count)):
        return "known elsewhere"
    earlier = [s for s in _places(row, start, block) if s < start]
    apart = [s for s in earlier if s + block <= start]
    if count == block - 1 and apart:
        return apart[-1], start
    if count == block and apart:
        return "last token known"
    if count == block - 1 and any(s < start for s in _places(row, start - 1, block)):
        return "the tokens themselves"
    if count == block - 1 and any(s <= start for s in _places(row, start + 1, block)):
        return "one place too early"
    if any(s >= start + block for s in _places(row, start, block)):
        return "first stretch known"
    if earlier and not apart:
        return "overlap"
    if count == block - 1 and any(s < start for s in _places(row, start, block - 1)):
        return "copy too short"
    return "no copy" if count == block - 1 else "known elsewhere"


class _OneLayer(nn.Module):
    """One layer of attention with learned and with rotary positions, which can count either way."""

    def __init__(self, vocab_size, length, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.position_embed = nn.Embedding(length, width)
        self.layer = MultiHeadAttention(width, 2)
        self.to_logits = nn.Linear(width, vocab_size)

    def forward(self, ids):
        here = torch.arange(ids.size(1))
        x = self.embed(ids) + self.position_embed(here)
        return self.to_logits(x + self.layer(x, positions=here, is_causal=True)[0])


def _one_layer_learns(ids, known, vocab_size):
    torch.manual_seed(0)
    model = _OneLayer(vocab_size, ids.size(1))
    weights = list(model.parameters())
    momentum = [torch.zeros_like(weight) for weight in weights]
    known = known[:, :-1]
    for step in range(_STEPS):
        chosen = torch.arange(step * _BATCH, (step + 1) * _BATCH) % len(ids)
        logits = model(ids[chosen])[:, :-1][known[chosen]]
        loss = F.cross_entropy(logits, ids[chosen, 1:][known[chosen]])
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():  # steps by sign: the first use of torch.optim would import for seconds
            for weight, mean, gradient in zip(weights, momentum, gradients, strict=True):
                weight.sub_(mean.lerp_(gradient, 0.2).sign(), alpha=_RATE)
    with torch.no_grad():
        guesses = model(ids[:512]).argmax(-1)[:, :-1]
    return bool((guesses == ids[:512, 1:])[known[:512]].float().mean() > 0.5)


def _shows(name):
    return lambda found, *sizes: found == name


hide_copy = Exercise(
    name="hide_copy",
    trials=_sizes,
    right=_hide,
    use=_judge_strings,
    accepts=lambda found, *sizes: found == "",
    seeds=(0,),
    mistakes={
        name: Mistake(f"{says} See section {section}.", sign=_shows(name))
        for name, section, says in (
            (
                "one distance",
                "18.1",
                "In all strings the copy stands at the same distance, so a head that counts gets it right: draw where "
                "the two stretches begin for each string.",
            ),
            (
                "few distances",
                "18.1",
                "Two strings in five, or more, have the same distance between the stretches, and one that common can "
                "be counted on: let it vary over all that there is room for.",
            ),
            (
                "one layer learns it",
                "18.1",
                "One layer was trained on these strings and is right more often than wrong, without being able to "
                "search: something else gives the next token away, such as tokens that follow each other in order.",
            ),
            (
                "one stretch for all",
                "18.1",
                "Many strings share a stretch, which a model can learn by heart: draw one for each.",
            ),
            (
                "not random",
                "18.1",
                "One token takes up much of the strings, so what is not it stands out: everything outside the copy is "
                "to be random too.",
            ),
            (
                "numbers left out",
                "18.1",
                "Some number below `vocab_size` stands nowhere: draw from all of them, 0 and `vocab_size` - 1 too.",
            ),
            (
                "the same strings every time",
                "18.1",
                "Two generators in different states give the same strings, which a model can learn by heart: draw from "
                "`rng`.",
            ),
            (
                "not drawn from rng",
                "18.1",
                "The same `rng` in the same state gives other strings: what is drawn from another generator nobody can "
                "make again.",
            ),
            (
                "rng begins again",
                "18.1",
                "Two calls with one and the same `rng` give the same strings, as a call does that leaves its state "
                "alone: draw from `rng` itself, which moves on with all that it draws.",
            ),
            (
                "copy too long",
                "18.1",
                "After the second stretch comes the token that comes after the first, in nine strings of ten or more: "
                "it is determined as well then, and `known` does not say so. Copy `block` tokens and no more.",
            ),
            (
                "no copy",
                "18.1",
                "In some string the stretch that begins where `known` is first True stands nowhere before: all of its "
                "`block` tokens are to be those of an earlier stretch.",
            ),
            (
                "copy too short",
                "18.1",
                "The last token of the second stretch is not that of the first: all `block` tokens are to be copied.",
            ),
            (
                "overlap",
                "18.1",
                "In some string the second stretch begins before the first has ended: begin it `block` tokens later at "
                "the earliest.",
            ),
            ("nothing known", "18.1", "In some string `known` is True nowhere: every string has a copy."),
            (
                "last token known",
                "18.1",
                "`known` is True at the last token of the copy too, and what comes after that one is random.",
            ),
            (
                "the tokens themselves",
                "18.1",
                "`known` marks the tokens that are determined; it should mark those whose next one is, one place to "
                "the left.",
            ),
            (
                "one place too early",
                "18.1",
                "`known` is True before the copy has begun: nobody can tell that it will begin.",
            ),
            (
                "first stretch known",
                "18.1",
                "In some string `known` marks the first stretch, where nothing has been seen before: the second one is "
                "determined.",
            ),
            (
                "known elsewhere",
                "18.1",
                "`known` is True at other places than the tokens of the second stretch but its last.",
            ),
        )
    },
)
