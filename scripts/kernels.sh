#!/usr/bin/env bash
# Records a small run of the reference pipeline on other kernels, each in an emulated machine (QEMU,
# no KVM needed), and judges what was recorded. Exit 0: all right, or skipped for a reason that is
# printed; 1: something is wrong.
#
#   KERNELS="6.1 6.12"    Debian's kernel series to take, the newest of each that apt knows; by default
#                         also 5.10, Debian 11's, which is too old: the tool must say so
#   KERNEL_DEBS="A B"     these packages (linux-image-*.deb) instead; nothing is downloaded
#   KERNEL_LIMIT=1200     seconds each machine may take; on an idle host it takes about 150
#
# Downloads are kept in out/kernels/debs, results in out/kernels/<release>, and what was skipped, with
# the reason, in out/kernels/skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/out/kernels
limit=${KERNEL_LIMIT:-1200}
n=30 c=2 seed=1 mid=12 # requests, at once, seed, seconds recorded of a pipeline at work
back=7                 # seconds that the wall clock is set back by while the pipeline at work is recorded
too_old=5.10           # no recording works there
ring=53                # messages through rings in shared memory; a prime, so that no lap gives it by chance

skipped() { # WHAT REASON
	echo "test-kernels: $1 is skipped: $2" >&2
	echo "$1: $2" >>"$out/skipped"
}

skip() { # REASON
	skipped "every kernel" "$1"
	exit 0
}

need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null || skip "$1 is missing: install it (Debian: apt-get install qemu-system-x86 busybox-static cpio)"
}

# older_sources has apt look among the security updates of Debian 11 alone, which has kernels that are
# too old, at the mirror of the host's own; their lists are kept in out/kernels/apt.
older_sources() {
	local apt=$out/apt mirror
	mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 ~ /-security$/ { print $1; exit }')
	[ -n "$mirror" ] || return 1
	mkdir -p "$apt"/{none,lists/partial,cache/archives/partial}
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bullseye-security main" >"$apt/sources.list"
	printf 'Dir::%s "%s";\n' Etc::SourceList "$apt/sources.list" Etc::SourceParts "$apt/none" State::Lists "$apt/lists" Cache "$apt/cache" >"$apt/apt.conf"
	export APT_CONFIG=$apt/apt.conf
	timeout 120 apt-get update -q -o APT::Sandbox::User=root >/dev/null 2>&1
}

# newest SERIES names the newest signed cloud kernel of a series. Debian removes old ones from its
# archive, so that no version can be named here; the table says which it was.
newest() {
	apt-cache pkgnames "linux-image-$1." | grep -E '^linux-image-[0-9.+a-z-]+-cloud-amd64$' | sort -V | tail -n 1
}

fetch() { # SERIES: prints the path of its package, or why there is none
	local name deb
	[ "$1" != "$too_old" ] || older_sources || { echo "the package sources of Debian 11 cannot be had"; return 1; }
	name=$(newest "$1")
	[ -n "$name" ] || { echo "the package sources have no kernel of it: run apt-get update, or set KERNEL_DEBS"; return 1; }
	deb=$(find "$out/debs" -name "${name}_*.deb" | head -n 1)
	if [ -z "$deb" ]; then
		(cd "$out/debs" && timeout 300 apt-get download -q -o Acquire::Retries=3 "$name" >/dev/null 2>"$out/download.log") ||
			{ echo "$name cannot be downloaded: $(tail -n 1 "$out/download.log")"; return 1; }
		deb=$(find "$out/debs" -name "${name}_*.deb" | head -n 1)
	fi
	echo "$deb"
}

build() {
	local root=$out/root
	rm -rf "$root"
	mkdir -p "$root"/{bin,proc,sys,dev,tmp,result}
	CGO_ENABLED=0 go build -o "$root/bin/stageline" ./cmd/stageline
	CGO_ENABLED=0 go build -o "$root/bin/refpipe" ./cmd/refpipe
	CGO_ENABLED=0 go test -c -o "$root/bin/drain.test" ./collector/drain
	${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -static -pthread -o "$root/bin/refpipe-stage" cmd/refpipe/stage/*.c
	${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -static -pthread -o "$root/bin/ring" scripts/kernels/ring.c
	cp "$(command -v busybox)" "$root/bin/busybox"
	install -m 755 scripts/kernels/guest.sh "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$out/initrd.gz"
}

# boot DEB DIR runs one machine and unpacks what it sent. One thread for its two processors: with
# more, QEMU 7.2 now and then runs a stale instruction while the kernel patches itself, and panics.
# no_timer_check: on a busy host the kernel may think that its emulated timer does not work.
boot() {
	local deb=$1 dir=$2 image
	rm -rf "$dir"
	mkdir -p "$dir/package"
	dpkg-deb -x "$deb" "$dir/package"
	image=$(find "$dir/package/boot" -name 'vmlinuz-*')
	timeout "$limit" qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 2 -m 1536 -nodefaults -no-reboot -display none \
		-kernel "$image" -initrd "$out/initrd.gz" -serial "file:$dir/console.log" -serial "file:$dir/result.tgz" \
		-append "console=ttyS0 quiet panic=-1 no_timer_check sl_n=$n sl_c=$c sl_seed=$seed sl_mid=$mid sl_back=$back sl_ring=$ring" </dev/null &
	trap "kill $!" TERM
	wait $! || echo "the machine ended with exit code $?; 124: not done within $limit s" >>"$dir/console.log"
	rm -r "$dir/package"
	tar -xzf "$dir/result.tgz" -C "$dir" || echo "the machine sent no whole result" >>"$dir/console.log"
}

mkdir -p "$out/debs"
rm -f "$out/skipped"
need qemu-system-x86_64
need busybox
need cpio
need dpkg-deb
read -r -a debs <<<"${KERNEL_DEBS:-}"
if [ ${#debs[@]} = 0 ]; then
	need apt-cache
	for series in ${KERNELS:-$too_old 6.1 6.12}; do
		if deb=$(fetch "$series"); then
			debs+=("$deb")
		else
			skipped "$series" "$deb"
		fi
	done
	[ ${#debs[@]} -gt 0 ] || skip "no kernel to test"
fi
build
dirs=() jobs=()
trap '[ ${#jobs[@]} = 0 ] || kill "${jobs[@]}" 2>/dev/null || true' EXIT # an interrupted run leaves no machine behind
for deb in "${debs[@]}"; do
	dir=$out/$(basename "$deb" | sed 's/^linux-image-//; s/_.*//')
	dirs+=("$dir")
	boot "$deb" "$dir" &
	jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job" || echo "test-kernels: a machine could not be started or read" >&2; done
exec python3 scripts/kernels/judge.py --stageline "$out/root/bin/stageline" --requests $n --ring-messages $ring "${dirs[@]}"
