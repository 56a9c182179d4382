/* Begins an indexed dataset or resumes one: which files are there, and who has written them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/indexed/indexed_dataset_write_i.h"
#include "formats/io/lock.h"

static int open_directory(struct mfs_indexed_writer *w, const char *prefix, struct mfs_error *err)
{
	char *slash;

	w->prefix = strdup(prefix);
	if (!w->prefix)
		return mfs_fail_nomem(err);
	slash = strrchr(w->prefix, '/');
	w->base = slash ? slash + 1 : w->prefix;
	if (slash)
		*slash = '\0';
	w->dirfd = open(!slash		     ? "."
			: slash == w->prefix ? "/"
					     : w->prefix,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (slash)
		*slash = '/';
	if (w->dirfd < 0)
		return mfs_fail_errno(err, "cannot open the directory of '%s'", prefix);
	return *w->base ? 0 : mfs_fail(err, -EINVAL, "'%s' names no dataset", prefix);
}

/* ---- the lock ---- */

/* Whether the locked file still has its name. A process that finished in the meantime has removed
 * it. */
static bool has_name(const struct mfs_indexed_writer *w, const char *name, int fd)
{
	struct stat held, named;

	return !fstat(fd, &held) && !fstatat(w->dirfd, name, &named, AT_SYMLINK_NOFOLLOW) &&
	       held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

/* The lock goes with the descriptor, however the process ends. */
static int lock(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	const char *suffix = mfs_indexed_suffix(STREAM_LENGTHS);
	struct mfs_indexed_out *o = &w->out[STREAM_LENGTHS];
	char name[NAME_MAX + 1];
	int rc = mfs_indexed_name(w, suffix, name, sizeof(name), err);

	while (!rc) {
		o->fd = openat(w->dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (o->fd < 0)
			return mfs_indexed_failed(w, -errno, "open", suffix, err);
		rc = mfs_lock_try(o->fd, NULL);
		if (rc == -EBUSY)
			return mfs_fail(err, rc, "another process is writing '%s'", w->prefix);
		if (rc)
			return mfs_indexed_failed(w, rc, "lock", suffix, err);
		if (has_name(w, name, o->fd))
			return 0;
		close(o->fd);
		o->fd = -1;
	}
	return rc;
}

/* ---- what is there ---- */

struct found {
	bool idx, bin, part, journal;
};

static int look(const struct mfs_indexed_writer *w, struct found *ret, struct mfs_error *err)
{
	int rc = mfs_indexed_exists(w, ".idx", &ret->idx, err);

	if (!rc)
		rc = mfs_indexed_exists(w, ".bin", &ret->bin, err);
	if (!rc)
		rc = mfs_indexed_exists(w, ".bin.part", &ret->part, err);
	return rc ? rc : mfs_indexed_exists(w, ".journal", &ret->journal, err);
}

static int refuse(const struct mfs_indexed_writer *w, const char *suffix, struct mfs_error *err)
{
	return mfs_fail(err, -EEXIST, "'%s%s' is there already", w->prefix, suffix);
}

/* The dataset is complete. If the last run was stopped at that moment, its parts are still to be
 * removed. */
static bool is_complete(const struct found *f, const struct mfs_indexed_writer_config *c)
{
	return f->idx && f->bin && !f->part && (f->journal || !c->replace);
}

static int resume(struct mfs_indexed_writer *w, struct found *f, struct mfs_error *err)
{
	bool loaded;
	int rc;

	if (is_complete(f, &w->config)) {
		rc = mfs_indexed_remove_parts(w, err);
		return rc ? rc : mfs_fail(err, -EALREADY, "'%s' is complete", w->prefix);
	}
	rc = f->journal ? mfs_indexed_journal_load(w, &loaded, err) : 0;
	/* The run was stopped between the last two names: the .bin has its name, the .idx is still
	 * to be made. */
	if (!rc && f->journal && f->bin && !f->part) {
		rc = mfs_indexed_rename(w, ".bin", ".bin.part", err);
		f->bin = false;
	}
	return rc;
}

static int decide(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	const struct mfs_indexed_writer_config *c = &w->config;
	struct found f;
	int rc = look(w, &f, err);

	if (!rc && c->resume)
		rc = resume(w, &f, err);
	if (rc)
		return rc;
	if (f.idx && !c->replace)
		return refuse(w, ".idx", err);
	if (f.journal && !c->resume && !c->replace)
		return mfs_fail(err, -EINPROGRESS, "'%s' has been begun and is not finished",
				w->prefix);
	if (f.bin && !c->replace)
		return refuse(w, ".bin", err);
	/* What is begun anew must not be taken for the older one later. */
	if (f.journal && !c->resume)
		rc = mfs_indexed_remove(w, ".journal", err);
	return rc ? rc : mfs_indexed_sync_dir(w, err);
}

/* ---- streams ---- */

/* Opens a stream and keeps its first `size` bytes. What an interrupted run wrote after them is
 * removed. */
static int open_stream(struct mfs_indexed_writer *w, enum mfs_indexed_stream s, uint64_t size,
		       struct mfs_error *err)
{
	struct mfs_indexed_out *o = &w->out[s];
	const char *suffix = mfs_indexed_suffix(s);
	char name[NAME_MAX + 1];
	struct stat st;
	int rc = mfs_indexed_name(w, suffix, name, sizeof(name), err);

	if (rc)
		return rc;
	o->buffer = malloc(STREAM_BUFFER);
	if (!o->buffer)
		return mfs_fail_nomem(err);
	if (o->fd < 0)
		o->fd = openat(w->dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (o->fd < 0 || fstat(o->fd, &st))
		return mfs_indexed_failed(w, -errno, "open", suffix, err);
	/* What follows cuts it: a second name would be that of somebody's file. */
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return mfs_fail(err, -EINVAL,
				"'%s%s' is not a file of its own: it cannot be written", w->prefix,
				suffix);
	if ((uint64_t)st.st_size < size)
		return mfs_fail(
			err, -EINVAL,
			"'%s%s' has %lld bytes, but its journal says %llu: it cannot be resumed",
			w->prefix, suffix, (long long)st.st_size, (unsigned long long)size);
	if (ftruncate(o->fd, (off_t)size) || lseek(o->fd, (off_t)size, SEEK_SET) < 0)
		return mfs_indexed_failed(w, -errno, "cut", suffix, err);
	o->size = o->started = size;
	return 0;
}

static int open_streams(struct mfs_indexed_writer *w, struct mfs_error *err)
{
	const uint64_t kept[STREAMS] = {
		[STREAM_LENGTHS] = 4 * w->ended.sequences,
		[STREAM_BIN] = w->ended.bytes,
		[STREAM_DOCUMENTS] = 8 * w->ended.documents,
		[STREAM_MODES] = w->ended.sequences,
	};
	int rc = 0;

	for (enum mfs_indexed_stream s = 0; s < STREAMS && !rc; s++)
		rc = mfs_indexed_in_use(w, s) ? open_stream(w, s, kept[s], err) : 0;
	w->sequences = w->ended.sequences;
	return rc;
}

/* ---- */

/* A lock that was made for nothing is removed again. */
static void tidy(struct mfs_indexed_writer *w)
{
	struct found f;
	struct stat st;
	const int fd = w->out[STREAM_LENGTHS].fd;

	if (fd >= 0 && !fstat(fd, &st) && !st.st_size && !look(w, &f, NULL) && !f.journal &&
	    !f.part)
		mfs_indexed_remove(w, mfs_indexed_suffix(STREAM_LENGTHS), NULL);
}

static int open_writer(struct mfs_indexed_writer *w, const char *prefix, struct mfs_error *err)
{
	int rc = open_directory(w, prefix, err);

	if (!rc)
		rc = lock(w, err);
	if (rc)
		return rc;
	rc = decide(w, err);
	if (!rc)
		rc = open_streams(w, err);
	if (rc)
		tidy(w);
	return rc;
}

int mfs_indexed_writer_open(const char *prefix, const struct mfs_indexed_writer_config *config,
			    struct mfs_indexed_writer **ret, struct mfs_error *err)
{
	struct mfs_indexed_writer *w;
	int rc;

	if (!mfs_idx_code(config->dtype))
		return mfs_fail(err, -EINVAL, "an indexed dataset cannot hold %s",
				mfs_dtype_torch(config->dtype));
	w = calloc(1, sizeof(*w));
	if (!w)
		return mfs_fail_nomem(err);
	for (enum mfs_indexed_stream s = 0; s < STREAMS; s++)
		w->out[s].fd = -1;
	w->dirfd = -1;
	w->config = *config;
	w->code = mfs_idx_code(config->dtype);
	w->token_size = mfs_dtype_size(config->dtype);
	rc = open_writer(w, prefix, err);
	if (rc) {
		mfs_indexed_writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

const char *mfs_indexed_writer_note(const struct mfs_indexed_writer *w)
{
	return w->note;
}

void mfs_indexed_writer_free(struct mfs_indexed_writer *w)
{
	if (!w)
		return;
	for (enum mfs_indexed_stream s = 0; s < STREAMS; s++) {
		if (w->out[s].fd >= 0)
			close(w->out[s].fd);
		free(w->out[s].buffer);
	}
	if (w->dirfd >= 0)
		close(w->dirfd);
	free(w->prefix);
	free(w);
}
