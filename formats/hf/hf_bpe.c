#include "formats/hf/hf_bpe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/json_scan.h"

#define CONFIG	  "tokenizer_config.json"
#define TOKENIZER "tokenizer.json"

#define SPACE	      "\xc4\xa0"     /* U+0120, the byte-level form of a space */
#define SENTENCEPIECE "\xe2\x96\x81" /* U+2581, sentencepiece's form */

/* The parts of tokenizer.json that matter, as text. at NULL: it is not there. */
struct parts {
	struct mfs_scan type, vocab, merges, byte_fallback, ignore_merges, prefix, suffix;
	struct mfs_scan added, normalizer, pre, post;
};

struct reader {
	struct mfs_bpe *bpe;
	const char *begin; /* of tokenizer.json */
	struct parts parts;
	struct mfs_error *err;
};

/* ---- the parts ---- */

struct wanted {
	const char *name;
	struct mfs_scan *ret;
};

/* Walks through an object once, since its vocabulary may have tens of megabytes. */
static int find_parts(struct reader *r, struct mfs_scan object, const struct wanted *wanted)
{
	bool first = true, broken;
	struct mfs_scan key, value;

	if (!mfs_scan_accept(&object, '{'))
		return mfs_fail(r->err, -EINVAL, TOKENIZER ": not a JSON object");
	while (mfs_scan_member(&object, &first, &key, &broken)) {
		if (!mfs_scan_value(&object, &value)) {
			broken = true;
			break;
		}
		for (const struct wanted *w = wanted; w->name; w++)
			if (mfs_scan_is(&key, w->name))
				*w->ret = value;
	}
	return broken ? mfs_fail(r->err, -EINVAL, TOKENIZER ": not valid JSON") : 0;
}

static int find_all_parts(struct reader *r, const char *text, size_t len)
{
	const struct mfs_scan whole = {text, text + len};
	struct parts *p = &r->parts;
	struct mfs_scan model = {0};
	const struct wanted outer[] = {{"model", &model},
				       {"added_tokens", &p->added},
				       {"normalizer", &p->normalizer},
				       {"pre_tokenizer", &p->pre},
				       {"post_processor", &p->post},
				       {0}};
	const struct wanted inner[] = {{"type", &p->type},
				       {"vocab", &p->vocab},
				       {"merges", &p->merges},
				       {"byte_fallback", &p->byte_fallback},
				       {"ignore_merges", &p->ignore_merges},
				       {"continuing_subword_prefix", &p->prefix},
				       {"end_of_word_suffix", &p->suffix},
				       {0}};
	int rc;

	if (!mfs_scan_is_whole(whole))
		return mfs_fail(r->err, -EINVAL, TOKENIZER ": not a JSON object, or cut short");
	rc = find_parts(r, whole, outer);
	if (rc)
		return rc;
	if (!model.at)
		return mfs_fail(r->err, -EINVAL, TOKENIZER ": model is missing");
	rc = find_parts(r, model, inner);
	if (!rc && !p->vocab.at)
		rc = mfs_fail(r->err, -EINVAL, TOKENIZER ": model.vocab is missing");
	return rc;
}

/* A small part as a tree; *ret is NULL if it is not there, or null. */
static int load_part(struct reader *r, const struct mfs_scan *part, const char *name, json_t **ret)
{
	int rc;

	*ret = NULL;
	if (!part->at || mfs_scan_is(part, "null"))
		return 0;
	rc = mfs_json_load(part->at, (size_t)(part->end - part->at), MFS_HF_TOKENIZER_CONFIG_MAX,
			   JSON_DECODE_ANY, name, ret, r->err);
	return rc ? mfs_fail_in(r->err, TOKENIZER) : 0;
}

/* ---- which tokenizer it is ---- */

static bool is_empty(const struct mfs_scan *text)
{
	return !text->at || mfs_scan_is(text, "null") || mfs_scan_is(text, "\"\"");
}

static bool is_true(const struct mfs_scan *value)
{
	return value->at && mfs_scan_is(value, "true");
}

static int check_kind(struct reader *r)
{
	const struct parts *p = &r->parts;

	if (p->type.at && !mfs_scan_is(&p->type, "\"BPE\""))
		return mfs_fail(r->err, -ENOTSUP, TOKENIZER ": its model is no BPE");
	if (!p->type.at || !p->merges.at)
		return mfs_fail(r->err, -ENOTSUP, TOKENIZER ": its model is no BPE with merges");
	if (is_true(&p->byte_fallback))
		return mfs_fail(r->err, -ENOTSUP,
				TOKENIZER ": its BPE is sentencepiece's (byte_fallback)");
	if (!is_empty(&p->prefix) || !is_empty(&p->suffix))
		return mfs_fail(r->err, -ENOTSUP,
				TOKENIZER ": its BPE marks the beginning or end of words");
	return 0;
}

static const char *type_of(const json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "type"));

	return type ? type : "";
}

/* llama.cpp normalises nothing. NFC leaves nearly all text as it is, and llama.cpp's converter
 * takes no notice of it. */
static int check_normalizer(struct reader *r)
{
	json_t *normalizer;
	int rc = load_part(r, &r->parts.normalizer, "normalizer", &normalizer);

	if (!rc && normalizer && strcmp(type_of(normalizer), "NFC") != 0)
		rc = mfs_fail(r->err, -ENOTSUP,
			      TOKENIZER ": its normalizer is none that llama.cpp has");
	json_decref(normalizer);
	return rc;
}

/* How words are cut: the digits' split or the expression before ByteLevel, and whether ByteLevel
 * has its own expression. The expressions are facts of the tokenizers that have them. */
#define START	  "[^\\r\\n\\p{L}\\p{N}]?"
#define ENDINGS	  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define WORDS	  START "\\p{L}+|"
#define DIGITS(n) "\\p{N}" n "|"
#define REST	  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER	  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER	  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
	const char *before; /* NULL: nothing; "Digits"; or a regular expression */
	bool ignore_merges; /* which llama.cpp ties to the name */
	const char *pre;
} known[] = {
	{NULL, false, "gpt-2"},
	{"Digits", false, "smollm"},
	{ENDINGS WORDS DIGITS("{1,3}") REST, true, "llama-bpe"},
	{ENDINGS WORDS DIGITS("{1,3}") REST, false, "smaug-bpe"},
	{ENDINGS WORDS DIGITS("") REST, false, "qwen2"},
	{START UPPER "*" LOWER "+|" START UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
		     "[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	 true, "tekken"},
};

/* ByteLevel that only maps bytes, or cuts by its own expression as well. */
static bool is_byte_level(const json_t *o, bool cuts)
{
	const json_t *regex = json_object_get(o, "use_regex");

	return !strcmp(type_of(o), "ByteLevel") &&
	       !json_is_true(json_object_get(o, "add_prefix_space")) &&
	       (regex ? json_is_true(regex) : true) == cuts;
}

/* What stands before ByteLevel. NULL: it is none of what is known. */
static const char *before_of(const json_t *o)
{
	const char *regex =
		json_string_value(json_object_get(json_object_get(o, "pattern"), "Regex"));

	if (!strcmp(type_of(o), "Digits"))
		return json_is_true(json_object_get(o, "individual_digits")) ? "Digits" : NULL;
	if (strcmp(type_of(o), "Split") != 0 || json_is_true(json_object_get(o, "invert")) ||
	    !mfs_str_is(json_string_value(json_object_get(o, "behavior")), "Isolated"))
		return NULL;
	return regex;
}

static const char *name_of(const json_t *pre, bool ignore_merges)
{
	const json_t *list = json_object_get(pre, "pretokenizers");
	const char *before = NULL;

	if (json_array_size(list) == 1)
		pre = json_array_get(list, 0);
	if (json_array_size(list) == 2) {
		before = before_of(json_array_get(list, 0));
		pre = json_array_get(list, 1);
		if (!before)
			return NULL;
	}
	if (!is_byte_level(pre, !before || !strcmp(before, "Digits")))
		return NULL;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(known); i++)
		if (known[i].ignore_merges == ignore_merges &&
		    (before ? mfs_str_is(known[i].before, before) : !known[i].before))
			return known[i].pre;
	return NULL;
}

static int find_pre(struct reader *r)
{
	json_t *pre;
	int rc = load_part(r, &r->parts.pre, "pre_tokenizer", &pre);

	if (rc)
		return rc;
	r->bpe->pre = name_of(pre, is_true(&r->parts.ignore_merges));
	json_decref(pre);
	return r->bpe->pre ? 0
			   : mfs_fail(r->err, -ENOTSUP,
				      TOKENIZER ": llama.cpp's name for its pre_tokenizer is not "
						"known here");
}

/* ---- tokens ---- */

static int set_token(struct reader *r, int64_t id, const char *text, size_t len,
		     enum mfs_bpe_type type)
{
	struct mfs_bpe_token *t;

	if ((uint64_t)id >= r->bpe->count)
		return mfs_fail(r->err, -ENOTSUP,
				TOKENIZER
				": its token %lld is outside of the vocabulary of %u rows",
				(long long)id, r->bpe->count);
	t = &r->bpe->tokens[id];
	if (!len || len > UINT32_MAX)
		return mfs_fail(r->err, -ENOTSUP, TOKENIZER ": its token %lld is empty",
				(long long)id);
	if (t->text && (t->len != len || memcmp(t->text, text, len) != 0))
		return mfs_fail(r->err, -ENOTSUP, TOKENIZER ": two tokens have the id %lld",
				(long long)id);
	*t = (struct mfs_bpe_token){text, (uint32_t)len, type};
	return 0;
}

/* The text of a string in the reader's arena. */
static int decode(struct reader *r, const struct mfs_scan *string, const char **ret,
		  size_t *ret_len)
{
	char *text = mfs_arena_alloc(&r->bpe->arena, (size_t)(string->end - string->at) + 1);

	if (!text)
		return mfs_fail_nomem(r->err);
	*ret_len = mfs_scan_decode(string, text);
	*ret = text;
	if (*ret_len == SIZE_MAX)
		return mfs_fail(r->err, -EINVAL,
				TOKENIZER ": the string at byte %td is not valid JSON in UTF-8",
				string->at - r->begin);
	text[*ret_len] = '\0';
	return 0;
}

/* {"token": id, ...} */
static int read_vocab(struct reader *r)
{
	struct mfs_scan vocab = r->parts.vocab, key, value;
	bool first = true, broken = !mfs_scan_accept(&vocab, '{');
	const char *text;
	int64_t id;
	size_t len;
	int rc = 0;

	while (!broken && !rc && mfs_scan_member(&vocab, &first, &key, &broken)) {
		broken = !mfs_scan_value(&vocab, &value) || !mfs_scan_id(&value, &id);
		rc = broken ? 0 : decode(r, &key, &text, &len);
		if (!rc && !broken)
			rc = set_token(r, id, text, len, MFS_BPE_NORMAL);
	}
	if (rc)
		return rc;
	return broken ? mfs_fail(r->err, -EINVAL, TOKENIZER ": model.vocab is no table of ids") : 0;
}

static bool is_between(const char *text, const char *begin, const char *end)
{
	return strlen(text) >= strlen(begin) + strlen(end) &&
	       !strncmp(text, begin, strlen(begin)) && mfs_str_ends(text, end);
}

/* Some tokenizers do not call their control tokens special (convert_hf_to_gguf.py:
 * does_token_look_special). */
static bool looks_special(const char *text)
{
	return mfs_str_is(text, "<pad>") || mfs_str_is(text, "<mask>") ||
	       mfs_str_is(text, "<2mass>") || mfs_str_is(text, "[@BOS@]") ||
	       is_between(text, "<|", "|>") || is_between(text, "<\xef\xbd\x9c", "\xef\xbd\x9c>") ||
	       is_between(text, "<unused", ">");
}

/* With sentencepiece's spaces as spaces. NULL: no memory. */
static char *with_spaces(struct reader *r, const char *text)
{
	char *copy = mfs_arena_strndup(&r->bpe->arena, text, strlen(text)), *from = copy,
	     *to = copy;

	while (from && *from) {
		if (!strncmp(from, SENTENCEPIECE, strlen(SENTENCEPIECE))) {
			*to++ = ' ';
			from += strlen(SENTENCEPIECE);
		} else {
			*to++ = *from++;
		}
	}
	if (copy)
		*to = '\0';
	return copy;
}

static int add_token(struct reader *r, const json_t *token)
{
	const json_t *number = json_object_get(token, "id");
	const char *content = json_string_value(json_object_get(token, "content"));
	const int64_t id = json_integer_value(number);
	bool special;
	char *text;
	int rc;

	if (!content || !json_is_integer(number) || id < 0 || id >= MFS_SCAN_MAX_ID)
		return mfs_fail(r->err, -EINVAL,
				TOKENIZER ": an added token without content, or without an id");
	special = json_is_true(json_object_get(token, "special")) || looks_special(content);
	text = mfs_arena_strndup(&r->bpe->arena, content, strlen(content));
	if (!text)
		return mfs_fail_nomem(r->err);
	rc = set_token(r, id, text, strlen(text), special ? MFS_BPE_CONTROL : MFS_BPE_USER_DEFINED);
	if (rc || special)
		return rc;
	text = with_spaces(r, text);
	if (!text)
		return mfs_fail_nomem(r->err);
	r->bpe->tokens[id].text = text;
	r->bpe->tokens[id].len = (uint32_t)strlen(text);
	return 0;
}

static int read_added(struct reader *r)
{
	json_t *list, *token;
	size_t i;
	int rc = load_part(r, &r->parts.added, "added_tokens", &list);

	if (!rc && list && !json_is_array(list))
		rc = mfs_fail(r->err, -EINVAL, TOKENIZER ": added_tokens is no list");
	json_array_foreach(list, i, token)
	{
		rc = rc ? rc : add_token(r, token);
	}
	json_decref(list);
	return rc;
}

/* Rows without a token get the names that llama.cpp's converter gives them. */
static int fill_rows(struct reader *r)
{
	for (uint32_t id = 0; id < r->bpe->count; id++) {
		struct mfs_bpe_token *t = &r->bpe->tokens[id];

		if (t->text)
			continue;
		t->text = mfs_arena_printf(&r->bpe->arena, "[PAD%u]", id);
		if (!t->text)
			return mfs_fail_nomem(r->err);
		t->len = (uint32_t)strlen(t->text);
		t->type = MFS_BPE_UNUSED;
	}
	return 0;
}

static int by_text(const void *a, const void *b)
{
	const struct mfs_bpe_token *const *x = a, *const *y = b;

	return strcmp((*x)->text, (*y)->text);
}

/* llama.cpp aborts where two tokens have one text. */
static int check_texts(struct reader *r)
{
	const uint32_t count = r->bpe->count;
	const struct mfs_bpe_token **sorted = calloc((size_t)count + 1, sizeof(*sorted));
	int rc = 0;

	if (!sorted)
		return mfs_fail_nomem(r->err);
	for (uint32_t i = 0; i < count; i++)
		sorted[i] = &r->bpe->tokens[i];
	qsort(sorted, count, sizeof(*sorted), by_text);
	for (uint32_t i = 1; i < count && !rc; i++)
		if (!by_text(&sorted[i - 1], &sorted[i]))
			rc = mfs_fail(r->err, -ENOTSUP,
				      TOKENIZER ": tokens %td and %td have one text",
				      sorted[i - 1] - r->bpe->tokens, sorted[i] - r->bpe->tokens);
	free(sorted);
	return rc;
}

/* ---- merges ---- */

static int bad_merge(struct reader *r)
{
	return mfs_fail(r->err, -EINVAL, TOKENIZER ": merge %u is no pair of tokens",
			r->bpe->merge_count);
}

static int add_merge(struct reader *r, const char *text, size_t len)
{
	struct mfs_bpe *bpe = r->bpe;

	if (len > UINT32_MAX)
		return bad_merge(r);
	if (mfs_grow(&bpe->merges, bpe->merge_count))
		return mfs_fail_nomem(r->err);
	bpe->merges[bpe->merge_count++] =
		(struct mfs_bpe_token){text, (uint32_t)len, MFS_BPE_NORMAL};
	return 0;
}

/* "a b" */
static int read_joined(struct reader *r, const struct mfs_scan *string)
{
	const char *text, *space;
	size_t len;
	int rc = decode(r, string, &text, &len);

	if (rc)
		return rc;
	space = strchr(text, ' ');
	if (!space || space == text || !space[1] || strchr(space + 1, ' '))
		return bad_merge(r);
	return add_merge(r, text, len);
}

/* Copies text with its spaces as U+0120. Returns the end. */
static char *put_part(char *to, const char *text)
{
	for (; *text; text++) {
		if (*text != ' ') {
			*to++ = *text;
			continue;
		}
		memcpy(to, SPACE, strlen(SPACE));
		to += strlen(SPACE);
	}
	return to;
}

/* ["a", "b"] */
static int read_pair(struct reader *r, struct mfs_scan pair)
{
	struct mfs_scan first, second;
	const char *a, *b;
	size_t a_len, b_len;
	char *text, *end;
	int rc;

	if (!mfs_scan_accept(&pair, '[') || !mfs_scan_string(&pair, &first) ||
	    !mfs_scan_accept(&pair, ',') || !mfs_scan_string(&pair, &second) ||
	    !mfs_scan_accept(&pair, ']'))
		return bad_merge(r);
	rc = decode(r, &first, &a, &a_len);
	if (!rc)
		rc = decode(r, &second, &b, &b_len);
	if (rc)
		return rc;
	if (!a_len || !b_len)
		return bad_merge(r);
	text = mfs_arena_alloc(&r->bpe->arena, 2 * (a_len + b_len) + 2);
	if (!text)
		return mfs_fail_nomem(r->err);
	end = put_part(text, a);
	*end++ = ' ';
	end = put_part(end, b);
	return add_merge(r, text, (size_t)(end - text));
}

static int read_merges(struct reader *r)
{
	struct mfs_scan list = r->parts.merges, value, string;
	int rc = 0;

	if (!mfs_scan_accept(&list, '['))
		return mfs_fail(r->err, -EINVAL, TOKENIZER ": model.merges is no list");
	if (mfs_scan_accept(&list, ']'))
		return 0;
	do {
		if (mfs_scan_peek(&list) == '"')
			rc = mfs_scan_string(&list, &string) ? read_joined(r, &string)
							     : bad_merge(r);
		else
			rc = mfs_scan_value(&list, &value) ? read_pair(r, value) : bad_merge(r);
	} while (!rc && mfs_scan_accept(&list, ','));
	return rc || mfs_scan_accept(&list, ']') ? rc : bad_merge(r);
}

/* ---- what is put around a text ---- */

struct around {
	int bos, eos; /* -1: nothing says */
};

static bool has_id(const json_t *config, const char *key, const char *text)
{
	const json_t *token = json_object_get(config, key);
	const char *content = json_string_value(
		json_is_object(token) ? json_object_get(token, "content") : token);

	return text && mfs_str_is(content, text);
}

static const char *special_of(const json_t *piece)
{
	return json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
}

/* As gguf's SpecialVocab reads them: ByteLevel adds nothing if no template does. */
static void read_processor(const json_t *config, const json_t *p, struct around *a)
{
	const json_t *single = json_object_get(p, "single");
	const size_t count = json_array_size(single);

	if (!strcmp(type_of(p), "ByteLevel")) {
		a->bos = a->bos < 0 ? 0 : a->bos;
		a->eos = a->eos < 0 ? 0 : a->eos;
	}
	if (strcmp(type_of(p), "TemplateProcessing") != 0 || count < 2)
		return;
	if (special_of(json_array_get(single, 0)))
		a->bos = has_id(config, "bos_token", special_of(json_array_get(single, 0)));
	if (special_of(json_array_get(single, count - 1)))
		a->eos = has_id(config, "eos_token", special_of(json_array_get(single, count - 1)));
}

static int read_around(struct reader *r, const json_t *config)
{
	struct around a = {-1, -1};
	json_t *post, *p;
	size_t i;
	int rc = load_part(r, &r->parts.post, "post_processor", &post);

	if (rc)
		return rc;
	json_array_foreach(json_object_get(post, "processors"), i, p)
	{
		read_processor(config, p, &a);
	}
	if (post && !json_object_get(post, "processors"))
		read_processor(config, post, &a);
	json_decref(post);
	r->bpe->add_bos =
		a.bos >= 0 ? a.bos : json_is_true(json_object_get(config, "add_bos_token"));
	r->bpe->add_eos =
		a.eos >= 0 ? a.eos : json_is_true(json_object_get(config, "add_eos_token"));
	return 0;
}

/* ---- tokenizer_config.json ---- */

/* A text, or a list of {"name", "template"}, of which the one named "default" counts. */
static const char *template_of(const json_t *config)
{
	const json_t *value = json_object_get(config, "chat_template"), *item;
	size_t i;

	json_array_foreach(value, i, item)
	{
		if (mfs_str_is(json_string_value(json_object_get(item, "name")), "default"))
			return json_string_value(json_object_get(item, "template"));
	}
	return json_string_value(value);
}

static int read_template(struct reader *r, const struct mfs_bpe_files *f, const json_t *config)
{
	const char *text = template_of(config);

	if (!text && f->chat_template && !memchr(f->chat_template, 0, f->chat_template_len))
		r->bpe->chat_template =
			mfs_arena_strndup(&r->bpe->arena, f->chat_template, f->chat_template_len);
	else if (text)
		r->bpe->chat_template = mfs_arena_strndup(&r->bpe->arena, text, strlen(text));
	else
		return 0;
	return r->bpe->chat_template ? 0 : mfs_fail_nomem(r->err);
}

/* A config may name tokens that the embedding lacks. */
static void within(const struct reader *r, int64_t *id)
{
	if (*id >= r->bpe->count)
		*id = MFS_ABSENT;
}

static int read_config(struct reader *r, const struct mfs_bpe_files *f)
{
	const struct mfs_hf_token_files names = {.config = {f->config, f->config_len},
						 .tokenizer = {f->tokenizer, f->tokenizer_len}};
	json_t *config = NULL;
	int rc = 0;

	r->bpe->special = (struct mfs_hf_tokens)MFS_HF_TOKENS_ABSENT;
	if (f->config)
		rc = mfs_json_load(f->config, f->config_len, MFS_HF_TOKENIZER_CONFIG_MAX,
				   JSON_DECODE_INT_AS_REAL, CONFIG, &config, r->err);
	if (!rc && f->config)
		rc = mfs_hf_tokens_parse(&names, &r->bpe->special, r->err);
	within(r, &r->bpe->special.bos);
	within(r, &r->bpe->special.eos);
	within(r, &r->bpe->special.pad);
	if (!rc)
		rc = read_around(r, config);
	if (!rc)
		rc = read_template(r, f, config);
	json_decref(config);
	return rc;
}

/* ---- all of it ---- */

int mfs_bpe_parse(const struct mfs_bpe_files *files, uint64_t rows, struct mfs_bpe *ret,
		  struct mfs_error *err)
{
	static int (*const steps[])(struct reader *) = {check_kind,  check_normalizer, find_pre,
							read_vocab,  read_added,       fill_rows,
							check_texts, read_merges};
	struct reader r = {.bpe = ret, .begin = files->tokenizer, .err = err};
	int rc;

	if (!rows || rows > MFS_BPE_ROWS_MAX)
		return mfs_fail(err, -ENOTSUP, "a vocabulary of %llu rows; expected 1 to %u",
				(unsigned long long)rows, MFS_BPE_ROWS_MAX);
	ret->count = (uint32_t)rows;
	ret->tokens = calloc(rows, sizeof(*ret->tokens));
	rc = ret->tokens ? find_all_parts(&r, files->tokenizer, files->tokenizer_len)
			 : mfs_fail_nomem(err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(steps) && !rc; i++)
		rc = steps[i](&r);
	return rc ? rc : read_config(&r, files);
}

void mfs_bpe_release(struct mfs_bpe *bpe)
{
	free(bpe->tokens);
	free(bpe->merges);
	mfs_arena_release(&bpe->arena);
	*bpe = (struct mfs_bpe){0};
}
