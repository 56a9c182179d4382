#!/bin/bash
# make wheel, then tests/bench/load.sh: loaders of weights into a GPU, on a converted copy and ours on unconverted sources, in one
# run (load.py). BILLIONS (3.15): parameters; LOAD_DIR (/tmp): on a disk, or /dev/shm; RUNS (4): the best of so many. Python has
# torch, safetensors and, where they are to be compared, instanttensor, fastsafetensors and runai_model_streamer.
# Exit status 77: there is no GPU, or no wheel.
set -u
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3}
wheel=$(find "${O:-build}" -maxdepth 1 -name "mcorefs-*.whl" 2>/dev/null | tail -n 1)
[ -n "$wheel" ] || { echo "skipped: there is no wheel; make wheel" && exit 77; }
work=$(mktemp -d "${LOAD_DIR:-/tmp}/mcorefs-load-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
"$python" -m zipfile -e "$wheel" "$work/site" || exit 1
export PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH}
"$python" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null || { echo "skipped: there is no GPU for torch" && exit 77; }

"$python" tests/bench/load.py make "$work/m" "${BILLIONS:-3.15}" || exit 1
echo 'in memory:'
"$python" tests/bench/load.py time "$work/m" --runs "${RUNS:-4}" || exit 1
if [ "$(stat -fc %T "$work")" != tmpfs ]; then
	echo 'not in memory:'
	"$python" tests/bench/load.py time "$work/m" --runs 2 --cold --only 'instanttensor URING' || exit 1
fi
"$python" tests/bench/load.py time "$work/m" --peak --layouts tp2pp2 || exit 1
"$python" tests/bench/load.py phases "$work/m" --runs "${RUNS:-4}" || exit 1
mcorefs=${O:-build}/mcorefs
if [ -x "$mcorefs" ] && [ -c /dev/fuse ]; then
	mkdir "$work/mnt"
	"$mcorefs" "$work/m/tp2pp2" "$work/mnt" -o no_optim || exit 1
	echo 'on a mount of the source, whose own pages are in memory:'
	"$python" tests/bench/load.py mount "$work/m" "$work/mnt/latest/hf" --runs "${RUNS:-4}"
	if [ "$(id -u)" = 0 ]; then umount "$work/mnt"; else fusermount3 -u "$work/mnt"; fi
fi
if [ "$("$python" -c 'import torch; print(torch.cuda.device_count())')" -gt 1 ]; then
	"$python" tests/bench/load.py ranks "$work/m" --runs "${RUNS:-4}"
fi
