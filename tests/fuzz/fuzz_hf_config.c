#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "formats/ckpt/read/ckpt_open.h"
#include "formats/model/hf_config.h"

/*
 * The first byte says what the rest is: 'c' a reference's config.json, checked against a real
 * checkpoint and merged; 't' tokenizer_config.json, tokenizer.json and
 * special_tokens_map.json with NULs between; 'n' tokenizer.json, to be counted; 'g' a config.json
 * for which a generation_config.json is wanted.
 */
#define CHECKPOINT "tests/fixtures/weights/llama-torch-tp2-pp2/iter_0000040"
#define MANY_WARNINGS                                                                              \
	64 /* a model collects them: a new one then, or memory would grow without end */

static struct mfs_model *checkpoint_model(void)
{
	static struct mfs_ckpt *ckpt;
	static struct mfs_model *model;
	struct mfs_error err = {0};

	if (!ckpt && mfs_ckpt_open(CHECKPOINT, 0, &ckpt, &err)) {
		fprintf(stderr, "run this from the repository's root: %s\n", err.msg);
		exit(EXIT_FAILURE);
	}
	if (model && model->warning_count > MANY_WARNINGS) {
		mfs_model_free(model);
		model = NULL;
	}
	if (!model)
		fuzz_require(mfs_model_new(ckpt, NULL, NULL, &model, &err) == 0);
	return model;
}

/* What is written is an object again, and a second reading of it finds nothing to refuse. */
static void check_object(const char *text, size_t len)
{
	json_t *root = json_loadb(text, len, 0, NULL);

	fuzz_require(json_is_object(root));
	json_decref(root);
}

static int fuzz_config(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_hf_ref *ref;
	char *out;
	size_t out_len;
	int rc = mfs_hf_ref_parse(text, len, "config.json", &ref, err);

	if (rc)
		return rc;
	mfs_hf_ref_vocab(ref);
	mfs_hf_ref_has_code(ref);
	rc = mfs_hf_config_json(checkpoint_model(), ref, NULL, &out, &out_len, err);
	if (!rc) {
		check_object(out, out_len);
		free(out);
	}
	mfs_hf_ref_free(ref);
	return rc;
}

static int fuzz_tokens(const char *text, size_t len, struct mfs_error *err)
{
	struct mfs_hf_token_files files = {0};
	struct mfs_hf_text *each[] = {&files.config, &files.tokenizer, &files.map};
	const char *end = text + len;
	struct mfs_hf_tokens tokens;
	int rc;

	for (size_t i = 0; i < 3 && text; i++) {
		const char *nul = memchr(text, 0, (size_t)(end - text));

		*each[i] = (struct mfs_hf_text){text, (size_t)((nul ? nul : end) - text)};
		text = nul ? nul + 1 : NULL;
	}
	rc = mfs_hf_tokens_parse(&files, &tokens, err);

	fuzz_require(rc || (tokens.bos >= -1 && tokens.eos >= -1 && tokens.pad >= -1));
	return rc;
}

static int fuzz_generation(const char *text, size_t len, struct mfs_error *err)
{
	char *out;
	size_t out_len;
	int rc = mfs_hf_generation_json(text, len, &out, &out_len, err);

	if (!rc) {
		check_object(out, out_len);
		free(out);
	}
	return rc;
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const char *text = (const char *)bytes + 1;
	uint64_t count;

	if (!len)
		return mfs_fail(err, -EINVAL, "nothing");
	switch (bytes[0]) {
	case 'c':
		return fuzz_config(text, len - 1, err);
	case 't':
		return fuzz_tokens(text, len - 1, err);
	case 'n':
		return mfs_hf_token_count_parse(text, len - 1, &count, err);
	case 'g':
		return fuzz_generation(text, len - 1, err);
	default:
		return mfs_fail(err, -EINVAL, "no kind of input");
	}
}

FUZZ_TARGET
