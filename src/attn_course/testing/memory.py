"""Measure a call by its peak memory and its kernels, which do not depend on the load of the machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object]) -> int:
    """Count the most bytes that live at one time during a call, beyond those that lived before it.

    The result of the call counts, and so does the memory of a backward pass inside the call. The
    numbers are those of the allocator, from PyTorch's profiler, and the same each time. Memory that compiled code
    takes without PyTorch's allocator is not counted.

    Args:
        call: takes no arguments.

    Returns:
        Bytes of main memory, plus those of the current CUDA or XPU device if there is one.

    Example:
        >>> x = torch.zeros(1000)
        >>> peak_bytes(lambda: x.sin().cos())  # two tensors of 1000 numbers, 4 bytes each
        8000
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    # Others keep no such statistics.
    counts = accelerator is not None and accelerator.type in ("cuda", "xpu")
    if counts:
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
    with _profiled(profile_memory=True) as profiler:
        result = call()
    records = profiler.profiler.kineto_results.events()
    changes = [
        (record.start_ns(), record.nbytes())
        for record in records
        if record.name() == "[memory]" and record.device_type().name == "CPU"
    ]
    del result
    alive = peak = 0
    for _, change in sorted(changes, key=lambda x: x[0]):
        alive += change
        peak = max(peak, alive)
    if counts:
        peak += torch.accelerator.max_memory_allocated() - before
    return peak


def kernels_of(call: Callable[[], object]) -> set[str]:
    """Name the kernels of scaled dot-product attention that a call runs: fused ones, or the general one.

    Args:
        call: takes no arguments.

    Returns:
        Names such as ``"_scaled_dot_product_flash_attention_for_cpu"`` (fused) and
        ``"_scaled_dot_product_attention_math"`` (not fused).

    Example:
        >>> q = torch.zeros(1, 2, 3, 4)
        >>> attend = torch.nn.functional.scaled_dot_product_attention
        >>> kernels_of(lambda: attend(q.cpu(), q.cpu(), q.cpu()))
        {'_scaled_dot_product_flash_attention_for_cpu'}
    """
    with _profiled() as profiler:
        call()
    names = {event.key.removeprefix("aten::") for event in profiler.key_averages()}
    return {name for name in names if name.startswith("_scaled_dot_product")}


@contextmanager
def _profiled(*, profile_memory: bool = False) -> Iterator[profile]:
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=profile_memory)
    with _without_stderr():
        profiler.__enter__()
    try:
        yield profiler
    finally:
        with _without_stderr():
            profiler.__exit__(None, None, None)


@contextmanager
def _without_stderr() -> Iterator[None]:
    # The profiler's compiled part announces its start and stop on the process's stderr, below Python's.
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)
