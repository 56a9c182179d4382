#!/bin/sh
# What mcorefs needs to be built and tested, and how to get it.
#
#   tests/deps.sh require build         says what is missing and fails
#   tests/deps.sh install build test    installs what is missing with apt-get (root, or sudo)
#   tests/deps.sh try servers large        installs those that it can, starts none, says which it could not, never fails
#   tests/deps.sh flags NAME...         compiler and linker flags of pkg-config packages, as make variables
#
# Lists are of Debian 12's and Ubuntu 24.04's packages: both name them alike.
set -u
PATH=$PATH:/usr/sbin:/sbin # where a user does not look for servers

build_pkgs="gcc libc6-dev pkg-config libcurl4-openssl-dev libexpat1-dev libfuse3-dev libjansson-dev libmicrohttpd-dev libopenblas-dev libpcre2-dev liburing-dev libssl-dev libutf8proc-dev libxxhash-dev libyaml-dev libzstd-dev uthash-dev zlib1g-dev fuse3"
test_pkgs="check"
mpi_pkgs="libopenmpi-dev openmpi-bin"
fuzz_pkgs="clang libclang-rt-dev"
# Programs of others that tests ask for, and do without.
servers_pkgs="autofs curl iproute2 libnfs-utils nfs-ganesha nfs-ganesha-vfs nginx openssl samba smbclient"
large_pkgs="prometheus chromium"

# have PACKAGE: by what it brings, so that tools installed another way count too.
have() {
	case $1 in
	gcc) command -v "${CC:-gcc}" ;;
	libc6-dev) test -e /usr/include/stdio.h ;;
	pkg-config) command -v pkg-config ;;
	clang) command -v clang ;;
	libclang-rt-dev) ls "$(clang -print-resource-dir)"/lib/linux/libclang_rt.fuzzer-*.a ;;
	fuse3) command -v fusermount3 ;;
	check) pkg-config --exists check ;;
	libopenmpi-dev) pkg-config --exists ompi-c ;;
	openmpi-bin) command -v mpirun ;;
	chromium) command -v chromium || command -v chromium-browser || command -v google-chrome ;;
	curl | openssl | smbclient) command -v "$1" ;;
	iproute2) command -v ip ;;
	autofs) command -v automount ;;
	libnfs-utils) command -v nfs-cat ;;
	nfs-ganesha) command -v ganesha.nfsd ;;
	nginx) command -v nginx ;;
	prometheus) command -v promtool ;;
	samba) command -v smbd ;;
	libfuse3-dev) pkg-config --exists 'fuse3 >= 3.10' ;;
	libjansson-dev) pkg-config --exists jansson ;;
	libmicrohttpd-dev) pkg-config --exists libmicrohttpd ;;
	libopenblas-dev) pkg-config --exists openblas ;;
	libpcre2-dev) pkg-config --exists libpcre2-8 ;;
	libutf8proc-dev) pkg-config --exists libutf8proc ;;
	libzstd-dev) pkg-config --exists libzstd ;;
	libyaml-dev) pkg-config --exists yaml-0.1 ;;
	libcurl4-openssl-dev) pkg-config --exists libcurl ;;
	libexpat1-dev) pkg-config --exists expat ;;
	liburing-dev) pkg-config --exists liburing ;;
	libssl-dev) pkg-config --exists libcrypto ;;
	libxxhash-dev) pkg-config --exists libxxhash ;;
	zlib1g-dev) pkg-config --exists zlib ;;
	uthash-dev) test -e /usr/include/uthash.h ;;
	*) dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
	esac >/dev/null 2>&1
}

missing() {
	for group; do
		case $group in
		build) list=$build_pkgs ;;
		test) list=$test_pkgs ;;
		fuzz) list=$fuzz_pkgs ;;
		mpi) list=$mpi_pkgs ;;
		servers) list=$servers_pkgs ;;
		large) list=$large_pkgs ;;
		*) list=$group ;;
		esac
		for p in $list; do
			have "$p" || printf ' %s' "$p"
		done
	done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		return 1
	fi
}

options="-qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300"
apt="as_root env DEBIAN_FRONTEND=noninteractive apt-get $options"
briefly="as_root env DEBIAN_FRONTEND=noninteractive timeout 120 apt-get $options"

# Tries what the package lists know already, and refreshes them only if that does not do.
install() {
	log=$(mktemp) || return 1
	$apt install -y --no-install-recommends "$@" >"$log" 2>&1 ||
		{ $apt update >"$log" 2>&1 &&
			$apt install -y --no-install-recommends "$@" >"$log" 2>&1; } ||
		{ tail -n 3 "$log" >&2; rm -f "$log"; return 1; }
	rm -f "$log"
}

# known PACKAGE...: those that apt-get could install, by the lists that it has.
known() {
	for p; do
		apt-get install -s -qq --no-install-recommends "$p" >/dev/null 2>&1 && printf ' %s' "$p"
	done
}

# try PACKAGE...: where nobody answers only downloads take long, and they can be ended. A package asks invoke-rc.d or
# deb-systemd-invoke to start its service, and finds them by PATH: here these do nothing.
# shellcheck disable=SC2086
try() {
	add="install -y --no-install-recommends --no-remove"
	can=$(known "$@")
	if [ "$can" != " $*" ] || ! $briefly $add -d $can; then
		$briefly update
		can=$(known "$@")
		[ -n "$can" ] && $briefly $add -d $can || return
	fi
	starters=$(mktemp -d) && chmod 755 "$starters" || return
	for p in invoke-rc.d deb-systemd-invoke; do
		printf '#!/bin/sh\nexit 0\n' >"$starters/$p" && chmod 755 "$starters/$p"
	done
	$apt $add --no-download -o DPkg::Path="$starters:/usr/sbin:/usr/bin:/sbin:/bin" $can
	rm -rf "$starters"
}

mode=$1
shift
case $mode in
require)
	want=$(missing "$@")
	[ -z "$want" ] && exit 0
	echo "mcorefs cannot be built: missing$want; install with: apt-get install$want (or: make deps)" >&2
	exit 1
	;;
install)
	want=$(missing "$@")
	[ -z "$want" ] && exit 0
	if ! command -v apt-get >/dev/null; then
		echo "missing$want, and there is no apt-get here to install them with" >&2
		exit 1
	fi
	echo "installing$want" >&2
	# shellcheck disable=SC2086
	install $want || {
		echo "could not install$want: run this as root or with sudo, with the package archive in reach" >&2
		exit 1
	}
	;;
try)
	want=$(missing "$@")
	[ -z "$want" ] && exit 0
	# shellcheck disable=SC2086
	! command -v apt-get >/dev/null || try $want >/dev/null 2>&1
	want=$(missing "$@")
	[ -z "$want" ] || echo "not installed:$want; what asks for them is skipped"
	;;
flags)
	prefix=$1
	shift
	echo "${prefix}_CFLAGS := $(pkg-config --cflags "$@")"
	echo "${prefix}_LIBS := $(pkg-config --libs "$@")"
	;;
*)
	echo "usage: tests/deps.sh require|install|try|flags ..." >&2
	exit 2
	;;
esac
