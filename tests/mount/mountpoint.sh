#!/bin/bash
# What may be mounted over: a mount whose daemon was killed is taken away, one that serves is not covered.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/gpt2-*)
other=$(echo "$FIXTURES"/weights/llama-torch_dist-*)
slash=
mounts() {
	grep -c " $mnt fuse" /proc/self/mounts
}

# At once: the kernel still answers stat() of the dead mount from what it has kept. A shell that completes names adds a
# slash.
for round in first second; do
	mount_foreground "$source"
	kill -s KILL "$daemon"
	stat "$mnt" >/dev/null 2>&1
	"$MCOREFS" "$other" "$mnt$slash" 2>>"$log" || fail "$round round: over a mount whose daemon was killed: status $?"
	wait "$daemon" 2>/dev/null
	daemon=
	same "$round round: mounts" "$(mounts)" 1
	grep -q '"model_type": "llama"' "$mnt/latest/hf/config.json" || fail "$round round: another checkpoint is shown"
	slash=/
	[ "$round" = second ] || unmount
done
grep -q "$mnt: a dead mount was removed" "$log" || fail "nothing is said of the dead mount"

# A mount that serves, named as it is and by a link.
ln -s "$mnt" "$work/link"
for place in "$mnt" "$work/link" "$work/./mnt"; do
	refused "a second mount on $place" 3 "cannot mount on $place: mcorefs has mounted $other there: umount it first" \
		"$MCOREFS" "$source" "$place"
done
refused "a second mount in the foreground" 3 "mcorefs has mounted $other there" "$MCOREFS" "$source" "$mnt" -f
same "mounts" "$(mounts)" 1
grep -q '"model_type": "llama"' "$mnt/latest/hf/config.json" || fail "the first mount no longer serves"
unmount

# Names that mountinfo writes in its own way; a file system of others is covered, as mount(8) does it.
place="$work/a place\\with"$'\t'signs
mkdir "$place"
"$MCOREFS" "$source" "$place" || fail "a place with signs"
refused "a second mount on a place with signs" 3 "mcorefs has mounted $source there" "$MCOREFS" "$other" "$place"
umount "$place" 2>/dev/null || fusermount3 -u "$place" || fail "umount of a place with signs"
if is_root && mount -t tmpfs none "$mnt" 2>/dev/null; then
	"$MCOREFS" "$source" "$mnt" || fail "over another file system"
	[ -s "$mnt/latest/hf/config.json" ] || fail "over another file system: nothing to read"
	unmount
	same "what was there before" "$(stat -f -c %T "$mnt")" tmpfs
	umount "$mnt"
fi

# A user's own: fusermount3 takes his dead mount away. Somebody else's, dead or not, is not his.
why=$(why_nobody_cannot_mount)
[ -z "$why" ] || skip "all but mounts of users: $why"
chown nobody "$mnt"
before=$(announcements)
setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups "$MCOREFS" "$source" "$mnt" -f 2>>"$log" &
daemon=$!
wait_until "a user's mount stands" announced_or_ended "$before"
refused "a second mount by root" 3 "mcorefs has mounted $source there" "$MCOREFS" "$other" "$mnt"
kill -s KILL "$daemon"
as_nobody "$MCOREFS" "$other" "$mnt" 2>>"$log" || fail "a user over his dead mount: status $?"
wait "$daemon" 2>/dev/null
daemon=
same "mounts" "$(mounts)" 1
as_nobody grep -q '"model_type": "llama"' "$mnt/latest/hf/config.json" || fail "a user's second mount"
as_nobody fusermount3 -u "$mnt" || fail "a user cannot unmount"
mount_foreground "$source" -o allow_other # without it the kernel does not tell him that it is dead
kill -s KILL "$daemon"
refused "a user over root's dead mount" 3 'a dead mount cannot be removed' as_nobody "$MCOREFS" "$other" "$mnt"
wait "$daemon" 2>/dev/null
daemon=
