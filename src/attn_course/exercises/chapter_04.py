"""The exercises of the chapter on batches, einsum and einops. Used from chapter 4 on."""

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


def _lookup(ids, table):
    one_hot = F.one_hot(ids, len(table)).to(table)
    return one_hot @ table


lookup = Exercise(
    name="lookup",
    trials=_ids_and_tables,
    right=_lookup,
    result_names=("rows",),
    gradients=True,
    float64=True,
    excluded=LOOKUPS,
    chapter=4,
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


def _weighted_sum(weights, v):
    (B, T, _), D = weights.shape, v.size(-1)
    out = v.new_zeros(B, T, D)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                out[b, t, d] = weights[b, t] @ v[b, :, d]
    return out


weighted_sum = Exercise(
    name="weighted_sum",
    trials=_weights_and_values,
    right=_weighted_sum,
    result_names=("out",),
    gradients=True,
    chapter=4,
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


def _general_scores(q, k, W):
    return torch.einsum("bti,ij,bsj->bts", q, W, k)


general_scores = Exercise(
    name="general_scores",
    trials=_queries_keys_and_matrices,
    right=_general_scores,
    result_names=("scores",),
    gradients=True,
    chapter=4,
    signs={"queries and keys swapped": lambda found, q, k, W: found.shape == (len(q), k.size(1), q.size(1))},
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


def _max_sim(q, k):
    scores = torch.einsum("atd,bsd->abts", q, k)
    best = scores.amax(-1)
    return best.sum(-1)


max_sim = Exercise(
    name="max_sim",
    trials=_questions_and_texts,
    right=_max_sim,
    result_names=("ranks",),
    gradients=True,
    chapter=4,
)
