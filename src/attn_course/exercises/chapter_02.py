"""The exercises of the chapter on attention without learned numbers. Used from chapter 2 on."""

import math

import torch
from torch import Tensor

from attn_course.exercises.engine.exercise import Exercise
from attn_course.functional.attention import softmax

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
    """Return the weights of three softmaxes in which the sum, the maximum or both have lost their axis.

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
    result_names=("context",),
    chapter=2,
    answers={
        "weights forgotten": lambda x, index: x.mean(dim=0),
        "no softmax": _average_by(lambda scores: scores),
        "divided by the sum": _average_by(lambda scores: scores / scores.sum()),
        "softmax over one number": lambda x, index: x.sum(dim=0),
        "scaled": lambda x, index: softmax(x @ x[index] / x.size(-1) ** 0.5) @ x,
        "itself left out": _without_itself,
        "largest score only": lambda x, index: x[(x @ x[index]).argmax()],
        "six tokens": _of_six,
        "weights returned": lambda x, index: softmax(x @ x[index]),
        "product the wrong way round": lambda x, index: x @ softmax(x @ x[index]),
        "sum over the numbers": lambda x, index: softmax(x @ x[index]) * x.sum(dim=-1),
        "all tokens at once": lambda x, index: _attend(x),
        "softmax over the queries": lambda x, index: softmax(x @ x.T, dim=0)[index] @ x,
        "softmax over everything": lambda x, index: _softmax_over_everything(x @ x.T)[index] @ x,
        "softmax overflows": _average_by(_naive_softmax),
        "its own score taken for the largest": _softmax_below_its_own_score,
        "future left out": lambda x, index: softmax(x[: index + 1] @ x[index]) @ x[: index + 1],
        "directions compared": lambda x, index: (
            softmax((x / x.norm(dim=-1, keepdim=True)) @ (x[index] / x[index].norm())) @ x
        ),
    },
    signs={
        "notebook's variables": _is_about_the_chapters_words,
        "another token": _is_about_another_token,
        "not divided by the sum": _averages_by_bare_exponentials,
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
    result_names=("scores",),
    seeds=(0,),
    chapter=2,
    signs={
        "not a tensor": lambda found: not isinstance(found, Tensor),
        "not three scores": lambda found: found.shape != (3,),
        "not finite": lambda found: not torch.isfinite(found).all(),
        "the sum is 0": lambda found: abs(found.sum()) < 1e-6,
        "no score is negative": lambda found: found.min() >= 0,
        "the sum is negative": lambda found: found.sum() < 0,
        "the sum is small": lambda found: found.sum() <= 0.999,
        "two negative scores": lambda found: (found < 0).sum() == 2,
        "too few weights above 1": lambda found: (found < 0).sum() == 1,
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
    """Return whether the temperature is low and the weights belong to a higher temperature."""
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
    result_names=("weights",),
    chapter=2,
    answers={
        "temperature forgotten": _weigh(lambda scores, temperature: softmax(scores)),
        "multiplied instead of divided": _weigh(lambda scores, temperature: softmax(scores * temperature)),
        "root of the temperature": _weigh(lambda scores, temperature: softmax(scores / temperature**0.5)),
        "scores cut to whole numbers": _weigh(lambda scores, temperature: softmax(scores // temperature)),
        "temperature after the softmax": _weigh(lambda scores, temperature: softmax(scores) / temperature),
        "temperature twice": lambda x, temperature: softmax((x / temperature) @ (x / temperature).T),
        "softmax over the queries": _weigh(lambda scores, temperature: softmax(scores / temperature, dim=0)),
        "softmax over everything": _weigh(lambda scores, temperature: _softmax_over_everything(scores / temperature)),
        "softmax overflows": _weigh(lambda scores, temperature: _naive_softmax(scores / temperature)),
        "one maximum for all": _weigh(lambda scores, temperature: _softmax_below_one_maximum(scores / temperature)),
        "compares numbers instead of tokens": lambda x, temperature: softmax(x.T @ x / temperature),
        "divided by the sum": _weigh(lambda scores, temperature: scores / scores.sum(dim=-1, keepdim=True)),
        "no softmax": _weigh(lambda scores, temperature: scores / temperature),
        "scaled": lambda x, temperature: softmax(x @ x.T / x.size(-1) ** 0.5 / temperature),
        "context returned": lambda x, temperature: softmax(x @ x.T / temperature) @ x,
    },
    signs={
        "temperature held above a bound": _are_warmer,
        "notebook's variables": _are_weights_of_the_chapters_words,
        "keepdim forgotten": _weighs_without_keepdim,
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
    result_names=("logarithms",),
    gradients=True,
    excluded=("log_softmax", "logsumexp", "cross_entropy", "nll_loss"),
    chapter=2,
    answers={
        "logarithm of the softmax": lambda x, dim=-1: torch.log(softmax(x, dim)),
        "softmax overflows": lambda x, dim=-1: torch.log(_naive_softmax(x, dim)),
        "maximum comes with its place": lambda x, dim=-1: x - x.max(dim, keepdim=True),
        "no logarithm": softmax,
        "a patch where the weight underflows": _patched,
    },
    signs={
        "small number added": _ends_at_a_floor,
        "maximum subtracted once": _is_off_by_the_maximum,
        "softmax over everything": _sums_over_everything,
    },
)
