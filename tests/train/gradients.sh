#!/bin/bash
# Models of random shapes, each divided in another way, on the CPU: gradients of every parameter are those of one process. Sizes of all
# dimensions, ways to share sequences, model chunks with any numbers of layers, microbatches, what FSDP divides and which layers run again
# are drawn (tests/train/layout.h).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin gradients

gradients obj 2 LAYOUTS=200
gradients obj 3 LAYOUTS=100
gradients obj 4 LAYOUTS=400
gradients obj 8 LAYOUTS=120
# Whoever forgets to wait for what is said beside the passes reads what is not there yet.
gradients obj 4 LAYOUTS=200 FIRST=400 LATE=1
gradients asan 4 LAYOUTS=60 FIRST=600

processes_end
