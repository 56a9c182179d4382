#!/bin/bash
# Trains with a mount beside the run, and serves each iteration as soon as it is saved:
#
#   SERVE="vllm serve" configs/train/mounted.sh SAVE MOUNTPOINT COMMAND...       MCOREFS=mcorefs  SERVE=echo
#
#   SERVE="vllm serve" configs/train/mounted.sh ckpt /mnt/ckpt configs/train/mpirun.sh 8 --save ckpt
#
# COMMAND trains and saves into SAVE. For each new checkpoint the one who serves is ended, and `SERVE MOUNTPOINT/iter_N/hf` is started; the
# last one is served until it ends by itself, or by a signal. The exit status is COMMAND's.
set -u
[ $# -ge 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
save=$1 mount=$2
shift 2
mounted= server= served=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	[ -z "$mounted" ] || fusermount3 -u "$mount"
}

# A checkpoint is complete when the tracker names it. The mount begins with the first one.
look() {
	local last
	last=$(cat "$save/latest_checkpointed_iteration.txt" 2>/dev/null) || return 0
	[[ $last =~ ^[0-9]+$ ]] && [ "$last" != "$served" ] || return 0
	if [ -z "$mounted" ]; then
		"${MCOREFS:-mcorefs}" "$save" "$mount" || return 0
		mounted=1
	fi
	last=$(printf 'iter_%07d' "$((10#$last))")
	[ -d "$mount/$last/hf" ] || return 0
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null
		wait "$server"
	fi
	served=$(cat "$save/latest_checkpointed_iteration.txt")
	# shellcheck disable=SC2086
	(
		trap - EXIT USR1 TERM INT
		exec ${SERVE:-echo} "$mount/$last/hf"
	) &
	server=$!
}

"$@" &
run=$!
trap cleanup EXIT
trap 'kill -USR1 $run' USR1
trap 'kill -TERM $run' TERM INT
while kill -0 $run 2>/dev/null; do
	look
	sleep "${LOOK:-5}" &
	wait $! # a signal ends this one at once
done
wait $run
status=$?
trap 'exit $status' USR1 TERM INT
# The mount may need a moment to see the last one.
for ((i = 0; i < 30; i++)); do
	look
	[ "$served" != "$(cat "$save/latest_checkpointed_iteration.txt" 2>/dev/null)" ] || break
	sleep 1
done
[ -z "$server" ] || wait "$server"
exit $status
