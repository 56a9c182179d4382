/*
 * Rows of tokens: every view of a dataset shows them, whatever the dataset is made of.
 *
 * Three sources make rows:
 *   rows_indexed.h    a row is a sequence of an indexed dataset (.idx and .bin)
 *   hf_dataset.h      a row is a row of an HF dataset (arrow_rows.h reads the files)
 *   rows_samples.h    a row is a sample of a training run (formats/dataset/gpt)
 * Others make rows of rows: some of them (mfs_rows_slice), some of them in another order
 * (rows_permuted.h), or with an end of document after each (rows_eod.h).
 *
 * Rows follow each other in one stream of tokens, and row i is the tokens [start(i), start(i+1)) of
 * it. The stream need not exist in any file. A format that lays rows out (formats/dataset/files) is
 * arithmetic on starts. Its bytes are tokens, or a range of a source file where extent() knows one.
 *
 * An implementation embeds struct mfs_rows as its first member and fills its fields before anybody
 * sees it. Nothing changes after that, and any number of threads may call all functions.
 */
#ifndef MFS_DATASET_ROWS_ROWS_H
#define MFS_DATASET_ROWS_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "formats/dataset/rows/row_ranges.h"
#include "formats/indexed/indexed_dataset.h"

struct mfs_fileset;
struct mfs_rows;

struct mfs_rows_ops {
	/* Ranges are checked before an operation is called. */

	/* Tokens before each of the rows [first, first+count); the last one may be number `rows`,
	 * the end. A start is never less than the one before it, and never more than `tokens`. */
	int (*starts)(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		      struct mfs_error *err);
	/* The row that holds token t. NULL: starts are searched. */
	int (*find)(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err);
	/* Tokens [first, first+count) of the stream, as dtype. -EIO: one of them cannot be read;
	 * -ESTALE: a file has changed. */
	int (*read)(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		    struct mfs_error *err);
	/* The longest range of a file that holds tokens from t on as read() would give them: at
	 * least one token, at most max, and whole ones. -ENODATA without a sentence: no file holds
	 * them, and read() alone can tell. NULL: no file holds any. */
	int (*extent)(const struct mfs_rows *r, uint64_t t, uint64_t max,
		      struct mfs_bin_extent *ret, struct mfs_error *err);
	/* Tokens before rows that are given by their numbers. NULL: starts() is asked for each. */
	int (*gather_starts)(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			     uint64_t *ret, struct mfs_error *err);
	/* Lengths of the rows [first, first+count). NULL: starts() is asked. */
	int (*lengths)(const struct mfs_rows *r, uint64_t first, uint64_t count, int32_t *ret,
		       struct mfs_error *err);
	/* Lengths of rows that are given by their numbers. NULL: starts() is asked for each. */
	int (*gather_lengths)(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			      int32_t *ret, struct mfs_error *err);
	/* Values of a column, which is given by its number, of the rows [first, first+count). NULL:
	 * there are none. */
	int (*column)(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
		      void *ret, struct mfs_error *err);
	/* Lets go of what reading has mapped, to save memory. May be NULL. */
	void (*drop)(const struct mfs_rows *r);
	void (*free)(struct mfs_rows *r);
};

/* One value per row in addition to its tokens: "mode" of multimodal data, "dataset_id" of a
 * blend. */
struct mfs_rows_column {
	const char *name;
	enum mfs_dtype dtype;
};

struct mfs_rows {
	const struct mfs_rows_ops *ops;
	const char *name; /* for messages: a prefix, a directory */
	enum mfs_dtype dtype;
	unsigned token_size;   /* bytes */
	uint64_t rows, tokens; /* tokens of all rows together */
	uint64_t row_length;   /* tokens of each row; 0: rows are of several lengths */
	/* Not 0: tokens are compared with the vocabulary as they are read, and one outside of [0,
	 * vocab_size) is -EIO. There are no extents then, as no file holds tokens that were
	 * compared. */
	uint64_t vocab_size;
	/* Rows that are known to be unreadable, because their .bin ends early or a token is
	 * outside of the vocabulary. Views keep them apart from their neighbours, which can then
	 * be read. */
	struct mfs_row_ranges bad;
	const struct mfs_rows_column *columns;
	size_t column_count;
	struct mfs_fileset *const *sets; /* the files that they are made of */
	size_t set_count;
};

/* The operations above, with their ranges checked (-EINVAL). */
int mfs_rows_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		    struct mfs_error *err);
/* The start of row i <= rows. */
int mfs_rows_start(const struct mfs_rows *r, uint64_t i, uint64_t *ret, struct mfs_error *err);
int mfs_rows_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err);
int mfs_rows_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		  struct mfs_error *err);
/* Like mfs_rows_read(), widened to int64. -ENOTSUP: they are not integers. */
int mfs_rows_read_int64(const struct mfs_rows *r, uint64_t first, uint64_t count, int64_t *ret,
			struct mfs_error *err);
int mfs_rows_extent(const struct mfs_rows *r, uint64_t t, uint64_t max, struct mfs_bin_extent *ret,
		    struct mfs_error *err);
int mfs_rows_gather_starts(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			   uint64_t *ret, struct mfs_error *err);
int mfs_rows_lengths(const struct mfs_rows *r, uint64_t first, uint64_t count, int32_t *ret,
		     struct mfs_error *err);
int mfs_rows_gather_lengths(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			    int32_t *ret, struct mfs_error *err);
int mfs_rows_column(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
		    void *ret, struct mfs_error *err);
void mfs_rows_drop(const struct mfs_rows *r);
void mfs_rows_free(struct mfs_rows *r);

/* Finds the first row, from `from` on, that begins at token t <= tokens or after it; `rows` if
 * there is none. The search takes the fewest probes where rows are of about one length. */
int mfs_rows_lower_bound(const struct mfs_rows *r, uint64_t from, uint64_t t, uint64_t *ret,
			 struct mfs_error *err);

/* The bytes that a file has for each row and for each token. */
struct mfs_rows_scale {
	uint64_t per_row, per_token;
};
/* The last row that begins at byte `at` of such a file or before it. There must be a row. */
int mfs_rows_find_scaled(const struct mfs_rows *r, const struct mfs_rows_scale *scale, uint64_t at,
			 uint64_t *ret, struct mfs_error *err);

/* -ESTALE if a file is no longer the one that was opened. */
int mfs_rows_check(const struct mfs_rows *r, struct mfs_error *err);

/* Who has made the rows may call these two before anybody else has them. */

/* Sets vocab_size. -ENOTSUP: tokens are no integers; -EINVAL: it is 0. */
int mfs_rows_set_vocab(struct mfs_rows *r, uint64_t vocab_size, struct mfs_error *err);
/* Reads all tokens, with so many threads (0: one a processor), and adds the rows that cannot be
 * read (-EIO) to `bad`. -ENOTSUP: there are more ranges of such rows than MFS_ROW_RANGES_MAX. On
 * any failure nothing is changed. */
int mfs_rows_find_bad(struct mfs_rows *r, unsigned threads, struct mfs_error *err);

/* Rows [first, end) of other rows, which must outlive them. */
int mfs_rows_slice(const struct mfs_rows *of, uint64_t first, uint64_t end, struct mfs_rows **ret,
		   struct mfs_error *err);

#endif
