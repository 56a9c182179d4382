#define _GNU_SOURCE
#include "fs/pack/input.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "fs/cli/stop.h"

#define CHUNK	     (1u << 20)
#define WAIT_SECONDS 1

int mfs_pack_input_open(struct mfs_pack_input *in, int fd, struct mfs_error *err)
{
	struct stat st;
	off_t base;

	*in = (struct mfs_pack_input){.fd = fd};
	if (fstat(fd, &st))
		return mfs_fail_errno(err, "cannot read standard input");
	base = S_ISREG(st.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1;
	if (base >= 0) {
		in->seekable = true;
		in->base = (uint64_t)base;
		in->size = st.st_size > base ? (uint64_t)(st.st_size - base) : 0;
	}
	/* A larger pipe means fewer switches between the two programs. Its size may be refused. */
	fcntl(fd, F_SETPIPE_SZ, CHUNK);
	in->buffer = malloc(CHUNK);
	return in->buffer ? mfs_pack_digest_new(&in->ended, &in->digest, err) : mfs_fail_nomem(err);
}

void mfs_pack_input_release(struct mfs_pack_input *in)
{
	mfs_pack_digest_free(in->digest);
	free(in->buffer);
}

static int wait_for_bytes(const struct mfs_pack_input *in, struct mfs_error *err)
{
	struct pollfd p = {.fd = in->fd, .events = POLLIN};
	int n = mfs_stop_requested ? -1 : poll(&p, 1, WAIT_SECONDS * 1000);

	if (mfs_stop_requested || (n < 0 && errno == EINTR))
		return mfs_fail(err, -EINTR, "interrupted");
	if (n < 0)
		return mfs_fail_errno(err, "cannot wait for standard input");
	return n ? 0 : -EAGAIN;
}

static int read_some(struct mfs_pack_input *in, size_t max, size_t *ret_len, struct mfs_error *err)
{
	ssize_t n;
	int rc = wait_for_bytes(in, err);

	if (rc)
		return rc;
	n = read(in->fd, in->buffer, max);
	if (n < 0 && errno == EINTR)
		return mfs_fail(err, -EINTR, "interrupted");
	if (n < 0)
		return mfs_fail_errno(err, "cannot read standard input");
	in->position += (uint64_t)n;
	*ret_len = (size_t)n;
	return 0;
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

/* Only a file can be entered in the middle. */
static int go_to_anchor(struct mfs_pack_input *in, const struct mfs_pack_mark *to,
			struct mfs_error *err)
{
	int rc;

	if (!in->seekable || in->size < to->position)
		return 0;
	if (lseek(in->fd, (off_t)(in->base + to->anchor), SEEK_SET) < 0)
		return mfs_fail_errno(err, "cannot seek in standard input");
	mfs_pack_digest_free(in->digest);
	in->digest = NULL;
	rc = mfs_pack_digest_new(to, &in->digest, err);
	in->position = to->anchor;
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
				"standard input is not what was packed before, at least not in "
				"its first %llu bytes",
				(unsigned long long)to->position);
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
		"standard input is not what was packed before: it ended after %llu bytes, and now "
		"it goes on",
		(unsigned long long)end);
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
