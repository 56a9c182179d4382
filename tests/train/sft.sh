#!/bin/bash
# Fine-tuning on conversations (--sft), on the CPU: packed as apart, in each layout as in one process, and resumed as it would have gone on.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin sft

# Twelve conversations; the template marks what assistants say.
mkdir "$work/tokenizer"
cp tests/fixtures/data/tokenizer/* "$work/tokenizer"
chmod -R u+w "$work/tokenizer"
cat >"$work/tokenizer/chat_template.jinja" <<'TEMPLATE'
{%- for m in messages %}{{ m.role ~ ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content|trim }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content|trim ~ '\n' }}{% endif %}{% endfor %}
TEMPLATE
awk 'BEGIN { for (i = 0; i < 12; i++) { s = ""; for (k = 0; k <= i * 7 % 11; k++) s = s " word" k * i
	printf "{\"messages\": [{\"role\": \"user\", \"content\": \"Tell me of %d\"}, {\"role\": \"assistant\", \"content\": \"It is%s.\"}]}\n", i, s } }' \
	>"$work/talks.jsonl"

# sft_args FLAG...: llama's run, on the conversations
sft_args() {
	family_args llama
	local words=" ${args[*]} "
	words=${words/--data-path*/}
	words=${words/ --tokenizer-type HuggingFaceTokenizer / }
	words=${words/ --tokenizer-model tests\/fixtures\/data\/tokenizer / }
	words=${words/ --split 90,10,0 / }
	words=${words/ --micro-batch-size 2 --global-batch-size 8 / }
	# shellcheck disable=SC2206
	args=($words --sft --tokenizer-type SFTTokenizer --tokenizer-model "$work/tokenizer" --train-data-path "$work/talks.jsonl"
		--sft-tokenizer-prompt-format default --sft-answer-only-loss --calculate-per-token-loss --eval-iters 0
		--load "${at[llama]}" --ckpt-step 20 --no-load-optim --finetune --exit-on-missing-checkpoint "$@")
}

# loss_of LOG: losses and norms of its iterations
loss_of() {
	sed -nE 's/.*lm loss: ([^ |]*).*grad norm: ([^ |]*).*/\1 \2/p' "$1"
}

# close A B COUNT
close() {
	paste -d' ' <(loss_of "$1") <(loss_of "$2") | awk -v count="$3" '
		{ for (i = 1; i <= 2; i++) { d = $i - $(i + 2); if (d < 0) d = -d; if (d > 1e-5 * $i + (i == 2 ? 2e-3 : 0)) { print "differs:", $0; bad = 1 } } }
		END { if (NR != count) print NR " rows, not " count; exit bad || NR != count }'
}

# All conversations are one batch of seven packed samples, or of twelve.
sft_args
run 1 "$work/n1.log" --micro-batch-size 1 --global-batch-size 12 --exit-interval 4 &&
	run 1 "$work/n2.log" --micro-batch-size 1 --global-batch-size 7 --exit-interval 4 --sft-packing first_fit_decreasing &&
	close "$work/n1.log" "$work/n2.log" 4 && grep -q "an epoch of conversations has 7 samples" "$work/n2.log"
verdict $? "packed conversations have the losses of conversations apart"

sft_args --micro-batch-size 2 --global-batch-size 8
bad=0
run 1 "$work/n1.log" --exit-interval 4 || bad=1
for n in 2-tp2-sp 2-cp2 2-pp2 2-fsdp 4-tp2-cp2-sp; do
	layout_flags "$n"
	run "${n%%-*}" "$work/n$n.log" --exit-interval 4 "${layout[@]}" && close "$work/n1.log" "$work/n$n.log" 4 || bad=1
done
verdict $bad "layouts"

sft_args --micro-batch-size 1 --global-batch-size 2 --sft-packing first_fit_decreasing --save "$work/save" --save-interval 3
run 1 "$work/n1.log" --exit-interval 6 && rm -rf "$work/save" && run 1 "$work/n2.log" --exit-interval 3 &&
	sft_args --micro-batch-size 1 --global-batch-size 2 --sft-packing first_fit_decreasing --save "$work/save" --save-interval 3 &&
	args=("${args[@]/--finetune/--no-save-rng}") && args=("${args[@]/--no-load-optim/--no-load-rng}") &&
	run 1 "$work/n3.log" --load "$work/save" --ckpt-step 3 --exit-interval 6 && diff <(rows "$work/n1.log" | tail -n 3) <(rows "$work/n3.log")
verdict $? "a run that is resumed goes on with the conversations that come next"

# The save is of packs that the trainer has made itself.
"$(dirname "$train")/mcorefs" pack --sft --seq-length 128 --tokenizer "$work/tokenizer" --sft-answer-only-loss "$work/talks.jsonl" "$work/packed.parquet" >"$work/log" &&
	grep -q "packed 12 conversations of 12 rows into 7 samples of 128 tokens" "$work/log" &&
	run 1 "$work/n3.log" --load "$work/save" --ckpt-step 3 --exit-interval 6 --train-data-path "$work/packed.parquet" --tokenizer-type HuggingFaceTokenizer \
		--sft-packing none && diff <(rows "$work/n1.log" | tail -n 3) <(rows "$work/n3.log")
verdict $? "samples that were packed ahead go on where the trainer's own ended"

# The state that was saved, with packs of another length.
run 2 "$work/log" --load "$work/save" --ckpt-step 3 --exit-interval 6 --context-parallel-size 2
[ $? != 0 ] && grep -q "which conversations come next is not known: the checkpoint counts in an epoch of 7 samples" "$work/log"
verdict $? "a run is not resumed with other packs"

# A blend by weights: the second path's samples go round sooner.
head -n 3 "$work/talks.jsonl" >"$work/few.jsonl"
sft_args --micro-batch-size 1 --global-batch-size 2 --train-data-path 0.3 "$work/talks.jsonl" 0.7 "$work/few.jsonl" --save "$work/blend" --save-interval 3
run 1 "$work/n1.log" --exit-interval 6 && args=("${args[@]/--finetune/--no-save-rng}") && args=("${args[@]/--no-load-optim/--no-load-rng}") &&
	run 1 "$work/n2.log" --load "$work/blend" --ckpt-step 3 --exit-interval 6 && diff <(rows "$work/n1.log" | tail -n 3) <(rows "$work/n2.log")
verdict $? "a blend that is resumed goes on"
run 1 "$work/log" --load "$work/blend" --ckpt-step 3 --exit-interval 6 --train-data-path 0.4 "$work/talks.jsonl" 0.6 "$work/few.jsonl"
[ $? != 0 ] && grep -q "which conversations come next is not known" "$work/log"
verdict $? "a blend is not resumed with other weights"

# Each process has another day in its environment.
cp -r "$work/tokenizer" "$work/days"
sed -i "s/^/{{ strftime_now('%j ') * 9 }}/" "$work/days/chat_template.jinja"
cat >"$work/each-day" <<EACH
#!/bin/bash
SOURCE_DATE_EPOCH=\$((86400 * (1 + 100 * \${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}))) exec "$train" "\$@"
EACH
chmod +x "$work/each-day"
sft_args --micro-batch-size 1 --global-batch-size 2 --tokenizer-model "$work/days" --exit-interval 1
SOURCE_DATE_EPOCH=86400 run 1 "$work/n1.log" && train=$work/each-day run 2 "$work/n2.log" --context-parallel-size 2 && close "$work/n1.log" "$work/n2.log" 1
verdict $? "all processes have the first one's day"
SOURCE_DATE_EPOCH=today run 1 "$work/log"
[ $? != 0 ] && grep -q "SOURCE_DATE_EPOCH: expected seconds since 1970, found 'today'" "$work/log"
verdict $? "a time that is none"

# refused PATTERN FLAG...
refused() {
	local pattern=$1
	shift
	run 1 "$work/log" --micro-batch-size 1 --exit-interval 1 "$@"
	[ $? != 0 ] && grep -q -- "$pattern" "$work/log"
	verdict $? "refused: $pattern"
}
sft_args
echo '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}' >"$work/images.jsonl"
refused "images.jsonl, line 1: a message's content is no text" --train-data-path "$work/images.jsonl"
refused "'HuggingFaceTokenizer' is taken from the checkpoint (--use-checkpoint-args): --no-use-tokenizer-model-from-checkpoint-args" --use-checkpoint-args
refused "--sft and --reset-attention-mask exclude each other" --reset-attention-mask
refused "found 2 paths without" --train-data-path "$work/talks.jsonl" "$work/few.jsonl"
processes_end
