/*
 * Writing PREFIX.bin and PREFIX.idx (indexed_dataset.h) as a stream: nothing that grows with the dataset is
 * kept in memory, what has been made durable survives a crash, and both files appear whole or not at all.
 *
 * While it is written there are PREFIX.bin.part, PREFIX.lengths.part, PREFIX.documents.part, for multimodal
 * data PREFIX.modes.part, and PREFIX.journal, which says how much of them is durable and carries a number of
 * the caller's (how much of its input that was). PREFIX.bin appears before PREFIX.idx: who finds an .idx
 * finds the whole dataset.
 *
 * One thread per writer. After an error a writer can only be freed; what it saved can be resumed.
 */
#ifndef MFS_INDEXED_DATASET_WRITE_H
#define MFS_INDEXED_DATASET_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/tensor.h"

struct mfs_indexed_writer;

/* The dtype that preprocess_data.py takes for a vocabulary: uint16 below 65500, else int32. */
enum mfs_dtype mfs_indexed_dtype_for(uint64_t vocab_size);

/*
 * -EEXIST if PREFIX.idx is there already, or a PREFIX.bin that no interrupted writer has left. Without resume an unfinished dataset is begun anew; with it,
 * writing goes on behind the last journal and *ret_position is the number saved in it (0 if there is none).
 * -EINVAL: the unfinished one has another dtype, or its parts are shorter than its journal says.
 */
int mfs_indexed_writer_open(const char *prefix, enum mfs_dtype dtype, bool multimodal, bool resume,
			    struct mfs_indexed_writer **ret, uint64_t *ret_position,
			    struct mfs_error *err);

/* Tokens of the sequence at hand: of the dataset's dtype, or any integers, which must fit it (-ERANGE). */
int mfs_indexed_writer_add(struct mfs_indexed_writer *w, const void *tokens, uint64_t count,
			   struct mfs_error *err);
int mfs_indexed_writer_add_tokens(struct mfs_indexed_writer *w, const int64_t *tokens,
				  uint64_t count, struct mfs_error *err);
/* Ends the sequence at hand, which may be empty. -ERANGE: 2^31 tokens or more. */
int mfs_indexed_writer_end_sequence(struct mfs_indexed_writer *w, int8_t mode,
				    struct mfs_error *err);
/* Ends the document: all sequences since the last end, or none. */
int mfs_indexed_writer_end_document(struct mfs_indexed_writer *w, struct mfs_error *err);

/* Makes everything up to the last end of a document durable and saves position with it: an fsync of every
 * part. Not inside of a document (-EBUSY). */
int mfs_indexed_writer_save(struct mfs_indexed_writer *w, uint64_t position, struct mfs_error *err);

/* So far. */
uint64_t mfs_indexed_writer_sequences(const struct mfs_indexed_writer *w);
uint64_t mfs_indexed_writer_tokens(const struct mfs_indexed_writer *w);

/* Writes the .idx, makes both files durable and gives them their names. The writer is freed either way; after
 * a failure the parts stay, to be resumed. */
int mfs_indexed_writer_finish(struct mfs_indexed_writer *w, struct mfs_error *err);
/* Lets go of a dataset that is not finished: the parts stay on disk. */
void mfs_indexed_writer_free(struct mfs_indexed_writer *w);
/* Removes what an unfinished dataset has left; what is not there is no error. */
int mfs_indexed_writer_discard(const char *prefix, struct mfs_error *err);

#endif
