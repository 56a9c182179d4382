/*
 * Marks: the names below a directory that make it an iteration, complete or not. Who looks at a
 * directory again and again, while a save is written into it, need not open it.
 */
#ifndef MFS_CKPT_READ_MARKS_H
#define MFS_CKPT_READ_MARKS_H

#include <stddef.h>

#include "formats/ckpt/format.h"

struct mfs_marks {
	char **list; /* sorted; a file need not be there yet */
	size_t count;
	const struct mfs_ckpt_format *format; /* as far as names tell; NULL: there are none */
};

/* Lists the marks of dir. The caller releases *ret, which is empty after a failure. */
int mfs_marks_list(const char *dir, struct mfs_marks *ret);
void mfs_marks_release(struct mfs_marks *marks);

/* For rows (reader.h): adds a name below the directory. -ENOMEM. */
int mfs_marks_add(struct mfs_marks *marks, const char *name);

/* Writes the name, below dir, of the file that the save there wrote last. -ENOENT: there is none
 * yet. */
int mfs_marks_last(const char *dir, char *name, size_t size);

#endif
