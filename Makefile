# Every target sets up the environment first, which takes a tenth of a second if it is up to date.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check bench sim chaos mutants fmt

BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 5 --dist loadfile
SEEDS ?= 500
MINUTES ?= 10
ARGS ?=
# Tests and demos start hundreds of processes. Each would compile all modules again, and take twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list the targets
	@echo "quillcast: publish/subscribe without a broker"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup:  ## create .venv with everything that the other targets need
	@scripts/bootstrap

demo: setup  ## sixteen peers, real events, three kills, and proof that nothing was lost (ARGS="--scopes", ...)
	@$(BIN)/quillcast demo $(ARGS)

test: setup  ## run the tests, in minutes (ARGS="-m 'not slow'", ...)
	@$(PYTEST) -m "not long" $(ARGS)

test-all: setup  ## run all tests, the long ones too
	@$(PYTEST) $(ARGS)

check: setup  ## lint, format check, strict types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

bench: setup  ## run the benchmarks (ARGS="--quick", ...)
	@scripts/servers
	@$(BIN)/python benchmarks/run.py $(ARGS)

sim: setup  ## simulate networks with faults (SEEDS=500)
	@$(BIN)/python -m quillcast.sim --seeds $(SEEDS) $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m quillcast.sim --hard --composed --seeds $(SEEDS))

chaos: setup  ## kill, stop and partition real processes under load; needs root (MINUTES=10 SEED=...)
	@$(BIN)/python -m tests.live.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutants: setup  ## break the protocol on purpose, and check that tests notice (ARGS="--only NAME", ...)
	@$(BIN)/python -m tests.mutants --jobs 2 $(ARGS)

fmt: setup  ## format the source and sort imports
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format
