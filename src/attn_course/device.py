"""Where the course computes. Used from chapter 2 on."""

import os

import torch


def default_device() -> torch.device:
    """Choose the device for a chapter: a CUDA GPU where there is one, else the CPU.

    The environment variable ``ATTN_COURSE_DEVICE`` overrides the choice, for instance ``cpu`` or ``cuda:1``.
    Random numbers are drawn on the CPU and moved, so a chapter shows the same values on both.

    Raises:
        ValueError: if ``ATTN_COURSE_DEVICE`` is not a device that PyTorch knows, or names a GPU that is not there.

    Example:
        >>> default_device().type in ("cpu", "cuda")
        True
    """
    wanted = os.environ.get("ATTN_COURSE_DEVICE", "").strip()
    if not wanted:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ValueError(
            f"ATTN_COURSE_DEVICE ({wanted!r}) must name a PyTorch device, such as 'cpu' or 'cuda'"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"ATTN_COURSE_DEVICE ({wanted!r}) names a GPU that is not there: PyTorch sees {torch.cuda.device_count()}"
        )
    return device
