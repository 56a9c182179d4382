#include "trainer/report/offline.h"

#include <math.h>
#include <stdlib.h>
#include <sys/time.h>

#include "trainer/report/appended.h"

struct mfs_offline {
	struct mfs_appended file;
	bool open; /* a line has been begun: that of step */
	uint64_t step;
};

void mfs_offline_number(struct mfs_buf *out, double value)
{
	if (isfinite(value))
		mfs_buf_printf(out, "%.17g", value);
	else
		mfs_buf_adds(out, isnan(value) ? "\"NaN\""
				  : value > 0  ? "\"Infinity\""
					       : "\"-Infinity\"");
}

static void end_line(struct mfs_offline *o)
{
	if (o->open)
		mfs_buf_adds(&o->file.records, "}}\n");
	o->open = false;
}

static void begin_line(struct mfs_offline *o, uint64_t step)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	mfs_buf_printf(&o->file.records, "{\"step\": %llu, \"time\": %lld.%06ld, \"log\": {",
		       (unsigned long long)step, (long long)now.tv_sec, (long)now.tv_usec);
	o->open = true;
	o->step = step;
}

void mfs_offline_value(struct mfs_offline *o, const char *tag, double value, uint64_t step)
{
	const bool more = o->open && o->step == step;

	if (!more) {
		end_line(o);
		begin_line(o, step);
	}
	mfs_buf_adds(&o->file.records, more ? ", " : "");
	mfs_buf_add_json(&o->file.records, tag);
	mfs_buf_adds(&o->file.records, ": ");
	mfs_offline_number(&o->file.records, value);
}

int mfs_offline_flush(struct mfs_offline *o, struct mfs_error *err)
{
	end_line(o);
	return mfs_appended_flush(&o->file, err);
}

int mfs_offline_open(const char *dir, const char *below, const struct mfs_buf *init,
		     struct mfs_offline **ret, struct mfs_error *err)
{
	struct mfs_offline *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return mfs_fail_nomem(err);
	rc = mfs_appended_open(&o->file, dir, below, "run", ".jsonl", err);
	if (!rc) {
		mfs_buf_adds(&o->file.records, "{\"init\": ");
		mfs_buf_add(&o->file.records, init->data, init->len);
		mfs_buf_adds(&o->file.records, "}\n");
		o->file.records.failed |= init->failed;
		rc = mfs_offline_flush(o, err);
	}
	if (rc) {
		mfs_offline_close(o);
		return rc;
	}
	*ret = o;
	return 0;
}

void mfs_offline_close(struct mfs_offline *o)
{
	if (!o)
		return;
	end_line(o);
	mfs_appended_close(&o->file);
	free(o);
}

const char *mfs_offline_path(const struct mfs_offline *o)
{
	return o->file.path;
}
