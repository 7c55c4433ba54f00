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


@wrong("axes left")
def smoothed_loss(logits, target, smoothing, pad_id):
    log_p = logits.log_softmax(-1)
    picked = torch.gather(log_p, 2, target.unsqueeze(2)).squeeze(2)
    loss = -(1 - smoothing) * picked - smoothing * log_p.mean(2)
    return loss * (target != pad_id)


@wrong("changes its input")
def smoothed_loss(logits, target, smoothing, pad_id):
    loss = F.cross_entropy(logits.mT, target, ignore_index=pad_id, label_smoothing=smoothing)
    target[target == pad_id] = -100
    return loss


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


@wrong("a number instead of a tensor")
def smoothed_loss(logits, target, smoothing, pad_id):
    hard, soft = _two_logs(logits, target)
    return float(-(smoothing * soft + (1 - smoothing) * hard)[target != pad_id].mean())


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


@wrong("rounded")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return float(f"{peak * min(1.0, step / warmup, (steps - step) / cooldown):.3g}")


@wrong("a tensor instead of a number")
def plateau_rate(step, peak, warmup, steps, cooldown):
    limits = torch.tensor([1.0, step / warmup, (steps - step) / cooldown])
    return peak * limits.min()


@unnamed("0 after a warm-up of one step")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if step <= warmup and warmup > 1:
        return peak * step / warmup
    return peak * min((steps - step) / cooldown, 1.0) if step > 1 else 0.0


@unnamed("a cool-down of one step that does not come to 0")
def plateau_rate(step, peak, warmup, steps, cooldown):
    if cooldown == 1:
        cooldown, steps = 0.5, steps + 0.5
    return peak * min(step / warmup, 1, (steps - step) / cooldown)


@unnamed("a smallest rate")
def plateau_rate(step, peak, warmup, steps, cooldown):
    return max(peak * min(step / warmup, 1, (steps - step) / cooldown), 1e-8)


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


@wrong("short ones dropped")
def clip_together(gradients, limit):
    norm = torch.cat([g.reshape(-1) for g in gradients]).norm()
    return [g * limit / norm for g in gradients if norm > limit]


@wrong("one long vector")
def clip_together(gradients, limit):
    flat = torch.cat([g.reshape(-1) for g in gradients])
    return flat * min(1.0, limit / flat.norm())


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


@wrong("no list returned")
def clip_together(gradients, limit):
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    return (g * (limit / norm) if norm > limit else g.clone() for g in gradients)


@unnamed("the norms")
def clip_together(gradients, limit):
    return torch.stack([g.norm() for g in gradients]).clamp(max=limit)


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


@right
def accumulated_gradient(weight, parts, pad_id):
    weight = weight.clone().requires_grad_()
    tokens = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        share = (target != pad_id).sum() / tokens
        (F.cross_entropy(x @ weight, target, ignore_index=pad_id) * share).backward()
    return weight.grad


@right
def accumulated_gradient(weight, parts, pad_id):
    total, tokens = torch.zeros_like(weight), 0
    for x, target in parts:
        x, target = x[target != pad_id], target[target != pad_id]
        error = (x @ weight).softmax(-1) - F.one_hot(target, weight.size(1))
        total += (x[:, :, None] * error[:, None, :]).sum(0)  # a matrix for each token
        tokens += len(target)
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


@unnamed("a part of one token squeezed")
def accumulated_gradient(weight, parts, pad_id):
    w = weight.clone().requires_grad_()
    number = sum(int((target != pad_id).sum()) for _, target in parts)
    for x, target in parts:
        logits = (x @ w).squeeze()
        (F.cross_entropy(logits, target, ignore_index=pad_id, reduction="sum") / number).backward()
    return w.grad


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


@wrong("changes its input")
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    mean.mul_(beta1).add_(g, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    size = (square / (1 - beta2**step)).sqrt() + eps
    w.mul_(1 - lr * decay).sub_(lr * mean / (1 - beta1**step) / size)
    return w, mean, square


def _updated(w, m, v, g, step, lr, decay, b1, b2, eps, *, along=None, size=None):
    """A right update by means that have been renewed, unless another direction or size is given."""
    along = m / (1 - b1**step) if along is None else along
    size = (v / (1 - b2**step)).sqrt() if size is None else size
    return w * (1 - lr * decay) - lr * along / (size + eps)


@wrong("an input without effect")  # a rate of 0.1 in the move
def adamw_step(w, g, mean, square, step, lr, decay, beta1=0.9, beta2=0.98, eps=1e-8):
    m, v = beta1 * mean + (1 - beta1) * g, beta2 * square + (1 - beta2) * g**2
    move = m / (1 - beta1**step) / ((v / (1 - beta2**step)) ** 0.5 + eps)
    return w - 0.1 * move - lr * decay * w, m, v


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
