#!/bin/bash
# tests/gpu/attention.sh [check | time | pieces]: attention on this machine's GPU by each implementation, against its definition, and its
# speed; a line for each case, in less than 90 s. O: the folder of the build (build). What is built is used; the rest is built here.
set -u
cd "$(dirname "$0")/../.." || exit 1

O=${O:-build}
program=$O/bench_attention

[ -x "$program" ] || make "O=$O" CUDA_ARCH="${CUDA_ARCH:-90}" "$program" || exit 1

# Where libraries are not in the linker's cache, a Python package may have them.
need() {
	ldconfig -p 2>/dev/null | grep -qF "$1" && return
	local lib
	lib=$(find / -xdev -name "$1" -print -quit 2>/dev/null)
	[ -z "$lib" ] || export LD_LIBRARY_PATH=${lib%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
need libcublasLt.so.13
need libcudnn.so.9
timeout -k 5 "${ATTENTION_SECONDS:-85}" "$program" "$@"
status=$?
[ $status = 124 ] && echo "FAILED: no end after ${ATTENTION_SECONDS:-85} s"
exit $status
