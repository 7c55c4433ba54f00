"""Pictures of attention: queries down, keys across, tokens on both axes, one fixed scale. Used from chapter 1 on.

Each function returns a :class:`Picture`, or an :class:`AttentionView`. A notebook also stores the numbers of a
picture as text, so that nbval can compare them. The diagrams are of the class :class:`Drawing`, an SVG with a
description in words.
"""

from attn_course.plots.attention_view import AttentionView, attention_view
from attn_course.plots.charts import bars, curves
from attn_course.plots.colours import COLORS
from attn_course.plots.diagrams import (
    attention_shapes,
    attention_steps,
    decoder_block,
    divided_cache,
    encoder_decoder,
    induction,
    latent_cache,
    multi_head_layer,
    norm_orders,
    output_norms,
    picture_as_tokens,
    position_methods,
    query_axis,
    ring,
    split_heads,
    token_columns,
    training_loop,
    transformer,
    two_layers,
    vocabulary,
    who_sees_whom,
    word_links,
)
from attn_course.plots.figure import Picture, subplots
from attn_course.plots.heatmaps import head_grid, heatmap, masks
from attn_course.plots.images import images
from attn_course.plots.real_heads import load_real_heads, real_heads
from attn_course.plots.svg import Drawing

__all__ = [
    "COLORS",
    "AttentionView",
    "Drawing",
    "Picture",
    "attention_shapes",
    "attention_steps",
    "attention_view",
    "bars",
    "curves",
    "decoder_block",
    "divided_cache",
    "encoder_decoder",
    "head_grid",
    "heatmap",
    "images",
    "induction",
    "latent_cache",
    "load_real_heads",
    "masks",
    "multi_head_layer",
    "norm_orders",
    "output_norms",
    "picture_as_tokens",
    "position_methods",
    "query_axis",
    "real_heads",
    "ring",
    "split_heads",
    "subplots",
    "token_columns",
    "training_loop",
    "transformer",
    "two_layers",
    "vocabulary",
    "who_sees_whom",
    "word_links",
]
