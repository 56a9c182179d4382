#!/bin/sh
#SBATCH --job-name=serve-llama
#SBATCH --nodes=1
# Without an administrator: the job mounts for itself, as its user, and takes the mount away whatever happens.
# SOURCE is the first word, what is to be run with the mount the others: sbatch job.sh /runs/llama-8b vllm serve
set -u
source=$1
shift
mountpoint=$(mktemp -d "${TMPDIR:-/tmp}/mcorefs-${SLURM_JOB_ID:-0}-XXXXXX") || exit 1
end() {
	mcorefs umount --lazy "$mountpoint" 2>/dev/null
	rmdir "$mountpoint"
}
trap end EXIT
trap 'exit 143' TERM INT
mcorefs "$source" "$mountpoint" || exit 1
"$@" "$mountpoint/latest/hf"
