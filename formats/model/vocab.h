/*
 * How many rows of the embedding are the vocabulary. Megatron pads the embedding and may not record
 * the true size, so a person may give it. This file alone decides, for views of all kinds. The
 * first of these that is given counts:
 *
 * 1. -o vocab_size=N, or vocab_size=tokenizer: the largest id of tokenizer.json plus 1;
 * 2. vocab_size of the reference's config.json (-o ref=DIR);
 * 3. vocab_size of the run's arguments, if the run used it (mfs_args_true_vocab);
 * 4. the same of a tokenizer that the person names alone (-o tokenizer=DIR), if that pads to the
 *    rows that are stored;
 * 5. none: all rows are shown.
 */
#ifndef MFS_MODEL_VOCAB_H
#define MFS_MODEL_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

struct mfs_hf_ref;

#define MFS_VOCAB_TOKENIZER UINT64_MAX

enum mfs_vocab_source {
	MFS_VOCAB_PADDED,    /* nothing is given: the padded rows stay */
	MFS_VOCAB_ARGS,	     /* args.vocab_size */
	MFS_VOCAB_OPTION,    /* -o vocab_size=N */
	MFS_VOCAB_REF,	     /* the reference's config.json */
	MFS_VOCAB_TOKENIZED, /* -o vocab_size=tokenizer */
};

struct mfs_vocab {
	uint64_t rows, padded; /* rows shown, rows stored */
	enum mfs_vocab_source source;
};

/* What a person asks for. Zero-filled: nothing. */
struct mfs_vocab_given {
	uint64_t size;		      /* N or MFS_VOCAB_TOKENIZER; 0: neither */
	const struct mfs_hf_ref *ref; /* NULL: none */
	const char *tokenizer;	      /* directory of tokenizer.json, for MFS_VOCAB_TOKENIZER */
	bool by_tokenizer;	      /* it may say the size, where nothing else does */
};

/* The directory of a checkpoint's tokenizer: the reference, or else tokenizer/ next to the
 * checkpoint or the folder that NeMo has in context/ there. It need not exist. The caller frees
 * *ret. -ENOMEM. */
int mfs_vocab_tokenizer(const struct mfs_ckpt *ckpt, const char *ref, char **ret,
			struct mfs_error *err);

/* given NULL: the person asks for nothing. -EINVAL: more rows than are stored. Other errors: those
 * of mfs_hf_token_count_read(). */
int mfs_vocab_decide(const struct mfs_ckpt *ckpt, const struct mfs_vocab_given *given,
		     struct mfs_vocab *ret, struct mfs_error *err);

/* Rows of the true vocabulary; 0: not known. */
uint64_t mfs_vocab_true(const struct mfs_vocab *v);

#endif
