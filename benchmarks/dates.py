"""Train the two networks of chapter 1 until more training no longer helps, at two widths, and record what they can do.

    python benchmarks/dates.py            # print the table of the recorded runs
    python benchmarks/dates.py --write    # train again, and write data/dates_runs.json

The chapter draws this record, and tests/data/test_dates.py compares it with what the chapter says.

Every run is a whole training, whose learning rate rises and falls within its steps. We double the steps until the
next doubling cannot gain a point of exact match on 2,000 other texts of at most 26 characters (mean over the seeds),
until it gains less than a point, or until a limit. A seed draws the texts, the parameters and the batches. All seeds
are trained at once, as copies of one network with one more axis; tests/chapters/test_chapter_01.py compares this with
the chapter's own loop. It takes two processes about a quarter of an hour.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "src" / "attn_course" / "data" / "dates_runs.json"

sys.path.append(str(ROOT / "scripts"))  # read_chapters.py reads the notebooks
from read_chapters import definitions  # noqa: E402

from attn_course import AttendingTranslator, RecurrentTranslator  # noqa: E402
from attn_course.data.dates import load_runs  # noqa: E402

KINDS = {"one vector": RecurrentTranslator, "attention": AttendingTranslator}
SETTINGS = [("one vector", 16), ("one vector", 64), ("attention", 64), ("attention", 16)]  # the slowest first
SEEDS = (0, 1, 2)
FIRST = 500
LIMITS = {"one vector": 8_000, "attention": 4_000}
GAIN = 0.01


class Copies:
    """Several networks of one class as one: every tensor has the copies as its first axis C."""

    def __init__(self, models: list[nn.Module]):
        self.models = models
        states = [dict(model.named_parameters()) for model in models]
        self.p = {name: torch.stack([one[name].detach() for one in states]).requires_grad_() for name in states[0]}

    def parameters(self) -> list[Tensor]:
        return list(self.p.values())

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the parameters back into the networks."""
        for c, model in enumerate(self.models):
            for name, parameter in model.named_parameters():
                parameter.copy_(self.p[name][c])

    def linear(self, x: Tensor, name: str) -> Tensor:
        """Apply each copy's matrix ``name`` to (C, B, D)."""
        weight, bias = self.p[f"{name}.weight"], self.p.get(f"{name}.bias")
        return x @ weight.mT if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

    def lookup(self, ids: Tensor, table: Tensor) -> Tensor:
        """Look up ids (C, ...) in one table (C, V, D) for each copy."""
        starts = torch.arange(len(table)).view(-1, *[1] * (ids.dim() - 1)) * table.size(1)
        return F.embedding(ids + starts, table.flatten(0, 1))

    def encode(self, src: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states (C, B, S, E), the summaries (C, B, E) and the mask (C, B, S)."""
        positions = torch.arange(src.size(-1))
        mask = positions < lengths[..., None]  # (C, B, S)
        backward = (lengths[..., None] - 1 - positions).clamp(min=0)  # the last character first
        gates, weights, biases = [], [], []
        for ids, end in ((src, ""), (src.gather(-1, backward), "_reverse")):
            matrix, bias = (self.p[f"encoder.{part}_ih_l0{end}"] for part in ("weight", "bias"))
            table = torch.baddbmm(bias[:, None], self.p["src_embed.weight"], matrix.mT)  # (C, V, 3 H)
            gates.append(self.lookup(ids, table))
            weights.append(self.p[f"encoder.weight_hh_l0{end}"])
            biases.append(self.p[f"encoder.bias_hh_l0{end}"])
        gates, weight, bias = (torch.cat(parts) for parts in (gates, weights, biases))  # (2 C, ...)
        real = torch.cat([mask, mask])[..., None].unbind(2)  # S times (2 C, B, 1)
        state, states = torch.zeros(len(weight), src.size(1), weight.size(-1)), []
        for gate, is_real in zip(gates.unbind(2), real, strict=True):
            state = torch.where(is_real, gru_step(gate, state, weight, bias), state)
            states.append(state)
        forth, back = torch.stack(states, dim=2).chunk(2)  # each (C, B, S, H)
        back = back.gather(2, backward[..., None].expand_as(back))
        summary = torch.cat(state.chunk(2), dim=-1)
        return torch.cat([forth, back], dim=-1), summary, mask

    def __call__(self, src: Tensor, lengths: Tensor, read: Tensor) -> Tensor:
        """Return the logits (C, B, T, V)."""
        states, summary, mask = self.encode(src, lengths)
        attends = "score_weight" in self.p
        if attends:
            keys = self.linear(states.flatten(1, 2), "key_proj").view(*mask.shape, -1)  # (C, B, S, D)
            score_weight = self.p["score_weight"][..., None]  # (C, D, 1)
        width = self.p["tgt_embed.weight"].size(-1)
        matrix = self.p["decoder.weight_ih"]
        for_token, for_context = matrix[..., :width].mT, matrix[..., width:].mT
        table = torch.baddbmm(self.p["decoder.bias_ih"][:, None], self.p["tgt_embed.weight"], for_token)
        gates = self.lookup(read, table).unbind(2)
        state, from_context, outputs = torch.tanh(self.linear(summary, "start")), summary @ for_context, []
        for gate in gates:
            if attends:
                pairs = torch.tanh(self.linear(state, "query_proj")[:, :, None] + keys)
                scores = torch.bmm(pairs.flatten(1, 2), score_weight).view(mask.shape)
                weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
                from_context = (weights[..., None, :] @ states)[..., 0, :] @ for_context
            state = gru_step(gate + from_context, state, self.p["decoder.weight_hh"], self.p["decoder.bias_hh"])
            outputs.append(state)
        outputs = torch.stack(outputs, dim=2)  # (C, B, T, E)
        return self.linear(outputs.flatten(1, 2), "to_logits").view(*read.shape, -1)


def gru_step(gate: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute one step of section 1.10; ``gate`` (C, B, 3 H) is what comes from the token."""
    width = state.size(-1)
    old = torch.baddbmm(bias[:, None], state, weight.mT)
    r, z = torch.sigmoid(gate[..., : 2 * width] + old[..., : 2 * width]).chunk(2, dim=-1)
    n = torch.tanh(gate[..., 2 * width :] + r * old[..., 2 * width :])
    return torch.lerp(n, state, z)


def train(
    models: list[nn.Module], batches: list[tuple], steps: int, seeds: Sequence[int], top_rate: float = 0.01
) -> None:
    """Do for every network what the chapter's `train` does, with the data that its `to_batch` returns."""
    copies = Copies(models)
    parameters = copies.parameters()
    optimizer = torch.optim.Adam(parameters, fused=True)
    schedule = OneCycleLR(optimizer, top_rate, total_steps=steps)
    rngs = [torch.Generator().manual_seed(seed) for seed in seeds]
    widest = max(src.size(1) for src, *_ in batches)
    padded = [F.pad(src, (0, widest - src.size(1))) for src, *_ in batches]
    for _ in range(steps):
        firsts = [int(torch.randint(len(src) - 63, (), generator=rng)) for src, rng in zip(padded, rngs, strict=True)]
        rows = [slice(first, first + 64) for first in firsts]
        src = torch.stack([ids[row] for ids, row in zip(padded, rows, strict=True)])
        lengths, read, write = (
            torch.stack([batch[part][row] for batch, row in zip(batches, rows, strict=True)]) for part in (1, 2, 3)
        )
        logits = copies(src[..., : int(lengths.max())], lengths, read)
        losses = F.cross_entropy(logits.flatten(0, 2), write.flatten(), reduction="none")
        optimizer.zero_grad()
        losses.view(len(models), -1).mean(dim=1).sum().backward()
        norms = torch.stack([p.grad.flatten(1).square().sum(dim=1) for p in parameters]).sum(dim=0).sqrt()  # (C,)
        factors = (1 / (norms + 1e-6)).clamp(max=1)
        for p in parameters:
            p.grad *= factors.view(-1, *[1] * (p.dim() - 1))
        optimizer.step()
        schedule.step()
    copies.write_back()


def draw_texts(chapter: dict[str, Any], seed: int) -> tuple[list, list, list]:
    """Return the training texts, the dev texts and the test texts, which are groups by length. None occurs twice."""
    rng = torch.Generator().manual_seed(seed)
    pairs = chapter["make_pairs"](10_000, rng, max_len=26)
    pairs.sort(key=lambda pair: len(pair[0]))
    tests = chapter["draw_tests"](pairs, rng)
    used = {pair for group in (pairs, *tests) for pair in group}
    dev = [pair for pair in chapter["make_pairs"](2500, rng, max_len=26) if pair not in used]
    return pairs, dev[:2000], tests


def build(chapter: dict[str, Any], name: str, states: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return KINDS[name](len(chapter["src_chars"]), len(chapter["tgt_chars"]), d_model=states)


def double_until_flat(setting: tuple[str, int]) -> list[dict[str, Any]]:
    """Train one network with more and more steps, until a doubling cannot or does not gain GAIN on the dev texts."""
    torch.set_num_threads(1)
    name, states = setting
    chapter = definitions("01", constants=("src_chars", "tgt_chars", "RANGES", "GREEDY"))
    texts = [draw_texts(chapter, seed) for seed in SEEDS]
    batches = [chapter["to_batch"](pairs) for pairs, _, _ in texts]
    runs, steps, before = [], FIRST, -1.0
    while steps <= LIMITS[name]:
        models = [build(chapter, name, states, seed) for seed in SEEDS]
        train(models, batches, steps, SEEDS)
        shares = []
        for seed, model, (_, dev, tests) in zip(SEEDS, models, texts, strict=True):
            dev_share, *exact = (round(chapter["exact_share"](model, group), 4) for group in (dev, *tests))
            run = {"name": name, "states": states, "steps": steps, "seed": seed, "dev": dev_share, "exact": exact}
            print(json.dumps(run), flush=True)
            runs.append(run)
            shares.append(dev_share)
        share = statistics.mean(shares)
        if share > 1 - GAIN or (before > 0.1 and share < before + GAIN):  # below 0.1, learning has not begun
            break
        steps, before = 2 * steps, share
    return runs


def table(runs: list[dict[str, Any]]) -> str:
    """Return one line for each network and number of steps: the means over the seeds, and their lowest and highest."""

    def spread(values: list[float]) -> str:
        return f"{statistics.mean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"

    lines = ["| network | numbers | steps | dev | shortest texts | longest texts |", "|---|---|---|---|---|---|"]
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["name"], run["states"], run["steps"]), []).append(run)
    for (name, states, steps), group in groups.items():
        parts = [[run["dev"] for run in group], *([run["exact"][i] for run in group] for i in (0, -1))]
        lines.append(f"| {name} | {states} | {steps:,} | {' | '.join(map(spread, parts))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="train again, and write the record")
    if parser.parse_args().write:
        ranges = definitions("01", constants=("RANGES",))["RANGES"]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            runs = [run for setting in pool.map(double_until_flat, SETTINGS, chunksize=1) for run in setting]
        runs.sort(key=lambda run: (-run["states"], run["name"] == "attention"))  # stable: steps and seeds stay in order
        lines = ",\n  ".join(map(json.dumps, runs))
        text = f'{{\n "characters": {json.dumps(ranges)},\n "runs": [\n  {lines}\n ]\n}}\n'
        RECORD.write_text(text, encoding="utf-8", newline="\n")
    print(table(load_runs()["runs"]))


if __name__ == "__main__":
    main()
