"""The exercises of the chapter on decoding and evaluating. Used from chapter 13 on."""

import math
import numbers
from collections import Counter

import torch
from torch import Tensor

from attn_course.exercises.engine.convert_output import as_integers, as_number, where
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import CHANGES_ITS_INPUT
from attn_course.exercises.engine.runner import AnswerError

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
    """Return the ids as a tensor, and stop an endless loop."""
    calls = 0

    def counted(ids):
        nonlocal calls
        calls += 1
        if calls > 3 * max_len + 9:
            raise AnswerError("Your loop does not stop after `max_len` tokens. See section 13.1.")
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
    result_names=("ids",),
    chapter=13,
    signs={
        "tensors in the list": lambda found, *inputs: "tensors in a list" in str(found),
        "ids of another type": lambda found, *inputs: "with numbers of the type" in str(found),
        "a tensor instead of a list": lambda found, *inputs: "one tensor" in str(found),
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
    """Return a result with ties and impossible continuations in one fixed order. Other results stay unchanged."""
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


def _is_sure(log_probs, following):
    """Return whether all probabilities differ and every continuation is possible."""
    differ = len(following.unique()) == following.numel()
    return differ and log_probs.min() >= -80 and not following.isinf().any()


def _in_lists(found, log_probs, following):
    """Recognise right numbers of which some are in lists."""
    if not any(isinstance(part, list) for part in found):
        return False
    tensors = [torch.as_tensor(part, device=log_probs.device) for part in found]
    return where(_is_sure, _step)(tensors, log_probs, following)


def _sure(edits):
    """Return the sign of an edit of the right answer, in the trials that can tell."""
    return where(_is_sure, Edited(_step, edits))


def _impossible_is_finite(found, log_probs, following):
    """Recognise totals that are right except that −∞ is a finite number."""
    totals = _step(log_probs, following)[2]
    shut = totals == -math.inf
    return bool(shut.any() and found[2][shut].isfinite().all()) and torch.allclose(found[2][~shut], totals[~shut])


def _impossible_left_out(found, log_probs, following):
    """Recognise a result that has only the possible continuations, fewer than K."""
    possible = (log_probs[:, None] + following > -math.inf).sum()
    return possible < len(log_probs) and all(part.shape == (possible,) for part in found)


def _one_comes_twice(found, log_probs, following):
    """Recognise right totals with a repeated pair of parent and token."""
    parents, tokens, totals = found
    pairs = torch.stack([parents, tokens]).unique(dim=1)
    return pairs.size(1) < len(log_probs) and torch.allclose(totals, _step(log_probs, following)[2])


beam_step = Exercise(
    name="beam_step",
    trials=_beams,
    right=_step,
    use=_in_one_order,
    result_names=("parents", "tokens", "totals"),
    chapter=13,
    signs={
        "chosen by the new token alone": _sure(
            {
                "totals.flatten()": "next_log_probs.flatten()",
                "    return": "    best, order = totals.flatten()[index].sort(descending=True)\n"
                "    index = index[order]\n    return",
            }
        ),
        "each beam keeps its best": _sure(
            {
                "totals.flatten().topk(K)": "totals.max(-1)",
                "    return": "    best, order = best.sort(descending=True)\n    return",
                "index // V, index % V": "order, index[order]",
            }
        ),
        "two of each beam": _sure(
            {"totals.flatten()": "totals.where(totals >= totals.topk(min(K, 2)).values[:, -1:], -math.inf).flatten()"}
        ),
        "each beam keeps its best, unsorted": _sure(
            {"totals.flatten().topk(K)": "totals.max(-1)", "index // V, index % V": "torch.arange(K).to(index), index"}
        ),
        "smallest instead of largest": _sure({"topk(K)": "topk(K, largest=False)"}),
        "probabilities as totals": _sure({"index % V, best": "index % V, best.exp()"}),
        "only the best beam": _sure(
            {
                "totals.flatten()": "totals[log_probs.argmax()]",
                "index // V, index % V": "log_probs.argmax().expand(K), index",
            }
        ),
        "K of each beam": lambda found, log_probs, following: (
            None
            if len(log_probs) == 1 or len(log_probs) > following.size(1)
            else found[2].shape == (len(log_probs),) * 2
        ),
        "tokens over the beams": lambda found, log_probs, following: (
            None
            if len(log_probs) in (1, following.size(1)) or log_probs.isinf().any()
            else found[2].shape == (following.size(1),)
        ),
        "probabilities on the way": lambda found, log_probs, following: (
            bool((log_probs < -80).all() and found[2].isinf().any()) if log_probs.isfinite().all() else None
        ),
        "axis lost with one beam": lambda found, log_probs, following: (
            len(log_probs) == 1 and all(part.dim() == 0 for part in found)
        ),
        "places after sorting as tokens": _sure({"+ next_log_probs": "+ next_log_probs.sort(descending=True).values"}),
        "a finite number for −∞": _impossible_is_finite,
        "impossible ones left out": _impossible_left_out,
        "one continuation twice": _one_comes_twice,
        "totals shared out": _sure({"% V, best": "% V, best - totals.flatten().logsumexp(0)"}),
        "lists instead of tensors": _in_lists,
        "each token once": _sure(
            {"totals.flatten()": "totals.amax(0)", "index // V, index % V": "totals.argmax(0)[index], index"}
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


def _keep(logits, p):
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p * probs.amax(dim=-1, keepdim=True), -math.inf)


def _very_negative(found, logits, p):
    """Recognise logits that are unchanged for the kept tokens, with large negative numbers elsewhere."""
    kept = _keep(logits, p).isfinite()
    dropped = found[~kept]
    return torch.allclose(found[kept], logits[kept]) and bool((dropped < -1e3).all() and dropped.isfinite().any())


keep_min_p = Exercise(
    name="keep_min_p",
    trials=_logits_and_p,
    right=_keep,
    result_names=("logits",),
    chapter=13,
    signs={
        "a large negative number instead of −∞": _very_negative,
        "a mask instead of logits": lambda found, logits, p: found.dtype == torch.bool,
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


def _right_precision(hypotheses, references, n):
    hits = total = 0
    for h, r in zip(hypotheses, references, strict=True):
        mine, theirs = _ngrams(h, n), _ngrams(r, n)
        hits += (mine & theirs).total()
        total += mine.total()
    return hits / total if total else 0.0


def _as_a_share(answer, hypotheses, references, n):
    return _as_any_number(answer(hypotheses, references, n))


def _as_any_number(found):
    """Accept a fraction or a number of NumPy as a share."""
    found = as_number(found)
    return float(found) if isinstance(found, numbers.Real) and not isinstance(found, bool) else found


clipped_precision = Exercise(
    name="clipped_precision",
    trials=_corpora,
    right=_right_precision,
    use=_as_a_share,
    result_names=("the share",),
    chapter=13,
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


def _give_sets(answer, predicted, sure, possible):
    before = predicted, sure, possible
    given = tuple([set(a) for a in links] for links in before)
    found = _as_any_number(answer(*given))
    is_right = isinstance(found, float) and math.isclose(found, _link_error(*before), abs_tol=1e-6)
    if is_right and any(list(a) != [set(s) for s in b] for a, b in zip(given, before, strict=True)):
        raise AnswerError(
            "Your function changes the sets of links that it gets. The caller needs them again, so work on copies. "
            "See section 13.14.",
            CHANGES_ITS_INPUT,
        )
    return found


def _link_error(predicted, sure, possible):
    recalled = confirmed = links = wanted = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        recalled += len(a & s)
        confirmed += len(a & p)
        links += len(a)
        wanted += len(s)
    return 1 - (recalled + confirmed) / (links + wanted)


link_error = Exercise(
    name="link_error",
    trials=_alignments,
    right=_link_error,
    use=_give_sets,
    result_names=("the rate",),
    chapter=13,
)
