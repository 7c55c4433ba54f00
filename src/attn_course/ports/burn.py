"""The multi-head attention of the Rust framework Burn. Derived in chapter 24.

Burn is a deep-learning framework written in Rust (https://github.com/tracel-ai/burn). This module is a port of
three files in their version of 2026-08-21: ``mha.rs`` and ``mask.rs`` in ``crates/burn-nn/src/modules/attention``, and
``autoregressive.rs`` in ``crates/burn-nn/src/modules/cache``. The port has the same fields,
defaults and order of operations, and the same missing checks. The docstrings name what is surprising in Burn.

Every mask here is **True where attending is forbidden**, the opposite of the rest of the course.
:func:`to_burn_mask` and :func:`from_burn_mask` translate.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.functional.masks import from_torch_mask
from attn_course.functional.validation import check_is_bool

# -- Masks: True is masked ---------------------------------------------------------------------------


class GeneratePaddingMask(NamedTuple):
    """Padded sequences and their padding mask."""

    tensor: Int[Tensor, "B S"]
    """The tokens."""
    mask: Bool[Tensor, "B S"]
    """True at every token that equals ``pad_token``."""


def generate_autoregressive_mask(
    batch_size: int, seq_length: int, *, device: torch.device | str | None = None
) -> Bool[Tensor, "B T T"]:
    """Return a causal mask for each sequence: True above the diagonal.

    Example:
        >>> generate_autoregressive_mask(1, 3)[0].int()
        tensor([[0, 1, 1],
                [0, 0, 1],
                [0, 0, 0]], dtype=torch.int32)
    """
    square = torch.ones(seq_length, seq_length, dtype=torch.bool, device=device)
    return square.triu(1).expand(batch_size, -1, -1)


def generate_padding_mask(
    pad_token: int,
    tokens_list: Sequence[Sequence[int]],
    seq_length: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> GeneratePaddingMask:
    """Pad sequences with ``pad_token``, and mask each token that equals ``pad_token``.

    The mask depends on the tokens and not on the lengths, so a real token that equals ``pad_token`` is masked, too.
    Burn's fixed length is not supported.

    Args:
        pad_token: what to fill up with, on the right.
        tokens_list: one sequence of tokens for each row.
        seq_length: most tokens of a row, what is longer loses its end without a word; the longest sequence
            when not given.
        device: where the tensors live.

    Example:
        >>> padded = generate_padding_mask(0, [[5, 6], [7, 0, 8]])
        >>> padded.mask.int()
        tensor([[0, 0, 1],
                [0, 1, 0]], dtype=torch.int32)
    """
    size = max((len(tokens) for tokens in tokens_list), default=1)
    if seq_length is not None:
        size = min(size, seq_length)
    tensor = torch.full((len(tokens_list), size), pad_token, device=device)
    for row, tokens in zip(tensor, tokens_list, strict=True):
        ids = torch.tensor(tokens[:size], dtype=tensor.dtype, device=device)
        row[: len(ids)] = ids
    return GeneratePaddingMask(tensor, tensor == pad_token)


def to_burn_mask(mask: Bool[Tensor, "*batch T S"], *, batch_size: int | None = None) -> Bool[Tensor, "..."]:
    """Convert a mask to Burn's convention, where True means that attention is *forbidden*.

    The shape of the mask decides which field of :class:`MhaInput` the result is for:

    ============  ==========  =========================================
    mask          result      field of ``MhaInput``
    ============  ==========  =========================================
    (B, 1, S)     (B, S)      ``mask_pad``
    (B, T, S)     (B, T, S)   ``mask_attn``
    (T, S)        (B, T, S)   ``mask_attn``; needs ``batch_size``
    ============  ==========  =========================================

    A query that may attend to nothing gets zeros from the course, and the average of all values from Burn.

    Raises:
        TypeError: if the mask is not boolean.
        ValueError: if the mask has neither two nor three axes, or two and ``batch_size`` is missing.

    Example:
        >>> from attn_course import make_causal_mask, make_padding_mask
        >>> to_burn_mask(make_padding_mask([1, 2]))
        tensor([[False,  True],
                [False, False]])
        >>> to_burn_mask(make_causal_mask(2), batch_size=1)
        tensor([[[False,  True],
                 [False, False]]])
    """
    check_is_bool(mask)
    if mask.dim() == 2:
        if batch_size is None:
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} needs batch_size: Burn's mask_attn has an axis of sequences"
            )
        return ~mask.expand(batch_size, -1, -1)
    if mask.dim() != 3:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} must have shape (T, S), (B, 1, S) or (B, T, S) to be converted"
        )
    return ~mask[:, 0] if mask.size(1) == 1 else ~mask


def from_burn_mask(
    mask_attn: Bool[Tensor, "B T S"] | None = None, mask_pad: Bool[Tensor, "B S"] | None = None
) -> Bool[Tensor, "..."]:
    """Convert a mask from Burn's convention, where True means that attention is forbidden.

    Returns:
        One mask, True = may attend: (B, T, S), or (B, 1, S) when there is only ``mask_pad``.

    Raises:
        TypeError: if a mask is not boolean.
        ValueError: if no mask is given.

    Example:
        >>> from_burn_mask(mask_pad=torch.tensor([[False, False, True]])).int()
        tensor([[[1, 1, 0]]], dtype=torch.int32)
    """
    if mask_attn is None and mask_pad is None:
        raise ValueError("from_burn_mask needs mask_attn, mask_pad or both; neither was given")
    # With one "head" these are the masks of nn.MultiheadAttention, where True is masked too.
    return from_torch_mask(mask_attn, mask_pad, num_heads=1)


# -- Quiet softmax, twice ----------------------------------------------------------------------------


def burn_quiet_softmax(x: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    r"""Quiet softmax as Burn computes it since 2025-12-04 (pull request 4121): right, but for rows of -inf.

    Computes $e^{x_i - m} / (\sum_j e^{x_j - m} + e^{-m})$ with $m = \max_j x_j$. Since m may be very negative,
    $e^{-m}$ overflows below -88 in float32, where the weight is rounded to 0 a little early; and a row of -inf
    gives NaN. Burn mended the latter on 2026-09-21 (pull request 5743). :func:`attn_course.quiet_softmax`
    has neither: its m is never below 0.

    Example:
        >>> burn_quiet_softmax(torch.tensor([1.0, 7.0]))
        tensor([0.0025, 0.9966])
        >>> burn_quiet_softmax(torch.tensor([-torch.inf, -torch.inf]))
        tensor([nan, nan])
    """
    largest = x.detach().amax(dim, keepdim=True)
    exponentials = torch.exp(x - largest)
    return exponentials / (exponentials.sum(dim, keepdim=True) + torch.exp(-largest))


def burn_quiet_softmax_2023(x: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    r"""Quiet softmax as Burn computed it from 2023-11-30 (pull request 692) to 2025-12-04: **wrong**.

    Computes $e^{x_i - m} / (\sum_j e^{x_j - m} + 1)$ with $m = \max_j x_j$. The maximum is subtracted from the
    scores, but not from the zero whose exponential is the 1, so that the result no longer depends on how large
    the scores are: the weights of a row always sum to 1/2 or more, and never to almost nothing.

    Example:
        >>> burn_quiet_softmax_2023(torch.tensor([1.0, 7.0]))
        tensor([0.0012, 0.4994])
    """
    exponentials = torch.exp(x - x.detach().amax(dim, keepdim=True))
    return exponentials / (exponentials.sum(dim, keepdim=True) + 1)


# -- The module: a configuration, a record going in, a record coming out -----------------------------


@dataclass(frozen=True)
class KaimingUniform:
    """Draw numbers uniformly up to ``sqrt(3) * gain / sqrt(fan)``; with Burn's gain, ``nn.Linear``'s own bound."""

    gain: float = 1 / math.sqrt(3)
    fan_out_only: bool = False

    def bound(self, fan_in: int, fan_out: int) -> float:
        """The largest number that can be drawn."""
        fan = fan_out if self.fan_out_only else fan_in
        return math.sqrt(3) * self.gain / math.sqrt(fan)


@dataclass(frozen=True)
class BurnMultiHeadAttentionConfig:
    """Everything :class:`BurnMultiHeadAttention` is made from. Nothing is checked, here or later.

    ``n_heads`` need not divide ``d_model``: a head is ``d_model // n_heads`` wide, so with more heads than
    columns it is 0 wide. Such a module is made without complaint (one of Burn's own tests does so), and fails
    when it is first called.

    Example:
        >>> BurnMultiHeadAttentionConfig(d_model=2, n_heads=4).init().d_k
        0
    """

    d_model: int
    """E, the width of everything."""
    n_heads: int
    """H, which need not divide it."""
    dropout: float = 0.1
    """Probability of setting a *score* to 0 in training."""
    min_float: float = -1.0e4
    """What a masked score is replaced by; half precision holds it, but not -1e9."""
    quiet_softmax: bool = False
    """Whether a row of weights may sum to less than 1."""
    initializer: KaimingUniform = KaimingUniform()
    """How weights and biases are drawn."""
    key_bias: bool = True
    value_bias: bool = True
    query_bias: bool = True
    output_bias: bool = True

    def init(self) -> "BurnMultiHeadAttention":
        """Make the module."""
        return BurnMultiHeadAttention(self)


@dataclass(frozen=True)
class MhaInput:
    """What goes into :class:`BurnMultiHeadAttention`. In both masks, True is masked."""

    query: Float[Tensor, "B T E"]
    key: Float[Tensor, "B S E"]
    value: Float[Tensor, "B S E"]
    mask_pad: Bool[Tensor, "B S"] | None = None
    """Keys to hide from all queries. No query is hidden, and a padded one gets an output like the others."""
    mask_attn: Bool[Tensor, "B T S"] | None = None
    """Keys to hide from each query."""

    @classmethod
    def self_attn(
        cls,
        tensor: Float[Tensor, "B T E"],
        *,
        mask_pad: Bool[Tensor, "B T"] | None = None,
        mask_attn: Bool[Tensor, "B T T"] | None = None,
    ) -> "MhaInput":
        """Use one tensor as query, key and value."""
        return cls(tensor, tensor, tensor, mask_pad, mask_attn)


@dataclass(frozen=True)
class MhaOutput:
    """The output of :class:`BurnMultiHeadAttention`."""

    weights: Float[Tensor, "B H T S"]
    """The very numbers that multiplied the values."""
    context: Float[Tensor, "B T E"]
    """The output, after its projection."""


class BurnMultiHeadAttention(nn.Module):
    r"""Multi-head attention with Burn's order of operations.

    ``q @ k.mT / sqrt(d_k)``, dropout **on these scores**, ``mask_pad``, ``mask_attn``, softmax or quiet
    softmax, ``@ v``, output projection.

    A dropped score becomes 0, not -inf: its key keeps a weight, and a row sums to 1 in training too. PyTorch
    drops weights, after the softmax, and so does Burn's own ``CrossAttention``.

    A masked score is *replaced* by ``min_float``, a number like others: a query whose keys are all masked gets
    the average of all values under the softmax, and zeros under the quiet softmax.

    Example:
        >>> layer = BurnMultiHeadAttentionConfig(d_model=8, n_heads=2).init()
        >>> output = layer(MhaInput.self_attn(torch.randn(1, 5, 8)))
        >>> output.context.shape, output.weights.shape
        (torch.Size([1, 5, 8]), torch.Size([1, 2, 5, 5]))
    """

    def __init__(self, config: BurnMultiHeadAttentionConfig) -> None:
        super().__init__()
        self.query = _linear(config, config.query_bias)
        self.key = _linear(config, config.key_bias)
        self.value = _linear(config, config.value_bias)
        self.output = _linear(config, config.output_bias)
        self.dropout = nn.Dropout(config.dropout)
        self.activation = nn.GELU()  # never called, in Burn either
        self.d_model = config.d_model
        self.n_heads = config.n_heads
        self.d_k = config.d_model // config.n_heads
        self.min_float = config.min_float
        self.quiet_softmax = config.quiet_softmax

    def forward(self, input: MhaInput) -> MhaOutput:
        """Attend from ``input.query`` to ``input.key``."""
        query = self._split_heads(self.query(input.query))  # (B, H, T, D)
        key = self._split_heads(self.key(input.key))  # (B, H, S, D)
        value = self._split_heads(self.value(input.value))  # (B, H, S, D)
        weights = self._weights(query, key, input)
        context = (weights @ value).transpose(1, 2).reshape(input.query.shape)
        return MhaOutput(weights, self.output(context))

    def forward_cache(self, input: MhaInput, cache: "MhaCache") -> MhaOutput:
        """Attend, and project only what the cache has not seen.

        The first call, the *prefill*, may have any number of positions. Without a ``mask_attn`` they also attend to
        later positions, and the cache keeps the results. Every later call gets all positions again and **one** new
        position at the end. Any other number fails and leaves the caches of q, k and v one row longer.

        The queries are cached, too, so each call computes the weights of all positions again. But it computes only
        the last row of the context and keeps the other rows.

        Returns:
            Weights (B, H, T, S) and context (B, T, E), with a row for each position so far.

        Raises:
            RuntimeError: if ``input.query`` is not one position longer than at the last call; for example
                because it holds only the new one.
        """
        query = cache.query(input.query, lambda x: self._split_heads(self.query(x)))
        key = cache.key(input.key, lambda x: self._split_heads(self.key(x)))
        value = cache.value(input.value, lambda x: self._split_heads(self.value(x)))
        weights = self._weights(query, key, input)
        # The shape is the input's, but there are as many rows as cached queries.
        context = (weights @ value).transpose(1, 2).reshape(input.query.shape)
        return MhaOutput(weights, cache.output(context, self.output))

    def _weights(self, query: Tensor, key: Tensor, input: MhaInput) -> Tensor:
        scores = self.dropout(query @ key.mT / math.sqrt(self.d_k))  # (B, H, T, S)
        if input.mask_pad is not None:
            scores = scores.masked_fill(input.mask_pad[:, None, None, :], self.min_float)
        if input.mask_attn is not None:
            scores = scores.masked_fill(input.mask_attn[:, None], self.min_float)
        return (burn_quiet_softmax if self.quiet_softmax else torch.softmax)(scores, -1)

    def _split_heads(self, x: Tensor) -> Tensor:
        x = x.reshape(*x.shape[:2], self.n_heads, self.d_k)  # (B, T, H, D)
        return x.transpose(1, 2)  # (B, H, T, D)

    def extra_repr(self) -> str:
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, d_k={self.d_k}, "
            f"min_float={self.min_float:g}, quiet_softmax={self.quiet_softmax}"
        )


def _linear(config: BurnMultiHeadAttentionConfig, bias: bool) -> nn.Linear:
    linear = nn.Linear(config.d_model, config.d_model, bias=bias)
    bound = config.initializer.bound(config.d_model, config.d_model)
    for parameter in linear.parameters():
        nn.init.uniform_(parameter, -bound, bound)
    return linear


# -- The cache ---------------------------------------------------------------------------------------


@dataclass
class GrowingCache:
    """Project all positions in the first call, and only the last position in every later call."""

    dim: int
    """The axis of positions in what is kept."""
    value: Tensor | None = None

    def __call__(self, x: Float[Tensor, "B T E"], project: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the projections of all positions so far."""
        if self.value is None:
            self.value = project(x)
        else:
            self.value = torch.cat([self.value, project(x[:, -1:])], self.dim)
        return self.value


@dataclass
class FixedCache:
    """Project the first input, and return this result in every later call."""

    value: Tensor | None = None

    def __call__(self, x: Float[Tensor, "B S E"], project: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the projections of the first input."""
        if self.value is None:
            self.value = project(x)
        return self.value


@dataclass
class MhaCache:
    """Four caches for :meth:`BurnMultiHeadAttention.forward_cache`: q, k, v, and the output.

    It has no maximum length, cannot be reset, and cannot reorder its sequences as a beam search asks.
    """

    query: GrowingCache = field(default_factory=lambda: GrowingCache(dim=2))
    key: GrowingCache | FixedCache = field(default_factory=lambda: GrowingCache(dim=2))
    value: GrowingCache | FixedCache = field(default_factory=lambda: GrowingCache(dim=2))
    output: GrowingCache = field(default_factory=lambda: GrowingCache(dim=1))

    @classmethod
    def autoregressive(cls) -> "MhaCache":
        """Return the caches for self-attention, which all grow."""
        return cls()

    @classmethod
    def autoregressive_cross_attention(cls) -> "MhaCache":
        """Return the caches for cross-attention, with the keys and values of the first call."""
        return cls(key=FixedCache(), value=FixedCache())


# -- The fused operation -----------------------------------------------------------------------------


def burn_attention(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S Dv"],
    mask: Bool[Tensor, "#B #H #T #S"] | None = None,
    attn_bias: Float[Tensor, "#B #H #T #S"] | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "B H T Dv"]:
    """Burn's fused ``attention()``, in the plain form that it falls back to where there is no fused kernel.

    A port of ``attention_fallback`` in ``crates/burn-backend/src/backend/ops/modules/attention.rs``. The module
    above does not call it, and it differs: masked scores become -inf, a query that may attend to nothing gets
    zeros, and there is no dropout. In this order: scale, soft cap, ``mask``, causal mask, bias, softmax.

    Args:
        mask: True is masked.
        attn_bias: added to the scores after they were masked.
        scale: what the scores are multiplied by; 1 / sqrt(D) when not given.
        softcap: c of ``c * tanh(scores / c)``, which keeps scores between -c and c.
        is_causal: hide the future; the last query is aligned with the last key (bottom-right).

    Raises:
        ValueError: if ``softcap`` is not positive.
    """
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be positive, got {softcap}")
    scores = query @ key.mT * (query.size(-1) ** -0.5 if scale is None else scale)
    if softcap is not None:  # before the masks: the tanh of -inf is a score like others
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    if is_causal:
        t, s = scores.shape[-2:]
        future = torch.ones(t, s, dtype=torch.bool, device=scores.device).triu(s - t + 1)
        scores = scores.masked_fill(future, -torch.inf)
    if attn_bias is not None:
        scores = scores + attn_bias
    # Both clamps are for rows of -inf: no -inf - -inf, and no 0 / 0.
    info = torch.finfo(scores.dtype)
    exponentials = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=info.min))
    total = exponentials.sum(-1, keepdim=True).clamp(min=info.tiny)
    return (exponentials / total) @ value
