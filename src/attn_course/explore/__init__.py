"""Interactive figures. Used from chapter 0 on.

Each function returns an :class:`Explorable`. It works with mouse, finger and keyboard wherever scripts run (on the
website, in JupyterLab, on Colab), and it needs no kernel. Elsewhere it is a still picture. A notebook also stores its
numbers as text.
"""

from attn_course.explore.beam import beam
from attn_course.explore.cache import cache
from attn_course.explore.decoder import decoder
from attn_course.explore.einsum import einsum
from attn_course.explore.figure import Explorable
from attn_course.explore.japanese_particles import japanese_particles
from attn_course.explore.mask import mask
from attn_course.explore.query_key_value import query_key_value
from attn_course.explore.rotary import rotary
from attn_course.explore.scale import scale
from attn_course.explore.shared_head import shared_head
from attn_course.explore.softmax import softmax
from attn_course.explore.split_heads import split_heads
from attn_course.explore.tiles import tiles
from attn_course.explore.trained_heads import trained_heads
from attn_course.explore.word_order import word_order

__all__ = [
    "Explorable",
    "beam",
    "cache",
    "decoder",
    "einsum",
    "japanese_particles",
    "mask",
    "query_key_value",
    "rotary",
    "scale",
    "shared_head",
    "softmax",
    "split_heads",
    "tiles",
    "trained_heads",
    "word_order",
]
