#include "trainer/config/value.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "trainer/config/number.h"
#include "trainer/config/precision.h"

#define PATTERN_MAX 100000 /* items of a list that is written as a pattern: layers */

/* ---- words to values ---- */

static struct mft_flag_value none(void)
{
	return (struct mft_flag_value){.type = MFT_IS_NONE};
}

static struct mft_flag_value number(int64_t i)
{
	return (struct mft_flag_value){.type = MFT_IS_INT, .number = i};
}

static struct mft_flag_value truth(bool b)
{
	return (struct mft_flag_value){.type = MFT_IS_BOOL, .truth = b};
}

/* ---- patterns ---- */

/*
 * A Python expression of lists and numbers with + and *, as "([0]*1+[1]*3)*2"
 * (arguments.py: _eval_pattern). Everything is a list of integers; a number is remembered as one,
 * for "*".
 */
struct pattern {
	const char *at;
	unsigned depth;
	struct mfs_arena *arena;
	const char *wrong; /* NULL: so far all is well */
};

struct items {
	int64_t *list;
	size_t count;
	bool is_number;
};

static struct items sum(struct pattern *p);

static struct items pattern_fails(struct pattern *p, const char *wrong)
{
	if (!p->wrong)
		p->wrong = wrong;
	return (struct items){0};
}

static struct items items_new(struct pattern *p, size_t count)
{
	struct items ret = {.count = count};

	if (count > PATTERN_MAX)
		return pattern_fails(p, "at most 100000 items");
	ret.list = mfs_arena_array(p->arena, count ? count : 1, sizeof(*ret.list));
	return ret.list ? ret : pattern_fails(p, "enough memory");
}

static struct items one_number(struct pattern *p)
{
	struct items ret = items_new(p, 1);
	char *end;

	if (p->wrong)
		return ret;
	errno = 0;
	ret.list[0] = strtoll(p->at, &end, 10);
	if (errno || end - p->at > 12)
		return pattern_fails(p, "smaller numbers");
	ret.is_number = true;
	p->at = end;
	return ret;
}

static struct items joined(struct pattern *p, struct items a, struct items b)
{
	struct items ret;

	if (p->wrong)
		return a;
	if (a.is_number != b.is_number)
		return pattern_fails(p, "a list on both sides of +");
	if (a.is_number) {
		a.list[0] += b.list[0];
		return a;
	}
	ret = items_new(p, a.count + b.count);
	if (p->wrong)
		return ret;
	memcpy(ret.list, a.list, a.count * sizeof(*a.list));
	memcpy(ret.list + a.count, b.list, b.count * sizeof(*b.list));
	return ret;
}

static struct items repeated(struct pattern *p, struct items a, struct items b)
{
	struct items list = a.is_number ? b : a, times = a.is_number ? a : b, ret;

	if (p->wrong)
		return a;
	if (a.is_number && b.is_number) {
		if (llabs(a.list[0]) > PATTERN_MAX || llabs(b.list[0]) > PATTERN_MAX)
			return pattern_fails(p, "smaller numbers");
		a.list[0] *= b.list[0];
		return a;
	}
	if (!times.is_number || times.list[0] > PATTERN_MAX)
		return pattern_fails(p, "a list and a number at *");
	ret = items_new(p, times.list[0] < 0 ? 0 : list.count * (size_t)times.list[0]);
	for (size_t i = 0; !p->wrong && i < ret.count; i++)
		ret.list[i] = list.list[i % list.count];
	return ret;
}

/* "[...]": numbers with commas between, the last comma may stand alone. */
static struct items bracketed(struct pattern *p)
{
	struct items ret = items_new(p, 0);

	p->at++;
	while (!p->wrong && *p->at != ']') {
		struct items item = sum(p);

		if (!p->wrong && !item.is_number)
			return pattern_fails(p, "numbers within [ ]");
		item.is_number = false;
		ret = joined(p, ret, item);
		if (*p->at == ',')
			p->at++;
		else if (*p->at != ']')
			return pattern_fails(p, "a closing ]");
	}
	p->at++;
	return ret;
}

static struct items factor(struct pattern *p)
{
	struct items ret;

	if (p->wrong)
		return (struct items){0};
	if (p->depth > 32)
		return pattern_fails(p, "fewer brackets");
	p->depth++;
	if (isdigit((unsigned char)*p->at)) {
		ret = one_number(p);
	} else if (*p->at == '[') {
		ret = bracketed(p);
	} else if (*p->at == '(') {
		p->at++;
		ret = sum(p);
		if (!p->wrong && *p->at != ')')
			return pattern_fails(p, "a closing )");
		p->at += *p->at == ')';
	} else {
		return pattern_fails(p, "a list as \"([0]*1+[1]*3)*2\"");
	}
	p->depth--;
	return ret;
}

static struct items product(struct pattern *p)
{
	struct items ret = factor(p);

	while (!p->wrong && *p->at == '*') {
		p->at++;
		ret = repeated(p, ret, factor(p));
	}
	return ret;
}

static struct items sum(struct pattern *p)
{
	struct items ret = product(p);

	while (!p->wrong && *p->at == '+') {
		p->at++;
		ret = joined(p, ret, product(p));
	}
	return ret;
}

static int list_of_numbers(struct mfs_arena *arena, const int64_t *list, size_t count,
			   struct mft_flag_value *ret, struct mfs_error *err)
{
	struct mft_flag_value *items = mfs_arena_array(arena, count ? count : 1, sizeof(*items));

	if (!items)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count; i++)
		items[i] = number(list[i]);
	*ret = (struct mft_flag_value){.type = MFT_IS_LIST, .items = items, .count = count};
	return 0;
}

static int read_pattern(const char *spelling, const char *word, struct mfs_arena *arena,
			struct mft_flag_value *ret, struct mfs_error *err)
{
	struct pattern p = {.at = word, .arena = arena};
	struct items list;
	int64_t i;

	if (mft_number_int(word, &i) == MFT_NUMBER_OK) {
		*ret = number(i);
		return 0;
	}
	list = sum(&p);
	if (!p.wrong && (*p.at || list.is_number))
		pattern_fails(&p, "a number, or a list as \"([0]*1+[1]*3)*2\"");
	if (p.wrong)
		return mfs_fail(err, -EINVAL, "%s: expected %s, found '%.80s'", spelling, p.wrong,
				word);
	return list_of_numbers(arena, list.list, list.count, ret, err);
}

static int read_tuple(const char *spelling, const char *word, struct mfs_arena *arena,
		      struct mft_flag_value *ret, struct mfs_error *err)
{
	const char *at = word + strspn(word, "(");
	int64_t list[16];
	size_t count = 0;

	for (;;) {
		const size_t len = strcspn(at, ",)");
		char item[32];

		snprintf(item, sizeof(item), "%.*s", (int)(len < 31 ? len : 31), at);
		if (count == 16 || mft_number_int(item, &list[count++]) != MFT_NUMBER_OK)
			return mfs_fail(err, -EINVAL,
					"%s: expected integers with commas between, found '%.80s'",
					spelling, word);
		at += len;
		if (*at != ',')
			break;
		at++;
	}
	if (at[strspn(at, ")")])
		return mfs_fail(err, -EINVAL,
				"%s: expected integers with commas between, found '%.80s'",
				spelling, word);
	if (list_of_numbers(arena, list, count, ret, err))
		return -ENOMEM;
	ret->type = MFT_IS_TUPLE;
	return 0;
}

/* ---- one word ---- */

static int read_member(const struct mft_flag *f, const char *spelling, const char *word,
		       struct mft_flag_value *ret, struct mfs_error *err)
{
	for (size_t i = 0; f->of->names[i]; i++) {
		if (!mfs_str_is(f->of->names[i], word))
			continue;
		*ret = (struct mft_flag_value){
			.type = MFT_IS_ENUM, .number = (int64_t)i + 1, .of = f->of};
		return 0;
	}
	return mfs_fail(err, -EINVAL, "%s: expected a member of %s, found '%.80s'", spelling,
			f->of->class_name, word);
}

static int read_text(const struct mft_flag *f, const char *spelling, const char *word,
		     struct mfs_arena *arena, struct mft_flag_value *ret, struct mfs_error *err)
{
	ret->type = MFT_IS_TEXT;
	ret->text = mfs_arena_strndup(arena, word, strlen(word));
	if (!ret->text)
		return mfs_fail_nomem(err);
	if (f->choices && !mft_flag_is_choice(f->choices, word, strlen(word)))
		return mfs_fail(err, -EINVAL, "%s: expected one of %s, found '%.80s'", spelling,
				f->choices, word);
	return 0;
}

/* A choice is a value: +1 and 1 are one. */
static bool is_chosen(const struct mft_flag *f, const struct mft_flag_value *v)
{
	struct mfs_buf text = {0};
	bool chosen;

	if (!f->choices)
		return true;
	mft_flag_value_show(v, &text);
	chosen = !text.failed && mft_flag_is_choice(f->choices, text.data, text.len);
	mfs_buf_release(&text);
	return chosen;
}

static int read_number(const struct mft_flag *f, const char *spelling, const char *word,
		       struct mft_flag_value *ret, struct mfs_error *err)
{
	const bool whole = f->kind == MFT_FLAG_INT || f->kind == MFT_FLAG_INTS;
	enum mft_number_status found;

	ret->type = whole ? MFT_IS_INT : MFT_IS_REAL;
	found = whole ? mft_number_int(word, &ret->number) : mft_number_real(word, &ret->real);
	if (found != MFT_NUMBER_OK)
		return mfs_fail(err, -EINVAL, "%s: expected %s, found '%.80s'", spelling,
				mft_number_expected(found, whole), word);
	if (!is_chosen(f, ret))
		return mfs_fail(err, -EINVAL, "%s: expected one of %s, found %.80s", spelling,
				f->choices, word);
	return 0;
}

static int read_dtype(const struct mft_flag *f, const char *spelling, const char *word,
		      struct mft_flag_value *ret, struct mfs_error *err)
{
	if (!mft_flag_is_choice(f->choices, word, strlen(word)))
		return mfs_fail(err, -EINVAL, "%s: expected one of %s, found '%.80s'", spelling,
				f->choices, word);
	ret->dtype = mft_precision_type(word);
	ret->type = ret->dtype == MFS_DTYPE_NONE ? MFT_IS_NONE : MFT_IS_DTYPE;
	return 0;
}

static int read_word(const struct mft_flag *f, const char *spelling, const char *word,
		     struct mfs_arena *arena, struct mft_flag_value *ret, struct mfs_error *err)
{
	*ret = none();
	switch (f->kind) {
	case MFT_FLAG_INT:
	case MFT_FLAG_INTS:
	case MFT_FLAG_REAL:
	case MFT_FLAG_REALS:
		return read_number(f, spelling, word, ret, err);
	case MFT_FLAG_TEXT:
	case MFT_FLAG_TEXTS:
		return read_text(f, spelling, word, arena, ret, err);
	case MFT_FLAG_PATTERN:
		return read_pattern(spelling, word, arena, ret, err);
	case MFT_FLAG_TUPLE:
		return read_tuple(spelling, word, arena, ret, err);
	case MFT_FLAG_DTYPE:
		return read_dtype(f, spelling, word, ret, err);
	case MFT_FLAG_ENUM:
		return read_member(f, spelling, word, ret, err);
	case MFT_FLAG_TRUTH:
		*ret = truth(*word);
		return 0;
	default:
		return mfs_fail(err, -EINVAL, "%s: takes no value, found '%.80s'", spelling, word);
	}
}

static bool is_dropped(const struct mft_flag *f, const char *word)
{
	const char *const *dropped = f->kind == MFT_FLAG_ENUM ? f->of->dropped : NULL;

	for (; dropped && *dropped; dropped++)
		if (mfs_str_is(*dropped, word))
			return true;
	return false;
}

static int read_list(const struct mft_flag *f, const char *spelling, const char *const *words,
		     size_t count, struct mfs_arena *arena, struct mft_flag_value *ret,
		     struct mfs_error *err)
{
	struct mft_flag_value *items = mfs_arena_array(arena, count ? count : 1, sizeof(*items));
	size_t kept = 0;

	if (!items)
		return mfs_fail_nomem(err);
	if ((f->words == '+' && !count) ||
	    (isdigit((unsigned char)f->words) && count != (size_t)(f->words - '0')))
		return mfs_fail(err, -EINVAL, "%s: expected %s, found %zu", spelling,
				f->words == '+' ? "one value or more" : "three values", count);
	for (size_t i = 0; i < count; i++) {
		int rc = 0;

		if (!is_dropped(f, words[i]))
			rc = read_word(f, spelling, words[i], arena, &items[kept++], err);
		if (rc)
			return rc;
	}
	*ret = (struct mft_flag_value){.type = MFT_IS_LIST, .items = items, .count = kept};
	return 0;
}

int mft_flag_value_parse(const struct mft_flag *f, const char *spelling, const char *const *words,
			 size_t count, struct mfs_arena *arena, struct mft_flag_value *ret,
			 struct mfs_error *err)
{
	if (f->words)
		return read_list(f, spelling, words, count, arena, ret, err);
	if (count != 1)
		return mfs_fail(err, -EINVAL, "%s: expected one value, found %zu", spelling, count);
	return read_word(f, spelling, words[0], arena, ret, err);
}

/* ---- defaults ---- */

/* The defaults of the table are few kinds of Python's literals: None, True, False, 5, 0.5, 'text',
 * [] and ['text']. */
static int read_initial(const struct mft_flag *f, struct mfs_arena *arena,
			struct mft_flag_value *ret, struct mfs_error *err)
{
	const char *text = f->initial;
	const size_t len = strlen(text);
	char word[128];
	const char *words[1] = {word};

	*ret = none();
	if (mfs_str_is(text, "None"))
		return 0;
	if (mfs_str_is(text, "True") || mfs_str_is(text, "False")) {
		*ret = truth(*text == 'T');
		return 0;
	}
	if (mfs_str_is(text, "[]")) {
		ret->type = MFT_IS_LIST;
		return 0;
	}
	if (*text == '\'')
		snprintf(word, sizeof(word), "%.*s", (int)len - 2, text + 1);
	else if (*text == '[')
		snprintf(word, sizeof(word), "%.*s", (int)len - 4, text + 2);
	else if (mft_number_int(text, &ret->number) == MFT_NUMBER_OK) {
		ret->type = MFT_IS_INT;
		return 0;
	} else
		snprintf(word, sizeof(word), "%s", text);
	/* moe_router_load_balancing_type takes a list, and its default is none. */
	if (f->words && *text != '[')
		return read_word(f, f->dest, word, arena, ret, err);
	return mft_flag_value_parse(f, f->dest, words, 1, arena, ret, err);
}

int mft_flag_values_new(struct mfs_arena *arena, struct mft_flag_values **ret,
			struct mfs_error *err)
{
	const size_t count = mft_flag_count();
	struct mft_flag_values *v = mfs_arena_alloc(arena, sizeof(*v));
	int rc = 0;

	if (!v)
		return mfs_fail_nomem(err);
	v->at = mfs_arena_array(arena, count, sizeof(*v->at));
	v->from = mfs_arena_alloc(arena, count);
	if (!v->at || !v->from)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < count && !rc; i++)
		rc = read_initial(mft_flag_at(i), arena, &v->at[i], err);
	if (!rc)
		*ret = v;
	return rc;
}

/* ---- by dest ---- */

struct mft_flag_value *mft_flag_slot(struct mft_flag_values *v, const char *dest)
{
	const size_t number = mft_flag_of_dest(dest);

	assert(number != SIZE_MAX);
	return &v->at[number];
}

const struct mft_flag_value *mft_flag_get(const struct mft_flag_values *v, const char *dest)
{
	const size_t number = mft_flag_of_dest(dest);

	assert(number != SIZE_MAX);
	return &v->at[number];
}

bool mft_flag_is_given(const struct mft_flag_values *v, const char *dest)
{
	const size_t number = mft_flag_of_dest(dest);

	assert(number != SIZE_MAX);
	return v->from[number] != MFT_FROM_DEFAULT;
}

bool mft_flag_truth(const struct mft_flag_values *v, const char *dest)
{
	const struct mft_flag_value *x = mft_flag_get(v, dest);

	return x->type == MFT_IS_BOOL && x->truth;
}

int64_t mft_flag_number(const struct mft_flag_values *v, const char *dest, int64_t otherwise)
{
	const struct mft_flag_value *x = mft_flag_get(v, dest);

	return x->type == MFT_IS_INT ? x->number : otherwise;
}

double mft_flag_real(const struct mft_flag_values *v, const char *dest, double otherwise)
{
	const struct mft_flag_value *x = mft_flag_get(v, dest);

	return x->type == MFT_IS_REAL  ? x->real
	       : x->type == MFT_IS_INT ? (double)x->number
				       : otherwise;
}

const char *mft_flag_text(const struct mft_flag_values *v, const char *dest)
{
	const struct mft_flag_value *x = mft_flag_get(v, dest);

	return x->type == MFT_IS_TEXT ? x->text : NULL;
}

bool mft_flag_is_none(const struct mft_flag_values *v, const char *dest)
{
	return mft_flag_get(v, dest)->type == MFT_IS_NONE;
}

void mft_flag_set_none(struct mft_flag_values *v, const char *dest)
{
	*mft_flag_slot(v, dest) = none();
}

void mft_flag_set_truth(struct mft_flag_values *v, const char *dest, bool b)
{
	*mft_flag_slot(v, dest) = truth(b);
}

void mft_flag_set_number(struct mft_flag_values *v, const char *dest, int64_t i)
{
	*mft_flag_slot(v, dest) = number(i);
}

void mft_flag_set_real(struct mft_flag_values *v, const char *dest, double real)
{
	*mft_flag_slot(v, dest) = (struct mft_flag_value){.type = MFT_IS_REAL, .real = real};
}

void mft_flag_set_text(struct mft_flag_values *v, const char *dest, const char *text)
{
	*mft_flag_slot(v, dest) = (struct mft_flag_value){.type = MFT_IS_TEXT, .text = text};
}

void mft_flag_set_dtype(struct mft_flag_values *v, const char *dest, enum mfs_dtype dtype)
{
	*mft_flag_slot(v, dest) = (struct mft_flag_value){.type = MFT_IS_DTYPE, .dtype = dtype};
}

void mft_flag_set_member(struct mft_flag_values *v, const char *dest, int64_t value)
{
	const struct mft_flag *f = mft_flag_at(mft_flag_of_dest(dest));

	*mft_flag_slot(v, dest) =
		(struct mft_flag_value){.type = MFT_IS_ENUM, .number = value, .of = f->of};
}

/* ---- values to text ---- */

/* The shortest digits that give the number again; a fraction or an exponent says that it is one. */
static void show_real(double real, struct mfs_buf *out)
{
	char text[40];
	int digits = 1;

	if (!isfinite(real)) {
		mfs_buf_adds(out, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
		return;
	}
	do
		snprintf(text, sizeof(text), "%.*g", digits, real);
	while (strtod(text, NULL) != real && ++digits <= 17);
	/* %g has an exponent where Python has none below 1e16. */
	if (strchr(text, 'e') && fabs(real) >= 1 && fabs(real) < 1e16)
		snprintf(text, sizeof(text), "%.0f", real);
	mfs_buf_adds(out, text);
	if (!strpbrk(text, ".e"))
		mfs_buf_adds(out, ".0");
}

static void show_items(const struct mft_flag_value *v, struct mfs_buf *out)
{
	const bool list = v->type == MFT_IS_LIST;

	mfs_buf_adds(out, list ? "[" : "(");
	for (size_t i = 0; i < v->count; i++) {
		mfs_buf_adds(out, i ? ", " : "");
		mft_flag_value_show(&v->items[i], out);
	}
	mfs_buf_adds(out, list ? "]" : v->count == 1 ? ",)" : ")");
}

void mft_flag_value_show(const struct mft_flag_value *v, struct mfs_buf *out)
{
	switch (v->type) {
	case MFT_IS_NONE:
		mfs_buf_adds(out, "None");
		break;
	case MFT_IS_BOOL:
		mfs_buf_adds(out, v->truth ? "True" : "False");
		break;
	case MFT_IS_INT:
		mfs_buf_printf(out, "%lld", (long long)v->number);
		break;
	case MFT_IS_REAL:
		show_real(v->real, out);
		break;
	case MFT_IS_TEXT:
		mfs_buf_printf(out, strchr(v->text, '\'') ? "\"%s\"" : "'%s'", v->text);
		break;
	case MFT_IS_LIST:
	case MFT_IS_TUPLE:
		show_items(v, out);
		break;
	case MFT_IS_DTYPE:
		mfs_buf_printf(out, "torch.%s", mfs_dtype_torch(v->dtype));
		break;
	case MFT_IS_ENUM:
		mfs_buf_printf(out, "%s.%s", v->of->class_name, v->of->names[v->number - 1]);
		break;
	}
}

bool mft_flag_value_same(const struct mft_flag_value *a, const struct mft_flag_value *b)
{
	struct mfs_buf x = {0}, y = {0};
	bool same;

	if (a->type == MFT_IS_INT && b->type == MFT_IS_REAL)
		return (double)a->number == b->real;
	if (a->type == MFT_IS_REAL && b->type == MFT_IS_INT)
		return a->real == (double)b->number;
	mft_flag_value_show(a, &x);
	mft_flag_value_show(b, &y);
	same = !x.failed && !y.failed && x.len == y.len && !memcmp(x.data, y.data, x.len);
	mfs_buf_release(&x);
	mfs_buf_release(&y);
	return same;
}
