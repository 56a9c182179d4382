/*
 * Rows of a dataset as text, for its views. Where it is possible, rows have a column of text in
 * those views that have columns, and the view `text` is there.
 *
 * Sizes of files follow from the texts' lengths, which a pass over all tokens tells
 * (formats/dataset/text/text_lengths.h). It is made when such a view is first opened: of small
 * datasets, and with -o text_scan of any. Lengths are kept as long as the dataset is open, and in
 * -o dataset_cache=DIR for other mounts.
 */
#ifndef MFS_FS_DATA_DATA_TEXT_H
#define MFS_FS_DATA_DATA_TEXT_H

#include <pthread.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/text/row_text.h"

struct mfs_data_view;
struct mfs_dataset;

/* What is measured without -o text_scan: a second or two of one processor. */
#define MFS_DATA_TEXT_TOKENS (32ull << 20)
#define MFS_DATA_TEXT_ROWS   (4ull << 20)

/* Lengths that views of a dataset share. */
struct mfs_data_texts {
	pthread_mutex_t lock;
	struct {
		uint64_t key;
		struct mfs_text_lengths *lengths;
	} * list;
	size_t count;
};
void mfs_data_texts_release(struct mfs_data_texts *texts);

/* 0 if rows can be shown as text; -ENODATA, -ENOTSUP, -EINVAL: why not. Nothing of them is read. */
int mfs_data_text_possible(const struct mfs_dataset *d, const struct mfs_rows *rows,
			   struct mfs_error *err);
/* The text of rows of a view, which keeps it, where that is possible. spec: what makes these rows
 * of the source files, as struct mfs_data_hf_dir has it. Fails as measuring does. */
int mfs_data_text_open(struct mfs_dataset *d, struct mfs_data_view *v, const struct mfs_rows *rows,
		       const char *spec, struct mfs_row_text **ret, struct mfs_error *err);

/* That of the tokenizer, where text is possible. */
uint64_t mfs_data_text_hash(const struct mfs_dataset *d);

#endif
