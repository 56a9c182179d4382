#!/bin/bash
# How many public command lines a plan takes: 24 launch scripts (slime, LLM-jp, ModelOpt, MoE-ModelZoo, FlagScale) and the configurations of
# Megatron-LM's functional tests. Data and tokenizers are made up, and the processes are the fewest of the layout.
# tests/fixtures/train_lines: flags.txt has a flag and its words a line, with tabs between; scripts.txt and configs.txt have a name, how many
# have these flags, and their lines in flags.txt, from 0 on.
set -u
cd "$(dirname "$0")/../.." || exit 1
train=${MCOREFS_TRAIN:-$(realpath -m "${O:-build}")/mcorefs-train}
lines=tests/fixtures/train_lines
passed=0 failed=0
mapfile -t flags <$lines/flags.txt

# count LIST: taken and all are how many of its lines are taken, and how many there are; the others' sentences are printed
count() {
	local name times numbers i words said
	taken=0 all=0
	while read -r name times numbers; do
		words=
		for i in $numbers; do
			words+=${flags[i]}$'\t'
		done
		IFS=$'\t' read -ra words <<<"$words"
		all=$((all + times))
		if said=$("$train" "${words[@]}" --dry-run 2>&1 >/dev/null); then
			taken=$((taken + times))
		else
			printf '%s: %s\n' "$name" "${said%%$'\n'*}"
			# A line that is refused is refused with a sentence.
			[[ $said == 'mcorefs-train: --'* ]] || failed=$((failed + 1))
		fi
	done <"$lines/$1.txt"
}

# at_least N LIST
at_least() {
	count "$2"
	if [ "$taken" -ge "$1" ]; then
		passed=$((passed + 1))
		echo "$2: $taken of $all are taken"
	else
		failed=$((failed + 1))
		echo "FAILED: $2: $taken of $all are taken, expected $1"
	fi
}

# Those that are refused have layers or optimizers that are not trained here, or save in formats that are not written.
at_least 18 scripts
at_least 216 configs
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
