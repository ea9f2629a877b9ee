#!/usr/bin/env bash
# What recording costs, beside what other tools cost, in one table: OUT/table.md. Each part is a run of
# `stageline overhead` on one server and leaves OUT/PART.json; parts can be run alone, and the table holds
# those that are there. Needs root, perf and strace (Debian: linux-perf, strace); the engine parts need
# `scripts/engines/sglang-omni.sh setup`. Not part of `make test`: all of it takes about 40 minutes, and
# means something only on a machine that does little else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/.." && pwd)
out=$(realpath -m "${OUT:-out/overhead}")
stageline=$repo/bin/stageline
blocks=${BLOCKS:-10}
port=${PORT:-18730}
server=
parts=(refpipe-latency refpipe-cpu refpipe engine-latency engine-cpu unrelated)

usage() {
	echo "usage: overhead.sh [PART]…   (PART: ${parts[*]}; default: all; OUT, BLOCKS, PORT in the environment)" >&2
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
	rm -rf "$out/events"
	load=(--body-template "$out/body.json" --with "own recorder=exec python3 '$here/overhead/tool.py' own '$url' '$out/events' $pids")
}

# compare PART ARG…: 5 means that the noise was too large, which the figures say as well.
compare() {
	local name=$1
	shift
	"$stageline" overhead -u "$url" -p "$pids" --json --blocks "$blocks" "$@" \
		>"$out/$name.tmp" 2>"$out/$name.log" || [ $? = 5 ] || { cat "$out/$name.log" >&2; exit 1; }
	mv "$out/$name.tmp" "$out/$name.json"
}

# The numbers of requests make a bare load of about 6 s: several times what a tool takes to attach.
part() {
	local name=$1 load=() tools=(
		--with "perf trace=exec python3 '$here/overhead/tool.py' perf {{pids}}"
		--with "strace=exec python3 '$here/overhead/tool.py' strace {{pids}}"
	)
	echo "overhead: $name" >&2
	case $name in
	refpipe-latency)
		start "$out/refpipe" "$repo/bin/refpipe"
		compare "$name" -c 1 -n 30 "${tools[@]}"
		;;
	refpipe-cpu)
		start "$out/refpipe" "$repo/bin/refpipe" --cpu-bound
		compare "$name" -c 8 -n 160 "${tools[@]}"
		;;
	refpipe)
		start "$out/refpipe" "$repo/bin/refpipe"
		compare "$name" -c 8 -n 120
		;;
	engine-latency)
		engine sleep
		compare "$name" -c 1 -n 64 "${load[@]}" "${tools[@]}"
		;;
	engine-cpu)
		engine gil
		compare "$name" -c 8 -n 80 "${load[@]}" "${tools[@]}"
		;;
	unrelated)
		cc -O2 -o "$out/calls" "$here/overhead/calls.c"
		rm -rf "$out/unrelated"
		python3 "$here/overhead/unrelated.py" "$stageline" "$out/calls" "$out/unrelated" "$blocks" >"$out/unrelated.tmp"
		mv "$out/unrelated.tmp" "$out/unrelated.json"
		;;
	*) usage ;;
	esac
	stop
}

mkdir -p "$out"
[ $# -gt 0 ] || set -- "${parts[@]}"
for p in "$@"; do
	part "$p"
done
python3 "$here/overhead/table.py" "$out" "${parts[@]}" >"$out/table.md"
cat "$out/table.md"
