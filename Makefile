# `make demo` and `make test` work on a clean clone: they set up what they need first.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
JOBS ?= 2
PYTEST_ARGS ?=

# The environment is remade when a requirement, a distribution's metadata or the checkout's
# place changes. The stamp's name is a checksum of all that, so a current one costs nothing.
REQUIREMENTS := requirements-dev.txt pyproject.toml Makefile \
                $(sort $(wildcard backends/*/pyproject.toml)) kernels/pyproject.toml conformance/pyproject.toml
CHECKSUM := $(shell { pwd; $(PYTHON) --version; cat $(REQUIREMENTS); echo $(TORCH); } | cksum | tr ' ' '-')
STAMP := $(VENV)/.tilecore-$(CHECKSUM)
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

.PHONY: setup demo test test-all bench lint format types clean

setup: $(STAMP)

$(STAMP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	rm -f $(VENV)/.tilecore-*
	touch $@

demo: setup
	$(BIN)/tilecore demo

# A selection of conformance for every backend and level, then the emulated suite: the whole for one
# backend (4 minutes on two cores), a twentieth for the others. What the whole suite
# holds is not run twice: all of `make test` stays in 20 minutes.
EMULATED := conformance/tilecore_conformance --level emulate
WHOLE := conformance/tilecore_conformance/suite/test_cases.py::test_case[cuda_ampere-emulate-
test: setup
	$(PYTEST) -m "not slow" --deselect "$(WHOLE)"
	$(PYTEST) $(EMULATED) --backend cuda_ampere
	$(PYTEST) $(EMULATED) --backend cuda_hopper --backend rocm_cdna3 --shard 1/20

test-all: setup
	$(PYTEST)

bench: setup
	$(BIN)/tilecore bench

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup
	$(BIN)/pyright

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
