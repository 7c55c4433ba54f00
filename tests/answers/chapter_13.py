"""Answers to the exercises of chapter 13."""

import math
from collections import Counter
from fractions import Fraction

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


@wrong("ids of another type")
def write_greedily(next_logits, bos_id, eos_id, max_len):
    read = torch.zeros(max_len + 1)
    read[0] = bos_id
    for n in range(1, max_len + 1):
        read[n] = next_logits(read[:n].tolist())[-1].argmax()
        if read[n] == eos_id:
            return read[1 : n + 1].tolist()
    return read[1:].tolist()


# -- beam_step --------------------------------------------------------------------------------------


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


@wrong("smallest instead of largest")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    best, index = (log_probs[:, None] + next_log_probs).flatten().sort()
    return index[:K] // V, index[:K] % V, best[:K]


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


@wrong("changes its input")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    next_log_probs += log_probs[:, None]
    totals, index = next_log_probs.flatten().topk(K)
    return index // V, index % V, totals


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


@wrong("one continuation twice")
def beam_step(log_probs, next_log_probs):
    totals = log_probs[:, None] + next_log_probs
    best = totals.flatten().topk(len(log_probs)).values
    pairs = torch.stack([(totals == b).nonzero()[0] for b in best])
    return pairs[:, 0], pairs[:, 1], best


@wrong("a finite number for −∞")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).clamp(min=-1e4)
    best, places = totals.flatten().topk(K)
    return places // V, places % V, best


@wrong("impossible ones left out")
def beam_step(log_probs, next_log_probs):
    totals = log_probs[:, None] + next_log_probs
    parents, tokens = totals.isfinite().nonzero(as_tuple=True)
    best, order = totals[parents, tokens].sort(descending=True)
    order = order[: len(log_probs)]
    return parents[order], tokens[order], best[: len(log_probs)]


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


@unnamed("one total, one continuation")
def beam_step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = (log_probs[:, None] + next_log_probs).tolist()
    by_total = {totals[k][v]: (k, v) for k in range(K) for v in range(V)}
    best = sorted(by_total, reverse=True)[:K]
    pairs = torch.tensor([by_total[b] for b in best], device=log_probs.device)
    return pairs[:, 0], pairs[:, 1], torch.tensor(best).to(log_probs)


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


@wrong("a large negative number instead of −∞")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return torch.where(probs < p * probs.amax(-1, keepdim=True), -1e9, logits)


@wrong("a mask instead of logits")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    return probs >= p * probs.amax(-1, keepdim=True)


@wrong("changes its input")
def keep_min_p(logits, p):
    probs = logits.softmax(dim=-1)
    logits[probs < p * probs.amax(-1, keepdim=True)] = -math.inf
    return logits


@unnamed("one of two equals")
def keep_min_p(logits, p):
    probs = torch.softmax(logits, -1)
    kept = probs > p * probs.amax(-1, keepdim=True)
    kept = kept.scatter(-1, probs.argmax(-1, keepdim=True), True)
    return logits.masked_fill(~kept, -math.inf)


@unnamed("a view of axes that have been exchanged")
def keep_min_p(logits, p):
    flat = logits.view(-1, logits.size(-1))
    probs = flat.softmax(-1)
    return flat.masked_fill(probs < p * probs.amax(-1, keepdim=True), -math.inf).view(logits.shape)


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


@right
def link_error(predicted, sure, possible):
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(predicted, sure, possible, strict=True))
    return 1 - Fraction(hits, sum(map(len, predicted)) + sum(map(len, sure)))


@unnamed("divided by the number of predicted links on the way")
def link_error(predicted, sure, possible):
    links, wanted = sum(map(len, predicted)), sum(map(len, sure))
    precision = sum(len(a & p) for a, p in zip(predicted, possible, strict=True)) / links
    recall = sum(len(a & s) for a, s in zip(predicted, sure, strict=True)) / wanted
    return 1 - (precision * links + recall * wanted) / (links + wanted)
