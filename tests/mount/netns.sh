#!/bin/bash
# A gateway and its clients in namespaces of their own, joined by a pair of virtual interfaces: curl and a mount of the
# gateway's URL, with delay and loss where tc has them. The link goes away while a file is read: right bytes or EIO in
# time, and when it is back the same mount reads on.
. "$(dirname "$0")/lib.sh"
is_root || skip "namespaces of a network need root"
for tool in ip tc unshare nsenter curl; do
	command -v $tool >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v $tool >/dev/null || skip "$tool is not installed"
done
unshare --net true 2>"$work/out" || skip "no namespaces of a network: $(<"$work/out")"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

# A namespace lives as long as a process in it: nothing is left behind if this one is killed.
unshare --net sleep 600 &
gw=$!
unshare --net sleep 600 &
client=$!
serve=
trap 'status=$?; kill $gw $client $serve 2>/dev/null; (exit "$status"); end' EXIT
apart() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
wait_until "there are two namespaces" eval 'apart $gw && apart $client'

# Before a command: in that namespace of the network, and in no other. It becomes the command, so $! is that.
in_gw=(nsenter --target $gw --net --)
in_client=(nsenter --target $client --net --)

"${in_gw[@]}" ip link add veth-gw type veth peer name veth-client netns $client 2>"$work/out" || skip "no pair of interfaces: $(<"$work/out")"
"${in_gw[@]}" ip address add 192.0.2.1/24 dev veth-gw
"${in_client[@]}" ip address add 192.0.2.2/24 dev veth-client
"${in_gw[@]}" ip link set veth-gw up
"${in_client[@]}" ip link set veth-client up
"${in_gw[@]}" tc qdisc add dev veth-gw root netem delay 10ms 2ms loss 1% 2>/dev/null || echo "tc has no netem here: without delay and loss"

# A model of 16 MiB, of noise: one that is fetched in one piece could not be cut.
vocab=262144 header= at=0
tensor() { # NAME ROWS [COLUMNS]
	local bytes=$((2 * $2 * ${3:-1}))
	header+=${header:+,}"\"$1\":{\"dtype\":\"BF16\",\"shape\":[$2${3:+,$3}],\"data_offsets\":[$at,$((at + bytes))]}"
	at=$((at + bytes))
}
tensor lm_head.weight $vocab 16
tensor model.embed_tokens.weight $vocab 16
layer=model.layers.0
tensor $layer.input_layernorm.weight 16
tensor $layer.mlp.down_proj.weight 16 24
tensor $layer.mlp.gate_proj.weight 24 16
tensor $layer.mlp.up_proj.weight 24 16
tensor $layer.post_attention_layernorm.weight 16
tensor $layer.self_attn.k_proj.weight 8 16
tensor $layer.self_attn.o_proj.weight 16 16
tensor $layer.self_attn.q_proj.weight 16 16
tensor $layer.self_attn.v_proj.weight 8 16
tensor model.norm.weight 16
header="{$header}"
while [ $((${#header} % 8)) != 0 ]; do header+=' '; done
mkdir "$work/model"
sed "s/\"vocab_size\": [0-9]*/\"vocab_size\": $vocab/; s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/" \
	"$FIXTURES/hf/llama-safetensors/config.json" >"$work/model/config.json"
{
	printf "\\x$(printf %02x $((${#header} & 255)))\\x$(printf %02x $((${#header} >> 8)))\0\0\0\0\0\0%s" "$header"
	head -c "$at" /dev/urandom
} >"$work/model/model.safetensors"
"$MCOREFS" export "$work/model" hf "$work/hf" >/dev/null || fail 'the model is none'
file=$work/hf/model.safetensors

"${in_gw[@]}" "$MCOREFS" serve lab/model="$work/model" --listen 192.0.2.1:8080 2>"$work/served" &
serve=$!
wait_until "it serves" grep -q 'serving on' "$work/served"
url=http://192.0.2.1:8080
for name in config.json model.safetensors; do
	"${in_client[@]}" curl -sf --max-time 60 "$url/lab/model/resolve/main/$name" >"$work/body" || fail "curl $name"
	cmp "$work/body" "$work/hf/$name" || fail "curl: other bytes of $name"
done

# From here on 16 MiB take eight seconds where tc has a limiter, so that the cut is in the middle.
"${in_gw[@]}" tc qdisc replace dev veth-gw root tbf rate 16mbit burst 64kb latency 400ms 2>/dev/null && limited=1 || limited=
"${in_client[@]}" "$MCOREFS" "$url/files/lab/model/main/" "$mnt" -f -o "cache=$work/cache,timeout=2" 2>>"$log" &
daemon=$!
wait_until "the mount stands" announced_or_ended 0
cat "$mnt/hf/model.safetensors" >"$work/part" 2>"$work/out" &
reader=$!
enough() { [ "$(stat -c %s "$work/part")" -gt 1000000 ] || ended $reader; }
wait_until "some of the file is read" enough
"${in_gw[@]}" ip link set veth-gw down
from=$SECONDS
if wait $reader; then
	[ -z "$limited" ] || fail "a file was read to its end without a link"
	cmp "$work/part" "$file" || fail "other bytes without a link"
else
	grep -qE 'Input/output error|Connection timed out' "$work/out" || fail "without a link: $(<"$work/out")"
	cmp -n "$(stat -c %s "$work/part")" "$work/part" "$file" || fail "other bytes before the link went away"
fi
[ $((SECONDS - from)) -lt 40 ] || fail "a reader without a link waited $((SECONDS - from)) s"
[ -d "$mnt/hf" ] || fail "the mount is gone with the link"
grep -q "$url" "$log" || fail "the log says nothing of the link"

# It is back: the mount that saw it go reads all of the file.
"${in_gw[@]}" tc qdisc del dev veth-gw root 2>/dev/null
"${in_gw[@]}" ip link set veth-gw up
reads_again() { cmp -s "$mnt/hf/model.safetensors" "$file"; }
wait_until "the mount reads again" reads_again
same 'curl after the cut' "$("${in_client[@]}" curl -s --max-time 60 "$url/healthz")" ok
unmount
kill $serve
wait $serve
same 'exit status of serve' "$?" 0
serve=
