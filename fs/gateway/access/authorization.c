#include "fs/gateway/access/authorization.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

/* What follows the scheme and its blanks. NULL: the header has another scheme, or nothing. */
static const char *after_scheme(const char *authorization, const char *scheme)
{
	const size_t len = strlen(scheme);

	if (strncasecmp(authorization, scheme, len) || authorization[len] != ' ')
		return NULL;
	authorization += len;
	authorization += strspn(authorization, " ");
	return *authorization ? authorization : NULL;
}

static int copy(const char *token, char **ret)
{
	*ret = strdup(token);
	return *ret ? 0 : -ENOMEM;
}

/* OpenSSL fills up what padding leaves open with zeros, which no token holds either. */
static int copy_password(const char *base64, char **ret)
{
	const size_t len = strlen(base64);
	char *text = malloc(len + 1), *colon;
	int decoded, rc = 0;

	if (!text)
		return -ENOMEM;
	decoded = len % 4 || len > 1 << 20
			  ? -1
			  : EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)base64,
					    (int)len);
	while (decoded > 0 && !text[decoded - 1])
		decoded--;
	text[decoded > 0 ? decoded : 0] = '\0';
	colon = strchr(text, ':');
	if (decoded > 0 && strlen(text) == (size_t)decoded && colon && colon[1])
		rc = copy(colon + 1, ret);
	OPENSSL_cleanse(text, len + 1);
	free(text);
	return rc;
}

int mfs_authorization_token(const char *authorization, char **ret)
{
	const char *bearer = authorization ? after_scheme(authorization, "Bearer") : NULL;
	const char *basic = authorization ? after_scheme(authorization, "Basic") : NULL;

	*ret = NULL;
	if (bearer)
		return copy(bearer, ret);
	return basic ? copy_password(basic, ret) : 0;
}

void mfs_authorization_forget(char *token)
{
	if (token)
		OPENSSL_cleanse(token, strlen(token));
	free(token);
}
