#define _GNU_SOURCE
#include "trainer/data/token_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/io/fileset.h"

#define FIRST_PARTS 16
#define MAX_FILES   1024 /* held open; others are read through their rows */

struct file {
	struct mfs_fileset *set;
	uint32_t file;
	int fd;		  /* -1: it could not be opened */
	uint64_t checked; /* the last microbatch for which it was found unchanged */
};

struct mft_fetcher {
	struct mfs_samples *samples;
	struct mfs_io_engine *engine;
	unsigned depth;
	struct file *files;
	uint32_t file_count, file_limit, last_file;
	uint64_t planned; /* microbatches */
	int16_t *member;  /* of a microbatch's samples */
	int64_t *sample;
	uint32_t room;
};

int mft_fetcher_new(struct mfs_samples *samples, struct mfs_io_engine *engine, unsigned depth,
		    struct mft_fetcher **ret, struct mfs_error *err)
{
	struct mft_fetcher *f = calloc(1, sizeof(*f));
	struct rlimit limit;

	if (!f) {
		mfs_io_engine_free(engine);
		return mfs_fail_nomem(err);
	}
	f->samples = samples;
	f->engine = engine;
	f->depth = depth;
	f->file_limit = MAX_FILES;
	if (!getrlimit(RLIMIT_NOFILE, &limit))
		f->file_limit = (uint32_t)mfs_min_u64(MAX_FILES, limit.rlim_cur / 4);
	*ret = f;
	return 0;
}

void mft_fetcher_free(struct mft_fetcher *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->file_count; i++)
		if (f->files[i].fd >= 0)
			close(f->files[i].fd);
	mfs_io_engine_free(f->engine);
	free(f->files);
	free(f->member);
	free(f->sample);
	free(f);
}

/* ---- files ---- */

static struct file *find_file(struct mft_fetcher *f, const struct mfs_bin_extent *e)
{
	for (uint32_t i = 0; i < f->file_count; i++) {
		const uint32_t at = (f->last_file + i) % f->file_count;

		if (f->files[at].set == e->set && f->files[at].file == e->file) {
			f->last_file = at;
			return &f->files[at];
		}
	}
	return NULL;
}

static int add_file(struct mft_fetcher *f, const struct mfs_bin_extent *e, struct file **ret,
		    struct mfs_error *err)
{
	struct file new = {.set = e->set, .file = e->file, .fd = -1};
	int rc = mfs_fileset_check(e->set, e->file, err);

	if (!rc && mfs_grow(&f->files, f->file_count))
		rc = mfs_fail_nomem(err);
	if (rc)
		return rc;
	if (f->file_count < f->file_limit && mfs_fileset_open(e->set, e->file, &new.fd, NULL))
		new.fd = -1;
	f->files[f->file_count] = new;
	*ret = &f->files[f->file_count++];
	return 0;
}

/* The file of an extent, found unchanged once a microbatch. */
static int open_file(struct mft_fetcher *f, const struct mfs_bin_extent *e, int *ret_fd,
		     struct mfs_error *err)
{
	struct file *file = find_file(f, e);
	int rc = 0;

	if (!file)
		rc = add_file(f, e, &file, err);
	else if (file->checked != f->planned)
		rc = mfs_fileset_check(e->set, e->file, err);
	if (rc)
		return rc;
	file->checked = f->planned;
	*ret_fd = file->fd;
	return 0;
}

/* ---- planning ---- */

struct planner {
	struct mft_fetcher *f;
	struct mft_fetch *p;
	const struct mfs_rows *rows; /* of the sample at hand */
	uint32_t at;
};

static int add_part(struct planner *x, const struct mft_fetch_part *part, struct mfs_error *err)
{
	struct mft_fetch *p = x->p;

	if (p->part_count == p->part_room) {
		const uint32_t room = p->part_room ? 2 * p->part_room : FIRST_PARTS;
		struct mft_fetch_part *parts = reallocarray(p->parts, room, sizeof(*parts));

		if (!parts)
			return mfs_fail_nomem(err);
		p->parts = parts;
		p->part_room = room;
	}
	p->parts[p->part_count++] = *part;
	x->at += part->count;
	return 0;
}

/* Tokens that no file holds, or one that is not held open. */
static int read_through(struct planner *x, uint64_t t, uint32_t count, struct mfs_error *err)
{
	const struct mft_fetch_part part = {
		.rows = x->rows, .at = x->at, .count = count, .wide = true};
	int rc = mfs_rows_read_int64(x->rows, t, count, x->p->raw + x->at, err);

	x->p->bytes += (uint64_t)count * x->rows->token_size;
	return rc ? rc : add_part(x, &part, err);
}

static int add_extent(struct planner *x, uint64_t t, const struct mfs_bin_extent *e,
		      struct mfs_error *err)
{
	const uint32_t count = (uint32_t)(e->len / x->rows->token_size);
	struct mft_fetch_part part = {.rows = x->rows,
				      .at = x->at,
				      .count = count,
				      .read = true,
				      .io = {.kind = MFS_IO_READ, .off = e->offset, .iov_count = 1},
				      .iov = {x->p->raw + x->at, e->len},
				      .set = e->set,
				      .file = e->file,
				      .offset = e->offset,
				      .of = x->p};
	int rc = open_file(x->f, e, &part.io.fd, err);

	if (rc)
		return rc;
	if (part.io.fd < 0)
		return read_through(x, t, count, err);
	x->p->left++;
	x->p->bytes += e->len;
	return add_part(x, &part, err);
}

/* mfs_gpt_piece_fn */
static int add_piece(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *err)
{
	const int32_t number = (int32_t)piece->sequence;
	struct planner *x = arg;
	uint64_t t, end;
	int rc = mfs_rows_gather_starts(x->rows, &number, 1, &t, err);

	if (rc)
		return rc;
	t += piece->from;
	end = t + piece->count;
	for (uint32_t n; t < end; t += n) {
		const uint32_t before = x->at;
		struct mfs_bin_extent e;

		rc = mfs_rows_extent(x->rows, t, end - t, &e, err);
		if (rc == -ENODATA)
			rc = read_through(x, t, (uint32_t)(end - t), err);
		else if (!rc)
			rc = add_extent(x, t, &e, err);
		if (rc)
			return rc;
		n = x->at - before;
	}
	return 0;
}

static int add_padding(struct planner *x, uint32_t count, struct mfs_error *err)
{
	const struct mft_fetch_part part = {.at = x->at, .count = count, .lacking = true};

	return count ? add_part(x, &part, err) : 0;
}

static int make_room(struct mft_fetcher *f, uint32_t count, struct mfs_error *err)
{
	if (count <= f->room)
		return 0;
	free(f->member);
	free(f->sample);
	f->member = calloc(count, sizeof(*f->member));
	f->sample = calloc(count, sizeof(*f->sample));
	f->room = f->member && f->sample ? count : 0;
	return f->room ? 0 : mfs_fail_nomem(err);
}

static int locate(struct mft_fetcher *f, const uint64_t *samples, uint32_t count,
		  struct mfs_error *err)
{
	int rc = make_room(f, count, err);

	for (uint32_t i = 0; i < count && !rc; i++)
		rc = mfs_samples_locate(f->samples, samples[i], 1, &f->member[i], &f->sample[i],
					err);
	return rc ? rc : mfs_samples_build(f->samples, f->member, count, 0, err);
}

/* Requests point to themselves, so they are tied when the array has its place. */
static void tie(struct mft_fetch *p)
{
	for (uint32_t i = 0; i < p->part_count; i++)
		p->parts[i].io.iov = &p->parts[i].iov;
}

int mft_fetch_plan(struct mft_fetcher *f, const uint64_t *samples, uint32_t count,
		   struct mft_fetch *ret, struct mfs_error *err)
{
	struct planner x = {.f = f, .p = ret};
	int rc = locate(f, samples, count, err);

	f->planned++;
	ret->part_count = ret->next = ret->left = 0;
	ret->bytes = 0;
	ret->rc = 0;
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_samples_member *m =
			mfs_samples_member(f->samples, (uint32_t)f->member[i]);
		uint32_t padding;

		x.rows = m->rows;
		rc = mfs_gpt_dataset_pieces(m->gpt, (uint64_t)f->sample[i], add_piece, &x, &padding,
					    err);
		if (!rc)
			rc = add_padding(&x, padding, err);
	}
	tie(ret);
	return rc;
}

/* ---- reading ---- */

int mft_fetch_submit(struct mft_fetcher *f, struct mft_fetch *p, struct mfs_error *err)
{
	for (; p->next < p->part_count; p->next++) {
		struct mft_fetch_part *part = &p->parts[p->next];
		int rc;

		if (!part->read)
			continue;
		if (mfs_io_in_flight(f->engine) == f->depth)
			break;
		rc = mfs_io_submit(f->engine, &part->io);
		if (rc)
			return mfs_fail(err, rc, "%s takes no read: %s",
					mfs_io_engine_name(f->engine), strerror(-rc));
	}
	return 0;
}

/* A read that met the end of its file is -EIO, as others are. */
static const char *why_not(const struct mft_fetch_part *part, int rc)
{
	const uint64_t end = part->offset + (uint64_t)part->count * part->rows->token_size;
	struct stat st;

	if (rc == -EIO && !fstat(part->io.fd, &st) && (uint64_t)st.st_size < end)
		return "the file has become shorter";
	return strerror(-rc);
}

static void note(struct mft_fetch_part *part)
{
	struct mft_fetch *p = part->of;
	const int rc = part->io.result;

	p->left--;
	if (!rc || p->rc)
		return;
	p->rc = mfs_fail(&p->err, rc, "%s/%s: bytes %llu+%llu cannot be read: %s",
			 mfs_fileset_dir(part->set), mfs_fileset_name(part->set, part->file),
			 (unsigned long long)part->offset,
			 (unsigned long long)part->count * part->rows->token_size,
			 why_not(part, rc));
}

static int wait_for_one(struct mft_fetcher *f, struct mfs_error *err)
{
	struct mfs_io *done;
	int rc;

	do {
		rc = mfs_io_wait(f->engine, &done);
	} while (rc == -EINTR);
	if (rc)
		return mfs_fail(err, rc, "%s loses reads: %s", mfs_io_engine_name(f->engine),
				strerror(-rc));
	note((struct mft_fetch_part *)((char *)done - offsetof(struct mft_fetch_part, io)));
	return 0;
}

int mft_fetch_finish(struct mft_fetcher *f, struct mft_fetch *p, struct mfs_error *err)
{
	int rc = 0;

	while (p->left && !rc) {
		rc = mft_fetch_submit(f, p, err);
		if (!rc)
			rc = wait_for_one(f, err);
	}
	return rc;
}

void mft_fetcher_drain(struct mft_fetcher *f)
{
	struct mfs_error err;

	while (mfs_io_in_flight(f->engine) && !wait_for_one(f, &err))
		;
}
