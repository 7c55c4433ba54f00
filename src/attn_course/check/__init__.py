"""The checks of the exercises, which know the mistakes that learners make. Used from chapter 1 on.

``check.NAME(NAME)`` runs the function or class that you wrote on fresh random inputs and prints a verdict.
"""

from attn_course.check.batches_einsum_einops import (
    general_scores,
    lookup,
    max_sim,
    table_gradient,
    weighted_sum,
)
from attn_course.check.scaled_dot_product_attention import (
    WideValues,
    as_linear,
    row_entropy,
    scaled_dot_product,
    scaled_scores,
)

__all__ = [
    "WideValues",
    "as_linear",
    "general_scores",
    "lookup",
    "max_sim",
    "row_entropy",
    "scaled_dot_product",
    "scaled_scores",
    "table_gradient",
    "weighted_sum",
]
