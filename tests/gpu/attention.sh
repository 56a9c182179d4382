#!/bin/sh
# Attention on a GPU: right, and how fast. A line for each case; below 90 s.
#
#	tests/gpu/attention.sh [check | time]
set -u
cd "$(dirname "$0")/../.." || exit
O=${O:-build}
make O="$O" CUDA_ARCH="${CUDA_ARCH:-90}" "$O/bench_attention" || exit

# cuDNN lies with the system's libraries, or in a Python package.
if ! ldconfig -p 2>/dev/null | grep -q 'libcudnn\.so\.9'; then
	folder=$(python3 -c 'import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0] + "/lib")' 2>/dev/null)
	[ -n "$folder" ] && export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
exec timeout -k 5 "${LIMIT:-85}" "$O/bench_attention" "$@"
