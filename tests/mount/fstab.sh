#!/bin/bash
# mount(8): `mount -t mcorefs`, options as fstab has them, and what a failure looks like.

# mount(8) looks for helpers in /sbin alone. Ours is laid over it where only this test can see it.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

is_root || skip "needs root, for mount(8)"
source=$(echo "$FIXTURES"/weights/gpt2-*)
helper=$work/sbin/mount.mcorefs
mkdir "$work/sbin"
cp mount-helpers/mount.mcorefs "$work/sbin"
ln -s mount.mcorefs "$work/sbin/mount.fuse.mcorefs"
cp "$MCOREFS" "$work/sbin/mcorefs"
PATH=$work/sbin:$PATH

# The helper alone, as mount(8) calls it.
"$helper" "$source" "$mnt" -o rw,noauto,_netdev,shard_size=1GB -v || fail "mount.mcorefs"
mounted || fail "mount.mcorefs has mounted nothing"
unmount
"$helper" "$source" "$mnt" -f -o ro || fail "mount.mcorefs -f"
not_mounted || fail "a fake mount is a mount"
refused "mount.mcorefs without SOURCE" 32 'No such file' "$helper" "$work/none" "$mnt" -o rw
refused "mount.mcorefs with a wrong option" 1 frobnicate "$helper" "$source" "$mnt" -o frobnicate

if [ -z "${MCOREFS_TEST_NAMESPACE-}" ] || ! mount -t overlay -o "lowerdir=$work/sbin:/sbin" overlay /sbin 2>/dev/null; then
	skip "the helper works; mount(8) itself is not tested: no overlay over /sbin here"
fi

mount -t mcorefs "$source" "$mnt" || fail "mount -t mcorefs"
grep -q " $mnt fuse.mcorefs ro," /proc/self/mounts || fail "type and options after mount -t mcorefs"
[ -s "$mnt/latest/hf/config.json" ] || fail "nothing to read after mount -t mcorefs"
unmount

mount -t fuse.mcorefs "$source" "$mnt" || fail "mount -t fuse.mcorefs"
grep -q " $mnt fuse.mcorefs ro," /proc/self/mounts || fail "type and options after mount -t fuse.mcorefs"
# What findmnt says of a mount makes the same mount.
read -r said_source said_type said_options < <(findmnt -n -o SOURCE,FSTYPE,OPTIONS "$mnt")
unmount
mount -t "$said_type" "$said_source" "$mnt" -o "$said_options" || fail "mount of what findmnt says: $said_type $said_options"
[ -s "$mnt/latest/hf/config.json" ] || fail "nothing to read after a mount of what findmnt says"
same "what findmnt says again" "$(findmnt -n -o SOURCE,FSTYPE,OPTIONS "$mnt" | xargs)" "$said_source $said_type $said_options"
unmount

echo "$source $mnt mcorefs ro,nofail,x-systemd.automount,allow_other,vocab_size=1000 0 0" >"$work/fstab"
mount --fstab "$work/fstab" "$mnt" || fail "mount by fstab"
grep -q '"vocab_size": 1000' "$mnt/latest/hf/config.json" || fail "vocab_size of fstab does not count"
unmount

options=nofail,split=90/8/2,data_path=0.7\\040tales_text_document\\0400.3\\040notes_text_document,dataset_cache=$work/cache
echo "$FIXTURES/data $mnt mcorefs $options 0 0" >"$work/fstab"
mount --fstab "$work/fstab" "$mnt" || fail "mount of datasets by fstab"
same "datasets" "$(ls "$mnt/data" | xargs)" "blend notes_text_document tales_text_document"
touch "$mnt/data/tales_text_document/hf/train/cache-1" || fail "dataset_cache of fstab does not count"
unmount
mount --fstab "$work/fstab" -o ro "$mnt" || fail "mount -o ro of datasets"
touch "$mnt/data/tales_text_document/hf/train/cache-1" 2>/dev/null && fail "mount -o ro can be written"
unmount

mount -t mcorefs "$work/none" "$mnt" 2>"$log" && fail "mount -t mcorefs of nothing"
grep -q 'No such file' "$log" || fail "mount -t mcorefs of nothing does not say why"
true
