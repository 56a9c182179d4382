#!/bin/bash
# tests/long/clients.sh: a gateway and many clients on this machine: a thousand that read at once, a flood of wrong tokens
# together with a good client, more silent connections than there may be, and ten thousand that are kept. Each answer is the right
# one, each byte is compared, and the gateway's memory and descriptors are as before when they have gone. A minute or two; it
# uses loopback alone.
. "$(dirname "$0")/../mount/lib.sh"

command -v python3 >/dev/null || skip "python3 is not installed"
[ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 5000 ] || skip "5000 descriptors are needed: ulimit -Hn"
file=$work/hf/model.safetensors
source=$FIXTURES/weights/llama-torch-tp2-pp2
"$MCOREFS" export "$source" hf "$work/hf" -o vocab_size=1000 >/dev/null || fail export
printf 'good hf_good_1 lab/*\n' >"$work/tokens" && chmod 600 "$work/tokens"
gw=
trap 'status=$?; [ -z "$gw" ] || kill -9 "$gw" 2>/dev/null; (exit $status); end' EXIT

descriptors() { find "/proc/$gw/fd" -mindepth 1 2>/dev/null | wc -l; }
resident() { awk '$1 == "RssAnon:" { print $2 }' "/proc/$gw/status"; }

# crowd WHAT PATH LIMITS [TOKENS [TOKEN]]: with a gateway of its own.
crowd() {
	local port before
	: >"$log"
	printf 'listen: 127.0.0.1:0\nlimits: {%s}\n%s\nrepositories: {lab/llama: {source: %s, options: vocab_size=1000}}\n' \
		"$3" "${4:+tokens: $4}" "$source" >"$work/gw.yaml"
	"$MCOREFS" serve "$work/gw.yaml" 2>"$log" &
	gw=$!
	wait_until "it serves" eval 'grep -q "serving on" "$log" || ended $gw'
	port=$(sed -n 's/.*serving on .*://p' "$log")
	[ -n "$port" ] || fail "serve"
	before=$(descriptors)
	timeout 600 python3 tests/long/clients.py "$1" "$port" "$2" "$file" "${@:5}" || fail "$1"
	wait_until "their connections are closed" eval '[ "$(descriptors)" -le $(('"$before"' + 8)) ]' # files of the source
	echo "measured: $1: $(resident) KiB resident afterwards"
	[ "$(resident)" -lt "${most:-200000}" ] || fail "$1: $(resident) KiB stay"
	kill "$gw"
	wait "$gw"
	same "exit status of serve" "$?" 0
	gw=
}
path=/lab/llama/resolve/main/model.safetensors
crowd active "$path" "connections: 2048, per_address: 2048"
crowd tokens "$path" "connections: 2048, per_address: 2048" "$work/tokens" hf_good_1
crowd silent "$path" "connections: 2048"
if [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 12000 ]; then
	# malloc keeps 195 MB of their threads', of which a second and a third crowd take nothing more.
	most=300000 crowd kept "$path" "connections: 12000, per_address: 4096, idle_seconds: 600"
else
	echo "all but ten thousand connections: 12000 descriptors are needed"
fi
