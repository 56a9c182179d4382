#!/bin/bash
# A gateway reads with rights of its own, and for others: links of a source lead to nothing but that source, whatever it is
# and whenever they are made, unless its operator has named other places. Links of HuggingFace's cache lead to its blobs.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_gateway.sh"

command -v curl >/dev/null || skip "curl is not installed"
m=$MCOREFS
ckpt=$FIXTURES/weights/llama-torch-tp2-pp2
hf=$FIXTURES/hf/llama-safetensors

status() { # PATH [CURL OPTION...]
	curl -s -o "$work/body" -w '%{http_code}' "${@:2}" "$url$1"
}
expect() { # STATUS PATH [CURL OPTION...]
	same "$2" "$(status "${@:2}")" "$1"
}
# kept PATH: refused with a sentence, and nothing of the secret comes.
kept() {
	local got
	got=$(status "$@")
	[[ $got == 40[34] ]] || fail "$1: $got: $(head -c 300 "$work/body")"
	! grep -q 'key of root' "$work/body" || fail "$1: a secret came"
}
# why PATH: the same, and a sentence says why.
why() {
	kept "$@"
	grep -q 'a link leads out of its source' "$work/body" || fail "$1: $(head -c 300 "$work/body")"
}

umask 077
echo 'key of root' >"$work/id_rsa"
printf 'me hf_me_12345 runs/* !runs/secret data/* datasets/data/*\n' >"$work/tokens"
me=(-H 'Authorization: Bearer hf_me_12345')
mkdir "$work/runs" "$work/archive" "$work/data" "$work/other"
cp -a "$ckpt" "$work/runs/secret"
cp -a "$hf" "$work/runs/out" && ln -s "$work/id_rsa" "$work/runs/out/README.md"
cp -a "$hf" "$work/runs/tokens" && ln -sf ../../tokens "$work/runs/tokens/special_tokens_map.json"
cp -a "$hf" "$work/runs/config" && ln -sf "$work/other/config.json" "$work/runs/config/config.json" && cp "$hf/config.json" "$work/other"
cp -a "$hf" "$work/runs/swapped"
# Within a source they may lead anywhere, by whatever path.
cp -a "$hf" "$work/runs/own" && mkdir "$work/runs/own/sub" && mv "$work/runs/own/config.json" "$work/runs/own/sub"
ln -s "$work/runs/own/sub/config.json" "$work/runs/own/config.json"
mv "$work/runs/own/model.safetensors" "$work/runs/own/sub" && ln -s ../own/sub/model.safetensors "$work/runs/own"
# Into another repository: an iteration, a rank's directory, a run as a whole.
mkdir "$work/runs/iteration" && ln -s ../secret/iter_0000040 "$work/runs/iteration" && echo 40 >"$work/runs/iteration/latest_checkpointed_iteration.txt"
cp -a "$ckpt" "$work/runs/rank" && rm -r "$work/runs/rank/iter_0000040/mp_rank_00_000"
ln -s ../../secret/iter_0000040/mp_rank_00_000 "$work/runs/rank/iter_0000040/mp_rank_00_000"
ln -s secret "$work/runs/linked"
cp -a "$ckpt/iter_0000040" "$work/archive"
mkdir "$work/runs/moved" && ln -s "$work/archive/iter_0000040" "$work/runs/moved" && echo 40 >"$work/runs/moved/latest_checkpointed_iteration.txt"
ln -s "$work/archive" "$work/runs/away" && echo 40 >"$work/archive/latest_checkpointed_iteration.txt"
# A cache of HuggingFace's, with a snapshot as it is, and one that leads to another cache's blobs.
for repo in a b; do
	mkdir -p "$work/hub/models--lab--$repo/blobs" "$work/hub/models--lab--$repo/snapshots/1"
	for f in "$hf"/*; do
		cp "$f" "$work/hub/models--lab--$repo/blobs/blob-${f##*/}"
		ln -s "../../blobs/blob-${f##*/}" "$work/hub/models--lab--$repo/snapshots/1/${f##*/}"
	done
done
ln -sf ../../../models--lab--a/blobs/blob-config.json "$work/hub/models--lab--b/snapshots/1/config.json"
# Datasets by their prefixes: one leads to another in the same directory.
tales=$FIXTURES/data/tales_text_document
for name in good bad; do cp "$tales.bin" "$work/data/$name.bin" && cp "$tales.idx" "$work/data/$name.idx"; done
ln -sf good.bin "$work/data/bad.bin"
cp -a "$hf" "$work/ref" && ln -sf "$work/id_rsa" "$work/ref/tokenizer_config.json"
ln -s "$work/runs/own" "$work/named"
umask 022

cat >"$work/gw.yaml" <<END
listen: 127.0.0.1:0
tokens: $work/tokens
repositories:
  runs/*: $work/runs
  data/named: $work/named
  data/cached: $work/hub/models--lab--a/snapshots/1
  data/wrong: $work/hub/models--lab--b/snapshots/1
  data/good: $work/data/good
  data/ref: {source: $ckpt, options: "vocab_size=1000,ref=$work/ref"}
END
serve "$work/gw.yaml"
for name in out tokens config rank; do
	why "/runs/$name/resolve/main/config.json" "${me[@]}"
	kept "/runs/$name/resolve/main/README.md" "${me[@]}"
	kept "/files/runs/$name/main/special_tokens_map.json" "${me[@]}"
done
why /runs/linked/resolve/main/config.json "${me[@]}"
why /runs/away/resolve/main/config.json "${me[@]}"
kept /runs/iteration/resolve/main/config.json "${me[@]}"
kept /runs/iteration/resolve/iter_0000040/model.safetensors "${me[@]}"
kept /runs/iteration__megatron.torch.tp1-pp1/resolve/40/latest_checkpointed_iteration.txt "${me[@]}"
kept /runs/moved/resolve/main/config.json "${me[@]}"
kept /runs/secret/resolve/main/config.json "${me[@]}"
for name in config.json model.safetensors; do
	expect 200 "/runs/own/resolve/main/$name" "${me[@]}" && cmp "$work/body" "$hf/$name" || fail "own $name"
	expect 200 "/data/named/resolve/main/$name" "${me[@]}" && cmp "$work/body" "$hf/$name" || fail "named $name"
	expect 200 "/data/cached/resolve/main/$name" "${me[@]}" && cmp "$work/body" "$hf/$name" || fail "cached $name"
done
why /data/wrong/resolve/main/model.safetensors "${me[@]}"
expect 200 /datasets/data/good/resolve/main/data-00000-of-00001.parquet "${me[@]}"
why /data/ref/resolve/main/config.json "${me[@]}"
expect 200 /api/models "${me[@]}"
! grep -qE 'runs/(linked|away)"' "$work/body" || fail "a link is listed: $(<"$work/body")"
grep -q "runs/out/README.md: a link leads out of its source; --links DIR lets links lead to DIR" "$log" || fail "the log: $(<"$log")"

# A link that takes a file's or a directory's place later is not followed either.
expect 200 /runs/swapped/resolve/main/config.json "${me[@]}"
ln -sf "$work/id_rsa" "$work/runs/swapped/generation_config.json"
ln -sfn "$work/other/config.json" "$work/runs/swapped/config.json"
met() { # PATH: what was there is no longer served, and then the link is met.
	got=$(status "$1" "${me[@]}")
	[[ $got == [45]0[34] ]] || fail "$1 behind a link: $got: $(head -c 300 "$work/body")"
	grep -q 'a link leads out of its source' "$work/body"
}
wait_until 'a file is a link' met /runs/swapped/resolve/main/config.json
mkdir "$work/gone" && mv "$work/runs/own" "$work/gone" && ln -s secret "$work/runs/own"
wait_until 'a directory is a link' met /runs/own/resolve/main/config.json
stop

# Where the operator lets them lead, by both ways of saying so; nothing there leads further.
ln -s "$work/id_rsa" "$work/archive/iter_0000040/README.md"
cp -a "$hf" "$work/archive/model" && ln -s "$work/id_rsa" "$work/archive/model/README.md" && ln -s "$work/archive/model" "$work/runs/model"
serve "$work/gw.yaml" --links "$work/archive:$work/other"
expect 200 /runs/moved/resolve/main/config.json "${me[@]}"
expect 200 /runs/away/resolve/40/config.json "${me[@]}"
expect 200 /runs/config/resolve/main/config.json "${me[@]}"
why /runs/model/resolve/main/config.json "${me[@]}"
why /runs/linked/resolve/main/config.json "${me[@]}"
stop
sed -i "1a links: $work/archive" "$work/gw.yaml"
serve "$work/gw.yaml"
expect 200 /runs/moved/resolve/main/config.json "${me[@]}"
why /runs/config/resolve/main/config.json "${me[@]}"
sed -i "s,^links: .*,links: [$work/other]," "$work/gw.yaml"
kill -HUP "$gw"
wait_until 'it is read again' grep -q 'the configuration was read again' "$log"
expect 200 /runs/config/resolve/main/config.json "${me[@]}"
kept /runs/moved/resolve/main/config.json "${me[@]}"
stop
refused 'a dataset that is a link' 1 "data/bad.bin: a link leads out of its source" "$m" serve data/bad="$work/data/bad" --listen 127.0.0.1:0
refused 'links to nowhere' 1 "links: '/nonexistent': No such file or directory" "$m" serve lab/x="$hf" --listen 127.0.0.1:0 --links /nonexistent
