#!/bin/bash
# What a gateway gives up once it listens: -o sandbox, setuid= and drop_privileges. It serves, reads its configuration, rules
# and logs again, and ends as others do; and what it must not open any more it cannot. log=, log_format=json, and options
# that are none of a gateway's.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_gateway.sh"

command -v curl >/dev/null || skip "curl is not installed"
m=$MCOREFS

expect() { # STATUS PATH [CURL OPTION...]
	same "$2" "$(curl -s -o "$work/body" -w '%{http_code}' "${@:3}" "$url$2")" "$1"
}
field() { # NAME
	sed -n "s/^$1:[[:space:]]*//p" "/proc/$gw/status"
}
# Of each thread, and there are some.
all_threads() { # NAME VALUE
	same "threads by $1" "$(sed -n "s/^$1:[[:space:]]*//p" "/proc/$gw/task"/*/status | sort | uniq -c | awk '{ print ($1 > 2), $2 }')" "1 $2"
}

mkdir "$work/etc" "$work/logs" "$work/in" "$work/out"
cp -a "$FIXTURES/weights/llama-torch-tp2-pp2" "$work/in/a"
cp -a "$work/in/a" "$work/out/b"
ln -s ../out/b "$work/in/link"
"$m" export "$work/in/a" hf "$work/hf" -o vocab_size=1000 >/dev/null || fail export
printf 'alice hf_alice_1 lab/*\n' >"$work/etc/tokens" && chmod 600 "$work/etc/tokens"
(umask 077 && head -c 40 /dev/urandom | base64 | tr -d '\n' >"$work/etc/secret")
config() { # REPOSITORIES
	cat >"$work/etc/gw.yaml" <<-END
		listen: 127.0.0.1:0
		listen_s3: 127.0.0.1:0
		tokens: $work/etc/tokens
		url_secret: $work/etc/secret
		access_log: $work/logs/access
		repositories: $1
	END
}
alice=(-H 'Authorization: Bearer hf_alice_1')
bob=(-H 'Authorization: Bearer hf_bob_123')
config "{lab/*: {source: $work/in, options: vocab_size=1000}}"
"$m" serve "$work/etc/gw.yaml" -o sandbox 2>"$log" &
gw=$!
wait_until "it serves" eval 'grep -q "serving on" "$log" || ended $gw'
ended "$gw" && { grep -q 'has no Landlock' "$log" && skip "$(cat "$log")"; fail "sandbox"; }
stop
serve "$work/etc/gw.yaml" --links "$work/out"
expect 200 /lab/link/resolve/main/config.json "${alice[@]}"
same "Seccomp without a sandbox" "$(field Seccomp)" "$(sed -n 's/^Seccomp:[[:space:]]*//p' /proc/$$/status)"
stop

serve "$work/etc/gw.yaml" -o "sandbox,log=$work/logs/log"
expect 200 /lab/a/resolve/main/model.safetensors "${alice[@]}"
cmp "$work/body" "$work/hf/model.safetensors" || fail 'a file in a sandbox'
all_threads Seccomp 2
all_threads NoNewPrivs 1
same "capabilities but CAP_DAC_READ_SEARCH" "$((0x$(field CapPrm) & ~4))" 0
# People sign in there, and the loss next to a run is read.
printf 'iteration,lm_loss\n1,6.5\n40,6.25\n' >"$work/in/a/loss.csv"
expect 303 /sign-in -d token=hf_alice_1 -c "$work/jar"
expect 200 /lab/a -b "$work/jar"
grep -q '<td class=n>6.2500<' "$work/body" || fail "a page in a sandbox: $(<"$work/body")"
# A link that leads out of what is served is not followed; what comes later is found.
expect 403 /lab/link/resolve/main/config.json "${alice[@]}"
grep -q 'a link leads out of its source' "$work/body" || fail "a link out of a sandbox: $(<"$work/body")"
cp -a "$work/in/a" "$work/in/later"
expect 200 /lab/later/resolve/main/config.json "${alice[@]}"
# Rules are read again when another file takes their place, and so are configurations and both logs by SIGHUP.
printf 'bob hf_bob_123 lab/*\n' >"$work/etc/new" && chmod 600 "$work/etc/new" && mv "$work/etc/new" "$work/etc/tokens"
wait_until 'the rules are read again' eval \
	'[ "$(curl -s -o /dev/null -w "%{http_code}" "$url/lab/a/resolve/main/config.json" "${bob[@]}")" = 200 ]'
mv "$work/logs/access" "$work/logs/access.1"
mv "$work/logs/log" "$work/logs/log.1"
config "{lab/again: {source: $work/in/a, options: vocab_size=1000}}"
kill -HUP "$gw"
wait_until 'it is read again' eval 'grep -q "the configuration was read again" "$log"'
expect 200 /lab/again/resolve/main/config.json "${bob[@]}"
wait_until 'the access log is opened anew' grep -qs /lab/again/ "$work/logs/access"
wait_until 'the log is opened anew' test -e "$work/logs/log"
config "{lab/out: {source: $work/out/b, options: vocab_size=1000}}"
kill -HUP "$gw"
wait_until 'a source elsewhere is refused' grep -q 'Permission denied; what is served stays as it was' "$log"
expect 200 /lab/again/resolve/main/config.json "${bob[@]}"
config "{lab/out: 'https://localhost/x'}"
kill -HUP "$gw"
wait_until 'a URL is refused' grep -q 'began without a web URL reads from none later: restart it; what is served' "$log"
stop

# Where links may lead is logged at the start, and a snapshot of HuggingFace's cache has its blobs.
mkdir -p "$work/hub/blobs" "$work/hub/snapshots/1"
for f in "$work/hf"/*; do
	cp "$f" "$work/hub/blobs" && ln -s "../../blobs/${f##*/}" "$work/hub/snapshots/1"
done
config "{lab/*: {source: $work/in}, cache/one: $work/hub/snapshots/1, all/*: $work/hub/snapshots}"
printf 'alice hf_alice_1 lab/* cache/* all/*\n' >"$work/etc/new" && chmod 600 "$work/etc/new" && mv "$work/etc/new" "$work/etc/tokens"
serve "$work/etc/gw.yaml" -o sandbox --links "$work/out"
for name in lab/link cache/one all/1; do
	expect 200 "/$name/resolve/main/model.safetensors" "${alice[@]}"
	[ $name = lab/link ] || cmp "$work/body" "$work/hf/model.safetensors" || fail "$name by links in a sandbox"
done
stop

# TLS: certificate and key are read again in a sandbox, too.
if command -v openssl >/dev/null; then
	mkdir "$work/tls"
	pair() {
		openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/tls/key" -out "$work/tls/cert" -days 2 -subj /CN=localhost \
			-addext subjectAltName=IP:127.0.0.1 2>/dev/null || fail openssl
	}
	pair
	serve "$work/in/a" -o sandbox,vocab_size=1000 --listen 127.0.0.1:0 --certificate "$work/tls/cert" --key "$work/tls/key"
	expect 200 /local/a/resolve/main/model.safetensors --cacert "$work/tls/cert"
	cmp "$work/body" "$work/hf/model.safetensors" || fail 'TLS in a sandbox'
	pair
	kill -HUP "$gw"
	wait_until 'the certificate is read again' eval 'grep -qE "get the new certificate|stays as it was" "$log"'
	expect 200 /local/a/resolve/main/config.json --cacert "$work/tls/cert"
	stop

	# As certbot has them: links from live/ to archive/, which lead to the next pair there when it is renewed.
	live=$work/letsencrypt/live/gw archive=$work/letsencrypt/archive/gw
	mkdir -p "$live" "$archive"
	renewed() { # NUMBER
		pair
		mv "$work/tls/cert" "$archive/fullchain$1.pem"
		mv "$work/tls/key" "$archive/privkey$1.pem"
		for name in fullchain privkey; do
			ln -s "../../archive/gw/$name$1.pem" "$live/new" && mv -T "$live/new" "$live/$name.pem" || fail "a link of $name"
		done
	}
	shown() { # The serial number of what new connections get.
		openssl s_client -connect "${url#https://}" </dev/null 2>/dev/null | openssl x509 -noout -serial
	}
	serial() { # NUMBER
		openssl x509 -noout -serial -in "$archive/fullchain$1.pem"
	}
	renewed 1
	chmod 700 "$work/letsencrypt/live" "$work/letsencrypt/archive"
	serve "$work/in/a" -o sandbox,vocab_size=1000 --listen 127.0.0.1:0 --certificate "$live/fullchain.pem" --key "$live/privkey.pem"
	same 'the first certificate' "$(shown)" "$(serial 1)"
	for number in 2 3; do
		renewed "$number"
		: >"$log"
		kill -HUP "$gw"
		wait_until "certificate $number is read" eval 'grep -qE "get the new certificate|stays as it was" "$log"'
		same "certificate $number" "$(shown)" "$(serial "$number")"
		expect 200 /local/a/resolve/main/config.json --cacert "$live/fullchain.pem"
	done
	# Of another directory than those that the links led to at the start nothing is read, and the old pair stays.
	mkdir "$work/letsencrypt/elsewhere"
	pair
	mv "$work/tls/cert" "$work/tls/key" "$work/letsencrypt/elsewhere"
	ln -sfT "$work/letsencrypt/elsewhere/cert" "$live/fullchain.pem"
	ln -sfT "$work/letsencrypt/elsewhere/key" "$live/privkey.pem"
	: >"$log"
	kill -HUP "$gw"
	wait_until 'a pair elsewhere is refused' grep -q "cannot open '$live/fullchain.pem': Permission denied; the certificate stays" "$log"
	same 'the certificate that stays' "$(shown)" "$(serial 3)"
	stop
fi

# A dataset by its prefix, and a unix socket.
serve "$FIXTURES/data/tales_text_document" -o sandbox --listen "unix:$work/socket"
same 'a dataset' "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$work/socket" \
	http://gw/api/datasets/local/tales_text_document/tree/main)" 200
stop

# Messages and the access log as JSON; what a client sends stays in its field.
serve "$work/in/a" -o vocab_size=1000,log_format=json --listen 127.0.0.1:0 --access-log "$work/logs/json"
expect 206 "/files/local/a/main/config.json?x=%22&signature=abc" -A $'a"b\\c\xff' -r 0-
expect 404 /files/local/a/main/none
stop
grep -vE '^\{"time":"[^"]+","level":"(note|warning|error)","pid":[0-9]+,"mount":"","message":".+"\}$' "$log" && fail 'lines of another form'
python=$(command -v python3) || python=
line='\{"time":"[^"]+Z","client":"127.0.0.1:[0-9]+","who":null,"method":"GET","target":"[^"]+","status":[0-9]+,"bytes":[0-9]+,'
line+='"whole":true,"seconds":[0-9.]+,"route":"files",'
grep -qE "^$line\"range\":\"bytes=0-\",\"agent\":\"a\\\\\"b\\\\\\\\c\\\\u00ff\",\"why\":null\}\$" "$work/logs/json" || fail "$(<"$work/logs/json")"
grep -qE "^$line\"range\":null,\"agent\":\"curl[^\"]*\",\"why\":\"[^\"]+\"\}\$" "$work/logs/json" || fail "$(<"$work/logs/json")"
! grep -q abc "$work/logs/json" || fail 'a signature is in the access log'
[ -z "$python" ] || "$python" -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$work/logs/json" || fail JSON

# What means nothing to a gateway is refused by its name.
a=$work/in/a
for option in metrics=127.0.0.1:0 allow_other allow_root auto_unmount default_permissions fsname=x max_read=65536 noexec \
	dataset_cache=/tmp prefetch=2 context=x suid remount; do
	refused "$option" 2 "option '${option%%=*}' is refused: " timeout 60 "$m" serve "$a" -o "$option" --listen 127.0.0.1:0
done
config "{lab/a: {source: $a, options: 'vocab_size=1000,sandbox'}}"
refused 'sandbox of one repository' 1 "gw.yaml:[0-9]+: option 'sandbox' is refused: it is of the whole gateway" \
	timeout 60 "$m" serve "$work/etc/gw.yaml"
config "{lab/a: {source: $a, options: allow_other}}"
refused 'allow_other in a file' 1 "option 'allow_other' is refused: --tokens determines who may read" timeout 60 "$m" serve "$work/etc/gw.yaml"
config "{lab/a: $a}"
refused 'options without a source' 2 '-o vocab_size=1000: a configuration says' timeout 60 "$m" serve "$work/etc/gw.yaml" -o vocab_size=1000
is_root || refused 'setuid of others' 2 'is for root' timeout 60 "$m" serve "$a" -o setuid=nobody

# Another user.
is_root || skip "all but other users: needs root"
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
as_nobody test -r "$a/latest_checkpointed_iteration.txt" || skip "nobody cannot read $a"
refused "a user that is none" 2 "there is no user 'frobnicate'" timeout 60 "$m" serve "$a" -o setuid=frobnicate
for options in setuid=nobody setuid=nobody,drop_privileges setuid=nobody,sandbox drop_privileges; do
	serve "$a" -o "vocab_size=1000,$options" --listen 127.0.0.1:0
	expect 200 /local/a/resolve/main/model.safetensors
	[[ $options == drop_privileges ]] || all_threads Uid "$(id -u nobody)"
	[[ $options == drop_privileges ]] || all_threads Groups "$(id -g nobody)"
	all_threads CapEff 0000000000000000
	[[ $options == setuid=nobody ]] || all_threads NoNewPrivs 1
	stop
done
# It reads what that user may. What it cannot read is logged at the start.
refused 'tokens of root' 1 'Permission denied' timeout 60 "$m" serve "$a" -o setuid=nobody --tokens "$work/etc/tokens" --listen 127.0.0.1:0
chmod 700 "$a"
refused 'a source of root' 1 'Permission denied' timeout 60 "$m" serve "$a" -o setuid=nobody --listen 127.0.0.1:0
