"""The exercises of the chapter on sparse and linear attention. Used from chapter 21 on."""

import torch
import torch.nn.functional as F

from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake

# ---------------------------------------------------------------- combine a window and the best keys


def _scores(draw):
    yield "seven tokens", draw(7, 7), 2, 2
    yield "a batch and heads", draw(2, 3, 5, 5), 1, 2
    yield "fewer keys than k before the window", draw(6, 6), 3, 5
    yield "k larger than the text", draw(2, 5, 5), 2, 11
    yield "a window longer than the text", draw(4, 4), 9, 2
    yield "a longer text", draw(3, 17, 17), 4, 3
    yield "one token", draw(2, 1, 1), 1, 1


def _window_and_best(scores, window, k):
    T = scores.size(-1)
    place = torch.arange(T, device=scores.device)
    distance = place[:, None] - place
    near = (distance >= 0) & (distance < window)
    before = distance >= window
    best = scores.masked_fill(~before, -torch.inf).topk(min(k, T), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
    return near | (chosen & before)


window_and_best = Exercise(
    name="window_and_best",
    trials=_scores,
    right=_window_and_best,
    mistakes={
        "future visible": Mistake(
            "Queries see later keys, because the window has no bound on that side. See section 21.1.",
            {"(distance >= 0) & (distance < window)": "distance < window"},
        ),
        "own key hidden": Mistake(
            "A query does not see its own key, but the window includes it. See section 21.1.",
            {"distance >= 0": "distance > 0"},
        ),
        "window one too long": Mistake(
            "The window has one key too many: a window of 1 holds only the query's own key. See section 21.1.",
            {"distance < window": "distance <= window"},
        ),
        "window counts towards k": Mistake(
            "The best keys are taken from all earlier keys, so keys of the window use up places of the k best. Only "
            "the keys before the window compete for them. See section 21.2.",
            {"masked_fill(~before, -torch.inf)": "masked_fill(distance < 0, -torch.inf)"},
        ),
        "worst keys": Mistake(
            "Before the window, the keys with the lowest scores are visible instead of those with the highest scores. "
            "See section 21.2.",
            {"-torch.inf).topk(min(k, T), dim=-1)": "torch.inf).topk(min(k, T), dim=-1, largest=False)"},
        ),
        "window left out": Mistake(
            "Only the selected keys are visible, and the window is missing. See section 21.2.",
            {"near | (chosen & before)": "chosen & before"},
        ),
        "window alone": Mistake(
            "Only the window is visible, and the selected keys before it are missing. See section 21.2.",
            {"near | (chosen & before)": "near.expand_as(scores)"},
        ),
        "best queries instead of best keys": Mistake(
            "The function selects the best queries of each key. Each query has a row of scores, and its best keys are "
            "in this row. See section 21.2.",
            {"dim=-1).indices": "dim=-2).indices", "scatter(-1": "scatter(-2"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The function changes `scores`, which other rules may still need. Work on a copy. See section 21.2."
        ),
    },
)


# ---------------------------------------------------------------- one gated delta step


def _states(draw):
    def inputs(B, H, D, Dv, dtype=torch.float32):
        k = F.normalize(draw(B, H, D, dtype=dtype), dim=-1)
        beta, gate = draw(2, B, H, dtype=dtype).sigmoid()
        return draw(B, H, D, Dv, dtype=dtype), k, draw(B, H, Dv, dtype=dtype), beta, gate

    yield "two heads", *inputs(1, 2, 3, 5)
    yield "a batch", *inputs(3, 2, 5, 7)
    yield "keys longer than values", *inputs(2, 3, 7, 2)
    state, k, v, beta, gate = inputs(2, 3, 5, 2)
    yield "an empty state", torch.zeros_like(state), k, v, beta, gate
    yield "a gate of 1", state, k, v, beta, torch.ones_like(gate)
    yield "float64", *inputs(2, 5, 3, 7, torch.float64)


def _delta_step(state, k, v, beta, gate):
    beta, gate = beta[..., None, None], gate[..., None, None]
    k, v = k[..., None, :], v[..., None, :]
    faded = gate * state
    return faded + beta * k.mT @ (v - k @ faded)


delta_step = Exercise(
    name="delta_step",
    trials=_states,
    right=_delta_step,
    returns=("state",),
    gradients=True,
    mistakes={
        "gate left out": Mistake(
            "The old content does not fade: the gate is missing. See section 21.4.",
            {"gate * state": "state"},
        ),
        "reads before fading": Mistake(
            "The difference is computed with the old state, but the state fades before the delta rule reads it. See "
            "section 21.4.",
            {"v - k @ faded": "v - k @ state"},
        ),
        "gate after writing": Mistake(
            "The gate is applied after writing, so it also makes the new content smaller. See section 21.4.",
            {"return faded + beta": "return faded + gate * beta", "k @ faded": "k @ state"},
        ),
        "whole value written": Mistake(
            "The whole value is added, as in linear attention. The delta rule subtracts what the state returns for "
            "the key. See section 21.4.",
            {"(v - k @ faded)": "v"},
        ),
        "beta left out": Mistake(
            "The whole difference is written, because β is missing. See section 21.4.",
            {"beta * k.mT": "k.mT"},
        ),
        "sum instead of difference": Mistake(
            "What the state returns is added to the value, but it has to be subtracted. See section 21.4.",
            {"v - k": "v + k"},
        ),
        "old state lost": Mistake(
            "Only the new content is returned. It has to be added to the faded state. See section 21.4.",
            {"return faded + beta": "return beta"},
        ),
        "beta and gate exchanged": Mistake(
            "β and the gate have changed places: the gate multiplies the state, and β multiplies the difference. See "
            "section 21.4.",
            {"beta, gate = beta": "gate, beta = beta"},
        ),
    },
)


# ---------------------------------------------------------------- weigh a mixed stack


def _stacks(draw):
    yield "two full layers", [("full", 7, None), ("full", 5, None)], 11
    yield "a window", [("full", 3, None), ("window", 5, 4)], 13
    yield "a text shorter than the window", [("window", 5, 100), ("full", 2, None)], 7
    yield "groups that are all complete", [("pooled", 3, 4), ("full", 2, None)], 12
    yield "an incomplete group", [("full", 2, None), ("pooled", 7, 4)], 11
    yield "a state", [("state", 64, None), ("full", 3, None)], 5, 4
    yield "all kinds", [("pooled", 5, 3), ("window", 7, 6), ("state", 50, None), ("full", 2, None)], 20, 1
    yield "no token yet", [("state", 9, None), ("full", 3, None), ("window", 2, 5), ("pooled", 3, 4)], 0


def _stack_bytes(layers, num_tokens, bytes_per_number=2):
    total = 0
    for kind, numbers, size in layers:
        entries = num_tokens
        if kind == "window":
            entries = min(num_tokens, size)
        elif kind == "pooled":
            entries = num_tokens // size
        elif kind == "state":
            entries = 1
        total += numbers * entries
    return total * bytes_per_number


stack_bytes = Exercise(
    name="stack_bytes",
    trials=_stacks,
    right=_stack_bytes,
    returns=("bytes",),
    mistakes={
        "window full from the beginning": Mistake(
            "A window counts as full even if the text is shorter. See section 21.7.",
            {"min(num_tokens, size)": "size"},
        ),
        "window without an end": Mistake(
            "A layer with a window keeps every token of the text, but it needs only the newest ones. See section 21.7.",
            {"min(num_tokens, size)": "num_tokens"},
        ),
        "incomplete group counted": Mistake(
            "An incomplete group counts as an entry, but its tokens are not pooled yet. See section 21.7.",
            {"num_tokens // size": "-(-num_tokens // size)"},
        ),
        "fraction of a group": Mistake(
            "A part of a group counts as a part of an entry, but only complete groups have an entry. See section 21.7.",
            {"num_tokens // size": "num_tokens / size"},
        ),
        "pooled layer not pooled": Mistake(
            "A pooled layer keeps an entry for each token, but it has one for each group. See section 21.7.",
            {"num_tokens // size": "num_tokens"},
        ),
        "state grows": Mistake(
            "A state grows with the text, but it has the same size at any length. See section 21.3.",
            {"entries = 1": "entries = num_tokens"},
        ),
        "numbers instead of bytes": Mistake(
            "The function returns how many numbers the model keeps, but each number has several bytes. See section "
            "21.7.",
            {"total * bytes_per_number": "total"},
        ),
        "always two bytes": Mistake(
            "Every number counts two bytes, although `bytes_per_number` can be another number. See section 21.7.",
            {"total * bytes_per_number": "total * 2"},
        ),
        "last layer alone": Mistake(
            "Only the last layer counts, but the bytes of all layers belong to the sum. See section 21.7.",
            {"total += ": "total = "},
        ),
    },
)
