#!/bin/bash
# mcorefs mounts and mcorefs umount: what stands, what was read and what failed; dead, silent, covered and other users'
# mounts; what is in use.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

copy_fixture "weights/$(basename "$FIXTURES"/weights/gpt2-*)"
mkdir "$work/other"
other=$(echo "$FIXTURES"/weights/llama-torch_dist-*)

# says TEXT STATUS PATTERN [WORD...]: what mounts says of $mnt.
says() {
	local text=$1 status=$2 pattern=$3 out
	out=$("$MCOREFS" mounts "$mnt" "${@:4}")
	same "$text: exit status of mounts" $? "$status"
	[[ $out =~ $pattern ]] || fail "$text: expected '$pattern', found '$out'"
}
# value NAME: a number of mounts --json.
value() {
	"$MCOREFS" mounts "$mnt" --json | sed -n "s/^ *\"$1\": \([0-9]*\),\{0,1\}$/\1/p"
}

refused "mounts of a directory" 1 'is not a mount of mcorefs' "$MCOREFS" mounts "$mnt"
refused "umount of a directory" 3 'is not a mount point' "$MCOREFS" umount "$mnt"
refused "umount of another file system" 3 'a mount of proc is there' "$MCOREFS" umount /proc
refused "umount of nothing" 3 'No such file' "$MCOREFS" umount "$work/none"
refused "umount of two" 2 'unexpected argument' "$MCOREFS" umount "$mnt" "$mnt"

before=$(date +%s)
mount_foreground "$ckpt"
says "a mount" 0 "^$mnt: $ckpt"$'\n'"  since 20[-0-9: ]*, process $daemon, 0 B in 0 reads, 0 errors, 0 files open$"
same "pid" "$(value pid)" "$daemon"
[ "$(value since)" -ge "$before" ] && [ "$(value since)" -le "$(date +%s)" ] || fail "since: $(value since)"
size=$(stat -c %s "$mnt/latest/hf/model.safetensors")
cat "$mnt/latest/hf/model.safetensors" >/dev/null
[ "$(value bytes)" -ge "$size" ] && [ "$(value bytes)" -lt $((size + 65536)) ] || fail "bytes: $(value bytes) after a file of $size"
cat "$mnt/latest/hf/model.safetensors" >/dev/null
[ "$(value bytes)" -lt $((size + 65536)) ] || fail "bytes: what the page cache answers counts"
exec 5<"$mnt/latest/hf/config.json"
same "files open" "$(value open_files)" 1
[[ $("$MCOREFS" mounts) == *"$mnt: $ckpt"* ]] || fail "mounts without a word does not list it"

# In use.
refused "umount of what is in use" 3 "cannot unmount $mnt: it is in use by process [0-9]+ .bash.*--lazy" "$MCOREFS" umount "$mnt"
says "after a refused umount" 0 "1 files open"
"$MCOREFS" umount --lazy "$mnt" || fail "umount --lazy"
not_mounted || fail "umount --lazy has left it"
grep -q model_type <&5 || fail "a file that was open cannot be read after umount --lazy"
! ended "$daemon" || fail "umount --lazy ended the daemon of an open file"
exec 5<&-
expect_clean_end

# Errors are counted.
mount_foreground "$ckpt"
cat "$mnt/latest/hf/config.json" >/dev/null
for file in "$ckpt"/iter_*/mp_rank_*/*.pt; do truncate -s -1 "$file"; done
cat "$mnt/latest/hf/model.safetensors" >/dev/null 2>&1 && fail "a cut source is read"
[ "$(value errors)" -ge 1 ] || fail "errors after a cut source: $(value errors)"
# One that does not answer is reported as such, in time.
kill -s STOP "$daemon"
began=$SECONDS
says "a stopped mount" 1 "does not answer"
says "a stopped mount, as JSON" 1 '"state": "silent"' --json
[ $((SECONDS - began)) -lt 20 ] || fail "a stopped mount: an answer after $((SECONDS - began)) s"
kill -s CONT "$daemon"
says "a mount that goes on" 0 "since"
# Dead.
exec 5<"$mnt"
kill -s KILL "$daemon"
wait_until "it is dead" ended "$daemon"
wait "$daemon" 2>/dev/null
daemon=
says "a dead mount" 1 "dead: its process has ended"
says "a dead mount, as JSON" 1 '"state": "dead"' --json
"$MCOREFS" mounts >/dev/null && fail "mounts ends with 0 beside a dead one"
"$MCOREFS" umount "$mnt/" || fail "umount of a dead mount"
not_mounted || fail "umount has left a dead mount"
exec 5<&-

# Covered by another, and a name that mountinfo writes in its own way.
place="$work/a place\\with"$'\t'signs
mkdir "$place"
"$MCOREFS" "$other" "$place" 2>/dev/null || fail "a place with signs"
"$MCOREFS" mounts --json "$place" | grep -q '"state": "serves"' || fail "mounts of a place with signs"
if is_root && mount -t tmpfs none "$place" 2>/dev/null; then
	"$MCOREFS" mounts "$place" | grep -q 'another mount lies over it' || fail "a covered mount"
	umount "$place"
fi
"$MCOREFS" umount "$place" || fail "umount of a place with signs"
! grep -q " $work/a" /proc/self/mounts || fail "umount has left a place with signs"

# Of other users.
why=$(why_nobody_cannot_mount)
[ -z "$why" ] || skip "all but other users: $why"
chown nobody "$mnt"
as_nobody "$MCOREFS" "$other" "$mnt" 2>/dev/null || fail "a user cannot mount"
same "who owns the mount" "$(as_nobody "$MCOREFS" mounts "$mnt" --json | grep -c '"state": "serves"')" 1
says "a user's mount, to root" 0 "another user's"
as_nobody "$MCOREFS" umount "$mnt" || fail "a user cannot unmount"
not_mounted || fail "a user's umount has left it"
mount_source "$other" -o allow_other 2>/dev/null
as_nobody "$MCOREFS" mounts "$mnt" | grep -q 'since 20' || fail "a mount with allow_other says nothing to others"
refused "a user's umount of root's" 3 "another user's" as_nobody "$MCOREFS" umount "$mnt"
unmount
