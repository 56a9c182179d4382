#!/bin/bash
# Processes that share sequences (context parallelism), on the CPU: they must train as one process does. tests/unit/trainer/model/test_context.c
# compares the gradients of every parameter.
#
# In fp32 numbers must agree within 1e-5 of their value as they are printed, as in parallel.sh.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin context
documents=(--calculate-per-token-loss --eod-mask-loss --reset-attention-mask --reset-position-ids --eod-id 11)

as_one "llama in a ring, validation" llama "2-cp2 4-cp4" 6 --eval-interval 2 --eval-iters 2 --log-params-norm
as_one "two of the samples, two of a sequence, each layer another way, documents, a window" llama 4-cp2 4 "${documents[@]}" \
	--micro-batch-size 1 --window-size 40,0 --cp-comm-type a2a p2p all_gather p2p
as_one "dropout, tied, layers run again" qwen2 2-cp2 4 --attention-dropout 0.1 --hidden-dropout 0.1 --cp-comm-type p2p a2a allgather a2a \
	--recompute-granularity full --recompute-method uniform --recompute-num-layers 2
as_one "neighbours: rings of them, and one ring" llama "4-cp2x2 8-pp2-cp2x2 4-cp1x4" 6 --eval-interval 2 --eval-iters 2 --log-params-norm
as_one "neighbours: 8 heads of 4 groups, divided twice, documents, a window" qwen3 "8-tp2-cp2x2 8-cp2x4 8-cp4x2" 4 "${documents[@]}" \
	--micro-batch-size 1 --window-size 40,0 --num-attention-heads 8 --num-query-groups 4
types="a2a+p2p p2p all_gather a2a+p2p" as_one "neighbours: dropout, each layer another way" qwen2 4-cp2x2 4 --attention-dropout 0.1 --hidden-dropout 0.1 \
	--recompute-granularity full --recompute-method uniform --recompute-num-layers 2
types="a2a+p2p a2a p2p a2a+p2p" as_one "neighbours: MLA and experts" deepseek 4-cp2x2-ep2 4 --moe-z-loss-coeff 1e-3
types="p2p p2p all_gather a2a+p2p" as_one "neighbours: MTP; drawn weights" mixtral 4-cp2x2 4 --mtp-num-layers 1
as_one "learned positions" gpt2 2-cp2 4 --cp-comm-type all_gather
as_one "MLA and experts, balanced over sequences" deepseek "2-cp2 4-cp2-ep2" 4 --moe-z-loss-coeff 1e-3 --cp-comm-type p2p a2a all_gather p2p
as_one "experts balanced over microbatches, per-token loss" mixtral 2-cp2 4 --moe-z-loss-coeff 1e-3 --calculate-per-token-loss --cp-comm-type a2a
as_one "MTP; drawn weights" mixtral "2-cp2 4-tp2-sp-cp2 4-pp2-cp2" 4 --mtp-num-layers 2
as_one "MTP of documents, a tied head, dropout, each layer another way; drawn weights" qwen3 2-cp2 4 --mtp-num-layers 1 --hidden-dropout 0.1 \
	--reset-attention-mask --reset-position-ids --eod-mask-loss --eod-id 11 --cp-comm-type p2p all_gather p2p a2a
as_one "beside stages, experts and the distributed optimizer" deepseek 4-pp2-cp2-ep2 4 --use-distributed-optimizer --moe-z-loss-coeff 1e-3
BACKEND=cpu LAUNCH="${launcher[*]} 2" FLAGS="--context-parallel-size 2 --cp-comm-type p2p all_gather a2a p2p" tests/train/follow.sh "${at[llama]}" >"$work/log" 2>&1
verdict $? "bf16: two processes follow the run that four processes made"

# What two processes of a sequence save, one goes on with, and the reverse.
family_args llama
from=(--load "${at[llama]}" --ckpt-step 20)
run 1 "$work/n1.log" "${from[@]}" --exit-interval 4 &&
	run 2 "$work/n2.log" "${from[@]}" --context-parallel-size 2 --save "$work/two" --save-interval 2 --exit-interval 2 &&
	run 1 "$work/n3.log" --load "$work/two" --exit-interval 4 --save "$work/one" --save-interval 1 &&
	run 2 "$work/n4.log" --load "$work/one" --ckpt-step 23 --exit-interval 4 --context-parallel-size 2 &&
	alike "$work/n1.log" <(cat "$work/n2.log" "$work/n3.log") 4 &&
	alike <(grep -E 'iteration +24/' "$work/n1.log") "$work/n4.log" 1
verdict $? "a checkpoint of two processes, resumed by one, and the reverse"

# refused WHAT ARGUMENT...: by this sentence
refused() {
	local what=$1
	shift
	run 4 "$work/log" --context-parallel-size 4 "$@"
	[ $? != 0 ] && grep -q -- "$what" "$work/log"
	verdict $? "$what"
}
refused "--seq-length: expected a multiple of 2 times --context-parallel-size 4, found 100" --seq-length 100
refused "--cp-comm-type a2a: expected --num-query-groups that is a multiple of --context-parallel-size 4, found 2" --cp-comm-type a2a
refused "--cp-comm-type ring is not supported; use p2p, all_gather, a2a or a2a+p2p" --cp-comm-type ring
refused "--cp-comm-type a2a+p2p: expected --hierarchical-context-parallel-sizes with it" --cp-comm-type a2a+p2p
refused "--hierarchical-context-parallel-sizes: expected positive numbers whose product is --context-parallel-size 4" --cp-comm-type a2a+p2p \
	--hierarchical-context-parallel-sizes 2 4
refused "--cp-comm-type a2a+p2p: expected two of --hierarchical-context-parallel-sizes, found 1" --cp-comm-type a2a+p2p \
	--hierarchical-context-parallel-sizes 4
refused "a2a+p2p: expected --num-query-groups that is a multiple of the first of --hierarchical-context-parallel-sizes, 4, found 2" \
	--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 1
refused "--cp-comm-type: expected one word, or one for each of --num-layers 4, found 2" --cp-comm-type p2p a2a
processes_end
