#!/bin/bash
# mcorefs fsck: picklescan's exit codes, on checkpoints that are clean and on pickles that would call something.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS
for name in weights optim hf data; do
	"$m" fsck "$FIXTURES/$name" >"$work/said" || fail "$name: $(<"$work/said")"
	grep -q ' 0 dangerous, 0 with unknown imports, 0 that could not' "$work/said" || fail "$name: $(<"$work/said")"
done

# scan TEXT STATUS PATTERN PATH [OPTION...]
scan() {
	"$m" fsck "${@:4}" >"$work/said" 2>&1
	same "$1: exit status" "$?" "$2"
	grep -q "$3" "$work/said" || fail "$1: expected a line like '$3', found '$(<"$work/said")'"
}

evil='cos\nsystem\n(S"echo"\ntR.'
mkdir "$work/dir" "$work/dir/in"
printf '%b' "$evil" >"$work/dir/in/model.bin"
scan 'a pickle' 1 'model.bin: DANGEROUS imports os system' "$work/dir/in/model.bin"
scan 'a directory' 1 '1 files, 1 pickles: 1 dangerous' "$work/dir"
# A second archive after an honest one, which no directory of a ZIP names: as .distcp files are.
copy_fixture weights/llama-torch-tp2-pp2
chmod -R u+w "$ckpt"
f=$(echo "$ckpt"/iter_*/mp_rank_00_000/model_optim_rng.pt)
{ printf 'PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\010\0\0\0data.pkl' && printf '%b' "$evil"; } >>"$f"
scan 'behind an archive' 1 'mp_rank_00_000/model_optim_rng.pt: DANGEROUS imports os system' "$ckpt"
printf '\200\002cmycode\nConfig\n)R.' >"$work/unknown.pkl"
scan 'unknown' 0 'unknown   imports mycode Config' "$work/unknown.pkl"
scan '--strict' 1 'unknown   imports mycode Config' "$work/unknown.pkl" --strict
scan '--globals' 0 'harmless  imports torch._utils _rebuild_tensor_v2' "$FIXTURES/weights/llama-torch-tp2-pp2" --globals
printf 'cos\nsystem\n)R' >"$work/cut.pkl"
scan 'cut short' 2 'cut.pkl: .*it ends before its STOP' "$work/cut.pkl"
grep -q 'DANGEROUS imports os system' "$work/said" || fail "cut short: $(<"$work/said")"
scan 'nothing there' 2 'none: No such file' "$work/none"
# Pickles after more of them than are looked at are not passed over in silence.
{ printf 'N.%.0s' {1..64} && printf '%b' "$evil"; } >"$work/many.pkl"
scan 'many pickles' 2 'many.pkl: more than 64 pickles .* from byte 128 on' "$work/many.pkl"
# Nor are pickles that lie in one another, each of which goes on to the end: a walk of all is the square of the file.
for ((i = 0; i < 15; i++)); do
	[ "$i" = 0 ] && printf 'PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0x.pkl' >"$work/nested.zip"
	cat "$work/nested.zip" "$work/nested.zip" >"$work/twice.zip" && mv "$work/twice.zip" "$work/nested.zip"
done
scan 'nested pickles' 2 'nested.zip: its pickles lie in one another: what follows byte 140 ' "$work/nested.zip"
# What this walk does not follow, and the unpickler does, is not clean.
{ printf 'N%.0s' {1..1000001} && printf '%b' "$evil"; } >"$work/deep.pkl"
scan 'a deep stack' 2 'deep.pkl: .*more than a million entries' "$work/deep.pkl"
printf '%b' "Np100000\\n0$evil" >"$work/far.pkl"
scan 'a slot far away' 1 'far.pkl: DANGEROUS imports os system' "$work/far.pkl"
# A person who names a link to a directory means the directory.
ln -s dir "$work/link"
scan 'a link to a directory' 1 'link/in/model.bin: DANGEROUS imports os system' "$work/link"
mkfifo "$work/dir/fifo"
scan 'a FIFO' 2 'fifo: Not a directory' "$work/dir/fifo"
scan 'a FIFO is not waited for' 1 '1 files, 1 pickles' "$work/dir"
ln -s / "$work/dir/out"
ln -s loop "$work/dir/loop"
scan 'a link that leads nowhere' 2 'loop: Too many levels' "$work/dir"
exit 0
