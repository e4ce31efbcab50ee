# A short front of CMake and Ninja. `make help` lists the targets.
BUILD      ?= build
PREFIX     ?= /usr/local
JOBS       ?= $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS  ?= 2
CMAKE_ARGS ?=
BENCH_BUDGET ?= 1800
BENCH_JSON ?= $(BUILD)/bench.json
CTEST       = ctest --output-on-failure -j$(TEST_JOBS)
CONFIGURE   = cmake -S . -G Ninja
C_FILES     = tests/structure/layout --list

.DEFAULT_GOAL := build
.PHONY: help deps configured build tool test test-cuda sanitize-cuda test-peers quickstart bench docs exports format lint asan tsan test-arm plain install clean

help:           ## this list
	@awk -F '[:#]+' '/^[a-z-]+:.*##/ { printf "  make %-14s%s\n", $$1, $$NF }' Makefile

deps:           ## install what is missing (Debian, Ubuntu)
	@scripts/deps

configured:
	@if [ ! -f $(BUILD)/build.ninja ] || [ -n "$(CMAKE_ARGS)" ]; then $(CONFIGURE) -B $(BUILD) $(CMAKE_ARGS); fi

build: configured ## the library, the tool, tests, examples and benchmarks, into build/
	@cmake --build $(BUILD) -j $(JOBS)

tool: configured ## the library and the tool alone, which take less than half of the time
	@cmake --build $(BUILD) -j $(JOBS) --target aril aril_tool

test: deps      ## build, then run every test
	@$(MAKE) --no-print-directory build
	@cd $(BUILD) && $(CTEST)

test-cuda:      ## build, then run the tests on a GPU, where there is one
	@$(MAKE) --no-print-directory build
	@cd $(BUILD) && $(CTEST) -j$(JOBS) -C Cuda -L cuda

sanitize-cuda:  ## build, then run every op's kernels under compute-sanitizer, on a GPU
	@$(MAKE) --no-print-directory build
	@scripts/sanitize-cuda $(BUILD) --jobs $(JOBS)

test-peers:     ## compare with other frameworks, installed into build/peers
	@scripts/deps --test
	@$(MAKE) --no-print-directory build
	@[ -n "$$ARIL_PEERS_VENV" ] || bench/setup $(BUILD)/peers
	@export ARIL_PEERS_VENV=$${ARIL_PEERS_VENV:-$(abspath $(BUILD))/peers} && export PATH="$$ARIL_PEERS_VENV/bin:$$PATH" && \
		cd $(BUILD) && $(CTEST) -C Peers -L peers

quickstart: deps ## build the tool, train LeNet-5 on Fashion-MNIST, and use it
	@$(MAKE) --no-print-directory tool
	@scripts/quickstart $(BUILD)/bin/aril quickstart

bench: build    ## Aril beside PyTorch, Keras and onnxruntime, for BENCH_BUDGET seconds; then LeNet-5's accuracy
	@[ -n "$$ARIL_PEERS_VENV" ] || bench/setup $(BUILD)/peers
	@ARIL_PEERS_VENV=$${ARIL_PEERS_VENV:-$(BUILD)/peers} bench/compare --aril $(BUILD)/bin/aril \
		--budget $(BENCH_BUDGET) --json $(BENCH_JSON)
	@$${ARIL_PEERS_VENV:-$(BUILD)/peers}/bin/python bench/accuracy --aril $(BUILD)/bin/aril

docs: build     ## write the generated pages of docs/, and the API reference into build/reference/
	@[ ! -e $(BUILD)/lib/aril/libaril_cuda.so ] || { scripts/cuda-rows $(BUILD)/lib/aril/libaril_cuda.so && \
		$(MAKE) --no-print-directory tool; }
	@$(BUILD)/bin/aril ops --markdown > $(BUILD)/ops.md && mv $(BUILD)/ops.md docs/ops.md
	@$(BUILD)/bin/aril test-onnx --operators > $(BUILD)/onnx.md && mv $(BUILD)/onnx.md docs/onnx-operators.md
	@scripts/tables $(BUILD)/bin/aril docs/*.md
	@scripts/rooms write
	@[ ! -e $(BUILD)/reference/html/index.html ] || echo "API reference: $(BUILD)/reference/html/index.html"

exports: tool   ## write the list of exported symbols, cmake/exports.txt
	@tests/structure/exports --list $(BUILD)/lib/libaril.so > $(BUILD)/exports.txt && mv $(BUILD)/exports.txt cmake/exports.txt

format:         ## lay out the sources with clang-format
	@$(C_FILES) | xargs clang-format -i

lint:           ## clang-tidy over src and cli, and the layout checked
	@$(C_FILES) | xargs clang-format --dry-run -Werror
	@$(CONFIGURE) -B build-lint -DCMAKE_C_COMPILER=clang -DARIL_PARALLEL=pthread -DARIL_WITH_CUDA=OFF --log-level=ERROR
	@find src cli -name '*.c' -not -path 'src/backend/cuda/*' -not -path 'src/backend/opencl/*' | \
		xargs -P $(JOBS) -n 4 clang-tidy --quiet -p build-lint

asan:           ## all tests under AddressSanitizer, LeakSanitizer and UBSan, in build-asan/
	@[ -f build-asan/build.ninja ] || $(CONFIGURE) -B build-asan -DARIL_SANITIZE=address,undefined $(CMAKE_ARGS)
	@cmake --build build-asan -j $(JOBS)
	@cd build-asan && ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1 \
		UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(CTEST)

tsan:           ## the threaded tests under ThreadSanitizer, in build-tsan/
	@[ -f build-tsan/build.ninja ] || \
		$(CONFIGURE) -B build-tsan -DARIL_SANITIZE=thread -DARIL_PARALLEL=pthread -DARIL_WITH_BLAS=OFF $(CMAKE_ARGS)
	@cmake --build build-tsan -j $(JOBS)
	@cd build-tsan && TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 $(CTEST) -L threads

plain:          ## all tests without any library but C's, in build-plain/
	@[ -f build-plain/build.ninja ] || \
		$(CONFIGURE) -B build-plain -DARIL_WITH_ONEDNN=OFF -DARIL_WITH_BLAS=OFF -DARIL_WITH_ZLIB=OFF \
		-DARIL_WITH_JPEG=OFF -DARIL_WITH_PNG=OFF -DARIL_WITH_HDF5=OFF -DARIL_WITH_CURL=OFF -DARIL_WITH_CUDA=OFF $(CMAKE_ARGS)
	@cmake --build build-plain -j $(JOBS)
	@cd build-plain && $(CTEST)

test-arm:       ## the kernels on 64-bit ARM: cross-compiled into build-arm/, tests under qemu
	@scripts/deps --arm
	@[ -f build-arm/build.ninja ] || $(CONFIGURE) -B build-arm \
		-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DARIL_WITH_BLAS=OFF $(CMAKE_ARGS)
	@cmake --build build-arm -j $(JOBS) --target test_cpu test_ops test_vecmath test_dtype test_rng test_golden
	@cd build-arm && $(CTEST) -R '^(test_cpu|test_ops|test_vecmath|test_dtype|test_rng|golden_.*)$$'

install: build  ## to PREFIX (/usr/local), under DESTDIR where given
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

clean:          ## remove what was built
	@rm -rf $(BUILD) build-asan build-tsan build-plain build-lint
