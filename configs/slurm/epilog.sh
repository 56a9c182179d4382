#!/bin/sh
# Slurm's Epilog (slurm.conf: Epilog=/etc/slurm/mcorefs-epilog.sh): unmounts what prolog.sh has mounted when the last job
# has left the node. What somebody still has open is left to the next epilog.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${PATH-}
export PATH
config=${MCOREFS_SLURM_CONF:-/etc/mcorefs/slurm.conf}
jobs=${MCOREFS_SLURM_JOBS:-/run/mcorefs/slurm}
[ -r "$config" ] || exit 0

# As in prolog.sh: no other job's begins or ends meanwhile.
mkdir -p "$jobs" && exec 9>"$jobs.lock" && flock 9
rm -f "$jobs/${SLURM_JOB_ID:-0}"
[ -z "$(ls -A "$jobs" 2>/dev/null)" ] || exit 0
while read -r source mountpoint _; do
	case $source in '' | '#'*) continue ;; esac
	mcorefs umount "$mountpoint" >/dev/null 2>&1 </dev/null 9>&-
done <"$config"
exit 0
