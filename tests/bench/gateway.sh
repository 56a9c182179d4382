#!/bin/bash
# mcorefs serve against nginx with sendfile over an export of the same view, in turn in one run.
#
#   tests/bench/gateway.sh                  BENCH_GIB=1 BENCH_RUNS=3 BENCH_SECONDS=3 BENCH_DIR=/tmp
#
# Rows: ranges of 8 MiB on 16 connections (the floor is 0.9 of nginx), p99 of config.json on 16 connections (the floor is
# twice nginx's), and what 2000 idle connections that are kept alive take of memory (100 MiB), pages of mapped sources apart.
# The files are in memory.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

mcorefs=$(realpath -m "${O:-build}")/mcorefs
bin=$(realpath -m "${O:-build}")/obj/tests/bench
gib=${BENCH_GIB:-1}
runs=${BENCH_RUNS:-3}
secs=${BENCH_SECONDS:-3}
results=${O:-build}/bench-gateway.txt
[ -x "$mcorefs" ] && [ -x "$bin/bench_http" ] || die "make $mcorefs $bin/bench_http first"
command -v nginx >/dev/null || die "nginx is not installed"
command -v python3 >/dev/null || die "python3 is needed to make the checkpoint"
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
: >"$results"
ulimit -n "$(ulimit -Hn)"

source=$work/ckpt
python3 tests/giants/make.py llama "$source" --gib "$gib" --tp 4 >/dev/null || die "cannot make a checkpoint"
"$mcorefs" export "$source" hf "$work/hf" -o shard_size=100GB >/dev/null || die export
chmod -R a+rX "$work"

cat >"$work/nginx.conf" <<END
daemon off; worker_processes auto; pid $work/nginx.pid; error_log $work/nginx.log; worker_rlimit_nofile 10000;
events { worker_connections 8192; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_timeout 300; keepalive_requests 1000000000;
	client_body_temp_path $work/t; proxy_temp_path $work/t; fastcgi_temp_path $work/t; uwsgi_temp_path $work/t; scgi_temp_path $work/t;
	server { listen 127.0.0.1:18081 backlog=4096; root $work; } }
END
nginx -p "$work" -c "$work/nginx.conf" 2>/dev/null &
pids+=($!)
printf 'listen: 127.0.0.1:18082\nlimits: {connections: 4096, per_address: 4096, idle_seconds: 300}\nrepositories: {a/b: {source: %s, options: shard_size=100GB}}\n' \
	"$source" >"$work/gw.yaml"
"$mcorefs" serve "$work/gw.yaml" 2>"$work/log" &
gateway=$!
pids+=("$gateway")
for _ in $(seq 100); do grep -q 'serving on' "$work/log" && break; sleep 0.1; done

size=$(stat -c %s "$work/hf/model.safetensors")
declare -A path=([18081]=/hf [18082]=/files/a/b/main)
for port in 18081 18082; do # once, so that everything is open and in memory
	"$bin/bench_http" "$port" "${path[$port]}/model.safetensors" "$size" 1 1 >/dev/null || die "port $port"
done
# measure FIELD FILE SIZE [RANGE]: medians of nginx and of the gateway, in turn
measure() {
	local field=$1 file=$2 of=$3 port
	: >"$work/18081" && : >"$work/18082"
	for ((i = 0; i < runs; i++)); do
		for port in 18081 18082; do
			"$bin/bench_http" "$port" "${path[$port]}/$file" "$of" 16 "$secs" "${@:4}" | cut -d' ' -f"$field" >>"$work/$port" || die "port $port"
		done
	done
	nginx=$(median <"$work/18081") ours=$(median <"$work/18082")
}

row 'what' 'nginx' 'mcorefs' 'ratio' 'floor'
measure 1 model.safetensors "$size" $((8 << 20))
row 'ranges of 8 MiB, 16 connections, GB/s' "$(two "$(ratio "$nginx" 1e9)")" "$(two "$(ratio "$ours" 1e9)")" "$(ratio "$ours" "$nginx")" '>= 0.9'
measure 3 config.json 0
row 'config.json, 16 connections, p99 in ms' "$nginx" "$ours" "$(ratio "$ours" "$nginx")" '<= 2'
measure 2 config.json 0
row 'config.json, 16 connections, requests a second' "$nginx" "$ours" "$(ratio "$ours" "$nginx")" ''

# resident: MiB that the gateway has, with pages of files that it has served.
resident() {
	awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$gateway/status"
}

mkfifo "$work/go"
before=$(resident)
"$bin/bench_http" 18082 /files/a/b/main/config.json 0 2000 0 <"$work/go" >"$work/idle" &
pids+=($!)
exec 3>"$work/go"
for _ in $(seq 200); do grep -q idle "$work/idle" && break; sleep 0.1; done
row '2000 idle connections, MiB more than before' '' "$(($(resident) - before))" '' '< 100'
row '  of all that it has, with the file that it served' '' "$(resident)" '' ''
echo >&3
