"""The type of tensors under autocast."""

import torch
from torch import Tensor


def autocast_dtype(weight: Tensor) -> torch.dtype:
    """Return the type of the output of a projection with this weight, which autocast can change."""
    device = weight.device.type
    has_autocast = torch.amp.is_autocast_available(device)  # not on the device "meta"
    if has_autocast and torch.is_autocast_enabled(device) and weight.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return weight.dtype
