# Three commands do everything on a machine with Python ≥ 3.11 and make:
#   make demo    what trueflops is for
#   make test    the tests
#   make web     the same answers in a browser
# Each makes the .venv it needs with pip.

PYTHON ?= python3
# Processes that the tests run on: one a core.
WORKERS ?= auto
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# More flags of `trueflops web`, as WEB='--port 9000 --no-open'.
WEB ?=

.PHONY: demo web test check tiny site bench bench-cpu replay truth clean

demo: .venv/base
	@$(BIN)/python -m trueflops.cli.demo

web: .venv/web
	@$(BIN)/trueflops web $(WEB)

test: .venv/test
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

tiny: .venv/test
	$(BIN)/python -m pytest tests/test_tiny.py

check: .venv/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation, in both languages: build/site/index.html
site: .venv/site
	$(BIN)/python docs/site_pages.py

# Other people's tables, which are not ours to carry: fetched, converted and checked into truth/others.
truth: .venv/truth
	$(BIN)/python truth/fetch.py

# Which predictions this working tree moves, and by how much.
replay: .venv/test
	$(BIN)/python benchmarks/replay.py

bench: .venv/base
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/plans_per_second.py

# Predictions beside real steps on this CPU. The machine must be quiet, so no test asks for it.
bench-cpu: .venv/test
	@mkdir -p build
	$(BIN)/trueflops measure --device cpu --budget 75s --fresh -o build/cpu.json
	$(BIN)/python benchmarks/small_llamas.py build/cpu.json
	$(BIN)/python benchmarks/captured_on_cpu.py build/cpu.json

.venv/base: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --editable .
	@touch $@

.venv/web .venv/test .venv/check .venv/truth .venv/site: .venv/base constraints.txt
	$(PIP) --constraint constraints.txt --editable '.[$(@F)]'
	@touch $@

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
