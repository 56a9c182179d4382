/*
 * Ranges of a fileset's files that somebody reads through mappings, and that have to be there until
 * he has: of files whose bytes are not all on this disk (backing.h). Of other files nothing is
 * kept.
 */
#ifndef MFS_IO_PRESENT_H
#define MFS_IO_PRESENT_H

#include <stdint.h>

#include "formats/base/error.h"

struct mfs_backing;
struct mfs_fileset;

struct mfs_present_range {
	const struct mfs_backing *backing;
	uint64_t from, to;
	uint32_t pin;
};

/* Begins zero-filled; one thread at a time. */
struct mfs_present {
	struct mfs_present_range *ranges;
	uint32_t count, room;
};

/* Waits until [off, off+len) of a file is present, and keeps it so. The range is cut at the end of
 * the file. Errors of the backing's acquire(). */
int mfs_present_add(struct mfs_present *p, struct mfs_fileset *set, uint32_t file, uint64_t off,
		    uint64_t len, struct mfs_error *err);

/* Nothing of it is read any more; it may be used again. */
void mfs_present_drop(struct mfs_present *p);
/* Like mfs_present_drop(), and gives its memory back. */
void mfs_present_release(struct mfs_present *p);

#endif
