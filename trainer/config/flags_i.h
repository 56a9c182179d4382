/* How the rows of the tables of flags are written. For flags_*.c alone. */
#ifndef MFT_TRAINER_CONFIG_FLAGS_I_H
#define MFT_TRAINER_CONFIG_FLAGS_I_H

#include "formats/base/array.h"
#include "trainer/config/flag.h"

#define ON	MFT_FLAG_ON
#define OFF	MFT_FLAG_OFF
#define SWITCH	MFT_FLAG_SWITCH
#define TRUTH	MFT_FLAG_TRUTH
#define INT	MFT_FLAG_INT
#define REAL	MFT_FLAG_REAL
#define TEXT	MFT_FLAG_TEXT
#define INTS	MFT_FLAG_INTS
#define REALS	MFT_FLAG_REALS
#define TEXTS	MFT_FLAG_TEXTS
#define PATTERN MFT_FLAG_PATTERN
#define TUPLE	MFT_FLAG_TUPLE
#define DTYPE	MFT_FLAG_DTYPE
#define ENUM	MFT_FLAG_ENUM
#define DERIVED MFT_FLAG_DERIVED

#define NAMES(list)   .names = (list)
#define CHOICES(list) .choices = (list)

/* What becomes of it. USED: config/settle*.c or the reader of the model's arguments looks at it. */
#define USED		 .use = MFT_FLAG_USED
#define UNUSED		 .use = MFT_FLAG_UNUSED
#define REFUSED(nearest) .use = MFT_FLAG_REFUSED, .instead = (nearest)
#define NOT_DIVIDED	 REFUSED("use 1")
/* Of the choices of a flag that is used, those that are supported. */
#define HAVE(list, nearest) .have = (list), .instead = (nearest)

/* It fills a field of struct mft_train_config, by the field's type. */
#define FIELD(member) ((struct mft_train_config *)0)->member
#define AS(member)                                                                                 \
	_Generic(FIELD(member),                                                                    \
		bool: MFT_AS_BOOL,                                                                 \
		int64_t: MFT_AS_INT,                                                               \
		double: MFT_AS_REAL,                                                               \
		const char *: MFT_AS_TEXT,                                                         \
		struct mfs_arg_words: MFT_AS_WORDS)
#define AT(member)	     USED, .at = offsetof(struct mft_train_config, member)
#define TO_OR(member, value) AT(member), .as = AS(member), .none = (value)
#define TO(member)	     TO_OR(member, MFS_ABSENT)
#define INVERSE(member)	     AT(member), .as = MFT_AS_NOT
#define CHOICE_TO(member)    AT(member), .as = MFT_AS_CHOICE
#define DTYPE_TO(member)     AT(member), .as = MFT_AS_DTYPE

#define GROUP(name, title)                                                                         \
	const struct mft_flag_group mft_flags_##name = {title, name, MFS_ARRAY_SIZE(name)}

extern const struct mft_flag_group mft_flags_transformer_configuration, mft_flags_network_size,
	mft_flags_moe, mft_flags_mla, mft_flags_experimental_attention_variant,
	mft_flags_heterogeneous_architecture, mft_flags_training, mft_flags_regularization,
	mft_flags_learning_rate_and_weight_decay, mft_flags_mixed_precision,
	mft_flags_rng_and_initialization, mft_flags_validation, mft_flags_transformer_engine,
	mft_flags_experimental, mft_flags_data_and_dataloader, mft_flags_tokenizer,
	mft_flags_checkpointing, mft_flags_distributed_init, mft_flags_logging, mft_flags_profiling,
	mft_flags_straggler, mft_flags_opentelemetry, mft_flags_rerun_engine, mft_flags_rl,
	mft_flags_inference, mft_flags_autoresume, mft_flags_biencoder, mft_flags_vision,
	mft_flags_logits_distillation, mft_flags_workload_inspector, mft_flags_one_logger,
	mft_flags_in_process_restart, mft_flags_ft_package, mft_flags_msc, mft_flags_sft,
	mft_flags_fault_injector, mft_flags_ours, mft_flags_derived;

#endif
