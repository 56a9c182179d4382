/* Rows in memory, of lengths and tokens that a test chooses, and what every view of rows is
 * asked. */
#ifndef MFS_TESTS_FAKE_ROWS_H
#define MFS_TESTS_FAKE_ROWS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/rows/rows.h"
#include "formats/plan/vfile.h"
#include "tests/unit/unit.h"

#define FAKE_COLUMNS 3

struct fake_rows {
	struct mfs_rows rows;
	uint64_t *starts; /* rows + 1 */
	uint8_t *tokens;  /* as dtype; NULL: none can be read */
	struct mfs_rows_column columns[FAKE_COLUMNS];
	uint8_t *values[FAKE_COLUMNS];
};

static inline struct fake_rows *fake_rows_of(const struct mfs_rows *r)
{
	return (struct fake_rows *)(uintptr_t)r;
}

static inline int fake_starts(const struct mfs_rows *r, uint64_t first, uint64_t count,
			      uint64_t *ret, struct mfs_error *err)
{
	(void)err;
	memcpy(ret, fake_rows_of(r)->starts + first, count * sizeof(*ret));
	return 0;
}

static inline int fake_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
			    struct mfs_error *err)
{
	const struct fake_rows *f = fake_rows_of(r);

	/* What an implementation may count on. */
	ck_assert_uint_eq((uintptr_t)ret % r->token_size, 0);
	for (size_t i = 0; i < r->bad.count; i++)
		if (first < f->starts[r->bad.list[i].end] &&
		    first + count > f->starts[r->bad.list[i].first])
			return mfs_fail(err, -EIO, "tokens of a bad row");
	if (!f->tokens)
		return mfs_fail(err, -EIO, "no token can be read");
	memcpy(ret, f->tokens + first * r->token_size, count * r->token_size);
	return 0;
}

static inline int fake_column(const struct mfs_rows *r, size_t column, uint64_t first,
			      uint64_t count, void *ret, struct mfs_error *err)
{
	const unsigned size = mfs_dtype_size(r->columns[column].dtype);

	(void)err;
	memcpy(ret, fake_rows_of(r)->values[column] + first * size, count * size);
	return 0;
}

static inline void fake_free(struct mfs_rows *r)
{
	struct fake_rows *f = fake_rows_of(r);

	for (size_t i = 0; i < FAKE_COLUMNS; i++)
		free(f->values[i]);
	free(f->starts);
	free(f->tokens);
	free(f);
}

static const struct mfs_rows_ops fake_rows_ops = {
	.starts = fake_starts,
	.read = fake_read,
	.column = fake_column,
	.free = fake_free,
};

/* Bytes that a test can tell from others, seeded. */
static inline uint8_t *fake_bytes(size_t len, unsigned seed)
{
	uint8_t *bytes = malloc(len + 1);
	uint32_t state = seed * 2654435761u + 1;

	for (size_t i = 0; i < len; i++) {
		state = state * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(state >> 24);
	}
	return bytes;
}

/* Any tokens. Integers of 64 bits have some digits less than they could. */
static inline struct fake_rows *fake_rows_new(enum mfs_dtype dtype, const uint64_t *lengths,
					      uint64_t rows)
{
	struct fake_rows *f = calloc(1, sizeof(*f));

	f->rows = (struct mfs_rows){.ops = &fake_rows_ops,
				    .name = "fake",
				    .dtype = dtype,
				    .token_size = mfs_dtype_size(dtype),
				    .rows = rows,
				    .columns = f->columns};
	f->starts = calloc(rows + 1, sizeof(*f->starts));
	for (uint64_t i = 0; i < rows; i++)
		f->starts[i + 1] = f->starts[i] + lengths[i];
	f->rows.tokens = f->starts[rows];
	f->tokens = fake_bytes(f->rows.tokens * f->rows.token_size, (unsigned)rows);
	return f;
}

static inline void fake_add_column(struct fake_rows *f, const char *name, enum mfs_dtype dtype)
{
	const size_t i = f->rows.column_count++;

	f->columns[i] = (struct mfs_rows_column){name, dtype};
	f->values[i] = fake_bytes(f->rows.rows * mfs_dtype_size(dtype), 77 + (unsigned)i);
}

/* The whole of a file in one read; to be freed. */
static inline uint8_t *fake_slurp(struct mfs_vfile *f, struct mfs_error *err)
{
	uint8_t *bytes = malloc(mfs_vfile_size(f) + 1);
	size_t len;

	unit_ok(mfs_vfile_pread(f, 0, bytes, mfs_vfile_size(f), &len, err), err);
	ck_assert_uint_eq(len, mfs_vfile_size(f));
	return bytes;
}

/* Reads anywhere of any length give the bytes of that place. */
static inline void fake_check_preads(struct mfs_vfile *f, const uint8_t *want, unsigned count,
				     struct mfs_error *err)
{
	const uint64_t size = mfs_vfile_size(f);
	uint8_t *got = malloc(size + 1);
	size_t len;

	for (unsigned i = 0; i < count && size; i++) {
		const uint64_t off = ((uint64_t)rand() << 20 ^ (uint64_t)rand()) % size;
		const uint64_t most = i % 8 ? 1 + (uint64_t)rand() % 100 : size;
		const uint64_t n = most < size - off ? most : size - off;

		mfs_vfile_willneed(f, off, n);
		unit_ok(mfs_vfile_pread(f, off, got, n, &len, err), err);
		ck_assert_uint_eq(len, n);
		ck_assert_mem_eq(got, want + off, n);
	}
	free(got);
}

#endif
