# Two commands do everything on a machine with Python ≥ 3.11 and make:
#   make demo    what trueflops is for
#   make test    the tests
# Each makes the .venv it needs with pip.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check tiny bench replay clean

demo: .venv/base
	@$(BIN)/python -m trueflops.cli.demo

test: .venv/test
	$(BIN)/python -m pytest

tiny: .venv/test
	$(BIN)/python -m pytest tests/test_tiny.py

check: .venv/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Which predictions this working tree moves, and by how much.
replay: .venv/test
	$(BIN)/python benchmarks/replay.py

bench: .venv/base
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/plans_per_second.py

.venv/base: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable .
	@touch $@

.venv/test: .venv/base constraints.txt
	$(PIP) --constraint constraints.txt --editable '.[plot,calibrate]' \
		torch==2.13.0 transformers hypothesis ml_dtypes pint pytest
	@touch $@

.venv/check: .venv/test
	$(PIP) mypy ruff
	@touch $@

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
