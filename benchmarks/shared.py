"""What the benchmarks share: pairs of sentences as ids, times taken in turn, and the machine in words."""

import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import torch

from attn_course.data.corpus_mixture import Text, load_text
from attn_course.data.subwords import Subwords

Ids = tuple[list[int], list[int]]


class Sentences(NamedTuple):
    """Training pairs of a corpus as ids, and the sizes of the two vocabularies."""

    name: str
    pairs: list[Ids]
    src_vocab_size: int
    tgt_vocab_size: int


def load_sentences(src_vocab_size: int = 6000, tgt_vocab_size: int = 4000) -> Sentences:
    """The training pairs of small_parallel_enja where ATTN_COURSE_DATA holds them, else of the bundled corpus."""
    folder = os.environ.get("ATTN_COURSE_DATA", "").strip()
    real = folder and Path(folder, "small_parallel_enja").is_dir()
    name = "small_parallel_enja" if real else "everyday"
    if not real:  # it has fewer different words
        src_vocab_size, tgt_vocab_size = 600, 600
    text = load_text([name])
    return Sentences(name, *encode(text, src_vocab_size, tgt_vocab_size))


def encode(text: Text, src_vocab_size: int, tgt_vocab_size: int) -> tuple[list[Ids], int, int]:
    """Learn the two vocabularies and cut the training pairs."""
    src = Subwords.train([ja for ja, _ in text.train], src_vocab_size, spaces=False)
    tgt = Subwords.train([en for _, en in text.train], tgt_vocab_size, spaces=True)
    return [(src.encode(ja), tgt.encode(en)) for ja, en in text.train], len(src), len(tgt)


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


def quartiles(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} (quartiles {low:.2f} to {high:.2f})"


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
