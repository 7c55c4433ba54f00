"""Llama: rotary positions, grouped-query attention, RMSNorm and SwiGLU, with published weights. Derived in chapter
22."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import Cache
from attn_course.functional.positions import Rope, Rotation
from attn_course.nn.language_model import DecoderOnly
from attn_course.nn.multi_head_attention import MultiHeadAttention
from attn_course.pretrained.config import HFConfig, read_config, read_rope
from attn_course.pretrained.weight_map import Into, load_decoder_weights


def halves_to_neighbours(tensor: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows of a projection of queries or keys for another convention of rotary positions.

    ``transformers`` turns column i of a head together with column i + D/2, :func:`~attn_course.rotate` turns
    neighbours. Queries and keys are reordered alike, so that every score is the same.

    Args:
        tensor: the matrix (num_heads * D, E) of the projection, or its bias.
        num_heads: of the queries, or of the keys.

    Example:
        >>> halves_to_neighbours(torch.arange(8), num_heads=2)
        tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    pairs = tensor.unflatten(0, (num_heads, 2, -1))  # (H, 2, D/2, ...)
    return pairs.transpose(1, 2).flatten(0, 2)


def make_llama_names(num_heads: int, num_kv_heads: int) -> dict[str, str | Into]:
    """Make the table from their names to ours, for so many heads of queries and of keys."""
    theirs, ours = "model.layers.{i}.self_attn", "layers.{i}.self_attention"
    return {
        "model.embed_tokens": "embed",
        "model.layers.{i}.input_layernorm": "layers.{i}.self_attention_norm",
        f"{theirs}.q_proj": Into(f"{ours}.q_proj", partial(halves_to_neighbours, num_heads=num_heads)),
        f"{theirs}.k_proj": Into(f"{ours}.k_proj", partial(halves_to_neighbours, num_heads=num_kv_heads)),
        f"{theirs}.v_proj": f"{ours}.v_proj",
        f"{theirs}.o_proj": f"{ours}.out_proj",
        "model.layers.{i}.post_attention_layernorm": "layers.{i}.feed_forward_norm",
        "model.layers.{i}.mlp.gate_proj": "layers.{i}.feed_forward.gate",
        "model.layers.{i}.mlp.up_proj": "layers.{i}.feed_forward.up",
        "model.layers.{i}.mlp.down_proj": "layers.{i}.feed_forward.down",
        "model.norm": "norm",
        "lm_head": "to_logits",
    }


class GatedFeedForward(nn.Module):
    r"""A gated feed-forward network.

    Computes $\mathrm{SwiGLU}(x) = (\mathrm{swish}(xW) \otimes xV)\,W_2$ (Shazeer 2020, arXiv:2002.05202,
    eq. 6).

    Args:
        d_model: E, the width of input and output.
        d_ff: the width inside.
        activation: of the gate.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch E"]:
        """Apply the network to each position of ``x`` (..., E)."""
        return self.down(self.activation(self.gate(x)) * self.up(x))


class LlamaLayer(nn.Module):
    """A pre-norm layer with RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467).

    Args:
        d_model: E, the width of the stream.
        attention: called as :class:`~attn_course.MultiHeadAttention` is.
        feed_forward: any module from E to E.
        norm_eps: what the norms add to the mean square.
        norm_after: normalise also what is added to the stream, as Gemma does.
    """

    def __init__(
        self,
        d_model: int,
        attention: nn.Module,
        feed_forward: nn.Module,
        *,
        norm_eps: float = 1e-6,
        norm_after: bool = False,
    ) -> None:
        super().__init__()
        make_norm = partial(nn.RMSNorm, d_model, eps=norm_eps)
        make_after = make_norm if norm_after else nn.Identity
        self.self_attention_norm = make_norm()
        self.self_attention = attention
        self.after_attention_norm = make_after()
        self.feed_forward_norm = make_norm()
        self.feed_forward = feed_forward
        self.after_feed_forward_norm = make_after()

    def forward(
        self,
        x: Float[Tensor, "B T E"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        positions: Int[Tensor, "..."] | Rotation | None = None,
        is_causal: bool = False,
        need_weights: bool | Sequence[int] | Int[Tensor, "R"] = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B H _ S"] | None]:
        """Apply causal self-attention, then the feed-forward network, as :class:`~attn_course.EncoderLayer` does."""
        out, weights = self.self_attention(
            self.self_attention_norm(x),
            mask=mask,
            bias=bias,
            positions=positions,
            is_causal=is_causal,
            need_weights=need_weights,
            cache=cache,
        )
        x = x + self.after_attention_norm(out)
        out = self.feed_forward(self.feed_forward_norm(x))
        return x + self.after_feed_forward_norm(out), weights


class Llama(DecoderOnly):
    """A language model (Touvron et al. 2023, arXiv:2302.13971 and, with fewer heads of keys, arXiv:2307.09288).

    :class:`~attn_course.LanguageModel` with rotary positions and layers of its own kind.

    Args:
        vocab_size: V; ids go from 0 to V - 1.
        d_model: E, the width of the stream.
        num_heads: H; must divide ``d_model``.
        num_kv_heads: G; must divide ``num_heads``.
        num_layers: at least 1.
        d_ff: the width inside the feed-forwards.
        max_len: longest text.
        rope: how rotary positions turn.
        norm_eps: what the norms add to the mean square.
        activation: of the feed-forward's gate.
        tie_weights: make the logits with the embedding table itself.
        dropout: probability of dropping an attention weight, in training.

    Example:
        >>> model = Llama(
        ...     100, d_model=8, num_heads=4, num_kv_heads=2, num_layers=3, d_ff=16, max_len=20
        ... ).eval()
        >>> ids = torch.randint(100, (1, 5))
        >>> model(ids).shape, model.read(ids, need_weights=True).weights.shape
        (torch.Size([1, 5, 100]), torch.Size([3, 1, 4, 5, 5]))
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        num_layers: int,
        d_ff: int,
        max_len: int,
        rope: Rope | None = None,
        norm_eps: float = 1e-6,
        activation: Callable[[Tensor], Tensor] = F.silu,
        tie_weights: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            nn.Embedding(vocab_size, d_model),
            (
                LlamaLayer(
                    d_model,
                    MultiHeadAttention(
                        d_model, num_heads, num_kv_heads=num_kv_heads, bias=False, out_bias=False, dropout=dropout
                    ),
                    GatedFeedForward(d_model, d_ff, activation=activation),
                    norm_eps=norm_eps,
                )
                for _ in range(num_layers)
            ),
            nn.RMSNorm(d_model, eps=norm_eps),
            positions="rotary",
            max_len=max_len,
            tie_weights=tie_weights,
            rope=rope,
        )


def build_llama(config: HFConfig) -> Llama:
    """Build a Llama with random weights from its config, or refuse what :class:`Llama` does not have."""
    d_model, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.must_be(attention_bias=False, mlp_bias=False, head_dim=d_model // num_heads)
    return Llama(
        config.size("vocab_size"),
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=config.size("num_key_value_heads", if_null=num_heads),
        num_layers=config.size("num_hidden_layers"),
        d_ff=config.size("intermediate_size"),
        max_len=config.size("max_position_embeddings"),
        rope=read_rope(config),
        norm_eps=config.number("rms_norm_eps"),
        activation=config.activation("hidden_act"),
        tie_weights=config.flag("tie_word_embeddings"),
        dropout=config.number("attention_dropout"),
    )


def load_llama(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> Llama:
    """Build a Llama from the ``config.json`` and the weights of a folder, in evaluation mode.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if the config asks for what :class:`Llama` does not have, such as biases,
            or the weights are a pickle, damaged, or do not fit.
    """
    model = build_llama(read_config(folder, "llama")).to(dtype)
    heads = model.layers[0].self_attention
    names = make_llama_names(heads.num_heads, heads.num_kv_heads)
    speeds = ["*.rotary_emb.inv_freq"]  # made from the config, yet kept in older files
    load_decoder_weights(model, folder, names, "model.", ignore=speeds)
    return model.eval()
