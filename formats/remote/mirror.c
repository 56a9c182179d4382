#define _GNU_SOURCE
#include "formats/remote/mirror.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/grow.h"
#include "formats/base/path.h"
#include "formats/io/beneath.h"
#include "formats/remote/server.h"

#define NEW (O_WRONLY | O_CREAT | O_EXCL)

struct mfs_mirror {
	struct mfs_server server;
	struct mfs_cache *cache;
	char *path;
	int dirfd;
	struct stat *files; /* placeholders */
	size_t file_count;
};

bool mfs_mirror_is_url(const char *source)
{
	return !strncmp(source, "http://", 7) || !strncmp(source, "https://", 8) ||
	       !strncmp(source, "s3://", 5);
}

/* XDG's; a daemon of root has no home that is its own. */
static char *default_cache(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *ret = NULL;
	int n;

	if (!geteuid())
		n = asprintf(&ret, "/var/cache/mcorefs");
	else if (cache && *cache == '/')
		n = asprintf(&ret, "%s/mcorefs", cache);
	else if (home && *home == '/')
		n = asprintf(&ret, "%s/.cache/mcorefs", home);
	else
		n = asprintf(&ret, "/tmp/mcorefs-%u", (unsigned)geteuid());
	return n < 0 ? NULL : ret;
}

int mfs_mirror_cache(const char *given, char **ret, struct mfs_error *err)
{
	*ret = given ? strdup(given) : default_cache();
	return *ret ? 0 : mfs_fail_nomem(err);
}

static int open_cache(struct mfs_mirror *m, const struct mfs_mirror_options *opt,
		      struct mfs_error *err)
{
	struct mfs_cache_options cache = {.size = opt->cache_size, .http = m->server.http};
	char *dir;
	int rc = mfs_mirror_cache(opt->cache, &dir, err);

	if (rc)
		return rc;
	cache.dir = dir;
	rc = mfs_cache_open(&cache, &m->cache, err);
	free(dir);
	return rc;
}

/* ---- the directory ---- */

static int make_tree(struct mfs_mirror *m, struct mfs_error *err)
{
	const char *below;

	if (asprintf(&m->path, "%s/tree/%s", mfs_cache_place(m->cache), m->server.name) < 0) {
		m->path = NULL;
		return mfs_fail_nomem(err);
	}
	below = m->path + strlen(mfs_cache_place(m->cache)) + 1;
	m->dirfd = mfs_beneath_make_dirs(mfs_cache_place_fd(m->cache), below, 0700);
	return m->dirfd < 0
		       ? mfs_fail(err, m->dirfd, "cannot make %s: %s", m->path, strerror(-m->dirfd))
		       : 0;
}

/* The directories that a name leads through. */
static int make_dirs(int dirfd, const char *name)
{
	char *above = strchr(name, '/') ? mfs_path_parent(name) : NULL;
	int fd;

	if (!above)
		return strchr(name, '/') ? -ENOMEM : 0;
	fd = mfs_beneath_make_dirs(dirfd, above, 0700);
	free(above);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int make_placeholder(int dirfd, const struct mfs_listed *item, struct stat *ret)
{
	const struct timespec times[2] = {{0, UTIME_OMIT}, {item->mtime, 0}};
	int rc = 0, fd = mfs_beneath_open(dirfd, item->name, NEW, 0600);

	if (fd < 0)
		return fd;
	if (ftruncate(fd, (off_t)item->size) || futimens(fd, times) || fstat(fd, ret))
		rc = -errno;
	close(fd);
	return rc;
}

static int add_file(struct mfs_mirror *m, const struct mfs_listed *item, struct mfs_error *err)
{
	char *url = mfs_server_url(&m->server, item->name);
	struct mfs_object_id id = {.url = url,
				   .etag = item->etag,
				   .last_modified = item->last_modified,
				   .size = item->size};
	struct mfs_backing backing;
	struct mfs_object *object;
	struct stat st;
	int rc = url ? mfs_cache_object(m->cache, &id, &object, err) : mfs_fail_nomem(err);

	free(url);
	if (rc)
		return rc;
	backing = mfs_object_as_backing(object);
	rc = make_dirs(m->dirfd, item->name);
	if (!rc)
		rc = make_placeholder(m->dirfd, item, &st);
	if (rc == -EEXIST || rc == -EISDIR || rc == -ENOTDIR)
		return 0; /* S3 may have "a" and "a/b": one of them is shown */
	if (!rc)
		rc = mfs_grow(&m->files, m->file_count);
	if (!rc)
		rc = mfs_backing_add(&st, &backing);
	if (rc)
		return mfs_fail(err, rc, "cannot make %s/%s: %s", m->path, item->name,
				strerror(-rc));
	m->files[m->file_count++] = st;
	return 0;
}

static int fill(struct mfs_mirror *m, unsigned seconds, struct mfs_error *err)
{
	struct mfs_listing list;
	int rc = mfs_server_list(&m->server, seconds, &list, err);

	if (rc)
		return rc;
	for (size_t i = 0; i < list.count && !rc; i++)
		rc = add_file(m, &list.items[i], err);
	mfs_listing_release(&list);
	return rc;
}

int mfs_mirror_open(const char *url, const struct mfs_mirror_options *opt, struct mfs_mirror **ret,
		    struct mfs_error *err)
{
	struct mfs_mirror *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return mfs_fail_nomem(err);
	m->dirfd = -1;
	rc = mfs_server_open(url, opt->timeout, opt->private_redirects, &m->server, err);
	if (!rc)
		rc = open_cache(m, opt, err);
	if (!rc)
		rc = make_tree(m, err);
	if (!rc)
		rc = fill(m, opt->open_timeout, err);
	if (rc) {
		mfs_mirror_free(m);
		return rc;
	}
	*ret = m;
	return 0;
}

void mfs_mirror_free(struct mfs_mirror *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->file_count; i++)
		mfs_backing_remove(&m->files[i]);
	free(m->files);
	mfs_cache_free(m->cache);
	mfs_server_release(&m->server);
	if (m->dirfd >= 0)
		close(m->dirfd);
	free(m->path);
	free(m);
}

void mfs_mirror_rest(struct mfs_mirror *m)
{
	mfs_cache_rest(m->cache);
}

const char *mfs_mirror_path(const struct mfs_mirror *m)
{
	return m->path;
}

struct mfs_cache_stats mfs_mirror_stats(const struct mfs_mirror *m)
{
	return mfs_cache_stats(m->cache);
}
