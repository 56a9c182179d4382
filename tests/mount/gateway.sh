#!/bin/bash
# mcorefs serve, by curl: the bytes of an export, ranges and conditions, refusals, tokens, limits, sources that change while
# they are read, TLS, a unix socket, and a clean end.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_gateway.sh"

command -v curl >/dev/null || skip "curl is not installed"
m=$MCOREFS

# status PATH [CURL OPTION...]
status() {
	curl -s -o "$work/body" -D "$work/head" -w '%{http_code}' "${@:2}" "$url$1"
}

# expect STATUS PATH [CURL OPTION...]
expect() {
	same "$2 ${*:3}" "$(status "${@:2}")" "$1"
}

# head_of NAME: a header of the last reply.
head_of() {
	tr -d '\r' <"$work/head" | sed -n "s/^$1: //Ip"
}

copy_fixture weights/llama-torch-tp2-pp2
chmod -R u+w "$ckpt"
"$m" export "$ckpt" hf "$work/hf" -o vocab_size=1000 >/dev/null || fail export
file=$work/hf/model.safetensors
size=$(stat -c %s "$file")
serve lab/llama="$ckpt" "$FIXTURES/data/tales_text_document" --listen 127.0.0.1:0 -o vocab_size=1000 --access-log "$work/access"

# Bytes, by both routes.
for name in config.json model.safetensors; do
	for path in /lab/llama/resolve/main/$name /files/lab/llama/iter_0000040/$name /lab/llama/resolve/40/$name; do
		expect 200 "$path"
		cmp "$work/body" "$work/hf/$name" || fail "$path"
	done
done
same 'X-Repo-Commit' "$(head_of X-Repo-Commit | grep -cE '^[0-9a-f]{40}$')" 1
expect 200 /lab/llama/resolve/main/model.safetensors --head
same 'HEAD: Content-Length' "$(head_of Content-Length)" "$size"
etag=$(head_of ETag)
date=$(head_of Last-Modified)
p=/lab/llama/resolve/main/model.safetensors

# part FROM COUNT: these bytes of the file are the last reply.
part() {
	tail -c +$(($1 + 1)) "$file" | head -c "$2" | cmp - "$work/body" || fail "bytes $1+$2"
}
expect 206 "$p" -r 1000-70000 && part 1000 69001
same 'Content-Range' "$(head_of Content-Range)" "bytes 1000-70000/$size"
expect 206 "$p" -r -17 && part $((size - 17)) 17
expect 206 "$p" -r $((size - 1))- && part $((size - 1)) 1
expect 416 "$p" -r "$size-"
same '416: Content-Range' "$(head_of Content-Range)" "bytes */$size"
expect 304 "$p" -H "If-None-Match: $etag"
expect 304 "$p" -H "If-Modified-Since: $date"
expect 200 "$p" -H "If-Modified-Since: $date" -H 'If-None-Match: "x"'
expect 200 "$p" -H 'If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT'
expect 412 "$p" -H 'If-Match: "x"' -r 0-9
expect 206 "$p" -H "If-Range: $etag" -r 0-9
expect 200 "$p" -H 'If-Range: "x"' -r 0-9 && part 0 "$size"

# What is not there, and what must not be.
expect 404 /lab/llama/resolve/main/nope
same 'no file' "$(head_of X-Error-Code)" EntryNotFound
[ -n "$(head_of X-Repo-Commit)" ] || fail 'no X-Repo-Commit with EntryNotFound'
expect 404 /lab/llama/resolve/nope/config.json
same 'no revision' "$(head_of X-Error-Code)" RevisionNotFound
expect 404 /lab/nope/resolve/main/config.json
same 'no repository' "$(head_of X-Error-Code)" RepoNotFound
for path in /files/../etc/passwd /files/%2e%2e/%2e%2e/etc/passwd /lab/llama/resolve/main/%2Fetc%2Fpasswd \
	/lab/llama/resolve/main/..%2f..%2fx /lab//llama /lab/llama/resolve/main/config.json%00 /%zz; do
	expect 400 "$path" --path-as-is
done
expect 405 "$p" -X DELETE
expect 405 "$p" -d x
head -c 2000000 /dev/zero >"$work/large"
expect 413 /api/models/lab/llama/paths-info/main --data-binary "@$work/large"
same 'a long target' "$(status "/$(head -c 20000 /dev/zero | tr '\0' a)" | grep -cE '^4')" 1
grep -q '" 206 69001 [0-9.]* hub "bytes=1000-70000" "curl' "$work/access" || fail "access log: $(<"$work/access")"
# What hf-mount asks before it mounts: a token of a storage in which no file lies.
expect 200 /api/models/lab/llama/xet-read-token/main
grep -qE '"casUrl":"https://[a-z]+.invalid","accessToken":"[a-z]+","exp":[0-9]{10}[},]' "$work/body" || fail "Xet: $(<"$work/body")"
expect 404 /api/models/lab/llama/xet-read-token/nope
expect 404 /api/models/lab/nope/xet-read-token/main
expect 200 /metrics
grep -q '^mcorefs_http_requests_total{route="hub",code="206"} [1-9]' "$work/body" || fail "metrics"
expect 200 /api/datasets/local/tales_text_document/tree/main

# A source that is written anew while a client reads: never its bytes, and then the new ones under another commit.
commit=$(curl -s "$url/api/models/lab/llama" | grep -o '"sha":"[0-9a-f]*"')
f=$(echo "$ckpt"/iter_*/mp_rank_00_000/model_optim_rng.pt)
for g in "$ckpt"/iter_*/*/*; do cp "$g" "$work/saved" && cp "$work/saved" "$g"; done
old=/lab/llama/resolve/$(cut -d'"' -f4 <<<"$commit")/model.safetensors
# gone: the old bytes are no longer offered. Before that, at most an error that asks to try again.
gone() {
	local code
	code=$(status "$old")
	[ "$code" = 404 ] || [ "$code" = 503 ] || fail "the old commit: $code"
	[ "$code" = 404 ]
}
wait_until 'the old commit is gone' gone
expect 200 "$p" && cmp "$work/body" "$file" || fail 'after a save'
[ "$commit" != "$(curl -s "$url/api/models/lab/llama" | grep -o '"sha":"[0-9a-f]*"')" ] || fail 'the commit is the same'
# Cut short: an error, or fewer bytes of the file than were promised; and others are served on.
truncate -s 100000 "$f"
if out=$(status "$p" --max-time 20) && [ "$out" = 200 ]; then
	fail 'a file whose source was cut was served whole'
elif [ "$out" = 200 ]; then
	cmp -n "$(stat -c %s "$work/body")" "$work/body" "$file" || fail 'other bytes of a file whose source was cut'
fi
expect 200 /healthz
stop

# Names: a dataset has the one that it is given; what is no name, or another program's way of naming, is told so.
tales=$FIXTURES/data/tales_text_document
mkdir "$work/two" && cp "$tales".* "$work/two"
serve lab/mine="$tales" lab/two="$work/two/tales_text_document" lab/x="$FIXTURES/hf/llama-safetensors" --listen 127.0.0.1:0 \
	--access-log "$work/access"
expect 200 /api/datasets
same 'names of datasets' "$(grep -o '"id":"[^"]*"' "$work/body" | tr -d '\n')" '"id":"lab/mine""id":"lab/two"'
expect 200 /api/datasets/lab/mine/tree/main
expect 200 /files/datasets/lab/two__jsonl/main/
expect 404 /api/datasets/lab/tales_text_document
expect 200 /api/datasets/lab/mine/auth-check
expect 404 /api/models/lab/mine/auth-check
# What the library ends by itself is logged and counted, a secret is not written down, and nothing of it stays.
expect 414 "/healthz?$(printf 'a=b&%.0s' {1..3000})"
expect 200 '/healthz?a=b&token=hf_alice_1&Access%5fToken=hf_alice_2'
grep -q '/healthz?a=b&token=\*&Access%5fToken=\*"' "$work/access" || fail "a token in the log: $(<"$work/access")"
status /healthz -H "Cookie: $(printf 'a=b; %.0s' {1..2500})" >/dev/null
expect 200 /metrics
grep -q '^mcorefs_http_requests_total{route="none",code="414"} 1$' "$work/body" || fail 'a query of 3000 pairs is not counted'
grep -q '^mcorefs_http_requests_total{route="none",code="none"} 1$' "$work/body" || fail 'a cookie of 2500 parts is not counted'
grep -q '"/healthz" 0 0(cut) .*"its headers were too long, broken or not whole"' "$work/access" ||
	fail "what the library ended is not logged: $(tail -n 2 "$work/access")"
if command -v python3 >/dev/null; then
	flat_memory 30000
fi
stop
refused 'a name without ORG' 1 "'llama' is no name of a repository: ORG/NAME or ORG/\* is" "$m" serve llama="$ckpt" --listen 127.0.0.1:0
refused 'a name with a colon' 1 "there is no 'lab/llama:$ckpt': a repository is named ORG/NAME=SOURCE, with '='" \
	"$m" serve "lab/llama:$ckpt" --listen 127.0.0.1:0
refused 'two of one name' 1 "would both be the repository lab/a: give each a name of its own, ORG/NAME=SOURCE" \
	"$m" serve lab/a="$tales" lab/a="$work/two/tales_text_document" --listen 127.0.0.1:0

# Tokens, limits and a directory of runs, from a file.
mkdir "$work/runs" && cp -a "$FIXTURES/weights/llama-torch-tp2-pp2" "$work/runs/a" && mkdir "$work/runs/empty"
printf 'alice hf_alice_1 lab/*\nall - runs/*\n' >"$work/tokens" && chmod 600 "$work/tokens"
cat >"$work/gw.yaml" <<END
listen: unix:$work/socket
tokens: $work/tokens
access_log: $work/people
limits: {idle_seconds: 1, per_address: 64, connections: 40, open: 2}
repositories:
  lab/llama: {source: $FIXTURES/weights/llama-torch-tp2-pp2, options: vocab_size=1000}
  runs/*: {source: $work/runs, options: vocab_size=1000}
END
# A service manager is told when it answers, and when it ends.
"$BIN/notified" "$work/notify" >"$work/told" &
manager=$!
wait_until 'the manager listens' test -S "$work/notify"
export NOTIFY_SOCKET=$work/notify
serve "$work/gw.yaml"
unset NOTIFY_SOCKET
wait_until 'it is ready' grep -q "^READY=1 STATUS=serving on unix:$work/socket" "$work/told"
sock=(--unix-socket "$work/socket")
url=http://gw
expect 401 /lab/llama/resolve/main/config.json "${sock[@]}"
expect 401 /lab/llama/resolve/main/config.json "${sock[@]}" -H 'Authorization: Bearer hf_alice_2'
expect 200 /lab/llama/resolve/main/config.json "${sock[@]}" -H 'Authorization: Bearer hf_alice_1'
# People sign in: by Basic, and by a form with a cookie. No log has a token.
p=/files/lab/llama/main/config.json
expect 401 $p "${sock[@]}"
head_of WWW-Authenticate | grep -q '^Basic realm=' || fail "no browser asks for a token: $(<"$work/head")"
expect 401 $p "${sock[@]}" -u anybody:hf_alice_2
expect 200 $p "${sock[@]}" -u anybody:hf_alice_1
expect 200 /lab/llama/resolve/main/config.json "${sock[@]}" -u anybody:hf_alice_1
expect 401 /lab/llama "${sock[@]}" -H 'Accept: text/html'
grep -q '<form .*action="/sign-in"' "$work/body" || fail "a browser gets no form: $(<"$work/body")"
expect 200 '/sign-in?token=hf_alice_1' "${sock[@]}"
expect 403 /sign-in "${sock[@]}" -d token=hf_alice_2
expect 403 /sign-in "${sock[@]}" -d token=hf_alice_1 -H 'Origin: http://other'
expect 303 /sign-in "${sock[@]}" -c "$work/jar" -d 'token=hf_alice_1&next=//other/'
same 'where it goes on' "$(head_of Location)" /
expect 200 /lab/llama "${sock[@]}" -b "$work/jar"
grep -q 'HF_ENDPOINT=http://gw vllm serve lab/llama<' "$work/body" || fail "no line to copy: $(<"$work/body")"
expect 200 $p "${sock[@]}" -b "$work/jar"
expect 401 /lab/llama/resolve/main/config.json "${sock[@]}" -b "$work/jar"
cp "$work/jar" "$work/stolen"
expect 303 /sign-out "${sock[@]}" -b "$work/jar" -c "$work/jar" -d ''
expect 401 $p "${sock[@]}" -b "$work/stolen"
! grep -q hf_alice "$work/people" "$work/jar" "$work/stolen" "$log" || fail "a token is told: $(<"$work/people")"
grep -q ' alice "POST" "/sign-in" 303 ' "$work/people" || fail "who has signed in is not logged: $(<"$work/people")"
expect 200 /runs/a/resolve/main/config.json "${sock[@]}"
expect 404 /runs/empty/resolve/main/config.json "${sock[@]}"
cp -a "$work/runs/a" "$work/runs/later"
expect 200 /runs/later/resolve/main/config.json "${sock[@]}"
expect 200 /api/models "${sock[@]}"
grep -q runs/later "$work/body" && ! grep -q lab/llama "$work/body" || fail "/api/models: $(<"$work/body")"
stop
wait_until 'its end is told' grep -q '^STOPPING=1' "$work/told"
kill $manager
[ ! -e "$work/socket" ] || fail 'the socket is still there'

# Clients that send half a request, or a byte now and then, are cut off, and others are served meanwhile.
sed -i 's/^listen: .*/listen: 127.0.0.1:0/' "$work/gw.yaml"
serve "$work/gw.yaml"
port=${url##*:}
for i in 3 4 5 6 7 8; do
	eval "exec $i<>/dev/tcp/127.0.0.1/$port"
	send 'GET /healthz HTTP/1.1\r\nX' >&$i
done
(for _ in $(seq 60); do printf 'y' >&8 || break; sleep 0.1; done) 2>/dev/null &
drip=$!
expect 200 /healthz
for i in 3 4 5 6 7 8; do
	timeout 20 cat <&$i >/dev/null || fail "a client that sends half a request is not cut off"
done
wait $drip
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&-
# What a proxy in front may understand differently is refused, and what follows it is no request.
ambiguous() {
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	send "POST /healthz HTTP/1.1\r\n$1\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" >&3
	out=$(timeout 20 cat <&3 | grep '^HTTP')
	[[ $out == 'HTTP/1.1 400 '* && $(wc -l <<<"$out") = 1 ]] || fail "$1: $out"
	exec 3>&-
}
ambiguous 'Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n'
ambiguous 'Host: x\r\nContent-Length: 2\r\nContent-Length: 44\r\n\r\nab'
ambiguous 'Host: x\r\nContent-Length : 5\r\n\r\nabcde'
ambiguous 'Host: x\r\nHost: y\r\nContent-Length: 2\r\n\r\nab'
ambiguous 'Content-Length: 2\r\n\r\nab'
# The rules are read again.
printf 'bob hf_bob_123 runs/*\n' >"$work/tokens"
wait_until 'the rules are read again' eval '[ "$(status /runs/a/resolve/main/config.json)" = 401 ]'
expect 200 /runs/a/resolve/main/config.json -H 'Authorization: Bearer hf_bob_123'
stop

# A second signal ends it at once, whatever replies are under way.
serve "$work/runs/a" --listen 127.0.0.1:0 -o vocab_size=1000
exec 3<>"/dev/tcp/127.0.0.1/${url##*:}"
send 'POST /api/models/local/a/paths-info/main HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n' >&3
read -r -t 120 said <&3
[[ $said == 'HTTP/1.1 100 '* ]] || fail "a request whose body is still to come: $said"
kill "$gw"
wait_until 'it ends' grep -q 'ending:' "$log"
kill "$gw"
from=$SECONDS
wait "$gw"
same 'exit status after a second signal' "$?" 1
[ $((SECONDS - from)) -lt 5 ] || fail 'a second signal does not end it'
gw=
exec 3>&-

# An HF directory that changes is opened again. One address has a quarter of the connections unless another number is given.
cp -a "$FIXTURES/hf/llama-safetensors" "$work/model"
printf 'listen: 127.0.0.1:0\nlimits: {connections: 8}\nrepositories: {lab/x: %s}\n' "$work/model" >"$work/few.yaml"
serve "$work/few.yaml"
sockets() {
	find "/proc/$gw/fd" -lname 'socket:*' 2>/dev/null | wc -l
}
listening=$(sockets)
none_connected() {
	[ "$(sockets)" = "$listening" ]
}
p=/lab/x/resolve/main/model.safetensors
expect 200 "$p"
cp "$FIXTURES/hf/llama-safetensors/model.safetensors" "$work/model/model.safetensors"
expect 503 "$p"
expect 200 "$p"
wait_until 'connections are closed behind their clients' none_connected # they would count
exec 3<>"/dev/tcp/127.0.0.1/${url##*:}" 4<>"/dev/tcp/127.0.0.1/${url##*:}"
sleep 0.3
! status /healthz --max-time 5 >/dev/null || fail 'one address has more than a quarter of the connections'
exec 3>&- 4>&-
stop

# Clients that say nothing keep nobody out: the oldest ones make room.
printf 'listen: 127.0.0.1:0\nlimits: {connections: 8, per_address: 100}\nrepositories: {lab/x: %s}\n' "$work/model" >"$work/few.yaml"
serve "$work/few.yaml"
silent=()
for _ in $(seq 30); do
	exec {fd}<>"/dev/tcp/127.0.0.1/${url##*:}"
	silent+=("$fd")
done
expect 200 /healthz
expect 200 "$p"
timeout 60 cat <&"${silent[0]}" >/dev/null || fail 'the oldest silent client is not closed'
for fd in "${silent[@]}"; do exec {fd}>&-; done
stop

# A data node sends what a gateway has signed, and nothing else: by curl that follows, whatever it may read there itself.
(umask 077 && head -c 40 /dev/urandom | base64 | tr -d '\n' >"$work/secret" && : >"$work/nobody")
serve lab/a="$work/runs/a" --listen 127.0.0.1:0 -o vocab_size=1000 --url-secret "$work/secret" --tokens "$work/nobody"
node=$gw node_url=$url
trap 'kill -9 $gw $node 2>/dev/null; rm -rf "$work"' EXIT
serve lab/a="$work/runs/a" --listen 127.0.0.1:0 -o vocab_size=1000 --url-secret "$work/secret" --data-node "$node_url" \
	--access-log "$work/access"
p=/lab/a/resolve/main/model.safetensors
expect 302 "$p" --head
same 'X-Linked-Size' "$(head_of X-Linked-Size)" "$size"
to=$(head_of Location)
expect 200 "$p" -L
cmp "$work/body" "$file" || fail 'a file from a data node'
expect 206 "$p" -L -r 1000-70000 && part 1000 69001
! grep -q "${to##*=}" "$work/access" || fail 'a signature is in the access log'
url=$node_url
expect 401 "$p"
expect 200 "${to#"$node_url"}"
expect 403 "${to#"$node_url"}0"
grep -q 'the signature is not the one of this address' "$work/body" || fail "a wrong signature: $(<"$work/body")"
kill $node && wait $node
stop

# S3: a signature is the name of a line of the tokens with its token as the secret.
serve "$work/gw.yaml" --listen-s3 127.0.0.1:0
url=$(sed -n 's/.*S3 on //p' "$log")
key=/runs/a/main/model.safetensors
expect 403 "$key"
grep -q '<Code>AccessDenied<' "$work/body" || fail "S3 without a signature: $(<"$work/body")"
if curl --help all | grep -q -e --aws-sigv4; then
	signed=(--aws-sigv4 aws:amz:us-east-1:s3 -H "x-amz-content-sha256: UNSIGNED-PAYLOAD")
	expect 200 "$key" "${signed[@]}" -u bob:hf_bob_123
	cmp "$work/body" "$file" || fail 'S3: a file'
	expect 206 "$key" "${signed[@]}" -u bob:hf_bob_123 -r 1000-70000 && part 1000 69001
	expect 403 "$key" "${signed[@]}" -u bob:hf_bob_124
	grep -q '<Code>SignatureDoesNotMatch<' "$work/body" || fail "S3, a wrong secret: $(<"$work/body")"
	expect 403 "$key" "${signed[@]}" -u bob:hf_bob_123 -X DELETE
	grep -q '<Code>AccessDenied<' "$work/body" || fail "S3, DELETE: $(<"$work/body")"
fi
head -c 100000 /dev/zero >"$work/zeros"
expect 403 /runs/a/new -T "$work/zeros"
stop

# TLS.
if command -v openssl >/dev/null; then
	openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key" -out "$work/cert" -days 2 -subj /CN=localhost \
		-addext subjectAltName=IP:127.0.0.1 2>/dev/null || fail openssl
	serve "$work/runs/a" --listen 127.0.0.1:0 --certificate "$work/cert" --key "$work/key" -o vocab_size=1000
	expect 200 /local/a/resolve/main/model.safetensors --cacert "$work/cert"
	cmp "$work/body" "$file" || fail TLS
	# Nothing older than 1.2. Level 0 is what lets this client offer 1.0 and 1.1 at all.
	for version in 1_3 1_2 1_1 1; do
		got=$(openssl s_client -connect "${url#https://}" -tls$version -cipher DEFAULT@SECLEVEL=0 </dev/null 2>&1)
		case $version in
		1_3 | 1_2) grep -q "^New, TLSv${version/_/.}, Cipher is [A-Z]" <<<"$got" || fail "TLS $version: $got" ;;
		*) grep -qF 'New, (NONE), Cipher is (NONE)' <<<"$got" || fail "TLS $version is not refused: $got" ;;
		esac
	done
	# No key under the certificate's own key: who gets that one later would read what he has recorded.
	got=$(openssl s_client -connect "${url#https://}" -tls1_2 -cipher kRSA </dev/null 2>&1)
	grep -qF 'New, (NONE), Cipher is (NONE)' <<<"$got" || fail "RSA key exchange is not refused: $got"
	# SIGHUP: new connections see a new certificate, at both addresses. One that is open is not cut, and keeps its own;
	# a pair that does not fit changes nothing.
	serial() { # HOST:PORT
		openssl s_client -connect "$1" </dev/null 2>/dev/null | openssl x509 -noout -serial
	}
	pair() { # NAME SERIAL
		openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/$1.key" -out "$work/$1.cert" -days 2 -subj /CN=localhost \
			-addext subjectAltName=IP:127.0.0.1 -set_serial "$2" 2>/dev/null || fail openssl
	}
	told() { # COUNT PATTERN
		[ "$(grep -cE "$2" "$log")" -ge "$1" ] || ended "$gw"
	}
	stop
	for name in 17 34 51; do pair $name $name; done
	cp "$work/17.cert" "$work/cert" && cp "$work/17.key" "$work/key"
	serve "$work/runs/a" --listen 127.0.0.1:0 --listen-s3 127.0.0.1:0 --certificate "$work/cert" --key "$work/key" -o vocab_size=1000
	at=${url#https://} at_s3=$(sed -n 's,.*S3 on https://,,p' "$log")
	same 'the certificate' "$(serial "$at") $(serial "$at_s3")" 'serial=11 serial=11'
	mkfifo "$work/asks"
	openssl s_client -quiet -connect "$at" <"$work/asks" >"$work/told" 2>/dev/null &
	client=$!
	exec 7>"$work/asks"
	replies() { # COUNT
		[ "$(grep -ac '^HTTP/1.1 200' "$work/told")" = "$1" ] || ended "$client"
	}
	ask() { # COUNT: of the replies that the open connection then has had
		send 'GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n' >&7
		wait_until "reply $1 of one connection" replies "$1"
		same "reply $1 of one connection" "$(grep -ac '^HTTP/1.1 200' "$work/told")" "$1"
	}
	ask 1
	cp "$work/34.cert" "$work/cert" && cp "$work/34.key" "$work/key"
	kill -HUP "$gw"
	wait_until 'the certificate is read again' told 1 'new connections get the new certificate'
	same 'a new certificate' "$(serial "$at") $(serial "$at_s3")" 'serial=22 serial=22'
	expect 200 /local/a/resolve/main/model.safetensors --cacert "$work/34.cert"
	ask 2
	kept="; the certificate stays as it was"
	cp "$work/51.cert" "$work/cert"
	kill -HUP "$gw"
	wait_until 'a pair that does not fit is refused' told 1 "cert: .*must be PEM, and fit$kept"
	same 'a pair that does not fit' "$(serial "$at") $(serial "$at_s3")" 'serial=22 serial=22'
	mv "$work/key" "$work/key.away"
	kill -HUP "$gw"
	wait_until 'a key that is away is refused' told 2 "key.*$kept"
	same 'a key that is away' "$(serial "$at")" serial=22
	cp "$work/51.key" "$work/key"
	kill -HUP "$gw"
	wait_until 'the next pair is taken' told 2 'new connections get the new certificate'
	same 'the next certificate' "$(serial "$at") $(serial "$at_s3")" 'serial=33 serial=33'
	# The same files again are no new pair.
	kill -HUP "$gw"
	wait_until 'the configuration is read again' told 5 'the configuration was read again'
	expect 200 /local/a/resolve/main/config.json --cacert "$work/51.cert"
	same 'pairs that were taken' "$(grep -c 'get the new certificate' "$log")" 2
	ask 3
	exec 7>&-
	kill "$client"
	wait "$client" 2>/dev/null
	stop
fi

# Its pages are an index: another mcorefs has them as SOURCE.
serve lab/a="$work/runs/a" "$FIXTURES/data/tales_text_document" --listen 127.0.0.1:0 -o vocab_size=1000
"$m" export "$url/files/lab/a/main/" hf "$work/again" >/dev/null || fail 'a model by the URL of a gateway'
cmp "$work/again/model.safetensors" "$file" || fail 'weights by the URL of a gateway'
"$m" export "$url/files/datasets/local/tales_text_document__megatron/main/" data/tales_text_document/megatron "$work/tales" \
	>/dev/null || fail 'a dataset by the URL of a gateway'
cmp "$work/tales/tales_text_document.bin" "$FIXTURES/data/tales_text_document.bin" || fail 'tokens by the URL of a gateway'
stop

# SIGHUP: repositories, tokens and limits are read again; a wrong file changes nothing.
cat >"$work/again.yaml" <<END
listen: 127.0.0.1:0
repositories:
  lab/one: {source: $work/runs/a, options: vocab_size=1000}
END
serve "$work/again.yaml"
expect 200 /lab/one/resolve/main/config.json
echo 'nonsense: 1' >>"$work/again.yaml"
kill -HUP "$gw"
refused_again() { grep -q "again.yaml:4: 'nonsense' is none of .*; what is served stays as it was" "$log"; }
wait_until 'the wrong file is refused' refused_again
expect 200 /lab/one/resolve/main/config.json
printf 'alice hf_alice_1 lab/*\n' >"$work/tokens" && chmod 600 "$work/tokens"
cat >"$work/again.yaml" <<END
listen: 127.0.0.1:0
tokens: $work/tokens
limits: {idle_seconds: 30, connections: 100}
repositories:
  lab/two: {source: $work/runs/a, options: vocab_size=1000}
END
kill -HUP "$gw"
read_again() { grep -q 'the configuration was read again' "$log"; }
wait_until 'it is read again' read_again
expect 401 /lab/two/resolve/main/config.json
expect 200 /lab/two/resolve/main/config.json -H 'Authorization: Bearer hf_alice_1'
expect 404 /lab/one/resolve/main/config.json -H 'Authorization: Bearer hf_alice_1'
grep -q 'limits of connections and headers have changed: they need a restart' "$log" || fail "limits: $(<"$log")"
# SIGUSR1: the state, as a line. Five replies were asked for above.
kill -USR1 "$gw"
state='[0-9]+ connections, [0-9]+ requests, 1 sources open, [1-9][0-9]* bytes sent, replies: 3 2xx, 2 4xx, 0 5xx, 0 cut$'
wait_until 'SIGUSR1 is answered' grep -qE "$state" "$log"
expect 200 /lab/two/resolve/main/config.json -H 'Authorization: Bearer hf_alice_1'
stop

# What is named is opened before anybody asks, also by SIGHUP; a client of another one does not wait for it.
mkdir "$work/broken" && cp -a "$work/runs/a/." "$work/broken" && echo 50 >"$work/broken/latest_checkpointed_iteration.txt"
cat >"$work/warm.yaml" <<END
listen: 127.0.0.1:0
repositories:
  lab/a: {source: $work/runs/a, options: vocab_size=1000}
  lab/broken: {source: $work/broken, options: vocab_size=1000}
END
serve "$work/warm.yaml" --access-log "$work/access"
wait_until 'the second source is opened' grep -q 'lab/broken: .*there is no directory iter_0000050' "$log"
expect 200 /lab/a/resolve/main/config.json
# Who a client is: as its peer, and as a proxy says that is trusted since SIGHUP, after what anybody has written.
said=(-H 'X-Forwarded-For: 6.6.6.6' -H 'X-Forwarded-For: 203.0.113.9')
expect 200 /lab/a/resolve/main/config.json "${said[@]}"
! grep -q 203.0.113.9 "$work/access" || fail "the access log believes anybody: $(<"$work/access")"
sed -i 's/broken:/again:/; 1a trusted_proxies: [10.0.0.0/8, 127.0.0.1]' "$work/warm.yaml"
kill -HUP "$gw"
wait_until 'what is new is opened' grep -q 'lab/again: .*there is no directory iter_0000050' "$log"
expect 200 /lab/a/resolve/main/config.json "${said[@]}"
in_log() { grep -q 'Z 203.0.113.9 - "GET" "/lab/a/' "$work/access"; }
wait_until 'the access log has the client behind a proxy' in_log
stop

# What is reported of wrong command lines.
refused 'no source' 2 'expected mcorefs serve' "$m" serve
refused 'no address' 1 "'nonsense' is no address" "$m" serve "$work/runs/a" --listen nonsense
refused 'a name' 1 'is no name of a repository' "$m" serve a/b--c="$work/runs/a"
refused 'a token file' 1 'mode is 644' sh -c "chmod 644 '$work/tokens'; exec '$m' serve '$work/runs/a' --tokens '$work/tokens'"
refused 'a source with = in it' 1 'x://y' "$m" serve 'x://y/z=1'
refused 'no secret' 1 'needs url_secret' "$m" serve "$work/runs/a" --data-node http://node
refused 'a secret' 1 'mode is 644' sh -c "chmod 644 '$work/secret'; exec '$m' serve '$work/runs/a' --url-secret '$work/secret'"
refused 'a key is missing' 1 'a certificate and a key' "$m" serve "$work/runs/a" --certificate /etc/hostname
