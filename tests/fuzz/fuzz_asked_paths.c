/* Input: a byte, '0' for a form, '1' for JSON (of others the lowest bit counts); then the body of a
 * request for paths-info. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "fs/gateway/hub/asked.h"

struct seen {
	unsigned count;
	size_t bytes;
};

static void see(void *arg, const char *path)
{
	struct seen *s = arg;

	s->count++;
	s->bytes += strlen(path);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_buf body = {0};
	struct seen seen = {0};
	bool expand;
	int rc;

	if (!len)
		return mfs_fail(err, -EINVAL, "there is nothing");
	mfs_buf_add(&body, (const char *)bytes + 1, len - 1);
	rc = mfs_asked_paths(*bytes & 1 ? "application/json; charset=utf-8" : NULL, &body, &expand,
			     see, &seen, err);
	fuzz_require(seen.count <= MFS_ASKED_PATHS);
	fuzz_require(seen.bytes < len); /* what is decoded gets no longer */
	mfs_buf_release(&body);
	return rc;
}

FUZZ_TARGET
