"""Put a trained translator into the package: `python scripts/bundle_model.py RUN`, RUN a folder of `attn-course train`.

If the run began with the weights of another one, the records of that one come along under its folder's name
(`translator_3_settings.toml`, …), and so on to the first.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from attn_course.training import Settings
from attn_course.training.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from attn_course.translation.translator import BUNDLED

LARGEST = 12_000_000  # bytes of weights that the package may carry
RECORDS = ("metrics.jsonl", "data.json")


def runs_of(run: Path) -> dict[str, tuple[Path, Settings]]:
    """Return the run and all that it began with, by what their records' names begin with here.

    Raises:
        FileNotFoundError: if a record is missing.
    """
    prefix, runs = "", {}
    while True:
        settings = Settings.load(run / "settings.toml")
        for name in RECORDS:
            if not (run / name).exists():
                raise FileNotFoundError(f"{run / name} is missing: the records of all parts are shipped")
        runs[prefix] = (run, settings)
        if not settings.init_from:
            return runs
        run = Path(settings.init_from)
        prefix = f"{run.name}_"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder that attn-course train wrote")
    parser.add_argument("--to", type=Path, default=BUNDLED, help="where to put it")
    options = parser.parse_args()

    weights, about = load_checkpoint(options.run / "best.safetensors")
    halves = {name: tensor.half() for name, tensor in weights.items()}
    size = sum(tensor.nbytes for tensor in halves.values())
    if size > LARGEST:
        parser.error(f"the weights take {size:,} bytes in half precision, and at most {LARGEST:,} are shipped")
    try:
        runs = runs_of(options.run)
    except FileNotFoundError as error:
        parser.error(str(error))
    options.to.mkdir(parents=True, exist_ok=True)
    save_checkpoint(options.to / "best.safetensors", halves, about)
    for name in ("src.subwords.model", "tgt.subwords.model"):
        write_atomically(options.to / name, (options.run / name).read_bytes())
    for prefix, (run, settings) in runs.items():
        public = replace(settings, init_from=Path(settings.init_from).name)  # of that folder, only the name is kept
        write_atomically(options.to / f"{prefix}settings.toml", public.to_toml().encode())
        for name in RECORDS:
            write_atomically(options.to / f"{prefix}{name}", (run / name).read_bytes())
    print(f"{options.to}: {size:,} bytes of weights, {', '.join(f'{key} {value}' for key, value in about.items())}")


if __name__ == "__main__":
    main()
