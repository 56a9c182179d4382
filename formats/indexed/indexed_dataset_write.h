/*
 * Writes PREFIX.bin and PREFIX.idx (indexed_dataset.h) as a stream. Memory does not grow with the
 * dataset. What has been made durable survives a crash, and both files appear whole or not at all.
 *
 * While it is written there are PREFIX.bin.part, PREFIX.lengths.part, PREFIX.documents.part, for
 * multimodal data PREFIX.modes.part, and PREFIX.journal. The journal says how much of them is
 * durable, and carries a note of the caller's (how much of its input that was). PREFIX.bin appears
 * before PREFIX.idx, so a reader that finds an .idx finds the whole dataset. One process at a time
 * writes a PREFIX.
 *
 * One thread per writer. After an error a writer can only be freed; what it saved can be resumed.
 */
#ifndef MFS_INDEXED_INDEXED_DATASET_WRITE_H
#define MFS_INDEXED_INDEXED_DATASET_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"

#define MFS_INDEXED_NOTE 1024 /* bytes of a note, with its NUL */

struct mfs_indexed_writer;

struct mfs_indexed_writer_config {
	enum mfs_dtype dtype;
	bool multimodal;
	bool resume;  /* go on with an unfinished dataset, if there is one */
	bool replace; /* a finished dataset gives way when this one is finished; without resume an
		       * unfinished one at once */
};

/* The dtype that preprocess_data.py takes for a vocabulary: uint16 below 65500, else int32. */
enum mfs_dtype mfs_indexed_dtype_for(uint64_t vocab_size);
/* The integers that a dtype holds; false for floats. */
bool mfs_indexed_limits(enum mfs_dtype dtype, int64_t *ret_low, int64_t *ret_high);

/*
 * Begins to write PREFIX.bin and PREFIX.idx, or goes on where an earlier writer has saved.
 * -EEXIST: there is a finished dataset, or a .bin that no interrupted writer has left, and it is
 * not to be replaced. -EINPROGRESS: there is an unfinished one, which is neither to be resumed nor
 * replaced. -EBUSY: another process is writing it. -EALREADY: the one to be resumed is complete;
 * what was still to be tidied up is. -EINVAL: the unfinished one has another dtype, or its parts
 * are shorter than its journal says.
 */
int mfs_indexed_writer_open(const char *prefix, const struct mfs_indexed_writer_config *config,
			    struct mfs_indexed_writer **ret, struct mfs_error *err);
/* The note of the save that this writer resumes; "" if it starts anew. */
const char *mfs_indexed_writer_note(const struct mfs_indexed_writer *w);

/* Adds tokens to the current sequence: of the dataset's dtype, or any integers. -ERANGE: an integer
 * does not fit the dtype. */
int mfs_indexed_writer_add(struct mfs_indexed_writer *w, const void *tokens, uint64_t count,
			   struct mfs_error *err);
int mfs_indexed_writer_add_tokens(struct mfs_indexed_writer *w, const int64_t *tokens,
				  uint64_t count, struct mfs_error *err);
/* Ends the current sequence, which may be empty. -ERANGE: it has 2^31 tokens or more, or there are
 * as many sequences. */
int mfs_indexed_writer_end_sequence(struct mfs_indexed_writer *w, int8_t mode,
				    struct mfs_error *err);
/* Ends the document: all sequences since the last end, or none. */
int mfs_indexed_writer_end_document(struct mfs_indexed_writer *w, struct mfs_error *err);

/* Makes everything up to the last end of a document durable, and saves note (one line of text) with
 * it. It costs an fsync of every part. What was added after that end is not lost while the writer
 * lives. */
int mfs_indexed_writer_save(struct mfs_indexed_writer *w, const char *note, struct mfs_error *err);

/* Counts up to the last end of a document. */
uint64_t mfs_indexed_writer_documents(const struct mfs_indexed_writer *w);
uint64_t mfs_indexed_writer_sequences(const struct mfs_indexed_writer *w);
uint64_t mfs_indexed_writer_tokens(const struct mfs_indexed_writer *w);

/* Writes the .idx, makes both files durable and gives them their names. The writer is freed either
 * way; after a failure the parts stay, to be resumed. -EBUSY: the last document has no end. */
int mfs_indexed_writer_finish(struct mfs_indexed_writer *w, struct mfs_error *err);
/* Gives up a dataset that is not finished: the parts stay on disk. */
void mfs_indexed_writer_free(struct mfs_indexed_writer *w);
/* Like mfs_indexed_writer_free(), and the parts are removed as far as they can be. */
void mfs_indexed_writer_discard(struct mfs_indexed_writer *w);

#endif
