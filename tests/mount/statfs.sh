#!/bin/bash
# df, /proc/mounts, extended attributes.
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/mixtral-torch-*)
mount_source "$source"

line=$(grep " $mnt " /proc/self/mounts)
same "device" "$(cut -d' ' -f1 <<<"$line")" "$source"
same "type" "$(cut -d' ' -f3 <<<"$line")" fuse.mcorefs
# coreutils before 9.2 knows only one name for both kinds of FUSE.
case $(stat -f -c %T "$mnt") in fuse | fuseblk) ;; *) fail "type by stat" ;; esac

ls "$mnt/latest/hf" >/dev/null
shown=$(find "$mnt" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
read -r blocks free available namelen files free_files < <(stat -f -c '%b %f %a %l %c %d' "$mnt")
size=$(stat -f -c %S "$mnt")
same "used blocks" "$((blocks - free))" "$(((shown + size - 1) / size))"
[ "$available" -gt 0 ] && [ "$free" = "$available" ] || fail "no blocks are free: $free $available"
same "name length" "$namelen" 255
same "used files" "$((files - free_files))" "$(find "$mnt" -type f | wc -l)"
df "$mnt" | tail -1 | grep -q '100%' && fail "df says that it is full"
findmnt -n -o FSTYPE "$mnt" | grep -qx fuse.mcorefs || fail "findmnt"

# None, and no noise: an empty list is what getfattr -d, cp -a and rsync -X are silent about.
[ -x "$BIN/xattrs" ] || fail "$BIN/xattrs is not built"
# attributes PATTERN PATH: what the calls answer, as one line.
attributes() {
	local found
	found=$("$BIN/xattrs" "$2" | xargs)
	# shellcheck disable=SC2053
	[[ $found == $1 ]] || fail "extended attributes of $2: expected '$1', found '$found'"
}
for path in latest latest/hf latest/hf/config.json; do
	# The kernel knows without asking that a link has none of a user's.
	attributes "list 0 list-size 0 get E* get-acl E* set EROFS remove EROFS" "$mnt/$path"
done
attributes "list 0 list-size 0 get EOPNOTSUPP get-acl E* set EROFS remove EROFS" "$mnt/latest/hf/config.json"
if command -v getfattr >/dev/null; then
	same "getfattr" "$(getfattr -R -d -m - "$mnt/latest/hf" 2>&1)" ""
fi
unmount

mount_source "$FIXTURES/data/tales_text_document" -o "dataset_cache=$work/cache"
hf=$mnt/data/tales_text_document/hf
echo mine >"$hf/cache-1"
attributes "list 0 list-size 0 get EOPNOTSUPP get-acl E* set EOPNOTSUPP remove EOPNOTSUPP" "$hf/cache-1"
attributes "list 0 list-size 0 get EOPNOTSUPP get-acl E* set EROFS remove EROFS" "$hf/state.json"
unmount

mount_source "$source" -o 'fsname=a\,b'
same "another device" "$(grep " $mnt " /proc/self/mounts | cut -d' ' -f1)" a,b
unmount

# What is free is what is free where SOURCE lies; nobody else writes there now.
is_root || exit 0
mkdir "$work/disk"
mount -t tmpfs -o size=64m,nr_inodes=1000 tmpfs "$work/disk" || exit 0
cp -a "$source" "$work/disk/ckpt"
mount_source "$work/disk/ckpt"
free_of() {
	stat -f -c '%a %S %d' "$1" | awk '{ print $1 * $2, $3 }'
}
same "free space of a small source" "$(free_of "$mnt")" "$(free_of "$work/disk")"
head -c 1M /dev/zero >"$work/disk/more"
same "free space of a source that has less of it" "$(free_of "$mnt")" "$(free_of "$work/disk")"
