"""The Transformer: feed-forward, encoder and decoder layers, and the whole translator. Derived in chapter 9."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.multi_head_attention import MultiHeadAttention
from attn_course.positions import make_sinusoidal_positions
from attn_course.validation import check_probability


class AttentionWeights(NamedTuple):
    """The weights of every layer and head, as they were applied."""

    encoder: Float[Tensor, "layers B H S S"]
    """Source to source."""
    decoder: Float[Tensor, "layers B H T T"]
    """Target to target, never to the future."""
    cross: Float[Tensor, "layers B H T S"]
    """Target to source."""


class FeedForward(nn.Module):
    r"""Two linear maps with a ReLU between them, applied to each position alone.

    Computes $\mathrm{FFN}(x) = \max(0, xW_1 + b_1)W_2 + b_2$ (Vaswani et al. 2017, arXiv:1706.03762, eq. 2).

    Args:
        d_model: E, the width of input and output.
        d_ff: the width between the two maps.
        dropout: probability of dropping a unit between the two maps, in training.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_probability(dropout, "dropout")
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch E"]:
        return self.down(self.dropout(torch.relu(self.up(x))))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward, each added to what came in.

    With ``norm_first`` each of the two reads a normalised copy of the stream and adds to the stream itself
    (pre-norm, Xiong et al. 2020, arXiv:2002.04745); without, the sum is normalised (post-norm, Vaswani et
    al. 2017, arXiv:1706.03762, section 3.1).
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout=dropout)
        self.self_attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B S E"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B S E"], Float[Tensor, "B H S S"] | None]:
        if self.norm_first:
            found, weights = self.self_attention(
                self.self_attention_norm(x), mask=mask, need_weights=need_weights
            )
            x = x + self.dropout(found)
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            found, weights = self.self_attention(x, mask=mask, need_weights=need_weights)
            x = self.self_attention_norm(x + self.dropout(found))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, weights


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, then a feed-forward, each added to what came in."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout)
        self.cross_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout=dropout)
        self.self_attention_norm = nn.LayerNorm(d_model)
        self.cross_attention_norm = nn.LayerNorm(d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        memory: Float[Tensor, "B S E"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        is_causal: bool = True,
        need_weights: bool = False,
    ) -> tuple[
        Float[Tensor, "B T E"],
        Float[Tensor, "B H T T"] | None,
        Float[Tensor, "B H T S"] | None,
    ]:
        looks = {"mask": mask, "is_causal": is_causal, "need_weights": need_weights}
        reads = {"mask": memory_mask, "need_weights": need_weights}
        if self.norm_first:
            found, self_weights = self.self_attention(self.self_attention_norm(x), **looks)
            x = x + self.dropout(found)
            found, cross_weights = self.cross_attention(
                self.cross_attention_norm(x), memory, **reads
            )
            x = x + self.dropout(found)
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            found, self_weights = self.self_attention(x, **looks)
            x = self.self_attention_norm(x + self.dropout(found))
            found, cross_weights = self.cross_attention(x, memory, **reads)
            x = self.cross_attention_norm(x + self.dropout(found))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, self_weights, cross_weights


class Transformer(nn.Module):
    """Translate: encode the source, then predict each target token from those before it and the source."""

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        d_model: int = 128,
        num_heads: int = 4,
        num_encoder_layers: int = 2,
        num_decoder_layers: int = 2,
        d_ff: int = 256,
        dropout: float = 0.1,
        norm_first: bool = True,
        tie_weights: bool = True,
        max_len: int = 256,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.max_len = max_len
        layer = {"dropout": dropout, "norm_first": norm_first}
        self.src_embed = nn.Embedding(src_vocab_size, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab_size, d_model)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, **layer)
            for _ in range(num_encoder_layers)
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(d_model, num_heads, d_ff, **layer)
            for _ in range(num_decoder_layers)
        )
        # In a pre-norm stack nothing has normalised the last sum.
        self.encoder_norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm_first else nn.Identity()
        self.to_logits = nn.Linear(d_model, tgt_vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer(
            "positions", make_sinusoidal_positions(max_len, d_model), persistent=False
        )
        self._reset_parameters()
        if tie_weights:
            self.to_logits.weight = self.tgt_embed.weight

    def _reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if "embed" in name or name.startswith("to_logits"):
                # Multiplied by sqrt(E) on the way in, entries have the size of the positions';
                # tied, the first logits have variance 1.
                nn.init.normal_(parameter, std=self.d_model**-0.5)
            elif parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)

    def _embed(self, embed: nn.Embedding, ids: Tensor) -> Tensor:
        if ids.size(1) > self.max_len:
            raise ValueError(
                f"a sequence of {ids.size(1)} tokens is longer than max_len ({self.max_len})"
            )
        x = embed(ids) * math.sqrt(self.d_model) + self.positions[: ids.size(1)]
        return self.dropout(x)

    def encode(
        self,
        src: Int[Tensor, "B S"],
        *,
        src_mask: Bool[Tensor, "B 1 S"] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B S E"], list[Tensor] | None]:
        """Read the source."""
        x = self._embed(self.src_embed, src)
        weights = []
        for layer in self.encoder_layers:
            x, w = layer(x, mask=src_mask, need_weights=need_weights)
            weights.append(w)
        return self.encoder_norm(x), weights if need_weights else None

    def decode(
        self,
        tgt: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S E"],
        *,
        src_mask: Bool[Tensor, "B 1 S"] | None = None,
        tgt_mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T V"], tuple[list[Tensor], list[Tensor]] | None]:
        """Score every next token of the target."""
        x = self._embed(self.tgt_embed, tgt)
        rows, columns = [], []
        for layer in self.decoder_layers:
            x, row, column = layer(
                x, memory, mask=tgt_mask, memory_mask=src_mask, need_weights=need_weights
            )
            rows.append(row)
            columns.append(column)
        logits = self.to_logits(self.decoder_norm(x))
        return logits, (rows, columns) if need_weights else None

    def forward(
        self,
        src: Int[Tensor, "B S"],
        tgt: Int[Tensor, "B T"],
        *,
        src_mask: Bool[Tensor, "B 1 S"] | None = None,
        tgt_mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T V"], AttentionWeights | None]:
        memory, encoder = self.encode(src, src_mask=src_mask, need_weights=need_weights)
        logits, found = self.decode(
            tgt, memory, src_mask=src_mask, tgt_mask=tgt_mask, need_weights=need_weights
        )
        if not need_weights:
            return logits, None
        decoder, cross = found
        return logits, AttentionWeights(
            torch.stack(encoder), torch.stack(decoder), torch.stack(cross)
        )
