#!/usr/bin/env bash
# The main job on the reference pipeline. Recording needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf out/demo # what an earlier demo left
mkdir -p out
if [ "$(id -u)" = 0 ]; then
	exec bin/stageline demo -o out/demo "$@"
fi
exec sudo bin/stageline demo -o out/demo "$@"
