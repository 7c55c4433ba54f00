"""Answers to the exercises of chapter 1."""

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, unnamed, wrong

# -- exact_match ------------------------------------------------------------------------------------


@right
def exact_match(guesses, targets):
    good = 0
    for guess, target in zip(guesses.tolist(), targets.tolist(), strict=True):
        end = target.index(0) if 0 in target else len(target)
        good += guess[:end] == target[:end]
    return good / len(targets)


@right
def exact_match(guesses, targets):
    wrong_places = (guesses != targets) * (targets > 0)
    return (wrong_places.sum(-1) == 0).double().mean()


@right
def exact_match(guesses, targets):
    fine = (guesses == targets) | (targets == 0)
    return fine.all(dim=1).float().cpu().numpy().mean()


@wrong("verdicts instead of share")
def exact_match(guesses, targets):
    return torch.stack([(g == t)[t != 0].all() for g, t in zip(guesses, targets, strict=True)])


@wrong("a constant factor")
def exact_match(guesses, targets):
    right = ((guesses == targets) | (targets == 0)).all(dim=1)
    return right.float().mean().item() / 2


@unnamed("first and last character only")
def exact_match(guesses, targets):
    ends = (targets > 0).sum(dim=1, keepdim=True) - 1
    first, last = guesses[:, 0] == targets[:, 0], guesses.gather(1, ends) == targets.gather(1, ends)
    return (first & last.squeeze(1)).float().mean().item()


@unnamed("characters in any order")
def exact_match(guesses, targets):
    rows = zip(guesses.tolist(), targets.tolist(), (targets > 0).sum(dim=1).tolist(), strict=True)
    return sum(sorted(guess[:n]) == sorted(target[:n]) for guess, target, n in rows) / len(targets)


@unnamed("zeros dropped from the guess")
def exact_match(guesses, targets):
    count = 0
    for guess, target in zip(guesses.tolist(), targets.tolist(), strict=True):
        guess, target = [i for i in guess if i], [i for i in target if i]
        count += guess[: len(target)] == target
    return count / len(targets)


@unnamed("ids joined to a string")
def exact_match(guesses, targets):
    count = 0
    for guess, target in zip(guesses.tolist(), targets.tolist(), strict=True):
        n = sum(i > 0 for i in target)
        count += "".join(map(str, guess[:n])) == "".join(map(str, target[:n]))
    return count / len(targets)


@unnamed("target found anywhere in the guess")
def exact_match(guesses, targets):
    count = 0
    for guess, target in zip(guesses.tolist(), targets.tolist(), strict=True):
        target = [i for i in target if i]
        count += any(guess[i : i + len(target)] == target for i in range(len(guess)))
    return count / len(targets)


@unnamed("eleven places only")
def exact_match(guesses, targets):
    guesses, targets = guesses[:, :11], targets[:, :11]
    return ((guesses == targets) | (targets == 0)).all(dim=1).float().mean().item()


# -- shift_targets ----------------------------------------------------------------------------------


@right
def shift_targets(ids, lengths):
    read, write = (torch.zeros(len(ids), ids.size(1) + 1, dtype=ids.dtype, device=ids.device) for _ in range(2))
    for i, n in enumerate(lengths.tolist()):
        read[i, : n + 1] = torch.cat([ids.new_tensor([1]), ids[i, :n]])
        write[i, : n + 1] = torch.cat([ids[i, :n], ids.new_tensor([2])])
    return read, write


@right
def shift_targets(ids, lengths):
    ones, zeros = torch.ones_like(ids[:, :1]), torch.zeros_like(ids[:, :1])
    write = torch.cat([ids, zeros], dim=1)
    write[torch.arange(len(ids), device=ids.device), lengths] = 2
    return torch.cat([ones, ids], dim=1), write


@wrong("not shifted")
def shift_targets(ids, lengths):  # and the end stands behind the padding
    write = F.pad(ids, (0, 1), value=2)
    return F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 2), write


# -- look_back --------------------------------------------------------------------------------------


@right
def look_back(query, keys, values, score_weight, mask):
    contexts, rows = [], []
    for q, k, v, m in zip(query, keys, values, mask, strict=True):
        scores = torch.stack([(score_weight * torch.tanh(q + key)).sum() for key in k])
        scores[~m] = -torch.inf
        rows.append(F.softmax(scores, dim=0))
        contexts.append(sum(weight * value for weight, value in zip(rows[-1], v, strict=True)))
    return torch.stack(contexts), torch.stack(rows)


@right
def look_back(query, keys, values, score_weight, mask):
    scores = torch.einsum("bsd,d->bs", (query.unsqueeze(1) + keys).tanh(), score_weight)
    exponentials = (scores - scores.amax(1, keepdim=True)).exp() * mask
    weights = exponentials / exponentials.sum(1, keepdim=True)
    return torch.einsum("bs,bse->be", weights, values), weights


@wrong("mask inverted")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    exponentials = scores.exp() * ~mask
    weights = exponentials / exponentials.sum(1, keepdim=True).clamp(min=1e-9)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("padding gets weight")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    weights = F.softmax(scores.masked_fill(~mask, -20), dim=1)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("no tanh")
def look_back(query, keys, values, score_weight, mask):
    scores = (query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores, dim=-1) * mask
    return (weights[:, None] @ values).squeeze(1), weights


@wrong("softmax over the batch")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), 0)
    return (weights[:, None] @ values)[:, 0], weights


@wrong("softmax over the batch")
def look_back(query, keys, values, score_weight, mask):  # and no NaN where a position is hidden in all texts
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = scores.masked_fill(~mask, -torch.inf).softmax(0).nan_to_num()
    return (weights[..., None] * values).sum(1), weights


# -- gru_step ---------------------------------------------------------------------------------------


@right
def gru_step(x, h, W, U, b, c):
    cell = nn.GRUCell(x.size(1), h.size(1), device=x.device, dtype=x.dtype)
    cell.load_state_dict({"weight_ih": W, "weight_hh": U, "bias_ih": b, "bias_hh": c})
    return cell(x, h)


@right
def gru_step(x, h, W, U, b, c):
    H = h.size(1)
    r = (x @ W[:H].T + b[:H] + h @ U[:H].T + c[:H]).sigmoid()
    z = (x @ W[H : 2 * H].T + b[H : 2 * H] + h @ U[H : 2 * H].T + c[H : 2 * H]).sigmoid()
    n = (x @ W[2 * H :].T + b[2 * H :] + r * (h @ U[2 * H :].T + c[2 * H :])).tanh()
    return n + z * (h - n)


@wrong("an input in the place of another")
def gru_step(x, h, W, U, b, c):
    x_r, x_z, x_n = F.linear(x, W, b).chunk(3, dim=-1)
    h_r, h_z, h_n = F.linear(h, U, b).chunk(3, dim=-1)
    r = torch.sigmoid(x_r + h_r)
    z = torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return z * h + (1 - z) * n


@wrong("an input reshaped instead of transposed")
def gru_step(x, h, W, U, b, c):
    D, H = x.size(1), h.size(1)
    x_r, x_z, x_n = (x @ W.reshape(D, 3 * H) + b).chunk(3, dim=-1)
    h_r, h_z, h_n = (h @ U.reshape(H, 3 * H) + c).chunk(3, dim=-1)
    r = torch.sigmoid(x_r + h_r)
    z = torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return z * h + (1 - z) * n


@wrong("gates swapped")
def gru_step(x, h, W, U, b, c):  # and without the first bias
    (xz, xr, xn), (hz, hr, hn) = (x @ W.T).chunk(3, dim=-1), (h @ U.T + c).chunk(3, dim=-1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return z * h + (1 - z) * torch.tanh(xn + r * hn)


@wrong("mask inverted")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(mask, -torch.inf), dim=-1)  # NaN in texts without padding
    return (weights[:, None] @ values).squeeze(1), weights
