/*
 * A list of files by name, device and inode, to ask again later who may read them. It lasts longer
 * than the files are open or mapped, and several may share it. mfs_fileset_census() makes one.
 */
#ifndef MFS_IO_CENSUS_H
#define MFS_IO_CENSUS_H

#include <stdint.h>
#include <sys/types.h>

#include "formats/io/access.h"

struct mfs_census;

/* A census of count files of the directory dir, which had that device and inode. The caller gets
 * one reference. NULL: out of memory. */
struct mfs_census *mfs_census_new(const char *dir, dev_t dev, ino_t ino, uint32_t count);
/* Adds a file, in any order, up to count of them. The name is copied. -ENOMEM. */
int mfs_census_add(struct mfs_census *c, const char *name, dev_t dev, ino_t ino);
struct mfs_census *mfs_census_ref(struct mfs_census *c);
void mfs_census_unref(struct mfs_census *c); /* NULL: nothing */

/*
 * Sets *access, which holds what was known before, to who may read all of the files now. Where a
 * name leads to another file or to none, what was known before counts as well. Where this process
 * may not look any more, nobody may read. It costs some system calls for each file and each
 * directory on its way. Any thread.
 */
void mfs_census_look(const struct mfs_census *c, struct mfs_access_fold *access);

#endif
