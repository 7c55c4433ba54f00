"""The exercises of the chapter on why attention was invented. Used from chapter 1 on."""

import math
import numbers
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.exercises.engine.exercise import Exercise
from attn_course.functional.attention import softmax

# ---------------------------------------------------------------- exact match


def _guesses_and_targets(draw):
    for what, count, longest in (
        ("targets of several lengths", 13, 7),
        ("a single target", 1, 3),
        ("many targets", 50, 13),
    ):
        lengths = 2 + draw.ints(count, high=longest - 1)
        lengths[-1] = longest
        places = torch.arange(longest, device=lengths.device)
        targets = (3 + draw.ints(count, longest, high=9)).masked_fill(places >= lengths[:, None], 0)
        # Something goes on behind the end of a guess. Some targets are missed at their first or last place only, some
        # at both, so that the differences add up to 0, and some guesses are cut short.
        guesses = torch.where(targets > 0, targets, 3 + draw.ints(count, longest, high=9))
        last = lengths - 1
        guesses[1::7, 0] += 1
        guesses[range(4, count, 7), last[4::7]] += 1
        guesses[5::7, 0] += 1
        guesses[range(5, count, 7), last[5::7]] -= 1
        guesses[2::7, 1:] = 0
        yield what, guesses, targets
    # Each answer is right at all places but the first, where some are not.
    whole = 3 + draw.ints(5, 4, high=9)
    nearly = whole.clone()
    nearly[[1, 3, 4], 0] += 1
    yield "wrong at the first place only", nearly, whole
    yield "all right, nothing to fill up", targets[-1:].clone(), targets[-1:]
    # Id 2 is the end symbol: a guess that goes on where it stands is wrong.
    ends = torch.tensor([[5, 7, 2, 0], [3, 2, 0, 0], [4, 6, 8, 2]], device=whole.device)
    beyond = ends.clone()
    beyond[0, 2] = 9
    yield "wrong at the end symbol only", beyond, ends
    # Wholly wrong with and without padding, wrong in the middle only, and the right characters in another order.
    ends = torch.tensor([[5, 7, 2, 0], [3, 9, 2, 0], [4, 6, 8, 2], [7, 3, 5, 2], [6, 8, 3, 2]], device=whole.device)
    ways = torch.tensor([[6, 8, 9, 0], [3, 9, 2, 4], [5, 7, 9, 3], [7, 3, 6, 2], [8, 6, 3, 2]], device=whole.device)
    yield "wrong in many ways", ways, ends
    # Only 0 is padding: the smallest id of a character counts like all others.
    ends = torch.tensor([[8, 1, 4, 2], [3, 6, 2, 0]], device=whole.device)
    beyond = ends.clone()
    beyond[0, 1] = 5
    yield "wrong where the target is id 1", beyond, ends
    # A place too late, an id left out and put in, the same digits in a row, and one sum of places times ids.
    rows = [[5, 7, 2, 0], [5, 7, 2, 0], [5, 7, 2, 0], [11, 2, 0, 0], [3, 4, 2, 0], [8, 6, 2, 0]]
    tries = [[9, 5, 7, 2], [5, 0, 7, 2], [5, 9, 7, 2], [1, 12, 0, 0], [13, 3, 2, 0], [8, 6, 2, 3]]
    yield "almost right", torch.tensor(tries, device=whole.device), torch.tensor(rows, device=whole.device)
    single = torch.tensor([[3], [4], [5]], device=whole.device)
    yield "a single place", single, single.clamp(max=4)


def _share(rows):
    return rows.float().mean().item()


def _right_rows(guesses, targets):
    return ((guesses == targets) | (targets == 0)).all(dim=1)


def _right_but_for_the_last(guesses, targets):
    places = torch.arange(targets.size(1), device=targets.device)
    compared = places < (targets != 0).sum(dim=1, keepdim=True) - 1
    return ((guesses == targets) | ~compared).all(dim=1)


def _right_at_the_end(guesses, targets):
    last = (targets != 0).sum(dim=1, keepdim=True) - 1
    return guesses.gather(1, last) == targets.gather(1, last)


def _is_one_of(found, *numbers):
    return any(math.isclose(found, number, rel_tol=1e-5) for number in numbers)


def _number(answer, guesses, targets):
    found = answer(guesses, targets)
    found = found.item() if isinstance(found, Tensor) and found.numel() == 1 else found
    return float(found) if isinstance(found, numbers.Real) else found


def _any_will_do(found, guesses, targets):
    right, is_padding = guesses == targets, targets == 0
    return _is_one_of(found, *(_share(table.any(dim=1)) for table in (right | is_padding, right & ~is_padding)))


def _are_columns(found, guesses, targets):
    right = guesses == targets
    return _is_one_of(found, *(_share(table.all(dim=0)) for table in (right, right | (targets == 0))))


exact_match = Exercise(
    name="exact_match",
    trials=_guesses_and_targets,
    right=lambda guesses, targets: _share(_right_rows(guesses, targets)),
    result_names=("the share",),
    use=_number,
    chapter=1,
    answers={
        "end symbol not compared": lambda guesses, targets: _share(
            ((guesses == targets) | (targets == 0) | (targets == 2)).all(dim=1)
        ),
        "characters counted": lambda guesses, targets: _share((guesses == targets)[targets != 0]),
        "padding compared": lambda guesses, targets: _share((guesses == targets).all(dim=1)),
        "padding of the guesses": lambda guesses, targets: _share(((guesses == targets) | (guesses == 0)).all(dim=1)),
        "percentage": lambda guesses, targets: 100 * _share(_right_rows(guesses, targets)),
        "one verdict for all": lambda guesses, targets: _right_rows(guesses, targets).all(),
        "share of the wrong": lambda guesses, targets: 1 - _share(_right_rows(guesses, targets)),
        "differences added up": lambda guesses, targets: _share(((guesses - targets) * (targets > 0)).sum(dim=1) == 0),
        "last character only": lambda guesses, targets: _share(_right_at_the_end(guesses, targets)),
        "first place not compared": lambda guesses, targets: _share(_right_rows(guesses[:, 1:], targets[:, 1:])),
        "padded answers wrong": lambda guesses, targets: _share(((guesses == targets) & (targets != 0)).all(dim=1)),
        "always 0": lambda guesses, targets: 0.0,
        "as far as the shortest": lambda guesses, targets: _share(
            (guesses == targets)[:, : (targets > 0).sum(dim=1).min()].all(dim=1)
        ),
        "as far as the first": lambda guesses, targets: _share(
            (guesses == targets)[:, : (targets[0] > 0).sum()].all(dim=1)
        ),
        "count instead of share": lambda guesses, targets: _right_rows(guesses, targets).sum().item(),
        "last place not compared": lambda guesses, targets: _share(_right_but_for_the_last(guesses, targets)),
    },
    signs={
        "small ids not compared": lambda found, guesses, targets: _is_one_of(
            found, *(_share(((guesses == targets) | (targets <= least)).all(dim=1)) for least in (1, 2))
        ),
        "characters and padding counted": lambda found, guesses, targets: _is_one_of(
            found, _share(guesses == targets), _share((guesses == targets) | (targets == 0))
        ),
        "any instead of all": _any_will_do,
        "columns instead of rows": _are_columns,
        "verdicts instead of share": lambda found, guesses, targets: torch.equal(
            found.bool(), _right_rows(guesses, targets)
        ),
        "divided by places": lambda found, guesses, targets: _is_one_of(
            found * len(targets),
            _right_rows(guesses, targets).sum() / targets.size(1) * len(targets),
            _right_rows(guesses, targets).sum() / targets.size(1),
        ),
    },
)


# ---------------------------------------------------------------- the shifted target


def _targets_and_lengths(draw):
    for what, count, longest in (("a batch", 3, 5), ("a batch of one", 1, 7), ("a larger batch", 11, 7)):
        lengths = 1 + draw.ints(count, high=longest - 1)
        lengths[-1] = longest
        places = torch.arange(longest, device=lengths.device)
        yield (what, (3 + draw.ints(count, longest, high=11)).masked_fill(places >= lengths[:, None], 0), lengths)
    yield "single characters", 3 + draw.ints(2, 1, high=9), 1 + draw.ints(2, high=1)
    yield "wider than the longest text", F.pad(3 + draw.ints(3, 2, high=9), (0, 3)), 2 + draw.ints(3, high=1)


def _read(ids):
    return F.pad(ids, (1, 0), value=1)


def _write(ids, lengths):
    return F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 2)


shift_targets = Exercise(
    name="shift_targets",
    trials=_targets_and_lengths,
    right=lambda ids, lengths: (_read(ids), _write(ids, lengths)),
    result_names=("read", "write"),
    chapter=1,
    answers={
        "not shifted": lambda ids, lengths: (_write(ids, lengths), _write(ids, lengths)),
        "no beginning": lambda ids, lengths: (F.pad(ids, (0, 1)), _write(ids, lengths)),
        "padding for the beginning": lambda ids, lengths: (F.pad(ids, (1, 0)), _write(ids, lengths)),
        "end one too late": lambda ids, lengths: (_read(ids), _write(ids, (lengths + 1).clamp(max=ids.size(1)))),
        "a full row forgotten": lambda ids, lengths: (_read(ids), _write(ids, (ids == 0).int().argmax(dim=1))),
        "the same for both": lambda ids, lengths: (_read(ids), _read(ids)),
        "end behind the padding": lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1), value=2)),
        "no end": lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1))),
        "read and write swapped": lambda ids, lengths: (_write(ids, lengths), _read(ids)),
        "end in both": lambda ids, lengths: (_read(_write(ids, lengths))[:, :-1], _write(ids, lengths)),
        "beginning and end swapped": lambda ids, lengths: (
            F.pad(ids, (1, 0), value=2),
            F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 1),
        ),
        "end over the last character": lambda ids, lengths: (
            _read(ids),
            F.pad(ids, (0, 1)).scatter(1, lengths[:, None] - 1, 2),
        ),
        "every end in every row": lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1)).index_fill(1, lengths, 2)),
        "ends for padding": lambda ids, lengths: (
            _read(ids),
            F.pad(ids, (0, 1)).masked_fill(F.pad(ids, (0, 1)) == 0, 2),
        ),
        "beginning in both": lambda ids, lengths: (_read(ids), _read(ids).scatter(1, lengths[:, None], 2)),
        "one tensor for both": lambda ids, lengths: (_read(_write(ids, lengths)),) * 2,
        "beginning over the first character": lambda ids, lengths: (
            F.pad(ids, (0, 1)).index_fill(1, torch.zeros_like(lengths[:1]), 1),
            _write(ids, lengths),
        ),
        "cut instead of widened": lambda ids, lengths: (ids[:, :-1], ids[:, 1:]),
        "cut to the longest text": lambda ids, lengths: (
            _read(ids)[:, : int(lengths.max()) + 1],
            _write(ids, lengths)[:, : int(lengths.max()) + 1],
        ),
        "last character lost": lambda ids, lengths: (_read(ids)[:, :-1], _write(ids, lengths)[:, :-1]),
    },
)


# ---------------------------------------------------------------- additive attention for a batch


def _looks(draw):
    def tensors(b, s, d, dv, **kind):
        return (draw(b, d, **kind), draw(b, s, d, **kind), draw(b, s, dv, **kind), draw(d, **kind))

    def mask(b, s):
        lengths = 1 + draw.ints(b, 1, high=s - 1)  # at least one position of padding
        return torch.arange(s, device=lengths.device) < lengths

    yield "a batch without padding", *tensors(3, 7, 5, 2), torch.ones_like(mask(3, 7))
    yield "a padded batch", *tensors(3, 7, 5, 2), mask(3, 7)
    yield "a batch of one", *tensors(1, 5, 2, 3), mask(1, 5)
    yield ("one position to look at", *tensors(2, 3, 7, 5), torch.tensor([[True, False, False]] * 2).to(mask(2, 3)))
    yield "holes in the mask", *tensors(5, 11, 3, 7), draw.mask(5, 11)
    # Where real scores are far below 0, a weight of padding that is almost 0 shows.
    query, keys, values, score_weight = tensors(2, 5, 3, 7)
    yield "large scores", query, keys, values, 30 * score_weight, mask(2, 5)
    yield "float64", *tensors(2, 5, 3, 7, dtype=torch.float64), mask(2, 5)
    query, keys, values, score_weight = tensors(3, 7, 5, 2, dtype=torch.float64)
    yield "scores far below 0", query.abs(), keys.abs(), values, -99 * score_weight.abs(), mask(3, 7)


def _additive_scores(query, keys, score_weight):
    return torch.tanh(query[:, None] + keys) @ score_weight


def _look(query, keys, values, score_weight, mask):
    scores = torch.tanh(query[:, None] + keys) @ score_weight  # (B, S)
    weights = softmax(scores.masked_fill(~mask, -math.inf))
    return (weights[:, None] @ values)[:, 0], weights


def _show_weights_that_are_not_0(answer, query, keys, values, score_weight, mask):
    """Return the answer's result, with small weights of padding enlarged so that no tolerance hides them."""
    found = answer(query, keys, values, score_weight, mask)
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Tensor):
        return found
    context, weights = found
    is_like = weights.shape == mask.shape and weights.device == mask.device
    if is_like and (seen := ~mask & (weights > 0) & (weights < 0.001)).any():
        weights = weights.masked_fill(seen, 0.001)
    return context, weights


def _looks_at_what_is_hidden(found, query, keys, values, score_weight, mask):
    """Return whether the weights belong to the hidden positions. Rows without any may be NaN or uniform."""
    scores = _additive_scores(query, keys, score_weight)
    wanted = softmax(scores.masked_fill(mask, -math.inf))
    wanted = wanted.masked_fill((wanted > 0) & (wanted < 0.001), 0.001)  # as in what is compared
    weights, hides = found[1].nan_to_num(), ~mask.all(dim=1)
    others = weights[~hides]
    return torch.allclose(weights[hides], wanted[hides], rtol=1e-4, atol=1e-5) and torch.allclose(
        others, others[:, :1].expand_as(others)
    )


def _shares_out_each_position(found, query, keys, values, score_weight, mask):
    """Return whether the weights of each position sum to 1 over the texts. If all are hidden, they are NaN or 0."""
    sums = found[1].sum(dim=0).nan_to_num()
    return found[1].shape == mask.shape and bool(((sums - 1).abs().minimum(sums.abs()) < 1e-4).all())


look_back = Exercise(
    name="look_back",
    trials=_looks,
    right=_look,
    use=_show_weights_that_are_not_0,
    result_names=("context", "weights"),
    gradients=True,
    in_parts=True,
    chapter=1,
    signs={
        "softmax over the batch": _shares_out_each_position,
        "mask inverted": _looks_at_what_is_hidden,
        "padding gets weight": lambda found, query, keys, values, score_weight, mask: (
            found[1][~mask].nan_to_num().ne(0).any()
        ),
    },
)


# ---------------------------------------------------------------- one step of a GRU


def _steps(draw):
    def tensors(b, d, h, **kind):
        sizes = (b, d), (b, h), (3 * h, d), (3 * h, h), (3 * h,), (3 * h,)
        return [draw(*size, **kind) for size in sizes]

    yield "a batch", *tensors(3, 5, 7)
    yield "a batch of one", *tensors(1, 2, 3)
    yield "a state as wide as the input", *tensors(5, 3, 3)
    yield "a state of one number", *tensors(2, 7, 1)
    yield "float64", *tensors(3, 2, 5, dtype=torch.float64)


def _gru(x, h, W, U, b, c):
    x_r, x_z, x_n = (x @ W.T + b).chunk(3, dim=-1)
    h_r, h_z, h_n = (h @ U.T + c).chunk(3, dim=-1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return z * h + (1 - z) * n


def _read_by_turns(x, h, W, U, b, c):
    """Take every third row for the same gate."""
    by_turns = [t.unflatten(0, (-1, 3)).transpose(0, 1).flatten(0, 1) for t in (W, U, b, c)]
    return torch.gru_cell(x, h, *by_turns)


def _cut_by_the_input(x, h, W, U, b, c):
    D, of_x, of_h = x.size(-1), x @ W.T + b, h @ U.T + c
    r = torch.sigmoid(of_x[:, :D] + of_h[:, :D])
    z = torch.sigmoid(of_x[:, D : 2 * D] + of_h[:, D : 2 * D])
    n = torch.tanh(of_x[:, 2 * D :] + r * of_h[:, 2 * D :])
    return z * h + (1 - z) * n


def _reads_blocks_in_another_order(found, x, h, *tables):
    for order in permutations(range(3)):
        moved = [torch.cat([table.chunk(3)[i] for i in order]) for table in tables]
        if order[2] != 2 and torch.allclose(found, torch.gru_cell(x, h, *moved), rtol=1e-4, atol=1e-5):
            return True
    return False


gru_step = Exercise(
    name="gru_step",
    trials=_steps,
    right=_gru,
    in_parts=True,
    chapter=1,
    answers={
        "blocks by turns": _read_by_turns,
        "cut by the width of the input": _cut_by_the_input,
    },
    signs={
        "blocks in another order": _reads_blocks_in_another_order,
    },
)
