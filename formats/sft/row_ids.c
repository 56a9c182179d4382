/* Rows that somebody else has made ids of. */
#include "formats/sft/conversation_i.h"

#include <stdio.h>

#define IGNORED (-100) /* of "labels" */

/* What a row with input_ids has. */
struct id_lists {
	const json_t *ids, *labels, *mask; /* labels, mask: NULL: not given */
};

static int check_length(const char *name, const json_t *list, const json_t *ids,
			struct mfs_error *err)
{
	char expected[64];

	if (!list || (json_is_array(list) && json_array_size(list) == json_array_size(ids)))
		return 0;
	snprintf(expected, sizeof(expected), "a list of %zu, as input_ids", json_array_size(ids));
	return mfs_row_unlike(name, expected, list, err);
}

static int check_lists(const struct mfs_talk *t, const struct id_lists *l, struct mfs_error *err)
{
	int rc;

	if (l->labels && l->mask)
		return mfs_fail(err, -EINVAL,
				"input_ids: expected labels or loss_mask, found both");
	if (t->answers_only && !l->labels && !l->mask)
		return mfs_fail(err, -EINVAL,
				"input_ids: expected labels or loss_mask with "
				"--sft-answer-only-loss, found neither");
	rc = check_length("labels", l->labels, l->ids, err);
	return rc ? rc : check_length("loss_mask", l->mask, l->ids, err);
}

/* Whether the loss of token i counts. */
static int take_count(const struct id_lists *l, size_t i, uint8_t *ret, struct mfs_error *err)
{
	const json_t *v = json_array_get(l->labels ? l->labels : l->mask, i);
	const json_int_t id = json_integer_value(json_array_get(l->ids, i));
	char expected[64];

	*ret = !v || json_is_true(v) || (json_is_number(v) && json_number_value(v) == 1);
	if (l->labels) {
		*ret = json_is_integer(v) && json_integer_value(v) == id;
		if (*ret || (json_is_integer(v) && json_integer_value(v) == IGNORED))
			return 0;
		snprintf(expected, sizeof(expected), "%lld, as input_ids[%zu], or %d",
			 (long long)id, i, IGNORED);
		return mfs_row_unlike_at("labels", i, expected, v, err);
	}
	if (*ret || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0))
		return 0;
	return mfs_row_unlike_at("loss_mask", i, "0 or 1", v, err);
}

int mfs_talk_ids(struct mfs_talk *t, json_t *row, json_t *ids, const struct mfs_talk_hooks *hooks,
		 struct mfs_error *err)
{
	const struct id_lists lists = {ids, mfs_row_member(row, "labels"),
				       mfs_row_member(row, "loss_mask")};
	const size_t count = json_array_size(ids);
	int rc = check_lists(t, &lists, err);

	if (!rc && mfs_row_is_packed(row))
		rc = mfs_row_check_packs(row, err);
	if (!rc)
		rc = mfs_turns_resize(&t->turns, count, err);
	for (size_t i = 0; i < count && !rc; i++) {
		const json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) > INT32_MAX)
			return mfs_row_unlike_at("input_ids", i, "an id, 0 to 2^31 - 1", id, err);
		t->turns.ids[i] = (uint32_t)json_integer_value(id);
		rc = take_count(&lists, i, &t->turns.counts[i], err);
	}
	if (!rc && mfs_row_is_packed(row))
		return mfs_talk_packs(t, mfs_row_member(row, "seq_start_id"), hooks, err);
	return rc ? rc : hooks->conversation(hooks->arg, &t->turns, err);
}
