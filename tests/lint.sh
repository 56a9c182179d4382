#!/bin/bash
# tests/lint.sh FILE...: format, widths, headers that compile alone, layering. CC, CFLAGS and OBJECTS, the folder of the product's
# objects, from the Makefile.
set -u
export LC_ALL=C
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
	echo "lint: $*" >&2
	failed=1
}

# forbid PATTERN WHY FILE...
forbid() {
	local pattern=$1 why=$2
	shift 2
	[ $# = 0 ] && return
	if grep -nE "$pattern" "$@" /dev/null; then complain "$why"; fi
}

formats=() fs=() kernels=() trainer=() headers=()
for f; do
	case $f in
	formats/*) formats+=("$f") ;;
	fs/*) fs+=("$f") ;;
	kernels/*) kernels+=("$f") ;;
	trainer/*) trainer+=("$f") ;;
	esac
	case $f in *.h) headers+=("$f") ;; esac
done

# shellcheck disable=SC2206
cuda_code=(${CUDA_CODE-})
if command -v clang-format >/dev/null; then
	clang-format --dry-run --Werror "$@" "${cuda_code[@]}" || complain "run: make format"
else
	echo "lint: no clang-format here, the format is not looked at"
fi
for h in "${headers[@]}"; do
	# shellcheck disable=SC2086
	printf '#include "%s"\n' "$h" | ${CC:-cc} $CFLAGS -fsyntax-only -x c - || complain "$h does not compile alone"
done

forbid '\b(exit|abort|printf|fprintf|perror|syslog)\(' "the library speaks or exits" "${formats[@]}" "${kernels[@]}" $(printf '%s\n' "${cuda_code[@]}" | grep ^kernels/)
not_fuse=()
for f in "${formats[@]}" "${fs[@]}" "${kernels[@]}" "${trainer[@]}"; do
	case $f in fs/fuse/*) ;; *) not_fuse+=("$f") ;; esac
done
forbid '#include <fuse' "libfuse is for fs/fuse alone" "${not_fuse[@]}"

not_mhd=()
for f in "${formats[@]}" "${fs[@]}" "${kernels[@]}" "${trainer[@]}"; do
	case $f in fs/http/mhd_*) ;; *) not_mhd+=("$f") ;; esac
done
forbid '#include <microhttpd' "libmicrohttpd is for fs/http/mhd_* alone" "${not_mhd[@]}"

# Who includes whom: exactly the arrows of tests/arrows, and no circle of folders. What only CUDA's compiler reads is of it.
mapfile -t cuda < <(find kernels/cuda -name '*.h' -o -name '*.cu' -o -name '*.cuh')
arrows() {
	grep -oE '^#include "(formats|fs|kernels|trainer)/[^"]+' "${formats[@]}" "${fs[@]}" "${kernels[@]}" "${cuda[@]}" "${trainer[@]}" /dev/null | sed 's/:#include "/ /' |
		awk '{ for (i = 1; i <= 2; i++) sub("/[^/]*$", "", $i) } $1 != $2 { print $1, $2 }' | sort -u
}
allowed() {
	sed 's/ *#.*//' tests/arrows | awk -F': *' '{ n = split($2, to, " "); for (i = 1; i <= n; i++) print $1, to[i] }' | sort -u
}
while read -r way from to; do
	case $way in
	"<") complain "$from must not include from $to (tests/arrows)" ;;
	">") complain "tests/arrows: nothing in $from includes from $to" ;;
	esac
done < <(diff <(arrows) <(allowed) | grep '^[<>]')
circle=$(allowed | tsort 2>&1 >/dev/null) || complain "tests/arrows has a circle: $(echo $circle)"

# A header *_i.h is for its own folder, and for tests.
while read -r from header; do
	[ "${from%/*}" = "${header%/*}" ] || complain "$from includes $header, which is private to ${header%/*}"
done < <(grep -oE '^#include "[^"]+_i\.h' "${formats[@]}" "${fs[@]}" "${kernels[@]}" "${cuda[@]}" "${trainer[@]}" /dev/null | sed 's/:#include "/ /')

# Who calls whom, as the objects in $OBJECTS say: what a folder defines for others a header of its own declares, and a
# folder calls none but those that it includes from, or that these do.
symbols() {
	(cd "$OBJECTS" && find formats fs kernels trainer -name '*.o' | while read -r o; do [ ! -f "$OLDPWD/${o%.o}.c" ] || echo "$o"; done |
		xargs nm -gA) | sed 's/:/ /' | awk '{ sub("/[^/]*$", "", $1); print $1, $(NF - 1), $NF }' | sort -u
}
declared() {
	for h in "${headers[@]}"; do grep -oE '\b(mf[kst]|mcorefs)_\w+' "$h" | sed "s|^|${h%/*} |"; done | sort -u
}
reached() {
	allowed | awk '
		{ to[$1] = to[$1] " " $2 }
		function go(from, at,    n, i, next_) {
			n = split(to[at], next_, " ")
			for (i = 1; i <= n; i++)
				if (!((from, next_[i]) in seen)) {
					seen[from, next_[i]] = 1
					print from, next_[i]
					go(from, next_[i])
				}
		}
		END { for (f in to) go(f, f) }'
}
# FOLDER DEFINER SYMBOL, where the two folders differ.
calls() {
	symbols | awk '$2 != "U" { at[$3] = $1 } $2 == "U" { used[$1 " " $3] = 1 }
		END { for (u in used) { split(u, p, " "); if (p[2] in at && at[p[2]] != p[1]) print p[1], at[p[2]], p[2] } }' | sort
}
calls >"$work/calls"
[ -s "$work/calls" ] || complain "there are no objects in '$OBJECTS', so nobody knows who calls whom"
while read -r folder symbol; do
	complain "$symbol: $folder defines it for others, and no header there declares it"
done < <(comm -23 <(cut -d' ' -f2- "$work/calls" | sort -u) <(declared))
while read -r from to; do
	complain "$from must not call $to (tests/arrows): $(awk -v f="$from" -v t="$to" '$1 == f && $2 == t { print $3; exit }' "$work/calls")"
done < <(comm -23 <(cut -d' ' -f1,2 "$work/calls" | sort -u) <(reached | sort -u))

while read -r unused; do
	complain "$unused"
done < <(tests/unused.sh "$OBJECTS")

sources=()
for f in "${formats[@]}" "${fs[@]}" "${trainer[@]}"; do
	# The opener itself; what is written, and made durable; files of the overlay, which O_PATH has found to be regular;
	# what the kernel says of mounts and of memory.
	case $f in
	*.h | formats/io/regular.c | formats/io/beneath.c | formats/io/commit.c | formats/indexed/indexed_dataset_write_open.c | fs/overlay/*.c | fs/export/d*.c | fs/daemon/mountpoint.c | trainer/base/host_memory.c) ;;
	*) sources+=("$f") ;;
	esac
done
opens() {
	grep -nE '(^|[^.>_a-z])(open|openat|openat2|open64|creat|fopen|freopen|json_load_file)\(' "${sources[@]}" /dev/null |
		grep -vE 'O_DIRECTORY|O_CREAT|O_PATH|"/dev/null"|"/proc/self/|O_RDWR'
}
if opens; then complain "source files are opened with formats/io/regular.h"; fi
# What is written, renamed or removed lies in an open directory (docs/SECURITY.md, "What is written and removed"). Whole paths
# are for those that a person has given: the helper itself, logs, sockets, the file of metrics, DIR of an overlay.
forbid '(^|[^.>_a-z])(unlink|rmdir|rename|remove|mkdir|mkstemp|mkdtemp|symlink|link|nftw|creat)\(' "formats/io/beneath.h makes, renames and removes" \
	$(printf '%s\n' "${formats[@]}" "${fs[@]}" "${trainer[@]}" | grep -vE '^(formats/io/beneath|fs/http/listen|fs/fuse/(metrics|session)|fs/overlay/overlay)\.[ch]$|\.h$')
made() {
	grep -n 'O_CREAT' "${formats[@]}" "${fs[@]}" "${trainer[@]}" /dev/null |
		grep -vE 'O_EXCL|O_NOFOLLOW|mfs_beneath_|^fs/cli/log\.c:|^fs/gateway/serve\.c:|^trainer/loop/rl\.c:|\.h:'
}
if made; then complain "files are made with formats/io/beneath.h"; fi
unseeded=()
for f; do
	[ "$f" = formats/base/uthash.h ] || unseeded+=("$f")
done
forbid '#include <uthash' "hash tables are those of formats/base/uthash.h" "${unseeded[@]}"
forbid '\b(gets|alloca|strtok)\(' "function that is not used here" "$@" "${cuda_code[@]}"
forbid '\b(TODO|FIXME|XXX)\b' "unfinished" "$@" "${cuda_code[@]}"
# Comments say after, next to, given, a caller that. What is left are names of variables and files.
worded_most=7
grep -nEi '(^[[:space:]]*\* |/\*).*\b(behind|beside|whoever|is said|none of its)\b' "$@" "${cuda_code[@]}" /dev/null >"$work/worded"
if [ "$(wc -l <"$work/worded")" -gt $worded_most ]; then
	cat "$work/worded"
	complain "more than $worded_most comment lines have these words: say after, next to, given, a caller that"
fi
forbid '\btcase_set_timeout\(' "tests are limited by what they take of the processors (tests/unit/unit.c)" "$@"
# What docs/formats names is there: files, other pages, unit tests ("test_NAME: one, another").
for page in docs/formats/*.md; do
	text=$(tr '\n' ' ' <"$page")
	while read -r path; do
		[ -e "$path" ] || complain "$page: there is no $path"
	done < <(grep -oE '`(formats|fs|kernels|trainer|tests)/[^`*{ ]+`' <<<"$text" | tr -d '`'; grep -oE '\]\([a-z-]+\.md' <<<"$text" | sed 's|..|docs/formats/|')
	while IFS=: read -r test names; do
		source=$(find tests/unit -name "$test.c")
		[ -n "$source" ] || complain "$page: there is no $test.c below tests/unit"
		for name in ${names//,/ }; do
			grep -q "START_TEST($name)" "$source" || complain "$page: $test has no $name"
		done
	done < <(grep -oE '`test_[a-z0-9_]+(: [^`]+)?`' <<<"$text" | tr -d '`')
done

# A unit test lies where the folder lies that it proves, and names something of it; make knows two levels. The map is true.
while read -r file; do
	folder=$(cut -d/ -f3- <<<"${file%/*}")
	[ -d "$folder" ] && grep -q "$folder/" "$file" || complain "$file: it names nothing of $folder"
	[[ " $* " = *" $file "* ]] || complain "$file: it lies too deep, nothing builds it"
done < <(git ls-files -- 'tests/unit/*test_*.c')
git ls-files -- 'tests/unit/*test_*.c' | sed 's|.*/||' | sort | uniq -d | grep . && complain "names of unit tests are unique"
diff <(sed -n '/^| folder | its unit tests |$/,/^$/p' tests/README.md | grep .) <(tests/map.sh) || complain "tests/README.md: its map is what tests/map.sh prints"

# What docs/BLOCK.md names as `FILE: FUNCTION` is there.
while IFS=: read -r file name; do
	grep -qE "(^|[ *])${name# }\\(" "$file" || complain "docs/BLOCK.md: $file has no ${name# }"
done < <(grep -oE '`[a-z_/]+\.c: [a-z0-9_]+`' docs/BLOCK.md | tr -d '`')
while read -r file; do
	[ -e "$file" ] || complain "docs/BLOCK.md: there is no $file"
done < <(grep -oE '`(trainer|kernels)/[a-z_/]+\.[ch]' docs/BLOCK.md | tr -d '`')

# Sentences in the first columns of docs/TROUBLESHOOTING.md are the programs': each part between "…" stands in a string of theirs,
# or is a placeholder's.
literals=$(git ls-files -- 'formats/*.c' 'fs/*.c' 'trainer/*.c' 'kernels/*.c' 'mount-helpers/mount.mcorefs' | xargs cat | sed -z 's/"[[:space:]]*\n[[:space:]]*"//g')
sentences=0
while read -r part; do
	sentences=$((sentences + 1))
	grep -qF -- "$part" <<<"$literals" || complain "docs/TROUBLESHOOTING.md: no program has the sentence '$part'"
done < <(grep -E '^\| ' docs/TROUBLESHOOTING.md | cut -d'|' -f2 | grep -oE '`[^`]* [^`]* [^`]*`' | tr -d '`' | sed 's/…/\n/g' | sed 's/^ *//; s/ *$//' | grep -E '.{6}')
[ $sentences -gt 20 ] || complain "docs/TROUBLESHOOTING.md: only $sentences sentences were found"

# The manual page and the completions have all that the program knows: commands, their options, and those of -o with an effect.
known() {
	sed -n '/^} commands/,/^}/p' fs/main.c | grep -oE '"[a-z]+"' | tr -d '"'
	sed -nE 's/^	\{"([a-z_]+)", [A-Z]+, (set|add|allow)_.*/\1/p' fs/cli/option_rows.c
	grep -hoE '(\{|TEXT\(|NUMBER\(|WORDS\()"[a-z-]+", (MFS_VALUE|&|[a-z_]+\))' "${fs[@]}" | grep -oE '"[a-z-]+"' | tr -d '"' | sed 's/^/--/'
}
known | sort -u >"$work/known"
[ "$(grep -c '^--' "$work/known")" -ge 30 ] && [ "$(grep -vc '^--' "$work/known")" -ge 45 ] || complain "the tables of commands and options were not found"
for file in mount-helpers/man/mcorefs.1 mount-helpers/completions/mcorefs.bash mount-helpers/completions/_mcorefs; do
	while read -r word; do
		complain "$file: '$word' is missing"
	done < <(tr -d '\\' <"$file" | grep -oE -- '[-_a-z]+' | sort -u | comm -23 "$work/known" -)
done

# The manual page of the library and its Python package have all functions of the header; the package knows which options are paths.
functions=$(grep -oE '\bmcorefs_[a-z_]+\(' fs/lib/mcorefs.h | tr -d '(' | sort -u)
for name in $functions; do
	grep -q "$name(" mount-helpers/man/mcorefs.3 || complain "mount-helpers/man/mcorefs.3: '$name' is missing"
	case $name in mcorefs_load_wait) continue ;; esac # which is mcorefs_load_next() in a loop
	grep -q "\"${name#mcorefs_}\": (" fs/lib/python/mcorefs/_library.py || complain "fs/lib/python/mcorefs/_library.py: '$name' is missing"
done
[ "$(sed -nE 's/^	\{"([a-z_]+)", PATH, .*/"\1"/p' fs/cli/option_rows.c | sort | xargs)" = "$(sed -nE 's/^PATHS = \((.*)\)$/\1/p' fs/lib/python/mcorefs/_stub.py | tr -d ',' | xargs)" ] ||
	complain "fs/lib/python/mcorefs/_stub.py: PATHS are not the options of fs/cli/option_rows.c that are paths"

# A script of the tests that is no program is not run by them, without a word: either others read it, or git says that it is one.
while read -r mode file; do
	case $(head -c 2 "$file"),$mode in
	'#!,100755') ;;
	'#!'*) complain "$file is a program, and git does not say so: git add --chmod=+x $file" ;;
	*) grep -rqE "^ *(\.|source) .*/${file##*/}\"?( |$)" tests || complain "$file has no #! line, and no script reads it" ;;
	esac
done < <(git ls-files -s -- 'tests/*.sh' .ci/run | awk '{ print $1, $4 }')
mapfile -t scripts < <(git ls-files -- 'tests/*.sh' .ci/run | grep -vx tests/lint.sh)
mapfile -t clients < <(grep -l /dev/tcp/ "${scripts[@]}")
# Without pipefail a command that writes on when grep -q has found what it looks for does no harm.
forbid 'pipefail' "with pipefail, 'command | grep -q' fails now and then" "${scripts[@]}"
# The shell's printf writes line by line: who has answered the first line may be gone when the second comes.
forbid "(^|[^v ]) *printf .*\\\\n[^'\" ].*>&[3-9\$]" "requests go to a socket in one write (send, in tests/mount/lib.sh)" "${clients[@]}"

# A tag is one thing: the trainer's begin with mft_, those of all else with mfs_. (Each backend has its own mfk_ of a name.)
while read -r _ tag _; do
	complain "$tag is defined twice"
done < <(git ls-files -- '*.[ch]' | grep -v ^tests/ | xargs grep -hoE '^(struct|enum|union) mf[st]_[a-z0-9_]+ \{' | sort | uniq -d)
forbid '^(struct|enum|union) mfs_[a-z0-9_]+ \{' "names of the trainer begin with mft_" $(git ls-files -- 'trainer/*.[ch]')
forbid '^(struct|enum|union) mft_[a-z0-9_]+ \{' "mft_ is the trainer's" $(git ls-files -- 'fs/*.[ch]' 'formats/*.[ch]' 'kernels/*.[ch]')

# Names say what is meant, and after, next to or at the side of what.
forbid '^[^"/*]*\b([a-z_]+_)?(said|behind|beside)(_[a-z_]+)?\b' "no names: say given, named, printed, sent; after; side, next_to" "$@" "${cuda_code[@]}"
# What is not there is absent, none or unknown (docs/STYLE.md).
forbid '\bMF[KST]_([A-Z0-9]+_)*(UNSET|UNSAID|NOT_SAID|NOT_GIVEN|NOTHING|NEITHER|NOWHERE|NO_(AXIS|FILE|RANK|TOKEN|SCALES|GAP|DEST))\b' \
	"MFS_ABSENT (formats/base/absent.h), or _NONE" "$@"
forbid 'sizeof[ (]([a-z_.>-]+)\)? / sizeof[ (](\*\(?\1\b|\(?\1\)?\[0\])' "MFS_ARRAY_SIZE (formats/base/array.h)" \
	$(git ls-files -- '*.[ch]' ':!kernels' ':!tests/gpu' ':!formats/base/array.h')

# The end of a tag says what it is (docs/STYLE.md): structs of functions alone are _ops or _hooks, these have functions, and an
# enum of variants is a _kind, not a form, a way or a look.
while read -r file tag functions others; do
	case $tag in
	*_ops | *_hooks) [ "$functions" -gt 0 ] || complain "$file: struct $tag has no functions" ;;
	*) [ "$functions" -lt 2 ] || [ "$others" -gt 0 ] || complain "$file: struct $tag has functions alone: _ops or _hooks" ;;
	esac
done < <(git ls-files -- '*.[ch]' '*.cuh' ':!tests' | xargs awk '
	/^struct mf[kst]_[a-z0-9_]+ \{/ { tag = $2; functions = others = 0 }
	tag && /^\t.*\(\*[a-z0-9_]+\)\(/ { functions++; open_ = !/;/; next }
	tag && open_ { open_ = !/;/; next }
	tag && /^\t[a-z].*;/ && !/^\t(void \*arg|const char \*name);/ { others++ }
	tag && /^}/ { print FILENAME, tag, functions, others; tag = "" }')
forbid '^enum mf[kst]_[a-z0-9_]*_(form|ways?|look|holding|what|within|as|of|when|from|sort|variant|mode) \{' "an enum of variants is a _kind" \
	$(git ls-files -- '*.[ch]' '*.cuh' ':!tests')

# A file name is one file: "params.c" in a message or a debugger is clear. A backend's files are named after operations, as others are.
once() {
	while read -r name; do
		complain "more than one file is named $name"
	done < <(git ls-files -- "$@" | sed 's|.*/||' | grep -vxE 'main\.c|command\.h' | sort | uniq -d)
}
once '*.[ch]' ':!kernels'
for backend in cuda record ref; do once "kernels/$backend/*.[ch]" "kernels/$backend/*.cu" "kernels/$backend/*.cuh"; done

# Widths in columns: tabs reach to multiples of 8, and a character is one, however many bytes it has. Of prose, tables,
# code and lines with a link may be wider.
wide() {
	awk -v most="$1" -v prose="$2" '
		FNR == 1 { code = 0 }
		prose && /^ *```/ { code = !code }
		prose && (code || /^ *\|/ || /^(    |\t)/ || /\]\(/) { next }
		{
			gsub(/[\200-\277]/, "")
			while (i = index($0, "\t"))
				$0 = substr($0, 1, i - 1) sprintf("%*s", 8 - (i - 1) % 8, "") substr($0, i + 1)
		}
		length($0) > most { print FILENAME ":" FNR ": " length($0) " columns, at most " most }' "${@:3}" |
		grep . >&2
}
shopt -s globstar
if wide 100 0 "$@" "${cuda_code[@]}"; then complain "lines of C are too wide"; fi
forbid '\b(behind|whoever|none of its|(is|are|was|were|be) said)\b|\bbeside\b(\.[^c]|[^.]|\.?$)' "say after, next to, with, given, anyone who (docs/STYLE.md)" \
	$(git ls-files -- '*.md' ':!docs/STYLE.md' ':!tests/fixtures')
if wide 80 1 ./*.md docs/**/*.md tests/**/*.md; then complain "lines of prose are too wide"; fi

[ $failed = 0 ] && echo "lint: clean"
exit $failed
