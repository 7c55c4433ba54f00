"""The Transformer: feed-forward layer, encoder layer, decoder layer and the whole model. Derived in chapter 9."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
from attn_course.nn.tied_logits import TiedLogits
from attn_course.nn.torch_interop import (
    DECODER_PARTS,
    ENCODER_PARTS,
    layer_from_torch,
    layer_to_torch,
    transformer_from_torch,
    transformer_to_torch,
)


class AttentionWeights(NamedTuple):
    """The attention weights of all layers and heads, after masks and dropout."""

    encoder: Float[Tensor, "layers B H S S"]
    """From source to source; 0 at padding."""
    decoder: Float[Tensor, "layers B H T T"]
    """From target to target; 0 in the future."""
    cross: Float[Tensor, "layers B H T S"]
    """From target to source; 0 at padding."""


class FeedForward(nn.Module):
    r"""Two linear maps with an activation between them, applied to each position separately.

    Computes $\mathrm{FFN}(x) = \max(0, xW_1 + b_1)W_2 + b_2$ (Vaswani et al. 2017, arXiv:1706.03762, eq. 2).

    Args:
        d_model: E, the width of input and output.
        d_ff: the width between the two maps; 4 * E in the paper.
        dropout: probability of dropping a number between the two maps, in training.
        activation: a function of one tensor; ReLU in the paper.

    Raises:
        ValueError: if a size is below 1, ``dropout`` is outside [0, 1), or the width of the input is not E.

    Example:
        >>> layer = FeedForward(d_model=8, d_ff=32)
        >>> layer(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self, d_model: int, d_ff: int, *, dropout: float = 0.0, activation: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, d_ff=d_ff)
        check_probability(dropout, "dropout")
        self.d_model = d_model
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch E"]:
        """Apply the maps to each position of ``x`` (..., E)."""
        check_width(x, self.d_model, "x", "d_model")
        return self.down(self.dropout(self.activation(self.up(x))))


class _Layer(nn.Module):
    """The base of both layers, with pre-norm or post-norm."""

    def __init__(self, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        """Return the input of a sublayer: the normalised stream in a pre-norm layer."""
        return norm(x) if self.norm_first else x

    def _add(self, x: Tensor, out: Tensor, norm: nn.Module) -> Tensor:
        """Add the output of a sublayer to the stream; normalise the sum in a post-norm layer."""
        x = x + self.dropout(out)
        return x if self.norm_first else norm(x)

    def extra_repr(self) -> str:
        return f"norm_first={self.norm_first}"


class EncoderLayer(_Layer):
    r"""Self-attention, then a feed-forward network, both with a residual connection.

    *Pre-norm* (``norm_first``) is $x + f(\mathrm{LN}(x))$ for each sublayer f (Xiong et al. 2020, arXiv:2002.04745,
    section 3.1). The output of such a layer is not normalised, so a stack needs a norm after its last layer.
    *Post-norm* is $\mathrm{LN}(x + f(x))$, as in the first paper (Vaswani et al. 2017, arXiv:1706.03762, section 3.1).

    Args:
        d_model: E, the width of the stream.
        num_heads: H; must divide ``d_model``.
        d_ff: the width inside the feed-forward network.
        dropout: probability, in training, of dropping an attention weight, a number inside the feed-forward network,
            and a number of the output of both sublayers.
        norm_first: pre-norm if True, post-norm if False. Both have the same parameters.
        activation: the activation of the feed-forward network.
        norm_eps: number added to the variance in the norms.
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
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout, num_kv_heads=num_kv_heads)
        self.feed_forward = FeedForward(d_model, d_ff, dropout=dropout, activation=activation)
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
        """Apply self-attention, then the feed-forward network.

        Args:
            mask: True where a query may attend: (S, S), (B, 1, S), (B, S, S) or (B, H, S, S).
            bias, positions, is_causal, need_weights, cache: as in :class:`~attn_course.MultiHeadAttention`. With
                ``is_causal``, it is a layer of a language model.

        Returns:
            The new stream (B, S, E), and the weights (B, H, S, S), or (B, H, R, S) of chosen queries, or None.

        Raises:
            ValueError: if a shape does not fit.
            TypeError: as :class:`~attn_course.MultiHeadAttention`.
        """
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
        """Copy an ``nn.TransformerEncoderLayer`` with its weights, type, device and mode.

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
    """Causal self-attention, cross-attention to the memory, then a feed-forward network, with residual connections.

    Pre-norm and post-norm work as in :class:`EncoderLayer`. The layer does not normalise the memory, because a pre-norm
    encoder ends with a norm.

    Args:
        d_model: E, the width of the stream and of the memory.
        num_heads: H; must divide ``d_model``.
        d_ff, dropout, norm_first, activation, norm_eps: as in :class:`EncoderLayer`.

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
        self.feed_forward = FeedForward(d_model, d_ff, dropout=dropout, activation=activation)
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
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B H _ _"] | None, Float[Tensor, "B H _ S"] | None]:
        """Apply causal self-attention, then cross-attention, then the feed-forward network.

        Args:
            x: the target (B, T, E).
            memory: the output of the encoder (B, S, E), or its keys and values from ``cross_attention.project_memory``.
            mask: where the target may attend to itself, in addition to the causal mask: (T, T), (B, 1, T), (B, T, T)
                or (B, H, T, T).
            memory_mask: where the target may attend to the memory, usually the padding mask of the source, (B, 1, S).
            need_weights: as in :class:`~attn_course.MultiHeadAttention`.
            cache: the cache of the self-attention.

        Returns:
            The new stream (B, T, E), the weights of the self-attention (B, H, T, T) or None, and the weights of the
            cross-attention (B, H, T, S) or None. For R chosen queries, the weights have R rows.

        Raises:
            ValueError: if a shape does not fit.
            TypeError: as :class:`~attn_course.MultiHeadAttention`.
        """
        out, self_weights = self.self_attention(
            self._before(x, self.self_attention_norm),
            mask=mask,
            is_causal=True,
            need_weights=need_weights,
            cache=cache,
        )
        x = self._add(x, out, self.self_attention_norm)
        out, cross_weights = self.cross_attention(
            self._before(x, self.cross_attention_norm), memory, mask=memory_mask, need_weights=need_weights
        )
        x = self._add(x, out, self.cross_attention_norm)
        out = self.feed_forward(self._before(x, self.feed_forward_norm))
        x = self._add(x, out, self.feed_forward_norm)
        return x, self_weights, cross_weights

    @classmethod
    def from_torch(cls, module: nn.TransformerDecoderLayer) -> "DecoderLayer":
        """Copy an ``nn.TransformerDecoderLayer`` with its weights, type, device and mode.

        PyTorch's layer is causal only with a ``tgt_mask``. This layer is always causal.

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


class Transformer(TiedLogits):
    r"""A translator: the encoder reads the source, and the decoder scores the next tokens of the target.

    The input of both is token embeddings times $\sqrt{E}$ plus sinusoidal positions, and the output is logits (Vaswani
    et al. 2017, arXiv:1706.03762, sections 3.1 to 3.5). The decoder is always causal. Its logits at position t score
    the token after ``tgt[:, t]``.

    With ``norm_first``, encoder and decoder end with a norm, because pre-norm layers do not normalise their output.
    Post-norm layers do, so there is no further norm, as in the paper. ``nn.Transformer`` has one in both cases.

    Args:
        src_vocab_size: number of source tokens.
        tgt_vocab_size: V, the number of target tokens and the width of the logits.
        d_model: E, the width of the stream; even.
        num_heads: H; must divide ``d_model``.
        num_layers: number of layers of the encoder and of the decoder, or a pair of numbers; at least 1.
        d_ff: the width inside the feed-forward networks.
        dropout: as in :class:`EncoderLayer`, and also for the input of the first layers.
        norm_first: pre-norm if True, post-norm if False.
        tie_weights: use the embedding table of the target for the logits, too, which saves V * E parameters (Press and
            Wolf 2017, arXiv:1608.05859). The initial standard deviation $1/\sqrt{E}$ suits the logits, so the
            embeddings are multiplied by $\sqrt{E}$.
        max_len: maximum length of source and target.

    Raises:
        ValueError: if ``d_model`` is odd, ``num_heads`` does not divide it, a size is below 1, or ``dropout`` is
            outside [0, 1).

    Example:
        >>> model = Transformer(100, 90, d_model=8, num_heads=2, d_ff=16).eval()
        >>> src, tgt = torch.randint(100, (2, 7)), torch.randint(90, (2, 5))
        >>> mask = torch.tensor([[[True] * 7], [[True] * 4 + [False] * 3]])  # make_padding_mask([7, 4])
        >>> logits, weights = model(src, tgt, src_mask=mask, need_weights=True)
        >>> logits.shape, weights.cross.shape
        (torch.Size([2, 5, 90]), torch.Size([2, 2, 2, 5, 7]))
    """

    _tied_table = "tgt_embed"

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int | tuple[int, int] = 2,
        d_ff: int = 256,
        dropout: float = 0.1,
        norm_first: bool = True,
        tie_weights: bool = True,
        max_len: int = 256,
    ) -> None:
        super().__init__()
        num_encoder_layers, num_decoder_layers = (num_layers, num_layers) if isinstance(num_layers, int) else num_layers
        check_sizes(
            src_vocab_size=src_vocab_size,
            tgt_vocab_size=tgt_vocab_size,
            num_encoder_layers=num_encoder_layers,
            num_decoder_layers=num_decoder_layers,
            max_len=max_len,
        )
        self.d_model = d_model
        self.max_len = max_len
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
        # Pre-norm layers do not normalise their output.
        self.encoder_norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.to_logits = nn.Linear(d_model, tgt_vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        # The sizes determine this table, so it is not stored with the weights.
        self.register_buffer("positions", self.make_positions(), persistent=False)
        self.register_load_state_dict_post_hook(_restore_positions)
        self._reset_parameters()
        if tie_weights:
            self.to_logits.weight = self.tgt_embed.weight

    def make_positions(self) -> Float[Tensor, "max_len E"]:
        """Make the table of positions, here sinusoidal. A subclass can have another one."""
        return make_sinusoidal_positions(self.max_len, self.d_model)

    def _reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if "embed" in name or name.startswith("to_logits"):
                # Times sqrt(E), the embeddings have the size of the positions. Tied, the first logits have variance 1.
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
        self, src: Int[Tensor, "B S"], *, src_mask: Bool[Tensor, "..."] | None = None, need_weights: bool = False
    ) -> tuple[Float[Tensor, "B S E"], list[Tensor] | None]:
        """Encode the source, once for any number of calls of :meth:`decode`.

        Args:
            src_mask: True at real tokens of the source, (B, 1, S); see :func:`~attn_course.make_padding_mask`.
            need_weights: whether to return the weights.

        Returns:
            The memory (B, S, E), and the weights (B, H, S, S) of each layer or None.

        Raises:
            ValueError: if the source is longer than ``max_len`` or a shape does not fit.
            TypeError: if ids are not integers or the mask is not boolean.
            IndexError: if an id is outside the vocabulary (on the CPU; on CUDA it is a device-side assert).
        """
        check_is_flag(need_weights, "need_weights")
        x = self._embed(self.src_embed, src, "src")
        _check_src_mask(src_mask, *src.shape)
        weights = []
        for layer in self.encoder_layers:
            # Every layer needs the mask.
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
            tgt: ids (B, T), starting with the beginning-of-sequence id. With a cache, only the new ids.
            memory: the memory (B, S, E) from :meth:`encode`.
            src_mask: the mask (B, 1, S) that :meth:`encode` got.
            tgt_mask: where the target may attend to itself, in addition to the causal mask: (T, T), (B, 1, T),
                (B, T, T) or (B, H, T, T). Padding on the right needs no mask, because it is in the future of all real
                tokens. With a cache, the last axis also counts the earlier tokens.
            need_weights: whether to return the weights.
            cache: a cache from :meth:`make_cache`, instead of ``memory`` and ``src_mask``. It receives the new tokens.

        Returns:
            The logits (B, T, V), and None or two lists with the weights of each layer: self-attention (B, H, T, T) and
            cross-attention (B, H, T, S).

        Raises:
            ValueError: if the target is longer than ``max_len`` or the room in the cache, a shape does not fit, or
                there are both or neither of a cache and a memory.
            TypeError: if ids are not integers or a mask is not boolean.
            IndexError: if an id is outside the vocabulary (on the CPU; on CUDA it is a device-side assert).
        """
        check_is_flag(need_weights, "need_weights")
        start = 0 if cache is None else cache.length
        x = self._embed(self.tgt_embed, tgt, "tgt", start)
        if cache is None:
            _check_memory(memory, tgt.size(0))
            _check_src_mask(src_mask, *memory.shape[:2])
            sources = [(None, memory)] * len(self.decoder_layers)
        else:
            _check_cache(cache, memory, src_mask, tgt)
            src_mask, sources = cache.src_mask, cache
        to_target, to_source = [], []
        with rollback_on_error(cache):
            for layer, (layer_cache, source) in zip(self.decoder_layers, sources, strict=True):
                x, self_weights, cross_weights = layer(
                    x, source, mask=tgt_mask, memory_mask=src_mask, need_weights=need_weights, cache=layer_cache
                )
                to_target.append(self_weights)
                to_source.append(cross_weights)
            logits = self.to_logits(self.decoder_norm(x))
        return logits, (to_target, to_source) if need_weights else None

    def make_cache(
        self, memory: Float[Tensor, "B S E"], *, src_mask: Bool[Tensor, "..."] | None = None, max_len: int | None = None
    ) -> DecoderCache:
        """Make a cache, with which :meth:`decode` reads each token of the target only once.

        Args:
            memory: the memory (B, S, E) from :meth:`encode`. Its keys and values are computed here.
            src_mask: the mask that :meth:`encode` got.
            max_len: maximum length of the target, including the beginning; the model's ``max_len`` if not given.

        Raises:
            ValueError: if a shape does not fit, or ``max_len`` is below 1 or above the model's ``max_len``.
        """
        max_len = self.max_len if max_len is None else max_len
        if not 1 <= max_len <= self.max_len:
            raise ValueError(f"max_len ({max_len}) must be from 1 to the model's max_len ({self.max_len})")
        _check_memory(memory, memory.size(0))
        _check_src_mask(src_mask, *memory.shape[:2])
        return DecoderCache(
            [layer.self_attention.make_cache(memory.size(0), max_len) for layer in self.decoder_layers],
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
            tgt: ids (B, T), starting with the beginning-of-sequence id.
            src_mask: as in :meth:`encode`. It hides the padding of the source from encoder and decoder.
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
        logits, in_decoder = self.decode(tgt, memory, src_mask=src_mask, tgt_mask=tgt_mask, need_weights=need_weights)
        if not need_weights:
            return logits, None
        decoder, cross = in_decoder
        return logits, AttentionWeights(torch.stack(encoder), torch.stack(decoder), torch.stack(cross))

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
        """Copy the layers of an ``nn.Transformer`` with their weights, type, device and mode.

        ``nn.Transformer`` has no embeddings and no logits; these start with random weights.

        Raises:
            ValueError: if a layer has no biases, or if a post-norm stack ends with a further norm. In the latter case,
                set ``encoder.norm`` and ``decoder.norm`` to None.
        """
        return transformer_from_torch(
            cls, module, src_vocab_size, tgt_vocab_size, tie_weights=tie_weights, max_len=max_len
        )

    def to_torch(self) -> nn.Transformer:
        """Copy the layers into a new ``nn.Transformer`` with ``batch_first=True``.

        It reads embeddings instead of ids, and returns the stream instead of logits.

        Example:
            >>> ours = Transformer(100, 90, d_model=8, num_heads=2, d_ff=16).eval()
            >>> theirs, src = ours.to_torch(), torch.randint(100, (1, 7))
            >>> x = ours.src_embed(src) * 8**0.5 + ours.positions[:7]
            >>> torch.allclose(ours.encode(src)[0], theirs.encoder(x), atol=1e-6)
            True
        """
        return transformer_to_torch(self)


def _restore_positions(model: Transformer, _: object) -> None:
    """Compute the positions again, because ``to_empty`` leaves them uninitialised, and ``assign=True`` on meta."""
    weight = next(model.parameters())
    model.positions = model.make_positions().to(weight.device, weight.dtype)


# -- Checks of inputs --------------------------------------------------------------------------------


def _check_memory(memory: Tensor | None, num_targets: int) -> None:
    if memory is None:
        raise ValueError("decode needs a memory, or a cache from make_cache")
    check_is_tensor(memory, "memory")
    if memory.dim() != 3 or memory.size(0) != num_targets:
        raise ValueError(
            f"memory of shape {tuple(memory.shape)} must be (B, S, E) with a row for each of the {num_targets} targets"
        )


def _check_cache(cache: DecoderCache, memory: Tensor | None, src_mask: Tensor | None, tgt: Tensor) -> None:
    if memory is not None or src_mask is not None:
        raise ValueError(
            "pass decode a cache or a memory with its src_mask, but not both: the cache already contains them"
        )
    if cache.memory is None:
        raise ValueError("this cache has no memory; use Transformer.make_cache")
    cache.check_room(tgt.size(1))


def _check_src_mask(mask: Tensor | None, num_sequences: int, length: int) -> None:
    """Raise an error if a mask is not the padding mask of the source."""
    if mask is None:
        return
    check_is_bool(mask, "src_mask")
    if mask.shape not in ((num_sequences, 1, length), (1, 1, length)):
        raise ValueError(
            f"src_mask of shape {tuple(mask.shape)} must be (B, 1, S), here ({num_sequences}, 1, {length}): "
            "True at real tokens of the source; see make_padding_mask"
        )
