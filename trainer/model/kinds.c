/* Which kinds of attention and MLP a layer has, by the arguments. */
#include "trainer/model/net_i.h"

void mfs_part_kinds(const struct mfs_megatron_args *args, uint32_t layer,
		    const struct mfs_part_kind **ret_attention,
		    const struct mfs_part_kind **ret_mlp)
{
	*ret_attention = args->multi_latent_attention ? &mfs_part_mla : &mfs_part_attention;
	*ret_mlp = mfs_args_is_moe(args, layer) ? &mfs_part_moe : &mfs_part_mlp;
}
