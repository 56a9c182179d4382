#!/bin/bash
# Processes that fetch what comes next for a reader of a stream: for nobody else, never in the way, gone with the mount.
. "$(dirname "$0")/lib.sh"
[ -x "$BIN/patterns" ] || fail "$BIN/patterns is not built"

source=$work/source
mkdir "$source"
cp "$FIXTURES"/hf/llama-safetensors/* "$source"
head -c 135266307 /dev/urandom >"$source/tokenizer.model" # four stretches and a bit
file=$mnt/hf/tokenizer.model

# mount_fetching N [OPTION...]: in the foreground, with a log of its own
mount_fetching() {
	mount_logging "$source" -o "prefetch=$1" "${@:2}"
}

mount_logging() {
	rm -f "$log"
	mount_foreground "$@"
	serving=$daemon
}

# The daemon's other processes; with a zombie among them the kernel's word for it.
fetchers() {
	grep -lsx "PPid:[[:space:]]*$serving" /proc/[0-9]*/status | cut -d/ -f3
}

no_fetchers() {
	[ -z "$(fetchers)" ]
}

some_fetchers() {
	[ -n "$(fetchers)" ]
}

all_ended() {
	local pid
	for pid; do
		ended "$pid" || return 1
	done
}

# The end of a mount with -d, and what its log says: bytes read by everybody, a request's header of 16 not counted; by which
# processes; and how much was fetched.
unmount_counting() {
	unmount
	read -r bytes_read readers < <(awk '
		/opcode: READ \(15\)/ { sub(/,.*/, "", $3); read[$3 + 0] = 1; if (!($NF in seen)) pids = pids " " $NF; seen[$NF] }
		/success, outsize:/ { id = $3 + 0; if (id in read) { sum += $NF - 16; delete read[id] } }
		END { print sum + 0, pids }' "$log")
	fetched=$(sed -n 's/^mcorefs: prefetch: //p' "$log")
	sed -i '/: unique: /d; /:    unique: /d' "$log"
}

nothing='0 streams, 0 bytes in 0 pieces, 0 processes'

# Who reads here and there: nobody fetches for him, and he alone asks for anything.
for pattern in random faults backwards strided two; do
	mount_fetching 2 -d
	"$BIN/patterns" "$pattern" "$file" "$source/tokenizer.model" &
	reader=$!
	wait "$reader" || fail "$pattern"
	no_fetchers || fail "$pattern: there are fetchers"
	unmount_counting
	same "$pattern: who has read" "$readers" "$reader"
	same "$pattern: what was fetched" "$fetched" "$nothing"
done

# Without the option: a process for each 8 processors, two at most; for datasets alone none.
default=$(($(nproc) / 8 < 2 ? $(nproc) / 8 : 2))
has_default() {
	[ "$(fetchers | wc -l)" = "$default" ]
}
mount_logging "$source" -d
"$BIN/patterns" forward "$file" "$source/tokenizer.model" || fail "without the option"
wait_until "without the option there are $default fetchers" has_default
unmount_counting
[ "$default" -gt 0 ] || same "without the option" "$fetched" ""
mount_logging "$FIXTURES/data/tales_text_document" -d
unmount_counting
same "datasets alone" "$fetched" ""

# O_DIRECT is past the page cache.
mount_fetching 2 -d
dd if="$file" of="$work/copy" iflag=direct bs=1M 2>/dev/null || fail "O_DIRECT"
cmp "$work/copy" "$source/tokenizer.model" || fail "O_DIRECT"
unmount_counting
same "O_DIRECT: what was fetched" "$fetched" "$nothing"

two_fetchers() {
	[ "$(fetchers | wc -l)" = 2 ]
}

# Who reads byte after byte gets the right bytes, each read once, and some of them were fetched: how many is a matter of
# who is faster. Small files need nobody.
for pattern in forward mapping; do
	mount_fetching 2 -d
	cat "$mnt"/hf/*.json >/dev/null
	no_fetchers || fail "there are fetchers before there is a stream"
	"$BIN/patterns" "$pattern" "$file" "$source/tokenizer.model" || fail "$pattern"
	cmp "$file" "$source/tokenizer.model" || fail "$pattern: the bytes in the page cache"
	wait_until "$pattern: there are two fetchers" two_fetchers
	for pid in $(fetchers); do
		same "what a fetcher has open" "$(readlink "/proc/$pid/fd"/* | sed 's/:.*//' | sort | uniq -c | xargs)" "3 /dev/null 1 socket"
	done
	pids=$(fetchers)
	unmount_counting
	# shellcheck disable=SC2086
	all_ended $pids || fail "$pattern: fetchers outlive the daemon"
	read -r streams _ bytes _ _ pieces _ processes _ <<<"$fetched"
	if [ "$streams" -lt 1 ] || [ "$processes" != 2 ] || [ "$pieces" -lt 1 ] || [ "$bytes" -lt 1000000 ]; then
		fail "$pattern: $fetched"
	fi
	size=$(stat -c %s "$source/tokenizer.model")
	if [ "$bytes_read" -lt "$size" ] || [ "$bytes_read" -gt $((size + (1 << 20))) ]; then
		fail "$pattern: $bytes_read bytes of $size were read"
	fi
done

# One thread answers readers and fetchers alike.
mount_fetching 2 -s
cmp "$file" "$source/tokenizer.model" || fail "with -s"
unmount

# A reader ends in the middle and unmounts at once: the mount is not busy. So it is when he is killed.
not_busy() {
	umount "$mnt" 2>/dev/null || fusermount3 -u "$mnt" || fail "the mount is busy after $1"
}
for _ in 1 2 3 4 5 6; do
	mount_source "$source" -o prefetch=2
	if is_root; then
		"$BIN/patterns" forward "$file" "$source/tokenizer.model" 12582912 "$mnt" || fail "the mount is busy"
		mount_source "$source" -o prefetch=2
	fi
	cat "$file" >/dev/null &
	reader=$!
	read -rn 1 _ <"$file"
	kill -s KILL "$reader"
	wait "$reader" 2>/dev/null
	not_busy "a reader was killed"
done

# A signal ends it under load.
for signal in TERM KILL; do
	mount_fetching 2
	(while cat "$file" && dd if="$file" iflag=nocache count=0; do :; done) >/dev/null 2>&1 &
	reader=$!
	wait_until "there are fetchers" some_fetchers
	pids=$(fetchers)
	kill -s "$signal" "$daemon"
	wait "$daemon" 2>/dev/null
	daemon=
	# shellcheck disable=SC2086
	wait_until "SIG$signal of the daemon ends the fetchers" all_ended $pids
	wait "$reader"
	[ $signal = TERM ] || umount -l "$mnt" 2>/dev/null || fusermount3 -u -z "$mnt"
	wait_until "the mount is gone" not_mounted
done

# So does a daemon without fetchers that are killed: it reads on, and says it once for each.
mount_fetching 2
"$BIN/patterns" forward "$file" "$source/tokenizer.model" 16777216 || fail "the beginning alone"
wait_until "there are fetchers" some_fetchers
for pid in $(fetchers); do kill -s KILL "$pid"; done
cmp "$file" "$source/tokenizer.model" || fail "after the fetchers were killed"
wait_until "killed fetchers are buried" no_fetchers
unmount
same "messages" "$(grep -c 'prefetch: process [0-9]* has ended' "$log")" 2

# One that is stopped holds up a reader's close for a moment alone.
mount_fetching 1
"$BIN/patterns" forward "$file" "$source/tokenizer.model" 16777216 || fail "the beginning alone"
wait_until "there are fetchers" some_fetchers
kill -s STOP "$(fetchers)"
cmp "$file" "$source/tokenizer.model" || fail "with a stopped fetcher"
pids=$(fetchers)
unmount
all_ended "$pids" || fail "a stopped fetcher outlives the daemon"

# A source that is rewritten is an error for its readers, as ever.
mount_fetching 2
exec 5<"$file"
dd bs=1M count=20 <&5 2>/dev/null | cmp -n 20971520 - "$work/copy" || fail "before the source is rewritten"
printf x | dd of="$source/tokenizer.model" bs=1 seek=130000000 conv=notrunc 2>/dev/null
cat <&5 2>"$work/said" >"$work/rest"
cmp -n "$(stat -c %s "$work/rest")" "$work/rest" <(tail -c +20971521 "$work/copy") || fail "wrong bytes of a rewritten source"
grep -qi stale "$work/said" || fail "a rewritten source: $(cat "$work/said")"
exec 5<&-
unmount

# A mount of a user without privileges: fetchers are the user's processes, too.
if is_root && command -v setpriv fusermount3 >/dev/null && setpriv --reuid 65534 --regid 65534 --clear-groups test -w /dev/fuse; then
	chmod -R a+rX "$source"
	mkdir -m 777 "$work/user"
	mnt=$work/user/mnt
	as_user="setpriv --reuid 65534 --regid 65534 --clear-groups"
	$as_user mkdir "$mnt"
	$as_user "$MCOREFS" "$source" "$mnt" -f -o prefetch=2 2>>"$log" >/dev/null &
	daemon=$! serving=$!
	wait_until "the mount stands" grep -q " $mnt " /proc/self/mounts
	$as_user cmp "$mnt/hf/tokenizer.model" "$source/tokenizer.model" || fail "a mount of a user's"
	same "users of a user's fetchers" "$(for pid in $(fetchers); do awk '/^Uid:/ { print $2 }' "/proc/$pid/status"; done | xargs)" "65534 65534"
	$as_user fusermount3 -u "$mnt" || fail "a user's unmount"
	expect_clean_end
else
	echo "skipped: prefetch/user: needs root, setpriv, and fusermount3 for others than root"
fi
