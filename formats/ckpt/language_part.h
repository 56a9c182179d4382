/*
 * Vision-language checkpoints: which tensors are the language model's. Their names begin with a
 * prefix that a family's file gives (docs/FAMILIES.md). After the prefix they are the names of a
 * text-only model.
 *
 * Megatron-Bridge: models/qwen_vl, models/gemma_vl; Megatron-LM: core/models/multimodal/
 * llava_model.py.
 */
#ifndef MFS_CKPT_LANGUAGE_PART_H
#define MFS_CKPT_LANGUAGE_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/prefixes.h"

struct mfs_ckpt;

/* Sentences about a vision-language model, of Megatron's files and of HuggingFace's. */
#define MFS_PART_REFUSAL                                                                           \
	"%s: a vision-language model (%s: %.80s), and %u of its %u tensors are not of its "        \
	"language model; the option part=language shows the others, as %s"
#define MFS_PART_CLASH "%s: tensors are named '%s...' and '%s...', expected one of these in a %s"
#define MFS_PART_NOTE  "the language model of a %s is shown: %u of its %u tensors are not of it"

/* What a family's file says of Megatron's tensors. */
struct mfs_ckpt_part {
	const char *family;		/* "qwen2.5-vl" */
	const char *shown;		/* the families that its language model may be of, "a, b" */
	const char *only;		/* the one family, or NULL: there are several */
	const struct mfs_prefix *names; /* of all of its tensors */
	/* the class that makes the language model alone, where its modules are the class's own: as
	 * struct mfs_megatron_args' provider */
	const char *provider;
	bool mrope; /* positions of text are those of plain rope */
};

/* The files of families, for readers, which know none. */
struct mfs_ckpt_part_ops {
	/* The i-th family that names the provider's class. Without a provider, the i-th of the
	 * families that name none. NULL after the last. */
	const struct mfs_ckpt_part *(*candidate)(const char *provider, uint32_t i);
	/* The family whose class has the nearest name; NULL: none is near. */
	const char *(*nearest)(const char *provider);
};

/*
 * Finds out from the names of all model tensors of a save whether it is a vision-language model,
 * and of which family. What follows for the arguments is put into ckpt->args, and the family into
 * ckpt->part, which stays NULL in any other save. -ENOTSUP: it is one, and
 * MFS_CKPT_LANGUAGE does not ask for its language model, or no family knows its names. -EINVAL:
 * MFS_CKPT_LANGUAGE asks, and it is none; or two names stand for one tensor.
 */
int mfs_ckpt_choose_part(struct mfs_ckpt *ckpt, const char *const *names, uint32_t count,
			 struct mfs_error *err);

/* The name of a tensor in the language model: name itself, if no part was chosen. NULL: it is not
 * of the language model. text holds the name if it is another. */
const char *mfs_ckpt_part_name(const struct mfs_ckpt *ckpt, const char *name, char *text,
			       uint32_t size);

#endif
