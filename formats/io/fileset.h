/*
 * The source files of one checkpoint: who they were when they were opened, and where they are
 * mapped.
 *
 * A file is identified by (device, inode, size, mtime, ctime) at the moment it is added. It is
 * mapped on first use and its descriptor closed again, so that a checkpoint of 1024 files needs
 * neither 1024 descriptors nor a policy for them. Adding is for one thread, while a checkpoint is
 * opened; everything below "readers" may be called from any number of threads at once and takes no
 * lock.
 */
#ifndef MFS_IO_FILESET_H
#define MFS_IO_FILESET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/error.h"
#include "formats/io/access.h"

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
/* Bytes that it takes on its disk, which are fewer where it has holes; of some file systems always
 * 0. */
uint64_t mfs_fileset_disk(const struct mfs_fileset *set, uint32_t file);
/* Modification time in nanoseconds since the epoch, as seen when added. */
int64_t mfs_fileset_mtime(const struct mfs_fileset *set, uint32_t file);

/* Who may read all files: every directory of every path counts, from "/" down (of a relative dir,
 * from the working directory), and those behind symbolic links. As seen when they were added. */
const struct mfs_access_fold *mfs_fileset_access(const struct mfs_fileset *set);
/* What the modes of the files alone grant, whatever the directories are: classes of access.h. */
unsigned mfs_fileset_granted(const struct mfs_fileset *set);
/* The same files, to be looked at again (census.h); a reference of the caller's, NULL: no memory.
 * All of them are added. */
struct mfs_census *mfs_fileset_census(struct mfs_fileset *set);

/* Tells sets apart whose files are others, or were changed: their names, devices, inodes, sizes and
 * mtimes. */
uint64_t mfs_fileset_stamp(const struct mfs_fileset *set);

/*
 * While a set is held, its files can be read even when they are deleted or replaced by others, as
 * POSIX promises for an open file. This takes a descriptor for each file: the first who holds the
 * set opens it, the last who drops the set closes it. A file that cannot be opened (any more), or
 * for which there is no descriptor (half of RLIMIT_NOFILE, for all sets together), is not held, and
 * is -ESTALE when its name is gone. Any thread; neither waits for readers.
 */
void mfs_fileset_hold(struct mfs_fileset *set);
void mfs_fileset_drop(struct mfs_fileset *set);

/* Is it still the file that was added? 0; -ESTALE (changed, or deleted or replaced and not held),
 * once per call a stat that may be answered from cached attributes. */
int mfs_fileset_check(struct mfs_fileset *set, uint32_t file, struct mfs_error *err);

/* The file as it was added, opened: the caller closes *ret_fd. Fails as mfs_fileset_check()
 * does. */
int mfs_fileset_open(struct mfs_fileset *set, uint32_t file, int *ret_fd, struct mfs_error *err);

/* Start of the read-only mapping of the whole file (size bytes). Dereference it only as guard.h
 * says, or hand it to the kernel (writev), which meets a missing page with EFAULT. */
int mfs_fileset_map(struct mfs_fileset *set, uint32_t file, const uint8_t **ret,
		    struct mfs_error *err);

/* Copies bytes out, checking the file's identity first. */
int mfs_fileset_read(struct mfs_fileset *set, uint32_t file, uint64_t off, void *buf, size_t len,
		     struct mfs_error *err);

/* Asks the kernel to read a range ahead, if it is not in memory; never fails, never waits for
 * it. */
void mfs_fileset_willneed(struct mfs_fileset *set, uint32_t file, uint64_t off, uint64_t len);

/* Counts bytes handed out through mappings and drops the page-table entries (not the page cache)
 * now and then, so that the daemon's resident size does not grow with what it served. */
void mfs_fileset_served(struct mfs_fileset *set, uint64_t bytes);

#endif
