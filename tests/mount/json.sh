#!/bin/bash
# --json of inspect, ls, verify and export: one object, also of what cannot be used, and the same exit status.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
source=$FIXTURES/weights/llama-torch-tp2-pp2
json=$work/json

# says STATUS COMMAND...: its object is in $json, what it says in $log. Python is a peer that need not be here.
says() {
	local status=$1
	shift
	"$m" "$@" --json >"$json" 2>"$log"
	same "$*: exit status" "$?" "$status"
	same "$*: ends of the object" "$(head -c 1 "$json")$(tail -n 1 "$json")" '{}'
	if command -v python3 >/dev/null; then
		python3 -m json.tool "$json" >/dev/null || fail "$*: no JSON"
	fi
	if [ "$status" = 0 ]; then
		[ ! -s "$log" ] || fail "$*: it says more than its object"
		has '"ok": true' '"error": null'
	else
		has '"ok": false'
		same "$*: error" "$(sed -n 's/^  "error": "\(.*\)",\{0,1\}$/\1/p' "$json")" "$(tail -n 1 "$log" | sed 's/^mcorefs: //')"
	fi
}

# has PATTERN...: each on a line of its own.
has() {
	local pattern
	for pattern; do
		grep -qE -- "$pattern" "$json" || fail "no $pattern in $(cat "$json")"
	done
}

# What is no source, for each of them.
mkdir "$work/none" "$work/none/more"
for what in none none/more missing; do
	says 1 inspect "$work/$what"
	has "\"source\": \"$work/$what\"" '"model": null' '"iterations": \[\]' '"checkpoint": null'
	says 1 ls "$work/$what"
	has '"entries": \[\]'
	says 1 verify "$work/$what"
	has '"files": \[\]'
	says 1 export "$work/$what" hf "$work/out"
	has "\"dest\": \"$work/out\"" '"view": null'
done
[ ! -e "$work/out" ] || fail 'export has made something of nothing'

says 0 ls "$source"
has '"path": "latest"' '"target": "iter_0000040"' '"type": "link"' '"path": "iter_0000040/hf/config.json"' '"type": "directory"' \
	'"path": "iter_0000040/megatron/torch/tp2-pp2"' '"path": "iter_0000040/megatron/torch_dist"' '"errors": \[\]'
same 'ls: as many entries as lines' "$(grep -c '"path"' "$json")" "$("$m" ls "$source" | wc -l)"
says 0 ls "$source" hf
same 'ls of a view' "$(sed -n 's/.*"path": "\(.*\)",/\1/p' "$json" | xargs)" "$("$m" ls "$source" hf | awk '{ print $5 }' | xargs)"
same 'sizes of a view' "$(sed -n 's/.*"size": \(.*\),/\1/p' "$json" | xargs)" "$("$m" ls "$source" hf | awk '{ print $2 }' | xargs)"
says 1 ls "$source" -o arch=gpt2
has '"path": "iter_0000040/why-not.txt"' '^    "iter_0000040/hf: .*not a gpt2'
says 1 ls "$source" megatron/torch/tp7-pp1

says 0 extents "$source"
same 'extents: tensors' "$(grep -c '"name"' "$json")" "$("$m" extents "$source" | grep -c '^[^ ]')"
same 'extents: of sources' "$(grep -c '"kind": "source"' "$json")" "$("$m" extents "$source" | grep -c '^  source .* of /')"
says 0 extents "$source" hf config.json
has '"kind": "memory"'
says 0 extents "$source" hf-fp32
has '"kind": "computed"'
says 1 extents "$source" hf nothing.json
says 0 ls "$FIXTURES/data"
has '"path": "data/tales_text_document/samples/train-s4096"'

says 0 verify "$source"
has '"view": "iter_0000040/hf"' '"deep": false' '"sha256": null' '"problem_count": 0'
says 0 verify "$source" --deep
has '"deep": true' '"crc32_right": [1-9]'
same 'sums' "$(awk -F'"' '/"name"/ { n = $4 } /"sha256"/ { print $4 "  " n }' "$json")" "$("$m" verify "$source" --deep --sums)"
says 0 verify "$FIXTURES/data" --deep
has '"name": "tales_text_document"' '"rows": 240' '"tokens": 171874'
refused 'verify --json --sums' 2 'contradict each other.*mcorefs verify --help' "$m" verify "$source" --json --sums

# Damage is named where it is: one of four files of ranks is cut.
copy_fixture weights/llama-torch-tp2-pp2
victim=$(find "$ckpt" -name model_optim_rng.pt | sort | tail -1)
printf '\x55' | dd of="$victim" bs=1 seek=$(($(stat -c %s "$victim") / 2)) conv=notrunc status=none
says 1 verify "$ckpt" --deep
has '"problem_count": [1-9]' "^ +\".*$(basename "$(dirname "$victim")")"

says 0 export "$source" hf "$work/out"
has '"view": "iter_0000040/hf"' '"resumed_bytes": 0' '"seconds": [0-9.e-]+'
same 'export: bytes' "$(sed -n 's/^  "bytes": \(.*\),/\1/p' "$json")" "$(find "$work/out" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')"
says 1 export "$source" hf "$work/out"
has 'exists and is not empty'
