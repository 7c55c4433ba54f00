"""The exercises of the chapter on decoding and evaluating. Used from chapter 13 on."""

import math
import numbers
from collections import Counter

import torch
from torch import Tensor

from attn_course.exercises.engine.convert_output import as_integers, as_number, where
from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark
from attn_course.exercises.engine.mutants import Edited

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
            raise Remark("Your loop does not stop after `max_len` tokens. See section 13.1.")
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
            "Your function calls the model with the last token only, so the model does not see the earlier ones. Pass "
            "the whole list of ids in every step. See section 13.1.",
            {"next_logits(ids)": "next_logits(ids[-1:])"},
        ),
        "first row": Mistake(
            "Your function takes every token from the first row of the logits, which predicts the token after the "
            "beginning. The last row predicts the next token. See section 13.1.",
            {"[-1].argmax": "[0].argmax"},
        ),
        "largest of all rows": Mistake(
            "Your function looks for the largest logit in all rows at once. Only the last row predicts the next "
            "token. See section 13.1.",
            {"[-1].argmax": ".argmax"},
        ),
        "largest of all rows, as a token": Mistake(
            "Your function takes the token with the largest logit in any of the rows. Only the last row predicts the "
            "next token. See section 13.1.",
            {"[-1].argmax())": ".amax(dim=0).argmax())"},
        ),
        "beginning returned": Mistake(
            "Your function returns the beginning token as the first id. The beginning token is only an input, so "
            "leave it out of the result. See section 13.1.",
            {"ids[1:]": "ids"},
        ),
        "end not returned": Mistake(
            "Your function leaves the end token out of the result. The model writes the end token like every other "
            "token, so return it, too. See section 13.1.",
            {"return ids[1:]": "return [i for i in ids[1:] if i != eos_id]"},
        ),
        "goes on after the end": Mistake(
            "Your function continues after the end token. Nothing after the end token belongs to the sentence, so "
            "leave the loop there. See section 13.1.",
            {"        if ids[-1] == eos_id:\n            break\n": ""},
        ),
        "does not stop": Mistake(
            "Your function does not stop if the model never writes the end token. Stop the loop after `max_len` "
            "tokens. See section 13.1.",
            {"len(ids) <= max_len": "True"},
        ),
        "one token too few": Mistake(
            "Your function writes at most max_len − 1 tokens. It should write up to `max_len` tokens, and the "
            "beginning token is not counted. See section 13.1.",
            {"<= max_len": "< max_len"},
        ),
        "one token too many": Mistake(
            "Your function returns max_len + 1 tokens when a sentence is cut off. At most `max_len` tokens are "
            "allowed. See section 13.1.",
            {"<= max_len": "<= max_len + 1"},
        ),
        "end added": Mistake(
            "Your function adds an end token to a sentence that is cut off at `max_len`. Return only tokens that the "
            "model wrote. See section 13.1.",
            {"ids[1:]": "ids[1:] if ids[-1] == eos_id else [*ids[1:], eos_id]"},
        ),
        "end over the last token": Mistake(
            "Your function replaces the last token of a sentence that is cut off with the end token. Return the token "
            "that the model wrote. See section 13.1.",
            {"ids[1:]": "ids[1:] if len(ids) == 1 or ids[-1] == eos_id else [*ids[1:-1], eos_id]"},
        ),
        "least probable": Mistake(
            "Your function takes the token with the smallest logit. The most probable token has the largest logit. "
            "See section 13.1.",
            {"argmax": "argmin"},
        ),
        "drawn at random": Mistake(
            "Your function draws each token at random. Greedy search always takes the most probable token. See "
            "section 13.1.",
            {"argmax()": "softmax(-1).multinomial(1)"},
        ),
        "stops at the beginning": Mistake(
            "Your function stops when the model writes the beginning token. Only the end token, `eos_id`, ends a "
            "sentence. See section 13.1.",
            {"== eos_id": "in (eos_id, bos_id)"},
        ),
        "beginning left out": Mistake(
            "Your function removes every beginning token from the list, including those that the model wrote. Leave "
            "out only the first one, which is an input. See section 13.1.",
            {"ids[1:]": "[i for i in ids if i != bos_id]"},
        ),
        "tensors in the list": Mistake(
            "Your function returns a list that contains tensors. Return Python integers: `.item()` turns a tensor "
            "with one number into a Python number. See section 13.1.",
            sign=lambda found, *inputs: "tensors in a list" in str(found),
        ),
        "ids of another type": Mistake(
            "Your function returns ids that are not of the type int. Convert them to Python integers with int(). See "
            "section 13.1.",
            sign=lambda found, *inputs: "with numbers of the type" in str(found),
        ),
        "a tensor instead of a list": Mistake(
            "Your function returns a tensor. The exercise asks for a list of Python integers. See section 13.1.",
            sign=lambda found, *inputs: "one tensor" in str(found),
        ),
        "first row of the last": Mistake(
            "Your function takes each token after the first from the row before the last, which predicts the token "
            "that was written last. The last row predicts the next token. See section 13.1.",
            {"(ids)[-1]": "(ids)[max(len(ids) - 2, 0)]"},
        ),
        "beginning counted": Mistake(
            "Your function returns the beginning token and counts it as one of the `max_len` tokens. The beginning "
            "token is only an input, so neither return it nor count it. See section 13.1.",
            {"<=": "<", "ids[1:]": "ids"},
        ),
        "last token only": Mistake(
            "Your function returns only the last token. Return all tokens that the model wrote. See section 13.1.",
            {"ids[1:]": "ids[-1:]"},
        ),
        "one token whatever is allowed": Mistake(
            "Your function writes one token when `max_len` is 0. It should return an empty list in this case. See "
            "section 13.1.",
            {"<= max_len": "<= max(max_len, 1)"},
        ),
        "filled up with ends": Mistake(
            "Your function fills the list with end tokens up to `max_len`. The list should stop at the first end "
            "token. See section 13.1.",
            {"ids[1:]": "ids[1:] + [eos_id] * (max_len + 1 - len(ids))"},
        ),
        "first token lost": Mistake(
            "Your function leaves out the first token that the model wrote. Leave out only the beginning token. See "
            "section 13.1.",
            {"ids[1:]": "ids[2:]"},
        ),
        "first token only": Mistake(
            "Your function returns only the first token. Continue until the model writes the end token or `max_len` "
            "tokens are written. See section 13.1.",
            {"        if ids[-1] == eos_id:\n            break": "        break"},
        ),
        "exponentials without a softmax": Mistake(
            "Your function writes token 0 again and again when the logits are near 300. In float32, the exponentials "
            "of all these logits are infinite and therefore equal. Compare the logits themselves. See section 13.1.",
            {"[-1].argmax": "[-1].exp().argmax"},
        ),
        "softmax over the positions": Mistake(
            "Your function computes the softmax over the first axis, so it compares each token with the same token in "
            "other rows. The vocabulary is the last axis. See section 13.1.",
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
            "Your function chooses the K continuations by the log-probabilities of the new tokens, and it adds "
            "`log_probs` only afterwards. Add `log_probs` before you choose. See section 13.2.",
            sign=where(_is_sure, _by_the_new_token_alone),
        ),
        "chosen by the new token alone, in its order": Mistake(
            "Your function chooses and sorts the K continuations by the log-probabilities of the new tokens alone. "
            "Add `log_probs` before you choose and sort. See section 13.2.",
            {
                "totals = log_probs[:, None] + ": "totals = ",
                "% V, best": "% V, best + log_probs[index // V]",
            },
        ),
        "each beam keeps its best": Mistake(
            "Your function keeps the best continuation of each beam. Choose the K best of all K · V continuations: a "
            "good beam may have several of them, and a bad beam none. See section 13.2.",
            sign=where(_is_sure, _each_its_own),
        ),
        "two of each beam": Mistake(
            "Your function keeps at most two continuations of each beam, but three of the K best can come from the "
            "same beam. Choose the K best of all K · V continuations. See section 13.2.",
            sign=where(_is_sure, _two_of_each),
        ),
        "each beam keeps its best, unsorted": Mistake(
            "Your function keeps the best continuation of each beam, in the order of the beams. Choose the K best of "
            "all K · V continuations, and return them best first. See section 13.2.",
            sign=where(_is_sure, _each_its_own_unsorted),
        ),
        "old log-probabilities forgotten": Mistake(
            "Your function ignores `log_probs`, the log-probabilities of the beams so far. Add them to the "
            "log-probabilities of the new tokens. See section 13.2.",
            {"log_probs[:, None] + ": ""},
        ),
        "multiplied instead of added": Mistake(
            "Your function multiplies log-probabilities. A product of probabilities is a sum of their logarithms, so "
            "add them. See section 13.1.",
            {"[:, None] +": "[:, None] *"},
        ),
        "parents and tokens swapped": Mistake(
            "Your function swaps parents and tokens. In a flattened table of shape (K, V), the quotient by V is the "
            "row and the remainder is the column. See section 13.2.",
            {"index // V, index % V": "index % V, index // V"},
        ),
        "divided by the number of beams": Mistake(
            "Your function divides the flat indices by K. Each row of the table of shape (K, V) has V entries, so "
            "divide by V. See section 13.2.",
            {"index // V, index % V": "index // K, index % K"},
        ),
        "flat places as tokens": Mistake(
            "Your function returns indices of the flattened table as tokens, and these indices can be V or larger. "
            "The remainder after division by V is the token. See section 13.2.",
            {"index % V": "index"},
        ),
        "smallest instead of largest": Mistake(
            "Your function returns the K least probable continuations. Log-probabilities are negative, and the best "
            "ones are closest to 0. See section 13.1.",
            sign=where(_is_sure, Edited(_step, {"topk(K)": "topk(K, largest=False)"})),
        ),
        "worst first": Mistake(
            "Your function returns the K best continuations with the worst one first. Return the best one first. See "
            "section 13.2.",
            {"    return": "    best, index = best.flip(0), index.flip(0)\n    return"},
        ),
        "no axis for the tokens": Mistake(
            "Your function adds shapes (K,) and (K, V) directly, so PyTorch adds `log_probs` to the columns or stops "
            "with an error. Give `log_probs` an axis of length 1 for the tokens. See section 13.2.",
            {"log_probs[:, None]": "log_probs"},
        ),
        "no axis for the tokens, added behind": Mistake(
            "Your function aligns `log_probs` with the columns of the table of shape (K, V), but each beam is a row. "
            "Give `log_probs` an axis of length 1 for the tokens. See section 13.2.",
            {"log_probs[:, None] + next_log_probs": "next_log_probs + log_probs"},
        ),
        "new log-probabilities as totals": Mistake(
            "Your function returns the log-probabilities of the new tokens as totals. The next step needs the sums of "
            "the old and the new log-probabilities. See section 13.2.",
            {"% V, best": "% V, next_log_probs.flatten()[index]"},
        ),
        "probabilities as totals": Mistake(
            "Your function returns probabilities as totals. Return log-probabilities, because the next step adds "
            "logarithms to them. See section 13.1.",
            sign=where(_is_sure, Edited(_step, {"index % V, best": "index % V, best.exp()"})),
        ),
        "only the best beam": Mistake(
            "Your function returns only continuations of the best beam. Choose among the continuations of all beams. "
            "See section 13.2.",
            sign=where(_is_sure, _only_the_best_beam),
        ),
        "more of a row than it has": Mistake(
            "Your function stops with an error when V is smaller than K, because it takes K tokens from a row of V. "
            "The whole table has K · V entries, which is always enough. See section 13.2.",
            _best_of_each_row_first,
        ),
        "K of each beam": Mistake(
            "Your function returns K · K totals, K for each beam. Return only the K best of all beams together. See "
            "section 13.2.",
            sign=lambda found, log_probs, following: (
                None
                if len(log_probs) == 1 or len(log_probs) > following.size(1)
                else found[2].shape == (len(log_probs),) * 2
            ),
        ),
        "divided without rounding": Mistake(
            "Your function returns fractions as parents. A row has a whole number, so use integer division. See "
            "section 13.2.",
            {"index // V": "index / V"},
        ),
        "results in another order": Mistake(
            "Your function returns its three results in the wrong order. The order is parents, tokens, totals. See "
            "section 13.2.",
            {"index // V, index % V, best": "best, index // V, index % V"},
        ),
        "mean of the two": Mistake(
            "Your function returns the mean of the old and the new log-probability as the total. The logarithm of a "
            "product is a sum, so add them. See section 13.1.",
            {"log_probs[:, None] + next_log_probs": "(log_probs[:, None] + next_log_probs) / 2"},
        ),
        "probabilities added": Mistake(
            "Your function adds probabilities. The probability of a sentence is a product of probabilities, so add "
            "their logarithms. See section 13.1.",
            {"log_probs[:, None] + next_log_probs": "log_probs.exp()[:, None] + next_log_probs.exp()"},
        ),
        "softmax once more": Mistake(
            "Your function adds probabilities of the new tokens to logarithms. `next_log_probs` already contains "
            "logarithms, so add them unchanged. See section 13.1.",
            {"+ next_log_probs": "+ next_log_probs.softmax(-1)"},
        ),
        "K of all rows, unsorted by beams": Mistake(
            "Your function returns the K best continuations in the order of their beams. Sort them so that the best "
            "one comes first. See section 13.2.",
            {"    return": "    order = index.argsort()\n    best, index = best[order], index[order]\n    return"},
        ),
        "tokens over the beams": Mistake(
            "Your function returns V totals, one for each token. Return the K best of all K · V continuations. See "
            "section 13.2.",
            sign=lambda found, log_probs, following: (
                None
                if len(log_probs) in (1, following.size(1)) or log_probs.isinf().any()
                else found[2].shape == (following.size(1),)
            ),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The caller still needs the tensors that your function gets. Write the sums to a new tensor. See section "
            "5.17."
        ),
        "probabilities on the way": Mistake(
            "Your function returns totals of −∞ for long sentences. Their probabilities are so small that they round "
            "to 0, so add log-probabilities without converting them. See section 13.1.",
            sign=lambda found, log_probs, following: (
                bool((log_probs < -80).all() and found[2].isinf().any()) if log_probs.isfinite().all() else None
            ),
        ),
        "axis lost with one beam": Mistake(
            "Your function returns results without an axis when K is 1. Return the shape (K,) for every K, and "
            "squeeze nothing. See section 13.2.",
            sign=lambda found, log_probs, following: len(log_probs) == 1 and all(part.dim() == 0 for part in found),
        ),
        "places after sorting as tokens": Mistake(
            "Your function returns positions in a sorted row as tokens. A token is the column of the original table. "
            "See section 13.2.",
            sign=where(_is_sure, _places_after_sorting),
        ),
        "places after sorting as parents": Mistake(
            "Your function returns positions among sorted beams as parents. A parent is the index of the beam in the "
            "original `log_probs`. See section 13.2.",
            _places_after_sorting_the_beams,
        ),
        "a finite number for −∞": Mistake(
            "Your function returns a finite total for an impossible continuation. Its log-probability is −∞, and "
            "adding a number does not change this. See section 13.1.",
            sign=_impossible_is_finite,
        ),
        "impossible ones left out": Mistake(
            "Your function returns fewer than K continuations when fewer than K are possible. Return the shape (K,) "
            "in every case: the total of an impossible continuation is −∞. See section 13.2.",
            sign=_impossible_left_out,
        ),
        "one continuation twice": Mistake(
            "Your function returns the same pair of parent and token more than once. Return K different "
            "continuations, even if their totals are equal. See section 13.2.",
            sign=_one_comes_twice,
        ),
        "totals shared out": Mistake(
            "Your function applies a softmax to the whole table of totals. Each total should be a plain sum of two "
            "log-probabilities. See section 13.2.",
            sign=where(_is_sure, _shared_out),
        ),
        "lists instead of tensors": Mistake(
            "Your function returns some of the results as Python lists. Return tensors of shape (K,): `topk` on the "
            "flattened table gives such tensors without a loop. See section 13.2.",
            sign=_in_lists,
        ),
        "each token once": Mistake(
            "Your function returns each token at most once, because it keeps only the best beam for each token. Two "
            "beams may continue with the same token. See section 13.2.",
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
            "Your function drops tokens whose probability is below p itself, so a row can lose all its tokens. The "
            "limit is p times the largest probability of the row. See section 13.4.",
            {" * probs.amax(dim=-1, keepdim=True)": ""},
        ),
        "logits instead of probabilities": Mistake(
            "Your function compares logits instead of probabilities. If we add 40 to all logits, the probabilities "
            "stay the same, but your function keeps other tokens. Compare probabilities. See section 13.4.",
            {"logits.softmax(-1)": "logits"},
        ),
        "logarithm to the base 10": Mistake(
            "Your function compares the logits with the largest logit plus log₁₀ p. Logits are natural logarithms, so "
            "use the natural logarithm of p. See section 13.4.",
            lambda logits, p: logits.masked_fill(logits - _top(logits) < math.log10(p), -math.inf),
        ),
        "places after sorting": Mistake(
            "Your function finds the right tokens in the sorted row, but it applies this mask to the unsorted row. "
            "Keep the tokens at their own positions. See section 13.4.",
            lambda logits, p: logits.masked_fill(
                ~_rightly(logits.softmax(-1).sort(dim=-1, descending=True).values, logits, p), -math.inf
            ),
        ),
        "one maximum for all": Mistake(
            "Your function uses the largest probability of the whole batch for all rows. Use the largest probability "
            "of each row. See section 13.4.",
            {"amax(dim=-1, keepdim=True)": "max()"},
        ),
        "maximum over the batch": Mistake(
            "Your function takes the largest probability along the first axis, so it compares each token with the "
            "same token in other rows. Take it along the last axis. See section 13.4.",
            {"dim=-1": "dim=0"},
        ),
        "softmax over the batch": Mistake(
            "Your function computes the softmax over the first axis. Each row has its own probabilities, so compute "
            "the softmax over the last axis. See section 13.4.",
            {"softmax(-1)": "softmax(0)"},
        ),
        "the others kept": Mistake(
            "Your function drops the probable tokens and keeps the improbable ones. See section 13.4.",
            {"probs < p": "probs >= p"},
        ),
        "dropped logits set to 0": Mistake(
            "Your function sets the dropped logits to 0. Because e⁰ is 1, these tokens can still be drawn. Which "
            "logit has the probability 0? See section 13.4.",
            sign=lambda found, logits, p: (
                torch.allclose(found, logits.where(_rightly(logits.softmax(-1), logits, p), 0.0))
                if logits.isfinite().all()
                else None
            ),
        ),
        "probabilities returned": Mistake(
            "Your function returns probabilities. Return logits, so that other filters can follow. See section 13.4.",
            {"return logits": "return probs", "-math.inf": "0.0"},
        ),
        "probabilities among −∞": Mistake(
            "Your function replaces the kept logits with probabilities. Return the kept logits unchanged. See section "
            "13.4.",
            {"return logits": "return probs"},
        ),
        "renormalised probabilities": Mistake(
            "Your function returns the probabilities after the filter. Return the logits that give these "
            "probabilities. See section 13.4.",
            {"-math.inf)": "-math.inf).softmax(-1)"},
        ),
        "logarithms of probabilities returned": Mistake(
            "Your function keeps the right tokens, but it returns the logarithms of their probabilities. Return the "
            "kept logits unchanged. See section 13.4.",
            {"return logits": "return logits.log_softmax(-1)"},
        ),
        "above instead of at least": Mistake(
            "Your function drops all tokens when p is 1. A token that reaches the limit exactly is kept, so the most "
            "probable token always stays. See section 13.4.",
            {"probs < p": "probs <= p"},
        ),
        "one minus p": Mistake(
            "Your function uses the factor 1 − p for the limit. The limit is p times the largest probability of the "
            "row. See section 13.4.",
            {"p * probs": "(1 - p) * probs"},
        ),
        "top-p": Mistake(
            "Your function keeps the fewest tokens whose probabilities sum to p, which is top-p. Min-p compares each "
            "token with the most probable token of its row. See section 13.4.",
            {"probs < p * probs.amax(dim=-1, keepdim=True)": "~_nucleus(probs, logits, p)"},
        ),
        "distance instead of factor": Mistake(
            "Your function keeps tokens whose probability is at most p below the largest one. The limit is p times "
            "the largest probability, so p is a factor and not a difference. See section 13.4.",
            {"p * probs.amax(dim=-1, keepdim=True)": "probs.amax(dim=-1, keepdim=True) - p"},
        ),
        "p without its logarithm": Mistake(
            "Your function compares the logits with the largest logit minus p. A factor of p between probabilities is "
            "a difference of log p between logits. See section 13.4.",
            {
                "logits.softmax(-1)": "logits",
                "p * probs.amax(dim=-1, keepdim=True)": "probs.amax(dim=-1, keepdim=True) - p",
            },
        ),
        "a large negative number instead of −∞": Mistake(
            "Your function sets the dropped logits to a very negative number. Use −∞, the logit of the probability 0. "
            "See section 13.4.",
            sign=_very_negative,
        ),
        "a mask instead of logits": Mistake(
            "Your function returns a mask of True and False. Return logits, with −∞ for the dropped tokens. See "
            "section 13.4.",
            sign=lambda found, logits, p: found.dtype == torch.bool,
        ),
        "only what is kept": Mistake(
            "Your function returns only the kept logits. The position of a logit identifies its token, so return the "
            "shape of the input. See section 13.4.",
            {".masked_fill(probs < ": "[probs >= ", ", -math.inf)": "]"},
        ),
        "only the probabilities that are kept": Mistake(
            "Your function returns only the probabilities of the kept tokens, without their positions. Return logits "
            "in the shape of the input. See section 13.4.",
            {"return logits.masked_fill(probs < ": "return probs[probs >= ", ", -math.inf)": "]"},
        ),
        "maximum of the logits": Mistake(
            "Your function compares logits with p times the largest probability. Compare probabilities with this "
            "limit. See section 13.4.",
            {"probs < p": "logits < p"},
        ),
        "top-k": Mistake(
            "Your function keeps the same number of tokens in each row, however probable they are. Compare each token "
            "with the most probable token of its row. See section 13.4.",
            {
                "probs < p *": "probs.argsort(-1, descending=True).argsort(-1) >= max(1, int(p * logits.size(-1)))",
                " probs.amax(dim=-1, keepdim=True)": "",
            },
        ),
        "mean instead of the largest": Mistake(
            "Your function computes the limit from the mean probability of the row. The limit is p times the largest "
            "probability. See section 13.4.",
            {"amax(": "mean("},
        ),
        "axis of the maximum lost": Mistake(
            "Your function removes the last axis of the largest probabilities, so they do not match the rows. Keep "
            "this axis with keepdim=True. See section 13.4.",
            {", keepdim=True": ""},
        ),
        "+∞": Mistake(
            "Your function sets the dropped logits to +∞. Which logit has the probability 0? See section 13.4.",
            {"-math.inf": "math.inf"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Other code may need the original logits of the model. Write the result to a new tensor. See section 13.4."
        ),
        "exponentials without a softmax": Mistake(
            "Your function drops nothing when the logits are in the hundreds, because their exponentials are "
            "infinite. A softmax subtracts the largest logit first. See section 13.4.",
            {"softmax(-1)": "exp()"},
        ),
        "one maximum subtracted for all": Mistake(
            "Your function drops nothing in a row whose logits are about 300 below those of another row. Before you "
            "compute exponentials, subtract the largest logit of each row. See section 13.4.",
            {"logits.softmax(-1)": "(logits - logits.max()).exp()"},
        ),
        "first axis": Mistake(
            "Your function computes the softmax and the maximum over the first axis. The tokens are on the last axis. "
            "See section 13.4.",
            {"softmax(-1)": "softmax(0)", "dim=-1": "dim=0"},
        ),
        "axis 1": Mistake(
            "Your function takes the maximum over axis 1, which is right only for the shape (B, V). The tokens are on "
            "the last axis, -1, for any number of leading axes. See section 13.4.",
            {"dim=-1": "dim=1"},
        ),
        "softmax and maximum along axis 1": Mistake(
            "Your function computes the softmax and the maximum over axis 1, which is right only for the shape (B, "
            "V). The tokens are on the last axis, -1, for any number of leading axes. See section 13.4.",
            {"softmax(-1)": "softmax(1)", "dim=-1": "dim=1"},
        ),
        "renormalised": Mistake(
            "Your function drops the right tokens, but it changes the kept logits to logarithms of probabilities that "
            "sum to 1 again. Return the kept logits unchanged. See section 13.4.",
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
            "Your function counts a repeated n-gram every time, even if the reference contains it only once. Without "
            "clipping, *the the the the* could be perfect. See section 13.5.",
            {"(mine & theirs).total()": "sum(c for g, c in mine.items() if g in theirs)"},
        ),
        "clipped by the corpus": Mistake(
            "Your function clips the counts with all references together. Clip the counts of each hypothesis with its "
            "own reference. See section 13.5.",
            _clipped_by_the_corpus,
        ),
        "recall": Mistake(
            "Your function divides the hits by the number of n-grams in the references. For the precision, divide by "
            "the number of n-grams in the hypotheses. See section 13.5.",
            {"total += mine": "total += theirs"},
        ),
        "mean of sentences": Mistake(
            "Your function returns the mean of the precisions of single sentences. Add up the hits and the n-grams of "
            "all sentences, and divide once. See section 13.5.",
            _mean_of_sentences,
        ),
        "mean of sentences, short ones as 0": Mistake(
            "Your function returns the mean of the precisions of single sentences, with 0 for a sentence that is too "
            "short. Add up the hits and the n-grams of all sentences, and divide once. See section 13.5.",
            lambda *inputs: _mean_of_sentences(*inputs, counts=lambda h, n: True),
        ),
        "each kind counted once": Mistake(
            "Your function counts each n-gram once, however often it occurs. A set does not store how often an n-gram "
            "occurs. See section 13.5.",
            {"(mine & theirs).total()": "len(mine & theirs)", "mine.total()": "len(mine)"},
        ),
        "hits counted once": Mistake(
            "Your function counts one hit for an n-gram that both the hypothesis and the reference contain twice. "
            "Count two hits. See section 13.5.",
            {"(mine & theirs).total()": "len(mine & theirs)"},
        ),
        "last n-gram lost": Mistake(
            "Your function misses the last n-gram of every sentence. A sentence of 5 words has 4 pairs of words. See "
            "section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_ngrams(h[:-1], n), _ngrams(r[:-1], n)"},
        ),
        "shorter n-grams at the end": Mistake(
            "Your function also counts the ends of the sentences, which have fewer than n words. A slice that reaches "
            "beyond the end of a list is shorter, and Python raises no error. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "(Counter(tuple(s[i : i + n]) for i in range(len(s))) for s in (h, r))"},
        ),
        "across sentences": Mistake(
            "Your function counts n-grams that begin in one sentence and end in the next. Count the n-grams of each "
            "sentence separately. See section 13.5.",
            {"    hits =": "    hypotheses, references = _joined(hypotheses), _joined(references)\n    hits ="},
        ),
        "single words": Mistake(
            "Your function counts single words for every n. Count sequences of n consecutive words. See section 13.5.",
            {"    hits =": "    n = 1\n    hits ="},
        ),
        "order of the words ignored": Mistake(
            "Your function ignores the order of the words in an n-gram, so *on the* equals *the on*. Keep the words "
            "in order. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_in_any_order(h, n), _in_any_order(r, n)"},
        ),
        "all orders together": Mistake(
            "Your function counts the n-grams of all lengths from 1 to n together. Count only n-grams of length n. "
            "See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "(sum((_ngrams(s, m + 1) for m in range(n)), Counter()) for s in (h, r))"},
        ),
        "divided by the words": Mistake(
            "Your function divides the hits by the number of words. Divide by the number of n-grams: a sentence of 5 "
            "words has 4 pairs of words, not 5. See section 13.5.",
            {"mine.total()": "len(h)"},
        ),
        "place by place": Mistake(
            "Your function counts an n-gram only if the reference has it at the same position. It may be anywhere in "
            "the reference. See section 13.5.",
            {"(mine & theirs).total()": "sum(h[i : i + n] == r[i : i + n] for i in range(len(h) - n + 1))"},
        ),
        "characters instead of words": Mistake(
            "Your function counts n-grams of characters. BLEU counts n-grams of words. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_ngrams(' '.join(h), n), _ngrams(' '.join(r), n)"},
        ),
        "short sentences counted below zero": Mistake(
            "Your function computes a negative number of n-grams for a very short sentence. A sentence of one word "
            "has 0 sequences of three words, not −1. See section 13.5.",
            {"mine.total()": "len(h) - n + 1"},
        ),
        "percentage": Mistake(
            "Your function returns a percentage, which is a hundred times too large. Return a number from 0 to 1. See "
            "section 13.5.",
            {"return hits": "return 100 * hits"},
        ),
        "count instead of share": Mistake(
            "Your function returns the number of hits. Divide it by the number of n-grams in the hypotheses. See "
            "section 13.5.",
            {"hits / total if total else 0.0": "float(hits)"},
        ),
        "brevity penalty included": Mistake(
            "Your function multiplies the precision by the brevity penalty. Return the precision for one n, without "
            "the penalty. See section 13.5.",
            _with_brevity_penalty,
        ),
        "words glued": Mistake(
            "Your function joins the words of an n-gram into one string, so *a part* equals *apart*. Keep the words "
            "separate, in a tuple. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "_glued(h, n), _glued(r, n)"},
        ),
        "capitals ignored": Mistake(
            "Your function treats *The* and *the* as the same word. Compare the words as they are. See section 13.5.",
            {"_ngrams(h, n), _ngrams(r, n)": "(_ngrams([word.lower() for word in s], n) for s in (h, r))"},
        ),
        "divided by the longer": Mistake(
            "Your function divides the hits by the number of n-grams in the longer of both sentences. Divide by the "
            "number of n-grams in the hypothesis. See section 13.5.",
            {"mine.total()": "max(mine.total(), theirs.total())"},
        ),
        "1 less": Mistake(
            "Your function returns the share of n-grams that are not hits. Return the share of hits. See section 13.5.",
            {"hits / total if total else 0.0": "1 - (hits / total if total else 0.0)"},
        ),
        "F-score": Mistake(
            "Your function returns the harmonic mean of precision and recall, which is an F-score. Return the "
            "precision alone. See section 13.5.",
            {"mine.total()": "(mine.total() + theirs.total()) / 2"},
        ),
        "larger of the two counts": Mistake(
            "Your function takes the larger of both counts, so it also counts n-grams that only the reference "
            "contains. For two counters, | keeps the larger counts, and & keeps the smaller ones. See section 13.5.",
            {"mine & theirs": "mine | theirs"},
        ),
        "sentences without a hit left out": Mistake(
            "Your function leaves out the n-grams of a hypothesis without any hit. These n-grams are wrong, so count "
            "them in the denominator. See section 13.5.",
            {"mine.total()": "mine.total() * bool(mine & theirs)"},
        ),
        "short references left out": Mistake(
            "Your function leaves out a hypothesis whose reference is shorter than n. The n-grams of this hypothesis "
            "are not hits, so count them in the denominator. See section 13.5.",
            {"total += mine.total()": "total += mine.total() * (len(r) >= n)"},
        ),
        "first sentence only": Mistake(
            "Your function returns the precision of the first hypothesis only. Use all hypotheses and their "
            "references. See section 13.5.",
            {"    hits =": "    hypotheses, references = hypotheses[:1], references[:1]\n    hits ="},
        ),
        "reference of the first of two alike": Mistake(
            "Your function compares the second of two equal hypotheses with the reference of the first. A hypothesis "
            "and its reference have the same position in their lists. See section 13.5.",
            lambda hypotheses, references, n: _right_precision(
                hypotheses, [references[hypotheses.index(h)] for h in hypotheses], n
            ),
        ),
        "one added": Mistake(
            "Your function adds 1 to the hits and to the n-grams. This smoothing avoids a precision of 0, but the "
            "exercise asks for the precision without smoothing. See section 13.5.",
            _with_one_added,
        ),
        "mean of the precisions up to n": Mistake(
            "Your function returns the mean of the precisions for 1 to n. Return the precision for n alone. See "
            "section 13.5.",
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
            "Your function changes the sets of links that it gets. The caller needs them again, so work on copies. "
            "See section 13.18.",
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
            "Your function returns 1 minus the precision, so a missing link costs nothing. The error rate also counts "
            "missing sure links. See section 13.18.",
            {"len(a & s) + ": "", "len(a) + len(s)": "len(a)"},
        ),
        "recall": Mistake(
            "Your function returns 1 minus the recall of the sure links, so a wrong link costs nothing. The error "
            "rate also counts wrong links. See section 13.18.",
            {" + len(a & p)": "", "len(a) + len(s)": "len(s)"},
        ),
        "possible links ignored": Mistake(
            "Your function counts a predicted link as wrong if it is possible but not sure. The second count of hits "
            "in the formula is |A ∩ P|, with the possible links. See section 13.18.",
            {"len(a & p)": "len(a & s)"},
        ),
        "possible links demanded": Mistake(
            "Your function counts possible links that were not predicted as missing. Possible links may be missing, "
            "so use |S| in the denominator. See section 13.18.",
            {"len(a) + len(s)": "len(a) + len(p)"},
        ),
        "possible links only": Mistake(
            "Your function counts both kinds of hits among the possible links. The first count of hits in the formula "
            "is |A ∩ S|, with the sure links. See section 13.18.",
            {"len(a & s)": "len(a & p)"},
        ),
        "possible links without the sure": Mistake(
            "Your function counts a predicted sure link as one hit. A sure link is also possible, so it counts as a "
            "hit twice. See section 13.18.",
            {"len(a & p)": "len(a & (p - s))"},
        ),
        "harmonic mean": Mistake(
            "Your function returns 1 minus the harmonic mean of precision and recall, which is the error rate only if "
            "all links are sure. Add up hits and links first, and divide once. See section 13.18.",
            _error(lambda A, S, P, AS, AP, AuS: 1 - 2 * AP * AS / (AP * S + AS * A)),
        ),
        "score instead of error": Mistake(
            "Your function returns the share of right links. Return 1 minus this share, so that 0 is best. See "
            "section 13.18.",
            {"1 - hits": "hits"},
        ),
        "mean of sentences": Mistake(
            "Your function returns the mean of the error rates of single sentences. Add up the hits and the links of "
            "all sentences, and divide once. See section 13.18.",
            sign=lambda found, predicted, sure, possible: (
                math.isclose(found, _mean_error(predicted, sure, possible), rel_tol=1e-6)
                if all(a or s for a, s in zip(predicted, sure, strict=True))
                else None
            ),
        ),
        "divided by the union": Mistake(
            "Your function divides the hits by the size of the union of A and S. The denominator is |A| + |S|, so a "
            "link in both sets counts twice. See section 13.18.",
            {" + len(a & p)": "", "len(a) + len(s)": "len(a | s)"},
        ),
        "hits counted once": Mistake(
            "Your function returns 0.5 or more even for a perfect prediction. The numerator needs both counts of "
            "hits, |A ∩ S| and |A ∩ P|. See section 13.18.",
            {" + len(a & p)": ""},
        ),
        "links turned around": Mistake(
            "Your function reverses the predicted links, so they do not match the other links. In all three lists, a "
            "link is (place of the target word, place of the source word). See section 13.18.",
            {"    hits =": "    predicted = _turned(predicted)\n    hits ="},
        ),
        "sentences thrown together": Mistake(
            "Your function counts a link once if two sentences contain it. Count the links of each sentence "
            "separately. See section 13.18.",
            lambda *alignments: _link_error(*([set().union(*a)] for a in alignments)),
        ),
        "divided by the predicted links": Mistake(
            "Your function divides both counts of hits by the number of predicted links alone. The denominator is |A| "
            "+ |S|. See section 13.18.",
            {"len(a) + len(s)": "len(a)"},
        ),
        "percentage": Mistake(
            "Your function returns a percentage, which is a hundred times too large. Return a number from 0 to 1. See "
            "section 13.18.",
            {"1 - hits / total": "100 * (1 - hits / total)"},
        ),
        "mean of precision and recall": Mistake(
            "Your function returns 1 minus the mean of precision and recall. Add up hits and links first, and divide "
            "once. See section 13.18.",
            _error(lambda A, S, P, AS, AP, AuS: 1 - (AP / A + AS / S) / 2),
        ),
        "unions instead of intersections": Mistake(
            "Your function counts links that only one of two sets contains as hits. For two sets, | is the union, and "
            "& is the intersection. See section 13.18.",
            {"a & s": "a | s", "a & p": "a | p"},
        ),
        "predicted links cut down": Mistake(
            "Your function leaves wrong predicted links out of the denominator. The denominator contains all "
            "predicted links. See section 13.18.",
            {"        hits": "        a = a & p\n        hits"},
        ),
        "hits by the union": Mistake(
            "Your function divides both counts of hits by the size of the union of A and S. Add |A| and |S|, so that "
            "a link in both sets counts twice. See section 13.18.",
            {"len(a) + len(s)": "len(a | s)"},
        ),
        "fraction without brackets": Mistake(
            "Your function divides the hits by |A| and then adds |S|. Put the whole denominator, |A| + |S|, in "
            "parentheses. See section 13.18.",
            _error(lambda A, S, P, AS, AP, AuS: 1 - (AS + AP) / A + S),
        ),
        "sentences without a prediction left out": Mistake(
            "Your function leaves out sentence pairs without a predicted link. The sure links of these pairs are "
            "missing, so count them as errors. See section 13.18.",
            sign=lambda found, predicted, sure, possible: (
                math.isclose(found, _where_predicted(predicted, sure, possible), abs_tol=1e-6)
                if any(predicted)
                else None
            ),
        ),
        "sentences without a sure link left out": Mistake(
            "Your function leaves out sentence pairs without a sure link. A predicted link in such a pair is an error "
            "if it is not possible, so count it. See section 13.18.",
            {"        hits +=": "        if not s:\n            continue\n        hits +="},
        ),
        "nothing predicted is no error": Mistake(
            "Your function returns 0 if nothing is predicted in the whole corpus. Every sure link is missing in this "
            "case, so the error rate is 1. See section 13.18.",
            {"1 - hits / total": "1 - hits / total if any(predicted) else 0.0"},
        ),
        "first sentence only": Mistake(
            "Your function returns the error rate of the first sentence pair only. Count the links of all pairs. See "
            "section 13.18.",
            {"    hits =": "    predicted, sure, possible = predicted[:1], sure[:1], possible[:1]\n    hits ="},
        ),
    },
)
