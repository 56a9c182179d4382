#!/bin/bash
# The operations of groups of processes (kernels/kernels.h: mfk_comm_ops) against their definitions, on the CPU by MPI: 2, 3 and 4
# processes, and 3 under ASan and UBSan.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath -m "${O:-build}")
command -v mpirun >/dev/null || { echo "there is no mpirun here"; exit 77; }
[ -e "$build/libmcorefs-mpi.so" ] || { echo "it was built without MPI"; exit 77; }
passed=0 failed=0

# check NAME N VARIANT
check() {
	if mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$2" "$build/$3/tests/kernels/check_comm" cpu "$build/libmcorefs-mpi.so"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $1"
	fi
}

for n in 2 3 4; do check "$n processes" $n obj; done
# MPI keeps what it has allocated.
ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} check "3 processes, sanitized" 3 asan

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
