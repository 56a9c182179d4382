#!/bin/bash
# A directory of 300 runs as one SOURCE: each is a directory, opened when it is entered and let go of, and what comes, goes
# or is damaged later is seen.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/weights/llama-torch-tp2-pp2
count=300
runs=$work/runs
mkdir "$runs"
copy() { cp -al "$from" "$1" 2>/dev/null || { rm -rf "$1" && cp -a "$from" "$1"; }; }
# The first is a copy on the file system of the others, so that these can be links.
cp -a "$from" "$work/first"
from=$work/first
for i in $(seq "$count"); do
	copy "$runs/$(printf 'run-%03d' "$i")"
done
mkdir "$runs/.hidden" "$runs/empty" "$runs/none"
echo text >"$runs/notes.txt"
echo text >"$runs/none/notes.txt"
model=$(sed -n 's/^\([0-9]\).*/\1/p' "$from/latest_checkpointed_iteration.txt")
[ -n "$model" ] || fail 'the fixture has no tracker'

stats() { sed -n "s/^$1{.*$2.*} //p" "$mnt/.mcorefs/stats"; }
open_runs() { stats mcorefs_runs 'state="open"'; }
resident() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status"; }
descriptors() { find "/proc/$daemon/fd" -mindepth 1 | wc -l; }

refused 'options of one run' 1 "dataset_cache' is of one run" "$MCOREFS" "$runs" "$mnt" -o "dataset_cache=$work/cache" -f
refused 'a wrong option' 1 'nonesuch' "$MCOREFS" "$runs" "$mnt" -o arch=nonesuch -f

mount_foreground "$runs"
before=$(descriptors)
# The names, and what they are, without opening one.
same 'names' "$(ls "$mnt" | grep -c '^run-')" "$count"
same 'names that are no run' "$(ls -A "$mnt" | grep -v '^run-' | tr '\n' ' ')" 'empty none '
# shellcheck disable=SC2012 # ls -l and stat are what people use
ls -l "$mnt" >"$work/listing" || fail 'ls -l'
same 'runs that names have opened' "$(open_runs)" 0
grep -q '^dr-xr-xr-x.* run-300$' "$work/listing" || fail "a run's permissions: $(tail -n 1 "$work/listing")"

# One of them, as a mount of its own shows it.
find "$mnt/run-007" >/dev/null || fail 'ls -R of one run'
same 'runs that one has opened' "$(open_runs)" 1
(cd "$mnt/run-007" && find . -type f -exec md5sum {} + | sort -k 2) >"$work/in_many"
[ "$(wc -l <"$work/in_many")" -gt 10 ] || fail "few files: $(wc -l <"$work/in_many")"
mkdir "$work/alone"
"$MCOREFS" "$runs/run-007" "$work/alone" || fail 'one run cannot be mounted alone'
(cd "$work/alone" && find . -type f -exec md5sum {} + | sort -k 2) >"$work/in_one"
umount "$work/alone" 2>/dev/null || fusermount3 -u "$work/alone" || fail 'cannot unmount one'
cmp "$work/in_many" "$work/in_one" || fail 'a run in a directory is not what it is alone'

# All of them: what nobody reads is closed.
small=$(resident)
ls "$mnt"/run-??? >/dev/null || fail 'ls of all'
same 'runs that are open' "$(open_runs)" "$count"
md5sum "$mnt"/run-??[05]/latest/hf/model.safetensors | cut -d' ' -f1 | uniq -c | sed 's/^ *//' >"$work/sum"
same 'weights of every fifth' "$(cut -d' ' -f1 "$work/sum")" $((count / 5))
[ "$(descriptors)" -lt $((before + 100)) ] || fail "$before descriptors before, $(descriptors) after"
echo "resident: $small KiB with one run, $(resident) KiB with all"
[ "$(resident)" -lt $((small + count * 100)) ] || fail "$small KiB before, $(resident) after"
for _ in 1 2 3 4 5; do
	echo 2 >/proc/sys/vm/drop_caches
	sleep 0.1
done 2>/dev/null && [ "$(open_runs)" -le 1 ] ||
	{ is_root && [ -w /proc/sys/vm/drop_caches ] && fail "$(open_runs) runs are open, and the kernel knows none"; }

# Nothing that can be shown: an error of its own, and a run that has not saved yet.
same 'an empty run' "$(ls -A "$mnt/empty")" ''
ls "$mnt/none" 2>/dev/null && fail 'a directory that is no run was listed'
ls "$mnt/none" 2>/dev/null
same 'sentences about it' "$(grep -c 'none: .*holds no Megatron checkpoint' "$log")" 1

# Numbers are the same when another daemon serves, and handles lead to the same files. Few runs are opened for these.
numbers() { stat -c '%i %n' "$mnt"/run-01?/latest/hf/* | sed "s,$mnt,,"; }
numbers >"$work/numbers"
handles=
if is_root && (cd "$mnt" && "$BIN/handles" save "$work/handles" run-01?/iter_*/hf/config.json run-012 .) 2>/dev/null; then
	handles=yes
	"$BIN/handles" check "$work/handles" "$mnt" >"$work/expected"
fi
unmount
mount_foreground "$runs"
if [ -n "$handles" ]; then
	"$BIN/handles" check "$work/handles" "$mnt" >"$work/found"
	same 'handles' "$(wc -l <"$work/found")" 12
	grep -q '^E' "$work/found" && fail "handles: $(cat "$work/found")"
	cmp "$work/expected" "$work/found" || fail "handles after a remount: $(diff "$work/expected" "$work/found")"
	[ "$(open_runs)" -lt 60 ] || fail "ten handles have opened $(open_runs) runs"
fi
numbers | cmp - "$work/numbers" || fail 'other numbers after a remount'

# Added, removed, damaged.
exec 5<"$mnt/run-020/latest/hf/model.safetensors"
sum=$(sha256sum <"$mnt/run-001/latest/hf/model.safetensors")
copy "$runs/run-new"
rm -rf "$runs/run-020" "$runs/run-021"
added() { [ -e "$mnt/run-new/latest/hf/config.json" ] && [ ! -e "$mnt/run-020" ]; }
wait_until 'the changes are seen' added
same 'a file of a removed run' "$(sha256sum <&5)" "$sum"
exec 5<&-
grep -q 'run-new is new' "$log" || fail 'no word of the new run'
grep -q 'run-021 was deleted' "$log" || fail 'no word of the removed one'
# A run that was removed and has come back is read anew.
rm -rf "$runs/run-022"
gone() { [ ! -e "$mnt/run-022" ]; }
wait_until 'it is gone' gone
copy "$runs/run-022"
back() { [ -e "$mnt/run-022" ]; }
wait_until 'it is back' back
same 'a run that came back' "$(sha256sum <"$mnt/run-022/latest/hf/model.safetensors")" "$sum"
# Damaged after it was shown: an iteration without one of its files.
[ -e "$mnt/run-023/latest/hf" ] || fail 'run 23'
rm -r "$runs"/run-023/iter_*/mp_rank_00_000
damaged() { [ ! -e "$mnt/run-023/latest" ]; }
wait_until 'the damage is seen' damaged
grep -q 'run-023/iter_0*[0-9]* is no longer shown' "$log" || fail 'no word of the damage'
same 'another run' "$(sha256sum <"$mnt/run-024/latest/hf/model.safetensors")" "$sum"
unmount
