#!/bin/sh
# On the GPU machine, in the repository's root: unpacks build/gpu and runs resume_all.py with these arguments.
set -eu
mkdir -p /tmp/gpu/fixtures
for archive in build/gpu/*.tar.xz; do python3 -W ignore -m tarfile -e "$archive" /tmp/gpu & done
wait
export MEGATRON_LM=/tmp/gpu/megatron-lm
exec python3 tests/gpu/resume_all.py "$@" --fixtures tests/fixtures/resume /tmp/gpu/fixtures --data tests/fixtures/data --binary /tmp/gpu/mcorefs/mcorefs
