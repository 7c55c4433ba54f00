"""The training loop against a plain one: the same weights for every setting, and the right ones kept as the best."""

import json
import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import sacrebleu
import torch
from safetensors.torch import load_file
from tolerance import allowed
from torch.testing import assert_close

from attn_course import Transformer
from attn_course.data.batches import make_buckets
from attn_course.data.corpus_mixture import Text, WordPair
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, Subwords
from attn_course.training import Settings, train, translate_greedily

pytestmark = pytest.mark.cpu_only("the arithmetic of the loop, in float64, and weights of files")

WHO = dict(zip("犬猫鳥馬", ["dogs", "cats", "birds", "horses"], strict=True))
# Capitals, and signs that some tokenisers of BLEU cut off: they are part of these words.
DOES = {"見る": "see!", "好む": "Like", "嫌う": "don't-like"}
TEXT = Text(
    train=[
        *(WordPair([a, "が", "走る"], [WHO[a], "run", "."]) for a in WHO),
        *(WordPair([a, "が", b, "を", v], [WHO[a], DOES[v], WHO[b]]) for a in WHO for b in WHO if a < b for v in DOES),
        *(WordPair([a, "と", b, "が", "走る"], [WHO[a], "and", WHO[b], "run", "."]) for a in WHO for b in WHO if a > b),
    ],
    dev=[WordPair([a, "が", "猫", "を", v], [WHO[a], DOES[v], "cats", "."]) for a in "馬鳥" for v in list(DOES)[:2]],
    test=[],
)
PLAIN = Settings(
    src_vocab_size=22,
    tgt_vocab_size=48,
    d_model=8,
    num_heads=2,
    num_encoder_layers=1,
    num_decoder_layers=2,
    d_ff=12,
    dropout=0.0,
    steps=10,
    tokens_per_batch=60,
    peak_lr=3e-3,
    warmup_steps=3,
    max_grad_norm=100.0,
    evaluate_every=5,
    save_every=100,
)

EVERYTHING = {
    # Set to what nothing else here is set to, so that each of them shows when it is not heard.
    "seed": 5,
    "peak_lr": 5e-4,
    "warmup_steps": 7,
    "max_grad_norm": 0.05,
    "weight_decay": 2.0,
    "beta2": 0.7,
    "label_smoothing": 0.4,
    "tie_weights": False,
    "norm_first": False,
    "d_model": 12,
    "num_heads": 3,
    "num_encoder_layers": 2,
    "num_decoder_layers": 1,
    "d_ff": 7,
    "tokens_per_batch": 40,
    "evaluate_every": 3,
}


@pytest.fixture(autouse=True)
def double_precision():
    """What two right codes may differ by is then far below what a mistake changes."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def read(monkeypatch):
    """What the model is given to learn from: in each step, pairs of ids without beginning, end and padding."""
    steps, forward = [], Transformer.forward

    def note(model, src, tgt, **masks):
        assert model.training
        steps.append([(src_of(s), tgt_of(t)) for s, t in zip(src.tolist(), tgt.tolist(), strict=True)])
        return forward(model, src, tgt, **masks)

    monkeypatch.setattr(Transformer, "forward", note)
    return steps


def src_of(row):
    end = row.index(EOS_ID)
    assert set(row[end + 1 :]) <= {PAD_ID}
    return tuple(row[:end])


def tgt_of(row):
    assert row[0] == BOS_ID
    end = row.index(PAD_ID) if PAD_ID in row else len(row)
    assert set(row[end:]) <= {PAD_ID}
    return tuple(row[1:end])


def vocabularies(settings, text=TEXT):
    src = Subwords.train([ja for ja, _ in text.train], settings.src_vocab_size, spaces=False)
    return src, Subwords.train([en for _, en in text.train], settings.tgt_vocab_size, spaces=True)


def encoded(settings, text=TEXT):
    src, tgt = vocabularies(settings, text)
    return [(tuple(src.encode(ja)), tuple(tgt.encode(en))) for ja, en in text.train]


def make_model(settings):
    torch.manual_seed(settings.seed)
    return Transformer(
        settings.src_vocab_size,
        settings.tgt_vocab_size,
        d_model=settings.d_model,
        num_heads=settings.num_heads,
        num_layers=(settings.num_encoder_layers, settings.num_decoder_layers),
        d_ff=settings.d_ff,
        dropout=settings.dropout,
        norm_first=settings.norm_first,
        tie_weights=settings.tie_weights,
    )


def weights_of(folder, name="last"):
    """The weights in a checkpoint, by the names that the model has for them."""
    tensors = load_file(folder / f"{name}.safetensors")
    if name == "best":
        return tensors
    return {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}


def rate_of(step, settings):
    if step < settings.warmup_steps:
        return settings.peak_lr * step / settings.warmup_steps
    if settings.schedule == "cosine":
        share = (step - settings.warmup_steps) / (settings.steps - settings.warmup_steps)
        return settings.peak_lr * 0.5 * (1 + math.cos(math.pi * share))
    return settings.peak_lr * max(settings.warmup_steps, 1) ** 0.5 * step**-0.5


def loss_of(model, pairs, smoothing):
    """The loss summed over all tokens, one sentence after the other, so that nothing is padded."""
    loss = 0.0
    for src, tgt in pairs:
        logits, _ = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *tgt]]))
        log_probs = logits[0] - logits[0].exp().sum(-1, keepdim=True).log()
        wanted = log_probs[range(len(tgt) + 1), [*tgt, EOS_ID]]
        loss = loss - ((1 - smoothing) * wanted + smoothing * log_probs.mean(-1)).sum()
    return loss


def loss_of_batch(model, pairs, smoothing):
    """The same of one padded batch: the dropout of a batch is not that of its sentences one by one."""
    S, T = (1 + max(map(len, side)) for side in zip(*pairs, strict=True))
    src = torch.tensor([[*s, EOS_ID] + [PAD_ID] * (S - len(s) - 1) for s, _ in pairs])
    tgt = torch.tensor([[BOS_ID, *t] + [PAD_ID] * (T - len(t) - 1) for _, t in pairs])
    logits, _ = model(src, tgt, src_mask=(src != PAD_ID)[:, None])
    log_probs, loss = logits.log_softmax(-1), 0.0
    for rows, (_, ids) in zip(log_probs, pairs, strict=True):
        wanted = rows[range(len(ids) + 1), [*ids, EOS_ID]]
        loss = loss - ((1 - smoothing) * wanted + smoothing * rows[: len(ids) + 1].mean(-1)).sum()
    return loss


def learn(settings, model, steps, loss_of=loss_of):
    """Take the steps by hand; of each, returns the summed loss, the number of tokens, and the gradient's norm."""
    parameters, beta1, beta2, found = list(model.parameters()), 0.9, settings.beta2, []
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for step, pairs in enumerate(steps, start=1):
        rate, tokens = rate_of(step, settings), sum(len(tgt) + 1 for _, tgt in pairs)
        loss = loss_of(model, pairs, settings.label_smoothing)
        gradients = torch.autograd.grad(loss / tokens, parameters)
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        with torch.no_grad():
            for p, g, mean, square in zip(parameters, gradients, means, squares, strict=True):
                g = g * min(1.0, settings.max_grad_norm / (norm + 1e-6))
                mean.copy_(beta1 * mean + (1 - beta1) * g)
                square.copy_(beta2 * square + (1 - beta2) * g * g)
                p.sub_(rate * settings.weight_decay * p)
                p.sub_(rate * (mean / (1 - beta1**step)) / ((square / (1 - beta2**step)).sqrt() + 1e-8))
        found.append((loss.item(), tokens, norm))
    return found


def assert_same_weights(folder, model, settings):
    """Equal, but for what rounding becomes where a gradient is as small as the 1e-8 that Adam divides by at least."""
    expected, ours = model.state_dict(), weights_of(folder)
    if settings.tie_weights:
        del expected["to_logits.weight"]
    assert ours.keys() == expected.keys()
    rounding = allowed(torch.float64, terms=settings.tgt_vocab_size, depth=30)["atol"] / 1e-8
    way = sum(rate_of(step, settings) for step in range(1, settings.steps + 1))
    for name, tensor in expected.items():
        assert ours[name].dtype == torch.float64
        assert_close(ours[name], tensor, rtol=0, atol=rounding * way, msg=lambda text, name=name: f"{name}: {text}")


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


# -- The weights after ten steps ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        EVERYTHING,
        {},
        {"warmup_steps": 0, "weight_decay": 0.0, "label_smoothing": 0.0},
        {"schedule": "cosine", "beta2": 0.6},
        {"schedule": "cosine", "warmup_steps": 0, "tie_weights": False},
        {"max_pieces": 9, "tokens_per_batch": 25},
        {"subword_dropout": 0.4, "max_pieces": 13},
        {"evaluate_every": 4, "save_every": 1},
    ],
    ids=lambda change: "everything" if change is EVERYTHING else ", ".join(change) or "as it is",
)
def test_a_plain_loop_gives_the_same_weights_and_losses(tmp_path, read, change):
    settings = replace(PLAIN, **change)
    train(settings, tmp_path, text=TEXT, quiet=True)
    steps, model = list(read), make_model(settings)
    assert len(steps) == settings.steps
    found = learn(settings, model, steps)
    assert_same_weights(tmp_path, model, settings)
    for _, _, norm in found:  # clipped always or never
        assert (norm > 2 * settings.max_grad_norm) if "max_grad_norm" in change else (norm < settings.max_grad_norm)

    metrics, before, epochs = metrics_of(tmp_path), 0, epochs_of(steps, settings)
    wanted = {*range(settings.evaluate_every, settings.steps + 1, settings.evaluate_every), settings.steps}
    assert [record["step"] for record in metrics] == sorted(wanted)
    for record in metrics:
        step = record["step"]
        losses, tokens, _ = zip(*found[before:step], strict=True)
        assert record["loss"] == pytest.approx(sum(losses) / sum(tokens), abs=1e-6)
        assert record["lr"] == pytest.approx(rate_of(step, settings), rel=1e-12, abs=1e-15)
        assert record["epoch"] == epochs[step - 1]
        before = step


def epochs_of(steps, settings):
    """The epoch that each step belongs to, when each has as many pairs as fit."""
    size = sum(max(map(len, pair)) <= settings.max_pieces for pair in encoded(settings))
    done = [sum(map(len, steps[:i])) for i in range(len(steps))]
    return [n // size for n in done]


@pytest.mark.parametrize("change", [{}, {"norm_first": False, "seed": 3}], ids=str)
def test_a_plain_loop_with_dropout_gives_the_same_weights_and_losses(tmp_path, read, change):
    settings = replace(PLAIN, dropout=0.3, evaluate_every=3, **change)
    train(settings, tmp_path, text=TEXT, quiet=True)
    steps, model = list(read), make_model(settings)
    torch.manual_seed(settings.seed)
    learn(settings, model, steps, loss_of_batch)
    assert_same_weights(tmp_path, model, settings)


def test_a_run_that_begins_with_another_begins_with_its_best_weights_and_new_moments(tmp_path, read):
    first = train(replace(PLAIN, seed=1, steps=6, evaluate_every=3), tmp_path / "first", text=TEXT, quiet=True)
    began_with = weights_of(first, "best")
    read.clear()
    settings = replace(PLAIN, init_from=str(first))
    train(settings, tmp_path / "second", text=TEXT, quiet=True)
    model = make_model(settings)
    model.load_state_dict(began_with | {"to_logits.weight": began_with["tgt_embed.weight"]})
    learn(settings, model, list(read))
    assert_same_weights(tmp_path / "second", model, settings)


# -- What is read, and when --------------------------------------------------------------------------


def in_epochs(steps, size):
    """The steps in groups of as many as make up an epoch of so many pairs; the last may be cut short."""
    epochs = [[]]
    for step in steps:
        if sum(map(len, epochs[-1])) == size:
            epochs.append([])
        epochs[-1].append(step)
        assert sum(map(len, epochs[-1])) <= size
    return epochs


def test_each_epoch_has_every_pair_once_in_an_order_of_its_own_that_the_seed_chooses(tmp_path, read):
    settings, runs, pairs = replace(PLAIN, steps=20, evaluate_every=20), {}, encoded(PLAIN)
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        read.clear()
        train(replace(settings, seed=seed), tmp_path / name, text=TEXT, quiet=True)
        runs[name] = in_epochs(list(read), len(pairs))
    batches = make_buckets([(len(src), len(tgt)) for src, tgt in pairs], settings.tokens_per_batch, Random(0))
    for epoch in runs["one"][:-1] + runs["other"][:-1]:
        assert len(epoch) == len(batches)
        assert Counter(pair for step in epoch for pair in step) == Counter(pairs)
        for step in epoch:
            assert len(step) * (1 + max(max(map(len, pair)) for pair in step)) <= settings.tokens_per_batch
    first, second, third, *_ = runs["one"]
    assert first != second != third != first
    assert runs["one"] == runs["again"]
    assert all(ours != theirs for ours, theirs in zip(runs["one"], runs["other"], strict=False))


def test_pairs_that_are_empty_or_exceed_max_pieces_are_left_out(tmp_path, read):
    odd = [WordPair(["犬"] * n, ["cats"]) for n in (9, 10)] + [WordPair([], ["dogs"]), WordPair(["犬"], [])]
    text = TEXT._replace(train=[*TEXT.train, *odd])
    settings = replace(PLAIN, max_pieces=9, evaluate_every=10)
    train(settings, tmp_path, text=text, quiet=True)
    pairs = encoded(settings, text)
    kept = [(src, tgt) for src, tgt in pairs if 0 < len(src) <= 9 and 0 < len(tgt) <= 9]
    for side in zip(*pairs, strict=True):  # either side has what is empty, long and too long
        assert {0, 9} <= set(map(len, side)) < set(range(13))
        assert max(map(len, side)) > 9
    first, *_ = in_epochs(list(read), len(kept))
    assert Counter(pair for step in first for pair in step) == Counter(kept)


def test_with_subword_dropout_each_epoch_has_every_pair_once_in_pieces_of_its_own(tmp_path, read):
    settings, runs = replace(PLAIN, subword_dropout=0.4, max_pieces=9, steps=20, evaluate_every=20), {}
    text = TEXT._replace(train=TEXT.train[::-1])  # those that are too long come first
    src, tgt = vocabularies(settings, text)
    fits = [max(len(s), len(t)) <= 9 for s, t in encoded(settings, text)]
    usual = {
        (src.decode(s), tgt.decode(t)): (s, t) for (s, t), fit in zip(encoded(settings, text), fits, strict=True) if fit
    }
    assert usual.keys() == {("".join(ja), " ".join(en)) for (ja, en), fit in zip(text.train, fits, strict=True) if fit}
    assert len(usual) < len(TEXT.train)
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        read.clear()
        train(replace(settings, seed=seed), tmp_path / name, text=text, quiet=True)
        runs[name] = in_epochs(list(read), len(usual))
    cuts = []
    for epoch in runs["one"][:-1]:
        cuts.append({(src.decode(s), tgt.decode(t)): (s, t) for step in epoch for s, t in step})
        assert cuts[-1].keys() == usual.keys()
        assert max(len(side) for pair in cuts[-1].values() for side in pair) <= settings.max_pieces
    first, second, *_ = cuts
    assert first != usual != second != first
    assert any(pair == usual[words] for words, pair in first.items())  # smaller pieces would make these too long
    for side in (0, 1):  # both languages are cut anew
        assert any(pair[side] != usual[words][side] for words, pair in first.items())
    assert runs["one"] == runs["again"]
    assert Counter(p for step in runs["one"][0] for p in step) != Counter(p for step in runs["other"][0] for p in step)


# -- How it is scored, and what is kept --------------------------------------------------------------


def write_by_hand(model, src, most):
    """The most probable token, again and again, of one sentence, without a cache."""
    written = []
    while len(written) < most and EOS_ID not in written:
        logits, _ = model(torch.tensor([[*src, EOS_ID]]), torch.tensor([[BOS_ID, *written]]))
        logits = logits[0, -1].tolist()
        written.append(max((i for i in range(len(logits)) if i not in (PAD_ID, BOS_ID)), key=logits.__getitem__))
    return written


def test_dev_bleu_is_that_of_greedy_translations_scored_by_words_as_they_are(tmp_path):
    settings = replace(PLAIN, d_model=16, peak_lr=2e-2, steps=50, evaluate_every=25)
    scores = []
    for step in (25, 50):
        train(settings, tmp_path, text=TEXT, stop_at=step, quiet=True)
        weights, model = weights_of(tmp_path), make_model(settings).eval()
        model.load_state_dict(weights | {"to_logits.weight": weights["tgt_embed.weight"]})
        src, tgt = vocabularies(settings)
        sources = [src.encode(ja) for ja, _ in TEXT.dev]
        most = 2 * (1 + max(map(len, sources))) + 10
        found = [tgt.decode(write_by_hand(model, ids, most)) for ids in sources]
        wanted = [" ".join(en) for _, en in TEXT.dev]
        scores.append(sacrebleu.corpus_bleu(found, [wanted], tokenize="none", force=True).score)
    assert [record["dev_bleu"] for record in metrics_of(tmp_path)] == [round(score, 3) for score in scores]


SCORED = {
    # what is written for each sentence of dev, that scores depend on
    "signs": lambda words: " ".join(words).replace("!", " !").replace("-", " - "),
    "capitals": lambda words: " ".join(words).lower(),
    "both": lambda words: " ".join(words).lower().replace("!", " !"),
    "all right": lambda words: " ".join(words),
    "half": lambda words: " ".join(words[:2]),
}


def test_losses_of_processes_are_added_in_double_precision_and_in_single_where_there_is_none(tmp_path, monkeypatch):
    added = []

    def add(self, values):
        added.append(values.dtype)
        return values

    monkeypatch.setattr("attn_course.training.distributed.DistributedContext.add", add)
    train(replace(PLAIN, steps=2), tmp_path / "double", text=TEXT, quiet=True)
    assert set(added) == {torch.float64}
    added.clear()
    monkeypatch.setattr("attn_course.training.trainer.has_type", lambda device, dtype: False)
    train(replace(PLAIN, steps=2), tmp_path / "single", text=TEXT, quiet=True)
    assert set(added) == {torch.float32}


@pytest.mark.parametrize("written", SCORED)
def test_bleu_takes_words_as_they_are_written(tmp_path, monkeypatch, written):
    found, wanted = [SCORED[written](en) for _, en in TEXT.dev], [" ".join(en) for _, en in TEXT.dev]
    monkeypatch.setattr("attn_course.training.trainer.translate_greedily", lambda *_: found)
    settings = replace(PLAIN, steps=1)
    train(settings, tmp_path, text=TEXT, quiet=True)
    # Precisions of one to four words, the brevity penalty: BLEU of words that are cut at spaces and nowhere else.
    precisions, lengths = [], [sum(len(s.split()) for s in side) for side in (found, wanted)]
    for n in (1, 2, 3, 4):
        hits = total = 0
        for ours, theirs in zip(found, wanted, strict=True):
            a, b = (Counter(tuple(s.split()[i : i + n]) for i in range(len(s.split()) - n + 1)) for s in (ours, theirs))
            hits, total = hits + (a & b).total(), total + a.total()
        precisions.append((hits, total))
    by_hand = sacrebleu.BLEU.compute_bleu(
        [h for h, _ in precisions], [t for _, t in precisions], *lengths, smooth_method="exp"
    ).score
    assert metrics_of(tmp_path)[0]["dev_bleu"] == pytest.approx(by_hand, abs=6e-4)


def test_a_dev_sentence_that_the_model_cannot_read_counts_as_empty(tmp_path, capsys):
    long = TEXT._replace(dev=[*TEXT.dev, WordPair(["犬"] * 256, ["dogs"])])
    train(replace(PLAIN, steps=1), tmp_path, text=long, quiet=True)
    assert len(metrics_of(tmp_path)) == 1
    assert capsys.readouterr().err == (
        f"1 of {len(long.dev)} dev sentences have more than 255 pieces, the most that the model reads; "
        "each counts as an empty translation\n"
    )


def test_minutes_are_those_of_the_processor_in_all_parts_of_a_run(tmp_path, monkeypatch):
    now = {"seconds": 1000.0}

    def translate(*_):
        now["seconds"] += 90.0
        return [" ".join(en) for _, en in TEXT.dev]

    monkeypatch.setattr("attn_course.training.trainer.time.process_time", lambda: now["seconds"])
    monkeypatch.setattr("attn_course.training.trainer.translate_greedily", translate)
    train(PLAIN, tmp_path, text=TEXT, quiet=True, stop_at=7)
    now["seconds"] = 20.0  # another process
    train(PLAIN, tmp_path, text=TEXT, quiet=True)
    assert [record["cpu_minutes"] for record in metrics_of(tmp_path)] == [1.5, 3.0]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.0, 0.0, 0.0], 1),
        ([3.0, 7.0, 7.0], 2),
        ([7.0, 3.0, 7.0], 1),
        ([30.0001, 30.0002, 30.0001], 2),  # alike to the three digits that are written down
        ([1.0, 2.0, 3.0], 3),
        ([9.0, 2.0, 3.0], 1),
    ],
)
def test_the_first_of_the_highest_is_kept_whether_the_run_is_stopped_or_not(tmp_path, monkeypatch, scores, best):
    monkeypatch.setattr("attn_course.training.trainer.translate_greedily", lambda *_: ["dogs"])
    settings, text = replace(PLAIN, steps=6, evaluate_every=2), TEXT._replace(dev=TEXT.dev[:1])
    at_best = weights_of(train(settings, tmp_path / "to best", text=text, stop_at=2 * best, quiet=True))
    rest, bleu = iter(scores), sacrebleu.corpus_bleu

    def scripted(*args, **how):
        found = bleu(*args, **how)
        found.score = next(rest)
        return found

    monkeypatch.setattr(sacrebleu, "corpus_bleu", scripted)
    for step in (3, 6):
        train(settings, tmp_path / "whole", text=text, stop_at=step, quiet=True)
    kept = weights_of(tmp_path / "whole", "best")
    assert kept.keys() == at_best.keys()
    assert all(torch.equal(kept[name], at_best[name]) for name in kept)
    assert [record["dev_bleu"] for record in metrics_of(tmp_path / "whole")] == [round(score, 3) for score in scores]


def test_translate_keeps_the_order_of_the_sentences_and_the_mode_of_the_model():
    """More of them than are translated at once, in no order of lengths."""
    src, tgt = vocabularies(PLAIN)
    torch.manual_seed(1)
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": (1, 2), "d_ff": 12}
    model = Transformer(len(src), len(tgt), **sizes, max_len=9)
    for name, parameter in model.named_parameters():
        if "_proj" in name:  # so that what is written depends on the source
            parameter.data.normal_(std=2.0)
    rng = torch.Generator().manual_seed(2)
    sources = [torch.randint(4, len(src), (5 * n % 7 + 1,), generator=rng).tolist() for n in range(67)]
    for training in (True, False):
        found = translate_greedily(model.train(training), sources, tgt)
        assert model.training is training
    model.eval()
    assert found == [tgt.decode(write_by_hand(model, ids, 9)) for ids in sources]
    assert len(set(found)) > 30
