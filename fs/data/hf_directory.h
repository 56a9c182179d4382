/*
 * Directories for datasets.load_from_disk, of any rows: dataset_info.json, state.json and
 * data-0000i-of-0000n.arrow (datasets/arrow_dataset.py: save_to_disk, load_from_disk;
 * dataset_dict.py).
 */
#ifndef MFS_FS_DATA_HF_DIRECTORY_H
#define MFS_FS_DATA_HF_DIRECTORY_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/dataset/files/arrow_image.h"
#include "formats/dataset/rows/rows.h"
#include "fs/view/view.h"

struct mfs_buf;
struct mfs_data_options;

struct mfs_data_hf_dir {
	const char *dir;	     /* within the view; "": the view itself */
	const char *split;	     /* the rows' name in state.json: "train"; NULL: none */
	const struct mfs_rows *rows; /* they must outlive the view's files */
	/* What makes these rows of their source files, in words: "split=99,1,0 train". `datasets`
	 * finds what map() left by a hash of it and of the files' names, sizes and times. */
	const char *spec;
	struct mfs_arrow_config arrow;
};

/* Adds to spec the options that make other rows of the same HuggingFace dataset. */
void mfs_data_add_options(const struct mfs_data_options *opt, struct mfs_buf *spec);

/* Adds what tells rows from others: their source files as they are now, what is made of them, and
 * how. */
void mfs_data_describe_rows(const struct mfs_rows *r, const char *spec, struct mfs_buf *ret);

/* Adds the directory's files. No rows are one file with a schema alone. A few starts of rows are
 * read. */
int mfs_data_add_hf_dir(struct mfs_view *v, const struct mfs_data_hf_dir *d, struct mfs_error *err);
/* dataset_dict.json, which makes a DatasetDict of the directories named. */
int mfs_data_add_hf_dict(struct mfs_view *v, const char *const *splits, size_t count,
			 struct mfs_error *err);

#endif
