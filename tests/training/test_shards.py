"""Shards: a text that does not fit into memory is prepared once, and trains as it would in memory."""

import json
import os
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_training import TEXT, TINY, assert_same_run

from attn_course.data import corpus_mixture
from attn_course.data.subwords import Subwords
from attn_course.training import shards as training_shards
from attn_course.training import train
from attn_course.training import trainer as training_loop
from attn_course.training.shards import Shard, read_shard, write_shard

PAIRS = [([5, 6, 7], [8]), ([9], [10, 11]), ([12, 13], [14, 15, 16, 17])]
UNKNOWN = [("犬が空を泳ぐ", "dogs swim ."), ("空", "sky")]  # with letters that dev and test do not have


@pytest.fixture
def corpora(tmp_path):
    """The toy language in three files of one's own; a pair is there twice, and some are in dev, too."""
    train = [*TEXT.train, *TEXT.dev[:2], *TEXT.train[:3]]
    for name, pairs in {"train": train, "dev": TEXT.dev, "test": TEXT.test}.items():
        write_table(tmp_path / f"{name}.tsv", pairs)
    return {"corpora": (f"pairs={tmp_path}/train.tsv",)} | {
        name: f"pairs={tmp_path}/{name}.tsv" for name in ("dev", "test")
    }


def write_table(path, pairs):
    path.write_text("".join(f"{''.join(ja)}\t{' '.join(en)}\n" for ja, en in pairs), encoding="utf-8")


@pytest.fixture
def settings(corpora):
    return replace(TINY, **corpora, pairs_per_shard=19)


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted((Path(folder) / "shards").iterdir())}


def epoch_of(run):
    """All pairs of the epoch that begins."""
    epoch, pairs = run.state["epoch"], []
    for share in run.batches():
        if run.state["epoch"] > epoch:
            return pairs
        (batch,), tokens = share
        assert tokens == batch.tgt_lengths.sum()
        for b, (S, T) in enumerate(zip(batch.src_lengths, batch.tgt_lengths, strict=True)):
            pairs.append((tuple(batch.src[b, : S - 1].tolist()), tuple(batch.tgt_out[b, : T - 1].tolist())))


# -- One shard ---------------------------------------------------------------------------------------


def test_pairs_come_back_from_files_that_are_mapped_into_memory(tmp_path):
    record = write_shard(tmp_path, 7, iter(PAIRS), vocab_size=18)
    shard = read_shard(tmp_path, record)
    assert [shard[i] for i in range(len(shard))] == PAIRS
    assert shard.lengths() == [(3, 1), (1, 2), (2, 4)]
    assert (len(shard), record["pairs"]) == (3, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00007.bounds.npy", "00007.tokens.npy"]
    assert isinstance(shard._tokens, np.memmap)


def test_ids_take_two_bytes_each_and_four_where_a_vocabulary_needs_them(tmp_path):
    for vocab_size, bytes_each in ((2**16, 2), (2**16 + 1, 4)):
        record = write_shard(tmp_path, 1, [([vocab_size - 1], [4])], vocab_size=vocab_size)
        assert np.load(tmp_path / "00001.tokens.npy").itemsize == bytes_each
        assert read_shard(tmp_path, record)[0] == ([vocab_size - 1], [4])


def test_a_shard_may_be_empty(tmp_path):
    shard = read_shard(tmp_path, write_shard(tmp_path, 1, [], vocab_size=9))
    assert (len(shard), shard.lengths()) == (0, [])
    assert isinstance(shard, Shard)


@pytest.mark.parametrize("name", ["tokens", "bounds"])
@pytest.mark.parametrize("damage", ["one bit", "cut", "gone"])
def test_a_damaged_shard_is_refused_by_the_name_of_its_file_and_with_what_to_do(tmp_path, name, damage):
    record = write_shard(tmp_path, 3, PAIRS, vocab_size=18)
    path = tmp_path / f"00003.{name}.npy"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if damage == "one bit" else b""))
    what = "is missing" if damage == "gone" else r"is damaged: its SHA-256 must be [0-9a-f]{12}…, not [0-9a-f]{12}…"
    with pytest.raises(
        ValueError, match=rf"00003\.{name}\.npy {what}; remove the folder .*, and the same command makes"
    ):
        read_shard(tmp_path, record)


# -- A training --------------------------------------------------------------------------------------


def test_one_shard_trains_exactly_like_the_text_in_memory(tmp_path, corpora):
    settings = replace(TINY, **corpora, max_pieces=5)
    train(settings, tmp_path / "memory", quiet=True)
    train(replace(settings, pairs_per_shard=500), tmp_path / "shards", quiet=True)
    assert_same_run(tmp_path / "shards", tmp_path / "memory")
    ours, theirs = (json.loads((tmp_path / run / "data.json").read_text("utf-8")) for run in ("shards", "memory"))
    assert {**ours, "train": 0} == {**theirs, "train": 0}
    assert ours["train"]["pairs"] == 51  # as they are in the file


@pytest.mark.parametrize("src_words", [True, False])
def test_each_epoch_has_every_pair_once_in_batches_from_one_shard_at_a_time(tmp_path, settings, src_words):
    settings = replace(settings, src_words=src_words, steps=1)
    run = training_loop.Trainer(
        settings, train(settings, tmp_path, quiet=True), training_shards.prepare_shards(tmp_path, settings)
    )
    assert len(run.pipeline.text.train) == 3
    sizes = [len(shard) for shard in run.pipeline.text.train]
    assert min(sizes) >= 8
    src_subwords, tgt_subwords = run.pipeline.src_subwords, run.pipeline.tgt_subwords
    usual = Counter(
        (tuple(src_subwords.encode(ja if src_words else ["".join(ja)])), tuple(tgt_subwords.encode(en)))
        for ja, en in TEXT.train
    )
    run.state |= {"epoch": 0, "shard": 0, "done": 0}
    first = epoch_of(run)
    run.state |= {"epoch": 1, "shard": 0, "done": 0}
    second = epoch_of(run)
    assert Counter(first) == Counter(second) == usual
    assert first != second
    shards = [{tuple(map(tuple, shard[i])) for i in range(len(shard))} for shard in run.pipeline.text.train]
    for epoch in (first, second):
        seen = [next(n for n, shard in enumerate(shards) if pair in shard) for pair in epoch]
        assert sum(a != b for a, b in pairwise(seen)) == 2  # from one to the next, never back


def test_a_training_from_shards_goes_on_after_any_step_as_if_it_had_not_been_stopped(tmp_path, settings):
    train(replace(settings, steps=20), tmp_path / "one", quiet=True)
    for step in (1, 2, 4, 9, 20):
        train(replace(settings, steps=20), tmp_path / "two", stop_at=step, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_the_text_is_prepared_once_and_anew_only_when_what_it_is_made_from_has_changed(tmp_path, settings, monkeypatch):
    spread, counted = training_shards._spread, []
    monkeypatch.setattr(training_shards, "_spread", lambda *a: counted.append(1) or spread(*a))
    run = tmp_path / "run"

    def prepared(settings):
        counted.clear()
        train(settings, run, stop_at=1, quiet=True)
        return bool(counted)

    assert prepared(settings)
    before = files_of(run)
    assert not prepared(settings)  # with a checkpoint
    (run / "last.safetensors").unlink()
    vocabulary = (run / "src.subwords.model").read_bytes()
    assert not prepared(settings)  # and without one
    (run / "last.safetensors").unlink()
    assert not prepared(replace(settings, d_model=16))  # which is nothing to the text
    assert (files_of(run), (run / "src.subwords.model").read_bytes()) == (before, vocabulary)
    for change in ({"src_vocab_size": 19}, {"max_pieces": 5}, {"pairs_per_shard": 25}):
        (run / "last.safetensors").unlink()
        assert prepared(replace(settings, **change)), change
        assert files_of(run) != before
    (run / "last.safetensors").unlink()
    (tmp_path / "train.tsv").write_text(
        (tmp_path / "train.tsv").read_text("utf-8") + "馬が空を見る\thorses see sky\n", "utf-8"
    )
    assert prepared(settings)
    (run / "src.subwords.model").write_bytes(Subwords.train([ja for ja, _ in TEXT.train], 20, spaces=False).model)
    (run / "last.safetensors").unlink()
    assert prepared(settings)  # its vocabulary was another one


def test_a_text_that_has_changed_under_a_training_is_refused_before_anything_is_prepared(tmp_path, settings):
    run = train(settings, tmp_path / "run", stop_at=1, quiet=True)
    before = files_of(run)
    with open(tmp_path / "train.tsv", "a", encoding="utf-8") as file:
        file.write("馬が空を見る\thorses see sky\n")
    with pytest.raises(
        ValueError, match=r"holds a run on another text: its train part has 51 pairs .* now there are 52"
    ):
        train(settings, run, quiet=True)
    assert files_of(run) == before


def test_shards_that_were_removed_are_made_again_the_same(tmp_path, settings):
    run = train(settings, tmp_path / "run", stop_at=1, quiet=True)
    before = files_of(run)
    (run / "shards" / "00001.tokens.npy").write_bytes(b"nothing")
    with pytest.raises(
        ValueError, match=r"00001\.tokens\.npy is damaged: .*; remove the folder .*shards, and the same"
    ):
        train(settings, run, quiet=True)
    (run / "shards" / "index.json").write_text("[]", "utf-8")
    with pytest.raises(
        ValueError, match=r"index\.json is damaged: it is not an index of shards; remove the folder .*shards, "
    ):
        train(settings, run, quiet=True)
    for path in (run / "shards").iterdir():
        path.unlink()
    train(settings, run, quiet=True)
    assert files_of(run) == before


def test_an_unfinished_preparation_is_replaced(tmp_path, settings, monkeypatch):
    train(settings, tmp_path / "whole", stop_at=1, quiet=True)

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_shards, "write_shard", stop)
        with pytest.raises(KeyboardInterrupt):
            train(settings, tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / ".shards.unfinished").is_dir()
    assert not (tmp_path / "run" / "shards").exists()
    train(settings, tmp_path / "run", stop_at=1, quiet=True)
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")
    assert not (tmp_path / "run" / ".shards.unfinished").exists()


def test_a_link_to_a_folder_of_shards_is_written_through(tmp_path, settings):
    (tmp_path / "disk" / "shards").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "shards").symlink_to(tmp_path / "disk" / "shards")
    run = train(settings, tmp_path / "run", stop_at=1, quiet=True)
    assert (run / "shards").is_symlink()
    assert (tmp_path / "disk" / "shards" / "index.json").is_file()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["shards"]


def test_finished_shards_are_not_prepared_again(tmp_path, settings, monkeypatch):
    run = train(settings, tmp_path / "run", stop_at=2, quiet=True)

    def stream(name):
        raise AssertionError(f"{name} is read")

    monkeypatch.setattr(corpus_mixture, "stream_corpus", stream)
    monkeypatch.setattr(training_shards, "stream_corpus", stream)
    train(settings, run, quiet=True)


@pytest.mark.parametrize(
    ("change", "text", "says"),
    [
        ({}, TEXT, r"pairs_per_shard \(19\) must be 0 if a text is given"),
        (
            {"dev": "", "test": ""},
            None,
            r"train\.tsv is read .*: name a corpus for dev and test \(--dev, --test\), or set",
        ),
        (
            {"test": ""},
            None,
            r"train\.tsv is read one pair after the other, .*: name a corpus for test \(--dev, --test\)",
        ),
        ({"max_pieces": 1}, None, r"max_pieces \(1\) leaves none of the pairs to train on"),
    ],
)
def test_prepare_shards_refuses_invalid_input(tmp_path, settings, change, text, says):
    with pytest.raises(ValueError, match=says):
        train(replace(settings, **change), tmp_path / "run", text=text, quiet=True)


def test_a_text_of_which_everything_is_held_out_is_refused(tmp_path, settings):
    write_table(tmp_path / "train.tsv", TEXT.dev)
    with pytest.raises(
        ValueError, match="the training text has no sentence pairs, because all of them share a sentence with dev"
    ):
        train(settings, tmp_path / "run", quiet=True)


def test_shards_hold_ids_so_words_cannot_be_cut_anew():
    for change in ({"subword_dropout": 0.1}, {"number_copies": 2}):
        with pytest.raises(ValueError, match=r"pairs_per_shard \(7\) stores ids instead of words, .* must be 0"):
            replace(TINY, pairs_per_shard=7, **change)


# -- Several processes -------------------------------------------------------------------------------


def train_quietly(settings, folder, stop_at):
    train(settings, folder, stop_at=stop_at, quiet=True)
    return os.getpid()


@pytest.mark.cpu_only("processes of the CPU, whatever else is there")
def test_several_processes_prepare_the_same_shards_as_one(tmp_path, settings, processes, monkeypatch):
    train(settings, tmp_path / "one", stop_at=1, quiet=True)
    processes.run(train_quietly, settings, tmp_path / "two", 1, num_processes=2, timeout=120)
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")
