"""Load a Llama and its tokenizer from a GGUF file. Derived in chapter 14."""

from pathlib import Path
from typing import Any

import torch

from attn_course.functional.positions import Rope
from attn_course.pretrained.chat import ChatTokenizer
from attn_course.pretrained.gguf_file import GGUFFile, read_gguf
from attn_course.pretrained.llama import Llama
from attn_course.pretrained.weight_map import load_weight_map
from attn_course.pretrained.weights import shorten

GGUF_LLAMA_NAMES = {
    "token_embd": "embed",
    "blk.{i}.attn_norm": "layers.{i}.self_attention_norm",
    "blk.{i}.attn_q": "layers.{i}.self_attention.q_proj",
    "blk.{i}.attn_k": "layers.{i}.self_attention.k_proj",
    "blk.{i}.attn_v": "layers.{i}.self_attention.v_proj",
    "blk.{i}.attn_output": "layers.{i}.self_attention.out_proj",
    "blk.{i}.ffn_norm": "layers.{i}.feed_forward_norm",
    "blk.{i}.ffn_gate": "layers.{i}.feed_forward.gate",
    "blk.{i}.ffn_up": "layers.{i}.feed_forward.up",
    "blk.{i}.ffn_down": "layers.{i}.feed_forward.down",
    "output_norm": "norm",
    "output": "to_logits",
}
"""The table from the names of a GGUF file to ours. No tensor needs a change, because such a file stores queries and
keys for rotary pairs of neighbours, as :func:`~attn_course.rotate` turns them."""


def load_gguf(path: str | Path | GGUFFile, *, dtype: torch.dtype = torch.float32) -> Llama:
    """Build a Llama from a GGUF file, in evaluation mode.

    Only one copy of the weights is in memory at any time, besides the file itself.

    Args:
        path: a file with the architecture "llama" and tensors of the types F32, F16, Q8_0 or Q4_1, or what
            :func:`read_gguf` has read.
        dtype: type of the model, whatever that of the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ModuleNotFoundError: if the library ``gguf`` is not installed.
        ValueError: if the file is damaged, describes what :class:`Llama` does not have, or a tensor is missing, unused
            or of a wrong shape.
    """
    file = path if isinstance(path, GGUFFile) else read_gguf(path)
    try:
        with torch.device("meta"):  # sizes without numbers
            model = _build_llama(file)
    except RuntimeError as error:  # a product of sizes overflows
        raise ValueError(f"{file.path} describes a model that is too large: {error}") from None
    names = dict(GGUF_LLAMA_NAMES)
    if "output.weight" not in file.tensors:
        del names["output"]
    shapes = {name: torch.empty(tensor.shape, device="meta") for name, tensor in file.tensors.items()}
    load_weight_map(model, shapes, names, source=file.path)  # a rehearsal: all names and shapes
    tensors = {name: file.dequantize(name).to(dtype) for name in file.tensors}
    load_weight_map(model, tensors, names, source=file.path, assign=True)
    return model.eval()


def _build_llama(file: GGUFFile) -> Llama:
    architecture = file.setting("general.architecture", str)
    if architecture != "llama":
        raise ValueError(f"{file.path} describes a model of architecture {architecture!r}; here there is 'llama'")

    def size(name: str, default: int | None = None) -> int:
        value = file.setting(f"llama.{name}", int, default)
        if not 1 <= value < 2**31:
            raise ValueError(f"{file.path} has llama.{name} {value}, which must be from 1 to {2**31 - 1}")
        return value

    def positive(name: str, default: float | None = None) -> float:
        value = file.setting(f"llama.{name}", float, default)
        if value <= 0:
            raise ValueError(f"{file.path} has llama.{name} {value}, which must be positive")
        return value

    num_layers, d_model, num_heads = (size("block_count"), size("embedding_length"), size("attention.head_count"))
    # Sizes in the metadata cost nothing to write, so the tensors are counted before a layer is built.
    if 9 * num_layers > len(file.tensors):
        raise ValueError(
            f"{file.path} has llama.block_count {num_layers}, but {len(file.tensors)} tensors; a layer has 9"
        )
    layers = range(num_layers)
    expected = {f"{name}.weight".replace("{i}", str(i)) for name in GGUF_LLAMA_NAMES for i in layers}
    missing = expected - file.tensors.keys() - {"output.weight"}
    unused = file.tensors.keys() - expected
    if missing or unused:
        lists = [
            f"{len(names)} {what}: {shorten(sorted(names))}"
            for names, what in ((missing, "missing"), (unused, "unexpected"))
            if names
        ]
        raise ValueError(f"the tensors of {file.path} do not fit, and nothing was loaded; {'; '.join(lists)}")
    d_ff = size("feed_forward_length")
    for name, shape in (
        ("token_embd.weight", (file.tensors["token_embd.weight"].shape[0], d_model)),
        ("blk.0.ffn_up.weight", (d_ff, d_model)),
    ):
        if file.tensors[name].shape != shape:
            raise ValueError(f"{file.path} stores {name} {file.tensors[name].shape}, not {shape} as its settings say")
    vocab_size = file.tensors["token_embd.weight"].shape[0]
    head_dim = d_model // num_heads
    required: dict[str, Any] = {
        "vocab_size": vocab_size,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": head_dim,
        "rope.scaling.type": "none",
        "expert_count": 0,
    }
    for name, value in required.items():
        if (actual := file.metadata.get(f"llama.{name}", value)) != value:
            raise ValueError(f"{file.path} has llama.{name} {str(actual)[:40]!r}; our modules have only {value!r}")
    return Llama(
        vocab_size,
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=size("attention.head_count_kv", num_heads),
        num_layers=num_layers,
        d_ff=d_ff,
        max_len=size("context_length"),
        rope=Rope(positive("rope.freq_base", 10_000.0)),
        norm_eps=positive("attention.layer_norm_rms_epsilon"),
        tie_weights="output.weight" not in file.tensors,
    )


def load_gguf_tokenizer(path: str | Path | GGUFFile) -> ChatTokenizer:
    """Build the tokenizer that a GGUF file describes: byte-level BPE with the chat template of the model.

    Args:
        path: a file, or what :func:`read_gguf` has read.

    Raises:
        FileNotFoundError: if there is no such file.
        ModuleNotFoundError: if the library ``tokenizers`` is not installed.
        ValueError: if the file is damaged, or its tokenizer is another one than ours.
    """
    file = path if isinstance(path, GGUFFile) else read_gguf(path)
    kind, rule = (file.setting(f"tokenizer.ggml.{name}", str) for name in ("model", "pre"))
    if kind != "gpt2" or rule not in _SPLITS_DIGITS:
        raise ValueError(
            f"{file.path} has a tokenizer of the kind {kind[:40]!r} with the rule {rule[:40]!r}; here there is 'gpt2', "
            f"byte-level BPE, with {', '.join(map(repr, _SPLITS_DIGITS))}"
        )
    tokens, merges, types = (
        file.setting(f"tokenizer.ggml.{name}", list) for name in ("tokens", "merges", "token_type")
    )
    table = file.tensors.get("token_embd.weight")
    if len(types) != len(tokens) or (table is not None and len(tokens) != table.shape[0]):
        raise ValueError(
            f"{file.path} has {len(tokens)} tokens, {len(types)} types of tokens and a table of embeddings "
            f"{None if table is None else table.shape}; there must be as many of each"
        )
    adds_bos = file.setting("tokenizer.ggml.add_bos_token", bool, False)
    try:
        return ChatTokenizer(
            tokens,
            merges,
            special_ids=[i for i, kind in enumerate(types) if kind == _CONTROL],
            eos_id=file.setting("tokenizer.ggml.eos_token_id", int),
            bos_id=file.setting("tokenizer.ggml.bos_token_id", int) if adds_bos else None,
            split_digits=_SPLITS_DIGITS[rule],
            template=file.metadata.get("tokenizer.chat_template"),
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file.path} has a damaged tokenizer: {error}") from None


_CONTROL = 3  # the type of special tokens
# Names that llama.cpp gives to the rule of GPT-2, and whether each digit is then a token of its own.
_SPLITS_DIGITS = {"gpt-2": False, "smollm": True, "starcoder": True}
