#!/bin/bash
# mcorefs pack against other ways of reading or writing the same bytes, in the same run.
#
#   tests/bench/pack.sh                     BENCH_MIB=400 BENCH_RUNS=3 BENCH_DIR=/tmp
#
# MCOREFS_PYTHON: an interpreter with megatron-core (tests/interop/run.sh makes one); it reads the lines with json and
# writes with IndexedDatasetBuilder, which is what one process of tools/preprocess_data.py does with ids; its imports
# are not counted. Speeds are of the text, by the clock and by processor seconds; of runs the best of each counts.
# pack makes all durable: `cp, sync` is the same number of bytes of .bin, copied.
#
# Text: documents of this tree's own documentation and code, with BENCH_TOKENIZER (a directory; the fixtures' by default).
# Against it: what tools/preprocess_data.py does (tests/interop/peers/preprocess.py), with the same two workers on the
# same two processors, from its first document on; and `tokenizers` in one thread, which only encodes.
set -u
cd "$(dirname "$0")/../.." || exit 1
mcorefs=$(realpath -m "${O:-build}")/mcorefs
python=${MCOREFS_PYTHON:-${MCOREFS_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/mcorefs-interop}/main/bin/python}
mib=${BENCH_MIB:-400}
runs=${BENCH_RUNS:-3}
[ -x "$mcorefs" ] || { echo "pack: make $mcorefs first" >&2; exit 1; }
command -v python3 >/dev/null || { echo "pack: python3 is needed to make the input" >&2; exit 1; }
work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/mcorefs-bench-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# make KIND: text of about BENCH_MIB, the same 8 MiB again and again
make_input() {
	python3 - "$1" "$mib" <<-'END'
		import json, random, sys
		kind, mib = sys.argv[1], int(sys.argv[2])
		draw, parts, size = random.Random(1), [], 0
		while size < 8 << 20:
		    ids = [int(50257 ** draw.random()) for _ in range(draw.randrange(*((5, 60) if kind == "short" else (100, 2000))))]
		    if kind == "ids": line = " ".join(map(str, ids)) + "\0"
		    elif kind == "text": line = json.dumps({"text": "lorem ipsum dolor " * (len(ids) // 4), "input_ids": ids}) + "\n"
		    else: line = json.dumps(ids) + "\n"
		    parts.append(line)
		    size += len(line)
		block = "".join(parts).encode()
		for _ in range(mib // 8):
		    sys.stdout.buffer.write(block)
	END
}

# best COMMAND...: the least seconds and processor seconds of its runs, from "$work/in"
best() {
	local TIMEFORMAT='%R %U %S'
	for ((i = 0; i < runs; i++)); do
		{ time "$@" <"$work/in" >/dev/null 2>&1 || echo 'nan nan nan'; } 2>&1
	done | least
}

# Of lines "seconds user system": the least of each kind of time.
least() {
	awk '{ c = $2 + $3; if (NR == 1 || $1 < s) s = $1; if (NR == 1 || c < m) m = c } END { print s, m }'
}

pack() {
	"$mcorefs" pack "$work/out" --vocab-size 50257 --force "$@"
}

copy() {
	cp "$work/out.bin" "$work/copy" && sync "$work/copy"
}

megatron() {
	for ((i = 0; i < runs; i++)); do
		"$python" tests/bench/megatron_pack.py "$work/theirs" <"$work/in" 2>/dev/null
	done | least
}

row() { # NAME SECONDS PROCESSOR-SECONDS OURS OUR-PROCESSOR-SECONDS
	awk -v n="$1" -v s="$2" -v c="$3" -v o="$4" -v p="$5" -v b="$bytes" -v d="$documents" 'BEGIN {
		printf "%-36s %8.0f %11.0f %8s %10.0f %8s\n", n, b / s / 1e6, d / s, sprintf("%.2f x", o / s),
			c ? b / c / 1e6 : 0, sprintf("%.2f x", c ? p / c : 0) }'
}

printf '%-36s %8s %11s %8s %10s %8s\n' "" MB/s documents/s 'to ours' 'MB/CPU s' 'to ours'
for kind in lists short text ids; do
	make_input $kind >"$work/in"
	bytes=$(stat -c %s "$work/in")
	ours=$(best pack)
	documents=$((($(stat -c %s "$work/out.idx") - 42) / 20))
	# shellcheck disable=SC2086,SC2046
	{
		row "$kind: pack" $ours $ours
		row "  out of a pipe" $(best bash -c "cat | '$mcorefs' pack '$work/out' --vocab-size 50257 --force") $ours
		row "  cat" $(best cat) $ours
		row "  wc -l" $(best wc -l) $ours
		row "  cp of the .bin, sync" $(best copy) $ours
	}
	if [ $kind != ids ] && [ -x "$python" ]; then
		# A part is enough to know its speed.
		head -c $((32 << 20)) "$work/in" | sed '$d' >"$work/part"
		mv "$work/part" "$work/in"
		part=$(stat -c %s "$work/in")
		ours=$(awk -v b="$bytes" -v p="$part" '{ print $1 * p / b, $2 * p / b }' <<<"$ours")
		documents=$((documents * part / bytes))
		bytes=$part
		# shellcheck disable=SC2086,SC2046
		row "  json and IndexedDatasetBuilder" $(megatron) $ours
	fi
done

# ---- text ----

tokenizer=$(realpath "${BENCH_TOKENIZER:-tests/fixtures/data/tokenizer}")
text_mib=${BENCH_TEXT_MIB:-32}

make_text() {
	python3 - "$text_mib" <<-'END'
		import json, pathlib, random, sys
		draw, size = random.Random(1), int(sys.argv[1]) << 20
		files = sorted([*pathlib.Path("docs").rglob("*.md"), *pathlib.Path("formats").rglob("*.c"), *pathlib.Path("tests/interop").glob("*.py")])
		texts = [t for t in (f.read_text() for f in files) if len(t) > 2000]
		while size > 0:
		    text = draw.choice(texts)
		    at = draw.randrange(len(text) - 1000)
		    line = json.dumps({"text": text[at:at + draw.randrange(200, 6000)]}, ensure_ascii=False) + "\n"
		    sys.stdout.write(line)
		    size -= len(line)
	END
}

# The least of runs of a command that prints seconds and processor seconds.
told() {
	for ((i = 0; i < runs; i++)); do
		"$@" 2>&1 >/dev/null | tail -n 1
	done | awk '{ if (NR == 1 || $1 < s) s = $1; if (NR == 1 || $2 < c) c = $2 } END { print s, c }'
}

pack_text() {
	"$mcorefs" pack --tokenizer "$tokenizer" --append-eod --force "$work/out" --workers "$1"
}

preprocess() {
	"$python" tests/interop/peers/preprocess.py --input "$work/in" --output-prefix "$work/theirs" --workers 2 --append-eod \
		--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$tokenizer"
}

encode_only() {
	"$python" - "$tokenizer" "$work/in" <<-'END'
		import json, os, sys, time
		os.environ["TOKENIZERS_PARALLELISM"] = "false"
		from tokenizers import Tokenizer
		t = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
		texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")]
		begun, used = time.time(), time.process_time()
		for at in range(0, len(texts), 1000):
		    for encoding in t.encode_batch_fast(texts[at:at + 1000]):
		        encoding.ids
		print(time.time() - begun, time.process_time() - used, file=sys.stderr)
	END
}

make_text >"$work/in"
bytes=$(stat -c %s "$work/in")
documents=$(wc -l <"$work/in")
two=$(best pack_text 2)
one=$(best pack_text 1)
# shellcheck disable=SC2086,SC2046
{
	row 'text: pack, two workers' $two $two
	[ ! -x "$python" ] || row '  preprocess_data.py, two workers' $(told preprocess) $two
	row 'text: pack, one worker' $one $one
	[ ! -x "$python" ] || row '  tokenizers, one thread, no files' $(told encode_only) $one
}
[ ! -x "$python" ] || cmp "$work/out.bin" "$work/theirs_text_document.bin" || echo 'pack: other bytes' >&2
