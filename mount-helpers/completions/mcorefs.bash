# bash completion for mcorefs

# The list after -o, which bash has cut into words at each "=". Fails if the cursor is elsewhere.
_mcorefs_list() {
	local i list=
	for ((i = COMP_CWORD; i > 0; i--)); do
		case ${COMP_WORDS[i]} in
		-o) printf '%s' "$list" && return 0 ;;
		-*) return 1 ;;
		esac
		if ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i + 1]} != '=' && ${COMP_WORDS[i]} != '=' ]]; then
			return 1
		fi
		list=${COMP_WORDS[i]}$list
	done
	return 1
}

_mcorefs_option() {
	local list=$1 cur=$2 names='arch= family= ref= tokenizer= adapter= base= part= vocab_size= shard_size= stack_experts spec= no_optim verify= cache= cache_size= timeout= open_timeout= private_redirects data= merge= split= data_path= train_data_path=
		valid_data_path= test_data_path= data_args_path= megatron= tokenizer_id= column= append_eod= vocab_scan text_scan arrow_batch= dataset_cache=
		log= log_format= metrics= prefetch= setuid= drop_privileges sandbox allow_other allow_root auto_unmount default_permissions fsname= max_read= noexec remount ro rw'

	[[ $cur == '=' ]] && cur=
	case ${list##*,} in
	arch=*) mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" families --json | awk -F'"' '$2 == "name" { name = $4 } $2 == "language" { parts = $3 } $2 == "impossible" && parts $3 ~ "null.*null" { print name }')" -- "$cur") ;;
	vocab_size=*) mapfile -t COMPREPLY < <(compgen -W 'tokenizer' -- "$cur") ;;
	part=*) mapfile -t COMPREPLY < <(compgen -W 'language' -- "$cur") ;;
	spec=*) mapfile -t COMPREPLY < <(compgen -W 'local te' -- "$cur") ;;
	log_format=*) mapfile -t COMPREPLY < <(compgen -W 'json text' -- "$cur") ;;
	setuid=*) mapfile -t COMPREPLY < <(compgen -u -- "$cur") ;;
	verify=*) mapfile -t COMPREPLY < <(compgen -W 'crc sha256' -- "$cur") ;;
	ref=* | tokenizer=* | adapter=* | base=* | cache=* | dataset_cache=*)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		;;
	log=* | metrics=* | family=* | data=* | data_args_path=* | tokenizer_id=*)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	*=*) ;;
	*)
		mapfile -t COMPREPLY < <(compgen -P "${cur%"${cur##*,}"}" -W "$names" -- "${cur##*,}")
		[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
		;;
	esac
}

# Views of a model: those that --help names. Where an example stands for a layout, what a listing of the source shows;
# any other layout that the model can have is a view as well.
_mcorefs_views() {
	local name
	"${COMP_WORDS[0]}" ls --help | sed -n 's|^  \([a-z][^ ]*\) .*|\1|p' | while read -r name; do
		case $name in
		data/*) ;;
		*[0-9]*) "${COMP_WORDS[0]}" ls "${COMP_WORDS[2]}" "${name%/*}" 2>/dev/null | sed -n "s|.* \([^ ]*\)/$|${name%/*}/\1|p" ;;
		*) printf '%s\n' "$name" "latest/$name" ;;
		esac
	done
}

# Views of the source's datasets, as its tree is listed: two more spaces a level.
_mcorefs_data() {
	[[ ${COMP_WORDS[2]} ]] || return
	"${COMP_WORDS[0]}" ls "${COMP_WORDS[2]}" data 2>/dev/null | awk '{
		sub(/^[^ ]+ +[0-9]+  [-0-9]+ [:0-9]+  /, "")
		match($0, /[^ ]/)
		level = (RSTART - 1) / 2
		part[level] = substr($0, RSTART, length($0) - RSTART)
		path = "data"
		for (i = 0; i <= level; i++) path = path "/" part[i]
		if (level) print path
	}'
}

# Where something is mounted; names with blanks are left out.
_mcorefs_mounts() {
	"${COMP_WORDS[0]}" mounts --json 2>/dev/null | sed -n 's|^ *"mountpoint": "\([^" ]*\)",$|\1|p'
}

# What a command's option takes. Fails if the word before the cursor is not an option that takes a value.
_mcorefs_value() {
	local cur=$1
	case ${COMP_WORDS[1]}:${COMP_WORDS[COMP_CWORD - 1]} in
	sample:--dataloader-type) mapfile -t COMPREPLY < <(compgen -W 'single cyclic' -- "$cur") ;;
	sample:--data-path | sample:--train-data-path | sample:--data-args-path | sample:--npy | sample:--bin)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	verify:--check | verify:--key | verify:--signature | sum:--output | sum:--sign | serve:--tokens | serve:--access-log | serve:--certificate | serve:--key)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	stub:--view) mapfile -t COMPREPLY < <(compgen -W "$(_mcorefs_views)" -- "$cur") ;;
	pack:--dtype) mapfile -t COMPREPLY < <(compgen -W 'uint8 int8 uint16 int16 int32 int64' -- "$cur") ;;
	pack:--tokenizer | pack:--tokenizer-model | pack:--input | pack:--output-prefix | pack:--vocab-file | pack:--merge-file)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	pack:--tokenizer-type)
		mapfile -t COMPREPLY < <(compgen -W 'HuggingFaceTokenizer SentencePieceTokenizer GPTSentencePieceTokenizer Llama2Tokenizer GPT2BPETokenizer TikTokenizer NullTokenizer SFTTokenizer' -- "$cur")
		;;
	pack:--sft-tokenizer-prompt-format) mapfile -t COMPREPLY < <(compgen -W 'default nemotron-h-aligned nemotron-nano-v2 identity' -- "$cur") ;;
	pack:--format) mapfile -t COMPREPLY < <(compgen -W 'auto jsonl ids lines' -- "$cur") ;;
	*) return 1 ;;
	esac
}

_mcorefs() {
	local cur=${COMP_WORDS[COMP_CWORD]} list
	COMPREPLY=()

	if [[ $cur != -* ]] && list=$(_mcorefs_list); then
		_mcorefs_option "$list" "$cur"
		return
	fi
	if [[ $cur != -* ]] && _mcorefs_value "$cur"; then
		return
	fi
	if [[ $cur == -* ]]; then
		case ${COMP_WORDS[1]} in
		inspect) mapfile -t COMPREPLY < <(compgen -W '--json --tensors -o' -- "$cur") ;;
		verify) mapfile -t COMPREPLY < <(compgen -W '--deep --sums --check --key --signature --json -o' -- "$cur") ;;
		ls) mapfile -t COMPREPLY < <(compgen -W '--json -o' -- "$cur") ;;
		extents) mapfile -t COMPREPLY < <(compgen -W '--json -o' -- "$cur") ;;
		export) mapfile -t COMPREPLY < <(compgen -W '--force --json -o' -- "$cur") ;;
		stub) mapfile -t COMPREPLY < <(compgen -W '--view -o' -- "$cur") ;;
		families) mapfile -t COMPREPLY < <(compgen -W '--json -o' -- "$cur") ;;
		diff) mapfile -t COMPREPLY < <(compgen -W '--quiet --optim --json -q -n -o' -- "$cur") ;;
		delta) mapfile -t COMPREPLY < <(compgen -W '--view --mode --checksum --version --base --json -o' -- "$cur") ;;
		mounts) mapfile -t COMPREPLY < <(compgen -W '--json' -- "$cur") ;;
		umount) mapfile -t COMPREPLY < <(compgen -W '--lazy -l' -- "$cur") ;;
		fsck) mapfile -t COMPREPLY < <(compgen -W '--strict --globals' -- "$cur") ;;
		serve) mapfile -t COMPREPLY < <(compgen -W '--listen --listen-s3 --tokens --access-log --certificate --key --data-node --url-secret --links -o' -- "$cur") ;;
		sum) mapfile -t COMPREPLY < <(compgen -W '--output --sign --optim -o' -- "$cur") ;;
		sample)
			mapfile -t COMPREPLY < <(compgen -W '--step --data-path --train-data-path --data-args-path --split --seq-length
				--seed --dataloader-type --global-batch-size --train-iters --train-samples --micro-batch-size
				--data-parallel-size --rank --consumed-samples --no-data-sharding --mid-level-dataset-surplus
				--megatron --eod-mask-loss --eod --pad --text --npy --bin -o' -- "$cur")
			;;
		pack)
			mapfile -t COMPREPLY < <(compgen -W '--vocab-size --dtype --append-eod --key --format --resume --force
				--tokenizer --json-keys --separator --workers --input --output-prefix --tokenizer-type --tokenizer-model
				--vocab-file --merge-file --tiktoken-pattern --tiktoken-num-special-tokens --null-tokenizer-eod-id --legacy-tokenizer --tokenizer-hf-no-include-special-tokens
				--partitions --keep-sequential-samples --sft --seq-length --sft-tokenizer-prompt-format --sft-answer-only-loss
				--pad-seq-to-mult --pad-id' -- "$cur")
			;;
		*) mapfile -t COMPREPLY < <(compgen -W '-o -f -d -s --help --version' -- "$cur") ;;
		esac
		return
	fi
	compopt -o filenames
	if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} =~ ^u?mounts?$ ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_mcorefs_mounts)" -- "$cur")
		return
	fi
	mapfile -t COMPREPLY < <(compgen -d -- "$cur")
	mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -X '!*.idx' -- "$cur")
	if [[ $COMP_CWORD == 1 ]]; then
		mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W 'inspect ls verify export stub diff delta families extents fsck sum sample serve pack mounts umount' -- "$cur")
	elif [[ $COMP_CWORD == 3 && ${COMP_WORDS[1]} =~ ^(ls|verify|export|extents)$ ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_mcorefs_views) $(_mcorefs_data)" -- "$cur")
	fi
}
complete -F _mcorefs mcorefs
