#!/usr/bin/env bash
# Does the verdict name what was made slow? Each stage in turn, a slow hop, a stalled reader, a big
# payload that is serialised upstream, and nothing; prints a table and fails when one is wrong.
# Recording needs root.
#   SEEDS="1 2 3" N=150 C=8 scripts/verdicts.sh
#   DEMO="bin/stageline demo" replaces the command.
set -euo pipefail
cd "$(dirname "$0")/.."
read -ra seeds <<<"${SEEDS:-1}"
n=${N:-150} c=${C:-8}
demo=${DEMO:-bin/stageline demo}
out=out/verdicts
rm -rf "$out"
mkdir -p "$out"
wrong=0

# try NAME SEED KIND WHERE CAUSE OPTION…: an empty cause matches any.
try() {
	local name=$1-s$2 seed=$2 want="$3 $4" cause=$5 got
	shift 5
	if ! $demo -o "$out/$name" --seed "$seed" --json "$@" >"$out/$name.json" 2>"$out/$name.log"; then
		echo "$name: the run failed, see $out/$name.log" >&2
		wrong=$((wrong + 1))
		return
	fi
	got=$(jq -r '.bottleneck | "\(.kind) \(.where)|\(.cause)"' "$out/$name.json")
	if [ "${got%|*}" = "$want" ] && { [ -z "$cause" ] || [ "${got#*|}" = "$cause" ]; }; then
		printf '%-28s %-34s right\n' "$name" "${got/|/ }"
	else
		printf '%-28s %-34s WRONG, want %s %s\n' "$name" "${got/|/ }" "$want" "$cause"
		wrong=$((wrong + 1))
	fi
}

# edge SEED INDEX: an edge between stages in shared memory as FROM:TO.
edge() {
	bin/refpipe --describe --seed "$1" | jq -r --argjson i "$2" '
		.stages as $s | [.edges[] | select(.from > 0 and .to > 0 and (.data | startswith("shm"))) | "\($s[.from].name):\($s[.to].name)"] | .[$i]'
}

for seed in "${seeds[@]}"; do
	try nothing "$seed" inconclusive "" "" -n "$n" -c "$c"
	mapfile -t stages < <(bin/refpipe --describe --seed "$seed" | jq -r '.stages[1:][].name')
	for s in "${stages[@]}"; do
		try "$s" "$seed" stage "$s" "" -n "$n" -c "$c" --slow "stage=$s"
	done
	hop=${stages[4]}:${stages[5]}
	try hop "$seed" hop "$hop" crossing -n "$n" -c "$c" --slow "hop=$hop"
	# It stops every 1.5 s, and a verdict needs three of its pauses.
	try reader "$seed" stage "${stages[4]}" reader -n "$((n < 150 ? 150 : n))" -c "$c" --stall-reader "${stages[4]}"
	big=$(edge "$seed" -1)
	# A chunked output is sent while its stage goes on: its serialisation is not between finish and send.
	[ "${big%%:*}" != "${stages[5]}" ] || big=$(edge "$seed" -2)
	try payload "$seed" hop "$big" sender -n 40 -c 2 --big-payload "$big"
done
[ "$wrong" = 0 ] || { echo "$wrong wrong" >&2; exit 1; }
