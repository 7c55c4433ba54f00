"""What the benchmarks share: times taken in turn, and the machine in words."""

import os
import platform
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch


def take_turns(
    first: Callable[[int], float], second: Callable[[int], float], rounds: int, seed: int = 0
) -> list[tuple[float, float]]:
    """Call both with the number of the round, in an order that a coin decides each round; keep what they return.

    Whatever slows the machine down for a while slows both down, and neither is always the one that comes second.
    """
    coin, results = random.Random(seed), []
    for number in range(rounds):
        if coin.random() < 0.5:
            a = first(number)
            b = second(number)
        else:
            b = second(number)
            a = first(number)
        results.append((a, b))
    return results


def cpu_seconds(work: Callable[[], object]) -> float:
    """What this process computed for it, however busy the machine is with others."""
    start = time.process_time()
    work()
    return time.process_time() - start


def describe_machine() -> str:
    """Where and with what: the processor, the threads, the versions and the day."""
    threads = torch.get_num_threads()
    return (
        f"{processor()}, {threads} thread{'s'[: threads - 1]}, {torch.backends.cpu.get_cpu_capability()}; "
        f"Python {platform.python_version()}, torch {torch.__version__}; {datetime.now(UTC):%Y-%m-%d}"
    )


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return f"{os.cpu_count()} cores {line.partition(':')[2].strip()}"
    return f"{os.cpu_count()} cores {platform.processor() or platform.machine()}"
