"""Answers to the exercises of chapter 11."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong

# -- word_accuracy ----------------------------------------------------------------------------------


@right
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(-1)[words] == tgt[words]).float().mean().item()


@right
def word_accuracy(logits, tgt, pad_id):
    right, words = 0, 0
    for row, ids in zip(logits, tgt, strict=True):
        for scores, wanted in zip(row, ids, strict=True):
            if wanted != pad_id:
                words += 1
                right += int(scores.argmax() == wanted)
    return right / words


@right
def word_accuracy(logits, tgt, pad_id):
    mask = tgt.ne(pad_id)
    guess = torch.softmax(logits, dim=2).max(dim=2).indices
    return float(((guess == tgt) * mask).sum() / mask.sum())


@wrong("a tensor instead of a number")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(dim=-1) == tgt)[words].float().mean()


@wrong("one answer for each place")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(dim=-1) == tgt)[words].float()


@unnamed("largest over the positions")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return ((logits.mean(1) == tgt) & words).sum().item() / words.sum().item()


@unnamed("the axis of one position lost")
def word_accuracy(logits, tgt, pad_id):
    guesses, words = logits.argmax(-1).squeeze(), tgt != pad_id
    return ((guesses == tgt) & words).sum().item() / words.sum().item()


@unnamed("a view of what cannot be seen so")
def word_accuracy(logits, tgt, pad_id):
    guesses, ids = logits.view(-1, logits.size(-1)).argmax(-1), tgt.view(-1)
    words = ids != pad_id
    return (guesses[words] == ids[words]).float().mean().item()


@unnamed("ids compared by identity")
def word_accuracy(logits, tgt, pad_id):
    pairs = zip(logits.argmax(-1).flatten().tolist(), tgt.flatten().tolist(), strict=True)
    pairs = [(guess, wanted) for guess, wanted in pairs if wanted is not pad_id]
    return sum(guess == wanted for guess, wanted in pairs) / len(pairs)


# -- word_loss --------------------------------------------------------------------------------------


@right
def word_loss(logits, tgt, pad_id):
    logits, tgt = logits.flatten(0, 1), tgt.flatten()
    logits, tgt = logits[tgt != pad_id], tgt[tgt != pad_id]
    return (logits.logsumexp(dim=-1) - logits[torch.arange(len(tgt), device=tgt.device), tgt]).mean()


@right
def word_loss(logits, tgt, pad_id):
    shifted = logits - logits.max(dim=-1, keepdim=True).values
    logs = shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
    of_targets = (logs * F.one_hot(tgt, logits.size(-1))).sum(dim=-1)
    words = (tgt != pad_id).to(logits.dtype)
    return -(of_targets * words).sum() / words.sum()


@wrong("softmax overflows")
def word_loss(logits, tgt, pad_id):
    probabilities = logits.softmax(-1)
    picked = probabilities.gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -torch.log(picked[tgt != pad_id]).mean()


@wrong("small number added")
def word_loss(logits, tgt, pad_id):
    probabilities = logits.softmax(-1) + 1e-9
    picked = probabilities.gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -torch.log(picked[tgt != pad_id]).mean()


@wrong("changes its input")
def word_loss(logits, tgt, pad_id):
    with torch.no_grad():
        logits -= logits.max(dim=-1, keepdim=True).values
    picked = F.log_softmax(logits, dim=-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].mean()


@wrong("gradient of one part missing")
def word_loss(logits, tgt, pad_id):
    largest = logits.amax(-1, keepdim=True).detach()
    total = (logits - largest).exp().sum(-1).log().detach()
    right = (logits - largest).gather(-1, tgt[..., None])[..., 0]
    return (total - right)[tgt != pad_id].mean()


@wrong("one loss for each word")
def word_loss(logits, tgt, pad_id):
    logs = torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]
    return -logs[tgt != pad_id]


@wrong("a number instead of a tensor")
def word_loss(logits, tgt, pad_id):
    return F.cross_entropy(logits.mT, tgt, ignore_index=pad_id).item()


@wrong("a constant factor")  # sentences of one word lose their axis
def word_loss(logits, tgt, pad_id):
    losses = -logits.log_softmax(-1).gather(-1, tgt[..., None]).squeeze()
    words = (tgt != pad_id).to(losses)
    return (losses * words).sum() / words.sum()


@unnamed("a view of what cannot be seen so")
def word_loss(logits, tgt, pad_id):
    logs, ids = logits.view(-1, logits.size(-1)).log_softmax(-1), tgt.view(-1)
    words = ids != pad_id
    return -logs[words].gather(1, ids[words, None]).mean()


# -- swapped_accuracy -------------------------------------------------------------------------------


@right
def swapped_accuracy(model, src, read, write):
    other = torch.cat([src[-1:], src[:-1]])
    words = write != 0
    return (model(other, read).argmax(-1)[words] == write[words]).float().mean().item()


@right
def swapped_accuracy(model, src, read, write):
    n = len(src)
    other = src[[(i - 1) % n for i in range(n)]]
    right = (model(other, read).argmax(dim=-1) == write) & write.bool()
    return right.sum().item() / write.count_nonzero().item()


@right
@torch.no_grad()
def swapped_accuracy(model, src, read, write):
    was = model.training
    model.eval()
    guesses = model(src.roll(1, 0), read).argmax(-1)
    model.train(was)
    return _share_right(guesses, write)


@right
@torch.inference_mode()
def swapped_accuracy(model, src, read, write):
    return _share_right(model.eval()(torch.cat([src[-1:], src[:-1]]), read).argmax(-1), write)


@wrong("a tensor instead of a number")
def swapped_accuracy(model, src, read, write):
    guesses = model(torch.roll(src, 1, 0), read).argmax(-1)
    return (guesses == write)[write != 0].float().mean()


def _share_right(guesses, write):
    words = write != 0
    return (guesses == write)[words].float().mean().item()


@unnamed("the axis of one position lost")
def swapped_accuracy(model, src, read, write):
    guesses = model(src.roll(1, 0), read).argmax(-1).squeeze()
    words = write != 0
    return ((guesses == write) & words).sum().item() / words.sum().item()


@unnamed("a view of what cannot be seen so")
def swapped_accuracy(model, src, read, write):
    guesses = model(src.roll(1, 0), read).argmax(-1)
    return _share_right(guesses.view(-1), write.view(-1))


@unnamed("arguments called by other names")
def swapped_accuracy(model, src, read, write):
    return _share_right(model(src=src.roll(1, 0), read=read).argmax(-1), write)


@unnamed("NumPy where there is a graph")
def swapped_accuracy(model, src, read, write):
    guesses = torch.from_numpy(model(src.roll(1, 0), read).numpy().argmax(-1))
    return _share_right(guesses, write)


# -- keep_best --------------------------------------------------------------------------------------


@right
def keep_best(model, run_epoch, num_epochs):
    losses, states = [], []
    for _ in range(num_epochs):
        losses.append(run_epoch())
        states.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    best = losses.index(min(losses))
    model.load_state_dict(states[best])
    return best


@right
def keep_best(model, run_epoch, num_epochs):
    kept, lowest, at = None, math.inf, 0
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            kept, lowest, at = copy.deepcopy(model), loss, epoch
    model.load_state_dict(kept.state_dict())
    return at


@right
def keep_best(model, run_epoch, num_epochs):
    losses, states = [], []
    for _ in range(num_epochs):
        losses.append(run_epoch())
        states.append(copy.deepcopy(model.state_dict()))
    best = np.argmin(losses)
    model.load_state_dict(states[best])
    return best


@wrong("model returned")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for _ in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best = loss, copy.deepcopy(model)
    return best


@wrong("too few epochs")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss > best_loss:
            break  # it rises: the best is found
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("lowest starts too low")
def keep_best(model, run_epoch, num_epochs):
    lowest, kept, best = 0.5, copy.deepcopy(model.state_dict()), 0
    for epoch in range(num_epochs):
        if (loss := run_epoch()) < lowest:
            lowest, kept, best = loss, copy.deepcopy(model.state_dict()), epoch
    model.load_state_dict(kept)
    return best


def _with_the_best(model, run_epoch, num_epochs, keep, put_back):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            best, lowest, kept = epoch, loss, keep()
    with torch.no_grad():
        put_back(kept)
    return best


@unnamed("another name kept")
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            best, lowest, keep = epoch, loss, copy.deepcopy(model.state_dict())  # noqa: F841
    model.load_state_dict(kept)
    return best


@unnamed("small gains ignored")
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest - 1e-4:
            best, lowest, kept = epoch, loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


@unnamed("losses in float32")
def keep_best(model, run_epoch, num_epochs):
    losses, states = [], []
    for _ in range(num_epochs):
        losses.append(run_epoch())
        states.append(copy.deepcopy(model.state_dict()))
    best = torch.tensor(losses).argmin().item()
    model.load_state_dict(states[best])
    return best


@unnamed("kept in float16")
def keep_best(model, run_epoch, num_epochs):
    def keep():
        return {name: tensor.half() for name, tensor in model.state_dict().items()}

    return _with_the_best(model, run_epoch, num_epochs, keep, model.load_state_dict)


@unnamed("parameters exchanged under the optimizer")
def keep_best(model, run_epoch, num_epochs):
    def keep():
        best = model.state_dict()
        model.load_state_dict(copy.deepcopy(best), assign=True)
        return best

    return _with_the_best(model, run_epoch, num_epochs, keep, model.load_state_dict)


# -- evaluate ---------------------------------------------------------------------------------------


def word_sum(logits, write):
    return F.cross_entropy(logits.mT, write, ignore_index=0, reduction="sum").item()


@right
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    losses, words = 0.0, 0
    for src, read, write in batches:
        losses += word_sum(model(src, read), write)
        words += (write != 0).sum().item()
    model.train(was_training)
    return losses / words


@right
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            rows, ids = [], []
            for src, read, write in batches:
                real = write != 0
                rows.append(model(src, read)[real])
                ids.append(write[real])
            return F.cross_entropy(torch.cat(rows), torch.cat(ids)).item()
    finally:
        model.train(was_training)


@right
def evaluate(model, batches):
    mode = model.training
    flags = [p.requires_grad for p in model.parameters()]
    model.requires_grad_(False).eval()
    losses = []
    for src, read, write in batches:
        logs = torch.log_softmax(model(src, read), dim=-1)
        losses.append(-logs.gather(-1, write[..., None])[..., 0][write != 0])
    for p, flag in zip(model.parameters(), flags, strict=True):
        p.requires_grad_(flag)
    model.train(mode)
    return torch.cat(losses).mean().item()


@right
def evaluate(model, batches):
    twin = copy.deepcopy(model).eval()
    return _mean_loss(twin, batches)


@torch.no_grad()
def _mean_loss(model, batches, loss=lambda logits, write: F.cross_entropy(logits.mT, write, reduction="none")):
    """The loss of the words, right if the losses (B, T) are; the mode is left as it is."""
    total = words = 0
    for src, read, write in batches:
        total += loss(model(src, read), write)[write != 0].sum().item()
        words += (write != 0).sum().item()
    return total / words


@wrong("a tensor instead of a number")
def evaluate(model, batches):
    mode = model.training
    found = torch.tensor(_mean_loss(model.eval(), batches))
    model.train(mode)
    return found


@wrong("changes its input")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    for src, read, write in batches:
        words += (write != 0).sum().item()
        write[write == 0] = -100
        total += F.cross_entropy(model(src, read).mT, write, reduction="sum").item()
    model.train(mode)
    return total / words


@unnamed("the axis of one position lost")
def evaluate(model, batches):
    def loss(logits, write):
        return -logits.log_softmax(-1).gather(-1, write[..., None]).squeeze()

    mode = model.training
    model.eval()
    total = words = 0
    with torch.no_grad():
        for src, read, write in batches:
            real = (write != 0).float()
            total += (loss(model(src, read), write) * real).sum().item()
            words += real.sum().item()
    model.train(mode)
    return total / words


@unnamed("a view of what cannot be seen so")
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    with torch.no_grad():
        for src, read, write in batches:
            logits, ids = model(src, read).flatten(0, 1), write.view(-1)
            total += F.cross_entropy(logits, ids, ignore_index=0, reduction="sum").item()
            words += (ids != 0).sum().item()
    model.train(mode)
    return total / words


@unnamed("arguments called by other names")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    for src, read, write in batches:
        total += word_sum(model(src=src, read=read), write)
        words += (write != 0).sum().item()
    model.train(mode)
    return total / words


@wrong("shares memory")
def keep_best(model, run_epoch, num_epochs):
    lowest, best, best_epoch = math.inf, None, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss <= lowest:  # a second mistake
            lowest, best, best_epoch = loss, model.state_dict(), epoch
    model.load_state_dict(best)
    return best_epoch
