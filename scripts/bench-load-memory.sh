#!/usr/bin/env bash
# A million requests in one run: the resident memory of the generator after each tenth of them.
# scripts/bench-load-memory.sh [requests [options of stageline load: -c 64 if none, --rate 6000 -c 256 for an open loop]]
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-1000000}
shift || :
[ $# -gt 0 ] || set -- -c 64
[ -x bin/stageline ] || go build -o bin/stageline ./cmd/stageline
tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null || :; exec 3>&-; rm -rf "$tmp"' EXIT
mkfifo "$tmp/in"
bin/stageline mock --until-eof --stamps=false --tokens 1 --ttft 0 <"$tmp/in" >"$tmp/url" &
exec 3>"$tmp/in" # the server ends when this closes
until [ -s "$tmp/url" ]; do read -rt 0.05 <> <(:) || :; done
bin/stageline load -u "$(cat "$tmp/url")" "$@" -n "$n" --prompt-chars 16 --max-lag 0 -o "$tmp/run" >"$tmp/out" &
pid=$!
echo "requests   resident MiB"
next=$((n / 10)) done=0 at=0
while kill -0 $pid 2>/dev/null; do
	if size=$(stat -c %s "$tmp/run/requests.jsonl" 2>/dev/null); then # only what is new is counted
		done=$((done + $({ tail -c +$((at + 1)) "$tmp/run/requests.jsonl" || :; } | head -c $((size - at)) | wc -l))) at=$size
	fi
	rss=$(awk '/VmRSS/ {printf "%.1f", $2 / 1024}' "/proc/$pid/status" 2>/dev/null || :)
	if [ "$done" -ge "$next" ] && [ -n "$rss" ]; then
		printf '%9d  %s\n' "$done" "$rss"
		next=$((next + n / 10))
	fi
	read -rt 0.5 <> <(:) || :
done
wait $pid
pid=
head -9 "$tmp/out"
