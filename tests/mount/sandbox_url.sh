#!/bin/bash
# -o sandbox of a SOURCE on another machine, by https:// and s3://, for mounts and gateways: hosts are found by their names,
# certificates believed, keys read and ranges kept in the cache; and nothing else is opened.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_gateway.sh"
server=

command -v curl >/dev/null || skip "curl is not installed"
command -v openssl >/dev/null || skip "openssl is not installed"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY "${!AWS_@}"
export HOME=$work/home AWS_EC2_METADATA_DISABLED=true
cache=$work/cache
mkdir -p "$HOME/.aws" "$work/tls" "$work/elsewhere"

# A name that only a file of the system knows, where this case may lay another one over it.
host=127.0.0.1
if [ -n "${MCOREFS_TEST_NAMESPACE-}" ]; then
	printf '127.0.0.1 localhost ckpts.test\n' >"$work/hosts"
	mount --bind "$work/hosts" /etc/hosts && host=ckpts.test
fi
trap 'status=$?; kill -9 $gw $server 2>/dev/null; ! mountpoint -q /etc/hosts || [ "$host" = 127.0.0.1 ] || umount /etc/hosts; (exit "$status"); end' EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ckpts.test -addext subjectAltName=IP:127.0.0.1,DNS:ckpts.test \
	-keyout "$work/tls/key" -out "$work/tls/cert" 2>/dev/null || fail "openssl makes no certificate"
cp "$work/tls/cert" "$work/elsewhere/cert"

# A model with a file that no mount reads before its readers do: it has more than one block of the cache.
"$MCOREFS" export "$FIXTURES/weights/llama-torch-tp2-pp2" hf "$work/hf" -o vocab_size=1000,shard_size=200000 >/dev/null || fail export
head -c 3000000 /dev/zero | tr '\0' x >"$work/hf/chat_template.jinja"

# The server is a gateway, which speaks https and S3, and wants to know who asks.
keys() { # SECRET
	printf '[default]\naws_access_key_id = alice\naws_secret_access_key = %s\n' "$1" >"$HOME/.aws/new"
	mv "$HOME/.aws/new" "$HOME/.aws/credentials"
}
printf 'alice hf_alice_12345 lab/*\nbob hf_bob_1234567 lab/*\n' >"$work/tokens" && chmod 600 "$work/tokens"
serve lab/llama="$work/hf" -o shard_size=200000 --tokens "$work/tokens" \
	--listen 127.0.0.1:0 --listen-s3 127.0.0.1:0 --certificate "$work/tls/cert" --key "$work/tls/key" --access-log "$work/access"
server=$gw gw=
web=https://$host:${url##*:}/files/lab/llama/main
AWS_ENDPOINT_URL=https://$host:$(sed -n 's/.*S3 on .*:\([0-9]*\).*/\1/p' "$log")
export AWS_ENDPOINT_URL CURL_CA_BUNDLE=$work/tls/cert MCOREFS_TOKEN=hf_alice_12345
s3=s3://lab/llama/main
keys hf_alice_12345

status() { # FIELD
	sed -n "s/^$1:[[:space:]]*//p" "/proc/${gw:-$daemon}/task"/*/status | sort -u
}
reads() {
	for file in "$work/hf"/*.safetensors "$work/hf/chat_template.jinja"; do cmp "$file" "$mnt/hf/${file##*/}" || fail "$1: ${file##*/}"; done
}
shut() { # What holds all of its threads, those that fetch among them.
	same "Seccomp" "$(status Seccomp)" 2
	same "NoNewPrivs" "$(status NoNewPrivs)" 1
	same "capabilities but CAP_DAC_READ_SEARCH" "$((0x$(status CapPrm) & ~4))" 0
}

"$MCOREFS" "$web" "$mnt" -o sandbox,shard_size=200000,cache="$cache" 2>"$log" || {
	grep -qE 'has no Landlock|need a kernel' "$log" && skip "$(<"$log")"
	fail "a mount of a URL in a sandbox"
}
unmount

# ---- mounts ----

for source in "$web" "$s3"; do
	rm -rf "$cache"
	: >"$work/access"
	mount_foreground "$source" -o sandbox,shard_size=200000,cache="$cache"
	reads "$source"
	shut
	grep -q ' 206 ' "$work/access" || fail "$source: no range came over the network"
	counted() { sed -n "s/^mcorefs_remote_bytes_total{.*} //p" "$mnt/.mcorefs/stats"; }
	[ "$(counted)" -gt 100000 ] || fail "$source: $(cat "$mnt/.mcorefs/stats")"
	unmount
	same "$source: places that are left in the cache" "$(ls "$cache/mounts")" ""
	# What is in the cache comes from there.
	: >"$work/access"
	mount_foreground "$source" -o sandbox,shard_size=200000,cache="$cache"
	reads "$source from the cache"
	! grep -q '"GET .*safetensors.* 206 ' "$work/access" || fail "$source: what is in the cache was fetched again"
	unmount
done

# The directories of certificates may be opened, and no other one: a link that leads out of there is not followed.
rm -rf "$cache"
mount_foreground "$web" -o sandbox,shard_size=200000,cache="$cache"
ln -sf "$work/elsewhere/cert" "$work/tls/cert"
cat "$mnt/hf/chat_template.jinja" >/dev/null 2>"$work/out" && fail "a certificate elsewhere was read in a sandbox"
grep -q 'Input/output error' "$work/out" || fail "a certificate elsewhere: $(<"$work/out")"
grep -q "$work/tls/cert" "$log" || fail "the log does not say what cannot be read"
cp --remove-destination "$work/elsewhere/cert" "$work/tls/cert"
reads "the certificate is back"
unmount
ln -sf "$work/elsewhere/cert" "$work/tls/cert"
mount_foreground "$web" -o shard_size=200000,cache="$cache-other"
reads "without a sandbox that link is followed"
unmount
cp --remove-destination "$work/elsewhere/cert" "$work/tls/cert"

# Killed: the next one takes its place.
mount_foreground "$s3" -o sandbox,shard_size=200000,cache="$cache"
kill -s KILL "$daemon"
wait "$daemon" 2>/dev/null
daemon=
mount_source "$s3" -o sandbox,shard_size=200000,cache="$cache"
reads "behind one that was killed"
unmount

mount_foreground "$web" -o drop_privileges,shard_size=200000,cache="$work/cache-dropped"
reads "drop_privileges"
same "capabilities" "$(status CapPrm)" 0000000000000000
unmount
! is_root || refused "setuid of a URL" 1 "'setuid' goes with no URL: the cache would be root's" \
	timeout 60 "$MCOREFS" "$web" "$mnt" -o setuid=nobody,allow_other,cache="$cache"

# ---- gateways ----

config() { # REPOSITORIES
	printf 'listen: 127.0.0.1:0\nrepositories: %s\n' "$1" >"$work/etc/gw.yaml"
}
expect() { # REPOSITORY
	for file in "$work/hf"/*.safetensors "$work/hf/chat_template.jinja"; do
		curl -sf --noproxy '*' "$url/lab/$1/resolve/main/${file##*/}" >"$work/body" || fail "$1: ${file##*/}"
		cmp "$work/body" "$file" || fail "$1: ${file##*/}: other bytes"
	done
}
reread() { # PATTERN
	: >"$log"
	kill -HUP "$gw"
	wait_until "the log says: $1" grep -q "$1" "$log"
}
# It makes its cache itself, and opens its sources in the sandbox.
mkdir "$work/etc"
rm -rf "$cache"
config "{lab/web: {source: '$web', options: 'shard_size=200000,cache=$cache'}, lab/s3: {source: '$s3', options: 'shard_size=200000,cache=$cache'}}"
serve "$work/etc/gw.yaml" -o sandbox
expect web
expect s3
shut
# Keys that were replaced are read when the configuration is.
keys hf_bob_1234567
sed -i s/alice/bob/ "$HOME/.aws/credentials"
rm -rf "$cache/objects"/*
config "{lab/again: {source: '$s3', options: 'shard_size=200000,cache=$cache'}}"
: >"$work/access"
reread 'the configuration was read again'
expect again
grep -q ' bob ' "$work/access" || fail "the keys are the old ones: $(<"$work/access")"
config "{lab/elsewhere: {source: '$s3', options: 'shard_size=200000,cache=$work/elsewhere/cache'}}"
reread 'cannot open the cache .*Permission denied; what is served stays as it was'
expect again
stop

config "{lab/web: {source: '$web', options: 'shard_size=200000,cache=$cache'}}"
serve "$work/etc/gw.yaml" -o sandbox
expect web
config "{lab/s3: {source: '$s3', options: 'shard_size=200000,cache=$cache'}}"
reread 'began without an s3 URL reads from none later: restart it; what is served stays as it was'
expect web
stop
