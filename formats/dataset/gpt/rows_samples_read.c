/*
 * Tokens of samples. A request of 1 MiB is some dozen samples of a few pieces each, at random
 * places of the datasets' files. Pieces are gathered first: each dataset is asked once where they
 * lie, and each file is checked once. When a copy has had to wait for a disk, the pages of all
 * pieces are asked for before they are copied.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/dataset/gpt/rows_samples_i.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

#define SAMPLES	  64	/* looked up together */
#define PIECES	  256	/* copied together */
#define FILES	  16	/* found unchanged, by this request */
#define CONVERT	  1024	/* tokens converted at once */
#define WAITED_NS 50000 /* copying a piece out of memory takes less, plus a nanosecond a byte */
#define COLD	  16	/* copies of PIECES before it is tried again without asking for pages */

struct piece {
	const struct mfs_rows *rows;
	int32_t sequence;
	uint32_t from, count;
	uint64_t token; /* of the rows' stream; once it is located */
	uint8_t *to;
};

struct request {
	struct mfs_sample_rows *x;
	uint8_t *to;
	const struct mfs_rows *rows; /* of the sample at hand */
	unsigned piece_count, file_count;
	struct piece pieces[PIECES];
	struct {
		const struct mfs_fileset *set;
		uint32_t file;
	} files[FILES];
};

/* ---- types ---- */

/* Writes integers in a type of `size` bytes that holds them: their low bytes. */
static void put_tokens(uint8_t *to, unsigned size, const int64_t *tokens, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		uint8_t bytes[8];

		mfs_put_le64(bytes, (uint64_t)tokens[i]);
		memcpy(to + i * size, bytes, size);
	}
}

static bool same_type(const struct mfs_sample_rows *x, const struct mfs_rows *rows)
{
	return rows->dtype == x->rows.dtype;
}

/* ---- copying ---- */

static int copy_converted(const struct mfs_sample_rows *x, const struct mfs_rows *rows,
			  const uint8_t *from, uint8_t *to, uint64_t count)
{
	int64_t raw[CONVERT], wide[CONVERT];

	for (uint64_t at = 0, n; at < count; at += n) {
		n = mfs_min_u64(CONVERT, count - at);
		if (mfs_guard_copy(raw, from + at * rows->token_size, n * rows->token_size))
			return -EIO;
		mfs_dtype_widen(rows->dtype, raw, n, wide);
		put_tokens(to + at * x->rows.token_size, x->rows.token_size, wide, n);
	}
	return 0;
}

static int check_file(struct request *q, const struct mfs_bin_extent *e, struct mfs_error *err)
{
	int rc;

	for (unsigned i = 0; i < q->file_count; i++)
		if (q->files[i].set == e->set && q->files[i].file == e->file)
			return 0;
	rc = mfs_fileset_check(e->set, e->file, err);
	if (!rc && q->file_count < FILES) {
		q->files[q->file_count].set = e->set;
		q->files[q->file_count++].file = e->file;
	}
	return rc;
}

/* Tokens of rows that lie in a file. */
static int copy_extent(struct request *q, const struct mfs_rows *rows,
		       const struct mfs_bin_extent *e, uint8_t *to, struct mfs_error *err)
{
	const uint8_t *map;
	int rc = check_file(q, e, err);

	if (!rc)
		rc = mfs_fileset_map(e->set, e->file, &map, err);
	if (rc)
		return rc;
	if (same_type(q->x, rows))
		rc = mfs_guard_copy(to, map + e->offset, e->len);
	else
		rc = copy_converted(q->x, rows, map + e->offset, to, e->len / rows->token_size);
	mfs_fileset_served(e->set, e->len);
	if (rc)
		return mfs_fail(err, -EIO, "%s/%s: bytes %llu+%llu cannot be read",
				mfs_fileset_dir(e->set), mfs_fileset_name(e->set, e->file),
				(unsigned long long)e->offset, (unsigned long long)e->len);
	return 0;
}

/* Copies tokens that no file holds as they are to be read, or that are compared when they are
 * read. */
static int read_through(const struct request *q, const struct mfs_rows *rows, uint64_t t,
			uint64_t count, uint8_t *to, struct mfs_error *err)
{
	const unsigned size = q->x->rows.token_size;
	int64_t wide[CONVERT];
	int rc = 0;

	if (same_type(q->x, rows))
		return mfs_rows_read(rows, t, count, to, err);
	for (uint64_t n; count && !rc; t += n, count -= n, to += n * size) {
		n = mfs_min_u64(CONVERT, count);
		rc = mfs_rows_read_int64(rows, t, n, wide, err);
		if (!rc)
			put_tokens(to, size, wide, n);
	}
	return rc;
}

static int copy_piece(struct request *q, const struct piece *p, struct mfs_error *err)
{
	struct mfs_bin_extent e;
	uint8_t *to = p->to;

	for (uint64_t at = 0, n; at < p->count; at += n, to += n * q->x->rows.token_size) {
		int rc = mfs_rows_extent(p->rows, p->token + at, p->count - at, &e, err);

		n = p->count - at;
		if (rc == -ENODATA) {
			rc = read_through(q, p->rows, p->token + at, n, to, err);
		} else if (!rc) {
			n = e.len / p->rows->token_size;
			rc = copy_extent(q, p->rows, &e, to, err);
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* Failures are ignored here; the copy reports them. */
static void ask_for_pages(const struct request *q, unsigned from)
{
	for (unsigned i = from; i < q->piece_count; i++) {
		const struct piece *p = &q->pieces[i];
		struct mfs_bin_extent e;
		const uint8_t *map;

		if (!mfs_rows_extent(p->rows, p->token, p->count, &e, NULL) &&
		    !mfs_fileset_map(e.set, e.file, &map, NULL))
			mfs_fileset_willneed(e.set, e.file, e.offset, e.len);
	}
}

/* Pages that this thread has had to wait for. */
static long pages_waited_for(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) ? 0 : u.ru_majflt;
}

/* Tells at little cost whether a copy that has just ended waited for a disk. One that took long
 * may also have been interrupted. */
struct patience {
	long pages;
	uint64_t time;
};

static bool has_waited(struct patience *p, uint64_t bytes)
{
	const uint64_t before = p->time;
	const long pages = p->pages;

	p->time = mfs_now_ns();
	if (p->time - before < WAITED_NS + bytes)
		return false;
	p->pages = pages_waited_for();
	return p->pages != pages;
}

static int copy_pieces(struct request *q, struct mfs_error *err)
{
	_Atomic unsigned *left = &q->x->cold;
	unsigned cold = atomic_load_explicit(left, memory_order_relaxed);
	struct patience p = {pages_waited_for(), mfs_now_ns()};
	int rc = 0;

	if (cold) {
		ask_for_pages(q, 0);
		atomic_store_explicit(left, cold - 1, memory_order_relaxed);
	}
	for (unsigned i = 0; i < q->piece_count && !rc; i++) {
		rc = copy_piece(q, &q->pieces[i], err);
		if (cold || !has_waited(&p, (uint64_t)q->pieces[i].count * 8))
			continue;
		cold = COLD;
		atomic_store_explicit(left, cold, memory_order_relaxed);
		ask_for_pages(q, i + 1);
	}
	return rc;
}

/* ---- gathering ---- */

/* Finds where pieces lie: those from the i-th on that are of the i-th one's dataset. */
static int locate_some(struct request *q, unsigned i, bool *located, struct mfs_error *err)
{
	const struct mfs_rows *rows = q->pieces[i].rows;
	int32_t numbers[PIECES] = {0};
	uint64_t starts[PIECES];
	unsigned who[PIECES], n = 0;
	int rc;

	for (; i < q->piece_count; i++) {
		if (located[i] || q->pieces[i].rows != rows)
			continue;
		located[i] = true;
		numbers[n] = q->pieces[i].sequence;
		who[n++] = i;
	}
	rc = mfs_rows_gather_starts(rows, numbers, n, starts, err);
	for (unsigned k = 0; k < n && !rc; k++)
		q->pieces[who[k]].token = starts[k] + q->pieces[who[k]].from;
	return rc;
}

static int flush(struct request *q, struct mfs_error *err)
{
	bool located[PIECES] = {0};
	int rc = 0;

	for (unsigned i = 0; i < q->piece_count && !rc; i++)
		if (!located[i])
			rc = locate_some(q, i, located, err);
	if (!rc)
		rc = copy_pieces(q, err);
	q->piece_count = 0;
	return rc;
}

static int add_piece(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *err)
{
	struct request *q = arg;
	int rc = q->piece_count == PIECES ? flush(q, err) : 0;

	if (rc)
		return rc;
	q->pieces[q->piece_count++] = (struct piece){.rows = q->rows,
						     .sequence = (int32_t)piece->sequence,
						     .from = piece->from,
						     .count = piece->count,
						     .to = q->to};
	q->to += (uint64_t)piece->count * q->x->rows.token_size;
	return 0;
}

/* Tokens [from, from+count) of a sample. */
static int add_sample(struct request *q, uint32_t member, uint64_t sample, uint32_t from,
		      uint32_t count, struct mfs_error *err)
{
	const struct mfs_samples_member *p = mfs_samples_member(q->x->samples, member);
	uint32_t padding;
	int rc;

	q->rows = p->rows;
	rc = mfs_gpt_dataset_pieces_in(p->gpt, sample, from, count, add_piece, q, &padding, err);
	for (uint32_t i = 0; !rc && i < padding; i++) {
		memcpy(q->to, q->x->pad, q->x->rows.token_size);
		q->to += q->x->rows.token_size;
	}
	return rc;
}

/* Tokens [first, end), of at most SAMPLES samples. */
static int add_group(struct request *q, uint64_t first, uint64_t end, struct mfs_error *err)
{
	const uint64_t length = q->x->rows.row_length;
	const uint64_t row = first / length, count = (end - 1) / length - row + 1;
	int16_t member[SAMPLES];
	int64_t sample[SAMPLES];
	int rc = mfs_samples_locate(q->x->samples, row, count, member, sample, err);

	if (!rc)
		rc = mfs_samples_build(q->x->samples, member, count, 0, err);
	for (uint64_t i = 0; i < count && !rc; i++) {
		const uint64_t to = mfs_min_u64(end, (row + i + 1) * length);

		rc = add_sample(q, (uint32_t)member[i], (uint64_t)sample[i],
				(uint32_t)(first % length), (uint32_t)(to - first), err);
		first = to;
	}
	return rc;
}

int mfs_sample_rows_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
			 struct mfs_error *err)
{
	struct request q = {.x = (struct mfs_sample_rows *)r, .to = ret};
	const uint64_t end = first + count;
	int rc = 0;

	for (uint64_t to; first < end && !rc; first = to) {
		to = mfs_min_u64(end, (first / r->row_length + SAMPLES) * r->row_length);
		rc = add_group(&q, first, to, err);
	}
	return rc ? rc : flush(&q, err);
}
