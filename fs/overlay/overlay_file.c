#define _GNU_SOURCE
#include "fs/overlay/overlay_i.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/source/readers.h"

/* Flags that an open of an existing file may have. */
#define OPEN_FLAGS (O_ACCMODE | O_TRUNC | O_SYNC | O_DSYNC)

/* The name of the file in /proc/self/fd, for calls that do not take an O_PATH descriptor. */
struct self_name {
	char path[40];
};

static struct self_name self_name(const struct mfs_overlay_file *f)
{
	struct self_name self;

	snprintf(self.path, sizeof(self.path), "/proc/self/fd/%d", f->fd);
	return self;
}

static struct mfs_overlay_file **bucket(struct mfs_overlay *o, dev_t dev, ino_t ino)
{
	return &o->buckets[(dev * 31 + ino) % MFS_OVERLAY_BUCKETS];
}

static struct mfs_overlay_file *find(struct mfs_overlay *o, dev_t dev, ino_t ino)
{
	struct mfs_overlay_file *f = *bucket(o, dev, ino);

	while (f && (f->dev != dev || f->ino != ino))
		f = f->next;
	return f;
}

static struct mfs_overlay_file *insert(struct mfs_overlay *o, int fd, const struct stat *st)
{
	struct mfs_overlay_file **head = bucket(o, st->st_dev, st->st_ino);
	struct mfs_overlay_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->dev = st->st_dev;
	f->ino = st->st_ino;
	f->fd = fd;
	f->generation = o->generation++;
	f->opened_size = -1;
	f->next = *head;
	*head = f;
	return f;
}

int mfs_overlay_adopt(struct mfs_overlay *o, int fd, const struct stat *st,
		      struct mfs_overlay_file **ret)
{
	struct mfs_overlay_file *f;

	pthread_mutex_lock(&o->lock);
	f = find(o, st->st_dev, st->st_ino);
	if (!f)
		f = insert(o, fd, st);
	if (f)
		f->lookups++;
	pthread_mutex_unlock(&o->lock);
	if (!f || f->fd != fd)
		close(fd);
	if (!f)
		return -ENOMEM;
	*ret = f;
	return 0;
}

static void drop(struct mfs_overlay *o, struct mfs_overlay_file *f)
{
	struct mfs_overlay_file **at = bucket(o, f->dev, f->ino);

	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	close(f->fd);
	free(f);
}

void mfs_overlay_forget(struct mfs_overlay *o, struct mfs_overlay_file *f, uint64_t times)
{
	pthread_mutex_lock(&o->lock);
	f->lookups -= times < f->lookups ? times : f->lookups;
	if (!f->lookups)
		drop(o, f);
	pthread_mutex_unlock(&o->lock);
}

static bool same_as_before(const struct mfs_overlay_file *f, const struct stat *st)
{
	return f->opened_size == st->st_size && f->opened_ctime.tv_sec == st->st_ctim.tv_sec &&
	       f->opened_ctime.tv_nsec == st->st_ctim.tv_nsec;
}

/* True if size and change time are those of the last open. Notes the new ones. */
static bool note_opened(struct mfs_overlay *o, struct mfs_overlay_file *f, const struct stat *st)
{
	bool same;

	pthread_mutex_lock(&o->lock);
	same = same_as_before(f, st);
	f->opened_size = st->st_size;
	f->opened_ctime = st->st_ctim;
	pthread_mutex_unlock(&o->lock);
	return same;
}

int mfs_overlay_file_open(struct mfs_overlay *o, struct mfs_overlay_file *f, int flags, int *ret_fd,
			  bool *ret_same)
{
	int fd = open(self_name(f).path, (flags & OPEN_FLAGS) | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	*ret_same = note_opened(o, f, &st);
	*ret_fd = fd;
	return 0;
}

mode_t mfs_overlay_narrow(struct mfs_readers *readers, mode_t mode, uid_t uid, gid_t gid)
{
	struct mfs_access_fold fold;
	unsigned classes;

	if (!readers)
		return mode;
	fold = mfs_readers_fold(readers);
	classes = mfs_access_classes(&fold, uid, gid);
	if (!(classes & MFS_ACCESS_GROUP))
		mode &= ~(mode_t)0070;
	if (!(classes & MFS_ACCESS_OTHERS))
		mode &= ~(mode_t)0007;
	return mode;
}

void mfs_overlay_file_guard(struct mfs_overlay_file *f, struct mfs_readers *readers)
{
	atomic_store(&f->readers, readers);
}

uint32_t mfs_overlay_file_generation(const struct mfs_overlay_file *f)
{
	return f->generation;
}

int mfs_overlay_file_stat(const struct mfs_overlay_file *f, struct stat *ret)
{
	if (fstat(f->fd, ret))
		return -errno;
	ret->st_mode = mfs_overlay_narrow(atomic_load(&f->readers), ret->st_mode, ret->st_uid,
					  ret->st_gid);
	return 0;
}

int mfs_overlay_file_access(const struct mfs_overlay_file *f, int mode)
{
	return access(self_name(f).path, mode) ? -errno : 0;
}

/* Attributes are changed through a descriptor: a sandbox refuses the calls that take a name, which
 * might be any file's. */
static int open_plainly(const struct mfs_overlay_file *f, int flags)
{
	int fd = open(self_name(f).path, flags | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* rc: what a call returned for fd, which is closed. */
static int finish(int fd, int rc)
{
	const int failure = rc ? -errno : 0;

	close(fd);
	return failure;
}

int mfs_overlay_file_truncate(const struct mfs_overlay_file *f, off_t size)
{
	int fd = open_plainly(f, O_WRONLY);

	return fd < 0 ? fd : finish(fd, ftruncate(fd, size));
}

/* Its owner may have taken the right to read or to write from himself; in a sandbox not both. */
static int open_for_attributes(const struct mfs_overlay_file *f)
{
	int fd = open_plainly(f, O_RDONLY);

	return fd == -EACCES ? open_plainly(f, O_WRONLY) : fd;
}

static int set_mode(const struct mfs_overlay_file *f, mode_t mode)
{
	int fd = open_for_attributes(f);

	if (fd >= 0)
		return finish(fd, fchmod(fd, mode));
	return chmod(self_name(f).path, mode) ? -errno : 0;
}

static int set_owner(const struct mfs_overlay_file *f, uid_t uid, gid_t gid)
{
	int fd = open_for_attributes(f);

	if (fd >= 0)
		return finish(fd, fchown(fd, uid, gid));
	return fchownat(f->fd, "", uid, gid, AT_EMPTY_PATH) ? -errno : 0;
}

int mfs_overlay_file_chmod(const struct mfs_overlay_file *f, mode_t mode)
{
	struct stat st;

	if (fstat(f->fd, &st))
		return -errno;
	mode = mfs_overlay_narrow(atomic_load(&f->readers), mode & 0777, st.st_uid, st.st_gid);
	return set_mode(f, mode);
}

/* Rights that the new owner and group may not have are removed first. */
int mfs_overlay_file_chown(const struct mfs_overlay_file *f, uid_t uid, gid_t gid)
{
	struct stat st;
	mode_t mode;

	if (fstat(f->fd, &st))
		return -errno;
	mode = mfs_overlay_narrow(atomic_load(&f->readers), st.st_mode & 0777,
				  uid == (uid_t)-1 ? st.st_uid : uid,
				  gid == (gid_t)-1 ? st.st_gid : gid);
	if (mode != (st.st_mode & 0777)) {
		int rc = set_mode(f, mode);

		if (rc)
			return rc;
	}
	return set_owner(f, uid, gid);
}

int mfs_overlay_file_utimens(const struct mfs_overlay_file *f, const struct timespec times[2])
{
	int fd = open_for_attributes(f);

	if (fd >= 0)
		return finish(fd, futimens(fd, times));
	return utimensat(AT_FDCWD, self_name(f).path, times, 0) ? -errno : 0;
}
