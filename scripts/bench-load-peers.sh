#!/usr/bin/env bash
# Other load generators, for scripts/bench-load.sh to run beside this one: into .tools/peers, several
# gigabytes, not needed for anything else.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tools.env
mkdir -p .tools/peers
for p in "aiperf==$AIPERF" "guidellm==$GUIDELLM"; do
	dir=.tools/peers/${p%%==*}
	[ -x "$dir/bin/pip" ] || python3 -m venv "$dir"
	"$dir/bin/pip" install --quiet --disable-pip-version-check "$p" || echo "${p%%==*} does not install here: left out" >&2
done
GOBIN=$PWD/.tools/peers go install "github.com/tsenart/vegeta/v12@$VEGETA" || echo "vegeta does not install here: left out" >&2
