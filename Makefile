# Everything a developer does here, as one word each. `make` alone lists the words.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run federation test types quick-tests test-full mutants bench reproduce docs notebooks lock clean

# The interpreter that makes .venv; afterwards only .venv is used. Choose with `make PYTHON=python3.12`.
# Asked to run, not only to exist: version managers leave names that point nowhere.
ifndef PYTHON
PYTHON := $(if $(shell python3.11 -c 'print(1)' 2>/dev/null),python3.11,python3)
endif
BIN := .venv/bin
STAMP := .venv/.stamp
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check

# Data sets that lie beside the working tree are used as they are; a TACIT_DATA of yours wins.
ifndef TACIT_DATA
BESIDE := $(shell cd "$(CURDIR)/../shared/data" 2>/dev/null && pwd)
ifdef BESIDE
export TACIT_DATA := $(BESIDE)
endif
endif

help: ## List these targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Make .venv with Tacit and its tools, once

$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Tacit needs Python 3.11 or later, but $(PYTHON) is" \
	    "$$("$(PYTHON)" --version 2>&1 || true): try 'make setup PYTHON=/path/to/python3.11'" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Making .venv (a minute or two, once)"; "$(PYTHON)" -m venv .venv; }
	@$(PIP) install --upgrade pip
	@$(PIP) install -e ".[dp,excel,flower,metrics,mlflow,notebook,onnx,sql,tensorboard,torch,trees,tune,wandb,xgboost]" --group dev --group bench --group docs -c constraints.txt
	@touch $@

run: setup ## The main job: federate, compare, report
	@$(BIN)/tacit run

federation: setup ## The same on Flower: a SuperLink and 3 SuperNodes on this machine
	@$(BIN)/python examples/federation.py

test: setup ## Lint, types, room order and all tests but the slow ones
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory -j 2 types quick-tests

types: setup
	@$(BIN)/mypy

# The summary names the tests that were skipped, and why (-rs).
# Tests come in random order; `--randomly-seed=last` repeats the order of the last session.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --durations=20 -rs

quick-tests: setup
	@$(PYTEST) -m "not slow"

test-full: setup ## All tests, the slow ones too
	@$(PYTEST)

mutants: setup ## Put faults into the code one at a time: do the tests notice?
	@$(BIN)/python -m tests.mutants

bench: setup ## Measure Tacit beside the packages people use today
	@$(BIN)/tacit bench all

reproduce: setup ## Repeat the papers' tables, beside other work; goes on where it was stopped
	@nice -n 10 $(BIN)/tacit reproduce all

docs: setup ## Build the documentation into docs/_build/html, from scratch
	@rm -rf docs/_build docs/api
	@$(BIN)/python docs/generate.py
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

notebooks: setup ## Execute the notebooks of docs/ and write them back
	@$(BIN)/python docs/notebooks/execute.py

lock: setup ## Write the installed versions into constraints.txt
	@{ echo '# Versions with which the tests last passed; re-made by `make lock`.'; \
	   $(BIN)/python -m pip freeze --exclude-editable | grep -v -e ' @ ' -e 'file:' | sed 's/+cpu$$//'; } > constraints.new
	@mv constraints.new constraints.txt
	@touch $(STAMP)

clean: ## Remove all that can be made again, .venv too; run folders stay
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache docs/_build docs/api dist build
	@find src tests benchmarks docs examples reproductions -name __pycache__ -type d -prune -exec rm -rf {} +
