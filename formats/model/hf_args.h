/*
 * Turns config.json of a HuggingFace model into the arguments of the Megatron run that would have
 * made the model. It reads the family's table of keys (family.h: struct mfs_config_row) backwards.
 *
 * A key that config.json leaves out has the default of transformers' class (the family's), never
 * Megatron's. A value that Megatron's arguments cannot express (rope_type dynamic, attention_bias
 * without mlp_bias, a quantised model) is refused; the message gives the key, the expected and the
 * found value. So a model is never shown as one that computes something else. Of keys that the
 * family has no row for (hf_known.h) those are refused, too, that change the result in some reader;
 * hf_remarks names those that nothing here knows.
 *
 * Sources: transformers/models/NAME/configuration_NAME.py, transformers/modeling_rope_utils.py;
 * Megatron's side as in family.h.
 */
#ifndef MFS_MODEL_HF_ARGS_H
#define MFS_MODEL_HF_ARGS_H

#include <stddef.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/args/megatron_args.h"
#include "formats/model/families/family.h"

/*
 * bytes: config.json, at most MFS_HF_CONFIG_MAX of them (hf_config.h). name: the file, for
 * messages. arch: the family (mfs_family_choose) where config.json names none, or NULL; it must not
 * contradict config.json. Strings and arrays lie in arena.
 *
 * Of a vision-language model the arguments are those of its language model, and *ret_family is that
 * one's. *ret_whole: the vision-language family; NULL: the model is of text alone.
 *
 * The arguments are of one rank: all parallel sizes are 1. vocab_size and padded_vocab_size are
 * both config.json's vocab_size. mfs_family_choose() of the arguments gives *ret_family.
 *
 * -EINVAL: no JSON object, or a key has an impossible value; -ENODATA: a required key is missing;
 * -ENOTSUP: no family can express the model, or the one that config.json names cannot.
 */
int mfs_hf_args_parse(const char *bytes, size_t len, const char *name, const char *arch,
		      struct mfs_arena *arena, struct mfs_megatron_args *ret,
		      const struct mfs_family **ret_family, const struct mfs_family **ret_whole,
		      struct mfs_error *err);

#endif
