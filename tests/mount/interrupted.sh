#!/bin/bash
# SIGINT, SIGTERM, SIGHUP: commands end with 128 and the signal's number; what they write is whole or not there, and can be gone on with.
# The signal comes before a system call that changes a file, at each of them in turn.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
source=$(echo "$FIXTURES"/weights/llama-torch-*)
data=$FIXTURES/data
"$BIN/kill_at" -15 1 true
[ $? != 125 ] || skip 'processes cannot be traced here'

# at SIGNAL N COMMAND...: its output in $work/said, its messages in $log.
at() {
	"$BIN/kill_at" "-$1" "$2" "${@:3}" >"$work/said" 2>"$log" </dev/null
}

# Commands that only print end where they are, and say so.
for signal in 1 2 15; do
	at $signal 1 "$m" verify "$source" --deep
	same "verify, signal $signal" $? $((128 + signal))
	same "verify, signal $signal: messages" "$(cat "$log")" 'mcorefs: interrupted'
done
at 2 1 "$m" verify "$data/notes_text_document" --deep
same 'verify of a dataset' $? 130
at 2 1 "$m" diff "$source" "$source"
same diff $? 130
at 2 1 "$m" sample "$data/notes_text_document" --step 1 --seq-length 16 --train-iters 4 --global-batch-size 2
same sample $? 130
at 2 1 "$m" ls "$source"
same ls $? 130
(trap '' HUP && at 1 1 "$m" verify "$source" --deep) || fail "an ignored signal, as below nohup: status $?: $(cat "$log")"

# What sample writes.
samples=("$m" sample "$data/notes_text_document" --step 1 --seq-length 16 --train-iters 4 --global-batch-size 2)
"${samples[@]}" --npy "$work/want.npy" || fail 'sample --npy'
for ((n = 1; ; n++)); do
	rm -f "$work/a.npy"
	at 2 "$n" "${samples[@]}" --npy "$work/a.npy" && break
	same "sample, before change $n" $? 130
	[ ! -e "$work/a.npy" ] || cmp "$work/a.npy" "$work/want.npy" || fail "sample, before change $n: half a file"
	[ ! -e "$work/a.npy.tmp" ] || fail "sample, before change $n: something was left"
done
[ $n -gt 2 ] || fail 'sample: there was no change'

# What pack writes.
packing=("$m" pack "$work/p")
printf '[1, 2]\n[3]\n' >"$work/ids"
for ((n = 1; ; n++)); do
	rm -f "$work"/p.*
	"$BIN/kill_at" -2 $n "${packing[@]}" <"$work/ids" >"$work/said" 2>"$log" && break
	same "pack, before change $n" $? 130
	"${packing[@]}" --resume <"$work/ids" >/dev/null || fail "pack, before change $n: it cannot go on"
	same "pack, before change $n" "$(od -An -v -td4 "$work/p.bin" | xargs)" '1 2 3'
done
[ $n -gt 2 ] || fail 'pack: there was no change'

# What export writes: new, and over its predecessor.
out=$work/out
partial=$out.mcorefs-partial
"$m" export "$source" hf "$work/whole" >/dev/null || fail export
for force in '' --force; do
	done=0
	for ((n = 1; ; n++)); do
		rm -rf "$out" "$partial"
		[ -z "$force" ] || cp -a "$work/whole" "$out"
		# shellcheck disable=SC2086
		at 2 "$n" "$m" export "$source" hf "$out" $force
		status=$?
		if [ $status = 0 ]; then
			diff -r "$out" "$work/whole" || fail "export $force, before change $n: ended well, but is not whole"
			# After its last look at its wishes it ends well. Then it has no more changes to come before.
			done=$((done + 1))
			[ $done -lt 6 ] || break
			continue
		fi
		same "export $force, before change $n: $(cat "$log")" $status 130
		same "export $force, before change $n: messages" "$(grep -c interrupted "$log")" 1
		if [ -n "$force" ]; then
			diff -r "$out" "$work/whole" || fail "export --force, before change $n: the predecessor was changed"
		elif [ -e "$out" ]; then
			fail "export, before change $n: half of it is there"
		fi
		if [ $((n % 4)) = 1 ]; then
			# shellcheck disable=SC2086
			"$m" export "$source" hf "$out" $force >"$log" 2>&1 || fail "export $force, before change $n: it cannot go on: $(cat "$log")"
			diff -r "$out" "$work/whole" || fail "export $force, before change $n: other bytes"
			[ ! -e "$partial" ] || fail "export $force, before change $n: something was left"
		fi
	done
	[ "$n" -gt 8 ] || fail "export $force: there were only $n changes"
done

# Killed, it leaves the predecessor or the new one, and the command can be given again.
for ((n = 1; ; n += 3)); do
	at 9 "$n" "$m" export "$source" hf "$out" --force && break
	same "export --force, killed before change $n" $? 137
	[ ! -e "$out" ] || diff -r "$out" "$work/whole" || fail "export --force, killed before change $n: half of it is there"
	"$m" export "$source" hf "$out" --force >"$log" 2>&1 || fail "export --force, killed before change $n: $(cat "$log")"
	diff -r "$out" "$work/whole" || fail "export --force, killed before change $n: other bytes"
	[ ! -e "$partial" ] || fail "export --force, killed before change $n: something was left"
done
