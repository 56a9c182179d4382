#!/bin/bash
# What a daemon gives up once its mount stands: setuid=, drop_privileges and sandbox. It serves, follows its source and
# ends as others do; and what it must not do any more it cannot.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"

copy_fixture "weights/$(basename "$FIXTURES"/weights/llama-torch_dist-*)"
status() { # FIELD
	sed -n "s/^$1:[[:space:]]*//p" "/proc/$daemon/status"
}
reads() {
	for file in "$mnt"/latest/hf/*; do cmp "$file" "$work/plain/${file##*/}" || fail "$1: $file"; done
}

# May the kernel do it at all?
"$MCOREFS" "$ckpt" "$mnt" -o sandbox 2>"$log" || { grep -q 'has no Landlock' "$log" && skip "$(cat "$log")"; fail "sandbox"; }
unmount
cp -a "$ckpt" "$work/elsewhere"
mount_source "$ckpt"
cp -r "$mnt/latest/hf" "$work/plain"
unmount
chmod -R u+w "$work/plain"

for how in umount signal killed; do
	mount_foreground "$ckpt" -o sandbox,shard_size=5GB
	reads "sandbox"
	same "NoNewPrivs" "$(status NoNewPrivs)" 1
	same "Seccomp" "$(status Seccomp)" 2
	same "capabilities but CAP_DAC_READ_SEARCH" "$((0x$(status CapPrm) & ~4)) $((0x$(status CapBnd) & ~4 & -$(id -u | grep -c '^0$')))" "0 0"
	for thread in "/proc/$daemon/task"/*; do
		same "a thread that keeps its rights" "$(sed -n 's/^Seccomp:[[:space:]]*//p' "$thread/status")" 2
	done
	case $how in
	umount) unmount ;;
	signal)
		kill -s TERM "$daemon"
		expect_clean_end
		;;
	killed)
		# The mount stays, and is dead: an empty directory would be worse. The next one takes its place.
		kill -s KILL "$daemon"
		wait "$daemon" 2>/dev/null
		daemon=
		sleep 0.2
		"$MCOREFS" mounts "$mnt" >/dev/null && fail "a mount of a killed daemon serves"
		grep -q " $mnt fuse.mcorefs " /proc/self/mounts || fail "a killed daemon's mount is gone"
		mount_source "$ckpt" -o sandbox
		unmount
		;;
	esac
	no_child() { ! pgrep -f "unmounter $mnt" >/dev/null; }
	wait_until "the process that unmounts has ended" no_child
done

# A new save is followed; a link that leads out of SOURCE is not.
mount_foreground "$ckpt" -o sandbox
[ -s "$mnt/latest/hf/config.json" ] || fail "nothing to read"
latest=$(readlink "$mnt/latest")
cp -a "$ckpt/$latest" "$ckpt/iter_0000099"
echo 99 >"$ckpt/latest_checkpointed_iteration.txt"
follows() { [ "$(readlink "$mnt/latest")" = iter_0000099 ]; }
wait_until "a new save is shown" follows
[ -s "$mnt/latest/hf/model.safetensors" ] && cat "$mnt/latest/hf/model.safetensors" >/dev/null || fail "a new save cannot be read"
ln -s "$work/elsewhere/$latest" "$ckpt/iter_0000100"
echo 100 >"$ckpt/latest_checkpointed_iteration.txt"
sleep 1.5
cat "$mnt/iter_0000100/hf/config.json" >/dev/null 2>&1 && fail "a link that leads out of SOURCE is followed in a sandbox"
rm "$ckpt/iter_0000100"
echo 99 >"$ckpt/latest_checkpointed_iteration.txt"
"$MCOREFS" "$ckpt" "$mnt" -o remount,ro 2>>"$log" || fail "remount of a sandbox"
unmount

# What is deleted is forgotten, though the daemon may start no process for that any more.
cp -a "$ckpt/iter_0000099" "$ckpt/iter_0000098"
mount_foreground "$ckpt" -o sandbox
cat "$mnt/iter_0000098/hf/config.json" >/dev/null || fail "a second iteration"
known() { sed -n 's/^mcorefs_iterations_known{.*} //p' "$mnt/.mcorefs/stats"; }
before=$(known)
rm -r "$ckpt/iter_0000098"
fewer() { kill -s HUP "$daemon" && [ "$(known)" -lt "$before" ]; }
wait_until "a deleted iteration is forgotten" fewer
no_fetcher() { ! pgrep -f "fetcher $mnt" >/dev/null; }
no_fetcher && fail "no fetcher is kept"
unmount
wait_until "the fetcher has ended" no_fetcher

# Who unmounts was killed: the mount stays, and the log does not say otherwise.
mount_foreground "$ckpt" -o sandbox
before=$(grep -c ' unmounted ' "$log")
kill -s KILL "$(pgrep -f "unmounter $mnt")"
kill -s TERM "$daemon"
wait "$daemon"
status=$?
daemon=
if mountpoint -q "$mnt" || grep -q " $mnt " /proc/self/mounts; then
	[ "$status" != 0 ] || fail "a mount that stays: exit status 0"
	grep -q 'cannot be unmounted, and is dead now' "$log" || fail "a mount that stays"
	same "unmounted, by the log" "$(grep -c ' unmounted ' "$log")" "$before"
	umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt"
else
	fail "the daemon has unmounted although it may not"
fi

# Datasets, by a prefix, and what is written next to them.
mkdir "$work/cache"
mount_source "$FIXTURES/data/tales_text_document" -o "sandbox,dataset_cache=$work/cache,data=$FIXTURES/data/notes_text_document"
cat "$mnt/data/notes_text_document/hf"/*.arrow >/dev/null || fail "a dataset in a sandbox"
echo mine >"$mnt/data/tales_text_document/hf/cache-1.arrow" || fail "dataset_cache in a sandbox"
same "what was written" "$(cat "$mnt/data/tales_text_document/hf/cache-1.arrow")" mine
(cd "$mnt/data/tales_text_document/hf" && chmod 600 cache-1.arrow && touch -d @1000000000 cache-1.arrow && truncate -s 2 cache-1.arrow &&
	chown "$(id -u)" cache-1.arrow) || fail "attributes of a file of dataset_cache in a sandbox"
same "a file's attributes" "$(find "$work/cache" -name cache-1.arrow -printf '%m %s')" "600 2"
mv "$mnt/data/tales_text_document/hf/cache-1.arrow" "$mnt/data/tales_text_document/hf/cache-2.arrow" || fail "rename in a sandbox"
rm "$mnt/data/tales_text_document/hf/cache-2.arrow" || fail "rm in a sandbox"
unmount

# Metrics, which are written to a file again and again.
mkdir "$work/metrics"
mount_source "$ckpt" -o "sandbox,metrics=$work/metrics/m.prom"
wait_until "metrics are written" test -s "$work/metrics/m.prom"
unmount
refused "a sandbox that listens" 1 "metrics= takes a file" "$MCOREFS" "$ckpt" "$mnt" -o sandbox,metrics=127.0.0.1:0

# The log is opened anew after it was moved away.
mkdir "$work/logs"
mount_foreground "$ckpt" -o "sandbox,log=$work/logs/log"
mv "$work/logs/log" "$work/logs/log.1"
kill -s HUP "$daemon"
wait_until "a sandbox writes a new log" test -s "$work/logs/log"
unmount
refused "metrics in dataset_cache" 1 "metrics: $work/cache/m.prom lies in what dataset_cache= names" "$MCOREFS" "$FIXTURES/data/tales_text_document" "$mnt" -o "dataset_cache=$work/cache,metrics=$work/cache/m.prom"
refused "a log in a reference" 1 "log: .* lies in what ref= names" "$MCOREFS" "$ckpt" "$mnt" -o "ref=$work/plain,log=$work/plain/log"

# A watchdog goes on.
"$BIN/notified" "$work/notify" >"$work/told" &
manager=$!
trap 'status=$?; kill -s KILL $manager 2>/dev/null; (exit $status); end' EXIT
wait_until "the manager listens" test -S "$work/notify"
NOTIFY_SOCKET=$work/notify WATCHDOG_USEC=300000 mount_foreground "$ckpt" -o sandbox
fed() { [ "$(grep -c WATCHDOG=1 "$work/told")" -gt 4 ]; }
wait_until "the watchdog is fed" fed
unmount
kill "$manager"

# Another user.
is_root || skip "all but other users: needs root"
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
as_nobody test -r "$ckpt/latest_checkpointed_iteration.txt" || skip "nobody cannot read $ckpt"
refused "a user that is none" 1 "there is no user 'frobnicate'" "$MCOREFS" "$ckpt" "$mnt" -o setuid=frobnicate
refused "a user whom the mount does not let in" 1 "needs allow_other" timeout 60 "$MCOREFS" "$ckpt" "$mnt" -o setuid=nobody
# A mount point that this user does not find.
mkdir -m 700 "$work/closed"
mkdir "$work/closed/mnt"
timeout 60 "$MCOREFS" "$ckpt" "$work/closed/mnt" -o setuid=nobody,allow_other || fail "a mount point below a closed directory: $?"
umount "$work/closed/mnt" || fail "below a closed directory"
# The mount point goes with the mount: the process that watches ends all the same.
NOTIFY_SOCKET=$work/notify WATCHDOG_USEC=300000 mount_foreground "$ckpt" -o setuid=nobody,allow_other
umount "$mnt" && rmdir "$mnt" || fail "umount of setuid"
wait_until "a watched daemon of another user ends" ended "$daemon"
expect_clean_end
mkdir "$mnt"
for options in setuid=nobody setuid=nobody,drop_privileges setuid=nobody,sandbox drop_privileges; do
	mount_foreground "$ckpt" -o "allow_other,$options"
	[[ $options == drop_privileges ]] || same "$options: user" "$(status Uid)" "$(printf "%s\t%s\t%s\t%s" $(for _ in 1 2 3 4; do id -u nobody; done))"
	same "$options: capabilities" "$(status CapEff)" 0000000000000000
	as_nobody cat "$mnt/latest/hf/model.safetensors" >/dev/null || fail "$options: nothing to read"
	same "$options: read-ahead of root's" "$(cat "/sys/class/bdi/$(mountpoint -d "$mnt")/read_ahead_kb")" 2048
	kill -s TERM "$daemon"
	expect_clean_end
done
# Where this user cannot write what is to be written.
mkdir -m 755 "$work/roots" "$work/theirs"
chown nobody "$work/theirs"
refused "dataset_cache of root's" 3 "dataset_cache: $work/roots: Permission denied" timeout 60 "$MCOREFS" "$FIXTURES/data/tales_text_document" "$mnt" -o "allow_other,setuid=nobody,dataset_cache=$work/roots"
refused "metrics in a directory of root's" 3 "metrics: cannot write .*Permission denied" timeout 60 "$MCOREFS" "$ckpt" "$mnt" -o "allow_other,setuid=nobody,vocab_size=1024,metrics=$work/roots/m.prom"
mount_source "$FIXTURES/data/tales_text_document" -o "allow_other,setuid=nobody,dataset_cache=$work/theirs"
echo 1 >"$mnt/data/tales_text_document/hf/cache-1" || fail "dataset_cache of that user"
unmount
# It reads what that user may, although root has mounted.
chmod -R go-rwx "$ckpt/iter_0000099"
mount_foreground "$ckpt" -o allow_other,setuid=nobody
cat "$mnt/iter_0000099/hf/model.safetensors" >/dev/null 2>&1 && fail "setuid: root's files are read"
unmount
