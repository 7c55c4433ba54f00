"""GPT-2: the course's language model with learned positions and published weights. Derived in chapter 22."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from attn_course.nn.language_model import DecoderOnly
from attn_course.nn.transformer import EncoderLayer
from attn_course.pretrained.config import HFConfig, gelu_by_tanh, read_config
from attn_course.pretrained.weight_map import Into, load_decoder_weights


def split_fused(tensor: Tensor) -> tuple[Tensor, ...]:
    """Take queries, keys and values out of one matrix (E, 3E) that multiplies from the right, or out of its bias.

    Example:
        >>> [tuple(part.shape) for part in split_fused(torch.zeros(4, 12))]
        [(4, 4), (4, 4), (4, 4)]
    """
    # nn.Linear keeps its matrix as (out, in); t() leaves a bias alone.
    return tensor.t().chunk(3)


_ATTENTION = "layers.{i}.self_attention"
GPT2_NAMES = {
    "transformer.wte": "embed",
    "transformer.wpe": "position_embed",
    "transformer.h.{i}.ln_1": "layers.{i}.self_attention_norm",
    "transformer.h.{i}.attn.c_attn": Into(
        (f"{_ATTENTION}.q_proj", f"{_ATTENTION}.k_proj", f"{_ATTENTION}.v_proj"), split_fused
    ),
    "transformer.h.{i}.attn.c_proj": Into(f"{_ATTENTION}.out_proj", torch.t),
    "transformer.h.{i}.ln_2": "layers.{i}.feed_forward_norm",
    "transformer.h.{i}.mlp.c_fc": Into("layers.{i}.feed_forward.up", torch.t),
    "transformer.h.{i}.mlp.c_proj": Into("layers.{i}.feed_forward.down", torch.t),
    "transformer.ln_f": "norm",
    "lm_head": "to_logits",
}
"""Their names and ours. Their maps multiply from the right, so each matrix is the other way round."""


class GPT2(DecoderOnly):
    """A language model (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").

    :class:`~attn_course.LanguageModel` with learned positions and GELU, approximated by tanh.

    Args:
        vocab_size: V; ids go from 0 to V - 1.
        d_model: E, the width of the stream.
        num_heads: H; must divide ``d_model``.
        num_layers: at least 1.
        d_ff: the width inside the feed-forwards.
        max_len: longest text; there is a learned row for each position.
        activation: between the two maps of a feed-forward.
        norm_eps: what the norms add to the variance.
        tie_weights: make the logits with the embedding table itself.
        dropout: as in :class:`~attn_course.LanguageModel`.

    Example:
        >>> model = GPT2(100, d_model=8, num_heads=2, num_layers=3, d_ff=32, max_len=20).eval()
        >>> ids = torch.randint(100, (1, 5))
        >>> model(ids).shape, model.read(ids, need_weights=True).weights.shape
        (torch.Size([1, 5, 100]), torch.Size([3, 1, 2, 5, 5]))
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int,
        num_heads: int,
        num_layers: int,
        d_ff: int,
        max_len: int,
        activation: Callable[[Tensor], Tensor] = gelu_by_tanh,
        norm_eps: float = 1e-5,
        tie_weights: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            nn.Embedding(vocab_size, d_model),
            (
                EncoderLayer(d_model, num_heads, d_ff, dropout=dropout, activation=activation, norm_eps=norm_eps)
                for _ in range(num_layers)
            ),
            nn.LayerNorm(d_model, eps=norm_eps),
            positions="learned",
            max_len=max_len,
            tie_weights=tie_weights,
            dropout=dropout,
        )


def build_gpt2(config: HFConfig) -> GPT2:
    """Build a GPT-2 with random weights from its config, or refuse what :class:`GPT2` does not have."""
    config.must_be(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    d_model = config.size("n_embd")
    return GPT2(
        config.size("vocab_size"),
        d_model=d_model,
        num_heads=config.size("n_head"),
        num_layers=config.size("n_layer"),
        d_ff=config.size("n_inner", if_null=4 * d_model),
        max_len=config.size("n_positions"),
        activation=config.activation("activation_function"),
        norm_eps=config.number("layer_norm_epsilon"),
        tie_weights=config.flag("tie_word_embeddings"),
        dropout=config.number("resid_pdrop"),
    )


def load_gpt2(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> GPT2:
    """Build a GPT-2 from the ``config.json`` and the weights of a folder, in evaluation mode.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if the config asks for what :class:`GPT2` does not have, or the weights are a pickle,
            damaged, or do not fit.
    """
    model = build_gpt2(read_config(folder, "gpt2")).to(dtype)
    # Their causal masks, kept among the weights.
    masks = ["*h.*.attn.bias", "*h.*.attn.masked_bias"]
    load_decoder_weights(model, folder, GPT2_NAMES, "transformer.", ignore=masks)
    return model.eval()
