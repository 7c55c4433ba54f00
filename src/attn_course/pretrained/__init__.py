"""Load published weights, from BERT to Gemma 3 and gpt-oss, into modules of the course. Derived in chapter 22."""

from attn_course.nn.outputs import ModelOutput
from attn_course.pretrained.bert import BERT_NAMES, Bert, load_bert
from attn_course.pretrained.chat import ChatTokenizer
from attn_course.pretrained.config import read_config, read_rope
from attn_course.pretrained.decoder_from_config import (
    ConfiguredAttention,
    ConfiguredDecoder,
    ConfiguredLayer,
    Experts,
    load_configured,
)
from attn_course.pretrained.gguf_file import GGUFFile, GGUFTensor, read_gguf
from attn_course.pretrained.gguf_llama import GGUF_LLAMA_NAMES, load_gguf, load_gguf_tokenizer
from attn_course.pretrained.gpt2 import GPT2, GPT2_NAMES, load_gpt2, split_fused
from attn_course.pretrained.hub import download, load_from_hub
from attn_course.pretrained.llama import (
    GatedFeedForward,
    Llama,
    LlamaLayer,
    halves_to_neighbours,
    load_llama,
    make_llama_names,
)
from attn_course.pretrained.loading import load_from_folder
from attn_course.pretrained.marian import MARIAN_NAMES, Marian, load_marian
from attn_course.pretrained.marian_tokenizer import MarianTokenizer
from attn_course.pretrained.minilm import find_minilm, load_minilm
from attn_course.pretrained.sentence_encoder import SentenceEncoder
from attn_course.pretrained.smollm2 import find_smollm2, load_smollm2
from attn_course.pretrained.tokenizer import load_tokenizer
from attn_course.pretrained.weight_map import Into, load_weight_map
from attn_course.pretrained.weights import read_weights

__all__ = [
    "BERT_NAMES",
    "GGUF_LLAMA_NAMES",
    "GPT2",
    "GPT2_NAMES",
    "MARIAN_NAMES",
    "Bert",
    "ChatTokenizer",
    "ConfiguredAttention",
    "ConfiguredDecoder",
    "ConfiguredLayer",
    "Experts",
    "GGUFFile",
    "GGUFTensor",
    "GatedFeedForward",
    "Into",
    "Llama",
    "LlamaLayer",
    "Marian",
    "MarianTokenizer",
    "ModelOutput",
    "SentenceEncoder",
    "download",
    "find_minilm",
    "find_smollm2",
    "halves_to_neighbours",
    "load_bert",
    "load_configured",
    "load_from_folder",
    "load_from_hub",
    "load_gguf",
    "load_gguf_tokenizer",
    "load_gpt2",
    "load_llama",
    "load_marian",
    "load_minilm",
    "load_smollm2",
    "load_tokenizer",
    "load_weight_map",
    "make_llama_names",
    "read_config",
    "read_gguf",
    "read_rope",
    "read_weights",
    "split_fused",
]
