"""The exercises of the chapter on sparse and linear attention. Used from chapter 19 on."""

import torch
import torch.nn.functional as F

from attn_course.exercises.engine.exercise import Exercise

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
    chapter=19,
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
    result_names=("state",),
    gradients=True,
    chapter=19,
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
    result_names=("bytes",),
    chapter=19,
)
