"""scripts/notebooks.py: one normal form, the same bytes each time, and nothing stored when something fails."""

import importlib.util
import json
import shutil
import subprocess
import sys

import nbformat
import pytest
from read_chapters import ROOT

spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "FINGERPRINTS", tmp_path / "fingerprints.txt")
    monkeypatch.setattr(script, "NOTEBOOKS", tmp_path)
    monkeypatch.chdir(tmp_path)


def write(path, *sources, **metadata):
    """A notebook as an editor leaves it: no outputs, no ids, its own metadata."""
    cells = [{"cell_type": "markdown", "metadata": {"collapsed": True}, "source": "# 5 · Try\n\n"}]
    cells += [
        {"cell_type": "code", "execution_count": None, "metadata": {"tags": ["x"]}, "outputs": [], "source": source}
        for source in sources
    ]
    notebook = {"cells": cells, "metadata": {"kernelspec": {"name": "mine"}, **metadata}, "nbformat": 4}
    path.write_text(json.dumps(notebook | {"nbformat_minor": 4}), "utf-8")
    return path


def with_output(output, **metadata):
    cell = nbformat.v4.new_code_cell("f()", execution_count=7, outputs=[output], metadata=metadata)
    return nbformat.v4.new_notebook(cells=[cell])


def test_a_notebook_is_executed_and_stored_the_same_twice(tmp_path, capsys):
    path = write(tmp_path / "05_try.ipynb", "x = 2   \n", "print(x)\nx + 1")
    assert script.main(["05"]) == 0
    first = path.read_bytes()
    assert script.main(["5"]) == 0
    assert path.read_bytes() == first
    assert script.main([]) == 0
    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()][1:] == ["executed", "unchanged"]
    notebook = nbformat.read(path, as_version=4)
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2]
    assert [cell.source for cell in notebook.cells] == ["# 5 · Try", "x = 2", "print(x)\nx + 1"]
    assert notebook.cells[2].outputs[0].text == "2\n"
    assert notebook.cells[2].outputs[1].data == {"text/plain": "3"}
    assert notebook.metadata == {"kernelspec": script.KERNELSPEC, "language_info": {"name": "python"}}
    assert notebook.cells[0].metadata == {}
    assert notebook.cells[1].metadata == {"tags": ["x"]}
    assert script.main(["--check"]) == 0


def test_a_notebook_that_fails_is_left_as_it_was_and_the_cell_is_named(tmp_path, capsys):
    path = write(tmp_path / "05_try.ipynb", "x = 2", "1 / 0")
    before = path.read_bytes()
    assert script.main([]) == 1
    assert path.read_bytes() == before
    error = capsys.readouterr().err
    assert "05_try.ipynb: code cell 2 (cell 3 of all) fails:" in error
    assert "    1 / 0" in error
    assert error.rstrip().endswith("ZeroDivisionError: division by zero")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["05_try.ipynb"]


@pytest.fixture
def stored(tmp_path):
    """A notebook in the normal form that is recorded as executed, without the cost of a kernel."""
    path = tmp_path / "05_try.ipynb"
    output = nbformat.v4.new_output("stream", text="2\n")
    normal = script.normalise(with_output(output))
    path.write_text(script.as_text(normal), "utf-8")
    script.record({path.stem: script.fingerprint(normal)})
    return path


def changed(path, change):
    notebook = json.loads(path.read_text("utf-8"))
    change(notebook["cells"][0])
    path.write_text(json.dumps(notebook), "utf-8")
    return not script.is_unchanged(path, script.read(path))


def test_unchanged_notebooks_are_not_executed(stored):
    assert script.is_unchanged(stored, script.read(stored))
    assert not changed(stored, lambda cell: cell["metadata"].update(collapsed=True))


@pytest.mark.parametrize(
    "change",
    [
        lambda cell: cell.update(source="g()"),
        lambda cell: cell.update(execution_count=2),
        lambda cell: cell["outputs"][0].update(text="3\n"),
    ],
)
def test_changed_code_or_a_changed_output_is_executed_again(stored, change):
    assert changed(stored, change)


def test_cells_keep_their_ids_and_get_one_from_their_content_if_they_have_none():
    cells = [nbformat.v4.new_code_cell(source) for source in ("a", "b", "b", "c", "")]
    for cell, name in zip(cells, ("first", None, None, "first", "last"), strict=True):
        cell.id = name
    notebook = nbformat.from_dict({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    names = [cell.id for cell in script.normalise(notebook).cells]
    assert names[0] == "first"
    assert len(set(names)) == 4  # the empty cell is gone
    assert names[2] == f"{names[1]}-2"
    assert names == [cell.id for cell in script.normalise(notebook).cells]


def test_a_figure_is_as_wide_on_the_website_as_in_jupyter():
    data = {"image/png": "aGVsbG8=", "text/plain": "0.5"}
    size = {"image/png": {"width": 420, "height": 300, "dpi": 144}, "other": 1}
    output = nbformat.v4.new_output("execute_result", data=data, metadata=size, execution_count=7)
    (cell,) = script.normalise(with_output(output, mystnb={"image": {"alt": "A line."}}, jupyter={"x": 1})).cells
    assert cell.metadata == {"mystnb": {"image": {"alt": "A line.", "width": "420px"}}}
    assert cell.outputs[0].metadata == {"image/png": {"width": 420, "height": 300}}
    assert cell.outputs[0].execution_count == cell.execution_count == 1


def test_a_traceback_is_stored_as_its_last_line_without_paths_and_colours():
    output = nbformat.v4.new_output("error", ename="ValueError", evalue="\x1b[31mno", traceback=["File x.py, line 3"])
    (cell,) = script.normalise(with_output(output)).cells
    assert cell.outputs[0].traceback == ["ValueError: no"]


def test_the_check_says_what_is_wrong_and_changes_nothing(tmp_path, capsys):
    path = write(tmp_path / "05_try.ipynb", "x = 2", "x")
    before = path.read_bytes()
    assert script.main(["--check"]) == 1
    assert path.read_bytes() == before
    never, form = capsys.readouterr().out.splitlines()
    assert "never executed: code cell 1, 2" in never
    assert "not in the normal form" in form


def test_a_name_that_no_notebook_has_is_answered_with_those_there_are(tmp_path, capsys):
    write(tmp_path / "05_try.ipynb", "x = 2")
    assert script.main(["04"]) == 1
    assert "'04' names 0 notebooks, it must name one of: 05_try" in capsys.readouterr().err


def test_a_file_that_is_no_notebook_is_said_to_be_none(tmp_path, capsys):
    (tmp_path / "05_try.ipynb").write_text("{", "utf-8")
    assert script.main([]) == 1
    assert "05_try.ipynb is not a notebook" in capsys.readouterr().err


def test_a_copy_of_the_notebooks_never_overwrites_what_a_reader_wrote(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "notebooks").mkdir()
    copy = shutil.copy(ROOT / "scripts" / "copy_notebooks.py", tmp_path / "scripts")
    for name, said in (("01.ipynb", "my_notebooks: 1; "), ("02.ipynb", "there: 1.")):
        (tmp_path / "notebooks" / name).write_text("as published", "utf-8")
        assert said in subprocess.run([sys.executable, copy], capture_output=True, text=True, check=True).stdout
        (tmp_path / "my_notebooks" / "01.ipynb").write_text("my answer", "utf-8")
    assert (tmp_path / "my_notebooks" / "01.ipynb").read_text("utf-8") == "my answer"
    assert (tmp_path / "my_notebooks" / "02.ipynb").read_text("utf-8") == "as published"
