#!/bin/bash
# The library: what it exports and needs, an example built with pkg-config as C and as C++, and mcorefs stub.
. "$(dirname "$0")/lib.sh"
library=${MCOREFS%/*}/libmcorefs.so.0
[ -e "$library" ] || skip "$library is missing: make"
source=$FIXTURES/weights/llama-torch_dist-tp2-pp2-vpp2

# What an export of a view has.
"$MCOREFS" export "$source" hf "$work/hf" >/dev/null || fail "export"

# mcorefs stub: files as they are, an index that names the source, and nothing replaced.
"$MCOREFS" stub "$source" "$work/stub" >/dev/null 2>"$log" || fail "mcorefs stub"
for file in config.json generation_config.json tokenizer.json; do
	cmp "$work/hf/$file" "$work/stub/$file" || fail "$file of the stub"
done
same "what is in a stub" "$(cd "$work/stub" && echo *.json *.safetensors)" \
	"config.json generation_config.json mcorefs.json tokenizer.json tokenizer_config.json *.safetensors"
grep -q "\"source\": \"$source\"" "$work/stub/mcorefs.json" || fail "the source of the stub: $(cat "$work/stub/mcorefs.json")"
(cd "$FIXTURES" && "$MCOREFS" stub "${source#"$FIXTURES"/}" "$work/relative" -o shard_size=1MB,tokenizer=data/tokenizer) >/dev/null || fail "a stub by relative paths"
same "a stub by relative paths" "$(grep -E 'source|options' "$work/relative/mcorefs.json" | xargs)" \
	"source: $source, options: shard_size=1MB,tokenizer=$FIXTURES/data/tokenizer,"
refused "a second stub" 1 "is not empty, and a stub replaces nothing" "$MCOREFS" stub "$source" "$work/stub"
refused "a stub of Megatron's files" 1 "has no safetensors" "$MCOREFS" stub "$source" "$work/other" --view megatron/torch/tp1-pp1
[ -e "$work/other" ] && fail "a stub that was refused is there"

for tool in make cc pkg-config nm readelf; do command -v $tool >/dev/null || skip "all but the library itself: $tool is missing"; done
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort | xargs)
declared=$(grep -oE '\bmcorefs_[a-z_]+\(' fs/lib/mcorefs.h | tr -d '(' | sort -u | xargs)
same "what the library exports" "$exported" "$declared"
readelf -d "$library" | grep -E 'NEEDED.*(fuse|microhttpd|blas)' && fail "the library needs what it does not call"
readelf -d "$library" | grep -q 'SONAME.*\[libmcorefs.so.0\]' || fail "SONAME"

# Installed elsewhere, found by pkg-config, in C and in C++.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
build=$work/build
mkdir "$build"
cp "$MCOREFS" "$library" "$build"
cp "$MCOREFS" "$build/mcorefs-train" # which is not asked for
touch "$build/config.mk"
make -s --no-print-directory "O=$build" -o "$build/mcorefs" -o "$build/mcorefs-train" -o "$build/libmcorefs.so.0" -o "$build/config.mk" NVCC= MPI= COMPLETIONS= \
	install PREFIX="$work/opt" >/dev/null 2>"$log" || fail "make install"
export PKG_CONFIG_PATH=$work/opt/lib/pkgconfig LD_LIBRARY_PATH=$work/opt/lib
same "the version by pkg-config" "$(pkg-config --modversion mcorefs)" "$("$MCOREFS" --version | cut -d' ' -f2)"
example=$work/opt/share/doc/mcorefs/examples/library/read_tensors.c
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror "$example" -o "$work/load" $(pkg-config --cflags --libs mcorefs) || fail "the example does not compile"
# shellcheck disable=SC2046
! command -v c++ >/dev/null || c++ -Wall -Wextra -Werror -x c++ "$example" -o "$work/load++" $(pkg-config --cflags --libs mcorefs) ||
	fail "the example does not compile as C++"

# The data of a safetensors file is the bytes of its tensors, one after the other.
file=$work/hf/model.safetensors
header=$(($(od -An -tu8 -N8 "$file") + 8))
for program in "$work"/load*; do
	tail -c +$((header + 1)) "$file" | cmp - <("$program" "$source" hf) || fail "${program##*/}: bytes of all tensors"
done
refused "a tensor that is not there" 1 "there is no tensor 'lm_head.wait'; did you mean 'lm_head.weight'?" "$work/load" "$source" hf lm_head.wait
refused "a source that is not there" 1 "No such file or directory" "$work/load" "$work/nowhere" hf
