#!/bin/bash
# -o log=FILE: what a mount in the background says, and to whom signals speak.
. "$(dirname "$0")/lib.sh"

from=$FIXTURES/resume/llama-torch_dist-tp2-pp2
tracker=latest_checkpointed_iteration.txt
file=$work/mount.log
ckpt=$work/ckpt
mkdir "$ckpt"
cp -a "$from/iter_0000020" "$ckpt"
printf 20 >"$ckpt/$tracker"

refused 'log in no directory' 1 'log: .*none/log: No such file' "$MCOREFS" "$ckpt" "$mnt" -o "log=$work/none/log"
refused 'log that is a directory' 1 "cannot open the log '$work': Is a directory" "$MCOREFS" "$ckpt" "$mnt" -o "log=$work"
refused 'log in SOURCE' 1 'lies in SOURCE' "$MCOREFS" "$ckpt" "$mnt" -o "log=$ckpt/log"
refused 'log in MOUNTPOINT' 1 'lies in MOUNTPOINT' "$MCOREFS" "$ckpt" "$mnt" -o "log=$mnt/log"
mkfifo "$work/fifo"
refused 'log to a FIFO that nobody reads' 1 "cannot open the log" "$MCOREFS" "$ckpt" "$mnt" -o "log=$work/fifo"
refused 'a mount that fails' 1 'shard' "$MCOREFS" "$work/shard" "$mnt" -o "log=$file"
not_mounted || fail 'something was mounted'

# says COUNT PATTERN: so many lines of the log are like that.
says() {
	[ "$(grep -cE -- "$2" "$file")" = "$1" ]
}

echo 'what was there' >"$file"
(cd "$work" && "$MCOREFS" ckpt mnt -o log=mount.log) || fail 'mount with a relative log'
wait_until "the mount is announced" says 1 " note: $ckpt is mounted on $mnt$"
same 'what was there' "$(head -n 1 "$file")" 'what was there'
daemon=$(sed -nE 's/^[-0-9T:+]+ mcorefs\[([0-9]+)\] note: .* is mounted on .*/\1/p' "$file")
kill -0 "$daemon" || fail 'the log does not name the process'
pid=$daemon
daemon= # no child of this shell

# Signals that nobody meant, and the one that asks.
for signal in USR2 ALRM VTALRM PROF IO PWR STKFLT PIPE RTMIN RTMAX; do
	kill -s "$signal" "$pid"
done
exec 5<"$mnt/latest/hf/config.json"
kill -s USR1 "$pid"
wait_until 'SIGUSR1 is answered' says 1 \
	" note: status of $mnt: of $ckpt, for [0-9]+ s; 1 of 1 iterations shown, latest iter_0000020; [1-9][0-9]* files \(.*\) in views that were entered, 1 open; [1-9][0-9]* KiB resident$"
exec 5<&-
mounted || fail 'a stray signal has ended the mount'

# A run goes on.
cp -a "$from/iter_0000040" "$ckpt"
printf 40 >"$ckpt/$tracker"
latest_is() {
	[ "$(readlink "$mnt/latest")" = "$1" ]
}
wait_until 'latest has moved' latest_is iter_0000040
wait_until 'a new iteration is said' says 1 "note: iter_0000040 is new, on $mnt$"
wait_until 'the new latest is said' says 1 "note: latest is iter_0000040, on $mnt$"
rm -r "$ckpt/iter_0000020"
gone() {
	[ ! -e "$mnt/iter_0000020" ]
}
wait_until 'an iteration is gone' gone
wait_until 'a deleted iteration is said' says 1 "note: iter_0000020 was deleted, on $mnt$"
ls "$mnt" >/dev/null
same 'news, once each' "$(grep -c 'iter_0000040 is new\|latest is\|was deleted' "$file")" 3

# An error names the mount, and somebody who copies and truncates the log (logrotate) loses nothing.
cp "$file" "$file.1"
: >"$file"
victim=$(find "$ckpt/iter_0000040" -name '*.distcp' | sort | head -n 1)
truncate -s 100 "$victim"
cat "$mnt/iter_0000040/hf/model.safetensors" >/dev/null 2>&1 && fail 'a cut source can be read'
wait_until 'an error is said' says 1 " error: $mnt/iter_0000040/hf/model.safetensors: .*${victim##*/}"
same 'lines after the log was emptied' "$(wc -l <"$file")" 1
unmount
wait_until 'the process ends' ended "$pid"
says 1 " note: unmounted $ckpt from $mnt$" || fail 'the end is not said'

# In the foreground both hear it; a signal that ends the mount is named.
mount_foreground "$from" -o "log=$file"
kill -s USR1 "$daemon"
wait_until 'SIGUSR1 is answered in the foreground' grep -q '^mcorefs: status of ' "$log"
kill -s TERM "$daemon"
wait_until 'SIGTERM ends it' ended "$daemon"
expect_clean_end
says 1 " note: unmounted $from from $mnt: SIGTERM$" || fail 'the signal is not named'
grep -q '^mcorefs: unmounted' "$log" || fail 'the terminal is not told'
same 'two mounts in one log' "$(cut -d' ' -f2 "$file" | sort -u | wc -l)" 2
