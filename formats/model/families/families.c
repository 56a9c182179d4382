#include "formats/model/families/family.h"

/* In order of preference, by the names of their tables. */
#define FAMILIES(X)                                                                                \
	X(llama, "llama")                                                                          \
	X(qwen2, "qwen2")                                                                          \
	X(qwen3, "qwen3")                                                                          \
	X(mixtral, "mixtral")                                                                      \
	X(deepseek_v3, "deepseek-v3")                                                              \
	X(gpt2, "gpt2")

#define DECLARE(table, name) extern const struct mfs_family mfs_family_##table;
#define LIST(table, name)    &mfs_family_##table,
#define JOIN(table, name)    ", " name

FAMILIES(DECLARE)

const struct mfs_family *const mfs_families[] = {FAMILIES(LIST) NULL};

const char *mfs_family_names(void)
{
	return &FAMILIES(JOIN)[2];
}

/* Keys of every config.json. Token ids are null if no tokenizer gives them: the classes' defaults
 * (1 and 2) would be wrong. */
const struct mfs_config_row mfs_config_common[] = {
	MFS_CONFIG("architectures", VALUE, .value = MFS_VALUE_ARCHITECTURES),
	MFS_CONFIG("model_type", VALUE, .value = MFS_VALUE_MODEL_TYPE),
	MFS_CONFIG("dtype", VALUE, .ref = MFS_REF_LOSES, .value = MFS_VALUE_DTYPE),
	MFS_CONFIG("torch_dtype", VALUE, .ref = MFS_REF_LOSES, .value = MFS_VALUE_DTYPE),
	MFS_CONFIG("vocab_size", VALUE, .ref = MFS_REF_LOSES, .value = MFS_VALUE_VOCAB),
	MFS_CONFIG("tie_word_embeddings", HAS, .has = MFS_HAS(TIED)),
	MFS_CONFIG("bos_token_id", VALUE, .ref = MFS_REF_WINS, .value = MFS_VALUE_BOS),
	MFS_CONFIG("eos_token_id", VALUE, .ref = MFS_REF_WINS, .value = MFS_VALUE_EOS),
	MFS_CONFIG("pad_token_id", VALUE, .ref = MFS_REF_WINS, .value = MFS_VALUE_PAD),
	MFS_CONFIG("initializer_range", REAL, .ref = MFS_REF_WINS,
		   .field = MFS_FIELD(init_method_std)),
	MFS_CONFIG("use_cache", TRUE, .ref = MFS_REF_WINS),
	{0},
};

/* MLX reads only the top-level rope_theta and rope_scaling. transformers 5 reads rope_parameters,
 * and converts the others. So all three are written. */
const struct mfs_config_row mfs_config_rope[] = {
	MFS_CONFIG("max_position_embeddings", INT, .ref = MFS_REF_WINS_NOTED,
		   .field = MFS_FIELD(max_position_embeddings)),
	MFS_CONFIG("rope_theta", REAL, .field = MFS_FIELD(rotary_base)),
	MFS_CONFIG("rope_scaling", VALUE, .value = MFS_VALUE_ROPE_SCALING),
	MFS_CONFIG("rope_parameters", VALUE, .ref = MFS_REF_LOSES,
		   .value = MFS_VALUE_ROPE_PARAMETERS),
	{0},
};

/* use_sliding_window and layer_types say in Qwen which layers slide. In Megatron all do. */
const struct mfs_config_row mfs_config_window[] = {
	MFS_CONFIG("use_sliding_window", HAS, .has = MFS_HAS(WINDOW)),
	MFS_CONFIG("sliding_window", INT, .field = MFS_FIELD(window_size), .when = MFS_HAS(WINDOW)),
	MFS_CONFIG("sliding_window", NULL, .ref = MFS_REF_WINS, .unless = MFS_HAS(WINDOW)),
	MFS_CONFIG("max_window_layers", NUMBER, .number = 0, .when = MFS_HAS(WINDOW)),
	MFS_CONFIG("max_window_layers", INT, .ref = MFS_REF_WINS, .field = MFS_FIELD(num_layers),
		   .unless = MFS_HAS(WINDOW)),
	MFS_CONFIG("layer_types", VALUE, .value = MFS_VALUE_LAYER_TYPES),
	{0},
};
