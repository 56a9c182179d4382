# What the benches share; sourced. They set results (a file that rows are added to), runs, and bin, the folder of the programs.

die() {
	echo "$(basename "$0" .sh): $*" >&2
	exit 1
}

row() {
	printf '%-50s %9s %9s %7s  %s\n' "$@" | tee -a "$results"
}

median() {
	sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# speed OPTION... FILE...: median GB/s of bench_read
speed() {
	for ((i = 0; i < runs; i++)); do
		"$bin/bench_read" "$@" || die "bench_read $*"
	done | awk '{ print $1 / $2 / 1e9 }' | median
}

ratio() {
	awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b ? a / b : 0) }'
}

two() {
	awk -v v="$1" 'BEGIN { printf "%.2f", v }'
}

seconds() {
	local start end
	start=$(date +%s.%N)
	"$@" >/dev/null || die "$*"
	end=$(date +%s.%N)
	awk -v a="$start" -v b="$end" 'BEGIN { printf "%.3f", b - a }'
}

unmount() {
	mountpoint -q "$1" || return 0
	if [ "$(id -u)" = 0 ]; then umount "$1"; else fusermount3 -u "$1"; fi
}

drop_caches() {
	sync
	echo 3 2>/dev/null >/proc/sys/vm/drop_caches
}
