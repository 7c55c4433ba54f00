"""Answers to the exercises of chapter 0."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from answers import right, unnamed, wrong

# -- self_attention ---------------------------------------------------------------------------------


@right
def self_attention(x, W_query, W_key, W_value):
    queries = x @ W_query
    keys = x @ W_key
    values = x @ W_value
    attn_scores = queries @ keys.transpose(-2, -1)
    attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
    return attn_weights @ values


@right
def self_attention(x, W_query, W_key, W_value):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value)


@right
def self_attention(x, W_query, W_key, W_value):
    q = torch.einsum("...te,ed->...td", x, W_query)
    k = torch.einsum("...te,ed->...td", x, W_key)
    v = torch.einsum("...te,ed->...td", x, W_value)
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(W_query.shape[1])
    return torch.einsum("...ts,...sd->...td", scores.softmax(-1), v)


@right
def self_attention(x, W_query, W_key, W_value):
    def one_sequence(tokens):  # one token at a time
        contexts = torch.zeros(len(tokens), W_value.shape[1], device=x.device)
        keys, values = tokens @ W_key, tokens @ W_value
        for t, token in enumerate(tokens):
            query = token @ W_query
            scores = torch.stack([torch.dot(query, key) for key in keys]) / math.sqrt(len(query))
            weights = scores.exp() / scores.exp().sum()
            for weight, value in zip(weights, values, strict=True):
                contexts[t] += weight * value
        return contexts

    return one_sequence(x) if x.dim() == 2 else torch.stack([one_sequence(sequence) for sequence in x])


@right
def self_attention(x, W_query, W_key, W_value):
    scale = W_query.shape[-1] ** -0.25  # half of the scale for each side
    q, k = scale * F.linear(x, W_query.T), scale * F.linear(x, W_key.T)
    scores = torch.matmul(q, rearrange(k, "... s d -> ... d s"))
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return (exponentials @ (x @ W_value)) / exponentials.sum(dim=-1, keepdim=True)


@right
def self_attention(x, W_query, W_key, W_value):
    batch = x.unsqueeze(0) if x.dim() == 2 else x
    scores = torch.bmm(batch @ (W_query @ W_key.T), batch.permute(0, 2, 1))  # both matrices as one
    weights = F.softmax(scores / torch.sqrt(torch.tensor(W_key.size(1))), dim=2)
    return (weights @ batch @ W_value).view(*x.shape[:-1], W_value.size(1))


@right
def self_attention(x, W_query, W_key, W_value):
    q, k, v = (x.double() @ W.double() for W in (W_query, W_key, W_value))
    return ((q @ k.mT / k.size(-1) ** 0.5).softmax(-1) @ v).to(x.dtype)


@wrong("no scale")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.transpose(-2, -1), dim=-1) @ values


@wrong("no scale")
def self_attention(x, W_query, W_key, W_value):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value, scale=1.0)


def attend(x, W_query, W_key, W_value, divide_by):
    """What several learners write, with another divisor each."""
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.transpose(-2, -1) / divide_by, dim=-1) @ values


@wrong("divided by the width itself")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, W_key.shape[1])


@wrong("multiplied instead of divided")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, W_key.shape[1] ** -0.5)


@wrong("scale by the tokens' width")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, math.sqrt(x.shape[-1]))


@wrong("scale by the tokens' width")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, math.sqrt(W_query.shape[0]))


@wrong("scale by the values' width")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, W_value.shape[1] ** 0.5)


@wrong("scale by the number of keys")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, x.shape[-2] ** 0.5)


@wrong("scale by another number")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, 2**0.5)


@wrong("scale by another number")
def self_attention(x, W_query, W_key, W_value):
    return attend(x, W_query, W_key, W_value, 8)


@wrong("scale after the softmax")
def self_attention(x, W_query, W_key, W_value):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    weights = torch.softmax(q @ k.transpose(-1, -2), dim=-1)
    return weights / math.sqrt(q.shape[-1]) @ v


@wrong("no softmax")
def self_attention(x, W_query, W_key, W_value):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    weights = q @ k.mT / math.sqrt(k.shape[-1])
    return weights @ v


@wrong("divided by the sum")
def self_attention(x, W_query, W_key, W_value):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = q @ k.mT
    return scores / scores.sum(dim=-1, keepdim=True) @ v


def weigh(x, W_query, W_key, W_value, softmax):
    """What several learners write, with another softmax each."""
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    return softmax(q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5) @ v


@wrong("softmax twice")
def self_attention(x, W_query, W_key, W_value):
    return weigh(x, W_query, W_key, W_value, lambda scores: F.softmax(F.softmax(scores, dim=-1), dim=-1))


@wrong("softmax over the queries")
def self_attention(x, W_query, W_key, W_value):
    return weigh(x, W_query, W_key, W_value, lambda scores: torch.softmax(scores, dim=-2))


@wrong("softmax over the batch")
def self_attention(x, W_query, W_key, W_value):
    return weigh(x, W_query, W_key, W_value, lambda scores: torch.softmax(scores, dim=0))


@wrong("axis counted from the front")
def self_attention(x, W_query, W_key, W_value):
    return weigh(x, W_query, W_key, W_value, lambda scores: torch.softmax(scores, dim=1))


@wrong("softmax over the whole table")
def self_attention(x, W_query, W_key, W_value):
    return weigh(x, W_query, W_key, W_value, lambda scores: scores.exp() / scores.exp().sum(dim=(-2, -1), keepdim=True))


@wrong("softmax over everything")
def self_attention(x, W_query, W_key, W_value):
    return weigh(x, W_query, W_key, W_value, lambda scores: scores.exp() / scores.exp().sum())


@wrong("queries and keys swapped")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    weights = F.softmax(keys @ queries.mT / math.sqrt(keys.size(-1)), dim=-1)
    return weights @ values


@wrong("keys from the queries' projection")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_query, x @ W_value
    return F.scaled_dot_product_attention(queries, keys, values)


@wrong("values from the keys' projection")
def self_attention(x, W_query, W_key, W_value):
    queries, keys = x @ W_query, x @ W_key
    return torch.softmax(queries @ keys.mT / math.sqrt(keys.size(-1)), dim=-1) @ keys


@wrong("keys and values swapped")
def self_attention(x, W_query, W_key, W_value):
    queries, values, keys = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.mT / math.sqrt(keys.size(-1)), dim=-1) @ values


@wrong("values not projected")
def self_attention(x, W_query, W_key, W_value):
    queries, keys = x @ W_query, x @ W_key
    return torch.softmax(queries @ keys.mT / math.sqrt(keys.size(-1)), dim=-1) @ x


@wrong("tokens compared")
def self_attention(x, W_query, W_key, W_value):
    weights = torch.softmax(x @ x.mT, dim=-1)
    return weights @ (x @ W_value)


@wrong("tokens compared")
def self_attention(x, W_query, W_key, W_value):
    return F.scaled_dot_product_attention(x, x, x @ W_value)


@wrong("matrices transposed")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query.T, x @ W_key.T, x @ W_value.T
    return torch.softmax(queries @ keys.mT / math.sqrt(keys.size(-1)), dim=-1) @ values


@wrong("keys not transposed")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys / math.sqrt(keys.size(-1)), dim=-1) @ values


@wrong("transposes the batch")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.T / keys.shape[-1] ** 0.5, dim=-1) @ values


@wrong("axes counted from the front")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5, dim=-1) @ values


@wrong("exchanges sentences and tokens")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.transpose(0, 1) / keys.shape[-1] ** 0.5, dim=-1) @ values


@wrong("product the wrong way round")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return values @ torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1)


@wrong("weights transposed")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1).transpose(-2, -1) @ values


@wrong("weights returned")
def self_attention(x, W_query, W_key, W_value):
    queries, keys = x @ W_query, x @ W_key
    return torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1)


@wrong("scores returned")
def self_attention(x, W_query, W_key, W_value):
    return (x @ W_query) @ (x @ W_key).mT / W_key.shape[-1] ** 0.5


@wrong("causal without being told")
def self_attention(x, W_query, W_key, W_value):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value, is_causal=True)


@wrong("sentences see each other")
def self_attention(x, W_query, W_key, W_value):
    tokens = x.flatten(0, -2)
    queries, keys, values = tokens @ W_query, tokens @ W_key, tokens @ W_value
    context = torch.softmax(queries @ keys.T / keys.shape[-1] ** 0.5, dim=-1) @ values
    return context.reshape(*x.shape[:-1], W_value.shape[1])


@wrong("three axes only")
def self_attention(x, W_query, W_key, W_value):
    B, T, _ = x.shape
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    weights = torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1).view(B, T, T)
    return weights @ values


@wrong("two axes only")
def self_attention(x, W_query, W_key, W_value):
    T, _ = x.shape
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    context = torch.zeros(T, W_value.shape[1])
    for t in range(T):
        context[t] = torch.softmax(keys @ queries[t] / keys.shape[-1] ** 0.5, dim=0) @ values
    return context


@wrong("loops over the first axis")
def self_attention(x, W_query, W_key, W_value):
    contexts = []
    for sentence in x:
        sentence = sentence.view(-1, x.shape[-1])
        queries, keys, values = sentence @ W_query, sentence @ W_key, sentence @ W_value
        contexts.append(torch.softmax(queries @ keys.T / keys.shape[-1] ** 0.5, dim=-1) @ values)
    return torch.stack(contexts).view(*x.shape[:-1], -1)


@wrong("only six tokens")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    rows = []
    for i in range(6):
        scores = keys @ queries[i] / keys.shape[-1] ** 0.5
        rows.append(torch.softmax(scores, dim=-1) @ values)
    return torch.stack(rows)


@wrong("only six tokens")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    context = torch.zeros(x.shape[0], W_value.shape[1])
    for i in range(6):
        scores = keys @ queries[i] / keys.shape[-1] ** 0.5
        context[i] = torch.softmax(scores, dim=-1) @ values
    return context


@wrong("changes its input")
def self_attention(x, W_query, W_key, W_value):
    W_query /= W_query.shape[1] ** 0.5
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.mT, dim=-1) @ values


@wrong("more than the result")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    weights = torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1)
    return weights @ values, weights


@wrong("nothing returned")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    context = torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1) @ values
    print(context.shape)


@unnamed("no softmax")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.relu(queries @ keys.mT / keys.shape[-1] ** 0.5) @ values


# -- causal_weights ---------------------------------------------------------------------------------


def past(T):
    return torch.tril(torch.ones(T, T)).bool()


@right
def causal_weights(q, k):
    T = q.shape[-2]
    mask = torch.triu(torch.ones(T, T, device=q.device), diagonal=1)
    scores = q @ k.transpose(-2, -1)
    masked = scores.masked_fill(mask.bool(), -torch.inf)
    return torch.softmax(masked / k.shape[-1] ** 0.5, dim=-1)


@right
def causal_weights(q, k):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.size(-1))
    order = torch.arange(q.size(-2), device=q.device)
    return torch.where(order[:, None] >= order, scores, -1e9).softmax(dim=-1)


@right
def causal_weights(q, k):
    values = torch.eye(k.size(-2), device=k.device).expand(*k.shape[:-2], -1, -1)
    return F.scaled_dot_product_attention(q, k, values, is_causal=True)


@right
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)  # the mask comes after the softmax
    weights = torch.tril(weights)
    return weights / weights.sum(dim=-1, keepdim=True)


@right
def causal_weights(q, k):
    weights = torch.zeros(*q.shape[:-1], q.size(-2), device=q.device)
    for t in range(q.size(-2)):  # each query with the keys that it may see
        scores = (q[..., t : t + 1, :] * k[..., : t + 1, :]).sum(dim=-1) / math.sqrt(q.size(-1))
        weights[..., t, : t + 1] = F.softmax(scores, dim=-1)
    return weights


@right
def causal_weights(q, k):
    scores = q @ rearrange(k, "... s d -> ... d s") * q.size(-1) ** -0.5
    future = torch.full((q.size(-2), q.size(-2)), float("-inf"), device=q.device).triu(1)
    return (scores + future).softmax(-1)


@right
def causal_weights(q, k):
    exponentials = torch.exp(q @ k.mT / q.shape[-1] ** 0.5).tril()
    return exponentials / exponentials.sum(-1, keepdim=True)


@right
def causal_weights(q, k):
    scores = q.double() @ k.double().mT / q.size(-1) ** 0.5
    scores[..., ~past(q.size(-2)).to(q.device)] = -math.inf
    return scores.softmax(-1).float()


@right
def causal_weights(q, k):
    positions = range(q.size(-2))
    rows = []
    for t in positions:
        scores = torch.stack([(q[..., t, :] * k[..., s, :]).sum(-1) for s in positions], dim=-1)
        scores[..., t + 1 :] = float("-inf")
        rows.append(F.softmax(scores / math.sqrt(q.size(-1)), dim=-1))
    return torch.stack(rows, dim=-2)


@wrong("mask ignored")
def causal_weights(q, k):
    return torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)


@wrong("mask ignored")
def causal_weights(q, k):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    future = torch.triu(torch.ones(q.size(-2), q.size(-2)), diagonal=1).bool()
    scores.masked_fill(future, -torch.inf)  # the result is thrown away
    return torch.softmax(scores, dim=-1)


def fill(q, k, hidden, number=-torch.inf):
    """What several learners write, with another mask each."""
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(hidden, number), dim=-1)


@wrong("mask inverted")
def causal_weights(q, k):
    return fill(q, k, past(q.size(-2)))


@wrong("mask inverted")
def causal_weights(q, k):
    return fill(q, k, past(q.size(-2)), -1e9)


@wrong("past hidden")
def causal_weights(q, k):
    return fill(q, k, torch.tril(torch.ones(q.size(-2), q.size(-2)), diagonal=-1).bool())


@wrong("hides the diagonal")
def causal_weights(q, k):
    return fill(q, k, torch.triu(torch.ones(q.size(-2), q.size(-2))).bool())


@wrong("hides the diagonal")
def causal_weights(q, k):
    return fill(q, k, torch.triu(torch.ones(q.size(-2), q.size(-2))) == 1, -1e9)


@wrong("shows one future token")
def causal_weights(q, k):
    return fill(q, k, torch.triu(torch.ones(q.size(-2), q.size(-2)), diagonal=2) == 1)


@wrong("mask after the softmax")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return weights * torch.tril(torch.ones(q.size(-2), q.size(-2)))


@wrong("hidden scores set to 0")
def causal_weights(q, k):
    return torch.softmax(torch.tril(q @ k.mT / math.sqrt(q.size(-1))), dim=-1)


@wrong("hidden scores set to 0, then their weights")
def causal_weights(q, k):
    scores = q @ k.mT / math.sqrt(q.size(-1)) * past(q.size(-2))
    return torch.softmax(scores, dim=-1).tril()


@wrong("not low enough")
def causal_weights(q, k):
    return fill(q, k, ~past(q.size(-2)), -10)


@wrong("not low enough")
def causal_weights(q, k):
    return fill(q, k, ~past(q.size(-2)), -100)


@wrong("not low enough")
def causal_weights(q, k):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.softmax(scores - 5 * ~past(q.size(-2)), dim=-1)


@wrong("hidden scores set high")
def causal_weights(q, k):
    return fill(q, k, ~past(q.size(-2)), 1e9)


@wrong("zero times infinity")
def causal_weights(q, k):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    future = torch.triu(torch.ones(q.size(-2), q.size(-2)), diagonal=1)
    return torch.softmax(scores + future * float("-inf"), dim=-1)


@wrong("minus infinity after the softmax")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return weights.masked_fill(~past(q.size(-2)), -torch.inf)


@wrong("axis not kept")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    masked = weights * torch.tril(torch.ones(q.size(-2), q.size(-2)))
    return masked / masked.sum(dim=-1)


@wrong("no softmax")
def causal_weights(q, k):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return scores.masked_fill(~past(q.size(-2)), -torch.inf)


@wrong("softmax twice")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return torch.softmax(weights.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("softmax twice")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return torch.softmax(weights * past(q.size(-2)), dim=-1)


def normalise(q, k, softmax):
    """What several learners write, with another softmax each."""
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf))


@wrong("softmax over the queries")
def causal_weights(q, k):
    return normalise(q, k, lambda scores: torch.softmax(scores, dim=-2))


@wrong("softmax over the batch")
def causal_weights(q, k):
    return normalise(q, k, lambda scores: torch.softmax(scores, dim=0))


@wrong("axis counted from the front")
def causal_weights(q, k):
    return normalise(q, k, lambda scores: torch.softmax(scores, dim=1))


@wrong("softmax over the whole table")
def causal_weights(q, k):
    return normalise(q, k, lambda scores: scores.exp() / scores.exp().sum((-1, -2), keepdim=True))


@wrong("softmax over everything")
def causal_weights(q, k):
    return normalise(q, k, lambda scores: scores.exp() / torch.sum(scores.exp()))


def scale(q, k, divide_by):
    """What several learners write, with another divisor each."""
    scores = q @ k.transpose(-2, -1) / divide_by
    return torch.softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("no scale")
def causal_weights(q, k):
    return scale(q, k, 1)


@wrong("divided by the width itself")
def causal_weights(q, k):
    return scale(q, k, k.shape[-1])


@wrong("multiplied instead of divided")
def causal_weights(q, k):
    return scale(q, k, k.shape[-1] ** -0.5)


@wrong("scale by the number of keys")
def causal_weights(q, k):
    return scale(q, k, math.sqrt(k.shape[-2]))


@wrong("scale by another number")
def causal_weights(q, k):
    return scale(q, k, 2**0.5)


@wrong("queries and keys swapped")
def causal_weights(q, k):
    return fill(k, q, ~past(q.size(-2)))


@wrong("keys not transposed")
def causal_weights(q, k):
    scores = q @ k / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("transposes the batch")
def causal_weights(q, k):
    scores = q @ k.T / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("axes counted from the front")
def causal_weights(q, k):
    scores = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("exchanges sentences and tokens")
def causal_weights(q, k):
    scores = q @ k.transpose(0, 1) / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("only six tokens")
def causal_weights(q, k):
    return fill(q, k, torch.triu(torch.ones(6, 6), diagonal=1).bool())


@wrong("only six tokens")
def causal_weights(q, k):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.softmax(torch.where(past(6), scores, -torch.inf), dim=-1)


@wrong("mask as long as the batch")
def causal_weights(q, k):
    return fill(q, k, ~past(len(q)))


@wrong("mask as long as axis 1")
def causal_weights(q, k):
    return fill(q, k, ~past(q.shape[1]))


@wrong("three axes only")
def causal_weights(q, k):
    _, T, _ = q.shape
    return fill(q, k, ~past(T))


@wrong("two axes only")
def causal_weights(q, k):
    T, _ = q.shape
    return fill(q, k, ~past(T))


@wrong("mask as long as the width")
def causal_weights(q, k):
    return fill(q, k, ~past(q.shape[-1]))


@wrong("changes its input")
def causal_weights(q, k):
    q /= math.sqrt(q.size(-1))
    return torch.softmax((q @ k.mT).masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("more than the result")
def causal_weights(q, k):
    weights = fill(q, k, ~past(q.size(-2)))
    return weights, weights @ k


@wrong("nothing returned")
def causal_weights(q, k):
    weights = fill(q, k, ~past(q.size(-2)))
    print(weights.shape)


@wrong("a step missing")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1).tril()
    return weights / weights.amax(dim=-1, keepdim=True)


# -- CausalMultiHead --------------------------------------------------------------------------------


class Sound(nn.Module):
    """The layer as most learners write it; the answers below change one step each."""

    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.q_proj = nn.Linear(d_in, d_out, bias=False)
        self.k_proj = nn.Linear(d_in, d_out, bias=False)
        self.v_proj = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out)

    def project(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)

    def merge(self, heads):
        B, H, T, D = heads.shape
        return heads.transpose(1, 2).contiguous().view(B, T, H * D)

    def scale(self, x):
        return self.head_dim**0.5

    def hide(self, scores):
        T = scores.size(-1)
        future = torch.triu(torch.ones(T, T, device=scores.device), diagonal=1).bool()
        return scores.masked_fill(future, -torch.inf)

    def softmax(self, scores):
        return torch.softmax(scores, dim=-1)

    def forward(self, x):
        queries, keys, values = map(self.split, self.project(x))
        scores = queries @ keys.transpose(2, 3) / self.scale(x)
        weights = self.softmax(self.hide(scores))
        return self.out_proj(self.merge(weights @ values))


@right
class CausalMultiHead(Sound):
    pass


@right
class CausalMultiHead(Sound):
    def forward(self, x):
        q, k, v = (rearrange(y, "b t (h d) -> b h t d", h=self.num_heads) for y in self.project(x))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(rearrange(heads, "b h t d -> b t (h d)"))


@right
class CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.out_proj = nn.Linear(d_out, d_out)
        self.v_proj, self.k_proj, self.q_proj = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.width = d_out // num_heads

    def forward(self, x):
        heads = []
        parts = zip(
            *(y.split(self.width, dim=-1) for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x))), strict=True
        )
        for q, k, v in parts:  # a loop over the heads
            scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.width)
            future = torch.full(scores.shape[1:], -math.inf, device=x.device).triu(1)
            heads.append(torch.softmax(scores + future, dim=2) @ v)
        return self.out_proj(torch.cat(heads, dim=2))


@right
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)))

    def hide(self, scores):
        T = scores.size(-1)
        return scores.masked_fill(self.mask[:T, :T] == 0, -1e9)


@right
class CausalMultiHead(Sound):
    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (y.view(B, T, self.num_heads, -1) for y in self.project(x))
        scores = torch.einsum("bthd,bshd->bhts", q, k) * self.head_dim**-0.5
        order = torch.arange(T, device=x.device)
        weights = scores.where(order <= order[:, None], -math.inf).softmax(-1)
        return self.out_proj(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


@right
class CausalMultiHead(Sound):
    def forward(self, x):
        q, k, v = (torch.stack(y.chunk(self.num_heads, dim=-1)) for y in self.project(x))  # heads first
        exponentials = torch.exp(q @ k.mT / math.sqrt(q.size(-1))).tril()
        weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
        return self.out_proj(torch.cat(list(weights @ v), dim=-1))


@right
class CausalMultiHead(Sound):
    """The mask is made in the first call, and made anew for another length."""

    mask = None

    def hide(self, scores):
        if self.mask is None or len(self.mask) != scores.size(-1):
            self.mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return scores.masked_fill(~self.mask, -math.inf)


@wrong("view instead of transpose")
class CausalMultiHead(Sound):
    def split(self, x):
        return x.view(x.size(0), self.num_heads, x.size(1), self.head_dim)


@wrong("view instead of transpose in merging")
class CausalMultiHead(Sound):
    def merge(self, heads):
        return heads.contiguous().view(heads.size(0), heads.size(2), -1)


@wrong("view instead of transpose at both ends")
class CausalMultiHead(Sound):
    def split(self, x):
        return x.view(x.size(0), self.num_heads, -1, self.head_dim)

    def merge(self, heads):
        B, H, T, D = heads.shape
        return heads.reshape(B, T, H * D)


@wrong("transpose forgotten")
class CausalMultiHead(Sound):
    def split(self, x):
        return x.view(*x.shape[:2], self.num_heads, self.head_dim)

    def merge(self, heads):
        return heads.flatten(2)


@wrong("merged without transpose")
class CausalMultiHead(Sound):
    def merge(self, heads):
        return heads.flatten(2)


@wrong("view of a transposed tensor")
class CausalMultiHead(Sound):
    def merge(self, heads):
        B, H, T, D = heads.shape
        return heads.transpose(1, 2).view(B, T, H * D)


@wrong("width and number of heads exchanged")
class CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_in, d_out, bias=False)
        self.k_proj = nn.Linear(d_in, d_out, bias=False)
        self.v_proj = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        T = x.size(1)
        q, k, v = (
            rearrange(proj(x), "b t (h d) -> b h t d", d=self.num_heads)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
        return self.out_proj(rearrange(weights @ v, "b h t d -> b t (h d)"))


@wrong("heads interleaved")
class CausalMultiHead(Sound):
    def split(self, x):
        return rearrange(x, "b t (d h) -> b h t d", h=self.num_heads)

    def merge(self, heads):
        return rearrange(heads, "b h t d -> b t (d h)")


@wrong("heads interleaved in splitting")
class CausalMultiHead(Sound):
    def split(self, x):
        return torch.stack([x[:, :, h :: self.num_heads] for h in range(self.num_heads)], dim=1)


@wrong("heads interleaved in merging")
class CausalMultiHead(Sound):
    def merge(self, heads):
        return torch.stack(heads.unbind(1), dim=-1).flatten(-2)


@wrong("d_out for every head")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, num_heads * d_out, num_heads)
        self.out_proj = nn.Linear(num_heads * d_out, d_out)


@wrong("head width from the tokens' width")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.head_dim = d_in // num_heads


@wrong("output projection of the tokens' width")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.out_proj = nn.Linear(d_in, d_out)


@wrong("one head for all")
class CausalMultiHead(Sound):
    def forward(self, x):
        return self.out_proj(F.scaled_dot_product_attention(*self.project(x), is_causal=True))


@wrong("heads added up")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.out_proj = nn.Linear(d_out // num_heads, d_out)

    def merge(self, heads):
        return sum(heads.unbind(1))


@wrong("heads averaged")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.out_proj = nn.Linear(d_out // num_heads, d_out)

    def merge(self, heads):
        return heads.mean(dim=1)


@wrong("heads not side by side")
class CausalMultiHead(Sound):
    def merge(self, heads):
        return heads.mean(dim=1)


@wrong("last head first")
class CausalMultiHead(Sound):
    def merge(self, heads):
        return torch.cat(heads.unbind(1)[::-1], dim=-1)


@wrong("output projection forgotten")
class CausalMultiHead(Sound):
    def forward(self, x):
        q, k, v = map(self.split, self.project(x))
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@wrong("output projection forgotten")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.out_proj = nn.Identity()


@wrong("output bias lost")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.out_proj = nn.Linear(d_out, d_out, bias=False)


@wrong("projections have a bias")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d_in, d_out) for _ in range(3))


@wrong("no scale")
class CausalMultiHead(Sound):
    def scale(self, x):
        return 1


@wrong("scale by the whole width")
class CausalMultiHead(Sound):
    def scale(self, x):
        return math.sqrt(self.q_proj.out_features)


@wrong("scale by the tokens' width")
class CausalMultiHead(Sound):
    def scale(self, x):
        return math.sqrt(x.shape[-1])


@wrong("scale by the number of heads")
class CausalMultiHead(Sound):
    def scale(self, x):
        return math.sqrt(self.num_heads)


@wrong("divided by the width itself")
class CausalMultiHead(Sound):
    def scale(self, x):
        return self.head_dim


@wrong("multiplied instead of divided")
class CausalMultiHead(Sound):
    def scale(self, x):
        return self.head_dim**-0.5


@wrong("mask ignored")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores


@wrong("mask inverted")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 1, -torch.inf)


@wrong("mask inverted")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).tril().bool(), -1e9)


@wrong("past hidden")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).tril(-1).bool(), -torch.inf)


@wrong("hides the diagonal")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).triu().bool(), -torch.inf)


@wrong("hides the diagonal")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).triu() == 1, -1e9)


@wrong("shows one future token")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).triu(2).bool(), -torch.inf)


@wrong("mask after the softmax")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores

    def softmax(self, scores):
        return torch.softmax(scores, dim=-1).tril()


@wrong("hidden scores set to 0")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return torch.tril(scores)


@wrong("not low enough")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -5)


@wrong("zero times infinity")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores + torch.ones(scores.shape[-2:]).triu(1) * float("-inf")


@wrong("only six tokens")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.register_buffer("mask", torch.triu(torch.ones(6, 6), diagonal=1).bool())

    def hide(self, scores):
        return scores.masked_fill(self.mask, -torch.inf)


@wrong("softmax over the queries")
class CausalMultiHead(Sound):
    def softmax(self, scores):
        return F.softmax(scores, dim=2)


@wrong("softmax over the heads")
class CausalMultiHead(Sound):
    def softmax(self, scores):
        return F.softmax(scores, dim=1)


@wrong("queries and keys swapped")
class CausalMultiHead(Sound):
    def project(self, x):
        return self.k_proj(x), self.q_proj(x), self.v_proj(x)


@wrong("keys not transposed")
class CausalMultiHead(Sound):
    def forward(self, x):
        queries, keys, values = map(self.split, self.project(x))
        scores = queries @ keys / self.scale(x)
        return self.out_proj(self.merge(self.softmax(self.hide(scores)) @ values))


@wrong("keys from the queries' projection")
class CausalMultiHead(Sound):
    def project(self, x):
        return self.q_proj(x), self.q_proj(x), self.v_proj(x)


@wrong("values from the keys' projection")
class CausalMultiHead(Sound):
    def project(self, x):
        return self.q_proj(x), self.k_proj(x), self.k_proj(x)


@wrong("keys and values swapped")
class CausalMultiHead(Sound):
    def project(self, x):
        return self.q_proj(x), self.v_proj(x), self.k_proj(x)


@wrong("dropout")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.dropout = nn.Dropout(0.3)

    def softmax(self, scores):
        return self.dropout(super().softmax(scores))


@wrong("dropout")
class CausalMultiHead(Sound):
    def softmax(self, scores):
        return F.dropout(super().softmax(scores), 0.1)


@wrong("something kept between calls")
class CausalMultiHead(Sound):
    mask = None

    def hide(self, scores):
        if self.mask is None:
            self.mask = torch.ones(scores.shape[-2:]).triu(1).bool()
        return scores.masked_fill(self.mask, -torch.inf)


@wrong("changes its input")
class CausalMultiHead(Sound):
    def forward(self, x):
        out = super().forward(x)
        x -= x.mean()
        return out


@wrong("not built as asked")
class CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.attention = Sound(d_in, d_out, num_heads)

    def forward(self, x):
        return self.attention(x)


@wrong("not built as asked")
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.W_query = self.q_proj
        del self.q_proj

    def project(self, x):
        return self.W_query(x), self.k_proj(x), self.v_proj(x)


@wrong("no gradient")
class CausalMultiHead(Sound):
    def project(self, x):
        return (y.detach() for y in super().project(x))


@wrong("more than the result")
class CausalMultiHead(Sound):
    def forward(self, x):
        return super().forward(x), x
