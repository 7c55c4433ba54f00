"""Answers to the exercises of chapter 24."""

import contextlib
import math

import numpy as np
import torch
import torch.nn.functional as F

import attn_course
from answers import right, unnamed, wrong
from attn_course import attention
from attn_course.exercises.engine.edits import Edited
from attn_course.ports.burn import from_burn_mask

# -- stable_quiet -----------------------------------------------------------------------------------


@right
def stable_quiet(x, dim=-1):
    m = torch.relu(x.max(dim, keepdim=True).values)
    e = torch.exp(x - m)
    return e / (torch.exp(-m) + e.sum(dim, keepdim=True))


LARGEST = "torch.relu(x.max(dim, keepdim=True).values)"
EDITS = {  # what a learner changes in the answer above
    "one stays one": {LARGEST: "x.max(dim, keepdim=True)[0]", "torch.exp(-m)": "1.0"},
    "zero shifted the wrong way": {"torch.exp(-m)": "torch.exp(m)"},
    "one maximum for all": {LARGEST: "torch.relu(x.max()).detach()"},
    "softmax over a fixed axis": {"x.max(dim": "x.max(-1"},
    "softmax overflows": {LARGEST: "x.detach().abs().amax(dim, keepdim=True)"},  # the largest in size is no maximum
    "nan in empty rows": {LARGEST: "x.detach().amax(dim, keepdim=True)"},
    # The maximum is differentiated, and exp(-m) is infinite where all scores are low.
    "zero left out of the maximum": {LARGEST: "x.max(dim, keepdim=True)[0]"},
    "changes its input": {
        LARGEST: f"{LARGEST}.detach()",
        "    e = torch.exp(x - m)": "    x -= m\n    e = torch.exp(x)",
    },
    "scores cut off": {"torch.exp(x - m)": "torch.exp(torch.clamp(x, max=50.0))", "torch.exp(-m)": "1"},
    "something added to the sum": {"torch.exp(-m)": "torch.exp(-m) + 0.02"},
    # The second try of section 24.7, its nan mended.
    "low scores lost in half precision": {LARGEST: "x.detach().amax(dim, keepdim=True).nan_to_num(neginf=0.0)"},
}
for mistake, edits in EDITS.items():
    wrong(mistake)(Edited(stable_quiet, edits).answer)
wrong("softmax over a fixed axis")(Edited(stable_quiet, {"e.sum(dim": "e.sum(-1"}).answer)


@wrong("percents lost in half precision")
def stable_quiet(x, dim=-1):
    zero = torch.zeros_like(x.narrow(dim, 0, 1))
    return (x - torch.cat([x, zero], dim).logsumexp(dim, keepdim=True)).exp()


@right
def stable_quiet(x, dim=-1):
    zero = torch.zeros_like(x.select(dim, 0).unsqueeze(dim))
    return torch.softmax(torch.cat([zero, x], dim), dim).narrow(dim, 1, x.size(dim))


@wrong("first column cut off")
def stable_quiet(x, dim=-1):  # the zero in front, cut off behind
    zero = torch.zeros_like(x.select(dim, 0).unsqueeze(dim))
    return torch.softmax(torch.cat([zero, x], dim), dim).narrow(dim, 0, x.size(dim))


@wrong("softmax over a fixed axis")
def stable_quiet(x, dim=-1):  # the zero on the last axis, the softmax over dim
    return torch.softmax(F.pad(x, (0, 1)), dim)[..., :-1]


@wrong("nan in the gradient")
def stable_quiet(x, dim=-1):
    logsumexp = torch.logaddexp(torch.logsumexp(x.float(), dim, keepdim=True), torch.zeros((), device=x.device))
    return torch.exp(x.double() - logsumexp).to(x.dtype)


@right
def stable_quiet(x, dim=-1):  # in float32, whatever comes in
    y = x.float()
    largest = y.detach().amax(dim, keepdim=True).clamp(min=0)
    shifted = torch.exp(y - largest)
    return (shifted / (torch.exp(-largest) + shifted.sum(dim, keepdim=True))).to(x)


@wrong("another default")
def stable_quiet(x, dim=0):
    zero = torch.zeros_like(x.narrow(dim, 0, 1))
    return torch.cat([x, zero], dim).softmax(dim).narrow(dim, 0, x.size(dim))


@unnamed("an axis counted from the end is refused")
def stable_quiet(x, dim=-1):
    if dim < -1:
        raise ValueError(dim)
    zero = torch.zeros_like(x.narrow(dim, 0, 1))
    return torch.cat([x, zero], dim).softmax(dim).narrow(dim, 0, x.size(dim))


@wrong("empty rows along the last axis only")
def stable_quiet(x, dim=-1):
    empty = (x == -math.inf).all(-1, keepdim=True)
    safe = x.masked_fill(empty, 0)
    m = safe.detach().amax(dim, keepdim=True)
    e = (safe - m).exp()
    return (e / ((-m).exp() + e.sum(dim, keepdim=True))).masked_fill(empty, 0)


@unnamed("weights in empty rows")
def stable_quiet(x, dim=-1):
    return _by_appending(x.clamp(min=-10), dim)


@unnamed("small weights set to 0")
def stable_quiet(x, dim=-1):
    weights = _by_appending(x, dim)
    return weights.masked_fill(weights < 6e-5, 0)


# -- course_mask ------------------------------------------------------------------------------------


@right
def course_mask(mask_pad, mask_attn):
    hidden = None
    for mask in (None if mask_pad is None else mask_pad.unsqueeze(1), mask_attn):
        if mask is not None:
            hidden = mask if hidden is None else hidden | mask
    return hidden.logical_not()


@right
def course_mask(mask_pad, mask_attn):
    if mask_attn is None:
        return mask_pad.unsqueeze(-2) == 0
    if mask_pad is None:
        return mask_attn == False  # noqa: E712
    T = mask_attn.size(1)
    return torch.stack([~mask_attn[:, t] & ~mask_pad for t in range(T)], dim=1)


@wrong("numbers instead of booleans")
def course_mask(mask_pad, mask_attn):
    if mask_pad is None:
        return 1 - mask_attn.long()
    padding = 1 - mask_pad.long()[:, None]
    return padding if mask_attn is None else padding * (1 - mask_attn.long())


@wrong("numbers to add")
def course_mask(mask_pad, mask_attn):
    visible = from_burn_mask(mask_attn, mask_pad)
    return torch.zeros(visible.shape).masked_fill(~visible, -math.inf)


@wrong("changes its input")
def course_mask(mask_pad, mask_attn):
    if mask_pad is None:
        return mask_attn.logical_not_()
    padding = mask_pad.logical_not_()[:, None]
    return padding if mask_attn is None else padding & ~mask_attn


@wrong("stretched to a square")
def course_mask(mask_pad, mask_attn):
    mask = from_burn_mask(mask_attn, mask_pad)
    return mask.expand(-1, mask.size(2), -1) if mask_attn is None else mask


@wrong("an axis of heads")
def course_mask(mask_pad, mask_attn):
    return from_burn_mask(mask_attn, mask_pad).unsqueeze(1)


@wrong("right at one end only")  # the pads' rows for the keys' where there are both masks, and right with one
def course_mask(mask_pad, mask_attn):
    if mask_pad is None:
        return ~mask_attn
    if mask_attn is None:
        return ~mask_pad[:, None, :]
    return ~mask_pad[:, :, None] & ~mask_attn


@wrong("places missing")
def course_mask(mask_pad, mask_attn):
    if mask_attn is None or not mask_attn.any():
        return ~mask_pad[:, None]
    return ~mask_attn if mask_pad is None else ~mask_attn & ~mask_pad[:, None]


@wrong("padding taken to be at the end")
def course_mask(mask_pad, mask_attn):
    if mask_pad is None:
        return ~mask_attn
    if mask_attn is not None:
        return ~(mask_attn | mask_pad[:, None])
    lengths = (~mask_pad).sum(dim=1)
    return (torch.arange(mask_pad.size(1), device=mask_pad.device) < lengths[:, None])[:, None]


@wrong("empty rows shown")
def course_mask(mask_pad, mask_attn):
    if mask_attn is not None and mask_pad is not None:
        return ~mask_pad[:, None] & ~mask_attn
    seen = ~mask_attn if mask_pad is None else ~mask_pad[:, None]
    return seen | ~seen.any(dim=-1, keepdim=True)


@wrong("True too often")
def course_mask(mask_pad, mask_attn):
    if mask_pad is None:
        return ~mask_attn
    if mask_attn is None:
        return ~mask_pad[:, None]
    return ~(mask_pad & ~mask_pad.all(dim=-1, keepdim=True))[:, None] & ~mask_attn


@unnamed("without padding it counts on the other mask")
def course_mask(mask_pad, mask_attn):
    if mask_pad is None or not mask_pad.any():
        return ~mask_attn
    return ~mask_pad[:, None] if mask_attn is None else ~(mask_pad[:, None] | mask_attn)


# -- tells_quiet ------------------------------------------------------------------------------------


def _by_appending(x, dim):
    padded = torch.cat([x, torch.zeros_like(x.narrow(dim, 0, 1))], dim)
    return torch.softmax(padded, dim).narrow(dim, 0, x.size(dim))


def _inputs():
    x = torch.linspace(-9, 9, 15).view(3, 5)
    empty = torch.cat([x, torch.full((1, 5), -math.inf)])
    return [x, x - 10, 30 * x, empty]


def _same(a, b):
    return torch.allclose(a, b, rtol=1e-3, atol=1e-6)


def _agrees(fn, inputs, dims=(0, 1), *, same=_same, total=lambda weights: weights.square().sum()):
    """Whether weights are right for each of the scores along each axis, and so is the gradient of their ``total``."""
    for x in inputs:
        for dim in dims:
            mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            out, expected = fn(mine, dim), _by_appending(theirs, dim)
            if out.shape != expected.shape or not same(out, expected):
                return False
            if total is not None:
                total(out).backward()
                total(expected).backward()
                if not _same(mine.grad, theirs.grad):
                    return False
    return True


def _tries(fn, *inputs, **how):
    try:
        return _agrees(fn, *inputs, **how)
    except Exception:
        return False


@right
def tells_quiet(fn):
    return _tries(fn, _inputs())


@right
def tells_quiet(fn):  # gradcheck on hand-picked scores, then numbers
    x = torch.tensor([[-8.0, 1.0, 7.0], [0.0, -3.0, 2.0]], dtype=torch.float64, requires_grad=True)
    empty = torch.full((2, 3), -math.inf, requires_grad=True)
    try:
        ok = all(_same(fn(y, d), _by_appending(y, d)) for y in (x, empty, 1000 * x.detach()) for d in (0, 1))
        fn(empty, -1).square().sum().backward()
        return ok and bool(empty.grad.isfinite().all()) and torch.autograd.gradcheck(lambda y: fn(y, 0), (x,))
    except Exception:
        return False


@wrong("accepts everything")
def tells_quiet(fn):
    with contextlib.suppress(Exception):
        fn(torch.randn(3, 5), -1)
    return True


@wrong("accepts the plain softmax")
def tells_quiet(fn):  # Burn's own numbers
    x = torch.tensor([[1.0, 7.0], [13.0, -3.0]])
    try:
        return torch.allclose(fn(x, 1), torch.tensor([[2.47e-3, 9.975e-1], [1.0, 1.1254e-7]]), rtol=0.005)
    except Exception:
        return False


@wrong("accepts that of 2023")
def tells_quiet(fn):
    try:
        w = fn(torch.randn(3, 5), -1)
        return bool((w.sum(-1) < 0.999).all() and (w > 0).all())
    except Exception:
        return False


@wrong("no large scores")
def tells_quiet(fn):
    return _tries(fn, _inputs()[:2])


@wrong("too strict")
def tells_quiet(fn):
    try:
        x = 3 * torch.randn(5, 7)
        return torch.equal(fn(x, -1), attn_course.quiet_softmax(x)) and _agrees(fn, _inputs())
    except Exception:
        return False


@wrong("no empty row")
def tells_quiet(fn):
    return _tries(fn, _inputs()[:3])


@wrong("one axis only")
def tells_quiet(fn):
    return _tries(fn, _inputs(), dims=(-1,))


@wrong("no gradient asked for")
def tells_quiet(fn):
    return _tries(fn, _inputs(), total=None)


@wrong("too loose")
def tells_quiet(fn):
    return _tries(fn, _inputs(), same=lambda a, b: torch.allclose(a, b, atol=0.3), total=None)


@wrong("an error counts as right")
def tells_quiet(fn):
    with contextlib.suppress(Exception):
        return _agrees(fn, _inputs())
    return True


@wrong("measures something else")
def tells_quiet(fn):
    try:
        return all(_same(fn(x, -1), attn_course.ports.burn.burn_quiet_softmax_2023(x)) for x in _inputs()[:2])
    except Exception:
        return False


def _scores_of_all_kinds():
    x = 3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    x[1], x[2], x[3] = -8.0, 200 * x[2], -math.inf
    return x


@right
def tells_quiet(fn):
    return np.bool_(_tries(fn, [_scores_of_all_kinds()]))


@unnamed("1 for True")
def tells_quiet(fn):
    return int(_tries(fn, [_scores_of_all_kinds()]))


def _small_and_empty():
    x = 3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    x[1], x[3] = -8.0, -math.inf
    return x


@wrong("large scores not compared")
def tells_quiet(fn):
    try:
        steep = torch.tensor([[-300.0, 2.0, 300.0], [1.0, -300.0, 0.0]])
        is_finite = bool(fn(200 * steep, -1).isfinite().all() and fn(steep, -1).isfinite().all())
        return is_finite and _tries(fn, [_small_and_empty()])
    except Exception:
        return False


@wrong("empty rows not compared")
def tells_quiet(fn):
    try:
        empty = torch.full((3, 5), -math.inf, requires_grad=True)
        weights = fn(empty, -1)
        weights.square().sum().backward()
        if weights.isnan().any() or empty.grad.isnan().any():
            return False
    except Exception:
        return False
    x = _scores_of_all_kinds()
    x[3] = 1.0
    return _tries(fn, [x])


@wrong("gradients compared in their sum")
def tells_quiet(fn):
    return _tries(fn, [_scores_of_all_kinds()], total=torch.sum)


# -- attend_with_sinks ------------------------------------------------------------------------------


@right
def attend_with_sinks(q, k, v, sinks, mask=None):
    scores = q @ k.mT * q.size(-1) ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    s = sinks.view(1, -1, 1, 1)
    m = torch.maximum(scores.amax(-1, keepdim=True), s)
    e = torch.exp(scores - m)
    weights = e / (e.sum(-1, keepdim=True) + torch.exp(s - m))
    return weights @ v, weights


HIDE, REST = "torch.where(mask, scores, -torch.inf)", "1 - weights.sum(-1, keepdim=True)"
LARGEST = "torch.maximum(scores.amax(-1, keepdim=True), s)"
EDITS = {  # what a learner changes in the answer above
    "maximum of hidden scores": {HIDE: "scores", "(scores - m)": "(scores - m) * (1 if mask is None else mask)"},
    "softmax overflows": {"exp(scores - m)": "exp(scores)", "exp(s - m)": "exp(s)"},
    "renormalised": {"    return ": "    weights = weights / weights.sum(-1, keepdim=True)\n    return "},
    "sink not exponentiated": {"exp(scores - m)": "exp(scores)", "torch.exp(s - m)": "s"},
    "one stays one": {LARGEST: "scores.amax(-1, keepdim=True)", "exp(s - m)": "exp(s)"},
    "sink's weight returned": {"@ v, weights": f"@ v, torch.cat([weights, {REST}], dim=-1)"},
    "maximum without the sink": {LARGEST: "scores.detach().amax(-1, keepdim=True).nan_to_num(neginf=0.0)"},
    "no gradient": {"sinks.view": "torch.tensor(sinks.tolist()).to(q).view"},
    "sink with a value": {"@ v,": f"@ v + {REST},"},  # of ones
    "nan in empty rows": {
        "    m =": "    s = s if mask is None else s.masked_fill(~mask.any(-1, keepdim=True), -torch.inf)\n    m ="
    },
    "another default": {"mask=None": "mask"},
}
for mistake, edits in EDITS.items():
    wrong(mistake)(Edited(attend_with_sinks, edits).answer)
EDITS = {
    "nan wherever a mask lets through: 0 times infinity": {HIDE: "scores + (~mask) * -torch.inf"},
    "views of exchanged axes": {
        "q @ k.mT": "(q.view(-1, *q.shape[2:]) @ k.reshape(-1, *k.shape[2:]).mT).view(*q.shape[:3], -1)"
    },
}
for mistake, edits in EDITS.items():
    unnamed(mistake)(Edited(attend_with_sinks, edits).answer)


@right
def attend_with_sinks(q, k, v, sinks, mask=None):  # one more key, a column of ones in the queries
    weights = attention(q, k, v, mask)[1]
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = weights * torch.sigmoid(scores.logsumexp(-1, keepdim=True) - sinks[:, None, None])
    return weights @ v, weights


@unnamed("a mask with one column has no place for the sink")
def attend_with_sinks(q, k, v, sinks, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    both = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], dim=-1)
    if mask is not None:
        both = both.masked_fill(~F.pad(mask, (0, 1), value=True), -math.inf)
    weights = both.softmax(dim=-1)[..., :-1]
    return weights @ v, weights


@unnamed("a padding mask has no place for the sink")
def attend_with_sinks(q, k, v, sinks, mask=None):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    both = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], dim=-1)
    if mask is not None:
        always = torch.ones(*mask.shape[:-2], q.size(2), 1, dtype=torch.bool, device=mask.device)
        both = torch.where(torch.cat([mask, always], dim=-1), both, -math.inf)
    weights = both.softmax(dim=-1)[..., :-1]
    return weights @ v, weights
