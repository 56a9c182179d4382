#!/bin/bash
# The gateway's pages for people in a real browser, where one is installed: what is rendered, no error in its console, and
# no request to another host. What they say and who may see it is tested without one, in gateway.sh and test_gateway_pages.
. "$(dirname "$0")/lib.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no browser"
command -v curl >/dev/null || skip "curl is not installed"
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

mkdir -p "$work/runs/empty" "$work/home"
cp -a "$FIXTURES/resume/llama-torch-tp2-pp2" "$work/runs/a"
cp -a "$FIXTURES/hf/llama-safetensors" "$work/odd <b>&name"
printf 'ops hf_ops_1234 */* datasets/*/* metrics\nall - lab/llama metrics lab/model runs/* datasets/*/*\n' >"$work/tokens"
chmod 600 "$work/tokens"
chmod -R u+w "$work/runs"
for i in 05 10 15; do cp -a "$work/runs/a/iter_0000020" "$work/runs/a/iter_00000$i"; done
cat >"$work/gateway.yaml" <<END
listen: 127.0.0.1:0
access_log: $work/access
tokens: $work/tokens
repositories:
  lab/llama: $work/runs/a
  lab/model: $FIXTURES/hf/llama-safetensors
  runs/*: $work/runs
  secret/odd: "$work/odd <b>&name"
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

known() {
	[ "$(curl -s "$url/" | grep -cE '<td>llama<td|data-of=tokens>172 K')" = 3 ]
}
wait_until 'what is named is known' known

# look NAME PATH [USER:PASSWORD@] [WIDTH]: the page as the browser has made it of what it got; what it says of it is in $work/NAME.log.
look() {
	HOME=$work/home timeout -k 5 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size="${4-1100},800" \
		--host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' --no-first-run --user-data-dir="$work/home/profile" --enable-logging=stderr --v=0 \
		--log-net-log="$work/$1.net" --dump-dom "http://${3-}${url#http://}$2" >"$work/$1.html" 2>"$work/$1.log" || fail "$2: $(tail -n 5 "$work/$1.log")"
	! grep -a 'CONSOLE' "$work/$1.log" | grep -v 'status of 401' || fail "$2: the browser's console has errors"
}
# text NAME: without tags, a line for each row of a table.
text() {
	tr -d '\n' <"$work/$1.html" | sed 's/<\/tr>/\n/g; s/<tbody>/\n/g; s/<\/t[dh]>/ | /g; s/<br>/ /g; s/<[^>]*>//g'
}
shows() { # NAME PATTERN
	text "$1" | grep -qE "$2" || fail "the page does not show '$2': $(text "$1")"
}
look page /
shows page '^replies 4xx \| [23] \| $' # a browser may ask for an icon
shows page '^replies 5xx \| 0 \| $'
shows page "^lab/llama $work/runs/a \| llama \| [0-9]+ K \| [0-9]+ kB \| bfloat16 \| TP 2, PP 2 \| [0-9-]+ [0-9:]+ iter_0000020 \| complete"
shows page "^lab/model $FIXTURES/hf/llama-safetensors \| llama \| "
shows page "^runs/a $work/runs/a \| opened when somebody asks for it \| [0-9-]+ [0-9:]+ iter_0000020"
! text page | grep -qE 'runs/empty|secret' || fail "the page shows what is no model, or what is not for everybody: $(text page)"
shows page "^data/tales $FIXTURES/data/tales_text_document \| 240 \| "
# Its links lead somewhere, and those pages can be looked at, too.
for link in $(grep -o 'href="[^"]*' "$work/page.html" | cut -d'"' -f2); do
	curl -sf "$url$link" >/dev/null || fail "the page's link $link"
done
look model /lab/llama '' 390
shows model "HF_ENDPOINT=$url vllm serve lab/llama"
shows model '^iter_0000015 \| [0-9-]+ [0-9:]+ \| 6\.[0-9]{4} \| complete'
grep -q '<polyline points="[0-9]' "$work/model.html" || fail "no curve of the loss"
look files /files/lab/llama/main/
shows files '^model.safetensors \| [0-9]+ kB \| [0-9-]+ [0-9:]+ \| $'
# A browser that is asked for a token by itself, and a name that looks like HTML.
look odd /secret/odd x:hf_ops_1234@
shows odd 'of .*/odd &lt;b&gt;&amp;name'

# What the pages have made the browser ask for (it has errands of its own, which find no host): of this gateway alone.
for page in page model files odd; do
	grep -aF '"initiator":' "$work/$page.net" >"$work/asked"
	grep -qF "\"url\":\"$url/" "$work/asked" || fail "$page: the browser has not written down what it asked for"
	! grep -F "\"initiator\":\"$url\"" "$work/asked" | grep -vF "\"url\":\"$url/" || fail "$page: other hosts are asked"
done
kill "$daemon"
expect_clean_end
