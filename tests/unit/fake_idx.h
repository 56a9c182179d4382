/* An .idx in memory, made field by field, right or wrong. */
#ifndef MFS_TESTS_FAKE_IDX_H
#define MFS_TESTS_FAKE_IDX_H

#include <stdlib.h>
#include <string.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/indexed/indexed_dataset.h"

struct fake_idx {
	uint64_t sequences, entries;
	uint8_t code;
	const int32_t *lengths;
	const int64_t *pointers;  /* NULL: back to back */
	const int64_t *documents; /* NULL: one per sequence */
	const int8_t *modes;	  /* NULL: none */
};

static inline void fake_put64(struct mfs_buf *b, uint64_t v)
{
	uint8_t bytes[8];

	mfs_put_le64(bytes, v);
	mfs_buf_add(b, bytes, sizeof(bytes));
}

/* Returns the bytes that the lengths take in the .bin. */
static inline uint64_t fake_idx(struct mfs_buf *b, const struct fake_idx *f)
{
	const unsigned size = mfs_dtype_size(mfs_idx_dtype(f->code));
	uint64_t at = 0;

	mfs_buf_add(b, "MMIDIDX\0", 9);
	fake_put64(b, 1);
	mfs_buf_add(b, &f->code, 1);
	fake_put64(b, f->sequences);
	fake_put64(b, f->documents ? f->entries : f->sequences + 1);
	mfs_buf_add(b, f->lengths, 4 * f->sequences);
	for (uint64_t i = 0; i < f->sequences; i++) {
		fake_put64(b, f->pointers ? (uint64_t)f->pointers[i] : at);
		at += (uint64_t)f->lengths[i] * size;
	}
	for (uint64_t i = 0; i < (f->documents ? f->entries : f->sequences + 1); i++)
		fake_put64(b, f->documents ? (uint64_t)f->documents[i] : i);
	if (f->modes)
		mfs_buf_add(b, f->modes, f->sequences);
	return at;
}

#endif
