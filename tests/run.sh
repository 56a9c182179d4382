#!/bin/bash
# Runs suites of tests and counts: tests/run.sh SUITE...
#
# A case is a command. It passes with exit status 0, is skipped with 77 (its last line says why), and
# fails with any other. A case that ends with a line "N passed, N failed, N skipped" counts as that
# many; its lines "skipped: NAME: why" are shown. The last line of this script is the sum.
#
# Before it stands what each suite has taken of the processors (user and system seconds of all processes that a case has
# started, daemons too), and its budget. MCOREFS_TEST_COSTS=1 says the same of each case.
#
# MCOREFS_TEST_SEED is what random changes and fuzzing begin with: by default the day, so that a failure is found again
# with the number that is printed first. Dear cases run every second day, by the same number; with MCOREFS_ALL_LAYOUTS=1
# all of them run.
set -u
# What a machine or a person has set is not for tests to depend on.
export LC_ALL=C.UTF-8
umask 022
# OpenBLAS sums in another order on each generation of processors: a norm that bf16 rounds was 0.78 to 1.42 % from
# Megatron's, by the kernels. Every x86-64 of the last ten years has these.
[ "$(uname -m)" != x86_64 ] || export OPENBLAS_CORETYPE=Sandybridge
unset MAKEFLAGS MFLAGS MAKELEVEL
cd "$(dirname "$0")/.." || exit 1

O=${O:-build}
jobs=${JOBS:-$(($(nproc) + 2))} # more than processors: many cases wait for something
export MCOREFS_TEST_SEED=${MCOREFS_TEST_SEED:-$(date -u +%Y%m%d)}
# Seconds of a processor that a suite is meant to take. More is no failure; it is for its next author to earn.
declare -A budget=([make]=1 [mount-san]=100 [unit]=360 [train]=400 [mount]=150 [damage]=80 [fuzz-corpus]=10 [fuzz-smoke]=50
	[giants]=20)
# Cases that take turns, each beside others of the same code: those with 0 on one day, those with 1 on the next.
declare -A turns=([unit.asan-kernels_ref]=0 [unit.tsan-save]=1 [unit.tsan-save_parts]=0 [unit.emulate_attention]=1 [unit.asan-save]=0
	[unit.tsan-remote_cache]=0 [unit.tsan-loader]=1 [unit.asan-read_memory]=1 [train.hosts]=0 [train.groups]=1
	[damage.asan-llama-zarr-tp2-zarr-0000001]=0 [damage.llama-zarr-tp2-zarr-0000001]=1)
runner=$(realpath -m "$O/obj/tests/runner/case")
failed_logs=$(realpath -m "$O")/failed

base=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$base/mcorefs-check-XXXXXX") || exit 1
chmod 755 "$TMPDIR" # cases look at their mounts as other users
logs=$TMPDIR/logs
mkdir "$logs"
MCOREFS=$(realpath -m "$O/mcorefs")
BIN=$(realpath -m "$O/obj/tests/mount")
FIXTURES=$PWD/tests/fixtures
export TMPDIR MCOREFS BIN FIXTURES O
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
# A guard leaves its signal handler by siglongjmp, which newer ThreadSanitizers take for still being in it.
export TSAN_OPTIONS=second_deadlock_stack=1:report_signal_unsafe=0:${TSAN_OPTIONS:-}

# A container may refuse what the sanitizers want: LeakSanitizer traces its process, and gcc's
# ThreadSanitizer does not fit around every randomised address space.
fixed_addresses=(setarch -R)
setarch -R true 2>/dev/null || fixed_addresses=()
"$O/asan/mcorefs" --version >/dev/null 2>&1 || ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS
tsan_works() {
	"${fixed_addresses[@]}" "$O/tsan/mcorefs" --version >/dev/null 2>&1
}

# Ends the cases that still run, unmounts what a failed one has left, deepest first, and removes the work directories.
clean_up() {
	local pid
	for pid in $(jobs -rp); do kill "$pid" 2>/dev/null; done
	wait
	awk -v dir="$TMPDIR/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r m; do
		umount -l "$m" 2>/dev/null || fusermount3 -u -z "$m" 2>/dev/null
	done
	rm -rf "$TMPDIR"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

summary='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'

# judge NAME STATUS COST SECONDS: the case's log becomes "passed failed skipped" in NAME.count, and a line.
judge() {
	local name=$1 status=$2 log=$logs/$1.log last passed=0 failed=0 skipped=0
	last=$(tail -n 1 "$log")
	if [[ $last =~ $summary ]]; then
		read -r passed _ failed _ skipped _ <<<"${last//,/}"
		if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
	elif [ "$status" = 0 ]; then
		passed=1
	elif [ "$status" = 77 ]; then
		skipped=1
		echo "skipped: ${name/./\/}: ${last:-no reason given}"
	else
		failed=1
	fi
	grep -a '^skipped: ' "$log"
	if [ "$failed" != 0 ]; then
		mkdir -p "$failed_logs" && cp "$log" "$failed_logs"
		echo "FAILED ${name/./\/} (exit status $status); the end of $failed_logs/$name.log:"
		tail -n 40 "$log" | sed 's/^/    /'
	elif [ "$passed" != 0 ]; then
		echo "ok ${name/./\/} ($passed) $3 s of $4"
	fi
	grep -a '^measured: ' "$log"
	echo "$passed $failed $skipped" >"$logs/$name.count"
}

# run_case NAME SECONDS COMMAND...: SECONDS are of the processors. What hangs takes none, so the clock has a limit, too, that
# is far from what a busy machine needs.
run_case() {
	local name=$1 limit=$2 began=$SECONDS
	shift 2
	mkdir -p "$TMPDIR/$name"
	TMPDIR=$TMPDIR/$name "$runner" "$logs/$name.cost" "$limit" $((limit + 900)) "$@" >"$logs/$name.log" 2>&1 </dev/null &
	local pid=$! status
	# It has a process group of its own: who ends the run alone would leave it.
	trap 'kill "$pid" 2>/dev/null; wait "$pid"; exit 143' TERM
	wait "$pid"
	status=$?
	judge "$name" $status "$(cat "$logs/$name.cost" 2>/dev/null)" $((SECONDS - began))
	rm -rf "${TMPDIR:?}/$name"
}

# has_turn NUMBER NAME: whether the case runs today, as one of those with an even or an odd number.
has_turn() {
	[ -z "${MCOREFS_ALL_LAYOUTS:-}" ] && [ $(((MCOREFS_TEST_SEED + $1) % 2)) = 1 ] || return 0
	echo "$2" >>"$logs/turns"
	return 1
}

# The same while others run.
start_case() {
	[ -z "${turns[$1]:-}" ] || has_turn "${turns[$1]}" "$1" || return 0
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
	run_case "$@" &
}

# What the build itself promises.
suite_make() {
	run_case make.sanitizers 60 tests/make.sh
}

suite_unit() {
	local t name sources
	sources=$(find tests/unit -name 'test_*.c')
	for t in tests/kernels/emulate_*.cpp; do
		name=${t##*/}
		name=${name%.cpp}
		if [ -x "$O/asan/$name" ]; then
			start_case "unit.$name" 600 "$O/asan/$name"
		else
			start_case "unit.$name" 10 sh -c 'echo there is no C++ compiler here; exit 77'
		fi
	done
	# Those that make has built or, without make, all that are there.
	local programs=("$O"/tsan/tests/unit/test_* "$O"/asan/tests/unit/test_* "$O"/obj/tests/unit/test_*)
	# shellcheck disable=SC2206
	[ -z "${UNIT_PROGRAMS:-}" ] || programs=($UNIT_PROGRAMS)
	for t in "${programs[@]}"; do
		if [ ! -x "$t" ] || ! grep -qF "/${t##*/}.c" <<<"$sources"; then continue; fi
		name=${t#"$O"/}
		name=unit.${name%%/*}-${t##*/test_}
		case $t in
		*/tsan/*)
			if tsan_works; then
				start_case "$name" 900 "${fixed_addresses[@]}" "$t"
			else
				start_case "$name" 900 sh -c 'echo ThreadSanitizer does not run here; exit 77'
			fi
			;;
		*) start_case "$name" 900 "$t" ;;
		esac
	done
}

# is_program FILE: it is run, or it cannot be and that is seen. What other scripts read has no such line.
is_program() {
	[ "$(head -c 2 "$1")" = '#!' ]
}

# Real runs of training: scripts in tests/train, on the CPU.
suite_train() {
	local t
	for t in tests/train/*.sh; do
		! is_program "$t" || start_case "train.$(basename "$t" .sh)" 900 env BACKEND=cpu "$t"
	done
}

# Every seed and every input that must be refused, as plain tests under ASan and UBSan.
suite_fuzz-corpus() {
	local t name
	for t in tests/fuzz/fuzz_*.c; do
		name=${t##*/fuzz_}
		name=${name%.c}
		start_case "fuzz-corpus.$name" 900 "$O/asan/replay/fuzz_$name" "tests/fuzz/corpus/$name" "tests/fuzz/reject/$name"
	done
}

# fuzz_for SECONDS SUITE [OPTION]: new inputs stay out of the tree; what is found lands in build/fuzz/found.
# libFuzzer's own exit status for a finding is 77, which says "skipped" here.
fuzz_for() {
	local t name number=0 found=$O/fuzz/found
	mkdir -p "$found"
	for t in tests/fuzz/fuzz_*.c; do
		name=${t##*/fuzz_}
		name=${name%.c}
		number=$((number + 1))
		[ "$2" = fuzz ] || has_turn $number "$2.$name" || continue
		if [ ! -x "$O/fuzz/fuzz_$name" ]; then
			start_case "$2.$name" 10 sh -c 'echo clang has no libFuzzer here; exit 77'
			continue
		fi
		mkdir -p "$O/fuzz/corpus/$name"
		start_case "$2.$name" $(($1 + 600)) "$O/fuzz/fuzz_$name" -max_total_time="$1" ${3+"$3"} -timeout=60 -rss_limit_mb=1024 -error_exitcode=1 \
			-malloc_limit_mb=512 -print_final_stats=1 -artifact_prefix="$found/$name-" \
			"$O/fuzz/corpus/$name" "tests/fuzz/corpus/$name" "tests/fuzz/reject/$name"
	done
	wait
}

# Half of the targets a day.
suite_fuzz-smoke() {
	fuzz_for "${FUZZ_SMOKE_SECONDS:-2}" fuzz-smoke -seed="$MCOREFS_TEST_SEED"
}

suite_fuzz() {
	jobs=1 fuzz_for "${FUZZ_SECONDS:-600}" fuzz
}

# Each small fixture in a process of its own; under ASan fewer changes, as it is ten times slower. Those that are
# there for their optimizer, or fit no HF family, are read through a Megatron view. A word of run_config.yaml that is
# changed is one that nobody knows, and the model another, so Bridge's are not damaged. What torch wrote before 1.6
# has no sums, and with a byte changed it is another checkpoint, whole in itself: it is cut, and nothing in it is
# changed.
suite_damage() {
	local dir name
	for dir in tests/fixtures/*/*/iter_*; do
		name=$(basename "$(dirname "$dir")")-$(basename "$(dirname "$(dirname "$dir")")")-${dir##*iter_}
		case $dir in
		*corrupt* | tests/fixtures/hybrid/bridge/*) continue ;;
		tests/fixtures/optim/* | tests/fixtures/hybrid/*-mtp/* | tests/fixtures/hybrid/*-fused/*)
			start_case "damage.$name" 900 "$O/obj/tests/damage/damage" "$dir" "${DAMAGE_CHANGES:-500}" megatron/torch_dist
			continue
			;;
		tests/fixtures/old/2020-09/* | tests/fixtures/old/v1.0-tp2/*)
			start_case "damage.$name" 900 "$O/obj/tests/damage/damage" "$dir" 0
			continue
			;;
		esac
		start_case "damage.$name" 900 "$O/obj/tests/damage/damage" "$dir" "${DAMAGE_CHANGES:-1000}"
		start_case "damage.asan-$name" 900 "$O/asan/tests/damage/damage" "$dir" "${DAMAGE_CHANGES_ASAN:-100}"
	done
	damage_data
}

# Datasets: of Megatron, alone and two as one; made up ones; of HuggingFace.
damage_data() {
	local data=tests/fixtures/data variant changes name
	for variant in obj asan; do
		changes=${DAMAGE_CHANGES:-1000}
		[ $variant = obj ] || changes=${DAMAGE_CHANGES_ASAN:-100}
		for name in notes tales multimodal gaps overflowed; do
			[ ! -f "$data/${name}_text_document.idx" ] || name=$data/${name}_text_document
			start_case "damage.$variant-${name##*/}" 900 "$O/$variant/tests/damage/damage_data" "$changes" "$name"
		done
		start_case "damage.$variant-merged" 900 "$O/$variant/tests/damage/damage_data" "$changes" \
			"$data/notes_text_document" "$data/tales_text_document"
		for name in saved indices 'dict train' 'cache train'; do
			# shellcheck disable=SC2086
			set -- $name
			start_case "damage.$variant-hf-$1" 900 "$O/$variant/tests/damage/damage_hf" "$data/hf_dataset/$1" "$changes" ${2+"$2"}
		done
	done
}

# Scripts, each with a mount point of its own. Nothing in them depends on the time that they get.
suite_mount() {
	local t name
	for t in tests/mount/*.sh; do
		name=${t##*/}
		case $name in lib*) continue ;; esac
		start_case "mount.${name%.sh}" 900 "$t"
	done
}

# sanitized VARIANT CASE: a mount case with a daemon of that variant. What the daemon reports fails it. A case that does
# the same with each fixture does it with a few: threads do not know one family from another, and damage reads every
# small fixture under ASan.
sanitized() {
	export MCOREFS TMPDIR
	MCOREFS=$(realpath "$O/$1/mcorefs")
	export ASAN_OPTIONS=detect_leaks=0:$ASAN_OPTIONS:log_path=$TMPDIR/report
	export UBSAN_OPTIONS=$UBSAN_OPTIONS:log_path=$TMPDIR/report
	export TSAN_OPTIONS=$TSAN_OPTIONS:log_path=$TMPDIR/report
	export MCOREFS_FEW_SOURCES=1
	"tests/mount/$2.sh"
	local status=$?
	cat "$TMPDIR"/report* 2>/dev/null && status=1
	return $status
}

# The cases with many readers and changing sources again: each under TSan on one day, under ASan and UBSan on the next.
suite_mount-san() {
	local variant name number
	export -f sanitized
	for variant in tsan asan; do
		[ $variant = tsan ] && number=0 || number=1
		for name in megatron views_at_once prefetch sources storm readers gateway dataset_cache unlisted retention live saved_again; do
			number=$((number + 1))
			has_turn $number "mount-$variant.$name" || continue
			if [ $variant = tsan ] && ! tsan_works; then
				start_case "mount-tsan.$name" 10 sh -c 'echo ThreadSanitizer does not run here; exit 77'
			else
				start_case "mount-$variant.$name" 900 "${fixed_addresses[@]}" \
					bash -c "sanitized $variant $name"
			fi
		done
	done
}

# Alone: it measures.
suite_giants() {
	wait
	(run_case giants.giants 900 tests/giants/giants.sh)
}

# Of each case, the dearest first.
print_cases() {
	for cost in "$logs"/*.cost; do
		printf 'cost: %8.2f s  %s\n' "$(<"$cost")" "$(basename "$cost" .cost)"
	done | sort -rnk2
}

print_budgets() {
	local used
	for suite; do
		# shellcheck disable=SC2086 # a pattern: mount-san's are mount-asan and mount-tsan
		used=$(cat "$logs"/${suite/-san/-?san}.*.cost 2>/dev/null | awk '{ s += $1 } END { printf "%.0f", s }')
		echo "processors: $suite took $used s of its budget of ${budget[$suite]:-no} s"
	done
}

echo "seed: MCOREFS_TEST_SEED=$MCOREFS_TEST_SEED"
for suite; do
	"suite_$suite"
done
wait
[ -z "${MCOREFS_TEST_COSTS:-}" ] || print_cases
[ ! -s "$logs/turns" ] || echo "another day's turn (MCOREFS_ALL_LAYOUTS=1): $(wc -l <"$logs/turns") cases: $(tr '\n' ' ' <"$logs/turns")"
print_budgets "$@"
read -r passed failed skipped < <(cat "$logs"/*.count 2>/dev/null | awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
