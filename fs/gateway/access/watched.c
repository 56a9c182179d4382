#include "fs/gateway/access/watched.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/io/regular.h"
#include "formats/io/whole.h"

#define LOOK 1000000000ll /* ns between two looks at the file */

static int check_mode(const char *path, const struct stat *st, struct mfs_error *err)
{
	if (!(st->st_mode & (S_IWGRP | S_IWOTH | S_IROTH)))
		return 0;
	return mfs_fail(err, -EACCES, "%s: its mode is %03o, but nobody else may %s it: chmod 640",
			path, st->st_mode & 0777,
			st->st_mode & (S_IWGRP | S_IWOTH) ? "write" : "read");
}

int mfs_watched_read(const char *path, size_t most, char **ret, size_t *ret_len,
		     struct stat *ret_st, struct mfs_error *err)
{
	char *text = NULL;
	int fd, rc = mfs_open_regular(AT_FDCWD, path, 0, &fd, ret_st);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", path, mfs_open_regular_why(rc));
	*ret_len = (size_t)ret_st->st_size;
	rc = check_mode(path, ret_st, err);
	if (!rc && *ret_len > most)
		rc = mfs_fail(err, -EINVAL, "%s: it has more than %zu bytes", path, most);
	if (!rc && !(text = calloc(1, *ret_len + 1)))
		rc = mfs_fail_nomem(err);
	if (!rc && mfs_pread_whole(fd, 0, text, *ret_len))
		rc = mfs_fail(err, -EIO, "%s: it cannot be read", path);
	close(fd);
	if (rc)
		free(text);
	else
		*ret = text;
	return rc;
}

void mfs_watched_note(struct mfs_watched *w, const struct stat *st)
{
	w->changed = st->st_mtim;
	w->renamed = st->st_ctim;
	w->ino = st->st_ino;
	w->size = st->st_size;
}

bool mfs_watched_changed(struct mfs_watched *w, struct stat *ret)
{
	const int64_t now = mfs_now_ns();

	if (now - w->looked < LOOK)
		return false;
	w->looked = now;
	return !stat(w->path, ret) && (w->ino != ret->st_ino || w->size != ret->st_size ||
				       mfs_ns(w->changed) != mfs_ns(ret->st_mtim) ||
				       mfs_ns(w->renamed) != mfs_ns(ret->st_ctim));
}
