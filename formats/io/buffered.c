#include "formats/io/buffered.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/fileset.h"
#include "formats/io/whole.h"

int mfs_buffered_open(struct mfs_fileset *set, uint32_t file, struct mfs_buffered *ret,
		      struct mfs_error *err)
{
	int fd = -1, rc = mfs_fileset_open(set, file, &fd, err);

	if (rc)
		return rc;
	ret->set = set;
	ret->file = file;
	ret->fd = fd;
	ret->at = 0;
	ret->len = 0;
	return 0;
}

/* Moves the window so that it begins at off, which lies inside of the file. */
static int move_to(struct mfs_buffered *w, uint64_t off)
{
	const size_t len = mfs_min_u64(sizeof(w->bytes), mfs_fileset_size(w->set, w->file) - off);
	int rc = mfs_pread_whole(w->fd, off, w->bytes, len);

	w->at = off;
	w->len = rc ? 0 : len;
	return rc;
}

static int window_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		       struct mfs_error *err)
{
	struct mfs_buffered *w = (struct mfs_buffered *)(uintptr_t)s->object;
	const bool large = len > sizeof(w->bytes);
	int rc = 0;

	if (large)
		rc = mfs_pread_whole(w->fd, off, buf, len);
	else if (off < w->at || !mfs_range_ok(off - w->at, len, w->len))
		rc = move_to(w, off);
	if (rc)
		return mfs_fail(err, -EIO, "%s: cannot read bytes %llu+%zu: %s", s->name,
				(unsigned long long)off, len, strerror(-rc));
	if (!large)
		memcpy(buf, w->bytes + (off - w->at), len);
	return 0;
}

static const struct mfs_source_ops window_ops = {.read = window_read};

struct mfs_source mfs_buffered_source(struct mfs_buffered *w, const char *name)
{
	return (struct mfs_source){.ops = &window_ops,
				   .name = name,
				   .size = mfs_fileset_size(w->set, w->file),
				   .object = w};
}

int mfs_buffered_close(struct mfs_buffered *w, struct mfs_error *err)
{
	close(w->fd);
	return mfs_fileset_check(w->set, w->file, err);
}
