"""The checks behind ``make test`` and its relatives: each session is one part, ``nox --list`` shows all of them.

The sessions run in the environment that ``make`` has prepared. Arguments after ``--`` are chapters, such as ``05``.
With STRICT=1, a test that cannot run for want of a program is a failure (tests/conftest.py). With FULL=1, the session
``notebooks`` executes all notebooks; otherwise those that changed since their last comparison, or import what changed.
"""

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
JOBS = int(os.environ.get("JOBS", "2"))
nox.options.default_venv_backend = "none"
nox.options.error_on_missing_interpreters = False

# Tests that place nothing on a device, or that are about the kernels of the CPU.
CPU_TESTS = """
batches check context_parallel corpora demos device diagrams digits everyday images memory mistakes package
attention_view cli_generate cli_grade gguf gradescope grading pretrained pretrained_config pretrained_configured
pretrained_marian_tokenizer pretrained_minilm pretrained_weights process_pool real_heads sdpa show_source text
triton_attention words
"""
# These notebooks compute in float64; all others also run on a device without float64.
DOUBLE = ("03", "06", "08", "09", "17", "18", "22", "24")
# PyTorch finds the stand-in for an accelerator by itself if its folder is on the path.
STANDIN = {"PYTHONPATH": str(ROOT / "tests" / "standin"), "ATTN_COURSE_DEVICE": ""}
# A test that stands still, as a browser can, is a failure of that test after ten minutes; the others go on.
LIMIT = ("--timeout", "600", "--timeout-method", "thread")
# A browser that stood still is asked once more, in a new process; a page that is wrong is not.
ASK_AGAIN = ("--reruns", "1", "--only-rerun", "only a process that ended", "-r", "fER")
# Variables that make the libraries of this processor choose the kernels of another one.
PROCESSORS = {
    "oldest": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "OMP_NUM_THREADS": "1",
    },
    "middle": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "OMP_NUM_THREADS": "2",
    },
    "newest": {"OMP_NUM_THREADS": "4"},
}
NUMPY_KEEPS = {"oldest": (), "middle": ("X86_V3", "AVX2", "FMA3")}  # processor features beyond numpy's baseline
NUMPY_FEATURES = """
import json
from numpy._core._multiarray_umath import __cpu_dispatch__ as dispatched, __cpu_features__ as available
print(json.dumps([name for name in dispatched if available[name]]))
"""


# tests/tools has the tests of the scripts and of the tests themselves. They take long, and few changes affect them.
UNIT_TESTS = ["tests", "--ignore=tests/site", "--ignore=tests/tools"]
TRITON_TEST = "tests/ports/test_triton_attention.py"


def chapters(session: nox.Session) -> list[Path]:
    """Return the notebooks of the chapters after ``--``; an empty list means all chapters."""
    known = sorted((ROOT / "notebooks").glob("*.ipynb"))
    chosen = []
    for name in session.posargs:
        matches = [path for path in known if path.stem == name or path.stem[:2] == name.zfill(2)]
        if len(matches) != 1:
            session.error(f"ONLY={name!r} names no chapter, it must be one of {', '.join(p.stem[:2] for p in known)}")
        chosen += matches
    return sorted(set(chosen))


def shapes() -> str:
    """Return the pytest option that checks shapes at run time in every module whose signatures have shapes."""
    paths = sorted(path for path in (ROOT / "src").rglob("*.py") if "from jaxtyping import" in path.read_text("utf-8"))
    modules = (".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths)
    return f"--jaxtyping-packages={','.join(modules)},beartype.beartype"


def pytest(session: nox.Session, *arguments: str, jobs: int = JOBS, env: dict[str, str] | None = None) -> None:
    parallel = ("-n", str(jobs)) if jobs > 1 else ()
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *parallel, *arguments)
    session.run(*command, env=env, success_codes=[0])


def unit_tests(session: nox.Session, mark: str, *options: str, env: dict[str, str] | None = None) -> None:
    """Run the unit tests with this mark: all of them, or those of the chosen chapters."""
    chosen = chapters(session)
    if not chosen:
        folders = ["tests"] if mark == "trains" else UNIT_TESTS
        return pytest(session, *folders, "-m", mark, *(() if mark == "trains" else LIMIT), *options, env=env)
    files = [f"tests/chapters/test_chapter_{path.stem[:2]}.py" for path in chosen]
    if mark == "bad_input":  # the checks of the exercises and the answers to them
        names = {name for path in chosen for name in re.findall(r"check\.(\w+)\(\1\)", path.read_text("utf-8"))}
        keywords = sorted(names | {Path(file).stem for file in files})
        options = ("tests/exercises/test_check.py", "-k", " or ".join(keywords), *options)
    return pytest(session, *files, "-m", mark, *options, env=env)


def compare_notebooks(session: nox.Session, paths: list[Path], env: dict[str, str] | None = None) -> None:
    """Execute notebooks, each from its first cell to its last, and compare their outputs with the stored ones."""
    if not paths:
        session.skip("none of the chosen chapters belongs here")
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    options = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "1200")
    jobs = min(JOBS, len(names))
    pytest(session, *options, *(("--dist", "loadfile") if jobs > 1 else ()), *names, jobs=jobs, env=env)


def notebooks_of(session: nox.Session) -> list[Path]:
    return chapters(session) or sorted((ROOT / "notebooks").glob("*.ipynb"))


# ---------------------------------------------------------------- make test


@nox.session
def style(session: nox.Session) -> None:
    """Code style, and the form of the notebooks."""
    session.run(sys.executable, "-m", "ruff", "check", ".")
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".")
    session.run(sys.executable, "scripts/notebooks.py", "--check", *(path.stem for path in chapters(session)))


@nox.session
def unit(session: nox.Session) -> None:
    """Unit tests, with shapes checked at run time."""
    unit_tests(session, "not bad_input and not trains", shapes())


@nox.session
def bad_input(session: nox.Session) -> None:
    """Unit tests with bad input, without the check of shapes at run time."""
    unit_tests(session, "bad_input")


@nox.session
def quick(session: nox.Session) -> None:
    """Unit tests without the check of shapes at run time."""
    pytest(session, *UNIT_TESTS, "-m", "not trains")


@nox.session
def docstrings(session: nox.Session) -> None:
    """Examples in docstrings."""
    pytest(session, "--doctest-modules", "src", jobs=1)


@nox.session
def notebooks(session: nox.Session) -> None:
    """Execute notebooks again and compare their outputs: those that changed or import what changed, or all."""
    paths = chapters(session)
    if not paths and os.environ.get("FULL"):
        paths = notebooks_of(session)
    elif not paths:
        listed = session.run(sys.executable, "scripts/notebooks.py", "--changed", silent=True, log=False)
        paths = [ROOT / line for line in listed.splitlines()]
        session.log(f"{len(paths)} of {len(notebooks_of(session))} notebooks changed or import what changed")
        if not paths:
            return session.log("FULL=1 executes all of them")
    compare_notebooks(session, paths)
    session.run(sys.executable, "scripts/notebooks.py", "--record", *(path.stem for path in paths))
    return None


@nox.session
def book(session: nox.Session) -> None:
    """Build the book without a warning."""
    session.run(*os.environ.get("MAKE", "make").split(), "--no-print-directory", "book", "STRICT=1", external=True)


@nox.session
def site(session: nox.Session) -> None:
    """Tests of the built book."""
    chosen = [path.stem for path in chapters(session)]
    if chosen:
        pytest(session, "tests/site/test_book.py", "-k", " or ".join(chosen), jobs=1)
    else:
        pytest(session, "tests/site", "-m", "not trains", *LIMIT, *ASK_AGAIN)


# ---------------------------------------------------------------- the other commands


@nox.session
def tools(session: nox.Session) -> None:
    """Tests of the tests: mistakes made in the package on purpose, and the scripts behind these commands."""
    pytest(session, "tests/tools", "--ignore=tests/tools/test_standin.py", *LIMIT)


@nox.session
def seeds(session: nox.Session) -> None:
    """Statements about trained networks with other seeds, and chapters without their optional sections."""
    unit_tests(session, "trains")


@nox.session
def standin(session: nox.Session) -> None:
    """Tests of the stand-in for an accelerator."""
    pytest(session, "tests/tools/test_standin.py", jobs=1, env=STANDIN)


@nox.session
def placed(session: nox.Session) -> None:
    """The package's tests with all their tensors on the stand-in."""
    excluded = {f"test_{name}.py" for name in CPU_TESTS.split()}
    folders = (path.name for path in (ROOT / "src" / "attn_course").iterdir() if path.is_dir())
    paths = [path for folder in ("", *folders) for path in ROOT.glob(f"tests/{folder}/test_*.py")]
    files = sorted(path.relative_to(ROOT).as_posix() for path in paths if path.name not in excluded)
    pytest(session, "-p", "on_accelerator", "-m", "not trains and not bad_input", *LIMIT, *files, env=STANDIN)


@nox.session
@nox.parametrize("precision", ["double", "single"])
def placed_notebooks(session: nox.Session, precision: str) -> None:
    """The notebooks on the stand-in; those in single precision on one that has no float64."""
    paths = [path for path in notebooks_of(session) if (path.stem[:2] in DOUBLE) == (precision == "double")]
    compare_notebooks(session, paths, STANDIN | ({} if precision == "double" else {"ATTN_STANDIN": "no-float64"}))


@nox.session
def triton(session: nox.Session) -> None:
    """The Triton kernel of chapter 17 in Triton's interpreter, which needs no GPU."""
    env = {"TRITON_INTERPRET": "1"}
    if importlib.util.find_spec("triton") is None:
        folder = ROOT / "_build" / "triton"  # Triton takes 1 GB, so it is not in the environment of all other sessions
        if not (folder / "triton").is_dir():
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder))
            session.run(*pip, "triton==3.9.0")
        env["PYTHONPATH"] = str(folder)
    pytest(session, TRITON_TEST, jobs=1, env=env)


@nox.session
def gpu(session: nox.Session) -> None:
    """The notebooks and the Triton kernel on a CUDA GPU."""
    paths = notebooks_of(session)
    compare_notebooks(session, paths, {"ATTN_COURSE_DEVICE": "cuda"})
    if any(path.stem.startswith("17_") for path in paths):
        pytest(session, TRITON_TEST, jobs=1)


def kernels_of(processor: str) -> dict[str, str]:
    """Return the variables for this processor. numpy warns about features that are missing, so it gets only others."""
    variables = dict(PROCESSORS[processor])
    if platform.machine() not in ("x86_64", "AMD64"):  # these names belong to x86
        for name in ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "OPENBLAS_CORETYPE"):
            variables.pop(name, None)
    if int(variables["OMP_NUM_THREADS"]) > 1:
        variables["OMP_WAIT_POLICY"] = "PASSIVE"  # two processes have more threads than cores
    if processor in NUMPY_KEEPS:
        command = [sys.executable, "-c", NUMPY_FEATURES]
        features = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        variables["NPY_DISABLE_CPU_FEATURES"] = " ".join(n for n in features if n not in NUMPY_KEEPS[processor])
    return variables


@nox.session
@nox.parametrize("processor", list(PROCESSORS), ids=list(PROCESSORS))
def machines(session: nox.Session, processor: str) -> None:
    """Unit tests and notebooks with the kernels of another processor."""
    env = kernels_of(processor)
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    chosen = session.run(sys.executable, "-c", code, env=env, silent=True).strip().lower()
    if env.get("ATEN_CPU_CAPABILITY", chosen) != chosen:
        session.skip(f"PyTorch has no {env['ATEN_CPU_CAPABILITY']} kernels for this processor, it chose {chosen}")
    pytest(session, *UNIT_TESTS, "-m", "not trains", env=env)
    compare_notebooks(session, notebooks_of(session), env)
