"""Several processes that train one model together, or one that is alone. Used in chapter 12.

Under ``torchrun`` every process runs the same program. All of them take every step together, each with its own
share of the batch; the first one, of rank 0, alone writes files.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

# Its defaults are the group that stands when it is first imported. AdamW imports it on its first step: they would hold
# our group, and its threads would still run while Python ends, which now and then aborts.
import torch.distributed.nn.functional
from torch import Tensor

from attn_course._device import default_device


class DistributedContext(NamedTuple):
    """How many processes there are, and which of them this is."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def add(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def find_processes() -> DistributedContext:
    """The processes that have been joined by :func:`join_processes`; one if there are none."""
    if not dist.is_initialized():
        return DistributedContext()
    return DistributedContext(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def join_processes() -> Iterator[None]:
    """Inside, the processes that ``torchrun`` started work together; without ``torchrun`` it does nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    device = default_device()
    if device.type in ("cuda", "xpu"):  # one device for each process
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    # The first process reads a long text, and translates dev, while the others wait.
    dist.init_process_group(
        dist.get_default_backend_for_device(device), timeout=timedelta(hours=2)
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
