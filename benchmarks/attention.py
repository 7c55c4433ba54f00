"""What does each form of attention in the course cost? Prints every ratio and every speed as a table.

Each row compares two ways to compute the same numbers, and the script checks that the numbers are equal. Both run in
turn in one process, in a random order in each round, and a ratio is the median of the rounds. The last columns give the
time of one call of ours, its speed, and this speed as a share of a large matrix product in the same run. Run it from
the repository:

    python benchmarks/attention.py                 # everything, about fifteen minutes
    python benchmarks/attention.py --only window   # the rows whose name or section contains this word
    python benchmarks/attention.py --write         # also write the tables and the picture of the book to results/
    python benchmarks/attention.py --judge         # measure nothing: compare the recorded ratios with today's promises

With --only and --write, the sections of which every row was measured replace the recorded sections.

On the CPU one thread works and its CPU time counts; in the rows for two threads, the time on the clock counts. Where
PyTorch sees a CUDA GPU, the same command measures there as well: time by the GPU's own clock, float32 and bfloat16, up
to 16,384 positions, and each fused back end by itself.
What a GPU could do at best is computed from bytes and FLOPs, on any machine, and says so.
"""

import argparse
import copy
import itertools
import math
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from shared import cpu_seconds, describe_machine, take_turns
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_course import (
    DecoderCache,
    LanguageModel,
    MultiHeadAttention,
    attention,
    fused_attention,
    make_alibi_bias,
    make_causal_mask,
    make_padding_mask,
    make_sliding_window_mask,
    plots,
    sliding_window_attention,
    tiled_attention,
    weights_of_rows,
)
from attn_course.decoding import generate

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5  # at least
SMALL_EXTRA = 1.10  # promised ratio of calls that do little more than SDPA
SDPA = F.scaled_dot_product_attention
Work = Callable[[], object]


class Row(NamedTuple):
    """Two ways to compute the same, and what the ratio of their times should be."""

    section: str
    name: str
    make: Callable[[], tuple[Work, Work]]
    """Builds both: ours, and what it is compared with. They return what must be equal."""
    limit: float | None
    """At most this; or at least this, where ``faster``. None promises nothing."""
    flops: float
    """What one call has to compute: of what no query may see, and of what is computed again, nothing counts."""
    faster: bool = False
    """The ratio says how many times faster ours is; otherwise how many times as long it takes."""
    repeats: int = 3
    """Calls in a round."""
    rounds: int | None = None
    """Rounds, where one takes so long that none is given away to warm up."""
    dtype: torch.dtype = torch.float32
    threads: int = 1


def visible_flops(scores: float, D: int, backward: bool = False) -> float:
    """A score is a product of D numbers with D, and so is its part in the average; going back has twice as many."""
    return 4 * D * scores * (3 if backward else 1)


def causal_scores(S: int) -> int:
    return window_scores(S, S)


def window_scores(S: int, W: int) -> int:
    """Visible scores of S queries, each of which sees itself and at most W - 1 keys before it."""
    W = min(S, W)
    return W * (W + 1) // 2 + (S - W) * W


# ---------------------------------------------------------------- rows for every device


def draw(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    """Random numbers from the CPU's generator, so that every device gets the same."""
    return torch.randn(shape).to(device, dtype).requires_grad_(grad)


def backward(work: Work, inputs: tuple[Tensor, ...], upstream: Tensor) -> Work:
    """Forward and backward: the gradients of the inputs are what must be equal."""
    return lambda: torch.autograd.grad(work(), inputs, upstream)


def default_path(S: int, device: str, dtype: torch.dtype) -> Iterator[Row]:
    """The package's default against PyTorch's function called by hand, in its best form."""
    B, H, D = 2, 8, 64
    on = {"device": device}

    def row(
        name: str,
        ours: Callable,
        theirs: Callable,
        shape: tuple[int, ...] = (B, H, S, D),
        visible: Tensor | None = None,
    ) -> Row:
        def make() -> tuple[Work, Work]:
            q, k, v = (draw(*shape, dtype=dtype, **on) for _ in range(3))
            return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

        share = 1.0 if visible is None else visible.float().mean().item()
        flops = visible_flops(share * math.prod(shape[:-1]) * S, D)
        return Row("The default path, forward", f"{name}, S {S}", make, SMALL_EXTRA, flops, dtype=dtype)

    causal = make_causal_mask(S, **on)
    padding = make_padding_mask([S, S // 2], **on)[:, None]  # (B, 1, 1, S)
    window = make_sliding_window_mask(S, S // 4, **on)
    alibi = make_alibi_bias(H, S, dtype=dtype, **on)[None]  # (1, H, S, S)
    hidden = torch.rand(S, S) < 0.7
    hidden[:, 0] = True
    hidden = hidden.to(device)

    yield row("no mask", fused_attention, SDPA)
    yield row("causal", partial(fused_attention, is_causal=True), partial(SDPA, is_causal=True), visible=causal)
    masks = {"boolean mask (S, S)": hidden, "padding mask (B, 1, 1, S)": padding, "window mask (S, S)": window}
    for name, mask in (masks | {"causal mask, as a tensor": causal}).items():
        yield row(name, partial(fused_attention, mask=mask), partial(SDPA, attn_mask=mask), visible=mask)
    yield row("float bias (1, H, S, S), ALiBi", partial(fused_attention, bias=alibi), partial(SDPA, attn_mask=alibi))
    lowered = torch.where(causal, alibi, -math.inf)
    both = partial(fused_attention, bias=alibi, is_causal=True)
    yield row("ALiBi and causal", both, partial(SDPA, attn_mask=lowered), visible=causal)

    def grouped() -> tuple[Work, Work]:
        q, (k, v) = draw(B, H, S, D, dtype=dtype, **on), (draw(B, 2, S, D, dtype=dtype, **on) for _ in range(2))
        how = {"is_causal": True, "enable_gqa": True}
        return no_grad(partial(fused_attention, **how), q, k, v), no_grad(partial(SDPA, **how), q, k, v)

    name, flops = f"grouped-query, 8 heads on 2, causal, S {S}", visible_flops(B * H * causal_scores(S), D)
    yield Row("The default path, forward", name, grouped, SMALL_EXTRA, flops, dtype=dtype)

    def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        four = (x.reshape(-1, x.size(-3) if x.dim() > 2 else 1, S, D) for x in (q, k, v))
        return SDPA(*four).view(q.shape)

    for shape in ((S, D), (H, S, D), (B, 2, H, S, D)):
        yield row(f"{len(shape)} axes", fused_attention, by_hand, shape)


def masks(S: int, threads: int) -> Iterator[Row]:
    """Every shape of a mask against PyTorch's function with the same mask, and a bias of numbers."""
    B, H, D = 2, 8, 64
    section = f"Masks, {'one thread' if threads == 1 else 'two threads'}"
    shapes = {
        "(S, S)": (S, S),
        "(1, 1, S, S)": (1, 1, S, S),
        "(B, 1, 1, S)": (B, 1, 1, S),
        "(1, H, S, S)": (1, H, S, S),
        "(B, H, S, S)": (B, H, S, S),
    }
    forms = {f"boolean mask {name}": ("mask", shape, 0.7) for name, shape in shapes.items()}
    forms |= {f"float bias {name}": ("bias", shapes[name], 1.0) for name in ("(S, S)", "(B, H, S, S)")}
    for name, (argument, shape, share) in forms.items():

        def make(argument: str = argument, shape: tuple[int, ...] = shape) -> tuple[Work, Work]:
            q, k, v = (draw(B, H, S, D) for _ in range(3))
            added = torch.rand(shape) < 0.7 if argument == "mask" else draw(*shape)
            ours, theirs = partial(fused_attention, **{argument: added}), partial(SDPA, attn_mask=added)
            return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

        flops, often = visible_flops(share * B * H * S * S, D), max(1, 1024 // S)
        yield Row(section, f"{name}, S {S}", make, SMALL_EXTRA, flops, repeats=often, threads=threads)


def forward_and_backward(S: int, device: str, dtype: torch.dtype) -> Iterator[Row]:
    B, H, D = 2, 8, 64
    for name, how in (("no mask", {}), ("causal", {"is_causal": True})):
        make = partial(
            with_gradients, partial(fused_attention, **how), partial(SDPA, **how), (B, H, S, D), device, dtype
        )
        flops = visible_flops(B * H * (causal_scores(S) if how else S * S), D, backward=True)
        yield Row("The default path, forward and backward", f"{name}, S {S}", make, SMALL_EXTRA, flops, dtype=dtype)


def quiet(S: int) -> Iterator[Row]:
    B, H, D = 2, 8, 64
    for name, how in (("no mask", {}), ("causal", {"is_causal": True})):
        scores = B * H * (causal_scores(S) if how else S * S)
        for sink, what in ((0.0, "quiet softmax"), (torch.linspace(-1, 1, H), "learned sinks")):
            ours = partial(fused_attention, sink=sink, **how)
            theirs = partial(SDPA, **how)

            def make(ours: Callable = ours, theirs: Callable = theirs) -> tuple[Work, Work]:
                q, k, v = (draw(B, H, S, D) for _ in range(3))
                return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

            row = partial(Row, "Quiet softmax against plain SDPA", limit=SMALL_EXTRA)
            flops, often = visible_flops(scores, D), max(1, 2048 // S)
            yield row(f"{what}, {name}, forward, S {S}", make, flops=flops, repeats=often)
            both = partial(with_gradients, ours, theirs, (B, H, S, D), "cpu", torch.float32)
            flops, often = visible_flops(scores, D, backward=True), max(1, 1024 // S)
            yield row(f"{what}, {name}, forward and backward, S {S}", both, flops=flops, repeats=often)


def layer_flops(B: int, H: int, S: int, D: int) -> float:
    """The four projections of a layer whose width is H times D."""
    return 8 * B * S * (H * D) ** 2


def chosen_rows(S: int) -> Iterator[Row]:
    B, H, D = 2, 8, 64
    whole = visible_flops(B * H * S * S, D)
    few = 2 * B * H * 32 * S * D  # the scores of 32 queries

    def make() -> tuple[Work, Work]:
        q, k, v = (draw(B, H, S, D) for _ in range(3))
        rows = torch.linspace(0, S - 1, 32).long()

        def ours() -> Tensor:
            weights_of_rows(q, k, rows)
            return fused_attention(q, k, v)

        return no_grad(ours), no_grad(SDPA, q, k, v)

    yield Row("Weights on request", f"output and the weights of 32 rows, S {S}", make, SMALL_EXTRA, whole + few)

    def layer() -> tuple[Work, Work]:
        module, x = MultiHeadAttention(H * D, H).eval(), draw(B, S, H * D)
        rows = torch.linspace(0, S - 1, 32).long()
        ours = no_grad(lambda: module(x, need_weights=rows)[0])
        return ours, no_grad(lambda: module(x)[0])

    of_layer = layer_flops(B, H, S, D) + whole + few
    yield Row("Weights on request", f"a layer and the weights of 32 rows, S {S}", layer, SMALL_EXTRA, of_layer)

    def every() -> tuple[Work, Work]:
        q, k, v = (draw(B, H, S, D) for _ in range(3))
        return no_grad(lambda: attention(q, k, v)[0]), no_grad(SDPA, q, k, v)

    yield Row("Weights on request", f"output and all weights, S {S}", every, None, whole)


def tiled(S: int) -> Iterator[Row]:
    B, H, D = 1, 8, 64
    for name, how in (("no mask", {}), ("causal", {"is_causal": True})):
        ours, theirs = partial(tiled_attention, **how), partial(SDPA, **how)

        def make(ours: Callable = ours, theirs: Callable = theirs) -> tuple[Work, Work]:
            q, k, v = (draw(B, H, S, D) for _ in range(3))
            return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

        row = partial(Row, "Tiled attention in plain PyTorch")
        scores = B * H * (causal_scores(S) if how else S * S)
        often = max(1, 2048 // S)
        yield row(f"{name}, forward, S {S}", make, None, visible_flops(scores, D), repeats=often)
        both = partial(with_gradients, ours, theirs, (B, H, S, D), "cpu", torch.float32)
        flops = visible_flops(scores, D, backward=True)
        yield row(f"{name}, forward and backward, S {S}", both, None, flops, repeats=1)


def window(S: int, W: int, limit: float | None, device: str, dtype: torch.dtype) -> Iterator[Row]:
    H, D = 2, 64

    def make() -> tuple[Work, Work]:
        q, k, v = (draw(1, H, S, D, device=device, dtype=dtype) for _ in range(3))
        mask = make_sliding_window_mask(S, W, device=device)
        ours = no_grad(partial(sliding_window_attention, window=W), q, k, v)
        return ours, no_grad(partial(SDPA, attn_mask=mask), q, k, v)

    flops = visible_flops(H * window_scores(S, W), D)
    how = {"faster": True, "repeats": 1, "dtype": dtype}
    yield Row("Sliding window against SDPA with a mask", f"S {S}, W {W}", make, limit, flops, **how)


def writer(max_len: int) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(1000, d_model=384, num_heads=6, num_layers=6, d_ff=1536, max_len=max_len).eval()


def reading_flops(lengths: Iterable[int]) -> float:
    """Of one new token in texts of these lengths: its way through all weights, and its scores and averages."""
    return sum(2 * (6 * 12 * 384**2 + 1000 * 384) + 6 * visible_flops(length, 384) for length in lengths)


def cache(new_tokens: int, limit: float | None) -> Iterator[Row]:
    """A whole text, with the cache and without: both choose the same tokens."""

    def make() -> tuple[Work, Work]:
        model, prompt = writer(new_tokens + 8), torch.randint(1000, (1, 8))
        write = partial(generate, prompts=prompt, prompt_lengths=torch.tensor([8]), max_new_tokens=new_tokens)
        return partial(write, model), partial(write, model, use_cache=False)

    name, flops = f"{new_tokens} new tokens, 6 layers, E 384", reading_flops(range(1, new_tokens + 8))
    how = {"faster": True, "repeats": 1, "rounds": ROUNDS}
    yield Row("Writing with a cache against recomputing", name, make, limit, flops, **how)


def cached_steps(new_tokens: int, every: int, limit: float | None) -> Iterator[Row]:
    """Some of the steps of a long text, evenly spread, since all of them without a cache take minutes."""
    read_before = range(every // 2, new_tokens, every)

    def make() -> tuple[Work, Work]:
        model, ids = writer(new_tokens), torch.randint(1000, (1, new_tokens))
        whole = model.make_cache(batch_size=1, max_len=new_tokens)
        with torch.no_grad():
            model(ids, cache=whole)

        def with_cache() -> Tensor:
            logits = []
            for n in read_before:
                so_far = DecoderCache([copy.copy(layer) for layer in whole.layers])  # of the same memory
                so_far.truncate(n)
                logits.append(model(ids[:, n : n + 1], cache=so_far))
            return torch.cat(logits)

        def again() -> Tensor:
            return torch.cat([model(ids[:, : n + 1])[:, -1:] for n in read_before])

        return no_grad(with_cache), no_grad(again)

    name = f"{len(read_before)} of the steps of {new_tokens:,} new tokens, 6 layers, E 384"
    flops, how = reading_flops(n + 1 for n in read_before), {"faster": True, "repeats": 1}
    yield Row("Writing with a cache against recomputing", name, make, limit, flops, **how)


def module(S: int) -> Iterator[Row]:
    def make() -> tuple[Work, Work]:
        ours = MultiHeadAttention(512, 8).eval()
        theirs, x = ours.to_torch().eval(), draw(2, S, 512)
        future = torch.nn.Transformer.generate_square_subsequent_mask(S)
        how = {"attn_mask": future, "is_causal": True, "need_weights": False}
        return no_grad(lambda: ours(x, is_causal=True)[0]), no_grad(lambda: theirs(x, x, x, **how)[0])

    flops = layer_flops(2, 8, S, 64) + visible_flops(2 * 8 * causal_scores(S), 64)
    yield Row("The layer", f"MultiHeadAttention against nn.MultiheadAttention, causal, S {S}", make, 1.05, flops)


# ---------------------------------------------------------------- rows for a GPU only


def back_ends(S: int, dtype: torch.dtype) -> Iterator[Row]:
    """Each fused back end of SDPA, against the one that PyTorch chooses."""
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

        def make(backend: SDPBackend = backend) -> tuple[Work, Work]:
            q, k, v = (draw(2, 8, S, 64, device="cuda", dtype=dtype) for _ in range(3))

            def attend() -> Tensor:
                with sdpa_kernel(backend):
                    return SDPA(q, k, v, is_causal=True)

            return no_grad(attend), no_grad(partial(SDPA, is_causal=True), q, k, v)

        name = backend.name.lower().replace("_attention", "")
        flops = visible_flops(2 * 8 * causal_scores(S), 64)
        section = "Back ends of SDPA against its own choice"
        yield Row(section, f"{name}, causal, S {S}", make, None, flops, dtype=dtype)


def rows_of(device: str) -> list[Row]:
    if device == "cpu":
        rows = [*default_path(512, "cpu", torch.float32), *default_path(1024, "cpu", torch.float32)]
        for threads in (1, 2):
            for S in (512, 2048):
                rows += masks(S, threads)
        rows += forward_and_backward(512, "cpu", torch.float32)
        for S in (512, 2048):
            rows += quiet(S)
        rows += chosen_rows(1024)
        for S in (512, 1024, 2048):
            rows += tiled(S)
        rows += window(2048, 256, None, "cpu", torch.float32)
        rows += window(8192, 256, 10.0, "cpu", torch.float32)
        rows += module(512)
        return [*rows, *cache(256, 5.0), *cached_steps(1024, 32, 15.0)]
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for S in (1024, 4096, 16384):
            measured_rows = [*back_ends(S, dtype), *window(S, 256, None, device, dtype)]
            if S <= 4096:  # a mask for each pair of 16,384 positions is half a gigabyte a head in float32
                measured_rows += default_path(S, device, dtype)
            kind = str(dtype).removeprefix("torch.")
            rows += [row._replace(name=f"{row.name}, {kind}") for row in measured_rows]
    return rows


# ---------------------------------------------------------------- measuring


def no_grad(work: Callable, *inputs: Tensor) -> Work:
    def without() -> object:
        with torch.no_grad():
            return work(*inputs)

    return without


def with_gradients(
    ours: Callable, theirs: Callable, shape: tuple[int, ...], device: str, dtype: torch.dtype
) -> tuple[Work, Work]:
    inputs = tuple(draw(*shape, device=device, dtype=dtype, grad=True) for _ in range(3))
    upstream = draw(*shape, device=device, dtype=dtype)
    return backward(partial(ours, *inputs), inputs, upstream), backward(partial(theirs, *inputs), inputs, upstream)


def clock_of(device: str) -> Callable[[Work], float]:
    if device != "cpu":
        return gpu_seconds
    # The CPU time of several threads counts what they wait for each other.
    return cpu_seconds if torch.get_num_threads() == 1 else wall_seconds


def wall_seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def gpu_seconds(work: Work) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def check_equal(row: Row, actual: object, expected: object) -> None:
    """Refuse to compare times of things that are not the same. Sinks change the numbers, so they are not compared."""
    if row.section.startswith("Quiet"):
        return
    if isinstance(actual, Tensor):
        actual, expected = (actual,), (expected,)
    for a, b in zip(actual, expected, strict=True):
        if a.is_floating_point():
            half = a.dtype in (torch.bfloat16, torch.float16)
            close = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-3, "atol": 1e-4}
            torch.testing.assert_close(a, b, **close)
        else:
            assert torch.equal(a, b), f"{row.name}: not the same tokens"


def measure(row: Row, seconds: float, device: str) -> list[tuple[float, float]]:
    """The seconds that one call of ours and of theirs takes, in as many rounds as fit into the time, at least five.

    A first round only warms up.
    """
    torch.manual_seed(0)
    torch.set_num_threads(row.threads)
    works = dict(zip(("ours", "theirs"), row.make(), strict=True))
    clock = clock_of(device)
    results: dict[str, object] = {}

    def timed(side: str) -> Callable[[int], float]:
        def once() -> None:
            results[side] = works[side]()

        return lambda number: sum(clock(once) for _ in range(row.repeats)) / row.repeats

    turns = partial(take_turns, timed("ours"), timed("theirs"))
    if row.rounds is not None:
        times = turns(row.rounds)
    else:
        (first,) = turns(1)
        times = turns(max(ROUNDS, min(99, round(seconds / sum(first) / row.repeats))), seed=1)
    check_equal(row, results["ours"], results["theirs"])
    return times


def measure_peak(dtype: torch.dtype, device: str) -> float:
    """FLOPs a second of a product of two large matrices at its fastest: no form of attention can hope for more."""
    n = 2048 if device == "cpu" else 8192
    a, b = (draw(n, n, device=device, dtype=dtype) for _ in range(2))
    times = [clock_of(device)(lambda: a @ b) for _ in range(ROUNDS + 1)]
    return 2 * n**3 / min(times)


def line(row: Row, times: list[tuple[float, float]], peak: float) -> str:
    """One row of the table."""
    ratios = [theirs / ours if row.faster else ours / theirs for ours, theirs in times]
    digits = 1 if row.faster else 2
    low, middle, high = (f"{x:.{digits}f}" for x in statistics.quantiles(ratios, n=4, method="inclusive"))
    ours = statistics.median(seconds for seconds, _ in times)
    speed = row.flops / ours
    absolute = f"{as_number(1000 * ours)} | {as_number(speed / 1e9)} | {speed / peak:.0%}".replace("%", " %")
    return f"| {row.name} | {middle} | {low} to {high} | {len(ratios)} | {promise(row, middle)} | {absolute} |"


def promise(row: Row, ratio: str) -> str:
    """The limit of a row, and whether the ratio keeps it as it is printed."""
    if row.limit is None:
        return ""
    holds = float(ratio) >= row.limit if row.faster else float(ratio) <= row.limit
    return f"{'at least' if row.faster else 'at most'} {row.limit:g} {'✓' if holds else '✗'}"


def as_number(value: float) -> str:
    """Two digits that count, or all before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def sections(rows: list[Row], seconds: float, device: str) -> dict[str, str]:
    """The table of each section; prints every line as soon as it is measured."""
    tables: dict[str, str] = {}
    peaks: dict[tuple[torch.dtype, int], float] = {}
    for row in rows:
        if row.section not in tables:
            torch.set_num_threads(row.threads)
            dtypes = dict.fromkeys(other.dtype for other in rows if other.section == row.section)
            for dtype in dtypes:  # the largest so far: another program may have slowed this one down
                key = dtype, row.threads
                peaks[key] = max(peaks.get(key, 0.0), measure_peak(dtype, device))
            kind = "times faster" if row.faster else "time, relative"
            head = f"| what | {kind} | quartiles | rounds | promised | ms | GFLOP/s | of the peak |"
            beside = describe_peaks({dtype: peaks[dtype, row.threads] for dtype in dtypes})
            if row.threads > 1:
                beside += f" {row.threads} threads work here, and the time on the clock counts."
            tables[row.section] = f"{beside}\n\n{head}\n{rule(8)}"
            print(f"\n### {row.section}\n\n{tables[row.section]}", flush=True)
        text = line(row, measure(row, seconds, device), peaks[row.dtype, row.threads])
        print(text, flush=True)
        tables[row.section] += f"\n{text}"
    return tables


def rule(columns: int) -> str:
    """The line below the head of a table: names on the left, numbers on the right."""
    return f"|---|{'---:|' * (columns - 1)}"


def describe_peaks(peaks: dict[torch.dtype, float]) -> str:
    speeds = (f"{peak / 1e9:,.0f} GFLOP/s in {str(dtype).removeprefix('torch.')}" for dtype, peak in peaks.items())
    return f"The peak beside it: {' and '.join(speeds)}."


# ---------------------------------------------------------------- the same over the length of the text


SCALING = "From 512 to 16,384 positions"
LENGTHS = [2**n for n in range(9, 15)]
WINDOW = 256


def textbook(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as in section 17.1: it stores the scores and the weights of all pairs."""
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(dim=-1) @ v


def ways_at(S: int, device: str) -> dict[str, Work]:
    """One head of width 64 over S positions, without a mask and with a window."""
    torch.manual_seed(0)
    q, k, v = (draw(1, 1, S, 64, device=device) for _ in range(3))
    mask = make_sliding_window_mask(S, WINDOW, device=device)
    ways = {
        "textbook": partial(textbook, q, k, v),
        "tiles": partial(tiled_attention, q, k, v),
        "SDPA": partial(SDPA, q, k, v),
        "SDPA, window mask": partial(SDPA, q, k, v, attn_mask=mask),
        "window": partial(sliding_window_attention, q, k, v, window=WINDOW),
    }
    return {name: no_grad(way) for name, way in ways.items()}


def race(ways: dict[str, Work], device: str) -> dict[str, list[float]]:
    """The seconds of each way in each round: in turn, in a new order each round, and one round more to warm up.

    Those that mean the same must compute the same.
    """
    dice, clock = random.Random(0), clock_of(device)
    times: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Tensor] = {}
    for _ in range(ROUNDS + 1):
        for name in dice.sample(list(ways), len(ways)):

            def once(name: str = name) -> None:
                results[name] = ways[name]()

            times[name].append(clock(once))
    for a, b in (("textbook", "SDPA"), ("tiles", "SDPA"), ("window", "SDPA, window mask")):
        torch.testing.assert_close(results[a], results[b], rtol=1e-3, atol=1e-4)
    return {name: seconds[1:] for name, seconds in times.items()}


def scaling(device: str) -> tuple[str, plots.Picture]:
    """Three tables (times, growth, speeds) and a picture of the times."""
    torch.set_num_threads(1)
    peak = measure_peak(torch.float32, device)
    times_at = {S: race(ways_at(S, device), device) for S in LENGTHS}
    names = list(times_at[LENGTHS[0]])
    medians = {name: [statistics.median(times_at[S][name]) for S in LENGTHS] for name in names}

    def cell(seconds: list[float]) -> str:
        low, middle, high = (as_number(1000 * x) for x in statistics.quantiles(seconds, n=4, method="inclusive"))
        return f"{middle} ({low} to {high})"

    def speed(name: str, S: int, seconds: float) -> str:
        scores = window_scores(S, WINDOW) if "window" in name else S * S
        flops = visible_flops(scores, 64) / seconds
        return f"{as_number(flops / 1e9)}, {flops / peak:.0%}".replace("%", " %")

    head = head_of_lengths(names)
    times, speeds = [head], [head]
    for i, S in enumerate(LENGTHS):
        times.append(f"| {S:,} | {' | '.join(cell(times_at[S][name]) for name in names)} |")
        speeds.append(f"| {S:,} | {' | '.join(speed(name, S, medians[name][i]) for name in names)} |")
    text = [
        f"{describe_peaks({torch.float32: peak})}",
        f"One head of width 64, a window of {WINDOW}. "
        f"Milliseconds: the median of {ROUNDS} rounds, and the quartiles in brackets.",
        "\n".join(times),
        GROWTH,
        growth({name: dict(zip(LENGTHS, medians[name], strict=True)) for name in names}),
        "GFLOP/s and the share of the peak. Pairs that the window hides do not count.",
        "\n".join(speeds),
    ]
    ms = {name: [1000 * seconds for seconds in medians[name]] for name in names}
    look = {"xlabel": "positions", "ylabel": "milliseconds", "precision": None}
    return "\n\n".join(text), plots.curves(LENGTHS, ms, log_x=True, log_y=True, **look)


GROWTH = "How many times as long each takes when the text becomes twice as long."


def head_of_lengths(names: Iterable[str]) -> str:
    names = list(names)
    return f"| positions | {' | '.join(names)} |\n{rule(len(names) + 1)}"


def growth(medians: dict[str, dict[int, float]]) -> str:
    """For each length but the first: the time divided by the time at half the length."""
    rows = [head_of_lengths(medians)]
    for half, S in itertools.pairwise(LENGTHS):
        factors = (f"{times[S] / times[half]:.1f}" for times in medians.values())
        rows.append(f"| {half:,} to {S:,} | {' | '.join(factors)} |")
    return "\n".join(rows)


# ---------------------------------------------------------------- a GPU, computed


H200_FLOPS, H200_BYTES = 989e12, 4.8e12  # a second, in bfloat16 without sparsity, and from memory: its data sheet
H200_EXPONENTIALS = 3.9e12  # a second, on Hopper: the FlashAttention-3 paper, https://arxiv.org/abs/2407.08608


def computed() -> str:
    """The shortest times that three limits of an H200 allow. Nothing is measured: the same on every machine."""
    B, H, D, size = 2, 8, 64, 2  # bytes of a bfloat16
    head = "| what | GFLOP | MB | products, µs | exponentials, µs | memory, µs | longest |"
    rows = [head, rule(7)]
    for S in (1024, 4096, 16384):
        inputs = 4 * B * H * S * D * size  # q, k, v and the output, each once
        scores = B * H * S * S
        # The textbook writes the scores, reads them for the softmax, writes the weights and reads them for the average.
        for name, moved in (("fused", inputs), ("textbook", inputs + 4 * scores * size)):
            rows.append(at_best(f"{name}, S {S:,}", visible_flops(scores, D), moved, scores))
    for S in (1024, 4096, 16384):
        scores = B * H * S
        moved = 2 * B * H * (S + 1) * D * size  # the cached keys and values, the query and the output
        rows.append(at_best(f"one new token, {S:,} in the cache", visible_flops(scores, D), moved, scores))
    return "\n".join(rows)


def at_best(name: str, flops: float, moved: float, exponentials: float) -> str:
    """A row of the table: the three times in microseconds, and which of them is the longest."""
    times = {
        "products": 1e6 * flops / H200_FLOPS,
        "exponentials": 1e6 * exponentials / H200_EXPONENTIALS,
        "memory": 1e6 * moved / H200_BYTES,
    }
    numbers = [as_number(flops / 1e9), as_number(moved / 1e6), *map(three_digits, times.values())]
    return f"| {name} | {' | '.join(numbers)} | {max(times, key=times.get)} |"


def three_digits(value: float) -> str:
    """Three digits that count, or all before the point; two below 1."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.2g}"


# ---------------------------------------------------------------- recording


def sections_of(recorded: str) -> tuple[str, dict[str, str]]:
    """The line on the machine and the day, and the text of each section."""
    where, *parts = recorded.strip().split("\n\n### ")
    return where, dict(part.split("\n\n", 1) for part in parts)


def joined(where: str, tables: dict[str, str]) -> str:
    return "\n\n".join([where, *(f"### {section}\n\n{text}" for section, text in tables.items())]) + "\n"


def record(path: Path, where: str, measured: dict[str, str], order: list[str]) -> None:
    """Write the sections, in this order, and keep those that are recorded already.

    Where some are kept, so is the line on the machine and the day, and the new ones get a line of their own.
    """
    recorded = {}
    if path.is_file():
        before, recorded = sections_of(path.read_text("utf-8"))
        if where != before and recorded.keys() - measured:
            measured = {section: f"Measured later: {where}.\n\n{text}" for section, text in measured.items()}
            where = before
    tables = recorded | measured
    path.parent.mkdir(exist_ok=True)
    path.write_text(joined(where, {section: tables[section] for section in order if section in tables}), "utf-8")


def judged(recorded: str, rows: list[Row]) -> str:
    """Return the recorded tables with the current promises."""
    where, tables = sections_of(recorded)
    for row in rows:
        text = tables.get(row.section, "")

        def with_promise(match: re.Match, row: Row = row) -> str:
            return f"{match['before']} | {promise(row, match['ratio'])} |"

        line = rf"^(?P<before>\| {re.escape(row.name)} \| (?P<ratio>[\d.]+) \| [^|]+ \| \d+) \| [^|]*\|"
        tables[row.section] = re.sub(line, with_promise, text, flags=re.MULTILINE)
    return joined(where, {section: text for section, text in tables.items() if text})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="time to spend on each row (default 4)")
    parser.add_argument("--only", default="", help="rows whose name or section holds this, in any case")
    parser.add_argument("--write", action="store_true", help="also write tables and picture to benchmarks/results")
    parser.add_argument("--judge", action="store_true", help="measure nothing: write today's promises to the tables")
    options = parser.parse_args()
    if options.seconds <= 0:
        parser.error(f"--seconds ({options.seconds:g}) must be above 0")
    if options.judge:
        for device in ("cpu", "cuda"):
            path = RESULTS / f"attention_{device}.md"
            if path.is_file():
                path.write_text(judged(path.read_text("utf-8"), rows_of(device)), "utf-8")
        return
    torch.set_num_threads(1)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        rows = rows_of(device)
        selected = [row for row in rows if options.only.lower() in f"{row.section} {row.name}".lower()]
        where = describe_machine() if device == "cpu" else f"{torch.cuda.get_device_name()}; {describe_machine()}"
        print(where, flush=True)
        tables = sections(selected, options.seconds, device)
        picture = None
        if options.only.lower() in SCALING.lower():
            tables[SCALING], picture = scaling(device)
            print(f"\n### {SCALING}\n\n{tables[SCALING]}", flush=True)
        if options.write:
            order = [*dict.fromkeys(row.section for row in rows), SCALING]
            left_out = {row.section for row in rows if row not in selected}
            whole = {section: text for section, text in tables.items() if section not in left_out}
            record(RESULTS / f"attention_{device}.md", where, whole, order)
            if picture is not None:
                picture.save(RESULTS / f"attention_{device}.png")
    if options.write:
        (RESULTS / "attention_gpu_computed.md").write_text(computed() + "\n", "utf-8")


if __name__ == "__main__":
    main()
