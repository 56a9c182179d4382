#!/bin/bash
# What a mount says of itself: Prometheus' text over HTTP, as a file and in .mcorefs/, which no listing names; the log as JSON;
# SIGHUP; the dashboard asks for nothing that is not there.
. "$(dirname "$0")/lib.sh"

ckpt=$work/ckpt
cp -a "$FIXTURES/weights/llama-torch-tp2-pp2" "$ckpt"
port=$(free_ports 1)
hf=latest/hf

# value NAME[{LABELS}]: of the text in $work/text, whose common labels are left out.
value() {
	sed 's/vol_name="[^"]*",mp="[^"]*",\?//; s/{}//' "$work/text" | awk -v name="$1" '$1 == name { print $2 }'
}
# over_http PATH: the body in $work/text, the head in $work/head. Bash alone.
over_http() {
	exec 5<>"/dev/tcp/127.0.0.1/$port" || fail 'nobody listens'
	send "GET $1 HTTP/1.0\r\n\r\n" >&5
	sed 's/\r$//' <&5 >"$work/answer"
	exec 5<&-
	sed '/^$/q' "$work/answer" >"$work/head"
	sed '1,/^$/d' "$work/answer" >"$work/text"
}

mount_foreground "$ckpt" -o "metrics=127.0.0.1:$port,prefetch=2,log_format=json,log=$work/json"
sum=$(cat "$mnt/$hf"/* | wc -c)
cat "$mnt/$hf/none" 2>/dev/null
over_http /metrics
grep -q '^HTTP/1.[01] 200' "$work/head" || fail "$(cat "$work/head")"
grep -qi '^content-type: text/plain; version=0.0.4' "$work/head" || fail "$(cat "$work/head")"
same 'bytes served' "$(value mcorefs_fuse_read_size_bytes_sum)" "$sum"
same 'the same, as a counter' "$(value mcorefs_fuse_read_bytes_total)" "$sum"
reads=$(value 'mcorefs_fuse_request_seconds_count{op="read"}')
[ "$reads" -gt 0 ] || fail 'no reads'
same 'reads, by their answers' "$(value 'mcorefs_fuse_requests_total{op="read",errno="0"}')" "$reads"
[ "$(value 'mcorefs_fuse_requests_total{op="lookup",errno="ENOENT"}')" -gt 0 ] || fail 'no name was missing'
same 'requests that are under way' "$(value mcorefs_inflight)" 0
# The weights are shown as they are stored: no kernel has touched them. hf-fp32 casts each.
local_read=$(value 'mcorefs_source_read_bytes_total{backend="local"}')
[ "$local_read" -gt 0 ] && [ "$local_read" -le "$sum" ] || fail "of $sum bytes $local_read were read from the source"
same 'bytes of servers' "$(value 'mcorefs_source_read_bytes_total{backend="remote"}')" 0
same 'bytes that were cast' "$(value 'mcorefs_convert_bytes_total{kernel="cast"}')" 0
cat "$mnt/latest/hf-fp32"/*.safetensors >/dev/null
over_http /metrics
same 'bytes that were cast, and all that were read besides' "$(value 'mcorefs_convert_bytes_total{kernel="cast"}')" \
	"$(($(value 'mcorefs_source_read_bytes_total{backend="local"}') - local_read))"
all=$(value mcorefs_fuse_read_bytes_total)
# The kernel reports that a file is closed after close() has returned.
none_is_open() {
	over_http /metrics
	[ "$(value mcorefs_fuse_open_handlers)" = 0 ]
}
wait_until 'no file is open' none_is_open
same 'iterations' "$(value 'mcorefs_iterations{state="shown"}')" 1
same 'failures' "$(value 'mcorefs_fuse_requests_total{op="read",errno="ESTALE"}')" 0
same 'sources that have changed' "$(value mcorefs_source_changed_total)" 0
[ "$(value mcorefs_memory)" -gt 1000000 ] || fail "memory: $(value mcorefs_memory)"
grep -q "^mcorefs_build_info{vol_name=\"$ckpt\",mp=\"$mnt\",version=\"[^\"]*\",front=\"mount\"} 1" "$work/text" || fail "$(grep _info "$work/text")"
cp "$work/text" "$work/http"
if command -v promtool >/dev/null; then
	promtool check metrics <"$work/text" || fail 'promtool'
else
	left_out='all but promtool (prometheus)'
fi
over_http /
grep -q ' 404 ' "$work/head" || fail "$(cat "$work/head")"
# Somebody who connects and says nothing keeps nobody out.
exec 6<>"/dev/tcp/127.0.0.1/$port"
over_http /metrics
[ -s "$work/text" ] || fail 'no answer beside an idle client'
exec 6<&-

# Everything that the dashboards ask for is there: of a mount, and of a gateway whose source is another one.
serve() { # ARGUMENT...: its address in $url
	: >"$work/said"
	"$MCOREFS" serve "$@" --listen 127.0.0.1:0 2>"$work/said" &
	gateways+=($!)
	wait_until 'a gateway serves' eval 'grep -q "serving on" "$work/said" || ended $!'
	url=$(sed -n 's/.*serving on //p' "$work/said")
	[ -n "$url" ] || fail "$(<"$work/said")"
}
gateways=()
trap 'status=$?; kill "${gateways[@]}" 2>/dev/null; (exit $status); end' EXIT
serve "$FIXTURES/hf/llama-safetensors"
serve lab/far="$url/files/local/llama-safetensors/main/" -o "cache=$work/cache"
mount_port=$port
port=${url##*:}
over_http /files/lab/far/main/model.safetensors
over_http /metrics
[ "$(value 'mcorefs_source_read_bytes_total{backend="remote"}')" -gt 0 ] || fail 'nothing came from a server'
[ "$(value mcorefs_cache_bytes)" -gt 0 ] || fail 'the cache is empty'
grep -q '^mcorefs_build_info{version="[^"]*",front="gateway"} 1' "$work/text" || fail "$(grep _info "$work/text")"
cp "$work/text" "$work/gateway"
kill "${gateways[@]}"
port=$mount_port
check_dashboard() { # NAME TEXT LABEL...: expressions alone ask
	local name label
	grep '"\(expr\|query\)":' "configs/grafana/$1" | grep -oE 'mcorefs_[a-z_]+' | sort -u >"$work/asked"
	[ "$(wc -l <"$work/asked")" -ge 10 ] || fail "$1 asks for $(cat "$work/asked")"
	while read -r name; do
		grep -qE "^$name(\{| )" "$2" || fail "$1 asks for $name, which is not exported"
	done <"$work/asked"
	for label in "${@:3}"; do
		grep -q "{{$label}}" "configs/grafana/$1" && grep -qE "[{,]$label=" "$2" || fail "$1: label $label"
	done
}
cat "$work/http" "$work/gateway" >"$work/both"
check_dashboard mcorefs-mounts.json "$work/both" op errno state kernel backend
check_dashboard mcorefs-gateways.json "$work/gateway" route code kernel backend

# In the mount: by name alone.
cp "$mnt/.mcorefs/stats" "$work/text" || fail '.mcorefs/stats'
same 'bytes served, in .mcorefs/stats' "$(value mcorefs_fuse_read_bytes_total)" "$all"
grep -q "\"mountpoint\": \"$mnt\"" "$mnt/.mcorefs/info.json" || fail "$(cat "$mnt/.mcorefs/info.json")"
same 'a listing' "$(find "$mnt" -name '.mcorefs*')" ''
same 'a listing of .mcorefs' "$(ls -A "$mnt/.mcorefs")" ''
ls "$mnt/.mcorefs/none" "$mnt/latest/.mcorefs" 2>/dev/null && fail 'it is elsewhere too'
(: >"$mnt/.mcorefs/stats") 2>/dev/null && fail 'it can be written'
if is_root; then
	echo 2 >/proc/sys/vm/drop_caches 2>/dev/null
	[ -s "$mnt/.mcorefs/info.json" ] || [ "$(wc -c <"$mnt/.mcorefs/info.json")" -gt 10 ] || fail 'after a drop of caches'
fi

# A failure is counted, by what the reader got.
exec 5<"$mnt/$hf/model.safetensors"
for file in "$ckpt"/iter_*/mp_rank_*/model_optim_rng.pt; do truncate -s 1000 "$file"; done
dd if="/dev/fd/5" of=/dev/null bs=1M iflag=direct 2>/dev/null && fail 'a truncated source can be read'
exec 5<&-
over_http /metrics
[ "$(value 'mcorefs_fuse_requests_total{op="read",errno="ESTALE"}')" -gt 0 ] || fail "no failure: $(grep requests_total "$work/text")"
same 'sources that have changed' "$(value mcorefs_source_changed_total)" 1

# The log: a JSON object a line. SIGHUP: its file is opened anew.
mv "$work/json" "$work/json.1"
kill -HUP "$daemon"
reopened() { grep -qs 'read again' "$work/json"; }
wait_until 'SIGHUP is answered' reopened
ended "$daemon" && fail 'SIGHUP has ended the mount'
grep -vE '^\{"time":"[^"]+","level":"(note|warning|error)","pid":[0-9]+,"mount":"[^"]*","message":".+"\}$' "$work/json.1" "$work/json" &&
	fail 'lines of another form'
grep -q "\"level\":\"error\".*\"mount\":\"$mnt\"" "$work/json.1" || fail "no error in $(cat "$work/json.1")"
unmount

# As a file, whole at any time; it goes with the mount.
cp -a "$FIXTURES/weights/llama-torch-tp2-pp2/." "$ckpt"
mount_foreground "$ckpt" -o "metrics=$work/m.prom"
written() { [ -s "$work/m.prom" ]; }
wait_until 'the file is written' written
cat "$mnt/$hf"/* >/dev/null
kill -HUP "$daemon"
counted() { cp "$work/m.prom" "$work/text" && [ "$(value mcorefs_fuse_read_size_bytes_sum)" = "$sum" ]; }
wait_until 'the file is written again' counted
same 'left behind' "$(ls "$work" | grep 'm\.prom\.')" ''
unmount
[ ! -e "$work/m.prom" ] || fail 'the file stays'

# A mount that fails leaves the file of another alone.
echo other >"$work/m.prom"
refused 'a mount that fails' 3 'cannot mount' "$MCOREFS" "$FIXTURES/hf/llama-safetensors" "$mnt" -f -o "context=bogus,metrics=$work/m.prom"
same 'the file of another mount' "$(cat "$work/m.prom")" other

# Refused before anything is mounted.
refused 'no port' 2 "metrics" "$MCOREFS" "$ckpt" "$mnt" -o metrics=9100
refused 'a port of words' 3 "no address to listen on" "$MCOREFS" "$FIXTURES/hf/llama-safetensors" "$mnt" -f -o metrics=localhost:http
refused 'in SOURCE' 1 'lies in SOURCE' "$MCOREFS" "$ckpt" "$mnt" -o "metrics=$ckpt/m.prom"
refused 'a format' 2 "takes 'json' or 'text'" "$MCOREFS" "$ckpt" "$mnt" -o log_format=xml
not_mounted || fail 'something is mounted'
[ -z "${left_out-}" ] || skip "$left_out"
