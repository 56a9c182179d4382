/* Which kinds of attention and MLP a layer has, by the arguments. */
#include "trainer/model/net_i.h"

int mfs_part_kinds(const struct mfs_megatron_args *args, uint32_t layer,
		   const struct mfs_part_kind **ret_attention, const struct mfs_part_kind **ret_mlp,
		   struct mfs_error *err)
{
	if (args->multi_latent_attention)
		return mfs_fail(err, -ENOTSUP,
				"--multi-latent-attention cannot be trained here yet");
	if (mfs_args_is_moe(args, layer))
		return mfs_fail(err, -ENOTSUP, "--num-experts cannot be trained here yet");
	*ret_attention = &mfs_part_attention;
	*ret_mlp = &mfs_part_mlp;
	return 0;
}
