"""A decoder-only language model, built from the layers of the Transformer. Derived in chapter 15."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import DecoderCache
from attn_course.caching.decoder import rollback_on_error
from attn_course.functional.positions import Rope, make_alibi_bias, make_rotation
from attn_course.functional.validation import check_is_bool, check_is_flag, check_sizes, check_token_ids
from attn_course.nn.outputs import ModelOutput
from attn_course.nn.tied_logits import TiedLogits
from attn_course.nn.transformer import EncoderLayer

_POSITIONS = ("rotary", "alibi", "learned")


class DecoderOnly(TiedLogits):
    """A language model from given parts: embeddings, causal layers, a final norm, and logits.

    It is the base of :class:`LanguageModel`, :class:`~attn_course.pretrained.GPT2` and
    :class:`~attn_course.pretrained.Llama`. :func:`~attn_course.decoding.generate` works with all of them.

    Args:
        embed: the embedding table (V, E).
        layers: at least one layer with the interface of :class:`~attn_course.EncoderLayer`.
        norm: the norm after the last layer.
        positions: "rotary", "alibi" or "learned", as in chapter 8.
        max_len: maximum length of a text.
        tie_weights: use the embedding table for the logits, too.
        dropout: dropout of the input of the first layer.
        rope: settings of rotary positions, for all layers or one for each; the defaults of
            :func:`~attn_course.rotate` if not given.

    Raises:
        ValueError: if ``max_len`` is below 1, ``dropout`` is outside [0, 1), ``positions`` is unknown, they are rotary
            and the width of a head is odd, they are not rotary and there is a ``rope``, or there is not one for each
            layer.
    """

    def __init__(
        self,
        embed: nn.Embedding,
        layers: Iterable[nn.Module],
        norm: nn.Module,
        *,
        positions: str,
        max_len: int,
        tie_weights: bool = True,
        dropout: float = 0.0,
        rope: Rope | Sequence[Rope] | None = None,
    ) -> None:
        super().__init__()
        check_sizes(max_len=max_len)
        if positions not in _POSITIONS:
            raise ValueError(f"positions ({positions!r}) must be one of {', '.join(map(repr, _POSITIONS))}")
        if rope is not None and positions != "rotary":
            raise ValueError(f"rope ({rope}) needs rotary positions, not {positions}")
        vocab_size, d_model = embed.weight.shape
        self.positions = positions
        self.rope = Rope() if rope is None else rope
        self.max_len = max_len
        self.embed = embed
        if positions == "learned":
            self.position_embed = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(layers)
        if not isinstance(self.rope, Rope) and len(self.rope) != len(self.layers):
            raise ValueError(f"rope ({len(self.rope)}) must be one, or one for each of the {len(self.layers)} layers")
        self.norm = norm
        self.to_logits = nn.Linear(d_model, vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        attention = self.layers[0].self_attention
        if positions == "rotary" and attention.head_dim % 2:
            raise ValueError(
                f"d_model ({d_model}) divided by num_heads ({attention.num_heads}) must be even for rotary positions, "
                "which rotate pairs of columns"
            )
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if "embed" in name else d_model**-0.5)
        if tie_weights:
            self.to_logits.weight = self.embed.weight

    def forward(
        self, ids: Int[Tensor, "B T"], *, mask: Bool[Tensor, "B 1 S"] | None = None, cache: DecoderCache | None = None
    ) -> Float[Tensor, "B T V"]:
        """Score every next token.

        Args:
            ids: (B, T). With a cache, only the new tokens.
            mask: True at real tokens, (B, 1, S), where S also counts the tokens in the cache. Prompts are padded on the
                left, with ``make_padding_mask(lengths, side="left")``. Positions count real tokens only, so padding
                does not change the result.
            cache: a cache from :meth:`make_cache`, which receives the new tokens. It needs ``torch.no_grad()`` or
                ``torch.inference_mode()``.

        Returns:
            The logits (B, T, V). The logits at padding have no meaning.

        Raises:
            ValueError: if the text is longer than ``max_len`` or the room in the cache, or a shape does not fit.
            TypeError: if ids are not integers or the mask is not boolean.
            IndexError: if an id is outside the vocabulary (on the CPU; on CUDA it is a device-side assert).
        """
        with rollback_on_error(cache):
            # A list would keep the output of every layer in memory.
            ((x, _),) = deque(self._run(ids, mask, cache), maxlen=1)
            return self.to_logits(self.norm(x))

    def read(
        self, ids: Int[Tensor, "B T"], *, mask: Bool[Tensor, "B 1 T"] | None = None, need_weights: bool = False
    ) -> ModelOutput:
        """Return the stream between the layers and the attention weights.

        Args:
            mask: True at real tokens, (B, 1, T). Positions count real tokens only.
            need_weights: whether to return the weights.

        Raises:
            ValueError: as in ``forward``.
            TypeError: as in ``forward``.
        """
        check_is_flag(need_weights, "need_weights")
        streams, weights = zip(*self._run(ids, mask, need_weights=need_weights), strict=True)
        hidden = (*streams[:-1], self.norm(streams[-1]))
        return ModelOutput(hidden, torch.stack(weights[1:]) if need_weights else None)

    def _run(
        self, ids: Tensor, mask: Tensor | None, cache: DecoderCache | None = None, *, need_weights: bool = False
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the input (B, T, E) of the first layer, then the output and the weights of each layer."""
        start = 0 if cache is None else cache.length
        positions = self._token_positions(ids, mask, start)
        if cache is not None:
            cache.check_room(ids.size(1))
        try:
            x = self.embed(ids)  # (B, T, E)
        except IndexError:
            raise IndexError(
                f"ids go from {ids.min()} to {ids.max()}; those of the vocabulary go from 0 to "
                f"{self.embed.num_embeddings - 1}"
            ) from None
        attention = self.layers[0].self_attention
        rotations, bias = [None] * len(self.layers), None
        if self.positions == "learned":
            x = x + self.position_embed(positions)
        elif self.positions == "rotary":
            if positions.dim() == 2:
                positions = positions[:, None]  # (B, 1, T): the same for every head
            ropes = [self.rope] * len(self.layers) if isinstance(self.rope, Rope) else self.rope
            # The layers that have the same settings share a rotation.
            rotation_of = {
                rope: make_rotation(positions, attention.head_dim, **rope._asdict(), dtype=x.dtype)
                for rope in set(ropes)
            }
            rotations = [rotation_of[rope] for rope in ropes]
        else:  # padding on the left does not change distances
            bias = make_alibi_bias(
                attention.num_heads, ids.size(1), start + ids.size(1), dtype=x.dtype, device=x.device
            )[None]  # (1, H, T, S)
        x = self.dropout(x)
        yield x, None
        caches = [None] * len(self.layers) if cache is None else cache.layers
        for layer, rotation, layer_cache in zip(self.layers, rotations, caches, strict=True):
            x, weights = layer(
                x,
                mask=mask,
                bias=bias,
                positions=rotation,
                is_causal=True,
                need_weights=need_weights,
                cache=layer_cache,
            )
            yield x, weights

    def _token_positions(self, ids: Tensor, mask: Tensor | None, start: int) -> Tensor:
        """Return the positions of the new tokens, (T,), or (B, T) if there is a mask."""
        check_token_ids(ids, "ids", self.max_len, start)
        B, T = ids.shape
        S = start + T
        if mask is None:
            return torch.arange(start, S, device=ids.device)
        check_is_bool(mask)
        if mask.shape != (B, 1, S):
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} must be (B, 1, S), here ({B}, 1, {S}): "
                f"True at real tokens among the {start} tokens in the cache and the {T} new ones"
            )
        return (mask[:, 0].cumsum(-1) - 1).clamp(min=0)[:, start:]

    def make_cache(self, batch_size: int, max_len: int | None = None) -> DecoderCache:
        """Make a cache, with which ``forward`` reads each token only once.

        Args:
            max_len: maximum length of a text, including padding; the model's ``max_len`` if not given.

        Raises:
            ValueError: if a size is below 1, or ``max_len`` is above the model's ``max_len``.
        """
        max_len = self.max_len if max_len is None else max_len
        if not 1 <= max_len <= self.max_len:
            raise ValueError(f"max_len ({max_len}) must be from 1 to the model's max_len ({self.max_len})")
        return DecoderCache([layer.self_attention.make_cache(batch_size, max_len) for layer in self.layers])


class LanguageModel(DecoderOnly):
    r"""A decoder-only Transformer, which scores the next token from all earlier tokens.

    It consists of embeddings, pre-norm layers with causal self-attention, a final norm, and logits. This is the decoder
    of :class:`~attn_course.Transformer` without cross-attention, or its encoder with a causal mask (Radford et al.
    2019, "Language Models are Unsupervised Multitask Learners").

    Args:
        vocab_size: V, the number of tokens.
        d_model: E, the width of the stream.
        num_heads: H; must divide ``d_model``.
        num_layers: number of layers, at least 1.
        d_ff: the width inside the feed-forward networks.
        num_kv_heads: as in :class:`~attn_course.MultiHeadAttention`.
        dropout: as in :class:`~attn_course.EncoderLayer`, and also for the embeddings.
        positions: "rotary", "alibi" or "learned", as in chapter 8.
        tie_weights: use the embedding table for the logits, too.
        max_len: maximum length of a text.

    Raises:
        ValueError: if ``num_heads`` does not divide ``d_model``, a size is below 1, ``dropout`` is outside [0, 1),
            ``positions`` is unknown, or they are rotary and the width of a head is odd.

    Example:
        >>> model = LanguageModel(100, d_model=8, num_heads=2, d_ff=32).eval()
        >>> ids = torch.randint(100, (1, 5))
        >>> cache = model.make_cache(batch_size=1)
        >>> with torch.no_grad():
        ...     first, rest = model(ids[:, :3], cache=cache), model(ids[:, 3:], cache=cache)
        >>> torch.allclose(torch.cat([first, rest], dim=1), model(ids), atol=1e-6)
        True
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int = 2,
        d_ff: int = 512,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
        positions: str = "rotary",
        tie_weights: bool = True,
        max_len: int = 1024,
    ) -> None:
        check_sizes(vocab_size=vocab_size, num_layers=num_layers)
        super().__init__(
            nn.Embedding(vocab_size, d_model),
            (
                EncoderLayer(d_model, num_heads, d_ff, dropout=dropout, num_kv_heads=num_kv_heads)
                for _ in range(num_layers)
            ),
            nn.LayerNorm(d_model),
            positions=positions,
            max_len=max_len,
            tie_weights=tie_weights,
            dropout=dropout,
        )
