#!/bin/bash
# A checkpoint on a web server: what is read over http and https, through the cache, is what is read locally. A mount is
# killed while it fetches, two share a cache, the server goes away, an object is written anew.
. "$(dirname "$0")/lib.sh"
command -v nginx >/dev/null || PATH=$PATH:/usr/sbin
command -v nginx >/dev/null || skip "nginx is not installed"
command -v openssl >/dev/null || skip "openssl is not installed"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
cache=$work/cache

start_nginx() {
	nginx -e "$work/nginx/error.log" -c "$work/nginx/conf" 2>"$work/nginx/out" &
	server=$!
	wait_until "nginx listens" listening
}

listening() {
	(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

# The workers end with their master.
stop_nginx() {
	kill "$server"
	wait "$server"
}

mkdir -p "$work/nginx" "$work/www"
cp -a "$FIXTURES/weights" "$work/www/weights"
read -r -d '' port tls_port < <(free_ports 2)
page='<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>TOKEN</NextContinuationToken></ListBucketResult>'
one="${page/<IsTruncated>/<Contents><Key>one/TOKEN</Key><Size>1</Size></Contents><IsTruncated>}"
links=$(printf '<a href=%s>d</a>' "'"{0..9}"/'")
mkdir -p "$work/www/slow" && { echo '<a href="a/">'; head -c 1000000 /dev/zero | tr '\0' ' '; } >"$work/www/slow/index.html"
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
	-keyout "$work/nginx/key" -out "$work/nginx/cert" 2>/dev/null || fail "openssl makes no certificate"
{
	! is_root || echo "user root;"
	cat <<-END
		daemon off;
		pid $work/nginx/pid;
		worker_processes 1;
		error_log $work/nginx/error.log;
		events {}
		http {
			access_log $work/nginx/access.log;
			client_body_temp_path $work/nginx/body;
			proxy_temp_path $work/nginx/proxy;
			fastcgi_temp_path $work/nginx/fastcgi;
			uwsgi_temp_path $work/nginx/uwsgi;
			scgi_temp_path $work/nginx/scgi;
			default_type application/octet-stream;
			types { text/html html; application/json json; }
			server {
				listen 127.0.0.1:$port;
				listen 127.0.0.2:$port;
				listen 127.0.0.1:$tls_port ssl;
				ssl_certificate $work/nginx/cert;
				ssl_certificate_key $work/nginx/key;
				root $work/www;
				autoindex on;
				location /json/ { alias $work/www/; autoindex on; autoindex_format json; }
				location /models/ { alias $work/www/models/; autoindex off; }
				location /nohead/ {
					alias $work/www/models/;
					autoindex off;
					if (\$request_method = HEAD) { return 405; }
				}
				location /denied/ { alias $work/www/models/; autoindex off; error_page 404 = @denied; }
				location @denied { return 403; }
				location /s3/again/ { default_type application/xml; return 200 "${page/TOKEN/a}"; }
				location /s3/empty/ { default_type application/xml; return 200 "${page/TOKEN/\$request_id}"; }
				location /s3/one/ { default_type application/xml; return 200 "${one//TOKEN/\$request_id}"; }
				location /deep/ { default_type text/html; return 200 "$links"; }
				location /slow/ { alias $work/www/slow/; limit_rate 1500; }
				location /inside/ { return 302 http://127.0.0.1:$port/weights/; }
				location /name/ { return 302 http://localhost:$port/weights/; }
				location /moved/ { return 302 http://127.0.0.1:$port/weights/; }
			}
		}
	END
} >"$work/nginx/conf"
start_nginx
trap 'status=$?; kill "$server" 2>/dev/null; (exit "$status"); end' EXIT
url=http://127.0.0.1:$port

sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort -k 2); }

# ---- the bytes of the local checkpoint ----

for name in llama-torch-tp2-pp2 mixtral-torch_dist-pp2-ep2; do
	local_copy=$work/local-$name
	"$MCOREFS" export "$FIXTURES/weights/$name" hf "$local_copy" || fail "$name: export of the local one"
	for at in "$url/weights" "$url/json/weights/"; do
		rm -rf "$work/copy"
		"$MCOREFS" export "${at%/}/$name" hf "$work/copy" -o cache="$cache" || fail "$at/$name: export"
		diff -r "$local_copy" "$work/copy" || fail "$at/$name: other bytes"
	done
	"$MCOREFS" verify "$url/weights/$name" --deep -o cache="$cache" >"$work/out" || fail "$name: verify"
	"$MCOREFS" inspect "$url/weights/$name" -o cache="$cache" | grep -qF "$url/weights/$name" || fail "$name: inspect"
	same "$name: files" "$("$MCOREFS" ls "$url/weights/$name" -o cache="$cache" | awk '{ print $2, $NF }')" \
		"$("$MCOREFS" ls "$FIXTURES/weights/$name" | awk '{ print $2, $NF }')"
done

# A HuggingFace model that no index shows is found by its names.
mkdir "$work/www/models"
cp -r "$work/local-llama-torch-tp2-pp2" "$work/www/models/llama"
chmod -R a+rX "$work/www/models"
"$MCOREFS" export "$url/models/llama" raw "$work/raw" -o cache="$cache" || fail "export of a model without an index"
"$MCOREFS" export "$work/www/models/llama" raw "$work/raw-local" || fail "export of a local model"
diff -r "$work/raw" "$work/raw-local" || fail "a model without an index: other bytes"

# Names that are tried and are not there, on servers that do not answer HEAD, or say 403 of what is not there.
for at in nohead denied; do
	rm -rf "$work/raw"
	"$MCOREFS" export "$url/$at/llama" raw "$work/raw" -o cache="$cache" || fail "$at: export"
	diff -r "$work/raw" "$work/raw-local" || fail "$at: other bytes"
done
refused "all is denied" 1 'no index of it \(access denied\)' "$MCOREFS" ls "$url/denied/nothing" -o cache="$cache"

# https, with the certificate that is trusted, and not without.
refused "https that nobody vouches for" 1 certificate "$MCOREFS" ls "https://127.0.0.1:$tls_port/weights/llama-torch-tp2-pp2" \
	-o cache="$cache"
CURL_CA_BUNDLE=$work/nginx/cert "$MCOREFS" export "https://127.0.0.1:$tls_port/weights/llama-torch-tp2-pp2" hf \
	"$work/tls" -o cache="$cache" || fail "https: export"
diff -r "$work/local-llama-torch-tp2-pp2" "$work/tls" || fail "https: other bytes"

# A gateway shows a URL as a repository, and counts what came over the network, of sources that it has closed, too.
if command -v curl >/dev/null; then
	read -r gateway_port < <(free_ports 1)
	cat >"$work/gateway.yaml" <<-END
		listen: 127.0.0.1:$gateway_port
		limits: {open: 1}
		repositories:
		  org/llama: {source: "$url/weights/llama-torch-tp2-pp2", options: "cache=$work/cache-gateway"}
		  org/mixtral: {source: "$url/weights/mixtral-torch_dist-pp2-ep2", options: "cache=$work/cache-gateway"}
	END
	"$MCOREFS" serve "$work/gateway.yaml" 2>"$work/out" &
	daemon=$!
	wait_until "the gateway serves" grep -q 'serving on' "$work/out"
	curl -sf "http://127.0.0.1:$gateway_port/org/llama/resolve/main/model.safetensors" >"$work/gateway" || fail "a gateway of a URL"
	cmp "$work/gateway" "$work/local-llama-torch-tp2-pp2/model.safetensors" || fail "a gateway of a URL: other bytes"
	# counted NAME: at least as many bytes as these.
	counted() {
		local n
		n=$(curl -sf "http://127.0.0.1:$gateway_port/metrics" | awk '$1 == "mcorefs_remote_bytes_total" { print $2 }')
		[ "${n:-0}" -ge "$2" ] || fail "$1: $n bytes came over the network, expected $2"
	}
	llama=$(stat -c %s "$work/local-llama-torch-tp2-pp2/model.safetensors")
	mixtral=$(stat -c %s "$work/local-mixtral-torch_dist-pp2-ep2/model.safetensors")
	counted 'one source' "$llama"
	curl -sf "http://127.0.0.1:$gateway_port/org/mixtral/resolve/main/model.safetensors" >/dev/null || fail "a second source"
	curl -sf "http://127.0.0.1:$gateway_port/metrics" | grep -qx 'mcorefs_sources_open 1' || fail "the first source is still open"
	counted 'two sources, of which one is closed' $((llama + mixtral))
	kill "$daemon"
	wait "$daemon"
	daemon=
fi

# ---- what is refused ----

# Listings of S3 without an end.
s3() {
	env AWS_ENDPOINT_URL="$url/s3" AWS_EC2_METADATA_DISABLED=true HOME="$work" timeout 60 "$MCOREFS" ls "$1" -o cache="$cache"
}
refused "a page that leads to itself" 1 'leads to itself' s3 s3://again/x
refused "pages without names" 1 '101 pages of the listing have no names' s3 s3://empty/x

refused "a listing of ever more pages" 1 'more than 10000 pages' s3 s3://one/one
refused "directories without an end" 1 'more than 10000 directories below it' "$MCOREFS" ls "$url/deep/" -o cache="$cache"
refused "an index that drips" 1 'was not listed within 2 s \(-o open_timeout=SECONDS\)' \
	"$MCOREFS" ls "$url/slow/" -o cache="$cache",open_timeout=2

# A redirect leads to this machine only from where the operator has sent us himself, or if he says so.
for name in inside name; do
	refused "a redirect inwards by $name" 1 "a redirect leads to (127.0.0.1|::1), which is this machine" \
		"$MCOREFS" ls "http://127.0.0.2:$port/$name/" -o cache="$cache"
	"$MCOREFS" ls "http://127.0.0.2:$port/$name/" -o cache="$cache",private_redirects 2>&1 | grep -q 'redirect leads' &&
		fail "private_redirects does not follow one by $name"
done
"$MCOREFS" ls "$url/inside/" -o cache="$cache" 2>&1 | grep -q 'redirect leads' && fail 'a redirect to the same address is refused'
refused "nothing there" 1 'no index of it' "$MCOREFS" ls "$url/nothing" -o cache="$cache"
refused "no checkpoint" 1 'holds no Megatron checkpoint' "$MCOREFS" ls "$url/weights/llama-torch-tp2-pp2/iter_0000040/mp_rank_00_000" \
	-o cache="$cache"
refused "a query" 1 'can have no query' "$MCOREFS" ls "$url/weights/?a=b" -o cache="$cache"
refused "a password" 1 'write them to ~/.netrc' "$MCOREFS" ls "${url/:\/\//:\/\/u:geheim@}/weights/" -o cache="$cache"
! grep -q geheim <<<"$("$MCOREFS" ls "${url/:\/\//:\/\/u:geheim@}/weights/" -o cache="$cache" 2>&1)" || fail 'a password is shown'
refused "nobody listens" 1 'refused|connect' "$MCOREFS" ls "http://127.0.0.1:1/x" -o cache="$cache",timeout=1
refused "a cache that others may write to" 1 'others must not' \
	sh -c "mkdir -m 777 '$work/open' && exec '$MCOREFS' ls '$url/weights/llama-torch-tp2-pp2' -o cache='$work/open'"

# ---- mounts ----

rm -rf "$cache"
source=$url/weights/llama-torch_dist-tp2-pp2-vpp2
mount_source "$FIXTURES/weights/llama-torch_dist-tp2-pp2-vpp2"
sums "$mnt" >"$work/expected"
unmount
mount_source "$source" -o cache="$cache"
same "what mount(8) shows" "$(awk -v m="$mnt" '$2 == m { print $1 }' /proc/self/mounts)" "$source"
sums "$mnt" >"$work/found"
cmp "$work/expected" "$work/found" || fail "the mount shows other bytes"

# Another one on the same cache fetches nothing that is there.
: >"$work/nginx/access.log"
mkdir "$work/second"
"$MCOREFS" "$source" "$work/second" -o cache="$cache" || fail "a second mount"
sums "$work/second" >"$work/found"
cmp "$work/expected" "$work/found" || fail "the second mount shows other bytes"
same "ranges that the second one has asked for" "$(grep -c ' 206 ' "$work/nginx/access.log")" 0
counted() { sed -n "s/^mcorefs_$2{.*} //p" "$1/.mcorefs/stats"; }
[ "$(counted "$mnt" remote_bytes_total)" -gt 100000 ] || fail "the first mount has counted: $(cat "$mnt/.mcorefs/stats")"
same "bytes that the second one has fetched" "$(counted "$work/second" remote_bytes_total)" 0
[ "$(counted "$work/second" cache_hits_total)" -gt 0 ] || fail "the second mount has counted no hits"
umount "$work/second" 2>/dev/null || fusermount3 -u "$work/second"
unmount

# The server is gone: what is in the cache cannot be listed without it, and a mount that stands goes on.
mount_source "$source" -o cache="$cache",timeout=1
stop_nginx
sums "$mnt" >"$work/found"
cmp "$work/expected" "$work/found" || fail "without its server the mount shows other bytes"
unmount
start_nginx

# Killed while it fetches: the next one shows the right bytes, and clears its place away.
for nap in 0.01 0.03 0.05; do
	rm -rf "$cache"
	mount_foreground "$source" -o cache="$cache"
	sums "$mnt" >/dev/null 2>&1 &
	sleep "$nap"
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null
	daemon=
	umount -l "$mnt" 2>/dev/null || fusermount3 -u -z "$mnt"
	mount_source "$source" -o cache="$cache"
	same "places in the cache" "$(find "$cache/mounts" -mindepth 1 -maxdepth 1 | wc -l)" 1
	sums "$mnt" >"$work/found"
	cmp "$work/expected" "$work/found" || fail "killed after $nap s: other bytes"
	unmount
done

# An object is written anew: never bytes of both.
rm -rf "$cache"
mount_source "$source" -o cache="$cache"
ls -R "$mnt" >/dev/null
for file in "$work"/www/weights/llama-torch_dist-tp2-pp2-vpp2/iter_*/*.distcp; do
	tr '\0-\377' '\1-\377\0' <"$file" >"$work/new" && mv "$work/new" "$file"
done
cat "$mnt/latest/raw"/* >/dev/null 2>"$work/out" && fail "a rewritten object was read"
grep -qE 'Stale file handle|Input/output error' "$work/out" || fail "a rewritten object: $(cat "$work/out")"
unmount
stop_nginx
