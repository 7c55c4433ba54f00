"""The Triton kernel of chapter 17 equals PyTorch's attention: on a GPU, or in Triton's interpreter (make triton)."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from attn_course import make_causal_mask
from attn_course.ports.triton_attention import triton_attention

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
IS_THERE = importlib.util.find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETED else "cuda"

needs_triton = pytest.mark.skipif(not IS_THERE, reason="Triton is not installed")
needs_a_place_to_run = pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(), reason="Triton needs a GPU or TRITON_INTERPRET=1"
)
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")  # which only concerns the last bit


def random_qkv(B, H, T, S, D, dtype=torch.float32, scale=1.0):
    return [scale * torch.randn(B, H, n, D, device="cpu").to(DEVICE, dtype) for n in (T, S, S)]


def expected(q, k, v, is_causal):
    mask = make_causal_mask(q.size(2), k.size(2)).to(DEVICE) if is_causal else None
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)


@needs_triton
@needs_a_place_to_run
@pytest.mark.parametrize("is_causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize(
    ("T", "S", "D", "query_block", "key_block"),
    [
        (64, 64, 16, 16, 32),  # whole tiles
        (50, 50, 32, 16, 32),  # tiles that are not full, in both directions
        (50, 50, 16, 32, 16),
        (19, 77, 16, 16, 32),  # a text that goes on after a cache
        (1, 77, 64, 16, 16),  # one step of decoding
        (7, 7, 16, 64, 64),  # all in one tile
    ],
)
def test_the_kernel_is_attention(T, S, D, query_block, key_block, dtype, is_causal):
    q, k, v = random_qkv(2, 3, T, S, D, dtype)
    out = triton_attention(q, k, v, is_causal=is_causal, query_block=query_block, key_block=key_block)
    assert out.dtype == dtype
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 3e-3, "atol": 3e-3}
    torch.testing.assert_close(out.double(), expected(q, k, v, is_causal), **tolerance)


@needs_triton
@needs_a_place_to_run
def test_more_queries_than_keys_and_views_that_are_stored_token_by_token():
    q, k, v = (torch.randn(2, n, 3, 16, device="cpu").to(DEVICE).transpose(1, 2) for n in (50, 19, 19))
    out = triton_attention(q, k, v, query_block=16, key_block=16)
    torch.testing.assert_close(out.double(), expected(q, k, v, False), rtol=1e-5, atol=1e-5)


@needs_triton
@needs_a_place_to_run
def test_scores_in_the_hundreds_do_not_overflow():
    q, k, v = random_qkv(1, 2, 33, 33, 16, scale=20.0)
    out = triton_attention(q, k, v, is_causal=True, query_block=16, key_block=16)
    torch.testing.assert_close(out.double(), expected(q, k, v, True), rtol=1e-3, atol=1e-3)
    assert out.isfinite().all()


COMPILE = """
import re, subprocess, sys
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from attn_course.ports.triton_attention import attend_tiles

folder = Path(sys.argv[1])
for rows in (64, 128, 256, 512):
    types = dict.fromkeys(("q", "k", "v", "out"), "*fp16") | {"T": "i32", "S": "i32", "scale": "fp32"}
    fixed = {"IS_CAUSAL": True, "D": 64, "ROWS": rows, "KEYS": 64}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(attend_tiles, types | dict.fromkeys(fixed, "constexpr"), fixed, aligned)
    warps = 4 if rows == 64 else 8
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": 3})
    (folder / "kernel.ptx").write_text(kernel.asm["ptx"])
    command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", folder / "kernel.ptx", "-o", folder / "kernel.cubin"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spilled = re.search(r"(\\d+) bytes spill stores", told)[1]
    print(rows, kernel.metadata.shared, re.search(r"Used (\\d+) registers", told)[1], 32 * warps, spilled)
"""


@needs_triton
def test_the_compiler_asks_for_the_memory_that_the_chapter_says(tmp_path):
    """Compiling for an H100 needs no GPU."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    command = [sys.executable, "-c", COMPILE, str(tmp_path)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    lines = [[int(number) for number in line.split()] for line in told.splitlines()]
    assert [rows for rows, *_ in lines] == [64, 128, 256, 512]
    for rows, sram, registers, threads, spilled in lines:
        assert sram == 2 * 64 * (rows + 3 * 2 * 64)  # a block of queries, and three blocks of keys and of values
        assert sram <= 227 * 1024
        assert (spilled > 0) == (rows == 512)
        assert registers * threads * 4 >= min(512 * rows, 255 * 1024)  # the scores and the weighted sums of a tile


def test_without_triton_the_module_can_be_imported_and_the_function_names_the_package():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch\n"
        "from attn_course.ports.triton_attention import triton_attention\n"
        "triton_attention(*torch.zeros(3, 1, 1, 16, 16))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert re.search(r"ImportError: triton_attention needs the package triton", told)


@needs_triton
@pytest.mark.bad_input
def test_sizes_that_the_kernel_cannot_take_are_errors():
    def zeros(*shape):
        return torch.zeros(shape, device="cpu")

    with pytest.raises(ValueError, match=r"D \(24\) must be a power of 2 and at least 16"):
        triton_attention(*zeros(3, 1, 1, 16, 24))
    with pytest.raises(ValueError, match=r"key_block \(8\) must be a power of 2"):
        triton_attention(*zeros(3, 1, 1, 16, 16), key_block=8)
    with pytest.raises(ValueError, match="the 17 queries must not be more than the 16 keys"):
        triton_attention(zeros(1, 1, 17, 16), *zeros(2, 1, 1, 16, 16), is_causal=True)
    with pytest.raises(ValueError, match="must be equal, with four axes"):
        triton_attention(*zeros(3, 1, 16, 16))
    with pytest.raises(TypeError, match=r"must not be torch\.float64"):
        triton_attention(*zeros(3, 1, 1, 16, 16).double())


def test_the_chapter_lists_the_kernel_as_it_is():
    file = Path(__file__).parents[2] / "src" / "attn_course" / "ports" / "triton_attention.py"
    kernel = re.search(r"@triton\.jit.*?mask=rows\[:, None\] < T\)\n(?=\n\n)", file.read_text("utf-8"), re.DOTALL)[0]
    (notebook,) = (Path(__file__).parents[2] / "notebooks").glob("17_*.ipynb")
    texts = ["".join(cell["source"]) for cell in json.loads(notebook.read_text("utf-8"))["cells"]]
    assert sum(kernel in text for text in texts) == 1
