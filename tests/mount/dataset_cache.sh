#!/bin/bash
# -o dataset_cache=DIR: cache-* and tmp* files next to a dataset are kept in DIR, and nothing else is written anywhere.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"
[ -x "$BIN/cache_writer" ] && [ -x "$BIN/reader" ] || fail "$BIN/cache_writer or $BIN/reader is not built"

copy_fixture data
source=$ckpt
cache=$work/cache
tales=$mnt/data/tales_text_document
hf=$tales/hf
samples=samples/train-s128-n226

state() {
	(cd "$source" && find . -type f -exec sha256sum {} + | sort && find . -printf '%p %T@ %m\n' | sort)
}
before=$(state)

read_only() {
	local text=$1
	shift
	refused "$text" 1 'Read-only file system' "$@"
}

# everything_else DIRECTORY: what is refused in one that may take files of the cache, or not.
everything_else() {
	local dir=$1 file
	file=$(find "$dir" -maxdepth 1 -type f ! -name 'cache-*' ! -name 'tmp*' | head -n 1)
	for name in new state.json2 tmp cache .tmp1 data-1.arrow; do
		read_only "$dir: create $name" touch "$dir/$name"
	done
	read_only "$dir: mkdir" mkdir "$dir/cache-dir"
	[ "$dir" = "$mnt" ] || read_only "$dir: rmdir" rmdir "$dir"
	read_only "$dir: symlink" ln -s x "$dir/cache-link"
	read_only "$dir: mknod" mknod "$dir/cache-pipe" p
	read_only "$dir: chmod of a directory" chmod 700 "$dir"
	[ -n "$file" ] || return
	[ ! -w "$file" ] || fail "$file: access(2) says that it can be written"
	read_only "$file: write" dd if=/dev/zero of="$file" bs=1 count=1 conv=notrunc status=none
	read_only "$file: truncate" truncate -s 0 "$file"
	read_only "$file: open and truncate" dd if=/dev/null of="$file" status=none
	read_only "$file: set times" touch "$file"
	read_only "$file: chmod" chmod 600 "$file"
	read_only "$file: chown" chown 1:1 "$file"
	read_only "$file: unlink" rm -f "$file"
	read_only "$file: rename" mv "$file" "$dir/cache-moved"
	read_only "$file: link" ln "$file" "$dir/cache-link"
	if command -v setfattr >/dev/null; then
		read_only "$file: setxattr" setfattr -n user.x -v y "$file"
	fi
}

# Without the option all is as everywhere.
mount_source "$source"
read_only "create without the option" touch "$hf/cache-1.arrow"
read_only "mkdir without the option" mkdir "$hf/cache-1"
everything_else "$hf"
same "mount options" "$(awk -v m="$mnt" '$2 == m { split($4, o, ","); print o[1] }' /proc/self/mounts)" ro
unmount

mount_foreground "$source" -o dataset_cache="$cache"
same "mode of DIR" "$(stat -c %a "$cache")" 700
same "what lies in DIR" "$(ls "$cache")" ""
listing=$(ls "$hf")

# What `datasets` does, step by step.
(umask 077 && printf 'an arrow' >"$hf/tmp0123abcd") || fail "create"
same "mode of a new file" "$(stat -c %a "$hf/tmp0123abcd")" 600
mv -n "$hf/tmp0123abcd" "$hf/cache-1.arrow" || fail "rename"
chmod 644 "$hf/cache-1.arrow" || fail "chmod"
same "the file, as stored" "$(stat -c '%a %s' "$cache/tales_text_document/hf/cache-1.arrow")" "644 8"
same "its bytes" "$(cat "$hf/cache-1.arrow")" "an arrow"
same "the listing" "$(ls "$hf")" "$(printf 'cache-1.arrow\n%s' "$listing")"
same "the old name" "$(ls "$hf"/tmp* 2>/dev/null)" ""
same "the other dataset" "$(ls "$mnt/data/notes_text_document/hf"/cache-* 2>/dev/null)" ""
same "inode numbers" "$(find "$hf" -printf '%i\n' | sort | uniq -d)" ""
touch -d @1000 "$hf/cache-1.arrow" || fail "set times"
same "its time" "$(stat -c %Y "$cache/tales_text_document/hf/cache-1.arrow")" 1000
truncate -s 100000 "$hf/cache-1.arrow" || fail "truncate"
same "its size" "$(wc -c <"$hf/cache-1.arrow")" 100000
rm "$hf/cache-1.arrow" || fail "unlink"
same "the listing without it" "$(ls "$hf")" "$listing"

# A reader sees what a writer has written so far.
exec 3>"$hf/tmp1"
echo one >&3
same "a file that is being written" "$(cat "$hf/tmp1")" one
echo two >&3
same "the same file, later" "$(cat "$hf/tmp1" | xargs)" "one two"
exec 3>&-
rm "$hf/tmp1"

# A directory is made in DIR when it is needed, and again if it is gone.
mkdir -p "$hf" || fail "mkdir -p of what is there"
echo text >"$tales/$samples/cache-2.arrow" || fail "create beside samples"
same "the file beside samples" "$(cat "$cache/tales_text_document/$samples/cache-2.arrow")" text
rm -r "$cache/tales_text_document"
echo again >"$hf/cache-3.arrow" || fail "create after DIR was emptied"
same "a file of an emptied DIR" "$(cat "$cache/tales_text_document/hf/cache-3.arrow")" again

# Everything else stays read-only.
for dir in "$mnt" "$mnt/data" "$tales" "$tales/parquet" "$tales/npy" "$tales/jsonl" "$tales/megatron"; do
	read_only "$dir: create" touch "$dir/cache-1.arrow"
	everything_else "$dir"
done
everything_else "$hf"
# The control directory is not the tree's, and takes nothing either.
control=$mnt/.mcorefs
[ ! -w "$control" ] && [ ! -w "$control/stats" ] || fail "$control: access(2) says that it can be written"
[ -r "$control/stats" ] || fail "$control/stats cannot be read"
for name in x cache-1.arrow tmp1; do
	read_only "$control: create $name" touch "$control/$name"
done
read_only "$control: unlink" unlink "$control/stats"
read_only "$control: rename" mv "$control/stats" "$control/cache-1.arrow"
read_only "$control: rename into it" mv "$hf/cache-3.arrow" "$control/cache-3.arrow"
read_only "$control: chmod" chmod 700 "$control"
grep -q '^mcorefs_' "$control/stats" || fail "$control/stats: nothing to read"
read_only "a name of no cache" mv "$hf/cache-3.arrow" "$hf/other"
read_only "another directory" mv "$hf/cache-3.arrow" "$tales/cache-3.arrow"

# What is used is what is shown; what is free is free for the cache.
shown=$(find "$mnt" -type f ! -name 'cache-*' -printf '%s\n' | awk '{ n += $1 } END { print n }')
read -r blocks free available < <(stat -f -c '%b %f %a' "$mnt")
same "used blocks" "$((blocks - free))" "$(((shown + 4095) / 4096))"
same "free blocks" "$((available > 0 && available == free))" 1

# Many processes at once, and what they have left, from every side.
"$BIN/cache_writer" "$hf" 8 30 || fail "writers"
for file in "$hf"/cache-*.arrow; do
	"$BIN/reader" "$file" "$cache/tales_text_document/hf/${file##*/}" 4 1000 || fail "readers of $file"
done
same "temporary files that are left" "$(ls "$hf"/tmp* 2>/dev/null)" ""

# Links that somebody has put into DIR lead nowhere.
echo secret >"$work/secret"
ln -s "$work/secret" "$cache/tales_text_document/hf/cache-link"
mkdir "$work/elsewhere"
ln -s "$work/elsewhere" "$cache/notes_text_document"
mkfifo "$cache/tales_text_document/hf/tmp-pipe"
refused "read a link" 1 'symbolic links' cat "$hf/cache-link"
# shellcheck disable=SC2016
refused "write a link" 1 'symbolic links' bash -c 'exec dd of="$1" status=none <<<x' - "$hf/cache-link"
refused "read a pipe" 1 'Permission denied' cat "$hf/tmp-pipe"
refused "a directory that is a link" 1 'Not a directory' touch "$mnt/data/notes_text_document/hf/cache-1"
same "the listing with links" "$(ls "$hf" | grep -c -e link -e pipe)" 0
same "the listing above a link" "$(ls "$mnt/data/notes_text_document/hf")" "$listing"
same "what a link points to" "$(cat "$work/secret") $(ls "$work/elsewhere")" "secret "
grep -q "cache-link: a symbolic link, which is not followed" "$log" || fail "nothing is said about a link"
rm "$cache/notes_text_document" "$cache/tales_text_document/hf/tmp-pipe" "$cache/tales_text_document/hf/cache-link"

# The next mount has all of it; a second one at the same time sees what the first writes.
sums=$(cd "$hf" && sha256sum ./*)
unmount
mount_source "$source" -o rw,dataset_cache="$cache" -s
same "files after a remount" "$(cd "$hf" && sha256sum ./*)" "$sums"
mkdir "$work/second"
"$MCOREFS" "$source" "$work/second" -o dataset_cache="$cache" || fail "a second mount"
[ ! -e "$work/second/data/tales_text_document/hf/cache-4" ] || fail "a file is there too early"
echo four >"$hf/cache-4"
same "a file of the other mount" "$(cat "$work/second/data/tales_text_document/hf/cache-4")" four
echo five >"$hf/tmp5" && mv "$hf/tmp5" "$hf/cache-4"
sleep 1.1
same "a file that the other mount has replaced" "$(cat "$work/second/data/tales_text_document/hf/cache-4")" five
printf fivefive >"$hf/cache-4"
sleep 1.1
exec 3<"$work/second/data/tales_text_document/hf/cache-4"
same "an open file" "$(head -c 4 <&3)" five
printf ninenine 1<>"$hf/cache-4"
sleep 1.1
same "what the other mount has written into it meanwhile" "$(head -c 4 <&3)" nine
exec 3<&-
rm "$hf/cache-4"
umount "$work/second"
unmount

# ro: what is there is read.
mount_source "$source" -o ro,dataset_cache="$cache"
same "files of a read-only mount" "$(cd "$hf" && sha256sum ./*)" "$sums"
read_only "create with ro" touch "$hf/cache-9"
unmount
same "sources" "$(state)" "$before"

# Divided into splits, each with its own.
mount_source "$source" -o split=90/8/2,dataset_cache="$cache"
echo train >"$hf/train/cache-1" && echo test >"$hf/test/cache-1" || fail "create in a split"
same "files of splits" "$(cat "$cache"/tales_text_document/hf/*/cache-1 | xargs)" "test train"
unmount

# What cannot be DIR.
refused "DIR without its parent" 1 'No such file' "$MCOREFS" "$source" "$mnt" -o dataset_cache="$work/none/dir"
refused "DIR is a file" 1 'Not a directory' "$MCOREFS" "$source" "$mnt" -o dataset_cache="$work/secret"
refused "DIR in SOURCE" 1 'lies in SOURCE' "$MCOREFS" "$source" "$mnt" -o dataset_cache="$source/new"
mkdir -p "$work/other"
ln -s "$work" "$work/above"
cp "$source"/notes_text_document.* "$work/other"
for dir in "$source" "$work" "$work/above" "$work/above/../${work##*/}" "$work/other/.."; do
	refused "DIR is $dir" 1 'dataset_cache: .* (contains|lies in) SOURCE' "$MCOREFS" "$source" "$mnt" -o dataset_cache="$dir"
done
refused "DIR is the directory of a prefix" 1 'contains SOURCE' "$MCOREFS" "$work/other/notes_text_document" "$mnt" -o dataset_cache="$work/other"
for dir in "$work/other" "$work/other/new" "$work/above/other/new"; do
	refused "DIR in data=" 1 'lies in what data= names' "$MCOREFS" "$source" "$mnt" -o data="$work/above/other",dataset_cache="$dir"
done
rm "$work/above"
refused "DIR in MOUNTPOINT" 1 'lies in MOUNTPOINT' "$MCOREFS" "$source" "$mnt" -o dataset_cache="$mnt/new"
ln -s "$mnt" "$work/link"
refused "DIR is a link to MOUNTPOINT" 1 'lies in MOUNTPOINT' "$MCOREFS" "$source" "$mnt" -o dataset_cache="$work/link"
refused "rw alone" 2 'read-only' "$MCOREFS" "$source" "$mnt" -o rw
same "nothing was made" "$(ls "$mnt")$(ls -d "$source/new" 2>/dev/null)" ""

is_root || exit 0

# A full DIR is ENOSPC for who writes, and for nobody else.
mkdir "$work/small"
mount -t tmpfs -o size=1m none "$work/small" 2>/dev/null || skip "all but a full DIR: no tmpfs can be mounted"
mount_source "$source" -o dataset_cache="$work/small"
echo kept >"$hf/cache-1" || fail "create in a small DIR"
refused "a full DIR" 1 'No space left' dd if=/dev/zero of="$hf/tmp1" bs=64k count=32 status=none
same "a file of a full DIR" "$(cat "$hf/cache-1")" kept
same "free space of a full DIR" "$(df --output=avail -k "$hf" | tail -n 1 | xargs)" 0
cat "$hf"/data-* >/dev/null || fail "reading beside a full DIR"
rm "$hf/tmp1"
# The kernel does not wait for a mount to close a file.
has_room() {
	[ "$(df --output=avail -k "$work/small" | tail -n 1)" -gt 0 ]
}
wait_until "a removed file has left its room" has_room
echo more >"$hf/cache-2" || fail "create once there is room"
unmount

# Of a mount for all, those write whom DIR lets in, and what they write is theirs.
as() {
	setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"
}
as 12345 test -x "$work" || skip "all but other users: they cannot enter $work"
mount_source "$source" -o allow_other,dataset_cache="$cache"
refused "another user's file in a private DIR" 1 'Permission denied' as 12345 touch "$hf/cache-5"
chmod 1777 "$cache"
sleep 1.1
as 12345 bash -c "umask 027; echo mine >'$hf/tmp5' && mv '$hf/tmp5' '$hf/cache-5'" || fail "another user's file"
same "whose it is" "$(stat -c %u:%g:%a "$cache/tales_text_document/hf/cache-5")" 12345:12345:640
refused "somebody else's reading" 1 'Permission denied' as 12346 cat "$hf/cache-5"
refused "somebody else's removing" 1 'Operation not permitted' as 12346 rm -f "$hf/cache-5"
as 12345 rm "$hf/cache-5" || fail "removing one's own file"
read_only "another user's other file" as 12345 touch "$hf/other"
unmount

# A user's own mount.
why=$(why_nobody_cannot_mount)
[ -z "$why" ] || skip "all but mounts of users: $why"
chown nobody "$mnt"
mkdir -m 777 "$work/open"
as_nobody "$MCOREFS" "$source" "$mnt" -o dataset_cache="$work/open/mine" || fail "a user cannot mount"
as_nobody bash -c "echo mine >'$hf/tmp5' && mv '$hf/tmp5' '$hf/cache-5' && cat '$hf/cache-5'" >/dev/null || fail "a user cannot write"
same "a user's file" "$(stat -c %U "$work/open/mine/tales_text_document/hf/cache-5")" nobody
as_nobody fusermount3 -u "$mnt" || fail "a user cannot unmount"
