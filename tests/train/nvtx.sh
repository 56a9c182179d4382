#!/bin/bash
# Ranges for profilers (MCOREFS_TRACE=nvtx, --nvtx-ranges), as a tool sees them that NVTX loads (tests/gpu/nvtx_tool.c): each is ended,
# and they nest as a step does.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin nvtx
family_args llama
tool=$(realpath -m "${O:-build}/libnvtx-tool.so")
[ -e "$tool" ] || { echo "it was built without CUDA's headers"; exit 77; }
export NVTX_INJECTION64_PATH=$tool NVTX_TOOL_LOG=$work/ranges

# has PATH...: ranges of these names, one in the other; FILE is of one process
has() {
	local path bad=0
	for path; do
		grep -qx "$path" "$file" || { echo "there is no range '$path'"; bad=1; }
	done
	return $bad
}

# whole: every range was ended
whole() {
	[ "$(tail -n 1 "$file")" = "left open: 0" ] && ! grep -E '^(too deep|a pop)' "$file"
}

run 1 "$work/log" --train-iters 2 --eval-interval 2 --save "$work/saved" --save-interval 2 --nvtx-ranges --recompute-granularity full \
	--recompute-method block --recompute-num-layers 1
file=$(echo "$work"/ranges.*)
pass='microbatch 3, chunk 0'
whole && has "iteration 1/data" "iteration 1/forward, $pass/embedding" "iteration 1/forward, $pass/layer 0/attention" \
	"iteration 1/forward, $pass/layer 3/MLP" "iteration 1/backward, $pass/head" "iteration 1/backward, $pass/layer 3/attention" \
	"iteration 1/backward, $pass/layers again/layer 0/MLP" "iteration 1/backward, $pass/embedding" "iteration 2/gradient norm" \
	"iteration 2/optimizer" "evaluation/forward, $pass/head" save "save, in parallel"
verdict $? "a step's ranges nest"
same=$(sed -n 's|^iteration 2/||p' "$file" | sort | uniq -c) && [ -n "$same" ] && [ "$same" = "$(sed -n 's|^iteration 1/||p' "$file" | sort | uniq -c)" ]
verdict $? "iterations have the same ranges"

rm "$work"/ranges.*
MCOREFS_TRACE=nvtx run 2 "$work/log" --train-iters 1 --tensor-model-parallel-size 2
bad=0
for file in "$work"/ranges.*; do
	whole && has "iteration 1/forward, microbatch 0, chunk 0/layer 0/attention/tp, an all-reduce" "iteration 1/gradient norm/tp-pp, a sum" || bad=1
done
[ "$(echo "$work"/ranges.* | wc -w)" = 2 ] || bad=1
verdict $bad "what processes send each other has ranges"

rm "$work"/ranges.*
run 1 "$work/log" --train-iters 1 && ! ls "$work"/ranges.* 2>/dev/null
verdict $? "without the switch no tool is loaded"
processes_end
