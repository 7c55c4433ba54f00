"""The translator that comes with the package, and any other that was trained."""

import functools
import json
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from tolerance import allowed

from attn_course.data.batches import SUBWORD_IDS, make_batch
from attn_course.data.everyday import load_handwritten
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Subwords
from attn_course.data.words import words
from attn_course.decoding import Beam, beam_search, greedy_search
from attn_course.training import Settings, load_checkpoint
from attn_course.training.build_model import make_model
from attn_course.translation.translator import BUNDLED, END, LENGTH_REWARD, Translator

SENTENCES = [
    "私は毎日学校へ行きます。",
    "彼女は昨日駅で本を三冊買いました。",
    "これは何ですか。",
    "母は今台所で料理をしています。",
]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load()


def test_the_shipped_translator_works_at_once(translator):
    found = translator.translate(SENTENCES[:3], beam_size=4)
    assert [t.text for t in found] == [
        "I go to school every day.",
        "She bought three books at the station yesterday.",
        "What is this?",
    ]


def test_its_weights_are_at_most_12_mb_in_half_precision():
    weights, _ = load_checkpoint(BUNDLED / "best.safetensors")
    assert {w.dtype for w in weights.values()} == {torch.float16}
    assert (BUNDLED / "best.safetensors").stat().st_size <= 12_000_000


def test_how_it_was_trained_and_what_it_reached_lies_beside_it():
    parts = ["", *(f"translator_{number}_" for number in (3, 2, 1))]
    for part, earlier in zip(parts, [*parts[1:], "_"], strict=True):
        settings = Settings.load(BUNDLED / f"{part}settings.toml")
        assert f"{settings.init_from}_" == earlier
        curve = [json.loads(line) for line in (BUNDLED / f"{part}metrics.jsonl").read_text("utf-8").splitlines()]
        assert curve[-1]["step"] == settings.steps
        data = json.loads((BUNDLED / f"{part}data.json").read_text("utf-8"))
        assert data["corpora"] == list(settings.corpora)
    results = json.loads((BUNDLED / "results.json").read_text("utf-8"))
    assert all({"name", "bleu", "low", "high", "chrf", "signature"} <= set(row) for row in results)
    assert all(row["low"] < row["bleu"] < row["high"] for row in results)


def test_the_page_shows_the_recorded_results():
    page = (Path(__file__).parents[2] / "book" / "translator.md").read_text(encoding="utf-8")
    for row in json.loads((BUNDLED / "results.json").read_text("utf-8")):
        shown = f"| {row['name']} | {row['bleu']:.1f} [{row['low']:.1f}, {row['high']:.1f}] | "
        (line,) = [line for line in page.splitlines() if line.startswith(shown)]
        assert abs(float(line.split("|")[3]) - row["chrf"]) <= 0.06


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
def test_the_page_shows_mistakes_that_the_translator_makes(translator):
    page = (Path(__file__).parents[2] / "book" / "translator.md").read_text(encoding="utf-8")
    table = page.split("## What the translator gets wrong")[1].split("- **")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "。 |" in line]
    assert len(rows) >= 5
    for japanese, meaning, shown in rows:
        (found,) = translator.translate([japanese], beam_size=5)
        assert found.text == shown != meaning


def test_sentences_translated_together_are_those_translated_alone(translator):
    together = translator.translate(SENTENCES)
    assert together == [translator.translate([s])[0] for s in SENTENCES]


def test_spaces_and_wide_letters_change_nothing(translator):
    assert translator.translate(["私 は １０ 時 に 寝 ま す 。"]) == translator.translate(["私は10時に寝ます。"])


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
def test_its_attention_has_a_row_for_each_piece_and_the_end(translator):
    (found,) = translator.translate(SENTENCES[:1])
    weights = translator.attend(SENTENCES[0], found.ids)
    rows, columns = translator.tgt_pieces(found.ids), translator.src_pieces(SENTENCES[0])
    assert rows[-1] == columns[-1] == END
    layers = len(translator.model.decoder_layers)
    heads = translator.model.decoder_layers[0].cross_attention.num_heads
    assert weights.cross.shape == (layers, heads, len(rows), len(columns))
    assert weights.encoder.shape[-2:] == (len(columns), len(columns))
    torch.testing.assert_close(weights.cross.sum(-1), torch.ones(layers, heads, len(rows)))
    assert (weights.decoder.triu(1) == 0).all()


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
def test_attend_looks_as_the_translation_was_written(translator):
    """Fed with what greedy search wrote, the model would write the same again: the rows are not shifted."""
    (found,) = translator.translate(SENTENCES[:1])
    batch = make_batch([(translator.encode(SENTENCES[0]), found.ids)])
    logits, _ = translator.model(batch.src, batch.tgt_in, src_mask=batch.src_mask)
    assert logits[0].argmax(-1).tolist() == [*found.ids, EOS_ID]


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
@torch.no_grad()
def test_each_row_that_attend_returns_is_where_the_model_looks_when_it_has_read_no_more(translator):
    (found,) = translator.translate(SENTENCES[:1])
    weights, model = translator.attend(SENTENCES[0], found.ids), translator.model
    memory, encoder = model.encode(torch.tensor([[*translator.encode(SENTENCES[0]), EOS_ID]]), need_weights=True)
    width = model.encoder_layers[0].feed_forward.up.out_features
    near = allowed(torch.float32, terms=width, depth=10 * len([*model.encoder_layers, *model.decoder_layers]))
    torch.testing.assert_close(weights.encoder, torch.stack(encoder)[:, 0], **near)
    for t in range(len(found.ids) + 1):
        _, (decoder, cross) = model.decode(torch.tensor([[BOS_ID, *found.ids[:t]]]), memory, need_weights=True)
        torch.testing.assert_close(weights.cross[:, :, t], torch.stack(cross)[:, 0, :, -1], **near)
        torch.testing.assert_close(weights.decoder[:, :, t, : t + 1], torch.stack(decoder)[:, 0, :, -1], **near)


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
@pytest.mark.parametrize("reward", [0.0, 0.25, 3.0])
def test_the_reward_for_length_is_the_one_that_is_asked_for(translator, reward):
    how = {"beam_size": 3, "length_reward": reward}
    ranked = translator.translate_n_best(SENTENCES[:2], **how)
    for (_, _, ids), log_prob, score in (one for row in ranked for one in row):
        assert score == pytest.approx(log_prob + reward * (len(ids) + 1), abs=1e-6)
    assert translator.translate(SENTENCES[:2], **how) == [row[0].translation for row in ranked]


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
def test_a_high_reward_makes_translations_longer(translator):
    lengths = [
        sum(len(t.ids) for t in translator.translate(SENTENCES, beam_size=3, length_reward=reward))
        for reward in (0.0, 5.0)
    ]
    assert lengths[0] < lengths[1]


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
def test_a_beam_of_one_is_greedy_search(translator):
    pairs = load_handwritten()[::7]
    batch = make_batch([(translator.encode(japanese), []) for japanese, _ in pairs])
    ids = greedy_search(translator.model, batch.src, batch.src_lengths, special=SUBWORD_IDS, max_len=80).tolist()
    written = [[i for i in row if i not in (PAD_ID, BOS_ID, EOS_ID)] for row in ids]
    assert [t.ids for t in translator.translate([japanese for japanese, _ in pairs])] == written


@pytest.mark.cpu_only("a translator of a file, which is read to the CPU")
def test_the_best_of_several_translations_is_the_translation_and_each_has_its_probability(translator):
    ranked = translator.translate_n_best(SENTENCES, beam_size=3)
    assert [r[0].translation for r in ranked] == translator.translate(SENTENCES, beam_size=3)
    for sentence, row in zip(SENTENCES, ranked, strict=True):
        assert len(row) == 3
        assert [r.score for r in row] == sorted((r.score for r in row), reverse=True)
        for (_, _, ids), log_prob, score in row:
            batch = make_batch([(translator.encode(sentence), ids)])
            logits, _ = translator.model(batch.src, batch.tgt_in, src_mask=batch.src_mask)
            steps = logits[0].log_softmax(-1).gather(-1, batch.tgt_out[0].unsqueeze(-1))
            assert log_prob == pytest.approx(steps.sum().item(), abs=1e-3)
            assert score == pytest.approx(log_prob + LENGTH_REWARD * (len(ids) + 1), abs=1e-6)


def test_raw_text_is_cut_into_pieces_that_come_together_as_words(translator):
    sentence = "私は47歳で、1,250円でアルゼンチンへ行った。"
    cut = translator.cut(sentence)
    assert "".join(piece for word in cut for piece in word) == sentence
    assert [UNK_ID not in translator.src_subwords.encode([piece]) for word in cut for piece in word].count(False) == 0
    assert {"47", "1,250", "アルゼンチン"} <= {"".join(word) for word in cut}
    assert translator.src_pieces(sentence)[:-1] == [
        "·" * (k > 0) + piece for word in cut for k, piece in enumerate(word)
    ]
    assert len(translator.encode(sentence)) == sum(map(len, cut))


def test_a_translator_of_words_cuts_them_first(translator):
    old = Translator(translator.model, translator.src_subwords, translator.tgt_subwords)
    sentence = "彼は昨日図書館で本を読みました。"
    assert ["".join(word) for word in old.cut(sentence)] == words(sentence)
    assert old.encode(sentence) == old.src_subwords.encode(words(sentence))


def test_the_alignment_links_words_that_mean_the_same(translator):
    ids = translator.translate(SENTENCES[1:2])[0].ids
    source, target, links = translator.align(SENTENCES[1], ids)
    assert "".join(source) == SENTENCES[1]
    assert target == ["she", "bought", "three", "books", "at", "the", "station", "yesterday", "."]
    found = {(source[s], target[t]) for s, t in links}
    assert {("買い", "bought"), ("本", "books"), ("駅", "station"), ("昨日", "yesterday")} <= found
    assert links == sorted(links, key=lambda link: link[1])


def test_a_word_that_cannot_be_spelled_has_its_place_in_the_alignment(translator):
    ids = [*translator.tgt_subwords.encode(["my", "name", "is"]), UNK_ID, *translator.tgt_subwords.encode(["."])]
    assert translator.align("私の名前は魑魅です。", ids).target == ["my", "name", "is", "⁇", "."]


def test_text_that_looks_like_a_special_piece_or_a_mark_is_aligned():
    ja, en = ["■", "·", "<->", "猫"], ["■", "·s", "<->", "cats"]
    src = Subwords.train([ja] * 5, vocab_size=13, spaces=False)
    tgt = Subwords.train([en] * 5, vocab_size=29, spaces=True)
    assert {"<->", "■"} <= {src.piece(i) for i in src.encode(ja)}
    assert {"▁<->", "▁■"} <= {tgt.piece(i) for i in tgt.encode(en)}
    settings = Settings(d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)
    translator = Translator(make_model(settings, len(src), len(tgt)), src, tgt, src_words=False)
    source, target, _ = translator.align("■·▁<-><s>猫", [*tgt.encode(en), UNK_ID])
    assert "".join(source) == "■·▁<-><s>猫"
    assert target == [*en, "⁇"]
    assert translator.tgt_pieces([BOS_ID, *tgt.encode(["<->"]), PAD_ID], marks=False) == ["", "<->", "", ""]


# -- Numbers -----------------------------------------------------------------------------------------

ASKED_FOR = "0123456789%$()&/\":;!?'-.,"


@pytest.mark.parametrize("side", ["src", "tgt"])
def test_every_digit_and_sign_is_in_the_vocabularies_and_digits_are_apart(translator, side):
    subwords = getattr(translator, f"{side}_subwords")
    assert set(ASKED_FOR) <= set(Settings.load(BUNDLED / "settings.toml").required_characters)
    for sign in ASKED_FOR:
        assert UNK_ID not in subwords.encode([f"a{sign}"]), sign
    with_digits = {p for p in map(subwords.piece, range(len(subwords))) if any(map(str.isdecimal, p))}
    assert with_digits == set("0123456789")


TWO_TO_NINETY_NINE = [str(n) for n in range(2, 100)]
LONG = [str(10**d + 7919 * k % (9 * 10**d)) for d in range(1, 6) for k in range(1, 40)]
KINDS = {
    "age": (["私は{}歳です。", "祖父は{}歳で亡くなりました。", "彼女は{}歳のときに結婚した。"], TWO_TO_NINETY_NINE),
    "price": (["このカメラは{}円です。", "切符は{}円でした。", "彼はその時計に{}ドル払った。"], LONG),
    "year": (
        ["私は{}年に生まれました。", "この橋は{}年に建てられた。", "{}年に大きな地震があった。"],
        [str(n) for n in range(1007, 2100, 13)],
    ),
    "time": (
        ["私は{}時{}分に起きます。", "電車は午前{}時{}分に出ます。", "会議は午後{}時{}分に始まる。"],
        [f"{1 + n % 12} {2 + 7 * n % 58}" for n in range(80)],
    ),
    "quantity": (["箱の中に卵が{}個あります。", "その村には{}人が住んでいる。", "この本は{}ページあります。"], LONG),
    "room": (["部屋番号は{}です。", "私の部屋は{}号室です。"], [str(n) for n in range(101, 2000, 23)]),
    "share": (["学生の{}%が反対した。", "値段が{}%上がった。"], TWO_TO_NINETY_NINE),
}
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
SPELLED = {
    name: n
    for n, name in enumerate(
        ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 2
    )
}
SPELLED |= {name: n for n, name in zip(range(20, 100, 10), TENS.split(), strict=True)}


def sentences_with_numbers(count, seed):
    """Sentences with their numbers, every other one in full width."""
    rng = random.Random(seed)
    for number in range(count):
        templates, values = KINDS[rng.choice(list(KINDS))]
        written = rng.choice(values).split()
        sentence = rng.choice(templates).format(*written)
        if number % 2:
            sentence = sentence.translate({ord("0") + d: ord("０") + d for d in range(10)})
        yield sentence, [int(number) for number in written]


def numbers_in(english):
    words = re.findall(r"\d+(?:,\d{3})*|[a-z]+", english.lower())
    return [SPELLED.get(w) or int(w.replace(",", "")) for w in words if w in SPELLED or w[0].isdecimal()]


def test_numbers_come_out_as_they_went_in(translator):
    # With seed 0 the share of the last part was chosen.
    cases = list(sentences_with_numbers(80, seed=1))
    found = translator.translate([sentence for sentence, _ in cases], beam_size=5)
    wrong = [
        (sentence, translation.text)
        for (sentence, numbers), translation in zip(cases, found, strict=True)
        if numbers_in(translation.text) != numbers
    ]
    assert len(wrong) <= 1, wrong


@pytest.mark.bad_input
def test_translate_refuses_a_single_string(translator):
    with pytest.raises(TypeError, match=r"sentences must be a list of sentences, not one string: write \['猫です'\]"):
        translator.translate("猫です")


@pytest.mark.bad_input
@pytest.mark.parametrize("sentence", [None, float("nan")])
def test_a_missing_sentence_is_refused(translator, sentence):
    with pytest.raises(TypeError, match=r"^a sentence must be a string, not (NoneType|float) \((None|nan)\)$"):
        translator.translate(["猫です", sentence])


@pytest.mark.bad_input
def test_weights_of_a_model_in_training_mode_are_refused(translator):
    translator.model.train()
    try:
        for call in (translator.attend, translator.align):
            with pytest.raises(ValueError, match=r"the model is in training mode, .* call model.eval\(\) first"):
                call("猫です", [7])
    finally:
        translator.model.eval()


@pytest.mark.bad_input
@pytest.mark.parametrize("sentence", ["", "  ", "\n"])
def test_an_empty_sentence_is_refused(translator, sentence):
    with pytest.raises(ValueError, match="there is nothing to translate in"):
        translator.translate([sentence])


@pytest.mark.bad_input
def test_a_sentence_that_is_too_long_is_refused_with_its_length(translator):
    with pytest.raises(ValueError, match=r"the sentence has \d+ pieces, and the model reads at most 255"):
        translator.translate(["犬と猫と" * 100])


@pytest.mark.bad_input
def test_a_folder_without_a_translator_is_refused_with_the_file_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no translator: settings.toml is missing"):
        Translator.load(tmp_path)
    for name in ("settings.toml", "src.subwords.model", "tgt.subwords.model"):
        shutil.copy(BUNDLED / name, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"best.safetensors is missing"):
        Translator.load(tmp_path)


def test_with_a_cache_it_writes_what_it_writes_without(translator):
    """Greedy search and a beam of 5, as ``translate`` calls them, over sentences written by hand."""
    pairs, model = load_handwritten(), translator.model
    device = next(model.parameters()).device
    of_beam = functools.partial(beam_search, beam=Beam(5, 0.0, LENGTH_REWARD, 2.0))

    def written(search, step, **how):
        batch = make_batch([(translator.encode(japanese), []) for japanese, _ in pairs[::step]]).to(device)
        found = search(model, batch.src, batch.src_lengths, special=SUBWORD_IDS, max_len=40, **how)
        return found.tolist() if search is greedy_search else [[h.ids.tolist() for h in row] for row in found]

    for search, step in ((greedy_search, 20), (of_beam, 160)):
        assert written(search, step) == written(search, step, use_cache=False)
