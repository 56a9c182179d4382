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
gradients obj 4 TP=2 SP=1 EP=2 LATE=1
gradients obj 4 TP=2 SP=1 EP=2 ETP=1
gradients asan 2 EP=2

as_one "experts with a bias, shared experts" deepseek "4-ep4 4-tp2-sp-ep2" 4 --transformer-impl transformer_engine "${said[@]}"
as_one "drawn weights, validation, two processes of each expert" mixtral 4-ep2 6 --eval-interval 2 --full-validation \
	--data-path tests/fixtures/data/tales_text_document "${said[@]}"
as_one "dropout, per-token loss, documents" mixtral 2-ep2 4 --attention-dropout 0.1 --hidden-dropout 0.1 --calculate-per-token-loss \
	--eod-mask-loss --reset-attention-mask --reset-position-ids --eod-id 11 "${said[@]}"
as_one "beside stages, sequences that are shared, and a divided optimizer" mixtral "4-pp2-ep2 4-tp2-sp-cp2-ep2" 4 --use-distributed-optimizer \
	"${said[@]}"
# Processes that share an expert have other tokens: there are more of them than of those that share a dense layer.
apart="4-etp2-ep2 8-tp2-sp-pp2-cp2-etp4"
as_one "experts divided by more than other layers" mixtral "$apart" 4 --use-distributed-optimizer \
	--save "$work/divided" --save-interval 2 "${said[@]}"
# shellcheck disable=SC2086
run 1 "$work/n1.log" --load "$work/divided" --ckpt-step 2 --exit-interval 4 "${said[@]}" &&
	sed '/iteration  *[12]\//d' "$work/n$(todays "experts divided by more than other layers" $apart).log" >"$work/later" && alike "$work/later" "$work/n1.log" 2 >"$work/log"
verdict $? "one process goes on with the experts that several have saved"
# Rows go to experts while shared experts compute: the same bits.
family_args deepseek
for n in 4-ep4 4-tp2-sp-ep2; do
	layout_flags $n
	for beside in "" --moe-shared-expert-overlap; do
		# shellcheck disable=SC2086
		run 4 "$work/n4$beside.log" --exit-interval 4 --transformer-impl transformer_engine "${layout[@]}" "${said[@]}" $beside
	done
	alike "$work/n4.log" "$work/n4--moe-shared-expert-overlap.log" 4 0 >"$work/log"
	verdict $? "rows beside shared experts, $n"
done
# Three losses. Of the global one a process's gradient is one of as many terms as processes share the samples, and is divided by them, as
# Megatron's is: so two processes with twice its weight do what one does with microbatches of twice the size.
three=(--moe-router-load-balancing-type seq_aux_loss global_aux_loss aux_loss --moe-aux-loss-coeff 0.1 0.4 0.2)
as_one "three losses that balance experts" mixtral "2-pp2 4-tp2-sp-cp2-ep2" 4 "${three[@]}" "${said[@]}"
cp "$work/n1.log" "$work/three"
as_one "layers run again, stages" mixtral 2-pp2-vpp2 4 "${three[@]}" "${said[@]}" --recompute-granularity full --recompute-method block \
	--recompute-num-layers 1
alike "$work/three" "$work/n1.log" 4 0 >"$work/log"
verdict $? "layers that run again are counted once"
family_args mixtral
run 1 "$work/n1.log" --micro-batch-size 4 --exit-interval 4 --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.2 \
	"${said[@]}" &&
	run 2 "$work/n2.log" --exit-interval 4 --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.4 "${said[@]}" &&
	alike "$work/n1.log" "$work/n2.log" 4 >"$work/log" && grep -q 'global_load_balancing_loss: [1-9]' "$work/n2.log"
verdict $? "loads of all processes that share the samples"
# Biases of experts and of their router: each process has those of its experts, in a save, too.
as_one "biases" biased "2-ep2 4-ep4 4-tp2-sp-ep2-etp1" 4 "${said[@]}"
as_one "biases, recomputed, a router of more digits" biased 2-ep2 4 --moe-router-dtype fp32 --recompute-granularity selective \
	--recompute-modules moe_act "${said[@]}"
layout_flags 2-ep2
run 2 "$work/n2.log" --save "$work/biased" --save-interval 2 --exit-interval 4 "${layout[@]}" "${said[@]}" &&
	run 1 "$work/n1.log" --load "$work/biased" --ckpt-step 2 --exit-interval 4 "${said[@]}" &&
	sed '/iteration  *[12]\//d' "$work/n2.log" >"$work/later" && alike "$work/later" "$work/n1.log" 2 >"$work/log"
verdict $? "one process goes on with the biases that two have saved"
run 2 "$work/log" --tensor-model-parallel-size 2 --sequence-parallel
[ $? = 2 ] && grep -q "Bias in Moe is only supported when ETP==1" "$work/log"
verdict $? "biases of experts that are divided"
# Each microbatch is balanced by itself, and validation chooses by scores.
as_one "experts that are chosen alike" mixtral "2-ep2 4-pp2-ep2" 6 --moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0 \
	--eval-interval 2 "${said[@]}"
as_one "experts that are chosen alike, with room for some" mixtral 2-ep2 4 --moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0 \
	--moe-expert-capacity-factor 0.7 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "${said[@]}"
# Logits are random, and the same of a token wherever it is.
as_one "random logits" mixtral "2-ep2 4-pp2-ep2 4-tp2-sp-cp2-ep2" 4 --moe-router-force-load-balancing --moe-aux-loss-coeff 0.1 "${said[@]}"
cp "$work/n1.log" "$work/random"
as_one "random logits, layers run again" mixtral 2-ep2 4 --moe-router-force-load-balancing --moe-aux-loss-coeff 0.1 "${said[@]}" \
	--recompute-granularity full --recompute-method uniform --recompute-num-layers 1
alike "$work/random" "$work/n1.log" 4 0 >"$work/log"
verdict $? "layers that run again have the same random logits"
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
[ $? != 0 ] && grep -q -- "--num-experts with --tensor-model-parallel-size 2: expected --sequence-parallel with them" "$work/log"
verdict $? "experts and a whole stream in each process"
processes_end
