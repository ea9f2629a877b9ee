#!/bin/busybox sh
# The init of the emulated machine of kernels.sh: does everything that is judged, sends /result over
# the second serial line as a tar, and powers off. It judges nothing itself.
export PATH=/bin HOME=/tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t securityfs security /sys/kernel/security
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
for at in /dev/shm /tmp /result; do mount -t tmpfs -o mode=755 none $at; done
ip link set lo up
cut -d' ' -f1 /proc/uptime >/result/boot_s
uname -r >/result/release
for word in $(cat /proc/cmdline); do
	case $word in sl_*=*) export "$word" ;; esac # sl_n and others, from kernels.sh
done

# step NAME COMMAND… keeps what a command printed, its exit code and how long it took.
step() {
	name=$1
	shift
	echo "$name: $*"
	begun=$(cut -d' ' -f1 /proc/uptime)
	"$@" >"/result/$name.out" 2>"/result/$name.err"
	echo $? >"/result/$name.rc"
	echo "$begun $(cut -d' ' -f1 /proc/uptime)" >"/result/$name.uptime"
}

# until_true COMMAND… polls, for five minutes at most: a busy host emulates slowly.
until_true() {
	left=3000
	until "$@"; do
		left=$((left - 1))
		[ $left -gt 0 ] || { echo "gave up waiting for: $*"; return 1; }
		usleep 100000
	done
}

# connected PORT: somebody has connected to it, on loopback.
connected() { grep -qi ":$(printf %04X "$1") [0-9A-F]*:[0-9A-F]* 01 " /proc/net/tcp; }

# keep_loading URL sends load after load until it is told to stop; each ends with its last reply. How
# slow this machine is, is not the question here.
keep_loading() {
	until [ -e /tmp/enough ]; do
		stageline load -u "$1" -c $((4 * sl_c)) -n $((16 * sl_c)) || [ $? = 5 ] || return 1
	done
}

# step_back sets the wall clock back under way, and says what it was before and after, and for how long
# at most the machine has been up before and at least after (s).
step_back() {
	echo "$(cut -d' ' -f1 /proc/uptime) $(date +%s)"
	date -s "@$(($(date +%s) - sl_back))" >/dev/null || return 1
	wall=$(date +%s)
	echo "$(cut -d' ' -f1 /proc/uptime) $wall"
}

# midstream attaches to a pipeline whose channels carry messages already, and hold some: a slow stage
# stops reading when its backlog is full.
midstream() {
	dir=/result/mid
	mkdir -p $dir /tmp/pipe
	refpipe -seed "$sl_seed" -slow stage=vocode:4 -dir /tmp/pipe -truth $dir/truth.jsonl >$dir/ready.json 2>$dir/refpipe.log &
	pipeline=$!
	until_true test -s $dir/ready.json || return 1
	url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' $dir/ready.json)
	pids=$(grep -o '"pids":\[[0-9,]*\]' $dir/ready.json | head -n 1 | tr -dc '0-9,')
	keep_loading "$url" >$dir/load.out 2>&1 &
	load=$!
	until_true connected "${url##*:}" || return 1
	stageline record -p "$pids" -o $dir/run 2>$dir/record.err &
	recorder=$!
	until_true grep -q recording $dir/record.err || return 1
	sleep $((sl_mid / 2))
	step_back >$dir/clock || return 1
	sleep $((sl_mid - sl_mid / 2))
	touch /tmp/enough
	wait $load
	code=$?
	kill -INT $recorder
	wait $recorder || code=$?
	kill -TERM $pipeline
	wait $pipeline || code=$?
	return $code
}

# passed FILE: the ring's program has written all its lines.
passed() { [ "$(wc -l <"$1")" = $((sl_ring + 1)) ]; }

# rings records two processes that pass messages through rings in shared memory.
rings() {
	dir=/result/ring
	mkdir -p $dir
	mkfifo /tmp/ring.in
	ring "$sl_ring" </tmp/ring.in >$dir/truth.jsonl 2>$dir/ring.err &
	passing=$!
	exec 5>/tmp/ring.in
	until_true test -s $dir/truth.jsonl || return 1
	pids=$(head -n 1 $dir/truth.jsonl | tr -dc '0-9,')
	stageline record --shadow-rings -p "$pids" -o $dir/run 2>$dir/record.err &
	recorder=$!
	until_true grep -q recording $dir/record.err || return 1
	echo go >&5
	until_true passed $dir/truth.jsonl || return 1
	kill -INT $recorder
	wait $recorder
	code=$?
	exec 5>&-
	wait $passing || code=$?
	return $code
}

# refused NAME [COMMAND…] keeps what doctor and record say where recording cannot work.
refused() {
	as=$1
	shift
	step "$as-doctor" "$@" stageline doctor --json
	step "$as-record" "$@" stageline record -p 1 -d 1ms -o /tmp/never
}

# all_steps are those of a kernel that can record.
all_steps() {
	step fresh stageline demo --json -n "$sl_n" -c "$sl_c" --seed "$sl_seed" -o /result/fresh
	step mid midstream
	step ring rings
	step drain drain.test -test.v
	refused namespace unshare -U -r
	mount -t tmpfs none /sys/kernel/btf
	refused untyped
	umount /sys/kernel/btf
	echo confidentiality >/sys/kernel/security/lockdown # until the machine ends
	refused locked
}

step doctor stageline doctor --json
if [ "$(cat /result/doctor.rc)" = 3 ]; then
	refused plain
else
	all_steps
fi
stty raw -echo </dev/ttyS1
tar -C /result -cz . >/dev/ttyS1
sync
poweroff -f
