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
read -r blocks free available namelen files < <(stat -f -c '%b %f %a %l %c' "$mnt")
size=$(stat -f -c %S "$mnt")
same "blocks" "$blocks" "$(((shown + size - 1) / size))"
same "free blocks" "$free $available" "0 0"
same "name length" "$namelen" 255
same "files" "$files" "$(find "$mnt" -type f | wc -l)"
df "$mnt" | tail -1 | grep -q '100%' || fail "df does not say that it is full"
findmnt -n -o FSTYPE "$mnt" | grep -qx fuse.mcorefs || fail "findmnt"

if command -v getfattr >/dev/null; then
	same "extended attributes" "$(getfattr -d "$mnt/latest/hf/config.json" 2>&1)" ""
fi
unmount

mount_source "$source" -o 'fsname=a\,b'
same "another device" "$(grep " $mnt " /proc/self/mounts | cut -d' ' -f1)" a,b
