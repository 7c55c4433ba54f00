"""Chapter 7: what the notebook says about cross-attention, checked again on other numbers and other seeds."""

import ast
import math
import random
import sys

import pytest
import torch
import torch.nn.functional as F
from read_chapters import ROOT, code_cells, imports

from attn_course import (
    MultiHeadAttention,
    MultiHeadCrossAttention,
    assert_causal,
    make_padding_mask,
)
from attn_course.explore import japanese_particles
from attn_course.explore.recorded_attention import load

B, H, T, S, E = 2, 3, 5, 7, 6
D_IN, D_MEMORY = 11, 13


@pytest.fixture(scope="module")
def chapter():
    """What the notebook defines before it trains, sentences included, and its functions after that; no figures."""
    names, trained = imports("07"), False
    names["device"] = torch.device("cpu")
    for cell in code_cells("07"):
        if {"launch", "imports", "exercise"} & set(cell.metadata.get("tags", [])):
            continue
        tree = ast.parse(cell.source)
        trained = trained or any(assigns(node, "history") for node in tree.body)
        tree.body = [node for node in tree.body if isinstance(node, KEPT[trained])]
        exec(compile(tree, "chapter 7", "exec"), names)
    return names


# Expressions print, draw and check: the tests do that for themselves.
KEPT = {
    False: (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.While, ast.With),
    True: (ast.FunctionDef, ast.ClassDef),
}


def assigns(node, name):
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- One sequence asks another -----------------------------------------------------------------------


def test_the_one_headed_class_is_the_package_s_layer_without_output_projection(chapter):
    cross = chapter["CrossAttention"](D_IN, D_MEMORY, E).double()
    layer = MultiHeadCrossAttention(E, 1, d_in=D_IN, d_memory=D_MEMORY, bias=False, out_bias=False).double()
    layer.load_state_dict({**cross.state_dict(), "out_proj.weight": torch.eye(E)})
    x, memory = random_tensor(B, T, D_IN), random_tensor(B, S, D_MEMORY, seed=1)
    out, weights = layer(x, memory, need_weights=True)
    assert_same((out, weights[:, 0]), cross(x, memory))


# -- A decoder block ---------------------------------------------------------------------------------


@pytest.fixture
def block(chapter):
    torch.manual_seed(0)
    return chapter["DecoderBlock"](E, H, d_memory=D_MEMORY).double()


def test_a_decoder_block_is_causal_in_the_target_and_sees_all_of_the_memory(block):
    x, memory = random_tensor(B, T, E), random_tensor(B, S, D_MEMORY, seed=1)
    assert_causal(lambda x: block(x, memory)[0], x, atol=1e-12)
    slopes = torch.autograd.functional.jacobian(lambda memory: block(x, memory)[0].sum(-1)[0], memory)
    assert (slopes[:, 0].abs().amax(-1) > 0).all()  # (T, S): every output, every word of the memory


def test_a_decoder_block_hides_the_memory_s_padding(block):
    x, memory = random_tensor(B, T, E), random_tensor(B, S, D_MEMORY, seed=1)
    out, weights = block(x, memory, make_padding_mask([3, 3], S))
    assert_same(out, block(x, memory[:, :3])[0])
    assert (weights[..., 3:] == 0).all()


def test_without_the_self_attention_a_position_knows_its_own_word_only(block):
    x, memory = random_tensor(1, T, E), random_tensor(1, S, D_MEMORY, seed=1)
    changed = x.clone()
    changed[:, 0] += 1.0
    both = block(changed, memory)[0] - block(x, memory)[0]
    across = block.cross_attn(changed, memory)[0] - block.cross_attn(x, memory)[0]
    assert (both[0].abs().amax(-1) > 0).all()
    assert (across[0, 1:] == 0).all()


# -- The toy translation -----------------------------------------------------------------------------


def test_every_english_word_translates_the_japanese_word_it_is_aligned_with(chapter):
    dice = random.Random(7)
    for japanese, english, gold in (chapter["make_pair"](dice) for _ in range(500)):
        assert [chapter["dictionary"][japanese[s]] for s in gold] == list(english)
        unaligned = [japanese[s] for s in range(len(japanese)) if s not in gold]
        assert unaligned == ["が", "を"]
        assert gold[0] == japanese.index("が") - 1  # the subject comes first
        assert gold[1] == len(japanese) - 1  # the verb, last in Japanese, comes second
        assert 5 <= len(japanese) <= 8


def test_the_grammar_makes_as_many_sentences_as_the_text_says(chapter):
    who, did, optional = len(chapter["who"]), len(chapter["did"]), [chapter[n] for n in ("kind", "how", "when")]
    assert len(chapter["dictionary"]) == who + did + sum(map(len, optional))  # no word has two roles
    assert who * who * did * math.prod(len(words) + 1 for words in optional) == 7**3 * 8**3 == 175_616


def test_the_model_never_sees_the_held_out_sentences(chapter):
    pairs = chapter["pairs"]
    assert len(set(pairs)) == len(pairs) == 2400
    assert not {japanese for japanese, _, _ in pairs[:2000]} & {japanese for japanese, _, _ in pairs[2000:]}


def test_the_decoder_writes_one_word_ahead_of_what_it_reads(chapter):
    read, write = chapter["read"], chapter["write"]
    real = read[:, 1:] != 0
    assert torch.equal(read[:, 1:][real], write[:, :-1][real])
    assert (read[:, 0] == chapter["tgt_words"].index("<bos>")).all()
    ends = (write == chapter["tgt_words"].index("<eos>")).sum(1)
    assert (ends == 1).all()


def test_the_loss_of_an_untrained_model_is_the_logarithm_of_the_vocabulary(chapter):
    torch.manual_seed(1)
    logits, weights = chapter["run"](chapter["Translator"](), chapter["src"][:64], chapter["read"][:64])
    loss = F.cross_entropy(logits.mT, chapter["write"][:64], ignore_index=0)
    assert abs(loss - math.log(len(chapter["tgt_words"]))) < 0.15
    assert weights.max() < 0.3  # no word is chosen yet


@pytest.fixture(scope="module")
def trained(chapter):
    """A translator trained from another seed than the notebook's."""
    torch.manual_seed(4)
    model = chapter["Translator"]()
    chapter["train"](model, torch.Generator().manual_seed(4))
    return model.eval()


def test_another_seed_translates_and_looks_at_the_right_words(chapter, trained):
    src, read, write = (chapter[name][2000:] for name in ("src", "read", "write"))
    assert chapter["exact_share"](chapter["translate"](trained, src), write) > 0.95
    assert chapter["watch"](trained)[0] > 0.9
    with torch.no_grad():
        _, weights = chapter["run"](trained, src, read)
    assert (weights[(src == 0)[:, None, None, :].expand_as(weights)] == 0).all()


def test_the_trained_model_goes_by_the_place_and_not_by_the_particle(chapter, trained):
    def say(sentence):
        ids = chapter["to_ids"]([sentence.split()], chapter["src_words"])
        return chapter["as_text"](chapter["translate"](trained, ids)[0])

    assert say("猫 が 犬 を 追った") == "cats chased dogs"
    assert say("犬 が 猫 を 追った") == "dogs chased cats"
    assert say("犬 を 猫 が 追った").startswith("dogs chased cats")  # wrong, as the chapter shows


@pytest.fixture
def checkpoints(monkeypatch):
    """The script that records what the figure of section 7.6 shows."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import checkpoints

    yield checkpoints
    sys.modules.pop("checkpoints")


def test_perfect_marks_in_one_order_are_hardly_any_in_the_other(chapter, trained, checkpoints):
    japanese, english, _ = zip(*chapter["pairs"][2000:], strict=True)
    turned = [checkpoints.object_first(sentence) for sentence in japanese]
    assert all(sorted(a) == sorted(b) and a != b for a, b in zip(japanese, turned, strict=True))
    guesses = chapter["translate"](trained, chapter["to_ids"](turned, chapter["src_words"]))
    write = chapter["write"][2000:]
    assert chapter["exact_share"](guesses, write) < 0.15
    right = [" ".join(words) == chapter["as_text"](ids) for words, ids in zip(english, guesses, strict=True)]
    animals = set(chapter["who"].values())
    kept = [[word for word in words if word in animals] for words, good in zip(english, right, strict=True) if good]
    assert all(who == whom for who, whom in kept), kept  # the few that are right have the same animal twice


@pytest.mark.trains
def test_the_particles_are_learned_from_both_orders_by_an_encoder_that_mixes_words(chapter):
    """On both word orders, a vector that holds a single word and its place is not enough."""
    straight, write = chapter["src"], chapter["write"]
    japanese, _, _ = zip(*chapter["pairs"], strict=True)
    turned = chapter["to_ids"]([chapter["object_first"](words) for words in japanese], chapter["src_words"])
    coin = torch.rand(len(straight), generator=torch.Generator().manual_seed(0)) < 0.5
    Translator = chapter["Translator"]

    class Mixing(Translator):
        def __init__(self):
            super().__init__()
            self.mix = MultiHeadAttention(48, 4)

        def encode(self, src):
            x = super().encode(src)
            return x + self.mix(x, mask=(src != 0)[:, None])[0]

    right = {}
    try:
        chapter["src"] = torch.where(coin[:, None], turned, straight)  # what `train` reads
        for kind in (Translator, Mixing):
            torch.manual_seed(0)
            model = kind()
            chapter["train"](model, torch.Generator().manual_seed(0), steps=2000)
            guesses = [chapter["translate"](model, src[2000:]) for src in (straight, turned)]
            right[kind] = [chapter["exact_share"](guess, write[2000:]) for guess in guesses]
    finally:
        chapter["src"] = straight
    assert max(right[Translator]) < 0.9
    assert min(right[Mixing]) > 0.95


def test_the_figure_s_record_has_the_form_in_which_it_is_shipped(checkpoints):
    made, shipped = checkpoints.record_orders(seed=1, steps=(0, 10)), load("orders")
    assert made["sentences"] == shipped["sentences"]
    assert made["glosses"] == shipped["glosses"]
    assert made.keys() == shipped.keys()
    for part in ("exact", "written", "weights"):
        assert len(made[part]) == 2
        assert [len(row) for row in made[part]] == [len(row) for row in shipped[part][:2]]
    assert japanese_particles(made).text.startswith("A translator in training")


def test_without_places_word_order_is_lost(chapter, trained):
    sentences = [["猫", "が", "犬", "を", "追った"], ["犬", "が", "猫", "を", "追った"]]
    src = chapter["to_ids"](sentences, chapter["src_words"])
    memory = trained.src_word(src)  # (2, S, d_memory) without the table of places
    logits, _ = trained(chapter["read"][:1].expand(2, -1), memory, None)
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-4)


def test_the_target_s_mask_hides_the_verb_without_an_error(chapter, trained):
    src, read, write = (chapter[name][2000:] for name in ("src", "read", "write"))
    read8 = F.pad(read, (0, 1))
    assert torch.equal((read8 != 0).sum(1) + 1, (src != 0).sum(1))
    with torch.no_grad():
        logits, _ = trained(read8, trained.encode(src), (read8 != 0)[:, None])
    assert (logits[:, 1].argmax(-1) == write[:, 1]).float().mean() < 0.3  # eight verbs to guess from


def test_a_model_trained_with_the_mask_of_the_target_can_only_guess_the_verb(chapter):
    src, read, write, gold = (chapter[name] for name in ("src", "read", "write", "gold"))
    hidden = F.pad(read, (0, 1)) == 0  # (N, S)
    assert hidden.gather(1, gold[:, 1:2]).all()  # the verb, written second
    assert (hidden & (src != 0)).sum(1).eq(1).all()  # and nothing else
    assert len(chapter["did"]) == 8
    # The verb is drawn by itself, so no other word says it: ln 8 for one token of each sentence.
    tokens = (write != 0).sum() / len(write)
    assert tokens == pytest.approx(5.5, abs=0.05)
    assert math.log(8) / tokens == pytest.approx(0.38, abs=5e-3)


def test_exchanging_keys_and_values_of_a_trained_model_breaks_it_silently(chapter, trained):
    src, write = chapter["src"][2000:], chapter["write"][2000:]
    cross = trained.block.cross_attn
    cross.k_proj, cross.v_proj = cross.v_proj, cross.k_proj
    try:
        assert chapter["exact_share"](chapter["translate"](trained, src), write) < 0.1
    finally:
        cross.k_proj, cross.v_proj = cross.v_proj, cross.k_proj
