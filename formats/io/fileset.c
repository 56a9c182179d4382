#define _GNU_SOURCE
#include "formats/io/fileset.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/base/tally.h"
#include "formats/base/trace.h"
#include "formats/io/backing.h"
#include "formats/io/census.h"
#include "formats/io/file_system.h"
#include "formats/io/regular.h"
#include "formats/io/walk.h"
#include "formats/io/whole.h"

/* Mapped bytes handed out before their page-table entries are dropped. */
#define RESIDENT_LIMIT (32u << 20)
/* The kernel cuts one request for read-ahead at the device's read-ahead or I/O size, whichever is
 * larger (mm/readahead.c: force_page_cache_ra); 128 KiB is the smallest default. */
#define READ_AHEAD_STEP (128u << 10)
/* below it, a read is of a header and what follows is not wanted */
#define SMALL_READ (64u << 10)

struct file {
	char *name;
	dev_t dev;
	ino_t ino;
	uid_t owner;
	uint64_t size, disk;
	struct timespec mtime, ctime;
	const struct mfs_backing *backing; /* NULL: all bytes are on this disk */
	_Atomic(uint8_t *) map;		   /* NULL until first use */
	int held;			   /* a descriptor of it, while the set is held; -1: none */
	atomic_int kept;		   /* one that reads share, if they are to; -1: none */
};

struct mfs_fileset {
	char *dir;
	int dirfd; /* O_PATH */
	uint32_t count;
	struct file **files; /* pointers: readers keep theirs while the table grows */
	_Atomic uint64_t served;
	atomic_bool changed; /* one of them was found to have */
	atomic_int remote;   /* 1: a file is on another machine; -1: none is; 0: nobody has asked */
	atomic_uint holders; /* raised from 0 under the lock alone */
	pthread_mutex_t holding; /* what follows, and the files' held while there are no holders */
	bool held, backed, keeps_open;
	_Atomic(struct mfs_census *) census; /* NULL: nobody has asked for it */
	struct mfs_access_fold access;	     /* who may read all files */
	unsigned granted; /* classes that may read each file, whatever the directories say */
};

int mfs_fileset_new(const char *dir, struct mfs_fileset **ret, struct mfs_error *err)
{
	struct mfs_fileset *set = calloc(1, sizeof(*set));
	struct stat st;
	int rc;

	if (!set)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&set->holding, NULL);
	rc = mfs_walk(AT_FDCWD, dir, &set->access, &set->dirfd, &st);
	if (!rc && !S_ISDIR(st.st_mode)) {
		close(set->dirfd);
		rc = -ENOTDIR;
	}
	if (rc) {
		pthread_mutex_destroy(&set->holding);
		free(set);
		return mfs_fail(err, rc, "cannot open directory '%s': %s", dir,
				mfs_errno_text(-rc));
	}
	set->granted = MFS_ACCESS_ALL;
	set->dir = strdup(dir);
	if (!set->dir) {
		mfs_fileset_free(set);
		return mfs_fail_nomem(err);
	}
	*ret = set;
	return 0;
}

/* ---- holding ---- */

static atomic_uint held_descriptors; /* of all sets */

static void release_file(struct file *f)
{
	if (f->held < 0)
		return;
	close(f->held);
	f->held = -1;
	atomic_fetch_sub(&held_descriptors, 1);
}

static void release_kept(struct file *f)
{
	if (f->kept < 0)
		return;
	close(f->kept);
	f->kept = -1;
	atomic_fetch_sub(&held_descriptors, 1);
}

void mfs_fileset_free(struct mfs_fileset *set)
{
	if (!set)
		return;
	for (uint32_t i = 0; i < set->count; i++) {
		struct file *f = set->files[i];

		if (f->map)
			munmap(f->map, f->size);
		release_file(f);
		release_kept(f);
		free(f->name);
		free(f);
	}
	close(set->dirfd);
	pthread_mutex_destroy(&set->holding);
	mfs_census_unref(set->census);
	free(set->files);
	free(set->dir);
	free(set);
}

/* A name from a checkpoint must not lead out of its directory. */
static bool name_escapes(const char *name)
{
	if (!*name || *name == '/')
		return true;
	for (const char *p = name; p; p = strchr(p, '/')) {
		p += *p == '/';
		if (!strncmp(p, "..", 2) && (!p[2] || p[2] == '/'))
			return true;
	}
	return false;
}

/* A file as it is now, and who may read it: the directories below the set's own, and the file. */
static int look_at(const struct mfs_fileset *set, const char *name, struct mfs_access_fold *access,
		   unsigned *ret_granted, struct stat *st)
{
	struct mfs_access_fold own = {0};
	int fd, rc = mfs_walk(set->dirfd, name, access, &fd, st);

	if (rc)
		return rc;
	mfs_walk_count(fd, st, MFS_ACCESS_READ, &own);
	close(fd);
	mfs_access_name(&own, st);
	mfs_access_merge(access, &own);
	*ret_granted = own.count ? own.rules[0].bits : MFS_ACCESS_ALL;
	return 0;
}

int mfs_fileset_add(struct mfs_fileset *set, const char *name, uint32_t *ret_file,
		    struct mfs_error *err)
{
	struct mfs_access_fold access = set->access;
	unsigned granted;
	struct stat st;
	struct file *f;
	int rc;

	if (name_escapes(name))
		return mfs_fail(err, -EINVAL, "%s: file name '%s' leads out of the checkpoint",
				set->dir, name);
	rc = look_at(set, name, &access, &granted, &st);
	if (rc)
		return mfs_fail(err, rc, "%s/%s: %s", set->dir, name, mfs_errno_text(-rc));
	if (!S_ISREG(st.st_mode))
		return mfs_fail(err, -EINVAL, "%s/%s: not a regular file", set->dir, name);
	if (mfs_grow(&set->files, set->count))
		return mfs_fail_nomem(err);
	f = calloc(1, sizeof(*f));
	if (!f || !(f->name = strdup(name))) {
		free(f);
		return mfs_fail_nomem(err);
	}
	f->held = -1;
	f->kept = -1;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->owner = st.st_uid;
	f->size = (uint64_t)st.st_size;
	f->backing = mfs_backing_of(&st);
	f->disk = f->backing ? f->size : 512 * (uint64_t)st.st_blocks;
	set->backed |= f->backing != NULL;
	f->mtime = st.st_mtim;
	f->ctime = st.st_ctim;
	set->access = access;
	set->granted &= granted;
	set->files[set->count] = f;
	*ret_file = set->count++;
	return 0;
}

const char *mfs_fileset_dir(const struct mfs_fileset *set)
{
	return set->dir;
}

uint32_t mfs_fileset_count(const struct mfs_fileset *set)
{
	return set->count;
}

const char *mfs_fileset_name(const struct mfs_fileset *set, uint32_t file)
{
	return set->files[file]->name;
}

uint64_t mfs_fileset_size(const struct mfs_fileset *set, uint32_t file)
{
	return set->files[file]->size;
}

uint64_t mfs_fileset_disk(const struct mfs_fileset *set, uint32_t file)
{
	return set->files[file]->disk;
}

int64_t mfs_fileset_mtime(const struct mfs_fileset *set, uint32_t file)
{
	return mfs_ns(set->files[file]->mtime);
}

const struct mfs_access_fold *mfs_fileset_access(const struct mfs_fileset *set)
{
	return &set->access;
}

unsigned mfs_fileset_granted(const struct mfs_fileset *set)
{
	return set->granted;
}

static struct mfs_census *new_census(const struct mfs_fileset *set)
{
	struct mfs_census *c;
	struct stat st;
	int rc = 0;

	if (fstat(set->dirfd, &st))
		return NULL;
	c = mfs_census_new(set->dir, st.st_dev, st.st_ino, set->count);
	for (uint32_t i = 0; c && i < set->count && !rc; i++)
		rc = mfs_census_add(c, set->files[i]->name, set->files[i]->dev, set->files[i]->ino);
	if (rc) {
		mfs_census_unref(c);
		return NULL;
	}
	return c;
}

struct mfs_census *mfs_fileset_census(struct mfs_fileset *set)
{
	struct mfs_census *c = atomic_load(&set->census), *made, *first = NULL;

	if (c)
		return mfs_census_ref(c);
	made = new_census(set);
	if (!made)
		return NULL;
	if (atomic_compare_exchange_strong(&set->census, &first, made))
		return mfs_census_ref(made);
	mfs_census_unref(made);
	return mfs_census_ref(first);
}

/* A server need not say when a file was changed, so its time may be the same for all versions. */
static uint64_t add_version(const struct file *f, uint64_t number)
{
	return f->backing ? XXH64(&f->backing->version, sizeof(f->backing->version), number)
			  : number;
}

uint64_t mfs_fileset_stamp(const struct mfs_fileset *set)
{
	uint64_t stamp = set->count;

	for (uint32_t i = 0; i < set->count; i++) {
		const struct file *f = set->files[i];
		const uint64_t v[] = {
			(uint64_t)f->dev,	   (uint64_t)f->ino,	       f->size,
			(uint64_t)f->mtime.tv_sec, (uint64_t)f->mtime.tv_nsec,
		};

		stamp = XXH64(v, sizeof(v), XXH64(f->name, strlen(f->name), stamp));
		stamp = add_version(f, stamp);
	}
	return stamp;
}

uint64_t mfs_fileset_identity(const struct mfs_fileset *set)
{
	uint64_t identity = set->count;

	for (uint32_t i = 0; i < set->count; i++) {
		const struct file *f = set->files[i];
		/* A server may say when a file was changed once and not the next time: HTTP has it
		 * leave out a time that is not past yet. The version is enough. */
		const struct timespec t = f->backing ? (struct timespec){0} : f->mtime;
		const uint64_t v[] = {f->size, (uint64_t)t.tv_sec, (uint64_t)t.tv_nsec};

		identity = XXH64(v, sizeof(v), XXH64(f->name, strlen(f->name), identity));
		identity = add_version(f, identity);
	}
	return identity;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* ctime does not count: a new link, owner or mode changes it, but not the bytes. Only a rewrite
 * that restores the old mtime is missed. */
static int compare(const struct mfs_fileset *set, const struct file *f, const struct stat *st,
		   struct mfs_error *err)
{
	if (f->dev != st->st_dev || f->ino != st->st_ino)
		return mfs_fail(err, -ESTALE, "%s/%s: replaced by another file since it was opened",
				set->dir, f->name);
	if (f->size != (uint64_t)st->st_size)
		return mfs_fail(err, -ESTALE, "%s/%s: expected %llu bytes, found %llu", set->dir,
				f->name, (unsigned long long)f->size,
				(unsigned long long)st->st_size);
	if (!same_time(&f->mtime, &st->st_mtim))
		return mfs_fail(err, -ESTALE, "%s/%s: modified since it was opened", set->dir,
				f->name);
	return 0;
}

/* Keeps the descriptors of a held set from being closed. False: nobody holds the set. */
static bool hold_again(struct mfs_fileset *set)
{
	unsigned holders = atomic_load_explicit(&set->holders, memory_order_relaxed);

	while (holders)
		if (atomic_compare_exchange_weak_explicit(&set->holders, &holders, holders + 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	return false;
}

void mfs_fileset_drop(struct mfs_fileset *set)
{
	if (atomic_fetch_sub_explicit(&set->holders, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_lock(&set->holding);
	if (!atomic_load(&set->holders) && set->held) {
		for (uint32_t i = 0; i < set->count; i++)
			release_file(set->files[i]);
		set->held = false;
	}
	pthread_mutex_unlock(&set->holding);
}

/* The name leads to no file or to another one; `why` says so. Is the file that was added still open
 * and unchanged? An error that this solves is not kept. */
static int check_held(struct mfs_fileset *set, const struct file *f, const struct mfs_error *why,
		      struct mfs_error *err)
{
	int rc = why->code;
	bool known = false;
	struct stat st;

	if (hold_again(set)) {
		known = f->held >= 0 && !fstat(f->held, &st);
		if (known)
			rc = compare(set, f, &st, err);
		mfs_fileset_drop(set);
	}
	if (!known && err)
		*err = *why;
	return rc;
}

static bool is_another(const struct file *f, const struct stat *st)
{
	return f->dev != st->st_dev || f->ino != st->st_ino;
}

static int check_file(struct mfs_fileset *set, uint32_t file, struct mfs_error *err)
{
	const struct file *f = set->files[file];
	struct mfs_error why;
	struct stat st;

	if (fstatat(set->dirfd, f->name, &st, 0)) {
		if (errno != ENOENT && errno != ENOTDIR)
			return mfs_fail_errno(err, "%s/%s", set->dir, f->name);
		mfs_fail(&why, -ESTALE, "%s/%s: %s", set->dir, f->name, strerror(errno));
		return check_held(set, f, &why, err);
	}
	if (!is_another(f, &st))
		return compare(set, f, &st, err);
	compare(set, f, &st, &why);
	return check_held(set, f, &why, err);
}

int mfs_fileset_check(struct mfs_fileset *set, uint32_t file, struct mfs_error *err)
{
	int rc = check_file(set, file, err);

	if (rc == -ESTALE && !atomic_exchange(&set->changed, true))
		mfs_tally_add(MFS_TALLY_CHANGED, 1);
	return rc;
}

int mfs_filesets_check(struct mfs_fileset *const *sets, size_t count, struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		for (uint32_t f = 0; f < sets[i]->count && !rc; f++)
			rc = mfs_fileset_check(sets[i], f, err);
	return rc;
}

/* A new descriptor of the file that is held, if it is as it was; else what why says. */
static int open_held(struct mfs_fileset *set, const struct file *f, const struct mfs_error *why,
		     int *ret_fd, struct mfs_error *err)
{
	int rc;

	if (!hold_again(set)) {
		if (err)
			*err = *why;
		return why->code;
	}
	rc = check_held(set, f, why, err);
	if (!rc) {
		*ret_fd = fcntl(f->held, F_DUPFD_CLOEXEC, 0);
		if (*ret_fd < 0)
			rc = mfs_fail_errno(err, "%s/%s", set->dir, f->name);
	}
	mfs_fileset_drop(set);
	return rc;
}

/* By its name: -ESTALE if that leads to another file by now, or to none; *ret_gone, which says
 * so. */
static int open_named(struct mfs_fileset *set, const struct file *f, int *ret_fd, bool *ret_gone,
		      struct mfs_error *err)
{
	struct stat st;
	int fd, rc = mfs_open_regular_as_is(set->dirfd, f->name, 0, &fd, &st);

	*ret_gone = rc == -ENOENT || rc == -ENOTDIR || rc == -EINVAL;
	if (rc)
		return mfs_fail(err, *ret_gone ? -ESTALE : rc, "%s/%s: %s", set->dir, f->name,
				mfs_open_regular_why(rc));
	rc = compare(set, f, &st, err);
	if (rc) {
		*ret_gone = is_another(f, &st);
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

/* The file as it was added, opened: -ESTALE if it is another one by now. */
static int open_same(struct mfs_fileset *set, const struct file *f, int *ret_fd,
		     struct mfs_error *err)
{
	struct mfs_error why;
	bool gone;
	int rc = open_named(set, f, ret_fd, &gone, &why);

	if (rc && gone)
		return open_held(set, f, &why, ret_fd, err);
	if (rc && err)
		*err = why;
	return rc;
}

const struct mfs_backing *mfs_fileset_backing(const struct mfs_fileset *set, uint32_t file)
{
	return set->files[file]->backing;
}

bool mfs_fileset_has_backings(const struct mfs_fileset *set)
{
	return set->backed;
}

static bool is_remote(struct mfs_fileset *set, uint32_t file)
{
	int fd;
	bool ret;

	if (mfs_fileset_open(set, file, &fd, NULL))
		return true;
	ret = mfs_file_system_of(fd) == MFS_FILE_SYSTEM_REMOTE;
	close(fd);
	return ret;
}

/* Of neighbours on one device, one is asked. */
bool mfs_fileset_is_remote(struct mfs_fileset *set)
{
	int ret = atomic_load(&set->remote);

	if (ret)
		return ret > 0;
	ret = set->backed ? 1 : -1;
	for (uint32_t i = 0; i < set->count && ret < 0; i++)
		if (!i || set->files[i]->dev != set->files[i - 1]->dev)
			ret = is_remote(set, i) ? 1 : -1;
	atomic_store(&set->remote, ret);
	return ret > 0;
}

/* Where its bytes are, as far as they are present. */
static int open_bytes(struct mfs_fileset *set, const struct file *f, int *ret_fd,
		      struct mfs_error *err)
{
	int rc = open_same(set, f, ret_fd, err);

	if (rc || !f->backing)
		return rc;
	close(*ret_fd);
	return f->backing->ops->open(f->backing->object, ret_fd, err);
}

static int fetch_whole(struct file *f, struct mfs_error *err)
{
	return f->backing ? f->backing->ops->keep(f->backing->object, err) : 0;
}

int mfs_fileset_open(struct mfs_fileset *set, uint32_t file, int *ret_fd, struct mfs_error *err)
{
	int rc = fetch_whole(set->files[file], err);

	return rc ? rc : open_bytes(set, set->files[file], ret_fd, err);
}

static bool may_hold_more(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_NOFILE, &limit) &&
	       atomic_load(&held_descriptors) < limit.rlim_cur / 2;
}

/* Under the lock, while nobody holds the set. */
static void hold_files(struct mfs_fileset *set)
{
	bool gone;

	for (uint32_t i = 0; i < set->count && may_hold_more(); i++)
		if (!open_named(set, set->files[i], &set->files[i]->held, &gone, NULL))
			atomic_fetch_add(&held_descriptors, 1);
	set->held = true;
}

void mfs_fileset_hold(struct mfs_fileset *set)
{
	if (hold_again(set))
		return;
	pthread_mutex_lock(&set->holding);
	if (!set->held)
		hold_files(set);
	atomic_fetch_add_explicit(&set->holders, 1, memory_order_release);
	pthread_mutex_unlock(&set->holding);
}

static int map_new(struct mfs_fileset *set, struct file *f, uint8_t **ret, struct mfs_error *err)
{
	uint8_t *map;
	int fd = -1, rc = open_bytes(set, f, &fd, err);

	if (rc)
		return rc;
	map = mmap(NULL, f->size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		rc = mfs_fail_errno(err, "%s/%s: cannot map %llu bytes", set->dir, f->name,
				    (unsigned long long)f->size);
	else
		*ret = map;
	if (!rc)
		MFS_TRACE(IO, "%s/%s: %llu bytes are mapped", set->dir, f->name,
			  (unsigned long long)f->size);
	close(fd);
	return rc;
}

int mfs_fileset_map(struct mfs_fileset *set, uint32_t file, const uint8_t **ret,
		    struct mfs_error *err)
{
	int rc = fetch_whole(set->files[file], err);

	return rc ? rc : mfs_fileset_map_part(set, file, ret, err);
}

int mfs_fileset_map_part(struct mfs_fileset *set, uint32_t file, const uint8_t **ret,
			 struct mfs_error *err)
{
	static const uint8_t nothing;
	struct file *f = set->files[file];
	uint8_t *map = atomic_load_explicit(&f->map, memory_order_acquire), *first = NULL;
	int rc;

	if (!map && !f->size) {
		*ret = &nothing;
		return 0;
	}
	if (!map) {
		rc = map_new(set, f, &map, err);
		if (rc)
			return rc;
		/* Two threads may have mapped at once: the first one's stays. */
		if (!atomic_compare_exchange_strong(&f->map, &first, map)) {
			munmap(map, f->size);
			map = first;
		}
	}
	*ret = map;
	return 0;
}

void mfs_fileset_keep_open(struct mfs_fileset *set, bool on)
{
	set->keeps_open = on;
	for (uint32_t i = 0; i < set->count && !on; i++)
		release_kept(set->files[i]);
}

/* Whether the next reads share this descriptor; then the caller does not close it. */
static bool keep(const struct mfs_fileset *set, struct file *f, int fd)
{
	int none = -1;

	if (!set->keeps_open || f->backing || !may_hold_more() ||
	    !atomic_compare_exchange_strong(&f->kept, &none, fd))
		return false;
	atomic_fetch_add(&held_descriptors, 1);
	return true;
}

/* A descriptor of the file that was added. *ret_kept: the caller does not close it. */
static int open_to_read(struct mfs_fileset *set, struct file *f, bool random, int *ret_fd,
			bool *ret_kept, struct mfs_error *err)
{
	struct stat st;
	int rc;

	*ret_fd = atomic_load(&f->kept);
	*ret_kept = *ret_fd >= 0;
	if (*ret_kept)
		return fstat(*ret_fd, &st) ? mfs_fail_errno(err, "%s/%s", set->dir, f->name)
					   : compare(set, f, &st, err);
	rc = open_bytes(set, f, ret_fd, err);
	if (rc)
		return rc;
	*ret_kept = keep(set, f, *ret_fd);
	if (random && !*ret_kept)
		posix_fadvise(*ret_fd, 0, 0, POSIX_FADV_RANDOM);
	return 0;
}

static int cannot_read(const struct mfs_fileset *set, const struct file *f, uint64_t off,
		       size_t len, int rc, struct mfs_error *err)
{
	return rc ? mfs_fail(err, -EIO, "%s/%s: cannot read bytes %llu+%zu: %s", set->dir, f->name,
			     (unsigned long long)off, len, strerror(-rc))
		  : 0;
}

/* By a descriptor that is open while the set is held. -EBADF: there is none. */
static int read_held(struct mfs_fileset *set, const struct file *f, uint64_t off, void *buf,
		     size_t len, struct mfs_error *err)
{
	int rc = -EBADF;
	struct stat st;

	if (f->backing || !hold_again(set))
		return rc;
	if (f->held >= 0 && !fstat(f->held, &st)) {
		rc = compare(set, f, &st, err);
		if (!rc)
			rc = cannot_read(set, f, off, len, mfs_pread_whole(f->held, off, buf, len),
					 err);
	}
	mfs_fileset_drop(set);
	return rc;
}

static int read_opened(struct mfs_fileset *set, struct file *f, uint64_t off, void *buf, size_t len,
		       struct mfs_error *err)
{
	bool kept;
	int fd, rc = open_to_read(set, f, len < SMALL_READ, &fd, &kept, err);

	if (rc)
		return rc;
	rc = cannot_read(set, f, off, len, mfs_pread_whole(fd, off, buf, len), err);
	if (!kept)
		close(fd);
	return rc;
}

/* It does not read through the mapping. A page fault there reads around itself, as far as the
 * device's read-ahead goes. For the headers of 30 000 records in a checkpoint that may be megabytes
 * each. */
int mfs_fileset_read(struct mfs_fileset *set, uint32_t file, uint64_t off, void *buf, size_t len,
		     struct mfs_error *err)
{
	struct file *f = set->files[file];
	const struct mfs_backing *b = f->backing;
	uint32_t pin = 0;
	int rc;

	if (!mfs_range_ok(off, len, f->size))
		return mfs_fail(err, -EINVAL, "%s/%s: bytes %llu+%zu lie beyond its end", set->dir,
				f->name, (unsigned long long)off, len);
	rc = b ? b->ops->acquire(b->object, off, len, &pin, err) : 0;
	if (rc)
		return rc;
	rc = read_held(set, f, off, buf, len, err);
	if (rc == -EBADF)
		rc = read_opened(set, f, off, buf, len, err);
	if (b)
		b->ops->release(b->object, pin);
	return rc;
}

/* mincore() tells the truth about a mapping to root and to the file's owner, and "all there" to
 * others (mm/mincore.c: can_do_mincore). */
static bool in_memory(const struct file *f, uint8_t *start, size_t len, size_t page)
{
	unsigned char resident[READ_AHEAD_STEP / 4096];

	if (geteuid() && geteuid() != f->owner)
		return false;
	if (mincore(start, len, resident))
		return false;
	for (size_t i = 0; i < (len + page - 1) / page; i++)
		if (!(resident[i] & 1))
			return false;
	return true;
}

void mfs_fileset_willneed(struct mfs_fileset *set, uint32_t file, uint64_t off, uint64_t len)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const struct file *f = set->files[file];
	uint8_t *map = atomic_load_explicit(&f->map, memory_order_acquire);
	uint64_t start = off & ~(page - 1), end;

	if (f->backing)
		f->backing->ops->willneed(f->backing->object, off, len);
	if (!map || off >= f->size || f->backing)
		return;
	end = off + mfs_min_u64(len, f->size - off);
	for (; start < end; start += READ_AHEAD_STEP) {
		size_t n = mfs_min_u64(READ_AHEAD_STEP, end - start);

		if (!in_memory(f, map + start, n, page))
			madvise(map + start, n, MADV_WILLNEED);
	}
}

void mfs_fileset_served(struct mfs_fileset *set, uint64_t bytes)
{
	uint64_t before = atomic_fetch_add_explicit(&set->served, bytes, memory_order_relaxed);

	if (before / RESIDENT_LIMIT == (before + bytes) / RESIDENT_LIMIT)
		return;
	/* One thread in every RESIDENT_LIMIT bytes gets here; others fault their pages in again. */
	for (uint32_t i = 0; i < set->count; i++) {
		uint8_t *map = atomic_load_explicit(&set->files[i]->map, memory_order_acquire);

		if (map)
			madvise(map, set->files[i]->size, MADV_DONTNEED);
	}
}
