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
	local list=$1 cur=$2 names='arch= ref= vocab_size= shard_size= spec= no_optim allow_other allow_root auto_unmount
		default_permissions fsname= max_read= noexec ro'

	[[ $cur == '=' ]] && cur=
	case ${list##*,} in
	arch=*) mapfile -t COMPREPLY < <(compgen -W 'deepseek-v3 gpt2 llama mixtral qwen2 qwen3' -- "$cur") ;;
	vocab_size=*) mapfile -t COMPREPLY < <(compgen -W 'tokenizer' -- "$cur") ;;
	spec=*) mapfile -t COMPREPLY < <(compgen -W 'local te' -- "$cur") ;;
	ref=*)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		;;
	*=*) ;;
	*)
		mapfile -t COMPREPLY < <(compgen -P "${cur%"${cur##*,}"}" -W "$names" -- "${cur##*,}")
		[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
		;;
	esac
}

# What a listing of the source shows; any other layout that the model can have is a view as well.
_mcorefs_layouts() {
	[[ ${COMP_WORDS[2]} && -d ${COMP_WORDS[2]} ]] || return
	"${COMP_WORDS[0]}" ls "${COMP_WORDS[2]}" megatron/torch 2>/dev/null | sed -n 's|.* \(tp[^ ]*\)/$|megatron/torch/\1|p'
}

_mcorefs() {
	local cur=${COMP_WORDS[COMP_CWORD]} list
	COMPREPLY=()

	if [[ $cur != -* ]] && list=$(_mcorefs_list); then
		_mcorefs_option "$list" "$cur"
		return
	fi
	if [[ $cur == -* ]]; then
		case ${COMP_WORDS[1]} in
		inspect) mapfile -t COMPREPLY < <(compgen -W '--json --tensors -o' -- "$cur") ;;
		verify) mapfile -t COMPREPLY < <(compgen -W '--deep --sums -o' -- "$cur") ;;
		ls) mapfile -t COMPREPLY < <(compgen -W '-o' -- "$cur") ;;
		export) mapfile -t COMPREPLY < <(compgen -W '--force -o' -- "$cur") ;;
		diff) mapfile -t COMPREPLY < <(compgen -W '--quiet --optim --json -q -n -o' -- "$cur") ;;
		*) mapfile -t COMPREPLY < <(compgen -W '-o -f -d -s --help --version' -- "$cur") ;;
		esac
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -d -- "$cur")
	if [[ $COMP_CWORD == 1 ]]; then
		mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W 'inspect ls verify export diff' -- "$cur")
	elif [[ $COMP_CWORD == 3 && ${COMP_WORDS[1]} =~ ^(ls|verify|export)$ ]]; then
		mapfile -t COMPREPLY < <(compgen -W "hf latest/hf megatron/torch_dist $(_mcorefs_layouts)" -- "$cur")
	fi
}
complete -F _mcorefs mcorefs
