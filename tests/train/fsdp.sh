#!/bin/bash
# FSDP on the CPU: processes that divide weights, gradients and state must train as one process does, and have less of each.
#
# In fp32 numbers must agree within 1e-5 of their value as they are printed, as in parallel.sh.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin fsdp
at[gpt2]=$fixtures/gpt2-torch-tp2-pp2
said=(--log-params-norm --log-num-zeros-in-grad)
fsdp=(--use-megatron-fsdp)
beside=("${fsdp[@]}" --overlap-grad-reduce --overlap-param-gather)

# Each strategy, two microbatches in each process.
gradients obj 2 FSDP=1
gradients obj 4 FSDP=1 EP=2
gradients asan 2 FSDP=1

as_one "llama, validation" llama 4 6 "${beside[@]}" "${said[@]}" --eval-interval 2 --eval-iters 2
as_one "a tied head, learned positions, shared layers, dropout" gpt2 4-tp2-sp 4 "${fsdp[@]}" "${said[@]}" --hidden-dropout 0.1
as_one "experts with a bias, divided over processes, layers run again" deepseek 2-ep2 4 "${beside[@]}" "${said[@]}" \
	--recompute-granularity full --recompute-method uniform --recompute-num-layers 2
as_one "experts in groups of their own, stages, drawn weights" mixtral 4-ep2-pp2 4 "${fsdp[@]}" --overlap-grad-reduce \
	"${said[@]}"
# The scale of the loss is found by all processes together: steps are skipped alike.
within=1e-2 as_one "torch's FSDP in fp16, a tied head" gpt2 2 4 --use-torch-fsdp2 --fp16 --initial-loss-scale 2097152 --hysteresis 1 "${said[@]}"
grep -q 'number of skipped iterations:   1' "$work/n2.log"
verdict $? "steps are skipped with FSDP"
as_one "gradients and state" qwen2 2 4 --data-parallel-sharding-strategy optim_grads "${beside[@]}" "${said[@]}"

# A last stage of 256 parameters, in two processes: the gradients of each have less room than main parameters of any piece of 128 need.
mapfile -t args < <(printf '%s\n' --num-layers 2 --hidden-size 8 --num-attention-heads 2 --ffn-hidden-size 16 --seq-length 16 \
	--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 4 --train-iters 4 --lr 1e-3 --log-interval 1 --seed 7 \
	--transformer-impl local --disable-bias-linear --normalization RMSNorm --position-embedding-type rope \
	--untie-embeddings-and-output-weights --mock-data --tokenizer-type NullTokenizer --vocab-size 8 \
	--make-vocab-size-divisible-by 8 --eval-iters 0 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ett|L' \
	--bf16 --main-grads-dtype bf16 --use-precision-aware-optimizer "${fsdp[@]}")
launcher=(timeout -k 5 60 "${launcher[@]}")
run 4 "$work/n1.log" && run 4 "$work/n4.log" --optimizer-cpu-offload &&
	alike "$work/n1.log" "$work/n4.log" 4 0 >"$work/log"
verdict $? "state of few parameters on the host"

# memory STRATEGY: GiB of weights, gradients, main parameters and moments of one process of four
memory() {
	family_args llama
	RANK=0 WORLD_SIZE=4 "$train" "${args[@]}" --backend cpu --hidden-size 2048 --ffn-hidden-size 8192 --bf16 --dry-run "${fsdp[@]}" \
		--data-parallel-sharding-strategy "$1" >"$work/log" 2>&1
	sed -nE 's/^memory: .*weights ([0-9.]+), gradients ([0-9.]+), main parameters ([0-9.]+), moments ([0-9.]+),.*/\1 \2 \3 \4/p' "$work/log"
}
parts="$(memory no_shard) $(memory optim) $(memory optim_grads) $(memory optim_grads_params)"
awk -v all="$parts" '
	BEGIN { count = split(all, m, " "); bad = count != 16 || m[1] < 0.2
		for (s = 1; s < 4; s++)
			for (kind = 1; kind <= 4; kind++) {
				least = kind > 2 ? 1 : kind == 2 ? 2 : 3 # the first strategy that divides it
				d = m[4 * s + kind] - m[kind] / (s >= least ? 4 : 1)
				if (d > 2e-3 || d < -2e-3) bad = 1
			}
		exit bad }'
verdict $? "memory of each strategy: $parts"
processes_end
