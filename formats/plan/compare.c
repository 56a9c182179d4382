#include "formats/plan/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/half.h"
#include "formats/io/guard.h"
#include "formats/plan/vfile.h"

#define WINDOW (1u << 20)
#define AHEAD  (8u << 20)
#define IOVECS 512

struct mfs_comparer {
	struct mfs_gather gather[2];
	uint8_t *bytes[2];
};

int mfs_comparer_new(struct mfs_comparer **ret, struct mfs_error *err)
{
	struct mfs_comparer *c = calloc(1, sizeof(*c));

	if (!c)
		return mfs_fail_nomem(err);
	for (int i = 0; i < 2; i++) {
		c->bytes[i] = malloc(WINDOW);
		if (!c->bytes[i] || mfs_gather_init(&c->gather[i], WINDOW, IOVECS)) {
			mfs_comparer_free(c);
			return mfs_fail_nomem(err);
		}
	}
	*ret = c;
	return 0;
}

void mfs_comparer_free(struct mfs_comparer *c)
{
	if (!c)
		return;
	for (int i = 0; i < 2; i++) {
		mfs_gather_release(&c->gather[i]);
		free(c->bytes[i]);
	}
	free(c);
}

void mfs_comparison_add(struct mfs_comparison *to, const struct mfs_comparison *from)
{
	if (from->differing && (!to->differing || from->first < to->first)) {
		to->first = from->first;
		to->a = from->a;
		to->b = from->b;
	}
	to->elements += from->elements;
	to->differing += from->differing;
	to->beyond_rounding += from->beyond_rounding;
	to->nans += from->nans;
	if (from->largest > to->largest)
		to->largest = from->largest;
}

/* ---- values ---- */

/* OCP 8-bit floats as torch has them: float8_e4m3fn has no infinity, 0x7f and 0xff are NaN. */
static double e4m3(uint8_t v)
{
	const int exponent = v >> 3 & 15, rest = v & 7;
	const double sign = v & 0x80 ? -1 : 1;

	if ((v & 0x7f) == 0x7f)
		return NAN;
	return sign * (exponent ? ldexp(8 + rest, exponent - 10) : ldexp(rest, -9));
}

/* The upper half of a float16. */
static double e5m2(uint8_t v)
{
	return mfs_f16_to_float((uint16_t)(v << 8));
}

/* Inner loops call it with a constant type, so that the switch is compiled away. */
static inline double value(enum mfs_dtype t, const uint8_t *p)
{
	double d;

	switch (t) {
	case MFS_BF16:
		return mfs_bf16_to_float(mfs_le16(p));
	case MFS_F16:
		return mfs_f16_to_float(mfs_le16(p));
	case MFS_F32:
		return mfs_bits_to_float(mfs_le32(p));
	case MFS_F64:
		memcpy(&d, p, sizeof(d));
		return d;
	case MFS_F8_E4M3:
		return e4m3(*p);
	case MFS_F8_E5M2:
		return e5m2(*p);
	case MFS_BOOL:
	case MFS_U8:
		return *p;
	case MFS_I8:
		return (int8_t)*p;
	case MFS_I16:
		return (int16_t)mfs_le16(p);
	case MFS_U16:
		return mfs_le16(p);
	case MFS_I32:
		return (int32_t)mfs_le32(p);
	case MFS_U32:
		return mfs_le32(p);
	case MFS_I64:
		return (double)(int64_t)mfs_le64(p);
	case MFS_U64:
		return (double)mfs_le64(p);
	default:
		return 0;
	}
}

bool mfs_compare_has_values(enum mfs_dtype t)
{
	return t != MFS_DTYPE_NONE && t != MFS_C64 && t != MFS_C128;
}

bool mfs_compare_rounds(enum mfs_dtype wide, enum mfs_dtype narrow)
{
	if (wide == MFS_F64)
		return narrow == MFS_F32 || narrow == MFS_BF16 || narrow == MFS_F16;
	return wide == MFS_F32 && (narrow == MFS_BF16 || narrow == MFS_F16);
}

/* To nearest, ties to even. A float64 goes through float32 first, as in torch. */
static double rounded(enum mfs_dtype t, double v)
{
	if (t == MFS_BF16)
		return mfs_bf16_to_float(mfs_float_to_bf16((float)v));
	if (t == MFS_F16)
		return mfs_f16_to_float(mfs_float_to_f16((float)v));
	return t == MFS_F32 ? (float)v : v;
}

static bool same_value(double a, double b)
{
	return a == b || (a != a && b != b);
}

/* ---- elements ---- */

/* at: number in the tensor of the window's first element. */
struct excerpt {
	const uint8_t *a, *b;
	uint64_t at, count;
	struct mfs_comparison *sum;
};

static inline void note(const struct excerpt *w, uint64_t i, double a, double b)
{
	struct mfs_comparison *s = w->sum;

	if (!s->differing || w->at + i < s->first) {
		s->first = w->at + i;
		s->a = a;
		s->b = b;
	}
	s->differing++;
	if (a != a || b != b)
		s->nans++;
	else if (fabs(a - b) > s->largest)
		s->largest = fabs(a - b);
}

static inline void compare_same(const struct excerpt *w, enum mfs_dtype t, unsigned size)
{
	for (uint64_t i = 0; i < w->count; i++) {
		const uint8_t *a = w->a + i * size, *b = w->b + i * size;

		if (memcmp(a, b, size))
			note(w, i, value(t, a), value(t, b));
	}
}

/* The types that are common in checkpoints have loops of their own. */
static void compare_bytes(const struct excerpt *w, enum mfs_dtype t)
{
	switch (t) {
	case MFS_BF16:
		compare_same(w, MFS_BF16, 2);
		break;
	case MFS_F16:
		compare_same(w, MFS_F16, 2);
		break;
	case MFS_F32:
		compare_same(w, MFS_F32, 4);
		break;
	default:
		compare_same(w, t, mfs_dtype_size(t));
	}
}

static inline void compare_mixed(const struct excerpt *w, enum mfs_dtype ta, enum mfs_dtype tb)
{
	const unsigned size_a = mfs_dtype_size(ta), size_b = mfs_dtype_size(tb);
	const bool round_a = mfs_compare_rounds(ta, tb), round_b = mfs_compare_rounds(tb, ta);

	for (uint64_t i = 0; i < w->count; i++) {
		const double a = value(ta, w->a + i * size_a), b = value(tb, w->b + i * size_b);

		if (same_value(a, b))
			continue;
		note(w, i, a, b);
		if (!same_value(round_a ? rounded(tb, a) : a, round_b ? rounded(ta, b) : b))
			w->sum->beyond_rounding++;
	}
}

static void compare_values(const struct excerpt *w, enum mfs_dtype ta, enum mfs_dtype tb)
{
	if (ta == MFS_F32 && tb == MFS_BF16)
		compare_mixed(w, MFS_F32, MFS_BF16);
	else if (ta == MFS_BF16 && tb == MFS_F32)
		compare_mixed(w, MFS_BF16, MFS_F32);
	else
		compare_mixed(w, ta, tb);
}

/* ---- windows ---- */

struct mapped {
	const struct mfs_gather *a, *b;
	bool same;
};

/* Under guard. */
static void compare_mapped(void *arg)
{
	struct mapped *m = arg;
	const struct iovec *a = m->a->iov, *b = m->b->iov;
	size_t from_a = 0, from_b = 0, left = m->a->bytes;

	while (left) {
		const size_t n = mfs_min_u64(a->iov_len - from_a, b->iov_len - from_b);

		if (memcmp((uint8_t *)a->iov_base + from_a, (uint8_t *)b->iov_base + from_b, n))
			return;
		left -= n;
		from_a += n;
		from_b += n;
		if (from_a == a->iov_len) {
			a++;
			from_a = 0;
		}
		if (from_b == b->iov_len) {
			b++;
			from_b = 0;
		}
	}
	m->same = true;
}

static int unreadable(struct mfs_error *err)
{
	return mfs_fail(err, -EIO, "a source cannot be read (cut short while in use?)");
}

static int flatten(struct mfs_comparer *c, struct mfs_error *err)
{
	for (int i = 0; i < 2; i++) {
		const struct mfs_gather *g = &c->gather[i];
		uint8_t *to = c->bytes[i];

		for (unsigned k = 0; k < g->count; k++) {
			if (mfs_guard_copy(to, g->iov[k].iov_base, g->iov[k].iov_len))
				return unreadable(err);
			to += g->iov[k].iov_len;
		}
	}
	return 0;
}

/* Bytes of an element as a plan shows it, which is not always as it is stored. */
static unsigned size_of(const struct mfs_plan *p)
{
	return mfs_dtype_size(p->shown);
}

static int compare_window(struct mfs_comparer *c, const struct mfs_plan *a,
			  const struct mfs_plan *b, const struct excerpt *w, struct mfs_error *err)
{
	struct mapped m = {&c->gather[0], &c->gather[1], false};
	struct excerpt flat = *w;
	int rc;

	mfs_gather_reset(&c->gather[0]);
	mfs_gather_reset(&c->gather[1]);
	rc = mfs_plan_gather(a, w->at * size_of(a), w->count * size_of(a), &c->gather[0], err);
	if (!rc)
		rc = mfs_plan_gather(b, w->at * size_of(b), w->count * size_of(b), &c->gather[1],
				     err);
	if (rc)
		return rc;
	if (a->shown == b->shown && mfs_guard_run(compare_mapped, &m))
		return unreadable(err);
	if (m.same)
		return 0;
	rc = flatten(c, err);
	if (rc)
		return rc;
	flat.a = c->bytes[0];
	flat.b = c->bytes[1];
	if (a->shown == b->shown)
		compare_bytes(&flat, a->shown);
	else
		compare_values(&flat, a->shown, b->shown);
	return 0;
}

/* The device reads what comes next while this window is compared. */
static void look_ahead(const struct mfs_plan *p, uint64_t at, uint64_t end)
{
	const uint64_t ahead = AHEAD / size_of(p);

	if (at < end)
		mfs_plan_willneed(p, at * size_of(p), mfs_min_u64(ahead, end - at) * size_of(p));
}

int mfs_compare(struct mfs_comparer *c, const struct mfs_plan *a, const struct mfs_plan *b,
		uint64_t first, uint64_t count, struct mfs_comparison *sum, struct mfs_error *err)
{
	const uint64_t widest = mfs_max_u64(size_of(a), size_of(b));
	const uint64_t each = WINDOW / widest, end = first + count;
	uint64_t asked = first;
	int rc = 0;

	for (uint64_t at = first; at < end && !rc; at += each) {
		const struct excerpt w = {
			.at = at, .count = mfs_min_u64(each, end - at), .sum = sum};

		/* Not at every window, but whenever half of what was asked for is used up. */
		if (at >= asked) {
			look_ahead(a, at, end);
			look_ahead(b, at, end);
			asked = at + AHEAD / widest / 2;
		}
		rc = compare_window(c, a, b, &w, err);
		if (!rc) {
			mfs_fileset_served(a->files, w.count * a->element);
			mfs_fileset_served(b->files, w.count * b->element);
		}
	}
	if (!rc)
		sum->elements += count;
	return rc;
}
