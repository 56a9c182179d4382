/*
 * What reads an iteration's directory: a row for each program that puts files into one in a way of
 * its own. A new source is a file that defines a row, and a line in ckpt_readers.h.
 */
#ifndef MFS_CKPT_READ_READER_H
#define MFS_CKPT_READ_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/array.h"
#include "formats/base/error.h"
#include "formats/ckpt/format.h"
#include "formats/ckpt/read/ckpt_readers.h"

struct mfs_ckpt;
struct mfs_dist_maker;
struct mfs_marks;

struct mfs_ckpt_reader {
	/* Of what it reads. read() may find another one in the files: zarr. */
	const struct mfs_ckpt_format *format;
	/* Whose files these are, if read() is mfs_dist_read_model() (dist.h). */
	const struct mfs_dist_maker *maker;

	/* True if dir has the files that say so. None is read. */
	bool (*looks_like)(const char *dir);
	/* Explains why a save of this kind does not look like one: it is not complete. Returns 0
	 * and no sentence if dir is no such save. May be NULL. */
	int (*refuse)(const char *dir, struct mfs_error *err);
	/* Adds found chunks, and fills in arguments and layout of the model; also the common state
	 * if ckpt->what asks for it. Errors: those of mfs_ckpt_open(). */
	int (*read)(struct mfs_ckpt *ckpt, struct mfs_error *err);

	/* Adds the marks (marks.h) that name, an entry of dir, is or holds. NULL: those of another
	 * row are its own. */
	int (*add_marks)(const char *dir, const char *name, struct mfs_marks *marks);
	/* Writes the name, below dir, of the file that a save writes last. False: there is none. */
	bool (*last)(const char *dir, char *name, size_t size);
};

#define MFS_CKPT_READER_COUNT(name, optim) +1

/* In the order of ckpt_readers.h. */
extern const struct mfs_ckpt_reader
	*const mfs_ckpt_readers[MFS_CKPT_READERS(MFS_CKPT_READER_COUNT)];
#define MFS_CKPT_READER_END MFS_ARRAY_SIZE(mfs_ckpt_readers)

/* True if name is a file or a directory below dir. */
bool mfs_ckpt_dir_has(const char *dir, const char *name);
/* Like mfs_ckpt_dir_has(), with the name for *last(). */
bool mfs_ckpt_dir_last(const char *dir, const char *file, char *name, size_t size);

#endif
