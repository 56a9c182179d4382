#include "formats/io/source.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/fileset.h"

int mfs_source_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		    struct mfs_error *err)
{
	if (!mfs_range_ok(off, len, s->size))
		return mfs_fail(err, -EINVAL, "%s: bytes %llu+%zu lie beyond its end at %llu",
				s->name, (unsigned long long)off, len, (unsigned long long)s->size);
	return len ? s->ops->read(s, s->base + off, buf, len, err) : 0;
}

int mfs_source_slurp(const struct mfs_source *s, uint64_t off, size_t len, void **ret,
		     struct mfs_error *err)
{
	void *bytes;
	int rc;

	/* Checked before the allocation: a length from a file must not size memory by itself. */
	if (!mfs_range_ok(off, len, s->size))
		return mfs_source_read(s, off, NULL, len, err);
	bytes = malloc(len ? len : 1);
	if (!bytes)
		return mfs_fail_nomem(err);
	rc = mfs_source_read(s, off, bytes, len, err);
	if (rc) {
		free(bytes);
		return rc;
	}
	*ret = bytes;
	return 0;
}

static int memory_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		       struct mfs_error *err)
{
	(void)err;
	memcpy(buf, (const uint8_t *)s->object + off, len);
	return 0;
}

static int file_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		     struct mfs_error *err)
{
	return mfs_fileset_read((struct mfs_fileset *)(uintptr_t)s->object, s->index, off, buf, len,
				err);
}

static int fd_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		   struct mfs_error *err)
{
	for (size_t done = 0; done < len;) {
		const ssize_t n = pread((int)s->index, (uint8_t *)buf + done, len - done,
					(off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? mfs_fail_errno(err, "cannot read %s", s->name)
				 : mfs_fail(err, -EIO, "%s has become shorter", s->name);
		done += (size_t)n;
	}
	return 0;
}

static int ends_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		     struct mfs_error *err)
{
	const struct mfs_source_ends *e = s->object;
	const uint64_t tail = e->of.size - e->tail;

	if (off <= e->head && len <= e->head - off)
		memcpy(buf, e->bytes + off, len);
	else if (off >= tail)
		memcpy(buf, e->bytes + e->head + (off - tail), len);
	else
		return mfs_source_read(&e->of, off, buf, len, err);
	return 0;
}

static const struct mfs_source_ops memory_ops = {.read = memory_read};
static const struct mfs_source_ops file_ops = {.read = file_read};
static const struct mfs_source_ops fd_ops = {.read = fd_read};
static const struct mfs_source_ops ends_ops = {.read = ends_read};

struct mfs_source mfs_source_memory(const void *bytes, uint64_t size, const char *name)
{
	return (struct mfs_source){.ops = &memory_ops, .name = name, .size = size, .object = bytes};
}

struct mfs_source mfs_source_file(struct mfs_fileset *set, uint32_t file)
{
	return (struct mfs_source){.ops = &file_ops,
				   .name = mfs_fileset_name(set, file),
				   .size = mfs_fileset_size(set, file),
				   .object = set,
				   .index = file};
}

struct mfs_source mfs_source_fd(int fd, uint64_t size, const char *name)
{
	return (struct mfs_source){
		.ops = &fd_ops, .name = name, .size = size, .index = (uint32_t)fd};
}

struct mfs_source mfs_source_range(const struct mfs_source *s, uint64_t off, uint64_t len)
{
	struct mfs_source part = *s;

	part.base += off;
	part.size = len;
	return part;
}

int mfs_source_ends_init(struct mfs_source_ends *ends, const struct mfs_source *of,
			 struct mfs_source *ret, struct mfs_error *err)
{
	const bool is_short = of->size <= sizeof(ends->bytes);
	int rc;

	ends->of = *of;
	ends->head = is_short ? of->size : MFS_SOURCE_END;
	ends->tail = is_short ? 0 : MFS_SOURCE_END;
	rc = mfs_source_read(of, 0, ends->bytes, ends->head, err);
	if (!rc)
		rc = mfs_source_read(of, of->size - ends->tail, ends->bytes + ends->head,
				     ends->tail, err);
	if (rc)
		return rc;
	*ret = (struct mfs_source){
		.ops = &ends_ops, .name = of->name, .size = of->size, .object = ends};
	return 0;
}
