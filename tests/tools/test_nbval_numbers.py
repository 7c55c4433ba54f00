"""The comparison of stored and computed outputs: what it lets pass, and what it must not."""

import base64
import json
import os
import subprocess
import sys

import pytest
from nbval_numbers import ONE_RUN, Text, difference
from read_chapters import ROOT

from attn_course import plots


def test_the_numbers_of_one_run_are_compared_with_nothing_and_what_stands_above_them_is():
    assert f"\n{plots.text.ONE_RUN}\n" == ONE_RUN
    assert difference(f"loss{ONE_RUN}step 1", f"loss{ONE_RUN}step 2") is None
    assert difference("loss", f"loss{ONE_RUN}step 2") is None
    assert difference(f"{ONE_RUN[1:]}step 1", f"{ONE_RUN[1:]}step 2") is None  # the mark is the first line
    assert difference(f"loss{ONE_RUN}step 1", f"share{ONE_RUN}step 1") == "line 1: the text differs"


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        ("0.1234", "0.1235"),
        ("0.1235", "0.1234"),
        ("0.9999", "1.0000"),
        ("9.9999", "10.0000"),
        ("-0.0000", "0.0000"),
        ("0.5", "0.6"),
        (".50", ".51"),
        ("1.2345e-05", "1.2346e-05"),
        ("9.9999e-05", "1.0000e-04"),
        ("1e-05", "2e-05"),
        ("1.5e+08", "1.6e+08"),
        ("12.5 %", "12.4 %"),
        ("the sum is 1.0001, the mean 0.5000", "the sum is 1.0000, the mean 0.5001"),
        ("nan", "nan"),
        ("tensor([inf, -inf])", "tensor([inf, -inf])"),
        ("tensor([1., 0.])", "tensor([1., 0.])"),
        ("tensor([1., 1.])", "tensor([1.0000, 0.9999])"),  # torch prints decimals as soon as one number needs them
        ("tensor([[0.1000, 0.0000]])", "tensor([[ 0.1000, -0.0000]])"),
        ("tensor([[ 0.1000, -0.0000]])", "tensor([[0.1000, 0.0000]])"),
        ("tensor([ 9.9999,  3.0000])", "tensor([10.0000,  3.0000])"),
        ("       the    cat\nthe  0.00   1.00", "        the    cat\nthe  -0.00   1.00"),
        ("| a | 0.25 |\n|---|---|", "| a | 0.26 |\n|---|---|"),
        ("x = 0.25 - 0.50", "x = 0.26 - 0.49"),
        ("", ""),
    ],
)
def test_a_difference_of_one_unit_in_the_last_printed_digit_is_rounding(stored, computed):
    assert difference(stored, computed) is None
    assert Text(stored) == Text(computed)
    assert not Text(stored) != Text(computed)  # noqa: SIM202 (both operators are written by hand)


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        ("0.1234", "0.1236"),
        ("0.5", "0.7"),
        ("1.2345e-05", "1.2347e-05"),
        ("1.2345e-05", "1.2345e-04"),
        ("1e-05", "3e-05"),
        ("0.5000", "-0.5000"),
        ("3", "4"),
        ("(2, 3, 5)", "(2, 3, 6)"),
        ("10,000", "10,001"),
        ("1.", "2."),
        ("tensor([1., 0.])", "tensor([0., 1.])"),
        ("tensor([1., 1.])", "tensor([1.0000, 0.9998])"),
        ("1.2.3", "1.2.4"),
        ("version 2.13.0", "version 2.13.1"),
        ("layer1.weight", "layer2.weight"),
        ("v1.5", "v1.6"),
        ("5", "5.0"),
        ("0.5", "0.50"),
        ("0.0001", "1e-04"),
        ("0.1234", "nan"),
        ("nan", "0.0000"),
        ("inf", "-inf"),
        ("the cat", "the dog"),
        ("the cat ", "the cat"),
        ("0.50 the", "0.50 cat"),
        ("tensor([0.1, 0.2])", "tensor([0.1,  0.2])"),  # nothing got longer, so nothing may move
        ("tensor([0.1, 0.2])", "tensor([-0.0,   0.2])"),
        ("[0.1, 0.2]", "[0.1, 0.2, 0.3]"),
        ("[0.1, 0.2]", "[0.1]"),
        ("0.1\n0.2", "0.1 0.2"),
        ("| a | 0.25 |", "| b | 0.25 |"),
        ("x = 0.25 - 0.50", "x = 0.25 + 0.50"),
        ("", "0.5"),
    ],
)
def test_everything_else_must_be_equal(stored, computed):
    assert difference(stored, computed) is not None
    assert difference(computed, stored) is not None
    assert Text(stored) != Text(computed)
    assert not Text(stored) == Text(computed)  # noqa: SIM201


def test_the_difference_names_the_line_and_the_numbers():
    assert (
        difference("a 0.10\nb 0.20", "a 0.11\nb 0.25")
        == "line 2: 0.20 is stored, 0.25 is computed: more than 0.01 apart"
    )
    assert difference("a 3", "a 4") == "line 1: 3 is stored, 4 is computed: a whole number is exact"
    assert difference("a\nb 1", "a\nc 1") == "line 2: the text differs"


def packed(*numbers, digits=3, bits=10):
    """Numbers as attention_view packs them: so many bits each, six bits to a sign."""
    signs = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstvwxyz-_."
    stream = "".join(f"{number:0{bits}b}" for number in numbers)
    stream += "0" * (-len(stream) % 6)
    inside = "".join(signs[int(stream[i : i + 6], 2)] for i in range(0, len(stream), 6))
    return f'{{"label":"weight 0.5","weights":"{digits}:{inside}"}}'


def bitmap(*pixels, colors=103):
    start = 54 + 4 * colors
    head = b"BM" + (start + len(pixels)).to_bytes(4, "little") + bytes(4) + start.to_bytes(4, "little")
    info = bytes(32) + colors.to_bytes(4, "little") + bytes(4)
    data = head + info + bytes(4 * colors) + bytes(pixels)
    return f"<image href='data:image/bmp;base64,{base64.b64encode(data).decode()}'/> 0.5"


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        (packed(0, 63, 64, 512, 1000), packed(0, 63, 64, 512, 1000)),
        (packed(0, 63, 64, 512, 1000), packed(1, 64, 63, 511, 999)),  # carries change both signs of a number
        (packed(5, 1023), packed(6, 1023)),
        (packed(3, 4, digits=1, bits=4), packed(4, 3, digits=1, bits=4)),
        (packed(100, 4, digits=2, bits=7), packed(99, 5, digits=2, bits=7)),
        (packed(10_000, 4, digits=4, bits=14), packed(9_999, 5, digits=4, bits=14)),
        (bitmap(0, 50, 100, 102), bitmap(1, 49, 99, 102)),
        (bitmap(0, 10, 12, colors=13), bitmap(1, 9, 12, colors=13)),
        (bitmap(7) + packed(70, 80), bitmap(8) + packed(71, 79)),
    ],
)
def test_packed_numbers_may_differ_by_one_unit(stored, computed):
    assert difference(stored, computed) is None
    assert Text(stored) == Text(computed)


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        (packed(0, 512), packed(2, 512)),
        (packed(63, 512), packed(65, 512)),
        (packed(0, 512, 7), packed(512, 0, 7)),
        (packed(1000), packed(1023)),  # hidden in one of the two
        (packed(999), packed(1023)),
        (packed(1, 2, 3), packed(1, 2)),
        (packed(50, digits=2, bits=7), packed(50)),
        (packed(3, digits=1, bits=4), packed(5, digits=1, bits=4)),
        (packed(5), packed(5).replace("weight ", "score ")),
        (packed(5), packed(5).replace("0.5", "0.7")),
        (packed(5), packed(5) + packed(5)),
        (packed(5), "no packed numbers at all"),
        (packed(5), packed(5).replace('":"3:', '":"3:!')),
        (bitmap(0, 50), bitmap(2, 50)),
        (bitmap(100), bitmap(102)),  # hidden in one of the two
        (bitmap(1, 2), bitmap(1, 2, 3, 4)),
        (bitmap(1, colors=103), bitmap(1, colors=13)),
        (bitmap(1), bitmap(1).replace("image/bmp", "image/png")),
        (bitmap(1) + packed(5), packed(5) + bitmap(1)),
    ],
)
def test_packed_numbers_that_differ_by_more_are_refused(stored, computed):
    assert difference(stored, computed) is not None
    assert difference(computed, stored) is not None
    assert Text(stored) != Text(computed)


def test_the_difference_names_the_packed_number():
    said = difference(packed(0, 512), packed(0, 515))
    assert said == "weight 1 (packed): 0.512 is stored, 0.515 is computed: more than 0.001 apart"
    assert difference(bitmap(0, 50), bitmap(0, 53)) == (
        "pixel 1 (packed): 0.50 is stored, 0.53 is computed: more than 0.01 apart"
    )
    assert "which of them a mask hides" in difference(packed(5), packed(1023))


PICTURE = """\
class Picture:
    def _repr_mimebundle_(self, **kwargs):
        return {"text/plain": "the  0.1234", "image/png": "aGVsbG8="}


Picture()"""
VIEW = f"""\
class View:
    def _repr_mimebundle_(self, **kwargs):
        return {{"text/plain": "the  0.1234", "text/html": {packed(123, 877) + "<p>" * 200!r}}}


View()"""
MARKDOWN = """\
from IPython.display import Markdown

Markdown("about **0.1234**")"""


def write_notebook(path, *cells):
    """A notebook of (source, outputs) pairs, as if it had been executed and stored."""
    stored = [
        {
            "cell_type": "code",
            "execution_count": number,
            "id": f"cell-{number}",
            "metadata": {},
            "source": source,
            "outputs": outputs,
        }
        for number, (source, outputs) in enumerate(cells, 1)
    ]
    path.write_text(json.dumps({"cells": stored, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), "utf-8")


def run_nbval(folder):
    """nbval with this repository's settings, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", folder, "--color=no"]
    command += ["--nbval", "--nbval-current-env", "-p", "no:cacheprovider", folder]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def stream(text):
    return [{"output_type": "stream", "name": "stdout", "text": text}]


def result(plain, **data):
    data = {"text/plain": plain, **{f"text/{kind}": text for kind, text in data.items()}}
    return [{"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}]


def picture(text):
    (output,) = result(plain=text)
    return [output | {"data": {"text/plain": text, "image/png": "another picture"}}]


def test_nbval_lets_rounding_pass_in_every_kind_of_output(tmp_path):
    write_notebook(
        tmp_path / "rounding.ipynb",
        ("print(f'{0.1234:.4f} of 3')", stream("0.1235 of 3\n")),
        ("0.1234", result(plain="0.1233")),
        (PICTURE, picture("the  0.1235")),
        (MARKDOWN, result(plain="<IPython.core.display.Markdown object>", markdown="about **0.1235**")),
        (VIEW, result(plain="the  0.1235", html=packed(124, 876) + "<p>" * 200)),
    )
    run = run_nbval(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "5 passed" in run.stdout


def test_nbval_refuses_two_units_and_shows_where(tmp_path):
    write_notebook(
        tmp_path / "wrong.ipynb",
        ("print(f'first\\n{0.1234:.4f} of 3')", stream("first\n0.1236 of 3\n")),
        ("0.1234", result(plain="0.1236")),
        (PICTURE, picture("the  0.1232")),
        (MARKDOWN, result(plain="<IPython.core.display.Markdown object>", markdown="about **0.1236**")),
        ("print(3)", stream("4\n")),
        ("0.1234", result(plain="0.1234")),
        (VIEW, result(plain="the  0.1234", html=packed(123, 879) + "<p>" * 200)),
    )
    run = run_nbval(tmp_path)
    assert run.returncode == 1
    assert "6 failed, 1 passed" in run.stdout
    assert "weight 1 (packed): 0.879 is stored, 0.877 is computed: more than 0.001 apart" in run.stdout
    assert "characters)" in run.stdout  # a long line is not shown whole
    assert "line 2: 0.1236 is stored, 0.1234 is computed: more than 0.0001 apart" in run.stdout
    assert "- 0.1236 of 3" in run.stdout
    assert "+ 0.1234 of 3" in run.stdout
    assert "4 is stored, 3 is computed: a whole number is exact" in run.stdout
