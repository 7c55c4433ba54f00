"""The exercises of the chapter on reading a framework's attention. Used from chapter 24 on."""

import math

import numpy as np
import torch
from torch import Tensor

from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise, weights_and_gradient
from attn_course.exercises.engine.functions_under_test import Specimens
from attn_course.exercises.engine.runner import AnswerError
from attn_course.functional.attention import softmax
from attn_course.functional.masks import make_causal_mask, make_padding_mask
from attn_course.functional.quiet_softmax import quiet_softmax
from attn_course.ports.burn import burn_quiet_softmax, burn_quiet_softmax_2023

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
    """Return the weights, the gradient of the scores, and the sums of the weights, which show many small errors."""
    found = weights_and_gradient(answer, x, dim)
    if found is None:
        return None
    weights, gradient = found
    has_rows = isinstance(weights, Tensor) and weights.dim() == x.dim() and weights.is_floating_point()
    return weights, gradient, weights.sum(dim) if has_rows else None


def _quiet(x, dim=-1):
    scores = x.double()  # half precision is held to what is right
    m = scores.detach().amax(dim, keepdim=True).clamp(min=0)
    exponentials = (scores - m).exp()
    total = (-m).exp() + exponentials.sum(dim, keepdim=True)
    return (exponentials / total).to(x)


def _weights_of(*edits):
    """Recognise the weights, but not the gradients, of the right answer with one of these edits."""
    answers = [Edited(_quiet, edit) for edit in edits]

    def sign(found, x, dim):
        rtol = 5e-3 if x.dtype == torch.float16 else 1e-3
        wanted = [answer(x, dim) for answer in answers]
        wanted = [weights for weights in wanted if weights.shape == found[0].shape]
        return any(torch.allclose(found[0], weights, rtol=rtol, atol=1e-6, equal_nan=True) for weights in wanted)

    return sign


_shifted_up = _weights_of({"(-m).exp()": "m.exp()"})


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
    """Return whether only scores that are all -inf along another axis give NaN."""
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
    """Return whether empty rows are NaN, and the gradient is NaN if all scores are far below 0."""
    if (x == -math.inf).all(dim).any():
        return bool(found[0].isnan().any())
    return x.max() < 0 and bool(found[1].isnan().any() and not found[0].isnan().any())


def _one_maximum(x, dim=-1):
    m = x.detach().amax().clamp(min=0)
    return (x - m).exp() / ((-m).exp() + (x - m).exp().sum(dim, keepdim=True))


def _scores_cut_off(found, x, dim):
    """Return whether different, very large scores have the same weight."""
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
    """Return whether the large weights are too small by a few per cent."""
    if x.dtype == torch.float16:  # as rounding may make them
        return None
    right = quiet_softmax(x, dim)
    counts = right > 1e-3
    share = (found[0] / right)[counts]
    return bool(((share > 0.9) & (share < 1.001)).all() and (share < 0.9999).any())


def _percents_lost_in_half(found, x, dim):
    """Return whether the result is wrong in half precision only, by no more than its rounding."""
    right = quiet_softmax(x.double(), dim)
    share = (found[0].double() / right)[right > 1e-3]
    if x.dtype == torch.float16 and not len(share):
        return None
    return x.dtype == torch.float16 and found[0].dtype == x.dtype and bool(((share > 0.7) & (share < 1.4)).all())


stable_quiet = Exercise(
    name="stable_quiet",
    trials=_scores_and_axes,
    right=_quiet,
    use=_weights_and_gradient,
    result_names=("weights", "the gradient of the scores", "the sum of the weights"),
    chapter=24,
    signs={
        "one stays one": lambda found, x, dim: torch.allclose(
            found[0],
            burn_quiet_softmax_2023(x, dim),
            rtol=5e-3 if x.dtype == torch.float16 else 1e-3,
            equal_nan=True,
        ),
        "zero shifted the wrong way": lambda found, x, dim: x.max() > 0 and _shifted_up(found, x, dim),
        "one maximum for all": lambda found, x, dim: (
            bool(found[0].isnan().any())
            and torch.allclose(found[0], _one_maximum(x, dim), rtol=1e-3, atol=1e-6, equal_nan=True)
        ),
        "softmax overflows": _large_scores_give_nan,
        "empty rows along the last axis only": _empty_columns_are_nan,
        "nan in empty rows": _empty_rows_are_nan,
        "nan in the gradient": _gradient_is_nan,
        "softmax over a fixed axis": _weights_of(
            {"    scores =": "    dim = -1\n    scores ="},
            {"amax(dim": "amax(-1"},
            {"exponentials.sum(dim": "exponentials.sum(-1"},
            {"exponentials / total": "torch.nn.functional.pad(scores, (0, 1)).softmax(dim)[..., :-1]"},
        ),
        "percents lost in half precision": _percents_lost_in_half,
        "scores cut off": _scores_cut_off,
        "something added to the sum": _a_little_too_small,
        "zero left out of the maximum": _nan_below_zero,
        "low scores lost in half precision": _low_scores_lost_in_half,
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


def _visible(mask_pad, mask_attn):
    pad = None if mask_pad is None else ~mask_pad[:, None, :]
    attn = None if mask_attn is None else ~mask_attn
    if pad is None or attn is None:
        return attn if pad is None else pad
    return pad & attn


def _of_either_mask(answer, mask_pad, mask_attn):
    """Call the answer, and give every failure at a missing mask the same error."""
    try:
        return answer(mask_pad, mask_attn)
    except (TypeError, AttributeError) as error:
        if "NoneType" not in str(error):
            raise
        stumbled = TypeError("None stands where a mask is expected")
        raise stumbled.with_traceback(error.__traceback__) from None


def _padding_at_the_end(found, pad, attn):
    """Recognise masks with the right number of padding tokens, but at the end of the sentence."""
    if pad is None:
        return None
    last = pad.sort(dim=-1, stable=True).values
    return torch.equal(found, _visible(last, attn))


def _empty_rows_shown(found, pad, attn):
    """Recognise masks in which a row without visible keys shows every key and everything else is right."""
    right = _visible(pad, attn)
    empty = ~right.any(-1, keepdim=True)
    return bool(empty.any()) and torch.equal(found, right | empty)


course_mask = Exercise(
    name="course_mask",
    trials=_burn_masks,
    right=_visible,
    use=_of_either_mask,
    result_names=("mask",),
    chapter=24,
    signs={
        "numbers instead of booleans": lambda found, pad, attn: (
            found.dtype != torch.bool and torch.equal(found, _visible(pad, attn).to(found))
        ),
        "numbers to add": lambda found, pad, attn: (
            found.is_floating_point() and found.max() <= 0 and torch.equal(found == 0, _visible(pad, attn))
        ),
        "stretched to a square": lambda found, pad, attn: attn is None and found.shape == (*pad.shape, pad.size(1)),
        "padding taken to be at the end": _padding_at_the_end,
        "empty rows shown": _empty_rows_shown,
        "an axis of heads": lambda found, pad, attn: found.dim() == 4,
    },
)


# ---------------------------------------------------------------- a test of tests


def _by_appending(x, dim=-1):
    zero = torch.zeros_like(x.narrow(dim, 0, 1))
    return torch.cat([x, zero], dim).softmax(dim).narrow(dim, 0, x.size(dim))


def _naive(x, dim=-1):
    exponentials = x.exp()
    return exponentials / (1 + exponentials.sum(dim, keepdim=True))


def _patched(x, dim=-1):
    """Return the quiet softmax with NaN replaced at the end. The gradient of an empty row is still NaN."""
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
    """Return right weights whose gradients are right only in sum."""
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
        "one that subtracts another number": Edited(_quiet, {"clamp(min=0)": "clamp(min=0) + 1"}).answer,
        "one in double precision": _quiet,
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
        "one whose gradient lacks the denominator's": Edited(_quiet, {"/ total": "/ total.detach()"}).answer,
        "one whose gradient is nan for a row of -inf": _patched,
        "one of another shape": lambda x, dim=-1: quiet_softmax(x, dim).sum(dim),
        "one that raises an error": _raises,
        "one that returns None": lambda x, dim=-1: None,
        "one whose gradient is cut off": lambda x, dim=-1: quiet_softmax(x, dim).detach(),
        "one that raises a ValueError": _raises_another,
        "one that raises an error along other axes": _raises_elsewhere,
        "one that cuts scores off at 80": lambda x, dim=-1: quiet_softmax(x.clamp(max=80), dim),
        "one that takes -inf for 0 in a row of it": _empty_as_zeros,
        "one that subtracts one maximum from all rows": lambda x, dim=-1: _one_maximum(x, dim),
        "one whose gradients are right in their sum": _gradient_of_the_sum,
    },
    obvious=3,
    section="24.6",
)


def _says(answer, fn):
    """Return the verdict of the test. True and False may be of NumPy's type."""
    said = _CLAIMS.use(answer, fn)
    return bool(said) if isinstance(said, np.bool_) else said


tells_quiet = Exercise(
    name="tells_quiet",
    trials=_CLAIMS.trials,
    right=_CLAIMS.is_right,
    use=_says,
    result_names=("what it says",),
    seeds=(0,),
    chapter=24,
    answers={
        "refuses everything": lambda fn: False,
        "answer inverted": lambda fn: not _CLAIMS.is_right(fn),
        "errors not caught": lambda fn: (
            all(fn(torch.zeros(1, 1), dim) is not None for dim in (-1, 0)) and _CLAIMS.is_right(fn)
        ),
        "missing gradient not caught": lambda fn: (
            _CLAIMS.is_right(fn) if fn is not _CLAIMS.wrong["one whose gradient is cut off"] else _stop()
        ),
        "equal to the last bit": lambda fn: fn is _CLAIMS.right["one that appends a zero"],
        "only some errors caught": lambda fn: fn(torch.zeros(1), -1) if fn is _raises_another else _CLAIMS.is_right(fn),
        "errors along other axes not caught": lambda fn: (
            fn(torch.zeros(1, 1), 0) if fn is _raises_elsewhere else _CLAIMS.is_right(fn)
        ),
    },
    signs={
        "accepts everything": _CLAIMS.accepts("a function that returns its input"),
        "accepts the plain softmax": _CLAIMS.accepts("the plain softmax"),
        "accepts that of 2023": _CLAIMS.accepts("that of 2023"),
        "no large scores": _CLAIMS.accepts("one that overflows"),
        "too strict": lambda found, fn: (
            (found is False or None) if _CLAIMS.is_right(fn) and fn is not _CLAIMS.right["a right one"] else None
        ),
        "no empty row": _CLAIMS.accepts("one that is nan for a row of -inf"),
        "one axis only": _CLAIMS.accepts("one whose dim is always the last"),
        "no gradient asked for": _CLAIMS.accepts(
            "one whose gradient lacks the denominator's",
            "one whose gradient is nan for a row of -inf",
            "one whose gradient is cut off",
        ),
        "too loose": _CLAIMS.accepts("one with another sink", "a half softmax"),
        "an error counts as right": _CLAIMS.accepts(
            "one that raises an error", "one that returns None", "one of another shape"
        ),
        "measures something else": lambda found, fn: found is False if fn is _CLAIMS.right["a right one"] else None,
        "large scores not compared": _CLAIMS.accepts("one that cuts scores off at 80"),
        "empty rows not compared": _CLAIMS.accepts("one that takes -inf for 0 in a row of it"),
        "gradients compared in their sum": _CLAIMS.accepts("one whose gradients are right in their sum"),
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
    """Return two results as a pair, in whatever container they are."""
    result = answer(q, k, v, sinks, mask)
    if not isinstance(result, tuple | list) or len(result) != 2:
        if isinstance(result, tuple | list):
            raise AnswerError(
                f"Your function returns {len(result)} results. Return the output and the weights. See section 24.9."
            )
        return result
    return tuple(result)


def _scores(q, k, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


def _sink_adds_a_value(found, q, k, v, sinks, mask):
    """Return whether the weights are right and the output contains the sink's share of one value for each head."""
    out, weights = found
    right, right_weights = _attend(q, k, v, sinks, mask)
    if not _close(weights, right_weights):
        return False
    share = 1 - right_weights.sum(-1, keepdim=True)
    if (share < 1e-3).any() or q.size(2) < 2:
        return None
    value = (out - right) / share
    return torch.allclose(value, value[:, :, :1].expand_as(value), rtol=1e-2, atol=1e-3)


def _close(weights, wanted):
    return torch.allclose(weights, wanted, rtol=1e-3, atol=1e-6, equal_nan=True)


def _rows_sum_to_1(found, q, k, v, sinks, mask):
    sums = found[1].sum(dim=-1).nan_to_num(1.0)
    return found[1].size(-1) == k.size(-2) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def _sink_not_exponentiated(found, q, k, v, sinks, mask):
    scores = _scores(q, k, mask)
    sees = scores.amax(-1) > -math.inf  # rows that see nothing do not tell
    exponentials = scores.exp()
    wanted = exponentials / (exponentials.sum(-1, keepdim=True) + sinks[:, None, None])
    return _close(found[1][sees], wanted[sees])


def _sink_not_shifted(found, q, k, v, sinks, mask):
    scores = _scores(q, k, mask)
    sees = scores.amax(-1) > -math.inf
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    wanted = exponentials / (exponentials.sum(-1, keepdim=True) + sinks[:, None, None].exp())
    return _close(found[1][sees], wanted[sees])


def _nan_beside_high_sinks(found, q, k, v, sinks, mask):
    """Return whether the result is NaN where all sinks are far above all scores."""
    if sinks.min() > 88:
        return bool((found["sinks"] if isinstance(found, dict) else found[1]).isnan().any())
    return None if (sinks[:, None] - _scores(q, k, mask).amax(-1) > 80).any() else False


def _nan_where_nothing_is_seen(found, q, k, v, sinks, mask):
    """Return whether only the rows without visible keys are wrong, and are NaN."""
    weights, right = found[1], _attend(q, k, v, sinks, mask)[1]
    sees = _scores(q, k, mask).amax(-1) > -math.inf
    return bool(weights[~sees].isnan().any()) and _close(weights[sees], right[sees])


def _nan_below_hidden_scores(found, q, k, v, sinks, mask):
    """Return whether only rows with a high hidden score are wrong, and are NaN."""
    if mask is None:
        return False
    weights, right = found[1], _attend(q, k, v, sinks, mask)[1]
    largest = torch.maximum(_scores(q, k, mask).amax(-1), sinks[:, None])
    below = largest < _scores(q, k, None).amax(-1) - 80
    is_nan = weights.isnan().any(-1)
    return bool(is_nan.any() and not (is_nan & ~below).any()) and _close(weights[~is_nan], right[~is_nan])


attend_with_sinks = Exercise(
    name="attend_with_sinks",
    trials=_heads_with_sinks,
    right=_attend,
    use=_in_a_pair,
    gradients=True,
    result_names=("out", "weights"),
    chapter=24,
    signs={
        "maximum of hidden scores": _nan_below_hidden_scores,
        "softmax overflows": lambda found, q, k, v, sinks, mask: bool(
            _scores(q, k, mask).max() > 88 and found[1].isnan().any()
        ),
        "renormalised": _rows_sum_to_1,
        "sink not exponentiated": _sink_not_exponentiated,
        "one stays one": _sink_not_shifted,
        "sink's weight returned": lambda found, q, k, v, sinks, mask: found[1].size(-1) == k.size(-2) + 1,
        "maximum without the sink": _nan_beside_high_sinks,
        "sink with a value": _sink_adds_a_value,
        "nan in empty rows": _nan_where_nothing_is_seen,
    },
)
