#!/bin/bash
# What tests/gdb/mcorefs.py prints of a pickle, an arena and a plan, while a program runs. It mounts nothing.
. "$(dirname "$0")/lib.sh"

command -v gdb >/dev/null || skip "gdb is not installed"
gdb -nx -batch -x tests/gdb/mcorefs.py -ex 'set confirm off' -ex 'set debuginfod enabled off' -ex 'break mfs_pickle_free if doc != 0' \
	-ex 'break mfs_plan_free' -ex run -ex 'print *doc' -ex 'print doc->arena' -ex 'pickle doc doc->root' -ex 'delete 1' -ex continue \
	-ex 'print *plan' --args "$MCOREFS" verify "$FIXTURES/weights/llama-torch-tp2-pp2" hf --deep >"$work/gdb" 2>&1
! grep -qiE 'ptrace|not permitted|No symbol table|scripting is not supported' "$work/gdb" || skip "gdb cannot look at programs here: $(grep -iE -m1 'ptrace|not permitted|No symbol|scripting' "$work/gdb")"
grep -q "^\$1 = {'args': argparse.Namespace(.*'iteration': 40," "$work/gdb" || fail "a pickle: $(grep -F '$1' "$work/gdb")"
grep -qE '^\$2 = [0-9]+ bytes in [0-9]+ blocks' "$work/gdb" || fail "an arena: $(grep -F '$2' "$work/gdb")"
[ "$(grep -c "'iteration': 40," "$work/gdb")" = 2 ] || fail "the command pickle: $(<"$work/gdb")"
grep -qF '$3 = [1024, 64] of MFS_BF16 shown as MFS_BF16, 2 bands, 2 blocks' "$work/gdb" || fail "a plan: $(grep -F '$3' "$work/gdb")"
