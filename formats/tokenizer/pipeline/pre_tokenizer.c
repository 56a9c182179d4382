#include "formats/tokenizer/pipeline/pre_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/tokenizer/unicode/byte_chars.h"
#include "formats/tokenizer/unicode/characters.h"
#include "formats/tokenizer/pipeline/part_json.h"
#include "formats/tokenizer/unicode/utf8.h"

#define DEPTH_MAX 16 /* sequences in sequences */
#define COUNT_MAX 64 /* steps call each other */

/* GPT-2's expression (pre_tokenizers/byte_level.rs), and that of Whitespace (whitespace.rs). */
#define BYTE_LEVEL                                                                                 \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WHITESPACE "\\w+|[^\\w\\s]+"

/* One walk over a text. */
struct run {
	const struct mfs_pre_tokenizers *list;
	struct mfs_pre_tokenize_memory *memory;
	const struct mfs_pre_tokenize_hooks *hooks;
	void *arg;
	struct mfs_error *err;
};

struct mfs_pre_tokenizer_kind {
	const char *type;
	int (*read)(struct mfs_pre_tokenizers *list, struct mfs_pre_tokenizer *p,
		    const json_t *json, struct mfs_error *err);
	int (*run)(struct run *r, size_t step, const struct mfs_text_part *part);
};

/* Gives a part to a step, or to the hook after the last one. */
static int run_step(struct run *r, size_t step, const struct mfs_text_part *part)
{
	if (!part->len)
		return 0;
	if (step == r->list->count)
		return r->hooks->word(r->arg, part->text, part->len, r->err);
	return r->list->at[step].kind->run(r, step, part);
}

/* ---- what becomes of matches and of what is between them ---- */

struct splitter {
	struct run *run;
	size_t step; /* the next one */
	const struct mfs_text_part *part;
	enum mfs_split_behavior behavior;
	bool invert;
	size_t start, end; /* what is not given on yet */
	bool pending, was_match;
};

static int give(struct splitter *s, size_t start, size_t end)
{
	const struct mfs_text_part part = mfs_text_part_slice(s->part, start, end);

	return run_step(s->run, s->step, &part);
}

static int give_pending(struct splitter *s)
{
	const bool pending = s->pending;

	s->pending = false;
	return pending ? give(s, s->start, s->end) : 0;
}

static int wait_with(struct splitter *s, size_t start, size_t end)
{
	const int rc = give_pending(s);

	s->start = start;
	s->end = end;
	s->pending = true;
	return rc;
}

/* tokenizer/normalizer.rs: NormalizedString::split, without looking back. */
static int put(struct splitter *s, size_t start, size_t end, bool is_match)
{
	const bool was_match = s->was_match;
	bool joins = false;

	is_match ^= s->invert;
	s->was_match = is_match;
	switch (s->behavior) {
	case MFS_SPLIT_REMOVED:
		return is_match ? 0 : give(s, start, end);
	case MFS_SPLIT_ISOLATED:
		return give(s, start, end);
	case MFS_SPLIT_CONTIGUOUS:
		joins = is_match == was_match;
		break;
	case MFS_SPLIT_MERGED_WITH_PREVIOUS:
		joins = is_match && !was_match;
		break;
	case MFS_SPLIT_MERGED_WITH_NEXT:
		joins = !is_match && was_match;
		break;
	}
	if (!joins || !s->pending)
		return wait_with(s, start, end);
	s->end = end;
	return 0;
}

/* The part's bytes up to start, if there are any, and then a match. */
static int put_match(struct splitter *s, size_t *done, size_t start, size_t end)
{
	int rc = *done != start ? put(s, *done, start, false) : 0;

	*done = end;
	return rc ? rc : put(s, start, end, true);
}

static int put_rest(struct splitter *s, size_t done)
{
	int rc = done != s->part->len ? put(s, done, s->part->len, false) : 0;

	return rc ? rc : give_pending(s);
}

static int split_by_regex(struct splitter *s, const struct mfs_regex *regex)
{
	struct mfs_regex_walk walk;
	size_t start, end, done = 0;
	int found, rc = mfs_regex_walk_begin(&walk, regex, s->run->memory->regex, s->part->text,
					     s->part->len, s->run->err);

	while (!rc && (found = mfs_regex_walk_next(&walk, &start, &end, s->run->err)) != 0)
		rc = found < 0 ? found : put_match(s, &done, start, end);
	mfs_regex_walk_end(&walk);
	return rc ? rc : put_rest(s, done);
}

static int split_by_character(struct splitter *s, const struct mfs_pre_tokenizer *p)
{
	size_t size, done = 0;
	int rc = 0;

	for (size_t i = 0; i < s->part->len && !rc; i += size) {
		const uint32_t c = mfs_utf8_get(s->part->text + i, &size);

		if (p->is_match ? p->is_match(c) : c == p->character)
			rc = put_match(s, &done, i, i + size);
	}
	return rc ? rc : put_rest(s, done);
}

static int run_split(struct run *r, size_t step, const struct mfs_text_part *part)
{
	const struct mfs_pre_tokenizer *p = &r->list->at[step];
	struct splitter s = {.run = r,
			     .step = step + 1,
			     .part = part,
			     .behavior = p->behavior,
			     .invert = p->invert};

	return p->regex ? split_by_regex(&s, p->regex) : split_by_character(&s, p);
}

/* ---- Split, and what is one ---- */

static const struct {
	const char *name;
	enum mfs_split_behavior behavior;
} behaviors[] = {
	{"Removed", MFS_SPLIT_REMOVED},
	{"Isolated", MFS_SPLIT_ISOLATED},
	{"MergedWithPrevious", MFS_SPLIT_MERGED_WITH_PREVIOUS},
	{"MergedWithNext", MFS_SPLIT_MERGED_WITH_NEXT},
	{"Contiguous", MFS_SPLIT_CONTIGUOUS},
};

static int read_behavior(const json_t *json, enum mfs_split_behavior *ret, struct mfs_error *err)
{
	const char *name = json_string_value(json_object_get(json, "behavior"));

	for (size_t i = 0; i < MFS_ARRAY_SIZE(behaviors); i++)
		if (mfs_str_is(name, behaviors[i].name)) {
			*ret = behaviors[i].behavior;
			return 0;
		}
	return mfs_fail(err, -ENOTSUP, "pre_tokenizer behavior \"%s\" is not known",
			name ? name : "");
}

#define READ                                                                                       \
	struct mfs_pre_tokenizers *list, struct mfs_pre_tokenizer *p, const json_t *json,          \
		struct mfs_error *err
#define UNUSED (void)list, (void)json, (void)err

static int read_split(READ)
{
	int rc = mfs_part_pattern(json, &p->regex, err);

	UNUSED;
	if (!rc)
		rc = read_behavior(json, &p->behavior, err);
	return rc ? rc : mfs_part_bool(json, "invert", &p->invert, err);
}

static int read_whitespace(READ)
{
	UNUSED;
	p->behavior = MFS_SPLIT_REMOVED;
	p->invert = true;
	return mfs_regex_new(WHITESPACE, strlen(WHITESPACE), MFS_REGEX_RUST, &p->regex, err);
}

static int read_whitespace_split(READ)
{
	UNUSED;
	p->is_match = mfs_is_space;
	p->behavior = MFS_SPLIT_REMOVED;
	return 0;
}

static int read_digits(READ)
{
	bool individual;
	int rc = mfs_part_bool(json, "individual_digits", &individual, err);

	UNUSED;
	p->is_match = mfs_is_numeric;
	p->behavior = !rc && individual ? MFS_SPLIT_ISOLATED : MFS_SPLIT_CONTIGUOUS;
	return rc;
}

static int read_punctuation(READ)
{
	UNUSED;
	p->is_match = mfs_is_punctuation;
	p->behavior = MFS_SPLIT_ISOLATED;
	return json_object_get(json, "behavior") ? read_behavior(json, &p->behavior, err) : 0;
}

static int read_delimiter(READ)
{
	UNUSED;
	p->behavior = MFS_SPLIT_REMOVED;
	return mfs_part_character(json, "delimiter", &p->character, err);
}

/* ---- FixedLength ---- */

static int read_fixed_length(READ)
{
	UNUSED;
	p->length = 5;
	if (json_object_get(json, "length") && mfs_part_count(json, "length", &p->length, err))
		return -EINVAL;
	return p->length ? 0 : mfs_fail(err, -EINVAL, "FixedLength.length is 0");
}

static int run_fixed_length(struct run *r, size_t step, const struct mfs_text_part *part)
{
	size_t start = 0, end = 0, count = 0;
	int rc = 0;

	while (end < part->len && !rc) {
		struct mfs_text_part piece;

		end += mfs_utf8_size(part->text[end]);
		if (++count < r->list->at[step].length && end < part->len)
			continue;
		piece = mfs_text_part_slice(part, start, end);
		rc = run_step(r, step + 1, &piece);
		start = end;
		count = 0;
	}
	return rc;
}

/* ---- ByteLevel ---- */

static int read_byte_level(READ)
{
	const json_t *use_regex = json_object_get(json, "use_regex");
	bool cuts = true;
	int rc = mfs_part_bool(json, "add_prefix_space", &p->prefix_space, err);

	UNUSED;
	if (!rc && use_regex)
		rc = mfs_part_bool(json, "use_regex", &cuts, err);
	if (!rc && cuts)
		rc = mfs_regex_new(BYTE_LEVEL, strlen(BYTE_LEVEL), MFS_REGEX_ONIGURUMA, &p->regex,
				   err);
	p->behavior = MFS_SPLIT_ISOLATED;
	return rc;
}

/* The part in a buffer of the step's own, after prefix. */
static int with_prefix(struct run *r, size_t step, struct mfs_text_part *part, const char *prefix,
		       size_t prefix_len)
{
	struct mfs_buf *b = &r->memory->texts[step];

	b->len = 0;
	mfs_buf_add(b, prefix, prefix_len);
	mfs_buf_add(b, part->text, part->len);
	if (b->failed)
		return mfs_fail_nomem(r->err);
	*part = (struct mfs_text_part){b->data, b->len, part->first ? part->first + prefix_len : 0};
	return 0;
}

static int run_byte_level(struct run *r, size_t step, const struct mfs_text_part *part)
{
	const struct mfs_pre_tokenizer *p = &r->list->at[step];
	struct mfs_text_part with = *part;
	int rc = 0;

	if (p->prefix_space && part->text[0] != ' ')
		rc = with_prefix(r, step, &with, " ", 1);
	if (rc)
		return rc;
	return p->regex ? run_split(r, step, &with) : run_step(r, step + 1, &with);
}

/* The second half of a ByteLevel that is not the last step. */
static int run_byte_chars(struct run *r, size_t step, const struct mfs_text_part *part)
{
	struct mfs_buf *b = &r->memory->texts[step];
	struct mfs_text_part mapped = {0};

	b->len = 0;
	mfs_byte_chars_add(b, part->text, part->first);
	mapped.first = b->len;
	mfs_byte_chars_add(b, part->text + part->first, part->len - part->first);
	if (b->failed)
		return mfs_fail_nomem(r->err);
	mapped.text = b->data;
	mapped.len = b->len;
	return run_step(r, step + 1, &mapped);
}

/* ---- Metaspace ---- */

static const struct {
	const char *name;
	enum mfs_prepend_scheme scheme;
} schemes[] = {
	{"never", MFS_PREPEND_NEVER},
	{"first", MFS_PREPEND_FIRST},
	{"always", MFS_PREPEND_ALWAYS},
};

static int read_scheme(const json_t *json, enum mfs_prepend_scheme *ret, struct mfs_error *err)
{
	const json_t *value = json_object_get(json, "prepend_scheme");
	const char *name = json_string_value(value);

	*ret = MFS_PREPEND_ALWAYS;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(schemes); i++)
		if (mfs_str_is(name, schemes[i].name)) {
			*ret = schemes[i].scheme;
			return 0;
		}
	return !value ? 0
		      : mfs_fail(err, -ENOTSUP, "Metaspace.prepend_scheme \"%s\" is not known",
				 name ? name : "");
}

int mfs_metaspace_read(const json_t *json, uint32_t *ret_character,
		       enum mfs_prepend_scheme *ret_scheme, bool *ret_splits, struct mfs_error *err)
{
	int rc = mfs_part_character(json, "replacement", ret_character, err);

	if (!rc)
		rc = read_scheme(json, ret_scheme, err);
	if (!rc && json_is_false(json_object_get(json, "add_prefix_space"))) {
		if (json_object_get(json, "prepend_scheme") && *ret_scheme != MFS_PREPEND_NEVER)
			return mfs_fail(err, -EINVAL,
					"Metaspace: add_prefix_space contradicts prepend_scheme");
		*ret_scheme = MFS_PREPEND_NEVER;
	}
	*ret_splits = !json_is_false(json_object_get(json, "split"));
	return rc;
}

static int read_metaspace(READ)
{
	UNUSED;
	p->behavior = MFS_SPLIT_MERGED_WITH_NEXT;
	return mfs_metaspace_read(json, &p->character, &p->scheme, &p->splits, err);
}

/* Appends a part with the replacement for its blanks. */
static void add_replaced(struct mfs_buf *b, const char *text, size_t len, const char *mark,
			 size_t mark_len)
{
	const char *end = text + len, *blank;

	while (text < end && (blank = memchr(text, ' ', (size_t)(end - text)))) {
		mfs_buf_add(b, text, (size_t)(blank - text));
		mfs_buf_add(b, mark, mark_len);
		text = blank + 1;
	}
	mfs_buf_add(b, text, (size_t)(end - text));
}

static int run_metaspace(struct run *r, size_t step, const struct mfs_text_part *part)
{
	const struct mfs_pre_tokenizer *p = &r->list->at[step];
	struct mfs_buf *b = &r->memory->texts[step];
	struct mfs_text_part marked = {0};
	char mark[4];
	const size_t mark_len = mfs_utf8_put(p->character, mark);
	const bool starts = part->text[0] == ' ' ||
			    (part->len >= mark_len && !memcmp(part->text, mark, mark_len));

	b->len = 0;
	if (!starts &&
	    (p->scheme == MFS_PREPEND_ALWAYS || (p->scheme == MFS_PREPEND_FIRST && part->first)))
		mfs_buf_add(b, mark, mark_len);
	add_replaced(b, part->text, part->first, mark, mark_len);
	marked.first = part->first ? b->len : 0;
	add_replaced(b, part->text + part->first, part->len - part->first, mark, mark_len);
	if (b->failed)
		return mfs_fail_nomem(r->err);
	marked.text = b->data;
	marked.len = b->len;
	return p->splits ? run_split(r, step, &marked) : run_step(r, step + 1, &marked);
}

/* ---- the list ---- */

static const struct mfs_pre_tokenizer_kind kinds[] = {
	{"ByteLevel", read_byte_level, run_byte_level},
	{"Split", read_split, run_split},
	{"Whitespace", read_whitespace, run_split},
	{"WhitespaceSplit", read_whitespace_split, run_split},
	{"Metaspace", read_metaspace, run_metaspace},
	{"Digits", read_digits, run_split},
	{"Punctuation", read_punctuation, run_split},
	{"BertPreTokenizer", read_whitespace_split, run_split},
	{"CharDelimiterSplit", read_delimiter, run_split},
	{"FixedLength", read_fixed_length, run_fixed_length},
};

/* Second steps of those that have two. */
static const struct mfs_pre_tokenizer_kind byte_chars_step = {"ByteLevel", NULL, run_byte_chars};
static const struct mfs_pre_tokenizer_kind bert_step = {"BertPreTokenizer", NULL, run_split};

static int add_step(struct mfs_pre_tokenizers *list, struct mfs_error *err)
{
	if (list->count == COUNT_MAX)
		return mfs_fail(err, -ENOTSUP, "more than %u pre-tokenizers", COUNT_MAX);
	if (mfs_grow(&list->at, list->count))
		return mfs_fail_nomem(err);
	list->at[list->count++] = (struct mfs_pre_tokenizer){0};
	return 0;
}

static int add_second(struct mfs_pre_tokenizers *list, const char *type, struct mfs_error *err)
{
	struct mfs_pre_tokenizer *p;
	int rc;

	if (strcmp(type, "ByteLevel") != 0 && strcmp(type, "BertPreTokenizer") != 0)
		return 0;
	rc = add_step(list, err);
	if (rc)
		return rc;
	p = &list->at[list->count - 1];
	p->kind = strcmp(type, "ByteLevel") ? &bert_step : &byte_chars_step;
	p->is_match = mfs_is_punctuation;
	p->behavior = MFS_SPLIT_ISOLATED;
	return 0;
}

static int read_one(struct mfs_pre_tokenizers *list, const json_t *json, const char *type,
		    struct mfs_error *err)
{
	struct mfs_pre_tokenizer *p;
	int rc = add_step(list, err);

	if (rc)
		return rc;
	p = &list->at[list->count - 1];
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].type, type))
			p->kind = &kinds[i];
	if (!p->kind)
		return mfs_fail(err, -ENOTSUP, "pre_tokenizer \"%s\" is not known", type);
	rc = p->kind->read(list, p, json, err);
	return rc ? rc : add_second(list, type, err);
}

static int read_list(struct mfs_pre_tokenizers *list, const json_t *json, unsigned depth,
		     struct mfs_error *err)
{
	const json_t *inner = json_object_get(json, "pretokenizers");
	const char *type = mfs_part_type(json);
	size_t i;
	json_t *one;
	int rc = 0;

	if (!type || depth > DEPTH_MAX)
		return mfs_fail(err, -ENOTSUP, "a pre_tokenizer without a type, or in %u others",
				DEPTH_MAX);
	if (strcmp(type, "Sequence") != 0)
		return read_one(list, json, type, err);
	if (!json_is_array(inner))
		return mfs_fail(err, -EINVAL, "pre_tokenizer Sequence has no pretokenizers");
	json_array_foreach(inner, i, one)
	{
		rc = rc ? rc : read_list(list, one, depth + 1, err);
	}
	return rc;
}

int mfs_pre_tokenizers_read(struct mfs_pre_tokenizers *list, const json_t *json,
			    struct mfs_error *err)
{
	int rc = json && !json_is_null(json) ? read_list(list, json, 0, err) : 0;

	/* The last characters for bytes are the caller's to make. */
	if (!rc && list->count && list->at[list->count - 1].kind == &byte_chars_step) {
		list->count--;
		list->bytes_remain = true;
	}
	return rc;
}

int mfs_pre_tokenizers_add_split(struct mfs_pre_tokenizers *list, struct mfs_regex *regex,
				 struct mfs_error *err)
{
	static const struct mfs_pre_tokenizer_kind split = {"Split", NULL, run_split};
	const int rc = add_step(list, err);

	if (rc) {
		mfs_regex_free(regex);
		return rc;
	}
	list->at[list->count - 1] = (struct mfs_pre_tokenizer){
		.kind = &split, .regex = regex, .behavior = MFS_SPLIT_ISOLATED};
	return 0;
}

void mfs_pre_tokenizers_release(struct mfs_pre_tokenizers *list)
{
	for (size_t i = 0; i < list->count; i++)
		mfs_regex_free(list->at[i].regex);
	free(list->at);
	*list = (struct mfs_pre_tokenizers){0};
}

int mfs_pre_tokenize_memory_init(struct mfs_pre_tokenize_memory *memory,
				 const struct mfs_pre_tokenizers *list,
				 struct mfs_regex_memory *regex, struct mfs_error *err)
{
	memory->regex = regex;
	memory->texts = calloc(list->count + 1, sizeof(*memory->texts));
	return memory->texts ? 0 : mfs_fail_nomem(err);
}

void mfs_pre_tokenize_memory_release(struct mfs_pre_tokenize_memory *memory,
				     const struct mfs_pre_tokenizers *list)
{
	for (size_t i = 0; memory->texts && i < list->count; i++)
		mfs_buf_release(&memory->texts[i]);
	free(memory->texts);
	*memory = (struct mfs_pre_tokenize_memory){0};
}

int mfs_pre_tokenize(const struct mfs_pre_tokenizers *list, struct mfs_pre_tokenize_memory *memory,
		     const struct mfs_text_part *part, const struct mfs_pre_tokenize_hooks *hooks,
		     void *arg, struct mfs_error *err)
{
	struct run r = {list, memory, hooks, arg, err};

	return run_step(&r, 0, part);
}
