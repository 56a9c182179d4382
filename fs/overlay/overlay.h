/*
 * The overlay keeps files that readers write next to a dataset's files, in a directory that a
 * person names (-o dataset_cache=DIR). Files of the mount's directory PATH lie in DIR/PATH. So they
 * are there again after a remount, and no two datasets share a file.
 *
 * The library `datasets` writes them into the directory of a dataset's first Arrow file (datasets
 * 2.21 to 5.2, arrow_dataset.py: map(), and select() for sort, shuffle and train_test_split). It
 * makes a temporary file of tempfile's, "tmp" and eight characters. It renames this to
 * "cache-FINGERPRINT.arrow", or with several processes to "cache-FINGERPRINT_00000_of_00002.arrow",
 * and sets its mode. It makes no directories and no lock files. The overlay takes only such names.
 *
 * No function follows a symbolic link, and no name leads out of DIR. Functions return the -errno of
 * DIR's file system. All are thread-safe.
 */
#ifndef MFS_FS_OVERLAY_OVERLAY_H
#define MFS_FS_OVERLAY_OVERLAY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "formats/base/error.h"

struct mfs_overlay;
struct mfs_readers;

/* A file that was looked up and not yet forgotten. It holds a descriptor, so it stays the same file
 * even if its name is removed or replaced. */
struct mfs_overlay_file;

/* If only the last part of dir is missing, it is made with mode 0700. dir must be writable unless
 * read_only is set. */
int mfs_overlay_open(const char *dir, bool read_only, struct mfs_overlay **ret,
		     struct mfs_error *err);
/* Call it when the process has given up rights. From then on files are given to the users who make
 * them only if gives_files is set. -EACCES: the process cannot write in dir any more. */
int mfs_overlay_rights(struct mfs_overlay *o, bool gives_files, struct mfs_error *err);
/* Frees also files that were not forgotten. */
void mfs_overlay_free(struct mfs_overlay *o);

/* True for "tmp" and more, and for "cache-...": files of these names may be written. */
bool mfs_overlay_takes(const char *name);

/*
 * path names a directory in DIR ("tales/hf/train"): relative, without "." and "..". The directory
 * and those above it are made with its first file, with DIR's owner and mode. A name that
 * mfs_overlay_takes() refuses gives -EROFS, and -ENOENT in a lookup.
 */

/* Each successful lookup must be forgotten once. -ENOENT: there is no such file; -ELOOP: it is a
 * symbolic link; -EACCES: it is no regular file. */
int mfs_overlay_lookup(struct mfs_overlay *o, const char *path, const char *name,
		       struct mfs_overlay_file **ret, struct mfs_error *err);
void mfs_overlay_forget(struct mfs_overlay *o, struct mfs_overlay_file *f, uint64_t times);

struct mfs_overlay_new {
	int flags; /* of open(2); without O_EXCL an existing file is opened */
	mode_t mode;
	uid_t uid; /* its owner, if this process is root */
	gid_t gid;
	struct mfs_readers
		*readers; /* of the sources; other users get no rights. NULL: everybody */
};

/* Looks up and opens in one call. The caller closes *ret_fd. */
int mfs_overlay_create(struct mfs_overlay *o, const char *path, const char *name,
		       const struct mfs_overlay_new *how, struct mfs_overlay_file **ret,
		       int *ret_fd, struct mfs_error *err);
int mfs_overlay_unlink(struct mfs_overlay *o, const char *path, const char *name);
/* flags: RENAME_NOREPLACE or RENAME_EXCHANGE of renameat2(2). */
int mfs_overlay_rename(struct mfs_overlay *o, const char *path, const char *name,
		       const char *new_path, const char *new_name, struct mfs_readers *new_readers,
		       unsigned flags);

/* From now on the file's mode gives no rights to those who may not read the sources. */
void mfs_overlay_file_guard(struct mfs_overlay_file *f, struct mfs_readers *readers);

/* Tells this file from files that had the same address before it or will have it after it. The
 * kernel keeps this number and the address in handles, and gives it 32 bits. */
uint32_t mfs_overlay_file_generation(const struct mfs_overlay_file *f);

/* O_APPEND is ignored, since FUSE passes an offset with each write. *ret_same: size and change time
 * are those of the last open. */
int mfs_overlay_file_open(struct mfs_overlay *o, struct mfs_overlay_file *f, int flags, int *ret_fd,
			  bool *ret_same);
int mfs_overlay_file_stat(const struct mfs_overlay_file *f, struct stat *ret);
/* mode: as for access(2). It is checked for this process. */
int mfs_overlay_file_access(const struct mfs_overlay_file *f, int mode);
int mfs_overlay_file_truncate(const struct mfs_overlay_file *f, off_t size);
int mfs_overlay_file_chmod(const struct mfs_overlay_file *f, mode_t mode);
/* -1 leaves owner or group as it is. */
int mfs_overlay_file_chown(const struct mfs_overlay_file *f, uid_t uid, gid_t gid);
/* Times of access and modification, as for utimensat(2). */
int mfs_overlay_file_utimens(const struct mfs_overlay_file *f, const struct timespec times[2]);

struct mfs_overlay_entry {
	const char *name;
	uint64_t ino;
};

struct mfs_overlay_names {
	struct mfs_overlay_entry *entries; /* sorted by name */
	uint32_t count;
};

/* Lists the regular files. A directory that nobody has written to is empty. */
int mfs_overlay_list(struct mfs_overlay *o, const char *path, struct mfs_overlay_names *ret,
		     struct mfs_error *err);
void mfs_overlay_names_release(struct mfs_overlay_names *names);

/*
 * Changes the attributes of a directory of the mount that takes files. Readers of the sources may
 * list and enter it. To write there, a user must be such a reader and have write permission in DIR.
 * If this process is not root, its user alone may write, and owns all files. The time is that of
 * the last change.
 */
void mfs_overlay_dir_stat(struct mfs_overlay *o, const char *path, struct mfs_readers *readers,
			  struct stat *st);

/* The file system of DIR. */
int mfs_overlay_statvfs(struct mfs_overlay *o, struct statvfs *ret);

#endif
