#include "trainer/report/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32c.h"
#include "trainer/report/appended.h"

struct mft_events {
	struct mft_appended file;
};

/* ---- messages ---- */

static void add_varint(struct mfs_buf *b, uint64_t value)
{
	do {
		const uint8_t byte = (uint8_t)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);

		mfs_buf_add(b, &byte, 1);
		value >>= 7;
	} while (value);
}

enum wire { VARINT, BITS64, BYTES, BITS32 = 5 };

static void add_key(struct mfs_buf *b, unsigned field, enum wire type)
{
	add_varint(b, field << 3 | type);
}

static void add_bytes(struct mfs_buf *b, unsigned field, const void *bytes, size_t len)
{
	add_key(b, field, BYTES);
	add_varint(b, len);
	mfs_buf_add(b, bytes, len);
}

static void add_double(struct mfs_buf *b, unsigned field, double value)
{
	uint8_t bytes[8];
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	mfs_put_le64(bytes, bits);
	add_key(b, field, BITS64);
	mfs_buf_add(b, bytes, sizeof(bytes));
}

static void add_float(struct mfs_buf *b, unsigned field, float value)
{
	uint8_t bytes[8];
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	mfs_put_le64(bytes, bits);
	add_key(b, field, BITS32);
	mfs_buf_add(b, bytes, 4);
}

/* ---- records ---- */

static void add_masked(struct mfs_buf *b, const void *bytes, size_t len)
{
	uint8_t masked[8];

	mfs_put_le64(masked, mfs_crc32c_masked(bytes, len));
	mfs_buf_add(b, masked, 4);
}

static void add_record(struct mfs_buf *b, const struct mfs_buf *event)
{
	uint8_t len[8];

	mfs_put_le64(len, event->len);
	mfs_buf_add(b, len, sizeof(len));
	add_masked(b, len, sizeof(len));
	mfs_buf_add(b, event->data, event->len);
	add_masked(b, event->data, event->len);
	b->failed |= event->failed;
}

static void begin_event(struct mfs_buf *event)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	add_double(event, 1, (double)now.tv_sec + (double)now.tv_usec / 1e6); /* wall_time */
}

static void add_version(struct mft_events *e)
{
	static const char version[] = "brain.Event:2";
	struct mfs_buf event = {0};

	begin_event(&event);
	add_bytes(&event, 3, version, strlen(version)); /* file_version */
	add_record(&e->file.records, &event);
	mfs_buf_release(&event);
}

void mft_events_scalar(struct mft_events *e, const char *tag, double value, uint64_t step)
{
	struct mfs_buf event = {0}, summary = {0}, scalar = {0};

	add_bytes(&scalar, 1, tag, strlen(tag)); /* Summary.Value.tag */
	add_float(&scalar, 2, (float)value);	 /* simple_value */
	add_bytes(&summary, 1, scalar.data, scalar.len);
	begin_event(&event);
	add_key(&event, 2, VARINT); /* step */
	add_varint(&event, step);
	add_bytes(&event, 5, summary.data, summary.len);
	event.failed |= scalar.failed | summary.failed;
	add_record(&e->file.records, &event);
	mfs_buf_release(&scalar);
	mfs_buf_release(&summary);
	mfs_buf_release(&event);
}

void mft_events_both(struct mft_events *e, const char *tag, double value, uint64_t iteration,
		     uint64_t samples)
{
	char by_samples[128];

	snprintf(by_samples, sizeof(by_samples), "%s vs samples", tag);
	mft_events_scalar(e, tag, value, iteration);
	mft_events_scalar(e, by_samples, value, samples);
}

/* ---- the file ---- */

int mft_events_flush(struct mft_events *e, struct mfs_error *err)
{
	return mft_appended_flush(&e->file, err);
}

int mft_events_open(const char *dir, struct mft_events **ret, struct mfs_error *err)
{
	struct mft_events *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return mfs_fail_nomem(err);
	rc = mft_appended_open(&e->file, dir, NULL, "events.out.tfevents", "", err);
	if (!rc) {
		add_version(e);
		rc = mft_events_flush(e, err);
	}
	if (rc) {
		mft_events_close(e);
		return rc;
	}
	*ret = e;
	return 0;
}

void mft_events_close(struct mft_events *e)
{
	if (!e)
		return;
	mft_appended_close(&e->file);
	free(e);
}

const char *mft_events_path(const struct mft_events *e)
{
	return e->file.path;
}
