#!/bin/bash
# inspect and ls: what a checkpoint is, and what is wrong with one that cannot be shown.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip 'python3 is missing'

m=$MCOREFS

# field SOURCE EXPRESSION [OPTION...]: of the JSON object j.
field() {
	"$m" inspect "$1" --json "${@:3}" 2>/dev/null | python3 -c "
import json, sys
j = json.load(sys.stdin)
print($2)" || fail "inspect --json $1: no JSON, or no $2"
}

# broken TEXT EXIT PATTERN: inspect of $ckpt ends so and says so, in the table and in JSON.
broken() {
	local out
	out=$("$m" inspect "$ckpt")
	same "$1: exit status" "$?" "$2"
	out=$(tr -d '│\n' <<<"$out" | tr -s ' ')
	[[ $out =~ $3 ]] || fail "$1: expected '$3' in the table: $out"
	out=$(field "$ckpt" "[j['latest_reason']] + [i['reason'] for i in j['iterations']]")
	[[ $out =~ $3 ]] || fail "$1: expected '$3' in JSON: $out"
}

for source in "$FIXTURES"/weights/* "$FIXTURES"/resume/*; do
	name=$(basename "$source")
	table=$("$m" inspect "$source") || fail "$name: inspect"
	same "$name: columns" "$(LC_ALL=C.UTF-8 wc -L <<<"$table")" 90
	"$m" inspect "$source" --json --tensors >"$work/json" || fail "$name: --json"
	"$m" ls "$source" hf >"$work/ls" || fail "$name: ls"
	python3 - "$name" "$work/json" "$work/ls" <<'EOF' || fail "$name: --json --tensors"
import json, re, sys
name, j, listed = sys.argv[1], json.load(open(sys.argv[2])), open(sys.argv[3]).read().splitlines()
assert j["ok"] and j["latest"] and not j["error"], j
assert j["model"]["family"].startswith(name.split("-")[0]), j["model"]
assert j["checkpoint"]["format"] == name.split("-")[1], j["checkpoint"]
assert len(j["tensors"]) == j["model"]["tensors"]
assert sum(t["bytes"] for t in j["tensors"]) == j["model"]["bytes"]
rows = [line.split() for line in listed]
assert [(f["name"], f["size"]) for f in j["files"]] == [(r[4], int(r[1])) for r in rows], rows
found = {k: j["checkpoint"]["layout"][k] for k in ("tp", "pp", "vpp", "ep")}
expected = dict.fromkeys(found, 1)
expected.update((k, int(n)) for k, n in re.findall("-(tp|pp|vpp|ep)([0-9]+)", name))
assert found == expected, found
EOF
	mount_source "$source" >/dev/null 2>&1
	# Down to the Megatron views and those of engines; layouts stand in no order.
	same "$name: tree" "$("$m" ls "$source" | awk '{ print $5 }' | sort)" \
		"$(cd "$mnt" && find . -mindepth 1 \( -type d -printf '%f/\n' -o -printf '%f\n' \) \
			\( -path '*/megatron/*torch/*' -o -path '*/vllm*/*' -o -path '*/sglang/*' -o -name '*torch_dist' \) -prune | sort)"
	unmount
done

# NeMo's tokenizer lies under the name of the folder that it was copied from.
nemo=$FIXTURES/nemo/llama-fit
same 'NeMo: tokenizer' "$("$m" ls "$nemo" hf | awk '$5 ~ /tokenizer/ { print $5 }' | xargs)" 'tokenizer.json tokenizer_config.json'
same 'NeMo: vocabulary' "$(field "$nemo" "j['model']['vocabulary']" -o vocab_size=tokenizer)" \
	"{'rows': 41, 'padded': 48, 'source': 'tokenizer'}"

# One iteration directory, by any path.
dist=resume/llama-torch_dist-tp2-pp2
same 'iteration' "$(field "$FIXTURES/$dist/iter_0000020/" "j['latest']")" iter_0000020
same 'iteration, relative' "$(cd "$FIXTURES/$dist/iter_0000020" && "$m" ls . | awk '{ print $5, $6, $7; exit }')" \
	'latest -> iter_0000020'

# Incomplete saves: which file is missing.
copy_fixture "$(cd "$FIXTURES" && echo weights/llama-torch-*)"
chmod -R u+w "$ckpt"
victim=$(find "$ckpt" -name model_optim_rng.pt | sort | tail -1)
mv "$victim" "$work/kept"
broken 'a rank file is missing' 1 "$(basename "$(dirname "$victim")")"
head -c 1000 "$work/kept" >"$victim"
broken 'a rank file is cut' 1 "$(basename "$(dirname "$victim")")"
cp "$work/kept" "$victim"
"$m" inspect "$ckpt" >/dev/null || fail 'the file is back'
rm -r "$(dirname "$victim")"
broken 'a rank directory is missing' 1 "$(basename "$(dirname "$victim")")"

for change in 'rm __2_0.distcp' 'truncate -s 100000 __2_0.distcp' 'rm metadata.json' 'rm .metadata'; do
	copy_fixture $dist
	chmod -R u+w "$ckpt"
	(cd "$ckpt/iter_0000040" && $change)
	broken "$change" 1 "iter_0000040.*${change##* }"
	same "$change: described" "$(field "$ckpt" "j['described']")" iter_0000020
	out=$("$m" ls "$ckpt" 2>/dev/null)
	same "$change: ls" "$? $(grep -c iter_ <<<"$out")" '1 1'
	"$m" verify "$ckpt" iter_0000020/hf >/dev/null || fail "$change: the other iteration cannot be used"
	refused "$change: verify" 1 "${change##* }" "$m" verify "$ckpt"
done

# Trackers.
copy_fixture $dist
tracker=$ckpt/latest_checkpointed_iteration.txt
chmod -R u+w "$ckpt"
echo 20 >"$tracker"
"$m" inspect "$ckpt" >/dev/null || fail 'tracker behind'
same 'tracker behind' "$(field "$ckpt" "[j['latest'], j['tracker'], j['iterations'][1]['complete']]")" "['iter_0000020', '20', False]"
echo 60 >"$tracker"
broken 'tracker ahead' 1 'no directory iter_0000060'
echo soon >"$tracker"
broken 'tracker of nonsense' 1 "'soon'"
rm "$tracker"
same 'no tracker' "$(field "$ckpt" "[j['latest'], j['tracker']]")" "['iter_0000040', None]"
mv "$ckpt/iter_0000020" "$ckpt/release"
echo release >"$tracker"
same 'release' "$(field "$ckpt" "j['latest']")" release

# Complete, but not to be mapped: why, and what is known all the same.
source=$(echo "$FIXTURES"/weights/gpt2-torch-*)
same 'wrong family' "$(field "$source" "[j['ok'], j['model'], j['checkpoint']['tensors'] > 0, 'llama' in j['error'], len(j['hints'])]" -o arch=llama)" \
	'[False, None, True, True, 1]'
"$m" inspect "$source" -o arch=llama >/dev/null && fail 'wrong family: exit status'

refused 'nothing there' 1 'holds no Megatron checkpoint.*HuggingFace model' "$m" inspect "$work"
mkdir "$work/adapter"
echo '{"peft_type": "LORA"}' >"$work/adapter/adapter_config.json"
refused 'an adapter without its model' 1 'LoRA adapter of PEFT' "$m" inspect "$work/adapter"
refused 'an adapter without weights' 1 "adapter.*expected 'r'" "$m" export "$ckpt" hf "$work/out" -o "adapter=$work/adapter"
refused 'an adapter that is none' 1 "holds no adapter: looked for adapter_config.json" "$m" export "$ckpt" hf "$work/out" -o "adapter=$FIXTURES/data"
refused 'no SOURCE' 2 'expected mcorefs inspect SOURCE' "$m" inspect
# A tokenizer's directory alone, under either name. It also tells the true vocabulary, where padding that gives the stored rows.
tokenizer=$(echo "$FIXTURES"/weights/llama-torch_dist-tp2-pp2-vpp2/iter_*/tokenizer)
for option in ref tokenizer; do
	"$m" export "$FIXTURES/weights/llama-torch-tp2-pp2" hf "$work/$option" -o "$option=$tokenizer" >/dev/null || fail "$option of a tokenizer"
	cmp "$work/$option/tokenizer.json" "$tokenizer/tokenizer.json" || fail "$option: another tokenizer"
	grep -q '"vocab_size": 1000' "$work/$option/config.json" || fail "$option: the vocabulary"
done
# Beside a reference it gives the tokenizer's files, and the reference the config and what goes with that.
cp -r "$work/ref" "$work/base" && rm -r "$work/base/"model* && echo '{"temperature": 0.5}' >"$work/base/generation_config.json"
sed -i 's/"initializer_range": [0-9.e-]*/"initializer_range": 0.0625/' "$work/base/config.json" && mkdir "$work/words" && cp "$tokenizer"/tokenizer* "$work/words"
echo '{"model_max_length": 77}' >"$work/words/tokenizer_config.json"
"$m" export "$FIXTURES/weights/llama-torch-tp2-pp2" hf "$work/both" -o "ref=$work/base,tokenizer=$work/words" >/dev/null || fail 'both'
grep -q '"initializer_range": 0.0625' "$work/both/config.json" && cmp "$work/both/generation_config.json" "$work/base/generation_config.json" &&
	cmp "$work/both/tokenizer_config.json" "$work/words/tokenizer_config.json" || fail 'both: whose files'
refused 'no tokenizer' 2 'not a directory with a tokenizer.json' "$m" ls "$ckpt" -o "tokenizer=$work/adapter"
refused 'two tokenizers' 1 'gives the tokenizer, too' "$m" ls "$work/ref" -o "tokenizer=$tokenizer"
refused 'ls of an iteration' 1 'has no iteration iter_0000041: there is iter_0000040' "$m" ls "$FIXTURES/weights/llama-torch-tp2-pp2" iter_0000041/hf
printf '{"text": "a tale"}\n' >"$work/tales.jsonl"
refused 'text' 1 "is text in JSON lines, and no tokens: .*mcorefs pack --tokenizer DIR .*PREFIX" "$m" ls "$work/tales.jsonl"
refused 'ls of a file' 1 'is not a directory' "$m" ls "$tracker"
exit 0
