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

# Names that only a file of the system knows, and only a DNS server, where this case may lay files over the system's.
by_file=127.0.0.1 by_dns=127.0.0.1 dns=
lay() { # TEXT FILE
	echo "$1" >"$work/${2##*/}"
	[ -e "$2" ] && mount --bind "$work/${2##*/}" "$2"
}
if [ -n "${MCOREFS_TEST_NAMESPACE-}" ] && lay 'hosts: files dns' /etc/nsswitch.conf && lay '127.0.0.1 localhost file.test' /etc/hosts; then
	by_file=file.test
	resolver=127.$((RANDOM % 200 + 1)).$((RANDOM % 250)).$((RANDOM % 250 + 1))
	if command -v python3 >/dev/null && lay "nameserver $resolver" /etc/resolv.conf; then
		python3 - $resolver >"$work/dns" 2>&1 <<-'END' &
			import socket, sys
			s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
			s.bind((sys.argv[1], 53))
			print("ready", flush=True)
			while True:
			    asked, client = s.recvfrom(512)
			    end = asked.index(0, 12) + 5
			    is_a = asked[end - 4:end - 2] == b"\0\1" and asked[12:end - 4] == b"\3dns\4test\0"
			    answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if is_a else b""
			    s.sendto(asked[:2] + b"\x81\x80\0\1\0" + bytes([is_a]) + b"\0\0\0\0" + asked[12:end] + answer, client)
		END
		dns=$!
		wait_until "the DNS server listens" eval 'grep -q . "$work/dns" || ended $dns'
		! grep -q ready "$work/dns" || by_dns=dns.test
	fi
fi
trap 'status=$?; kill -9 $gw $server $dns 2>/dev/null; (exit "$status"); end' EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ckpts -addext subjectAltName=IP:127.0.0.1,DNS:file.test,DNS:dns.test \
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
web=https://$by_dns:${url##*:}/files/lab/llama/main
AWS_ENDPOINT_URL=https://$by_file:$(sed -n 's/.*S3 on .*:\([0-9]*\).*/\1/p' "$log")
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
