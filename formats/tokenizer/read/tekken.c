/* tekken.json of mistral-common (tokens/tokenizers/tekken.py), and the lists in JSON that are read
 * by Megatron's TikTokenizer (megatron/core/tokenizers/text/libraries/tiktoken_tokenizer.py). */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/io/slurp.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/read/ranks.h"

#define PART_MAX (16u << 20) /* bytes of what is read as a tree */
#define LIST_MAX (512u << 20)

struct reader {
	struct mfs_tokenizer *tok;
	struct mfs_error *err;
};

/* Tokens without a name of their own. */
static int add_fillers(const struct reader *r, uint32_t from, uint32_t to)
{
	char text[32];
	int rc = 0;

	for (uint32_t id = from; id < to && !rc; id++)
		rc = mfs_ranks_special(r->tok, text,
				       (size_t)snprintf(text, sizeof(text), "<SPECIAL_%u>", id), id,
				       r->err);
	return rc;
}

static int add_names(const struct reader *r, const char *const *names, size_t count)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		rc = mfs_ranks_special(r->tok, names[i], strlen(names[i]), (uint32_t)i, r->err);
	return rc;
}

static void set_roles(struct mfs_tokenizer *tok)
{
	tok->roles = (struct mfs_tokenizer_roles){
		.bos = mfs_ranks_role(tok, "<s>"),
		.eos = mfs_ranks_role(tok, "</s>"),
		.pad = mfs_ranks_role(tok, "<pad>"),
		.unk = mfs_ranks_role(tok, "<unk>"),
		.mask = mfs_ranks_role(tok, "<mask>"),
		.sep = mfs_ranks_role(tok, "<sep>"),
		.cls = mfs_ranks_role(tok, "<cls>"),
	};
}

/* ---- tekken.json ---- */

/* Those that files of versions before v11 do not name (DEPRECATED_SPECIAL_TOKENS). */
static const char *const early_specials[] = {
	"<unk>",
	"<s>",
	"</s>",
	"[INST]",
	"[/INST]",
	"[AVAILABLE_TOOLS]",
	"[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]",
	"[/TOOL_RESULTS]",
	"[TOOL_CALLS]",
	"[IMG]",
	"<pad>",
	"[IMG_BREAK]",
	"[IMG_END]",
	"[PREFIX]",
	"[MIDDLE]",
	"[SUFFIX]",
	"[SYSTEM_PROMPT]",
	"[/SYSTEM_PROMPT]",
	"[TOOL_CONTENT]",
};

/* TokenizerVersion */
static const struct {
	const char *name;
	bool may_lack_specials;
} versions[] = {
	{"v1", true},	{"v2", true},	{"v3", true},	{"v7", true},
	{"v11", false}, {"v13", false}, {"v15", false},
};

struct config {
	const char *pattern;
	json_int_t vocab_size, special_count;
	bool may_lack_specials;
};

static int read_version(const struct reader *r, const json_t *json, struct config *ret)
{
	const char *version = json_string_value(json_object_get(json, "version"));

	for (size_t i = 0; i < MFS_ARRAY_SIZE(versions); i++)
		if (mfs_str_is(version, versions[i].name)) {
			ret->may_lack_specials = versions[i].may_lack_specials;
			return 0;
		}
	return mfs_fail(r->err, -ENOTSUP, "config: version \"%s\" is not known",
			version ? version : "");
}

static int read_config(const struct reader *r, const json_t *json, struct config *ret)
{
	int rc = read_version(r, json, ret);

	if (rc)
		return rc;
	ret->pattern = json_string_value(json_object_get(json, "pattern"));
	ret->vocab_size = json_integer_value(json_object_get(json, "default_vocab_size"));
	ret->special_count =
		json_integer_value(json_object_get(json, "default_num_special_tokens"));
	if (!ret->pattern || ret->vocab_size > MFS_TOKEN_ID_MAX || ret->special_count < 0 ||
	    ret->special_count >= ret->vocab_size)
		return mfs_fail(r->err, -EINVAL,
				"config: expected a pattern, a default_vocab_size, and a "
				"default_num_special_tokens that is less");
	return 0;
}

static int add_special(const struct reader *r, const json_t *token, size_t place)
{
	const json_t *text = json_object_get(token, "token_str");
	const json_t *rank = json_object_get(token, "rank");

	if (!json_is_string(text) || !json_is_integer(rank) ||
	    json_integer_value(rank) != (json_int_t)place)
		return mfs_fail(r->err, -EINVAL,
				"special_tokens: entry %zu has no token_str, or another rank",
				place);
	return mfs_ranks_special(r->tok, json_string_value(text), json_string_length(text),
				 (uint32_t)place, r->err);
}

static int add_specials(const struct reader *r, const json_t *list, const struct config *config)
{
	const size_t most = (size_t)config->special_count;
	json_t *token;
	size_t i;
	int rc = 0;

	if (!list && !config->may_lack_specials)
		return mfs_fail(r->err, -EINVAL, "special_tokens is missing");
	if (list && !json_is_array(list))
		return mfs_fail(r->err, -EINVAL, "special_tokens is no list");
	i = list ? json_array_size(list) : MFS_ARRAY_SIZE(early_specials);
	if (i > most)
		return mfs_fail(r->err, -EINVAL, "%zu special tokens; config has %zu", i, most);
	rc = add_fillers(r, (uint32_t)i, (uint32_t)most);
	if (!rc && !list)
		rc = add_names(r, early_specials, MFS_ARRAY_SIZE(early_specials));
	json_array_foreach(list, i, token)
	{
		rc = rc ? rc : add_special(r, token, i);
	}
	return rc;
}

/* A part as a tree. *ret NULL: it is not there, or null. */
static int load(const struct reader *r, struct mfs_scan file, const char *name, json_t **ret)
{
	struct mfs_scan part;

	*ret = NULL;
	if (!mfs_scan_find(file, name, &part) || mfs_scan_is(&part, "null"))
		return 0;
	return mfs_json_load(part.at, (size_t)(part.end - part.at), PART_MAX, JSON_DECODE_ANY, name,
			     ret, r->err);
}

/* Tekkenizer._decode_all(): texts between special tokens are decoded each by itself. */
static int decode(struct mfs_decoder *dec, const uint32_t *ids, size_t count, struct mfs_buf *out,
		  struct mfs_error *err)
{
	const struct mfs_tokenizer_ops *base =
		((const struct mfs_tokenizer_ops *)dec->tok->ops) + 1;
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		const bool special = mfs_tokenizer_is_special(dec->tok, ids[i]);

		if (special)
			rc = base->decode_end(dec, out, err);
		if (!rc)
			rc = base->decode(dec, &ids[i], 1, out, err);
	}
	return rc;
}

/* Puts decode() in the place of the pipeline's, which is kept after it. */
static int replace_decode(const struct reader *r)
{
	struct mfs_tokenizer_ops *ops = mfs_arena_array(&r->tok->arena, 2, sizeof(*ops));

	if (!ops)
		return mfs_fail_nomem(r->err);
	ops[0] = ops[1] = *r->tok->ops;
	ops[0].decode = decode;
	r->tok->ops = ops;
	return 0;
}

static int read_tekken(const struct reader *r, struct mfs_scan file, const json_t *config_json,
		       const json_t *specials)
{
	struct config config;
	struct mfs_scan vocab;
	uint64_t inner;
	int rc = read_config(r, config_json, &config);

	if (!rc && !mfs_scan_find(file, "vocab", &vocab))
		rc = mfs_fail(r->err, -EINVAL, "vocab is missing");
	if (rc)
		return rc;
	inner = (uint64_t)(config.vocab_size - config.special_count);
	rc = mfs_ranks_add_list(r->tok, vocab, (uint64_t)config.special_count, inner, r->err);
	if (!rc && r->tok->tokens.used != inner)
		rc = mfs_fail(r->err, -EINVAL, "vocab has %u entries; config wants %llu",
			      r->tok->tokens.used, (unsigned long long)inner);
	if (!rc)
		rc = add_specials(r, specials, &config);
	if (!rc)
		rc = mfs_ranks_finish(r->tok, config.pattern, false, r->err);
	if (!rc)
		rc = replace_decode(r);
	if (!rc)
		set_roles(r->tok);
	return rc;
}

int mfs_tokenizer_tekken_read(struct mfs_tokenizer *tok, const char *path, const char *text,
			      size_t len, struct mfs_error *err)
{
	const struct reader r = {tok, err};
	const struct mfs_scan file = {text, text + len};
	json_t *config = NULL, *specials = NULL;
	int rc;

	(void)path;
	if (!mfs_scan_is_whole(file))
		return mfs_fail(err, -EINVAL, "not a JSON object, or cut short");
	rc = load(&r, file, "config", &config);
	if (!rc && !config)
		rc = mfs_fail(err, -EINVAL, "config is missing");
	if (!rc)
		rc = load(&r, file, "special_tokens", &specials);
	if (!rc)
		rc = read_tekken(&r, file, config, specials);
	json_decref(config);
	json_decref(specials);
	return rc;
}

/* ---- Megatron's lists ---- */

#define V1                                                                                         \
	"[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"      \
	"\\s+(?!\\S)|\\s+"
#define V2                                                                                         \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"                              \
	"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"                                                          \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"                              \
	"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"                                                          \
	"\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const tik_specials[] = {"<unk>", "<s>",   "</s>", "<mask>",
					   "<pad>", "<cls>", "<sep>"};

#define CONFIG	     "tiktoken.json"
#define VOCAB_SIZE   (1u << 17) /* DEFAULT_TIKTOKEN_MAX_VOCAB */
#define NUM_SPECIALS 1000u

/* What Megatron's arguments say, in a file next to the list, or their defaults. */
struct tik {
	const char *pattern;
	json_int_t vocab_size, special_count;
	const json_t *specials; /* NULL: the usual ones */
};

static int read_tik(const struct reader *r, const json_t *json, struct tik *ret)
{
	const char *pattern = json_string_value(json_object_get(json, "pattern"));
	const json_t *size = json_object_get(json, "vocab_size");
	const json_t *count = json_object_get(json, "num_special_tokens");

	*ret = (struct tik){.pattern = mfs_str_is(pattern, "v1") ? V1 : V2,
			    .vocab_size = size ? json_integer_value(size) : VOCAB_SIZE,
			    .special_count = count ? json_integer_value(count) : NUM_SPECIALS,
			    .specials = json_object_get(json, "special_tokens")};
	if (pattern && !mfs_str_is(pattern, "v1") && !mfs_str_is(pattern, "v2"))
		return mfs_fail(r->err, -ENOTSUP, CONFIG ": pattern \"%s\"; expected v1 or v2",
				pattern);
	if (ret->vocab_size > MFS_TOKEN_ID_MAX || ret->special_count < 1 ||
	    ret->special_count >= ret->vocab_size ||
	    (ret->specials && !json_is_array(ret->specials)))
		return mfs_fail(r->err, -EINVAL,
				CONFIG ": expected a vocab_size, a num_special_tokens that is "
				       "less, and a list of special_tokens");
	return 0;
}

static int add_tik_specials(const struct reader *r, const struct tik *tik)
{
	size_t count =
		tik->specials ? json_array_size(tik->specials) : MFS_ARRAY_SIZE(tik_specials);
	json_t *name;
	size_t i;
	int rc = 0;

	if (count > (size_t)tik->special_count)
		return mfs_fail(r->err, -EINVAL, "%zu special tokens; expected at most %lld", count,
				(long long)tik->special_count);
	if (!tik->specials)
		rc = add_names(r, tik_specials, count);
	json_array_foreach(tik->specials, i, name)
	{
		if (!rc && !json_is_string(name))
			rc = mfs_fail(r->err, -EINVAL, CONFIG ": a special token is no text");
		if (!rc)
			rc = mfs_ranks_special(r->tok, json_string_value(name),
					       json_string_length(name), (uint32_t)i, r->err);
	}
	return rc ? rc : add_fillers(r, (uint32_t)count, (uint32_t)tik->special_count);
}

static int load_tik(const struct reader *r, const char *path, json_t **ret)
{
	char *dir = mfs_path_parent(path), *text = NULL;
	size_t len = 0;
	int rc = dir ? mfs_hf_slurp(dir, CONFIG, PART_MAX, &text, &len, r->err)
		     : mfs_fail_nomem(r->err);

	*ret = NULL;
	if (!rc)
		mfs_tokenizer_add_file(r->tok, text, len);
	if (!rc)
		rc = mfs_json_load(text, len, PART_MAX, 0, CONFIG, ret, r->err);
	free(text);
	free(dir);
	return rc == -ENOENT ? 0 : rc;
}

static int make_tik(const struct reader *r, struct mfs_scan list, const json_t *config)
{
	struct tik tik;
	int rc = read_tik(r, config, &tik);

	if (!rc)
		rc = mfs_ranks_add_list(r->tok, list, (uint64_t)tik.special_count,
					(uint64_t)(tik.vocab_size - tik.special_count), r->err);
	if (!rc)
		rc = add_tik_specials(r, &tik);
	if (!rc)
		rc = mfs_ranks_finish(r->tok, tik.pattern, true, r->err);
	if (!rc)
		set_roles(r->tok);
	return rc;
}

int mfs_tokenizer_rank_list_read(struct mfs_tokenizer *tok, const char *path, const char *text,
				 size_t len, struct mfs_error *err)
{
	const struct reader r = {tok, err};
	json_t *config;
	int rc = load_tik(&r, path, &config);

	if (!rc)
		rc = make_tik(&r, (struct mfs_scan){text, text + len}, config);
	json_decref(config);
	return rc;
}

/* ---- a list with a command line's arguments ---- */

/* text: {"config": ..., "vocab": the list}. */
static int read_with_config(struct mfs_tokenizer *tok, const char *path, const char *text,
			    size_t len, struct mfs_error *err)
{
	const struct reader r = {tok, err};
	const struct mfs_scan file = {text, text + len};
	struct mfs_scan list;
	json_t *config = NULL;
	int rc;

	(void)path;
	if (!mfs_scan_is_whole(file) || !mfs_scan_find(file, "vocab", &list))
		return mfs_fail(err, -EINVAL, "not a JSON list, or cut short");
	rc = load(&r, file, "config", &config);
	if (!rc)
		rc = make_tik(&r, list, config);
	json_decref(config);
	return rc;
}

int mfs_tokenizer_open_tiktoken(const char *path, const struct mfs_tiktoken_arguments *a,
				struct mfs_tokenizer **ret, struct mfs_error *err)
{
	static const struct mfs_tokenizer_kind kind = {"", read_with_config};
	struct mfs_buf json = {0};
	void *list = NULL;
	size_t len;
	int rc = mfs_slurp(path, LIST_MAX, &list, &len, err);

	if (rc)
		return rc;
	mfs_buf_adds(&json, "{\"config\": {\"pattern\": ");
	mfs_buf_add_json(&json, a->pattern ? a->pattern : "v2");
	mfs_buf_printf(&json, ", \"vocab_size\": %llu, \"num_special_tokens\": %llu}, \"vocab\": ",
		       (unsigned long long)a->vocab_size, (unsigned long long)a->special_count);
	mfs_buf_add(&json, list, len);
	mfs_buf_adds(&json, "}");
	free(list);
	rc = json.failed ? mfs_fail_nomem(err)
			 : mfs_tokenizer_parse(&kind, path, json.data, json.len, ret, err);
	mfs_buf_release(&json);
	return rc;
}
