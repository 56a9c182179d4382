/*
 * Rows that are packed samples, as Megatron-Bridge has them (data/packing/algorithms.py:
 * fill_packing_strategy; data/packing/parquet.py): input_ids of documents one after the other,
 * loss_mask, and seq_start_id, where each document begins. loss_mask[i] is of the label of token i,
 * which is token i + 1.
 */
#include "formats/sft/conversation_i.h"

#include <stdio.h>
#include <string.h>

bool mfs_row_is_packed(const json_t *row)
{
	return mfs_row_member(row, "seq_start_id") != NULL;
}

int mfs_row_check_packs(const json_t *row, struct mfs_error *err)
{
	const json_t *starts = mfs_row_member(row, "seq_start_id");

	if (!mfs_row_member(row, "loss_mask"))
		return mfs_fail(err, -EINVAL,
				"seq_start_id: expected loss_mask with it, found none");
	if (!json_array_size(starts))
		return mfs_row_unlike("seq_start_id", "a list that begins with 0", starts, err);
	return 0;
}

/* Where document i begins, which is not before the one before it; as in Bridge it may have no
 * tokens. */
static int take_start(const json_t *starts, size_t i, size_t from, size_t count, size_t *ret,
		      struct mfs_error *err)
{
	const json_t *v = json_array_get(starts, i);
	const json_int_t at = json_integer_value(v);
	char expected[96] = "0";

	*ret = (size_t)at;
	if (json_is_integer(v) && at >= 0 && *ret >= from && *ret < count && (i || !at))
		return 0;
	if (i)
		snprintf(expected, sizeof(expected), "%zu to %zu, within input_ids", from,
			 count - 1);
	return mfs_row_unlike_at("seq_start_id", i, expected, v, err);
}

/* Tokens [begin, end) of t->turns. No label is the first one. */
static int pass_document(struct mfs_talk *t, size_t begin, size_t end,
			 const struct mfs_talk_hooks *hooks, struct mfs_error *err)
{
	const struct mfs_turns document = {.ids = t->turns.ids + begin,
					   .counts = t->turns.counts + begin,
					   .count = end - begin};

	if (begin == end)
		return 0;
	document.counts[0] = 0;
	return hooks->conversation(hooks->arg, &document, err);
}

int mfs_talk_packs(struct mfs_talk *t, const json_t *starts, const struct mfs_talk_hooks *hooks,
		   struct mfs_error *err)
{
	const size_t n = json_array_size(starts), count = t->turns.count;
	size_t begin = 0, end;
	int rc = 0;

	if (count)
		memmove(t->turns.counts + 1, t->turns.counts, count - 1);
	for (size_t i = 0; i <= n && !rc; i++) {
		end = count;
		if (i < n)
			rc = take_start(starts, i, begin, count, &end, err);
		if (!rc)
			rc = pass_document(t, begin, end, hooks, err);
		begin = end;
	}
	return rc;
}
