#include "trainer/report/offline.h"

#include <math.h>
#include <stdlib.h>
#include <sys/time.h>

#include "trainer/report/appended.h"

struct mft_offline {
	struct mft_appended file;
	bool open; /* a line has been begun: that of step */
	uint64_t step;
};

void mft_offline_number(struct mfs_buf *out, double value)
{
	if (isfinite(value))
		mfs_buf_printf(out, "%.17g", value);
	else
		mfs_buf_adds(out, isnan(value) ? "\"NaN\""
				  : value > 0  ? "\"Infinity\""
					       : "\"-Infinity\"");
}

static void end_line(struct mft_offline *o)
{
	if (o->open)
		mfs_buf_adds(&o->file.records, "}}\n");
	o->open = false;
}

static void begin_line(struct mft_offline *o, uint64_t step)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	mfs_buf_printf(&o->file.records, "{\"step\": %llu, \"time\": %lld.%06ld, \"log\": {",
		       (unsigned long long)step, (long long)now.tv_sec, (long)now.tv_usec);
	o->open = true;
	o->step = step;
}

void mft_offline_value(struct mft_offline *o, const char *tag, double value, uint64_t step)
{
	const bool more = o->open && o->step == step;

	if (!more) {
		end_line(o);
		begin_line(o, step);
	}
	mfs_buf_adds(&o->file.records, more ? ", " : "");
	mfs_buf_add_json(&o->file.records, tag);
	mfs_buf_adds(&o->file.records, ": ");
	mft_offline_number(&o->file.records, value);
}

int mft_offline_flush(struct mft_offline *o, struct mfs_error *err)
{
	end_line(o);
	return mft_appended_flush(&o->file, err);
}

int mft_offline_open(const char *dir, const char *below, const struct mfs_buf *init,
		     struct mft_offline **ret, struct mfs_error *err)
{
	struct mft_offline *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return mfs_fail_nomem(err);
	rc = mft_appended_open(&o->file, dir, below, "run", ".jsonl", err);
	if (!rc) {
		mfs_buf_adds(&o->file.records, "{\"init\": ");
		mfs_buf_add(&o->file.records, init->data, init->len);
		mfs_buf_adds(&o->file.records, "}\n");
		o->file.records.failed |= init->failed;
		rc = mft_offline_flush(o, err);
	}
	if (rc) {
		mft_offline_close(o);
		return rc;
	}
	*ret = o;
	return 0;
}

void mft_offline_close(struct mft_offline *o)
{
	if (!o)
		return;
	end_line(o);
	mft_appended_close(&o->file);
	free(o);
}

const char *mft_offline_path(const struct mft_offline *o)
{
	return o->file.path;
}
