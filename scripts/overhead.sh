#!/usr/bin/env bash
# What recording costs, beside what other tools cost: each part prints a table and leaves it in OUT.
# Needs root; the engine parts need `scripts/engines/sglang-omni.sh setup`, the others' columns curl, perf
# and strace (Debian: linux-perf, strace). Not part of `make test`: each part takes minutes, and means
# something only on a machine that does little else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/.." && pwd)
out=$(realpath -m "${OUT:-out/overhead}")
stageline=$repo/bin/stageline
pairs=${PAIRS:-8}
port=${PORT:-18730}
server=

usage() {
	echo "usage: overhead.sh [unrelated|refpipe|latency|cpu|others-latency|others-cpu]…   (default: all; OUT, PAIRS, PORT in the environment)" >&2
	exit 2
}

stop() {
	[ -z "$server" ] || { kill -TERM "$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
	server=
}
trap stop EXIT

# start DIR COMMAND…: a server that prints one JSON line with url and pids once it is ready.
start() {
	local dir=$1
	shift
	rm -rf "$dir"
	mkdir -p "$dir"
	"$@" >"$dir/ready.json" 2>"$dir/log" &
	server=$!
	while [ ! -s "$dir/ready.json" ]; do
		kill -0 "$server" 2>/dev/null || { echo "overhead: the server did not start: see $dir" >&2; exit 1; }
		read -rt 0.2 <> <(:) || true
	done
	url=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["url"])' "$dir/ready.json")
	pids=$(python3 -c 'import json,sys; print(",".join(map(str, json.load(open(sys.argv[1]))["pids"])))' "$dir/ready.json")
}

engine() { # COMPUTE
	start "$out/engine" "$here/engines/sglang-omni.sh" run --compute "$1" --dir "$out/engine" --port "$port"
	cat >"$out/body.json" <<'JSON'
{"request_id": "{{id}}", "model": "mock", "stream": true, "max_tokens": 4, "modalities": ["text", "audio"], "messages": [{"role": "user", "content": "{{prompt}}"}]}
JSON
	body=(--body-template "$out/body.json")
}

# compare NAME ARG…: 5 means that the noise was too large, which the table says as well.
compare() {
	local name=$1
	shift
	echo "== $name"
	"$stageline" overhead -u "$url" -p "$pids" --json "$@" >"$out/$name.json" 2>"$out/$name.log" || [ $? = 5 ] || { cat "$out/$name.log" >&2; exit 1; }
	python3 "$here/overhead/table.py" "$out/$name.json"
}

# others -c C -n N: the engine's own recorder, perf trace, strace, in fewer pairs.
others() {
	local few=$(((pairs + 1) / 2))
	mkdir -p "$out/events"
	printf 'curl -sf -XPOST -H "content-type: application/json" -d "{\\"run_id\\": \\"overhead\\", \\"event_dir\\": \\"%s\\"}" %s/start_request_profile >/dev/null
trap "curl -sf -XPOST -H content-type:application/json -d {} %s/stop_request_profile >/dev/null; exit" INT
while :; do sleep 1; done\n' "$out/events" "$url" "$url" >"$out/own.sh"
	compare "$name-own-recorder" "$@" --pairs "$few" --noise-pairs 0 --instead "exec sh $out/own.sh"
	compare "$name-perf-trace" "$@" --pairs "$few" --noise-pairs 0 --instead "exec perf trace -p {{pids}} -o /dev/null"
	compare "$name-strace" "$@" --pairs "$few" --noise-pairs 0 --instead "exec strace -f -qq -e trace=network,desc -o /dev/null -p {{pids}}"
}

part() {
	local name=$1 body=()
	case $name in
	unrelated)
		mkdir -p "$out"
		cc -O2 -o "$out/calls" "$here/overhead/calls.c"
		rm -rf "$out/unrelated"
		echo "== unrelated"
		python3 "$here/overhead/unrelated.py" "$stageline" "$out/calls" "$out/unrelated" "$pairs" | tee "$out/unrelated.txt"
		;;
	refpipe)
		start "$out/refpipe" "$repo/bin/refpipe"
		compare refpipe-c1 -c 1 -n 15 --pairs "$pairs"
		compare refpipe-c8 -c 8 -n 60 --pairs "$pairs"
		;;
	latency)
		engine sleep
		compare latency -c 1 -n 15 --pairs "$pairs" "${body[@]}"
		;;
	cpu)
		engine gil
		compare cpu -c 8 -n 40 --pairs "$pairs" "${body[@]}"
		;;
	others-latency)
		engine sleep
		others -c 1 -n 15 "${body[@]}"
		;;
	others-cpu)
		engine gil
		others -c 8 -n 20 "${body[@]}"
		;;
	*) usage ;;
	esac
	stop
}

mkdir -p "$out"
[ $# -gt 0 ] || set -- unrelated refpipe latency cpu others-latency others-cpu
for p in "$@"; do
	part "$p"
done
