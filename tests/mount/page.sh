#!/bin/bash
# The gateway's page for people in a real browser, where one is installed: what is rendered, no error in its console, and
# no request to another host.
. "$(dirname "$0")/lib.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no browser"
command -v curl >/dev/null || skip "curl is not installed"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

mkdir -p "$work/runs/empty" "$work/home"
cp -a "$FIXTURES/weights/llama-torch-tp2-pp2" "$work/runs/a"
chmod -R u+w "$work/runs"
for i in 10 20 30; do cp -a "$work/runs/a/iter_0000040" "$work/runs/a/iter_00000$i"; done
cat >"$work/gateway.yaml" <<END
listen: 127.0.0.1:0
access_log: $work/access
repositories:
  lab/llama: $work/runs/a
  lab/model: $FIXTURES/hf/llama-safetensors
  runs/*: $work/runs
  data/tales: $FIXTURES/data/tales_text_document
END
"$MCOREFS" serve "$work/gateway.yaml" 2>"$log" &
daemon=$!
wait_until "it serves" eval 'grep -q "serving on" "$log" || ended $daemon'
url=$(sed -n 's/.*serving on //p' "$log")
[ -n "$url" ] || fail "serve"

# Of every outcome one, so that no number is there by chance.
curl -sf "$url/lab/llama/resolve/main/config.json" >/dev/null || fail "a file"
curl -s "$url/lab/nothing/resolve/main/config.json" >/dev/null
curl -s "$url/lab/llama/resolve/main/nothing" >/dev/null

# look NAME PATH: the page as the browser has made it of what it got; what it says of it is in $work/NAME.log.
look() {
	HOME=$work/home timeout -k 5 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
		--host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' --no-first-run --user-data-dir="$work/home/profile" --enable-logging=stderr --v=0 \
		--log-net-log="$work/$1.net" --dump-dom "$url$2" >"$work/$1.html" 2>"$work/$1.log" || fail "$2: $(tail -n 5 "$work/$1.log")"
	! grep -a 'CONSOLE' "$work/$1.log" || fail "$2: the browser's console has errors"
}
# text NAME: without tags, a line for each row of a table.
text() {
	tr -d '\n' <"$work/$1.html" | sed 's/<style>.*<\/style>//; s/<\/tr>/\n/g; s/<\/t[dh]>/ | /g; s/<br>/ /g; s/<[^>]*>//g'
}
shows() { # NAME PATTERN
	text "$1" | grep -qE "$2" || fail "the page does not show '$2': $(text "$1")"
}
look page /
shows page '^replies 4xx \| 2 \| $'
shows page '^replies 5xx \| 0 \| $'
shows page "^lab/llama $work/runs/a \| iter_0000040 iter_0000030 iter_0000020 and 1 more"
shows page "^lab/model $FIXTURES/hf/llama-safetensors \| main"
shows page "^runs/a $work/runs/a \| not open"
! text page | grep -q runs/empty || fail "the page shows what is no model: $(text page)"
shows page "^data/tales_text_document $FIXTURES/data/tales_text_document"
# Its links lead somewhere, and that page can be looked at, too.
for link in $(grep -o 'href="[^"]*' "$work/page.html" | cut -d'"' -f2); do
	curl -sf "$url$link" >/dev/null || fail "the page's link $link"
done
look files /files/lab/llama/main/
shows files 'model.safetensors'

# What the pages have made the browser ask for (it has errands of its own, which find no host): of this gateway alone.
for page in page files; do
	grep -aF '"initiator":' "$work/$page.net" >"$work/asked"
	grep -qF "\"url\":\"$url/" "$work/asked" || fail "$page: the browser has not written down what it asked for"
	! grep -F "\"initiator\":\"$url\"" "$work/asked" | grep -vF "\"url\":\"$url/" || fail "$page: other hosts are asked"
done
kill "$daemon"
expect_clean_end
