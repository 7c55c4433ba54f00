"""The type in which autocast computes."""

import torch
from torch import Tensor


def autocast_dtype(weight: Tensor) -> torch.dtype:
    """The type of what a projection with this weight returns, which under autocast is not that of the weight."""
    device = weight.device.type
    knows_autocast = torch.amp.is_autocast_available(device)  # the device "meta" does not
    if (
        knows_autocast
        and torch.is_autocast_enabled(device)
        and weight.dtype != torch.float64
    ):
        return torch.get_autocast_dtype(device)
    return weight.dtype
