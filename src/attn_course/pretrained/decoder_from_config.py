"""Qwen3, Gemma 2, Gemma 3 and gpt-oss: one decoder that is built from a config.json. Derived in chapter 22."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.caching import DecoderCache
from attn_course.functional.attention import soft_cap
from attn_course.functional.positions import Rope
from attn_course.functional.validation import check_positive, check_sizes
from attn_course.nn.language_model import DecoderOnly
from attn_course.nn.multi_head_attention import MultiHeadAttention
from attn_course.pretrained.config import HFConfig, read_config, read_rope
from attn_course.pretrained.llama import GatedFeedForward, LlamaLayer, halves_to_neighbours, make_llama_names
from attn_course.pretrained.weight_map import Into, load_decoder_weights


class ConfiguredAttention(MultiHeadAttention):
    r"""Causal self-attention whose heads are as wide as a config.json says, with the options that it can name.

    It is a :class:`~attn_course.MultiHeadAttention` whose output has the width of its input.

    Args:
        d_model: E, the width of the stream.
        num_heads: H.
        num_kv_heads: G; must divide ``num_heads``.
        head_dim: D. H * D need not be E.
        bias: whether all four projections add a bias.
        sink, scale, softcap, window: as in :class:`~attn_course.MultiHeadAttention`.
        qk_norm_eps: what the norms of queries and keys, ``nn.RMSNorm``, add to the mean square; None for no norms.

    Raises:
        ValueError: if ``num_kv_heads`` does not divide ``num_heads``, a size is below 1, or
            ``softcap`` is not positive.

    Example:
        >>> layer = ConfiguredAttention(8, 4, 2, 6, qk_norm_eps=1e-6, softcap=50.0, window=3)
        >>> out, weights = layer(torch.randn(1, 5, 8), is_causal=True, need_weights=True)
        >>> out.shape, (weights[0, 0] > 0).int()
        (torch.Size([1, 5, 8]), tensor([[1, 0, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 1, 1, 1]], dtype=torch.int32))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        bias: bool = False,
        sink: str | None = None,
        qk_norm_eps: float | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
    ) -> None:
        check_sizes(d_model=d_model, head_dim=head_dim)
        super().__init__(
            num_heads * head_dim,
            num_heads,
            d_in=d_model,
            bias=bias,
            num_kv_heads=num_kv_heads,
            sink=sink,
            scale=scale,
            softcap=softcap,
            window=window,
            qk_norm=None if qk_norm_eps is None else partial(nn.RMSNorm, eps=qk_norm_eps),
        )
        self.out_proj = nn.Linear(num_heads * head_dim, d_model, bias=bias)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHeadAttention:
        """Refuse: an nn.MultiheadAttention is a :class:`~attn_course.MultiHeadAttention`."""
        raise ValueError("use MultiHeadAttention.from_torch: it has all that the module has")


class Experts(nn.Module):
    r"""A mixture of experts: a router chooses a few gated feed-forward networks for each token, as in gpt-oss
    (arXiv:2508.10925).

    Args:
        d_model: E, the width of input and output.
        d_ff: the width inside each.
        num_experts: how many there are.
        num_chosen: how many work on a token.
        alpha: the gate is $x \cdot \sigma(\alpha x)$.
        limit: what gate and other map are cut off at.
    """

    def __init__(
        self, d_model: int, d_ff: int, num_experts: int, num_chosen: int, *, alpha: float = 1.702, limit: float = 7.0
    ) -> None:
        super().__init__()
        check_sizes(num_experts=num_experts, num_chosen=num_chosen)
        if num_chosen > num_experts:
            raise ValueError(f"num_chosen ({num_chosen}) must not be above num_experts ({num_experts})")
        self.num_chosen, self.alpha, self.limit = num_chosen, alpha, limit
        self.router = nn.Linear(d_model, num_experts)
        self.gate, self.up = (nn.Parameter(torch.randn(num_experts, d_model, d_ff) * d_model**-0.5) for _ in range(2))
        self.down = nn.Parameter(torch.randn(num_experts, d_ff, d_model) * d_ff**-0.5)
        self.gate_bias, self.up_bias, self.down_bias = (
            nn.Parameter(torch.zeros(num_experts, width)) for width in (d_ff, d_ff, d_model)
        )

    def forward(self, x: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch E"]:
        """Compute at each position of ``x`` (..., E) from that position alone."""
        tokens = x.flatten(0, -2)  # (N, E)
        scores, chosen = self.router(tokens).topk(self.num_chosen, dim=-1)  # (N, chosen)
        shares = scores.softmax(dim=-1)
        out = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            rows, rank = torch.where(chosen == expert)
            weighted = self._apply_expert(expert, tokens[rows]) * shares[rows, rank, None]
            out = out.index_add(0, rows, weighted)
        return out.view_as(x)

    def _apply_expert(self, n: int, x: Tensor) -> Tensor:
        gate = (x @ self.gate[n] + self.gate_bias[n]).clamp(max=self.limit)
        up = (x @ self.up[n] + self.up_bias[n]).clamp(-self.limit, self.limit)
        inside = gate * torch.sigmoid(self.alpha * gate) * (up + 1)
        return inside @ self.down[n] + self.down_bias[n]


class ConfiguredLayer(LlamaLayer):
    """A Llama layer with its own rotary positions, for models whose layers differ.

    Args:
        d_model: E, the width of the stream.
        attention, feed_forward: as in :class:`LlamaLayer`.
        rope: how the layer turns its queries and keys.
        norm_eps, norm_after: as in :class:`LlamaLayer`.
    """

    def __init__(
        self,
        d_model: int,
        attention: nn.Module,
        feed_forward: nn.Module,
        *,
        rope: Rope,
        norm_eps: float = 1e-6,
        norm_after: bool = False,
    ) -> None:
        super().__init__(d_model, attention, feed_forward, norm_eps=norm_eps, norm_after=norm_after)
        self.rope = rope


class _ScaledEmbedding(nn.Embedding):
    """An embedding table whose outputs are multiplied by the square root of their width."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * self.embedding_dim**0.5


class ConfiguredDecoder(DecoderOnly):
    """A language model whose layers have their own rotary positions; :func:`load_configured` builds one. The cache of
    a local layer keeps all positions, too, and the layer hides those outside its window.

    Args:
        embed: the table of embeddings (V, E).
        layers: at least one.
        norm: behind the last layer.
        max_len: longest text.
        tie_weights: make the logits with the embedding table itself.
        softcap: bend the logits by :func:`~attn_course.soft_cap`.

    Example:
        >>> layers = [
        ...     ConfiguredLayer(
        ...         8, ConfiguredAttention(8, 4, 2, 6, window=window), GatedFeedForward(8, 16), rope=Rope()
        ...     )
        ...     for window in (3, None)
        ... ]
        >>> model = ConfiguredDecoder(nn.Embedding(100, 8), layers, nn.RMSNorm(8), max_len=20)
        >>> model(torch.randint(100, (1, 5))).shape
        torch.Size([1, 5, 100])
    """

    def __init__(
        self,
        embed: nn.Embedding,
        layers: Iterable[ConfiguredLayer],
        norm: nn.Module,
        *,
        max_len: int,
        tie_weights: bool = False,
        softcap: float | None = None,
    ) -> None:
        layers = list(layers)
        rope = [layer.rope for layer in layers]
        super().__init__(embed, layers, norm, positions="rotary", max_len=max_len, tie_weights=tie_weights, rope=rope)
        if softcap is not None:
            check_positive(softcap, "softcap")
        self.softcap = softcap

    def forward(
        self, ids: Int[Tensor, "B T"], *, mask: Bool[Tensor, "B 1 S"] | None = None, cache: DecoderCache | None = None
    ) -> Float[Tensor, "B T V"]:
        """Score every next token, as :class:`~attn_course.DecoderOnly`."""
        logits = super().forward(ids, mask=mask, cache=cache)
        return logits if self.softcap is None else soft_cap(logits, self.softcap)


class _Family(NamedTuple):
    """The properties of a model family that are not in its config.json."""

    qk_norm: bool = False
    sink: str | None = None
    norm_after: bool = False
    scales_embedding: bool = False
    keeps_gains_less_one: bool = False
    has_experts: bool = False
    activation: str = "hidden_act"
    """The line that names it."""
    one_global_of: int | None = None
    """Where the layers have no types of their own: every so many, the last is global."""
    reads_pattern: bool = False
    """Whether the line sliding_window_pattern replaces this number."""


_GEMMA = _Family(
    norm_after=True, scales_embedding=True, keeps_gains_less_one=True, activation="hidden_activation", one_global_of=2
)
_FAMILIES = {
    "qwen3": _Family(qk_norm=True),
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA._replace(qk_norm=True, one_global_of=6, reads_pattern=True),
    "gpt_oss": _Family(sink="learned", has_experts=True, one_global_of=2),
}
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


def load_configured(folder: str | Path, *, dtype: torch.dtype = torch.float32) -> ConfiguredDecoder:
    """Build a Qwen3, Gemma 2, Gemma 3 (text) or gpt-oss from its ``config.json``, in evaluation mode, with its weights.

    Args:
        folder: with config.json and safetensors.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if config.json or the weights are missing.
        ValueError: if the config is of another type, or asks for what :class:`ConfiguredDecoder` does not have, or
            the weights are a pickle, damaged, or do not fit.
    """
    config = read_config(folder)
    model = build_configured(config).to(dtype)
    names = _make_names(model, _FAMILIES[config["model_type"]])
    load_decoder_weights(model, folder, names, "model.")
    return model.eval()


def build_configured(config: HFConfig) -> ConfiguredDecoder:
    """Build a decoder with random weights from its config, or refuse what :class:`ConfiguredDecoder` does not have."""
    name = config.get("model_type")
    if name not in _FAMILIES:
        raise ValueError(f"{config.path} describes a model of type {name!r}; here there are {', '.join(_FAMILIES)}")
    family = _FAMILIES[name]
    config.must_be(attention_dropout=0.0, use_bidirectional_attention=False, quantization_config=None)
    for line in ("attn_logit_softcapping", "final_logit_softcapping"):
        if line not in config.defaults:
            config.must_be(**{line: None})
    if family.has_experts:
        config.must_be(hidden_act="silu")
    d_model, norm_eps = config.size("hidden_size"), config.number("rms_norm_eps")
    return ConfiguredDecoder(
        (_ScaledEmbedding if family.scales_embedding else nn.Embedding)(config.size("vocab_size"), d_model),
        [
            ConfiguredLayer(
                d_model,
                _make_attention(config, family, layer_type),
                _make_feed_forward(config, family),
                rope=read_rope(config, layer_type),
                norm_eps=norm_eps,
                norm_after=family.norm_after,
            )
            for layer_type in _read_layer_types(config, family)
        ],
        nn.RMSNorm(d_model, eps=norm_eps),
        max_len=config.size("max_position_embeddings"),
        tie_weights=config.flag("tie_word_embeddings"),
        softcap=_read_softcap(config, "final_logit_softcapping"),
    )


def _read_softcap(config: HFConfig, name: str) -> float | None:
    """Return a cap; None if the line is null, or if the architecture has no such line."""
    if name not in config.defaults or config[name] is None:
        return None
    return config.number(name)


def _make_attention(config: HFConfig, family: _Family, layer_type: str) -> ConfiguredAttention:
    d_model, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    window = scale = None
    if layer_type == _LOCAL:
        if "use_sliding_window" in config.defaults and not config.flag("use_sliding_window"):
            raise ValueError(
                f"{config.path} has use_sliding_window False, and a layer of type {_LOCAL!r}, which needs a window"
            )
        window = config.size("sliding_window")
    if "query_pre_attn_scalar" in config.defaults:
        scale = config.number("query_pre_attn_scalar", positive=True) ** -0.5
    return ConfiguredAttention(
        d_model,
        num_heads,
        config.size("num_key_value_heads", if_null=num_heads),
        config.size("head_dim", if_null=d_model // num_heads),
        bias=config.flag("attention_bias"),
        sink=family.sink,
        qk_norm_eps=config.number("rms_norm_eps") if family.qk_norm else None,
        scale=scale,
        softcap=_read_softcap(config, "attn_logit_softcapping"),
        window=window,
    )


def _make_feed_forward(config: HFConfig, family: _Family) -> nn.Module:
    d_model, d_ff = config.size("hidden_size"), config.size("intermediate_size")
    if family.has_experts:
        return Experts(
            d_model,
            d_ff,
            config.size("num_local_experts"),
            config.size("num_experts_per_tok"),
            alpha=config.number("swiglu_alpha"),
            limit=config.number("swiglu_limit"),
        )
    return GatedFeedForward(d_model, d_ff, activation=config.activation(family.activation))


def _read_layer_types(config: HFConfig, family: _Family) -> list[str]:
    num_layers, types = config.size("num_hidden_layers"), config.get("layer_types")
    if types is None:  # an older file
        first_local, period = 0, family.one_global_of
        if family.reads_pattern and "sliding_window_pattern" in config:
            period = config.size("sliding_window_pattern")
        if period is None:
            local = config.flag("use_sliding_window")
            first_local = config.number("max_window_layers") if local else num_layers
        types = [
            _LOCAL if i >= first_local and (period is None or (i + 1) % period) else _GLOBAL for i in range(num_layers)
        ]
    if not isinstance(types, list):
        raise ValueError(f"{config.path} has layer_types {types!r}, which must be a list")
    if len(types) != num_layers:
        raise ValueError(f"{config.path} has num_hidden_layers {num_layers}, and layer_types for {len(types)}")
    for layer_type in types:
        if layer_type not in (_GLOBAL, _LOCAL):
            raise ValueError(
                f"{config.path} has layer_types with {layer_type!r}; here there are {_GLOBAL!r} and {_LOCAL!r}"
            )
    return types


def _add_one(tensor: Tensor) -> Tensor:
    """Convert Gemma's stored offset w to the RMSNorm gain 1 + w."""
    # A number near 0 has digits in half precision that its sum with 1 has not.
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) + 1


def _take_apart(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Split interleaved columns into gate and up."""
    return tensor[..., ::2], tensor[..., 1::2]


def _make_names(model: ConfiguredDecoder, family: _Family) -> dict[str, str | Into]:
    heads = model.layers[0].self_attention
    names = make_llama_names(heads.num_heads, heads.num_kv_heads)
    theirs, ours = "model.layers.{i}", "layers.{i}"
    if family.norm_after:
        names |= {
            f"{theirs}.post_attention_layernorm": f"{ours}.after_attention_norm",
            f"{theirs}.pre_feedforward_layernorm": f"{ours}.feed_forward_norm",
            f"{theirs}.post_feedforward_layernorm": f"{ours}.after_feed_forward_norm",
        }
    if family.qk_norm:
        # The gains of a head's columns go where these go.
        reorder = partial(halves_to_neighbours, num_heads=1)
        for which in ("q_norm", "k_norm"):
            names[f"{theirs}.self_attn.{which}"] = Into(f"{ours}.self_attention.{which}", reorder)
    if family.sink is not None:
        names[f"{theirs}.self_attn.sinks"] = f"{ours}.self_attention.sink_scores"
    if family.keeps_gains_less_one:
        for name, place in names.items():
            if "norm" in name:
                names[name] = _after_adding_one(place)
    if family.has_experts:
        names = {name: place for name, place in names.items() if ".mlp." not in name}
        experts, feed_forward = f"{theirs}.mlp.experts", f"{ours}.feed_forward"
        names |= {
            f"{theirs}.mlp.router": f"{feed_forward}.router",
            f"{experts}.gate_up_proj": Into((f"{feed_forward}.gate", f"{feed_forward}.up"), _take_apart),
            f"{experts}.gate_up_proj_bias": Into((f"{feed_forward}.gate_bias", f"{feed_forward}.up_bias"), _take_apart),
            f"{experts}.down_proj": f"{feed_forward}.down",
            f"{experts}.down_proj_bias": f"{feed_forward}.down_bias",
        }
    return names


def _after_adding_one(place: str | Into) -> Into:
    if isinstance(place, str):
        return Into(place, _add_one)
    return Into(place.names, lambda gain: place.change(_add_one(gain)))
