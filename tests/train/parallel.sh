#!/bin/bash
# Processes that share the samples (data parallelism), on the CPU: they must train as one process does.
#
# In fp32 the sums of gradients alone are added up in another order: losses and norms must agree within 1e-5 of their value as they
# are printed, everything else to the last digit.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin parallel

# --exit-interval 4 ends at iteration 24; validation at 22 and 24
as_one "llama, 2 and 4 processes" llama "2 4" 6 --eval-interval 2 --eval-iters 2
as_one "per-token loss, documents" llama 2 4 --calculate-per-token-loss --eod-mask-loss --reset-attention-mask --reset-position-ids --eod-id 11
as_one "dropout, tied" qwen2 2 4 --attention-dropout 0.1 --hidden-dropout 0.1
as_one "experts with a bias" deepseek 2 4
as_one "all of the validation set" llama 4 6 --eval-interval 2 --full-validation --data-path tests/fixtures/data/tales_text_document
sets="tests/fixtures/data/notes_text_document tests/fixtures/data/tales_text_document" as_one "validation sets" llama "2 4" 8 --eval-interval 2

BACKEND=cpu LAUNCH="${launcher[*]} 2" tests/train/follow.sh "${at[qwen2]}" >"$work/log" 2>&1
verdict $? "bf16: two processes follow the run that two processes made"
# Sums in 16 bits. The scale is just below what makes the gradients of one process overflow: parts must be divided before they are
# added up, or two processes skip what one does not.
within=1e-2 as_one "gradients in bf16" llama "2 4" 4 --bf16 --grad-reduce-in-bf16
as_one "muP: scales, rates and eps of their own" llama "2 4-tp2-sp-pp2" 4 --use-mup --mup-base-hidden-size 32 --mup-embedding-mult 2 \
	--mup-base-head-dim 4 --hidden-dropout 0.1 --use-distributed-optimizer --log-params-norm
within=1e-2 as_one "gradients in fp16" llama "2 4" 4 --fp16 --loss-scale 900000

# What two processes save, one goes on with, and the reverse.
from=(--load "${at[llama]}" --ckpt-step 20)
run 1 "$work/n1.log" "${from[@]}" --exit-interval 6 &&
	run 2 "$work/n2.log" "${from[@]}" --save "$work/two" --save-interval 3 --exit-interval 3 &&
	run 1 "$work/n3.log" --load "$work/two" --exit-interval 6 --save "$work/one" --save-interval 2 &&
	run 2 "$work/n4.log" --load "$work/one" --ckpt-step 22 --exit-interval 6 &&
	alike "$work/n1.log" <(cat "$work/n2.log" "$work/n3.log") 4 &&
	alike <(grep -E 'iteration +2[34]/' "$work/n1.log") "$work/n4.log" 2
verdict $? "a checkpoint of two processes, resumed by one, and the reverse"

# start MARK ARGUMENT...: a long run of two processes, and waits for its first iteration
start() {
	: >"$work/log" # what an earlier run logged would be taken for this one's
	"${launcher[@]}" 2 "$train" "${args[@]}" --backend cpu --threads 1 "${from[@]}" --train-iters 100000 --override-opt-param-scheduler "$@" >"$work/log" 2>&1 &
	pid=$!
	for ((i = 0; i < 600; i++)); do
		! grep -q "iteration       21/" "$work/log" || return 0
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

finish() {
	local status
	wait "$pid"
	status=$?
	pid=
	return $status
}

start --save "$work/stopped" --save-interval 100000 && kill -TERM "$(ranks "--save $work/stopped" | tail -n 1)" && finish &&
	grep -q "exiting at iteration.*a signal asked for it" "$work/log" && [ -s "$work/stopped/latest_checkpointed_iteration.txt" ]
verdict $? "a signal to one process stops all, and what was trained is saved"
start --save "$work/passed" --save-interval 100000 --exit-signal SIGUSR1 && kill -USR1 "$pid" && finish &&
	[ -s "$work/passed/latest_checkpointed_iteration.txt" ]
verdict $? "mpirun passes on the signal that ends a run"

start --data-cache-path "$work/killed" && kill -KILL "$(ranks "--data-cache-path $work/killed" | tail -n 1)" && ! finish
verdict $? "a process that is killed ends the others"
left=1
for ((i = 0; i < 600 && left; i++)); do
	[ -n "$(ranks "--data-cache-path $work/killed")" ] && sleep 0.1 || left=0
done
verdict $left "and none of them is left"

# What cannot be divided.
run 3 "$work/log" "${from[@]}"
[ $? != 0 ] && grep -q -- "--global-batch-size: expected a multiple of --micro-batch-size 2 times 3 processes, found 8" "$work/log"
verdict $? "a batch that three processes cannot share"
RANK=0 WORLD_SIZE=2 run 1 "$work/log" "${from[@]}"
[ $? != 0 ] && grep -q "mpirun" "$work/log"
verdict $? "torchrun's processes on CPUs are sent to mpirun"

processes_end
