#define _GNU_SOURCE
#include "formats/indexed/indexed_dataset_write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/indexed/indexed_dataset_write_i.h"
#include "formats/io/beneath.h"
#include "formats/io/whole.h"

/* After so many bytes the kernel is told to write them, so that a save has less to wait for. */
#define WRITE_BEHIND (8u << 20)

enum mfs_dtype mfs_indexed_dtype_for(uint64_t vocab_size)
{
	return vocab_size < 65500 ? MFS_U16 : MFS_I32;
}

/* ---- streams ---- */

static int flush(struct mfs_indexed_writer *w, enum mfs_indexed_stream s, struct mfs_error *err)
{
	struct mfs_indexed_out *o = &w->out[s];
	int rc = mfs_write_whole(o->fd, o->buffer, o->buffered);

	if (rc)
		return mfs_indexed_failed(w, rc, "write", mfs_indexed_suffix(s), err);
	o->buffered = 0;
	if (o->size - o->started >= WRITE_BEHIND) {
		/* Only a hint: what fails here fails again in fsync. */
		sync_file_range(o->fd, (off_t)o->started, (off_t)(o->size - o->started),
				SYNC_FILE_RANGE_WRITE);
		o->started = o->size;
	}
	return 0;
}

static int put(struct mfs_indexed_writer *w, enum mfs_indexed_stream s, const void *bytes,
	       size_t len, struct mfs_error *err)
{
	struct mfs_indexed_out *o = &w->out[s];
	const uint8_t *from = bytes;

	while (len) {
		const size_t n = mfs_min_u64(len, STREAM_BUFFER - o->buffered);

		memcpy(o->buffer + o->buffered, from, n);
		o->buffered += n;
		o->size += n;
		from += n;
		len -= n;
		if (o->buffered == STREAM_BUFFER) {
			int rc = flush(w, s, err);

			if (rc)
				return rc;
		}
	}
	return 0;
}

static int sync_stream(struct mfs_indexed_writer *w, enum mfs_indexed_stream s,
		       struct mfs_error *err)
{
	int rc = flush(w, s, err);

	if (!rc && fsync(w->out[s].fd))
		rc = mfs_indexed_failed(w, -errno, "make durable", mfs_indexed_suffix(s), err);
	return rc;
}

static int sync_streams(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc = 0;

	for (enum mfs_indexed_stream s = 0; s < STREAMS && !rc; s++)
		rc = mfs_indexed_in_use(w, s) ? sync_stream(w, s, err) : 0;
	return rc;
}

/* ---- appending ---- */

static int check_length(const struct mfs_indexed_writer *w, uint64_t count, struct mfs_error *err)
{
	if (count > INT32_MAX || w->length + count > INT32_MAX)
		return mfs_fail(err, -ERANGE, "'%s': sequence %llu has 2^31 tokens or more",
				w->prefix, (unsigned long long)w->sequences);
	return 0;
}

int mfs_indexed_writer_add(struct mfs_indexed_writer *w, const void *tokens, uint64_t count,
			   struct mfs_error *err)
{
	int rc = check_length(w, count, err);

	if (rc)
		return rc;
	w->length += count;
	return put(w, STREAM_BIN, tokens, count * w->token_size, err);
}

bool mfs_indexed_limits(enum mfs_dtype dtype, int64_t *ret_low, int64_t *ret_high)
{
	switch (dtype) {
	case MFS_U8:
		*ret_low = 0, *ret_high = UINT8_MAX;
		return true;
	case MFS_I8:
		*ret_low = INT8_MIN, *ret_high = INT8_MAX;
		return true;
	case MFS_I16:
		*ret_low = INT16_MIN, *ret_high = INT16_MAX;
		return true;
	case MFS_U16:
		*ret_low = 0, *ret_high = UINT16_MAX;
		return true;
	case MFS_I32:
		*ret_low = INT32_MIN, *ret_high = INT32_MAX;
		return true;
	case MFS_I64:
		*ret_low = INT64_MIN, *ret_high = INT64_MAX;
		return true;
	default:
		return false;
	}
}

/* Little-endian: the low bytes come first. size is a constant where this is called. */
static inline void narrow(uint8_t *to, const int64_t *from, size_t count, unsigned size)
{
	for (size_t i = 0; i < count; i++)
		memcpy(to + i * size, &from[i], size);
}

static void narrow_any(uint8_t *to, const int64_t *from, size_t count, unsigned size)
{
	switch (size) {
	case 1:
		narrow(to, from, count, 1);
		break;
	case 2:
		narrow(to, from, count, 2);
		break;
	case 4:
		narrow(to, from, count, 4);
		break;
	default:
		narrow(to, from, count, 8);
	}
}

/* The first of the tokens that lies outside, or count. */
static size_t first_outside(const int64_t *tokens, size_t count, int64_t low, int64_t high)
{
	bool outside = false;
	size_t i = 0;

	for (i = 0; i < count; i++)
		outside |= tokens[i] < low || tokens[i] > high;
	for (i = outside ? 0 : count; i < count; i++)
		if (tokens[i] < low || tokens[i] > high)
			break;
	return i;
}

int mfs_indexed_writer_add_tokens(struct mfs_indexed_writer *w, const int64_t *tokens,
				  uint64_t count, struct mfs_error *err)
{
	struct mfs_indexed_out *o = &w->out[STREAM_BIN];
	int64_t low, high;
	int rc = check_length(w, count, err);

	if (rc)
		return rc;
	if (!mfs_indexed_limits(w->config.dtype, &low, &high))
		return mfs_fail(err, -ENOTSUP, "'%s': integers cannot be written as %s", w->prefix,
				mfs_dtype_torch(w->config.dtype));
	for (uint64_t n, bad; count && !rc; tokens += n, count -= n) {
		n = mfs_min_u64(count, (STREAM_BUFFER - o->buffered) / w->token_size);
		bad = first_outside(tokens, n, low, high);
		if (bad < n)
			return mfs_fail(err, -ERANGE, "'%s': token %lld does not fit %s", w->prefix,
					(long long)tokens[bad], mfs_dtype_torch(w->config.dtype));
		narrow_any(o->buffer + o->buffered, tokens, n, w->token_size);
		o->buffered += n * w->token_size;
		o->size += n * w->token_size;
		w->length += n;
		if (o->buffered + w->token_size > STREAM_BUFFER)
			rc = flush(w, STREAM_BIN, err);
	}
	return rc;
}

int mfs_indexed_writer_end_sequence(struct mfs_indexed_writer *w, int8_t mode,
				    struct mfs_error *err)
{
	const int32_t length = (int32_t)w->length;
	int rc;

	if (w->sequences == MFS_MAX_SEQUENCES)
		return mfs_fail(err, -ERANGE,
				"'%s' would have 2^31 sequences; Megatron can number one less",
				w->prefix);
	rc = put(w, STREAM_LENGTHS, &length, sizeof(length), err);
	if (!rc && w->config.multimodal)
		rc = put(w, STREAM_MODES, &mode, 1, err);
	if (rc)
		return rc;
	w->sequences++;
	w->length = 0;
	return 0;
}

int mfs_indexed_writer_end_document(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	uint8_t end[8];
	int rc;

	if (w->length)
		return mfs_fail(err, -EBUSY, "'%s': a document ends inside of sequence %llu",
				w->prefix, (unsigned long long)w->sequences);
	mfs_put_le64(end, w->sequences);
	rc = put(w, STREAM_DOCUMENTS, end, sizeof(end), err);
	if (rc)
		return rc;
	w->ended.documents++;
	w->ended.sequences = w->sequences;
	w->ended.bytes = w->out[STREAM_BIN].size;
	return 0;
}

uint64_t mfs_indexed_writer_documents(const struct mfs_indexed_writer *w)
{
	return w->ended.documents;
}

uint64_t mfs_indexed_writer_sequences(const struct mfs_indexed_writer *w)
{
	return w->ended.sequences;
}

uint64_t mfs_indexed_writer_tokens(const struct mfs_indexed_writer *w)
{
	return w->ended.bytes / w->token_size;
}

int mfs_indexed_writer_save(struct mfs_indexed_writer *w, const char *note, struct mfs_error *err)
{
	int rc = sync_streams(w, err);

	return rc ? rc : mfs_indexed_journal_save(w, note, err);
}

/* ---- the .idx ---- */

/* Written through the buffer of the .bin, which is empty by then. */
struct idx_out {
	struct mfs_indexed_writer *w;
	int fd;
	size_t buffered;
};

static int idx_put(struct idx_out *o, const void *bytes, size_t len)
{
	uint8_t *buffer = o->w->out[STREAM_BIN].buffer;
	int rc = 0;

	if (o->buffered + len > STREAM_BUFFER) {
		rc = mfs_write_whole(o->fd, buffer, o->buffered);
		o->buffered = 0;
	}
	if (!rc) {
		memcpy(buffer + o->buffered, bytes, len);
		o->buffered += len;
	}
	return rc;
}

/* What each of the lengths makes of the pointer. */
static int idx_put_pointers(struct idx_out *o, const int32_t *lengths, size_t count,
			    uint64_t *pointer)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		uint8_t bytes[8];

		mfs_put_le64(bytes, *pointer);
		rc = idx_put(o, bytes, sizeof(bytes));
		*pointer += (uint64_t)lengths[i] * o->w->token_size;
	}
	return rc;
}

/* Copies a stream; of the lengths, either them or the pointers. */
static int idx_copy(struct idx_out *o, enum mfs_indexed_stream s, bool pointers)
{
	const struct mfs_indexed_out *from = &o->w->out[s];
	uint64_t pointer = 0;
	int32_t chunk[16384];
	int rc = 0;

	for (uint64_t at = 0, n; at < from->size && !rc; at += n) {
		ssize_t got = pread(from->fd, chunk, mfs_min_u64(sizeof(chunk), from->size - at),
				    (off_t)at);

		n = pointers ? (uint64_t)got / 4 * 4 : (uint64_t)got;
		if (got <= 0 || !n)
			return got < 0 ? -errno : -EIO;
		rc = pointers ? idx_put_pointers(o, chunk, n / 4, &pointer) : idx_put(o, chunk, n);
	}
	return rc;
}

static int write_idx(struct mfs_indexed_writer *w, int fd)
{
	struct idx_out o = {w, fd, 0};
	uint8_t head[MFS_IDX_HEADER] = "MMIDIDX\0", zero[8] = {0};
	int rc;

	mfs_put_le64(head + 9, 1);
	head[17] = w->code;
	mfs_put_le64(head + 18, w->ended.sequences);
	mfs_put_le64(head + 26, w->ended.documents + 1);
	rc = idx_put(&o, head, sizeof(head));
	if (!rc)
		rc = idx_copy(&o, STREAM_LENGTHS, false);
	if (!rc)
		rc = idx_copy(&o, STREAM_LENGTHS, true);
	if (!rc)
		rc = idx_put(&o, zero, sizeof(zero));
	if (!rc)
		rc = idx_copy(&o, STREAM_DOCUMENTS, false);
	if (!rc && w->config.multimodal)
		rc = idx_copy(&o, STREAM_MODES, false);
	if (!rc)
		rc = mfs_write_whole(fd, w->out[STREAM_BIN].buffer, o.buffered);
	if (!rc && fsync(fd))
		rc = -errno;
	return rc;
}

static int make_idx(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	char name[NAME_MAX + 1];
	int fd, rc = mfs_indexed_name(w, ".idx.part", name, sizeof(name), err);

	if (rc)
		return rc;
	fd = mfs_beneath_create(w->dirfd, name, O_WRONLY, 0644);
	if (fd < 0)
		return mfs_indexed_failed(w, fd, "open", ".idx.part", err);
	rc = write_idx(w, fd);
	if (close(fd) && !rc)
		rc = -errno;
	return rc ? mfs_indexed_failed(w, rc, "write", ".idx.part", err) : 0;
}

/* ---- finishing ---- */

/* Removes what stands at the two names, the .idx first, or refuses to go on because of it. */
static int clear_names(const struct mfs_indexed_writer *w, struct mfs_error *err)
{
	static const char *const names[] = {".idx", ".bin"};
	bool there = false;
	int rc = 0;

	for (int i = 0; i < 2 && !rc && !w->config.replace; i++) {
		rc = mfs_indexed_exists(w, names[i], &there, err);
		if (there)
			rc = mfs_indexed_failed(w, -EEXIST, "write", names[i], err);
	}
	if (!rc && w->config.replace)
		rc = mfs_indexed_remove(w, ".idx", err);
	return rc ? rc : mfs_indexed_sync_dir(w, err);
}

static int finish(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc;

	if (w->length || w->ended.sequences != w->sequences)
		return mfs_fail(err, -EBUSY, "'%s': its last document has no end", w->prefix);
	rc = sync_streams(w, err);
	if (!rc)
		rc = make_idx(w, err);
	if (!rc)
		rc = clear_names(w, err);
	if (!rc)
		rc = mfs_indexed_rename(w, ".bin.part", ".bin", err);
	if (!rc)
		rc = mfs_indexed_rename(w, ".idx.part", ".idx", err);
	return rc ? rc : mfs_indexed_remove_parts(w, err);
}

int mfs_indexed_writer_finish(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	int rc = finish(w, err);

	mfs_indexed_writer_free(w);
	return rc;
}

void mfs_indexed_writer_discard(struct mfs_indexed_writer *w)
{
	if (w)
		mfs_indexed_remove_parts(w, NULL);
	mfs_indexed_writer_free(w);
}
