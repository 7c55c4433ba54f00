"""Answers to the exercises of chapter 11."""

import copy
import io
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


@wrong("padding counted")
def word_accuracy(logits, tgt, pad_id):
    return (logits.argmax(-1) == tgt).sum().item() / tgt.numel()


@wrong("padding counted as right")
def word_accuracy(logits, tgt, pad_id):
    guess = logits.argmax(-1)
    guess[tgt == pad_id] = pad_id
    return (guess == tgt).float().mean().item()


@wrong("padding in the denominator")
def word_accuracy(logits, tgt, pad_id):
    words = (tgt != pad_id).float()
    right = (logits.argmax(-1) == tgt).float() * words
    return right.mean().item()


@wrong("padding in the numerator")
def word_accuracy(logits, tgt, pad_id):
    right = (logits.argmax(-1) == tgt).sum().item()
    return right / (tgt != pad_id).sum().item()


@wrong("padding of the guesses")
def word_accuracy(logits, tgt, pad_id):
    guess = logits.argmax(dim=-1)
    words = guess != pad_id
    return (guess[words] == tgt[words]).float().mean().item()


@wrong("padding of both")
def word_accuracy(logits, tgt, pad_id):
    guess = logits.argmax(dim=-1)
    words = (tgt != pad_id) & (guess != pad_id)
    return (guess[words] == tgt[words]).float().mean().item()


@wrong("padding only")
def word_accuracy(logits, tgt, pad_id):
    mask = tgt == pad_id
    return (((logits.argmax(-1) == tgt) & mask).sum() / mask.sum()).item()


@wrong("pad id ignored")
def word_accuracy(logits, tgt, pad_id):
    words = tgt > 0
    return (logits.argmax(-1)[words] == tgt[words]).float().mean().item()


@wrong("mean of sentences")
def word_accuracy(logits, tgt, pad_id):
    shares = []
    for row, ids in zip(logits.argmax(-1), tgt, strict=True):
        words = ids != pad_id
        shares.append((row[words] == ids[words]).float().mean().item())
    return sum(shares) / len(shares)


@wrong("whole sentences counted")
def word_accuracy(logits, tgt, pad_id):
    guess = logits.argmax(-1)
    whole = [torch.equal(g[t != pad_id], t[t != pad_id]) for g, t in zip(guess, tgt, strict=True)]
    return sum(whole) / len(whole)


@wrong("largest over the positions")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    right = logits.argmax(1) == tgt
    return right[words].float().mean().item()


@wrong("percentage")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(-1)[words] == tgt[words]).float().mean().item() * 100


@wrong("count instead of share")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(-1)[words] == tgt[words]).sum().item()


@wrong("share of the wrong")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(-1)[words] != tgt[words]).float().mean().item()


@wrong("shifted again")
def word_accuracy(logits, tgt, pad_id):
    guesses, tgt = logits[:, :-1].argmax(dim=-1), tgt[:, 1:]
    words = tgt != pad_id
    return (guesses[words] == tgt[words]).float().mean().item()


@wrong("shifted the other way")
def word_accuracy(logits, tgt, pad_id):
    guesses, tgt = logits.argmax(dim=-1)[:, 1:], tgt[:, :-1]
    words = tgt != pad_id
    return (guesses[words] == tgt[words]).float().mean().item()


@wrong("last word left out")
def word_accuracy(logits, tgt, pad_id):
    right = total = 0
    for b in range(tgt.size(0)):
        for t in range(tgt.size(1) - 1):
            if tgt[b, t] != pad_id:
                total += 1
                right += (logits[b, t].argmax() == tgt[b, t]).item()
    return right / total


@wrong("divided by the sentences")
def word_accuracy(logits, tgt, pad_id):
    right = (logits.argmax(-1) == tgt) * (tgt != pad_id)
    return (right.sum() / tgt.size(0)).item()


@wrong("smallest logit")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmin(dim=-1) == tgt)[words].float().mean().item()


@wrong("a tensor instead of a number")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(dim=-1) == tgt)[words].float().mean()


@wrong("one answer for each place")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.argmax(dim=-1) == tgt)[words].float()


@wrong("pad class removed")
def word_accuracy(logits, tgt, pad_id):
    logits = logits.clone()
    logits[..., pad_id] = -1e9
    words = tgt != pad_id
    return (logits.argmax(dim=-1)[words] == tgt[words]).double().mean().item()


@wrong("count instead of share")  # as a float
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return float((logits.argmax(-1)[words] == tgt[words]).sum())


@wrong("loss instead of the accuracy")
def word_accuracy(logits, tgt, pad_id):
    return F.cross_entropy(logits.flatten(0, 1), tgt.flatten(), ignore_index=pad_id).item()


@wrong("ids compared by size")
def word_accuracy(logits, tgt, pad_id):
    words = tgt > pad_id
    return (logits.argmax(-1)[words] == tgt[words]).float().mean().item()


@wrong("probability instead of a guess")
def word_accuracy(logits, tgt, pad_id):
    found = torch.softmax(logits, -1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return found[tgt != pad_id].mean().item()


@wrong("first sentence only")
def word_accuracy(logits, tgt, pad_id):
    guesses, words = logits[0].argmax(-1), tgt[0] != pad_id
    return (guesses == tgt[0])[words].float().mean().item()


@wrong("whole division")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return int((logits.argmax(-1)[words] == tgt[words]).sum()) // int(words.sum()) * 1.0


@wrong("never right")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return (logits.max(-1).values == tgt)[words].float().mean().item()


@wrong("whole division")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return int((logits.argmax(-1) == tgt)[words].float().mean())


@unnamed("largest over the positions")
def word_accuracy(logits, tgt, pad_id):
    words = tgt != pad_id
    return ((logits.mean(1) == tgt) & words).sum().item() / words.sum().item()


@wrong("largest above 0 only")
def word_accuracy(logits, tgt, pad_id):
    right = words = 0
    for scores, ids in zip(logits.flatten(0, 1).tolist(), tgt.flatten().tolist(), strict=True):
        best, guess = 0.0, 0
        for i, score in enumerate(scores):
            if score > best:
                best, guess = score, i
        if ids != pad_id:
            words += 1
            right += guess == ids
    return right / words


@wrong("padding at the end only")
def word_accuracy(logits, tgt, pad_id):
    right = words = 0
    for row, ids in zip(logits.argmax(-1), tgt, strict=True):
        length = int((ids != pad_id).sum())
        right += (row[:length] == ids[:length]).sum().item()
        words += length
    return right / words


@wrong("words behind padding left out")
def word_accuracy(logits, tgt, pad_id):
    right = words = 0
    for row, ids in zip(logits.argmax(-1).tolist(), tgt.tolist(), strict=True):
        for guess, wanted in zip(row, ids, strict=True):
            if wanted == pad_id:
                break
            words += 1
            right += guess == wanted
    return right / words


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


@wrong("padding counted")
def word_loss(logits, tgt, pad_id):
    logs = logits.log_softmax(-1)
    return -logs.gather(2, tgt.unsqueeze(2)).mean()


@wrong("padding in the denominator")
def word_loss(logits, tgt, pad_id):
    logs = logits.log_softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -(logs * (tgt != pad_id)).mean()


@wrong("padding only")
def word_loss(logits, tgt, pad_id):
    logs = logits.log_softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    mask = tgt == pad_id
    return -(logs * mask).sum() / mask.sum()


@wrong("pad id ignored")
def word_loss(logits, tgt, pad_id):
    logs = logits.log_softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -logs[tgt != 0].mean()


@wrong("pad class removed")
def word_loss(logits, tgt, pad_id):
    kept = torch.arange(logits.size(-1), device=logits.device) != pad_id
    logs = torch.where(kept, logits, -math.inf).log_softmax(-1)
    logs = logs.gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -logs[tgt != pad_id].mean()


@wrong("softmax twice")
def word_loss(logits, tgt, pad_id):
    probabilities = F.softmax(logits, dim=-1)
    logs = F.log_softmax(probabilities, dim=-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -logs[tgt != pad_id].mean()


@wrong("no softmax")
def word_loss(logits, tgt, pad_id):
    picked = logits.gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].mean()


@wrong("logarithm forgotten")
def word_loss(logits, tgt, pad_id):
    picked = logits.softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].mean()


@wrong("sign forgotten")
def word_loss(logits, tgt, pad_id):
    picked = logits.log_softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return picked[tgt != pad_id].mean()


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


@wrong("small number added")
def word_loss(logits, tgt, pad_id):
    picked = logits.softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].clamp(min=1e-12).log().mean()


@wrong("every word of the vocabulary averaged")
def word_loss(logits, tgt, pad_id):
    return -F.log_softmax(logits, dim=-1)[tgt != pad_id].mean()


@wrong("softmax over the positions")
def word_loss(logits, tgt, pad_id):
    picked = F.log_softmax(logits, dim=1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].mean()


@wrong("mean of sentences")
def word_loss(logits, tgt, pad_id):
    picked = F.log_softmax(logits, dim=-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return torch.stack([-row[ids != pad_id].mean() for row, ids in zip(picked, tgt, strict=True)]).mean()


@wrong("sum instead of mean")
def word_loss(logits, tgt, pad_id):
    picked = F.log_softmax(logits, dim=-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].sum()


@wrong("changes its input")
def word_loss(logits, tgt, pad_id):
    with torch.no_grad():
        logits -= logits.max(dim=-1, keepdim=True).values
    picked = F.log_softmax(logits, dim=-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].mean()


@wrong("shifted again")
def word_loss(logits, tgt, pad_id):
    logits, tgt = logits[:, :-1], tgt[:, 1:]
    logs = logits.log_softmax(-1).gather(-1, tgt[..., None])[..., 0]
    return -logs[tgt != pad_id].mean()


@wrong("shifted the other way")
def word_loss(logits, tgt, pad_id):
    logs = torch.log_softmax(logits[:, 1:], dim=-1)
    tgt = tgt[:, :-1]
    return -logs.gather(-1, tgt.unsqueeze(-1)).squeeze(-1)[tgt != pad_id].mean()


@wrong("padding in the numerator")
def word_loss(logits, tgt, pad_id):
    logs = torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])
    return -logs.sum() / (tgt != pad_id).sum()


@wrong("divided by the sentences")
def word_loss(logits, tgt, pad_id):
    logs = torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]
    return -(logs * (tgt != pad_id)).sum() / logits.size(0)


@wrong("one minus the probability")
def word_loss(logits, tgt, pad_id):
    probs = logits.softmax(-1).gather(-1, tgt[..., None])[..., 0]
    return (1 - probs)[tgt != pad_id].mean()


@wrong("logarithm of the mean")
def word_loss(logits, tgt, pad_id):
    probs = logits.softmax(-1).gather(-1, tgt[..., None])[..., 0]
    return -probs[tgt != pad_id].mean().log()


@wrong("another base")
def word_loss(logits, tgt, pad_id):
    logs = torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]
    return -(logs / torch.log(torch.tensor(2.0)))[tgt != pad_id].mean()


@wrong("perplexity")
def word_loss(logits, tgt, pad_id):
    logs = torch.log_softmax(logits, dim=-1).gather(-1, tgt[..., None])[..., 0]
    return torch.exp(-logs[tgt != pad_id].mean())


@wrong("no gradient")
def word_loss(logits, tgt, pad_id):
    with torch.no_grad():
        logs = torch.log_softmax(logits, dim=-1)
        return -logs.gather(-1, tgt[..., None])[..., 0][tgt != pad_id].mean()


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


@wrong("most probable word")
def word_loss(logits, tgt, pad_id):
    return -torch.log_softmax(logits, dim=-1).max(dim=-1).values[tgt != pad_id].mean()


@wrong("small number added")
def word_loss(logits, tgt, pad_id):
    probs = torch.softmax(logits, dim=-1).clamp(min=1e-10)
    return -probs.log().gather(-1, tgt[..., None])[..., 0][tgt != pad_id].mean()


@wrong("a number instead of a tensor")
def word_loss(logits, tgt, pad_id):
    return F.cross_entropy(logits.mT, tgt, ignore_index=pad_id).item()


@wrong("small number added")  # a bound for the logits
def word_loss(logits, tgt, pad_id):
    return F.cross_entropy(logits.clamp(-30, 30).mT, tgt, ignore_index=pad_id)


@wrong("padding at the end only")
def word_loss(logits, tgt, pad_id):
    losses = []
    for row, ids in zip(logits.log_softmax(-1), tgt, strict=True):
        length = int((ids != pad_id).sum())
        losses.append(-row[:length].gather(1, ids[:length, None]))
    return torch.cat(losses).mean()


@wrong("changes its input")
def word_loss(logits, tgt, pad_id):
    logits -= logits.max(dim=-1, keepdim=True).values
    picked = (logits - logits.exp().sum(-1, keepdim=True).log()).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -picked[tgt != pad_id].mean()


@wrong("softmax overflows")  # in the gradient, too
def word_loss(logits, tgt, pad_id):
    exact = logits.double()
    losses = exact.exp().sum(-1).log() - exact.gather(2, tgt.unsqueeze(2)).squeeze(2)
    return losses[tgt != pad_id].mean().to(logits.dtype)


@wrong("softmax overflows")  # in the gradient alone
def word_loss(logits, tgt, pad_id):
    exact = logits.log_softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    p = logits.softmax(-1).gather(2, tgt.unsqueeze(2)).squeeze(2)
    return -torch.where(p > 0, p.log(), exact)[tgt != pad_id].mean()


@wrong("backward called already")
def word_loss(logits, tgt, pad_id):
    logs = logits.log_softmax(-1).gather(-1, tgt[..., None])[..., 0]
    loss = -logs[tgt != pad_id].mean()
    if loss.requires_grad:
        loss.backward(retain_graph=True)
    return loss


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


def accuracy_of(logits, write):
    words = write != 0
    return (logits.argmax(-1)[words] == write[words]).float().mean().item()


@wrong("nothing swapped")
def swapped_accuracy(model, src, read, write):
    torch.roll(src, 1, 0)
    return accuracy_of(model(src, read), write)


@wrong("words of a source moved")
def swapped_accuracy(model, src, read, write):
    other = torch.cat([src[:, -1:], src[:, :-1]], dim=1)
    return accuracy_of(model(other, read), write)


@wrong("rolled without an axis")
def swapped_accuracy(model, src, read, write):
    return accuracy_of(model(torch.roll(src, 1), read), write)


@wrong("next instead of the one before")
def swapped_accuracy(model, src, read, write):
    other = torch.cat([src[1:], src[:1]])
    return accuracy_of(model(other, read), write)


@wrong("order turned round")
def swapped_accuracy(model, src, read, write):
    other = src[list(range(len(src)))[::-1]]
    return accuracy_of(model(other, read), write)


@wrong("nothing swapped")
def swapped_accuracy(model, src, read, write):
    src, read, write = (torch.roll(ids, 1, dims=0) for ids in (src, read, write))
    return accuracy_of(model(src, read), write)


@wrong("what is written moved along")
def swapped_accuracy(model, src, read, write):
    src, write = torch.roll(src, 1, 0), torch.roll(write, 1, 0)
    return accuracy_of(model(src, read), write)


@wrong("what is read moved along")
def swapped_accuracy(model, src, read, write):
    src, read = torch.roll(src, 1, 0), torch.roll(read, 1, 0)
    return accuracy_of(model(src, read), write)


@wrong("source blanked")
def swapped_accuracy(model, src, read, write):
    return accuracy_of(model(src * 0, read), write)


@wrong("fed what it must write")
def swapped_accuracy(model, src, read, write):
    return accuracy_of(model(torch.roll(src, 1, 0), write), write)


@wrong("padding counted")
def swapped_accuracy(model, src, read, write):
    logits = model(torch.roll(src, 1, 0), read)
    return (logits.argmax(-1) == write).sum().item() / write.numel()


@wrong("padding in the denominator")
def swapped_accuracy(model, src, read, write):
    logits = model(torch.roll(src, 1, 0), read)
    return ((logits.argmax(-1) == write) & (write != 0)).sum().item() / write.numel()


@wrong("padding of what is read")
def swapped_accuracy(model, src, read, write):
    guess = model(torch.roll(src, 1, 0), read).argmax(-1)
    return (guess == write)[read != 0].float().mean().item()


@wrong("shifted again")
def swapped_accuracy(model, src, read, write):
    read, write = read[:, :-1], write[:, 1:]
    return accuracy_of(model(torch.roll(src, 1, 0), read), write)


@wrong("compared with what was read")
def swapped_accuracy(model, src, read, write):
    return accuracy_of(model(torch.roll(src, 1, 0), read), read)


@wrong("difference returned")
def swapped_accuracy(model, src, read, write):
    own = accuracy_of(model(src, read), write)
    other = accuracy_of(model(torch.roll(src, 1, 0), read), write)
    return own - other


@wrong("percentage")
def swapped_accuracy(model, src, read, write):
    return 100 * accuracy_of(model(torch.roll(src, 1, 0), read), write)


@wrong("mean of sentences")
def swapped_accuracy(model, src, read, write):
    guesses = model(torch.roll(src, 1, 0), read).argmax(-1)
    shares = [(g[w != 0] == w[w != 0]).float().mean().item() for g, w in zip(guesses, write, strict=True)]
    return sum(shares) / len(shares)


@wrong("largest over the positions")
def swapped_accuracy(model, src, read, write):
    guesses = model(torch.roll(src, 1, 0), read).argmax(1)
    words = write != 0
    return ((guesses == write) & words).sum().item() / words.sum().item()


@wrong("padding in the numerator")
def swapped_accuracy(model, src, read, write):
    right = model(torch.roll(src, 1, 0), read).argmax(-1) == write
    return (right.sum() / (write != 0).sum()).item()


@wrong("share of the wrong")
def swapped_accuracy(model, src, read, write):
    guesses = model(torch.roll(src, 1, 0), read).argmax(-1)
    return (guesses != write)[write != 0].float().mean().item()


@wrong("last source for all")
def swapped_accuracy(model, src, read, write):
    guesses = model(src[-1].repeat(len(src), 1), read).argmax(-1)
    return (guesses == write)[write != 0].float().mean().item()


@wrong("first source for all")
def swapped_accuracy(model, src, read, write):
    guesses = model(src[0].repeat(len(src), 1), read).argmax(-1)
    return (guesses == write)[write != 0].float().mean().item()


@wrong("first sentence left out")
def swapped_accuracy(model, src, read, write):
    guesses = model(src[:-1], read[1:]).argmax(-1)
    return (guesses == write[1:])[write[1:] != 0].float().mean().item()


@wrong("a tensor instead of a number")
def swapped_accuracy(model, src, read, write):
    guesses = model(torch.roll(src, 1, 0), read).argmax(-1)
    return (guesses == write)[write != 0].float().mean()


def _share_right(guesses, write):
    words = write != 0
    return (guesses == write)[words].float().mean().item()


@wrong("first sentence keeps its own")
def swapped_accuracy(model, src, read, write):
    others = src.clone()
    others[1:] = src[:-1]
    return _share_right(model(others, read).argmax(-1), write)


@wrong("one sentence too far")
def swapped_accuracy(model, src, read, write):
    order = (torch.arange(len(src), device=src.device) - 2) % len(src)
    return _share_right(model(src[order], read).argmax(-1), write)


@wrong("what is written moved along")
def swapped_accuracy(model, src, read, write):
    words = write != 0
    guesses = model(src, read.roll(-1, 0)).argmax(-1)
    return (guesses == write)[words].float().mean().item()


@wrong("what is read moved along")
def swapped_accuracy(model, src, read, write):
    write = write.roll(-1, 0)
    words = write != 0
    return (model(src, read).argmax(-1) == write)[words].float().mean().item()


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


@wrong("largest above 0 only")
def swapped_accuracy(model, src, read, write):
    logits = torch.relu(model(src.roll(1, 0), read))
    return _share_right(logits.argmax(-1), write)


@wrong("padding at the end only")
def swapped_accuracy(model, src, read, write):
    right = words = 0
    for guesses, ids in zip(model(src.roll(1, 0), read).argmax(-1), write, strict=True):
        length = int((ids != 0).sum())
        right += int((guesses == ids)[:length].sum())
        words += length
    return right / words


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


@wrong("method instead of weights")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = model.parameters
    model.parameters = best
    return best_epoch


@wrong("shares memory")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = dict(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("shares memory")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = copy.copy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("shares memory")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = [p.data for p in model.parameters()]
    for p, kept in zip(model.parameters(), best, strict=True):
        p.data = kept
    return best_epoch


@wrong("shares memory")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = copy.deepcopy(model)
    model = best  # a name inside this function, nothing more
    return best_epoch


@wrong("buffers forgotten")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.load_state_dict(best, strict=False)
    return best_epoch


@wrong("highest instead of lowest")
def keep_best(model, run_epoch, num_epochs):
    best_loss = -float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if best_loss < loss:
            best_loss, best_epoch = loss, epoch
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("later of two equals")
def keep_best(model, run_epoch, num_epochs):
    losses, states = [], []
    for _ in range(num_epochs):
        losses.append(run_epoch())
        states.append(copy.deepcopy(model.state_dict()))
    best = max(range(num_epochs), key=lambda i: (-losses[i], i))
    model.load_state_dict(states[best])
    return best


@wrong("compared with the epoch before")
def keep_best(model, run_epoch, num_epochs):
    last = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < last:
            best_epoch, best = epoch, copy.deepcopy(model.state_dict())
        last = loss
    model.load_state_dict(best)
    return best_epoch


@wrong("lowest never updated")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_epoch, best = epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("copied before the epoch")
def keep_best(model, run_epoch, num_epochs):
    best_loss, best = float("inf"), None
    for epoch in range(num_epochs):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, state
    model.load_state_dict(best)
    return best_epoch


@wrong("epochs counted from 1")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for epoch in range(1, num_epochs + 1):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("model returned")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for _ in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best = loss, copy.deepcopy(model)
    return best


@wrong("lowest starts at 0")
def keep_best(model, run_epoch, num_epochs):
    best, best_loss, best_epoch = None, 0, 0
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("shares memory")
def keep_best(model, run_epoch, num_epochs):  # copied, and never put back
    best_loss = float("inf")
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            torch.save(copy.deepcopy(model.state_dict()), io.BytesIO())
    return best_epoch


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


@wrong("too few epochs")
def keep_best(model, run_epoch, num_epochs):
    best_loss, best_epoch, best = float("inf"), 0, copy.deepcopy(model.state_dict())
    for epoch in range(num_epochs - 1):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best_epoch, best = loss, epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("loss returned")
def keep_best(model, run_epoch, num_epochs):
    best_loss = float("inf")
    for _ in range(num_epochs):
        loss = run_epoch()
        if loss < best_loss:
            best_loss, best = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_loss


@wrong("called too often")
def keep_best(model, run_epoch, num_epochs):
    lowest, best, best_epoch = math.inf, None, None
    for epoch in range(num_epochs):
        if run_epoch() < lowest:
            lowest, best_epoch = run_epoch(), epoch
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return best_epoch


@wrong("restored on the way")
def keep_best(model, run_epoch, num_epochs):
    lowest, best, best_epoch = math.inf, None, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            lowest, best, best_epoch = loss, copy.deepcopy(model.state_dict()), epoch
        else:
            model.load_state_dict(best)
    return best_epoch


@wrong("kept until the first rise")
def keep_best(model, run_epoch, num_epochs):
    lowest, best, best_epoch, stopped = math.inf, None, None, False
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss >= lowest:
            stopped = True
        if not stopped:
            lowest, best, best_epoch = loss, copy.deepcopy(model.state_dict()), epoch
    model.load_state_dict(best)
    return best_epoch


@wrong("lowest never updated")
def keep_best(model, run_epoch, num_epochs):
    best, best_epoch = None, None
    for epoch in range(num_epochs):
        run_epoch()
        best, best_epoch = copy.deepcopy(model.state_dict()), epoch
    model.load_state_dict(best)
    return best_epoch


@wrong("number of epochs returned")
def keep_best(model, run_epoch, num_epochs):
    lowest, best = math.inf, None
    for _ in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            lowest, best = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return num_epochs


@wrong("last epoch returned")
def keep_best(model, run_epoch, num_epochs):
    lowest, kept = math.inf, None
    for _ in range(num_epochs):
        if (loss := run_epoch()) < lowest:
            lowest, kept = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return num_epochs - 1


@wrong("lowest starts too low")
def keep_best(model, run_epoch, num_epochs):
    lowest, kept, best = 0.5, copy.deepcopy(model.state_dict()), 0
    for epoch in range(num_epochs):
        if (loss := run_epoch()) < lowest:
            lowest, kept, best = loss, copy.deepcopy(model.state_dict()), epoch
    model.load_state_dict(kept)
    return best


@wrong("lowest starts at a number")
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = None, 1e4, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            best, lowest, kept = epoch, loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
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


@wrong("method instead of weights")
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            best, lowest, kept = epoch, loss, [p.detach().clone() for p in model.parameters()]
    model.parameters = kept
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


@right
def keep_best(model, run_epoch, num_epochs):
    losses, states = [], []
    for _ in range(num_epochs):
        losses.append(run_epoch())
        states.append(copy.deepcopy(model.state_dict()))
    best = np.argmin(losses)
    model.load_state_dict(states[best])
    return best


@wrong("gradients off")
@torch.no_grad()
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        if (loss := run_epoch()) < lowest:
            best, lowest, kept = epoch, loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


@wrong("gradients off")
def keep_best(model, run_epoch, num_epochs):
    losses, states = [], []
    with torch.inference_mode():
        for _ in range(num_epochs):
            losses.append(run_epoch())
            states.append(copy.deepcopy(model.state_dict()))
    best = losses.index(min(losses))
    model.load_state_dict(states[best])
    return best


@wrong("a loss of 0 passed over")
def keep_best(model, run_epoch, num_epochs):
    lowest = None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if not lowest or loss < lowest:
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


def _with_the_best(model, run_epoch, num_epochs, keep, put_back):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        loss = run_epoch()
        if loss < lowest:
            best, lowest, kept = epoch, loss, keep()
    with torch.no_grad():
        put_back(kept)
    return best


@wrong("buffers of the layers forgotten")
def keep_best(model, run_epoch, num_epochs):
    def own():
        return [*model.parameters(), *model.buffers(recurse=False)]

    def put_back(kept):
        for tensor, copied in zip(own(), kept, strict=True):
            tensor.copy_(copied)

    return _with_the_best(model, run_epoch, num_epochs, lambda: [t.detach().clone() for t in own()], put_back)


@wrong("parameters of the model itself forgotten")
def keep_best(model, run_epoch, num_epochs):
    def keep():
        layers = [copy.deepcopy(layer.state_dict()) for layer in model.children()]
        return layers, {name: buffer.clone() for name, buffer in model.named_buffers()}

    def put_back(kept):
        for layer, state in zip(model.children(), kept[0], strict=True):
            layer.load_state_dict(state)
        model.load_state_dict(kept[1], strict=False)

    return _with_the_best(model, run_epoch, num_epochs, keep, put_back)


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


@wrong("too few epochs")
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = 0, math.inf, None
    for epoch in range(num_epochs):
        if (loss := run_epoch()) < lowest:
            best, lowest, kept = epoch, loss, copy.deepcopy(model.state_dict())
        elif epoch - best >= 10:
            break
    model.load_state_dict(kept)
    return best


@wrong("lowest starts at a number")
def keep_best(model, run_epoch, num_epochs):
    best, lowest, kept = None, 1e9, None
    for epoch in range(num_epochs):
        if (loss := run_epoch()) < lowest:
            best, lowest, kept = epoch, loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return best


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


@wrong("dropout left on")
def evaluate(model, batches):
    losses, words = 0.0, 0
    with torch.no_grad():
        for src, read, write in batches:
            losses += word_sum(model(src, read), write)
            words += (write != 0).sum().item()
    return losses / words


@wrong("graph recorded")
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    losses, words = 0.0, 0
    for src, read, write in batches:
        losses += word_sum(model(src, read), write)
        words += (write != 0).sum().item()
    model.train(was_training)
    return losses / words


@wrong("dropout on and graph recorded")
def evaluate(model, batches):
    losses, words = 0.0, 0
    for src, read, write in batches:
        losses += word_sum(model(src, read), write)
        words += (write != 0).sum().item()
    return losses / words


@wrong("mode not restored")
@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    losses = sum(word_sum(model(src, read), write) for src, read, write in batches)
    return losses / sum((write != 0).sum().item() for _, _, write in batches)


@wrong("always back to training")
@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    losses = sum(word_sum(model(src, read), write) for src, read, write in batches)
    model.train()
    return losses / sum((write != 0).sum().item() for _, _, write in batches)


@wrong("gradients stay off")
def evaluate(model, batches):
    torch.set_grad_enabled(False)
    was_training = model.training
    model.eval()
    losses = sum(word_sum(model(src, read), write) for src, read, write in batches)
    model.train(was_training)
    return losses / sum((write != 0).sum().item() for _, _, write in batches)


@wrong("mean over the batches")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    losses = [F.cross_entropy(model(src, read).mT, write, ignore_index=0).item() for src, read, write in batches]
    model.train(was_training)
    return sum(losses) / len(losses)


@wrong("weighted by sentences")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, read, write in batches:
        total += F.cross_entropy(model(src, read).mT, write, ignore_index=0).item() * src.size(0)
        n += src.size(0)
    model.train(was_training)
    return total / n


@wrong("padding counted")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, read, write in batches:
        total += F.cross_entropy(model(src, read).mT, write).item() * write.numel()
        n += write.numel()
    model.train(was_training)
    return total / n


@wrong("padding in the denominator")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, read, write in batches:
        total += word_sum(model(src, read), write)
        n += write.numel()
    model.train(was_training)
    return total / n


@wrong("padding in the numerator")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, read, write in batches:
        total += F.cross_entropy(model(src, read).mT, write, reduction="sum").item()
        n += (write != 0).sum().item()
    model.train(was_training)
    return total / n


@wrong("means divided by the words")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, read, write in batches:
        total += F.cross_entropy(model(src, read).mT, write, ignore_index=0).item()
        n += (write != 0).sum().item()
    model.train(was_training)
    return total / n


@wrong("fed what it must write")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, _, write in batches:
        total += word_sum(model(src, write), write)
        n += (write != 0).sum().item()
    model.train(was_training)
    return total / n


@wrong("shifted again")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total, n = 0.0, 0
    for src, read, write in batches:
        read, write = read[:, :-1], write[:, 1:]
        total += word_sum(model(src, read), write)
        n += (write != 0).sum().item()
    model.train(was_training)
    return total / n


@wrong("sum instead of mean")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total = sum(word_sum(model(src, read), write) for src, read, write in batches)
    model.train(was_training)
    return total


@wrong("means added up")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total = 0
    for src, read, write in batches:
        total += F.cross_entropy(model(src, read).mT, write, ignore_index=0).item()
    model.train(was_training)
    return total


@wrong("divided by the number of batches")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    total = sum(word_sum(model(src, read), write) for src, read, write in batches)
    model.train(was_training)
    return total / len(batches)


@wrong("last batch only")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    for src, read, write in batches:
        loss = F.cross_entropy(model(src, read).mT, write, ignore_index=0)
    model.train(was_training)
    return loss.item()


@wrong("compared with what was read")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    losses, words = 0.0, 0
    for src, read, _ in batches:
        losses += word_sum(model(src, read), read)
        words += (read != 0).sum().item()
    model.train(was_training)
    return losses / words


@wrong("softmax twice")
@torch.no_grad()
def evaluate(model, batches):
    was_training = model.training
    model.eval()
    losses, words = 0.0, 0
    for src, read, write in batches:
        losses += word_sum(model(src, read).softmax(-1), write)
        words += (write != 0).sum().item()
    model.train(was_training)
    return losses / words


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


def mean_loss(model, batches):
    """The right number, whatever the mode."""
    total = words = 0
    for src, read, write in batches:
        loss = F.cross_entropy(model(src, read).transpose(1, 2), write, ignore_index=0, reduction="sum")
        total += loss.item()
        words += (write != 0).sum().item()
    return total / words


@wrong("weights frozen")
def evaluate(model, batches):
    mode = model.training
    model.eval()
    model.requires_grad_(False)
    loss = mean_loss(model, batches)
    model.train(mode)
    return loss


@wrong("weights frozen and mode not restored")
def evaluate(model, batches):
    model.eval()
    for p in model.parameters():
        p.requires_grad = False
    return mean_loss(model, batches)


@wrong("mode not restored and graph recorded")
def evaluate(model, batches):
    model.eval()
    return mean_loss(model, batches)


@wrong("always back to training and graph recorded")
def evaluate(model, batches):
    model.eval()
    loss = mean_loss(model, batches)
    model.train()
    return loss


@wrong("padding of what is read")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    for src, read, write in batches:
        losses = F.cross_entropy(model(src, read).transpose(1, 2), write, reduction="none")
        total += losses[read != 0].sum().item()
        words += (read != 0).sum().item()
    model.train(mode)
    return total / words


@wrong("divided by the words that are read")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    for src, read, write in batches:
        logits = model(src, read)
        total += F.cross_entropy(logits.transpose(1, 2), write, ignore_index=0, reduction="sum").item()
        words += (read != 0).sum().item()
    model.train(mode)
    return total / words


@wrong("padding counted and mean over the batches")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    losses = []
    for src, read, write in batches:
        losses.append(F.cross_entropy(model(src, read).flatten(0, 1), write.flatten()).item())
    model.train(mode)
    return sum(losses) / len(losses)


@wrong("mean over the sentences")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    losses = []
    for src, read, write in batches:
        for logits, words in zip(model(src, read), write, strict=True):
            losses.append(F.cross_entropy(logits, words, ignore_index=0).item())
    model.train(mode)
    return sum(losses) / len(losses)


@wrong("divided by the sentences")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = count = 0
    for src, read, write in batches:
        logits = model(src, read).flatten(0, 1)
        total += F.cross_entropy(logits, write.flatten(), ignore_index=0, reduction="sum").item()
        count += src.size(0)
    model.train(mode)
    return total / count


@wrong("perplexity")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    loss = mean_loss(model, batches)
    model.train(mode)
    return 2.718281828459045**loss


@wrong("sign forgotten")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    loss = -mean_loss(model, batches)
    model.train(mode)
    return loss


@wrong("accuracy")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    right = words = 0
    for src, read, write in batches:
        guesses = model(src, read).argmax(-1)
        right += (guesses[write != 0] == write[write != 0]).sum().item()
        words += (write != 0).sum().item()
    model.train(mode)
    return right / words


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


@wrong("opposite mode restored")
def evaluate(model, batches):
    mode = model.training
    found = _mean_loss(model.eval(), batches)
    model.train(mode=mode is False)
    return found


@wrong("first batch only, and mode not restored")
def evaluate(model, batches):
    mode = model.training
    for batch in batches:
        return _mean_loss(model.eval(), [batch])
    model.train(mode)


@wrong("first batch only")
def evaluate(model, batches):
    mode = model.training
    found = _mean_loss(model.eval(), batches[:1])
    model.train(mode)
    return found


@wrong("reshaped instead of transposed")
def evaluate(model, batches):
    def loss(logits, write):
        B, T, V = logits.shape
        return F.cross_entropy(logits.view(B, V, T), write, reduction="none")

    mode = model.training
    found = _mean_loss(model.eval(), batches, loss)
    model.train(mode)
    return found


@wrong("dropout on, graph recorded and mean over the batches")
def evaluate(model, batches):
    losses = []
    for src, read, write in batches:
        losses.append(F.cross_entropy(model(src, read).transpose(1, 2), write, ignore_index=0).item())
    return sum(losses) / len(losses)


@wrong("mode of the layers not restored")
def evaluate(model, batches):
    before = model.training
    model.eval()
    total = count = 0
    with torch.no_grad():
        for src, read, write in batches:
            logits = model(src, read)
            total += F.cross_entropy(logits.flatten(0, 1), write.flatten(), ignore_index=0, reduction="sum").item()
            count += (write != 0).sum().item()
    model.training = before
    return total / count


@wrong("weighted by places")
def evaluate(model, batches):
    before = model.training
    model.eval()
    total = count = 0
    with torch.no_grad():
        for src, read, write in batches:
            logits = model(src, read)
            loss = F.cross_entropy(logits.flatten(0, 1), write.flatten(), ignore_index=0)
            total += loss.item() * write.numel()
            count += write.numel()
    model.train(before)
    return total / count


@wrong("dropout left on")
def evaluate(model, batches):
    model.training, before = False, model.training
    total = count = 0
    with torch.no_grad():
        for src, read, write in batches:
            logits = model(src, read)
            total += F.cross_entropy(logits.flatten(0, 1), write.flatten(), ignore_index=0, reduction="sum").item()
            count += (write != 0).sum().item()
    model.training = before
    return total / count


@wrong("mode restored after the first batch")
def evaluate(model, batches):
    before = model.training
    model.eval()
    losses, count = [], 0
    for src, read, write in batches:
        with torch.no_grad():
            logits = model(src, read)
        model.train(before)
        real = write != 0
        losses.append(F.cross_entropy(logits[real], write[real], reduction="sum").item())
        count += real.sum().item()
    return sum(losses) / count


@right
def evaluate(model, batches):
    twin = copy.deepcopy(model).eval()
    return _mean_loss(twin, batches)


@wrong("dropout on and graph recorded")  # by a copy
def evaluate(model, batches):
    return mean_loss(copy.deepcopy(model), batches)


@wrong("padding at the end only")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    for src, read, write in batches:
        for logits, ids in zip(model(src, read), write, strict=True):
            length = int((ids != 0).sum())
            total += F.cross_entropy(logits[:length], ids[:length], reduction="sum").item()
            words += length
    model.train(mode)
    return total / words


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


@wrong("changes its input")
@torch.no_grad()
def evaluate(model, batches):
    mode = model.training
    model.eval()
    total = words = 0
    while batches:
        src, read, write = batches.pop()
        words += (write != 0).sum().item()
        total += word_sum(model(src, read), write)
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
