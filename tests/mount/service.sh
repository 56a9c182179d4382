#!/bin/bash
# What a service manager is told (sd_notify, a watchdog), and the files of configs/ that other programs read: units,
# tmpfiles, fstab, a map of the automounter, Slurm's scripts with the environment that Slurm gives.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/gpt2-*)
told=$work/told

# The manager: what it is told goes into $told.
manager=
manage() {
	[ -z "$manager" ] || kill "$manager"
	"$BIN/notified" "$1" >"$told" &
	manager=$!
}
disk=
trap 'status=$?; for pid in $manager $disk; do kill -s KILL "$pid" 2>/dev/null; done; (exit $status); end' EXIT
has_told() {
	grep -q "$1" "$told"
}
times() {
	grep -c "$1" "$told"
}
more_than() {
	[ "$(times WATCHDOG=1)" -gt "$1" ]
}

manage "$work/notify"
wait_until "the manager listens" test -S "$work/notify"
export NOTIFY_SOCKET=$work/notify
mount_foreground "$source"
wait_until "it is ready" has_told '^READY=1 '
same "what is told first" "$(head -n 1 "$told")" "READY=1 STATUS=$source is mounted on $mnt"
same "WATCHDOG that nobody has asked for" "$(times WATCHDOG)" 0
kill -s TERM "$daemon"
expect_clean_end
same "what is told last" "$(tail -n 1 "$told")" STOPPING=1
: >"$told"
"$MCOREFS" "$work/none" "$mnt" -f 2>/dev/null && fail "a mount of nothing"
same "what is told of a failed start" "$(cat "$told")" ""
NOTIFY_SOCKET=$work/nobody mount_foreground "$source" # nobody listens: it mounts all the same
unmount

# An abstract name, and somebody else's watchdog.
manage "@mcorefs-test-$$"
listens() { grep -q "@mcorefs-test-$$" /proc/net/unix; }
wait_until "the manager listens at an abstract name" listens
NOTIFY_SOCKET=@mcorefs-test-$$ WATCHDOG_USEC=100000 WATCHDOG_PID=1 mount_foreground "$source"
wait_until "an abstract name is told" has_told '^READY=1 '
sleep 0.3
same "WATCHDOG of another process" "$(times WATCHDOG)" 0
unmount

# A watchdog is fed while the mount answers, and only then: here its source stops answering, for which alone the mount is
# not to blame; and the daemon is alive.
mkdir "$work/disk"
"$BIN/failing_fs" "$(dirname "$source")" "$work/disk" none 0 &
disk=$!
wait_until "the source is mounted" mountpoint -q "$work/disk"
manage "$work/notify2"
wait_until "the manager listens" test -S "$work/notify2"
NOTIFY_SOCKET=$work/notify2 WATCHDOG_USEC=300000 mount_foreground "$work/disk/$(basename "$source")"
wait_until "the watchdog is fed" more_than 5
kill -s STOP "$disk"
sleep 1 # what is under way
wait_until "the watchdog is fed while the source hangs" more_than "$(($(times WATCHDOG=1) + 5))"
kill -s CONT "$disk"
unmount

# With one thread, who waits for the source is all that the mount does. Commands do not wait for it, nor does who reads
# what they print.
: >"$told"
NOTIFY_SOCKET=$work/notify2 WATCHDOG_USEC=300000 mount_foreground "$work/disk/$(basename "$source")" -s
wait_until "the watchdog is fed by one thread" more_than 2
kill -s STOP "$disk"
sleep 1.2
stat "$mnt/none" >/dev/null 2>&1 &
waits=$!
sleep 1 # what is under way
began=$SECONDS
said=$(timeout -s KILL 30 "$MCOREFS" mounts "$mnt")
same "mounts while the source hangs: exit status" $? 1
[[ $said == *"does not answer"* ]] || fail "mounts while the source hangs: $said"
[ $((SECONDS - began)) -lt 20 ] || fail "mounts while the source hangs: an answer after $((SECONDS - began)) s"
before=$(times WATCHDOG=1)
sleep 1
same "WATCHDOG while the mount does not answer" "$(times WATCHDOG=1)" "$before"
! ended "$daemon" || fail "the daemon has ended"
kill -s CONT "$disk"
wait_until "the watchdog is fed again" more_than "$((before + 3))"
wait "$waits"
kill -s STOP "$disk"
timeout -s KILL 30 "$MCOREFS" umount "$mnt" || fail "umount while the source hangs: status $?"
not_mounted || fail "umount while the source hangs has left it"
kill -s CONT "$disk"
expect_clean_end
no_watchdog() { ! pgrep -f "watchdog $mnt" >/dev/null; }
wait_until "the process that asks has ended" no_watchdog
umount "$work/disk" 2>/dev/null || fusermount3 -u "$work/disk"
wait "$disk"
disk=
unset NOTIFY_SOCKET

# Slurm's scripts: no PATH but what they set, as in slurmd(8).
mkdir "$work/bin" "$work/second"
cp "$MCOREFS" "$work/bin/mcorefs"
printf '%s\n' '# SOURCE MOUNTPOINT OPTIONS' '' "$source $mnt vocab_size=1000" "$source $work/second" >"$work/slurm.conf"
slurm() { # SCRIPT JOB
	env -i PATH="$work/bin" SLURM_JOB_ID="$2" SLURM_JOB_USER=root SLURM_JOB_UID=0 SLURMD_NODENAME=node7 SLURM_CLUSTER_NAME=c \
		MCOREFS_SLURM_CONF="$work/slurm.conf" MCOREFS_SLURM_JOBS="$work/jobs" "configs/slurm/$1" 2>"$log"
}
if is_root; then
	slurm prolog.sh 17 || fail "prolog of job 17: status $?"
	grep -q '"vocab_size": 1000' "$mnt/latest/hf/config.json" || fail "prolog: options do not count"
	[ -s "$work/second/latest/hf/config.json" ] || fail "prolog: the second line"
	slurm prolog.sh 18 || fail "prolog of job 18: status $?"
	kill -s KILL "$(sed -n 's/^ *"pid": \([0-9]*\),$/\1/p' <<<"$("$MCOREFS" mounts "$mnt" --json)")"
	dead() { ! "$MCOREFS" mounts "$mnt" >/dev/null; }
	wait_until "it is dead" dead
	slurm prolog.sh 19 || fail "prolog over a dead mount: status $?"
	same "mounts of three jobs" "$(grep -c " $work/[^ ]* fuse.mcorefs " /proc/self/mounts)" 2
	slurm epilog.sh 18
	slurm epilog.sh 17
	[ -s "$mnt/latest/hf/config.json" ] || fail "an epilog has unmounted what another job uses"
	slurm epilog.sh 19 || fail "epilog: status $?"
	same "mounts after the last job" "$(grep -c " $work/[^ ]* fuse.mcorefs " /proc/self/mounts)" 0
	echo "$work/none $mnt" >"$work/slurm.conf"
	slurm prolog.sh 20 && fail "a prolog that cannot mount does not drain the node"
	grep -q 'job 20 on node7: .*No such file' "$log" || fail "a prolog that cannot mount does not say why"
	slurm epilog.sh 20
fi
job=$(env PATH="$work/bin:$PATH" SLURM_JOB_ID=21 TMPDIR="$work" sh configs/slurm/job.sh "$source" ls 2>"$log") || fail "a job that mounts for itself"
grep -q config.json <<<"$job" || fail "a job that mounts for itself reads nothing"
wait_until "a job's mount is gone" not_mounted
same "what a job leaves" "$(ls -d "$work"/mcorefs-21-* 2>/dev/null)" ""
if command -v shellcheck >/dev/null; then
	shellcheck configs/slurm/*.sh mount-helpers/mount.mcorefs >"$log" 2>&1 || fail "shellcheck"
fi

# What fstab, maps and units say is what the program takes.
while read -r from _ type options _; do
	same "type in configs/mount/fstab" "$type" mcorefs
	"$MCOREFS" --mount-helper "${from//\\040/ }" /mnt -f -o "${options//\\040/ }" 2>"$log" || fail "configs/mount: $options"
done < <(grep -hv '^\(#.*\)\?$' configs/mount/*)
while read -r _ options _; do
	[[ $options == -fstype=mcorefs,* ]] || fail "configs/autofs: $options"
	"$MCOREFS" --mount-helper x y -f -o "${options#*mcorefs,}" 2>"$log" || fail "configs/autofs: $options"
done < <(grep -v '^\(#.*\)\?$' configs/autofs/auto.mcorefs)
"$MCOREFS" --mount-helper x y -f -o "$(sed -n 's/^Options=//p' configs/systemd/mnt-llama.mount)" || fail "options of mnt-llama.mount"
if command -v findmnt >/dev/null; then
	findmnt --verify --tab-file configs/mount/fstab >"$log" 2>&1 # places need not exist here; the form counts
	grep -qE '^[0-9]+ parse error' "$log" && ! grep -q '^0 parse errors' "$log" && fail "findmnt --verify"
fi
# Images have what a build needs.
for package in $(sed -n 's/^build_pkgs="\(.*\)"/\1/p' tests/deps.sh); do
	for file in configs/*/Containerfile; do
		grep -qw -- "$package" "$file" || fail "$file without $package"
	done
done
# Nothing in the service makes a namespace of mounts: its mount would be nobody else's.
grep -E '^(Private|Protect(System|Home|ControlGroups|Kernel|Proc)|Read(Only|Write)|Inaccessible|Exec(Paths|Search)|NoExecPaths|Bind|TemporaryFileSystem|RootDirectory|RootImage|Mount(Flags|APIVFS|Images)|DynamicUser|(State|Cache|Runtime|Logs)Directory|NoNewPriv)' \
	configs/systemd/mcorefs@.service && fail "mcorefs@.service has a namespace of mounts, or no fusermount3"

command -v systemd-analyze >/dev/null || skip "all but units: systemd-analyze is missing"
mkdir "$work/units" "$work/root"
cp configs/systemd/* "$work/units"
cp "$work/units/mcorefs@.service" "$work/units/mcorefs@llama.service"
sed -i "s|^ExecStart=mcorefs |ExecStart=$MCOREFS |" "$work/units"/*.service
units=("$work"/units/mcorefs@llama.service "$work"/units/mcorefs-gateway.service "$work"/units/*.mount "$work"/units/*.automount)
# It says what it does not understand, and ends with 0.
same "systemd-analyze verify" "$(systemd-analyze verify --man=no "${units[@]}" 2>&1)" ""
sed -i 's/^Type=notify/Type=notfy/' "$work/units/mcorefs@llama.service"
[[ $(systemd-analyze verify --man=no "${units[@]}" 2>&1) == *notfy* ]] || fail "systemd-analyze verify finds nothing"
if is_root && command -v systemd-tmpfiles >/dev/null; then
	mkdir -p "$work/root/etc/tmpfiles.d"
	cp configs/systemd/mcorefs.tmpfiles "$work/root/etc/tmpfiles.d/mcorefs.conf"
	cp /etc/passwd /etc/group "$work/root/etc"
	systemd-tmpfiles --create --root="$work/root" mcorefs.conf 2>"$log" || fail "systemd-tmpfiles"
	same "a cache for all" "$(stat -c %a "$work/root/var/cache/mcorefs")" 1777
fi
true
