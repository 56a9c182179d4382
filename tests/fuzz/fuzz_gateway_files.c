/* Input: a byte, even for a file of tokens, odd for a configuration of `mcorefs serve`; then the
 * file. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "fs/gateway/config.h"
#include "fs/gateway/tokens.h"

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

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	if (!len)
		return mfs_fail(err, -EINVAL, "there is nothing");
	return *bytes % 2 ? read_config((const char *)bytes + 1, len - 1, err)
			  : read_tokens((const char *)bytes + 1, len - 1, err);
}

FUZZ_TARGET
