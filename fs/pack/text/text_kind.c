#include "fs/pack/text/text_kind.h"

#include <xxhash.h>

#include "formats/base/absent.h"
#include "formats/base/array.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/token_ids.h"

struct mfs_text_tokenizer_kind {
	const char *name;
	/* NULL: it is not made here, for this reason. */
	int (*open)(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
		    struct mfs_error *err);
	const char *why_not;
};

/* ---- files ---- */

static int need(const char *value, const struct mfs_text_tokenizer_config *c, const char *flag,
		struct mfs_error *err)
{
	return value ? 0 : mfs_fail(err, -ENODATA, "%s needs %s", c->type, flag);
}

static int open_model(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
		      struct mfs_error *err)
{
	int rc = need(c->model, c, "--tokenizer-model", err);

	return rc ? rc : mfs_tokenizer_open(c->model, &t->tok, err);
}

/* As len(tokenizer) counts: ids that stand for nothing are left out. */
static uint64_t count_tokens(const struct mfs_tokenizer *tok)
{
	const uint32_t size = mfs_tokenizer_size(tok);
	uint64_t count = 0;
	size_t len;

	for (uint32_t id = 0; id < size; id++)
		count += mfs_tokenizer_token(tok, id, &len) != NULL;
	return count;
}

/* Megatron takes the separator for the end where a tokenizer names no end, as BERT's do not. */
static void set_hugging_face(struct mfs_text_tokenizer *t, bool add_special)
{
	const struct mfs_tokenizer_roles *roles = mfs_tokenizer_roles(t->tok);

	t->eod = roles->eos != MFS_ABSENT ? roles->eos : roles->sep;
	t->add_special = add_special;
}

/* ---- kinds ---- */

static int open_hugging_face(const struct mfs_text_tokenizer_config *c,
			     struct mfs_text_tokenizer *t, struct mfs_error *err)
{
	int rc;

	if (c->vocab_file || c->merge_file)
		return mfs_fail(err, -ENOTSUP,
				"%s takes no --vocab-file or --merge-file here: they are of "
				"GPT2BPETokenizer",
				c->type);
	rc = open_model(c, t, err);
	if (!rc)
		set_hugging_face(t, !c->without_special);
	return rc;
}

/* Before core had its own tokenizers, special tokens in a text were text. */
static int refuse_legacy(const struct mfs_text_tokenizer_config *c, struct mfs_error *err)
{
	return c->legacy ? mfs_fail(err, -ENOTSUP,
				    "%s with --legacy-tokenizer takes special tokens in a text "
				    "for text: that is not made here",
				    c->type)
			 : 0;
}

static int open_gpt2(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
		     struct mfs_error *err)
{
	int rc = need(c->vocab_file, c, "--vocab-file", err);

	if (!rc)
		rc = need(c->merge_file, c, "--merge-file", err);
	if (!rc)
		rc = refuse_legacy(c, err);
	if (!rc)
		rc = mfs_tokenizer_open_gpt2(c->vocab_file, c->merge_file, &t->tok, err);
	if (!rc)
		set_hugging_face(t, !c->without_special);
	return rc;
}

static int open_sentencepiece(const struct mfs_text_tokenizer_config *c,
			      struct mfs_text_tokenizer *t, struct mfs_error *err)
{
	int rc;

	if (c->legacy)
		return mfs_fail(err, -ENOTSUP,
				"%s with --legacy-tokenizer adds tokens of its own to the model: "
				"that is not made here",
				c->type);
	rc = open_model(c, t, err);
	if (!rc)
		t->eod = mfs_tokenizer_roles(t->tok)->eos;
	return rc;
}

static int open_gpt_sentencepiece(const struct mfs_text_tokenizer_config *c,
				  struct mfs_text_tokenizer *t, struct mfs_error *err)
{
	int rc = open_model(c, t, err);

	if (!rc)
		t->eod = mfs_tokenizer_roles(t->tok)->eos;
	return rc;
}

/* Before core had its own tokenizers (0.15) a begin came before each text. */
static int open_llama2(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
		       struct mfs_error *err)
{
	int rc = open_gpt_sentencepiece(c, t, err);

	if (!rc && c->legacy)
		t->bos = mfs_tokenizer_roles(t->tok)->bos;
	return rc;
}

#define TIKTOKEN_VOCABULARY (1u << 17) /* DEFAULT_TIKTOKEN_MAX_VOCAB */

/* tiktoken replaces halves of surrogate pairs. */
static int open_tiktoken(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
			 struct mfs_error *err)
{
	const struct mfs_tiktoken_arguments a = {
		.pattern = c->tiktoken_pattern,
		.vocab_size = c->vocab_size != MFS_ABSENT_U64 ? c->vocab_size : TIKTOKEN_VOCABULARY,
		.special_count = c->tiktoken_specials,
	};
	int rc = need(c->model, c, "--tokenizer-model", err);

	if (!rc)
		rc = refuse_legacy(c, err);
	if (!rc)
		rc = mfs_tokenizer_open_tiktoken(c->model, &a, &t->tok, err);
	if (!rc)
		t->eod = mfs_tokenizer_roles(t->tok)->eos;
	t->replaces_halves = true;
	return rc;
}

/* Numbers in the place of words. Until core 0.17 the end came after the vocabulary. */
static int open_null(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
		     struct mfs_error *err)
{
	if (c->vocab_size == MFS_ABSENT_U64 || !c->vocab_size)
		return mfs_fail(err, -ENODATA, "%s needs --vocab-size", c->type);
	t->vocab_size = c->vocab_size + c->legacy;
	t->eod = c->null_eod != MFS_ABSENT_U64 ? (int64_t)c->null_eod : (int64_t)t->vocab_size - 1;
	return 0;
}

/* --tokenizer: how a file is used follows from what it is. */
static int open_any(const struct mfs_text_tokenizer_config *c, struct mfs_text_tokenizer *t,
		    struct mfs_error *err)
{
	int rc = mfs_tokenizer_open(c->model, &t->tok, err);

	if (!rc)
		set_hugging_face(t, !c->without_special);
	return rc;
}

#define NEEDS_SENTENCES "it is for sentences of BERT, and there is no --split-sentences here"

static const struct mfs_text_tokenizer_kind any = {"", open_any, NULL};
static const struct mfs_text_tokenizer_kind kinds[] = {
	{"HuggingFaceTokenizer", open_hugging_face, NULL},
	{"SentencePieceTokenizer", open_sentencepiece, NULL},
	{"GPTSentencePieceTokenizer", open_gpt_sentencepiece, NULL},
	{"Llama2Tokenizer", open_llama2, NULL},
	{"GPT2BPETokenizer", open_gpt2, NULL},
	{"TikTokenizer", open_tiktoken, NULL},
	{"NullTokenizer", open_null, NULL},
	{"BertWordPieceLowerCase", NULL, NEEDS_SENTENCES},
	{"BertWordPieceCase", NULL, NEEDS_SENTENCES},
	{"MultimodalTokenizer", NULL, "it is for texts with pictures"},
	{"NullMultimodalTokenizer", NULL, "it is for texts with pictures"},
	{"SFTTokenizer", NULL, "it is for conversations"},
};

static const struct mfs_text_tokenizer_kind *find(const char *type)
{
	if (!type)
		return &any;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].name, type))
			return &kinds[i];
	return NULL;
}

int mfs_text_tokenizer_open(const struct mfs_text_tokenizer_config *c,
			    struct mfs_text_tokenizer *ret, struct mfs_error *err)
{
	const struct mfs_text_tokenizer_kind *kind = find(c->type);
	int rc;

	*ret = (struct mfs_text_tokenizer){.kind = kind, .eod = MFS_ABSENT, .bos = MFS_ABSENT};
	if (!kind)
		return mfs_fail(err, -ENOTSUP, "--tokenizer-type %s: there is no such tokenizer",
				c->type);
	if (!kind->open)
		return mfs_fail(err, -ENOTSUP, "--tokenizer-type %s: %s", c->type, kind->why_not);
	rc = kind->open(c, ret, err);
	if (!rc && ret->tok)
		ret->vocab_size = count_tokens(ret->tok);
	return rc;
}

void mfs_text_tokenizer_release(struct mfs_text_tokenizer *t)
{
	mfs_tokenizer_free(t->tok);
}

uint64_t mfs_text_tokenizer_hash(const struct mfs_text_tokenizer *t)
{
	const uint64_t of[] = {t->tok ? mfs_tokenizer_hash(t->tok) : 0, t->vocab_size,
			       (uint64_t)t->bos, t->add_special};

	return XXH3_64bits_withSeed(of, sizeof(of),
				    XXH3_64bits(t->kind->name, strlen(t->kind->name)));
}

/* ---- encoding ---- */

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* As int() of a piece between two spaces. */
static int take_number(const char *at, const char *end, struct mfs_token_ids *ids,
		       struct mfs_error *err)
{
	const char *p = at;
	uint64_t id = 0;

	while (p < end && is_blank(*p))
		p++;
	while (end > p && is_blank(end[-1]))
		end--;
	if (p == end)
		return mfs_fail(err, -EINVAL, "a number is missing between two spaces");
	for (; p < end && *p >= '0' && *p <= '9' && id <= UINT32_MAX; p++)
		id = id * 10 + (uint64_t)(*p - '0');
	if (p < end || id > INT32_MAX)
		return mfs_fail(err, -EINVAL, "'%.*s' is not a token id",
				(int)(end - at > 40 ? 40 : end - at), at);
	return mfs_token_ids_append(ids, &(uint32_t){(uint32_t)id}, 1, err);
}

static int take_numbers(const char *text, size_t len, struct mfs_token_ids *ids,
			struct mfs_error *err)
{
	const char *at = text, *end = text + len, *space;
	int rc;

	do {
		space = memchr(at, ' ', (size_t)(end - at));
		rc = take_number(at, space ? space : end, ids, err);
		at = space ? space + 1 : end;
	} while (!rc && space);
	return rc;
}

int mfs_text_tokenize(const struct mfs_text_tokenizer *t, struct mfs_encoder *enc, const char *text,
		      size_t len, struct mfs_token_ids *ids, struct mfs_error *err)
{
	const uint32_t bos = (uint32_t)t->bos;

	if (t->bos != MFS_ABSENT && mfs_token_ids_append(ids, &bos, 1, err))
		return -ENOMEM;
	return enc ? mfs_encode(enc, text, len, t->add_special, ids, err)
		   : take_numbers(text, len, ids, err);
}
