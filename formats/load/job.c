/* What a load has to do: pieces of sources in the order of the files, and chunks of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/uthash.h"
#include "formats/io/fileset.h"
#include "formats/load/box_load_i.h"
#include "formats/plan/pieces.h"

struct source_key {
	struct mfs_vfile *vfile;
	struct mfs_fileset *files;
	uint32_t file;
};

/* A source that the job has. */
struct known {
	struct source_key key;
	uint32_t number;
	UT_hash_handle hh;
};

struct maker {
	struct mfs_load_job *job;
	const struct mfs_load_box *box;
	uint32_t number;	   /* of the box */
	struct mfs_load_rows rows; /* that are being cut */
	uint64_t chunk;
	struct known *known;
	struct mfs_error *err;
};

/* ---- sources ---- */

static int add_source(struct maker *m, const struct source_key *key, struct known **ret)
{
	struct mfs_load_job *job = m->job;
	struct known *k = calloc(1, sizeof(*k));

	if (!k || mfs_grow(&job->sources, job->source_count)) {
		free(k);
		return mfs_fail_nomem(m->err);
	}
	k->key = *key;
	k->number = job->source_count++;
	job->sources[k->number] = (struct mfs_load_source){
		.vfile = key->vfile,
		.files = key->files,
		.file = key->file,
		.size = key->files ? mfs_fileset_size(key->files, key->file) : 0,
		.fd = -1,
		.direct_fd = -1,
	};
	HASH_ADD(hh, m->known, key, sizeof(k->key), k);
	if (!k->hh.tbl) {
		free(k);
		return mfs_fail_nomem(m->err);
	}
	*ret = k;
	return 0;
}

static int find_source(struct maker *m, struct mfs_vfile *vfile, struct mfs_fileset *files,
		       uint32_t file, uint32_t *ret)
{
	struct source_key key;
	struct known *k;
	int rc = 0;

	memset(&key, 0, sizeof(key)); /* what lies between its members counts, too */
	key.vfile = vfile;
	key.files = files;
	key.file = file;
	HASH_FIND(hh, m->known, &key, sizeof(key), k);
	if (!k)
		rc = add_source(m, &key, &k);
	if (!rc)
		*ret = k->number;
	return rc;
}

static void forget_sources(struct maker *m)
{
	struct known *k, *next;

	HASH_ITER(hh, m->known, k, next)
	{
		HASH_DEL(m->known, k);
		free(k);
	}
}

/* ---- pieces ---- */

static int add_piece(struct maker *m, const struct mfs_load_piece *p)
{
	if (mfs_grow(&m->job->pieces, m->job->piece_count))
		return mfs_fail_nomem(m->err);
	m->job->pieces[m->job->piece_count++] = *p;
	return 0;
}

/* A row that is longer than a chunk. */
static int add_row_parts(struct maker *m, const struct mfs_load_piece *p)
{
	const uint64_t most = m->chunk / p->item * p->item;
	struct mfs_load_piece part = *p;
	int rc = 0;

	part.rows = 1;
	for (uint64_t at = 0; at < p->width && !rc; at += part.width) {
		part.width = mfs_min_u64(p->width - at, most);
		part.off = p->off + at;
		part.to = p->to + (int64_t)(at / p->item) * p->to_item;
		rc = add_piece(m, &part);
	}
	return rc;
}

/* How many rows of a piece lie within a chunk's length of the source. */
static uint64_t rows_within(const struct maker *m, const struct mfs_load_piece *p)
{
	const uint64_t step = m->job->sources[p->source].vfile ? p->width : p->row_step;

	return step ? 1 + (m->chunk - p->width) / step : p->rows;
}

static int add_parts(struct maker *m, struct mfs_load_piece *p)
{
	const bool is_run =
		p->row_step == p->width && p->to_row == (int64_t)p->width && p->to_item == p->item;
	struct mfs_load_piece part = *p;
	int rc = 0;

	if (is_run) {
		part.width = p->width * p->rows;
		part.rows = 1;
		return add_row_parts(m, &part);
	}
	for (uint64_t row = 0; row < p->rows && !rc; row += part.rows) {
		part.off = p->off + row * p->row_step;
		part.to = p->to + (int64_t)row * p->to_row;
		part.rows = 1;
		if (p->width > m->chunk) {
			rc = add_row_parts(m, &part);
			continue;
		}
		part.rows = mfs_min_u64(rows_within(m, p), p->rows - row);
		rc = add_piece(m, &part);
	}
	return rc;
}

/* A row of bytes of another machine is not there yet, and what is computed is in no file. */
static bool must_be_gathered(const struct mfs_piece *p)
{
	return p->kind != MFS_PIECE_SOURCE || mfs_fileset_backing(p->files, p->file);
}

/* Where a piece of the rows goes. Pieces are of whole elements. */
static uint8_t *place_of(const struct mfs_load_rows *rows, const struct mfs_piece *p, unsigned item)
{
	const uint64_t from = p->of.at - rows->at;
	const uint64_t row = rows->rows > 1 ? from / rows->step : 0;

	return rows->to + (int64_t)row * rows->to_row +
	       (int64_t)((from - row * rows->step) / item) * rows->to_item;
}

/*
 * From row to row of a piece. Rows that were asked for may be long: a whole tensor may be one. The
 * piece then has rows of the tensor's matrix, all of which lie in one row of ours.
 */
static int64_t row_to_row(const struct mfs_load_rows *rows, const struct mfs_piece *p,
			  unsigned item)
{
	if (rows->rows > 1 && p->of.step == rows->step)
		return rows->to_row;
	return (int64_t)(p->of.step / item) * rows->to_item;
}

static int take_piece(void *arg, const struct mfs_piece *p)
{
	struct maker *m = arg;
	const bool gathered = must_be_gathered(p);
	struct mfs_load_piece piece = {
		.off = gathered ? p->of.at : p->off,
		.row_step = gathered ? p->of.step : p->row_step,
		.rows = p->of.rows,
		.width = p->of.width,
		.to = place_of(&m->rows, p, m->box->item),
		.to_row = row_to_row(&m->rows, p, m->box->item),
		.to_item = m->rows.to_item,
		.box = m->number,
		.item = m->box->item,
	};
	int rc;

	if (piece.rows == 1) {
		piece.row_step = piece.width;
		piece.to_row = (int64_t)(piece.width / piece.item) * piece.to_item;
	}
	rc = gathered ? find_source(m, m->box->file, NULL, 0, &piece.source)
		      : find_source(m, NULL, p->files, p->file, &piece.source);
	return rc ? rc : add_parts(m, &piece);
}

static int take_rows(void *arg, const struct mfs_load_rows *rows)
{
	struct maker *m = arg;
	const struct mfs_rectangle r = {rows->at, rows->rows, rows->width, rows->step};

	m->rows = *rows;
	return mfs_vfile_pieces(m->box->file, &r, take_piece, m, m->err);
}

/* ---- chunks ---- */

static int by_place(const void *a, const void *b)
{
	const struct mfs_load_piece *p = a, *q = b;

	if (p->source != q->source)
		return p->source < q->source ? -1 : 1;
	return (p->off > q->off) - (p->off < q->off);
}

static uint64_t end_of(const struct mfs_load_piece *p)
{
	return p->off + (p->rows - 1) * p->row_step + p->width;
}

/* Pieces of a virtual file are gathered one by one. */
static bool joins(const struct mfs_load_job *job, const struct mfs_load_chunk *c,
		  const struct mfs_load_piece *p, uint64_t chunk)
{
	if (!c || c->source != p->source)
		return false;
	if (job->sources[p->source].vfile)
		return c->bytes + p->rows * p->width <= chunk;
	return mfs_max_u64(end_of(p), c->from + c->len) - c->from <= chunk;
}

static int make_chunks(struct mfs_load_job *job, uint64_t chunk, struct mfs_error *err)
{
	struct mfs_load_chunk *c = NULL;

	for (uint32_t i = 0; i < job->piece_count; i++) {
		const struct mfs_load_piece *p = &job->pieces[i];

		if (!joins(job, c, p, chunk)) {
			if (mfs_grow(&job->chunks, job->chunk_count))
				return mfs_fail_nomem(err);
			c = &job->chunks[job->chunk_count++];
			*c = (struct mfs_load_chunk){
				.source = p->source, .first = i, .from = p->off};
			atomic_fetch_add(&job->sources[p->source].left, 1);
		}
		c->count++;
		c->len = mfs_max_u64(end_of(p), c->from + c->len) - c->from;
		c->bytes += p->rows * p->width;
	}
	return 0;
}

/* ---- plans ---- */

struct planner {
	const struct mfs_load_box *boxes;
	size_t count;
	atomic_size_t next;
};

static int stop_at_once(void *arg, const struct mfs_piece *p)
{
	(void)arg;
	(void)p;
	return 1;
}

static void *make_plans(void *arg)
{
	struct planner *p = arg;

	for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->count;) {
		const struct mfs_load_box *box = &p->boxes[i];
		const struct mfs_rectangle first = {box->at, 1, box->item, box->item};

		if (!mfs_load_box_check(box, NULL) && mfs_load_box_bytes(box))
			mfs_vfile_pieces(box->file, &first, stop_at_once, NULL, NULL);
	}
	return NULL;
}

/* A tensor's plan is made when it is first asked for, which reads headers of its files: for
 * thousands of tensors that takes as long as a part of the load, unless all threads do it. Failures
 * come again in the pass over the boxes. */
void mfs_load_make_plans(const struct mfs_load_box *boxes, size_t count, unsigned threads)
{
	struct planner p = {.boxes = boxes, .count = count};

	if (count > 1)
		mfs_threads_run((unsigned)mfs_min_u64(threads, count), make_plans, &p);
}

/* ---- all ---- */

int mfs_load_job_make(struct mfs_load_job *job, const struct mfs_load_box *boxes, size_t count,
		      uint64_t chunk, struct mfs_error *err)
{
	struct maker m = {.job = job, .chunk = chunk, .err = err};
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		m.box = &boxes[i];
		m.number = (uint32_t)i;
		rc = mfs_load_box_check(m.box, err);
		if (!rc)
			rc = mfs_load_box_rows(m.box, take_rows, &m);
		job->bytes += rc ? 0 : mfs_load_box_bytes(m.box);
	}
	forget_sources(&m);
	if (rc)
		return rc;
	if (job->piece_count)
		qsort(job->pieces, job->piece_count, sizeof(*job->pieces), by_place);
	return make_chunks(job, chunk, err);
}

void mfs_load_job_release(struct mfs_load_job *job)
{
	for (uint32_t i = 0; i < job->source_count; i++)
		mfs_load_source_close(&job->sources[i]);
	free(job->sources);
	free(job->pieces);
	free(job->chunks);
}
