#include "formats/optim/rules/state_dict.h"

#define MAX_CHAIN 8

/* The value under an integer key of a chain's dict. */
static mfs_value link_of(const struct mfs_pickle *doc, mfs_value chain, uint32_t i)
{
	const uint32_t pairs = mfs_value_pairs(doc, chain);
	int64_t key;

	for (uint32_t p = 0; p < pairs && p < MAX_CHAIN; p++)
		if (mfs_value_int(doc, mfs_value_key(doc, chain, p), &key) && key == i)
			return mfs_value_item(doc, chain, p);
	return 0;
}

static bool is_one(const struct mfs_pickle *doc, mfs_value v)
{
	return mfs_value_has(doc, v, "optimizer") ||
	       mfs_value_has(doc, v, "optimizer_state_dict") ||
	       mfs_value_has(doc, v, "param_groups");
}

uint32_t mfs_optim_state_count(const struct mfs_pickle *doc, mfs_value optimizer)
{
	uint32_t count = 0;

	if (mfs_value_type(doc, optimizer) == MFS_V_LIST)
		return mfs_value_count(doc, optimizer);
	if (is_one(doc, optimizer))
		return 1;
	while (link_of(doc, optimizer, count))
		count++;
	return count;
}

mfs_value mfs_optim_state_at(const struct mfs_pickle *doc, mfs_value optimizer, uint32_t i)
{
	if (mfs_value_type(doc, optimizer) == MFS_V_LIST)
		return i < mfs_value_count(doc, optimizer) ? mfs_value_at(doc, optimizer, i) : 0;
	if (is_one(doc, optimizer))
		return i ? 0 : optimizer;
	return link_of(doc, optimizer, i);
}

mfs_value mfs_optim_state_torch(const struct mfs_pickle *doc, mfs_value one)
{
	if (mfs_value_has(doc, one, "param_groups"))
		return one;
	if (mfs_value_has(doc, one, "optimizer"))
		return mfs_value_get(doc, one, "optimizer");
	return mfs_value_get(doc, one, "optimizer_state_dict");
}

/* emerging_optimizers of 0.1, and of 0.2 and later */
bool mfs_optim_group_has_momentum(const struct mfs_pickle *doc, mfs_value group)
{
	return mfs_value_has(doc, group, "momentum_beta") || mfs_value_has(doc, group, "momentum");
}

bool mfs_optim_group_is_lion(const struct mfs_pickle *doc, mfs_value group)
{
	return mfs_value_has(doc, group, "betas") && !mfs_value_has(doc, group, "eps");
}

mfs_value mfs_optim_state_groups(const struct mfs_pickle *doc, mfs_value one)
{
	return mfs_value_get(doc, mfs_optim_state_torch(doc, one), "param_groups");
}
