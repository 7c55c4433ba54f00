# The commands of this repository; `make help` lists them. They need git, make and Python 3.11.2 or newer.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PORT ?= 8000
JOBS ?= 2
OMP_NUM_THREADS ?= 1
# Matplotlib's list of fonts: it would be lost, with a warning in the notebook, where the home cannot be written to.
MPLCONFIGDIR ?= $(CURDIR)/.venv/matplotlib
export JOBS OMP_NUM_THREADS MPLCONFIGDIR PYTHON MAKE
# Every process of a test would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
# noxfile.py describes the sessions. With STRICT=1, as in CI, skipped tests and warnings of the book are failures.
NOX := $(PY) -m nox --sessions
CHAPTERS := $(if $(ONLY),-- $(ONLY))
SOURCES := $(shell find _config.yml _toc.yml CITATION.cff book notebooks src pyproject.toml -type f \
	! -path '*/__pycache__/*' ! -path '*.egg-info/*' ! -path '*/.*' 2>/dev/null)

.PHONY: help book serve pdf slides weight solutions lab copy test check types tools seeds machines accelerator notebooks gpu triton address clean FORCE

help:  ## list the commands
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

book: _build/html/.built  ## set everything up and build the website in _build/html
ifdef STRICT
	@! grep -E '(WARNING|ERROR):' _build/warnings.log
endif
	@echo "The book: $(CURDIR)/_build/html/index.html (or make serve)"

serve: _build/html/.built  ## build the book and serve it on localhost (PORT=8000; LIVE=1: its cells run in the page)
	@$(PY) scripts/serve.py --port $(PORT) $(if $(LIVE),--live)

pdf: _build/html/.built  ## print the book: _build/pdf/attention-course.pdf, and each page (ONLY=03: one chapter)
	@$(PY) scripts/pdf.py $(ONLY)

slides: .venv/.ready  ## the summit of each chapter as slides, one HTML file for a browser (ONLY=05: one chapter)
	@$(PY) scripts/slides.py $(ONLY)

weight: _build/html/.built  ## weigh the pages of the book: bytes, requests, nodes, times (ONLY=03: one chapter)
	@$(PY) scripts/page_weight.py $(ONLY)

solutions: .venv/.ready  ## for teachers: build the solutions of the problem sets in _build/solutions (ONLY=2: one set)
	@$(PY) scripts/solutions.py $(ONLY)

lab: .venv/.ready  ## open the notebooks in JupyterLab: those of make copy, if there are any
	@$(PY) -m jupyterlab --LabApp.default_url=/lab/tree/$(firstword $(wildcard my_notebooks) notebooks) \
		$$([ "$$(id -u)" != 0 ] || echo --allow-root)

copy:  ## copy the notebooks into my_notebooks, to write your answers there
	@$$(command -v $(PY) || command -v python3) scripts/copy_notebooks.py

test: .venv/.ready  ## check everything that changed: code, notebooks, book (FULL=1: all notebooks; ONLY=05: one chapter)
	@$(NOX) style unit $(if $(ONLY),,docstrings) bad_input $(if $(ONLY),,book) notebooks site $(CHAPTERS)

check: .venv/.ready  ## the fast part of make test: code style, unit tests, form of the notebooks
	@$(NOX) style quick

types: .venv/.ready  ## check types, form and common mistakes in the package and in the scripts (needs node)
	@$(PY) -m mypy
	@command -v npx >/dev/null || { echo "make types: node is needed, and its npx was not found" >&2; exit 1; }
	@for part in explore plots; do npx --yes --package typescript@5.9.3 tsc --project src/attn_course/$$part || exit; done
	@npx --yes --package prettier@3.6.2 prettier --check --log-level warn "src/**/*.js" "book/**/*.js"
	@npx --yes --package eslint@9.38.0 eslint src book

tools: .venv/.ready  ## check the tests and scripts: mistakes made in the package on purpose must fail a test
	@$(NOX) tools

seeds: .venv/.ready  ## train networks again with other seeds (ONLY=11: those of one chapter)
	@$(NOX) seeds $(CHAPTERS)

machines: .venv/.ready  ## the tests as other processors compute them (ONLY=oldest: one of them)
	@$(NOX) "machines$(if $(ONLY),($(ONLY)))"

accelerator: .venv/.ready  ## notebooks and tests on a stand-in for an accelerator (ONLY=05: one chapter)
	@$(NOX) $(if $(ONLY),,standin placed) placed_notebooks $(CHAPTERS)

notebooks: .venv/.ready  ## execute and store the notebooks that changed (ONLY="03 05": these)
	@$(PY) scripts/notebooks.py --jobs $(JOBS) $(ONLY) || { $(PY) tests/environment_report.py >&2; exit 1; }
	@$(PY) scripts/reading_time.py

gpu: .venv/.ready  ## execute all notebooks and the Triton kernel on a CUDA GPU and compare
	@$(PY) -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'make gpu: PyTorch sees no CUDA GPU here')"
	@$(NOX) gpu $(CHAPTERS)

triton: .venv/.ready  ## run the Triton kernel of chapter 17 in its interpreter, without a GPU (a download of 300 MB)
	@$(NOX) triton

address:  ## for whoever publishes a copy: write its address everywhere (URL=https://github.com/owner/name)
	@$$(command -v $(PY) || command -v python3) scripts/set_repository_url.py $(URL)

clean:  ## remove what was built; .venv stays
	rm -rf _build .pytest_cache .ruff_cache .hypothesis src/*.egg-info book/mistakes*.md
	find book notebooks scripts src tests \( -name __pycache__ -o -name .ruff_cache \) -prune -exec rm -rf {} +

# ---------------------------------------------------------------- files

# The script looks itself whether there is anything to do, and touches the file only then.
.venv/.ready: FORCE
	@sh scripts/setup.sh

# Always from nothing: a page that is not built again repeats none of its warnings.
_build/html/.built: .venv/.ready $(SOURCES)
	@echo "Building the book."
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute && mkdir -p _build
	@.venv/bin/jupyter-book build . -n -q >_build/book.log 2>_build/warnings.log || { cat _build/book.log _build/warnings.log; exit 1; }
	@cat _build/warnings.log
	@touch $@
