"""What smaller caches cost in loss on SmolLM2-135M beyond real_model.py: groups of bits, one head, a window read anew.

`python benchmarks/smaller_caches.py` measures and prints the results as JSON; `--write` stores them in
benchmarks/results/smaller_caches.json. The texts and the counted tokens are those of real_model.py.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from real_model import FIRST, NUM_TOKENS, loss_with, read_texts, window_cache
from torch import Tensor

from attn_course import DecoderCache, KeyValueCache
from attn_course.caching.quantized import dequantize_rows, quantize_rows
from attn_course.pretrained import Llama, load_smollm2

RESULTS = Path(__file__).parent / "results" / "smaller_caches.json"
GROUP, WINDOW, EVERY = 32, 256, 8  # the window is read anew for every eighth token


def rounded(x: Tensor, bits: int, axis: int) -> Tensor:
    """Round to this many bits, in groups along an axis."""
    groups = x.transpose(axis, -1).unflatten(-1, (-1, GROUP))
    return dequantize_rows(*quantize_rows(groups, bits), bits).flatten(-2).transpose(axis, -1)


class GroupedCache(KeyValueCache):
    """A cache with keys rounded by channel and values rounded by token."""

    bits = 16

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return super().append(rounded(k, self.bits, -2), rounded(v, self.bits, -1))


def grouped_cache(model: Llama, bits: int) -> DecoderCache:
    layers = []
    for layer in model.layers:
        attention = layer.self_attention
        cache = GroupedCache(1, attention.num_kv_heads, NUM_TOKENS, attention.head_dim)
        cache.bits = bits
        layers.append(cache)
    return DecoderCache(layers)


def with_one_head(model: Llama, ids: Tensor) -> float:
    """Return the loss if all query heads share the mean of the key-value heads."""
    originals = {name: p.data for name, p in model.named_parameters() if "k_proj" in name or "v_proj" in name}
    heads = model.layers[0].self_attention.num_kv_heads
    for name, p in model.named_parameters():
        if name in originals:
            p.data = originals[name].unflatten(0, (heads, -1)).mean(0).repeat(heads, 1)
    loss = loss_with(model, ids, None)
    for name, p in model.named_parameters():
        p.data = originals.get(name, p.data)
    return loss


def read_anew(model: Llama, ids: Tensor) -> dict[str, float]:
    """Return mean losses of every eighth token: of the newest tokens alone, read from scratch, and of two caches."""
    places = torch.arange(FIRST, NUM_TOKENS, EVERY)
    scores = []
    for part in places.split(16):
        windows = torch.stack([ids[p - WINDOW : p] for p in part.tolist()])
        last = model.read(windows).hidden[-1][:, -1]
        scores.append(model.to_logits(last))
    logits = {"read anew": torch.cat(scores)}
    for name, cache in {"all keys": None, "window 255, first 1": window_cache(model, WINDOW - 1, 1)}.items():
        logits[name] = model(ids[None], cache=cache)[0, places - 1]
    return {name: F.cross_entropy(x, ids[places]).item() for name, x in logits.items()}


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"store the results in {RESULTS.name}")
    options = parser.parse_args()
    model, tokenizer = load_smollm2()
    losses: dict[str, dict[str, float]] = {}
    anew: dict[str, dict[str, float]] = {}
    for text, words in read_texts(tokenizer).items():
        ids = torch.tensor(tokenizer.encode(words))
        row = {"all keys": loss_with(model, ids, None), "one head": with_one_head(model, ids)}
        for bits in (4, 3, 2):
            row[f"keys by channel, values by token, {bits} bits"] = loss_with(model, ids, grouped_cache(model, bits))
        losses[text] = {name: round(loss, 4) for name, loss in row.items()}
        anew[text] = {name: round(loss, 3) for name, loss in read_anew(model, ids).items()}
    results: dict[str, Any] = {"losses": losses, "every eighth token": anew}
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    print(text)
    if options.write:
        RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
