#!/bin/bash
# Datasets on a mount: which directories there are, attributes that stay, the bytes of what passes through.
. "$(dirname "$0")/lib.sh"

data=$FIXTURES/data
tales=$data/tales_text_document
views=$(printf 'hf\njsonl\nmegatron\nnpy\nparquet\nsamples\nwhy-not.txt')

attributes() {
	(cd "$mnt" && find . -exec stat -c '%n %i %s %b %f %u %g %Y %y' {} +) | sort
}

# the_bin_in FILE: its last bytes are those of the .bin.
the_bin_in() {
	tail -c "$(stat -c %s "$tales.bin")" "$1" | cmp -s - "$tales.bin"
}

# A directory of prefixes.
mount_source "$data"
same "the root" "$(ls "$mnt")" data
same "names" "$(ls "$mnt/data")" "$(printf 'notes_text_document\ntales_text_document')"
d=$mnt/data/tales_text_document
same "views" "$(ls "$d")" "$views"
grep -q '^cache: .*-o tokenizer_id=' "$d/why-not.txt" || fail "nothing says why there is no cache"
for view in hf jsonl megatron npy parquet; do
	[ -n "$(ls "$d/$view")" ] || fail "$view is empty"
	for file in "$d/$view"/*; do
		[ -f "$file" ] || continue
		same "$file: size" "$(wc -c <"$file")" "$(stat -c %s "$file")"
	done
done
same "permissions" "$(find "$d/hf" -type f ! -perm 444)" ""
the_bin_in "$d/npy/tokens.npy" || fail "tokens.npy does not end with the .bin"
cmp "$d/megatron/tales_text_document.bin" "$tales.bin" || fail "the .bin has changed"
cmp "$d/megatron/tales_text_document.idx" "$tales.idx" || fail "the .idx has changed"
same "lines of jsonl" "$(cat "$d"/jsonl/*.jsonl | wc -l)" 240
same "the first tokens of jsonl" "$(head -n 1 "$d"/jsonl/*.jsonl | tr -cd '0-9 ,' | tr -s ' ,' '\n' | sed '/^$/d' | head -n 8 | xargs)" \
	"$(od -An -v -tu2 -w2 -N16 "$tales.bin" | xargs)"
[ -f "$d/samples/train-s128-n226/state.json" ] || fail "no samples at a spec that nobody lists"
for name in nonsense train-s0 train-s128-n01 valid; do
	[ ! -e "$d/samples/$name" ] || fail "samples/$name is there"
done
[ ! -e "$d/hf/nothing" ] || fail "a file that is not there was found"
touch "$d/hf/cache-1.arrow" 2>/dev/null && fail "a file could be made"
same "inode numbers" "$(find "$mnt" -printf '%i\n' | sort | uniq -d)" ""
before=$(attributes)
sums=$(find "$d" -type f -exec sha256sum {} + | sort)
unmount
sleep 1.1
mount_source "$data" -s
: "$(ls -R "$mnt" "$d/samples/train-s128-n226")"
same "attributes after a remount" "$(attributes)" "$before"
same "bytes after a remount" "$(find "$d" -type f -exec sha256sum {} + | sort)" "$sums"
unmount

# One prefix, by its name or by one of its files; the same bytes again.
for source in "$tales" "$tales.idx"; do
	mount_source "$source"
	same "$source: names" "$(ls "$mnt/data")" tales_text_document
	the_bin_in "$d/npy/tokens.npy" || fail "$source: tokens.npy"
	unmount
done

# Divided, and merged.
mount_source "$data" -o split=90/8/2,merge=both
same "names with a merge" "$(ls "$mnt/data" | xargs)" "both notes_text_document tales_text_document"
same "splits" "$(ls "$d/hf" | xargs)" "dataset_dict.json test train validation"
same "rows of the splits" "$(cat "$d"/jsonl/train.jsonl | wc -l) $(cat "$d"/jsonl/validation.jsonl | wc -l) $(cat "$d"/jsonl/test.jsonl | wc -l)" "216 19 5"
cat "$data/notes_text_document.bin" "$tales.bin" | cmp - "$mnt/data/both/megatron/both.bin" || fail "the merged .bin"
unmount

# As text, which packs to the same tokens; a large dataset is not measured unless that is asked for.
mount_source "$data" -o "tokenizer=$data/tokenizer,dataset_cache=$work/lengths"
same "views with a tokenizer" "$(ls "$d" | xargs)" "hf jsonl megatron npy parquet samples text why-not.txt"
same "text: size" "$(wc -c <"$d/text/data.jsonl")" "$(stat -c %s "$d/text/data.jsonl")"
"$MCOREFS" pack --tokenizer "$data/tokenizer" "$work/packed" <"$d/text/data.jsonl" >/dev/null || fail "text is not packed"
cmp "$work/packed.bin" "$tales.bin" && cmp "$work/packed.idx" "$tales.idx" || fail "text packs to other tokens"
for file in "$d"/{hf,parquet}/data-*; do
	same "$file: size with text" "$(wc -c <"$file")" "$(stat -c %s "$file")"
	grep -aqF "$(head -c 60 "$data/tales.jsonl" | cut -d'"' -f4)" "$file" || fail "$file has no text"
done
grep -q '"text": {"dtype": "string"' "$d/hf/dataset_info.json" || fail "hf does not tell of the text"
same "lengths are kept" "$(stat -c '%s %a' "$work"/lengths/text-*.lengths)" "$((64 + 240 * 8 + 2 * 16)) 600"
unmount
refused 'text_scan alone' 1 'text_scan needs tokenizer=DIR' "$MCOREFS" ls "$data" -o text_scan
refused 'text without a tokenizer' 1 'text needs a tokenizer: -o tokenizer=DIR' "$MCOREFS" ls "$data" data/tales_text_document/text

# Next to a model, with and without iterations; below a relative path.
cd "$FIXTURES" || exit 1
for source in resume/llama-torch-tp2-pp2 hf/*/; do
	[ -d "$source" ] || continue
	mount_source "$source" -o data=data/tales_text_document
	same "$source: names" "$(ls "$mnt/data")" tales_text_document
	the_bin_in "$d/npy/tokens.npy" || fail "$source: tokens.npy"
	ls "$mnt"/*hf "$mnt"/*/hf >/dev/null 2>&1 || [ -d "$mnt/hf" ] || [ -d "$mnt/latest/hf" ] || fail "$source: the model is gone"
	unmount
done

# Without a mount.
"$MCOREFS" export "$tales" data/tales_text_document/npy "$work/npy" >/dev/null || fail "export"
the_bin_in "$work/npy/tokens.npy" || fail "the exported tokens.npy"
"$MCOREFS" verify "$data" --deep >/dev/null || fail "verify"
"$MCOREFS" verify "$tales" data/tales_text_document/hf --deep >/dev/null || fail "verify of a view"
"$MCOREFS" inspect "$data" >/dev/null || fail "inspect"
# Of 240 rows, which an old version divides otherwise.
for division in '0.17 train 34, valid 35, test 171' '2.6 train 35, valid 34, test 171'; do
	version=${division%% *} rows=${division#* }
	"$MCOREFS" inspect "$tales" -o split=1/1/5,megatron="$version" | grep -q "$rows" || fail "inspect: the split of $version"
	"$MCOREFS" export "$tales" data/tales_text_document/jsonl "$work/$version" -o split=1/1/5,megatron="$version" >/dev/null ||
		fail "export of splits"
	same "the split of $version" "$(cd "$work/$version" && wc -l <train.jsonl) $(wc -l <"$work/$version/validation.jsonl")" \
		"$(awk -F '[ ,]+' '{ print $2, $4 }' <<<"$rows")"
done
"$MCOREFS" ls "$data" | grep -q 'tales_text_document/' || fail "ls"
refused "two of one name" 1 "two datasets are named 'tales_text_document'" "$MCOREFS" ls "$data" -o "data=$tales"
refused "no dataset" 1 'holds no dataset' "$MCOREFS" ls "$tales" -o "data=$FIXTURES/weights"
echo '{"class": "x"}' >"$work/id"
for command in ls verify; do
	refused "$command why-not" 1 "there is no view 'why-not'" "$MCOREFS" $command "$tales" data/tales_text_document/why-not \
		-o "tokenizer_id=$work/id,tokenizer=$data/tokenizer"
done
refused "export why-not" 1 "there is no view 'why-not'" "$MCOREFS" export "$tales" data/tales_text_document/why-not "$work/why-not" \
	-o "tokenizer_id=$work/id,tokenizer=$data/tokenizer"
refused "diff of datasets" 2 'diff compares models' "$MCOREFS" diff "$tales" "$tales"
said=$("$MCOREFS" verify "$tales" --deep -o vocab_size=999 2>&1) && fail "tokens outside of the vocabulary pass"
grep -q 'vocabulary' <<<"$said" || fail "the vocabulary is not named: $said"
for view in hf megatron npy; do
	said=$("$MCOREFS" export "$tales" data/tales_text_document/$view "$work/outside-$view" -o vocab_size=999 2>&1 >/dev/null) &&
		fail "$view: tokens outside of the vocabulary pass"
	grep -q 'outside of a vocabulary of 999' <<<"$said" || fail "$view: the vocabulary is not named: $said"
done
# The last word about the vocabulary is the one that counts, for datasets as well.
"$MCOREFS" export "$FIXTURES/weights/llama-torch-tp2-pp2" data/tales_text_document/jsonl "$work/unchecked" \
	-o "data=$tales,vocab_size=999,vocab_size=tokenizer" >/dev/null || fail 'vocab_size=999 counts after vocab_size=tokenizer'
"$MCOREFS" export "$tales" data/tales_text_document/megatron "$work/inside" -o vocab_size=65536 >/dev/null || fail "export of checked tokens"
cmp "$work/inside/tales_text_document.bin" "$tales.bin" || fail "the .bin whose tokens are looked at"
