#!/usr/bin/env bash
# Benchmarks in a form that benchstat compares.
set -euo pipefail
cd "$(dirname "$0")/.."
go test -run '^$' -bench . -benchmem -count "${COUNT:-5}" "$@" ./collector/... ./correlate/... ./export/... ./loadgen/...
scripts/bench-loss.sh
