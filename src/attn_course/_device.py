"""Where the course computes. Used from chapter 2 on."""

import os

import torch


def default_device(dtype: torch.dtype = torch.float32) -> torch.device:
    """Choose the device for a chapter: the accelerator that PyTorch reports (CUDA, MPS, XPU …), else the CPU.

    The environment variable ``ATTN_COURSE_DEVICE`` overrides the choice, for instance ``cpu`` or ``cuda:1``.
    Random numbers are drawn on the CPU and moved, so a chapter shows the same values on all of them.

    Args:
        dtype: what the chapter computes in. Where the accelerator has no such numbers, as Apple's MPS has no
            float64, the CPU is chosen.

    Raises:
        ValueError: if ``ATTN_COURSE_DEVICE`` is not a device that PyTorch knows, or names one that is not there.

    Example:
        >>> default_device() == (torch.accelerator.current_accelerator() or torch.device("cpu"))
        True
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    name = os.environ.get("ATTN_COURSE_DEVICE", "").strip()
    if not name:
        return accelerator if accelerator and has_type(accelerator, dtype) else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"ATTN_COURSE_DEVICE ({name!r}) must name a PyTorch device, such as 'cpu' or 'cuda'"
        ) from error
    if device.type == "cpu":
        return device
    count = torch.accelerator.device_count() if accelerator and device.type == accelerator.type else 0
    if (device.index or 0) >= count:
        available = f"{torch.accelerator.device_count()} of type {accelerator.type}" if accelerator else "none"
        raise ValueError(
            f"ATTN_COURSE_DEVICE ({name!r}) names an accelerator that is not there: PyTorch sees {available}"
        )
    return device if has_type(device, dtype) else torch.device("cpu")


def has_type(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device can hold numbers of a type; Apple's MPS and some XPUs have no float64."""
    try:
        torch.zeros(1, dtype=dtype, device=device)
    except (TypeError, RuntimeError):  # MPS says the one, XPU the other
        return False
    return True


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies matrices in bfloat16 by itself; another that is made to is slower than without."""
    if device.type == "cpu":
        ask = getattr(torch.cpu, "get_capabilities", None)  # PyTorch 2.6 has none
        known = ask() if ask else {"avx512_bf16": torch.cpu._is_avx512_bf16_supported()}
        return any(supported for name, supported in known.items() if "bf16" in name)
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return has_type(device, torch.bfloat16)


def get_random_state(device: torch.device) -> torch.Tensor | None:
    """The state of the device's own random numbers, as a tensor on the CPU; None for the CPU itself."""
    if device.type == "cpu":
        return None
    return torch.get_device_module(device).get_rng_state(*_by_name(device)).cpu()


def set_random_state(state: torch.Tensor, device: torch.device) -> None:
    """Put the device's random numbers back to a state from :func:`get_random_state`."""
    torch.get_device_module(device).set_rng_state(state, *_by_name(device))


def _by_name(device: torch.device) -> list[torch.device]:
    # There is one MPS device only, and its functions take no name.
    return [] if device.type == "mps" else [device]
