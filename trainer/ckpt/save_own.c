/* A directory that has the saves of one run after another, each of which keeps what it needs
 * itself: weights for engines. What a run that was killed has left is not taken for those of the
 * next. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/megatron/tracker.h"
#include "trainer/ckpt/save_i.h"

static bool is_marked(const struct mft_saver *s)
{
	return !faccessat(s->dirfd, MFT_SAVE_OWN, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int mark(const struct mft_saver *s, struct mfs_error *err)
{
	const int fd = mfs_beneath_open(s->dirfd, MFT_SAVE_OWN, O_WRONLY | O_CREAT, 0666);

	if (fd < 0)
		return mfs_fail(err, fd, "'%s/" MFT_SAVE_OWN "': %s", s->dir, strerror(-fd));
	close(fd);
	return 0;
}

static int refuse(const struct mft_saver *s, uint64_t iteration, struct mfs_error *err)
{
	return mfs_fail(err, -EEXIST,
			"'%s' has iteration %llu, which is not of a run that keeps such a "
			"directory for itself: expected an empty one",
			s->dir, (unsigned long long)iteration);
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
	int rc = 0;

	s->dir = s->homes[MFT_SAVE_PERSISTENT].dir;
	s->dirfd = s->homes[MFT_SAVE_PERSISTENT].fd;
	list = mft_save_iterations(s, UINT64_MAX, &count);
	if (!is_marked(s))
		rc = count ? refuse(s, list[0], err) : mark(s, err);
	else if (count)
		rc = remove_all(s, list, count, err);
	free(list);
	return rc;
}
