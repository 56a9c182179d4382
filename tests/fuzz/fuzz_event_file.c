/* Input: a file of a run: TensorBoard's events, or from "iteration" on a table of losses. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/run/curve.h"
#include "formats/run/event_file.h"
#include "formats/run/loss_table.h"

static const uint8_t *from, *to;

static int take(void *arg, const struct mfs_scalar *s)
{
	fuzz_require(s->step >= 0 && s->tag_len);
	fuzz_require((const uint8_t *)s->tag >= from);
	fuzz_require((const uint8_t *)s->tag + s->tag_len <= to);
	return mfs_curve_add(arg, s->step, s->value);
}

/* A finished curve rises, and finds each of its points. */
static void check(struct mfs_curve *c)
{
	mfs_curve_finish(c);
	for (uint32_t i = 0; i < c->count; i++) {
		fuzz_require(!i || c->points[i - 1].step < c->points[i].step);
		fuzz_require(mfs_curve_at(c, c->points[i].step) == &c->points[i]);
	}
	mfs_curve_release(c);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_curve c = {0};
	uint64_t skip;
	size_t used;
	int rc;

	if (len >= 4 && !memcmp(bytes, "iter", 4)) {
		rc = mfs_loss_table_read("table", (const char *)bytes, len, &c, err);
	} else {
		from = bytes;
		to = bytes + len;
		rc = mfs_event_records("events", bytes, len, take, &c, &used, &skip, err);
		fuzz_require(used <= len);
		fuzz_require(!skip || skip > MFS_EVENT_BYTES);
	}
	check(&c);
	return rc;
}

FUZZ_TARGET
