#!/bin/bash
# The distributed optimizer, buckets and what runs in parallel with the passes, on the CPU: processes must train as one process does.
#
# In fp32 numbers must agree within 1e-5 of their value as they are printed, as in parallel.sh. Each way to reduce must print the same.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin distopt
said=(--log-params-norm --log-num-zeros-in-grad)
divided=(--use-distributed-optimizer)
beside=(--overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 20000)

as_one "llama, many buckets, validation" llama "2 4" 6 "${divided[@]}" "${beside[@]}" "${said[@]}" --eval-interval 2 --eval-iters 2
as_one "tied, state on the host" qwen2 2 4 "${divided[@]}" --use-precision-aware-optimizer --optimizer-cpu-offload \
	--optimizer-offload-fraction 0.5 --bf16 "${said[@]}"
as_one "experts in groups of their own, drawn weights" mixtral 4-ep2 4 "${divided[@]}" "${beside[@]}" "${said[@]}"
as_one "an embedding that two stages share" qwen2 4-pp2 4 "${divided[@]}" "${beside[@]}" "${said[@]}"
as_one "shared sequences" llama 4-cp2 4 "${divided[@]}" "${beside[@]}" "${said[@]}"
# inst2: the processes are two instances, each with all of the state.
as_one "two instances, validation" llama "4-inst2 2-inst2" 6 "${divided[@]}" "${beside[@]}" "${said[@]}" --eval-interval 2 --eval-iters 2
as_one "two instances that share sequences, heads and stages" llama "4-cp2-inst2 4-cp4-inst2 8-tp2-inst2 8-pp2-inst2" 4 "${divided[@]}" "${said[@]}"
as_one "two instances with experts" mixtral "4-ep2-inst2 8-tp2-sp-ep2-etp1-inst2 8-tp2-sp-ep2-inst2" 4 "${divided[@]}" "${beside[@]}" "${said[@]}"
as_one "two instances, tied stages" qwen2 "8-pp2-inst2" 4 "${divided[@]}" "${beside[@]}" "${said[@]}"
as_one "two instances, state on the host" qwen2 4-inst2 4 "${divided[@]}" --use-precision-aware-optimizer --optimizer-cpu-offload \
	--optimizer-offload-fraction 0.5 --bf16 "${said[@]}"
within=1e-2 as_one "gradients in fp16" deepseek "2 4-inst2" 4 --fp16 --loss-scale 4096 "${divided[@]}" "${beside[@]}"

# Sums of two processes have one order: all of these print the same.
same() {
	local name=$1 of=$2 bad=0 i=0 how
	shift 2
	family_args "$of"
	for how in "" "--overlap-grad-reduce --ddp-num-buckets 7" "--use-distributed-optimizer" \
		"--use-distributed-optimizer --overlap-grad-reduce --ddp-bucket-size 9000" \
		"--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 9000"; do
		# shellcheck disable=SC2086
		run 2 "$work/log" --load "${at[$of]}" --ckpt-step 20 --exit-interval 4 "${said[@]}" $how "$@" || bad=1
		rows "$work/log" >"$work/same$i"
		[ -s "$work/same$i" ] && cmp "$work/same0" "$work/same$i" || bad=1
		i=$((i + 1))
	done
	verdict $bad "$name"
}
same "bf16: any buckets, divided or not, beside or behind" qwen2 --bf16 --grad-reduce-in-bf16

# What a process needs of main parameters and moments is divided among two, or two of each instance; weights and gradients are whole.
memory() {
	family_args llama
	run "$1" "$work/log" --hidden-size 2048 --ffn-hidden-size 8192 --bf16 --dry-run "${@:2}"
	sed -nE 's/^memory: .*weights ([0-9.]+), gradients ([0-9.]+), main parameters ([0-9.]+), moments ([0-9.]+),.*/\1 \2 \3 \4/p' "$work/log"
}
read -r -a whole <<<"$(memory 2)"
read -r -a parts <<<"$(memory 2 "${divided[@]}")"
[ "$(memory 4 "${divided[@]}" --num-distributed-optimizer-instances 2)" = "${parts[*]}" ] && awk -v a="${whole[*]}" -v b="${parts[*]}" '
	function near(x, y) { return x - y < 2e-3 && y - x < 2e-3 }
	BEGIN { n = split(a, x, " "); m = split(b, y, " ")
		exit !(n == 4 && m == 4 && x[3] > 0.5 && y[1] == x[1] && near(y[2], x[2]) && near(y[3], x[3] / 2) && near(y[4], x[4] / 2)) }'
verdict $? "memory of ${parts[*]} GiB, of ${whole[*]}"
processes_end
