#include "formats/optim/rules/optimizers.h"

#include "formats/base/array.h"
#include "formats/base/str.h"

static const struct mfs_optimizer kinds[] = {
#define KIND(name, states) {#name, states},
	MFS_OPTIMIZERS(KIND) MFS_OPTIMIZERS_READ(KIND)
#undef KIND
};

/* Which states there are. */
static unsigned states_of(const struct mfs_ckpt *ckpt)
{
	unsigned states = 0;

	for (unsigned s = MFS_STATE_EXP_AVG; s < MFS_STATE_COUNT; s++)
		if (mfs_ckpt_has_state(ckpt, (enum mfs_state)s))
			states |= 1u << s;
	return states;
}

/* Where there are momenta without SGD, matrices are Muon's, whatever the arguments are. */
static const char *name_of(const struct mfs_ckpt *ckpt)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const unsigned states = states_of(ckpt);

	if (a->sgd)
		return "sgd";
	if (a->muon || (states & MFS_OPTIM_STATE(MOMENTUM)))
		return "muon";
	return a->lion ? "lion" : "adam";
}

const struct mfs_optimizer *mfs_optimizer_of(const struct mfs_ckpt *ckpt)
{
	const char *name = name_of(ckpt);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (mfs_str_is(kinds[i].name, name))
			return &kinds[i];
	return &kinds[0];
}

const struct mfs_kept_states mfs_kept_by_lion = {.others = MFS_OPTIM_STATE(EXP_AVG)};

/* torch/optim/sgd.py: nothing without momentum. */
struct mfs_kept_states mfs_kept_states(const struct mfs_ckpt *ckpt)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const struct mfs_optimizer *kind = mfs_optimizer_of(ckpt);

	if (mfs_str_is(kind->name, "sgd"))
		return (struct mfs_kept_states){.others = a->sgd_momentum != 0 ? kind->states : 0};
	if (mfs_str_is(kind->name, "muon"))
		return (struct mfs_kept_states){.matrices = MFS_OPTIM_STATE(MOMENTUM),
						.others = a->lion ? MFS_OPTIM_STATE(EXP_AVG)
								  : MFS_OPTIM_ADAM};
	if (mfs_str_is(kind->name, "lion") && states_of(ckpt) == MFS_OPTIM_STATE(EXP_AVG))
		return mfs_kept_by_lion;
	return (struct mfs_kept_states){
		.matrices = mfs_str_is(kind->name, "lion") ? MFS_OPTIM_STATE(EXP_AVG) : 0,
		.others = kind->states};
}
