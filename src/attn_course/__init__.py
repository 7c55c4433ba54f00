"""Attention, small enough to read and exact enough to trust: the package behind the Attention Course.

Every function here is derived in a chapter, proved equal there to an independent implementation,
and imported by the chapters that follow.

A module is imported when a name of it is first used: ``attn-course --help`` need not wait for PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors, which do not run anything
    from attn_course._device import default_device
    from attn_course._source import show_source
    from attn_course.caching import (
        BlockPool,
        Cache,
        DecoderCache,
        KeyValueCache,
        LatentCache,
        PagedCache,
        RollingCache,
    )
    from attn_course.decoding import generate
    from attn_course.functional.additive import additive_attention
    from attn_course.functional.attention import (
        attention,
        fused_attention,
        soft_cap,
        softmax,
        weights_of_rows,
    )
    from attn_course.functional.masks import (
        from_additive_mask,
        from_torch_mask,
        from_transformers_mask,
        make_causal_mask,
        make_padding_mask,
        make_sliding_window_mask,
        to_additive_mask,
        to_torch_mask,
        to_transformers_mask,
    )
    from attn_course.functional.positions import (
        Rope,
        Rotation,
        Yarn,
        learned_positions,
        make_alibi_bias,
        make_rotation,
        make_sinusoidal_positions,
        rotate,
    )
    from attn_course.functional.quiet_softmax import quiet_softmax
    from attn_course.functional.sliding_window import sliding_window_attention
    from attn_course.functional.tiled import attend_block, merge_blocks, tiled_attention
    from attn_course.nn.language_model import DecoderOnly, LanguageModel
    from attn_course.nn.latent_attention import LatentAttention, cache_bytes_per_token
    from attn_course.nn.multi_head_attention import (
        MultiHeadAttention,
        MultiHeadCrossAttention,
    )
    from attn_course.nn.recurrent import AttendingTranslator, RecurrentTranslator
    from attn_course.nn.self_attention import SelfAttention
    from attn_course.nn.transformer import (
        AttentionWeights,
        DecoderLayer,
        EncoderLayer,
        FeedForward,
        Transformer,
        TransformerOptions,
    )
    from attn_course.testing.causality import assert_causal

_MODULES = {
    "additive": "additive_attention",
    "cache": "BlockPool Cache DecoderCache KeyValueCache LatentCache PagedCache RollingCache",
    "causality": "assert_causal",
    "decoding": "generate",
    "device": "default_device",
    "functional": "attention fused_attention soft_cap softmax weights_of_rows",
    "language_model": "DecoderOnly LanguageModel",
    "latent_attention": "LatentAttention cache_bytes_per_token",
    "masks": "from_additive_mask from_torch_mask from_transformers_mask make_causal_mask make_padding_mask "
    "make_sliding_window_mask to_additive_mask to_torch_mask to_transformers_mask",
    "multi_head_attention": "MultiHeadAttention MultiHeadCrossAttention",
    "positions": "Rope Rotation Yarn learned_positions make_alibi_bias make_rotation make_sinusoidal_positions rotate",
    "quiet": "quiet_softmax",
    "recurrent": "AttendingTranslator RecurrentTranslator",
    "self_attention": "SelfAttention",
    "sliding_window": "sliding_window_attention",
    "source": "show_source",
    "tiled": "attend_block merge_blocks tiled_attention",
    "transformer": "AttentionWeights DecoderLayer EncoderLayer FeedForward Transformer TransformerOptions",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name == "__version__":
        value = import_module("importlib.metadata").version("attn_course")
    elif name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next time nobody asks here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
