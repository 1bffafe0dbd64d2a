# Every target makes what it needs first, so each works alone in a fresh clone.
# `make` lists the targets. PYTHON=python3.12 picks the Python that `.venv` is made with.

SHELL := /bin/bash
PYTHON ?= python3
STAMP := .venv/.evr-setup.json
ENVIRONMENT := $(PYTHON) -m tools.environment
# As `source .venv/bin/activate` or `uv run --no-sync` would: our commands are on PATH.
IN_VENV := PATH="$(CURDIR)/.venv/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/.venv"

# Without byte code every process compiles several thousand modules before it does anything.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format lock perf docs gpu-check clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## Make or refresh .venv; does nothing when it is up to date

$(STAMP): uv.lock pyproject.toml $(wildcard packages/*/pyproject.toml)
	@$(ENVIRONMENT)

demo: $(STAMP) ## The whole line with a tiny model on generated and real clips; writes outputs/demo/
	@$(IN_VENV) EVR_SETUP_SECONDS="$$($(ENVIRONMENT) seconds)" python -m tools.demo

test: $(STAMP) ## All tests that need no GPU and are not slow
	@$(ENVIRONMENT) decoder
	@$(IN_VENV) python -m pytest -m "not gpu and not slow"

test-all: $(STAMP) ## All tests that need no GPU; ONLY=tests/train/test_kill.py for one suite
	@$(ENVIRONMENT) decoder
	@$(ENVIRONMENT) browser
	@$(IN_VENV) python -m pytest -m "not gpu" $(ONLY)

lint: $(STAMP) ## Formatting, lint, types, import layers, lock
	@$(IN_VENV) ruff format --check .
	@$(IN_VENV) ruff check .
	@$(IN_VENV) pyrefly check
	@$(IN_VENV) lint-imports --no-logo
	@"$$($(ENVIRONMENT) uv)" lock --check --quiet

format: $(STAMP) ## Apply formatting and the safe lint fixes
	@$(IN_VENV) ruff check --fix .
	@$(IN_VENV) ruff format .

lock: ## Re-lock after a change in a pyproject.toml, then set up; ARGS="--upgrade-package numpy"
	@"$$($(ENVIRONMENT) uv)" lock $(ARGS)
	@$(MAKE) setup

perf: $(STAMP) ## Measure the claims in perf/ and refresh docs/performance.md
	@$(IN_VENV) python -m perf.collect $(ONLY)

docs: $(STAMP) ## Refresh the generated pages in docs/
	@$(IN_VENV) python -m tools.config_reference
	@$(IN_VENV) python -m tools.benchmark_pages

gpu-check: $(STAMP) ## Is the whole line right on this GPU machine? Under 20 minutes, one JSON
	@$(IN_VENV) python -m tools.gpu_check

clean: ## Remove caches and build files; keeps .venv and outputs/
	@rm -rf .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist multirun
	@find packages tests tools perf -name __pycache__ -type d -prune -exec rm -rf {} +
