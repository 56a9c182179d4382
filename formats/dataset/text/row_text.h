/*
 * Rows as text, any byte of which can be computed: what a tokenizer makes of a row's tokens
 * (named_tokens.h), laid out one after the other. Their lengths are known (text_lengths.h), so a
 * read decodes the rows that it shows and no others. Of a long row, what lies before is decoded,
 * too, unless a reader has come there just now.
 *
 * Any number of threads may read.
 */
#ifndef MFS_DATASET_TEXT_ROW_TEXT_H
#define MFS_DATASET_TEXT_ROW_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/text/text_lengths.h"

struct mfs_row_text;

/* All of these must outlive it. */
int mfs_row_text_new(const struct mfs_rows *rows, const struct mfs_named_tokens *names,
		     const struct mfs_text_lengths *lengths, struct mfs_row_text **ret,
		     struct mfs_error *err);
void mfs_row_text_free(struct mfs_row_text *t); /* NULL: nothing */

const struct mfs_text_lengths *mfs_row_text_lengths(const struct mfs_row_text *t);

/* How texts stand in a file. */
struct mfs_text_layout {
	enum mfs_text_form_kind form;
	bool has_length;	 /* 4 bytes stand before each text, little-endian */
	const char *head, *tail; /* what else stands around it; NULL: nothing */
};

/* Bytes before a row, which may be the end, as if the first row began at 0. */
int mfs_row_text_at(const struct mfs_row_text *t, const struct mfs_text_layout *l, uint64_t row,
		    uint64_t *ret, struct mfs_error *err);
/* Bytes [off, off+len) of all rows. -EIO: tokens cannot be read, or are not those that were
 * measured, or a row is shown that is known to be unreadable; -ESTALE: a source has changed. */
int mfs_row_text_read(struct mfs_row_text *t, const struct mfs_text_layout *l, uint64_t off,
		      void *buf, size_t len, struct mfs_error *err);

#endif
