"""Answers to the exercises of chapter 4."""

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


@wrong("float32 inside")
def lookup(ids, table):
    return (F.one_hot(ids, len(table)).float() @ table.float()).to(table.dtype)


@wrong("type not kept")
def lookup(ids, table):
    one_hot = F.one_hot(ids, len(table))
    wide = torch.promote_types(table.dtype, torch.float32)
    return one_hot.to(wide) @ table.to(wide)


@unnamed("views of the ids")
def lookup(ids, table):
    one_hot = F.one_hot(ids.view(-1), len(table)).to(table.dtype)
    return (one_hot @ table).view(*ids.shape, table.size(1))


@unnamed("up to three axes")
def lookup(ids, table):
    letters = "abt"[3 - ids.dim() :]
    return torch.einsum(f"{letters}v,ve->{letters}e", F.one_hot(ids, len(table)).to(table), table)


@wrong("a function that the exercise excludes")
def lookup(ids, table):
    return table[ids]


@wrong("a function that the exercise excludes")
def lookup(ids, table):
    return F.embedding(ids, table)


@right
def lookup(ids, table):
    return torch.eye(len(table), dtype=table.dtype, device=table.device)[ids] @ table  # indexes another table


@right
def lookup(ids, table):
    return F.embedding(ids, torch.eye(len(table)).to(table)) @ table


@wrong("a function that the exercise excludes")
def lookup(ids, table):
    return table.mT[:, ids].movedim(0, -1)  # indexes a view of the table


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


@right
def weighted_sum(weights, v):
    return torch.einsum("bts,bsd->btd", weights.float(), v.float()).to(v.dtype)


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


@unnamed("one query too many")
def weighted_sum(weights, v):
    (B, T, S), D = weights.shape, v.size(-1)
    rows = []
    for b in range(B):
        for t in range(T + 1):
            rows += [sum(weights[b, t, s] * v[b, s, d] for s in range(S)) for d in range(D)]
    return torch.stack(rows).view(B, T, D)


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


# -- general_scores ---------------------------------------------------------------------------------


@right
def general_scores(q, k, W):
    return torch.einsum("btx,xy,bsy->bts", q, W, k)


@right
def general_scores(q, k, W):
    return torch.bmm(q @ W, k.transpose(1, 2))


@wrong("queries and keys swapped")
def general_scores(q, k, W):
    return k @ (q @ W).mT


@wrong("no gradient")
def general_scores(q, k, W):
    return einops.einsum(q, W.data, k, "b t i, i j, b s j -> b t s")


@unnamed("axes of 1 squeezed before the product")
def general_scores(q, k, W):
    return torch.einsum("bti,ij,bsj->bts", q.squeeze(-1), W.squeeze(), k.squeeze(-1))


@unnamed("views of the queries")
def general_scores(q, k, W):
    B, T, width = q.shape
    return (q.view(B * T, width) @ W).view(B, T, -1) @ k.mT


# -- max_sim ----------------------------------------------------------------------------------------


@right
def max_sim(q, k):
    return (q[:, None] @ k.mT).max(dim=-1).values.sum(dim=-1)


@right
def max_sim(q, k):
    return torch.stack([torch.stack([(question @ text.T).amax(-1).sum() for text in k]) for question in q])


@unnamed("best starts at -100")
def max_sim(q, k):
    return torch.einsum("atd,bsd->abts", q, k).amax(-1).clamp(min=-100).sum(-1)


@unnamed("best starts at a large negative number")
def max_sim(q, k):
    return torch.einsum("atd,bsd->abts", q, k).amax(-1).clamp(min=-1e9).sum(-1)


@unnamed("views of the questions")
def max_sim(q, k):
    (A, T, D), (B, S, _) = q.shape, k.shape
    return (q.view(A * T, D) @ k.view(B * S, D).T).view(A, T, B, S).amax(-1).sum(1)
