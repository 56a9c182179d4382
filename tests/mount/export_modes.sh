#!/bin/bash
# An export is as readable as its source: what the modes of all source files grant, without the umask.
. "$(dirname "$0")/lib.sh"

copy_fixture weights/llama-torch-tp2-pp2
out=$work/out

# exported MODE UMASK FILES DIRECTORIES: of a source whose files have MODE, these are the modes of an export.
exported() {
	find "$ckpt" -type f -exec chmod "$1" {} +
	written "mode $1, umask $2" "$2" "$3" "$4"
}

written() {
	(umask "$2" && "$MCOREFS" export "$ckpt" megatron/torch/tp1-pp2 "$out" >/dev/null 2>&1) || fail "$1: export"
	same "$1: files" "$(find "$out" -type f -printf '%m\n' | sort -u)" "$3"
	same "$1: directories" "$(find "$out" -type d -printf '%m\n' | sort -u)" "$4"
	rm -r "$out"
}

exported 644 022 644 755
exported 600 022 600 700
exported 640 022 640 750
exported 644 027 640 750
exported 444 022 644 755
exported 664 002 644 755
chmod 600 "$(find "$ckpt" -name '*.pt' | head -n 1)"
written "one file of mode 600" 022 600 700
