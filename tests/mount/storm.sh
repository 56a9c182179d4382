#!/bin/bash
# Saves (new ones and over old ones), truncations and deletions together with readers of everything, for STORM_SECONDS: a file
# that is read to its end is one that some save has had, whole, and all else is an error.
. "$(dirname "$0")/lib.sh"

seconds=${STORM_SECONDS:-6}
RANDOM=${STORM_SEED:-$$}
fixture=$FIXTURES/resume/llama-torch_dist-tp2-pp2
numbers=(0000020 0000040 0000060)
ckpt=$work/ckpt
mkdir "$ckpt" "$work/sums"
chmod 755 "$ckpt"

# save VERSION NUMBER: as a run does, what makes it complete comes last; over an old save, what made that one complete
# goes first. Files are replaced: one that is rewritten in place may give a request in flight both (docs/SEMANTICS.md).
save() {
	local from=$fixture/iter_$1 to=$ckpt/iter_$2 file
	mkdir -p "$to"
	rm -f "$to/.metadata" "$to/metadata.json"
	for file in "$from"/* "$from/.metadata"; do
		case ${file##*/} in
		metadata.json) ;;
		tokenizer) cp -rT "$file" "$to/tokenizer" ;;
		*) cp "$file" "$to/.new" && chmod 644 "$to/.new" && mv "$to/.new" "$to/${file##*/}" ;;
		esac
	done
	cp "$from/metadata.json" "$to/.new" && mv "$to/.new" "$to/metadata.json"
	echo 60 >"$ckpt/.tracker" && mv "$ckpt/.tracker" "$ckpt/latest_checkpointed_iteration.txt"
}

files() {
	(cd "$mnt" && find iter_*/hf iter_*/megatron/torch_dist -type f)
}

# The sums that each file may have.
for version in 0000020 0000040; do
	for number in "${numbers[@]}"; do save $version "$number"; done
	mount_source "$ckpt" 2>>"$log"
	files >"$work/names"
	while read -r name; do
		sha256sum <"$mnt/$name" >>"$work/sums/${name//\//_}"
	done <"$work/names"
	unmount
done
[ "$(wc -l <"$work/names")" -gt 30 ] || fail "only $(wc -l <"$work/names") files to read"

over() {
	[ -e "$work/stop" ]
}

# Reads files in another order each time round.
reader() {
	local name sum status
	while ! over; do
		ls "$mnt" >/dev/null 2>&1
		while read -r name && ! over; do
			sum=$(timeout -k 1 300 sha256sum 2>/dev/null <"$mnt/$name")
			status=$?
			if [ $status -ge 124 ]; then
				echo "$name: does not end" >>"$work/wrong"
			elif [ $status != 0 ]; then
				echo "$name" >>"$work/failed.$1"
			elif grep -qF "$sum" "$work/sums/${name//\//_}"; then
				echo "$name" >>"$work/right.$1"
			else
				echo "$name: $sum" >>"$work/wrong"
			fi
		done < <(shuf "$work/names") 2>/dev/null
	done
}

pick() {
	shift $((RANDOM % $#))
	echo "$1"
}

change() {
	local dir=$ckpt/iter_$(pick "${numbers[@]}")
	case $((RANDOM % 6)) in
	0 | 1) save "$(pick 0000020 0000040)" "${dir##*iter_}" ;;
	2) truncate -s "$((RANDOM * 8))" "$dir/__$((RANDOM % 2))_0.distcp" 2>/dev/null ;;
	3) rm -f "$dir/__$((RANDOM % 2))_1.distcp" ;;
	4) mv "$dir" "$work/gone" 2>/dev/null && rm -rf "$work/gone" ;;
	5) touch "$dir"/*.distcp 2>/dev/null ;;
	esac
}

mount_foreground "$ckpt"
readers=()
for i in 1 2 3; do
	reader $i &
	readers+=($!)
done
end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ] && ! ended "$daemon"; do
	change
	sleep 0.1
done
ended "$daemon" && fail 'the daemon has ended'
# Whole again: what is read now is right, or an error of a save that was opened before.
for number in "${numbers[@]}"; do save 0000040 "$number"; done
sleep 1
wait_until 'something was read' test -s "$work/right.1"
touch "$work/stop"
wait "${readers[@]}"
[ ! -s "$work/wrong" ] || fail "read whole and wrong: $(sort "$work/wrong" | uniq -c)"
echo "$(cat "$work"/right.* | wc -l) files read, $(cat "$work"/failed.* 2>/dev/null | wc -l) errors"
unmount

mount_foreground "$ckpt"
while read -r name; do
	sum=$(sha256sum <"$mnt/$name") || fail "$name cannot be read after the storm"
	grep -qF "$sum" "$work/sums/${name//\//_}" || fail "$name is wrong after the storm"
done <"$work/names"
unmount
exit 0
