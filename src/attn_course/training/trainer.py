"""The training loop, which can be stopped at any step and then continued. Derived in chapter 12."""

import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import compress
from pathlib import Path

import sacrebleu
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from attn_course._device import default_device, has_bfloat16, has_type
from attn_course.data.batches import Batch, in_batches
from attn_course.data.corpus_mixture import Text, load_text
from attn_course.data.subwords import Subwords
from attn_course.decoding import greedy_search
from attn_course.nn.transformer import Transformer
from attn_course.training.averages import WeightAverage
from attn_course.training.build_model import load_weights, make_model, weights_of
from attn_course.training.checkpoint import load_checkpoint, save_checkpoint
from attn_course.training.distributed import find_processes
from attn_course.training.loss import translation_loss
from attn_course.training.random_states import RandomStates
from attn_course.training.run_dir import (
    BEST,
    LAST,
    METRICS,
    SRC_SUBWORDS,
    TGT_SUBWORDS,
    add_metrics,
    describe_text,
    forget_metrics_after,
    lock_run_dir,
    prepare_folder,
)
from attn_course.training.schedule import learning_rate
from attn_course.training.settings import Settings
from attn_course.training.shards import prepare_shards
from attn_course.training.text_pipeline import LocalBatches, TextPipeline
from attn_course.training.vocabulary_transfer import match_pieces, transfer_embeddings


def train(
    settings: Settings, folder: str | Path, *, text: Text | None = None, stop_at: int | None = None, quiet: bool = False
) -> Path:
    """Train a translator, or continue a run from its last checkpoint in the folder.

    The folder gets ``settings.toml``, ``data.json`` (number and checksums of the pairs), the two vocabularies,
    ``metrics.jsonl``, ``last.safetensors`` (the checkpoint) and ``best.safetensors`` (the weights with the highest dev
    BLEU). Ctrl-C and SIGTERM stop the run after the current step, with a checkpoint. If the process is killed, the
    steps since the last checkpoint are repeated. On a CPU, the losses then equal those of a run without a stop, to the
    last bit.

    Inside :func:`attn_course.training.join_processes`, each process reads its share of every batch. A batch has
    ``grad_accum_steps`` parts for each process at the start of the run, and each part has a random state of its own. So
    a run can continue with more or fewer processes, with the same batches and the same dropout, unless there are more
    processes than parts.

    With ``pairs_per_shard``, the text is prepared once in the folder ``shards``, and need not fit into memory.

    Args:
        settings: the settings of the run. To continue a run, only ``evaluate_every`` and ``save_every`` may differ,
            and ``steps`` if the schedule does not depend on it.
        folder: the folder of the run, which all processes must see.
        text: the sentences; loaded by the names in the settings if not given.
        stop_at: stop after this step, with a checkpoint, like Ctrl-C.
        quiet: show no progress.

    Returns:
        The folder.

    Raises:
        ValueError: if the settings do not fit the text, the folder holds another or a damaged run, or a text is given
            together with ``pairs_per_shard``.
        FileNotFoundError: if the run starts from another run that does not exist.
        FloatingPointError: if the loss or the gradient is not finite; the last checkpoint stays unchanged.
        OSError: if a file cannot be written, where the last checkpoint stays unchanged; or if another process trains
            in the folder.
    """
    folder, processes = Path(folder), find_processes()
    quiet = quiet or not processes.is_first
    if text is not None and settings.pairs_per_shard:
        raise ValueError(
            f"pairs_per_shard ({settings.pairs_per_shard}) must be 0 if a text is given, because only corpora that are "
            "loaded by name can be prepared in shards"
        )
    if text is None and not settings.pairs_per_shard:
        text = load_text(settings.corpora, **settings.division)
    with lock_run_dir(folder) if processes.is_first else contextlib.nullcontext():
        return _train(settings, folder, text, stop_at, quiet)


def _train(settings: Settings, folder: Path, text: Text | None, stop_at: int | None, quiet: bool) -> Path:
    processes = find_processes()
    if text is None:
        text = prepare_shards(folder, settings, quiet=quiet)
    elif processes.is_first:
        data = describe_text(settings, text)
        prepare_folder(folder, settings, data, lambda: zip(*text.train, strict=True))
    processes.wait()
    run = Trainer(settings, folder, text)
    state = run.state
    end = min(settings.steps, settings.steps if stop_at is None else stop_at)
    if state["step"] >= end:
        # Training is complete, but the best weights are missing: evaluate once more.
        if state["step"] >= settings.steps and state["best_bleu"] < 0:
            if processes.is_first:
                forget_metrics_after(folder / METRICS, state["step"] - 1)
                run.evaluate()
            run.save()
        if not quiet:
            tqdm.write(f"{folder} has been trained for {state['step']} steps already.")
        return folder

    stop = _StopSignal()
    bar = tqdm(
        total=settings.steps,
        initial=state["step"],
        unit="step",
        disable=quiet or None,  # None: no bar if the output is not a terminal
    )
    try:
        for share in run.batches():
            loss, speed, stopping = run.step(share, wants_to_stop=stop.requested)
            bar.set_postfix_str(f"loss {loss:.2f}, {speed:,.0f} tokens/s", refresh=False)
            bar.update()
            last = stopping or state["step"] >= end
            if state["step"] % settings.evaluate_every == 0 or state["step"] == settings.steps:
                if processes.is_first:
                    record = run.evaluate()
                    if not quiet:
                        tqdm.write(json.dumps(record))
                processes.wait()
                run.reset_meters()
            if last or state["step"] % settings.save_every == 0:
                run.save()
            if last:
                break
    finally:
        bar.close()
        stop.restore()
    return folder


class Trainer:
    """One training run: its model, its optimizer and its state."""

    def __init__(self, settings: Settings, folder: Path, text: Text) -> None:
        self.settings, self.folder = settings, folder
        self.processes = find_processes()
        self.pipeline = TextPipeline(settings, folder, text)
        self.device = default_device()
        self.bfloat16 = settings.bfloat16 and has_bfloat16(self.device)
        if settings.bfloat16 and not self.bfloat16 and self.processes.is_first:
            tqdm.write(
                f"bfloat16 is set, but this {self.device.type} does not support it: training in float32",
                file=sys.stderr,
            )
        torch.manual_seed(settings.seed)
        self.model = make_model(settings, len(self.pipeline.src_subwords), len(self.pipeline.tgt_subwords))
        resuming = (folder / LAST).exists()
        if settings.init_from and not resuming:
            self._init_from(Path(settings.init_from))
        self.model.to(self.device).train()
        self.average = WeightAverage(self.model, settings.ema_decay) if settings.ema_decay else None
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.peak_lr,
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.state = {
            "step": 0,
            "epoch": 0,
            "shard": 0,  # number of finished shards in this epoch
            "done": 0,  # number of finished batches in this shard
            "loss": 0.0,
            "tokens": 0,
            "best_bleu": -1.0,
            "parts": self.processes.size * settings.grad_accum_steps,  # number of parts of a batch
            "cpu_seconds": 0.0,
        }
        tensors = self._restore(folder / LAST) if resuming else {}
        # If there are more processes than parts, the parts become smaller.
        self.num_parts = max(self.state["parts"], self.processes.size)
        self.parts = range(self.processes.rank, self.num_parts, self.processes.size)
        self.random_states = RandomStates(self.parts, settings.seed, self.device, tensors)
        if self.processes.is_first:
            forget_metrics_after(folder / METRICS, self.state["step"])
        self.parallel = DistributedDataParallel(self.model) if self.processes.size > 1 else self.model
        self._cpu_before = self.state["cpu_seconds"] - time.process_time()
        self.reset_meters(keep_loss=True)

    def batches(self) -> Iterator[LocalBatches]:
        """Yield this process's share of each batch, from the current state on."""
        return self.pipeline.batches(self.state, self.parts, self.num_parts)

    def step(self, share: LocalBatches, *, wants_to_stop: bool) -> tuple[float, float, bool]:
        """Take one step. Return the loss, the tokens per second, and whether any process wants to stop."""
        settings, state = self.settings, self.state
        state["step"] += 1
        rate = learning_rate(state["step"], settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        wide = torch.float64 if has_type(self.device, torch.float64) else torch.float32
        totals = torch.tensor([0.0, wants_to_stop], dtype=wide, device=self.device)
        for number, batch in zip(self.parts, share.batches, strict=True):
            totals[0] += self._add_gradients(number, batch.to(self.device), share.tokens)
        total, stop_votes = self.processes.add(totals).tolist()
        self._check_finite("loss", total, rate)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_grad_norm)
        self._check_finite("gradient", norm.item(), rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.model, state["step"])
        state["loss"] += total
        state["tokens"] += share.tokens
        self._speed_tokens += share.tokens
        return total / share.tokens, self._speed(), stop_votes > 0

    def _add_gradients(self, number: int, batch: Batch, tokens: int) -> Tensor:
        """Add the gradients of one part, whose batch has this many tokens, and return the loss of the part."""
        # The processes exchange gradients only with the last part of a step.
        is_last = self.processes.size == 1 or number == self.parts[-1]
        sync = contextlib.nullcontext() if is_last else self.parallel.no_sync()
        with self.random_states.use(number), sync:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
                logits, _ = self.parallel(batch.src, batch.tgt_in, src_mask=batch.src_mask)
            loss = translation_loss(
                logits.float() if self.bfloat16 else logits,
                batch.tgt_out,
                label_smoothing=self.settings.label_smoothing,
            )
            # DistributedDataParallel averages gradients over the processes; this makes the average a mean over tokens.
            (loss * (self.processes.size / tokens)).backward()
        return loss.detach()

    @property
    def eval_model(self) -> Transformer:
        """Return the model to evaluate and save as the best one: the average if there is one."""
        return self.model if self.average is None else self.average.model

    def _check_finite(self, what: str, value: float, rate: float) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the {what} is {value} at step {self.state['step']} (learning rate {rate:.2g}): try a lower "
                f"peak_lr, a longer warm-up or a smaller max_grad_norm; {self._describe_checkpoint()}"
            )

    def _describe_checkpoint(self) -> str:
        if (self.folder / LAST).exists():
            return "the last checkpoint is untouched"
        return "there is no checkpoint yet"

    def _speed(self) -> float:
        return self._speed_tokens / (time.perf_counter() - self._speed_from)

    def reset_meters(self, *, keep_loss: bool = False) -> None:
        """Start new means of loss and speed."""
        self._speed_from, self._speed_tokens = time.perf_counter(), 0
        if not keep_loss:
            self.state["loss"], self.state["tokens"] = 0.0, 0

    def evaluate(self) -> dict[str, float]:
        """Translate dev, write the metrics, and save the weights if they are the best so far."""
        state, speed = self.state, self._speed()
        dev = self.pipeline.text.dev
        sources = [self.pipeline.src_subwords.encode(ja) for ja, _ in dev]
        # A sentence that the model cannot read counts as an empty translation.
        fits = [len(source) < self.eval_model.max_len for source in sources]
        if not all(fits) and state["best_bleu"] < 0:
            print(
                f"{fits.count(False):,} of {len(fits):,} dev sentences have more than {self.eval_model.max_len - 1} "
                "pieces, the most that the model reads; each counts as an empty translation",
                file=sys.stderr,
            )
        readable = list(compress(sources, fits))
        translations = iter(translate_greedily(self.eval_model, readable, self.pipeline.tgt_subwords))
        hypotheses = [next(translations) if fit else "" for fit in fits]
        references = [" ".join(en) for _, en in dev]
        bleu = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
        state["cpu_seconds"] = self._cpu_before + time.process_time()
        record = {
            "step": state["step"],
            "epoch": state["epoch"],
            "loss": round(state["loss"] / max(state["tokens"], 1), 6),
            "dev_bleu": round(bleu.score, 3),
            "lr": learning_rate(state["step"], self.settings),
            "tokens_per_second": round(speed),
            "cpu_minutes": round(state["cpu_seconds"] / 60, 2),
        }
        add_metrics(self.folder / METRICS, record)
        if bleu.score > state["best_bleu"]:
            state["best_bleu"] = bleu.score
            about = {"step": state["step"], "dev_bleu": bleu.score}
            save_checkpoint(self.folder / BEST, weights_of(self.eval_model), about)
        return record

    def save(self) -> None:
        """Write a checkpoint. All processes must call this method."""
        random_states = self.processes.gather(self.random_states.to_tensors())
        if not self.processes.is_first:
            return
        self.state["cpu_seconds"] = self._cpu_before + time.process_time()
        tensors = {f"model.{name}": t for name, t in weights_of(self.model).items()}
        if self.average is not None:
            averages = weights_of(self.average.model)
            tensors |= {f"average.{name}": t for name, t in averages.items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": t for name, t in values.items()}
        for states in random_states:
            tensors |= states
        save_checkpoint(self.folder / LAST, tensors, self.state)

    def _restore(self, path: Path) -> dict[str, Tensor]:
        tensors, state = load_checkpoint(path)
        weights, averages, moments = {}, {}, {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "model":
                weights[rest] = tensor
            elif kind == "average":
                averages[rest] = tensor
            elif kind == "optimizer":
                index, _, key = rest.partition(".")
                moments.setdefault(int(index), {})[key] = tensor
        _load_weights_from(path, self.model, weights)
        if self.average is not None:
            _load_weights_from(path, self.average.model, averages)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        self.state |= state
        if not (self.folder / BEST).exists():
            self.state["best_bleu"] = -1.0  # the next evaluation saves the best weights
        return tensors

    def _init_from(self, source: Path) -> None:
        if not (source / BEST).is_file():
            raise FileNotFoundError(
                f"init_from ({str(source)!r}) must be the folder of an earlier run, but it has no {BEST}"
            )
        weights, _ = load_checkpoint(source / BEST)
        weights = {name: tensor.float() for name, tensor in weights.items()}
        if self.settings.new_vocabularies:
            own = self.model.state_dict()
            src = match_pieces(Subwords.load(source / SRC_SUBWORDS), self.pipeline.src_subwords)
            tgt = match_pieces(Subwords.load(source / TGT_SUBWORDS), self.pipeline.tgt_subwords)
            for name, origins in (("src_embed.weight", src), ("tgt_embed.weight", tgt), ("to_logits.weight", tgt)):
                if name in weights:
                    weights[name] = transfer_embeddings(weights[name], own[name], origins)
        _load_weights_from(source / BEST, self.model, weights)


@torch.no_grad()
def translate_greedily(model: Transformer, sources: list[list[int]], tgt_subwords: Subwords) -> list[str]:
    """Translate sentences, given as ids, by greedy search."""
    was_training = model.training
    model.eval()
    outputs = in_batches(greedy_search, model, sources)
    model.train(was_training)
    return [tgt_subwords.decode(ids.tolist()) for ids in outputs]


def _load_weights_from(path: Path, model: Transformer, weights: dict[str, Tensor]) -> None:
    try:
        load_weights(model, weights)
    except (KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[-1].strip()
        raise ValueError(f"the weights in {path} do not fit the settings: {reason}") from error


class _StopSignal:
    """Records Ctrl-C and SIGTERM in ``requested``, which the loop reads. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before = {}
        for name in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[name] = signal.signal(name, self._note)
            except ValueError:  # signals can be handled only in the main thread
                return

    def _note(self, number: int, _: object) -> None:
        self.requested = True
        # torchrun repeats a Ctrl-C that the terminal has already sent to every process.
        if number == signal.SIGINT and "TORCHELASTIC_RUN_ID" not in os.environ:
            signal.signal(number, self._before[number])

    def restore(self) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)
