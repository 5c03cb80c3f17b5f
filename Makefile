# Two commands are enough on a fresh machine with Python 3.11 and pip: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Bytecode is kept in this folder even where the environment says otherwise: else every process compiles package and tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-all test-bounds lint docs fuzz soak bench bench-solver clean

# Each stamp makes an interrupted set-up start again instead of counting as done. `make demo` installs what it runs,
# `make test` what the tests need besides; torch, which only fine-tuning needs, comes with `make .venv/.dev`.
.venv: .venv/.test

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[vision]'
	touch $@

.venv/.test: .venv/.installed
	$(PIP) --editable '.[test]'
	touch $@

.venv/.lint: .venv/.installed
	$(PIP) --editable '.[lint]'
	touch $@

.venv/.dev: .venv/.test .venv/.lint
	$(PIP) --editable '.[dev]'
	touch $@

demo: .venv/.installed
	$(BIN)/eesvm demo -o demo --overwrite

# The inner loop: style, types, and the tests of what matters most.
check: lint .venv/.test
	$(BIN)/python -m pytest -n 2 -q tests/test_architecture.py tests/test_boxes.py tests/test_structures.py \
		tests/calibration/test_problem.py tests/calibration/test_kernels.py tests/calibration/test_exact_corners.py \
		tests/exemplars/test_scoring.py tests/metrics tests/cli/test_stages.py tests/windows

# A twentieth of the random problems, the first of many cases, nothing that takes long; EXAMPLES=all is everything but what
# takes minutes.
test: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: .venv/.dev test-bounds
	EXAMPLES=all $(BIN)/python -m pytest -n 2 --dist loadfile -m 'slow or not slow'

# The compiled searches once more with every index checked: a write beyond an array would else go unnoticed.
test-bounds: .venv/.test
	EXAMPLES=all NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.venv/checked $(BIN)/python -m pytest -n 2 --dist load \
		tests/calibration/test_exact_corners.py tests/calibration/test_exact.py tests/calibration/test_search.py \
		tests/calibration/test_frontier.py tests/calibration/test_neighbourhoods.py tests/calibration/test_columns.py \
		tests/calibration/test_core_search.py tests/calibration/test_core_shares.py \
		tests/exemplars/test_svms.py tests/exemplars/test_mining.py tests/exemplars/test_scoring.py \
		tests/exemplars/test_coordinate.py tests/exemplars/test_newton.py tests/exemplars/test_solver.py \
		tests/exemplars/test_working_sets.py tests/exemplars/test_row_products.py tests/exemplars/test_stretching.py \
		tests/windows/test_selective_search.py

lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every page anew, so that no table of contents is old; examples that have not changed are not run again. A minute or two
# the first time. Once installed it needs no network.
docs: .venv/.docs
	$(BIN)/python docs/_ext/road_map.py
	$(BIN)/sphinx-build -E -a -W --keep-going --quiet -b html docs docs/_build/html
	@echo "look at docs/_build/html/index.html"

.venv/.docs: .venv/.installed
	$(PIP) --editable '.[docs]'
	touch $@

# Readers meet damaged files, guided by coverage: FUZZ="-runs=100000" for longer.
fuzz: .venv/.test
	$(PIP) atheris
	$(BIN)/python fuzz/readers.py all $(FUZZ)

# Random problems against an oracle, in all cores: ten minutes, or SOAK="--minutes 60".
soak: .venv/.test
	$(BIN)/python fuzz/soak.py $(SOAK)

bench: .venv/.test
	$(BIN)/python benchmarks/bench_search.py
	$(BIN)/python benchmarks/bench_windows.py
	$(BIN)/python benchmarks/bench_descriptors.py
	$(BIN)/python benchmarks/bench_training.py --large

# Hours; BENCH="--quick" is a quick look, BENCH="--resume FILE" can be interrupted. Without ortools CP-SAT is left out.
bench-solver: .venv/.test .venv/bench
	$(BIN)/python benchmarks/bench_solver.py $(BENCH)

.venv/bench: | .venv/.test
	-$(PIP) --target $@ --no-deps \
		highspy ortools absl-py immutabledict 'protobuf>=6.33.1,<6.34'

clean:
	rm -rf .venv demo build docs/_build docs/gallery docs/measurements .pytest_cache .ruff_cache .mypy_cache .hypothesis
