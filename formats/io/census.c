#define _GNU_SOURCE
#include "formats/io/census.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/arena.h"
#include "formats/io/walk.h"

struct entry {
	const char *name;
	dev_t dev;
	ino_t ino;
};

struct mfs_census {
	atomic_uint users;
	struct mfs_arena arena; /* of all that is pointed to */
	struct entry dir;	/* its whole path */
	struct entry *files;
	uint32_t count;
};

static int set_entry(struct mfs_census *c, struct entry *e, const char *name, dev_t dev, ino_t ino)
{
	*e = (struct entry){mfs_arena_strndup(&c->arena, name, strlen(name)), dev, ino};
	return e->name ? 0 : -ENOMEM;
}

struct mfs_census *mfs_census_new(const char *dir, dev_t dev, ino_t ino, uint32_t count)
{
	struct mfs_census *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	atomic_init(&c->users, 1);
	c->files = mfs_arena_array(&c->arena, (size_t)count + 1, sizeof(*c->files));
	if (!c->files || set_entry(c, &c->dir, dir, dev, ino)) {
		mfs_census_unref(c);
		return NULL;
	}
	return c;
}

int mfs_census_add(struct mfs_census *c, const char *name, dev_t dev, ino_t ino)
{
	return set_entry(c, &c->files[c->count++], name, dev, ino);
}

struct mfs_census *mfs_census_ref(struct mfs_census *c)
{
	atomic_fetch_add(&c->users, 1);
	return c;
}

void mfs_census_unref(struct mfs_census *c)
{
	if (!c || atomic_fetch_sub(&c->users, 1) > 1)
		return;
	mfs_arena_release(&c->arena);
	free(c);
}

/* What this process itself is kept from, nobody else reads either. */
static bool is_barred(int rc)
{
	return rc == -EACCES || rc == -EPERM || rc == -ELOOP || rc == -ENOLINK;
}

/* Walks to an entry. True: the same file is still there, and *ret_fd is the caller's. */
static bool find(int dirfd, const struct entry *e, struct mfs_access_fold *now, int *ret_fd,
		 struct stat *st)
{
	int rc = mfs_walk(dirfd, e->name, now, ret_fd, st);

	now->closed |= is_barred(rc);
	if (rc)
		return false;
	if (st->st_dev == e->dev && st->st_ino == e->ino)
		return true;
	close(*ret_fd);
	return false;
}

static bool look_at(int dirfd, const struct entry *e, struct mfs_access_fold *now)
{
	struct stat st;
	int fd;

	if (!find(dirfd, e, now, &fd, &st))
		return false;
	mfs_walk_count(fd, &st, MFS_ACCESS_READ, now);
	mfs_access_name(now, &st);
	close(fd);
	return true;
}

void mfs_census_look(const struct mfs_census *c, struct mfs_access_fold *access)
{
	struct mfs_access_fold now = {0};
	struct stat st;
	int dirfd;
	bool whole = find(AT_FDCWD, &c->dir, &now, &dirfd, &st);

	if (whole) {
		for (uint32_t i = 0; i < c->count; i++)
			whole &= look_at(dirfd, &c->files[i], &now);
		close(dirfd);
	}
	if (whole)
		*access = now;
	else
		mfs_access_merge(access, &now);
}
