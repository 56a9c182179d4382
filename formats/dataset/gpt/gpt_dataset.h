/*
 * The samples of Megatron's GPTDataset, in its order (megatron/core/datasets/gpt_dataset.py,
 * helpers.cpp: build_sample_idx).
 *
 * The sequences of a split, which Megatron calls documents here and so does this folder, are
 * repeated for as many epochs as the samples asked for need, shuffled, and laid end to end: the
 * document index. Sample k of the stream is its tokens [k S, k S + S + x), with x = 1 for the token
 * that only labels need. The shuffle index says which sample of the stream is the i-th of the
 * dataset.
 *
 * Megatron stores the place where every sample begins, 8 bytes each. Here a prefix sum every
 * MFS_GPT_STRIDE documents finds it: what is kept is 4 bytes a document and epoch for the document
 * index and 4 a sample for the shuffle index (8 from 2^32-2 samples on). While they are made it is
 * 8 bytes a document and epoch, and 4 a document.
 *
 * Sizes are known at once. The indices are made by build, or by the first function that needs them;
 * after that all functions may be called from any number of threads.
 */
#ifndef MFS_DATASET_GPT_GPT_DATASET_H
#define MFS_DATASET_GPT_GPT_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/gpt/gpt_rules.h"

#define MFS_GPT_STRIDE	  32
#define MFS_GPT_ONE_EPOCH UINT64_MAX /* Megatron's num_samples=None */

struct mfs_gpt_config {
	uint32_t seq_length; /* S, tokens */
	uint32_t seed;	     /* --seed; Megatron's default is 1234 */
	uint64_t samples;    /* n, wanted at least; or MFS_GPT_ONE_EPOCH */
	bool no_extra_token; /* x = 0: add_extra_token_to_sequence=False */
	/* drop_last_partial_validation_sequence=False: a short sample at the end, padded; for the
	 * validation split alone */
	bool keep_last_partial;
	bool separate_last_epoch; /* gpt_rules.h; true in every version since 2020 */
};

/* Follows from the number of tokens alone. */
struct mfs_gpt_sizes {
	uint64_t epochs;  /* E */
	uint64_t tokens;  /* of all epochs, E T */
	uint64_t samples; /* of the dataset: all that fit, possibly more than were asked for */
	uint64_t samples_before; /* of the epochs before a separate last one; else = samples */
	bool separate;		 /* the last epoch is shuffled by itself */
};
/* tokens: T, of one epoch. -EINVAL: T is 0 (Megatron never returns), S is 0, or counts beyond
 * 2^63. */
int mfs_gpt_sizes(uint64_t tokens, const struct mfs_gpt_config *config, struct mfs_gpt_sizes *ret,
		  struct mfs_error *err);

struct mfs_gpt_dataset;

/* The dataset of the rows [first, end) of data, which are Megatron's documents. data must outlive
 * it. Two starts of rows are read. -ENODATA: there is no row, no token, or no sample though some
 * were asked for. -EINVAL: data has more than 2^31 - 1 rows. */
int mfs_gpt_dataset_new(const struct mfs_rows *data, uint64_t first, uint64_t end,
			const struct mfs_gpt_config *config, struct mfs_gpt_dataset **ret,
			struct mfs_error *err);
void mfs_gpt_dataset_free(struct mfs_gpt_dataset *g);

const struct mfs_gpt_sizes *mfs_gpt_dataset_sizes(const struct mfs_gpt_dataset *g);
const struct mfs_gpt_config *mfs_gpt_dataset_config(const struct mfs_gpt_dataset *g);
const struct mfs_rows *mfs_gpt_dataset_rows(const struct mfs_gpt_dataset *g);
/* Length of the document index. */
uint64_t mfs_gpt_dataset_documents(const struct mfs_gpt_dataset *g);
/* Memory of the indices once they are built. */
uint64_t mfs_gpt_dataset_bytes(const struct mfs_gpt_dataset *g);

/* Makes the indices once, with so many threads at most (1: the caller's alone); a second call waits
 * for the first. One thread draws the random numbers in order, and all share the rest. What is
 * wrong with the data (-EINVAL) is found once and reported by every call. */
bool mfs_gpt_dataset_built(const struct mfs_gpt_dataset *g);
int mfs_gpt_dataset_build(struct mfs_gpt_dataset *g, unsigned threads, struct mfs_error *err);
/* Like mfs_gpt_dataset_build(), for many datasets, several at a time, with so many threads in all.
 * An error is that of the dataset with the lowest number. */
int mfs_gpt_dataset_build_all(struct mfs_gpt_dataset *const *g, size_t count, unsigned threads,
			      struct mfs_error *err);

/* Ranges of Megatron's three arrays (-EINVAL: not inside). The sample index has samples + 1 rows of
 * (position in the document index, token offset). */
int mfs_gpt_dataset_document_index(struct mfs_gpt_dataset *g, uint64_t first, uint64_t count,
				   int32_t *ret, struct mfs_error *err);
int mfs_gpt_dataset_shuffle_index(struct mfs_gpt_dataset *g, uint64_t first, uint64_t count,
				  uint64_t *ret, struct mfs_error *err);
int mfs_gpt_dataset_sample_index(struct mfs_gpt_dataset *g, uint64_t first, uint64_t count,
				 int64_t (*ret)[2], struct mfs_error *err);
/* Bytes of one number in Megatron's files: 4 or 8 (helpers.py: build_sample_idx; gpt_dataset.py:
 * _build_shuffle_index). */
unsigned mfs_gpt_dataset_sample_index_width(const struct mfs_gpt_dataset *g);
unsigned mfs_gpt_dataset_shuffle_index_width(const struct mfs_gpt_dataset *g);

/* A piece of a sample: tokens [from, from+count) of a row of the data. */
struct mfs_gpt_piece {
	uint64_t sequence;
	uint32_t from, count;
};
/* Called for each piece of at least one token, in order. What is not 0 ends the walk and is
 * returned. */
typedef int mfs_gpt_piece_fn(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *err);
/* The pieces of sample i of the dataset (shuffled order) or of sample k of the stream. What is
 * missing to S + x, only ever in a last partial sample, is *ret_padding. */
int mfs_gpt_dataset_pieces(struct mfs_gpt_dataset *g, uint64_t i, mfs_gpt_piece_fn *fn, void *arg,
			   uint32_t *ret_padding, struct mfs_error *err);
int mfs_gpt_stream_pieces(struct mfs_gpt_dataset *g, uint64_t k, mfs_gpt_piece_fn *fn, void *arg,
			  uint32_t *ret_padding, struct mfs_error *err);
/* Like mfs_gpt_dataset_pieces(), for tokens [from, from+count) of sample i. */
int mfs_gpt_dataset_pieces_in(struct mfs_gpt_dataset *g, uint64_t i, uint32_t from, uint32_t count,
			      mfs_gpt_piece_fn *fn, void *arg, uint32_t *ret_padding,
			      struct mfs_error *err);

#endif
