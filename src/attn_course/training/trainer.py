"""The training loop, which can be stopped at any step and goes on as if it had not been. Derived in chapter 12."""

import contextlib
import copy
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from random import Random
from typing import NamedTuple

import sacrebleu
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from attn_course._device import (
    default_device,
    get_random_state,
    has_bfloat16,
    has_type,
    set_random_state,
)
from attn_course.data.batches import Batch, make_batch, make_buckets
from attn_course.data.corpora import Pair, remove_overlap
from attn_course.data.mixture import Text, WordPair, load_text
from attn_course.data.numbers import vary_numbers
from attn_course.data.subwords import PAD_ID, Subwords
from attn_course.data.words import words
from attn_course.decoding import greedy_search, in_batches
from attn_course.nn.transformer import Transformer
from attn_course.training.checkpoint import load_checkpoint, save_checkpoint
from attn_course.training.distributed import find_processes
from attn_course.training.loss import translation_loss
from attn_course.training.model import load_weights, make_model
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
from attn_course.training.shards import Shard, Shards, prepare_shards
from attn_course.training.vocabulary_transfer import match_pieces, transfer_embeddings

Pairs = list[tuple[list[int], list[int]]]


class LocalBatches(NamedTuple):
    """What one process reads in one step."""

    batches: list[Batch]
    """One after the other; each is a part of the step's batch."""
    tokens: int
    """Target tokens of the whole batch, that of all processes."""


def train(
    settings: Settings,
    folder: str | Path,
    *,
    text: Text | None = None,
    stop_at: int | None = None,
    quiet: bool = False,
) -> Path:
    """Train a translator, or go on with one whose last checkpoint is in the folder.

    The folder gets ``settings.toml``, ``data.json`` (how many pairs, and their checksums), the two vocabularies,
    ``metrics.jsonl``, ``last.safetensors`` (everything that is needed to go on) and ``best.safetensors`` (the weights
    with the highest dev BLEU). Ctrl-C and SIGTERM stop it after the current step, with a checkpoint. After a harder
    end, the steps since the last checkpoint are made again. On a CPU the losses are then the same, to the last bit,
    as those of a run that was never stopped.

    Inside :func:`attn_course.training.join_processes` each process takes its share of every batch. A batch has as many
    parts as there are processes at the beginning, times ``accumulate``; each part has a random state of its own. So
    the run can go on with more or fewer processes: batches and dropout stay what they would have been, as long as
    there are not more processes than parts.

    With ``pairs_per_shard`` the text is prepared in the folder ``shards``, once, and need not fit into memory.

    Args:
        settings: what to train; must equal the folder's own when there is a checkpoint in it, but for how often to
            evaluate and to save, and ``steps`` where the schedule does not depend on them.
        folder: where everything is written; all processes must see it, on whatever machines they are.
        text: the sentences; loaded by the names in the settings when not given.
        stop_at: stop after this step, with a checkpoint, as Ctrl-C would.
        quiet: show no progress.

    Returns:
        The folder.

    Raises:
        ValueError: if the settings do not fit the text, or the folder's run was another one or is damaged, or if a
            text in memory is given with ``pairs_per_shard``.
        FileNotFoundError: if the run is to begin with another one that is not there.
        FloatingPointError: if the loss or the gradient is no finite number; the last checkpoint is untouched.
        OSError: if a file cannot be written, the last checkpoint being untouched; or if another process trains in the
            folder.
    """
    folder, processes = Path(folder), find_processes()
    quiet = quiet or not processes.is_first
    if text is not None and settings.pairs_per_shard:
        raise ValueError(
            f"pairs_per_shard ({settings.pairs_per_shard}) is for corpora that are read by their names; it must be 0 "
            "for a text that is in memory already"
        )
    if text is None and not settings.pairs_per_shard:
        text = load_text(settings.corpora, **settings.division)
    with lock_run_dir(folder) if processes.is_first else contextlib.nullcontext():
        return _train(settings, folder, text, stop_at, quiet)


def _train(
    settings: Settings, folder: Path, text: Text | None, stop_at: int | None, quiet: bool
) -> Path:
    processes = find_processes()
    if text is None:
        text = prepare_shards(folder, settings, quiet=quiet)
    elif processes.is_first:
        data = describe_text(settings, text)
        prepare_folder(folder, settings, data, lambda: zip(*text.train, strict=True))
    processes.wait()
    run = _Trainer(settings, folder, text)
    state = run.state
    end = min(settings.steps, settings.steps if stop_at is None else stop_at)
    if state["step"] >= end:
        # Stopped at the very step that is the last one now; or its best weights have been removed.
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
        disable=quiet or None,  # None: where nobody watches, as in a file
    )
    try:
        for share in run.batches():
            loss, speed, stopping = run.step(share, wants_to_stop=stop.wanted)
            bar.set_postfix_str(f"loss {loss:.2f}, {speed:,.0f} tokens/s", refresh=False)
            bar.update()
            last = stopping or state["step"] >= end
            if (
                state["step"] % settings.evaluate_every == 0
                or state["step"] == settings.steps
            ):
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


class _Trainer:
    """One run: the model, the optimizer, and how far they are."""

    def __init__(self, settings: Settings, folder: Path, text: Text) -> None:
        self.settings, self.folder = settings, folder
        self.processes = find_processes()
        self.src_subwords = Subwords.load(folder / SRC_SUBWORDS)
        self.tgt_subwords = Subwords.load(folder / TGT_SUBWORDS)
        if not settings.src_words:
            joined = (
                part if isinstance(part, Shards) else _join_sources(part) for part in text
            )
            text = Text(*joined)
        self.text = text
        if not isinstance(text.train, Shards):
            self._read_into_memory()
        elif not text.train:
            raise ValueError(
                f"longest ({settings.longest}) leaves none of the pairs to train on"
            )

        self.device = default_device()
        self.bfloat16 = settings.bfloat16 and has_bfloat16(self.device)
        if settings.bfloat16 and not self.bfloat16 and self.processes.is_first:
            tqdm.write(
                f"bfloat16 is set, and this {self.device.type} does not multiply in it: training in float32",
                file=sys.stderr,
            )
        torch.manual_seed(settings.seed)
        self.model = make_model(settings, len(self.src_subwords), len(self.tgt_subwords))
        resuming = (folder / LAST).exists()
        if settings.init_from and not resuming:
            self._init_from(Path(settings.init_from))
        self.model.to(self.device).train()
        self.average = copy.deepcopy(self.model) if settings.average_decay else None
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
            "shard": 0,  # of this epoch, in its order; a text in memory is one
            "done": 0,  # batches of this shard
            "loss": 0.0,
            "tokens": 0,
            "best_bleu": -1.0,
            "parts": self.processes.size * settings.accumulate,  # of each batch
            "cpu_seconds": 0.0,
        }
        tensors = self._restore(folder / LAST) if resuming else {}
        # More processes than the run began with take smaller parts.
        self.num_parts = max(self.state["parts"], self.processes.size)
        self.parts = range(self.processes.rank, self.num_parts, self.processes.size)
        self._restore_random_states(tensors)
        if self.processes.is_first:
            forget_metrics_after(folder / METRICS, self.state["step"])
        self.parallel = (
            DistributedDataParallel(self.model) if self.processes.size > 1 else self.model
        )
        self._cpu_before = self.state["cpu_seconds"] - time.process_time()
        self.reset_meters(keep_loss=True)

    # -- One step ------------------------------------------------------------------------------------

    def batches(self) -> Iterator[LocalBatches]:
        """Batches without end, beginning where the state says, and keeping it: this process's share of each."""
        state = self.state
        positions = self.settings.tokens_per_batch * state["parts"]
        while True:
            for pairs, lengths, rng in self._shards():
                buckets = make_buckets(lengths, positions, rng)
                for bucket in buckets[state["done"] :]:
                    state["done"] += 1
                    tokens = sum(lengths[i][1] + 1 for i in bucket)
                    yield LocalBatches(
                        [self._part(bucket, pairs, n) for n in self.parts], tokens
                    )
                state["shard"] += 1
                state["done"] = 0
            state["epoch"] += 1
            state["shard"] = 0

    def _part(self, bucket: list[int], pairs: Pairs | Shard, number: int) -> Batch:
        """One part of a batch. All processes know the whole batch, and read only what is theirs."""
        part = bucket[number :: self.num_parts]
        batch = make_batch([pairs[i] for i in part or bucket[:1]])
        # Fewer sentences than parts: take part with one that does not count.
        if not part:
            batch.tgt_out.fill_(PAD_ID)
        return batch

    def _shards(self) -> Iterator[tuple[Pairs | Shard, list, Random]]:
        """What is left of this epoch: pairs, their lengths, and what shuffles them. One shard, if all is in memory."""
        seed, shards = f"{self.settings.seed} {self.state['epoch']}", self.text.train
        if not isinstance(shards, Shards):
            pairs = self._resample_pieces() + self._vary_numbers()
            yield pairs, [(len(src), len(tgt)) for src, tgt in pairs], Random(seed)
            return
        order = list(range(len(shards)))
        Random(f"{seed} shards").shuffle(order)
        for number in order[self.state["shard"] :]:
            shard = shards[number]
            # The first is shuffled as a text in memory is, which it equals if it is the only one.
            yield shard, shard.lengths(), Random(f"{seed} {number}" if number else seed)

    def _read_into_memory(self) -> None:
        settings, train = self.settings, self.text.train
        pairs = [
            (self.src_subwords.encode(ja), self.tgt_subwords.encode(en)) for ja, en in train
        ]
        fits = [
            min(map(len, pair)) > 0 and max(map(len, pair)) <= settings.longest
            for pair in pairs
        ]
        self.pairs: Pairs = list(compress(pairs, fits))
        self.words = list(compress(train, fits))
        self.numbered = self._find_numbered() if settings.number_copies else []
        if not self.pairs:
            raise ValueError(
                f"longest ({settings.longest}) leaves none of the {len(pairs)} pairs to train on"
            )

    def _resample_pieces(self) -> Pairs:
        """The pairs for this epoch. A sentence that smaller pieces would make too long stays as it is."""
        dropout, longest = self.settings.subword_dropout, self.settings.longest
        if dropout == 0:
            return self.pairs
        seed = Random(f"{self.settings.seed} {self.state['epoch']} pieces").getrandbits(32)
        src, tgt = (
            subwords.encode_at_random(sentences, dropout=dropout, seed=seed)
            for subwords, sentences in zip(
                (self.src_subwords, self.tgt_subwords),
                zip(*self.words, strict=True),
                strict=True,
            )
        )
        return [
            new if max(map(len, new)) <= longest else usual
            for new, usual in zip(zip(src, tgt, strict=True), self.pairs, strict=True)
        ]

    def _find_numbered(self) -> list[Pair]:
        spelled = (Pair("".join(ja), " ".join(en)) for ja, en in self.words)
        return [pair for pair in spelled if vary_numbers(pair, Random(0))]

    def _vary_numbers(self) -> Pairs:
        """More pairs for this epoch: those with numbers once more, with others."""
        rng = Random(f"{self.settings.seed} {self.state['epoch']} numbers")
        varied = [
            vary_numbers(pair, rng)
            for _ in range(self.settings.number_copies)
            for pair in self.numbered
        ]
        held_out = [
            Pair("".join(ja), " ".join(en)) for ja, en in (*self.text.dev, *self.text.test)
        ]
        pairs = []
        for ja, en in remove_overlap(varied, held_out):
            cut = words(ja) if self.settings.src_words else [ja]
            pair = self.src_subwords.encode(cut), self.tgt_subwords.encode(en.split())
            if max(map(len, pair)) <= self.settings.longest:
                pairs.append(pair)
        return pairs

    def step(
        self, share: LocalBatches, *, wants_to_stop: bool
    ) -> tuple[float, float, bool]:
        """One step of all processes; returns the loss, tokens/s, and whether any process wants to stop."""
        settings, state = self.settings, self.state
        state["step"] += 1
        rate = learning_rate(state["step"], settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        wide = torch.float64 if has_type(self.device, torch.float64) else torch.float32
        totals = torch.tensor([0.0, wants_to_stop], dtype=wide, device=self.device)
        for number, batch in zip(self.parts, share.batches, strict=True):
            totals[0] += self._add_gradients(number, batch.to(self.device), share.tokens)
        total, wish = self.processes.add(totals).tolist()
        self._check_finite("loss", total, rate)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.max_grad_norm)
        self._check_finite("gradient", norm.item(), rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self._add_to_average()
        state["loss"] += total
        state["tokens"] += share.tokens
        self._speed_tokens += share.tokens
        return total / share.tokens, self._speed(), wish > 0

    def _add_gradients(self, number: int, batch: Batch, tokens: int) -> Tensor:
        """Forward and backward through a part of a batch that has so many tokens; returns the part's loss."""
        alone = len(self.parts) == 1
        if not alone:
            _set_random_state(self.random_states[number], self.device)
        # The processes exchange gradients once a step, with the last part.
        adds_up = self.processes.size > 1 and number != self.parts[-1]
        with self.parallel.no_sync() if adds_up else contextlib.nullcontext():
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
                logits, _ = self.parallel(batch.src, batch.tgt_in, src_mask=batch.src_mask)
            loss = translation_loss(
                logits.float() if self.bfloat16 else logits,
                batch.tgt_out,
                label_smoothing=self.settings.label_smoothing,
            )
            # DistributedDataParallel averages gradients over the processes; this makes the average a mean over tokens.
            (loss * (self.processes.size / tokens)).backward()
        if not alone:
            self.random_states[number] = _random_state(self.device)
        return loss.detach()

    @torch.no_grad()
    def _add_to_average(self) -> None:
        # The first steps count for more, so that the average leaves where it began.
        step = self.state["step"]
        decay = min(self.settings.average_decay, step / (step + 10))
        for mean, weight in zip(
            self.average.parameters(), self.model.parameters(), strict=True
        ):
            mean.lerp_(weight, 1 - decay)

    @property
    def measured(self) -> Transformer:
        """The model that is measured and kept."""
        return self.model if self.average is None else self.average

    def _check_finite(self, what: str, value: float, rate: float) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the {what} is {value} at step {self.state['step']} (learning rate {rate:.2g}): try a lower "
                f"peak_lr, a longer warm-up or a smaller max_grad_norm; {self._what_is_left()}"
            )

    def _what_is_left(self) -> str:
        if (self.folder / LAST).exists():
            return "the last checkpoint is untouched"
        return "there is no checkpoint yet"

    def _speed(self) -> float:
        return self._speed_tokens / (time.perf_counter() - self._speed_from)

    def reset_meters(self, *, keep_loss: bool = False) -> None:
        """Begin new means of loss and speed."""
        self._speed_from, self._speed_tokens = time.perf_counter(), 0
        if not keep_loss:
            self.state["loss"], self.state["tokens"] = 0.0, 0

    # -- Now and then --------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, float]:
        """Translate dev, note the metrics, and keep the weights if they are the best so far."""
        state, speed = self.state, self._speed()
        sources = [self.src_subwords.encode(ja) for ja, _ in self.text.dev]
        # A sentence that the model cannot read counts as an empty translation.
        fits = [len(source) < self.measured.max_len for source in sources]
        if not all(fits) and state["best_bleu"] < 0:
            print(
                f"{fits.count(False):,} of {len(fits):,} dev sentences have more than {self.measured.max_len - 1} "
                "pieces, the most that the model reads; each counts as an empty translation",
                file=sys.stderr,
            )
        found = iter(
            translate_greedily(
                self.measured, list(compress(sources, fits)), self.tgt_subwords
            )
        )
        hypotheses = [next(found) if fit else "" for fit in fits]
        references = [" ".join(en) for _, en in self.text.dev]
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
            save_checkpoint(self.folder / BEST, _weights(self.measured), about)
        return record

    def save(self) -> None:
        """Write everything that is needed to go on; all processes must call it."""
        if len(self.parts) == 1:
            self.random_states[self.parts[0]] = _random_state(self.device)
        random_states = self.processes.gather(self.random_states)
        if not self.processes.is_first:
            return
        self.state["cpu_seconds"] = self._cpu_before + time.process_time()
        tensors = {f"model.{name}": t for name, t in _weights(self.model).items()}
        if self.average is not None:
            tensors |= {f"average.{name}": t for name, t in _weights(self.average).items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": t for name, t in values.items()}
        for theirs in random_states:
            for number, states in theirs.items():
                tensors |= {_name_of(name, number): state for name, state in states.items()}
        save_checkpoint(self.folder / LAST, tensors, self.state)

    def _restore(self, path: Path) -> dict[str, Tensor]:
        tensors, state = load_checkpoint(path)
        # Earlier checkpoints have a part for each process.
        state.setdefault("parts", state.pop("processes", 1))
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
        _load_weights_of(path, self.model, weights)
        if self.average is not None:
            _load_weights_of(path, self.average, averages)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        self.state |= state
        if not (self.folder / BEST).exists():
            self.state[
                "best_bleu"
            ] = -1.0  # the next weights that are measured are the best there are
        return tensors

    def _restore_random_states(self, tensors: dict[str, Tensor]) -> None:
        """Each part of a batch drops other units, whichever process computes it."""
        self.random_states = {}
        for number in self.parts:
            torch.manual_seed(self.settings.seed + number)
            states = _random_state(self.device)
            names = {name: _name_of(name, number) for name in states}
            states |= {
                name: tensors[there] for name, there in names.items() if there in tensors
            }
            _set_random_state(states, self.device)
            self.random_states[number] = states

    def _init_from(self, source: Path) -> None:
        if not (source / BEST).is_file():
            raise FileNotFoundError(
                f"init_from ({str(source)!r}) must be the folder of an earlier run; it has no {BEST}"
            )
        weights, _ = load_checkpoint(source / BEST)
        weights = {name: tensor.float() for name, tensor in weights.items()}
        if self.settings.new_vocabularies:
            own = self.model.state_dict()
            src = match_pieces(Subwords.load(source / SRC_SUBWORDS), self.src_subwords)
            tgt = match_pieces(Subwords.load(source / TGT_SUBWORDS), self.tgt_subwords)
            for name, origins in (
                ("src_embed.weight", src),
                ("tgt_embed.weight", tgt),
                ("to_logits.weight", tgt),
            ):
                if name in weights:
                    weights[name] = transfer_embeddings(weights[name], own[name], origins)
        _load_weights_of(source / BEST, self.model, weights)


@torch.no_grad()
def translate_greedily(
    model: Transformer, sources: list[list[int]], tgt_subwords: Subwords
) -> list[str]:
    """Translate sentences given as ids."""
    was_training = model.training
    model.eval()
    written = in_batches(greedy_search, model, sources)
    model.train(was_training)
    return [tgt_subwords.decode(ids.tolist()) for ids in written]


def _join_sources(pairs: list[WordPair]) -> list[WordPair]:
    return [WordPair(["".join(ja)], en) for ja, en in pairs]


def _weights(model: Transformer) -> dict[str, Tensor]:
    # Tied weights are one tensor under two names; the second is left out.
    weights = model.state_dict()
    if model.to_logits.weight is model.tgt_embed.weight:
        del weights["to_logits.weight"]
    return weights


def _load_weights_of(path: Path, model: Transformer, weights: dict[str, Tensor]) -> None:
    try:
        load_weights(model, weights)
    except (KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[-1].strip()
        raise ValueError(
            f"the weights in {path} do not fit the settings: {reason}"
        ) from error


def _random_state(device: torch.device) -> dict[str, Tensor]:
    states = {"rng": torch.get_rng_state()}
    there = get_random_state(device)
    return states if there is None else states | {"accelerator_rng": there}


def _set_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["rng"])
    if "accelerator_rng" in states:
        set_random_state(states["accelerator_rng"], device)


def _name_of(name: str, number: int) -> str:
    return name if number == 0 else f"{name}.{number}"


class _StopSignal:
    """Turns Ctrl-C and SIGTERM into a wish that the loop reads at each step. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.wanted = False
        self._before = {}
        for name in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[name] = signal.signal(name, self._note)
            except ValueError:  # not in the main thread: then there is no such signal
                return

    def _note(self, number: int, _: object) -> None:
        self.wanted = True
        # torchrun passes on a Ctrl-C that the terminal has sent to every process already.
        if number == signal.SIGINT and "TORCHELASTIC_RUN_ID" not in os.environ:
            signal.signal(number, self._before[number])

    def restore(self) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)
