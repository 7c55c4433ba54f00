"""Decoding: how a model that scores next tokens comes to write. Derived in chapters 13 and 15 (:func:`generate`).

A translator is asked in two calls only: ``model.encode(src, src_mask=…)`` once for each source, and
``model.decode(ids, memory, src_mask=…)`` for every token that is written, which reads everything written so
far from the beginning. A translator that can also ``make_cache`` is asked ``model.decode(new_ids, cache=…)``
instead and reads each token once; :func:`without_cache` makes it forget that it can.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.data.batches import make_batch
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID
from attn_course.functional.masks import make_padding_mask
from attn_course.functional.validation import check_sizes


@runtime_checkable
class Seq2SeqModel(Protocol):
    """What decoding asks of a model; :class:`attn_course.Transformer` is one."""

    def encode(self, src: Tensor, *, src_mask: Tensor | None) -> tuple[Tensor, object]:
        """Read the sources (B, S): the memory (B, S, E), and something that is not used here."""
        ...

    def decode(
        self, tgt: Tensor, memory: Tensor, *, src_mask: Tensor | None
    ) -> tuple[Tensor, object]:
        """Score what follows each of the ids (B, T): logits (B, T, V), and something that is not used here."""
        ...


@runtime_checkable
class SourceRule(Protocol):
    """Decides which tokens a search may write for one source."""

    def allowed(self, written: Sequence[int]) -> Bool[Tensor, "V"]:
        """Return True for each token that may be written next, as a tensor (V,).

        Args:
            written: the ids so far, without the beginning.
        """
        ...

    def penalty(self, written: Sequence[int]) -> float:
        """Return what is subtracted from the score of a hypothesis before the beam ranks it.

        Args:
            written: the ids of the hypothesis, without the beginning.
        """
        ...


@runtime_checkable
class Rule(Protocol):
    """Makes a :class:`SourceRule` for each source; :class:`attn_course.translation.copying.CopyNumbers` is one."""

    def __call__(self, source: Sequence[int]) -> SourceRule | None:
        """Return the rule for one source, or None if every token may be written.

        Args:
            source: its ids, without the padding.
        """
        ...


@runtime_checkable
class CausalLM(Protocol):
    """What :func:`generate` asks of a model; :class:`attn_course.LanguageModel` is one."""

    def __call__(self, ids: Tensor, *, mask: Tensor | None) -> Tensor:
        """Score what follows each of the ids (B, T): logits (B, T, V).

        Args:
            ids: (B, T), padded on the left.
            mask: True where there is no padding, (B, 1, T), or None.
        """
        ...


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature ({temperature}) must be above 0 and finite; "
            "what it tends to at 0 is greedy_search"
        )


def _check_top_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"top_k ({k}) must be at least 1: one token has to be written")


def _check_top_p(p: float) -> None:
    if not 0 < p <= 1:
        raise ValueError(f"top_p ({p}) must be above 0 and at most 1: it is a probability")


@dataclass(frozen=True)
class SpecialIds:
    """The ids of a translator's target that are no words.

    Args:
        bos: the beginning, which the decoder reads first; never written.
        eos: the end of a target; neither of the other two.
        pad: what to fill up with after the end; never written before it.

    Raises:
        ValueError: if ``eos`` is one of the other two.
    """

    bos: int
    eos: int
    pad: int

    def __post_init__(self) -> None:
        if self.eos in (self.bos, self.pad):
            raise ValueError(
                f"eos ({self.eos}) must be neither bos ({self.bos}) nor pad ({self.pad}): these are never written, "
                "so no target could end"
            )


SUBWORD_IDS = SpecialIds(bos=BOS_ID, eos=EOS_ID, pad=PAD_ID)
"""Those of our own vocabularies."""


@dataclass(frozen=True)
class Sampling:
    """How to draw tokens: first the temperature, then ``top_k``, then ``top_p``, each on what the one before left.

    Args:
        temperature: see :func:`apply_temperature`.
        top_k: see :func:`keep_top_k`; None keeps all.
        top_p: see :func:`keep_top_p`; None keeps all.
        generator: on the CPU, where the tokens are drawn, so that every device draws the same; None for torch's.

    Raises:
        ValueError: if a setting has no meaning.
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
        """A token for each row."""
        logits = apply_temperature(logits, self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        drawn = torch.multinomial(logits.softmax(dim=-1).cpu(), 1, generator=self.generator)
        return drawn[:, 0].to(logits.device)


@dataclass(frozen=True)
class Beam:
    """How wide to search, and what to rank by.

    Args:
        size: how many beginnings to keep, and most hypotheses to return for a source.
        length_penalty: the α of :func:`normalize_by_length`; 0 for none.
        length_reward: added to the score for each token (Murray and Chiang 2018, arXiv:1808.10006, section 3).
        patience: the search waits for this times ``size`` hypotheses to end (Kasai et al. 2022,
            arXiv:2204.05424, section 2.2). The shortest end first, so a correction for length needs more than 1.

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
                f"length_penalty ({self.length_penalty}) must be at least 0: below it, short sentences gain even more"
            )
        if not 0 <= self.length_reward < math.inf:
            raise ValueError(
                f"length_reward ({self.length_reward}) must be at least 0 and finite: below it, short sentences gain "
                "even more"
            )
        if not 1 <= self.patience < math.inf:
            raise ValueError(
                f"patience ({self.patience}) must be at least 1 and finite: below it, beams would be cut off"
            )

    def rank(
        self, ids: Int[Tensor, "T"], log_prob: float, rule: "SourceRule | None" = None
    ) -> "Hypothesis":
        """The hypothesis that these ids without the beginning are, with the score that it is ranked by."""
        score = normalize_by_length(log_prob, ids.numel(), self.length_penalty)
        score += self.length_reward * ids.numel()
        if rule is not None:
            score -= rule.penalty(ids.tolist())
        return Hypothesis(ids, log_prob, score)


class Hypothesis(NamedTuple):
    """One way to write a target, as :func:`beam_search` found it."""

    ids: Int[Tensor, "T"]
    """Without the beginning; with the end, unless it was cut off at ``max_len``."""
    log_prob: float
    """Natural logarithm of the probability that the model gives to these ids, the end included."""
    score: float
    """The same after :func:`normalize_by_length`, with the reward for its length, less the penalty of a rule: what
    hypotheses are ranked by."""


# -- One token after the other -----------------------------------------------------------------------


@torch.no_grad()
def greedy_search(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    special: SpecialIds,
    max_len: int,
    rule: Rule | None = None,
) -> Int[Tensor, "B T"]:
    """Write the most probable token, again and again, until it is the end.

    The sentence it arrives at need not be the most probable one: see :func:`beam_search`.

    Args:
        model: what scores next tokens, in evaluation mode.
        src: ids of the sources, padded on the right.
        src_lengths: how many of each row's ids are tokens.
        special: the target's ids that are no words.
        max_len: most tokens to write, the end included.
        rule: which tokens may be written; None for all.

    Returns:
        The ids, without the beginning and with the end where it was written; as long as the longest target.

    Raises:
        ValueError: if the model is in training mode, lengths do not fit the sources, ``max_len`` is below 1 or
            above that of the model, or the model's logits hold nan.
    """
    return _autoregress(
        model, src, src_lengths, special, max_len, choose=_most_probable, rule=rule
    )


@torch.no_grad()
def sample(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    special: SpecialIds,
    max_len: int,
    sampling: Sampling = Sampling(),
) -> Int[Tensor, "B T"]:
    """Draw each token at random, the more probable the more often.

    Args:
        model, src, src_lengths, special, max_len: as for :func:`greedy_search`.
        sampling: what to draw from.

    Returns:
        The ids, as from :func:`greedy_search`.

    Raises:
        ValueError: as :func:`greedy_search`.
    """
    return _autoregress(model, src, src_lengths, special, max_len, choose=sampling.draw)


def _autoregress(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    special: SpecialIds,
    max_len: int,
    choose: Callable[[Tensor], Tensor],
    rule: Rule | None = None,
) -> Int[Tensor, "B T"]:
    memory, src_mask = _encode_sources(model, src, src_lengths, max_len)
    rules = _rules(rule, src, src_lengths)
    writer = _IncrementalDecoder(model, memory, src_mask, max_len, special, rules)
    ids = torch.full_like(src[:, :1], special.bos)  # (B, 1)
    done = torch.zeros_like(src[:, 0], dtype=torch.bool)
    while ids.size(1) <= max_len and not done.all():
        log_probs = writer.next_log_probs(ids)  # (B, V)
        chosen = choose(log_probs).masked_fill(done, special.pad)  # (B,)
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        done = done | (chosen == special.eos)
    return ids[:, 1:]


def _most_probable(logits: Float[Tensor, "B V"]) -> Int[Tensor, "B"]:
    return logits.argmax(dim=-1)


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
    _check_temperature(temperature)
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
    _check_top_k(k)
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
    _check_top_p(p)
    rising, order = logits.softmax(dim=-1).sort(dim=-1, stable=True)
    # A token stays unless it and all that are less probable can go and still leave p.
    kept = rising.cumsum(dim=-1) > 1 - p
    kept[..., -1] = True  # also where rounding says otherwise
    kept = torch.zeros_like(kept).scatter(-1, order, kept)
    return logits.masked_fill(~kept, -math.inf)


# -- Several sentences at a time ---------------------------------------------------------------------


@torch.no_grad()
def beam_search(
    model: Seq2SeqModel,
    src: Int[Tensor, "B S"],
    src_lengths: Int[Tensor, "B"],
    *,
    special: SpecialIds,
    max_len: int,
    beam: Beam = Beam(),
    rule: Rule | None = None,
) -> list[list[Hypothesis]]:
    """Keep the best beginnings of every target, extend each by every token, and keep the best again.

    A hypothesis that ends leaves the beam and cannot be lost any more; the search for a source is over when
    ``beam.size`` have ended, or ``beam.patience`` times as many. What ends is ranked by its probability with a
    correction for its length, without which a short sentence wins for being short. A beam of one is
    :func:`greedy_search`.

    Args:
        model, src, src_lengths, special, max_len: as for :func:`greedy_search`; padding is never written.
        beam: how many beginnings to keep, and what to rank by.
        rule: as for :func:`greedy_search`. Probabilities stay those of the model.

    Returns:
        For each source its hypotheses, best first and no two alike: those that ended, then, if these are fewer
        than ``beam.size``, those cut off at ``max_len``. There may be fewer in all if the model can write no more.

    Raises:
        ValueError: as :func:`greedy_search`.
    """
    memory, src_mask = _encode_sources(model, src, src_lengths, max_len)
    B, K = src.size(0), beam.size

    # Rows of the decoder are (B·K), the beams of a source together.
    memory = memory.repeat_interleave(K, dim=0)
    src_mask = src_mask.repeat_interleave(K, dim=0)
    rules = _rules(rule, src, src_lengths)
    rules_of_beams = [rule for rule in rules for _ in range(K)]
    writer = _IncrementalDecoder(model, memory, src_mask, max_len, special, rules_of_beams)
    ids = torch.full((B, K, 1), special.bos, device=src.device)
    # All beams begin alike, so that all but one would only repeat it.
    log_probs = torch.full((B, K), -math.inf, device=src.device)
    log_probs[:, 0] = 0.0
    ended: list[list[Hypothesis]] = [[] for _ in range(B)]
    searching = [True] * B

    while any(searching) and ids.size(2) <= max_len:
        step = writer.next_log_probs(ids.flatten(0, 1))
        V = step.size(-1)
        totals = log_probs[..., None] + step.view(B, K, V)  # (B, K, V)
        # Every beam may end, so it takes twice as many to be sure of K that go on.
        best, index = totals.flatten(1).topk(min(2 * K, K * V), dim=-1)  # (B, 2K)
        parents = index // V  # the beam that each continues
        longer = torch.cat([_rows(ids, parents), (index % V)[..., None]], dim=-1)
        ends = index % V == special.eos  # (B, 2K)

        for b in filter(searching.__getitem__, range(B)):
            for rank in range(K):  # an end must be among the K best to count
                if ends[b, rank] and best[b, rank] > -math.inf:
                    found = longer[b, rank, 1:], best[b, rank].item()
                    ended[b].append(beam.rank(*found, rules[b]))

        # The best that do not end.
        going_on = ends.byte().argsort(dim=-1, stable=True)[:, :K]
        ids, log_probs = _rows(longer, going_on), best.gather(1, going_on)
        writer.reorder(parents.gather(1, going_on))
        searching = [
            len(ended[b]) < beam.patience * K and bool(log_probs[b].max() > -math.inf)
            for b in range(B)
        ]

    results = []
    for b in range(B):
        results.append(sorted(ended[b], key=lambda h: h.score, reverse=True)[:K])
        if searching[b]:
            cut_off = [
                beam.rank(ids[b, k, 1:], log_probs[b, k].item(), rules[b])
                for k in range(K)
                if log_probs[b, k] > -math.inf
            ]
            results[b] += cut_off[: K - len(results[b])]
    return results


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


# -- Without a source --------------------------------------------------------------------------------


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
) -> Int[Tensor, "B N"]:
    """Let a language model go on with texts: by the most probable token, or, given a ``sampling``, at random.

    With a cache the prompts are read in one call, which is called **prefill**, and each new token in one more.

    Args:
        model: what scores next tokens, in evaluation mode; :class:`~attn_course.LanguageModel` is one.
        prompts: ids (B, T), padded on the **left**, so that every text ends where it goes on.
        prompt_lengths: how many of each row's ids are tokens, at least 1; None if nothing is padded.
        max_new_tokens: most tokens to write.
        eos_id: the id that ends a text, with which a row that has ended is filled up; None if none does.
        sampling: what to draw from; None for the most probable token.
        chunk_size: read the prompts in pieces of so many tokens, which takes less memory; None for one piece. Only
            a cache reads in pieces.

    Returns:
        The new ids (B, N), with the end where it was written; as long as the longest.

    Raises:
        ValueError: if the model is in training mode or its logits hold nan, lengths do not fit the prompts, these
            and the new tokens are more than the model can read, or ``chunk_size`` is below 1 or the model has no
            cache to read in pieces with.

    Example:
        >>> from attn_course import LanguageModel
        >>> model = LanguageModel(100, d_model=8, num_heads=2, d_ff=32).eval()
        >>> prompts = torch.tensor([[0, 0, 7], [4, 5, 6]])  # the first has one token
        >>> generate(model, prompts, torch.tensor([1, 3]), max_new_tokens=4).shape
        torch.Size([2, 4])
    """
    mask = _validate_prompts(model, prompts, prompt_lengths, max_new_tokens)
    has_cache = hasattr(model, "make_cache")
    if chunk_size is not None and (chunk_size < 1 or not has_cache):
        raise ValueError(
            f"chunk_size ({chunk_size}) must be at least 1, and only a cache reads prompts in pieces"
        )
    choose = _most_probable if sampling is None else sampling.draw
    ids, (B, T) = prompts, prompts.shape
    # The last token that is written is not read.
    cache = model.make_cache(B, T + max_new_tokens - 1) if has_cache else None
    done = torch.zeros_like(ids[:, 0], dtype=torch.bool)
    while ids.size(1) < T + max_new_tokens and not done.all():
        if cache is None:
            logits = model(ids, mask=_up_to(mask, ids.size(1)))
        else:
            unread = ids[:, cache.length :]
            for piece in unread.split(chunk_size or unread.size(1), dim=1):
                seen = _up_to(mask, cache.length + piece.size(1))
                logits = model(piece, mask=seen, cache=cache)
        _refuse_nan(logits[:, -1], ids.size(1) - T)
        chosen = choose(logits[:, -1])  # (B,)
        if eos_id is not None:
            chosen = chosen.masked_fill(done, eos_id)
            done = chosen == eos_id
        ids = torch.cat([ids, chosen[:, None]], dim=1)
    return ids[:, T:]


def _up_to(
    mask: Bool[Tensor, "B 1 _"] | None, num_keys: int
) -> Bool[Tensor, "B 1 S"] | None:
    return None if mask is None else mask[:, :, :num_keys]


# -- Many sources, and without a cache ---------------------------------------------------------------


def in_batches(
    search: Callable[..., Sequence[Any]],
    model: nn.Module,
    sources: Sequence[Sequence[int]],
    *,
    batch_size: int = 64,
) -> list[Any]:
    """Search for any number of sources, those of like length together, so that little is padded.

    Args:
        search: :func:`greedy_search` or another of these; its settings come with it, by ``functools.partial``. It may
            write twice as many tokens as the source has, and ten more, if the model can read so many.
        model: a translator between subwords, in evaluation mode.
        sources: ids of each source, without the end.
        batch_size: how many sources to search for together.

    Returns:
        What was found for each source, in the order of the sources.
    """
    device = next(model.parameters()).device
    results: list[Any] = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = make_batch([(sources[i], []) for i in rows]).to(device)
        max_len = min(2 * batch.src.size(1) + 10, model.max_len)
        written = search(
            model, batch.src, batch.src_lengths, special=SUBWORD_IDS, max_len=max_len
        )
        for i, result in zip(rows, written, strict=True):
            results[i] = result
    return results


def without_cache(model: Any) -> Any:
    """The same model, which reads everything anew for each token: to compare, or to save the memory of a cache.

    Args:
        model: of either kind, :class:`Seq2SeqModel` or :class:`CausalLM`.
    """
    return _WithoutCache(model)


class _WithoutCache:
    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self._model(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "make_cache":
            raise AttributeError(
                f"{type(self._model).__name__} is used without its make_cache"
            )
        return getattr(self._model, name)


# -- What they share ---------------------------------------------------------------------------------


def _encode_sources(
    model: Seq2SeqModel, src: Tensor, src_lengths: Tensor, max_len: int
) -> tuple[Float[Tensor, "B S E"], Bool[Tensor, "B 1 S"]]:
    """Look at what was handed in, and encode the sources."""
    if max_len < 1:
        raise ValueError(f"max_len ({max_len}) must be at least 1: the end is a token too")
    readable = getattr(model, "max_len", math.inf)
    if max_len > readable:
        raise ValueError(
            f"max_len ({max_len}) must not be above that of the model ({readable}): to write so many tokens, it must "
            "read the beginning and all of them but the last"
        )
    if src.dim() != 2 or src.size(0) == 0 or src_lengths.shape != src.shape[:1]:
        raise ValueError(
            f"src {tuple(src.shape)} must be (B, S) with at least one source, "
            f"and src_lengths {tuple(src_lengths.shape)} must hold one length for each"
        )
    if int(src_lengths.min()) < 1:
        raise ValueError(
            f"src_lengths {src_lengths.tolist()} must be at least 1: there is nothing to translate in an empty source"
        )
    _refuse_training(model)
    src_mask = make_padding_mask(src_lengths, src.size(1), device=src.device)
    memory, _ = model.encode(src, src_mask=src_mask)
    return memory, src_mask


def _validate_prompts(
    model: CausalLM, prompts: Tensor, lengths: Tensor | None, max_new_tokens: int
) -> Bool[Tensor, "B 1 S"] | None:
    """Look at what was handed in; where there will be no padding, in all that the model will read."""
    if prompts.dim() != 2 or 0 in prompts.shape:
        raise ValueError(
            f"prompts {tuple(prompts.shape)} must be (B, T) with at least one text of one token"
        )
    B, T = prompts.shape
    check_sizes(max_new_tokens=max_new_tokens)
    longest, max_len = T + max_new_tokens - 1, getattr(model, "max_len", math.inf)
    if longest > max_len:
        raise ValueError(
            f"to write {max_new_tokens} tokens after prompts of {T}, {longest} must be read, "
            f"more than max_len ({max_len}) of the model"
        )
    _refuse_training(model)
    if lengths is None:
        return None
    if lengths.shape != (B,) or int(lengths.min()) < 1 or int(lengths.max()) > T:
        raise ValueError(
            f"prompt_lengths {lengths.tolist()} must hold a length from 1 to {T} for each of the {B} prompts"
        )
    # What is written is no padding, so that the padding stays where it is.
    return make_padding_mask(
        lengths + max_new_tokens - 1, longest, side="left", device=prompts.device
    )


def _refuse_training(model: object) -> None:
    if getattr(model, "training", False):
        raise ValueError(
            "the model is in training mode, and dropout would change what it writes from call to call: "
            "call model.eval() first"
        )


def _rules(
    rule: Rule | None, src: Int[Tensor, "B S"], src_lengths: Int[Tensor, "B"]
) -> list[SourceRule | None]:
    if rule is None:
        return [None] * len(src)
    rows = zip(src.tolist(), src_lengths.tolist(), strict=True)
    return [rule(ids[:length]) for ids, length in rows]


class _IncrementalDecoder:
    """Asks a model about targets that grow, N rows at a time, with a cache if it offers one."""

    def __init__(
        self,
        model: Seq2SeqModel,
        memory: Float[Tensor, "N S E"],
        src_mask: Bool[Tensor, "N 1 S"],
        max_len: int,
        special: SpecialIds,
        rules: Sequence[SourceRule | None],
    ) -> None:
        self.model, self.memory, self.src_mask = model, memory, src_mask
        self.rules = rules
        self.never = [special.bos, special.pad]
        self.cache = None
        if hasattr(model, "make_cache"):
            self.cache = model.make_cache(memory, src_mask=src_mask, max_len=max_len)

    def next_log_probs(self, ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
        """Logarithms of the probabilities of the next token, -inf for what is never written."""
        if self.cache is None:
            logits, _ = self.model.decode(ids, self.memory, src_mask=self.src_mask)
        else:
            new = ids[:, self.cache.length :]
            logits, _ = self.model.decode(new, cache=self.cache)  # (N, T, V)
        _refuse_nan(logits[:, -1], ids.size(1) - 1)
        log_probs = logits[:, -1].log_softmax(dim=-1)
        log_probs[:, self.never] = -math.inf
        for row, rule in enumerate(self.rules):
            if rule is not None:
                allowed = rule.allowed(ids[row, 1:].tolist()).to(log_probs.device)
                log_probs[row, ~allowed] = -math.inf
        return log_probs

    def reorder(self, parents: Int[Tensor, "B K"]) -> None:
        """Let each of a source's K rows go on from the one of them with this number."""
        if self.cache is not None:
            B, K = parents.shape
            first = torch.arange(0, B * K, K, device=parents.device)  # row of each source
            rows = (first[:, None] + parents).flatten()
            # The memory stays where it is: these rows share their source.
            for layer in self.cache.layers:
                layer.reorder(rows)


def _refuse_nan(logits: Float[Tensor, "N V"], num_written: int) -> None:
    if logits.isnan().any():
        raise ValueError(
            f"the model's logits hold nan after {num_written} tokens: nothing can be chosen from them"
        )


def _rows(ids: Int[Tensor, "B K T"], index: Int[Tensor, "B N"]) -> Int[Tensor, "B N T"]:
    """For each source the rows of ``ids`` with these numbers."""
    return ids.gather(1, index[..., None].expand(-1, -1, ids.size(2)))
