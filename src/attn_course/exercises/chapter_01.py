"""The exercises of the chapter on why attention was invented. Used from chapter 1 on."""

import math
import numbers

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


def _number(answer, guesses, targets):
    found = answer(guesses, targets)
    found = found.item() if isinstance(found, Tensor) and found.numel() == 1 else found
    return float(found) if isinstance(found, numbers.Real) else found


def _exact_match(guesses, targets):
    is_right = guesses == targets
    is_padding = targets == 0
    rows = (is_right | is_padding).all(dim=1)
    return rows.float().mean().item()


exact_match = Exercise(
    name="exact_match",
    trials=_guesses_and_targets,
    right=_exact_match,
    result_names=("the share",),
    use=_number,
    chapter=1,
    signs={
        "verdicts instead of share": lambda found, guesses, targets: torch.equal(
            found.bool(), ((guesses == targets) | (targets == 0)).all(dim=1)
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


def _shift_targets(ids, lengths):
    read = F.pad(ids, (1, 0), value=1)
    padded = F.pad(ids, (0, 1))
    write = padded.scatter(1, lengths[:, None], 2)
    return read, write


shift_targets = Exercise(
    name="shift_targets",
    trials=_targets_and_lengths,
    right=_shift_targets,
    result_names=("read", "write"),
    chapter=1,
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
    scores = torch.tanh(query[:, None] + keys) @ score_weight
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


gru_step = Exercise(name="gru_step", trials=_steps, right=_gru, in_parts=True, chapter=1)
