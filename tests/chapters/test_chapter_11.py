"""Chapter 11: what the notebook says about each mistake of the translator, checked again with other seeds."""

import copy
import itertools
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, text
from torch import nn

from attn_course import assert_causal

DATA = ("corpus", "short", "counts", "common", "pairs", "ja_words", "en_words", "fits", "dev_pairs")
IDS = ("MAX_LEN", "special", "src_tokens", "tgt_tokens", "src", "dev_src", "tgt", "dev_tgt", "ours", "our_src", "V")
KINDS = ("Translator", "WithLogits", "Causal", "WithPositions", "WithPaddingMask")


@pytest.fixture(scope="module")
def chapter():
    """The data, the functions and the classes of the notebook; nothing is trained."""
    return definitions("11", (*DATA, *IDS))


def build(chapter, kind, seed):
    torch.manual_seed(seed)
    return chapter[kind]().to(chapter["device"])


def random_ids(count, length, high, seed=0):
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, length, (count,), generator=rng)
    ids = torch.randint(3, high, (count, length), generator=rng)
    return ids.masked_fill(torch.arange(length) >= lengths[:, None], 0)


# -- The sentences -----------------------------------------------------------------------------------


def test_no_held_out_sentence_was_trained_on_and_every_word_of_it_was(chapter):
    train, dev = chapter["pairs"], chapter["dev_pairs"]
    assert (len(train), len(dev)) == (2000, 200)
    assert not {p.ja for p in train} & {p.ja for p in dev}
    assert {w for p in dev for w in p.ja + p.en} <= {w for p in train for w in p.ja + p.en}


def test_every_target_begins_ends_and_is_padded(chapter):
    for ids, pair in zip(chapter["dev_tgt"].tolist(), chapter["dev_pairs"], strict=True):
        words = [chapter["tgt_tokens"][i] for i in ids]
        assert words == ["<bos>", *pair.en, "<eos>"] + ["<pad>"] * (chapter["MAX_LEN"] - len(pair.en) - 2)


def test_our_sentence_is_new_and_its_station_is_nearly_always_a_goal_or_a_place(chapter):
    assert "".join(chapter["ours"]) == "母は駅で本を買いました。"
    assert tuple(chapter["ours"]) not in {p.ja for p in chapter["pairs"]}
    assert chapter["our_src"].min(dim=1).values.item() == 0  # padded, and every word has an id
    behind = [p.ja[p.ja.index("駅") + 1] for p in chapter["pairs"] if "駅" in p.ja]
    assert (len(behind), behind.count("に"), behind.count("で")) == (24, 23, 1)
    at_home = [p for p in chapter["pairs"] if ("家", "で") in itertools.pairwise(p.ja)]
    assert len(at_home) == 52


def test_nearly_every_bag_of_words_has_one_translation(chapter):
    bags = {}
    for p in chapter["pairs"] + chapter["dev_pairs"]:
        bags.setdefault(tuple(sorted(p.ja)), set()).add(p.en)
    assert len(bags) > 2000
    several = [en for en in bags.values() if len(en) > 1]
    assert len(several) == 2
    assert all({"this", "that", "older", "than"} <= set(words) for en in several for words in en)


# -- The number that never changes -------------------------------------------------------------------


class Constant(nn.Module):
    """Says one token always, in the way of the program as found: with certainty, after a softmax."""

    def __init__(self, token, vocab_size):
        super().__init__()
        self.answer = F.one_hot(torch.tensor(token), vocab_size).float()

    def forward(self, src, tgt):
        return self.answer.expand(*tgt.shape, -1)


def test_a_program_that_says_padding_gets_the_share_of_padding_exactly(chapter):
    for tgt in (chapter["dev_tgt"], random_ids(7, 11, 20), F.pad(chapter["dev_tgt"], (0, 15))):
        tgt = tgt.cpu()
        _, accuracy = chapter["measure"](Constant(0, chapter["V"]), tgt, tgt)
        assert accuracy == (tgt == 0).float().mean().item()
        assert accuracy * tgt.numel() == pytest.approx((tgt == 0).sum().item())


def test_padding_to_twice_the_length_takes_the_share_to_about_seventy_percent(chapter):
    assert (F.pad(chapter["dev_tgt"], (0, 15)) == 0).float().mean().item() == pytest.approx(0.7, abs=0.02)


def test_without_padding_no_constant_gets_more_than_eleven_percent(chapter):
    words = chapter["dev_tgt"][chapter["dev_tgt"] != 0]
    assert words.bincount().max().item() / len(words) == pytest.approx(0.11, abs=0.001)


def test_counting_words_leaves_the_padding_out_of_both_numbers(chapter):
    torch.manual_seed(0)
    logits, tgt = torch.randn(5, 7, 11), random_ids(5, 7, 11)
    loss, accuracy = chapter["measure_tokens"](lambda src, tgt: logits, None, tgt)
    words = [(logits[b, t], int(tgt[b, t])) for b in range(5) for t in range(7) if tgt[b, t] != 0]
    expected = [math.log(row.exp().sum()) - row[i].item() for row, i in words]
    assert loss.item() == pytest.approx(sum(expected) / len(words), abs=1e-5)
    assert accuracy == pytest.approx(sum(int(row.argmax()) == i for row, i in words) / len(words))


# -- Softmax twice -----------------------------------------------------------------------------------


def test_adam_hardly_notices_a_loss_that_is_divided_twice_and_gradient_descent_does(chapter):
    def largest_move(optimizer_class, divisor):
        model = build(chapter, "RepairedTranslator", 1)
        before = model.output.weight.detach().clone()
        optimizer = optimizer_class(model.parameters(), lr=1e-3)
        (chapter["measure_next"](model, chapter["src"][:32], chapter["tgt"][:32])[0] / divisor).backward()
        optimizer.step()
        return (model.output.weight - before).abs().max().item()

    assert largest_move(torch.optim.Adam, 250) == pytest.approx(largest_move(torch.optim.Adam, 1), rel=0.05)
    assert largest_move(torch.optim.SGD, 250) < 0.01 * largest_move(torch.optim.SGD, 1)


def test_only_with_logits_can_a_batch_be_learned_by_heart(chapter):
    overfit, measure = chapter["overfit"], chapter["measure_tokens"]
    for seed in (1, 2):
        assert overfit(build(chapter, "Translator", seed), measure) > 0.5
        assert overfit(build(chapter, "WithLogits", seed), measure) < 0.1


def test_certain_after_two_softmaxes_is_58_percent_of_three_words():
    twice = torch.softmax(torch.tensor([1.0, 0, 0]), dim=0)
    assert "it turns (1, 0, 0) into ({:.2f}, {:.2f}, {:.2f})".format(*twice.tolist()) in text("11")


# -- The shift and the future ------------------------------------------------------------------------


def test_the_next_word_is_measured_against_what_was_read_before_it(chapter):
    tgt = random_ids(3, 7, 11)
    seen = []

    def model(src, read):
        seen.append(read)
        return F.one_hot(tgt[:, 1:], 11) * 20.0  # says the next word, always

    loss, accuracy = chapter["measure_next"](model, None, tgt)
    assert torch.equal(seen[0], tgt[:, :-1])
    assert accuracy == 1.0
    assert loss.item() < 1e-5


@pytest.mark.parametrize("seed", [1, 2])
def test_the_untrained_decoder_sees_the_future_until_it_is_causal(chapter, seed):
    y = 0.1 * torch.randn(2, 7, 64, generator=torch.Generator().manual_seed(seed)).to(chapter["device"])
    memory = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(3)).to(chapter["device"])
    mask = torch.ones(2, 1, 5, dtype=torch.bool, device=memory.device)
    for kind in KINDS:
        more = (memory, mask) if kind == "WithPaddingMask" else (memory,)
        decode = partial(decoded, build(chapter, kind, seed), more)
        if kind in ("Translator", "WithLogits"):
            with pytest.raises(AssertionError, match="output 0 depends on input 1"):
                assert_causal(decode, y, atol=1e-5)
        else:
            assert_causal(decode, y, atol=1e-5)


def decoded(model, more, y):
    return model.decode(y, *more)


# -- Positions and padding ---------------------------------------------------------------------------


def shuffled_difference(model, chapter):
    ids = chapter["dev_src"][:1, :5]
    order = torch.tensor([2, 4, 0, 1, 3], device=ids.device)
    with torch.no_grad():
        a, b = (model(i, chapter["dev_tgt"][:1, :-1]) for i in (ids, ids[:, order]))
    return (a - b).abs().max().item()


def test_without_positions_the_order_of_the_source_is_lost(chapter):
    for kind in KINDS:
        difference = shuffled_difference(build(chapter, kind, 1), chapter)
        assert (difference > 2e-5) == (kind in ("WithPositions", "WithPaddingMask")), kind
        assert difference > 2e-5 or difference < 2e-6


def test_padding_changes_the_loss_until_it_is_masked(chapter):
    for kind in ("WithLogits", "Causal", "WithPositions"):
        assert chapter["moved_by_padding"](build(chapter, kind, 1)) > 1e-4, kind
    assert chapter["moved_by_padding"](build(chapter, "WithPaddingMask", 1)) < 1e-6


def test_a_padded_batch_is_translated_as_each_sentence_alone(chapter):
    model = build(chapter, "WithPaddingMask", 1)
    with torch.no_grad():
        together = model(chapter["dev_src"][:20], chapter["dev_tgt"][:20])
        for i, row in enumerate(chapter["dev_src"][:20]):
            alone = model(row[None, : (row != 0).sum()], chapter["dev_tgt"][i : i + 1])
            torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-4, atol=1e-5)


# -- What is left of a training ----------------------------------------------------------------------


def a_few_steps(chapter, model, epochs=3):
    few = chapter["src"][:32], chapter["tgt"][:32]
    return chapter["train"](model, chapter["measure_next"], *few, epochs=epochs)


def test_the_method_that_is_kept_hands_out_the_weights_of_the_last_epoch(chapter):
    model = build(chapter, "WithPaddingMask", 1)
    a_few_steps(chapter, model)
    assert "parameters" in vars(model)  # overwritten
    assert all(a is b for a, b in zip(model.parameters(), nn.Module.parameters(model), strict=True))


def test_a_state_dict_follows_the_model_and_a_copy_does_not(chapter):
    model = build(chapter, "WithPaddingMask", 1)
    kept, copied = model.state_dict(), copy.deepcopy(model.state_dict())
    a_few_steps(chapter, model, epochs=1)
    assert torch.equal(kept["output.weight"], model.output.weight)
    assert not torch.equal(copied["output.weight"], model.output.weight)


def test_the_repaired_program_does_not_keep_the_graph_of_its_losses(chapter):
    losses = [loss for loss, _ in a_few_steps(chapter, build(chapter, "WithPaddingMask", 1))]
    assert all(loss.requires_grad for loss in losses)
    few = chapter["src"][:32], chapter["tgt"][:32]
    history = chapter["train_repaired"](build(chapter, "RepairedTranslator", 1), *few, epochs=2)
    assert all(type(loss) is float for loss, _ in history)


def test_a_graph_is_kept_in_evaluation_mode_and_not_under_no_grad(chapter):
    model, held = build(chapter, "WithPaddingMask", 1).eval(), chapter["megabytes_held"]
    data = chapter["dev_src"], chapter["dev_tgt"]
    after = held(lambda: chapter["measure_next"](model, *data))
    assert after[0] > 5
    assert all(b - a == pytest.approx(after[1] - after[0]) for a, b in itertools.pairwise(after))
    with torch.no_grad():
        assert held(lambda: chapter["measure_next"](model, *data)) == [0] * 8


def test_memory_is_counted_once_and_only_while_a_graph_needs_it(chapter):
    x = torch.zeros(2**18, requires_grad=True)  # one MB

    def square():  # puts aside x twice, and nothing of its own
        return x * x

    assert chapter["megabytes_held"](square) == [1.0] * 8
    assert chapter["megabytes_held"](lambda: (x + 1).exp()) == [float(n) for n in range(1, 9)]


# -- The repaired program ----------------------------------------------------------------------------


def test_the_model_in_one_piece_is_the_chain_of_repairs(chapter):
    chain, whole = build(chapter, "WithPaddingMask", 1), build(chapter, "RepairedTranslator", 2)
    whole.load_state_dict(chain.state_dict())
    data = chapter["dev_src"][:20], chapter["dev_tgt"][:20]
    torch.testing.assert_close(whole(*data), chain(*data))
    for a, b in zip(
        torch.autograd.grad(chapter["measure_next"](whole, *data)[0], list(whole.parameters())),
        torch.autograd.grad(chapter["measure_next"](chain, *data)[0], list(chain.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_the_repaired_model_is_what_pytorch_s_attention_makes_of_the_same_weights(chapter):
    model = build(chapter, "RepairedTranslator", 1).double().cpu()
    src, tgt = chapter["dev_src"][:7].cpu(), chapter["dev_tgt"][:7, :11].cpu()
    reader, writer, cross = (
        layer.to_torch() for layer in (model.source_attention, model.target_attention, model.cross_attention)
    )
    pads = src == 0
    future = torch.ones(11, 11, dtype=torch.bool).triu(1)
    x = model.src_embed(src) + model.positions[:15]
    memory = x + reader(x, x, x, key_padding_mask=pads, need_weights=False)[0]
    y = model.tgt_embed(tgt) + model.positions[:11]
    y = y + writer(y, y, y, attn_mask=future, need_weights=False)[0]
    y = y + cross(y, memory, memory, key_padding_mask=pads, need_weights=False)[0]
    torch.testing.assert_close(model(src, tgt), model.output(y), rtol=1e-9, atol=1e-11)


def test_a_new_model_after_the_optimizer_does_not_move(chapter):
    optimizer = torch.optim.Adam(build(chapter, "RepairedTranslator", 1).parameters(), lr=7e-3)
    model = build(chapter, "RepairedTranslator", 1)
    before = copy.deepcopy(model.state_dict())
    chapter["measure_next"](model, chapter["src"][:8], chapter["tgt"][:8])[0].backward()
    optimizer.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# -- Trained, with other seeds than the notebook's ---------------------------------------------------


def accuracies(history):
    return [accuracy for _, accuracy in history]


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_the_program_as_found_reports_the_share_of_padding_from_the_first_epoch_to_the_last(chapter, seed):
    model = build(chapter, "Translator", seed)
    history = chapter["train"](model, chapter["measure"], chapter["src"], chapter["tgt"], epochs=4)
    assert set(accuracies(history)) == {(chapter["dev_tgt"] == 0).float().mean().item()}
    with torch.no_grad():
        assert (model(chapter["dev_src"], chapter["dev_tgt"]).argmax(-1) == 0).all()
    assert chapter["exact_share"](model) == 0


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_counting_words_alone_moves_the_constant(chapter, seed):
    model = build(chapter, "Translator", seed)
    history = chapter["train"](model, chapter["measure_tokens"], chapter["src"], chapter["tgt"])
    assert max(accuracies(history)) < 0.45
    assert abs(accuracies(history)[-1] - accuracies(history)[4]) < 0.1
    with torch.no_grad():
        said = model(chapter["dev_src"], chapter["dev_tgt"]).argmax(-1)[chapter["dev_tgt"] != 0]
    assert len(said.unique()) <= 10
    assert history[-1][0].item() > math.log(chapter["V"]) - 1
    own, other = chapter["swapped"](model, chapter["measure_tokens"])
    assert other == pytest.approx(own, abs=0.02)  # it looks at the target alone


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_two_versions_look_wonderful_and_write_nonsense(chapter, seed):
    dev, swapped = chapter["dev_src"], chapter["dev_src"].roll(1, dims=0)
    copier, leaking = build(chapter, "WithLogits", seed), build(chapter, "WithLogits", seed)

    history = chapter["train"](copier, chapter["measure_tokens"], chapter["src"], chapter["tgt"], epochs=4)
    assert accuracies(history)[-1] > 0.9
    assert chapter["measure_tokens"](copier, swapped, chapter["dev_tgt"])[1] > 0.7
    assert chapter["exact_share"](copier) < 0.02

    history = chapter["train"](leaking, chapter["measure_next"], chapter["src"], chapter["tgt"])
    own, other = (chapter["measure_next"](leaking, src, chapter["dev_tgt"])[1] for src in (dev, swapped))
    assert own == accuracies(history)[-1] > 0.8
    assert other < own * 2 / 3
    assert chapter["exact_share"](leaking) < 0.05
    assert chapter["accuracy_without_future"](leaking) < own / 2


def test_without_the_future_a_causal_decoder_is_as_accurate_as_with_it(chapter):
    model = build(chapter, "WithPaddingMask", 1)
    _, accuracy = chapter["measure_next"](model, chapter["dev_src"], chapter["dev_tgt"])
    assert chapter["accuracy_without_future"](model) == pytest.approx(accuracy, abs=1e-3)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_first_loss_is_near_ln_v(chapter, seed):
    loss, _ = chapter["measure_next"](build(chapter, "WithLogits", seed), chapter["dev_src"], chapter["dev_tgt"])
    assert loss.item() == pytest.approx(math.log(chapter["V"]), abs=0.05)


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_each_repair_from_the_causal_mask_on_has_its_effect(chapter, seed):
    trained = {kind: build(chapter, kind, seed) for kind in ("Causal", "WithPositions", "WithPaddingMask")}
    for model in trained.values():
        chapter["train"](model, chapter["measure_next"], chapter["src"], chapter["tgt"])
    exact = {kind: chapter["exact_share"](model) for kind, model in trained.items()}
    assert exact["Causal"] > 0.5
    assert exact["WithPositions"] > 0.7
    assert exact["WithPaddingMask"] > 0.7
    alone = {kind: chapter["exact_unpadded"](trained[kind]) for kind in ("WithPositions", "WithPaddingMask")}
    assert alone["WithPositions"] < exact["WithPositions"] - 0.05
    assert alone["WithPaddingMask"] == exact["WithPaddingMask"]

    assert chapter["changed_share"](trained["Causal"]) < 0.02
    assert chapter["changed_share"](trained["WithPositions"]) > 0.05

    two = ["この 本 は その 本 より 古い です 。", "その 本 は この 本 より 古い です 。"]
    ids = chapter["to_ids"]([s.split() for s in two], chapter["src_tokens"])
    said = {kind: [chapter["as_text"](i) for i in chapter["translate"](model, ids)] for kind, model in trained.items()}
    assert said["Causal"][0] == said["Causal"][1]
    assert said["WithPaddingMask"][0] != said["WithPaddingMask"][1]


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_few_sentences_are_learned_by_heart_and_only_a_copy_keeps_the_best(chapter, seed):
    few, dev = (chapter["src"][:200], chapter["tgt"][:200]), (chapter["dev_src"], chapter["dev_tgt"])
    model = build(chapter, "WithPaddingMask", seed)
    losses = [loss.item() for loss, _ in chapter["train"](model, chapter["measure_next"], *few, epochs=30)]
    assert losses.index(min(losses)) < 20
    with torch.no_grad():
        left = chapter["measure_next"](model, *dev)[0].item()
    assert left == pytest.approx(losses[-1], abs=1e-3)
    assert left > min(losses) + 0.05

    model = build(chapter, "WithPaddingMask", seed)
    losses = [loss for loss, _ in chapter["train_repaired"](model, *few, epochs=30)]
    with torch.no_grad():
        assert chapter["measure_next"](model, *dev)[0].item() == pytest.approx(min(losses), abs=1e-3)


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_a_translator_of_strangers_becomes_a_language_model(chapter, seed):
    apart = torch.randperm(len(chapter["tgt"]), generator=torch.Generator().manual_seed(seed))
    model = build(chapter, "RepairedTranslator", seed)
    chapter["train_repaired"](model, chapter["src"], chapter["tgt"][apart.to(chapter["device"])], epochs=3)
    swapped = chapter["dev_src"].roll(1, dims=0)
    own, other = (chapter["measure_next"](model, src, chapter["dev_tgt"])[1] for src in (chapter["dev_src"], swapped))
    assert own > 0.2
    assert abs(own - other) < 0.05
    assert chapter["exact_share"](model) < 0.02


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_without_self_attention_a_decoder_translates_and_no_earlier_token_moves_it(chapter, seed):
    model = build(chapter, "NoPast", seed)
    chapter["train_repaired"](model, chapter["src"], chapter["tgt"], epochs=10)
    assert chapter["exact_share"](model) > 0.5
    own, other = chapter["swapped"](model, chapter["measure_next"])
    assert own > 0.8
    assert other < own * 2 / 3
    assert chapter["moved_by_the_past"](model) == 0
    assert chapter["moved_by_the_past"](build(chapter, "RepairedTranslator", seed)) > 1e-4
