#!/bin/bash
# A FIFO in the place of a source file: an error or a sentence, and nothing waits for its writer.
. "$(dirname "$0")/lib.sh"

# in_time TEXT COMMAND...: a minute is more than enough for any of these; a FIFO would take for ever.
in_time() {
	local text=$1 status
	shift
	timeout -k 1 60 "$@"
	status=$?
	if [ $status -ge 124 ]; then
		[ -z "$daemon" ] || kill -9 "$daemon" # it waits, too
		fail "$text: does not end"
	fi
	return $status
}

to_fifo() {
	rm "$1" && mkfifo "$1"
}

# says TEXT PATTERN COMMAND...
says() {
	local text=$1 pattern=$2 out
	shift 2
	out=$(in_time "$text" "$@" 2>&1)
	[[ $(tr -d '│\n' <<<"$out" | tr -s ' ') =~ $pattern ]] || fail "$text: expected '$pattern': $out"
}

copy_fixture resume/llama-torch_dist-tp2-pp2
chmod -R u+w "$ckpt"
mount_foreground "$ckpt"
part=$ckpt/iter_0000040/__1_0.distcp
# Readers of what is shown already, and of what was opened before.
in_time 'stat' stat "$mnt"/latest/hf/config.json >/dev/null || fail 'the view cannot be entered'
to_fifo "$part"
in_time 'a .distcp that became a FIFO' cat "$mnt"/latest/hf/model*.safetensors >"$work/out" 2>"$work/err" &&
	fail 'a model was read of which a part is gone'
grep -q 'Stale file handle' "$work/err" || fail "not ESTALE: $(cat "$work/err")"
# The tracker, under the mount: what was complete stays.
to_fifo "$ckpt/latest_checkpointed_iteration.txt"
in_time 'a tracker that became a FIFO' ls "$mnt" >/dev/null || fail 'the root cannot be listed'
in_time 'an older iteration' cat "$mnt"/iter_0000020/hf/config.json >/dev/null || fail 'iter_0000020 is gone'
unmount

says 'inspect: tracker' 'latest_checkpointed_iteration.txt is not a regular file' "$MCOREFS" inspect "$ckpt"
says 'inspect: .distcp' '__1_0.distcp: not a regular file' "$MCOREFS" inspect "$ckpt/iter_0000040"
to_fifo "$ckpt/iter_0000020/.metadata"
says 'inspect: .metadata' '.metadata: not a regular file' "$MCOREFS" inspect "$ckpt/iter_0000020"

copy_fixture weights/llama-torch-tp2-pp2
chmod -R u+w "$ckpt"
to_fifo "$(find "$ckpt" -name model_optim_rng.pt | sort | head -1)"
says 'inspect: rank file' 'model_optim_rng.pt: not a regular file' "$MCOREFS" inspect "$ckpt"

# Datasets.
mkdir "$work/data" && cp "$FIXTURES"/data/notes_text_document.* "$work/data"
chmod u+w "$work/data"/*
to_fifo "$work/data/notes_text_document.bin"
says 'inspect: .bin' 'not a regular file' "$MCOREFS" inspect "$work/data/notes_text_document"
exit 0
