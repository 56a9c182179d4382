/* One row of a dataset, for people. */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "fs/data/data_i.h"
#include "fs/data/data_tokenizer.h"

static int add_text(const struct mfs_named_tokens *names, const int64_t *tokens, uint64_t count,
		    struct mfs_buf *text, struct mfs_error *err)
{
	struct mfs_named_decoder *d;
	int rc = mfs_named_decoder_new(names, &d, err);

	if (rc)
		return rc;
	rc = mfs_named_decode(d, tokens, count, text, err);
	if (!rc)
		rc = mfs_named_decode_end(d, text, err);
	mfs_named_decoder_free(d);
	return rc;
}

static int add_ids(const int64_t *tokens, uint64_t count, struct mfs_buf *text,
		   struct mfs_error *err)
{
	for (uint64_t i = 0; i < count; i++)
		mfs_buf_printf(text, "%s%lld", i ? " " : "", (long long)tokens[i]);
	return text->failed ? mfs_fail_nomem(err) : 0;
}

/* Where the row lies among the tokens, and how much of it is shown. */
static int look_at_row(const struct mfs_rows *rows, uint64_t row, uint64_t most,
		       struct mfs_dataset_row *ret, uint64_t *ret_start, struct mfs_error *err)
{
	uint64_t starts[2];
	int rc;

	*ret = (struct mfs_dataset_row){.rows = rows->rows};
	if (!rows->rows)
		return mfs_fail(err, -ENODATA, "%s has no rows", rows->name);
	ret->row = mfs_min_u64(row, rows->rows - 1);
	rc = mfs_rows_starts(rows, ret->row, 2, starts, err);
	if (rc)
		return rc;
	*ret_start = starts[0];
	ret->tokens = starts[1] - starts[0];
	ret->shown = mfs_min_u64(ret->tokens, most);
	return 0;
}

int mfs_dataset_show_row(const struct mfs_dataset *d, uint64_t row, uint64_t most,
			 struct mfs_buf *text, struct mfs_dataset_row *ret, struct mfs_error *err)
{
	const struct mfs_named_tokens *names;
	uint64_t start;
	int64_t *tokens;
	int rc;

	if (!d->rows)
		return mfs_fail(err, -ENODATA, "a blend has samples and no rows");
	rc = look_at_row(d->rows, row, most, ret, &start, err);
	if (rc)
		return rc;
	tokens = malloc((ret->shown + 1) * sizeof(*tokens));
	rc = tokens ? mfs_rows_read_int64(d->rows, start, ret->shown, tokens, err)
		    : mfs_fail_nomem(err);
	ret->is_text = !mfs_data_tokenizer_names(
		d->tokenizer, &names,
		mfs_data_tokenizer_is_given(d->tokenizer) ? &ret->why_ids : NULL);
	if (!rc)
		rc = ret->is_text ? add_text(names, tokens, ret->shown, text, err)
				  : add_ids(tokens, ret->shown, text, err);
	free(tokens);
	return rc;
}
