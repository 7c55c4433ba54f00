"""What a model returns when it is asked to show everything. Derived in chapter 17."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class ModelOutput(NamedTuple):
    """The stream on its way through the layers, and what attended to what."""

    hidden: tuple[Float[Tensor, "B S E"], ...]
    """What enters the first layer, then what leaves each. Behind the last, where there is a final norm,
    that is what leaves the norm, as in ``transformers``."""
    weights: Float[Tensor, "layers B H T S"] | None
    """The weights of every layer and head, or None if they were not asked for."""
