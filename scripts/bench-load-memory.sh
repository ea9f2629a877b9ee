#!/usr/bin/env bash
# A million requests in one run: the resident memory of the generator after each tenth of them.
# scripts/bench-load-memory.sh [requests]
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-1000000}
[ -x bin/stageline ] || go build -o bin/stageline ./cmd/stageline
tmp=$(mktemp -d)
trap 'exec 3>&-; rm -rf "$tmp"' EXIT
mkfifo "$tmp/in"
bin/stageline mock --until-eof --stamps=false --tokens 1 --ttft 0 <"$tmp/in" >"$tmp/url" &
exec 3>"$tmp/in" # the server ends when this closes
until [ -s "$tmp/url" ]; do read -rt 0.05 <> <(:) || :; done
bin/stageline load -u "$(cat "$tmp/url")" -c 64 -n "$n" --prompt-chars 16 --max-lag 0 -o "$tmp/run" >"$tmp/out" &
pid=$!
echo "requests   resident MiB"
next=$((n / 10)) done=0
while kill -0 $pid 2>/dev/null; do
	[ -f "$tmp/run/requests.jsonl" ] && done=$(wc -l <"$tmp/run/requests.jsonl")
	rss=$(awk '/VmRSS/ {printf "%.1f", $2 / 1024}' "/proc/$pid/status" 2>/dev/null || :)
	if [ "$done" -ge "$next" ] && [ -n "$rss" ]; then
		printf '%9d  %s\n' "$done" "$rss"
		next=$((next + n / 10))
	fi
	read -rt 0.2 <> <(:) || :
done
wait $pid
head -3 "$tmp/out"
