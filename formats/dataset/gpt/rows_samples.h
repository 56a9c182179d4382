/*
 * The samples of a split of a training run as rows (rows.h): row k is sample k, of S + x tokens,
 * with tokens of the datasets' type, or of the smallest that holds those of all. A blend has a
 * column "dataset_id".
 *
 * Making them reads nothing but numbers of tokens. The indices of a dataset are made when a sample
 * of it is read for the first time, by several threads.
 */
#ifndef MFS_DATASET_GPT_ROWS_SAMPLES_H
#define MFS_DATASET_GPT_ROWS_SAMPLES_H

#include "formats/dataset/rows/rows.h"
#include "formats/dataset/gpt/samples.h"

/*
 * s must outlive the rows. pad fills what a last partial sample lacks. Where a dataset has bad
 * rows, its indices are made now, and the samples that need such a row are bad, as far as the list
 * of bad rows has room for them. -ENOTSUP: the datasets' tokens have no type in common; -EINVAL:
 * pad is not a value of that type.
 */
int mfs_rows_samples(struct mfs_samples *s, const char *name, int64_t pad, struct mfs_rows **ret,
		     struct mfs_error *err);

#endif
