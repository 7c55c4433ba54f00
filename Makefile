# The commands of this repository; `make help` lists them. They need git, make and Python 3.11 or newer.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

comma := ,
PORT ?= 8000
JOBS ?= 2
OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS PYTHON

PY := .venv/bin/python
PYTEST := $(PY) -m pytest -q -p no:cacheprovider
NBVAL := $(PYTEST) -n $(JOBS) --dist loadfile --nbval --nbval-current-env --nbval-cell-timeout 1200 notebooks
# Tests that look at the built website; the others do not wait for it.
SITE_TESTS := tests/test_book.py tests/test_pages.py
UNIT := $(PYTEST) -n $(JOBS) tests $(SITE_TESTS:%=--ignore=%)
SOURCES := $(shell find _config.yml _toc.yml book notebooks src pyproject.toml -type f \
	! -path '*/__pycache__/*' ! -path '*.egg-info/*' ! -path '*/.ipynb_checkpoints/*' ! -name '.*' 2>/dev/null)

# The modules whose signatures give shapes. plots is none of them: it takes whatever can be drawn.
SHAPED := $(subst $() $(),$(comma),$(addprefix attn_course.,functional masks additive self_attention \
	multi_head_attention causality recurrent dates validation positions cache language_model transformer decoding evaluation quiet burn pretrained \
	tiled sliding_window latent_attention kernels))

# $(call part,NAME,COMMAND): say what comes, run it, and say where it stopped.
define part
@printf '\n== %s\n' "$(1)"
@$(2) || { printf '\nmake %s stopped at: %s\n' "$@" "$(1)" >&2; exit 1; }
endef

.PHONY: help book serve lab test check notebooks gpu address clean FORCE

help:  ## list the commands
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

book: _build/html/.built  ## set everything up and build the website in _build/html
	@echo "The book: $(CURDIR)/_build/html/index.html (or make serve)"

serve: _build/html/.built  ## build the book and serve it on localhost (PORT=8000)
	@echo "The book: http://localhost:$(PORT) (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind localhost --directory _build/html

lab: .venv/.ready  ## open the notebooks in JupyterLab
	@$(PY) -m jupyterlab notebooks

test: .venv/.ready  ## check everything: code, notebooks, book
	$(call part,code style,$(PY) -m ruff check . && $(PY) -m ruff format --check .)
	$(call part,notebooks in their normal form,$(PY) scripts/notebooks.py --check)
	$(call part,unit tests with shapes checked at run time,$(UNIT) -m 'not bad_input and not trains' --jaxtyping-packages=$(SHAPED)$(comma)beartype.beartype)
	$(call part,unit tests with bad input,$(UNIT) -m bad_input)
	$(call part,statements about trained networks$(comma) with other seeds,$(UNIT) -m trains)
	$(call part,examples in docstrings,$(PYTEST) --doctest-modules src)
	$(call part,notebooks executed again and compared,$(NBVAL))
	$(call part,the book builds without a warning,$(MAKE) --no-print-directory book)
	$(call part,the book itself,$(PYTEST) -n $(JOBS) $(SITE_TESTS))
	@printf '\nAll tests pass.\n'

check: .venv/.ready  ## the fast part of make test: code style, unit tests, form of the notebooks
	$(call part,code style,$(PY) -m ruff check . && $(PY) -m ruff format --check .)
	$(call part,notebooks in their normal form,$(PY) scripts/notebooks.py --check)
	$(call part,unit tests,$(UNIT) --ignore=tests/test_launch.py -m 'not trains')

notebooks: .venv/.ready  ## execute and store the notebooks that changed (ONLY="03 05": these)
	@$(PY) scripts/notebooks.py --jobs $(JOBS) $(ONLY)
	@$(PY) tests/mistakes_page.py

gpu: .venv/.ready  ## execute all notebooks on a CUDA GPU and compare with the stored outputs
	@$(PY) -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'make gpu: PyTorch sees no CUDA GPU here')"
	$(call part,notebooks executed on the GPU and compared,ATTN_COURSE_DEVICE=cuda $(NBVAL))

address:  ## write the repository's public address everywhere (URL=https://github.com/owner/name)
	@$$(command -v $(PY) || command -v python3) scripts/address.py $(URL)

clean:  ## remove what was built; .venv stays
	rm -rf _build .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find book notebooks scripts src tests -name __pycache__ -prune -exec rm -rf {} +

# ---------------------------------------------------------------- files

# The script looks itself whether there is anything to do, and touches the file only then.
.venv/.ready: FORCE
	@sh scripts/setup.sh

# Always from nothing: a page that is not built again repeats none of its warnings.
_build/html/.built: .venv/.ready $(SOURCES)
	@echo "Building the book."
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute && mkdir -p _build
	@.venv/bin/jupyter-book build . -W -n --keep-going -q >_build/book.log || { cat _build/book.log; exit 1; }
	@touch $@
