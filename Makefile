# The commands of the project; meson and ninja do the building. See CONTRIBUTING.md.
#
#   make               build everything into build/bin
#   make up, make down start and stop the whole system on this machine
#   make test          every test and check; ends with `N passed, N failed`
#   make check         the static checks alone
#   make bench         the measurements, as ratios
#   make fuzz          every fuzz target for FUZZ_SECONDS each
#   make coverage      the unit tests' coverage, in build/coverage
#   make check-clean   `make up`, `make down` and `make test` in fresh Debian 12 and 13 roots
#   make deps          install what building and running need
#   make format        clang-format everything
#   make clean         remove build/

BUILD := build
PYTHON := /usr/bin/python3
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
# What `make check-clean` runs: the Debian releases, by code name.
CLEAN_SUITES ?= bookworm trixie
# More for `make test`: for instance TEST_ARGS='--only unit,check' or '--only e2e -k sdk'.
TEST_ARGS ?=
BENCH_ARGS ?=

MAKEFLAGS += --no-print-directory

all: packages-checked $(BUILD)/build.ninja
	@ninja -C $(BUILD) -n | grep -q 'no work to do' || echo 'building …'
	@ninja -C $(BUILD) -j $(JOBS) --quiet >$(BUILD)/build.log 2>&1 || { cat $(BUILD)/build.log; exit 1; }
	@$(PYTHON) scripts/link-outputs.py $(BUILD)

packages-checked:
	@scripts/install-packages.sh --check build npm-build || { echo 'run `make deps` (or `make up`), which installs them' >&2; exit 1; }

$(BUILD)/build.ninja:
	@meson setup $(BUILD) >$(BUILD).setup.log 2>&1 && rm -f $(BUILD).setup.log || { cat $(BUILD).setup.log; rm -f $(BUILD).setup.log; exit 1; }

deps:
	@scripts/install-packages.sh run build npm-build

up: deps
	@$(MAKE) all
	@$(BUILD)/bin/parallelsandbox up

down:
	@if [ -x $(BUILD)/bin/parallelsandbox ]; then $(BUILD)/bin/parallelsandbox down; else echo 'nothing is built, so nothing runs from here'; fi

test:
	@scripts/install-packages.sh run build test npm-build npm-test
	@$(PYTHON) scripts/run-tests.py --jobs $(JOBS) $(TEST_ARGS)

check:
	@scripts/install-packages.sh build test npm-build
	@$(PYTHON) scripts/run-tests.py --jobs $(JOBS) --only check $(TEST_ARGS)

bench:
	@scripts/install-packages.sh run build test bench npm-build npm-test
	@$(MAKE) all
	@$(PYTHON) test/bench/run.py $(BENCH_ARGS)

check-clean:
	@scripts/install-packages.sh clean
	@scripts/check-clean.sh $(CLEAN_SUITES)

fuzz:
	@scripts/install-packages.sh build test npm-build
	@scripts/fuzz.sh $(FUZZ_SECONDS)

coverage:
	@scripts/install-packages.sh build test npm-build
	@scripts/coverage.sh

format:
	@git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format -i

clean:
	@rm -rf $(BUILD)

.PHONY: all packages-checked deps up down test check bench check-clean fuzz coverage format clean
