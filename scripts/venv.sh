#!/usr/bin/env bash
# Makes .tools/venv with pyzmq (its wheel carries libzmq) and msgpack, once.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tools.env
want="pyzmq==$PYZMQ msgpack==$MSGPACK"
stamp=.tools/venv/.stageline
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0
command -v python3 >/dev/null || { echo "python3 is missing: install it (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
rm -rf .tools/venv
mkdir -p .tools
python3 -m venv .tools/venv || { echo "python3 cannot make a virtual environment: install python3-venv" >&2; exit 1; }
# shellcheck disable=SC2086
.tools/venv/bin/pip install -q --disable-pip-version-check $want
echo "$want" >"$stamp"
