#!/bin/bash
#SBATCH --job-name=mcorefs-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --signal=USR1@300
# Trains with srun, one process a GPU, as a batch job:
#
#   sbatch --chdir=configs/train srun.sh [ARGUMENT...]      MASTER_PORT=29500  TRAIN=mcorefs-train  MPI=none
#
# On CPUs the processes talk through MPI: MPI=pmix. Five minutes before its time is over, the job is sent SIGUSR1: it saves, and ends.
set -eu
. "${ARGUMENTS:-./arguments.sh}"
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}
exec srun --mpi="${MPI:-none}" --kill-on-bad-exit=1 "${TRAIN:-mcorefs-train}" "${arguments[@]}" --exit-signal SIGUSR1 "$@"
