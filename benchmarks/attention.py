"""What does each form of attention in the course cost? Prints every ratio as a table.

Each row compares two ways to compute the same numbers, which is checked. Both run in turn in one process, in an order
that a coin decides each round; a ratio is the median of the rounds. Run it from the
repository:

    python benchmarks/attention.py                 # all rows, a quarter of an hour on one core
    python benchmarks/attention.py --only window   # the rows whose name or section holds this word
    python benchmarks/attention.py --write         # also the recorded table, results/attention_cpu.md

With both, the sections that were measured whole take the place of those recorded before.

On the CPU one thread works and its CPU time counts. Where PyTorch sees a CUDA GPU, the same command measures there as
well: time by the GPU's own clock, float32 and bfloat16, up to 16,384 positions, and each fused back end by itself.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from paired import cpu_seconds, describe_machine, take_turns
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attn_course import (
    LanguageModel,
    MultiHeadAttention,
    attention,
    fused_attention,
    make_alibi_bias,
    make_causal_mask,
    make_padding_mask,
    make_sliding_window_mask,
    sliding_window_attention,
    tiled_attention,
    weights_of_rows,
)
from attn_course.decoding import generate, without_cache

RESULTS = Path(__file__).parent / "results"
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
    faster: bool = False
    """The ratio says how many times faster ours is; otherwise how many times as long it takes."""
    repeats: int = 3
    """Calls in a round."""
    rounds: int | None = None
    """Rounds, where one takes so long that none is given away to warm up."""


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

    def row(name: str, ours: Callable, theirs: Callable, shape: tuple[int, ...] = (B, H, S, D), **more: object) -> Row:
        def make() -> tuple[Work, Work]:
            q, k, v = (draw(*shape, dtype=dtype, **on) for _ in range(3))
            return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

        return Row("The default path, forward", f"{name}, S {S}", make, 1.05, **more)

    causal = make_causal_mask(S, **on)
    padding = make_padding_mask([S, S // 2], **on)[:, None]  # (B, 1, 1, S)
    window = make_sliding_window_mask(S, S // 4, **on)
    alibi = make_alibi_bias(H, S, dtype=dtype, **on)[None]  # (1, H, S, S)
    hidden = torch.rand(S, S) < 0.7
    hidden[:, 0] = True
    hidden = hidden.to(device)

    yield row("no mask", fused_attention, SDPA)
    yield row("causal", partial(fused_attention, is_causal=True), partial(SDPA, is_causal=True))
    yield row("boolean mask (S, S)", partial(fused_attention, mask=hidden), partial(SDPA, attn_mask=hidden))
    yield row("padding mask (B, 1, 1, S)", partial(fused_attention, mask=padding), partial(SDPA, attn_mask=padding))
    yield row("window mask (S, S)", partial(fused_attention, mask=window), partial(SDPA, attn_mask=window))
    yield row("causal mask, as a tensor", partial(fused_attention, mask=causal), partial(SDPA, attn_mask=causal))
    yield row("float bias (1, H, S, S), ALiBi", partial(fused_attention, bias=alibi), partial(SDPA, attn_mask=alibi))
    lowered = torch.where(causal, alibi, -math.inf)
    yield row(
        "ALiBi and causal",
        partial(fused_attention, bias=alibi, is_causal=True),
        partial(SDPA, attn_mask=lowered),
    )

    def grouped() -> tuple[Work, Work]:
        q, (k, v) = draw(B, H, S, D, dtype=dtype, **on), (draw(B, 2, S, D, dtype=dtype, **on) for _ in range(2))
        how = {"is_causal": True, "enable_gqa": True}
        return no_grad(partial(fused_attention, **how), q, k, v), no_grad(partial(SDPA, **how), q, k, v)

    yield Row("The default path, forward", f"grouped-query, 8 heads on 2, causal, S {S}", grouped, 1.05)

    def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        four = (x.reshape(-1, x.size(-3) if x.dim() > 2 else 1, S, D) for x in (q, k, v))
        return SDPA(*four).view(q.shape)

    for shape in ((S, D), (H, S, D), (B, 2, H, S, D)):
        yield row(f"{len(shape)} axes", fused_attention, by_hand, shape)


def forward_and_backward(S: int, device: str, dtype: torch.dtype) -> Iterator[Row]:
    B, H, D = 2, 8, 64
    for name, how in (("no mask", {}), ("causal", {"is_causal": True})):
        make = partial(
            with_gradients, partial(fused_attention, **how), partial(SDPA, **how), (B, H, S, D), device, dtype
        )
        yield Row("The default path, forward and backward", f"{name}, S {S}", make, 1.05)


def quiet(S: int) -> Iterator[Row]:
    B, H, D = 2, 8, 64
    for name, how in (("no mask", {}), ("causal", {"is_causal": True})):
        for sink, what in ((0.0, "quiet softmax"), (torch.linspace(-1, 1, H), "learned sinks")):
            ours = partial(fused_attention, sink=sink, **how)
            theirs = partial(SDPA, **how)

            def make(ours: Callable = ours, theirs: Callable = theirs) -> tuple[Work, Work]:
                q, k, v = (draw(B, H, S, D) for _ in range(3))
                return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

            often = {"repeats": max(1, 2048 // S)}
            yield Row("Quiet softmax against plain SDPA", f"{what}, {name}, forward, S {S}", make, 1.05, **often)
            both = partial(with_gradients, ours, theirs, (B, H, S, D), "cpu", torch.float32)
            name_of_both = f"{what}, {name}, forward and backward, S {S}"
            yield Row("Quiet softmax against plain SDPA", name_of_both, both, 1.05, repeats=max(1, 1024 // S))


def chosen_rows(S: int) -> Iterator[Row]:
    B, H, D = 2, 8, 64

    def make() -> tuple[Work, Work]:
        q, k, v = (draw(B, H, S, D) for _ in range(3))
        rows = torch.linspace(0, S - 1, 32).long()

        def ours() -> Tensor:
            weights_of_rows(q, k, rows)
            return fused_attention(q, k, v)

        return no_grad(ours), no_grad(SDPA, q, k, v)

    yield Row("Weights on request", f"output and the weights of 32 rows, S {S}", make, 1.05)

    def layer() -> tuple[Work, Work]:
        module, x = MultiHeadAttention(H * D, H).eval(), draw(B, S, H * D)
        rows = torch.linspace(0, S - 1, 32).long()
        ours = no_grad(lambda: module(x, need_weights=rows)[0])
        return ours, no_grad(lambda: module(x)[0])

    yield Row("Weights on request", f"a layer and the weights of 32 rows, S {S}", layer, 1.05)

    def every() -> tuple[Work, Work]:
        q, k, v = (draw(B, H, S, D) for _ in range(3))
        return no_grad(lambda: attention(q, k, v)[0]), no_grad(SDPA, q, k, v)

    yield Row("Weights on request", f"output and all weights, S {S}", every, None)


def tiled(S: int) -> Iterator[Row]:
    B, H, D = 1, 8, 64
    for name, how in (("no mask", {}), ("causal", {"is_causal": True})):
        ours, theirs = partial(tiled_attention, **how), partial(SDPA, **how)

        def make(ours: Callable = ours, theirs: Callable = theirs) -> tuple[Work, Work]:
            q, k, v = (draw(B, H, S, D) for _ in range(3))
            return no_grad(ours, q, k, v), no_grad(theirs, q, k, v)

        yield Row(
            "Tiled attention in plain PyTorch",
            f"{name}, forward, S {S}",
            make,
            1.5 if S >= 512 else None,
            repeats=max(1, 2048 // S),
        )
        both = partial(with_gradients, ours, theirs, (B, H, S, D), "cpu", torch.float32)
        yield Row("Tiled attention in plain PyTorch", f"{name}, forward and backward, S {S}", both, None, repeats=1)


def window(S: int, W: int, limit: float | None, device: str, dtype: torch.dtype) -> Iterator[Row]:
    H, D = 2, 64

    def make() -> tuple[Work, Work]:
        q, k, v = (draw(1, H, S, D, device=device, dtype=dtype) for _ in range(3))
        mask = make_sliding_window_mask(S, W, device=device)
        ours = no_grad(partial(sliding_window_attention, window=W), q, k, v)
        return ours, no_grad(partial(SDPA, attn_mask=mask), q, k, v)

    yield Row("Sliding window against SDPA with a mask", f"S {S}, W {W}", make, limit, faster=True, repeats=1)


def cache(new_tokens: int, limit: float | None, rounds: int | None = None) -> Iterator[Row]:
    def make() -> tuple[Work, Work]:
        torch.manual_seed(0)
        model = LanguageModel(1000, d_model=384, num_heads=6, num_layers=6, d_ff=1536, max_len=new_tokens + 8).eval()
        prompt = torch.randint(1000, (1, 8))
        write = partial(generate, prompts=prompt, prompt_lengths=torch.tensor([8]), max_new_tokens=new_tokens)
        return partial(write, model), partial(write, without_cache(model))

    name = f"{new_tokens} new tokens, 6 layers, E 384"
    yield Row("Writing with a cache against recomputing", name, make, limit, faster=True, repeats=1, rounds=rounds)


def module(S: int) -> Iterator[Row]:
    def make() -> tuple[Work, Work]:
        ours = MultiHeadAttention(512, 8).eval()
        theirs, x = ours.to_torch().eval(), draw(2, S, 512)
        future = torch.nn.Transformer.generate_square_subsequent_mask(S)
        how = {"attn_mask": future, "is_causal": True, "need_weights": False}
        return no_grad(lambda: ours(x, is_causal=True)[0]), no_grad(lambda: theirs(x, x, x, **how)[0])

    yield Row("The layer", f"MultiHeadAttention against nn.MultiheadAttention, causal, S {S}", make, 1.05)


# ---------------------------------------------------------------- rows for a GPU only


def back_ends(S: int, dtype: torch.dtype) -> Iterator[Row]:
    """Each fused back end of SDPA, against the one that PyTorch chooses."""
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

        def make(backend: SDPBackend = backend) -> tuple[Work, Work]:
            q, k, v = (draw(2, 8, S, 64, device="cuda", dtype=dtype) for _ in range(3))

            def chosen() -> Tensor:
                with sdpa_kernel(backend):
                    return SDPA(q, k, v, is_causal=True)

            return no_grad(chosen), no_grad(partial(SDPA, is_causal=True), q, k, v)

        name = backend.name.lower().replace("_attention", "")
        yield Row("Back ends of SDPA against its own choice", f"{name}, causal, S {S}", make, None)


def rows_of(device: str) -> list[Row]:
    if device == "cpu":
        rows = [*default_path(512, "cpu", torch.float32), *default_path(1024, "cpu", torch.float32)]
        rows += forward_and_backward(512, "cpu", torch.float32)
        for S in (512, 1024, 2048):
            rows += quiet(S)
        rows += chosen_rows(1024)
        for S in (512, 1024, 2048):
            rows += tiled(S)
        rows += window(2048, 256, None, "cpu", torch.float32)
        rows += window(8192, 256, 10.0, "cpu", torch.float32)
        rows += module(512)
        return [*rows, *cache(256, 6.0, rounds=5), *cache(1024, 20.0, rounds=2)]
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for S in (1024, 4096, 16384):
            found = [*back_ends(S, dtype), *window(S, 256, None, device, dtype)]
            if S <= 4096:  # a mask for each pair of 16,384 positions is half a gigabyte a head in float32
                found += default_path(S, device, dtype)
            kind = str(dtype).removeprefix("torch.")
            rows += [row._replace(name=f"{row.name}, {kind}") for row in found]
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


def gpu_seconds(work: Work) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def check_equal(row: Row, found: object, expected: object) -> None:
    """Refuse to compare times of things that are not the same. Sinks change the numbers, so they are not compared."""
    if row.section.startswith("Quiet"):
        return
    if isinstance(found, Tensor):
        found, expected = (found,), (expected,)
    for a, b in zip(found, expected, strict=True):
        if a.is_floating_point():
            half = a.dtype in (torch.bfloat16, torch.float16)
            close = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-3, "atol": 1e-4}
            torch.testing.assert_close(a, b, **close)
        else:
            assert torch.equal(a, b), f"{row.name}: not the same tokens"


def measure(row: Row, seconds: float, device: str) -> list[float]:
    """The ratios of as many rounds as fit into the time, at least five. A first round only warms up."""
    torch.manual_seed(0)
    works = dict(zip(("ours", "theirs"), row.make(), strict=True))
    clock = cpu_seconds if device == "cpu" else gpu_seconds
    found: dict[str, object] = {}

    def timed(side: str) -> Callable[[int], float]:
        def once() -> None:
            found[side] = works[side]()

        return lambda number: sum(clock(once) for _ in range(row.repeats))

    turns = partial(take_turns, timed("ours"), timed("theirs"))
    if row.rounds is not None:
        times = turns(row.rounds)
    else:
        (first,) = turns(1)
        times = turns(max(5, min(99, round(seconds / sum(first)))), seed=1)
    check_equal(row, found["ours"], found["theirs"])
    return [b / a if row.faster else a / b for a, b in times]


def line(row: Row, ratios: list[float]) -> str:
    """One row of the table."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    word = "at least" if row.faster else "at most"
    limit = "" if row.limit is None else f"{word} {row.limit:g}"
    digits = 1 if row.faster else 2
    held = "" if row.limit is None else " ✓" if meets(row, middle) else " ✗"
    numbers = f"{middle:.{digits}f} | {low:.{digits}f} to {high:.{digits}f}"
    return f"| {row.name} | {numbers} | {len(ratios)} | {limit}{held} |"


def meets(row: Row, ratio: float) -> bool:
    if row.limit is None:
        return True
    return ratio >= row.limit if row.faster else ratio <= row.limit


def sections(rows: list[Row], seconds: float, device: str) -> dict[str, str]:
    """The table of each section; prints every line as soon as it is measured."""
    found: dict[str, str] = {}
    for row in rows:
        if row.section not in found:
            kind = "times faster" if row.faster else "time, relative"
            found[row.section] = f"| what | {kind} | quartiles | rounds | promised |\n|---|---|---|---|---|"
            print(f"\n**{row.section}**\n\n{found[row.section]}", flush=True)
        text = line(row, measure(row, seconds, device))
        print(text, flush=True)
        found[row.section] += f"\n{text}"
    return found


def record(path: Path, where: str, found: dict[str, str], order: list[str]) -> None:
    """Write the sections, in this order, beside those that are recorded already."""
    recorded = {}
    if path.is_file():
        parts = path.read_text().strip().split("\n\n**")[1:]
        recorded = dict(part.split("**\n\n", 1) for part in parts)
    tables = recorded | found
    texts = [f"**{section}**\n\n{tables[section]}" for section in order if section in tables]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join([where, *texts]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="time to spend on each row (default 5)")
    parser.add_argument("--only", default="", help="rows whose name or section holds this, in any case")
    parser.add_argument("--write", action="store_true", help="also write the table to benchmarks/results")
    options = parser.parse_args()
    if options.seconds <= 0:
        parser.error(f"--seconds ({options.seconds:g}) must be above 0")
    torch.set_num_threads(1)
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        rows = rows_of(device)
        chosen = [row for row in rows if options.only.lower() in f"{row.section} {row.name}".lower()]
        where = describe_machine() if device == "cpu" else f"{torch.cuda.get_device_name()}; {describe_machine()}"
        print(where, flush=True)
        found = sections(chosen, options.seconds, device)
        if options.write:
            order = list(dict.fromkeys(row.section for row in rows))
            left_out = {row.section for row in rows if row not in chosen}
            whole = {section: text for section, text in found.items() if section not in left_out}
            record(RESULTS / f"attention_{device}.md", where, whole, order)


if __name__ == "__main__":
    main()
