/* Input: a byte, '0' for a file of tokens, '1' for a configuration of `mcorefs serve`, '2' for the
 * secrets of signed addresses, '3' for an X-Forwarded-For (of others the rest of a division by 4
 * counts); then the file or header. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/gateway/gateway_config.h"
#include "fs/gateway/access/proxies.h"
#include "fs/gateway/access/secrets.h"
#include "fs/gateway/access/tokens.h"

static int read_tokens(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_rules *rules;
	int rc = mfs_rules_parse("input", text, len, &rules, err);

	if (rc)
		return rc;
	for (int i = -1; i < (int)mfs_rules_count(rules); i++) {
		fuzz_require(mfs_rules_name(rules, i));
		mfs_rules_allow(rules, i, "org/model");
	}
	fuzz_require(mfs_rules_find(rules, "no such token") < (int)mfs_rules_count(rules));
	fuzz_require(!mfs_rules_allow(rules, -1, "org/model"));
	mfs_rules_free(rules);
	return 0;
}

/* Values of options are paths, some of which are read: none are, here. */
static int read_config(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_serve_config c;
	int rc;

	mfs_serve_config_init(&c);
	rc = mfs_serve_config_parse(&c, "input", text, len, err);
	for (const struct mfs_serve_source *s = c.first; s && !rc; s = s->next)
		fuzz_require(s->name && s->source && *s->source);
	mfs_serve_config_release(&c);
	return rc;
}

static int read_secrets(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_secret_list list;
	int rc = mfs_secrets_parse("input", text, len, &list, err);

	if (rc)
		return rc;
	fuzz_require(list.count && list.count <= MFS_SECRETS_COUNT);
	for (unsigned i = 0; i < list.count; i++) {
		const size_t length = strlen(list.list[i]);

		fuzz_require(length >= MFS_SECRETS_SHORT && length <= MFS_SECRETS_LONG);
	}
	return 0;
}

/* The first line is a proxy, the second one what it says. */
static int read_forwarded(const char *text, size_t len, struct mfs_error *err)
{
	char *copy = malloc(len + 1), *forwarded, client[48];
	struct mfs_proxies p = {0};
	int rc;

	memcpy(copy, text, len);
	copy[len] = '\0';
	forwarded = strchr(copy, '\n');
	if (forwarded)
		*forwarded++ = '\0';
	rc = mfs_proxies_add(&p, copy, err);
	mfs_proxies_client(&p, "192.0.2.1:80", forwarded, client, sizeof(client));
	fuzz_require(!*client || mfs_proxies_trust(&p, "192.0.2.1:80"));
	mfs_proxies_client(&p, "unix", forwarded, client, sizeof(client));
	fuzz_require(!*client || p.local);
	fuzz_require(strspn(client, "0123456789abcdef.:") == strlen(client));
	mfs_proxies_release(&p);
	free(copy);
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	if (!len)
		return mfs_fail(err, -EINVAL, "there is nothing");
	switch (*bytes % 4) {
	case 0:
		return read_tokens((const char *)bytes + 1, len - 1, err);
	case 1:
		return read_config((const char *)bytes + 1, len - 1, err);
	case 2:
		return read_secrets((const char *)bytes + 1, len - 1, err);
	default:
		return read_forwarded((const char *)bytes + 1, len - 1, err);
	}
}

FUZZ_TARGET
