"""Chapter 22: what the notebook says of a real model, on other sentences."""

import ast
import copy
import importlib
import re

import pytest
import torch
import torch.nn.functional as F
import transformers
from read_chapters import code_cells, imports, markdown_cells, run, solution
from tolerance import allowed
from torch import nn
from torch.testing import assert_close

from attn_course import pretrained
from attn_course.data.everyday import load_handwritten

NUMBER = "22"
ENGLISH = [pair.en for pair in load_handwritten()]
JAPANESE = [pair.ja for pair in load_handwritten()]
DEEPEST = {"terms": 1536, "depth": 6 * 8}  # of each of 6 layers, 8 sums that read one another


@pytest.fixture(scope="module")
def chapter():
    """What the chapter's cells have defined when its model is loaded, and the functions of its later cells."""
    names, loaded = imports(NUMBER), False
    for cell in code_cells(NUMBER):
        if {"launch", "imports", "exercise"} & set(cell.metadata.get("tags", [])):
            continue
        tree = ast.parse(cell.source)
        if loaded:
            tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        run(ast.unparse(tree), names)
        loaded = loaded or "load_state_dict(state)" in cell.source
    return names


@pytest.fixture(scope="module")
def theirs():
    folder = pretrained.find_minilm()
    return transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()


# -- The same model ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts", [ENGLISH[7:8], JAPANESE[7:9], [ENGLISH[11], "No.", JAPANESE[2], " ".join(ENGLISH[20:24])]]
)
def test_every_hidden_state_and_all_72_maps_are_theirs(chapter, theirs, texts):
    ids, mask = chapter["make_batch"](texts)
    for dtype in (torch.float32, torch.float64):
        mine, reference = (copy.deepcopy(model).to(ids.device, dtype) for model in (chapter["model"], theirs))
        with torch.no_grad():
            hidden, weights = mine(ids, mask)
        answer = chapter["run_reference"](reference, ids, mask)
        assert weights.shape[0] * weights.shape[2] == 72
        rounding = allowed(dtype, **DEEPEST)
        assert_close(weights, torch.stack(answer.attentions), **rounding)
        assert len(hidden) == 7
        for found, expected in zip(hidden, answer.hidden_states, strict=True):
            assert_close(found, expected, **rounding)


def test_the_chapters_rules_put_every_tensor_where_the_package_puts_it(chapter):
    package = dict(pretrained.load_minilm().bert.named_parameters())
    mine = dict(chapter["model"].named_parameters())
    assert package.keys() - mine.keys() <= {"pooler.weight", "pooler.bias"}
    for name, parameter in mine.items():
        assert torch.equal(parameter.cpu(), package[name]), name


def test_under_sdpa_transformers_returns_no_weights_and_under_eager_it_does(chapter):
    plain = transformers.AutoModel.from_pretrained(pretrained.find_minilm()).eval()
    ids = torch.tensor([chapter["tokenizer"].encode("It rains.").ids])
    assert len(plain(ids, output_attentions=True).attentions) == 0
    plain.set_attn_implementation("eager")
    assert len(plain(ids, output_attentions=True).attentions) == 6


# -- What heads look at ------------------------------------------------------------------------------


def test_the_claims_about_heads_hold_on_other_sentences(theirs, chapter):
    """The chapter measures every fifth sentence from the first; here are the ones after these."""
    ids, mask = chapter["make_batch"](ENGLISH[1::5])
    answer = chapter["run_reference"](theirs.to(ids.device), ids, mask)
    weights = torch.stack(answer.attentions).cpu()  # (L, B, H, S, S)
    lengths = mask.sum(dim=(1, 2)).tolist()

    def share(queries, key):
        """The mean over the queries of each sentence of length n, `queries(n)`, of the weight on `key(t, n)`."""
        looks = [weights[:, b, :, t, key(t, n)] for b, n in enumerate(lengths) for t in queries(n)]
        return torch.stack(looks).mean(dim=0)  # (L, H)

    previous = share(lambda n: range(1, n), lambda t, n: t - 1)
    following = share(lambda n: range(n - 1), lambda t, n: t + 1)
    same = share(range, lambda t, n: t)
    last = share(lambda n: range(1, n - 1), lambda t, n: n - 1)
    first = share(lambda n: range(1, n - 1), lambda t, n: 0)
    assert previous.argmax() == 2
    assert previous[0, 2] > 0.98
    assert following.argmax() == 12 + 8
    assert following[1, 8] > 0.6
    assert same.max() < 0.25
    assert last.max() < 0.15
    assert first[1:].mean() > 0.45


def test_the_values_of_cls_are_small_so_that_looking_there_is_looking_away(theirs, chapter):
    ids, mask = chapter["make_batch"](ENGLISH[2::5])
    states = chapter["run_reference"](theirs.to(ids.device), ids, mask).hidden_states
    words = mask[:, 0].clone()
    words[:, 0] = False
    for layer, x in list(zip(theirs.encoder.layer, states, strict=False))[1:]:
        value = layer.attention.self.value
        v = F.linear(x, value.weight, value.bias).unflatten(-1, (12, 32)).norm(dim=-1)  # (B, S, H)
        assert v[:, 0].mean() < v[words].mean() / 3


# -- Sentences ---------------------------------------------------------------------------------------


def test_counting_the_pads_changes_a_sentence_and_leaving_them_out_does_not(chapter):
    short, long = "It purred.", " ".join(ENGLISH[:4])
    model = chapter["model"]
    wrong = [chapter["embed"](model, texts, count_padding=True)[0] for texts in ([short], [short, long])]
    assert F.cosine_similarity(*wrong, dim=0) < 0.9
    near = [chapter["embed"](model, texts, count_padding=True)[0] for texts in ([short], [short, "It slept all day."])]
    assert F.cosine_similarity(*near, dim=0) > 0.95  # among similar lengths, the mistake hardly shows
    right = [chapter["embed"](model, texts)[0] for texts in ([short], [short, long])]
    assert_close(*right, **allowed(torch.float32, **DEEPEST))


def test_a_detail_of_the_code_that_no_cosine_shows_is_far_above_rounding(chapter):
    sentences = ["A cat sleeps on the sofa.", "The kitten naps on the couch.", "Share prices dropped."]
    right, wrong = chapter["model"], [copy.deepcopy(chapter["model"]) for _ in range(2)]
    chapter["set_eps"](wrong[0], 1e-5)
    chapter["set_activation"](wrong[1], nn.GELU("tanh"))
    ids, mask = chapter["make_batch"](sentences)
    real = mask[:, 0]
    with torch.no_grad():
        expected = right(ids, mask)[0][-1][real]
        for model in wrong:
            moved = (model(ids, mask)[0][-1][real] - expected).abs().max()
            assert 1e-4 < moved < 0.01
            difference = chapter["cosines_of"](model, sentences) - chapter["cosines_of"](right, sentences)
            assert difference.abs().max() < 0.001


# -- Other architectures -----------------------------------------------------------------------------


def test_the_network_example_names_existing_functions():
    text = "\n".join(cell.source for cell in markdown_cells(NUMBER))
    blocks = re.findall(r"^```python\n(# Listing: .*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "pretrained":
                assert node.attr in pretrained.__all__
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "transformers":
                assert hasattr(transformers, node.attr)
            if isinstance(node, ast.ImportFrom) and node.module != "datasets":  # not installed here
                assert all(hasattr(importlib.import_module(node.module), name.name) for name in node.names)


@pytest.mark.parametrize("size", ["as a new layer", "as the trained layer"])
def test_half_a_model_finds_every_partner(chapter, size):
    half = copy.deepcopy(chapter["model"])
    torch.manual_seed(5)
    fresh = chapter["Bert"](chapter["config"]).to(half.token_embed.weight.device).eval()
    for layer, random in zip(half.layers, fresh.layers, strict=True):
        new, trained = random.self_attention.out_proj, layer.self_attention.out_proj
        if size == "as the trained layer":
            new.weight.data *= trained.weight.std() / new.weight.std()
        trained.load_state_dict(new.state_dict())
    pairs = ["It rained all night.", "The night was wet.", "My brother is a doctor.", "He works in a hospital."]
    partner = torch.tensor([1, 0, 3, 2])
    for bert in (chapter["model"], half):
        nearest = chapter["cosines_of"](bert, pairs).fill_diagonal_(-1.0).argmax(dim=1)
        assert torch.equal(nearest, partner)
    unrelated = [chapter["cosines_of"](bert, pairs)[:2, 2:].max() for bert in (chapter["model"], half, fresh)]
    assert unrelated[0] < unrelated[1] < unrelated[2]


# -- Attention to [CLS] ------------------------------------------------------------------------------


@torch.no_grad()
def first_and_word(chapter, start):
    """Weight and contribution of the token at ``start``, and contribution of a word: means of layers 2 to 6."""
    numbers = []
    for text in ENGLISH[1::40]:
        ids, mask = chapter["make_batch"]([text])
        hidden, weights = chapter["model"].float()(ids[:, start:], mask[..., start:])
        for layer in range(1, 6):
            attention = chapter["model"].layers[layer].self_attention
            x, D = hidden[layer][0], 32
            for head in range(12):
                at = slice(D * head, D * head + D)
                v = F.linear(x, attention.v_proj.weight[at], attention.v_proj.bias[at])
                sizes = (v @ attention.out_proj.weight[:, at].T).norm(dim=-1)
                torch.testing.assert_close(chapter["value_sizes"](layer, hidden[layer])[0, head], sizes)
                looks = weights[layer, 0, head, 1:-1]  # the queries are words
                shares = looks * sizes / (looks * sizes).sum(dim=-1, keepdim=True)
                numbers.append([looks[:, 0].mean(), shares[:, 0].mean(), shares[:, 1:-1].mean()])
    return torch.tensor(numbers).mean(dim=0).tolist()


def test_the_first_token_gets_half_of_the_weight_but_contributes_about_as_much_as_a_word(chapter):
    for start in (0, 1):  # with [CLS], and without
        weight, contribution, word = first_and_word(chapter, start)
        assert 0.4 < weight < 0.6
        assert 0.7 < contribution / word < 2


@pytest.mark.parametrize(("start", "first", "least", "most"), [(0, 1, 0.35, 0.5), (1, 0, 0.4, 0.6), (1, 1, 0.0, 0.08)])
def test_the_token_or_position_0_is_enough_for_a_sink_and_neither_is_none(chapter, start, first, least, most):
    found = []
    for text in ENGLISH[2::20]:
        ids, mask = chapter["make_batch"]([text])
        positions = torch.arange(ids.size(1) - start, device=ids.device) + first
        with torch.no_grad():
            _, weights = chapter["model"].float()(ids[:, start:], mask[..., start:], positions)
        found.append(weights[1:, 0, :, 1:-1, 0].mean())
    assert least < torch.stack(found).mean() < most


def test_the_previous_token_head_follows_positions_of_other_nonsense(chapter):
    ids = torch.randint(1000, 30_000, (5, 30))
    order, everything = torch.randperm(30), torch.ones(5, 1, 30, dtype=torch.bool)
    with torch.no_grad():
        _, weights = copy.deepcopy(chapter["model"]).cpu().float()(ids, everything, order)
    in_order = weights[0, :, 2][:, order.argsort()][:, :, order.argsort()]
    assert in_order.diagonal(-1, 1, 2).mean() > 0.95


# -- Exercises ---------------------------------------------------------------------------------------


def test_the_map_of_exercise_1_fills_our_bert_and_refuses_a_file_that_lacks_a_tensor(chapter):
    load = solution(NUMBER, 1)["load_renamed"]
    tensors = {name: t for name, t in chapter["tensors"].items() if name not in chapter["unused"]}
    names = {}
    for theirs_name in tensors:
        ours = theirs_name
        for old, new in chapter["rules"].items():
            ours = ours.replace(old, new)
        names[theirs_name] = ours
    fresh = chapter["Bert"](chapter["config"])
    load(fresh, tensors, names, set())
    for name, parameter in fresh.named_parameters():
        assert torch.equal(parameter, chapter["model"].get_parameter(name).cpu()), name
    untouched = fresh.embed_norm.bias.detach().clone()
    changed = {name: t + 1 for name, t in tensors.items() if "layer.5.output.dense.bias" not in name}
    with pytest.raises(ValueError, match=r"encoder\.layer\.5\.output\.dense\.bias"):
        load(fresh, changed, names, set())
    assert torch.equal(fresh.embed_norm.bias, untouched)
