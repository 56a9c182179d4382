#!/bin/bash
# What the Makefile has built is what it says: each variant's objects have its sanitizers, and no others.
set -u
cd "$(dirname "$0")/.." || exit 1
O=${O:-build}
object=formats/torch/pickle.o # arithmetic, shifts and pointers: every sanitizer has something to do in it
command -v nm >/dev/null || { echo 'nm is missing'; exit 77; }
failed=0 looked=0

# has VARIANT yes|no PREFIX...: symbols that the object asks the sanitizers' libraries for.
has() {
	local variant=$1 expected=$2 found prefix
	shift 2
	[ -f "$O/$variant/$object" ] || return
	looked=1
	for prefix; do
		found=no
		if nm -u "$O/$variant/$object" | grep -q " $prefix"; then found=yes; fi
		[ $found = "$expected" ] && continue
		echo "$O/$variant/$object: $prefix*: expected $expected, found $found"
		failed=1
	done
}

has obj no __asan_ __ubsan_ __tsan_ __sanitizer_cov_
has asan yes __asan_ __ubsan_
has asan no __tsan_ __sanitizer_cov_
has tsan yes __tsan_
has tsan no __asan_
has fuzz yes __asan_ __ubsan_ __sanitizer_cov_
has fuzz no __tsan_
[ $looked = 1 ] || { echo "nothing is built in $O"; exit 77; }
exit $failed
