/* Inside of the GPT dataset. */
#ifndef MFS_DATASET_GPT_GPT_DATASET_I_H
#define MFS_DATASET_GPT_GPT_DATASET_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "formats/dataset/gpt/gpt_dataset.h"

struct mfs_gpt_dataset {
	const struct mfs_rows *data;
	uint64_t first, end; /* rows of data */
	struct mfs_gpt_config config;
	struct mfs_gpt_sizes sizes;
	uint64_t documents; /* length of the document index */
	unsigned extra;	    /* x */

	pthread_mutex_t building;
	atomic_bool built;
	/* Written under the lock, read by anybody once built is set. */
	uint32_t *document_index;
	uint64_t *sums; /* tokens before document i * MFS_GPT_STRIDE; one more for the end */
	void *shuffle_index;
	struct mfs_error failure; /* under the lock; code 0: none */
};

static inline uint64_t mfs_gpt_sum_count(const struct mfs_gpt_dataset *g)
{
	return (g->documents + MFS_GPT_STRIDE - 1) / MFS_GPT_STRIDE + 1;
}

/* Fills the three arrays. The caller holds the lock, and drops the indices on failure. */
int mfs_gpt_build_indices(struct mfs_gpt_dataset *g, unsigned threads, struct mfs_error *err);
void mfs_gpt_drop_indices(struct mfs_gpt_dataset *g);

/* Where a token of the stream is, and how to go on from there. Lengths are read ahead, some at a
 * time. */
struct mfs_gpt_walk {
	struct mfs_gpt_dataset *g;
	uint64_t document; /* position in the document index */
	uint64_t offset;   /* of the token in it */
	uint64_t batch;	   /* position of lengths[0] */
	int32_t lengths[MFS_GPT_STRIDE];
};
/* Goes to token t < sizes.tokens of the stream. Empty documents are skipped. */
int mfs_gpt_seek(struct mfs_gpt_walk *w, struct mfs_gpt_dataset *g, uint64_t t,
		 struct mfs_error *err);
/* Goes on by so many tokens. There must be a token. */
int mfs_gpt_advance(struct mfs_gpt_walk *w, uint64_t tokens, struct mfs_error *err);

#endif
