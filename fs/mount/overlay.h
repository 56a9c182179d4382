/*
 * Files that readers leave beside a dataset, kept in a directory of the person's (-o
 * dataset_cache=DIR): those of the mount's directory PATH lie in DIR/PATH, so they are there again
 * after a remount, and no two datasets share one.
 *
 * They are what `datasets` writes into the directory of a dataset's first Arrow file (datasets 2.21
 * to 5.2, arrow_dataset.py, map() and what select() does for sort, shuffle and train_test_split): a
 * temporary file of tempfile's, "tmp" and eight characters, which is then renamed
 * "cache-FINGERPRINT.arrow", or, where several processes write,
 * "cache-FINGERPRINT_00000_of_00002.arrow", and given its mode. It makes no directories there and
 * no lock files. No other name is taken.
 *
 * Nothing here follows a symbolic link, and no name leads out of DIR. Functions return -errno as
 * DIR's file system says it. Any thread may call any of them.
 */
#ifndef MFS_FS_MOUNT_OVERLAY_H
#define MFS_FS_MOUNT_OVERLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "formats/base/error.h"

struct mfs_overlay;
struct mfs_readers;

/* A file that somebody may still ask about: whatever becomes of its name, this is that file. It
 * holds a descriptor, until it is forgotten. */
struct mfs_overlay_file;

/* dir is made, for its owner alone, if only its last part is missing. It must be writable unless
 * read_only. */
int mfs_overlay_open(const char *dir, bool read_only, struct mfs_overlay **ret,
		     struct mfs_error *err);
/* Files that nobody has forgotten go as well. */
void mfs_overlay_free(struct mfs_overlay *o);

/* Whether a file of that name may be written. */
bool mfs_overlay_takes(const char *name);

/*
 * Below, path is a directory's within DIR ("tales/hf/train"): relative, without "." and "..". It is
 * made, with those above it and with DIR's owner and mode, when the first file is. A name that
 * mfs_overlay_takes() refuses is -EROFS; to a lookup it is -ENOENT.
 */

/* -ENOENT; -ELOOP: the name is a symbolic link's; -EACCES: something else that is no regular file.
 * Each success is to be forgotten once. */
int mfs_overlay_lookup(struct mfs_overlay *o, const char *path, const char *name,
		       struct mfs_overlay_file **ret, struct mfs_error *err);
void mfs_overlay_forget(struct mfs_overlay *o, struct mfs_overlay_file *f, uint64_t times);

struct mfs_overlay_new {
	int flags; /* of open(2); without O_EXCL a file that is there is opened */
	mode_t mode;
	uid_t uid; /* its owner, where this process may give it away (root) */
	gid_t gid;
	struct mfs_readers
		*readers; /* of the sources: group and others get no more than these; NULL: all */
};

/* A lookup and an open in one; *ret_fd is the caller's. */
int mfs_overlay_create(struct mfs_overlay *o, const char *path, const char *name,
		       const struct mfs_overlay_new *how, struct mfs_overlay_file **ret,
		       int *ret_fd, struct mfs_error *err);
int mfs_overlay_unlink(struct mfs_overlay *o, const char *path, const char *name);
/* flags: of renameat2(2), RENAME_NOREPLACE or RENAME_EXCHANGE. */
int mfs_overlay_rename(struct mfs_overlay *o, const char *path, const char *name,
		       const char *new_path, const char *new_name, struct mfs_readers *new_readers,
		       unsigned flags);

/* From now on its mode is shown, and set, without the bits of those who may not read the
 * sources. */
void mfs_overlay_file_guard(struct mfs_overlay_file *f, struct mfs_readers *readers);

/* O_APPEND does not count: who writes says where. *ret_same: its bytes are those that they were
 * when it was last opened, as far as size and change time tell. */
int mfs_overlay_file_open(struct mfs_overlay *o, struct mfs_overlay_file *f, int flags, int *ret_fd,
			  bool *ret_same);
int mfs_overlay_file_stat(const struct mfs_overlay_file *f, struct stat *ret);
/* mode: of access(2), for this process. */
int mfs_overlay_file_access(const struct mfs_overlay_file *f, int mode);
int mfs_overlay_file_truncate(const struct mfs_overlay_file *f, off_t size);
int mfs_overlay_file_chmod(const struct mfs_overlay_file *f, mode_t mode);
/* -1: stays. */
int mfs_overlay_file_chown(const struct mfs_overlay_file *f, uid_t uid, gid_t gid);
/* Access and modification, as utimensat(2) takes them. */
int mfs_overlay_file_utimens(const struct mfs_overlay_file *f, const struct timespec times[2]);

struct mfs_overlay_entry {
	const char *name;
	uint64_t ino;
};

struct mfs_overlay_names {
	struct mfs_overlay_entry *entries; /* in order of names */
	uint32_t count;
};

/* Regular files alone. A directory that was never written to is empty. */
int mfs_overlay_list(struct mfs_overlay *o, const char *path, struct mfs_overlay_names *ret,
		     struct mfs_error *err);
void mfs_overlay_names_release(struct mfs_overlay_names *names);

/*
 * What a directory of the mount that takes files shows beyond its own attributes: who may write
 * there, which is who may write in DIR (where this process is not root's, its user alone, to whom
 * all files belong), and the time of the last change. Readers of the sources may read and enter it,
 * and of those who may write in DIR they alone write.
 */
void mfs_overlay_dir_stat(struct mfs_overlay *o, const char *path, struct mfs_readers *readers,
			  struct stat *st);

/* Of the file system that DIR lies on. */
int mfs_overlay_statvfs(struct mfs_overlay *o, struct statvfs *ret);

#endif
