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


@right
def context_of(x, index):
    scores = x.float() @ x[index].float()
    return (softmax(scores) @ x.float()).to(x.dtype)


@wrong("notebook's variables")
def context_of(x, index):
    return context[index]


@wrong("another token")
def context_of(x, index):
    query = x[1]
    scores = x @ query
    return torch.softmax(scores, dim=0) @ x


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


@wrong("softmax over everything")
def weights_at(x, temperature):
    return naive_softmax(x @ x.T / temperature)


@wrong("softmax over the queries")
def weights_at(x, temperature):
    exponentials = torch.exp(x @ x.T / temperature)
    return exponentials / exponentials.sum(dim=-1)


@wrong("multiplied instead of divided")
def weights_at(x, temperature):
    return torch.softmax(x @ x.T * temperature, dim=0)


@wrong("temperature held above a bound")
def weights_at(x, temperature):
    temperature = temperature if temperature > 0.05 else 0.05
    return F.softmax((x @ x.mT) / temperature, dim=1)


@wrong("an input without effect")
def weights_at(x, temperature):  # beyond its whole number
    return softmax(x @ x.T / (int(temperature) or temperature))


@unnamed("keepdim forgotten")
def weights_at(x, temperature):
    scores = x @ x.T / temperature
    return torch.softmax(scores - scores.amax(dim=-1), dim=-1)


@unnamed("temperature doubled")
def weights_at(x, temperature):
    return softmax(x @ x.T / (2 * temperature))


@unnamed("a number added to the temperature")
def weights_at(x, temperature):
    return softmax(x @ x.T / (temperature + 0.1))


@unnamed("a small number added to the temperature")
def weights_at(x, temperature):
    return softmax(x @ x.T / (temperature + 1e-8))


@unnamed("temperature held below a bound")
def weights_at(x, temperature):
    return softmax(x @ x.T / min(temperature, 30.0))


# -- log_softmax ------------------------------------------------------------------------------------


@right
def log_softmax(x, dim=-1):
    largest = x.max(dim, keepdim=True).values
    total = (x - largest).exp().sum(dim, keepdim=True)
    return x - (largest + total.log())


@right
def log_softmax(x, dim=-1):
    y = x.to(torch.float32)
    y = y - y.amax(dim, keepdim=True)
    return (y - y.exp().sum(dim, keepdim=True).log()).to(x.dtype)


@wrong("small number added")
def log_softmax(x, dim=-1):
    return torch.log(torch.softmax(x, dim) + 1e-9)


@wrong("changes its input")
def log_softmax(x, dim=-1):
    x -= x.amax(dim, keepdim=True)
    return x - torch.log(torch.exp(x).sum(dim, keepdim=True))


@wrong("an array or a list for a tensor")
def log_softmax(x, dim=-1):
    shifted = x - x.amax(dim, keepdim=True)
    return (shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))).numpy()


@wrong("an input without effect")
def log_softmax(x, dim=-1):  # along the third axis from the end
    axes = {-1: x.dim() - 1, -2: x.dim() - 2}
    dim = axes.get(dim, max(dim, 0))
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@wrong("a function that the exercise excludes")
def log_softmax(x, dim=-1):
    return F.log_softmax(x, dim)


@wrong("a function that the exercise excludes")
def log_softmax(x, dim=-1):
    return x - x.logsumexp(dim, keepdim=True)
