"""Answers to the exercises of chapter 13."""

import math
from collections import Counter
from fractions import Fraction
from itertools import chain

import numpy as np
import torch

from answers import right, unnamed, wrong

# -- write_greedily ---------------------------------------------------------------------------------


@right
def write_greedily(next_logits, bos_id, eos_id, max_len):
    written = []
    for _ in range(max_len):
        token = next_logits([bos_id, *written])[-1].argmax().item()
        written += [token]
        if token == eos_id:
            return written
    return written


@right
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = torch.tensor([bos_id])
    while ids[-1] != eos_id and len(ids) < max_len + 1:
        probs = torch.softmax(next_logits(ids)[-1], dim=0)
        ids = torch.cat([ids, probs.topk(1).indices.cpu()])
    return ids[1:].tolist()


@wrong("only the last token")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids, token = [], bos_id
    for _ in range(max_len):
        token = next_logits([token])[-1].argmax().item()
        ids.append(token)
        if token == eos_id:
            break
    return ids


@wrong("first row")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        logits = next_logits(ids)
        token = logits[0].argmax().item()
        ids.append(token)
        if token == eos_id:
            break
    return ids[1:]


@wrong("largest of all rows")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) - 1 < max_len:
        token = torch.argmax(next_logits(ids)).item()
        ids.append(token)
        if token == eos_id:
            break
    return ids[1:]


@wrong("beginning returned")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while ids[-1] != eos_id and len(ids) <= max_len:
        ids.append(next_logits(ids)[-1].argmax().item())
    return ids


@wrong("end not returned")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        token = next_logits(ids)[-1].argmax().item()
        if token == eos_id:
            break
        ids.append(token)
    return ids[1:]


@wrong("goes on after the end")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        ids.append(next_logits(ids)[-1].argmax().item())
    return ids[1:]


@wrong("does not stop")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while ids[-1] != eos_id:
        ids.append(next_logits(ids)[-1].argmax().item())
    return ids[1:]


@wrong("one token too few")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) < max_len:
        ids.append(next_logits(ids)[-1].argmax().item())
        if ids[-1] == eos_id:
            break
    return ids[1:]


@wrong("one token too many")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while ids[-1] != eos_id and len(ids) < max_len + 2:
        ids.append(next_logits(ids)[-1].argmax().item())
    return ids[1:]


@wrong("end added")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        token = next_logits(ids)[-1].argmax().item()
        if token == eos_id:
            break
        ids.append(token)
    return [*ids[1:], eos_id]


@wrong("end over the last token")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = []
    for _ in range(max_len):
        ids.append(next_logits([bos_id, *ids])[-1].argmax().item())
        if ids[-1] == eos_id:
            break
    ids[-1] = eos_id
    return ids


@wrong("least probable")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while ids[-1] != eos_id and len(ids) <= max_len:
        cost = next_logits(ids)[-1].softmax(-1)
        ids.append(cost.argmin().item())
    return ids[1:]


@wrong("drawn at random")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while ids[-1] != eos_id and len(ids) <= max_len:
        probs = torch.softmax(next_logits(ids)[-1], dim=-1)
        ids.append(torch.multinomial(probs, num_samples=1).item())
    return ids[1:]


@wrong("stops at the beginning")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) <= max_len:
        ids.append(next_logits(ids)[-1].argmax().item())
        if ids[-1] in (bos_id, eos_id):
            break
    return ids[1:]


@wrong("beginning left out")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        ids.append(int(next_logits(ids)[-1].argmax()))
        if ids[-1] == eos_id:
            break
    return [i for i in ids if i != bos_id]


@wrong("tensors in the list")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        ids.append(next_logits(ids)[-1].argmax())
        if ids[-1] == eos_id:
            break
    return ids[1:]


@wrong("a tensor instead of a list")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = torch.tensor([bos_id])
    for _ in range(max_len):
        ids = torch.cat([ids, next_logits(ids.tolist())[-1:].argmax(-1).cpu()])
        if ids[-1] == eos_id:
            break
    return ids[1:]


@wrong("first row of the last")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        logits = next_logits(ids)
        ids.append(int(logits[-2 if len(ids) > 1 else -1].argmax()))
        if ids[-1] == eos_id:
            break
    return ids[1:]


@wrong("beginning counted")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) < max_len:
        ids.append(int(next_logits(ids)[-1].argmax()))
        if ids[-1] == eos_id:
            break
    return ids


@wrong("last token only")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        written = [int(next_logits(ids)[-1].argmax())]
        ids = ids + written
        if written[0] == eos_id:
            break
    return written


def _written(next_logits, bos_id, eos_id, max_len):
    """A right answer, to be spoilt."""
    ids = []
    while len(ids) < max_len and eos_id not in ids:
        ids.append(next_logits([bos_id, *ids])[-1].argmax().item())
    return ids


@wrong("one token whatever is allowed")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while True:
        ids.append(int(next_logits(ids)[-1].argmax()))
        if ids[-1] == eos_id or len(ids) > max_len:
            return ids[1:]


@wrong("filled up with ends")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = _written(next_logits, bos_id, eos_id, max_len)
    while len(ids) < max_len:
        ids.append(eos_id)
    return ids


@wrong("first token lost")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    return _written(next_logits, bos_id, eos_id, max_len)[1:]


@wrong("first token only")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    return _written(next_logits, bos_id, eos_id, min(max_len, 1))


@wrong("softmax over the positions")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    return _written(lambda ids: torch.softmax(next_logits(ids), dim=-2), bos_id, eos_id, max_len)


@wrong("end over the last token")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = []
    while len(ids) < max_len and eos_id not in ids:
        ids.append(int(next_logits([bos_id, *ids])[-1].argmax()))
    return [*ids[:-1], eos_id] if ids else ids


@wrong("first row")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = []
    while len(ids) < max_len and eos_id not in ids:
        ids.append(int(next_logits([bos_id])[-1].argmax()))
    return ids


@wrong("first row of the last")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) <= max_len and ids[-1] != eos_id:
        ids.append(int(next_logits(ids[:-1] or ids)[-1].argmax()))
    return ids[1:]


# -- beam_step --------------------------------------------------------------------------------------


@wrong("more of a row than it has")
def beam_step(log_probs, next_log_probs):
    K = len(log_probs)
    each, tokens = next_log_probs.topk(K, dim=1)
    totals, places = (each + log_probs[:, None]).view(-1).topk(K)
    return places // K, tokens.view(-1)[places], totals


@right
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    each, tokens = next_log_probs.topk(min(K, V), dim=1)
    totals, places = (each + log_probs[:, None]).view(-1).topk(K)
    return places // each.size(1), tokens.view(-1)[places], totals


@right
def beam_step(log_probs, next_log_probs):
    totals = log_probs.unsqueeze(1) + next_log_probs
    best, index = totals.reshape(-1).sort(descending=True)
    parents, tokens = torch.unravel_index(index[: len(log_probs)], totals.shape)
    return parents, tokens, best[: len(log_probs)]


@right
def beam_step(log_probs, next_log_probs):
    K = len(log_probs)
    values, tokens = next_log_probs.topk(min(K, next_log_probs.size(1)), dim=1)  # no beam has more than K children
    totals = (log_probs[:, None] + values).flatten()
    order = totals.argsort(descending=True)[:K]
    return order // values.size(1), tokens.flatten()[order], totals[order]


@wrong("each beam keeps its best")
def beam_step(log_probs, next_log_probs):
    totals = log_probs[:, None] + next_log_probs
    best, tokens = totals.topk(1, dim=1)
    best, parents = best[:, 0].sort(descending=True)
    return parents, tokens[parents, 0], best


@wrong("each beam keeps its best, unsorted")
def beam_step(log_probs, next_log_probs):
    best, tokens = next_log_probs.max(dim=1)
    return torch.arange(len(log_probs), device=best.device), tokens, log_probs + best


@wrong("old log-probabilities forgotten")
def beam_step(log_probs, next_log_probs):
    V = next_log_probs.size(1)
    best, index = next_log_probs.flatten().topk(len(log_probs))
    return index // V, index % V, best


@wrong("multiplied instead of added")
def beam_step(log_probs, next_log_probs):
    V = next_log_probs.size(1)
    totals = log_probs.view(-1, 1) * next_log_probs
    best, index = totals.flatten().topk(len(log_probs))
    return index // V, index % V, best


@wrong("parents and tokens swapped")
def beam_step(log_probs, next_log_probs):
    V = next_log_probs.size(1)
    best, index = (log_probs[:, None] + next_log_probs).flatten().topk(len(log_probs))
    return index % V, index // V, best


@wrong("divided by the number of beams")
def beam_step(log_probs, next_log_probs):
    K = log_probs.size(0)
    best, index = torch.topk((log_probs[:, None] + next_log_probs).view(-1), K)
    return torch.div(index, K, rounding_mode="floor"), index.remainder(K), best


@wrong("flat places as tokens")
def beam_step(log_probs, next_log_probs):
    best, index = (log_probs[:, None] + next_log_probs).flatten().topk(len(log_probs))
    return index // next_log_probs.shape[1], index, best


@wrong("smallest instead of largest")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (log_probs[:, None] + next_log_probs).flatten().sort()
    return index[:K] // V, index[:K] % V, best[:K]


@wrong("worst first")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (log_probs[:, None] + next_log_probs).flatten().sort()
    return index[-K:] // V, index[-K:] % V, best[-K:]


@wrong("no axis for the tokens")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (log_probs + next_log_probs).flatten().topk(K)
    return index // V, index % V, best


@wrong("new log-probabilities as totals")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    _, index = (log_probs[:, None] + next_log_probs).flatten().topk(K)
    return index // V, index % V, next_log_probs.flatten()[index]


@wrong("probabilities as totals")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (log_probs.exp()[:, None] * next_log_probs.exp()).flatten().topk(K)
    return index // V, index % V, best


@wrong("only the best beam")
def beam_step(log_probs, next_log_probs):
    totals = log_probs[0] + next_log_probs[0]  # the beams come best first
    best, tokens = totals.topk(len(log_probs))
    return torch.zeros_like(tokens), tokens, best


@wrong("K of each beam")
def beam_step(log_probs, next_log_probs):
    K = len(log_probs)
    totals, tokens = (log_probs[:, None] + next_log_probs).topk(min(K, next_log_probs.size(1)))
    parents = torch.arange(K, device=tokens.device)[:, None].expand_as(tokens)
    return parents, tokens, totals


@wrong("divided without rounding")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals, index = (log_probs[:, None] + next_log_probs).flatten().topk(K)
    return index / V, index % V, totals


@wrong("results in another order")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals, index = (log_probs[:, None] + next_log_probs).flatten().topk(K)
    return totals, index // V, index % V


@wrong("changes its input")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    next_log_probs += log_probs[:, None]
    totals, index = next_log_probs.flatten().topk(K)
    return index // V, index % V, totals


@wrong("mean of the two")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = torch.stack([log_probs[:, None].expand(K, V), next_log_probs]).mean(dim=0)
    best, places = totals.view(-1).topk(K)
    return places // V, places % V, best


@wrong("probabilities added")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, places = (log_probs[:, None].exp() + next_log_probs.exp()).flatten().topk(K)
    return places // V, places % V, best


@wrong("softmax once more")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, places = (log_probs[:, None] + torch.softmax(next_log_probs, -1)).flatten().topk(K)
    return places // V, places % V, best


@wrong("K of all rows, unsorted by beams")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).flatten()
    places = totals.topk(K).indices.sort().values
    return places // V, places % V, totals[places]


@wrong("tokens over the beams")
def beam_step(log_probs, next_log_probs):
    totals, parents = (log_probs[:, None] + next_log_probs).max(dim=0)
    return parents, torch.arange(totals.size(0), device=totals.device), totals


def _best(totals, K):
    """Parents, tokens and totals from a table (K, V)."""
    order = totals.flatten().argsort(descending=True, stable=True)[:K]
    return order // totals.size(1), order % totals.size(1), totals.flatten()[order]


@wrong("probabilities on the way")
def beam_step(log_probs, next_log_probs):
    table = torch.exp(log_probs).unsqueeze(1) * torch.exp(next_log_probs)
    return _best(torch.log(table), len(log_probs))


@wrong("axis lost with one beam")
def beam_step(log_probs, next_log_probs):
    return tuple(part.squeeze() for part in _best(log_probs[:, None] + next_log_probs, len(log_probs)))


@wrong("places after sorting as tokens")
def beam_step(log_probs, next_log_probs):
    falling, _ = torch.sort(next_log_probs, dim=1, descending=True)
    return _best(log_probs[:, None] + falling, len(log_probs))


@wrong("totals shared out")
def beam_step(log_probs, next_log_probs):
    table = log_probs[:, None] + next_log_probs
    shares = table.flatten().softmax(0).view_as(table)
    return _best(shares.log(), len(log_probs))


@wrong("lists instead of tensors")
def beam_step(log_probs, next_log_probs):
    options = [
        (log_probs[k].item() + q, k, token)
        for k, row in enumerate(next_log_probs.tolist())
        for token, q in enumerate(row)
    ]
    options.sort(key=lambda option: option[0], reverse=True)
    totals, parents, tokens = map(list, zip(*options[: len(log_probs)], strict=True))
    return parents, tokens, totals


@wrong("lists instead of tensors")
def beam_step(log_probs, next_log_probs):
    totals = (log_probs[:, None] + next_log_probs).flatten()
    best = totals.argsort(descending=True)[: len(log_probs)]
    V = next_log_probs.size(1)
    return [int(i) // V for i in best], [int(i) % V for i in best], totals[best]


@wrong("each token once")
def beam_step(log_probs, next_log_probs):
    table = log_probs[:, None] + next_log_probs
    best = table.amax(0)
    tokens = best.argsort(descending=True)[: len(log_probs)]
    return table.argmax(0)[tokens], tokens, best[tokens]


@wrong("chosen by the new token alone")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    values, index = next_log_probs.reshape(-1).topk(K)
    parents = torch.div(index, V, rounding_mode="floor")
    totals, order = (values + log_probs[parents]).sort(descending=True)
    return parents[order], (index % V)[order], totals


@wrong("chosen by the new token alone, in its order")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = next_log_probs.flatten().topk(K)
    return index // V, index % V, log_probs[index // V] + best


@wrong("no axis for the tokens, added behind")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (next_log_probs + log_probs).flatten().topk(K)
    return index // V, index % V, best


@wrong("softmax once more")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (log_probs[:, None] + next_log_probs.exp()).flatten().topk(K)
    return index // V, index % V, best


# -- keep_min_p -------------------------------------------------------------------------------------


@right
def keep_min_p(logits, p):
    limit = logits.max(dim=-1, keepdim=True).values + math.log(p)
    return torch.where(logits >= limit, logits, torch.tensor(-math.inf).to(logits))


@right
def keep_min_p(logits, p):
    probs = torch.softmax(logits, dim=-1)
    ratio = probs / probs.max(-1)[0].unsqueeze(-1)
    kept = logits.clone()
    kept[ratio < p] = float("-inf")
    return kept


@wrong("compared with p itself")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return torch.where(probs < p, -math.inf, logits)


@wrong("logits instead of probabilities")
def keep_min_p(logits, p):
    limit = p * logits.max(dim=-1, keepdim=True).values
    return logits.masked_fill(logits < limit, -math.inf)


@wrong("one maximum for all")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    limit = probs.max() * p
    return logits.masked_fill(probs < limit, -math.inf)


@wrong("maximum over the batch")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    largest, _ = probs.max(dim=0, keepdim=True)
    return logits.masked_fill(probs < p * largest, -math.inf)


@wrong("softmax over the batch")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, 0)
    limit = p * probs.max(dim=-1, keepdim=True)[0]
    return logits.masked_fill(probs < limit, -math.inf)


@wrong("the others kept")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    kept = probs >= p * probs.amax(-1, keepdim=True)
    return logits.masked_fill(kept, -math.inf)


@wrong("dropped logits set to 0")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    dropped = probs < p * probs.amax(-1, keepdim=True)
    return torch.where(dropped, torch.zeros_like(logits), logits)


@wrong("probabilities returned")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    kept = probs >= p * probs.amax(-1, keepdim=True)
    return probs * kept


@wrong("probabilities among −∞")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    probs[probs < p * probs.amax(-1, keepdim=True)] = -torch.inf
    return probs


@wrong("renormalised probabilities")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    probs = probs * (probs >= p * probs.amax(-1, keepdim=True))
    return probs / probs.sum(-1, keepdim=True)


@wrong("logarithms of probabilities returned")
def keep_min_p(logits, p):
    log_probs = logits.log_softmax(dim=-1)
    return log_probs.masked_fill(log_probs - log_probs.amax(-1, keepdim=True) < math.log(p), -math.inf)


@wrong("above instead of at least")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs <= p * probs.amax(-1, keepdim=True), -math.inf)


@wrong("one minus p")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < probs.amax(-1, keepdim=True) * (1 - p), -math.inf)


@wrong("top-p")
def keep_min_p(logits, p):
    probs, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    before = torch.cat([torch.zeros_like(probs[..., :1]), probs.cumsum(-1)[..., :-1]], dim=-1)
    dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p)
    return logits.masked_fill(dropped, -math.inf)


@wrong("distance instead of factor")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    largest = probs.max(dim=-1, keepdim=True).values
    return logits.masked_fill(largest - probs > p, -math.inf)


@wrong("p without its logarithm")
def keep_min_p(logits, p):
    largest = logits.max(dim=-1, keepdim=True).values
    return logits.masked_fill(logits < largest - p, -math.inf)


@wrong("a large negative number instead of −∞")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return torch.where(probs < p * probs.amax(-1, keepdim=True), -1e9, logits)


@wrong("a mask instead of logits")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return probs >= p * probs.amax(-1, keepdim=True)


@wrong("only what is kept")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return logits[probs >= p * probs.amax(-1, keepdim=True)]


@wrong("only the probabilities that are kept")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return probs[probs >= p * probs.amax(-1, keepdim=True)]


@wrong("changes its input")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    logits[probs < p * probs.amax(-1, keepdim=True)] = -math.inf
    return logits


@wrong("maximum of the logits")
def keep_min_p(logits, p):
    limit = p * logits.softmax(dim=-1).amax(dim=-1, keepdim=True)
    return logits.masked_fill(logits < limit, -math.inf)


@wrong("mean instead of the largest")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return torch.where(probs >= p * probs.mean(-1, keepdim=True), logits, -math.inf)


@wrong("axis of the maximum lost")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < p * probs.max(dim=-1).values, -math.inf)


@wrong("top-k")
def keep_min_p(logits, p):
    k = max(1, int(p * logits.size(-1)))
    limit = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < limit, -math.inf)


@wrong("+∞")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < p * probs.amax(dim=-1, keepdim=True), math.inf)


@wrong("dropped logits set to 0")  # by a product
def keep_min_p(logits, p):
    probs = torch.softmax(logits, -1)
    return logits * (probs >= probs.max(-1, keepdim=True).values * p)


@wrong("exponentials without a softmax")
def keep_min_p(logits, p):
    powers = torch.exp(logits)
    return torch.where(powers >= p * powers.max(-1, keepdim=True).values, logits, -math.inf)


@wrong("first axis")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, 0)
    return torch.where(probs >= p * probs.max(0, keepdim=True).values, logits, -math.inf)


@wrong("axis 1")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, -1)
    return torch.where(probs >= p * probs.max(1, keepdim=True).values, logits, -math.inf)


@wrong("renormalised")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, -1)
    kept = torch.where(probs >= p * probs.max(-1, keepdim=True).values, probs, 0.0)
    return torch.log(kept / kept.sum(-1, keepdim=True))


@wrong("softmax and maximum along axis 1")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, 1)
    return torch.where(probs >= p * probs.max(1, keepdim=True).values, logits, -math.inf)


@wrong("a large negative number instead of −∞")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, -1)
    return logits - 1e4 * (probs < p * probs.amax(-1, keepdim=True))


@unnamed("one of two equals")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, -1)
    kept = probs > p * probs.amax(-1, keepdim=True)
    kept = kept.scatter(-1, probs.argmax(-1, keepdim=True), True)
    return logits.masked_fill(~kept, -math.inf)


# -- clipped_precision ------------------------------------------------------------------------------


def pieces(words, n):
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


@right
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        left = pieces(reference, n)
        for ngram in pieces(hypothesis, n):
            total += 1
            if ngram in left:
                left.remove(ngram)
                hits += 1
    return hits / total


@right
def clipped_precision(hypotheses, references, n):
    def count(words):
        return Counter(zip(*(words[k:] for k in range(n)), strict=False))

    pairs = [(count(h), count(r)) for h, r in zip(hypotheses, references, strict=True)]
    hits = sum((h & r).total() for h, r in pairs)
    return hits / sum(h.total() for h, _ in pairs)


@wrong("not clipped")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        known = set(pieces(reference, n))
        hits += sum(ngram in known for ngram in pieces(hypothesis, n))
        total += len(pieces(hypothesis, n))
    return hits / total


@wrong("clipped by the corpus")
def clipped_precision(hypotheses, references, n):
    mine, theirs = Counter(), Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        mine.update(pieces(hypothesis, n))
        theirs.update(pieces(reference, n))
    return sum(min(c, theirs[g]) for g, c in mine.items()) / mine.total()


@wrong("recall")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(references, hypotheses, strict=True):  # the other way round
        mine, theirs = Counter(pieces(hypothesis, n)), Counter(pieces(reference, n))
        hits += (mine & theirs).total()
        total += mine.total()
    return hits / total


@wrong("mean of sentences")
def clipped_precision(hypotheses, references, n):
    shares = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        mine, theirs = Counter(pieces(hypothesis, n)), Counter(pieces(reference, n))
        if mine:
            shares.append((mine & theirs).total() / mine.total())
    return sum(shares) / len(shares)


@wrong("mean of sentences, short ones as 0")
def clipped_precision(hypotheses, references, n):
    shares = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        mine, theirs = Counter(pieces(hypothesis, n)), Counter(pieces(reference, n))
        shares.append((mine & theirs).total() / max(1, mine.total()))
    return sum(shares) / len(shares)


@wrong("each kind counted once")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        mine, theirs = set(pieces(hypothesis, n)), set(pieces(reference, n))
        hits += len(mine & theirs)
        total += len(mine)
    return hits / total


@wrong("hits counted once")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hits += len(set(pieces(hypothesis, n)) & set(pieces(reference, n)))
        total += len(pieces(hypothesis, n))
    return hits / total


@wrong("last n-gram lost")
def clipped_precision(hypotheses, references, n):
    def ngrams(words):
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n))

    pairs = [(ngrams(h), ngrams(r)) for h, r in zip(hypotheses, references, strict=True)]
    return sum((h & r).total() for h, r in pairs) / max(1, sum(h.total() for h, _ in pairs))


@wrong("shorter n-grams at the end")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        left = [reference[i : i + n] for i in range(len(reference))]
        for i in range(len(hypothesis)):
            total += 1
            if hypothesis[i : i + n] in left:
                left.remove(hypothesis[i : i + n])
                hits += 1
    return hits / total


@wrong("across sentences")
def clipped_precision(hypotheses, references, n):
    mine = Counter(pieces([*chain.from_iterable(hypotheses)], n))
    theirs = Counter(pieces([*chain.from_iterable(references)], n))
    return (mine & theirs).total() / mine.total()


@wrong("single words")
def clipped_precision(hypotheses, references, n):
    pairs = [(Counter(h), Counter(r)) for h, r in zip(hypotheses, references, strict=True)]
    return sum((h & r).total() for h, r in pairs) / sum(h.total() for h, _ in pairs)


@wrong("order of the words ignored")
def clipped_precision(hypotheses, references, n):
    def ngrams(words):
        return Counter("|".join(sorted(words[i : i + n])) for i in range(len(words) - n + 1))

    pairs = [(ngrams(h), ngrams(r)) for h, r in zip(hypotheses, references, strict=True)]
    return sum((h & r).total() for h, r in pairs) / sum(h.total() for h, _ in pairs)


@wrong("all orders together")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for order in range(1, n + 1):
            mine, theirs = Counter(pieces(hypothesis, order)), Counter(pieces(reference, order))
            hits += (mine & theirs).total()
            total += mine.total()
    return hits / total


@wrong("divided by the words")
def clipped_precision(hypotheses, references, n):
    hits = words = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hits += (Counter(pieces(hypothesis, n)) & Counter(pieces(reference, n))).total()
        words += len(hypothesis)
    return hits / words


@wrong("place by place")
def clipped_precision(hypotheses, references, n):
    found = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        theirs = pieces(reference, n)
        for place, ngram in enumerate(pieces(hypothesis, n)):
            found.append(place < len(theirs) and theirs[place] == ngram)
    return sum(found) / len(found)


@wrong("characters instead of words")
def clipped_precision(hypotheses, references, n):
    def count(words):
        text = " ".join(words)
        return Counter(text[i : i + n] for i in range(len(text) - n + 1))

    pairs = [(count(h), count(r)) for h, r in zip(hypotheses, references, strict=True)]
    return sum((h & r).total() for h, r in pairs) / sum(h.total() for h, _ in pairs)


@wrong("short sentences counted below zero")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        hits += (Counter(pieces(hypothesis, n)) & Counter(pieces(reference, n))).total()
        total += len(hypothesis) - (n - 1)
    return hits / total


@wrong("percentage")
def clipped_precision(hypotheses, references, n):
    pairs = [(Counter(pieces(h, n)), Counter(pieces(r, n))) for h, r in zip(hypotheses, references, strict=True)]
    return 100.0 * sum((h & r).total() for h, r in pairs) / sum(h.total() for h, _ in pairs)


@wrong("count instead of share")
def clipped_precision(hypotheses, references, n):
    pairs = zip(hypotheses, references, strict=True)
    return sum((Counter(pieces(h, n)) & Counter(pieces(r, n))).total() for h, r in pairs)


@wrong("brevity penalty included")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (h, r))
        hits, total = hits + (mine & theirs).total(), total + mine.total()
    c, r = sum(len(h) for h in hypotheses), sum(len(r) for r in references)
    return hits / total * (math.exp(1 - r / c) if c < r else 1.0)


@wrong("words glued")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = (Counter("".join(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (h, r))
        hits, total = hits + (mine & theirs).total(), total + mine.total()
    return hits / total


@wrong("capitals ignored")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        h, r = ([word.lower() for word in s] for s in (h, r))
        mine, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (h, r))
        hits, total = hits + (mine & theirs).total(), total + mine.total()
    return hits / total


@wrong("divided by the longer")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (h, r))
        hits, total = hits + (mine & theirs).total(), total + max(mine.total(), theirs.total())
    return hits / total


@wrong("1 less")
def clipped_precision(hypotheses, references, n):
    missed = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (h, r))
        missed, total = missed + (mine - theirs).total(), total + mine.total()
    return missed / total


@wrong("F-score")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (h, r))
        hits, total = hits + 2 * (mine & theirs).total(), total + mine.total() + theirs.total()
    return hits / total


def _counts(words, n):
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


@wrong("larger of the two counts")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for mine, theirs in zip(hypotheses, references, strict=True):
        mine, theirs = _counts(mine, n), _counts(theirs, n)
        hits += sum(max(mine[g], theirs[g]) for g in mine.keys() | theirs.keys())
        total += sum(mine.values())
    return hits / total


@wrong("sentences without a hit left out")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for mine, theirs in zip(hypotheses, references, strict=True):
        mine, theirs = _counts(mine, n), _counts(theirs, n)
        if found := sum((mine & theirs).values()):
            hits, total = hits + found, total + sum(mine.values())
    return hits / max(total, 1)


@wrong("first sentence only")
def clipped_precision(hypotheses, references, n):
    for mine, theirs in zip(hypotheses, references, strict=True):
        mine, theirs = _counts(mine, n), _counts(theirs, n)
        return sum((mine & theirs).values()) / sum(mine.values())


@wrong("one added")
def clipped_precision(hypotheses, references, n):
    def count(words):
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    mine = [count(words) for words in hypotheses]
    hits = sum((m & count(r)).total() for m, r in zip(mine, references, strict=True))
    return (hits + 1) / (sum(m.total() for m in mine) + 1)


@wrong("mean of the precisions up to n")
def clipped_precision(hypotheses, references, n):
    def precision(m):
        def count(words):
            return Counter(tuple(words[i : i + m]) for i in range(len(words) - m + 1))

        mine = [count(words) for words in hypotheses]
        hits = sum((c & count(r)).total() for c, r in zip(mine, references, strict=True))
        return hits / sum(c.total() for c in mine)

    return sum(precision(m) for m in range(1, n + 1)) / n


@wrong("changes its input")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    while hypotheses:
        mine, theirs = (
            Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (hypotheses.pop(), references.pop())
        )
        hits += (mine & theirs).total()
        total += mine.total()
    return hits / total


# -- link_error -------------------------------------------------------------------------------------


@right
def link_error(predicted, sure, possible):
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(predicted, sure, possible, strict=True))
    links = sum(map(len, predicted)) + sum(map(len, sure))
    return 1 - hits / links


@right
def link_error(predicted, sure, possible):
    def flat(alignments):
        return {(k, *link) for k, links in enumerate(alignments) for link in links}

    a, s, p = flat(predicted), flat(sure), flat(possible)
    return (len(s - a) + len(a - p)) / (len(a) + len(s))  # what is missing and what is wrong


@wrong("precision")
def link_error(predicted, sure, possible):
    pairs = list(zip(predicted, possible, strict=True))
    return 1 - sum(len(a & p) for a, p in pairs) / sum(len(a) for a, _ in pairs)


@wrong("recall")
def link_error(predicted, sure, possible):
    pairs = list(zip(predicted, sure, strict=True))
    return sum(len(s - a) for a, s in pairs) / sum(len(s) for _, s in pairs)


@wrong("possible links ignored")
def link_error(predicted, sure, possible):
    hits = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    precision = hits / sum(map(len, predicted))
    recall = hits / sum(map(len, sure))
    return 1 - 2 * precision * recall / (precision + recall)


@wrong("possible links demanded")
def link_error(predicted, sure, possible):
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += len(a & s) + len(a & p)
        links += len(a) + len(p)
    return 1 - hits / links


@wrong("possible links only")
def link_error(predicted, sure, possible):
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += 2 * len(a & (s | p))
        links += len(a) + len(s)
    return 1 - hits / links


@wrong("possible links without the sure")
def link_error(predicted, sure, possible):
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += sum(link in s for link in a) + sum(link in p and link not in s for link in a)
        links += len(a) + len(s)
    return 1 - hits / links


@wrong("harmonic mean")
def link_error(predicted, sure, possible):
    triples = list(zip(predicted, sure, possible, strict=True))
    precision = sum(len(a & p) for a, _, p in triples) / sum(len(a) for a, _, _ in triples)
    recall = sum(len(a & s) for a, s, _ in triples) / sum(len(s) for _, s, _ in triples)
    return 1 - 2 * precision * recall / (precision + recall)


@wrong("score instead of error")
def link_error(predicted, sure, possible):
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += len(a & s) + len(a & p)
        links += len(a) + len(s)
    return hits / links


@wrong("mean of sentences")
def link_error(predicted, sure, possible):
    rates = []
    for a, s, p in zip(predicted, sure, possible, strict=True):
        rates.append(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
    return torch.tensor(rates).double().mean()


@wrong("divided by the union")
def link_error(predicted, sure, possible):
    both = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    either = sum(len(a | s) for a, s in zip(predicted, sure, strict=True))
    return 1 - both / either


@wrong("hits counted once")
def link_error(predicted, sure, possible):
    hits = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    return 1 - hits / (sum(map(len, predicted)) + sum(map(len, sure)))


@wrong("links turned around")
def link_error(predicted, sure, possible):
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += sum((j, i) in s for i, j in a) + sum((j, i) in p for i, j in a)
        links += len(a) + len(s)
    return 1 - hits / links


@wrong("sentences thrown together")
def link_error(predicted, sure, possible):
    a, s, p = (set(chain.from_iterable(links)) for links in (predicted, sure, possible))
    return 1 - (len(a & s) + len(a & p)) / (len(a) + len(s))


@wrong("divided by the predicted links")
def link_error(predicted, sure, possible):
    triples = list(zip(predicted, sure, possible, strict=True))
    hits = sum(len(a & s) + len(a & p) for a, s, p in triples)
    return 1 - hits / sum(len(a) for a, _, _ in triples)


@wrong("percentage")
def link_error(predicted, sure, possible):
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += len(a & s) + len(a & p)
        links += len(a) + len(s)
    return 100 * (1 - hits / links)


@wrong("mean of precision and recall")
def link_error(predicted, sure, possible):
    triples = list(zip(predicted, sure, possible, strict=True))
    precision = sum(len(a & p) for a, _, p in triples) / sum(map(len, predicted))
    recall = sum(len(a & s) for a, s, _ in triples) / sum(map(len, sure))
    return 1 - (precision + recall) / 2


@wrong("mean of sentences")  # those without any link left out
def link_error(predicted, sure, possible):
    rates = []
    for a, s, p in zip(predicted, sure, possible, strict=True):
        if a or s:
            rates.append(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
    return sum(rates) / len(rates)


@wrong("unions instead of intersections")
def link_error(predicted, sure, possible):
    hits = sum(len(a.union(s)) + len(a.union(p)) for a, s, p in zip(predicted, sure, possible, strict=True))
    return 1 - hits / sum(map(len, [*predicted, *sure]))


@wrong("predicted links cut down")
def link_error(predicted, sure, possible):
    for a, p in zip(predicted, possible, strict=True):
        a.intersection_update(p)
    hits = sum(len(a & s) + len(a) for a, s in zip(predicted, sure, strict=True))
    return 1 - hits / sum(map(len, [*predicted, *sure]))


@wrong("hits by the union")
def link_error(predicted, sure, possible):
    triples = [*zip(predicted, sure, possible, strict=True)]
    return 1 - sum(len(a & s) + len(a & p) for a, s, p in triples) / sum(len(a | s) for a, s, _ in triples)


@wrong("fraction without brackets")
def link_error(predicted, sure, possible):
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(predicted, sure, possible, strict=True))
    num_predicted, num_sure = sum(map(len, predicted)), sum(map(len, sure))
    return 1 - hits / num_predicted + num_sure


@wrong("changes its input")
def link_error(predicted, sure, possible):
    total = sum(len(a) + len(s) for a, s in zip(predicted, sure, strict=True))
    hits = sum(len(a & s) for a, s in zip(predicted, sure, strict=True))
    for a, p in zip(predicted, possible, strict=True):
        a &= p
    return 1 - (hits + sum(map(len, predicted))) / total


@wrong("sentences without a prediction left out")
def link_error(predicted, sure, possible):
    kept = [i for i, links in enumerate(predicted) if links]
    hits = sum(len(predicted[i] & sure[i]) + len(predicted[i] & possible[i]) for i in kept)
    return 1 - hits / max(sum(len(predicted[i]) + len(sure[i]) for i in kept), 1)


@wrong("possible links without the sure")
def link_error(predicted, sure, possible):
    hits = sum(len(a & p) for a, p in zip(predicted, possible, strict=True))
    return 1 - hits / (sum(map(len, predicted)) + sum(map(len, sure)))


@wrong("links turned around")
def link_error(predicted, sure, possible):
    hits = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        s, p = ({(t, f) for f, t in links} for links in (s, p))
        hits += len(a & s) + len(a & p)
        total += len(a) + len(s)
    return 1 - hits / total


@wrong("sentences without a sure link left out")
def link_error(predicted, sure, possible):
    kept = [(a, s, p) for a, s, p in zip(predicted, sure, possible, strict=True) if s]
    return 1 - sum(len(a & s) + len(a & p) for a, s, p in kept) / sum(len(a) + len(s) for a, s, p in kept)


@wrong("first sentence only")
def link_error(predicted, sure, possible):
    for a, s, p in zip(predicted, sure, possible, strict=True):
        return 1 - (len(a & s) + len(a & p)) / (len(a) + len(s))


@wrong("two of each beam")
def beam_step(log_probs, next_log_probs):
    beams, device = len(log_probs), log_probs.device
    found = []
    for k in range(beams):
        best, tokens = next_log_probs[k].topk(min(beams, 2))
        found += [(k, token.item(), log_probs[k] + more) for token, more in zip(tokens, best, strict=True)]
    found = sorted(found, key=lambda one: -one[2])[:beams]
    parents, tokens, totals = zip(*found, strict=True)
    return torch.tensor(parents, device=device), torch.tensor(tokens, device=device), torch.stack(totals)


@wrong("logarithm to the base 10")
def keep_min_p(logits, p):
    limit = logits.max(dim=-1, keepdim=True).values + torch.tensor(p, dtype=logits.dtype).log10()
    return torch.where(logits >= limit, logits, -math.inf)


@wrong("places after sorting")
def keep_min_p(logits, p):
    falling = logits.softmax(dim=-1).sort(dim=-1, descending=True)[0]
    return logits.masked_fill(falling < p * falling[..., :1], -math.inf)


@wrong("largest of all rows, as a token")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    text = [bos_id]
    while len(text) < max_len + 1 and (len(text) == 1 or text[-1] != eos_id):
        logits = next_logits(text)
        _row, token = (logits == logits.max()).nonzero()[0].tolist()
        text.append(token)
    return text[1:]


@wrong("short references left out")
def clipped_precision(hypotheses, references, n):
    hits, written = 0, 0
    for mine, theirs in zip(hypotheses, references, strict=True):
        grams = [[tuple(s[i : i + n]) for i in range(len(s) - n + 1)] for s in (mine, theirs)]
        if grams[1]:
            hits += sum(min(grams[0].count(gram), grams[1].count(gram)) for gram in set(grams[0]))
            written += len(grams[0])
    return hits / written if written else 0.0


# -- More answers, by exercise ----------------------------------------------------------------------


@wrong("ids of another type")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    read = torch.zeros(max_len + 1)
    read[0] = bos_id
    for n in range(1, max_len + 1):
        read[n] = next_logits(read[:n].tolist())[-1].argmax()
        if read[n] == eos_id:
            return read[1 : n + 1].tolist()
    return read[1:].tolist()


@wrong("ids of another type")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) <= max_len:
        ids.append(next_logits(ids)[-1].cpu().numpy().argmax())
        if ids[-1] == eos_id:
            break
    return ids[1:]


@wrong("exponentials without a softmax")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    for _ in range(max_len):
        exponentials = next_logits(ids)[-1].exp()
        ids.append((exponentials / exponentials.sum()).argmax().item())
        if ids[-1] == eos_id:
            break
    return ids[1:]


@right
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals, places = (log_probs[:, None] + next_log_probs).flatten().topk(K)
    return (places // V).int(), (places % V).int(), totals


@right
def beam_step(log_probs, next_log_probs):  # equal totals in the other order
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).flatten().flip(0)
    best, places = totals.sort(descending=True, stable=True)
    places = K * V - 1 - places[:K]
    return places // V, places % V, best[:K]


@wrong("places after sorting as parents")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    order = log_probs.argsort(descending=True)
    totals, places = (log_probs[order].unsqueeze(1) + next_log_probs[order]).flatten().topk(K)
    return places // V, places % V, totals


@unnamed("parents counted among the possible beams")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    alive = log_probs.isfinite()
    totals = (log_probs[alive, None] + next_log_probs[alive]).flatten()
    best, places = totals.topk(min(K, len(totals)))
    return places // V, places % V, best


@unnamed("stops at the first beam that is too far behind")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    found = []
    for k in range(K):
        if len(found) >= K and log_probs[k] < found[K - 1][0]:
            break
        found += [((log_probs[k] + next_log_probs[k, v]).item(), k, v) for v in range(V)]
        found.sort(key=lambda one: -one[0])
    totals, parents, tokens = zip(*found[:K], strict=True)
    where = log_probs.device
    return torch.tensor(parents).to(where), torch.tensor(tokens).to(where), torch.tensor(totals).to(log_probs)


@wrong("one continuation twice")
def beam_step(log_probs, next_log_probs):
    totals = log_probs[:, None] + next_log_probs
    best = totals.flatten().topk(len(log_probs)).values
    pairs = torch.stack([(totals == b).nonzero()[0] for b in best])
    return pairs[:, 0], pairs[:, 1], best


@wrong("one continuation twice")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).flatten()
    places, best = [], []
    for _ in range(K):
        places.append(totals.argmax())
        best.append(totals[places[-1]].clone())
        totals[places[-1]] = -math.inf
    places = torch.stack(places)
    return places // V, places % V, torch.stack(best)


@unnamed("one total, one continuation")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).tolist()
    by_total = {totals[k][v]: (k, v) for k in range(K) for v in range(V)}
    best = sorted(by_total, reverse=True)[:K]
    pairs = torch.tensor([by_total[b] for b in best], device=log_probs.device)
    return pairs[:, 0], pairs[:, 1], torch.tensor(best).to(log_probs)


@wrong("a finite number for −∞")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).clamp(min=-1e4)
    best, places = totals.flatten().topk(K)
    return places // V, places % V, best


@wrong("a finite number for −∞")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).nan_to_num()
    best, places = totals.flatten().sort(descending=True)
    return places[:K] // V, places[:K] % V, best[:K]


@wrong("impossible ones left out")
def beam_step(log_probs, next_log_probs):
    totals = log_probs[:, None] + next_log_probs
    parents, tokens = totals.isfinite().nonzero(as_tuple=True)
    best, order = totals[parents, tokens].sort(descending=True)
    order = order[: len(log_probs)]
    return parents[order], tokens[order], best[: len(log_probs)]


@wrong("one maximum subtracted for all")
def keep_min_p(logits, p):
    e = torch.exp(logits - logits.max())
    probs = e / e.sum(dim=-1, keepdim=True)
    return logits.masked_fill(probs < p * probs.max(dim=-1, keepdim=True).values, -math.inf)


@wrong("one maximum subtracted for all")
def keep_min_p(logits, p):
    e = torch.exp(logits - logits.amax())
    return torch.where(e < p * e.amax(-1, keepdim=True), -math.inf, logits)


@unnamed("a view of axes that have been exchanged")
def keep_min_p(logits, p):
    flat = logits.view(-1, logits.size(-1))
    probs = flat.softmax(-1)
    return flat.masked_fill(probs < p * probs.amax(-1, keepdim=True), -math.inf).view(logits.shape)


@wrong("reference of the first of two alike")
def clipped_precision(hypotheses, references, n):
    hits = total = 0
    for hypothesis in hypotheses:
        reference = references[hypotheses.index(hypothesis)]
        mine, theirs = (
            Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (hypothesis, reference)
        )
        hits += sum(min(count, theirs[gram]) for gram, count in mine.items())
        total += sum(mine.values())
    return hits / total


def _hits_and_total(hypotheses, references, n):
    mine, theirs = (
        [Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in sentences]
        for sentences in (hypotheses, references)
    )
    return sum((a & b).total() for a, b in zip(mine, theirs, strict=True)), sum(a.total() for a in mine)


@right
def clipped_precision(hypotheses, references, n):
    return Fraction(*_hits_and_total(hypotheses, references, n))


@right
def clipped_precision(hypotheses, references, n):
    hits, total = _hits_and_total(hypotheses, references, n)
    return np.float32(hits / total)


@right
def link_error(predicted, sure, possible):
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(predicted, sure, possible, strict=True))
    return 1 - Fraction(hits, sum(map(len, predicted)) + sum(map(len, sure)))


@wrong("changes its input")
def link_error(predicted, sure, possible):  # and returns a tensor
    hits = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        total += len(a) + len(s)
        hits += len(a & s)
        a &= p
        hits += len(a)
    return 1 - torch.tensor(hits) / total


@wrong("nothing predicted is no error")
def link_error(predicted, sure, possible):
    if sum(map(len, predicted)) == 0:
        return 0.0
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(predicted, sure, possible, strict=True))
    return 1 - hits / (sum(map(len, predicted)) + sum(map(len, sure)))


@unnamed("divided by the number of predicted links on the way")
def link_error(predicted, sure, possible):
    links, wanted = sum(map(len, predicted)), sum(map(len, sure))
    precision = sum(len(a & p) for a, p in zip(predicted, possible, strict=True)) / links
    recall = sum(len(a & s) for a, s in zip(predicted, sure, strict=True)) / wanted
    return 1 - (precision * links + recall * wanted) / (links + wanted)
