PYTHON ?= python3
# Tests side by side; most of them wait for servers and processes.
JOBS ?= 3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DISTRIBUTIONS := . $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.DEFAULT_GOAL := help
.PHONY: help install run test check format build bench bench-peers clean

help:
	@echo "make run      set up all that is needed and start the demo agent on 127.0.0.1:8000"
	@echo "make test     run the tests        make check    style, types, import rules"
	@echo "make format   rewrite the style    make build    all wheels into dist/"
	@echo "make bench    the benchmarks       make clean    remove what make made"

install: $(STAMP)

run: $(STAMP)
	$(BIN)/assent demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_import_rules.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: $(STAMP)
	rm -rf dist
	for folder in $(DISTRIBUTIONS); do \
		$(BIN)/python -m build --wheel --no-isolation --outdir dist $$folder || exit 1; \
	done

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(STAMP)
	$(BIN)/python -m benchmarks --peers $(VENV)/peers $(ARGS)

clean:
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Debian keeps ensurepip in a package of its own; without it pip installs from the outside.
$(STAMP): requirements-dev.txt pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "assent needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || \
		{ echo "pip is missing; on Debian: apt-get install python3-pip python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
