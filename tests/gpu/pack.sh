#!/bin/sh
# Packs what a GPU machine needs in addition to the working tree: pack.sh MEGATRON_TREE FIXTURES DEST [MCOREFS LIBRARIES]
# Fixtures that tests/fixtures/resume holds are left out.
set -eu
[ $# -ge 3 ] || { sed -n 2,3p "$0"; exit 2; }
have=$(cd "$(dirname "$0")/../fixtures/resume" && ls)
mkdir -p "$3"
rm -f "$3"/*.tar.xz
tar -C "$1" --transform 's,^\.,megatron-lm,' --exclude=__pycache__ -cJf "$3/megatron.tar.xz" .
for fixture in $(cd "$2" && ls); do
	case " $(echo $have) " in *" $fixture "*) continue ;; esac
	[ -e "$2/$fixture/loss.csv" ] || continue
	tar -C "$2" --transform 's,^,fixtures/,' --exclude=logits.npz --mode=u+w -cf - "$fixture" | xz -1 >"$3/$fixture.tar.xz"
done
if [ $# -ge 5 ]; then
	dir=$(mktemp -d)
	mkdir "$dir/mcorefs"
	cp "$4" "$dir/mcorefs/mcorefs.bin"
	strip "$dir/mcorefs/mcorefs.bin"
	cp -r "$5" "$dir/mcorefs/lib"
	printf '%s\n' '#!/bin/sh' 'LD_LIBRARY_PATH=${0%/*}/lib exec "${0%/*}/mcorefs.bin" "$@"' >"$dir/mcorefs/mcorefs"
	chmod +x "$dir/mcorefs/mcorefs"
	tar -C "$dir" -cJf "$3/mcorefs.tar.xz" mcorefs
	rm -r "$dir"
fi
du -ch "$3"/*
