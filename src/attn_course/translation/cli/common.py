"""What the commands share: options, output and errors."""

import codecs
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from attn_course.data.named_corpora import SOURCES

STOPPED = 130  # the exit status that shells give a program that Ctrl-C has ended

RunFolder = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of `attn-course train`; by default the translator of the course."),
]
Beam = Annotated[int, typer.Option(min=1, help="Number of hypotheses to keep; 1 is greedy search.")]
LengthReward = Annotated[
    float | None,
    typer.Option(min=0.0, help="Number that each token adds to the score of a hypothesis; 0.7 if not given."),
]
FreeNumbers = Annotated[
    bool, typer.Option("--free-numbers", help="Let the translator write digits that the source lacks.")
]

CORPORA = [name.removesuffix("PATH") for name in SOURCES]
NAMES = " or your own ".join([", ".join([*SOURCES][:-1]), [*SOURCES][-1]])


def complete(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes the beginning of one of these names in the shell."""
    choices = sorted(names)
    return lambda incomplete: [name for name in choices if name.startswith(incomplete)]


def say(text: str) -> None:
    """Write to standard error, with control characters as escapes."""
    printable = (c if c.isprintable() or c in "\n\u3000" else repr(c)[1:-1] for c in text)
    with suppress(OSError):  # a full disk must not stop the work
        print("".join(printable), file=sys.stderr, flush=True)


def need_output() -> None:
    """Raise an error if standard output is closed."""
    # `main` replaces a closed `sys.stdout` by an open stream.
    if sys.__stdout__ is None:
        raise OSError("standard output is closed; it must be a terminal, a pipe or a file")


def dump_json(record: dict[str, Any], **layout: Any) -> str:
    """Return JSON for standard output. If its encoding is not UTF-8, Japanese is written as escapes."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    return json.dumps(record, ensure_ascii=not is_utf8, **layout)


def explain_errors(command: Callable) -> Callable:
    """Turn the errors of a command into one line and an exit status."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            say("attn-course: stopped")
            raise typer.Exit(STOPPED) from None
        except (ArithmeticError, ImportError, OSError, TypeError, ValueError) as error:
            process = os.environ.get("RANK", "0")
            where = "" if process == "0" else f" (process {process})"
            message = str(error)
            if isinstance(error, OSError) and error.strerror:  # without the number
                name = f"{error.filename}: " if error.filename else ""
                message = f"{name}{error.strerror}"
            if isinstance(error, UnicodeEncodeError):  # only file names raise it
                message = (
                    "every name on the command line must be valid in the locale's encoding "
                    f"({sys.getfilesystemencoding()}); set PYTHONUTF8=1 to use UTF-8"
                )
            say(f"attn-course{where}: {message}")
            _report_to_torchrun(f"attn-course: {message}")
            raise typer.Exit(1) from None

    return run


def _report_to_torchrun(message: str) -> None:
    """Write the error to the file that torchrun prints at the end of its report."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
        record = {"message": {"message": message, "extraInfo": extra}}
        Path(path).write_text(json.dumps(record), encoding="utf-8")


def load_parts(name: str) -> dict[str, list[tuple[str, str]]]:
    """Return the parts of a corpus with their sentence pairs."""
    from attn_course.data.named_corpora import load_corpus

    corpus = load_corpus(name)
    return {part: list(pairs) for part, pairs in corpus._asdict().items() if pairs}


def search_options(beam: int, length_reward: float | None, free_numbers: bool) -> dict[str, Any]:
    """Return the options of the search as arguments of the translator."""
    search = {"beam_size": beam, "copy_numbers": not free_numbers}
    if length_reward is None:
        return search
    if beam == 1:
        raise ValueError(
            f"--length-reward {length_reward} changes nothing with --beam 1, which has only one hypothesis"
        )
    return search | {"length_reward": length_reward}
