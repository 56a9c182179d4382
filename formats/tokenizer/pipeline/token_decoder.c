#define _GNU_SOURCE /* memmem */

#include "formats/tokenizer/pipeline/token_decoder.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/tokenizer/unicode/byte_chars.h"
#include "formats/tokenizer/pipeline/part_json.h"
#include "formats/tokenizer/unicode/utf8.h"

#define DEPTH_MAX   16
#define COUNT_MAX   64
#define REPLACEMENT "\xef\xbf\xbd"

/* What a stage knows of the tokens before. */
struct stage {
	struct mfs_buf held, work; /* work: the token that is made */
	size_t count;		   /* tokens so far */
	size_t cut;		   /* characters that Strip has taken off the begin */
	bool done;		   /* Strip has met another character */
};

struct mfs_token_decode {
	const struct mfs_token_decoders *list;
	struct stage *stages; /* [list->count] */
	size_t count;	      /* tokens, where there are no decoders */
	struct mfs_regex_memory *regex;
	struct mfs_buf *out;
	struct mfs_error *err;
};

struct mfs_token_decoder_kind {
	const char *type;
	int (*read)(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err);
	int (*put)(struct mfs_token_decode *d, size_t i, const char *token, size_t len);
	/* NULL: nothing is held back */
	int (*end)(struct mfs_token_decode *d, size_t i);
	bool joins; /* its result is one token */
};

/* Gives a token to a stage, or to the text after the last one. */
static int put(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	if (i < d->list->count)
		return d->list->at[i].kind->put(d, i, token, len);
	mfs_buf_add(d->out, token, len);
	return d->out->failed ? mfs_fail_nomem(d->err) : 0;
}

static int put_work(struct mfs_token_decode *d, size_t i)
{
	const struct mfs_buf *b = &d->stages[i].work;

	return b->failed ? mfs_fail_nomem(d->err) : put(d, i + 1, b->len ? b->data : "", b->len);
}

/* ---- tokens that become one: Fuse, ByteLevel ---- */

/* Gives on what is in work, or holds it until the end. */
static int put_joined(struct mfs_token_decode *d, size_t i)
{
	struct stage *s = &d->stages[i];

	if (d->list->at[i].streams)
		return s->work.len ? put_work(d, i) : 0;
	mfs_buf_add(&s->held, s->work.data, s->work.len);
	return s->held.failed || s->work.failed ? mfs_fail_nomem(d->err) : 0;
}

static int put_fuse(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	struct mfs_buf *b = &d->stages[i].work;

	b->len = 0;
	mfs_buf_add(b, token, len);
	return put_joined(d, i);
}

static int end_fuse(struct mfs_token_decode *d, size_t i)
{
	const struct mfs_buf *b = &d->stages[i].held;

	return d->list->at[i].streams ? 0 : put(d, i + 1, b->len ? b->data : "", b->len);
}

/* Appends the bytes that a token of byte-level characters stands for; or all of its own bytes. */
static void add_bytes(struct mfs_buf *b, const char *token, size_t len)
{
	const size_t begin = b->len;
	size_t size;

	for (size_t i = 0; i < len; i += size) {
		const int byte = mfs_byte_chars_byte(mfs_utf8_get(token + i, &size));
		const uint8_t one = (uint8_t)byte;

		if (byte < 0) {
			b->len = begin;
			mfs_buf_add(b, token, len);
			return;
		}
		mfs_buf_add(b, &one, 1);
	}
}

/* Moves what is certain from tail to work: whole characters, and errors that no byte can mend. */
static void settle_bytes(struct mfs_buf *work, struct mfs_buf *tail, bool at_end)
{
	size_t at = 0;
	bool is_short = false;

	while (at < tail->len) {
		const size_t n = mfs_utf8_valid(tail->data + at, tail->len - at);
		size_t error;

		mfs_buf_add(work, tail->data + at, n);
		at += n;
		if (at == tail->len)
			break;
		error = mfs_utf8_error(tail->data + at, tail->len - at, &is_short);
		if (is_short && !at_end)
			break;
		mfs_buf_adds(work, REPLACEMENT);
		at += error;
	}
	if (at) {
		memmove(tail->data, tail->data + at, tail->len - at);
		tail->len -= at;
	}
}

/* Bytes of an incomplete character stay in `tail`, which is held where nothing else is. */
static int put_settled(struct mfs_token_decode *d, size_t i)
{
	struct stage *s = &d->stages[i];

	if (s->held.failed)
		return mfs_fail_nomem(d->err);
	if (!d->list->at[i].streams)
		return 0;
	s->work.len = 0;
	settle_bytes(&s->work, &s->held, false);
	return s->work.len ? put_work(d, i) : 0;
}

static int put_byte_level(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	add_bytes(&d->stages[i].held, token, len);
	return put_settled(d, i);
}

static int put_bytes(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	mfs_buf_add(&d->stages[i].held, token, len);
	return put_settled(d, i);
}

static int end_bytes(struct mfs_token_decode *d, size_t i)
{
	struct stage *s = &d->stages[i];

	s->work.len = 0;
	settle_bytes(&s->work, &s->held, true);
	return put_work(d, i);
}

/* ---- ByteFallback ---- */

/* The byte of "<0x41>"; -1: it is no such token. Rust's from_str_radix takes a sign, too. */
static int fallback_byte(const char *token, size_t len)
{
	int high, low;

	if (len != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>')
		return -1;
	high = token[3] == '+' ? 0 : mfs_str_digit(token[3]);
	low = mfs_str_digit(token[4]);
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Bytes that are no text as a whole become U+FFFD each. */
static int put_fallback(struct mfs_token_decode *d, size_t i)
{
	struct mfs_buf *b = &d->stages[i].held;
	const size_t len = b->len;
	int rc = 0;

	b->len = 0;
	if (!len)
		return 0;
	if (mfs_utf8_valid(b->data, len) == len)
		return put(d, i + 1, b->data, len);
	for (size_t k = 0; k < len && !rc; k++)
		rc = put(d, i + 1, REPLACEMENT, 3);
	return rc;
}

static int put_byte_fallback(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	const int byte = fallback_byte(token, len);
	const uint8_t one = (uint8_t)byte;
	int rc;

	if (byte < 0) {
		rc = put_fallback(d, i);
		return rc ? rc : put(d, i + 1, token, len);
	}
	mfs_buf_add(&d->stages[i].held, &one, 1);
	return d->stages[i].held.failed ? mfs_fail_nomem(d->err) : 0;
}

/* ---- Strip ---- */

static int read_strip(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err)
{
	int rc = mfs_part_character(json, "content", &t->character, err);

	if (!rc)
		rc = mfs_part_count(json, "start", &t->start, err);
	return rc ? rc : mfs_part_count(json, "stop", &t->stop, err);
}

static int put_strip(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	const struct mfs_token_decoder *t = &d->list->at[i];
	struct stage *s = &d->stages[i];
	size_t begin = 0, end = len, size;

	if (!t->streams) {
		s->cut = 0;
		s->done = false;
	}
	while (!s->done && begin < len && s->cut < t->start) {
		s->done = mfs_utf8_get(token + begin, &size) != t->character;
		begin += s->done ? 0 : size;
		s->cut += !s->done;
	}
	for (size_t n = 0; n < t->stop && end > begin; n++, end -= size)
		if (mfs_utf8_before(token + end, &size) != t->character)
			break;
	return put(d, i + 1, token + begin, end - begin);
}

/* ---- Replace ---- */

static int read_replace(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err)
{
	int rc = mfs_part_pattern(json, &t->regex, err);

	return rc ? rc : mfs_part_text(json, "content", &t->content, err);
}

static int put_replace(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	const struct mfs_token_decoder *t = &d->list->at[i];
	struct mfs_regex_walk walk;
	struct mfs_buf *b = &d->stages[i].work;
	size_t start, end, done = 0;
	int found, rc = mfs_regex_walk_begin(&walk, t->regex, d->regex, token, len, d->err);

	b->len = 0;
	while (!rc && len && (found = mfs_regex_walk_next(&walk, &start, &end, d->err)) != 0) {
		rc = found < 0 ? found : 0;
		if (rc)
			break;
		mfs_buf_add(b, token + done, start - done);
		mfs_buf_add(b, t->content.data, t->content.len);
		done = end;
	}
	mfs_regex_walk_end(&walk);
	mfs_buf_add(b, token + done, len - done);
	return rc ? rc : put_work(d, i);
}

/* ---- WordPiece, CTC, BPEDecoder ---- */

/* tokenizers puts what replaces an empty text around each character. */
static int refuse_empty(const char *decoder, const char *name, struct mfs_error *err)
{
	return mfs_fail(err, -ENOTSUP, "decoder %s: %s is empty", decoder, name);
}

/* Replaces what in b, if it is not empty, by to, from the left. */
static void replace_all(struct mfs_buf *b, const char *what, size_t what_len, const char *to,
			size_t to_len)
{
	struct mfs_buf made = {0};
	const char *at = b->data, *end = b->data + b->len, *found;

	if (!b->len || !what_len || !memmem(at, b->len, what, what_len))
		return;
	while ((found = memmem(at, (size_t)(end - at), what, what_len))) {
		mfs_buf_add(&made, at, (size_t)(found - at));
		mfs_buf_add(&made, to, to_len);
		at = found + what_len;
	}
	mfs_buf_add(&made, at, (size_t)(end - at));
	b->len = 0;
	mfs_buf_add(b, made.data, made.len);
	b->failed |= made.failed;
	mfs_buf_release(&made);
}

/* decoders/wordpiece.rs: cleanup. */
static void clean_up(struct mfs_buf *b)
{
	static const char *const pairs[][2] = {
		{" .", "."},   {" ?", "?"},	{" !", "!"},	 {" ,", ","},
		{" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},	 {" do not", " don't"},
		{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(pairs); i++)
		replace_all(b, pairs[i][0], strlen(pairs[i][0]), pairs[i][1], strlen(pairs[i][1]));
}

static int read_wordpiece(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err)
{
	int rc = mfs_part_text(json, "prefix", &t->content, err);

	return rc ? rc : mfs_part_bool(json, "cleanup", &t->cleanup, err);
}

static bool begins_with(const char *text, size_t len, const struct mfs_buf *with)
{
	return len >= with->len && (!with->len || !memcmp(text, with->data, with->len));
}

static int put_wordpiece(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	const struct mfs_token_decoder *t = &d->list->at[i];
	struct stage *s = &d->stages[i];

	s->work.len = 0;
	if (s->count++ && begins_with(token, len, &t->content)) {
		token += t->content.len;
		len -= t->content.len;
	} else if (s->count > 1) {
		mfs_buf_adds(&s->work, " ");
	}
	mfs_buf_add(&s->work, token, len);
	if (t->cleanup)
		clean_up(&s->work);
	return put_work(d, i);
}

static int read_ctc(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err)
{
	int rc = mfs_part_text(json, "pad_token", &t->content, err);

	if (!rc)
		rc = mfs_part_text(json, "word_delimiter_token", &t->delimiter, err);
	if (!rc)
		rc = mfs_part_bool(json, "cleanup", &t->cleanup, err);
	return !rc && t->cleanup && !t->delimiter.len
		       ? refuse_empty("CTC", "word_delimiter_token", err)
		       : rc;
}

static int put_ctc(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	const struct mfs_token_decoder *t = &d->list->at[i];
	struct stage *s = &d->stages[i];

	if (s->count++ && s->held.len == len && (!len || !memcmp(s->held.data, token, len)))
		return 0;
	s->held.len = s->work.len = 0;
	mfs_buf_add(&s->held, token, len);
	mfs_buf_add(&s->work, token, len);
	replace_all(&s->work, t->content.data, t->content.len, "", 0);
	if (t->cleanup) {
		clean_up(&s->work);
		replace_all(&s->work, t->delimiter.data, t->delimiter.len, " ", 1);
	}
	return s->work.len || s->work.failed ? put_work(d, i) : 0;
}

static int read_bpe(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err)
{
	const int rc = mfs_part_text(json, "suffix", &t->content, err);

	return !rc && !t->content.len ? refuse_empty("BPEDecoder", "suffix", err) : rc;
}

/* The last token's suffix becomes nothing, those of others a blank: one token is held back. */
static int give_bpe(struct mfs_token_decode *d, size_t i, const char *to)
{
	const struct mfs_token_decoder *t = &d->list->at[i];
	struct stage *s = &d->stages[i];

	s->work.len = 0;
	mfs_buf_add(&s->work, s->held.data, s->held.len);
	replace_all(&s->work, t->content.data, t->content.len, to, strlen(to));
	return put_work(d, i);
}

static int put_bpe(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	struct stage *s = &d->stages[i];
	int rc = s->count++ ? give_bpe(d, i, " ") : 0;

	s->held.len = 0;
	mfs_buf_add(&s->held, token, len);
	return rc ? rc : s->held.failed ? mfs_fail_nomem(d->err) : 0;
}

static int end_bpe(struct mfs_token_decode *d, size_t i)
{
	return d->stages[i].count ? give_bpe(d, i, "") : 0;
}

/* ---- Metaspace ---- */

static int read_metaspace(struct mfs_token_decoder *t, const json_t *json, struct mfs_error *err)
{
	bool splits;

	return mfs_metaspace_read(json, &t->character, &t->scheme, &splits, err);
}

static int put_metaspace(struct mfs_token_decode *d, size_t i, const char *token, size_t len)
{
	const struct mfs_token_decoder *t = &d->list->at[i];
	struct stage *s = &d->stages[i];
	const bool drops = !s->count++ && t->scheme != MFS_PREPEND_NEVER;
	size_t size;

	s->work.len = 0;
	for (size_t k = 0; k < len; k += size) {
		if (mfs_utf8_get(token + k, &size) != t->character)
			mfs_buf_add(&s->work, token + k, size);
		else if (!drops)
			mfs_buf_adds(&s->work, " ");
	}
	return put_work(d, i);
}

/* ---- the list ---- */

static const struct mfs_token_decoder_kind kinds[] = {
	{"ByteLevel", NULL, put_byte_level, end_bytes, true},
	{"ByteFallback", NULL, put_byte_fallback, put_fallback, false},
	{"Fuse", NULL, put_fuse, end_fuse, true},
	{"Strip", read_strip, put_strip, NULL, false},
	{"Replace", read_replace, put_replace, NULL, false},
	{"WordPiece", read_wordpiece, put_wordpiece, NULL, false},
	{"Metaspace", read_metaspace, put_metaspace, NULL, false},
	{"BPEDecoder", read_bpe, put_bpe, end_bpe, false},
	{"CTC", read_ctc, put_ctc, NULL, false},
};

static const struct mfs_token_decoder_kind bytes_kind = {NULL, NULL, put_bytes, end_bytes, true};

static int add_stage(struct mfs_token_decoders *list, struct mfs_error *err)
{
	if (list->count == COUNT_MAX)
		return mfs_fail(err, -ENOTSUP, "more than %u decoders", COUNT_MAX);
	if (mfs_grow(&list->at, list->count))
		return mfs_fail_nomem(err);
	list->at[list->count++] = (struct mfs_token_decoder){0};
	return 0;
}

static int read_one(struct mfs_token_decoders *list, const json_t *json, const char *type,
		    struct mfs_error *err)
{
	struct mfs_token_decoder *t;
	int rc = add_stage(list, err);

	if (rc)
		return rc;
	t = &list->at[list->count - 1];
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].type, type))
			t->kind = &kinds[i];
	if (!t->kind)
		return mfs_fail(err, -ENOTSUP, "decoder \"%s\" is not known", type);
	return t->kind->read ? t->kind->read(t, json, err) : 0;
}

static int read_list(struct mfs_token_decoders *list, const json_t *json, unsigned depth,
		     struct mfs_error *err)
{
	const json_t *inner = json_object_get(json, "decoders");
	const char *type = mfs_part_type(json);
	size_t i;
	json_t *one;
	int rc = 0;

	if (!type || depth > DEPTH_MAX)
		return mfs_fail(err, -ENOTSUP, "a decoder without a type, or in %u others",
				DEPTH_MAX);
	if (strcmp(type, "Sequence") != 0)
		return read_one(list, json, type, err);
	if (!json_is_array(inner))
		return mfs_fail(err, -EINVAL, "decoder Sequence has no decoders");
	json_array_foreach(inner, i, one)
	{
		rc = rc ? rc : read_list(list, one, depth + 1, err);
	}
	return rc;
}

/* One token may go on in pieces if all that follows takes it so: nothing, or Strip of its begin. */
static void find_streams(struct mfs_token_decoders *list)
{
	size_t i = list->count;

	while (i && list->at[i - 1].kind->put == put_strip && !list->at[i - 1].stop)
		i--;
	if (!i || !list->at[i - 1].kind->joins)
		return;
	for (i--; i < list->count; i++)
		list->at[i].streams = true;
}

int mfs_token_decoders_read(struct mfs_token_decoders *list, const json_t *json,
			    struct mfs_error *err)
{
	int rc = json && !json_is_null(json) ? read_list(list, json, 0, err) : 0;

	if (!rc)
		find_streams(list);
	return rc;
}

int mfs_token_decoders_add_bytes(struct mfs_token_decoders *list, struct mfs_error *err)
{
	const int rc = add_stage(list, err);

	if (rc)
		return rc;
	list->at[list->count - 1].kind = &bytes_kind;
	find_streams(list);
	return 0;
}

void mfs_token_decoders_release(struct mfs_token_decoders *list)
{
	for (size_t i = 0; i < list->count; i++) {
		mfs_regex_free(list->at[i].regex);
		mfs_buf_release(&list->at[i].content);
		mfs_buf_release(&list->at[i].delimiter);
	}
	free(list->at);
	*list = (struct mfs_token_decoders){0};
}

/* ---- one text ---- */

int mfs_token_decode_new(const struct mfs_token_decoders *list, struct mfs_token_decode **ret,
			 struct mfs_error *err)
{
	struct mfs_token_decode *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return mfs_fail_nomem(err);
	d->list = list;
	d->stages = calloc(list->count + 1, sizeof(*d->stages));
	rc = d->stages ? mfs_regex_memory_new(&d->regex, err) : mfs_fail_nomem(err);
	if (rc)
		mfs_token_decode_free(d);
	else
		*ret = d;
	return rc;
}

void mfs_token_decode_free(struct mfs_token_decode *d)
{
	if (!d)
		return;
	for (size_t i = 0; d->stages && i < d->list->count; i++) {
		mfs_buf_release(&d->stages[i].held);
		mfs_buf_release(&d->stages[i].work);
	}
	free(d->stages);
	mfs_regex_memory_free(d->regex);
	free(d);
}

int mfs_token_decode_put(struct mfs_token_decode *d, const char *token, size_t len,
			 struct mfs_buf *out, struct mfs_error *err)
{
	d->out = out;
	d->err = err;
	if (!d->list->count && d->count++)
		mfs_buf_adds(out, " ");
	return put(d, 0, token, len);
}

int mfs_token_decode_end(struct mfs_token_decode *d, struct mfs_buf *out, struct mfs_error *err)
{
	int rc = 0;

	d->out = out;
	d->err = err;
	d->count = 0;
	for (size_t i = 0; i < d->list->count && !rc; i++)
		if (d->list->at[i].kind->end)
			rc = d->list->at[i].kind->end(d, i);
	for (size_t i = 0; i < d->list->count; i++) {
		struct stage *s = &d->stages[i];

		s->held.len = s->work.len = s->count = s->cut = 0;
		s->done = false;
	}
	return rc;
}
