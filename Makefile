# Everything happens in one virtual environment, made when first needed: make test VENV=/somewhere/else PYTHON=python3.12
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

bin := $(abspath $(VENV))/bin
wheels := $(abspath $(VENV))/wheels
pip := $(bin)/pip install --quiet --constraint constraints.txt
sources := pyproject.toml setup.py constraints.txt $(wildcard fastcov/* cpu/*.py* cpu/*.h cpu/codegen/*.py kernels/*.py)
sources := $(filter-out %/__pycache__ cpu/opcodes.h cpu/straight.h,$(sources))

.PHONY: demo check test lint types bench coverage properties sanitize races fuzz mutations nightly clean

demo: $(VENV)/installed  ## the main job; ARGS="--events 100000" for example
	$(bin)/fastcov demo $(ARGS)

check: $(VENV)/installed  ## check momenta; ARGS=file.npz
	$(bin)/fastcov check $(ARGS)

# Run in tests/, where nothing of the source tree hides the installed package.
test: $(VENV)/tests  ## ARGS="-k waves" for example
	cd tests && $(bin)/python -c "import fastcov; print('testing', fastcov.__file__)"
	cd tests && $(bin)/pytest $(ARGS)
	cd tests && TRITON_INTERPRET=1 $(bin)/pytest test_kernels.py

lint: $(VENV)/lint
	$(bin)/ruff check .
	$(bin)/ruff format --check .

types: $(VENV)/lint $(VENV)/tests
	cd $(VENV) && $(bin)/mypy --config-file $(abspath pyproject.toml) --package fastcov

bench: $(VENV)/bench
	cd benchmarks && $(bin)/python run.py $(ARGS)

coverage: $(VENV)/coverage
	cd tests && $(bin)/pytest --cov --cov-config=../pyproject.toml --cov-report=term-missing:skip-covered $(ARGS)

properties: $(VENV)/tests  ## more generated cases; FASTCOV_EXAMPLES=10000 for even more
	cd tests && FASTCOV_EXAMPLES=$${FASTCOV_EXAMPLES:-2000} $(bin)/pytest test_properties.py $(ARGS)

# A build with sanitizers stops at the first access outside an array and at undefined behaviour.
sanitized := $(abspath $(VENV))/sanitized
under_sanitizers = LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

sanitize fuzz: export FASTCOV_SANITIZE = address,undefined

sanitize: $(VENV)/made
	$(MAKE) VENV=$(sanitized) $(sanitized)/plain
	cd tests && $(under_sanitizers) $(sanitized)/bin/python -m pytest --capture=sys \
		test_cpu.py test_straight.py test_bounds.py test_fuzz.py test_arrays.py test_dense.py test_waves.py $(ARGS)

# ThreadSanitizer knows GNU's OpenMP not: LLVM's takes its place and explains itself through Archer (libomp-dev).
raced := $(abspath $(VENV))/raced
archer ?= $(lastword $(sort $(wildcard /usr/lib/llvm-*/lib/libarcher.so)))

races: export FASTCOV_SANITIZE = thread

races: $(VENV)/made
	test -n "$(archer)" || { echo "no libarcher.so found; make races archer=/path/to/it" >&2; exit 1; }
	$(MAKE) VENV=$(raced) $(raced)/plain
	cd tests && LD_PRELOAD="$$($(CC) -print-file-name=libtsan.so) $(dir $(archer))libomp.so.5" \
		OMP_TOOL_LIBRARIES=$(archer) TSAN_OPTIONS="ignore_noninstrumented_modules=1 report_signal_unsafe=0" \
		$(raced)/bin/python -m pytest --capture=sys test_cpu.py test_processes.py -k "thread or sum or at_once or share" $(ARGS)

fuzz: $(VENV)/made  ## ARGS="--count 10000" for fewer than a million
	$(MAKE) VENV=$(sanitized) $(sanitized)/plain
	cd tests && $(under_sanitizers) $(sanitized)/bin/python fuzz_tapes.py $(ARGS)

mutations: $(VENV)/mutations
	cd tests && $(bin)/python mutations.py $(ARGS)

nightly: sanitize fuzz properties coverage mutations

clean:
	rm -rf $(VENV) build dist *.egg-info cpu/_executor.c cpu/opcodes.h cpu/straight.h

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

# The tree's build/ may hold modules that are gone by now, so the wheel is made without it.
$(VENV)/installed: $(VENV)/made $(sources)
	rm -rf build $(wheels)
	$(bin)/pip wheel --quiet --no-deps --wheel-dir $(wheels) .
	$(pip) --force-reinstall --no-deps $(wheels)/*.whl
	$(pip) $(wheels)/*.whl
	touch $@

$(VENV)/tests: $(VENV)/installed
	$(pip) "$$(echo $(wheels)/*.whl)[test,gpu,jax]"
	touch $@

$(VENV)/plain: $(VENV)/installed
	$(pip) "$$(echo $(wheels)/*.whl)[test]"
	touch $@

$(VENV)/coverage: $(VENV)/tests
	$(pip) pytest-cov
	touch $@

$(VENV)/mutations: $(VENV)/tests
	$(pip) "Cython>=3" "setuptools>=77"
	touch $@

$(VENV)/bench: $(VENV)/installed
	$(pip) "$$(echo $(wheels)/*.whl)[test,bench]"
	touch $@

$(VENV)/lint: $(VENV)/made constraints.txt
	$(pip) mypy ruff
	touch $@
