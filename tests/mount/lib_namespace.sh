# Sourced before lib.sh by cases that lay something over /sbin or /dev: where it is possible the case starts over in a
# namespace of mounts of its own ($MCOREFS_TEST_NAMESPACE is set then), in which nobody else sees it.
# shellcheck shell=bash
if [ -z "${MCOREFS_TEST_NAMESPACE-}" ] && unshare --mount true 2>/dev/null; then
	MCOREFS_TEST_NAMESPACE=1 exec unshare --mount --propagation private "$0"
fi
# It begins with copies of everybody's mounts, which would keep those of cases that run at the same time from ending.
if [ -n "${MCOREFS_TEST_NAMESPACE-}" ]; then
	awk '$3 == "fuse.mcorefs" || $3 == "fuse.failing" { print $2 }' /proc/self/mounts | while read -r m; do
		umount -l "$m" 2>/dev/null
	done
fi
