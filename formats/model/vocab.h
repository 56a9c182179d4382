/*
 * How many rows of the embedding are the vocabulary. Megatron pads it and need not record the true
 * size, so a person may say it. This is the one place that decides, for views of every kind:
 *
 * 1. -o vocab_size=N, or vocab_size=tokenizer: the largest id of tokenizer.json plus 1;
 * 2. vocab_size of the reference's config.json (-o ref=DIR);
 * 3. vocab_size of the run's arguments, if the run used it (mfs_args_true_vocab);
 * 4. nobody says: all rows are shown.
 */
#ifndef MFS_MODEL_VOCAB_H
#define MFS_MODEL_VOCAB_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

struct mfs_hf_ref;

#define MFS_VOCAB_TOKENIZER UINT64_MAX

enum mfs_vocab_source {
	MFS_VOCAB_PADDED,    /* nobody says: the padded rows stay */
	MFS_VOCAB_ARGS,	     /* args.vocab_size */
	MFS_VOCAB_OPTION,    /* -o vocab_size=N */
	MFS_VOCAB_REF,	     /* the reference's config.json */
	MFS_VOCAB_TOKENIZED, /* -o vocab_size=tokenizer */
};

struct mfs_vocab {
	uint64_t rows, padded; /* shown, and stored */
	enum mfs_vocab_source source;
};

/* What a person says. Zero-filled: nothing. */
struct mfs_vocab_said {
	uint64_t size;		      /* N or MFS_VOCAB_TOKENIZER; 0: not said */
	const struct mfs_hf_ref *ref; /* NULL: none */
	const char *tokenizer;	      /* its directory, of MFS_VOCAB_TOKENIZER alone */
};

/* The directory of the tokenizer that goes with a checkpoint: the reference's, or tokenizer/ beside
 * it. *ret is freed by the caller. -ENOMEM. */
int mfs_vocab_tokenizer(const struct mfs_ckpt *ckpt, const char *ref, char **ret,
			struct mfs_error *err);

/* said: NULL: nothing. -EINVAL: more rows than are stored; what mfs_hf_token_count_read() fails
 * with. */
int mfs_vocab_decide(const struct mfs_ckpt *ckpt, const struct mfs_vocab_said *said,
		     struct mfs_vocab *ret, struct mfs_error *err);

/* The true rows; 0: nobody says. */
uint64_t mfs_vocab_true(const struct mfs_vocab *v);

#endif
