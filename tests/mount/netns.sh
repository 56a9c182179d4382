#!/bin/bash
# A gateway and its clients in namespaces of their own, joined by a link with delay and loss: curl, a mount of the gateway's
# URL, and a second gateway of it over https. The link goes away while files are read: right bytes, or EIO in time; and when
# it is back the same mount reads on.
. "$(dirname "$0")/lib.sh"
is_root || skip "namespaces of a network need root"
for tool in ip unshare nsenter curl; do
	command -v $tool >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	command -v $tool >/dev/null || skip "$tool is not installed"
done
unshare --net true 2>"$work/out" || skip "no namespaces of a network: $(<"$work/out")"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

# A namespace lives as long as a process in it: nothing is left if this one is killed.
unshare --net sleep 600 &
gw=$!
unshare --net sleep 600 &
client=$!
link= gateway= tls= edge= far=
trap 'status=$?; kill -9 $daemon 2>/dev/null; kill $gw $client $link $gateway $tls $edge $far 2>/dev/null; (exit "$status"); end' EXIT
apart() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
wait_until "there are two namespaces" eval 'apart $gw && apart $client'

# Before a command: in that namespace of the network, and in no other. It becomes the command, so $! is that.
in_gw=(nsenter --target $gw --net --)
in_client=(nsenter --target $client --net --)

# 40 ms each way, 2 % of the packets lost, 24 Mbit/s.
"$BIN/lossy_link" $gw $client 40 2 24 1 "$work/far" 1200000 >"$work/link" 2>"$work/out" &
link=$!
wait_until "the link stands" eval '[ -s "$work/link" ] || ended $link'
[ -s "$work/link" ] || skip "no TUN devices: $(<"$work/out")"
"${in_gw[@]}" ip address add 192.0.2.1 peer 192.0.2.2 dev lossy
"${in_client[@]}" ip address add 192.0.2.2 peer 192.0.2.1 dev lossy
for device in lo lossy; do
	"${in_gw[@]}" ip link set $device up
	"${in_client[@]}" ip link set $device up
done

# A model of 8 MiB, of noise: one that is fetched in one piece could not be cut. (4 MiB are read ahead.)
vocab=131072 header= at=0
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
size=$(stat -c %s "$file")

# serve NAME LISTEN SOURCE [LINE...]: in the namespace of $in, as process $!. What a client does not take for two seconds is
# cut.
serve() {
	printf '%s\n' "listen: $2" "limits: {stall_seconds: 2}" "${@:4}" "repositories: {lab/model: $3}" >"$work/$1.yaml"
	: >"$work/$1.log"
	"${in[@]}" "$MCOREFS" serve "$work/$1.yaml" 2>"$work/$1.log" &
}
# serves NAME PROCESS
serves() {
	wait_until "$1 serves" eval "grep -q 'serving on' '$work/$1.log' || ended $2"
	grep -q 'serving on' "$work/$1.log" || fail "$1: $(<"$work/$1.log")"
}
has() { [ "$(stat -c %s "$1")" -gt "$2" ]; }

path=lab/model/resolve/main/model.safetensors
url=http://192.0.2.1:8080
source=$url/files/lab/model/main/
edge_source=$source
in=("${in_gw[@]}")
serve gateway 192.0.2.1:8080 "$work/model"
gateway=$!
if command -v openssl >/dev/null; then
	openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=gateway -addext subjectAltName=IP:192.0.2.1 \
		-keyout "$work/key" -out "$work/cert" 2>/dev/null || fail "openssl makes no certificate"
	serve tls 192.0.2.1:8443 "$work/model" "certificate: $work/cert" "key: $work/key"
	tls=$!
	serves tls $tls
	edge_source=${source/http:/https:}
	edge_source=${edge_source/8080/8443}
	export CURL_CA_BUNDLE=$work/cert
fi
serves gateway $gateway

# Far from it: a mount of its URL, and a gateway of it, over https where there is openssl.
in=("${in_client[@]}")
"${in[@]}" "$MCOREFS" "$source" "$mnt" -f -o "cache=$work/cache,timeout=3" 2>>"$log" &
daemon=$!
serve edge 127.0.0.1:8080 "{source: \"$edge_source\", options: \"cache=$work/cache-edge,timeout=4\"}"
edge=$!
edge_url=http://127.0.0.1:8080

# While a client reads over the link, another one on the gateway's side reads the same at full speed. (The last bytes of the
# slow one are in the kernel's hands before they have come.)
: >"$work/far"
"${in_client[@]}" curl -sf --max-time 300 "$url/$path" >"$work/far" &
far=$!
wait_until "curl has read some" eval 'has "$work/far" 0 || ended $far'
"${in_gw[@]}" curl -sf --max-time 300 "$url/$path" | cmp - "$file" || fail "curl beside the gateway: other bytes"
has "$work/far" $((size / 2)) && fail "a client beside the gateway waited for one far away"
wait $far || fail "curl over the link ended with status $?"
cmp "$work/far" "$file" || fail "curl over the link: other bytes"
wait_until "the mount stands" announced_or_ended 0
serves edge $edge
"${in_client[@]}" curl -s --max-time 300 "$edge_url/${path%/*}/config.json" | cmp - "$work/hf/config.json" || fail "a gateway of a gateway"

# The link goes away, and nobody is told: a mount gives up in time, and the gateway gives a client up.
: >"$work/far"
"${in_client[@]}" curl -sf --max-time 300 "$url/$path" >"$work/far" &
far=$!
: >"$work/part"
wait_until "curl has read some" eval 'has "$work/far" 300000 || ended $far'
cat "$mnt/hf/model.safetensors" >"$work/part" 2>"$work/out" &
reader=$!
wait_until "some of the file is read" eval 'has "$work/part" 1000000 || ended $reader'
kill -USR1 $link
wait_until "a reader without a link has ended" ended $reader
wait $reader && fail "a file was read to its end without a link"
grep -qE 'Input/output error|Connection timed out' "$work/out" || fail "without a link: $(<"$work/out")"
cmp -n "$(stat -c %s "$work/part")" "$work/part" "$file" || fail "other bytes before the link went away"
[ -d "$mnt/hf" ] || fail "the mount is gone with the link"
grep -q "$url" "$log" || fail "the log says nothing of the link"
given_up() { "${in_gw[@]}" curl -s --max-time 60 "$url/metrics" | grep -q 'route="hub",code="cut"} 1$'; }
wait_until "the gateway has given a client up" given_up
kill $far
wait $far 2>/dev/null
kill -USR2 $link

# Some blocks are there before the last ones have come: the link is cut as soon as they are. Then the client's side goes down
# for longer than an attempt may take, and for less than all attempts: what is missing is asked for again.
: >"$work/far"
kill -HUP $link
"${in_client[@]}" curl -sf --max-time 300 "$edge_url/$path" >"$work/far" &
far=$!
wait_until "the first blocks have come" eval 'has "$work/far" 1200000 || ended $far'
"${in_client[@]}" ip link set lossy down
sleep 5
has "$work/far" $((size - 1)) && fail "the first blocks have waited for the last"
kill -USR2 $link
"${in_client[@]}" ip link set lossy up
cmp "$mnt/hf/model.safetensors" "$file" || fail "the mount, when the link is back"
wait $far || fail "a gateway of a gateway: curl ended with status $?: $(<"$work/edge.log")"
cmp "$work/far" "$file" || fail "a gateway of a gateway: other bytes"
unmount
for process in $edge $tls $gateway; do
	kill $process
	wait $process
	same 'exit status of serve' "$?" 0
done
far= edge= tls= gateway=
