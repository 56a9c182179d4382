#define _GNU_SOURCE
#include "fs/pack/input/input.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/text/tables/table_text.h"
#include "fs/cli/stop.h"
#include "fs/pack/input/unpack.h"

#define CHUNK	     MFS_PACK_CHUNK
#define PIPE	     (1 << 20)
#define WAIT_SECONDS 1

int mfs_pack_input_open(struct mfs_pack_input *in, int fd, const char *name, struct mfs_error *err)
{
	struct stat st;
	off_t base;

	*in = (struct mfs_pack_input){.fd = fd, .name = name};
	if (fstat(fd, &st))
		return mfs_fail_errno(err, "cannot read %s", in->name);
	base = S_ISREG(st.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1;
	if (base >= 0) {
		in->seekable = true;
		in->base = (uint64_t)base;
		in->size = st.st_size > base ? (uint64_t)(st.st_size - base) : 0;
	}
	/* A larger pipe means fewer switches between the two programs. Its size may be refused. */
	fcntl(fd, F_SETPIPE_SZ, PIPE);
	in->buffer = malloc(CHUNK);
	return in->buffer ? mfs_pack_digest_new(&in->ended, &in->digest, err) : mfs_fail_nomem(err);
}

void mfs_pack_input_release(struct mfs_pack_input *in)
{
	mfs_pack_digest_free(in->digest);
	mfs_unpacker_free(in->unpacker);
	mfs_table_text_free(in->table);
	mfs_buf_release(&in->rows);
	free(in->buffer);
	free(in->packed);
}

static int wait_for_bytes(const struct mfs_pack_input *in, struct mfs_error *err)
{
	struct pollfd p = {.fd = in->fd, .events = POLLIN};
	int n = mfs_stop_requested ? -1 : poll(&p, 1, WAIT_SECONDS * 1000);

	if (mfs_stop_requested || (n < 0 && errno == EINTR))
		return mfs_fail(err, -EINTR, "interrupted");
	if (n < 0)
		return mfs_fail_errno(err, "cannot wait for %s", in->name);
	return n ? 0 : -EAGAIN;
}

/* Reads bytes as they are, at most max; none at the end. */
static int read_raw(struct mfs_pack_input *in, uint8_t *to, size_t max, size_t *ret_len,
		    struct mfs_error *err)
{
	ssize_t n;
	int rc = wait_for_bytes(in, err);

	if (rc)
		return rc;
	n = read(in->fd, to, max);
	if (n < 0 && errno == EINTR)
		return mfs_fail(err, -EINTR, "interrupted");
	if (n < 0)
		return mfs_fail_errno(err, "cannot read %s", in->name);
	in->raw += (uint64_t)n;
	*ret_len = (size_t)n;
	return 0;
}

/* ---- compressed inputs ---- */

static int unpack_some(struct mfs_pack_input *in, size_t max, size_t *ret_len,
		       struct mfs_error *err)
{
	int rc = 0;

	for (*ret_len = 0; !rc && !*ret_len;) {
		if (!in->packed_len && !in->more) {
			in->packed_at = in->packed;
			rc = read_raw(in, in->packed, CHUNK, &in->packed_len, err);
			if (!rc && !in->packed_len)
				return mfs_unpack_end(in->unpacker, err);
		}
		if (!rc)
			rc = mfs_unpack(in->unpacker, &in->packed_at, &in->packed_len, in->buffer,
					max, ret_len, err);
		in->more = *ret_len == max;
	}
	return rc;
}

/* ---- tables ---- */

static int open_table(struct mfs_pack_input *in, const struct mfs_table_ops *kind,
		      struct mfs_error *err)
{
	const struct mfs_table_want want = {.columns = in->columns, .count = in->column_count};

	if (!in->column_count)
		return mfs_fail(err, -ENOTSUP, "%s is %s: of its text --tokenizer makes a dataset",
				in->name, kind->name);
	if (!in->seekable || in->base)
		return mfs_fail(err, -ENOTSUP, "%s is %s, which is read from files alone", in->name,
				kind->name);
	return mfs_table_text_open(kind, in->fd, in->name, &want, &in->table, err);
}

static int read_rows(struct mfs_pack_input *in, size_t max, size_t *ret_len, struct mfs_error *err)
{
	bool end = false;
	int rc = mfs_stop_requested ? mfs_fail(err, -EINTR, "interrupted") : 0;

	if (in->rows_at == in->rows.len)
		in->rows_at = in->rows.len = 0;
	while (!rc && !end && in->rows.len < CHUNK / 2)
		rc = mfs_table_text_next(in->table, &in->rows, &end, err);
	*ret_len = mfs_min_u64(in->rows.len - in->rows_at, max);
	if (!rc && *ret_len)
		memcpy(in->buffer, in->rows.data + in->rows_at, *ret_len);
	in->rows_at += *ret_len;
	if (end)
		in->raw = in->size;
	return rc;
}

/* Looks at the first bytes, which have been read into the buffer: if they are compressed, they are
 * the first that is unpacked. */
static int look(struct mfs_pack_input *in, size_t len, struct mfs_error *err)
{
	const struct mfs_table_ops *table = mfs_table_ops_of(in->buffer, len);
	int rc;

	in->known = true;
	if (table)
		return open_table(in, table, err);
	rc = mfs_unpacker_new(in->buffer, len, in->name, &in->unpacker, err);
	if (rc || !in->unpacker)
		return rc;
	in->packed = malloc(CHUNK);
	if (!in->packed)
		return mfs_fail_nomem(err);
	memcpy(in->packed, in->buffer, len);
	in->packed_at = in->packed;
	in->packed_len = len;
	return 0;
}

/* A pipe may bring a few bytes first, which are too few to tell. */
static int read_first(struct mfs_pack_input *in, size_t max, size_t *ret_len, struct mfs_error *err)
{
	size_t have = 0, n = 1;
	int rc = 0;

	while (!rc && n && have < mfs_min_u64(max, MFS_UNPACK_LOOK)) {
		rc = read_raw(in, in->buffer + have, max - have, &n, err);
		if (rc == -EAGAIN && have)
			rc = n = 0;
		have += rc ? 0 : n;
	}
	*ret_len = have;
	return rc ? rc : look(in, have, err);
}

static int read_some(struct mfs_pack_input *in, size_t max, size_t *ret_len, struct mfs_error *err)
{
	int rc = 0;

	*ret_len = 0;
	if (!in->known)
		rc = read_first(in, max, ret_len, err);
	else if (!in->unpacker && !in->table)
		rc = read_raw(in, in->buffer, max, ret_len, err);
	if (!rc && in->unpacker)
		rc = unpack_some(in, max, ret_len, err);
	if (!rc && in->table)
		rc = read_rows(in, max, ret_len, err);
	if (!rc)
		in->position += *ret_len;
	return rc;
}

static int skip_to(struct mfs_pack_input *in, uint64_t position, struct mfs_error *err)
{
	while (in->position < position) {
		size_t n = 0;
		int rc = read_some(in, mfs_min_u64(CHUNK, position - in->position), &n, err);

		if (rc == -EAGAIN)
			continue;
		if (rc || !n)
			return rc;
		mfs_pack_digest_add(in->digest, in->buffer, n);
	}
	return 0;
}

/* Whether a file is compressed is known before it is entered in the middle. Of another input, or of
 * a short one, it is known when it is read. */
static int look_at_file(struct mfs_pack_input *in, struct mfs_error *err)
{
	uint8_t first[MFS_UNPACK_LOOK];

	if (!in->seekable || pread(in->fd, first, sizeof(first), (off_t)in->base) != sizeof(first))
		return 0;
	memcpy(in->buffer, first, sizeof(first));
	if (lseek(in->fd, (off_t)in->base + MFS_UNPACK_LOOK, SEEK_SET) < 0)
		return mfs_fail_errno(err, "cannot seek in %s", in->name);
	return look(in, sizeof(first), err);
}

/* Only a file can be entered in the middle. */
static int go_to_anchor(struct mfs_pack_input *in, const struct mfs_pack_mark *to,
			struct mfs_error *err)
{
	int rc;

	rc = look_at_file(in, err);
	if (rc || !in->seekable || in->unpacker || in->table || in->size < to->position)
		return rc;
	if (lseek(in->fd, (off_t)(in->base + to->anchor), SEEK_SET) < 0)
		return mfs_fail_errno(err, "cannot seek in %s", in->name);
	mfs_pack_digest_free(in->digest);
	in->digest = NULL;
	rc = mfs_pack_digest_new(to, &in->digest, err);
	in->position = in->raw = to->anchor;
	return rc;
}

int mfs_pack_input_skip(struct mfs_pack_input *in, const struct mfs_pack_mark *to,
			struct mfs_error *err)
{
	int rc = go_to_anchor(in, to, err);

	if (!rc)
		rc = skip_to(in, to->position, err);
	if (rc)
		return rc;
	in->ended = mfs_pack_digest_mark(in->digest);
	if (in->position < to->position || in->ended.hash != to->hash)
		return mfs_fail(err, -ESTALE,
				"%s is not what was packed before, at least not in its first "
				"%llu bytes",
				in->name, (unsigned long long)to->position);
	return 0;
}

int mfs_pack_input_at_end(struct mfs_pack_input *in, struct mfs_error *err)
{
	const uint64_t end = in->position;
	size_t n = 0;
	int rc;

	do
		rc = read_some(in, 1, &n, err);
	while (rc == -EAGAIN);
	if (rc || !n)
		return rc;
	return mfs_fail(
		err, -ESTALE,
		"%s is not what was packed before: it ended after %llu bytes, and now it goes on",
		in->name, (unsigned long long)end);
}

int mfs_pack_input_read(struct mfs_pack_input *in, const uint8_t **ret, size_t *ret_len,
			struct mfs_error *err)
{
	*ret = in->buffer;
	return read_some(in, CHUNK, ret_len, err);
}

void mfs_pack_input_done(struct mfs_pack_input *in, const uint8_t *bytes, size_t len,
			 uint64_t ended)
{
	size_t before = 0;

	if (ended > in->ended.position) {
		before = len - (size_t)(in->position - ended);
		mfs_pack_digest_add(in->digest, bytes, before);
		in->ended = mfs_pack_digest_mark(in->digest);
	}
	mfs_pack_digest_add(in->digest, bytes + before, len - before);
}
