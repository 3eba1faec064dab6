# Two commands do everything on a fresh machine: `make demo` and `make test`.
#
# The virtual environment lives in the user's cache folder, keyed by what it is built from, so that clones share it
# and a changed pin builds a new one. `make PYTHON=python3.12 test` picks another interpreter.

PYTHON ?= python3
CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/maxmatch
KEY    := $(shell { cat constraints.txt; sed -n '/^dependencies/,/^dev/p' pyproject.toml; $(PYTHON) -VV; } | cksum | cut -d' ' -f1)
VENV   := $(CACHE)/venv-$(KEY)
BIN    := $(VENV)/bin
RUN    := PYTHONPATH=src $(BIN)/python -m

.PHONY: demo test lint types arrows unit bench install bin clean

demo: $(VENV)/.ready
	$(RUN) maxmatch demo

test: lint types arrows unit

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

arrows: $(VENV)/.ready
	PYTHONPATH=src $(BIN)/lint-imports

unit: $(VENV)/.ready
	PYTHONPATH=src $(BIN)/pytest -n 2 --dist worksteal

bench: $(VENV)/.ready
	PYTHONPATH=src $(BIN)/python benchmarks/cpu.py

install: $(VENV)/.ready

bin: $(VENV)/.ready  # where the environment's programs are
	@echo "$(BIN)"

# The dependencies alone are installed here; the clone's own src/ is found by PYTHONPATH, so many clones share one
# environment. Built aside and marked ready last: an interrupted install is begun again, never used half done.
$(VENV)/.ready:
	@echo "setting up $(VENV) (once; a few minutes, about 6 GB)" >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 test")'
	rm -rf "$(VENV)"
	$(PYTHON) -m venv "$(VENV)"
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	    print(*p["dependencies"], *p["optional-dependencies"]["dev"], sep="\n")' > "$(VENV)/requirements.txt"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -r "$(VENV)/requirements.txt"
	touch "$@"

clean:
	rm -rf "$(VENV)" .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
