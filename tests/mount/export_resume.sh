#!/bin/bash
# An export that is interrupted, by a person, a kill or a full disk, goes on where it stopped, and the
# bytes are those of one that was not.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is missing'

m=$MCOREFS
source=$work/source
python3 tests/giants/make.py llama "$source" --gib 0.25 --hidden 1024 --tp 2 >/dev/null || fail 'make.py'
options=shard_size=30MB
"$m" verify "$source" --deep --sums -o $options >"$work/sums" || fail 'verify'

# cut_short SIGNAL SECONDS DEST: 0 if the export has ended well before.
cut_short() {
	(timeout -s "$1" "$2" "$m" export "$source" hf "$3" -o $options >"$log" 2>&1) 2>/dev/null
}

# last_run ARGUMENT...: an export that was killed a moment ago may hold its lock still.
last_run() {
	until "$m" export "$source" "$@" >"$log" 2>&1; do
		grep -q 'another export is writing' "$log" || fail "$*: the last run: $(cat "$log")"
		sleep 0.1
	done
}

# stopped_early VIEW DEST [OPTION...]: whatever the machine's speed, it does not get beyond its first large file.
stopped_early() {
	(trap '' XFSZ && ulimit -f 100 && "$m" export "$source" "$@" >"$log" 2>&1) && fail "$*: nothing has stopped it"
	[ -e "$2.mcorefs-partial/.mcorefs-export.json" ] || fail "$*: nothing was kept: $(cat "$log")"
}

check() {
	(cd "$1" && sha256sum --quiet -c "$work/sums") || fail "$2: the bytes are wrong"
	same "$2: files" "$(ls -A "$1" | wc -l)" "$(wc -l <"$work/sums")"
	rm -r "$1"
}

# Killed again and again, each time a little later; what is durable is never lost.
for signal in KILL INT; do
	out=$work/$signal
	runs=0
	for delay in 0.01 0.02 0.03 0.04 0.06 0.08 0.1 0.15 0.2 0.3 0.4 0.6 1 2 4; do
		cut_short "$signal" "$delay" "$out" && break
		runs=$((runs + 1))
		[ ! -e "$out" ] || break # killed after its last step: what is there must be whole
		if [ $signal = INT ] && [ -s "$log" ]; then
			# Before there is a byte to keep, it has nothing more to say.
			grep -q -e '^mcorefs: interrupted$' -e 'interrupted; .* are kept in .* the same command goes on' "$log" || fail "$(cat "$log")"
		fi
	done
	if [ ! -e "$out" ]; then
		"$m" export "$source" hf "$out" -o $options >"$log" || fail "$signal: the last run"
	fi
	echo "$signal: $runs runs were cut short; then: $(cat "$log")"
	[ $runs -gt 0 ] || fail "$signal: no run was cut short"
	check "$out" "$signal"
done

# A view of several directories, likewise; and what is left of it is cleared for another view.
layout=megatron/torch/tp4-pp5
"$m" verify "$source" $layout --deep --sums >"$work/nested" || fail "$layout: verify"
out=$work/nested-out
runs=0
for delay in 0.02 0.05 0.1 0.2 0.4 1 4; do
	(timeout -s KILL $delay "$m" export "$source" $layout "$out" >"$log" 2>&1) 2>/dev/null && break
	runs=$((runs + 1))
	[ ! -e "$out" ] || break
done
[ -e "$out" ] || last_run $layout "$out"
echo "$layout: $runs runs were cut short; then: $(cat "$log")"
(cd "$out" && sha256sum --quiet -c "$work/nested") || fail "$layout: the bytes are wrong"
same "$layout: files" "$(find "$out" -type f | wc -l)" "$(wc -l <"$work/nested")"
rm -r "$out"
stopped_early $layout "$out"
"$m" export "$source" hf "$out" -o $options >"$log" || fail "hf after $layout: $(cat "$log")"
check "$out" "hf after $layout"

# What has no journal may be a person's: directories in it stay.
mkdir -p "$out.mcorefs-partial/mine"
refused 'directories of a person' 1 'holds directories that are not from an export' "$m" export "$source" hf "$out"
[ -d "$out.mcorefs-partial/mine" ] || fail 'a directory of a person was removed'
rm -r "$out.mcorefs-partial"

# A full disk. Without room for more names the second file fails; with room the rest follows.
if is_root && mkdir "$work/disk" && mount -t tmpfs -o size=700m,nr_inodes=6 none "$work/disk"; then
	out=$work/disk/out
	refused 'full disk' 1 'No space left on device; .* are kept in' "$m" export "$source" hf "$out" -o $options
	[ -d "$out.mcorefs-partial" ] || fail 'full disk: nothing was kept'
	mount -o remount,nr_inodes=100 "$work/disk"
	"$m" export "$source" hf "$out" -o $options >/dev/null || fail 'full disk: the second run'
	check "$out" 'full disk'
	mount -o remount,size=100m "$work/disk"
	refused 'small disk' 1 "not enough space for '$out': .* \([0-9]+ bytes\) needed, .* \([0-9]+ bytes\) free" \
		"$m" export "$source" hf "$out" -o $options
	[ ! -e "$out.mcorefs-partial" ] || fail 'small disk: something was left'
	umount "$work/disk"
else
	echo 'skipped: full disk: needs root'
fi

# Another source under the same name: what was kept is of no use, and nothing of it may stay.
out=$work/changed
stopped_early hf "$out" -o $options
echo old >"$out.mcorefs-partial/model-00099-of-00099.safetensors"
"$m" export "$source" hf "$out" -o shard_size=90MB >"$log" 2>&1 || fail "changed: $(cat "$log")"
grep -q 'earlier run' "$log" && fail 'changed: bytes of another source were kept'
"$m" verify "$source" --deep --sums -o shard_size=90MB >"$work/sums" || fail 'verify'
check "$out" changed

# A source that is cut while it is being exported gives no DEST.
victim=$(find "$source" -name model_optim_rng.pt | sort | tail -1)
stopped_early hf "$out" -o $options
"$m" export "$source" hf "$out" -o $options >"$log" 2>&1 &
sleep 0.05
truncate -s 100000 "$victim"
wait $! && [ ! -e "$out" ] && fail 'cut source: export ended well without DEST'
if [ ! -e "$out" ]; then
	grep -q "$(basename "$(dirname "$victim")")" "$log" || fail "cut source: $(cat "$log")"
fi
exit 0
