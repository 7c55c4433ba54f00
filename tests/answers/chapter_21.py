"""Answers to the exercises of chapter 21."""

import torch

from answers import right, unnamed, wrong

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


def identity_like(weights):
    return torch.eye(weights.size(-1), dtype=weights.dtype, device=weights.device)


def multiplied(maps):
    """(L, B, T, T): the products of the first one, two, … of them, later ones on the left."""
    after = [maps[0]]
    for one in maps[1:]:
        after.append(one @ after[-1])
    return torch.stack(after)


def mixed(maps, residual):
    part = residual[:, None, None, None]
    return part * identity_like(maps) + (1 - part) * maps


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


@wrong("copy too short")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    known = torch.zeros_like(ids, dtype=torch.bool)
    for row, is_known in zip(ids, known, strict=True):
        first = int(torch.randint(length - 2 * block + 1, (), generator=rng))
        second = int(torch.randint(first + block, length - block + 1, (), generator=rng))
        row[second : second + block - 1] = row[first : first + block - 1]
        is_known[second : second + block - 1] = True
    return ids, known


def with_copies(num_strings, block, length, vocab_size, rng, *, first=None, second=None, until=None, ids=None):
    """Strings with a copy; where the two begin, and how many of its tokens are marked, may be given."""
    if ids is None:
        ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    places = torch.randint(length - 2 * block + 1, (num_strings, 2), generator=rng).sort(dim=1).values
    first = places[:, :1] if first is None else first
    second = places[:, 1:] + block if second is None else second
    inside = torch.arange(block)
    ids = ids.scatter(1, second + inside, ids.gather(1, first + inside))
    column = torch.arange(length)
    return ids, (column >= second) & (column < second + (block - 1 if until is None else until)), first, second


@wrong("one distance")
def hide_copy(num_strings, block, length, vocab_size, rng):
    first = torch.randint(length - 2 * block + 1, (num_strings, 1), generator=rng)
    return with_copies(num_strings, block, length, vocab_size, rng, first=first, second=first + block)[:2]


@wrong("few distances")
def hide_copy(num_strings, block, length, vocab_size, rng):
    first = torch.zeros(num_strings, 1, dtype=torch.int64)
    distance = block + torch.randint(2, (num_strings, 1), generator=rng)
    distance = distance.clamp(max=length - block)
    return with_copies(num_strings, block, length, vocab_size, rng, first=first, second=distance)[:2]


@wrong("one layer learns it")
def hide_copy(num_strings, block, length, vocab_size, rng):  # a token mostly leads to the next number
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    jumps = torch.rand(num_strings, length, generator=rng) < 0.25
    for t in range(1, length):
        ids[:, t] = torch.where(jumps[:, t], ids[:, t], (ids[:, t - 1] + 1) % vocab_size)
    return with_copies(num_strings, block, length, vocab_size, rng, ids=ids)[:2]


@wrong("rng begins again")
def hide_copy(num_strings, block, length, vocab_size, rng):
    own = torch.Generator().manual_seed(rng.initial_seed())
    return with_copies(num_strings, block, length, vocab_size, own)[:2]


@wrong("copy too long")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    known = torch.zeros(num_strings, length, dtype=torch.bool)
    for row, mark in zip(ids, known, strict=True):
        first = int(torch.randint(max(length - 2 * block, 1), (), generator=rng))
        second = int(torch.randint(first + block, max(length - block, first + block + 1), (), generator=rng))
        for j in range(block + 1):
            if second + j < length:
                row[second + j] = row[first + j]
        mark[second : second + block - 1] = True
    return ids, known


@wrong("one stretch for all")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    stretch = torch.randint(vocab_size, (block,), generator=rng)
    known = torch.zeros(num_strings, length, dtype=torch.bool)
    for row, mark in zip(ids, known, strict=True):
        first = int(torch.randint(length - 2 * block + 1, (1,), generator=rng))
        second = int(torch.randint(first + block, length - block + 1, (1,), generator=rng))
        row[first : first + block] = stretch
        row[second : second + block] = stretch
        mark[second : second + block - 1] = True
    return ids, known


@wrong("not random")
def hide_copy(num_strings, block, length, vocab_size, rng):  # zeros around the two stretches
    ids = torch.zeros(num_strings, length, dtype=torch.int64)
    places = torch.randint(length - 2 * block + 1, (num_strings, 2), generator=rng).sort(dim=1).values
    stretch = torch.randint(1, vocab_size, (num_strings, block), generator=rng)
    first, second = places[:, :1], places[:, 1:] + block
    for start in (first, second):
        ids = ids.scatter(1, start + torch.arange(block), stretch)
    column = torch.arange(length)
    return ids, (column >= second) & (column < second + block - 1)


@wrong("the same strings every time")
def hide_copy(num_strings, block, length, vocab_size, rng):
    own = torch.Generator().manual_seed(0)
    return with_copies(num_strings, block, length, vocab_size, own)[:2]


@wrong("no copy")
def hide_copy(num_strings, block, length, vocab_size, rng):  # the second stretch is written backwards
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    places = torch.randint(length - 2 * block + 1, (num_strings, 2), generator=rng).sort(dim=1).values
    first, second = places[:, :1], places[:, 1:] + block
    inside = torch.arange(block)
    ids = ids.scatter(1, second + inside, ids.gather(1, first + inside.flip(0)))
    column = torch.arange(length)
    return ids, (column >= second) & (column < second + block - 1)


@wrong("overlap")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids = torch.randint(vocab_size, (num_strings, length), generator=rng)
    known = torch.zeros(num_strings, length, dtype=torch.bool)
    for row, mark in zip(ids, known, strict=True):
        first = int(torch.randint(length - 2 * block + 1, (1,), generator=rng))
        second = first + int(torch.randint(1, length - block - first + 1, (1,), generator=rng))
        for i in range(block):
            row[second + i] = row[first + i]
        mark[second : second + block - 1] = True
    return ids, known


@wrong("nothing known")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids, known, *_ = with_copies(num_strings, block, length, vocab_size, rng)
    return ids, torch.zeros_like(known)


@wrong("last token known")
def hide_copy(num_strings, block, length, vocab_size, rng):
    return with_copies(num_strings, block, length, vocab_size, rng, until=block)[:2]


@wrong("the tokens themselves")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids, known, *_ = with_copies(num_strings, block, length, vocab_size, rng)
    return ids, known.roll(1, dims=1)


@wrong("one place too early")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids, known, *_ = with_copies(num_strings, block, length, vocab_size, rng)
    return ids, known.roll(-1, dims=1)


@wrong("first stretch known")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids, _, first, _ = with_copies(num_strings, block, length, vocab_size, rng)
    column = torch.arange(length)
    return ids, (column >= first) & (column < first + block - 1)


@wrong("known elsewhere")
def hide_copy(num_strings, block, length, vocab_size, rng):  # both stretches
    ids, known, first, _ = with_copies(num_strings, block, length, vocab_size, rng)
    column = torch.arange(length)
    return ids, known | (column >= first) & (column < first + block - 1)


@wrong("not drawn from rng")
def hide_copy(num_strings, block, length, vocab_size, rng):
    ids = torch.randint(vocab_size, (num_strings, length))
    known = torch.zeros(num_strings, length, dtype=torch.bool)
    for row, is_known in zip(ids, known, strict=True):
        first = int(torch.randint(length - 2 * block + 1, ()))
        second = int(torch.randint(first + block, length - block + 1, ()))
        row[second : second + block] = row[first : first + block].clone()
        is_known[second : second + block - 1] = True
    return ids, known


def _copied(num_strings, block, length, num_words, num_known, rng):
    ids = torch.randint(num_words, (num_strings, length), generator=rng)
    known = torch.zeros(num_strings, length, dtype=torch.bool)
    for row, is_known in zip(ids, known, strict=True):
        first = int(torch.randint(length - 2 * block + 1, (1,), generator=rng))
        second = int(torch.randint(first + block, length - block + 1, (1,), generator=rng))
        row[second : second + block] = row[first : first + block].clone()
        is_known[second : second + num_known] = True
    return ids, known


@wrong("numbers left out")
def hide_copy(num_strings, block, length, vocab_size, rng):
    return _copied(num_strings, block, length, vocab_size - 1, block - 1, rng)
