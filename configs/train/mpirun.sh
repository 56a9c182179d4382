#!/bin/bash
# Trains with mpirun, on CPUs or GPUs:
#
#   configs/train/mpirun.sh PROCESSES [ARGUMENT...]      HOSTS=node1:8,node2:8  TRAIN=mcorefs-train  MPIRUN="mpirun ..."
#
# mpirun passes SIGUSR1 on, which ends the run behind its step, with a save. It kills processes a second after it was sent SIGTERM itself.
set -eu
here=$(dirname "$0")
[ $# != 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
processes=$1
shift
. "${ARGUMENTS:-$here/arguments.sh}"
# Processes are not bound: each uses the threads that are its share of the host.
# shellcheck disable=SC2086
exec ${MPIRUN:-mpirun} -n "$processes" ${HOSTS:+--host "$HOSTS"} --bind-to none \
	"${TRAIN:-mcorefs-train}" "${arguments[@]}" --exit-signal SIGUSR1 "$@"
