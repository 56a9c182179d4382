#!/bin/bash
# .ci/run: who reads its output to the end does not wait for what a test has left, which is named and ended.
. "$(dirname "$0")/lib.sh"
[ -x .ci/run ] || skip ".ci is not here"
command -v make >/dev/null || skip "make is missing"
unset CI CI_JOBS MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES

tree=$work/tree
mkdir -p "$tree/.ci" "$tree/tests/interop"
cp .ci/run "$tree/.ci"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" = --install ] && echo installing && exit ${INSTALL_STATUS:-0}\n' >"$tree/tests/interop/run.sh"
printf '#!/bin/sh\necho "deps $*"\nexit ${INSTALL_STATUS:-0}\n' >"$tree/tests/deps.sh"
chmod +x "$tree/tests/interop/run.sh" "$tree/tests/deps.sh"

recipes() {
	printf 'check:\n\t@%s\ninterop:\n\t@%s\n' "$1" "$2" >"$tree/Makefile"
}

# run_with CHECK INTEROP: two recipes; what is printed up to the end of file is in $said. A hang ends after a minute.
run_with() {
	recipes "$1" "$2"
	said=$(timeout -s KILL 60 "$tree/.ci/run" 2>&1)
	status=$?
	[ $status != 137 ] || fail "no end of file: $said"
}

run_with "echo '3 passed, 0 failed, 1 skipped'" "echo '2 passed, 0 failed, 0 skipped'"
same "a good run" "$status $(tail -n 1 <<<"$said")" "0 5 passed, 0 failed, 1 skipped"
grep -E '^deps|tail:' <<<"$said" && fail "a machine of somebody is to have new packages, or a file was not there: $said"
run_with "echo '3 passed, 1 failed, 1 skipped'; exit 1" "echo '2 passed, 0 failed, 0 skipped'"
same "a failed test" "$status $(tail -n 1 <<<"$said")" "1 5 passed, 1 failed, 1 skipped"
run_with "kill -9 \$\$\$\$" "echo '2 passed, 0 failed, 0 skipped'"
same "a step that was killed" "$status $(tail -n 1 <<<"$said")" "1 2 passed, 1 failed, 0 skipped"

run_with "setsid sleep 7654 & echo '3 passed, 0 failed, 1 skipped'" "echo '2 passed, 0 failed, 0 skipped'"
same "a process that is left" "$status $(tail -n 1 <<<"$said")" "1 5 passed, 1 failed, 1 skipped"
grep -qE '^left behind by check: process [0-9]+: .*sleep 7654' <<<"$said" || fail "a process that is left is not named: $said"
pid=$(grep -oE 'process [0-9]+' <<<"$said" | cut -d' ' -f2)
wait_until "what was left has ended" ended "$pid"

source=$(echo "$FIXTURES"/weights/gpt2-*)
run_with "mkdir \$\$TMPDIR/m; $MCOREFS $source \$\$TMPDIR/m && echo '3 passed, 0 failed, 1 skipped'" "echo '2 passed, 0 failed, 0 skipped'"
same "a mount that is left" "$status $(tail -n 1 <<<"$said")" "1 5 passed, 1 failed, 1 skipped"
place=$(sed -n 's/^left behind by check: a mount on //p' <<<"$said")
[ -n "$place" ] || fail "a mount that is left is not named: $said"
grep -q " $place " /proc/self/mounts && fail "a mount that was left is there"

# A directory that somebody has open of a mount that answers nobody.
cat >"$work/hang.sh" <<-END
	mkdir "\$TMPDIR/m"
	setsid "$MCOREFS" "$source" "\$TMPDIR/m" -f >/dev/null 2>&1 &
	echo \$! >"$work/pids"
	until mountpoint -q "\$TMPDIR/m"; do sleep 0.1; done
	setsid sleep 7656 <"\$TMPDIR/m" >/dev/null 2>&1 &
	echo \$! >>"$work/pids"
	until [ /proc/\$!/fd/0 -ef "\$TMPDIR/m" ]; do sleep 0.1; done
	kill -s STOP "\$(head -n 1 "$work/pids")"
	while timeout -s KILL 2 stat "\$TMPDIR/m"; do sleep 0.1; done >/dev/null 2>&1
	echo '3 passed, 0 failed, 1 skipped'
END
recipes "bash $work/hang.sh" "echo '2 passed, 0 failed, 0 skipped'"
said=$(timeout -s KILL 60 "$tree/.ci/run" 2>&1)
status=$?
xargs kill -s KILL <"$work/pids"
same "a mount that hangs" "$status $(tail -n 1 <<<"$said")" "1 5 passed, 1 failed, 1 skipped"

# Who ends it ends the step and the cases in it, too.
runner=${BIN%/mount}/runner/case
[ -x "$runner" ] || fail "$runner is not built"
mkdir -p "$tree/tests/mount" "$tree/build/obj/tests/runner"
cp tests/run.sh "$tree/tests"
cp "$runner" "$tree/build/obj/tests/runner"
printf '#!/bin/sh\necho $$ >%s/pid\nexec sleep 7657\n' "$work" >"$tree/tests/mount/long.sh"
chmod +x "$tree/tests/mount/long.sh"
recipes "tests/run.sh mount" "echo '2 passed, 0 failed, 0 skipped'"
"$tree/.ci/run" >"$work/said" 2>&1 </dev/null &
daemon=$!
wait_until "the case runs" test -s "$work/pid"
kill "$daemon"
wait_until "the case has ended" ended "$(cat "$work/pid")"
wait "$daemon"
same "a run that is ended" "$?" 130
daemon=

# Unit tests that an earlier build has left are not run.
mkdir -p "$tree/build/obj/tests/unit" "$tree/tests/unit"
for name in new old; do
	: >"$tree/tests/unit/test_$name.c"
	printf '#!/bin/sh\n[ %s = new ]\n' $name >"$tree/build/obj/tests/unit/test_$name"
	chmod +x "$tree/build/obj/tests/unit/test_$name"
done
said=$(cd "$tree" && UNIT_PROGRAMS=build/obj/tests/unit/test_new O=build tests/run.sh unit 2>&1)
same "unit tests of an earlier build" "$(tail -n 1 <<<"$said" | cut -d, -f1,2)" "1 passed, 0 failed"
make -n unit | grep -q "^UNIT_PROGRAMS='[^']*/asan/tests/unit/test_str " || fail "make names no unit tests"

# What a case took of the processors has the daemons in it that it has left; limits are of these seconds, and of the clock
# for what hangs. (What is left here ends by itself.)
costs() {
	"$runner" "$work/cost" "$@" >"$work/said" 2>&1
}
busy='for ((i = 0; i < 100000; i++)); do :; done'
costs 100 100 bash -c "(setsid bash -c '$busy' &) ; exit 3"
same "a case that leaves a daemon" $? 3
awk '{ exit !($1 > 0.05 && $1 < 50) }' "$work/cost" || fail "a daemon is not in what its case took: $(<"$work/cost") s"
costs 100 100 sleep 0.1
awk '{ exit !($1 < 0.05) }' "$work/cost" || fail "a case that sleeps took $(<"$work/cost") s"
costs 0.2 100 bash -c 'while :; do :; done'
same "a case that takes more than it may" "$? $(grep -c '^no end after ' "$work/said")" "124 1"
costs 100 1 bash -c 'trap : TERM; until ! sleep 7658; do :; done'
same "a case that hangs" "$? $(grep -c '^no end after 0 s of the processors' "$work/said")" "124 1"

said=$(STEP_SECONDS=1 && export STEP_SECONDS && run_with "sleep 7655" "echo '2 passed, 0 failed, 0 skipped'" && echo "$said")
grep -q '^check: no end after 1 s' <<<"$said" || fail "a step without an end: $said"

export CI=true INSTALL_STATUS=1
run_with "echo '3 passed, 0 failed, 1 skipped'" "echo '2 passed, 0 failed, 0 skipped'"
same "packages that cannot be installed" "$status $(tail -n 1 <<<"$said")" "0 5 passed, 0 failed, 1 skipped"
grep -qx installing <<<"$said" || fail "packages that cannot be installed: the log is not shown"
same "what a machine for tests is to have, before the tests" "$(grep -n '^deps' <<<"$said")" $'1:deps try servers\n2:deps try large'
