#!/usr/bin/env bash
# How wrong the load generator is, beside its peers where scripts/bench-load-peers.sh has put them,
# all against the same server of known times: scripts/bench-load.sh [--streams N,…] [--rates R,…]
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x bin/stageline ] || go build -o bin/stageline ./cmd/stageline
exec python3 scripts/bench_load.py "$@"
