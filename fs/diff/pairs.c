/* Pairs the tensors of two checkpoints, and decides how many elements of each pair are compared. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/names.h"
#include "fs/diff/diff.h"

int mfs_diff_note(struct mfs_diff *d, const char *fmt, ...)
{
	const char **notes = mfs_arena_array(&d->arena, d->note_count + 1, sizeof(*notes));
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!notes)
		return -ENOMEM;
	if (d->note_count)
		memcpy(notes, d->notes, d->note_count * sizeof(*notes));
	notes[d->note_count] = mfs_arena_strndup(&d->arena, text, strlen(text));
	if (!notes[d->note_count])
		return -ENOMEM;
	d->notes = notes;
	d->note_count++;
	return 0;
}

/* ---- side by side ---- */

static int order_of_names(const struct mfs_global_tensor *a, const struct mfs_global_tensor *b)
{
	int order = (a->state > b->state) - (a->state < b->state);

	if (!order)
		order = strcmp(a->name, b->name);
	if (!order)
		order = (a->layer > b->layer) - (a->layer < b->layer);
	return order ? order : (a->expert > b->expert) - (a->expert < b->expert);
}

static uint32_t count_of(const struct mfs_diff *d, int side)
{
	const struct mfs_ckpt *ckpt = d->sides[side].ckpt;

	return d->optimizer ? mfs_ckpt_count_all(ckpt) : mfs_ckpt_count(ckpt);
}

/* Both sides are sorted in the same way. */
static void merge(struct mfs_diff *d)
{
	const uint32_t count_a = count_of(d, 0), count_b = count_of(d, 1);
	uint32_t i = 0, k = 0;

	while (i < count_a || k < count_b) {
		const struct mfs_global_tensor *a =
			i < count_a ? mfs_ckpt_at(d->sides[0].ckpt, i) : NULL;
		const struct mfs_global_tensor *b =
			k < count_b ? mfs_ckpt_at(d->sides[1].ckpt, k) : NULL;
		const int order = !a ? 1 : !b ? -1 : order_of_names(a, b);

		d->pairs[d->pair_count++] = (struct mfs_diff_pair){.a = order <= 0 ? a : NULL,
								   .b = order >= 0 ? b : NULL};
		i += order <= 0;
		k += order >= 0;
	}
}

/* Where a tensor stands in the model. */
static int stage(const struct mfs_global_tensor *t)
{
	if (t->layer < 0)
		return strncmp(t->name, "embedding.", 10) ? 3 : 0;
	return strncmp(t->name, "mtp.", 4) ? 1 : 2;
}

/* Layer by layer, as the model runs and most files are written. */
static int order_of_model(const void *x, const void *y)
{
	const struct mfs_diff_pair *p = x, *q = y;
	const struct mfs_global_tensor *a = p->a ? p->a : p->b, *b = q->a ? q->a : q->b;

	if (a->state != b->state)
		return a->state < b->state ? -1 : 1;
	if (stage(a) != stage(b))
		return stage(a) - stage(b);
	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	if (a->expert != b->expert)
		return a->expert < b->expert ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* ---- the vocabulary ---- */

/* Rows of both embeddings, and what is known of the true vocabulary. */
struct vocabulary {
	uint64_t rows[2];
	uint64_t known; /* the smaller number of true rows that a side records; 0: none does */
	bool padding;	/* the rows that only one side has are padding */
};

/* Megatron pads to a multiple of this (megatron/training: vocab_size_with_padding). */
static uint64_t multiple(const struct mfs_diff_side *s)
{
	const int64_t divisor = mfs_ckpt_args(s->ckpt)->make_vocab_size_divisible_by;

	return (uint64_t)(divisor > 0 ? divisor : 128) * mfs_ckpt_layout(s->ckpt)->tp;
}

/* True rows that a side records. All rows of an HF directory are true, unless it was made from
 * padded ones. */
static uint64_t recorded(const struct mfs_diff_side *s, uint64_t rows)
{
	const int64_t n = mfs_ckpt_args(s->ckpt)->vocab_size;

	return n > 0 && (uint64_t)n <= rows ? (uint64_t)n : 0;
}

/* True if the rows that only the larger side has are padding. Either it records fewer true rows, or
 * padding the smaller number to its multiple gives the larger number. */
static bool is_padding(const struct mfs_diff_side *s, uint64_t less, uint64_t more)
{
	const uint64_t known = recorded(s, more);

	if (known)
		return known <= less;
	return !s->is_hf && more % multiple(s) == 0 && more - less < multiple(s);
}

static void look_at_vocabulary(const struct mfs_diff *d, const struct mfs_diff_pair *p,
			       struct vocabulary *v)
{
	const uint64_t a = p->a->shape[0], b = p->b->shape[0];
	const uint64_t known_a = recorded(&d->sides[0], a), known_b = recorded(&d->sides[1], b);

	*v = (struct vocabulary){.rows = {a, b}, .padding = true};
	if (a != b)
		v->padding = is_padding(&d->sides[a < b], mfs_min_u64(a, b), mfs_max_u64(a, b));
	v->known = known_a && known_b ? mfs_min_u64(known_a, known_b) : known_a + known_b;
}

static int note_vocabulary(struct mfs_diff *d, const struct vocabulary *v)
{
	const uint64_t less = mfs_min_u64(v->rows[0], v->rows[1]);
	const uint64_t more = mfs_max_u64(v->rows[0], v->rows[1]);
	const char side = v->rows[0] > v->rows[1] ? 'A' : 'B';
	typedef unsigned long long number;
	int rc = 0;

	if (v->known && v->known < less)
		rc = mfs_diff_note(d,
				   "rows %llu..%llu of the vocabulary are padding in both and "
				   "were not compared",
				   (number)v->known, (number)less - 1);
	if (!rc && more > less)
		rc = mfs_diff_note(d,
				   "rows %llu..%llu of the vocabulary are padding that %c alone "
				   "has and were not compared",
				   (number)less, (number)more - 1, side);
	return rc;
}

/* ---- how much is compared ---- */

static int set_elements(struct mfs_diff *d, struct mfs_diff_pair *p, bool *noted)
{
	const struct mfs_global_tensor *a = p->a, *b = p->b;
	unsigned same_axes = 0;
	uint64_t row = 1;
	int rc = 0;

	if (!a || !b)
		return 0;
	for (unsigned i = 0; i < a->ndim && a->ndim == b->ndim; i++)
		same_axes += a->shape[i] == b->shape[i];
	for (unsigned i = 1; i < a->ndim; i++)
		row *= a->shape[i];
	p->shapes_differ = a->ndim != b->ndim || same_axes != a->ndim;
	p->elements = p->shapes_differ ? 0 : a->ndim ? row * a->shape[0] : 1;
	if (mfs_global_tensor_is_vocabulary(a) && a->ndim == b->ndim && same_axes + 1 >= a->ndim &&
	    (a->ndim < 2 || a->shape[1] == b->shape[1])) {
		struct vocabulary v;

		look_at_vocabulary(d, p, &v);
		p->shapes_differ = !v.padding;
		p->elements = mfs_min_u64(a->shape[0], b->shape[0]);
		p->elements = row * (v.known ? mfs_min_u64(v.known, p->elements) : p->elements);
		if (p->shapes_differ)
			p->elements = 0;
		if (!*noted && v.padding)
			rc = note_vocabulary(d, &v);
		*noted = true;
	}
	return rc;
}

/* True if a side of a pair, which may lack it, stores a norm as weight - 1. */
static bool is_shifted(const struct mfs_diff_side *side, const struct mfs_global_tensor *t)
{
	return t && mfs_global_tensor_is_shifted(mfs_ckpt_args(side->ckpt), t);
}

/* Compares norms as weights if only one side stores them as weight - 1. */
static int set_norms(struct mfs_diff *d)
{
	const bool a = mfs_ckpt_args(d->sides[0].ckpt)->zero_centered_gamma;
	const bool b = mfs_ckpt_args(d->sides[1].ckpt)->zero_centered_gamma;

	for (uint32_t i = 0; i < d->pair_count; i++) {
		struct mfs_diff_pair *p = &d->pairs[i];
		const bool of_a = is_shifted(&d->sides[0], p->a);
		const bool of_b = is_shifted(&d->sides[1], p->b);

		p->add_a = of_a && !of_b;
		p->add_b = of_b && !of_a;
	}
	if (a == b)
		return 0;
	return mfs_diff_note(
		d,
		"the norms of %c are stored as weight - 1 (apply_layernorm_1p) and were "
		"compared as the model uses them",
		a ? 'A' : 'B');
}

static uint64_t bytes_of(const struct mfs_diff_pair *p)
{
	if (!p->elements)
		return 0;
	return p->elements * (mfs_dtype_size(p->a->dtype) + mfs_dtype_size(p->b->dtype));
}

int mfs_diff_pair_up(struct mfs_diff *d, struct mfs_error *err)
{
	const size_t most = (size_t)count_of(d, 0) + count_of(d, 1);
	bool noted = false;
	int rc = 0;

	d->pairs = calloc(most + 1, sizeof(*d->pairs));
	if (!d->pairs)
		return mfs_fail_nomem(err);
	merge(d);
	qsort(d->pairs, d->pair_count, sizeof(*d->pairs), order_of_model);
	for (uint32_t i = 0; i < d->pair_count && !rc; i++) {
		rc = set_elements(d, &d->pairs[i], &noted);
		d->bytes += bytes_of(&d->pairs[i]);
	}
	if (!rc)
		rc = set_norms(d);
	return rc ? mfs_fail_nomem(err) : 0;
}
