"""scripts/bundle_model.py: from folders of a training to what the package carries."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from read_chapters import ROOT

from attn_course.training import Settings
from attn_course.training.checkpoint import load_checkpoint, save_checkpoint
from attn_course.translation.translator import BUNDLED

PARTS = ("translator_1", "translator_2", "translator_3", "translator_4")


@pytest.fixture
def runs(tmp_path):
    """The folders of the four parts of the training, as far as the package still has them."""
    for part in PARTS:
        run, prefix = tmp_path / part, "" if part == PARTS[-1] else f"{part}_"
        run.mkdir()
        settings = Settings.load(BUNDLED / f"{prefix}settings.toml")
        if settings.init_from:
            settings = replace(settings, init_from=(tmp_path / settings.init_from).as_posix())
        (run / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
        for name in ("metrics.jsonl", "data.json"):
            (run / name).write_bytes((BUNDLED / f"{prefix}{name}").read_bytes())
    weights, _ = load_checkpoint(BUNDLED / "best.safetensors")
    save_checkpoint(run / "best.safetensors", weights, {"of": "0.3 of the third part, 0.7 of the fourth"})
    for name in ("src.subwords.model", "tgt.subwords.model"):
        (run / name).write_bytes((BUNDLED / name).read_bytes())
    return tmp_path


def bundle(runs):
    command = [sys.executable, ROOT / "scripts" / "bundle_model.py", runs / PARTS[-1], "--to", runs / "bundled"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_writes_what_the_package_carries(runs):
    ended = bundle(runs)
    assert ended.returncode == 0, ended.stderr
    shipped = [path for path in BUNDLED.iterdir() if path.name != "results.json"]
    assert {path.name for path in (runs / "bundled").iterdir()} == {path.name for path in shipped}
    for path in shipped:
        written = runs / "bundled" / path.name
        if path.suffix == ".toml":  # which may leave out what has its default
            assert Settings.load(written) == Settings.load(path)
        elif path.suffix == ".safetensors":  # whose description may be another
            ours, theirs = load_checkpoint(written)[0], load_checkpoint(path)[0]
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        else:
            assert written.read_bytes() == path.read_bytes()


def test_a_part_that_is_missing_is_said_before_anything_is_written(runs):
    (runs / PARTS[1] / "data.json").unlink()
    ended = bundle(runs)
    assert ended.returncode == 2
    assert "data.json is missing" in ended.stderr
    assert not (runs / "bundled").exists()
