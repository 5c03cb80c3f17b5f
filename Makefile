# Two commands are enough on a fresh machine with Python 3.11 and pip: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all test-bounds lint docs fuzz bench bench-solver clean

# The stamp makes an interrupted set-up start again instead of counting as done.
.venv: .venv/.installed
.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: .venv
	$(BIN)/eesvm demo -o demo --overwrite

test: .venv
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: .venv test-bounds
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'slow or not slow'

# The compiled searches once more with every index checked: a write beyond an array would else go unnoticed.
test-bounds: .venv
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.venv/checked $(BIN)/python -m pytest -n 2 --dist load tests/test_exact_corners.py \
		tests/test_exact.py tests/test_search.py tests/test_frontier.py tests/test_neighbourhoods.py \
		tests/test_exemplars.py tests/test_mining.py tests/test_scoring.py tests/windows/test_selective_search.py

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every page anew, so that no table of contents is old; examples that have not changed are not run again. A minute or two
# the first time. Once installed it needs no network.
docs: .venv .venv/.docs-installed
	$(BIN)/sphinx-build -E -a -W --keep-going --quiet -b html docs docs/_build/html
	@echo "look at docs/_build/html/index.html"

.venv/.docs-installed: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

# Readers meet damaged files, guided by coverage: FUZZ="-runs=100000" for longer.
fuzz: .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
	$(BIN)/python fuzz/readers.py all $(FUZZ)

bench: .venv
	$(BIN)/python benchmarks/bench_search.py
	$(BIN)/python benchmarks/bench_windows.py
	$(BIN)/python benchmarks/bench_descriptors.py
	$(BIN)/python benchmarks/bench_training.py --large

# Hours; BENCH="--quick" is a quick look, BENCH="--resume FILE" can be interrupted. Without ortools CP-SAT is left out.
bench-solver: .venv .venv/bench
	$(BIN)/python benchmarks/bench_solver.py $(BENCH)

.venv/bench: | .venv
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@ --no-deps \
		highspy ortools absl-py immutabledict 'protobuf>=6.33.1,<6.34'

clean:
	rm -rf .venv demo build docs/_build docs/gallery docs/measurements .pytest_cache .ruff_cache .mypy_cache .hypothesis
