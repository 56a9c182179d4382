#!/bin/bash
# Who may read: the mounting user alone, or with allow_other those whom the sources' permissions let in.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

is_root || skip "needs root, to be several users"
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
as_nobody true 2>/dev/null || skip "setpriv cannot become nobody"
as_nobody test -x "$work" || skip "nobody cannot enter $work"

copy_fixture weights/qwen3-torch_dist-tp4
file=$mnt/latest/hf/config.json

mount_source "$ckpt"
as_nobody cat "$file" >/dev/null 2>&1 && fail "another user reads without allow_other"
unmount

mount_source "$ckpt" -o allow_other
as_nobody cat "$file" >/dev/null || fail "another user cannot read with allow_other"
same "owner" "$(stat -c %u:%g "$file")" "$(stat -c %u:%g "$ckpt")"
unmount

# A source that others may not read is not shown to them.
chown -R 12345:54321 "$ckpt"
chmod -R o-rwx "$ckpt"
mount_source "$ckpt" -o allow_other
same "owner of the sources" "$(stat -c %u:%g "$file")" 12345:54321
same "mode of a file" "$(stat -c %a "$file")" 440
same "mode of a directory" "$(stat -L -c %a "$mnt/latest")" 550
as_nobody cat "$file" >/dev/null 2>&1 && fail "another user reads what the sources do not let him"
setpriv --reuid=12345 --regid=54321 --clear-groups cat "$file" >/dev/null || fail "the owner cannot read"
unmount

# A user's own mount, by fusermount3.
why=$(why_nobody_cannot_mount)
[ -z "$why" ] || skip "all but mounts of users: $why"
copy_fixture weights/qwen3-torch_dist-tp4
chown nobody "$mnt"
as_nobody "$MCOREFS" "$ckpt" "$mnt" || fail "a user cannot mount"
as_nobody cat "$file" >/dev/null || fail "a user cannot read his mount"
cat "$file" >/dev/null 2>&1 && fail "root reads a user's mount without allow_other"
if ! grep -qs '^[[:space:]]*user_allow_other' /etc/fuse.conf; then
	refused "allow_other of a user" 3 'allow_other|cannot mount' as_nobody "$MCOREFS" "$ckpt" "$mnt" -o allow_other
fi
as_nobody fusermount3 -u "$mnt" || fail "a user cannot unmount"
