#!/bin/bash
# Whatever writes is refused with EROFS, and the sources stay as they are.
. "$(dirname "$0")/lib.sh"

copy_fixture weights/qwen3-torch_dist-tp4
state() {
	(cd "$ckpt" && find . -type f -exec sha256sum {} + | sort && find . -printf '%p %T@ %m\n' | sort)
}
before=$(state)
mount_source "$ckpt"
file=$mnt/latest/hf/config.json

refused_write() {
	local text=$1
	shift
	refused "$text" 1 'Read-only file system' "$@"
}
refused_write create touch "$mnt/new"
refused_write 'create in hf' touch "$mnt/latest/hf/new"
refused_write 'set times' touch "$file"
refused_write unlink rm -f "$file"
refused_write mkdir mkdir "$mnt/latest/hf/dir"
refused_write rmdir rmdir "$mnt/latest/hf"
refused_write rename mv "$file" "$mnt/latest/hf/other"
refused_write symlink ln -s x "$mnt/link"
refused_write link ln "$file" "$mnt/latest/hf/link"
refused_write chmod chmod 600 "$file"
refused_write chown chown 0:0 "$file"
refused_write truncate truncate -s 0 "$file"
refused_write write dd if=/dev/zero of="$file" bs=1 count=1 conv=notrunc status=none
refused_write mknod mknod "$mnt/pipe" p

same "mount options" "$(awk -v m="$mnt" '$2 == m { split($4, o, ","); print o[1] }' /proc/self/mounts)" ro
cat "$mnt"/latest/hf/* >/dev/null || fail "reading"
same "sources after reading" "$(state)" "$before"
