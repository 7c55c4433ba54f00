"""Conversion of layers from and to PyTorch, for ``from_torch`` and ``to_torch``. Used from chapter 6 on."""

import copy

import torch
from torch import nn

from attn_course.functional.validation import check_has_weights

ENCODER_PARTS = {
    "self_attention": "self_attn",
    "self_attention_norm": "norm1",
    "feed_forward.up": "linear1",
    "feed_forward.down": "linear2",
    "feed_forward_norm": "norm2",
}
DECODER_PARTS = {
    "self_attention": "self_attn",
    "self_attention_norm": "norm1",
    "cross_attention": "multihead_attn",
    "cross_attention_norm": "norm2",
    "feed_forward.up": "linear1",
    "feed_forward.down": "linear2",
    "feed_forward_norm": "norm3",
}


# -- Attention ---------------------------------------------------------------------------------------


def self_attention_from_torch(cls: type, module: nn.MultiheadAttention) -> nn.Module:
    """Convert ``nn.MultiheadAttention`` to a layer of self-attention."""
    if (module.kdim, module.vdim) != (module.embed_dim, module.embed_dim):
        raise ValueError(
            f"kdim ({module.kdim}) and vdim ({module.vdim}) must equal embed_dim ({module.embed_dim}) "
            "for self-attention; see MultiHeadCrossAttention"
        )
    return _attention_from_torch(cls, module)


def cross_attention_from_torch(cls: type, module: nn.MultiheadAttention) -> nn.Module:
    """Convert ``nn.MultiheadAttention`` to a layer of cross-attention."""
    if module.kdim != module.vdim:
        raise ValueError(
            f"kdim ({module.kdim}) must equal vdim ({module.vdim}), because keys and values come from one memory"
        )
    return _attention_from_torch(cls, module, d_memory=module.kdim)


def _attention_from_torch(cls: type, module: nn.MultiheadAttention, **widths: int) -> nn.Module:
    if module.bias_k is not None:
        raise ValueError(
            "add_bias_kv (True) must be False, because this layer has no learned key and value; "
            "add_zero_attn becomes sink='zero'"
        )
    bias = module.in_proj_bias is not None
    ours = cls(
        module.embed_dim,
        module.num_heads,
        bias=bias,
        out_bias=bias,
        dropout=module.dropout,
        sink="zero" if module.add_zero_attn else None,
        **widths,
    )
    theirs = module.state_dict()
    # One matrix for all three projections, unless keys or values have another width.
    joint = module.kdim == module.vdim == module.embed_dim
    names = ["in_proj_weight"] if joint else [f"{name}_proj_weight" for name in "qkv"]
    check_has_weights(theirs, [*names, "out_proj.weight", *(["in_proj_bias", "out_proj.bias"] if bias else [])])
    weights = theirs["in_proj_weight"].chunk(3) if joint else [theirs[name] for name in names]
    state = {f"{name}_proj.weight": weight for name, weight in zip("qkv", weights, strict=True)}
    if bias:
        parts = zip("qkv", theirs["in_proj_bias"].chunk(3), strict=True)
        state |= {f"{name}_proj.bias": part for name, part in parts}
    state |= {key: value for key, value in theirs.items() if key.startswith("out_proj")}
    ours.to(module.out_proj.weight).load_state_dict(state)
    return ours.train(module.training)


def attention_to_torch(layer: nn.Module) -> nn.MultiheadAttention:
    """Convert a layer of self-attention or cross-attention to ``nn.MultiheadAttention``."""
    if layer.num_kv_heads != layer.num_heads or layer.sink == "learned":
        raise ValueError(
            f"num_kv_heads ({layer.num_kv_heads}) must equal num_heads ({layer.num_heads}) and sink "
            f"({layer.sink!r}) must be None or 'zero' for nn.MultiheadAttention"
        )
    for name in ("scale", "softcap", "window", "q_norm"):
        value = getattr(layer, name, None)
        if value is not None:
            raise ValueError(f"{name} ({value}) must be None for nn.MultiheadAttention, which has no such option")
    d_in, d_model = layer.q_proj.in_features, layer.q_proj.out_features
    if d_in != d_model:
        raise ValueError(f"d_in ({d_in}) must equal d_model ({d_model}) for nn.MultiheadAttention")
    bias, out_bias = (p.bias is not None for p in (layer.q_proj, layer.out_proj))
    if bias != out_bias:
        raise ValueError(
            f"bias ({bias}) must equal out_bias ({out_bias}) for nn.MultiheadAttention, which has all biases or none"
        )
    theirs = nn.MultiheadAttention(
        d_model,
        layer.num_heads,
        dropout=layer.dropout,
        bias=bias,
        kdim=layer.k_proj.in_features,
        vdim=layer.v_proj.in_features,
        add_zero_attn=layer.sink == "zero",
        batch_first=True,
    )
    ours = layer.state_dict()
    kinds = ("weight", "bias") if bias else ("weight",)
    check_has_weights(ours, [f"{part}_proj.{kind}" for part in ("q", "k", "v", "out") for kind in kinds])
    weights = {f"{name}_proj_weight": ours[f"{name}_proj.weight"] for name in "qkv"}
    state = weights if theirs.in_proj_weight is None else {"in_proj_weight": torch.cat(list(weights.values()))}
    if bias:
        state["in_proj_bias"] = torch.cat([ours[f"{name}_proj.bias"] for name in "qkv"])
    state |= {key: value for key, value in ours.items() if key.startswith("out_proj")}
    theirs.to(layer.out_proj.weight).load_state_dict(state)
    return theirs.train(layer.training)


# -- Layers of the Transformer -----------------------------------------------------------------------


def layer_from_torch(cls: type, theirs: nn.Module, parts: dict[str, str]) -> nn.Module:
    """Convert a layer of PyTorch. ``parts`` maps our names of submodules to PyTorch's names."""
    if theirs.linear1.bias is None:
        raise ValueError("bias must be True, because every part of our layers has biases")
    ours = cls(
        theirs.self_attn.embed_dim,
        theirs.self_attn.num_heads,
        theirs.linear1.out_features,
        dropout=theirs.dropout.p,
        norm_first=theirs.norm_first,
        activation=copy.deepcopy(theirs.activation),  # a module may have parameters
    ).to(theirs.linear1.weight)
    for name, their_name in parts.items():
        part = theirs.get_submodule(their_name)
        if isinstance(part, nn.MultiheadAttention):
            part = type(ours.get_submodule(name)).from_torch(part)
        _copy_weights(part, ours.get_submodule(name))
    return ours.train(theirs.training)


def layer_to_torch(ours: nn.Module, cls: type, parts: dict[str, str]) -> nn.Module:
    """Convert a layer to PyTorch."""
    up = ours.feed_forward.up
    theirs = cls(
        up.in_features,
        ours.self_attention.num_heads,
        up.out_features,
        dropout=ours.dropout.p,
        norm_first=ours.norm_first,
        activation=copy.deepcopy(ours.feed_forward.activation),
        batch_first=True,
    ).to(up.weight)
    for name, their_name in parts.items():
        part = ours.get_submodule(name)
        if name.endswith("attention"):
            part = part.to_torch()
        _copy_weights(part, theirs.get_submodule(their_name))
    return theirs.train(ours.training)


def _copy_weights(module: nn.Module, into: nn.Module) -> None:
    """Copy the weights of a module into another one of the same kind, and the eps of a LayerNorm."""
    state = module.state_dict()
    check_has_weights(state, into.state_dict())
    into.load_state_dict(state)
    if isinstance(module, nn.LayerNorm):
        into.eps = module.eps


# -- The whole model ---------------------------------------------------------------------------------


def transformer_from_torch(
    cls: type, module: nn.Transformer, src_vocab_size: int, tgt_vocab_size: int, *, tie_weights: bool, max_len: int
) -> nn.Module:
    """Convert ``nn.Transformer``, and add embeddings and logits."""
    first = module.encoder.layers[0]
    for name, stack in (("encoder", module.encoder), ("decoder", module.decoder)):
        if (stack.norm is not None) != first.norm_first:
            raise ValueError(
                f"{name}.norm must be {'a LayerNorm' if first.norm_first else 'None'} if norm_first is "
                f"{first.norm_first}, because only a pre-norm stack ends with a norm here"
            )
    ours = cls(
        src_vocab_size,
        tgt_vocab_size,
        d_model=first.self_attn.embed_dim,
        num_heads=first.self_attn.num_heads,
        num_layers=(len(module.encoder.layers), len(module.decoder.layers)),
        d_ff=first.linear1.out_features,
        dropout=first.dropout.p,
        norm_first=first.norm_first,
        tie_weights=tie_weights,
        max_len=max_len,
    ).to(first.linear1.weight)
    for name in ("encoder", "decoder"):
        layers, stack = getattr(ours, f"{name}_layers"), getattr(module, name)
        setattr(ours, f"{name}_layers", nn.ModuleList(map(type(layers[0]).from_torch, stack.layers)))
        if first.norm_first:
            _copy_weights(stack.norm, getattr(ours, f"{name}_norm"))
    return ours.train(module.training)


def transformer_to_torch(ours: nn.Module) -> nn.Transformer:
    """Convert the layers of a Transformer to ``nn.Transformer``."""
    encoder_layers = nn.ModuleList(layer.to_torch() for layer in ours.encoder_layers)
    decoder_layers = nn.ModuleList(layer.to_torch() for layer in ours.decoder_layers)
    # nn.Transformer would add a norm to a post-norm stack, too, so the stacks are made here. Its constructor
    # initialises their matrices again, so the layers are inserted afterwards.
    encoder = nn.TransformerEncoder(encoder_layers[0], len(encoder_layers), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layers[0], len(decoder_layers))
    theirs = nn.Transformer(
        ours.d_model,
        ours.encoder_layers[0].self_attention.num_heads,
        custom_encoder=encoder,
        custom_decoder=decoder,
        batch_first=True,
    )
    encoder.layers, decoder.layers = encoder_layers, decoder_layers
    if ours.encoder_layers[0].norm_first:
        encoder.norm, decoder.norm = copy.deepcopy(ours.encoder_norm), copy.deepcopy(ours.decoder_norm)
    return theirs.train(ours.training)
