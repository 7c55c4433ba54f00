"""Chapter 18: what a smaller cache stores, and the numbers that the text takes from recorded runs."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, markdown_cells, solution

from attn_course import LanguageModel, RollingCache, attention
from attn_course.caching.quantized import dequantize_rows, quantize_rows

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
CLOSE = {"rtol": 0.0, "atol": 1e-11}  # float64
ALL, CHAPTERS = "all keys", ("chapter 5", "chapter 9", "chapter 12")


@pytest.fixture(scope="module")
def chapter():
    return definitions(18, constants=("models",))


@pytest.fixture(scope="module")
def text():
    return "\n\n".join(cell.source for cell in markdown_cells(18))


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(text, heading):
    """The cells of the table below this heading, by the first cell of each row."""
    table = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {first: rest for first, *rest in cells}


# -- Recorded runs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def losses():
    return json.loads((RESULTS / "real_model.json").read_text("utf-8"))["loss"]["losses"]


@pytest.fixture(scope="module")
def smaller():
    return json.loads((RESULTS / "smaller_caches.json").read_text("utf-8"))


def test_the_table_of_windows_is_the_recorded_run(text, losses):
    table = rows(text, "| visible tokens |")
    names = {
        "all": ALL,
        "newest 256": "window 256, first 0",
        "newest 255 and the first": "window 255, first 1",
        "newest 252 and tokens 10 to 13": "window 252, tokens 10 to 13",
    }
    assert table == {row: [f"{losses[name][c]:.2f}" for c in CHAPTERS] for row, name in names.items()}


def test_the_added_losses_are_those_of_the_recorded_runs(text, losses, smaller):
    def added(name, c):
        table = {row: found[c] for row, found in losses.items()} if name in losses else smaller["losses"][c]
        return table[name] - table[ALL]

    def range_of(name):
        found = [added(name, c) for c in CHAPTERS]
        low, high = (f"{abs(x):.2f}" for x in (max(0.0, min(found)), max(found)))
        return low if low == high else f"{low} to {high}"

    table = {row: cells[-1] for row, cells in rows(text, "| what is stored |").items()}
    assert table == {
        "all tokens, 16 bits": "0",
        "8 bits": range_of("keys 8 bits, values 8 bits"),
        "4 bits, by token": range_of("keys 4 bits, values 4 bits"),
        "4 bits, keys by channel": range_of("keys by channel, values by token, 4 bits"),
        "2 bits, keys by channel": range_of("keys by channel, values by token, 2 bits"),
        "newest 255 tokens and the first": range_of("window 255, first 1"),
        "newest 256 tokens": range_of("window 256, first 0"),
    }
    three = range_of("keys by channel, values by token, 3 bits")
    assert f"{table['4 bits, keys by channel']} with four bits, {three} with three" in text


def test_a_window_that_is_read_anew_is_as_good_as_one_with_the_first_token(text, smaller):
    bound = float(re.search(r"Its loss is the same, within (0\.\d+)\.", text)[1])
    for row in smaller["every eighth token"].values():
        assert abs(row["read anew"] - row["window 255, first 1"]) < bound
        assert row["read anew"] > row[ALL] + bound


# -- Bytes -------------------------------------------------------------------------------------------


def test_the_sizes_in_the_text_follow_from_the_formula(text):
    token = 2 * 30 * 3 * 64 * 2
    assert f"{token:,} bytes, or {token / 1024} KiB" in text
    per_token = {  # bytes with minimum and step of each group
        "all tokens, 16 bits": token,
        "8 bits": 11520 + 180 * 8,  # 64 numbers share two of float32
        "4 bits, by token": 11520 // 2 + 180 * 8,
        "4 bits, keys by channel": 11520 * 5 // 8,  # 32 numbers share two of 16 bits
        "2 bits, keys by channel": 11520 * 3 // 8,
    }
    table = rows(text, "| what is stored |")
    for row, size in per_token.items():
        assert [float(cell) for cell in table[row][:2]] == [round(size / 1024, 1), round(8 * size / 1024)]
    assert table["newest 256 tokens"][:2] == [str(round(token / 4096, 1))] * 2


def test_the_table_of_models_counts_what_the_exercise_counts(chapter):
    cache_bytes = solution(18, 3)["cache_bytes"]
    numbers, windows, _ = chapter["models"]["Llama 3.1 8B, 2024"]
    assert 2 * numbers * len(windows) == cache_bytes(32, 32, 8, 128, 1)
    numbers, windows, longest = chapter["models"]["gpt-oss-120b, 2025"]
    assert sum(2 * numbers * min(longest, W or longest) for W in windows) / 2**30 == pytest.approx(4.5, abs=0.01)
    numbers, windows, _ = chapter["models"]["Mistral Small 4, 2026"]
    assert 2 * numbers * len(windows) == 23040


def test_the_answer_of_the_exercise_without_code_follows_from_the_formula(text):
    contract = 2 * 32 * 8 * 128 * 60_000  # numbers
    for bits in (16, 9, 5):
        assert f"{contract * bits / 8 / 1e9:.1f} GB" in text


# -- Shared heads and latents ------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "G"), [(6, 3), (6, 2), (5, 1), (3, 3)])
def test_groups_are_repeated_side_by_side(chapter, H, G):
    q, k, v = random(2, H, 5, 8), random(2, G, 7, 8, seed=1), random(2, G, 7, 8, seed=2)
    grouped = chapter["attend_in_groups"](q, k, v)
    torch.testing.assert_close(grouped, F.scaled_dot_product_attention(q, k, v, enable_gqa=True), **CLOSE)
    for h in range(H):
        g = h // (H // G)
        torch.testing.assert_close(grouped[:, h], attention(q[:, h], k[:, g], v[:, g])[0], **CLOSE)


def test_squeezing_takes_the_mean_of_a_groups_heads(chapter):
    more = {"number": range(13), "device": torch.device("cpu"), "LanguageModel": LanguageModel}
    chapter["new_model"].__globals__.update(more)
    torch.manual_seed(0)
    model = chapter["new_model"](num_kv_heads=4)
    ids = torch.arange(12)[None] % 13
    torch.testing.assert_close(chapter["squeeze"](model, 4)(ids), model(ids), **CLOSE)
    k = model.layers[0].self_attention.k_proj.weight
    expected = torch.stack([(k[0:16] + k[16:32]) / 2, (k[32:48] + k[48:64]) / 2]).flatten(0, 1)
    squeezed = chapter["squeeze"](model, 2).layers[0].self_attention.k_proj.weight
    torch.testing.assert_close(squeezed, expected, **CLOSE)


def test_the_factors_of_latent_attention_follow_from_the_sizes_of_deepseek_v2(text):
    S, D, rotated, C, H = 8192, 128, 64, 512, 128
    cached = S * (D + rotated + D)  # multiplications of a head
    absorbed, expanded = S * (C + rotated + C) + C * 2 * D, cached + S * C * 2 * D
    assert f"an absorbed step needs {absorbed / cached:.1f} times the multiplications" in text
    assert f"(an expanded one, {expanded / cached:.0f} times)" in text
    assert f"so its bytes get {2 * H * (C + rotated + C) / (2 * (C + rotated)):.0f}." in text
    numbers = H * (D + rotated + D)
    assert f"would be {numbers:,} numbers, {numbers / (C + rotated):.0f} times as many" in text


# -- Bits and windows --------------------------------------------------------------------------------


def test_rounding_by_channel_groups_the_tokens_and_by_token_the_channels(chapter):
    x = random(1, 2, 64, 32).float()
    by_channel, by_token = chapter["rounded"](x, -2), chapter["rounded"](x, -1)
    for rounded, group, before in ((by_channel, (0, 1, slice(32, 64), 5), x), (by_token, (0, 1, 40), x)):
        expected = dequantize_rows(*quantize_rows(before[group], 2), 2)
        torch.testing.assert_close(rounded[group], expected)
        assert len(rounded[group].unique()) <= 4


def test_the_change_of_a_cache_touches_the_first_token_alone(chapter):
    cache = RollingCache(window=4, num_sink_tokens=1)
    k, v = random(2, 1, 3, 9, 8)
    cache.append(k, v)
    chapter["of_first_token"](torch.zeros_like)(cache)
    near_k, near_v = cache.append(k[:, :, :1], v[:, :, :1])
    assert near_v[:, :, 0].eq(0).all()
    torch.testing.assert_close(near_v[:, :, 1:4], v[:, :, -3:])
    torch.testing.assert_close(near_k[:, :, 0], k[:, :, 0])
