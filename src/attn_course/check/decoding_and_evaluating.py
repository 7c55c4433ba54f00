"""The exercises of the chapter on decoding and evaluating. Used from chapter 13 on."""

import math
import numbers
from collections import Counter

import torch
from torch import Tensor

from attn_course.check.edits import Edited
from attn_course.check.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark
from attn_course.check.signs import as_integers, as_number, where

# ---------------------------------------------------------------- greedy search


def _writers(draw):
    def writer(vocab_size, bos_id, eos_id, ends_at, max_len, begins_at=None, height=0):
        """What is written depends on all that is read; the end comes as token number ``ends_at``."""
        embed, mix, out = draw(vocab_size, 7), draw(7, 7), 3 * draw(7, vocab_size)

        def next_logits(ids):
            state, rows = torch.zeros_like(embed[0]), []
            for number, i in enumerate(ids, start=1):
                state = torch.tanh(state @ mix + embed[int(i)])
                rows.append(state @ out + height)
                rows[-1][eos_id] += 60 if number == ends_at else -60
                rows[-1][bos_id] += 90 if number == begins_at else -60
            return torch.stack(rows)  # (T, V)

        return next_logits, bos_id, eos_id, max_len

    yield "a sentence of five tokens", *writer(11, 1, 2, ends_at=5, max_len=9)
    yield "a sentence that is cut off", *writer(7, 1, 2, ends_at=99, max_len=4)
    yield "nothing but the end", *writer(5, 1, 2, ends_at=1, max_len=3)
    yield "the end as the last token allowed", *writer(11, 1, 2, ends_at=7, max_len=7)
    yield "other ids for beginning and end", *writer(13, 5, 0, ends_at=3, max_len=8)
    yield "a beginning in the text", *writer(17, 4, 3, 6, 11, begins_at=3)
    yield "one token allowed", *writer(7, 3, 4, ends_at=99, max_len=1)
    yield "logits in the hundreds", *writer(11, 1, 2, ends_at=99, max_len=5, height=300)
    yield "no token allowed", *writer(5, 2, 3, ends_at=99, max_len=0)


def _listen(answer, next_logits, bos_id, eos_id, max_len):
    """The ids as a tensor; a loop without an end is stopped."""
    calls = 0

    def counted(ids):
        nonlocal calls
        calls += 1
        if calls > 3 * max_len + 9:
            raise Remark("The loop does not stop when max_len tokens are written. See section 13.1.")
        return next_logits(ids)

    found = answer(counted, bos_id, eos_id, max_len)
    if isinstance(found, Tensor):
        return f"one tensor {tuple(found.shape)}"
    if isinstance(found, list | tuple) and any(isinstance(i, Tensor) for i in found):
        return f"{len(found)} tensors in a list"
    if isinstance(found, list | tuple) and (others := [type(i).__name__ for i in found if type(i) is not int]):
        return f"a list with numbers of the type {others[0]}"
    return list(found) if isinstance(found, tuple) else found


def _greedy(next_logits, bos_id, eos_id, max_len):
    ids = [bos_id]
    while len(ids) <= max_len:
        ids.append(int(next_logits(ids)[-1].argmax()))
        if ids[-1] == eos_id:
            break
    return ids[1:]


write_greedily = Exercise(
    name="write_greedily",
    trials=_writers,
    right=_greedy,
    use=_listen,
    returns=("ids",),
    mistakes={
        "only the last token": Mistake(
            "The model is asked with the last token alone, and has forgotten what was written before: "
            "hand over all of it each time. See section 13.1.",
            {"next_logits(ids)": "next_logits(ids[-1:])"},
        ),
        "first row": Mistake(
            "Every token is what the first row of the logits says, which is about the token after the beginning; the "
            "next one is in the last row, for all ids so far. See section 13.1.",
            {"[-1].argmax": "[0].argmax"},
        ),
        "largest of all rows": Mistake(
            "The largest logit is looked for in all rows at once; only the last row is about the next token. See "
            "section 13.1.",
            {"[-1].argmax": ".argmax"},
        ),
        "largest of all rows, as a token": Mistake(
            "The token of the largest logit in all rows is taken; only the last row is about the next token. See "
            "section 13.1.",
            {"[-1].argmax())": ".amax(dim=0).argmax())"},
        ),
        "beginning returned": Mistake(
            "The beginning stands in front of what is returned; it is read, and nobody wrote it. See section 13.1.",
            {"ids[1:]": "ids"},
        ),
        "end not returned": Mistake(
            "The end is missing from what is returned: it is a token that was written like the others. See section "
            "13.1.",
            {"return ids[1:]": "return [i for i in ids[1:] if i != eos_id]"},
        ),
        "goes on after the end": Mistake(
            "It writes on after the end of the sentence: what follows an end means nothing. See section 13.1.",
            {"        if ids[-1] == eos_id:\n            break\n": ""},
        ),
        "does not stop": Mistake(
            "A model that does not write the end keeps this going beyond `max_len`: stop when so many tokens are "
            "written. See section 13.1.",
            {"len(ids) <= max_len": "True"},
        ),
        "one token too few": Mistake(
            "At most max_len − 1 tokens are written: `max_len` counts what is written, and the beginning is not. See "
            "section 13.1.",
            {"<= max_len": "< max_len"},
        ),
        "one token too many": Mistake(
            "A sentence that is cut off has one token too many: `max_len` are allowed. See section 13.1.",
            {"<= max_len": "<= max_len + 1"},
        ),
        "end added": Mistake(
            "A sentence that is cut off ends with an end that the model did not write. See section 13.1.",
            {"ids[1:]": "ids[1:] if ids[-1] == eos_id else [*ids[1:], eos_id]"},
        ),
        "end over the last token": Mistake(
            "A sentence that is cut off has an end in the place of its last token, "
            "and the model wrote another token there. See section 13.1.",
            {"ids[1:]": "ids[1:] if len(ids) == 1 or ids[-1] == eos_id else [*ids[1:-1], eos_id]"},
        ),
        "least probable": Mistake(
            "It takes the smallest logit each time; the most probable token has the largest. See section 13.1.",
            {"argmax": "argmin"},
        ),
        "drawn at random": Mistake(
            "The tokens are drawn by their probabilities; "
            "greedy search leaves nothing to chance and takes the most probable. See section 13.1.",
            {"argmax()": "softmax(-1).multinomial(1)"},
        ),
        "stops at the beginning": Mistake(
            "The text stops where the model writes the beginning, which is no end: only eos_id ends a sentence. See "
            "section 13.1.",
            {"== eos_id": "in (eos_id, bos_id)"},
        ),
        "beginning left out": Mistake(
            "A token that the model wrote is missing: the beginning is left out wherever it stands, and only the "
            "first one was not written. See section 13.1.",
            {"ids[1:]": "[i for i in ids if i != bos_id]"},
        ),
        "tensors in the list": Mistake(
            "There are tensors among the ids; asked for are Python integers, which `.item()` makes of tensors of one "
            "number. See section 13.1.",
            sign=lambda found, *inputs: "tensors in a list" in str(found),
        ),
        "ids of another type": Mistake(
            "Among the ids are some of another type than int; asked for are Python integers, which int() makes of "
            "numbers. See section 13.1.",
            sign=lambda found, *inputs: "with numbers of the type" in str(found),
        ),
        "a tensor instead of a list": Mistake(
            "It returns a tensor; asked for is a list of Python integers. See section 13.1.",
            sign=lambda found, *inputs: "one tensor" in str(found),
        ),
        "first row of the last": Mistake(
            "From the second on, each token is what the row before the last says, which is about the token written "
            "last; the last row is about the next. See section 13.1.",
            {"(ids)[-1]": "(ids)[max(len(ids) - 2, 0)]"},
        ),
        "beginning counted": Mistake(
            "The beginning is returned, and counts among the max_len tokens: it is read, and nobody wrote it. "
            "See section 13.1.",
            {"<=": "<", "ids[1:]": "ids"},
        ),
        "last token only": Mistake(
            "It returns the last token alone; asked for are all that were written. See section 13.1.",
            {"ids[1:]": "ids[-1:]"},
        ),
        "one token whatever is allowed": Mistake(
            "With max_len = 0 a token is written, and none is allowed. See section 13.1.",
            {"<= max_len": "<= max(max_len, 1)"},
        ),
        "filled up with ends": Mistake(
            "After the end more ends follow, up to `max_len`: a sentence stops with the first of them. See section "
            "13.1.",
            {"ids[1:]": "ids[1:] + [eos_id] * (max_len + 1 - len(ids))"},
        ),
        "first token lost": Mistake(
            "The first token that was written is missing: only the beginning should not be returned. See section 13.1.",
            {"ids[1:]": "ids[2:]"},
        ),
        "first token only": Mistake(
            "It returns the first token alone: more are written, until the end or `max_len`. See section 13.1.",
            {"        if ids[-1] == eos_id:\n            break": "        break"},
        ),
        "exponentials without a softmax": Mistake(
            "With logits of 300 it writes token 0 time and again, whichever is most probable: in float32 the "
            "exponentials of all such logits are infinite, and so equal. Compare the logits themselves. See section "
            "13.1.",
            {"[-1].argmax": "[-1].exp().argmax"},
        ),
        "softmax over the positions": Mistake(
            "These are the tokens of a softmax over the positions, the first axis, in which a token is compared with "
            "itself at other places: the vocabulary is the last axis. See section 13.1.",
            {"[-1].argmax": ".softmax(0)[-1].argmax"},
        ),
    },
)


# ---------------------------------------------------------------- one step of a beam search


def _beams(draw):
    def step(K, V, **kind):
        return (-5 * draw(K, **kind).abs().sort().values, (2 * draw(K, V, **kind)).log_softmax(-1))

    yield "three beams", *step(3, 7)
    yield "a beam of one", *step(1, 5)
    log_probs, following = step(5, 11)
    log_probs[0], log_probs[1:] = 0, -math.inf
    yield "the first step, with one beginning", log_probs, following
    log_probs, following = step(3, 5)
    following[1, 2:4] = -math.inf
    yield "tokens that are impossible", log_probs, following
    log_probs, following = step(2, 7)
    log_probs[1] = log_probs[0] - 30
    yield "one beam far ahead", log_probs, following
    yield "as many beams as tokens", *step(5, 5)
    log_probs, following = step(3, 5)
    likely = 4.0 * (torch.arange(5, device=log_probs.device) < 2)
    following = (following / 10 + likely * (torch.arange(3, device=log_probs.device) == 2)[:, None]).log_softmax(-1)
    yield "the worst beam has two likely tokens", log_probs - 3 * torch.arange(3.0, device=log_probs.device), following
    log_probs, following = step(3, 11)
    yield "beams of long texts", log_probs - 200, following
    yield "float64", *step(2, 3, dtype=torch.float64)
    yield "more beams than tokens", *step(5, 3)
    _, following = step(3, 5)
    unordered = torch.tensor([-1.5, -math.inf, -1.0], device=following.device)
    yield "beams in no order, one of them impossible", unordered, following
    log_probs, following = step(3, 7)
    following[0, [1, 4]] = following[0].amax() + 1
    log_probs[1:] -= 9
    yield "equal totals", log_probs, following.log_softmax(-1)
    log_probs, following = step(5, 3)
    log_probs[0], log_probs[1:] = 0, -math.inf
    yield "the first step, with fewer tokens than beams", log_probs, following


def _in_one_order(answer, log_probs, next_log_probs):
    """Places of any whole type; what has equal totals may be in any order, and what is impossible may be any."""
    right = log_probs[:, None] + next_log_probs
    found = answer(log_probs, next_log_probs)
    if not isinstance(found, tuple | list) or len(found) != 3:
        return found
    parents, tokens, totals = found = (as_integers(found[0]), as_integers(found[1]), found[2])
    K, V = right.shape
    if not all(isinstance(part, Tensor) and part.shape == (K,) and part.device == right.device for part in found):
        return found
    if not (parents.dtype == tokens.dtype == torch.int64 and totals.is_floating_point()):
        return found
    if (parents < 0).any() or (parents >= K).any() or (tokens < 0).any() or (tokens >= V).any():
        return found
    places, shut = parents * V + tokens, totals == -math.inf
    if shut.any() and len(places.unique()) == K and (right.flatten()[places[shut]] == -math.inf).all():
        places[shut] = (right.flatten() == -math.inf).nonzero()[: int(shut.sum()), 0]
    differs = totals.diff().abs() > 1e-5 * (1 + totals[1:].abs().nan_to_num(posinf=0.0))
    group = torch.cat([differs.new_zeros(1), differs]).cumsum(0)
    places = places[(group * K * V + places).argsort()]
    return places // V, places % V, totals


def _step(log_probs, next_log_probs):
    K, V = next_log_probs.shape
    totals = log_probs[:, None] + next_log_probs
    best, index = totals.flatten().topk(K)
    return index // V, index % V, best


def _each_its_own(log_probs, following):
    best, tokens = (log_probs[:, None] + following).max(dim=-1)
    best, order = best.sort(descending=True)
    return order, tokens[order], best


def _each_its_own_unsorted(log_probs, following):
    best, tokens = (log_probs[:, None] + following).max(dim=-1)
    return torch.arange(len(best), device=best.device), tokens, best


def _only_the_best_beam(log_probs, following):
    first = log_probs.argmax()
    best, tokens = following[first].topk(len(log_probs))
    return torch.full_like(tokens, int(first)), tokens, best + log_probs[first]


def _is_sure(log_probs, following):
    """Whether no two totals or probabilities are the same."""
    differ = len(following.unique()) == following.numel()
    return differ and log_probs.min() >= -80 and not following.isinf().any()


def _in_lists(found, log_probs, following):
    """A sign: the right numbers, some of them in lists."""
    if not any(isinstance(part, list) for part in found):
        return False
    tensors = [torch.as_tensor(part, device=log_probs.device) for part in found]
    return where(_is_sure, _step)(tensors, log_probs, following)


def _places_after_sorting(log_probs, following):
    totals = (log_probs[:, None] + following).sort(dim=-1, descending=True).values
    best, index = totals.flatten().topk(len(log_probs))
    return index // totals.size(1), index % totals.size(1), best


def _places_after_sorting_the_beams(log_probs, following):
    falling, order = log_probs.sort(descending=True)
    return _step(falling, following[order])


def _impossible_is_finite(found, log_probs, following):
    """A sign: the totals are right but for those of −∞, which are finite."""
    totals = _step(log_probs, following)[2]
    shut = totals == -math.inf
    return bool(shut.any() and found[2][shut].isfinite().all()) and torch.allclose(found[2][~shut], totals[~shut])


def _impossible_left_out(found, log_probs, following):
    """A sign: there are as many continuations as are possible, fewer than K."""
    possible = (log_probs[:, None] + following > -math.inf).sum()
    return possible < len(log_probs) and all(part.shape == (possible,) for part in found)


def _one_comes_twice(found, log_probs, following):
    """A sign: the totals are right, and a pair of parent and token comes more than once."""
    parents, tokens, totals = found
    pairs = torch.stack([parents, tokens]).unique(dim=1)
    return pairs.size(1) < len(log_probs) and torch.allclose(totals, _step(log_probs, following)[2])


def _each_token_once(log_probs, following):
    best, parents = (log_probs[:, None] + following).max(dim=0)
    best, tokens = best.topk(len(log_probs))
    return parents[tokens], tokens, best


def _shared_out(log_probs, following):
    parents, tokens, totals = _step(log_probs, following)
    return parents, tokens, totals - (log_probs[:, None] + following).flatten().logsumexp(0)


def _best_of_each_row_first(log_probs, following):
    best, tokens = (log_probs[:, None] + following).topk(len(log_probs), dim=-1)
    best, index = best.flatten().topk(len(log_probs))
    return index // len(log_probs), tokens.flatten()[index], best


def _two_of_each(log_probs, following):
    best, tokens = (log_probs[:, None] + following).topk(2 if len(log_probs) > 1 else 1, dim=-1)
    best, index = best.flatten().topk(len(log_probs))
    return index // tokens.size(1), tokens.flatten()[index], best


def _by_the_new_token_alone(log_probs, following):
    best, index = following.flatten().topk(len(log_probs))
    totals, order = (best + log_probs[index // following.size(1)]).sort(descending=True)
    return (index // following.size(1))[order], (index % following.size(1))[order], totals


beam_step = Exercise(
    name="beam_step",
    trials=_beams,
    right=_step,
    use=_in_one_order,
    returns=("parents", "tokens", "totals"),
    mistakes={
        "chosen by the new token alone": Mistake(
            "The K are chosen by what the new token adds, and what the beams have cost up to here joins only "
            "afterwards: it belongs into the choice. See section 13.2.",
            sign=where(_is_sure, _by_the_new_token_alone),
        ),
        "chosen by the new token alone, in its order": Mistake(
            "The K are chosen by what the new token adds, and are in the order of that: what the beams have cost up to "
            "here belongs into the choice. See section 13.2.",
            {
                "totals = log_probs[:, None] + ": "totals = ",
                "% V, best": "% V, best + log_probs[index // V]",
            },
        ),
        "each beam keeps its best": Mistake(
            "Every beam goes on with its own best token, so that a good beam never has two children "
            "and a bad one never dies: the K best should be found among all K · V. See section 13.2.",
            sign=where(_is_sure, _each_its_own),
        ),
        "two of each beam": Mistake(
            "At most two continuations of a beam are left, even where three of one beam are among the K best of all "
            "K · V. See section 13.2.",
            sign=where(_is_sure, _two_of_each),
        ),
        "each beam keeps its best, unsorted": Mistake(
            "Every beam goes on with its own best token, and they are in the order of the beams: "
            "the K best should be found among all K · V, best first. See section 13.2.",
            sign=where(_is_sure, _each_its_own_unsorted),
        ),
        "old log-probabilities forgotten": Mistake(
            "Only the new token counts: what a beam has cost up to here is not added. See section 13.2.",
            {"log_probs[:, None] + ": ""},
        ),
        "multiplied instead of added": Mistake(
            "Logarithms are multiplied; a product of probabilities is a sum of their logarithms. See section 13.1.",
            {"[:, None] +": "[:, None] *"},
        ),
        "parents and tokens swapped": Mistake(
            "Parents and tokens have changed places: "
            "in a flattened (K, V) the quotient by V is the row, the remainder the column. See section 13.2.",
            {"index // V, index % V": "index % V, index // V"},
        ),
        "divided by the number of beams": Mistake(
            "The flat places are divided by K: a row of (K, V) has V entries. See section 13.2.",
            {"index // V, index % V": "index // K, index % K"},
        ),
        "flat places as tokens": Mistake(
            "The tokens are places in the flattened table, and can be V or more; "
            "what is left after division by V is the token. See section 13.2.",
            {"index % V": "index"},
        ),
        "smallest instead of largest": Mistake(
            "These are the least probable continuations: logarithms of probabilities are negative, "
            "and the best are nearest to 0. See section 13.1.",
            sign=where(_is_sure, Edited(_step, {"topk(K)": "topk(K, largest=False)"})),
        ),
        "worst first": Mistake(
            "The K continuations are the right ones in the wrong order: best first. See section 13.2.",
            {"    return": "    best, index = best.flip(0), index.flip(0)\n    return"},
        ),
        "no axis for the tokens": Mistake(
            "(K,) and (K, V) do not line up: the beams' own numbers need an axis of length 1 for the tokens, "
            "or they are added to the columns. See section 13.2.",
            {"log_probs[:, None]": "log_probs"},
        ),
        "no axis for the tokens, added behind": Mistake(
            "The beams' own numbers belong to the rows of (K, V), and (K,) stands over its columns: give them an axis "
            "of length 1 for the tokens. See section 13.2.",
            {"log_probs[:, None] + next_log_probs": "next_log_probs + log_probs"},
        ),
        "new log-probabilities as totals": Mistake(
            "The totals are those of the new tokens alone: the next step needs the sum. See section 13.2.",
            {"% V, best": "% V, next_log_probs.flatten()[index]"},
        ),
        "probabilities as totals": Mistake(
            "The totals are probabilities; the next step adds logarithms to them. See section 13.1.",
            sign=where(_is_sure, Edited(_step, {"index % V, best": "index % V, best.exp()"})),
        ),
        "only the best beam": Mistake(
            "All continuations come from the one best beam: the others are there to be given a chance. See section "
            "13.2.",
            sign=where(_is_sure, _only_the_best_beam),
        ),
        "more of a row than it has": Mistake(
            "Where there are fewer tokens than beams it stops: a row has V tokens, and K may be more. The whole table "
            "has K · V, which is always enough. See section 13.2.",
            _best_of_each_row_first,
        ),
        "K of each beam": Mistake(
            "There are K · K totals; K continuations should be left, of whichever beams. See section 13.2.",
            sign=lambda found, log_probs, following: (
                None
                if len(log_probs) == 1 or len(log_probs) > following.size(1)
                else found[2].shape == (len(log_probs),) * 2
            ),
        ),
        "divided without rounding": Mistake(
            "The parents are fractions, and a row has a whole number: cut off what is behind the point. See section "
            "13.2.",
            {"index // V": "index / V"},
        ),
        "results in another order": Mistake(
            "All three are there in another order than asked for: parents, tokens, totals. See section 13.2.",
            {"index // V, index % V, best": "best, index // V, index % V"},
        ),
        "mean of the two": Mistake(
            "The total is the mean of the old and the new log-probability; logarithms of a product are added. "
            "See section 13.1.",
            {"log_probs[:, None] + next_log_probs": "(log_probs[:, None] + next_log_probs) / 2"},
        ),
        "probabilities added": Mistake(
            "Probabilities are added, and the probability of a text is a product: add logarithms. See section 13.1.",
            {"log_probs[:, None] + next_log_probs": "log_probs.exp()[:, None] + next_log_probs.exp()"},
        ),
        "softmax once more": Mistake(
            "The probabilities of the new tokens are added to logarithms: `next_log_probs` are logarithms already, to "
            "be added as they are. See section 13.1.",
            {"+ next_log_probs": "+ next_log_probs.softmax(-1)"},
        ),
        "K of all rows, unsorted by beams": Mistake(
            "The right continuations are there in the order of their beams; the best comes first. See section 13.2.",
            {"    return": "    order = index.argsort()\n    best, index = best[order], index[order]\n    return"},
        ),
        "tokens over the beams": Mistake(
            "There are V totals; the K best should be left, of all K · V. See section 13.2.",
            sign=lambda found, log_probs, following: (
                None
                if len(log_probs) in (1, following.size(1)) or log_probs.isinf().any()
                else found[2].shape == (following.size(1),)
            ),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "What was handed in is still needed as it was: add into a new tensor. See section 5.17."
        ),
        "probabilities on the way": Mistake(
            "In long texts totals come out infinite: probabilities that small round to 0, and their logarithm is −∞. "
            "Stay with logarithms, and add them. See section 13.1.",
            sign=lambda found, log_probs, following: (
                bool((log_probs < -80).all() and found[2].isinf().any()) if log_probs.isfinite().all() else None
            ),
        ),
        "axis lost with one beam": Mistake(
            "With one beam the results have no axis: they should be (K,) for every K, so squeeze nothing. See section "
            "13.2.",
            sign=lambda found, log_probs, following: len(log_probs) == 1 and all(part.dim() == 0 for part in found),
        ),
        "places after sorting as tokens": Mistake(
            "The tokens are places in a row that has been sorted: a token is its place in the table as it was given. "
            "See section 13.2.",
            sign=where(_is_sure, _places_after_sorting),
        ),
        "places after sorting as parents": Mistake(
            "The parents are places among beams that have been sorted: a parent is its place in `log_probs` as it was "
            "given. See section 13.2.",
            _places_after_sorting_the_beams,
        ),
        "a finite number for −∞": Mistake(
            "A continuation that is impossible has a finite total: its log-probability is −∞, and stays so whatever is "
            "added. See section 13.1.",
            sign=_impossible_is_finite,
        ),
        "impossible ones left out": Mistake(
            "Where fewer than K continuations are possible, fewer than K are returned: the results are (K,) all the "
            "same, and the total of what is impossible is −∞. See section 13.2.",
            sign=_impossible_left_out,
        ),
        "one continuation twice": Mistake(
            "A pair of a parent and a token comes more than once: the K best are K different continuations, also where "
            "totals are equal. See section 13.2.",
            sign=_one_comes_twice,
        ),
        "totals shared out": Mistake(
            "The totals are those after a softmax over the whole table: asked for is the log-probability of each text "
            "itself, a plain sum. See section 13.2.",
            sign=where(_is_sure, _shared_out),
        ),
        "lists instead of tensors": Mistake(
            "The right numbers are there, and some of them in Python lists; asked for are tensors (K,). A `topk` over "
            "the flattened table returns such tensors, without a loop. See section 13.2.",
            sign=_in_lists,
        ),
        "each token once": Mistake(
            "No token comes twice: for each token only its best beam is kept, and two beams may go on with the same "
            "token. See section 13.2.",
            sign=where(_is_sure, _each_token_once),
        ),
    },
)


# ---------------------------------------------------------------- min-p


def _logits_and_p(draw):
    yield "one row", 2 * draw(1, 31), 0.1
    yield "a batch", 2 * draw(3, 11), 0.1
    yield "two leading axes", 3 * draw(2, 3, 5), 0.05
    yield "three leading axes", 2 * draw(3, 2, 5, 7), 0.2
    yield "no leading axis", 2 * draw(13), 0.2
    yield "large logits", 40 + 2 * draw(5, 7), 0.3
    sharp = draw(2, 7)
    sharp[0, 3] += 20
    yield "one row much surer than the other", sharp, 0.1
    yield "only the most probable", draw(3, 5), 1.0
    shut = draw(3, 7)
    shut[:, 2:4] = -math.inf
    yield "tokens that are impossible", shut, 0.3
    yield "logits in the hundreds", 300 + 2 * draw(5, 7), 0.3
    yield "float64", 2 * draw(3, 5, dtype=torch.float64), 0.25
    yield "as many rows as tokens", 2 * draw(7, 7), 0.2
    tied = draw(3, 5)
    tied[:, 1] = tied[:, 3] = 5.0
    yield "two tokens equally probable", tied, 1.0
    uneven = 2 * draw(3, 7)
    uneven[1] += 300
    yield "one row far above the others", uneven, 0.3
    yield "a view with exchanged axes", 2 * draw(5, 2, 7).transpose(0, 1), 0.3


def _top(x):
    return x.amax(dim=-1, keepdim=True)


def _keep(logits, p):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p * probs.amax(dim=-1, keepdim=True), -math.inf)


def _rightly(probs, logits, p):
    return ~(probs < p * _top(probs))


def _nucleus(probs, logits, p):
    falling, order = probs.sort(dim=-1, descending=True)
    kept = falling.cumsum(-1) - falling < p
    return torch.zeros_like(kept).scatter(-1, order, kept)


def _very_negative(found, logits, p):
    """A sign: the logits as they were where a token is kept, and large negative numbers, some finite, elsewhere."""
    kept = _rightly(logits.softmax(-1), logits, p)
    dropped = found[~kept]
    return torch.allclose(found[kept], logits[kept]) and bool((dropped < -1e3).all() and dropped.isfinite().any())


keep_min_p = Exercise(
    name="keep_min_p",
    trials=_logits_and_p,
    right=_keep,
    returns=("logits",),
    mistakes={
        "compared with p itself": Mistake(
            "Tokens are dropped whose own probability is below p, and where no token reaches p none is left; "
            "the limit is p times the largest probability of the row. See section 13.4.",
            {" * probs.amax(dim=-1, keepdim=True)": ""},
        ),
        "logits instead of probabilities": Mistake(
            "The logits themselves are compared, and p times a logit means nothing: "
            "adding 40 to all of them would change what is kept. Compare probabilities. See section 13.4.",
            {"logits.softmax(-1)": "logits"},
        ),
        "logarithm to the base 10": Mistake(
            "Logits are compared with log₁₀ p below the largest one: logits are natural logarithms, so it should be "
            "log p. See section 13.4.",
            lambda logits, p: logits.masked_fill(logits - _top(logits) < math.log10(p), -math.inf),
        ),
        "places after sorting": Mistake(
            "Of each row the first tokens are kept, as many as are probable enough, whichever these are: what was "
            "found in the sorted row belongs to the tokens' own places. See section 13.4.",
            lambda logits, p: logits.masked_fill(
                ~_rightly(logits.softmax(-1).sort(dim=-1, descending=True).values, logits, p), -math.inf
            ),
        ),
        "one maximum for all": Mistake(
            "The largest probability of the whole batch sets the limit for all rows; each has its own. See section "
            "13.4.",
            {"amax(dim=-1, keepdim=True)": "max()"},
        ),
        "maximum over the batch": Mistake(
            "The limit of a token comes from the largest probability along the first axis, that of the same token in "
            "other rows; look along the last. See section 13.4.",
            {"dim=-1": "dim=0"},
        ),
        "softmax over the batch": Mistake(
            "The probabilities are those of a softmax over the first axis: each row has a choice of its own to make, "
            "along the last. See section 13.4.",
            {"softmax(-1)": "softmax(0)"},
        ),
        "the others kept": Mistake(
            "The probable tokens are dropped and the improbable ones kept. See section 13.4.",
            {"probs < p": "probs >= p"},
        ),
        "dropped logits set to 0": Mistake(
            "Dropped tokens have the logit 0, and e⁰ is 1: they can still be drawn. "
            "Which logit has the probability 0? See section 13.4.",
            sign=lambda found, logits, p: (
                torch.allclose(found, logits.where(_rightly(logits.softmax(-1), logits, p), 0.0))
                if logits.isfinite().all()
                else None
            ),
        ),
        "probabilities returned": Mistake(
            "These are probabilities; asked for are logits, so that other filters can follow. See section 13.4.",
            {"return logits": "return probs", "-math.inf": "0.0"},
        ),
        "probabilities among −∞": Mistake(
            "What is kept has become a probability, and what is dropped −∞: asked for are the logits as they were. "
            "See section 13.4.",
            {"return logits": "return probs"},
        ),
        "renormalised probabilities": Mistake(
            "These are the probabilities after the filter; asked for are the logits that give them. See section 13.4.",
            {"-math.inf)": "-math.inf).softmax(-1)"},
        ),
        "logarithms of probabilities returned": Mistake(
            "The right tokens are kept, but not as they were: these are logarithms of probabilities. See section 13.4.",
            {"return logits": "return logits.log_softmax(-1)"},
        ),
        "above instead of at least": Mistake(
            "With p = 1 nothing is left: a token that reaches the limit exactly should stay, and the most probable "
            "always does. See section 13.4.",
            {"probs < p": "probs <= p"},
        ),
        "one minus p": Mistake(
            "The limit is 1 − p of the largest probability instead of p. See section 13.4.",
            {"p * probs": "(1 - p) * probs"},
        ),
        "top-p": Mistake(
            "This keeps the fewest tokens that sum to p: that is top-p, and this filter compares each token "
            "with the most probable one. See section 13.4.",
            {"probs < p * probs.amax(dim=-1, keepdim=True)": "~_nucleus(probs, logits, p)"},
        ),
        "distance instead of factor": Mistake(
            "Tokens are kept whose probability is at most p below the largest; "
            "the limit is p times the largest, a factor and not a distance. See section 13.4.",
            {"p * probs.amax(dim=-1, keepdim=True)": "probs.amax(dim=-1, keepdim=True) - p"},
        ),
        "p without its logarithm": Mistake(
            "The logits are compared with the largest less p: a factor of p between probabilities is "
            "a distance of log p between logits. See section 13.4.",
            {
                "logits.softmax(-1)": "logits",
                "p * probs.amax(dim=-1, keepdim=True)": "probs.amax(dim=-1, keepdim=True) - p",
            },
        ),
        "a large negative number instead of −∞": Mistake(
            "What is dropped has a very negative logit; asked for is −∞, the logit of the probability 0. See "
            "section 13.4.",
            sign=_very_negative,
        ),
        "a mask instead of logits": Mistake(
            "This is a mask, True or False for each token; asked for are the logits, with −∞ at those that are "
            "dropped. See section 13.4.",
            sign=lambda found, logits, p: found.dtype == torch.bool,
        ),
        "only what is kept": Mistake(
            "The dropped tokens are gone, and with them the places of the others: "
            "a token is known by its place, so the shape has to stay. See section 13.4.",
            {".masked_fill(probs < ": "[probs >= ", ", -math.inf)": "]"},
        ),
        "only the probabilities that are kept": Mistake(
            "Only the probabilities of the kept tokens are left, without their places: "
            "asked for are logits in the shape that they had. See section 13.4.",
            {"return logits.masked_fill(probs < ": "return probs[probs >= ", ", -math.inf)": "]"},
        ),
        "maximum of the logits": Mistake(
            "The limit is p times the largest probability of the row, and the logits themselves are compared with it: "
            "compare probabilities. See section 13.4.",
            {"probs < p": "logits < p"},
        ),
        "top-k": Mistake(
            "A number of tokens is kept that does not depend on how probable they are; each token is compared with "
            "the most probable one of its row. See section 13.4.",
            {
                "probs < p *": "probs.argsort(-1, descending=True).argsort(-1) >= max(1, int(p * logits.size(-1)))",
                " probs.amax(dim=-1, keepdim=True)": "",
            },
        ),
        "mean instead of the largest": Mistake(
            "The limit is p times the mean probability of the row; it is p times the largest. See section 13.4.",
            {"amax(": "mean("},
        ),
        "axis of the maximum lost": Mistake(
            "The largest probabilities have lost their axis, so that they do not line up with the rows: keep it, with "
            "keepdim=True. See section 13.4.",
            {", keepdim=True": ""},
        ),
        "+∞": Mistake(
            "Dropped tokens have the logit +∞: which logit has the probability 0? See section 13.4.",
            {"-math.inf": "math.inf"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The logits are the model's, and others may want them as they were: work on a new tensor. See section 13.4."
        ),
        "exponentials without a softmax": Mistake(
            "With logits in the hundreds nothing is dropped: their exponentials are infinite, and with these no "
            "comparison drops anything. A softmax subtracts the largest first. See section 13.4.",
            {"softmax(-1)": "exp()"},
        ),
        "one maximum subtracted for all": Mistake(
            "In a row whose logits are some 300 below those of another, nothing is dropped: before exponentials are "
            "taken, each row needs its own largest logit subtracted. See section 13.4.",
            {"logits.softmax(-1)": "(logits - logits.max()).exp()"},
        ),
        "first axis": Mistake(
            "The limit comes from a maximum over the first axis, and the tokens are the last one. See section 13.4.",
            {"softmax(-1)": "softmax(0)", "dim=-1": "dim=0"},
        ),
        "axis 1": Mistake(
            "The maximum is that of axis 1, which is right for a batch (B, V): the tokens are the last axis, -1, "
            "whatever stands before it. See section 13.4.",
            {"dim=-1": "dim=1"},
        ),
        "softmax and maximum along axis 1": Mistake(
            "The limit comes from a maximum over axis 1, which is right for a batch (B, V): the tokens are the last "
            "axis, -1, whatever stands before it. See section 13.4.",
            {"softmax(-1)": "softmax(1)", "dim=-1": "dim=1"},
        ),
        "renormalised": Mistake(
            "What is dropped is right, and what is kept has changed: these are logarithms of probabilities that sum to "
            "1 again. The exercise asks for the logits as they were. See section 13.4.",
            {"-math.inf)": "-math.inf).log_softmax(-1)"},
        ),
    },
)


# ---------------------------------------------------------------- clipped precision

_WORDS = ("the", "cat", "dog", "sat", "on", "a", "mat", ".")


def _corpora(draw):
    def corpus(count, longest, vocab, n, shortest=0):
        """Hypotheses that keep about half of their reference's words; one is long enough for n words."""
        hypotheses, references = [], []
        for k in range(count):
            length = max(shortest, n + 1 if k == 0 else 1) + int(draw.ints(1, high=longest))
            reference = draw.ints(length, high=vocab).tolist()
            other = draw.ints(length + 3, high=vocab).tolist()
            keep = draw.ints(length, high=3).tolist()
            hypothesis = [r if k else o for r, o, k in zip(reference, other, keep, strict=False)]
            cut = int(draw.ints(1, high=3))
            hypothesis = [hypothesis[: max(n, length - 2)], hypothesis + other[-cut:], hypothesis][cut]
            hypotheses.append([_WORDS[i] for i in hypothesis])
            references.append([_WORDS[i] for i in reference])
        return hypotheses, references, n

    yield "one pair, single words", *corpus(1, 7, 5, 1)
    yield ("a word repeated", [["the"] * 5, ["a", "cat"]], [["the", "cat", "the"], ["the", "cat"]], 1)
    yield "several pairs, single words", *corpus(5, 7, 4, 1)
    yield "pairs of words", *corpus(7, 5, 3, 2)
    yield "sentences shorter than n", *corpus(11, 3, 2, 3)
    yield "four words", *corpus(13, 9, 2, 4)
    yield (
        "words in another order",
        [["on", "the", "mat", "sat"], ["a", "dog"]],
        [["sat", "on", "the", "mat"], ["a", "dog", "sat"]],
        2,
    )
    yield (
        "words that look alike when they are glued",
        [["a", "part", "of", "it"], ["now", "here"]],
        [["apart", "of", "it", "all"], ["no", "where"]][:2],
        2,
    )
    yield ("glued alike", [["be", "for", "e"], ["a", "cat"]], [["b", "efor", "e"], ["be", "fore"]], 2)
    yield ("capitals", [["The", "cat", "the", "mat"], ["a", "dog"]], [["the", "cat", "The"], ["A", "dog"]], 1)
    yield (
        "two hypotheses alike",
        [["the", "cat"], ["a", "dog"], ["the", "cat"]],
        [["the", "cat"], ["a", "cat"], ["the", "mat", "sat"]],
        1,
    )
    yield "nothing in common", [["a", "a"], ["a"]], [["the", "cat"], ["dog"]], 1
    yield "a sentence without a word", [["a", "cat"], []], [["a", "dog"], ["the", "cat", "sat"]], 1


def _ngrams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _hits(a, b):
    return sum((a & b).values())


def _share(pairs):
    """Hits by total of all (hits, total) together, 0 where nothing is to be counted."""
    hits, totals = (sum(column) for column in zip(*pairs, strict=True))
    return hits / totals if totals else 0.0


def _right_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = _ngrams(h, n), _ngrams(r, n)
        hits += (mine & theirs).total()
        total += mine.total()
    return hits / total if total else 0.0


def _mean_of_sentences(hypotheses, references, n, counts=lambda h, n: len(h) >= n):
    shares = [_right_precision([h], [r], n) for h, r in zip(hypotheses, references, strict=True) if counts(h, n)]
    return sum(shares) / len(shares)


def _joined(sentences):
    return [[word for sentence in sentences for word in sentence]]


def _corpus_counts(sentences, n):
    return sum((_ngrams(sentence, n) for sentence in sentences), Counter())


def _clipped_by_the_corpus(hypotheses, references, n):
    mine, theirs = _corpus_counts(hypotheses, n), _corpus_counts(references, n)
    return _share([(_hits(mine, theirs), sum(mine.values()))])


def _as_a_share(answer, hypotheses, references, n):
    return _as_any_number(answer(hypotheses, references, n))


def _as_any_number(found):
    """A share may be a fraction, too, or a number of NumPy's."""
    found = as_number(found)
    return float(found) if isinstance(found, numbers.Real) and not isinstance(found, bool) else found


def _with_brevity_penalty(hypotheses, references, n):
    written, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    penalty = 1.0 if written > wanted else math.exp(1 - wanted / written)
    return penalty * _right_precision(hypotheses, references, n)


def _glued(words, n, between=""):
    return Counter(between.join(g) for g in _ngrams(words, n).elements())


def _in_any_order(words, n):
    return Counter(tuple(sorted(gram)) for gram in _ngrams(words, n).elements())


def _with_one_added(hypotheses, references, n):
    total = sum(max(len(words) - n + 1, 0) for words in hypotheses)
    return (_right_precision(hypotheses, references, n) * total + 1) / (total + 1)


clipped_precision = Exercise(
    name="clipped_precision",
    trials=_corpora,
    right=_right_precision,
    use=_as_a_share,
    returns=("the share",),
    mistakes={
        "not clipped": Mistake(
            "An n-gram that is repeated counts every time, however rarely the reference has it: *the the the the* "
            "would be perfect. See section 13.5.",
            {"(mine & theirs).total()": "sum(c for g, c in mine.items() if g in theirs)"},
        ),
        "clipped by the corpus": Mistake(
            "The counts are clipped by those of all references together; "
            "a hypothesis may use only what its own reference has. See section 13.5.",
            _clipped_by_the_corpus,
        ),
        "recall": Mistake(
            "The hits are divided by the n-grams of the reference: a precision is a share of what was written. See "
            "section 13.5.",
            {"total += mine": "total += theirs"},
        ),
        "mean of sentences": Mistake(
            "This is the mean of the sentences' shares; hits and n-grams are added up over the corpus and divided "
            "once. See section 13.5.",
            _mean_of_sentences,
        ),
        "mean of sentences, short ones as 0": Mistake(
            "This is the mean of the sentences' shares, those too short for an n-gram as 0; hits and n-grams are added "
            "up over the corpus and divided once. See section 13.5.",
            lambda *inputs: _mean_of_sentences(*inputs, counts=lambda h, n: True),
        ),
        "each kind counted once": Mistake(
            "Every n-gram counts once, however often it occurs: a set forgets how often. See section 13.5.",
            {"(mine & theirs).total()": "len(mine & theirs)", "mine.total()": "len(mine)"},
        ),
        "hits counted once": Mistake(
            "An n-gram that the reference has twice and the hypothesis too is one hit; they are two. See section 13.5.",
            {"(mine & theirs).total()": "len(mine & theirs)"},
        ),
        "last n-gram lost": Mistake(
            "The last n-gram of every sentence is missing: a sentence of 5 words has 4 pairs. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_ngrams(h[:-1], n), _ngrams(r[:-1], n)"},
        ),
        "shorter n-grams at the end": Mistake(
            "The ends of the sentences are counted as n-grams too, though fewer than n words are left there: "
            "a slice that reaches over the end is shorter, and no error. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "(Counter(tuple(s[i : i + n]) for i in range(len(s))) for s in (h, r))"},
        ),
        "across sentences": Mistake(
            "N-grams reach from one sentence into the next: count them in each sentence by itself. See section 13.5.",
            {"    hits =": "    hypotheses, references = _joined(hypotheses), _joined(references)\n    hits ="},
        ),
        "single words": Mistake(
            "These are the hits of single words, whatever n is: count groups of n words that follow each other. See "
            "section 13.5.",
            {"    hits =": "    n = 1\n    hits ="},
        ),
        "order of the words ignored": Mistake(
            "*on the* and *the on* count as the same: the words of an n-gram have an order. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_in_any_order(h, n), _in_any_order(r, n)"},
        ),
        "all orders together": Mistake(
            "The n-grams of all orders from 1 to n are counted together; asked for is one order. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "(sum((_ngrams(s, m + 1) for m in range(n)), Counter()) for s in (h, r))"},
        ),
        "divided by the words": Mistake(
            "The hits are divided by the number of words; a sentence of 5 words has 4 pairs, not 5. See section 13.5.",
            {"mine.total()": "len(h)"},
        ),
        "place by place": Mistake(
            "An n-gram counts only where the reference has it at the very same place; it may stand anywhere in the "
            "reference. See section 13.5.",
            {"(mine & theirs).total()": "sum(h[i : i + n] == r[i : i + n] for i in range(len(h) - n + 1))"},
        ),
        "characters instead of words": Mistake(
            "These are n-grams of characters; BLEU counts words. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_ngrams(' '.join(h), n), _ngrams(' '.join(r), n)"},
        ),
        "short sentences counted below zero": Mistake(
            "A sentence of one word has no triple, and not −1: "
            "the number of n-grams is the length less n plus 1 only where that is not negative. See section 13.5.",
            {"mine.total()": "len(h) - n + 1"},
        ),
        "percentage": Mistake(
            "The share is a hundred times too large: asked for is a number from 0 to 1. See section 13.5.",
            {"return hits": "return 100 * hits"},
        ),
        "count instead of share": Mistake(
            "This is the number of hits; divide it by the number of n-grams that were written. See section 13.5.",
            {"hits / total if total else 0.0": "float(hits)"},
        ),
        "brevity penalty included": Mistake(
            "The brevity penalty is multiplied in; the precision of one n is asked for, and the penalty belongs to "
            "the whole of BLEU. See section 13.5.",
            _with_brevity_penalty,
        ),
        "words glued": Mistake(
            "*a part* and *apart* look alike, as words do that are glued into one string: keep those of an n-gram "
            "apart, in a tuple. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_glued(h, n), _glued(r, n)"},
        ),
        "capitals ignored": Mistake(
            "*The* and *the* count as the same word; the words are compared as they were given. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "(_ngrams([word.lower() for word in s], n) for s in (h, r))"},
        ),
        "divided by the longer": Mistake(
            "The hits are divided by the n-grams of the longer of the two sentences; a precision is a share of what "
            "was written. See section 13.5.",
            {"mine.total()": "max(mine.total(), theirs.total())"},
        ),
        "1 less": Mistake(
            "This is the share of n-grams that are no hits; asked for is that of the hits. See section 13.5.",
            {"hits / total if total else 0.0": "1 - (hits / total if total else 0.0)"},
        ),
        "F-score": Mistake(
            "This is the harmonic mean of precision and recall, an F-score; the precision alone is asked for, the "
            "share of what was written. See section 13.5.",
            {"mine.total()": "(mine.total() + theirs.total()) / 2"},
        ),
        "larger of the two counts": Mistake(
            "The larger of the two counts is taken, so that n-grams count that only the reference has: | joins two "
            "counters, & takes the smaller counts. See section 13.5.",
            {"mine & theirs": "mine | theirs"},
        ),
        "sentences without a hit left out": Mistake(
            "A hypothesis without any hit is left out, its n-grams too: what is wrong has to count below the line. See "
            "section 13.5.",
            {"mine.total()": "mine.total() * bool(mine & theirs)"},
        ),
        "short references left out": Mistake(
            "A hypothesis whose reference is shorter than n is left out; its n-grams were written, and are no hits: "
            "they have to count below the line. See section 13.5.",
            {"total += mine.total()": "total += mine.total() * (len(r) >= n)"},
        ),
        "first sentence only": Mistake(
            "This is the share of the first hypothesis alone, and there are as many as references. See section 13.5.",
            {"    hits =": "    hypotheses, references = hypotheses[:1], references[:1]\n    hits ="},
        ),
        "reference of the first of two alike": Mistake(
            "Of two hypotheses that are alike, the second is compared with the reference of the first: a hypothesis "
            "and its reference have the same place in their lists. See section 13.5.",
            lambda hypotheses, references, n: _right_precision(
                hypotheses, [references[hypotheses.index(h)] for h in hypotheses], n
            ),
        ),
        "one added": Mistake(
            "One is added to the hits and to the n-grams, as some do so that no precision is 0; asked for is "
            "the share itself. See section 13.5.",
            _with_one_added,
        ),
        "mean of the precisions up to n": Mistake(
            "It is the mean of the precisions for 1 to n; asked for is that of n alone. See section 13.5.",
            lambda hypotheses, references, n: (
                sum(_right_precision(hypotheses, references, m) for m in range(1, n + 1)) / n
            ),
        ),
    },
)


# ---------------------------------------------------------------- alignment error


def _alignments(draw):
    def links(count, tgt, src, share):
        table = torch.rand(count, tgt, src, generator=draw.rng) < share
        return [frozenset(map(tuple, t.nonzero().tolist())) for t in table]

    def corpus(count, tgt, src):
        sure = links(count, tgt, src, 0.3)
        possible = [s | p for s, p in zip(sure, links(count, tgt, src, 0.2), strict=True)]
        noise = links(count, tgt, src, 0.2)
        kept = links(count, tgt, src, 0.6)
        predicted = [(p & k) | n for p, k, n in zip(possible, kept, noise, strict=True)]
        return predicted, sure, possible

    yield "one sentence", *corpus(1, 5, 7)
    predicted, sure, _ = corpus(1, 7, 5)
    yield "no links but sure ones", predicted, sure, sure
    predicted, sure, possible = corpus(3, 7, 5)
    yield "several sentences", predicted, sure, possible
    yield (
        "sentences of very different lengths",
        *(a + b for a, b in zip(corpus(3, 2, 2), corpus(1, 11, 7), strict=True)),
    )
    yield (
        "a sentence without a prediction",
        [frozenset(), *predicted],
        [frozenset({(0, 1)}), *sure],
        [frozenset({(0, 1), (1, 1)}), *possible],
    )
    yield "a perfect prediction", sure, sure, possible
    yield "nothing predicted at all", [frozenset()] * len(sure), sure, possible
    yield (
        "a sentence without a sure link",
        [frozenset({(0, 1), (1, 3)}), *predicted],
        [frozenset(), *sure],
        [frozenset({(0, 1), (2, 0)}), *possible],
    )


def _error(rate):
    """An answer from the counts over the corpus: |A|, |S|, |P|, |A ∩ S|, |A ∩ P|, |A ∪ S|."""

    def answer(predicted, sure, possible):
        triples = list(zip(predicted, sure, possible, strict=True))
        return rate(
            sum(len(a) for a, s, p in triples),
            sum(len(s) for a, s, p in triples),
            sum(len(p) for a, s, p in triples),
            sum(len(a & s) for a, s, p in triples),
            sum(len(a & p) for a, s, p in triples),
            sum(len(a | s) for a, s, p in triples),
        )

    return answer


def _mean_error(predicted, sure, possible):
    rates = [_link_error([a], [s], [p]) for a, s, p in zip(predicted, sure, possible, strict=True)]
    return sum(rates) / len(rates)


def _where_predicted(*alignments):
    kept = [links for links in zip(*alignments, strict=True) if links[0]]
    return _link_error(*zip(*kept, strict=True))


def _turned(alignments):
    return [{(s, t) for t, s in links} for links in alignments]


def _give_sets(answer, predicted, sure, possible):
    before = predicted, sure, possible
    given = tuple([set(a) for a in links] for links in before)
    found = _as_any_number(answer(*given))
    is_right = isinstance(found, float) and math.isclose(found, _link_error(*before), abs_tol=1e-6)
    if is_right and any(list(a) != [set(s) for s in b] for a, b in zip(given, before, strict=True)):
        raise Remark(
            "The sets of links hold other links afterwards: whoever called it needs them again. See section 13.18.",
            CHANGES_ITS_INPUT,
        )
    return found


def _link_error(predicted, sure, possible):
    hits = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        hits += len(a & s) + len(a & p)
        total += len(a) + len(s)
    return 1 - hits / total


link_error = Exercise(
    name="link_error",
    trials=_alignments,
    right=_link_error,
    use=_give_sets,
    returns=("the rate",),
    mistakes={
        "precision": Mistake(
            "This is one minus the precision: a link that is missing costs nothing. See section 13.18.",
            {"len(a & s) + ": "", "len(a) + len(s)": "len(a)"},
        ),
        "recall": Mistake(
            "This is one minus the recall of the sure links: a link that should not be there costs nothing. See "
            "section 13.18.",
            {" + len(a & p)": "", "len(a) + len(s)": "len(s)"},
        ),
        "possible links ignored": Mistake(
            "A predicted link that is possible and not sure counts as wrong: of the two hits in the formula, the "
            "second is among the possible ones. See section 13.18.",
            {"len(a & p)": "len(a & s)"},
        ),
        "possible links demanded": Mistake(
            "Possible links that were not predicted count as missing: they may be there and need not, "
            "so below the line stand the sure ones. See section 13.18.",
            {"len(a) + len(s)": "len(a) + len(p)"},
        ),
        "possible links only": Mistake(
            "Both hits are counted among the possible links; the first is among the sure ones. See section 13.18.",
            {"len(a & s)": "len(a & p)"},
        ),
        "possible links without the sure": Mistake(
            "A predicted link that is sure counts as one hit, and should count as two: what is sure is possible too, "
            "and counts in both. See section 13.18.",
            {"len(a & p)": "len(a & (p - s))"},
        ),
        "harmonic mean": Mistake(
            "This is one minus the harmonic mean of precision and recall, which is the rate only where "
            "all links are sure. Add hits and links first and divide once. See section 13.18.",
            _error(lambda A, S, P, AS, AP, AuS: 1 - 2 * AP * AS / (AP * S + AS * A)),
        ),
        "score instead of error": Mistake(
            "This is how much is right; asked for is one minus that, so that 0 is best. See section 13.18.",
            {"1 - hits": "hits"},
        ),
        "mean of sentences": Mistake(
            "This is the mean of the sentences' rates; links are counted over the corpus and divided once. See section "
            "13.18.",
            sign=lambda found, predicted, sure, possible: (
                math.isclose(found, _mean_error(predicted, sure, possible), rel_tol=1e-6)
                if all(a or s for a, s in zip(predicted, sure, strict=True))
                else None
            ),
        ),
        "divided by the union": Mistake(
            "The hits are divided by the links that are in either; below the line stands |A| + |S|, "
            "where a link that is in both counts twice. See section 13.18.",
            {" + len(a & p)": "", "len(a) + len(s)": "len(a | s)"},
        ),
        "hits counted once": Mistake(
            "Even a perfect prediction has an error of a half or more: below the line every sure hit stands twice, "
            "so above it there are two counts of hits as well. See section 13.18.",
            {" + len(a & p)": ""},
        ),
        "links turned around": Mistake(
            "The predicted links are the other way round than those they are compared with: in all three a link is "
            "(place of the target word, place of the source word). See section 13.18.",
            {"    hits =": "    predicted = _turned(predicted)\n    hits ="},
        ),
        "sentences thrown together": Mistake(
            "The same link in two sentences is counted once: count in each sentence by itself. See section 13.18.",
            lambda *alignments: _link_error(*([set().union(*a)] for a in alignments)),
        ),
        "divided by the predicted links": Mistake(
            "Both hits are divided by the predicted links alone; below the line stands |A| + |S|. See section 13.18.",
            {"len(a) + len(s)": "len(a)"},
        ),
        "percentage": Mistake(
            "The rate is a hundred times too large: asked for is a number from 0 to 1. See section 13.18.",
            {"1 - hits / total": "100 * (1 - hits / total)"},
        ),
        "mean of precision and recall": Mistake(
            "This is one minus the mean of precision and recall; "
            "the rate adds hits and links first and divides once. See section 13.18.",
            _error(lambda A, S, P, AS, AP, AuS: 1 - (AP / A + AS / S) / 2),
        ),
        "unions instead of intersections": Mistake(
            "Links count as hits that only one of the two sets has: | joins two sets, & keeps what both of them have. "
            "See section 13.18.",
            {"a & s": "a | s", "a & p": "a | p"},
        ),
        "predicted links cut down": Mistake(
            "Predicted links that are wrong do not count below the line either: all that were predicted stand there. "
            "See section 13.18.",
            {"        hits": "        a = a & p\n        hits"},
        ),
        "hits by the union": Mistake(
            "The hits are right, and divided by the number of links in the union; below the line the predicted and the "
            "sure links are added up, also those that are both. See section 13.18.",
            {"len(a) + len(s)": "len(a | s)"},
        ),
        "fraction without brackets": Mistake(
            "The hits are divided by the number of predicted links alone, and that of the sure ones is added to the "
            "rate, instead of standing below the line too. See section 13.18.",
            _error(lambda A, S, P, AS, AP, AuS: 1 - (AS + AP) / A + S),
        ),
        "sentences without a prediction left out": Mistake(
            "Sentence pairs for which nothing was predicted are left out, and their sure links with them: what "
            "is missing counts as an error. See section 13.18.",
            sign=lambda found, predicted, sure, possible: (
                math.isclose(found, _where_predicted(predicted, sure, possible), abs_tol=1e-6)
                if any(predicted)
                else None
            ),
        ),
        "sentences without a sure link left out": Mistake(
            "Sentence pairs without a sure link are left out, and what was predicted for them: a link that is neither "
            "sure nor possible counts as an error there, too. See section 13.18.",
            {"        hits +=": "        if not s:\n            continue\n        hits +="},
        ),
        "nothing predicted is no error": Mistake(
            "Where nothing is predicted in the whole corpus the rate is 0, as if all were right: every sure link is "
            "missing there, and the rate is 1. See section 13.18.",
            {"1 - hits / total": "1 - hits / total if any(predicted) else 0.0"},
        ),
        "first sentence only": Mistake(
            "This is the rate of the first sentence pair alone: count in all of them. See section 13.18.",
            {"    hits =": "    predicted, sure, possible = predicted[:1], sure[:1], possible[:1]\n    hits ="},
        ),
    },
)
