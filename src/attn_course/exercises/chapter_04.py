"""The exercises of the chapter on batches, einsum and einops. Used from chapter 4 on."""

import math

import torch
import torch.nn.functional as F

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.runner import LOOKUPS
from attn_course.functional.attention import softmax

# ---------------------------------------------------------------- a lookup as a product


def _ids_and_tables(draw):
    # The ids stay below the last word but one, which a table must have all the same.
    yield "a sentence", draw.ints(7, high=5), draw(11, 5)
    yield "a batch", draw.ints(2, 3, high=5), draw(7, 11)
    yield "a batch of one", draw.ints(1, 5, high=2), draw(5, 3)
    yield "a table as wide as long", draw.ints(2, 7, high=3), draw(5, 5)
    yield "a single id", draw.ints(high=5), draw(7, 2)
    yield "three axes", draw.ints(2, 3, 5, high=9), draw(11, 7)
    yield "the last word", torch.full_like(draw.ints(2, 3, high=5), 4), draw(5, 7)
    yield "float64", draw.ints(2, 3, high=5), draw(7, 5, dtype=torch.float64)
    yield "a view, and a table of one column", draw.ints(5, 3, high=4).T, draw(7, 1)
    yield "four axes", draw.ints(2, 3, 2, 5, high=9), draw(11, 3)
    yield "float16", draw.ints(2, 3, high=5), draw(7, 5, dtype=torch.float16)


def _one_hot_of_one_axis(ids, table):
    one_hot = table.new_zeros(len(ids), len(table))
    one_hot[torch.arange(len(ids)), ids] = 1
    return one_hot


def _one_hot_of_rows(ids, table):
    one_hot = table.new_zeros(len(ids), len(table))
    return one_hot.scatter(1, ids.reshape(len(ids), -1), 1)


def _lookup(ids, table):
    return F.one_hot(ids, len(table)).to(table) @ table


lookup = Exercise(
    name="lookup",
    trials=_ids_and_tables,
    right=_lookup,
    result_names=("rows",),
    gradients=True,
    float64=True,
    excluded=LOOKUPS,
    chapter=4,
    answers={
        "ids with one axis only": lambda ids, table: _one_hot_of_one_axis(ids, table) @ table,
        "ids with two axes only": lambda ids, table: torch.einsum(
            "btv,ve->bte", F.one_hot(ids, len(table)).to(table), table
        ),
        "a sentence in one row": lambda ids, table: _one_hot_of_rows(ids, table) @ table,
    },
)


# ---------------------------------------------------------------- an einsum as loops


def _weights_and_values(draw):
    yield "as many queries as keys", softmax(draw(2, 3, 3)), draw(2, 3, 5)
    yield "more keys than queries", softmax(draw(2, 3, 5)), draw(2, 5, 7)
    yield "more queries than keys", softmax(draw(2, 11, 3)), draw(2, 3, 5)
    yield "a batch of one", softmax(draw(1, 11, 2)), draw(1, 2, 3)
    yield "a single key", softmax(draw(2, 7, 1)), draw(2, 1, 5)
    yield (
        "a query without keys",
        softmax(draw(3, 2, 5)) * (torch.arange(2)[:, None] > 0).to(draw.device),
        draw(3, 5, 2),
    )
    # More queries than the notebook has, so that its sizes are not taken for one query too many.
    yield ("float64", softmax(draw(2, 11, 5, dtype=torch.float64)), draw(2, 5, 2, dtype=torch.float64))
    last_is_0 = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0], device=draw.device)
    yield "weights of any sign, in a view", draw(2, 5, 11).mT, draw(2, 5, 2) * last_is_0[:, None]


def _is_a_running_sum(found, weights, v):
    """Return whether the result is a running sum, initialised before one of the outer loops."""
    right = weights @ v  # (B, T, D)
    for first in range(3):
        running = right.flatten(first).cumsum(-1).view(right.shape)
        if found.shape == running.shape and torch.allclose(found.to(running), running, rtol=1e-4, atol=1e-5):
            return True
    return False


def _ends_after_the_first_turn(found, weights, v):
    """Return whether the result is right for the first pass of an outer loop, and zero afterwards."""
    wanted = weights @ v  # (B, T, D)
    if found.shape != wanted.shape:
        return False
    for depth in range(1, 4):
        begun = torch.zeros_like(wanted)
        begun[(0,) * depth] = wanted[(0,) * depth]
        if torch.allclose(found.to(wanted), begun, rtol=1e-4, atol=1e-5):
            return True
    return False


def _with_the_sizes_of_the_notebook(weights, v):
    """Read the weights of the sentences and queries of the notebook, and stop at the first that is missing."""
    return torch.stack([weights[b, t, 0] * v[b, 0] for b in range(3) for t in range(7)])


weighted_sum = Exercise(
    name="weighted_sum",
    trials=_weights_and_values,
    right=lambda weights, v: weights @ v,
    result_names=("out",),
    gradients=True,
    chapter=4,
    answers={
        "summed over the queries": lambda weights, v: torch.einsum("bts,btd->bsd", weights, v),
        "sentences added up": lambda weights, v: torch.einsum("bts,bsd->td", weights, v),
        "notebook's variables": _with_the_sizes_of_the_notebook,
        "overwritten instead of added": lambda weights, v: weights[..., -1:] * v[:, -1:],
        "a value read at the query": lambda weights, v: weights.sum(-1, keepdim=True) * v[:, : weights.size(1)],
        "shaped like the values": lambda weights, v: F.pad(weights @ v, (0, 0, 0, v.size(1) - weights.size(1))),
        "last key left out": lambda weights, v: weights[..., :-1] @ v[:, :-1],
        "first key left out": lambda weights, v: weights[..., 1:] @ v[:, 1:],
        "one row for all queries": lambda weights, v: (weights.sum(1, keepdim=True) @ v).expand(
            -1, weights.size(1), -1
        ),
        "as many keys as queries": lambda weights, v: weights[..., : weights.size(1)] @ v[:, : weights.size(1)],
        "weights forgotten": lambda weights, v: v.sum(1, keepdim=True).expand(*weights.shape[:2], -1),
        "weights below 0 left out": lambda weights, v: weights.clamp(min=0) @ v,
        "float32 whatever comes in": lambda weights, v: (weights @ v).float(),
    },
    signs={
        "a sum never set back": _is_a_running_sum,
        "returns from inside a loop": _ends_after_the_first_turn,
    },
)


# ---------------------------------------------------------------- a matrix between query and key


def _queries_keys_and_matrices(draw):
    yield "a square matrix", draw(2, 3, 7), draw(2, 5, 7), draw(7, 7)
    yield "wide keys", draw(2, 5, 3), draw(2, 7, 11), draw(3, 11)
    yield "narrow keys", draw(3, 2, 7), draw(3, 5, 2), draw(7, 2)
    yield "a batch of one", draw(1, 3, 5), draw(1, 2, 7), draw(5, 7)
    yield "a single query", draw(3, 1, 5), draw(3, 7, 2), draw(5, 2)
    yield ("float64", *(draw(*shape, dtype=torch.float64) for shape in ((2, 3, 5), (2, 7, 3), (5, 3))))
    yield "a single key", draw(2, 3, 5), draw(2, 1, 7), draw(5, 7)
    yield "one feature each", draw(2, 3, 1), draw(2, 5, 1), draw(1, 1)
    yield "a view", draw(3, 2, 5).transpose(0, 1), draw(2, 7, 3), draw(5, 3)


def _has_an_axis_of_the_matrix_alone(found, q, k, W):
    """Return whether the result is summed over an axis of the matrix, because its letter is used only once."""
    strings = ["bti,ij,bsl->bts", "bti,lj,bsj->bts"]
    if q.size(-1) == k.size(-1):
        strings += ["btd,de,bsd->bts", "btd,ed,bsd->bts"]
    alone = [torch.einsum(string, q, W, k) for string in strings]
    return any(torch.allclose(found, scores, rtol=1e-4, atol=1e-4) for scores in alone)


def _is_scaled(found, q, k, W):
    return any(
        torch.allclose(found * math.sqrt(width), q @ W @ k.mT, rtol=1e-4, atol=1e-4)
        for width in (q.size(-1), k.size(-1))
    )


general_scores = Exercise(
    name="general_scores",
    trials=_queries_keys_and_matrices,
    right=lambda q, k, W: q @ W @ k.mT,
    result_names=("scores",),
    gradients=True,
    chapter=4,
    answers={
        "matrix transposed": lambda q, k, W: torch.einsum("bti,ji,bsj->bts", q, W, k),
        "one letter for two axes": lambda q, k, W: torch.einsum("btd,dd,bsd->bts", q, W, k),
        "a batch letter for the matrix": lambda q, k, W: torch.einsum("bti,bij,bsj->bts", q, W, k),
        "tensors in another order": lambda q, k, W: torch.einsum("bti,ij,bsj->bts", q, k, W),
        "matrix forgotten": lambda q, k, W: q @ k.mT,
        "every sentence with every other": lambda q, k, W: torch.einsum("bti,ij,csj->bcts", q, W, k),
        "sentences added up": lambda q, k, W: torch.einsum("bti,ij,bsj->ts", q, W, k),
        "sentences mixed": lambda q, k, W: torch.einsum("bti,ij,csj->bts", q, W, k),
        "transposes the batch": lambda q, k, W: q @ W @ k.T,
        "axis lost with one key": lambda q, k, W: (q @ W @ k.mT).squeeze(-1),
        "softmax too early": lambda q, k, W: softmax(torch.einsum("bti,ij,bsj->bts", q, W, k)),
    },
    signs={
        "an axis of the matrix alone": _has_an_axis_of_the_matrix_alone,
        "an axis too many": lambda found, q, k, W: (
            found.dim() == 4 and torch.allclose(found.sum(-1), q @ W @ k.mT, rtol=1e-4, atol=1e-4)
        ),
        "queries and keys swapped": lambda found, q, k, W: found.shape == (len(q), k.size(1), q.size(1)),
        "scale added": _is_scaled,
    },
)


# ---------------------------------------------------------------- every question with every text


def _questions_and_texts(draw):
    yield "one question and one text", draw(1, 3, 7), draw(1, 5, 7)
    yield "more texts than questions", draw(2, 3, 7), draw(5, 11, 7)
    yield "as many texts as questions", draw(3, 2, 7), draw(3, 5, 7)
    yield "one question", draw(1, 7, 5), draw(3, 2, 5)
    yield "a single token each", draw(2, 1, 3), draw(5, 1, 3)
    yield "scores far below 0", draw(2, 3, 7).abs(), -1000 * draw(5, 2, 7).abs()
    yield "scores further below 0", 1e5 * draw(2, 3, 7).abs(), -1e6 * draw(5, 2, 7).abs()
    right, up = torch.eye(2, device=draw.device)
    yield "a best score of 0", right.expand(2, 1, 2), torch.stack([up, -right]).expand(3, 2, 2)
    yield "a view", draw(3, 2, 7).transpose(0, 1), draw(5, 7, 7)
    yield "float64", draw(2, 3, 5, dtype=torch.float64), draw(3, 7, 5, dtype=torch.float64)


def _reduce(reduced):
    """Return an answer that computes all scores (A, B, T, S) and reduces them with the given function."""
    return lambda q, k: reduced(torch.einsum("atd,bsd->abts", q, k))


max_sim = Exercise(
    name="max_sim",
    trials=_questions_and_texts,
    right=_reduce(lambda scores: scores.amax(-1).sum(-1)),
    result_names=("ranks",),
    gradients=True,
    chapter=4,
    answers={
        "paired one to one": lambda q, k: torch.einsum("btd,bsd->bts", q, k).amax(-1).sum(-1),
        "maximum over the question": _reduce(lambda scores: scores.amax(-2).sum(-1)),
        "maximum over the question, then a mean": _reduce(lambda scores: scores.amax(-2).mean(-1)),
        "sum and maximum swapped": _reduce(lambda scores: scores.sum(-1).amax(-1)),
        "sum before the maximum": _reduce(lambda scores: scores.sum(-2).amax(-1)),
        "sum instead of maximum": _reduce(lambda scores: scores.sum((-2, -1))),
        "scale added": lambda q, k: torch.einsum("atd,bsd->abts", q, k).amax(-1).sum(-1) / math.sqrt(q.size(-1)),
        "mean instead of sum": _reduce(lambda scores: scores.amax(-1).mean(-1)),
        "best pair only": _reduce(lambda scores: scores.amax((-2, -1))),
        "view instead of transpose": lambda q, k: (
            (q.flatten(0, 1) @ k.flatten(0, 1).T).reshape(len(q), len(k), q.size(1), k.size(1)).amax(-1).sum(-1)
        ),
        "sizes instead of scores": _reduce(lambda scores: scores.abs().amax(-1).sum(-1)),
        "positions instead of scores": _reduce(lambda scores: scores.argmax(-1).sum(-1)),
        "maximum comes with its place": _reduce(lambda scores: scores.max(-1).sum(-1)),
        "sum forgotten": _reduce(lambda scores: scores.amax(-1)),
        "cosine instead of dot product": lambda q, k: (
            torch.einsum("atd,bsd->abts", F.normalize(q, dim=-1), F.normalize(k, dim=-1)).amax(-1).sum(-1)
        ),
        "softmax added": _reduce(lambda scores: softmax(scores).amax(-1).sum(-1)),
        "result transposed": _reduce(lambda scores: scores.amax(-1).sum(-1).T),
        "best starts at zero": _reduce(lambda scores: scores.amax(-1).clamp(min=0).sum(-1)),
        "scores of 0 hidden": _reduce(lambda scores: scores.masked_fill(scores == 0, -math.inf).amax(-1).sum(-1)),
        "softmax for the maximum": _reduce(lambda scores: (scores * scores.softmax(-1)).sum(-1).sum(-1)),
        "last token of the text left out": lambda q, k: (
            torch.einsum("atd,bsd->abts", q, k[:, : max(k.size(1) - 1, 1)]).amax(-1).sum(-1)
        ),
    },
)
