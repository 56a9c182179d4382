#!/bin/bash
# What cannot work is reported in one sentence, with an exit status, before anything is mounted.
. "$(dirname "$0")/lib.sh"

source=$(echo "$FIXTURES"/weights/llama-torch-*)
m=$MCOREFS

refused 'no arguments' 2 'SOURCE and MOUNTPOINT are missing' "$m"
refused 'one argument' 2 'MOUNTPOINT is missing' "$m" "$source"
refused 'three arguments' 2 'one argument too many' "$m" "$source" "$mnt" "$mnt"
refused 'unknown command' 2 "'frobnicate' is neither a command nor a source" "$m" frobnicate
(cd "$FIXTURES/data" && refused 'a prefix in the current directory' 3 'cannot mount on /nowhere' "$m" tales_text_document /nowhere) || exit 1
refused 'unknown long option' 2 "unknown option '--frobnicate'" "$m" --frobnicate
refused 'unknown long option behind' 2 "unknown option '--frobnicate'" "$m" "$source" "$mnt" --frobnicate
refused 'unknown letter' 2 "unknown option '-z'" "$m" "$source" "$mnt" -z
refused '-o without a list' 2 "option '-o' needs a value" "$m" "$source" "$mnt" -o
refused 'unknown -o' 2 "unknown option '-o frobnicate'" "$m" "$source" "$mnt" -o ro,frobnicate
refused '-o arch' 2 "option 'arch' needs a value" "$m" "$source" "$mnt" -o arch=
refused '-o ro=1' 2 "option 'ro' takes no value" "$m" "$source" "$mnt" -o ro=1
refused 'rw' 2 'read-only' "$m" "$source" "$mnt" -o rw
refused 'shard_size' 2 'takes a size like 5GB' "$m" "$source" "$mnt" -o shard_size=5XB
refused 'huge shard_size' 2 'takes a size like 5GB' "$m" "$source" "$mnt" -o shard_size=99999999999TB
refused 'vocab_size' 2 "a number of tokens or 'tokenizer'" "$m" "$source" "$mnt" -o vocab_size=-1

refused 'spec' 2 "takes 'local' or 'te', not 'megatron'" "$m" "$source" "$mnt" -o spec=megatron
refused 'rw without dataset_cache' 2 "read-only without 'dataset_cache'" "$m" "$source" "$mnt" -o rw,split=1
refused 'dataset_cache' 2 "option 'dataset_cache' needs a value" "$m" "$source" "$mnt" -o dataset_cache
refused 'split' 2 . "$m" "$source" "$mnt" -o split=a
refused 'merge' 2 "takes the name of a dataset, not 'a/b'" "$m" "$source" "$mnt" -o merge=a/b
refused 'megatron' 2 "is not a version of Megatron" "$m" "$source" "$mnt" -o megatron=new
refused 'append_eod' 2 "takes a token's id, not '-1'" "$m" "$source" "$mnt" -o append_eod=-1
refused 'arrow_batch' 2 'takes a size like 256MiB' "$m" "$source" "$mnt" -o arrow_batch=0
refused 'no_optim' 2 "option 'no_optim' takes no value" "$m" ls "$source" -o no_optim=1

# What was meant is named: the misspelt word, slashes, a unit, the help of the command.
refused 'a misspelt command' 2 "'inspct' is neither .*did you mean 'inspect'" "$m" inspct "$source"
refused 'a misspelt option' 2 "did you mean '--help'" "$m" --hlp
refused 'a misspelt option of a command' 2 "'--depp'; did you mean '--deep'.*mcorefs verify --help" "$m" verify "$source" --depp
refused 'a misspelt -o' 2 "did you mean '-o shard_size'" "$m" "$source" "$mnt" -o ro,shard_szie=5GB
refused 'a split with commas' 2 'use slashes, split=99/1/0' "$m" "$source" "$mnt" -o split=99,1,0,ro
refused 'a split with one comma' 2 'use slashes, split=99/1 ' "$m" "$source" "$mnt" -o split=99,1
refused 'shard_size without a unit' 2 'needs a unit: 5GB' "$m" "$source" "$mnt" -o shard_size=5
refused 'arrow_batch without a unit' 2 'needs a unit' "$m" "$source" "$mnt" -o arrow_batch=3000
for command in inspect ls verify export diff sample pack; do
	refused "$command: where help is" 2 "mcorefs $command --help says more" "$m" $command --frobnicate
done

# Output that cannot be written is reported, whatever the command prints, and is no success.
full='No space left on device'
unwritten() {
	local text=$1 status=$2 out
	shift 2
	out=$("$@" 2>&1 >/dev/full)
	same "$text >/dev/full: exit status" "$?" "$status"
	[[ $out == "mcorefs: cannot write to standard output: $full" ]] || fail "$text >/dev/full: '$out'"
}
unwritten --help 1 "$m" --help
unwritten --version 1 "$m" --version
unwritten 'verify --help' 1 "$m" verify --help
unwritten 'pack --help' 1 "$m" pack --help
unwritten 'verify --sums' 1 "$m" verify "$source" --sums
unwritten verify 1 "$m" verify "$source"
unwritten ls 1 "$m" ls "$source"
unwritten inspect 1 "$m" inspect "$source"
unwritten 'inspect --json' 1 "$m" inspect "$source" --json
unwritten diff 2 "$m" diff "$source" "$source"

refused 'no SOURCE' 1 'No such file or directory' "$m" "$work/none" "$mnt"
mkdir "$work/other"
touch "$work/other/thesis.tex"
refused 'SOURCE of something else' 1 "$work/other" "$m" "$work/other" "$mnt"
refused 'SOURCE of something else, foreground' 1 "$work/other" "$m" "$work/other" "$mnt" -f
refused 'SOURCE is a file' 1 'ot a directory' "$m" "$source/latest_checkpointed_iteration.txt" "$mnt"
refused 'bad arch' 1 . "$m" "$source" "$mnt" -o arch=frobnicate
refused 'bad ref' 1 "$work/none" "$m" "$source" "$mnt" -o ref="$work/none"

# What would have no effect is refused, too.
data=$FIXTURES/data
for option in merge=all split=99/1/0 data_path=a train_data_path=a data_args_path=a megatron=0.10 tokenizer_id=/ column=text append_eod=3 \
	vocab_scan text_scan arrow_batch=1MiB "dataset_cache=$work/cache"; do
	refused "$option of a model" 1 "'${option%%=*}' has no effect: there are no datasets" "$m" "$source" "$mnt" -o "$option"
done
for option in arch=llama "ref=$work" "adapter=$work" part=language shard_size=1GB stack_experts spec=te no_optim vocab_size=tokenizer; do
	refused "$option of datasets" 1 "has no effect: SOURCE holds datasets" "$m" "$data" "$mnt" -o "$option"
done
refused 'column of .idx and .bin' 1 "'column' has no effect" "$m" "$data" "$mnt" -o column=text
refused 'append_eod of .idx and .bin' 1 "'append_eod' has no effect" "$m" "$data" "$mnt" -o append_eod=3
refused 'a blend of blanks' 1 'is empty' "$m" "$data" "$mnt" -o 'data_path= '
refused 'a blend of what is not there' 1 "no dataset 'none'" "$m" "$data" "$mnt" -o 'data_path=1 tales_text_document 1 none'
refused 'tokenizer_id that is missing' 1 "tokenizer_id: $work/none: No such file" "$m" "$data" "$mnt" -o "tokenizer_id=$work/none"
refused 'tokenizer_id that is none' 1 "is not a JSON object" "$m" "$data" "$mnt" -o "tokenizer_id=$data/notes_text_document.idx"
not_mounted || fail 'something was mounted'
# That of a run which will write it while mounted.
mkdir "$work/later"
mount_source "$data" -o "tokenizer_id=$work/later"
unmount

refused 'no MOUNTPOINT' 3 'No such file or directory' "$m" "$source" "$work/none"
refused 'MOUNTPOINT is a file' 3 'not a directory' "$m" "$source" "$source/latest_checkpointed_iteration.txt"
copy_fixture "weights/${source##*/}"
mkdir "$ckpt/mnt"
refused 'MOUNTPOINT in SOURCE' 3 'lies in SOURCE or contains it' "$m" "$ckpt" "$ckpt/mnt"
refused 'MOUNTPOINT is SOURCE' 3 'lies in SOURCE or contains it' "$m" "$ckpt" "$ckpt"
refused 'SOURCE in MOUNTPOINT' 3 'lies in SOURCE or contains it' "$m" "$ckpt" "$work"

# An incomplete HuggingFace directory, which is looked at once: the reason names what is missing.
"$m" export "$source" hf "$work/hf" >/dev/null || fail 'export'
truncate -s -1000 "$work/hf/model.safetensors"
refused 'incomplete SOURCE' 1 'model.safetensors' "$m" "$work/hf" "$mnt"
not_mounted || fail 'something was mounted'

# Names of files do not speak to the terminal: ESC, DEL, C1 in both forms, and a byte that is no UTF-8.
"$m" export "$source" hf "$work/names" >/dev/null || fail 'export'
touch "$work/names"/$'README\e[31m\x7f\xff\x9b.md' "$work/names"/$'README\xc2\x9b.md'
for command in ls verify; do
	said=$("$m" $command "$work/names" hf 2>&1) || fail "names: $command: $said"
	[[ $said == *'README?[31m???.md'* && $said == *'README??.md'* ]] || fail "names: $command: $said"
	! LC_ALL=C grep -q $'[\e\x7f\xff\x9b]' <<<"$said" || fail "names: $command says them as they are"
done

# What is traced, and words that are none.
traced=$(MCOREFS_TRACE=plan,io,no "$m" verify "$source" hf --deep 2>&1 >/dev/null | sort -u)
for line in 'trace: PLAN: model.embed_tokens.weight: \[[0-9]+, [0-9]+\], 2 bands' 'trace: IO: .*: [0-9]+ bytes are mapped' "trace: MCOREFS_TRACE: 'no' is none of plan "; do
	grep -qE "^$line" <<<"$traced" || fail "no line '$line': $traced"
done
! MCOREFS_TRACE= "$m" verify "$source" hf 2>&1 | grep -q 'trace: ' || fail 'it traces unasked'

# What fstab may say is accepted, and later options count.
mount_source "$source" -o defaults,_netdev,nofail,noauto,user,nosuid,nodev,noatime,x-systemd.automount,comment=x \
	-o shard_size=1B,shard_size=5GB
[ -f "$mnt/latest/hf/model.safetensors" ] || fail 'the later shard_size does not count'
unmount

help=$("$m" --help) || fail '--help'
[ "$(wc -l <<<"$help")" -le 24 ] || fail '--help is longer than a screen'
[ "$(wc -L <<<"$help")" -le 80 ] || fail '--help is wider than a screen'
same '-h' "$("$m" -h)" "$help"
[[ $("$m" --version) =~ ^mcorefs\ [0-9]+\.[0-9]+\.[0-9]+ ]] || fail '--version'

# (That the manual page and the completions have all commands and options is checked by tests/lint.sh.)
mapfile -t commands < <(sed -n '/^} commands/,/^}/p' fs/main.c | grep -oE '"[a-z]+"' | tr -d '"')
[ "${#commands[@]}" -ge 7 ] || fail "the table of commands was not found"
for command in "${commands[@]}"; do
	grep -q "mcorefs $command " <<<"$help" || fail "--help without $command"
done
for option in arch family ref adapter vocab_size shard_size spec no_optim data merge split data_path dataset_cache allow_other; do
	grep -qE -- "[ ,]$option([=, ]|$)" <<<"$help" || fail "--help without $option"
done

# The completions of bash, as bash asks for them: a line's words, "=" being one.
compopt() { :; }
. mount-helpers/completions/mcorefs.bash
completed() {
	COMP_WORDS=("$m" "$@")
	COMP_CWORD=$#
	_mcorefs
	printf '%s\n' "${COMPREPLY[@]}" | xargs
}
same "completion of a command" "$(completed sam)" sample
same "completion of a family" "$(completed "$data" "$mnt" -o arch = lla)" llama
same "completion of -o" "$(completed "$data" "$mnt" -o ro,dataset_)" ro,dataset_cache=
same "completion of a directory" "$(completed "$data" "$mnt" -o dataset_cache = "$data/hf_")" "$data/hf_dataset"
same "completion of a prefix" "$(completed inspect "$data/tales_")" "$data/tales_text_document.idx"
same "completion of a dataset's view" "$(completed export "$data" data/tales_text_document/h)" data/tales_text_document/hf
same "completion of a view of any source" "$(completed ls "$work/none" ra)" raw
same "completion of a model's view" "$(completed ls "$source" megatron/torch_d)" megatron/torch_dist
same "completion of the latest's view" "$(completed ls "$source" latest/megatron/torch_d)" latest/megatron/torch_dist
same "completion of a layout" "$(completed ls "$source" megatron/torch/tp2-pp2)" megatron/torch/tp2-pp2
same "completion of a spec" "$(completed ls "$data" data/tales_text_document/samples/t)" data/tales_text_document/samples/train-s4096
same "completion of an option" "$(completed sample "$data" --step 1 --global)" --global-batch-size
same "completion of a value" "$(completed pack "$work/x" --format l)" lines
