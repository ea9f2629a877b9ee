#!/usr/bin/env bash
# The main job on the real engine: starts SGLang-Omni's pipeline with mock compute, profiles it by its
# PIDs alone, and compares with the engine's own recorder and with the messages it is known to send.
# Not part of `make test`: the engine's packages take gigabytes. Needs root and `sglang-omni.sh setup`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
out=${1:?usage: check-sglang-omni.sh OUT [-n N] [-c C] [--compute sleep|gil] [--graph aggregate|speech] [--image-bytes N] [--late SECONDS]}
shift
n=300 c=4 compute=sleep graph=aggregate image=0 port=18710 late=
while [ $# -gt 1 ]; do
	case $1 in
	-n) n=$2 ;; -c) c=$2 ;; --compute) compute=$2 ;; --graph) graph=$2 ;; --image-bytes) image=$2 ;; --port) port=$2 ;; --late) late=$2 ;;
	*) echo "check-sglang-omni: no option $1" >&2; exit 2 ;;
	esac
	shift 2
done
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || { echo "check-sglang-omni: $out is not empty" >&2; exit 2; }

"$here/sglang-omni.sh" run --compute "$compute" --graph "$graph" --dir "$out/engine" --port "$port" --record >"$out/ready.json" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
while [ ! -s "$out/ready.json" ]; do
	kill -0 "$server" 2>/dev/null || { echo "check-sglang-omni: the engine did not start: see $out/engine" >&2; exit 1; }
	read -rt 0.2 <> <(:) || true
done
field() { python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$out/ready.json" "$1"; }
# In a file: an argument may not be longer than 128 KiB.
python3 - "$image" >"$out/body.json" <<'PY'
import json, sys
body = {"request_id": "{{id}}", "model": "mock", "stream": True, "max_tokens": 4, "modalities": ["text", "audio"],
        "messages": [{"role": "user", "content": "{{prompt}}"}]}
if int(sys.argv[1]):
    body["images"] = ["x" * int(sys.argv[1])]
json.dump(body, sys.stdout)
PY
pids=$(field '",".join(map(str,d["pids"]))')
url=$(field 'd["url"]')
within=()
if [ -z "$late" ]; then
	"$repo/bin/stageline" profile -u "$url" -p "$pids" -c "$c" -n "$n" --body-template "$out/body.json" -o "$out/run" >"$out/report.txt" || [ $? = 4 ]
else
	# Attach while requests are in flight; the load's own record stays outside the run.
	"$repo/bin/stageline" load -u "$url" -c "$c" -n "$n" --body-template "$out/body.json" >"$out/load.txt" &
	load=$!
	sleep "$late"
	"$repo/bin/stageline" record -p "$pids" -o "$out/run" >"$out/record.txt" &
	recorder=$!
	wait "$load"
	kill -INT "$recorder"
	wait "$recorder"
	within=(--within)
fi
"$repo/bin/stageline" report "$out/run" --json --accept-inconclusive -o "$out/report.json" || [ $? = 4 ]
kill -TERM "$server"
wait "$server" || true
trap - EXIT
"$here/sglang-omni.sh" truth "$out/engine/recorder" >"$out/truth.jsonl"
"$repo/bin/stageline" accuracy "$out/report.json" --truth "$out/truth.jsonl" --recorder "${within[@]}" --json -o "$out/accuracy.json"
"$repo/bin/stageline" accuracy "$out/report.json" --truth "$out/truth.jsonl" --recorder "${within[@]}"
[ -n "$late" ] || python3 "$here/sglang_omni/complete.py" "$out/report.json" "$out/truth.jsonl"
