#define _GNU_SOURCE
#include "formats/plan/vfile.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/search.h"
#include "formats/base/tally.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"
#include "formats/plan/gather.h"
#include "formats/plan/pieces.h"
#include "formats/plan/plan.h"

enum part_kind { PART_LITERAL, PART_SHARED, PART_ZEROS, PART_FILE, PART_TENSOR, PART_COMPUTED };

struct part {
	enum part_kind kind;
	uint64_t offset, length;
	union {
		uint8_t *bytes;	       /* of a literal */
		const uint8_t *shared; /* somebody else's */
		struct {
			struct mfs_fileset *set;
			uint64_t offset;
			uint32_t index;
		} file;
		struct {
			const struct mfs_target *target;
			_Atomic(struct mfs_plan *) plan; /* NULL until first touch */
		} tensor;
		struct {
			const struct mfs_computed_ops *ops;
			void *object;
			uint64_t from;
		} computed;
	} u;
};

struct mfs_vfile {
	uint64_t size;
	struct part *parts;
	uint32_t count;
	struct mfs_fileset *tensors; /* fileset of the last tensor part; NULL: none */
	void *kept;
	void (*release)(void *kept);
	/* of a lazy file, whose parts are in built */
	mfs_vfile_build build;
	void *build_arg;
	_Atomic(struct mfs_vfile *) built; /* NULL until first touch */
};

int mfs_vfile_new(struct mfs_vfile **ret, struct mfs_error *err)
{
	struct mfs_vfile *f = calloc(1, sizeof(*f));

	if (!f)
		return mfs_fail_nomem(err);
	*ret = f;
	return 0;
}

void mfs_vfile_free(struct mfs_vfile *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->count; i++) {
		if (f->parts[i].kind == PART_LITERAL)
			free(f->parts[i].u.bytes);
		else if (f->parts[i].kind == PART_TENSOR)
			mfs_plan_free(f->parts[i].u.tensor.plan);
	}
	mfs_vfile_free(f->built);
	if (f->kept)
		f->release(f->kept);
	free(f->parts);
	free(f);
}

void mfs_vfile_keep(struct mfs_vfile *f, void *what, void (*release)(void *what))
{
	f->kept = what;
	f->release = release;
}

static int add_part(struct mfs_vfile *f, const struct part *part, struct mfs_error *err)
{
	uint64_t size;

	if (mfs_add_overflows(f->size, part->length, &size) || size > INT64_MAX)
		return mfs_fail(err, -EINVAL, "a file of the view would be larger than 2^63 bytes");
	if (mfs_grow(&f->parts, f->count))
		return mfs_fail_nomem(err);
	memcpy(&f->parts[f->count], part, sizeof(*part));
	f->parts[f->count++].offset = f->size;
	f->size = size;
	return 0;
}

int mfs_vfile_add_literal(struct mfs_vfile *f, void *bytes, uint64_t len, struct mfs_error *err)
{
	return add_part(f, &(struct part){.kind = PART_LITERAL, .length = len, .u.bytes = bytes},
			err);
}

int mfs_vfile_add_shared(struct mfs_vfile *f, const void *bytes, uint64_t len,
			 struct mfs_error *err)
{
	return add_part(f, &(struct part){.kind = PART_SHARED, .length = len, .u.shared = bytes},
			err);
}

int mfs_vfile_add_zeros(struct mfs_vfile *f, uint64_t len, struct mfs_error *err)
{
	return add_part(f, &(struct part){.kind = PART_ZEROS, .length = len}, err);
}

int mfs_vfile_add_file(struct mfs_vfile *f, struct mfs_fileset *set, uint32_t file, uint64_t off,
		       uint64_t len, struct mfs_error *err)
{
	struct part part = {.kind = PART_FILE, .length = len};

	if (!mfs_range_ok(off, len, mfs_fileset_size(set, file)))
		return mfs_fail(err, -EINVAL, "%s: a range goes beyond its end",
				mfs_fileset_name(set, file));
	part.u.file.set = set;
	part.u.file.index = file;
	part.u.file.offset = off;
	return add_part(f, &part, err);
}

int mfs_vfile_add_tensor(struct mfs_vfile *f, const struct mfs_target *t, struct mfs_error *err)
{
	struct part part = {.kind = PART_TENSOR, .length = t->bytes};

	part.u.tensor.target = t;
	f->tensors = mfs_ckpt_files(t->ckpt);
	return add_part(f, &part, err);
}

int mfs_vfile_add_computed(struct mfs_vfile *f, const struct mfs_computed_ops *ops, void *object,
			   uint64_t from, uint64_t len, struct mfs_error *err)
{
	struct part part = {.kind = PART_COMPUTED, .length = len};

	part.u.computed.ops = ops;
	part.u.computed.object = object;
	part.u.computed.from = from;
	return add_part(f, &part, err);
}

uint64_t mfs_vfile_size(const struct mfs_vfile *f)
{
	return f->size;
}

uint64_t mfs_vfile_stamp(const struct mfs_vfile *f)
{
	uint64_t stamp = f->size;

	for (uint32_t i = 0; i < f->count; i++) {
		const struct part *p = &f->parts[i];
		const uint64_t v[] = {(uint64_t)p->kind, p->length};

		stamp = XXH64(v, sizeof(v), stamp);
		if (p->kind == PART_LITERAL)
			stamp = XXH64(p->u.bytes, p->length, stamp);
	}
	return stamp;
}

/* ---- parts made on first touch ---- */

int mfs_vfile_new_lazy(uint64_t size, mfs_vfile_build build, void *arg, struct mfs_vfile **ret,
		       struct mfs_error *err)
{
	int rc = mfs_vfile_new(ret, err);

	if (rc)
		return rc;
	(*ret)->size = size;
	(*ret)->build = build;
	(*ret)->build_arg = arg;
	return 0;
}

static int build_parts(const struct mfs_vfile *f, struct mfs_vfile **ret, struct mfs_error *err)
{
	struct mfs_vfile *parts;
	int rc = mfs_vfile_new(&parts, err);

	if (rc)
		return rc;
	rc = f->build(f->build_arg, parts, err);
	if (!rc && parts->size != f->size)
		rc = mfs_fail(err, -EINVAL, "a file of %llu bytes turned out to have %llu",
			      (unsigned long long)f->size, (unsigned long long)parts->size);
	if (rc) {
		mfs_vfile_free(parts);
		return rc;
	}
	*ret = parts;
	return 0;
}

/* The file that has the parts: f itself, unless it is lazy. */
static int get_parts(struct mfs_vfile *f, struct mfs_vfile **ret, struct mfs_error *err)
{
	struct mfs_vfile *built = atomic_load_explicit(&f->built, memory_order_acquire);
	struct mfs_vfile *first = NULL;
	int rc;

	if (!f->build || built) {
		*ret = f->build ? built : f;
		return 0;
	}
	rc = build_parts(f, &built, err);
	if (rc)
		return rc;
	/* If two threads have built it, the first result stays. */
	if (!atomic_compare_exchange_strong(&f->built, &first, built)) {
		mfs_vfile_free(built);
		built = first;
	}
	*ret = built;
	return 0;
}

static int get_plan(struct part *part, struct mfs_plan **ret, struct mfs_error *err)
{
	struct mfs_plan *plan = atomic_load_explicit(&part->u.tensor.plan, memory_order_acquire);
	struct mfs_plan *first = NULL;
	int rc;

	if (!plan) {
		rc = mfs_plan_new(part->u.tensor.target, &plan, err);
		if (rc)
			return rc;
		/* If two threads have planned it, the first plan stays. */
		if (!atomic_compare_exchange_strong(&part->u.tensor.plan, &first, plan)) {
			mfs_plan_free(plan);
			plan = first;
		}
	}
	*ret = plan;
	return 0;
}

/* Index of the part that holds byte off; off is less than the file's size. */
static uint32_t find_part(const struct mfs_vfile *f, uint64_t off)
{
	return (uint32_t)mfs_last_while(i, f->count, f->parts[i].offset <= off);
}

struct bytes {
	struct mfs_gather *g;
	const uint8_t *p;
	size_t len;
};

static void add_bytes(void *arg)
{
	const struct bytes *r = arg;

	mfs_gather_add(r->g, r->p, r->len);
}

static int add_guarded(struct mfs_gather *g, const uint8_t *p, size_t len)
{
	struct bytes r = {g, p, len};

	return mfs_guard_run(add_bytes, &r);
}

static int gather_file(const struct part *part, uint64_t off, uint64_t len, struct mfs_gather *g,
		       struct mfs_error *err)
{
	struct mfs_fileset *set = part->u.file.set;
	const uint32_t file = part->u.file.index;
	const uint8_t *map;
	int rc = mfs_fileset_check(set, file, err);

	if (!rc)
		rc = mfs_present_add(&g->present, set, file, part->u.file.offset + off, len, err);
	if (!rc)
		rc = mfs_fileset_map_part(set, file, &map, err);
	if (!rc && add_guarded(g, map + part->u.file.offset + off, len))
		rc = mfs_fail(err, -EIO, "%s/%s: cannot be read", mfs_fileset_dir(set),
			      mfs_fileset_name(set, file));
	if (rc)
		return rc;
	mfs_fileset_served(set, len);
	mfs_tally_add(mfs_fileset_backing(set, file) ? MFS_TALLY_READ_REMOTE : MFS_TALLY_READ_LOCAL,
		      len);
	return 0;
}

static int gather_computed(const struct part *part, uint64_t off, uint64_t len,
			   struct mfs_gather *g, struct mfs_error *err)
{
	int rc = part->u.computed.ops->read(part->u.computed.object, part->u.computed.from + off,
					    mfs_gather_room(g, len), len, err);

	if (!rc)
		mfs_tally_add(MFS_TALLY_READ_LOCAL, len);
	return rc;
}

static int gather_part(struct part *part, uint64_t off, uint64_t len, struct mfs_gather *g,
		       struct mfs_error *err)
{
	struct mfs_plan *plan;
	int rc;

	switch (part->kind) {
	case PART_LITERAL:
		mfs_gather_add(g, part->u.bytes + off, len);
		return 0;
	case PART_SHARED:
		mfs_gather_add(g, part->u.shared + off, len);
		return 0;
	case PART_ZEROS:
		mfs_gather_zeros(g, len);
		return 0;
	case PART_FILE:
		return gather_file(part, off, len, g, err);
	case PART_COMPUTED:
		return gather_computed(part, off, len, g, err);
	default:
		rc = get_plan(part, &plan, err);
		return rc ? rc : mfs_plan_gather(plan, off, len, g, err);
	}
}

int mfs_vfile_gather(struct mfs_vfile *f, uint64_t off, size_t len, struct mfs_gather *g,
		     struct mfs_error *err)
{
	int rc;

	if (off >= f->size)
		return 0;
	len = mfs_min_u64(len, f->size - off);
	rc = get_parts(f, &f, err);
	if (rc)
		return rc;
	for (uint32_t i = find_part(f, off); len && !rc; i++) {
		struct part *part = &f->parts[i];
		uint64_t inside = off - part->offset;
		uint64_t n = mfs_min_u64(len, part->length - inside);

		if (n)
			rc = gather_part(part, inside, n, g, err);
		off += n;
		len -= n;
	}
	return rc;
}

/* ---- pieces ---- */

static int visit_part(struct part *part, const struct mfs_rectangle *r, mfs_piece_visit *visit,
		      void *arg, struct mfs_error *err)
{
	const uint64_t inside = r->at - part->offset;
	struct mfs_piece piece = {.of = *r};
	struct mfs_plan *plan;
	int rc;

	switch (part->kind) {
	case PART_LITERAL:
	case PART_SHARED:
		piece.kind = MFS_PIECE_MEMORY;
		piece.bytes =
			(part->kind == PART_LITERAL ? part->u.bytes : part->u.shared) + inside;
		return visit(arg, &piece);
	case PART_ZEROS:
		piece.kind = MFS_PIECE_ZEROS;
		return visit(arg, &piece);
	case PART_FILE:
		piece.kind = MFS_PIECE_SOURCE;
		piece.files = part->u.file.set;
		piece.file = part->u.file.index;
		piece.off = part->u.file.offset + inside;
		piece.row_step = r->step;
		return visit(arg, &piece);
	case PART_COMPUTED:
		piece.kind = MFS_PIECE_COMPUTED;
		return visit(arg, &piece);
	default:
		rc = get_plan(part, &plan, err);
		return rc ? rc : mfs_plan_pieces(plan, part->offset, r, visit, arg);
	}
}

/* One row, which may go over several parts. */
static int visit_row(struct mfs_vfile *f, uint64_t at, uint64_t len, mfs_piece_visit *visit,
		     void *arg, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = find_part(f, at); len && !rc; i++) {
		struct part *part = &f->parts[i];
		const uint64_t n = mfs_min_u64(len, part->offset + part->length - at);
		const struct mfs_rectangle row = {.at = at, .rows = 1, .width = n, .step = n};

		if (n)
			rc = visit_part(part, &row, visit, arg, err);
		at += n;
		len -= n;
	}
	return rc;
}

int mfs_vfile_pieces(struct mfs_vfile *f, const struct mfs_rectangle *r, mfs_piece_visit *visit,
		     void *arg, struct mfs_error *err)
{
	const struct part *part;
	int rc;

	if (!r->rows || !r->width)
		return 0;
	rc = get_parts(f, &f, err);
	if (rc)
		return rc;
	part = &f->parts[find_part(f, r->at)];
	if ((part->kind == PART_TENSOR || part->kind == PART_FILE || part->kind == PART_ZEROS) &&
	    r->at + (r->rows - 1) * r->step + r->width <= part->offset + part->length)
		return visit_part(&f->parts[part - f->parts], r, visit, arg, err);
	for (uint64_t i = 0; i < r->rows && !rc; i++)
		rc = visit_row(f, r->at + i * r->step, r->width, visit, arg, err);
	return rc;
}

int mfs_vfile_next_tensor(struct mfs_vfile *f, uint32_t *at, const struct mfs_target **ret,
			  uint64_t *ret_offset, struct mfs_error *err)
{
	int rc = get_parts(f, &f, err);

	if (rc)
		return rc;
	while (*at < f->count) {
		const struct part *part = &f->parts[(*at)++];

		if (part->kind != PART_TENSOR)
			continue;
		*ret = part->u.tensor.target;
		*ret_offset = part->offset;
		return 1;
	}
	return 0;
}

/* ---- copies ---- */

#define COPY_WINDOW (1u << 20)
#define COPY_IOVECS 512

static int copy_out(const struct mfs_gather *g, uint8_t *buf, struct mfs_error *err)
{
	for (unsigned i = 0; i < g->count; i++) {
		if (mfs_guard_copy(buf, g->iov[i].iov_base, g->iov[i].iov_len))
			return mfs_fail(err, -EIO,
					"a source cannot be read (cut short while in use?)");
		buf += g->iov[i].iov_len;
	}
	return 0;
}

int mfs_vfile_pread_by(struct mfs_vfile *f, struct mfs_gather *g, uint64_t off, void *buf,
		       size_t len, size_t *ret_len, struct mfs_error *err)
{
	size_t done = 0;
	int rc = 0;

	len = off < f->size ? mfs_min_u64(len, f->size - off) : 0;
	while (done < len && !rc) {
		rc = mfs_vfile_gather(f, off + done, mfs_min_u64(len - done, g->scratch_size), g,
				      err);
		if (!rc)
			rc = copy_out(g, (uint8_t *)buf + done, err);
		done += g->bytes;
		mfs_gather_reset(g);
	}
	if (!rc)
		*ret_len = len;
	return rc;
}

int mfs_vfile_pread(struct mfs_vfile *f, uint64_t off, void *buf, size_t len, size_t *ret_len,
		    struct mfs_error *err)
{
	struct mfs_gather g;
	int rc;

	len = off < f->size ? mfs_min_u64(len, f->size - off) : 0;
	if (mfs_gather_init(&g, mfs_min_u64(len, COPY_WINDOW), COPY_IOVECS))
		return mfs_fail_nomem(err);
	rc = mfs_vfile_pread_by(f, &g, off, buf, len, ret_len, err);
	mfs_gather_release(&g);
	return rc;
}

/* ---- whole files ---- */

int mfs_vfile_check(struct mfs_vfile *f, uint32_t *start, struct mfs_error *err)
{
	struct mfs_plan *plan;
	int rc = get_parts(f, &f, err);

	for (uint32_t i = start ? *start : 0; !rc && i < f->count; i++) {
		if (f->parts[i].kind == PART_TENSOR)
			rc = get_plan(&f->parts[i], &plan, err);
		else if (f->parts[i].kind == PART_FILE)
			rc = mfs_fileset_check(f->parts[i].u.file.set, f->parts[i].u.file.index,
					       err);
		if (start)
			*start = i + 1;
	}
	return rc;
}

void mfs_vfile_willneed(struct mfs_vfile *f, uint64_t off, uint64_t len)
{
	struct mfs_plan *plan;

	if (off >= f->size || get_parts(f, &f, NULL))
		return;
	len = mfs_min_u64(len, f->size - off);
	for (uint32_t i = find_part(f, off); len; i++) {
		struct part *part = &f->parts[i];
		uint64_t inside = off - part->offset;
		uint64_t n = mfs_min_u64(len, part->length - inside);

		if (n && part->kind == PART_TENSOR && !get_plan(part, &plan, NULL))
			mfs_plan_willneed(plan, inside, n);
		else if (n && part->kind == PART_FILE)
			mfs_fileset_willneed(part->u.file.set, part->u.file.index,
					     part->u.file.offset + inside, n);
		else if (n && part->kind == PART_COMPUTED && part->u.computed.ops->willneed)
			part->u.computed.ops->willneed(part->u.computed.object,
						       part->u.computed.from + inside, n);
		off += n;
		len -= n;
	}
}

/* File parts were counted when they were gathered. */
void mfs_vfile_served(struct mfs_vfile *f, uint64_t bytes)
{
	if (!get_parts(f, &f, NULL) && f->tensors)
		mfs_fileset_served(f->tensors, bytes);
}
