#!/bin/bash
# tests/unused.sh OBJECTS: public functions that nothing calls, and struct members that nothing names, one a line. OBJECTS: the
# folder of the product's objects.
set -u
export LC_ALL=C

mapfile -t product < <(git ls-files -- 'formats/*.[ch]' 'fs/*.[ch]' 'kernels/*' 'trainer/*.[ch]')
mapfile -t tests < <(git ls-files -- 'tests/*.[ch]' 'tests/*.cpp')
words() {
	cat "$@" | grep -oE '[A-Za-z_][A-Za-z0-9_]*' | sort | uniq -c
}

# A name occurs where it is declared, where it is defined, and where somebody uses it; those that macros make occur nowhere else.
defined() {
	(cd "$1" && find formats fs kernels trainer -name '*.o' | while read -r o; do [ ! -f "$OLDPWD/${o%.o}.c" ] || echo "$o"; done | xargs nm -gA) |
		awk '$(NF - 1) == "T" { at[$NF] } $(NF - 1) == "U" { used[$NF] } END { for (s in at) if (!(s in used)) print s }' | sort
}
defined "$1" | join - <(words "${product[@]}" "${tests[@]}" | awk '{ print $2, $1 }' | sort) |
	awk '$1 != "main" && $2 == 2 { print "nothing calls " $1 }'

# Members of a file's layout that are passed over: numpy's and torch's generators.
command -v ctags >/dev/null || exit 0
comm -12 <(printf '%s\n' "${product[@]}" | grep -E '\.[ch]$' | grep -vx trainer/ckpt/save_rng.c | xargs ctags -x --c-kinds=m | awk '{ print $1 }' | sort | uniq -u) \
	<(words "${product[@]}" "${tests[@]}" | awk '$1 == 1 { print $2 }' | sort) | sed 's/^/nothing names the member /'
