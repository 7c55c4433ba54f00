"""Caches of keys and values for decoding. Derived in chapters 15, 16 and 18."""

from attn_course.caching.base import Cache, PositionCache
from attn_course.caching.decoder import DecoderCache
from attn_course.caching.key_value import KeyValueCache
from attn_course.caching.latent import LatentCache
from attn_course.caching.paged import BlockPool, PagedBatch, PagedCache
from attn_course.caching.quantized import QuantizedCache
from attn_course.caching.rolling import RollingCache

__all__ = [
    "BlockPool",
    "Cache",
    "DecoderCache",
    "KeyValueCache",
    "LatentCache",
    "PagedBatch",
    "PagedCache",
    "PositionCache",
    "QuantizedCache",
    "RollingCache",
]
