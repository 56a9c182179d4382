/*
 * Losses: what is computed of the logits of tokens, and what of it the log reports. The head makes
 * logits, a chunk of rows at a time, and takes their gradient (trainer/model/head.c); it knows no
 * kind. A new one is a file next to loss_cross_entropy.c, and rows for it and its flags in
 * trainer/config/loss_list.h. What it needs of each token in addition to a label are rows of
 * MFT_BATCH_ARRAYS (trainer/data/loader.h).
 */
#ifndef MFT_TRAINER_MODEL_LOSS_H
#define MFT_TRAINER_MODEL_LOSS_H

#include "trainer/config/config.h"
#include "trainer/config/loss_list.h"
#include "trainer/model/base/part.h"

/* A net's loss. */
struct mft_loss {
	const struct mft_loss_kind *kind;
	int64_t rows;	  /* of logits at a time, at most */
	uint64_t scratch; /* the kind's own, that plan() has asked for */
	const void *own;  /* the kind's, of the net's arena; plan() sets it */
};

/* A chunk: rows of logits from token number first on. */
struct mft_loss_chunk {
	int64_t first, rows, cols, ld; /* cols: of the vocabulary, that the process has */
	/* [rows, ld], io type; in training, then their gradient. NULL: look() has seen them, and no
	 * gradient is wanted */
	void *logits;
	const float *scale; /* [rows]: what a token's loss counts in the gradient */
	/* [tokens of the microbatch], of kinds that give them: they stay after the pass */
	float *log_probs;
	/* [rows] of each thing that is reported; NULL: it is not added up in this pass */
	float *terms[MFT_LOSS_TERMS];
};

struct mft_loss_kind {
	/* What the log calls its terms, sums over the tokens that count: the first one is the loss.
	 * NULL ends them. */
	const char *terms[MFT_LOSS_TERMS];
	/* True for runs of these arguments. NULL: for all. */
	bool (*takes)(const struct mft_train_config *c);
	bool gives_log_probs; /* of labels; it writes struct mft_loss_chunk.log_probs */
	/* Asks for scratch that chunks share. -ENOTSUP: an argument that has no computation here.
	 * NULL: it needs none. */
	int (*plan)(struct mft_net *net, struct mft_loss *l, struct mft_part_plan *plan,
		    struct mfs_error *err);
	/* True for a pass where a token's loss depends on other tokens: look() is called of all
	 * chunks first, then chunk() of all. NULL: there is none. */
	bool (*looks)(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_loss *l);
	void (*look)(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_loss *l, const struct mft_loss_chunk *c);
	/* Writes the terms and, in training, the gradient. */
	void (*chunk)(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_loss *l, const struct mft_loss_chunk *c);
};

/* The kind of a run. */
const struct mft_loss_kind *mft_loss_kind(const struct mft_train_config *c);
/* How many terms it has. */
unsigned mft_loss_term_count(const struct mft_loss_kind *kind);

#endif
