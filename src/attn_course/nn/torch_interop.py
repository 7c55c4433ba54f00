"""Conversion of layers from and to PyTorch, for ``from_torch`` and ``to_torch``. Used from chapter 9 on."""

import copy

from torch import nn

from attn_course.functional.validation import check_has_weights
from attn_course.nn.multi_head_attention import MultiHeadAttention, MultiHeadCrossAttention

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
        copy_weights(part, ours.get_submodule(name))
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
        if isinstance(part, MultiHeadAttention | MultiHeadCrossAttention):
            part = part.to_torch()
        copy_weights(part, theirs.get_submodule(their_name))
    return theirs.train(ours.training)


def copy_weights(module: nn.Module, into: nn.Module) -> nn.Module:
    """Copy the weights of a module into another one of the same kind, and the eps of a LayerNorm."""
    state = module.state_dict()
    check_has_weights(state, into.state_dict())
    into.load_state_dict(state)
    if isinstance(module, nn.LayerNorm):
        into.eps = module.eps
    return into
