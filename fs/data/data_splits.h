/* The rows of a dataset as -o split= divides them. */
#ifndef MFS_FS_DATA_DATA_SPLITS_H
#define MFS_FS_DATA_DATA_SPLITS_H

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"
#include "fs/data/data.h"

struct mfs_buf;
struct mfs_data_splits; /* fs/data/data_i.h */
struct mfs_data_view;
struct mfs_dataset;

/* What split= says, by the rules of megatron=. -EINVAL: one of the two cannot be understood. */
int mfs_data_splits_parse(const struct mfs_data_options *opt, struct mfs_splits *ret,
			  struct mfs_error *err);

/* Without split= all rows are one split. d must outlive them. -EINVAL: split= or megatron= cannot
 * be understood. */
int mfs_data_splits_open(const struct mfs_dataset *d, struct mfs_data_splits *ret,
			 struct mfs_error *err);
/* Gives the splits of a view their texts, where the dataset can be shown as text. */
int mfs_data_splits_open_texts(struct mfs_dataset *d, struct mfs_data_view *v,
			       struct mfs_error *err);
/* What makes the rows of a split of the source files; split NULL: of all rows. */
void mfs_data_splits_describe(const struct mfs_data_options *opt, const char *split,
			      struct mfs_buf *ret);
void mfs_data_splits_release(struct mfs_data_splits *s);

#endif
