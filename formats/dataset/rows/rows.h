/*
 * Rows of tokens: what every view of a dataset shows, whatever it is made of. A row is a sequence of an
 * indexed dataset (rows_indexed.h), a row of an HF dataset (hf_dataset.h), or a sample of a training run
 * (rows_samples.h).
 *
 * Rows lie one behind the other in one stream of tokens, which need not exist in any file: row i is its
 * tokens [start(i), start(i+1)). A format that lays rows out is arithmetic on starts, and its bytes are
 * tokens, or a run of a source file where extent() knows one.
 *
 * An implementation embeds struct mfs_rows as its first member and fills its fields before anybody sees it;
 * after that nothing changes, and all functions may be called from any number of threads.
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
	/* Tokens before each of the rows [first, first+count), of which the last may be number `rows`: the
	 * end. Inside of the range; never less than the one before, never above tokens. */
	int (*starts)(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		      struct mfs_error *err);
	/* The row that holds token t < tokens. NULL: found by asking for starts. */
	int (*find)(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err);
	/* Tokens [first, first+count), inside of the stream, as dtype. -EIO: one of them cannot be had;
	 * -ESTALE: a file has changed. */
	int (*read)(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		    struct mfs_error *err);
	/* The longest run of a file that holds tokens from t on, of at least one and at most max of them, as they
	 * are read: ret->len is a multiple of the token's size. -ENODATA without a word: none holds them, so
	 * read() alone can tell. NULL: never. */
	int (*extent)(const struct mfs_rows *r, uint64_t t, uint64_t max,
		      struct mfs_bin_extent *ret, struct mfs_error *err);
	/* Tokens before any rows by their numbers, all below rows. NULL: found by asking for starts. */
	int (*gather_starts)(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			     uint64_t *ret, struct mfs_error *err);
	/* Lengths of the rows [first, first+count), inside of the range. NULL: found by asking for starts. */
	int (*lengths)(const struct mfs_rows *r, uint64_t first, uint64_t count, int32_t *ret,
		       struct mfs_error *err);
	/* Lengths of any rows by their numbers, all below rows. NULL: found by asking for starts. */
	int (*gather_lengths)(const struct mfs_rows *r, const int32_t *rows, uint64_t count,
			      int32_t *ret, struct mfs_error *err);
	/* Values of a column, by its number, of the rows [first, first+count). NULL if there are no columns. */
	int (*column)(const struct mfs_rows *r, size_t column, uint64_t first, uint64_t count,
		      void *ret, struct mfs_error *err);
	/* Lets go of what reading has mapped (never needed for correctness); may be NULL. */
	void (*drop)(const struct mfs_rows *r);
	void (*free)(struct mfs_rows *r);
};

/* One value per row beside its tokens: "mode" of multimodal data, "dataset_id" of a blend. */
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
	uint64_t row_length;   /* all rows have so many tokens; 0: they have what they have */
	/* Tokens are compared with the vocabulary as they are read, and one outside of [0, vocab_size) is -EIO. No file
	 * holds tokens that were looked at, so there are no extents then. 0: nothing is compared. */
	uint64_t vocab_size;
	/* Rows that are known not to be readable: outside of a .bin that ends early, or of the vocabulary. Views keep
	 * them apart from their neighbours, so that an EIO is theirs alone. */
	struct mfs_row_ranges bad;
	const struct mfs_rows_column *columns;
	size_t column_count;
	struct mfs_fileset *const *sets; /* the files that they are made of */
	size_t set_count;
};

/* The functions of the vtable behind checks of their ranges (-EINVAL). */
int mfs_rows_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		    struct mfs_error *err);
/* One start; i <= rows. */
int mfs_rows_start(const struct mfs_rows *r, uint64_t i, uint64_t *ret, struct mfs_error *err);
int mfs_rows_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err);
int mfs_rows_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		  struct mfs_error *err);
/* The same, widened to int64. -ENOTSUP if they are no integers. */
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

/* The first row at or behind `from` that begins at or behind token t (t <= tokens): binary search, fewest
 * probes where rows are of about one length. rows if there is none. */
int mfs_rows_lower_bound(const struct mfs_rows *r, uint64_t from, uint64_t t, uint64_t *ret,
			 struct mfs_error *err);

/* Rows in a file that has so many bytes for each row and for each token. */
struct mfs_rows_scale {
	uint64_t per_row, per_token;
};
/* The last row that begins at or before byte `at` of such a file, which has a row. */
int mfs_rows_find_scaled(const struct mfs_rows *r, const struct mfs_rows_scale *scale, uint64_t at,
			 uint64_t *ret, struct mfs_error *err);

/* -ESTALE if a file is no longer the one that was opened. */
int mfs_rows_check(const struct mfs_rows *r, struct mfs_error *err);

/* The two that follow are for who has made the rows, before anybody else has them. */

/* Sets vocab_size. -ENOTSUP: tokens are no integers; -EINVAL: it is 0. */
int mfs_rows_set_vocab(struct mfs_rows *r, uint64_t vocab_size, struct mfs_error *err);
/* Reads all tokens, with so many threads (0: as processors), and adds the rows that reading is -EIO of to `bad`.
 * -ENOTSUP: more ranges of such rows than MFS_ROW_RANGES_MAX; what else reading fails with. Nothing is changed then. */
int mfs_rows_find_bad(struct mfs_rows *r, unsigned threads, struct mfs_error *err);

/* Rows [first, end) of other rows, which must outlive them. */
int mfs_rows_slice(const struct mfs_rows *of, uint64_t first, uint64_t end, struct mfs_rows **ret,
		   struct mfs_error *err);

#endif
