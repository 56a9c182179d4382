#!/bin/bash
# tests/lint.sh FILE...: format, headers that compile alone, layering. CC and CFLAGS from the Makefile.
set -u
failed=0

complain() {
	echo "lint: $*" >&2
	failed=1
}

# forbid PATTERN WHY FILE...
forbid() {
	local pattern=$1 why=$2
	shift 2
	[ $# = 0 ] && return
	if grep -nE "$pattern" "$@" /dev/null; then complain "$why"; fi
}

formats=() fs=() headers=()
for f; do
	case $f in
	formats/*) formats+=("$f") ;;
	fs/*) fs+=("$f") ;;
	esac
	case $f in *.h) headers+=("$f") ;; esac
done

if command -v clang-format >/dev/null; then
	clang-format --dry-run --Werror "$@" || complain "run: make format"
else
	echo "lint: no clang-format here, the format is not looked at"
fi
for h in "${headers[@]}"; do
	# shellcheck disable=SC2086
	printf '#include "%s"\n' "$h" | ${CC:-cc} $CFLAGS -fsyntax-only -x c - || complain "$h does not compile alone"
done

forbid '#include "(fs|trainer|tests)/' "formats/ includes from above" "${formats[@]}"
forbid '#include <fuse' "formats/ includes libfuse" "${formats[@]}"
forbid '\b(exit|abort|printf|fprintf|perror|syslog)\(' "the library speaks or exits" "${formats[@]}"
not_fuse=()
for f in "${fs[@]}"; do
	case $f in fs/fuse_*) ;; *) not_fuse+=("$f") ;; esac
done
forbid '#include <fuse' "libfuse is for fs/fuse_* alone" "${not_fuse[@]}"
base=() readers=()
for f in "${formats[@]}"; do
	case $f in
	formats/base/*) base+=("$f") ;;
	formats/*/* | formats/hf_*) ;;
	*) readers+=("$f") ;;
	esac
done
forbid '#include "formats/([a-z_]+\.h|io/|ckpt/|model/|plan/)' "formats/base includes from above" "${base[@]}"
forbid '#include "formats/(ckpt|model|plan)/' "a reader includes from above" "${readers[@]}"
sources=()
for f in "${formats[@]}" "${fs[@]}"; do
	# The opener itself; what is written, and made durable; files of the overlay, which O_PATH has found to be regular;
	# what the kernel says of mounts.
	case $f in
	*.h | formats/io/regular.c | formats/io/commit.c | formats/indexed_dataset_write_open.c | fs/overlay*.c | fs/export_d*.c | fs/mountpoint.c) ;;
	*) sources+=("$f") ;;
	esac
done
opens() {
	grep -nE '(^|[^.>_a-z])(open|openat|openat2|open64|creat|fopen|freopen|json_load_file)\(' "${sources[@]}" /dev/null |
		grep -vE 'O_DIRECTORY|O_CREAT|O_PATH|"/dev/null"|"/proc/self/|O_RDWR'
}
if opens; then complain "source files are opened with formats/io/regular.h"; fi
unseeded=()
for f; do
	[ "$f" = formats/base/uthash.h ] || unseeded+=("$f")
done
forbid '#include <uthash' "hash tables are those of formats/base/uthash.h" "${unseeded[@]}"
forbid '\b(gets|alloca|strtok)\(' "function that is not used here" "$@"
forbid '\b(TODO|FIXME|XXX)\b' "unfinished" "$@"
[ $failed = 0 ] && echo "lint: clean"
exit $failed
