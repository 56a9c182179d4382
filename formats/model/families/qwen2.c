#include "formats/model/families/family.h"

static const struct mfs_family_note notes[] = {
	{MFS_HAS(HEAD_DIM),
	 "transformers takes the head size from config.json, but vLLM and MLX compute "
	 "hidden_size / heads for qwen2 and cannot run this model"},
	{0},
};

const struct mfs_family mfs_family_qwen2 = {
	.name = "qwen2",
	.architecture = "Qwen2ForCausalLM",
	.model_type = "qwen2",
	.layer_prefix = "model.layers.{i}.",
	.required = MFS_HAS(SWIGLU) | MFS_HAS(ROPE) | MFS_HAS(QKV_BIAS),
	.optional = MFS_LLAMA_OPTIONS | MFS_HAS(RAGGED_HEADS) | MFS_HAS(WINDOW),
	.tensors =
		(const struct mfs_family_tensor *const[]){mfs_llama_ends, mfs_llama_norms,
							  mfs_llama_attention, mfs_llama_mlp, NULL},
	.config = (const struct mfs_config_row *const[]){mfs_config_common, mfs_config_rope,
							 mfs_config_llama, mfs_config_window, NULL},
	.notes = notes,
};
