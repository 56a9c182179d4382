/* Inside of a column's rows. */
#ifndef MFS_DATASET_ROWS_ARROW_ROWS_I_H
#define MFS_DATASET_ROWS_ARROW_ROWS_I_H

#include "formats/base/arena.h"
#include "formats/base/tensor.h"
#include "formats/dataset/rows/arrow_rows.h"
#include "formats/io/source.h"

/* Rows whose tokens lie back to back in their file: 48 bytes, of which there may be millions. */
struct mfs_arrow_extent {
	uint64_t row, token; /* rows and tokens of its file before it */
	uint64_t offsets;    /* of its first row's list offset; 0: its rows are of one length */
	uint64_t values;     /* of its first token */
	uint64_t base;	     /* its first row's list offset */
	uint32_t length;     /* tokens of each row, if they are of one length */
};

struct mfs_arrow_shard {
	struct mfs_source src;
	uint32_t file;	     /* in the set */
	uint64_t row, token; /* before it, of all rows */
	bool wide;	     /* list offsets are int64 */
	/* There is one more extent than extent_count: where they end. */
	struct mfs_arrow_extent *extents;
	size_t extent_count;
};

/* What all files have in common: the column. */
struct mfs_arrow_token_column {
	const char *name; /* as it was named, or chosen in the first file */
	bool integers;
	enum mfs_dtype dtype; /* in the files */
};

struct mfs_arrow_rows {
	struct mfs_rows rows;
	struct mfs_fileset *set; /* NULL: in memory */
	struct mfs_arrow_shard *shards;
	uint32_t shard_count; /* there is one more shard: where the rows end */
	bool narrowed;	      /* unsigned in the files; a top bit is no token */
	struct mfs_arena arena;
};

/* What can be done with them, in arrow_rows.c; and how they end, in arrow_rows_open.c. */
extern const struct mfs_rows_ops mfs_arrow_rows_ops;
void mfs_arrow_rows_free(struct mfs_rows *rows);

/* Chooses the column in a shard's schema; names it, in memory that the caller frees. */
int mfs_arrow_choose_column(const struct mfs_arrow_shard *p, const struct mfs_source *src,
			    const struct mfs_arrow_rows_config *config, char **ret,
			    struct mfs_error *err);
/* Fills the extents of a shard. For the first shard column->dtype is MFS_DTYPE_NONE before the
 * call, and the file's type after it; every other shard must have that type. src: how the shard's
 * bytes are read during the walk. */
int mfs_arrow_walk(struct mfs_arrow_shard *p, const struct mfs_source *src,
		   struct mfs_arrow_token_column *column, struct mfs_error *err);

#endif
