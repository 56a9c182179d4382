#include "trainer/config/settle/settle_vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/hf/sentencepiece.h"
#include "trainer/config/dests.h"

#define VOCAB_FILE_MAX (64u << 20) /* bytes of a JSON file of tokens */

/* tiktoken_tokenizer.py: its default vocabulary, the special tokens that it always has, and "</s>"
 * and "<pad>" among them. */
#define TIKTOKEN_SIZE	 (1 << 17)
#define TIKTOKEN_SPECIAL 7
#define TIKTOKEN_EOS	 2
#define TIKTOKEN_PAD	 4

static bool is_directory(const char *path)
{
	struct stat st;

	return path && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool is_there(const char *path)
{
	struct stat st;

	return path && !stat(path, &st);
}

static int from_directory(const char *dir, struct mft_vocab_found *ret, struct mfs_error *err)
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
	ret->eod = tokens.eos == MFS_ABSENT ? MFS_ABSENT : tokens.eos;
	ret->pad = tokens.pad == MFS_ABSENT ? MFS_ABSENT : tokens.pad;
	ret->pad_unknown = false;
	return 0;
}

/* Reads a whole file, and puts a NUL after it. */
static int slurp(const char *path, uint64_t max, char **ret, size_t *ret_len, struct mfs_error *err)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int r = dir ? mfs_hf_slurp(dir, slash ? slash + 1 : path, max, ret, ret_len, err)
		    : mfs_fail_nomem(err);

	free(dir);
	return r;
}

static int slurp_json(const char *path, json_t **ret, struct mfs_error *err)
{
	char *text = NULL;
	size_t len;
	int r = slurp(path, VOCAB_FILE_MAX, &text, &len, err);

	*ret = NULL;
	if (!r)
		r = mfs_json_load(text, len, VOCAB_FILE_MAX, 0, path, ret, err);
	free(text);
	return r;
}

/* {"token": id, ...}. The end of a document is "<|endoftext|>", GPT-2's eos. */
static int from_vocab_file(const char *path, struct mft_vocab_found *ret, struct mfs_error *err)
{
	const json_t *eod;
	json_t *root;
	int r = slurp_json(path, &root, err);

	if (!r && (!json_is_object(root) || !json_object_size(root)))
		r = mfs_fail(err, -EINVAL, "--vocab-file %s: expected an object of tokens", path);
	if (!r) {
		eod = json_object_get(root, "<|endoftext|>");
		ret->size = (int64_t)json_object_size(root);
		if (json_is_integer(eod) && json_integer_value(eod) >= 0)
			ret->eod = json_integer_value(eod);
		ret->pad_unknown = false; /* GPT-2's tokenizer has none */
	}
	json_decref(root);
	return r;
}

/* sentencepiece_tokenizer.py: a legacy one asks for a pad_token, which nothing gives it. */
static int from_sentencepiece(const struct mft_flag_values *v, const char *path,
			      struct mft_vocab_found *ret, struct mfs_error *err)
{
	struct mfs_sentencepiece model;
	char *bytes = NULL;
	size_t len;
	int r = slurp(path, MFS_SENTENCEPIECE_MAX, &bytes, &len, err);

	if (!r)
		r = mfs_sentencepiece_parse(path, bytes, len, &model, err);
	free(bytes);
	if (r)
		return r;
	ret->size = (int64_t)model.count;
	ret->eod = model.eos < 0 ? MFS_ABSENT : model.eos;
	if (model.pad >= 0 && !mft_flag_truth(v, name_of(TOKENIZER_SENTENCEPIECE_LEGACY)))
		ret->pad = model.pad;
	ret->pad_unknown = false;
	return 0;
}

/* tiktoken_tokenizer.py: TikTokenTokenizer. The file has the tokens that follow the special ones,
 * at least as many as are used. */
static int from_tiktoken(const struct mft_flag_values *v, const char *path,
			 struct mft_vocab_found *ret, struct mfs_error *err)
{
	const int64_t size = mft_flag_number(v, name_of(VOCAB_SIZE), TIKTOKEN_SIZE);
	const int64_t special = mft_flag_number(v, name_of(TIKTOKEN_NUM_SPECIAL_TOKENS), 0);
	json_t *root;
	int r = slurp_json(path, &root, err);

	if (!r && !json_is_array(root))
		r = mfs_fail(err, -EINVAL, "--tokenizer-model %s: expected a list of tokens", path);
	if (!r && (special < TIKTOKEN_SPECIAL || special >= size))
		r = mfs_fail(err, -EINVAL,
			     "--tiktoken-num-special-tokens: expected %d or more, and fewer than "
			     "the %lld tokens, found %lld",
			     TIKTOKEN_SPECIAL, (long long)size, (long long)special);
	if (!r && (int64_t)json_array_size(root) < size - special)
		r = mfs_fail(err, -EINVAL,
			     "--tokenizer-model %s: expected %lld tokens besides the %lld special "
			     "ones, found %zu; use --vocab-size",
			     path, (long long)(size - special), (long long)special,
			     json_array_size(root));
	json_decref(root);
	if (r)
		return r;
	*ret = (struct mft_vocab_found){.size = size, .eod = TIKTOKEN_EOS, .pad = TIKTOKEN_PAD};
	return 0;
}

static bool is_sentencepiece(const char *type)
{
	return mfs_str_is(type, "SentencePieceTokenizer") ||
	       mfs_str_is(type, "GPTSentencePieceTokenizer") || mfs_str_is(type, "Llama2Tokenizer");
}

static int from_files(const struct mft_flag_values *v, struct mft_vocab_found *ret,
		      struct mfs_error *err)
{
	const char *type = mft_flag_text(v, name_of(TOKENIZER_TYPE));
	const char *model = mft_flag_text(v, name_of(TOKENIZER_MODEL));
	const char *file = mft_flag_text(v, name_of(VOCAB_FILE));

	if ((mfs_str_is(type, "HuggingFaceTokenizer") || mfs_str_is(type, "SFTTokenizer")) &&
	    is_directory(model))
		return from_directory(model, ret, err);
	if (mfs_str_is(type, "GPT2BPETokenizer") && file && !is_there(file))
		return mfs_fail_errno(err, "--vocab-file %s", file);
	if (mfs_str_is(type, "GPT2BPETokenizer") && file)
		return from_vocab_file(file, ret, err);
	if (is_sentencepiece(type) && is_there(model))
		return from_sentencepiece(v, model, ret, err);
	if (mfs_str_is(type, "TikTokenizer") && is_there(model))
		return from_tiktoken(v, model, ret, err);
	return 0;
}

/* What says the size, for messages. */
static const char *files_of(const char *type)
{
	if (mfs_str_is(type, "GPT2BPETokenizer"))
		return "--vocab-file";
	if (is_sentencepiece(type))
		return "--tokenizer-model, a SentencePiece model";
	if (mfs_str_is(type, "TikTokenizer"))
		return "--tokenizer-model, a JSON file of tokens";
	return "--tokenizer-model, a directory with tokenizer.json";
}

/* What --pad-id or NullTokenizer says; and megatron_dataset.py: a token that is padding and
 * something else is not padding. eod: the tokenizer's own. */
static void settle_pad(const struct mft_flag_values *v, int64_t eod, struct mft_vocab_found *found)
{
	if (mfs_str_is(mft_flag_text(v, name_of(TOKENIZER_TYPE)), "NullTokenizer")) {
		found->pad = mft_flag_number(v, name_of(NULL_TOKENIZER_PAD_ID), MFS_ABSENT);
		found->pad_unknown = false;
	}
	if (!mft_flag_is_none(v, name_of(PAD_ID))) {
		found->pad = mft_flag_number(v, name_of(PAD_ID), MFS_ABSENT);
		found->pad_unknown = false;
	}
	found->pad_ambiguous = found->pad != MFS_ABSENT &&
			       (found->pad == eod || found->pad == found->eod) &&
			       !mft_flag_truth(v, name_of(ALLOW_AMBIGUOUS_PAD_TOKENS));
	if (found->pad_ambiguous || found->pad < 0)
		found->pad = MFS_ABSENT;
}

int mft_vocab_find(const struct mft_flag_values *v, struct mft_vocab_found *ret,
		   struct mfs_error *err)
{
	struct mft_vocab_found found = {
		.size = MFS_ABSENT, .eod = MFS_ABSENT, .pad = MFS_ABSENT, .pad_unknown = true};
	int64_t eod;
	const char *type = mft_flag_text(v, name_of(TOKENIZER_TYPE));
	const int64_t given = mft_flag_number(v, name_of(VOCAB_SIZE), MFS_ABSENT);
	int r = from_files(v, &found, err);

	if (r)
		return r;
	if (found.size == MFS_ABSENT)
		found.size = given;
	if (mfs_str_is(type, "NullTokenizer"))
		found.eod = mft_flag_number(v, name_of(NULL_TOKENIZER_EOD_ID),
					    found.size == MFS_ABSENT ? MFS_ABSENT : found.size - 1);
	eod = found.eod;
	if (!mft_flag_is_none(v, name_of(EOD_ID)))
		found.eod = mft_flag_number(v, name_of(EOD_ID), MFS_ABSENT);
	settle_pad(v, eod, &found);
	if (found.size == MFS_ABSENT && mft_flag_is_none(v, name_of(PADDED_VOCAB_SIZE)))
		return mfs_fail(err, -ENODATA,
				"the size of the vocabulary is not known: expected --vocab-size, "
				"--padded-vocab-size, or the files of %s (%s)",
				type ? type : "a tokenizer", files_of(type));
	*ret = found;
	return 0;
}
