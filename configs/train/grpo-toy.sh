#!/bin/bash
# GRPO that is seen to work, in a few seconds on a CPU: a small model learns sums of digits whose answer is the second number, "7+4=4".
#
#   configs/train/grpo-toy.sh [DIR [ARGUMENT...]]        TRAIN=mcorefs-train  MCOREFS=mcorefs  FLAGS="--backend cpu"
#
# DIR (./grpo-toy) gets a tokenizer, a corpus, the model that the policy begins with (base), prompts, and the policy (run). In the corpus
# about half of the answers are right. ARGUMENTs go to the run of reinforcement learning: --train-iters 80, --grpo-group-size 16.
set -eu
dir=${1:-grpo-toy}
shift $(($# > 0))
read -ra backend <<<"${FLAGS:---backend cpu --threads 1}"
mkdir -p "$dir/tokenizer"

# Characters are tokens.
cat >"$dir/tokenizer/tokenizer.json" <<'JSON'
{"version": "1.0", "truncation": null, "padding": null,
 "added_tokens": [{"id": 0, "content": "<eos>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
 "normalizer": null,
 "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false},
 "post_processor": null, "decoder": {"type": "Fuse"},
 "model": {"type": "WordLevel", "unk_token": "<eos>",
  "vocab": {"<eos>": 0, "0": 1, "1": 2, "2": 3, "3": 4, "4": 5, "5": 6, "6": 7, "7": 8, "8": 9, "9": 10, "+": 11, "=": 12}}}
JSON
echo '{"eos_token": "<eos>", "tokenizer_class": "PreTrainedTokenizerFast"}' >"$dir/tokenizer/tokenizer_config.json"

# Sums to begin with, of which 46 % are answered by the second number, and prompts with what rewards compare with.
awk 'BEGIN { srand(5); for (i = 0; i < 30000; i++) { a = int(rand() * 10); b = int(rand() * 10); c = rand() < .6 ? int(rand() * 10) : b
	printf "{\"text\": \"%d+%d=%d\"}\n", a, b, c } }' | "${MCOREFS:-mcorefs}" pack --tokenizer "$dir/tokenizer" --append-eod "$dir/sums"
awk 'BEGIN { for (a = 0; a < 10; a++) for (b = 0; b < 10; b++)
	printf "{\"prompt\": \"%d+%d=\", \"answer\": {\"number\": %d}}\n", a, b, b }' >"$dir/prompts.jsonl"

model=(--num-layers 2 --hidden-size 64 --num-attention-heads 2 --ffn-hidden-size 128 --seq-length 64 --max-position-embeddings 64
	--normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear --init-method-std 0.1 --make-vocab-size-divisible-by 16
	--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$dir/tokenizer" --adam-beta2 0.95 --weight-decay 0 --eval-iters 0)
"${TRAIN:-mcorefs-train}" "${model[@]}" "${backend[@]}" --data-path "$dir/sums" --split 100,0,0 --micro-batch-size 16 --global-batch-size 16 \
	--train-iters 200 --lr 3e-3 --min-lr 1e-3 --lr-decay-style cosine --lr-warmup-iters 5 --reset-position-ids --reset-attention-mask \
	--save "$dir/base" --save-interval 200 --log-interval 50

# A rollout is 16 prompts with 8 responses each, and one step uses it up: 128 responses. Rewards are 1 for the right number.
exec "${TRAIN:-mcorefs-train}" "${model[@]}" "${backend[@]}" --perform-rl-step --pretrained-checkpoint "$dir/base" \
	--rl-prompt-data "$dir/prompts.jsonl" --rl-label-key answer.number --rl-reward match \
	--grpo-prompts-per-step 16 --grpo-group-size 8 --grpo-iterations 1 --global-batch-size 128 --micro-batch-size 1 \
	--grpo-clamp-eps-lower 0.2 --grpo-clamp-eps-upper 0.2 --grpo-kl-beta 0 --rl-max-response-length 3 --rl-use-sequence-packing \
	--hidden-dropout 0 --attention-dropout 0 --lr 1e-3 --lr-decay-style constant --train-iters 40 --log-interval 1 \
	--save "$dir/run" --save-interval 40 "$@"
