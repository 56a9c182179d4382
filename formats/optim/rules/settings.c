#include "formats/optim/rules/settings.h"

#include "formats/ckpt/build.h"

const struct mfs_optim_info *mfs_optim_info(const struct mfs_ckpt *ckpt)
{
	static const struct mfs_optim_info none = {0};

	return ckpt->optim_info ? ckpt->optim_info : &none;
}

bool mfs_optim_groups_have_step(const struct mfs_optim_info *info)
{
	const struct mfs_pickle *doc = info->groups_doc[0];

	return doc && mfs_value_has(doc, mfs_value_at(doc, info->groups[0], 0), "step");
}
