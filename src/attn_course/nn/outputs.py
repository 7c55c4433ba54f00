"""The hidden states and weights of a model. Derived in chapter 22."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class ModelOutput(NamedTuple):
    """The stream between the layers, and the attention weights."""

    hidden: tuple[Float[Tensor, "B S E"], ...]
    """The input of the first layer, then the output of each layer. A final norm is applied to the last output, as in
    ``transformers``."""
    weights: Float[Tensor, "layers B H T S"] | None
    """The weights of all layers and heads, or None without ``need_weights``."""
