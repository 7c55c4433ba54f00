"""The exercises of the chapter on reading a framework's attention. Used from chapter 14 on."""

import math
import re

import numpy as np
import torch
from torch import Tensor

from attn_course.burn import (
    BurnMultiHeadAttentionConfig,
    MhaInput,
    burn_quiet_softmax,
    burn_quiet_softmax_2023,
    from_burn_mask,
)
from attn_course.check.exercise import (
    CHANGES_ITS_INPUT,
    FLOAT32_INSIDE,
    NO_GRADIENT,
    Exercise,
    Mistake,
    Remark,
    set_parameters,
    weights_and_gradient,
)
from attn_course.check.facts import TYPE_NOT_KEPT
from attn_course.check.specimens import Specimens
from attn_course.functional import attention, softmax
from attn_course.masks import make_causal_mask, make_padding_mask
from attn_course.multi_head_attention import MultiHeadAttention
from attn_course.quiet import quiet_softmax

# ---------------------------------------------------------------- a quiet softmax


def _scores_and_axes(draw):
    yield "two scores", torch.tensor([1.0, 7.0], device=draw.device), -1
    yield "low scores", draw(5, 7) - 8, -1
    yield "rows", draw(5, 7), -1
    yield "a batch of one", draw(1, 3, 2), -1
    yield "another axis", draw(3, 5, 7), 1
    yield "the first axis", draw(5, 2, 3), 0
    yield "an axis counted from the end", draw(3, 5, 2), -2
    yield "large scores", 200 * draw(5, 7), -1
    yield "scores far below 0", 20 * draw(5, 7) - 200, -1
    nothing = draw(3, 5)
    nothing[1] = -math.inf
    yield "a row of -inf", nothing, -1
    yield "float16", 3 * draw(3, 5, dtype=torch.float16), -1
    yield "large scores in float16", 200 * draw(3, 5, dtype=torch.float16), -1
    yield "float64", draw(3, 7, dtype=torch.float64), -1
    # Half precision counts in steps of a quarter here: whatever is rounded beside a score is off by percents.
    yield "high scores close together in float16", 300 + draw(3, 5, dtype=torch.float16), -1
    some = draw(3, 5)
    some[0, 2] = some[1, :3] = -math.inf
    yield "-inf beside other scores", some, -1
    nothing = draw(3, 5)
    nothing[:, 1] = -math.inf
    yield "a column of -inf", nothing, 0
    # Each of these weights is next to nothing, and their sum is not.
    low = draw(2, 4096) / 10 - 10
    low[0] = -math.inf
    yield "thousands of low scores", low, -1
    yield "thousands of low scores in float16", torch.full_like(low[:1].half(), -12), -1


def _weights_and_gradient(answer, x, dim):
    """The weights, the gradient of the scores, and the sums of the weights, in which many small ones show."""
    found = weights_and_gradient(answer, x, dim)
    if found is None:
        return None
    weights, gradient = found
    has_rows = isinstance(weights, Tensor) and weights.dim() == x.dim() and weights.is_floating_point()
    return weights, gradient, weights.sum(dim) if has_rows else None


def _naive(x, dim=-1):
    exponentials = x.exp()
    return exponentials / (1 + exponentials.sum(dim, keepdim=True))


def _large_scores_give_nan(found, x, dim):
    is_large = bool((x.isfinite() & (x.abs() > 80)).any())
    return True if is_large and found[0].isnan().any() else (None if is_large or (x == -math.inf).any() else False)


def _empty_rows_are_nan(found, x, dim):
    empty = (x == -math.inf).all(dim)
    weights = found[0].movedim(dim, -1)
    if not empty.any():
        return None if (x == -math.inf).any() or not any(part.isnan().any() for part in found) else False
    return bool(weights[empty].isnan().all())


def _empty_columns_are_nan(found, x, dim):
    """Scores that are all -inf along another axis than the last are nan, and nothing else is."""
    weights, empty = found[0].movedim(dim, -1), (x == -math.inf).all(dim)
    if not empty.any():
        return None
    if dim % x.dim() == x.dim() - 1:
        return False
    return bool(weights[empty].isnan().all() and not weights[~empty].isnan().any())


def _low_scores_lost_in_half(found, x, dim):
    is_low = x.dtype == torch.float16 and x.max() < -11 and x.min() > -16
    return bool(is_low and (found[0] == 0).all())


def _gradient_is_nan(found, x, dim):
    return not found[0].isnan().any() and bool(found[1].isnan().any())


def _nan_below_zero(found, x, dim):
    """Empty rows are nan, and so is the gradient where all scores are far below 0."""
    if (x == -math.inf).all(dim).any():
        return bool(found[0].isnan().any())
    return x.max() < 0 and bool(found[1].isnan().any() and not found[0].isnan().any())


def _one_maximum(x, dim=-1):
    m = x.detach().amax().clamp(min=0)
    return (x - m).exp() / ((-m).exp() + (x - m).exp().sum(dim, keepdim=True))


def _zero_kept_and_score_cut(weights, x, dim):
    """Whether the appended zero kept its weight and a score at the other end lost it, in front or behind."""
    zero, n = torch.zeros_like(x.narrow(dim, 0, 1)), x.size(dim)
    in_front = torch.softmax(torch.cat([zero, x], dim), dim).narrow(dim, 0, n)
    behind = torch.softmax(torch.cat([x, zero], dim), dim).narrow(dim, 1, n)
    return any(torch.allclose(weights, w, rtol=1e-3, atol=1e-6) for w in (in_front, behind))


def _last_axis_somewhere(weights, x, dim):
    """Whether dim is not used everywhere: not at all, or in the softmax and not where the zero is appended."""
    zero_last = torch.softmax(torch.cat([x, torch.zeros_like(x[..., :1])], -1), dim)
    return any(
        weights.shape == w.shape and torch.allclose(weights, w, rtol=1e-3, atol=1e-6)
        for w in (quiet_softmax(x, -1), zero_last[..., :-1])
    )


def _zero_shifted_up(x, dim=-1):
    m = x.detach().amax(dim, keepdim=True).clamp(min=0)
    return (x - m).exp() / (m.exp() + (x - m).exp().sum(dim, keepdim=True))


def _detached(x, dim=-1):
    return quiet_softmax(x, dim).detach()


def _float32(x, dim=-1):
    return quiet_softmax(x.float(), dim)


def _without_gradient_of_sum(x, dim=-1):
    """Right numbers, but autograd takes the denominator for a constant."""
    m = x.detach().amax(dim, keepdim=True).clamp(min=0)
    total = (-m).exp() + (x.detach() - m).exp().sum(dim, keepdim=True)
    return (x - m).exp() / total


def _without_gradient_of_numerator(x, dim=-1):
    m = x.detach().amax(dim, keepdim=True).clamp(min=0)
    exponentials = (x - m).exp()
    return exponentials.detach() / ((-m).exp() + exponentials.sum(dim, keepdim=True))


def _scores_cut_off(found, x, dim):
    """Whether scores that differ and are very large have the same weight."""
    weights = found[0].movedim(dim, -1)
    if weights.isnan().any():  # in half precision the largest exponential is infinite all the same
        return None if x.dtype == torch.float16 else False
    if x.size(dim) < 2:
        return None
    two, places = x.movedim(dim, -1).topk(2, dim=-1)
    large = (two[..., 1] > 90) & (two[..., 0] > two[..., 1] + 1)
    both = weights.gather(-1, places)[large]
    return None if not large.any() else bool(((both[:, 0] == both[:, 1]) & (both[:, 0] > 0)).all())


def _a_little_too_small(found, x, dim):
    """Whether no weight is too large, and those that count are too small by a few per cent at most."""
    if x.dtype == torch.float16:  # as rounding may make them
        return None
    right = quiet_softmax(x, dim)
    counts = right > 1e-3
    share = (found[0] / right)[counts]
    return bool(((share > 0.9) & (share < 1.001)).all() and (share < 0.9999).any())


def _percents_lost_in_half(found, x, dim):
    """Whether it is wrong in half precision alone, by no more than its coarse steps explain."""
    right = quiet_softmax(x.double(), dim)
    share = (found[0].double() / right)[right > 1e-3]
    if x.dtype == torch.float16 and not len(share):
        return None
    return x.dtype == torch.float16 and found[0].dtype == x.dtype and bool(((share > 0.7) & (share < 1.4)).all())


def _minus_infinity_as_0(x, dim=-1):
    hidden = x == -math.inf
    return quiet_softmax(x.masked_fill(hidden, 0), dim).masked_fill(hidden, 0)


def _rows_with_minus_infinity_as_empty(x, dim=-1):
    hides = (x == -math.inf).any(dim, keepdim=True)
    return quiet_softmax(x.masked_fill(hides, 0), dim).masked_fill(hides, 0)


def _axis_lost(x, dim=-1):
    m = x.detach().amax(dim).clamp(min=0)
    exponentials = (x - m).exp()
    return exponentials / ((-m).exp() + exponentials.sum(dim))


stable_quiet = Exercise(
    name="stable_quiet",
    trials=_scores_and_axes,
    right=lambda x, dim=-1: quiet_softmax(x.double(), dim).to(x),  # half precision is held to what is right
    use=_weights_and_gradient,
    returns=("weights", "the gradient of the scores", "the sum of the weights"),
    mistakes={
        "plain softmax": Mistake(
            "Every row sums to 1: it is the plain softmax, in which nothing takes the weight that no key wants. "
            "See section 14.6.",
            lambda x, dim: torch.softmax(x, dim),
        ),
        "one stays one": Mistake(
            "Low scores get large weights, and 1 and 7 give 0.4994: what is subtracted from the scores has to be "
            "subtracted from the zero, too, whose exponential is the 1. See section 14.7.",
            sign=lambda found, x, dim: torch.allclose(
                found[0],
                burn_quiet_softmax_2023(x, dim),
                rtol=5e-3 if x.dtype == torch.float16 else 1e-3,
                equal_nan=True,
            ),
        ),
        "zero shifted the wrong way": Mistake(
            "Rows with a high score get next to nothing: the 1 has become e^m, with m the largest score, and should "
            "become e^−m. See section 14.7.",
            sign=lambda found, x, dim: (
                torch.allclose(found[0], _zero_shifted_up(x, dim), rtol=1e-3, atol=1e-6)
                and not torch.allclose(found[0], quiet_softmax(x, dim), rtol=1e-3)
            ),
        ),
        "one maximum for all": Mistake(
            "Among many rows of large scores some are nan, as where the largest score of all is subtracted from each "
            "row: each needs its own largest. See section 14.7.",
            sign=lambda found, x, dim: (
                bool(found[0].isnan().any())
                and torch.allclose(found[0], _one_maximum(x, dim), rtol=1e-3, atol=1e-6, equal_nan=True)
            ),
        ),
        "softmax overflows": Mistake(
            "With large scores there is nan in the result: exponentials overflow, or all of them vanish, unless the "
            "largest exponent of the row is subtracted first. See section 14.7.",
            sign=_large_scores_give_nan,
        ),
        "empty rows along the last axis only": Mistake(
            "Scores that are all −∞ along another axis than the last give nan: whether there is anything to weigh has "
            "to be asked along dim. See section 14.7.",
            sign=_empty_columns_are_nan,
        ),
        "nan in empty rows": Mistake(
            "A row of −∞ is nan, and should be zeros: −∞ − (−∞), where its largest score is subtracted, and −∞ · 0, "
            "where a zero is made of a score, are no numbers. Which other exponent stands in the denominator? "
            "See section 14.7.",
            sign=_empty_rows_are_nan,
        ),
        "nan in the gradient": Mistake(
            "Some of the gradient is nan where no weight is: on the way there is an ∞ or a nan, which the weights do "
            "not show and the gradient does. See section 14.7.",
            sign=_gradient_is_nan,
        ),
        "softmax over a fixed axis": Mistake(
            "Where `dim` is another axis than the last, something goes along the last one all the same: everything "
            "has to go along dim. See section 14.7.",
            sign=lambda found, x, dim: _last_axis_somewhere(found[0], x, dim),
        ),
        "softmax over everything": Mistake(
            "These are the weights of a sum over all scores: each row needs a sum of its own. See section 14.6.",
            lambda x, dim: quiet_softmax(x.flatten(), 0).reshape(x.shape),
        ),
        "weight of the zero returned": Mistake(
            "There is one weight too many, that of an appended zero: it takes part in the softmax, and should be left "
            "out of the result. See section 14.6.",
            lambda x, dim: torch.softmax(torch.cat([x, torch.zeros_like(x.narrow(dim, 0, 1))], dim), dim),
        ),
        "first column cut off": Mistake(
            "The weight of the appended zero stays, and that of a score is missing: cut at the end where the zero was "
            "put. See section 14.6.",
            sign=lambda found, x, dim: _zero_kept_and_score_cut(found[0], x, dim),
        ),
        "a zero for each score": Mistake(
            "These are the weights beside as many zeros as scores: one 1 is added to the sum, and not one for each "
            "score. See section 14.6.",
            lambda x, dim: softmax(torch.cat([x, torch.zeros_like(x)], dim), dim).narrow(dim, 0, x.size(dim)),
        ),
        "percents lost in half precision": Mistake(
            "In half precision, and there alone, the weights are off. Near 300 it counts in steps of a quarter: "
            "subtract the largest score before anything else is added. See section 14.7.",
            sign=_percents_lost_in_half,
        ),
        "no gradient": Mistake(
            "No gradient reaches the scores: only the maximum may be detached. See section 14.7.",
            _detached,
        ),
        "float32 whatever comes in": Mistake(
            "The scores are in another type than float32 and the weights are not: the result keeps the type that came "
            "in. See section 14.7.",
            _float32,
        ),
        "denominator detached": Mistake(
            "The gradient is that of a denominator taken for a constant: it depends on "
            "the scores as well. Only the maximum may be detached. See section 14.7.",
            _without_gradient_of_sum,
        ),
        "numerator detached": Mistake(
            "The gradient is that of a numerator taken for a constant: it depends on "
            "the scores as well. Only the maximum may be detached. See section 14.7.",
            _without_gradient_of_numerator,
        ),
        CHANGES_ITS_INPUT: Mistake("A caller may need the scores again: work on a copy of them. See section 5.17."),
        "scores cut off": Mistake(
            "Very large scores that differ get the same weight: nothing has to be cut off where the largest exponent "
            "is subtracted. See section 14.7.",
            sign=_scores_cut_off,
        ),
        "something added to the sum": Mistake(
            "The weights are a little too small. A small number added to the sum against a division by zero does that, "
            "and this sum is never 0. See section 14.7.",
            sign=_a_little_too_small,
        ),
        "axis of the sum lost": Mistake(
            "One number for each row does not line up with several rows: the maximum and the sum have to keep their "
            "axis, and keepdim=True does that. See section 14.7.",
            _axis_lost,
        ),
        "zero left out of the maximum": Mistake(
            "A row of −∞ is nan, and so is the gradient of scores far below 0. The zero beside the scores belongs "
            "among the numbers whose largest is taken. See section 14.7.",
            sign=_nan_below_zero,
        ),
        "−∞ as a score of 0": Mistake(
            "A score of −∞ takes weight from those beside it, as a score of 0 does: its exponential is 0, and adds "
            "nothing to the sum. See section 14.7.",
            _minus_infinity_as_0,
        ),
        "rows with a −∞ taken for empty": Mistake(
            "A row in which one score is −∞ has no weights at all: only that score should have none. See section 14.7.",
            _rows_with_minus_infinity_as_empty,
        ),
        "low scores lost in half precision": Mistake(
            "In half precision scores of −12 have no weight, and 4,096 of them should have 0.025 together: e^12 is "
            "infinite there. See section 14.7.",
            sign=_low_scores_lost_in_half,
        ),
        "a one for the zero": Mistake(
            "What stands beside the scores weighs e, as a score of 1 does; the 1 below the fraction is the "
            "exponential of a score of 0. See section 14.7.",
            lambda x, dim: softmax(torch.cat([x, torch.ones_like(x.narrow(dim, 0, 1))], dim), dim).narrow(
                dim, 0, x.size(dim)
            ),
        ),
    },
)


# ---------------------------------------------------------------- one mask from two


def _burn_masks(draw):
    def pad(*lengths, side="right", max_len=None):
        return ~make_padding_mask(lengths, max_len, side=side, device=draw.device)[:, 0]

    causal = ~make_causal_mask(5, device=draw.device)
    yield "only mask_pad", pad(7, 2, 5), None
    yield "only mask_attn", None, causal.expand(2, -1, -1)
    yield "both", pad(5, 3), causal.expand(2, -1, -1)
    yield "a mask_attn for each sentence, alone", None, draw.mask(2, 3, 7)
    yield "fewer queries than keys", pad(7, 4, 1), draw.mask(3, 2, 7)
    yield "padding on the left", pad(2, 7, 3, side="left"), draw.mask(3, 5, 7)
    yield "as many sentences as queries", pad(5, 2, 3, 1, 4), draw.mask(5, 5, 5)
    yield "one sentence", pad(3, max_len=7), draw.mask(1, 2, 7)
    yield "only mask_pad, with padding on the left", pad(2, 5, 3, side="left"), None
    yield "only mask_pad, with nothing masked", pad(5, 5), None
    yield "only mask_pad, with a sentence of padding", pad(3, 0), None
    everything = draw.mask(2, 3, 5)
    everything[1, 2] = True
    yield "only mask_attn, with a query that may see nothing", None, everything
    yield "a sentence of padding", pad(5, 0, 2), draw.mask(3, 2, 5)
    yield "nothing masked", pad(5, 5), torch.zeros(2, 3, 5, dtype=torch.bool, device=draw.device)


def _join(mask_pad, mask_attn, *, pad=lambda m: ~m[:, None, :], attn=lambda m: ~m, join=torch.logical_and):
    if mask_attn is None:
        return pad(mask_pad)
    if mask_pad is None:
        return attn(mask_attn)
    return join(pad(mask_pad), attn(mask_attn))


def _of_either_mask(answer, mask_pad, mask_attn):
    """However an answer stumbles over None, it is the same mistake."""
    try:
        return answer(mask_pad, mask_attn)
    except (TypeError, AttributeError) as error:
        if "NoneType" not in str(error):
            raise
        stumbled = TypeError("None stands where a mask is expected")
        raise stumbled.with_traceback(error.__traceback__) from None


def _padding_on_both(pad, attn):
    if attn is None or attn.size(1) != attn.size(2):
        return _join(pad, attn)
    return _join(pad, attn, pad=lambda m: ~m[:, None, :] & ~m[:, :, None])


def _padding_at_the_end(found, pad, attn):
    """A sign: each sentence has as many pads as it should, and they are its last keys."""
    if pad is None:
        return None
    last = pad.sort(dim=-1, stable=True).values
    return torch.equal(found, from_burn_mask(attn, last))


def _empty_rows_shown(found, pad, attn):
    """A sign: what hides all keys hides none, and all the rest is right."""
    right = from_burn_mask(attn, pad)
    empty = ~right.any(-1, keepdim=True)
    return bool(empty.any()) and torch.equal(found, right | empty)


course_mask = Exercise(
    name="course_mask",
    trials=_burn_masks,
    right=lambda mask_pad, mask_attn: from_burn_mask(mask_attn, mask_pad),
    use=_of_either_mask,
    returns=("mask",),
    mistakes={
        "mask inverted": Mistake(
            "The mask is True where a key is hidden, as Burn's are; in this course True means may attend. See section "
            "14.3.",
            lambda pad, attn: ~from_burn_mask(attn, pad),
        ),
        "padding inverted": Mistake(
            "mask_pad shows what it should hide: like mask_attn it says True where a key is masked. See section 14.3.",
            lambda pad, attn: _join(pad, attn, pad=lambda m: m[:, None, :]),
        ),
        "mask_attn inverted": Mistake(
            "mask_attn shows what it should hide: like mask_pad it says True where a key is masked. See section 14.3.",
            lambda pad, attn: _join(pad, attn, attn=lambda m: m),
        ),
        "joined by or": Mistake(
            "A key is visible as soon as one of the two masks allows it, and it takes both. See section 14.3.",
            lambda pad, attn: _join(pad, attn, join=torch.logical_or),
        ),
        "padding on the queries": Mistake(
            "The rows of the pads are hidden and their columns are not: mask_pad is about the keys, which are the last "
            "axis. See section 14.3.",
            lambda pad, attn: _join(pad, attn, pad=lambda m: ~m[:, :, None]),
        ),
        "no axis for the queries": Mistake(
            "mask_pad lacks the axis of the queries: it has to be (B, 1, S), beside (B, T, S). See section 14.3.",
            lambda pad, attn: _join(pad, attn, pad=lambda m: ~m),
        ),
        "padding ignored": Mistake(
            "With both masks there, mask_pad hides nothing. See section 14.3.",
            lambda pad, attn: from_burn_mask(attn, pad if attn is None else None),
        ),
        "mask_attn ignored": Mistake(
            "With both masks there, mask_attn hides nothing. See section 14.3.",
            lambda pad, attn: from_burn_mask(attn if pad is None else None, pad),
        ),
        "numbers instead of booleans": Mistake(
            "The cells are right, but they are 1 and 0, and a mask holds True and False. See section 14.3.",
            sign=lambda found, pad, attn: (
                found.dtype != torch.bool and torch.equal(found, from_burn_mask(attn, pad).to(found))
            ),
        ),
        "None not expected": Mistake(
            "With one of the masks missing it stops: either may be None. See section 14.3.",
            lambda pad, attn: ~pad[:, None, :] & ~attn,
        ),
        "numbers to add": Mistake(
            "The cells are 0 where a key is visible, and below 0 where it is hidden, to be added to the scores; "
            "`attention` takes True and False. See section 14.3.",
            sign=lambda found, pad, attn: (
                found.is_floating_point() and found.max() <= 0 and torch.equal(found == 0, from_burn_mask(attn, pad))
            ),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Whoever called it hides other keys from now on: make a new mask. See section 5.17."
        ),
        "first sentence's padding for all": Mistake(
            "The padding of the first sentence is used for all of the batch: each has its own. See section 14.3.",
            lambda pad, attn: _join(None if pad is None else pad[:1].expand_as(pad), attn),
        ),
        "joined by exclusive or": Mistake(
            "What both masks hide is visible again: ^ is true where exactly one of the two is. One that hides is "
            "enough. See section 14.3.",
            lambda pad, attn: _join(pad, attn, join=lambda a, b: ~(a ^ b)),
        ),
        "padding on keys and queries": Mistake(
            "Where there are as many queries as keys, the rows of the pads are hidden: such a query sees nothing at "
            "all. mask_pad is about the keys. See section 14.3.",
            _padding_on_both,
        ),
        "stretched to a square": Mistake(
            "With mask_pad alone the mask is a square, (B, S, S), and nobody said that there are as many queries as "
            "keys: an axis of length 1 fits any number of them, (B, 1, S). See section 14.3.",
            sign=lambda found, pad, attn: attn is None and found.shape == (*pad.shape, pad.size(1)),
        ),
        "padding taken to be at the end": Mistake(
            "The last keys are hidden, as many as `mask_pad` masks: it may mask the first ones. See section 14.3.",
            sign=_padding_at_the_end,
        ),
        "empty rows shown": Mistake(
            "A query for which all keys are masked may attend to all of them: it should see none. See section 14.3.",
            sign=_empty_rows_shown,
        ),
        "an axis of heads": Mistake(
            "The mask has four axes; asked for is (B, T, S), or (B, 1, S), and the layer puts in an axis for the "
            "heads. See section 14.3.",
            sign=lambda found, pad, attn: found.dim() == 4,
        ),
    },
)


# ---------------------------------------------------------------- Burn's weights


_NAMES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_BURNS = tuple(_NAMES)


def _burn_layers(draw):
    """d_model, heads, which layers have a bias, an input, the order of the layers in the record, types of their own."""
    every = _BURNS, {}
    yield "one head", 3, 1, _BURNS, draw(1, 5, 3), *every
    yield "several heads", 6, 3, _BURNS, draw(2, 5, 6), *every
    yield "no biases", 6, 2, (), draw(2, 3, 6), *every
    yield "no bias at the output", 8, 2, _BURNS[:3], draw(3, 2, 8), *every
    yield "no bias at the query", 6, 3, _BURNS[1:], draw(2, 3, 6), *every
    yield "float64", 10, 5, _BURNS, draw(2, 3, 10, dtype=torch.float64), *every
    yield "a record in another order", 6, 2, _BURNS, draw(2, 5, 6), ("value", "output", "query", "key"), {}
    yield "biases of query and value only", 6, 2, ("query", "value"), draw(2, 3, 6), *every
    half = draw(2, 3, 6, dtype=torch.bfloat16)
    yield "bfloat16, and one matrix in float16", 6, 2, _BURNS, half, _BURNS, {"output.weight": torch.float16}


def _load_and_attend(answer, d_model, num_heads, biased, x, order, types):
    """Load what the answer makes of a record of Burn's, and compare with Burn's own layer."""
    flags = {f"{name}_bias": name in biased for name in _BURNS}
    config = BurnMultiHeadAttentionConfig(d_model, num_heads, dropout=0.0, **flags)
    burn = set_parameters(config.init().to(x))
    if x.dtype == torch.float64:  # more digits than float32 has
        with torch.no_grad():
            for parameter in burn.parameters():
                parameter.mul_(1 + 2**-30)
    record = {  # as Burn keeps them: (d_in, d_out)
        name: (tensor.T.contiguous() if name.endswith("weight") else tensor.clone()).to(types.get(name, x.dtype))
        for name, tensor in sorted(burn.state_dict().items(), key=lambda item: order.index(item[0].split(".")[0]))
    }
    given = {name: tensor.clone() for name, tensor in record.items()}
    state = answer(record)
    if state is None:
        return None
    if not isinstance(state, dict):
        raise Remark("It has to return a dictionary of names and tensors. See section 14.2.")
    if record.keys() != given.keys() or any(not torch.equal(record[name], given[name]) for name in given):
        return ("the record is changed", *[None] * 4)
    ours = MultiHeadAttention(d_model, num_heads, bias="query" in biased, out_bias="output" in biased).to(x)
    missing = sorted(ours.state_dict().keys() - state.keys())
    unexpected = sorted(state.keys() - ours.state_dict().keys(), key=str)
    state = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not missing and not unexpected and any(t.dtype != given[_burns_name(name)].dtype for name, t in state.items()):
        name = FLOAT32_INSIDE if x.dtype == torch.float64 else TYPE_NOT_KEPT
        raise Remark("A tensor of the record has another type afterwards: each should keep its own.", name)
    pairs = list(_pairs(state, given))
    parts = [bool(torch.equal(p, q)) for p, q in pairs]
    if missing or unexpected or x.dtype == torch.bfloat16:
        return (_summary(missing, unexpected), None, *parts)
    ours.load_state_dict(state)
    with torch.no_grad():
        out = ours(x)[0]
        expected = burn(MhaInput.self_attn(x)).context
    if x.dtype == torch.float64 and not all(parts) and all(torch.allclose(p, q, rtol=1e-6) for p, q in pairs):
        raise Remark("Tensors of the record have lost digits on the way through another type.", FLOAT32_INSIDE)
    return ("", out - expected, *parts)


def _burns_name(name):
    layer, kind = name.split(".")
    return f"{next(theirs for theirs, mine in _NAMES.items() if mine == layer)}.{kind}"


def _pairs(state, record):
    """Do the matrices of q, k and v fit, that of the output, and the biases? As tensors to compare."""
    for names, kind in ((_BURNS[:3], "weight"), (_BURNS[3:], "weight"), (_BURNS, "bias")):
        keys = [n for n in names if f"{n}.{kind}" in record and f"{_NAMES[n]}.{kind}" in state]
        flat = [record["query.weight"].new_zeros(0)]
        yield (
            torch.cat(flat + [state[f"{_NAMES[n]}.{kind}"].flatten() for n in keys]),
            torch.cat(flat + [record[f"{n}.{kind}"].T.flatten() for n in keys]),
        )


def _summary(missing, unexpected):
    parts = [f"without {', '.join(missing)}"] if missing else []
    parts += [f"with {', '.join(map(str, unexpected))} besides"] if unexpected else []
    return " and ".join(parts)


def _moved(*, names=_NAMES, weight=lambda layer, t: t.T, keep=lambda name: True, bias=lambda t: t):
    def answer(record):
        state = {}
        for name, tensor in record.items():
            layer, kind = name.split(".")
            if keep(name):
                moved = weight(layer, tensor) if kind == "weight" else bias(tensor)
                state[f"{names[layer]}.{kind}"] = moved
        return state

    return answer


def _in_their_order(*, biases_too):
    def answer(record):
        moved = _moved()(record)
        for kind in ("weight", "bias") if biases_too else ("weight",):
            names = [f"{mine}.{kind}" for mine in _NAMES.values() if f"{mine}.{kind}" in moved]
            tensors = [tensor for name, tensor in moved.items() if name.endswith(kind)]
            moved.update(zip(names, tensors, strict=True))
        return moved

    return answer


def _values_bias_left_out(found, d_model, num_heads, biased, *others):
    """A sign: of the biases of queries and values, that of the values is missing."""
    return biased == ("query", "value") and found[0] == "without k_proj.bias, v_proj.bias"


def _queries_for_all(record):
    queries = {name: tensor for name, tensor in record.items() if name.startswith("query")}
    all_three = {name.replace("query", layer): t for layer in _BURNS[:3] for name, t in queries.items()}
    return _moved()(all_three | {name: tensor for name, tensor in record.items() if name.startswith("output")})


def _swapped(a, b):
    return {**_NAMES, a: _NAMES[b], b: _NAMES[a]}


from_burn_record = Exercise(
    name="from_burn_record",
    trials=_burn_layers,
    right=_moved(),
    use=_load_and_attend,
    returns=(
        "what is missing or too much",
        "the difference between the two layers' outputs",
        "'q, k and v have their matrices'",
        "'the output has its matrix'",
        "'the biases are right'",
    ),
    mistakes={
        "matrices transposed": Mistake(
            "None of the matrices is transposed: Burn computes xW and nn.Linear computes xWᵀ, and a square matrix does "
            "not complain. See section 14.2.",
            _moved(weight=lambda layer, t: t),
        ),
        "output projection not transposed": Mistake(
            "The matrix of the output projection went in as it was, and the other three went in transposed: all four "
            "are to be. See section 14.2.",
            _moved(weight=lambda layer, t: t if layer == "output" else t.T),
        ),
        "only the output projection transposed": Mistake(
            "The matrices of queries, keys and values went in as they were, and that of the output projection "
            "transposed: all four should be. See section 14.2.",
            _moved(weight=lambda layer, t: t.T if layer == "output" else t),
        ),
        "queries and keys swapped": Mistake(
            "The matrix of the queries stands where that of the keys belongs, and the other way round. See section "
            "14.2.",
            _moved(names=_swapped("query", "key")),
        ),
        "keys and values swapped": Mistake(
            "The matrix of the keys stands where that of the values belongs, and the other way round. See section "
            "14.2.",
            _moved(names=_swapped("key", "value")),
        ),
        "biases only where the queries have one": Mistake(
            "Where the queries have no bias, those of the other layers are left out as well: each of the four can be "
            "missing by itself. See section 14.12.",
            lambda record: {
                name: tensor
                for name, tensor in _moved()(record).items()
                if name.endswith("weight") or "query.bias" in record
            },
        ),
        "biases forgotten": Mistake(
            "The matrices have new names, and the biases are not there. See section 14.2.",
            _moved(keep=lambda name: name.endswith("weight")),
        ),
        "output projection forgotten": Mistake(
            "Queries, keys and values are there, and the output projection is not: Burn calls it output. See section "
            "14.2.",
            _moved(keep=lambda name: not name.startswith("output")),
        ),
        "Burn's names": Mistake(
            "Tensors stand there under the names that Burn gives them: load_state_dict looks for q_proj.weight and its "
            "like, and for nothing else. See section 14.2.",
            sign=lambda found, *inputs: "query.weight" in re.split("[ ,]+", found[0]),
        ),
        "out_proj misnamed": Mistake(
            "Something of the output projection is not where it is looked for, and something else is too much: ours "
            "has the name out_proj. See section 14.2.",
            sign=lambda found, *inputs: bool(re.fullmatch(r"without (k_proj\.bias, )?out_proj.* besides", found[0])),
        ),
        "biases made up": Mistake(
            "There are biases that the record does not have: a layer without a bias has no place for one, be it None. "
            "Leave out what is not there. See section 14.12.",
            sign=lambda found, *inputs: re.fullmatch(r"with ([qkv]|out)_proj\.bias(, \w+\.bias)* besides", found[0]),
        ),
        "names of layers only": Mistake(
            "The names end with the layer's, so that its matrix and its bias have one name between them: each keeps "
            "its ending, .weight or .bias. See section 14.2.",
            sign=lambda found, *inputs: "with k_proj, out_proj, q_proj, v_proj besides" in found[0],
        ),
        "biases expected": Mistake(
            "Where some of the biases are missing it stops: the configuration can switch each off. See section 14.12.",
            lambda record: {
                f"{mine}.{kind}": record[f"{theirs}.{kind}"].mT if kind == "weight" else record[f"{theirs}.{kind}"]
                for theirs, mine in _NAMES.items()
                for kind in ("weight", "bias")
            },
        ),
        "one layer's bias decides for all": Mistake(
            "Whether there is a bias is asked of one layer for all four, and each has a switch of its own: look for "
            "the bias of the layer itself. See section 14.12.",
            lambda record: {
                f"{mine}.{kind}": record[f"{theirs}.{kind}"].mT if kind == "weight" else record[f"{theirs}.{kind}"]
                for theirs, mine in _NAMES.items()
                for kind in ("weight", "bias")
                if kind == "weight" or "query.bias" in record
            },
        ),
        "in alphabetical order": Mistake(
            "The layers key, output, query and value, in this order, have gone to q_proj, k_proj, v_proj and "
            "out_proj: go by the names. See section 14.2.",
            _moved(names=dict(zip(sorted(_NAMES), _NAMES.values(), strict=True))),
        ),
        "taken in their order": Mistake(
            "The matrices of a record in another order go to other layers than their names say: a record may hold its "
            "tensors in any order, so go by the names. See section 14.2.",
            _in_their_order(biases_too=False),
        ),
        "taken in their order, biases too": Mistake(
            "The tensors of a record in another order go to other layers than their names say: a record may hold them "
            "in any order, so go by the names. See section 14.2.",
            _in_their_order(biases_too=True),
        ),
        "queries' tensors for all": Mistake(
            "Queries, keys and values have the same matrix, that of the queries: each layer has its own. See section "
            "14.2.",
            _queries_for_all,
        ),
        "another layer's bias asked for": Mistake(
            "Where only queries and values have a bias, that of the values is left out: each layer has a switch of its "
            "own, so look for the layer's own bias. See section 14.12.",
            sign=_values_bias_left_out,
        ),
        "biases set to 0": Mistake(
            "Where the queries have no bias, those of the others hold 0, and not the numbers of the record: each is "
            "to be moved as it is. See section 14.2.",
            lambda record: {
                name: tensor * ("query.bias" in record) if name.endswith("bias") else tensor
                for name, tensor in _moved()(record).items()
            },
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The record that it was given is changed afterwards: a second layer could not be filled from it. Put the "
            "tensors into a new dictionary, and leave them as they are. See section 5.17.",
            sign=lambda found, *inputs: found[0] == "the record is changed",
        ),
    },
)


# ---------------------------------------------------------------- a test of tests


def _by_appending(x, dim=-1):
    zero = torch.zeros_like(x.narrow(dim, 0, 1))
    return torch.cat([x, zero], dim).softmax(dim).narrow(dim, 0, x.size(dim))


def _by_another_offset(x, dim=-1):
    m = torch.relu(x.detach().amax(dim, keepdim=True)) + 1
    return (x - m).exp() / ((-m).exp() + (x - m).exp().sum(dim, keepdim=True))


def _in_double(x, dim=-1):
    return quiet_softmax(x.double(), dim).to(x.dtype)


def _patched(x, dim=-1):
    """Right, but an empty row is nan on the way, so its gradient is."""
    return burn_quiet_softmax(x, dim).nan_to_num()


def _raises(x, dim=-1):
    raise TypeError("quiet softmax")  # no RuntimeError, which some tests catch and no other


def _raises_another(x, dim=-1):
    raise ValueError("quiet softmax")


def _raises_elsewhere(x, dim=-1):
    if dim % x.dim() < x.dim() - 1:
        raise RuntimeError("quiet softmax along the last axis only")
    return quiet_softmax(x, dim)


def _empty_as_zeros(x, dim=-1):
    return quiet_softmax(x.masked_fill((x == -math.inf).all(dim, keepdim=True), 0), dim)


def _gradient_of_the_sum(x, dim=-1):
    """Right weights, whose gradients are right added up, and not one by one."""
    weights = quiet_softmax(x, dim)
    total = weights.sum(dim, keepdim=True)
    return weights.detach() + (total - total.detach()) / x.size(dim)


def _stop():
    torch.zeros(()).backward()


def _renormalised(x, dim):
    weights = quiet_softmax(x, dim)
    return weights / weights.sum(dim, keepdim=True).clamp(min=1e-30)


_CLAIMS = Specimens(
    right={
        "a right one": lambda x, dim=-1: quiet_softmax(x, dim),
        "one that appends a zero": _by_appending,
        "one that subtracts another number": _by_another_offset,
        "one in double precision": _in_double,
    },
    wrong={
        "a function that returns its input": lambda x, dim=-1: x,
        "the plain softmax": lambda x, dim=-1: softmax(x, dim),
        "that of 2023": lambda x, dim=-1: burn_quiet_softmax_2023(x, dim),
        "one with another sink": lambda x, dim=-1: quiet_softmax(x, dim, sink=math.log(2)),
        "a half softmax": lambda x, dim=-1: softmax(x, dim) / 2,
        "one that renormalises": lambda x, dim=-1: _renormalised(x, dim),
        "one that overflows": _naive,
        "one that is nan for a row of -inf": burn_quiet_softmax,
        "one whose dim is always the last": lambda x, dim=-1: quiet_softmax(x, -1),
        "one whose gradient lacks the denominator's": _without_gradient_of_sum,
        "one whose gradient is nan for a row of -inf": _patched,
        "one of another shape": lambda x, dim=-1: quiet_softmax(x, dim).sum(dim),
        "one that raises an error": _raises,
        "one that returns None": lambda x, dim=-1: None,
        "one whose gradient is cut off": lambda x, dim=-1: _detached(x, dim),
        "one that raises a ValueError": _raises_another,
        "one that raises an error along other axes": _raises_elsewhere,
        "one that cuts scores off at 80": lambda x, dim=-1: quiet_softmax(x.clamp(max=80), dim),
        "one that takes -inf for 0 in a row of it": _empty_as_zeros,
        "one that subtracts one maximum from all rows": lambda x, dim=-1: _one_maximum(x, dim),
        "one whose gradients are right in their sum": _gradient_of_the_sum,
    },
    obvious=3,
    section="14.8",
)


def _says(answer, fn):
    """What the test says; True and False may be NumPy's."""
    said = _CLAIMS.use(answer, fn)
    return bool(said) if isinstance(said, np.bool_) else said


tells_quiet = Exercise(
    name="tells_quiet",
    trials=_CLAIMS.trials,
    right=_CLAIMS.is_right,
    use=_says,
    returns=("what it says",),
    seeds=(0,),
    mistakes={
        "accepts everything": Mistake(
            "It accepts a function that returns its input: ask for numbers that a quiet softmax gives and others do "
            "not. See section 14.8.",
            sign=_CLAIMS.accepts("a function that returns its input"),
        ),
        "refuses everything": Mistake(
            "It refuses a right quiet softmax: find what makes it say so, a comparison that says no or an error that "
            "is caught. See section 14.6.",
            lambda fn: False,
        ),
        "says it upside down": Mistake(
            "It accepts what is wrong and refuses what is right: True says that the function is a quiet softmax. "
            "See section 14.8.",
            lambda fn: not _CLAIMS.is_right(fn),
        ),
        "accepts the plain softmax": Mistake(
            "It accepts a plain softmax, with zeros for a row of −∞, which is almost quiet where scores are high: the"
            " two differ on low scores, and a test has to compare them there and heed what comes out. See section "
            "14.8.",
            sign=_CLAIMS.accepts("the plain softmax"),
        ),
        "accepts that of 2023": Mistake(
            "It accepts the version of 2023, whose rows also sum to less than 1: ask for the numbers, or for what four "
            "low scores get together. See section 14.7.",
            sign=_CLAIMS.accepts("that of 2023"),
        ),
        "no large scores": Mistake(
            "It accepts one that gives nan for large scores: a test has to meet some whose exponential is infinite in "
            "their type (from 89 on in float32, from 710 on in float64), and to say False there. Remember that nan is "
            "not close to anything, itself included. See section 14.7.",
            sign=_CLAIMS.accepts("one that overflows"),
        ),
        "too strict": Mistake(
            "It refuses a right one that computes in another way. Two ways to the same number differ in the last "
            "digits: allow them to. See section 14.8.",
            sign=lambda found, fn: (
                (found is False or None) if _CLAIMS.is_right(fn) and fn is not _CLAIMS.right["a right one"] else None
            ),
        ),
        "no empty row": Mistake(
            "It accepts one that gives nan for a row of −∞: a test has to meet such a row, and to say False there. "
            "Remember that nan is not close to anything, itself included. See section 14.7.",
            sign=_CLAIMS.accepts("one that is nan for a row of -inf"),
        ),
        "one axis only": Mistake(
            "It accepts one that always works along the last axis: a test has to try another dim, and to heed what "
            "comes out there. See section 14.8.",
            sign=_CLAIMS.accepts("one whose dim is always the last"),
        ),
        "no gradient asked for": Mistake(
            "It accepts one whose weights are right and whose gradient is not: both gradients are to be computed, each "
            "from a tensor of its own, and compared. See section 14.24.",
            sign=_CLAIMS.accepts(
                "one whose gradient lacks the denominator's",
                "one whose gradient is nan for a row of -inf",
                "one whose gradient is cut off",
            ),
        ),
        "too loose": Mistake(
            "It accepts one with another sink, or a softmax divided by two: compare the weights themselves, and "
            "closely. See section 14.8.",
            sign=_CLAIMS.accepts("one with another sink", "a half softmax"),
        ),
        "falls over": Mistake(
            "It stops with the error of the function that it tests, and has not said False: catch it. See section "
            "14.8.",
            lambda fn: all(fn(torch.zeros(1, 1), dim) is not None for dim in (-1, 0)) and _CLAIMS.is_right(fn),
        ),
        "falls over without a gradient": Mistake(
            "It stops at weights that do not require a gradient, and has not said False: `backward` can raise an error "
            "too. See section 14.8.",
            lambda fn: _CLAIMS.is_right(fn) if fn is not _CLAIMS.wrong["one whose gradient is cut off"] else _stop(),
        ),
        "equal to the last bit": Mistake(
            "It accepts the one that appends a zero, and refuses all others that are right. They differ in the last "
            "digits: equal is too much to ask. See section 14.8.",
            lambda fn: fn is _CLAIMS.right["one that appends a zero"],
        ),
        "an error counts as right": Mistake(
            "It accepts a function that stops with an error, or returns something else than weights: that is no quiet "
            "softmax, and the answer is False. See section 14.8.",
            sign=_CLAIMS.accepts("one that raises an error", "one that returns None", "one of another shape"),
        ),
        "measures something else": Mistake(
            "It refuses a right quiet softmax. Take a few small scores, compute by hand what they should give, and "
            "follow what the test does with them. See section 14.6.",
            sign=lambda found, fn: found is False if fn is _CLAIMS.right["a right one"] else None,
        ),
        "only some errors caught": Mistake(
            "It stops where the function that it tests raises a ValueError, and has not said False: whatever error "
            "there is, the answer is False. See section 14.8.",
            lambda fn: fn(torch.zeros(1), -1) if fn is _raises_another else _CLAIMS.is_right(fn),
        ),
        "errors along other axes not caught": Mistake(
            "It stops at a function that raises an error along another axis than the last, and has not said False: "
            "any call can raise one. See section 14.8.",
            lambda fn: fn(torch.zeros(1, 1), 0) if fn is _raises_elsewhere else _CLAIMS.is_right(fn),
        ),
        "large scores not compared": Mistake(
            "It accepts one that takes every score above 80 for 80, so that 100 and 200 get the same weight: numbers "
            "are to be compared for large scores, too. See section 14.8.",
            sign=_CLAIMS.accepts("one that cuts scores off at 80"),
        ),
        "empty rows not compared": Mistake(
            "It accepts one that gives weights to a row of −∞: each of them should be 0, and a test has to ask for "
            "that. See section 14.8.",
            sign=_CLAIMS.accepts("one that takes -inf for 0 in a row of it"),
        ),
        "gradients compared in their sum": Mistake(
            "It accepts one whose gradients are right for the plain sum of the weights only: go back from a sum of "
            "unlike shares of them, such as their squares. See section 14.24.",
            sign=_CLAIMS.accepts("one whose gradients are right in their sum"),
        ),
    },
)


# ---------------------------------------------------------------- attention with sinks


def _heads_with_sinks(draw):
    def qkv(batch, heads, T, S, D, Dv, dtype=torch.float32):
        return (draw(batch, heads, n, d, dtype=dtype) for n, d in ((T, D), (S, D), (S, Dv)))

    def empty_row(batch, heads, T, S):
        mask = draw.mask(batch, 1, T, S)
        mask[0, 0, 1] = False
        return mask

    yield "one head", *qkv(1, 1, 3, 5, 4, 2), draw(1), None
    yield "as many heads as queries", *qkv(2, 3, 3, 5, 4, 2), 2 * draw(3), None
    yield "several heads", *qkv(2, 3, 5, 7, 4, 2), 2 * draw(3), None
    yield "a mask", *qkv(2, 3, 5, 7, 2, 4), 2 * draw(3), draw.mask(2, 1, 5, 7)
    yield "as many heads as keys", *qkv(2, 5, 3, 5, 4, 2), 2 * draw(5), draw.mask(3, 5)
    yield "sinks far below", *qkv(2, 3, 5, 7, 4, 2), draw(3) - 50, None
    yield "high sinks", *qkv(2, 3, 5, 7, 4, 2), draw(3) + 200, None
    yield "an empty row", *qkv(2, 3, 5, 7, 3, 2), 2 * draw(3), empty_row(2, 3, 5, 7)
    q, k, v = qkv(2, 3, 5, 7, 4, 2)
    yield "large scores", 200 * q, k, v, draw(3), None
    yield "a padding mask", *qkv(2, 3, 5, 7, 4, 2), draw(3), draw.mask(2, 1, 1, 7)
    hides_queries = draw.mask(2, 1, 5, 1)
    hides_queries[0, 0, 1] = hides_queries[1, 0, 3:] = False
    yield "a mask that hides queries", *qkv(2, 3, 5, 7, 4, 2), draw(3), hides_queries
    q, k, v = qkv(2, 3, 5, 7, 4, 2)
    padding = torch.tensor([[True] * 7, [True] * 2 + [False] * 5], device=q.device)[:, None, None]
    yield "large scores and a mask", 400 * q, k, v, draw(3), padding
    yield "an empty row, and sinks far below", *qkv(2, 3, 5, 7, 4, 2), draw(3) - 80, empty_row(2, 3, 5, 7)
    views = (draw(2, n, 3, d).transpose(1, 2) for n, d in ((5, 4), (7, 4), (7, 2)))
    yield "views with exchanged axes", *views, draw(3), None
    yield ("float64", *qkv(2, 3, 5, 7, 4, 2, torch.float64), draw(3, dtype=torch.float64), draw.mask(2, 3, 5, 7))


def _attend(q, k, v, sinks, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    return weights @ v, weights


def _in_a_pair(answer, q, k, v, sinks, mask):
    """Two results, whatever holds them."""
    result = answer(q, k, v, sinks, mask)
    if not isinstance(result, tuple | list) or len(result) != 2:
        if isinstance(result, tuple | list):
            raise Remark(f"It returns {len(result)} results, and two are asked for, out and weights. See section 14.9.")
        return result
    return tuple(result)


attend_with_sinks = Exercise(
    name="attend_with_sinks",
    trials=_heads_with_sinks,
    right=_attend,
    use=_in_a_pair,
    gradients=True,
    returns=("out", "weights"),
    mistakes={
        "sinks ignored": Mistake(
            "These are the weights of attention without sinks, which take nothing here. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: torch.allclose(
                found[1], attention(q, k, v, mask)[1], rtol=1e-3, atol=1e-6
            ),
        ),
        "zero sinks": Mistake(
            "It is the quiet softmax, whatever the sinks are: each head has a number of its own in the place of the "
            "zero. See section 14.9.",
            lambda q, k, v, sinks, mask: attention(q, k, v, mask, sink=0.0),
        ),
        "sink hidden by the mask": Mistake(
            "With a mask the sinks take nothing, and an empty row is nan: a mask hides keys, and is not to cover the "
            "sink's column. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: (
                mask is not None
                and torch.allclose(
                    found[1], torch.softmax(_scores(q, k, mask), dim=-1), rtol=1e-3, atol=1e-6, equal_nan=True
                )
            ),
        ),
        "maximum of hidden scores": Mistake(
            "Where a hidden score is far above all visible ones, the weights of a query are nan: only what is visible "
            "belongs among the numbers whose largest is subtracted. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: _nan_below_hidden_scores(found[1], q, k, sinks, mask),
        ),
        "softmax overflows": Mistake(
            "With large scores there is nan in the weights: exponentials overflow, or all of a row vanish, unless the "
            "largest of its scores and the sink is subtracted first. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: bool(_scores(q, k, mask).max() > 88 and found[1].isnan().any()),
        ),
        "renormalised": Mistake(
            "The rows of weights sum to 1: what the sink takes as a score of its own should be missing from them. See "
            "section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: found[1].size(-1) == k.size(-2) and _rows_sum_to_1(found[1]),
        ),
        "sink not exponentiated": Mistake(
            "The denominator is the sum of the exponentials and of the sink as it is; the sink is a score, and its "
            "exponential belongs there. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _fits(
                found[1], q, k, mask, lambda e: e.sum(-1, keepdim=True) + sinks[:, None, None]
            ),
        ),
        "one stays one": Mistake(
            "These are the weights of scores less their largest, beside a sink as it is: subtract the same from both, "
            "or they no longer compete. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: _fits(
                found[1], q, k, mask, lambda e: e.sum(-1, keepdim=True) + sinks[:, None, None].exp(), shifted=True
            ),
        ),
        "no scale": Mistake(
            "The scores are not divided by the root of the width of a head. See section 3.5.",
            {" / math.sqrt(q.size(-1))": ""},
        ),
        "root of the width of the values": Mistake(
            "The scores are divided by √Dv, the root of the width of the values; it is that of the queries and keys, "
            "√D. "
            "See section 14.9.",
            {"q.size(-1)": "v.size(-1)"},
        ),
        "sink scaled too": Mistake(
            "The sink counts divided by the root of the width, as the scores do; it is learned as a score, after the "
            "scale. See section 14.9.",
            {"sinks[:, None, None]": "(sinks / math.sqrt(q.size(-1)))[:, None, None]"},
        ),
        "one sink for each query": Mistake(
            "The sinks lie along the queries, or along the batch; there is one for each head, and the heads are "
            "axis 1. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _another_axis(found[1], q, k, sinks, mask),
        ),
        "sink's weight returned": Mistake(
            "The weights have one column too many, S + 1: that of the sink should be cut off. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: found[1].size(-1) == k.size(-2) + 1,
        ),
        "first column cut off": Mistake(
            "The sink's column stays, and that of a key is cut off: it goes from the end where it was put. See section "
            "14.9.",
            sign=lambda found, q, k, v, sinks, mask: _cut_at_the_other_end(found[1], q, k, sinks, mask),
        ),
        "mask inverted": Mistake(
            "Hidden keys have weight and visible ones have none: True means may attend. See section 5.4.",
            {"~mask": "mask"},
        ),
        "mask ignored": Mistake(
            "Hidden keys have a weight: the mask does nothing. See section 5.1.",
            {"if mask is not None": "if False"},
        ),
        "mask after the softmax": Mistake(
            "Rows with hidden keys sum to too little, even with the sink's share: the hidden keys took theirs before "
            "the mask hid them. See section 5.2.",
            sign=lambda found, q, k, v, sinks, mask: (
                mask is not None
                and torch.allclose(
                    found[1], attention(q, k, v, sink=sinks)[1].masked_fill(~mask, 0), rtol=1e-3, atol=1e-6
                )
            ),
        ),
        "maximum without the sink": Mistake(
            "Where sinks are far above the scores, weights or gradients are nan: the sink belongs among the numbers "
            "whose largest is subtracted. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: _nan_beside_high_sinks(found, q, k, sinks, mask),
        ),
        NO_GRADIENT: Mistake(
            "Sinks that get no gradient never learn, and queries, keys and values need theirs. See section 14.9."
        ),
        "results swapped": Mistake(
            "The weights come first and the output second; asked for is out, then weights. See section 14.2.",
            {"weights @ v, weights": "weights, weights @ v"},
        ),
        "softmax over the queries": Mistake(
            "These are the weights of a softmax over the queries; a row of weights belongs to one query and its sink. "
            "See section 3.4.",
            {"dim=-1)[..., :-1]": "dim=-2)[..., :-1]"},
        ),
        "weights not returned": Mistake(
            "It returns the output alone; the weights are asked for too. See section 14.9.",
            {"@ v, weights": "@ v"},
        ),
        "sink with a value": Mistake(
            "The weights are right, and to the output the sink's weight is added, times some value: a sink takes "
            "weight and gives nothing. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _sink_adds_a_value(*found, q, k, v, sinks, mask),
        ),
        "nan in empty rows": Mistake(
            "A query that may attend to nothing gets nan. Its sink is always there, so that no row is empty: the mask "
            "must not hide it, and it belongs among the numbers whose largest is subtracted. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: (
                not isinstance(found, dict) and _nan_where_nothing_is_seen(found[1], q, k, sinks, mask)
            ),
        ),
        "sinks dealt out in turns": Mistake(
            "The sinks are dealt out in turns to one query after the other, so that the queries of one head have "
            "those of several: all queries of a head have the sink of that head. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _dealt_out(found[1], q, k, sinks, mask),
        ),
        "first head's sink for all": Mistake(
            "The sink of the first head is used for all of them; each has its own. See section 14.9.",
            {"sinks[:, None, None]": "sinks[:1, None, None]"},
        ),
        "sink among the queries": Mistake(
            "These are the weights of a sink that is one more row, and of a softmax over the queries; a row of weights "
            "belongs to one query, and the sink is one more column in it. See section 14.9.",
            lambda q, k, v, sinks, mask: _among_the_queries(q, k, v, sinks, mask),
        ),
        "divided by the width of the model": Mistake(
            "The scores are divided by the root of the width of all heads together; each head has products of its own "
            "width. See section 14.2.",
            {"q.size(-1)": "q.size(1) * q.size(-1)"},
        ),
        "hidden scores set to 0": Mistake(
            "Hidden keys have a weight: their scores are 0, and 0 is a score like any other. See section 5.1.",
            {"scores.masked_fill(~mask, -math.inf)": "scores * mask"},
        ),
        "sink not stretched": Mistake(
            "Beside scores (B, H, T, S), sinks (1, H, 1, 1) do not fit: they should be a column for every query of "
            "every sentence, (B, H, T, 1). See section 14.9.",
            {"sinks[:, None, None].expand(*scores.shape[:-1], 1)": "sinks[None, :, None, None]"},
        ),
    },
)


def _among_the_queries(q, k, v, sinks, mask):
    scores = _scores(q, k, mask)
    row = sinks[:, None, None].expand(*scores.shape[:2], 1, scores.size(-1))
    weights = torch.softmax(torch.cat([scores, row], dim=-2), dim=-2)[..., :-1, :]
    return weights @ v, weights


def _sink_adds_a_value(out, weights, q, k, v, sinks, mask):
    """Whether the weights are right, and the output is off by each query's share of the sink times one value a head."""
    right, right_weights = _attend(q, k, v, sinks, mask)
    if not torch.allclose(weights, right_weights, rtol=1e-3, atol=1e-6):
        return False
    share = 1 - right_weights.sum(-1, keepdim=True)
    if (share < 1e-3).any() or q.size(2) < 2:
        return None
    value = (out - right) / share
    return torch.allclose(value, value[:, :, :1].expand_as(value), rtol=1e-2, atol=1e-3)


def _rows_sum_to_1(weights):
    sums = weights.sum(dim=-1).nan_to_num(1.0)
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def _scores(q, k, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def _fits(weights, q, k, mask, total, *, shifted=False):
    """Whether the weights are exponentials divided by some other total."""
    scores = _scores(q, k, mask)
    sees = scores.amax(-1) > -math.inf  # rows that see nothing do not tell
    if shifted:
        scores = scores - scores.amax(-1, keepdim=True)
    exponentials = scores.exp()
    wanted = exponentials / total(exponentials)
    return torch.allclose(weights[sees], wanted[sees], rtol=1e-3, atol=1e-6, equal_nan=True)


def _with_column(scores, sinks, *, front=False):
    column = sinks[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([column, scores] if front else [scores, column], -1)


def _with_sinks(scores, sinks, *, front=False):
    return torch.softmax(_with_column(scores, sinks, front=front), -1)


def _dealt_out(weights, q, k, sinks, mask):
    """Whether sink by sink went to query after query."""
    scores = _scores(q, k, mask)
    column = sinks.repeat(scores[..., 0].numel() // len(sinks)).view(*scores.shape[:-1], 1)
    wanted = torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]
    return torch.allclose(weights, wanted, rtol=1e-3, atol=1e-6)


def _cut_at_the_other_end(weights, q, k, sinks, mask):
    scores = _scores(q, k, mask)
    wanted = (_with_sinks(scores, sinks, front=True)[..., :-1], _with_sinks(scores, sinks)[..., 1:])
    return any(torch.allclose(weights, w, rtol=1e-3, atol=1e-6) for w in wanted)


def _nan_beside_high_sinks(found, q, k, sinks, mask):
    """Whether there is nan where all sinks are far above all scores; a trial where only some are does not tell."""
    if sinks.min() > 88:
        return bool((found["sinks"] if isinstance(found, dict) else found[1]).isnan().any())
    return None if (sinks[:, None] - _scores(q, k, mask).amax(-1) > 80).any() else False


def _nan_where_nothing_is_seen(weights, q, k, sinks, mask):
    """Whether nothing but the rows that see nothing is wrong, and these are nan."""
    sees = _scores(q, k, mask).amax(-1) > -math.inf
    right = _with_sinks(_scores(q, k, mask), sinks)[..., :-1]
    return bool(weights[~sees].isnan().any()) and torch.allclose(weights[sees], right[sees], rtol=1e-3, atol=1e-6)


def _nan_below_hidden_scores(weights, q, k, sinks, mask):
    """Whether nothing is wrong but rows that are nan, all of them with a hidden score far above the others."""
    if mask is None:
        return False
    scores = _with_column(_scores(q, k, mask), sinks)
    below = scores.amax(-1) < _scores(q, k, None).amax(-1) - 80
    is_nan = weights.isnan().any(-1)
    right = torch.softmax(scores, -1)[..., :-1]
    return bool(is_nan.any() and not (is_nan & ~below).any()) and torch.allclose(
        weights[~is_nan], right[~is_nan], rtol=1e-3, atol=1e-6
    )


def _another_axis(weights, q, k, sinks, mask):
    scores = _scores(q, k, mask)
    wanted = []
    for shape in ((-1, 1), (-1, 1, 1, 1)):  # along the queries, along the batch
        try:
            column = sinks.view(shape).expand(*scores.shape[:-1], 1)
        except RuntimeError:
            continue
        wanted.append(torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1])
    return any(torch.allclose(weights, w, rtol=1e-3, atol=1e-6) for w in wanted)
