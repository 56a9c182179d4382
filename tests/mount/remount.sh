#!/bin/bash
# mount -o remount: what is in force already is accepted, ro is put in force, and all else is refused by name.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/llama-torch_dist-*)
remount() {
	"$MCOREFS" "$source" "$mnt" -o "remount,$1" 2>>"$log"
}
unchanged() {
	refused "remount $1" 3 "cannot remount $mnt: $2" "$MCOREFS" "${3-$source}" "$mnt" -o "remount,$1"
}
flags() {
	awk -v m="$mnt" '$2 == m { print $4 }' /proc/self/mounts
}

refused "remount of a directory" 3 "cannot remount $mnt: .* is not a mount point" "$MCOREFS" "$source" "$mnt" -o remount
mount_foreground "$source" -o "vocab_size=1000,data=$FIXTURES/data/notes_text_document,data=$FIXTURES/data/tales_text_document,spec=te"
before=$(flags)
for options in ro vocab_size=1000 "spec=te,ro,vocab_size=1000" "data=$FIXTURES/data/tales_text_document,nofail,x-a=b" \
	"data=$FIXTURES/data/notes_text_document" "$before" noatime; do
	remount "$options" || fail "remount with $options, which is in force"
	same "flags after remount with $options" "$(flags)" "$before"
done
(cd "$FIXTURES/data" && remount data=tales_text_document) || fail "remount with a relative path"
unchanged vocab_size=7 "option 'vocab_size=7' is not in force, but vocab_size=1000: unmount it and mount it again"
unchanged "vocab_size=1000,spec=local" "option 'spec=local' is not in force, but spec=te"
unchanged no_optim "option 'no_optim' is not in force: "
unchanged "data=$FIXTURES/data" "option 'data=$FIXTURES/data' is not in force"
unchanged suid "option 'suid' is not in force"
unchanged allow_other "option 'allow_other' is not in force"
unchanged rw "option 'rw' is refused"
unchanged ro ".* is mounted there, not $work" "$work"
same "flags after what was refused" "$(flags)" "$before"
grep -q '"vocab_size": 1000' "$mnt/latest/hf/config.json" || fail "the mount no longer serves"
kill -s KILL "$daemon"
wait_until "the daemon is dead" ended "$daemon"
unchanged ro 'its process has ended'
wait "$daemon" 2>/dev/null
daemon=
umount "$mnt" 2>/dev/null || fusermount3 -u "$mnt"

# More than a page of options; files that are written, until they are not.
is_root || skip "all but what changes flags: needs root"
long=()
for i in $(seq 40); do
	dir=$work/a-long-name-for-a-directory-of-datasets-so-that-the-list-of-all-is-longer-than-a-page-$i
	mkdir "$dir"
	cp "$FIXTURES/data/notes_text_document.bin" "$dir/n$i.bin"
	cp "$FIXTURES/data/notes_text_document.idx" "$dir/n$i.idx"
	long+=(-o "data=$dir")
done
mount_source "$source" "${long[@]}" -o "dataset_cache=$work/cache"
hf=$mnt/data/n40/hf
before=$(flags)
[[ $before == rw,* ]] || fail "flags with dataset_cache: $before"
"$MCOREFS" "$source" "$mnt" "${long[@]}" -o "remount,rw,dataset_cache=$work/cache" || fail "remount with a long list"
echo mine >"$hf/cache-1" || fail "create"
remount ro || fail "remount,ro"
same "flags after remount,ro" "$(flags)" "ro,${before#rw,}"
refused "create after remount,ro" 1 'Read-only file system' touch "$hf/cache-2"
remount noexec || fail "remount,noexec"
[[ $(flags) == ro,*noexec* ]] || fail "flags after remount,noexec: $(flags)"
unchanged exec "option 'exec' is not in force"
remount rw || fail "remount,rw of what dataset_cache made writable"
[[ $(flags) == rw,*noexec* ]] || fail "flags after remount,rw: $(flags)"
touch "$hf/cache-2" || fail "create after remount,rw"
# An open file that is written keeps it from being read-only.
exec 5>"$hf/cache-3"
unchanged ro 'Device or resource busy'
exec 5>&-
unmount

# What it was mounted with is not for other users.
why=$(why_nobody_cannot_mount)
if [ -z "$why" ]; then
	mount_source "$source" -o allow_other
	refused "remount by another user" 3 'does not say what it was mounted with: Operation not permitted' \
		as_nobody "$MCOREFS" "$source" "$mnt" -o remount,ro
	unmount
fi

# mount(8) itself, which merges what the kernel says, and fstab.
mkdir "$work/sbin"
cp mount-helpers/mount.mcorefs "$work/sbin"
ln -s mount.mcorefs "$work/sbin/mount.fuse.mcorefs"
cp "$MCOREFS" "$work/sbin/mcorefs"
PATH=$work/sbin:$PATH
if [ -z "${MCOREFS_TEST_NAMESPACE-}" ] || ! mount -t overlay -o "lowerdir=$work/sbin:/sbin" overlay /sbin 2>/dev/null; then
	skip "all but mount(8) itself: no overlay over /sbin here"
fi
echo "$source $mnt mcorefs allow_other,vocab_size=1000,nofail 0 0" >"$work/fstab"
mount --fstab "$work/fstab" "$mnt" || fail "mount by fstab"
before=$(flags)
mount -o remount,ro "$mnt" || fail "mount -o remount,ro"
mount --fstab "$work/fstab" -o remount,ro "$mnt" || fail "mount -o remount,ro with fstab"
same "flags after mount -o remount" "$(flags)" "$before"
mount -o remount,vocab_size=7 "$mnt" 2>"$log" && fail "mount -o remount,vocab_size=7"
grep -q "option 'vocab_size=7' is not in force, but vocab_size=1000" "$log" || fail "mount -o remount,vocab_size=7 does not say why"
unmount
mount_source "$FIXTURES/data/tales_text_document" -o "dataset_cache=$work/cache"
mount -o remount,ro "$mnt" || fail "mount -o remount,ro with dataset_cache"
[[ $(flags) == ro,* ]] || fail "flags after mount -o remount,ro: $(flags)"
mount -o remount,rw "$mnt" || fail "mount -o remount,rw with dataset_cache"
[[ $(flags) == rw,* ]] || fail "flags after mount -o remount,rw: $(flags)"
