/*
 * The files of one save of an iteration. A run that is resumed from an earlier iteration saves a
 * later one again in place. Meanwhile some files are of the new save and some of the old one; if
 * the run is stopped, this stays so. Each file may be whole, and its content does not say which
 * save it is of. Times and sizes tell the saves apart.
 */
#ifndef MFS_FS_SOURCE_ITERATION_SAVE_H
#define MFS_FS_SOURCE_ITERATION_SAVE_H

#include <stdint.h>

struct mfs_fileset;

struct mfs_save_file {
	uint64_t name, state; /* hash of the name; hash of size and mtime */
};

/* Zero-filled: no save. */
struct mfs_save {
	struct mfs_save_file *files; /* sorted by name */
	uint32_t count;
};

/* Notes the files of a checkpoint's model as they were opened, and the optimizer's files in the
 * same directories (distrib_optim.pt) as they are now. -ENOMEM. */
int mfs_save_note(const struct mfs_fileset *files, struct mfs_save *ret);
void mfs_save_release(struct mfs_save *save);

/* Counts the files that both saves have by name: those that are the same, and those that are not. A
 * copy that keeps the time (cp -p, rsync -a) is the same. */
void mfs_save_compare(const struct mfs_save *a, const struct mfs_save *b, uint32_t *ret_same,
		      uint32_t *ret_other);

#endif
