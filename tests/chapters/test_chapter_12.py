"""Chapter 12: what the notebook says about training, checked again on other numbers and other seeds."""

import ast
import functools
import itertools
import math
import random

import pytest
import torch
import torch.nn.functional as F
from read_chapters import code_cells, imports, run, text
from torch import nn
from torch.testing import assert_close

from attn_course.data.batches import SUBWORD_IDS, make_batch
from attn_course.data.corpus_mixture import Text, WordPair
from attn_course.data.subwords import PAD_ID, Subwords
from attn_course.decoding import greedy_search
from attn_course.training import learning_rate

WHO = {"犬": "dogs", "猫": "cats", "鳥": "birds", "馬": "horses", "魚": "fish", "猿": "monkeys", "牛": "cows"}
DOES = {"見る": "see", "好む": "like", "追う": "chase", "待つ": "await", "助ける": "help"}


def chapter_of(text, seed=0, src_vocab=30, tgt_vocab=60):
    """The chapter's functions and settings, on another text; nothing is trained."""
    names = imports("12")
    names["device"] = torch.device("cpu")
    names["text"] = text
    for cell in code_cells("12"):
        if {"launch", "imports", "exercise"} & set(cell.metadata.get("tags", [])):
            continue
        tree = ast.parse(cell.source)
        tree.body = [node for node in tree.body if is_kept(node)]
        exec(compile(tree, "chapter 12", "exec"), names)
    ja, en = zip(*text.train, strict=True)
    names["src_subwords"] = Subwords.train(ja, src_vocab, spaces=False)
    names["tgt_subwords"] = Subwords.train(en, tgt_vocab, spaces=True)
    names["pairs"] = [(names["src_subwords"].encode(ja), names["tgt_subwords"].encode(en)) for ja, en in text.train]
    names["lengths"] = [(len(src), len(tgt)) for src, tgt in names["pairs"]]
    return names


def is_kept(node):
    settings = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "settings"
    return settings or isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)


@pytest.fixture(scope="module")
def chapter():
    pairs = [
        WordPair([a, "が", b, "を", v], [WHO[a], DOES[v], WHO[b]])
        for a, b in itertools.permutations(WHO, 2)
        for v in DOES
    ]
    random.Random(0).shuffle(pairs)
    return chapter_of(Text(pairs[:150], pairs[150:170], pairs[170:]))


# -- Writing ----------------------------------------------------------------------------------------


def test_the_loop_equals_the_greedy_search_of_the_package(chapter):
    model = chapter["build"]()
    optimizer = chapter["make_optimizer"](model)
    for step, batch in zip(range(1, 41), chapter["batches"]("cpu"), strict=False):  # or it writes one word for ever
        chapter["train_step"](model, optimizer, batch, step)
    sources = [chapter["src_subwords"].encode(ja) for ja, _ in chapter["text"].test]
    written = chapter["write"](model.eval(), sources, chapter["tgt_subwords"])
    batch = make_batch([(ids, []) for ids in sources])
    expected = greedy_search(model, batch.src, batch.src_lengths, special=SUBWORD_IDS, max_len=40)
    assert len(set(written)) > 1
    assert written == [chapter["tgt_subwords"].decode(row) for row in expected.tolist()]


# -- Labels ------------------------------------------------------------------------------------------


def test_the_floor_is_the_loss_of_a_model_that_says_what_the_label_says(chapter):
    for V, smoothing in ((5, 0.1), (700, 0.1), (11, 0.3)):
        label = torch.full((V,), smoothing / V, dtype=torch.float64)
        label[3] += 1 - smoothing
        best = F.cross_entropy(label.log()[None], torch.tensor([3]), label_smoothing=smoothing)
        assert chapter["loss_floor"](V, smoothing) == pytest.approx(best.item(), rel=1e-5)
        for seed in range(3):  # every other answer costs more
            other = label.log() + 0.1 * torch.randn(V, generator=torch.Generator().manual_seed(seed)).double()
            worse = F.cross_entropy(other[None], torch.tensor([3]), label_smoothing=smoothing)
            assert worse > best


def test_the_ratio_of_the_label_in_exercise_5_is_where_the_smoothed_loss_has_no_gradient():
    V, smoothing = 600, 0.1
    ratio = (1 - smoothing + smoothing / V) / (smoothing / V)
    assert f"The ratio of the two is {ratio:,.0f}" in text("12")
    assert rf"\approx {math.log(ratio):.2f}$" in text("12")
    at_rest = torch.zeros(1, V, dtype=torch.float64).index_fill(1, torch.tensor([3]), math.log(ratio)).requires_grad_()
    F.cross_entropy(at_rest, torch.tensor([3]), label_smoothing=smoothing).backward()
    assert at_rest.grad.abs().max() < 1e-12


# -- Rates and gradients -----------------------------------------------------------------------------


def test_the_rates_that_the_chapter_prints(chapter):
    settings = chapter["settings"]
    warmup, peak = settings.warmup_steps, settings.peak_lr
    assert [learning_rate(t, settings) for t in (warmup // 2, warmup)] == pytest.approx([peak / 2, peak])
    assert learning_rate((warmup + settings.steps) // 2, settings) == pytest.approx(peak / 2)
    assert learning_rate(settings.steps, settings) == pytest.approx(0, abs=1e-12)


# -- The loop ----------------------------------------------------------------------------------------


def test_one_step_is_the_mean_gradient_clipped_at_the_rate_of_the_step(chapter):
    # In float64: Adam makes large steps of the rounding errors of gradients that ought to be 0.
    model, expected = chapter["build"]().double(), chapter["build"]().double()
    optimizer, reference = chapter["make_optimizer"](model), chapter["make_optimizer"](expected)
    batch, settings = next(chapter["batches"]("cpu")), chapter["settings"]
    loss, norm = chapter["train_step"](model, optimizer, batch, 7)
    logits, _ = expected(batch.src, batch.tgt_in, src_mask=batch.src_mask)
    theirs = F.cross_entropy(logits.mT, batch.tgt_out, ignore_index=PAD_ID, label_smoothing=0.1)
    theirs.backward()
    reference.param_groups[0]["lr"] = settings.peak_lr * 7 / settings.warmup_steps
    found = nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
    reference.step()
    assert (loss, norm) == pytest.approx((theirs.item(), found.item()), rel=1e-9)
    for ours, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert_close(ours, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("stopped", [1, 4, 9])
def test_a_resumed_training_is_the_one_that_was_interrupted(chapter, stopped):
    straight = chapter["build"](dropout=0.2)
    expected = chapter["run"](straight, chapter["make_optimizer"](straight), 0, 10)
    model = chapter["build"](dropout=0.2)
    optimizer = chapter["make_optimizer"](model)
    before = chapter["run"](model, optimizer, 0, stopped)
    checkpoint = chapter["remember"](model, optimizer)
    for without in ((), ("optimizer",), ("rng",)):
        other = chapter["build"](dropout=0.2)
        nn.init.zeros_(other.src_embed.weight)
        optimizer = chapter["make_optimizer"](other)
        torch.rand(7)
        chapter["recall"](checkpoint, other, optimizer, without)
        after = chapter["run"](other, optimizer, stopped, 10)
        equal = before + after == expected and all(
            torch.equal(a, b) for a, b in zip(other.parameters(), straight.parameters(), strict=True)
        )
        assert equal == (not without or (without == ("optimizer",) and stopped == 10))


def test_a_checkpoint_of_the_chapter_holds_what_the_next_step_depends_on(chapter):
    model = chapter["build"]()
    state = chapter["remember"](model, chapter["make_optimizer"](model))
    assert set(state) == {"model", "optimizer", "rng"}
    before = state["model"]["src_embed.weight"].clone()
    nn.init.zeros_(model.src_embed.weight)  # it is a copy
    assert torch.equal(state["model"]["src_embed.weight"], before)


def test_the_dev_loss_counts_every_token_once(chapter):
    model = chapter["build"]().double().eval()
    total = tokens = 0
    for ja, en in chapter["text"].dev:
        batch = make_batch([(chapter["src_subwords"].encode(ja), chapter["tgt_subwords"].encode(en))])
        logits, _ = model(batch.src, batch.tgt_in, src_mask=batch.src_mask)
        total += F.cross_entropy(logits[0], batch.tgt_out[0], reduction="sum").item()
        tokens += batch.tgt_out.numel()
    assert chapter["dev_scores"](model, 0.0)[0] == pytest.approx(total / tokens)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)  # all pieces equally probable
    assert math.exp(chapter["dev_scores"](model, 0.0)[0]) == pytest.approx(len(chapter["tgt_subwords"]))


def test_a_sentence_is_exactly_right_if_and_only_if_all_its_tokens_are_right(chapter):
    model = chapter["build"]()
    optimizer = chapter["make_optimizer"](model)
    for step, batch in zip(range(1, 21), chapter["batches"]("cpu"), strict=False):  # half trained
        chapter["train_step"](model, optimizer, batch, step)
    dev = [(chapter["src_subwords"].encode(ja), chapter["tgt_subwords"].encode(en)) for ja, en in chapter["text"].dev]
    batch = make_batch(dev)
    logits, _ = model.eval()(batch.src, batch.tgt_in, src_mask=batch.src_mask)
    real = batch.tgt_out != PAD_ID
    right = (logits.argmax(-1) == batch.tgt_out) & real
    assert 0 < right.sum() < real.sum()
    assert chapter["dev_scores"](model, 0.0)[1] == pytest.approx((right.sum() / real.sum()).item())
    whole = (right | ~real).all(dim=1).float().mean().item()
    assert chapter["exact_share"](model, chapter["text"].dev) == pytest.approx(whole)


# -- Trained ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everyday():
    """The chapter up to its imports of text and pieces, as the notebook has them."""
    names = imports("12")
    for cell in code_cells("12"):
        if "load_text(" in cell.source:
            run(cell.source, names)
    return chapter_of(names["text"], src_vocab=600, tgt_vocab=600)


@pytest.fixture(scope="module", params=[1, 2])  # the notebook has 0
def trained(request, everyday):
    """The chapter after its training, with another seed."""
    settings = everyday["settings"]
    model = everyday["build"](seed=request.param)
    optimizer = everyday["make_optimizer"](model)
    found = []
    for step, batch in zip(range(1, settings.steps + 1), everyday["batches"]("cpu"), strict=False):
        found.append(everyday["train_step"](model, optimizer, batch, step))
        if step == 400:
            everyday["at_400"] = everyday["remember"](model, optimizer)
    everyday["model"], (everyday["losses"], everyday["norms"]) = model.eval(), zip(*found, strict=True)
    return everyday


@pytest.mark.trains
def test_most_unseen_sentences_are_exactly_right(trained):
    assert trained["exact_share"](trained["model"], trained["text"].test) >= 0.85
    assert math.exp(trained["dev_scores"](trained["model"], 0.0)[0]) < 1.35
    assert not {tuple(ja) for ja, _ in trained["text"].test} & {tuple(ja) for ja, _ in trained["text"].train}


@pytest.mark.trains
def test_a_hundred_steps_without_smoothing_lower_the_perplexity_and_help_no_translation(trained):
    smoothed, hard = (trained["train_longer"](smoothing) for smoothing in (0.1, 0.0))
    perplexities = [math.exp(trained["dev_scores"](model, 0.0)[0]) for model in (smoothed, hard)]
    assert perplexities[0] < 1.35
    assert 1 < perplexities[1] < perplexities[0] - 0.05
    shares = [trained["exact_share"](model, trained["text"].test) for model in (smoothed, hard)]
    assert shares[1] == pytest.approx(shares[0], abs=0.05)


@pytest.mark.trains
def test_clipping_limits_a_bad_batch_but_not_a_rate_that_is_too_high(trained):
    accident, usual = trained["with_accident"], torch.tensor(trained["losses"][400:440])
    fast = accident(peak_lr=10 * trained["settings"].peak_lr)[0] - usual
    clipped, norms = accident(wrong=True)
    free = accident(wrong=True, max_grad_norm=1e9)[0] - usual
    assert norms[0] > 3 * sum(trained["norms"][350:400]) / 50
    assert fast[1:].mean() > 1
    assert free[1:].max() > 0.1
    assert (clipped - usual)[1:].max() < 0.15
    assert free[1:].mean() > 2 * (clipped - usual)[1:].mean()


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1])
def test_post_norm_at_a_high_rate_without_warm_up_does_not_read_its_source(everyday, seed):
    counts = torch.bincount(torch.tensor([i for _, tgt in everyday["pairs"] for i in [*tgt, 2]]), minlength=600)
    label = 0.9 * counts / counts.sum() + 0.1 / 600
    blind = -(label * label.log()).sum()
    build = everyday["build"]
    try:
        everyday["build"] = functools.partial(build, seed=seed)
        cold, slow, warm = (
            everyday["first_losses"](False, warmup, rate) for warmup, rate in ((0, 0.012), (0, 0.006), (80, 0.012))
        )
    finally:
        everyday["build"] = build
    assert sum(cold[0][-10:]) / 10 > blind - 0.6
    assert sum(slow[0][-10:]) / 10 < blind - 0.75  # so the warm-up is not the only remedy
    assert sum(warm[0][-10:]) / 10 < blind - 0.75
    with_other = [source_matters(everyday, model) for _, model in (cold, slow)]
    assert with_other[0] < 0.01 < 0.05 < with_other[1]


def source_matters(everyday, model):
    """How much the loss rises with the sources of other sentences."""
    losses = []
    sources, targets = zip(*everyday["pairs"][:200], strict=True)
    for given in (sources, sources[1:] + sources[:1]):
        batch = make_batch([*zip(given, targets, strict=True)])
        with torch.no_grad():
            logits, _ = model(batch.src, batch.tgt_in, src_mask=batch.src_mask)
        losses.append(everyday["token_loss"](logits, batch.tgt_out, 0.1) / batch.tgt_lengths.sum())
    return (losses[1] - losses[0]).item()
