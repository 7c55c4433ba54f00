"""Slides: one for each chapter, made of the notebooks' own cells, in a file that needs nothing else."""

import re

import nbformat
import pytest
import slides

from notebooks import Failure


def test_each_chapter_has_a_slide_with_question_output_and_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(slides, "OUT", tmp_path)
    html = slides.make([]).read_text(encoding="utf-8")
    paths = sorted(slides.NOTEBOOKS.glob("*.ipynb"))
    assert re.findall(r'<section id="chapter-(\d\d)">', html) == [path.stem[:2] for path in paths]
    for path, part in zip(paths, html.split("<section ")[1:], strict=True):
        question, output, answer = re.split(r'<div class="(?:result|answer)">', part)
        assert len(re.sub("<[^>]*>", "", question).split()) > 5, path.stem
        assert "<img" in output or "<pre" in output or "<svg" in output, path.stem
        assert re.sub("<[^>]*>", "", answer).strip(), path.stem
        assert "jp-InputArea" not in part, path.stem
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*""", html)
    assert not re.search(r"(?<!\\)\$[^$\s][^$\n]*\$", re.sub(r"(?s)<(pre|script|style).*?</\1>", "", html))


def test_a_chapter_without_a_summit_and_one_without_an_output_are_refused(tmp_path):
    cells = [
        nbformat.v4.new_markdown_cell("# 1 · A"),
        nbformat.v4.new_code_cell("1"),
        nbformat.v4.new_markdown_cell("b"),
    ]
    path = tmp_path / "01_a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with pytest.raises(Failure, match=r"01_a\.ipynb has 0 cells with the tag 'summit', it must have one"):
        slides.summit(path)
    cells[1].metadata["tags"] = ["summit"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with pytest.raises(Failure, match="must be a code cell with an output"):
        slides.summit(path)
