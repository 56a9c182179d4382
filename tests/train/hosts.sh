#!/bin/bash
# Two hosts: namespaces with names, networks, processes and clocks of their own, joined by a link of 2 ms. mpirun starts the processes on
# both through an agent that stands in for ssh. A run follows Megatron's own; a cut link, a killed host and a host that does not see the
# last save end it with one sentence; a slow host and other clocks change nothing. torchrun's environment finds rank 0 on the other host.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
[ "$(id -u)" = 0 ] || { echo "namespaces of a network need root"; exit 77; }
for tool in ip unshare nsenter; do
	command -v $tool >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v $tool >/dev/null || { echo "$tool is not installed"; exit 77; }
done
apart=(unshare --net --uts --mount --propagation private --pid --fork --kill-child)
# What a host does for itself: containers that have namespaces may still forbid mounts.
why=$("${apart[@]}" sh -c 'mount --bind /etc/hosts /etc/hosts && hostname here && ip link set lo up' 2>&1) ||
	{ echo "no namespaces with mounts, names and networks of their own: $why"; exit 77; }
processes_begin hosts
. tests/train/ends.sh
build=$(realpath -m "${O:-build}")
declare -A host=([alpha]= [beta]=)
link=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; kill -KILL $link ${host[*]} 2>/dev/null; rm -rf "$work"' EXIT

# enter HOST COMMAND...: there, as process $! if it is started in the background
enter() {
	exec nsenter --target "${host[$1]}" --net --uts --mount --pid -- "${@:2}"
}

# start_host NAME: a first process, with which all others of the host go
start_host() {
	rm -f "$work/$1.up"
	"${apart[@]}" sh -c 'mount --bind "$2/hosts" /etc/hosts && hostname "$1" && echo >"$2/$1.up" && exec sleep 900' \
		sh "$1" "$work" >"$work/log" 2>&1 &
	local outer=$!
	for ((i = 0; i < 100; i++)); do
		[ ! -e "$work/$1.up" ] || break
		sleep 0.1
	done
	host[$1]=$(cat "/proc/$outer/task/$outer/children")
	host[$1]=${host[$1]% }
	echo "${host[$1]}" >"$work/$1.pid"
	[ -e "$work/$1.up" ]
}

# start_link: of 2 ms each way. The kernel gives up a connection after seconds, not after a quarter of an hour: only then does mpirun know.
start_link() {
	: >"$work/link"
	"$build/obj/tests/mount/lossy_link" "${host[alpha]}" "${host[beta]}" 2 0 1000 1 >"$work/link" 2>"$work/log" &
	link=$!
	for ((i = 0; i < 100; i++)); do
		[ ! -s "$work/link" ] || break
		kill -0 $link 2>/dev/null || break
		sleep 0.1
	done
	[ -s "$work/link" ] || return 1
	(enter alpha ip address add 10.77.0.1 peer 10.77.0.2 dev lossy) && (enter beta ip address add 10.77.0.2 peer 10.77.0.1 dev lossy) &&
		for name in alpha beta; do (enter $name ip link set lo up) && (enter $name ip link set lossy up) &&
			(enter $name sh -c 'echo 4 >/proc/sys/net/ipv4/tcp_retries2') || return 1; done
}

printf '127.0.0.1 localhost\n10.77.0.1 alpha\n10.77.0.2 beta\n' >"$work/hosts"
start_host alpha && start_host beta || { verdict 1 "there are two hosts"; processes_end; exit 1; }
start_link || { echo "no TUN devices: $(<"$work/log")"; exit 77; }

# Beta's clock is two days slow. (A namespace of time has monotonic clocks alone.)
if command -v cc >/dev/null; then
	cc -shared -fPIC -o "$work/clock.so" -x c - <<'END' || exit 1
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SLOW (2 * 86400)

int clock_gettime(clockid_t id, struct timespec *t)
{
	const int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (!rc && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t->tv_sec -= SLOW;
	return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (ret)
		*ret = now.tv_sec;
	return now.tv_sec;
}
END
	export CLOCK=$work/clock.so
fi

# mpirun's agent: agent HOST COMMAND... As ssh, it does not notice that its host is gone: mpirun would take its end for a daemon that has
# not begun, and name no host.
cat >"$work/agent" <<'END'
#!/bin/bash
name=$1
shift
nsenter --target "$(<"${0%/*}/$name.pid")" --net --uts --mount --pid -- env ${CLOCK:+LD_PRELOAD=$CLOCK} sh -c "$*"
status=$?
[ $status != 137 ] || exec sleep 600
exit $status
END
chmod +x "$work/agent"
# Processes on alpha are this one's relatives: from another namespace of them nobody could enter beta's.
launcher=(nsenter --target "${host[alpha]}" --net --uts --mount -- mpirun --allow-run-as-root --oversubscribe --bind-to none --mca plm_rsh_agent "$work/agent"
	--mca btl tcp,self --mca btl_tcp_if_include lossy --mca oob_tcp_if_include lossy --wdir "$PWD" --host alpha:2,beta:2 -n)

on_beta() { (enter beta "$@"); }
# shellcheck disable=SC2016 # beta's own date
[ -z "${CLOCK:-}" ] || [ $(($(date +%s) - $(on_beta env LD_PRELOAD="$CLOCK" date +%s))) -gt 86400 ] || verdict 1 "beta's clock is slow"


# ranks_of HOST: the processes that train there
ranks_of() {
	local p
	for p in $(ranks "--backend cpu"); do
		[ "$(readlink "/proc/$p/ns/uts")" != "$(readlink "/proc/${host[$1]}/ns/uts")" ] || echo "$p"
	done
}

# Beta stands still for a fifth of the time, as a host that others use.
slow_beta() {
	while sleep 0.4; do
		# shellcheck disable=SC2046
		kill -STOP $(ranks_of beta) && sleep 0.1 && kill -CONT $(ranks_of beta)
	done 2>/dev/null
}

slow_beta &
slow=$!
BACKEND=cpu LAUNCH="${launcher[*]} 4" FLAGS="--threads 1 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2" \
	tests/train/follow.sh "${at[llama]}" >"$work/log" 2>&1
verdict $? "TP2 PP2 on two hosts follows Megatron: a slow one, whose clock is two days slow"
kill $slow
wait $slow 2>/dev/null

family_args llama
args+=(--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)

# This run alone may stand still for no longer than a few seconds: a machine that others use makes those that are to go on do so.
start 4 --distributed-timeout-seconds-after-init 4 && kill -USR1 $link && ended &&
	grep -qE "^mcorefs-train: rank [0-3] on (alpha|beta): iteration [0-9]+: no progress for 4 s in .* of the group '.*'" "$work/log"
verdict $? "a link that is cut ends the run on both hosts"
kill -USR2 $link
goes_on 4 --save "$work/save" --save-interval 1000
verdict $? "when the link is back they go on from the last save"

# late FILE PLACE ARGUMENT...: for some seconds beta sees FILE at its place
late() {
	on_beta mount --bind "$1" "$2" || return 1
	: >"$work/log"
	# until it has been noticed
	{
		for ((i = 0; i < waits; i++)); do
			! grep -q " on beta: found .* looks again for up to 90 s" "$work/log" || break
			sleep 0.1
		done
		on_beta umount "$2"
	} &
	goes_on 4 "${@:3}"
	local status=$?
	wait $!
	return $status
}
last=$(cat "$tracker")
echo $((last - 1)) >"$work/before"
late "$work/before" "$tracker" &&
	grep -q "^mcorefs-train: rank [23] on beta: found iteration $((last - 1)), and other processes iteration $last: this host sees the directory late" "$work/log"
verdict $? "a host that sees an old tracker waits for the new one"
mkdir "$work/none"
late "$work/none" "$work/save" && grep -q "^mcorefs-train: rank [23] on beta: found no checkpoint, and other processes iteration $last: " "$work/log"
verdict $? "a host that sees no checkpoint yet waits for it"
seen="^mcorefs-train: rank [23] on beta: found no checkpoint: .*: this host may see the directory late"
late "$work/none" "$work/save" --exit-on-missing-checkpoint && grep -q "$seen" "$work/log"
verdict $? "a host waits for a checkpoint that must be there"
late "$work/none" "$work/save/iter_$(printf %07d "$last")" && grep -q "$seen" "$work/log"
verdict $? "a host waits for the iteration that a tracker names"

# torchrun's environment, on GPUs that something stands in for: rank 0 is on the other host.
played() { # RANK
	local at=alpha
	[ "$1" -lt 2 ] || at=beta
	RANK=$1 WORLD_SIZE=4 LOCAL_RANK=$(($1 % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=alpha MASTER_PORT=29500 ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-} \
		enter $at env -C "$PWD" timeout -k 5 120 "$build/asan/tests/kernels/check_comm" fake "$fake" >>"$work/log" 2>&1
}
fake=$build/asan/libfake-gpu.so
if [ -e "$fake" ]; then
	export MCOREFS_NCCL=$fake
	: >"$work/log"
	bad=0 all=()
	for r in 3 2 1 0; do
		played $r &
		all+=($!)
	done
	for p in "${all[@]}"; do wait "$p" || bad=1; done
	verdict $bad "torchrun's environment on two hosts: the operations of groups"
else
	skip "torchrun's environment" "there is no CUDA here to compile NCCL's calls with"
fi

# A connection that is just being made may hang: the watchdog ends the run then.
start 4 --distributed-timeout-seconds-after-init 20 && kill -KILL "${host[beta]}" && ended && grep -q "beta" "$work/log"
verdict $? "a host that is killed ends the run"
kill -KILL $link
start_host beta && start_link && goes_on 4
verdict $? "when it is back they go on from the last save"
processes_end
