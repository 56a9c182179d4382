#!/bin/bash
# Processes that share the experts (expert parallelism, and tensor parallelism of experts), on the CPU: they must train as one process does.
#
# In fp32 numbers must agree within 1e-5 of their value as they are printed, as in parallel.sh.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin experts
said=(--log-params-norm --log-num-zeros-in-grad --moe-z-loss-coeff 1e-3)

# Shapes where experts get no tokens, or all of them.
gradients obj 4 EP=2
gradients obj 4 EP=4
gradients obj 4 TP=2 SP=1 EP=2
gradients obj 4 TP=2 SP=1 EP=2 ETP=1
gradients asan 2 EP=2

as_one "experts with a bias, shared experts" deepseek "4-ep4 4-tp2-sp-ep2" 4 --transformer-impl transformer_engine "${said[@]}"
as_one "drawn weights, validation, two processes of each expert" mixtral 4-ep2 6 --eval-interval 2 --full-validation \
	--data-path tests/fixtures/data/tales_text_document "${said[@]}"
as_one "dropout, per-token loss, documents" mixtral 2-ep2 4 --attention-dropout 0.1 --hidden-dropout 0.1 --calculate-per-token-loss \
	--eod-mask-loss --reset-attention-mask --reset-position-ids --eod-id 11 "${said[@]}"
as_one "beside stages, sequences that are shared, and a divided optimizer" mixtral "4-pp2-ep2 4-tp2-sp-cp2-ep2" 4 --use-distributed-optimizer \
	"${said[@]}"
as_one "experts with room for some of their choices, by probability" deepseek "2 2-ep2 4-ep4" 4 --moe-expert-capacity-factor 0.7 "${said[@]}"
cp "$work/n1.log" "$work/dropped"
as_one "the first choices, padded" deepseek 2-ep2 4 --moe-expert-capacity-factor 0.7 --moe-token-drop-policy position \
	--moe-pad-expert-input-to-capacity "${said[@]}"
! alike "$work/dropped" "$work/n1.log" 4 1e-4 >"$work/log"
verdict $? "other choices are dropped"
as_one "room for all" deepseek 1 4 "${said[@]}"
cp "$work/n1.log" "$work/all"
as_one "room for all" deepseek 2-ep2 4 --moe-expert-capacity-factor 100 "${said[@]}"
alike "$work/all" "$work/n1.log" 4 0 >"$work/log"
verdict $? "room for all drops nothing"
within=1e-2 as_one "bf16" mixtral 2-tp2-sp 4 --bf16
BACKEND=cpu LAUNCH="${launcher[*]} 2" FLAGS="--expert-model-parallel-size 2" tests/train/follow.sh "${at[deepseek]}" >"$work/log" 2>&1
verdict $? "bf16: two processes follow the run that four processes made"

# What cannot be divided.
family_args mixtral
run 3 "$work/log" --expert-model-parallel-size 3 --global-batch-size 6
[ $? != 0 ] && grep -q -- "experts" "$work/log"
verdict $? "four experts on three processes"
run 2 "$work/log" --tensor-model-parallel-size 2
[ $? != 0 ] && grep -q -- "--num-experts with --tensor-model-parallel-size 2: expected --sequence-parallel beside them" "$work/log"
verdict $? "experts and a whole stream in each process"
processes_end
