"""A Transformer's layers to those of PyTorch, and back. Used from chapter 9 on, by ``from_torch`` and ``to_torch``."""

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
    """Make one of our layers of one of PyTorch's; ``parts`` are the names of ours, and of theirs."""
    if theirs.linear1.bias is None:
        raise ValueError("bias=False has no counterpart here: every part has its biases")
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
    """Make one of PyTorch's layers of one of ours."""
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
    """Copy what a module has learned into one of the same kind, and what a norm adds to its variance."""
    state = module.state_dict()
    check_has_weights(state, into.state_dict())
    into.load_state_dict(state)
    if isinstance(module, nn.LayerNorm):
        into.eps = module.eps
    return into
