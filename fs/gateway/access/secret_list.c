#include <string.h>

#include <openssl/crypto.h>

#include "fs/gateway/access/secrets.h"

static int add_line(struct mfs_secret_list *list, const char *line, size_t len)
{
	if (len < MFS_SECRETS_SHORT || len > MFS_SECRETS_LONG || list->count == MFS_SECRETS_COUNT)
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		if (line[i] <= ' ' || line[i] > '~')
			return -EINVAL;
	memcpy(list->list[list->count], line, len);
	list->list[list->count++][len] = '\0';
	return 0;
}

int mfs_secrets_parse(const char *name, const char *text, size_t len, struct mfs_secret_list *ret,
		      struct mfs_error *err)
{
	unsigned line = 0;

	*ret = (struct mfs_secret_list){0};
	for (size_t at = 0; at < len; line++) {
		const char *end = memchr(text + at, '\n', len - at);
		const size_t length = end ? (size_t)(end - text) - at : len - at;

		if (length && add_line(ret, text + at, length))
			return mfs_fail(err, -EINVAL,
					"%s:%u: expected a secret of %d to %d letters, digits and "
					"signs, and at most %d of them, one a line",
					name, line + 1, MFS_SECRETS_SHORT, MFS_SECRETS_LONG,
					MFS_SECRETS_COUNT);
		at += length + 1;
	}
	if (!ret->count)
		return mfs_fail(err, -EINVAL, "%s: there is no secret in it", name);
	return 0;
}

void mfs_secrets_forget(struct mfs_secret_list *list)
{
	OPENSSL_cleanse(list, sizeof(*list));
}
