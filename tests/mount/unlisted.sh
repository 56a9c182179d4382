#!/bin/bash
# Any user may look up as many layouts and specs as he likes: none is the last one. One thread and many at once, with and without
# files that are written next to them.
. "$(dirname "$0")/lib.sh"

cp -a "$FIXTURES/data/notes_text_document".{bin,idx} "$work"
source=$FIXTURES/weights/llama-torch-tp2-pp2
data=data/notes_text_document

# names COUNT PREFIX SUFFIX: of directories that are looked up alone.
names() {
	for i in $(seq "$1"); do echo "$2$i$3"; done
}
all_are_there() {
	[ "$(xargs stat -c %F 2>&1 | sort | uniq -c | tr -s ' ')" = " $1 directory" ]
}

# enter FIRST: what is in them, too.
enter() {
	local i
	for i in $(seq "$1" 7 150); do
		ls -l "$mnt/$data/samples/train-s8-n$i" >/dev/null || return 1
		cat "$mnt/$data/samples/train-s8-n$i"/* >/dev/null || return 1
		[ $((i % 5)) != 0 ] || cat "$mnt"/latest/megatron/torch/tp1-pp2-vpp2/iter_*/*/*.pt >/dev/null || return 1
	done
}

for options in "" "-o dataset_cache=$work/cache"; do
	# shellcheck disable=SC2086
	mount_foreground "$source" -o data="$work/notes_text_document" $options
	names 5000 "$mnt/$data/samples/train-s8-n" "" | all_are_there 5000 || fail "5000 specs in a row"
	exec 5<"$mnt/$data/samples/train-s8-n1/state.json"
	ino=$(stat -c %i "$mnt/$data/samples/train-s8-n1/state.json")
	enter 1 & first=$!
	enter 2 & second=$!
	names 500 "$mnt/$data/samples/train-s8-seed" "" | all_are_there 500 || fail "specs beside readers"
	wait $first || fail "a reader of specs"
	wait $second || fail "another reader of specs"
	same "number of a file that was open" "$(stat -c %i "$mnt/$data/samples/train-s8-n1/state.json")" "$ino"
	same "a file that was open" "$(sha256sum <&5)" "$(sha256sum <"$mnt/$data/samples/train-s8-n1/state.json")"
	exec 5<&-
	[ ! -e "$mnt/$data/samples/train-s0" ] || fail "a spec that cannot be"
	unmount
	same "messages" "$(errors)" ""
done
