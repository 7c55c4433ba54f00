"""The book's search: Pagefind's index of every section, in English, Japanese and symbols, and a list of the headings.

It is read only when somebody searches. From a folder, without a server, no page may read it; then Sphinx's own search
stands in, and its index is loaded by the search page alone.
"""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging
from sudachipy import Dictionary

logger = logging.getLogger(__name__)

ARTICLE = re.compile(r"<article[^>]*>(.*)</article>", re.DOTALL)
TITLE = re.compile(r"<title>(.*?) &#8212;", re.DOTALL)
LEFT_OUT = re.compile(
    r'<(script|style|svg)\b.*?</\1>|<a class="headerlink".*?</a>|<nav\b.*?</nav>'
    r'|<span class="detail-(?:label|titles)">.*?</span>|<summary>(?:Imports|Show the code)</summary>'
    r"|<details>\s*<summary>(?:Hint|Solution|Answers?)\b.*?</details>",  # the search must not show an answer
    re.DOTALL,
)
SECTION = re.compile(
    r'<section\b[^>]*? id="([^"]+)"[^>]*>((?:\s*<span id="[^"]*"></span>|\s*<details[^>]*><summary>)*\s*)<h([2-4])'
)
CODE = re.compile(r'<div (class="cell_(?:in|out)put)')
TEX = re.compile(r"<annotation[^>]*>(.*?)</annotation>", re.DOTALL)
MATHS = re.compile(r'(<(span|div)[^>]*class="math[^>]*>)(.*?)(</\2>)', re.DOTALL)
JAPANESE = re.compile(r'<span lang="ja">([^<]+)</span>')
SEARCHED_BY_SPHINX = re.compile(
    r'\s*<script src="[^"]*(?:_static/searchtools|_static/language_data|searchindex)\.js"></script>'
)
FROM_A_FOLDER = """<script>
if (location.protocol === "file:")
  for (const file of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"])
    document.write(`<script src="${file}"></` + "script>");
</script>
"""
SPELLED = (
    (r"\\sqrt\s*(\{)?\s*(\w+)\s*(?(1)\})", r"√\2"),
    (r"\^(\{)?\\(?:top|mathsf T|mathsf\{T\})(?(1)\})", "ᵀ"),
    (r"\\(?:mathrm|text|operatorname|mathbf)\{([^{}]*)\}", r"\1"),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
    (r"\\infty", "∞"),
    (r"\\ell\b", "ℓ"),
    (r"\\approx", "≈"),
    (r"\\cdot|\\times", "·"),
    (r"\\[\[\]()]|\\left|\\right|\\[,;!]|[${}]", ""),
    (r"\\(?=[a-zA-Z])", ""),  # other commands by their name: gamma, sum
)
# Other words that learners type for what a section explains: its chapter and title, and the words, with commas. A query
# that has all its words in a title or in one of these finds the section first (search.js).
ALIASES = {
    "00 Attention in a trained translator": "attention map",
    "01 Why attention?": "attention, what is attention, attention mechanism",
    "01 The encoder–decoder bottleneck": "bottleneck, seq2seq",
    "01 Additive attention by hand": "additive attention, bahdanau",
    "02 Softmax and attention weights": "softmax, why softmax, softmax function",
    "02 Overflow and underflow": "softmax overflow, overflow, underflow, log-softmax, logsumexp, numerical stability",
    "02 Temperature": "softmax temperature, softmax with a temperature",
    "02 Self-attention for all tokens": "self-attention",
    "02 Common mistakes: the softmax": "softmax over the wrong axis, softmax over the wrong dim, wrong axis",
    "03 Query, key and value projections": "query key value, qkv, query, key, value",
    "03 Why we divide by √D": (
        "sqrt(d_k), sqrt(d), √d_k, why divide by the square root of d, why divide by sqrt(d), scale, scaling, "
        "vanishing gradient, vanishing gradients of the softmax, saturated softmax"
    ),
    "03 The attention function": "scaled dot-product attention, attention formula, attention equation",
    "03 Attention as soft lookup": "soft lookup, dictionary lookup, soft dictionary",
    "03 The same layer with nn.Linear": "nn.Linear",
    "04 rearrange and reshape": "einops, rearrange, reshape",
    "04 Views and copies": "contiguous",
    "04 Batched matrix multiplication": "bmm, matmul, batch matrix multiplication",
    "05 Causal masks": (
        "causal mask, look-ahead mask, autoregressive mask, triangular mask, tril, upper triangular mask, "
        "hide the future, causal mask off by one"
    ),
    "05 Padding masks": "padding mask, key_padding_mask, attention_mask",
    "05 Masking the scores": "masked_fill, -inf, mask, attention mask, masked softmax",
    "05 Mask conventions": (
        "is_causal, is_causal=True, attn_mask, mask True or False, mask True means hidden, boolean mask, "
        "additive mask, float mask"
    ),
    "05 Dropout on attention weights": "dropout",
    "05 Empty rows: all keys are masked": (
        "nan, padding mask nan, fully masked row, all keys masked, masked row nan, empty row"
    ),
    "05 Testing for leaks": "future tokens, leak, leak test, information leak, causal leak",
    "06 Splitting with view alone": "view vs transpose, view versus transpose",
    "06 The multi-head attention layer": (
        "multi-head attention, nn.MultiheadAttention, mha, multihead attention, need_weights"
    ),
    "06 Parameters and memory": "number of parameters of multi-head attention",
    "06 Why one head is not enough": "why multiple heads, several heads",
    "07 Two sequences": "cross-attention, encoder-decoder attention",
    "08 Attention ignores order": "permutation equivariance",
    "08 Sinusoidal positional encodings": "positional encoding, position encoding, sinusoids",
    "08 Rotary position embeddings (RoPE)": "rope, rotary embedding, relative position, relative positional encoding",
    "08 Attention with linear biases (ALiBi)": "alibi",
    "08 Learned positional embeddings": "learned positions, absolute positions",
    "08 Length extrapolation": "long context, context length, longer sequences, extrapolation",
    "09 The Transformer": "attention is all you need, transformer architecture",
    "09 Residual connections": "skip connection, residual stream",
    "09 The feed-forward network": "ffn, mlp, feedforward",
    "09 Layer normalisation": "layer norm, layernorm, RMSNorm",
    "09 Pre-norm and post-norm": "prenorm, postnorm",
    "09 The encoder–decoder model": "encoder decoder",
    "09 Scaled embeddings and tied weights": "weight tying, tied embeddings, shared embeddings",
    "09 Counting parameters and FLOPs": "number of parameters, parameter count",
    "09 The encoder layer": "encoder, transformer block, transformer layer",
    "09 The decoder layer": "decoder, decoder block",
    "10 Word segmentation": "japanese tokenizer, japanese tokens",
    "10 Byte-pair encoding (BPE)": "tokenizer, tokenization, bpe, subwords, subword, byte pair encoding",
    "10 Text normalisation": "unicode, nfkc",
    "10 The shifted target (teacher forcing)": "teacher forcing, bos, eos, bos eos tokens, start token, end token",
    "10 Data leakage": "data leak, leakage",
    "10 Vocabulary and unknown words": "unk, out of vocabulary, oov, unknown token",
    "10 Padding and bucketing": "padding, bucketing",
    "11 Accuracy near 100 %": "loss goes to zero, loss goes to zero too fast, loss is too low, accuracy is too high",
    "11 A debugging checklist": (
        "model does not learn, translator does not learn, loss does not decrease, loss does not fall, "
        "loss does not go down, model repeats itself, model repeats the same word, translations repeat words, "
        "same output for every input, output ignores the input, debugging"
    ),
    "12 The Adam optimizer": "adam, adamw",
    "12 Learning-rate warm-up": "warmup, learning rate schedule, learning rate",
    "12 Perplexity and exact match": "perplexity",
    "12 The training loop and the loss curve": "training loop, loss curve",
    "12 Checkpoints and exact resumption": "checkpoint, resume training, save and load a checkpoint",
    "12 The loss per token": "cross-entropy, cross entropy loss, training loss",
    "13 Sampling: temperature, top-k and top-p": "top-k, top-p, nucleus sampling, sampling",
    "13 Baselines, confidence intervals and error analysis": "bootstrap, confidence interval",
    "13 Greedy search": "greedy decoding, argmax decoding",
    "13 Length bias": "length penalty, beam search length penalty",
    "13 Beam search": "beam width, beam size",
    "14 Quantised blocks": "quantization of weights, quantized model, 4 bit",
    "14 The GGUF file": "gguf, llama.cpp, weights file",
    "14 A language model in your layers": "llm, language model, gpt, llama",
    "14 The weight map": "pretrained weights, load pretrained weights, load weights",
    "14 The chat template": "chat, system prompt, chatml",
    "14 A modern decoder layer": "swiglu, llama layer",
    "15 The key-value cache": "kv cache, kvcache, key value cache",
    "15 Rotary positions in a cache": "wrong positions in the key value cache, wrong positions in the kv cache",
    "15 Prefill and decoding steps": "prefill, decode, prompt processing, time to first token",
    "16 The roofline, predicted and measured": (
        "roofline, memory-bound, arithmetic intensity, memory bandwidth, tokens per second, throughput, "
        "time per token, latency"
    ),
    "16 Paged caches": "paged attention, PagedAttention, vLLM",
    "16 Mixtures of experts": "mixture of experts, MoE",
    "16 FLOPs and bytes of a decoding step": "flops, compute-bound",
    "16 Prefix caching": "prompt caching",
    "16 Continuous batching": "batching requests, serving",
    "16 Speculative decoding": "draft model, assisted generation",
    "17 Tiled attention": "flash attention, FlashAttention",
    "17 The online softmax": "online softmax",
    "17 Scaled dot-product attention in PyTorch": "sdpa, F.scaled_dot_product_attention, attention in pytorch",
    "17 The memory of the score matrix": (
        "memory of attention, quadratic memory, quadratic cost, quadratic complexity, O(n^2), "
        "out of memory with a long sequence"
    ),
    "17 The memory hierarchy and a GPU kernel": "triton, cuda kernel, gpu memory",
    "17 FlexAttention": "flex attention, score_mod",
    "18 Sliding-window attention": "sliding window, local attention",
    "18 Attention sinks": "attention sink, streaming",
    "18 Quantized caches": "quantization, quantized cache, int8, 8 bit, int8 cache, kv cache quantization",
    "18 Multi-query and grouped-query attention": (
        "gqa, mqa, mha vs gqa, multi-query attention, grouped-query attention"
    ),
    "18 Multi-head latent attention": "mla, latent attention",
    "18 Choosing a cache": "size of the kv cache, memory of the kv cache",
    "19 Sparse attention: windows, blocks and chosen tokens": "sparse attention, longformer, bigbird",
    "19 Linear attention: a state instead of a cache": (
        "linear attention, mamba, state space model, ssm, linear transformer, rnn"
    ),
    "20 Ring attention": "ring attention, context parallelism",
    "20 Data parallelism": "ddp, several gpus, multi-gpu",
    "20 Tensor parallelism": "megatron, model parallelism",
    "20 The memory of training: ZeRO and FSDP": "fsdp, zero",
    "20 Pipelines and experts": "pipeline parallelism, expert parallelism",
    "21 Induction heads and the phase change": "induction head, in-context learning, copying heads",
    "21 Attention as an explanation": "attention is not explanation, interpretability",
    "21 What heads learn": "what does a head do, attention heads, mechanistic interpretability",
    "21 Ablation": "head pruning, removing heads",
    "21 A circuit of two heads": "circuit, composition of heads",
    "22 BERT’s encoder": "bert",
    "22 Sentence embeddings": "sentence embedding, pooling, sentence similarity, semantic search, cosine similarity",
    "22 WordPiece": "wordpiece tokenizer",
    "23 The Vision Transformer": "vision transformer, vit",
    "23 Patch embeddings": "image patches",
    "23 Attention maps and deletion curves": "attention rollout, saliency",
    "24 The quiet softmax": "softmax off by one, softmax1, attention to nothing",
    "how_to_use Are you ready? Five questions": "prerequisites, what you need to know",
    "index How long it takes": "hours, how many hours, duration",
    "how_to_use Run the notebooks on your machine": (
        "how to install, installation, install windows, setup, run the code, run locally"
    ),
}
# Chapters rank first, lists of names and mistakes last.
WEIGHTS = (
    ("notebooks/", 1.0),
    ("book/glossary", 0.9),
    ("book/mistakes", 0.2),
    ("book/problem_sets", 0.2),
    ("book/bibliography", 0.2),
    ("book/api", 0.3),
    ("book/", 0.7),
    ("index", 0.2),
)
HEADED = re.compile(r"(notebooks/(?P<chapter>\d\d)_|(?:book/)?(?P<page>how_to_use|index)\b)")
HEADING = re.compile(r'<h([1-4])(?: id="([^"]*)")?[^>]*>(.*?)</h\1>', re.DOTALL)
EXERCISE = re.compile(r"Exercise \d+\.\d+")  # found by its number alone
ASIDE = re.compile(r"Recap|Test yourself|Exercise(?! \d)|Going deeper|Where this comes from|Where to read on")
NUMBER = re.compile(r"^\d+(?:\.\d+)? (?:· )?")


def spelled(formula: re.Match[str]) -> str:
    """A formula as one would type it: √D, QKᵀ."""
    tex = TEX.search(formula[3])
    if tex is None:  # a formula that could not be read
        return formula[0]
    text = tex[1]
    for pattern, plain in SPELLED:
        text = re.sub(pattern, plain, text)
    return f"{formula[1]}{text}{formula[4]}"


def plain(heading: str) -> str:
    """A heading as it is read, without marks."""
    text = re.sub(r"<annotation[^>]*>.*?</annotation>", "", heading, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", text)).strip()


def aliases(place: str, title: str) -> str:
    exercise = EXERCISE.match(title)
    return exercise[0] if exercise else ALIASES.get(f"{place} {NUMBER.sub('', title)}", "")


def headings(page: str, place: str) -> list[list[str]]:
    """What a chapter explains: the anchor, title and other words of each heading, in the order of the page."""
    text = SECTION.sub(r'\2<h\3 id="\1"', LEFT_OUT.sub("", ARTICLE.search(page)[1]))
    titles = [(anchor, plain(heading)) for _, anchor, heading in HEADING.findall(text)]
    return [
        [anchor, title, aliases(place, title)] for anchor, title in titles if not ASIDE.match(NUMBER.sub("", title))
    ]


def searchable(page: str, weight: float, cut: Any) -> str:
    """Return the searched part of a page: its article, with anchors on the headings and Japanese cut into words."""
    title, article = TITLE.search(page), ARTICLE.search(page)
    text = LEFT_OUT.sub("", article[1])
    text = SECTION.sub(lambda s: f'<section>{re.sub("<[^>]*>", "", s[2])}<h{s[3]} id="{s[1]}"', text)
    text = CODE.sub(r'<div data-pagefind-weight="0.3" \1', MATHS.sub(spelled, text))
    # What a chapter explains in its core counts for more than an optional section.
    text = re.sub(r'<section>(?=\s*<h2 id="going-deeper")', '<section data-pagefind-weight="0.7">', text)
    text = re.sub(r'<dt id="(term-[^"]+)">(.*?)</dt>', r'<h3 id="\1">\2</h3>', text)  # each glossary entry alone
    # A recap and its questions have every word of the chapter, and explain none.
    text = re.sub(r'<section>(?=\s*<h\d id="(?:recap|test-yourself)")', '<section data-pagefind-weight="0.3">', text)
    text = JAPANESE.sub(lambda words: " ".join(cut(words[1])), text)
    return (
        f'<html lang="en"><head><title>{title[1]}</title></head>'
        f'<body data-pagefind-body data-pagefind-weight="{weight}">{text}</body></html>'
    )


def index(html: Path) -> int:
    """Write the index and the list of headings beside the pages, and return how many pages it has."""
    tokenizer = Dictionary(dict="small").create()
    words = lambda text: [word.surface() for word in tokenizer.tokenize(text)]  # noqa: E731
    count, headed = 0, []
    with TemporaryDirectory() as folder:
        for path in sorted(html.rglob("*.html")):
            name = path.relative_to(html).as_posix()
            weight = next((weight for start, weight in WEIGHTS if name.startswith(start)), 0)
            if weight:
                copy = Path(folder, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                page = path.read_text(encoding="utf-8")
                match = HEADED.match(name)
                place = (match["chapter"] or match["page"]) if match else ""
                cut = searchable(page, weight, words)
                copy.write_text(cut, encoding="utf-8")
                if place:
                    headed.append([name, headings(page, place)])
                count += 1
        options = ("--force-language", "en", "--include-characters", "√ᵀ_", "--keep-index-url", "--quiet")
        command = [
            sys.executable,
            "-m",
            "pagefind",
            "--site",
            folder,
            "--output-path",
            str(html / "pagefind"),
            *options,
        ]
        subprocess.run(command, check=True)
    listed = json.dumps(headed, ensure_ascii=False, separators=(",", ":"))
    (html / "pagefind" / "headings.json").write_text(listed, encoding="utf-8")
    return count


def make_search(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    html = Path(app.outdir)
    count = index(html)
    for name in ("ui.js", "ui.css", "modular-ui.js", "modular-ui.css", "component-ui.js", "component-ui.css"):
        (html / "pagefind" / f"pagefind-{name}").unlink(missing_ok=True)  # a page of Pagefind's own making
    path = html / "search.html"
    page = SEARCHED_BY_SPHINX.sub("", path.read_text(encoding="utf-8"))
    path.write_text(page.replace("</head>", f"{FROM_A_FOLDER}</head>"), encoding="utf-8")
    logger.info("The search knows %d pages.", count)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", make_search, priority=950)  # when all pages are as they will be
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
