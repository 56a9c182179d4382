#define _GNU_SOURCE
#include "formats/io/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/path.h"

struct mfs_fence {
	enum mfs_fence_kind kind;
	char *named, *real; /* absolute; of a prefix, its directory alone is resolved */
	struct mfs_fence *next;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct mfs_fence *first;
static atomic_uint count; /* so that nobody takes the lock where there are none */

/* ---- adding ---- */

static char *resolve(enum mfs_fence_kind kind, const char *path)
{
	char *parent, *dir, *real = NULL;

	if (kind != MFS_FENCE_PREFIX)
		return realpath(path, NULL);
	parent = mfs_path_parent(path);
	dir = parent ? realpath(parent, NULL) : NULL;
	if (dir && asprintf(&real, "%s/%s", strcmp(dir, "/") ? dir : "", mfs_path_base(path)) < 0)
		real = NULL;
	free(parent);
	free(dir);
	return real;
}

static char *make_absolute(const char *path)
{
	char *cwd = *path == '/' ? NULL : getcwd(NULL, 0), *ret = NULL;

	if (*path == '/')
		ret = strdup(path);
	else if (cwd && asprintf(&ret, "%s/%s", cwd, path) < 0)
		ret = NULL;
	free(cwd);
	for (size_t n = ret ? strlen(ret) : 0; n > 1 && ret[n - 1] == '/';)
		ret[--n] = '\0';
	return ret;
}

static void free_fence(struct mfs_fence *f)
{
	free(f->named);
	free(f->real);
	free(f);
}

int mfs_fence_add(enum mfs_fence_kind kind, const char *path, struct mfs_fence **ret)
{
	struct mfs_fence *f = calloc(1, sizeof(*f));
	int rc = 0;

	if (!f)
		return -ENOMEM;
	f->kind = kind;
	f->real = resolve(kind, path);
	if (!f->real)
		rc = -errno;
	else if (!(f->named = make_absolute(path)))
		rc = -ENOMEM;
	if (rc) {
		free_fence(f);
		return rc;
	}
	pthread_rwlock_wrlock(&lock);
	f->next = first;
	first = f;
	pthread_rwlock_unlock(&lock);
	atomic_fetch_add(&count, 1);
	*ret = f;
	return 0;
}

void mfs_fence_remove(struct mfs_fence *f)
{
	struct mfs_fence **at = &first;

	if (!f)
		return;
	pthread_rwlock_wrlock(&lock);
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	pthread_rwlock_unlock(&lock);
	atomic_fetch_sub(&count, 1);
	free_fence(f);
}

/* ---- asking ---- */

/* The length of the fenced part of a path below root; 0: it is not below it. */
static size_t part_below(enum mfs_fence_kind kind, const char *root, const char *path)
{
	const size_t len = strlen(root) - (root[1] == '\0'); /* "/" */
	const char *rest = path + len;

	if (strncmp(path, root, len) != 0)
		return 0;
	if (kind == MFS_FENCE_PREFIX)
		return *rest == '.' || !*rest ? len : 0;
	if (*rest && *rest != '/')
		return 0;
	if (kind != MFS_FENCE_EACH)
		return len ? len : 1;
	return rest[0] && rest[1] ? len + 1 + strcspn(rest + 1, "/") : 0;
}

bool mfs_fence_blobs(const char *dir, char ret[PATH_MAX])
{
	static const char snapshots[] = "/snapshots";
	const size_t len = strlen(dir), own = sizeof(snapshots) - 1;
	const char *slash = strrchr(dir, '/');
	size_t above = slash ? (size_t)(slash - dir) : 0;

	if (len > own && !strcmp(dir + len - own, snapshots))
		above = len; /* all snapshots */
	if (above <= own || strncmp(dir + above - own, snapshots, own) != 0)
		return false;
	return snprintf(ret, PATH_MAX, "%.*s/blobs", (int)(above - own), dir) < PATH_MAX;
}

/* Under the lock: whether the fenced part of a fence has a real path. at: of the name that leads
 * there, of which len bytes are fenced. */
static bool has(const struct mfs_fence *f, const char *root, size_t len, const char *at,
		const char *real)
{
	char own[PATH_MAX], blobs[PATH_MAX];
	const size_t rest = f->kind == MFS_FENCE_EACH ? len - strlen(root) : 0;

	if ((size_t)snprintf(own, sizeof(own), "%s%.*s", f->real, (int)rest, at + strlen(root)) >=
	    sizeof(own))
		return false;
	if (part_below(f->kind == MFS_FENCE_PREFIX ? MFS_FENCE_PREFIX : MFS_FENCE_DIR, own, real))
		return true;
	return f->kind != MFS_FENCE_PREFIX && mfs_fence_blobs(own, blobs) &&
	       part_below(MFS_FENCE_DIR, blobs, real);
}

static bool is_common(const char *real)
{
	for (const struct mfs_fence *f = first; f; f = f->next)
		if (f->kind == MFS_FENCE_COMMON && part_below(MFS_FENCE_DIR, f->real, real))
			return true;
	return false;
}

/* The narrowest fence around a path counts; equal ones are the same. A directory that is open and
 * that no fence is around, as one is that has been moved out of its source, is its own. dir: NULL:
 * none is open. */
static bool allows(const char *dir, const char *path, const char *real)
{
	bool allowed = true;
	size_t narrowest = 0;

	for (const struct mfs_fence *f = first; f; f = f->next) {
		const char *const roots[] = {f->named, f->real};

		for (unsigned i = 0; i < 2; i++) {
			const size_t len = part_below(f->kind, roots[i], path);

			if (len <= narrowest)
				continue;
			narrowest = len;
			allowed = has(f, roots[i], len, path, real);
		}
	}
	if (!narrowest && dir)
		allowed = part_below(MFS_FENCE_DIR, dir, real);
	return allowed || is_common(real);
}

static bool allows_below(const char *dir, const char *path, const char *real)
{
	bool allowed;

	if (!atomic_load(&count))
		return true;
	pthread_rwlock_rdlock(&lock);
	allowed = allows(dir, path, real);
	pthread_rwlock_unlock(&lock);
	return allowed;
}

bool mfs_fence_allows(const char *path, const char *real)
{
	return allows_below(NULL, path, real);
}

/* Where an open file is. */
static int path_of(int fd, char ret[PATH_MAX])
{
	char self[40];
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, ret, PATH_MAX);
	if (n < 0) /* without /proc, ENOENT would say that there is no file */
		return errno == ENOENT ? -ENOLINK : -errno;
	if (n == PATH_MAX || *ret != '/')
		return -ENOLINK;
	ret[n] = '\0';
	return 0;
}

/* The path of a name below a directory, whose own links are resolved. */
static int absolute_path(int dirfd, const char *name, char ret[PATH_MAX])
{
	size_t len;
	int rc = 0;

	*ret = '\0';
	if (*name != '/' && dirfd == AT_FDCWD && !getcwd(ret, PATH_MAX))
		rc = -errno;
	else if (*name != '/' && dirfd != AT_FDCWD)
		rc = path_of(dirfd, ret);
	len = strlen(ret);
	if (!rc && (size_t)snprintf(ret + len, PATH_MAX - len, "%s%s", *name == '/' ? "" : "/",
				    name) >= PATH_MAX - len)
		rc = -ENAMETOOLONG;
	return rc;
}

int mfs_fence_check(int dirfd, const char *name, int fd)
{
	const bool below = dirfd != AT_FDCWD && *name != '/';
	char dir[PATH_MAX], path[PATH_MAX], real[PATH_MAX];
	int rc;

	if (!atomic_load(&count))
		return 0;
	rc = absolute_path(dirfd, name, path);
	if (!rc && below)
		rc = path_of(dirfd, dir);
	if (!rc)
		rc = path_of(fd, real);
	return rc ? rc : allows_below(below ? dir : NULL, path, real) ? 0 : -ENOLINK;
}

int mfs_fence_check_path(const char *path)
{
	int fd, rc;

	if (!atomic_load(&count))
		return 0;
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	rc = mfs_fence_check(AT_FDCWD, path, fd);
	close(fd);
	return rc;
}
