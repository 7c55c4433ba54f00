"""Training: settings, schedule, loss, checkpoints, and runs that are stopped, killed and shared by two processes."""

import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tolerance import allowed
from torch.testing import assert_close

from attn_course.data.corpus_mixture import Text, WordPair
from attn_course.data.subwords import PAD_ID, Subwords
from attn_course.training import (
    Settings,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
    train,
    translation_loss,
    write_atomically,
)
from attn_course.training import trainer as training_loop
from attn_course.training.run_dir import add_metrics, lock_run_dir
from attn_course.training.vocabulary_transfer import count_origins, match_pieces, transfer_embeddings

WHO = dict(zip("犬猫鳥馬魚", ["dogs", "cats", "birds", "horses", "fish"], strict=True))
DOES = dict(zip(["見る", "好む", "追う"], ["see", "like", "chase"], strict=True))
TINY = Settings(
    src_vocab_size=20,
    tgt_vocab_size=35,
    d_model=8,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=1,
    d_ff=16,
    dropout=0.3,
    steps=12,
    tokens_per_batch=40,
    warmup_steps=4,
    evaluate_every=4,
    save_every=3,
)


def make_text() -> Text:
    pairs = [
        WordPair([a, "が", b, "を", v], [WHO[a], DOES[v], WHO[b]]) for a in WHO for b in WHO if a != b for v in DOES
    ]
    random.Random(0).shuffle(pairs)
    return Text(pairs[:46], pairs[46:52], pairs[52:])


TEXT = make_text()


def tensors_of(folder, name="last.safetensors"):
    return load_checkpoint(Path(folder) / name)[0]


def metrics_of(folder):
    lines = (Path(folder) / "metrics.jsonl").read_text("utf-8").splitlines()
    measured = {"tokens_per_second", "cpu_minutes"}  # of time, not of the training
    return [{k: v for k, v in json.loads(line).items() if k not in measured} for line in lines]


def assert_same_run(ours, theirs):
    """Equal to the last bit: weights, optimizer, random state, the best weights, and what was measured."""
    for name in ("last.safetensors", "best.safetensors"):
        a, b = tensors_of(ours, name), tensors_of(theirs, name)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert metrics_of(ours) == metrics_of(theirs)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nobody interrupted."""
    return train(TINY, tmp_path_factory.mktemp("straight"), text=TEXT, quiet=True)


# -- Settings ----------------------------------------------------------------------------------------


def test_settings_survive_the_way_through_toml(tmp_path):
    settings = replace(TINY, corpora=("everyday", "tatoeba"), peak_lr=1e-3, norm_first=False, init_from="a\\b")
    (tmp_path / "s.toml").write_text(settings.to_toml(), "utf-8")
    assert Settings.load(tmp_path / "s.toml") == settings
    assert Settings.load(tmp_path / "s.toml", seed=7) == replace(settings, seed=7)


@pytest.mark.parametrize("folder", ["runs/😀", "試し", 'a"b', "a\tb\nc", "a\x7fb\x00", "\u2028", "\U0010ffff"])
def test_any_name_of_a_folder_survives_the_way_through_toml(tmp_path, folder):
    settings = replace(TINY, init_from=folder)
    (tmp_path / "s.toml").write_bytes(settings.to_toml().encode())
    assert Settings.load(tmp_path / "s.toml") == settings


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"init_from": "runs/\udcff"}, r"init_from \('runs/\\udcff'\) must be valid in UTF-8"),
        ({"schedule": "linear"}, r"schedule \('linear'\) must be 'inverse_sqrt' or 'cosine'"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"num_encoder_layers": 0}, r"num_encoder_layers \(0\) must be at least 1"),
        ({"warmup_steps": -1}, r"warmup_steps \(-1\) must be at least 0"),
        ({"peak_lr": 0.0}, r"peak_lr \(0.0\) must be above 0"),
        ({"peak_lr": math.nan}, r"peak_lr \(nan\) must be above 0"),
        ({"max_grad_norm": math.inf}, r"max_grad_norm \(inf\) must be above 0 and finite"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ({"subword_dropout": 1.0}, r"subword_dropout \(1.0\) must be at least 0 and below 1"),
        ({"label_smoothing": -0.1}, r"label_smoothing \(-0.1\) must be at least 0 and below 1"),
        ({"max_pieces": 256}, r"max_pieces \(256\) must be below 256"),
        ({"num_heads": 3}, r"d_model \(8\) must be even, and num_heads \(3\) must divide it"),
        ({"corpora": ()}, "corpora must name at least one corpus"),
        ({"new_vocabularies": True}, "new_vocabularies needs init_from, which is empty"),
        ({"number_copies": -1}, r"number_copies \(-1\) must be at least 0"),
        ({"grad_accum_steps": 0}, r"grad_accum_steps \(0\) must be at least 1"),
        ({"pairs_per_shard": -1}, r"pairs_per_shard \(-1\) must be at least 0"),
        ({"ema_decay": 1.0}, r"ema_decay \(1.0\) must be at least 0 and below 1"),
        ({"required_characters": "7\ud800"}, r"required_characters \('7\\ud800'\) must be valid in UTF-8"),
    ],
)
def test_settings_without_meaning_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(TINY, **change)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": 10.5}, r"steps \(10.5\) must have the type int"),
        ({"steps": True}, r"steps \(True\) must have the type int"),
        ({"norm_first": 1}, r"norm_first \(1\) must have the type bool"),
        ({"peak_lr": "high"}, r"peak_lr \('high'\) must have the type float"),
        ({"corpora": "everyday"}, r"corpora \('everyday'\) must be a list of names"),
    ],
)
def test_settings_of_the_wrong_type_are_refused(change, says):
    with pytest.raises(TypeError, match=says):
        replace(TINY, **change)


def test_a_settings_file_says_what_is_wrong_with_it(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("steps = 10\nstepz = 3\n", "utf-8")
    with pytest.raises(ValueError, match=r"s\.toml: unknown settings stepz; known are beta2, bfloat16"):
        Settings.load(path)
    path.write_text("steps = \n", "utf-8")
    with pytest.raises(ValueError, match=r"s\.toml cannot be read as TOML: .*line 1"):
        Settings.load(path)
    path.write_text("peak_lr = 1\ncorpora = ['tatoeba']\n", "utf-8")
    assert Settings.load(path).peak_lr == 1.0
    assert Settings.load(path).corpora == ("tatoeba",)


# -- Schedule and loss -------------------------------------------------------------------------------


def test_the_rate_rises_in_a_line_to_its_peak_and_falls_like_the_root_or_the_cosine():
    settings = Settings(peak_lr=2.0, warmup_steps=10, steps=110)
    assert [learning_rate(t, settings) for t in (1, 5, 10, 40, 1000)] == [0.2, 1.0, 2.0, 1.0, 0.2]
    cosine = replace(settings, schedule="cosine")
    found = [learning_rate(t, cosine) for t in (1, 5, 10, 60, 110, 111)]
    assert found == pytest.approx([0.2, 1.0, 2.0, 1.0, 0.0, 0.0], abs=1e-12)


def test_the_paper_s_schedule_is_the_root_one_with_its_peak():
    d_model, warmup = 512, 4000
    settings = Settings(warmup_steps=warmup, peak_lr=d_model**-0.5 * warmup**-0.5)
    for t in (1, 7, 3999, 4000, 4001, 100_000):
        assert learning_rate(t, settings) == pytest.approx(d_model**-0.5 * min(t**-0.5, t * warmup**-1.5))


def test_without_warm_up_the_first_step_has_the_full_rate():
    for schedule in ("inverse_sqrt", "cosine"):
        assert learning_rate(1, Settings(warmup_steps=0, peak_lr=0.5, schedule=schedule)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"step \(0\) must be at least 1"):
        learning_rate(0, Settings())


def test_the_loss_is_a_sum_over_tokens_in_which_padding_has_no_part():
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 7, generator=rng, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([[1, 2, 3, 4, 5], [6, 2, 0, 0, 0], [3, 0, 0, 0, 0]])
    for smoothing in (0.0, 0.1):
        log_probs, expected = logits.log_softmax(-1), 0.0
        for b in range(3):
            for t in range(5):
                if target[b, t] != PAD_ID:
                    label = torch.full((7,), smoothing / 7, dtype=torch.float64)
                    label[target[b, t]] += 1 - smoothing
                    expected = expected - (label * log_probs[b, t]).sum()
        loss = translation_loss(logits, target, label_smoothing=smoothing)
        assert_close(loss, expected)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert torch.equal(gradient[1:][target[1:] == PAD_ID], torch.zeros(7, 7, dtype=torch.float64))


@pytest.mark.bad_input
def test_targets_of_another_shape_are_refused_instead_of_being_read_across_rows():
    with pytest.raises(ValueError, match=r"logits \(2, 3, 7\) must be \(B, T, V\) for targets \(B, T\), here \(3, 2\)"):
        translation_loss(torch.zeros(2, 3, 7), torch.ones(3, 2, dtype=torch.long))


# -- Checkpoints -------------------------------------------------------------------------------------


@pytest.mark.cpu_only("a file, which is read to the CPU")
def test_a_checkpoint_gives_back_what_was_written(tmp_path):
    tensors = {"a": torch.randn(2, 3), "b.c": torch.arange(5), "rng": torch.get_rng_state(), "e": torch.zeros(0)}
    save_checkpoint(tmp_path / "c", tensors, {"step": 7, "name": "日本"})
    found, about = load_checkpoint(tmp_path / "c")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert about == {"step": 7, "name": "日本"}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


HEADERS = [
    "null",
    "[]",
    '{"__metadata__": null}',
    '{"__metadata__": {"about": 3}}',
    '{"__metadata__": {"about": "[1]"}}',
]


@pytest.mark.parametrize("damage", ["empty", "cut in the header", "cut in the numbers", "one bit", "text", *HEADERS])
def test_a_damaged_checkpoint_is_refused_by_its_name(tmp_path, damage):
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, {"a": torch.ones(50)}, {})
    content = path.read_bytes()
    path.write_bytes(
        {
            **{header: len(header).to_bytes(8, "little") + header.encode() for header in HEADERS},
            "empty": b"",
            "cut in the header": content[:40],
            "cut in the numbers": content[:-30],
            "one bit": content[:-30] + bytes([content[-30] ^ 1]) + content[-29:],
            "text": b"no checkpoint at all, but long enough for a header",
        }[damage]
    )
    with pytest.raises(ValueError, match=r"last\.safetensors is damaged: "):
        load_checkpoint(path)


def test_a_run_with_a_damaged_checkpoint_says_so_and_changes_nothing(tmp_path, straight):
    for path in straight.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    cut = (tmp_path / "last.safetensors").read_bytes()[:-100]
    (tmp_path / "last.safetensors").write_bytes(cut)
    metrics = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"last\.safetensors is damaged"):
        train(TINY, tmp_path, text=TEXT, quiet=True)
    assert (tmp_path / "last.safetensors").read_bytes() == cut
    assert (tmp_path / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_while_a_checkpoint_is_written_leaves_the_old_one(tmp_path, moment):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, {"a": torch.ones(3)}, {"step": 1})
    # In the child the named call ends the process like kill -9, after the content was handed to the file.
    child = (
        "import os, signal\n"
        "from attn_course.training.checkpoint import write_atomically\n"
        f"os.{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_atomically({str(path)!r}, b'half')\n"
    )
    ended = subprocess.run([sys.executable, "-c", child], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert load_checkpoint(path)[1] == {"step": 1}
    save_checkpoint(path, {"a": torch.zeros(3)}, {"step": 2})  # what the kill has left is in nobody's way
    assert load_checkpoint(path)[1] == {"step": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_run_that_cannot_start_names_the_reason(tmp_path):
    with pytest.raises(OSError, match=r"c could not be written \(No such file or directory\); the old file"):
        write_atomically(tmp_path / "missing" / "c", b"new")


def test_a_full_disk_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch):
    path = tmp_path / "c"
    write_atomically(path, b"old")

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"c could not be written \(No space left on device\); the old file"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_write_atomically_keeps_the_mode_and_writes_through_a_link(tmp_path):
    path, link, new = tmp_path / "disk" / "c", tmp_path / "link", tmp_path / "new"
    path.parent.mkdir()
    path.write_bytes(b"old")
    path.chmod(0o600)
    link.symlink_to(path)
    write_atomically(link, b"newer")
    assert link.readlink() == path
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"newer", 0o600)
    write_atomically(new, b"new")
    (tmp_path / "plain").write_bytes(b"")
    assert new.stat().st_mode == (tmp_path / "plain").stat().st_mode  # as the umask wants it
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["c", "disk", "link", "new", "plain"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on Windows")
def test_write_atomically_writes_into_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"new")
    assert (os.read(reader, 10), pipe.is_fifo()) == (b"new", True)
    os.close(reader)


# -- Stopping and going on ---------------------------------------------------------------------------


def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not_been(tmp_path, straight):
    for step in (1, 2, 5, 11, 12):
        train(TINY, tmp_path, text=TEXT, stop_at=step, quiet=True)
    assert_same_run(tmp_path, straight)


def test_subword_dropout_draws_the_same_pieces_after_a_stop(tmp_path):
    settings = replace(TINY, subword_dropout=0.3, steps=20)
    run = training_loop.Trainer(settings, train(settings, tmp_path / "one", text=TEXT, quiet=True), TEXT)
    assert run.state["epoch"] >= 1  # of the 20 steps, some are in a second epoch
    for step in (1, 18, 20):
        train(settings, tmp_path / "two", text=TEXT, stop_at=step, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_steps_after_the_last_checkpoint_are_made_again_and_measured_once(tmp_path, straight):
    train(TINY, tmp_path, text=TEXT, stop_at=7, quiet=True)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    train(TINY, tmp_path, text=TEXT, stop_at=9, quiet=True)
    # As after a hard end: the checkpoint is that of step 7, but step 8 was measured, and a line was cut short.
    (tmp_path / "last.safetensors").write_bytes(kept["last.safetensors"])
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 12, "ep')
    train(TINY, tmp_path, text=TEXT, quiet=True)
    assert_same_run(tmp_path, straight)


CHILD = """
import sys
sys.path[:0] = {tests!r}
import attn_course.training.trainer as loop
from test_training import TEXT, TINY
step = loop.Trainer.step
def announce(self, batch, **kwargs):
    if self.state["step"] < {slow}:
        print(self.state["step"], flush=True)
    found = step(self, batch, **kwargs)
    if self.state["step"] == {slow}:
        import time
        time.sleep({pause})
    return found
loop.Trainer.step = announce
loop.train(TINY, sys.argv[1], text=TEXT, quiet=True)
"""


def start_child(folder, *, slow, pause=30):
    """A process that trains, and waits in one step to be stopped there."""
    code = CHILD.format(tests=[str(Path(__file__).parent), str(Path(__file__).parents[1])], slow=slow, pause=pause)
    child = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    next(line for line in child.stdout if int(line) == slow - 1)
    return child


def test_kill_9_loses_the_steps_since_the_last_checkpoint_and_nothing_else(tmp_path, straight):
    step = random.randrange(4, 12)
    with start_child(tmp_path, slow=step) as child:
        child.kill()
    assert child.returncode == -signal.SIGKILL, f"killed in step {step}"
    done = load_checkpoint(tmp_path / "last.safetensors")[1]["step"]
    assert 0 <= step - 1 - done < TINY.save_every, f"killed in step {step}"
    train(TINY, tmp_path, text=TEXT, quiet=True)
    assert_same_run(tmp_path, straight)


def test_a_folder_in_a_folder_that_is_not_there_is_made(tmp_path):
    folder = tmp_path / "runs" / "first"
    train(TINY, folder, text=TEXT, stop_at=1, quiet=True)
    assert (folder / "settings.toml").exists()


def test_only_one_process_trains_in_a_folder_and_kill_9_sets_it_free(tmp_path):
    with start_child(tmp_path, slow=2) as child:
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(BlockingIOError, match=rf"is in use: process {child.pid} trains in it; wait for its end"):
            train(replace(TINY, seed=1), tmp_path, text=TEXT, quiet=True)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        child.kill()
    train(replace(TINY, seed=1), tmp_path, text=TEXT, stop_at=1, quiet=True)
    assert Settings.load(tmp_path / "settings.toml").seed == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(tmp_path, straight, name):
    step = random.randrange(2, 11)
    with start_child(tmp_path, slow=step, pause=1) as child:
        time.sleep(0.3)  # it is in the step, or waits at its end
        child.send_signal(getattr(signal, name))
    assert child.returncode == 0
    done = load_checkpoint(tmp_path / "last.safetensors")[1]["step"]
    assert done in (step, step + 1), f"stopped in step {step}"  # a step that has begun is finished
    train(TINY, tmp_path, text=TEXT, quiet=True)
    assert_same_run(tmp_path, straight)


@pytest.mark.parametrize("said", [None, "", "no number", b"\xff"])
def test_a_folder_in_use_is_refused_though_its_holder_cannot_be_read(tmp_path, said, monkeypatch):
    def reads(path, *given, **options):
        if said is None:
            raise PermissionError(path)
        return said.decode() if isinstance(said, bytes) else said

    with lock_run_dir(tmp_path):
        monkeypatch.setattr(Path, "read_text", reads)
        with pytest.raises(BlockingIOError, match="is in use: another process trains in it"), lock_run_dir(tmp_path):
            pass


def test_after_a_run_signals_are_handled_as_before(tmp_path):
    names = (signal.SIGINT, signal.SIGTERM)
    before = {name: signal.getsignal(name) for name in names}
    ours = {name: lambda number, frame: None for name in names}
    for name in names:
        signal.signal(name, ours[name])
    try:
        train(TINY, tmp_path, text=TEXT, stop_at=1, quiet=True)
        assert {name: signal.getsignal(name) for name in names} == ours
    finally:
        for name in names:
            signal.signal(name, before[name])


def test_a_run_that_has_reached_its_steps_says_so_and_makes_no_more(tmp_path, straight, capsys):
    for path in straight.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    train(TINY, tmp_path, text=TEXT)
    assert "has been trained for 12 steps already" in capsys.readouterr().out
    assert_same_run(tmp_path, straight)


def test_a_run_stopped_at_what_is_its_last_step_now_is_measured_then(tmp_path):
    train(TINY, tmp_path / "straight", text=TEXT, stop_at=3, quiet=True)
    assert not (tmp_path / "straight" / "best.safetensors").exists()
    train(replace(TINY, steps=3), tmp_path / "straight", text=TEXT, quiet=True)
    train(replace(TINY, steps=3), tmp_path / "short", text=TEXT, quiet=True)
    assert_same_run(tmp_path / "straight", tmp_path / "short")


def test_best_weights_that_have_been_removed_are_replaced_by_the_last(tmp_path, straight):
    for path in straight.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "best.safetensors").unlink()
    train(TINY, tmp_path, text=TEXT, quiet=True)
    best, last = tensors_of(tmp_path, "best.safetensors"), tensors_of(tmp_path)
    assert all(torch.equal(best[name], last[f"model.{name}"]) for name in best)
    best_bleu = load_checkpoint(tmp_path / "last.safetensors")[1]["best_bleu"]
    assert best_bleu == pytest.approx(metrics_of(tmp_path)[-1]["dev_bleu"], abs=5e-4)
    assert [record["step"] for record in metrics_of(tmp_path)] == [4, 8, 12]


def test_more_steps_can_be_asked_for_where_the_schedule_knows_no_end(tmp_path, straight):
    train(replace(TINY, steps=5), tmp_path, text=TEXT, quiet=True)
    train(TINY, tmp_path, text=TEXT, quiet=True)
    theirs, ours = tensors_of(straight), tensors_of(tmp_path)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_cosine_and_other_settings_cannot_be_changed_in_the_middle(tmp_path):
    cosine = replace(TINY, schedule="cosine", steps=4)
    train(cosine, tmp_path, text=TEXT, stop_at=2, quiet=True)
    with pytest.raises(ValueError, match=r"holds a run with other settings: steps \(4 there, 5 now\)"):
        train(replace(cosine, steps=5), tmp_path, text=TEXT, quiet=True)
    with pytest.raises(ValueError, match=r"other settings: d_model \(8 there, 16 now\), seed \(0 there, 1 now\)"):
        train(replace(cosine, d_model=16, seed=1), tmp_path, text=TEXT, quiet=True)
    with pytest.raises(ValueError, match=r"holds a run on another text: its train part has 46 pairs"):
        train(cosine, tmp_path, text=TEXT._replace(train=TEXT.train[1:]), quiet=True)


def test_a_vocabulary_without_a_checkpoint_is_made_anew(tmp_path, straight):
    """A run that dies before its first checkpoint leaves its vocabularies; the next may have other settings."""
    for name in ("src.subwords.model", "tgt.subwords.model", "best.safetensors", "metrics.jsonl"):
        (tmp_path / name).write_bytes((straight / name).read_bytes())
    train(replace(TINY, tgt_vocab_size=33), tmp_path, text=TEXT, stop_at=1, quiet=True)
    assert len(Subwords.load(tmp_path / "tgt.subwords.model")) == 33
    assert not (tmp_path / "best.safetensors").exists()  # that of other settings
    data = json.loads((tmp_path / "data.json").read_text("utf-8"))
    for name in ("src.subwords.model", "tgt.subwords.model"):
        assert data["vocabularies"][name] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_a_run_that_begins_with_another_takes_its_vocabularies_whatever_the_folder_has(tmp_path, straight):
    train(replace(TINY, tgt_vocab_size=33), tmp_path, text=TEXT, stop_at=1, quiet=True)
    (tmp_path / "last.safetensors").unlink()
    train(replace(TINY, init_from=str(straight)), tmp_path, text=TEXT, stop_at=1, quiet=True)
    assert (tmp_path / "tgt.subwords.model").read_bytes() == (straight / "tgt.subwords.model").read_bytes()


def test_a_run_goes_on_with_its_own_vocabulary_only(tmp_path, straight):
    train(TINY, tmp_path, text=TEXT, stop_at=5, quiet=True)
    (tmp_path / "src.subwords.model").unlink()  # the same text and settings give the same one
    train(TINY, tmp_path, text=TEXT, stop_at=6, quiet=True)
    other = Subwords.train([pair.ja for pair in TEXT.train[:9]], 20, spaces=False)
    (tmp_path / "src.subwords.model").write_bytes(other.model)
    with pytest.raises(ValueError, match=r"src\.subwords\.model is not the vocabulary of the run in this folder"):
        train(TINY, tmp_path, text=TEXT, quiet=True)
    (tmp_path / "src.subwords.model").write_bytes((straight / "src.subwords.model").read_bytes())
    train(TINY, tmp_path, text=TEXT, quiet=True)
    assert_same_run(tmp_path, straight)


# -- What goes wrong ---------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_stops_the_run_and_spares_the_checkpoint(tmp_path, monkeypatch):
    train(TINY, tmp_path, text=TEXT, stop_at=3, quiet=True)
    before = (tmp_path / "last.safetensors").read_bytes()
    monkeypatch.setattr(training_loop, "translation_loss", lambda logits, *_, **__: logits.sum() * math.nan)
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 4 \(learning rate 0.002\): try a lower"):
        train(TINY, tmp_path, text=TEXT, quiet=True)
    assert (tmp_path / "last.safetensors").read_bytes() == before
    with pytest.raises(FloatingPointError, match=r"at step 1 .*max_grad_norm; there is no checkpoint yet$"):
        train(TINY, tmp_path / "other", text=TEXT, quiet=True)


def test_a_gradient_that_is_infinite_stops_the_run_before_it_reaches_the_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(training_loop, "translation_loss", lambda logits, *_, **__: logits.abs().sum().sqrt() * 0 + 1)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(math.inf))
    with pytest.raises(FloatingPointError, match="the gradient is inf at step 1"):
        train(TINY, tmp_path, text=TEXT, quiet=True)
    assert not (tmp_path / "last.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "text", "error", "says"),
    [
        ({}, TEXT._replace(train=[]), ValueError, "the training text has no sentence pairs"),
        ({}, TEXT._replace(dev=[]), ValueError, "the dev text has no sentence pairs"),
        ({"src_vocab_size": 500}, TEXT, ValueError, r"src_vocab_size \(500\) must be at most \d+"),
        ({"tgt_vocab_size": 6}, TEXT, ValueError, r"tgt_vocab_size \(6\) must be at least \d+"),
        ({"max_pieces": 1}, TEXT, ValueError, r"max_pieces \(1\) leaves none of the 46 pairs"),
        ({"init_from": "no/such/run"}, TEXT, FileNotFoundError, r"init_from \('no/such/run'\) must be the folder"),
    ],
)
def test_training_refuses_invalid_input(tmp_path, change, text, error, says):
    with pytest.raises(error, match=says):
        train(replace(TINY, **change), tmp_path, text=text, quiet=True)


def test_weights_of_another_run_that_do_not_fit_the_settings_are_refused(tmp_path, straight):
    with pytest.raises(
        ValueError, match=r"the weights in .*best\.safetensors do not fit the settings: .*size mismatch"
    ):
        train(replace(TINY, init_from=str(straight), d_ff=32), tmp_path, text=TEXT, quiet=True)


def test_a_run_can_begin_with_another_s_weights_and_vocabularies_of_its_own(tmp_path, straight):
    settings = replace(
        *(TINY,), init_from=str(straight), new_vocabularies=True, required_characters="7", src_vocab_size=21,
        tgt_vocab_size=33, steps=1, peak_lr=1e-9, weight_decay=0.0,
    )  # fmt: skip
    train(settings, tmp_path, text=TEXT, quiet=True)
    ours, theirs = tensors_of(tmp_path), tensors_of(straight, "best.safetensors")
    said = json.loads((tmp_path / "data.json").read_text("utf-8"))["carried_over"]
    for side in ("src", "tgt"):
        old, new = (Subwords.load(folder / f"{side}.subwords.model") for folder in (straight, tmp_path))
        ids = {old.piece(i): i for i in range(len(old))}
        assert len(new) == getattr(settings, f"{side}_vocab_size")
        rows, counts = ours[f"model.{side}_embed.weight"], dict.fromkeys(("kept", "mean_of_several", "new"), 0)
        for i, piece in enumerate(map(new.piece, range(len(new)))):
            if piece in ids:
                counts["kept"] += 1
                assert_close(rows[i], theirs[f"{side}_embed.weight"][ids[piece]], rtol=0, atol=1e-7)
            elif set(piece) <= ids.keys():  # its letters, which here are all the smaller pieces there can be
                counts["mean_of_several"] += 1
            else:
                counts["new"] += 1
                assert piece == "7"
        assert counts == said[f"{side}.subwords.model"]
        assert counts["new"] == 1
    for name in set(theirs) - {"src_embed.weight", "tgt_embed.weight"}:
        assert_close(ours[f"model.{name}"], theirs[name], rtol=0, atol=1e-7)


def test_a_run_continues_without_the_folder_of_init_from(tmp_path, straight):
    shutil.copytree(straight, tmp_path / "first")
    settings = replace(TINY, init_from=str(tmp_path / "first"), new_vocabularies=True, tgt_vocab_size=34)
    train(settings, tmp_path / "one", text=TEXT, quiet=True)
    train(settings, tmp_path / "two", text=TEXT, stop_at=5, quiet=True)
    shutil.rmtree(tmp_path / "first")
    train(settings, tmp_path / "two", text=TEXT, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")
    assert (tmp_path / "two" / "data.json").read_text("utf-8") == (tmp_path / "one" / "data.json").read_text("utf-8")


def test_the_rows_of_a_piece_are_the_mean_of_those_that_spell_it():
    old = Subwords.train([["ab", "abc", "ca"]] * 5, 9, spaces=True)
    new = Subwords.train([["abca", "abx"]] * 5, 13, spaces=True)
    table, fresh = torch.randn(9, 3), torch.randn(13, 3)
    origins = match_pieces(old, new)
    found = transfer_embeddings(table, fresh, origins)
    pieces = [old.piece(i) for i in range(len(old))]
    sizes = {"one": 0, "several": 0, "none": 0}
    for i in range(len(new)):
        piece = new.piece(i)
        if piece in pieces:
            kind, expected = "one", table[pieces.index(piece)]
        elif "x" in piece:
            kind, expected = "none", fresh[i]
        else:
            spelled = [old.piece(j) for j in origins[i]]
            assert "".join(spelled) == piece
            assert len(spelled) > 1
            kind, expected = "several", sum(table[pieces.index(p)] for p in spelled) / len(spelled)
        sizes[kind] += 1
        assert_close(found[i], expected)
    assert min(sizes.values()) > 0
    assert list(count_origins(origins).values()) == list(sizes.values())


def test_raw_text_is_read_in_pieces_that_may_reach_over_words(tmp_path):
    settings = replace(TINY, src_words=False)
    run = training_loop.Trainer(settings, train(settings, tmp_path / "one", text=TEXT, quiet=True), TEXT)
    plain = Subwords.load(tmp_path / "one" / "src.subwords.model")
    assert [src for src, _ in run.pipeline.pairs] == [plain.encode(["".join(ja)]) for ja, _ in TEXT.train]
    assert plain.model == Subwords.train([ja for ja, _ in TEXT.train], 20, spaces=False).model  # learned within words
    train(settings, tmp_path / "two", text=TEXT, stop_at=5, quiet=True)
    train(settings, tmp_path / "two", text=TEXT, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")


NUMBERED = TEXT._replace(
    train=[*TEXT.train[:30], *(WordPair(["犬", "が", str(n), "匹"], [str(n), "dogs"]) for n in range(10, 22))],
    test=[WordPair(["犬", "が", str(n), "匹"], [str(n), "dogs"]) for n in range(22, 60)],
)


@pytest.mark.parametrize("src_words", [True, False])
def test_pairs_with_numbers_come_again_with_others_in_each_epoch(tmp_path, src_words):
    settings = replace(
        *(TINY,), number_copies=3, required_characters="0123456789,", split_digits=True, src_vocab_size=30,
        tgt_vocab_size=50, src_words=src_words, steps=20, max_pieces=9,
    )  # fmt: skip
    run = training_loop.Trainer(settings, train(settings, tmp_path / "one", text=NUMBERED, quiet=True), NUMBERED)
    assert run.state["epoch"] >= 1
    epochs = []
    for epoch in (0, 0, 1):
        epochs.append(run.pipeline.vary_numbers(epoch))
    assert epochs[0] == epochs[1] != epochs[2]
    held_out = {" ".join(en) for _, en in NUMBERED.test}
    for epoch in epochs:
        assert 18 < len(epoch) <= 36  # less those that are in the test text now
        for src, tgt in epoch:
            ja, en = run.pipeline.src_subwords.decode(src), run.pipeline.tgt_subwords.decode(tgt)
            number = re.fullmatch("犬が([0-9,]+)匹", ja)[1]
            assert en == f"{number} dogs"
            assert en not in held_out
    assert len({tuple(tgt) for epoch in epochs for _, tgt in epoch}) > 40
    for step in (1, 9, 20):
        train(settings, tmp_path / "two", text=NUMBERED, stop_at=step, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_the_weight_average_is_saved_and_continues_after_a_stop(tmp_path):
    settings = replace(TINY, ema_decay=0.8, steps=8, save_every=1, evaluate_every=8)
    train(settings, tmp_path / "one", text=TEXT, quiet=True)
    torch.manual_seed(settings.seed)
    begin = training_loop.make_model(settings, 20, 35).state_dict()
    mean = {name: begin[name] for name in tensors_of(tmp_path / "one", "best.safetensors")}
    for step in range(1, 9):
        train(settings, tmp_path / "two", text=TEXT, stop_at=step, quiet=True)
        weights = tensors_of(tmp_path / "two")
        decay = min(0.8, step / (step + 10))
        mean = {name: decay * mean[name] + (1 - decay) * weights[f"model.{name}"] for name in mean}
    assert_same_run(tmp_path / "two", tmp_path / "one")
    for name, kept in tensors_of(tmp_path / "one", "best.safetensors").items():
        assert_close(kept, mean[name], rtol=1e-4, atol=1e-6)


@pytest.mark.cpu_only("autocast, which a device written in Python does not have")
def test_in_bfloat16_the_weights_stay_float32_and_the_losses_nearly_what_they_were(tmp_path, straight, monkeypatch):
    monkeypatch.setattr(training_loop, "has_bfloat16", lambda device: True)  # slow where it has not, but the same
    settings = replace(TINY, bfloat16=True)
    train(settings, tmp_path / "one", text=TEXT, quiet=True)
    assert {t.dtype for n, t in tensors_of(tmp_path / "one").items() if n.startswith("model")} == {torch.float32}
    ours, theirs = ([record["loss"] for record in metrics_of(folder)] for folder in (tmp_path / "one", straight))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=2**-8 * 5)
    train(settings, tmp_path / "two", text=TEXT, stop_at=5, quiet=True)
    train(settings, tmp_path / "two", text=TEXT, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_without_bfloat16_support_a_warning_says_that_float32_is_used(tmp_path, straight, monkeypatch, capsys):
    monkeypatch.setattr(training_loop, "has_bfloat16", lambda device: False)
    train(replace(TINY, bfloat16=True), tmp_path, text=TEXT, quiet=True)
    assert re.fullmatch(
        r"bfloat16 is set, but this \w+ does not support it: training in float32\n", capsys.readouterr().err
    )
    assert_same_run(tmp_path, straight)


def test_the_folder_says_what_was_trained_on(straight):
    data = json.loads((straight / "data.json").read_text("utf-8"))
    assert data["corpora"] == ["everyday"]
    assert [data[part]["pairs"] for part in ("train", "dev", "test")] == [46, 6, 8]
    assert len({data[part]["sha256"] for part in ("train", "dev", "test")}) == 3
    assert Settings.load(straight / "settings.toml") == TINY


@pytest.mark.parametrize("line", ['{"x": 1}', "{1}", '{"step": "four"}'])
def test_damaged_metrics_raise_an_error_with_the_line(tmp_path, line):
    train(TINY, tmp_path, text=TEXT, stop_at=5, quiet=True)
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged: line 2 must be a record with a step"):
        train(TINY, tmp_path, text=TEXT, quiet=True)


def test_metrics_that_cannot_be_written_are_named_and_those_that_are_there_stay(tmp_path, straight, monkeypatch):
    (tmp_path / "m.jsonl").write_text("old\n", "utf-8")

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match=r"m\.jsonl could not be written \(No space left on device\)"):
        add_metrics(tmp_path / "m.jsonl", {"step": 7})
    assert (tmp_path / "m.jsonl").read_text("utf-8") == "old\n"


# -- Two processes -----------------------------------------------------------------------------------


PROCESSES = """
import os
import sys
sys.path[:0] = {tests!r}
from dataclasses import replace
from pathlib import Path
import torch
from attn_course.training import join_processes, train
from test_training import TEXT, TINY
with join_processes():
    exact = replace(TINY, dropout=0.0, steps=9, evaluate_every=9)
    train(exact, sys.argv[1] + "/exact", text=TEXT, quiet=True)
    with open(sys.argv[1] + "/seed" + os.environ["RANK"], "w") as file:
        file.write(str(torch.initial_seed()))
    train(TINY, sys.argv[1] + "/dropout", text=TEXT, stop_at=5, quiet=True)
    train(TINY, sys.argv[1] + "/dropout", text=TEXT, quiet=True)
    train(TINY, sys.argv[1] + "/straight", text=TEXT, quiet=True)
threads = [(task / "comm").read_text() for task in Path("/proc/self/task").glob("*")]  # none where there is no /proc
with open(sys.argv[1] + "/threads" + os.environ["RANK"], "w") as file:
    file.writelines(threads)
"""


@pytest.mark.cpu_only("two processes of the CPU, whatever else is there")
def test_two_processes_are_one_with_the_doubled_batch_and_go_on_like_one(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(PROCESSES.format(tests=[str(Path(__file__).parent), str(Path(__file__).parents[1])]), "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ATTN_COURSE_DEVICE": "cpu"}
    ended = subprocess.run(
        [*command, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    one = replace(TINY, dropout=0.0, steps=9, evaluate_every=9, tokens_per_batch=2 * TINY.tokens_per_batch)
    train(one, tmp_path / "one", text=TEXT, quiet=True)
    ours, theirs = tensors_of(tmp_path / "exact"), tensors_of(tmp_path / "one")
    for name, tensor in theirs.items():
        # A key's bias adds the same to all scores of a query, so its gradient is rounding errors and nothing else.
        if name.startswith("model.") and not name.endswith("k_proj.bias"):
            assert_close(ours[name], tensor, rtol=0, atol=1e-6)
    loss, expected = (metrics_of(tmp_path / run)[0]["loss"] for run in ("exact", "one"))
    assert loss == pytest.approx(expected, abs=2e-6)
    assert_same_run(tmp_path / "dropout", tmp_path / "straight")
    seeds = [(tmp_path / f"seed{rank}").read_text("utf-8") for rank in range(2)]
    assert seeds == ["0", "1"]  # they drop other units
    # What still ran of the group's threads would run while Python ends, which aborts now and then.
    assert all("gloo" not in (tmp_path / f"threads{rank}").read_text("utf-8") for rank in range(2))
    assert {"rng", "rng.1"} <= tensors_of(tmp_path / "straight").keys()


def train_in_float64(settings, folder, stop_at=None):
    torch.set_default_dtype(torch.float64)
    try:
        train(settings, folder, text=TEXT, stop_at=stop_at, quiet=True)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.cpu_only("four processes of the CPU, whatever else is there")
def test_one_two_and_four_processes_make_the_same_steps_and_can_resume_each_other(tmp_path, processes):
    """With dropout, too: each of the four parts of a batch drops the same units, whoever computes it."""
    settings = replace(TINY, steps=9, evaluate_every=9, tokens_per_batch=14)
    train_in_float64(replace(settings, grad_accum_steps=4), tmp_path / "one")
    processes.run(
        train_in_float64, replace(settings, grad_accum_steps=2), tmp_path / "two", num_processes=2, timeout=120
    )
    processes.run(train_in_float64, settings, tmp_path / "four", timeout=120)
    processes.run(train_in_float64, settings, tmp_path / "moved", 2, timeout=120)
    processes.run(train_in_float64, settings, tmp_path / "moved", 4, num_processes=3, timeout=120)
    processes.run(train_in_float64, settings, tmp_path / "moved", 6, num_processes=2, timeout=120)
    train_in_float64(settings, tmp_path / "moved")
    # A rounding becomes at most so much where a gradient is as small as the 1e-8 that Adam divides by at least.
    rounding = allowed(torch.float64, terms=4 * settings.tokens_per_batch, depth=30)["atol"] / 1e-8
    way = sum(learning_rate(step, settings) for step in range(1, 10))
    one = tensors_of(tmp_path / "one")
    for folder in ("two", "four", "moved"):
        ours = tensors_of(tmp_path / folder)
        assert ours.keys() == one.keys()
        for name, tensor in one.items():
            if name.startswith("rng"):
                assert torch.equal(ours[name], tensor), name
            elif name.startswith("model."):
                assert tensor.dtype == torch.float64
                assert_close(ours[name], tensor, rtol=0, atol=rounding * way)
        assert metrics_of(tmp_path / folder)[0]["loss"] == pytest.approx(
            metrics_of(tmp_path / "one")[0]["loss"], abs=2e-6
        )


@pytest.mark.cpu_only("the arithmetic of the loop, in float64")
def test_gradient_accumulation_equals_a_larger_batch(tmp_path):
    exact = replace(TINY, dropout=0.0, steps=9, evaluate_every=9)
    train_in_float64(replace(exact, tokens_per_batch=14, grad_accum_steps=3), tmp_path / "three")
    train_in_float64(replace(exact, tokens_per_batch=42), tmp_path / "one")
    rounding = allowed(torch.float64, terms=42, depth=30)["atol"] / 1e-8
    way = sum(learning_rate(step, exact) for step in range(1, 10))
    three = tensors_of(tmp_path / "three")
    for name, tensor in tensors_of(tmp_path / "one").items():
        if name.startswith("model."):
            assert_close(three[name], tensor, rtol=0, atol=rounding * way)


def test_gradient_accumulation_continues_exactly_after_a_stop(tmp_path):
    settings = replace(TINY, grad_accum_steps=3, tokens_per_batch=14)
    train(settings, tmp_path / "one", text=TEXT, quiet=True)
    for step in (1, 4, 12):
        train(settings, tmp_path / "two", text=TEXT, stop_at=step, quiet=True)
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.cpu_only("four processes of the CPU, whatever else is there")
def test_more_processes_than_a_run_began_with_take_smaller_parts_of_the_same_batches(tmp_path, processes):
    exact = replace(TINY, dropout=0.0, steps=6, evaluate_every=6)
    train_in_float64(exact, tmp_path / "one")
    train_in_float64(exact, tmp_path / "more", 2)
    processes.run(train_in_float64, exact, tmp_path / "more", 4, timeout=120)
    processes.run(train_in_float64, exact, tmp_path / "more", num_processes=2, timeout=120)
    rounding = allowed(torch.float64, terms=40, depth=30)["atol"] / 1e-8
    way = sum(learning_rate(step, exact) for step in range(1, 7))
    more = tensors_of(tmp_path / "more")
    for name, tensor in tensors_of(tmp_path / "one").items():
        if name.startswith("model."):
            assert_close(more[name], tensor, rtol=0, atol=rounding * way)
