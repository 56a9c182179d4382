#!/bin/sh
# Checkpoints of 671 and 405 billion parameters, sparse: memory, counts; times are printed.
cd "$(dirname "$0")" || exit 1
command -v python3 >/dev/null || { echo "python3 is not here to make the files"; exit 77; }
[ -c /dev/fuse ] || { echo "no /dev/fuse"; exit 77; }
# The usual limit, hard as well, so that the daemon cannot raise it.
ulimit -n 1024 || exit 1
exec python3 giants.py
