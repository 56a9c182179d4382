#!/bin/bash
# mcorefs pack: what it writes, what it refuses, and that an interrupted run goes on where it stopped, whatever stopped it.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
out=$work/out

# elements FILE TYPE SKIP: of a binary file, in one line.
elements() {
	od -An -v -t"$2" -j"$3" "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
}

# packed TEXT INPUT WANT OPTION...: of a new dataset, its tokens as the text's dtype prints them, then its lengths,
# then its documents.
packed() {
	local text=$1 input=$2 want=$3 type=d4 n
	shift 3
	rm -rf "$out" && mkdir "$out"
	# shellcheck disable=SC2059
	printf "$input" | "$m" pack "$out/x" "$@" >"$log" 2>&1 || fail "$text: $(cat "$log")"
	case $* in *uint16* | *vocab-size\ 5*) type=u2 ;; *int64*) type=d8 ;; *int8*) type=d1 ;; esac
	n=$(elements "$out/x.idx" d8 18 | cut -d' ' -f1)
	same "$text" "$(elements "$out/x.bin" $type 0) | $(elements "$out/x.idx" d4 34 | cut -d' ' -f1-"$n") | $(elements "$out/x.idx" d8 $((34 + 12 * n)))" "$want"
	same "$text: files" "$(ls "$out" | tr '\n' ' ')" 'x.bin x.idx '
}

packed lists '[1, 2, 3]\n[4]\n' '1 2 3 4 | 3 1 | 0 1 2'
packed objects '{"text": "a\\"[9]", "input_ids": [1, 2, 3]}\r\n{"input_ids":[4]}' '1 2 3 4 | 3 1 | 0 1 2'
packed 'another key' '{"input_ids": [9], "tokens": [1, 2, 3]}\n' '1 2 3 | 3 | 0 1' --key tokens
packed sequences '[[1, 2], [3]]\n[[4]]\n' '1 2 3 4 | 2 1 1 | 0 2 3'
packed 'documents without ids' '[1]\n\n[]\n[[], [2], []]\n[[]]\n' '1 2 | 1 1 | 0 1 1 1 2 2'
packed 'ids, detected' '1 2 3\0004,5\0' '1 2 3 4 5 | 3 2 | 0 1 2'
packed ids '1 2\n3\0004,5\0' '1 2 3 4 5 | 3 2 | 0 1 2' --format ids
packed lines '1 2\n\n3' '1 2 3 | 2 1 | 0 1 1 2' --format lines
packed 'end of document' '[1]\n[]\n[[2], [3]]\n' '1 7 2 3 7 | 2 1 2 | 0 1 1 3' --append-eod 7
packed 'small vocabulary' '[65499]\n[50256, 0]\n[1]' '65499 50256 0 1 | 1 2 1 | 0 1 2 3' --dtype uint16
packed 'vocabulary of 50257' '[50256, 0]\n[1]' '50256 0 1 | 2 1 | 0 1 2' --vocab-size 50257
packed 'vocabulary of 65500' '[65499, 0]\n[1]' '65499 0 1 | 2 1 | 0 1 2' --vocab-size 65500
packed int64 '[9223372036854775807, -9223372036854775808]' \
	'9223372036854775807 -9223372036854775808 | 2 | 0 1' --dtype int64
packed int8 '[-128, 127]' '-128 127 | 2 | 0 1' --dtype int8

# rejects TEXT PATTERN INPUT OPTION...: nothing had been packed, so nothing is left.
rejects() {
	local text=$1 pattern=$2 input=$3
	shift 3
	rm -rf "$out" && mkdir "$out"
	# shellcheck disable=SC2059
	printf "$input" >"$work/in"
	refused "$text" 1 "$pattern" "$m" pack "$out/x" "$@" <"$work/in"
	same "$text: files" "$(ls "$out")" ''
}

rejects 'no input' 'holds no token' ''
rejects 'no token' 'holds no token' '[]\n\n'
rejects 'other text' "line 1, column 1: expected a list, an object or a token id, found 'h'" 'hello'
rejects 'a float' "line 1, column 6: expected ',' or ']', found '.'" '[1, 2.5]\n'
rejects 'no key' "line 1, column 10: the object has no key 'input_ids'" '{"text":1}\n'
rejects 'too large for int32' 'column 5: token 2147483648 is outside of int32 \(-2147483648 to 2147483647\)' '[1, 2147483648]'
rejects 'too large for uint16' 'token 65536 is outside of uint16 \(0 to 65535\)' '[65536]' --dtype uint16
rejects 'outside of the vocabulary' 'token 50257 is outside of the vocabulary \(0 to 50256\)' '[50257]' --vocab-size 50257
rejects 'below the vocabulary' 'token -1 is outside of the vocabulary' '[-1]' --vocab-size 50257
rejects 'lines or NUL' 'format lines' '1 2\n3 4\n'
rejects 'a cut line' 'line 1, column 6: the input ends inside of a document' '[1, 2'
refused 'no prefix' 2 'expected mcorefs pack PREFIX' "$m" pack </dev/null
refused 'unknown dtype' 2 "not 'float32'" "$m" pack "$out/x" --dtype float32 </dev/null
refused 'unknown format' 2 "not 'json'" "$m" pack "$out/x" --format json </dev/null
refused 'vocabulary and dtype' 2 'uint16 cannot hold a vocabulary of 70000' "$m" pack "$out/x" --dtype uint16 --vocab-size 70000 </dev/null
refused 'end of document outside' 2 '--append-eod 7 is outside of the vocabulary' "$m" pack "$out/x" --vocab-size 7 --append-eod 7 </dev/null
refused 'no vocabulary' 2 '--vocab-size 0: no id is below 0' "$m" pack "$out/x" --vocab-size 0 </dev/null
refused 'end of document, -1 without a sign' 2 "takes a number, not '18446744073709551615'" "$m" pack "$out/x" --append-eod 18446744073709551615 <<<'[1]'
refused 'no number' 2 "'--append-eod' takes a number, not 'x'" "$m" pack "$out/x" --append-eod x </dev/null
refused 'no directory' 1 'No such file or directory' "$m" pack "$out/none/x" <<<'[1]'

# ---- an error, and going on after it ----

rm -rf "$out" && mkdir "$out"
printf '[1, 2]\n[3]\n[4, x]\n[5]\n' >"$work/in"
refused 'third line' 1 'line 3, column 5: .*; 2 documents are kept: the same command with --resume' "$m" pack "$out/x" <"$work/in"
[ ! -e "$out/x.idx" ] && [ ! -e "$out/x.bin" ] || fail 'third line: there is a dataset'
printf '[1, 2]\n[3]\n[4, 44]\n[5]\n' >"$work/mended"
refused 'begun' 1 'is not finished \(--resume goes on with it, --force begins anew\)' "$m" pack "$out/x" <"$work/mended"
refused 'other options' 1 'begun with other options' "$m" pack "$out/x" --resume --append-eod 7 <"$work/mended"
refused 'other format' 1 'begun with other options' "$m" pack "$out/x" --resume --format lines <"$work/mended"
refused 'other dtype' 1 'begun as int32: it cannot be resumed as uint16' "$m" pack "$out/x" --resume --dtype uint16 <"$work/mended"
printf '[1, 9]\n[3]\n[4, 44]\n[5]\n' >"$work/other"
refused 'other input' 1 'not what was packed before' "$m" pack "$out/x" --resume <"$work/other"
refused 'shorter input' 1 'not what was packed before' "$m" pack "$out/x" --resume <<<'[1, 2]'
refused 'other input in a pipe' 1 'not what was packed before' bash -c "cat '$work/other' | '$m' pack '$out/x' --resume"
"$m" pack "$out/x" --resume <"$work/mended" >"$log" 2>&1 || fail "mended: $(cat "$log")"
grep -q '2 documents were there' "$log" || fail "mended: $(cat "$log")"
same 'mended' "$(elements "$out/x.bin" d4 0)" '1 2 3 4 44 5'
same 'resumed when complete' "$("$m" pack "$out/x" --resume <"$work/mended")" "$out/x.bin and .idx are complete: nothing was read"
refused 'there already' 1 "x.idx' is there already \(--force replaces it\)" "$m" pack "$out/x" <"$work/in"
refused 'forced, with an error' 1 'line 3' "$m" pack "$out/x" --force <"$work/in"
same 'the old one, until the new one is whole' "$(elements "$out/x.bin" d4 0)" '1 2 3 4 44 5'
"$m" pack "$out/x" --force --resume <"$work/other" >/dev/null 2>&1 && fail 'other input, forced'
"$m" pack "$out/x" --force <"$work/other" >/dev/null || fail 'forced'
same forced "$(elements "$out/x.bin" d4 0)" '1 9 3 4 44 5'
same 'forced: files' "$(ls "$out" | tr '\n' ' ')" 'x.bin x.idx '

# A file is read from where the shell stands in it.
{ read -r _ && "$m" pack "$out/y" >/dev/null; } <"$work/mended" || fail 'behind a first line'
same 'behind a first line' "$(elements "$out/y.bin" d4 0)" '3 4 44 5'

# went_on TEXT NEXT OPTION...: all of TEXT is packed and the index cannot be written; an input that goes on with NEXT then is another one, whatever
# a newline after the last document has become.
went_on() {
	local text=$1 next=$2
	shift 2
	mkdir "$out/w.idx.part"
	# shellcheck disable=SC2059
	printf "$text" >"$work/in"
	refused "$text: no index" 1 'everything is kept' "$m" pack "$out/w" "$@" <"$work/in"
	rmdir "$out/w.idx.part"
	# shellcheck disable=SC2059
	printf "$text$next" >"$work/longer"
	refused "$text: it goes on" 1 "it ended after $(stat -c %s "$work/in") bytes, and now it goes on" "$m" pack "$out/w" --resume "$@" <"$work/longer"
	refused "$text: a pipe goes on" 1 'and now it goes on' bash -c "cat '$work/longer' | '$m' pack '$out/w' --resume $*"
	"$m" pack "$out/w" --resume "$@" <"$work/in" >"$log" 2>&1 || fail "$text: $(cat "$log")"
	same "$text: the same again" "$(elements "$out/w.bin" d4 0) | $(elements "$out/w.idx" d8 26 | cut -d' ' -f1)" '1 2 | 3'
	rm "$out/w".*
}

went_on '[1]\n[2]' '\n[3]\n'
went_on '1\n2' '3\n4\n' --format lines
went_on '1\0002' '3\0004\0' --format ids

# Notes without that were in a build before the first version: a hash lies where it is now.
mkdir "$out/w.idx.part"
refused 'no index' 1 'everything is kept' "$m" pack "$out/w" <<<'[1]'
rmdir "$out/w.idx.part"
sed -i '2s/^\(4 2 1\) 0 [0-9a-f]*/\1 0123456789abcdef/' "$out/w.journal"
refused 'an older note' 1 'not a journal of mcorefs pack' "$m" pack "$out/w" --resume <<<'[1]'
rm "$out/w".*

# One at a time. A signal ends one that waits for its input, with what it had.
mkfifo "$work/fifo"
"$m" pack "$out/z" <"$work/fifo" 2>"$log" &
daemon=$!
exec 9>"$work/fifo"
printf '[1, 2]\n[3' >&9
wait_until 'its journal is there' test -e "$out/z.journal"
refused 'two at once' 1 'another process is writing' "$m" pack "$out/z" <"$work/mended"
refused 'two at once, resumed' 1 'another process is writing' "$m" pack "$out/z" --resume <"$work/mended"
kill -TERM "$daemon"
wait "$daemon"
same 'SIGTERM: exit status' $? 143
daemon=
grep -q 'interrupted; 1 documents are kept' "$log" || fail "SIGTERM: $(cat "$log")"
exec 9>&-
"$m" pack "$out/z" --resume <"$work/mended" >/dev/null || fail 'after SIGTERM'
same 'after SIGTERM' "$(elements "$out/z.bin" d4 0)" '1 2 3 4 44 5'

# ---- killed ----

# 3 MB of documents, some of them empty or of several sequences, one longer than all buffers.
awk 'BEGIN {
	srand(7)
	for (d = 0; d < 6000; d++) {
		n = d == 3000 ? 200000 : int(rand() * rand() * 200)
		printf "["
		for (i = 0; i < n; i++) printf "%s%d", i ? ", " : "", rand() * 50257
		print "]"
		if (d % 100 == 50) print "[[1, 2], [" d "]]"
		if (d % 100 == 70) print ""
	}
}' >"$work/big"
rm -rf "$out" && mkdir "$out"
options=(--vocab-size 50257 --append-eod 50256)
"$m" pack "$work/whole" "${options[@]}" <"$work/big" >"$log" || fail 'big'
echo "$(cat "$log")"

# whole NAME TEXT: out/NAME is what one run writes, and nothing else is left.
whole() {
	cmp -s "$out/$1.bin" "$work/whole.bin" && cmp -s "$out/$1.idx" "$work/whole.idx" || fail "$2: the bytes are wrong"
	same "$2: files" "$(cd "$out" && echo "$1".*)" "$1.bin $1.idx"
	rm "$out/$1".*
}

# Before each system call that changes a file.
runs=0 resumed=0
for ((n = 1; ; n++)); do
	"$BIN/kill_at" $n "$m" pack "$out/k" "${options[@]}" <"$work/big" >"$log" 2>&1
	status=$?
	[ $status != 125 ] || break
	[ $status != 0 ] || break
	same "kill_at $n" $status 137
	if [ -e "$out/k.idx" ]; then
		cmp -s "$out/k.bin" "$work/whole.bin" && cmp -s "$out/k.idx" "$work/whole.idx" || fail "killed at $n: half a dataset"
	fi
	"$m" pack "$out/k" "${options[@]}" --resume <"$work/big" >"$log" 2>&1 || fail "killed at $n, then: $(cat "$log")"
	! grep -q 'were there from\|are complete' "$log" || resumed=$((resumed + 1))
	whole k "killed at $n"
	runs=$((runs + 1))
done
if [ $status = 125 ]; then
	echo 'skipped: killed at every call: processes cannot be traced here'
else
	whole k 'never killed'
	echo "killed at each of $runs system calls; $resumed went on"
	[ $resumed -gt 10 ] || fail 'hardly a run went on'
fi

# The same where an older dataset is replaced.
head -n 100 "$work/big" | "$m" pack "$work/older" >/dev/null || fail 'older'
for ((n = 1; runs; n += 3)); do
	cp "$work/older.bin" "$out/f.bin" && cp "$work/older.idx" "$out/f.idx"
	"$BIN/kill_at" $n "$m" pack "$out/f" "${options[@]}" --force <"$work/big" >"$log" 2>&1 && break
	if [ -e "$out/f.idx" ]; then
		cmp -s "$out/f.bin" "$work/whole.bin" || cmp -s "$out/f.bin" "$work/older.bin" || fail "replaced, killed at $n: half a dataset"
		cmp -s "$out/f.idx" "$work/whole.idx" || cmp -s "$out/f.idx" "$work/older.idx" || fail "replaced, killed at $n: half an index"
	fi
	"$m" pack "$out/f" "${options[@]}" --force --resume <"$work/big" >"$log" 2>&1 || fail "replaced, killed at $n, then: $(cat "$log")"
	whole f "replaced, killed at $n"
done
rm -f "$out"/f.*

# slowly: the input, with pauses.
slowly() {
	for part in 0 1 2 3 4 5; do
		tail -c +$((part * 500000 + 1)) "$work/big" | head -c 500000
		sleep 0.2
	done
	tail -c +3000001 "$work/big"
}

# cut_short SIGNAL SECONDS: with standard input; 0 if it has ended well before. Waits for its end, as it holds a lock.
cut_short() {
	local status
	"$m" pack "$out/r" "${options[@]}" --resume <&0 >"$log" 2>&1 &
	sleep "$2"
	kill -s "$1" $! 2>/dev/null
	{ wait $!; } 2>/dev/null
	status=$?
	return $status
}

# At any time, again and again, of a pipe that begins anew each time, and of a file.
runs=0
RANDOM=11
for signal in KILL INT TERM KILL; do
	rm -f "$out"/r.*
	for delay in 0.$((RANDOM % 9))$((RANDOM % 9)) 0.$((RANDOM % 9)) 1.$((RANDOM % 4)) 0.0$((RANDOM % 9)); do
		cut_short $signal $delay < <(slowly 2>/dev/null) && break
		runs=$((runs + 1))
		cut_short KILL 0.0$((RANDOM % 9)) <"$work/big" && break
	done
	# A kill after the last rename leaves the journal, and the next --resume takes it away.
	[ -e "$out/r.idx" ] && [ ! -e "$out/r.journal" ] || "$m" pack "$out/r" "${options[@]}" --resume <"$work/big" >"$log" 2>&1 || fail "$signal, at last: $(cat "$log")"
	whole r "$signal"
done
echo "cut short $runs times"

# A full disk.
if is_root && mkdir "$work/disk" && mount -t tmpfs -o size=1m none "$work/disk"; then
	refused 'full disk' 1 'No space left on device; .* documents are kept' "$m" pack "$work/disk/x" "${options[@]}" <"$work/big"
	mount -o remount,size=20m "$work/disk"
	"$m" pack "$work/disk/x" "${options[@]}" --resume <"$work/big" >/dev/null || fail 'full disk: the second run'
	cmp "$work/disk/x.bin" "$work/whole.bin" && cmp "$work/disk/x.idx" "$work/whole.idx" || fail 'full disk: the bytes are wrong'
	umount "$work/disk"
else
	echo 'skipped: full disk: needs root'
fi

# Memory does not grow with a document.
awk 'BEGIN { printf "[1"; for (i = 0; i < 4000000; i++) printf ", 12345"; print "]" }' |
	(ulimit -v 60000 && "$m" pack "$out/long" >"$log" 2>&1) || fail "a long document: $(cat "$log")"
same 'a long document' "$(stat -c %s "$out/long.bin")" 16000004
# Text is no ids: the same line tells what to do.
printf '{"text": "a tale"}\n' >"$work/tales.jsonl"
refused 'text' 1 "no key 'input_ids'; if this is text in JSON lines, name its tokenizer: mcorefs pack --tokenizer DIR" \
	sh -c "'$MCOREFS' pack '$work/text' <'$work/tales.jsonl'"
refused 'words' 1 "if this is text, name its tokenizer" sh -c "echo once upon | '$MCOREFS' pack '$work/words'"
refused '--input' 2 '--input is of text, and needs its tokenizer' "$MCOREFS" pack --input "$work/tales.jsonl" --output-prefix x
exit 0
