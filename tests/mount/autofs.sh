#!/bin/bash
# The automounter (autofs) mounts with mount(8) and our helper: by an indirect map and by a direct one, again after it
# has let go.

# Nothing of it can stay: its mounts are of a namespace of their own, and with the first process of the other all its
# processes end, the automounter, the daemons and the processes that wait for them.
if [ -z "${MCOREFS_TEST_NAMESPACE-}" ]; then
	namespaces=(unshare --mount --propagation private --pid --fork --kill-child --mount-proc)
	[ "$(id -u)" = 0 ] || { echo 'needs root, for the automounter' && exit 77; }
	command -v automount >/dev/null || { echo 'automount is missing (package autofs)' && exit 77; }
	"${namespaces[@]}" true 2>/dev/null || { echo 'no namespaces for processes and mounts here' && exit 77; }
	MCOREFS_TEST_NAMESPACE=1 timeout -s KILL 600 "${namespaces[@]}" "$0"
	status=$?
	[ $status != 137 ] || echo 'FAILED: no end after 600 s'
	exit $status
fi
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

# A name of a direct map has at most so many bytes.
[ ${#mnt} -le 255 ] || skip "TMPDIR is too long for the automounter: $mnt"
modprobe -q autofs4 2>/dev/null
grep -qw autofs /proc/filesystems || skip "the kernel has no autofs"
log=$work/automount.log
mkdir "$work/sbin" "$work/indirect"
cp mount-helpers/mount.mcorefs "$work/sbin"
cp "$MCOREFS" "$work/sbin/mcorefs"
mount -t overlay -o "lowerdir=$work/sbin:/sbin" overlay /sbin 2>/dev/null || skip "no overlay over /sbin here, for the mount helper"
PATH=/sbin:$PATH

one=$(echo "$FIXTURES"/weights/gpt2-*)
other=$(echo "$FIXTURES"/weights/llama-torch_dist-*)
echo "one -fstype=mcorefs,allow_other :$one" >"$work/indirect.map"
echo "$mnt -fstype=mcorefs,vocab_size=1000 :$other" >"$work/direct.map"
printf '%s\n' "$work/indirect file:$work/indirect.map" "/- file:$work/direct.map" >"$work/master"
# In a session of its own: the kernel is told its process group, which must be of this namespace.
setsid automount -f -d -C -p "$work/pid" "$work/master" >"$log" 2>&1 </dev/null &
automounter=$!
trap 'status=$?; kill -s KILL "$automounter" 2>/dev/null; (exit $status); end' EXIT

triggers() {
	[ "$(grep -c " autofs " /proc/self/mounts)" -ge 2 ] || ended "$automounter"
}
wait_until "the automounter stands" triggers
! ended "$automounter" || skip "the automounter does not start here: $(tail -n 1 "$log")"

# shown DIR PATTERN: what a reader gets who has not mounted it. A deadlock ends here, and is the failure.
shown() {
	local text
	text=$(timeout -s KILL 120 cat "$1/latest/hf/config.json") || fail "$1 cannot be read"
	[[ $text =~ $2 ]] || fail "$1 shows another checkpoint"
}

# mounts DIR: how many of ours stand there.
mounts() {
	grep -c " $1 fuse.mcorefs " /proc/self/mounts
}

none_left() {
	! grep -q " $work/[^ ]* fuse.mcorefs " /proc/self/mounts
}

# passes COUNT: how often the automounter has gone through one of its two maps for what nobody uses.
passes() {
	[ "$(grep -c 'expire_cleanup: sigchld: exp .* finished' "$log")" -ge "$1" ]
}

# It is asked again, as it passes over what is in use at that moment; and a pass goes on when all are gone.
let_go() {
	local before
	before=$(grep -c 'expire_cleanup: sigchld: exp .* finished' "$log")
	kill -s USR1 "$automounter"
	wait_until "the automounter has looked through its maps" passes $((before + 2))
	none_left
}

for round in first second; do
	shown "$work/indirect/one" gpt2
	shown "$mnt" '"vocab_size": 1000'
	same "$round round: mounts" "$(mounts "$work/indirect/one") $(mounts "$mnt")" "1 1"
	refused "$round round: a second mount" 3 "mcorefs has mounted $other there" "$MCOREFS" "$one" "$mnt"
	wait_until "the automounter has let go" let_go
done

# Two who come at once share a mount; a key that is none is one to nobody.
for dir in "$work/indirect/one" "$mnt"; do
	(shown "$dir" '') &
	first=$!
	(shown "$dir" '') || exit 1
	wait $first || exit 1
	same "mounts of two readers" "$(mounts "$dir")" 1
done
timeout -s KILL 120 ls "$work/indirect/none" 2>/dev/null && fail "a key that nobody has named"
kill -s USR2 "$automounter"
wait_until "the automounter has ended" ended "$automounter"
