"""The exercises of the chapter on batches, einsum and einops. Used from chapter 4 on."""

import math

import torch
import torch.nn.functional as F

from attn_course.exercises.engine.exercise import Exercise, Mistake
from attn_course.functional import softmax

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


lookup = Exercise(
    name="lookup",
    trials=_ids_and_tables,
    right=lambda ids, table: table[ids],
    returns=("rows",),
    gradients=True,
    float64=True,
    mistakes={
        "without num_classes": Mistake(
            "The one-hot rows are too short for the table: they are as long as the largest id asks for, as "
            "`F.one_hot` makes them if left to itself, and the last words of the vocabulary do not occur here. See "
            "section 4.10.",
            lambda ids, table: F.one_hot(ids).to(table) @ table,
        ),
        "one-hot left as integers": Mistake(
            "Whole numbers, such as those of `F.one_hot`, meet a table of fractions: "
            "a matrix product wants one type for both. See section 4.10.",
            lambda ids, table: F.one_hot(ids, len(table)) @ table,
        ),
        "one-hot always float32": Mistake(
            "A table in float32 is looked up and one in float64 is not: it meets numbers in float32. "
            "Give the one-hot rows the type of the table. See section 4.10.",
            lambda ids, table: F.one_hot(ids, len(table)).float() @ table,
        ),
        "too few classes": Mistake(
            "The one-hot rows have as many places as a row of the table is wide: "
            "they need one for each row of it, and its rows are its first axis, V. See section 4.10.",
            lambda ids, table: F.one_hot(ids, table.size(-1)).to(table) @ table,
        ),
        "as many classes as ids": Mistake(
            "The one-hot rows have as many places as there are ids along their first axis: "
            "they need one for each row of the table. See section 4.10.",
            lambda ids, table: F.one_hot(ids, len(ids)).to(table) @ table,
        ),
        "notebook's variables": Mistake(
            "The one-hot rows have ten places, as many as section 4.1 has words: "
            "an answer takes its sizes from the table that it is given. See section 4.10.",
            lambda ids, table: F.one_hot(ids, 10).to(table) @ table,
        ),
        "notebook's vocabulary": Mistake(
            "The one-hot rows have fifteen places, as many as the `batch_vocabulary` of section 4.2 has words: "
            "here the number of words is the number of rows of the table. See section 4.10.",
            lambda ids, table: F.one_hot(ids, 15).to(table) @ table,
        ),
        "table transposed": Mistake(
            "The table is transposed: the 1 of a one-hot row then meets a column of it, one number of every word, "
            "and with a table as wide as long nothing would have refused. See section 4.10.",
            lambda ids, table: F.one_hot(ids, len(table)).to(table) @ table.T,
        ),
        "shape of the ids lost": Mistake(
            "One sentence is right, and a batch comes back as one long list of tokens: "
            "the ids' own axes have to stand in front of E. See section 4.2.",
            lambda ids, table: table[ids.flatten()],
        ),
        "ids with one axis only": Mistake(
            "This works for one sentence, and not for other shapes of ids. "
            "`F.one_hot` takes ids of any shape and appends an axis. See section 4.10.",
            lambda ids, table: _one_hot_of_one_axis(ids, table) @ table,
        ),
        "ids with two axes only": Mistake(
            "A batch is looked up, and ids of other shapes are not. In an einsum "
            "`...` stands for any number of axes, and `@` takes any number too. See section 4.5.",
            lambda ids, table: torch.einsum("btv,ve->bte", F.one_hot(ids, len(table)).to(table), table),
        ),
        "words counted from 1": Mistake(
            "Each id gets the row before its own, and the id 0 gets zeros: ids count from 0, and so do the places of a "
            "one-hot row. See section 4.10.",
            lambda ids, table: F.pad(table, (0, 0, 1, 0))[ids],
        ),
        "a sentence in one row": Mistake(
            "One sentence is right, and in a batch each sentence has become one row, the sum of its different words. "
            "Each token needs a row of its own. See section 4.10.",
            lambda ids, table: _one_hot_of_rows(ids, table) @ table,
        ),
        "axis lost with one feature": Mistake(
            "With a table of one column the last axis is lost: the result has the shape of the ids and then E, also "
            "where E is 1. See section 4.2.",
            lambda ids, table: table[ids].squeeze(-1),
        ),
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
    """Whether the result is the sum so far, for a sum that starts before one of the loops around the innermost."""
    right = weights @ v  # (B, T, D)
    for first in range(3):
        running = right.flatten(first).cumsum(-1).view(right.shape)
        if found.shape == running.shape and torch.allclose(found.to(running), running, rtol=1e-4, atol=1e-5):
            return True
    return False


def _ends_after_the_first_turn(found, weights, v):
    """Whether the result is right for the first turn of a loop around the sum and zero from there on."""
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
    """Read the weights of every sentence and query there, and stop at the first that is not here."""
    return torch.stack([weights[b, t, 0] * v[b, 0] for b in range(3) for t in range(7)])


weighted_sum = Exercise(
    name="weighted_sum",
    trials=_weights_and_values,
    right=lambda weights, v: weights @ v,
    returns=("out",),
    gradients=True,
    mistakes={
        "summed over the queries": Mistake(
            "The sum runs over t, the queries: the letter that is not in the result is s, "
            "so each query adds up keys. See section 4.5.",
            lambda weights, v: torch.einsum("bts,btd->bsd", weights, v),
        ),
        "sentences added up": Mistake(
            "There is one result for the whole batch: b is in `btd`, so it is a loop around the result like t and d, "
            "and not a sum. See section 4.5.",
            lambda weights, v: torch.einsum("bts,bsd->td", weights, v),
        ),
        "notebook's variables": Mistake(
            "The loops run over three sentences of seven tokens, which are the notebook's B and T: "
            "take the sizes from the shapes of weights and v. See section 4.5.",
            _with_the_sizes_of_the_notebook,
        ),
        "overwritten instead of added": Mistake(
            "This is what the last key alone gives: a letter that disappears is a sum, over all keys. See section 4.5.",
            lambda weights, v: weights[..., -1:] * v[:, -1:],
        ),
        "a sum never set back": Mistake(
            "Numbers contain those before them: every cell of the result needs a sum of its own, from 0. See section "
            "4.5.",
            sign=_is_a_running_sum,
        ),
        "returns from inside a loop": Mistake(
            "The result begins right and is 0 from there on. A `return` that stands too far to the right does that: "
            "it ends a loop in its first turn, and each letter that stays has to run to its end. See section 4.5.",
            sign=_ends_after_the_first_turn,
        ),
        "a value read at the query": Mistake(
            "Each query gets the value at its own place, times the sum of its weights: values are read at s, and not "
            "at t. See section 4.5.",
            lambda weights, v: weights.sum(-1, keepdim=True) * v[:, : weights.size(1)],
        ),
        "shaped like the values": Mistake(
            "The result has the shape of v, a row for each key; it needs one for each query: "
            "the letters that stay are b, t and d. See section 4.5.",
            lambda weights, v: F.pad(weights @ v, (0, 0, 0, v.size(1) - weights.size(1))),
        ),
        "last key left out": Mistake(
            "The last key is missing from every sum: s has S values, from 0 to S - 1. See section 4.5.",
            lambda weights, v: weights[..., :-1] @ v[:, :-1],
        ),
        "first key left out": Mistake(
            "The first key is missing from every sum: s counts from 0. See section 4.5.",
            lambda weights, v: weights[..., 1:] @ v[:, 1:],
        ),
        "one row for all queries": Mistake(
            "All queries of a sentence have the same numbers, the sum over all of them. In a list, `[row] * T` is T "
            "names for one row, and what is added to one is added to all. See section 4.5.",
            lambda weights, v: (weights.sum(1, keepdim=True) @ v).expand(-1, weights.size(1), -1),
        ),
        "as many keys as queries": Mistake(
            "Where there are more keys than queries, the last ones are missing: "
            "the sum over s has to end at S, not at T. See section 4.7.",
            lambda weights, v: weights[..., : weights.size(1)] @ v[:, : weights.size(1)],
        ),
        "weights forgotten": Mistake(
            "The values are added up as they are: each has to be multiplied, "
            "and that by the weight that carries the same b and s. See section 4.5.",
            lambda weights, v: v.sum(1, keepdim=True).expand(*weights.shape[:2], -1),
        ),
        "weights below 0 left out": Mistake(
            "A weight below 0 counts as 0: any number can stand there, and an einsum multiplies by it as it is. See "
            "section 4.5.",
            lambda weights, v: weights.clamp(min=0) @ v,
        ),
        "float32 whatever comes in": Mistake(
            "Given float64, the result is float32: a new tensor is that unless it is told a type. See section 4.5.",
            lambda weights, v: (weights @ v).float(),
        ),
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
    """Whether a letter of the matrix stood nowhere else, so that its axis was added up on its own."""
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
    returns=("scores",),
    gradients=True,
    mistakes={
        "matrix transposed": Mistake(
            "W is read the other way around: its first axis goes with the features of the query, its second with "
            "those of the key. On a square matrix nothing refuses. See section 4.5.",
            lambda q, k, W: torch.einsum("bti,ji,bsj->bts", q, W, k),
        ),
        "one letter for two axes": Mistake(
            "Only the diagonal of W counts, as where both its axes have one letter: "
            "two axes that move on their own need two letters. See section 4.5.",
            lambda q, k, W: torch.einsum("btd,dd,bsd->bts", q, W, k),
        ),
        "a batch letter for the matrix": Mistake(
            "W meets three letters and has two axes: all sentences share it, so it takes no letter for them, "
            "and the parts of the string stand in the order of the tensors. See section 4.5.",
            lambda q, k, W: torch.einsum("bti,bij,bsj->bts", q, W, k),
        ),
        "tensors in another order": Mistake(
            "The second tensor has three axes and meets two letters, and W alone has two axes: "
            "the parts of the string stand in the order in which the tensors follow. See section 4.5.",
            lambda q, k, W: torch.einsum("bti,ij,bsj->bts", q, k, W),
        ),
        "matrix forgotten": Mistake(
            "W has no part in these numbers: they are the dot products of queries and keys, "
            "which exist only where both are equally wide. See section 4.7.",
            lambda q, k, W: q @ k.mT,
        ),
        "an axis of the matrix alone": Mistake(
            "An axis of W is added up before it meets anything, as is an axis whose letter stands nowhere else: "
            "one letter of W stands with the features of the queries, the other with those of the keys. See section "
            "4.5.",
            sign=_has_an_axis_of_the_matrix_alone,
        ),
        "an axis too many": Mistake(
            "The scores have an axis of features, and added up over it they would be right: a letter of W that stays "
            "in the result is not added up. See section 4.5.",
            sign=lambda found, q, k, W: (
                found.dim() == 4 and torch.allclose(found.sum(-1), q @ W @ k.mT, rtol=1e-4, atol=1e-4)
            ),
        ),
        "every sentence with every other": Mistake(
            "Every sentence meets every other, and there is an axis for each of the two: with one letter for both, "
            "each meets its own. See section 4.5.",
            lambda q, k, W: torch.einsum("bti,ij,csj->bcts", q, W, k),
        ),
        "queries and keys swapped": Mistake(
            "There is a row for each key and a column for each query: it should be the other way round, (B, T, S). See "
            "section 4.5.",
            sign=lambda found, q, k, W: found.shape == (len(q), k.size(1), q.size(1)),
        ),
        "sentences added up": Mistake(
            "There is one table of scores for the whole batch, the sum of those of its sentences: a letter that "
            "disappears is added up, and b has to stay. See section 4.5.",
            lambda q, k, W: torch.einsum("bti,ij,bsj->ts", q, W, k),
        ),
        "sentences mixed": Mistake(
            "A batch of one is right, and in a larger one each query meets the keys of all sentences, added up: "
            "queries and keys need one letter for the sentence. See section 4.5.",
            lambda q, k, W: torch.einsum("bti,ij,csj->bts", q, W, k),
        ),
        "transposes the batch": Mistake(
            "The keys' three axes are all turned around, as `.T` does: `.mT` turns the last two. See section 4.3.",
            lambda q, k, W: q @ W @ k.T,
        ),
        "scale added": Mistake(
            "The scores are divided by √D, and this formula has no scale: "
            "W is learned, and can hold any factor. See section 3.5.",
            sign=_is_scaled,
        ),
        "axis lost with one key": Mistake(
            "With a single key the last axis is lost: the scores have an axis for the keys, however few there are. See "
            "section 4.5.",
            lambda q, k, W: (q @ W @ k.mT).squeeze(-1),
        ),
        "softmax too early": Mistake(
            "These are weights already: every row sums to 1, and the exercise asks for the scores. See section 4.5.",
            lambda q, k, W: softmax(torch.einsum("bti,ij,bsj->bts", q, W, k)),
        ),
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
    """An answer that has all scores (A, B, T, S) right and reduces them in its own way."""
    return lambda q, k: reduced(torch.einsum("atd,bsd->abts", q, k))


max_sim = Exercise(
    name="max_sim",
    trials=_questions_and_texts,
    right=_reduce(lambda scores: scores.amax(-1).sum(-1)),
    returns=("ranks",),
    gradients=True,
    mistakes={
        "paired one to one": Mistake(
            "The first question met the first text only, the second the second: "
            "questions and texts need a letter, or an axis, each. See section 4.5.",
            lambda q, k: torch.einsum("btd,bsd->bts", q, k).amax(-1).sum(-1),
        ),
        "maximum over the question": Mistake(
            "Each token of the text looks for a partner in the question. It is the other way around: "
            "the maximum drops s, the tokens of the text, and the sum drops t. See section 4.5.",
            _reduce(lambda scores: scores.amax(-2).sum(-1)),
        ),
        "maximum over the question, then a mean": Mistake(
            "Each token of the text looks for a partner in the question, and the mean of the best is taken. It is "
            "the other way around, and a sum: the maximum drops s, the tokens of the text, and the sum drops t. See "
            "section 4.5.",
            _reduce(lambda scores: scores.amax(-2).mean(-1)),
        ),
        "sum and maximum swapped": Mistake(
            "Every token of the question adds up the whole text, and the best of these sums is kept: "
            "the maximum should drop s, and the sum t. See section 4.5.",
            _reduce(lambda scores: scores.sum(-1).amax(-1)),
        ),
        "sum before the maximum": Mistake(
            "The tokens of the question are added up before the best partner is chosen, so that all must share one: "
            "drop s first, by the maximum. See section 4.5.",
            _reduce(lambda scores: scores.sum(-2).amax(-1)),
        ),
        "sum instead of maximum": Mistake(
            "All pairs of tokens are added up. A letter that einsum drops is a sum, "
            "so s has to stay in the string until the maximum has taken it. See section 4.5.",
            _reduce(lambda scores: scores.sum((-2, -1))),
        ),
        "scale added": Mistake(
            "The scores are divided by √D: no softmax follows here that the scale would keep soft. See section 3.5.",
            lambda q, k: torch.einsum("atd,bsd->abts", q, k).amax(-1).sum(-1) / math.sqrt(q.size(-1)),
        ),
        "mean instead of sum": Mistake(
            "The ranks are divided by T, which makes a mean over the tokens of the question: "
            "a letter that disappears is a sum. See section 4.5.",
            _reduce(lambda scores: scores.amax(-1).mean(-1)),
        ),
        "best pair only": Mistake(
            "Only the best pair of tokens counts. "
            "The maximum drops s alone, and leaves one number for each token of the question. See section 4.5.",
            _reduce(lambda scores: scores.amax((-2, -1))),
        ),
        "view instead of transpose": Mistake(
            "One question and one text are right, and with more of them the numbers of several pairs are mixed: these "
            "are those of a table (A T, B S) that is cut by `reshape` alone. It is (A, T, B, S), and T and B still "
            "have to change places. See section 4.6.",
            lambda q, k: (
                (q.flatten(0, 1) @ k.flatten(0, 1).T).reshape(len(q), len(k), q.size(1), k.size(1)).amax(-1).sum(-1)
            ),
        ),
        "sizes instead of scores": Mistake(
            "The best partner is the one with the largest score in size, with or without a minus: a token that points "
            "the other way is no partner. See section 4.12.",
            _reduce(lambda scores: scores.abs().amax(-1).sum(-1)),
        ),
        "positions instead of scores": Mistake(
            "These are places, not scores: `argmax` says where the best partner stands, `amax` how well it fits, "
            "and `max` returns both. See section 2.6.",
            _reduce(lambda scores: scores.argmax(-1).sum(-1)),
        ),
        "maximum comes with its place": Mistake(
            "`max` along an axis returns two tensors in one, the largest numbers and their places; "
            "`amax` returns the numbers alone. See section 2.6.",
            _reduce(lambda scores: scores.max(-1).sum(-1)),
        ),
        "sum forgotten": Mistake(
            "There is a number for each token of the question: the maximum has taken s, "
            "and t has to disappear too, in a sum. See section 4.5.",
            _reduce(lambda scores: scores.amax(-1)),
        ),
        "cosine instead of dot product": Mistake(
            "These are the numbers of vectors brought to length 1: here the score is the dot product as it is. See "
            "section 4.12.",
            lambda q, k: torch.einsum("atd,bsd->abts", F.normalize(q, dim=-1), F.normalize(k, dim=-1)).amax(-1).sum(-1),
        ),
        "softmax added": Mistake(
            "The scores went through a softmax, which makes each of them depend on all others of its text: "
            "the best partner is chosen among the scores as they are. See section 4.12.",
            _reduce(lambda scores: softmax(scores).amax(-1).sum(-1)),
        ),
        "result transposed": Mistake(
            "The texts stand in the rows: the result has the questions first, (A, B). See section 4.4.",
            _reduce(lambda scores: scores.amax(-1).sum(-1).T),
        ),
        "best starts at zero": Mistake(
            "Where all scores are below 0, the best is taken for 0, which no token scored: "
            "two words can score below 0. See section 4.12.",
            _reduce(lambda scores: scores.amax(-1).clamp(min=0).sum(-1)),
        ),
        "scores of 0 hidden": Mistake(
            "A score of 0 is never the best, even where all others are below it: 0 is a score like any other. See "
            "section 4.12.",
            _reduce(lambda scores: scores.masked_fill(scores == 0, -math.inf).amax(-1).sum(-1)),
        ),
        "softmax for the maximum": Mistake(
            "Instead of the best partner it takes a mean weighted by a softmax over the partners; asked for is "
            "the largest dot product itself. See section 4.5.",
            _reduce(lambda scores: (scores * scores.softmax(-1)).sum(-1).sum(-1)),
        ),
        "last token of the text left out": Mistake(
            "The last token of each text is left out; it may be the best partner, too. See section 4.5.",
            lambda q, k: torch.einsum("atd,bsd->abts", q, k[:, : max(k.size(1) - 1, 1)]).amax(-1).sum(-1),
        ),
    },
)


# ---------------------------------------------------------------- the gradient of the table


def _ids_and_gradients(draw):
    each_once = torch.randperm(10, generator=draw.rng).view(2, 5).to(draw.device)
    yield "no word twice", each_once, draw(2, 5, 3), 11
    yield "words that occur often", draw.ints(2, 7, high=5), draw(2, 7, 3), 11
    yield "a batch of one", draw.ints(1, 5, high=3), draw(1, 5, 2), 7
    yield "a single word", torch.full_like(each_once, 2), draw(2, 5, 7), 3
    yield "float64", draw.ints(3, 2, high=4), draw(3, 2, 5, dtype=torch.float64), 7
    to_the_last = draw.ints(5, 2, high=4)
    to_the_last[3, 1] = 6
    yield "the last word, in a view", to_the_last.T, draw(5, 2, 3).transpose(0, 1), 7
    yield "one token each, one feature", draw.ints(3, 1, high=3), draw(3, 1, 1), 5
    yield "a vocabulary of one word", draw.ints(2, 3, high=1), draw(2, 3, 5), 1


def _one_hot(ids, upstream, num_words):
    return F.one_hot(ids, num_words).to(upstream.dtype)


def _table_gradient(ids, upstream, num_words):
    gradient = upstream.new_zeros(num_words, upstream.size(-1))
    return gradient.index_add(0, ids.flatten(), upstream.flatten(0, -2))


def _uses(ids, upstream, num_words):
    """How often each word occurs, (V, 1)."""
    return torch.bincount(ids.flatten(), minlength=num_words)[:, None].to(upstream)


def _has_one_use_of_each_word(found, ids, upstream, num_words):
    """Whether every row of the table holds the gradient of one of the uses of its word."""
    if found.shape != (num_words, upstream.size(-1)) or found.dtype != upstream.dtype:
        return False
    same = torch.isclose(found[:, None], upstream.flatten(0, -2)).all(-1)  # (V, uses)
    is_use = torch.arange(num_words, device=ids.device)[:, None] == ids.flatten()
    empty = (found == 0).all(-1) & ~is_use.any(-1)
    return bool(((same & is_use).any(-1) | empty).all())


table_gradient = Exercise(
    name="table_gradient",
    trials=_ids_and_gradients,
    right=_table_gradient,
    returns=("gradient",),
    mistakes={
        "only one use counts": Mistake(
            "A word that occurs several times has the gradient of one of its uses, and they have to add up. Written to "
            "one row by an index, one use replaces the other, also with `+=`. See section 4.11.",
            sign=_has_one_use_of_each_word,
        ),
        "mean over the uses": Mistake(
            "The gradients of a word's uses are averaged: what all tokens share gets the sum. See section 4.11.",
            lambda *inputs: _table_gradient(*inputs) / _uses(*inputs).clamp(min=1),
        ),
        "mean over the sentences": Mistake(
            "The gradient is divided by B, which makes a mean over the sentences: "
            "the letter b, like t, should disappear in a sum. See section 4.11.",
            lambda ids, upstream, num_words: _table_gradient(ids, upstream, num_words) / len(ids),
        ),
        "mean over all tokens": Mistake(
            "All rows are divided by the number of tokens, B · T: "
            "both letters, b and t, should disappear in a sum. See section 4.11.",
            lambda *inputs: _table_gradient(*inputs) / inputs[0].numel(),
        ),
        "first sentence only": Mistake(
            "The uses in the first sentence count and those in the others do not: "
            "the sentences share one table, and each sends its gradients there. See section 4.11.",
            lambda ids, upstream, num_words: _table_gradient(ids[:1], upstream[:1], num_words),
        ),
        "a gradient for each sentence": Mistake(
            "There is a table for each sentence: b stayed. The sentences share one table, "
            "so b has to disappear together with t. See section 4.11.",
            lambda *inputs: torch.einsum("btv,bte->bve", _one_hot(*inputs), inputs[1]),
        ),
        "uses counted": Mistake(
            "The rows tell how often each word occurs: that is the gradient where every entry of `upstream` is 1, "
            "as in the chapter's example, and here each use brings numbers of its own. See section 4.11.",
            lambda ids, upstream, num_words: _uses(ids, upstream, num_words).expand(-1, upstream.size(-1)),
        ),
        "id 0 taken for padding": Mistake(
            "All rows are right but that of the id 0, which is 0: here it is a word like any other. See section 4.1.",
            lambda *inputs: _table_gradient(*inputs).index_fill(
                0, torch.zeros(1, dtype=torch.long, device=inputs[0].device), 0.0
            ),
        ),
        "last word left out": Mistake(
            "All rows are right but that of the last word, which is 0: ids run from 0 to V - 1. See section 4.1.",
            lambda *inputs: _table_gradient(*inputs).index_fill(
                0, torch.tensor([inputs[2] - 1], device=inputs[0].device), 0.0
            ),
        ),
        "axis lost with one feature": Mistake(
            "With one feature the last axis is lost: the gradient has the shape of the table, (V, E), also where E is "
            "1. See section 4.11.",
            lambda *inputs: _table_gradient(*inputs).squeeze(-1),
        ),
        "first column only": Mistake(
            "Only the first column of the table gets a gradient, and each of the E columns has one. With "
            "`scatter_add`, the index has to be as wide as what is added. See section 4.11.",
            lambda *inputs: F.pad(_table_gradient(*inputs)[:, :1], (0, inputs[1].size(-1) - 1)),
        ),
        "without num_classes": Mistake(
            "The last words of the vocabulary, which do not occur, have no row. `F.one_hot`, left to itself, stops at "
            "the largest id. See section 4.10.",
            lambda ids, upstream, num_words: _table_gradient(ids, upstream, int(ids.max()) + 1),
        ),
        "one-hot left as integers": Mistake(
            "Whole numbers, such as those of `F.one_hot`, meet gradients, which are fractions: "
            "a product wants one type for both. See section 4.10.",
            lambda ids, upstream, num_words: torch.einsum("btv,bte->ve", F.one_hot(ids, num_words), upstream),
        ),
        "one-hot always float32": Mistake(
            "Gradients in float32 pass, and gradients in float64 do not: they meet numbers in float32. "
            "Give the one-hot rows the type of the gradients. See section 4.10.",
            lambda ids, upstream, num_words: torch.einsum("btv,bte->ve", F.one_hot(ids, num_words).float(), upstream),
        ),
        "result transposed": Mistake(
            "The words run across: the gradient has the shape of the table, one row for each word, (V, E). See section "
            "4.11.",
            lambda *inputs: _table_gradient(*inputs).T,
        ),
        "float32 whatever comes in": Mistake(
            "Given float64, the gradient is float32: a new tensor is that unless it is told a type. See section 4.5.",
            lambda *inputs: _table_gradient(*inputs).float(),
        ),
        "rows for the words that occur": Mistake(
            "There is a row for each word that occurs, and the table has one for every word: "
            "where a word does not occur, its row is 0. See section 4.11.",
            lambda ids, upstream, num_words: _table_gradient(ids, upstream, num_words)[ids.unique()],
        ),
    },
)
