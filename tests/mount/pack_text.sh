#!/bin/bash
# mcorefs pack with a tokenizer: the bytes that tools/preprocess_data.py wrote of the same text, from inputs of all kinds;
# packed samples of conversations; what is refused; and that a run that was killed goes on to the same bytes, with several keys, too.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
data=$FIXTURES/data
tok=$data/tokenizer
out=$work/out
mkdir "$out"

# elements FILE TYPE SKIP: of a binary file, in one line.
elements() {
	od -An -v -t"$2" -j"$3" "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
}

# whole TEXT DATASET PREFIX: both files are those of DATASET, and nothing else is left.
whole() {
	cmp "$3.bin" "$2.bin" && cmp "$3.idx" "$2.idx" || fail "$1: other bytes"
	same "$1: files" "$(cd "$(dirname "$3")" && echo "$(basename "$3")".*)" "$(basename "$3").bin $(basename "$3").idx"
	rm "$3".*
}

# pack TEXT ARGUMENT...
pack() {
	local text=$1
	shift
	"$m" pack "$@" >"$log" 2>&1 || fail "$text: $(cat "$log")"
}

# ---- Megatron's bytes ----

for name in tales notes; do
	pack "$name" --tokenizer "$tok" --append-eod "$out/x" <"$data/$name.jsonl"
	whole "$name" "$data/${name}_text_document" "$out/x"
	pack "$name, as preprocess_data.py has it" --input "$data/$name.jsonl" --output-prefix "$out/$name" --tokenizer-type HuggingFaceTokenizer \
		--tokenizer-model "$tok" --append-eod --workers 2 --json-keys text --log-interval 100 --partitions 1 --dataset-impl mmap --dataset-impl=mmap
	whole "$name, as preprocess_data.py has it" "$data/${name}_text_document" "$out/${name}_text_document"
done

# However it comes in: compressed, in pieces, by patterns, through a pipe, with other ends of lines.
split -n l/3 -d --additional-suffix=.jsonl "$data/tales.jsonl" "$work/part"
gzip -c "$work/part00.jsonl" >"$work/p0.gz"
{ gzip -c <(head -c 20000 "$work/part01.jsonl") && gzip -c <(tail -c +20001 "$work/part01.jsonl") && head -c 512 /dev/zero; } >"$work/p1.gz"
cp "$data/notes.jsonl" "$work/000_00000.jsonl"
(cd "$work" && pack 'a file whose name begins with digits' --tokenizer "$tok" "$out/x" --append-eod 000_00000.jsonl) || exit
whole 'a file whose name begins with digits' "$data/notes_text_document" "$out/x"
pack 'a pattern' --tokenizer "$tok" --append-eod "$out/x" "$work/part*.jsonl"
whole 'a pattern' "$data/tales_text_document" "$out/x"
pack 'compressed' --tokenizer "$tok" --append-eod "$out/x" "$work/p0.gz" "$work/p1.gz" - <"$work/part02.jsonl"
whole 'compressed' "$data/tales_text_document" "$out/x"
sed 's/$/\r/' "$data/notes.jsonl" | head -c -2 >"$work/crlf"
pack 'CR, and no newline at the end' --tokenizer "$tok" --append-eod "$out/x" < <(cat "$work/crlf")
whole 'CR, and no newline at the end' "$data/notes_text_document" "$out/x"
if command -v zstd >/dev/null; then
	pack zstd --tokenizer "$tok" --append-eod "$out/x" < <(zstd -q -c "$data/notes.jsonl")
	whole zstd "$data/notes_text_document" "$out/x"
fi

# ---- numbers, which need no tokenizer ----

null=(--tokenizer-type NullTokenizer --vocab-size 50000)

# packed TEXT INPUT WANT OPTION...: tokens, then lengths, then documents.
packed() {
	local text=$1 input=$2 want=$3 n
	shift 3
	# shellcheck disable=SC2059
	printf "$input" >"$work/in"
	pack "$text" "${null[@]}" --force "$out/n" "$@" <"$work/in"
	n=$(elements "$out/n.idx" d8 18 | cut -d' ' -f1)
	same "$text" "$(elements "$out/n.bin" u2 0) | $(elements "$out/n.idx" d4 34 | cut -d' ' -f1-"$n") | $(elements "$out/n.idx" d8 $((34 + 12 * n)))" "$want"
}

packed 'lists are sentences' '{"text": ["1 2", "3"]}\n{"text": []}\n{"text": "4"}' '1 2 3 4 | 2 1 1 | 0 2 2 3'
packed 'the end' '{"text": ["1 2", "3"]}\n{"text": []}\n{"text": "4"}\n' '1 2 3 49999 4 49999 | 2 2 2 | 0 2 2 3' --append-eod
packed 'another end' '{"text": "4"}\n' '4 7 | 2 | 0 1' --append-eod --null-tokenizer-eod-id 7
packed 'until core 0.17' '{"text": "4"}\n' '4 50000 | 2 | 0 1' --append-eod --legacy-tokenizer
packed 'another key, the last of two' '{"a": "1", "b": {"a": "9"}, "\\u0061": "2"}\n' '2 | 1 | 0 1' --json-keys a
packed separator '1 2\n\n3\n\n4\n' '1 2 3 4 | 2 1 1 | 0 1 2 3' --separator '\n\n'
packed 'NUL' '1 2\0003\0004\000' '1 2 3 4 | 2 1 1 | 0 1 2 3' --separator '\0'

# Partitions: lines go round; in order if that is asked for.
seq 10 | sed 's/.*/{"text": "&"}/' >"$work/ten"
pack partitions "${null[@]}" --input "$work/ten" --output-prefix "$out/p" --partitions 3 --workers 3
same partitions "$(elements "$out/p_text_document.bin" u2 0)" '1 4 7 10 2 5 8 3 6 9'
pack 'partitions in order' "${null[@]}" --input "$work/ten" --output-prefix "$out/p" --partitions 3 --keep-sequential-samples --force
same 'partitions in order' "$(elements "$out/p_text_document.bin" u2 0)" '1 2 3 4 5 6 7 8 9 10'

# ---- what is refused ----

# rejects TEXT PATTERN INPUT OPTION...: nothing is left.
rejects() {
	local text=$1 pattern=$2 input=$3
	shift 3
	# shellcheck disable=SC2059
	printf "$input" >"$work/in"
	refused "$text" 1 "$pattern" "$m" pack "${null[@]}" "$work/none/../bad" "$@" <"$work/in"
	same "$text: files" "$(compgen -G "$work/bad*")" ''
}

mkdir "$work/none"
rejects 'no JSON' 'standard input, line 2, column 13: expected a character or the end of a string, found the end of the line' '{"text": "1"}\n{"text": "1 \n'
rejects 'an empty line' 'line 2, column 1: expected an object, found the end of the line' '{"text": "1"}\n\n'
rejects 'a CR that ends a line for Python' "line 1, column 14: expected the end of the line, found a CR without LF" '{"text": "1"}\r{"text": "2"}\n'
rejects 'a CR within a line' "line 1, column 2: expected a key in quotes, found a CR without LF" '{\r"text": "1"}\r\n'
rejects 'a list' "line 1, column 1: expected an object, found '\['" '[1, 2]\n'
rejects 'no key' "line 2: the object has no key 'text'" '{"text": "1"}\n{"texts": "1"}\n'
rejects 'no string' "line 1, key 'text': expected a string, found 12" '{"text": 12}\n'
rejects 'no strings' "key 'text': expected a list of strings" '{"text": ["1", 2]}\n'
rejects 'no UTF-8' 'line 1, column 11: expected UTF-8, found the byte 0xff' '{"text": "\377"}\n'
rejects 'no UTF-8 in plain text' 'document 2, byte 2: expected UTF-8, found the byte 0xc3' '1;2\303;' --separator ';'
rejects 'half a pair' 'half of a surrogate pair' '{"text": "\\ud83d"}\n'
rejects 'no number' "key 'text': 'x' is not a token id" '{"text": "1 x"}\n'
rejects 'outside' 'token 70000 is outside of uint16' '{"text": "70000"}\n'
rejects 'no token' 'no token: nothing was written' '{"text": []}\n'
rejects 'no file' "'$work/nothing': No such file" '' "$work/nothing"
rejects 'no file of a pattern' 'there is no such file' '' "$work/nothing*"
head -c 300 "$work/p0.gz" >"$work/cut.gz"
{ head -c 300 "$work/p0.gz" && head -c 99999 /dev/zero; } >"$work/damaged.gz"
rejects 'cut gzip' 'its gzip data ends too early' '' "$work/cut.gz"
rejects 'damaged gzip' 'its gzip data is damaged' '' "$work/damaged.gz"
rejects 'a directory' 'not a regular file' '' "$work"
rejects 'bzip2' 'is compressed with bzip2: only gzip and zstd' 'BZh91AY&SY'
rejects 'partitions of a pipe' 'standard input can be read once' '' --partitions 2
# A failure within the input is not its end.
printf '{"w": "a"}\n' >"$work/w.jsonl"
refused 'no column' 1 "no-column' has no column 'w'" "$m" pack --tokenizer "$tok" --json-keys w -- "$out/x" \
	"$work/w.jsonl" "$(dirname "$0")/../fuzz/reject/parquet/no-column" "$work/w.jsonl"
refused 'no tokenizer' 1 "$work/nothing" "$m" pack --tokenizer "$work/nothing" "$out/x" </dev/null
refused 'no vocabulary' 1 'NullTokenizer needs --vocab-size' "$m" pack --tokenizer-type NullTokenizer "$out/x" </dev/null
refused 'no model' 1 'HuggingFaceTokenizer needs --tokenizer-model' "$m" pack --tokenizer-type HuggingFaceTokenizer "$out/x" </dev/null
refused 'no such type' 1 'FooTokenizer: there is no such tokenizer' "$m" pack --tokenizer-type FooTokenizer "$out/x" </dev/null
refused 'GPT-2 without merges' 1 'GPT2BPETokenizer needs --merge-file' "$m" pack --tokenizer-type GPT2BPETokenizer --vocab-file x "$out/x" </dev/null
refused 'BERT' 1 'for sentences of BERT' "$m" pack --tokenizer-type BertWordPieceCase "$out/x" </dev/null
refused 'sentences' 2 'split-sentences: sentences are not split here' "$m" pack "${null[@]}" --split-sentences "$out/x" </dev/null
refused 'special tokens as text' 1 'legacy-tokenizer takes special tokens in a text for text' \
	"$m" pack --tokenizer-type TikTokenizer --tokenizer-model x --legacy-tokenizer "$out/x" </dev/null
refused 'lazy, in one word' 2 'only mmap is written' "$m" pack "${null[@]}" --dataset-impl=lazy "$out/x" </dev/null
refused 'lazy' 2 'only mmap is written' "$m" pack "${null[@]}" --dataset-impl lazy "$out/x" </dev/null
refused 'an id for the end' 2 'takes no id: the tokenizer names it' "$m" pack --tokenizer "$tok" --append-eod 0 "$out/x" </dev/null
refused 'no prefix' 2 'PREFIX is missing.*json-keys takes all words' "$m" pack "${null[@]}" --json-keys a "$out/x" </dev/null
refused 'keys of plain text' 2 'json-keys are of JSON lines' "$m" pack "${null[@]}" --separator x --json-keys a -- "$out/x" </dev/null
refused 'a key twice' 2 "has 'a' twice" "$m" pack "${null[@]}" --json-keys a a -- "$out/x" </dev/null

# ---- conversations ----

printf '%s\n' '{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}' '{"input_ids": [4, 5]}' >"$work/rows"
pack 'packed samples' --sft --seq-length 3 "$work/rows" "$work/packed"
same 'packed samples' "$(cat "$work/packed")" '{"input_ids": [1, 2, 3, 4, 5], "loss_mask": [1, 1, 0, 1, 0], "seq_start_id": [0, 3]}'
refused 'packed twice' 1 "line 1: it has seq_start_id: it is packed already" "$m" pack --sft --seq-length 3 "$work/packed" "$work/again"
refused 'packed before' 1 'exists .--force replaces it' "$m" pack --sft --seq-length 4 "$work/rows" "$work/packed"
pack 'padded samples' --sft --seq-length 4 --pad-seq-to-mult 2 --pad-id 9 --force "$work/rows" "$work/packed"
same 'padded samples' "$(cat "$work/packed")" '{"input_ids": [1, 2, 3, 4, 5, 9], "loss_mask": [1, 1, 0, 1, 0, 0], "seq_start_id": [0, 3]}'
refused 'samples without a length' 2 'sft needs --seq-length' "$m" pack --sft "$work/rows" "$work/again"
refused 'samples of another multiple' 2 '2 does not divide 3' "$m" pack --sft --seq-length 3 --pad-seq-to-mult 2 "$work/rows" "$work/again"

# ---- killed ----

# 1.6 MB of two keys, which are saved one after the other.
awk 'BEGIN {
	srand(7)
	for (d = 0; d < 4000; d++) {
		printf "{\"a\": \""
		n = rand() * rand() * 200
		for (i = 0; i <= n; i++) printf "%s%d", i ? " " : "", rand() * 50000
		printf "\", \"b\": [%s]}\n", rand() < 0.3 ? "" : "\"" d "\", \"" d + 1 " 7\""
	}
}' >"$work/big"
options=("${null[@]}" --json-keys a b --append-eod --workers 2)
pack big "${options[@]}" "$work/whole" <"$work/big"
echo "$(cat "$log")"
pack 'a key alone' "${null[@]}" --json-keys b --append-eod "$out/b" "$work/big"
whole 'a key alone' "$work/whole_b_document" "$out/b"

# both TEXT: both keys have what one run writes.
both() {
	whole "$1, a" "$work/whole_a_document" "$out/k_a_document"
	whole "$1, b" "$work/whole_b_document" "$out/k_b_document"
}

runs=0 resumed=0
for ((n = 1; ; n += 4)); do
	"$BIN/kill_at" $n "$m" pack "${options[@]}" "$out/k" <"$work/big" >"$log" 2>&1
	status=$?
	[ $status != 125 ] || break
	[ $status != 0 ] || break
	same "kill_at $n" $status 137
	pack "killed at $n, then" "${options[@]}" --resume "$out/k" <"$work/big"
	! grep -q 'were there from\|are complete' "$log" || resumed=$((resumed + 1))
	both "killed at $n"
	runs=$((runs + 1))
done
if [ $status = 125 ]; then
	echo 'skipped: killed at every fourth call: processes cannot be traced here'
else
	both 'never killed'
	[ $runs -gt 5 ] && [ $resumed -gt 2 ] || fail "killed $runs times, went on $resumed times"
	echo "killed $runs times, went on $resumed times"
fi

# Going on is refused where anything is another one; a compressed input is read again up to there.
gzip -c "$work/big" >"$work/big.gz"
{ head -n 3000 "$work/big" && echo '{"a": 1}'; } >"$work/wrong"
refused 'a fault' 1 "line 3001, key 'a'.*; [0-9,]* documents are kept: the same command with --resume" "$m" pack "${options[@]}" "$out/k" <"$work/wrong"
refused 'another tokenizer' 1 'begun with another tokenizer' "$m" pack "${options[@]}" --vocab-size 50001 --resume "$out/k" <"$work/big"
refused 'other options' 1 'begun with other options' "$m" pack "${null[@]}" --json-keys a b --resume "$out/k" <"$work/big"
refused 'another input' 1 'begun with other inputs' "$m" pack "${options[@]}" --resume "$out/k" "$work/big"
refused 'other bytes' 1 'not what was packed before' "$m" pack "${options[@]}" --resume "$out/k" < <(tr 1 2 <"$work/big")
refused 'without --resume' 1 'resume goes on with it' "$m" pack "${options[@]}" "$out/k" <"$work/big"

# A change of a file that leaves the numbers of documents and the names of tokens is one.
head -n 3000 "$work/big" | tee "$work/early" "$work/late" >/dev/null
echo '{"a": 1}' >>"$work/late"
refused 'a fault in a file' 1 'documents are kept' "$m" pack "${options[@]}" "$out/f" "$work/early" "$work/late"
touch -d '2 days ago' "$work/early"
refused 'a changed file' 1 'begun with other inputs' "$m" pack "${options[@]}" --resume "$out/f" "$work/early" "$work/late"
refused 'another end' 1 'begun with other options' "$m" pack "${options[@]}" --null-tokenizer-eod-id 7 --resume "$out/k" <"$work/big"
cp -r "$tok" "$work/tok"
chmod -R u+w "$work/tok"
yes "$(head -n 1 "$data/notes.jsonl")" | head -n 3000 >"$work/repeats"
echo '{"a": 1}' >>"$work/repeats"
refused 'a fault of text' 1 'documents are kept' "$m" pack --tokenizer "$work/tok" "$out/t" <"$work/repeats"
echo >>"$work/tok/tokenizer.json"
refused 'changed files of the tokenizer' 1 'begun with another tokenizer' "$m" pack --tokenizer "$work/tok" --resume "$out/t" <"$work/repeats"
refused 'a file that changes' 1 "early' has changed while it was packed" "$m" pack "${null[@]}" --json-keys b -- "$out/c" - "$work/early" < <(
	wait_until 'it has begun' compgen -G "$out/c*" >/dev/null
	head -n 1 "$work/big" | tee -a "$work/early"
)
pack 'out of gzip' "${options[@]}" --resume "$out/k" <"$work/big.gz"
grep -q 'were there from an earlier run' "$log" || fail "out of gzip: $(cat "$log")"
both 'out of gzip'
exit 0
