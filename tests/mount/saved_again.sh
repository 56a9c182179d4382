#!/bin/bash
# An iteration is saved again in place, as by a run that was resumed from an earlier one: file by file, under its readers. Nobody
# sees two saves as one; when the new one is whole it is shown, under the same names, without a remount.
. "$(dirname "$0")/lib.sh"

ckpt=$work/ckpt
other=$work/other
iteration=iter_0000020
hf=$iteration/hf/model.safetensors
rank=$iteration/megatron/torch/tp1-pp1/$iteration/mp_rank_00/model_optim_rng.pt

sum() {
	sha256sum 2>/dev/null <"$mnt/$1"
}
has_sum() {
	[ "$(sum "$1")" = "$2" ]
}

# sums_of DIR: of a mount of its own.
sums_of() {
	mount_source "$1"
	sums="$(sum $hf) $(sum $rank)"
	[ "$(sum $hf)" != "" ] || fail "$1: no weights"
	unmount
}

# What is read is the first save's or an error, and the same file read through two views is of one save.
check_no_mixture() {
	local file
	for file in $hf $rank; do
		if cat "$mnt/$file" >"$work/read" 2>/dev/null; then
			[[ "$old $new" == *"$(sha256sum <"$work/read")"* ]] || fail "$1: $file is of neither save"
			[[ "$new" != *"$(sha256sum <"$work/read")"* ]] || fail "$1: $file is of the new save already"
		fi
	done
}

# saved_again HOW: files of $other take the place of those in $ckpt, one after the other.
saved_again() {
	local how=$1 files i=0 count file known='expected .* bytes\|modified since\|have changed\|replaced by\|No such file\|saved again'
	sums_of "$ckpt"
	old=$sums
	sums_of "$other"
	new=$sums
	[ "${old:0:67}" != "${new:0:67}" ] && [ "${old:68}" != "${new:68}" ] || fail "the two saves have equal files"
	mount_foreground "$ckpt"
	same "$how: before" "$(sum $hf)" "${old:0:67}"
	ino=$(stat -c %i "$mnt/$hf")
	exec 5<"$mnt/$rank"
	mapfile -t files < <(cd "$other/$iteration" && find . -type f ! -path './tokenizer/*' | sort -r)
	count=${#files[@]}
	for file in "${files[@]}"; do
		case $how in
		rewritten) cat "$other/$iteration/$file" >"$ckpt/$iteration/$file" ;;
		replaced)
			cat "$other/$iteration/$file" >"$ckpt/$iteration/new"
			mv "$ckpt/$iteration/new" "$ckpt/$iteration/$file"
			;;
		esac
		i=$((i + 1))
		[ $i != "$count" ] || break
		check_no_mixture "$how, $i of $count"
		[ $i = 2 ] || continue
		sleep 2.5 # SOURCE is looked at meanwhile
		check_no_mixture "$how, $i of $count, later"
	done
	wait_until "$how: the new save is shown" has_sum $hf "${new:0:67}"
	wait_until "$how: in Megatron's views too" has_sum $rank "${new:68}"
	same "$how: its inode number" "$(stat -c %i "$mnt/$hf")" "$ino"
	same "$how: once more" "$(sum $hf) $(sum $rank)" "$new"
	case $how in
	rewritten) cat <&5 >/dev/null 2>&1 && fail "a file that was open is read though its sources are rewritten" ;;
	replaced) same "a file that was open" "$(sha256sum <&5)" "${old:68}" ;;
	esac
	exec 5<&-
	unmount
	# Who rewrites a file cuts it short first; one that is replaced is whole at any moment.
	[ "$how" = replaced ] || known="$known\|cut short while in use"
	if errors | grep -v "$known"; then
		fail "$how: other messages"
	fi
}

# Legacy files; the new save's tensors differ in some bytes.
copy_fixture resume/llama-torch-tp2-pp2
cp -r "$ckpt" "$other"
for file in "$other"/iter_*/mp_rank_*/*.pt; do
	for at in 80000 $(($(stat -c %s "$file") / 2)); do # in a weight, in the optimizer's state
		printf 'other bytes' | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
	done
done
find "$ckpt" -exec touch -d @1000000000 {} +
saved_again rewritten

rm -rf "$ckpt" "$other" "$log"
mkdir "$ckpt" "$other"
cp -r "$FIXTURES/resume/llama-torch_dist-tp2-pp2/$iteration" "$ckpt"
cp -r "$FIXTURES/resume/llama-torch_dist-tp2-pp2/iter_0000040" "$other/$iteration"
find "$ckpt" -exec touch -d @1000000000 {} +
saved_again replaced
