#define PCRE2_CODE_UNIT_WIDTH 8
#define _GNU_SOURCE	      /* memmem */

#include "formats/tokenizer/unicode/token_regex.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/unicode/newer_characters.h"
#include "formats/tokenizer/unicode/utf8.h"

#define STACK_FIRST (32u << 10) /* bytes of the stack of compiled expressions */
#define STACK_MAX   (8u << 20)

struct mfs_regex {
	pcre2_code *code; /* NULL: a literal */
	bool compiled;	  /* to machine code */
	char *literal;
	size_t literal_len;
};

struct mfs_regex_memory {
	pcre2_match_data *data;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

static int compile(struct mfs_regex *re, const struct mfs_buf *pattern, struct mfs_error *err)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_UCHAR why[160];
	PCRE2_SIZE at;
	int number;

	if (!context)
		return mfs_fail_nomem(err);
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	re->code = pcre2_compile((PCRE2_SPTR)(pattern->data ? pattern->data : ""), pattern->len,
				 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK |
					 PCRE2_NEVER_BACKSLASH_C,
				 &number, &at, context);
	pcre2_compile_context_free(context);
	if (!re->code) {
		pcre2_get_error_message(number, why, sizeof(why));
		return mfs_fail(err, -EINVAL, "regular expression \"%.*s\": %s",
				(int)(pattern->len < 300 ? pattern->len : 300), pattern->data,
				(const char *)why);
	}
	re->compiled = !pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
	return 0;
}

int mfs_regex_new(const char *pattern, size_t len, enum mfs_regex_style style,
		  struct mfs_regex **ret, struct mfs_error *err)
{
	struct mfs_regex *re = calloc(1, sizeof(*re));
	struct mfs_buf translated = {0};
	int rc = re ? 0 : mfs_fail_nomem(err);

	if (!rc && style == MFS_REGEX_LITERAL) {
		re->literal = malloc(len + 1);
		re->literal_len = len;
		if (re->literal)
			memcpy(re->literal, pattern, len);
		else
			rc = mfs_fail_nomem(err);
	} else if (!rc) {
		rc = mfs_regex_translate(pattern, len, style, &translated, err);
		if (!rc)
			rc = compile(re, &translated, err);
	}
	mfs_buf_release(&translated);
	if (rc)
		mfs_regex_free(re);
	else
		*ret = re;
	return rc;
}

void mfs_regex_free(struct mfs_regex *re)
{
	if (!re)
		return;
	pcre2_code_free(re->code);
	free(re->literal);
	free(re);
}

int mfs_regex_memory_new(struct mfs_regex_memory **ret, struct mfs_error *err)
{
	struct mfs_regex_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return mfs_fail_nomem(err);
	m->data = pcre2_match_data_create(1, NULL);
	m->context = pcre2_match_context_create(NULL);
	m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MAX, NULL);
	if (!m->data || !m->context) {
		mfs_regex_memory_free(m);
		return mfs_fail_nomem(err);
	}
	if (m->stack)
		pcre2_jit_stack_assign(m->context, NULL, m->stack);
	*ret = m;
	return 0;
}

void mfs_regex_memory_free(struct mfs_regex_memory *m)
{
	if (!m)
		return;
	pcre2_match_data_free(m->data);
	pcre2_match_context_free(m->context);
	pcre2_jit_stack_free(m->stack);
	free(m);
}

int mfs_regex_walk_begin(struct mfs_regex_walk *w, const struct mfs_regex *regex,
			 struct mfs_regex_memory *memory, const char *text, size_t len,
			 struct mfs_error *err)
{
	*w = (struct mfs_regex_walk){.regex = regex, .memory = memory, .text = text, .len = len};
	if (!regex->code || !mfs_newer_in(text, len))
		return 0;
	w->replaced = malloc(len);
	if (!w->replaced)
		return mfs_fail_nomem(err);
	memcpy(w->replaced, text, len);
	mfs_newer_replace(w->replaced, len);
	w->text = w->replaced;
	return 0;
}

void mfs_regex_walk_end(struct mfs_regex_walk *w)
{
	free(w->replaced);
	w->replaced = NULL;
}

static int find_literal(struct mfs_regex_walk *w, size_t *ret_start, size_t *ret_end)
{
	const struct mfs_regex *re = w->regex;
	const char *found = re->literal_len ? memmem(w->text + w->at, w->len - w->at, re->literal,
						     re->literal_len)
					    : w->text + w->at;

	if (!found)
		return 0;
	*ret_start = (size_t)(found - w->text);
	*ret_end = *ret_start + re->literal_len;
	return 1;
}

static int find(struct mfs_regex_walk *w, size_t *ret_start, size_t *ret_end, struct mfs_error *err)
{
	const struct mfs_regex *re = w->regex;
	const PCRE2_SPTR text = (PCRE2_SPTR)w->text;
	const PCRE2_SIZE *at;
	PCRE2_UCHAR why[160];
	int rc;

	if (!re->code)
		return find_literal(w, ret_start, ret_end);
	rc = re->compiled ? pcre2_jit_match(re->code, text, w->len, w->at, 0, w->memory->data,
					    w->memory->context)
			  : pcre2_match(re->code, text, w->len, w->at, PCRE2_NO_UTF_CHECK,
					w->memory->data, w->memory->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		pcre2_get_error_message(rc, why, sizeof(why));
		return mfs_fail(err, -ENOTSUP, "a regular expression cannot be matched: %s",
				(const char *)why);
	}
	at = pcre2_get_ovector_pointer(w->memory->data);
	*ret_start = at[0];
	*ret_end = at[1];
	return 1;
}

int mfs_regex_walk_next(struct mfs_regex_walk *w, size_t *ret_start, size_t *ret_end,
			struct mfs_error *err)
{
	while (w->at <= w->len) {
		const int rc = find(w, ret_start, ret_end, err);

		if (rc <= 0)
			return rc;
		if (*ret_end != *ret_start || w->last_end != *ret_end + 1) {
			w->at = *ret_end;
			w->last_end = *ret_end + 1;
			return 1;
		}
		w->at += w->at < w->len ? mfs_utf8_size(w->text[w->at]) : 1;
	}
	return 0;
}
