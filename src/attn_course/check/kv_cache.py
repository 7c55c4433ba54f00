"""The exercises of the chapter on the key-value cache. Used from chapter 15 on."""

import math

import torch
from torch import Tensor

from attn_course.check.edits import Edited
from attn_course.check.exercise import CHANGES_ITS_INPUT, Exercise, Mistake
from attn_course.check.signs import where
from attn_course.functional import attention
from attn_course.masks import make_causal_mask
from attn_course.positions import rotate

# ---------------------------------------------------------------- a step with a cache


def _newest_token(draw):
    def state(batch, heads, width, max_len, length, dtype=torch.float32):
        new = (draw(batch, heads, 1, width, dtype=dtype) for _ in range(3))
        # What stands behind the length is an older text, and not zeros.
        kept = (draw(batch, heads, max_len, width, dtype=dtype) for _ in range(2))
        return *new, *kept, length

    yield "a few tokens in the cache", *state(2, 3, 5, 11, 7)
    yield "a batch of one", *state(1, 2, 3, 7, 2)
    yield "the last free place", *state(2, 3, 5, 7, 6)
    yield "an empty cache", *state(3, 2, 5, 7, 0)
    yield "float64", *state(2, 3, 7, 5, 2, torch.float64)


def _on_a_copy(answer, q, k, v, keys, values, length):
    """The cache is to be written to, so each answer gets one of its own, and what became of it counts too."""
    keys, values = keys.clone(), values.clone()
    out = answer(q, k, v, keys, values, length)
    return None if out is None else (out, keys, values)


def _step(q, k, v, keys, values, length):
    end = length + k.size(2)
    keys[:, :, length:end] = k
    values[:, :, length:end] = v
    return attention(q, keys[:, :, :end], values[:, :, :end])[0]


_ONE_PLACE_TOO_FAR = Edited(_step, {"    end": "    length += 1\n    end"})


def _returns_weights(found, *inputs):
    """The sign of an answer that returns all that ``attention`` does."""
    out, *_ = found
    return isinstance(out, tuple) and len(out) == 2 and out[0].shape == inputs[0].shape


def _with_tokens_kept(right, edits):
    """A sign: what these edits make, where the cache holds a token; in an empty one their learners do many things."""
    answer = Edited(right, edits)
    return where(lambda *inputs: inputs[-1] > 0, lambda *inputs: _on_a_copy(answer, *inputs))


def _moved_up(q, k, v, keys, values, length):
    for kept, new in ((keys, k), (values, v)):
        kept[:] = torch.cat([kept[:, :, 1:], new], dim=2)
    return attention(q, keys[:, :, -length - 1 :], values[:, :, -length - 1 :])[0]


def _free_places_score_0(q, k, v, keys, values, length):
    end = length + 1
    keys[:, :, length:end], values[:, :, length:end] = k, v
    scores = q @ keys.mT / math.sqrt(q.size(-1))
    scores[..., end:] = 0
    return scores.softmax(-1) @ values


def _returns_the_cache(found, q, *inputs):
    """The sign of an answer that returns what it has written as well."""
    out, *_ = found
    return isinstance(out, tuple | list) and len(out) > 2 and out[0].shape == q.shape


cache_step = Exercise(
    name="cache_step",
    trials=_newest_token,
    right=_step,
    use=_on_a_copy,
    returns=("out", "keys", "values"),
    mistakes={
        "new token left out": Mistake(
            "The new token is not in the cache when it attends, so it cannot see itself; "
            "and the next one will not see it either. See section 15.2.",
            sign=_with_tokens_kept(
                _step,
                {
                    "keys[:, :, length:end] = k": "",
                    "values[:, :, length:end] = v": "",
                    "keys[:, :, :end], values[:, :, :end]": "keys[:, :, :length], values[:, :, :length]",
                },
            ),
        ),
        "attends before it writes": Mistake(
            "The new token is kept, and it does not see itself: either it attends before its key and value are in the "
            "cache, or only to the rows before its own. See section 15.2.",
            sign=_with_tokens_kept(
                _step, {"keys[:, :, :end], values[:, :, :end]": "keys[:, :, :length], values[:, :, :length]"}
            ),
        ),
        "not kept": Mistake(
            "The output is right, and the cache is what it was: the key and the value went into new tensors, "
            "so the next token will not find them. See section 15.2.",
            {"    end =": "    keys, values = keys.clone(), values.clone()\n    end ="},
        ),
        "sees what is not there": Mistake(
            "It attends to all rows of the cache, those behind the new token too: they hold zeros or an old text. "
            "See section 15.2.",
            {"keys[:, :, :end], values[:, :, :end]": "keys, values"},
        ),
        "one place too far": Mistake(
            "The new token stands one row too far, so that there is a row without a token before it: "
            "rows are counted from 0. See section 15.2.",
            sign=where(
                lambda *inputs: inputs[-1] + 1 < inputs[3].size(2),
                lambda *inputs: _on_a_copy(_ONE_PLACE_TOO_FAR, *inputs),
            ),
        ),
        "last token overwritten": Mistake(
            "The new token is written over the last one that was there: with `length` tokens in the cache, "
            "row `length` is the first that is free. See section 15.2.",
            sign=_with_tokens_kept(_step, {"    end": "    length -= 1\n    end"}),
        ),
        "first token overwritten": Mistake(
            "The new token is written into row 0, over the first token of the text: it belongs behind those "
            "that are there. See section 15.2.",
            {"keys[:, :, length:end]": "keys[:, :, :1]", "values[:, :, length:end]": "values[:, :, :1]"},
        ),
        "values not kept": Mistake(
            "The new key is in the cache and the new value is not: the new token's weight meets what stood in "
            "that row before. See section 15.2.",
            {"    values[:, :, length:end] = v\n": ""},
        ),
        "keys not kept": Mistake(
            "The new value is in the cache and the new key is not: the new token's score comes from what stood in "
            "that row before. See section 15.2.",
            {"    keys[:, :, length:end] = k\n": ""},
        ),
        "keys and values swapped": Mistake(
            "Keys were kept as values and values as keys. See section 15.2.",
            {"= k\n": "= v\n", "= v\n": "= k\n"},
        ),
        "aligned top-left": Mistake(
            "The query sees the first key alone, whatever it asks: a causal mask with one row is aligned top-left "
            "here, and the newest token needs no mask. See section 15.5.",
            {"values[:, :, :end])": "values[:, :, :end], make_causal_mask(end, device=q.device)[:1])"},
        ),
        "sees itself alone": Mistake(
            "The new token attends to its own key and value alone, and not to those in the cache: "
            "the output is its value. See section 15.2.",
            {"keys[:, :, :end], values[:, :, :end]": "k, v"},
        ),
        "behind the free places": Mistake(
            "The new token goes behind all places of the cache, the free ones included, and they are seen: "
            "the first free place is row `length`. See section 15.2.",
            {
                "    keys[:, :, length:end] = k\n    values[:, :, length:end] = v": (
                    "    keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)"
                ),
                "keys[:, :, :end], values[:, :, :end]": "keys, values",
            },
        ),
        "last place": Mistake(
            "The new token goes into the last place of the cache: the first that is free is row `length`, and what "
            "stands behind it means nothing. See section 15.2.",
            {"end = length + k.size(2)": "length, end = -1, None"},
        ),
        "key kept as value": Mistake(
            "The new key was kept twice, the second time in place of the value. See section 15.2.",
            {"= v": "= k"},
        ),
        "weights returned": Mistake(
            "The exercise asks for the output alone, and `attention` returns the weights beside it. See section 3.7.",
            sign=_returns_weights,
        ),
        "no scale": Mistake(
            "The scores are not divided by √D. See section 3.4.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1)),"},
        ),
        "attends to the old row": Mistake(
            "The row of the new token is attended to before the token is written into it, so what stood there before "
            "is seen: write first. See section 15.2.",
            {
                "    keys[": "    out = attention(q, keys[:, :, :end], values[:, :, :end])[0]\n    keys[",
                "return attention(q, keys[:, :, :end], values[:, :, :end])[0]": "return out",
            },
        ),
        CHANGES_ITS_INPUT: Mistake("The cache is there to be written to, and nothing else. See section 15.2."),
        "value kept for this step only": Mistake(
            "The output and the keys are right, and the new value is not in the cache afterwards: it went into a new "
            "tensor, so the next token will not find it. See section 15.2.",
            {"    values[": "    values = values.clone()\n    values["},
        ),
        "key kept for this step only": Mistake(
            "The output and the values are right, and the new key is not in the cache afterwards: it went into a new "
            "tensor, so the next token will not find it. See section 15.2.",
            {"    keys[": "    keys = keys.clone()\n    keys["},
        ),
        "first of the batch for all": Mistake(
            "The first text of the batch is right, and its new key and value are kept for all the others: each text "
            "has its own. See section 15.2.",
            {"= k\n": "= k[:1]\n", "= v\n": "= v[:1]\n"},
        ),
        "cache moved up": Mistake(
            "All rows are moved up by one, and the new token stands in the last of them: the old ones stay where they "
            "are, and the new one goes into row `length`. See section 15.2.",
            _moved_up,
        ),
        "free places with a score of 0": Mistake(
            "The rows behind the new token have a score of 0, and 0 is a score like any other, so they take weight: "
            "cut them off, or hide them with −∞. See section 5.1.",
            _free_places_score_0,
        ),
        "axis of the token left": Mistake(
            "The place in the cache has no axis for the token any more, as in `keys[:, :, length]`, and the new key "
            "has one, "
            "of length 1: write to `keys[:, :, length : length + 1]`. See section 15.2.",
            {"keys[:, :, length:end]": "keys[:, :, length]"},
        ),
        "along the heads": Mistake(
            "The new key goes along axis 1, which is that of the heads: the tokens are axis 2. See section 15.2.",
            {"keys[:, :, length:end]": "keys[:, length:end]"},
        ),
        "cache returned": Mistake(
            "The exercise asks for the output alone: keys and values are written in place, so whoever called has them. "
            "See section 15.2.",
            sign=_returns_the_cache,
        ),
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
    yield "a decode step", pads(1, 4, 0), 11, 1
    yield "a chunk in which a text begins", pads(5, 2), 3, 7
    yield "a batch of one", pads(2), 5, 2
    yield "as many rows as columns in the chunk", pads(1, 0, 2), 2, 3


def _place(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    positions = (columns[cached:] - pads[:, None]).clamp(min=0)
    real = (columns >= pads[:, None])[:, None]  # (B, 1, S)
    mask = (columns <= columns[cached:, None]) & real
    return positions, mask


def _of_words_alone(answer, pads, cached, num_new):
    """What is said of padding does not count; positions may be integers of any size."""
    found = answer(pads, cached, num_new)
    if not isinstance(found, tuple | list) or len(found) != 2:
        return found
    positions, mask = found
    word = torch.arange(cached, cached + num_new, device=pads.device) >= pads[:, None]
    whole = isinstance(positions, Tensor) and not positions.is_floating_point()
    if whole and positions.dtype != torch.bool:
        positions = positions.long()
        if positions.shape == word.shape:
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
    returns=("positions", "mask"),
    mistakes={
        "positions from 0": Mistake(
            "Every chunk begins at position 0 again. What is in the cache has come before it. See section 15.6.",
            {"columns[cached:] - pads[:, None]": "columns[:num_new] - (pads[:, None] - cached).clamp(min=0)"},
        ),
        "positions from 0 and padding subtracted": Mistake(
            "The positions of a chunk begin at 0, less the padding: the columns in the cache have come before it. "
            "See section 15.6.",
            {"columns[cached:] -": "columns[:num_new] -"},
        ),
        "columns counted": Mistake(
            "The positions are the numbers of the columns, so that a padded text does not begin at 0: "
            "positions count words. See section 15.6.",
            {"(columns[cached:] - pads[:, None]).clamp(min=0)": "columns[cached:].expand(len(pads), -1)"},
        ),
        "positions from 1": Mistake(
            "The first word of each text stands at 1: positions count from 0. See section 15.6.",
            {"clamp(min=0)": "clamp(min=0) + 1"},
        ),
        "all at the end": Mistake(
            "All tokens of a chunk have the position of its last one: each column counts one further. See section "
            "15.6.",
            {"return positions,": "return positions[:, -1:].expand_as(positions),"},
        ),
        "aligned top-left": Mistake(
            "The mask aligns the first query with the first key, so that a chunk does not see most of the cache, "
            "nor itself: the last query belongs to the last key. See section 15.5.",
            {"columns[cached:, None]": "columns[:num_new, None]"},
        ),
        "chunk sees its future": Mistake(
            "Within the chunk every token sees those that come after it: the causal mask is missing, or is not asked "
            "for beside the padding. See section 15.5.",
            {"(columns <= columns[cached:, None]) & real": "real.expand(-1, num_new, -1)"},
        ),
        "padding seen": Mistake(
            "The mask is causal and does not hide the padding at the beginning of the rows. See section 15.6.",
            {" & real": " & torch.ones_like(real)"},
        ),
        "padding taken to be on the right": Mistake(
            "The mask hides the last columns of a padded row instead of the first, its words among them: "
            "the padding is on the left. See section 15.6.",
            {" & real": " & (columns < len(columns) - pads[:, None])[:, None]"},
        ),
        "does not see itself": Mistake(
            "No token sees itself: a query may attend to keys up to its own column, that one included. See section "
            "15.5.",
            {"<=": "<"},
        ),
        "cache not seen": Mistake(
            "The mask has a column for each new token and none for those in the cache: S counts both. See section "
            "15.5.",
            {"return positions, mask": "return positions, mask[:, :, cached:]"},
        ),
        "first word hidden": Mistake(
            "The mask hides the first word of each row with the padding: with n columns of padding it stands in "
            "column n, counted from 0. See section 15.6.",
            {">=": ">"},
        ),
        "mask inverted": Mistake(
            "The mask is True where a token may not look: True means may attend. See section 5.4.",
            {"return positions, mask": "return positions, ~mask"},
        ),
        "one mask for all rows": Mistake(
            "The mask is (T, S), the same for all rows, so it cannot hide the padding of each: "
            "the rows come first, (B, T, S). See section 15.6.",
            {" & real": ""},
        ),
        "padding not looked at": Mistake(
            "Padding counts as words: positions are the numbers of the columns, and the mask hides none of it. "
            "See section 15.6.",
            {
                "(columns[cached:] - pads[:, None]).clamp(min=0)": "columns[cached:].expand(len(pads), -1)",
                " & real": " & torch.ones_like(real)",
            },
        ),
        "padding added": Mistake(
            "The padding is added to the positions: a word behind n columns of padding has a smaller number than "
            "its column, by n. See section 15.6.",
            {"(columns[cached:] - pads[:, None]).clamp(min=0)": "columns[cached:] + pads[:, None]"},
        ),
        "padding in each chunk": Mistake(
            "The mask looks for the padding at the beginning of the chunk: it is at the beginning of the row, "
            "and may be in the cache by now. See section 15.6.",
            {"(columns >= pads[:, None])": "((columns < cached) | (columns - cached >= pads[:, None]))"},
        ),
        "a row for each column": Mistake(
            "The mask has a row for each column, those in the cache included: its rows are the queries, and only "
            "the columns of the chunk have one, (B, T, S). See section 15.5.",
            sign=lambda found, pads, cached, num_new: (
                cached > 0 and found[1].shape == (len(pads), cached + num_new, cached + num_new)
            ),
        ),
        "one row for all queries": Mistake(
            "The mask has one row for all columns of the chunk, so each of them sees those that come after it: "
            "a row for each, (B, T, S). See section 15.5.",
            sign=lambda found, pads, cached, num_new: (
                num_new > 1 and found[1].shape == (len(pads), 1, cached + num_new)
            ),
        ),
        "one row of positions": Mistake(
            "The positions are (T,), the same for all rows, and each text begins in a column of its own: "
            "the rows come first, (B, T). See section 15.6.",
            sign=lambda found, pads, cached, num_new: found[0].shape == (num_new,),
        ),
        "positions of all columns": Mistake(
            "There is a position for each column, those in the cache included, and the exercise asks for those of "
            "the chunk, (B, T). See section 15.6.",
            sign=lambda found, pads, cached, num_new: cached > 0 and found[0].shape == (len(pads), cached + num_new),
        ),
        "not integers": Mistake(
            "The positions are right and are not whole numbers by type: a table is indexed by integers. See section "
            "8.3.",
            sign=lambda found, pads, cached, num_new: (
                found[0].is_floating_point()
                and torch.equal(
                    _of_words_alone(lambda *_: (found[0].long(), found[1]), pads, cached, num_new)[0],
                    _of_words_alone(_place, pads, cached, num_new)[0],
                )
            ),
        ),
        "results swapped": Mistake(
            "Both results are there, in the wrong order: first the positions, then the mask. See section 15.6.",
            sign=lambda found, pads, cached, num_new: (
                found[0].dtype == torch.bool
                and torch.equal(
                    _of_words_alone(lambda *_: found[::-1], pads, cached, num_new)[0],
                    _of_words_alone(_place, pads, cached, num_new)[0],
                )
            ),
        ),
        CHANGES_ITS_INPUT: Mistake("The next chunk will be told another padding: work on a copy. See section 15.6."),
        "padding subtracted in the first chunk only": Mistake(
            "The first chunk is right, and in those after it the positions are the numbers of the columns: the padding "
            "stands before every later word as well. See section 15.6.",
            {"- pads[:, None]": "- pads[:, None] * (cached == 0)"},
        ),
        "first row's padding for all": Mistake(
            "The first row is right, and its padding is taken for that of all rows: each has its own. See section "
            "15.6.",
            {"    columns =": "    pads = pads[:1].expand_as(pads)\n    columns ="},
        ),
        "padding of the chunk seen": Mistake(
            "The padding in the cache is hidden, and that inside the chunk is not. See section 15.6.",
            {" & real": " & (real | (columns >= cached))"},
        ),
        "all at the beginning": Mistake(
            "All tokens of a chunk have the position of its first one: each column counts one further. See section "
            "15.6.",
            sign=lambda found, pads, cached, num_new: (
                torch.equal(found[0], (cached - pads)[:, None].expand(-1, num_new)) if (cached >= pads).all() else None
            ),
        ),
        "an axis of heads": Mistake(
            "The mask has an axis for the heads; asked for is (B, T, S), and the layer puts that axis in. See section "
            "5.4.",
            sign=lambda found, *inputs: found[1].dim() == 4,
        ),
        "numbers to add": Mistake(
            "The mask holds numbers to be added to the scores; asked for is True and False. See section 5.4.",
            sign=lambda found, *inputs: found[1].is_floating_point(),
        ),
        "rows and columns swapped": Mistake(
            "The mask lies on its side, (B, S, T): its rows are the queries, and its columns the keys. See "
            "section 5.1.",
            sign=lambda found, pads, cached, num_new: (
                found[1].shape == (len(pads), cached + num_new, num_new)
                if cached
                else torch.equal(found[1], _place(pads, cached, num_new)[1].mT) or None
            ),
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

    yield "one new token", *state(2, 3, 6, 11, 7, 1)
    yield "a prompt at once", *state(2, 3, 4, 7, 0, 5)
    yield "a chunk after others", *state(3, 2, 6, 11, 4, 5)
    yield "a batch of one", *state(1, 2, 4, 7, 3, 2)
    yield "up to the last free place", *state(2, 3, 10, 7, 5, 2)
    yield "float64", *state(2, 3, 4, 11, 5, 3, torch.float64)


def _rotary(q, k, v, keys, values, length):
    end = length + k.size(2)
    places = torch.arange(length, end, device=q.device)
    keys[:, :, length:end] = rotate(k, places)
    values[:, :, length:end] = v
    mask = make_causal_mask(q.size(2), end, device=q.device)
    return attention(rotate(q, places), keys[:, :, :end], values[:, :, :end], mask)[0]


def _turn_halves(x, places):
    half = x.size(-1) // 2
    speeds = 10_000.0 ** -(torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angles = places[:, None] * speeds
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


rotary_step = Exercise(
    name="rotary_step",
    trials=_chunk_of_a_layer,
    right=_rotary,
    use=_on_a_copy,
    returns=("out", "keys", "values"),
    mistakes={
        "positions from 0": Mistake(
            "The new tokens are turned as if the text began with them: the first of them stands at `length`. "
            "See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(k.size(2), device=q.device)"},
        ),
        "queries from 0": Mistake(
            "The new keys are turned by their positions and the queries as if the text began with them. See section "
            "15.2.",
            {"rotate(q, places)": "rotate(q)"},
        ),
        "keys from 0": Mistake(
            "The queries are turned by their positions and the new keys as if the text began with them. See section "
            "15.2.",
            {"rotate(k, places)": "rotate(k)"},
        ),
        "one place too far": Mistake(
            "The new tokens are turned by one position too much, so there is a gap between them and the cache: "
            "the first of them stands at `length`. See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(length, end, device=q.device) + 1"},
        ),
        "all at one place": Mistake(
            "One new token is right, and of several all are turned as if they stood where the first one does. "
            "See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.full((k.size(2),), length, device=q.device)"},
        ),
        "one place too early": Mistake(
            "The new tokens are turned by one position too few, so the first of them stands where the last one in "
            "the cache does: it belongs at `length`. See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(length, end, device=q.device) - 1"},
        ),
        "all at the end": Mistake(
            "One new token is right, and of several all are turned as if they stood where the last one does. "
            "See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.full((k.size(2),), end - 1, device=q.device)"},
        ),
        "sees the chunk alone": Mistake(
            "The new tokens attend to each other alone, and not to those in the cache. See section 15.2.",
            {
                "make_causal_mask(q.size(2), end,": "make_causal_mask(q.size(2),",
                "keys[:, :, :end], values[:, :, :end]": "rotate(k, places), v",
            },
        ),
        "new tokens left out": Mistake(
            "The new tokens are kept, and attend to the old ones alone: each sees itself and those before it. "
            "See section 15.2.",
            sign=_with_tokens_kept(
                _rotary, {"keys[:, :, :end], values[:, :, :end], mask": "keys[:, :, :length], values[:, :, :length]"}
            ),
        ),
        "mask inverted": Mistake(
            "The mask is True where a token may not look: True means may attend. See section 5.4.",
            {"mask)[0]": "~mask)[0]"},
        ),
        "keys kept unturned": Mistake(
            "The new keys go into the cache as they are, between others that have been turned: "
            "turn them before they are kept. See section 15.2.",
            {"rotate(k, places)": "k"},
        ),
        "keys turned again": Mistake(
            "All keys of the cache are turned, the old ones for a second time: each is turned once, "
            "before it is kept. See section 15.2.",
            {"rotate(k, places)": "k", "keys[:, :, :end]": "rotate(keys[:, :, :end])"},
        ),
        "new keys turned again": Mistake(
            "The new keys are turned before they are kept, and then all of the cache once more: "
            "each key is turned once. See section 15.2.",
            {"keys[:, :, :end]": "rotate(keys[:, :, :end])"},
        ),
        "keys turned again in the cache": Mistake(
            "The old keys in the cache are turned a second time, and stay so: with every step they turn on. "
            "Each is turned once, before it is kept. See section 15.2.",
            {"rotate(k, places)\n": "k\n    keys[:, :, :end] = rotate(keys[:, :, :end])\n"},
        ),
        "only the keys turned": Mistake(
            "The queries are not turned, so a score depends on where the key stands and not on the distance. "
            "See section 8.4.",
            {"rotate(q, places)": "q"},
        ),
        "nothing turned": Mistake(
            "Neither the queries nor the new keys are turned; `rotate` returns a new tensor. See section 15.2.",
            {"rotate(k, places)": "k", "rotate(q, places)": "q"},
        ),
        "values turned": Mistake(
            "The new values were turned as well; only queries and keys are. See section 8.4.",
            {"= v\n": "= rotate(v, places)\n"},
        ),
        "aligned top-left": Mistake(
            "The mask takes the first new token for the first of the text, and hides most of the cache from it: "
            "the last query belongs to the last key. See section 15.5.",
            {"make_causal_mask(q.size(2), end, device=q.device)": "make_causal_mask(end)[: q.size(2)].to(q.device)"},
        ),
        "chunk sees its future": Mistake(
            "One new token is right, and of several each sees those that come after it: "
            "the causal mask is missing. See section 15.5.",
            {", mask)": ")"},
        ),
        "sees what is not there": Mistake(
            "The mask counts all places of the cache as keys, so the new tokens see what stands behind them: "
            "attend to the places that are filled. See section 15.2.",
            {
                "make_causal_mask(q.size(2), end,": "make_causal_mask(q.size(2), keys.size(2),",
                "keys[:, :, :end], values[:, :, :end]": "keys, values",
            },
        ),
        "weights returned": Mistake(
            "The exercise asks for the outputs alone, and `attention` returns the weights beside them. See section "
            "3.7.",
            sign=_returns_weights,
        ),
        "not kept": Mistake(
            "The outputs are right, and the cache is what it was: keys and values went into new tensors, "
            "so the next token will not find them. See section 15.2.",
            {"    end =": "    keys, values = keys.clone(), values.clone()\n    end ="},
        ),
        "no scale": Mistake(
            "The scores are not divided by √D. See section 3.4.",
            {"rotate(q, places)": "rotate(q, places) * math.sqrt(q.size(-1))"},
        ),
        "other convention": Mistake(
            "Queries and keys are turned in halves, column i with column i + D/2, and the keys in the cache were "
            "turned in neighbours, as `rotate` does: one cache, one convention. See section 8.4.",
            {"rotate(k, places)": "_turn_halves(k, places)", "rotate(q, places)": "_turn_halves(q, places)"},
        ),
        CHANGES_ITS_INPUT: Mistake("The cache is there to be written to, and nothing else. See section 15.2."),
        "turned for this step only": Mistake(
            "The outputs are right, and the new keys are in the cache as they came, not turned: the next step would "
            "compare with them as they are. See section 15.2.",
            {"    keys[": "    kept, keys = keys, keys.clone()\n    kept[:, :, length:end] = k\n    keys["},
        ),
        "counted from the end of the cache": Mistake(
            "The new tokens are turned as if they were the last that the cache has room for: the first of them stands "
            "at `length`, however large the cache is. See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(keys.size(2), device=q.device)[-k.size(2) :]"},
        ),
        "no mask and positions from 0": Mistake(
            "The new tokens are turned as if the text began with them, and each sees those that come after it: the "
            "first stands at `length`, and a causal mask is missing. See section 15.5.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(k.size(2), device=q.device)", ", mask)": ")"},
        ),
        "positions of all tokens": Mistake(
            "There is a position for each token of the text, and only the new ones are turned: theirs are those from "
            "`length` on. See section 15.2.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(end, device=q.device)"},
        ),
        "cache returned": Mistake(
            "The exercise asks for the outputs alone: keys and values are written in place, so whoever called has "
            "them. See section 15.2.",
            sign=_returns_the_cache,
        ),
    },
)


# ---------------------------------------------------------------- beams


def _beams(draw):
    def state(layers, sources, beams, heads, length, width, dtype=torch.float32):
        shape = (layers, sources * beams, heads, length, width)
        parents = draw.ints(sources, beams, high=beams)
        return draw(*shape, dtype=dtype), draw(*shape, dtype=dtype), parents

    keys, values, _ = state(2, 1, 3, 5, 7, 4)
    yield "one source", keys, values, torch.tensor([[2, 0, 0]], device=draw.device)
    yield "three sources", *state(2, 3, 4, 2, 5, 3)
    yield "one layer", *state(1, 2, 5, 3, 7, 2)
    keys, values, _ = state(3, 2, 3, 1, 7, 5)
    turned = torch.tensor([[1, 2, 0], [2, 0, 1]], device=draw.device)
    yield "each beam goes on once", keys, values, turned
    yield "one beam", *state(2, 3, 1, 2, 5, 3)
    yield "as many layers as rows", *state(6, 2, 3, 5, 2, 4)
    yield "float64", *state(2, 5, 2, 3, 7, 3, torch.float64)


def _rows(parents):
    B, K = parents.shape
    return (torch.arange(B, device=parents.device)[:, None] * K + parents).flatten()


def _follow(keys, values, parents):
    B, K = parents.shape
    rows = (torch.arange(B, device=parents.device)[:, None] * K + parents).flatten()
    return keys[:, rows], values[:, rows]


def _sent(keys, values, parents):
    """Each old beam is copied to where the number of its parent says."""
    rows = _rows(parents)
    found = keys.clone(), values.clone()
    for old, new in enumerate(rows.tolist()):
        for kept, moved in zip((keys, values), found, strict=True):
            moved[:, new] = kept[:, old]
    return found


def _one_after_the_other(keys, values, parents):
    keys, values = keys.clone(), values.clone()
    for new, old in enumerate(_rows(parents).tolist()):
        keys[:, new] = keys[:, old].clone()
        values[:, new] = values[:, old].clone()
    return keys, values


def _rows_by_beams(parents):
    """Row numbers if the beams came first and the sources second, in either order of the new beams."""
    rows = parents * len(parents) + torch.arange(len(parents), device=parents.device)[:, None]
    return rows.flatten(), rows.T.flatten()


def _new_tensors(answer, keys, values, parents):
    found = answer(keys, values, parents)
    if not isinstance(found, tuple | list) or len(found) != 2:
        return found
    given = {tensor.untyped_storage().data_ptr() for tensor in (keys, values)}
    shares = any(
        isinstance(new, Tensor) and new.device == keys.device and new.untyped_storage().data_ptr() in given
        for new in found
    )
    # Where a beam moves, new tensors come by themselves, or the numbers are wrong.
    nothing_moves = torch.equal(_rows(parents), torch.arange(parents.numel(), device=keys.device))
    return (*found, shares and nothing_moves)


def _one_left_behind(place):
    """A sign: one of the two follows the beams, and the one at the place is as it was."""

    def sign(found, keys, values, parents):
        if len(_rows(parents)) == len(parents):  # a single beam has nowhere to go
            return None
        moved, given = _follow(keys, values, parents), (keys, values)
        return torch.equal(found[place], given[place]) and torch.equal(found[1 - place], moved[1 - place])

    return sign


follow_beams = Exercise(
    name="follow_beams",
    trials=_beams,
    right=_follow,
    use=_new_tensors,
    returns=("keys", "values", "whether a tensor that was given comes back"),
    mistakes={
        "sources mixed up": Mistake(
            "With one source it is right; with several, all of them go on from beams of the first: "
            "`parents` counts the beams of each source from 0. See section 15.7.",
            {"(torch.arange(B, device=parents.device)[:, None] * K + parents)": "parents"},
        ),
        "sources counted in sources": Mistake(
            "The rows of a source are looked for in the wrong place: before source b stand b times K rows, "
            "and not b times B. See section 15.7.",
            {"* K": "* B"},
        ),
        "values left behind": Mistake(
            "The keys have moved and the values have not: a beam would compare with its own text "
            "and take from another's. See section 15.7.",
            sign=_one_left_behind(1),
        ),
        "keys left behind": Mistake(
            "The values have moved and the keys have not: a beam would compare with another's text "
            "and take from its own. See section 15.7.",
            sign=_one_left_behind(0),
        ),
        "layers instead of rows": Mistake(
            "It is the layers that are put in another order: the first axis holds these, "
            "and the rows are the second. See section 15.7.",
            {"keys[:, rows], values[:, rows]": "keys[rows], values[rows]"},
        ),
        "heads instead of rows": Mistake(
            "It is the heads that are chosen: the axes are layers, rows and heads, and the rows are the second. "
            "See section 15.7.",
            {"keys[:, rows], values[:, rows]": "keys[:, :, rows], values[:, :, rows]"},
        ),
        "sources one row apart": Mistake(
            "The rows of a source are looked for one row after those of the source before: each source has K. "
            "See section 15.7.",
            {" * K": ""},
        ),
        "beams before sources": Mistake(
            "The rows are in the order of the beams, the first beams of all sources first: "
            "all beams of the first source come first. See section 15.7.",
            {".flatten()": ".T.flatten()"},
        ),
        "first layer only": Mistake(
            "Only the first layer follows the beams; every layer keeps keys and values of its own. See section 15.7.",
            {"keys[:, rows], values[:, rows]": "*(torch.cat([x[:1, rows], x[1:]]) for x in (keys, values)),"},
        ),
        "sent instead of fetched": Mistake(
            "The old beams are sent to the rows in `parents`, and it is the other way round: "
            "the new row b is fetched from the old row `rows[b]`. See section 15.7.",
            _sent,
        ),
        "overwritten before it is read": Mistake(
            "Rows are copied one after the other within the same tensor, so that a row which is still needed "
            "may have been overwritten: read from the old, write into the new. See section 15.7.",
            _one_after_the_other,
        ),
        "nothing moved": Mistake(
            "Keys or values are what they were: each beam would go on from the text of another. See section 15.7.",
            {"keys[:, rows], values[:, rows]": "keys.clone(), values.clone()"},
        ),
        "keys and values swapped": Mistake(
            "Both have followed the beams, in the wrong order: first the keys, then the values. See section 15.7.",
            {"keys[:, rows], values[:, rows]": "values[:, rows], keys[:, rows]"},
        ),
        "an axis too many": Mistake(
            "The rows have two axes, sources and beams; the cache has one for both, B · K. See section 15.7.",
            {".flatten()": ""},
        ),
        "same tensors returned": Mistake(
            "The numbers are right, and what comes back are the tensors that were given, or views of them: who writes "
            "the next token into the new cache changes the old one too. Return new tensors. See section 15.7.",
            lambda keys, values, parents: (
                (keys, values)
                if torch.equal(_rows(parents), torch.arange(keys.size(1), device=keys.device))
                else _follow(keys, values, parents)
            ),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The exercise asks for new tensors, and a search may still need the old ones. See section 15.7."
        ),
        "beams first, then sources": Mistake(
            "Beam k of source b is looked for in row k · B + b, as if all first beams came first: the beams of a "
            "source stand together, in the rows from b · K on. See section 15.7.",
            sign=lambda found, keys, values, parents: any(
                torch.equal(kept, given[:, rows])
                for rows in _rows_by_beams(parents)
                for kept, given in [(found[0], keys)]
            ),
        ),
        "first source's parents for all": Mistake(
            "The first source is right, and its parents are taken for all the others: each source has a row of its "
            "own. See section 15.7.",
            {"+ parents": "+ parents[0]"},
        ),
        "parents sorted": Mistake(
            "The right beams are there in another order: the parents are sorted, and the new beam k goes on from "
            "parents[b, k]. See section 15.7.",
            {"+ parents": "+ parents.sort(dim=1).values"},
        ),
        "each parent once": Mistake(
            "Rows are missing: a beam that two new ones go on from is there once, and there have to be two copies of "
            "it. See section 15.7.",
            sign=lambda found, keys, values, parents: (
                any(
                    torch.equal(found[0], keys[:, rows])
                    for rows in (_rows(parents).unique(), torch.tensor([*dict.fromkeys(_rows(parents).tolist())]))
                )
                if len(_rows(parents).unique()) < parents.numel()
                else None
            ),
        ),
        "one row too early": Mistake(
            "Each new beam goes on from the row before the right one: rows and beams are counted from 0. See section "
            "15.7.",
            {"+ parents": "+ parents - 1"},
        ),
        "last layer only": Mistake(
            "Only the last layer follows the beams; every layer keeps keys and values of its own. See section 15.7.",
            {"keys[:, rows], values[:, rows]": "*(torch.cat([x[:-1], x[-1:, rows]]) for x in (keys, values)),"},
        ),
        "all parents for each source": Mistake(
            "There are too many rows: each source is given the parents of all sources, which an index into one axis "
            "does. The parents of source b belong to its own beams. See section 15.7.",
            sign=lambda found, keys, values, parents: (
                found[0].numel() == len(parents) * keys.numel()
                if len(parents) > 1
                else (found[0].dim() > keys.dim() or None)
            ),
        ),
    },
)


# ---------------------------------------------------------------- cost


def _calls(draw):
    yield "a decode step of one text", 6, 384, 11_000_000, 1, 255, 1, 4
    yield "a prompt of one text", 2, 64, 120_000, 1, 0, 32, 4
    yield "a decode step of a batch", 3, 128, 700_000, 7, 99, 1, 4
    yield "a chunk of a batch", 5, 96, 600_000, 3, 20, 11, 4
    yield "half precision", 2, 256, 1_600_000, 2, 40, 3, 2
    sizes = [int(draw.ints(high=high)) + 1 for high in (9, 99, 9_999, 9, 99, 9)]
    yield "other sizes", *sizes, 8


def _cost(num_layers, d_model, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    flops = batch * (2 * num_weights * T + 4 * num_layers * d_model * T * S)
    fetched = num_weights + 2 * num_layers * d_model * S * batch
    return flops, size * fetched


def _whole_numbers(answer, num_layers, d_model, num_weights, batch, cached, num_new, size):
    found = answer(num_layers, d_model, num_weights, batch, cached, num_new, size)
    if not isinstance(found, tuple | list):
        return found
    return tuple(int(n) if isinstance(n, float) and n.is_integer() else n for n in found)


call_cost = Exercise(
    name="call_cost",
    trials=_calls,
    right=_cost,
    use=_whole_numbers,
    returns=("flops", "bytes"),
    mistakes={
        "one operation a weight": Mistake(
            "The bytes are right, and the weights cost half of what they should: "
            "each is a multiplication and an addition. See section 15.9.",
            {"2 * num_weights": "num_weights"},
        ),
        "half of the attention": Mistake(
            "The bytes are right, and the attention costs half of what it should: scores and the average of the "
            "values are two products of the same size. See section 15.9.",
            {"4 * num_layers": "2 * num_layers"},
        ),
        "attention left out": Mistake(
            "The bytes are right, and the FLOPs are those of the weights alone: the scores and the average of the "
            "values are missing. See section 15.9.",
            {" + 4 * num_layers * d_model * T * S": ""},
        ),
        "attention of one layer": Mistake(
            "The bytes are right, and the attention is counted for one layer: every layer has one. See section 15.9.",
            {"4 * num_layers": "4"},
        ),
        "FLOPs of one text": Mistake(
            "The bytes are right, and the FLOPs are those of one text: each text of the batch has to be computed. "
            "See section 15.9.",
            {"flops = batch * ": "flops = "},
        ),
        "FLOPs of one token": Mistake(
            "One new token is right, and several cost as much as one: every new token goes through all weights. "
            "See section 15.9.",
            {"num_weights * T": "num_weights", "* T * S": "* S"},
        ),
        "everything computed again": Mistake(
            "The bytes are right, and the FLOPs are those of reading the whole text again: "
            "what is in the cache is not computed. See section 15.9.",
            {"2 * num_weights * T": "2 * num_weights * S", "d_model * T * S": "d_model * S * S"},
        ),
        "weights fetched for each text": Mistake(
            "The FLOPs are right, and the weights are fetched once for each text: a batch shares them. See section "
            "15.9.",
            {"= num_weights +": "= batch * num_weights +"},
        ),
        "cache of one text": Mistake(
            "The FLOPs are right, and only the cache of one text is fetched: each has its own. See section 15.9.",
            {"S * batch": "S"},
        ),
        "keys without values": Mistake(
            "The FLOPs are right, and half of the cache is fetched: there are keys and values. See section 15.9.",
            {"+ 2 * num_layers * d_model * S": "+ num_layers * d_model * S"},
        ),
        "cache of one layer": Mistake(
            "The FLOPs are right, and the cache of one layer is fetched: every layer has its own. See section 15.9.",
            {"2 * num_layers * d_model * S * batch": "2 * d_model * S * batch"},
        ),
        "weights alone": Mistake(
            "The FLOPs are right, and the cache is not fetched: a step needs the weights and all keys and values. "
            "See section 15.9.",
            {" + 2 * num_layers * d_model * S * batch": ""},
        ),
        "new tokens left out": Mistake(
            "The new tokens are not among the keys and values: they are kept first, and seen and fetched with the "
            "others. See section 15.9.",
            {"cached + num_new\n": "cached\n"},
        ),
        "new tokens not seen": Mistake(
            "The bytes are right, and the new tokens are not among the keys that a query meets: "
            "it sees them as well as the cache. See section 15.9.",
            {"T * S)": "T * cached)"},
        ),
        "new tokens not fetched": Mistake(
            "The FLOPs are right, and the keys and values of the new tokens are not fetched: "
            "they are kept first, and read with the others. See section 15.9.",
            {"S * batch": "cached * batch"},
        ),
        "batch left out": Mistake(
            "With one text it is right, and several cost as much as one: each has to be computed, and has a cache "
            "of its own. See section 15.9.",
            {"    T, S": "    batch = 1\n    T, S"},
        ),
        "attention of one text": Mistake(
            "The bytes are right, and the attention is that of one text, beside weights that are used for all: "
            "both are computed for each. See section 15.9.",
            {"batch * (2 * num_weights * T": "2 * num_weights * T * batch", "T * S)": "T * S"},
        ),
        "cache not seen": Mistake(
            "The bytes are right, and the new tokens meet no keys but their own: they see those in the cache too. "
            "See section 15.9.",
            {"T * S": "T * T"},
        ),
        "half under the mask": Mistake(
            "The bytes are right, and the scores that the causal mask hides are not counted: the formula counts "
            "T times S of them. See section 15.9.",
            {"T * S)": "sum(range(cached + 1, S + 1)))"},
        ),
        "new tokens alone fetched": Mistake(
            "The FLOPs are right, and only the keys and values of the new tokens are fetched: they meet those in "
            "the cache. See section 15.9.",
            {"S * batch": "T * batch"},
        ),
        "cache fetched for each token": Mistake(
            "The FLOPs are right, and the cache is fetched once for each new token: once for all of the call. "
            "See section 15.9.",
            {"S * batch": "S * batch * T"},
        ),
        "cache in numbers": Mistake(
            "The FLOPs are right; the weights are counted in bytes and the cache in numbers: each has `size` bytes. "
            "See section 15.9.",
            {"num_weights +": "num_weights * size +", "size * fetched": "fetched"},
        ),
        "numbers instead of bytes": Mistake(
            "The FLOPs are right, and it counts numbers instead of bytes: each has `size` of them. See section 15.9.",
            {"size * fetched": "fetched"},
        ),
        "results swapped": Mistake(
            "Both results are there, in the wrong order: first the FLOPs, then the bytes. See section 15.9.",
            {"flops, size * fetched": "size * fetched, flops"},
        ),
        "weights in numbers": Mistake(
            "The FLOPs are right; the cache is counted in bytes and the weights in numbers: each has `size` bytes. See "
            "section 15.9.",
            {"+ 2 * num_layers": "+ size * 2 * num_layers", "size * fetched": "fetched"},
        ),
        "weights times the layers": Mistake(
            "The weights are multiplied by the number of layers, and `num_weights` are those of all layers together. "
            "See section 15.9.",
            {"    T, S": "    num_weights *= num_layers\n    T, S"},
        ),
        "twelve squares instead of the weights": Mistake(
            "The weights are taken to be 12 E² in each layer, which leaves out the matrix of the vocabulary and every "
            "other shape: their number is given, `num_weights`. See section 15.9.",
            {"    T, S": "    num_weights = 12 * num_layers * d_model**2\n    T, S"},
        ),
        "batch as one long text": Mistake(
            "The bytes are right, and the FLOPs are those of one text as long as all of them: a text meets its own "
            "keys, and not those of its neighbours. See section 15.9.",
            {"4 * num_layers": "4 * batch * num_layers"},
        ),
        "one operation for a product and a sum": Mistake(
            "The bytes are right, and the FLOPs are half of what they should be: a multiplication and an addition are "
            "two. See section 15.9.",
            {"2 * num_weights * T + 4 * num_layers": "num_weights * T + 2 * num_layers"},
        ),
    },
)
