/*
 * Plain DCP (torch_dcp, fsdp_dtensor): tensors that torch has flattened out of an optimizer's
 * state. FSDP2 runs have Float16Optimizer's or FP32Optimizer's, which numbers parameters, and
 * Megatron-FSDP names them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/ckpt/read/plain.h"
#include "formats/optim/read/optim_i.h"
#include "formats/optim/rules/state_dict.h"

#define KEY_SIZE 128

static const enum mfs_state moments[] = {MFS_STATE_EXP_AVG, MFS_STATE_EXP_AVG_SQ,
					 MFS_STATE_MOMENTUM};

#define MOMENTS MFS_ARRAY_SIZE(moments)

/* ---- by name ---- */

/* optimizer.state.NAME.STATE: writes what NAME is called in Megatron's torch_dist. */
static bool parse_key(const char *key, char name[MFS_NAME_MAX], enum mfs_state *ret)
{
	static const char start[] = "optimizer.state.", module[] = "module.";

	if (strncmp(key, start, sizeof(start) - 1))
		return false;
	key += sizeof(start) - 1;
	while (!strncmp(key, module, sizeof(module) - 1))
		key += sizeof(module) - 1;
	for (size_t i = 0; i < MOMENTS; i++) {
		char end[32];
		size_t len;

		snprintf(end, sizeof(end), ".%s", mfs_state_name(moments[i]));
		if (!mfs_str_ends(key, end))
			continue;
		len = strlen(key) - strlen(end);
		if (len >= MFS_NAME_MAX)
			return false;
		memcpy(name, key, len);
		name[len] = '\0';
		*ret = moments[i];
		return true;
	}
	return false;
}

/* Of a model that is saved in fp32 the tensors are the main parameters, too. */
static int add_main(struct mfs_dist_reader *r, const struct mfs_dcp_tensor *t)
{
	const char *key = mfs_dist_model_key(r, t->key);
	struct mfs_name name;

	if (!key || strlen(key) >= MFS_NAME_MAX)
		return 0;
	mfs_name_parse(key, &name);
	return mfs_name_is_parameter(name.canonical, t->dtype)
		       ? mfs_dist_add_tensor(r, t, key, MFS_STATE_MAIN)
		       : 0;
}

static int read_named(struct mfs_dist_reader *r)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->dcp.tensor_count && !rc; i++) {
		const struct mfs_dcp_tensor *t = &r->dcp.tensors[i];
		char name[MFS_NAME_MAX];
		enum mfs_state state;

		rc = parse_key(t->key, name, &state) ? mfs_dist_add_tensor(r, t, name, state)
						     : add_main(r, t);
	}
	return rc;
}

/* ---- by number ---- */

static int add_numbered(struct mfs_dist_reader *r, const char *key,
			const struct mfs_global_tensor *of, enum mfs_state state)
{
	const struct mfs_dcp_tensor *t = mfs_dcp_tensor(&r->dcp, key);
	char name[MFS_CKPT_NAME_SIZE];

	return t ? mfs_dist_add_tensor(r, t, mfs_global_tensor_name(of, name, sizeof(name)), state)
		 : 0;
}

/* Whether something is missing is found out later (mfs_optim_check_whole()). */
static int add_param(struct mfs_dist_reader *r, enum mfs_plain_optim_kind kind,
		     const struct mfs_optim_param *p)
{
	const struct mfs_global_tensor *of = p->tensor->src;
	char key[KEY_SIZE];
	int rc = 0;

	for (size_t i = 0; i < MOMENTS && !rc; i++) {
		snprintf(key, sizeof(key), "%sstate.%" PRIu32 ".%s", mfs_plain_prefix(kind), p->id,
			 mfs_state_name(moments[i]));
		rc = add_numbered(r, key, of, moments[i]);
	}
	if (rc || kind != MFS_PLAIN_FLOAT16)
		return rc;
	if (p->has_main) {
		snprintf(key, sizeof(key), "optimizer.fp32_from_fp16_params.%" PRIu32 ".%" PRIu32,
			 p->group, p->main);
		return add_numbered(r, key, of, MFS_STATE_MAIN);
	}
	return 0;
}

/* The groups that were computed must be those of the files. */
static int check_groups(struct mfs_dist_reader *r, const struct mfs_optim *o)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(r->ckpt);
	const struct mfs_pickle *doc = state->archive.doc;
	mfs_value groups = mfs_optim_state_groups(
		doc, mfs_optim_state_at(doc, mfs_value_get(doc, state->root, "optimizer"), 0));

	for (uint32_t i = 0; i < o->group_count[0]; i++) {
		mfs_value params = mfs_value_get(doc, mfs_value_at(doc, groups, i), "params");

		if (mfs_value_count(doc, params) != o->groups[i].count)
			return mfs_fail(r->err, -EINVAL,
					"%s/%s: optimizer: parameter group %" PRIu32
					": expected %" PRIu32 " parameters, found %" PRIu32,
					r->ckpt->dir, r->index, i, o->groups[i].count,
					mfs_value_count(doc, params));
	}
	if (mfs_value_count(doc, groups) == o->group_count[0] && o->chain.count == 1)
		return 0;
	return mfs_fail(r->err, -EINVAL,
			"%s/%s: optimizer: expected %" PRIu32 " parameter groups, found %" PRIu32,
			r->ckpt->dir, r->index, o->group_count[0], mfs_value_count(doc, groups));
}

static int read_params(struct mfs_dist_reader *r, enum mfs_plain_optim_kind kind,
		       const struct mfs_rank_list *list)
{
	struct mfs_optim *o;
	int rc = mfs_optim_new(list, NULL, 1, 1, &o, r->err);

	if (rc)
		return rc;
	rc = check_groups(r, o);
	for (uint32_t i = 0; i < o->count && !rc; i++)
		rc = add_param(r, kind, &o->params[i]);
	mfs_optim_free(o);
	return rc;
}

/* Numbers are those of one process that has all of the model. */
static int read_numbered(struct mfs_dist_reader *r, enum mfs_plain_optim_kind kind)
{
	const struct mfs_layout one = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
	struct mfs_rank_list *list;
	int rc = mfs_rank_list_new(r->ckpt, &one, &(struct mfs_rank){0}, mfs_layer_spec_of(r->ckpt),
				   0, &list, r->err);

	if (rc)
		return rc;
	rc = read_params(r, kind, list);
	mfs_rank_list_free(list);
	return rc;
}

int mfs_optim_read_plain(struct mfs_dist_reader *r, enum mfs_optim_kind *ret)
{
	const enum mfs_plain_optim_kind kind = mfs_plain_optimizer(r);

	*ret = kind == MFS_PLAIN_NAMED ? MFS_OPTIM_DISTRIBUTED : MFS_OPTIM_FLOAT16;
	return kind == MFS_PLAIN_NAMED ? read_named(r) : read_numbered(r, kind);
}
