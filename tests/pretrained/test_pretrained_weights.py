"""ModelOutput weights, and loading them by a map: all or nothing, and every message says what is wrong."""

import copy
import json
import pickle
import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

from attn_course.pretrained import (
    Bert,
    Into,
    download,
    load_bert,
    load_from_folder,
    load_from_hub,
    load_gpt2,
    load_llama,
    load_marian,
    load_weight_map,
    read_config,
    read_weights,
    split_fused,
)


def random_tensors(**shapes):
    rng = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=rng) for name, shape in shapes.items()}


TENSORS = random_tensors(**{"a.weight": (2, 3), "a.bias": (2,), "b.weight": (5, 7)})


def save_shards(folder, files, listed=None):
    """A folder with these files of tensors, and the list that says where each is."""
    for file, tensors in files.items():
        save_file(tensors, folder / file)
    if listed is None:
        listed = {name: file for file, tensors in files.items() for name in tensors}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": listed}), "utf-8")
    return index


# -- ModelOutput -----------------------------------------------------------------------------------------


def test_a_file_and_its_folder_hold_the_same_tensors(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"about": "no JSON", "format": "pt"})
    for path in (tmp_path, str(tmp_path), tmp_path / "model.safetensors"):
        assert_close(read_weights(path), TENSORS, rtol=0, atol=0)


def test_shards_are_put_together(tmp_path):
    first, second = {"a.weight": TENSORS["a.weight"], "b.weight": TENSORS["b.weight"]}, {"a.bias": TENSORS["a.bias"]}
    index = save_shards(tmp_path, {"model-1.safetensors": first, "model-2.safetensors": second})
    for path in (tmp_path, index):
        assert_close(read_weights(path), TENSORS, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
def test_a_pickle_is_refused_and_its_program_is_not_run(name, tmp_path):
    class Program:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").mkdir, ())

    path = tmp_path / name
    path.write_bytes(pickle.dumps(Program()))
    for asked in (path, tmp_path):
        with pytest.raises(ValueError, match="runs whatever program its author put into it") as refused:
            read_weights(asked)
        assert str(path) in str(refused.value)
        assert "model.safetensors" in str(refused.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("archive", [True, False])
def test_a_pickle_does_not_pass_under_another_name(archive, tmp_path):
    path = tmp_path / "model.safetensors"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=archive)
    with pytest.raises(ValueError, match="is a pickle"):
        read_weights(path)


def test_the_name_of_a_pickle_is_enough(tmp_path):
    save_file(TENSORS, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="is a pickle"):
        read_weights(tmp_path / "pytorch_model.bin")


def test_safetensors_beside_a_pickle_are_read(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert read_weights(tmp_path).keys() == TENSORS.keys()


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 40, -1])
def test_a_file_that_was_cut_off_is_damaged(keep, tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged: it is no safetensors file, or not all of"):
        read_weights(tmp_path)


def test_no_weights_at_all_are_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no weights: neither model.safetensors nor model.safetensors.i"):
        read_weights(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*nowhere"):
        read_weights(tmp_path / "nowhere")


def test_missing_shards_are_listed(tmp_path):
    files = {f"model-{n}.safetensors": {f"t{n}": torch.ones(1)} for n in range(4)}
    save_shards(tmp_path, files)
    for n in (1, 3):
        (tmp_path / f"model-{n}.safetensors").unlink()
    with pytest.raises(
        ValueError, match=r"is not complete: model-1.safetensors, model-3.safetensors of 4 files missing"
    ):
        read_weights(tmp_path)


def test_shards_that_hold_something_else_than_listed_are_refused(tmp_path):
    listed = {"a": "one.safetensors", "b": "two.safetensors"}
    save_shards(tmp_path, {"one.safetensors": {"a": torch.ones(1), "c": torch.ones(1)}, "two.safetensors": {}}, listed)
    with pytest.raises(ValueError, match="does not fit its files") as refused:
        read_weights(tmp_path)
    assert "one.safetensors holds, unlisted, c, two.safetensors lacks b" in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_a_damaged_list_of_shards_is_named(text, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"index.json is damaged: it does not say which file holds which tensor"):
        read_weights(tmp_path)


def test_shards_outside_the_folder_are_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(TENSORS, tmp_path / "secret.safetensors")
    for place in ("../secret.safetensors", str(tmp_path / "secret.safetensors")):
        save_shards(folder, {}, {"a": place})
        with pytest.raises(ValueError, match="names files outside its folder"):
            read_weights(folder)


def test_a_damaged_shard_is_named(tmp_path):
    save_shards(tmp_path, {"one.safetensors": {"a": torch.ones(1)}, "two.safetensors": {"b": torch.ones(1)}})
    (tmp_path / "two.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"two.safetensors is damaged"):
        read_weights(tmp_path)


# -- Weight maps -------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 7)
        self.down = nn.Linear(7, 3, bias=False)
        self.gain = nn.Parameter(torch.ones(3))


class Model(nn.Module):
    def __init__(self, num_layers=2):
        super().__init__()
        self.embed = nn.Embedding(11, 3)
        self.layers = nn.ModuleList(Block() for _ in range(num_layers))
        self.logits = nn.Linear(3, 11)
        self.logits.weight = self.embed.weight


NAMES = {
    "wte": "embed",
    "h.{i}.fc": Into("layers.{i}.up", torch.t),
    "h.{i}.proj": "layers.{i}.down",
    "h.{i}.scale": "layers.{i}.gain",
    "logits_bias": Into("logits.bias", lambda bias: bias[0]),
}


def theirs(num_layers=2):
    shapes = {"wte.weight": (11, 3), "logits_bias": (1, 11)}
    for i in range(num_layers):
        shapes |= {f"h.{i}.fc.weight": (3, 7), f"h.{i}.fc.bias": (7,)}
        shapes |= {f"h.{i}.proj.weight": (3, 7), f"h.{i}.scale": (3,)}
    return random_tensors(**shapes)


def refused(tensors, names=NAMES, module=None, **options):
    """The message, after which nothing has been copied."""
    module = Model() if module is None else module
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match="do not fit the module, and nothing was loaded") as error:
        load_weight_map(module, tensors, names, **options)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    return str(error.value)


def test_every_tensor_lands_where_the_map_says():
    model, tensors = Model(), theirs()
    load_weight_map(model, tensors, NAMES)
    for i, block in enumerate(model.layers):
        assert torch.equal(block.up.weight, tensors[f"h.{i}.fc.weight"].T)
        assert torch.equal(block.up.bias, tensors[f"h.{i}.fc.bias"])
        assert torch.equal(block.down.weight, tensors[f"h.{i}.proj.weight"])
        assert torch.equal(block.gain, tensors[f"h.{i}.scale"])
    assert torch.equal(model.embed.weight, tensors["wte.weight"])
    assert model.logits.weight is model.embed.weight
    assert torch.equal(model.logits.bias, tensors["logits_bias"][0])
    assert all(p.requires_grad for p in model.parameters())


def test_the_module_keeps_its_type():
    model, tensors = Model().double(), theirs()
    load_weight_map(model, {name: t.half() for name, t in tensors.items()}, NAMES)
    assert model.embed.weight.dtype == torch.float64
    assert torch.equal(model.embed.weight, tensors["wte.weight"].half().double())


def test_one_tensor_is_split_among_several():
    attention = nn.ModuleDict({name: nn.Linear(4, 4) for name in "qkv"})
    tensors = random_tensors(**{"c.weight": (4, 12), "c.bias": (12,)})
    load_weight_map(attention, tensors, {"c": Into(("q", "k", "v"), split_fused)})
    x = torch.randn(2, 4)
    expected = (x @ tensors["c.weight"] + tensors["c.bias"]).chunk(3, dim=-1)
    for name, part in zip("qkv", expected, strict=True):
        assert_close(attention[name](x), part)


def test_everything_that_is_wrong_is_listed_at_once():
    tensors = theirs(num_layers=3)
    del tensors["h.1.fc.bias"], tensors["logits_bias"]
    tensors["wte.weight"] = torch.ones(10, 3)
    tensors["h.0.fc.weight"] = torch.ones(7, 3)
    message = refused(tensors, source="model.safetensors")
    assert message.startswith("model.safetensors do not fit the module")
    assert "2 missing: h.1.fc.bias, logits_bias;" in message
    assert "4 unexpected: h.2.fc.weight, h.2.fc.bias, h.2.proj.weight, h.2.scale;" in message
    assert "2 wrong: wte.weight (10, 3) gives embed.weight (10, 3), not (11, 3), " in message
    assert "h.0.fc.weight (7, 3) gives layers.0.up.weight (3, 7), not (7, 3)" in message
    assert "without a row" not in message


@pytest.mark.parametrize("name", theirs())
def test_no_tensor_may_be_missing_unexpected_or_of_another_shape(name):
    tensors = theirs()
    assert f"1 missing: {name}" in refused({n: t for n, t in tensors.items() if n != name})
    assert f"1 unexpected: {name}.old" in refused(tensors | {f"{name}.old": tensors[name]})
    for wrong in (tensors[name][..., :1], tensors[name][None], torch.tensor(1.0)):
        assert f"1 wrong: {name} {tuple(wrong.shape)}" in refused(tensors | {name: wrong})


def test_a_single_number_is_not_broadcast_to_a_vector():
    assert "h.0.scale (1,) gives layers.0.gain (1,), not (3,)" in refused(theirs() | {"h.0.scale": torch.ones(1)})


def test_long_lists_are_cut_short_with_their_counts():
    message = refused({}, module=Model(num_layers=20), names=NAMES)
    assert (
        "82 missing: wte.weight, h.0.fc.weight, h.0.fc.bias, h.1.fc.weight, h.1.fc.bias, h.2.fc.weight, "
        "h.2.fc.bias, h.3.fc.weight and 74 more" in message
    )
    assert len(message) < 400


def test_a_tensor_that_cannot_be_split_has_a_wrong_shape():
    attention = nn.ModuleDict({name: nn.Linear(4, 4, bias=False) for name in "qkv"})
    names = {"c": Into(("q", "k", "v"), split_fused)}
    message = refused({"c.weight": torch.ones(4, 2)}, names, attention)
    assert "1 wrong: c.weight (4, 2) cannot be made into q.weight, k.weight, v.weight" in message
    assert "without a row" not in message
    assert "(2, 4, 4) cannot be made" in refused({"c.weight": torch.ones(2, 4, 4)}, names, attention)


def test_integer_tensors_are_refused_as_weights():
    quantized = theirs() | {"wte.weight": torch.ones(11, 3, dtype=torch.int8)}
    assert "1 wrong: wte.weight holds torch.int8, not torch.float32" in refused(quantized)


def test_a_parameter_that_the_table_forgets_is_named():
    names = {theirs: ours for theirs, ours in NAMES.items() if theirs != "h.{i}.scale"}
    tensors = {name: tensor for name, tensor in theirs().items() if "scale" not in name}
    message = refused(tensors, names)
    assert "2 of the module without a row in the table: layers.0.gain, layers.1.gain" in message


@pytest.mark.bad_input
def test_a_table_that_names_what_the_module_does_not_have_is_refused():
    with pytest.raises(ValueError, match="the table speaks of embedding, which the module does not have"):
        load_weight_map(Model(), theirs(), NAMES | {"wpe": "embedding"})


def test_names_that_hold_nothing_needed_are_ignored():
    model, tensors = Model(), theirs()
    extra = {"h.0.attn.bias": torch.ones(1), "position_ids": torch.arange(5)}
    load_weight_map(model, tensors | extra, NAMES, ignore=["h.*.attn.bias", "position_ids"])
    assert torch.equal(model.embed.weight, tensors["wte.weight"])
    assert "1 unexpected: position_ids" in refused(tensors | extra, ignore=["h.*.attn.bias"])


@pytest.mark.parametrize("name", ["wte.weight", "lm_head.weight", "shared.weight"])
def test_a_tied_tensor_may_have_any_of_its_names(name):
    model, tensors = Model(), theirs()
    table = tensors.pop("wte.weight")
    ties = {"wte.weight": ["lm_head.weight", "shared.weight"]}
    load_weight_map(model, tensors | {name: table}, NAMES, ties=ties)
    assert torch.equal(model.embed.weight, table)
    load_weight_map(model, tensors | {"wte.weight": table, name: table.clone()}, NAMES, ties=ties)
    assert "1 missing: wte.weight" in refused(tensors, ties=ties)


def test_tied_tensors_must_be_equal():
    tensors = theirs()
    other = {"lm_head.weight": tensors["wte.weight"] + 1e-3}
    message = refused(tensors | other, ties={"wte.weight": ["lm_head.weight"]})
    assert "1 wrong: lm_head.weight differs from wte.weight, and must be the same" in message


# -- config.json -------------------------------------------------------------------------------------

SIZES = {
    "model_type": "bert",
    "vocab_size": 11,
    "hidden_size": 6,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 7,
    "max_position_embeddings": 5,
    "type_vocab_size": 2,
}
BERT = {"d_model": 6, "num_heads": 3, "num_layers": 2, "d_ff": 7, "max_len": 5, "norm_eps": 1e-12}


def save_bert(folder, config=SIZES, **changed):
    """A folder that load_bert reads: our own BERT under their names."""
    from attn_course.pretrained import BERT_NAMES

    ours = Bert(11, **BERT).eval()
    state = ours.state_dict()
    tensors = {}
    for their_name, our_name in BERT_NAMES.items():
        for i in range(2):
            for kind in ("weight", "bias"):
                name = f"{our_name.replace('{i}', str(i))}.{kind}"
                if name in state:
                    tensors[f"{their_name.replace('{i}', str(i))}.{kind}"] = state[name]
    save_file(tensors | changed, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return ours


IDS = torch.tensor([[3, 10, 4], [5, 6, 0]])


@torch.no_grad()
def test_files_of_the_first_years_say_gamma_and_beta(tmp_path):
    ours = save_bert(tmp_path)
    tensors = read_weights(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert old.keys() != tensors.keys()
    save_file(old, tmp_path / "model.safetensors")
    assert_close(load_bert(tmp_path)(IDS).hidden[-1], ours(IDS).hidden[-1])


@torch.no_grad()
def test_a_head_and_position_ids_are_left_aside(tmp_path):
    extra = {
        "cls.predictions.bias": torch.ones(11),
        "classifier.weight": torch.ones(2, 6),
        "bert.embeddings.position_ids": torch.arange(5)[None],
    }
    ours = save_bert(tmp_path, **extra)
    assert_close(load_bert(tmp_path)(IDS).hidden[-1], ours(IDS).hidden[-1])


def test_a_file_of_another_model_is_refused_with_the_folder(tmp_path):
    save_bert(tmp_path, SIZES | {"num_hidden_layers": 3, "vocab_size": 12})
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))) as refused:
        load_bert(tmp_path)
    message = str(refused.value)
    assert "16 missing: bert.encoder.layer.2.attention.self.query.weight, " in message
    assert "(11, 6) gives token_embed.weight (11, 6), not (12, 6)" in message


@pytest.mark.bad_input
@pytest.mark.parametrize("load", [load_bert, load_gpt2, load_llama, load_marian, load_from_folder])
def test_a_folder_without_a_config_is_refused(load, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no config.json, so the sizes of the model are unknown"):
        load(tmp_path)


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_a_damaged_config_is_named(text, tmp_path):
    (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"config.json is damaged: it is not one JSON object"):
        read_config(tmp_path)


@pytest.mark.bad_input
@pytest.mark.parametrize("load", [load_gpt2, load_llama, load_marian])
def test_a_loader_refuses_another_architecture(load, tmp_path):
    save_bert(tmp_path)
    with pytest.raises(ValueError, match=r"config.json describes a model of type 'bert', not '(gpt2|llama|marian)'"):
        load(tmp_path)


@pytest.mark.bad_input
@pytest.mark.parametrize("name", [name for name in SIZES if name != "model_type"])
def test_a_size_that_the_config_does_not_say_is_named(name, tmp_path):
    save_bert(tmp_path, {key: value for key, value in SIZES.items() if key != name})
    with pytest.raises(ValueError, match=f"config.json does not say {name}, without which nothing can be built"):
        load_bert(tmp_path)


# -- The hub -----------------------------------------------------------------------------------------


class Hub:
    """A folder in place of the hub, and the files that were fetched from it."""

    def __init__(self, remote, local):
        self.remote, self.local, self.fetched, self.asked = remote, local, [], set()

    def snapshot_download(self, name, revision=None, allow_patterns=None):
        from huggingface_hub.utils import filter_repo_objects

        self.asked.add((name, revision))
        names = [path.relative_to(self.remote).as_posix() for path in self.remote.rglob("*") if path.is_file()]
        for file in filter_repo_objects(names, allow_patterns=allow_patterns):
            target = self.local / file
            if not target.exists():
                self.fetched.append(file)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((self.remote / file).read_bytes())
        return str(self.local)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    remote, local = tmp_path / "remote", tmp_path / "local"
    remote.mkdir()
    local.mkdir()
    hub = Hub(remote, local)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


@torch.no_grad()
def test_a_model_comes_from_the_hub_by_its_name(hub):
    ours = save_bert(hub.remote)
    theirs = load_from_hub("someone/some-bert", revision="refs/pr/1", dtype=torch.float64)
    assert hub.asked == {("someone/some-bert", "refs/pr/1")}
    assert theirs.token_embed.weight.dtype == torch.float64
    assert_close(theirs.float()(IDS).hidden[-1], ours(IDS).hidden[-1])


NOT_READ = [
    "pytorch_model.bin",
    "modeling_x.py",
    "tf_model.h5",
    "original/config.json",
    "original/model.safetensors",
    "metal/model-00001-of-00002.safetensors",
    "onnx/tokenizer.json",
]


def test_only_files_that_are_read_are_fetched(hub):
    save_bert(hub.remote)
    tokenizers = {"tokenizer.json", "vocab.json", "target_vocab.json", "source.spm", "target.spm"}
    for name in (*NOT_READ, *tokenizers, "model.fp16.safetensors", "model-00001-of-00002.safetensors"):
        (hub.remote / name).parent.mkdir(exist_ok=True)
        (hub.remote / name).write_bytes(b"")
    assert download("someone/some-bert") == hub.local
    assert set(hub.fetched) == tokenizers | {"config.json", "model.safetensors"}


def test_shards_are_fetched_as_they_are_listed(hub):
    save_bert(hub.remote)
    tensors = read_weights(hub.remote)
    (hub.remote / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {f"part{i}.safetensors": {name: tensors[name] for name in names[i::2]} for i in range(2)}
    index = save_shards(hub.remote, parts)
    for name in (*NOT_READ, "consolidated.safetensors"):
        (hub.remote / name).parent.mkdir(exist_ok=True)
        (hub.remote / name).write_bytes(b"")
    load_from_hub("someone/some-bert")
    assert hub.fetched[0] == "config.json"
    assert set(hub.fetched) == {"config.json", index.name, *parts}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "config", [{"model_type": "deberta"}, {**SIZES, "is_decoder": True}, {**SIZES, "hidden_size": 0}], ids=str
)
def test_a_config_that_is_refused_is_the_only_file_that_is_fetched(config, hub):
    save_bert(hub.remote, config)
    with pytest.raises(ValueError, match=r"config\.json"):
        load_from_hub("someone/some-bert")
    assert hub.fetched == ["config.json"]


def test_a_model_that_is_only_there_as_a_pickle_is_refused_with_a_way_out(hub):
    save_bert(hub.remote)
    (hub.remote / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"^someone/some-bert has no safetensors on the hub, .* refs/pr/1"):
        download("someone/some-bert")


def test_offline_one_sentence_says_so(monkeypatch, tmp_path):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(OSError, match="cannot be reached") as refused:
        load_from_hub("openai-community/gpt2")
    assert str(refused.value) == (
        "openai-community/gpt2 is not in the cache of the hub, and the hub cannot be reached: connect to it once"
    )


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("RepositoryNotFoundError", "is no model on the hub, or one that only opens after its terms are accepted"),
        ("GatedRepoError", "is no model on the hub, or one that only opens after its terms are accepted"),
        ("RevisionNotFoundError", "has no revision 'refs/pr/7' on the hub"),
        ("OSError", "could not be fetched from the hub: the disk is full"),
    ],
)
def test_a_failed_download_is_explained_in_one_sentence(kind, says, hub, monkeypatch):
    import huggingface_hub

    kind = getattr(huggingface_hub.errors, kind, OSError)

    def fail(name, **options):
        raise kind.__new__(kind, "the disk is full\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(OSError, match=f"^a/b {says}") as refused:
        load_from_hub("a/b", revision="refs/pr/7")
    assert "\n" not in str(refused.value)


@pytest.mark.bad_input
def test_a_name_that_is_none_is_refused_in_one_sentence():
    pytest.importorskip("huggingface_hub")
    with pytest.raises(
        OSError, match=r"^a/b/c is no name of a model: that is author/model, such as openai-com.*/gpt2$"
    ):
        load_from_hub("a/b/c")


def test_without_the_library_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"^loading from the hub needs .* pip install huggingface_hub$"):
        load_from_hub("openai-community/gpt2")
