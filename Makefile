PYTHON ?= python3
# Tests side by side; most of them wait for servers and processes.
JOBS ?= 6
# A test that ends its process, as one that hangs does, is run once more in each new process.
PYTEST := -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 2
VENV := .venv
BIN := $(VENV)/bin
# What the demo needs is installed at first, and all that tests and checks need when they are asked for.
DEMO := $(VENV)/.demo
DEMO_PLUGINS := $(wildcard $(addprefix plugins/,v1 v2 console demo chat))
STAMP := $(VENV)/.installed
# An environment of its own with the lowest declared version of each requirement.
LOWEST := $(VENV)/lowest
BOUNDS := $(LOWEST)/constraints.txt
# A pip that is quick with a long index, and what it needs to make editable installations: without
# them it would fetch that anew for each distribution of Sayso.
BUILDS := 'pip>=25' 'hatchling>=1.27' editables
BENCH := $(VENV)/.benchmarks
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DIST := dist
DISTRIBUTIONS := . $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.DEFAULT_GOAL := help
.PHONY: help install run test test-all test-lowest check format build release-check faults bench \
	bench-peers bench-report pictures site clean

help:
	@echo "make run      set up what the demo agent needs and start it on 127.0.0.1:8000"
	@echo "make test     run the tests        make check    style, types, import rules"
	@echo "make test-all      the tests, also those that take long, on the newest and the lowest versions"
	@echo "make test-lowest   the tests with the lowest declared version of each requirement"
	@echo "make format   rewrite the style    make build    all wheels into dist/"
	@echo "make site     the documentation as a site into dist/site"
	@echo "make release-check   what keeps a release back: versions, wheels, metadata, constraints"
	@echo "make faults   an hour of faults on each store; SECONDS=600 for ten minutes"
	@echo "make bench    the benchmarks       make clean    remove what make made"
	@echo "make pictures      the pictures of the page in docs/pictures; needs a chromium on the path"
	@echo "make bench-peers   the benchmarks, and other servers for agents beside them"

install: $(STAMP)

run: $(DEMO)
	$(BIN)/sayso demo $(ARGS)

test: $(STAMP)
	$(BIN)/python $(PYTEST) $(ARGS)

test-all: $(STAMP)
	$(BIN)/python $(PYTEST) --all $(ARGS)
	$(MAKE) test-lowest

# What the tests install into environments keeps to the lowest versions as well.
test-lowest: $(LOWEST)/.installed
	PIP_CONSTRAINT="$(CURDIR)/$(BOUNDS)" \
		$(LOWEST)/bin/python $(PYTEST) $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_import_rules.py tests/test_import_layers.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# pip prefers the file that a constraint names to any version of an index, also to the same one. It
# puts the folder in which it runs into the place of PWD.
build: $(DEMO)
	rm -rf $(DIST)
	for folder in $(DISTRIBUTIONS); do \
		(cd $$folder && $(abspath $(BIN))/python -m hatchling build -t wheel -d $(abspath $(DIST))) || exit 1; \
	done
	cd $(DIST) && for wheel in *.whl; do \
		echo "$${wheel%%-*} @ file://\$${PWD}/$(notdir $(DIST))/$$wheel"; \
	done > constraints.txt

# Links and anchors that lead nowhere fail it.
site: $(STAMP)
	$(BIN)/python docs/build_site.py $(DIST)/site

release-check: $(STAMP) build
	$(BIN)/python tests/release.py $(DIST)

# Kills, partitions and full disks, from a seed: as long as SECONDS says, for each store.
faults: $(STAMP)
	SECONDS=$(or $(SECONDS),3600) SEED=$(or $(SEED),$(shell date +%Y%m%d)) \
		$(BIN)/python -m pytest -q -o faulthandler_timeout=0 --all tests/faults $(ARGS)

bench: $(BENCH)
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(BENCH)
	$(BIN)/python -m benchmarks --peers $(VENV)/peers $(ARGS)

# The figures of the last run into docs/performance.md.
bench-report: $(BENCH)
	$(BIN)/python -m benchmarks --report $(ARGS)

# The pictures of the page; look at them before they are committed.
pictures: $(STAMP)
	$(BIN)/python docs/pictures.py

clean:
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The pip from the outside takes a fraction of the time that one of ensurepip's does, which Debian
# keeps in a package of its own. What is imported is compiled then.
$(DEMO): $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sayso needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	@echo "installing what the demo needs into $(VENV); this takes some seconds"
	@if test -x $(BIN)/pip; then $(PIP) $(BUILDS); else \
		{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python \
			install --quiet --disable-pip-version-check --no-compile $(BUILDS); } 2>/dev/null || \
		{ $(PYTHON) -m venv --clear $(VENV) && $(PIP) $(BUILDS); } || \
		{ echo "pip is missing; on Debian: apt-get install python3-pip python3-venv"; exit 1; }; fi
	@$(PIP) --no-compile --no-build-isolation $(addprefix -e ,. $(DEMO_PLUGINS))
	@touch $@

$(STAMP): $(DEMO) requirements-dev.txt $(PROJECTS)
	@echo "installing what tests and checks need into $(VENV); this takes a minute or so"
	@$(PIP) --no-build-isolation -r requirements-dev.txt
	@touch $@

# pip's own words on a conflict between bounds are in the log.
$(LOWEST)/.installed: $(STAMP) tests/lowest.py
	rm -rf $(LOWEST)
	$(BIN)/python -m venv --without-pip $(LOWEST)
	$(BIN)/python tests/lowest.py > $(BOUNDS)
	@echo "installing the lowest versions; the log is $(LOWEST)/install.log"
	@install="$(BIN)/python -m pip --python $(LOWEST)/bin/python install -c $(BOUNDS)"; \
	{ $$install $(BUILDS) && $$install --no-build-isolation -r requirements-dev.txt; } \
		> $(LOWEST)/install.log 2>&1 || { tail -n 20 $(LOWEST)/install.log; exit 1; }
	@touch $@

# The pictures are all that needs it: without them there still are the figures.
$(BENCH): $(STAMP) benchmarks/requirements.txt
	$(PIP) -r benchmarks/requirements.txt || echo "no matplotlib: there will be no pictures"
	@touch $@
