#!/bin/bash
# --log-straggler: the report of two processes, and the port that switches it.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin straggler
family_args llama
port=$((20000 + RANDOM % 10000))

# says PATTERN: within a while it is in the log
says() {
	for ((i = 0; i < 300; i++)); do
		! grep -qE "$1" "$work/log" || return 0
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

# The port answers as a web server does.
switch() {
	local reply
	exec 3<>"/dev/tcp/127.0.0.1/$port" && env printf 'GET / HTTP/1.0\r\n\r\n' >&3 && reply=$(cat <&3)
	exec 3>&-
	[[ $reply == "HTTP/1.0 200 OK"*"Will turn StragglerDetector $1 at next logging interval" ]]
}

each='[0-9]+\.[0-9]{2}'
line="^INFO:megatron.core.utils:\[.*\] \| MnRtt/Rnk: ${each}ms/[01] \| MxRtt/Rnk: ${each}ms/[01] \| MnPwr/Rnk: 0.00W/0 .*"
line+="MnDRtt/Rnk: ${each}ms/[01] .* \| MnEtpt/Rnk: ${each}TF/[01] \| MxEtpt/Rnk: ${each}TF/[01]\$"
"${launcher[@]}" 2 "$train" "${args[@]}" --backend cpu --threads 1 --load "${at[llama]}" --ckpt-step 20 --train-iters 100000 \
	--override-opt-param-scheduler --log-straggler --straggler-ctrlr-port $port --exit-signal SIGUSR1 >"$work/log" 2>&1 &
pid=$!
says "Controller ready to recv commands on port $port. Current state ON" && says "$line"
verdict $? "a line at each report"
switch OFF && says "Toggling StragglerDetector State OFF" && switch ON && says "Toggling StragglerDetector State ON" &&
	says "State ON" && [ "$(grep -c "Will turn" "$work/log")" = 2 ]
verdict $? "the port switches it off, and on"
kill -USR1 $pid && wait $pid
verdict $? "the run ends as without it"
pid=
# Nothing is reported while it is off.
awk '/State OFF/ { off = 1 } /State ON/ { off = 0 } off && /MnRtt/ { bad = 1 } END { exit bad }' "$work/log"
verdict $? "nothing is said while it is off"
processes_end
