"""The exercises of the chapter on the key-value cache. Used from chapter 15 on."""

import math

import torch
from torch import Tensor

from attn_course.exercises.engine.convert_output import as_integers, where
from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake
from attn_course.exercises.engine.mutants import Edited
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

    def laid_out_by_place(q, k, v, keys, values, length):
        return q, k, v, *(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (keys, values)), length

    yield "a few tokens in the cache", *state(2, 3, 5, 11, 7)
    yield "a batch of one", *state(1, 2, 3, 7, 2)
    yield "the last free place", *state(2, 3, 5, 7, 6)
    yield "an empty cache", *state(3, 2, 5, 7, 0)
    yield "float64", *state(2, 3, 7, 5, 2, torch.float64)
    yield "one head and the last free place", *state(2, 1, 5, 7, 6)
    yield "a cache that is a view", *laid_out_by_place(*state(2, 3, 5, 7, 4))


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


def _returns_weights(found, q, *inputs):
    """The sign of an answer that returns all that ``attention`` does."""
    out, *_ = found
    return (
        isinstance(out, tuple | list)
        and len(out) == 2
        and out[0].shape == q.shape
        and out[1].shape[:-1] == q.shape[:-1]
        and torch.allclose(out[1].sum(-1), torch.ones_like(q[..., 0]))
    )


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
    """The sign of an answer that returns what is in the cache as well."""
    out, *_ = found
    return isinstance(out, tuple | list) and len(out) > 1 and all(t.shape[:2] == q.shape[:2] for t in out)


cache_step = Exercise(
    name="cache_step",
    trials=_newest_token,
    right=_step,
    use=_on_a_copy,
    returns=("out", "keys", "values"),
    mistakes={
        "new token left out": Mistake(
            "The output is that of the old tokens alone, and nothing new is in the cache afterwards: the new token is "
            "to be kept, and to see itself. See section 15.2.",
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
            "The new token is kept, and the output is that of the old ones alone: it should see itself as well. See "
            "section 15.2.",
            sign=_with_tokens_kept(
                _step, {"keys[:, :, :end], values[:, :, :end]": "keys[:, :, :length], values[:, :, :length]"}
            ),
        ),
        "not kept": Mistake(
            "Nothing new is in the cache afterwards, and the next token will look for it there: write into `keys` and "
            "`values` themselves. See section 15.2.",
            {"    end =": "    keys, values = keys.clone(), values.clone()\n    end ="},
        ),
        "sees what is not there": Mistake(
            "Rows of the cache behind the new token enter the output: what stands there, 0 or not, means nothing. See "
            "section 15.2.",
            {"keys[:, :, :end], values[:, :, :end]": "keys, values"},
        ),
        "one place too far": Mistake(
            "The new token stands one row too far, behind a row that holds none: rows are counted from 0, so the "
            "first free one is row `length`. See section 15.2.",
            sign=where(
                lambda *inputs: inputs[-1] + 1 < inputs[3].size(2),
                lambda *inputs: _on_a_copy(_ONE_PLACE_TOO_FAR, *inputs),
            ),
        ),
        "last token overwritten": Mistake(
            "The new token stands in the row of the last one that was there: with `length` tokens in the cache, row "
            "`length` is the first that is free. See section 15.2.",
            sign=_with_tokens_kept(_step, {"    end": "    length -= 1\n    end"}),
        ),
        "first token overwritten": Mistake(
            "The new token stands in row 0, over the first token of the text: it belongs behind those that are there. "
            "See section 15.2.",
            {"keys[:, :, length:end]": "keys[:, :, :1]", "values[:, :, length:end]": "values[:, :, :1]"},
        ),
        "values not kept": Mistake(
            "The new value is missing: the new token's weight meets what stood in its row of `values` before. Keep "
            "both, the key and the value. See section 15.2.",
            {"    values[:, :, length:end] = v\n": ""},
        ),
        "keys not kept": Mistake(
            "The new key is missing: the new token's score comes from what stood in its row of `keys` before. Keep "
            "both, the key and the value. See section 15.2.",
            {"    keys[:, :, length:end] = k\n": ""},
        ),
        "keys and values swapped": Mistake(
            "The new key stands among the values, and the new value among the keys. See section 15.2.",
            {"= k\n": "= v\n", "= v\n": "= k\n"},
        ),
        "aligned top-left": Mistake(
            "The output is the first value, whatever the query asks. A causal mask of one row, aligned top-left, "
            "hides all the others; the newest token needs no mask. See section 15.6.",
            {"values[:, :, :end])": "values[:, :, :end], make_causal_mask(end, device=q.device)[:1])"},
        ),
        "sees itself alone": Mistake(
            "The output is the new token's own value: it should see those in the cache, too. See section 15.2.",
            {"keys[:, :, :end], values[:, :, :end]": "k, v"},
        ),
        "behind the free places": Mistake(
            "The output is that of all rows of the cache, the free ones included, and the new token behind them: it "
            "belongs in the first free place, row `length`. See section 15.2.",
            {
                "    keys[:, :, length:end] = k\n    values[:, :, length:end] = v": (
                    "    keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)"
                ),
                "keys[:, :, :end], values[:, :, :end]": "keys, values",
            },
        ),
        "last place": Mistake(
            "The new token stands in the last place of the cache: the first that is free is row `length`, and what "
            "stands behind it means nothing. See section 15.2.",
            {"end = length + k.size(2)": "length, end = -1, None"},
        ),
        "key kept as value": Mistake(
            "The new key is there twice, the second time in place of the value. See section 15.2.",
            {"= v": "= k"},
        ),
        "weights returned": Mistake(
            "Weights are returned beside the output, as `attention` does: the exercise asks for the output alone. See "
            "section 3.4.",
            sign=_returns_weights,
        ),
        "no scale": Mistake(
            "The output is the one that plain products of query and keys give: a score is such a product divided by "
            "√D. See section 3.5.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1)),"},
        ),
        "attends to the old row": Mistake(
            "In the output, the new token's row counts with what stood there before: write first, then attend. See "
            "section 15.2.",
            {
                "    keys[": "    out = attention(q, keys[:, :, :end], values[:, :, :end])[0]\n    keys[",
                "return attention(q, keys[:, :, :end], values[:, :, :end])[0]": "return out",
            },
        ),
        CHANGES_ITS_INPUT: Mistake("The cache is there to be written to, and nothing else. See section 15.2."),
        "value kept for this step only": Mistake(
            "The new value counts in the output and is not in the cache, where the next token will look for it: write "
            "it there, in place. See section 15.2.",
            {"    values[": "    values = values.clone()\n    values["},
        ),
        "key kept for this step only": Mistake(
            "The new key counts in the output and is not in the cache, where the next token will look for it: write "
            "it there, in place. See section 15.2.",
            {"    keys[": "    keys = keys.clone()\n    keys["},
        ),
        "first of the batch for all": Mistake(
            "The new key and value of the first text are kept for all texts of the batch: each has its own. See "
            "section 15.2.",
            {"= k\n": "= k[:1]\n", "= v\n": "= v[:1]\n"},
        ),
        "cache moved up": Mistake(
            "All rows have moved up by one, and the new token stands in the last of them: the old ones should stay "
            "where they are, and the new one goes into row `length`. See section 15.2.",
            _moved_up,
        ),
        "free places with a score of 0": Mistake(
            "The rows behind the new token take the weight of a score of 0, which is a score like any other: cut them "
            "off, or hide them with −∞. See section 5.1.",
            _free_places_score_0,
        ),
        "axis of the token left": Mistake(
            "There is an axis too many: `k` and `v` have one for the token, of length 1. An index such as `keys[:, :, "
            "length]` takes that axis away, and a slice such as `length : length + 1` keeps it. See section 15.2.",
            {"keys[:, :, length:end]": "keys[:, :, length]"},
        ),
        "along the heads": Mistake(
            "The place to write to is cut out along axis 1, which is that of the heads: the tokens are axis 2. See "
            "section 15.2.",
            {
                "keys[:, :, length:end]": "keys[:, length:end]",
                "values[:, :, length:end]": "values[:, length:end]",
            },
        ),
        "cache returned": Mistake(
            "The exercise asks for the output alone: keys and values should be written in place, where whoever called "
            "finds them. See section 15.2.",
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
            "In every chunk a text begins at position 0 again: its words in the cache come before. See section 15.17.",
            {"columns[cached:] - pads[:, None]": "columns[:num_new] - (pads[:, None] - cached).clamp(min=0)"},
        ),
        "positions from 0 and padding subtracted": Mistake(
            "These are the columns of the chunk counted from 0, less the padding, or 0 where that is negative: the "
            "columns in the cache count as well. See section 15.17.",
            {"columns[cached:] -": "columns[:num_new] -"},
        ),
        "positions from 0 and below": Mistake(
            "These are the columns of the chunk counted from 0, less the padding, and some come out negative: the "
            "columns in the cache count as well. See section 15.17.",
            {"columns[cached:] -": "columns[:num_new] -", ".clamp(min=0)": ""},
        ),
        "columns counted": Mistake(
            "The positions are the numbers of the columns, so that a padded text does not begin at 0: "
            "positions count words. See section 15.17.",
            {"(columns[cached:] - pads[:, None]).clamp(min=0)": "columns[cached:].expand(len(pads), -1)"},
        ),
        "positions from 1": Mistake(
            "The first word of each text stands at 1: positions count from 0. See section 15.17.",
            {"clamp(min=0)": "clamp(min=0) + 1"},
        ),
        "all at the end": Mistake(
            "All words of a chunk have the position of its last one: each column counts one further. See section "
            "15.17.",
            {"return positions,": "return positions[:, -1:].expand_as(positions),"},
        ),
        "aligned top-left": Mistake(
            "The mask is that of a chunk whose first query belongs to the first key: it is the last query that "
            "belongs to the last key. See section 15.6.",
            {"columns[cached:, None]": "columns[:num_new, None]"},
        ),
        "chunk sees its future": Mistake(
            "Within the chunk every token sees those that come after it: a query may attend to its own column and to "
            "earlier ones. See section 15.6.",
            {"(columns <= columns[cached:, None]) & real": "real.expand(-1, num_new, -1)"},
        ),
        "padding seen": Mistake(
            "The mask is causal and does not hide the padding at the beginning of the rows. See section 15.17.",
            {" & real": " & torch.ones_like(real)"},
        ),
        "padding taken to be on the right": Mistake(
            "The mask hides the last columns of a padded row instead of the first, its words among them: "
            "the padding is on the left. See section 15.17.",
            {" & real": " & (columns < len(columns) - pads[:, None])[:, None]"},
        ),
        "does not see itself": Mistake(
            "No token sees itself: a query may attend to keys up to its own column, that one included. See section "
            "15.6.",
            {"<=": "<"},
        ),
        "cache not seen": Mistake(
            "The mask has a column for each new token and none for those in the cache: S counts both. See section "
            "15.6.",
            {"return positions, mask": "return positions, mask[:, :, cached:]"},
        ),
        "first word hidden": Mistake(
            "The mask hides the first word of each row with the padding: with n columns of padding it stands in "
            "column n, counted from 0. See section 15.17.",
            {">=": ">"},
        ),
        "mask inverted": Mistake(
            "The mask is True where a token may not look: True means may attend. See section 5.4.",
            {"return positions, mask": "return positions, ~mask"},
        ),
        "one mask for all rows": Mistake(
            "The mask is (T, S), the same for all texts, so it cannot hide the padding of each: the batch comes "
            "first, (B, T, S). See section 15.17.",
            {" & real": ""},
        ),
        "padding not looked at": Mistake(
            "Padding counts as words: positions are the numbers of the columns, and the mask hides none of it. "
            "See section 15.17.",
            {
                "(columns[cached:] - pads[:, None]).clamp(min=0)": "columns[cached:].expand(len(pads), -1)",
                " & real": " & torch.ones_like(real)",
            },
        ),
        "padding added": Mistake(
            "The positions are the numbers of the columns plus the padding: a word behind n columns of padding has a "
            "smaller number than its column, by n. See section 15.17.",
            {"(columns[cached:] - pads[:, None]).clamp(min=0)": "columns[cached:] + pads[:, None]"},
        ),
        "padding in each chunk": Mistake(
            "The mask hides the first columns of the chunk, as many as there is padding: that stands at the beginning "
            "of the row, and may be in the cache by now. See section 15.17.",
            {"(columns >= pads[:, None])": "((columns < cached) | (columns - cached >= pads[:, None]))"},
        ),
        "a row for each column": Mistake(
            "The mask has a row for each column, those in the cache included: its rows are the queries, and only "
            "the columns of the chunk have one, (B, T, S). See section 15.6.",
            sign=lambda found, pads, cached, num_new: (
                cached > 0 and found[1].shape == (len(pads), cached + num_new, cached + num_new)
            ),
        ),
        "one row for all queries": Mistake(
            "The mask has one row for all columns of the chunk, and each may see one key more than the one before it: "
            "a row for each, (B, T, S). See section 15.6.",
            sign=lambda found, pads, cached, num_new: (
                num_new > 1 and found[1].shape == (len(pads), 1, cached + num_new)
            ),
        ),
        "one row of positions": Mistake(
            "The positions are (T,), the same for all texts, and each text begins in a column of its own: the batch "
            "comes first, (B, T). See section 15.17.",
            sign=lambda found, pads, cached, num_new: found[0].shape == (num_new,),
        ),
        "positions of all columns": Mistake(
            "There is a position for each column, those in the cache included, and the exercise asks for those of "
            "the chunk, (B, T). See section 15.17.",
            sign=lambda found, pads, cached, num_new: cached > 0 and found[0].shape == (len(pads), cached + num_new),
        ),
        "not integers": Mistake(
            "The positions are right and are not whole numbers by type: a table is indexed by integers. See section "
            "8.3.",
            sign=lambda found, pads, cached, num_new: (
                found[0].is_floating_point() and bool((found[0] == _place(pads, cached, num_new)[0])[word].all())
                if (word := torch.arange(cached, cached + num_new, device=pads.device) >= pads[:, None]).any()
                else None
            ),
        ),
        "results swapped": Mistake(
            "Truth values come first and the positions second: the positions should come first, then the mask. See "
            "section 15.17.",
            sign=lambda found, pads, cached, num_new: (
                found[0].dtype == torch.bool
                and torch.equal(
                    _of_words_alone(lambda *_: found[::-1], pads, cached, num_new)[0],
                    _of_words_alone(_place, pads, cached, num_new)[0],
                )
            ),
        ),
        CHANGES_ITS_INPUT: Mistake("The next chunk will be told another padding: work on a copy. See section 15.17."),
        "padding subtracted in the first chunk only": Mistake(
            "In chunks behind the first, the positions are the numbers of the columns: the padding stands before "
            "every later word as well. See section 15.17.",
            {"- pads[:, None]": "- pads[:, None] * (cached == 0)"},
        ),
        "first row's padding for all": Mistake(
            "Every row is placed by the padding of the first row: each has its own. See section 15.17.",
            {"    columns =": "    pads = pads[:1].expand_as(pads)\n    columns ="},
        ),
        "padding of the chunk seen": Mistake(
            "The padding in the cache is hidden, and that inside the chunk is not. See section 15.17.",
            {" & real": " & (real | (columns >= cached))"},
        ),
        "all at the beginning": Mistake(
            "All words of a chunk have the position of its first one: each column counts one further. See section "
            "15.17.",
            sign=lambda found, pads, cached, num_new: (
                torch.equal(found[0], (cached - pads)[:, None].expand(-1, num_new)) if (cached >= pads).all() else None
            ),
        ),
        "an axis of heads": Mistake(
            "The mask has four axes; asked for are three, (B, T, S), and the layer puts in that of the heads. See "
            "section 5.4.",
            sign=lambda found, *inputs: found[1].dim() == 4,
        ),
        "numbers to add": Mistake(
            "The mask holds numbers to be added to scores, 0 and far below; asked for is True and False. See section "
            "5.4.",
            sign=lambda found, *inputs: (
                found[1].is_floating_point() and found[1].max() == 0 and (found[1].min() < -100 or None)
            ),
        ),
        "rows and columns swapped": Mistake(
            "The mask lies on its side, (B, S, T): the rows should be the queries, and the columns the keys. See "
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
            "The new tokens are turned by the positions 0, 1, 2, …: the first of them stands at `length`. See section "
            "15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(k.size(2), device=q.device)"},
        ),
        "queries from 0": Mistake(
            "The outputs are those of queries turned by the positions 0, 1, 2, …: the first of them stands at "
            "`length`, as its key does. See section 15.3.",
            {"rotate(q, places)": "rotate(q)"},
        ),
        "keys from 0": Mistake(
            "The new keys are turned by the positions 0, 1, 2, … and the queries by their own: the first of both "
            "stands at `length`. See section 15.3.",
            {"rotate(k, places)": "rotate(k)"},
        ),
        "one place too far": Mistake(
            "The new tokens are turned by one position too much: the first of them stands at `length`. See section "
            "15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(length, end, device=q.device) + 1"},
        ),
        "all at one place": Mistake(
            "All new tokens are turned by the position of the first of them: each stands one further. See section "
            "15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.full((k.size(2),), length, device=q.device)"},
        ),
        "one place too early": Mistake(
            "The new tokens are turned by one position too few: the first of them stands at `length`, and the last "
            "one in the cache at `length` − 1. See section 15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(length, end, device=q.device) - 1"},
        ),
        "all at the end": Mistake(
            "All new tokens are turned by the position of the last of them: each stands one further than the one "
            "before it. See section 15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.full((k.size(2),), end - 1, device=q.device)"},
        ),
        "queries at the end": Mistake(
            "Each new key is turned by its own position, and all queries are turned by that of the last new token: a "
            "query stands where its token does. See section 15.3.",
            {"rotate(q, places)": "rotate(q, places[-1:].expand(q.size(2)))"},
        ),
        "sees the chunk alone": Mistake(
            "The outputs are those of the new tokens alone: they should see those in the cache, too. See section 15.2.",
            {
                "make_causal_mask(q.size(2), end,": "make_causal_mask(q.size(2),",
                "keys[:, :, :end], values[:, :, :end]": "rotate(k, places), v",
            },
        ),
        "new tokens left out": Mistake(
            "The new tokens are kept, and the outputs are those of the old ones alone: each should see itself and "
            "those before it. See section 15.2.",
            sign=_with_tokens_kept(
                _rotary, {"keys[:, :, :end], values[:, :, :end], mask": "keys[:, :, :length], values[:, :, :length]"}
            ),
        ),
        "mask inverted": Mistake(
            "The outputs are those of a mask that is True where a token may not look: True means may attend. See "
            "section 5.4.",
            {"mask)[0]": "~mask)[0]"},
        ),
        "keys kept unturned": Mistake(
            "The new keys stand in the cache as they came, and the outputs are those of such keys: turn them before "
            "they are kept. See section 15.3.",
            {"rotate(k, places)": "k"},
        ),
        "keys turned again": Mistake(
            "In the outputs all keys of the cache are turned, the old ones for a second time, and the new ones are "
            "kept as they came: each should be turned once, before it is kept. See section 15.3.",
            {"rotate(k, places)": "k", "keys[:, :, :end]": "rotate(keys[:, :, :end])"},
        ),
        "old keys turned again": Mistake(
            "In the outputs the keys of the cache are turned a second time, and the new ones once: each should be "
            "turned once, before it is kept, and stay so. See section 15.3.",
            {"keys[:, :, :end],": "torch.cat([rotate(keys[:, :, :length]), keys[:, :, length:end]], dim=2),"},
        ),
        "new keys turned again": Mistake(
            "In the outputs all keys count as turned twice: each should be turned once, before it is kept. See section "
            "15.3.",
            {"keys[:, :, :end]": "rotate(keys[:, :, :end])"},
        ),
        "keys turned again in the cache": Mistake(
            "The old keys stand in the cache turned a second time: each should be turned once, before it is kept, and "
            "to stay so. See section 15.3.",
            {"rotate(k, places)\n": "k\n    keys[:, :, :end] = rotate(keys[:, :, :end])\n"},
        ),
        "only the keys turned": Mistake(
            "The outputs are those of queries that are not turned: a score depends on the distance where query and "
            "key are turned, both. See section 8.5.",
            {"rotate(q, places)": "q"},
        ),
        "nothing turned": Mistake(
            "Neither the queries nor the new keys are turned; `rotate` returns a new tensor. See section 15.3.",
            {"rotate(k, places)": "k", "rotate(q, places)": "q"},
        ),
        "values turned": Mistake(
            "The new values are turned as well; only queries and keys should be. See section 8.5.",
            {"= v\n": "= rotate(v, places)\n"},
        ),
        "aligned top-left": Mistake(
            "The first new token sees the first key alone, the second the first two: it is the last query that "
            "belongs to the last key. See section 15.6.",
            {"make_causal_mask(q.size(2), end, device=q.device)": "make_causal_mask(end)[: q.size(2)].to(q.device)"},
        ),
        "chunk sees its future": Mistake(
            "Each new token sees those that come after it: where several are read at once, a causal mask hides these. "
            "See section 15.6.",
            {", mask)": ")"},
        ),
        "sees what is not there": Mistake(
            "The new tokens see rows of the cache behind them, where no token stands: attend to the places that are "
            "filled. See section 15.2.",
            {
                "make_causal_mask(q.size(2), end,": "make_causal_mask(q.size(2), keys.size(2),",
                "keys[:, :, :end], values[:, :, :end]": "keys, values",
            },
        ),
        "weights returned": Mistake(
            "Weights are returned beside the outputs, as `attention` does: the exercise asks for the outputs alone. "
            "See section 3.4.",
            sign=_returns_weights,
        ),
        "not kept": Mistake(
            "Nothing new is in the cache afterwards, and the next token will look for it there: write into `keys` and "
            "`values` themselves. See section 15.2.",
            {"    end =": "    keys, values = keys.clone(), values.clone()\n    end ="},
        ),
        "no scale": Mistake(
            "The outputs are those that plain products of queries and keys give: a score is such a product divided by "
            "√D. See section 3.5.",
            {"rotate(q, places)": "rotate(q, places) * math.sqrt(q.size(-1))"},
        ),
        "other convention": Mistake(
            "Queries and new keys are turned in halves, column i with column i + D/2, and the keys in the cache are "
            "turned in neighbours, as `rotate` does: one cache, one convention. See section 8.17.",
            {"rotate(k, places)": "_turn_halves(k, places)", "rotate(q, places)": "_turn_halves(q, places)"},
        ),
        CHANGES_ITS_INPUT: Mistake("The cache is there to be written to, and nothing else. See section 15.2."),
        "turned for this step only": Mistake(
            "The outputs are those of turned keys, and the new ones are kept as they came: the next step has to find "
            "them turned. See section 15.3.",
            {"    keys[": "    kept, keys = keys, keys.clone()\n    kept[:, :, length:end] = k\n    keys["},
        ),
        "counted from the end of the cache": Mistake(
            "The new tokens are turned by the last positions that the cache has room for: the first of them stands at "
            "`length`, however large the cache is. See section 15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(keys.size(2), device=q.device)[-k.size(2) :]"},
        ),
        "no mask and positions from 0": Mistake(
            "The new tokens are turned by the positions 0, 1, 2, …, and each sees those that come after it: the first "
            "stands at `length`, and a causal mask hides what comes later. See section 15.6.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(k.size(2), device=q.device)", ", mask)": ")"},
        ),
        "positions of all tokens": Mistake(
            "There is a position for each token of the text, and `rotate` is given the new ones alone: theirs are "
            "those from `length` on. See section 15.3.",
            {"torch.arange(length, end, device=q.device)": "torch.arange(end, device=q.device)"},
        ),
        "cache returned": Mistake(
            "The exercise asks for the outputs alone: keys and values should be written in place, where whoever "
            "called finds them. See section 15.2.",
            sign=_returns_the_cache,
        ),
    },
)


# ---------------------------------------------------------------- guesses of a speculative call


def _guesses(draw):
    def state(right, V, pad_id):
        B, k = right.shape
        logits = draw(B, k + 1, V)
        own = logits[:, :k].argmax(dim=-1)
        other = (own + 1 + draw.ints(B, k, high=V - 1)) % V
        return logits, own.where(right, other), pad_id

    def rows(*rows):
        return torch.tensor(rows, dtype=torch.bool, device=draw.device)

    yield "a wrong guess between right ones", *state(rows([1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]), 7, 0)
    yield "only right guesses", *state(rows([1, 1, 1], [1, 1, 1]), 5, 11)
    yield "only wrong guesses", *state(rows([0, 0, 0], [0, 0, 0]), 5, 11)
    yield "a batch of one", *state(rows([1, 1, 0, 1, 1]), 7, -1)
    yield "one guess", *state(rows([1], [0], [1]), 5, 11)
    yield "no guess", *state(torch.ones(3, 0, dtype=torch.bool, device=draw.device), 5, 0)
    yield "many texts", *state(draw.ints(11, 3, high=4) > 0, 13, 2)


def _accept(logits, guesses, pad_id):
    own = logits.argmax(dim=-1)  # (B, k + 1)
    right = guesses == own[:, :-1]
    accepted = right.long().cumprod(dim=1).sum(dim=1)
    places = torch.arange(own.size(1), device=own.device)
    tokens = own.masked_fill(places > accepted[:, None], pad_id)
    return tokens, accepted + 1


def _of_integers(answer, logits, guesses, pad_id):
    found = answer(logits, guesses, pad_id)
    return tuple(map(as_integers, found)) if isinstance(found, tuple | list) else found


accept_guesses = Exercise(
    name="accept_guesses",
    trials=_guesses,
    right=_accept,
    use=_of_integers,
    returns=("tokens", "counts"),
    mistakes={
        "right guesses after a wrong one": Mistake(
            "Right guesses count even after a wrong guess. But the model has read the wrong guess before them, so "
            "they are not valid. See section 15.10.",
            {".cumprod(dim=1).sum(dim=1)": ".sum(dim=1)"},
        ),
        "own token left out": Mistake(
            "Only the accepted guesses are returned. The model's own token after them is missing. See section 15.10.",
            {"places > accepted": "places >= accepted", "accepted + 1": "accepted"},
        ),
        "compared with the next row": Mistake(
            "Each guess is compared with the row of logits that belongs to the guess itself. The row before it "
            "predicts the guess. See section 15.10.",
            {"own[:, :-1]": "own[:, 1:]"},
        ),
        "wrong guess kept": Mistake(
            "After the accepted guesses, the first wrong guess is returned instead of the model's own token. See "
            "section 15.10.",
            {"own.masked_fill": "torch.cat([guesses, own[:, -1:]], dim=1).masked_fill"},
        ),
        "own token from the last row": Mistake(
            "The model's own token always comes from the last row of logits. It belongs to the place of the first "
            "wrong guess. See section 15.10.",
            {"own.masked_fill(": "own.where(places != accepted[:, None], own[:, -1:]).masked_fill("},
        ),
        "no token after the last guess": Mistake(
            "If all guesses are right, the model's token after the last guess is missing. See section 15.10.",
            {
                "places > accepted[:, None]": "(places > accepted[:, None]) | (places == guesses.size(1))",
                "accepted + 1": "(accepted + 1).clamp(max=guesses.size(1))",
            },
        ),
        "rest not padded": Mistake(
            "The model's tokens after the first wrong guess are returned. These places should contain `pad_id`. See "
            "section 15.10.",
            {".masked_fill(places > accepted[:, None], pad_id)": ""},
        ),
        "padded with 0": Mistake(
            "The places after the last token contain 0, but they should contain `pad_id`. See section 15.10.",
            {"[:, None], pad_id)": "[:, None], 0)"},
        ),
        "accepted guesses counted": Mistake(
            "`counts` is the number of accepted guesses, but the model's own token counts, too. See section 15.10.",
            {"accepted + 1": "accepted"},
        ),
        "results swapped": Mistake(
            "The counts come first and the tokens second. The tokens should come first. See section 15.10.",
            {"tokens, accepted + 1": "accepted + 1, tokens"},
        ),
        "shortest text for all": Mistake(
            "Every text gets as many tokens as the text with the fewest right guesses. Each text has its own number. "
            "See section 15.10.",
            {"    places = ": "    accepted = accepted.amin().expand_as(accepted)\n    places = "},
        ),
        "all guesses accepted": Mistake(
            "All guesses are accepted, although some differ from the model's most probable token. See section 15.10.",
            {
                "right.long()": "torch.ones_like(right).long()",
                "own.masked_fill": ("torch.cat([guesses, own[:, -1:]], dim=1).masked_fill"),
            },
        ),
        "no guess accepted": Mistake(
            "Every text gets one token, even if its first guess is right. See section 15.10.",
            {"right.long()": "torch.zeros_like(right).long()"},
        ),
        "wrong guesses accepted": Mistake(
            "A guess is accepted if it differs from the model's most probable token. It should be equal. See section "
            "15.10.",
            {"guesses == own": "guesses != own"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The next call needs the guesses and the logits: work on a copy. See section 15.10."
        ),
    },
)


# ---------------------------------------------------------------- cost


def _calls(draw):
    # layers, width, key-value heads, their width, weights, texts, tokens in the cache, new tokens, bytes of a number
    yield "a decoding step of one text", 6, 384, 2, 64, 11_000_000, 1, 255, 1, 4
    yield "a prompt of one text", 2, 64, 1, 16, 120_000, 1, 0, 32, 4
    yield "a decoding step of a batch", 3, 128, 2, 32, 700_000, 7, 99, 1, 4
    yield "a chunk of a batch", 5, 96, 3, 16, 600_000, 3, 20, 11, 4
    yield "keys and values for every head", 2, 256, 4, 64, 1_600_000, 2, 40, 3, 2
    sizes = [int(draw.ints(high=high)) + 1 for high in (9, 99, 9, 99, 9_999, 9, 99, 9)]
    yield "other sizes", *sizes, 8


def _cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    kv_width = num_kv_heads * head_dim
    flops = batch * (2 * num_weights * T + 4 * num_layers * d_model * T * S)
    fetched = num_weights + 2 * num_layers * kv_width * S * batch
    return flops, size * fetched


def _whole_numbers(answer, *sizes):
    found = answer(*sizes)
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
            "In the FLOPs, the weights cost half of what they should: each is a multiplication and an addition. See "
            "section 15.8.",
            {"2 * num_weights": "num_weights"},
        ),
        "half of the attention": Mistake(
            "In the FLOPs, the attention costs half of what it should: scores and the average of the values are two "
            "products of the same size. See section 15.8.",
            {"4 * num_layers": "2 * num_layers"},
        ),
        "attention left out": Mistake(
            "The FLOPs are those of the weights alone: the scores and the average of the values are missing. See "
            "section 15.8.",
            {" + 4 * num_layers * d_model * T * S": ""},
        ),
        "attention of one layer": Mistake(
            "In the FLOPs, the attention is that of one layer: every layer has one. See section 15.8.",
            {"4 * num_layers": "4"},
        ),
        "FLOPs of one text": Mistake(
            "The FLOPs are those of one text: each text of the batch has to be computed. See section 15.8.",
            {"flops = batch * ": "flops = "},
        ),
        "FLOPs of one token": Mistake(
            "The FLOPs are those of one new token: every one of them goes through all weights. See section 15.8.",
            {"num_weights * T": "num_weights", "* T * S": "* S"},
        ),
        "everything computed again": Mistake(
            "The FLOPs are those of reading the whole text again: what is in the cache need not be computed. See "
            "section 15.8.",
            {"2 * num_weights * T": "2 * num_weights * S", "d_model * T * S": "d_model * S * S"},
        ),
        "weights fetched for each text": Mistake(
            "In the bytes, the weights are there once for each text: a batch shares them. See section 15.8.",
            {"= num_weights +": "= batch * num_weights +"},
        ),
        "cache of one text": Mistake(
            "In the bytes there is the cache of one text alone: each has its own. See section 15.8.",
            {"S * batch": "S"},
        ),
        "keys without values": Mistake(
            "In the bytes there is half of the cache: it holds keys and values. See section 15.8.",
            {"+ 2 * num_layers * kv_width": "+ num_layers * kv_width"},
        ),
        "cache of one layer": Mistake(
            "In the bytes there is the cache of one layer: every layer has its own. See section 15.8.",
            {"2 * num_layers * kv_width": "2 * kv_width"},
        ),
        "weights alone": Mistake(
            "The bytes are those of the weights alone: a step needs all keys and values, too. See section 15.8.",
            {" + 2 * num_layers * kv_width * S * batch": ""},
        ),
        "new tokens left out": Mistake(
            "The new tokens are not among the keys and values: they should be kept first, and seen and fetched with "
            "the others. See section 15.8.",
            {"cached + num_new\n": "cached\n"},
        ),
        "new tokens not seen": Mistake(
            "In the FLOPs, the new tokens are not among the keys that a query meets: it should see them as well as the "
            "cache. See section 15.8.",
            {"T * S)": "T * cached)"},
        ),
        "new tokens not fetched": Mistake(
            "In the bytes, the keys and values of the new tokens are missing: they are kept first, and read with the "
            "others. See section 15.8.",
            {"S * batch": "cached * batch"},
        ),
        "batch left out": Mistake(
            "Several texts cost as much as one: each has to be computed, and has a cache of its own. See section 15.8.",
            {"    T, S": "    batch = 1\n    T, S"},
        ),
        "attention of one text": Mistake(
            "In the FLOPs, the attention is that of one text and the weights are used for all: both are computed for "
            "each. See section 15.8.",
            {"batch * (2 * num_weights * T": "2 * num_weights * T * batch", "T * S)": "T * S"},
        ),
        "cache not seen": Mistake(
            "In the FLOPs, the new tokens meet no keys but their own: they should see those in the cache, too. See "
            "section 15.8.",
            {"T * S": "T * T"},
        ),
        "half under the mask": Mistake(
            "In the FLOPs, the scores that the causal mask hides are not counted: the formula counts T times S of "
            "them. See section 15.8.",
            {"T * S)": "sum(range(cached + 1, S + 1)))"},
        ),
        "new tokens alone fetched": Mistake(
            "In the bytes there are the keys and values of the new tokens alone: they meet those in the cache. See "
            "section 15.8.",
            {"S * batch": "T * batch"},
        ),
        "cache fetched for each token": Mistake(
            "In the bytes, the cache is there once for each new token: it is fetched once for all of the call. See "
            "section 15.8.",
            {"S * batch": "S * batch * T"},
        ),
        "cache in numbers": Mistake(
            "In place of the bytes, the weights are counted in bytes and the cache in numbers: each number has `size` "
            "bytes. See section 15.8.",
            {"num_weights +": "num_weights * size +", "size * fetched": "fetched"},
        ),
        "numbers instead of bytes": Mistake(
            "In place of the bytes stands how many numbers there are: each has `size` bytes. See section 15.8.",
            {"size * fetched": "fetched"},
        ),
        "results swapped": Mistake(
            "The bytes come first and the FLOPs second: it is the other way round. See section 15.8.",
            {"flops, size * fetched": "size * fetched, flops"},
        ),
        "weights in numbers": Mistake(
            "In place of the bytes, the cache is counted in bytes and the weights in numbers: each number has `size` "
            "bytes. See section 15.8.",
            {"+ 2 * num_layers": "+ size * 2 * num_layers", "size * fetched": "fetched"},
        ),
        "weights times the layers": Mistake(
            "The weights count once for each layer, and `num_weights` are those of all layers together. See section "
            "15.8.",
            {"    T, S": "    num_weights *= num_layers\n    T, S"},
        ),
        "twelve squares instead of the weights": Mistake(
            "The weights are counted as 12 E² in each layer, without the matrix of the vocabulary or any other shape: "
            "their number is given, `num_weights`. See section 15.8.",
            {"    T, S": "    num_weights = 12 * num_layers * d_model**2\n    T, S"},
        ),
        "twelve squares in the FLOPs": Mistake(
            "In the FLOPs, the weights are counted as 12 E² in each layer, without the matrix of the vocabulary or any "
            "other shape: their number is given, `num_weights`. See section 15.8.",
            {"2 * num_weights * T": "2 * 12 * num_layers * d_model**2 * T"},
        ),
        "new tokens fetched twice": Mistake(
            "In the bytes, the keys and values of the new tokens are there twice, as if writing them counted too: what "
            "is fetched counts, and each of them is fetched once. See section 15.8.",
            {"S * batch": "(S + T) * batch"},
        ),
        "batch as one long text": Mistake(
            "The FLOPs are those of one text as long as all of them: a text meets its own keys, and not those of its "
            "neighbours. See section 15.8.",
            {"4 * num_layers": "4 * batch * num_layers"},
        ),
        "one operation for a product and a sum": Mistake(
            "The FLOPs are half of what they should be: a multiplication and an addition are two. See section 15.8.",
            {"2 * num_weights * T + 4 * num_layers": "num_weights * T + 2 * num_layers"},
        ),
        "every head with its own keys": Mistake(
            "In the bytes, the cache has `d_model` numbers for the keys of a token. It has `num_kv_heads` heads, and "
            "each key has `head_dim` numbers. See section 15.8.",
            {"kv_width = num_kv_heads * head_dim": "kv_width = d_model"},
        ),
        "one key-value head": Mistake(
            "In the bytes, the cache holds one key-value head in each layer, but there are `num_kv_heads` of them. See "
            "section 15.8.",
            {"kv_width = num_kv_heads * head_dim": "kv_width = head_dim"},
        ),
        "attention of the key-value heads": Mistake(
            "In the FLOPs, only the key-value heads compute scores. Every query head does, and the query heads are "
            "`d_model` wide together. See section 15.8.",
            {"4 * num_layers * d_model": "4 * num_layers * kv_width"},
        ),
    },
)
