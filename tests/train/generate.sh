#!/bin/bash
# mcorefs-train --generate: prompts of each kind, from checkpoints of each kind, by one process and by two; and what is refused.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin generate
weights=tests/fixtures/weights
args=(--generate --num-tokens-to-generate 12 --generate-format jsonl --return-log-probs --top-k 0 --temperature 0.9)
prompts=$work/prompts.jsonl
printf '{"input_ids": [%s]}\n' "1, 5, 9" "44" "7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7" "3, 2" >"$prompts"

# answers NAME N ARGUMENT...: lines of the prompts' answers, without log-probs
answers() {
	local name=$1 n=$2
	shift 2
	run "$n" "$work/log" --prompt-file "$prompts" "$@" && sed -nE 's/.*("token_ids": [^]]*\]).*("finish_reason.*)/\1 \2/p' "$work/log" >"$work/$name" &&
		[ "$(wc -l <"$work/$name")" = 4 ]
}

answers one 1 --load $weights/llama-torch_dist-tp2-pp2-vpp2
verdict $? "a torch_dist checkpoint"
answers slots 1 --load $weights/llama-torch_dist-tp2-pp2-vpp2 --generate-slots 1 && cmp "$work/one" "$work/slots"
verdict $? "one slot"
answers legacy 1 --load $weights/llama-torch-tp2-pp2
verdict $? "a legacy checkpoint"
answers two 2 --load $weights/llama-torch_dist-tp2-pp2-vpp2 --tensor-model-parallel-size 2 && cmp "$work/one" "$work/two"
verdict $? "two processes that share heads"
answers experts 1 --load $weights/deepseek-torch_dist-pp2-ep2 && answers divided 2 --load $weights/deepseek-torch_dist-pp2-ep2 \
	--expert-model-parallel-size 2 && cmp "$work/experts" "$work/divided"
verdict $? "two processes that share experts"
answers hf 1 --load tests/fixtures/hf/llama-safetensors
verdict $? "an HF directory"

# A text, a line of standard input, and a stream of it are one.
args=(--generate --load $weights/llama-torch_dist-tp2-pp2-vpp2 --temperature 0)
run 1 "$work/log" --prompts 'Once upon' && cp "$work/log" "$work/text" && run 1 "$work/log" --prompts 'Once upon' --stream && cmp "$work/log" "$work/text" &&
	echo 'Once upon' | run 1 "$work/log" && cmp "$work/log" "$work/text"
verdict $? "texts"
echo '{"messages": [{"role": "user", "content": "Hello"}]}' | run 1 "$work/log" --tokenizer-model tests/fixtures/data/tokenizer --generate-format jsonl
grep -qE '^\{"text": |has no chat template' "$work/log"
verdict $? "messages"

# refused PART ARGUMENT...: one sentence
refused() {
	local part=$1
	shift
	! run 1 "$work/log" "$@" </dev/null && [ "$(grep -c '^mcorefs-train: ' "$work/log")" = 1 ] && grep -qF -- "$part" "$work/log"
	verdict $? "refused: $part"
}
refused 'there is no prompt'
refused 'exclude each other' --prompts a --prompt-file "$prompts"
refused 'temperature: expected' --prompts a --temperature -1
refused '--num-tokens-to-generate: expected' --prompts a --num-tokens-to-generate 0
echo '{"input_ids": ["x"]}' >"$work/bad.jsonl"
refused 'bad.jsonl, line 1: input_ids[0]' --prompt-file "$work/bad.jsonl"
args=(--generate --prompts a)
refused 'expected --load'
processes_end
