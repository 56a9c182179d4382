#!/bin/bash
# make deb: the package is installed by dpkg, mounts a sample by mount(8), shows it, and goes again without a trace. All of
# it in a namespace whose /usr, /etc and /var are laid over the machine's.
. "$(dirname "$0")/lib_namespace.sh"
. "$(dirname "$0")/lib.sh"
for tool in make dpkg-deb dpkg-shlibdeps strip; do command -v $tool >/dev/null || skip "$tool is missing"; done
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
export DEB_COMPRESSION=none # it is what takes time

build=$work/build
mkdir -p "$build/completions"
cp "$MCOREFS" "${MCOREFS%/*}/mcorefs-train" "${MCOREFS%/*}/libmcorefs.so.0" "$build"
touch "$build/config.mk"
# With a build that is finished: nothing is compiled.
done_already=(-s --no-print-directory "O=$build" -o "$build/mcorefs" -o "$build/mcorefs-train" -o "$build/libmcorefs.so.0" -o "$build/config.mk" NVCC= MPI=)
make "${done_already[@]}" deb SOURCE_DATE_EPOCH=1700000000 >"$log" 2>&1 || fail "make deb"
packages=("$build"/deb/mcorefs_*.deb "$build"/deb/mcorefs-train_*.deb "$build"/deb/libmcorefs0_*.deb "$build"/deb/libmcorefs-dev_*.deb)
[ -s "${packages[0]}" ] && [ -s "${packages[1]}" ] && [ -s "${packages[2]}" ] && [ -s "${packages[3]}" ] || fail "packages: $(ls "$build/deb")"
dpkg-deb -c "${packages[0]}" >"$work/contents" || fail "dpkg-deb -c"
for file in usr/bin/mcorefs usr/sbin/mount.mcorefs usr/lib/systemd/system/mcorefs@.service usr/share/man/man8/mount.mcorefs.8.gz \
	usr/share/doc/mcorefs/examples/slurm/prolog.sh usr/share/doc/mcorefs/examples/machines/h100.yaml \
	usr/lib/systemd/system/mcorefs-gateway.service usr/share/bash-completion/completions/mcorefs etc/mcorefs/; do
	grep -q " \./$file\( ->.*\)\?$" "$work/contents" || fail "the package is without $file"
done
# Pages that manual pages and units name.
grep -ohE 'docs/[A-Za-z/_-]+\.md' mount-helpers/man/* configs/systemd/* | sort -u >"$work/pages"
[ -s "$work/pages" ] || fail "no manual page names a page of docs"
while read -r page; do
	grep -q " \./usr/share/doc/mcorefs/$page\$" "$work/contents" || fail "the package is without $page"
done <"$work/pages"
for file in "2 /libmcorefs.so.0" "3 /libmcorefs.so" "3 /usr/include/mcorefs.h" "3 /pkgconfig/mcorefs.pc" "3 /man3/mcorefs.3.gz"; do
	dpkg-deb -c "${packages[${file%% *}]}" | grep -q "${file#* }\( ->.*\)\?$" || fail "${packages[${file%% *}]##*/} is without ${file#* }"
	grep -q "${file#* }\( ->.*\)\?$" "$work/contents" && fail "the mount's package has ${file#* }"
done
dpkg-deb -f "${packages[2]}" Depends | grep -q 'fuse\|microhttpd' && fail "the library asks for more than it calls"
grep -q 'mcorefs-train' "$work/contents" && fail "the trainer is in the mount's package"
grep -v ' root/root ' "$work/contents" && fail "files of others than root"
dpkg-deb -f "${packages[0]}" Depends | grep -q 'fuse3,.*libfuse3-3' || fail "Depends: $(dpkg-deb -f "${packages[0]}" Depends)"
dpkg-deb -f "${packages[1]}" Depends | grep -q 'blas' || fail "Depends of the trainer: $(dpkg-deb -f "${packages[1]}" Depends)"

is_root && [ -n "${MCOREFS_TEST_NAMESPACE-}" ] || skip "the packages are built, not installed: needs root and a namespace"
cp -a "$FIXTURES/weights"/gpt2-* "$work/source"
mkdir "$work/over"
mount -t tmpfs none "$work/over" || skip "the packages are built, not installed: no tmpfs here"
for dir in usr etc var; do
	mkdir "$work/over/$dir" "$work/over/$dir.work"
	mount -t overlay -o "lowerdir=/$dir,upperdir=$work/over/$dir,workdir=$work/over/$dir.work" overlay "/$dir" 2>/dev/null ||
		skip "the packages are built, not installed: no overlay over /$dir here"
done
[ -d "$work" ] || skip "the packages are built, not installed: TMPDIR lies in /$dir"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
dpkg --no-triggers -i "${packages[@]}" >"$log" 2>&1 || {
	grep -q 'dependency problems' "$log" && skip "the packages are built, not installed: $(grep -m 1 'depends on' "$log")"
	fail "dpkg -i"
}
same "what dpkg says" "$(dpkg-query -W -f='${Status}' mcorefs)" "install ok installed"
dpkg -V mcorefs || fail "dpkg -V"
mount -t mcorefs "$work/source" "$mnt" -o allow_other 2>"$log" || fail "mount -t mcorefs of the package"
same "who serves" "$(readlink "/proc/$(mcorefs mounts "$mnt" --json | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p')/exe")" /usr/bin/mcorefs
cmp "$mnt/latest/hf/model.safetensors" <(cat "$mnt/latest/hf/model.safetensors") && [ -s "$mnt/latest/hf/config.json" ] || fail "nothing to read"
mcorefs umount "$mnt" || fail "mcorefs umount"
mcorefs-train --help >/dev/null || fail "mcorefs-train of the package"
dpkg --no-triggers -P mcorefs mcorefs-train libmcorefs-dev libmcorefs0 >"$log" 2>&1 || fail "dpkg -P"
same "what the packages leave" "$(find "$work/over/usr" "$work/over/etc" -name '*mcorefs*' ! -type c | sort | xargs)" ""
