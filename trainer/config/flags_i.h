/* How the rows of the tables of flags are written. For flags_*.c alone. */
#ifndef MFS_TRAINER_CONFIG_FLAGS_I_H
#define MFS_TRAINER_CONFIG_FLAGS_I_H

#include "trainer/config/flag.h"

#define ON	MFS_FLAG_ON
#define OFF	MFS_FLAG_OFF
#define SWITCH	MFS_FLAG_SWITCH
#define TRUTH	MFS_FLAG_TRUTH
#define INT	MFS_FLAG_INT
#define REAL	MFS_FLAG_REAL
#define TEXT	MFS_FLAG_TEXT
#define INTS	MFS_FLAG_INTS
#define REALS	MFS_FLAG_REALS
#define TEXTS	MFS_FLAG_TEXTS
#define PATTERN MFS_FLAG_PATTERN
#define TUPLE	MFS_FLAG_TUPLE
#define DTYPE	MFS_FLAG_DTYPE
#define ENUM	MFS_FLAG_ENUM
#define DERIVED MFS_FLAG_DERIVED

#define NAMES(list)   .names = (list)
#define CHOICES(list) .choices = (list)

/* What becomes of it. USED: config/settle*.c or the reader of the model's arguments looks at it. */
#define USED		 .use = MFS_FLAG_USED
#define UNUSED		 .use = MFS_FLAG_UNUSED
#define REFUSED(nearest) .use = MFS_FLAG_REFUSED, .instead = (nearest)
#define NOT_DIVIDED	 REFUSED("use 1")
/* Of the choices of a flag that is used, those that are supported. */
#define HAVE(list, nearest) .have = (list), .instead = (nearest)

/* It fills a field of struct mfs_train_config, by the field's type. */
#define FIELD(member) ((struct mfs_train_config *)0)->member
#define AS(member)                                                                                 \
	_Generic(FIELD(member),                                                                    \
		bool: MFS_AS_BOOL,                                                                 \
		int64_t: MFS_AS_INT,                                                               \
		double: MFS_AS_REAL,                                                               \
		const char *: MFS_AS_TEXT,                                                         \
		struct mfs_words: MFS_AS_WORDS)
#define AT(member)	     USED, .at = offsetof(struct mfs_train_config, member)
#define TO_OR(member, value) AT(member), .as = AS(member), .none = (value)
#define TO(member)	     TO_OR(member, MFS_UNSET)
#define INVERSE(member)	     AT(member), .as = MFS_AS_NOT
#define CHOICE_TO(member)    AT(member), .as = MFS_AS_CHOICE
#define DTYPE_TO(member)     AT(member), .as = MFS_AS_DTYPE

#define GROUP(name, title)                                                                         \
	const struct mfs_flag_group mfs_flags_##name = {title, name, sizeof(name) / sizeof(name[0])}

extern const struct mfs_flag_group mfs_flags_transformer_configuration, mfs_flags_network_size,
	mfs_flags_moe, mfs_flags_mla, mfs_flags_experimental_attention_variant,
	mfs_flags_heterogeneous_architecture, mfs_flags_training, mfs_flags_regularization,
	mfs_flags_learning_rate_and_weight_decay, mfs_flags_mixed_precision,
	mfs_flags_rng_and_initialization, mfs_flags_validation, mfs_flags_transformer_engine,
	mfs_flags_experimental, mfs_flags_data_and_dataloader, mfs_flags_tokenizer,
	mfs_flags_checkpointing, mfs_flags_distributed_init, mfs_flags_logging, mfs_flags_profiling,
	mfs_flags_straggler, mfs_flags_opentelemetry, mfs_flags_rerun_engine, mfs_flags_rl,
	mfs_flags_inference, mfs_flags_autoresume, mfs_flags_biencoder, mfs_flags_vision,
	mfs_flags_logits_distillation, mfs_flags_workload_inspector, mfs_flags_one_logger,
	mfs_flags_in_process_restart, mfs_flags_ft_package, mfs_flags_msc, mfs_flags_sft,
	mfs_flags_fault_injector, mfs_flags_ours, mfs_flags_derived;

#endif
