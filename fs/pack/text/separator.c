#define _GNU_SOURCE
#include "fs/pack/text/separator.h"

#include <string.h>

const char *mfs_separator_find(const struct mfs_separator *s, const char *from, const char *end)
{
	const size_t len = (size_t)(end - from);

	return s->len == 1 ? memchr(from, *s->bytes, len) : memmem(from, len, s->bytes, s->len);
}

bool mfs_separator_next(const struct mfs_separator *s, const char **at, const char *end,
			const char **ret, size_t *ret_len)
{
	const char *cut;

	if (*at == end)
		return false;
	cut = mfs_separator_find(s, *at, end);
	*ret = *at;
	*ret_len = (size_t)((cut ? cut : end) - *at);
	*at = cut ? cut + s->len : end;
	return true;
}
