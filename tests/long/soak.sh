#!/bin/bash
# tests/long/soak.sh [MINUTES [RANKS [READERS]]] (10, 8, 16): ranks of megatron-core save through dist_checkpointing, one save
# after the other, and delete old ones, while readers walk the mount. No error, no byte of another save; descriptors, threads
# and memory of the daemon stay as they were, except for the names of what was shown (docs/SEMANTICS.md). PYTHON: one with torch and megatron-core (make interop makes it).
. "$(dirname "$0")/../mount/lib.sh"

minutes=${1:-10} ranks=${2:-8} readers=${3:-16}
python=${PYTHON:-${MCOREFS_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/mcorefs-interop}/main/bin/python}
[ -x "$python" ] || skip "$python is missing: make interop makes it, or PYTHON= names another"
ckpt=$work/ckpt
mkdir "$ckpt"
export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore TSAN_OPTIONS=second_deadlock_stack=1:report_signal_unsafe=0:${TSAN_OPTIONS:-}

# A line for each look: seconds, resident KiB that are no file's, descriptors, threads.
sample() {
	local rss fds threads
	rss=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$daemon/status" 2>/dev/null)
	threads=$(awk '$1 == "Threads:" { print $2 }' "/proc/$daemon/status" 2>/dev/null)
	fds=$(find "/proc/$daemon/fd" -mindepth 1 2>/dev/null | wc -l)
	echo "$SECONDS $rss $fds $threads" >>"$work/samples"
}

# most COLUMN FROM TO: the largest value in that part (of 100) of the time.
most() {
	awk -v c="$1" -v from="$2" -v to="$3" '
		{ at[NR] = $c } END { for (i = 1; i <= NR; i++) if (i > NR * from / 100 && i <= NR * to / 100 && at[i] > m) m = at[i]; print m + 0 }' "$work/samples"
}

# flat NAME COLUMN SLACK: the last quarter has not more than the second one, by an eighth and SLACK.
flat() {
	local early late
	early=$(most "$2" 25 50) late=$(most "$2" 75 100)
	echo "$1: at most $early in the second quarter, $late in the last"
	[ "$late" -le $((early + early / 8 + $3)) ] || fail "$1 grows: $early, then $late"
}

"$python" tests/long/save.py "$ckpt" "$work" "$ranks" >"$work/save.log" 2>&1 &
saving=$!
stop() {
	touch "$work/go" "$work/stop" # the ranks and readers end by themselves
	(exit "$1")
	end
}
trap 'stop $?' EXIT
saved_or_ended() { [ -e "$work/saved" ] || ended "$saving"; }
wait_until 'three saves are there' saved_or_ended
[ -e "$work/saved" ] || fail "megatron-core does not save: $(tail -n 5 "$work/save.log")"

mount_foreground "$ckpt"
"$python" tests/long/walk.py "$mnt" "$work" "$readers" >"$work/walk.log" 2>&1 &
walking=$!
started_or_ended() { [ -e "$work/go" ] || ended "$walking"; }
wait_until 'the readers know the first saves' started_or_ended
[ -e "$work/go" ] || fail "the readers did not start: $(tail -n 5 "$work/walk.log")"

end=$((SECONDS + minutes * 60))
while [ $SECONDS -lt $end ]; do
	sleep 2
	sample
	ended "$daemon" && fail 'the daemon has ended'
	ended "$saving" && fail "saving has ended: $(tail -n 5 "$work/save.log")"
	ended "$walking" && fail "the readers have ended: $(tail -n 5 "$work/walk.log") $(head -n 5 "$work/wrong")"
done
touch "$work/stop"
wait "$saving" || fail "saving: $(tail -n 5 "$work/save.log")"
wait "$walking" || fail "readers: $(head -n 20 "$work/wrong")"
cat "$work/walk.log"
[ ! -s "$work/wrong" ] || fail "$(wc -l <"$work/wrong") things are wrong: $(head -n 20 "$work/wrong")"
saves=$(wc -l <"$work/saves")
echo "$saves saves by $ranks ranks in $minutes minutes"
[ "$saves" -gt 5 ] || fail 'hardly anything was saved'
if grep -q __tsan_init "$MCOREFS"; then
	grep 'WARNING: ThreadSanitizer' "$log" && fail 'a race'
else
	flat 'resident KiB' 2 $((4096 + saves * 256 / 2)) # half of the saves lie between the two quarters
fi
flat descriptors 3 32
flat threads 4 8
unmount
exit 0
