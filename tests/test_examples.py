"""examples/translate_from_scratch.py, which imports nothing of the package, against the package."""

import importlib.util
import itertools
import json
import random
import re
import sys
from pathlib import Path

import pytest
import torch

import attn_course

PATH = Path(__file__).parents[1] / "examples" / "translate_from_scratch.py"
spec = importlib.util.spec_from_file_location("translate_from_scratch", PATH)
scratch = sys.modules["translate_from_scratch"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scratch)

TINY = {"d_model": 8, "num_heads": 2, "d_ff": 12, "dropout": 0.0, "max_len": 16}


def tiny_model(vocab_size=20, seed=0, **settings):
    torch.manual_seed(seed)
    return scratch.Transformer(
        scratch.Config(src_vocab_size=20, tgt_vocab_size=vocab_size, **TINY, **settings)
    ).double()


def batch():
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, 20, (length,), generator=generator) for length in (7, 4, 1, 5, 5, 3)]
    return scratch.pad(rows[:3]), scratch.pad(rows[3:])


def test_it_imports_only_what_it_promises():
    imports = re.findall(r"^(?:import|from) (\w+)", PATH.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(imports) - set(sys.stdlib_module_names) == {"torch", "sentencepiece", "sacrebleu"}


def test_its_model_and_its_gradients_are_the_package_s():
    theirs = tiny_model()
    ours = attn_course.Transformer(20, 20, d_model=8, num_heads=2, num_layers=(3, 2), d_ff=12, dropout=0.0).double()
    ours.load_state_dict(theirs.state_dict() | {"to_logits.weight": theirs.tgt_embed.weight})
    src, tgt = batch()
    mask = attn_course.make_padding_mask([7, 4, 1])
    expected = ours(src, tgt, src_mask=mask)[0]
    actual = theirs(src, tgt)
    torch.testing.assert_close(actual, expected)
    for logits in (actual, expected):
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    expected = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, msg=name)


def test_beam_search_finds_the_best_translation_of_all():
    model = tiny_model(vocab_size=6).eval()
    src = torch.tensor([5, 9, scratch.EOS])

    def log_prob(ids):
        logits = model(src[None], torch.tensor([ids[:-1]]))[0]
        return logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].sum().item()

    others = [token for token in range(6) if token != scratch.EOS]
    ended = [
        [scratch.BOS, *words, scratch.EOS] for length in range(4) for words in itertools.product(others, repeat=length)
    ]
    best = max(ended, key=lambda ids: log_prob(ids) / len(ids))
    wide = scratch.beam_search(model, src, beam=400, extra=2)  # no more than five ids
    assert wide == best
    greedy = scratch.beam_search(model, src, beam=1, extra=2)
    assert log_prob(greedy) / len(greedy) <= log_prob(best) / len(best)


PARTS = (  # who, what colour, which thing, does what: 6 * 6 * 10 * 5 sentences
    "彼 he,彼女 she,父 my father,母 my mother,先生 the teacher,友達 my friend",
    "赤い red,青い blue,白い white,黒い black,古い old,新しい new",
    "車 car,本 book,家 house,机 desk,椅子 chair,傘 umbrella,鞄 bag,時計 watch,帽子 hat,絵 picture",
    "見ます sees,買います buys,売ります sells,洗います washes,忘れます forgets",
)


def sentences():
    """All pairs that these words make. In English, the verb stands before the thing, in Japanese after it."""
    words = [[tuple(word.split(maxsplit=1)) for word in part.split(",")] for part in PARTS]
    for (ja, who), (colour, en_colour), (thing, en_thing), (verb, en_verb) in itertools.product(*words):
        yield f"{ja}は {colour} {thing}を {verb}。", f"{who} {en_verb} the {en_colour} {en_thing} ."


@pytest.fixture
def corpus(tmp_path):
    """A folder with 1,750 pairs for training, five of them from the 50 for testing."""
    pairs = random.Random(0).sample(list(sentences()), 1795)
    for name, part in {"test": pairs[:50], "train": pairs[50:] + pairs[:5]}.items():
        for language, lines in zip(("ja", "en"), zip(*part, strict=True), strict=True):
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_a_minute_of_training_translates_sentences_that_it_has_not_seen(corpus):
    test = scratch.read_pairs(corpus, "test")
    pairs = scratch.without_test_sentences(scratch.read_pairs(corpus, "train"), test)
    assert len(pairs) == 1745
    tokenizers = [
        scratch.train_tokenizer(side, 100, corpus / str(i)) for i, side in enumerate(zip(*pairs, strict=True))
    ]
    config = scratch.Config(
        *map(len, tokenizers), d_model=64, num_encoder_layers=1, num_decoder_layers=1, d_ff=128, dropout=0.0, steps=300,
        tokens_per_batch=800, peak_lr=5e-3, warmup_steps=50,
    )  # fmt: skip
    torch.manual_seed(0)
    model = scratch.Transformer(config)
    device = next(model.parameters()).device
    scratch.train(model, scratch.encode_pairs(pairs, *tokenizers, config.max_len), config, device)
    outputs = scratch.translate(model, [ja for ja, _ in test], *tokenizers, device)
    wrong = [(output, *pair) for output, pair in zip(outputs, test, strict=True) if output != pair[1]]
    assert len(wrong) <= 5, wrong


def test_the_program_trains_scores_and_translates(corpus, capsys, monkeypatch):
    outputs = scratch.main([str(corpus), "--steps", "6"])
    printed = capsys.readouterr().out
    assert printed.startswith("1,745 pairs")
    assert re.search(r"^BLEU = \d", printed, flags=re.MULTILINE)
    lines = (corpus / "test.ja").read_text(encoding="utf-8").splitlines(keepends=True)
    monkeypatch.setattr("sys.stdin", lines[:3])
    scratch.main([str(corpus), "--translate"])
    assert capsys.readouterr().out.splitlines() == outputs[:3]


def test_spaces_of_the_source_are_kept_only_on_request(corpus):
    (joined, _), *_ = scratch.read_pairs(corpus, "test")
    (spaced, _), *_ = scratch.read_pairs(corpus, "test", " ")
    assert " " not in joined
    assert spaced.split() == (corpus / "test.ja").read_text(encoding="utf-8").splitlines()[0].split()
    assert "".join(spaced.split()) == joined


@pytest.mark.bad_input
def test_files_of_different_length_are_refused(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.ja").write_text("猫\n犬\n", encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("cat\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"test\.ja has 2 lines and test\.en has 1"):
        scratch.main([str(tmp_path)])


def test_the_page_shows_the_recorded_runs():
    root = PATH.parents[1]
    record = json.loads((root / "benchmarks" / "results" / "translate_from_scratch.json").read_text(encoding="utf-8"))
    page = (root / "book" / "translator.md").read_text(encoding="utf-8")
    page = page.split("## Train on real pairs with one file")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    steps = next(row[1:] for row in rows if row[0] == "loss at step")
    runs = record["runs"]
    assert len({run["signature"] for run in runs}) == 1
    assert len({run["pairs"] for run in runs}) == 1
    for run in runs:
        results, losses = (row[1:] for row in rows if row[0] == run["name"])
        p = "" if run["p_value"] is None else f"{run['p_value']:.3f}"
        score = f"{run['bleu']:.1f} [{run['low']:.1f}, {run['high']:.1f}]"
        minutes = [f"{run[key]:.0f}" for key in ("minutes", "processor_minutes")]
        assert results == [f"`{run['options']}`", score, p, *minutes]
        assert losses == [f"{run['loss'][step.replace(',', '')]:.2f}" for step in steps]
    complete, bag = (next(run for run in runs if run["name"] == name) for name in ("complete model", "no positions"))
    assert f"It loses only {complete['bleu'] - bag['bleu']:.1f} points".lower() in page
    shuffled = record["shuffled_source"]
    changed = shuffled["of"] - shuffled["same_translations"]
    assert f"{changed} translations changed, but BLEU fell only from {complete['bleu']} to {shuffled['bleu']}" in page


def test_without_positions_the_encoder_reads_a_bag_of_tokens():
    model = tiny_model(use_positions=False).eval()
    src = torch.tensor([4, 9, 7, 5, 9, 2])
    other = torch.tensor([9, 5, 9, 4, 7, 2])
    assert scratch.beam_search(model, src) == scratch.beam_search(model, other)
    tgt = torch.tensor([[1, 4, 6, 8]])
    torch.testing.assert_close(model(src[None], tgt), model(other[None], tgt))
    with_positions = tiny_model().eval()
    assert not torch.allclose(with_positions(src[None], tgt), with_positions(other[None], tgt))
