#!/usr/bin/env bash
# Runs every fuzzer of the tree for a while and prints one line for each. Exit 1 with the path of the
# failing input when one has found something; go test writes that input under the package's
# testdata/fuzz, where it is a regression test from then on.
#
#   FUZZTIME=10m    time of each fuzzer
#   JOBS=2          fuzzers at once, each with one worker
#   FUZZ=REGEXP     only fuzzers whose name matches
#
# Logs are kept in out/fuzz. What was found interesting is kept in Go's build cache and is the start
# of the next run (go clean -fuzzcache forgets it).
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${FUZZTIME:-10m} OUT=$PWD/out/fuzz
mkdir -p "$OUT"
# Some fuzzers write files: on a busy disk one may wait longer than the 10 s that Go gives an input.
# Programs stay where they can be run.
if [ -w /dev/shm ]; then
	export GOTMPDIR=${GOTMPDIR:-${TMPDIR:-/tmp}}
	TMPDIR=$(mktemp -d -p /dev/shm)
	export TMPDIR
	trap 'rm -rf "$TMPDIR"' EXIT
fi

# fuzzers prints the package and the name of each, by the test files that this platform builds.
fuzzers() {
	local dir file
	go list -f '{{$d := .Dir}}{{range .TestGoFiles}}{{$d}} {{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}} {{.}}{{"\n"}}{{end}}' ./... |
		while read -r dir file; do
			[ -z "$file" ] || sed -nE "s|^func (Fuzz[A-Za-z0-9_]*)\(.*|.${dir#"$PWD"} \1|p" "$dir/$file"
		done
}

# one PACKAGE NAME runs one fuzzer. A run whose time is up while an input is being shrunk ends with
# "context deadline exceeded" and names no input: that is no finding. One that spends its time on the
# inputs it knew before has tried nothing new, which is no success. A worker that died may leave an
# input that passes alone (golang.org/issue/56238); it is reported all the same.
# Go shrinks each input that reaches something new for up to a minute. Where what is reached differs
# from call to call, as with pools and garbage collection, that never ends and most of the time is gone.
one() {
	local pkg=$1 name=$2 log rc=0 said input found=none
	log=$OUT/$(echo "${pkg#./}" | tr / .).$name.log
	go test "$pkg" -run '^$' -fuzz "^$name\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 10x -parallel 1 >"$log" 2>&1 || rc=$?
	said=$(grep -oE 'elapsed: [^,]+, execs: [0-9]+' "$log" | tail -n 1) || true
	input=$(sed -nE 's/^ *(Failing input written to |failure while testing seed corpus entry: )(testdata.fuzz.)?/testdata\/fuzz\//p' "$log" | tail -n 1)
	if [ $rc != 0 ] && [ -n "$input" ]; then
		found="FOUND $pkg/$input (it passes alone), see $log"
		go test "$pkg" -run "^$name\$/^${input##*/}\$" >>"$log" 2>&1 || found="FOUND $pkg/$input, see $log"
	elif [ $rc != 0 ] && ! { [ -n "$said" ] && grep -q '^ *context deadline exceeded' "$log"; }; then
		found="FAILED, see $log"
	elif [ -z "$said" ]; then
		rc=1 found="NOT BEGUN within $FUZZTIME: set a longer FUZZTIME"
	else
		rc=0
	fi
	printf '%-24s %-16s %10s %12s executions  %s\n' "$pkg" "$name" "$(sed -E 's/elapsed: ([^,]*).*/\1/' <<<"$said")" "${said##* }" "$found"
	return $rc
}
export -f one

list=$(fuzzers | grep -E "[^ ]+ .*(${FUZZ:-})" || true)
[ -n "$list" ] || { echo "fuzz: no fuzzer matches '${FUZZ:-}'" >&2; exit 1; }
# xargs ends with 123 when one of them failed; the others still run.
echo "$list" | xargs -P "${JOBS:-2}" -L 1 bash -c 'one "$@" || exit 1' fuzz || { echo "fuzz: a fuzzer above has found something, or did not run" >&2; exit 1; }
