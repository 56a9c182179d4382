#!/bin/bash
# tests/long/kill_trainer.sh [MINUTES [SEED]] (30): four processes train on the CPU (two stages, two copies, the optimizer's state divided)
# and save each third iteration. At random moments a random one of them is killed, or, after its first iteration, stopped, which the
# watchdog must find; again and again. Each time all end within a minute; what the tracker names is what was there before or a later save;
# its files have their sums, and the bits of the same iteration of a run that nobody disturbed, which training goes on from.
#
# mpirun of Open MPI 4.1.4 waits for itself for ever if a process dies while it connects (PMIX ERROR: UNREACHABLE; its children are zombies).
# Where all of ours have ended, and it has not ten seconds later, it is killed, and counted.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
minutes=${1:-30}
RANDOM=${2:-$$}
echo "seed: ${2:-$$}"
processes_begin kill
mine="--data-cache-path $work/cache"
trap 'for p in $pid $(ranks "$mine"); do kill -KILL "$p" 2>/dev/null; done; rm -rf "$work"' EXIT
iterations=240
family_args llama
args+=(--backend cpu --threads 1 --data-cache-path "$work/cache" --seq-length 32 --micro-batch-size 1 --global-batch-size 4
	--train-iters "$iterations" --lr-decay-iters 200 --eval-iters 0 --log-params-norm --bf16 --pipeline-model-parallel-size 2
	--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --save-interval 3 --distributed-timeout-minutes 1
	--distributed-timeout-seconds-after-init 15)
kills=0 stops=0 unsaved=0 ends=0 slowest=0 gone=0 stuck=0

fail() {
	echo "FAILED behind $kills kills and $stops stops: $*"
	tail -n 20 "$work/log"
	exit 1
}

# start DIR ARGUMENT...: process $pid
start() {
	local dir=$1
	shift
	: >"$work/log"
	"${launcher[@]}" 4 "$train" "${args[@]}" --save "$dir" --load "$dir" "$@" >"$work/log" 2>&1 &
	pid=$!
}

latest() {
	cat "$work/save/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0
}

# Children of mpirun, and it: their states, and what they wait for.
list() {
	local p
	for p in "$pid" $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) $(ranks "$mine"); do
		awk -v p="$p" '$1 == "Name:" || $1 == "State:" { said = said " " $2 } END { print p said }' "/proc/$p/status"
		cat "/proc/$p/wchan" && echo
	done 2>/dev/null
}

# Milliseconds since the machine was started.
now() {
	local up
	read -r up _ </proc/uptime
	echo $((10#${up/./} * 10))
}

# All processes have ended, within a minute.
wait_for_the_end() {
	local from
	from=$(now)
	while [ -n "$(ranks "$mine")" ]; do
		[ $(($(now) - from)) -lt 60000 ] || fail "a minute later, processes that are there: $(list)"
		sleep 0.05
	done
	gone=$(($(now) - from))
	from=$(now)
	while kill -0 "$pid" 2>/dev/null && [ $(($(now) - from)) -lt 10000 ]; do sleep 0.05; done
	if kill -KILL "$pid" 2>/dev/null; then
		[ -z "$(ranks "$mine")" ] || fail "processes that were not there before: $(list)"
		stuck=$((stuck + 1))
	fi
	wait "$pid" 2>/dev/null
	pid=
	[ "$gone" -le "$slowest" ] || slowest=$gone
}

# whole ITERATION: its files have their sums, and the bits of the undisturbed run's.
whole() {
	local at
	at=iter_$(printf %07d "$1")
	[ -f "$work/save/$at/.metadata" ] || fail "iteration $1 has no .metadata"
	(cd "$work/save/$at" && sed -nE 's/^ *"(.*)": "([0-9a-f]{64})",?$/\2  \1/p' integrity.json >"$work/sums" &&
		[ "$(wc -l <"$work/sums")" -gt 3 ] && sha256sum -c --quiet "$work/sums") || fail "iteration $1 is torn"
	(cd "$work/undisturbed/$at" && for f in .metadata *.distcp; do cmp "$f" "$work/save/$at/$f" || exit 1; done) || fail "iteration $1 has other bits"
}

# What the log says of iterations is what the undisturbed run's says.
follows() {
	rows "$work/log" >"$work/rows"
	! grep -vxFf "$work/undisturbed.rows" "$work/rows" || fail "other numbers than without a kill"
}

start "$work/undisturbed"
wait_for_a_while=$(now)
wait "$pid" || fail "the run that nobody disturbs"
pid=
rows "$work/log" >"$work/undisturbed.rows"
[ "$(wc -l <"$work/undisturbed.rows")" = "$iterations" ] || fail "the run that nobody disturbs has other rows"
most=$((($(now) - wait_for_a_while) / 4)) # a run is disturbed within a quarter of its time, after its first iteration
echo "undisturbed: $iterations iterations in $((most * 4 / 1000)) s"

end=$(($(now) + minutes * 60000))
before=0
while [ "$(now)" -lt $end ]; do
	start "$work/save" --save-keep-last 2
	# Each fourth may be disturbed while its processes begin.
	[ $((RANDOM % 4)) = 0 ] || while [ -z "$(rows "$work/log")" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
	sleep "$(awk -v r=$((RANDOM * 32768 + RANDOM)) -v most=$most 'BEGIN { print r / 1073741824 * most / 1000 }')"
	signal=KILL
	[ $((RANDOM % 4)) != 0 ] || [ -z "$(rows "$work/log")" ] || signal=STOP
	while victim=$(ranks "$mine" | shuf -n 1) && [ -z "$victim" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
	if [ -n "$victim" ] && kill -$signal "$victim" 2>/dev/null; then
		[ $signal = KILL ] && kills=$((kills + 1)) || stops=$((stops + 1))
	fi
	wait_for_the_end
	follows
	last=$(latest)
	[ "$last" -ge "$before" ] || fail "iteration $last, behind $before"
	[ "$last" != "$before" ] || unsaved=$((unsaved + 1))
	[ "$last" = 0 ] || whole "$last"
	before=$last
	if [ "$last" = "$iterations" ]; then
		ends=$((ends + 1)) before=0
		rm -rf "$work/save"
	fi
done
echo "$kills kills and $stops stops; $unsaved runs without a save; $ends times to the end; all ended within $slowest ms;" \
	"mpirun waited for itself $stuck times"
[ $((kills + stops)) -gt 0 ]
