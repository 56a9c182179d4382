# Runs of several processes, and whether they train as one process does: on the CPU, by mpirun; with BACKEND=cuda on GPUs, one a process, or with
# ONE_GPU=1 all on the first one (tests/gpu/launch.sh). Sourced by tests, which say what they set out with:
#
#   . tests/train/processes.sh
#   processes_begin NAME       work: a directory that goes with the script; passed, failed, skipped: counts
#   processes_end              the last line, and the exit status
. tests/train/families.sh
train=${MCOREFS_TRAIN:-$(realpath -m "${O:-build}")/mcorefs-train}
fixtures=tests/fixtures/resume
declare -A at=(
	[llama]=$fixtures/llama-torch-tp2-pp2
	[qwen2]=$fixtures/qwen2-torch-tp2-dp2-distopt
	[deepseek]=$fixtures/deepseek-torch_dist-pp2-ep2
)
# Processes of a test may be more than processors; a container has one user.
launcher=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n)
backend=(--backend cpu --threads 1)
if [ "${BACKEND:-cpu}" = cuda ]; then
	launcher=(timeout -k 5 180 tests/gpu/launch.sh)
	backend=(--backend cuda)
fi
passed=0 failed=0 skipped=0
pid=

processes_begin() {
	[ "${BACKEND:-cpu}" = cuda ] || command -v mpirun >/dev/null || { echo "there is no mpirun here"; exit 77; }
	[ "${BACKEND:-cpu}" = cuda ] || [ -e "$(dirname "$train")/libmcorefs-mpi.so" ] || { echo "it was built without MPI"; exit 77; }
	work=$(mktemp -d "${TMPDIR:-/tmp}/$1-XXXXXX") || exit 1
	trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; rm -rf "$work"' EXIT
}

processes_end() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ]
}

# run N LOG ARGUMENT...: args, by N processes
run() {
	local n=$1 log=$2
	shift 2
	if [ "$n" = 1 ]; then
		"$train" "${args[@]}" "${backend[@]}" "$@" >"$log" 2>&1
	else
		"${launcher[@]}" "$n" "$train" "${args[@]}" "${backend[@]}" "$@" >"$log" 2>&1
	fi
}

# ranks WORDS: the processes of runs whose command line has these words, in no order. (Where pgrep is not installed, too.)
ranks() {
	local dir words
	for dir in /proc/[0-9]*; do
		{ mapfile -d '' -t words <"$dir/cmdline"; } 2>/dev/null || continue
		[ "${words[0]:-}" = "$train" ] && [[ "${words[*]}" == *"$1"* ]] && echo "${dir#/proc/}"
	done
	return 0
}

# What a log says of iterations and validations, but for times: numbers apart by ' '.
rows() {
	sed -nE -e 's/^ \[[^]]*\] (iteration .*) elapsed time[^|]*(\| learning rate.* number of nan iterations: .*)$/\1\2/p' \
		-e '/^ *validation[^ ]* loss at/p' "$1" | tr -s '|: ' ' '
}

# alike A B COUNT [WITHIN]: numbers of two logs agree within so much of their value, and there are as many rows as expected
alike() {
	rows "$1" >"$work/a"
	rows "$2" >"$work/b"
	awk -v count="$3" -v within="${4:-1e-5}" '
		NR == FNR { line[FNR] = $0; n = FNR; next }
		{ seen = FNR; m = split(line[FNR], x, " "); if (m != NF) bad = bad " row " FNR
		  for (i = 1; i <= NF; i++) if ($i != x[i]) {
			d = $i - x[i]; if (d < 0) d = -d
			if (!($i ~ /^[0-9.E+-]+$/ && d <= within * ($i < 0 ? -$i : $i) + ($i ~ /E/ ? 0 : 1.1e-3))) bad = bad " " $i "/" x[i] " in row " FNR } }
		END { if (seen != n || n != count) bad = bad " " n + 0 " and " seen + 0 " rows, not " count
		      if (bad) print "differs:" bad; exit bad != "" }' "$work/a" "$work/b"
}

# verdict STATUS NAME: with the ends of logs that were written since the last one
verdict() {
	local log
	if [ "$1" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "FAILED: $2"
		for log in "$work/log" "$work"/n*.log; do
			[ "$log" -nt "$work/verdict" ] && tail -v -n 12 "$log"
		done
	fi
	touch "$work/verdict"
}

# skip WHAT WHY: one case
skip() {
	skipped=$((skipped + 1))
	echo "skipped: train/$(basename "$0" .sh): $1: $2"
}

# gradients VARIANT N NAME=VALUE...: of every parameter, of random models (tests/train/gradients.c)
gradients() {
	local variant=$1 n=$2
	shift 2
	[ "${BACKEND:-cpu}" != cuda ] || return 0 # a program of the CPU's
	# MPI keeps what it has allocated.
	env CK_FORK=no MPI="$(dirname "$train")/libmcorefs-mpi.so" ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" "$@" \
		"${launcher[@]}" "$n" "$(dirname "$train")/$variant/tests/train/gradients" >"$work/log" 2>&1
	verdict $? "gradients, $* $variant"
}

# layout_levels AxB: A neighbours exchange heads, B such groups go round; types: of each layer
layout_levels() {
	# shellcheck disable=SC2206
	layout+=(--context-parallel-size $((${1/x/*})) --hierarchical-context-parallel-sizes ${1/x/ } --cp-comm-type ${types:-a2a+p2p})
}

# layout_flags N-tp2-ep2: fills the array layout with the flags of a layout
layout_flags() {
	local word
	layout=()
	for word in ${1//-/ }; do
		case $word in
		etp*) layout+=(--expert-tensor-parallel-size "${word#etp}") ;;
		ep*) layout+=(--expert-model-parallel-size "${word#ep}") ;;
		tp*) layout+=(--tensor-model-parallel-size "${word#tp}") ;;
		vpp*) layout+=(--num-virtual-stages-per-pipeline-rank "${word#vpp}") ;;
		first*) layout+=(--decoder-first-pipeline-num-layers "${word#first}") ;;
		last*) layout+=(--decoder-last-pipeline-num-layers "${word#last}") ;;
		pp*) layout+=(--pipeline-model-parallel-size "${word#pp}") ;;
		sp) layout+=(--sequence-parallel) ;;
		fsdp) layout+=(--use-megatron-fsdp) ;;
		inst*) layout+=(--num-distributed-optimizer-instances "${word#inst}") ;;
		E*) layout+=(--pipeline-model-parallel-layout "$word") ;;
		cp*x*) layout_levels "${word#cp}" ;;
		cp*) layout+=(--context-parallel-size "${word#cp}") ;;
		esac
	done
}

# todays NAME WORD...: one of the words, another one each day (MCOREFS_TEST_SEED). All of them with MCOREFS_ALL_LAYOUTS=1 and on GPUs.
todays() {
	local name=$1 sum
	shift
	if [ "${BACKEND:-cpu}" = cuda ] || [ -n "${MCOREFS_ALL_LAYOUTS:-}" ]; then
		echo "$@"
		return
	fi
	sum=$(cksum <<<"$name")
	sum=$((${sum%% *} + ${MCOREFS_TEST_SEED:-0}))
	sum=$((sum % $# + 1))
	echo "${!sum}"
}

# as_one NAME FAMILY "LAYOUT..." COUNT ARGUMENT...: processes train as one does. LAYOUT: 4-ep2 is four processes, experts divided by two; sp: with --sequence-parallel.
# One layout a day.
# A family without a fixture begins with drawn weights. sets="PREFIX...": validation sets that are kept apart.
as_one() {
	local name=$1 of=$2 layouts=$3 count=$4 n bad=0 from=()
	shift 4
	# shellcheck disable=SC2086
	layouts=$(todays "$name" $layouts)
	family_args "$of"
	# shellcheck disable=SC2086
	[ -z "${sets:-}" ] || { valid_args $sets && args+=(--multiple-validation-sets); }
	[ -z "${at[$of]:-}" ] || from=(--load "${at[$of]}" --ckpt-step 20 --exit-on-missing-checkpoint)
	run 1 "$work/n1.log" "${from[@]}" --exit-interval 4 "$@" || bad=1
	for n in $layouts; do
		layout_flags "$n"
		run "${n%%-*}" "$work/n$n.log" "${from[@]}" --exit-interval 4 "${layout[@]}" "$@" &&
			alike "$work/n1.log" "$work/n$n.log" "$count" "${within:-1e-5}" || bad=1
	done
	verdict $bad "$name: $layouts"
}
