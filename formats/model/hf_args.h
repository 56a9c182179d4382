/*
 * config.json of a HuggingFace model as the arguments of the Megatron run that would have made it:
 * the reverse of the family's table of keys (family.h: struct mfs_config_row).
 *
 * A key that config.json leaves out has the default of transformers' class (hf_defaults.c), never
 * Megatron's. What no argument of Megatron can say (rope_type dynamic, attention_bias without
 * mlp_bias, a quantised model, ...) is refused with the key, what was expected and what was found:
 * a model is never shown as one that computes something else. Keys that transformers ignores for
 * the model_type are ignored.
 *
 * Sources: transformers/models/NAME/configuration_NAME.py, transformers/modeling_rope_utils.py;
 * Megatron's side as in family.h.
 */
#ifndef MFS_MODEL_HF_ARGS_H
#define MFS_MODEL_HF_ARGS_H

#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/torch/megatron_args.h"
#include "formats/model/families/family.h"

/*
 * bytes: of config.json, at most MFS_HF_CONFIG_MAX (hf_config.h); name is the file for messages.
 * arch: a family (mfs_family_choose) if config.json names none, and must not contradict it; or
 * NULL. Strings and arrays lie in arena.
 *
 * args: of one rank (all parallel sizes 1). vocab_size and padded_vocab_size are both config.json's
 * vocab_size. mfs_family_choose(args) gives *ret_family.
 *
 * -EINVAL: no JSON object, or a key whose value cannot be; -ENODATA: a key that must be there is
 * not; -ENOTSUP: a model that no family, or the family that config.json names, cannot express.
 */
int mfs_hf_args_parse(const char *bytes, size_t len, const char *name, const char *arch,
		      struct mfs_arena *arena, struct mfs_megatron_args *ret,
		      const struct mfs_family **ret_family, struct mfs_error *err);

/* What transformers' class of a family takes for keys that config.json leaves out, as the text of a
 * JSON object: "null" where it then computes the value from others. NULL: no such family. */
const char *mfs_hf_defaults(const struct mfs_family *family);

#endif
