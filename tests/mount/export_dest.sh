#!/bin/bash
# Where export writes, and where it refuses to: nothing of a person's is overwritten or removed.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
source=$(echo "$FIXTURES"/weights/llama-torch-*)
out=$work/out

refused 'no DEST' 2 'expected mcorefs export SOURCE VIEW DEST' "$m" export "$source" hf
refused 'one argument more' 2 "unexpected argument 'y'" "$m" export "$source" hf x y
refused 'unknown option' 2 "unknown option '--frob'" "$m" export "$source" hf x --frob
refused 'no view' 1 "has no view 'frob'" "$m" export "$source" frob "$out"
refused 'no such iteration' 1 "has no iteration iter_0000041: there is iter_0000040" "$m" export "$source" iter_0000041/hf "$out"
refused 'no parent' 1 "$work/none/out" "$m" export "$source" hf "$work/none/out"
refused 'DEST is .' 1 'name a new directory' "$m" export "$source" hf .
[ ! -e "$out" ] && [ ! -e "$out.mcorefs-partial" ] || fail 'a refused export left something'

# A slash at the end, a relative path, and an empty directory that is there already.
mkdir "$out"
"$m" export "$source" hf "$out/" >/dev/null || fail 'export into an empty directory'
(cd "$work" && "$m" export "$source" hf relative >/dev/null) || fail 'export to a relative path'
diff -r "$out" "$work/relative" || fail 'the two differ'

refused 'DEST has files' 1 'exists and is not empty \(--force replaces it\)' "$m" export "$source" hf "$out"
"$m" export --force "$source" hf "$out" >/dev/null || fail '--force'
diff -r "$out" "$work/relative" || fail '--force: other bytes'
[ ! -e "$out.mcorefs-partial" ] || fail '--force left the predecessor'

# What is a person's stays, and what an export has left with it: one sentence that names it.
# kept TEXT PATTERN [OPTION...]: DEST as it stands is not replaced, and nothing is left next to it.
kept() {
	rm -rf "$work/kept" && cp -a "$out" "$work/kept"
	refused "$1" 1 "$2" "${export[@]}" export --force "$source" hf "$out" "${@:3}"
	diff -r --no-dereference "$out" "$work/kept" || fail "$1: something was changed"
	[ ! -e "$out.mcorefs-partial" ] || fail "$1: something was left"
}
export=("$m")
echo 'six years of work' >"$out/thesis.tex"
kept 'a thesis' "holds files that are not from an export, such as 'thesis.tex': move them elsewhere"
rm "$out/thesis.tex"
mkdir "$out/sub"
kept 'an empty directory' "holds directories that are not from an export, such as 'sub'"
echo mine >"$out/sub/config.json"
kept 'a directory with a name of ours in it' "holds directories that are not from an export, such as 'sub'"
rm -r "$out/sub"
mv "$out/config.json" "$work/config.json" && ln -s "$work/config.json" "$out/config.json"
kept 'a link, as the HF cache has them' "holds files that are not from an export, such as 'config.json'"
mv "$work/config.json" "$out/config.json"
mkfifo "$out/model-00001-of-00001.safetensors.old"
refused 'a pipe' 1 'holds files that are not from an export' "$m" export --force "$source" hf "$out"
rm "$out/model-00001-of-00001.safetensors.old"

# Nor a model with the very same names that no export has made, where marks tell.
cp -r "$work/relative" "$work/trained" && echo '{"trained": "for a year"}' >"$work/trained/config.json"
cp -r "$work/trained" "$work/kept.trained"
if "$BIN/xattrs" "$out/config.json" | grep -qx 'list 0'; then
	echo 'skipped: export_dest/same names: the file system has no extended attributes'
else
	refused 'a model of the same names' 1 'that are not from an export' "$m" export --force "$source" hf "$work/trained"
	diff -r "$work/trained" "$work/kept.trained" || fail 'a model of the same names was changed'
fi

# Names that this view does not have are known by a mark, where the file system can keep one.
export=("$BIN/posix_only" "$m")
"$m" export "$source" hf "$out" --force -o shard_size=100KB >/dev/null || fail 'smaller shards over larger ones'
kept 'names of an earlier export that nobody remembers' "holds files that are not from an export, such as 'model[^']*safetensors[^']*'"
if "$m" export "$source" hf "$out" --force >"$log" 2>&1; then
	diff -r "$out" "$work/relative" || fail '--force left files of the predecessor'
else
	grep -q 'that are not from an export' "$log" || fail '--force over smaller shards'
	rm -r "$out" && cp -r "$work/relative" "$out"
	echo 'skipped: an export over one of other names: the file system has no extended attributes'
fi

# All that the file systems of clusters lack can be done without: locks, exchange of names, claims of space, nameless files.
"${export[@]}" export --force "$source" hf "$out" >"$log" 2>&1 || fail "POSIX alone: $(cat "$log")"
diff -r "$out" "$work/relative" || fail 'POSIX alone: other bytes'
echo '[1, 2]' | "$BIN/posix_only" "$m" pack "$work/packed" >"$log" 2>&1 || fail "pack, POSIX alone: $(cat "$log")"
same 'POSIX alone: what is left' "$(cd "$work" && ls | grep -e '^packed' -e partial | xargs)" 'packed.bin packed.idx'

# DEST and what is read, in each other by whatever name.
mkdir "$work/holder" && cp -a "$source" "$work/holder/source"
refused 'DEST holds SOURCE' 1 'lies in SOURCE or contains it' "$m" export --force "$work/holder/source" hf "$work/holder"
refused 'DEST is SOURCE' 1 'lies in SOURCE or contains it' "$m" export --force "$work/holder/source" hf "$work/holder/source"
refused 'DEST in SOURCE' 1 'lies in SOURCE or contains it' \
	"$m" export --force "$work/holder/source" hf "$work/holder/source/iter_0000040"
refused 'DEST would be in SOURCE' 1 'lies in SOURCE or contains it' "$m" export "$work/holder/source" hf "$work/holder/source/new"
ln -s holder/source/iter_0000040 "$work/way"
refused 'DEST in SOURCE through a link' 1 'lies in SOURCE or contains it' "$m" export "$work/holder/source" hf "$work/way/new"
refused 'SOURCE through a link' 1 'lies in SOURCE or contains it' "$m" export "$work/way" hf "$work/holder/source/iter_0000040/new"
cp -r "$out" "$work/reference"
refused 'DEST is ref=' 1 "'$work/reference' is being read" "$m" export --force "$source" hf "$work/reference" -o "ref=$work/reference"
mkdir "$work/corpus" && cp "$FIXTURES"/data/notes_text_document.* "$work/corpus"
refused 'DEST holds data=' 1 "is being read" \
	"$m" export --force "$FIXTURES/data/tales_text_document" data/notes_text_document/megatron "$work/corpus" -o "data=$work/corpus/notes_text_document"
mount_source "$work/holder/source"
ln -s mnt/latest "$work/mounted"
for dest in "$mnt/new" "$work/mounted/new" "$mnt/latest/hf"; do
	refused "DEST is in a mount: $dest" 1 'lies in a mount of mcorefs' "$m" export --force "$work/holder/source" hf "$dest"
done
unmount
if is_root && mkdir "$work/bound" "$work/ro" && mount --bind "$work/holder/source" "$work/bound"; then
	refused 'DEST in SOURCE by a bind mount' 1 'lies in SOURCE or contains it' "$m" export "$work/holder/source" hf "$work/bound/new"
	refused 'SOURCE by a bind mount' 1 'lies in SOURCE or contains it' "$m" export "$work/bound" hf "$work/holder/source/new"
	umount "$work/bound"
	mount -t tmpfs -o ro none "$work/ro"
	refused 'read-only' 1 "cannot create '$work/ro/new.mcorefs-partial': Read-only file system" "$m" export "$source" hf "$work/ro/new"
	refused 'a mount point' 1 'is a mount point, which no directory can replace' "$m" export "$source" hf "$work/ro"
	umount "$work/ro"
else
	echo 'skipped: bind mounts and a read-only file system: needs root'
	mkdir -p "$work/ro" && chmod 555 "$work/ro"
	refused 'read-only' 1 "cannot create '$work/ro/new.mcorefs-partial': Permission denied" "$m" export "$source" hf "$work/ro/new"
fi
diff -r "$source" "$work/holder/source" || fail 'SOURCE was changed'
touch "$work/file"
refused 'DEST is a file' 1 'is not a directory' "$m" export --force "$source" hf "$work/file"
ln -s "$work/relative" "$work/link"
refused 'DEST is a link' 1 'is not a directory' "$m" export --force "$source" hf "$work/link"

# Two at a time: the second one is told.
mkdir "$work/two.mcorefs-partial"
exec 5<"$work/two.mcorefs-partial"
flock -x 5
refused 'another export' 1 'another export is writing' "$m" export "$source" hf "$work/two"
[ -d "$work/two.mcorefs-partial" ] || fail 'the second took away the directory of the first, which had nothing in it yet'
exec 5<&-
"$m" export "$source" hf "$work/two" >/dev/null || fail 'export after the other one has ended'
diff -r "$work/two" "$work/relative" || fail 'they differ'
