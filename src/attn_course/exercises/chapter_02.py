"""The exercises of the chapter on attention without learned numbers. Used from chapter 2 on."""

import math

import torch
from torch import Tensor

from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake
from attn_course.functional import softmax

# ---------------------------------------------------------------- the words of the chapter

_WORDS = torch.tensor(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)
_LIKE_THE_CHAPTER = "six tokens of three numbers"  # so that an answer about the chapter's own words runs through


def _attend(x: Tensor) -> Tensor:
    return softmax(x @ x.mT) @ x


def _naive_softmax(scores: Tensor, dim: int = -1) -> Tensor:
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum(dim, keepdim=True)


def _softmax_over_everything(scores: Tensor) -> Tensor:
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def _without_keepdim(scores: Tensor) -> list[Tensor]:
    """What comes out of a softmax where the sum, the maximum or both have lost their axis.

    Without a maximum it would be the softmax over the queries, since the scores are symmetric.
    """
    by_row, by_column = scores.amax(1, keepdim=True), scores.amax(1)
    lost, kept = torch.exp(scores - by_column), torch.exp(scores - by_row)
    return [kept / kept.sum(1), lost / lost.sum(1), lost / lost.sum(1, keepdim=True)]


def _softmax_below_one_maximum(scores: Tensor) -> Tensor:
    return _naive_softmax(scores - scores.max())


def _same(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found.to(expected), expected, rtol=1e-4, atol=1e-4)


def _weights_and_contexts_of_the_chapter(x: Tensor) -> tuple[Tensor, Tensor]:
    words = _WORDS.to(x)
    weights = softmax(words @ words.T)
    return weights, weights @ words


# ---------------------------------------------------------------- one context vector


def _tokens_and_an_index(draw):
    yield _LIKE_THE_CHAPTER, draw(6, 3), 4
    yield "the first of five", draw(5, 7), 0
    yield "the last of three", draw(3, 11), 2
    yield "a single token", draw(1, 5), 0
    yield "large scores", 30 * draw(5, 7), 3
    x = 10 * draw(4, 7)
    yield "another token much longer", torch.cat([x, 3 * x[2:3]]), 2
    x = torch.tensor([[10.0, 0.0], [10.0, 1.0], [-30.0, 0.0]], device=draw.device)
    yield "two equal scores, and one far below 0", x, 0
    yield "tokens of one number", draw(5, 1), 3
    yield "float64", draw(7, 5, dtype=torch.float64), 5


def _is_about_the_chapters_words(found, x, index):
    weights, contexts = _weights_and_contexts_of_the_chapter(x)
    mixed = [*(weights @ x), softmax(x @ _WORDS.to(x)[1]) @ x] if x.shape == _WORDS.shape else []
    return any(_same(found, context) for context in [*contexts, *mixed])


def _average_by(weigh):
    return lambda x, index: weigh(x @ x[index]) @ x


def _is_about_another_token(found, x, index):
    return any(_same(found, context) for t, context in enumerate(_attend(x)) if t != index)


def _without_itself(x, index):
    scores = x @ x[index]
    scores[index] = -math.inf
    return torch.softmax(scores, dim=-1) @ x


def _of_six(x, index):
    weights = softmax(torch.stack([x[i] @ x[index] for i in range(6)]))
    return sum(weights[i] * x[i] for i in range(6))


def _softmax_below_its_own_score(x, index):
    scores = x @ x[index]
    return _naive_softmax(scores - scores[index]) @ x


def _averages_by_bare_exponentials(found, x, index):
    if not found.isfinite().all():  # the exponentials of large scores say nothing
        return None
    scores = x @ x[index]
    return any(_same(found, torch.exp(s) @ x) for s in (scores, scores - scores.max()))


context_of = Exercise(
    name="context_of",
    trials=_tokens_and_an_index,
    right=_average_by(softmax),
    returns=("context",),
    mistakes={
        "notebook's variables": Mistake(
            "Something in it comes from the chapter's six words, whatever x is handed over: "
            "a name such as context, weights or query inside the function belongs to the notebook. See section 2.4.",
            sign=_is_about_the_chapters_words,
        ),
        "another token": Mistake(
            "This is the context vector of another token: the one that asks, the query, is row number index. See "
            "section 2.2.",
            sign=_is_about_another_token,
        ),
        "weights forgotten": Mistake(
            "This is the plain mean of the tokens, in which no query has a say: each should count by its weight. See "
            "section 2.4.",
            lambda x, index: x.mean(dim=0),
        ),
        "no softmax": Mistake(
            "The tokens are averaged by their scores: these need not sum to 1, and may be negative. See section 2.3.",
            _average_by(lambda scores: scores),
        ),
        "divided by the sum": Mistake(
            "The scores are divided by their sum, which can make weights below 0: those of a softmax are all above 0. "
            "See section 2.3.",
            _average_by(lambda scores: scores / scores.sum()),
        ),
        "not divided by the sum": Mistake(
            "The tokens are averaged by the exponentials of their scores, which do not sum to 1: "
            "dividing by their sum is missing. See section 2.3.",
            sign=_averages_by_bare_exponentials,
        ),
        "softmax over one number": Mistake(
            "This is the sum of all tokens, each with a weight of 1. A softmax along an axis with one number on it "
            "gives that, as does an exponential divided by itself; the weights of all tokens together sum to 1. See "
            "section 2.3.",
            lambda x, index: x.sum(dim=0),
        ),
        "scaled": Mistake(
            "The scores are divided by √E before the softmax, which is the subject of chapter 3; here they should "
            "stay as they are. See section 2.5.",
            lambda x, index: softmax(x @ x[index] / x.size(-1) ** 0.5) @ x,
        ),
        "itself left out": Mistake(
            "The token that asks is left out of the average: it is one of the tokens, and its own weight is often the "
            "largest. See section 2.4.",
            _without_itself,
        ),
        "largest score only": Mistake(
            "This is one of the tokens as it is, the one with the largest score: a context vector is an average of "
            "all, in which each counts by its weight. See section 2.4.",
            lambda x, index: x[(x @ x[index]).argmax()],
        ),
        "six tokens": Mistake(
            "It counts on six tokens, as many as the chapter has: take the number of tokens from x. See section 2.2.",
            _of_six,
        ),
        "weights returned": Mistake(
            "These are the weights, one for each token; the last of the three steps, the average, is missing. See "
            "section 2.4.",
            lambda x, index: softmax(x @ x[index]),
        ),
        "product the wrong way round": Mistake(
            "A product of x with T numbers behind it would pair them with the numbers of one token. "
            "Each weight belongs to a row of x, and for that the weights come first. See section 2.4.",
            lambda x, index: x @ softmax(x @ x[index]),
        ),
        "sum over the numbers": Mistake(
            "The sum runs over the numbers of each token, and leaves one number for each token. "
            "An average adds up the tokens. See section 2.4.",
            lambda x, index: softmax(x @ x[index]) * x.sum(dim=-1),
        ),
        "all tokens at once": Mistake(
            "These are the context vectors of all tokens, and one was asked for: "
            "one query, one row of scores, one average. See section 2.4.",
            lambda x, index: _attend(x),
        ),
        "softmax over the queries": Mistake(
            "The weights of this token do not sum to 1: they are those of a softmax down the columns of the table of "
            "all scores. It runs along the rows. See section 2.19.",
            lambda x, index: softmax(x @ x.T, dim=0)[index] @ x,
        ),
        "softmax over everything": Mistake(
            "These are the weights of one softmax over the whole table, in which this row has its part of one unit: "
            "each row has a unit of its own to share out. See section 2.19.",
            lambda x, index: _softmax_over_everything(x @ x.T)[index] @ x,
        ),
        "softmax overflows": Mistake(
            "With large scores there is nan: exponentials overflow there, and a softmax that subtracts the maximum "
            "first stays finite. See section 2.6.",
            _average_by(_naive_softmax),
        ),
        "its own score taken for the largest": Mistake(
            "Where another token is much longer there is nan: what is subtracted before exp is the token's score "
            "with itself, and that of a longer token is larger. Subtract the largest of all. See section 2.6.",
            _softmax_below_its_own_score,
        ),
        "future left out": Mistake(
            "The tokens behind the one that asks are left out: here each token looks at all of them. See section 2.1.",
            lambda x, index: softmax(x[: index + 1] @ x[index]) @ x[: index + 1],
        ),
        "directions compared": Mistake(
            "The scores are those of vectors brought to length 1, so that only directions count; here they should be "
            "the plain dot products. See section 2.2.",
            lambda x, index: softmax((x / x.norm(dim=-1, keepdim=True)) @ (x[index] / x[index].norm())) @ x,
        ),
    },
)


# ---------------------------------------------------------------- scores that cannot be divided by their sum


def _breaks_division(found):
    return (
        isinstance(found, Tensor)
        and found.shape == (3,)
        and bool(found.sum() > 0.999 and (found / found.sum() > 1).sum() == 2)
    )


three_bad_scores = Exercise(
    name="three_bad_scores",
    trials=lambda draw: iter([("your three scores divided by their sum",)]),
    right=lambda: torch.tensor([4.0, -6.0, 4.0]),
    accepts=_breaks_division,
    returns=("scores",),
    seeds=(0,),
    mistakes={
        "not a tensor": Mistake(
            "The three scores have to be a tensor, which can be divided by its sum; "
            "torch.tensor makes one of a list. See section 2.3.",
            sign=lambda found: not isinstance(found, Tensor),
        ),
        "not three scores": Mistake(
            "Three scores were asked for, in one tensor of the shape (3,), "
            "such as the 3, 1 and −2 of the text. See section 2.3.",
            sign=lambda found: found.shape != (3,),
        ),
        "not finite": Mistake(
            "One of the scores is nan or infinite, so its sum says nothing: find three ordinary numbers. See section "
            "2.3.",
            sign=lambda found: not torch.isfinite(found).all(),
        ),
        "the sum is 0": Mistake(
            "The sum of these scores is 0, or so near to it that nothing can be divided by it. That fails too, but "
            "here the sum has to be 1 or more. See section 2.3.",
            sign=lambda found: abs(found.sum()) < 1e-6,
        ),
        "no score is negative": Mistake(
            "Dividing by the sum works for these scores: none is negative, "
            "so every weight lies between 0 and 1. See section 2.3.",
            sign=lambda found: found.min() >= 0,
        ),
        "the sum is negative": Mistake(
            "The sum of these scores is negative, so dividing by it turns all signs round. "
            "That fails too, but here the sum has to be 1 or more. See section 2.3.",
            sign=lambda found: found.sum() < 0,
        ),
        "the sum is small": Mistake(
            "The sum lies between 0 and 1. Dividing by a small sum makes large numbers even of small scores; find "
            "scores that fail although their sum is 1 or more. See section 2.3.",
            sign=lambda found: found.sum() <= 0.999,
        ),
        "two negative scores": Mistake(
            "One weight is above 1 and two are below 0, where two above 1 and one below 0 were asked for. See section "
            "2.3.",
            sign=lambda found: (found < 0).sum() == 2,
        ),
        "too few weights above 1": Mistake(
            "One weight is below 0, as it should be, but not two are above 1: "
            "a weight is above 1 where its score is larger than the sum of all three. See section 2.3.",
            sign=lambda found: (found < 0).sum() == 1,
        ),
    },
)


# ---------------------------------------------------------------- temperature


def _tokens_and_a_temperature(draw):
    yield _LIKE_THE_CHAPTER, draw(6, 3), 2.0
    yield "hot", draw(5, 7), 100.0
    yield "cold", draw(7, 5), 0.001
    yield "cold, of small numbers", 0.03 * draw(5, 3), 0.001
    yield "colder, of smaller numbers", 0.005 * draw(5, 3), 0.00001
    yield "a single token", draw(1, 3), 0.5
    yield "float64", draw(3, 11, dtype=torch.float64), 2.5


def _weigh(weigh):
    return lambda x, temperature: weigh(x @ x.T, temperature)


def _are_weights_of_the_chapters_words(found, x, temperature):
    scores = (_WORDS @ _WORDS.T).to(x)
    cold, hot = softmax(scores / temperature), softmax(scores * temperature)
    return any(_same(found, made) for made in (cold, hot, softmax(scores) / temperature))


def _weighs_without_keepdim(found, x, temperature):
    if not found.isfinite().all():  # when it is cold
        return None
    return any(_same(found, weights) for weights in _without_keepdim(x @ x.T / temperature))


def _are_warmer(found, x, temperature):
    """Whether a low temperature was given, and these are the weights of a higher one."""
    if temperature > 1:
        return False
    if (found == 0).any():  # one number alone, whatever the temperature
        return None
    scores = x @ x.T
    centred, logs = (t - t.mean(dim=-1, keepdim=True) for t in (scores, found.log()))
    used = (centred * centred).sum() / (centred * logs).sum()
    return bool(used > 1.01 * temperature) and _same(found, softmax(scores / used))


weights_at = Exercise(
    name="weights_at",
    trials=_tokens_and_a_temperature,
    right=_weigh(lambda scores, temperature: softmax(scores / temperature)),
    returns=("weights",),
    mistakes={
        "temperature held above a bound": Mistake(
            "Low temperatures are raised to a higher one, so the weights are too even there: every temperature above "
            "0 should be used as it is. See section 2.7.",
            sign=_are_warmer,
        ),
        "notebook's variables": Mistake(
            "These are weights of the chapter's six words, whatever x is handed over: "
            "a name such as scores or weights inside the function belongs to the notebook. See section 2.4.",
            sign=_are_weights_of_the_chapters_words,
        ),
        "temperature forgotten": Mistake(
            "The weights are the same at every temperature: the scores should be divided by it. (What moves all of "
            "them alike, a softmax does not notice.) See section 2.7.",
            _weigh(lambda scores, temperature: softmax(scores)),
        ),
        "multiplied instead of divided": Mistake(
            "The higher the temperature, the sharper the weights: the scores are multiplied by it. See section 2.7.",
            _weigh(lambda scores, temperature: softmax(scores * temperature)),
        ),
        "root of the temperature": Mistake(
            "The scores are divided by the root of the temperature; it should be the temperature itself. (The root "
            "belongs to the width, in chapter 3.) See section 2.7.",
            _weigh(lambda scores, temperature: softmax(scores / temperature**0.5)),
        ),
        "scores cut to whole numbers": Mistake(
            "The scores are whole numbers after the division: what stands behind the point counts too. See section "
            "2.7.",
            _weigh(lambda scores, temperature: softmax(scores // temperature)),
        ),
        "temperature after the softmax": Mistake(
            "The rows do not sum to 1: these are weights that the temperature divides after the softmax, "
            "which makes them larger or smaller together and none softer. See section 2.7.",
            _weigh(lambda scores, temperature: softmax(scores) / temperature),
        ),
        "temperature twice": Mistake(
            "The scores are divided by the square of the temperature, as where both factors of every dot product are "
            "divided by it: once is enough. See section 2.7.",
            lambda x, temperature: softmax((x / temperature) @ (x / temperature).T),
        ),
        "softmax over the queries": Mistake(
            "The columns sum to 1 and the rows do not: every row has one unit of weight to share out. See section "
            "2.19.",
            _weigh(lambda scores, temperature: softmax(scores / temperature, dim=0)),
        ),
        "softmax over everything": Mistake(
            "All rows together sum to 1: each row should by itself. See section 2.19.",
            _weigh(lambda scores, temperature: _softmax_over_everything(scores / temperature)),
        ),
        "softmax overflows": Mistake(
            "When it is cold there is nan among the weights: the exponentials of scores in the thousands overflow. A "
            "softmax that subtracts the maximum first stays finite. See section 2.6.",
            _weigh(lambda scores, temperature: _naive_softmax(scores / temperature)),
        ),
        "one maximum for all": Mistake(
            "When it is cold some rows are nan: each row needs a maximum of its own, "
            "for all exponentials of a row far below it underflow. See section 2.6.",
            _weigh(lambda scores, temperature: _softmax_below_one_maximum(scores / temperature)),
        ),
        "keepdim forgotten": Mistake(
            "The maximum or the sum of each row is set against a column: without its axis it lines up with the "
            "columns, and a table as wide as it is high does not complain. See section 2.6.",
            sign=_weighs_without_keepdim,
        ),
        "compares numbers instead of tokens": Mistake(
            "The table is E by E, so the numbers of a token are compared with each other, and not the tokens: the "
            "transposed x comes second. See section 2.5.",
            lambda x, temperature: softmax(x.T @ x / temperature),
        ),
        "divided by the sum": Mistake(
            "Each row of scores is divided by its sum, without exponentials: the temperature cancels, and weights can "
            "be below 0. See section 2.3.",
            _weigh(lambda scores, temperature: scores / scores.sum(dim=-1, keepdim=True)),
        ),
        "no softmax": Mistake(
            "These are scores, divided by the temperature; the softmax that makes weights of them is missing. See "
            "section 2.3.",
            _weigh(lambda scores, temperature: scores / temperature),
        ),
        "scaled": Mistake(
            "The scores are divided by √E as well as by the temperature. √E is the subject of chapter 3; here the "
            "temperature is all. See section 2.5.",
            lambda x, temperature: softmax(x @ x.T / x.size(-1) ** 0.5 / temperature),
        ),
        "context returned": Mistake(
            "These are context vectors, one step too far: the weights were asked for. See section 2.5.",
            lambda x, temperature: softmax(x @ x.T / temperature) @ x,
        ),
    },
)


# ---------------------------------------------------------------- a batch


def _sentences(draw):
    yield "one sentence", draw(*_WORDS.shape)
    yield "a batch", draw(2, 5, 7)
    yield "a batch of one", draw(1, 5, 3)
    yield "two leading axes", draw(2, 3, 5, 7)
    yield "three leading axes", draw(2, 3, 2, 5, 3)
    yield "large scores", 30 * draw(2, 3, 7)
    yield "float64", draw(2, 3, 5, dtype=torch.float64)


def _are_about_the_chapters_words(found, x):
    weights, contexts = _weights_and_contexts_of_the_chapter(x)
    mixed = [weights @ x] if x.shape[-2:] == _WORDS.shape else []
    return any(_same(found, context) for context in [contexts, *mixed])


def _averages_without_keepdim(found, x):
    if x.dim() > 2:
        return None  # what meets what depends on the sizes
    return any(_same(found, weights @ x) for weights in _without_keepdim(x @ x.T))


def _average_all_by(weigh):
    return lambda x: weigh(x @ x.mT) @ x


def _first_sentence(x):
    return x.reshape(-1, *x.shape[-2:])[0]


def _attend_with_three_axes(x):
    _B, _T, _E = x.shape
    return _attend(x)


def _all_axes_reversed(x):
    return x.permute(*reversed(range(x.dim())))


all_contexts = Exercise(
    name="all_contexts",
    trials=_sentences,
    right=_attend,
    returns=("context",),
    gradients=True,
    mistakes={
        "notebook's variables": Mistake(
            "Something in it comes from the chapter's six words, whatever x is handed over: "
            "a name such as context or weights inside the function belongs to the notebook. See section 2.5.",
            sign=_are_about_the_chapters_words,
        ),
        "transposes the batch": Mistake(
            "In a batch all axes are turned around, as under `.T`, and the sentences become numbers of a token: the "
            "last two axes alone should change places. See section 2.17.",
            lambda x: softmax(x @ _all_axes_reversed(x)) @ x,
        ),
        "exchanges sentences and tokens": Mistake(
            "Axes 0 and 1 change places, which in a batch are the sentences and their tokens: the last two axes have "
            "to. See section 2.17.",
            lambda x: softmax(x @ x.transpose(0, 1)) @ x,
        ),
        "axis counted from the front": Mistake(
            "A single sentence has no axis number 2: an axis is counted from the front, "
            "where a batch puts one more. Counted from the back, both are the same. See section 2.17.",
            lambda x: softmax(x @ x.transpose(1, 2)) @ x,
        ),
        "compares numbers instead of tokens": Mistake(
            "The scores are a table of E by E: the transposed x stands first, "
            "so the numbers of a token are compared with each other, and not the tokens. See section 2.5.",
            lambda x: x @ softmax(x.mT @ x),
        ),
        "transposed first": Mistake(
            "The scores are a table of E by E, which cannot weigh T tokens: "
            "in the product of x with itself, the transposed one comes second. See section 2.5.",
            lambda x: softmax(x.mT @ x) @ x,
        ),
        "product the wrong way round": Mistake(
            "The last product has the tokens first. Each weight belongs to a row of x, "
            "and for that the weights come first. See section 2.4.",
            lambda x: x @ softmax(x @ x.mT),
        ),
        "loops over the first axis": Mistake(
            "The tokens of a single sentence are taken for sentences: the first axis is the batch "
            "only where there is one. `@` and `dim=-1` take both. See section 2.17.",
            lambda x: torch.stack([softmax(row @ row.T) @ row for row in x]),
        ),
        "softmax counted from the front": Mistake(
            "The softmax runs along axis 1, which is the keys of a single sentence and the queries of a batch: the "
            "keys are the last axis. See section 2.17.",
            _average_all_by(lambda scores: softmax(scores, dim=1)),
        ),
        "softmax over the batch": Mistake(
            "The softmax runs along the first axis: in a batch the sentences share one unit of weight, "
            "and in a single sentence its queries do. See section 2.17.",
            _average_all_by(lambda scores: softmax(scores, dim=0)),
        ),
        "softmax over the queries": Mistake(
            "The weights of a token do not sum to 1, and those down each column do: every row has one unit of weight "
            "to share out. See section 2.19.",
            _average_all_by(lambda scores: softmax(scores, dim=-2)),
        ),
        "softmax over everything": Mistake(
            "All rows there are share one unit of weight: each of them should have a unit of its own. See section "
            "2.19.",
            _average_all_by(_softmax_over_everything),
        ),
        "softmax over each table": Mistake(
            "The weights of a whole sentence sum to 1 together: each row has one unit of weight to share out. See "
            "section 2.19.",
            _average_all_by(lambda scores: softmax(scores.flatten(-2)).view(scores.shape)),
        ),
        "weights of the first sentence": Mistake(
            "In a batch all sentences are averaged by the weights of the first: each should have weights of its own. "
            "See section 2.17.",
            lambda x: softmax(_first_sentence(x) @ _first_sentence(x).mT) @ x,
        ),
        "three axes only": Mistake(
            "It counts on three axes, and stops for a single sentence and for two leading axes: `@`, `.mT` and "
            "`dim=-1` take any number of them. See section 2.17.",
            _attend_with_three_axes,
        ),
        "sentences see each other": Mistake(
            "The words of all sentences are averaged together: each sentence of a batch must be attended to by "
            "itself. See section 2.17.",
            lambda x: _attend(x.reshape(-1, x.size(-1))).reshape(x.shape),
        ),
        "one maximum for all": Mistake(
            "With large scores some rows are nan: each row needs a maximum of its own, "
            "for all exponentials of a row far below it underflow. See section 2.6.",
            _average_all_by(_softmax_below_one_maximum),
        ),
        "keepdim forgotten": Mistake(
            "In a single sentence the maximum or the sum of each row is set against a column: without its axis it "
            "lines up with the columns, and in a batch with something else or with nothing. See section 2.6.",
            sign=_averages_without_keepdim,
        ),
        "no softmax": Mistake(
            "The tokens are averaged by their scores: these need not sum to 1, and may be negative. See section 2.3.",
            _average_all_by(lambda scores: scores),
        ),
        "divided by the sum": Mistake(
            "Each row of scores is divided by its sum, which can make weights below 0: those of a softmax are all "
            "above 0. See section 2.3.",
            _average_all_by(lambda scores: scores / scores.sum(dim=-1, keepdim=True)),
        ),
        "weights returned": Mistake(
            "These are the weights; the last of the three lines, the average, is missing. See section 2.5.",
            lambda x: softmax(x @ x.mT),
        ),
        "scaled": Mistake(
            "The scores are divided by √E before the softmax, as PyTorch's own attention does "
            "unless it is told scale=1.0. See section 2.17.",
            lambda x: softmax(x @ x.mT / x.size(-1) ** 0.5) @ x,
        ),
        "softmax overflows": Mistake(
            "With large scores there is nan: exponentials overflow there, and a softmax that subtracts the maximum "
            "first stays finite. See section 2.6.",
            _average_all_by(_naive_softmax),
        ),
    },
)


# ---------------------------------------------------------------- the logarithm of a softmax


def _scores_and_axes(draw):
    yield "one row", draw(7)
    yield "a table", draw(3, 5)
    yield "along the first axis", draw(5, 7), 0
    yield "along the middle axis", draw(2, 3, 5), 1
    yield "along the first axis of three", draw(3, 5, 2), 0
    yield "along an axis counted from the end", draw(3, 7, 5), -2
    yield "along axis 2 of four", draw(2, 3, 5, 7), 2
    yield "along the third axis from the end", draw(2, 3, 5, 7), -3
    yield "a batch of one", draw(1, 5, 2)
    # Next to a sum of exponentials that is not 1, a score whose weight underflows.
    yield "two high scores and low ones", torch.cat([draw(3, 2), draw(3, 5) - 200], dim=-1)
    yield "scores in the thousands", 3000 * draw(3, 5)
    yield ("rows far apart", draw(3, 5) + torch.tensor([[-2000.0], [0.0], [2000.0]], device=draw.device))
    yield "float64", draw(3, 5, dtype=torch.float64)


def _log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


def _is_off_by_the_maximum(found, x, dim=-1):
    if not found.isfinite().all():
        return None
    largest = x.amax(dim, keepdim=True)
    return any(_same(found, _log_softmax(x, dim) + off) for off in (largest, -largest))


def _sums_over_everything(found, x, dim=-1):
    every_shift = x - x.max(), x - x.amax(dim, keepdim=True)
    return any(_same(found, shifted - shifted.exp().sum().log()) for shifted in every_shift)


def _ends_at_a_floor(found, x, dim=-1):
    weights, least = softmax(x, dim), found.min()
    floor = torch.exp(least)
    every_guard = weights + floor, weights.clamp(min=floor)
    return bool(least.isfinite() & (floor < 0.01)) and any(_same(found, guarded.log()) for guarded in every_guard)


def _patched(x, dim=-1):
    logarithms = torch.log(softmax(x, dim))
    return torch.where(logarithms.isinf(), x - x.amax(dim, keepdim=True), logarithms)


log_softmax = Exercise(
    name="log_softmax",
    trials=_scores_and_axes,
    right=_log_softmax,
    returns=("logarithms",),
    gradients=True,
    mistakes={
        "logarithm of the softmax": Mistake(
            "Scores far below the largest get −∞: the exponential of such a score underflows to 0, and the logarithm "
            "comes after that. See section 2.6.",
            lambda x, dim=-1: torch.log(softmax(x, dim)),
        ),
        "small number added": Mistake(
            "Scores far below the largest all get the same value. A small number, added or held as a bound, keeps the "
            "logarithm finite, but the weight has underflowed already, and with it what it was. See section 2.6.",
            sign=_ends_at_a_floor,
        ),
        "softmax overflows": Mistake(
            "With scores in the thousands there is nan: the exponentials overflow, and ∞/∞ is no number. See section "
            "2.6.",
            lambda x, dim=-1: torch.log(_naive_softmax(x, dim)),
        ),
        "maximum not subtracted": Mistake(
            "With scores in the thousands the result is infinite: the sum of exponentials overflows or underflows, "
            "unless the maximum is subtracted first. See section 2.6.",
            {"x - x.amax(dim, keepdim=True)": "x"},
        ),
        "maximum subtracted once": Mistake(
            "The results are off by the maximum of their row: subtracted in two places it cancels, in one it does "
            "not. See section 2.6.",
            sign=_is_off_by_the_maximum,
        ),
        "one maximum for all": Mistake(
            "Rows far below the others become infinite: each row needs a maximum of its own, "
            "for all exponentials of such a row underflow. See section 2.6.",
            {"x.amax(dim, keepdim=True)": "x.max()"},
        ),
        "keepdim forgotten": Mistake(
            "In a table a maximum or a sum has lost its axis, and no longer lines up with the rows. See section 2.6.",
            {"sum(dim, keepdim=True)": "sum(dim)"},
        ),
        "maximum comes with its place": Mistake(
            "`max` along an axis returns two things, the largest numbers and their places; "
            "`amax` returns the numbers alone. See section 2.6.",
            lambda x, dim=-1: x - x.max(dim, keepdim=True),
        ),
        "softmax over everything": Mistake(
            "The sum runs over all scores there are; it should run along `dim`, for each row by itself. See section "
            "2.19.",
            sign=_sums_over_everything,
        ),
        "axis ignored": Mistake(
            "These are the numbers along the last axis, whatever `dim` says. See section 2.6.",
            {"    shifted =": "    dim = -1\n    shifted ="},
        ),
        "axis ignored in the sum": Mistake(
            "These are the numbers of a sum along the last axis, whatever `dim` says. See section 2.6.",
            {"sum(dim,": "sum(-1,"},
        ),
        "logarithm of the sum forgotten": Mistake(
            "The sum of exponentials is subtracted as it is: the logarithm of a fraction is the logarithm "
            "of its upper part minus the logarithm of its lower part. See section 2.6.",
            {"torch.log(torch.exp(shifted).sum(dim, keepdim=True))": "torch.exp(shifted).sum(dim, keepdim=True)"},
        ),
        "logarithm before the sum": Mistake(
            "The logarithm is taken of each exponential, which brings back the score, and the sum is taken after that. "
            "It is the sum that needs a logarithm. See section 2.6.",
            {"torch.exp(shifted).sum(dim, keepdim=True))": "torch.exp(shifted)).sum(dim, keepdim=True)"},
        ),
        "plus instead of minus": Mistake(
            "The logarithm of the sum is added. What stands below the line of a fraction is subtracted. See section "
            "2.6.",
            {"shifted - torch": "shifted + torch"},
        ),
        "sum forgotten": Mistake(
            "The maximum is subtracted and nothing else: what the softmax divides by is missing. See section 2.6.",
            {" - torch.log(torch.exp(shifted).sum(dim, keepdim=True))": ""},
        ),
        "no logarithm": Mistake(
            "This is the softmax itself, which lies between 0 and 1: its logarithm was asked for. See section 2.6.",
            softmax,
        ),
        CHANGES_ITS_INPUT: Mistake(
            "An operation such as -= writes into the tensor of whoever called: make a new one. See section 2.6."
        ),
        "a patch where the weight underflows": Mistake(
            "Where a weight underflows, the sum of the exponentials is left out: the score less the maximum is "
            "right only if that sum is 1. See section 2.6.",
            _patched,
        ),
        "logarithm to base 2": Mistake(
            "The logarithm has base 2; the course takes the natural one. See section 2.6.",
            {"return shifted": "return (shifted", "keepdim=True))": "keepdim=True))) / math.log(2)"},
        ),
        "mean instead of sum": Mistake(
            "The exponentials are averaged where they have to be added up. See section 2.6.",
            {".sum(": ".mean("},
        ),
    },
)
