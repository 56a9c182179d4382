#!/bin/bash
# tests/coverage.sh DIR [TEST...]: runs unit tests of a build with --coverage in DIR, all of them or those named, and writes
# DIR/coverage.txt: for each source file the percentage of its lines that ran, the least first.
set -u
export LC_ALL=C.UTF-8
dir=$1
shift
[ $# != 0 ] || set -- $(find tests/unit -name 'test_*.c' | sed 's|.*/||; s/\.c$//' | sort)

find "$dir" -name '*.gcda' -delete
failed=0
for test; do
	CK_FORK=no OPENBLAS_CORETYPE=Sandybridge "$dir/obj/tests/unit/$test" >"$dir/log" 2>&1 || { echo "$test has failed: $(tail -n 1 "$dir/log")" >&2 && failed=1; }
done
if command -v gcovr >/dev/null; then
	gcovr -r . --object-directory "$dir" -e tests -s --txt "$dir/coverage.txt" >/dev/null
else
	find "$dir" -name '*.gcda' | while read -r data; do
		gcov -n -o "${data%/*}" "$data" 2>/dev/null
	done | awk -F"'" '
		/^File/ { file = $2 }
		/^Lines executed/ && file !~ /^(\/|tests\/)/ { split($0, p, "[:% ]"); if (!(file in most) || p[3] > most[file]) most[file] = p[3] }
		END { for (f in most) printf "%6.1f %s\n", most[f], f }' | sort -n >"$dir/coverage.txt"
fi
head -n 10 "$dir/coverage.txt"
echo "$dir/coverage.txt: $(wc -l <"$dir/coverage.txt") files"
exit $failed
