"""Attention, small enough to read and exact enough to trust: the package behind the Attention Course.

Every function here is derived in a chapter, proved equal there to an independent implementation,
and imported by the chapters that follow.
"""

from importlib.metadata import version

from attn_course.additive import additive_attention
from attn_course.cache import DecoderCache, KeyValueCache
from attn_course.causality import assert_causal
from attn_course.decoding import generate
from attn_course.device import default_device
from attn_course.functional import attention, fused_attention, softmax, weights_of_rows
from attn_course.language_model import LanguageModel
from attn_course.latent_attention import LatentAttention, LatentCache, cache_bytes_per_token
from attn_course.masks import (
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
from attn_course.multi_head_attention import MultiHeadAttention
from attn_course.positions import (
    Rotation,
    learned_positions,
    make_alibi_bias,
    make_rotation,
    make_sinusoidal_positions,
    rotate,
)
from attn_course.quiet import quiet_softmax
from attn_course.recurrent import AttendingTranslator, RecurrentTranslator
from attn_course.self_attention import SelfAttention
from attn_course.sliding_window import RollingCache, sliding_window_attention
from attn_course.source import show_source
from attn_course.tiled import attend_block, merge_blocks, tiled_attention
from attn_course.transformer import (
    AttentionWeights,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Transformer,
)

__version__ = version("attn_course")

__all__ = [
    "AttendingTranslator",
    "AttentionWeights",
    "DecoderCache",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "KeyValueCache",
    "LanguageModel",
    "LatentAttention",
    "LatentCache",
    "MultiHeadAttention",
    "RecurrentTranslator",
    "RollingCache",
    "Rotation",
    "SelfAttention",
    "Transformer",
    "additive_attention",
    "assert_causal",
    "attend_block",
    "attention",
    "cache_bytes_per_token",
    "default_device",
    "from_additive_mask",
    "from_torch_mask",
    "from_transformers_mask",
    "fused_attention",
    "generate",
    "learned_positions",
    "make_alibi_bias",
    "make_causal_mask",
    "make_padding_mask",
    "make_rotation",
    "make_sinusoidal_positions",
    "make_sliding_window_mask",
    "merge_blocks",
    "quiet_softmax",
    "rotate",
    "show_source",
    "sliding_window_attention",
    "softmax",
    "tiled_attention",
    "to_additive_mask",
    "to_torch_mask",
    "to_transformers_mask",
    "weights_of_rows",
]
