"""Decoding: how a translator that scores next tokens comes to write a sentence. Derived in chapter 13.

A model is asked in two calls only: ``model.encode(src, src_mask=…)`` once for each source, and
``model.decode(ids, memory, src_mask=…)`` for every token that is written. Each call reads everything
written so far from the beginning.
"""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.masks import make_padding_mask


@runtime_checkable
class Translates(Protocol):
    """What decoding asks of a model; :class:`attn_course.Transformer` is one."""

    def encode(self, src: Tensor, *, src_mask: Tensor | None) -> tuple[Tensor, object]:
        """Read the sources (B, S): the memory (B, S, E), and something that is not used here."""
        ...

    def decode(
        self, tgt: Tensor, memory: Tensor, *, src_mask: Tensor | None
    ) -> tuple[Tensor, object]:
        """Score what follows each of the ids (B, T): logits (B, T, V), and something that is not used here."""
        ...


class Hypothesis(NamedTuple):
    """One way to write a target, as :func:`beam_search` found it."""

    ids: Int[Tensor, "T"]
    """Without the beginning; with the end, unless it was cut off at ``max_len``."""
    log_prob: float
    """Natural logarithm of the probability that the model gives to these ids, the end included."""
    score: float
    """The same after :func:`normalize_by_length`, with the reward for its length: what hypotheses are ranked by."""


# -- One token after the other -----------------------------------------------------------------------


@torch.no_grad()
def greedy_search(
    model: Translates,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_len: int,
) -> Int[Tensor, "B T"]:
    """Write the most probable token, again and again, until it is the end.

    The sentence it arrives at need not be the most probable one: see :func:`beam_search`.

    Args:
        model: what scores next tokens, in evaluation mode.
        src: ids of the sources, padded on the right.
        src_lengths: how many of each row's ids are tokens.
        bos_id: the id that the decoder reads first; never written.
        eos_id: the id that ends a target.
        pad_id: the id to fill up with after the end; never written before it.
        max_len: most tokens to write, the end included.

    Returns:
        The ids, without the beginning and with the end where it was written; as long as the longest target.

    Raises:
        ValueError: if the model is in training mode, lengths do not fit the sources, ``max_len`` is below 1,
            or the model's logits hold nan.
    """
    memory, src_mask = _read(model, src, src_lengths, max_len)
    ids = torch.full_like(src[:, :1], bos_id)  # (B, 1)
    done = torch.zeros_like(src[:, 0], dtype=torch.bool)
    while ids.size(1) <= max_len and not done.all():
        log_probs = _next_log_probs(model, ids, memory, src_mask, bos_id, pad_id)  # (B, V)
        chosen = log_probs.argmax(dim=-1)
        ids = torch.cat([ids, chosen.masked_fill(done, pad_id)[:, None]], dim=1)
        done = done | (chosen == eos_id)
    return ids[:, 1:]


@torch.no_grad()
def sample(
    model: Translates,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_len: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: torch.Generator | None = None,
) -> Int[Tensor, "B T"]:
    """Draw each token at random, the more probable the more often.

    First the temperature, then ``top_k``, then ``top_p``, each on what the one before has left.

    Args:
        model: what scores next tokens, in evaluation mode.
        src: ids of the sources, padded on the right.
        src_lengths: how many of each row's ids are tokens.
        bos_id: the id that the decoder reads first; never written.
        eos_id: the id that ends a target.
        pad_id: the id to fill up with after the end; never written before it.
        max_len: most tokens to write, the end included.
        temperature: see :func:`apply_temperature`.
        top_k: see :func:`keep_top_k`; None keeps all.
        top_p: see :func:`keep_top_p`; None keeps all.
        rng: a generator on the CPU, where the tokens are drawn, so that every device draws the same.

    Returns:
        The ids, as from :func:`greedy_search`.

    Raises:
        ValueError: as :func:`greedy_search`, and if a setting has no meaning.
    """
    memory, src_mask = _read(model, src, src_lengths, max_len)
    ids = torch.full_like(src[:, :1], bos_id)  # (B, 1)
    done = torch.zeros_like(src[:, 0], dtype=torch.bool)
    while ids.size(1) <= max_len and not done.all():
        log_probs = _next_log_probs(model, ids, memory, src_mask, bos_id, pad_id)  # (B, V)
        log_probs = apply_temperature(log_probs, temperature)
        if top_k is not None:
            log_probs = keep_top_k(log_probs, top_k)
        if top_p is not None:
            log_probs = keep_top_p(log_probs, top_p)
        drawn = torch.multinomial(log_probs.softmax(dim=-1).cpu(), 1, generator=rng)
        chosen = drawn[:, 0].to(ids.device)  # (B,)
        ids = torch.cat([ids, chosen.masked_fill(done, pad_id)[:, None]], dim=1)
        done = done | (chosen == eos_id)
    return ids[:, 1:]


def apply_temperature(
    logits: Float[Tensor, "*batch V"], temperature: float
) -> Float[Tensor, "*batch V"]:
    r"""Divide the logits: below 1 the probable becomes more probable, above 1 less.

    $p_i \propto \exp(z_i / \tau)$, so the odds of two tokens are raised to the power $1 / \tau$
    (Hinton et al. 2015, arXiv:1503.02531, eq. 1).

    Args:
        logits: or logarithms of probabilities, which are logits as well.
        temperature: τ, above 0; 1 changes nothing.

    Raises:
        ValueError: if the temperature is not above 0.

    Example:
        >>> apply_temperature(torch.tensor([0.75, 0.25]).log(), 0.5).softmax(-1)  # odds of 3 become 9
        tensor([0.9000, 0.1000])
    """
    if not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature ({temperature}) must be above 0 and finite; "
            "what it tends to at 0 is greedy_search"
        )
    return logits / temperature


def keep_top_k(logits: Float[Tensor, "*batch V"], k: int) -> Float[Tensor, "*batch V"]:
    """Keep the k largest logits of each row and make the others impossible (Fan et al. 2018, arXiv:1805.04833).

    Exactly k are left where V is at least k, whichever of equals they are.

    Raises:
        ValueError: if ``k`` is below 1.

    Example:
        >>> keep_top_k(torch.tensor([0.5, 0.1, 0.4]).log(), 2).softmax(-1)
        tensor([0.5556, 0.0000, 0.4444])
    """
    if k < 1:
        raise ValueError(f"top_k ({k}) must be at least 1: one token has to be written")
    best = logits.topk(min(k, logits.size(-1)), dim=-1).indices
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, best, True)
    return logits.masked_fill(~kept, -math.inf)


def keep_top_p(logits: Float[Tensor, "*batch V"], p: float) -> Float[Tensor, "*batch V"]:
    """Keep the fewest tokens whose probabilities sum to at least p, and make the others impossible.

    These are the *nucleus* of the distribution (Holtzman et al. 2020, arXiv:1904.09751, section 3.1). The
    token that crosses p is kept, so there is always one.

    Raises:
        ValueError: if ``p`` is not above 0 and at most 1.

    Example:
        >>> keep_top_p(torch.tensor([0.5, 0.1, 0.4]).log(), 0.6).softmax(-1)
        tensor([0.5556, 0.0000, 0.4444])
    """
    if not 0 < p <= 1:
        raise ValueError(f"top_p ({p}) must be above 0 and at most 1: it is a probability")
    rising, order = logits.softmax(dim=-1).sort(dim=-1, stable=True)
    # A token stays unless it and all that are less probable can go and still leave p.
    kept = rising.cumsum(dim=-1) > 1 - p
    kept[..., -1] = True  # also where rounding says otherwise
    kept = torch.zeros_like(kept).scatter(-1, order, kept)
    return logits.masked_fill(~kept, -math.inf)


# -- Several sentences at a time ---------------------------------------------------------------------


@torch.no_grad()
def beam_search(
    model: Translates,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_len: int,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    length_reward: float = 0.0,
    patience: float = 1.0,
) -> list[list[Hypothesis]]:
    """Keep the ``beam_size`` best beginnings of every target, extend each by every token, and keep the best again.

    A hypothesis that ends leaves the beam and cannot be lost any more; the search for a source is over when
    ``beam_size`` have ended, or ``patience`` times as many. What ends is ranked by its probability with a correction
    for its length, without which a short sentence wins for being short. A beam of one is :func:`greedy_search`.

    Args:
        model: what scores next tokens, in evaluation mode.
        src: ids of the sources, padded on the right.
        src_lengths: how many of each row's ids are tokens.
        bos_id: the id that the decoder reads first; never written.
        eos_id: the id that ends a target.
        pad_id: the id of padding; never written.
        max_len: most tokens to write, the end included.
        beam_size: how many beginnings to keep, and most hypotheses to return for a source.
        length_penalty: the α of :func:`normalize_by_length`; 0 for none.
        length_reward: added to the score for each token (Murray and Chiang 2018, arXiv:1808.10006, section 3).
        patience: the search waits for this times ``beam_size`` hypotheses to end (Kasai et al. 2022,
            arXiv:2204.05424, section 2.2). The shortest end first, so a correction for length needs more than 1.

    Returns:
        For each source its hypotheses, best first and no two alike: those that ended, then, if these are fewer
        than ``beam_size``, those cut off at ``max_len``. There may be fewer in all if the model can write no more.

    Raises:
        ValueError: if the model is in training mode, lengths do not fit the sources, ``max_len`` or ``beam_size``
            is below 1, ``length_penalty`` or ``length_reward`` is negative, ``patience`` is below 1, or the
            model's logits hold nan.
    """
    if beam_size < 1:
        raise ValueError(f"beam_size ({beam_size}) must be at least 1")
    if length_penalty < 0:
        raise ValueError(
            f"length_penalty ({length_penalty}) must be at least 0: below it, short sentences gain even more"
        )
    if not 0 <= length_reward < math.inf:
        raise ValueError(
            f"length_reward ({length_reward}) must be at least 0 and finite: below it, short sentences gain even more"
        )
    if not 1 <= patience < math.inf:
        raise ValueError(
            f"patience ({patience}) must be at least 1 and finite: below it, beams would be cut off"
        )
    memory, src_mask = _read(model, src, src_lengths, max_len)
    B, K = src.size(0), beam_size

    def score(ids: Tensor, log_prob: Tensor) -> Hypothesis:
        ids = ids[1:]  # without the beginning
        found = normalize_by_length(log_prob.item(), ids.numel(), length_penalty)
        return Hypothesis(ids, log_prob.item(), found + length_reward * ids.numel())

    # Rows of the decoder are (B·K), the beams of a source together.
    memory = memory.repeat_interleave(K, dim=0)
    src_mask = src_mask.repeat_interleave(K, dim=0)
    ids = torch.full((B, K, 1), bos_id, device=src.device)
    # All beams begin alike, so that all but one would only repeat it.
    log_probs = torch.full((B, K), -math.inf, device=src.device)
    log_probs[:, 0] = 0.0
    ended: list[list[Hypothesis]] = [[] for _ in range(B)]
    searching = [True] * B

    while any(searching) and ids.size(2) <= max_len:
        step = _next_log_probs(model, ids.flatten(0, 1), memory, src_mask, bos_id, pad_id)
        V = step.size(-1)
        totals = log_probs[..., None] + step.view(B, K, V)  # (B, K, V)
        # Every beam may end, so it takes twice as many to be sure of K that go on.
        best, index = totals.flatten(1).topk(min(2 * K, K * V), dim=-1)  # (B, 2K)
        longer = torch.cat([_rows(ids, index // V), (index % V)[..., None]], dim=-1)
        ends = index % V == eos_id  # (B, 2K)

        for b in filter(searching.__getitem__, range(B)):
            for rank in range(K):  # an end must be among the K best to count
                if ends[b, rank] and best[b, rank] > -math.inf:
                    ended[b].append(score(longer[b, rank], best[b, rank]))

        going_on = ends.byte().argsort(dim=-1, stable=True)[
            :, :K
        ]  # the best that do not end
        ids, log_probs = _rows(longer, going_on), best.gather(1, going_on)
        searching = [
            len(ended[b]) < patience * K and bool(log_probs[b].max() > -math.inf)
            for b in range(B)
        ]

    found = []
    for b in range(B):
        found.append(sorted(ended[b], key=lambda h: h.score, reverse=True)[:K])
        if searching[b]:
            cut_off = [
                score(ids[b, k], log_probs[b, k])
                for k in range(K)
                if log_probs[b, k] > -math.inf
            ]
            found[b] += cut_off[: K - len(found[b])]
    return found


def normalize_by_length(log_prob: float, length: int, length_penalty: float) -> float:
    r"""Make hypotheses of different lengths comparable.

    Every further token makes a sentence less probable, so that a sum of logarithms favours the short. Divide
    it by a power of the length, $s(Y, X) = \log P(Y \mid X) \,/\, \mathrm{lp}(Y)$ with
    $\mathrm{lp}(Y) = (5 + |Y|)^\alpha / (5 + 1)^\alpha$ (Wu et al. 2016, arXiv:1609.08144, eq. 14, without
    its coverage penalty).

    Args:
        log_prob: natural logarithm of a probability.
        length: how many tokens, the end included.
        length_penalty: α; with 0 nothing changes, with 1 it is nearly a mean over the tokens.

    Example:
        >>> normalize_by_length(-3.0, 1, 0.6), normalize_by_length(-6.0, 7, 1.0)
        (-3.0, -3.0)
    """
    return log_prob / ((5 + length) / (5 + 1)) ** length_penalty


# -- What they share ---------------------------------------------------------------------------------


def _read(
    model: Translates, src: Tensor, src_lengths: Tensor, max_len: int
) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 S"]]:
    """Look at what was handed in, and encode the sources."""
    if max_len < 1:
        raise ValueError(f"max_len ({max_len}) must be at least 1: the end is a token too")
    if src.dim() != 2 or src.size(0) == 0 or src_lengths.shape != src.shape[:1]:
        raise ValueError(
            f"src {tuple(src.shape)} must be (B, S) with at least one source, "
            f"and src_lengths {tuple(src_lengths.shape)} must hold one length for each"
        )
    if getattr(model, "training", False):
        raise ValueError(
            "the model is in training mode, and dropout would change what it writes from call to call: "
            "call model.eval() first"
        )
    src_mask = make_padding_mask(src_lengths, src.size(1), device=src.device)
    memory, _ = model.encode(src, src_mask=src_mask)
    return memory, src_mask


def _next_log_probs(
    model: Translates,
    ids: Int[Tensor, "N T"],
    memory: Float[Tensor, "N S E"],
    src_mask: Bool[Tensor, "N 1 S"],
    bos_id: int,
    pad_id: int,
) -> Float[Tensor, "N V"]:
    """Logarithms of the probabilities of the next token, -inf for what is never written."""
    logits, _ = model.decode(ids, memory, src_mask=src_mask)  # (N, T, V)
    log_probs = logits[:, -1].log_softmax(dim=-1)
    if log_probs.isnan().any():
        raise ValueError(
            f"the model's logits hold nan after {ids.size(1) - 1} tokens: nothing can be chosen from them"
        )
    log_probs[:, [bos_id, pad_id]] = -math.inf
    return log_probs


def _rows(ids: Int[Tensor, "B K T"], index: Int[Tensor, "B N"]) -> Int[Tensor, "B N T"]:
    """For each source the rows of ``ids`` with these numbers."""
    return ids.gather(1, index[..., None].expand(-1, -1, ids.size(2)))
