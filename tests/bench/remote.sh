#!/bin/bash
# A checkpoint on a web server (nginx, on this machine), read through the mount: cold, against curl of the same bytes; and
# from the cache, against a mount of the local checkpoint. Ratios of medians, in turn in one run.
#
#   tests/bench/remote.sh                   BENCH_GIB=1 BENCH_RUNS=3 BENCH_DIR=/tmp
#
# On two processors server, daemon and reader share them. curl fetches the files one after the other, as the reader does.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/bench/lib.sh

mcorefs=$(realpath -m "${O:-build}")/mcorefs
bin=$(realpath -m "${O:-build}")/obj/tests/bench
runs=1
results=${O:-build}/bench-remote.txt
PATH=$PATH:/usr/sbin
[ -x "$mcorefs" ] && [ -x "$bin/bench_read" ] || die "make $mcorefs $bin/bench_read first"
for tool in python3 nginx curl; do command -v "$tool" >/dev/null || die "$tool is needed"; done
[ -c /dev/fuse ] || die "there is no /dev/fuse"
unset http_proxy HTTP_PROXY
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
chmod 755 "$work"
mkdir "$work/mnt" "$work/local" "$work/nginx" "$work/www"
port=$((20000 + RANDOM % 10000))
url=http://127.0.0.1:$port/source
server=

clean_up() {
	unmount "$work/mnt"
	unmount "$work/local"
	[ -z "$server" ] || kill "$server"
	wait
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

python3 tests/giants/make.py llama "$work/www/source" --gib "${BENCH_GIB:-1}" --tp 4 --hidden 4096 >/dev/null || die "cannot make a checkpoint"
cat >"$work/nginx/conf" <<END
daemon off; pid $work/nginx/pid; worker_processes 1; error_log $work/nginx/error.log;
$([ "$(id -u)" != 0 ] || echo "user root;")
events {}
http {
	access_log off; sendfile on; default_type application/octet-stream; types { text/html html; }
	client_body_temp_path $work/nginx/a; proxy_temp_path $work/nginx/b; fastcgi_temp_path $work/nginx/c;
	uwsgi_temp_path $work/nginx/d; scgi_temp_path $work/nginx/e;
	server { listen 127.0.0.1:$port; root $work/www; autoindex on; }
}
END
nginx -e "$work/nginx/error.log" -c "$work/nginx/conf" &
server=$!
sleep 1
mapfile -t objects < <(cd "$work/www/source" && find . -type f -size +1M | sort)
bytes=$(cd "$work/www/source" && cat "${objects[@]}" | wc -c)

fetch_all() {
	local object
	for object in "${objects[@]}"; do curl -sSf -o "$work/fetched" "$url/${object#./}" || die "curl $object"; done
}

read_all() {
	cat "$1"/latest/hf/*.safetensors >/dev/null
}

mount_remote() {
	"$mcorefs" "$url" "$work/mnt" -o "cache=$work/cache,cache_size=100GiB" 2>/dev/null || die "cannot mount $url"
}

gbs() { awk -v b="$bytes" -v s="$1" 'BEGIN { printf "%.4f", b / s / 1e9 }'; }

"$mcorefs" "$work/www/source" "$work/local" 2>/dev/null || die "cannot mount the local checkpoint"
for ((round = 0; round < ${BENCH_RUNS:-3}; round++)); do
	rm -f "$work/fetched"
	gbs "$(seconds fetch_all)" >>"$work/curl" && echo >>"$work/curl"
	rm -rf "$work/cache"
	mount_remote
	gbs "$(seconds read_all "$work/mnt")" >>"$work/cold" && echo >>"$work/cold"
	unmount "$work/mnt"
	mount_remote
	gbs "$(seconds read_all "$work/mnt")" >>"$work/warm" && echo >>"$work/warm"
	unmount "$work/mnt"
	unmount "$work/local"
	"$mcorefs" "$work/www/source" "$work/local" 2>/dev/null || die "cannot mount the local checkpoint"
	gbs "$(seconds read_all "$work/local")" >>"$work/near" && echo >>"$work/near"
done
curl=$(median <"$work/curl") cold=$(median <"$work/cold") warm=$(median <"$work/warm") near=$(median <"$work/near")
: >"$results"
row "case" "GB/s" "beside" "ratio" "goal"
row "cold, beside curl" "$(two "$cold")" "$(two "$curl")" "$(ratio "$cold" "$curl")" ">= 0.9"
row "from the cache, beside a local mount" "$(two "$warm")" "$(two "$near")" "$(ratio "$warm" "$near")" ">= 0.9"
