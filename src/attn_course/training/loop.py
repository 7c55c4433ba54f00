"""The training loop, which can be stopped at any step and goes on as if it had not been."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import sacrebleu
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from attn_course.data.batches import Batch, make_batch, make_buckets
from attn_course.data.mixture import Text, load_text
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, Subwords
from attn_course.decoding import greedy_search
from attn_course.device import default_device
from attn_course.training.checkpoint import (
    load_checkpoint,
    save_checkpoint,
    write_atomically,
)
from attn_course.training.loss import translation_loss
from attn_course.training.schedule import learning_rate
from attn_course.training.settings import Settings
from attn_course.transformer import Transformer

Pairs = list[tuple[list[int], list[int]]]


def make_model(settings: Settings, src_vocab_size: int, tgt_vocab_size: int) -> Transformer:
    """The translator that the settings describe, with random weights."""
    return Transformer(
        src_vocab_size,
        tgt_vocab_size,
        d_model=settings.d_model,
        num_heads=settings.num_heads,
        num_encoder_layers=settings.num_encoder_layers,
        num_decoder_layers=settings.num_decoder_layers,
        d_ff=settings.d_ff,
        dropout=settings.dropout,
        norm_first=settings.norm_first,
        tie_weights=settings.tie_weights,
    )


def train(settings: Settings, folder: str | Path, *, text: Text | None = None) -> Path:
    """Train a translator, or go on with one whose last checkpoint is in the folder.

    The folder gets ``settings.toml``, the two vocabularies, ``metrics.jsonl``, ``last.safetensors`` (everything
    that is needed to go on) and ``best.safetensors`` (the weights with the highest dev BLEU).

    Args:
        settings: what to train; must equal the folder's own when there is a checkpoint in it.
        folder: where everything is written.
        text: the sentences; loaded by the names in the settings when not given.

    Returns:
        The folder.
    """
    folder = Path(folder)
    rank, world_size = (
        (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    )
    text = load_text(settings.corpora) if text is None else text
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        _check_same_settings(folder, settings)
        write_atomically(folder / "settings.toml", settings.to_toml().encode())
        _make_vocabularies(folder, settings, text)
    if world_size > 1:
        dist.barrier()
    src_subwords = Subwords.load(folder / "src.subwords.model")
    tgt_subwords = Subwords.load(folder / "tgt.subwords.model")
    pairs = [(src_subwords.encode(ja), tgt_subwords.encode(en)) for ja, en in text.train]
    pairs = [
        pair
        for pair in pairs
        if min(map(len, pair)) > 0 and max(map(len, pair)) <= settings.longest
    ]

    device = default_device()
    torch.manual_seed(settings.seed)
    model = make_model(settings, len(src_subwords), len(tgt_subwords))
    if settings.init_from:
        load_weights(
            model, load_checkpoint(Path(settings.init_from) / "best.safetensors")[0]
        )
    model.to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.peak_lr,
        betas=(0.9, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )
    torch.manual_seed(settings.seed + rank)  # every process drops other units
    state = {"step": 0, "epoch": 0, "done": 0, "loss": 0.0, "tokens": 0, "best_bleu": -1.0}
    if (folder / "last.safetensors").exists():
        state = _restore(folder / "last.safetensors", model, optimizer)
    if rank == 0:
        _forget_metrics_after(folder / "metrics.jsonl", state["step"])
    parallel = DistributedDataParallel(model) if world_size > 1 else model

    stop = _StopSignal()
    bar = tqdm(total=settings.steps, initial=state["step"], unit="step", disable=rank > 0)
    speed_from, speed_tokens = time.perf_counter(), 0
    for batch in _batches(pairs, settings, state, rank, world_size):
        batch = batch.to(device)
        state["step"] += 1
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(state["step"], settings)
        logits, _ = parallel(batch.src, batch.tgt_in, src_mask=batch.src_mask)
        loss = translation_loss(
            logits, batch.tgt_out, label_smoothing=settings.label_smoothing
        )
        totals = torch.tensor(
            [loss.item(), batch.tgt_lengths.sum().item()], dtype=torch.float64
        )
        if world_size > 1:
            dist.all_reduce(totals)
        # DistributedDataParallel averages gradients over the processes; this makes the average a mean over tokens.
        (loss * (world_size / totals[1].item())).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        state["loss"] += totals[0].item()
        state["tokens"] += int(totals[1])
        speed_tokens += int(totals[1])
        last = state["step"] == settings.steps or stop.wanted
        if rank == 0:
            bar.update()
            if state["step"] % 10 == 0:
                speed = speed_tokens / (time.perf_counter() - speed_from)
                bar.set_postfix_str(
                    f"loss {totals[0] / totals[1]:.2f}, {speed:,.0f} tokens/s"
                )
        if state["step"] % settings.evaluate_every == 0 or state["step"] == settings.steps:
            if rank == 0:
                _evaluate(folder, model, src_subwords, tgt_subwords, text, settings, state)
            speed_from, speed_tokens = time.perf_counter(), 0
            state["loss"], state["tokens"] = 0.0, 0
            if world_size > 1:
                dist.barrier()
        if rank == 0 and (last or state["step"] % settings.save_every == 0):
            _save(folder / "last.safetensors", model, optimizer, state)
        if last:
            break
    bar.close()
    stop.restore()
    return folder


def _batches(
    pairs: Pairs, settings: Settings, state: dict, rank: int, world_size: int
) -> Iterator[Batch]:
    """Batches without end, beginning where ``state`` says, and keeping it."""
    lengths = [(len(src), len(tgt)) for src, tgt in pairs]
    while True:
        rng = Random(f"{settings.seed} {state['epoch']}")
        buckets = make_buckets(lengths, settings.tokens_per_batch * world_size, rng)
        for bucket in buckets[state["done"] :]:
            state["done"] += 1
            if len(bucket) >= world_size:  # a process must not be left without a sentence
                yield make_batch([pairs[i] for i in bucket[rank::world_size]])
        state["epoch"] += 1
        state["done"] = 0


def _evaluate(
    folder: Path,
    model: Transformer,
    src_subwords: Subwords,
    tgt_subwords: Subwords,
    text: Text,
    settings: Settings,
    state: dict,
) -> None:
    """Translate dev, note the metrics, and keep the weights if they are the best so far."""
    hypotheses = translate_greedily(
        model, [src_subwords.encode(ja) for ja, _ in text.dev], tgt_subwords
    )
    bleu = sacrebleu.corpus_bleu(
        hypotheses, [[" ".join(en) for _, en in text.dev]], tokenize="none", force=True
    ).score
    record = {
        "step": state["step"],
        "epoch": state["epoch"],
        "loss": round(state["loss"] / max(state["tokens"], 1), 6),
        "dev_bleu": round(bleu, 3),
        "lr": learning_rate(state["step"], settings),
        "cpu_minutes": round(time.process_time() / 60, 2),
    }
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    tqdm.write(json.dumps(record))
    if bleu > state["best_bleu"]:
        state["best_bleu"] = bleu
        save_checkpoint(
            folder / "best.safetensors",
            _weights(model),
            {"step": state["step"], "dev_bleu": bleu},
        )


@torch.no_grad()
def translate_greedily(
    model: Transformer, sources: list[list[int]], tgt_subwords: Subwords
) -> list[str]:
    """Translate sentences given as ids, in batches of similar length."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = [""] * len(sources)
    for start in range(0, len(order), 64):
        rows = order[start : start + 64]
        batch = make_batch([(sources[i], []) for i in rows]).to(device)
        max_len = 2 * batch.src.size(1) + 10
        written = greedy_search(
            model,
            batch.src,
            batch.src_lengths,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_id=PAD_ID,
            max_len=max_len,
        )
        for i, ids in zip(rows, written.tolist(), strict=True):
            found[i] = tgt_subwords.decode(ids)
    model.train(was_training)
    return found


def _weights(model: nn.Module) -> dict[str, Tensor]:
    # Tied weights are one tensor under two names; the second is left out.
    weights = model.state_dict()
    if model.to_logits.weight is model.tgt_embed.weight:
        del weights["to_logits.weight"]
    return weights


def load_weights(model: Transformer, weights: dict[str, Tensor]) -> None:
    """Copy weights as a checkpoint holds them into a model."""
    if model.to_logits.weight is model.tgt_embed.weight:
        weights = weights | {"to_logits.weight": weights["tgt_embed.weight"]}
    model.load_state_dict(weights)


def _save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict
) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in _weights(model).items()}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in values.items()}
    tensors["rng"] = torch.get_rng_state()
    save_checkpoint(path, tensors, state)


def _restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    tensors, state = load_checkpoint(path)
    load_weights(
        model,
        {
            name.removeprefix("model."): t
            for name, t in tensors.items()
            if name.startswith("model.")
        },
    )
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            moments.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
    torch.set_rng_state(tensors["rng"])
    return state


def _make_vocabularies(folder: Path, settings: Settings, text: Text) -> None:
    src, tgt = folder / "src.subwords.model", folder / "tgt.subwords.model"
    if src.exists() and tgt.exists():
        return
    if settings.init_from:
        for path in (src, tgt):
            write_atomically(path, (Path(settings.init_from) / path.name).read_bytes())
        return
    write_atomically(
        src,
        Subwords.train(
            [ja for ja, _ in text.train], settings.src_vocab_size, spaces=False
        ).model,
    )
    write_atomically(
        tgt,
        Subwords.train(
            [en for _, en in text.train], settings.tgt_vocab_size, spaces=True
        ).model,
    )


def _check_same_settings(folder: Path, settings: Settings) -> None:
    path = folder / "settings.toml"
    if (folder / "last.safetensors").exists() and Settings.load(path) != settings:
        theirs = vars(Settings.load(path))
        changed = [
            f"{k} ({theirs[k]!r} there, {v!r} now)"
            for k, v in vars(settings).items()
            if theirs[k] != v
        ]
        raise ValueError(f"{folder} holds a run with other settings: {', '.join(changed)}")


def _forget_metrics_after(path: Path, step: int) -> None:
    """Drop what was measured after the checkpoint: it will be measured again."""
    if path.exists():
        lines = [
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.endswith("}")
        ]
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        write_atomically(path, "".join(f"{line}\n" for line in kept).encode())


class _StopSignal:
    """Turns Ctrl-C and SIGTERM into a wish that the loop reads after each step."""

    def __init__(self) -> None:
        self.wanted = False
        self._before = {}
        for name in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[name] = signal.signal(name, self._note)
            except ValueError:  # not in the main thread: then there is no such signal
                return

    def _note(self, *_: object) -> None:
        self.wanted = True

    def restore(self) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)
