"""The command attn-course: what it prints, what it refuses, and its exit statuses. No error has a traceback."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest
from test_training import TEXT, TINY
from typer.testing import CliRunner

from attn_course.__main__ import main
from attn_course.data import corpora, named_corpora
from attn_course.data.corpora import Corpus, Pair
from attn_course.data.corpus_mixture import WordPair
from attn_course.data.text import detokenize_english
from attn_course.training import Settings, load_checkpoint, train
from attn_course.training import trainer as training_loop
from attn_course.translation import cli
from attn_course.translation.cross_attention import alignment_error_rates, draw_cross_attention
from attn_course.translation.translator import BUNDLED, LENGTH_REWARD, Translator

runner = CliRunner()


def run(*arguments, stdin=None):
    found = runner.invoke(cli.app, [str(a) for a in arguments], input=stdin)
    assert "Traceback" not in found.output
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def refused(*arguments, stdin=None):
    """The error of a command that must fail: one line on standard error."""
    found = run(*arguments, stdin=stdin)
    assert found.exit_code == 1
    return found.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A translator of a toy language; what it says means little."""
    settings = {**vars(TINY), "steps": 30, "evaluate_every": 30, "dropout": 0.0}
    return train(Settings(**settings), tmp_path_factory.mktemp("toy"), text=TEXT, quiet=True)


@pytest.fixture
def toy_corpus(monkeypatch):
    """The toy language under the name of a corpus that has dev and test."""
    parts = ([Pair("".join(ja), detokenize_english(" ".join(en))) for ja, en in part] for part in TEXT)
    corpus = Corpus(*parts)
    monkeypatch.setattr("attn_course.data.named_corpora.load_small_parallel_enja", lambda: corpus)
    return corpus


# -- translate ---------------------------------------------------------------------------------------


def translated(folder, *sentences, **search):
    """What the translator writes by a beam of 5, as the command does unless it is told otherwise."""
    return [t.text for t in Translator.load(folder).translate(sentences, **{"beam_size": 5} | search)]


def test_a_sentence_is_translated_as_the_translator_does(folder):
    found = run("translate", "犬が猫を見る", "--folder", folder)
    assert found.exit_code == 0
    assert found.stdout == translated(folder, "犬が猫を見る")[0] + "\n"
    assert found.stderr == ""


def test_lines_come_out_as_many_and_in_the_order_in_which_they_go_in(folder):
    lines = ["犬が猫を見る", "", "馬が犬を追う", "hello, world"]
    found = run("translate", "--folder", folder, stdin="\n".join(lines))  # no line end after the last one
    first, third = translated(folder, lines[0], lines[2])
    assert found.stdout.split("\n") == [first, "", third, lines[3], ""]
    assert found.stderr == "line 4: no Japanese in 'hello, world'; it stays unchanged\n"


def test_empty_input_gives_empty_output(folder):
    found = run("translate", "--folder", folder, stdin="")
    assert (found.exit_code, found.stdout) == (0, "")


@pytest.mark.parametrize("text", ["", "  ", "　"])
def test_an_empty_text_is_refused(text):
    assert refused("translate", text) == 'attn-course: there is nothing to translate in ""'


def test_a_letter_that_was_never_seen_is_named(folder):
    found = run("translate", "☃が犬を見る☃", "--folder", folder)
    assert found.exit_code == 0
    assert found.stderr == "the translator has never seen ☃\n"


def test_a_long_text_is_cut_into_its_sentences(folder):
    text = "犬が猫を見る。" * 80  # 560 characters
    found = run("translate", text, "--folder", folder)
    assert found.exit_code == 0
    once = translated(folder, "犬が猫を見る。")[0]
    assert found.stdout == " ".join([once] * 80) + "\n"


def test_a_sentence_longer_than_the_model_reads_is_refused_and_one_that_is_only_long_is_not(folder):
    assert refused("translate", "犬が猫を見る" * 90, "--folder", folder).startswith(
        "attn-course: the sentence has 450 pieces, and the model reads at most 255: 犬が猫を見る犬"
    )
    found = run("translate", "犬が猫を見る" * 10, "--folder", folder)
    assert found.exit_code == 0
    assert "a sentence of 50 pieces, longer than all training sentences (40): '犬が" in found.stderr


def test_twenty_characters_of_a_line_are_shown_and_of_a_longer_one_the_first_nineteen(folder):
    found = run("translate", "--folder", folder, stdin="what is not Japanese\nwhat is not Japanese.\n")
    assert found.stderr.splitlines() == [
        "line 1: no Japanese in 'what is not Japanese'; it stays unchanged",
        "line 2: no Japanese in 'what is not Japanes…'; it stays unchanged",
    ]


def test_a_line_that_cannot_be_translated_is_named_and_the_others_are_translated(folder):
    lines = ["犬が猫を見る".encode(), b"\x83\x84", ("犬が猫を見る" * 90).encode(), "馬が犬を追う".encode(), b"\xff"]
    found = run("translate", "--folder", folder, stdin=b"\n".join(lines))
    assert found.exit_code == 1
    first, last = translated(folder, "犬が猫を見る", "馬が犬を追う")
    assert found.stdout == f"{first}\n\n\n{last}\n\n"
    said = found.stderr.splitlines()
    assert said[0] == (
        "line 2: it must be UTF-8, and is not: its byte 1 is 0x83 (invalid start byte); an empty line takes its place"
    )
    assert said[1].startswith("line 3: the sentence has 450 pieces, and the model reads at most 255: 犬が")
    assert said[2].startswith("line 5: it must be UTF-8")
    assert said[3:] == ["attn-course: 3 of 5 lines could not be translated"]


def test_a_text_that_is_no_utf_8_is_refused_with_its_place(folder):
    said = refused("translate", "犬\udc83", "--folder", folder)  # so a stray byte arrives in an argument
    assert said == "attn-course: the text must be UTF-8, and is not: its byte 4 is 0x83 (invalid start byte)"


def test_an_argument_is_utf_8_under_a_locale_that_is_not(folder):
    in_c_locale = "犬が猫を見る".encode().decode("ascii", "surrogateescape")
    found = run("translate", in_c_locale, "--folder", folder)
    assert (found.stdout, found.stderr) == (translated(folder, "犬が猫を見る")[0] + "\n", "")


def test_a_line_that_cannot_be_aligned_is_named_and_the_others_are_translated(folder, monkeypatch):
    def align(self, sentence, english_ids, align=Translator.align):
        if "鳥" in sentence:
            raise ValueError("the pieces must spell the words")
        return align(self, sentence, english_ids)

    monkeypatch.setattr(Translator, "align", align)
    lines = ["犬が猫を見る", "鳥が犬を見る", "馬が犬を追う"]
    found = run("translate", "--folder", folder, "--alignment", stdin="\n".join(lines))
    assert found.exit_code == 1
    assert [row.split("\t")[0] for row in found.stdout.splitlines()] == [
        *translated(folder, lines[0]),
        "",
        *translated(folder, lines[2]),
    ]
    assert found.stderr.splitlines() == [
        "line 2: the pieces must spell the words; an empty line takes its place",
        "attn-course: 1 of 3 lines could not be translated",
    ]
    found = run("translate", "--folder", folder, "--alignment", "--json", stdin="\n".join(lines))
    assert found.exit_code == 1
    first, second, third = (json.loads(line) for line in found.stdout.splitlines())
    assert (second["text"], second["sentences"], second["error"]) == ("", [], "the pieces must spell the words")
    assert first["sentences"][0]["translations"][0]["alignment"]["source"][0] == "犬"
    assert third["text"] == translated(folder, lines[2])[0]
    assert refused("translate", lines[1], "--folder", folder, "--alignment").endswith("must spell the words")


def test_a_mark_at_the_beginning_of_a_file_is_not_read(folder):
    found = run("translate", "--folder", folder, stdin=b"\xef\xbb\xbf" + "犬が猫を見る\r\n".encode())
    assert found.stdout == translated(folder, "犬が猫を見る")[0] + "\n"
    assert found.stderr == ""


def test_quoted_speech_is_one_sentence(folder):
    found = run("translate", "「犬。」と猫が見る。", "--folder", folder, "--json")
    assert [s["source"] for s in json.loads(found.stdout)["sentences"]] == ["「犬。」と猫が見る。"]


def test_control_characters_are_escaped_in_warnings(folder):
    found = run("translate", "--folder", folder, stdin="\x1b[31m犬\x00が猫を見る\nred \x1b[31m\n")
    assert "\x1b" not in found.stderr
    assert "\x00" not in found.stderr
    assert "line 1: the translator has never seen \\x1b [ 3 1 m \\x00\n" in found.stderr


def test_a_digit_that_the_english_vocabulary_lacks_is_named(tmp_path):
    japanese_only = [WordPair(["4", "7", *ja], en) for ja, en in TEXT.train]
    train(replace(TINY, steps=1, src_vocab_size=22), tmp_path, text=TEXT._replace(train=japanese_only), quiet=True)
    assert run("translate", "犬47", "--folder", tmp_path).stderr.startswith("the translator cannot write 4 7\n")


def test_the_shipped_translator_writes_every_digit_without_a_warning():
    found = run("translate", "このカメラは56479円です。")
    assert found.stderr == ""
    assert "56479" in found.stdout.replace(",", "")


def test_the_shipped_translator_needs_no_analyser_of_japanese():
    code = (
        "import sys; from attn_course.translation import cli\n"
        "try: cli.app(['translate', '私は47歳です。', '--alignment', '--json'])\n"
        "finally: print('sudachipy' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(said.splitlines()[0])["source"] == "私は47歳です。"
    assert said.splitlines()[-1] == "False"


def test_the_beam_is_that_of_the_translator(folder):
    found = run("translate", "犬が猫を見る", "--folder", folder, "--beam", 3, "--length-reward", 0.5)
    assert found.stdout == translated(folder, "犬が猫を見る", beam_size=3, length_reward=0.5)[0] + "\n"
    found = run("translate", "犬が猫を見る", "--folder", folder, "--beam", 1)
    assert found.stdout == translated(folder, "犬が猫を見る", beam_size=1)[0] + "\n"
    assert run("translate", "犬", "--beam", 0).exit_code == 2
    said = refused("translate", "犬", "--beam", 1, "--length-reward", 0.5)
    assert said.startswith("attn-course: --length-reward 0.5 changes nothing with --beam 1")
    assert f"{LENGTH_REWARD} if not given" in get_args(cli.common.LengthReward)[1].help


def test_numbers_are_those_of_the_source_unless_they_may_be_free():
    lost = "彼は1944年に生まれた。"
    assert run("translate", lost).stdout == "He was born in 1944.\n"
    assert run("translate", "--free-numbers", lost).stdout == "He was born in 194.\n"


LINES = "犬が猫を見る。馬が犬を追う。\nhello\n鳥が魚を好む"


def test_the_best_translations_of_a_line_are_in_order_behind_its_number(folder):
    found = run("translate", "--folder", folder, "--n-best", 3, "--scores", "--beam", 4, stdin=LINES)
    rows = [line.split("\t") for line in found.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert rows[3] == ["2", "", "hello"]
    first, second, third = Translator.load(folder).translate_n_best(
        ["犬が猫を見る。", "馬が犬を追う。", "鳥が魚を好む"], beam_size=4
    )
    assert [row[1:] for row in rows[4:]] == [[f"{r.log_prob:.2f}", r.translation.text] for r in third[:3]]
    # A line of two sentences: the best of all pairs, by brute force.
    pairs = sorted(((a, b) for a in first for b in second), key=lambda pair: -(pair[0].score + pair[1].score))
    expected = [[f"{a.log_prob + b.log_prob:.2f}", f"{a.translation.text} {b.translation.text}"] for a, b in pairs[:3]]
    assert [row[1:] for row in rows[:3]] == expected
    said = refused("translate", "犬", "--n-best", 6)
    assert said == "attn-course: --n-best 6 must be at most --beam, which is 5"


def test_the_alignment_is_shown_in_words():
    found = run("translate", "猫は魚が好きです。雨です。", "--alignment")
    text, links = found.stdout.rstrip("\n").split("\t")
    assert text.startswith("Cats like fish. ")
    assert {"cats←猫", "like←好き", "fish←魚"} <= set(links.split())


def test_the_page_shows_what_the_command_writes():
    page = (Path(__file__).parents[2] / "book" / "translator.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\.venv/bin/attn-course (translate .*\")$", page, re.MULTILINE)
    shown = [
        line.split("\t") for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) >= 4
    for command in commands:
        if "--folder" in command:
            continue
        found = run(*re.sub(r" --heatmap \S+", "", command).replace('"', "").split()).stdout
        for line in found.splitlines():
            columns = line.split("\t")
            (same,) = [row for row in shown if row[-1] == columns[-1] and len(row) == len(columns)]
            scores = [row[1] if len(row) == 3 else "0" for row in (same, columns)]
            assert float(scores[0]) == pytest.approx(float(scores[1]), abs=0.02)


def test_json_has_an_object_for_each_line(folder):
    found = run(
        "translate", "--folder", folder, "--json", "--n-best", 2, "--alignment", stdin=LINES + "\n" + "犬" * 300
    )
    assert found.exit_code == 1
    records = [json.loads(line) for line in found.stdout.splitlines()]
    assert "犬" in found.stdout  # and no \u72ac
    assert [r["line"] for r in records] == [1, 2, 3, 4]
    assert [s["source"] for s in records[0]["sentences"]] == ["犬が猫を見る。", "馬が犬を追う。"]
    assert (records[1]["text"], records[1]["sentences"]) == ("hello", [])
    translator = Translator.load(folder)
    ranked = translator.translate_n_best(["鳥が魚を好む"], beam_size=5)[0][:2]
    (sentence,) = records[2]["sentences"]
    assert [t["ids"] for t in sentence["translations"]] == [r.translation.ids for r in ranked]
    assert [t["score"] for t in sentence["translations"]] == pytest.approx([r.score for r in ranked], abs=1e-3)
    assert sentence["translations"][0]["alignment"]["source"] == ["鳥", "が", "魚", "を", "好む"]
    assert records[2]["text"] == ranked[0].translation.text
    assert records[3]["error"].startswith("the sentence has ")
    assert records[3]["text"] == ""


def test_the_heatmap_is_drawn_for_one_sentence(folder, tmp_path):
    found = run("translate", "犬が猫を見る", "--folder", folder, "--heatmap", tmp_path / "h.png")
    assert found.exit_code == 0
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    translator = Translator.load(folder)
    ids = translator.translate(["犬が猫を見る"], beam_size=5)[0].ids
    cross = translator.attend("犬が猫を見る", ids).cross  # (layers, H, T, S)
    shown = draw_cross_attention(translator, "犬が猫を見る", ids, 1).text
    assert shown.count("head ") == cross.size(1)
    assert f"{cross[0, 1, 0, 0]:.4f}" in shown
    assert "layer 1" in draw_cross_attention(translator, "犬が猫を見る", ids, None).text
    for text, says in [("犬。猫。", "has 2"), ("dogs", "has 0")]:
        said = refused("translate", text, "--folder", folder, "--heatmap", tmp_path / "no.png")
        assert said == f"attn-course: --heatmap draws one Japanese sentence, and this text {says}"
    assert refused("translate", "--heatmap", tmp_path / "no.png", stdin="犬").endswith("give it as an argument")
    said = refused("translate", "犬", "--folder", folder, "--heatmap", tmp_path / "no.png", "--layer", 2)
    assert said == "attn-course: --layer 2 must be at most 1"
    assert not (tmp_path / "no.png").exists()
    said = refused("translate", "犬", "--layer", 1)
    assert said == "attn-course: --layer 1 needs --heatmap"
    said = refused("translate", "犬", "--heatmap", "x.pdf")
    assert said == "attn-course: --heatmap x.pdf must end with .png"
    said = refused("translate", "犬", "--folder", folder, "--heatmap", tmp_path / "no" / "folder.png")
    assert said.endswith("folder.png: No such file or directory")


def test_a_folder_without_a_translator_is_refused(tmp_path):
    said = refused("translate", "犬", "--folder", tmp_path)
    assert said.startswith(f"attn-course: {tmp_path} holds no translator: settings.toml is missing")


# -- train -------------------------------------------------------------------------------------------


@pytest.fixture
def toy_text(monkeypatch):
    monkeypatch.setattr(training_loop, "load_text", lambda corpora, **_: TEXT)


@pytest.fixture
def settings_file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(TINY.to_toml(), "utf-8")
    return path


def test_training_shows_its_progress_and_leaves_a_translator(toy_text, settings_file, tmp_path):
    found = run("train", settings_file, "--folder", tmp_path / "run", "--set", "steps=8")
    assert found.exit_code == 0
    assert [json.loads(line)["step"] for line in found.stdout.splitlines()] == [4, 8]
    assert "tokens/s" not in found.stderr  # that is for a terminal
    assert re.search(r"Done\. The best weights \(dev BLEU \d+\.\d\) are in .*run\.", found.stderr)
    assert run("translate", "犬が猫を見る", "--folder", tmp_path / "run").exit_code == 0


def test_the_same_command_again_goes_on_or_says_that_it_is_done(toy_text, settings_file, tmp_path):
    arguments = "train", settings_file, "--folder", tmp_path / "run", "--quiet"
    train(TINY, tmp_path / "run", text=TEXT, stop_at=5, quiet=True)
    assert run(*arguments).exit_code == 0
    assert load_checkpoint(tmp_path / "run" / "last.safetensors")[1]["step"] == 12
    again = run("train", settings_file, "--folder", tmp_path / "run")
    assert again.exit_code == 0
    assert "has been trained for 12 steps already" in again.stdout


def test_a_training_that_was_stopped_says_how_to_go_on(toy_text, settings_file, tmp_path, monkeypatch):
    class Stopped(training_loop._StopSignal):
        def __init__(self):
            super().__init__()
            self.requested = True

    monkeypatch.setattr(training_loop, "_StopSignal", Stopped)
    found = run("train", settings_file, "--folder", tmp_path / "run", "--quiet")
    assert found.exit_code == cli.common.STOPPED
    assert found.stderr == "Stopped after step 1 of 12. The same command continues from there.\n"


def test_a_training_of_many_steps_says_that_it_is_done(settings_file, tmp_path, monkeypatch):
    monkeypatch.setattr("attn_course.training.train", lambda *_, **__: None)
    monkeypatch.setattr(cli.train, "_read_progress", lambda path: (int("1000"), 31.5))
    found = run("train", settings_file, "--folder", tmp_path / "run", "--set", "steps=1000", "--quiet")
    assert found.exit_code == 0
    assert found.stderr.startswith("Done. The best weights (dev BLEU 31.5) are in ")


def test_a_name_in_another_encoding_is_an_error_that_says_what_to_do(settings_file, tmp_path, monkeypatch):
    monkeypatch.setattr("attn_course.training.train", lambda *_, **__: "pairs=\udc83.tsv".encode())
    assert refused("train", settings_file, "--folder", tmp_path / "run") == (
        "attn-course: every name on the command line must be valid in the locale's encoding (utf-8); "
        "set PYTHONUTF8=1 to use UTF-8"
    )


def test_single_settings_can_be_changed(settings_file):
    assert cli.train._read_change("steps=7") == ("steps", 7)
    assert cli.train._read_change("peak_lr=1e-3") == ("peak_lr", 1e-3)
    assert cli.train._read_change("norm_first = false") == ("norm_first", False)
    assert cli.train._read_change("schedule=cosine") == ("schedule", "cosine")
    assert cli.train._read_change("corpora=everyday, tatoeba") == ("corpora", ["everyday", "tatoeba"])
    assert cli.train._read_change('corpora=["everyday"]') == ("corpora", ["everyday"])
    assert cli.train._read_change("init_from=runs/a=b") == ("init_from", "runs/a=b")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.toml"], "nothing.toml must be a settings file, or one of the recipes everyday, small"),
        (
            ["everyday", "--set", "stepz=3"],
            "--set stepz=3 must be NAME=VALUE, with one of the names beta2, bfloat16, ",
        ),
        (["everyday", "--set", "steps"], "--set steps must be NAME=VALUE"),
        (["everyday", "--set", "steps=many"], "steps ('many') must have the type int"),
        (["everyday", "--set", "steps=0"], "steps (0) must be at least 1"),
        (["everyday", "--set", "corpora=weekly"], "there is no corpus 'weekly'; there are everyday"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path, arguments, says):
    assert refused("train", *arguments, "--folder", tmp_path / "run").startswith(f"attn-course: {says}")
    assert not (tmp_path / "run").exists()


def test_every_recipe_can_be_used_and_the_shipped_translator_was_trained_with_its_own():
    for path in cli.train.RECIPES.glob("*.toml"):
        assert Settings.load(cli.train._find_settings(path.stem)).corpora
    for number, part in enumerate(("translator_1_", "translator_2_", "translator_3_", ""), start=1):
        recipe = Settings.load(cli.train._find_settings(f"translator_{number}"))
        assert recipe == Settings.load(BUNDLED / f"{part}settings.toml")


def test_the_second_recipe_says_what_it_needs(toy_corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attn_course.data.named_corpora.load_tatoeba", list)
    found = refused("train", "translator_2", "--folder", "two")
    assert found.startswith("attn-course: init_from ('translator_1') must be the folder of an earlier run")


@pytest.fixture
def own_text(tmp_path):
    """The toy language as text of one's own: a table, two files, and a table to test with."""
    pairs = [("".join(ja), " ".join(en)) for ja, en in TEXT.train]
    (tmp_path / "my.tsv").write_text("".join(f"{en}\t{ja}\n" for ja, en in pairs[:40]), "utf-8")
    for side, name in enumerate(("my.ja", "my.en")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs[:40]), "utf-8")
    (tmp_path / "test.tsv").write_text("".join(f"{ja}\t{en}\n" for ja, en in pairs[40:]), "utf-8")
    return tmp_path


def test_a_translator_is_trained_and_measured_on_one_s_own_text(own_text, settings_file, tmp_path, monkeypatch):
    monkeypatch.chdir(own_text)
    found = run(
        *("train", settings_file, "--folder", "run", "--corpus", "pairs=my.tsv", "--test", "pairs=test.tsv"),
        *("--set", "held_out=5", "--set", "steps=4", "--set", "tgt_vocab_size=30"),
    )
    assert found.exit_code == 0, found.stderr
    data = json.loads(Path("run/data.json").read_text("utf-8"))
    # Of 40 pairs 5 are dev; none is in the 6 of the test, and nobody shares a sentence with another here.
    assert [data[part]["pairs"] for part in ("train", "dev", "test")] == [35, 5, 6]
    said = run("evaluate", "--folder", "run").stdout
    assert said.startswith("pairs=test.tsv, test: 6 sentences")
    assert run("evaluate", "--folder", "run", "--corpus", "pairs=test.tsv").stdout == said
    assert run("evaluate", "--folder", "run", "--split", "dev").stdout.startswith("pairs=my.tsv, dev: 5 sentences")
    assert refused("evaluate", "--folder", "run", "--corpus", "pairs=my.tsv") == (
        "attn-course: the translator was trained on pairs=my.tsv; without --corpus it is evaluated on held-out "
        "sentences"
    )
    assert re.search(r"^pairs=my\.ja,my\.en +train +40 pairs", run("data", "pairs=my.ja,my.en").stdout)


def test_a_long_text_is_prepared_in_shards_and_batches_are_accumulated(own_text, settings_file, monkeypatch):
    monkeypatch.chdir(own_text)
    arguments = "train", settings_file, "--folder", "run", "--corpus", "pairs=my.tsv", "--test", "pairs=test.tsv"
    more = "--set", "steps=4", "--set", "tgt_vocab_size=30", "--accumulate", "2", "--pairs-per-shard", "30"
    assert "name a corpus for dev (--dev, --test)" in refused(*arguments, *more)
    found = run(*arguments, *more, "--dev", "pairs=test.tsv")
    assert found.exit_code == 0, found.stderr
    assert len(json.loads(Path("run/shards/index.json").read_text("utf-8"))["shards"]) == 2
    assert Settings.load("run/settings.toml").grad_accum_steps == 2
    Path("my.tsv").unlink()  # measuring does not read it
    assert run("evaluate", "--folder", "run").stdout.startswith("pairs=test.tsv, test: 6 sentences")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--corpus", "pairs=no.tsv"], "no.tsv: No such file or directory"),
        (["--corpus", "pairs=my.ja"], "my.ja must have two sentences with a tab between them in line 1, which is '"),
        (["--corpus", "pairs=my.ja,test.tsv"], "my.ja (40 lines) and test.tsv (6 lines) must have equally many lines"),
        (["--corpus", "pairs=my.tsv"], "pairs=my.tsv has 40 different pairs, too few to hold out 500 for dev and"),
        (["--corpus", "pairs=my.tsv", "--dev", "mine"], "there is no corpus 'mine'"),
        (
            ["--corpus", "pairs=my.tsv", "--set", "held_out=0"],
            "pairs=my.tsv: the dev text has no sentence pairs; dev and test come from the",
        ),
    ],
)
def test_text_of_one_s_own_that_cannot_be_trained_on_is_refused(own_text, settings_file, monkeypatch, arguments, says):
    monkeypatch.chdir(own_text)
    assert refused("train", settings_file, "--folder", "run", *arguments).startswith(f"attn-course: {says}")


# -- evaluate ----------------------------------------------------------------------------------------


def test_evaluate_gives_bleu_with_signature_and_interval_and_chrf(folder, toy_corpus, tmp_path):
    arguments = "evaluate", "--folder", folder, "--corpus", "small_parallel_enja"
    found = run(*arguments, "--output", tmp_path / "out.txt")
    assert found.exit_code == 0
    assert re.search(r"^small_parallel_enja, test: 8 sentences, beam 5$", found.stdout, re.MULTILINE)
    assert re.search(r"^BLEU +\d+\.\d  95 % interval \d+\.\d to \d+\.\d$", found.stdout, re.MULTILINE)
    assert "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:none|smooth:exp|version:" in found.stdout
    assert re.search(r"^chrF +\d+\.\d ", found.stdout, re.MULTILINE)
    assert re.search(r"^exactly right: \d+\.\d%$", found.stdout, re.MULTILINE)
    written = (tmp_path / "out.txt").read_text("utf-8").splitlines()
    expected = Translator.load(folder).translate([ja for ja, _ in toy_corpus.test], beam_size=5)
    assert written == [t.tokenized for t in expected]
    record = json.loads(run(*arguments, "--json", "--split", "dev", "--limit", 3, "--beam", 2).stdout)
    assert (record["split"], record["sentences"], record["beam"]) == ("dev", 3, 2)
    assert record["BLEU"]["low"] <= record["BLEU"]["score"] <= record["BLEU"]["high"]
    assert record["alignment_error_rate"] == {}  # nobody knows its alignments


def test_a_sentence_that_cannot_be_translated_is_named_and_the_others_are_measured(folder, tmp_path):
    pairs = [("犬が猫を見る", "dogs see cats"), ("犬が猫を見る" * 90, "dogs"), ("馬が犬を追う", "horses chase dogs")]
    (tmp_path / "my.tsv").write_text("".join(f"{ja}\t{en}\n" for ja, en in pairs), encoding="utf-8")
    corpus = f"pairs={tmp_path / 'my.tsv'}"
    found = run("evaluate", "--folder", folder, "--corpus", corpus, "--output", tmp_path / "out.txt")
    assert found.exit_code == 1
    first, last = Translator.load(folder).translate(["犬が猫を見る", "馬が犬を追う"], beam_size=5)
    assert (tmp_path / "out.txt").read_text("utf-8") == f"{first.tokenized}\n\n{last.tokenized}\n"
    assert ", test: 3 sentences, beam 5\nBLEU" in found.stdout
    said = found.stderr.splitlines()
    assert said[0].startswith("sentence 2: the sentence has 450 pieces, and the model reads at most 255: ")
    assert said[0].endswith("; its translation counts as empty")
    assert said[1:] == ["attn-course: 1 of 3 sentences could not be translated"]


def test_evaluate_refuses_what_it_cannot_measure(folder, toy_corpus, monkeypatch):
    arguments = "evaluate", "--folder", folder, "--corpus"
    assert refused(*arguments, "everyday", "--split", "train") == "attn-course: --split train must be test or dev"
    monkeypatch.setattr("attn_course.data.named_corpora.load_tatoeba", lambda: toy_corpus.train)
    assert refused(*arguments, "tatoeba").startswith("attn-course: tatoeba has no test part; everyday and small")
    assert "there is no corpus 'daily'" in refused(*arguments, "daily")


def test_alignments_are_measured_where_they_are_known(monkeypatch):
    errors = alignment_error_rates(Translator.load(), "test", limit=20)
    assert set(errors) == {"diagonal", "layer 1", "layer 2"}
    assert all(0 < error < 1 for error in errors.values())
    # A layer that looks at the true words makes no error, but for words whose links the argmax cannot all name.
    assert min(errors.values()) < errors["diagonal"]


def test_alignments_are_measured_of_a_translator_that_lacks_letters(folder):
    errors = alignment_error_rates(Translator.load(folder), "test", limit=3)
    assert set(errors) == {"diagonal", "layer 1"}


# -- data --------------------------------------------------------------------------------------------


def test_data_lists_the_corpora_without_fetching_any(monkeypatch, tmp_path):
    monkeypatch.delenv("ATTN_COURSE_DATA", raising=False)
    for module in (corpora, named_corpora):  # whatever this machine has in its cache
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(corpora, "_fetch", lambda *_: pytest.fail("nothing was asked for"))
    found = run("data")
    assert found.exit_code == 0
    for name in ("everyday", "handwritten", "small_parallel_enja", "tatoeba", "snow=PATH", "pairs=PATH"):
        assert re.search(rf"^{name} ", found.stdout, re.MULTILINE)
    assert found.stdout.count("not here yet") == 2


def test_data_counts_a_corpus_and_shows_its_checksums(toy_corpus):
    found = run("data", "small_parallel_enja", "--show", 2)
    assert re.search(r"^small_parallel_enja +train +46 pairs  SHA-256 [0-9a-f]{64}$", found.stdout, re.MULTILINE)
    assert re.search(r"^small_parallel_enja +test +8 pairs ", found.stdout, re.MULTILINE)
    ja, en = toy_corpus.train[1]
    assert f"  {ja}\n  {en}\n" in found.stdout


def test_a_corpus_that_cannot_be_fetched_is_an_error_of_one_line(monkeypatch, tmp_path):
    def offline():
        raise ConnectionError("train.ja could not be downloaded from there; nothing of it has been kept")

    monkeypatch.setattr("attn_course.data.named_corpora.load_small_parallel_enja", offline)
    said = refused("data", "small_parallel_enja")
    assert said == "attn-course: train.ja could not be downloaded from there; nothing of it has been kept"
    assert refused("data", f"snow={tmp_path / 'no.csv'}").endswith("no.csv: No such file or directory")


# -- Standard streams --------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch):
    """Start the installed command as a shell does: streams in an encoding that is not UTF-8, some of them closed."""

    def start(*arguments, stdin="", encoding="cp1252", closed=()):
        streams = {}
        for name in ("stdin", "stdout", "stderr"):
            content = io.BytesIO(stdin.encode() if name == "stdin" else b"")
            errors = "backslashreplace" if name == "stderr" else "strict"
            streams[name] = None if name in closed else io.TextIOWrapper(content, encoding, errors=errors)
            monkeypatch.setattr(sys, name, streams[name])
            monkeypatch.setattr(sys, f"__{name}__", streams[name])
        monkeypatch.setattr(sys, "argv", ["attn-course", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        written = []
        for name in ("stdout", "stderr"):
            getattr(sys, name).flush()
            written.append(streams[name].buffer.getvalue().decode() if streams[name] else None)
        for name in closed:
            getattr(sys, name).close()
        return ended.value.code, *written

    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    return start


def test_output_is_utf_8_whatever_the_locale(folder, started):
    lines = "犬が猫を見る\n🐈\n馬が犬を追う"
    first, third = translated(folder, "犬が猫を見る", "馬が犬を追う")
    status, out, err = started("translate", "--folder", folder, stdin=lines)
    assert (status, out) == (0, f"{first}\n🐈\n{third}\n")
    assert err == "line 2: no Japanese in '🐈'; it stays unchanged\n"
    _, out, _ = started("data", "everyday", "--show", 1)
    assert re.search(r"[ぁ-ん]", out)


def test_no_character_is_an_error_in_the_encoding_that_the_user_asks_for(folder, started, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    lines = "犬が猫を見る\n🐈\n馬が犬を追う"
    first, third = translated(folder, "犬が猫を見る", "馬が犬を追う")
    status, out, _ = started("translate", "--folder", folder, stdin=lines)
    assert (status, out) == (0, f"{first}\n\\U0001f408\n{third}\n")
    # JSON knows no \U; its own escapes are read back.
    _, out, _ = started("translate", "--folder", folder, "--json", "--alignment", stdin=lines)
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["source"] for record in records] == lines.split("\n")


def test_warnings_never_come_among_the_translations(folder, started):
    status, out, err = started("translate", "--folder", folder, stdin="☃が犬を見る\n", closed=["stderr"])
    assert (status, out, err) == (0, translated(folder, "☃が犬を見る")[0] + "\n", None)


@pytest.mark.parametrize(
    ("arguments", "closed", "says"),
    [
        (["translate"], "stdin", "standard input is closed; give the text as an argument, or lines on"),
        *(
            (arguments, "stdout", "standard output is closed; it must be a terminal, a pipe or a file")
            for arguments in (["translate", "犬"], ["evaluate"], ["data"])
        ),
    ],
)
def test_a_command_says_which_stream_is_closed(started, arguments, closed, says):
    status, _, err = started(*arguments, closed=[closed])
    assert status == 1
    assert err.startswith(f"attn-course: {says}")


def test_a_warning_that_cannot_be_written_stops_nothing(monkeypatch):
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    assert cli.common.say("a warning") is None


# -- The command itself ------------------------------------------------------------------------------


def test_ctrl_c_ends_without_a_traceback(folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "translate_n_best", interrupted)
    found = run("translate", "犬", "--folder", folder)
    assert (found.exit_code, found.stderr) == (cli.common.STOPPED, "attn-course: stopped\n")


def test_help_does_not_wait_for_what_only_the_commands_need():
    heavy = {"torch", "numpy", "matplotlib", "sudachipy", "sentencepiece", "sacrebleu", "safetensors", "jaxtyping"}
    code = (
        "import sys; from attn_course.translation import cli\n"
        "try: cli.app(['translate', '--help'])\nfinally: print(*sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Translate Japanese" in said
    assert heavy & set(said.splitlines()[-1].split()) == set()


def test_ctrl_c_while_modules_are_imported_is_tidy_too(tmp_path):
    """Typer is read before any command can catch it."""
    # A shell that starts something in the background lets it ignore Ctrl-C.
    heeding = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    (tmp_path / "typer.py").write_text(f"{heeding}print('here', flush=True)\ntime.sleep(60)\n", "utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "attn_course", "--help"]
    with subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True) as child:
        assert child.stdout.readline() == "here\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate() == ("", "attn-course: stopped\n")
    assert child.returncode == cli.common.STOPPED


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout == f"attn-course {version('attn_course')}\n"


def test_the_shell_can_complete_commands_options_recipes_and_corpora():
    def complete(words):
        environment = {
            "_ROOT_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        return runner.invoke(cli.app, [], prog_name="root", env=environment).stdout.split()

    assert complete("root tra") == ["train", "translate"]
    assert complete("root translate --n") == ["--n-best"]
    assert complete("root train translator") == [f"translator_{part}" for part in range(1, 5)]
    assert complete("root evaluate --corpus e") == ["everyday"]
    assert complete("root data t") == ["tatoeba"]


def test_torchrun_gets_the_error_for_its_report(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    said = refused("train", "nothing.toml", "--folder", tmp_path / "run")
    message = json.loads((tmp_path / "error.json").read_text("utf-8"))["message"]
    assert message["message"] == message["extraInfo"]["py_callstack"] == said


def test_the_package_installs_the_command_and_its_recipes():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"] == {"attn-course": "attn_course.__main__:main"}
    assert "recipes/*.toml" in project["tool"]["setuptools"]["package-data"]["attn_course.training"]


def test_help_names_every_command_and_an_unknown_one_is_a_mistake_of_the_command_line():
    assert all(name in run("--help").stdout for name in ("data", "train", "translate", "evaluate"))
    assert run("trian").exit_code == 2


def test_the_shipped_translator_says_when_it_is_unsure_and_its_output_stays_the_same(started):
    lines = "電子のスピンは外部磁場の方向に量子化される。\n猫は窓の前で寝ています。"
    status, out, err = started("translate", stdin=lines)
    assert status == 0
    assert out.splitlines()[1:] == ["The cat is sleeping in front of the window."]
    assert out.count("\n") == 2
    assert "unsure" not in out
    assert err.startswith("line 1: unsure: '電子のスピン")
    assert err.count("\n") == 1
