#!/bin/sh
# Slurm's Prolog (slurm.conf: Prolog=/etc/slurm/mcorefs-prolog.sh, PrologFlags=Alloc): mounts the checkpoints of
# /etc/mcorefs/slurm.conf on a node before the first job's processes run there. Slurm runs it as root, without a PATH.
#
#   # SOURCE          MOUNTPOINT        OPTIONS
#   /runs/llama-8b    /mnt/llama-8b     ro,allow_other
#
# With job_container/tmpfs the mount has to be there before a job's namespace is made: Prolog is early enough, TaskProlog
# is not. A failure is said to slurmd's log; the exit status drains the node, unless MCOREFS_REQUIRED=no is set here.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${PATH-}
export PATH
config=${MCOREFS_SLURM_CONF:-/etc/mcorefs/slurm.conf}
jobs=${MCOREFS_SLURM_JOBS:-/run/mcorefs/slurm} # a file for each job of this node; epilog.sh unmounts after the last
required=${MCOREFS_REQUIRED:-yes}
[ -r "$config" ] || exit 0

# An epilog of another job must not unmount between our marker and our look at the mount. Nothing that is started
# below keeps the lock.
mkdir -p "$jobs" && exec 9>"$jobs.lock" && flock 9
: >"$jobs/${SLURM_JOB_ID:-0}"
failed=0
while read -r source mountpoint options _; do
	case $source in '' | '#'*) continue ;; esac
	# Another job's prolog may have mounted it; one that is dead is mounted again.
	mcorefs mounts "$mountpoint" >/dev/null 2>&1 9>&- && continue
	mkdir -p "$mountpoint" 2>/dev/null
	if ! why=$(mcorefs "$source" "$mountpoint" -o "${options:-ro,allow_other}" 2>&1 </dev/null 9>&-); then
		# Somebody else may have mounted it at the same time.
		mcorefs mounts "$mountpoint" >/dev/null 2>&1 9>&- && continue
		echo "mcorefs: job ${SLURM_JOB_ID:-?} on ${SLURMD_NODENAME:-?}: $why" >&2
		failed=1
	fi
done <"$config"
[ "$required" = yes ] || exit 0
exit $failed
