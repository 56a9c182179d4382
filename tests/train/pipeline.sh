#!/bin/bash
# Processes that share the layers (pipeline parallelism), on the CPU: they must train as one process does.
#
# In fp32 a microbatch's losses and gradients have the bits of one process, and so have their sums: what is printed must be the same.
# Gradients of a tied embedding alone, and sums of numbers of several stages or processes, are added up in another order: where there are
# such, numbers must agree within 1e-5 of their value.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin pipeline
said=(--log-params-norm --log-num-zeros-in-grad)

within=0 as_one "1F1B and interleaved" llama "2-pp2 4-pp4 2-pp2-vpp2 2-pp2-last1" 6 --eval-interval 2 --eval-iters 2 "${said[@]}"
within=0 as_one "dropout, documents, a window, per-token loss" llama 2-pp2-vpp2 4 --attention-dropout 0.1 --hidden-dropout 0.1 \
	--calculate-per-token-loss --eod-mask-loss --reset-attention-mask --reset-position-ids --eod-id 11 --window-size 40,0
as_one "tied, learned positions, stages of 1, 2 and 1 layers" gpt2 "3-pp3 4-pp2" 4 --account-for-embedding-in-pipeline-split \
	--account-for-loss-in-pipeline-split --log-params-norm
within=0 as_one "layouts of stages, of which some have no layers" llama "2-pp2-Et*3|tL 2-pp2-Et||ttt|L 4-pp4-E|(tt|)*2L" 6 --eval-interval 2 --eval-iters 2 "${said[@]}"
within=0 as_one "embedding and loss count as layers of model chunks" llama "2-pp2-vpp3" 4 --account-for-embedding-in-pipeline-split \
	--account-for-loss-in-pipeline-split
as_one "experts with a bias, layers run again" deepseek "2-pp2-vpp2 4-pp2-ep2" 4 --recompute-granularity full --recompute-method uniform \
	--recompute-num-layers 1 --moe-z-loss-coeff 1e-3 "${said[@]}"
as_one "MTP on the last stage, which embeds, too; drawn weights" mixtral "2-pp2-vpp2 4-tp2-sp-pp2" 4 --mtp-num-layers 2
as_one "MTP and a tied head; drawn weights" qwen3 "2-pp2 2-fsdp" 4 --mtp-num-layers 1 --hidden-dropout 0.1
within=0 as_one "more microbatches than a group has, all of the validation set" llama "2-pp2-vpp2" 6 --micro-batch-size 1 \
	--microbatch-group-size-per-virtual-pipeline-stage 3 --eval-interval 2 --full-validation \
	--data-path tests/fixtures/data/tales_text_document
sets="tests/fixtures/data/notes_text_document tests/fixtures/data/tales_text_document" within=0 as_one "validation sets" llama "2-pp2-vpp2" 8 \
	--eval-interval 2

# A HybridModel of a GPTModel's layers trains as that does, on stages that its pattern names; what is saved holds the same in both forms, and
# a run of either goes on with the other's.
forms() {
	local mcorefs=${MCOREFS:-$(dirname "$train")/mcorefs} way=(--pipeline-model-parallel-size 2 --ckpt-format torch)
	local words=(--exit-interval 2 --save-interval 2 --train-iters 4) hybrid=(--hybrid-layer-pattern '*-|*-*-|*-|*-' --is-hybrid-model)
	family_args llama
	args+=(--num-layers 5 --transformer-impl transformer_engine)
	run 1 "$work/n1.log" "${words[@]}" --save "$work/gpt" && run 2 "$work/log" "${words[@]}" "${way[@]}" "${hybrid[@]}" --save "$work/hybrid" &&
		alike "$work/n1.log" "$work/log" 2 0 && "$mcorefs" diff "$work/gpt" "$work/hybrid" --optim >"$work/log" || return
	grep -aq 'decoder.layers.3.mlp.linear_fc1' "$work"/hybrid/iter_0000002/mp_rank_00_001/model_optim_rng.pt || return
	run 1 "$work/n1.log" "${words[@]}" --load "$work/hybrid" --save "$work/gpt2" && run 1 "$work/log" "${words[@]}" \
		--hybrid-layer-pattern '*-*-*-*-*-' --load "$work/gpt" --save "$work/hybrid2" && alike "$work/n1.log" "$work/log" 2 0 &&
		"$mcorefs" diff "$work/gpt2" "$work/hybrid2" --optim >"$work/log"
}
forms
verdict $? "a HybridModel"

# Of seven microbatches in groups of five, more messages are on their way at once than of eight: each batch of a schedule has room.
grows() {
	local words=(--micro-batch-size 1 --step-batch-size-schedule "0:7 1K:8" --exit-interval 3)
	family_args llama
	args=("${args[@]/#--global-batch-size/--eval-global-batch-size}")
	run 1 "$work/n1.log" "${words[@]}" && run 2 "$work/log" "${words[@]}" --pipeline-model-parallel-size 2 \
		--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 5 && alike "$work/n1.log" "$work/log" 3 0
}
grows
verdict $? "batches that grow"

follow() {
	BACKEND=cpu LAUNCH="${launcher[*]} 2" FLAGS="--pipeline-model-parallel-size 2 $2" tests/train/follow.sh "$fixtures/$1" >"$work/log" 2>&1
	verdict $? "bf16: two stages follow the run $1"
}
follow llama-torch_dist-tp2-pp2-vpp2 "--num-layers-per-virtual-pipeline-stage 1"
follow llama-torch_dist-tp2-pp2-vpp2 ""

# What cannot be divided, or cannot take turns.
refused() {
	local name=$1 want=$2
	shift 2
	family_args llama
	run 2 "$work/log" --pipeline-model-parallel-size 2 "$@"
	[ $? != 0 ] && grep -q -- "$want" "$work/log"
	verdict $? "$name"
}
refused "five layers of two stages" "pp2 is impossible: 5 layers cannot be divided among 2 stages" --num-layers 5
refused "a stage that ends inside a block" "between attention and its MLP" --hybrid-layer-pattern '*-*|-*-'
refused "three microbatches in groups of two" "found 1 of 3" --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 6

# Both processes must know of a loss that the last one alone has.
family_args llama
run 2 "$work/log" --pipeline-model-parallel-size 2 --fp16 --loss-scale 1 --lr 1e6 --lr-warmup-iters 0 --clip-grad 0
status=$?
[ $status != 0 ] && [ "$(grep -c "found NaN in local forward loss calculation" "$work/log")" = 1 ] && grep -q "nothing was updated" "$work/log"
verdict $? "a loss that is not finite ends both, and one says it"
processes_end
