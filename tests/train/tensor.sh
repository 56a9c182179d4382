#!/bin/bash
# Processes that share layers (tensor parallelism, with and without sequence parallelism), on the CPU: they must train as one process does.
#
# In fp32 numbers must agree within 1e-5 of their value as they are printed, as in parallel.sh.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin tensor
at[gpt2]=$fixtures/gpt2-torch-tp2-pp2

gradients obj 2 TP=2 SP=0
gradients obj 2 TP=2 SP=1
gradients obj 4 TP=4 SP=1
gradients asan 2 TP=2 SP=1
# Code that forgets to wait for communication in parallel with products reads what is not there yet.
gradients obj 2 TP=2 SP=0 LATE=1
gradients obj 2 TP=2 SP=1 LATE=1
gradients obj 4 TP=4 SP=0 LATE=1

as_one "llama, validation" llama "2-tp2 2-tp2-sp" 6 --eval-interval 2 --eval-iters 2 --log-params-norm --log-num-zeros-in-grad
as_one "two copies of two processes, per-token loss, documents" llama 4-tp2-sp 4 --calculate-per-token-loss --eod-mask-loss \
	--reset-attention-mask --reset-position-ids --eod-id 11
as_one "learned positions, dropout of the stream" gpt2 "4-tp4-sp 4-tp2-cp2-sp" 4 --hidden-dropout 0.1
as_one "tied, layers run again" qwen2 2-tp2-sp 4 --recompute-granularity full --recompute-method uniform --recompute-num-layers 2
as_one "norms of queries and keys" qwen3 2-tp2 4
as_one "latents whose down projections are divided" deepseek "2-tp2-sp 4-fsdp-tp2-sp" 4 --log-params-norm --log-num-zeros-in-grad
as_one "two groups of queries on four processes" llama "4-tp4-sp" 4 --log-params-norm
as_one "two groups of queries on four processes, with norms" qwen3 4-tp4 4
as_one "Muon: matrices are gathered; clipped queries and keys" mixtral "4-tp2-sp-ep2 4-tp2-sp-etp2-pp2" 4 --optimizer muon \
	--muon-fp32-matmul-prec high --log-params-norm --qk-clip --qk-clip-threshold 0.1
as_one "gated delta nets, drawn weights" next "2-tp2 2-tp2-sp 2-pp2 2 4-tp2-sp-pp2 4-fsdp-tp2-sp" 4 --use-distributed-optimizer --log-params-norm
within=1e-2 as_one "fp16" qwen2 2-tp2-sp 4 --fp16 --loss-scale 4096 --log-params-norm

# measured LOG: the passes stood still for tp, and no longer than the last step took
measured() {
	awk '/^ \[.*\] iteration/ { match($0, /\(ms\): [0-9.]+/); step = substr($0, RSTART + 6, RLENGTH - 6) }
		/^exposed communication of a step: tp / { tp = $7 }
		END { exit !(tp > 0 && tp <= step + 0.1) }' "$1"
}
family_args llama
layout_flags 2-tp2-sp
run 2 "$work/n1.log" "${layout[@]}" --exit-interval 3 && run 2 "$work/n2.log" "${layout[@]}" --exit-interval 3 --log-communication &&
	diff <(rows "$work/n1.log") <(rows "$work/n2.log") && ! grep -q exposed "$work/n1.log" && measured "$work/n2.log"
verdict $? "who measures how long passes stand still trains the same"

# Heads of one process have other random numbers than those of the other, with and without sequence parallelism the same.
family_args llama
drops=(--tensor-model-parallel-size 2 --attention-dropout 0.1 --hidden-dropout 0.1 --exit-interval 4)
run 2 "$work/n1.log" "${drops[@]}" && run 2 "$work/n2.log" "${drops[@]}" --sequence-parallel && alike "$work/n1.log" "$work/n2.log" 4
verdict $? "dropout of attention"

# follows FAMILY FLAG...
follows() {
	BACKEND=cpu LAUNCH="${launcher[*]} 2" FLAGS="--tensor-model-parallel-size 2 ${*:2}" tests/train/follow.sh "${at[$1]}" >"$work/log" 2>&1
	verdict $? "bf16: two processes follow $1's run ${*:2}"
}

follows llama --sequence-parallel
follows gpt2
processes_end
