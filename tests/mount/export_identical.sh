#!/bin/bash
# What export writes is what the mount shows: names, bytes, times; with and without io_uring.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
out=$work/out

for source in "$FIXTURES"/weights/* "$FIXTURES"/resume/*; do
	name=$(basename "$source")
	said=$("$m" export "$source" hf "$out" -o shard_size=200kB) || fail "$name: export"
	[[ $said =~ ^exported\ iter_[0-9]+/hf\ to\ .*files,.*B/s ]] || fail "$name: '$said'"
	same "$name: lines of output" "$(wc -l <<<"$said")" 1
	"$m" verify "$source" hf --deep --sums -o shard_size=200kB >"$work/sums" || fail "$name: verify"
	(cd "$out" && sha256sum --quiet -c "$work/sums") || fail "$name: sums differ"
	mount_source "$source" -o shard_size=200kB
	diff -r "$mnt/latest/hf" "$out" || fail "$name: export and mount differ"
	same "$name: times" "$(cd "$out" && stat -c '%n %s %y' -- *)" \
		"$(cd "$mnt/latest/hf" && stat -c '%n %s %y' -- *)"
	same "$name: ls" "$("$m" ls "$source" hf -o shard_size=200kB | awk '{ print $5, $2 }' | sort)" \
		"$(cd "$out" && stat -c '%n %s' -- * | sort)"
	unmount
	mode=0$(stat -c %a "$(find "$source"/iter_* -type f | head -n 1)")
	same "$name: modes" "$(stat -c %a "$out"/* | sort -u)" "$(printf %o $(((mode | 0600) & 0644 & ~$(umask))))"
	[ ! -e "$out/.mcorefs-export.json" ] || fail "$name: a journal was left"
	[ ! -e "$out.mcorefs-partial" ] || fail "$name: a partial directory was left"
	rm -r "$out"
done

# The same bytes by plain system calls, where a sandbox forbids io_uring.
source=$(echo "$FIXTURES"/weights/gpt2-torch-*)
"$m" export "$source" hf "$work/a" >/dev/null || fail "export"
said=$("$BIN/deny_uring" "$m" export "$source" latest/hf "$work/b") || fail "export without io_uring"
[[ $said == *pwrite* ]] || fail "io_uring was used where it is forbidden: $said"
diff -r "$work/a" "$work/b" || fail "the engines differ"
