#!/usr/bin/env bash
# Runs all tests. The tests of the kernel programs need root and say so when they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
export REFPIPE_PYTHON="$PWD/.tools/venv/bin/python"
[ "$(id -u)" = 0 ] || echo "not root: the tests on the live kernel will be skipped; run with sudo for all of them" >&2
go vet ./...
# -p 1: packages that record the live kernel must not record each other's load on two cores.
go test -p 1 -timeout 20m "$@" ./...
