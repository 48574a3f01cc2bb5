# `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
MATRIX ?= 3.11 3.12 3.13
# Extra words for pytest: make test-unit PYTEST_ARGS='-k naming -x'
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP := $(VENV)/.stamp
# Absolute, since the rig may start the command in another directory.
PY := $(abspath $(BIN))/python

# The demo and the suite both find `sandbox-exec` as a user would: on PATH.
export PATH := $(abspath $(BIN)):$(PATH)

# Without an engine: pure tests, behaviour on the fake, real processes.
UNIT_PATHS = $(wildcard tests/unit tests/behaviour tests/process)
FAST = not engine and not soak
# These mostly wait, so they do it side by side; under coverage they compute, so fewer do,
# and the engine's tests share one daemon, three at a time.
SPREAD := -n 6 --dist worksteal

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(STAMP)  ## make the virtual environment: pinned tools and an editable install

# Two stamps, so that an edit of pyproject.toml costs one editable install and not a resolve of everything.
$(VENV)/.requirements: requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --requirement requirements-dev.txt
	@touch $@

# No build isolation: the build back end is then the pinned one.
$(STAMP): pyproject.toml $(VENV)/.requirements
	$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

.PHONY: check
check: $(STAMP)  ## lint, formatting, types, layers, guest scripts, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck -s sh $(addprefix sandbox_exec/_guest/,keepalive.sh look.sh reach.sh tidy.sh)
	# One text in the container, so one text here; so twice.
	cat $(addprefix sandbox_exec/_guest/,base.sh proc.sh limits.sh run.sh files.sh outbox.sh harvest.sh retire.sh loop.sh) | $(BIN)/shellcheck -s sh -
	cat $(addprefix sandbox_exec/_guest/,proc.sh spawn.sh) | $(BIN)/shellcheck -s sh -
	$(BIN)/shellcheck docs/examples/*.sh .ci/run
	$(BIN)/basedpyright --verifytypes sandbox_exec --ignoreexternal
	$(MAKE) docs

.PHONY: fmt
fmt: $(STAMP)  ## format, and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: test-unit
test-unit: $(STAMP)  ## what needs no engine, in under a minute
	$(PY) -m pytest $(UNIT_PATHS) -m '$(FAST) and not thorough' $(SPREAD) $(PYTEST_ARGS)

# A missing engine is a failure here, not a skip: this is the target that promises the whole suite.
.PHONY: test
test: $(STAMP)  ## the whole suite on a real engine, with coverage
	$(BIN)/coverage erase
	$(PY) -m coverage run -m pytest $(UNIT_PATHS) -m '$(FAST)' -n 3 --dist worksteal $(PYTEST_ARGS)
	SANDBOX_EXEC_REQUIRE_ENGINE=docker $(PY) -m tests.rig run --images all -- \
	    $(PY) -m coverage run -m pytest -m 'engine and not soak' -n 3 --dist loadfile $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# What an engine's version could change; what faults do to the library does not depend on it.
DIND_PATHS := $(addprefix tests/engine/,test_seam.py test_shared_real.py test_commands.py test_restarts.py test_doctor.py)

.PHONY: test-dind
test-dind: $(STAMP)  ## the engine suite inside a container with its own, newer dockerd
	$(PY) -m tests.rig dind -- python3 -m pytest $(DIND_PATHS) -m 'not soak' $(PYTEST_ARGS)

# Which engines: make engines ENGINES='gvisor ssh'; all of tests/rig/lineup.py by default.
ENGINES ?=

.PHONY: engines
engines: $(STAMP)  ## the conformance suite on each engine, and a table of what came of it
	$(PY) -m tests.rig engines $(addprefix --only ,$(ENGINES)) -- -q -n 3 --dist worksteal $(PYTEST_ARGS)

# A candidate must run, not only exist: a version manager's shim is on PATH for versions that it then refuses to start.
.PHONY: test-matrix
test-matrix: export PYTHONASYNCIODEBUG = 1
test-matrix:  ## test-unit under each supported Python that is found, in asyncio's debug mode
	@for version in $(MATRIX); do \
	    found=; \
	    for candidate in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	        if "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	    done; \
	    if [ -z "$$found" ]; then echo "test-matrix: Python $$version not found, skipped"; continue; fi; \
	    echo "test-matrix: Python $$version is $$("$$found" -V)"; \
	    $(MAKE) --no-print-directory test-unit PYTHON="$$found" VENV=.venv-$$version; \
	done

.PHONY: soak
soak: $(STAMP)  ## the long storms, before a release
	SANDBOX_EXEC_REQUIRE_ENGINE=docker $(PY) -m tests.rig run --images all -- \
	    $(PY) -m pytest -m soak --timeout 3600 $(PYTEST_ARGS)

.PHONY: demo
demo: $(STAMP)  ## the main job, for real: two commands in one session
	$(PY) -m tests.rig run --images busybox -- docs/examples/demo.sh

.PHONY: docs
docs: $(STAMP)  ## build the documentation; warnings are errors
	$(BIN)/sphinx-build --quiet -W --keep-going -b html docs docs/_build/html
	@echo "docs: open $(abspath docs/_build/html/index.html)"

.PHONY: bench
bench: $(STAMP)  ## measure against bare `docker exec` and the peers
	$(PIP) install --no-build-isolation --editable '.[bench]'
	$(PY) -m tests.rig run --images all -- $(PY) -m tests.bench

# uv resolves for every supported Python at once, which pip-compile cannot; it is not a dependency of anything else here.
.PHONY: lock
lock: $(STAMP)  ## pin requirements-dev.txt anew from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check --quiet install uv
	head -n 2 requirements-dev.txt > requirements-dev.new
	$(VENV)-lock/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade \
	    --fork-strategy fewest --no-emit-index-url --no-header --no-annotate --quiet >> requirements-dev.new
	mv requirements-dev.new requirements-dev.txt
	rm -rf $(VENV)-lock

.PHONY: clean
clean:  ## remove what the other targets made, virtual environments included
	rm -rf .venv .venv-* dist docs/_build .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache \
	    .ruff_cache .import_linter_cache
