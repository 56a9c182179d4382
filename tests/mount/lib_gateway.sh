# Sourced by the cases of a gateway, after lib.sh: serve and stop. The gateway goes with the case.
# shellcheck shell=bash
gw= url=
trap '[ -z "$gw" ] || kill -9 "$gw" 2>/dev/null; rm -rf "$work"' EXIT

# serve ARGUMENT...: as $gw, at $url, with its messages in $log.
serve() {
	: >"$log"
	"$MCOREFS" serve "$@" 2>>"$log" &
	gw=$!
	wait_until "it serves" eval 'grep -q "serving on" "$log" || ended $gw'
	url=$(sed -n 's/.*serving on \([^"]*\).*/\1/p' "$log") # a quote ends it in JSON
	[ -n "$url" ] || fail "serve $*"
}

# It ends by SIGTERM with status 0.
stop() {
	kill "$gw"
	wait "$gw"
	same "exit status of serve" "$?" 0
	gw=
}

# flat_memory COUNT: so many odd requests to $gw, which serves lab/x, leave nothing in memory. A request that kept its target
# (14 KB, of one in fifty) was 280 bytes a request; what the allocator does with its threads is 200 KiB, whatever the count.
flat_memory() {
	local before after
	python3 tests/long/odd_requests.py "${url##*:}" $(($1 / 10)) lab/x/resolve/main/config.json 1 >/dev/null || fail 'odd requests'
	# A sanitizer keeps what is freed, and notes each address that was touched.
	case $MCOREFS in */asan/* | */tsan/*) return ;; esac
	before=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$gw/status")
	python3 tests/long/odd_requests.py "${url##*:}" "$1" lab/x/resolve/main/config.json 2 || fail 'odd requests'
	after=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$gw/status")
	echo "measured: $before KiB resident after $(($1 / 10)) odd requests, $after KiB after $1 more"
	[ $((after - before)) -lt 1500 ] || fail "odd requests leave $((after - before)) KiB"
}
