#include "formats/optim/rules/settings.h"

#include "formats/ckpt/ckpt_build.h"

const struct mfs_optim_info *mfs_optim_info(const struct mfs_ckpt *ckpt)
{
	static const struct mfs_optim_info none = {0};

	return ckpt->optim_info ? ckpt->optim_info : &none;
}

bool mfs_optim_groups_have_step(const struct mfs_optim_info *info)
{
	for (unsigned i = 0; i < MFS_OPTIM_CHAIN && info->groups_doc[i]; i++)
		if (mfs_value_has(info->groups_doc[i],
				  mfs_value_at(info->groups_doc[i], info->groups[i], 0), "step"))
			return true;
	return false;
}
