"""The command ``attn-course train``."""

import json
import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from attn_course.translation.cli.common import CORPORA, NAMES, STOPPED, complete, say

RECIPES = Path(__file__).parents[2] / "training" / "recipes"


def train(
    settings: Annotated[
        str,
        typer.Argument(
            metavar="SETTINGS",
            autocompletion=complete(path.stem for path in RECIPES.glob("*.toml")),
            help="A TOML file; or one of the recipes everyday, small_parallel_enja, translator_1, "
            "and translator_2 to translator_4, each of which starts from the folder of the previous one.",
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Folder of the run.")],
    corpora: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus",
            help=f"Train on this corpus instead of the settings' corpora; can be repeated. {NAMES}.",
            autocompletion=complete(CORPORA),
        ),
    ] = None,
    dev: Annotated[
        str | None, typer.Option(help="Choose the best weights with this corpus.", show_default=False)
    ] = None,
    test: Annotated[str | None, typer.Option(help="Keep this corpus for `evaluate`.", show_default=False)] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one setting; can be repeated.")
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(
            min=1, help="Accumulate gradients over this number of batches before each step.", show_default=False
        ),
    ] = None,
    pairs_per_shard: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prepare the text in shards of about this number of pairs; only one shard is in memory at a time.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a translator, or continue a training that was stopped.

    Ctrl-C stops the training. The same command continues it, and the number of processes may differ. With torchrun,
    several processes share each batch:

    torchrun --nproc-per-node 2 --no-python attn-course train everyday --folder runs/two

    Your own text is pairs=PATH, a UTF-8 file with a sentence, a tab and its
    translation in each line (the last two columns, in either order), or
    pairs=JA,EN, two files with one sentence in each line:

    attn-course train small_parallel_enja --corpus pairs=my.tsv --folder runs/mine

    Dev and test are the corpora of --dev and --test, or else the parts of the
    first corpus. If it has no such parts, the setting held_out says how many
    of its pairs are used (500 each). Training uses none of these sentences.
    """
    from attn_course.training import Settings, join_processes
    from attn_course.training import train as train_translator
    from attn_course.training.run_dir import LAST

    path = _find_settings(settings)
    from_options = {
        "corpora": corpora,
        "dev": dev,
        "test": test,
        "grad_accum_steps": accumulate,
        "pairs_per_shard": pairs_per_shard,
    }
    run_settings = Settings.load(
        path, **dict(map(_read_change, changes or [])), **{name: value for name, value in from_options.items() if value}
    )
    with join_processes():
        train_translator(run_settings, folder, quiet=quiet)
    if os.environ.get("RANK", "0") != "0":
        return
    step, best = _read_progress(folder / LAST)
    if step < run_settings.steps:
        say(f"Stopped after step {step:,} of {run_settings.steps:,}. The same command continues from there.")
        raise typer.Exit(STOPPED)
    say(f"Done. The best weights (dev BLEU {best:.1f}) are in {folder}.")


def _find_settings(name: str) -> Path:
    """Return the path of a settings file or of a recipe."""
    recipe = RECIPES / f"{name}.toml"
    if not Path(name).is_file() and recipe.is_file():
        return recipe
    if not Path(name).is_file():
        recipes = ", ".join(sorted(path.stem for path in RECIPES.glob("*.toml")))
        raise FileNotFoundError(f"{name} must be a settings file, or one of the recipes {recipes}")
    return Path(name)


def _read_change(change: str) -> tuple[str, Any]:
    """Read ``name=value``. The value is TOML; a text needs no quotes."""
    from attn_course.training import Settings

    name, equals, value = change.partition("=")
    name = name.strip()
    names = {field.name for field in fields(Settings)}
    if not equals or name not in names:
        raise ValueError(f"--set {change} must be NAME=VALUE, with one of the names {', '.join(sorted(names))}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    if name == "corpora" and isinstance(parsed, str):
        # pairs=JA,EN is one corpus with a comma.
        own = parsed.startswith("pairs=")
        parsed = [parsed] if own else [corpus.strip() for corpus in parsed.split(",")]
    return name, parsed


def _read_progress(checkpoint: Path) -> tuple[int, float]:
    from safetensors import safe_open

    with safe_open(checkpoint, framework="pt") as file:
        about = json.loads(file.metadata()["about"])
    return about["step"], about["best_bleu"]
