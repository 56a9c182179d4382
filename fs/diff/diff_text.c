/* The result of a comparison as text. */
#include <stdio.h>
#include <string.h>

#include "formats/ckpt/element.h"
#include "formats/megatron/layout.h"
#include "fs/diff/diff.h"
#include "fs/cli/text.h"

const char *mfs_diff_index(const struct mfs_diff_pair *p, uint64_t index[MFS_CKPT_DIMS], char *text,
			   size_t size)
{
	uint64_t rest = p->found.first;

	memset(index, 0, MFS_CKPT_DIMS * sizeof(*index));
	for (unsigned a = p->a->ndim; a-- > 0; rest /= p->a->shape[a])
		index[a] = p->a->shape[a] ? rest % p->a->shape[a] : 0;
	return mfs_shape_text(index, p->a->ndim, text, size);
}

/* Significant digits that tell neighbouring values of a type apart. */
static int digits(enum mfs_dtype t)
{
	switch (t) {
	case MFS_F8_E4M3:
	case MFS_F8_E5M2:
		return 3;
	case MFS_BF16:
		return 4;
	case MFS_F16:
		return 5;
	case MFS_F32:
		return 9;
	default:
		return 17;
	}
}

void mfs_diff_values(const struct mfs_diff_pair *p, char a[32], char b[32])
{
	const struct mfs_comparison *c = &p->found;

	snprintf(a, 32, "%.*g", digits(p->a->dtype), c->a);
	snprintf(b, 32, "%.*g", digits(p->b->dtype), c->b);
	if (!strcmp(a, b) && c->a != c->b) {
		snprintf(a, 32, "%.17g", c->a);
		snprintf(b, 32, "%.17g", c->b);
	}
}

const char *mfs_diff_form(const struct mfs_diff_side *s, char *text, size_t size)
{
	struct mfs_layout layout;
	char name[MFS_LAYOUT_NAME_SIZE];

	if (s->is_hf || !mfs_layout_of(s->ckpt, &layout))
		snprintf(text, size, "%s", mfs_iteration_format(s->iteration));
	else
		snprintf(text, size, "%s %s", mfs_iteration_format(s->iteration),
			 mfs_layout_name(&layout, name));
	return text;
}

static void print_sides(const struct mfs_diff *d)
{
	char form[160];

	for (int i = 0; i < 2; i++) {
		const struct mfs_diff_side *s = &d->sides[i];

		printf("%c  %s", "AB"[i], s -> path);
		if (!s->is_hf && !strstr(s->path, mfs_iteration_name(s->iteration)))
			printf(" (%s)", mfs_iteration_name(s->iteration));
		printf(": %s%s\n", mfs_diff_form(s, form, sizeof(form)),
		       s->has_optimizer ? ", with its optimizer" : "");
	}
}

static void print_arguments(const struct mfs_diff *d)
{
	char a[MFS_SHOWN], b[MFS_SHOWN];

	if (d->argument_count)
		printf("\nthe runs' arguments differ:\n");
	for (uint32_t i = 0; i < d->argument_count; i++)
		printf("  %-36s %s against %s\n", d->arguments[i].name,
		       mfs_shown(d->arguments[i].a, a), mfs_shown(d->arguments[i].b, b));
}

static const char *kind_of(const struct mfs_global_tensor *t, char text[128])
{
	char shape[96];

	snprintf(text, 128, "%s %s", mfs_dtype_torch(t->dtype),
		 mfs_shape_text(t->shape, t->ndim, shape, sizeof(shape)));
	return text;
}

static void print_more(uint64_t count, uint64_t limit)
{
	if (count > limit)
		printf("  and %llu more (-n %llu lists them)\n",
		       (unsigned long long)(count - limit), (unsigned long long)count);
}

/* Prints tensors that only one side has. */
static void print_only(const struct mfs_diff *d, int side, uint64_t limit)
{
	const uint32_t count = side ? d->only_b : d->only_a;
	char name[MFS_CKPT_NAME_SIZE], kind[128];
	uint64_t printed = 0;

	if (count)
		printf("\nin %c alone:\n", "AB"[side]);
	for (uint32_t i = 0; i < d->pair_count && printed < limit && printed < count; i++) {
		const struct mfs_global_tensor *t = side ? d->pairs[i].b : d->pairs[i].a;

		if (side ? d->pairs[i].a : d->pairs[i].b)
			continue;
		printf("  %s: %s\n", mfs_global_tensor_name(t, name, sizeof(name)),
		       kind_of(t, kind));
		printed++;
	}
	print_more(count, limit);
}

/* Prints ", all of them by rounding", and how many differing elements are NaN. */
static void print_rounding(const struct mfs_diff_pair *p)
{
	const struct mfs_comparison *c = &p->found;
	const bool a_wider = mfs_compare_rounds(p->a->dtype, p->b->dtype);

	if (!a_wider && !mfs_compare_rounds(p->b->dtype, p->a->dtype))
		return;
	if (c->beyond_rounding)
		printf("; %llu also when %c is rounded to %s",
		       (unsigned long long)c->beyond_rounding, a_wider ? 'A' : 'B',
		       mfs_dtype_torch(a_wider ? p->b->dtype : p->a->dtype));
	else
		printf("; none when %c is rounded to %s", a_wider ? 'A' : 'B',
		       mfs_dtype_torch(a_wider ? p->b->dtype : p->a->dtype));
}

static void print_elements(const struct mfs_diff *d, const struct mfs_diff_pair *p)
{
	const struct mfs_comparison *c = &p->found;
	char count[MFS_HUMAN], all[MFS_HUMAN], at[96], place[160], a[32], b[32];
	uint64_t index[MFS_CKPT_DIMS];

	if (!c->differing) {
		printf("    all %s values are equal\n", mfs_grouped(c->elements, all));
		return;
	}
	printf("    %s of %s elements differ", mfs_grouped(c->differing, count),
	       mfs_grouped(c->elements, all));
	if (c->nans < c->differing && mfs_compare_has_values(p->a->dtype))
		printf(", by at most %.4g", c->largest);
	if (c->nans)
		printf("; %llu with NaN", (unsigned long long)c->nans);
	if (p->a->dtype != p->b->dtype)
		print_rounding(p);
	mfs_diff_index(p, index, at, sizeof(at));
	mfs_element_text(mfs_ckpt_args(d->sides[0].ckpt), p->a, index, place, sizeof(place));
	printf("\n    first %s%s%s%s", at, *place ? " (" : "", place, *place ? ")" : "");
	if (mfs_compare_has_values(p->a->dtype)) {
		mfs_diff_values(p, a, b);
		printf(": %s against %s", a, b);
	}
	putchar('\n');
}

static void print_pair(const struct mfs_diff *d, const struct mfs_diff_pair *p)
{
	char name[MFS_CKPT_NAME_SIZE], a[128], b[128];

	kind_of(p->a, a);
	kind_of(p->b, b);
	printf("  %s: %s", mfs_global_tensor_name(p->a, name, sizeof(name)), a);
	if (strcmp(a, b))
		printf(" against %s", b);
	putchar('\n');
	if (p->shapes_differ || (p->a->dtype != p->b->dtype && !p->found.elements))
		return;
	print_elements(d, p);
}

static void print_different(const struct mfs_diff *d, uint64_t limit)
{
	uint64_t printed = 0;

	if (d->different)
		printf("\ndifferent:\n");
	for (uint32_t i = 0; i < d->pair_count && printed < limit; i++) {
		if (!mfs_diff_pair_differs(&d->pairs[i]))
			continue;
		print_pair(d, &d->pairs[i]);
		printed++;
	}
	print_more(d->different, limit);
}

static const struct mfs_diff_pair *most_different(const struct mfs_diff *d)
{
	const struct mfs_diff_pair *worst = NULL;

	for (uint32_t i = 0; i < d->pair_count; i++)
		if (d->pairs[i].found.largest > (worst ? worst->found.largest : 0))
			worst = &d->pairs[i];
	return worst;
}

static void print_sum(const struct mfs_diff *d)
{
	const struct mfs_diff_pair *worst = most_different(d);
	char elements[MFS_HUMAN], name[MFS_CKPT_NAME_SIZE];
	uint64_t compared = 0;

	for (uint32_t i = 0; i < d->pair_count; i++)
		compared += d->pairs[i].found.elements;
	mfs_grouped(compared, elements);
	if (!mfs_diff_any(d)) {
		printf("\nequal: %u tensors, %s elements\n", d->equal, elements);
		return;
	}
	printf("\n%u tensors and %s elements compared: %u tensors equal, %u different",
	       d->equal + d->different, elements, d->equal, d->different);
	if (d->only_a || d->only_b)
		printf("; %u in A alone, %u in B alone", d->only_a, d->only_b);
	putchar('\n');
	if (worst && d->different > 1)
		printf("largest difference: %.4g, in %s\n", worst->found.largest,
		       mfs_global_tensor_name(worst->a, name, sizeof(name)));
}

void mfs_diff_print(const struct mfs_diff *d, uint64_t limit)
{
	char shown[MFS_SHOWN];

	print_sides(d);
	print_arguments(d);
	print_only(d, 0, limit);
	print_only(d, 1, limit);
	print_different(d, limit);
	if (d->note_count)
		putchar('\n');
	for (uint32_t i = 0; i < d->note_count; i++)
		printf("note: %s\n", mfs_shown(d->notes[i], shown));
	print_sum(d);
}
