/*
 * Reading a rank's part: every tensor is planned, the blocks of all plans become rects, and the
 * rects are read in the order of the files. Threads take units of a few MiB from one list, so that
 * together they read a file from its beginning to its end. The kernel is asked to read ahead.
 *
 * Long contiguous ranges are read by pread() into the caller's memory, others through the mappings.
 * bench_rank measures both ways.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/threads.h"
#include "formats/io/guard.h"
#include "formats/plan/plan.h"
#include "formats/megatron/read/rank_part.h"
#include "formats/plan/strided.h"

#define UNIT	    (4u << 20)	 /* bytes of a file that a thread takes at once */
#define AHEAD	    (32u << 20)	 /* that the kernel is asked for in front of it */
#define GAP	    (128u << 10) /* bytes between wanted rows that are worth leaving out */
#define LONG_RUN    (256u << 10)
#define MAX_THREADS 16

/* A rectangle of a file and where it goes; strides in bytes, rows and cols in elements. */
struct rect {
	uint64_t src, row_stride, col_stride;
	uint8_t *to;
	uint64_t to_row, rows, cols;
	uint32_t file, tensor;
};

struct reader {
	const struct mfs_rank_part *part;
	struct mfs_fileset *files;
	struct rect *rects;
	size_t count;
	pthread_mutex_t lock;  /* of the fields below */
	size_t next;	       /* rect of the next unit */
	uint64_t outer, inner; /* where it begins in the rect (see axes_of()) */
	uint64_t taken;	       /* bytes of files in all units so far */
	int rc;
	struct mfs_error err;
	pthread_mutex_t asking; /* of the fields below */
	size_t asked_rect;
	uint64_t asked_at, asked; /* bytes in that rect; in all */
};

static unsigned element_of(const struct reader *r, const struct rect *p)
{
	return mfs_dtype_size(r->part->tensors[p->tensor].tensor.base.dtype);
}

/* ---- rects ---- */

static int add_rect(struct reader *r, const struct rect *p, struct mfs_error *err)
{
	if (mfs_grow(&r->rects, r->count))
		return mfs_fail_nomem(err);
	r->rects[r->count++] = *p;
	return 0;
}

/* Joins rows that are contiguous on both sides into one. */
static void straighten(struct rect *p, unsigned element)
{
	const uint64_t row = p->cols * element;

	if (p->cols == 1)
		p->col_stride = element;
	if (p->col_stride == element && p->to_row == row &&
	    (p->rows == 1 || p->row_stride == row)) {
		p->cols *= p->rows;
		p->rows = 1;
	}
}

static void fill_zeros(const struct rect *p, unsigned element)
{
	for (uint64_t i = 0; i < p->rows; i++)
		memset(p->to + i * p->to_row, 0, p->cols * element);
}

/* A rectangle of the target; to is where its first element goes. */
struct area {
	uint64_t row, rows, col, cols;
	uint8_t *to;
};

static int add_block(struct reader *r, uint32_t tensor, const struct mfs_plan *plan,
		     const struct mfs_plan_band *band, const struct mfs_plan_block *b,
		     const struct area *a, struct mfs_error *err)
{
	const uint64_t row = mfs_max_u64(a->row, band->row);
	const uint64_t end = mfs_min_u64(a->row + a->rows, band->row + band->rows);
	const uint64_t col = mfs_max_u64(a->col, b->col);
	const uint64_t right = mfs_min_u64(a->col + a->cols, b->col + b->width);
	const unsigned element = plan->element;
	struct rect p = {.row_stride = b->row_stride,
			 .col_stride = b->col_stride,
			 .to_row = plan->cols * element,
			 .file = b->file,
			 .tensor = tensor};
	const uint8_t *map;
	int rc;

	if (row >= end || col >= right)
		return 0;
	p.rows = end - row;
	p.cols = right - col;
	p.src = b->src + (row - band->row) * b->row_stride + (col - b->col) * b->col_stride;
	p.to = a->to + ((row - a->row) * plan->cols + col - a->col) * element;
	if (b->file == MFS_FILE_NONE) {
		fill_zeros(&p, element);
		return 0;
	}
	straighten(&p, element);
	/* It is mapped now, so that the kernel can be asked for it before it is read. */
	rc = mfs_fileset_map(r->files, b->file, &map, err);
	return rc ? rc : add_rect(r, &p, err);
}

static int add_area(struct reader *r, uint32_t tensor, const struct mfs_plan *plan,
		    const struct area *a, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < plan->band_count && !rc; i++) {
		const struct mfs_plan_band *band = &plan->bands[i];

		if (band->row + band->rows <= a->row || band->row >= a->row + a->rows)
			continue;
		for (uint32_t k = 0; k < band->count && !rc; k++)
			rc = add_block(r, tensor, plan, band, &plan->blocks[band->first + k], a,
				       err);
	}
	return rc;
}

/* Elements [first, first+count) as the end of a row, whole rows, and the beginning of a row. */
static int add_range(struct reader *r, uint32_t tensor, const struct mfs_plan *plan, uint8_t *to,
		     struct mfs_error *err)
{
	const struct mfs_part_tensor *t = &r->part->tensors[tensor];
	uint64_t at = t->first;
	const uint64_t end = at + t->count;
	int rc = 0;

	while (at < end && !rc) {
		struct area a = {.row = at / plan->cols, .rows = 1, .col = at % plan->cols};

		a.to = to + (at - t->first) * plan->element;
		a.cols = mfs_min_u64(plan->cols - a.col, end - at);
		if (!a.col && a.cols == plan->cols)
			a.rows = (end - at) / plan->cols;
		rc = add_area(r, tensor, plan, &a, err);
		at += a.rows * a.cols;
	}
	return rc;
}

/* Puts the tensor's name in front of a message. */
static int in_tensor(const struct reader *r, uint32_t tensor, int rc, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	if (rc && rc != -ENOMEM)
		mfs_fail_in(err, "tensor '%s'",
			    mfs_global_tensor_name(r->part->tensors[tensor].tensor.src, name,
						   sizeof(name)));
	return rc;
}

static int add_tensor(struct reader *r, uint32_t tensor, uint8_t *to, struct mfs_error *err)
{
	struct mfs_plan *plan;
	int rc = mfs_plan_new(&r->part->tensors[tensor].tensor.base, &plan, err);

	if (rc)
		return rc; /* its message names the tensor */
	rc = in_tensor(r, tensor, add_range(r, tensor, plan, to, err), err);
	mfs_plan_free(plan);
	return rc;
}

static int in_file_order(const void *a, const void *b)
{
	const struct rect *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->src > y->src) - (x->src < y->src);
}

/* ---- units ---- */

/* The axis of the larger stride is the outer one. */
struct axes {
	bool by_column; /* the outer axis is the columns' */
	uint64_t outer, outer_stride, inner, inner_stride;
};

static struct axes axes_of(const struct rect *p)
{
	if (p->rows > 1 && p->col_stride > p->row_stride)
		return (struct axes){true, p->cols, p->col_stride, p->rows, p->row_stride};
	return (struct axes){false, p->rows, p->row_stride, p->cols, p->col_stride};
}

static uint64_t span_of(const struct reader *r, const struct rect *p)
{
	return (p->rows - 1) * p->row_stride + (p->cols - 1) * p->col_stride + element_of(r, p);
}

/* Steps of a stride (0: of elements that are all the same one) that make a unit. */
static uint64_t steps(uint64_t stride)
{
	return stride && stride <= UNIT ? UNIT / stride : 1;
}

/* Takes the next unit, a smaller rect, under the lock. False: none is left, or a thread has
 * failed. */
static bool take(struct reader *r, struct rect *u)
{
	const struct rect *p;
	struct axes a;
	uint64_t outer = 1, inner, row, col;

	if (r->rc || r->next == r->count)
		return false;
	p = &r->rects[r->next];
	a = axes_of(p);
	inner = mfs_min_u64(a.inner - r->inner, steps(a.inner_stride));
	if (!r->inner && inner == a.inner)
		outer = mfs_min_u64(a.outer - r->outer, a.outer > 1 ? steps(a.outer_stride) : 1);
	row = a.by_column ? r->inner : r->outer;
	col = a.by_column ? r->outer : r->inner;
	*u = *p;
	u->src += row * p->row_stride + col * p->col_stride;
	u->to += row * p->to_row + col * element_of(r, p);
	u->rows = a.by_column ? inner : outer;
	u->cols = a.by_column ? outer : inner;
	r->taken += span_of(r, u);
	r->inner += inner;
	if (r->inner == a.inner) {
		r->inner = 0;
		r->outer += outer;
	}
	if (r->outer == a.outer) {
		r->outer = 0;
		r->next++;
	}
	return true;
}

/* ---- what comes next ---- */

/* Asks the kernel for at most a unit of a rect's bytes from at on; returns how many. */
static uint64_t ask(struct reader *r, const struct rect *p, uint64_t at)
{
	const uint64_t span = span_of(r, p), n = mfs_min_u64(UNIT, span - at);
	const struct axes a = axes_of(p);
	const uint64_t wide = a.inner * a.inner_stride;

	if (a.outer == 1 || a.outer_stride < wide + GAP) {
		mfs_fileset_willneed(r->files, p->file, p->src + at, n);
		return n;
	}
	for (uint64_t i = (at + a.outer_stride - 1) / a.outer_stride;
	     i < a.outer && i * a.outer_stride < at + n; i++)
		mfs_fileset_willneed(r->files, p->file, p->src + i * a.outer_stride, wide);
	return n;
}

/* One thread does this at a time; others do not wait for it. */
static void look_ahead(struct reader *r, uint64_t taken)
{
	if (pthread_mutex_trylock(&r->asking))
		return;
	while (r->asked_rect < r->count && r->asked < taken + AHEAD) {
		const struct rect *p = &r->rects[r->asked_rect];
		const uint64_t n = ask(r, p, r->asked_at);

		r->asked += n;
		r->asked_at += n;
		if (r->asked_at >= span_of(r, p)) {
			r->asked_rect++;
			r->asked_at = 0;
		}
	}
	pthread_mutex_unlock(&r->asking);
}

/* ---- copying ---- */

struct copy {
	const struct rect *unit;
	const uint8_t *map;
	unsigned element;
};

/* Under guard. */
static void copy_mapped(void *arg)
{
	const struct copy *c = arg;
	const struct rect *u = c->unit;
	const struct mfs_strided s = {.to = u->to,
				      .to_row = u->to_row,
				      .to_col = c->element,
				      .from = c->map + u->src,
				      .from_row = u->row_stride,
				      .from_col = u->col_stride,
				      .rows = u->rows,
				      .cols = u->cols,
				      .element = c->element};

	if (u->col_stride != c->element) {
		mfs_copy_strided(&s);
		return;
	}
	for (uint64_t i = 0; i < u->rows; i++)
		memcpy(u->to + i * u->to_row, s.from + i * u->row_stride, u->cols * c->element);
}

static int read_mapped(struct reader *r, const struct rect *u, struct mfs_error *err)
{
	struct copy c = {.unit = u, .element = element_of(r, u)};
	int rc = mfs_fileset_check(r->files, u->file, err);

	if (!rc)
		rc = mfs_fileset_map(r->files, u->file, &c.map, err);
	if (!rc && mfs_guard_run(copy_mapped, &c))
		rc = mfs_fail(err, -EIO, "%s/%s: cannot be read (cut short while in use?)",
			      mfs_fileset_dir(r->files), mfs_fileset_name(r->files, u->file));
	mfs_fileset_served(r->files, u->rows * u->cols * c.element);
	return rc;
}

static int read_unit(struct reader *r, const struct rect *u, struct mfs_error *err)
{
	const unsigned element = element_of(r, u);
	const uint64_t row = u->cols * element;
	int rc = 0;

	if (u->col_stride != element || row < LONG_RUN)
		return read_mapped(r, u, err);
	for (uint64_t i = 0; i < u->rows && !rc; i++)
		rc = mfs_fileset_read(r->files, u->file, u->src + i * u->row_stride,
				      u->to + i * u->to_row, row, err);
	return rc;
}

static void *work(void *arg)
{
	struct reader *r = arg;
	struct mfs_error err;
	struct rect unit;

	pthread_mutex_lock(&r->lock);
	while (take(r, &unit)) {
		const uint64_t taken = r->taken;
		int rc;

		pthread_mutex_unlock(&r->lock);
		look_ahead(r, taken);
		rc = in_tensor(r, unit.tensor, read_unit(r, &unit, &err), &err);
		pthread_mutex_lock(&r->lock);
		if (rc && !r->rc) {
			r->rc = rc;
			r->err = err;
		}
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ---- the whole ---- */

static int read_rects(struct reader *r, unsigned threads, struct mfs_error *err)
{
	if (r->count)
		qsort(r->rects, r->count, sizeof(*r->rects), in_file_order);
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->asking, NULL);
	mfs_threads_run(mfs_threads_count(threads, MAX_THREADS), work, r);
	pthread_mutex_destroy(&r->asking);
	pthread_mutex_destroy(&r->lock);
	if (r->rc && err)
		*err = r->err;
	return r->rc;
}

int mfs_rank_part_read(const struct mfs_rank_part *part, void *const *destinations,
		       unsigned threads, struct mfs_error *err)
{
	struct reader r = {.part = part, .files = mfs_ckpt_files(part->ckpt)};
	int rc = 0;

	for (uint32_t i = 0; i < part->count && !rc; i++)
		if (destinations[i] && part->tensors[i].count)
			rc = add_tensor(&r, i, destinations[i], err);
	if (!rc)
		rc = read_rects(&r, threads, err);
	free(r.rects);
	return rc;
}
