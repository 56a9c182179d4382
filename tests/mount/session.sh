#!/bin/bash
# Starting and ending: background, foreground, one thread, signals, umount.
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/llama-torch_dist-*)

# The background: it returns with a mount that answers, and lets go of the terminal.
out=$(timeout 120 "$MCOREFS" "$source" "$mnt" 2>&1) || fail "mcorefs in the background: status $?, '$out'"
[ -s "$mnt/latest/hf/config.json" ] || fail "the mount does not answer after mcorefs has returned"
unmount
wait_until "the mount is gone" not_mounted

# Relative paths: the daemon leaves the working directory.
(cd "${source%/*}" && "$MCOREFS" "${source##*/}" "$mnt") || fail "relative SOURCE"
[ -s "$mnt/latest/hf/config.json" ] || fail "relative SOURCE"
unmount
(cd "$work" && "$MCOREFS" "$source" mnt) || fail "relative MOUNTPOINT"
mounted || fail "relative MOUNTPOINT"
unmount

# Without standard descriptors.
"$MCOREFS" "$source" "$mnt" <&- >&- 2>&- || fail "mcorefs without standard descriptors"
cat "$mnt"/latest/hf/* >/dev/null || fail "reading a mount made without standard descriptors"
unmount

for signal in TERM INT; do
	for threads in "" -s; do
		# A background job of a script has SIGINT ignored, which a program is to respect.
		# shellcheck disable=SC2086
		(trap - INT; exec env --default-signal=INT "$MCOREFS" "$source" "$mnt" -f $threads) 2>>"$log" &
		daemon=$!
		wait_until "the mount stands" mounted
		cat "$mnt/latest/hf/config.json" >/dev/null || fail "reading before SIG$signal $threads"
		kill -s "$signal" "$daemon"
		wait_until "SIG$signal $threads ends it" ended "$daemon"
		expect_clean_end
	done
done

# With a file open and a working directory inside, it ends all the same.
mount_foreground "$source"
exec 5<"$mnt/latest/hf/config.json"
cd "$mnt/latest/hf" || fail "cd"
sleep 600 &
sleeper=$!
cd - >/dev/null || fail "cd back"
kill -s TERM "$daemon"
wait_until "SIGTERM ends a busy mount" ended "$daemon"
expect_clean_end
exec 5<&-
kill "$sleeper"

mount_foreground "$source"
unmount # waits for the daemon's status

mount_foreground "$source"
if command -v fusermount3 >/dev/null; then
	fusermount3 -u "$mnt" || fail "fusermount3 -u"
	expect_clean_end
else
	unmount
fi

# -d says what is asked; -f alone does not.
rm "$log"
mount_foreground "$source" # waits for what -f says
grep -qi lookup "$log" && fail "-f is chatty"
unmount
"$MCOREFS" "$source" "$mnt" -d 2>>"$log" &
daemon=$!
wait_until "the mount stands" mounted
cat "$mnt/latest/hf/config.json" >/dev/null
wait_until "-d logs requests" grep -qi lookup "$log"
unmount

if is_root; then
	mount_foreground "$source"
	device=$(mountpoint -d "$mnt")
	same "read-ahead" "$(cat "/sys/class/bdi/$device/read_ahead_kb")" 2048
	unmount
fi
