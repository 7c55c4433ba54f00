"""The Transformer: feed-forward, encoder and decoder layers, and the whole translator. Derived in chapter 9."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import Cache, DecoderCache
from attn_course.caching.decoder import rollback_on_error
from attn_course.functional.positions import Rotation, make_sinusoidal_positions
from attn_course.functional.validation import (
    check_is_bool,
    check_is_flag,
    check_is_tensor,
    check_probability,
    check_sizes,
    check_token_ids,
    check_width,
)
from attn_course.nn.multi_head_attention import MultiHeadAttention, MultiHeadCrossAttention
from attn_course.nn.torch_interop import (
    DECODER_PARTS,
    ENCODER_PARTS,
    copy_weights,
    layer_from_torch,
    layer_to_torch,
)


class AttentionWeights(NamedTuple):
    """The weights of every layer and head, as they were applied, masks and dropout included."""

    encoder: Float[Tensor, "layers B H S S"]
    """Source to source; 0 where the source is padding."""
    decoder: Float[Tensor, "layers B H T T"]
    """Target to target; 0 in the future."""
    cross: Float[Tensor, "layers B H T S"]
    """Target to source; 0 where the source is padding."""


class FeedForward(nn.Module):
    r"""Two linear maps with a ReLU between them, or another activation, applied to each position alone.

    Computes $\mathrm{FFN}(x) = \max(0, xW_1 + b_1)W_2 + b_2$ (Vaswani et al. 2017, arXiv:1706.03762, eq. 2).

    Args:
        d_model: E, the width of input and output.
        d_ff: the width between the two maps; the paper's is 4 * E.
        dropout: probability of dropping a number between the two maps, in training.
        activation: a function of one tensor; ReLU in the first paper.

    Raises:
        ValueError: if a size is below 1, ``dropout`` is outside [0, 1), or the input is not E wide.

    Example:
        >>> layer = FeedForward(d_model=8, d_ff=32)
        >>> layer(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, d_ff=d_ff)
        check_probability(dropout, "dropout")
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch E"]:
        """Compute at each position of ``x`` (..., E) from that position alone."""
        check_width(x, self.up.in_features, "x", "d_model")
        return self.down(self.dropout(self.activation(self.up(x))))


class _Layer(nn.Module):
    """What both kinds of layers share: where the norms stand."""

    def __init__(self, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        """What a sublayer reads of the stream."""
        return norm(x) if self.norm_first else x

    def _add(self, x: Tensor, out: Tensor, norm: nn.Module) -> Tensor:
        """The stream with what a sublayer returned."""
        x = x + self.dropout(out)
        return x if self.norm_first else norm(x)

    def extra_repr(self) -> str:
        return f"norm_first={self.norm_first}"


class EncoderLayer(_Layer):
    r"""Self-attention, then a feed-forward, each added to the stream that it read from.

    *Pre-norm* (``norm_first``): $x + f(\mathrm{LN}(x))$ for each of the two (Xiong et al. 2020,
    arXiv:2002.04745, section 3.1). What the layer returns has never been normalised: a stack of such layers
    needs a norm behind the last one. *Post-norm*: $\mathrm{LN}(x + f(x))$, as in the first paper (Vaswani
    et al. 2017, arXiv:1706.03762, section 3.1).

    Args:
        d_model: E, the width of the stream.
        num_heads: H; must divide ``d_model``.
        d_ff: the width inside the feed-forward.
        dropout: probability, in training, of dropping an attention weight, a number inside the feed-forward,
            and a number of what either of the two adds.
        norm_first: pre-norm; otherwise post-norm. Both have the same parameters.
        activation: inside the feed-forward.
        norm_eps: added to the variance in the norms.
        num_kv_heads: as in :class:`~attn_course.MultiHeadAttention`.

    Raises:
        ValueError: if ``num_heads`` does not divide ``d_model``, a size is below 1, or ``dropout`` is
            outside [0, 1).

    Example:
        >>> layer = EncoderLayer(d_model=8, num_heads=2, d_ff=32)
        >>> x, weights = layer(torch.randn(1, 5, 8), need_weights=True)
        >>> x.shape, weights.shape
        (torch.Size([1, 5, 8]), torch.Size([1, 2, 5, 5]))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        norm_eps: float = 1e-5,
        num_kv_heads: int | None = None,
    ) -> None:
        super().__init__(dropout, norm_first)
        self.self_attention = MultiHeadAttention(
            d_model, num_heads, dropout=dropout, num_kv_heads=num_kv_heads
        )
        self.feed_forward = FeedForward(
            d_model, d_ff, dropout=dropout, activation=activation
        )
        self.self_attention_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=norm_eps)

    def forward(
        self,
        x: Float[Tensor, "B S E"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | Rotation | None = None,
        is_causal: bool = False,
        need_weights: bool | Sequence[int] | Int[Tensor, "R"] = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "B S E"], Float[Tensor, "B H _ _"] | None]:
        """Let every position read the others, then think it over alone.

        Args:
            x: (B, S, E).
            mask: True where a position may be attended to: (S, S), (B, 1, S), (B, S, S) or (B, H, S, S).
            bias, positions, is_causal, need_weights, cache: as in :class:`~attn_course.MultiHeadAttention`. With
                ``is_causal`` it is a layer of a language model.

        Returns:
            The new stream (B, S, E), and the weights (B, H, S, S), or (B, H, R, S) of chosen queries, or None.

        Raises:
            ValueError: if a shape does not fit.
            TypeError: as :class:`~attn_course.MultiHeadAttention`.
        """
        with rollback_on_error(cache):
            out, weights = self.self_attention(
                self._before(x, self.self_attention_norm),
                mask=mask,
                bias=bias,
                positions=positions,
                is_causal=is_causal,
                need_weights=need_weights,
                cache=cache,
            )
            x = self._add(x, out, self.self_attention_norm)
            out = self.feed_forward(self._before(x, self.feed_forward_norm))
            x = self._add(x, out, self.feed_forward_norm)
        return x, weights

    @classmethod
    def from_torch(cls, module: nn.TransformerEncoderLayer) -> "EncoderLayer":
        """Copy an ``nn.TransformerEncoderLayer``, its weights, type, device and mode included.

        Raises:
            ValueError: if it has no biases.

        Example:
            >>> theirs = nn.TransformerEncoderLayer(8, 2, 32, batch_first=True).eval()
            >>> x = torch.randn(1, 5, 8)
            >>> torch.allclose(EncoderLayer.from_torch(theirs)(x)[0], theirs(x), atol=1e-6)
            True
        """
        return layer_from_torch(cls, module, ENCODER_PARTS)

    def to_torch(self) -> nn.TransformerEncoderLayer:
        """Copy the weights into a new ``nn.TransformerEncoderLayer`` with ``batch_first=True``.

        Example:
            >>> ours = EncoderLayer(d_model=8, num_heads=2, d_ff=32)
            >>> x = torch.randn(1, 5, 8)
            >>> torch.allclose(ours(x)[0], ours.to_torch()(x), atol=1e-6)
            True
        """
        return layer_to_torch(self, nn.TransformerEncoderLayer, ENCODER_PARTS)


class DecoderLayer(_Layer):
    """Causal self-attention, cross-attention to the memory, then a feed-forward, each added to the stream.

    Pre-norm or post-norm as in :class:`EncoderLayer`. The memory is read as it is: in a pre-norm stack it has
    been normalised behind the last encoder layer.

    Args:
        d_model: E, the width of the stream and of the memory.
        num_heads: H; must divide ``d_model``.
        d_ff: the width inside the feed-forward.
        dropout: as in :class:`EncoderLayer`.
        norm_first: pre-norm; otherwise post-norm. Both have the same parameters.
        activation: inside the feed-forward.
        norm_eps: added to the variance in the norms.

    Raises:
        ValueError: as :class:`EncoderLayer`.

    Example:
        >>> layer = DecoderLayer(d_model=8, num_heads=2, d_ff=32)
        >>> x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
        >>> x, to_target, to_memory = layer(x, memory, need_weights=True)
        >>> x.shape, to_target.shape, to_memory.shape
        (torch.Size([1, 3, 8]), torch.Size([1, 2, 3, 3]), torch.Size([1, 2, 3, 5]))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
        activation: Callable[[Tensor], Tensor] = torch.relu,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__(dropout, norm_first)
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout)
        self.cross_attention = MultiHeadCrossAttention(d_model, num_heads, dropout=dropout)
        self.feed_forward = FeedForward(
            d_model, d_ff, dropout=dropout, activation=activation
        )
        self.self_attention_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.cross_attention_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.feed_forward_norm = nn.LayerNorm(d_model, eps=norm_eps)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        memory: Float[Tensor, "B S E"] | tuple[Tensor, Tensor],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool | Sequence[int] | Int[Tensor, "R"] = False,
        cache: Cache | None = None,
    ) -> tuple[
        Float[Tensor, "B T E"],
        Float[Tensor, "B H _ _"] | None,
        Float[Tensor, "B H _ S"] | None,
    ]:
        """Read what is written, then the memory, then think it over at each position alone.

        Args:
            x: the target (B, T, E).
            memory: the encoder's output (B, S, E), or the keys and values that ``project_memory`` of its
                ``cross_attention`` made of it.
            mask: where the target may attend to itself, its future being hidden in any case: (T, T), (B, 1, T),
                (B, T, T) or (B, H, T, T).
            memory_mask: where the target may attend to the memory; mostly the source's padding, (B, 1, S).
            need_weights, cache: as in :class:`~attn_course.MultiHeadAttention`; the cache is the self-attention's.

        Returns:
            The new stream (B, T, E), the weights of the self-attention (B, H, T, T) or None, and those of the
            cross-attention (B, H, T, S) or None; of chosen queries, R of the T rows.

        Raises:
            ValueError: if a shape does not fit.
            TypeError: as :class:`~attn_course.MultiHeadAttention`.
        """
        with rollback_on_error(cache):
            out, self_weights = self.self_attention(
                self._before(x, self.self_attention_norm),
                mask=mask,
                is_causal=True,
                need_weights=need_weights,
                cache=cache,
            )
            x = self._add(x, out, self.self_attention_norm)
            out, cross_weights = self.cross_attention(
                self._before(x, self.cross_attention_norm),
                memory,
                mask=memory_mask,
                need_weights=need_weights,
            )
            x = self._add(x, out, self.cross_attention_norm)
            out = self.feed_forward(self._before(x, self.feed_forward_norm))
            x = self._add(x, out, self.feed_forward_norm)
        return x, self_weights, cross_weights

    @classmethod
    def from_torch(cls, module: nn.TransformerDecoderLayer) -> "DecoderLayer":
        """Copy an ``nn.TransformerDecoderLayer``, its weights, type, device and mode included.

        Theirs is causal only when told so, by ``tgt_mask``; ours always.

        Raises:
            ValueError: if it has no biases.

        Example:
            >>> theirs = nn.TransformerDecoderLayer(8, 2, 32, batch_first=True).eval()
            >>> x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
            >>> out, *_ = DecoderLayer.from_torch(theirs)(x, memory)
            >>> future = torch.ones(3, 3).triu(1).bool()  # PyTorch's masks are True where nothing may be seen
            >>> torch.allclose(out, theirs(x, memory, tgt_mask=future), atol=1e-6)
            True
        """
        return layer_from_torch(cls, module, DECODER_PARTS)

    def to_torch(self) -> nn.TransformerDecoderLayer:
        """Copy the weights into a new ``nn.TransformerDecoderLayer`` with ``batch_first=True``.

        Example:
            >>> ours = DecoderLayer(d_model=8, num_heads=2, d_ff=32)
            >>> x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
            >>> future = torch.ones(3, 3).triu(1).bool()  # PyTorch's masks are True where nothing may be seen
            >>> torch.allclose(ours(x, memory)[0], ours.to_torch()(x, memory, tgt_mask=future), atol=1e-6)
            True
        """
        return layer_to_torch(self, nn.TransformerDecoderLayer, DECODER_PARTS)


@dataclass(frozen=True)
class TransformerOptions:
    r"""What a :class:`Transformer` is beside its sizes; mostly left as it is.

    Args:
        dropout: as in :class:`EncoderLayer`, and of the numbers that enter the first layers.
        norm_first: pre-norm; otherwise post-norm.
        tie_weights: make the logits with the target's embedding table itself, one tensor for both jobs, with
            V * E parameters less (Press and Wolf 2017, arXiv:1608.05859). It starts with a spread of
            $1/\sqrt{E}$, which suits the logits, and is why embeddings are multiplied by $\sqrt{E}$.
        max_len: longest source or target.

    Raises:
        ValueError: if ``max_len`` is below 1, or ``dropout`` is outside [0, 1).
    """

    dropout: float = 0.1
    norm_first: bool = True
    tie_weights: bool = True
    max_len: int = 256

    def __post_init__(self) -> None:
        check_sizes(max_len=self.max_len)
        check_probability(self.dropout, "dropout")


class Transformer(nn.Module):
    r"""Translate: encode the source, then score each next token of the target from those before it and the source.

    Tokens come in as embeddings times $\sqrt{E}$ plus sinusoidal positions, and go out as logits (Vaswani
    et al. 2017, arXiv:1706.03762, sections 3.1 to 3.5). The decoder is always causal: its logits at position
    t score the token that follows ``tgt[:, t]``.

    With ``norm_first`` a norm stands behind the last layer of encoder and decoder, because nothing else has
    normalised their output. Post-norm layers end with a norm, so there is none, as in the paper;
    ``nn.Transformer`` has it in both cases.

    Args:
        src_vocab_size: number of source tokens; ids go from 0 to this less 1.
        tgt_vocab_size: V, the same for the target, and the width of the logits.
        d_model: E, the width of the stream; even.
        num_heads: H; must divide ``d_model``.
        num_layers: how many layers the encoder has, and as many the decoder; or a pair of numbers, each at least 1.
        d_ff: the width inside the feed-forwards.
        options: where the norms stand, dropout, tied weights and the greatest length.

    Raises:
        ValueError: if ``d_model`` is odd, ``num_heads`` does not divide it, or a size is below 1.

    Example:
        >>> model = Transformer(100, 90, d_model=8, num_heads=2, d_ff=16).eval()
        >>> src, tgt = torch.randint(100, (2, 7)), torch.randint(90, (2, 5))
        >>> mask = torch.tensor([[[True] * 7], [[True] * 4 + [False] * 3]])  # make_padding_mask([7, 4])
        >>> logits, weights = model(src, tgt, src_mask=mask, need_weights=True)
        >>> logits.shape, weights.cross.shape
        (torch.Size([2, 5, 90]), torch.Size([2, 2, 2, 5, 7]))
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int | tuple[int, int] = 2,
        d_ff: int = 256,
        options: TransformerOptions = TransformerOptions(),
    ) -> None:
        super().__init__()
        num_encoder_layers, num_decoder_layers = (
            (num_layers, num_layers) if isinstance(num_layers, int) else num_layers
        )
        check_sizes(
            src_vocab_size=src_vocab_size,
            tgt_vocab_size=tgt_vocab_size,
            num_encoder_layers=num_encoder_layers,
            num_decoder_layers=num_decoder_layers,
        )
        dropout, norm_first = options.dropout, options.norm_first
        self.d_model = d_model
        self.max_len = options.max_len
        self.src_embed = nn.Embedding(src_vocab_size, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab_size, d_model)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, dropout=dropout, norm_first=norm_first)
            for _ in range(num_encoder_layers)
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(d_model, num_heads, d_ff, dropout=dropout, norm_first=norm_first)
            for _ in range(num_decoder_layers)
        )
        # In a pre-norm stack nothing has normalised the last sum.
        self.encoder_norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.to_logits = nn.Linear(d_model, tgt_vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        # Made anew from the sizes, so it need not be stored with the weights.
        self.register_buffer(
            "positions", make_sinusoidal_positions(self.max_len, d_model), persistent=False
        )
        self._reset_parameters()
        if options.tie_weights:
            self.to_logits.weight = self.tgt_embed.weight

    def _load_from_state_dict(self, *given: Any) -> None:
        super()._load_from_state_dict(*given)
        # What stands in memory laid out by ``to_empty`` is no table of positions.
        self.positions.copy_(make_sinusoidal_positions(self.max_len, self.d_model))

    def _reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if "embed" in name or name.startswith("to_logits"):
                # Multiplied by sqrt(E) on the way in, entries have the size of the positions';
                # tied, the first logits have variance 1.
                nn.init.normal_(parameter, std=self.d_model**-0.5)
            elif parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)

    def _embed(self, embed: nn.Embedding, ids: Tensor, name: str, start: int = 0) -> Tensor:
        check_token_ids(ids, name, self.max_len, start)
        try:
            tokens = embed(ids)  # (B, T, E)
        except IndexError:
            raise IndexError(
                f"{name} holds ids from {ids.min()} to {ids.max()}; "
                f"those of its vocabulary go from 0 to {embed.num_embeddings - 1}"
            ) from None
        positions = self.positions[start : start + ids.size(1)]
        x = tokens * math.sqrt(self.d_model) + positions
        return self.dropout(x)

    def encode(
        self,
        src: Int[Tensor, "B S"],
        *,
        src_mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B S E"], list[Tensor] | None]:
        """Read the source; once is enough for any number of calls of :meth:`decode`.

        Args:
            src: ids (B, S).
            src_mask: True where the source is no padding, (B, 1, S) as :func:`make_padding_mask` makes it.
            need_weights: whether to return the weights.

        Returns:
            The memory (B, S, E), and the weights (B, H, S, S) of each layer or None.

        Raises:
            ValueError: if the source is longer than ``max_len`` or a shape does not fit.
            TypeError: if ids are not integers or the mask is not boolean.
            IndexError: if an id is outside the vocabulary (on the CPU; a GPU says it in its own way).
        """
        check_is_flag(need_weights, "need_weights")
        x = self._embed(self.src_embed, src, "src")
        _check_src_mask(src_mask, *src.shape)
        weights = []
        for layer in self.encoder_layers:
            # The mask goes to every layer: padding is hidden from each of them.
            x, layer_weights = layer(x, mask=src_mask, need_weights=need_weights)
            weights.append(layer_weights)
        return self.encoder_norm(x), weights if need_weights else None

    def decode(
        self,
        tgt: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S E"] | None = None,
        *,
        src_mask: Bool[Tensor, "..."] | None = None,
        tgt_mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
        cache: DecoderCache | None = None,
    ) -> tuple[Float[Tensor, "B T V"], tuple[list[Tensor], list[Tensor]] | None]:
        """Score every next token of the target.

        Args:
            tgt: ids (B, T), the beginning first; with a cache only those that it has not read yet.
            memory: what :meth:`encode` made of the source (B, S, E).
            src_mask: the mask that :meth:`encode` was given, (B, 1, S).
            tgt_mask: where the target may attend to itself, in addition to the causal mask: (T, T), (B, 1, T),
                (B, T, T) or (B, H, T, T). Padding on the right needs none: it is the future of all that counts.
                With a cache the last axis counts the tokens before as well.
            need_weights: whether to return the weights.
            cache: what :meth:`make_cache` made of the memory, in the place of ``memory`` and ``src_mask``. The
                tokens of ``tgt`` are added to it.

        Returns:
            The logits (B, T, V), and None or two lists with the weights of each layer: those of the
            self-attention (B, H, T, T) and those of the cross-attention (B, H, T, S).

        Raises:
            ValueError: if the target is longer than ``max_len`` or than the cache has room for, a shape does not
                fit, or there are both a cache and a memory, or none of them.
            TypeError: if ids are not integers or a mask is not boolean.
            IndexError: if an id is outside the vocabulary (on the CPU; a GPU says it in its own way).
        """
        check_is_flag(need_weights, "need_weights")
        start = 0 if cache is None else cache.length
        x = self._embed(self.tgt_embed, tgt, "tgt", start)
        if cache is None:
            _check_memory(memory, tgt.size(0))
            _check_src_mask(src_mask, *memory.shape[:2])
            kept = [(None, memory)] * len(self.decoder_layers)
        else:
            _check_cache(cache, memory, src_mask, tgt)
            src_mask, kept = cache.src_mask, cache
        to_target, to_source = [], []
        with rollback_on_error(cache):
            for layer, (layer_cache, source) in zip(self.decoder_layers, kept, strict=True):
                x, self_weights, cross_weights = layer(
                    x,
                    source,
                    mask=tgt_mask,
                    memory_mask=src_mask,
                    need_weights=need_weights,
                    cache=layer_cache,
                )
                to_target.append(self_weights)
                to_source.append(cross_weights)
        logits = self.to_logits(self.decoder_norm(x))
        return logits, (to_target, to_source) if need_weights else None

    def make_cache(
        self,
        memory: Float[Tensor, "B S E"],
        *,
        src_mask: Bool[Tensor, "..."] | None = None,
        max_len: int | None = None,
    ) -> DecoderCache:
        """Prepare to write targets one token after the other: :meth:`decode` then reads each token once.

        Args:
            memory: what :meth:`encode` made of the source (B, S, E); its keys and values are computed here, once.
            src_mask: the mask that :meth:`encode` was given.
            max_len: the most tokens of a target, the beginning included; that of the model when not given.

        Raises:
            ValueError: if a shape does not fit, or ``max_len`` is below 1 or above that of the model.
        """
        max_len = self.max_len if max_len is None else max_len
        if not 1 <= max_len <= self.max_len:
            raise ValueError(
                f"max_len ({max_len}) must be from 1 to that of the model ({self.max_len})"
            )
        _check_memory(memory, memory.size(0))
        _check_src_mask(src_mask, *memory.shape[:2])
        return DecoderCache(
            [
                layer.self_attention.make_cache(memory.size(0), max_len)
                for layer in self.decoder_layers
            ],
            [layer.cross_attention.project_memory(memory) for layer in self.decoder_layers],
            src_mask,
        )

    def forward(
        self,
        src: Int[Tensor, "B S"],
        tgt: Int[Tensor, "B T"],
        *,
        src_mask: Bool[Tensor, "..."] | None = None,
        tgt_mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T V"], AttentionWeights | None]:
        """Encode the source and score every next token of the target.

        Args:
            src: ids (B, S).
            tgt: ids (B, T), the beginning first.
            src_mask: as in :meth:`encode`; hides the source's padding from the encoder and the decoder.
            tgt_mask: as in :meth:`decode`.
            need_weights: whether to return the weights of all layers and heads.

        Returns:
            The logits (B, T, V), and the :class:`AttentionWeights` or None.

        Raises:
            ValueError: as :meth:`encode` and :meth:`decode`.
            TypeError: as :meth:`encode` and :meth:`decode`.
            IndexError: as :meth:`encode` and :meth:`decode`.
        """
        memory, encoder = self.encode(src, src_mask=src_mask, need_weights=need_weights)
        logits, in_decoder = self.decode(
            tgt, memory, src_mask=src_mask, tgt_mask=tgt_mask, need_weights=need_weights
        )
        if not need_weights:
            return logits, None
        decoder, cross = in_decoder
        return logits, AttentionWeights(
            torch.stack(encoder), torch.stack(decoder), torch.stack(cross)
        )

    @classmethod
    def from_torch(
        cls,
        module: nn.Transformer,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        tie_weights: bool = True,
        max_len: int = 256,
    ) -> "Transformer":
        """Copy the layers of an ``nn.Transformer``, their weights, type, device and mode included.

        ``nn.Transformer`` starts behind the embeddings and ends before the logits; these are new here.

        Raises:
            ValueError: if a layer has no biases, or if there is a norm behind the last layer in a post-norm stack,
                which has none here: set ``encoder.norm`` and ``decoder.norm`` to None.
        """
        norm_first = module.encoder.layers[0].norm_first
        for name, stack in (("encoder", module.encoder), ("decoder", module.decoder)):
            if (stack.norm is not None) != norm_first:
                raise ValueError(
                    f"{name}.norm must be {'a LayerNorm' if norm_first else 'None'} where norm_first is {norm_first}: "
                    "here a norm stands behind the last layer in a pre-norm stack, and in no other"
                )
        first = module.encoder.layers[0]
        ours = cls(
            src_vocab_size,
            tgt_vocab_size,
            d_model=first.self_attn.embed_dim,
            num_heads=first.self_attn.num_heads,
            num_layers=(len(module.encoder.layers), len(module.decoder.layers)),
            d_ff=first.linear1.out_features,
            options=TransformerOptions(first.dropout.p, norm_first, tie_weights, max_len),
        ).to(first.linear1.weight)
        ours.encoder_layers = nn.ModuleList(
            map(EncoderLayer.from_torch, module.encoder.layers)
        )
        ours.decoder_layers = nn.ModuleList(
            map(DecoderLayer.from_torch, module.decoder.layers)
        )
        if norm_first:
            copy_weights(module.encoder.norm, ours.encoder_norm)
            copy_weights(module.decoder.norm, ours.decoder_norm)
        return ours.train(module.training)

    def to_torch(self) -> nn.Transformer:
        """Copy the layers into a new ``nn.Transformer`` with ``batch_first=True``.

        It takes embedded sources and targets, and what it returns is still to be multiplied by
        ``to_logits.weight``.

        Example:
            >>> ours = Transformer(100, 90, d_model=8, num_heads=2, d_ff=16).eval()
            >>> theirs, src = ours.to_torch(), torch.randint(100, (1, 7))
            >>> x = ours.src_embed(src) * 8**0.5 + ours.positions[:7]
            >>> torch.allclose(ours.encode(src)[0], theirs.encoder(x), atol=1e-6)
            True
        """
        encoder_layers = nn.ModuleList(layer.to_torch() for layer in self.encoder_layers)
        decoder_layers = nn.ModuleList(layer.to_torch() for layer in self.decoder_layers)
        # nn.Transformer would put a norm behind a post-norm stack as well, so the stacks are made here. Its
        # constructor gives their matrices new random numbers, so the layers come in afterwards.
        encoder = nn.TransformerEncoder(
            encoder_layers[0], len(encoder_layers), enable_nested_tensor=False
        )
        decoder = nn.TransformerDecoder(decoder_layers[0], len(decoder_layers))
        theirs = nn.Transformer(
            self.d_model,
            self.encoder_layers[0].self_attention.num_heads,
            custom_encoder=encoder,
            custom_decoder=decoder,
            batch_first=True,
        )
        encoder.layers, decoder.layers = encoder_layers, decoder_layers
        if self.encoder_layers[0].norm_first:
            encoder.norm = copy.deepcopy(self.encoder_norm)
            decoder.norm = copy.deepcopy(self.decoder_norm)
        return theirs.train(self.training)


# ---------------------------------------------------------------- what inputs must satisfy


def _check_memory(memory: Tensor | None, num_targets: int) -> None:
    if memory is None:
        raise ValueError("decode needs a memory, or a cache that was made of one")
    check_is_tensor(memory, "memory")
    if memory.dim() != 3 or memory.size(0) != num_targets:
        raise ValueError(
            f"memory of shape {tuple(memory.shape)} must be (B, S, E) "
            f"with a row for each of the {num_targets} targets"
        )


def _check_cache(
    cache: DecoderCache, memory: Tensor | None, src_mask: Tensor | None, tgt: Tensor
) -> None:
    if memory is not None or src_mask is not None:
        raise ValueError(
            "give decode a cache, or memory and src_mask, but not both: the cache holds what it made of them"
        )
    if cache.memory is None:
        raise ValueError(
            "this cache was not made by Transformer.make_cache: it has no memory"
        )
    cache.check_room(tgt.size(1))


def _check_src_mask(mask: Tensor | None, num_sequences: int, length: int) -> None:
    """Refuse a mask that does not say which source tokens are padding, such as the target's."""
    if mask is None:
        return
    check_is_bool(mask, "src_mask")
    if mask.shape not in ((num_sequences, 1, length), (1, 1, length)):
        raise ValueError(
            f"src_mask of shape {tuple(mask.shape)} must be (B, 1, S), here ({num_sequences}, 1, {length}): "
            "True where a source token is no padding; see make_padding_mask"
        )
