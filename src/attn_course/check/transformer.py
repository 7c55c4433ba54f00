"""The exercises of the chapter on the Transformer. Used from chapter 9 on."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.check.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark, made_in_parts, set_parameters
from attn_course.masks import make_padding_mask
from attn_course.transformer import DecoderLayer

# ---------------------------------------------------------------- layer normalisation


def _tokens(draw):
    def inputs(*shape, eps=1e-5, **kind):
        return draw(*shape, **kind), draw(shape[-1], **kind), draw(shape[-1], **kind), eps

    yield "a sentence", *inputs(5, 7)
    yield "one token", *inputs(7)
    yield "a batch", *inputs(2, 3, 5)
    yield "a batch of one", *inputs(1, 7, 3)
    yield "as many tokens as columns", *inputs(2, 5, 5)
    yield "four axes", *inputs(2, 3, 5, 7)
    x, gain, bias, eps = inputs(3, 11)
    yield "long tokens, far from 0", 100 * x + 500, gain, bias, eps
    x, gain, bias, eps = inputs(3, 5)
    x[1] = 2.0
    yield "a token of equal numbers", x, gain, bias, eps
    yield "a large ε", *inputs(2, 5, 3, eps=0.5)
    yield "float64", *inputs(3, 2, 11, dtype=torch.float64)


@made_in_parts
def _normalised(
    dims=-1,
    *,
    correction=0,
    centred=True,
    divide=lambda variance, eps: torch.sqrt(variance + eps),
    finish=lambda normalised, gain, bias: gain * normalised + bias,
):
    """Layer normalisation that does one of its steps in its own way."""

    def answer(x, gain, bias, eps=1e-5):
        axes = tuple(range(x.dim())) if dims is None else dims
        mean = x.mean(dim=axes, keepdim=True) if centred else torch.zeros_like(x)
        around = x.mean(dim=axes, keepdim=True) if centred == "variance too" else mean
        count = math.prod(x.size(d) for d in ([axes] if isinstance(axes, int) else axes))
        variance = (x - around).square().sum(dim=axes, keepdim=True) / (count - correction)
        return finish((x - mean) / divide(variance, eps), gain, bias)

    return answer


def _without_keepdim(x, gain, bias, eps=1e-5):
    normalised = (x - x.mean(-1)) / torch.sqrt(x.var(-1, correction=0) + eps)
    return gain * normalised + bias


def _summed(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / torch.sqrt(centred.square().sum(-1, keepdim=True) + eps) + bias


def _only_the_mean_divided(x, gain, bias, eps=1e-5):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return gain * (x - mean / torch.sqrt(variance + eps)) + bias


def _mean_left_in(x, gain, bias, eps=1e-5):
    return gain * x / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps) + bias


def _all_but_the_first(x, gain, bias, eps=1e-5):
    axes = tuple(range(1, x.dim())) or 0
    return _normalised(axes)(x, gain, bias, eps)


def _gain_and_bias_first(x, gain, bias, eps=1e-5):
    return _normalised(finish=lambda normalised, gain, bias: normalised)(gain * x + bias, gain, bias, eps)


def _by_the_mean_distance(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / (centred.abs().mean(-1, keepdim=True) + eps) + bias


def _by_its_length(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / (centred.norm(dim=-1, keepdim=True) + eps) + bias


def _between_0_and_1(x, gain, bias, eps=1e-5):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return gain * (x - low) / (high - low + eps) + bias


layer_norm = Exercise(
    name="layer_norm",
    trials=_tokens,
    right=lambda x, gain, bias, eps=1e-5: F.layer_norm(x, x.shape[-1:], gain, bias, eps),
    gradients=True,
    mistakes={
        "divided by E − 1": Mistake(
            "The numbers come out a little too small: the squared distances are divided by E − 1, as torch.var and "
            "torch.std do unless told otherwise, and here it is E. See section 9.3.",
            _normalised(correction=1),
        ),
        "E − 1 and ε outside the root": Mistake(
            "The standard deviation is that of torch.std, which divides by E − 1, and ε is added to it: here the "
            "variance divides by E, and ε joins it under the root. See section 9.3.",
            _normalised(correction=1, divide=lambda variance, eps: variance.sqrt() + eps),
        ),
        "E − 1 and ε forgotten": Mistake(
            "The standard deviation is that of torch.std, which divides by E − 1, and here the variance divides by E; "
            "and where a token's numbers are all equal, 0 is divided by 0, because ε is missing. See section 9.3.",
            _normalised(correction=1, divide=lambda variance, eps: variance.sqrt()),
        ),
        "summed instead of averaged": Mistake(
            "The numbers come out too small by √E: the squared distances are added up and not divided by E. See "
            "section 9.3.",
            _summed,
        ),
        "ε not the one given": Mistake(
            "Right as long as ε is 10⁻⁵: the ε that was handed in is not used. See section 9.3.",
            _normalised(divide=lambda variance, eps: torch.sqrt(variance + 1e-5)),
        ),
        "norm over the positions": Mistake(
            "The columns have mean 0 and the tokens do not: mean and variance run over the positions, "
            "so every token depends on all the others. See section 9.12.",
            _normalised(-2),
        ),
        "axis counted from the front": Mistake(
            "A sentence is right and a batch is not: axis 1 holds the width in the one and the positions in the other. "
            "Count from the end, where it does not matter. See section 3.7.",
            _normalised(1),
        ),
        "norm over everything": Mistake(
            "One mean and one variance serve all tokens together; each token has its own. See section 9.3.",
            _normalised(None),
        ),
        "norm over the sentence": Mistake(
            "A sentence has one mean and one variance for all its tokens; each token has its own. See section 9.3.",
            lambda x, *others: _normalised((-2, -1) if x.dim() > 1 else -1)(x, *others),
        ),
        "ε outside the root": Mistake(
            "Almost right: ε is added behind the root instead of under it, which shows where ε is not tiny. See "
            "section 9.3.",
            _normalised(divide=lambda variance, eps: variance.sqrt() + eps),
        ),
        "ε forgotten": Mistake(
            "A token whose numbers are all equal gives nan: 0 is divided by 0, because ε is missing. See section 9.3.",
            _normalised(divide=lambda variance, eps: variance.sqrt()),
        ),
        "divided by the variance": Mistake(
            "The tokens are divided by their variance, without a root, and large tokens come out small. See section "
            "9.3.",
            _normalised(divide=lambda variance, eps: variance + eps),
        ),
        "not divided": Mistake(
            "The mean is gone, but large tokens stay large: nothing is divided by the standard deviation. See section "
            "9.3.",
            _normalised(divide=lambda variance, eps: 1.0),
        ),
        "only the mean divided": Mistake(
            "Large tokens stay large: it is the mean alone that is divided by the standard deviation, and it should be "
            "the difference of x and mean. See section 9.3.",
            _only_the_mean_divided,
        ),
        "mean square of what still has its mean": Mistake(
            "The mean is subtracted above the line and not below it: what a token is divided by is the root of the "
            "mean square of its numbers, and not of their distances from the mean. See section 9.3.",
            lambda x, gain, bias, eps=1e-5: (
                gain * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) + bias
            ),
        ),
        "mean left in": Mistake(
            "The spread is right, but the mean is still there: it has to be subtracted from what is divided. See "
            "section 9.3.",
            _mean_left_in,
        ),
        "root mean square": Mistake(
            "The tokens are divided by the root of their mean square, and the mean was never subtracted. "
            "(That is a norm too, RMSNorm, but another one.) See section 9.3.",
            _normalised(centred=False),
        ),
        "gain and bias forgotten": Mistake(
            "Each token is normalised rightly, and then gain and bias are not used. See section 9.3.",
            _normalised(finish=lambda normalised, gain, bias: normalised),
        ),
        "gain forgotten": Mistake(
            "The columns are not multiplied by the gain. See section 9.3.",
            _normalised(finish=lambda normalised, gain, bias: normalised + bias),
        ),
        "bias forgotten": Mistake(
            "The bias is not added. See section 9.3.",
            _normalised(finish=lambda normalised, gain, bias: gain * normalised),
        ),
        "bias before the gain": Mistake(
            "The gain multiplies the bias as well: first the gain, then the bias. See section 9.3.",
            _normalised(finish=lambda normalised, gain, bias: gain * (normalised + bias)),
        ),
        "gain and bias swapped": Mistake(
            "The bias multiplies and the gain is added. See section 9.3.",
            _normalised(finish=lambda normalised, gain, bias: bias * normalised + gain),
        ),
        "axis not kept": Mistake(
            "Mean and variance have lost the axis they were taken over, so they do not fit against x, "
            "or fit against the wrong axis: they have to be (…, 1). See section 9.3.",
            _without_keepdim,
        ),
        "all axes but the first": Mistake(
            "A sentence is right and a batch is not: mean and variance run over all axes but the first, so the tokens "
            "of a sentence share them. Each token has its own. See section 9.3.",
            _all_but_the_first,
        ),
        "norm over the first axis": Mistake(
            "Mean and variance run over the first axis, which holds the positions or the sentences; "
            "they run over the last, the width. See section 9.3.",
            _normalised(0),
        ),
        "norm over the first axis, n − 1": Mistake(
            "Mean and variance run over the first axis, which holds the positions or the sentences, and the variance "
            "divides by one number less: they run over the last axis, the width E. See section 9.3.",
            _normalised(0, correction=1),
        ),
        "norm over the positions, n − 1": Mistake(
            "The columns have mean 0 and the tokens do not: mean and variance run over the positions, and the variance "
            "divides by one number less. See section 9.3.",
            _normalised(-2, correction=1),
        ),
        "norm over everything, n − 1": Mistake(
            "One mean and one variance serve all tokens together, and the variance divides by one number less; each "
            "token has its own, over its E numbers. See section 9.3.",
            _normalised(None, correction=1),
        ),
        "norm over everything, n − 1 and ε outside the root": Mistake(
            "One mean and one standard deviation serve all tokens together, and it is that of torch.std, which "
            "divides by one number less: each token has its own, over its E numbers. See section 9.3.",
            _normalised(None, correction=1, divide=lambda variance, eps: variance.sqrt() + eps),
        ),
        "E − 1 and axis counted from the front": Mistake(
            "A sentence is nearly right and a batch is not: axis 1 holds the width in the one and the positions in "
            "the other, and the variance divides by one number less. See section 9.3.",
            _normalised(1, correction=1),
        ),
        "multiplied instead of divided": Mistake(
            "The tokens are multiplied by their standard deviation, so that large ones become larger still: divide by "
            "it. See section 9.3.",
            _normalised(divide=lambda variance, eps: torch.rsqrt(variance + eps)),
        ),
        "gain and bias first": Mistake(
            "Gain and bias act before the token is normalised, which takes part of them away again: they come last. "
            "See section 9.3.",
            _gain_and_bias_first,
        ),
        "mean distance": Mistake(
            "The tokens are divided by their mean distance from the mean; it is the root of the mean of the squared "
            "distances. See section 9.3.",
            _by_the_mean_distance,
        ),
        "divided by its length": Mistake(
            "The numbers come out too small by √E: a token is divided by its length, the root of the sum of the "
            "squared distances; it is the root of their mean. See section 9.3.",
            _by_its_length,
        ),
        "brought between 0 and 1": Mistake(
            "The smallest number of a token becomes 0 and the largest 1; asked for are mean 0 and mean square 1. "
            "See section 9.3.",
            _between_0_and_1,
        ),
        "gain and bias forgotten, E − 1": Mistake(
            "Gain and bias are not used, and the variance divides by E − 1, as torch.var and torch.std do unless told "
            "otherwise. See section 9.3.",
            _normalised(correction=1, finish=lambda normalised, gain, bias: normalised),
        ),
        "one added to the gain": Mistake(
            "The gain is taken as what is added to 1; the columns are multiplied by the gain itself. See section 9.3.",
            _normalised(finish=lambda normalised, gain, bias: (1 + gain) * normalised + bias),
        ),
        CHANGES_ITS_INPUT: Mistake("Subtract into a new tensor. See section 9.3."),
    },
)


# ---------------------------------------------------------------- a stack


def _stacks(draw):
    def stack(num_sublayers, *shape, norm_first, **kind):
        width = shape[-1]
        x = draw(*shape, **kind)

        def make_sublayer():
            matrix = draw(width, width, **kind)
            return lambda x: torch.tanh(x @ matrix)

        def make_norm():
            norm = nn.LayerNorm(width).to(x)
            with torch.no_grad():
                norm.weight.copy_(draw(width, **kind))
                norm.bias.copy_(draw(width, **kind))
            return norm

        sublayers = [make_sublayer() for _ in range(num_sublayers)]
        norms = [make_norm() for _ in range(num_sublayers)]
        return x, sublayers, norms, make_norm(), norm_first

    yield "one sublayer, pre-norm", *stack(1, 2, 5, 7, norm_first=True)
    yield "one sublayer, post-norm", *stack(1, 2, 5, 7, norm_first=False)
    yield "three sublayers, pre-norm", *stack(3, 2, 5, 7, norm_first=True)
    yield "three sublayers, post-norm", *stack(3, 5, 2, 3, norm_first=False)
    yield "a batch of one", *stack(2, 1, 7, 5, norm_first=True)
    yield "no sublayer, post-norm", *stack(0, 2, 3, 5, norm_first=False)
    yield "no sublayer, pre-norm", *stack(0, 2, 3, 5, norm_first=True)
    yield "float64", *stack(5, 3, 2, 11, norm_first=True, dtype=torch.float64)


@made_in_parts
def _stack(
    pre=lambda x, f, norm: x + f(norm(x)),
    post=lambda x, f, norm: norm(x + f(x)),
    *,
    ends_with_norm=lambda norm_first: norm_first,
    parts=lambda sublayers, norms: zip(sublayers, norms, strict=True),
):
    """A stack that takes one of its steps in its own way."""

    def answer(x, sublayers, norms, final_norm, norm_first):
        step = pre if norm_first else post
        for f, norm in parts(sublayers, norms):
            x = step(x, f, norm)
        return final_norm(x) if ends_with_norm(norm_first) else x

    return answer


def _swapped(x, sublayers, norms, final_norm, norm_first):
    return _stack()(x, sublayers, norms, final_norm, not norm_first)


def _side_by_side(x, sublayers, norms, final_norm, norm_first):
    first = x
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(first)) if norm_first else norm(x + f(first))
    return final_norm(x) if norm_first else x


def _side_by_side_in_pre_norm(x, sublayers, norms, final_norm, norm_first):
    return (_side_by_side if norm_first else _stack())(x, sublayers, norms, final_norm, norm_first)


def _first_x_added(x, sublayers, norms, final_norm, norm_first):
    first = x
    for f, norm in zip(sublayers, norms, strict=True):
        x = first + f(norm(x)) if norm_first else norm(first + f(x))
    return final_norm(x) if norm_first else x


def _final_norm_after_each(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = final_norm(x + f(norm(x))) if norm_first else norm(x + f(x))
    return x


def _pre(x, f, norm):
    return x + f(norm(x))


def _post(x, f, norm):
    return norm(x + f(x))


def _final_norm_first(x, sublayers, norms, final_norm, norm_first):
    return _stack(ends_with_norm=lambda norm_first: False)(
        final_norm(x) if norm_first else x, sublayers, norms, final_norm, norm_first
    )


def _final_norm_for_all(x, sublayers, norms, final_norm, norm_first):
    return _stack()(x, sublayers, [final_norm] * len(norms), final_norm, norm_first)


def _backwards(x, sublayers, norms, final_norm, norm_first):
    return _stack()(x, sublayers[::-1], norms[::-1], final_norm, norm_first)


def _norms_backwards(x, sublayers, norms, final_norm, norm_first):
    return _stack()(x, sublayers, norms[::-1], final_norm, norm_first)


def _last_norm_again(x, sublayers, norms, final_norm, norm_first):
    x = _stack(ends_with_norm=lambda norm_first: False)(x, sublayers, norms, final_norm, norm_first)
    return norms[-1](x) if norm_first else x


run_stack = Exercise(
    name="run_stack",
    trials=_stacks,
    right=_stack(),
    gradients=True,
    mistakes={
        "orders swapped": Mistake(
            "Pre-norm and post-norm have changed places: norm_first means that the sublayer reads a normalised copy. "
            "See section 9.4.",
            _swapped,
        ),
        "orders swapped but for the final norm": Mistake(
            "The final norm is where it belongs, but the two orders have changed places: "
            "norm_first means that the sublayer reads a normalised copy. See section 9.4.",
            _stack(_post, _pre),
        ),
        "always pre-norm": Mistake(
            "Pre-norm is right, and post-norm comes out as pre-norm: norm_first is not asked, "
            "and the norm belongs around the sum there. See section 9.4.",
            _stack(_pre, _pre, ends_with_norm=lambda norm_first: True),
        ),
        "always pre-norm but for the final norm": Mistake(
            "Pre-norm is right, and so is the end of the stack; but under post-norm "
            "the norm belongs around the sum. See section 9.4.",
            _stack(_pre, _pre),
        ),
        "always post-norm": Mistake(
            "The norm stands around the sum, whatever norm_first says; under pre-norm it normalises "
            "what the sublayer reads. See section 9.4.",
            _stack(_post, _post, ends_with_norm=lambda norm_first: False),
        ),
        "always post-norm but for the final norm": Mistake(
            "The norm stands around the sum, whatever norm_first says; only the final norm heeds it. See section 9.4.",
            _stack(_post, _post),
        ),
        "final norm forgotten": Mistake(
            "The layers are right and the end is not: nothing has normalised a pre-norm stack's last sum. See section "
            "9.4.",
            _stack(ends_with_norm=lambda norm_first: False),
        ),
        "final norm in both": Mistake(
            "Pre-norm is right, and a post-norm stack is normalised twice at its end: its last step is a norm already. "
            "See section 9.4.",
            _stack(ends_with_norm=lambda norm_first: True),
        ),
        "final norm in the wrong one": Mistake(
            "The final norm stands behind the post-norm stack, which ends with a norm anyway, and not behind the "
            "pre-norm stack, which needs it. See section 9.4.",
            _stack(ends_with_norm=lambda norm_first: not norm_first),
        ),
        "final norm after each": Mistake(
            "The final norm is applied after every sublayer; it belongs behind the last one. See section 9.4.",
            _final_norm_after_each,
        ),
        "residual missing": Mistake(
            "What a sublayer finds replaces the stream instead of being added to it, and what it did not find is lost. "
            "See section 9.2.",
            _stack(lambda x, f, norm: f(norm(x)), lambda x, f, norm: norm(f(x))),
        ),
        "residual missing in pre-norm": Mistake(
            "Under pre-norm, what a sublayer finds replaces the stream instead of being added to it. See section 9.4.",
            _stack(lambda x, f, norm: f(norm(x))),
        ),
        "residual missing in post-norm": Mistake(
            "Pre-norm is right; under post-norm, what a sublayer finds replaces the stream instead of being added to "
            "it before the norm. See section 9.4.",
            _stack(post=lambda x, f, norm: norm(f(x))),
        ),
        "normalised stream added": Mistake(
            "Under pre-norm the sum starts from the normalised copy: the stream itself has to go on unchanged, "
            "and only the sublayer reads the copy. See section 9.4.",
            _stack(lambda x, f, norm: norm(x) + f(norm(x))),
        ),
        "norm on what is added": Mistake(
            "The norm is applied to what the sublayer found; it belongs either on what the sublayer reads "
            "or around the whole sum. See section 9.4.",
            _stack(lambda x, f, norm: x + norm(f(x)), lambda x, f, norm: x + norm(f(x))),
        ),
        "norm on what is added in pre-norm": Mistake(
            "Under pre-norm the norm is applied to what the sublayer found; it belongs on what the sublayer reads. "
            "See section 9.4.",
            _stack(lambda x, f, norm: x + norm(f(x))),
        ),
        "norm on what is added in post-norm": Mistake(
            "Pre-norm is right; under post-norm the norm is applied to what the sublayer found, and it belongs around "
            "the whole sum. See section 9.4.",
            _stack(post=lambda x, f, norm: x + norm(f(x))),
        ),
        "norm on one half of the sum": Mistake(
            "Pre-norm is right; under post-norm the norm is applied to x before the addition, and it belongs around "
            "the whole sum. See section 9.4.",
            _stack(post=lambda x, f, norm: norm(x) + f(x)),
        ),
        "both orders at once": Mistake(
            "Pre-norm is right; under post-norm the sublayer reads a normalised copy, and it should read the stream "
            "itself, whose norm comes after the sum. See section 9.4.",
            _stack(post=lambda x, f, norm: norm(x + f(norm(x)))),
        ),
        "norms not used": Mistake(
            "The sublayers are added up without a norm in between. See section 9.3.",
            _stack(lambda x, f, norm: x + f(x), lambda x, f, norm: x + f(x)),
        ),
        "no norm in post-norm": Mistake(
            "Pre-norm is right, and under post-norm the norms are not used: they belong around the sums. See section "
            "9.4.",
            _stack(post=lambda x, f, norm: x + f(x)),
        ),
        "one norm behind the post-norm stack": Mistake(
            "Pre-norm is right, and under post-norm the final norm alone is used: each sum needs the norm of its own "
            "sublayer around it. See section 9.4.",
            _stack(post=lambda x, f, norm: x + f(x), ends_with_norm=lambda norm_first: True),
        ),
        "one norm for all": Mistake(
            "One sublayer is right and three are not: the first norm is used for all of them, and each has its own. "
            "See section 9.5.",
            _stack(parts=lambda sublayers, norms: ((f, norms[0]) for f in sublayers)),
        ),
        "sublayers side by side": Mistake(
            "One sublayer is right and three are not: all of them read the first x, "
            "and each has to read what the one before left. See section 9.2.",
            _side_by_side,
        ),
        "sublayers side by side in pre-norm": Mistake(
            "Post-norm is right; under pre-norm all sublayers read the first x, and each has to read what the one "
            "before left. See section 9.2.",
            _side_by_side_in_pre_norm,
        ),
        "first x added every time": Mistake(
            "One sublayer is right and three are not: each adds to the x that came in at the bottom, "
            "and what the sublayers before it had written is lost. See section 9.2.",
            _first_x_added,
        ),
        "last sublayer left out": Mistake(
            "The last sublayer is never run. See section 9.4.",
            _stack(parts=lambda sublayers, norms: zip(sublayers[:-1], norms[:-1], strict=True)),
        ),
        "first sublayer left out": Mistake(
            "The first sublayer is never run: a list counts from 0. See section 9.4.",
            _stack(parts=lambda sublayers, norms: zip(sublayers[1:], norms[1:], strict=True)),
        ),
        "stops after the first": Mistake(
            "One sublayer is right, and where there are three the other two are not run: "
            "the return stands inside the loop. See section 9.4.",
            _stack(parts=lambda sublayers, norms: zip(sublayers[:1], norms[:1], strict=True)),
        ),
        "final norm first": Mistake(
            "The final norm stands in front of the pre-norm stack, where each sublayer has a norm already; it belongs "
            "behind the last sum. See section 9.4.",
            _final_norm_first,
        ),
        "final norm for all": Mistake(
            "The final norm is used in the place of every norm: each sublayer has one of its own, in `norms`. "
            "See section 9.5.",
            _final_norm_for_all,
        ),
        "last norm again": Mistake(
            "Behind the pre-norm stack the norm of the last sublayer is used once more; the final norm is one of its "
            "own. See section 9.4.",
            _last_norm_again,
        ),
        "backwards": Mistake(
            "One sublayer is right and three are run in the reverse order: the first of the list is the first that "
            "reads x. See section 9.4.",
            _backwards,
        ),
        "norms backwards": Mistake(
            "One sublayer is right, and of three the first has the last norm: norm i belongs to sublayer i. See "
            "section 9.5.",
            _norms_backwards,
        ),
        "stream twice": Mistake(
            "The stream is added twice in every step: what a sublayer finds is added to it once. See section 9.2.",
            _stack(lambda x, f, norm: x + x + f(norm(x)), lambda x, f, norm: norm(x + x + f(x))),
        ),
        "what is found subtracted": Mistake(
            "What a sublayer finds is taken away from the stream; it is added. See section 9.2.",
            _stack(lambda x, f, norm: x - f(norm(x)), lambda x, f, norm: norm(x - f(x))),
        ),
        "sublayer called twice": Mistake(
            "Each sublayer reads its own output once more: it is called once in every step. See section 9.4.",
            _stack(lambda x, f, norm: x + f(f(norm(x))), lambda x, f, norm: norm(x + f(f(x)))),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "`x += …` writes into the tensor itself; `x = x + …` makes a new one. See section 9.2."
        ),
    },
)


# ---------------------------------------------------------------- a decoder layer


def _layers_and_inputs(draw):
    def inputs(B, T, lengths, S, E, H, d_ff, dtype=torch.float32):
        layer = set_parameters(DecoderLayer(E, H, d_ff)).to(draw.device, dtype).eval()
        mask = make_padding_mask(lengths, S, device=draw.device)
        return layer, draw(B, T, E, dtype=dtype), draw(B, S, E, dtype=dtype), mask

    yield "source and target of one length", *inputs(2, 5, [3, 5], 5, 10, 5, 3)
    yield "no padding", *inputs(2, 5, [7, 7], 7, 6, 3, 11)
    yield "padded sources", *inputs(3, 5, [7, 2, 4], 7, 6, 2, 5)
    yield "a batch of one", *inputs(1, 7, [2], 3, 4, 2, 7)
    yield "a target of one token", *inputs(2, 1, [3, 5], 5, 6, 3, 7)
    yield "a source that is all padding", *inputs(2, 3, [0, 5], 5, 6, 3, 7)
    yield "float64", *inputs(2, 5, [7, 3], 7, 6, 3, 11, torch.float64)


def _from_its_parts(answer, layer, x, memory, memory_mask):
    called = []
    hook = layer.register_forward_pre_hook(lambda *_: called.append(True))
    try:
        found = answer(layer, x, memory, memory_mask)
    finally:
        hook.remove()
    if called:
        raise Remark(
            "layer itself is called here. Use its parts: three sublayers, each with its norm and its addition. "
            "See section 9.6."
        )
    return found


@made_in_parts
def _decode(
    *,
    order=("back", "across", "think"),
    add=lambda x, f, norm: x + f(norm(x)),
    causal=True,
    causal_across=False,
    mask=lambda memory_mask: memory_mask,
    memory_norm=False,
    norms=("self_attention_norm", "cross_attention_norm", "feed_forward_norm"),
    self_mask=lambda memory_mask: None,
    weights_of="across",
    source=lambda x, memory: memory,
    without_norm=None,
):
    """A decoder layer that takes one of its steps in its own way."""

    def answer(layer, x, memory, memory_mask):
        found = {}

        def back(y):
            out, found["back"] = layer.self_attention(
                y, mask=self_mask(memory_mask), is_causal=causal, need_weights=True
            )
            return out

        def across(y):
            read = source(y, memory)
            out, found["across"] = layer.cross_attention(
                y,
                layer.cross_attention_norm(read) if memory_norm else read,
                mask=mask(memory_mask),
                is_causal=causal_across,
                need_weights=True,
            )
            return out

        steps = {"back": back, "across": across, "think": layer.feed_forward}
        names = dict(zip(("back", "across", "think"), norms, strict=True))
        for step in order:
            norm = nn.Identity() if step == without_norm else layer.get_submodule(names[step])
            x = add(x, steps[step], norm)
        return x, found[weights_of]

    return answer


def _asked_by_the_memory(mask):
    def answer(layer, x, memory, memory_mask):
        found, _ = layer.self_attention(layer.self_attention_norm(x), is_causal=True)
        x = x + found
        found, weights = layer.cross_attention(
            memory, layer.cross_attention_norm(x), mask=mask(memory_mask), need_weights=True
        )
        x = x + found
        return x + layer.feed_forward(layer.feed_forward_norm(x)), weights

    return answer


def _all_from_the_first_x(layer, x, memory, memory_mask):
    looked, _ = layer.self_attention(layer.self_attention_norm(x), is_causal=True)
    read, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    thought = layer.feed_forward(layer.feed_forward_norm(x))
    return x + looked + read + thought, weights


def _old_queries(layer, x, memory, memory_mask):
    found, _ = layer.self_attention(layer.self_attention_norm(x), is_causal=True)
    read, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found + read
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


def _without_residual_at(missing):
    def answer(layer, x, memory, memory_mask):
        found, _ = layer.self_attention(layer.self_attention_norm(x), is_causal=True)
        x = found if missing == "back" else x + found
        found, weights = layer.cross_attention(
            layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True
        )
        x = found if missing == "across" else x + found
        found = layer.feed_forward(layer.feed_forward_norm(x))
        return (found if missing == "think" else x + found), weights

    return answer


def _mean_of_heads(layer, x, memory, memory_mask):
    out, weights = _decode()(layer, x, memory, memory_mask)
    return out, weights.mean(dim=1)


def _post_norm_at(where):
    def answer(layer, x, memory, memory_mask):
        kept = {}

        def back(y):
            return layer.self_attention(y, is_causal=True)[0]

        def across(y):
            out, kept["weights"] = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
            return out

        steps = {"self_attention": back, "cross_attention": across}
        for name in ("self_attention", "cross_attention", "feed_forward"):
            f, norm = (steps.get(name, layer.feed_forward), layer.get_submodule(f"{name}_norm"))
            x = norm(x + f(x)) if name == where else x + f(norm(x))
        return x, kept["weights"]

    return answer


def _cross_and_think(layer, x, memory, memory_mask):
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


def _found_not_added(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    _, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


decode_layer = Exercise(
    name="decode_layer",
    trials=_layers_and_inputs,
    right=_decode(),
    gradients=True,
    use=_from_its_parts,
    returns=("x", "weights"),
    mistakes={
        "post-norm": Mistake(
            "This is a post-norm layer: the norms stand around the sums. Under pre-norm they stand inside the calls. "
            "See section 9.4.",
            _decode(add=lambda x, f, norm: norm(x + f(x))),
        ),
        "norms not used": Mistake(
            "None of the three norms is used; each sublayer has to read a normalised copy of the stream. See section "
            "9.4.",
            _decode(add=lambda x, f, norm: x + f(x)),
        ),
        "normalised stream added": Mistake(
            "Each sum starts from the normalised copy: the stream itself has to go on unchanged, "
            "and only the sublayer reads the copy. See section 9.4.",
            _decode(add=lambda x, f, norm: norm(x) + f(norm(x))),
        ),
        "norm on what is added": Mistake(
            "The norms are applied to what the sublayers found; under pre-norm they belong on what is read. See "
            "section 9.4.",
            _decode(add=lambda x, f, norm: x + norm(f(x))),
        ),
        "no norm before the self-attention": Mistake(
            "The self-attention reads the stream itself; it has to read a normalised copy. See section 9.4.",
            _decode(without_norm="back"),
        ),
        "no norm before the cross-attention": Mistake(
            "The queries of the cross-attention are made from the stream itself; they have to be made from a "
            "normalised copy. See section 9.6.",
            _decode(without_norm="across"),
        ),
        "no norm before the feed-forward": Mistake(
            "The feed-forward reads the stream itself; it has to read a normalised copy. See section 9.4.",
            _decode(without_norm="think"),
        ),
        "one norm for all": Mistake(
            "The norm of the self-attention is used for all three sublayers, and each has its own. See section 9.5.",
            _decode(norms=["self_attention_norm"] * 3),
        ),
        "norms swapped": Mistake(
            "The norms of cross-attention and feed-forward have changed places. See section 9.5.",
            _decode(norms=("self_attention_norm", "feed_forward_norm", "cross_attention_norm")),
        ),
        "norms of the attentions swapped": Mistake(
            "The norms of self-attention and cross-attention have changed places. See section 9.5.",
            _decode(norms=("cross_attention_norm", "self_attention_norm", "feed_forward_norm")),
        ),
        "residual missing": Mistake(
            "What each sublayer finds replaces the stream instead of being added to it. See section 9.2.",
            _decode(add=lambda x, f, norm: f(norm(x))),
        ),
        "residual missing at the self-attention": Mistake(
            "The stream is lost at the self-attention: what was found takes the place of x instead of being added. "
            "See section 9.2.",
            _without_residual_at("back"),
        ),
        "residual missing at the cross-attention": Mistake(
            "The stream is lost at the cross-attention: what was found takes the place of x instead of being added. "
            "See section 9.2.",
            _without_residual_at("across"),
        ),
        "residual missing at the feed-forward": Mistake(
            "The stream is lost at the end: what the feed-forward returns takes the place of x instead of being added. "
            "See section 9.2.",
            _without_residual_at("think"),
        ),
        "not causal": Mistake(
            "The self-attention sees the future: nothing tells it to be causal. See section 9.6.", _decode(causal=False)
        ),
        "neither causal nor masked": Mistake(
            "The self-attention sees the future and the cross-attention reads padding: nothing tells the one to be "
            "causal, and memory_mask does not reach the other. See section 9.6.",
            _decode(causal=False, mask=lambda memory_mask: None),
        ),
        "causal mask in cross-attention": Mistake(
            "The first queries do not see the end of the memory: the cross-attention is causal, "
            "and the source may be read as a whole. See section 9.12.",
            _decode(causal_across=True),
        ),
        "mask ignored": Mistake(
            "Padding of the source is read: memory_mask does not reach the cross-attention. See section 9.6.",
            _decode(mask=lambda memory_mask: None),
        ),
        "mask inverted": Mistake(
            "The cross-attention reads nothing but padding: the mask is upside down; True means may attend. See "
            "section 5.4.",
            _decode(mask=lambda memory_mask: ~memory_mask),
        ),
        "source's mask on the target": Mistake(
            "The source's mask is given to the self-attention, too, where the positions are the target's. See section "
            "9.7.",
            _decode(self_mask=lambda memory_mask: memory_mask),
        ),
        "source's mask in self-attention only": Mistake(
            "The source's mask is given to the self-attention instead of the cross-attention. See section 9.7.",
            _decode(self_mask=lambda memory_mask: memory_mask, mask=lambda memory_mask: None),
        ),
        "memory normalised": Mistake(
            "The memory goes through a norm here, and it has been normalised by the encoder: "
            "only the queries are. See section 9.6.",
            _decode(memory_norm=True),
        ),
        "memory ignored": Mistake(
            "The cross-attention reads x instead of the memory. See section 9.6.", _decode(source=lambda x, memory: x)
        ),
        "memory asks": Mistake(
            "The two sides have changed places: the memory asks and x answers. See section 7.10.",
            _asked_by_the_memory(lambda memory_mask: None),
        ),
        "memory asks under the mask": Mistake(
            "The two sides have changed places: the memory asks and x answers, and a mask over the source's columns "
            "lies on the target's. See section 7.10.",
            _asked_by_the_memory(lambda memory_mask: memory_mask),
        ),
        "across before back": Mistake(
            "The cross-attention comes before the self-attention: first look back, then across. See section 9.6.",
            _decode(order=("across", "back", "think")),
        ),
        "feed-forward before the cross-attention": Mistake(
            "The feed-forward comes before the cross-attention, and belongs behind it. See section 9.6.",
            _decode(order=("back", "think", "across")),
        ),
        "feed-forward forgotten": Mistake(
            "The weights are right and the last sublayer, the feed-forward, is missing. See section 9.6.",
            _decode(order=("back", "across")),
        ),
        "sublayers side by side": Mistake(
            "All three sublayers read the x that came in; each has to read what the one before left. See section 9.6.",
            _all_from_the_first_x,
        ),
        "queries from the old x": Mistake(
            "The queries of the cross-attention are made from the x that came in, and know nothing of what "
            "the self-attention found. See section 9.6.",
            _old_queries,
        ),
        "weights of the self-attention": Mistake(
            "The stream is right, and the weights are those of the self-attention; "
            "asked for are those of the cross-attention. See section 9.6.",
            _decode(weights_of="back"),
        ),
        "weights not asked for": Mistake(
            "The stream is right and the weights are None: the cross-attention returns them when asked. See section "
            "9.10.",
            lambda *inputs: (_decode()(*inputs)[0], None),
        ),
        "weights not returned": Mistake(
            "Only the stream is returned; the exercise asks for the weights beside it. See section 9.6.",
            lambda *inputs: _decode()(*inputs)[0],
        ),
        "results swapped": Mistake(
            "Both results are there, in the wrong order: first the stream, then the weights. See section 9.6.",
            lambda *inputs: _decode()(*inputs)[::-1],
        ),
        "mean of the heads": Mistake(
            "The stream is right, and the weights are averaged over the heads: each head has its own, (B, H, T, S). "
            "See section 9.10.",
            _mean_of_heads,
        ),
        "stream twice": Mistake(
            "The stream is added twice in every step: what a sublayer finds is added to it once. See section 9.2.",
            _decode(add=lambda x, f, norm: x + x + f(norm(x))),
        ),
        "post-norm at the end": Mistake(
            "The two attentions are pre-norm, and the norm of the feed-forward stands around its sum: under pre-norm "
            "the feed-forward reads a normalised copy. See section 9.4.",
            _post_norm_at("feed_forward"),
        ),
        "sees the future, and the cross-attention is causal": Mistake(
            "It is the cross-attention that is causal, and the self-attention sees the future: it is the other way "
            "round. See section 9.6.",
            _decode(causal=False, causal_across=True),
        ),
        "normalised again at the end": Mistake(
            "The stream is normalised once more behind the feed-forward; under pre-norm a layer leaves its last sum "
            "as it is, and the stack has one final norm. See section 9.4.",
            lambda layer, x, memory, memory_mask: (
                layer.feed_forward_norm((found := _decode()(layer, x, memory, memory_mask))[0]),
                found[1],
            ),
        ),
        "self-attention forgotten": Mistake(
            "The first of the three sublayers, the self-attention, is missing: the target's tokens know nothing of "
            "each other. See section 9.6.",
            lambda layer, x, memory, memory_mask: _cross_and_think(layer, x, memory, memory_mask),
        ),
        "cross-attention's output forgotten": Mistake(
            "The weights of the cross-attention are there, and what it found is not added to the stream. See section "
            "9.6.",
            lambda layer, x, memory, memory_mask: _found_not_added(layer, x, memory, memory_mask),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "`x += …` writes into the tensor itself; `x = x + …` makes a new one. See section 9.2."
        ),
    },
)


# ---------------------------------------------------------------- a table with two jobs


def _tables(draw):
    def sizes(V, E, B, T, **kind):
        return V, E, draw.ints(B, T, high=V), draw(B, T, E, **kind), draw(V, E, **kind)

    yield "a small table", *sizes(7, 5, 2, 3)
    yield "a wide table", *sizes(11, 64, 3, 2)
    yield "one sequence of one token", *sizes(5, 3, 1, 1)
    yield "as many ids as columns", *sizes(7, 7, 2, 5)
    yield "a large table", *sizes(4000, 24, 2, 3)
    yield "float64", *sizes(13, 11, 2, 5, dtype=torch.float64)


def _spread(table):
    """How the rows start: thousands of numbers tell it in spite of the seed, so it is brought to what it must be."""
    V, E = table.shape
    mean, spread = float(table.mean()) * math.sqrt(E), float(table.std()) * math.sqrt(E)
    likely = {
        "1/√E": 1.0,
        "1": math.sqrt(E),
        "1/E": 1 / math.sqrt(E),
        "1/√V": math.sqrt(E / V),
        "√(2 / (V + E))": math.sqrt(2 * E / (V + E)),
        "√(2 / E)": math.sqrt(2),
        "1/√(3E)": math.sqrt(1 / 3),
        "0.02": 0.02 * math.sqrt(E),
    }
    name = next((n for n, s in likely.items() if abs(spread / s - 1) < 0.02), f"{spread / math.sqrt(E):.2g}")
    if abs(mean) > 0.05:
        return f"{name} around {mean / math.sqrt(E):.1g}"
    return f"{name}, with a row of zeros" if (table == 0).all(dim=1).any() else name


def _reaches(out, tables):
    """The gradient that comes to the table from one of its jobs; None where nothing comes."""
    if not isinstance(out, Tensor) or not out.requires_grad:
        return None
    shares = 1 + torch.arange(out.numel(), device=out.device).reshape(out.shape) % 5
    return torch.autograd.grad((out * shares).sum(), tables[0], allow_unused=True)[0]


def _do_both_jobs(answer, vocab_size, d_model, ids, x, numbers):
    table = answer(vocab_size, d_model)
    if not isinstance(table, nn.Module):
        raise Remark("TiedTable has to be an nn.Module, so that its table is trained. See section 9.8.")
    table = table.to(x)
    tables = [p for p in table.parameters() if p.shape == numbers.shape]
    spread = _spread(tables[0].detach()) if vocab_size >= 1000 and tables else "1/√E"
    with torch.no_grad():
        for parameter in tables:
            parameter.copy_(numbers)
    if table.embed(ids) is None and table.score(x) is None and not tables:
        return None
    if not tables:
        has = (
            ", ".join(str(tuple(p.shape)) for p in table.parameters())
            or "no parameter at all (what is computed from a Parameter is a plain tensor again)"
        )
        raise Remark(
            f"There has to be a parameter of the shape (V, E), here {tuple(numbers.shape)}, "
            f"and there is {has}. See section 9.8."
        )
    count = sum(p.numel() for p in table.parameters())
    embedded, logits = table.embed(ids), table.score(x)
    if count != numbers.numel():
        return count, embedded, logits, None, None, spread
    gradients = _reaches(embedded, tables), _reaches(logits, tables)
    return count, embedded, logits, *gradients, spread


class _Tied(nn.Module):
    """A table that does one of its jobs in its own way."""

    embed_factor = staticmethod(math.sqrt)
    score_factor = staticmethod(lambda d_model: 1.0)
    spread = staticmethod(lambda d_model: d_model**-0.5)

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) * self.spread(d_model))

    def embed(self, ids):
        return self.weight[ids] * self.embed_factor(self.d_model)

    def score(self, x):
        return x @ self.weight.T * self.score_factor(self.d_model)


@made_in_parts
def _tied(embed_factor=_Tied.embed_factor, score_factor=_Tied.score_factor, spread=_Tied.spread):
    changes = {"embed_factor": embed_factor, "score_factor": score_factor, "spread": spread}
    return type("Tied", (_Tied,), {name: staticmethod(change) for name, change in changes.items()})


def _one(d_model):
    return 1.0


class _TwoTables(_Tied):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.other = nn.Parameter(torch.randn(vocab_size, d_model) * self.spread(d_model))


class _TwoTablesUnscaled(_TwoTables):
    embed_factor = staticmethod(_one)


class _WithBias(_Tied):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.bias = nn.Parameter(torch.zeros(vocab_size))


class _ScoreCutOff(_Tied):
    def score(self, x):
        return x @ self.weight.detach().T


class _EmbedCutOff(_Tied):
    def embed(self, ids):
        return super().embed(ids).detach()


class _CutOff(_EmbedCutOff, _ScoreCutOff):
    pass


class _RowOfZeros(_Tied):
    """Row 0 starts at zero and stays there, since its own gradient is left out of the way in."""

    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        with torch.no_grad():
            self.weight[0] = 0

    def embed(self, ids):
        return F.embedding(ids, self.weight, padding_idx=0) * math.sqrt(self.d_model)


class _AroundAHalf(_Tied):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.weight = nn.Parameter(torch.rand(vocab_size, d_model) / math.sqrt(d_model))


class _SpreadOfVocabulary(_Tied):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        with torch.no_grad():
            self.weight.mul_(math.sqrt(d_model / vocab_size))


class _Softmax(_Tied):
    def score(self, x):
        return super().score(x).softmax(dim=-1)


class _ByTheRootOfV(_Tied):
    def embed(self, ids):
        return self.weight[ids] * math.sqrt(self.weight.size(0))


class _ByTheRootOfT(_Tied):
    def embed(self, ids):
        return self.weight[ids] * math.sqrt(ids.size(-1))


class _LogSoftmax(_Tied):
    def score(self, x):
        return super().score(x).log_softmax(dim=-1)


class _ScaledInPlace(_Tied):
    def embed(self, ids):
        with torch.no_grad():
            self.weight.mul_(math.sqrt(self.d_model))
        return self.weight[ids]


class _WithBiasUnscaled(_WithBias):
    embed_factor = staticmethod(_one)


def _tied_in(spread):
    """A table whose spread depends on both sizes."""

    class Tied(_Tied):
        def __init__(self, vocab_size, d_model):
            super().__init__(vocab_size, d_model)
            numbers = torch.randn(vocab_size, d_model) * spread(vocab_size, d_model)
            self.weight = nn.Parameter(numbers)

    return Tied


TiedTable = Exercise(
    name="TiedTable",
    trials=_tables,
    right=_Tied,
    use=_do_both_jobs,
    returns=(
        "the number of parameters",
        "embed(ids)",
        "score(x)",
        "the gradient that embed sends to the table",
        "the gradient that score sends to the table",
        "the spread of the first table",
    ),
    mistakes={
        "two tables": Mistake(
            "There are twice as many parameters as one table has: the two jobs have a table each, "
            "even if both began with the same numbers. See section 9.8.",
            _TwoTables,
        ),
        "two tables and no scale": Mistake(
            "There are twice as many parameters as one table has, one table for each job; "
            "and what goes in is not scaled. See section 9.8.",
            _TwoTablesUnscaled,
        ),
        "a bias too many": Mistake(
            "There are V parameters more than the table has: the logits have a bias here. See section 9.7.", _WithBias
        ),
        "no scale": Mistake(
            "What goes in is not multiplied by √E, and would be drowned by the positions. See section 9.8.",
            _tied(embed_factor=_one),
        ),
        "divided instead of multiplied": Mistake(
            "What goes in is divided by √E, and has to be multiplied by it. See section 9.8.",
            _tied(embed_factor=lambda d_model: 1 / math.sqrt(d_model)),
        ),
        "multiplied by the width itself": Mistake(
            "What goes in is multiplied by E, without the root. See section 9.8.", _tied(embed_factor=float)
        ),
        "scale on the way out": Mistake(
            "The factor √E is at the wrong end: it belongs to what goes in, and the logits are multiplied instead. "
            "See section 9.8.",
            _tied(embed_factor=_one, score_factor=math.sqrt),
        ),
        "scaled at both ends": Mistake(
            "What goes in is right, and the logits are multiplied by √E as well; they have a spread of 1 without it. "
            "See section 9.8.",
            _tied(score_factor=math.sqrt),
        ),
        "logits divided": Mistake(
            "What goes in is right, and the logits are divided by √E; the small rows have seen to that already. "
            "See section 9.8.",
            _tied(score_factor=lambda d_model: 1 / math.sqrt(d_model)),
        ),
        "spread of 1": Mistake(
            "Both jobs are right, but the rows start with a spread of 1, and the first logits with one of √E. See "
            "section 9.8.",
            _tied(spread=_one),
        ),
        "spread of 1/E": Mistake(
            "Both jobs are right, but the rows start with a spread of 1/E, without the root. See section 9.8.",
            _tied(spread=lambda d_model: 1 / d_model),
        ),
        "spread of 1/√V": Mistake(
            "Both jobs are right, but the rows start with a spread of 1/√V; a logit sums over the E columns of a row, "
            "so E counts. See section 9.8.",
            _SpreadOfVocabulary,
        ),
        "cut off from the gradient": Mistake(
            "The numbers are right, and neither of the two jobs trains the table: a detach, a no_grad or .data "
            "stands in the way of the gradient. See section 9.8.",
            _CutOff,
        ),
        "way out cut off from the gradient": Mistake(
            "The numbers are right, and score does not train the table: a detach, a no_grad or .data stands in the "
            "way of the gradient. See section 9.8.",
            _ScoreCutOff,
        ),
        "way in cut off from the gradient": Mistake(
            "The numbers are right, and embed does not train the table: a detach, a no_grad or .data stands in the "
            "way of the gradient. See section 9.8.",
            _EmbedCutOff,
        ),
        "no spread chosen": Mistake(
            "The rows start with a spread of 1, as those of nn.Embedding do, and what goes in is not multiplied by √E: "
            "the first logits have a spread of √E. See section 9.8.",
            _tied(embed_factor=_one, spread=_one),
        ),
        "spread of Xavier": Mistake(
            "Both jobs are right, but the rows start with Xavier's spread, √(2 / (V + E)), which is that of a Linear "
            "from V to E; here it is 1/√E. See section 9.8.",
            _tied_in(lambda V, E: math.sqrt(2 / (V + E))),
        ),
        "spread of Kaiming": Mistake(
            "Both jobs are right, but the rows start with Kaiming's spread, √(2 / E), made for layers behind a ReLU; "
            "here it is 1/√E. See section 9.8.",
            _tied_in(lambda V, E: math.sqrt(2 / E)),
        ),
        "bounds instead of spread": Mistake(
            "Both jobs are right, but the rows start within ±1/√E, as those of a Linear do, and the spread of such "
            "numbers is smaller than their bound, by √3; here the spread is 1/√E. See section 9.8.",
            _tied_in(lambda V, E: math.sqrt(1 / (3 * E))),
        ),
        "spread of 0.02": Mistake(
            "Both jobs are right, but the rows start with a spread of 0.02, whatever the width; here it is 1/√E. "
            "See section 9.8.",
            _tied(spread=lambda d_model: 0.02),
        ),
        "zeros to start with": Mistake(
            "The rows start at zero, all of them alike, so all words look the same; they start with a spread of 1/√E. "
            "See section 9.8.",
            _tied(spread=lambda d_model: 0.0),
        ),
        "not around 0": Mistake(
            "Both jobs are right, but the rows start between 0 and 1/√E, so that their mean is not 0: "
            "torch.rand draws from 0 to 1, torch.randn around 0. See section 9.8.",
            _AroundAHalf,
        ),
        "row of zeros": Mistake(
            "Row 0 starts at zero, and the way in never trains it: with padding_idx a row is taken out of the table, "
            "and here all V rows start with a spread of 1/√E. See section 9.8.",
            _RowOfZeros,
        ),
        "multiplied by 8": Mistake(
            "With a width of 64 all is well: what goes in is multiplied by 8, which is √64, and it is √E. See section "
            "9.8.",
            _tied(embed_factor=lambda d_model: 8.0),
        ),
        "multiplied by the root of the length": Mistake(
            "What goes in is multiplied by the root of the number of tokens; it is √E, the root of the width. See "
            "section 9.8.",
            _ByTheRootOfT,
        ),
        "table scaled in place": Mistake(
            "embed multiplies the stored table itself by √E, so that it grows with every call: multiply what was "
            "looked up. See section 9.8.",
            _ScaledInPlace,
        ),
        "multiplied by the root of V": Mistake(
            "What goes in is multiplied by √V; it is √E, the root of the width. See section 9.8.", _ByTheRootOfV
        ),
        "bias and no scale": Mistake(
            "There are V parameters more than the table has, for the logits have a bias here; and what goes in is not "
            "scaled. See section 9.7.",
            _WithBiasUnscaled,
        ),
        "scaled and divided": Mistake(
            "What goes in is divided by √E and the logits are multiplied by it: it is what goes in that is multiplied. "
            "See section 9.8.",
            _tied(embed_factor=lambda d_model: 1 / math.sqrt(d_model), score_factor=math.sqrt),
        ),
        "logarithms of probabilities": Mistake(
            "score returns the logarithms of probabilities, and is asked for logits: the loss makes its own softmax. "
            "See section 7.8.",
            _LogSoftmax,
        ),
        "softmax too early": Mistake(
            "score returns probabilities, and is asked for logits: the loss makes its own softmax. See section 7.8.",
            _Softmax,
        ),
    },
)


# ---------------------------------------------------------------- counting


def _sizes(draw):
    yield "one layer on each side", 17, 13, 8, 11, 1
    yield "three layers on each side", 17, 13, 8, 11, 3
    yield "a wide feed-forward", 7, 5, 6, 24, 2
    yield "no feed-forward to speak of", 5, 11, 10, 1, 2
    yield "the paper's base layers", 37_000, 37_000, 512, 2048, 6


@made_in_parts
def _count(
    *,
    matrices=4,
    attention_biases=4,
    ff_biases=lambda e, f: f + e,
    ff=lambda e, f: 2 * e * f,
    norm=lambda e: 2 * e,
    encoder=(1, 2),
    decoder=(2, 3),
    decoder_ff=1,
    encoder_ff=1,
    final_norms=2,
    tables=lambda s, t: s + t,
    layers=lambda n: n,
    decoder_layers=lambda n: n,
):
    """A count that counts one of the parts in its own way; ``encoder`` and ``decoder`` are attentions and norms."""

    def answer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
        e = d_model
        attend = matrices * e * e + attention_biases * e
        think = ff(e, d_ff) + ff_biases(e, d_ff)
        one_encoder = encoder[0] * attend + encoder_ff * think + encoder[1] * norm(e)
        one_decoder = decoder[0] * attend + decoder_ff * think + decoder[1] * norm(e)
        return (
            tables(src_vocab_size, tgt_vocab_size) * e
            + layers(num_layers) * one_encoder
            + decoder_layers(num_layers) * one_decoder
            + final_norms * norm(e)
        )

    return answer


count_transformer = Exercise(
    name="count_transformer",
    trials=_sizes,
    right=_count(),
    seeds=(0,),
    mistakes={
        "final norms forgotten": Mistake(
            "4E are missing: in a pre-norm model a norm stands behind each of the two stacks. See section 9.7.",
            _count(final_norms=0),
        ),
        "one final norm": Mistake(
            "2E are missing: there is a final norm behind the encoder and one behind the decoder. See section 9.7.",
            _count(final_norms=1),
        ),
        "a final norm in each layer": Mistake(
            "The final norms are counted once for each layer; there is one behind each stack. See section 9.7.",
            _count(encoder=(1, 3), decoder=(2, 4), final_norms=0),
        ),
        "logits counted again": Mistake(
            "The target's table is counted twice: it is one tensor that does both jobs. See section 9.8.",
            _count(tables=lambda s, t: s + 2 * t),
        ),
        "logits counted again with a bias": Mistake(
            "The logits are counted as a Linear of their own, with a bias: they have none, and their matrix is the "
            "target's table. See section 9.8.",
            lambda s, t, e, f, n: _count(tables=lambda s, t: s + 2 * t)(s, t, e, f, n) + t,
        ),
        "bias of the logits counted": Mistake(
            "V are too many: the logits have no bias. See section 9.7.",
            lambda s, t, e, f, n: _count()(s, t, e, f, n) + t,
        ),
        "tables forgotten": Mistake(
            "The layers are right, and the two tables are missing, which hold a row for each token. See section 9.11.",
            _count(tables=lambda s, t: 0),
        ),
        "source's table forgotten": Mistake(
            "The source's table is missing: the two languages have a table each. See section 9.8.",
            _count(tables=lambda s, t: t),
        ),
        "target's table forgotten": Mistake(
            "The target's table is missing: the two languages have a table each. See section 9.8.",
            _count(tables=lambda s, t: s),
        ),
        "one attention in the decoder": Mistake(
            "A decoder layer has one attention here, and it has two: back, and across. See section 9.6.",
            _count(decoder=(1, 3)),
        ),
        "decoder counted as encoder": Mistake(
            "Decoder layers are counted like encoder layers: the cross-attention and its norm are missing. See section "
            "9.6.",
            _count(decoder=(1, 2)),
        ),
        "norm of the cross-attention forgotten": Mistake(
            "2E are missing for each encoder layer with its decoder layer: it is the norm of one sublayer, of which "
            "they have two and three, or the second biases of the two feed-forwards, E each. See section 9.6.",
            _count(decoder=(2, 2)),
        ),
        "one norm in each layer": Mistake(
            "Each layer has a single norm here; there is one for each sublayer. See section 9.5.",
            _count(encoder=(1, 1), decoder=(2, 1)),
        ),
        "norms forgotten": Mistake(
            "No norm is counted at all, and each learns a gain and a bias. See section 9.3.", _count(norm=lambda e: 0)
        ),
        "norms without a bias": Mistake(
            "A norm counts E here, and it learns 2E: a gain and a bias for each column. See section 9.3.",
            _count(norm=lambda e: e),
        ),
        "biases forgotten": Mistake(
            "No bias of any Linear is counted; each has one but the last. See section 9.11.",
            _count(attention_biases=0, ff_biases=lambda e, f: 0),
        ),
        "attention's biases forgotten": Mistake(
            "The biases of the attentions are missing, E for each of their four Linears. See section 9.11.",
            _count(attention_biases=0),
        ),
        "feed-forward's biases forgotten": Mistake(
            "The biases of the feed-forwards are missing, d_ff for the first Linear and E for the second. See section "
            "9.11.",
            _count(ff_biases=lambda e, f: 0),
        ),
        "feed-forward's biases of one width": Mistake(
            "A bias is as long as the output of its Linear: in the feed-forward, d_ff for the first and E for the "
            "second. See section 9.11.",
            _count(ff_biases=lambda e, f: 2 * e),
        ),
        "output projection forgotten": Mistake(
            "An attention has three matrices here; the fourth is the output projection. See section 6.4.",
            _count(matrices=3, attention_biases=3),
        ),
        "one Linear in the feed-forward": Mistake(
            "The feed-forward has one Linear here, from E to d_ff, and it has two, up and down. See section 9.1.",
            _count(ff=lambda e, f: e * f, ff_biases=lambda e, f: f),
        ),
        "source's words for both tables": Mistake(
            "Both tables have a row for each word of the source; the target's has one for each word of the target. See "
            "section 9.8.",
            _count(tables=lambda s, t: 2 * s),
        ),
        "half the layers": Mistake(
            "The layers of both sides together are taken for num_layers; there are num_layers on each side. "
            "See section 9.11.",
            lambda s, t, e, f, n: (
                _count(tables=lambda s, t: 0, final_norms=0)(s, t, e, f, n) // 2 + (s + t) * e + 4 * e
            ),
        ),
        "one matrix in the feed-forward": Mistake(
            "The feed-forward has one matrix here, and it has two, up and down. See section 9.1.",
            _count(ff=lambda e, f: e * f),
        ),
        "d_ff ignored": Mistake(
            "The feed-forward is taken to be 4E wide, as in the paper; here it is d_ff. See section 9.1.",
            _count(ff=lambda e, f: 8 * e * e, ff_biases=lambda e, f: 5 * e),
        ),
        "feed-forward in one side only": Mistake(
            "A decoder layer has no feed-forward here, and it has one as an encoder layer does. See section 9.6.",
            _count(decoder_ff=0),
        ),
        "one layer for all": Mistake(
            "One layer on each side is right and three are not: num_layers is not used. See section 9.11.",
            _count(layers=lambda n: 1, decoder_layers=lambda n: 1),
        ),
        "layers shared between the sides": Mistake(
            "One layer on each side is right and three are not: there are num_layers on each side. See section 9.11.",
            _count(decoder_layers=lambda n: 1),
        ),
        "decoder forgotten": Mistake(
            "Only the encoder's layers are counted, and there are as many in the decoder. See section 9.7.",
            _count(decoder_layers=lambda n: 0, final_norms=1),
        ),
        "encoder counted as decoder": Mistake(
            "Encoder layers are counted like decoder layers, with a cross-attention and its norm, which only the "
            "decoder has. See section 9.5.",
            _count(encoder=(2, 3)),
        ),
        "a norm too many in the encoder": Mistake(
            "An encoder layer has three norms here, and it has two, one for each sublayer. See section 9.5.",
            _count(encoder=(1, 3)),
        ),
        "one bias in the attention": Mistake(
            "An attention has a single bias here; each of its four Linears has one. See section 9.11.",
            _count(attention_biases=1),
        ),
        "no bias at the output projection": Mistake(
            "The output projection of the attentions has no bias here; each of their four Linears has one. See "
            "section 9.11.",
            _count(attention_biases=3),
        ),
        "first bias of the feed-forward forgotten": Mistake(
            "The feed-forward has a bias for its second Linear, E, and none for its first, d_ff. See section 9.11.",
            _count(ff_biases=lambda e, f: e),
        ),
        "biases of the feed-forward both d_ff": Mistake(
            "Both Linears of the feed-forward have a bias of d_ff; the second one's is as long as its output, E. "
            "See section 9.11.",
            _count(ff_biases=lambda e, f: 2 * f),
        ),
        "one matrix in the attention": Mistake(
            "An attention has one matrix here; it has four, for queries, keys, values and output. See section 9.11.",
            _count(matrices=1, attention_biases=1),
        ),
        "final norms and biases of the norms forgotten": Mistake(
            "A norm counts E here and learns 2E, and the two final norms are missing. See section 9.3.",
            _count(norm=lambda e: e, final_norms=0),
        ),
        "layers only": Mistake(
            "The layers are right, and the tables and the final norms are missing. See section 9.7.",
            _count(tables=lambda s, t: 0, final_norms=0),
        ),
        "feed-forward forgotten": Mistake(
            "The layers have no feed-forward here, and each has one. See section 9.5.",
            _count(ff=lambda e, f: 0, ff_biases=lambda e, f: 0),
        ),
    },
)
