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


@wrong("characters counted")
def exact_match(guesses, targets):
    real = targets > 0
    return ((guesses == targets) & real).sum() / real.sum()


@wrong("characters and padding counted")
def exact_match(guesses, targets):
    return (guesses == targets).sum().item() / targets.numel()


@wrong("padding compared")
def exact_match(guesses, targets):
    return sum(torch.equal(g, t) for g, t in zip(guesses, targets, strict=True)) / len(targets)


@wrong("padding of the guesses")
def exact_match(guesses, targets):
    wrong_places = (guesses != targets) & (guesses != 0)
    return 1 - wrong_places.any(dim=-1).float().mean().item()


@wrong("last character only")
def exact_match(guesses, targets):
    ends = [len(row.nonzero()) - 1 for row in targets]
    return sum(int(guesses[b, t] == targets[b, t]) for b, t in enumerate(ends)) / len(ends)


@wrong("any instead of all")
def exact_match(guesses, targets):
    fine = torch.logical_or(guesses == targets, targets == 0)
    return torch.any(fine, 1).float().mean().item()


@wrong("columns instead of rows")
def exact_match(guesses, targets):
    ignored = targets == 0
    return (guesses.eq(targets) | ignored).float().prod(dim=0).mean().item()


@wrong("count instead of share")
def exact_match(guesses, targets):
    return int(((guesses == targets) + (targets == 0)).min(dim=1).values.sum())


@wrong("percentage")
def exact_match(guesses, targets):
    fine = ((guesses == targets) | (targets == 0)).all(dim=1)
    return fine.sum().item() / len(fine) * 100


@wrong("one verdict for all")
def exact_match(guesses, targets):
    return not ((guesses != targets) & (targets != 0)).any()


@wrong("characters and padding counted")
def exact_match(guesses, targets):
    fine = (guesses == targets) | (targets == 0)
    return fine.double().mean().item()


@wrong("verdicts instead of share")
def exact_match(guesses, targets):
    return torch.stack([(g == t)[t != 0].all() for g, t in zip(guesses, targets, strict=True)])


@wrong("share of the wrong")
def exact_match(guesses, targets):
    missed = (guesses != targets) & (targets != 0)
    return missed.any(dim=1).float().mean().item()


@wrong("divided by places")
def exact_match(guesses, targets):
    fine = (guesses == targets) | (targets == 0)
    return fine.all(1).sum().item() / targets.numel()


@wrong("divided by places")
def exact_match(guesses, targets):
    fine = (guesses == targets) | (targets == 0)
    return fine.all(1).sum().item() / targets.shape[1]


@wrong("one verdict for all")
def exact_match(guesses, targets):
    return float(torch.equal(guesses * (targets > 0), targets))


@wrong("differences added up")
def exact_match(guesses, targets):
    return ((guesses - targets) * (targets > 0)).sum(1).eq(0).float().mean().item()


@wrong("as far as the shortest")
def exact_match(guesses, targets):
    width = int((targets > 0).sum(1).min())
    return (guesses[:, :width] == targets[:, :width]).all(1).float().mean().item()


@wrong("any instead of all")
def exact_match(guesses, targets):
    fine = (guesses == targets) & (targets != 0)
    return fine.any(dim=1).float().mean().item()


@wrong("one verdict for all")
def exact_match(guesses, targets):
    fine = (guesses == targets) | (targets == 0)
    return fine.all(dim=1).sum().item() // len(targets)


@wrong("as far as the first")
def exact_match(guesses, targets):
    n = int((targets[0] != 0).sum())
    return (guesses[:, :n] == targets[:, :n]).all(dim=1).float().mean().item()


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
def shift_targets(ids, lengths):
    write = torch.cat([ids, torch.zeros_like(ids[:, :1])], dim=1)
    for i, n in enumerate(lengths):
        write[i, n] = 2
    return write, write.clone()


@wrong("no beginning")
def shift_targets(ids, lengths):
    read = torch.cat([ids, torch.zeros_like(ids[:, :1])], dim=1)
    write = read.clone()
    write[torch.arange(len(ids), device=ids.device), lengths] = 2
    return read, write


@wrong("end behind the padding")
def shift_targets(ids, lengths):
    bos, eos = torch.full_like(ids[:, :1], 1), torch.full_like(ids[:, :1], 2)
    return torch.cat([bos, ids], dim=1), torch.cat([ids, eos], dim=1)


@wrong("no end")
def shift_targets(ids, lengths):
    bos, pad = torch.full_like(ids[:, :1], 1), torch.full_like(ids[:, :1], 0)
    return torch.cat([bos, ids], dim=1), torch.cat([ids, pad], dim=1)


@wrong("read and write swapped")
def shift_targets(ids, lengths):
    read = torch.cat([torch.ones_like(ids[:, :1]), ids], dim=1)
    write = torch.cat([ids, torch.zeros_like(ids[:, :1])], dim=1)
    for i, n in enumerate(lengths):
        write[i, n] = 2
    return write, read


@wrong("end in both")
def shift_targets(ids, lengths):
    whole = ids.new_zeros(len(ids), ids.size(1) + 2)
    for i, n in enumerate(lengths.tolist()):
        whole[i, : n + 2] = ids.new_tensor([1, *ids[i, :n].tolist(), 2])
    return whole[:, :-1], whole[:, 1:]


@wrong("beginning and end swapped")
def shift_targets(ids, lengths):
    bos, eos = 2, 1
    read = torch.cat([torch.full_like(ids[:, :1], bos), ids], dim=1)
    write = torch.cat([ids, torch.zeros_like(ids[:, :1])], dim=1)
    write[torch.arange(len(ids), device=ids.device), lengths] = eos
    return read, write


@wrong("end over the last character")
def shift_targets(ids, lengths):
    read = torch.cat([torch.ones_like(ids[:, :1]), ids], dim=1)
    write = torch.cat([ids, torch.zeros_like(ids[:, :1])], dim=1)
    write[torch.arange(len(ids), device=ids.device), lengths - 1] = 2
    return read, write


@wrong("cut to the longest text")
def shift_targets(ids, lengths):
    ids = ids[:, : lengths.max()]
    write = F.pad(ids, (0, 1))
    write[torch.arange(len(ids)), lengths] = 2
    return F.pad(ids, (1, 0), value=1), write


@wrong("last character lost")
def shift_targets(ids, lengths):
    read = torch.roll(ids, 1, dims=1)
    read[:, 0] = 1
    write = ids.clone()
    for i, n in enumerate(lengths.tolist()):
        if n < ids.size(1):
            write[i, n] = 2
    return read, write


@wrong("every end in every row")
def shift_targets(ids, lengths):
    write = F.pad(ids, (0, 1))
    write[:, lengths] = 2
    return F.pad(ids, (1, 0), value=1), write


@wrong("ends for padding")
def shift_targets(ids, lengths):
    write = F.pad(ids, (0, 1))
    write[write == 0] = 2
    return F.pad(ids, (1, 0), value=1), write


@wrong("beginning in both")
def shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0), value=1)
    write = read.clone()
    write[torch.arange(len(ids), device=ids.device), lengths] = 2
    return read, write


@wrong("one tensor for both")
def shift_targets(ids, lengths):
    whole = F.pad(ids, (1, 1))
    whole[:, 0] = 1
    whole[torch.arange(len(ids), device=ids.device), lengths + 1] = 2
    return whole, whole.clone()


@wrong("beginning over the first character")
def shift_targets(ids, lengths):
    read, write = F.pad(ids, (0, 1)), F.pad(ids, (0, 1))
    read[:, 0] = 1
    write[torch.arange(len(ids), device=ids.device), lengths] = 2
    return read, write


@wrong("cut instead of widened")
def shift_targets(ids, lengths):
    width = ids.shape[1]
    return ids.narrow(1, 0, width - 1), ids.narrow(1, 1, width - 1)


@wrong("padding for the beginning")
def shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0))
    write = F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 2)
    return read, write


@wrong("a full row forgotten")
def shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0), value=1)
    write = F.pad(ids, (0, 1))
    first_pad = (ids == 0).int().argmax(dim=1)
    write[torch.arange(len(ids)), first_pad] = 2
    return read, write


@wrong("end one too late")
def shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0), value=1)
    write = F.pad(ids, (0, 1))
    places = (lengths + 1).clamp(max=ids.size(1))
    return read, write.scatter(1, places[:, None], 2)


@wrong("the same for both")
def shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0), value=1)
    return read, read.clone()


@wrong("the first one for all")
def shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0), value=1)
    write = F.pad(ids, (0, 1))
    write[:, lengths[0]] = 2
    return read, write


@wrong("type not kept")
def shift_targets(ids, lengths):
    read = torch.cat([torch.ones(len(ids), 1), ids], dim=1)
    write = torch.cat([ids, torch.zeros(len(ids), 1)], dim=1)
    write[torch.arange(len(ids)), lengths] = 2
    return read, write


# -- last_state -------------------------------------------------------------------------------------


@right
def last_state(states, lengths):
    places = (lengths - 1)[:, None, None].expand(-1, 1, states.size(-1))
    return states.gather(1, places).squeeze(1)


@right
def last_state(states, lengths):
    return torch.stack([states[i, n - 1] for i, n in enumerate(lengths.tolist())])


@wrong("takes the padding")
def last_state(states, lengths):
    return states[:, states.size(1) - 1, :]


@wrong("one too far")
def last_state(states, lengths):
    return states[torch.arange(len(lengths), device=states.device), lengths]


@wrong("one too early")
def last_state(states, lengths):
    return torch.stack([row[n - 2] for row, n in zip(states, lengths.tolist(), strict=True)])


@wrong("takes the first")
def last_state(states, lengths):
    return states.select(1, 0)


@wrong("end of the longest")
def last_state(states, lengths):
    return states[:, int(lengths.max()) - 1]


@wrong("mean of the states")
def last_state(states, lengths):
    places = torch.arange(states.size(1), device=states.device)
    real = (places < lengths[:, None])[..., None]
    return (states * real).sum(dim=1) / lengths[:, None]


@wrong("rows times rows")
def last_state(states, lengths):
    return states.index_select(1, lengths - 1)


@wrong("an axis too many")
def last_state(states, lengths):
    places = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.size(2))
    return torch.gather(states, 1, places)


@wrong("texts instead of positions")
def last_state(states, lengths):
    return states[lengths - 1, ...]


@wrong("rows and positions swapped")
def last_state(states, lengths):
    return torch.stack([states[n - 1, i] for i, n in enumerate(lengths.tolist())])


@wrong("mean over the padding")
def last_state(states, lengths):
    return states.sum(dim=1) / states.size(1)


@wrong("one too far, held at the end")
def last_state(states, lengths):
    rows = torch.arange(len(states))
    return states[rows, lengths.clamp(max=states.size(1) - 1)]


@wrong("first number only")
def last_state(states, lengths):
    return states.gather(1, (lengths - 1)[:, None, None]).squeeze(1)


@wrong("the first one for all")
def last_state(states, lengths):
    return states[:, lengths[0] - 1]


@wrong("no gradient")
def last_state(states, lengths):
    kept = states.data
    return torch.stack([text[n - 1] for text, n in zip(kept, lengths.tolist(), strict=True)])


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


def finish(scores, values, mask):
    weights = F.softmax(torch.where(mask, scores, -torch.inf), dim=-1)
    return torch.einsum("bs,bse->be", weights, values), weights


@wrong("no tanh")
def look_back(query, keys, values, score_weight, mask):
    return finish((query.unsqueeze(1) + keys) @ score_weight, values, mask)


@wrong("tanh outside the sum")
def look_back(query, keys, values, score_weight, mask):
    return finish((score_weight * (keys + query.unsqueeze(1))).sum(-1).tanh(), values, mask)


@wrong("product instead of sum")
def look_back(query, keys, values, score_weight, mask):
    return finish(torch.einsum("bsd,d->bs", (query.unsqueeze(1) * keys).tanh(), score_weight), values, mask)


@wrong("score weight forgotten")
def look_back(query, keys, values, score_weight, mask):
    return finish(torch.einsum("bsd->bs", (query.unsqueeze(1) + keys).tanh()), values, mask)


@wrong("softmax over the batch")
def look_back(query, keys, values, score_weight, mask):
    scores = (query.unsqueeze(1) + keys).tanh().matmul(score_weight)
    exponentials = scores.exp() * mask
    total = exponentials.sum(0)
    weights = exponentials / torch.where(total > 0, total, 1)
    return torch.einsum("bs,bse->be", weights, values), weights


@wrong("mask ignored")
def look_back(query, keys, values, score_weight, mask):
    weights = F.softmax(torch.tanh(keys + query[:, None, :]).matmul(score_weight), dim=1)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("mask inverted")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    exponentials = scores.exp() * ~mask
    weights = exponentials / exponentials.sum(1, keepdim=True).clamp(min=1e-9)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("mask after the softmax")
def look_back(query, keys, values, score_weight, mask):
    weights = F.softmax(torch.tanh(keys + query[:, None, :]).matmul(score_weight), dim=1)
    weights = torch.where(mask, weights, 0.0)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("hidden scores set to 0")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    weights = F.softmax(scores.masked_fill(~mask, 0), dim=1)
    return torch.einsum("bs,bse->be", weights, values), weights


@wrong("scaled like a dot product")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    return finish(scores * keys.shape[-1] ** -0.5, values, mask)


@wrong("sigmoid instead of tanh")
def look_back(query, keys, values, score_weight, mask):
    return finish((query.unsqueeze(1) + keys).sigmoid().matmul(score_weight), values, mask)


@wrong("no axis for the queries")
def look_back(query, keys, values, score_weight, mask):
    return finish(torch.tanh(query + keys).matmul(score_weight), values, mask)


@wrong("scores returned as weights")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    scores = torch.where(mask, scores, -torch.inf)
    return (scores.softmax(1)[..., None] * values).sum(1), scores


@wrong("keys averaged")
def look_back(query, keys, values, score_weight, mask):
    return finish(torch.tanh(keys + query[:, None, :]).matmul(score_weight), keys, mask)


@wrong("dot product")
def look_back(query, keys, values, score_weight, mask):
    return finish(torch.einsum("bd,bsd->bs", query, keys), values, mask)


@wrong("query ignored")
def look_back(query, keys, values, score_weight, mask):
    scores = query.tanh().matmul(score_weight)[:, None] + keys.tanh().matmul(score_weight)
    return finish(scores, values, mask)


@wrong("weighted before the tanh")
def look_back(query, keys, values, score_weight, mask):
    return finish((score_weight * (query.unsqueeze(1) + keys)).tanh().sum(2), values, mask)


@wrong("no softmax")
def look_back(query, keys, values, score_weight, mask):
    weights = (query.unsqueeze(1) + keys).tanh().matmul(score_weight) * mask
    return torch.einsum("bs,bse->be", weights, values), weights


@wrong("not divided by the sum")
def look_back(query, keys, values, score_weight, mask):
    weights = (query.unsqueeze(1) + keys).tanh().matmul(score_weight).exp() * mask
    return torch.einsum("bs,bse->be", weights, values), weights


@wrong("sum forgotten")
def look_back(query, keys, values, score_weight, mask):
    weights = finish(torch.tanh(keys + query[:, None, :]).matmul(score_weight), values, mask)[1]
    return weights.unsqueeze(-1) * values, weights


@wrong("mean instead of sum")
def look_back(query, keys, values, score_weight, mask):
    weights = finish(torch.tanh(keys + query[:, None, :]).matmul(score_weight), values, mask)[1]
    return (weights.unsqueeze(-1) * values).mean(1), weights


@wrong("an axis too many")
def look_back(query, keys, values, score_weight, mask):
    weights = finish(torch.tanh(keys + query[:, None, :]).matmul(score_weight), values, mask)[1]
    return torch.bmm(weights.unsqueeze(1), values), weights


@wrong("an axis lost")
def look_back(query, keys, values, score_weight, mask):
    weights = finish(torch.tanh(keys + query[:, None, :]).matmul(score_weight), values, mask)[1]
    return torch.bmm(weights.unsqueeze(1), values).squeeze(), weights


@wrong("results swapped")
def look_back(query, keys, values, score_weight, mask):
    context, weights = finish(torch.tanh(keys + query[:, None, :]).matmul(score_weight), values, mask)
    return weights, context


@wrong("padding gets weight")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    weights = F.softmax(scores.masked_fill(~mask, -20), dim=1)
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("padding gets weight")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(keys + query[:, None, :]).matmul(score_weight)
    weights = F.softmax(scores + mask, dim=1)  # one more is not infinitely more
    return (weights.unsqueeze(-1) * values).sum(1), weights


@wrong("mask inverted")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(mask, -1e9), dim=-1)
    return (weights[:, None] @ values).squeeze(1), weights


@wrong("weighted dot product")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.einsum("bd,bsd->bs", query * score_weight, keys)
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    return torch.einsum("bs,bsd->bd", weights, values), weights


@wrong("no tanh")
def look_back(query, keys, values, score_weight, mask):
    scores = (query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores, dim=-1) * mask
    return (weights[:, None] @ values).squeeze(1), weights


@wrong("mean of the values")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    context = torch.stack([v[m].mean(0) for v, m in zip(values, mask, strict=True)])
    return context, weights


# -- gru_step ---------------------------------------------------------------------------------------


def parts(x, h, W, U, b, c):
    """What comes from x and what from h, for r, z and n."""
    from_x, from_h = F.linear(x, W, b), F.linear(h, U, c)
    width = h.size(1)
    return [(from_x[:, i : i + width], from_h[:, i : i + width]) for i in (0, width, 2 * width)]


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


@wrong("keeps what it should replace")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    z, n = (x_z + h_z).sigmoid(), torch.tanh(x_n + (x_r + h_r).sigmoid() * h_n)
    return h + z * (n - h)


@wrong("gates swapped")
def gru_step(x, h, W, U, b, c):
    (x_z, h_z), (x_r, h_r), (x_n, h_n) = parts(x, h, W, U, b, c)
    z, n = (x_z + h_z).sigmoid(), torch.tanh(x_n + (x_r + h_r).sigmoid() * h_n)
    return n + z * (h - n)


@wrong("reset before the matrix")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, _) = parts(x, h, W, U, b, c)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    width = h.size(1)
    n = torch.tanh(x_n + F.linear(r * h, U[2 * width :], c[2 * width :]))
    return n + z * (h - n)


@wrong("bias outside the reset")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    bias = c[2 * h.size(1) :]
    n = torch.tanh(x_n + r * (h_n - bias) + bias)
    return n + z * (h - n)


@wrong("no reset")
def gru_step(x, h, W, U, b, c):
    _, (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    z, n = (x_z + h_z).sigmoid(), torch.tanh(x_n + h_n)
    return n + z * (h - n)


@wrong("sigmoid for the proposal")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.sigmoid(x_n + r * h_n)
    return n + z * (h - n)


@wrong("gates without sigmoid")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = x_r + h_r, x_z + h_z
    n = torch.tanh(x_n + r * h_n)
    return z * h + (1 - z) * n


@wrong("no tanh")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    z, n = torch.sigmoid(x_z + h_z), x_n + torch.sigmoid(x_r + h_r) * h_n
    return n + z * (h - n)


@wrong("reset of the input")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(r * x_n + r * h_n)
    return n + z * (h - n)


@wrong("shares that do not sum to 1")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return torch.tanh(x_n + r * h_n) + h * z


@wrong("one bias forgotten")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, torch.zeros_like(c))
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return z * h + (1 - z) * torch.tanh(x_n + r * h_n)


@wrong("proposal instead of state")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), _, (x_n, h_n) = parts(x, h, W, U, b, c)
    return torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)


@wrong("biases forgotten")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, None, None)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return z * h + (1 - z) * torch.tanh(x_n + r * h_n)


@wrong("first bias forgotten")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, None, c)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    return z * h + (1 - z) * torch.tanh(x_n + r * h_n)


@wrong("reset of the bare state")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, _) = parts(x, h, W, U, b, c)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h)
    return n + z * (h - n)


@wrong("old state lost")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return n - z * n


@wrong("tanh for the gates")
def gru_step(x, h, W, U, b, c):
    (x_r, h_r), (x_z, h_z), (x_n, h_n) = parts(x, h, W, U, b, c)
    r, z = torch.tanh(x_r + h_r), torch.tanh(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
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


@wrong("blocks by turns")
def gru_step(x, h, W, U, b, c):
    B, H = h.shape
    x_r, x_z, x_n = (x @ W.T + b).view(B, H, 3).unbind(-1)
    h_r, h_z, h_n = (h @ U.T + c).view(B, H, 3).unbind(-1)
    r = torch.sigmoid(x_r + h_r)
    z = torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return z * h + (1 - z) * n


@wrong("cut by the width of the input")
def gru_step(x, h, W, U, b, c):
    D = x.size(-1)
    u, v = x @ W.T + b, h @ U.T + c
    r = torch.sigmoid(u[:, :D] + v[:, :D])
    z = torch.sigmoid(u[:, D : 2 * D] + v[:, D : 2 * D])
    n = torch.tanh(u[:, 2 * D :] + r * v[:, 2 * D :])
    return z * h + (1 - z) * n


@wrong("one block for all")
def gru_step(x, h, W, U, b, c):
    H = h.size(1)
    u, v = x @ W.T + b, h @ U.T + c
    r = torch.sigmoid(u + v)[..., :H]
    z = torch.sigmoid(u + v)[..., :H]
    n = torch.tanh(u[..., :H] + r * v[..., :H])
    return z * h + (1 - z) * n


# -- More mistakes, by exercise -------------------------------------------------------------------------


@wrong("columns instead of rows")
def exact_match(guesses, targets):  # and padding is compared
    return (guesses == targets).all(dim=0).float().mean().item()


@wrong("a constant factor")
def exact_match(guesses, targets):
    right = ((guesses == targets) | (targets == 0)).all(dim=1)
    return right.float().mean().item() / 2


@wrong("end symbol not compared")
def exact_match(guesses, targets):
    letters = (targets != 0) & (targets != 2)
    return ((guesses == targets) | ~letters).all(dim=1).float().mean()


@wrong("small ids not compared")
def exact_match(guesses, targets):
    letters = targets > 1
    missed = ((guesses != targets) & letters).any(dim=-1)
    return 1 - missed.double().mean().item()


@wrong("small ids not compared")
def exact_match(guesses, targets):
    letters = targets > 2
    missed = ((guesses != targets) & letters).any(dim=-1)
    return 1 - missed.double().mean().item()


@wrong("mask inverted")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(mask, -float("inf")), dim=-1)
    return torch.einsum("bs,bsd->bd", weights, values), weights


@wrong("no gradient")
def look_back(query, keys, values, score_weight, mask):
    with torch.no_grad():
        scores = (torch.tanh(query.unsqueeze(1) + keys) * score_weight).sum(-1)
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=1)
    return torch.einsum("bs,bsd->bd", weights, values), weights


@wrong("blocks in another order")
def gru_step(x, h, W, U, b, c):
    (xn, xr, xz), (hn, hr, hz) = (x @ W.T + b).chunk(3, dim=-1), (h @ U.T + c).chunk(3, dim=-1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return z * h + (1 - z) * torch.tanh(xn + r * hn)


@wrong("proposal kept whole")
def gru_step(x, h, W, U, b, c):
    (xr, xz, xn), (hr, hz, hn) = (x @ W.T + b).chunk(3, dim=-1), (h @ U.T + c).chunk(3, dim=-1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return h + (1 - z) * torch.tanh(xn + r * hn)


@wrong("gates swapped")
def gru_step(x, h, W, U, b, c):  # and without the first bias
    (xz, xr, xn), (hz, hr, hn) = (x @ W.T).chunk(3, dim=-1), (h @ U.T + c).chunk(3, dim=-1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return z * h + (1 - z) * torch.tanh(xn + r * hn)


@wrong("not shifted")
def shift_targets(ids, lengths):  # and the end stands behind the padding
    write = F.pad(ids, (0, 1), value=2)
    return F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 2), write


@wrong("first place not compared")
def exact_match(guesses, targets):
    rows = zip(guesses[:, 1:].tolist(), targets[:, 1:].tolist(), strict=True)
    fine = [all(g == t or t == 0 for g, t in zip(*row, strict=True)) for row in rows]
    return sum(fine) / len(fine)


@wrong("padded answers wrong")
def exact_match(guesses, targets):
    return ((guesses == targets) * (targets > 0)).prod(dim=1).double().mean().item()


@wrong("always 0")
def exact_match(guesses, targets):
    rows = zip(guesses, targets, strict=True)
    return sum(guess.tolist() is target.tolist() for guess, target in rows) / len(targets)


@unnamed("first and last character only")
def exact_match(guesses, targets):
    ends = (targets > 0).sum(dim=1, keepdim=True) - 1
    first, last = guesses[:, 0] == targets[:, 0], guesses.gather(1, ends) == targets.gather(1, ends)
    return (first & last.squeeze(1)).float().mean().item()


@unnamed("characters in any order")
def exact_match(guesses, targets):
    rows = zip(guesses.tolist(), targets.tolist(), (targets > 0).sum(dim=1).tolist(), strict=True)
    return sum(sorted(guess[:n]) == sorted(target[:n]) for guess, target, n in rows) / len(targets)


@wrong("not shifted")
def shift_targets(ids, lengths):  # and the end stands one column too far
    read = F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 2)
    return read, F.pad(ids, (0, 1)).scatter(1, (lengths[:, None] + 1).clamp(max=ids.size(1)), 2)


@wrong("padding gets weight")
def look_back(query, keys, values, score_weight, mask):  # far below most scores, and above some
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(~mask, -100.0), dim=-1)
    return torch.einsum("bs,bsd->bd", weights, values), weights


@wrong("last place not compared")
def exact_match(guesses, targets):
    right = 0
    for guess, target in zip(guesses.tolist(), targets.tolist(), strict=True):
        length = sum(i != 0 for i in target)
        right += guess[: length - 1] == target[: length - 1]
    return right / len(targets)


@wrong("update gate reads the reset state")
def gru_step(x, h, W, U, b, c):
    W_r, W_z, W_n = W.chunk(3)
    U_r, U_z, U_n = U.chunk(3)
    b_r, b_z, b_n = b.chunk(3)
    c_r, c_z, c_n = c.chunk(3)
    r = (x @ W_r.T + b_r + h @ U_r.T + c_r).sigmoid()
    z = (x @ W_z.T + b_z + (r * h) @ U_z.T + c_z).sigmoid()
    n = (x @ W_n.T + b_n + r * (h @ U_n.T + c_n)).tanh()
    return n + z * (h - n)


@right
def exact_match(guesses, targets):
    fine = (guesses == targets) | (targets == 0)
    return fine.all(dim=1).float().cpu().numpy().mean()


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


@wrong("columns instead of rows")
def exact_match(guesses, targets):  # where there is a single place
    return ((guesses == targets) | (targets == 0)).squeeze().all(dim=-1).float().mean().item()


@unnamed("a view of states that are not contiguous")
def last_state(states, lengths):
    B, S, E = states.shape
    return states.view(B * S, E)[torch.arange(B, device=states.device) * S + lengths - 1]


@wrong("padding gets weight")
def look_back(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight
    weights = torch.softmax(scores.masked_fill(~mask, -1000.0), dim=-1)
    return (weights[..., None] * values).sum(dim=1), weights
