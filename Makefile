# Two commands do everything: `make up` starts a cluster, `make test` proves it.
# Both install what is missing (Debian packages and the Python environment) and are quick when
# nothing is to do.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/

# Images are made once for every cluster of this checkout; kubectl is fetched where it is missing.
export MOTLEY_IMAGE_CACHE ?= $(CURDIR)/.cache/images
export PATH := $(CURDIR)/.cache/bin:$(PATH)
# Python keeps what it compiled, also where the environment says otherwise: processes start quicker.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup up down clean-cluster check lint collected test fuzz replay replay-scheduler bench

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install system packages and the Python environment (quick when nothing is to do)
	@PYTHON=$(PYTHON) tools/setup

up: setup ## Start a cluster on this machine and call the hello example through its Service
	@$(RUN)motley up
	@$(RUN)motley demo

down: ## Stop the cluster and its pods; data stays
	@if test -x $(RUN)motley; then $(RUN)motley down --pods; else echo "nothing is installed, so nothing runs"; fi

clean-cluster: ## Stop the cluster and delete its data, after asking
	@if test -x $(RUN)motley; then $(RUN)motley down --delete-data; else echo "nothing is installed"; fi

check: setup ## Format, lint, types, layers
	@$(MAKE) --no-print-directory lint

lint:
	@$(RUN)ruff format --check .
	@$(RUN)ruff check .
	@$(RUN)mypy
	@$(RUN)lint-imports

# In a fresh checkout every process of the tests would compile all of them; mypy needs one CPU only.
collected:
	@test -d tests/__pycache__ || $(RUN)pytest --collect-only --quiet >/dev/null || true # the tests say it themselves

test: setup ## Everything: checks, unit, contract, client, node and cluster tests
	@$(MAKE) --no-print-directory --jobs=2 lint collected
	@tools/test

fuzz: setup ## Look for new counter-examples: every property with thousands of random ones
	@MOTLEY_EXAMPLES=fuzz $(RUN)pytest -n 2 -m hypothesis tests/unit tests/contract

replay: setup ## Compare the API server with recorded answers of a real one, where there are any
	@tools/replay --causes 20

replay-scheduler: setup ## Compare the scheduler with recorded decisions of a real one
	@tools/replay-scheduler

bench: setup ## Print the figures of every benchmark, quickly
	@for script in $(filter-out bench/figures.py bench/apiload.py bench/onepod.py,$(wildcard bench/*.py)); do $(RUN)python $$script --quick || exit 1; done
