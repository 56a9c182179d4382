/*
 * Names of files, and which files they were, kept to look again at who may read them: longer than
 * the files are kept open or mapped (fileset.h makes them), and by several at once.
 */
#ifndef MFS_IO_CENSUS_H
#define MFS_IO_CENSUS_H

#include <stdint.h>
#include <sys/types.h>

#include "formats/io/access.h"

struct mfs_census;

/* Of count files of dir, which was the directory of that device and inode. One reference; NULL: no
 * memory. */
struct mfs_census *mfs_census_new(const char *dir, dev_t dev, ino_t ino, uint32_t count);
/* In any order, up to count of them; name stays the caller's and is copied. -ENOMEM. */
int mfs_census_add(struct mfs_census *c, const char *name, dev_t dev, ino_t ino);
struct mfs_census *mfs_census_ref(struct mfs_census *c);
void mfs_census_unref(struct mfs_census *c); /* NULL: nothing */

/*
 * Who may read all of the files now: *access, which is what was known before, becomes that. Where a
 * name leads to another file by now, or to none, what was known before counts as well; where this
 * process itself is not let through any more, nobody is. Some calls for each file and directory on
 * its way. Any thread.
 */
void mfs_census_look(const struct mfs_census *c, struct mfs_access_fold *access);

#endif
