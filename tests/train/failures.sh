#!/bin/bash
# One of several processes fails: it is killed, it hangs, its loss is NaN. All others end at once, one of them says which rank and host it
# was, nothing is left, and the last checkpoint is whole.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin failures
mine="--data-cache-path $work/cache"
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; for p in $(ranks "$work"); do kill -KILL "$p"; done; rm -rf "$work"' EXIT
host=$(hostname)
from=${at[llama]}
family_args llama
args+=(--backend cpu --threads 1 --data-cache-path "$work/cache")

# start N: a long run that saves each second iteration; it has saved when this returns
start() {
	rm -rf "$work/save"
	: >"$work/log"
	"${launcher[@]}" "$1" "$train" "${args[@]}" --load "$from" --ckpt-step 20 --train-iters 100000 --override-opt-param-scheduler \
		--save "$work/save" --save-interval 2 --save-keep-last 2 --distributed-timeout-seconds-after-init 4 >"$work/log" 2>&1 &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		[ ! -s "$work/save/latest_checkpointed_iteration.txt" ] || [ "$(ranks "$mine" | wc -l)" != "$1" ] || return 0
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

# ended SECONDS: mpirun ends within them, and fails; no process is left
ended() {
	local status
	for ((i = 0; i < $1 * 10; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -0 "$pid" 2>/dev/null && return 1
	wait "$pid"
	status=$?
	pid=
	[ $status != 0 ] && [ -z "$(ranks "$mine")" ]
}

# hangs N FUNCTION ARGUMENT...: of N processes the last stops itself when it calls this function of MPI; all end
hangs() {
	local n=$1 at=$2
	shift 2
	# shellcheck disable=SC2016 # the process's own rank
	timeout -k 5 150 "${launcher[@]}" "$n" sh -c '[ "$OMPI_COMM_WORLD_RANK" != '$((n - 1))' ] || export LD_PRELOAD='"$work/stop.so"' STOP_AT='"$at"'
		exec "$@"' sh "$train" "${args[@]}" --data-cache-path "$work/$at" --load "$from" --ckpt-step 20 --override-opt-param-scheduler "$@" >"$work/$at.log" 2>&1
	[ $? = 1 ] && [ -z "$(ranks "--data-cache-path $work/$at")" ]
}
if command -v cc >/dev/null; then
	cc -shared -fPIC -o "$work/stop.so" -x c - <<'END' || exit 1
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *at)
{
	if (!strcmp(getenv("STOP_AT"), at))
		raise(SIGSTOP);
}

int PMPI_Init_thread(int *count, char ***words, int wanted, int *got);
int PMPI_Finalize(void);

int MPI_Init_thread(int *count, char ***words, int wanted, int *got)
{
	stop("MPI_Init_thread");
	return PMPI_Init_thread(count, words, wanted, got);
}

int MPI_Finalize(void)
{
	stop("MPI_Finalize");
	return PMPI_Finalize();
}
END
	# It is waited for at the end: nobody can ask for less than a minute.
	hangs 2 MPI_Init_thread --train-iters 100 --distributed-timeout-minutes 1 &
	start=$!
fi

# Another number of processes goes on from what was saved last.
goes_on() {
	local last
	last=$(cat "$work/save/latest_checkpointed_iteration.txt") || return 1
	"$train" "${args[@]}" --load "$work/save" --train-iters 100000 --override-opt-param-scheduler --verify-integrity --exit-interval 1 >"$work/log" 2>&1 &&
		grep -q "iteration  *$((last + 1))/" "$work/log"
}

start 2 && kill -KILL "$(ranks "$mine" | shuf -n 1 --random-source=/dev/zero)" && ended 40 && grep -q "exited on signal 9" "$work/log" && goes_on
verdict $? "one of two is killed"

start 4 && kill -STOP "$(ranks "$mine" | shuf -n 1 --random-source=/dev/zero)" && ended 40 &&
	grep -qE "^mcorefs-train: rank [0-9]+ on $host: iteration [0-9]+: no progress for 4 s in .* of the group '.*'" "$work/log" && goes_on
verdict $? "one of four hangs"

# All are stopped for longer than that, as by a batch system that makes room, and go on.
waits() {
	local from
	from=$(wc -l <"$work/log")
	for ((i = 0; i < 300; i++)); do
		[ "$(wc -l <"$work/log")" -le $((from + 20)) ] || return 0
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
start 2 && all=$(ranks "$mine") && kill -STOP $all && sleep 5 && kill -CONT $all && waits && ! grep -q "no progress" "$work/log" &&
	kill -KILL "$(ranks "$mine" | head -n 1)" && ended 40
verdict $? "a run that was stopped goes on"

if [ -e "$work/stop.so" ]; then
	hangs 2 MPI_Finalize --train-iters 22 --eval-iters 0 --distributed-timeout-seconds-after-init 3 &&
		grep -q "^mcorefs-train: rank 0 on $host: the end: no progress for 3 s in the end of the groups;" "$work/MPI_Finalize.log"
	verdict $? "one of two hangs when it closes"
else
	echo "skipped: train/failures: hangs outside of iterations: there is no cc here"
fi

# An embedding that is NaN for one token, which the first batch has in one process's samples alone.
poison() {
	"$(dirname "$train")/mcorefs" export "$from" iter_0000020/hf "$work/nan" -o no_optim >/dev/null &&
		python3 - "$work/nan/model.safetensors" "$1" <<'END'
import json, struct, sys
with open(sys.argv[1], "r+b") as f:
    size, = struct.unpack("<Q", f.read(8))
    t = json.loads(f.read(size))["model.embed_tokens.weight"]
    row = (t["data_offsets"][1] - t["data_offsets"][0]) // t["shape"][0]
    f.seek(8 + size + t["data_offsets"][0] + int(sys.argv[2]) * row)
    f.write(b"\xff" * row)
END
}

if command -v python3 >/dev/null; then
	poison 500
	verdict $? "an embedding is poisoned"
	for n in 2 4; do
		"${launcher[@]}" $n "$train" "${args[@]}" --load "$work/nan" --finetune --micro-batch-size 1 --train-iters 2 --no-load-optim >"$work/log" 2>&1
		[ $? = 17 ] && [ "$(grep -c "^mcorefs-train: rank" "$work/log")" = 1 ] &&
			grep -q "^mcorefs-train: rank 1 on $host: Unexpected result nan on rank 1 at iteration #1 .*nothing was updated" "$work/log"
		verdict $? "one of $n has a loss that is NaN"
	done
else
	echo "skipped: train/failures: a loss that is NaN: there is no python3 here"
fi

if [ -e "$work/stop.so" ]; then
	wait "$start" && grep -q "^mcorefs-train: rank 0 on $host: the start: no progress for 60 s in the start of the groups;" "$work/MPI_Init_thread.log"
	verdict $? "one of two hangs when it begins"
fi

processes_end
