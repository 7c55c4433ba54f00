"""The exercises of the chapter on the key-value cache. Used from chapter 15 on."""

import math

import torch
from torch import Tensor

from attn_course.exercises.engine.convert_output import as_integers
from attn_course.exercises.engine.exercise import Exercise
from attn_course.functional.attention import attention
from attn_course.functional.masks import make_causal_mask
from attn_course.functional.positions import rotate

# ---------------------------------------------------------------- a step with a cache


def _newest_token(draw):
    def state(batch, heads, width, max_len, length, dtype=torch.float32):
        new = (draw(batch, heads, 1, width, dtype=dtype) for _ in range(3))
        # What stands behind the length is an older text, and not zeros.
        kept = (draw(batch, heads, max_len, width, dtype=dtype) for _ in range(2))
        return *new, *kept, length

    def laid_out_by_place(q, k, v, keys, values, length):
        return q, k, v, *(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (keys, values)), length

    yield "a few tokens in the cache", *state(2, 3, 5, 11, 7)
    yield "a batch of one", *state(1, 2, 3, 7, 2)
    yield "the last free place", *state(2, 3, 5, 7, 6)
    yield "an empty cache", *state(3, 2, 5, 7, 0)
    yield "float64", *state(2, 3, 7, 5, 2, torch.float64)
    yield "one head and the last free place", *state(2, 1, 5, 7, 6)
    yield "a cache that is a view", *laid_out_by_place(*state(2, 3, 5, 7, 4))
    q, k, v, keys, values, length = state(2, 3, 5, 7, 2)
    keys[:, :, length:] = values[:, :, length:] = math.nan
    yield "nan in the free places", q, k, v, keys, values, length


def _on_a_copy(answer, q, k, v, keys, values, length):
    """Give each answer its own copy of the cache, and return the changed copy too."""
    keys, values = keys.clone(), values.clone()
    out = answer(q, k, v, keys, values, length)
    return None if out is None else (out, keys, values)


def _step(q, k, v, keys, values, length):
    end = length + k.size(2)
    keys[:, :, length:end] = k
    values[:, :, length:end] = v
    return attention(q, keys[:, :, :end], values[:, :, :end])[0]


def _returns_weights(found, q, *inputs):
    """Recognise an answer that returns everything that ``attention`` returns."""
    out, *_ = found
    return (
        isinstance(out, tuple | list)
        and len(out) == 2
        and out[0].shape == q.shape
        and out[1].shape[:-1] == q.shape[:-1]
        and torch.allclose(out[1].sum(-1), torch.ones_like(q[..., 0]))
    )


def _returns_the_cache(found, q, *inputs):
    """Recognise an answer that also returns the contents of the cache."""
    out, *_ = found
    return isinstance(out, tuple | list) and len(out) > 1 and all(t.shape[:2] == q.shape[:2] for t in out)


cache_step = Exercise(
    name="cache_step",
    trials=_newest_token,
    right=_step,
    use=_on_a_copy,
    result_names=("out", "keys", "values"),
    chapter=15,
    signs={
        "weights returned": _returns_weights,
        "cache returned": _returns_the_cache,
    },
)


# ---------------------------------------------------------------- where a chunk stands


def _chunks(draw):
    def pads(*numbers):
        return torch.tensor(numbers, device=draw.device)

    yield "a prompt at once, no padding", pads(0, 0, 0), 0, 5
    yield "a chunk after others, no padding", pads(0, 0), 4, 3
    yield "a padded prompt at once", pads(3, 0, 1), 0, 5
    yield "a chunk after others, padded", pads(2, 0, 5), 7, 3
    yield "a decoding step", pads(1, 4, 0), 11, 1
    yield "a chunk in which a text begins", pads(5, 2), 3, 7
    yield "a batch of one", pads(2), 5, 2
    yield "as many rows as columns in the chunk", pads(1, 0, 2), 2, 3
    yield "a row in which no text has begun", pads(5, 0), 0, 3
    yield "a long text", pads(3, 0), 300, 2


def _place(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    positions = (columns[cached:] - pads[:, None]).clamp(min=0)
    real = (columns >= pads[:, None])[:, None]  # (B, 1, S)
    mask = (columns <= columns[cached:, None]) & real
    return positions, mask


def _of_words_alone(answer, pads, cached, num_new):
    """Ignore the results at padding, and accept positions of any integer type."""
    found = answer(pads, cached, num_new)
    if not isinstance(found, tuple | list) or len(found) != 2:
        return found
    positions, mask = found
    word = torch.arange(cached, cached + num_new, device=pads.device) >= pads[:, None]
    positions = as_integers(positions)
    if isinstance(positions, Tensor) and positions.dtype != torch.bool and positions.shape == word.shape:
        positions = positions.where(word, 0)
    shape = (*word.shape, cached + num_new)
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == shape:
        mask = mask & word[..., None]
    return positions, mask


place_chunk = Exercise(
    name="place_chunk",
    trials=_chunks,
    right=_place,
    use=_of_words_alone,
    result_names=("positions", "mask"),
    chapter=15,
    signs={
        "one row of positions": lambda found, pads, cached, num_new: found[0].shape == (num_new,),
        "numbers to add": lambda found, *inputs: (
            found[1].is_floating_point() and found[1].max() == 0 and (found[1].min() < -100 or None)
        ),
    },
)


# ---------------------------------------------------------------- rotary positions in a cache


def _chunk_of_a_layer(draw):
    def state(batch, heads, width, max_len, length, num_new, dtype=torch.float32):
        new = (draw(batch, heads, num_new, width, dtype=dtype) for _ in range(3))
        keys, values = (draw(batch, heads, max_len, width, dtype=dtype) for _ in range(2))
        keys = rotate(keys)  # as the cache holds them
        return *new, keys, values, length

    def laid_out_by_place(q, k, v, keys, values, length):
        return q, k, v, *(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (keys, values)), length

    yield "one new token", *state(2, 3, 6, 11, 7, 1)
    yield "a prompt at once", *state(2, 3, 4, 7, 0, 5)
    yield "a chunk after others", *state(3, 2, 6, 11, 4, 5)
    yield "a batch of one", *state(1, 2, 4, 7, 3, 2)
    yield "up to the last free place", *state(2, 3, 10, 7, 5, 2)
    yield "float64", *state(2, 3, 4, 11, 5, 3, torch.float64)
    yield "one head and a long text", *state(2, 1, 4, 160, 150, 3)
    yield "a cache that is a view", *laid_out_by_place(*state(2, 3, 4, 7, 3, 2))


def _rotary(q, k, v, keys, values, length):
    end = length + k.size(2)
    places = torch.arange(length, end, device=q.device)
    keys[:, :, length:end] = rotate(k, places)
    values[:, :, length:end] = v
    mask = make_causal_mask(q.size(2), end, device=q.device)
    return attention(rotate(q, places), keys[:, :, :end], values[:, :, :end], mask)[0]


rotary_step = Exercise(
    name="rotary_step",
    trials=_chunk_of_a_layer,
    right=_rotary,
    use=_on_a_copy,
    result_names=("out", "keys", "values"),
    chapter=15,
    signs={
        "weights returned": _returns_weights,
        "cache returned": _returns_the_cache,
    },
)
