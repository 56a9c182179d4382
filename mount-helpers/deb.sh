#!/bin/sh
# deb.sh STAGE OUT: packages for Debian and Ubuntu of what `make install PREFIX=/usr DESTDIR=STAGE` has put into STAGE:
# OUT/NAME_VERSION_ARCH.deb of mcorefs, mcorefs-train, libmcorefs0 and libmcorefs-dev. `make deb` calls it. It needs dpkg-dev.
set -eu
stage=$1
out=$2
version=$(sed -n 's/.*MFS_VERSION *"\(.*\)".*/\1/p' formats/base/version.h)
arch=$(dpkg --print-architecture)
# Two builds of one commit are the same file.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# depends PROGRAM: the packages of the libraries that it needs, with the versions that have what it calls.
depends() {
	mkdir -p "$work/shlibs/debian"
	printf 'Source: mcorefs\n\nPackage: mcorefs\nArchitecture: any\n' >"$work/shlibs/debian/control"
	(cd "$work/shlibs" && dpkg-shlibdeps -O --warnings=0 "$1") | sed -n 's/^shlibs:Depends=//p'
}

# pack NAME DEPENDS FIELDS DESCRIPTION: the folder $work/NAME as a package.
pack() {
	[ ! -d "$work/$1/usr/share/man" ] || find "$work/$1/usr/share/man" -name '*.[1-8]' -exec gzip -9n {} +
	install -D -m 644 CHANGELOG.md "$work/$1/usr/share/doc/$1/changelog"
	gzip -9n "$work/$1/usr/share/doc/$1/changelog"
	mkdir -p "$work/$1/DEBIAN"
	(cd "$work/$1" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
	cat >"$work/$1/DEBIAN/control" <<END
Package: $1
Version: $version
Architecture: $arch
Maintainer: mcorefs maintainers <mcorefs@localhost>
Installed-Size: $(du -ks --exclude=DEBIAN "$work/$1" | cut -f1)
Depends: $2
Section: science
Priority: optional
$3
Description: $4
END
	find "$work/$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$work/$1" "$out/$1_${version}_$arch.deb" >/dev/null
	echo "$out/$1_${version}_$arch.deb"
}

# move NAME FIND'S EXPRESSION: these files are of another package.
move() {
	name=$1
	shift
	(cd "$work/mcorefs" && find . "$@") | while read -r file; do
		mkdir -p "$work/$name/${file%/*}"
		mv "$work/mcorefs/$file" "$work/$name/$file"
	done
}

mkdir -p "$out"
cp -a "$stage" "$work/mcorefs"
move mcorefs-train -name '*mcorefs-train*' ! -type d -o -name 'libmcorefs-*.so'
move libmcorefs0 -name 'libmcorefs.so.*'
move libmcorefs-dev -name libmcorefs.so -o -name mcorefs.pc -o -name mcorefs.h -o -name mcorefs.3
find "$work/mcorefs" -depth -type d -empty -delete
library=$(find "$work/libmcorefs0" -name 'libmcorefs.so.*' -type f)
strip "$work/mcorefs/usr/bin/mcorefs" "$work/mcorefs-train/usr/bin/mcorefs-train"
strip --strip-unneeded "$library"
mkdir -p "$work/mcorefs/etc/mcorefs" "$work/mcorefs/DEBIAN" "$work/libmcorefs0/DEBIAN"
echo 'activate-noawait ldconfig' >"$work/libmcorefs0/DEBIAN/triggers"
# systemd learns of the unit; nothing is started.
for script in postinst postrm; do
	printf '#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n' >"$work/mcorefs/DEBIAN/$script"
	chmod 755 "$work/mcorefs/DEBIAN/$script"
done

pack mcorefs "fuse3, $(depends "$work/mcorefs/usr/bin/mcorefs")" "Suggests: autofs" \
	"Megatron-LM checkpoints and datasets as HuggingFace directories
 A FUSE file system. It shows checkpoints of Megatron-LM as HuggingFace models
 and at other layouts, HuggingFace models as checkpoints of Megatron-LM, and
 datasets of either for the other. Bytes are rearranged while they are read."
pack mcorefs-train "$(depends "$work/mcorefs-train/usr/bin/mcorefs-train")" "Recommends: openmpi-bin
Suggests: mcorefs" \
	"trainer for Megatron-LM checkpoints in C
 It takes the arguments of Megatron-LM's pretrain_gpt.py, reads and writes its
 checkpoints and reads its datasets. The CUDA backend is not in this package:
 it is built where CUDA is."
pack libmcorefs0 "$(depends "$library")" "Suggests: mcorefs" \
	"Megatron-LM checkpoints as HuggingFace tensors, without a mount
 The library of mcorefs: it opens what mcorefs mounts, lists its views, and
 reads files, tensors and slices of them into memory."
pack libmcorefs-dev "libmcorefs0 (= $version)" "Suggests: pkg-config" \
	"header and manual page of libmcorefs
 What a program in C or C++ needs that reads checkpoints of Megatron-LM with
 the library of mcorefs."
