"""Marian: the original Transformer with swish, and the weights of published translators. Derived in chapter 22."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.nn.transformer import DecoderLayer, EncoderLayer, Transformer
from attn_course.pretrained.config import HFConfig, read_config
from attn_course.pretrained.weight_map import Into, load_weight_map
from attn_course.pretrained.weights import read_weights


def first_row(tensor: Tensor) -> Tensor:
    """Take the bias out of the (1, V) that it is kept in."""
    return tensor[0]


MARIAN_NAMES = {
    "model.shared": "tgt_embed",
    "model.encoder.layers.{i}.self_attn.q_proj": "encoder_layers.{i}.self_attention.q_proj",
    "model.encoder.layers.{i}.self_attn.k_proj": "encoder_layers.{i}.self_attention.k_proj",
    "model.encoder.layers.{i}.self_attn.v_proj": "encoder_layers.{i}.self_attention.v_proj",
    "model.encoder.layers.{i}.self_attn.out_proj": "encoder_layers.{i}.self_attention.out_proj",
    "model.encoder.layers.{i}.self_attn_layer_norm": "encoder_layers.{i}.self_attention_norm",
    "model.encoder.layers.{i}.fc1": "encoder_layers.{i}.feed_forward.up",
    "model.encoder.layers.{i}.fc2": "encoder_layers.{i}.feed_forward.down",
    "model.encoder.layers.{i}.final_layer_norm": "encoder_layers.{i}.feed_forward_norm",
    "model.decoder.layers.{i}.self_attn.q_proj": "decoder_layers.{i}.self_attention.q_proj",
    "model.decoder.layers.{i}.self_attn.k_proj": "decoder_layers.{i}.self_attention.k_proj",
    "model.decoder.layers.{i}.self_attn.v_proj": "decoder_layers.{i}.self_attention.v_proj",
    "model.decoder.layers.{i}.self_attn.out_proj": "decoder_layers.{i}.self_attention.out_proj",
    "model.decoder.layers.{i}.self_attn_layer_norm": "decoder_layers.{i}.self_attention_norm",
    "model.decoder.layers.{i}.encoder_attn.q_proj": "decoder_layers.{i}.cross_attention.q_proj",
    "model.decoder.layers.{i}.encoder_attn.k_proj": "decoder_layers.{i}.cross_attention.k_proj",
    "model.decoder.layers.{i}.encoder_attn.v_proj": "decoder_layers.{i}.cross_attention.v_proj",
    "model.decoder.layers.{i}.encoder_attn.out_proj": "decoder_layers.{i}.cross_attention.out_proj",
    "model.decoder.layers.{i}.encoder_attn_layer_norm": "decoder_layers.{i}.cross_attention_norm",
    "model.decoder.layers.{i}.fc1": "decoder_layers.{i}.feed_forward.up",
    "model.decoder.layers.{i}.fc2": "decoder_layers.{i}.feed_forward.down",
    "model.decoder.layers.{i}.final_layer_norm": "decoder_layers.{i}.feed_forward_norm",
    "final_logits_bias": Into("to_logits.bias", first_row),
}
"""Their names and ours, for a vocabulary that both languages share."""


class Marian(Transformer):
    """A translator (Junczys-Dowmunt et al. 2018, arXiv:1804.00344), in 1,000 pairs of languages on the hub.

    :class:`~attn_course.Transformer`, post-norm, with swish, a bias on the logits, sines and cosines in
    two halves, and mostly one embedding table for source, target and logits. It encodes, decodes, caches
    and is searched as every Transformer is. The decoder's first token is padding, its ``bos_id``.

    Args:
        src_vocab_size: number of source tokens.
        tgt_vocab_size: V, the same for the target.
        d_model: E, the width of the stream; even.
        num_encoder_heads: H in the encoder; must divide ``d_model``.
        num_decoder_heads: H in the decoder; must divide ``d_model``.
        num_encoder_layers: at least 1.
        num_decoder_layers: at least 1.
        d_ff_encoder: the width inside the encoder's feed-forwards.
        d_ff_decoder: the width inside the decoder's.
        max_len: longest source or target.
        share_embeddings: have one table for source and target.
        activation: between the two maps of a feed-forward.
        dropout: as in :class:`~attn_course.Transformer`.

    Example:
        >>> model = Marian(100, 100, d_model=8, num_encoder_heads=2, num_decoder_heads=4, max_len=20).eval()
        >>> src, tgt = torch.randint(100, (1, 7)), torch.randint(100, (1, 5))
        >>> logits, weights = model(src, tgt, need_weights=True)
        >>> logits.shape, weights.cross.shape
        (torch.Size([1, 5, 100]), torch.Size([6, 1, 4, 5, 7]))
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        d_model: int = 512,
        num_encoder_heads: int = 8,
        num_decoder_heads: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        d_ff_encoder: int = 2048,
        d_ff_decoder: int = 2048,
        max_len: int = 512,
        share_embeddings: bool = True,
        activation: Callable[[Tensor], Tensor] = F.silu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            src_vocab_size,
            tgt_vocab_size,
            d_model=d_model,
            num_heads=1,
            num_layers=1,
            d_ff=1,  # its two layers are replaced
            dropout=dropout,
            norm_first=False,
            max_len=max_len,
        )
        kind = {"dropout": dropout, "norm_first": False, "activation": activation}
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(d_model, num_encoder_heads, d_ff_encoder, **kind) for _ in range(num_encoder_layers)
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(d_model, num_decoder_heads, d_ff_decoder, **kind) for _ in range(num_decoder_layers)
        )
        if share_embeddings:
            self.src_embed = self.tgt_embed
        self.to_logits = nn.Linear(d_model, tgt_vocab_size)
        self.to_logits.weight = self.tgt_embed.weight

    def make_positions(self) -> Tensor:
        """Make sines and cosines, all sines in front of all cosines instead of in turn."""
        pairs = super().make_positions().unflatten(1, (-1, 2))  # (max_len, E/2, 2)
        return pairs.mT.flatten(1)

    @classmethod
    def from_torch(cls, module: nn.Transformer, *args: object, **kwargs: object) -> Transformer:
        """Refuse: an nn.Transformer is a :class:`~attn_course.Transformer`."""
        raise ValueError(
            "use Transformer.from_torch: an nn.Transformer has no embeddings and no logits, so it is no Marian"
        )


def build_marian(config: HFConfig) -> Marian:
    """Build a Marian with random weights from its config, or refuse what :class:`Marian` does not have."""
    config.must_be(
        scale_embedding=True,
        tie_word_embeddings=True,
        static_position_embeddings=True,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
    )
    if config.get("scale_embedding") is None:
        raise ValueError(
            f"{config.path} does not say scale_embedding, which would mean False; our modules have only True"
        )
    src_vocab_size = config.size("vocab_size")
    return Marian(
        src_vocab_size,
        config.size("decoder_vocab_size", if_null=src_vocab_size),
        d_model=config.size("d_model"),
        num_encoder_heads=config.size("encoder_attention_heads"),
        num_decoder_heads=config.size("decoder_attention_heads"),
        num_encoder_layers=config.size("encoder_layers"),
        num_decoder_layers=config.size("decoder_layers"),
        d_ff_encoder=config.size("encoder_ffn_dim"),
        d_ff_decoder=config.size("decoder_ffn_dim"),
        max_len=config.size("max_position_embeddings"),
        share_embeddings=config.flag("share_encoder_decoder_embeddings"),
        activation=config.activation("activation_function"),
        dropout=config.number("dropout"),
    )


def load_marian(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> Marian:
    """Build a Marian from the ``config.json`` and the weights of a folder, in evaluation mode.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if the config asks for what :class:`Marian` does not have, or the weights are a pickle,
            damaged, or do not fit.
    """
    model = build_marian(read_config(folder, "marian")).to(dtype)
    names = dict(MARIAN_NAMES)
    encoder, decoder = (f"model.{part}.embed_tokens" for part in ("encoder", "decoder"))
    if model.src_embed is model.tgt_embed:
        ties = {"model.shared.weight": [f"{encoder}.weight", f"{decoder}.weight"]}
        ties["model.shared.weight"].append("lm_head.weight")
    else:
        del names["model.shared"]
        names |= {encoder: "src_embed", decoder: "tgt_embed"}
        ties = {f"{decoder}.weight": ["lm_head.weight"]}
    # Sines and cosines, which are computed here.
    positions = ["model.*coder.embed_positions.weight"]
    tensors = read_weights(folder)
    load_weight_map(model, tensors, names, ties=ties, ignore=positions, source=folder)
    return model.eval()
