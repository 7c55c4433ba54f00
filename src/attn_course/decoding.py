"""Decoding: searches and sampling with a model that scores next tokens. Derived in chapters 13 and 15 (generate).

A search calls ``model.encode(src, src_mask=…)`` once for each source, and ``model.decode(ids, memory, src_mask=…)`` for
each new token, which reads all tokens of the target again. If the model has a method ``make_cache``, the search calls
``model.decode(new_ids, cache=…)`` instead, which reads each token once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import DecoderCache
from attn_course.functional.masks import make_padding_mask
from attn_course.functional.validation import check_sizes


@runtime_checkable
class Seq2SeqModel(Protocol):
    """The methods that a search needs; :class:`attn_course.Transformer` has them."""

    def encode(self, src: Tensor, *, src_mask: Tensor | None) -> tuple[Tensor, object]:
        """Encode the sources (B, S). Return the memory (B, S, E), and a second value that is not used here."""
        ...

    def decode(
        self, tgt: Tensor, memory: Tensor | None = None, *, src_mask: Tensor | None = None, **cache: Any
    ) -> tuple[Tensor, object]:
        """Score the token after each of the ids (B, T). Return logits (B, T, V), and a second value, not used here."""
        ...


@runtime_checkable
class SourceRule(Protocol):
    """A rule that says which tokens a search may write for one source."""

    def allowed(self, written: Sequence[int]) -> Bool[Tensor, "V"]:
        """Return a tensor (V,) that is True for each token that may be written next.

        Args:
            written: the ids so far, without the beginning-of-sequence id.
        """
        ...

    def penalty(self, written: Sequence[int]) -> float:
        """Return the number that the beam search subtracts from the score of a hypothesis.

        Args:
            written: the ids of the hypothesis, without the beginning-of-sequence id.
        """
        ...


@runtime_checkable
class Rule(Protocol):
    """A function that makes a :class:`SourceRule` for each source, such as ``translation.copy_numbers.CopyNumbers``."""

    def __call__(self, source: Sequence[int]) -> SourceRule | None:
        """Return the rule for one source, or None if every token may be written.

        Args:
            source: its ids, without the padding.
        """
        ...


@runtime_checkable
class CausalLM(Protocol):
    """The call that :func:`generate` needs; :class:`attn_course.LanguageModel` has it."""

    def __call__(self, ids: Tensor, *, mask: Tensor | None, **cache: Any) -> Tensor:
        """Score the token after each of the ids (B, T), as logits (B, T, V).

        Args:
            ids: (B, T), padded on the left.
            mask: True at real tokens, (B, 1, T), or None.
            **cache: ``cache``, if the model has the method ``make_cache``.
        """
        ...


def _check_temperature(temperature: float) -> None:
    if not 1e-38 <= temperature <= 1e38:
        raise ValueError(
            f"temperature ({temperature}) must be from 1e-38 to 1e38, so that float32 can hold it and its reciprocal; "
            "the limit at 0 is greedy_search"
        )


def _check_top_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"top_k ({k}) must be at least 1, because one token has to be written")


def _check_top_p(p: float) -> None:
    if not 0 < p <= 1:
        raise ValueError(f"top_p ({p}) must be above 0 and at most 1, because it is a probability")


@dataclass(frozen=True)
class SpecialIds:
    """The special ids of a translator's target.

    Args:
        bos: beginning of sequence, which the decoder reads first. No search writes it.
        eos: end of sequence; -1 for targets that end at ``max_len`` only.
        pad: padding after the end. No search writes it before the end.

    Raises:
        ValueError: if ``bos`` or ``pad`` is below 0, or ``eos`` equals ``bos`` or ``pad``.
    """

    bos: int
    eos: int
    pad: int

    def __post_init__(self) -> None:
        if min(self.bos, self.pad) < 0:
            raise ValueError(f"bos ({self.bos}) and pad ({self.pad}) must be ids of tokens, from 0 on")
        if self.eos in (self.bos, self.pad):
            raise ValueError(
                f"eos ({self.eos}) must be neither bos ({self.bos}) nor pad ({self.pad}), which are never written: "
                "no target could end"
            )


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens. The temperature is applied first, then ``top_k``, then ``top_p``.

    Args:
        temperature: see :func:`apply_temperature`.
        top_k: see :func:`keep_top_k`; None keeps all tokens.
        top_p: see :func:`keep_top_p`; None keeps all tokens.
        generator: on the CPU, where the tokens are drawn, so that every device draws the same; None for torch's own.

    Raises:
        ValueError: if a setting is outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)
        if self.top_k is not None:
            _check_top_k(self.top_k)
        if self.top_p is not None:
            _check_top_p(self.top_p)

    def draw(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
        """Draw one token for each row."""
        # Below 0, a low temperature cannot overflow.
        logits = logits.to(_wide(logits)) - logits.amax(dim=-1, keepdim=True)
        logits = apply_temperature(logits, self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        drawn = torch.multinomial(logits.softmax(dim=-1).cpu(), 1, generator=self.generator)
        return drawn[:, 0].to(logits.device)


@dataclass(frozen=True)
class Beam:
    """The settings of a beam search.

    Args:
        size: number of hypotheses to keep at each step, and the maximum number to return for a source.
        length_penalty: the α of :func:`normalize_by_length`; 0 for no correction.
        length_reward: added to the score for each token (Murray and Chiang 2018, arXiv:1808.10006, section 3).
        patience: the search continues until ``patience * size`` hypotheses have ended (Kasai et al. 2022,
            arXiv:2204.05424, section 2.2). Short hypotheses end first, so a correction for length needs more than 1.

    Raises:
        ValueError: if ``size`` is below 1, ``length_penalty`` or ``length_reward`` is negative, or ``patience`` is
            below 1.
    """

    size: int = 4
    length_penalty: float = 0.6
    length_reward: float = 0.0
    patience: float = 1.0

    def __post_init__(self) -> None:
        check_sizes(size=self.size)
        if self.length_penalty < 0:
            raise ValueError(
                f"length_penalty ({self.length_penalty}) must be at least 0; less favours short sentences even more"
            )
        if not 0 <= self.length_reward < math.inf:
            raise ValueError(
                f"length_reward ({self.length_reward}) must be at least 0 and finite; less favours short sentences "
                "even more"
            )
        if not 1 <= self.patience < math.inf:
            raise ValueError(
                f"patience ({self.patience}) must be at least 1 and finite, because less would cut beams off"
            )

    def rank(self, ids: Int[Tensor, "T"], log_prob: float, rule: "SourceRule | None" = None) -> "Hypothesis":
        """Make a hypothesis with its score from ids without the beginning-of-sequence id."""
        score = normalize_by_length(log_prob, ids.numel(), self.length_penalty)
        score += self.length_reward * ids.numel()
        if rule is not None:
            score -= rule.penalty(ids.tolist())
        return Hypothesis(ids, log_prob, score)


class Hypothesis(NamedTuple):
    """A target that :func:`beam_search` has written."""

    ids: Int[Tensor, "T"]
    """Without the beginning-of-sequence id, and with the end unless ``max_len`` cut it off."""
    log_prob: float
    """Natural logarithm of the probability that the model gives to these ids, including the end."""
    score: float
    """The number that ranks hypotheses: ``log_prob`` after :func:`normalize_by_length`, plus the length reward, minus
    the penalty of the rule."""


# -- Greedy search and sampling ----------------------------------------------------------------------


@torch.no_grad()
def greedy_search(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    special: SpecialIds,
    max_len: int | Int[Tensor, "B"],
    rule: Rule | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "B T"]:
    """Write the most probable token at each step, until the end.

    The result need not be the most probable sentence; see :func:`beam_search`.

    Args:
        model: the model that scores next tokens, in evaluation mode.
        src: ids of the sources, padded on the right.
        src_lengths: number of tokens in each row.
        special: the special ids of the target.
        max_len: maximum number of tokens to write, including the end: one number, or one for each source, (B,).
        rule: which tokens may be written; None for all.
        use_cache: whether to use a cache if the model has one. Without it, each step reads the whole target again.

    Returns:
        The ids, without the beginning-of-sequence id and with the end if it was written. They are as long as the
        longest target.

    Raises:
        ValueError: if the model is in training mode, lengths do not fit the sources, ``max_len`` is below 1 or
            above the model's ``max_len``, the largest logit of a row is not finite, or the rule allows no token.
    """
    return _autoregress(model, src, src_lengths, special, max_len, _most_probable, rule, use_cache=use_cache)


@torch.no_grad()
def sample(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    special: SpecialIds,
    max_len: int | Int[Tensor, "B"],
    sampling: Sampling = Sampling(),
    use_cache: bool = True,
) -> Int[Tensor, "B T"]:
    """Draw each token at random from the probabilities of the model.

    Args:
        model, src, src_lengths, special, max_len, use_cache: as in :func:`greedy_search`.
        sampling: how to draw.

    Returns:
        The ids, as from :func:`greedy_search`.

    Raises:
        ValueError: as :func:`greedy_search`.
    """
    return _autoregress(model, src, src_lengths, special, max_len, sampling.draw, use_cache=use_cache)


def _autoregress(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    special: SpecialIds,
    max_len: int | Int[Tensor, "B"],
    choose: Callable[[Tensor], Tensor],
    rule: Rule | None = None,
    *,
    use_cache: bool,
) -> Int[Tensor, "B T"]:
    limits = _limits(max_len, src)  # (B,)
    memory, src_mask = _encode_sources(model, src, src_lengths, limits)
    rules = _rules(rule, src, src_lengths)
    cache = _make_cache(model, memory, src_mask, limits) if use_cache else None
    decoder = _IncrementalDecoder(model, memory, src_mask, cache, special, rules)
    ids = torch.full_like(src[:, :1], special.bos)  # (B, 1)
    done = torch.zeros_like(src[:, 0], dtype=torch.bool)
    while not done.all():
        log_probs = decoder.next_log_probs(ids, ~done)  # (B, V)
        _refuse_dead_ends(log_probs.amax(dim=-1), ~done, ids.size(1) - 1)
        chosen = choose(log_probs).masked_fill(done, special.pad)  # (B,)
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        done = done | (chosen == special.eos) | (ids.size(1) > limits)
    return ids[:, 1:]


def _most_probable(logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
    return logits.argmax(dim=-1)


def apply_temperature(logits: Float[Tensor, "*batch V"], temperature: float) -> Float[Tensor, "*batch V"]:
    r"""Divide the logits by the temperature. Below 1, probable tokens become more probable; above 1, less.

    $p_i \propto \exp(z_i / \tau)$, so the odds of two tokens are raised to the power $1 / \tau$
    (Hinton et al. 2015, arXiv:1503.02531, eq. 1).

    Args:
        logits: logits, or logarithms of probabilities.
        temperature: τ, from 1e-38 to 1e38; 1 changes nothing.

    Raises:
        ValueError: if the temperature is outside this range.

    Example:
        >>> apply_temperature(torch.tensor([0.75, 0.25]).log(), 0.5).softmax(-1)  # odds of 3 become 9
        tensor([0.9000, 0.1000])
    """
    _check_temperature(temperature)
    return logits / temperature


def keep_top_k(logits: Float[Tensor, "*batch V"], k: int) -> Float[Tensor, "*batch V"]:
    """Keep the k largest logits of each row, and set all others to -inf (Fan et al. 2018, arXiv:1805.04833).

    If logits are equal, exactly k of them still remain.

    Raises:
        ValueError: if ``k`` is below 1.

    Example:
        >>> keep_top_k(torch.tensor([0.5, 0.1, 0.4]).log(), 2).softmax(-1)
        tensor([0.5556, 0.0000, 0.4444])
    """
    _check_top_k(k)
    best = logits.topk(min(k, logits.size(-1)), dim=-1).indices
    keep = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, best, True)
    return logits.masked_fill(~keep, -math.inf)


def keep_top_p(logits: Float[Tensor, "*batch V"], p: float) -> Float[Tensor, "*batch V"]:
    """Keep the smallest set of tokens whose probabilities sum to at least p, and set all other logits to -inf.

    This set is the *nucleus* of the distribution (Holtzman et al. 2019, arXiv:1904.09751, section 3.1). It contains the
    token with which the sum reaches p, so it is never empty.

    Raises:
        ValueError: if ``p`` is not above 0 and at most 1.

    Example:
        >>> keep_top_p(torch.tensor([0.5, 0.1, 0.4]).log(), 0.6).softmax(-1)
        tensor([0.5556, 0.0000, 0.4444])
    """
    _check_top_p(p)
    probabilities = logits.softmax(dim=-1, dtype=_wide(logits))
    rising, order = probabilities.sort(dim=-1, stable=True)
    # Drop a token if it and all less probable tokens sum to at most 1 - p.
    keep = rising.cumsum(dim=-1) > 1 - p
    keep[..., -1] = True  # rounding must not drop the most probable token
    keep = torch.zeros_like(keep).scatter(-1, order, keep)
    return logits.masked_fill(~keep, -math.inf)


# -- Beam search -------------------------------------------------------------------------------------


@torch.no_grad()
def beam_search(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    special: SpecialIds,
    max_len: int | Int[Tensor, "B"],
    beam: Beam = Beam(),
    rule: Rule | None = None,
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Keep the best unfinished hypotheses, extend each of them by every token, and keep the best again.

    A hypothesis that ends leaves the beam and stays in the result. The search for a source stops when ``beam.patience *
    beam.size`` hypotheses have ended. Ended hypotheses are ranked by their log-probability with a correction for their
    length, because short sentences would win otherwise. A beam of 1 is :func:`greedy_search`, except that it may choose
    another one of several tokens whose log-probabilities, added and rounded, are equal.

    Args:
        model, src, src_lengths, special, max_len, use_cache: as in :func:`greedy_search`. No padding is written.
        beam: the settings of the search.
        rule: as in :func:`greedy_search`. It does not change ``log_prob``.

    Returns:
        For each source its hypotheses, all different: first the ones that ended, and if these are fewer than
        ``beam.size``, then the ones cut off at ``max_len``, both by their score, best first. There can be fewer if the
        model gives all others the probability 0, or the rule forbids them.

    Raises:
        ValueError: as :func:`greedy_search`.
    """
    limits = _limits(max_len, src)  # (B,)
    memory, src_mask = _encode_sources(model, src, src_lengths, limits)
    B, K = src.size(0), beam.size

    # The decoder has B·K rows. Rows of the same source are neighbours.
    memory = memory.repeat_interleave(K, dim=0)
    src_mask = src_mask.repeat_interleave(K, dim=0)
    rules = _rules(rule, src, src_lengths)
    row_rules = [rule for rule in rules for _ in range(K)]
    cache = _make_cache(model, memory, src_mask, limits) if use_cache else None
    decoder = _IncrementalDecoder(model, memory, src_mask, cache, special, row_rules)
    ids = torch.full((B, K, 1), special.bos, device=src.device)
    # Start with one live beam, because K identical beams would produce duplicates.
    log_probs = torch.full((B, K), -math.inf, device=src.device)
    log_probs[:, 0] = 0.0
    ended: list[list[Hypothesis]] = [[] for _ in range(B)]
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    searching = torch.ones(B, dtype=torch.bool, device=src.device)

    while searching.any():
        live = searching[:, None] & (log_probs > -math.inf)  # (B, K)
        step = decoder.next_log_probs(ids.flatten(0, 1), live.flatten())
        V = step.size(-1)
        totals = log_probs[..., None] + step.view(B, K, V)  # (B, K, V)
        # All K beams may end, so 2K candidates contain at least K that continue.
        best, index = totals.flatten(1).topk(min(2 * K, K * V), dim=-1)  # (B, 2K)
        nothing_yet = torch.tensor([not hypotheses for hypotheses in ended]).to(searching)
        _refuse_dead_ends(best[:, 0], searching & nothing_yet, ids.size(2) - 1)
        parents = index // V  # the beam that each candidate extends
        longer = torch.cat([_rows(ids, parents), (index % V)[..., None]], dim=-1)
        ends = index % V == special.eos  # (B, 2K)

        finished = searching[:, None] & (ends & (best > -math.inf))[:, :K]  # an end counts only among the K best
        for b, rank in finished.nonzero().tolist():
            ended[b].append(beam.rank(longer[b, rank, 1:], best[b, rank].item(), rules[b]))

        # Continue with the K best candidates that do not end.
        continuing = ends.byte().argsort(dim=-1, stable=True)[:, :K]
        ids, log_probs = _rows(longer, continuing), best.gather(1, continuing)
        decoder.reorder(parents.gather(1, continuing))

        for b in searching.nonzero()[:, 0].tolist():
            enough = len(ended[b]) >= beam.patience * K
            alive = [k for k in range(K) if log_probs[b, k] > -math.inf]
            if enough or not alive or ids.size(2) > limits[b]:
                searching[b] = False
                results[b] = sorted(ended[b], key=lambda h: h.score, reverse=True)[:K]
                if not enough:
                    cut_off = [beam.rank(ids[b, k, 1:], log_probs[b, k].item(), rules[b]) for k in alive]
                    cut_off.sort(key=lambda h: h.score, reverse=True)
                    results[b] += cut_off[: K - len(results[b])]
    return results


def normalize_by_length(log_prob: float, length: int, length_penalty: float) -> float:
    r"""Correct a log-probability for the length, so that hypotheses of different lengths can be compared.

    Every further token makes a sentence less probable, so log-probabilities favour short sentences. The corrected score
    is $s(Y, X) = \log P(Y \mid X) \,/\, \mathrm{lp}(Y)$ with $\mathrm{lp}(Y) = (5 + |Y|)^\alpha / (5 + 1)^\alpha$
    (Wu et al. 2016, arXiv:1609.08144, eq. 14, without its coverage penalty).

    Args:
        log_prob: natural logarithm of a probability.
        length: number of tokens, including the end.
        length_penalty: α. With 0 nothing changes; with 1 the score is nearly a mean over the tokens.

    Example:
        >>> normalize_by_length(-3.0, 1, 0.6), normalize_by_length(-6.0, 7, 1.0)
        (-3.0, -3.0)
    """
    return log_prob / ((5 + length) / (5 + 1)) ** length_penalty


# -- Language models ---------------------------------------------------------------------------------


@torch.no_grad()
def generate(
    model: CausalLM,
    prompts: Int[Tensor, "B T"],
    prompt_lengths: Int[Tensor, "B"] | None = None,
    *,
    max_new_tokens: int,
    eos_id: int | None = None,
    sampling: Sampling | None = None,
    chunk_size: int | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "B N"]:
    """Continue texts with a language model, by the most probable token or by sampling.

    With a cache, one call reads the prompts (the **prefill**), and one more call reads each new token.

    Args:
        model: the model that scores next tokens, in evaluation mode, such as :class:`~attn_course.LanguageModel`.
        prompts: ids (B, T), padded on the **left**, so that every text ends at the same position.
        prompt_lengths: number of tokens in each row, at least 1; None if there is no padding.
        max_new_tokens: maximum number of tokens to write.
        eos_id: the id that ends a text. It also fills the rest of a row that has ended. None if there is no such id.
        sampling: how to draw; None for the most probable token.
        chunk_size: read the prompts in chunks of this many tokens, which needs less memory. Chunks need a cache. None
            for one chunk.
        use_cache: whether to use a cache if the model has one. Without it, each step reads the whole text again.

    Returns:
        The new ids (B, N), with the end if it was written. They are as long as the longest continuation.

    Raises:
        ValueError: if the model is in training mode, the largest logit of a row is not finite, lengths do not fit the
            prompts, the prompts and the new tokens are longer than the model can read, ``chunk_size`` is below 1, or
            there is no cache for chunks.

    Example:
        >>> from attn_course import LanguageModel
        >>> model = LanguageModel(100, d_model=8, num_heads=2, d_ff=32).eval()
        >>> prompts = torch.tensor([[0, 0, 7], [4, 5, 6]])  # the first has one token
        >>> generate(model, prompts, torch.tensor([1, 3]), max_new_tokens=4).shape
        torch.Size([2, 4])
    """
    mask = _validate_prompts(model, prompts, prompt_lengths, max_new_tokens)
    make_cache = getattr(model, "make_cache", None) if use_cache else None
    if chunk_size is not None and (chunk_size < 1 or make_cache is None):
        raise ValueError(f"chunk_size ({chunk_size}) must be at least 1, and needs a cache")
    choose = _most_probable if sampling is None else sampling.draw
    ids, (B, T) = prompts, prompts.shape
    # No step reads the last token.
    cache = None if make_cache is None else make_cache(B, T + max_new_tokens - 1)
    done = torch.zeros_like(ids[:, 0], dtype=torch.bool)
    while ids.size(1) < T + max_new_tokens and not done.all():
        if cache is None:
            logits = model(ids, mask=_up_to(mask, ids.size(1)))
        else:
            unread = ids[:, cache.length :]
            for chunk in unread.split(chunk_size or unread.size(1), dim=1):
                chunk_mask = _up_to(mask, cache.length + chunk.size(1))
                logits = model(chunk, mask=chunk_mask, cache=cache)
        logits = logits[:, -1].masked_fill(done[:, None], 0.0)  # (B, V)
        _check_logits(logits, ids.size(1) - T)
        chosen = choose(logits)  # (B,)
        if eos_id is not None:
            chosen = chosen.masked_fill(done, eos_id)
            done = chosen == eos_id
        ids = torch.cat([ids, chosen[:, None]], dim=1)
    return ids[:, T:]


def stream_tokens(
    model: nn.Module,
    prompt: Int[Tensor, "T"],
    *,
    max_new_tokens: int,
    eos_id: int | None = None,
    sampling: Sampling | None = None,
    cache: DecoderCache | None = None,
) -> Iterator[int]:
    """Continue one text, and yield each new token as soon as it is chosen.

    The tokens are those of :func:`generate`.

    Args:
        model, max_new_tokens, eos_id, sampling: as in :func:`generate`. The model needs the method ``make_cache``.
        prompt: ids (T,).
        cache: an empty cache of any kind; the model's own if not given.

    Raises:
        ValueError: as :func:`generate`, or if the cache is not empty or too short for all new tokens.
    """
    ids = prompt[None]  # (1, T)
    _validate_prompts(model, ids, None, max_new_tokens)
    longest = ids.size(1) + max_new_tokens - 1  # no step reads the last token
    if cache is None:
        cache = model.make_cache(1, longest)
    if cache.length:
        raise ValueError(f"the cache must be empty, but it holds {cache.length} tokens")
    cache.check_room(longest)
    choose = _most_probable if sampling is None else sampling.draw
    # A generator would check nothing before its first token.
    return _stream(model, ids, max_new_tokens, eos_id, choose, cache)


def _stream(
    model: nn.Module,
    ids: Int[Tensor, "1 T"],
    max_new_tokens: int,
    eos_id: int | None,
    choose: Callable[[Tensor], Tensor],
    cache: DecoderCache,
) -> Iterator[int]:
    for num_written in range(max_new_tokens):
        with torch.no_grad():  # only here: between two tokens, the caller's code runs
            logits = model(ids, mask=None, cache=cache)[:, -1]
        _check_logits(logits, num_written)
        chosen = choose(logits)  # (1,)
        yield int(chosen)
        if eos_id is not None and int(chosen) == eos_id:
            return
        ids = chosen[:, None]


def _up_to(mask: Bool[Tensor, "B 1 _"] | None, num_keys: int) -> Bool[Tensor, "B 1 S"] | None:
    return None if mask is None else mask[:, :, :num_keys]


# -- Shared by all searches --------------------------------------------------------------------------


def _limits(max_len: int | Tensor, src: Tensor) -> Int[Tensor, "B"]:
    """Return the maximum number of tokens to write for each source."""
    limits = torch.as_tensor(max_len, device=src.device)
    if limits.shape not in ((), src.shape[:1]):
        raise ValueError(
            f"max_len of shape {tuple(limits.shape)} must be one number, or one for each of the {len(src)} sources"
        )
    return limits.expand(len(src))


def _encode_sources(
    model: Seq2SeqModel, src: Tensor, src_lengths: Tensor, limits: Int[Tensor, "B"]
) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 S"]]:
    """Check the inputs, and encode the sources."""
    if src.dim() != 2 or src.size(0) == 0 or src_lengths.shape != src.shape[:1]:
        raise ValueError(
            f"src {tuple(src.shape)} must be (B, S) with at least one source, "
            f"and src_lengths {tuple(src_lengths.shape)} must hold one length for each"
        )
    if int(src_lengths.min()) < 1:
        raise ValueError(
            f"src_lengths {src_lengths.tolist()} must be at least 1, because an empty source cannot be translated"
        )
    if limits.min() < 1:
        raise ValueError(f"max_len ({limits.min()}) must be at least 1, because the end is a token, too")
    model_max_len = getattr(model, "max_len", math.inf)
    if limits.max() > model_max_len:
        raise ValueError(f"max_len ({limits.max()}) must not be above the model's max_len ({model_max_len})")
    _refuse_training(model)
    src_mask = make_padding_mask(src_lengths, src.size(1), device=src.device)
    memory, _ = model.encode(src, src_mask=src_mask)
    return memory, src_mask


def _validate_prompts(
    model: CausalLM, prompts: Tensor, lengths: Tensor | None, max_new_tokens: int
) -> Bool[Tensor, "B 1 S"] | None:
    """Check the inputs. Return the padding mask for the prompts and all tokens that will be read, or None."""
    if prompts.dim() != 2 or 0 in prompts.shape:
        raise ValueError(f"prompts {tuple(prompts.shape)} must be (B, T) with at least one text of one token")
    B, T = prompts.shape
    check_sizes(max_new_tokens=max_new_tokens)
    longest, max_len = T + max_new_tokens - 1, getattr(model, "max_len", math.inf)
    if longest > max_len:
        raise ValueError(
            f"{max_new_tokens} new tokens after prompts of {T} tokens make {longest} tokens to read, "
            f"more than the model's max_len ({max_len})"
        )
    _refuse_training(model)
    if lengths is None:
        return None
    if lengths.shape != (B,) or int(lengths.min()) < 1 or int(lengths.max()) > T:
        raise ValueError(
            f"prompt_lengths {lengths.tolist()} must hold a length from 1 to {T} for each of the {B} prompts"
        )
    # New tokens are never padding, so they count as real tokens.
    return make_padding_mask(lengths + max_new_tokens - 1, longest, side="left", device=prompts.device)


def _refuse_training(model: object) -> None:
    if getattr(model, "training", False):
        raise ValueError(
            "the model is in training mode, where dropout would change the result; call model.eval() first"
        )


def _rules(rule: Rule | None, src: Int[Tensor, "B S"], src_lengths: Int[Tensor, "B"]) -> list[SourceRule | None]:
    if rule is None:
        return [None] * len(src)
    rows = zip(src.tolist(), src_lengths.tolist(), strict=True)
    return [rule(ids[:length]) for ids, length in rows]


def _make_cache(model: Seq2SeqModel, memory: Tensor, src_mask: Tensor, limits: Int[Tensor, "B"]) -> DecoderCache | None:
    if not hasattr(model, "make_cache"):
        return None
    return model.make_cache(memory, src_mask=src_mask, max_len=int(limits.max()))


class _IncrementalDecoder:
    """A model that scores the next tokens of N targets, with its cache if there is one."""

    def __init__(
        self,
        model: Seq2SeqModel,
        memory: Float[Tensor, "N S E"],
        src_mask: Bool[Tensor, "N 1 S"],
        cache: DecoderCache | None,
        special: SpecialIds,
        rules: Sequence[SourceRule | None],
    ) -> None:
        self.model, self.memory, self.src_mask = model, memory, src_mask
        self.cache = cache
        self.rules = rules
        self.special = special

    def next_log_probs(self, ids: Int[Tensor, "N T"], live: Bool[Tensor, "N"]) -> Float[Tensor, "N V"]:
        """Return the log-probabilities of the next token, -inf for tokens that may not be written.

        Rows that are not live get arbitrary numbers, so nothing in them can stop the search for the others.
        """
        if self.cache is None:
            logits, _ = self.model.decode(ids, self.memory, src_mask=self.src_mask)
        else:
            new = ids[:, self.cache.length :]
            logits, _ = self.model.decode(new, cache=self.cache)  # (N, T, V)
        logits = logits[:, -1].masked_fill(~live[:, None], 0.0)  # (N, V)
        if max(self.special.bos, self.special.eos, self.special.pad) >= logits.size(-1):
            raise ValueError(f"the ids of {self.special} must be below the size of the vocabulary ({logits.size(-1)})")
        _check_logits(logits, ids.size(1) - 1)
        log_probs = logits.log_softmax(dim=-1, dtype=_wide(logits))
        log_probs[:, [self.special.bos, self.special.pad]] = -math.inf
        for row, rule in enumerate(self.rules):
            if rule is not None and live[row]:
                allowed = rule.allowed(ids[row, 1:].tolist()).to(log_probs.device)
                log_probs[row, ~allowed] = -math.inf
        return log_probs

    def reorder(self, parents: Int[Tensor, "B K"]) -> None:
        """Replace each of the K rows of a source by the row of this source with the given number."""
        if self.cache is not None:
            B, K = parents.shape
            first = torch.arange(0, B * K, K, device=parents.device)  # row of each source
            rows = (first[:, None] + parents).flatten()
            # The memory needs no reordering, because these rows share their source.
            for layer in self.cache.layers:
                layer.reorder(rows)


def _wide(logits: Tensor) -> torch.dtype:
    """Return the type for sums of probabilities. Half precision is for what is stored."""
    return torch.promote_types(logits.dtype, torch.float32)


def _check_logits(logits: Float[Tensor, "N V"], num_written: int) -> None:
    """Raise an error if a row has no most probable token. A logit of -inf forbids its token."""
    largest = logits.amax(dim=-1)  # NaN if any logit is NaN
    wrong = ~largest.isfinite()
    if wrong.any():
        raise ValueError(
            f"the largest logit of each row must be finite, but after {num_written} tokens one is "
            f"{largest[wrong][0].item()}, so no token can be chosen"
        )


def _refuse_dead_ends(best: Float[Tensor, "B"], searching: Bool[Tensor, "B"], num_written: int) -> None:
    """Raise an error if every continuation of a source that is still searched is forbidden."""
    dead = searching & (best == -math.inf)
    if dead.any():
        raise ValueError(
            f"the model or the rule must allow a token, but after {num_written} tokens for source "
            f"{int(dead.nonzero()[0])} all are forbidden"
        )


def _rows(ids: Int[Tensor, "B K T"], index: Int[Tensor, "B N"]) -> Int[Tensor, "B N T"]:
    """Select rows of ``ids`` for each source by their numbers."""
    return ids.gather(1, index[..., None].expand(-1, -1, ids.size(2)))
