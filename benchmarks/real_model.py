"""What each saving costs in loss on SmolLM2-135M, how fast it writes, and how often a looked-up guess is right.

`python benchmarks/real_model.py` measures everything and prints it as JSON; `--write` stores it in
benchmarks/results/real_model.json, `--only loss` (or guesses, speed, heads) measures one part and keeps the others.

The loss is the mean negative log-probability of a token in nats. The texts are three chapters of this course, which the
model cannot know, because they were written after it; the part that is read is stored with the results. Each text has
1,024 tokens, and the mean is over the tokens from 300 on, so that a window of 256 is full.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from shared import describe_machine
from torch import Tensor

from attn_course import DecoderCache, KeyValueCache, QuantizedCache, RollingCache
from attn_course.decoding import generate
from attn_course.pretrained import ChatTokenizer, Llama, load_smollm2

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "real_model.json"
TEXTS = Path(__file__).parent / "results" / "real_model_texts.json"
NUM_TOKENS, FIRST = 1024, 300
WINDOWS = [(256, 0), (252, 4), (255, 1), (64, 0), (60, 4), (63, 1)]
BITS = [(8, 8), (4, 4), (3, 3), (2, 2), (2, 16), (16, 2), (3, 16), (16, 3)]
LENGTHS = (64, 256, 1024)
PROMPTS = {
    "edit": "Correct the spelling and repeat the text: The trane leaves the station at nine in the morning, and it "
    "arives in the city at ten. On the trane there is a small cafe, where you can buy coffee and bread.",
    "summary": "Summarize: The cache of a language model stores the keys and the values of all tokens that it has "
    "read. Without the cache, the model would compute the keys and the values of all tokens again for each new token.",
    "story": "Write a short story about a lighthouse keeper and a storm.",
    "code": "Write a Python class for a bank account with methods to deposit, to withdraw and to print the balance.",
}


# -- Loss --------------------------------------------------------------------------------------------


def loss_with(model: Llama, ids: Tensor, cache: DecoderCache | None) -> float:
    """Return the mean loss of the tokens from FIRST on, read in one call with this cache."""
    logits = model(ids[None], cache=cache)[0]
    return F.cross_entropy(logits[FIRST - 1 : -1], ids[FIRST:]).item()


def window_cache(model: Llama, window: int, sinks: int) -> DecoderCache:
    return DecoderCache([RollingCache(window, num_sink_tokens=sinks) for _ in model.layers])


class WindowAndTokens(KeyValueCache):
    """A window, and four tokens that stay visible: the first ones, or others as a control."""

    window, tokens = 252, range(4)

    def visible_mask(self, num_queries: int, *, device: torch.device | str | None = None) -> Tensor:
        places = torch.arange(num_queries, device=device)
        distance = places[:, None] - places
        visible = (distance < self.window) & (distance >= 0)
        visible[:, list(self.tokens)] |= distance[:, list(self.tokens)] >= 0
        return visible


def tokens_cache(model: Llama, tokens: range) -> DecoderCache:
    layers = [layer.self_attention.make_cache(1, NUM_TOKENS) for layer in model.layers]
    caches = [WindowAndTokens(1, layer._buffers[0].size(1), NUM_TOKENS, layer._buffers[0].size(-1)) for layer in layers]
    for cache in caches:
        cache.tokens = tokens
    return DecoderCache(caches)


class PartlyExact(QuantizedCache):
    """A quantised cache that leaves keys or values as they are where they have 16 bits, and some first tokens."""

    exact, first = (False, False), 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        rounded = super().append(k, v)
        for x, r in zip((k, v), rounded, strict=True):
            r[:, :, : self.first] = x[:, :, : self.first]  # everything is read in one call
        return tuple(x if exact else r for x, r, exact in zip((k, v), rounded, self.exact, strict=True))


def bits_cache(model: Llama, key_bits: int, value_bits: int, max_len: int, first: int = 0) -> DecoderCache:
    layers = []
    for layer in model.layers:
        attention = layer.self_attention
        head_dim = attention.k_proj.out_features // attention.num_kv_heads
        bits = {"key_bits": min(key_bits, 8), "value_bits": min(value_bits, 8)}
        cache = PartlyExact(1, attention.num_kv_heads, max_len, head_dim, **bits)
        cache.exact, cache.first = (key_bits == 16, value_bits == 16), first
        layers.append(cache)
    return DecoderCache(layers)


def measure_loss(model: Llama, tokenizer: ChatTokenizer) -> dict[str, Any]:
    texts = {name: torch.tensor(tokenizer.encode(text)) for name, text in read_texts(tokenizer).items()}
    caches: dict[str, Callable[[], DecoderCache | None]] = {"all keys": lambda: None}
    for window, sinks in WINDOWS:
        caches[f"window {window}, first {sinks}"] = lambda w=window, s=sinks: window_cache(model, w, s)
    for start in (0, 10, 100):
        name = f"window 252, tokens {start} to {start + 3}"
        caches[name] = lambda start=start: tokens_cache(model, range(start, start + 4))
    for bits in (4, 3, 2):
        name = f"keys {bits} bits, values {bits} bits, first 4 tokens exact"
        caches[name] = lambda bits=bits: bits_cache(model, bits, bits, NUM_TOKENS, first=4)
    for key_bits, value_bits in BITS:
        name = f"keys {key_bits} bits, values {value_bits} bits"
        caches[name] = lambda k=key_bits, v=value_bits: bits_cache(model, k, v, NUM_TOKENS)
    losses = {
        name: {text: round(loss_with(model, ids, make()), 4) for text, ids in texts.items()}
        for name, make in caches.items()
    }
    return {"tokens": NUM_TOKENS, "first counted": FIRST, "losses": losses}


def read_texts(tokenizer: ChatTokenizer) -> dict[str, str]:
    """Return the stored beginnings of three chapters; take them from the chapters if none are stored."""
    if not TEXTS.is_file():
        texts = {}
        for number in ("05", "09", "12"):
            (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
            cells = json.loads(path.read_text("utf-8"))["cells"]
            whole = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
            texts[f"chapter {int(number)}"] = tokenizer.decode(tokenizer.encode(whole)[:NUM_TOKENS])
        TEXTS.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return json.loads(TEXTS.read_text("utf-8"))


# -- Guesses -----------------------------------------------------------------------------------------


def look_up(ids: list[int], num_guesses: int, ngram: int = 2) -> list[int]:
    """Guess that the text goes on as it did after the last earlier occurrence of its last tokens (prompt lookup)."""
    end = ids[-ngram:]
    for start in range(len(ids) - ngram - 1, -1, -1):
        if ids[start : start + ngram] == end:
            return ids[start + ngram : start + ngram + num_guesses]
    return []


def count_guesses(prompt: list[int], output: list[int], num_guesses: int) -> dict[str, float]:
    """Return how many guesses are right, and how many calls write the text. A greedy model accepts a right guess."""
    ids, position, calls, guessed, accepted = list(prompt), 0, 0, 0, 0
    while position < len(output):
        guesses = look_up(ids, num_guesses)
        right = 0
        while right < len(guesses) and position + right < len(output) and guesses[right] == output[position + right]:
            right += 1
        calls, guessed, accepted = calls + 1, guessed + len(guesses), accepted + right
        new = output[position : position + right + 1]  # the call also writes the token after the last right guess
        ids += new
        position += len(new)
    return {
        "guessed": guessed,
        "accepted": accepted,
        "calls": calls,
        "tokens": len(output),
        "tokens per call": round(len(output) / calls, 2),
    }


def measure_guesses(model: Llama, tokenizer: ChatTokenizer) -> dict[str, Any]:
    results = {}
    for name, text in PROMPTS.items():
        prompt = tokenizer.encode_chat([{"role": "user", "content": text}])
        options = {"max_new_tokens": 128, "eos_id": tokenizer.eos_id}
        output = generate(model, torch.tensor([prompt]), **options)[0].tolist()
        results[name] = {"written": tokenizer.decode(output)} | {
            f"{k} guesses": count_guesses(prompt, output, k) for k in (1, 4, 8)
        }
    return results


# -- Speed -------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_machine() -> dict[str, float]:
    """Return the two numbers of the roofline: operations and bytes per second, as a matrix product reaches them."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    matrices = [torch.randn(2048, 2048) for _ in range(16)]  # 268 MB, more than any cache
    x = torch.randn(2048)
    for _ in range(3):
        a @ b
    product = seconds(lambda: a @ b, 15)
    fetch = seconds(lambda: [matrix @ x for matrix in matrices], 9)
    num_bytes = sum(matrix.nbytes for matrix in matrices)
    return {"GFLOP/s": round(2 * 1024**3 / product / 1e9, 1), "GB/s": round(num_bytes / fetch / 1e9, 2)}


def measure_speed(model: Llama, tokenizer: ChatTokenizer) -> dict[str, Any]:
    ids = torch.tensor([tokenizer.encode(next(iter(read_texts(tokenizer).values())))])
    machine = measure_machine()
    num_bytes = sum(p.nbytes for p in model.parameters())
    rows = {}
    for length in LENGTHS:
        part = ids[:, :length]
        cache = model.make_cache(1, length + 1)
        model(part[:, :-1], cache=cache)

        def step(part: Tensor = part, cache: DecoderCache = cache, length: int = length) -> None:
            cache.truncate(length - 1)
            model(part[:, -1:], cache=cache)

        rounds = 5 if length == max(LENGTHS) else 11
        with_cache, without = seconds(step, 15), seconds(lambda part=part: model(part), rounds)
        rows[length] = {
            "with a cache": round(with_cache, 4),
            "without": round(without, 4),
            "ratio": round(without / with_cache, 1),
            "prefill, tokens per second": round(length / without, 1),
        }
    step_64 = rows[LENGTHS[0]]["with a cache"]
    return {
        "machine": describe_machine(),
        "roofline": machine,
        "bytes of the weights": num_bytes,
        "seconds of a step, predicted from the bytes": round(num_bytes / machine["GB/s"] / 1e9, 4),
        "seconds of a step, measured at 64 tokens": step_64,
        "seconds of a token": rows,
    }


# -- Heads -------------------------------------------------------------------------------------------


def measure_heads(model: Llama, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """Return how much each layer gives to the first token, and the heads that look back one token or find a copy."""
    shares = []
    for text in read_texts(tokenizer).values():
        weights = model.read(torch.tensor([tokenizer.encode(text)[:256]]), need_weights=True).weights[:, 0]
        first = weights[:, :, 16:, 0].mean(-1)
        previous = weights.diagonal(-1, 2, 3)[..., 16:].mean(-1)
        shares.append(torch.stack([first, previous]))
    first, previous = torch.stack(shares).mean(0)
    induction = []
    for seed in range(3):
        half = torch.randint(17, 49152, (30,), generator=torch.Generator().manual_seed(seed))
        weights = model.read(torch.cat([half, half])[None], need_weights=True).weights[:, 0]
        induction.append(weights.diagonal(-29, 2, 3)[..., 1:].mean(-1))
    return {
        "first token, by layer": [round(x, 2) for x in first.mean(1).tolist()],
        "first token": best(first),
        "previous token": best(previous),
        "induction": best(torch.stack(induction).mean(0)),
    }


def best(scores: Tensor) -> list[list[float]]:
    values, places = scores.flatten().topk(6)
    H = scores.size(1)
    return [[p // H, p % H, round(v, 2)] for v, p in zip(values.tolist(), places.tolist(), strict=True)]


# -- Breaks ------------------------------------------------------------------------------------------

QUESTION = "What is the capital of France? Answer in one sentence."
SHORT_TEXT = (
    "A cache stores the keys and values of all earlier tokens, so that a model reads each token only once. Without it, "
    "every new token would cost more than the last."
)


def measure_breaks(model: Llama, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """Set one matrix of one block to zero, for each block, and see whether the answer and the loss change."""
    prompt = tokenizer.encode_chat([{"role": "user", "content": QUESTION}])
    answer = generate(model, torch.tensor([prompt]), max_new_tokens=20, eos_id=tokenizer.eos_id)[0].tolist()
    whole, text = torch.tensor([prompt + answer]), torch.tensor([tokenizer.encode(SHORT_TEXT)])

    def same_answer() -> bool:  # each token is the most probable one after those before it: greedy search writes it
        return model(whole)[0, len(prompt) - 1 : -1].argmax(-1).tolist() == answer

    def loss() -> float:
        return F.cross_entropy(model(text)[0, :-1], text[0, 1:]).item()

    assert same_answer()
    before, same, lower = loss(), [], []
    for i, layer in enumerate(model.layers):
        weight = layer.feed_forward.down.weight
        original = weight.clone()
        weight.zero_()
        same += [i] * same_answer()
        lower += [i] * (loss() < before)
        weight.copy_(original)
    return {"answer": tokenizer.decode(answer), "same answer, blocks": same, "lower loss, blocks": lower}


PARTS = {
    "breaks": measure_breaks,
    "loss": measure_loss,
    "guesses": measure_guesses,
    "speed": measure_speed,
    "heads": measure_heads,
}


def tables(results: dict[str, Any]) -> str:
    """Return the speeds and the losses as tables in Markdown."""
    speed, losses = results["speed"], results["loss"]["losses"]
    weights, bytes_per_second = speed["bytes of the weights"], 1e9 * speed["roofline"]["GB/s"]
    texts = list(losses["all keys"])
    lines = [
        speed["machine"],
        "",
        "| step with a cache | milliseconds |",
        "|:---|---:|",
        f"| predicted: {weights / 1e6:.0f} MB at {bytes_per_second / 1e9:.1f} GB/s "
        f"| {1e3 * weights / bytes_per_second:.0f} |",
        *(
            f"| measured, with {int(length):,} tokens ({row['ratio']:.1f} times as fast as without a cache) "
            f"| {1e3 * row['with a cache']:.0f} |"
            for length, row in speed["seconds of a token"].items()
        ),
        "",
        f"| cache | {' | '.join(texts)} |",
        "|:---|" + "---:|" * len(texts),
        *(f"| {name} | {' | '.join(f'{row[text]:.2f}' for text in texts)} |" for name, row in losses.items()),
    ]
    return "\n".join([*lines, ""])


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"store the results in {RESULTS.name}")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part, and keep the others")
    options = parser.parse_args()
    model, tokenizer = load_smollm2()
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    for name in options.only or PARTS:
        results[name] = PARTS[name](model, tokenizer)
    assert all(math.isfinite(x) for row in results.get("loss", {"losses": {}})["losses"].values() for x in row.values())
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    print(text)
    if options.write:
        RESULTS.write_text(text, "utf-8")
        RESULTS.with_suffix(".md").write_text(tables(results), "utf-8")


if __name__ == "__main__":
    main()
