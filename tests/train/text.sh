#!/bin/bash
# README's way from a text file to a training step: its two commands as they stand there, and what comes of them.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=$(realpath -m "${O:-build}")
fixture=$PWD/tests/fixtures/data
readme=$PWD/README.md
work=$(mktemp -d "${TMPDIR:-/tmp}/text-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ln -s "$fixture/tokenizer" "$fixture/tales.jsonl" "$work"
cd "$work" || exit 1

# command WORD: README's, which begins with it, without what its next lines print
command_of() {
	sed -n "/^\*\*From a text file/,/^The dataset/s/^\(\$ \| *--\)/\1/p" "$readme" |
		awk -v word="$1" '/^\$/ { on = index($0, "$ " word " ") == 1 } on { sub(/^\$ /, ""); print }'
}

packs() {
	eval "PATH=$bin:\$PATH; $(command_of 'mcorefs pack')" >log 2>&1 && cmp tales.bin "$fixture/tales_text_document.bin" &&
		cmp tales.idx "$fixture/tales_text_document.idx"
}

trains() {
	eval "PATH=$bin:\$PATH; $(command_of mcorefs-train) --backend cpu --log-interval 1" >log 2>&1 && grep -q ' iteration  *20/ ' log
}

# The loss falls, as random tokens would not have it.
learns() {
	sed -nE 's/.*lm loss: ([^ ]+) \|.*/\1/p' log | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 20 && last < first - 0.1) }'
}

shows() {
	"$bin/mcorefs" sample tales --step 1 --text --train-iters 20 --global-batch-size 8 --seq-length 1024 --data-path tales >log 2>&1 &&
		[ "$(wc -l <log)" = 8 ] && grep -q '"text": "[^"]*<|endoftext|>[^"]*"' log && ! grep -q '"tokens"' log
}

for test in packs trains learns shows; do
	if $test; then
		passed=$((passed + 1))
	else
		echo "FAILED: $test" && sed 's/^/log: /' log && failed=$((failed + 1))
	fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
