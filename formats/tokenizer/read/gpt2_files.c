/* GPT-2's two files, vocab.json and merges.txt, as the tokenizer.json that transformers makes of
 * them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/json_scan.h"
#include "formats/io/slurp.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer_kind.h"

#define FILE_MAX (64u << 20) /* bytes */

static const char end_of_text[] = "<|endoftext|>";

static void add_end(struct mfs_buf *json, int64_t id)
{
	mfs_buf_adds(json, "{\"version\": \"1.0\", \"added_tokens\": [");
	if (id >= 0)
		mfs_buf_printf(json,
			       "{\"id\": %" PRId64 ", \"content\": \"%s\", \"single_word\": false, "
			       "\"lstrip\": false, \"rstrip\": false, \"normalized\": true, "
			       "\"special\": true}",
			       id, end_of_text);
	mfs_buf_adds(json,
		     "], \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
		     "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
		     "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
		     "\"trim_offsets\": true, \"use_regex\": true}, "
		     "\"model\": {\"type\": \"BPE\", \"vocab\": ");
}

/* A pair a line; the first line may be "#version: 0.2". */
static void add_merges(struct mfs_buf *json, const char *text, size_t len)
{
	const char *end = text + len;
	bool first = true;

	mfs_buf_adds(json, ", \"merges\": [");
	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		const char *stop = newline ? newline : end;
		size_t line = (size_t)(stop - text);

		while (line && (text[line - 1] == '\r' || text[line - 1] == ' '))
			line--;
		if (line && strncmp(text, "#version", 8) != 0) {
			mfs_buf_adds(json, first ? "" : ", ");
			mfs_buf_add_json_bytes(json, text, line);
			first = false;
		}
		text = newline ? newline + 1 : end;
	}
	mfs_buf_adds(json, "]}}");
}

static int make(const char *path, const char *vocab, size_t vocab_len, const char *merges,
		size_t merges_len, struct mfs_tokenizer **ret, struct mfs_error *err)
{
	const struct mfs_scan object = {vocab, vocab + vocab_len};
	struct mfs_buf json = {0};
	struct mfs_scan value;
	int64_t id = MFS_ABSENT;
	int rc;

	if (!mfs_scan_is_whole(object))
		return mfs_fail(err, -EINVAL, "'%s' is not a JSON object, or cut short", path);
	if (mfs_scan_find(object, end_of_text, &value) && !mfs_scan_id(&value, &id))
		id = MFS_ABSENT;
	add_end(&json, id);
	mfs_buf_add(&json, vocab, vocab_len);
	add_merges(&json, merges, merges_len);
	rc = json.failed ? mfs_fail_nomem(err)
			 : mfs_tokenizer_parse(mfs_tokenizer_kind_of("tokenizer.json"), path,
					       json.data, json.len, ret, err);
	mfs_buf_release(&json);
	if (!rc)
		(*ret)->roles.bos = (*ret)->roles.eos = id;
	return rc;
}

int mfs_tokenizer_open_gpt2(const char *vocab_file, const char *merge_file,
			    struct mfs_tokenizer **ret, struct mfs_error *err)
{
	void *vocab = NULL, *merges = NULL;
	size_t vocab_len, merges_len;
	int rc = mfs_slurp(vocab_file, FILE_MAX, &vocab, &vocab_len, err);

	if (!rc)
		rc = mfs_slurp(merge_file, FILE_MAX, &merges, &merges_len, err);
	if (!rc)
		rc = make(vocab_file, vocab, vocab_len, merges, merges_len, ret, err);
	free(vocab);
	free(merges);
	return rc;
}
