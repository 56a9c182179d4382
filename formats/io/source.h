/*
 * A byte source: what every reader reads from. It is a file of a fileset, a part of one, or memory
 * (tests, fuzzers), and readers cannot tell which. It owns nothing and is cheap to copy.
 */
#ifndef MFS_IO_SOURCE_H
#define MFS_IO_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

struct mfs_source;
struct mfs_fileset;

struct mfs_source_ops {
	/* Fills all of [off, off+len), which lies inside [0, size); 0 or -errno with err filled. */
	int (*read)(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		    struct mfs_error *err);
};

struct mfs_source {
	const struct mfs_source_ops *ops;
	const char *name; /* for messages; the caller keeps it alive */
	uint64_t base;	  /* of this source within its object */
	uint64_t size;	  /* bytes */
	const void *object;
	uint32_t index;
};

/* Reads exactly len bytes. -EINVAL if the range leaves the source, -EIO if bytes cannot be read,
 * -ESTALE if a file changed since it was added to its fileset. */
int mfs_source_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		    struct mfs_error *err);

/* Reads [off, off+len) into memory that the caller frees. *ret is set on success alone. */
int mfs_source_slurp(const struct mfs_source *s, uint64_t off, size_t len, void **ret,
		     struct mfs_error *err);

struct mfs_source mfs_source_memory(const void *bytes, uint64_t size, const char *name);
/* A whole file of a fileset; the set must outlive the source. */
struct mfs_source mfs_source_file(struct mfs_fileset *set, uint32_t file);
/* The first size bytes of an open file, which the caller keeps open. Reads of it leave its offset
 * alone. */
struct mfs_source mfs_source_fd(int fd, uint64_t size, const char *name);
/* A part of a source; the range must lie inside (checked by the caller with mfs_range_ok). */
struct mfs_source mfs_source_range(const struct mfs_source *s, uint64_t off, uint64_t len);

#define MFS_SOURCE_END 2048

/* The first and the last bytes of a source in memory: for archives, whose readers ask for little,
 * many times, at both ends. All else is read where it is. */
struct mfs_source_ends {
	struct mfs_source of;
	uint64_t head, tail; /* bytes that are there, of each end; head alone: the whole source */
	uint8_t bytes[2 * MFS_SOURCE_END];
};

/* Reads the ends. *ret reads through them, with offsets of its own; both live as long as *ends. */
int mfs_source_ends_init(struct mfs_source_ends *ends, const struct mfs_source *of,
			 struct mfs_source *ret, struct mfs_error *err);

#endif
