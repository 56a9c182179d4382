/*
 * The tokenizer of a mount's datasets (-o tokenizer=DIR): opened once, when the first of them asks
 * for it, and then shared.
 */
#ifndef MFS_FS_DATA_DATA_TOKENIZER_H
#define MFS_FS_DATA_DATA_TOKENIZER_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "formats/dataset/text/named_tokens.h"

struct mfs_data_tokenizer;
struct mfs_fileset;

/* dir: as it was given; NULL: there is none. */
int mfs_data_tokenizer_new(const char *dir, struct mfs_data_tokenizer **ret, struct mfs_error *err);
void mfs_data_tokenizer_free(struct mfs_data_tokenizer *t); /* NULL: nothing */

bool mfs_data_tokenizer_is_given(const struct mfs_data_tokenizer *t);
/* Any thread may call this. -ENODATA: no tokenizer was given; else as mfs_tokenizer_open() fails,
 * each time in the same way. */
int mfs_data_tokenizer_names(struct mfs_data_tokenizer *t, const struct mfs_named_tokens **ret,
			     struct mfs_error *err);
/* The files that it was read from, once names are there. */
struct mfs_fileset *mfs_data_tokenizer_files(struct mfs_data_tokenizer *t);

#endif
