#!/bin/bash
# make: all processors without being told, and installing as a user, elsewhere, and for a package.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"
command -v make >/dev/null || skip "make is missing"
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES

# With a build that is finished: nothing is compiled.
build=$work/build
mkdir "$build"
cp "$MCOREFS" "$build/mcorefs"
cp "${MCOREFS%/*}/mcorefs-train" "${MCOREFS%/*}/libmcorefs.so.0" "$build"
touch "$build/config.mk"
done_already=(-s --no-print-directory "O=$build" -o "$build/mcorefs" -o "$build/mcorefs-train" -o "$build/libmcorefs.so.0" -o "$build/config.mk" NVCC=)

# jobs EXPECTED [OPTION...]: what a recipe's make is told about jobs.
printf 'include Makefile\nshow:\n\t@echo "$$MAKEFLAGS"\n' >"$work/show.mk"
said_jobs() {
	tr ' ' '\n' | grep -E '^-j[0-9]*$' | xargs
}
jobs() {
	same "make ${*:2}: jobs" "$(make "${done_already[@]}" -f "$work/show.mk" show "${@:2}" | said_jobs)" "$1"
}
jobs "-j$(nproc)"
jobs -j1 -j1
jobs -j7 -j7
jobs -j7 -j 7
jobs -j7 -kj7
jobs -j7 --jobs=7
jobs -j -j
(export MAKEFLAGS=-j7 && jobs -j7) || exit 1
# shellcheck disable=SC2016
printf 'all:\n\t+@$(MAKE) %s -f %s show\n' "${done_already[*]}" "$work/show.mk" >"$work/above.mk"
same "below a make with a jobserver" "$(make -s -j7 -f "$work/above.mk" | said_jobs)" -j7
jobs "" clean O="$work/cleaned"
# Goals that are to run alone wait for each other.
order=$(make -n "${done_already[@]}" -f - mount damage 2>/dev/null <<<$'include Makefile\nmount damage: tests=' |
	grep -oE 'tests/run.sh [a-z]*' | xargs)
same "two goals" "$order" "tests/run.sh mount tests/run.sh damage"

# A package's build.
make "${done_already[@]}" install DESTDIR="$work/dest" >/dev/null || fail "make install DESTDIR"
same "DESTDIR" "$(cd "$work/dest" && echo sbin/* usr/local/bin/*)" \
	"sbin/mount.fuse.mcorefs sbin/mount.mcorefs usr/local/bin/mcorefs usr/local/bin/mcorefs-train"
grep -qx 'program=/usr/local/bin/mcorefs' "$work/dest/sbin/mount.mcorefs" || fail "DESTDIR: the helper's program"
for page in man1/mcorefs.1 man3/mcorefs.3 man8/mount.mcorefs.8; do
	[ -s "$work/dest/usr/local/share/man/$page" ] || fail "DESTDIR: $page"
done
same "the library" "$(cd "$work/dest/usr/local" && echo lib/libmcorefs* lib/pkgconfig/* include/*)" \
	"lib/libmcorefs.so lib/libmcorefs.so.0 lib/libmcorefs.so.$("$MCOREFS" --version | cut -d' ' -f2) lib/pkgconfig/mcorefs.pc include/mcorefs.h"
make "${done_already[@]}" uninstall DESTDIR="$work/dest" >/dev/null || fail "make uninstall DESTDIR"
same "after make uninstall" "$(cd "$work/dest" && find . ! -type d)" ""

# Elsewhere: the helper finds its program with no PATH at all.
source=$(echo "$FIXTURES"/weights/gpt2-*)
make "${done_already[@]}" install PREFIX="$work/opt" >/dev/null || fail "make install PREFIX"
for helper in mount.mcorefs mount.fuse.mcorefs; do
	env -i "$work/opt/sbin/$helper" "$source" "$mnt" -o rw || fail "$helper of another PREFIX: status $?"
	mounted || fail "$helper of another PREFIX has mounted nothing"
	unmount
done
make "${done_already[@]}" install PREFIX="$work/opt" SBINDIR="$work/sbin" >/dev/null || fail "make install SBINDIR"
[ -x "$work/sbin/mount.mcorefs" ] || fail "SBINDIR does not count"

# A user, who may write in his home alone.
why=$(why_nobody_cannot_mount)
[ -z "$why" ] || skip "all but a user's make install: $why"
as_nobody test -r Makefile || skip "all but a user's make install: nobody cannot read the Makefile"
mkdir "$work/home"
chown nobody "$work/home" "$mnt"
chmod -R a+rX "$build"
as_nobody env HOME="$work/home" make "${done_already[@]}" install 'PREFIX=~/.local' >/dev/null 2>"$log" || fail "a user's make install"
same "what a user's make install says" "$(cat "$log")" ""
as_nobody env -i "$work/home/.local/sbin/mount.mcorefs" "$source" "$mnt" || fail "a user's helper: status $?"
as_nobody fusermount3 -u "$mnt" || fail "a user cannot unmount"
