"""The command ``attn-course translate``."""

import heapq
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from attn_course.translation.cli.common import (
    Beam,
    FreeNumbers,
    LengthReward,
    RunFolder,
    dump_json,
    need_output,
    say,
    search_options,
)

if TYPE_CHECKING:
    from attn_course.translation.translator import ScoredTranslation, Translator

_LINES_AT_ONCE = 64


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
            min=1, help="Show this number of best translations, each after the number of its source line and a tab."
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Show the natural logarithm of the probability before each translation, with a tab."
        ),
    ] = False,
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment", help="Show after a tab to which Japanese word each English word attends most: dogs←犬."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line, with sentences, translations and scores.")
    ] = False,
    heatmap: Annotated[
        Path | None,
        typer.Option(help="Draw the cross-attention as a PNG file."),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=1, help="With --heatmap: draw the heads of this layer instead of all layers.")
    ] = None,
) -> None:
    """Translate Japanese to English: one text, or each line of standard input.

    If a line cannot be translated, a warning names it, an empty line takes its place, and the exit status is 1.
    """
    need_output()
    if text is None and sys.__stdin__ is None:
        raise ValueError("standard input is closed; give the text as an argument, or lines on standard input")
    if text is not None and not text.strip():
        raise ValueError('there is nothing to translate in ""')
    if n_best is not None and n_best > beam:
        raise ValueError(f"--n-best {n_best} must be at most --beam, which is {beam}")
    _check_heatmap(heatmap, layer, text)
    search = search_options(beam, length_reward, free_numbers)
    from attn_course.translation.translator import Translator

    translator = Translator.load(folder)
    num_layers = len(translator.model.decoder_layers)
    if layer is not None and layer > num_layers:
        raise ValueError(f"--layer {layer} must be at most {num_layers}")
    reader = _Reader(translator, folder)
    output = _Output(translator, n_best, scores, alignment, as_json)
    contents = _read_lines() if text is None else iter([(_read_argument(text), "")])
    # Many lines at once are faster, but a terminal needs an answer to each line.
    block_size = _LINES_AT_ONCE if text is None and not sys.stdin.isatty() else 1
    num_lines = num_failed = 0
    for block in _blocks(contents, block_size):
        lines = [
            reader.read(content, error, num_lines + i, is_argument=text is not None)
            for i, (content, error) in enumerate(block, start=1)
        ]
        if heatmap is not None and len(lines[0].sentences) != 1:
            raise ValueError(f"--heatmap draws one Japanese sentence, and this text has {len(lines[0].sentences)}")
        sentences = [sentence for line in lines for sentence in line.sentences]
        results = iter(translator.translate_n_best(sentences, **search))
        for line in lines:
            ranked = [next(results)[: n_best or 1] for _ in line.sentences]
            reader.warn_of_output(line, ranked)
            if heatmap is not None:
                from attn_course.translation.cross_attention import draw_cross_attention

                ids = ranked[0][0].translation.ids
                picture = draw_cross_attention(translator, line.sentences[0], ids, layer)
                picture.save(heatmap)
            try:
                print(output.format(line, ranked))
            except ValueError as error:
                line = _leave_empty(line, error)
                print(output.format(line, []))
            num_failed += bool(line.error)
        num_lines += len(lines)
        sys.stdout.flush()
    if num_failed:
        say(f"attn-course: {num_failed:,} of {num_lines:,} lines could not be translated")
        raise typer.Exit(1)


def _check_heatmap(heatmap: Path | None, layer: int | None, text: str | None) -> None:
    if layer is not None and heatmap is None:
        raise ValueError(f"--layer {layer} needs --heatmap")
    if heatmap is not None and text is None:
        raise ValueError("--heatmap draws one sentence; give it as an argument")
    if heatmap is not None and heatmap.suffix.lower() != ".png":
        raise ValueError(f"--heatmap {heatmap} must end with .png")


def _blocks(contents: Iterable[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    block = []
    for content in contents:
        block.append(content)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


class _Line(NamedTuple):
    number: int
    where: str
    """The beginning of a warning; empty for a text from the command line."""
    text: str
    sentences: list[str]
    error: str
    """The reason why the line cannot be translated, or nothing."""


def _leave_empty(line: _Line, error: ValueError) -> _Line:
    """Warn of a line that cannot be translated, and return an empty one. For an argument, raise the error."""
    if not line.where:
        raise error
    say(f"{line.where}{error}; an empty line takes its place")
    return line._replace(text="", sentences=[], error=str(error))


@dataclass(frozen=True)
class _Output:
    """Formats the translations of a line, by the options of the command."""

    translator: "Translator"
    n_best: int | None
    scores: bool
    alignment: bool
    as_json: bool

    def format(self, line: _Line, ranked: list[list["ScoredTranslation"]]) -> str:
        """Format a line, given the best translations of each of its sentences."""
        if self.as_json:
            return self._to_json(line, ranked)
        rows = []
        for choice in _best_lines(ranked, self.n_best or 1):
            columns = [str(line.number)] if self.n_best is not None else []
            if self.scores:
                columns.append(f"{sum(r.log_prob for r in choice):.2f}" if choice else "")
            # A line without Japanese stays unchanged.
            columns.append(" ".join(r.translation.text for r in choice) if choice else line.text)
            if self.alignment:
                columns.append(self._format_links(line, choice))
            rows.append("\t".join(columns))
        return "\n".join(rows)

    def _format_links(self, line: _Line, choice: tuple["ScoredTranslation", ...]) -> str:
        links = []
        for sentence, (translation, *_) in zip(line.sentences, choice, strict=False):
            alignment = self.translator.align(sentence, translation.ids)
            links += [f"{alignment.target[t]}←{alignment.source[s]}" for s, t in alignment.links]
        return " ".join(links)

    def _to_json(self, line: _Line, ranked: list[list["ScoredTranslation"]]) -> str:
        sentences = []
        for source, translations in zip(line.sentences, ranked, strict=True):
            records = []
            for translation, log_prob, score in translations:
                record = translation._asdict() | {"log_prob": round(log_prob, 4), "score": round(score, 4)}
                if self.alignment:
                    alignment = self.translator.align(source, translation.ids)
                    record["alignment"] = alignment._asdict()
                records.append(record)
            sentences.append({"source": source, "translations": records})
        best = " ".join(translations[0].translation.text for translations in ranked)
        record = {"line": line.number, "source": line.text, "text": best if ranked else line.text}
        if line.error:
            record["error"] = line.error
        return dump_json(record | {"sentences": sentences})


def _best_lines(ranked: list[list["ScoredTranslation"]], n: int) -> list[tuple["ScoredTranslation", ...]]:
    """Return the best translations of a line, by the sum of the scores of its sentences."""
    best: list[tuple[ScoredTranslation, ...]] = [()]
    for options in ranked:
        longer = ((*line, option) for line in best for option in options)
        best = heapq.nlargest(n, longer, key=lambda line: sum(r.score for r in line))
    return best


def _read_argument(text: str) -> str:
    """Return an argument decoded as UTF-8, or else by the locale."""
    try:
        return os.fsencode(text).decode()
    except UnicodeDecodeError as error:
        try:
            text.encode()  # fails for bytes that the locale cannot decode
        except UnicodeEncodeError:
            raise ValueError(f"the text must be UTF-8, and is not: {_wrong_byte(error)}") from error
        return text


def _wrong_byte(error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"its byte {error.start + 1} is 0x{byte:02x} ({error.reason})"


def _read_lines() -> Iterator[tuple[str, str]]:
    """Yield the lines of standard input, each with the reason if it cannot be decoded."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            yield text.rstrip("\r\n"), ""
        except UnicodeDecodeError as error:
            yield "", f"it must be UTF-8, and is not: {_wrong_byte(error)}"


class _Reader:
    """Splits lines into sentences, and warns of text that the translator does not know."""

    def __init__(self, translator: "Translator", folder: Path | None) -> None:
        from attn_course.training import Settings
        from attn_course.training.run_dir import SETTINGS
        from attn_course.translation.translator import BUNDLED

        self.translator = translator
        self.is_bundled = folder is None  # the threshold was chosen for this translator
        self.max_pieces = Settings.load((folder or BUNDLED) / SETTINGS).max_pieces

    def read(self, content: str, error: str, number: int, *, is_argument: bool) -> _Line:
        """Split a line into sentences."""
        where = "" if is_argument else f"line {number}: "
        line = _Line(number, where, content, [], "")
        try:
            if error:
                raise ValueError(error)
            return line._replace(sentences=self._split(content, where))
        except ValueError as error:
            return _leave_empty(line, error)

    def _split(self, line: str, where: str) -> list[str]:
        """Return the sentences of a line, or none if it has no Japanese."""
        from attn_course.data.text import JAPANESE, split_sentences

        if not line.strip():
            return []
        if not JAPANESE.search(line):
            say(f"{where}no Japanese in {_short(line)}; it stays unchanged")
            return []
        sentences = split_sentences(line)
        for sentence in sentences:
            self._warn(sentence, where)
        return sentences

    def _warn(self, sentence: str, where: str) -> None:
        from attn_course.data.subwords import UNK_ID
        from attn_course.data.text import normalize_japanese, tokenize_english

        pieces = len(self.translator.encode(sentence))
        letters = list(dict.fromkeys(normalize_japanese(sentence)))
        unknown = [letter for letter in letters if UNK_ID in self.translator.src_subwords.encode([letter])]
        if unknown:
            say(f"{where}the translator has never seen {' '.join(unknown)}")
        # A digit that the target vocabulary lacks would make a number wrong without an error.
        unwritable = [
            letter
            for letter in letters
            if letter.isascii()
            and letter not in unknown
            and UNK_ID in self.translator.tgt_subwords.encode(tokenize_english(letter).split())
        ]
        if unwritable:
            say(f"{where}the translator cannot write {' '.join(unwritable)}")
        if pieces > self.max_pieces:
            say(
                f"{where}a sentence of {pieces} pieces, longer than all training sentences "
                f"({self.max_pieces}): {_short(sentence)}"
            )

    def warn_of_output(self, line: _Line, ranked: list[list["ScoredTranslation"]]) -> None:
        """Warn of characters that the translator cannot write, and of translations that are probably wrong."""
        from attn_course.data.subwords import UNK_ID

        if any(UNK_ID in best.translation.ids for best, *_ in ranked):
            say(f"{line.where}⁇ stands for what the translator cannot write")
        for sentence, (best, *_) in zip(line.sentences, ranked, strict=True):
            if self.is_bundled and best.unsure:
                say(
                    f"{line.where}unsure: {_short(sentence)} is unlike the sentences that the translator learned from, "
                    "so its translation may be wrong"
                )


def _short(text: str) -> str:
    return repr(text if len(text) <= 20 else f"{text[:19]}…")
