#!/bin/bash
# sample: the batches that megatron-core 0.16.1 gives (data/megatron_samples), however they are asked for; who gets which; and a
# sentence for what cannot be. The same tokens in the mount.
. "$(dirname "$0")/lib.sh"
[ -d "${work:?}" ] || exit 1

m=$MCOREFS
data=$FIXTURES/data
gold=$data/megatron_samples
run=(--data-path '0.7 tales_text_document 0.3 notes_text_document' --split "90,10,0" --seq-length 128 --train-iters 40 --global-batch-size 8)
header=128 # bytes of such an .npy before its tokens

# gives TEXT FILE COMMAND...: its standard output is the file.
gives() {
	local text=$1 file=$2
	shift 2
	"$@" >"$work/out" || fail "$text: exit status $?"
	cmp "$work/out" "$file" || fail "$text: other bytes"
}

# field NAME: of the JSON lines on stdin, one after the other.
field() {
	grep -o "\"$1\": [^,}]*" | cut -d ' ' -f 2- | tr '\n' ' '
}

# A checkpoint tells everything but where its data are now.
for ckpt in llama-torch-tp2-pp2 llama-torch_dist-tp2-pp2 llama-torch_dist-tp2-pp2-vpp2 qwen2-torch-tp2-dp2-distopt; do
	for step in 1 40; do
		gives "$ckpt, step $step" "$gold/train-step-$step.npy" "$m" sample "$FIXTURES/resume/$ckpt" --step $step -o "data=$data" --npy -
	done
done
ckpt=$FIXTURES/resume/llama-torch-tp2-pp2
same 'the next step' "$("$m" sample "$ckpt" -o "data=$data" | field step)" '21 21 21 21 21 21 21 21 '
same 'one iteration' "$("$m" sample "$FIXTURES/resume/llama-torch_dist-tp2-pp2/iter_0000040" -o "data=$data" --step 40 | field sample)" \
	'312 313 314 315 316 317 318 319 '

# The same without one: words in one argument, in many, in a file, of one split; names, paths.
gives 'words' "$gold/train-step-40.npy" "$m" sample "$data" --step 40 "${run[@]}" --npy -
gives 'one after the other' "$gold/train-step-40.npy" "$m" sample "$data" --step 40 --npy - --data-path 0.7 --data-path "$data/tales_text_document" \
	--data-path=0.3 --data-path notes_text_document "${run[@]:2}"
printf '7 /elsewhere/tales_text_document\n3 notes_text_document\n' >"$work/words"
gives 'a file of words' "$gold/train-step-1.npy" "$m" sample "$data" --step 1 --npy - --data-args-path "$work/words" "${run[@]:2}"
gives 'options of a mount' "$gold/train-step-1.npy" "$m" sample "$data" --step 1 --npy - "${run[@]:4}" -o 'data_path=7 tales_text_document 3 notes_text_document,split=90\,10\,0'
gives 'samples instead of iterations' "$gold/train-step-1.npy" "$m" sample "$data" --step 1 --npy - "${run[@]:0:6}" --train-samples 320 --global-batch-size 8
gives 'the seed' "$gold/train-step-1.npy" "$m" sample "$data" --step 1 --npy - "${run[@]}" --seed 1234
"$m" sample "$data" --step 1 --npy "$work/other" "${run[@]}" --seed 1235 || fail 'another seed'
cmp -s "$work/other" "$gold/train-step-1.npy" && fail 'another seed makes no difference'

# Files; and as JSON lines.
"$m" sample "$data" --step 40 "${run[@]}" --npy "$work/a.npy" --bin "$work/a.bin" >"$work/said" || fail 'files'
same 'nothing is printed' "$(cat "$work/said")" ''
cmp "$work/a.npy" "$gold/train-step-40.npy" || fail 'the .npy'
cmp "$work/a.bin" <(tail -c +$((header + 1)) "$gold/train-step-40.npy") || fail 'the .bin'
"$m" sample "$data" --step 40 "${run[@]}" >"$work/lines" || fail 'lines'
same 'lines' "$(wc -l <"$work/lines")" 8
same 'tokens of the lines' "$(grep -o '"tokens": \[[^]]*' "$work/lines" | sed 's/.*\[//; s/,//g' | tr '\n' ' ' | xargs)" \
	"$(tail -c +$((header + 1)) "$gold/train-step-40.npy" | od -An -v -t d8 | xargs)"
same 'datasets' "$(field dataset_id <"$work/lines" | tr -d ' ' | fold -w1 | sort | uniq -c | xargs)" '6 0 2 1'
same 'pieces make a sample' "$(head -n 1 "$work/lines" | grep -o '"length": [0-9]*' | awk '{ n += $2 } END { print n }')" 129
[ -z "$(field rank <"$work/lines")" ] || fail 'ranks of nobody'

# Ranks: microbatch m of rank r begins at m*B*D + r*B.
ranks=(--micro-batch-size 2 --data-parallel-size 2)
"$m" sample "$data" --step 1 "${run[@]}" "${ranks[@]}" >"$work/lines" || fail 'ranks'
same 'samples' "$(field sample <"$work/lines")" '0 1 2 3 4 5 6 7 '
same 'ranks' "$(field rank <"$work/lines")" '0 0 1 1 0 0 1 1 '
same 'microbatches' "$(field micro_batch <"$work/lines")" '0 0 0 0 1 1 1 1 '
same 'of one rank' "$("$m" sample "$data" --step 1 "${run[@]}" "${ranks[@]}" --rank 1)" "$(grep '"rank": 1,' "$work/lines")"
same 'after others' "$("$m" sample "$data" --step 1 "${run[@]}" --consumed-samples 100 | field sample)" '100 101 102 103 104 105 106 107 '
# 320 samples, a bucket of 160 for each rank: torch.randperm(160) with seed 0 begins with 44 139 121 97.
"$m" sample "$data" --step 1 "${run[@]}" "${ranks[@]}" --dataloader-type cyclic >"$work/lines" || fail 'cyclic'
same 'cyclic' "$(field sample <"$work/lines")" '44 139 204 299 121 97 281 257 '

# The loss is masked after the end of a document, which is token 0 here.
"$m" sample "$data" --step 3 "${run[@]}" --eod-mask-loss --eod 0 >"$work/lines" || fail 'a loss mask'
zeros=$(grep -o '"loss_mask": \[[^]]*' "$work/lines" | grep -o '\b0\b' | wc -l)
ends=$(grep -o '"tokens": \[[^]]*' "$work/lines" | sed 's/, [0-9]*$//' | grep -Eo '(\[| )0\b' | wc -l)
same 'masked tokens' "$zeros" "$ends"
[ "$zeros" -gt 0 ] || fail 'no end of a document was met'
# A label that is the pad token does not count, either: the first input has no mask of it, the last label has.
"$m" sample "$data" --step 3 "${run[@]}" --pad 0 >"$work/lines" || fail 'a loss mask of padding'
zeros=$(grep -o '"loss_mask": \[[^]]*' "$work/lines" | grep -o '\b0\b' | wc -l)
labels=$(grep -o '"tokens": \[[^]]*' "$work/lines" | sed 's/.*: \[[0-9]*, //' | grep -Ewo '0' | wc -l)
same 'masked labels' "$zeros" "$labels"
[ "$zeros" -gt 0 ] || fail 'no padding was met'

# The mount has them as rows.
"$m" "$data" "$mnt" -o 'data_path=0.7 tales_text_document 0.3 notes_text_document,split=90\,10\,0' || fail 'mount'
samples=$mnt/data/blend/samples
[ -d "$samples/train-s128-n320" ] || fail 'no samples of the blend'
arrow=$samples/train-s128-n320/data-00000-of-00001.arrow
od -An -v -t u2 -w258 "$arrow" >/dev/null || fail 'the samples cannot be read'
wanted=$(tail -c +$((header + 1)) "$gold/train-step-40.npy" | od -An -v -t d8 -w1032 | head -n 1 | awk '{ for (i = 1; i <= NF; i++) printf "%04x", $i }' |
	sed 's/\(..\)\(..\)/\2\1/g')
[[ $(od -An -v -t x1 "$arrow" | tr -d ' \n') = *$wanted* ]] || fail 'the first sample of step 40 is not in the mount'
[ ! -e "$samples/train-s128" ] || fail 'weights without a number of samples have a directory'
[ ! -e "$samples/train-s128-n0320" ] || fail 'a number with leading zeros is a name'
[ ! -e "$samples/test-s128-n8" ] || fail 'an empty split has samples'
[ -d "$mnt/data/tales_text_document/samples/valid-s128-n18-seed7-split90,10,0" ] || fail 'no samples of one dataset'
[ ! -e "$mnt/data/tales_text_document/samples/train-s99999999" ] || fail 'samples longer than all that there is'
unmount

# What cannot be.
refused 'nothing' 2 'needed: --step, --seq-length, --global-batch-size, --train-iters or --train-samples' "$m" sample "$data"
refused 'no step' 2 'needed: --step' "$m" sample "$data" "${run[@]}"
refused 'step 0' 2 '--step cannot be 0' "$m" sample "$data" "${run[@]}" --step 0
refused 'a step that is no number' 2 "'--step' takes a number" "$m" sample "$data" "${run[@]}" --step x
refused 'behind the run' 1 'there is no step 41: the run has 40' "$m" sample "$data" "${run[@]}" --step 41
refused 'no length' 2 'needed: --train-iters or --train-samples' "$m" sample "$data" --step 1 "${run[@]:0:6}" --global-batch-size 8
refused 'no batch' 2 'needed: --global-batch-size' "$m" sample "$data" --step 1 "${run[@]:0:8}"
refused 'no datasets' 1 'several datasets: name one with --data-path' "$m" sample "$data" --step 1 "${run[@]:2}"
refused 'another dataset' 1 "no dataset 'c'" "$m" sample "$data" --step 1 --data-path c "${run[@]:2}"
refused 'data elsewhere' 1 "/tmp/g/tales_text_document.idx' is missing: say where the datasets are with -o data=PATH" "$m" sample "$ckpt" --step 1
refused 'ranks without microbatches' 2 '--micro-batch-size is needed' "$m" sample "$data" --step 1 "${run[@]}" --rank 0
refused 'a batch that is not divided' 2 'not a whole number of microbatches' "$m" sample "$data" --step 1 "${run[@]}" --micro-batch-size 3
refused 'no such rank' 2 'no rank 2 of 2' "$m" sample "$data" --step 1 "${run[@]}" "${ranks[@]}" --rank 2
refused 'another loader' 1 'external' "$m" sample "$data" --step 1 "${run[@]}" --dataloader-type external
refused 'no end of documents' 2 '--eod ID' "$m" sample "$data" --step 1 "${run[@]}" --eod-mask-loss
refused 'a version' 1 "'newest' is not a version" "$m" sample "$data" --step 1 "${run[@]}" --megatron newest
refused 'a split' 1 'fourth|more than three' "$m" sample "$data" --step 1 "${run[@]}" --split 1,2,3,4
refused 'no directory' 1 'No such file' "$m" sample "$data" --step 1 "${run[@]}" --npy "$work/none/a.npy"
refused 'a model' 2 'needed' "$m" sample "$FIXTURES/hf/llama-safetensors" --step 1
refused 'the vocabulary' 1 'outside of a vocabulary of 3' "$m" sample "$data" --step 1 "${run[@]}" -o vocab_size=3
