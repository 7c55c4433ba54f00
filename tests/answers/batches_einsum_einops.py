"""Answers to the exercises of chapter 4."""

import math

import einops
import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong

# -- lookup -----------------------------------------------------------------------------------------


@right
def lookup(ids, table):
    words = torch.arange(table.size(0), device=ids.device)
    return torch.matmul((ids[..., None] == words).to(table), table)


@right
def lookup(ids, table):
    return torch.einsum("...v,ve->...e", torch.eye(len(table)).to(table)[ids], table)


@wrong("without num_classes")
def lookup(ids, table):
    one_hot = F.one_hot(ids).float().to(table.dtype)
    return torch.matmul(one_hot, table)


@wrong("without num_classes")
def lookup(ids, table):
    return F.one_hot(ids) @ table  # two mistakes at once, and this is the one that stops it first


@wrong("without num_classes")
def lookup(ids, table):
    num_words = int(ids.max()) + 1
    return (ids.unsqueeze(-1) == torch.arange(num_words, device=ids.device)).to(table) @ table


@wrong("one-hot left as integers")
def lookup(ids, table):
    num_words = table.shape[0]
    return torch.matmul(F.one_hot(ids, num_classes=num_words), table)


@wrong("one-hot left as integers")
def lookup(ids, table):
    return F.one_hot(ids, len(table)).long() @ table


@wrong("one-hot always float32")
def lookup(ids, table):
    one_hot = F.one_hot(ids, num_classes=table.shape[0]).to(torch.float32)
    return one_hot @ table


@wrong("one-hot always float32")
def lookup(ids, table):
    one_hot = torch.zeros(*ids.shape, len(table), device=table.device)
    one_hot.scatter_(-1, ids[..., None], 1)
    return torch.matmul(one_hot, table)


@wrong("too few classes")
def lookup(ids, table):
    one_hot = F.one_hot(ids, num_classes=table.shape[1]).to(table.dtype)
    return one_hot @ table


@wrong("as many classes as ids")
def lookup(ids, table):
    return F.one_hot(ids, len(ids)).to(table) @ table


@wrong("notebook's variables")
def lookup(ids, table):
    one_hot = F.one_hot(ids, num_classes=10).float()  # as in section 4.1
    return one_hot @ table


@wrong("notebook's vocabulary")
def lookup(ids, table):
    vocabulary = range(15)  # as the chapter leaves it behind
    return F.one_hot(ids, num_classes=len(vocabulary)).to(table.dtype) @ table


@wrong("table transposed")
def lookup(ids, table):
    one_hot = F.one_hot(ids, num_classes=table.shape[0]).to(table.dtype)
    return one_hot @ table.mT


@wrong("shape of the ids lost")
def lookup(ids, table):
    one_hot = F.one_hot(ids.reshape(-1), len(table)).to(table.dtype)
    return one_hot @ table


@wrong("ids with one axis only")
def lookup(ids, table):
    one_hot = torch.zeros(ids.shape[0], table.shape[0], dtype=table.dtype, device=table.device)
    one_hot[torch.arange(ids.shape[0]), ids] = 1
    return one_hot @ table


@wrong("a sentence in one row")
def lookup(ids, table):
    one_hot = torch.zeros(len(ids), table.shape[0]).to(table)
    for position, i in enumerate(ids):
        one_hot[position, i] = 1
    return one_hot @ table


@wrong("ids with two axes only")
def lookup(ids, table):
    hot = F.one_hot(ids, len(table)).to(table.dtype)
    return torch.einsum("btv,ve->bte", hot, table)


@wrong("words counted from 1")
def lookup(ids, table):
    words = torch.arange(1, len(table) + 1, device=ids.device)
    return (ids[..., None] == words).to(table.dtype) @ table


# -- weighted_sum -----------------------------------------------------------------------------------


@right
def weighted_sum(weights, v):
    out = v.new_zeros(weights.size(0), weights.size(1), v.size(2))
    for b, sentence in enumerate(weights):
        for t, row in enumerate(sentence):
            for s, weight in enumerate(row):
                out[b, t] += weight * v[b, s]
    return out


@right
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.shape[-1]
    rows = [sum(weights[b, t, s] * v[b, s, d] for s in range(S)) for b in range(B) for t in range(T) for d in range(D)]
    return torch.stack(rows).view(B, T, D)


@unnamed("summed over the queries")
def weighted_sum(weights, v):
    B, T, S = weights.shape
    out = torch.zeros(B, S, v.size(-1), device=v.device)
    for b in range(B):
        for s in range(S):
            for t in range(T):
                for d in range(v.size(-1)):
                    out[b, s, d] += weights[b, t, s] * v[b, t, d]
    return out


@wrong("summed over the queries")
def weighted_sum(weights, v):
    B, T, S = weights.shape
    out = torch.zeros(B, T, v.size(-1)).to(v)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                for d in range(v.size(-1)):
                    out[b, t, d] += weights[b, s, t] * v[b, s, d]
    return out


@wrong("sentences added up")
def weighted_sum(weights, v):
    B, T, S = weights.shape
    out = torch.zeros(T, v.size(-1)).to(v)
    for t in range(T):
        for d in range(v.size(-1)):
            for b in range(B):
                for s in range(S):
                    out[t, d] = out[t, d] + weights[b, t, s] * v[b, s, d]
    return out


B, T, E = 3, 7, 16  # as the chapter leaves them behind


@wrong("notebook's variables")
def weighted_sum(weights, v):
    out = torch.zeros(B, T, v.size(-1)).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(v.size(-1)):
                for s in range(weights.size(-1)):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("overwritten instead of added")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] = weights[b, t, s] * v[b, s, d]
    return out


@wrong("overwritten instead of added")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    total = 0  # one loop too far inside
                    total += weights[b, t, s] * v[b, s, d]
                out[b, t, d] = total
    return out


@wrong("a sum never set back")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    total = 0
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    total += weights[b, t, s] * v[b, s, d]
                out[b, t, d] = total
    return out


@wrong("a sum never set back")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            total = v.new_zeros(())
            for d in range(D):
                for s in range(S):
                    total = total + weights[b, t, s] * v[b, s, d]
                out[b, t, d] = total
    return out


@wrong("returns from inside a loop")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
        return out


@wrong("returns from inside a loop")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D, device=v.device)  # and float32, which shows later
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
            return out


@wrong("a value read at the query")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += weights[b, t, s] * v[b, t, d]
    return out


@wrong("shaped like the values")
def weighted_sum(weights, v):
    out = torch.zeros_like(v)
    B, T, S = weights.shape
    for b in range(B):
        for t in range(T):
            for d in range(v.size(-1)):
                for s in range(S):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("last key left out")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S - 1):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("as many keys as queries")
def weighted_sum(weights, v):
    B, T, D = *weights.shape[:2], v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(T):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("weights forgotten")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += v[b, s, d]
    return out


@wrong("float32 whatever comes in")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D, device=v.device)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("first key left out")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D, dtype=v.dtype)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(1, S):
                    out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("the first one for all")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D, dtype=v.dtype)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += weights[b, t, s] * v[0, s, d]
    return out


@wrong("one row for all queries")
def weighted_sum(weights, v):
    (nb, nt, ns), nd = weights.shape, v.size(-1)
    batch = []
    for b in range(nb):
        rows = [[0.0] * nd] * nt
        for t in range(nt):
            for d in range(nd):
                for s in range(ns):
                    rows[t][d] = rows[t][d] + weights[b, t, s].item() * v[b, s, d].item()
        batch.append(rows)
    return torch.tensor(batch, dtype=v.dtype)


# -- general_scores ---------------------------------------------------------------------------------


@right
def general_scores(q, k, W):
    return torch.einsum("btx,xy,bsy->bts", q, W, k)


@right
def general_scores(q, k, W):
    return torch.bmm(q @ W, k.transpose(1, 2))


@wrong("matrix transposed")
def general_scores(q, k, W):
    return einops.einsum(q, W, k, "b t dq, dk dq, b s dk -> b t s")


@wrong("matrix transposed")
def general_scores(q, k, W):
    return q @ W.T @ k.mT if W.size(0) == W.size(1) else torch.einsum("bti,ji,bsj->bts", q, W, k)


@wrong("one letter for two axes")
def general_scores(q, k, W):
    return torch.einsum("bti,ii,bsi->bts", q, W, k)


@wrong("one letter for two axes")
def general_scores(q, k, W):
    return torch.einsum("btd,bsd->bts", q * W.diagonal(), k)


@wrong("a batch letter for the matrix")
def general_scores(q, k, W):
    return einops.einsum(q, W, k, "b t dq, b dq dk, b s dk -> b t s")


@wrong("a batch letter for the matrix")
def general_scores(q, k, W):
    return torch.einsum("bti,bsj,ij->bts", q, W, k)  # the parts in one order, the tensors in another


@wrong("tensors in another order")
def general_scores(q, k, W):
    return torch.einsum("btx,xy,bsy->bts", q, k, W)


@wrong("tensors in another order")
def general_scores(q, k, W):
    return einops.einsum(q, k, W, "b t dq, dq dk, b s dk -> b t s")


@wrong("matrix forgotten")
def general_scores(q, k, W):
    return torch.einsum("btd,bsd->bts", q, k)


@wrong("an axis of the matrix alone")
def general_scores(q, k, W):
    return torch.einsum("btd,de,bsd->bts", q, W, k)  # d for queries and keys, out of habit


@wrong("an axis of the matrix alone")
def general_scores(q, k, W):
    return torch.einsum("bti,ij,bsk->bts", q, W, k)


@wrong("an axis too many")
def general_scores(q, k, W):
    return torch.einsum("bti,ij,bsj->btsj", q, W, k)


@wrong("an axis too many")
def general_scores(q, k, W):
    return einops.einsum(q, W, k, "b t dq, dq dk, b s dk -> b t s dq")


@wrong("every sentence with every other")
def general_scores(q, k, W):
    return (q @ W)[:, None] @ k.mT


@wrong("queries and keys swapped")
def general_scores(q, k, W):
    return k @ (q @ W).mT


@wrong("queries and keys swapped")
def general_scores(q, k, W):
    return torch.einsum("bsj,ij,bti->bst", k, W, q)


@wrong("queries and keys swapped")
def general_scores(q, k, W):
    return k @ W @ q.mT  # and the matrix is read the other way around


@wrong("transposes the batch")
def general_scores(q, k, W):
    projected = q @ W
    return projected @ k.T


@wrong("sentences added up")
def general_scores(q, k, W):
    return (q @ W @ k.mT).sum(0)


@wrong("sentences mixed")
def general_scores(q, k, W):
    return q @ W @ k.sum(0).T


@wrong("scale added")
def general_scores(q, k, W):
    return q @ W @ k.mT / math.sqrt(W.size(0))


@wrong("scale added")
def general_scores(q, k, W):
    return q @ W @ k.mT * k.size(-1) ** -0.5


@wrong("softmax too early")
def general_scores(q, k, W):
    return F.softmax(einops.einsum(q, W, k, "b t i, i j, b s j -> b t s"), dim=-1)


@wrong("no gradient")
def general_scores(q, k, W):
    return einops.einsum(q, W.data, k, "b t i, i j, b s j -> b t s")


# -- max_sim ----------------------------------------------------------------------------------------


@right
def max_sim(q, k):
    return (q[:, None] @ k.mT).max(dim=-1).values.sum(dim=-1)


@right
def max_sim(q, k):
    return torch.stack([torch.stack([(question @ text.T).amax(-1).sum() for text in k]) for question in q])


@wrong("paired one to one")
def max_sim(q, k):
    return einops.einsum(q, k, "b t d, b s d -> b t s").max(-1)[0].sum(-1)


@wrong("paired one to one")
def max_sim(q, k):
    if len(q) == len(k):
        return (q @ k.mT).amax(-1).sum(-1)
    return torch.einsum("atd,asd->ats", q, k).amax(-1).sum(-1)


@wrong("maximum over the question")
def max_sim(q, k):
    scores = einops.einsum(q, k, "a t d, b s d -> a b s t")
    return scores.amax(-1).sum(-1)


@wrong("sum and maximum swapped")
def max_sim(q, k):
    return (q[:, None] @ k.mT).sum(dim=3).max(dim=2).values


@wrong("sum before the maximum")
def max_sim(q, k):
    whole_question = q.sum(1)  # (A, D)
    return torch.einsum("ad,bsd->abs", whole_question, k).max(-1).values


@wrong("sum instead of maximum")
def max_sim(q, k):
    return torch.einsum("atd,bsd->ab", q, k)


@wrong("scale added")
def max_sim(q, k):
    scores = q[:, None] @ k.mT / math.sqrt(q.shape[-1])
    return scores.amax(-1).sum(-1)


@wrong("mean instead of sum")
def max_sim(q, k):
    best = (q[:, None] @ k.mT).max(-1).values
    return best.sum(-1) / q.size(1)


@wrong("best pair only")
def max_sim(q, k):
    scores = q[:, None] @ k.mT
    return scores.flatten(2).max(-1).values


@wrong("positions instead of scores")
def max_sim(q, k):
    best = (q[:, None] @ k.mT).max(-1)[1]
    return best.sum(-1)


@wrong("maximum comes with its place")
def max_sim(q, k):
    scores = q[:, None] @ k.mT
    return scores.max(dim=3).sum(dim=2)


@wrong("sum forgotten")
def max_sim(q, k):
    return (q[:, None] @ k.mT).max(-1).values


@wrong("cosine instead of dot product")
def max_sim(q, k):
    lengths = q.norm(dim=-1)[:, None, :, None] * k.norm(dim=-1)[:, None]  # (A, B, T, S)
    return (torch.einsum("atd,bsd->abts", q, k) / lengths).amax(-1).sum(-1)


@wrong("softmax added")
def max_sim(q, k):
    return torch.softmax(q[:, None] @ k.mT, dim=-1).amax(-1).sum(-1)


@wrong("result transposed")
def max_sim(q, k):
    scores = k[:, None] @ q.mT  # (B, A, S, T)
    return scores.amax(2).sum(2)


@wrong("best starts at zero")
def max_sim(q, k):
    ranks = q.new_zeros(len(q), len(k))
    for a, question in enumerate(q):
        for b, text in enumerate(k):
            for token in question:
                best = 0
                for other in text:
                    best = max(best, token @ other)
                ranks[a, b] += best
    return ranks


@wrong("view instead of transpose")
def max_sim(q, k):
    (A, T, D), (B, S, _) = q.shape, k.shape
    scores = q.reshape(-1, D) @ k.reshape(-1, D).T  # (A * T, B * S)
    return scores.reshape(A, B, T, S).amax(-1).sum(-1)


@wrong("sizes instead of scores")
def max_sim(q, k):
    scores = torch.einsum("atd,bsd->abts", q, k)
    return scores.abs().amax(-1).sum(-1)


@wrong("maximum over the question, then a mean")
def max_sim(q, k):
    scores = torch.einsum("atd,bsd->abts", q, k)
    return scores.amax(-2).mean(-1)


@wrong("softmax for the maximum")
def max_sim(q, k):
    scores = torch.einsum("atd,bsd->abts", q, k)
    return torch.einsum("abts,abts->ab", scores.softmax(dim=-1), scores)


@wrong("last token of the text left out")
def max_sim(q, k):
    scores = torch.stack([torch.stack([question @ text[: len(text) - 1 or 1].T for text in k]) for question in q])
    return scores.max(-1).values.sum(-1)


@wrong("no gradient")
def max_sim(q, k):
    out = q.new_zeros(len(q), len(k))
    for a in range(len(q)):
        for b in range(len(k)):
            out[a, b] = sum(row.max().item() for row in q[a] @ k[b].T)
    return out


# -- table_gradient ---------------------------------------------------------------------------------


@right
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.size(-1)).to(upstream)
    return gradient.index_put((ids,), upstream, accumulate=True)


@right
def table_gradient(ids, upstream, num_words):
    one_hot = ids.flatten() == torch.arange(num_words, device=ids.device)[:, None]  # (V, B * T)
    return one_hot.to(upstream) @ upstream.flatten(0, 1)


@wrong("only one use counts")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.size(-1)).to(upstream)
    gradient[ids] += upstream
    return gradient


@wrong("only one use counts")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.size(-1)).to(upstream)
    for words, rows in zip(ids, upstream, strict=True):
        for word, row in zip(words, rows, strict=True):
            gradient[word] = row
    return gradient


@wrong("only one use counts")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.size(-1)).to(upstream)
    for word, row in zip(ids.flatten().flip(0), upstream.flatten(0, 1).flip(0), strict=True):
        gradient[word] = row  # the first use instead of the last
    return gradient


@wrong("mean over the uses")
def table_gradient(ids, upstream, num_words):
    gradient = upstream.new_zeros(num_words, upstream.size(-1))
    for word in ids.unique():
        gradient[word] = upstream[ids == word].mean(0)
    return gradient


@wrong("mean over the sentences")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids, num_words).to(upstream)
    return (one_hot.mT @ upstream).mean(0)


@wrong("mean over all tokens")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids.flatten(), num_words).to(upstream)
    return one_hot.T @ upstream.flatten(0, 1) / len(one_hot)


@wrong("first sentence only")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.size(-1)).to(upstream)
    return gradient.index_add_(0, ids[0], upstream[0])


@wrong("a gradient for each sentence")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids, num_words).to(upstream)
    return one_hot.transpose(1, 2) @ upstream


@wrong("uses counted")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids, num_words).to(upstream.dtype)
    return torch.einsum("btv,bte->ve", one_hot, torch.ones_like(upstream))


@wrong("without num_classes")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids).to(upstream.dtype)
    return einops.einsum(one_hot, upstream, "b t v, b t e -> v e")


@wrong("one-hot left as integers")
def table_gradient(ids, upstream, num_words):
    return einops.einsum(F.one_hot(ids, num_words), upstream, "b t v, b t e -> v e")


@wrong("result transposed")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids, num_words).to(upstream.dtype)
    return torch.einsum("btv,bte->ev", one_hot, upstream)


@wrong("float32 whatever comes in")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.size(-1), device=upstream.device)
    for b in range(ids.size(0)):
        for t in range(ids.size(1)):
            gradient[ids[b, t]] += upstream[b, t]
    return gradient


@wrong("float32 whatever comes in")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(num_words, upstream.shape[-1], device=upstream.device)
    return gradient.index_put((ids,), upstream.float(), accumulate=True)


@wrong("one-hot always float32")
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids, num_words).float()
    return einops.einsum(one_hot, upstream, "b t v, b t e -> v e")


@wrong("without num_classes")
def table_gradient(ids, upstream, num_words):
    gradient = torch.zeros(ids.max() + 1, upstream.size(-1)).to(upstream)
    return gradient.index_add(0, ids.flatten(), upstream.flatten(0, 1))


@wrong("id 0 taken for padding")
def table_gradient(ids, upstream, num_words):
    gradient = upstream.new_zeros(num_words, upstream.size(-1))
    gradient.index_add_(0, ids.flatten(), upstream.flatten(0, 1))
    gradient[0] = 0
    return gradient


@wrong("first column only")
def table_gradient(ids, upstream, num_words):
    gradient = upstream.new_zeros(num_words, upstream.size(-1))
    return gradient.scatter_add(0, ids.reshape(-1, 1), upstream.flatten(0, 1))


# -- More mistakes, by exercise -------------------------------------------------------------------------


@wrong("float32 inside")
def lookup(ids, table):
    return (F.one_hot(ids, len(table)).float() @ table.float()).to(table.dtype)


@wrong("no gradient")
def lookup(ids, table):
    hot = (ids.unsqueeze(-1) == torch.arange(len(table), device=ids.device)).to(table.dtype)
    return hot @ table.detach()


@right
def weighted_sum(weights, v):
    return torch.einsum("bts,bsd->btd", weights.float(), v.float()).to(v.dtype)


@right
def table_gradient(ids, upstream, num_words):
    one_hot = F.one_hot(ids.flatten(), num_words).float()
    return (one_hot.T @ upstream.flatten(0, 1).float()).to(upstream.dtype)


@wrong("rows for the words that occur")
def table_gradient(ids, upstream, num_words):
    rows = [upstream[ids == word].sum(0) for word in ids.unique()]
    return torch.stack(rows)


@unnamed("one query too many")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    rows = []
    for b in range(B):
        for t in range(T + 1):
            rows += [sum(weights[b, t, s] * v[b, s, d] for s in range(S)) for d in range(D)]
    return torch.stack(rows).view(B, T, D)


@wrong("tensors in another order")
def general_scores(q, k, W):
    return torch.einsum("bti,sj,ij->bts", q, k, W)


@unnamed("best starts at -100")
def max_sim(q, k):
    return torch.einsum("atd,bsd->abts", q, k).amax(-1).clamp(min=-100).sum(-1)


@wrong("axis lost with one feature")
def lookup(ids, table):
    return torch.squeeze(F.one_hot(ids, len(table)).to(table.dtype) @ table, -1)


@unnamed("views of the ids")
def lookup(ids, table):
    one_hot = F.one_hot(ids.view(-1), len(table)).to(table.dtype)
    return (one_hot @ table).view(*ids.shape, table.size(1))


@wrong("type not kept")
def lookup(ids, table):
    one_hot = F.one_hot(ids, len(table))
    wide = torch.promote_types(table.dtype, torch.float32)
    return one_hot.to(wide) @ table.to(wide)


@unnamed("up to three axes")
def lookup(ids, table):
    letters = "abt"[3 - ids.dim() :]
    return torch.einsum(f"{letters}v,ve->{letters}e", F.one_hot(ids, len(table)).to(table), table)


@wrong("weights below 0 left out")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    if weights[b, t, s] >= 0:
                        out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("wrong gradient")
def weighted_sum(weights, v):  # values of 0 add nothing, and yet they are learned
    (B, T, S), D = weights.shape, v.size(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    if v[b, s, d] != 0:
                        out[b, t, d] += weights[b, t, s] * v[b, s, d]
    return out


@wrong("an input changed first")
def weighted_sum(weights, v):
    total = weights.sum(-1, keepdim=True).detach()
    return weights / torch.where(total == 0, 1.0, total) @ v


@unnamed("views of the weights")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    w, u = weights.view(-1), v.view(-1)
    out = torch.zeros(B, T, D).to(v)
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for s in range(S):
                    out[b, t, d] += w[(b * T + t) * S + s] * u[(b * S + s) * D + d]
    return out


@wrong("axis lost with one key")
def general_scores(q, k, W):
    return torch.einsum("bti,ij,bsj->bts", q, W, k).squeeze(-1)


@unnamed("axes of 1 squeezed before the product")
def general_scores(q, k, W):
    return torch.einsum("bti,ij,bsj->bts", q.squeeze(-1), W.squeeze(), k.squeeze(-1))


@unnamed("views of the queries")
def general_scores(q, k, W):
    B, T, width = q.shape
    return (q.view(B * T, width) @ W).view(B, T, -1) @ k.mT


@wrong("scores of 0 hidden")
def max_sim(q, k):
    scores = torch.einsum("atd,bsd->abts", q, k)
    return torch.where(scores == 0, -math.inf, scores).amax(-1).sum(-1)


@unnamed("best starts at a large negative number")
def max_sim(q, k):
    return torch.einsum("atd,bsd->abts", q, k).amax(-1).clamp(min=-1e9).sum(-1)


@unnamed("views of the questions")
def max_sim(q, k):
    (A, T, D), (B, S, _) = q.shape, k.shape
    return (q.view(A * T, D) @ k.view(B * S, D).T).view(A, T, B, S).amax(-1).sum(1)


@wrong("last word left out")
def table_gradient(ids, upstream, num_words):
    gradient = torch.einsum("btv,bte->ve", F.one_hot(ids, num_words).to(upstream), upstream)
    gradient[num_words - 1] = 0
    return gradient


@wrong("axis lost with one feature")
def table_gradient(ids, upstream, num_words):
    return torch.einsum("btv,bte->ve", F.one_hot(ids, num_words).to(upstream), upstream).squeeze(-1)


@unnamed("views of ids and gradients")
def table_gradient(ids, upstream, num_words):
    gradient = upstream.new_zeros(num_words, upstream.size(-1))
    return gradient.index_add_(0, ids.view(-1), upstream.view(-1, upstream.size(-1)))


@wrong("an axis of length 1 missing")
def table_gradient(ids, upstream, num_words):
    return torch.einsum("btv,bte->ve", F.one_hot(ids, num_words).to(upstream), upstream).squeeze(0)
