#!/bin/bash
# dataset_cache: what is computed of a source is no more readable than the source, on the mount and where it is kept.
. "$(dirname "$0")/lib.sh"

is_root || skip "needs root, to be several users"
alice=70001 bob=70002 team=70100
# as USER[,GROUP] COMMAND...
as() {
	local user=${1%%,*} groups=--clear-groups
	[ "$1" = "$user" ] || groups=--groups=${1#*,}
	setpriv --reuid="$user" --regid="$user" "$groups" "${@:2}"
}
as $bob true 2>/dev/null || skip "setpriv cannot become another user"
as $bob test -x "$work" || skip "another user cannot enter $work"

mkdir "$work/source"
cp "$FIXTURES"/data/tales_text_document.* "$FIXTURES"/data/notes_text_document.* "$work/source"
private=$work/source/tales_text_document
chown $alice:$team "$private".*
chmod 640 "$private".*
chmod 644 "$work/source"/notes*
cache=$work/cache
mkdir -m 1777 "$cache"
hf=$mnt/data/tales_text_document/hf
open=$mnt/data/notes_text_document/hf
kept=$cache/tales_text_document

mount_source "$work/source" -o allow_other,dataset_cache="$cache",data_path="tales_text_document notes_text_document"
blend=$mnt/data/blend/samples/train-s128-n200
as $alice test -d "$blend" || fail "there is no blend"
! as $bob ls "$blend" >/dev/null 2>&1 || fail "another user lists a blend with a dataset that he cannot read"
same "a directory of the mount" "$(stat -c '%a %u %g' "$hf")" "1770 $alice $team"
as $alice sh -c "umask 022; echo mine >$hf/cache-1.arrow" || fail "the owner cannot write"
same "a file" "$(stat -c %a "$hf/cache-1.arrow")" 600
same "a file, as stored" "$(stat -c '%a %u' "$kept/hf/cache-1.arrow")" "600 $alice"
same "its directories, as stored" "$(stat -c %a "$kept" "$kept/hf" | sort -u)" 1700
as $alice chmod 644 "$hf/cache-1.arrow" || fail "chmod"
same "a file after chmod" "$(stat -c %a "$kept/hf/cache-1.arrow")" 600
chown $alice:$team "$hf/cache-1.arrow" && chmod 664 "$hf/cache-1.arrow" || fail "chown"
same "a file of the source's group" "$(stat -c %a "$kept/hf/cache-1.arrow")" 660
for user in $bob 70003; do
	! as $user cat "$hf/cache-1.arrow" >/dev/null 2>&1 || fail "$user reads a cache whose source he cannot read"
	! as $user cat "$kept/hf/cache-1.arrow" >/dev/null 2>&1 || fail "$user reads a cache where it is kept"
	! as $user ls "$hf" >/dev/null 2>&1 || fail "$user lists a dataset that he cannot read"
	! as $user touch "$hf/cache-2.arrow" 2>/dev/null || fail "$user writes beside a dataset that he cannot read"
done
as $bob,$team cat "$hf/cache-1.arrow" >/dev/null || fail "a member of the group cannot read"
as $bob,$team touch "$hf/cache-2.arrow" || fail "a member of the group cannot write"

# What lies there from before is shown no wider, and what all may read stays as it was.
echo old >"$kept/hf/cache-3.arrow"
chown $bob "$kept/hf/cache-3.arrow"
chmod 644 "$kept/hf/cache-3.arrow"
same "a file from before" "$(stat -c %a "$hf/cache-3.arrow")" 600
same "a directory of an open source" "$(stat -c %a "$open")" 1777
as $bob sh -c "umask 022; echo all >$open/cache-1.arrow" || fail "beside an open source"
same "a file of an open source" "$(stat -c %a "$open/cache-1.arrow")" 644
as 70003 cat "$open/cache-1.arrow" >/dev/null || fail "another user cannot read a cache of an open source"

# A chmod at the source counts for caches, too.
chmod 600 "$work/source"/notes*
closed() { ! as 70003 cat "$open/cache-1.arrow" >/dev/null 2>&1; }
wait_until "the cache of a source that was closed is closed" closed
unmount
