/*
 * torch_dist: the optimizer's tensors that are named after the model's,
 * [chained_I.]optimizer.state.{fp32_param|param|exp_avg|exp_avg_sq|momentum_buffer}.KEY. In most
 * saves they have the model tensor's shape and chunks; others are flattened (dist_flattened.c).
 *
 * Sources: megatron/core/dist_checkpointing/optimizer.py, optimizer/distrib_optimizer.py:
 * sharded_param_state_*.
 */
#include <string.h>

#include "formats/base/array.h"
#include "formats/optim/read/optim_i.h"

/* What a key is of: the model's key after the prefix, or NULL. */
struct state_key {
	const char *model;
	enum mfs_state state;
	bool is_param; /* "param", of fully_reshardable */
};

static const char *without_prefix(const struct mfs_dist_reader *r, const char *key)
{
	const size_t len = strlen(r->maker->prefix);

	return strncmp(key, r->maker->prefix, len) ? key : key + len;
}

/* NULL: it is not of these. */
static const char *without_start(const char *key)
{
	static const char start[] = "optimizer.state.";

	if (!strncmp(key, "chained_", 8) && strchr(key, '.'))
		key = strchr(key, '.') + 1;
	return strncmp(key, start, sizeof(start) - 1) ? NULL : key + sizeof(start) - 1;
}

bool mfs_optim_has_named(const struct mfs_dcp *dcp)
{
	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		if (without_start(dcp->tensors[i].key))
			return true;
	return false;
}

static bool parse_key(const struct mfs_dist_reader *r, const char *key, struct state_key *ret)
{
	static const struct {
		const char *prefix;
		enum mfs_state state;
	} prefixes[] = {{"fp32_param.", MFS_STATE_MAIN},
			{"param.", MFS_STATE_MAIN},
			{"exp_avg.", MFS_STATE_EXP_AVG},
			{"exp_avg_sq.", MFS_STATE_EXP_AVG_SQ},
			{"momentum_buffer.", MFS_STATE_MOMENTUM}};

	key = without_start(key);
	for (size_t i = 0; key && i < MFS_ARRAY_SIZE(prefixes); i++) {
		const size_t len = strlen(prefixes[i].prefix);

		if (strncmp(key, prefixes[i].prefix, len))
			continue;
		*ret = (struct state_key){.model = without_prefix(r, key + len),
					  .state = prefixes[i].state,
					  .is_param = i == 1};
		return true;
	}
	return false;
}

int mfs_optim_read_named(struct mfs_dist_reader *r, enum mfs_optim_kind *ret,
			 bool *ret_fully_reshardable)
{
	bool any = false, param = false, fp32_param = false, flattened = false;
	int rc = 0;

	for (uint32_t i = 0; i < r->dcp.tensor_count && !rc; i++) {
		const struct mfs_dcp_tensor *t = &r->dcp.tensors[i];
		struct state_key key;

		if (!parse_key(r, t->key, &key))
			continue;
		any = true;
		param |= key.is_param;
		fp32_param |= key.state == MFS_STATE_MAIN && !key.is_param;
		flattened |= t->original != NULL;
		rc = t->original ? mfs_optim_add_flattened(r, t, key.model, key.state)
				 : mfs_dist_add_tensor(r, t, key.model, key.state);
	}
	*ret_fully_reshardable = param && !flattened;
	*ret = MFS_OPTIM_NONE;
	if (any)
		*ret = param && fp32_param ? MFS_OPTIM_LAYER_WISE
		       : param || flattened || r->ckpt->args.use_distributed_optimizer
			       ? MFS_OPTIM_DISTRIBUTED
			       : MFS_OPTIM_FLOAT16;
	return rc;
}
