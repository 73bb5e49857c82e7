# Every target does all of its set-up itself; `make help` says what there is.
PYTHON ?= python3
TESTS ?= tests
# Test files that run at a time, each with up to two gigabytes. Tests wait for processes
# a fifth of the time: three files keep two cores busy.
JOBS ?= 3
# Files in the order of tests/support/register.py, the longest first.
PARALLEL = -n $(JOBS) --dist loadfile --no-loadscope-reorder
# For the first build of the cluster's programs, before `test-cluster` goes on without it.
BUILD_SECONDS ?= 1800
# Further extras to install, once: `make setup EXTRAS=gpu`.
EXTRAS ?=

.PHONY: help setup engine cluster cluster-down run test test-long test-formats test-matrix test-faults test-engine test-cluster test-install test-image test-pages test-gpu test-stack test-new-stack bench site lint

help:  ## Say what there is.
	@sed -n 's/^\([a-z-]*\):.*  ## /  make \1\t/p' Makefile | expand -t 24

setup:  ## Install the newest stack that this machine allows into .venv.
	@$(PYTHON) scripts/setup.py $(addprefix --extra ,$(EXTRAS))

engine: setup  ## Download Flink and Beam's job server (150 MB, by Maven, once).
	@.venv/bin/strategos engine setup

cluster: setup  ## Start a Kubernetes with Kubeflow (as root; first builds it, once).
	@.venv/bin/python tests/lab/kubernetes up

cluster-down: setup  ## End it, whatever state it is in.
	@.venv/bin/python tests/lab/kubernetes down

run: setup  ## Run the flights pipeline on the whole year.
	@.venv/bin/strategos run examples/flights/pipeline.yaml

test: setup  ## Run the tests (TESTS=tests/components for some of them).
	@.venv/bin/pytest $(PARALLEL) $(TESTS)

test-long: setup  ## Run further cases of what `make test` samples.
	@.venv/bin/pytest $(PARALLEL) -m long -rs $(TESTS)

test-formats: setup  ## Run further cases of the input: formats, stores, queries.
	@.venv/bin/pytest $(PARALLEL) -m formats -rs $(TESTS)

test-matrix: setup  ## Train each pair of features beside plain Keras (10 to 40 minutes).
	@.venv/bin/pytest $(PARALLEL) -m matrix -rs $(TESTS)

test-faults: setup  ## Run the tests that kill, freeze and starve processes.
	@.venv/bin/pytest $(PARALLEL) -m faults -rs $(TESTS)

# Exit code 2: no Java or no Maven; the tests say so and are skipped.
test-engine: setup  ## Run the tests of run.engine on a real Flink cluster.
	@.venv/bin/strategos engine setup || [ $$? = 2 ]
	@.venv/bin/pytest $(PARALLEL) -m engine -rs $(TESTS)

# Exit code 2: no root, Go or package, or the first build takes longer than the limit; the
# tests say so and are skipped.
test-cluster: setup  ## Run the tests on a real Kubernetes with Kubeflow, and a real Slurm.
	@.venv/bin/python tests/lab/kubernetes build --limit $(BUILD_SECONDS) || [ $$? = 2 ]
	@.venv/bin/pytest $(PARALLEL) -m cluster -rs $(TESTS)

test-install: setup  ## Install the wheel in a project of its own, and run the tutorial there.
	@.venv/bin/pytest -n 0 -m install -rs $(TESTS)

test-image: setup  ## Build the images of kubeflow/Dockerfile, and run the flights in them on Kubeflow.
	@.venv/bin/python tests/lab/kubernetes build || [ $$? = 2 ]
	@.venv/bin/pytest -n 0 -m image -rs $(TESTS)

test-pages: setup  ## Open reports and strategos ui in a real Chromium (apt-get install chromium).
	@.venv/bin/pytest -n 0 -m pages -rs $(TESTS)

# oneDNN on, as in use: it has changed graphs that run on GPUs.
test-gpu: export TF_ENABLE_ONEDNN_OPTS = 1
test-gpu: setup  ## Run the checks that need one GPU or two (first: make setup EXTRAS=gpu).
	@folder=$$(mktemp -d) && .venv/bin/python tests/lab/gpu/one_gpu.py bundle $$folder && \
	  .venv/bin/python $$folder/one_gpu.py check; code=$$?; rm -rf $$folder; exit $$code
	@.venv/bin/pytest -m gpu -rs $(TESTS)

test-stack: setup  ## Run what differs by stack on this one.
	@.venv/bin/pytest $(PARALLEL) -m stack -rs $(TESTS)

test-new-stack:  ## Run what differs by stack on the newer one, in a Debian 13 user space.
	@scripts/new_stack.sh $(if $(TESTS:tests=),test,test-stack) $(TESTS)
	@scripts/new_stack.sh test-install tests/e2e

bench: setup  ## Compare whole runs with TFX's own and with a script (half an hour).
	@.venv/bin/python -W ignore benchmarks/whole_run

# Each warning is an error: a page that no list has, a link or an anchor that leads nowhere.
site: setup  ## Build the documentation as a site, in build/site.
	@.venv/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -c docs . build/site
	@echo "build/site/README.html"

lint: setup  ## Check style, formatting, types and prose.
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy
	@.venv/bin/python scripts/prose.py
