"""The exercises of the chapter on the Transformer. Used from chapter 9 on."""

import math
from unittest import mock

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark, set_parameters
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
    x, gain, bias, eps = inputs(3, 7)
    yield "features close together, far from 0", x + 100, gain, bias, eps
    x, gain, bias, eps = inputs(3, 5)
    x[1] = 2.0
    yield "a token of equal numbers", x, gain, bias, eps
    yield "a large ε", *inputs(2, 5, 3, eps=0.5)
    x, gain, bias, eps = inputs(3, 7)
    yield "small numbers and a tiny ε", 0.01 * x, gain, bias, 1e-9
    yield "tokens of one number", *inputs(2, 1)
    yield "five axes", *inputs(3, 2, 3, 2, 5)
    x, gain, bias, eps = inputs(2, 3, 5)
    yield "a transposed view", draw(2, 5, 3).mT, gain, bias, eps
    yield "float64", *inputs(3, 2, 11, dtype=torch.float64)


def _normalised(x, gain, bias, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, correction=0, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


def _between_0_and_1(x, gain, bias, eps=1e-5):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return gain * (x - low) / (high - low + eps) + bias


def _lost_far_from_0(found, x, gain, bias, eps=1e-5):
    """Whether what is off is what float32 loses where two large numbers that are nearly equal are subtracted."""
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    lost = 8 * torch.finfo(x.dtype).eps * mean.square() / variance
    right = (x - mean) / torch.sqrt(variance + eps)
    return bool((lost < 0.1).all() and ((found - bias) / gain - right).abs().le(lost * (right.abs() + 1)).all())


layer_norm = Exercise(
    name="layer_norm",
    trials=_tokens,
    right=_normalised,
    gradients=True,
    in_parts=True,
    mistakes={
        "divided by E − 1": Mistake(
            "These are the numbers of a variance divided by E − 1, as torch.var and torch.std have it unless told "
            "otherwise; here it is divided by E. See section 9.3.",
            {"correction=0": "correction=1"},
        ),
        "E − 1 and ε outside the root": Mistake(
            "These are the numbers of torch.std, which divides by E − 1, with ε added to it: here the variance "
            "divides by E, and ε joins it under the root. See section 9.3.",
            {"correction=0": "correction=1", "torch.sqrt(variance + eps)": "(variance.sqrt() + eps)"},
        ),
        "E − 1 and ε forgotten": Mistake(
            "These are the numbers of torch.std, which divides by E − 1, without ε: here the variance divides by "
            "E, and ε joins it under the root. See section 9.3.",
            {"correction=0": "correction=1", " + eps": ""},
        ),
        "mean of squares less square of the mean": Mistake(
            "Where features lie close together, far from 0, digits are lost. The mean of the squares less the "
            "square of the mean is a small difference of large numbers; the mean of the squared distances from the "
            "mean is none. See section 9.3.",
            sign=_lost_far_from_0,
        ),
        "summed instead of averaged": Mistake(
            "These are the numbers of squared distances added up; the variance is their mean, the sum divided by "
            "E. See section 9.3.",
            {"x.var(dim=-1, correction=0, keepdim=True)": "(x - mean).square().sum(dim=-1, keepdim=True)"},
        ),
        "ε not the one given": Mistake(
            "With a large ε, these are the numbers of a tiny one, such as 10⁻⁵: the ε to use is the one that is "
            "handed in. See section 9.3.",
            {"+ eps": "+ 1e-5"},
        ),
        "a tiny ε replaced": Mistake(
            "With an ε that is smaller than 10⁻⁵, these are the numbers of 10⁻⁵: the ε to use is the one that is "
            "handed in, however small. See section 9.3.",
            {"+ eps": "+ max(eps, 1e-5)"},
        ),
        "norm over the positions": Mistake(
            "These are the numbers of mean and variance over the positions; each token needs its own, over its E "
            "numbers. See section 9.3.",
            {"mean(dim=-1": "mean(dim=-2", "var(dim=-1": "var(dim=-2"},
        ),
        "axis counted from the front": Mistake(
            "A sentence is right and a batch is not: axis 1 holds the width in the one and the positions in the other. "
            "Count from the end, where it does not matter. See section 3.4.",
            {"mean(dim=-1": "mean(dim=1", "var(dim=-1": "var(dim=1"},
        ),
        "norm over everything": Mistake(
            "One mean and one variance serve all tokens together; each token needs its own. See section 9.3.",
            {"x.mean(dim=-1, keepdim=True)": "x.mean()", "dim=-1, correction=0, keepdim=True": "correction=0"},
        ),
        "norm over the sentence": Mistake(
            "A sentence has one mean and one variance for all its tokens; each token needs its own. See section 9.3.",
            {"mean(dim=-1": "mean(dim=(-2, -1)[-x.dim() :]", "var(dim=-1": "var(dim=(-2, -1)[-x.dim() :]"},
        ),
        "ε outside the root": Mistake(
            "These are the numbers of an ε added behind the root; it belongs under it, which shows where ε is not "
            "tiny. See section 9.3.",
            {"torch.sqrt(variance + eps)": "(variance.sqrt() + eps)"},
        ),
        "ε forgotten": Mistake(
            "These are the numbers without ε: it belongs under the root, for a token whose numbers are all equal "
            "has a variance of 0. See section 9.3.",
            {" + eps": ""},
        ),
        "divided by the variance": Mistake(
            "These are the numbers of tokens divided by their variance, without a root: take its root. See section "
            "9.3.",
            {"torch.sqrt": ""},
        ),
        "not divided": Mistake(
            "These are the numbers without the division by the standard deviation, so large tokens stay large. See "
            "section 9.3.",
            {" / torch.sqrt(variance + eps)": ""},
        ),
        "only the mean divided": Mistake(
            "These are the numbers of x less a mean that is divided by the standard deviation: the whole "
            "difference of x and mean should be divided. See section 9.3.",
            {"(x - mean) / torch.sqrt(variance + eps)": "(x - mean / torch.sqrt(variance + eps))"},
        ),
        "mean square of what still has its mean": Mistake(
            "The divisor is the root of the mean square of a token's own numbers: it should be that of their "
            "distances from the mean. See section 9.3.",
            {"x.var(dim=-1, correction=0, keepdim=True)": "x.square().mean(dim=-1, keepdim=True)"},
        ),
        "mean left in": Mistake(
            "The mean is still there: it has to be subtracted from what is divided. See section 9.3.",
            {"(x - mean)": "x"},
        ),
        "root mean square": Mistake(
            "These are the numbers of RMSNorm, a norm too, which divides a token by the root of its mean square: "
            "the one asked for subtracts the mean first. See section 9.3.",
            {"(x - mean)": "x", "x.var(dim=-1, correction=0, keepdim=True)": "x.square().mean(dim=-1, keepdim=True)"},
        ),
        "gain and bias forgotten": Mistake(
            "These are the normalised tokens as they are: gain and bias are still to come. See section 9.3.",
            {"gain * ": "", " + bias": ""},
        ),
        "gain forgotten": Mistake(
            "The columns are not multiplied by the gain. See section 9.3.",
            {"gain * ": ""},
        ),
        "bias forgotten": Mistake(
            "The bias is not added. See section 9.3.",
            {" + bias": ""},
        ),
        "bias before the gain": Mistake(
            "The gain multiplies the bias as well: first the gain, then the bias. See section 9.3.",
            {"gain * (x - mean)": "gain * ((x - mean)", "+ bias": "+ bias)"},
        ),
        "gain and bias swapped": Mistake(
            "The bias multiplies and the gain is added. See section 9.3.",
            {"gain * ": "bias * ", "+ bias": "+ gain"},
        ),
        "axis not kept": Mistake(
            "One number for each token does not fit against x (…, E): mean and variance have to be (…, 1), as "
            "`keepdim=True` leaves them. See section 9.3.",
            {
                "dim=-1, keepdim=True)\n    variance": "dim=-1)\n    variance",
                "correction=0, keepdim=True": "correction=0",
            },
        ),
        "all axes but the first": Mistake(
            "A sentence is right and a batch is not: these are the numbers of mean and variance over all axes but "
            "the first. Each token needs its own. See section 9.3.",
            {
                "mean(dim=-1": "mean(dim=tuple(range(1, x.dim())) or 0",
                "var(dim=-1": "var(dim=tuple(range(1, x.dim())) or 0",
            },
        ),
        "norm over the first axis": Mistake(
            "These are the numbers of mean and variance over the first axis, which holds the positions or the "
            "sentences; take them over the last, the width. See section 9.3.",
            {"mean(dim=-1": "mean(dim=0", "var(dim=-1": "var(dim=0"},
        ),
        "norm over the first axis, n − 1": Mistake(
            "These are the numbers of mean and variance over the first axis, and the variance divides by one "
            "number less: take them over the last axis, and divide by its width E. See section 9.3.",
            {"mean(dim=-1": "mean(dim=0", "dim=-1, correction=0": "dim=0, correction=1"},
        ),
        "norm over the positions, n − 1": Mistake(
            "These are the numbers of mean and variance over the positions, and the variance divides by one number "
            "less; each token needs its own, divided by E. See section 9.3.",
            {"mean(dim=-1": "mean(dim=-2", "dim=-1, correction=0": "dim=-2, correction=1"},
        ),
        "norm over everything, n − 1": Mistake(
            "One mean and one variance serve all tokens together, and the variance divides by one number less; "
            "each token needs its own, over its E numbers. See section 9.3.",
            {"x.mean(dim=-1, keepdim=True)": "x.mean()", "dim=-1, correction=0, keepdim=True": "correction=1"},
        ),
        "norm over everything, n − 1 and ε outside the root": Mistake(
            "One mean and one standard deviation serve all tokens together, and ε is added to the one of "
            "torch.std, which divides by one number less: each token needs its own, over its E numbers. See "
            "section 9.3.",
            {
                "x.mean(dim=-1, keepdim=True)": "x.mean()",
                "dim=-1, correction=0, keepdim=True": "correction=1",
                "torch.sqrt(variance + eps)": "(variance.sqrt() + eps)",
            },
        ),
        "E − 1 and axis counted from the front": Mistake(
            "These are the numbers of mean and variance over axis 1, and the variance divides by one number less: "
            "axis 1 holds the width in a sentence and the positions in a batch, so count from the end. See section "
            "9.3.",
            {"mean(dim=-1": "mean(dim=1", "dim=-1, correction=0": "dim=1, correction=1"},
        ),
        "multiplied instead of divided": Mistake(
            "These are the numbers of tokens multiplied by their standard deviation: divide by it. See section 9.3.",
            {"/ torch.sqrt": "* torch.sqrt"},
        ),
        "gain and bias first": Mistake(
            "These are the numbers of a norm behind gain and bias, which takes part of them away again: they come "
            "last. See section 9.3.",
            {"    mean =": "    x = gain * x + bias\n    mean =", "gain * (x": "(x", " + bias": ""},
        ),
        "mean distance": Mistake(
            "These are the numbers of tokens divided by their mean distance from the mean; it should be the root "
            "of the mean of the squared distances. See section 9.3.",
            {"torch.sqrt(variance + eps)": "((x - mean).abs().mean(dim=-1, keepdim=True) + eps)"},
        ),
        "divided by its length": Mistake(
            "Less its mean, a token is divided by its length here, the root of the sum of the squared distances; "
            "it should be the root of their mean. See section 9.3.",
            {"torch.sqrt(variance + eps)": "((x - mean).norm(dim=-1, keepdim=True) + eps)"},
        ),
        "brought between 0 and 1": Mistake(
            "These are tokens brought between 0 and 1, with gain and bias behind it; before these, mean 0 and mean "
            "square 1 are asked for. See section 9.3.",
            _between_0_and_1,
        ),
        "gain and bias forgotten, E − 1": Mistake(
            "These are tokens without gain and bias, and the variance divides by E − 1, as torch.var and torch.std "
            "have it unless told otherwise. See section 9.3.",
            {"correction=0": "correction=1", "gain * ": "", " + bias": ""},
        ),
        "one added to the gain": Mistake(
            "The columns come out multiplied by 1 + gain; it should be the gain itself. See section 9.3.",
            {"gain * ": "(1 + gain) * "},
        ),
        CHANGES_ITS_INPUT: Mistake("Work on new tensors. See section 9.3."),
    },
)


# ---------------------------------------------------------------- a stack


def _stacks(draw):
    def stack(num_sublayers, *shape, norm_first, mixes=False, eps=1e-5, **kind):
        width = shape[-1]
        x = draw(*shape, **kind)

        def make_sublayer():
            matrix = draw(width, width, **kind)
            if mixes:
                return lambda x: torch.tanh(x @ matrix) + x.mean(1, keepdim=True)
            return lambda x: torch.tanh(x @ matrix)

        def make_norm():
            norm = nn.LayerNorm(width, eps=eps).to(x)
            with torch.no_grad():
                norm.weight.copy_(draw(width, **kind))
                norm.bias.copy_(draw(width, **kind))
            return norm

        sublayers = [make_sublayer() for _ in range(num_sublayers)]
        norms = [make_norm() for _ in range(num_sublayers)]
        set_parameters(_named(norms))
        return x, sublayers, norms, make_norm(), norm_first

    yield "one pre-norm sublayer", *stack(1, 2, 5, 7, norm_first=True)
    yield "one post-norm sublayer", *stack(1, 2, 5, 7, norm_first=False)
    yield "three pre-norm sublayers", *stack(3, 2, 5, 7, norm_first=True)
    yield "three post-norm sublayers", *stack(3, 5, 2, 3, norm_first=False)
    yield "a batch of one", *stack(2, 1, 7, 5, norm_first=True)
    yield "no post-norm sublayer", *stack(0, 2, 3, 5, norm_first=False)
    yield "no pre-norm sublayer", *stack(0, 2, 3, 5, norm_first=True)
    yield "sublayers that mix the tokens, pre-norm", *stack(2, 3, 5, 7, norm_first=True, mixes=True)
    yield "sublayers that mix the tokens, post-norm", *stack(2, 3, 5, 7, norm_first=False, mixes=True)
    yield "norms with another ε", *stack(2, 2, 3, 5, norm_first=True, eps=0.5)
    x, (f, _), norms, final_norm, norm_first = stack(2, 2, 3, 5, norm_first=True)
    yield "one sublayer twice", x, [f, f], norms, final_norm, norm_first
    x, sublayers, norms, _, norm_first = stack(2, 2, 3, 5, norm_first=False)
    yield "post-norm without a final norm", x, sublayers, norms, None, norm_first
    yield "float64", *stack(5, 3, 2, 11, norm_first=True, dtype=torch.float64)


def _named(norms):
    return nn.ModuleDict({"norms": nn.ModuleList(norms)})


def _with_norms_that_learn(answer, x, sublayers, norms, final_norm, norm_first):
    set_parameters(_named(norms))  # so that the check sees their gradients
    return answer(x, sublayers, norms, final_norm, norm_first)


def _stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


run_stack = Exercise(
    name="run_stack",
    trials=_stacks,
    right=_stack,
    use=_with_norms_that_learn,
    gradients=True,
    in_parts=True,
    mistakes={
        "orders swapped": Mistake(
            "Pre-norm and post-norm have changed places: norm_first means that the sublayer reads a normalised copy. "
            "See section 9.4.",
            {"    for": "    norm_first = not norm_first\n    for"},
        ),
        "orders swapped but for the final norm": Mistake(
            "Within the steps, the two orders have changed places: norm_first means that the sublayer reads a "
            "normalised copy. See section 9.4.",
            {"f(norm(x)) if norm_first": "f(norm(x)) if not norm_first"},
        ),
        "always pre-norm": Mistake(
            "Post-norm comes out as pre-norm: where norm_first is False, the norm belongs around the sum, and the "
            "stack ends with it. See section 9.4.",
            {" if norm_first else norm(x + f(x))": "", "final_norm(x) if norm_first else x": "final_norm(x)"},
        ),
        "always pre-norm but for the final norm": Mistake(
            "The steps of post-norm are those of pre-norm here: under post-norm the norm belongs around the sum. "
            "See section 9.4.",
            {" if norm_first else norm(x + f(x))": ""},
        ),
        "always post-norm": Mistake(
            "Pre-norm comes out as post-norm: where norm_first is True, the sublayer reads a normalised copy, and "
            "the final norm stands at the end. See section 9.4.",
            {"x + f(norm(x)) if norm_first else ": "", "final_norm(x) if norm_first else x": "x"},
        ),
        "always post-norm but for the final norm": Mistake(
            "The steps of pre-norm are those of post-norm here: under pre-norm the norm is for what the sublayer "
            "reads. See section 9.4.",
            {"x + f(norm(x)) if norm_first else ": ""},
        ),
        "final norm forgotten": Mistake(
            "Pre-norm comes out without the final norm: its last sum is still to be normalised. See section 9.4.",
            {"final_norm(x) if norm_first else x": "x"},
        ),
        "final norm in both": Mistake(
            "The final norm stands behind the post-norm stack, too, whose last step is a norm already. See section "
            "9.4.",
            {"final_norm(x) if norm_first else x": "final_norm(x)"},
        ),
        "final norm in the wrong one": Mistake(
            "The final norm stands behind the post-norm stack, which ends with a norm anyway, and not behind the "
            "pre-norm stack, which needs it. See section 9.4.",
            {"final_norm(x) if norm_first else x": "final_norm(x) if not norm_first else x"},
        ),
        "final norm after each": Mistake(
            "Under pre-norm the final norm comes after every sublayer; it belongs behind the last one. See section "
            "9.4.",
            {"x + f(norm(x))": "final_norm(x + f(norm(x)))", "final_norm(x) if norm_first else x": "x"},
        ),
        "residual missing": Mistake(
            "What a sublayer finds replaces the stream instead of being added to it, and what it did not find is lost. "
            "See section 9.1.",
            {"x + f(norm(x))": "f(norm(x))", "norm(x + f(x))": "norm(f(x))"},
        ),
        "residual missing in pre-norm": Mistake(
            "Under pre-norm, what a sublayer finds replaces the stream instead of being added to it. See section 9.4.",
            {"x + f(norm(x))": "f(norm(x))"},
        ),
        "residual missing in post-norm": Mistake(
            "Under post-norm, what a sublayer finds replaces the stream instead of being added to it before the "
            "norm. See section 9.4.",
            {"norm(x + f(x))": "norm(f(x))"},
        ),
        "normalised stream added": Mistake(
            "Under pre-norm the sum starts from the normalised copy: it should start from the stream itself, and "
            "the copy is for the sublayer to read. See section 9.4.",
            {"x + f(norm(x))": "norm(x) + f(norm(x))"},
        ),
        "norm on what is added": Mistake(
            "The norm is applied to what the sublayer found; it belongs either on what the sublayer reads "
            "or around the whole sum. See section 9.4.",
            {"x + f(norm(x))": "x + norm(f(x))", "norm(x + f(x))": "x + norm(f(x))"},
        ),
        "norm on what is added in pre-norm": Mistake(
            "Under pre-norm the norm is applied to what the sublayer found; it belongs on what the sublayer reads. "
            "See section 9.4.",
            {"x + f(norm(x))": "x + norm(f(x))"},
        ),
        "norm on what is added in post-norm": Mistake(
            "Under post-norm the norm is applied to what the sublayer found, and it belongs around the whole sum. "
            "See section 9.4.",
            {"norm(x + f(x))": "x + norm(f(x))"},
        ),
        "norm on one half of the sum": Mistake(
            "Under post-norm the norm is applied to x before the addition, and it belongs around the whole sum. "
            "See section 9.4.",
            {"norm(x + f(x))": "norm(x) + f(x)"},
        ),
        "both orders at once": Mistake(
            "Under post-norm the sublayer reads a normalised copy, and it should read the stream itself, whose "
            "norm comes after the sum. See section 9.4.",
            {"norm(x + f(x))": "norm(x + f(norm(x)))"},
        ),
        "norms not used": Mistake(
            "The sublayers are added up without a norm in between. See section 9.3.",
            {"x + f(norm(x))": "x + f(x)", "norm(x + f(x))": "x + f(x)"},
        ),
        "no norm in post-norm": Mistake(
            "Under post-norm the sums come out without their norms, which belong around them. See section 9.4.",
            {"norm(x + f(x))": "x + f(x)"},
        ),
        "one norm behind the post-norm stack": Mistake(
            "Under post-norm the final norm stands behind sums without a norm: each sum needs the norm of its own "
            "sublayer around it. See section 9.4.",
            {"norm(x + f(x))": "x + f(x)", "final_norm(x) if norm_first else x": "final_norm(x)"},
        ),
        "one norm for all": Mistake(
            "The first norm serves all sublayers: `norms` holds one for each. See section 9.5.",
            {"zip(sublayers, norms, strict=True)": "((f, norms[0]) for f in sublayers)"},
        ),
        "sublayers side by side": Mistake(
            "All sublayers read the x that came in, and each has to read what the one before left. See section 9.1.",
            {
                "    for": "    first = x\n    for",
                "x + f(norm(x))": "x + f(norm(first))",
                "norm(x + f(x))": "norm(x + f(first))",
            },
        ),
        "sublayers side by side in pre-norm": Mistake(
            "Under pre-norm all sublayers read the x that came in, and each has to read what the one before left. "
            "See section 9.1.",
            {"    for": "    first = x\n    for", "x + f(norm(x))": "x + f(norm(first))"},
        ),
        "first x added every time": Mistake(
            "What a sublayer finds is added to the x that came in at the bottom; it has to be added to what the "
            "sublayers before have left. See section 9.1.",
            {
                "    for": "    first = x\n    for",
                "x + f(norm(x))": "first + f(norm(x))",
                "norm(x + f(x))": "norm(first + f(x))",
            },
        ),
        "last sublayer left out": Mistake(
            "What the last sublayer finds is missing: run the whole list. See section 9.4.",
            {"zip(sublayers, norms": "zip(sublayers[:-1], norms[:-1]"},
        ),
        "first sublayer left out": Mistake(
            "What the first sublayer does is missing: a list counts from 0. See section 9.4.",
            {"zip(sublayers, norms": "zip(sublayers[1:], norms[1:]"},
        ),
        "stops after the first": Mistake(
            "These are the numbers of a stack of the first sublayer alone: each should be given what the one before "
            "it left. See section 9.4.",
            {"zip(sublayers, norms": "zip(sublayers[:1], norms[:1]"},
        ),
        "final norm first": Mistake(
            "The final norm stands in front of the pre-norm stack, where each sublayer has a norm already; it belongs "
            "behind the last sum. See section 9.4.",
            {
                "    for": "    x = final_norm(x) if norm_first else x\n    for",
                "return final_norm(x) if norm_first else x": "return x",
            },
        ),
        "final norm for all": Mistake(
            "The final norm is used in the place of every norm: each sublayer has one of its own, in `norms`. "
            "See section 9.5.",
            {"    for": "    norms = [final_norm] * len(norms)\n    for"},
        ),
        "last norm again": Mistake(
            "Behind the pre-norm stack the norm of the last sublayer is used once more; the final norm is one of its "
            "own. See section 9.4.",
            {"return final_norm(x)": "return norms[-1](x)"},
        ),
        "backwards": Mistake(
            "The sublayers come in the reverse order, each with its norm: the first of the list should be the first "
            "that reads x. See section 9.4.",
            {"zip(sublayers, norms": "zip(sublayers[::-1], norms[::-1]"},
        ),
        "norms backwards": Mistake(
            "The norms come in the reverse order: norm i belongs to sublayer i. See section 9.5.",
            {"zip(sublayers, norms": "zip(sublayers, norms[::-1]"},
        ),
        "stream twice": Mistake(
            "The stream is added twice in every step: it should be once. See section 9.1.",
            {"x + f(norm(x))": "x + x + f(norm(x))", "norm(x + f(x))": "norm(x + x + f(x))"},
        ),
        "what is found subtracted": Mistake(
            "What a sublayer finds is taken away from the stream; it should be added. See section 9.1.",
            {"x + f(norm(x))": "x - f(norm(x))", "norm(x + f(x))": "norm(x - f(x))"},
        ),
        "sublayer called twice": Mistake(
            "What a sublayer finds goes through it once more: one call in each step is enough. See section 9.4.",
            {"x + f(norm(x))": "x + f(f(norm(x)))", "norm(x + f(x))": "norm(x + f(f(x)))"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Leave what was handed in as it was: `x += …` writes into the tensor itself, `x = x + …` makes a new one. "
            "See section 9.1."
        ),
    },
)


# ---------------------------------------------------------------- a decoder layer


def _layers_and_inputs(draw):
    def inputs(B, T, lengths, S, E, H, d_ff, dtype=torch.float32, **settings):
        layer = set_parameters(DecoderLayer(E, H, d_ff, **settings)).to(draw.device, dtype).eval()
        mask = make_padding_mask(lengths, S, device=draw.device)
        return layer, draw(B, T, E, dtype=dtype), draw(B, S, E, dtype=dtype), mask

    yield "source and target of one length", *inputs(2, 5, [3, 5], 5, 10, 5, 3)
    yield "no padding", *inputs(2, 5, [7, 7], 7, 6, 3, 11)
    yield "padded sources", *inputs(3, 5, [7, 2, 4], 7, 6, 2, 5)
    yield "a batch of one", *inputs(1, 7, [2], 3, 4, 2, 7)
    yield "a target of one token", *inputs(2, 1, [3, 5], 5, 6, 3, 7)
    yield "a source that is all padding", *inputs(2, 3, [0, 5], 5, 6, 3, 7)
    layer, x, memory, mask = inputs(2, 5, [5, 7], 7, 6, 3, 11)
    first = make_padding_mask([2, 1], 7, device=draw.device)
    yield "padding on the left, too", layer, x, memory, mask & ~first
    layer, x, memory, mask = inputs(2, 3, [3, 5], 5, 6, 3, 7, norm_eps=0.5)
    yield "a layer in training, norms with another ε", layer.train(), x, memory, mask
    yield "float64", *inputs(2, 5, [7, 3], 7, 6, 3, 11, torch.float64)


def _from_its_parts(answer, layer, x, memory, memory_mask):
    called, forward = [], DecoderLayer.forward

    def watched(*inputs, **told):
        called.append(True)
        return forward(*inputs, **told)

    with mock.patch.object(DecoderLayer, "forward", watched):  # `layer.forward` as well as `layer` itself
        found = answer(layer, x, memory, memory_mask)
    if called:
        raise Remark(
            "layer itself is called here. Use its parts: three sublayers, each with its norm and its addition. "
            "See section 9.6."
        )
    return found


def _decode(layer, x, memory, memory_mask):
    def back(y):
        out, weights["back"] = layer.self_attention(y, is_causal=True, need_weights=True)
        return out

    def across(y):
        out, weights["across"] = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
        return out

    def add(x, f, norm):
        return x + f(norm(x))

    weights = {}
    x = add(x, back, layer.self_attention_norm)
    x = add(x, across, layer.cross_attention_norm)
    x = add(x, layer.feed_forward, layer.feed_forward_norm)
    return x, weights["across"]


decode_layer = Exercise(
    name="decode_layer",
    trials=_layers_and_inputs,
    right=_decode,
    gradients=True,
    use=_from_its_parts,
    returns=("x", "weights"),
    in_parts=True,
    mistakes={
        "post-norm": Mistake(
            "This is a post-norm layer: the norms stand around the sums. Under pre-norm they stand inside the calls. "
            "See section 9.4.",
            {"x + f(norm(x))": "norm(x + f(x))"},
        ),
        "norms not used": Mistake(
            "None of the three norms is used; each sublayer has to read a normalised copy of the stream. See section "
            "9.4.",
            {"x + f(norm(x))": "x + f(x)"},
        ),
        "normalised stream added": Mistake(
            "Each sum starts from the normalised copy: it should start from the stream itself, and the copy is for "
            "the sublayer to read. See section 9.4.",
            {"x + f(norm(x))": "norm(x) + f(norm(x))"},
        ),
        "norm on what is added": Mistake(
            "The norms are applied to what the sublayers found; under pre-norm they belong on what is read. See "
            "section 9.4.",
            {"x + f(norm(x))": "x + norm(f(x))"},
        ),
        "no norm before the self-attention": Mistake(
            "The self-attention reads the stream itself; it has to read a normalised copy. See section 9.4.",
            {"layer.self_attention_norm": "nn.Identity()"},
        ),
        "no norm before the cross-attention": Mistake(
            "The queries of the cross-attention are made from the stream itself; they have to be made from a "
            "normalised copy. See section 9.6.",
            {"layer.cross_attention_norm": "nn.Identity()"},
        ),
        "no norm before the feed-forward": Mistake(
            "The feed-forward reads the stream itself; it has to read a normalised copy. See section 9.4.",
            {"layer.feed_forward_norm": "nn.Identity()"},
        ),
        "one norm for all": Mistake(
            "The norm of the self-attention is used for all three sublayers, and each has its own. See section 9.5.",
            {
                "layer.cross_attention_norm": "layer.self_attention_norm",
                "layer.feed_forward_norm": "layer.self_attention_norm",
            },
        ),
        "norms swapped": Mistake(
            "The norms of cross-attention and feed-forward have changed places. See section 9.5.",
            {
                "layer.cross_attention_norm": "layer.feed_forward_norm",
                "layer.feed_forward_norm": "layer.cross_attention_norm",
            },
        ),
        "norms of the attentions swapped": Mistake(
            "The norms of self-attention and cross-attention have changed places. See section 9.5.",
            {
                "layer.self_attention_norm": "layer.cross_attention_norm",
                "layer.cross_attention_norm": "layer.self_attention_norm",
            },
        ),
        "residual missing": Mistake(
            "What each sublayer finds replaces the stream instead of being added to it. See section 9.1.",
            {"x + f(norm(x))": "f(norm(x))"},
        ),
        "residual missing at the self-attention": Mistake(
            "The stream is lost at the self-attention: what was found takes the place of x instead of being added. "
            "See section 9.1.",
            {"add(x, back, layer.self_attention_norm)": "back(layer.self_attention_norm(x))"},
        ),
        "residual missing at the cross-attention": Mistake(
            "The stream is lost at the cross-attention: what was found takes the place of x instead of being added. "
            "See section 9.1.",
            {"add(x, across, layer.cross_attention_norm)": "across(layer.cross_attention_norm(x))"},
        ),
        "residual missing at the feed-forward": Mistake(
            "The stream is lost at the end: what the feed-forward returns takes the place of x instead of being added. "
            "See section 9.1.",
            {"add(x, layer.feed_forward, layer.feed_forward_norm)": "layer.feed_forward(layer.feed_forward_norm(x))"},
        ),
        "not causal": Mistake(
            "The self-attention sees the future: it has to be causal. See section 9.6.",
            {", is_causal=True": ""},
        ),
        "neither causal nor masked": Mistake(
            "The self-attention sees the future and the cross-attention reads padding: the one has to be causal, "
            "and memory_mask is for the other. See section 9.6.",
            {", is_causal=True": "", ", mask=memory_mask": ""},
        ),
        "causal mask in cross-attention": Mistake(
            "The first queries do not see the end of the memory: the cross-attention is causal, "
            "and the source may be read as a whole. See section 9.6.",
            {"mask=memory_mask": "mask=memory_mask, is_causal=True"},
        ),
        "mask ignored": Mistake(
            "The cross-attention reads padding of the source: memory_mask says what it may read. See section 9.6.",
            {", mask=memory_mask": ""},
        ),
        "mask inverted": Mistake(
            "The cross-attention reads padding and no words: True in memory_mask means may attend. See section 5.4.",
            {"mask=memory_mask": "mask=~memory_mask"},
        ),
        "source's mask on the target": Mistake(
            "The source's mask is given to the self-attention, too, where the positions are the target's. See section "
            "9.7.",
            {"is_causal=True": "is_causal=True, mask=memory_mask"},
        ),
        "source's mask in self-attention only": Mistake(
            "The source's mask is given to the self-attention instead of the cross-attention. See section 9.7.",
            {"is_causal=True": "is_causal=True, mask=memory_mask", ", mask=memory_mask": ""},
        ),
        "memory normalised": Mistake(
            "The memory goes through the norm of the cross-attention here: the encoder has normalised it, and this "
            "norm is for the side that asks. See section 9.6.",
            {"(y, memory": "(y, layer.cross_attention_norm(memory)"},
        ),
        "memory ignored": Mistake(
            "The cross-attention reads x instead of the memory. See section 9.6.", {"(y, memory": "(y, y"}
        ),
        "memory asks": Mistake(
            "The two sides have changed places: the memory asks and x answers. See section 7.18.",
            {"(y, memory, mask=memory_mask": "(memory, y"},
        ),
        "memory asks under the mask": Mistake(
            "The two sides have changed places: the memory asks and x answers, and a mask over the source's columns "
            "lies on the target's. See section 7.18.",
            {"(y, memory": "(memory, y"},
        ),
        "across before back": Mistake(
            "The cross-attention comes before the self-attention: first look back, then across. See section 9.6.",
            {"back, layer.self_": "across, layer.cross_", "across, layer.cross_": "back, layer.self_"},
        ),
        "feed-forward before the cross-attention": Mistake(
            "The feed-forward comes before the cross-attention, and belongs behind it. See section 9.6.",
            {
                "add(x, across, layer.cross_attention_norm)": "add(x, layer.feed_forward, layer.feed_forward_norm)",
                "add(x, layer.feed_forward, layer.feed_forward_norm)": "add(x, across, layer.cross_attention_norm)",
            },
        ),
        "feed-forward beside the cross-attention": Mistake(
            "The feed-forward reads what the self-attention left, and knows nothing of what the cross-attention "
            "found: it has to read the stream behind both. See section 9.6.",
            {
                "    x = add(x, across": "    looked = x\n    x = add(x, across",
                "add(x, layer.feed_forward, layer.feed_forward_norm)": (
                    "x + layer.feed_forward(layer.feed_forward_norm(looked))"
                ),
            },
        ),
        "norm of the cross-attention for the feed-forward": Mistake(
            "The feed-forward reads through the norm of the cross-attention, and has one of its own. See section 9.5.",
            {"layer.feed_forward_norm": "layer.cross_attention_norm"},
        ),
        "norm of the self-attention for the cross-attention": Mistake(
            "The queries of the cross-attention go through the norm of the self-attention; the cross-attention has "
            "one of its own. See section 9.5.",
            {"layer.cross_attention_norm": "layer.self_attention_norm"},
        ),
        "weights from a second call": Mistake(
            "The stream is right; the weights come from the cross-attention asked once more, by the finished stream. "
            "Keep those of the call whose result is added. See section 9.6.",
            {'x, weights["across"]': 'x, (across(layer.cross_attention_norm(x)), weights["across"])[1]'},
        ),
        "feed-forward forgotten": Mistake(
            "The last of the three sublayers, the feed-forward, is missing. See section 9.6.",
            {"    x = add(x, layer.feed_forward, layer.feed_forward_norm)\n": ""},
        ),
        "sublayers side by side": Mistake(
            "All three sublayers read the x that came in; each has to read what the one before left. See section 9.6.",
            {"weights = {}": "weights, first = {}, x", "x + f(norm(x))": "x + f(norm(first))"},
        ),
        "queries from the old x": Mistake(
            "The queries of the cross-attention are made from the x that came in, and know nothing of what "
            "the self-attention found. See section 9.6.",
            {
                "weights = {}": "weights, first = {}, x",
                "add(x, across, layer.cross_attention_norm)": "x + across(layer.cross_attention_norm(first))",
            },
        ),
        "weights of the self-attention": Mistake(
            "The weights are those of the self-attention; asked for are those of the cross-attention. See section 9.6.",
            {'x, weights["across"]': 'x, weights["back"]'},
        ),
        "weights not asked for": Mistake(
            "The weights are None: the cross-attention returns its weights when asked. See section 9.8.",
            {'x, weights["across"]': "x, None"},
        ),
        "weights not returned": Mistake(
            "Only the stream is returned; the exercise asks for the weights beside it. See section 9.6.",
            {'x, weights["across"]': "x"},
        ),
        "results swapped": Mistake(
            "Both results are there, in the wrong order: first the stream, then the weights. See section 9.6.",
            {'x, weights["across"]': 'weights["across"], x'},
        ),
        "mean of the heads": Mistake(
            "The weights are averaged over the heads: each head has its own, (B, H, T, S). See section 9.8.",
            {'x, weights["across"]': 'x, weights["across"].mean(dim=1)'},
        ),
        "stream twice": Mistake(
            "The stream is added twice in every step: it should be once. See section 9.1.",
            {"x + f(norm(x))": "x + x + f(norm(x))"},
        ),
        "post-norm at the end": Mistake(
            "The two attentions are pre-norm, and the norm of the feed-forward stands around its sum: under pre-norm "
            "the feed-forward reads a normalised copy. See section 9.4.",
            {"add(x, layer.feed_forward, ": "", "feed_forward_norm)": "feed_forward_norm(x + layer.feed_forward(x))"},
        ),
        "sees the future, and the cross-attention is causal": Mistake(
            "It is the cross-attention that is causal, and the self-attention sees the future: it should be the "
            "other way round. See section 9.6.",
            {", is_causal=True": "", "mask=memory_mask": "mask=memory_mask, is_causal=True"},
        ),
        "normalised again at the end": Mistake(
            "The stream is normalised once more behind the feed-forward; under pre-norm a layer leaves its last sum "
            "as it is, and the stack has one final norm. See section 9.4.",
            {"return x,": "return layer.feed_forward_norm(x),"},
        ),
        "self-attention forgotten": Mistake(
            "The first of the three sublayers, the self-attention, is missing: the target's tokens know nothing of "
            "each other. See section 9.6.",
            {"    x = add(x, back, layer.self_attention_norm)\n": ""},
        ),
        "cross-attention's output forgotten": Mistake(
            "What the cross-attention found is missing from the stream: it has to be added. See section 9.6.",
            {"x = add(x, across": "add(x, across"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Leave what was handed in as it was: `x += …` writes into the tensor itself, `x = x + …` makes a new one. "
            "See section 9.1."
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
    yield "a large table of another width", *sizes(2000, 40, 2, 3)
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


def _reaches(out, tensors):
    """The gradient that comes from one of the jobs to tensors of one shape, added up; None where nothing comes."""
    tensors = [tensor for tensor in tensors if tensor.requires_grad]
    if not isinstance(out, Tensor) or not out.requires_grad or not tensors:
        return None
    shares = 1 + torch.arange(out.numel(), device=out.device).reshape(out.shape) % 5
    gradients = torch.autograd.grad((out * shares).sum(), tensors, allow_unused=True, retain_graph=True)
    come = [gradient for gradient in gradients if gradient is not None]
    return sum(come) if come else None


def _do_both_jobs(answer, vocab_size, d_model, ids, x, numbers):
    table = answer(vocab_size, d_model)
    if not isinstance(table, nn.Module):
        raise Remark("TiedTable has to be an nn.Module, so that its table is trained. See section 9.18.")
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
            f"and there is {has}. See section 9.18."
        )
    count = sum(p.numel() for p in table.parameters())
    answer(3, 4 * d_model)  # another table, of which the first must know nothing
    x = x.clone().requires_grad_()
    embedded, logits = table.embed(ids), table.score(x)
    to_table, to_x = _reaches(logits, tables), _reaches(logits, [x])
    # What is cut off altogether is told by the table. A sum over V is brought to the size of one logit.
    to_x = None if to_table is None or to_x is None else to_x / vocab_size
    gradients = _reaches(embedded, tables), to_table, to_x
    with torch.no_grad():
        for parameter in tables:
            parameter.copy_(2 * numbers)
        later = table.eval().embed(ids)
    return count, embedded, logits, *gradients, later, spread


class _Tied(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))

    def embed(self, ids):
        return self.weight[ids] * math.sqrt(self.weight.size(-1))

    def score(self, x):
        return x @ self.weight.T


class _ScaledInPlace(_Tied):
    def embed(self, ids):
        with torch.no_grad():
            self.weight.mul_(math.sqrt(self.weight.size(-1)))
        return self.weight[ids]


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
        "the gradient that score sends to x",
        "embed(ids) of the doubled table, in evaluation",
        "the spread of the first table",
    ),
    in_parts=True,
    mistakes={
        "two tables": Mistake(
            "There are twice as many numbers to learn as one (V, E) table has: one table does both jobs. See "
            "section 9.18.",
            {"\n\n    def embed": "\n        self.other = nn.Parameter(self.weight.data.clone())\n\n    def embed"},
        ),
        "nothing below the table is trained": Mistake(
            "No gradient comes from score to x, so nothing that made x is trained by the logits. See section 9.18.",
            {"x @ self.weight.T": "x.detach() @ self.weight.T"},
        ),
        "two tables and no scale": Mistake(
            "There are twice as many numbers to learn as one (V, E) table has, which does both jobs; and what goes "
            "in is not scaled. See section 9.18.",
            {
                "\n\n    def embed": "\n        self.other = nn.Parameter(self.weight.data.clone())\n\n    def embed",
                " * math.sqrt(self.weight.size(-1))": "",
            },
        ),
        "a bias too many": Mistake(
            "There are V numbers to learn beside those of the table: the logits need no bias. See section 9.7.",
            {"\n\n    def embed": "\n        self.bias = nn.Parameter(torch.zeros(vocab_size))\n\n    def embed"},
        ),
        "no scale": Mistake(
            "What goes in is not multiplied by √E, and would be drowned by the positions. See section 9.18.",
            {" * math.sqrt(self.weight.size(-1))": ""},
        ),
        "divided instead of multiplied": Mistake(
            "What goes in is divided by √E, and has to be multiplied by it. See section 9.18.",
            {"* math.sqrt(self": "/ math.sqrt(self"},
        ),
        "multiplied by the width itself": Mistake(
            "What goes in is multiplied by E; it should be the root of it. See section 9.18.",
            {"math.sqrt(self.weight.size(-1))": "self.weight.size(-1)"},
        ),
        "scale on the way out": Mistake(
            "The factor √E is at the wrong end: it belongs to what goes in, and the logits are multiplied instead. "
            "See section 9.18.",
            {" * math.sqrt(self.weight.size(-1))": "", "weight.T": "weight.T * math.sqrt(x.size(-1))"},
        ),
        "scaled at both ends": Mistake(
            "The logits are multiplied by √E; they have a spread of 1 without it. See section 9.18.",
            {"weight.T": "weight.T * math.sqrt(x.size(-1))"},
        ),
        "logits divided": Mistake(
            "The logits are divided by √E; the small rows see to that already. See section 9.18.",
            {"weight.T": "weight.T / math.sqrt(x.size(-1))"},
        ),
        "spread of 1": Mistake(
            "The rows start with a spread of 1: it should be 1/√E, so that the first logits have a spread of 1. "
            "See section 9.18.",
            {" / math.sqrt(d_model)": ""},
        ),
        "spread of 1/E": Mistake(
            "The rows start with a spread of 1/E, without the root: it should be 1/√E. See section 9.18.",
            {"math.sqrt(d_model)": "d_model"},
        ),
        "spread of 1/√V": Mistake(
            "The rows start with a spread of 1/√V; a logit sums over the E columns of a row, so E counts. See "
            "section 9.18.",
            {"math.sqrt(d_model)": "math.sqrt(vocab_size)"},
        ),
        "cut off from the gradient": Mistake(
            "Neither of the two jobs sends a gradient to the table, so nothing trains it. detach, no_grad and "
            ".data cut gradients off. See section 9.18.",
            {"weight[ids]": "weight.detach()[ids]", "weight.T": "weight.detach().T"},
        ),
        "way out cut off from the gradient": Mistake(
            "No gradient comes from score to the table, so the logits do not train it. detach, no_grad and .data "
            "cut gradients off. See section 9.18.",
            {"weight.T": "weight.detach().T"},
        ),
        "way in cut off from the gradient": Mistake(
            "No gradient comes from embed to the table, so the way in does not train it. detach, no_grad and .data "
            "cut gradients off. See section 9.18.",
            {"weight[ids]": "weight.detach()[ids]"},
        ),
        "no spread chosen": Mistake(
            "The rows start with a spread of 1, as those of nn.Embedding do, and what goes in is not multiplied by √E: "
            "the first logits have a spread of √E. See section 9.18.",
            {" / math.sqrt(d_model)": "", " * math.sqrt(self.weight.size(-1))": ""},
        ),
        "spread of Xavier": Mistake(
            "The rows start with Xavier's spread, √(2 / (V + E)), made for a Linear from V to E; here it should be "
            "1/√E. See section 9.18.",
            {"/ math.sqrt(d_model)": "* math.sqrt(2 / (vocab_size + d_model))"},
        ),
        "spread of Kaiming": Mistake(
            "The rows start with Kaiming's spread, √(2 / E), made for layers behind a ReLU; here it should be "
            "1/√E. See section 9.18.",
            {"/ math.sqrt(d_model)": "* math.sqrt(2 / d_model)"},
        ),
        "bounds instead of spread": Mistake(
            "The rows start with a spread of 1/√(3E), that of numbers drawn evenly within ±1/√E, as those of a "
            "Linear are; here the spread itself should be 1/√E. See section 9.18.",
            {"math.sqrt(d_model)": "math.sqrt(3 * d_model)"},
        ),
        "spread of 0.02": Mistake(
            "The rows start with a spread of 0.02; it should depend on the width, as 1/√E does. See section 9.18.",
            {"/ math.sqrt(d_model)": "* 0.02"},
        ),
        "zeros to start with": Mistake(
            "The rows start at zero, all of them alike, so all words look the same; they should start with a "
            "spread of 1/√E. See section 9.18.",
            {"/ math.sqrt(d_model)": "* 0.0"},
        ),
        "not around 0": Mistake(
            "The rows start around half of 1/√E and not around 0: torch.rand draws from 0 to 1, torch.randn around "
            "0. See section 9.18.",
            {"randn": "rand"},
        ),
        "row of zeros": Mistake(
            "A row starts at zero, as with padding_idx: all V rows should start with a spread of 1/√E, and be trained. "
            "See section 9.18.",
            {
                "\n\n    def embed": "\n        self.weight.data[0] = 0\n\n    def embed",
                "self.weight[ids]": "nn.functional.embedding(ids, self.weight, padding_idx=0)",
            },
        ),
        "multiplied by 8": Mistake(
            "What goes in is multiplied by 8, which is √64, for other widths too; it should be √E. See section 9.18.",
            {"math.sqrt(self.weight.size(-1))": "8"},
        ),
        "multiplied by the root of the length": Mistake(
            "What goes in is multiplied by √T, the root of the number of tokens; it should be √E, the root of the "
            "width. See section 9.18.",
            {"self.weight.size(-1)": "ids.size(-1)"},
        ),
        "table scaled in place": Mistake(
            "embed multiplies the stored table itself by √E, so that it grows with every call: multiply what was "
            "looked up. See section 9.18.",
            _ScaledInPlace,
        ),
        "multiplied by the root of V": Mistake(
            "What goes in is multiplied by √V; it should be √E, the root of the width. See section 9.18.",
            {"self.weight.size(-1)": "len(self.weight)"},
        ),
        "bias and no scale": Mistake(
            "There are V numbers to learn beside those of the table, and what goes in is not scaled: the logits "
            "need no bias. See section 9.7.",
            {
                "\n\n    def embed": "\n        self.bias = nn.Parameter(torch.zeros(vocab_size))\n\n    def embed",
                " * math.sqrt(self.weight.size(-1))": "",
            },
        ),
        "scaled and divided": Mistake(
            "What goes in is divided by √E and the logits are multiplied by it: multiply what goes in, and leave "
            "the logits as they are. See section 9.18.",
            {"* math.sqrt(self": "/ math.sqrt(self", "weight.T": "weight.T * math.sqrt(x.size(-1))"},
        ),
        "logarithms of probabilities": Mistake(
            "score returns the logarithms of probabilities, and is asked for logits: the loss makes its own softmax. "
            "See section 7.6.",
            {"x @ self.weight.T": "(x @ self.weight.T).log_softmax(dim=-1)"},
        ),
        "softmax too early": Mistake(
            "score returns probabilities, and is asked for logits: the loss makes its own softmax. See section 7.6.",
            {"x @ self.weight.T": "(x @ self.weight.T).softmax(dim=-1)"},
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


def _count(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attention = 4 * d_model * d_model + 4 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    tables = (src_vocab_size + tgt_vocab_size) * d_model
    layers = num_layers * (encoder_layer + decoder_layer)
    return tables + layers + 2 * norm


def _from_the_sizes(answer, src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    def refuse(module, *_, **__):
        raise Remark(
            f"A {type(module).__name__} is made here: compute from the sizes alone, without making one. See section "
            "9.23."
        )

    with mock.patch.object(nn.Module, "__init__", refuse):
        return answer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers)


count_transformer = Exercise(
    name="count_transformer",
    trials=_sizes,
    right=_count,
    use=_from_the_sizes,
    seeds=(0,),
    in_parts=True,
    mistakes={
        "final norms forgotten": Mistake(
            "4E are missing: in a pre-norm model a norm stands behind each of the two stacks. See section 9.7.",
            {"layers + 2 * norm": "layers"},
        ),
        "one final norm": Mistake(
            "2E are missing: there is a final norm behind the encoder and one behind the decoder. See section 9.7.",
            {"layers + 2 * norm": "layers + norm"},
        ),
        "a final norm in each layer": Mistake(
            "As many come out as with a final norm in each layer; there is one behind each stack. See section 9.7.",
            {"forward + 2 * norm": "forward + 3 * norm", "3 * norm": "4 * norm", "layers + 2 * norm": "layers"},
        ),
        "logits counted again": Mistake(
            "The target's table is counted twice, but one tensor does both jobs. See section 9.18.",
            {"+ tgt_vocab_size)": "+ 2 * tgt_vocab_size)"},
        ),
        "logits counted again with a bias": Mistake(
            "As many come out as with a Linear of its own for the logits, bias and all: they have no bias, and "
            "their matrix is the target's table. See section 9.18.",
            {"+ tgt_vocab_size)": "+ 2 * tgt_vocab_size)", "layers + 2 * norm": "layers + 2 * norm + tgt_vocab_size"},
        ),
        "bias of the logits counted": Mistake(
            "V are too many: the logits have no bias. See section 9.7.",
            {"layers + 2 * norm": "layers + 2 * norm + tgt_vocab_size"},
        ),
        "tables forgotten": Mistake(
            "The two tables are missing, which hold a row for each token. See section 9.23.",
            {"return tables + ": "return "},
        ),
        "source's table forgotten": Mistake(
            "The source's table is missing: the two languages have a table each. See section 9.18.",
            {"src_vocab_size + tgt": "tgt"},
        ),
        "one table for both languages": Mistake(
            "One table of the larger vocabulary is counted; the two languages have a table each. See section 9.18.",
            {"(src_vocab_size + tgt_vocab_size)": "max(src_vocab_size, tgt_vocab_size)"},
        ),
        "target's table forgotten": Mistake(
            "The target's table is missing: the two languages have a table each. See section 9.18.",
            {" + tgt_vocab_size)": ")"},
        ),
        "one attention in the decoder": Mistake(
            "One attention is missing for each encoder layer with its decoder layer: they have three, one in the "
            "encoder, and back and across in the decoder. See section 9.6.",
            {"2 * attention": "attention"},
        ),
        "decoder counted as encoder": Mistake(
            "An attention and a norm are missing for each encoder layer with its decoder layer, as many as the "
            "cross-attention and its norm have. See section 9.6.",
            {"2 * attention + feed_forward + 3": "attention + feed_forward + 2"},
        ),
        "norm of the cross-attention forgotten": Mistake(
            "2E are missing for each encoder layer with its decoder layer: it is the norm of one sublayer, of which "
            "they have two and three, or the second biases of the two feed-forwards, E each. See section 9.6.",
            {"3 * norm": "2 * norm"},
        ),
        "one norm in each layer": Mistake(
            "An encoder layer and its decoder layer have two norms together here, and they have five: one for each "
            "sublayer. See section 9.5.",
            {"forward + 2 * norm": "forward + norm", "3 * norm": "norm"},
        ),
        "norms forgotten": Mistake(
            "No norm is counted at all, and each learns a gain and a bias. See section 9.3.",
            {"norm = 2 * d_model": "norm = 0"},
        ),
        "norms without a bias": Mistake(
            "A norm counts E here, and it learns 2E: a gain and a bias for each column. See section 9.3.",
            {"norm = 2 * d_model": "norm = d_model"},
        ),
        "biases forgotten": Mistake(
            "No bias of any Linear is counted; each has one but the last. See section 9.23.",
            {" + 4 * d_model": "", " + d_ff + d_model": ""},
        ),
        "attention's biases forgotten": Mistake(
            "The biases of the attentions are missing, E for each of their four Linears. See section 9.23.",
            {" + 4 * d_model": ""},
        ),
        "feed-forward's biases forgotten": Mistake(
            "The biases of the feed-forwards are missing, d_ff for the first Linear and E for the second. See section "
            "9.23.",
            {" + d_ff + d_model": ""},
        ),
        "feed-forward's biases of one width": Mistake(
            "A bias is as long as the output of its Linear: in the feed-forward, d_ff for the first and E for the "
            "second. See section 9.23.",
            {"+ d_ff + d_model": "+ 2 * d_model"},
        ),
        "output projection forgotten": Mistake(
            "An attention has three Linears here; it has four, for queries, keys, values and output. See section 6.5.",
            {"4 * d_model * d_model + 4 * d_model": "3 * d_model * d_model + 3 * d_model"},
        ),
        "one Linear in the feed-forward": Mistake(
            "The feed-forward has one Linear here, from E to d_ff, and it has two, up and down. See section 9.2.",
            {"2 * d_model * d_ff + d_ff + d_model": "d_model * d_ff + d_ff"},
        ),
        "source's words for both tables": Mistake(
            "Both tables have a row for each word of the source; the target's should have one for each word of the "
            "target. See section 9.18.",
            {"+ tgt_vocab_size)": "+ src_vocab_size)"},
        ),
        "half the layers": Mistake(
            "The layers count for half of what they have: there are num_layers on each side. See section 9.23.",
            {"decoder_layer)": "decoder_layer) // 2"},
        ),
        "one matrix in the feed-forward": Mistake(
            "The feed-forward has one matrix here, and it has two, up and down. See section 9.2.",
            {"2 * d_model * d_ff": "d_model * d_ff"},
        ),
        "d_ff ignored": Mistake(
            "The feed-forward is 4E wide here, as in the paper; it should be d_ff. See section 9.2.",
            {"    attention =": "    d_ff = 4 * d_model\n    attention ="},
        ),
        "feed-forward in one side only": Mistake(
            "The layers of one side have no feed-forward here: an encoder layer has one, and so has a decoder layer. "
            "See section 9.6.",
            {"2 * attention + feed_forward": "2 * attention"},
        ),
        "one layer for all": Mistake(
            "One layer on each side is counted, however large num_layers is; there are num_layers. See section 9.23.",
            {"num_layers * (": "("},
        ),
        "layers shared between the sides": Mistake(
            "One decoder layer is counted, beside num_layers encoder layers: there are num_layers on each side. "
            "See section 9.23.",
            {"(encoder_layer + decoder_layer)": "encoder_layer + decoder_layer"},
        ),
        "decoder forgotten": Mistake(
            "The decoder's layers and its final norm are missing; there are as many layers as in the encoder. See "
            "section 9.7.",
            {" + decoder_layer)": ")", "layers + 2 * norm": "layers + norm"},
        ),
        "encoder counted as decoder": Mistake(
            "An attention and a norm are too many for each encoder layer with its decoder layer; a cross-attention "
            "and its norm are in the decoder's alone. See section 9.5.",
            {"= attention + feed_forward + 2": "= 2 * attention + feed_forward + 3"},
        ),
        "a norm too many in one side": Mistake(
            "The layers of one side have a norm too many here: there is one for each sublayer, two in an encoder layer "
            "and three in a decoder layer. See section 9.6.",
            {"forward + 2 * norm": "forward + 3 * norm"},
        ),
        "one bias in the attention": Mistake(
            "An attention has a single bias here; each of its four Linears has one. See section 9.23.",
            {"+ 4 * d_model": "+ d_model"},
        ),
        "no bias at the output projection": Mistake(
            "The attentions have three biases here, one too few; each of their four Linears has one. See section 9.23.",
            {"+ 4 * d_model": "+ 3 * d_model"},
        ),
        "first bias of the feed-forward forgotten": Mistake(
            "The biases of a feed-forward count E together here; its first Linear has d_ff and its second E. See "
            "section 9.23.",
            {" + d_ff + d_model": " + d_model"},
        ),
        "biases of the feed-forward both d_ff": Mistake(
            "The biases of a feed-forward count 2 d_ff together here; the second one's is as long as its output, "
            "E. See section 9.23.",
            {"+ d_ff + d_model": "+ 2 * d_ff"},
        ),
        "one matrix in the attention": Mistake(
            "An attention has one matrix here; it has four, for queries, keys, values and output. See section 9.23.",
            {"4 * d_model * d_model + 4 * d_model": "d_model * d_model + d_model"},
        ),
        "final norms and biases of the norms forgotten": Mistake(
            "A norm counts E here and learns 2E, and the two final norms are missing. See section 9.3.",
            {"norm = 2 * d_model": "norm = d_model", "layers + 2 * norm": "layers"},
        ),
        "layers only": Mistake(
            "The two tables and the final norms are missing. See section 9.7.",
            {"return tables + layers + 2 * norm": "return layers"},
        ),
        "feed-forward forgotten": Mistake(
            "The layers have no feed-forward here, and each has one. See section 9.5.",
            {"2 * d_model * d_ff + d_ff + d_model": "0"},
        ),
    },
)
