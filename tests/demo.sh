#!/bin/bash
# make demo: what mcorefs does, on a small checkpoint that vLLM takes, too.
set -u
cd "$(dirname "$0")/.." || exit 1

mcorefs=$PWD/${O:-build}/mcorefs
sample=tests/fixtures/sample
iteration=iter_0000410
corpus=tests/fixtures/data/tales_text_document
train=$PWD/${O:-build}/mcorefs-train
work=$(mktemp -d "${TMPDIR:-/tmp}/mcorefs-demo-XXXXXX") || exit 1
mnt=$work/mnt

clean_up() {
	mountpoint -q "$mnt" 2>/dev/null && "${unmount[@]}"
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}

# show COMMAND...: prints it as a person would type it, and runs it.
show() {
	printf '$ %s\n' "$*" | sed "s|$mcorefs|mcorefs|g; s|$work|/tmp|g"
	"$@"
}

if [ "$(id -u)" = 0 ]; then unmount=(umount "$mnt"); else unmount=(fusermount3 -u "$mnt"); fi

fail() {
	printf 'demo failed: %s\n' "$*" >&2
	exit 1
}

sums() {
	(cd "$1" && sha256sum -- *)
}

say "A checkpoint of Megatron's format torch_dist: 4 ranks, TP 2, PP 2, virtual pipeline"
show ls -A "$sample/$iteration"
show "$mcorefs" inspect "$sample" || fail "inspect"

say "The same as a HuggingFace model, written out (the copy that a mount saves)"
show "$mcorefs" export "$sample" hf "$work/copy" || fail "export"

if [ ! -c /dev/fuse ]; then
	say "There is no /dev/fuse here, so it cannot be mounted. Without a mount:"
	show "$mcorefs" ls "$sample" || fail "ls"
	head -c 600 "$work/copy/config.json"
	show "$mcorefs" verify "$sample" --deep || fail "verify"
	say "The demo has ended well, without its mount. In a container: docker run --device /dev/fuse --cap-add SYS_ADMIN"
	exit 0
fi

say "The same as a HuggingFace model, mounted: nothing is converted or copied"
mkdir "$mnt"
show "$mcorefs" "$sample" "$mnt" || fail "mount"
show ls -lL "$mnt" "$mnt/latest/hf"
printf '$ head -n 12 /tmp/mnt/latest/hf/config.json\n'
head -n 12 "$mnt/latest/hf/config.json"

say "Every byte read through the mount, against the written copy"
sums "$mnt/latest/hf" >"$work/mounted" || fail "a file cannot be read"
sums "$work/copy" >"$work/written" || fail "the copy cannot be read"
cat "$work/mounted"
cmp "$work/mounted" "$work/written" || fail "the mount and the copy differ"
echo "identical"
say 'The same for Megatron-LM on two GPUs, for --load: any layout is there when it is asked for'
show ls -LR "$mnt/latest/megatron/torch/tp2-pp1" || fail "the view at another layout"
sums "$mnt/latest/megatron/torch/tp2-pp1/$iteration/mp_rank_00" || fail "a file cannot be read"
show "${unmount[@]}" || fail "umount"

say "A dataset as Megatron-LM wrote it, mounted: for datasets.load_from_disk, DuckDB, numpy, and as training samples"
show "$mcorefs" "$corpus" "$mnt" || fail "mount of a dataset"
dataset=$mnt/data/tales_text_document
show ls "$dataset" "$dataset/hf" "$dataset/parquet" "$dataset/samples"
printf '$ head -c 100 /tmp/mnt/data/tales_text_document/jsonl/*.jsonl\n'
head -c 100 "$dataset"/jsonl/*.jsonl || fail "a file of the dataset cannot be read"
printf '...\n'
show cmp "$corpus.bin" "$dataset/megatron/tales_text_document.bin" || fail "the tokens have changed"
show ls -l "$dataset/samples/train-s128-n226" || fail "training samples"
sums "$dataset/hf" >/dev/null || fail "a file of the dataset cannot be read"
show "${unmount[@]}" || fail "umount"

say "The run goes on: mcorefs-train takes pretrain_gpt.py's arguments, reads the checkpoint, streams the dataset, trains and saves"
run=$work/run
mkdir "$run"
cp -r tests/fixtures/resume/llama-torch_dist-tp2-pp2/{iter_0000040,latest_checkpointed_iteration.txt} "$run" || fail "copy"
echo 40 >"$run/latest_checkpointed_iteration.txt"
show "$mcorefs" "$run" "$mnt" || fail "mount of a run"
show "$train" --load "$run" --use-checkpoint-args --bf16 --save "$run" --save-interval 10 --async-save \
	--data-path 0.7 "$corpus" 0.3 tests/fixtures/data/notes_text_document --split 90,10,0 --tokenizer-type HuggingFaceTokenizer \
	--tokenizer-model tests/fixtures/data/tokenizer --micro-batch-size 2 --global-batch-size 8 --train-iters 60 --lr 1e-4 \
	--lr-decay-style constant --override-opt-param-scheduler --eval-iters 0 --log-interval 5 || fail "training"
say "The mount stayed up: the checkpoint that was just saved is a HuggingFace model"
for ((i = 0; i < 50; i++)); do
	[ ! -d "$mnt/iter_0000060/hf" ] || break
	sleep 0.2
done
show ls -l "$mnt" || fail "the mount of the run"
show ls -lL "$mnt/latest/hf" || fail "the new iteration's hf/"
sums "$mnt/iter_0000060/hf" >"$work/new" || fail "a file of the new iteration cannot be read"
cat "$work/new"
show "${unmount[@]}" || fail "umount"

cat <<END

The demo has ended well. Next, with a checkpoint of yours (a directory with latest_checkpointed_iteration.txt):
  build/mcorefs inspect CHECKPOINT            what it is, what is missing
  build/mcorefs CHECKPOINT MOUNTPOINT         then: from_pretrained("MOUNTPOINT/latest/hf"), vllm serve MOUNTPOINT/latest/hf
  build/mcorefs PREFIX MOUNTPOINT             then: load_from_disk("MOUNTPOINT/data/NAME/hf")
  make install                                and mount -t mcorefs CHECKPOINT MOUNTPOINT
END
