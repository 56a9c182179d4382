/*
 * Input: a command line, a word a line. Whatever is taken has a Namespace that our own reader of
 * checkpoints reads as the same model, and fields within their bounds.
 */
#define _GNU_SOURCE
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "trainer/config/help/help.h"
#include "trainer/config/run_namespace.h"
#include "trainer/config/parse/parse.h"
#include "trainer/config/settle/settle.h"
#include "trainer/config/value.h"

#define WORDS 256

static size_t cut(char *text, size_t len, const char **words)
{
	size_t count = 0;

	for (char *at = text; at < text + len && count < WORDS; at += strlen(at) + 1) {
		at[strcspn(at, "\n")] = '\0';
		words[count++] = at;
	}
	return count;
}

static void check_fields(const struct mft_train_config *c)
{
	const struct mfs_megatron_args *m = &c->model;

	fuzz_require(c->settled);
	fuzz_require(c->micro_batch_size > 0 && c->global_batch_size >= c->micro_batch_size);
	fuzz_require(c->params_dtype == MFS_F32 || c->params_dtype == MFS_F16 ||
		     c->params_dtype == MFS_BF16);
	fuzz_require(m->num_layers > 0 && m->hidden_size > 0 && m->ffn_hidden_size > 0);
	fuzz_require(m->num_attention_heads % m->num_query_groups == 0);
	fuzz_require(c->seq_length > 0 && c->seq_length <= m->max_position_embeddings);
	fuzz_require(m->padded_vocab_size > 0 && m->vocab_size <= m->padded_vocab_size);
	fuzz_require(m->tensor_model_parallel_size == 1 && m->pipeline_model_parallel_size == 1);
	for (uint32_t i = 0; i < c->batch_step_count; i++)
		fuzz_require(c->batch_steps[i].batch && (i || !c->batch_steps[i].threshold));
}

static void check_namespace(const struct mft_train_config *c)
{
	struct mfs_megatron_args m;
	struct mfs_arena arena = {0};
	struct mfs_buf bytes = {0};
	struct mfs_pickle_writer w;
	struct mfs_error err = {0};
	struct mfs_pickle *doc;

	mfs_pickle_begin(&w, &bytes, 2);
	fuzz_require(!mft_train_namespace_write(&w, c, NULL));
	fuzz_require(!mfs_pickle_end(&w, &err));
	fuzz_require(!mfs_pickle_parse(bytes.data, bytes.len, "args", NULL, &doc, &err));
	fuzz_require(!mfs_megatron_args_read(doc, mfs_pickle_root(doc), &arena, &m, &err));
	fuzz_require(m.num_layers == c->model.num_layers && m.swiglu == c->model.swiglu);
	fuzz_require(m.padded_vocab_size == c->model.padded_vocab_size);
	mfs_pickle_free(doc);
	mfs_arena_release(&arena);
	mfs_buf_release(&bytes);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	char *text = malloc(len + 1);
	const char *words[WORDS];
	struct mft_train_config c;
	struct mfs_buf shown = {0};
	int rc;

	memcpy(text, bytes, len);
	text[len] = '\0';
	/* No file of this machine is an input. */
	rc = memmem(bytes, len, "-cfg", 4) || memmem(bytes, len, "--config", 8) ||
			     memmem(bytes, len, "-file", 5) || memmem(bytes, len, "-model", 6)
		     ? mfs_fail(err, -EINVAL, "a file")
		     : mft_train_config_parse_words(words, cut(text, len, words), &c, err);
	if (!rc) {
		rc = mft_train_config_settle(&c, err);
		if (!rc) {
			check_fields(&c);
			check_namespace(&c);
			mft_help_notes(&c, &shown);
			mft_help_arguments(&c, &shown);
			fuzz_require(!shown.failed);
		}
		mfs_buf_release(&shown);
		mft_train_config_release(&c);
	}
	free(text);
	return rc;
}

FUZZ_TARGET
