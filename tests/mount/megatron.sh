#!/bin/bash
# Megatron views: their names, what is not listed, what is impossible, and an optimizer that is damaged.
. "$(dirname "$0")/lib.sh"

m=$MCOREFS

layouts_of() {
	"$m" ls "$1" megatron/torch | awk '{ sub("/$", "", $5); print $5 }'
}

sources=("$FIXTURES"/weights/* "$FIXTURES"/resume/*)
# Both formats, experts, and an optimizer of each format.
[ -z "${MCOREFS_FEW_SOURCES:-}" ] ||
	sources=("$FIXTURES"/{weights/llama-torch-tp2-pp2,weights/mixtral-torch_dist-pp2-ep2,resume/qwen2-torch-tp2-dp2-distopt,resume/llama-torch_dist-tp2-pp2})
for source in "${sources[@]}"; do
	name=${source##*/}
	mount_foreground "$source"
	views=$mnt/latest/megatron
	same "$name: layouts" "$(ls "$views/torch")" "$(layouts_of "$source" | sort)"
	[ -d "$views/torch/tp1-pp1" ] || fail "$name: no tp1-pp1"

	# Looking at the names opens no view.
	ls -l "$views/torch" >/dev/null || fail "$name: ls -l"
	same "$name: files of views that nobody opened" "$(($(stat -f -c '%c - %d' "$mnt")))" 0
	same "$name: links of a view" "$(stat -c %h "$views/torch/tp1-pp1")" 1

	for view in torch/tp1-pp1 torch/tp2-pp1 torch_dist; do
		[ -d "$views/$view" ] || continue
		same "$name: $view: tracker" "$(<"$views/$view/latest_checkpointed_iteration.txt")" \
			"$(<"$source/latest_checkpointed_iteration.txt")"
		same "$name: $view: files" "$(cd "$views/$view" && find . -type f -printf '%P %s\n' | sort)" \
			"$("$m" ls "$source" "megatron/$view" | awk '{ print $5, $2 }' | sort)"
		rm -rf "$work/out"
		"$m" export "$source" "megatron/$view" "$work/out" >/dev/null || fail "$name: $view: export"
		diff -r "$work/out" "$views/$view" || fail "$name: $view: export and mount differ"
		same "$name: $view: times" "$(cd "$work/out" && find . -type f -printf '%P %s %T@\n' | sort)" \
			"$(cd "$views/$view" && find . -type f -printf '%P %s %T@\n' | sort)"
		same "$name: $view: inode numbers" "$(find "$mnt" -printf '%i\n' 2>/dev/null | sort | uniq -d)" ""
		"$m" verify "$source" "megatron/$view" >"$work/said" || fail "$name: $view: verify: $(cat "$work/said")"
		tail -1 "$work/said" | grep -q "megatron/$view: .* complete" || fail "$name: $view: $(tail -1 "$work/said")"
		# It is a checkpoint like the one that it was made of, but for the tokenizer, of which the legacy
		# format knows nothing.
		"$m" verify "$work/out" --deep --sums >"$work/sums" || fail "$name: $view: it is no checkpoint"
		same "$name: $view: its hf" "$(grep safetensors "$work/sums")" \
			"$("$m" verify "$source" --deep --sums | grep safetensors)"
	done

	# What cannot be is not there, by the same name as often as one asks.
	for _ in 1 2; do
		[ ! -e "$views/torch/tp7-pp1" ] || fail "$name: tp7"
		[ ! -e "$views/torch/tp01-pp1" ] || fail "$name: tp01"
		[ ! -e "$views/torch/config.json" ] || fail "$name: config.json"
		[ ! -e "$views/tp1-pp1" ] || fail "$name: tp1-pp1 in megatron"
	done
	refused "$name: tp7" 1 'tp7 is impossible: .* divided by 7' "$m" ls "$source" megatron/torch/tp7-pp1
	refused "$name: verify tp7" 1 'tp7 is impossible: .* divided by 7' "$m" verify "$source" megatron/torch/tp7-pp1
	refused "$name: export tp7" 1 'tp7 is impossible: .* divided by 7' "$m" export "$source" megatron/torch/tp7-pp1 "$work/none"
	refused "$name: no layout" 1 'megatron/torch' "$m" ls "$source" megatron/torch/tp1
	[ ! -e "$work/none" ] && [ ! -e "$work/none.mcorefs-partial" ] || fail "$name: a refused export left something"
	unmount
	same "$name: messages" "$(errors)" ""
done

# An unlisted layout of llama: two virtual chunks.
source=$FIXTURES/weights/llama-torch-tp2-pp2
mount_source "$source"
unlisted=$mnt/latest/megatron/torch/tp1-pp2-vpp2
[ -d "$unlisted" ] || fail 'tp1-pp2-vpp2 cannot be looked up'
inodes=$(find "$unlisted" -printf '%P %i\n' | sort)
same 'unlisted: files' "$(cd "$unlisted" && find . -type f | wc -l)" \
	"$("$m" ls "$source" megatron/torch/tp1-pp2-vpp2 | wc -l)"
ls "$mnt/latest/megatron/torch" | grep -q vpp && fail 'unlisted: it is listed'
unmount

# Every view says the same of a vocabulary that cannot be.
for view in hf megatron/torch_dist megatron/torch/tp1-pp1; do
	refused "vocabulary: $view" 1 '5000 rows .asked for by vocab_size=. does not fit: the checkpoint stores 1024' \
		"$m" ls "$source" "$view" -o vocab_size=5000
done

# A number is its path's, mount after mount, whatever has been looked at before.
mount_source "$source"
ls "$mnt/latest/megatron/torch/tp1-pp1" >/dev/null
same 'unlisted: inode numbers of another mount' "$(find "$unlisted" -printf '%P %i\n' | sort)" "$inodes"
unmount

# An export over its predecessor, of whatever layout, and none over what is not its own.
out=$work/forced
"$m" export "$source" megatron/torch/tp2-pp1 "$out" >/dev/null || fail 'export'
refused 'not empty' 1 'not empty' "$m" export "$source" megatron/torch/tp2-pp1 "$out"
for mine in notes.txt directory/; do
	case $mine in */) mkdir "$out/iter_0000040/$mine" ;; *) echo mine >"$out/iter_0000040/$mine" ;; esac
	refused "a person's $mine" 1 "iter_0000040/${mine%/}" "$m" export --force "$source" megatron/torch/tp2-pp1 "$out"
	[ -e "$out/iter_0000040/$mine" ] || fail "a person's $mine was removed"
	rm -r "$out/iter_0000040/${mine%/}"
done
"$m" export --force "$source" megatron/torch/tp1-pp1 "$out" >/dev/null || fail '--force'
same '--force: files' "$(cd "$out" && find . -type f | sort)" \
	"$("$m" ls "$source" megatron/torch/tp1-pp1 | sed 's/.* //; s/^/.\//' | sort)"

# A damaged optimizer is one line in the log, and no matter of the model.
copy_fixture resume/qwen2-torch-tp2-dp2-distopt
chmod -R u+w "$ckpt"
for victim in "$ckpt"/iter_*/mp_rank_00/distrib_optim.pt; do truncate -s 1000 "$victim"; done
rm -f "$log"
mount_foreground "$ckpt"
for view in torch/tp1-pp1 torch/tp2-pp1 torch_dist torch/tp1-pp1; do
	ls "$mnt/latest/megatron/$view" 2>&1 | grep -q 'Input/output error' || fail "damaged optimizer: $view"
done
cat "$mnt"/latest/hf/* >/dev/null || fail 'damaged optimizer: hf cannot be read'
same 'damaged optimizer: lines in the log' "$(errors | wc -l)" 1
errors | grep -q 'megatron: .*distrib_optim.pt' || fail "damaged optimizer: $(errors)"
unmount
refused 'damaged optimizer: ls' 1 'distrib_optim.pt' "$m" ls "$ckpt" megatron/torch/tp1-pp1
"$m" verify "$ckpt" >/dev/null || fail 'damaged optimizer: verify of hf'
rm -f "$log"
mount_foreground "$ckpt" -o no_optim
for view in torch/tp1-pp1 torch/tp2-pp1 torch_dist; do
	find "$mnt/latest/megatron/$view" -type f -exec cat {} + >/dev/null || fail "no_optim: $view"
done
unmount
same 'no_optim: messages' "$(errors)" ''
exit 0
