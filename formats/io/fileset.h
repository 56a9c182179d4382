/*
 * The source files of one checkpoint: which files they were when they were opened, and where they
 * are mapped.
 *
 * A file is identified by (device, inode, size, mtime, ctime) at the moment it is added. It is
 * mapped on first use, and its descriptor is closed again, so a checkpoint of 1024 files does not
 * hold 1024 descriptors. One thread adds files while a checkpoint is opened. Everything below
 * "Readers" may be called from any number of threads at once and takes no lock.
 */
#ifndef MFS_IO_FILESET_H
#define MFS_IO_FILESET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/error.h"
#include "formats/io/access.h"

struct mfs_backing;
struct mfs_census;
struct mfs_fileset;

/* Files are named relative to dir (kept as a descriptor). -errno if it cannot be opened. */
int mfs_fileset_new(const char *dir, struct mfs_fileset **ret, struct mfs_error *err);
void mfs_fileset_free(struct mfs_fileset *set);

/* Adds a regular file (name relative to the directory, no leading '/', no ".." part).
 * -ENOENT if there is none, -EINVAL if the name escapes or it is not a regular file. */
int mfs_fileset_add(struct mfs_fileset *set, const char *name, uint32_t *ret_file,
		    struct mfs_error *err);

/* Readers. */
const char *mfs_fileset_dir(const struct mfs_fileset *set);
uint32_t mfs_fileset_count(const struct mfs_fileset *set);
const char *mfs_fileset_name(const struct mfs_fileset *set, uint32_t file);
uint64_t mfs_fileset_size(const struct mfs_fileset *set, uint32_t file);
/* Bytes that the file takes on its disk: fewer than its size if it has holes. Some file systems
 * always say 0. */
uint64_t mfs_fileset_disk(const struct mfs_fileset *set, uint32_t file);
/* Modification time in nanoseconds since the epoch, as seen when added. */
int64_t mfs_fileset_mtime(const struct mfs_fileset *set, uint32_t file);

/* Who may read all files, as seen when they were added. Every directory of every path counts, from
 * "/" down (of a relative dir, from the working directory). So do the directories that symbolic
 * links lead to. */
const struct mfs_access_fold *mfs_fileset_access(const struct mfs_fileset *set);
/* The classes (access.h) that the modes of the files grant, if directories are ignored. */
unsigned mfs_fileset_granted(const struct mfs_fileset *set);
/* A census of the same files (census.h), to ask again who may read them. Call it when all files are
 * added. The caller gets one reference; NULL: out of memory. */
struct mfs_census *mfs_fileset_census(struct mfs_fileset *set);

/* A number that differs between sets whose files differ or were changed: by names, devices, inodes,
 * sizes, mtimes and versions (backing.h). */
uint64_t mfs_fileset_stamp(const struct mfs_fileset *set);
/* Like mfs_fileset_stamp(), by names, sizes, and mtimes or, of files that have one, versions alone:
 * equal on all machines that see the same files, at any time. */
uint64_t mfs_fileset_identity(const struct mfs_fileset *set);

/*
 * While a set is held, its files can be read even when they are deleted or replaced by others, as
 * POSIX promises for an open file. This takes a descriptor for each file: the first who holds the
 * set opens it, the last who drops the set closes it. A file that cannot be opened (any more), or
 * for which there is no descriptor (half of RLIMIT_NOFILE, for all sets together), is not held, and
 * is -ESTALE when its name is gone. Any thread; neither waits for readers.
 */
void mfs_fileset_hold(struct mfs_fileset *set);
void mfs_fileset_drop(struct mfs_fileset *set);

/* 0: the file is still the one that was added. -ESTALE: it was changed, or it was deleted or
 * replaced and is not held. One stat per call, which may be answered from cached attributes. */
int mfs_fileset_check(struct mfs_fileset *set, uint32_t file, struct mfs_error *err);

/* Like mfs_fileset_check(), for all files of several sets, up to the first that fails. */
int mfs_filesets_check(struct mfs_fileset *const *sets, size_t count, struct mfs_error *err);

/* Opens the file that was added; the caller closes *ret_fd. Fails as mfs_fileset_check() does. */
int mfs_fileset_open(struct mfs_fileset *set, uint32_t file, int *ret_fd, struct mfs_error *err);

/* Where the file's bytes come from (backing.h); NULL: they are all on this disk. */
const struct mfs_backing *mfs_fileset_backing(const struct mfs_fileset *set, uint32_t file);
/* Whether any file has a backing. */
bool mfs_fileset_has_backings(const struct mfs_fileset *set);
/* Whether any file is on another machine (file_system.h), or has a backing. The first call asks the
 * file systems. */
bool mfs_fileset_is_remote(struct mfs_fileset *set);

/* The start of the read-only mapping of the whole file (size bytes). Read it only as guard.h says,
 * or give it to the kernel (writev), which returns EFAULT for a missing page. */
int mfs_fileset_map(struct mfs_fileset *set, uint32_t file, const uint8_t **ret,
		    struct mfs_error *err);
/* Like mfs_fileset_map(), for a caller who reads only what he has made present (present.h).
 * mfs_fileset_map() has all bytes of a backed file fetched, and they stay as long as the process
 * lives. */
int mfs_fileset_map_part(struct mfs_fileset *set, uint32_t file, const uint8_t **ret,
			 struct mfs_error *err);

/* While it is on, what mfs_fileset_read() opens stays open, as far as there are descriptors (half
 * of RLIMIT_NOFILE, for all sets together): for one who reads thousands of pieces. Off, or the end
 * of the set, closes all of them. Nobody may read while it is turned on or off. */
void mfs_fileset_keep_open(struct mfs_fileset *set, bool on);

/* Copies bytes out, checking the file's identity first. */
int mfs_fileset_read(struct mfs_fileset *set, uint32_t file, uint64_t off, void *buf, size_t len,
		     struct mfs_error *err);

/* Asks the kernel to read a range ahead, if it is not in memory. It never fails and never waits. */
void mfs_fileset_willneed(struct mfs_fileset *set, uint32_t file, uint64_t off, uint64_t len);

/* Counts bytes that were handed out through mappings. Now and then it drops the page-table entries
 * (not the page cache), so that the daemon's resident size does not grow with what it served. */
void mfs_fileset_served(struct mfs_fileset *set, uint64_t bytes);

#endif
