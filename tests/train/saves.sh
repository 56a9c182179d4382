#!/bin/bash
# Checkpoints that several processes write, each its part: any number of processes goes on from them as if the run had not ended; one that
# is killed or fails in the middle of a save leaves the old checkpoint or the new one, whole.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/train/processes.sh
processes_begin saves
RANDOM=${SEED:-$$}
echo "seed: ${SEED:-$$}"
small=$work/small
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; umount "$small" 2>/dev/null; rm -rf "$work"' EXIT

# written PROCESSES: each has written its part; with $legacy there are so many files of ranks and nothing else of tensors
written() {
	if [ -n "${legacy:-}" ]; then
		[ "$(find "$work/saved"/iter_* -name '*.pt' | wc -l)" = "$legacy" ] &&
			[ -z "$(find "$work/saved"/iter_* -name '*.distcp' -o -name .metadata -o -name integrity.json -o -name metadata.json)" ]
		return
	fi
	[ "$(find "$work/saved"/iter_* -name '__*.distcp' | sed -E 's/.*__([0-9]+)_.*/\1/' | sort -u | wc -l)" = "$1" ]
}

# goes_on NAME FAMILY LAYOUT "LAYOUT..." ARGUMENT...: what the first layout saves after two steps, the others go on with
goes_on() {
	local name=$1 of=$2 saver=$3 others=$4 n bad=0 from=()
	shift 4
	family_args "$of"
	[ -z "${at[$of]:-}" ] || from=(--load "${at[$of]}" --ckpt-step 20)
	run 1 "$work/n1.log" "${from[@]}" --exit-interval 4 "$@" || bad=1
	rm -rf "$work/saved"
	layout_flags "$saver"
	run "${saver%%-*}" "$work/n-$saver.log" "${from[@]}" --save "$work/saved" --save-interval 2 --exit-interval 2 \
		"${layout[@]}" "$@" || bad=1
	written "${saver%%-*}" || bad=1
	for n in $others; do
		layout_flags "$n"
		run "${n%%-*}" "$work/n-$n.log" --load "$work/saved" --exit-interval 4 "${layout[@]}" "$@" &&
			alike <(grep -E 'iteration +2?[34]/' "$work/n1.log") "$work/n-$n.log" 2 || bad=1
	done
	verdict $bad "$name"
}

# whole DIR: what the tracker names has the sums that its manifest says.
whole() {
	local at
	at=$1/iter_$(printf %07d "$(cat "$1/latest_checkpointed_iteration.txt")")
	[ -f "$at/.metadata" ] || return 1
	(cd "$at" && sed -nE 's/^ *"(.*)": "([0-9a-f]{64})",?$/\2  \1/p' integrity.json >"$work/sums" &&
		[ "$(wc -l <"$work/sums")" -gt 3 ] && sha256sum -c --quiet "$work/sums")
}

# killed: a run that saves after each step, one process of which is killed when it writes; what is there is whole
killed() {
	local i
	: >"$work/log"
	"${launcher[@]}" 2 "$train" "${args[@]}" "${backend[@]}" "$@" "${long[@]}" --save "$work/killed" --save-interval 1 >"$work/log" 2>&1 &
	pid=$!
	for ((i = 0; i < 3000; i++)); do
		! { grep -q 'number of nan' "$work/log" && compgen -G "$work/killed/*.tmp" >/dev/null; } || break
		kill -0 $pid 2>/dev/null || return 1
		sleep 0.01
	done
	sleep 0.$((RANDOM % 10))
	kill -KILL "$(ranks "--save $work/killed" | shuf -n 1)"
	wait $pid 2>/dev/null
	pid=
	[ ! -e "$work/killed/latest_checkpointed_iteration.txt" ] || whole "$work/killed"
}

goes_on "stages and tensors, saved by four, resumed at other layouts" llama 4-tp2-pp2 "1 2-pp2-E|tt|tt|L 2-tp2 4-tp2 4"
goes_on "the distributed optimizer, saved by four, resumed by one and two" qwen2 4-tp2 "1 2" --use-distributed-optimizer
goes_on "two instances of it, resumed by one, by two, by two instances and by one of four" qwen2 4-inst2 "1 2 4-inst2 4" --use-distributed-optimizer
goes_on "experts, saved by two, resumed by one and four" deepseek 2-ep2 "1 4-ep4"
goes_on "latents whose down projections are divided" deepseek 2-tp2-sp "1 4-tp2-sp-ep2"
goes_on "experts and the distributed optimizer" mixtral "4-ep2-pp2-Et*3|tL" "2-ep2 2" --use-distributed-optimizer
goes_on "experts and two instances" mixtral 4-ep2-inst2 "2-ep2 4-ep2 4-ep2-inst2" --use-distributed-optimizer --overlap-grad-reduce
goes_on "FSDP, saved by two, resumed by one and divided otherwise; and the reverse" llama 2-fsdp "1 2-tp2 4-fsdp-tp2"
goes_on "gated delta nets, whose rows are sections" next 4-tp2-pp2 "1 2-tp2" --use-distributed-optimizer
legacy=2 goes_on "legacy files of gated delta nets" next 2-tp2 "1 2-pp2" --ckpt-format torch
legacy=6 goes_on "Muon's layer-wise files of four ranks" mixtral 4-ep2 1 --optimizer dist_muon --muon-fp32-matmul-prec high --ckpt-format torch
legacy=4 goes_on "legacy files of four ranks" llama 4-tp2-pp2 "1 2-tp2" --ckpt-format torch
legacy=4 goes_on "legacy files and the distributed optimizer" qwen2 4-tp2 2 --use-distributed-optimizer --ckpt-format torch
legacy=8 goes_on "legacy files of experts, stages by a layout" mixtral "4-ep2-pp2-Et*3|tL" 2-ep2 --use-distributed-optimizer --ckpt-format torch

family_args llama
bad=0
from=(--load "${at[llama]}" --ckpt-step 20)
long=(--train-iters 100000 --override-opt-param-scheduler) # it has not ended when it is killed
for ((round = 0; round < 4 && !bad; round++)); do
	killed "${from[@]}" || bad=1
	[ ! -e "$work/killed/latest_checkpointed_iteration.txt" ] || from=(--load "$work/killed")
done
verdict $bad "a process that is killed while it saves"
run 2 "$work/log" "${from[@]}" "${long[@]}" --save "$work/killed" --save-interval 5 --exit-interval 20 && whole "$work/killed" && ! compgen -G "$work/killed/*.tmp" >/dev/null &&
	grep -q "^\[exiting program at iteration $(cat "$work/killed/latest_checkpointed_iteration.txt")\] datetime: " "$work/log"
verdict $? "and the run goes on to its end"

mkdir "$small"
if mount -t tmpfs -o size=9m none "$small" 2>/dev/null; then
	run 2 "$work/log" --load "${at[llama]}" --ckpt-step 20 --save "$small/run" --save-interval 1 --exit-interval 24
	[ $? = 1 ] && grep -q 'was not saved: rank [01] on .*: .*No space left' "$work/log" &&
		[ "$(grep -c 'iteration  *2[1-4]/' "$work/log")" = 4 ] && whole "$small/run" && ! compgen -G "$small/run/*.tmp" >/dev/null
	verdict $? "a disk that is full: training goes on"
else
	skip "a disk that is full" "no file system can be mounted here"
fi
processes_end
