# The front door. `make demo` and `make test` are each complete in themselves on a fresh Debian 12 or 13.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BUILD := build
export JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files --cached --others --exclude-standard 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'bench/*.h' 'fuzz/*.cpp' 'fuzz/*.h')

.PHONY: help demo demo-rlhf test test-slow build tests package package-here package-amd64 package-arm64 deps check format tidy asan tsan arm64 bench bench-check bench-record fuzz docs help-texts hooks clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## build the program alone; train, tune, merge and talk to a small model, in minutes
	tools/demo/run.sh $(BUILD)

demo-rlhf: build ## correct a model that learnt from careless rows: by preferences (DPO), then by rewards (GRPO)
	tools/demo/rlhf.sh $(BUILD)

test: tests ## build the program and its tests; run every test
	tools/test.sh $(BUILD)

test-slow: tests ## the long tests too, then all under other dates, locales, users, threads, processors
	tools/deps.sh --slow || true # what is missing is counted as not run
	DANLU_SLOW=1 tools/test.sh $(BUILD)
	tools/demo/rlhf.sh $(BUILD)
	tools/test_anywhere.sh $(BUILD)
	tools/test_qemu.sh $(BUILD)
	tools/deps.sh --arm64 || true
	tools/arm64.sh test

build: deps ## build the program alone: build/danlu, its engine and its plugins
	tools/build.sh $(BUILD) release program

tests: deps ## build the program and its tests, run nothing
	tools/build.sh $(BUILD) release tests

package: package-$(or $(ARCH),here) ## Debian's package of the program, and an archive that runs anywhere, in build/package; ARCH=arm64: Arm's, in build-arm64/package

package-here package-$(shell dpkg --print-architecture 2>/dev/null): build
	tools/deps.sh --package
	tools/package.sh $(BUILD)

ifneq ($(shell uname -m),aarch64)
package-arm64: deps
	tools/deps.sh --package
	tools/deps.sh --arm64
	tools/arm64.sh package
endif

deps: ## install what is missing (apt and npm); says what it installs
	tools/deps.sh

check: ## formatting, then the rules of the house (rooms, seams, lengths, docs)
	tools/deps.sh --tools
	clang-format-19 --dry-run -Werror $(SOURCES)
	tools/build.sh $(BUILD) release test_house
	$(BUILD)/test_house

format: ## format every source file in place
	tools/deps.sh --tools
	clang-format-19 -i $(SOURCES)

tidy: ## clang-tidy over the rooms without torch (all of them: make tidy TIDY=src)
	tools/deps.sh --tools
	tools/tidy.sh $(TIDY)

asan: deps ## every test under address and undefined-behaviour sanitizers
	tools/build.sh build-asan asan tests
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 tools/test.sh build-asan

tsan: deps ## the rooms whose threads are their own under the thread sanitizer
	tools/build.sh build-tsan tsan test_base test_device
# Where addresses are drawn some are not the program's to the sanitizer; libgomp's locks are unknown to it.
	TSAN_OPTIONS=suppressions=$(CURDIR)/tools/tsan.supp OMP_NUM_THREADS=1 setarch -R tools/test.sh build-tsan -R '^(base|device)$$'

arm64: build ## the program for Arm, rooms' tests and a small model's way emulated (on x86-64)
	tools/deps.sh --arm64 || true # what is missing is counted as not run
	tools/arm64.sh test

bench: deps ## every benchmark beside its peer, in turns, into one table in bench/results
	tools/build.sh $(BUILD) bench program bench
	tools/bench.py $(BUILD)

bench-check: build ## fail if an operation uses less of this processor than was recorded
	$(BUILD)/danlu bench --threads 1 --check bench/results

bench-record: build ## record what each operation uses of this processor, for bench-check
	$(BUILD)/danlu bench --threads 1 --record bench/results

fuzz: ## run every fuzz target for 60 seconds (FUZZ_SECONDS=…)
	tools/deps.sh --tools
	tools/build.sh build-fuzz fuzz all
	tools/fuzz.sh build-fuzz

docs: build ## run the commands that README and docs show
	tools/build.sh $(BUILD) release test_house
	$(BUILD)/test_house --gtest_filter='*Docs*:Features*'

help-texts: build ## rewrite the golden help texts in tests/cli/help and the tables of docs/profiles.md
	tools/build.sh $(BUILD) release test_cli test_settings
	DANLU_UPDATE_HELP=1 $(BUILD)/test_cli --gtest_filter='Help*'
	DANLU_UPDATE_HELP=1 $(BUILD)/test_settings --gtest_filter='ProfilesPage*'

hooks: ## format check before every commit
	git config core.hooksPath tools/hooks

clean: ## remove everything that was built (.deps stays)
	rm -rf build build-asan build-tsan build-fuzz build-arm64
