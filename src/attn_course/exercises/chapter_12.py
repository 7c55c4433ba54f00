"""The exercises of the chapter on training. Used from chapter 12 on."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake
from attn_course.exercises.engine.memory import largest_tensor, yes_or_no

# ---------------------------------------------------------------- label smoothing


def _logits_and_targets(draw):
    def sizes(B, T, V, smoothing, *, pad_id=0, padded=True, **kind):
        target = (draw.ints(B, T, high=V - 1) + pad_id + 1) % V  # none is padding
        if padded:
            kept = draw.ints(B, high=T) + 1  # at least one token
            kept[0] = T  # and one sentence without padding
            positions = torch.arange(T, device=target.device)
            target = target.masked_fill(positions >= kept[:, None], pad_id)
            target[1:, -1:] = pad_id
        return draw(B, T, V, **kind) * 2, target, smoothing, pad_id

    yield "no padding", *sizes(2, 3, 7, 0.1, padded=False)
    yield "some padding", *sizes(3, 5, 7, 0.1)
    yield "no smoothing", *sizes(3, 5, 7, 0.0)
    yield "much smoothing", *sizes(5, 7, 11, 0.5)
    yield "another pad_id", *sizes(3, 7, 5, 0.2, pad_id=3)
    yield "a batch of one", *sizes(1, 5, 13, 0.1)
    yield "sentences of one token", *sizes(3, 1, 5, 0.2, padded=False)
    yield "float64", *sizes(2, 5, 3, 0.3, dtype=torch.float64)
    logits, target, *others = sizes(5, 7, 3, 0.2)
    yield "padding before the tokens", logits, target.flip(1), *others
    logits, target, *others = sizes(5, 3, 7, 0.1)
    yield "a view", _transposed(logits), _transposed(target), *others


def _transposed(table):
    """The same numbers, as a view of a table whose first axis is the second."""
    return table.transpose(0, 1).contiguous().transpose(0, 1)


def _first_places(target, pad_id):
    """True at the first positions of each row, as many as it has tokens."""
    return torch.arange(target.size(1), device=target.device) < (target != pad_id).sum(dim=1, keepdim=True)


def _smoothed(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    right = log_probs.gather(-1, target[..., None]).squeeze(-1)
    losses = -(1 - smoothing) * right - smoothing * log_probs.mean(-1)
    return losses[target != pad_id].mean()


def _mean_of_sentences(loss, real):
    return ((loss * real).sum(1) / real.sum(1)).mean()


def _entropy(smoothing, V):
    """The entropy of a smoothed label."""
    right, other = 1 - smoothing + smoothing / V, smoothing / V
    return -right * math.log(right) - ((V - 1) * other * math.log(other) if other else 0.0)


def _by_torch(logits, target, smoothing, pad_id):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


def _loss_and_gradient(answer, logits, target, smoothing, pad_id):
    """The loss, and what it sends back to the logits: zeros where nothing comes."""
    leaf, spare = logits.detach().clone().requires_grad_(), target.clone()
    given = leaf * 1  # autograd lets nobody write into a leaf
    whole = logits.detach().clone().requires_grad_(), target.clone()
    loss = answer(logits, target, smoothing, pad_id)
    if loss is None:
        return None
    again = answer(given, spare, smoothing, pad_id)
    loss = loss.detach() if isinstance(loss, Tensor) else loss
    if not isinstance(again, Tensor) or again.dim() or not again.requires_grad:
        return loss, torch.zeros_like(leaf)
    try:
        again.backward()
    except RuntimeError:
        if given._version == spare._version == 0:
            raise
        # Who writes into what was given has spoilt the gradient, and hears of that.
        return loss, torch.autograd.grad(_by_torch(*whole, smoothing, pad_id), whole[0])[0]
    return loss, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _only_the_gradient(found, *inputs):
    loss, gradient = _loss_and_gradient(_by_torch, *inputs)
    return torch.allclose(found[0], loss, rtol=1e-4) and not torch.allclose(found[1], gradient, rtol=1e-3, atol=1e-6)


smoothed_loss = Exercise(
    name="smoothed_loss",
    trials=_logits_and_targets,
    right=_smoothed,
    use=_loss_and_gradient,
    returns=("loss", "the gradient of the logits"),
    mistakes={
        "padding counted": Mistake(
            "The positions of padding are averaged in like tokens, and they should be left out. See section 12.2.",
            {"[target != pad_id]": ""},
        ),
        "padding counted in the smoothing": Mistake(
            "The part of the right pieces is the mean over the tokens, and that of all pieces is a mean over every "
            "position, those of padding too: leave them out of both. See section 12.2.",
            {
                "* right": "* right[target != pad_id].mean()",
                "log_probs.mean(-1)": "log_probs.mean()",
                "losses[target != pad_id].mean()": "losses",
            },
        ),
        "padding in the divisor": Mistake(
            "The losses of padding are left out of the sum, but its positions are still counted when you divide: "
            "the more padding, the smaller the loss. See section 12.2.",
            {"pad_id].mean()": "pad_id].sum() / target.numel()"},
        ),
        "mean over the sentences": Mistake(
            "Each sentence has a mean of its own and the means are averaged, so that a token of a short sentence "
            "counts more: every token counts once. See section 12.2.",
            {"losses[target != pad_id].mean()": "_mean_of_sentences(losses, target != pad_id)"},
        ),
        "mask inverted": Mistake(
            "It is the mean over the padding, and nan where there is none: the tokens are the positions that are not "
            "pad_id. See section 12.2.",
            {"!=": "=="},
        ),
        "sum instead of mean": Mistake(
            "This is the sum over the tokens; divide by their number. See section 12.2.",
            {"pad_id].mean()": "pad_id].sum()"},
        ),
        "axes left": Mistake(
            "The result has axes, and one number was asked for: the mean of the losses of all tokens. See section "
            "12.2.",
            sign=lambda found, *inputs: found[0].dim() > 0,
        ),
        "no smoothing": Mistake(
            "The label keeps all of its probability on the right piece: smoothing spreads a share of it. See section "
            "12.3.",
            {"-(1 - smoothing) * right - smoothing * log_probs.mean(-1)": "-right"},
        ),
        "shared among the others only": Mistake(
            "The share is spread over the V − 1 wrong pieces; the exercise spreads it over all V, and the right piece "
            "gets a part of it back. See section 12.3.",
            {"log_probs.mean(-1)": "(log_probs.sum(-1) - right) / (log_probs.size(-1) - 1)"},
        ),
        "pad gets no share": Mistake(
            "The share is spread over all pieces but the pad; the pad is one of the V pieces, and only positions "
            "of padding are left out. See section 12.3.",
            {"log_probs.mean(-1)": "log_probs[..., [i for i in range(logits.size(-1)) if i != pad_id]].mean(-1)"},
        ),
        "label sums to more than one": Mistake(
            "The right piece keeps all of its probability and the share comes on top, so that the label sums to "
            "1 + smoothing. See section 12.3.",
            {"-(1 - smoothing) * right": "-right"},
        ),
        "label sums to less than one": Mistake(
            "The right piece has 1 − smoothing and no part of the share, of which each of the other pieces has "
            "smoothing / V: the label sums to less than 1. See section 12.3.",
            {"log_probs.mean(-1)": "(log_probs.sum(-1) - right) / log_probs.size(-1)"},
        ),
        "0 taken for the pad": Mistake(
            "Positions with the id 0 are left out; it should be those with the id pad_id, whatever that is. See "
            "section 12.2.",
            {"!= pad_id": "!= 0"},
        ),
        "sum over the vocabulary": Mistake(
            "Every piece gets the whole share: the second part should be the mean over the V pieces, not their sum. "
            "See section 12.3.",
            {"log_probs.mean(-1)": "log_probs.sum(-1)"},
        ),
        "shares swapped": Mistake(
            "The right piece gets the small share and all pieces together the large one. See section 12.3.",
            {"-(1 - smoothing) * right - smoothing": "-smoothing * right - (1 - smoothing)"},
        ),
        "sign": Mistake(
            "The result is negative: logarithms of probabilities are below 0, and a loss is their negative. See "
            "section 12.3.",
            {"-(1 - smoothing) * right - smoothing": "(1 - smoothing) * right + smoothing"},
        ),
        "no softmax": Mistake(
            "The logits are taken for logarithms of probabilities: log_softmax makes these of them. See section 12.3.",
            {".log_softmax(-1)": ""},
        ),
        "no logarithm": Mistake(
            "This is made of the probabilities themselves, and a loss takes their logarithms. See section 12.3.",
            {"log_softmax": "softmax"},
        ),
        "softmax before the loss": Mistake(
            "A softmax is taken twice: cross_entropy and log_softmax take logits. See section 12.1.",
            {"logits.log": "logits.softmax(-1).log"},
        ),
        "softmax over the positions": Mistake(
            "The softmax runs along the sentence; the pieces of the vocabulary are the last axis. See section 12.3.",
            {"log_softmax(-1)": "log_softmax(1)"},
        ),
        "padding in the numerator": Mistake(
            "The losses of padding are added up too, and the sum is divided by the number of tokens alone: leave them "
            "out of both. See section 12.2.",
            {"losses[target != pad_id].mean()": "losses.sum() / (target != pad_id).sum()"},
        ),
        "divided by the sentences": Mistake(
            "The sum over the tokens is divided by the number of sentences; divide by the number of tokens. See "
            "section 12.2.",
            {"pad_id].mean()": "pad_id].sum() / len(target)"},
        ),
        "share divided by the others": Mistake(
            "The share is spread over all V pieces in parts of 1 / (V − 1), so that the label sums to more than 1. "
            "See section 12.3.",
            {"log_probs.mean(-1)": "log_probs.sum(-1) / (log_probs.size(-1) - 1)"},
        ),
        "entropy subtracted": Mistake(
            "The entropy of the label is taken off, as kl_div does: that changes no gradient, and the loss is not the "
            "one of the formula. See section 12.3.",
            {"pad_id].mean()": "pad_id].mean() - _entropy(smoothing, logits.size(-1))"},
        ),
        "shifted again": Mistake(
            "Logits and targets are moved against each other by one place: the logits at a place are about the target "
            "at that place. See section 12.2.",
            {"    log_probs =": "    logits, target = logits[:, :-1], target[:, 1:]\n    log_probs ="},
        ),
        "one target for all": Mistake(
            "The smoothed part alone is there: the probability of the right piece is missing. See section 12.3.",
            {"-(1 - smoothing) * right - smoothing": "-smoothing"},
        ),
        "logarithm of the smoothed probability": Mistake(
            "The probabilities of the model are smoothed and then the logarithm is taken; it is the label that is "
            "smoothed. See section 12.3.",
            {
                "-(1 - smoothing) * right - smoothing": "-((1 - smoothing) * right.exp() + smoothing",
                " * log_probs.mean(-1)": " / logits.size(-1)).log()",
            },
        ),
        "no gradient": Mistake(
            "No gradient comes back from the loss, so nothing can be learned. What leads out of the graph: detach, "
            "item, no_grad, a tensor made anew. See section 12.6.",
            {"= logits": "= logits.detach()"},
        ),
        "gradient of one part missing": Mistake(
            "The loss is right, and the gradient that comes back from it is not. (What is detached, or made anew, "
            "sends none back.) See section 12.6.",
            sign=lambda found, logits, target, smoothing, pad_id: _only_the_gradient(
                found, logits, target, smoothing, pad_id
            ),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Logits and targets belong to the batch, and who called it needs them again. See section 5.17."
        ),
        "sign of the smoothing": Mistake(
            "The part of the right piece is subtracted and that of all pieces added: both are logarithms, below 0, and "
            "both take a minus. See section 12.3.",
            {"right - smoothing": "right + smoothing"},
        ),
        "smoothing of 0.1 whatever is asked": Mistake(
            "This is the loss with a smoothing of 0.1, whatever is asked: take `smoothing`. See section 12.3.",
            {"    log_probs =": "    smoothing = 0.1\n    log_probs ="},
        ),
        "a number instead of a tensor": Mistake(
            "It returns a Python number, and no training step can start from that: return a tensor, from which a "
            "gradient comes back. See section 12.6.",
            sign=lambda found, *inputs: isinstance(found[0], float),
        ),
        "logarithm of the mean probability": Mistake(
            "The part of all pieces is the logarithm of their mean probability, which is 1/V whatever the logits are: "
            "take the mean of their logarithms. See section 12.3.",
            {"log_probs.mean(-1)": "log_probs.exp().mean(-1).log()"},
        ),
        "shared among the others, and padding in the divisor": Mistake(
            "The share is spread over the V − 1 wrong pieces, and over all V is asked for; and positions of padding "
            "are counted when you divide. See section 12.2.",
            {
                "log_probs.mean(-1)": "(log_probs.sum(-1) - right) / (log_probs.size(-1) - 1)",
                "pad_id].mean()": "pad_id].sum() / target.numel()",
            },
        ),
        "padding at the end only": Mistake(
            "As many positions as a sentence has tokens are averaged over, from the first on: where padding stands "
            "before the tokens, these are others. Tokens are where `target` is not `pad_id`. See section 12.2.",
            {"target != pad_id": "_first_places(target, pad_id)"},
        ),
    },
)


# ---------------------------------------------------------------- a schedule


def _steps(draw):
    def at(what, share, peak, warmup, steps, cooldown):
        step = {
            "first": 1,
            "warm": max(2, warmup // 2),
            "top": warmup,
            "flat": (warmup + steps - cooldown) // 2 + 1,
            "edge": steps - cooldown,
            "before the top": warmup - 1,
            "after the edge": steps - cooldown + 1,
            "down": steps - cooldown + max(1, cooldown // 3),
            "near": steps - 1,
            "last": steps,
        }[share]
        return what, step, peak, warmup, steps, cooldown

    peak = 0.5 + draw.ints(high=1000).item() / 1000
    sizes = peak, 10 + 2 * draw.ints(high=5).item(), 100, 30
    yield at("in the middle of the warm-up", "warm", *sizes)
    yield at("the first step", "first", *sizes)
    yield at("the end of the warm-up", "top", *sizes)
    yield at("on the plateau", "flat", *sizes)
    yield at("the last step of the plateau", "edge", *sizes)
    yield at("in the cool-down", "down", *sizes)
    yield at("the last step but one", "near", *sizes)
    yield at("the last step", "last", *sizes)
    sizes = peak / 100, 5, 50, 40
    yield at("a long cool-down", "down", *sizes)
    yield at("a short plateau", "flat", *sizes)
    yield at("a small peak", "warm", *sizes)
    yield at("a warm-up of one step", "first", peak, 1, 20, 5)
    yield at("a cool-down of one step", "edge", peak, 5, 20, 1)
    yield at("no plateau", "top", peak, 7, 18, 11)
    yield at("no plateau, in the cool-down", "down", peak, 7, 18, 11)
    sizes = peak, 10 + 2 * draw.ints(high=5).item(), 100, 30
    yield at("the last step before the peak", "before the top", *sizes)
    yield at("the first step of the cool-down", "after the edge", *sizes)
    yield at("the last step, and the first of the cool-down", "last", peak / 1000, 5, 20, 1)
    yield at("the first of thousands of steps", "first", 3e-4, 4000, 10000, 1000)


def _share_of_the_peak(answer, step, peak, warmup, steps, cooldown):
    """The rate divided by its peak: rates are small, and are compared as precisely as large ones."""
    rate = answer(step, peak, warmup, steps, cooldown)
    return rate / peak if isinstance(rate, int | float) and not isinstance(rate, bool) else rate


def _trapezoid(step, peak, warmup, steps, cooldown):
    up, down = step / warmup, (steps - step) / cooldown
    return peak * min(1.0, up, down)


def _cosine_at_the_end(step, steps, cooldown):
    progress = max(0.0, (step - (steps - cooldown)) / cooldown)
    return (1 + math.cos(math.pi * progress)) / 2


def _wrong_way(step, peak, warmup, steps, cooldown):
    start = steps - cooldown
    if step < warmup:
        return peak * step / warmup
    return peak if step <= start else peak * (step - start) / cooldown


plateau_rate = Exercise(
    name="plateau_rate",
    trials=_steps,
    right=_trapezoid,
    returns=("rate / peak",),
    use=_share_of_the_peak,
    mistakes={
        "counted from 0": Mistake(
            "The rate is one step late in the warm-up, and 0 in the first step, which then does nothing: the first "
            "step is step 1. See section 12.6.",
            {"step / warmup": "(step - 1) / warmup"},
        ),
        "counted from 0, up to the peak": Mistake(
            "The rate is one step late in the warm-up, 0 in the first step, and jumps to its peak at step `warmup`: "
            "the first step is step 1, with peak / warmup. See section 12.6.",
            {"step / warmup": "(step - 1) / warmup if step < warmup else 1.0"},
        ),
        "one step early": Mistake(
            "The rate is one step early in the warm-up: at step 1 it should be peak / warmup. See section 12.6.",
            {"step / warmup": "(step + 1) / warmup"},
        ),
        "no warm-up": Mistake(
            "The first steps have the full rate already: there is no warm-up. See section 12.6.",
            {"step / warmup": "1.0"},
        ),
        "no cool-down": Mistake(
            "After the warm-up the rate stays at its peak to the end: there is no cool-down. See section 12.6.",
            {"(steps - step) / cooldown": "1.0"},
        ),
        "no plateau": Mistake(
            "The rate begins to fall right after the warm-up; it should stay at its peak until the cool-down. "
            "See section 12.6.",
            {"/ cooldown": "/ (steps - warmup)"},
        ),
        "cool-down rises": Mistake(
            "In the cool-down the rate rises from near 0 to the peak: it should fall, and be 0 at the last step. See "
            "section 12.6.",
            _wrong_way,
        ),
        "never zero": Mistake(
            "The cool-down is one step late: at step `steps`, the last one, the rate is not 0. See section 12.6.",
            {"steps - step": "steps - step + 1"},
        ),
        "cool-down one step early": Mistake(
            "The cool-down is one step early, and the rate of the last step is below 0: at step steps − cooldown it "
            "should still be at its peak, and 0 at the last. See section 12.6.",
            {"steps - step": "steps - step - 1"},
        ),
        "cool-down one step early, held at 0": Mistake(
            "The cool-down is one step early, and comes to 0 before the last step: at step steps − cooldown the rate "
            "should still be at its peak. See section 12.6.",
            {"(steps - step)": "max(0, steps - step - 1)"},
        ),
        "cooldown taken for a step": Mistake(
            "The cool-down begins at step `cooldown`, which is a number of steps: it should begin at step steps − "
            "cooldown. See section 12.6.",
            {"/ cooldown": "/ (steps - cooldown)"},
        ),
        "falls after cooldown steps": Mistake(
            "The line of the cool-down is taken from step `cooldown` on; it should be taken from step steps − "
            "cooldown, where it has come down to the peak. See section 12.6.",
            lambda step, peak, warmup, steps, cooldown: (
                peak * (step / warmup if step < warmup else (steps - step) / cooldown if step > cooldown else 1.0)
            ),
        ),
        "warm-up counted twice": Mistake(
            "The cool-down comes too early, by the steps of the warm-up: steps counts all steps, those of the "
            "warm-up as well. See section 12.6.",
            {"steps - step": "steps - warmup - step"},
        ),
        "a cosine": Mistake(
            "The cool-down is half a cosine; the exercise asks for a straight line. See section 12.6.",
            {"(steps - step) / cooldown": "_cosine_at_the_end(step, steps, cooldown)"},
        ),
        "a root": Mistake(
            "The rate falls like one over the root of the step; it should stay at its peak and then fall in a line. "
            "See section 12.6.",
            {"min(1.0, up, down)": "min(up, math.sqrt(warmup / step))"},
        ),
        "largest instead of smallest": Mistake(
            "The largest of three is taken, the peak and the two slopes: the smallest is the one that limits the "
            "rate. See section 12.6.",
            {"min": "max"},
        ),
        "whole division": Mistake(
            "The rate jumps from 0 to its peak: // divides whole numbers and drops the rest. See section 12.6.",
            {"step / warmup": "step // warmup"},
        ),
        "peak forgotten": Mistake(
            "This is the share of the peak, from 0 to 1; multiply by peak. See section 12.6.",
            {"peak * ": ""},
        ),
        "a tensor instead of a number": Mistake(
            "It returns a tensor, and a plain Python number was asked for. See section 12.6.",
            sign=lambda found, *inputs: isinstance(found, Tensor),
        ),
        "falls over all steps": Mistake(
            "The line down to 0 runs over all steps; the rate should stay at its peak until the last `cooldown` of "
            "them. See section 12.6.",
            {"/ cooldown": "/ steps"},
        ),
        "0 from the cool-down on": Mistake(
            "The rate is 0 in all of the cool-down; it should come down in a line, to 0 at the last step. (// drops "
            "the rest of a division.) See section 12.6.",
            {"(steps - step) / cooldown": "1.0 if step <= steps - cooldown else 0.0"},
        ),
        "whole division at both ends": Mistake(
            "The rate jumps from 0 to its peak and back: // divides whole numbers and drops the rest. See section "
            "12.6.",
            {"step / warmup": "step // warmup", "/ cooldown": "// cooldown"},
        ),
        "warm-up one step too long": Mistake(
            "The peak is reached a step after the warm-up: at step `warmup` the rate should be at its peak. See "
            "section 12.6.",
            {"/ warmup": "/ (warmup + 1)"},
        ),
        "falls to the end of the cool-down's own length": Mistake(
            "In the cool-down the rate is the share of all steps that are left; it should be the share of the "
            "cool-down that is left, from 1 to 0. See section 12.6.",
            lambda step, peak, warmup, steps, cooldown: (
                peak * (steps - step) / steps if step > steps - cooldown else peak * min(1.0, step / warmup)
            ),
        ),
        "added": Mistake(
            "The slopes are added up; the smallest of them is what limits the rate. See section 12.6.",
            {"min(1.0, up, down)": "(1.0 + up + down)"},
        ),
        "never down to 0": Mistake(
            "The line of the cool-down would come to 0 a step after the last: at the last step the rate should be 0. "
            "See section 12.6.",
            {"(steps - step) / cooldown": "(steps - step + 1) / (cooldown + 1)"},
        ),
        "warm-up on the plateau again": Mistake(
            "The warm-up goes on rising after step `warmup`, above the peak: it should end there. See section 12.6.",
            {"min(1.0, up, down)": "(up if down >= 1 else min(up, down))"},
        ),
        "the cool-down alone": Mistake(
            "The line of the cool-down is taken at every step, and before the cool-down it lies above the peak: the "
            "peak and the warm-up are limits as well. See section 12.6.",
            {"min(1.0, up, down)": "down"},
        ),
        "cool-down one step too long": Mistake(
            "The cool-down is a step too long: at step steps − cooldown the rate is below its peak already, and it "
            "should still be the peak. See section 12.6.",
            {"/ cooldown": "/ (cooldown + 1)"},
        ),
        "lengths exchanged": Mistake(
            "The warm-up has the length of the cool-down, and the cool-down that of the warm-up. See section 12.6.",
            {"    up": "    warmup, cooldown = cooldown, warmup\n    up"},
        ),
        "above the peak": Mistake(
            "Between warm-up and cool-down the rate is above its peak, which is a limit as well as the two slopes are. "
            "See section 12.6.",
            {"1.0, ": ""},
        ),
        "down to a tenth": Mistake(
            "The cool-down ends at a tenth of the peak; the exercise goes down to 0. See section 12.6.",
            {"(steps": "0.1 + 0.9 * (steps"},
        ),
        "not below a tenth": Mistake(
            "In the last steps the rate is held at a tenth of the peak; the exercise goes down to 0. See section 12.6.",
            {"min(1.0, up, down)": "min(1.0, up, max(0.1, down))"},
        ),
        "rounded": Mistake(
            "The rate is rounded: return it as it is, for rates are small, and their digits stand far behind the "
            "point. See section 12.6.",
            sign=lambda found, step, peak, *sizes: any(
                math.isclose(found * peak, round(_trapezoid(step, peak, *sizes), digits), rel_tol=1e-9)
                for digits in range(2, 9)
            ),
        ),
        "warm-up in a curve": Mistake(
            "The warm-up rises with the square of the step; the exercise asks for a straight line. See section 12.6.",
            {"step / warmup": "(step / warmup) ** 2"},
        ),
        "cool-down right after the warm-up": Mistake(
            "The cool-down begins where the warm-up ends, and after it the rate is 0 for the rest: it should begin at "
            "step steps − cooldown. See section 12.6.",
            {"    up": "    steps = warmup + cooldown\n    step = min(step, steps)\n    up"},
        ),
        "peak one step early": Mistake(
            "The peak is there a step too early: at step warmup − 1 the rate should still be on the line that comes to "
            "the peak at step `warmup`. See section 12.6.",
            {"step / warmup": "step / warmup if step < warmup - 1 else 1.0"},
        ),
        "cool-down begins a step late": Mistake(
            "The first step of the cool-down still has the peak: the rate should be on the line down from step steps − "
            "cooldown on. See section 12.6.",
            {"(steps - step) / cooldown": "(steps - step) / cooldown if step > steps - cooldown + 1 else 1.0"},
        ),
    },
)


# ---------------------------------------------------------------- clipping


def _three_gradients(draw):
    def sizes(*shapes, times=1.0, limit=1.0, **kind):
        return *(draw(*shape, **kind) * times for shape in shapes), limit

    yield "too long", *sizes((3, 5), (7,), (2, 3), times=2, limit=1.5)
    yield "short enough", *sizes((3, 5), (7,), (2, 3), times=0.01)
    yield "another limit", *sizes((5,), (2, 7), (3,), times=3, limit=2.5)
    yield "one far longer", *sizes((5,), (2, 7), (11,), times=5, limit=0.5)
    a, b, c, limit = sizes((2, 3), (5,), (7, 2), times=2)
    yield "one of zeros", a, b * 0, c, limit
    yield "all zeros", a * 0, b * 0, c * 0, limit
    a, b, _, limit = sizes((3, 2), (7,), (1,), times=2, limit=1.5)
    yield "two gradients", a, b, None, limit
    a, b, c, limit = sizes((5,), (2, 3), (7,), times=2, limit=2.5)
    yield "five gradients", a, b, (c, *sizes((3, 2), (2, 2, 3))[:2]), limit
    yield "longer than 1, and short enough", *sizes((3, 5), (7,), (2, 3), times=0.5, limit=20.0)
    yield "shorter than 1, and too long", *sizes((3, 5), (7,), (2, 3), times=0.1, limit=0.2)
    yield "float64", *sizes((3,), (5, 2), (7,), times=2, limit=1.5, dtype=torch.float64)
    a, b, c, limit = sizes((), (7,), (3, 5), times=2, limit=1.5)
    yield "one without axes", a, b, c, limit
    yield "one transposed", a + b, c.T, b * a, limit


def _scaled(gradients, limit):
    norm = torch.stack([g.norm() for g in gradients]).norm()
    by = min(1.0, limit / float(norm)) if norm > 0 else 1.0
    return [g * by for g in gradients]


def _each_alone(gradients, limit):
    return [_scaled([g], limit)[0] for g in gradients]


def _as_list(first, second, rest):
    return [first, second, *(rest if isinstance(rest, tuple) else () if rest is None else (rest,))]


def _use_three(answer, first, second, rest, limit):
    """The first two, the rest as one tensor, and whether memory is shared."""
    given = _as_list(first, second, rest)
    found = answer(list(given), limit)
    if not isinstance(found, list | tuple):
        return found
    found = tuple(found)
    shares = any(_shares_memory(new, old) for new in found for old in given)
    if len(given) != 3 and len(found) == len(given) and all(isinstance(f, Tensor) for f in found):
        others = [f.flatten() for f in found[2:]]
        found = (*found[:2], torch.cat(others) if others else 0.0)
    mistakes = clip_together.mistakes
    return (*found, yes_or_no(shares, answer, mistakes, "same tensors returned"))


def _shares_memory(new, old):
    """Whether a change of one would change the other."""
    return (
        isinstance(new, Tensor)
        and new.device == old.device
        and new.untyped_storage().data_ptr() == old.untyped_storage().data_ptr()
    )


def _by_the_norm_so_far(gradients, limit):
    return [_scaled(gradients[:number], limit)[-1] for number in range(1, len(gradients) + 1)]


def _kind_of(found):
    if isinstance(found, list | tuple):
        return "a list"
    one = isinstance(found, int | float) or (isinstance(found, Tensor) and found.numel() == 1)
    return "a number" if one else "something else"


clip_together = Exercise(
    name="clip_together",
    trials=_three_gradients,
    right=_scaled,
    returns=("first", "second", "the rest", "whether it shares its memory with what was given"),
    use=_use_three,
    mistakes={
        "each on its own": Mistake(
            "Each gradient is cut to the limit by its own norm, which changes the direction of the whole: "
            "there is one norm for all. See section 12.5.",
            _each_alone,
        ),
        "by value": Mistake(
            "Each entry is cut to the limit, which changes the direction; all should be multiplied by one factor. See "
            "section 12.5.",
            lambda gradients, limit: [g.clamp(-limit, limit) for g in gradients],
        ),
        "short ones lengthened": Mistake(
            "Short gradients are stretched to the limit, and zeros become nan; both must stay as they are. See "
            "section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0 else 1.0": "limit / norm"},
        ),
        "all but zeros scaled": Mistake(
            "Short gradients that are not all 0 are stretched to the limit; they must stay as they are. See section "
            "12.5.",
            {"min(1.0, limit / float(norm))": "limit / norm"},
        ),
        "long ones left": Mistake(
            "Long gradients stay as they are, short ones are stretched to the limit, and zeros become nan: the factor "
            "should be limit / norm for long ones, and 1 for all others. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0 else 1.0": "torch.clamp(limit / norm, min=1.0)"},
        ),
        "same tensors returned": Mistake(
            "Where nothing is clipped, what comes back shares its memory with what was given: who changes the one "
            "changes the other. Return new tensors, copies where they stay the same. See section 12.5.",
            {"    return": "    if norm <= limit:\n        return gradients\n    return"},
        ),
        "nothing clipped": Mistake(
            "Nothing is clipped: the gradients come back as they were. See section 12.5.",
            lambda gradients, limit: [g.clone() for g in gradients],
        ),
        "factor upside down": Mistake(
            "The factor is norm / limit, so that long gradients become longer still. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "norm / limit if norm > limit"},
        ),
        "limit forgotten": Mistake(
            "Long gradients come out with a norm of 1: after a division by the norm they should be multiplied by the "
            "limit. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "1 / norm if norm > limit"},
        ),
        "not divided by the norm": Mistake(
            "Long gradients are multiplied by the limit; the factor should be the limit divided by the norm. See "
            "section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "limit if norm > limit"},
        ),
        "short ones dropped": Mistake(
            "The list comes back empty: every gradient has its own in the result, and short ones stay as they are. "
            "See section 12.5.",
            sign=lambda found, *inputs: isinstance(found, tuple) and len(found) == 1,
        ),
        "one long vector": Mistake(
            "It returns one long vector; put end to end the gradients are only to be measured, and each keeps its "
            "shape. See section 12.5.",
            sign=lambda found, *inputs: (
                isinstance(found, Tensor)
                and found.dim() == 1
                and len(found) == sum(gradient.numel() for gradient in _as_list(*inputs[:3]))
            ),
        ),
        "norms added": Mistake(
            "The length is taken to be the sum of the norms of the parts; it should be the root of the sum of their "
            "squares, as with Pythagoras. See section 12.5.",
            {"]).norm()": "]).sum()"},
        ),
        "first only": Mistake(
            "The norm is that of the first gradient alone; there should be one norm of all of them together. See "
            "section 12.5.",
            {"for g in gradients])": "for g in gradients[:1]])"},
        ),
        "longest only": Mistake(
            "The norm is that of the longest part alone; the norm of the whole is larger. See section 12.5.",
            {"]).norm()": "]).max()"},
        ),
        "largest entry": Mistake(
            "The largest entry is taken for the length; the norm is the root of the sum of all squares. See section "
            "12.5.",
            {"g.norm()": "g.abs().max()", "]).norm()": "]).max()"},
        ),
        "no root": Mistake(
            "The sum of the squares is taken for the length: the root is missing. See section 12.5.",
            {"]).norm()": "]).norm() ** 2"},
        ),
        "sum of sizes": Mistake(
            "The sizes of all entries are added up; the norm is the root of the sum of their squares. See section "
            "12.5.",
            {"g.norm()": "g.abs().sum()", "]).norm()": "]).sum()"},
        ),
        "mean of the squares": Mistake(
            "The root is taken of the mean of the squares, not of their sum, so that a large model is hardly clipped. "
            "See section 12.5.",
            {"stack([g.norm()": "cat([g.flatten()", "]).norm()": "]).square().mean().sqrt()"},
        ),
        "a number returned as well": Mistake(
            "A number comes back beside the gradients; the exercise asks for their list alone. See section 12.5.",
            sign=lambda found, *inputs: (
                isinstance(found, tuple)
                and len(found) == 3
                and sorted(_kind_of(f) for f in found[:2]) == ["a list", "a number"]
            ),
        ),
        "mean of the norms": Mistake(
            "The norms of the parts are averaged; the norm of the whole is the root of the sum of all squares. "
            "See section 12.5.",
            {"]).norm()": "]).mean()"},
        ),
        "limit shared out": Mistake(
            "Each gradient is cut to its share of the limit by its own norm; there is one norm for all. See section "
            "12.5.",
            lambda gradients, limit: _each_alone(gradients, limit / len(gradients)),
        ),
        "squared factor": Mistake(
            "The factor is squared: a norm shrinks by the factor that its numbers are multiplied by, limit / norm. "
            "See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "(limit / norm) ** 2 if norm > limit"},
        ),
        "limit without its square": Mistake(
            "Long gradients come out with the root of the limit for their norm: it is the norm that should be the "
            "limit, not its square. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "math.sqrt(limit) / float(norm) if norm**2 > limit"},
        ),
        "limit subtracted": Mistake(
            "What the norm has above the limit is subtracted from every number; all should be multiplied by one "
            "factor. See section 12.5.",
            {"g * by": "g - (norm - limit).clamp(min=0)"},
        ),
        "nan for zeros": Mistake(
            "Gradients that are all zero become nan; they should stay as they are. See that nothing is divided by a "
            "norm of 0. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0 else 1.0": "torch.clamp(limit / norm, max=1.0) + 0 / norm"},
        ),
        "one factor too many": Mistake(
            "Long gradients come out with the square of the limit for their norm: the limit is a factor once too "
            "often. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "limit**2 / norm if norm > limit"},
        ),
        "no list returned": Mistake(
            "It returns no list: asked for is a list, with a new tensor for each one that was given. See section 12.5.",
            sign=lambda found, *inputs: not isinstance(found, list | tuple | Tensor | int | float),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "torch's clip_grad_norm_ does so on purpose and says it by the _ at its end; the exercise asks for new "
            "tensors. See section 12.5."
        ),
        "means of the squares added": Mistake(
            "Each tensor's mean of the squares is taken, and these are added, so that large tensors count too little: "
            "add up the squares themselves. See section 12.5.",
            {"g.norm()": "g.square().mean()", "]).norm()": "]).sum().sqrt()"},
        ),
        "long ones skipped": Mistake(
            "Gradients that are too long become 0, and the batch is lost: shortened, they still say where to go. See "
            "section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "0.0 if norm > limit"},
        ),
        "short ones stretched, long ones left": Mistake(
            "Gradients that are too long stay as they are, and short ones are stretched to the limit: long ones "
            "should be shortened, and short ones stay. See section 12.5.",
            {"min(1.0, limit / float(norm))": "max(1.0, limit / float(norm))"},
        ),
        "norm so far": Mistake(
            "Each tensor is shortened by the norm of those up to it, so the factor differs from one to the next: first "
            "the norm of all of them, then one factor. See section 12.5.",
            _by_the_norm_so_far,
        ),
        "limit of 1 whatever is asked": Mistake(
            "What is longer than 1 comes out with a norm of 1, whatever the limit is: take `limit`. See section 12.5.",
            {"limit / float(norm)": "1.0 / float(norm)"},
        ),
        "compared with 1": Mistake(
            "What is longer than 1 comes out as long as the limit, longer than before if the limit is larger: it is "
            "the limit that the norm should be compared with. See section 12.5.",
            {"min(1.0, limit / float(norm)) if norm > 0": "limit / norm if norm > 1"},
        ),
        "short ones shortened": Mistake(
            "Long gradients stay as they are, and short ones become shorter by the factor norm / limit: the factor "
            "should be limit / norm, and 1 where that is larger. See section 12.5.",
            {"limit / float(norm)": "float(norm) / limit"},
        ),
        "last only": Mistake(
            "The norm is that of the last gradient alone; it should be taken of all of them together. See section "
            "12.5.",
            {"for g in gradients])": "for g in gradients[-1:]])"},
        ),
        "three expected": Mistake(
            "It takes three gradients, and no other number of them: `gradients` is a list of any length. See section "
            "12.5.",
            {"    norm =": "    _first, _second, _third = gradients\n    norm ="},
        ),
        "stacked": Mistake(
            "What is stacked has to have one shape, and gradients have many: measure each by itself, and put the "
            "results together. See section 12.5.",
            lambda gradients, limit: torch.stack(gradients),
        ),
        "put end to end with their axes": Mistake(
            "`cat` wants tensors with equally many axes, and gradients have different numbers of them: flatten each "
            "of them first. See section 12.5.",
            lambda gradients, limit: torch.cat(gradients),
        ),
    },
)


# ---------------------------------------------------------------- accumulating


def _several_parts(draw):
    def sizes(D, V, *counts, pads=None, pad_id=0, first=False, **kind):
        parts = []
        for n, padded in zip(counts, pads or [0] * len(counts), strict=True):
            target = (draw.ints(n, high=V - 1) + pad_id + 1) % V
            target[n - padded :] = pad_id
            parts.append((draw(n, D, **kind), target.flip(0) if first else target))
        return draw(D, V, **kind) * 0.5, pad_id, parts

    yield "parts of different sizes", *sizes(3, 5, 2, 11)
    yield "parts of one size", *sizes(3, 7, 5, 5)
    yield "padding in one", *sizes(5, 3, 7, 7, pads=(0, 5))
    yield "padding in both", *sizes(2, 7, 11, 3, pads=(7, 1))
    yield "another pad_id", *sizes(3, 11, 5, 7, pads=(1, 5), pad_id=2)
    yield "one part", *sizes(2, 5, 7, pads=(3,))
    yield "a part of one token", *sizes(3, 5, 1, 7)
    yield "four parts", *sizes(3, 13, 5, 2, 7, 3, pads=(0, 1, 2, 0))
    yield "a part of nothing but padding", *sizes(2, 3, 5, 7, 3, pads=(1, 7, 0))
    yield "float64", *sizes(5, 2, 3, 13, pads=(0, 2), dtype=torch.float64)
    yield "padding before the tokens", *sizes(3, 5, 7, 2, pads=(2, 1), first=True)
    yield "ten parts", *sizes(3, 7, *(2, 3, 1, 3, 2, 3, 2, 1, 3, 2))


def _gradient(loss_of):
    """An answer that is the gradient of some loss of the weight."""

    def answer(weight, parts, pad_id):
        weight = weight.detach().clone().requires_grad_()
        return torch.autograd.grad(loss_of(weight, parts, pad_id), weight)[0]

    return answer


def _part_loss(weight, x, target, pad_id, reduction="sum"):
    return F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction=reduction)


def _count(parts, pad_id):
    return sum(int((target != pad_id).sum()) for _, target in parts)


def _divided_so_far(weight, parts, pad_id):
    loss, seen = 0.0, 0
    for x, target in parts:
        seen += int((target != pad_id).sum())
        loss = loss + _part_loss(weight, x, target, pad_id) / seen
    return loss


def _first_tokens(x, target, pad_id):
    """The first rows of a part, as many as it has tokens."""
    count = int((target != pad_id).sum())
    return x[:count], target[:count]


def _use_parts(answer, weight, pad_id, parts):
    """The gradient, whether the weight was left as it was, and whether all logits were there at one time."""
    counts = [len(target) for _, target in parts]
    # Padding may be dropped, and D numbers for each logit of one part are no logits of all parts.
    can_tell = sum(counts) == _count(parts, pad_id) > max(counts) * weight.size(0)
    gradient, largest = largest_tensor(lambda: answer(weight, parts, pad_id))
    if gradient is None:
        return None
    left = weight.requires_grad or weight.grad is not None
    at_once = can_tell and weight.size(1) > weight.size(0) and largest >= sum(counts) * weight.size(1)
    gradient = gradient.detach() if isinstance(gradient, Tensor) else gradient
    mistakes = accumulated_gradient.mistakes
    return (
        gradient,
        yes_or_no(left, answer, mistakes, "weight left changed"),
        yes_or_no(at_once, answer, mistakes, "all parts at once"),
    )


def _by_hand(axis=-1, hide_labels_only=False):
    """The gradient without autograd, with a softmax along another axis, or padding that keeps its probabilities."""

    def answer(weight, parts, pad_id):
        total = torch.zeros_like(weight)
        for x, target in parts:
            real = target != pad_id
            labels = F.one_hot(target, weight.size(1)).to(weight.dtype) * real[:, None]
            if hide_labels_only:
                total += x.T @ ((x @ weight).softmax(axis) - labels)
            else:
                total += x[real].T @ ((x[real] @ weight).softmax(axis) - labels[real])
        return total / _count(parts, pad_id)

    return answer


def _points_along(move, gradient):
    """Whether two tensors point in one direction."""
    by = float((move * gradient).sum() / gradient.square().sum())
    return by > 0 and torch.allclose(move, by * gradient, rtol=1e-3, atol=1e-5)


def _accumulated(weight, parts, pad_id):
    weight = weight.detach().clone().requires_grad_()
    loss = sum(F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction="sum") for x, target in parts)
    count = sum(int((target != pad_id).sum()) for _, target in parts)
    return torch.autograd.grad(loss / count, weight)[0]


accumulated_gradient = Exercise(
    name="accumulated_gradient",
    trials=_several_parts,
    right=_accumulated,
    returns=(
        "gradient",
        "whether weight requires gradients afterwards, or holds one",
        "whether the logits of all parts were there at one time",
    ),
    use=_use_parts,
    mistakes={
        "mean of the means": Mistake(
            "Each part's mean counts the same, however few tokens it has, which is right only for parts with equally "
            "many: every token counts once. See section 12.2.",
            {', reduction="sum"': "", "/ count": "/ len(parts)"},
        ),
        "means added": Mistake(
            "The means of the parts are added up: divide the sum of all losses once, by the number of all tokens. See "
            "section 12.2.",
            {', reduction="sum"': "", " / count": ""},
        ),
        "not divided": Mistake(
            "This is the gradient of the sum; divide by the number of tokens of all parts together. See section 12.2.",
            {" / count": ""},
        ),
        "divided by the parts": Mistake(
            "The sum is divided by the number of parts; it should be divided by the number of tokens. See section "
            "12.2.",
            {"/ count": "/ len(parts)"},
        ),
        "padding counted": Mistake(
            "Positions of padding are learned like tokens, and they should be left out. See section 12.2.",
            {", ignore_index=pad_id": "", "int((target != pad_id).sum())": "len(target)"},
        ),
        "padding in the loss": Mistake(
            "The losses of padding are in the sum, which is divided by the number of tokens: leave them out. See "
            "section 12.2.",
            {", ignore_index=pad_id": ""},
        ),
        "padding in the weights": Mistake(
            "Each part's mean counts by the length of the part, its padding included; it should count by its tokens. "
            "See section 12.2.",
            {', reduction="sum")': ") * len(target)", "int((target != pad_id).sum())": "len(target)"},
        ),
        "parts with padding left out": Mistake(
            "A part in which any position is padding gives nothing to the gradient: its tokens should count like all "
            "others, and only its padding not. See section 12.2.",
            _gradient(
                lambda weight, parts, pad_id: (
                    sum((_part_loss(weight, x, t, pad_id) for x, t in parts if (t != pad_id).all()), 0 * weight.sum())
                    / _count(parts, pad_id)
                )
            ),
        ),
        "padding in the divisor": Mistake(
            "Padding is left out of the loss, but its positions are still counted when you divide. See section 12.2.",
            {"int((target != pad_id).sum())": "len(target)"},
        ),
        "last part only": Mistake(
            "The result has only the last part in it: the gradients of all parts add up. See section 12.2.",
            {"for x, target in parts": "for x, target in parts[-1:]"},
        ),
        "last part's mean only": Mistake(
            "This is the mean of the last part alone: gradients of several parts add up, unless they are set to zero "
            "between them. See section 12.2.",
            {"    loss =": "    parts = parts[-1:]\n    loss ="},
        ),
        "first part only": Mistake(
            "This is the gradient of the first part's mean: every token of all parts should have its share in it. See "
            "section 12.2.",
            {"    loss =": "    parts = parts[:1]\n    loss ="},
        ),
        "first part only, divided by all tokens": Mistake(
            "The first part alone is in the result, divided by the tokens of all: the gradients of all parts add up. "
            "See section 12.2.",
            {"for x, target in parts)": "for x, target in parts[:1])"},
        ),
        "mean of the means of parts with tokens": Mistake(
            "Each part with tokens counts the same, however few they are: every token should count once, wherever it "
            "is. See section 12.2.",
            {
                ', reduction="sum"': "",
                "for x, target in parts)": "for x, target in parts if (target != pad_id).any())",
                "/ count": "/ sum(1 for _, target in parts if (target != pad_id).any())",
            },
        ),
        "divided by the tokens so far": Mistake(
            "Each part is divided by the number of tokens seen so far; all should be divided by the number of all "
            "tokens, which must be known before the first. See section 12.2.",
            _gradient(_divided_so_far),
        ),
        "divided by the last part's tokens": Mistake(
            "The sum of all parts is divided by the length of the last one, its padding included: count the tokens of "
            "all parts. See section 12.2.",
            {"int((target != pad_id).sum()) for _, target in parts": "len(target) for _, target in parts[-1:]"},
        ),
        "divided by the last part's tokens, without padding": Mistake(
            "The sum of all parts is divided by the tokens of the last one: count those of all parts, and keep "
            "adding. See section 12.2.",
            {"for _, target in parts": "for _, target in parts[-1:]"},
        ),
        "softmax before the loss": Mistake(
            "A softmax is taken twice: cross_entropy takes logits. See section 12.1.",
            {"x @ weight": "(x @ weight).softmax(-1)"},
        ),
        "divided twice": Mistake(
            "The means of the parts are added up and divided by the number of all tokens: it should be the sums that "
            "are added up. See section 12.2.",
            {', reduction="sum"': ""},
        ),
        "wrong direction": Mistake(
            "The gradient has the opposite sign: it is that of the loss, and the step goes against it later. See "
            "section 12.6.",
            {"return torch": "return -torch"},
        ),
        "one number instead of the gradient": Mistake(
            "This is one number, and the gradient has one for each number of weight, (D, V): backward leaves it in "
            ".grad. See section 12.6.",
            sign=lambda found, *inputs: isinstance(found[0], Tensor | float) and getattr(found[0], "ndim", 0) == 0,
        ),
        "one axis instead of two": Mistake(
            "This has one axis; the gradient has the shape of weight, (D, V), an entry for each entry. See section "
            "12.6.",
            sign=lambda found, *inputs: isinstance(found[0], Tensor) and found[0].dim() == 1,
        ),
        "0 taken for the pad": Mistake(
            "Targets of 0 are left out; it should be those of pad_id, whatever that is. See section 12.2.",
            {"    weight =": "    pad_id = 0\n    weight ="},
        ),
        "two parts expected": Mistake(
            "It takes two parts, and no other number of them: `parts` is a list of any length. See section 12.2.",
            {"    weight =": "    first, second = parts\n    weight ="},
        ),
        "weight left changed": Mistake(
            "The weight that was given requires gradients now, or holds one: take a copy that requires them. See "
            "section 12.6.",
            {"    weight =": "    weight.requires_grad_()\n    weight ="},
        ),
        "all parts at once": Mistake(
            "A tensor as large as all logits together was made on the way: the batch does not fit, so compute the "
            "logits of one part at a time. See section 12.2.",
            {"    weight =": "    parts = [tuple(map(torch.cat, zip(*parts, strict=True)))]\n    weight ="},
        ),
        "transposed": Mistake(
            "The gradient is (V, D); it has the shape of the weight, (D, V). See section 12.6.",
            {"[0]": "[0].T.contiguous()"},
        ),
        "sum over the vocabulary": Mistake(
            "The right piece is not subtracted: the gradient at the logits is the probabilities less the one-hot "
            "target. See section 12.6.",
            _gradient(
                lambda w, parts, pad_id: (
                    sum((x @ w).logsumexp(-1)[t != pad_id].sum() for x, t in parts) / _count(parts, pad_id)
                )
            ),
        ),
        "means weighted by their share of the parts": Mistake(
            "This is the gradient divided by the number of parts once more: the number of all tokens is the one "
            "divisor. See section 12.2.",
            {"/ count": "/ count / len(parts)"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Weight and parts stay as they are: a gradient was asked for, and the step belongs to the optimizer. See "
            "section 12.6."
        ),
        "nan for a part of padding": Mistake(
            "A part of nothing but padding brings nan: a mean over no tokens is 0/0. Add up the losses, and divide "
            "once, by the tokens of all parts. See section 12.2.",
            sign=lambda found, weight, pad_id, parts: bool(
                any((target == pad_id).all() for _, target in parts) and found[0].isnan().any()
            ),
        ),
        "weight after a step": Mistake(
            "This is the weight after a step; return the gradient, with which whoever called makes one. See section "
            "12.6.",
            sign=lambda found, weight, pad_id, parts: _points_along(
                weight - found[0], accumulated_gradient.right(weight, parts, pad_id)
            ),
        ),
        "no copy that requires gradients": Mistake(
            "The loss leads back to nothing that requires gradients. Take a copy of the weight that requires them, "
            "compute the loss from that, without detach, item or no_grad on the way, and leave the weight as it is. "
            "See section 12.6.",
            lambda weight, parts, pad_id: _part_loss(weight, *parts[0], pad_id).backward(),
        ),
        "softmax over the rows": Mistake(
            "The softmax runs over the tokens of a part, the first axis; the pieces of the vocabulary are the last "
            "one. See section 12.3.",
            _by_hand(axis=0),
        ),
        "padding in the gradient": Mistake(
            "Positions of padding have no label and keep their probabilities in the gradient: they have to be left out "
            "of both. See section 12.2.",
            _by_hand(hide_labels_only=True),
        ),
        "padding at the end only": Mistake(
            "As many rows as a part has tokens are learned from, beginning with the first: where padding stands before "
            "tokens, these are others. Tokens are where `target` is not `pad_id`. See section 12.2.",
            _gradient(
                lambda w, parts, pad_id: (
                    sum(_part_loss(w, *_first_tokens(x, t, pad_id), pad_id=-100) for x, t in parts)
                    / _count(parts, pad_id)
                )
            ),
        ),
    },
)


# ---------------------------------------------------------------- a step of AdamW


def _weights_and_means(draw):
    def sizes(*shape, step, size=1.0, decay=0.0, lr=0.1, betas=(0.9, 0.98), eps=1e-8, **kind):
        w, g = draw(*shape, **kind), draw(*shape, **kind) * size
        mean, square = torch.zeros_like(w), torch.zeros_like(w)
        if step > 1:
            mean = draw(*shape, **kind) * size / 2
            square = (mean.square() + draw(*shape, **kind).square() * size**2) / 2
        return w, g, mean, square, step, lr, decay, *betas, eps

    yield "a later step", *sizes(7, step=5)
    yield "the first step", *sizes(3, 5, step=1, size=2.0)
    yield "after a thousand steps", *sizes(2, 3, 5, step=1000)
    yield "large gradients", *sizes(5, 3, step=3, size=100.0)
    yield "tiny gradients", *sizes(11, step=2, size=1e-6)
    yield "gradients of zero", *sizes(5, step=1, size=0.0)
    yield "with weight decay", *sizes(7, 2, step=11, decay=0.3)
    yield "decay and no gradient", *sizes(3, step=1, size=0.0, decay=0.5, lr=0.2)
    yield "other betas", *sizes(3, 7, step=5, betas=(0.8, 0.95), lr=0.03)
    yield "another eps", *sizes(5, 2, step=7, eps=0.5)
    yield "float64", *sizes(2, 7, step=3, decay=0.1, dtype=torch.float64)
    yield "a weight without axes", *sizes(step=2)
    *tensors, step, lr, decay, beta1, beta2, eps = sizes(5, 3, step=4)
    yield "transposed", *(tensor.T for tensor in tensors), step, lr, decay, beta1, beta2, eps


def _adamw(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g * g
    first, second = 1 - beta1**step, 1 - beta2**step
    move = (mean / first) / ((square / second).sqrt() + eps)
    w = w - lr * move - lr * decay * w
    return w, mean, square


def _use_settings(answer, w, g, mean, square, step, lr, decay, beta1, beta2, eps):
    """Settings are handed over where they are not what they are without being told."""
    told = {"beta1": beta1, "beta2": beta2} if (beta1, beta2) != (0.9, 0.98) else {}
    told |= {"eps": eps} if eps != 1e-8 else {}
    return answer(w, g, mean, square, step, lr, decay, **told)


adamw_step = Exercise(
    name="adamw_step",
    trials=_weights_and_means,
    right=_adamw,
    use=_use_settings,
    returns=("w", "mean", "square"),
    mistakes={
        "no bias correction": Mistake(
            "The means are not divided by the share that is filled: they begin at 0, so in the first steps they are "
            "too small without that. See section 12.12.",
            {"1 - beta1**step, 1 - beta2**step": "1.0, 1.0"},
        ),
        "mean alone corrected": Mistake(
            "The mean is divided by the share that is filled, and the mean of the squares is not: both begin at 0. "
            "See section 12.12.",
            {"1 - beta2**step": "1.0"},
        ),
        "square alone corrected": Mistake(
            "The mean of the squares is divided by the share that is filled, and the mean is not: both begin at 0. "
            "See section 12.12.",
            {"1 - beta1**step": "1.0"},
        ),
        "one share for both": Mistake(
            "Both means are divided by the share of the first, 1 − beta1 to the power of step; the mean of the squares "
            "has beta2 in its own. See section 12.12.",
            {"beta2**step": "beta1**step"},
        ),
        "not to the power of the step": Mistake(
            "The means are divided by 1 − beta at every step, which is right only for the first: the share that is "
            "filled grows with the step. See section 12.12.",
            {"beta1**step": "beta1", "beta2**step": "beta2"},
        ),
        "multiplied instead of divided": Mistake(
            "The means are multiplied by the share that is filled; they are too small, and dividing by it mends that. "
            "See section 12.12.",
            {"mean / first": "mean * first", "square / second": "square * second"},
        ),
        "counted from 0": Mistake(
            "The share that is filled is taken for one step too few, so that the first step divides by 0: "
            "the first step is step 1. See section 12.12.",
            {"beta1**step": "beta1 ** (step - 1)", "beta2**step": "beta2 ** (step - 1)"},
        ),
        "betas swapped": Mistake(
            "The two betas have changed places: the mean should forget fast, with 0.9, and the squares slowly, with "
            "0.98. See section 12.12.",
            {"    mean =": "    beta1, beta2 = beta2, beta1\n    mean ="},
        ),
        "defaults of the betas swapped": Mistake(
            "The defaults of the betas have changed places: beta1 is 0.9 and beta2 is 0.98. See section 12.12.",
            {"beta1=0.9, beta2=0.98": "beta1=0.98, beta2=0.9"},
        ),
        "old and new swapped": Mistake(
            "The new gradient gets the share beta and the old mean what is left; beta should be the share of the old "
            "one. See section 12.12.",
            {
                "beta1 * mean + (1 - beta1) * g": "(1 - beta1) * mean + beta1 * g",
                "beta2 * square + (1 - beta2)": "(1 - beta2) * square + beta2",
            },
        ),
        "square of the mean": Mistake(
            "The second mean takes in the square of the first; it should take in the square of the gradient. See "
            "section 12.12.",
            {"g * g": "mean * mean"},
        ),
        "square forgotten": Mistake(
            "The second mean is that of the gradients again, and its root is nan where it is negative: "
            "it is the mean of their squares. See section 12.12.",
            {"g * g": "g"},
        ),
        "no root": Mistake(
            "The mean is divided by the mean of the squares itself: the typical size is the root of that. See section "
            "12.12.",
            {".sqrt()": ""},
        ),
        "no size": Mistake(
            "The weights move by rate times mean, large gradients far and small ones hardly: the mean should be "
            "divided by the typical size. See section 12.12.",
            {" / ((square / second).sqrt() + eps)": ""},
        ),
        "eps in the root": Mistake(
            "eps is added under the root; it should be added to the root itself. See section 12.12.",
            {".sqrt() + eps": ".add(eps).sqrt()"},
        ),
        "eps before the share": Mistake(
            "eps is added to the root of the mean of the squares before this is divided by its share, so in the first "
            "steps it weighs more than it should: divide first, take the root, then add eps. See section 12.12.",
            {"((square / second).sqrt() + eps)": "((square.sqrt() + eps) / math.sqrt(second))"},
        ),
        "no eps": Mistake(
            "Nothing is added to the root, so where the gradients are zero, 0 is divided by 0: eps is missing in the "
            "divisor. See section 12.12.",
            {".sqrt() + eps": ".sqrt()"},
        ),
        "eps times the root": Mistake(
            "The root is multiplied by eps, which should be added to it. See section 12.12.",
            {".sqrt() + eps": ".sqrt() * eps"},
        ),
        "uphill": Mistake(
            "The weights move along the gradient, where the loss grows: the move should be subtracted. See section "
            "12.12.",
            {"w - lr * move": "w + lr * move"},
        ),
        "old means used": Mistake(
            "The weights have moved by the means from before this gradient: first the means, then the move. See "
            "section 12.12.",
            {
                "    mean =": "    old_mean, old_square = mean, square\n    mean =",
                "(mean / first) / ((square": "(old_mean / first) / ((old_square",
            },
        ),
        "no weight decay": Mistake(
            "These are the numbers without weight decay: the weights should be shrunk by lr · decay · w. See section "
            "12.12.",
            {" - lr * decay * w": ""},
        ),
        "decay in the gradient": Mistake(
            "The decay is added to the gradient, where the division by the size nearly undoes it, as in Adam before "
            "AdamW: it should be taken from the weights themselves. See section 12.12.",
            {"    mean =": "    g = g + decay * w\n    mean =", " - lr * decay * w": ""},
        ),
        "decay after the move": Mistake(
            "The decay is taken from the weights after their move; it should be taken from the w that was given. See "
            "section 12.12.",
            {"w - lr * move - lr * decay * w": "(w - lr * move) * (1 - lr * decay)"},
        ),
        "decay without the rate": Mistake(
            "The weights are shrunk by decay · w in every step; it should be lr · decay · w, so that the warm-up "
            "slows this down too. See section 12.12.",
            {"lr * decay": "decay"},
        ),
        "decay the wrong way": Mistake(
            "Weight decay makes the weights larger; it should take lr · decay · w away from them. See section 12.12.",
            {"- lr * decay": "+ lr * decay"},
        ),
        "corrected means returned": Mistake(
            "The means are returned divided by their share: the next step needs them as they were before the division. "
            "See section 12.12.",
            {"return w, mean, square": "return w, mean / first, square / second"},
        ),
        "results swapped": Mistake(
            "The two means have changed places in what is returned: the mean of the gradients comes before that of "
            "their squares. See section 12.12.",
            {"return w, mean, square": "return w, square, mean"},
        ),
        "means not renewed": Mistake(
            "The two means come back as they were given, so that the next step forgets this gradient. See section "
            "12.12.",
            {"    mean =": "    old = mean, square\n    mean =", "return w, mean, square": "return w, *old"},
        ),
        "the move alone": Mistake(
            "The first result is how far the weights move; it should be the weights after the move. See section 12.12.",
            {"w - lr * move - lr": "lr * move + lr"},
        ),
        "the step alone": Mistake(
            "The first result is what is to be added to the weights; it should be the weights after that. See section "
            "12.12.",
            {"w - lr * move - lr": "-lr * move - lr"},
        ),
        "counted one step too far": Mistake(
            "The share that is filled is taken for one step too many: the first step is step 1 already, so nothing is "
            "added to it. See section 12.12.",
            {"beta1**step": "beta1 ** (step + 1)", "beta2**step": "beta2 ** (step + 1)"},
        ),
        "share not taken from 1": Mistake(
            "The means are divided by beta to the power of step, which is what is not yet filled; the filled share is "
            "1 less that. See section 12.12.",
            {"1 - beta1**step, 1 - beta2**step": "beta1**step, beta2**step"},
        ),
        "betas times the step": Mistake(
            "The betas are multiplied by the step instead of raised to its power. See section 12.12.",
            {"beta1**step": "beta1 * step", "beta2**step": "beta2 * step"},
        ),
        "betas hard-coded": Mistake(
            "With other betas nothing changes: they are 0.9 and 0.98, whatever `beta1` and `beta2` say. See section "
            "12.12.",
            {"    mean =": "    beta1, beta2 = 0.9, 0.98\n    mean ="},
        ),
        "eps hard-coded": Mistake(
            "With another eps nothing changes: it is 1e-8, whatever `eps` says. See section 12.12.",
            {"    mean =": "    eps = 1e-8\n    mean ="},
        ),
        "betas and eps hard-coded": Mistake(
            "With other betas or another eps nothing changes: they are 0.9, 0.98 and 1e-8, whatever the arguments "
            "say. See section 12.12.",
            {"    mean =": "    beta1, beta2, eps = 0.9, 0.98, 1e-8\n    mean ="},
        ),
        "rate forgotten": Mistake(
            "The weights move by the whole step, whatever the rate: the move should be multiplied by lr. See section "
            "12.12.",
            {"lr * move": "move"},
        ),
        "root before the share": Mistake(
            "The root is taken of the mean of the squares before it is divided by its share; divide first. See "
            "section 12.12.",
            {"(square / second).sqrt()": "square.sqrt() / second"},
        ),
        "decay in the gradient and in the weights": Mistake(
            "The decay acts twice, added to the gradient and taken from the weights; the latter alone is meant. "
            "See section 12.12.",
            {"    mean =": "    g = g + decay * w\n    mean ="},
        ),
        "weights last": Mistake(
            "All three come back in another order: the weights are the first, then the mean of the gradients, then "
            "that of their squares. See section 12.12.",
            {"return w, mean, square": "return mean, square, w"},
        ),
        "weights alone": Mistake(
            "Only the weights are returned; the next step needs the two means as well. See section 12.12.",
            {"return w, mean, square": "return w"},
        ),
        "sign of the gradient": Mistake(
            "The weights move by the sign of the mean; the mean should be divided by the typical size of its own "
            "gradients. See section 12.12.",
            {" / ((square / second).sqrt() + eps)": ".sign()"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "torch's optimizers change weights and means in place; in this exercise whoever handed them over still "
            "needs them. See section 12.6."
        ),
        "sizes instead of squares": Mistake(
            "The second mean is that of the sizes of the gradients, and its root is taken all the same: it should be "
            "the mean of their squares. See section 12.12.",
            {"g * g": "g.abs()"},
        ),
        "another default of beta2": Mistake(
            "Where the betas are not given, beta2 is 0.999, as in PyTorch; in this chapter it is 0.98. See section "
            "12.12.",
            {"beta2=0.98": "beta2=0.999"},
        ),
        "gradient instead of its mean": Mistake(
            "The weights move along the gradient itself, and should along its running mean. See section 12.12.",
            {"(mean / first)": "g"},
        ),
        "one size for all": Mistake(
            "One size is taken for all weights, the mean over the tensor; each weight has its own, which is the point "
            "of Adam. See section 12.12.",
            {"(square / second)": "(square / second).mean()"},
        ),
    },
)
