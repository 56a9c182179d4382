#!/bin/bash
# What the loop does in addition to training: steps that are checked, how a run ends, what it tells TensorBoard.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/families.sh
train=${MCOREFS_TRAIN:-$(realpath -m "${O:-build}")/mcorefs-train}
work=$(mktemp -d "${TMPDIR:-/tmp}/loop-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
family_args llama
fixture=tests/fixtures/resume/llama-torch-tp2-pp2
diverge=(--override-opt-param-scheduler --lr-decay-style constant --lr-warmup-iters 0 --lr 1e30)

# run ARGUMENT...: the fixture's run from iteration 20; what it says goes to $work/log
run() {
	"$train" "${args[@]}" --backend cpu --load "$fixture" --ckpt-step 20 "$@" >"$work/log" 2>&1
}

# ends STATUS COMMAND...
ends() {
	local want=$1 status
	shift
	"$@"
	status=$?
	[ $status = "$want" ] || { echo "exit status $status, expected $want" && return 1; }
}

says() {
	grep -qE -- "$1" "$work/log" || { echo "the log does not say: $1" && return 1; }
}

says_not() {
	! says "$1" || { echo "the log says: $1" && return 1; }
}

# field NAME: its values, one for each line of the log
field() {
	sed -nE "s/.* iteration +[0-9]+\/.* $1: +([^ ]+) \|.*/\1/p" "$work/log" | paste -sd ' '
}

# is FOUND WANTED
is() {
	[ "$1" = "$2" ] || { echo "found '$1', expected '$2'" && return 1; }
}

# ---- checks ----

# The second update's gradients are not finite. The state before it is saved, though no save was due.
stops_before_it_updates_with_nan() {
	ends 17 run --bf16 "${diverge[@]}" --save "$work/nan" --save-interval 20 &&
		says 'Unexpected result nan on rank 0 at iteration #22 invocation #1 .message=.found NaN in local ' &&
		says_not ' iteration +22/' && is "$(cat "$work/nan/latest_checkpointed_iteration.txt")" 21 &&
		ends 17 "$train" "${args[@]}" --backend cpu --bf16 "${diverge[@]}" --load "$work/nan" --save "$work/nan" --save-interval 20 \
			>"$work/log" 2>&1 && says 'iteration #22' && says_not 'successfully saved'
}

# As Megatron without its state machine: an exception.
saves_nothing_without_the_state_machine() {
	ends 1 run "${diverge[@]}" --rerun-mode disabled --save "$work/disabled" --save-interval 20 && says 'iteration #22' &&
		[ ! -e "$work/disabled/latest_checkpointed_iteration.txt" ]
}

# Without the check bf16 and fp32 update with what they have; a loss scale skips the step.
goes_on_where_it_is_told_to() {
	ends 0 run --bf16 "${diverge[@]}" --no-check-for-nan-in-loss-and-grad --exit-interval 23 &&
		is "$(field 'grad norm' | cut -d' ' -f2-)" 'nan nan' && is "$(field 'skipped iterations')" '0 0 0' &&
		is "$(field 'lm loss' | wc -w)" 2 &&
		ends 0 run --bf16 --loss-scale 1 "${diverge[@]}" --no-check-for-nan-in-loss-and-grad --exit-interval 23 &&
		is "$(field 'skipped iterations')" '0 1 1' && is "$(field 'lm loss' | cut -d' ' -f2-)" '0.000000E+00 0.000000E+00'
}

# gpt2's update leaves weights that validation is the first to use. Megatron ends there with an exception.
looks_at_validations() {
	local words=("${args[@]}")
	family_args gpt2
	fixture=tests/fixtures/resume/gpt2-torch-tp2-pp2
	ends 1 run "${diverge[@]}" --lr 1e38 --eval-interval 21 && says 'iteration 21: the validation loss is not finite; --no-check' &&
		ends 0 run "${diverge[@]}" --lr 1e38 --eval-interval 21 --no-check-for-nan-in-loss-and-grad --exit-interval 21 &&
		says 'at iteration 21 . lm loss value: NAN .'
	local status=$?
	args=("${words[@]}")
	fixture=tests/fixtures/resume/llama-torch-tp2-pp2
	return $status
}

# A constant loss scale does not take the place of the check, a dynamic one does.
knows_loss_scales() {
	ends 17 run --fp16 --loss-scale 1e12 && says 'iteration #21 .*local grad norm' &&
		ends 0 run --fp16 --initial-loss-scale 1e12 --exit-interval 22 && is "$(field 'skipped iterations')" '1 1' &&
		is "$(field 'nan iterations')" '0 0'
}

# Weight decay beyond all measure: weights vanish, and then grow. The first hundred microbatches are those up to iteration 32.
tells_of_spikes() {
	local grow=(--micro-batch-size 1 --override-opt-param-scheduler --lr-decay-style constant --weight-decay-incr-style linear
		--start-weight-decay 0 --end-weight-decay 3600)
	ends 0 run "${grow[@]}" --check-for-spiky-loss && says "iteration #3[678] invocation #[1-8] .message='Spiky loss'.; training goes on" &&
		says_not '#2[0-9]' && is "$(field 'lm loss' | wc -w)" 20
}

# ---- speed ----

knows_its_peak() {
	ends 0 run --log-throughput --exit-interval 22 &&
		says '^peak: [0-9]+\.[0-9]{3} TFLOP/s, measured with a product of squares of (512|1024|2048)$' &&
		[ "$(sed -nE 's/.*\(TFLOP\/s\/GPU\): [0-9.]+ \| sol: ([0-9]+\.[0-9])% \| learning rate.*/\1/p' "$work/log" | wc -l)" = 2 ] &&
		ends 0 run --exit-interval 21 && says_not 'sol:|peak:'
}

# ---- batches and length ----

# by_samples ARGUMENT...: a run from its beginning, as long as its samples are
by_samples() {
	local words=("${args[@]/#--train-iters/--train-samples}")
	words=("${words[@]/#--lr-decay-iters/--lr-decay-samples}")
	"$train" "${words[@]/#--lr-warmup-iters/--lr-warmup-samples}" --backend cpu "$@" >"$work/log" 2>&1
}

# Two to eight in the first twelve samples, as core 0.12 had it. A change of the batch is saved.
ramps_up() {
	ends 0 by_samples --rampup-batch-size 2 2 12 --train-samples 50 --save "$work/ramp" --save-interval 100 &&
		says '^batch size: 2 to 8 over 12 samples .--rampup-batch-size, which Megatron.s main branch ignores' &&
		is "$(field 'global batch size')" '2 2 4 6 8 8 8 8' && is "$(field 'consumed samples')" '2 4 8 14 22 30 38 46' &&
		is "$(cd "$work/ramp" && echo iter_*)" 'iter_0000002 iter_0000003 iter_0000004 iter_0000008'
}

# Of 7 samples 4 are whole microbatches.
decreases_batches() {
	ends 0 run --micro-batch-size 4 --global-batch-size 7 --decrease-batch-size-if-needed --exit-interval 22 \
		--override-opt-param-scheduler &&
		is "$(field 'global batch size')" '4 4' && is "$(field 'consumed samples')" '164 168' && is "$(field 'skipped samples')" '3 6'
}

# Skipped iterations have no line, and their samples are not seen: what follows them are other losses of the same samples.
skips_iterations() {
	local all
	ends 0 run --exit-interval 23 && all=$(field 'lm loss') &&
		ends 0 run --iterations-to-skip 21 22 --exit-interval 23 && is "$(field 'consumed samples')" 184 &&
		is "$(field 'skipped samples')" 16 && is "$(field 'learning rate')" 6.104050E-04 && [ "$(field 'lm loss')" != "${all##* }" ] &&
		ends 0 run --lr 0 --min-lr 0 --override-opt-param-scheduler --exit-interval 23 && all=$(field 'lm loss') &&
		ends 0 run --lr 0 --min-lr 0 --override-opt-param-scheduler --iterations-to-skip 21 22 --exit-interval 23 &&
		is "$(field 'lm loss')" "${all##* }"
}

# validations: iteration=loss of each
validations() {
	sed -nE 's/ validation loss at iteration ([0-9]+).* lm loss value: ([^ ]+) .*/\1=\2/p' "$work/log" | paste -sd ' '
}

# The same samples in other batches; an evaluation that comes later sees what the first one would have seen.
evaluates_as_it_is_told() {
	local whole
	ends 0 run --exit-interval 40 && whole=$(validations) && is "$(echo "$whole" | sed 's/=[^ ]*//g')" 40 &&
		ends 0 run --exit-interval 40 --eval-iters 2 --eval-global-batch-size 4 && is "$(validations)" "$whole" &&
		ends 0 run --exit-interval 40 --eval-interval 5 --start-eval-at-iter 32 &&
		is "$(validations | sed 's/=[^ ]*//g')" '35 40'
}

# apart: SET=loss of each validation
apart() {
	sed -nE 's/ validation([^ ]*) loss at iteration [0-9]+ \| lm loss value: ([^ ]+) .*/\1=\2/p' "$work/log" | paste -sd ' '
}

# with_sets STATUS PREFIX... -- ARGUMENT...: a run of two steps and a validation after each
with_sets() {
	local status=$1 args=("${args[@]}") prefixes=()
	shift
	while [ "$1" != -- ]; do
		prefixes+=("$1")
		shift
	done
	shift
	valid_args "${prefixes[@]}"
	ends "$status" run --eval-interval 1 --exit-interval 22 "$@"
}

# write_short PREFIX: a dataset of two tokens, which are no sample
write_short() {
	printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' >"$1.idx"
	printf '\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0' >>"$1.idx"
	printf '\5\0\6\0' >"$1.bin"
}

# Each set has the loss that it has in a run without others, also of a run that goes on.
keeps_validation_sets_apart() {
	local data=tests/fixtures/data tales notes losses many=(--multiple-validation-sets)
	with_sets 0 $data/tales_text_document -- && tales=$(apart) && is "${#tales}" 27 && with_sets 0 $data/notes_text_document -- &&
		notes=$(apart) && [ "$notes" != "$tales" ] && with_sets 0 $data/notes_text_document -- "${many[@]}" && is "$(apart)" "${notes//=/-0=}" &&
		losses="-0${notes% *} -1${tales% *} -0${notes#* } -1${tales#* }" &&
		with_sets 0 $data/{notes,tales}_text_document -- "${many[@]}" --save "$work/sets" --save-interval 1 --tensorboard-dir "$work/events" &&
		is "$(apart)" "$losses" && tells 'lm loss validation-0 vs samples' 2 && tells 'lm loss validation-1 vs samples' 2 &&
		tells 'lm loss validation ' 0 && rm -r "$work/events" &&
		echo 21 >"$work/sets/latest_checkpointed_iteration.txt" && with_sets 0 $data/{notes,tales}_text_document -- "${many[@]}" \
		--load "$work/sets" --ckpt-step 21 --validation-set-names diary books && is "$(apart)" "-diary${notes#* } -books${tales#* }" || return 1
	with_sets 1 $data/{notes,tales}_text_document -- "${many[@]}" --validation-set-names a && says 'expected a name for each.*, 2, found 1' &&
		with_sets 1 $data/{notes,tales}_text_document -- "${many[@]}" --validation-set-names a "$(printf 'b%.0s' {1..79})" && says '78 bytes at most' &&
		with_sets 1 1 $data/notes_text_document 2 $data/tales_text_document -- "${many[@]}" && says 'has a weight, but no number of samples' &&
		with_sets 1 $data/{notes,no_such}_document -- "${many[@]}" && says "there is no '$data/notes_document.idx'" &&
		write_short "$work/short" && with_sets 1 $data/notes_text_document "$work/short" -- "${many[@]}" && says 'validation set 1: .*/short: ' &&
		ends 2 run "${many[@]}" && says '--multiple-validation-sets needs --full-validation, as it does in Megatron'
}

# Nothing is left to train, and the log says so.
has_ended_already() {
	ends 0 run --train-iters 20 --override-opt-param-scheduler && says '^iteration 20 of 20 is reached already: nothing is trained; a larger --train-iters goes on$' &&
		says_not ' iteration +[0-9]+/' &&
		ends 0 run --exit-interval 21 && says_not 'reached already'
}

ends_by_another_signal() {
	local pid status
	# Emptied first: what an earlier run logged would be taken for this one's, and a signal would meet a shell that is not it yet.
	: >"$work/log"
	"$train" "${args[@]}" --backend cpu --load "$fixture" --ckpt-step 20 --train-iters 2000 --override-opt-param-scheduler \
		--exit-signal SIGUSR1 --save "$work/signal" --save-interval 1000 >"$work/log" 2>&1 &
	pid=$!
	while ! grep -q 'iteration *2[2-9]/' "$work/log" && kill -0 $pid 2>/dev/null; do sleep 0.01; done
	kill -USR1 $pid
	wait $pid
	status=$?
	is $status 0 && says 'a signal asked for it' && [ -f "$work/signal/latest_checkpointed_iteration.txt" ]
}

# ---- saves that do not stay ----

names() {
	(cd "$1" && echo *)
}

# One of iterations 21, 24, 27 stays, in a directory of its own. It is loaded where there is none that is newer.
saves_what_does_not_stay() {
	local passing=(--non-persistent-save-interval 3 --non-persistent-ckpt-type global) losses
	ends 0 run --exit-interval 30 && losses=$(field 'lm loss') &&
		ends 0 run --save "$work/np" --save-interval 25 --exit-interval 28 "${passing[@]}" &&
		is "$(names "$work/np")" 'iter_0000025 iter_0000028 latest_checkpointed_iteration.txt non_persistent' &&
		is "$(names "$work/np/non_persistent")" 'iter_0000027 latest_checkpointed_iteration.txt' &&
		says 'successfully saved checkpoint from iteration +27 to .*/np/non_persistent \[' || return 1
	resumes "$work/np" 28 "$losses" "${passing[@]}" && rm -r "$work/np/iter_0000028" && echo 25 >"$work/np/latest_checkpointed_iteration.txt" &&
		resumes "$work/np" 25 "$losses" && resumes "$work/np" 27 "$losses" --non-persistent-ckpt-type global &&
		mv "$work/np/non_persistent" "$work/elsewhere" && resumes "$work/np" 25 "$losses" "${passing[@]}" &&
		resumes "$work/np" 27 "$losses" "${passing[@]}" --non-persistent-global-ckpt-dir "$work/elsewhere" &&
		echo release >"$work/elsewhere/latest_checkpointed_iteration.txt" &&
		ends 1 resume "$work/np" "${passing[@]}" --non-persistent-global-ckpt-dir "$work/elsewhere" && says "expected a number, found 'release'"
}

# resume DIR ARGUMENT...
resume() {
	local dir=$1
	shift
	"$train" "${args[@]}" --backend cpu --load "$dir" --exit-interval 30 "$@" >"$work/log" 2>&1
}

# resumes DIR ITERATION LOSSES ARGUMENT...: a run goes on at ITERATION; LOSSES are those of 21 to 30.
resumes() {
	local at=$2 losses=$3 dir=$1
	shift 3
	ends 0 resume "$dir" "$@" && says "^weights: iteration $at of" &&
		is "$(field 'lm loss')" "$(echo "$losses" | cut -d' ' -f$((at - 19))-)"
}

# ---- TensorBoard ----

# tells TAG COUNT: how often the event file names it
tells() {
	is "$1 $(LC_ALL=C grep -aoF -- "$1" "$work"/events/events.* | wc -l)" "$1 $2"
}

# Four iterations, of which the loss scale skips all; the first one's time is not told.
tells_tensorboard_what_megatron_does() {
	local tag
	ends 0 run --fp16 --initial-loss-scale 1e12 --exit-interval 24 --log-throughput --tensorboard-dir "$work/events" \
		--log-timers-to-tensorboard --log-memory-to-tensorboard --log-world-size-to-tensorboard --log-params-norm || return 1
	for tag in 'lm loss vs samples' 'learning-rate vs samples' 'loss-scale vs samples' 'batch-size vs samples' 'world-size vs samples' \
		'params-norm vs samples' throughput mem-reserved-bytes mem-allocated-bytes mem-max-allocated-bytes mem-allocated-count; do
		tells "$tag" 4 || return 1
	done
	tells iteration-time 3 && tells grad-norm 0 && tells validation 0 && rm -r "$work/events" &&
		ends 0 run --exit-interval 22 --tensorboard-dir "$work/events" --no-log-loss-scale-to-tensorboard && tells loss-scale 0 &&
		tells 'grad-norm vs samples' 2 && tells iteration-time 0
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

check stops_before_it_updates_with_nan
check saves_nothing_without_the_state_machine
check goes_on_where_it_is_told_to
check looks_at_validations
check knows_loss_scales
check tells_of_spikes
check knows_its_peak
check ramps_up
check decreases_batches
check skips_iterations
check evaluates_as_it_is_told
check keeps_validation_sets_apart
check has_ended_already
check ends_by_another_signal
check saves_what_does_not_stay
check tells_tensorboard_what_megatron_does
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
