#!/bin/bash
# Reinforcement learning (--perform-rl-step), on the CPU: a small model learns what is rewarded, what must not teach it does not, layouts and a run
# that was killed train as one process does.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin rl
mcorefs=$(dirname "$train")/mcorefs

# shellcheck disable=SC2054
model=(--num-layers 2 --hidden-size 64 --num-attention-heads 2 --ffn-hidden-size 128 --seq-length 64 --max-position-embeddings 64
	--normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear --init-method-std 0.1 --make-vocab-size-divisible-by 16
	--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$work/tokenizer" --adam-beta2 0.95 --weight-decay 0 --eval-iters 0)

# Its model, prompts and tokenizer are what the other cases have, too. In 46 % of the corpus the answer to "7+4=" is the second number, 4; in the
# others it is any number.
TRAIN=$train MCOREFS=$mcorefs FLAGS="${backend[*]}" configs/train/grpo-toy.sh "$work" --rl-log-samples "$work/samples.jsonl" >"$work/n1.log" 2>&1
verdict $? "configs/train/grpo-toy.sh"

# What a run of reinforcement learning has; the policy begins with that model.
args=("${model[@]}" --perform-rl-step --pretrained-checkpoint "$work/base" --rl-prompt-data "$work/prompts.jsonl" --rl-label-key answer.number
	--rl-reward match --grpo-prompts-per-step 16 --grpo-group-size 8 --grpo-iterations 1 --global-batch-size 128 --micro-batch-size 1
	--grpo-clamp-eps-lower 0.2 --grpo-clamp-eps-upper 0.2 --grpo-kl-beta 0 --rl-max-response-length 3 --rl-use-sequence-packing
	--hidden-dropout 0 --attention-dropout 0 --lr-decay-style constant --lr-warmup-iters 0 --log-interval 1)

# rewards LOG: mean rewards of its rollouts, with the means of the first three and of the last three
rewards() {
	sed -nE 's/^ rollout .*mean reward: ([^ ]*).*/\1/p' "$1" | awk '{ r[NR] = $1 } END { for (i = 1; i <= 3; i++) { a += r[i] / 3; b += r[NR + 1 - i] / 3 }
		print NR, a, b }'
}

# losses LOG: losses and norms of its iterations
losses() {
	sed -nE 's/.*lm loss: ([^ |]*).*kl_term: ([^ |]*).*grad norm: ([^ |]*).*/\1 \2 \3/p' "$1"
}

# close A B COUNT
close() {
	paste -d' ' <(losses "$1") <(losses "$2") | awk -v count="$3" '
		{ for (i = 1; i <= 3; i++) { d = $i - $(i + 3); if (d < 0) d = -d; if (d > 1e-4 * ($i < 0 ? -$i : $i) + (i == 3 ? 2e-3 : 1e-6)) { print "differs:", $0; bad = 1 } } }
		END { if (NR != count) print NR " rows, not " count; exit bad || NR != count }'
}

rewards "$work/n1.log" | awk '{ print } END { exit !($1 == 40 && $2 < 0.6 && $3 > 0.9) }' &&
	grep -c '"reward": [01], .*"prompt": "[0-9]+[0-9]=", "response": "[^"]*", "token_ids": \[' "$work/samples.jsonl" | grep -qx 5120
verdict $? "the policy learns what is rewarded"

# A plan has what the sampler and a reference take, too.
run 1 "$work/n2.log" --dry-run --train-iters 2 --lr 1e-3 --rl-sampler-slots 1024 --grpo-kl-beta 0.1 --seq-length 512 --max-position-embeddings 512 &&
	grep -qE '^reinforcement learning takes more: 0\.[1-9][0-9]* GiB for the sampler; of the host 0\.00[1-9] for the reference$' "$work/n2.log"
verdict $? "a plan"

run 1 "$work/n2.log" --train-iters 20 --lr 0 --min-lr 0 && rewards "$work/n2.log" | awk '{ print } END { exit !($1 == 20 && $3 < $2 + 0.15) }'
verdict $? "with a learning rate of 0 it does not"

# Nothing is ever right: no group tells anything, and nothing changes.
sed 's/"number": ./"number": "x"/' "$work/prompts.jsonl" >"$work/wrong.jsonl"
run 1 "$work/n3.log" --train-iters 2 --lr 1e-3 --rl-prompt-data "$work/wrong.jsonl" --grpo-filter-groups-with-same-reward --log-params-norm &&
	[ "$(grep -o 'grad norm: 0.000 | params norm: [^ ]*' "$work/n3.log" | sort | uniq -c | awk '{ print $1 }')" = 2 ]
verdict $? "groups of one reward have no gradient"

# A rollout of two passes, whose second one is off its policy, and a reference.
args+=(--train-iters 6 --lr 3e-4 --grpo-iterations 2 --grpo-kl-beta 0.01 --save-interval 2)
bad=0
run 1 "$work/n1.log" || bad=1
losses "$work/n1.log" | awk '$2 > 0 { moved++ } END { exit moved < 4 }' || bad=1
for n in 2 2-tp2-sp 2-cp2 4-tp2-cp2-sp; do
	layout_flags "$n"
	run "${n%%-*}" "$work/n$n.log" "${layout[@]}" && close "$work/n1.log" "$work/n$n.log" 6 || bad=1
done
verdict $bad "layouts"
run 1 "$work/n2.log" --rl-loss gspo --rl-loss-aggregation seq-mean-token-mean && run 2 "$work/n3.log" --context-parallel-size 2 --rl-loss gspo \
	--rl-loss-aggregation seq-mean-token-mean && close "$work/n2.log" "$work/n3.log" 6 && ! close "$work/n1.log" "$work/n2.log" 6 >/dev/null
verdict $? "ratios of whole responses"

# Ended or killed while it goes on, at whatever point: what comes then is what would have come.
rows_of() {
	grep -hE '^ rollout  |consumed samples' "$@" | sed -E 's/elapsed time[^|]*\|//; s/^ \[[^]]*\]//; s/seconds: .*//' | sort -u
}
run 1 "$work/n1.log" --save "$work/run1"
# stopped SIGNAL LINE ARG...: when the line is in the log, which is n2.log
stopped() {
	rm -f "$work/n2.log"
	"$train" "${args[@]}" "${backend[@]}" "${@:3}" >"$work/n2.log" 2>&1 &
	pid=$!
	until grep -qs "$2" "$work/n2.log" || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
	kill "-$1" $pid 2>/dev/null
	wait $pid 2>/dev/null
	status=$?
	pid=
}
for signal in KILL TERM; do
	[ $signal = KILL ] && at='[2-5]' || at='[1-5]'
	stopped $signal " iteration  *$at/" --save "$work/run-$signal" --load "$work/run-$signal"
	[ $signal = KILL ] || { [ $status = 0 ] && grep -q '^exiting at iteration [24]: a signal' "$work/n2.log" &&
		[ ! -e "$work/run-$signal/iter_0000006" ]; } &&
		run 1 "$work/n3.log" --save "$work/run-$signal" --load "$work/run-$signal" &&
		cmp <(rows_of "$work/n1.log") <(rows_of "$work/n2.log" "$work/n3.log") &&
		"$mcorefs" diff "$work/run1/iter_0000006" "$work/run-$signal/iter_0000006" >"$work/log" 2>&1
	verdict $? "a run that SIG$signal has ended, and that was resumed"
done

# A long rollout is not waited for.
stopped TERM '^prompts: ' --rl-max-response-length 40 --grpo-prompts-per-step 4096 --grpo-group-size 32 --global-batch-size 131072 --save "$work/run3"
[ $status = 0 ] && grep -q '^exiting at iteration 0: a signal asked for it' "$work/n2.log" && ! grep -q '^ rollout' "$work/n2.log" && [ ! -e "$work/run3/iter_0000000" ]
verdict $? "a rollout that is dropped"

# refused SENTENCE FLAG...
refused() {
	run 1 "$work/n1.log" "${@:2}"
	[ $? = 2 ] || [ "$(wc -l <"$work/n1.log")" -le 3 ] && grep -q -- "$1" "$work/n1.log" || { echo "not refused: $1"; bad=1; }
}
bad=0
refused 'expected a multiple of --global-batch-size 128' --grpo-group-size 3
refused '--save-interval: expected a multiple of the 2 steps of a rollout, found 3' --save "$work/run3" --save-interval 3
refused '--train-iters: expected a multiple of the 2 steps of a rollout, found 5' --train-iters 5
refused '--rl-verify-model-weights-swap needs --rl-inference-url' --rl-verify-model-weights-swap
refused '--hidden-dropout: expected 0 with --perform-rl-step' --hidden-dropout 0.1
refused '--rl-reward: expected .* found .quiz.' --rl-reward quiz
refused '--perform-rl-step and --sft exclude each other' --sft
refused 'prompts.jsonl, line 1: it has no .answer.word.' --rl-label-key answer.word
run 1 "$work/n1.log" --rl-log-samples /dev/full
[ $? = 1 ] && grep -q "rollout 0: --rl-log-samples: '/dev/full': No space left on device" "$work/n1.log" || { echo "no room for samples"; bad=1; }
verdict $bad "bad arguments"
processes_end
