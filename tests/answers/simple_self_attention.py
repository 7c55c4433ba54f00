"""Answers to the exercises of chapter 2."""

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import default_device, softmax

# What an open notebook has beside the learner's function: the chapter's own words and what it made of them.
words = [
    [0.43, 0.15, 0.89],
    [0.55, 0.87, 0.66],
    [0.57, 0.85, 0.64],
    [0.22, 0.58, 0.33],
    [0.77, 0.25, 0.1],
    [0.05, 0.8, 0.55],
]
query = torch.tensor(words[1], device=default_device())
scores = torch.tensor(words, device=default_device()) @ torch.tensor(words, device=default_device()).T
weights = softmax(scores)
context = weights @ torch.tensor(words, device=default_device())
weights_of_journey = weights[1]


def naive_softmax(scores):
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum()


# -- context_of -------------------------------------------------------------------------------------


@right
def context_of(x, index):
    query = x[index]
    scores = torch.stack([torch.dot(query, key) for key in x])
    exponentials = (scores - scores.max()).exp()
    total = torch.zeros_like(query)
    for weight, value in zip(exponentials / exponentials.sum(), x, strict=True):
        total += weight * value
    return total


@right
def context_of(x, index):
    x = x[None]
    return F.scaled_dot_product_attention(x[:, index : index + 1], x, x, scale=1.0)[0, 0]


@wrong("its own score taken for the largest")
def context_of(x, index):
    query = x[index]
    parts = [(key @ query - query @ query).exp() for key in x]
    return sum(part * value for part, value in zip(parts, x, strict=True)) / sum(parts)


@wrong("notebook's variables")
def context_of(x, index):
    return context[index]


@wrong("notebook's variables")
def context_of(x, index):
    return weights[index] @ x


@wrong("notebook's variables")
def context_of(x, index):
    total = 0
    for weight, value in zip(weights_of_journey, x, strict=True):
        total = total + weight * value
    return total


@wrong("notebook's variables")
def context_of(x, index):
    scores = x @ query
    return softmax(scores) @ x


@wrong("another token")
def context_of(x, index):
    query = x[1]
    scores = x @ query
    return torch.softmax(scores, dim=0) @ x


@wrong("another token")
def context_of(x, index):
    weights = softmax(x @ x[5])  # step, which the exercise does by pencil
    return weights @ x


@wrong("another token")
def context_of(x, index):
    return softmax(x @ x[index - 1]) @ x


@wrong("not divided by the sum")
def context_of(x, index):
    weights = torch.exp(x @ x[index])
    return weights @ x


@wrong("not divided by the sum")
def context_of(x, index):
    scores = x @ x[index]
    exponentials = torch.exp(scores - scores.amax())
    return exponentials @ x


@wrong("softmax over one number")
def context_of(x, index):
    scores = x[index : index + 1] @ x.T  # (1, T)
    return (torch.softmax(scores, dim=0) @ x)[0]


@wrong("scaled")
def context_of(x, index):
    query = x[None, index : index + 1]
    return F.scaled_dot_product_attention(query, x[None], x[None])[0, 0]


@wrong("weights forgotten")
def context_of(x, index):
    softmax(x @ x[index])
    return x.sum(0) / len(x)


@wrong("no softmax")
def context_of(x, index):
    weights = torch.matmul(x, x[index])
    return weights @ x


@wrong("divided by the sum")
def context_of(x, index):
    weights = x @ x[index]
    weights = weights / weights.sum()
    return weights @ x


@wrong("weights returned")
def context_of(x, index):
    scores = x[index] @ x.T
    return torch.softmax(scores, dim=-1)


@wrong("product the wrong way round")
def context_of(x, index):
    weights = F.softmax(x @ x[index], dim=0)
    return torch.matmul(x, weights)


@wrong("sum over the numbers")
def context_of(x, index):
    weights = softmax(x @ x[index])
    return (weights[:, None] * x).sum(dim=1)


@wrong("all tokens at once")
def context_of(x, index):
    scores = x @ x.T
    return torch.softmax(scores, dim=-1) @ x


@wrong("softmax over the queries")
def context_of(x, index):
    weights = torch.softmax(x @ x.T, dim=0)
    context = weights @ x
    return context[index]


@wrong("softmax over everything")
def context_of(x, index):
    scores = x @ x.T
    weights = scores.flatten().softmax(0).view(scores.shape)
    return weights[index] @ x


@wrong("softmax overflows")
def context_of(x, index):
    return naive_softmax(x @ x[index]) @ x


@wrong("itself left out")
def context_of(x, index):
    s = x @ x[index]
    s[index] = -torch.inf
    return torch.softmax(s, dim=0) @ x


@wrong("largest score only")
def context_of(x, index):
    return x[(x @ x[index]).argmax()]


@wrong("six tokens")
def context_of(x, index):
    s = torch.stack([x[i] @ x[index] for i in range(6)])
    w = torch.softmax(s, dim=0)
    return sum(w[i] * x[i] for i in range(6))


@wrong("future left out")
def context_of(x, index):
    scores = (x @ x[index]).masked_fill(torch.arange(len(x), device=x.device) > index, -torch.inf)
    return torch.softmax(scores, 0) @ x


@wrong("directions compared")
def context_of(x, index):
    return torch.softmax(F.cosine_similarity(x, x[index : index + 1]), 0) @ x


# -- three_bad_scores -------------------------------------------------------------------------------


@right
def three_bad_scores():
    return torch.tensor([-20.0, 11.0, 10.5])


@right
def three_bad_scores():
    return torch.tensor([3, -5, 3])


@wrong("not a tensor")
def three_bad_scores():
    return [3.0, 3.0, -5.0]


@wrong("not three scores")
def three_bad_scores():
    return torch.tensor([3.0, 3.0, 3.0, -8.0])


@wrong("not three scores")
def three_bad_scores():
    return torch.tensor([[3.0, 3.0, -5.0]])


@wrong("not finite")
def three_bad_scores():
    return torch.tensor([float("inf"), 3.0, -5.0])


@wrong("the sum is 0")
def three_bad_scores():
    return torch.tensor([1.0, 1.0, -2.0])


@wrong("no score is negative")
def three_bad_scores():
    return torch.tensor([10.0, 20.0, 30.0])


@wrong("the sum is negative")
def three_bad_scores():
    return torch.tensor([3.0, 3.0, -7.0])


@wrong("the sum is small")
def three_bad_scores():
    return torch.tensor([0.3, 0.3, -0.5])


@wrong("two negative scores")
def three_bad_scores():
    return torch.tensor([9.0, -4.0, -2.0])


@wrong("too few weights above 1")
def three_bad_scores():
    return torch.tensor([3.0, 1.0, -2.0])


@wrong("too few weights above 1")
def three_bad_scores():
    return torch.tensor([2.0, 2.0, -2.0])  # both are as large as the sum, and not larger


# -- weights_at -------------------------------------------------------------------------------------


@right
def weights_at(x, temperature):
    scores = torch.einsum("te,se->ts", x, x)
    scores = scores - scores.amax(dim=1, keepdim=True)
    powers = torch.exp(scores / temperature)
    return powers / powers.sum(dim=1, keepdim=True)


@right
def weights_at(x, temperature):
    return torch.stack([F.softmax((x @ query) / temperature, dim=0) for query in x])


@wrong("notebook's variables")
def weights_at(x, temperature):
    return torch.softmax(scores / temperature, dim=-1)


@wrong("notebook's variables")
def weights_at(x, temperature):
    return weights / temperature


@wrong("temperature forgotten")
def weights_at(x, temperature):
    return torch.softmax(x @ x.T, dim=-1)


@wrong("temperature forgotten")
def weights_at(x, temperature):
    return softmax(torch.mm(x, x.T) - temperature)


@wrong("multiplied instead of divided")
def weights_at(x, temperature):
    return softmax(temperature * x @ x.T)


@wrong("temperature after the softmax")
def weights_at(x, temperature):
    weights = torch.softmax(x @ x.T, -1)
    weights = weights * (1 / temperature)
    return weights


@wrong("temperature twice")
def weights_at(x, temperature):
    x = x / temperature
    return torch.softmax(x @ x.T, dim=-1)


@wrong("softmax over the queries")
def weights_at(x, temperature):
    scores = (x @ x.T) / temperature
    exponentials = torch.exp(scores - scores.amax(0))
    return exponentials / exponentials.sum(0)


@wrong("softmax over everything")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    exponentials = torch.exp(scores - scores.max())
    return exponentials / torch.sum(exponentials)


@wrong("softmax over everything")
def weights_at(x, temperature):
    return naive_softmax(x @ x.T / temperature)


@wrong("softmax overflows")
def weights_at(x, temperature):
    exponentials = torch.exp(x @ x.T / temperature)
    return exponentials / exponentials.sum(dim=1)[:, None]


@wrong("softmax over the queries")
def weights_at(x, temperature):
    exponentials = torch.exp(x @ x.T / temperature)
    return exponentials / exponentials.sum(dim=-1)


@wrong("keepdim forgotten")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    exponentials = torch.exp(scores - scores.max(dim=1).values)
    return exponentials / exponentials.sum(dim=1)


@wrong("keepdim forgotten")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    exponentials = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1)


@unnamed("keepdim forgotten")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    return torch.softmax(scores - scores.amax(dim=-1), dim=-1)


@wrong("one maximum for all")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@wrong("no softmax")
def weights_at(x, temperature):
    return torch.einsum("te,se->ts", x, x) / temperature


@wrong("scaled")
def weights_at(x, temperature):
    scores = x @ x.T / x.shape[1] ** 0.5
    return torch.softmax(scores / temperature, dim=-1)


@wrong("compares numbers instead of tokens")
def weights_at(x, temperature):
    scores = torch.einsum("ti,tj->ij", x, x)
    return torch.softmax(scores / temperature, dim=-1)


@wrong("divided by the sum")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    return scores / scores.sum(1).unsqueeze(1)


@wrong("context returned")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    weights = torch.softmax(scores, dim=-1)
    return weights @ x


@wrong("root of the temperature")
def weights_at(x, temperature):
    return softmax(x @ x.T / temperature**0.5)


@wrong("scores cut to whole numbers")
def weights_at(x, temperature):
    return torch.softmax(x @ x.T // temperature, dim=-1)


@wrong("multiplied instead of divided")
def weights_at(x, temperature):
    return torch.softmax(x @ x.T * temperature, dim=0)


@wrong("keepdim forgotten")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    exponentials = torch.exp(scores - scores.max(dim=1).values)
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@unnamed("temperature doubled")
def weights_at(x, temperature):
    return softmax(x @ x.T / (2 * temperature))


@unnamed("a number added to the temperature")
def weights_at(x, temperature):
    return softmax(x @ x.T / (temperature + 0.1))


@wrong("temperature held above a bound")
def weights_at(x, temperature):
    temperature = temperature if temperature > 0.05 else 0.05
    return F.softmax((x @ x.mT) / temperature, dim=1)


# -- all_contexts -----------------------------------------------------------------------------------


@right
def all_contexts(x):
    return F.scaled_dot_product_attention(x, x, x, scale=1.0)


@right
def all_contexts(x):
    scores = torch.einsum("...te,...se->...ts", x, x)
    weights = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
    return torch.einsum("...ts,...se->...te", weights, x)


@unnamed("four axes at most")
def all_contexts(x):
    if x.dim() == 2:
        return softmax(x @ x.T) @ x
    sentences = x.flatten(0, 1) if x.dim() == 4 else x
    weights = softmax(torch.bmm(sentences, sentences.transpose(1, 2)))
    return torch.bmm(weights, sentences).view(x.shape)


@wrong("notebook's variables")
def all_contexts(x):
    return context


@wrong("notebook's variables")
def all_contexts(x):
    return torch.matmul(weights, x)


@wrong("transposes the batch")
def all_contexts(x):
    scores = x @ x.T
    weights = torch.softmax(scores, dim=-1)
    return weights @ x


@wrong("exchanges sentences and tokens")
def all_contexts(x):
    scores = torch.matmul(x, x.swapaxes(0, 1))
    return torch.softmax(scores, dim=-1) @ x


@wrong("axis counted from the front")
def all_contexts(x):
    scores = torch.matmul(x, x.transpose(2, 1))
    return F.softmax(scores, -1) @ x


@wrong("axis counted from the front")
def all_contexts(x):
    return softmax(x @ x.transpose(1, 2)) @ x


@unnamed("axis counted from the front")
def all_contexts(x):
    return torch.softmax(x @ x.transpose(-2, -1), dim=2) @ x


@wrong("compares numbers instead of tokens")
def all_contexts(x):
    scores = x.transpose(-2, -1) @ x
    return torch.matmul(x, F.softmax(scores, dim=-1))


@wrong("transposed first")
def all_contexts(x):
    scores = torch.matmul(x.transpose(-2, -1), x)
    return torch.softmax(scores, dim=-1) @ x


@wrong("product the wrong way round")
def all_contexts(x):
    weights = torch.softmax(x @ x.mT, dim=-1)
    return torch.matmul(x, weights)


@wrong("loops over the first axis")
def all_contexts(x):
    contexts = []
    for sentence in x:
        scores = sentence @ sentence.T
        contexts.append(torch.softmax(scores, dim=-1) @ sentence)
    return torch.stack(contexts)


@wrong("scaled")
def all_contexts(x):
    return F.scaled_dot_product_attention(x, x, x)


@wrong("one maximum for all")
def all_contexts(x):
    scores = x @ x.mT
    exponentials = torch.exp(scores - torch.max(scores))
    return exponentials / exponentials.sum(dim=-1, keepdim=True) @ x


@wrong("softmax over the queries")
def all_contexts(x):
    exponentials = torch.exp(x @ x.mT)
    return exponentials / exponentials.sum(dim=-1) @ x


@wrong("softmax counted from the front")
def all_contexts(x):
    return (x @ x.transpose(-2, -1)).softmax(1) @ x


@wrong("softmax over the batch")
def all_contexts(x):
    weights = torch.softmax(x @ x.mT, dim=0)
    return weights @ x


@wrong("softmax over the queries")
def all_contexts(x):
    scores = torch.einsum("...te,...se->...ts", x, x)
    return softmax(scores, dim=-2) @ x


@wrong("softmax over everything")
def all_contexts(x):
    return naive_softmax(x @ x.mT) @ x


@wrong("sentences see each other")
def all_contexts(x):
    shape = x.shape
    words = x.flatten(0, -2)
    return (torch.softmax(words @ words.T, dim=-1) @ words).view(shape)


@wrong("no softmax")
def all_contexts(x):
    weights = x @ x.transpose(-1, -2)
    return weights @ x


@wrong("keepdim forgotten")
def all_contexts(x):
    scores = x @ x.mT
    powers = torch.exp(scores - scores.amax(-1))
    return powers / powers.sum(-1) @ x


@wrong("divided by the sum")
def all_contexts(x):
    scores = x @ x.mT
    total = scores.sum(-1)
    return (scores / total.unsqueeze(-1)) @ x


@wrong("weights returned")
def all_contexts(x):
    return F.softmax(torch.matmul(x, x.mT), dim=-1)


@wrong("softmax overflows")
def all_contexts(x):
    powers = (x @ x.mT).exp()
    return (powers @ x) / powers.sum(-1, keepdim=True)


@wrong("softmax over each table")
def all_contexts(x):
    s = x @ x.mT
    w = torch.softmax(s.flatten(-2), dim=-1).view(s.shape)
    return w @ x


@wrong("weights of the first sentence")
def all_contexts(x):
    first = x.reshape(-1, *x.shape[-2:])[0]
    return torch.softmax(first @ first.T, dim=-1) @ x


@wrong("three axes only")
def all_contexts(x):
    B, _, _ = x.shape
    return torch.stack([torch.softmax(x[b] @ x[b].T, dim=1) @ x[b] for b in range(B)])


@wrong("softmax over the queries")
def all_contexts(x):
    return torch.softmax(x @ x.mT, dim=-1).mT @ x


# -- log_softmax ------------------------------------------------------------------------------------


@right
def log_softmax(x, dim=-1):
    return x - torch.logsumexp(x, dim, keepdim=True)


@right
def log_softmax(x, dim=-1):
    largest = x.max(dim, keepdim=True).values
    total = (x - largest).exp().sum(dim, keepdim=True)
    return x - (largest + total.log())


@wrong("logarithm of the softmax")
def log_softmax(x, dim=-1):
    return torch.softmax(x, dim=dim).log()


@wrong("logarithm of the softmax")
def log_softmax(x, dim=-1):
    exponentials = torch.exp(x - x.amax(dim, keepdim=True))
    return exponentials.log() - exponentials.sum(dim, keepdim=True).log()


@wrong("small number added")
def log_softmax(x, dim=-1):
    return torch.log(torch.softmax(x, dim) + 1e-9)


@wrong("small number added")
def log_softmax(x, dim=-1):
    return torch.softmax(x, dim).clamp(min=1e-30).log()


@wrong("softmax overflows")
def log_softmax(x, dim=-1):
    exponentials = torch.exp(x)
    weights = exponentials / exponentials.sum(dim, keepdim=True)
    return torch.log(weights)


@wrong("maximum not subtracted")
def log_softmax(x, dim=-1):
    total = torch.exp(x).sum(dim, keepdim=True)
    return x - total.log()


@wrong("maximum subtracted once")
def log_softmax(x, dim=-1):
    largest = x.amax(dim, keepdim=True)
    return x - torch.log(torch.exp(x - largest).sum(dim, keepdim=True))


@wrong("maximum subtracted once")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(x).sum(dim, keepdim=True))


@wrong("one maximum for all")
def log_softmax(x, dim=-1):
    shifted = x - torch.max(x)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@wrong("keepdim forgotten")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim)
    return shifted - torch.log(torch.exp(shifted).sum(dim))


@wrong("keepdim forgotten")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    total = shifted.exp().sum(dim)
    return shifted - total.log()


@wrong("maximum comes with its place")
def log_softmax(x, dim=-1):
    largest = torch.max(x, dim, keepdim=True)
    x = x - largest
    return x - x.exp().sum(dim, keepdim=True).log()


@wrong("softmax over everything")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum())


@wrong("softmax over everything")
def log_softmax(x, dim=-1):
    shifted = x - x.max()
    return shifted - shifted.exp().sum().log()


@wrong("axis ignored")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(-1, keepdim=True))


@wrong("logarithm of the sum forgotten")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim=dim, keepdim=True)


@wrong("logarithm before the sum")
def log_softmax(x, dim=-1):
    x = x - x.amax(dim, keepdim=True)
    return x - torch.log(torch.exp(x)).sum(dim, keepdim=True)


@wrong("plus instead of minus")
def log_softmax(x, dim=-1):
    largest = x.amax(dim, keepdim=True)
    return x - largest + torch.log(torch.exp(x - largest).sum(dim, keepdim=True))


@wrong("sum forgotten")
def log_softmax(x, dim=-1):
    return x - x.max(dim, keepdim=True).values


@wrong("no logarithm")
def log_softmax(x, dim=-1):
    return F.softmax(x, dim=dim)


@wrong("changes its input")
def log_softmax(x, dim=-1):
    x -= x.amax(dim, keepdim=True)
    return x - torch.log(torch.exp(x).sum(dim, keepdim=True))


@wrong("axis ignored in the sum")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(-1, keepdim=True))


@wrong("another default")
def log_softmax(x, dim=0):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


@wrong("an array or a list for a tensor")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return (shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))).numpy()


# -- More mistakes, by exercise -------------------------------------------------------------------------


@right
def context_of(x, index):
    scores = x.float() @ x[index].float()
    return (softmax(scores) @ x.float()).to(x.dtype)


@wrong("a patch where the weight underflows")
def log_softmax(x, dim=-1):
    y = torch.log(softmax(x, dim=dim))
    return torch.where(torch.isinf(y), x - x.max(dim, keepdim=True).values, y)


@wrong("logarithm to base 2")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return (shifted - shifted.exp().sum(dim, keepdim=True).log()) / torch.log(torch.tensor(2.0).to(x))


@wrong("mean instead of sum")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().mean(dim, keepdim=True).log()


@right
def log_softmax(x, dim=-1):
    y = x.to(torch.float32)
    y = y - y.amax(dim, keepdim=True)
    return (y - y.exp().sum(dim, keepdim=True).log()).to(x.dtype)


@wrong("wrong gradient")
def log_softmax(x, dim=-1):
    top = x.max(dim=dim, keepdim=True).values
    with torch.no_grad():
        total = (x - top).exp().sum(dim=dim, keepdim=True).log()
    return x - (top.detach() + total)


@wrong("0 in some places")
def context_of(x, index):
    scores = x @ x[index]
    weights = scores.exp() / scores.exp().sum()
    return x[scores.argmax()] if weights.isnan().any() else weights @ x


@unnamed("the largest size of a score subtracted")
def context_of(x, index):
    scores = x @ x[index]
    exponentials = torch.exp(scores - scores.abs().max())
    return exponentials / exponentials.sum() @ x


@unnamed("an axis lost where a token is one number")
def context_of(x, index):
    return (softmax(x[index][None] @ x.T) @ x).squeeze()


@wrong("not a tensor")
def three_bad_scores():
    return torch.tensor([4.0, -6.0, 4.0]).numpy()


@wrong("an input without effect")
def weights_at(x, temperature):  # beyond its whole number
    return softmax(x @ x.T / (int(temperature) or temperature))


@unnamed("a small number added to the temperature")
def weights_at(x, temperature):
    return softmax(x @ x.T / (temperature + 1e-8))


@wrong("temperature held above a bound")
def weights_at(x, temperature):
    return softmax(x @ x.T / max(temperature, 1e-3))


@unnamed("temperature held below a bound")
def weights_at(x, temperature):
    return softmax(x @ x.T / min(temperature, 30.0))


@wrong("an input without effect")
def log_softmax(x, dim=-1):  # along the third axis from the end
    axes = {-1: x.dim() - 1, -2: x.dim() - 2}
    return F.log_softmax(x, axes.get(dim, max(dim, 0)))
