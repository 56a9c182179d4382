# Long runs that end early: a process of theirs is killed, hangs or is cut off. Sourced after processes_begin.
waits=3000 # of 0.1 s, for what a machine does that others use
tracker=$work/save/latest_checkpointed_iteration.txt

# await COMMAND...: it succeeds while the run goes on
await() {
	local i
	for ((i = 0; i < waits; i++)); do
		"$@" && return 0
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

own_ranks() { ranks "--save $work/save"; }
has_ended() { ! kill -0 "$pid" 2>/dev/null; }
has_begun() { # N
	[ -s "$tracker" ] && [ "$(own_ranks | wc -l)" = "$1" ]
}

# start N ARGUMENT...: args, as a run that saves each second iteration; it has saved when this returns
start() {
	rm -rf "$work/save"
	: >"$work/log"
	"${launcher[@]}" "$1" "$train" "${args[@]}" "${backend[@]}" --load "${at[llama]}" --ckpt-step 20 --train-iters 100000 \
		--override-opt-param-scheduler --save "$work/save" --save-interval 2 --save-keep-last 2 "${@:2}" >"$work/log" 2>&1 &
	pid=$!
	await has_begun "$1"
}

# ended: mpirun ends, and fails; no process is left. It does not wait for those that it has killed.
none_left() { [ -z "$(own_ranks)" ]; }
ended() {
	local status i
	await has_ended || return 1
	wait "$pid"
	status=$?
	pid=
	for ((i = 0; i < 100; i++)); do
		none_left && break
		sleep 0.1
	done
	[ $status != 0 ] && none_left
}

# goes_on N ARGUMENT...: so many processes go on from what was saved last
goes_on() {
	local last
	last=$(cat "$tracker") || return 1
	run "$1" "$work/log" --load "$work/save" --train-iters 100000 --override-opt-param-scheduler --verify-integrity --exit-interval 1 "${@:2}" &&
		grep -q "iteration  *$((last + 1))/" "$work/log"
}
