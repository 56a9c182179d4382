#!/bin/bash
# One of several processes fails: it is killed, it hangs, its loss is NaN. All others end at once, one of them says which rank and host it
# was, nothing is left, and the last checkpoint is whole.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin failures
. tests/train/ends.sh
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; for p in $(ranks "$work"); do kill -KILL "$p"; done; rm -rf "$work"' EXIT
host=$(hostname)
from=${at[llama]}
family_args llama
args+=("${backend[@]}" --data-cache-path "$work/cache")

# hangs N FUNCTION ARGUMENT...: of N processes the last stops itself when it calls this function of MPI; all end
hangs() {
	local n=$1 at=$2
	shift 2
	# shellcheck disable=SC2016 # the process's own rank
	timeout -k 5 600 "${launcher[@]}" "$n" sh -c '[ "$OMPI_COMM_WORLD_RANK" != '$((n - 1))' ] || export LD_PRELOAD='"$work/stop.so"' STOP_AT='"$at"'
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

# one_of: a process of the run
one_of() { own_ranks | shuf -n 1 --random-source=/dev/zero; }

start 2 && kill -KILL "$(one_of)" && ended && grep -q "exited on signal 9" "$work/log" && goes_on 1
verdict $? "one of two is killed"

# Where a run is to go on, or to be killed, a watchdog has all its time: a machine that others use makes processes stand still, too.
hang=8
start 4 --distributed-timeout-seconds-after-init $hang && kill -STOP "$(one_of)" && ended &&
	grep -qE "^mcorefs-train: rank [0-9]+ on $host: iteration [0-9]+: no progress for $hang s in .* of the group '.*'" "$work/log" && goes_on 1
verdict $? "one of four hangs"

# All are stopped for longer than that, as by a batch system that makes room, and go on.
has_gone_on() { [ "$(wc -l <"$work/log")" -gt $((lines + 20)) ]; }
start 2 --distributed-timeout-seconds-after-init $hang && lines=$(wc -l <"$work/log") && all=$(own_ranks) && kill -STOP $all &&
	sleep $((hang + 1)) && kill -CONT $all && await has_gone_on && ! grep -q "no progress" "$work/log" && kill -KILL "$(one_of)" && ended
verdict $? "a run that was stopped goes on"

if [ -e "$work/stop.so" ]; then
	hangs 2 MPI_Finalize --train-iters 22 --eval-iters 0 --distributed-timeout-seconds-after-init $hang &&
		grep -q "^mcorefs-train: rank 0 on $host: the end: no progress for $hang s in the end of the groups;" "$work/MPI_Finalize.log"
	verdict $? "one of two hangs when it closes"
else
	skip "hangs outside of iterations" "there is no cc here"
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
	skip "a loss that is NaN" "there is no python3 here"
fi

if [ -e "$work/stop.so" ]; then
	wait "$start" && grep -q "^mcorefs-train: rank 0 on $host: the start: no progress for 60 s in the start of the groups;" "$work/MPI_Init_thread.log"
	verdict $? "one of two hangs when it begins"
fi

processes_end
