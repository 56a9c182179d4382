/*
 * Who may read what a part of the tree shows: those who may read all of the sources that it is made
 * of, and nobody else. It is looked at again while the mount is there, so that a chmod, a chown or
 * an ACL at the source counts for what is open, too.
 *
 * Each kind of node shares one of these with others: the files of a view, the directories of an
 * iteration.
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

/* A look is not older than a second, or, where looking takes long (many files, a slow server), than
 * this many times as long as it takes: looking never costs more than a twentieth of one
 * processor. */
#define MFS_READERS_INTERVAL 1000000000 /* ns */
#define MFS_READERS_SHARE    20

/* Of a directory, or of a file in whose place a directory is shown: who may list it may read what
 * it shows. path is copied; if it cannot be looked at, root alone. NULL: no memory. */
struct mfs_readers *mfs_readers_of_path(const char *path);
/* Of all files of some sets, and of what was read once: fixed counts as it is. The sets need not
 * outlive it. */
struct mfs_readers *mfs_readers_of_sets(struct mfs_fileset *const *sets, uint32_t count,
					const struct mfs_access_fold *fixed);
void mfs_readers_free(struct mfs_readers *r);

/* Looks again, if it is time to, and for the first time at what sets were made from, which may have
 * been long ago. One thread at a time does: others have what was known before, or, where that is
 * older than two looks are apart, wait. */
void mfs_readers_look(struct mfs_readers *r);
/* As of the last look. */
struct mfs_access mfs_readers_told(struct mfs_readers *r);
struct mfs_access_fold mfs_readers_fold(struct mfs_readers *r);

#endif
