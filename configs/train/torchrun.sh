#!/bin/bash
# Trains with torchrun, on GPUs. On each host:
#
#   NODE=0 MASTER_ADDR=node1 configs/train/torchrun.sh HOSTS GPUS_OF_EACH [ARGUMENT...]      MASTER_PORT=29500  TRAIN=mcorefs-train
#
# torchrun ends all processes of a host when one fails. It starts none again: a run that is started anew loads the last checkpoint.
set -eu
here=$(dirname "$0")
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
hosts=$1 each=$2
shift 2
. "${ARGUMENTS:-$here/arguments.sh}"
exec torchrun --no-python --nnodes "$hosts" --nproc-per-node "$each" --node-rank "${NODE:-0}" --max-restarts 0 \
	--master-addr "${MASTER_ADDR:-localhost}" --master-port "${MASTER_PORT:-29500}" \
	"${TRAIN:-mcorefs-train}" "${arguments[@]}" "$@"
