#include "formats/optim/rules/optimizers.h"

#include "formats/base/array.h"
#include "formats/base/str.h"

static const struct mfs_optimizer kinds[] = {
#define KIND(name, states) {#name, states},
	MFS_OPTIMIZERS(KIND)
#undef KIND
};

static unsigned states_of(const struct mfs_ckpt *ckpt)
{
	unsigned states = 0;

	for (unsigned s = MFS_STATE_EXP_AVG; s < MFS_STATE_COUNT; s++)
		if (mfs_ckpt_has_state(ckpt, (enum mfs_state)s))
			states |= 1u << s;
	return states;
}

const struct mfs_optimizer *mfs_optimizer_of(const struct mfs_ckpt *ckpt)
{
	const bool sgd = mfs_ckpt_args(ckpt)->sgd;
	const unsigned states = states_of(ckpt);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(kinds); i++)
		if (sgd == mfs_str_is(kinds[i].name, "sgd") && (sgd || kinds[i].states == states))
			return &kinds[i];
	return &kinds[0];
}
