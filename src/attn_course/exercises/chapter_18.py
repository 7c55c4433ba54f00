"""The exercises of the chapter on smaller caches. Used from chapter 18 on."""

import math

import torch

from attn_course.exercises.engine.convert_output import on_the_cpu
from attn_course.exercises.engine.exercise import Exercise
from attn_course.functional.attention import attention, softmax  # noqa: F401 - edits call attention
from attn_course.functional.masks import make_causal_mask

# ---------------------------------------------------------------- grouped-query attention


def _heads_and_groups(draw):
    yield "two heads to a group", draw(1, 4, 3, 5), draw(1, 2, 3, 5), draw(1, 2, 3, 2), None
    yield "three heads to a group", *_grouped(draw, 2, 6, 2, 5, 7), draw.mask(5, 7)
    yield "as many groups as heads in a group", *_grouped(draw, 3, 9, 3, 2, 5), None
    yield ("multi-query", *_grouped(draw, 2, 3, 1, 5, 5), make_causal_mask(5, device=draw.device))
    yield "a group for each head", *_grouped(draw, 2, 3, 3, 7, 2), None
    yield "a mask for each head", *_grouped(draw, 2, 6, 3, 5, 7), draw.mask(2, 6, 5, 7)
    yield "a mask for each sequence", *_grouped(draw, 3, 4, 2, 5, 7), draw.mask(3, 1, 5, 7)
    wide = (draw(2, 6, 3, 5, dtype=torch.float64), draw(2, 3, 7, 5, dtype=torch.float64))
    yield "float64", *wide, draw(2, 3, 7, 2, dtype=torch.float64), draw.mask(3, 7)
    empty = draw.mask(3, 7)
    empty[1] = False
    yield "a query that may attend to nothing", *_grouped(draw, 2, 4, 2, 3, 7), empty
    empty = draw.mask(2, 4, 3, 5)
    empty[0, 1, 2] = empty[1, 2, 0] = False
    yield "one that may attend to nothing in one head", *_grouped(draw, 2, 4, 2, 3, 5), empty
    yield "one sequence, multi-query, a mask for each head", *_grouped(draw, 1, 3, 1, 5, 7), draw.mask(1, 3, 5, 7)
    # As a layer has them: views, whose numbers lie token by token.
    views = (draw(2, length, heads, 5).transpose(1, 2) for length, heads in ((3, 4), (7, 2), (7, 2)))
    yield "heads that are views", *views, draw.mask(3, 7)


def _grouped(draw, B, H, G, T, S):
    return draw(B, H, T, 5), draw(B, G, S, 5), draw(B, G, S, 2)


def _repeat_groups(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    keys = k.repeat_interleave(times, dim=1)
    values = v.repeat_interleave(times, dim=1)
    scores = q @ keys.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, dim=-1)
    return weights @ values


grouped_attention = Exercise(
    name="grouped_attention",
    trials=_heads_and_groups,
    right=_repeat_groups,
    result_names=("out",),
    gradients=True,
    excluded=("scaled_dot_product_attention",),
    chapter=18,
    signs={
        "mask ignored for heads": lambda found, q, k, v, m: m is not None and m.dim() == 4 and m.size(1) > 1,
        "one head for each group": lambda found, q, k, v, m: (
            found.shape == (*k.shape[:2], q.size(2), v.size(3)) if q.size(1) > k.size(1) else None
        ),
        "weights returned": lambda found, q, *others: isinstance(found, tuple | list) and len(found) == 2,
    },
)


# ---------------------------------------------------------------- window and sinks


def _streams(draw):
    yield "no sinks", 7, 7, 3, 0
    yield "one sink", 7, 7, 3, 1
    yield "two sinks", 11, 11, 5, 2
    yield "a window of one", 5, 5, 1, 1
    yield "a window longer than the text", 5, 5, 7, 2
    yield "one new query", 1, 11, 3, 2
    yield "one query and a window longer than the text", 1, 5, 7, 1
    yield "fewer queries than keys", 3, 11, 2, 3
    yield "more sinks than the first query sees", 7, 7, 2, 5
    yield "more sinks than keys", 3, 3, 2, 7
    yield "fewer queries than keys, more sinks than the first one sees", 4, 7, 2, 6


def _stream(num_queries, num_keys, window, num_sink_tokens):
    t = torch.arange(num_queries)[:, None] + num_keys - num_queries
    s = torch.arange(num_keys)
    near = (s <= t) & (s > t - window)
    sinks = (s <= t) & (s < num_sink_tokens)
    return near | sinks


def _is_additive(found, *sizes):
    """Return whether a mask has 0 for visible and a large negative number for hidden."""
    visible = _stream(*sizes)
    if visible.all():
        return None
    return found.is_floating_point() and bool(((found == 0) | (found < -1000)).all()) and bool(found.any())


streaming_mask = Exercise(
    name="streaming_mask",
    trials=_streams,
    right=_stream,
    use=lambda answer, num_queries, num_keys, window, num_sink_tokens: on_the_cpu(
        answer(num_queries, num_keys, window, num_sink_tokens)
    ),
    result_names=("mask",),
    chapter=18,
    signs={
        "numbers instead of booleans": lambda found, *sizes: (
            found.dtype != torch.bool and torch.equal(found, _stream(*sizes).to(found))
        ),
        "numbers to add": _is_additive,
        "queries alone": lambda found, num_queries, num_keys, *others: (
            num_queries != num_keys and found.shape == (num_queries, num_queries)
        ),
    },
)


# ---------------------------------------------------------------- the cache in bytes


def _models(draw):
    # With one byte, forgotten values are the only mistake that halves the number.
    yield "multi-head, one byte to a number", 12, 12, 12, 64, 1024, 1, 1, None
    yield "multi-query", 7, 5, 1, 11, 3, 1, 2, None
    yield "grouped-query", 32, 32, 8, 128, 8192, 1, 2, None
    yield "a batch", 3, 10, 5, 7, 11, 13, 2, None
    yield "four bytes to a number", 3, 10, 5, 7, 11, 2, 4, None
    yield "a window that is full", 5, 6, 2, 7, 1000, 3, 2, 64
    yield "a window that is not full yet", 5, 6, 2, 7, 11, 3, 2, 23
    yield "what may be left out left out", 3, 10, 5, 7, 11, None, None, None


def _count_bytes(answer, num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch, bytes_per_number, window):
    more = {"batch": batch, "bytes_per_number": bytes_per_number, "window": window}
    if batch is None:
        more = {}
    return answer(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, **more)


def _bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(num_tokens, window)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


cache_bytes = Exercise(
    name="cache_bytes",
    trials=_models,
    right=_bytes,
    use=_count_bytes,
    result_names=("the number of bytes",),
    chapter=18,
)
