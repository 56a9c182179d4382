#define _GNU_SOURCE
#include "formats/run/losses.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/base/hash.h"
#include "formats/io/directory.h"
#include "formats/io/regular.h"
#include "formats/run/event_file.h"
#include "formats/run/loss_table.h"

#define EVENTS "events.out.tfevents."
#define TABLE  "loss.csv"
#define NAMES  100000 /* of one directory that are looked at */
#define WINDOW (1u << 20)

_Static_assert(WINDOW > 2 * MFS_EVENT_BYTES, "a record fits into half a window");

/* Below the run's directory; "." is itself. */
static const char *const places[] = {".",    "tensorboard", "tensorboard_logs", "tb_logs", "tb",
				     "logs", "runs"};

struct found {
	int dir; /* a descriptor, of places */
	char *name;
	struct stat st;
	bool is_table;
};

struct search {
	int dirs[MFS_ARRAY_SIZE(places)];
	unsigned dir_count;
	struct found *files;
	uint32_t count;
	bool failed;
};

/* ---- looking for files ---- */

static void add_file(struct search *s, int dir, const char *name)
{
	struct found f = {.dir = dir, .is_table = !strcmp(name, TABLE)};

	if (!f.is_table && strncmp(name, EVENTS, strlen(EVENTS)) != 0)
		return;
	if (fstatat(dir, name, &f.st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(f.st.st_mode))
		return;
	f.name = strdup(name);
	if (!f.name || mfs_grow(&s->files, s->count)) {
		free(f.name);
		s->failed = true;
		return;
	}
	s->files[s->count++] = f;
}

static void look_at(struct search *s, int dir)
{
	const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	unsigned names = 0;

	if (!d && copy >= 0)
		close(copy);
	for (struct dirent *e; d && names++ < NAMES && (e = readdir(d));)
		add_file(s, dir, e->d_name);
	if (d)
		closedir(d);
}

/* Tables first, and the newest event files before the others: their names begin with a time. */
static int order(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->is_table != y->is_table)
		return x->is_table ? -1 : 1;
	return strcmp(y->name, x->name);
}

static void search(const char *run, struct search *s)
{
	const int top = mfs_open_directory(run);

	*s = (struct search){0};
	for (size_t i = 0; i < MFS_ARRAY_SIZE(places) && top >= 0; i++) {
		const int dir =
			openat(top, places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

		if (dir < 0)
			continue;
		s->dirs[s->dir_count++] = dir;
		look_at(s, dir);
	}
	if (top >= 0)
		close(top);
	if (s->count)
		qsort(s->files, s->count, sizeof(*s->files), order);
}

static void end_search(struct search *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		free(s->files[i].name);
	for (unsigned i = 0; i < s->dir_count; i++)
		close(s->dirs[i]);
	free(s->files);
}

uint64_t mfs_losses_stamp(const char *dir)
{
	struct search s;
	uint64_t stamp;

	search(dir, &s);
	stamp = s.count;
	for (uint32_t i = 0; i < s.count; i++) {
		const struct found *f = &s.files[i];
		const uint64_t of[] = {mfs_hash(f->name, strlen(f->name)), (uint64_t)f->st.st_ino,
				       (uint64_t)f->st.st_size, (uint64_t)mfs_ns(f->st.st_mtim)};

		stamp = mfs_hash(of, sizeof(of)) + 31 * stamp;
	}
	end_search(&s);
	return stamp;
}

/* ---- reading ---- */

/* A curve for each name of a loss: which of them a run has is known at the end. */
struct curves {
	struct mfs_curve of[MFS_LOSS_NAMES];
	uint64_t bytes; /* that may still be read */
};

static int take_scalar(void *arg, const struct mfs_scalar *s)
{
	struct curves *c = arg;
	const int rank = mfs_loss_rank(s->tag, s->tag_len);

	return rank < 0 ? 0 : mfs_curve_add(&c->of[rank], s->step, s->value);
}

/* Window by window; a record that a window's end cuts is read with the next one. One that is passed
 * over costs what was read of it, however long it says that it is. */
static int read_events(int fd, const struct found *f, uint8_t *window, struct curves *c,
		       struct mfs_error *err)
{
	size_t used;
	uint64_t skip;

	for (off_t at = 0;; at += (off_t)(used + skip)) {
		const ssize_t n =
			c->bytes ? pread(fd, window, mfs_min_u64(WINDOW, c->bytes), at) : 0;
		int rc;

		if (n <= 0)
			return n ? mfs_fail_errno(err, "%s", f->name) : 0;
		rc = mfs_event_records(f->name, window, (size_t)n, take_scalar, c, &used, &skip,
				       err);
		if (rc == -ENOMEM)
			return mfs_fail_nomem(err);
		if (rc || (!used && !skip) || skip > INT64_MAX / 2)
			return rc;
		c->bytes -= mfs_min_u64(skip ? (uint64_t)n : used, c->bytes);
	}
}

static int read_table(int fd, const struct found *f, struct mfs_curve *ret, struct mfs_error *err)
{
	const uint64_t size = mfs_min_u64((uint64_t)f->st.st_size, MFS_LOSS_TABLE_BYTES);
	char *text = malloc(size + 1);
	ssize_t n = text ? pread(fd, text, size, 0) : 0;
	int rc;

	if (!text)
		return mfs_fail_nomem(err);
	rc = n < 0 ? mfs_fail_errno(err, "%s", f->name)
		   : mfs_loss_table_read(f->name, text, (size_t)n, ret, err);
	free(text);
	return rc;
}

static int read_file(const struct found *f, uint8_t *window, struct curves *c,
		     struct mfs_curve *table, struct mfs_error *err)
{
	int fd, rc = mfs_open_regular(f->dir, f->name, O_NOFOLLOW, &fd, NULL);

	if (rc)
		return mfs_fail(err, rc, "%s: %s", f->name, mfs_open_regular_why(rc));
	rc = f->is_table ? read_table(fd, f, table, err) : read_events(fd, f, window, c, err);
	close(fd);
	return rc;
}

/* From the oldest file on, so that what was done again counts. */
static int read_files(const struct search *s, struct curves *c, struct mfs_curve *table,
		      struct mfs_error *note)
{
	const uint32_t count = s->count < MFS_LOSSES_FILES ? s->count : MFS_LOSSES_FILES;
	uint8_t *window = malloc(WINDOW);
	int rc = window ? 0 : -ENOMEM;

	for (uint32_t i = count; i-- && rc != -ENOMEM;) {
		struct mfs_error err;

		rc = read_file(&s->files[i], window, c, table, &err);
		if (rc && !note->code)
			*note = err;
	}
	free(window);
	return rc == -ENOMEM ? rc : 0;
}

/* The best known name of those that have points; else the table. */
static void choose(struct curves *c, struct mfs_curve *table, struct mfs_curve *ret)
{
	for (int i = 0; i < MFS_LOSS_NAMES; i++) {
		if (c->of[i].count && !ret->count)
			*ret = c->of[i];
		else
			mfs_curve_release(&c->of[i]);
	}
	if (!ret->count)
		*ret = *table;
	else
		mfs_curve_release(table);
	mfs_curve_finish(ret);
}

int mfs_losses_read(const char *dir, struct mfs_curve *ret, struct mfs_error *note)
{
	struct curves c = {.bytes = MFS_LOSSES_BYTES};
	struct mfs_curve table = {0};
	struct search s;
	int rc;

	*ret = (struct mfs_curve){0};
	*note = (struct mfs_error){0};
	search(dir, &s);
	rc = s.failed ? -ENOMEM : read_files(&s, &c, &table, note);
	end_search(&s);
	choose(&c, &table, ret);
	if (rc)
		mfs_curve_release(ret);
	return rc;
}
