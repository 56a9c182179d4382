/* A directory that has the saves of one run after another, each of which keeps what it needs
 * itself: weights for engines. What a run that was killed has left is not taken for those of the
 * next. Each iteration bears the mark of such a run, so that no other is removed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/megatron/tracker.h"
#include "trainer/ckpt/save_i.h"

bool mft_save_is_own(const struct mft_saver *s, uint64_t iteration)
{
	char path[64 + sizeof(MFT_SAVE_OWN)];
	int fd;

	snprintf(path, sizeof(path), "iter_%07llu/" MFT_SAVE_OWN, (unsigned long long)iteration);
	fd = mfs_beneath_open(s->dirfd, path, O_RDONLY, 0);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* Whether all that is there may go. */
static int check(const struct mft_saver *s, const uint64_t *list, size_t count,
		 struct mfs_error *err)
{
	for (size_t i = 0; i < count; i++)
		if (!mft_save_is_own(s, list[i]))
			return mfs_fail(err, -EEXIST,
					"'%s' has iteration %llu, which is not of a run that keeps "
					"such a directory for itself: expected an empty one",
					s->dir, (unsigned long long)list[i]);
	if (!count || s->homes[MFT_SAVE_PERSISTENT].locked)
		return 0;
	return mfs_fail(err, -ENOLCK,
			"'%s' has iteration %llu, and its file system has no locks: a run may be "
			"using it; expected an empty directory",
			s->dir, (unsigned long long)list[0]);
}

static int remove_all(struct mft_saver *s, const uint64_t *list, size_t count,
		      struct mfs_error *err)
{
	uint64_t *left;
	size_t left_count;
	int rc = 0;

	s->system.remove(s->system.arg, s->dirfd, MFS_TRACKER_FILE, 0);
	for (size_t i = 0; i < count; i++)
		mft_save_remove_iteration(s, list[i]);
	left = mft_save_iterations(s, UINT64_MAX, &left_count);
	if (left_count)
		rc = mfs_fail(err, -EEXIST,
			      "'%s': iteration %llu of an earlier run cannot be removed", s->dir,
			      (unsigned long long)left[0]);
	free(left);
	return rc;
}

int mft_saver_own(struct mft_saver *s, struct mfs_error *err)
{
	uint64_t *list;
	size_t count;
	int rc;

	s->dir = s->homes[MFT_SAVE_PERSISTENT].dir;
	s->dirfd = s->homes[MFT_SAVE_PERSISTENT].fd;
	list = mft_save_iterations(s, UINT64_MAX, &count);
	rc = check(s, list, count, err);
	if (!rc && count)
		rc = remove_all(s, list, count, err);
	free(list);
	s->owns = !rc;
	return rc;
}
