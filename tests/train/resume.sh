#!/bin/bash
# Runs that end before their time, and go on: what is saved must be the same bits as if they had not ended. BACKEND=cuda: on a GPU.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/families.sh
train=${MCOREFS_TRAIN:-$(realpath -m "${O:-build}")/mcorefs-train}
mcorefs=${MCOREFS:-$(realpath -m "${O:-build}")/mcorefs}
work=$(mktemp -d "${TMPDIR:-/tmp}/resume-XXXXXX") || exit 1
small=$work/small
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; umount "$small" 2>/dev/null; rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
family_args llama
fixture=tests/fixtures/resume/llama-torch-tp2-pp2
RANDOM=${SEED:-$$}
echo "seed: ${SEED:-$$}"

precision=--bf16

# start ARGUMENT...: the fixture's run, as process $pid; what it says goes to $work/log
start() {
	# Emptied first: what an earlier run logged would be taken for this one's, and a signal would meet a shell that is not it yet.
	: >"$work/log"
	"$train" "${args[@]}" $precision --backend ${BACKEND:-cpu} --save-interval 5 "$@" >"$work/log" 2>&1 &
	pid=$!
}

finish() {
	local status
	wait "$pid" 2>/dev/null
	status=$?
	pid=
	return $status
}

run() {
	start "$@"
	finish
}

# rows LOG: what a log says of each iteration, but for times
rows() {
	sed -nE 's/^ \[[^]]*\] (iteration .*) elapsed time[^|]*(\| learning rate.* number of nan iterations: .*)$/\1\2/p' "$1"
}

latest() {
	cat "$1/latest_checkpointed_iteration.txt" 2>/dev/null
}

# whole DIR: what the tracker names has the sums that its manifest says.
whole() {
	local at
	at=$1/iter_$(printf %07d "$(latest "$1")")
	[ -f "$at/.metadata" ] || return 1
	(cd "$at" && sed -nE 's/^ *"(.*)": "([0-9a-f]{64})",?$/\2  \1/p' integrity.json >"$work/sums" &&
		[ "$(wc -l <"$work/sums")" -gt 3 ] && sha256sum -c --quiet "$work/sums")
}

# same A B: iteration 40 of both has the same tensors and the same index.
same() {
	local f
	for f in "$1"/iter_0000040/*.distcp "$1"/iter_0000040/.metadata; do
		cmp "$f" "$2/iter_0000040/${f##*/}" || return 1
	done
	"$mcorefs" diff "$1" "$2" --optim -q
}

# killed_run DIR NUMBER ARGUMENT...: a run that is killed: at any moment, or when a save has begun.
killed_run() {
	local dir=$1 number=$2 source=(--load "$fixture" --ckpt-step 20) at=0
	shift 2
	[ -z "$(latest "$dir")" ] || source=(--load "$dir")
	if [ "$number" = 0 ]; then
		run "${source[@]}" --save "$dir" "$@"
		return
	fi
	start "${source[@]}" --save "$dir" "$@"
	sleep 0.$((RANDOM % 50 + 10))
	if [ $((number % 2)) = 0 ]; then
		while ! compgen -G "$dir/*.tmp" >/dev/null && [ $((at++)) -lt 200 ]; do sleep 0.002; done
	fi
	kill -KILL "$pid" 2>/dev/null
	finish
	return 0
}

# is_bit_equal NAME ARGUMENT...: nine runs, of which eight are killed, end as one does.
is_bit_equal() {
	local whole=$work/$1-whole parts=$work/$1-parts number
	shift
	run --load "$fixture" --ckpt-step 20 --save "$whole" "$@" || return 1
	rows "$work/log" >"$work/whole.rows"
	[ "$(wc -l <"$work/whole.rows")" = 20 ] || return 1
	: >"$work/parts.rows"
	for number in 8 7 6 5 4 3 2 1 0; do
		killed_run "$parts" $number "$@" || return 1
		rows "$work/log" >>"$work/parts.rows"
		[ -z "$(latest "$parts")" ] || whole "$parts" || return 1
	done
	diff <(sort -u "$work/parts.rows") <(sort -u "$work/whole.rows") && same "$whole" "$parts" &&
		! compgen -G "$parts/*.tmp"
}

# Killed and gone on with, the tensors are those of the other format's save, and the steps are the same.
goes_on_in_the_legacy_format() {
	local dir=$work/legacy number
	for number in 4 3 2 1 0; do
		killed_run "$dir" $number --ckpt-format torch || return 1
		[ -z "$(latest "$dir")" ] || [ -s "$dir/iter_$(printf %07d "$(latest "$dir")")/mp_rank_00/model_optim_rng.pt" ] || return 1
	done
	run --load "$dir" --ckpt-step 30 --save "$dir" --ckpt-format torch &&
		diff <(rows "$work/log") <(tail -n 10 "$work/plain.rows") && "$mcorefs" diff "$work/plain-whole" "$dir" --optim -q &&
		[ -z "$(find "$dir" -name '*.distcp' -o -name '*.tmp')" ]
}

# What is saved in no other format says so.
says_what_it_saves() {
	local format
	for format in torch_dcp fsdp_dtensor zarr; do
		run --load "$fixture" --ckpt-step 20 --save "$work/format" --ckpt-format $format --exit-interval 30 || return 1
		grep -q "^--ckpt-format $format: saves are torch_dist; --load finds out the format" "$work/log" || return 1
		[ -f "$work/format/iter_0000030/.metadata" ] || return 1
	done
}

goes_on_after_a_signal() {
	start --load "$fixture" --ckpt-step 20 --save "$work/term"
	while ! grep -q 'iteration *2[2-9]/' "$work/log" && kill -0 "$pid" 2>/dev/null; do sleep 0.005; done
	kill -TERM "$pid"
	finish && grep -q 'a signal asked for it' "$work/log" && whole "$work/term" || return 1
	run --load "$work/term" --save "$work/term" && same "$work/plain-whole" "$work/term"
}

# The run goes on, and the checkpoint before stays the latest.
outlives_a_full_disk() {
	run --load "$fixture" --ckpt-step 20 --save "$small/run"
	[ $? = 1 ] && grep -q 'iteration 40 was not saved: .*No space left' "$work/log" &&
		grep -q '^mcorefs-train: not saved: iteration 30, 35, 40; the last one that this run has saved is 25$' "$work/log" &&
		[ "$(rows "$work/log" | wc -l)" = 20 ] && [ "$(latest "$small/run")" = 25 ] && whole "$small/run"
}

# Megatron looks for random states unless the arguments say that there are none.
saves_random_states_unless_told() {
	local item=rng_state/shard_0.0_1.1
	grep -qa "$item" "$work/plain-whole/iter_0000040/.metadata" &&
		run --load "$work/plain-whole" --ckpt-step 30 --exit-interval 31 --no-save-rng --save "$work/no-rng" &&
		! grep -qa "$item" "$work/no-rng/iter_0000031/.metadata" &&
		LC_ALL=C grep -qaP 'no_save_rng(q.|r....|\x94)\x88' "$work/no-rng/iter_0000031/common.pt" &&
		run --load "$work/no-rng" --save "$work/no-rng" && "$mcorefs" diff "$work/plain-whole" "$work/no-rng" --optim -q
}

verifies_sums() {
	local data=$work/no-rng/iter_0000040/__0_2.distcp
	run --load "$work/no-rng" --verify-integrity || return 1
	printf '\377' | dd of="$data" bs=1 seek=5000 conv=notrunc status=none
	run --load "$work/no-rng" || return 1
	run --load "$work/no-rng" --verify-integrity
	[ $? = 1 ] && grep -q "^mcorefs-train: --verify-integrity: .*'__0_2.distcp': SHA-256 is" "$work/log" &&
		[ "$(grep -c ^mcorefs-train: "$work/log")" = 1 ]
}

takes_an_earlier_iteration() {
	run --load "$work/plain-whole" --ckpt-step 30 && grep -q '^weights: iteration 30 of' "$work/log" &&
		diff <(rows "$work/log") <(grep -E 'iteration +(3[1-9]|40)/' "$work/plain.rows")
}

# A supervisor may start a run once more that had come to its end.
ends_again() {
	run --load "$work/plain-parts" --save "$work/plain-parts" && [ -z "$(rows "$work/log")" ] &&
		grep -q 'validation loss at iteration 40 on validation set' "$work/log" && same "$work/plain-whole" "$work/plain-parts"
}

fine_tunes() {
	run --load "$work/plain-whole" --finetune --exit-interval 1 &&
		rows "$work/log" | grep -q 'iteration  *1/.* consumed samples:  *8 .*learning rate: 2.000000E-04'
}

begins_a_new_optimizer() {
	run --load "$work/plain-whole" --ckpt-step 30 --no-load-optim --exit-interval 31 &&
		rows "$work/log" | grep -q 'iteration  *31/.* consumed samples:  *248 .*learning rate: 2.000000E-04'
}

# The model is the directory's, the first loss that of the checkpoint it was made of.
takes_a_huggingface_model() {
	local data=(--data-path tests/fixtures/data/tales_text_document --split 90,10,0 --eval-iters 0 --lr 1e-3
		--micro-batch-size 2 --global-batch-size 8 --train-iters 2 --log-interval 1 --bf16 --backend ${BACKEND:-cpu} --seq-length 128
		--hidden-dropout 0 --attention-dropout 0)
	"$mcorefs" export "$work/plain-whole" hf "$work/hf" >"$work/log" 2>&1 &&
		"$train" --load "$work/hf" "${data[@]}" >"$work/log" 2>&1 || return 1
	rows "$work/log" >"$work/hf.rows"
	"$train" --load "$work/plain-whole" --use-checkpoint-args --finetune "${data[@]}" --tokenizer-type HuggingFaceTokenizer \
		--tokenizer-model tests/fixtures/data/tokenizer >"$work/log" 2>&1 || return 1
	[ -s "$work/hf.rows" ] && diff <(rows "$work/log" | head -n 1) <(head -n 1 "$work/hf.rows") || return 1
	"$train" --load "$work/hf" "${data[@]}" $offload --optimizer-offload-fraction 0.6 >"$work/log" 2>&1 &&
		diff <(rows "$work/log") "$work/hf.rows"
}

# HF stores the norms of gated delta nets as they are, and the other norms as weight - 1, as a run has all of them.
takes_gated_delta_nets_of_huggingface() {
	local data=(--hidden-dropout 0 --attention-dropout 0 --micro-batch-size 2 --global-batch-size 8 --seq-length 128 --train-iters 1 --lr 1e-3
		--eval-iters 0 --log-interval 1 --data-path tests/fixtures/data/tales_text_document --split 90,10,0 --backend ${BACKEND:-cpu}
		--tokenizer-type HuggingFaceTokenizer --tokenizer-model tests/fixtures/data/tokenizer --use-checkpoint-args)
	(
		family_args next
		"$train" "${args[@]}" --backend ${BACKEND:-cpu} --save "$work/next" --save-interval 2 --exit-interval 2
	) >"$work/log" 2>&1 && "$mcorefs" export "$work/next" iter_0000002/hf "$work/next-hf" >"$work/log" 2>&1 &&
		"$train" --load "$work/next-hf" "${data[@]}" >"$work/log" 2>&1 || return 1
	rows "$work/log" >"$work/hf.rows"
	"$train" --load "$work/next" --finetune --no-load-optim --no-load-rng "${data[@]}" >"$work/log" 2>&1 &&
		[ -s "$work/hf.rows" ] && diff <(rows "$work/log") "$work/hf.rows"
}

offload="--use-precision-aware-optimizer --optimizer-cpu-offload"

# States on the host are loaded and saved as those of the device are. A GPU rounds updates as the host does not, so there each half stays where it is.
goes_on_offloaded() {
	local half=(--optimizer-offload-fraction 0.5) all=() whole=plain
	if [ "${BACKEND:-cpu}" = cuda ]; then
		all=("${half[@]}") whole=half
		run --load "$fixture" --ckpt-step 20 --save "$work/half-whole" $offload "${half[@]}" || return 1
		rows "$work/log" >"$work/half.rows"
	fi
	run --load "$fixture" --ckpt-step 20 --save "$work/host" $offload "${all[@]}" --exit-interval 30 || return 1
	rows "$work/log" >"$work/host.rows"
	run --load "$work/host" --save "$work/host" $offload "${half[@]}" || return 1
	rows "$work/log" >>"$work/host.rows"
	diff "$work/host.rows" "$work/$whole.rows" && same "$work/$whole-whole" "$work/host"
}

goes_on_with_narrow_states() {
	local types="--use-precision-aware-optimizer --main-grads-dtype bf16 --main-params-dtype fp16 --exp-avg-dtype bf16
		--exp-avg-sq-dtype bf16"
	run --load "$fixture" --ckpt-step 20 --save "$work/narrow" $types || return 1
	rows "$work/log" >"$work/narrow.rows"
	run --load "$fixture" --ckpt-step 20 --save "$work/narrow-parts" $types --exit-interval 30 &&
		run --load "$work/narrow-parts" --save "$work/narrow-parts" $types || return 1
	diff <(rows "$work/log") <(tail -n 10 "$work/narrow.rows") && same "$work/narrow" "$work/narrow-parts" &&
		! diff -q "$work/narrow.rows" "$work/plain.rows"
}

# is_drawn_offloaded PRECISION FRACTION ARGUMENT...: a run that begins with drawn weights.
is_drawn_offloaded() {
	local precision=$1 fraction=$2
	shift 2
	run --log-params-norm --exit-interval 3 "$@" || return 1
	rows "$work/log" >"$work/drawn.rows"
	[ "$(wc -l <"$work/drawn.rows")" = 3 ] && ! grep -q 'skipped iterations: *1' "$work/drawn.rows" &&
		run --log-params-norm --exit-interval 3 $offload --optimizer-offload-fraction "$fraction" "$@" &&
		diff <(rows "$work/log") "$work/drawn.rows"
}

# The embedding has more elements than are updated in one go.
updates_large_parameters_in_pieces() {
	is_drawn_offloaded --bf16 1 --make-vocab-size-divisible-by 70000 --micro-batch-size 1 --global-batch-size 1 \
		--seq-length 32 --log-num-zeros-in-grad
}

says_what_the_host_needs() {
	run --dry-run $offload && grep -q '^memory: .*; of the host ' "$work/log" && ! grep -q moments "$work/log" &&
		run --dry-run && ! grep -q 'of the host' "$work/log"
}

needs_nothing_to_say_its_memory() {
	run --load "$work/plain-whole" --save "$work/none" --dry-run && grep -q '^memory: .* million parameters' "$work/log" &&
		[ ! -e "$work/none" ]
}

check() {
	if "$@" >"$work/out" 2>&1; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $*"
		tail -n 20 "$work/out" "$work/log" | cut -c1-300
	fi
}

check is_bit_equal plain
cp "$work/whole.rows" "$work/plain.rows"
check is_bit_equal dropout --hidden-dropout 0.1
check goes_on_in_the_legacy_format
check says_what_it_saves
check goes_on_after_a_signal
if mkdir "$small" && mount -t tmpfs -o size=7m none "$small" 2>/dev/null; then
	check outlives_a_full_disk
else
	echo "skipped: outlives_a_full_disk: no file system can be mounted here"
	skipped=$((skipped + 1))
fi
check saves_random_states_unless_told
check verifies_sums
check takes_an_earlier_iteration
check ends_again
check fine_tunes
check begins_a_new_optimizer
check takes_a_huggingface_model
check takes_gated_delta_nets_of_huggingface
check needs_nothing_to_say_its_memory
check goes_on_offloaded
check goes_on_with_narrow_states
check is_drawn_offloaded --bf16 0.5 --main-grads-dtype bf16 --use-precision-aware-optimizer
check is_drawn_offloaded --fp16 0.5 --initial-loss-scale 1024
check is_drawn_offloaded "" 0.5
check updates_large_parameters_in_pieces
check says_what_the_host_needs
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
