/*
 * What a path answers to each call on extended attributes, a line for each: xattrs PATH...
 *
 * getfattr and setfattr are not on every machine; and they pass over some of what they are told.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/xattr.h>

static void print(const char *call, ssize_t rc)
{
	if (rc < 0)
		printf("%s %s\n", call, strerrorname_np(errno));
	else
		printf("%s %zd\n", call, rc);
}

int main(int argc, char **argv)
{
	char value[256];

	for (int i = 1; i < argc; i++) {
		const char *path = argv[i];

		print("list", llistxattr(path, value, sizeof(value)));
		print("list-size", llistxattr(path, NULL, 0));
		print("get", lgetxattr(path, "user.x", value, sizeof(value)));
		print("get-acl", lgetxattr(path, "system.posix_acl_access", value, sizeof(value)));
		print("set", lsetxattr(path, "user.x", "y", 1, 0));
		print("remove", lremovexattr(path, "user.x"));
	}
	return 0;
}
