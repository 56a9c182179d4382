#!/bin/bash
# tests/gpu/kernels.sh: the operations of kernels/cuda on this machine's GPU, against their definitions, under
# compute-sanitizer, and their speed. O: the folder of the build (build). What is built is used; the rest is built here.
# Exit status 77: there is no GPU.
set -u
cd "$(dirname "$0")/../.." || exit 1

O=${O:-build}
plugin=$O/libmcorefs-cuda.so
program=$O/obj/tests/kernels/check_cuda
seconds=${KERNELS_SECONDS:-120} # for all of it
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

left() {
	local rest=$((seconds - SECONDS))
	echo $((rest > 1 ? rest : 1))
}

# run SECONDS COMMAND...: stops what hangs, and says so.
run() {
	local status
	timeout -k 3 "$@"
	status=$?
	case $status in
	0 | 77) ;;
	124 | 137) echo "FAILED: no end after $1 s: ${*:2}" && failed=1 ;;
	*) echo "FAILED with status $status: ${*:2}" && failed=1 ;;
	esac
	return $status
}

if [ ! -e "$plugin" ] || [ ! -e "$program" ]; then
	make "O=$O" "$plugin" "$program" || exit 1
fi
# Where CUDA's libraries are not in the linker's cache, a Python package may have them.
if ldd "$plugin" | grep -q 'cublasLt.*not found'; then
	lib=$(find / -xdev -name 'libcublasLt.so.13' -print -quit 2>/dev/null)
	export LD_LIBRARY_PATH=${lib%/*}:${LD_LIBRARY_PATH:-}
fi
run 70 "$program" "$plugin" check
[ $? = 77 ] && exit 77
run "$(left)" "$program" "$plugin" bench $(($(left) > 40 ? 35 : $(left) - 6))
# Memory accesses of every path, as far as the time goes; the short ones first.
for check in bias_backward embedding cross_entropy log_probs policy dispatch rows mla sample cached_attention dropout elementwise fill_normal sums momentum copy_rows adamw norm act qkv \
	quantise update_scales gemm_eight grouped_eight gemm route; do
	command -v compute-sanitizer >/dev/null && [ "$(left)" -gt 5 ] || break
	MFK_SEED=1 timeout -k 3 "$(left)" compute-sanitizer --tool memcheck --error-exitcode 9 \
		"$program" "$plugin" check "$check" >"$log" 2>&1
	status=$?
	case $status in
	0) echo "memcheck $check ok" ;;
	124 | 137) echo "memcheck $check: not finished" ;;
	*) echo "memcheck $check FAILED with status $status" && tail -n 30 "$log" && failed=1 ;;
	esac
done
[ $failed = 0 ] && echo "kernels: ok"
exit $failed
