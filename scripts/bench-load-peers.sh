#!/usr/bin/env bash
# Other load generators, for scripts/bench-load.sh to run beside this one: into .tools/peers, about
# 5 GB, not needed for anything else. The folder may be moved or linked to.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tools.env
peers=$PWD/.tools/peers
mkdir -p "$peers/bin"

# venv NAME CHECK PACKAGE…: PACKAGE… into an environment of its own; CHECK is what must import then.
# A list scripts/peers/NAME.txt is all that the client imports, and is installed as it stands: guidellm and vllm
# ask for torch and through it, vllm also by itself, for gigabytes of CUDA libraries that no client needs.
venv() {
	local name=$1 check=$2 py=$peers/$1/bin/python list=scripts/peers/$1.txt log=$peers/$1.log
	shift 2
	[ -x "$py" ] || python3 -m venv "$peers/$name"
	pip=("$py" -m pip install --quiet --disable-pip-version-check)
	if {
		if [ -f "$list" ]; then
			"${pip[@]}" --no-deps "$@" "torch==$PEERS_TORCH" -r "$list" &&
				"$py" scripts/engines/sglang_omni/cuda_stubs.py "$("$py" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
		else
			"${pip[@]}" "$@"
		fi && "$py" -c "import $check"
	} >"$log" 2>&1; then
		echo "$name: $*" >&2
	else
		echo "$name: does not install here: $(grep -v '^ *$' "$log" | tail -n 1); all of it in $log" >&2
		rm -rf "${peers:?}/$name"
	fi
}

# binary NAME COMMAND…: COMMAND… puts NAME into .tools/peers/bin.
binary() {
	local name=$1
	shift
	"$@" >"$peers/$name.log" 2>&1 && echo "$name: $peers/bin/$name" >&2 ||
		echo "$name: does not install here: $(tail -n 1 "$peers/$name.log"); all of it in $peers/$name.log" >&2
}

venv aiperf aiperf "aiperf==$AIPERF"
venv guidellm guidellm.entrypoints "guidellm==$GUIDELLM"
venv vllm vllm.benchmarks.serve "vllm==$VLLM"
binary vegeta env GOBIN="$peers/bin" go install "github.com/tsenart/vegeta/v12@$VEGETA"
