"""Put a trained translator into the package: `python scripts/bundle_model.py RUN`, RUN a folder of `attn-course train`.

If the run began with the weights of another one, the records of that one come along (`first_settings.toml`, …).
"""

import argparse
from dataclasses import replace
from pathlib import Path

from attn_course.training import Settings
from attn_course.training.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from attn_course.translation.translator import BUNDLED

LARGEST = 12_000_000  # bytes of weights that the package may carry


def copy_records(run: Path, to: Path, prefix: str = "") -> Settings:
    """Copy how a run was trained; of the run that it began with, only the folder's name is kept."""
    settings = Settings.load(run / "settings.toml")
    public = replace(settings, init_from=Path(settings.init_from).name)
    write_atomically(to / f"{prefix}settings.toml", public.to_toml().encode())
    for name in ("metrics.jsonl", "data.json"):
        write_atomically(to / f"{prefix}{name}", (run / name).read_bytes())
    return settings


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
    options.to.mkdir(parents=True, exist_ok=True)
    save_checkpoint(options.to / "best.safetensors", halves, about)
    for name in ("src.subwords.model", "tgt.subwords.model"):
        write_atomically(options.to / name, (options.run / name).read_bytes())
    settings = copy_records(options.run, options.to)
    if settings.init_from:
        copy_records(Path(settings.init_from), options.to, "first_")
    print(f"{options.to}: {size:,} bytes of weights, dev BLEU {about['dev_bleu']:.1f} at step {about['step']}")


if __name__ == "__main__":
    main()
