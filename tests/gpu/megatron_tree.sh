#!/bin/sh
# Extracts what pretrain_gpt.py needs (13 MB) from a clone or mirror of Megatron-LM, unmodified.
#   megatron_tree.sh GIT_DIR DEST [COMMIT]      default: the commit that wrote the fixtures
set -eu
[ $# -ge 2 ] || { sed -n 2,3p "$0"; exit 2; }
commit=${3:-d98e8a64}
mkdir -p "$2"
git --git-dir="$1" archive "$commit" megatron pretrain_gpt.py gpt_builders.py model_provider.py | tar -x -C "$2"
echo "$2: Megatron-LM $commit"
