#define _GNU_SOURCE
#include "formats/remote/refusal.h"

#include <string.h>

static size_t letters(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len &&
	       ((text[n] >= 'A' && text[n] <= 'Z') || (text[n] >= 'a' && text[n] <= 'z') ||
		(text[n] >= '0' && text[n] <= '9')))
		n++;
	return n;
}

void mfs_refusal_read(const char *body, size_t len, char ret[MFS_REFUSAL])
{
	static const char begin[] = "<Code>", end[] = "</Code>";
	const char *at = len ? memmem(body, len, begin, sizeof(begin) - 1) : NULL;
	size_t rest, n;

	*ret = '\0';
	if (!at)
		return;
	at += sizeof(begin) - 1;
	rest = len - (size_t)(at - body);
	n = letters(at, rest);
	if (n >= MFS_REFUSAL || rest - n < sizeof(end) - 1 || memcmp(at + n, end, sizeof(end) - 1))
		return;
	memcpy(ret, at, n);
	ret[n] = '\0';
}
