#!/usr/bin/env bash
# SGLang-Omni's real multi-process pipeline with mock compute, on a machine without a GPU. See README.md beside this file.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
helpers=$here/sglang_omni
venv=${SGLANG_OMNI_VENV:-$repo/.engines/sglang-omni}
disk_needed_mb=5000 # 2.9 GB stays, the rest is downloads and unpacking

usage() {
	cat >&2 <<'TEXT'
usage: sglang-omni.sh setup [DIR]
           make the virtual environment (default .engines/sglang-omni, or $SGLANG_OMNI_VENV); nothing to do when it is up to date
       sglang-omni.sh run --compute sleep|gil --dir DIR [--port P] [--scale X] [--graph aggregate|speech] [--record]
           start the pipeline; one JSON line on stdout when it is ready; runs until SIGTERM
       sglang-omni.sh truth RECORDER_DIR
           the recorder's events as truth lines on stdout
       sglang-omni.sh smoke [run options without --dir]
           start, send 20 requests at concurrency 4, stop, check the truth
TEXT
	exit 2
}

fail() {
	echo "sglang-omni: $1" >&2
	exit 1
}

find_python() {
	local candidate
	for candidate in ${PYTHON:-} python3.12 python3.11 python3; do
		if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
	fail "no Python 3.11 or 3.12 with venv found: install one (Debian: python3-venv) or name it in PYTHON"
}

check_tools() {
	local tool free_mb
	[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "the pinned packages are for Linux on x86-64; this is $(uname -s) on $(uname -m)"
	for tool in cc nm readelf; do
		command -v "$tool" >/dev/null || fail "$tool is missing: install a C compiler and binutils (they build empty stand-ins for the CUDA libraries that torch is linked against)"
	done
	mkdir -p "$venv"
	free_mb=$(df -Pm "$venv" | awk 'NR==2 {print $4}')
	[ "$free_mb" -ge "$disk_needed_mb" ] || fail "$free_mb MB free at $venv, $disk_needed_mb MB needed: free some, or name another place: setup DIR"
}

setup() {
	local stamp wanted python site
	[ $# -le 1 ] || usage
	[ $# -eq 0 ] || venv=$(realpath -m "$1")
	stamp=$venv/.installed
	wanted=$(cat "$helpers/requirements.txt" "$helpers/cuda_stubs.py" | sha256sum)
	if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
		echo "sglang-omni: $venv is up to date" >&2
		return
	fi
	check_tools
	python=$(find_python)
	echo "sglang-omni: installing into $venv (about 1 GB to download)" >&2
	"$python" -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --no-deps --disable-pip-version-check -r "$helpers/requirements.txt" \
		|| fail "pip could not install $helpers/requirements.txt: see above; run setup again when the registry can be reached"
	site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
	"$venv/bin/python" "$helpers/cuda_stubs.py" "$site"
	"$venv/bin/python" -c 'import torch, sglang_omni.serve.launcher' 2>"$venv/import.log" \
		|| fail "the engine does not import: see $venv/import.log"
	echo "$wanted" >"$stamp"
	echo "sglang-omni: ready: $("$venv/bin/python" -c 'import sglang_omni; print(sglang_omni.__version__)' 2>/dev/null) in $venv" >&2
}

need_venv() {
	[ -f "$venv/.installed" ] || fail "$venv is not set up: run $0 setup, or name the environment in SGLANG_OMNI_VENV"
}

run() {
	need_venv
	exec env PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$helpers/serve.py" "$@"
}

# Wait until the file has a line or the process has ended.
wait_ready() {
	local file=$1 pid=$2
	while [ ! -s "$file" ]; do
		kill -0 "$pid" 2>/dev/null || return 1
		read -rt 0.2 <> <(:) || true
	done
}

smoke() {
	need_venv
	local dir server url status=0
	dir=$(mktemp -d)
	"$0" run --compute sleep --port 18700 "$@" --dir "$dir" --record >"$dir/ready.json" &
	server=$!
	trap 'kill "$server" 2>/dev/null || true' EXIT
	wait_ready "$dir/ready.json" "$server" || fail "the pipeline did not start: see $dir/server.log"
	url=$("$venv/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["url"])' "$dir/ready.json")
	"$venv/bin/python" "$helpers/client.py" "$url" -n 20 -c 4 || status=1
	kill -TERM "$server"
	wait "$server" || true
	trap - EXIT
	"$venv/bin/python" "$helpers/truth.py" "$dir/recorder" >"$dir/truth.jsonl"
	"$venv/bin/python" "$helpers/client.py" --check "$dir/truth.jsonl" -n 20 || status=1
	echo "sglang-omni: files in $dir" >&2
	return "$status"
}

[ $# -ge 1 ] || usage
command=$1
shift
case $command in
setup) setup "$@" ;;
run) run "$@" ;;
truth) exec python3 "$helpers/truth.py" "$@" ;;
smoke) smoke "$@" ;;
*) usage ;;
esac
