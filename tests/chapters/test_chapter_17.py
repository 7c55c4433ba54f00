"""Chapter 17: what the notebook says of a real model, on other sentences, and its exercises' solutions."""

import ast
import copy
import importlib
import re

import pytest
import torch
import torch.nn.functional as F
import transformers
from read_chapters import code_cells, imports, markdown_cells, run, solution
from safetensors.torch import save_file
from tolerance import allowed
from torch import nn
from torch.testing import assert_close

from attn_course import pretrained
from attn_course.data.everyday import load_handwritten
from attn_course.functional.positions import rotate

NUMBER = "17"
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


# -- Files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shape"), [("a", (2, 3)), ("b", (5,)), ("c", (7, 1, 3))])
def test_a_tensor_is_read_by_hand_from_wherever_it_lies(chapter, name, shape, tmp_path):
    tensors = {"a": torch.randn(2, 3), "b": torch.arange(5), "c": torch.randn(7, 1, 3)}
    save_file(tensors, tmp_path / "some.safetensors")
    found = chapter["read_tensor"](tmp_path / "some.safetensors", name)
    assert found.shape == shape
    assert torch.equal(found, tensors[name])


def test_the_configuration_tells_how_large_the_file_is(chapter):
    assert chapter["count"] == 22_713_216
    assert chapter["path"].stat().st_size == 8 + chapter["header_size"] + 4 * 22_713_216 + 8 * 512


# -- Pieces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["transformerization", "zzyzx", "q", "1234567890", "ab3cd", "ひこうき", "x猫"])
def test_the_longest_piece_first_is_what_the_library_does(chapter, word):
    expected = chapter["tokenizer"].encode(word, add_special_tokens=False).tokens
    assert [p for w in chapter["words"](word) for p in chapter["split_word"](w)] == expected


def test_this_tokenizer_knows_all_of_the_english_and_little_of_the_japanese(chapter):
    encode = chapter["tokenizer"].encode
    assert not any("[UNK]" in encode(text).tokens for text in ENGLISH)
    assert sum("[UNK]" in encode(text).tokens for text in JAPANESE) > 0.95 * len(JAPANESE)
    assert encode("鳥が好きだ").ids == encode("魚が好きだ").ids
    assert encode("かぎ").ids == encode("かき").ids


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
    wrong = [chapter["mean_of_all"](model, texts)[0] for texts in ([short], [short, long])]
    assert F.cosine_similarity(*wrong, dim=0) < 0.9
    right = [chapter["mean_of_tokens"](model, texts)[0] for texts in ([short], [short, long])]
    assert_close(*right, **allowed(torch.float32, **DEEPEST))


def test_pads_on_the_left_take_the_places_of_tokens_unless_these_are_counted(theirs, chapter):
    ids = torch.tensor([chapter["tokenizer"].encode("It rained on the roof all night.").ids])
    padded, seen = F.pad(ids, (7, 0)), F.pad(torch.ones_like(ids), (7, 0))
    model = theirs.cpu()
    with torch.no_grad():
        alone = model(input_ids=ids).last_hidden_state
        counted = (seen.cumsum(dim=1) - 1).clamp(min=0)
        moved = model(input_ids=padded, attention_mask=seen).last_hidden_state[:, 7:]
        kept = model(input_ids=padded, attention_mask=seen, position_ids=counted).last_hidden_state[:, 7:]
    assert_close(kept, alone, **allowed(torch.float32, **DEEPEST))
    assert (moved - alone).abs().max() > 0.3


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


def test_halves_are_what_transformers_turns(chapter):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q, k = torch.randn(2, 7, 10)
    angles = torch.arange(7)[:, None] * 10_000.0 ** (-torch.arange(0, 10, 2) / 10)
    angles = torch.cat([angles, angles], dim=-1)[None]
    expected, _ = apply_rotary_pos_emb(q[None, None], k[None, None], angles.cos(), angles.sin())
    assert_close(chapter["rotate_halves"](q), expected[0, 0])


def test_the_table_of_families_says_what_transformers_has_as_defaults():
    (cell,) = (cell.source for cell in markdown_cells(NUMBER) if "| Gemma 2 2B |" in cell.source)
    rows = [[entry.strip() for entry in line.strip("|").split("|")] for line in cell.split("\n") if line[:1] == "|"]
    columns = dict(zip(rows[0], zip(*rows[2:], strict=True), strict=True))
    for column, config in {
        "Gemma 2 2B": transformers.Gemma2Config(),
        "gpt-oss 120B": transformers.GptOssConfig(),
    }.items():
        heads, layers, *_ = columns[column]
        assert heads == f"{config.num_attention_heads}, {config.num_key_value_heads}"
        assert layers == f"every 2nd, {config.sliding_window}"
        assert config.layer_types[:3] == ["sliding_attention", "full_attention", "sliding_attention"]
    gemma2 = transformers.Gemma2Config()
    assert columns["Gemma 2 2B"][2] == f"a soft cap of {gemma2.attn_logit_softcapping:g}"
    assert columns["Gemma 2 2B"][4] == f"base {gemma2.rope_parameters['rope_theta']:,.0f}"
    gpt_oss = transformers.GptOssConfig()
    trained = gpt_oss.rope_parameters["original_max_position_embeddings"]
    assert columns["gpt-oss 120B"][4] == f"YaRN from {trained} to {gpt_oss.max_position_embeddings:,}"


def test_the_network_example_names_existing_functions():
    text = "\n".join(cell.source for cell in markdown_cells(NUMBER))
    blocks = re.findall(r"^```python\n(# Listing: .*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "pretrained":
                assert node.attr in pretrained.__all__
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "transformers":
                assert hasattr(transformers, node.attr)
            if isinstance(node, ast.ImportFrom) and node.module != "datasets":  # not installed here
                assert all(hasattr(importlib.import_module(node.module), name.name) for name in node.names)


def test_half_a_model_finds_every_partner_and_a_random_one_does_not(chapter):
    half = copy.deepcopy(chapter["model"])
    torch.manual_seed(5)
    fresh = chapter["Bert"](chapter["config"]).to(half.token_embed.weight.device).eval()
    for layer, random in zip(half.layers, fresh.layers, strict=True):
        layer.self_attention.out_proj.load_state_dict(random.self_attention.out_proj.state_dict())
    pairs = ["It rained all night.", "The night was wet.", "My brother is a doctor.", "He works in a hospital."]
    partner = torch.tensor([1, 0, 3, 2])
    for bert in (chapter["model"], half):
        nearest = chapter["cosines_of"](bert, pairs).fill_diagonal_(-1.0).argmax(dim=1)
        assert torch.equal(nearest, partner)
    unrelated = [chapter["cosines_of"](bert, pairs)[:2, 2:].max() for bert in (chapter["model"], half, fresh)]
    assert unrelated[0] < unrelated[1] < unrelated[2]


def test_pytorch_overwrites_what_fits_before_it_raises():
    module = nn.ModuleDict({"up": nn.Linear(3, 5), "down": nn.Linear(5, 2)})
    file = {"up.weight": torch.ones(5, 3), "up.bias": torch.ones(5)}
    with pytest.raises(RuntimeError, match="Missing key"):
        module.load_state_dict(file)
    assert module["up"].weight.eq(1).all()


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


def test_exercise_1_transposes_what_conv1d_stored():
    load = solution(NUMBER, 1)["load_renamed"]
    conv = transformers.pytorch_utils.Conv1D(3, 3)
    nn.init.normal_(conv.bias)
    linear = load(nn.Linear(3, 3), conv.state_dict(), {"weight": "weight", "bias": "bias"}, {"weight"})
    x = torch.randn(2, 3)
    assert_close(linear(x), conv(x))


def test_the_mean_of_exercise_2_is_the_package_s():
    minilm = pretrained.load_minilm(dtype=torch.float64)
    texts = [ENGLISH[3], "Yes.", ENGLISH[40]]
    ids, mask = minilm.batch(texts)
    with torch.no_grad():
        hidden = minilm.bert(ids, mask=mask).hidden[-1]
    pooled = solution(NUMBER, 2)["mean_pool"](hidden, mask[:, 0])
    assert_close(F.normalize(pooled, dim=-1), minilm.embed(texts), **allowed(torch.float64, **DEEPEST))
    # Dividing by another number would not show in a vector of length 1.
    each = [row[: int(n)].mean(dim=0) for row, n in zip(hidden, mask.sum(dim=(1, 2)), strict=True)]
    assert_close(pooled, torch.stack(each))


def test_the_share_of_exercise_3_is_counted_token_by_token():
    weights = torch.rand(3, 2, 7, 7).softmax(dim=-1)
    lengths = [7, 1, 4]
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    looks = [weights[b, :, t, t - 1] for b, n in enumerate(lengths) for t in range(1, n)]
    found = solution(NUMBER, 3)["share_on_previous"](weights, mask)
    assert_close(found, torch.stack(looks).mean(dim=0))


def test_the_split_of_exercise_4_gives_what_gpt2_computes():
    config = transformers.GPT2Config(n_embd=10, n_head=2, n_layer=1, vocab_size=11, bos_token_id=0, eos_token_id=0)
    fused = transformers.GPT2Model(config).h[0].attn.c_attn
    nn.init.normal_(fused.bias)
    x = torch.randn(3, 10)
    parts = solution(NUMBER, 4)["split_fused"](fused.weight, fused.bias)
    for weight, bias, expected in zip(parts[:3], parts[3:], fused(x).split(10, dim=-1), strict=True):
        assert_close(F.linear(x, weight, bias), expected)


def test_the_rows_of_exercise_5_make_our_scores_those_of_halves(chapter):
    H, G, D, E = 6, 2, 10, 7
    q, k, v = torch.randn(H * D, E), torch.randn(G * D, E), torch.randn(G * D, E)
    new_q, new_k, new_v = solution(NUMBER, 5)["to_neighbours"](q, k, v, H, G)
    assert torch.equal(new_v, v)
    x = torch.randn(5, E)  # (T, E)
    for head in range(H):
        mine, other = slice(head * D, (head + 1) * D), slice(head // 3 * D, (head // 3 + 1) * D)
        halves = chapter["rotate_halves"]
        expected = halves(x @ q[mine].T) @ halves(x @ k[other].T).T
        assert_close(rotate(x @ new_q[mine].T) @ rotate(x @ new_k[other].T).T, expected, atol=1e-4, rtol=1e-4)
