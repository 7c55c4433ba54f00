"""Interactive figures. Used from chapter 1 on.

Each function returns an :class:`Explorable`. Where scripts run (on the website, in JupyterLab, on Colab) it answers to
mouse, finger and keyboard, needs no kernel and nothing from outside; elsewhere it is a picture of its start. A notebook
stores its numbers beside it, as text.
"""

from attn_course.explore.beam import beam
from attn_course.explore.cache import cache
from attn_course.explore.clock import clock
from attn_course.explore.decoder import decoder
from attn_course.explore.einsum import einsum
from attn_course.explore.figure import Explorable
from attn_course.explore.heads import jobs, split
from attn_course.explore.lookup import lookup
from attn_course.explore.masks import mask
from attn_course.explore.order import order
from attn_course.explore.particles import particles
from attn_course.explore.scale import scale
from attn_course.explore.temperature import softmax
from attn_course.explore.tiles import tiles

__all__ = [
    "Explorable",
    "beam",
    "cache",
    "clock",
    "decoder",
    "einsum",
    "jobs",
    "lookup",
    "mask",
    "order",
    "particles",
    "scale",
    "softmax",
    "split",
    "tiles",
]
