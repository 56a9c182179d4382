/* acl PATH TAG:ID:BITS...: sets a POSIX ACL, as setfacl(1) does, which not every machine has. TAG:
 * user, group, mask, other; an empty ID is the owner's. Exit status 77: the file system takes
 * none. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define NAME	"system.posix_acl_access"
#define ENTRIES 32

static void put(uint8_t *p, unsigned bytes, uint32_t v)
{
	while (bytes--) {
		*p++ = (uint8_t)v;
		v >>= 8;
	}
}

static unsigned tag_of(const char *name, int named)
{
	if (!strncmp(name, "user:", 5))
		return named ? 0x02 : 0x01;
	if (!strncmp(name, "group:", 6))
		return named ? 0x08 : 0x04;
	return !strncmp(name, "mask:", 5) ? 0x10 : !strncmp(name, "other:", 6) ? 0x20 : 0;
}

static int parse(const char *text, uint8_t *entry)
{
	const char *id = strchr(text, ':'), *bits = id ? strchr(id + 1, ':') : NULL;
	const int named = bits && bits != id + 1;

	if (!bits || !tag_of(text, named))
		return -1;
	put(entry, 2, tag_of(text, named));
	put(entry + 2, 2, (uint32_t)strtoul(bits + 1, NULL, 8));
	put(entry + 4, 4, named ? (uint32_t)strtoul(id + 1, NULL, 10) : UINT32_MAX);
	return 0;
}

int main(int argc, char **argv)
{
	uint8_t acl[4 + 8 * ENTRIES] = {2};

	if (argc < 3 || argc - 2 > ENTRIES)
		return 2;
	for (int i = 2; i < argc; i++)
		if (parse(argv[i], acl + 4 + 8 * (i - 2)))
			return 2;
	if (!setxattr(argv[1], NAME, acl, 4 + 8 * (size_t)(argc - 2), 0))
		return 0;
	perror(argv[1]);
	return errno == EOPNOTSUPP ? 77 : 1;
}
