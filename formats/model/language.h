/*
 * Vision-language models of HuggingFace: the family of a config.json, and the config of its
 * language model as a model of text alone has it.
 *
 * Of text all positions of mrope are equal, and mrope with equal positions is rope: each section
 * takes its frequencies from its own positions (transformers/models/qwen2_5_vl:
 * apply_multimodal_rotary_pos_emb; qwen3_vl: apply_interleaved_mrope). So sections are left out.
 */
#ifndef MFS_MODEL_LANGUAGE_H
#define MFS_MODEL_LANGUAGE_H

#include <jansson.h>

#include "formats/base/error.h"
#include "formats/ckpt/language_part.h"
#include "formats/model/families/family.h"

/* The families, for readers of Megatron's files. */
extern const struct mfs_ckpt_part_ops mfs_language_parts;

/* The vision-language family that a config.json names. NULL: it names none. */
const struct mfs_family *mfs_language_family(const json_t *config);

/* A sentence for a config.json of which no family is known: -ENOTSUP with the nearest family if it
 * has a vision_config; else 0. name: the file, for messages. */
int mfs_language_unknown(const json_t *config, const char *name, struct mfs_error *err);

/*
 * The text family of a config.json of whole, and its text config: a new object, which the caller
 * drops. model_type and architectures are the text family's. The head is tied if the whole or the
 * text config says so. -ENODATA: there is no text config; -EINVAL: it is no object; -ENOTSUP: it
 * names another family than whole's.
 */
int mfs_language_config(const json_t *config, const char *name, const struct mfs_family *whole,
			json_t **ret, const struct mfs_family **ret_text, struct mfs_error *err);

#endif
