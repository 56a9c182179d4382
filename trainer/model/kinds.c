/* Which kinds of attention and MLP a layer has, by the arguments. The layers of MTP are numbered
 * after the decoder's, and are as its last one (gpt_layer_specs.py: get_gpt_mtp_block_spec). */
#include "trainer/model/attention/attention.h"
#include "trainer/model/mlp/mlp.h"
#include "trainer/model/net_i.h"

void mft_part_kinds(const struct mfs_megatron_args *args, uint32_t layer,
		    const struct mft_part_kind **ret_attention,
		    const struct mft_part_kind **ret_mlp)
{
	const uint32_t last = args->num_layers > 0 ? (uint32_t)args->num_layers - 1 : 0;
	const uint32_t as = layer < last ? layer : last;

	*ret_attention = mfs_args_is_linear(args, as)	? &mft_part_delta_net
			 : args->multi_latent_attention ? &mft_part_mla
							: &mft_part_attention;
	*ret_mlp = mfs_args_is_moe(args, as) ? &mft_part_moe : &mft_part_mlp;
}
