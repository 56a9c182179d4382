/*
 * *.tiktoken, and Llama's tokenizer.model: lines of a token in base64 and its rank. The expression
 * that cuts words and the special tokens stand in the programs that read such files. They are known
 * for the files in the table, by their names or by their bytes, and for others from a file
 * "tiktoken.json" next to them, whose members are tiktoken.Encoding's arguments.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/crc32c.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/tokenizer/read/ranks.h"

#define CONFIG	   "tiktoken.json"
#define CONFIG_MAX (4u << 20)

/* tiktoken_ext/openai_public.py */
#define GPT2                                                                                       \
	"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"
#define CL100K                                                                                     \
	"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "                     \
	"?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"
#define O200K                                                                                      \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"                              \
	"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                             \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"                              \
	"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                             \
	"\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* llama-models: llama3/tokenizer.py */
#define LLAMA3                                                                                     \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                 \
	"?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Qwen/Qwen-7B: tokenization_qwen.py */
#define QWEN                                                                                       \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "                      \
	"?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* A special token, or several with numbers in their names. */
struct special {
	uint32_t id;	  /* of the first */
	const char *text; /* NULL: the end of the list */
	uint32_t count;	  /* 0: one, whose text has no number */
	uint32_t number;  /* of the first */
};

static const struct special gpt2_specials[] = {{50256, "<|endoftext|>", 0, 0}, {0}};
static const struct special cl100k_specials[] = {
	{100257, "<|endoftext|>", 0, 0},   {100258, "<|fim_prefix|>", 0, 0},
	{100259, "<|fim_middle|>", 0, 0},  {100260, "<|fim_suffix|>", 0, 0},
	{100276, "<|endofprompt|>", 0, 0}, {0},
};
static const struct special o200k_specials[] = {
	{199999, "<|endoftext|>", 0, 0}, {200018, "<|endofprompt|>", 0, 0}, {0}};
static const struct special qwen_specials[] = {
	{151643, "<|endoftext|>", 0, 0},
	{151644, "<|im_start|>", 0, 0},
	{151645, "<|im_end|>", 0, 0},
	{151646, "<|extra_%u|>", 205, 0},
	{0},
};
static const struct special llama3_specials[] = {
	{128000, "<|begin_of_text|>", 0, 0},
	{128001, "<|end_of_text|>", 0, 0},
	{128002, "<|reserved_special_token_%u|>", 2, 0},
	{128004, "<|finetune_right_pad_id|>", 0, 0},
	{128005, "<|step_id|>", 0, 0},
	{128006, "<|start_header_id|>", 0, 0},
	{128007, "<|end_header_id|>", 0, 0},
	{128008, "<|eom_id|>", 0, 0},
	{128009, "<|eot_id|>", 0, 0},
	{128010, "<|python_tag|>", 0, 0},
	{128011, "<|image|>", 0, 0},
	{128012, "<|reserved_special_token_%u|>", 244, 2},
	{0},
};
/* llama-models: llama4/tokenizer.py */
static const struct special llama4_specials[] = {
	{200000, "<|begin_of_text|>", 0, 0},
	{200001, "<|end_of_text|>", 0, 0},
	{200002, "<|fim_prefix|>", 0, 0},
	{200003, "<|fim_middle|>", 0, 0},
	{200004, "<|fim_suffix|>", 0, 0},
	{200005, "<|header_start|>", 0, 0},
	{200006, "<|header_end|>", 0, 0},
	{200007, "<|eom|>", 0, 0},
	{200008, "<|eot|>", 0, 0},
	{200009, "<|step|>", 0, 0},
	{200010, "<|text_post_train_reserved_special_token_%u|>", 6, 0},
	{200016, "<|python_start|>", 0, 0},
	{200017, "<|python_end|>", 0, 0},
	{200018, "<|finetune_right_pad|>", 0, 0},
	{200019, "<|text_post_train_reserved_special_token_%u|>", 61, 8},
	{200080, "<|image_start|>", 0, 0},
	{200081, "<|image_end|>", 0, 0},
	{200082, "<|vision_reserved_special_token_%u|>", 2, 0},
	{200084, "<|tile_x_separator|>", 0, 0},
	{200085, "<|tile_y_separator|>", 0, 0},
	{200086, "<|vision_reserved_special_token_%u|>", 4, 2},
	{200090, "<|image|>", 0, 0},
	{200091, "<|vision_reserved_special_token_%u|>", 1, 6},
	{200092, "<|patch|>", 0, 0},
	{200093, "<|vision_reserved_special_token_%u|>", 1041, 7},
	{201134, "<|reasoning_reserved_special_token_%u|>", 8, 0},
	{201142, "<|reasoning_thinking_start|>", 0, 0},
	{201143, "<|reasoning_thinking_end|>", 0, 0},
	{201144, "<|reserved_special_token_%u|>", 904, 0},
	{0},
};

struct roles {
	const char *bos, *eos, *pad;
};

static const struct roles plain_roles = {"", "<|endoftext|>", ""};
static const struct roles llama3_roles = {"<|begin_of_text|>", "<|end_of_text|>",
					  "<|finetune_right_pad_id|>"};
static const struct roles llama4_roles = {"<|begin_of_text|>", "<|end_of_text|>",
					  "<|finetune_right_pad|>"};

/* A file that is known by its number of ranks, and either by its name or by its CRC-32C. */
static const struct encoding {
	const char *name; /* NULL: by the CRC alone */
	uint32_t count;
	uint32_t crc; /* 0: by the name alone */
	const char *pattern;
	const struct special *specials;
	const struct roles *roles;
	bool compose; /* texts become NFC first (tokenization_qwen.py: tokenize()) */
} encodings[] = {
	{"gpt2.tiktoken", 50256, 0, GPT2, gpt2_specials, &plain_roles, false},
	{"r50k_base.tiktoken", 50256, 0, GPT2, gpt2_specials, &plain_roles, false},
	{"p50k_base.tiktoken", 50280, 0, GPT2, gpt2_specials, &plain_roles, false},
	{"cl100k_base.tiktoken", 100256, 0x2c0261b3, CL100K, cl100k_specials, &plain_roles, false},
	{"o200k_base.tiktoken", 199998, 0, O200K, o200k_specials, &plain_roles, false},
	{"qwen.tiktoken", 151643, 0x09fef038, QWEN, qwen_specials, &plain_roles, true},
	{NULL, 128000, 0x40871396, LLAMA3, llama3_specials, &llama3_roles, false},
	{NULL, 200000, 0x9a132321, O200K, llama4_specials, &llama4_roles, false},
};

struct reader {
	struct mfs_tokenizer *tok;
	const char *path;
	struct mfs_error *err;
};

/* ---- lines ---- */

/* Cuts a line at its blank. */
static bool cut_line(const char *line, const char *end, const char **ret_blank, uint64_t *ret_rank)
{
	const char *p = memchr(line, ' ', (size_t)(end - line));
	uint64_t rank = 0;

	*ret_blank = p;
	if (!p || p == line || ++p == end || end - p > 9)
		return false;
	for (; p < end; p++) {
		if (*p < '0' || *p > '9')
			return false;
		rank = rank * 10 + (uint64_t)(*p - '0');
	}
	*ret_rank = rank;
	return true;
}

static const char *line_end(const char *line, const char *end)
{
	const char *found = memchr(line, '\n', (size_t)(end - line));

	return found ? found : end;
}

static const char *trimmed(const char *line, const char *end)
{
	return end > line && end[-1] == '\r' ? end - 1 : end;
}

bool mfs_tiktoken_is(const char *text, size_t len)
{
	const char *end = len ? line_end(text, text + len) : text, *blank;
	uint64_t rank;

	return end - text < 4096 && cut_line(text, trimmed(text, end), &blank, &rank) &&
	       (blank - text) % 4 == 0;
}

static int read_lines(const struct reader *r, const char *text, size_t len, uint32_t *ret_count)
{
	const char *end = text + len, *blank;
	uint64_t rank;
	uint32_t number = 1, count = 0;
	int rc = 0;

	for (const char *line = text; line < end && !rc; number++) {
		const char *stop = line_end(line, end), *last = trimmed(line, stop);

		if (last > line && !cut_line(line, last, &blank, &rank))
			return mfs_fail(r->err, -EINVAL,
					"line %u; expected a token in base64, a blank and its rank",
					number);
		if (last > line) {
			rc = mfs_ranks_add(r->tok, rank, line, (size_t)(blank - line), r->err);
			count++;
		}
		line = stop + 1;
	}
	*ret_count = count;
	return rc ? mfs_fail_in(r->err, "line %u", number - 1) : 0;
}

/* ---- what the file does not say ---- */

static int add_special(const struct reader *r, const struct special *s)
{
	char text[80];
	int rc = 0;

	if (!s->count)
		return mfs_ranks_special(r->tok, s->text, strlen(s->text), s->id, r->err);
	for (uint32_t i = 0; i < s->count && !rc; i++) {
		const char *mark = strstr(s->text, "%u");
		const int len = snprintf(text, sizeof(text), "%.*s%u%s", (int)(mark - s->text),
					 s->text, s->number + i, mark + 2);

		rc = mfs_ranks_special(r->tok, text, (size_t)len, s->id + i, r->err);
	}
	return rc;
}

static void set_roles(const struct reader *r, const struct roles *roles)
{
	r->tok->roles.bos = mfs_ranks_role(r->tok, roles->bos);
	r->tok->roles.eos = mfs_ranks_role(r->tok, roles->eos);
	r->tok->roles.pad = mfs_ranks_role(r->tok, roles->pad);
}

static int finish_known(const struct reader *r, const struct encoding *known)
{
	int rc = 0;

	for (const struct special *s = known->specials; s->text && !rc; s++)
		rc = add_special(r, s);
	/* They are looked for in what the text has become. */
	for (uint32_t i = 0; i < r->tok->added.count; i++)
		r->tok->added.at[i].normalized = known->compose;
	if (!rc)
		rc = mfs_ranks_finish(r->tok, known->pattern, true, r->err);
	if (!rc && known->compose)
		rc = mfs_ranks_compose(r->tok, r->err);
	if (!rc)
		set_roles(r, known->roles);
	return rc;
}

static int finish_by_config(const struct reader *r, const json_t *config)
{
	const char *pattern = json_string_value(json_object_get(config, "pat_str")), *text;
	json_t *specials = json_object_get(config, "special_tokens"), *id;
	int rc = 0;

	if (!pattern || (specials && !json_is_object(specials)))
		return mfs_fail(r->err, -EINVAL,
				CONFIG ": expected a pat_str, and special_tokens by their ids");
	json_object_foreach(specials, text, id)
	{
		const json_int_t value = json_integer_value(id);

		if (!json_is_integer(id) || value < 0 || value >= MFS_TOKEN_ID_MAX)
			return mfs_fail(r->err, -EINVAL, CONFIG ": \"%s\" has no id", text);
		rc = mfs_ranks_special(r->tok, text, strlen(text), (uint32_t)value, r->err);
		if (rc)
			return rc;
	}
	rc = mfs_ranks_finish(r->tok, pattern, true, r->err);
	if (!rc)
		set_roles(r, &plain_roles);
	return rc;
}

/* The file next to the ranks. *ret NULL: there is none. */
static int load_config(const struct reader *r, json_t **ret)
{
	char *dir = mfs_path_parent(r->path), *text = NULL;
	size_t len = 0;
	int rc = dir ? mfs_hf_slurp(dir, CONFIG, CONFIG_MAX, &text, &len, r->err)
		     : mfs_fail_nomem(r->err);

	*ret = NULL;
	if (!rc)
		mfs_tokenizer_add_file(r->tok, text, len);
	if (!rc)
		rc = mfs_json_load(text, len, CONFIG_MAX, 0, CONFIG, ret, r->err);
	free(text);
	free(dir);
	return rc == -ENOENT ? 0 : rc;
}

static const struct encoding *find_encoding(const char *path, uint32_t count, uint32_t crc)
{
	const char *name = mfs_path_base(path);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(encodings); i++) {
		const struct encoding *e = &encodings[i];

		if (e->count == count &&
		    ((e->crc && e->crc == crc) || (e->name && mfs_str_is(name, e->name))))
			return e;
	}
	return NULL;
}

int mfs_tokenizer_tiktoken_read(struct mfs_tokenizer *tok, const char *path, const char *text,
				size_t len, struct mfs_error *err)
{
	const struct reader r = {tok, path, err};
	const struct encoding *known;
	json_t *config = NULL;
	uint32_t count;
	int rc = read_lines(&r, text, len, &count);

	if (!rc)
		rc = load_config(&r, &config);
	if (rc)
		return rc;
	known = find_encoding(path, count, mfs_crc32c(text, len));
	if (config)
		rc = finish_by_config(&r, config);
	else if (known)
		rc = finish_known(&r, known);
	else
		rc = mfs_fail(
			err, -ENOTSUP,
			"which expression cuts its words is not known; expected a file " CONFIG
			" with pat_str and special_tokens next to it");
	json_decref(config);
	return rc;
}
