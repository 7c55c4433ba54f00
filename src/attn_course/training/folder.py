"""What stands in the folder of a training run beside its checkpoints. Used in chapter 12."""

import hashlib
import json
from pathlib import Path
from typing import Any

from attn_course.data.mixture import Text
from attn_course.data.subwords import Subwords
from attn_course.training.checkpoint import write_atomically
from attn_course.training.settings import Settings

SRC_SUBWORDS, TGT_SUBWORDS = "src.subwords.model", "tgt.subwords.model"
LAST, BEST = "last.safetensors", "best.safetensors"
SETTINGS, DATA, METRICS = "settings.toml", "data.json", "metrics.jsonl"


def prepare_folder(folder: Path, settings: Settings, text: Text) -> None:
    """Write the settings, what the text was, and the vocabularies; or see that they are still the same.

    Raises:
        ValueError: if there is a checkpoint that was made with other settings or another text, or if the text has
            nothing to learn from or is too small for the vocabularies.
        FileNotFoundError: if the run is to begin with another one that is not there.
    """
    for name, part in zip(("training", "dev"), text, strict=False):
        if not part:
            raise ValueError(
                f"{', '.join(settings.corpora)}: the {name} text has no sentence pairs; dev and test come from "
                "the first corpus, which must have them (everyday or small_parallel_enja)"
            )
    folder.mkdir(parents=True, exist_ok=True)
    data = describe_text(settings, text)
    if (folder / LAST).exists():
        _check_same_settings(folder, settings)
        _check_same_data(folder, data)
    write_atomically(folder / SETTINGS, settings.to_toml().encode())
    write_atomically(folder / DATA, (json.dumps(data, indent=1) + "\n").encode())
    _make_vocabularies(folder, settings, text)


def describe_text(settings: Settings, text: Text) -> dict[str, Any]:
    """Number of pairs and SHA-256 of each part of the text, as it is after cleaning and cutting into words."""
    parts = {}
    for name, pairs in text._asdict().items():
        digest = hashlib.sha256()
        for ja, en in pairs:
            digest.update(f"{' '.join(ja)}\t{' '.join(en)}\n".encode())
        parts[name] = {"pairs": len(pairs), "sha256": digest.hexdigest()}
    return {"corpora": list(settings.corpora), **parts}


def forget_metrics_after(path: Path, step: int) -> None:
    """Drop what was measured after the checkpoint, for it will be measured again, and a line cut short."""
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [
            line
            for line in lines
            if line.endswith("}") and json.loads(line)["step"] <= step
        ]
        write_atomically(path, "".join(f"{line}\n" for line in kept).encode())


def _check_same_settings(folder: Path, settings: Settings) -> None:
    theirs, ours = vars(Settings.load(folder / SETTINGS)), vars(settings)
    # These change nothing in the steps that have been made. A cosine, however, knows from the start where it ends.
    free = {"evaluate_every", "save_every"}
    if settings.schedule == "inverse_sqrt":
        free.add("steps")
    changed = [
        f"{name} ({theirs[name]!r} there, {value!r} now)"
        for name, value in ours.items()
        if theirs[name] != value and name not in free
    ]
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings: {', '.join(changed)}; "
            "give another folder, or the settings it was begun with"
        )


def _check_same_data(folder: Path, data: dict[str, Any]) -> None:
    if (folder / DATA).exists():
        try:
            theirs = json.loads((folder / DATA).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / DATA} is damaged: {error}") from error
        for name in ("train", "dev", "test"):
            if theirs[name] != data[name]:
                raise ValueError(
                    f"{folder} holds a run on another text: its {name} part has {theirs[name]['pairs']} pairs with "
                    f"SHA-256 {theirs[name]['sha256'][:12]}…, and now there are {data[name]['pairs']} with "
                    f"{data[name]['sha256'][:12]}…"
                )


def _make_vocabularies(folder: Path, settings: Settings, text: Text) -> None:
    paths = [folder / SRC_SUBWORDS, folder / TGT_SUBWORDS]
    if all(path.exists() for path in paths):
        return
    if settings.init_from:
        source = Path(settings.init_from)
        for path in paths:
            if not (source / path.name).is_file():
                raise FileNotFoundError(
                    f"init_from ({settings.init_from!r}) must be the folder of an earlier run; "
                    f"it has no {path.name}"
                )
            write_atomically(path, (source / path.name).read_bytes())
        return
    sides = zip(*text.train, strict=True)
    for path, sentences, side in zip(paths, sides, ("src", "tgt"), strict=True):
        size = getattr(settings, f"{side}_vocab_size")
        try:
            subwords = Subwords.train(sentences, size, spaces=side == "tgt")
        except ValueError as error:  # which begins with: vocab_size (6000) must be
            raise ValueError(f"{side}_{error}") from error
        write_atomically(path, subwords.model)
