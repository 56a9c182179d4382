#!/bin/bash
# The operations of groups of processes (kernels/kernels.h: mfk_comm_ops) against their definitions, on the CPU by MPI: 2 and 4
# processes, and 3 under ASan and UBSan; and 4 with calls of few bytes, as if there were more than MPI counts. CUDA's and NCCL's calls where there is no GPU: against what stands in for both
# (tests/gpu/fake_gpu.c), with processes that end, and with what is refused.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath -m "${O:-build}")
command -v mpirun >/dev/null || { echo "there is no mpirun here"; exit 77; }
[ -e "$build/libmcorefs-mpi.so" ] || { echo "it was built without MPI"; exit 77; }
passed=0 failed=0 skipped=0
fake=$build/asan/libfake-gpu.so
log=$(mktemp)
trap 'rm -f "$log"' EXIT

verdict() {
	if [ "$1" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $2"
		tail -n 20 "$log"
	fi
}

# check N VARIANT BACKEND PLUGIN [NAME=VALUE]
check() {
	env ${5:+"$5"} timeout -k 5 120 mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$1" \
		"$build/$2/tests/kernels/check_comm" "$3" "$4" >"$log" 2>&1
}

# refused NAME=VALUE SENTENCE: all processes end with it
refused() {
	! check 3 asan fake "$fake" "$1" && grep -q -- "$2" "$log" && ! grep -q "AddressSanitizer" "$log"
	verdict $? "$1: $2"
}

for n in 2 4; do
	check $n obj cpu "$build/libmcorefs-mpi.so"
	verdict $? "$n processes"
done
check 4 obj cpu "$build/libmcorefs-mpi-pieces.so"
verdict $? "4 processes, in pieces"
# MPI keeps what it has allocated.
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
check 3 asan cpu "$build/libmcorefs-mpi.so"
verdict $? "3 processes, sanitized"

if [ -e "$fake" ]; then
	export MCOREFS_NCCL=$fake
	for n in 2 4; do
		check $n asan fake "$fake"
		verdict $? "$n processes by NCCL's calls"
	done
	refused MFK_FAKE_DIES=1 "rank 1 on .* has ended"
	refused MFK_FAKE_DIES=0 "rank 0 on .* has ended"
	refused MFK_FAKE_ASYNC=1 "NCCL: remote process exited"
	refused MFK_DEVICE=0 "ranks 0 and 1 have one GPU"
	refused MCOREFS_NCCL=/no/such "several GPUs need NCCL"
	refused MCOREFS_NCCL=libc.so.6 "NCCL 2.18 or newer is needed"
else
	echo "skipped: train/groups: NCCL's calls: there is no CUDA here to compile them with"
	skipped=1
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
