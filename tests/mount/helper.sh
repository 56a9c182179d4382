#!/bin/bash
# The mount helper in each form that mount(8), systemd and people call it in: what it takes, what it passes over, and
# the exit statuses of mount(8).
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/gpt2-*)
mkdir "$work/sbin"
cp mount-helpers/mount.mcorefs "$work/sbin"
ln -s mount.mcorefs "$work/sbin/mount.fuse.mcorefs"
cp "$MCOREFS" "$work/sbin/mcorefs"
PATH=$work/sbin:$PATH
helper=$work/sbin/mount.mcorefs

# mounts TEXT COMMAND...: it ends with 0, and there is something to read.
mounts() {
	"${@:2}" 2>"$log" || fail "$1: exit status $?"
	[ -s "$mnt/latest/hf/config.json" ] || fail "$1: nothing to read"
	unmount
}

# ---- the helper alone ----

mounts "options behind" "$helper" "$source" "$mnt" -o rw,vocab_size=1000
mounts "options in front" "$helper" -o ro -n -v "$source" "$mnt"
mounts "options between" "$helper" "$source" -nvo rw "$mnt" -t fuse.mcorefs
mounts "words behind --" "$helper" -n -- "$source" "$mnt"
mounts "what others are meant by" "$helper" "$source" "$mnt" -o \
	rw,nosuid,nodev,noexec,noatime,relatime,_netdev,nofail,user=me,users,nouser,auto,noauto,x-systemd.requires=a,X-b,defaults,comment=c
mounts "-s with options that nobody knows" "$helper" "$source" "$mnt" -s -o frobnicate,rw,soft=1,vocab_size=1000
mounts "-s behind the options" "$helper" "$source" "$mnt" -o frobnicate -s
"$helper" "$source" "$mnt" -o rw,vocab_size=1000 -o shard_size=100KiB || fail "two lists of options"
grep -q '"vocab_size": 1000' "$mnt/latest/hf/config.json" || fail "the first list does not count"
[ -e "$mnt/latest/hf/model.safetensors.index.json" ] || fail "the second list does not count"
unmount

refused "an unknown option" 1 "unknown option '-o frobnicate'" "$helper" "$source" "$mnt" -o rw,frobnicate
refused "an unknown option of mount -f" 1 "unknown option '-o frobnicate'" "$helper" "$source" "$mnt" -f -o frobnicate
refused "a wrong value under -s" 1 "vocab_size" "$helper" "$source" "$mnt" -s -o vocab_size=many
refused "an unknown letter" 1 "unknown option '-x'" "$helper" "$source" "$mnt" -x
refused "a list that is not there" 1 "option '-o' needs a value" "$helper" "$source" "$mnt" -o
refused "no MOUNTPOINT" 1 "MOUNTPOINT is missing" "$helper" "$source" -o ro
refused "no SOURCE" 1 "SOURCE is missing" "$helper"
refused "too many words" 1 "one argument too many: 'more'" "$helper" "$source" "$mnt" more
refused "no such SOURCE" 32 "No such file" "$helper" "$work/none" "$mnt" -o rw
refused "a SOURCE that is no checkpoint" 32 "no Megatron checkpoint" "$helper" "$work/sbin" "$mnt" -o rw
refused "a value that only the mount itself refuses" 32 "cannot mount" "$helper" "$source" "$mnt" -o vocab_size=1000,context=bogus
refused "no such MOUNTPOINT" 32 "No such file" "$helper" "$source" "$work/none" -o rw
refused "no program" 1 "there is no program mcorefs" env PATH=/usr/bin:/bin MCOREFS= "$(realpath mount-helpers/mount.mcorefs)" "$source" "$mnt"
"$helper" "$source" "$mnt" -f -v -o $'rw,nofail\r' >"$work/fake" || fail "a fake mount"
grep -q 'nothing was mounted' "$work/fake" || fail "a fake mount says nothing"
not_mounted || fail "a fake mount is a mount"

# Names with commas and blanks; and a value that looks like an option after an escaped comma.
odd="$work/a source,rw, with signs"
cp -a "$source" "$odd"
mounts "a source with signs" "$helper" "$odd" "$mnt" -o rw
cp -a "$FIXTURES/data/tales_text_document.bin" "$work/rw,x.bin"
cp -a "$FIXTURES/data/tales_text_document.idx" "$work/rw,x.idx"
"$helper" "$source" "$mnt" -o "rw,data=$work/rw\\,x,nofail" || fail "an escaped comma"
same "a dataset with a comma in its name" "$(ls "$mnt/data")" "rw,x"
# What was started by the helper ends as others do.
kill -s TERM $(pgrep -f "mount-helper $source $mnt")
wait_until "SIGTERM has ended it" not_mounted

# Killed while a reader holds a file: the helper mounts again, the reader keeps his dead file, and it may be done twice.
for round in first second; do
	"$helper" "$source" "$mnt" -o rw || fail "$round round: mount"
	exec 5<"$mnt/latest/hf/config.json"
	kill -s KILL $(pgrep -f "mount-helper $source $mnt")
	dead() { stat -f "$mnt" 2>&1 | grep -qE 'not connected|aborted'; }
	wait_until "$round round: it is dead" dead
	"$helper" "$source" "$mnt" -n -o rw 2>"$log" || fail "$round round: mount over a dead one with an open file"
	cat <&5 >/dev/null 2>&1 && fail "$round round: a file of a dead mount is read"
	[ -s "$mnt/latest/hf/config.json" ] || fail "$round round: nothing to read"
	same "$round round: mounts" "$(grep -c " $mnt fuse" /proc/self/mounts)" 1
	exec 5<&-
	unmount
done

# ---- mount(8) itself ----

is_root || skip "all but mount(8) itself: needs root"
if [ -z "${MCOREFS_TEST_NAMESPACE-}" ] || ! mount -t overlay -o "lowerdir=$work/sbin:/sbin" overlay /sbin 2>/dev/null; then
	skip "all but mount(8) itself: no overlay over /sbin here"
fi
for type in mcorefs fuse.mcorefs; do
	mounts "mount -t $type" mount -t $type "$source" "$mnt"
	mounts "mount -t $type, all options of fstab" mount -n -v -t $type -o \
		ro,_netdev,nofail,noauto,user,x-systemd.automount,x-foo=1,nosuid,comment=zz,allow_other "$source" "$mnt"
	mounts "mount -t $type -s" mount -s -t $type -o rw,frobnicate "$source" "$mnt"
	mount -f -t $type "$source" "$mnt" || fail "mount -f -t $type"
	not_mounted || fail "mount -f -t $type is a mount"
	mount -t $type -o frobnicate "$source" "$mnt" 2>"$log"
	same "mount -t $type of an unknown option: exit status" $? 1
	mount -t $type "$work/none" "$mnt" 2>"$log"
	same "mount -t $type of nothing: exit status" $? 32
done

# fstab: blanks and commas, all of it at once, one that fails next to one that does not.
mkdir "$work/second" "$work/third"
cat >"$work/fstab" <<END
$(sed 's/ /\\040/g' <<<"$odd") $mnt mcorefs nofail,allow_other,x-systemd.mount-timeout=9 0 0
$source $work/second fuse.mcorefs ro,_netdev,nofail 0 0
$source $work/third mcorefs noauto 0 0
END
mount -a -T "$work/fstab" || fail "mount -a: exit status $?"
for place in "$mnt" "$work/second"; do
	[ -s "$place/latest/hf/config.json" ] || fail "mount -a: nothing to read in $place"
done
! mountpoint -q "$work/third" || fail "mount -a has mounted what is noauto"
mount -a -T "$work/fstab" || fail "mount -a again: exit status $?"
same "mounts after mount -a again" "$(grep -c " $work/[^ ]* fuse.mcorefs " /proc/self/mounts)" 2
umount "$work/second"
unmount
echo "$work/none $work/third mcorefs ro 0 0" >>"$work/fstab"
mount -a -T "$work/fstab" 2>"$log"
same "mount -a, one of which cannot be: exit status" $? 64
umount "$work/second" "$mnt"

# In another namespace of mounts, which this one does not see.
unshare --mount --propagation private sleep 60 &
other=$! daemon=$!
elsewhere() { [ "$(readlink "/proc/$other/ns/mnt" 2>/dev/null)" != "$(readlink /proc/self/ns/mnt)" ]; }
wait_until "there is another namespace" elsewhere
mount -N "/proc/$other/ns/mnt" -t mcorefs "$source" "$mnt" 2>"$log" || fail "mount -N: exit status $?"
not_mounted || fail "mount -N has mounted here"
grep -q " $mnt fuse.mcorefs ro," "/proc/$other/mounts" || fail "mount -N has not mounted there"
nsenter --mount="/proc/$other/ns/mnt" cat "$mnt/latest/hf/config.json" >"$work/config.json" || fail "mount -N: nothing to read there"
[ -s "$work/config.json" ] || fail "mount -N: nothing to read there"
nsenter --mount="/proc/$other/ns/mnt" umount "$mnt" || fail "umount in the other namespace"
kill "$other"
wait "$other" 2>/dev/null
daemon=
refused "a namespace that is none" 32 "cannot enter the namespace" "$helper" "$source" "$mnt" -N "$work/config.json"
