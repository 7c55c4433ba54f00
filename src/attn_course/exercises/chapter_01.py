"""The exercises of the chapter on why attention was invented. Used from chapter 1 on."""

import math
import numbers
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.exercises.engine.exercise import Exercise, Mistake
from attn_course.functional import softmax

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
    returns=("the share",),
    use=_number,
    mistakes={
        "end symbol not compared": Mistake(
            "A guess that goes on where its target ends counts as right: the end symbol belongs to the answer, "
            "and the padding behind it alone does not. See section 1.5.",
            lambda guesses, targets: _share(((guesses == targets) | (targets == 0) | (targets == 2)).all(dim=1)),
        ),
        "small ids not compared": Mistake(
            "A guess counts as right although it differs from its target at an id above 0: "
            "only 0 is padding, and every other id belongs to the answer. See section 1.5.",
            sign=lambda found, guesses, targets: _is_one_of(
                found, *(_share(((guesses == targets) | (targets <= least)).all(dim=1)) for least in (1, 2))
            ),
        ),
        "characters counted": Mistake(
            "This is the share of right characters; an answer counts only when all of its characters are right, "
            "and nine right characters of ten are a wrong date. See section 1.5.",
            lambda guesses, targets: _share((guesses == targets)[targets != 0]),
        ),
        "characters and padding counted": Mistake(
            "This is a share of single places, padding included; "
            "an answer counts only when all of its characters are right. See section 1.5.",
            sign=lambda found, guesses, targets: _is_one_of(
                found, _share(guesses == targets), _share((guesses == targets) | (targets == 0))
            ),
        ),
        "padding compared": Mistake(
            "Right answers are counted as wrong for what stands behind their end: "
            "where the target is padding, a guess may be anything. See section 1.9.",
            lambda guesses, targets: _share((guesses == targets).all(dim=1)),
        ),
        "padding of the guesses": Mistake(
            "A guess that breaks off too early is counted as right: what may be anything are the places at which "
            "the target is padding, not those at which the guess is. See section 1.9.",
            lambda guesses, targets: _share(((guesses == targets) | (guesses == 0)).all(dim=1)),
        ),
        "any instead of all": Mistake(
            "An answer is counted as soon as one of its places is right; all of them must be. See section 1.5.",
            sign=_any_will_do,
        ),
        "columns instead of rows": Mistake(
            "It asks of each place whether all answers are right there; "
            "a row is an answer, so look along the second axis. See section 1.9.",
            sign=_are_columns,
        ),
        "percentage": Mistake(
            "The share is a hundred times too large: asked for is a number from 0 to 1, not percent. See section 1.5.",
            lambda guesses, targets: 100 * _share(_right_rows(guesses, targets)),
        ),
        "one verdict for all": Mistake(
            "This is 1 if all answers are right and 0 if one is not; asked for is the share of those that are. "
            "Each answer has a verdict of its own. See section 1.5.",
            lambda guesses, targets: _right_rows(guesses, targets).all(),
        ),
        "verdicts instead of share": Mistake(
            "This is one verdict for each answer; asked for is one number, the share of those that are right. See "
            "section 1.5.",
            sign=lambda found, guesses, targets: torch.equal(found.bool(), _right_rows(guesses, targets)),
        ),
        "share of the wrong": Mistake(
            "This is the share of wrong answers; asked for is that of right ones. See section 1.5.",
            lambda guesses, targets: 1 - _share(_right_rows(guesses, targets)),
        ),
        "differences added up": Mistake(
            "Some wrong answers are counted as right: an answer is right only where every one of its characters is "
            "that of the target. See section 1.5.",
            lambda guesses, targets: _share(((guesses - targets) * (targets > 0)).sum(dim=1) == 0),
        ),
        "last character only": Mistake(
            "Only the last character of each answer is compared; all of its characters must be right. See section 1.5.",
            lambda guesses, targets: _share(_right_at_the_end(guesses, targets)),
        ),
        "first place not compared": Mistake(
            "An answer that is wrong at its first place is counted as right if the others are; all of its characters "
            "must be right. See section 1.5.",
            lambda guesses, targets: _share(_right_rows(guesses[:, 1:], targets[:, 1:])),
        ),
        "padded answers wrong": Mistake(
            "Answers with padding behind them are counted as wrong: a place at which the target is padding does not "
            "matter, whatever the guess holds there. See section 1.9.",
            lambda guesses, targets: _share(((guesses == targets) & (targets != 0)).all(dim=1)),
        ),
        "always 0": Mistake(
            "This is 0, also where all answers are right: a row counts when all of its characters are right, and then "
            "the rows that count are divided by all. See section 1.5.",
            lambda guesses, targets: 0.0,
        ),
        "as far as the shortest": Mistake(
            "Only as many places are compared as the shortest target has; each has a length of its own. See section "
            "1.9.",
            lambda guesses, targets: _share((guesses == targets)[:, : (targets > 0).sum(dim=1).min()].all(dim=1)),
        ),
        "as far as the first": Mistake(
            "All answers are compared as far as the first target goes; each has a length of its own. See section 1.9.",
            lambda guesses, targets: _share((guesses == targets)[:, : (targets[0] > 0).sum()].all(dim=1)),
        ),
        "count instead of share": Mistake(
            "This is the number of right answers; divide it by the number of all. See section 1.5.",
            lambda guesses, targets: _right_rows(guesses, targets).sum().item(),
        ),
        "divided by places": Mistake(
            "The right answers are counted, and their number is divided by a number of places; "
            "the answers are the rows. See section 1.9.",
            sign=lambda found, guesses, targets: _is_one_of(
                found * len(targets),
                _right_rows(guesses, targets).sum() / targets.size(1) * len(targets),
                _right_rows(guesses, targets).sum() / targets.size(1),
            ),
        ),
        "last place not compared": Mistake(
            "The last place of each target, before the padding, is not compared: a guess that is wrong only there "
            "counts "
            "as right. See section 1.5.",
            lambda guesses, targets: _share(_right_but_for_the_last(guesses, targets)),
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
    returns=("read", "write"),
    mistakes={
        "not shifted": Mistake(
            "What is read here is what should be written: the decoder would read the very character that it must "
            "write, and learn to copy. See section 1.19.",
            lambda ids, lengths: (_write(ids, lengths), _write(ids, lengths)),
        ),
        "no beginning": Mistake(
            "What is read has to begin with the id of the beginning: "
            "before the first character there is nothing else to read. See section 1.9.",
            lambda ids, lengths: (F.pad(ids, (0, 1)), _write(ids, lengths)),
        ),
        "padding for the beginning": Mistake(
            "What is read begins with 0, the id of padding; 1 is the id of the beginning. See section 1.9.",
            lambda ids, lengths: (F.pad(ids, (1, 0)), _write(ids, lengths)),
        ),
        "end one too late": Mistake(
            "Behind a short text comes first a padding and then the end: columns count from 0, so the end belongs "
            "in the one that has the number of the length. See section 1.9.",
            lambda ids, lengths: (_read(ids), _write(ids, (lengths + 1).clamp(max=ids.size(1)))),
        ),
        "a full row forgotten": Mistake(
            "A row without padding has its end in the place of the first character. The lengths say where each row "
            "ends, also where nothing is 0. See section 1.9.",
            lambda ids, lengths: (_read(ids), _write(ids, (ids == 0).int().argmax(dim=1))),
        ),
        "the same for both": Mistake(
            "What is to be written here is what should be read, with the beginning in front: the decoder should "
            "write the characters, and the end behind them. See section 1.9.",
            lambda ids, lengths: (_read(ids), _read(ids)),
        ),
        "end behind the padding": Mistake(
            "The end stands in the last column of every row; in a short row it belongs right behind the last "
            "character, before the padding. See section 1.9.",
            lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1), value=2)),
        ),
        "no end": Mistake(
            "There is no end in what is to be written, and without it the decoder does not learn when to stop. See "
            "section 1.9.",
            lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1))),
        ),
        "read and write swapped": Mistake(
            "The two are swapped: the one that begins with the id of the beginning is read. See section 1.9.",
            lambda ids, lengths: (_write(ids, lengths), _read(ids)),
        ),
        "end in both": Mistake(
            "What is read holds the end of the shorter texts. It does no harm, because nothing is to be written "
            "after it, but this exercise asks for padding there. See section 1.9.",
            lambda ids, lengths: (_read(_write(ids, lengths))[:, :-1], _write(ids, lengths)),
        ),
        "beginning and end swapped": Mistake(
            "The id of the end stands where that of the beginning belongs, or the other way round: 1 is for the "
            "beginning, 2 for the end. See section 1.9.",
            lambda ids, lengths: (F.pad(ids, (1, 0), value=2), F.pad(ids, (0, 1)).scatter(1, lengths[:, None], 1)),
        ),
        "end over the last character": Mistake(
            "The end stands in the place of the last character, which is then never written: "
            "it belongs one column further. See section 1.9.",
            lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1)).scatter(1, lengths[:, None] - 1, 2)),
        ),
        "every end in every row": Mistake(
            "Each row has the ends of all rows. `write[:, places]` means every place in every row: say which row "
            "goes with which place. See section 1.9.",
            lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1)).index_fill(1, lengths, 2)),
        ),
        "ends for padding": Mistake(
            "All of the padding has become ends; after the first there is nothing more to write. See section 1.9.",
            lambda ids, lengths: (_read(ids), F.pad(ids, (0, 1)).masked_fill(F.pad(ids, (0, 1)) == 0, 2)),
        ),
        "beginning in both": Mistake(
            "What is to be written begins with the id of the beginning: that is only to be read, and the first "
            "character is the first to be written. See section 1.9.",
            lambda ids, lengths: (_read(ids), _read(ids).scatter(1, lengths[:, None], 2)),
        ),
        "one tensor for both": Mistake(
            "Beginning and end stand in one tensor, a column too wide: the beginning is only to be read, the end "
            "only to be written. See section 1.9.",
            lambda ids, lengths: (_read(_write(ids, lengths)),) * 2,
        ),
        "beginning over the first character": Mistake(
            "The beginning stands in the place of the first character, which is then never read: "
            "it belongs before it. See section 1.9.",
            lambda ids, lengths: (
                F.pad(ids, (0, 1)).index_fill(1, torch.zeros_like(lengths[:1]), 1),
                _write(ids, lengths),
            ),
        ),
        "cut instead of widened": Mistake(
            "A column of the target is cut off. That is how it is done with ids that hold beginning and end "
            "already; these hold neither. See section 1.9.",
            lambda ids, lengths: (ids[:, :-1], ids[:, 1:]),
        ),
        "cut to the longest text": Mistake(
            "The width is that of the longest text and one column more; it should be that of `ids` and one more, "
            "however long the texts in it are. See section 1.9.",
            lambda ids, lengths: (
                _read(ids)[:, : int(lengths.max()) + 1],
                _write(ids, lengths)[:, : int(lengths.max()) + 1],
            ),
        ),
        "last character lost": Mistake(
            "The width is that of `ids`: the beginning of what is read, and the end of what is written, need one "
            "column more. See section 1.9.",
            lambda ids, lengths: (_read(ids)[:, :-1], _write(ids, lengths)[:, :-1]),
        ),
    },
)


# ---------------------------------------------------------------- the last state


def _states_and_lengths(draw):
    yield "a batch", draw(3, 7, 5), 1 + draw.ints(3, high=6)
    yield "a batch of one", draw(1, 5, 2), 1 + draw.ints(1, high=4)
    lengths = 1 + draw.ints(5, high=7)
    lengths[2] = 7
    yield "one text without padding", draw(5, 7, 3), lengths
    yield "single characters", draw(2, 3, 11), 1 + draw.ints(2, high=1)
    # As nn.GRU with batch_first=True returns them.
    yield "states that are not contiguous", draw(7, 3, 5).transpose(0, 1), 1 + draw.ints(3, high=6)
    yield "float64", draw(3, 5, 2, dtype=torch.float64), 1 + draw.ints(3, high=4)


def _pick(states, places):
    return states[torch.arange(len(states), device=states.device), places]


last_state = Exercise(
    name="last_state",
    trials=_states_and_lengths,
    right=lambda states, lengths: _pick(states, lengths - 1),
    gradients=True,
    mistakes={
        "takes the padding": Mistake(
            "These are the states at the last position, and in a short text that is padding: "
            "the last character stands at its length less one. See section 1.11.",
            lambda states, lengths: states[:, -1],
        ),
        "one too far": Mistake(
            "Each state is one position too late: positions count from 0, so a text of 5 characters ends at "
            "position 4. See section 1.9.",
            lambda states, lengths: _pick(states, lengths),
        ),
        "one too far, held at the end": Mistake(
            "Where there is padding, each state is one position too late, and only a text without padding has its last "
            "one: a text of 5 characters ends at position 4. See section 1.9.",
            lambda states, lengths: _pick(states, lengths.clamp(max=states.size(1) - 1)),
        ),
        "first number only": Mistake(
            "Only the first number of each state comes back, (B, 1): all E numbers of a state belong to it. With "
            "`gather`, the index has to be as large as the result. See section 1.10.",
            lambda states, lengths: _pick(states, lengths - 1)[:, :1],
        ),
        "one too early": Mistake(
            "A text's state is taken at its length less 2: a text of 5 characters ends at position 4. See section 1.9.",
            lambda states, lengths: _pick(states, lengths - 2),
        ),
        "takes the first": Mistake(
            "These are the states at the first character; read from left to right, "
            "a text ends at its last. See section 1.10.",
            lambda states, lengths: states[:, 0],
        ),
        "end of the longest": Mistake(
            "Every row is taken where the longest text ends; each has an end of its own. See section 1.9.",
            lambda states, lengths: states[:, lengths.max() - 1],
        ),
        "mean of the states": Mistake(
            "This is the mean of the real states; asked for is the one state at the last character. See section 1.10.",
            lambda states, lengths: torch.stack(
                [row[:length].mean(dim=0) for row, length in zip(states, lengths, strict=True)]
            ),
        ),
        "rows times rows": Mistake(
            "Each text is given the last positions of all texts, a (B, B, E) tensor. `states[:, places]` means "
            "every place in every row: say which row goes with which place. See section 1.9.",
            lambda states, lengths: states[:, lengths - 1],
        ),
        "texts instead of positions": Mistake(
            "The lengths pick texts: the texts are the first axis, and the positions are the second. See section 1.10.",
            lambda states, lengths: states[lengths - 1],
        ),
        "rows and positions swapped": Mistake(
            "Rows and positions have changed places: the first axis is that of the texts. See section 1.10.",
            lambda states, lengths: states[lengths - 1, torch.arange(len(states), device=states.device)],
        ),
        "mean over the padding": Mistake(
            "This is the mean of all states, padding included; asked for is the one state at the last character. "
            "See section 1.10.",
            lambda states, lengths: states.mean(dim=1),
        ),
        "an axis too many": Mistake(
            "An axis of length 1 is left over: one state for each text is (B, E). See section 1.10.",
            lambda states, lengths: _pick(states, lengths - 1).unsqueeze(1),
        ),
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
    """What the answer returns; a weight of padding that no tolerance would show is made larger."""
    found = answer(query, keys, values, score_weight, mask)
    if not isinstance(found, tuple | list) or len(found) != 2 or not isinstance(found[1], Tensor):
        return found
    context, weights = found
    is_like = weights.shape == mask.shape and weights.device == mask.device
    if is_like and (seen := ~mask & (weights > 0) & (weights < 0.001)).any():
        weights = weights.masked_fill(seen, 0.001)
    return context, weights


def _looks_at_what_is_hidden(found, query, keys, values, score_weight, mask):
    """Whether the weights are those of the hidden positions; rows without any may be nan or all alike."""
    scores = _additive_scores(query, keys, score_weight)
    wanted = softmax(scores.masked_fill(mask, -math.inf))
    weights, hides = found[1].nan_to_num(), ~mask.all(dim=1)
    others = weights[~hides]
    return torch.allclose(weights[hides], wanted[hides], rtol=1e-4, atol=1e-5) and torch.allclose(
        others, others[:, :1].expand_as(others)
    )


look_back = Exercise(
    name="look_back",
    trials=_looks,
    right=_look,
    use=_show_weights_that_are_not_0,
    returns=("context", "weights"),
    gradients=True,
    in_parts=True,
    mistakes={
        "no tanh": Mistake(
            "These are the numbers without the tanh. Without it a query adds the same number to all scores of its "
            "text, and a softmax over the positions leaves such a number out. See section 1.3.",
            {"torch.tanh": ""},
        ),
        "tanh outside the sum": Mistake(
            "The weighted sum is squashed as a whole: each number should go through the tanh before it is weighted. "
            "See section 1.3.",
            {"(query[:, None] + keys) @ score_weight": "((query[:, None] + keys) @ score_weight)"},
        ),
        "product instead of sum": Mistake(
            "Query and key are multiplied; in additive attention they are added, and the sum is squashed. See section "
            "1.3.",
            {"+ keys": "* keys"},
        ),
        "score weight forgotten": Mistake(
            "The D numbers of a position are summed as they are; each has to count as much as `score_weight` says. "
            "See section 1.3.",
            {" @ score_weight": ".sum(dim=-1)"},
        ),
        "softmax over the batch": Mistake(
            "These are the weights of a softmax down the batch, and not along the positions: a text has to share "
            "out its own weight among its own positions. See section 1.13.",
            {"-math.inf))": "-math.inf), dim=0)"},
        ),
        "mask ignored": Mistake(
            "Padding gets the weight of its scores, and the mask changes nothing: look at what becomes of it. See "
            "section 1.13.",
            {".masked_fill(~mask, -math.inf)": ""},
        ),
        "mask inverted": Mistake(
            "Where there is padding, it gets all the weight: the mask is True where the decoder may look, so it is "
            "the other positions whose scores become −∞. See section 1.13.",
            sign=_looks_at_what_is_hidden,
        ),
        "mask after the softmax": Mistake(
            "The weights of a padded text sum to less than 1: the share of the padding is set to 0, and nobody else "
            "has it. Hide padding before the softmax. See section 1.13.",
            {"scores.masked_fill(~mask, -math.inf))": "scores) * mask"},
        ),
        "hidden scores set to 0": Mistake(
            "Padding gets the weight of a score of 0, and e⁰ is 1, not 0. "
            "Which score has an exponential of 0? See section 1.13.",
            {"scores.masked_fill(~mask, -math.inf)": "scores * mask"},
        ),
        "scaled like a dot product": Mistake(
            "The scores are divided by √D. That is for dot products; "
            "additive scores should go into the softmax as they are. See section 1.3.",
            {"@ score_weight": "@ score_weight / math.sqrt(query.size(-1))"},
        ),
        "sigmoid instead of tanh": Mistake(
            "These are the numbers of a sigmoid, which squashes to 0 to 1; it should be a tanh, from −1 to 1. See "
            "section 1.3.",
            {"tanh": "sigmoid"},
        ),
        "no axis for the queries": Mistake(
            "The query of each text has to meet all positions of that text: "
            "(B, D) and (B, S, D) do not line up before the query has an axis of length 1 for S. See section 1.13.",
            {"query[:, None]": "query"},
        ),
        "dot product": Mistake(
            "The scores are the dot products of query and keys; additive attention adds the two, squashes the sum, "
            "and only then takes the weighted sum. See section 1.3.",
            {"torch.tanh(query[:, None] + keys) @ score_weight": "(query[:, None] * keys).sum(dim=-1)"},
        ),
        "weighted dot product": Mistake(
            "Query and key are multiplied, weighted and added up, without a tanh: additive attention adds the two, "
            "squashes the sum, and only then weights it. See section 1.3.",
            {"torch.tanh(query[:, None] + keys)": "(query[:, None] * keys)"},
        ),
        "query ignored": Mistake(
            "The weights are those of the keys alone, whatever the query is: "
            "query and key have to be added before the tanh. See section 1.3.",
            {"query[:, None] + ": ""},
        ),
        "weighted before the tanh": Mistake(
            "`score_weight` is multiplied in before anything is squashed; the sum should first be squashed, then "
            "weighted. See section 1.3.",
            {"(query[:, None] + keys) @ score_weight": "((query[:, None] + keys) * score_weight).sum(dim=-1)"},
        ),
        "no softmax": Mistake(
            "The scores are used as weights: they can be negative, and need not sum to 1. See section 1.3.",
            {"softmax(scores.masked_fill(~mask, -math.inf))": "scores.masked_fill(~mask, 0)"},
        ),
        "not divided by the sum": Mistake(
            "The weights are bare exponentials: divide them by their sum, so that they sum to 1. See section 1.3.",
            {"softmax(scores.masked_fill(~mask, -math.inf))": "scores.masked_fill(~mask, -math.inf).exp()"},
        ),
        "sum forgotten": Mistake(
            "The values are multiplied by their weights and not summed: a text gets one context vector, "
            "not one for each position. See section 1.3.",
            {"(weights[:, None] @ values)[:, 0]": "weights[..., None] * values"},
        ),
        "mean instead of sum": Mistake(
            "The context is divided by the number of positions. Weights that sum to 1 make an average already: sum "
            "the weighted values, and leave it at that. See section 1.3.",
            {")[:, 0]": ")[:, 0] / values.size(1)"},
        ),
        "an axis too many": Mistake(
            "The context has an axis of length 1 left over: one context vector for each text is (B, Dv). See section "
            "1.13.",
            {")[:, 0]": ")"},
        ),
        "an axis lost": Mistake(
            "The context of a batch of one has lost its axis for the batch. A `squeeze` without an axis takes all axes "
            "of length 1 away. See section 1.13.",
            {")[:, 0]": ")[:, 0].squeeze()"},
        ),
        "results swapped": Mistake(
            "The weights stand where the context belongs, or the other way round: the context comes first. See "
            "section 1.3.",
            {"return (weights[:, None] @ values)[:, 0], weights": "return weights, (weights[:, None] @ values)[:, 0]"},
        ),
        "scores returned as weights": Mistake(
            "What is returned beside the context are the scores, before the softmax. See section 1.3.",
            {"0], weights": "0], scores.masked_fill(~mask, -math.inf)"},
        ),
        "keys averaged": Mistake(
            "What is averaged are the keys; keys should be found by, values are what is handed over. See section 1.3.",
            {"@ values": "@ keys"},
        ),
        "padding gets weight": Mistake(
            "Where there is padding, some of it gets a weight that is not exactly 0: hide its scores with −∞ before "
            "the softmax. See section 1.13.",
            sign=lambda found, query, keys, values, score_weight, mask: found[1][~mask].nan_to_num().ne(0).any(),
        ),
        "mean of the values": Mistake(
            "The context is the plain mean of the values that the mask shows: each should count by its weight. See "
            "section 1.3.",
            {"weights[:, None] @ values": "(mask.to(values) / mask.sum(1, keepdim=True))[:, None] @ values"},
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
    """Every third row for the same gate."""
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
    mistakes={
        "keeps what it should replace": Mistake(
            "z and 1 − z have changed places: z is the share of the old state that is kept. See section 1.10.",
            {"z * h + (1 - z) * n": "(1 - z) * h + z * n"},
        ),
        "gates swapped": Mistake(
            "r and z have changed places: of the three blocks, the first is for r and the second for z. See section "
            "1.10.",
            {"r, z =": "z, r ="},
        ),
        "reset before the matrix": Mistake(
            "r is multiplied with the old state before U_n, as in the paper of 2014; "
            "PyTorch multiplies afterwards, with U_n h + c_n. See section 1.10.",
            {"r * h_n": "(r * h) @ U.chunk(3)[2].T + c.chunk(3)[2]"},
        ),
        "bias outside the reset": Mistake(
            "c_n is added behind the product with r; it belongs to what r is multiplied with. See section 1.10.",
            {"r * h_n": "r * (h @ U.chunk(3)[2].T) + c.chunk(3)[2]"},
        ),
        "reset of the bare state": Mistake(
            "r is multiplied with the old state as it is; the state has to go through U_n and c_n first. See "
            "section 1.10.",
            {"r * h_n": "r * h"},
        ),
        "old state lost": Mistake(
            "Nothing of the old state is kept: the proposal counts with 1 − z, and the old state with z. See section "
            "1.10.",
            {"z * h + ": ""},
        ),
        "tanh for the gates": Mistake(
            "r and z go through a tanh and can be negative; a gate says how much, from 0 to 1: a sigmoid. See section "
            "1.10.",
            {"torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)": "torch.tanh(x_r + h_r), torch.tanh(x_z + h_z)"},
        ),
        "no reset": Mistake(
            "The proposal sees the whole old state: r changes nothing. See section 1.10.", {"r * h_n": "h_n"}
        ),
        "sigmoid for the proposal": Mistake(
            "The proposal goes through a sigmoid, so it is never negative; it should be a tanh. See section 1.10.",
            {"tanh": "sigmoid"},
        ),
        "gates without sigmoid": Mistake(
            "A gate says how much, from 0 to 1, so r and z need a sigmoid. See section 1.10.",
            {"torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)": "x_r + h_r, x_z + h_z"},
        ),
        "no tanh": Mistake(
            "These are the numbers of a proposal that has not gone through a tanh. See section 1.10.",
            {"torch.tanh": ""},
        ),
        "reset of the input": Mistake(
            "r is multiplied with what comes from x too; it resets only what comes from the old state. See section "
            "1.10.",
            {"(x_n + r": "(r * x_n + r"},
        ),
        "shares that do not sum to 1": Mistake(
            "The proposal is added whole to the part of the old state that is kept; "
            "if z of the old is kept, 1 − z of the new goes in. See section 1.10.",
            {"(1 - z) * n": "n"},
        ),
        "biases forgotten": Mistake(
            "There are two biases, b with W and c with U, and neither counts here. See section 1.10.",
            {" + b)": ")", " + c)": ")"},
        ),
        "first bias forgotten": Mistake(
            "There are two biases, b with W and c with U, and b does not count here. See section 1.10.", {" + b)": ")"}
        ),
        "one bias forgotten": Mistake(
            "There are two biases, b with W and c with U, and c does not count here. See section 1.10.", {" + c)": ")"}
        ),
        "proposal instead of state": Mistake(
            "This is the proposal n; the new state is a mixture of it and the old one, by z. See section 1.10.",
            {"z * h + (1 - z) * n": "n"},
        ),
        "blocks in another order": Mistake(
            "The blocks of rows are read in another order: the first is for r, the second for z and the third for n. "
            "See section 1.10.",
            sign=_reads_blocks_in_another_order,
        ),
        "one block for all": Mistake(
            "r, z and n are all made from the first H of the rows: the second H are for z and the third for n. "
            "See section 1.10.",
            {"    r, z =": "    x_z = x_n = x_r\n    h_z = h_n = h_r\n    r, z ="},
        ),
        "blocks by turns": Mistake(
            "Every third row goes to the same gate: the three blocks lie one behind the other, H rows for r, "
            "then H for z, then H for n. See section 1.10.",
            _read_by_turns,
        ),
        "cut by the width of the input": Mistake(
            "With a state as wide as the input the sizes fit, and with another they do not: each of the three "
            "blocks is as wide as the state, H, and not as the input, D. See section 1.10.",
            _cut_by_the_input,
        ),
        "proposal kept whole": Mistake(
            "The old state is added whole to the part of the proposal: if 1 − z of the new goes in, z of the old "
            "should stay. See section 1.10.",
            {"z * h +": "h +"},
        ),
        "update gate reads the reset state": Mistake(
            "The update gate z is computed from the state after its reset; both gates should read the old state, and "
            "the reset belongs to the proposal alone. See section 1.10.",
            {"x_z + h_z": "x_z + (torch.sigmoid(x_r + h_r) * h) @ U.chunk(3)[1].T + c.chunk(3)[1]"},
        ),
    },
)
