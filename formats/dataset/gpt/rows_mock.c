#include "formats/dataset/gpt/rows_mock.h"

#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/dataset/random/pcg.h"

#define LONGEST 4096 /* no document is as long */

struct mock_rows {
	struct mfs_rows rows;
	uint32_t vocab;
	int32_t eod;
	uint64_t starts[MFS_MOCK_DOCUMENTS + 1];
};

static int mock_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		       struct mfs_error *err)
{
	const struct mock_rows *x = (const struct mock_rows *)r;

	(void)err;
	memcpy(ret, x->starts + first, count * sizeof(*ret));
	return 0;
}

static int mock_find(const struct mfs_rows *r, uint64_t t, uint64_t *ret, struct mfs_error *err)
{
	const struct mock_rows *x = (const struct mock_rows *)r;

	(void)err;
	*ret = mfs_last_while(i, MFS_MOCK_DOCUMENTS, x->starts[i] <= t);
	return 0;
}

static int mock_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		     struct mfs_error *err)
{
	const struct mock_rows *x = (const struct mock_rows *)r;
	int32_t *to = ret;
	uint64_t row;

	if (!count)
		return 0;
	mock_find(r, first, &row, err);
	for (uint64_t t = first; t < first + count; t++) {
		const bool last = t + 1 == x->starts[row + 1];

		*to++ = last ? x->eod : (int32_t)((t - x->starts[row] + 1) % x->vocab);
		row += last;
	}
	return 0;
}

static void mock_free(struct mfs_rows *r)
{
	free(r);
}

int mfs_rows_mock(uint32_t vocab, int32_t eod, struct mfs_rows **ret, struct mfs_error *err)
{
	static const struct mfs_rows_ops ops = {
		.starts = mock_starts, .find = mock_find, .read = mock_read, .free = mock_free};
	struct mock_rows *x;
	struct mfs_pcg random;

	if (!vocab)
		return mfs_fail(err, -EINVAL, "mock data needs a vocabulary");
	x = malloc(sizeof(*x));
	if (!x)
		return mfs_fail_nomem(err);
	mfs_pcg_seed(&random, 0);
	x->starts[0] = 0;
	for (uint32_t i = 0; i < MFS_MOCK_DOCUMENTS; i++)
		x->starts[i + 1] = x->starts[i] + (uint64_t)mfs_pcg_int32(&random, 1, LONGEST);
	x->vocab = vocab;
	x->eod = eod;
	x->rows = (struct mfs_rows){.ops = &ops,
				    .name = "mock data",
				    .dtype = MFS_I32,
				    .token_size = 4,
				    .rows = MFS_MOCK_DOCUMENTS,
				    .tokens = x->starts[MFS_MOCK_DOCUMENTS]};
	*ret = &x->rows;
	return 0;
}
