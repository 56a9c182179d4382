/*
 * A small file of secrets that is read again when it changes: nobody else may write it, nor
 * everybody read it.
 */
#ifndef MFS_FS_GATEWAY_ACCESS_WATCHED_H
#define MFS_FS_GATEWAY_ACCESS_WATCHED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "formats/base/error.h"

struct mfs_watched {
	const char *path; /* borrowed */
	int64_t looked;
	struct timespec changed, renamed; /* mtime and ctime of the file that was read */
	ino_t ino;
	off_t size;
};

/* Reads it, with a NUL after its bytes; the caller frees *ret. -EACCES: its mode; -EINVAL: it has
 * more than `most` bytes; -errno. mfs_watched_note() notes what was read. */
int mfs_watched_read(const char *path, size_t most, char **ret, size_t *ret_len,
		     struct stat *ret_st, struct mfs_error *err);
void mfs_watched_note(struct mfs_watched *w, const struct stat *st);

/* Looks at most once a second. True: the file is another one than was noted. *ret: what it is. */
bool mfs_watched_changed(struct mfs_watched *w, struct stat *ret);

#endif
