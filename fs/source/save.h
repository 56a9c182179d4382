/*
 * The files of one save of an iteration. Megatron saves an iteration again in place when a run is
 * resumed from an earlier one: while it does so, and for ever if it is stopped, some files are of
 * the new save and some of the one before. Each of them may be whole, and nothing in them says
 * which save it is of; their times and sizes do.
 */
#ifndef MFS_FS_SOURCE_SAVE_H
#define MFS_FS_SOURCE_SAVE_H

#include <stdint.h>

struct mfs_fileset;

struct mfs_save_file {
	uint64_t name, state; /* hashes: of its name, of its size and mtime */
};

/* Zero-filled: none. */
struct mfs_save {
	struct mfs_save_file *files; /* in order of names */
	uint32_t count;
};

/* The files of a checkpoint's model as they were opened, and as they are now those of the optimizer
 * that stand beside them (distrib_optim.pt). -ENOMEM. */
int mfs_save_note(const struct mfs_fileset *files, struct mfs_save *ret);
void mfs_save_release(struct mfs_save *save);

/* Of the files that both have by name: how many are the same, and how many are not. A file that was
 * copied with its time (cp -p, rsync -a) is the same. */
void mfs_save_compare(const struct mfs_save *a, const struct mfs_save *b, uint32_t *ret_same,
		      uint32_t *ret_other);

#endif
