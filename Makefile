# One line a goal; the work is in scripts/.
GO ?= go
PYTHON ?= .tools/venv/bin/python

.PHONY: all build generate check test test-kernels fuzz demo verdicts bench bench-load bench-load-peers venv overhead clean

all: build

build: ## bin/stageline, bin/refpipe, bin/refpipe-stage: needs Go and a C compiler
	$(GO) build -o bin/stageline ./cmd/stageline
	scripts/build-refpipe.sh

generate: ## the kernel programs and their Go bindings; needs the pinned clang (see scripts/tools.env)
	$(GO) generate ./bpf

check: ## formatting, vet, staticcheck, import rules, and that the generated files are up to date
	scripts/check.sh

test: build venv ## everything, as root on the live kernel
	scripts/test.sh

test-kernels: ## a small run and faults on Linux 6.1 and 6.12 in QEMU; 2 to 5 minutes, more on a busy host; needs no root
	scripts/kernels.sh

fuzz: ## every fuzzer for FUZZTIME (10m), JOBS (2) at once; exit 1 with the failing input
	scripts/fuzz.sh

venv: ## Python with pyzmq for the tests on real libzmq
	scripts/venv.sh

demo: build ## the whole tool on the reference pipeline; writes out/demo
	scripts/demo.sh

verdicts: build ## does the verdict name what was made slow: SEEDS="1 2 3" for more; about 3 minutes a seed
	scripts/verdicts.sh

bench: build
	scripts/bench.sh

bench-load: build ## the load generator's own error, beside its peers where bench-load-peers has put them
	scripts/bench-load.sh

bench-load-peers: ## other load generators into .tools/peers; gigabytes
	scripts/bench-load-peers.sh

overhead: build ## what recording costs, beside other tools; needs root, quiet, and many minutes (scripts/overhead.sh)
	scripts/overhead.sh

clean:
	rm -rf bin out .tools
