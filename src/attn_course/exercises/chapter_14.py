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
from attn_course.exercises.engine.diagnose_output import TYPE_NOT_KEPT
from attn_course.exercises.engine.exercise import (
    CHANGES_ITS_INPUT,
    FLOAT32_INSIDE,
    NO_GRADIENT,
    Exercise,
    Mistake,
    Remark,
    set_parameters,
    weights_and_gradient,
)
from attn_course.exercises.engine.functions_under_test import Specimens
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
            "Every row of your weights sums to 1, so your function is the plain softmax. The denominator needs an "
            "additional 1. See section 14.6.",
            lambda x, dim: torch.softmax(x, dim),
        ),
        "one stays one": Mistake(
            "Low scores get large weights, and 1 and 7 give 0.4994. If you subtract m from the scores, the 1 in the "
            "denominator must become e^−m. See section 14.7.",
            sign=lambda found, x, dim: torch.allclose(
                found[0],
                burn_quiet_softmax_2023(x, dim),
                rtol=5e-3 if x.dtype == torch.float16 else 1e-3,
                equal_nan=True,
            ),
        ),
        "zero shifted the wrong way": Mistake(
            "Rows with a high score get weights close to 0. The 1 became e^m, where m is the largest score, but it "
            "must become e^−m. See section 14.7.",
            sign=lambda found, x, dim: (
                torch.allclose(found[0], _zero_shifted_up(x, dim), rtol=1e-3, atol=1e-6)
                and not torch.allclose(found[0], quiet_softmax(x, dim), rtol=1e-3)
            ),
        ),
        "one maximum for all": Mistake(
            "Some weights are NaN if a tensor has many rows of large scores. Subtract the maximum of each row, not "
            "the maximum of the whole tensor. See section 14.7.",
            sign=lambda found, x, dim: (
                bool(found[0].isnan().any())
                and torch.allclose(found[0], _one_maximum(x, dim), rtol=1e-3, atol=1e-6, equal_nan=True)
            ),
        ),
        "softmax overflows": Mistake(
            "Large scores give NaN, because exponentials overflow or all of them become 0. Subtract the largest "
            "exponent of each row first. See section 14.7.",
            sign=_large_scores_give_nan,
        ),
        "empty rows along the last axis only": Mistake(
            "If all scores along another axis than the last are −∞, the weights are NaN. Look for such scores along "
            "`dim`. See section 14.7.",
            sign=_empty_columns_are_nan,
        ),
        "nan in empty rows": Mistake(
            "A row of −∞ gives NaN, but its weights should be 0. The cause is −∞ − (−∞) or −∞ · 0. Which other "
            "exponent is in the denominator? See section 14.7.",
            sign=_empty_rows_are_nan,
        ),
        "nan in the gradient": Mistake(
            "The gradient contains NaN although the weights do not. An intermediate result is ∞ or NaN. See section "
            "14.7.",
            sign=_gradient_is_nan,
        ),
        "softmax over a fixed axis": Mistake(
            "If `dim` is not the last axis, a part of your function still works along the last axis. Every step must "
            "use `dim`. See section 14.7.",
            sign=lambda found, x, dim: _last_axis_somewhere(found[0], x, dim),
        ),
        "softmax over everything": Mistake(
            "Your function divides by one sum over all scores. Each row needs its own sum. See section 14.6.",
            lambda x, dim: quiet_softmax(x.flatten(), 0).reshape(x.shape),
        ),
        "weight of the zero returned": Mistake(
            "Your result has one weight too many, which belongs to the appended zero. Remove this weight after the "
            "softmax. See section 14.6.",
            lambda x, dim: torch.softmax(torch.cat([x, torch.zeros_like(x.narrow(dim, 0, 1))], dim), dim),
        ),
        "first column cut off": Mistake(
            "Your function keeps the weight of the appended zero and removes the weight of a score. Cut at the end "
            "where you appended the zero. See section 14.6.",
            sign=lambda found, x, dim: _zero_kept_and_score_cut(found[0], x, dim),
        ),
        "a zero for each score": Mistake(
            "Your function appends one zero for each score. The denominator needs only one additional 1. See section "
            "14.6.",
            lambda x, dim: softmax(torch.cat([x, torch.zeros_like(x)], dim), dim).narrow(dim, 0, x.size(dim)),
        ),
        "percents lost in half precision": Mistake(
            "The weights are inaccurate in half precision only. Numbers near 300 have steps of a quarter there, so "
            "subtract the largest score before you add anything. See section 14.7.",
            sign=_percents_lost_in_half,
        ),
        "no gradient": Mistake(
            "The scores get no gradient. Only the maximum may be detached. See section 14.7.",
            _detached,
        ),
        "float32 whatever comes in": Mistake(
            "The weights are float32 although the scores have another type. The result must have the type of the "
            "scores. See section 14.7.",
            _float32,
        ),
        "denominator detached": Mistake(
            "The gradient treats the denominator as a constant, but the denominator depends on the scores. Only the "
            "maximum may be detached. See section 14.7.",
            _without_gradient_of_sum,
        ),
        "numerator detached": Mistake(
            "The gradient treats the numerator as a constant, but the numerator depends on the scores. Only the "
            "maximum may be detached. See section 14.7.",
            _without_gradient_of_numerator,
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Your function changes its input, but the caller may need the scores again. Work on a copy. See section "
            "5.17."
        ),
        "scores cut off": Mistake(
            "Very large scores that differ get the same weight. If you subtract the largest exponent, you need not "
            "limit any score. See section 14.7.",
            sign=_scores_cut_off,
        ),
        "something added to the sum": Mistake(
            "The weights are slightly too small, as if a small number were added to the sum. The sum is never 0, so "
            "it needs no such number. See section 14.7.",
            sign=_a_little_too_small,
        ),
        "axis of the sum lost": Mistake(
            "The maximum and the sum have lost their axis, so they do not fit the rows. Use keepdim=True. See section "
            "14.7.",
            _axis_lost,
        ),
        "zero left out of the maximum": Mistake(
            "A row of −∞ gives NaN, and so does the gradient of scores far below 0. Take the maximum of the scores "
            "and 0. See section 14.7.",
            sign=_nan_below_zero,
        ),
        "−∞ as a score of 0": Mistake(
            "A score of −∞ takes weight from the other scores, as a score of 0 does. Its exponential is 0, so it "
            "should add nothing to the sum. See section 14.7.",
            _minus_infinity_as_0,
        ),
        "rows with a −∞ taken for empty": Mistake(
            "A row with a single score of −∞ has no weights at all. Only this score should get the weight 0. See "
            "section 14.7.",
            _rows_with_minus_infinity_as_empty,
        ),
        "low scores lost in half precision": Mistake(
            "In half precision, scores of −12 get no weight, but 4,096 of them should have 0.025 together. The "
            "exponential of 12 is infinite there. See section 14.7.",
            sign=_low_scores_lost_in_half,
        ),
        "a one for the zero": Mistake(
            "The additional term of the denominator is e, the exponential of 1. It should be 1, the exponential of 0. "
            "See section 14.7.",
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
            "Your mask is True where a key is hidden, as in Burn. In this course, True means that a query may attend "
            "to the key. See section 14.3.",
            lambda pad, attn: ~from_burn_mask(attn, pad),
        ),
        "padding inverted": Mistake(
            "Your mask shows the keys that mask_pad should hide. Both masks of Burn are True where a key is hidden. "
            "See section 14.3.",
            lambda pad, attn: _join(pad, attn, pad=lambda m: m[:, None, :]),
        ),
        "mask_attn inverted": Mistake(
            "Your mask shows the keys that mask_attn should hide. Both masks of Burn are True where a key is hidden. "
            "See section 14.3.",
            lambda pad, attn: _join(pad, attn, attn=lambda m: m),
        ),
        "joined by or": Mistake(
            "A key is visible in your mask if one of the two masks allows it. Both masks must allow it. See section "
            "14.3.",
            lambda pad, attn: _join(pad, attn, join=torch.logical_or),
        ),
        "padding on the queries": Mistake(
            "Your mask hides the rows of the padding tokens instead of their columns. The mask mask_pad hides keys, "
            "and the keys are the last axis. See section 14.3.",
            lambda pad, attn: _join(pad, attn, pad=lambda m: ~m[:, :, None]),
        ),
        "no axis for the queries": Mistake(
            "Your mask has no axis for the queries where it uses mask_pad. Give mask_pad the shape (B, 1, S) before "
            "you join it with a mask of shape (B, T, S). See section 14.3.",
            lambda pad, attn: _join(pad, attn, pad=lambda m: ~m),
        ),
        "padding ignored": Mistake(
            "If both masks are given, mask_pad hides nothing in your result. See section 14.3.",
            lambda pad, attn: from_burn_mask(attn, pad if attn is None else None),
        ),
        "mask_attn ignored": Mistake(
            "If both masks are given, mask_attn hides nothing in your result. See section 14.3.",
            lambda pad, attn: from_burn_mask(attn if pad is None else None, pad),
        ),
        "numbers instead of booleans": Mistake(
            "Your mask contains 1 and 0 at the right places. It must contain True and False. See section 14.3.",
            sign=lambda found, pad, attn: (
                found.dtype != torch.bool and torch.equal(found, from_burn_mask(attn, pad).to(found))
            ),
        ),
        "None not expected": Mistake(
            "Your function stops if one of the masks is missing. Either mask may be None. See section 14.3.",
            lambda pad, attn: ~pad[:, None, :] & ~attn,
        ),
        "numbers to add": Mistake(
            "Your mask contains numbers to add to the scores, 0 for visible keys and less for hidden keys. The "
            "function `attention` expects True and False. See section 14.3.",
            sign=lambda found, pad, attn: (
                found.is_floating_point() and found.max() <= 0 and torch.equal(found == 0, from_burn_mask(attn, pad))
            ),
        ),
        CHANGES_ITS_INPUT: Mistake("Your function changes a mask of the caller. Make a new mask. See section 5.17."),
        "first sentence's padding for all": Mistake(
            "Your mask uses the padding of the first sentence for the whole batch. Each sentence has its own padding. "
            "See section 14.3.",
            lambda pad, attn: _join(None if pad is None else pad[:1].expand_as(pad), attn),
        ),
        "joined by exclusive or": Mistake(
            "A key that both masks hide is visible in your result, because ^ is True only where exactly one mask is "
            "True. A key is hidden if at least one mask hides it. See section 14.3.",
            lambda pad, attn: _join(pad, attn, join=lambda a, b: ~(a ^ b)),
        ),
        "padding on keys and queries": Mistake(
            "If there are as many queries as keys, your mask also hides the rows of the padding tokens, so these "
            "queries see nothing. The mask mask_pad hides keys only. See section 14.3.",
            _padding_on_both,
        ),
        "stretched to a square": Mistake(
            "Your mask has the shape (B, S, S) if only mask_pad is given, but the number of queries need not be S. "
            "The shape (B, 1, S) fits any number of queries. See section 14.3.",
            sign=lambda found, pad, attn: attn is None and found.shape == (*pad.shape, pad.size(1)),
        ),
        "padding taken to be at the end": Mistake(
            "Your mask hides the last keys of each sentence. The padding in `mask_pad` can also be at the beginning. "
            "See section 14.3.",
            sign=_padding_at_the_end,
        ),
        "empty rows shown": Mistake(
            "A query whose keys are all hidden may attend to all of them in your mask. It should see no key. See "
            "section 14.3.",
            sign=_empty_rows_shown,
        ),
        "an axis of heads": Mistake(
            "Your mask has four axes, but it should have the shape (B, T, S) or (B, 1, S). The layer inserts the axis "
            "of the heads. See section 14.3.",
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
        raise Remark("Your function must return a dictionary of names and tensors. See section 14.2.")
    if record.keys() != given.keys() or any(not torch.equal(record[name], given[name]) for name in given):
        return ("the record is changed", *[None] * 4)
    ours = MultiHeadAttention(d_model, num_heads, bias="query" in biased, out_bias="output" in biased).to(x)
    missing = sorted(ours.state_dict().keys() - state.keys())
    unexpected = sorted(state.keys() - ours.state_dict().keys(), key=str)
    state = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not missing and not unexpected and any(t.dtype != given[_burns_name(name)].dtype for name, t in state.items()):
        name = FLOAT32_INSIDE if x.dtype == torch.float64 else TYPE_NOT_KEPT
        raise Remark(
            "A tensor of your result has another type than in the record. Each tensor must keep its type.", name
        )
    pairs = list(_pairs(state, given))
    parts = [bool(torch.equal(p, q)) for p, q in pairs]
    if missing or unexpected or x.dtype == torch.bfloat16:
        return (_summary(missing, unexpected), None, *parts)
    ours.load_state_dict(state)
    with torch.no_grad():
        out = ours(x)[0]
        expected = burn(MhaInput.self_attn(x)).context
    if x.dtype == torch.float64 and not all(parts) and all(torch.allclose(p, q, rtol=1e-6) for p, q in pairs):
        raise Remark("Your tensors have lost digits, because they went through another type.", FLOAT32_INSIDE)
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
            "You have transposed none of the matrices. Burn computes xW, but nn.Linear computes xWᵀ, and square "
            "matrices raise no error. See section 14.2.",
            _moved(weight=lambda layer, t: t),
        ),
        "output projection not transposed": Mistake(
            "You have transposed three matrices, but not the matrix of the output projection. Transpose all four. See "
            "section 14.2.",
            _moved(weight=lambda layer, t: t if layer == "output" else t.T),
        ),
        "only the output projection transposed": Mistake(
            "You have transposed only the matrix of the output projection. Transpose all four. See section 14.2.",
            _moved(weight=lambda layer, t: t.T if layer == "output" else t),
        ),
        "queries and keys swapped": Mistake(
            "The matrices of the queries and the keys are swapped. See section 14.2.",
            _moved(names=_swapped("query", "key")),
        ),
        "keys and values swapped": Mistake(
            "The matrices of the keys and the values are swapped. See section 14.2.",
            _moved(names=_swapped("key", "value")),
        ),
        "biases only where the queries have one": Mistake(
            "If the queries have no bias, your function omits the other biases, too. Each of the four biases can be "
            "missing on its own. See section 14.12.",
            lambda record: {
                name: tensor
                for name, tensor in _moved()(record).items()
                if name.endswith("weight") or "query.bias" in record
            },
        ),
        "biases forgotten": Mistake(
            "Your result contains the matrices under their new names, but it contains no biases. See section 14.2.",
            _moved(keep=lambda name: name.endswith("weight")),
        ),
        "output projection forgotten": Mistake(
            "Your result contains queries, keys and values, but not the output projection, which Burn calls output. "
            "See section 14.2.",
            _moved(keep=lambda name: not name.startswith("output")),
        ),
        "Burn's names": Mistake(
            "Your result contains tensors under Burn's names. The function load_state_dict expects names such as "
            "q_proj.weight and no others. See section 14.2.",
            sign=lambda found, *inputs: "query.weight" in re.split("[ ,]+", found[0]),
        ),
        "out_proj misnamed": Mistake(
            "A tensor of the output projection has the wrong name. Our layer is called out_proj. See section 14.2.",
            sign=lambda found, *inputs: bool(re.fullmatch(r"without (k_proj\.bias, )?out_proj.* besides", found[0])),
        ),
        "biases made up": Mistake(
            "Your result contains biases that the record does not have. If a bias is missing, omit its name as well, "
            "and do not store None. See section 14.12.",
            sign=lambda found, *inputs: re.fullmatch(r"with ([qkv]|out)_proj\.bias(, \w+\.bias)* besides", found[0]),
        ),
        "names of layers only": Mistake(
            "Your names contain only the layer, so a matrix and its bias share one name. Keep the ending .weight or "
            ".bias. See section 14.2.",
            sign=lambda found, *inputs: "with k_proj, out_proj, q_proj, v_proj besides" in found[0],
        ),
        "biases expected": Mistake(
            "Your function stops if a bias is missing. The configuration can switch off each bias. See section 14.12.",
            lambda record: {
                f"{mine}.{kind}": record[f"{theirs}.{kind}"].mT if kind == "weight" else record[f"{theirs}.{kind}"]
                for theirs, mine in _NAMES.items()
                for kind in ("weight", "bias")
            },
        ),
        "one layer's bias decides for all": Mistake(
            "Your function asks one layer whether it has a bias and applies the answer to all four. Look for the bias "
            "of each layer. See section 14.12.",
            lambda record: {
                f"{mine}.{kind}": record[f"{theirs}.{kind}"].mT if kind == "weight" else record[f"{theirs}.{kind}"]
                for theirs, mine in _NAMES.items()
                for kind in ("weight", "bias")
                if kind == "weight" or "query.bias" in record
            },
        ),
        "in alphabetical order": Mistake(
            "You have assigned the layers key, output, query and value, in this order, to q_proj, k_proj, v_proj and "
            "out_proj. Use the names of the tensors. See section 14.2.",
            _moved(names=dict(zip(sorted(_NAMES), _NAMES.values(), strict=True))),
        ),
        "taken in their order": Mistake(
            "Your function assigns the matrices by their order in the record. The tensors can have any order, so use "
            "their names. See section 14.2.",
            _in_their_order(biases_too=False),
        ),
        "taken in their order, biases too": Mistake(
            "Your function assigns all tensors by their order in the record. The tensors can have any order, so use "
            "their names. See section 14.2.",
            _in_their_order(biases_too=True),
        ),
        "queries' tensors for all": Mistake(
            "Queries, keys and values all get the matrix of the queries. Each layer has its own matrix. See section "
            "14.2.",
            _queries_for_all,
        ),
        "another layer's bias asked for": Mistake(
            "If only queries and values have a bias, your function omits the bias of the values. Look for the bias of "
            "each layer. See section 14.12.",
            sign=_values_bias_left_out,
        ),
        "biases set to 0": Mistake(
            "If the queries have no bias, your function sets the other biases to 0. Copy them from the record. See "
            "section 14.2.",
            lambda record: {
                name: tensor * ("query.bias" in record) if name.endswith("bias") else tensor
                for name, tensor in _moved()(record).items()
            },
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Your function changes the record, so nobody can fill a second layer from it. Put the tensors into a new "
            "dictionary and leave the record unchanged. See section 5.17.",
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
            "Your test accepts a function that returns its input. Compare numbers that only a quiet softmax returns. "
            "See section 14.8.",
            sign=_CLAIMS.accepts("a function that returns its input"),
        ),
        "refuses everything": Mistake(
            "Your test rejects a right quiet softmax. Find the cause: a comparison that fails, or an error that your "
            "test catches. See section 14.6.",
            lambda fn: False,
        ),
        "says it upside down": Mistake(
            "Your test accepts wrong functions and rejects right ones. Return True if the function is a quiet "
            "softmax. See section 14.8.",
            lambda fn: not _CLAIMS.is_right(fn),
        ),
        "accepts the plain softmax": Mistake(
            "Your test accepts a plain softmax that returns zeros for a row of −∞. It is almost quiet for high "
            "scores, so compare weights for low scores, too. See section 14.8.",
            sign=_CLAIMS.accepts("the plain softmax"),
        ),
        "accepts that of 2023": Mistake(
            "Your test accepts the version of 2023, whose rows also sum to less than 1. Compare its weights, or the "
            "total weight of four low scores. See section 14.7.",
            sign=_CLAIMS.accepts("that of 2023"),
        ),
        "no large scores": Mistake(
            "Your test accepts a function that returns NaN for large scores. Use scores whose exponential is infinite "
            "(from 89 in float32, from 710 in float64). NaN is not close to anything, not even to itself. See section "
            "14.7.",
            sign=_CLAIMS.accepts("one that overflows"),
        ),
        "too strict": Mistake(
            "Your test rejects a right function that computes in another way. The last digits of two ways differ, so "
            "allow a small difference. See section 14.8.",
            sign=lambda found, fn: (
                (found is False or None) if _CLAIMS.is_right(fn) and fn is not _CLAIMS.right["a right one"] else None
            ),
        ),
        "no empty row": Mistake(
            "Your test accepts a function that returns NaN for a row of −∞. Use such a row. NaN is not close to "
            "anything, not even to itself. See section 14.7.",
            sign=_CLAIMS.accepts("one that is nan for a row of -inf"),
        ),
        "one axis only": Mistake(
            "Your test accepts a function that always works along the last axis. Call it with another `dim`, too, and "
            "compare the result. See section 14.8.",
            sign=_CLAIMS.accepts("one whose dim is always the last"),
        ),
        "no gradient asked for": Mistake(
            "Your test accepts a function with right weights and a wrong gradient. Compute both gradients, each from "
            "its own copy of the scores, and compare them. See section 14.24.",
            sign=_CLAIMS.accepts(
                "one whose gradient lacks the denominator's",
                "one whose gradient is nan for a row of -inf",
                "one whose gradient is cut off",
            ),
        ),
        "too loose": Mistake(
            "Your test accepts a function with another sink or a softmax divided by two. Compare the weights "
            "themselves with a small tolerance. See section 14.8.",
            sign=_CLAIMS.accepts("one with another sink", "a half softmax"),
        ),
        "falls over": Mistake(
            "Your test stops with an error of the tested function. Catch the error and return False. See section 14.8.",
            lambda fn: all(fn(torch.zeros(1, 1), dim) is not None for dim in (-1, 0)) and _CLAIMS.is_right(fn),
        ),
        "falls over without a gradient": Mistake(
            "Your test stops if the weights do not require a gradient. The call of `backward` can also raise an "
            "error, so catch it and return False. See section 14.8.",
            lambda fn: _CLAIMS.is_right(fn) if fn is not _CLAIMS.wrong["one whose gradient is cut off"] else _stop(),
        ),
        "equal to the last bit": Mistake(
            "Your test accepts the function that appends a zero and rejects all other right functions. Their last "
            "digits differ, so do not ask for equal numbers. See section 14.8.",
            lambda fn: fn is _CLAIMS.right["one that appends a zero"],
        ),
        "an error counts as right": Mistake(
            "Your test accepts a function that raises an error or does not return weights. Return False for such a "
            "function. See section 14.8.",
            sign=_CLAIMS.accepts("one that raises an error", "one that returns None", "one of another shape"),
        ),
        "measures something else": Mistake(
            "Your test rejects a right quiet softmax. Compute the weights of a few small scores by hand, and follow "
            "what your test does with them. See section 14.6.",
            sign=lambda found, fn: found is False if fn is _CLAIMS.right["a right one"] else None,
        ),
        "only some errors caught": Mistake(
            "Your test stops if the tested function raises a ValueError. Return False for every kind of error. See "
            "section 14.8.",
            lambda fn: fn(torch.zeros(1), -1) if fn is _raises_another else _CLAIMS.is_right(fn),
        ),
        "errors along other axes not caught": Mistake(
            "Your test stops if the tested function raises an error along another axis than the last. Every call can "
            "raise an error. See section 14.8.",
            lambda fn: fn(torch.zeros(1, 1), 0) if fn is _raises_elsewhere else _CLAIMS.is_right(fn),
        ),
        "large scores not compared": Mistake(
            "Your test accepts a function that treats every score above 80 as 80, so 100 and 200 get the same weight. "
            "Compare the weights of large scores, too. See section 14.8.",
            sign=_CLAIMS.accepts("one that cuts scores off at 80"),
        ),
        "empty rows not compared": Mistake(
            "Your test accepts a function that gives weights to a row of −∞. Check that all these weights are 0. See "
            "section 14.8.",
            sign=_CLAIMS.accepts("one that takes -inf for 0 in a row of it"),
        ),
        "gradients compared in their sum": Mistake(
            "Your test accepts a function whose gradients are right only for the plain sum of the weights. Compute "
            "the gradient of another function of the weights, such as the sum of their squares. See section 14.24.",
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
            raise Remark(
                f"Your function returns {len(result)} results. Return the output and the weights. See section 14.9."
            )
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
            "Your weights are those of attention without sinks. The sinks should take a part of the weight. See "
            "section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: torch.allclose(
                found[1], attention(q, k, v, mask)[1], rtol=1e-3, atol=1e-6
            ),
        ),
        "zero sinks": Mistake(
            "Your function computes the quiet softmax for all sinks. Each head has its own number in place of the 0. "
            "See section 14.9.",
            lambda q, k, v, sinks, mask: attention(q, k, v, mask, sink=0.0),
        ),
        "sink hidden by the mask": Mistake(
            "If there is a mask, the sinks take no weight, and a row without a visible key is NaN. The mask hides "
            "keys, but it must not hide the column of the sinks. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: (
                mask is not None
                and torch.allclose(
                    found[1], torch.softmax(_scores(q, k, mask), dim=-1), rtol=1e-3, atol=1e-6, equal_nan=True
                )
            ),
        ),
        "maximum of hidden scores": Mistake(
            "If a hidden score is far above all visible scores, the weights of the query are NaN. Take the maximum of "
            "the visible scores and the sink. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: _nan_below_hidden_scores(found[1], q, k, sinks, mask),
        ),
        "softmax overflows": Mistake(
            "Large scores give NaN, because exponentials overflow or all of a row become 0. First subtract the "
            "maximum of the scores and the sink. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: bool(_scores(q, k, mask).max() > 88 and found[1].isnan().any()),
        ),
        "renormalised": Mistake(
            "Your rows of weights sum to 1. The weight of the sink should be missing from them. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: found[1].size(-1) == k.size(-2) and _rows_sum_to_1(found[1]),
        ),
        "sink not exponentiated": Mistake(
            "Your denominator contains the sink itself. The sink is a score, so the denominator needs its "
            "exponential. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _fits(
                found[1], q, k, mask, lambda e: e.sum(-1, keepdim=True) + sinks[:, None, None]
            ),
        ),
        "one stays one": Mistake(
            "Your function subtracts the maximum from the scores, but not from the sink. Subtract the same number "
            "from both. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: _fits(
                found[1], q, k, mask, lambda e: e.sum(-1, keepdim=True) + sinks[:, None, None].exp(), shifted=True
            ),
        ),
        "no scale": Mistake(
            "Your scores are not divided by the square root of the width of a head. See section 3.5.",
            {" / math.sqrt(q.size(-1))": ""},
        ),
        "root of the width of the values": Mistake(
            "Your scores are divided by √Dv, with the width of the values. Use √D, with the width of the queries and "
            "keys. See section 14.9.",
            {"q.size(-1)": "v.size(-1)"},
        ),
        "sink scaled too": Mistake(
            "Your function divides the sinks by √D, as it does with the scores. A sink is a learned score and is not "
            "scaled. See section 14.9.",
            {"sinks[:, None, None]": "(sinks / math.sqrt(q.size(-1)))[:, None, None]"},
        ),
        "one sink for each query": Mistake(
            "Your sinks lie along the axis of the queries or the axis of the batch. There is one sink for each head, "
            "and the heads are axis 1. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _another_axis(found[1], q, k, sinks, mask),
        ),
        "sink's weight returned": Mistake(
            "Your weights have S + 1 columns. Remove the column of the sink. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: found[1].size(-1) == k.size(-2) + 1,
        ),
        "first column cut off": Mistake(
            "Your function keeps the column of the sink and removes the column of a key. Remove the column at the end "
            "where you put the sink. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _cut_at_the_other_end(found[1], q, k, sinks, mask),
        ),
        "mask inverted": Mistake(
            "Hidden keys have weight and visible keys have none. True means that a query may attend to the key. See "
            "section 5.4.",
            {"~mask": "mask"},
        ),
        "mask ignored": Mistake(
            "Hidden keys have weight, so the mask has no effect. See section 5.1.",
            {"if mask is not None": "if False"},
        ),
        "mask after the softmax": Mistake(
            "The weights of rows with hidden keys are too small, even if the share of the sink is added. Apply the "
            "mask before the softmax. See section 5.2.",
            sign=lambda found, q, k, v, sinks, mask: (
                mask is not None
                and torch.allclose(
                    found[1], attention(q, k, v, sink=sinks)[1].masked_fill(~mask, 0), rtol=1e-3, atol=1e-6
                )
            ),
        ),
        "maximum without the sink": Mistake(
            "If the sinks are far above the scores, weights or gradients are NaN. Take the maximum of the scores and "
            "the sink. See section 14.7.",
            sign=lambda found, q, k, v, sinks, mask: _nan_beside_high_sinks(found, q, k, sinks, mask),
        ),
        NO_GRADIENT: Mistake(
            "A gradient is missing. The sinks need a gradient to learn, and queries, keys and values need theirs. See "
            "section 14.9."
        ),
        "results swapped": Mistake(
            "Your function returns the weights first and the output second. Return the output first. See section 14.2.",
            {"weights @ v, weights": "weights, weights @ v"},
        ),
        "softmax over the queries": Mistake(
            "Your softmax goes over the queries. A row of weights belongs to one query and contains all keys and the "
            "sink. See section 3.4.",
            {"dim=-1)[..., :-1]": "dim=-2)[..., :-1]"},
        ),
        "weights not returned": Mistake(
            "Your function returns only the output. Return the weights as well. See section 14.9.",
            {"@ v, weights": "@ v"},
        ),
        "sink with a value": Mistake(
            "Your output contains an additional value with the weight of the sink. A sink takes weight, but it has no "
            "value. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _sink_adds_a_value(*found, q, k, v, sinks, mask),
        ),
        "nan in empty rows": Mistake(
            "A query without a visible key gets NaN. Its sink is always visible, so do not apply the mask to the "
            "sink, and include the sink in the maximum. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: (
                not isinstance(found, dict) and _nan_where_nothing_is_seen(found[1], q, k, sinks, mask)
            ),
        ),
        "sinks dealt out in turns": Mistake(
            "Your function assigns the sinks to one query after the other, so the queries of one head get the sinks "
            "of several heads. All queries of a head share its sink. See section 14.9.",
            sign=lambda found, q, k, v, sinks, mask: _dealt_out(found[1], q, k, sinks, mask),
        ),
        "first head's sink for all": Mistake(
            "Your function uses the sink of the first head for all heads. Each head has its own sink. See section "
            "14.9.",
            {"sinks[:, None, None]": "sinks[:1, None, None]"},
        ),
        "sink among the queries": Mistake(
            "Your function appends the sink as an additional row and applies the softmax over the queries. Append it "
            "as an additional column and apply the softmax over the keys. See section 14.9.",
            lambda q, k, v, sinks, mask: _among_the_queries(q, k, v, sinks, mask),
        ),
        "divided by the width of the model": Mistake(
            "Your scores are divided by the square root of the width of all heads together. Use the width of one "
            "head. See section 14.2.",
            {"q.size(-1)": "q.size(1) * q.size(-1)"},
        ),
        "hidden scores set to 0": Mistake(
            "Hidden keys have weight, because their scores are 0. A score of 0 is a score like any other. See section "
            "5.1.",
            {"scores.masked_fill(~mask, -math.inf)": "scores * mask"},
        ),
        "sink not stretched": Mistake(
            "Sinks of shape (1, H, 1, 1) do not fit scores of shape (B, H, T, S). Expand them to a column of shape "
            "(B, H, T, 1). See section 14.9.",
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
