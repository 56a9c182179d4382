#include "formats/tokenizer/pipeline/normalizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/base/base64.h"
#include "formats/tokenizer/unicode/byte_chars.h"
#include "formats/tokenizer/unicode/characters.h"
#include "formats/tokenizer/unicode/compose.h"
#include "formats/tokenizer/pipeline/part_json.h"
#include "formats/tokenizer/unicode/utf8.h"

#define DEPTH_MAX 16 /* sequences in sequences */
#define COUNT_MAX 256

struct mfs_normalizer_kind {
	const char *type;
	int (*read)(struct mfs_normalizer *n, const json_t *json, struct mfs_error *err);
	/* Writes what becomes of in to out, and sets *first of it: bytes that come from in->first.
	 * Returns 1 if in stays as it is, and out as it was. */
	int (*run)(const struct mfs_normalizer *n, struct mfs_normalize_memory *memory,
		   const struct mfs_text_part *in, struct mfs_buf *out, size_t *first,
		   struct mfs_error *err);
};

/* What the functions of a run have in common. */
#define RUN                                                                                        \
	const struct mfs_normalizer *n, struct mfs_normalize_memory *memory,                       \
		const struct mfs_text_part *in, struct mfs_buf *out, size_t *first,                \
		struct mfs_error *err
#define UNUSED (void)n, (void)memory, (void)err

static bool is_ascii(const struct mfs_text_part *part)
{
	for (size_t i = 0; i < part->len; i++)
		if ((uint8_t)part->text[i] >= 0x80)
			return false;
	return true;
}

/* ---- one character at a time ---- */

/* What becomes of a character: appends it, or nothing, to out. */
typedef void (*map_hook)(const struct mfs_normalizer *n, uint32_t c, struct mfs_buf *out);

static int map_characters(const struct mfs_normalizer *n, const struct mfs_text_part *in,
			  struct mfs_buf *out, size_t *first, map_hook map)
{
	size_t size;

	*first = 0;
	for (size_t i = 0; i < in->len; i += size) {
		map(n, mfs_utf8_get(in->text + i, &size), out);
		if (i < in->first)
			*first = out->len;
	}
	return 0;
}

/* ---- NFC, NFD, NFKC, NFKD ---- */

static int run_form(const struct mfs_text_part *in, struct mfs_buf *out, size_t *first,
		    enum mfs_form form, struct mfs_error *err)
{
	int rc;

	if (is_ascii(in))
		return 1;
	if (in->first) {
		/* its end follows from the first character alone */
		rc = mfs_compose(in->text, in->first, form, out, err);
		if (rc)
			return rc;
		*first = out->len;
		out->len = 0;
	}
	rc = mfs_compose(in->text, in->len, form, out, err);
	/* what follows may have become a part of it */
	while (*first && *first < out->len && ((uint8_t)out->data[*first] & 0xc0) == 0x80)
		++*first;
	if (*first > out->len)
		*first = out->len;
	return rc;
}

static int run_nfc(RUN)
{
	UNUSED;
	return run_form(in, out, first, MFS_NFC, err);
}

static int run_nfd(RUN)
{
	UNUSED;
	return run_form(in, out, first, MFS_NFD, err);
}

static int run_nfkc(RUN)
{
	UNUSED;
	return run_form(in, out, first, MFS_NFKC, err);
}

static int run_nfkd(RUN)
{
	UNUSED;
	return run_form(in, out, first, MFS_NFKD, err);
}

/* ---- Lowercase, StripAccents, Nmt, ByteLevel ---- */

static void lower(const struct mfs_normalizer *n, uint32_t c, struct mfs_buf *out)
{
	(void)n;
	if (c == 0x130) /* the one character of which two become (SpecialCasing.txt) */
		mfs_buf_adds(out, "i\xcc\x87");
	else
		mfs_utf8_add(out, mfs_lower(c));
}

static int run_lowercase(RUN)
{
	UNUSED;
	return map_characters(n, in, out, first, lower);
}

static void drop_mark(const struct mfs_normalizer *n, uint32_t c, struct mfs_buf *out)
{
	(void)n;
	if (!mfs_is_mark(c))
		mfs_utf8_add(out, c);
}

static int run_strip_accents(RUN)
{
	UNUSED;
	return is_ascii(in) ? 1 : map_characters(n, in, out, first, drop_mark);
}

/* normalizers/unicode.rs: do_nmt. */
static void map_nmt(const struct mfs_normalizer *n, uint32_t c, struct mfs_buf *out)
{
	(void)n;
	if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
	    c == 0x9f)
		return;
	if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
	    (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
	    c == 0xfeff || c == 0xfffd)
		c = ' ';
	mfs_utf8_add(out, c);
}

static int run_nmt(RUN)
{
	UNUSED;
	return map_characters(n, in, out, first, map_nmt);
}

static int run_byte_level(RUN)
{
	UNUSED;
	mfs_byte_chars_add(out, in->text, in->first);
	*first = out->len;
	mfs_byte_chars_add(out, in->text + in->first, in->len - in->first);
	return 0;
}

/* ---- Strip ---- */

static int read_strip(struct mfs_normalizer *n, const json_t *json, struct mfs_error *err)
{
	int rc = mfs_part_bool(json, "strip_left", &n->left, err);

	return rc ? rc : mfs_part_bool(json, "strip_right", &n->right, err);
}

static int run_strip(RUN)
{
	size_t start = 0, end = in->len, size;

	UNUSED;
	while (n->left && start < end && mfs_is_space(mfs_utf8_get(in->text + start, &size)))
		start += size;
	while (n->right && end > start && mfs_is_space(mfs_utf8_before(in->text + end, &size)))
		end -= size;
	if (end - start == in->len)
		return 1;
	mfs_buf_add(out, in->text + start, end - start);
	*first = mfs_text_part_slice(in, start, end).first;
	return 0;
}

/* ---- Replace, Prepend ---- */

static int read_replace(struct mfs_normalizer *n, const json_t *json, struct mfs_error *err)
{
	int rc = mfs_part_pattern(json, &n->regex, err);

	return rc ? rc : mfs_part_text(json, "content", &n->content, err);
}

/* What stands between matches, and the content for each of these. */
static int replace_matches(const struct mfs_normalizer *n, struct mfs_regex_walk *walk,
			   const struct mfs_text_part *in, struct mfs_buf *out, size_t *first,
			   struct mfs_error *err)
{
	size_t start, end, done = 0;
	int found;

	while ((found = mfs_regex_walk_next(walk, &start, &end, err)) > 0) {
		mfs_buf_add(out, in->text + done, start - done);
		if (done < in->first)
			*first = out->len - (start > in->first ? start - in->first : 0);
		mfs_buf_add(out, n->content.data, n->content.len);
		if (end && end <= in->first)
			*first = out->len;
		done = end;
	}
	mfs_buf_add(out, in->text + done, in->len - done);
	if (done < in->first)
		*first = out->len - (in->len - in->first);
	return found;
}

static int run_replace(RUN)
{
	struct mfs_regex_walk walk;
	int rc = mfs_regex_walk_begin(&walk, n->regex, memory->regex, in->text, in->len, err);

	*first = 0;
	if (!rc)
		rc = replace_matches(n, &walk, in, out, first, err);
	mfs_regex_walk_end(&walk);
	return rc;
}

static int read_prepend(struct mfs_normalizer *n, const json_t *json, struct mfs_error *err)
{
	return mfs_part_text(json, "prepend", &n->content, err);
}

static int run_prepend(RUN)
{
	UNUSED;
	if (!in->len)
		return 1;
	mfs_buf_add(out, n->content.data, n->content.len);
	mfs_buf_add(out, in->text, in->len);
	*first = in->first ? in->first + n->content.len : 0;
	return 0;
}

/* ---- BertNormalizer ---- */

static int read_bert(struct mfs_normalizer *n, const json_t *json, struct mfs_error *err)
{
	const json_t *accents = json_object_get(json, "strip_accents");
	int rc = mfs_part_bool(json, "clean_text", &n->clean, err);

	if (!rc)
		rc = mfs_part_bool(json, "handle_chinese_chars", &n->chinese, err);
	if (!rc)
		rc = mfs_part_bool(json, "lowercase", &n->lowercase, err);
	n->strip_accents = n->lowercase;
	if (!rc && accents && !json_is_null(accents))
		rc = mfs_part_bool(json, "strip_accents", &n->strip_accents, err);
	return rc;
}

/* normalizers/bert.rs: is_chinese_char. */
static bool is_chinese(uint32_t c)
{
	return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
	       (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
	       (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
	       (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static void clean(const struct mfs_normalizer *n, uint32_t c, struct mfs_buf *out)
{
	if (n->clean) {
		if (!c || c == 0xfffd || (mfs_is_other(c) && c != '\t' && c != '\n' && c != '\r'))
			return;
		if (mfs_is_space(c))
			c = ' ';
	}
	if (n->chinese && is_chinese(c)) {
		mfs_buf_adds(out, " ");
		mfs_utf8_add(out, c);
		mfs_buf_adds(out, " ");
	} else {
		mfs_utf8_add(out, c);
	}
}

static void drop_nonspacing(const struct mfs_normalizer *n, uint32_t c, struct mfs_buf *out)
{
	(void)n;
	if (!mfs_is_nonspacing_mark(c))
		mfs_utf8_add(out, c);
}

static int run_bert_clean(RUN)
{
	UNUSED;
	return n->clean || n->chinese ? map_characters(n, in, out, first, clean) : 1;
}

static int run_bert_nfd(RUN)
{
	return n->strip_accents ? run_nfd(n, memory, in, out, first, err) : 1;
}

static int run_bert_accents(RUN)
{
	UNUSED;
	return n->strip_accents && !is_ascii(in)
		       ? map_characters(n, in, out, first, drop_nonspacing)
		       : 1;
}

static int run_bert_lower(RUN)
{
	return n->lowercase ? run_lowercase(n, memory, in, out, first, err) : 1;
}

/* ---- Precompiled ---- */

static int read_precompiled(struct mfs_normalizer *n, const json_t *json, struct mfs_error *err)
{
	const json_t *text = json_object_get(json, "precompiled_charsmap");
	struct mfs_buf bytes = {0};
	int rc;

	if (!json_is_string(text))
		return mfs_fail(err, -EINVAL, "Precompiled has no precompiled_charsmap");
	rc = mfs_base64_decode(json_string_value(text), json_string_length(text), &bytes, err);
	if (!rc)
		rc = mfs_charsmap_init(&n->charsmap, (const uint8_t *)bytes.data, bytes.len, err);
	mfs_buf_release(&bytes);
	return rc;
}

/* The end of the grapheme that begins at start. */
static size_t grapheme_end(const struct mfs_text_part *in, size_t start)
{
	utf8proc_int32_t state = 0;
	size_t size, at = start;
	uint32_t c = mfs_utf8_get(in->text + at, &size), next;

	for (at += size; at < in->len; at += size, c = next) {
		next = mfs_utf8_get(in->text + at, &size);
		if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next,
						     &state))
			break;
	}
	return at;
}

/* normalizers/precompiled.rs: a grapheme of less than 6 bytes as a whole, by its shortest prefix,
 * and then each of its characters. */
static void map_grapheme(const struct mfs_normalizer *n, const char *text, size_t len,
			 struct mfs_buf *out)
{
	const char *to = len < 6 ? mfs_charsmap_find(&n->charsmap, text, len, false, NULL) : NULL;
	size_t size;

	if (to) {
		mfs_buf_adds(out, to);
		return;
	}
	for (size_t i = 0; i < len; i += size) {
		size = mfs_utf8_size(text[i]);
		to = mfs_charsmap_find(&n->charsmap, text + i, size, false, NULL);
		mfs_buf_add(out, to ? to : text + i, to ? strlen(to) : size);
	}
}

static int run_precompiled(RUN)
{
	size_t end;

	UNUSED;
	*first = 0;
	for (size_t i = 0; i < in->len; i = end) {
		end = grapheme_end(in, i);
		map_grapheme(n, in->text + i, end - i, out);
		if (i < in->first)
			*first = out->len;
	}
	return 0;
}

/* ---- the list ---- */

static const struct mfs_normalizer_kind kinds[] = {
	{"NFC", NULL, run_nfc},
	{"NFD", NULL, run_nfd},
	{"NFKC", NULL, run_nfkc},
	{"NFKD", NULL, run_nfkd},
	{"Lowercase", NULL, run_lowercase},
	{"StripAccents", NULL, run_strip_accents},
	{"Nmt", NULL, run_nmt},
	{"ByteLevel", NULL, run_byte_level},
	{"Strip", read_strip, run_strip},
	{"Replace", read_replace, run_replace},
	{"Prepend", read_prepend, run_prepend},
	{"Precompiled", read_precompiled, run_precompiled},
	{"BertNormalizer", read_bert, run_bert_clean},
};

/* Steps that follow the one that was read, with its values. */
static const struct mfs_normalizer_kind bert_steps[] = {
	{"BertNormalizer", NULL, run_bert_nfd},
	{"BertNormalizer", NULL, run_bert_accents},
	{"BertNormalizer", NULL, run_bert_lower},
};

static int add_step(struct mfs_normalizers *list, struct mfs_error *err)
{
	if (list->count == COUNT_MAX)
		return mfs_fail(err, -ENOTSUP, "more than %u normalizers", COUNT_MAX);
	if (mfs_grow(&list->at, list->count))
		return mfs_fail_nomem(err);
	list->at[list->count++] = (struct mfs_normalizer){0};
	return 0;
}

static int add_bert(struct mfs_normalizers *list, struct mfs_error *err)
{
	const struct mfs_normalizer bert = list->at[list->count - 1];
	int rc = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bert_steps) && !rc; i++) {
		rc = add_step(list, err);
		if (rc)
			break;
		list->at[list->count - 1] = bert;
		list->at[list->count - 1].kind = &bert_steps[i];
	}
	return rc;
}

static int read_one(struct mfs_normalizers *list, const json_t *json, const char *type,
		    struct mfs_error *err)
{
	struct mfs_normalizer *n;
	int rc = add_step(list, err);

	if (rc)
		return rc;
	n = &list->at[list->count - 1];
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].type, type))
			n->kind = &kinds[i];
	if (!n->kind)
		return mfs_fail(err, -ENOTSUP, "normalizer \"%s\" is not known", type);
	rc = n->kind->read ? n->kind->read(n, json, err) : 0;
	if (!rc && n->kind->read == read_bert)
		rc = add_bert(list, err);
	return rc;
}

static int read_list(struct mfs_normalizers *list, const json_t *json, unsigned depth,
		     struct mfs_error *err)
{
	const json_t *inner = json_object_get(json, "normalizers");
	const char *type = mfs_part_type(json);
	size_t i;
	json_t *one;
	int rc = 0;

	if (!type || depth > DEPTH_MAX)
		return mfs_fail(err, -ENOTSUP, "a normalizer without a type, or in %u others",
				DEPTH_MAX);
	if (strcmp(type, "Sequence") != 0)
		return read_one(list, json, type, err);
	if (!json_is_array(inner))
		return mfs_fail(err, -EINVAL, "normalizer Sequence has no list of normalizers");
	json_array_foreach(inner, i, one)
	{
		rc = rc ? rc : read_list(list, one, depth + 1, err);
	}
	return rc;
}

int mfs_normalizers_read(struct mfs_normalizers *list, const json_t *json, struct mfs_error *err)
{
	return json && !json_is_null(json) ? read_list(list, json, 0, err) : 0;
}

void mfs_normalizers_release(struct mfs_normalizers *list)
{
	for (size_t i = 0; i < list->count; i++) {
		mfs_regex_free(list->at[i].regex);
		mfs_buf_release(&list->at[i].content);
		mfs_charsmap_release(&list->at[i].charsmap);
	}
	free(list->at);
	*list = (struct mfs_normalizers){0};
}

int mfs_normalize(const struct mfs_normalizers *list, struct mfs_normalize_memory *memory,
		  struct mfs_text_part *part, struct mfs_error *err)
{
	struct mfs_buf *out = &memory->even;

	for (size_t i = 0; i < list->count && part->len; i++) {
		const struct mfs_normalizer *n = &list->at[i];
		size_t first = 0;
		int rc;

		out->len = 0;
		rc = n->kind->run(n, memory, part, out, &first, err);
		if (rc < 0)
			return rc;
		if (out->failed)
			return mfs_fail_nomem(err);
		if (rc)
			continue;
		*part = (struct mfs_text_part){out->data, out->len, first};
		out = out == &memory->even ? &memory->odd : &memory->even;
	}
	return 0;
}
