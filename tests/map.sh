#!/bin/bash
# tests/map.sh: the table of tests/README.md that says where the unit tests of a folder are. Those of a folder of two levels lie
# in the folder of tests/unit that has its name. Those of a deeper one are those there that include its headers or, if none
# does, headers of the upper one. Of a folder without any, those elsewhere that include its headers follow in brackets.
set -u
export LC_ALL=C
mapfile -t tests < <(git ls-files -- 'tests/unit/*/test_*.c')

folders() {
	git ls-files -- formats fs kernels trainer | grep -E '\.(c|h|cu|cuh)$' | sed 's|/[^/]*$||' | sort -u
}

# names: of the unit tests whose paths are the input, on one line.
names() {
	sed 's|.*/test_||; s|\.c$||' | sort | paste -sd' '
}

# with_headers FOLDER: those of the tests whose paths are the input that include a header of it.
with_headers() {
	xargs -r grep -lE "^#include \"$1/[^/]+\""
}

echo '| folder | its unit tests |'
echo '|---|---|'
folders | while read -r folder; do
	two_levels=$(cut -d/ -f1-2 <<<"$folder")
	there=$(printf '%s\n' "${tests[@]}" | grep "^tests/unit/$two_levels/test_")
	if [ "$two_levels" = "$folder" ]; then
		row=$(names <<<"$there")
	else
		row=$(with_headers "$folder" <<<"$there" | names)
		row=${row:-$(with_headers "$two_levels" <<<"$there" | names)}
	fi
	if [ -z "$row" ]; then
		row=$(printf '%s\n' "${tests[@]}" | with_headers "$folder" | names)
		row=${row:+($row)}
	fi
	[ -z "$row" ] || echo "| \`$folder\` | $row |"
done
