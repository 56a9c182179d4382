#!/bin/bash
# Where export writes, and where it refuses to: nothing of a person's is overwritten or removed.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
source=$(echo "$FIXTURES"/weights/llama-torch-*)
out=$work/out

refused 'no DEST' 2 'expected mcorefs export SOURCE VIEW DEST' "$m" export "$source" hf
refused 'one argument more' 2 "unexpected argument 'y'" "$m" export "$source" hf x y
refused 'unknown option' 2 "unknown option '--frob'" "$m" export "$source" hf x --frob
refused 'no view' 1 "has no view 'gguf'" "$m" export "$source" gguf "$out"
refused 'no such iteration' 1 "latest/hf or iter_0000040/hf" "$m" export "$source" iter_0000041/hf "$out"
refused 'no parent' 1 "$work/none/out" "$m" export "$source" hf "$work/none/out"
refused 'DEST is .' 1 'name a new directory' "$m" export "$source" hf .
[ ! -e "$out" ] && [ ! -e "$out.mcorefs-partial" ] || fail 'a refused export left something'

# A slash at the end, a relative path, and an empty directory that is there already.
mkdir "$out"
"$m" export "$source" hf "$out/" >/dev/null || fail 'export into an empty directory'
(cd "$work" && "$m" export "$source" hf relative >/dev/null) || fail 'export to a relative path'
diff -r "$out" "$work/relative" || fail 'the two differ'

refused 'DEST has files' 1 'exists and is not empty \(--force replaces it\)' "$m" export "$source" hf "$out"
echo mine >"$out/notes.txt"
"$m" export --force "$source" hf "$out" >/dev/null || fail '--force'
diff -r "$out" "$work/relative" || fail '--force left files of the predecessor'
[ ! -e "$out.mcorefs-partial" ] || fail '--force left the predecessor'

mkdir "$out/sub"
refused 'DEST has directories' 1 'holds directories' "$m" export --force "$source" hf "$out"
[ -d "$out/sub" ] || fail 'a directory of a person was removed'
mkdir "$work/holder" && cp -a "$source" "$work/holder/source"
refused 'DEST holds SOURCE' 1 'lie in each other' "$m" export --force "$work/holder/source" hf "$work/holder"
refused 'DEST is SOURCE' 1 'lie in each other' "$m" export --force "$work/holder/source" hf "$work/holder/source"
refused 'DEST in SOURCE' 1 'lie in each other' \
	"$m" export --force "$work/holder/source" hf "$work/holder/source/iter_0000040"
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
exec 5<&-
"$m" export "$source" hf "$work/two" >/dev/null || fail 'export after the other one has ended'
diff -r "$work/two" "$work/relative" || fail 'they differ'
