"""The folder of a training run: settings, text, vocabularies, metrics and lock. Used in chapter 12."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from attn_course.data.subwords import Subwords
from attn_course.training.checkpoint import write_atomically
from attn_course.training.settings import Settings
from attn_course.training.vocabulary_transfer import count_origins, match_pieces

if TYPE_CHECKING:  # a translator imports the names of the files without the corpora
    from attn_course.data.corpus_mixture import Text, WordPair

Learn = Callable[[], Iterable[Iterable[Sequence[str]]]]

SRC_SUBWORDS, TGT_SUBWORDS = "src.subwords.model", "tgt.subwords.model"
LAST, BEST = "last.safetensors", "best.safetensors"
SETTINGS, DATA, METRICS = "settings.toml", "data.json", "metrics.jsonl"
LOCK = ".lock"  # exists while a process trains


@contextlib.contextmanager
def lock_run_dir(folder: Path) -> Iterator[None]:
    """Create the folder, and lock it against other processes. The system releases the lock even after ``kill -9``.

    Raises:
        BlockingIOError: if another process trains in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise BlockingIOError(
            f"{folder} is in use: {_name_holder(path)} trains in it; wait for its end, stop it, "
            "or choose another folder"
        ) from None
    try:
        path.write_text(str(os.getpid()), "utf-8")
        yield
    finally:
        # Windows cannot delete an open file; a leftover lock file is harmless.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _name_holder(path: Path) -> str:
    try:
        return f"process {int(path.read_text('utf-8'))}"
    # The other process has just started or ended, or the system does not allow reading a locked file.
    except (OSError, ValueError):
        return "another process"


def prepare_folder(
    folder: Path, settings: Settings, data: dict[str, Any], learn_from: Learn, *, keep_vocabularies: bool = False
) -> None:
    """Write the settings, a description of the text, and the vocabularies, or check that they have not changed.

    Args:
        data: the description of the text from :func:`describe_text`.
        learn_from: returns the words of the sentences of both sides. It is called if vocabularies must be learned.
        keep_vocabularies: whether the vocabularies in the folder belong to this text and these settings, even without
            a checkpoint.

    Raises:
        ValueError: if the folder has a checkpoint with other settings or another text, or if the text has no pairs or
            is too small for the vocabularies.
        FileNotFoundError: if the run starts from another run that does not exist.
    """
    for name, part in (("training", "train"), ("dev", "dev")):
        if not data[part]["pairs"]:
            raise ValueError(
                f"{', '.join(settings.corpora)}: the {name} text has no sentence pairs; dev and test come from the "
                "corpora named by dev and test, from the parts of the first corpus, or from held_out pairs of it"
            )
    if resuming := (folder / LAST).exists():
        _check_same_settings(folder, settings)
        _check_same_data(folder, data)
    keep = resuming or (keep_vocabularies and (settings.new_vocabularies or not settings.init_from))
    vocabularies = _find_vocabularies(folder, settings, learn_from, keep=keep)
    data["vocabularies"] = {name: hashlib.sha256(model).hexdigest() for name, model in vocabularies.items()}
    if settings.new_vocabularies:
        theirs = _read_data(folder) if resuming else {}
        data["carried_over"] = theirs.get("carried_over") or {
            name: count_origins(match_pieces(Subwords.load(Path(settings.init_from) / name), Subwords(model)))
            for name, model in vocabularies.items()
        }
    if resuming:
        _check_same_vocabularies(folder, data["vocabularies"])
    else:  # best weights without a checkpoint belong to an earlier run
        (folder / BEST).unlink(missing_ok=True)
    write_atomically(folder / SETTINGS, settings.to_toml().encode())
    write_atomically(folder / DATA, (json.dumps(data, indent=1) + "\n").encode())
    for name, model in vocabularies.items():
        write_atomically(folder / name, model)


def describe_text(settings: Settings, text: "Text") -> dict[str, Any]:
    """Return the number of pairs and the SHA-256 of each part of the text, after cleaning and word segmentation."""
    parts = {name: describe_pairs(pairs) for name, pairs in text._asdict().items()}
    return {"corpora": list(settings.corpora), **parts}


def describe_pairs(pairs: list["WordPair"]) -> dict[str, Any]:
    """Return the number of pairs and the SHA-256 of their words."""
    digest = hashlib.sha256()
    for ja, en in pairs:
        digest.update(f"{' '.join(ja)}\t{' '.join(en)}\n".encode())
    return {"pairs": len(pairs), "sha256": digest.hexdigest()}


def add_metrics(path: Path, record: dict[str, float]) -> None:
    """Append a line to the metrics.

    Raises:
        OSError: if the file cannot be written. The earlier lines stay unchanged.
    """
    before = path.read_bytes() if path.exists() else b""
    write_atomically(path, before + json.dumps(record).encode() + b"\n")


def forget_metrics_after(path: Path, step: int) -> None:
    """Remove the metrics after a step and an incomplete last line, because these steps will run again.

    Raises:
        ValueError: if a line is not the record of a step.
    """
    if not path.exists():
        return
    lines = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.endswith(b"}"):
            continue
        try:
            after = json.loads(line)["step"] > step
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is damaged: line {number} must be a record with a step, not "
                f"{line.decode(errors='replace')[:60]}"
            ) from error
        if not after:
            lines.append(line + b"\n")
    write_atomically(path, b"".join(lines))


def _check_same_settings(folder: Path, settings: Settings) -> None:
    theirs, ours = vars(Settings.load(folder / SETTINGS)), vars(settings)
    # These do not change the past steps. A cosine schedule, however, depends on the last step from the start.
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
            "choose another folder, or use the settings of this run"
        )


def _check_same_data(folder: Path, data: dict[str, Any]) -> None:
    theirs = _read_data(folder)
    for name in ("train", "dev", "test") if theirs else ():
        if theirs[name] != data[name]:
            raise ValueError(
                f"{folder} holds a run on another text: its {name} part has {theirs[name]['pairs']} pairs with "
                f"SHA-256 {theirs[name]['sha256'][:12]}…, and now there are {data[name]['pairs']} with "
                f"{data[name]['sha256'][:12]}…"
            )


def _check_same_vocabularies(folder: Path, sha256: dict[str, str]) -> None:
    for name, theirs in _read_data(folder).get("vocabularies", {}).items():
        if sha256[name] != theirs:
            raise ValueError(
                f"{folder / name} is not the vocabulary of the run in this folder: its SHA-256 must be "
                f"{theirs[:12]}…, not {sha256[name][:12]}…"
            )


def _read_data(folder: Path) -> dict[str, Any]:
    """Return the description of the text in the folder, or an empty one if there is no file."""
    path = folder / DATA
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _find_vocabularies(folder: Path, settings: Settings, learn_from: Learn, *, keep: bool) -> dict[str, bytes]:
    """Return the vocabularies: the ones in the folder, the ones of the initial run, or new ones."""
    names = (SRC_SUBWORDS, TGT_SUBWORDS)
    if keep and all((folder / name).exists() for name in names):
        return {name: (folder / name).read_bytes() for name in names}
    if settings.init_from:
        source = Path(settings.init_from)
        for name in names:
            if not (source / name).is_file():
                raise FileNotFoundError(
                    f"init_from ({settings.init_from!r}) must be the folder of an earlier run, but it has no {name}"
                )
        if not settings.new_vocabularies:
            return {name: (source / name).read_bytes() for name in names}
    sides, models = learn_from(), {}
    for name, sentences, side in zip(names, sides, ("src", "tgt"), strict=True):
        size = getattr(settings, f"{side}_vocab_size")
        try:
            models[name] = Subwords.train(
                sentences,
                size,
                spaces=side == "tgt",
                required_characters=settings.required_characters,
                split_digits=settings.split_digits,
            ).model
        except ValueError as error:  # the message begins with "vocab_size (6000) must be"
            raise ValueError(f"{side}_{error}") from error
    return models
