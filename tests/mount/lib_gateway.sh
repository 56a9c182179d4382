# Sourced by the cases of a gateway, behind lib.sh: serve and stop. The gateway goes with the case.
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
