"""Answers to the exercises of chapter 12."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, unnamed, wrong

# -- smoothed_loss ------------------------------------------------------------------------------------


@right
def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.size(-1)
    label = F.one_hot(target, V).to(logits.dtype) * (1 - smoothing) + smoothing / V
    loss = -(label * F.log_softmax(logits, dim=-1)).sum(dim=-1)
    real = (target != pad_id).to(loss.dtype)
    return (loss * real).sum() / real.sum()


@right
def smoothed_loss(logits, target, smoothing, pad_id):
    total, count = 0.0, 0
    for scores, ids in zip(logits, target, strict=True):
        for row, i in zip(scores, ids, strict=True):
            if i != pad_id:
                log_p = row - torch.logsumexp(row, dim=0)
                total = total - (1 - smoothing) * log_p[i] - smoothing * log_p.mean()
                count += 1
    return total / count


@wrong("padding counted")
def smoothed_loss(logits, target, smoothing, pad_id):
    return F.cross_entropy(logits.transpose(1, 2), target, label_smoothing=smoothing)


@wrong("padding counted in the smoothing")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = F.log_softmax(logits, dim=-1)
    nll = F.nll_loss(log_p.transpose(1, 2), target, ignore_index=pad_id)
    return (1 - smoothing) * nll + smoothing * (-log_p.mean())


@wrong("padding in the divisor")
def smoothed_loss(logits, target, smoothing, pad_id):
    flat = logits.reshape(-1, logits.shape[-1])
    loss = F.cross_entropy(flat, target.reshape(-1), ignore_index=pad_id, label_smoothing=smoothing, reduction="none")
    return loss.mean()


@wrong("mean over the sentences")
def smoothed_loss(logits, target, smoothing, pad_id):
    means = []
    for row, ids in zip(logits, target, strict=True):
        keep = ids != pad_id
        means.append(F.cross_entropy(row[keep], ids[keep], label_smoothing=smoothing))
    return torch.stack(means).mean()


@wrong("mask inverted")
def smoothed_loss(logits, target, smoothing, pad_id):
    padding = target == pad_id
    return F.cross_entropy(logits[padding], target[padding], label_smoothing=smoothing)


@wrong("sum instead of mean")
def smoothed_loss(logits, target, smoothing, pad_id):
    return F.cross_entropy(logits.mT, target, ignore_index=pad_id, label_smoothing=smoothing, reduction="sum")


@wrong("axes left")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(-1)
    picked = torch.gather(log_p, 2, target.unsqueeze(2)).squeeze(2)
    loss = -(1 - smoothing) * picked - smoothing * log_p.mean(2)
    return loss * (target != pad_id)


@wrong("axes left")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target != pad_id
    return F.cross_entropy(logits[keep], target[keep], label_smoothing=smoothing, reduction="none")


@wrong("no smoothing")
def smoothed_loss(logits, target, smoothing, pad_id):
    return F.cross_entropy(logits.mT, target, ignore_index=pad_id)


@wrong("shared among the others only")
def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.shape[-1]
    label = torch.full_like(logits, smoothing / (V - 1))
    label.scatter_(-1, target[..., None], 1 - smoothing)
    loss = -(label * logits.log_softmax(-1)).sum(-1)
    return loss[target != pad_id].mean()


@wrong("pad gets no share")
def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.shape[-1]
    label = torch.full_like(logits, smoothing / (V - 1))
    label[..., pad_id] = 0
    label += F.one_hot(target, V) * (1 - smoothing)
    loss = -(label * logits.log_softmax(-1)).sum(-1)
    return loss[target != pad_id].mean()


@wrong("label sums to more than one")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target != pad_id
    log_p = logits[keep].log_softmax(-1)
    hard = F.nll_loss(log_p, target[keep])
    return hard - smoothing * log_p.mean()


@wrong("label sums to less than one")
def smoothed_loss(logits, target, smoothing, pad_id):
    label = torch.full_like(logits, smoothing / logits.shape[-1])
    label = label.scatter(-1, target.unsqueeze(-1), 1 - smoothing)
    loss = -(label * logits.log_softmax(-1)).sum(-1)
    return loss[target != pad_id].mean()


@wrong("a constant factor")  # sentences of one token lose their axis
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(-1)
    real = target != pad_id
    loss = -(1 - smoothing) * log_p.gather(-1, target[..., None]).squeeze() - smoothing * log_p.mean(-1)
    return (loss * real).sum() / real.sum()


@wrong("logarithm of the mean probability")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p, real = logits.log_softmax(-1), target != pad_id
    right = log_p.gather(-1, target[..., None])[..., 0]
    return -(1 - smoothing) * right[real].mean() + smoothing * math.log(logits.size(-1))


@wrong("0 taken for the pad")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target > 0
    return F.cross_entropy(logits[keep], target[keep], label_smoothing=smoothing)


@wrong("sum over the vocabulary")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target != pad_id
    log_p = logits[keep].log_softmax(-1)
    hard = F.nll_loss(log_p, target[keep])
    return (1 - smoothing) * hard - smoothing * log_p.sum(-1).mean()


@wrong("shares swapped")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target != pad_id
    log_p = logits[keep].log_softmax(-1)
    return smoothing * F.nll_loss(log_p, target[keep]) - (1 - smoothing) * log_p.mean()


@wrong("sign")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(-1)
    picked = log_p.gather(-1, target.unsqueeze(-1))[..., 0]
    return ((1 - smoothing) * picked + smoothing * log_p.mean(-1))[target != pad_id].mean()


@wrong("no softmax")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target != pad_id
    hard = F.nll_loss(logits[keep], target[keep])
    return (1 - smoothing) * hard - smoothing * logits[keep].mean()


@wrong("no logarithm")
def smoothed_loss(logits, target, smoothing, pad_id):
    keep = target != pad_id
    p = torch.softmax(logits[keep], dim=-1)
    return (1 - smoothing) * F.nll_loss(p, target[keep]) - smoothing * p.mean()


@wrong("softmax before the loss")
def smoothed_loss(logits, target, smoothing, pad_id):
    p = F.softmax(logits, dim=-1)
    return F.cross_entropy(p.mT, target, ignore_index=pad_id, label_smoothing=smoothing)


@wrong("softmax over the positions")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = torch.log_softmax(logits, dim=1)
    picked = log_p.gather(2, target[:, :, None]).squeeze(2)
    return (-(1 - smoothing) * picked - smoothing * log_p.mean(2))[target != pad_id].mean()


@wrong("changes its input")
def smoothed_loss(logits, target, smoothing, pad_id):
    loss = F.cross_entropy(logits.mT, target, ignore_index=pad_id, label_smoothing=smoothing)
    target[target == pad_id] = -100
    return loss


@wrong("padding in the numerator")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    loss = -(1 - smoothing) * log_probs.gather(-1, target[..., None])[..., 0]
    loss = loss - smoothing * log_probs.mean(-1)
    return loss.sum() / (target != pad_id).sum()


@wrong("divided by the sentences")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    loss = -(1 - smoothing) * log_probs.gather(-1, target[..., None])[..., 0]
    loss = loss - smoothing * log_probs.mean(-1)
    return loss[target != pad_id].sum() / target.size(0)


@wrong("share divided by the others")
def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.size(-1)
    log_probs = logits.log_softmax(-1)
    label = torch.full_like(log_probs, smoothing / (V - 1))
    label = label + (1 - smoothing) * F.one_hot(target, V)
    return -(label * log_probs).sum(-1)[target != pad_id].mean()


@wrong("entropy subtracted")
def smoothed_loss(logits, target, smoothing, pad_id):
    V = logits.size(-1)
    label = (1 - smoothing) * F.one_hot(target, V) + smoothing / V
    loss = F.kl_div(logits.log_softmax(-1), label.to(logits), reduction="none").sum(-1)
    return loss[target != pad_id].mean()


@wrong("shifted again")
def smoothed_loss(logits, target, smoothing, pad_id):
    logits, target = logits[:, :-1], target[:, 1:]
    log_probs = logits.log_softmax(-1)
    loss = -(1 - smoothing) * log_probs.gather(-1, target[..., None])[..., 0] - smoothing * log_probs.mean(-1)
    return loss[target != pad_id].mean()


@wrong("one target for all")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    return -smoothing * log_probs.mean(-1)[target != pad_id].mean()


@wrong("logarithm of the smoothed probability")
def smoothed_loss(logits, target, smoothing, pad_id):
    probs = (1 - smoothing) * logits.softmax(-1) + smoothing / logits.size(-1)
    return -probs.gather(-1, target[..., None])[..., 0].log()[target != pad_id].mean()


@wrong("no gradient")
@torch.no_grad()
def smoothed_loss(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    loss = -(1 - smoothing) * log_probs.gather(-1, target[..., None])[..., 0] - smoothing * log_probs.mean(-1)
    return loss[target != pad_id].mean()


@wrong("gradient of one part missing")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_probs = logits.log_softmax(-1)
    spread = log_probs.mean(-1).detach()
    loss = -(1 - smoothing) * log_probs.gather(-1, target[..., None])[..., 0] - smoothing * spread
    return loss[target != pad_id].mean()


def _two_logs(logits, target):
    """The logarithm of the right piece's probability, and the mean of all."""
    logs = F.log_softmax(logits, dim=-1)
    return torch.take_along_dim(logs, target[..., None], -1)[..., 0], logs.mean(dim=-1)


@wrong("sign of the smoothing")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, soft = _two_logs(logits, target)
    return (smoothing * soft - (1 - smoothing) * hard)[target != pad_id].mean()


@wrong("smoothing of 0.1 whatever is asked")
def smoothed_loss(logits, target, smoothing, pad_id):
    return F.cross_entropy(logits.mT, target, ignore_index=pad_id, label_smoothing=0.1)


@wrong("a number instead of a tensor")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, soft = _two_logs(logits, target)
    return float(-(smoothing * soft + (1 - smoothing) * hard)[target != pad_id].mean())


@wrong("logarithm of the mean probability")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, _ = _two_logs(logits, target)
    even = torch.log(torch.softmax(logits, -1).mean(-1))
    return -(smoothing * even + (1 - smoothing) * hard)[target != pad_id].mean()


@wrong("shared among the others, and padding in the divisor")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, soft = _two_logs(logits, target)
    others = (soft * logits.size(-1) - hard) / (logits.size(-1) - 1)
    return -((1 - smoothing) * hard + smoothing * others).where(target != pad_id, 0.0).mean()


@wrong("padding at the end only")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, soft = _two_logs(logits, target)
    losses = -(smoothing * soft + (1 - smoothing) * hard)
    lengths = (target != pad_id).sum(1).tolist()
    return torch.cat([row[:length] for row, length in zip(losses, lengths, strict=True)]).mean()


@wrong("changes its input")
def smoothed_loss(logits, target, smoothing, pad_id):
    logits -= logits.max(dim=-1, keepdim=True).values
    hard, soft = _two_logs(logits, target)
    return -(smoothing * soft + (1 - smoothing) * hard)[target != pad_id].mean()


@unnamed("no backward pass through what was overwritten")
def smoothed_loss(logits, target, smoothing, pad_id):
    logs = logits.log_softmax(-1)
    logs[target == pad_id] = 0.0
    losses = -(1 - smoothing) * logs.gather(-1, target[..., None])[..., 0] - smoothing * logs.mean(-1)
    return losses.sum() / (target != pad_id).sum()


@unnamed("no backward pass through what was divided in place")
def smoothed_loss(logits, target, smoothing, pad_id):
    p = logits.exp()
    p /= p.sum(-1, keepdim=True)
    losses = -(1 - smoothing) * p.log().gather(-1, target[..., None])[..., 0] - smoothing * p.log().mean(-1)
    return losses[target != pad_id].mean()


@unnamed("a backward pass inside")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, soft = _two_logs(logits, target)
    loss = -(smoothing * soft + (1 - smoothing) * hard)[target != pad_id].mean()
    if loss.requires_grad:
        loss.backward()
    return loss


@unnamed("a view of what cannot be seen so")
def smoothed_loss(logits, target, smoothing, pad_id):
    logits, target = logits.view(-1, logits.size(-1)), target.view(-1)
    return F.cross_entropy(logits, target, ignore_index=pad_id, label_smoothing=smoothing)


# -- plateau_rate -------------------------------------------------------------------------------------


@right
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup:
        return peak * step / warmup
    if step <= steps - cooldown:
        return peak
    return peak * (1 - (step - (steps - cooldown)) / cooldown)


@right
def plateau_rate(step, peak, warmup, steps, cooldown):
    table = torch.ones(steps + 1, dtype=torch.float64)
    table[: warmup + 1] = torch.linspace(0, 1, warmup + 1, dtype=torch.float64)
    table[steps - cooldown :] = torch.linspace(1, 0, cooldown + 1, dtype=torch.float64)
    return peak * table[step].item()


@wrong("counted from 0")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup:
        return peak * (step - 1) / warmup
    return peak * min(1, (steps - step) / cooldown)


@wrong("counted from 0, up to the peak")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * (step - 1) / warmup
    if step <= steps - cooldown:
        return peak
    return peak * (steps - step) / cooldown


@wrong("counted from 0, up to the peak")
def plateau_rate(step, peak, warmup, steps, cooldown):
    rates = [peak * i / warmup for i in range(warmup - 1)] + [peak] * (steps - cooldown - warmup + 1)
    rates += [peak * left / cooldown for left in range(cooldown - 1, -1, -1)]
    return rates[step - 1]


@wrong("one step early")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak if step < steps - cooldown else peak * (steps - step) / cooldown


@wrong("no warm-up")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < steps - cooldown:
        return peak
    return peak * (steps - step) / cooldown


@wrong("no cool-down")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * min(1, step / warmup)


@wrong("no plateau")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup:
        return peak * step / warmup
    return peak * (1 - (step - warmup) / (steps - warmup))


@wrong("cool-down rises")
def plateau_rate(step, peak, warmup, steps, cooldown):
    begin = steps - cooldown
    if step > begin:
        return peak * (step - begin) / (steps - begin)
    return peak * min(1, step / warmup)


@wrong("never zero")
def plateau_rate(step, peak, warmup, steps, cooldown):
    left = steps - step + 1
    return min(peak, peak * step / warmup, peak * left / cooldown)


@wrong("cool-down one step early")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step < steps - cooldown:
        return peak
    return peak * (1 - (step - (steps - cooldown) + 1) / cooldown)


@wrong("cool-down one step early, held at 0")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    left = max(steps - 1 - step, 0)
    return peak * min(left / cooldown, 1.0)


@wrong("rounded")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return float(f"{peak * min(1.0, step / warmup, (steps - step) / cooldown):.3g}")


@unnamed("0 after a warm-up of one step")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup and warmup > 1:
        return peak * step / warmup
    return peak * min((steps - step) / cooldown, 1.0) if step > 1 else 0.0


@wrong("cooldown taken for a step")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step < cooldown:
        return peak
    return peak * (steps - step) / (steps - cooldown)


@wrong("falls after cooldown steps")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup:
        return peak * step / warmup
    elif step <= cooldown:
        return peak
    return peak * (steps - step) / cooldown


@wrong("warm-up counted twice")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step < steps - warmup - cooldown:
        return peak
    return peak * (steps - warmup - step) / cooldown


@wrong("a cosine")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step < steps - cooldown:
        return peak
    share = (steps - step) / cooldown
    return peak * (1 - math.cos(math.pi * share)) / 2


@wrong("a root")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * warmup**0.5 * min(step**-0.5, step * warmup**-1.5)


@wrong("largest instead of smallest")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return max(peak, peak * step / warmup, peak * (steps - step) / cooldown)


@wrong("whole division")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return (step // warmup) * peak
    return peak if step < steps - cooldown else peak * (steps - step) / cooldown


@wrong("peak forgotten")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return step / warmup
    return 1.0 if step < steps - cooldown else (steps - step) / cooldown


@wrong("a tensor instead of a number")
def plateau_rate(step, peak, warmup, steps, cooldown):
    limits = torch.tensor([1.0, step / warmup, (steps - step) / cooldown])
    return peak * limits.min()


@wrong("falls over all steps")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * min(step / warmup, 1 - step / steps)


@wrong("0 from the cool-down on")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    return float(peak) if step <= steps - cooldown else 0.0


@wrong("0 from the cool-down on")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * min(step / warmup, 1.0, (steps - step) // cooldown)


@wrong("whole division at both ends")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * float(min(step // warmup, 1, (steps - step) // cooldown))


@wrong("warm-up one step too long")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup:
        return peak * step / (warmup + 1)
    if step <= steps - cooldown:
        return peak
    return peak * (steps - step) / cooldown


@wrong("falls to the end of the cool-down's own length")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step <= steps - cooldown:
        return peak
    return peak * (1 - step / steps)


@wrong("added")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * (step / warmup + 1 + (steps - step) / cooldown)


@wrong("never down to 0")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step < steps - cooldown:
        return peak
    return peak * (steps + 1 - step) / (cooldown + 1)


@wrong("warm-up on the plateau again")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step > steps - cooldown:
        return peak * min(step / warmup, (steps - step) / cooldown)
    return peak * step / warmup


@wrong("the cool-down alone")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * (steps - step) / cooldown


@wrong("cool-down one step too long")
def plateau_rate(step, peak, warmup, steps, cooldown):
    down = (steps - step) / (1 + cooldown)
    return peak * min(down, step / warmup, 1)


@wrong("lengths exchanged")
def plateau_rate(step, peak, warmup, steps, cooldown):
    warmup, cooldown = cooldown, warmup
    return peak * min((steps - step) / cooldown, step / warmup, 1)


@wrong("above the peak")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return peak * min((steps - step) / cooldown, step / warmup)


@wrong("down to a tenth")
def plateau_rate(step, peak, warmup, steps, cooldown):
    last = steps - cooldown
    if step > last:
        return peak - 0.9 * peak * (step - last) / cooldown
    return peak * min(step / warmup, 1)


@wrong("rounded")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return round(peak * min((steps - step) / cooldown, step / warmup, 1), 3)


@wrong("warm-up in a curve")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step * step / warmup**2
    return peak * min((steps - step) / cooldown, 1)


@wrong("cool-down right after the warm-up")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step > warmup:
        return peak * max(1 - (step - warmup) / cooldown, 0)
    return peak * step / warmup


@wrong("peak one step early")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup - 1:
        return peak * step / warmup
    if step <= steps - cooldown:
        return peak
    return peak * (steps - step) / cooldown


@wrong("cool-down begins a step late")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step < warmup:
        return peak * step / warmup
    if step <= steps - cooldown + 1:
        return peak
    return peak * (steps - step) / cooldown


@unnamed("a cool-down of one step that does not come to 0")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if cooldown == 1:
        cooldown, steps = 0.5, steps + 0.5
    return peak * min(step / warmup, 1, (steps - step) / cooldown)


@unnamed("a smallest rate")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return max(peak * min(step / warmup, 1, (steps - step) / cooldown), 1e-8)


@wrong("rounded")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return round(peak * min(1, (steps - step) / cooldown, step / warmup), 8)


# -- clip_together ------------------------------------------------------------------------------------


@right
def clip_together(gradients, limit):
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(parameters, limit)
    return [parameter.grad for parameter in parameters]


@right
def clip_together(gradients, limit):
    squares = sum(g.square().sum() for g in gradients)
    factor = limit / squares.sqrt().clamp(min=limit)
    return [factor * g for g in gradients]


@wrong("each on its own")
def clip_together(gradients, limit):
    return [g if g.norm() <= limit else g / g.norm() * limit for g in gradients]


@wrong("by value")
def clip_together(gradients, limit):
    return [torch.minimum(torch.maximum(g, -torch.full_like(g, limit)), torch.full_like(g, limit)) for g in gradients]


@wrong("short ones lengthened")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g / norm * limit for g in gradients]


@wrong("all but zeros scaled")
def clip_together(gradients, limit):
    norm = torch.stack([g.norm() for g in gradients]).norm()
    if norm.item() == 0:
        return [g.clone() for g in gradients]
    return [g * (limit / norm) for g in gradients]


@wrong("long ones left")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    factor = max(1.0, (limit / norm).item())
    return [g * factor for g in gradients]


@wrong("nothing clipped")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    if norm > limit:
        for g in gradients:
            g = g * limit / norm
    return list(gradients)


@wrong("factor upside down")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g * norm / limit if norm > limit else g for g in gradients]


@wrong("limit forgotten")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g / norm if norm > limit else g for g in gradients]


@wrong("not divided by the norm")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g * limit if norm > limit else g for g in gradients]


@wrong("short ones dropped")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g * limit / norm for g in gradients if norm > limit]


@wrong("one long vector")
def clip_together(gradients, limit):
    flat = torch.cat([g.reshape(-1) for g in gradients])
    return flat * min(1.0, limit / flat.norm())


@wrong("norms added")
def clip_together(gradients, limit):
    norm = sum(g.norm().item() for g in gradients)
    return [g * min(1, limit / norm) if norm else g for g in gradients]


@wrong("first only")
def clip_together(gradients, limit):
    norm = gradients[0].norm()
    return [g * limit / norm if norm > limit else g for g in gradients]


@wrong("longest only")
def clip_together(gradients, limit):
    norm = max(torch.linalg.vector_norm(g).item() for g in gradients)
    return [g * limit / norm if norm > limit else g for g in gradients]


@wrong("largest entry")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).abs().max()
    return [g * limit / norm if norm > limit else g for g in gradients]


@wrong("no root")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) ** 2 for g in gradients]).sum()
    return [g * limit / norm if norm > limit else g for g in gradients]


@wrong("sum of sizes")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm(p=1)
    return [g * limit / norm if norm > limit else g for g in gradients]


@wrong("mean of the squares")
def clip_together(gradients, limit):
    flat = torch.cat([g.reshape(-1) for g in gradients])
    norm = (flat**2).mean() ** 0.5
    return [g * limit / norm if norm > limit else g for g in gradients]


@wrong("a number returned as well")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g * limit / norm if norm > limit else g for g in gradients], norm


@wrong("changes its input")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    if norm > limit:
        for g in gradients:
            g *= limit / norm
    return gradients


@wrong("same tensors returned")
def clip_together(gradients, limit):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    return [g * (limit / norm) for g in gradients] if norm > limit else gradients


@wrong("mean of the norms")
def clip_together(gradients, limit):
    norm = torch.stack([g.norm() for g in gradients]).mean()
    factor = (limit / norm).clamp(max=1.0) if norm > 0 else 1.0
    return [g * factor for g in gradients]


@wrong("limit shared out")
def clip_together(gradients, limit):
    each = limit / len(gradients)
    return [g * min(1.0, each / g.norm().item()) if g.norm() > 0 else g.clone() for g in gradients]


@wrong("squared factor")
def clip_together(gradients, limit):
    squares = sum(g.square().sum() for g in gradients)
    if squares <= limit**2:
        return [g.clone() for g in gradients]
    return [g * limit**2 / squares for g in gradients]


@wrong("limit without its square")
def clip_together(gradients, limit):
    squares = sum((g * g).sum() for g in gradients)
    if squares <= limit:
        return [g.clone() for g in gradients]
    return [g * (limit / squares).sqrt() for g in gradients]


@wrong("limit subtracted")
def clip_together(gradients, limit):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    return [g - torch.relu(norm - limit) for g in gradients]


@wrong("nan for zeros")
def clip_together(gradients, limit):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    return [g / norm * torch.minimum(norm, torch.full_like(norm, limit)) for g in gradients]


@wrong("one factor too many")
def clip_together(gradients, limit):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    if norm <= limit:
        return [g.clone() for g in gradients]
    return [limit * g / norm * limit for g in gradients]


def _long(gradients):
    return math.sqrt(sum(float(g.square().sum()) for g in gradients))


@wrong("means of the squares added")
def clip_together(gradients, limit):
    norm = math.sqrt(sum(float((g**2).mean()) for g in gradients))
    return [g * min(1.0, limit / max(norm, 1e-12)) for g in gradients]


@wrong("long ones skipped")
def clip_together(gradients, limit):
    return [g * (_long(gradients) <= limit) for g in gradients]


@wrong("short ones stretched, long ones left")
def clip_together(gradients, limit):
    norm = _long(gradients)
    return [g * limit / norm if 0 < norm < limit else g.clone() for g in gradients]


@wrong("norm so far")
def clip_together(gradients, limit):
    return [g * min(1.0, limit / max(_long(gradients[: i + 1]), 1e-12)) for i, g in enumerate(gradients)]


@wrong("limit of 1 whatever is asked")
def clip_together(gradients, limit):
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    return [g / torch.clamp(norm, min=1.0) for g in gradients]


@wrong("compared with 1")
def clip_together(gradients, limit):
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    if norm <= 1:
        return [g.clone() for g in gradients]
    return [limit * g / norm for g in gradients]


@wrong("a constant factor")  # the first three alone are measured
def clip_together(gradients, limit):
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients[:3]))
    return [g * (limit / norm) if norm > limit else g.clone() for g in gradients]


@wrong("no list returned")
def clip_together(gradients, limit):
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    return (g * (limit / norm) if norm > limit else g.clone() for g in gradients)


@unnamed("the norms")
def clip_together(gradients, limit):
    return torch.stack([g.norm() for g in gradients]).clamp(max=limit)


@wrong("short ones shortened")
def clip_together(gradients, limit):
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    return [g * (norm / limit if norm < limit else 1.0) for g in gradients]


@wrong("last only")
def clip_together(gradients, limit):
    for g in gradients:
        norm = g.square().sum().sqrt().item()
    by = limit / norm if norm > limit else 1.0
    return [g * by for g in gradients]


@wrong("three expected")
def clip_together(gradients, limit):
    a, b, c = gradients
    norm = math.sqrt(a.square().sum() + b.square().sum() + c.square().sum())
    return [g * (limit / norm) if norm > limit else g.clone() for g in (a, b, c)]


@wrong("short ones stretched, long ones left")
def clip_together(gradients, limit):
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    return [g * max(1.0, limit / (norm + 1e-12)) for g in gradients]


@wrong("long ones left")
def clip_together(gradients, limit):
    norm = torch.sqrt(sum(g.square().sum() for g in gradients))
    return [g.clone() if norm > limit else g * (limit / norm) for g in gradients]


@wrong("stacked")
def clip_together(gradients, limit):
    norm = torch.stack(gradients).square().sum().sqrt()
    return [g * min(1.0, float(limit / norm)) for g in gradients]


@wrong("put end to end with their axes")
def clip_together(gradients, limit):
    norm = torch.cat(gradients).square().sum().sqrt()
    return [g * min(1.0, float(limit / norm)) for g in gradients]


@unnamed("rows of what has no axes")
def clip_together(gradients, limit):
    norm = math.sqrt(sum(row.square().sum().item() for g in gradients for row in g))
    return [g * (limit / norm) if norm > limit else g.clone() for g in gradients]


@unnamed("a view of what cannot be seen so")
def clip_together(gradients, limit):
    norm = torch.cat([g.view(-1) for g in gradients]).norm()
    return [g * (limit / norm) if norm > limit else g.clone() for g in gradients]


# -- accumulated_gradient -----------------------------------------------------------------------------


@right
def accumulated_gradient(weight, parts, pad_id):
    def total(w, part):
        x, target = part
        return F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum")

    real = sum(int(target.ne(pad_id).sum()) for _, target in parts)
    return sum(torch.func.grad(total)(weight, part) for part in parts) / real


@right
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = torch.zeros_like(weight), 0
    for x, target in parts:
        keep = target != pad_id
        x, target = x[keep], target[keep]
        probs = (x @ weight).softmax(-1)
        total = total + x.mT @ (probs - F.one_hot(target, weight.size(1)))  # the gradient by hand
        tokens += len(target)
    return total / tokens


@right
def accumulated_gradient(weight, parts, pad_id):
    w = nn.Parameter(weight.clone())
    for x, target in parts:
        F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum").backward()
    return w.grad / sum((target != pad_id).sum() for _, target in parts)


@wrong("mean of the means")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        (F.cross_entropy(x @ w, target, ignore_index=pad_id) / len(parts)).backward()
    return w.grad


@wrong("means added")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        F.cross_entropy(x @ w, target, ignore_index=pad_id).backward()
    return w.grad


@wrong("not divided")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum").backward()
    return w.grad


@wrong("divided by the parts")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum")
        (loss / len(parts)).backward()
    return w.grad


@wrong("padding counted")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    total = sum(len(target) for _, target in parts)
    for x, target in parts:
        (F.cross_entropy(x @ w, target, reduction="sum") / total).backward()
    return w.grad


@wrong("padding in the divisor")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    total = sum(target.numel() for _, target in parts)
    for x, target in parts:
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum")
        (loss / total).backward()
    return w.grad


@wrong("last part only")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    total = sum((target != pad_id).sum() for _, target in parts)
    for x, target in parts:
        w.grad = None
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum")
        (loss / total).backward()
    return w.grad


@wrong("last part's mean only")
def accumulated_gradient(weight, parts, pad_id):
    for x, target in parts:
        w = weight.clone().requires_grad_()
        F.cross_entropy(x @ w, target, ignore_index=pad_id).backward()
    return w.grad


@wrong("first part only")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        F.cross_entropy(x @ w, target, ignore_index=pad_id).backward()
        return w.grad


@wrong("first part only, divided by all tokens")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    number = sum((target != pad_id).sum() for _, target in parts)
    for x, target in parts:
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum") / number
        loss.backward()
        return w.grad


@wrong("mean of the means of parts with tokens")
def accumulated_gradient(weight, parts, pad_id):
    w, seen = weight.clone().requires_grad_(), 0
    for x, target in parts:
        real = target != pad_id
        if real.any():
            F.cross_entropy(x[real] @ w, target[real]).backward()
            seen += 1
    return w.grad / seen


@wrong("divided by the tokens so far")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    tokens = 0
    for x, target in parts:
        tokens += (target != pad_id).sum()
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum")
        (loss / tokens).backward()
    return w.grad


@wrong("divided by the last part's tokens")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum").backward()
    return w.grad / len(target)


@wrong("divided by the last part's tokens, without padding")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    for x, target in parts:
        count = int((target != pad_id).sum())
        F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum").backward()
    return w.grad / count


@unnamed("a part of one token squeezed")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    number = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        logits = (x @ w).squeeze()
        (F.cross_entropy(logits, target, ignore_index=pad_id, reduction="sum") / number).backward()
    return w.grad


@wrong("softmax before the loss")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    tokens = sum((target != pad_id).sum() for _, target in parts)
    for x, target in parts:
        probs = torch.softmax(x @ w, dim=1)
        (F.cross_entropy(probs, target, ignore_index=pad_id, reduction="sum") / tokens).backward()
    return w.grad


@wrong("divided twice")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    tokens = sum((target != pad_id).sum() for _, target in parts)
    for x, target in parts:
        (F.cross_entropy(x @ w, target, ignore_index=pad_id) / tokens).backward()
    return w.grad


@wrong("padding in the loss")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    tokens = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        (F.cross_entropy(x @ w, target, reduction="sum") / tokens).backward()
    return w.grad


@wrong("padding in the weights")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    everything = sum(len(target) for _, target in parts)
    for x, target in parts:
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id)
        (loss * len(target) / everything).backward()
    return w.grad


@wrong("wrong direction")
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = torch.zeros_like(weight), 0
    for x, target in parts:
        keep = target != pad_id
        label = F.one_hot(target[keep], weight.size(1))
        total += x[keep].mT @ (label - (x[keep] @ weight).softmax(-1))
        tokens += int(keep.sum())
    return total / tokens


@wrong("one number instead of the gradient")
def accumulated_gradient(weight, parts, pad_id):
    tokens = sum((target != pad_id).sum() for _, target in parts)
    losses = [F.cross_entropy(x @ weight, t, ignore_index=pad_id, reduction="sum") for x, t in parts]
    return sum(losses) / tokens


@wrong("one axis instead of two")
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = 0.0, 0
    for x, target in parts:
        keep = target != pad_id
        error = (x[keep] @ weight).softmax(-1) - F.one_hot(target[keep], weight.size(1))
        total = total + error.sum(0)
        tokens += keep.sum()
    return total / tokens


@wrong("changes its input")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    tokens = sum((target != pad_id).sum() for _, target in parts)
    for x, target in parts:
        loss = F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum")
        (loss / tokens).backward()
    weight -= 0.1 * w.grad
    return w.grad


@wrong("0 taken for the pad")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    tokens = sum((target > 0).sum().item() for _, target in parts)
    for x, target in parts:
        (F.cross_entropy(x @ weight, target, ignore_index=0, reduction="sum") / tokens).backward()
    return weight.grad


@right
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    tokens = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        share = (target != pad_id).sum() / tokens
        (F.cross_entropy(x @ weight, target, ignore_index=pad_id) * share).backward()
    return weight.grad


@wrong("two parts expected")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    first, second = parts
    tokens = (first[1] != pad_id).sum() + (second[1] != pad_id).sum()
    for x, target in (first, second):
        (F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction="sum") / tokens).backward()
    return weight.grad


@wrong("weight left changed")
def accumulated_gradient(weight, parts, pad_id):
    weight.requires_grad_(True)
    tokens = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        (F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction="sum") / tokens).backward()
    return weight.grad


@wrong("all parts at once")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    x = torch.cat([x for x, _ in parts])
    target = torch.cat([target for _, target in parts])
    F.cross_entropy(x @ weight, target, ignore_index=pad_id).backward()
    return weight.grad


@wrong("transposed")
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = 0.0, sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        error = (x @ weight).softmax(-1) - F.one_hot(target, weight.size(1))
        total = total + (error * (target != pad_id)[:, None]).T @ x
    return total / tokens


@wrong("sum over the vocabulary")
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = torch.zeros_like(weight), sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        real = target != pad_id
        total += x[real].T @ (x[real] @ weight).softmax(-1)
    return total / tokens


@wrong("means weighted by their share of the parts")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    tokens = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        loss = F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction="sum")
        (loss / tokens / len(parts)).backward()
    return weight.grad


@right
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = torch.zeros_like(weight), 0
    for x, target in parts:
        real = target != pad_id
        x, target = x[real], target[real]
        total += x.T @ ((x @ weight).softmax(-1) - F.one_hot(target, weight.size(1)))
        tokens += len(target)
    return total / tokens


def _own_gradient(weight, parts, pad_id):
    """Right."""
    w = weight.clone().requires_grad_()
    for x, target in parts:
        F.cross_entropy(x @ w, target, ignore_index=pad_id, reduction="sum").backward()
    return w.grad / sum((target != pad_id).sum() for _, target in parts)


@wrong("nan for a part of padding")
def accumulated_gradient(weight, parts, pad_id):
    counts = [int((target != pad_id).sum()) for _, target in parts]
    total = 0.0
    for part, count in zip(parts, counts, strict=True):
        x, target = (tensor[part[1] != pad_id] for tensor in part)
        labels = F.one_hot(target, weight.size(1)).to(weight)
        mean = x.T @ ((x @ weight).softmax(-1) - labels) / torch.tensor(count)
        total = total + mean * count
    return total / sum(counts)


@wrong("weight after a step")
def accumulated_gradient(weight, parts, pad_id):
    return weight - 0.3 * _own_gradient(weight, parts, pad_id)


@wrong("no copy that requires gradients")
def accumulated_gradient(weight, parts, pad_id):
    loss = sum(F.cross_entropy(x @ weight, t, ignore_index=pad_id, reduction="sum") for x, t in parts)
    loss.backward()
    return weight.grad


def _without_autograd(weight, parts, pad_id, probabilities, real):
    total, count = torch.zeros_like(weight), 0
    for x, target in parts:
        keep = (target != pad_id)[:, None].to(weight.dtype)
        labels = torch.zeros(len(target), weight.size(1)).to(weight).scatter_(1, target[:, None], 1.0)
        total += x.T @ (probabilities(x @ weight, keep) * (keep if real else 1.0) - labels * keep)
        count += int(keep.sum())
    return total / count


@wrong("softmax over the rows")
def accumulated_gradient(weight, parts, pad_id):
    def columns(logits, keep):
        return logits.masked_fill(keep == 0, -math.inf).softmax(0).nan_to_num(0.0)

    return _without_autograd(weight, parts, pad_id, columns, True)


@wrong("padding in the gradient")
def accumulated_gradient(weight, parts, pad_id):
    return _without_autograd(weight, parts, pad_id, lambda logits, keep: logits.softmax(1), False)


@right
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = torch.zeros_like(weight), 0
    for x, target in parts:
        x, target = x[target != pad_id], target[target != pad_id]
        error = (x @ weight).softmax(-1) - F.one_hot(target, weight.size(1))
        total += (x[:, :, None] * error[:, None, :]).sum(0)  # a matrix for each token
        tokens += len(target)
    return total / tokens


@wrong("all parts at once")  # without their padding
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    x, target = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    real = target != pad_id
    F.cross_entropy(x[real] @ weight, target[real]).backward()
    return weight.grad


@wrong("padding at the end only")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    counts = [int(target.ne(pad_id).sum()) for _, target in parts]
    for (x, target), n in zip(parts, counts, strict=True):
        (F.cross_entropy(x[:n] @ weight, target[:n], reduction="sum") / sum(counts)).backward()
    return weight.grad


@wrong("changes its input")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    tokens = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        target[target == pad_id] = -100
        (F.cross_entropy(x @ weight, target, reduction="sum") / tokens).backward()
    return weight.grad


@wrong("changes its input")
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    tokens = 0
    while parts:
        x, target = parts.pop()
        F.cross_entropy(x @ weight, target, ignore_index=pad_id, reduction="sum").backward()
        tokens += int((target != pad_id).sum())
    return weight.grad / tokens


# -- adamw_step -----------------------------------------------------------------------------------------


@right
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    weight = nn.Parameter(w.clone())
    weight.grad = g
    optimizer = torch.optim.AdamW([weight], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    state = {"step": torch.tensor(step - 1.0), "exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
    optimizer.state[weight] = state
    optimizer.step()
    return weight.detach(), state["exp_avg"], state["exp_avg_sq"]


@right
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = torch.lerp(g, mean, beta1), torch.lerp(g**2, square, beta2)
    filled = [1 - math.pow(beta, step) for beta in (beta1, beta2)]
    w = (1 - lr * decay) * w
    return w - lr / filled[0] * mean / ((square / filled[1]) ** 0.5 + eps), mean, square


@wrong("no bias correction")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g**2
    return w - lr * (mean / (square.sqrt() + eps) + decay * w), mean, square


@wrong("mean alone corrected")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g**2
    unbiased = mean / (1 - beta1**step)
    return w * (1 - lr * decay) - lr * unbiased / (square.sqrt() + eps), mean, square


@wrong("square alone corrected")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = mean.lerp(g, 1 - beta1)
    square = square.lerp(g.square(), 1 - beta2)
    size = torch.sqrt(square / (1 - beta2**step))
    return w * (1 - lr * decay) - lr * mean / (size + eps), mean, square


@wrong("one share for both")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = mean.lerp(g, 1 - beta1)
    square = square.lerp(g.square(), 1 - beta2)
    share = 1 - beta1**step
    return w * (1 - lr * decay) - lr * (mean / share) / ((square / share).sqrt() + eps), mean, square


@wrong("not to the power of the step")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = mean * beta1 + g * (1 - beta1)
    square = square * beta2 + g * g * (1 - beta2)
    m, v = mean / (1 - beta1), square / (1 - beta2)
    return w - lr * m / (v**0.5 + eps) - lr * decay * w, mean, square


@wrong("counted from 0")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    step = step - 1
    mean = mean * beta1 + g * (1 - beta1)
    square = square * beta2 + g * g * (1 - beta2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v**0.5 + eps) - lr * decay * w, mean, square


@wrong("betas swapped")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    beta1, beta2 = beta2, beta1
    mean = mean.lerp(g, 1 - beta1)
    square = square.lerp(g.square(), 1 - beta2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, mean, square


@wrong("defaults of the betas swapped")
def adamw_step(w, g, mean, square, step, lr, decay, beta2=0.9, beta1=0.98, eps=1e-8):
    mean = mean.lerp(g, 1 - beta1)
    square = square.lerp(g.square(), 1 - beta2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, mean, square


@wrong("old and new swapped")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = mean.lerp(g, beta1)
    square = square.lerp(g.square(), beta2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, mean, square


@wrong("square of the mean")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * mean**2
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, mean, square


@wrong("square forgotten")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, mean, square


@wrong("no root")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * (m / (v + eps) + decay * w), mean, square


@wrong("no size")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    return w - lr * (mean / (1 - beta1**step) + decay * w), mean, square


@wrong("eps in the root")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * (m * torch.rsqrt(v + eps) + decay * w), mean, square


@wrong("no eps")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w * (1 - lr * decay) - lr * m / v.sqrt(), mean, square


@wrong("eps times the root")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w * (1 - lr * decay) - lr * m / (eps * v.sqrt()), mean, square


@wrong("uphill")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w * (1 - lr * decay) + lr * m / (v.sqrt() + eps), mean, square


@wrong("old means used")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    w = w * (1 - lr * decay) - lr * m / (v.sqrt() + eps)
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.pow(2)
    return w, mean, square


@wrong("no weight decay")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g * g
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps), mean, square


@wrong("decay in the gradient")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    g = g + decay * w
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g * g
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps), mean, square


@wrong("decay without the rate")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g * g
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return (1 - decay) * w - lr * m / (v.sqrt() + eps), mean, square


@wrong("decay the wrong way")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g * g
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * (m / (v.sqrt() + eps) - decay * w), mean, square


@wrong("corrected means returned")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = (beta1 * mean + (1 - beta1) * g) / (1 - beta1**step)
    square = (beta2 * square + (1 - beta2) * g * g) / (1 - beta2**step)
    return w - lr * (mean / (square.sqrt() + eps) + decay * w), mean, square


@wrong("means not renewed")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m = (beta1 * mean + (1 - beta1) * g) / (1 - beta1**step)
    v = (beta2 * square + (1 - beta2) * g * g) / (1 - beta2**step)
    return w - lr * (m / (v.sqrt() + eps) + decay * w), mean, square


@wrong("decay after the move")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.square()
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    w = w - lr * m / (v.sqrt() + eps)
    return w - lr * decay * w, mean, square


@wrong("multiplied instead of divided")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.square()
    m, v = mean * (1 - beta1**step), square * (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, mean, square


@wrong("results swapped")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g.square()
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return w - lr * m / (v.sqrt() + eps) - lr * decay * w, square, mean


@wrong("the move alone")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g * g
    m, v = mean / (1 - beta1**step), square / (1 - beta2**step)
    return lr * (m / (v.sqrt() + eps) + decay * w), mean, square


@wrong("the step alone")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = torch.lerp(g, mean, beta1)
    square = beta2 * square + (1 - beta2) * g.square()
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + eps)
    return -lr * (move + decay * w), mean, square


@wrong("changes its input")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean.mul_(beta1).add_(g, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    size = (square / (1 - beta2**step)).sqrt() + eps
    w.mul_(1 - lr * decay).sub_(lr * mean / (1 - beta1**step) / size)
    return w, mean, square


@wrong("counted one step too far")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    step = step + 1
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + eps)
    return w - lr * (move + decay * w), mean, square


@wrong("share not taken from 1")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / beta1**step / ((square / beta2**step).sqrt() + eps)
    return w - lr * (move + decay * w), mean, square


@wrong("betas times the step")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1 * step) / ((square / (1 - beta2 * step)).sqrt() + eps)
    return w - lr * (move + decay * w), mean, square


@wrong("betas hard-coded")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = 0.9 * mean + 0.1 * g, 0.98 * square + 0.02 * g**2
    move = mean / (1 - 0.9**step) / ((square / (1 - 0.98**step)).sqrt() + eps)
    return w - lr * (move + decay * w), mean, square


@wrong("eps hard-coded")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + 1e-8)
    return w - lr * (move + decay * w), mean, square


@wrong("betas and eps hard-coded")
def adamw_step(w, g, mean, square, step, lr, decay, *_, **__):
    mean, square = 0.9 * mean + 0.1 * g, 0.98 * square + 0.02 * g**2
    move = mean / (1 - 0.9**step) / ((square / (1 - 0.98**step)).sqrt() + 1e-8)
    return w - lr * (move + decay * w), mean, square


@wrong("rate forgotten")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + eps)
    return w - move - lr * decay * w, mean, square


@wrong("root before the share")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1**step) / (square.sqrt() / (1 - beta2**step) + eps)
    return w - lr * (move + decay * w), mean, square


@wrong("decay in the gradient and in the weights")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    g = g + decay * w
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + eps)
    return w - lr * (move + decay * w), mean, square


@wrong("weights last")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + eps)
    return mean, square, w - lr * (move + decay * w)


@wrong("weights alone")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + eps)
    return w - lr * (move + decay * w)


@wrong("sign of the gradient")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean, square = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    return w - lr * (mean.sign() + decay * w), mean, square


def _updated(w, m, v, g, step, lr, decay, b1, b2, eps, *, along=None, size=None):
    """A right update by means that have been renewed, unless another direction or size is given."""
    along = m / (1 - b1**step) if along is None else along
    size = (v / (1 - b2**step)).sqrt() if size is None else size
    return w * (1 - lr * decay) - lr * along / (size + eps)


@wrong("sizes instead of squares")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m, v = torch.lerp(g, mean, beta1), torch.lerp(g.abs(), square, beta2)
    return _updated(w, m, v, g, step, lr, decay, beta1, beta2, eps), m, v


@wrong("another default of beta2")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.999, eps=1e-8):
    m, v = torch.lerp(g, mean, beta1), torch.lerp(g * g, square, beta2)
    return _updated(w, m, v, g, step, lr, decay, beta1, beta2, eps), m, v


@wrong("an input without effect")  # a rate of 0.1 in the move
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m, v = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = m / (1 - beta1**step) / ((v / (1 - beta2**step)) ** 0.5 + eps)
    return w - 0.1 * move - lr * decay * w, m, v


@wrong("another default")
def adamw_step(w, g, mean, square, step, lr, decay, beta1, beta2, eps):
    m, v = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = m / (1 - beta1**step) / ((v / (1 - beta2**step)) ** 0.5 + eps)
    return w - lr * move - lr * decay * w, m, v


@wrong("gradient instead of its mean")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m, v = torch.lerp(g, mean, beta1), torch.lerp(g * g, square, beta2)
    return _updated(w, m, v, g, step, lr, decay, beta1, beta2, eps, along=g), m, v


@wrong("one size for all")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m, v = torch.lerp(g, mean, beta1), torch.lerp(g * g, square, beta2)
    size = (v.mean() / (1 - beta2**step)) ** 0.5
    return _updated(w, m, v, g, step, lr, decay, beta1, beta2, eps, size=size), m, v


@wrong("not below a tenth")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup:
        return peak * step / warmup
    left = steps - step
    return peak if left >= cooldown else max(peak / 10, peak * left / cooldown)


@wrong("parts with padding left out")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().detach().requires_grad_(True)
    tokens = sum(target.ne(pad_id).sum() for _, target in parts)
    for x, target in parts:
        if target.ne(pad_id).all():
            (F.cross_entropy(x @ w, target, reduction="sum") / tokens).backward()
    return torch.zeros_like(weight) if w.grad is None else w.grad


@wrong("eps before the share")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean = mean * beta1 + g * (1 - beta1)
    square = square * beta2 + g**2 * (1 - beta2)
    rate = lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    return w * (1 - lr * decay) - rate * mean / (square**0.5 + eps), mean, square


@unnamed("rows of what has no axes")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    rows = []
    for weight, gradient, m, v in zip(w, g, mean, square, strict=True):
        m, v = torch.lerp(gradient, m, beta1), torch.lerp(gradient**2, v, beta2)
        rows.append((_updated(weight, m, v, gradient, step, lr, decay, beta1, beta2, eps), m, v))
    return tuple(torch.stack(tensors) for tensors in zip(*rows, strict=True))


@unnamed("a view of what cannot be seen so")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    shape = w.shape
    w, g, mean, square = (tensor.view(-1) for tensor in (w, g, mean, square))
    m, v = torch.lerp(g, mean, beta1), torch.lerp(g * g, square, beta2)
    w = _updated(w, m, v, g, step, lr, decay, beta1, beta2, eps)
    return w.view(shape), m.view(shape), v.view(shape)
