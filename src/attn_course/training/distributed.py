"""Training with several processes. Used in chapter 12.

Under ``torchrun``, every process runs the same program. In each step, every process reads its share of the batch. Only
the process of rank 0 writes files.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

# The default arguments of this module hold the process group that exists when it is first imported. AdamW imports it in
# its first step. Then our group would never be freed, and its threads could abort Python at exit.
import torch.distributed.nn.functional
from torch import Tensor

from attn_course._device import default_device


class DistributedContext(NamedTuple):
    """The number of processes, and the rank of this one."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def add(self, values: Tensor) -> Tensor:
        """Sum the values over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, ordered by rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def find_processes() -> DistributedContext:
    """Return the context of :func:`join_processes`, or that of a single process."""
    if not dist.is_initialized():
        return DistributedContext()
    return DistributedContext(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def join_processes() -> Iterator[None]:
    """Connect the processes that ``torchrun`` has started. Without ``torchrun``, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    device = default_device()
    if device.type in ("cuda", "xpu"):  # one device for each process
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    # The other processes wait while the first one prepares the text and translates dev.
    dist.init_process_group(dist.get_default_backend_for_device(device), timeout=timedelta(hours=2))
    try:
        yield
    finally:
        dist.destroy_process_group()
