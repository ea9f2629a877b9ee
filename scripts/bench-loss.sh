#!/usr/bin/env bash
# How many records a second are recorded before the first is lost, and whether the loss is accounted
# for exactly: less than a minute on two cores, as root. See scripts/lossbench.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
	echo "bench-loss: skipped: recording needs root; run it with sudo" >&2
	exit 0
fi
mkdir -p bin
dir=$(mktemp -d bin/loss.XXXXXX) # on the disk that the project is on: /tmp may be memory
trap 'rm -rf "$dir"' EXIT
go build -o bin/stageline ./cmd/stageline
go build -o bin/lossbench ./scripts/lossbench
two=()
if [ "$(nproc)" -gt 2 ]; then
	# The first two that this process may use, of a list such as 0-3,8 or 0,2.
	two=(taskset -c "$(taskset -cp $$ | sed 's/.*: //' | awk -F '[,-]' '{print $1 "," ($0 ~ /^[0-9]+-/ ? $1 + 1 : $2)}')")
fi
"${two[@]}" bin/lossbench bin/stageline "$dir"
