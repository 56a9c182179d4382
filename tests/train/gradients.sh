#!/bin/bash
# Models of random shapes, each divided in another way, on the CPU: gradients of every parameter are those of one process. Sizes of all
# dimensions, ways to share sequences, model chunks with any numbers of layers, microbatches, what FSDP divides and which layers run again
# are drawn (tests/train/drawn_layout.h).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin gradients

# Others each day.
day=$((${MCOREFS_TEST_SEED:-0} % 10000 * 1000))

gradients obj 2 LAYOUTS=80 FIRST=$day
gradients obj 3 LAYOUTS=40 FIRST=$day
gradients obj 4 LAYOUTS=160 FIRST=$day
gradients obj 8 LAYOUTS=50 FIRST=$day
# Where a pass does not wait for what is exchanged during it, it reads what is not there yet.
gradients obj 4 LAYOUTS=80 FIRST=$((day + 400)) LATE=1
gradients asan 4 LAYOUTS=30 FIRST=$((day + 600))

processes_end
