#!/bin/bash
# Datasets that are damaged, change under the mount, or have nothing in them: the rows concerned are an error and no others,
# and a sentence reports what is wrong.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is missing'

data=$FIXTURES/data
name=tales_text_document
d=$mnt/data/$name

# copy_data: fresh files that may be damaged, in $work/data. They are old, so that a change shows in their times however
# coarse those are.
copy_data() {
	rm -rf "$work/data"
	mkdir "$work/data"
	cp "$data"/*_document.* "$work/data"
	touch -d @1000000000 "$work"/data/*
}

# ---- a .bin that ends early ----

# The same with 0xffff, which no token is, in place of what is missing.
mkdir "$work/whole" "$work/mnt-whole"
cut=200001 # in the middle of a token
cp "$data/$name".* "$work/whole"
truncate -s $cut "$work/whole/$name.bin"
head -c $(($(stat -c %s "$data/$name.bin") - cut)) /dev/zero | tr '\0' '\377' >>"$work/whole/$name.bin"
printf '\377' | dd of="$work/whole/$name.bin" bs=1 seek=$((cut - 1)) conv=notrunc status=none
"$MCOREFS" "$work/whole" "$work/mnt-whole" || fail 'mount of the reference'
w=$work/mnt-whole/data/$name

copy_data
truncate -s $cut "$work/data/$name.bin"
mount_foreground "$work/data"
grep -q "$name.bin ends at byte $cut, before its .idx says" "$log" || fail 'short: no warning'
for view in hf samples/train-s128 samples/valid-s128-n40 samples/train-s16-n5000; do
	said=$(python3 tests/mount/data_rows.py hf "$w/$view" "$d/$view" 2>&1) || fail "short: $view: $said"
	echo "$view: $said"
	[[ $said =~ ^[0-9]+\ rows,\ [1-9][0-9]*\ errors,\ 0\ beside ]] || fail "short: $view: $said"
done
for view in npy jsonl; do
	said=$(python3 tests/mount/data_rows.py $view "$w/$view" "$d/$view" 2>&1) || fail "short: $view: $said"
	echo "$view: $said"
	[[ $said =~ ^240\ rows,\ 108\ errors,\ [0-9]\ beside ]] || fail "short: $view: $said"
done
cmp "$d/npy/offsets.npy" "$w/npy/offsets.npy" || fail 'short: offsets.npy'
cmp "$d/megatron/$name.idx" "$data/$name.idx" || fail 'short: the .idx'

# Parquet: row groups of their own, so what is missing costs hardly more pages than it fills; its ends can be read, the
# last 64 KiB at once, which is how pyarrow finds the footer.
unreadable() {
	python3 - "$1" <<-'END'
		import os, sys
		fd, bad = os.open(sys.argv[1], os.O_RDONLY), 0
		size = os.fstat(fd).st_size
		for at in range(0, size, 4096):
		    try:
		        os.pread(fd, 4096, at)
		    except OSError:
		        bad += 1
		print(bad, "pages,", len(os.pread(fd, 65536, size - 65536)), "bytes at the end")
	END
}
said=$(unreadable "$d"/parquet/data-00000-of-00001.parquet)
echo "parquet: $said"
missing=$(($(stat -c %s "$data/$name.bin") - cut)) # in Parquet each of its tokens takes four bytes, not two
[[ $said =~ ^([0-9]+)\ pages,\ 65536\ bytes ]] || fail "short: parquet: $said"
[ "${BASH_REMATCH[1]}" -ge $((missing * 2 / 4096)) ] && [ "${BASH_REMATCH[1]}" -le $((missing * 2 / 4096 + 3)) ] ||
	fail "short: parquet: $said, of about $((missing * 2 / 4096))"

# The other dataset is whole, the daemon has logged each thing once, and verify names every row.
cmp "$mnt/data/notes_text_document/megatron/notes_text_document.bin" "$data/notes_text_document.bin" || fail 'short: the other dataset'
same 'short: lines in the log' "$(sort "$log" | uniq -d)" ''
unmount
umount "$work/mnt-whole" 2>/dev/null || fusermount3 -u "$work/mnt-whole"
said=$("$MCOREFS" verify "$work/data" --deep 2>&1) && fail 'short: verify finds nothing'
grep -q "$name.bin ends at byte $cut" <<<"$said" || fail "short: verify: $said"

# ---- files that change under the mount ----

change() {
	case $1 in
	truncate) truncate -s 100000 "$2" ;;
	delete) rm "$2" ;;
	replace) cp "$2" "$2.new" && mv "$2.new" "$2" ;;
	rewrite) dd if=/dev/urandom of="$2" bs=4096 seek=4 count=4 conv=notrunc status=none ;;
	esac
}

files='hf/data-00000-of-00001.arrow parquet/data-00000-of-00001.parquet npy/tokens.npy jsonl/data.jsonl samples/train-s128/data-00000-of-00001.arrow'

# later FILE: a place of it that nobody has read before.
later() {
	dd if="$d/$1" bs=4096 skip=40 iflag=direct status=none
}

copy_data
mount_source "$work/data"
for file in $files; do later "$file" >"$work/${file%%/*}.right" || fail "before: $file"; done
head -c 4096 "$d/npy/tokens.npy" >"$work/first"
unmount

# What needs a changed file is an error. The .idx is not needed for tokens that pass through: they may be there still.
for how in truncate delete replace rewrite; do
	for suffix in bin idx; do
		text="$how of the .$suffix"
		copy_data
		rm -f "$log"
		mount_foreground "$work/data"
		cmp -n 4096 "$d/npy/tokens.npy" "$work/first" || fail "$text: before"
		: "$(ls "$d"/* "$d/samples/train-s128")" # all views are open
		change $how "$work/data/$name.$suffix"
		failed=0
		for file in $files; do
			if later "$file" >"$work/found" 2>"$work/said"; then
				cmp "$work/found" "$work/${file%%/*}.right" || fail "$text: $file has other bytes"
			else
				grep -q 'Stale file handle\|Input/output error' "$work/said" || fail "$text: $file: $(cat "$work/said")"
				failed=$((failed + 1))
			fi
		done
		[ $suffix = idx ] || same "$text: files that fail" $failed 5
		[ $failed -ge 2 ] || fail "$text: $failed files fail"
		if head -c 4096 "$d/npy/tokens.npy" >"$work/again" 2>/dev/null; then
			cmp "$work/first" "$work/again" || fail "$text: cached bytes have changed"
		fi
		kill -0 "$daemon" || fail "$text: the daemon has ended"
		cmp "$mnt/data/notes_text_document/megatron/notes_text_document.bin" "$data/notes_text_document.bin" || fail "$text: the other dataset"
		grep -q "$name.$suffix" <<<"$(errors)" || fail "$text: nothing in the log names it"
		same "$text: lines that are there twice" "$(errors | sort | uniq -d)" ''
		unmount
	done
done

# ---- what is no dataset, and what has nothing in it ----

# idx NAME LENGTH...: an .idx of int32 with sequences of those lengths, each a document; its .bin has as many ones.
u64() {
	local i v=$1
	for i in 1 2 3 4 5 6 7 8; do
		printf "\\x$(printf %02x $((v & 255)))"
		v=$((v >> 8))
	done
}
u32() {
	u64 "$1" | head -c 4
}
idx() {
	local file=$work/data/$1.idx length at=0 i
	shift
	{
		printf 'MMIDIDX\0\0'
		u64 1
		printf '\4'
		u64 $#
		u64 $(($# + 1))
		for length; do u32 "$length"; done
		for length; do
			u64 $((at * 4))
			at=$((at + length))
		done
		for ((i = 0; i <= $#; i++)); do u64 $i; done
	} >"$file"
	for ((i = 0; i < at; i++)); do u32 1; done >"${file%.idx}.bin"
}

rm "$work"/data/*
{ printf 'TNTIDX\0\0' && u64 1 && u64 8 && u64 8; } >"$work/data/old.idx"
touch "$work/data/old.bin"
refused 'TNTIDX' 1 'old.idx.*TNTIDX' "$MCOREFS" "$work/data/old" "$mnt"
refused 'TNTIDX in a directory' 1 'old.idx.*TNTIDX' "$MCOREFS" "$work/data" "$mnt"
refused 'TNTIDX, verify' 1 'old.idx.*TNTIDX' "$MCOREFS" verify "$work/data"
rm "$work"/data/*
printf 'MMIDIDX\0\0' >"$work/data/cut.idx"
touch "$work/data/cut.bin"
refused 'a header' 1 'cut.idx' "$MCOREFS" "$work/data/cut" "$mnt"
idx cut 3 4
truncate -s -1 "$work/data/cut.idx"
refused 'one byte less' 1 'cut.idx.* bytes' "$MCOREFS" "$work/data/cut" "$mnt"
idx cut 3 4
rm "$work/data/cut.bin"
refused 'no .bin' 1 'cut' "$MCOREFS" "$work/data/cut" "$mnt"

# Sequences without tokens are empty rows; splits and datasets without tokens have no samples, and the reason is reported.
rm "$work"/data/*
idx mixed 0 3 0 0 4 0
idx zero 0 0 0
idx nothing
"$MCOREFS" verify "$work/data" --deep >/dev/null || fail 'empty ones: verify'
mount_source "$work/data"
mixed=$mnt/data/mixed
same 'empty rows: jsonl' "$(tr -d ' ' <"$mixed/jsonl/data.jsonl" | tr '\n' ' ')" \
	'{"input_ids":[]} {"input_ids":[1,1,1]} {"input_ids":[]} {"input_ids":[]} {"input_ids":[1,1,1,1]} {"input_ids":[]} '
same 'empty rows: offsets.npy' "$(od -An -v -td8 -j128 "$mixed/npy/offsets.npy" | xargs)" '0 0 3 3 3 7 7'
same 'no tokens: jsonl' "$(xargs <"$mnt/data/zero/jsonl/data.jsonl")" '{input_ids: []} {input_ids: []} {input_ids: []}'
same 'no rows: jsonl' "$(wc -c <"$mnt/data/nothing/jsonl/data.jsonl")" 0
for name in mixed zero nothing; do
	for suffix in bin idx; do
		cmp "$mnt/data/$name/megatron/$name.$suffix" "$work/data/$name.$suffix" || fail "$name: the .$suffix"
	done
	for file in "$mnt/data/$name"/{hf,parquet,npy,jsonl}/*; do cat "$file" >/dev/null || fail "$file"; done
done
for spec in zero/samples/train-s4 nothing/samples/train-s4 mixed/samples/test-s4 mixed/samples/train-s9; do
	[ ! -e "$mnt/data/$spec" ] || fail "$spec is there"
done
unmount
m=$MCOREFS
refused 'no tokens: samples' 1 'zero: no sequence of the split has a token' "$m" ls "$work/data" data/zero/samples/train-s4
refused 'no rows: samples' 1 'nothing: the train split has none of the 0 sequences' "$m" ls "$work/data" data/nothing/samples/train-s4
refused 'empty split: samples' 1 'mixed: the test split has none of the 6 sequences' "$m" ls "$work/data" data/mixed/samples/test-s4
refused 'split without tokens: samples' 1 'mixed: no sequence of the split has a token' "$m" ls "$work/data" data/mixed/samples/valid-s4 -o split=9/1/0
refused 'too few tokens: samples' 1 'mixed: 7 tokens are too few for a sample of 9\+1' "$m" ls "$work/data" data/mixed/samples/train-s9
refused 'no split at all' 2 "'0/0/0' leaves every split empty" "$m" ls "$work/data" -o split=0/0/0
mount_source "$work/data/mixed" -o split=9/1/0
same 'empty splits: hf' "$(xargs -n 1 dirname <<<"$(cd "$mnt/data/mixed/hf" && echo */state.json)" | xargs)" 'test train validation'
unmount
# Lengths of 2^31-1 that lie nowhere in a .bin of 64 bytes, and 20 000 sequences that are all of the same megabyte: samples would take gigabytes.
claim() { # NAME SEQUENCES LENGTH BYTES
	python3 - "$work/$1" "$2" "$3" "$4" "${5-$3}" <<'END'
import struct, sys
name, n, length, size, step = sys.argv[1], *map(int, sys.argv[2:])
with open(name + ".idx", "wb") as f:
    f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, n, n + 1) + struct.pack(f"<{n}i", *[length] * n))
    f.write(struct.pack(f"<{n}q", *[4 * step * i for i in range(n)]) + struct.pack(f"<{n + 1}q", *range(n + 1)))
with open(name + ".bin", "wb") as f:
    f.truncate(size)
END
}
claim giant 2 2147483647 64
claim again 20000 262144 1048576 0
for name in giant again; do
	refused "$name: samples" 1 "$name: its sequences claim [0-9]* tokens, and its files have [0-9]* bytes" "$m" ls "$work/$name" "data/$name/samples/train-s4-n10"
	refused "$name: batch" 1 "$name: its sequences claim" "$m" sample "$work/$name" --step 1 --seq-length 4 --global-batch-size 2 --micro-batch-size 1 --train-iters 4
	"$m" ls "$work/$name" "data/$name/hf" >/dev/null || fail "$name: hf"
done
exit 0
