#include "trainer/config/settle/vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/hf_tokenizer.h"

#define VOCAB_FILE_MAX (64u << 20) /* bytes of a JSON file of tokens */

static bool is_directory(const char *path)
{
	struct stat st;

	return path && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int from_directory(const char *dir, struct mfs_vocab_found *ret, struct mfs_error *err)
{
	struct mfs_hf_tokens tokens;
	uint64_t count;
	int r = mfs_hf_token_count_read(dir, &count, err);

	if (!r)
		r = mfs_hf_tokens_read(dir, &tokens, err);
	if (r == -ENODATA)
		return 0; /* another kind of tokenizer: arguments may say it */
	if (r)
		return r;
	ret->size = (int64_t)count;
	ret->eod = tokens.eos == MFS_HF_NO_TOKEN ? MFS_UNSET : tokens.eos;
	return 0;
}

/* {"token": id, ...}. The end of a document is "<|endoftext|>", GPT-2's eos. */
static int from_vocab_file(const char *path, struct mfs_vocab_found *ret, struct mfs_error *err)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	const json_t *eod;
	json_t *root = NULL;
	char *text = NULL;
	size_t len;
	int r;

	if (!dir)
		return mfs_fail_nomem(err);
	r = mfs_hf_slurp(dir, slash ? slash + 1 : path, VOCAB_FILE_MAX, &text, &len, err);
	if (!r)
		r = mfs_json_load(text, len, VOCAB_FILE_MAX, 0, path, &root, err);
	if (!r && (!json_is_object(root) || !json_object_size(root)))
		r = mfs_fail(err, -EINVAL, "--vocab-file %s: expected an object of tokens", path);
	if (!r) {
		eod = json_object_get(root, "<|endoftext|>");
		ret->size = (int64_t)json_object_size(root);
		if (json_is_integer(eod) && json_integer_value(eod) >= 0)
			ret->eod = json_integer_value(eod);
	}
	json_decref(root);
	free(text);
	free(dir);
	return r;
}

static int from_files(const struct mfs_flag_values *v, struct mfs_vocab_found *ret,
		      struct mfs_error *err)
{
	const char *type = mfs_flag_text(v, "tokenizer_type");
	const char *model = mfs_flag_text(v, "tokenizer_model");
	const char *file = mfs_flag_text(v, "vocab_file");

	if (mfs_str_is(type, "HuggingFaceTokenizer") && is_directory(model))
		return from_directory(model, ret, err);
	if (mfs_str_is(type, "GPT2BPETokenizer") && file)
		return from_vocab_file(file, ret, err);
	return 0;
}

int mfs_vocab_find(const struct mfs_flag_values *v, struct mfs_vocab_found *ret,
		   struct mfs_error *err)
{
	struct mfs_vocab_found found = {MFS_UNSET, MFS_UNSET};
	const char *type = mfs_flag_text(v, "tokenizer_type");
	const int64_t said = mfs_flag_number(v, "vocab_size", MFS_UNSET);
	int r = from_files(v, &found, err);

	if (r)
		return r;
	if (found.size == MFS_UNSET)
		found.size = said;
	if (mfs_str_is(type, "NullTokenizer"))
		found.eod = mfs_flag_number(v, "null_tokenizer_eod_id",
					    found.size == MFS_UNSET ? MFS_UNSET : found.size - 1);
	if (!mfs_flag_is_none(v, "eod_id"))
		found.eod = mfs_flag_number(v, "eod_id", MFS_UNSET);
	if (found.size == MFS_UNSET && mfs_flag_is_none(v, "padded_vocab_size"))
		return mfs_fail(err, -ENODATA,
				"the size of the vocabulary is not known: expected --vocab-size, "
				"--padded-vocab-size, or the files of %s (%s)",
				type ? type : "a tokenizer",
				mfs_str_is(type, "GPT2BPETokenizer")
					? "--vocab-file"
					: "--tokenizer-model, a directory with tokenizer.json");
	*ret = found;
	return 0;
}
