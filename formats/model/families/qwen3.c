#include "formats/model/families/family.h"

static const struct mfs_config_row config[] = {
	MFS_CONFIG("attention_bias", FALSE),
	{0},
};

const struct mfs_family mfs_family_qwen3 = {
	.name = "qwen3",
	.architecture = "Qwen3ForCausalLM",
	.model_type = "qwen3",
	.layer_prefix = "model.layers.{i}.",
	.required = MFS_HAS(SWIGLU) | MFS_HAS(ROPE) | MFS_HAS(QK_NORM),
	.optional = MFS_LLAMA_OPTIONS | MFS_HAS(RAGGED_HEADS) | MFS_HAS(WINDOW),
	.tensors =
		(const struct mfs_family_tensor *const[]){mfs_llama_ends, mfs_llama_norms,
							  mfs_llama_attention, mfs_llama_mlp, NULL},
	.config = (const struct mfs_config_row *const[]){mfs_config_common, mfs_config_rope,
							 mfs_config_llama, mfs_config_window,
							 config, NULL},
};
