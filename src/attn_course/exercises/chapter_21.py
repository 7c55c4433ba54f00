"""The exercises of the chapter on what heads learn. Used from chapter 21 on."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.mistakes import page_of, read_mistakes
from attn_course.exercises.engine.runner import AnswerError
from attn_course.nn.multi_head_attention import MultiHeadAttention

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
    chapter=21,
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
            raise AnswerError(
                "With no head to replace, your function returns x itself. Return a new tensor, so that a write into "
                "the result does not change x. See section 21.3."
            )
    return found


ablate_heads = Exercise(
    name="ablate_heads",
    trials=_padded,
    right=_ablate,
    use=_as_new,
    chapter=21,
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
    """Return the name of the mistake that the answer's strings show; empty if there is none."""
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
        raise AnswerError("Your function must return two tensors, ids and known. See section 21.1.")
    ids, known = found
    shape = (num_strings, length)
    if ids.shape != shape or known.shape != shape:
        raise AnswerError(
            f"ids has the shape {tuple(ids.shape)} and known has {tuple(known.shape)}. Both must be "
            f"(num_strings, length), here {shape}. See section 21.1."
        )
    if ids.dtype != torch.int64 or known.dtype != torch.bool:
        raise AnswerError(
            f"ids has the type {ids.dtype} and known has {known.dtype}. They must be torch.int64 and torch.bool. "
            "See section 21.1."
        )
    if ids.device.type != "cpu" or known.device.type != "cpu":
        raise AnswerError("ids and known must be on the CPU, like rng. See section 21.1.")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise AnswerError(
            f"ids lie between {ids.min()} and {ids.max()}. They must lie between 0 and vocab_size - 1, here "
            f"{vocab_size - 1}. See section 21.1."
        )


def _places(row, start, block):
    """Return all other positions where the stretch from ``start`` occurs."""
    if start < 0 or start + block > len(row):
        return []
    same = (row.unfold(0, block, 1) == row[start : start + block]).all(-1)
    return [s for s in same.nonzero()[:, 0].tolist() if s != start]


def _copy_of(row, known, block):
    """Return where the two stretches begin, or the name of a mistake."""
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
    """One attention layer with learned and with rotary positions."""

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
    chapter=21,
    signs={line.name: _shows(line.name) for line in read_mistakes(page_of(21))["hide_copy"]},
)
