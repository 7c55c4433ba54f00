"""The exercises of the chapter on training. Used from chapter 12 on."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.largest_tensor import largest_tensor, yes_or_no

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
    """Return the same numbers as a non-contiguous view."""
    return table.transpose(0, 1).contiguous().transpose(0, 1)


def _smoothed(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    right = log_probs.gather(-1, target[..., None]).squeeze(-1)
    losses = -(1 - smoothing) * right - smoothing * log_probs.mean(-1)
    return losses[target != pad_id].mean()


def _by_torch(logits, target, smoothing, pad_id):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=smoothing)


def _loss_and_gradient(answer, logits, target, smoothing, pad_id):
    """Return the loss and the gradient of the logits, with zeros where no gradient arrives."""
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
    result_names=("loss", "the gradient of the logits"),
    chapter=12,
    signs={
        "axes left": lambda found, *inputs: found[0].dim() > 0,
        "gradient of one part missing": _only_the_gradient,
        "a number instead of a tensor": lambda found, *inputs: isinstance(found[0], float),
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
    """Divide the rate by its peak, so that small rates are compared precisely."""
    rate = answer(step, peak, warmup, steps, cooldown)
    return rate / peak if isinstance(rate, int | float) and not isinstance(rate, bool) else rate


def _trapezoid(step, peak, warmup, steps, cooldown):
    up, down = step / warmup, (steps - step) / cooldown
    return peak * min(1.0, up, down)


plateau_rate = Exercise(
    name="plateau_rate",
    trials=_steps,
    right=_trapezoid,
    result_names=("rate / peak",),
    use=_share_of_the_peak,
    chapter=12,
    signs={
        "a tensor instead of a number": lambda found, *inputs: isinstance(found, Tensor),
        "rounded": lambda found, step, peak, *sizes: any(
            math.isclose(found * peak, round(_trapezoid(step, peak, *sizes), digits), rel_tol=1e-9)
            for digits in range(2, 9)
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


def _as_list(first, second, rest):
    return [first, second, *(rest if isinstance(rest, tuple) else () if rest is None else (rest,))]


def _use_three(answer, first, second, rest, limit):
    """Return the first two results, the rest as one tensor, and whether memory is shared."""
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
    """Return whether two tensors share memory."""
    return (
        isinstance(new, Tensor)
        and new.device == old.device
        and new.untyped_storage().data_ptr() == old.untyped_storage().data_ptr()
    )


def _kind_of(found):
    if isinstance(found, list | tuple):
        return "a list"
    one = isinstance(found, int | float) or (isinstance(found, Tensor) and found.numel() == 1)
    return "a number" if one else "something else"


clip_together = Exercise(
    name="clip_together",
    trials=_three_gradients,
    right=_scaled,
    result_names=("first", "second", "the rest", "whether it shares its memory with what was given"),
    use=_use_three,
    chapter=12,
    signs={
        "short ones dropped": lambda found, *inputs: isinstance(found, tuple) and len(found) == 1,
        "one long vector": lambda found, *inputs: (
            isinstance(found, Tensor)
            and found.dim() == 1
            and len(found) == sum(gradient.numel() for gradient in _as_list(*inputs[:3]))
        ),
        "a number returned as well": lambda found, *inputs: (
            isinstance(found, tuple)
            and len(found) == 3
            and sorted(_kind_of(f) for f in found[:2]) == ["a list", "a number"]
        ),
        "no list returned": lambda found, *inputs: not isinstance(found, list | tuple | Tensor | int | float),
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


def _use_parts(answer, weight, pad_id, parts):
    """Return the gradient, whether the weight is unchanged, and whether all logits existed at the same time."""
    counts = [len(target) for _, target in parts]
    # Padding may be dropped, and D numbers for each logit of one part are no logits of all parts.
    can_tell = all((target != pad_id).all() for _, target in parts) and sum(counts) > max(counts) * weight.size(0)
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


def _points_along(move, gradient):
    """Return whether two tensors have the same direction."""
    by = float((move * gradient).sum() / gradient.square().sum())
    return by > 0 and torch.allclose(move, by * gradient, rtol=1e-3, atol=1e-5)


def _accumulated(weight, parts, pad_id):
    weight = weight.detach().clone().requires_grad_()
    loss = count = 0
    for x, target in parts:
        count += int((target != pad_id).sum())
        loss = loss + F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction="sum")
    return torch.autograd.grad(loss / count, weight)[0]


accumulated_gradient = Exercise(
    name="accumulated_gradient",
    trials=_several_parts,
    right=_accumulated,
    result_names=(
        "gradient",
        "whether weight requires gradients afterwards, or holds one",
        "whether the logits of all parts were there at one time",
    ),
    use=_use_parts,
    chapter=12,
    signs={
        "one number instead of the gradient": lambda found, *inputs: (
            isinstance(found[0], Tensor | float) and getattr(found[0], "ndim", 0) == 0
        ),
        "one axis instead of two": lambda found, *inputs: isinstance(found[0], Tensor) and found[0].dim() == 1,
        "nan for a part of padding": lambda found, weight, pad_id, parts: bool(
            any((target == pad_id).all() for _, target in parts) and found[0].isnan().any()
        ),
        "weight after a step": lambda found, weight, pad_id, parts: _points_along(
            weight - found[0], accumulated_gradient.right(weight, parts, pad_id)
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
    """Pass only the settings that differ from their defaults."""
    told = {"beta1": beta1, "beta2": beta2} if (beta1, beta2) != (0.9, 0.98) else {}
    told |= {"eps": eps} if eps != 1e-8 else {}
    return answer(w, g, mean, square, step, lr, decay, **told)


adamw_step = Exercise(
    name="adamw_step",
    trials=_weights_and_means,
    right=_adamw,
    use=_use_settings,
    result_names=("w", "mean", "square"),
    chapter=12,
)
