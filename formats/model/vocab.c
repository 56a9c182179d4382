#define _GNU_SOURCE
#include "formats/model/vocab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/ckpt/dims.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/model/hf_config.h"

int mfs_vocab_tokenizer(const struct mfs_ckpt *ckpt, const char *ref, char **ret,
			struct mfs_error *err)
{
	const char *named = mfs_ckpt_args(ckpt)->nemo_tokenizer;
	/* of NeMo 2, by its name or the usual one; of Megatron-LM and Megatron-Bridge */
	const char *const places[][2] = {
		{"context/", named ? named : "nemo_tokenizer"},
		{"context/", "nemo_tokenizer"},
		{"", "tokenizer"},
	};

	*ret = ref ? strdup(ref) : NULL;
	for (size_t i = 0; i < 3 && !ref; i++) {
		free(*ret);
		if (asprintf(ret, "%s/%s%s", mfs_ckpt_dir(ckpt), places[i][0], places[i][1]) < 0)
			*ret = NULL;
		if (!*ret || !access(*ret, F_OK))
			break;
	}
	return *ret ? 0 : mfs_fail_nomem(err);
}

/* Sets rows to 0 if the person asks for nothing. */
static int take_given(const struct mfs_vocab_given *given, struct mfs_vocab *v,
		      struct mfs_error *err)
{
	if (given->size == MFS_VOCAB_TOKENIZER) {
		v->source = MFS_VOCAB_TOKENIZED;
		return mfs_hf_token_count_read(given->tokenizer, &v->rows, err);
	}
	v->source = given->size ? MFS_VOCAB_OPTION : MFS_VOCAB_REF;
	v->rows = given->size ? given->size : given->ref ? mfs_hf_ref_vocab(given->ref) : 0;
	return 0;
}

static const char *in_words(enum mfs_vocab_source source)
{
	switch (source) {
	case MFS_VOCAB_OPTION:
		return "asked for by vocab_size=";
	case MFS_VOCAB_REF:
		return "of the reference's config.json";
	case MFS_VOCAB_TOKENIZED:
		return "of the tokenizer";
	case MFS_VOCAB_ARGS:
	case MFS_VOCAB_PADDED:
		break;
	}
	return "recorded in the run's arguments";
}

/* 0: there is no tokenizer.json that can be read, or Megatron would have stored other rows. */
static uint64_t by_tokenizer(const struct mfs_ckpt *ckpt, const char *dir, uint64_t padded)
{
	struct mfs_megatron_args args = *mfs_ckpt_args(ckpt);
	uint64_t count;

	if (mfs_hf_token_count_read(dir, &count, NULL) || count > INT64_MAX)
		return 0;
	args.vocab_size = (int64_t)count;
	args.tokenizer_type = NULL;
	return mfs_args_true_vocab(&args, padded);
}

int mfs_vocab_decide(const struct mfs_ckpt *ckpt, const struct mfs_vocab_given *given,
		     struct mfs_vocab *ret, struct mfs_error *err)
{
	struct mfs_vocab v = {.padded = mfs_dims_padded_vocab(ckpt)};
	int rc = given ? take_given(given, &v, err) : 0;

	if (rc)
		return rc;
	if (!v.rows) {
		v.rows = mfs_args_true_vocab(mfs_ckpt_args(ckpt), v.padded);
		v.source = v.rows ? MFS_VOCAB_ARGS : MFS_VOCAB_PADDED;
	}
	if (!v.rows && given && given->by_tokenizer) {
		v.rows = by_tokenizer(ckpt, given->tokenizer, v.padded);
		v.source = v.rows ? MFS_VOCAB_TOKENIZED : MFS_VOCAB_PADDED;
	}
	if (!v.rows)
		v.rows = v.padded;
	if (v.rows > v.padded)
		return mfs_fail(
			err, -EINVAL,
			"%s: a vocabulary of %llu rows (%s) does not fit: the checkpoint stores "
			"%llu",
			mfs_ckpt_dir(ckpt), (unsigned long long)v.rows, in_words(v.source),
			(unsigned long long)v.padded);
	*ret = v;
	return 0;
}

uint64_t mfs_vocab_true(const struct mfs_vocab *v)
{
	return v->source == MFS_VOCAB_PADDED ? 0 : v->rows;
}
