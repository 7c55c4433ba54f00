"""The exercises of the chapter on attention without learned numbers. Used from chapter 2 on."""

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


def _is_about_another_token(found, x, index):
    return any(_same(found, context) for t, context in enumerate(softmax(x @ x.mT) @ x) if t != index)


def _context_of(x, index):
    scores = x @ x[index]
    exponentials = torch.exp(scores - scores.max())
    weights = exponentials / exponentials.sum()
    return weights @ x


context_of = Exercise(
    name="context_of",
    trials=_tokens_and_an_index,
    right=_context_of,
    result_names=("context",),
    chapter=2,
    signs={"notebook's variables": _is_about_the_chapters_words, "another token": _is_about_another_token},
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


def _are_weights_of_the_chapters_words(found, x, temperature):
    scores = (_WORDS @ _WORDS.T).to(x)
    cold, hot = softmax(scores / temperature), softmax(scores * temperature)
    return any(_same(found, made) for made in (cold, hot, softmax(scores) / temperature))


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


def _weights_at(x, temperature):
    scores = x @ x.T / temperature
    largest = scores.amax(-1, keepdim=True)
    exponentials = torch.exp(scores - largest)
    return exponentials / exponentials.sum(-1, keepdim=True)


weights_at = Exercise(
    name="weights_at",
    trials=_tokens_and_a_temperature,
    right=_weights_at,
    result_names=("weights",),
    chapter=2,
    signs={
        "temperature held above a bound": _are_warmer,
        "notebook's variables": _are_weights_of_the_chapters_words,
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
    total = torch.exp(shifted).sum(dim, keepdim=True)
    return shifted - torch.log(total)


def _ends_at_a_floor(found, x, dim=-1):
    weights, least = softmax(x, dim), found.min()
    floor = torch.exp(least)
    every_guard = weights + floor, weights.clamp(min=floor)
    return bool(least.isfinite() & (floor < 0.01)) and any(_same(found, guarded.log()) for guarded in every_guard)


log_softmax = Exercise(
    name="log_softmax",
    trials=_scores_and_axes,
    right=_log_softmax,
    result_names=("logarithms",),
    gradients=True,
    excluded=("log_softmax", "logsumexp", "cross_entropy", "nll_loss"),
    chapter=2,
    signs={"small number added": _ends_at_a_floor},
)
