/*
 * Who may read a part of the tree: exactly those who may read all sources that it is made of.
 * Permissions are looked at again while mounted, so a chmod, a chown or an ACL at a source has an
 * effect on open views too.
 *
 * Several nodes share one object: all files of a view, or all directories of an iteration.
 */
#ifndef MFS_FS_SOURCE_READERS_H
#define MFS_FS_SOURCE_READERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "formats/io/access.h"

struct mfs_census;
struct mfs_fileset;
struct mfs_readers;

/* A look is repeated after a second; if it takes long (many files, a slow server), after this many
 * times its duration. So looking costs at most a twentieth of a processor. */
#define MFS_READERS_INTERVAL 1000000000 /* ns */
#define MFS_READERS_SHARE    20

/* Readers of a directory, or of a file that is shown as a directory: those who may list or read it.
 * path is copied. If it cannot be looked at, only root may read. NULL: no memory. */
struct mfs_readers *mfs_readers_of_path(const char *path);
/* Readers of all files of some filesets who are also in fixed, which is never looked at again. The
 * sets need not outlive the readers. */
struct mfs_readers *mfs_readers_of_sets(struct mfs_fileset *const *sets, uint32_t count,
					const struct mfs_access_fold *fixed);
void mfs_readers_free(struct mfs_readers *r);

/* Looks again if it is time. One thread looks at a time. Other threads use the last result, or wait
 * if that is older than two intervals. The first call always looks, since sets may be old. */
void mfs_readers_look(struct mfs_readers *r);
/* The result of the last look. */
struct mfs_access mfs_readers_told(struct mfs_readers *r);
struct mfs_access_fold mfs_readers_fold(struct mfs_readers *r);

#endif
