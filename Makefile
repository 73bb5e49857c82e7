# Every target does all of its set-up itself; `make help` says what there is.
PYTHON ?= python3
TESTS ?= tests
# Test files that run at a time; each may use two gigabytes.
JOBS ?= 2
# Further extras to install, once: `make setup EXTRAS=gpu`.
EXTRAS ?=

.PHONY: help setup run test test-faults test-gpu test-new-stack lint

help:  ## Say what there is.
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1\t/p' Makefile | expand -t 24

setup:  ## Install the newest stack that this machine allows into .venv.
	@$(PYTHON) scripts/setup.py $(addprefix --extra ,$(EXTRAS))

run: setup  ## Run the flights pipeline on the whole year.
	@.venv/bin/strategos run examples/flights/pipeline.yaml

test: setup  ## Run the tests (TESTS=tests/components for some of them).
	@.venv/bin/pytest -n $(JOBS) --dist loadfile $(TESTS)

test-faults: setup  ## Run the tests that kill, freeze and starve processes.
	@.venv/bin/pytest -n $(JOBS) --dist loadfile -m faults $(TESTS)

test-gpu: setup  ## Run the tests that need two GPUs, on a machine that has them.
	@.venv/bin/pytest -m gpu -rs $(TESTS)

test-new-stack:  ## Run the tests on the newer stack, in a Debian 13 user space.
	@scripts/new_stack.sh $(TESTS)

lint: setup  ## Check style and formatting.
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
