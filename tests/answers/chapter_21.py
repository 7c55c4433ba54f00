"""Answers to the exercises of chapter 21."""

import torch

from answers import right, unnamed, wrong
from attn_course.exercises.engine.edits import Edited

# -- induction_score ----------------------------------------------------------------------------------


@right
def induction_score(weights, ids):  # in loops
    B, H, T, _ = weights.shape
    total, count = torch.zeros(H).to(weights), 0
    for b in range(B):
        for t in range(T):
            places = [s + 1 for s in range(t) if ids[b, s] == ids[b, t]]
            if places:
                count += 1
                total += weights[b, :, t, places].sum(-1)
    return total / count


@right
def induction_score(weights, ids):  # einsum over a table that begins one column later
    T = ids.size(1)
    place = torch.arange(T, device=ids.device)
    table = torch.zeros(len(ids), T, T, dtype=torch.bool, device=ids.device)
    table[:, :, 1:] = (ids[:, :, None] == ids[:, None, :-1]) & (place[:, None] > place[:-1])
    return torch.einsum("bhts,bts->h", weights, table.to(weights)) / table.any(-1).sum()


@unnamed("a table of the letters")
def induction_score(weights, ids):
    one_hot = torch.nn.functional.one_hot(ids, 32)
    same = (one_hot @ one_hot.mT).bool().tril(-1)
    return (weights[..., 1:] * same[:, None, :, :-1]).sum((0, 2, 3)) / same.any(-1).sum()


@unnamed("ids in eight bits")
def induction_score(weights, ids):
    ids = ids.byte()
    same = (ids[:, :, None] == ids[:, None, :]).tril(-1)
    return (weights[..., 1:] * same[:, None, :, :-1]).sum((0, 2, 3)) / same.any(-1).sum()


@unnamed("equal as numbers with a point")
def induction_score(weights, ids):
    x = ids.to(torch.float32)
    same = torch.isclose(x[:, :, None], x[:, None]).tril(-1)
    return (weights[..., 1:] * same[:, None, :, :-1]).sum((0, 2, 3)) / same.any(-1).sum()


@unnamed("the axis of one head squeezed away")
def induction_score(weights, ids):
    same = (ids[:, :, None] == ids[:, None, :]).tril(-1)
    score = (weights[..., 1:] * same[:, None, :, :-1]).sum((0, 2, 3), keepdim=True).squeeze()
    return score / same.any(-1).sum()


# -- ablate_heads -------------------------------------------------------------------------------------


@right
def ablate_heads(x, num_heads, heads, mask):  # column by column
    D = x.size(-1) // num_heads
    out = x.clone()
    for h in heads:
        columns = slice(h * D, (h + 1) * D)
        out[..., columns] = x[..., columns][mask].mean(dim=0)
    return out


@right
def ablate_heads(x, num_heads, heads, mask):  # torch.where with a mask of columns
    kept = mask[..., None].to(x)
    mean = (x * kept).sum((0, 1)) / kept.sum()
    chosen = torch.zeros(num_heads, dtype=torch.bool, device=x.device)
    chosen[heads] = True
    return torch.where(chosen.repeat_interleave(x.size(-1) // num_heads), mean, x)


def columns_of(x, num_heads, heads):
    D = x.size(-1) // num_heads
    return [h * D + i for h in heads for i in range(D)]


@wrong("changes its input")
def ablate_heads(x, num_heads, heads, mask):
    columns = columns_of(x, num_heads, heads)
    x[..., columns] = x[mask].mean(0)[columns]
    return x


@unnamed("all heads from the first named to the last")
def ablate_heads(x, num_heads, heads, mask):
    mean, new, width = x[mask].mean(dim=0), x.clone(), x.size(-1) // num_heads
    if heads:
        columns = slice(heads[0] * width, (heads[-1] + 1) * width)
        new[..., columns] = mean[columns]
    return new


# -- hide_copy ----------------------------------------------------------------------------------------


@right
def hide_copy(num_strings, block, length, vocab_size, rng):  # two places in order, then room between them
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    room = length - 2 * block + 1
    places = torch.randint(room, (num_strings, 2), generator=rng).sort(dim=1).values
    first, second = places[:, :1], places[:, 1:] + block
    inside = torch.arange(block)
    ids = ids.scatter(1, second + inside, ids.gather(1, first + inside))
    column = torch.arange(length)
    return ids, (column >= second) & (column < second + block - 1)


# What a learner changes in the answer above.
COPY = "ids.scatter(1, second + inside, ids.gather(1, first + inside))"
KNOWN = "(column >= second) & (column < second + block - 1)"
BEGIN, FIND = "    ids = torch.randint", "    places = "
EDITS = {
    "one distance": {"places[:, 1:] + block": "places[:, :1] + block"},
    "few distances": {"places[:, 1:] + block": "places[:, :1] + block + (places.diff() > 0)"},
    "one layer learns it": {  # a token mostly leads to the next number
        FIND: "    jumps = torch.rand(num_strings, length, generator=rng) < 0.25\n"
        "    for t in range(1, length):\n"
        "        ids[:, t] = torch.where(jumps[:, t], ids[:, t], (ids[:, t - 1] + 1) % vocab_size)\n" + FIND
    },
    "one stretch for all": {
        COPY: "ids.scatter(1, first + inside, ids[:1, :block].repeat(num_strings, 1))\n    ids = " + COPY
    },
    "not random": {  # zeros around the two stretches
        COPY: "torch.zeros_like(ids).scatter(1, first + inside, ids.gather(1, first + inside) % (vocab_size - 1) + 1)\n"
        f"    ids = {COPY}"
    },
    "numbers left out": {"randint(vocab_size,": "randint(vocab_size - 1,"},
    "the same strings every time": {BEGIN: "    rng = torch.Generator().manual_seed(0)\n" + BEGIN},
    "not drawn from rng": {"length), generator=rng)": "length))", "2), generator=rng)": "2))"},
    "rng begins again": {BEGIN: "    rng = torch.Generator().manual_seed(rng.initial_seed())\n" + BEGIN},
    "copy too long": {"torch.arange(block)": "torch.arange(block + 1)", "2 * block + 1": "2 * block"},
    "no copy": {"ids.gather(1, first + inside)": "ids.gather(1, first + inside.flip(0))"},  # written backwards
    "copy too short": {"torch.arange(block)": "torch.arange(block - 1)"},
    "overlap": {
        "places[:, 1:] + block": "places[:, 1:] + block - 1",
        f"    ids = {COPY}": "    for i in inside:\n        ids = ids.scatter(1, second + i, ids.gather(1, first + i))",
    },
    "nothing known": {KNOWN: "torch.zeros_like(ids, dtype=torch.bool)"},
    "last token known": {"block - 1)": "block)"},
    "the tokens themselves": {KNOWN: "(column > second) & (column < second + block)"},
    "one place too early": {KNOWN: "(column > second - 2) & (column < second + block - 2)"},
    "first stretch known": {KNOWN: "(column >= first) & (column < first + block - 1)"},
    "known elsewhere": {KNOWN: f"{KNOWN} | (column >= first) & (column < first + block - 1)"},  # both stretches
}
for mistake, edits in EDITS.items():
    wrong(mistake)(Edited(hide_copy, edits).answer)


@right
def hide_copy(num_strings, block, length, vocab_size, rng):  # string by string, the second place first
    rows, marks = [], []
    for _ in range(num_strings):
        row = torch.randint(vocab_size, (length,), generator=rng).tolist()
        second = int(torch.randint(block, length - block + 1, (1,), generator=rng))
        first = int(torch.randint(0, second - block + 1, (1,), generator=rng))
        row[second : second + block] = row[first : first + block]
        rows.append(row)
        marks.append([second <= t < second + block - 1 for t in range(length)])
    return torch.tensor(rows), torch.tensor(marks)
