"""Caches of keys and values for decoding. Derived in chapters 15, 16 and 18."""

from attn_course.caching.base import Cache as Cache
from attn_course.caching.base import PositionCache as PositionCache
from attn_course.caching.decoder import DecoderCache as DecoderCache
from attn_course.caching.key_value import KeyValueCache as KeyValueCache
from attn_course.caching.latent import LatentCache as LatentCache
from attn_course.caching.paged import BlockPool as BlockPool
from attn_course.caching.paged import PagedBatch as PagedBatch
from attn_course.caching.paged import PagedCache as PagedCache
from attn_course.caching.quantized import QuantizedCache as QuantizedCache
from attn_course.caching.rolling import RollingCache as RollingCache
